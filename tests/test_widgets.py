"""The Python side of explorers: grids, frames, pages, answers to the view; and the
JavaScript side's own tests.
"""

import base64
import json
import re
import shutil
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednb import widgets
from fednb.widgets import bars, explore, heatmap, lines, scatter, text

matplotlib.use("Agg")
WIDGET = "application/vnd.jupyter.widget-view+json"


def total(a, b):
    """The sum of two numbers."""
    return text(f"{a + b:g}")


def figure(n=3, points=10):
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(figsize=(3, 2))
    axes.plot(np.linspace(0, n, points), np.random.default_rng(0).random(points), "o")
    axes.set_title("A title with 1.23456 and <ä>")
    return fig


def payload(explorer):
    """What the page carries, read as the ES module reads it."""
    data = re.search(r'data-frames="([^"]*)"', explorer.html).group(1)
    return json.loads(zlib.decompress(base64.b64decode(data)))


class View:
    """A front end in a few lines: sends what explore.js sends, and keeps what comes
    back.
    """

    def __init__(self, explorer):
        self.explorer, self.heard = explorer, []
        explorer.comm.publish_msg = lambda kind, data=None, **_: self.heard.append(data)

    def ask(self, values):
        content = json.loads(json.dumps({"ticket": 0.25, "values": values}))
        message = {
            "content": {"data": {"method": "custom", "content": content}},
            "buffers": [],
        }
        self.explorer.comm.handle_msg(message)
        answer = json.loads(json.dumps(self.heard[-1]))["content"]
        assert answer.pop("ticket") == 0.25
        return answer


# ---- what is shown


def test_both_kinds_of_output():
    explorer = explore(total, a=[1, 2], b=[10, 20, 30])
    data, _ = explorer._repr_mimebundle_()
    assert data["text/html"] == explorer.html and WIDGET in data
    assert data["text/plain"] == "explore(total, a, b)"


def test_every_combination_is_in_the_page_last_parameter_fastest():
    explorer = explore(total, a=[2, 1], b=[10, 20, 30])
    page = payload(explorer)
    assert [p["values"] for p in page["spec"]["params"]] == [
        [1, 2],
        [10, 20, 30],
    ]  # a slider rises
    assert [frame[0]["text"] for frame in page["frames"]] == [
        "11",
        "21",
        "31",
        "12",
        "22",
        "32",
    ]


def test_a_page_is_complete_and_always_the_same():
    explorer = explore(total, title="Sums <of> two", a=[1.5, 2], b=[10])
    assert (
        explorer.html == explore(total, title="Sums <of> two", a=[1.5, 2], b=[10]).html
    )
    assert (
        'type="module"' in explorer.html
        and "boot(document)" in explorer.html
        and "<noscript>" in explorer.html
    )
    assert not re.search(r"https?:|\bsrc=\"(?!data:)|<link|require\(", explorer.html)
    assert explorer.html.count("<script") == explorer.html.count("</script>") == 1


def test_the_note_speaks_of_marks_only_where_there_are_marks():
    assert "between the marks" in explore(total, a=[1, 2], b=[3]).spec["note"]
    assert (
        explore(lambda word: text(word), word=["yes", "no"]).spec["note"]
        == "Precomputed."
    )


def test_frames_are_not_in_the_saved_state():
    explorer = explore(lambda n: text(f"frame number {n}"), n=range(50))
    state = json.dumps(explorer.get_state(), default=str)
    assert "frame number 0" in state and "frame number 1" not in state


def test_figures_become_pictures_are_closed_and_described():
    import matplotlib.pyplot as plt

    plt.close("all")
    explorer = explore(figure, alt="Random dots", n=[1, 2])
    assert plt.get_fignums() == []
    first, second = (frame[0] for frame in payload(explorer)["frames"])
    assert first["svg"] != second["svg"] and (first["width"], first["height"]) == (
        288,
        192,
    )
    assert (
        first["svg"].startswith("<svg")
        and "1.23456 and &lt;ä&gt;</text>" in first["svg"]
    )  # text stays text
    assert re.search(
        r'<img [^>]*src="data:image/svg\+xml;base64,[^>]* alt="Random dots"',
        explorer.html,
    )
    assert explorer.html == explore(figure, alt="Random dots", n=[1, 2]).html
    assert (
        explorer.spec["alt"] == "Random dots"
        and explore(total, a=[1], b=[1]).spec["alt"] == "The sum of two numbers."
    )


