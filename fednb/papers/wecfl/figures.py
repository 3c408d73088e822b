"""WeCFL's chapter in pictures, and the small live runs that it shows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import data, metrics, models, plots
from ...clustering import kmeans_objective, weighted_kmeans
from ...federation import Federation
from ...methods import FixedClusters, WeCFL
from ...methods.wecfl import represent
from ...params import mean_by
from ...similarity import cosine
from ...training import Local
from . import deals, outcomes
from .tasks import CURVES, SCALES, in_the_plane, law

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series


WIDTH = 5.8  # inches: words stay readable when a phone shrinks the picture
SNAPSHOTS = (("fashion_mnist", 10), ("fashion_mnist", 3), ("cifar10", 10))
SIGNS = {
    "WeCFL": (plots.COLOURS[0], "-"),
    "FeSEM": (plots.COLOURS[1], "--"),
    "IFCA": (plots.COLOURS[2], "-."),
    "IFCA as released, η = 0.001": (plots.COLOURS[2], ":"),
    "FedAvg": (plots.COLOURS[3], "-"),
    "FedAvg, η = 0.001": (plots.COLOURS[3], ":"),
    "LocalOnly": (plots.COLOURS[4], "-"),
    "random": (plots.COLOURS[5], "--"),
    "oracle": (plots.COLOURS[6], "-."),
    "Oracle clusters": (plots.COLOURS[6], "-."),
    "WeCFL, K = 3": (plots.COLOURS[0], ":"),
    "WeCFL, K = 5": (plots.COLOURS[0], "--"),
    "WeCFL, K = 10": (plots.COLOURS[0], "-"),
    "Fashion-MNIST, K = 10": (plots.INK, "-"),
    "Fashion-MNIST, K = 3": (plots.INK, ":"),
    "CIFAR-10, K = 10": (plots.COLOURS[7], "--"),
}  # a colour and a dash for each method, the same in all pictures


# --- live runs on the digits ----------------------------------------------------------


def deal_digits() -> tuple[dict[str, Any], np.ndarray]:
    """The digits dealt to thirty clients by each of four laws, and their classes."""
    digits = data.load("digits")
    y = digits.y[: digits.n_train]
    thirty = replace(SCALES["smoke"], clients=30)
    return {name: law(thirty, name)(y, seed=0) for name in outcomes.SETTINGS}, y


def small_federation(part: Any) -> Federation:
    """A fresh federation on the digits: small networks, ten steps of 16 samples."""
    network = partial(models.mlp, 64, (32,), 10)
    local = Local(0.1, steps=10, batch_size=16)
    return Federation(data.load("digits"), part, network, local=local, seed=0)


@cache
def five_rounds(clusters: int, who: str) -> list[tuple]:
    """What clients of α = (0.1, 10) send in five rounds, and the clusters they get.

    ``who`` is "WeCFL", or "chance": clusters drawn by lot, and kept.
    """
    part = deal_digits()[0]["α = (0.1, 10)"]
    fed = small_federation(part)
    theta, labels = WeCFL(clusters).init(fed)
    sizes = np.bincount(np.arange(fed.K) % clusters).tolist()
    lots = torch.tensor(FixedClusters.random(sizes, seed=1).labels)
    seen = []
    for _ in range(5):
        trained = fed.train(theta[labels]).theta
        g = represent(trained, fed.layout)  # (K, d)
        labels = weighted_kmeans(g, fed.n, clusters, fed.draw())
        if who == "chance":
            labels = lots
        theta = mean_by(trained, fed.n, labels, old=theta)
        seen.append((g, labels))
    return seen


def snapshot(clusters: int, after: int, who: str) -> tuple[Figure, str]:
    """The clients of one round in the plane, and distances from the full space."""
    g, labels = five_rounds(clusters, who)[after - 1]
    truth = deal_digits()[0]["α = (0.1, 10)"].truth
    fig = plots.spokes(np.array(in_the_plane(g.numpy())), labels, names=truth)
    fig.axes[0].set(xticks=[], yticks=[])
    equal = torch.ones(len(g))
    centres = mean_by(g, equal, labels, old=g[: labels.max() + 1])
    spread = kmeans_objective(g, equal, labels, centres).sqrt()
    whole = metrics.completeness(truth, labels.numpy())
    words = f"client to centre {spread:.2f}, least distance of two centres "
    return fig, f"{words}{torch.pdist(centres).min():.2f}, completeness {whole:.2f}"


def neighbours(counts: np.ndarray, truth: np.ndarray) -> int:
    """How many clients have their most similar one, by classes, in their own group."""
    nearest = cosine(counts).fill_diagonal_(-1).argmax(1).numpy()
    return int((truth[nearest] == truth).sum())


# --- pictures -------------------------------------------------------------------------


def loop() -> Figure:
    """One round of Algorithm 1: what the server does, what clients do, what travels."""
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(5.8, 5.4))
    ax = fig.subplots()
    ax.set(xlim=(0, 100), ylim=(-5, 90))
    ax.axis("off")
    blue, orange = plots.COLOURS[:2]
    _box(ax, 2, 43, 96, 45, plots.INK)
    ax.text(4, 46, "server", weight="bold", va="center")
    _say(ax, 25, 82, "E: each client joins\nthe nearest centre ×")
    _say(ax, 75, 82, "M: centre × = mean,\nweighted by sizes")
    places = {blue: [(12, 64, 9), (24, 56, 4)], orange: [(34, 68, 5), (40, 58, 4)]}
    before = {blue: (20, 66), orange: (30, 60)}  # centres of the round before
    for colour, clients in places.items():
        x, y, size = np.array(clients, float).T
        _members(ax, x, y, size, before[colour], colour)
        after = np.average(np.stack([x, y]), axis=1, weights=size**2)
        _members(ax, x + 50, y, size, (after[0] + 50, after[1]), colour)
    _arrow(ax, (45, 63), (55, 63), plots.INK)
    holders = [(blue, 9, 80), (blue, 4, 16), (orange, 5, 25), (orange, 4, 16)]
    for i, (colour, size, samples) in enumerate(holders):
        x = 3 + 25 * i
        _box(ax, x, 4, 19, 16, colour)
        _say(ax, x + 9.5, 16, f"client {i + 1}", 9)
        ax.scatter(x + 4, 9, s=5 * size**2, color=colour, alpha=0.85)
        _say(ax, x + 13, 9, f"{samples}\nsamples", 8)
        _arrow(ax, (x + 6, 42), (x + 6, 21), colour)
        _arrow(ax, (x + 13, 21), (x + 13, 42), plots.INK)
    travels = "D: its cluster's model goes down,\nits own trained one goes up: "
    _say(ax, 50, 31.5, f"{travels}rows of numbers", behind="white")
    _say(ax, 50, -2, "L: every client takes some gradient steps on its own data")
    return fig


def _members(
    ax: Any, x: np.ndarray, y: np.ndarray, size: np.ndarray, centre: Any, colour: str
) -> None:
    """Clients of one cluster as dots, with a line from each to the centre."""
    for place in zip(x, y, strict=True):
        ax.plot(*zip(place, centre, strict=True), color=colour, lw=1, zorder=2)
    ax.scatter(x, y, s=8 * size**2, color=colour, alpha=0.85, zorder=3)
    look: dict[str, Any] = {"marker": "X", "color": colour, "edgecolor": "white"}
    ax.scatter([centre[0]], [centre[1]], s=110, zorder=4, **look)


def _say(
    ax: Any, x: float, y: float, words: str, size: float = 10, behind: str = "none"
) -> None:
    """Write words around a point."""
    paper = {"facecolor": behind, "edgecolor": "none", "pad": 2}
    ax.text(x, y, words, ha="center", va="center", size=size, bbox=paper)


def _box(ax: Any, x: float, y: float, w: float, h: float, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    look: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "lw": 1.6}
    style = "round,pad=0.4,rounding_size=1.5"
    ax.add_patch(FancyBboxPatch((x, y), w, h, boxstyle=style, **look))


def _arrow(ax: Any, start: tuple, end: tuple, colour: str) -> None:
    from matplotlib.patches import FancyArrowPatch

    look: dict[str, Any] = {"mutation_scale": 14, "color": colour, "lw": 1.8}
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", **look))


def deal_maps(deals: dict[str, tuple]) -> Figure:
    """Client by class pictures of the four laws: title -> (counts, hidden groups)."""
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 5.4))
    axes = fig.subplots(2, 2)
    for ax, (name, (counts, truth)) in zip(axes.flat, deals.items(), strict=True):
        _class_map(counts, truth, ax)
        ax.set_xticks(range(0, len(counts), 5))
        ax.set_title(name, pad=16)
    return fig


def _class_map(counts: np.ndarray, groups: Any, ax: Any) -> None:
    """`plots.class_map` with bubbles that are large enough for a small panel."""
    plots.class_map(counts, groups, ax=ax)
    bubbles = ax.collections[0]
    sizes = bubbles.get_sizes()
    bubbles.set_sizes(np.maximum(70 * sizes / sizes.max(), 4))  # points²


def before_and_after(frame: DataFrame, seed: int) -> Figure:
    """Who holds what on Fashion-MNIST: by hidden groups, and by the clusters found.

    ``frame`` has the geometry's runs; the clusters are those of ten after the last
    round.
    """
    from matplotlib.figure import Figure

    plots.style()
    run = frame[(frame["dataset"] == deals.DATASET) & (frame["K"] == 10)]
    course = run[run["seed"] == seed]["course"].iloc[0]
    counts, truth = deals.read()["α = (0.1, 10)", seed]
    sides = {"hidden groups": truth, "clusters found": course["labels"].iloc[-1]}
    fig = Figure(figsize=(WIDTH, 5.4))
    for ax, (name, groups) in zip(fig.subplots(2), sides.items(), strict=True):
        _class_map(counts, groups, ax)
        order = np.argsort(groups, kind="stable")
        ax.set_xticks(range(len(counts)), order, fontsize=7)
        ax.set_title(name, pad=16)
    return fig


def two_weightings(xy: np.ndarray, sides: dict[str, tuple]) -> Figure:
    """The same points, clustered with different weights: title -> (labels, weights)."""
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 2.9))
    axes = fig.subplots(1, len(sides), sharey=True)
    for ax, (title, (labels, weights)) in zip(axes, sides.items(), strict=True):
        plots.spokes(xy, labels, weights, ax=ax)
        ax.margins(0.2)
        ax.set(xlabel="first parameter", ylabel="second parameter")
        ax.set_title(title, fontsize=10)
    return fig


def side_by_side(races: dict[str, dict[str, Any]]) -> Figure:
    """Accuracy over rounds, a panel for each deal."""
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 3.5))
    axes = fig.subplots(1, len(races), sharey=True)
    for ax, (deal, histories) in zip(axes, races.items(), strict=True):
        _curves(histories, "accuracy", ax)
        ax.set_title(deal)
    _legend_below(fig, axes)
    return fig


def _curves(runs: dict[str, Any], metric: str, ax: Any) -> None:
    """`plots.curves` with the colours and dashes of ``SIGNS``."""
    plots.curves(runs, metric, ax=ax)
    bands = [*ax.collections] or [None] * len(ax.lines)
    for line, band in zip(ax.lines, bands, strict=True):
        colour, dash = SIGNS[line.get_label()]
        line.set(color=colour, linestyle=dash)
        if band is not None:
            band.set_color(colour)


def _legend_below(fig: Any, axes: Any, columns: int = 4) -> None:
    """One legend below all panels in place of one in each."""
    handles, labels = axes[0].get_legend_handles_labels()
    for ax in axes:
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    look: dict[str, Any] = {"loc": "outside lower center", "fontsize": 9}
    fig.legend(handles, labels, ncols=columns, **look)


def table_dots(table: str, value: str = outcomes.ACCURACY) -> Figure:
    """Table 2 or 5 as dots, ten models or one: the paper's numbers, and ours."""
    import pandas as pd

    settings = {"2": outcomes.CLUSTER_WISE, "5": outcomes.CLIENT_WISE}[table]
    laptop = outcomes.both().assign(scale="ours, laptop scale")
    own = outcomes.own_scale().assign(scale="ours, the paper's scale")
    ours = pd.concat([laptop, own])
    apart = [
        "IFCA as released",
        "FeSEM, unweighted averages",
        *outcomes.WITH_SAME_CLASSES,
    ]
    ours = ours[ours["setting"].isin(settings) & ~ours["row"].isin(apart)]
    theirs = outcomes.printed(table)
    fig = plots.dots(
        outcomes.for_dots(ours[ours["K"] != 5]).assign(line=lambda frame: frame["row"]),
        outcomes.for_dots(theirs[theirs["K"] != 5]).assign(
            line=lambda frame: frame["row"]
        ),
        rows="line",
        columns="panel",
        value=value,
        ours_name="scale",
        across=2,
    )
    fig.set_size_inches(WIDTH, 5.8)
    for ax in fig.axes:
        ax.set_title(ax.get_title(), fontsize=9.5)
        ax.locator_params(axis="x", nbins=4)
        ax.set_xlabel("")
    fig.supxlabel(plots.NAMES[value], fontsize=10)
    return fig


