"""Pictures: what they show can be read off the figure, and what is put on a page is
small, closed and has words.
"""

import ast
import base64
import html
import inspect
import re
import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fednb import plots
from fednb.history import History
from fednb.methods import ALL, FedAvg, LocalOnly
from fednb.show import annotated, image, listing, show, source, two_columns

COUNTS = np.array([[4, 0, 0], [0, 2, 2], [1, 1, 2]])


def history(values):
    return History(
        {"round": t, "bytes": 2e6 * t, "accuracy": a}
        for t, a in enumerate(values, start=1)
    )


# --- plots ----------------------------------------------------------------------------


def test_rank_diagram_has_a_mark_for_each_rank_and_the_best_to_the_left():
    ranks = {"c": 3.5, "a": 1.0, "b": 2.25}
    ax = plots.rank_diagram(ranks, [("a", "b")]).axes[0]
    marks = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    assert sorted(marks) == sorted(ranks.values())
    words = {text.get_text().strip(): text.get_position()[0] for text in ax.texts}
    assert set(words) == {"a (1.00)", "b (2.25)", "(3.50) c"}
    assert words["a (1.00)"] < 1 and words["(3.50) c"] > 3.5
    for bad in (({}, ()), (ranks, [("a", "z")])):
        with pytest.raises(ValueError, match="no ranks of"):
            plots.rank_diagram(*bad)


def test_class_map_draws_a_bubble_per_pair_with_area_by_count():
    (bubbles,) = plots.class_map(COUNTS).axes[0].collections
    assert len(bubbles.get_offsets()) == np.count_nonzero(COUNTS)
    areas = {
        tuple(at): area
        for at, area in zip(
            bubbles.get_offsets().astype(int), bubbles.get_sizes(), strict=True
        )
    }
    assert (
        areas[0, 0] == pytest.approx(4 * areas[2, 0]) == pytest.approx(2 * areas[1, 2])
    )


def test_class_map_sorts_by_truth_and_colours_the_clusters():
    fig = plots.class_map(COUNTS, truth=[1, 0, 1])
    ax = fig.axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "0", "2"]
    colours = [to_hex(c).upper() for c in ax.collections[0].get_facecolors()]
    assert set(colours[:2]) == {plots.COLOURS[0]} and set(colours[2:]) == {
        plots.COLOURS[1]
    }
    assert [t.get_text() for t in ax.texts] == ["0", "1"]
    assert (
        not plots.class_map(COUNTS, truth=[0, 0, 0]).axes[0].texts
    )  # one cluster needs no name


@pytest.mark.parametrize("K, C", [(1, 1), (3, 100), (100, 3)])
def test_class_map_takes_any_shape(K, C):
    fig = plots.class_map(np.ones((K, C)), truth=np.arange(K) % 2)
    assert (
        isinstance(fig, Figure)
        and fig.get_figwidth() <= 11
        and fig.get_figheight() <= 8
    )
    assert plots.class_map(np.zeros((K, C)))  # clients without samples


def test_curves_draw_means_and_bands():
    runs = {
        "FedAvg": [history([0.2, 0.4]), history([0.4, 0.8])],
        "LocalOnly": history([0.5, 0.5]),
    }
    ax = plots.curves(runs).axes[0]
    first, second = ax.lines
    assert first.get_xdata().tolist() == [1, 2] and first.get_ydata() == pytest.approx(
        [0.3, 0.6]
    )
    (band,) = ax.collections  # one run has no band
    low, high = (
        band.get_paths()[0].vertices[:, 1].min(),
        band.get_paths()[0].vertices[:, 1].max(),
    )
    assert (low, high) == pytest.approx((0.2, 0.8))
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "FedAvg",
        "LocalOnly",
    ]
    assert first.get_linestyle() != second.get_linestyle()
    many = (
        plots.curves({name: history([0.1, 0.2]) for name in "abcdef"})
        .axes[0]
        .get_legend()
    )
    assert (
        many.get_bbox_to_anchor().x0 > ax.get_legend().get_bbox_to_anchor().x0
    )  # beside the curves, not upon them


