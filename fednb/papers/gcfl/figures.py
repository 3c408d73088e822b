"""GCFL's chapter in pictures, and the small live runs that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import metrics, plots, tables
from ...claims import effect
from ...clustering import otsu_components, otsu_threshold
from ...methods import GCFL
from ...similarity import attraction
from . import outcomes, priors, theory
from .tasks import SETTINGS, SHIELD_AND_NORM

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

OTHER_CURVES = {  # of Figure 2: how their grey lines are dashed
    "FedAvg": "-",
    "FedProx": "--",
    "AutoCFL": ":",
    "CFL-GP": "-.",
    "FedCCFA": (0, (6, 1.5, 1, 1.5, 1, 1.5)),
}
WIDTH = 7.2  # inches: as wide as the page


# --- pictures of records --------------------------------------------------------------


def table2_dots() -> Figure:
    """Table 2's non-IID cells: the paper's accuracy, and ours with 25 and 5 steps."""
    import pandas as pd

    both = []
    for steps in (25, 5):
        runs = priors.beside(outcomes.unlike(outcomes.small_scale(steps)))
        epochs = {25: "five epochs", 5: "one epoch"}[steps]
        both.append(runs.assign(work=f"ours, {epochs} a round"))
    ours = pd.concat(both)
    ours = _for_dots(outcomes.without_parts(ours))
    best_first = ours.groupby("row")["accuracy"].mean().sort_values(ascending=False)
    place = {row: i for i, row in enumerate(best_first.index)}
    ours = ours.sort_values("row", key=lambda rows: rows.map(place), kind="stable")
    fig = plots.dots(
        ours,
        _for_dots(outcomes.unlike(outcomes.printed("2"))),
        rows="row",
        columns="cell",
        value="accuracy in %",
        ours_name="work",
        across=2,
    )
    least = ours[ours["row"] == priors.ROW].groupby("cell")["accuracy in %"].mean()
    for ax in fig.axes:
        if ax.get_title().startswith("MNIST"):  # the last row lies far to the left
            ax.set_xlim(70, 101)
            words = f"← {least[ax.get_title()]:.0f}"
            ax.text(70.5, place[priors.ROW], words, va="center", fontsize=9)
    return fig


def _for_dots(frame: DataFrame) -> DataFrame:
    """A frame with a name for each panel and row, and accuracies in percent."""
    cell = frame["dataset"].map(outcomes.NAMES) + ", " + frame["setting"]
    frame = frame.assign(row=frame["row"].map(outcomes.shown))
    return frame.assign(cell=cell).assign(**{"accuracy in %": 100 * frame["accuracy"]})


def forest(
    panels: Mapping[str, outcomes.Lines], xlabel: str, across: int = 2
) -> Figure:
    """Effects with their intervals, panels side by side, all on one scale.

    A dot with its bar is our mean and its 95 % interval, a diamond the paper's effect.
    Green lies to the right of zero, orange to the left, blue across it.
    """
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    plots.style()
    names = list(dict.fromkeys(row for lines in panels.values() for row in lines))
    down = -(-len(panels) // across)
    height = (0.24 * len(names) + 0.7) * down + 0.6
    fig = Canvas(figsize=(WIDTH, height))
    axes = fig.subplots(down, across, sharey=True, sharex=True, squeeze=False)
    for ax, (title, lines) in zip(axes.flat, panels.items(), strict=True):
        for row, ((mean, low, high), paper) in lines.items():
            y = names.index(row)
            colour = plots.COLOURS[2 if low > 0 else 1 if high < 0 else 0]
            ax.plot([low, high], [y, y], color=colour)
            ax.plot(mean, y, "o", color=colour, ms=5)
            if paper is not None:
                ax.plot(paper, y, "D", mfc="none", mec=plots.INK, ms=6)
        ax.axvline(0, color=plots.INK, linewidth=1)
        ax.set_title(title)
    fig.supxlabel(xlabel, fontsize=10)
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].set_ylim(len(names) - 0.4, -0.6)
    sides = {"above 0": 2, "below 0": 1, "across 0: cannot tell": 0}
    keys = [
        Line2D([], [], marker="o", ms=5, color=plots.COLOURS[colour], label=words)
        for words, colour in sides.items()
    ]
    if any(
        paper is not None for lines in panels.values() for _, paper in lines.values()
    ):
        diamond: dict[str, Any] = {
            "ls": "",
            "marker": "D",
            "mfc": "none",
            "mec": plots.INK,
        }
        keys.append(Line2D([], [], label="paper", **diamond))
    fig.legend(handles=keys, ncols=len(keys), loc="outside upper center")
    return fig


def table2_leads(steps: int = 25) -> Figure:
    """How far GCFL is ahead of each row: setting by metric, the paper's lead beside."""
    runs = outcomes.unlike(outcomes.small_scale(steps))
    return _leads_by_setting(outcomes.without_parts(runs))