def draw_company() -> Figure:
    """`outcomes.company` as dots, fewest classes first, and what is printed."""
    frame = outcomes.for_dots(outcomes.company())
    by_line = frame.groupby("line")["classes"].mean().sort_values(kind="stable")
    names = {line: f"{line} ({number:.1f})" for line, number in by_line.items()}
    theirs = outcomes.for_dots(
        outcomes.cell(outcomes.paper(), "cifar10", "(3, 2)-class")
    )
    theirs = theirs[theirs["line"].isin(names)]
    frame = frame.sort_values("line", key=lambda line: line.map(by_line), kind="stable")
    fig = plots.dots(
        frame.replace({"line": names}),
        theirs.replace({"line": names}),
        rows="line",
        columns="panel",
        value=outcomes.ACCURACY,
    )
    fig.set_size_inches(WIDTH, 0.3 * len(names) + 1.2)
    fig.axes[0].set_title("")
    return fig


def convergence() -> Figure:
    """The paper's Figures 2 and 3, re-run: accuracy and macro-F1 over rounds.

    IFCA as released stands here with the paper's learning rate, beside FedAvg with it.
    """
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 7.4))
    titles = {
        "figure2": "Figure 2: CIFAR-10, (3, 2)-class",
        "figure3": "Figure 3: Fashion-MNIST, α = (0.1, 10)",
    }
    halves: Any = fig.subfigures(2)
    for part, (name, title) in zip(halves, titles.items(), strict=True):
        runs = outcomes.curves(name)
        runs.pop("IFCA as released", None)
        axes = part.subplots(1, 2)
        for ax, metric in zip(axes, CURVES, strict=True):
            _curves(runs, metric, ax)
        part.suptitle(title, fontsize=11)
        _legend_below(part, axes, columns=3)
    return fig