def test_curves_over_traffic_are_in_megabytes_and_take_frames():
    ax = plots.curves({"a": history([0.1, 0.2]).frame()}, x="bytes").axes[0]
    assert ax.lines[0].get_xdata() == pytest.approx([2, 4]) and "MB" in ax.get_xlabel()
    with pytest.raises(ValueError, match="no column 'loss'.*accuracy"):
        plots.curves({"a": history([0.1])}, metric="loss")
    short = plots.curves({"a": [history([0.1, 0.2]), history([0.3])]}).axes[
        0
    ]  # a run that was stopped early
    assert short.lines[0].get_ydata() == pytest.approx([0.2])


def test_matrix_sorts_rows_and_columns_by_label():
    M = np.arange(9.0).reshape(3, 3)
    fig = plots.matrix(torch.tensor(M), torch.tensor([1, 0, 1]), name="cosine")
    order = [1, 0, 2]
    assert (fig.axes[0].images[0].get_array() == M[np.ix_(order, order)]).all()
    assert len(fig.axes[0].lines) == 2  # one border, across both axes
    assert fig.axes[1].get_ylabel() == "cosine"
    assert not plots.matrix(M).axes[0].lines


def test_points_tell_groups_apart_by_shape_too():
    groups = plots.points([[0, 0], [1, 1], [2, 0]], ["b", "a", "b"]).axes[0].collections
    assert [len(g.get_offsets()) for g in groups] == [1, 2]
    assert len(groups[0].get_paths()[0].vertices) != len(
        groups[1].get_paths()[0].vertices
    )


def test_spokes_lead_to_the_weighted_mean_of_a_cluster():
    ax = plots.spokes(
        [[0, 0], [4, 0], [9, 9]], ["b", "b", "a"], weights=[3, 1, 2], names="xyz"
    ).axes[0]
    paths = [line.get_xydata().tolist() for line in ax.lines]
    assert paths == [
        [[9, 9], [9, 9]],
        [[1, 0], [0, 0], [1, 0], [4, 0]],
    ]  # centre, point, centre, point
    assert [t.get_text() for t in ax.texts] == ["x", "y", "z"]
    alone, _, pair, _ = ax.collections  # points, then the centre's cross
    assert pair.get_sizes().tolist() == pytest.approx(
        [3 * pair.get_sizes()[1], alone.get_sizes()[0] / 2]
    )
    with pytest.raises(ValueError, match="zip"):
        plots.spokes([[0, 0]], [0], names="xy")


def test_spokes_tell_ten_clusters_apart():
    n = len(plots.COLOURS) + 2
    ax = plots.spokes(np.eye(n)[:, :2], range(n), names=range(n)).axes[0]
    dots = ax.collections[::2]  # every other is a cross
    looks = {(to_hex(d.get_facecolor()[0]), to_hex(d.get_edgecolor()[0])) for d in dots}
    assert len(looks) == n
    assert all(
        to_hex(t.get_color()) != to_hex(d.get_facecolor()[0])
        for t, d in zip(ax.texts, dots, strict=True)
    )


def test_plots_draw_into_given_axes():
    fig, axes = plt.subplots(1, 4)
    plots.class_map(COUNTS, ax=axes[0])
    plots.curves({"a": history([0.1, 0.2])}, ax=axes[1])
    plots.matrix(np.eye(3), ax=axes[2])
    assert plots.spokes(np.ones((2, 2)), [0, 1], ax=axes[3]) is fig
    assert all(ax.has_data() for ax in axes)
    alone = plots.class_map(COUNTS).axes[0].collections[0].get_sizes().max()
    assert (
        axes[0].collections[0].get_sizes().max() < alone
    )  # smaller axes, smaller bubbles
    plt.close(fig)