def nearer_leads() -> Figure:
    """The same with more data; call it only if `outcomes.nearer` has runs."""
    runs = outcomes.nearer()
    assert runs is not None
    without = [name for name, (_, row) in outcomes.OVER_ZETA.items() if row != "GCFL"]
    return _leads_by_setting(runs[~runs["row"].isin(without)])


def _leads_by_setting(runs: DataFrame) -> Figure:
    return forest(outcomes.panels_by_setting(runs), "GCFL ahead by, in points")


def twenty_leads() -> Figure:
    """GCFL's lead with 80 and with 200 clients, last round and second half."""
    titles = {scale: clients for clients, scale in outcomes.IN_TABLE3.items()}
    return _leads_by_scale(outcomes.twenty(), titles)


def table3_leads() -> Figure:
    """The same with 8 of 32 and 6 of 60 clients a round, and one epoch."""
    return _leads_by_scale(
        outcomes.unlike(outcomes.larger()),
        {"medium": "8 of 32 clients", "large": "6 of 60 clients"},
    )


def _leads_by_scale(runs: DataFrame, titles: Mapping[str, str]) -> Figure:
    """``titles`` has a name for each scale."""
    order = runs.groupby("row")["accuracy"].mean().sort_values(ascending=False).index
    names = outcomes.with_budgets(runs)
    panels: dict[str, outcomes.Lines] = {}
    for value, words in {"accuracy": "last round", "late": "2nd half"}.items():
        for scale, title in titles.items():
            own = runs[runs["scale"] == scale]
            said = None
            if value == "accuracy":
                said = outcomes.unlike(outcomes.printed("3")).query("scale == @scale")
            lines = outcomes.lead_lines(own, order, value, said)
            panels[f"{title}, {words}"] = {
                names[row]: line for row, line in lines.items()
            }
    return forest(panels, "GCFL ahead by, in points (×: client updates, in GCFL's)")


def parts_over_zeta(judged_at: float) -> Figure:
    """What each part is worth over ζ; ``judged_at`` is marked, and the paper's worth.

    Above zero GCFL has more than GCFL without that part.
    """
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 5.2))
    axes = fig.subplots(
        len(outcomes.WORTH), len(outcomes.PARTS), sharex=True, sharey="row"
    )
    for line, (value, words) in zip(axes, outcomes.WORTH.items(), strict=True):
        for ax, row in zip(line, outcomes.PARTS, strict=True):
            found = outcomes.worth(row, value)
            means = [one.mean for one in found.values()]
            reach = [one.high - one.mean for one in found.values()]
            ax.errorbar([*found], means, reach, marker="o", ms=4, lw=1.2)
            said = outcomes.printed_worth(row, value)
            if said is not None:
                ax.axhline(said, color=plots.INK, linestyle=":", lw=1.5)
            ax.axhline(0, color=plots.INK, lw=1)
            ax.axvspan(judged_at / 1.5, judged_at * 1.5, alpha=0.15, lw=0)
        line[0].set_ylabel(words.replace(" in ", ",\n"))
    for ax, row in zip(axes[0], outcomes.PARTS, strict=True):
        ax.set_title(outcomes.PARTS[row].replace(" ", "\n", 1), fontsize=10)
    for ax in axes[-1]:
        ax.set(xscale="log", xlabel="ζ", xlim=(0.006, 1.7))
        ax.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    return fig