def test_a_heavy_figure_becomes_webp():
    (panel,) = explore(lambda n: figure(n, points=20_000), n=[1]).first
    assert "svg" not in panel and base64.b64decode(panel["webp"])[8:12] == b"WEBP"


def test_a_figure_is_closed_even_if_it_cannot_be_drawn():
    import matplotlib.pyplot as plt

    def broken(n):
        fig = figure()
        fig.axes[0].set_title(r"$\nonsense$")
        return fig

    plt.close("all")
    with pytest.raises(RuntimeError, match=r"broken\(n=1\) failed"):
        explore(broken, n=[1])
    assert plt.get_fignums() == []


def test_a_quick_grid_prints_nothing(capfd):
    explore(total, a=range(9), b=[1])
    assert capfd.readouterr() == ("", "")


# ---- what is refused


@pytest.mark.parametrize(
    "values",
    [[], [1, 1], [1, "a"], [float("nan")], [True, False], [None], 3j, [[1, 2]]],
)
def test_bad_values_are_named(values):
    with pytest.raises(ValueError, match="explore: a="):
        explore(total, a=values, b=[1])


def test_a_large_grid_is_refused_before_anything_is_computed():
    calls = []
    with pytest.raises(ValueError, match="2,500 combinations.*2,000.*fewer values"):
        explore(lambda a, b: calls.append(a), a=range(50), b=range(50))
    assert not calls


def test_a_heavy_page_is_refused_with_advice():
    noise = np.random.default_rng(0)
    with pytest.raises(
        ValueError, match=r"9 frames make \d+ kB, over 300 kB; use fewer grid values"
    ):
        explore(lambda n: heatmap(noise.random((100, 100))), n=range(9))


def test_an_error_names_the_combination():
    with pytest.raises(
        RuntimeError, match=r"\(a=1, b=0\) failed: ZeroDivisionError"
    ) as caught:
        explore(lambda a, b: text(a / b), a=[1, 2], b=[0, 1])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "out", [None, 3.5, {"kind": "pie"}, {"z": [[1]]}, [text("a"), 1]]
)
def test_what_cannot_be_shown_is_named(out):
    with pytest.raises(
        RuntimeError, match="cannot show .*heatmap, lines, scatter, bars, text"
    ):
        explore(lambda n: out, n=[1])


# ---- the live side, without a browser


def test_the_view_gets_all_frames_and_each_of_them():
    explorer = explore(total, a=[1, 2], b=[10.0, 20.0])
    view = View(explorer)
    assert view.ask(None) == {"frames": payload(explorer)["frames"]}
    assert view.ask({"a": 2, "b": 10}) == {"panels": [text("12")]}


def test_off_the_grid_the_kernel_computes_and_on_it_looks_up():
    calls = []

    def record(a, x, word):
        calls.append((a, x, word))
        return lines([a * x, len(word)])

    view = View(explore(record, a=[1, 3], x=[0.0, 1.0], word=["up", "down"]))
    assert len(calls) == 8
    assert view.ask({"a": 3, "x": 1, "word": "down"})["panels"][0]["series"] == {
        "": [3, 4]
    }
    assert len(calls) == 8, "a value on the grid is looked up"
    assert view.ask({"a": 2, "x": 0.25, "word": "up"})["panels"][0]["series"] == {
        "": [0.5, 2]
    }
    assert calls[8:] == [(2, 0.25, "up")]
    view.ask({"a": 2, "x": 1, "word": "up"})
    assert [type(v) for v in calls[-1]] == [int, float, str], (
        "1 from JavaScript is a float where the grid has floats"
    )