@pytest.mark.parametrize(
    "draw, words",
    [
        (lambda: plots.class_map([1, 2]), r"counts has shape \(2,\)"),
        (lambda: plots.class_map(COUNTS, truth=[0]), "for 3 clients"),
        (lambda: plots.matrix(np.ones((2, 3))), "one row and one column per client"),
        (lambda: plots.points(np.ones((2, 3))), "two coordinates"),
        (lambda: plots.matrix(np.ones((0, 0))), "at least one row"),
    ],
)
def test_bad_input_is_named(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()


def test_plots_leave_nothing_open_in_pyplot():
    before = plt.get_fignums()
    plots.curves({"a": history([0.1])})
    assert plt.get_fignums() == before


def test_colours_can_be_told_apart():
    assert len(set(plots.COLOURS)) == len(plots.COLOURS) == len(plots.MARKERS)


# --- show -----------------------------------------------------------------------------


def test_show_displays_one_closed_image_with_its_words(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    fig, ax = plt.subplots()
    ax.plot([1, 2])
    show(fig, alt='A line that "rises" & ends', width=300)
    assert fig.number not in plt.get_fignums()
    (html,) = (item.data for item in shown)
    assert (
        html.count("<img") == 1
        and 'alt="A line that &quot;rises&quot; &amp; ends"' in html
        and 'width="300"' in html
    )
    svg = base64.b64decode(re.search('base64,([^"]+)', html)[1])
    assert svg.lstrip().startswith(b"<?xml") and b"<svg" in svg


def test_image_is_deterministic_and_small():
    def draw():
        return image(plots.matrix(np.eye(4)), alt="A diagonal")

    assert draw() == draw()
    assert len(draw()) < 60_000


def test_a_crowded_figure_becomes_a_bitmap_and_a_huge_one_is_refused():
    rng = np.random.default_rng(0)
    crowd = image(plots.points(rng.normal(size=(3000, 2))), alt="A cloud")
    assert "image/webp" in crowd and len(crowd) < 200_000
    fig = Figure(figsize=(9, 9))
    fig.add_subplot().imshow(rng.random((900, 900)), interpolation="nearest")
    with pytest.raises(ValueError, match="kB, more than 150"):
        image(fig, alt="Noise")


@pytest.mark.parametrize("alt", ["", "  "])
def test_a_figure_without_words_is_refused(alt):
    with pytest.raises(ValueError, match="alt="):
        image(Figure(), alt=alt)


# --- source ---------------------------------------------------------------------------


def test_source_shows_the_code_and_names_its_home(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    source(LocalOnly.step)
    text = shown[0].data
    assert text.startswith(
        "Source of `fednb.methods.local_only.LocalOnly.step`:\n\n"
        "```python\ndef step(self"
    )
    assert "trained = fed.train(" in text and text.endswith("\n```")
    source(FedAvg.step)
    assert "fednb-columns" in shown[1].data


def example(x):
    """Add up.

    More about it.
    """
    # l. 1: begin
    # with nothing
    total = 0
    for item in x:  # l. 2: for all
        square = item * item  # (K,)
        total = max(
            total,
            total + square,
        )  # (K,), l. 3: add
    return total  # done


def test_notes_stand_beside_the_code_that_they_belong_to():
    assert annotated(example) == [
        ("", ["def example(x):"]),
        ("l. 1: begin with nothing", ["    total = 0"]),
        (
            "l. 2: for all",
            ["    for item in x:", "        square = item * item  # (K,)"],
        ),
        (
            "l. 3: add",
            [
                "        total = max(",
                "            total,",
                "            total + square,",
                "        )  # (K,)",
            ],
        ),
        ("done", ["    return total"]),
    ]


def test_two_columns_lose_no_code_and_escape_it():
    page = two_columns(example)
    text = html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", "", page, flags=re.S))
    for word in ("Add up.", "l. 2: for all", "total + square", "return total"):
        assert word in text
    assert "More about it" not in text


def hostile(x):
    y = x < 3  # a <script> & more
    z = y  # two
    return z  # three


def test_notes_are_escaped():
    page = two_columns(hostile)
    assert "<script>" not in page and "a &lt;script&gt; &amp; more" in page


def test_every_line_of_every_step_is_shown():
    for cls in ALL:
        shown = [line for _, lines in annotated(cls.step) for line in lines]
        code = ast.unparse(ast.parse(textwrap.dedent("\n".join(shown))))
        step = ast.parse(textwrap.dedent(inspect.getsource(cls.step))).body[0]
        if ast.get_docstring(step) is not None:
            step.body = step.body[1:]
        assert code == ast.unparse(step)


def test_listing_takes_classes_modules_and_properties():
    assert "class FedAvg:" in listing(FedAvg)
    assert "`fednb.plots`" in listing(plots) and "def class_map" in listing(plots)
    assert "def final" in listing(History.final)
    assert listing(fenced).count("````") == 2  # a fence longer than any inside
    with pytest.raises(ValueError, match="no source"):
        listing(pd.DataFrame({"a": [1]}))


def fenced():
    """Holds a fence: ```python."""