def completions_forest() -> Figure:
    """Other choices against ours, in points of accuracy under Non-IID."""
    return _against_ours(outcomes.completed(), f"{outcomes.AS_SMALL[5]}, Non-IID")


def attendance_forest() -> Figure:
    """The same for absent clients, at the medium scale."""
    title = "8 of 32 clients a round, 20 rounds of 5 steps (one epoch)"
    return _against_ours(outcomes.attendance(), title)


def _against_ours(runs: DataFrame, title: str) -> Figure:
    lines = {}
    for row in runs["row"].unique():
        if row != "GCFL":
            pair = tables.paired(runs, "row", row, "GCFL", "accuracy", outcomes.PAIRS)
            lines[row] = (effect(pair), None)
    return forest({title: lines}, "ahead of GCFL with our choices, in points", 1)


def convergence_curves() -> Figure:
    """Figure 2: accuracy over rounds, clustering from the start, in six panels.

    The paper leaves post-training methods out of it, and so does this.
    """
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 8.6))
    axes = fig.subplots(3, 2)
    runs = outcomes.timed()
    for column, dataset in enumerate(outcomes.NAMES):
        for line, setting in enumerate(SETTINGS):
            ax = axes[line, column]
            own = runs[(runs["dataset"] == dataset) & (runs["setting"] == setting)]
            for row in (
                *OTHER_CURVES,
                *outcomes.IN_TRAINING,
                "Oracle clusters",
                "GCFL",
            ):
                courses = own.loc[own["row"] == row, "course"]
                mean = np.mean([course["accuracy"] for course in courses], axis=0)
                ax.plot(range(1, len(mean) + 1), mean, **_line_look(row))
            ax.set(title=f"{outcomes.NAMES[dataset]}, {setting}", xlabel="round")
            ax.set_ylabel("accuracy")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4)
    return fig


def _line_look(row: str) -> dict[str, Any]:
    if row == "GCFL":
        return {"color": "black", "linewidth": 2.6, "label": row}
    if row in outcomes.IN_TRAINING:
        colour = plots.COLOURS[outcomes.IN_TRAINING.index(row)]
        return {"color": colour, "linewidth": 1.6, "label": outcomes.shown(row)}
    if row == "Oracle clusters":
        return {"color": "black", "linewidth": 1.2, "linestyle": ":", "label": row}
    grey: dict[str, Any] = {"color": "#8c8c8c", "linewidth": 1.1}
    return grey | {"linestyle": OTHER_CURVES[row], "label": outcomes.shown(row)}


def shield_over_zeta() -> Figure:
    """Clusters over ζ, whole and without a part, and what the paper prints."""
    from matplotlib.figure import Figure as Canvas

    runs = outcomes.crossed()
    runs = runs[runs["row"].isin(SHIELD_AND_NORM)]
    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.9))
    axes = fig.subplots(1, 4, sharey=True)
    said = outcomes.printed("5").set_index([*outcomes.CELL, "row"])["clusters"]
    cells = runs.groupby(outcomes.CELL, sort=False)
    for ax, (cell, own) in zip(axes, cells, strict=True):
        for i, row in enumerate(own["row"].unique()):
            means = own[own["row"] == row].groupby("zeta")["clusters"].mean()
            ax.plot(means.index, means, "os^"[i] + "-", label=outcomes.shown(row))
            ax.axhline(said[(*cell, row)], color=plots.COLOURS[i], linestyle=":")
        ax.set(title=f"{outcomes.NAMES[cell[0]]},\n{cell[1]}", xscale="log", xlabel="ζ")
    axes[0].set_ylabel("clusters (dotted: paper)")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=3)
    return fig