def test_a_live_error_is_an_answer_and_the_next_one_is_right():
    def picky(a):
        if a == 2:
            raise KeyboardInterrupt
        return text(1 / (a - 3))

    view = View(explore(picky, a=[1, 5]))
    assert view.ask({"a": 3}) == {
        "error": "picky(a=3) failed: ZeroDivisionError: division by zero"
    }
    assert view.ask({"a": 2}) == {"error": "KeyboardInterrupt"}
    assert view.ask({"a": 4}) == {"panels": [text("1.0")]}


# ---- drawings


def test_drawings_are_plain_and_short():
    z = torch.tensor([[1 / 3, float("nan")], [float("inf"), 2e-9]], dtype=torch.float64)
    drawn = heatmap(z, x=np.array(["a", "b"]), y=range(2), zlim=(0, np.float32(1)))
    assert (
        drawn["z"] == [[0.3333, None], [None, 2e-09]]
        and drawn["x"] == ["a", "b"]
        and drawn["zlim"] == [0, 1.0]
    )
    assert lines(np.arange(3))["series"] == {"": [0, 1, 2]} and lines([5, 6])["x"] == [
        0,
        1,
    ]
    assert scatter([[1, 2], [3, 4]], labels=np.array([1, 0]))["labels"] == ["1", "0"]
    assert bars({"a": [1], "b": [2]}, x=["only"])["x"] == ["only"]
    for drawing in (drawn, lines([1]), scatter([[1, 2]]), bars([1]), text("x")):
        assert json.loads(json.dumps(drawing, allow_nan=False)) == drawing


@given(st.floats(-1e300, 1e300, allow_subnormal=False))
def test_rounding_keeps_four_digits(value):
    assert widgets._plain(value) == pytest.approx(value, rel=6e-4, abs=1e-320)
    assert len(re.sub(r"e.*|[-.]", "", f"{widgets._plain(value):.15g}").strip("0")) <= 4


def test_a_dictionary_or_dataclass_is_as_good_as_its_constructor():
    @dataclass
    class Curve:
        series: list
        kind: str = "lines"
        ylabel: str = "loss"

    explorer = explore(
        lambda n: [Curve([n, 2]), {"kind": "heatmap", "z": np.eye(n)}, "words"], n=[2]
    )
    assert explorer.first == [
        lines([2, 2], ylabel="loss"),
        heatmap(np.eye(2)),
        text("words"),
    ]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: heatmap([1, 2]), r"shape \(2,\)"),
        (lambda: heatmap([[1]], cmap="jet"), "jet"),
        (lambda: heatmap([[1, 2]], x=["a"]), "1 values in x for 2 places"),
        (lambda: lines([1, 2], x=[1]), "1 values in x for 2 places"),
        (lambda: lines([]), "0 places"),
        (lambda: bars({"a": [1, 2]}, x=["p", "q", "r"]), "3 values in x for 2 places"),
        (lambda: scatter([1, 2]), r"\(N, 2\)"),
        (lambda: scatter([[1, 2]], labels=[1, 2]), "2 values in labels for 1 places"),
    ],
)
def test_bad_drawings_say_what_is_wrong(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


# ---- the house


def test_importing_fednb_leaves_widgets_alone():
    names = ("anywidget", "ipywidgets", "fednb.widgets")
    code = f"import sys, fednb; print([m for m in {names} if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True
        ).stdout.strip()
        == "[]"
    )


def test_the_es_module_passes_its_own_tests():
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not here: the tests of explore.js did not run")
    done = subprocess.run(
        [node, "--test", str(Path(__file__).with_name("test_explore.mjs"))],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_an_explorer_opens_where_it_is_told():
    assert explore(total, a=[1, 2], b=[10, 20]).first == [text("11")]
    told = explore(total, a=[1, 2], b=[10.0, 20.0], start={"b": 20})
    assert told.first == [text("21")] and [
        p["start"] for p in payload(told)["spec"]["params"]
    ] == [1, 20.0]
    with pytest.raises(ValueError, match="start a=3 is not on the grid"):
        explore(total, a=[1, 2], b=[1], start={"a": 3})
    with pytest.raises(ValueError, match="no parameter c; there are a, b"):
        explore(total, a=[1], b=[1], labels={"c": "γ"})