def saw_teeth(courses: dict[str, DataFrame]) -> Figure:
    """F after each of the steps E, M, D and L, for the first six rounds of a toy.

    Every panel has its own scale.
    """
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 2.8))
    axes = fig.subplots(1, len(courses), squeeze=False)
    for ax, (title, past) in zip(axes[0], courses.items(), strict=True):
        saw = past.assign(F_D=0.0)[["F_E", "F_M", "F_D", "F_L"]].iloc[:6]
        ax.plot(1 + np.arange(24) / 4, saw.to_numpy().ravel(), "o-", markersize=3)
        ax.set(title=title, xlabel="round", ylabel="F")
    first = next(iter(courses.values()))
    heights = [first["F_E"].iloc[1], first["F_M"].iloc[1], 0.0, first["F_L"].iloc[1]]
    offsets = [(3, 3), (-12, 3), (3, -12), (-1, 5)]
    for i, (step, offset) in enumerate(zip("EMDL", offsets, strict=True)):
        place = (2 + i / 4, heights[i])  # the second tooth
        axes[0, 0].annotate(step, place, offset, textcoords="offset points")
    axes[0, 0].margins(y=0.12)
    return fig


def clusterability_curves(past: DataFrame, names: list[str]) -> Figure:
    """How members disagree: in absolute terms (distance to the centre), and by B."""
    import pandas as pd
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 2.8))
    left, right = fig.subplots(1, 2)
    left.plot(past["F_M"].pow(0.5))
    left.set_title("absolute: client to centre, √F", fontsize=10)
    left.set(xlabel="round")
    each = pd.DataFrame([*past["B"]], past.index, names)
    for i, name in enumerate(each):
        right.plot(each[name], ("-", "--", "-.")[i % 3], label=name)
    right.set_title("relative: B of three clusters", fontsize=10)
    right.set(xlabel="round")
    right.legend(loc="upper left", fontsize=9)
    return fig