def crowd_curves() -> Figure:
    """How well groups are found among more and more clients, cell by cell."""
    from matplotlib.figure import Figure as Canvas

    looks = {
        "gcfl": "GCFL, ζ = 0.01",
        "wide": "GCFL, ζ = 0.3",
        "average": "average linkage",
        "told": "k-means, told",
    }
    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.9))
    axes = fig.subplots(1, 4, sharey=True)
    cells = outcomes.crowd().groupby(outcomes.CELL, sort=False)
    for ax, (cell, own) in zip(axes, cells, strict=True):
        for i, (column, label) in enumerate(looks.items()):
            seeds = own.groupby("clients")[column]
            mean = seeds.mean()
            ax.plot(mean.index, mean, "os^D"[i] + "-", label=label)
            ends = (seeds.min(), seeds.max())
            ax.fill_between(mean.index, *ends, color=plots.COLOURS[i], alpha=0.15, lw=0)
        ax.set(title=f"{outcomes.NAMES[cell[0]]},\n{cell[1]}", xlabel="clients")
        ax.set_xticks([20, 50, 120, 200])
    axes[0].set_ylabel("adjusted Rand index")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4)
    return fig


# --- pictures of the method -----------------------------------------------------------


def how_it_works() -> Figure:
    """A round of GCFL as boxes: what clients do, what the server does, what travels."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 4.1))
    ax = fig.add_subplot()
    ax.set(xlim=(0, 10), ylim=(0, 6))
    ax.axis("off")
    blue, orange = plots.COLOURS[:2]
    size: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}
    ax.text(0.1, 5.75, "server", weight="bold", color=blue, fontsize=12)
    ax.text(0.1, 0.05, "clients", weight="bold", color=orange, fontsize=12)
    boxes = [
        (1.5, 4.7, "1  ask each model\nabout the same\nprobe images", blue),
        (5.0, 4.7, "2  its answers give a\nplace z; data and\nsureness a mass m", blue),
        (8.5, 4.7, "3  pull of each pair:\nlarge if both are\nheavy and near", blue),
        (8.5, 2.8, "4  cut the weak pulls;\nwhat hangs together\nis a cluster", blue),
        (5.0, 2.8, "5  average the\nmodels within\neach cluster", blue),
        (3.2, 0.8, "6  train the cluster's\nmodel on own data", orange),
    ]
    for x, y, words, colour in boxes:
        look = {"boxstyle": "round,pad=0.35", "fc": "white", "ec": colour, "lw": 1.8}
        ax.text(x, y, words, bbox=look, **size)
    ends = [
        ((2.85, 4.7), (3.5, 4.7)),
        ((6.5, 4.7), (7.0, 4.7)),
        ((8.5, 3.95), (8.5, 3.5)),
        ((6.9, 2.8), (6.3, 2.8)),
        ((5.0, 2.1), (4.2, 1.35)),
        ((1.9, 1.35), (1.4, 3.95)),
    ]
    for start, end in ends:
        arrow = {"arrowstyle": "-|>", "color": plots.INK, "lw": 1.6}
        ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
    ax.text(0.2, 2.5, "trained\nmodels", fontsize=12, va="center")
    ax.text(4.9, 1.6, "its cluster's model", fontsize=12, va="center")
    return fig


def deals(feds: Mapping[str, Any]) -> Figure:
    """Client by class pictures of the three settings."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.6))
    for ax, (setting, fed) in zip(fig.subplots(1, 3), feds.items(), strict=True):
        plots.class_map(fed.truth.counts, fed.truth.labels, ax=ax)
        ax.set_xticks(range(0, 20, 4), range(0, 20, 4))
        ax.set_title(setting, pad=16)
        _call_groups(ax)
    return fig


def _call_groups(ax: Any) -> None:
    """Hidden ones are groups in this chapter; clusters are what a method finds."""
    for text in ax.texts:
        text.set_text(text.get_text().replace("cluster", "group"))


def one_clients_way(setting: str = "Non-IID-ES", client: int = 0) -> Figure:
    """From probe images to a place: q of single images, r of classes, and z."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    found = theory.first_round(setting)
    x, y = found.fed.probe(50)
    q = theory.sureness(found.fed, found.rows[client], x, y)  # (500,)
    r = np.array([q[y == k].mean() for k in range(10)])
    known = int(found.fed.truth.counts[client].argmax())
    strange = int(found.fed.truth.counts[client].argmin())
    fig = Canvas(figsize=(WIDTH, 4.2))
    halves: Any = fig.subfigures(2, height_ratios=(1, 1.5))
    top, bottom = halves
    shown = [int(i) for k in (known, strange) for i in np.flatnonzero(y == k)[:4]]
    top.suptitle(
        f"images of class {known}, which the client holds, and of class {strange}, "
        "which it does not;\nbelow each: q, how sure its model is of that class",
        fontsize=11,
    )
    for ax, i in zip(top.subplots(1, 8), shown, strict=True):
        ax.imshow(np.asarray(x[i]).reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[], xlabel=f"{q[i]:.2f}")
        ax.grid(False)
    left, right = bottom.subplots(1, 2)
    left.plot(y, q, "o", color=plots.COLOURS[5], ms=3, alpha=0.4, label="q, an image")
    left.plot(range(10), r, "D", color=plots.COLOURS[1], label="r, mean of a class")
    left.set(xlabel="class", ylabel="sure of the true class", xticks=range(10))
    above: dict[str, Any] = {
        "loc": "lower center",
        "bbox_to_anchor": (0.5, 1.0),
        "ncols": 2,
    }
    left.legend(**above, handletextpad=0.2)
    right.bar(range(10), r / np.linalg.norm(r), color=plots.COLOURS[0])
    right.set(xlabel="class", ylabel="z = r / length", xticks=range(10))
    return fig


def locations(places: Mapping[str, Any]) -> Figure:
    """Locations of the clients in the three settings, a row for each client."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.8))
    axes = fig.subplots(1, 3, sharey=True)
    for ax, (name, found) in zip(axes, places.items(), strict=True):
        picture = ax.imshow(found.z, vmin=0, vmax=0.8, aspect="auto")
        ax.grid(False)
        ax.set(title=name, xlabel="class", xticks=range(0, 10, 3))
        ax.set_yticks(range(0, 20, 4))
    axes[0].set_ylabel("client")
    fig.colorbar(picture, ax=axes, label="coordinate of z")
    return fig


def masses(places: Mapping[str, Any]) -> Figure:
    """What the clients' masses add up from, where clients differ."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.9))
    axes = fig.subplots(1, 2, sharey=True)
    for ax, name in zip(axes, outcomes.UNLIKE, strict=True):
        found = places[name]
        n = found.fed.n.numpy()
        rho = found.rho.numpy()
        pieces = {"attendance κ": np.ones(20), "volume ν": n / n.max(),
                  "confidence ρ": rho}  # fmt: skip
        top = np.zeros(20)
        for words, piece in pieces.items():
            ax.bar(range(20), piece, bottom=top, label=words)
            top = top + piece
        ax.set(title=f"{name}: heaviest / lightest = {top.max() / top.min():.2f}")
        ax.set(xlabel="client", ylabel="mass")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3)
    return fig


def forces(places: Mapping[str, Any]) -> Figure:
    """How a force falls with distance, and what the shield leaves of it."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 3))
    left, right = fig.subplots(1, 2)
    d = np.linspace(0, 1.4, 100)
    for zeta in (0.01, 0.1, 1):
        left.plot(d, 1 / (d + zeta), label=f"ζ = {zeta}, no shield")
    shielded = np.exp(-((d / 0.5) ** 2)) / (d + 0.01)
    left.plot(d, shielded, "k--", label="ζ = 0.01, shield, λ = 0.5")
    left.set(yscale="log", xlabel="distance d", ylabel="attraction")
    for name, found in places.items():
        apart = torch.pdist(found.z).numpy()
        kept = np.sort(np.exp(-((apart / np.median(apart)) ** 2)))
        right.plot(np.linspace(0, 1, len(kept)), kept, label=name)
    right.set(xlabel="share of all pairs", ylabel="what the shield leaves", ylim=(0, 1))
    left.legend(fontsize=9)
    right.legend()
    return fig