def rate(panels: dict[str, DataFrame]) -> Figure:
    """What Eq. 9 promises and what Eq. 10 measures; frames of `theory.promise`."""
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 3))
    axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)
    for ax, (title, frame) in zip(axes[0], panels.items(), strict=True):
        ax.loglog(frame["promised"], "--", label="promised (Eq. 9)")
        ax.loglog(frame["measured"], label="measured (Eq. 10)")
        U2 = frame["U"].max() ** 2
        ax.axhline(U2, color="0.6", linestyle=":", label="U²: none can exceed it")
        ax.set_xlabel("rounds T")
        ax.set_title(f"{title}\nB up to {frame['B'].max():.1f}", fontsize=9.5)
    axes[0, 0].set_ylabel("squared gradient")
    _legend_below(fig, axes[0], columns=2)
    return fig


def cosine_maps(views: dict[str, tuple[Any, Any]]) -> Figure:
    """Cosines of rows, sorted by groups; white is 0, so that negative ones show."""
    from matplotlib.figure import Figure

    plots.style()
    fig = Figure(figsize=(WIDTH, 3))
    axes = fig.subplots(1, len(views))
    for ax, (title, (rows, groups)) in zip(axes, views.items(), strict=True):
        plots.matrix(cosine(rows), groups, name="cosine", ax=ax)
        title = f"{title}\n{_cosines_in_words(rows, groups)}"
        ax.images[0].set_cmap("RdBu_r")
        ax.images[0].set_clim(-1, 1)
        ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
        ax.set_title(title + "\n", fontsize=9)
    for ax in axes[:-1]:
        ax.images[0].colorbar.remove()  # the last one tells for all
    return fig