def matrices(found: theory.Bodies) -> Figure:
    """Attractions: plain, shielded, normalised; clients sorted by group."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    kinds: dict[str, dict[str, bool]] = {
        "A (Eq. 14)": {"shielded": False, "normalised": False},
        "shielded (Eq. 15)": {"normalised": False},
        "normalised (Eq. 16)": {},
    }
    fig = Canvas(figsize=(WIDTH, 2.3))
    for ax, (name, options) in zip(fig.subplots(1, 3), kinds.items(), strict=True):
        A = attraction(found.z, found.mass, outcomes.ZETA, **options)
        plots.matrix(A, found.fed.truth.labels, ax=ax)
        ax.set(title=name + "\n", xticks=[], yticks=[], xlabel="client", ylabel="")
        _call_groups(ax)
    fig.axes[0].set_ylabel("client")
    return fig


def cuts(places: Mapping[str, Any]) -> Figure:
    """Histograms of attractions with Otsu's threshold, and the clusters it gives."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.6))
    axes = fig.subplots(1, 3)
    for ax, (name, found) in zip(axes, places.items(), strict=True):
        A = attraction(found.z, found.mass, outcomes.ZETA)
        labels = otsu_components(A)
        ari = metrics.adjusted_rand(found.fed.truth.labels, labels)
        ax.hist(A[np.triu_indices(20, 1)].numpy(), bins=30, log=True)
        ax.axvline(otsu_threshold(A), color="k", linestyle="--")
        words = f"{len(labels.unique())} clusters, ARI {ari:.2f}"
        ax.set(title=f"{name}\n{words}", xlabel="normalised attraction")
    axes[0].set_ylabel("pairs (log)")
    return fig


def zeta_on_digits(
    zetas: Sequence[float] = (0.001, 0.01, 0.03, 0.1, 0.3, 1, 3),
) -> Figure:
    """Clusters over ζ, with and without shield, in six deals of the digits each."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.9))
    axes = fig.subplots(1, 2, sharey=True)
    for ax, setting in zip(axes, outcomes.UNLIKE, strict=True):
        bodies = [theory.first_round(setting, seed) for seed in range(6)]
        for i, shielded in enumerate((True, False)):
            counts = np.array(
                [
                    [theory.count(found, zeta, shielded) for found in bodies]
                    for zeta in zetas
                ]
            )  # (ζ, deals)
            words = "with shield" if shielded else "without shield"
            ax.plot(zetas, counts.mean(1), "os"[i] + "-", label=words)
            ends = (counts.min(1), counts.max(1))
            ax.fill_between(zetas, *ends, color=plots.COLOURS[i], alpha=0.15, lw=0)
        ax.axhline(5, color=plots.INK, linestyle=":", label="hidden groups")
        ax.set(title=setting, xscale="log", xlabel="ζ", ylim=(0, 20.5))
    axes[0].set_ylabel("clusters")
    axes[1].legend()
    return fig


def torn_groups() -> Figure:
    """How many clusters are found in two perfect groups, by their sizes."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    counts = [[theory.perfect((a, b)) for b in range(2, 31)] for a in range(2, 11)]
    fig = Canvas(figsize=(WIDTH, 2.8))
    ax = fig.add_subplot()
    where: dict[str, Any] = {"extent": (1.5, 30.5, 1.5, 10.5), "origin": "lower"}
    picture = ax.imshow(counts, aspect="auto", **where)
    ax.plot([4, 28], [2, 10], "w--")
    ax.grid(False)
    ax.set(xlabel="bodies in one group", ylabel="in the other")
    fig.colorbar(picture, ax=ax, label="clusters found")
    return fig


def starts(
    make: Callable[..., Any], rates: Sequence[float] = (0.01, 0.03, 0.1)
) -> Figure:
    """The ratio of Eq. 3 and the accuracy of FedAvg, for some learning rates."""
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.8))
    left, right = fig.subplots(1, 2)
    for lr in rates:
        ratio, accuracy = theory.changes(make("Non-IID", lr=lr), 15)
        left.plot(range(1, 16), ratio, "o-", markersize=3, label=f"η = {lr}")
        right.plot(range(1, 16), accuracy, label=f"η = {lr}")
    left.axhline(GCFL().delta_init, color="k", linestyle="--", label="our δ")
    left.set(xlabel="round", ylabel="change in a round (Eq. 3)", ylim=(0, None))
    right.set(xlabel="round", ylabel="accuracy", ylim=(0, 1))
    for ax in (left, right):
        ax.set_xticks(range(0, 16, 5))
    left.legend(fontsize=9)
    return fig