def _cosines_in_words(rows: torch.Tensor, groups: Any) -> str:
    """The mean cosine of two rows: of one group and of different ones, or of all."""
    apart = ~torch.eye(len(rows), dtype=torch.bool)
    if groups is None:
        return f"mean {float(cosine(rows)[apart].mean()):.2f}\n"
    same = torch.as_tensor(groups)[:, None] == torch.as_tensor(groups)
    within = float(cosine(rows)[same & apart].mean())
    across = float(cosine(rows)[~same].mean())
    return f"members {within:.2f}\nothers {across:.2f}"


def snapshots(frame: DataFrame, dataset: str, K: int, seed: int = 0) -> Figure:
    """Figures 5, 7 and 8 from records: t-SNE of what clients send next.

    After t rounds of clustering, so in round t + 1, and coloured by the clusters in
    which they trained. Round 1 comes first, coloured by the clusters that were made of
    it.
    """
    from matplotlib.figure import Figure

    plots.style()
    course = one_run(frame, dataset, K, seed)["course"]
    sent = one_run(outcomes.steps(), dataset, K, seed)["first_plane"]
    pictures = [(1, sent, course["labels"].iloc[0])]
    for _, line in course.iloc[:4].iterrows():
        pictures.append((line["round"] + 1, line["plane"], line["labels"]))
    fig = Figure(figsize=(WIDTH, 2))
    axes = fig.subplots(1, len(pictures), squeeze=False)[0]
    for ax, (t, plane, labels) in zip(axes, pictures, strict=True):
        plots.spokes(np.array(plane), np.array(labels), ax=ax)
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"round {t}", fontsize=9.5)
    return fig


def one_run(frame: DataFrame, dataset: str, K: int, seed: int) -> Series:
    """The line of one run."""
    here = frame["dataset"].eq(dataset) & frame["K"].eq(K) & frame["seed"].eq(seed)
    (line,) = [line for _, line in frame[here].iterrows()]
    return line


def figure_4(seed: int = 0) -> Figure:
    """Figure 4 from records, ten clusters: cosines after the last round.

    Of all centres, and of the members of the largest cluster.
    """
    from matplotlib.figure import Figure

    plots.style()
    frame = outcomes.steps()
    fig = Figure(figsize=(WIDTH, 5.2))
    axes = fig.subplots(2, 2)
    for line, dataset in zip(axes, ("cifar10", "fashion_mnist"), strict=True):
        run = one_run(frame, dataset, 10, seed)
        sides = {"centres": "cosines_centres", "members": "cosines_members"}
        for ax, (name, column) in zip(line, sides.items(), strict=True):
            plots.matrix(torch.tensor(run[column]), None, name="cosine", ax=ax)
            ax.images[0].set_cmap("RdBu_r")
            ax.images[0].set_clim(-1, 1)
            ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
            ax.set_title(f"{outcomes.DATASETS[dataset]}, {name}", fontsize=9.5)
    return fig


def geometry_curves(frame: DataFrame) -> Figure:
    """B, distances and mean cosines of the tables' networks over rounds.

    Thin lines are the cosines that the paper reads off its Figure 4.
    """
    from matplotlib.figure import Figure

    plots.style()
    names = frame["dataset"].replace(outcomes.DATASETS) + ", " + frame["row"]
    runs = {name: [*frame[names == name]["course"]] for name in dict.fromkeys(names)}
    fig = Figure(figsize=(WIDTH, 4.6))
    *axes, empty = fig.subplots(2, 3).flat
    heads = {
        "B": "B, worst cluster",
        "to_centre": "client to its centre",
        "between": "nearest two centres",
        "cosine_members": "cosine of two members",
        "cosine_centres": "cosine of two centres",
    }
    for ax, (metric, title) in zip(axes, heads.items(), strict=True):
        _curves(runs, metric, ax)
        ax.set(ylabel="", xlabel="after round")
        ax.set_title(title, fontsize=9.5)
        ax.get_legend().remove()
    for ax, printed in zip(axes[3:], (0.999, 0.93), strict=True):
        ax.axhline(printed, color="0.6", linewidth=1, label="paper, Figure 4")
    empty.set_axis_off()
    empty.legend(*axes[3].get_legend_handles_labels(), loc="center", fontsize=9)
    return fig
