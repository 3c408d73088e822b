"""Tables and pictures of the page that compares all methods.

They draw what `fednb.arena.analysis` computes. A frame has a line per run of the table
``ranking``: see `records`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from .. import tables
from ..door import Judge
from ..plots import COLOURS, INK, MARKERS, style
from ..store import results
from ..sweeps import Task
from ..widgets import bars, text
from . import analysis
from .methods import ENTRIES
from .tasks import SCALES, Setting, ranking, task
from .worlds import World, worlds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

FAMILIES = ("one model", "choice of clients", "personal", "mixture", "clusters")
# Who stands for what in the diagram of ranks. They were named before any ranking run:
# the methods of the five chapters, and of each other family the best known ones.
REPRESENTATIVES = (
    "LocalOnly",
    "FedAvg",
    "SCAFFOLD",
    "FedCVRBolt",
    "Ditto",
    "FedRep",
    "FedEM",
    "IFCA",
    "WeCFL",
    "OCFL",
    "FedGWC",
    "GCFL",
)
CONTROLS = ("LocalOnly", "Random clusters", "Oracle clusters", analysis.MAJORITY)
VALUES = {
    "accuracy": "mean accuracy",
    "worst_decile": "accuracy of the worst tenth",
    "balanced_accuracy": "balanced accuracy",
}
POINTS = 100  # differences are shown in percentage points
NEAR = 2  # points within which a method may count as being as good as the best
IMAGES = 8  # of a group, in a world's portrait
LIKE = ("iid", "quantity")  # all clients draw from one law
LABELS = ("label-groups", "label-dirichlet", "few-sampled", "many-small")
SIGHT = ("rotation", "filters")
# which worlds a reader's federation may be like
WHERE = {
    "not known": (*LIKE, "label-skew", *LABELS, "concept-shift", *SIGHT),
    "nothing, or size": LIKE,
    "mix of classes, no groups": ("label-skew",),
    "groups by classes": LABELS,
    "groups by what labels mean": ("concept-shift",),
    "groups by how images look": SIGHT,
}


def records(profile: str = "laptop") -> DataFrame:
    """The finished runs of the ranking, whole seeds only, with the majority class."""
    path = results("arena") / "ranking.json"
    found = tables.by_key(path)
    tasks = whole_seeds(ranking(profile), set(found))
    frame = tables.frame(tasks, path, course=True)
    frame = frame.assign(
        stability=analysis.stability(frame),
        server_seconds=[found[task.key]["server_seconds"] for task in tasks],
    )
    return analysis.with_majority(frame.drop(columns="course"))


def whole_seeds(tasks: Sequence[Task], have: set[str]) -> list[Task]:
    """The tasks of those seeds of which every task has a record."""
    lacking = {task.seed for task in tasks if task.key not in have}
    return [task for task in tasks if task.seed not in lacking]


def scale(frame: DataFrame) -> str:
    """What the runs are, for captions."""
    seeds = frame["seed"].nunique()
    runs = int((frame["row"] != analysis.MAJORITY).sum())
    return f"{frame['world'].nunique()} worlds, {seeds} seeds, {runs} runs"


# --- the worlds -----------------------------------------------------------------------


def world_table(found: Mapping[str, World]) -> tables.Table:
    """The worlds, a line for each: what is hidden, and how large they are."""
    rows = [
        (
            world.name,
            world.base.removesuffix("_bymerge"),
            world.hidden,
            str(world.size),
            f"{world.sampled} of {world.clients}",
        )
        for world in found.values()
    ]
    heads = ("world", "data", "what is hidden", "samples", "sampled")
    updates = sorted({world.updates for world in found.values()})
    caption = (
        "The worlds: how many training samples a client has on average, and how many "
        "of the clients are sampled in a round. A run may spend "
        f"{' or '.join(map(str, updates))} client updates, of ten steps each."
    )
    return tables.words(heads, rows, caption)


def portrait(world: World, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts (K, classes) of each client, and digits that each group sees.

    ``world`` is one of the profile "smoke": its images are handwritten digits of 8 x 8
    pixels. A line of images belongs to a group; without groups there is one line.
    """
    fed = _federation(world, seed)
    counts = fed.truth.counts  # (K, classes)
    labels = fed.truth.labels
    if labels is None:
        labels = np.zeros(len(counts), int)
    lines = []
    for group in np.unique(labels):
        client = torch.tensor(np.flatnonzero(labels == group)[:1])
        numbers = fed.sample_numbers(client, on="train")[:IMAGES]
        images, _ = fed.samples(numbers)  # (IMAGES, 64)
        squares = images.reshape(len(images), 8, 8).numpy()
        framed = np.pad(squares, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
        lines.append(np.concatenate(framed, axis=1))  # (10, 10 IMAGES)
    return counts, np.concatenate(lines)


def _federation(world: World, seed: int) -> Judge:
    """The federation of a world as its runs have it."""
    setting = Setting(SCALES["smoke"].usual_rate, None)
    fedavg = next(entry for entry in ENTRIES if entry.name == "FedAvg")
    return task("smoke", world, fedavg, setting, seed, row="FedAvg").federation()


# --- who takes part -------------------------------------------------------------------


def method_table() -> tables.Table:
    """The methods by family, with the knob that is tuned and what a round costs."""
    world = worlds("laptop")["rotation"]
    rows = []
    for entry in ENTRIES:
        values = "–"
        if entry.knob:
            values = ", ".join(str(value) for value in entry.values)
        cost = entry.per_round(world, entry.usual) / world.sampled
        rows.append(
            (entry.name, entry.family, entry.knob or "–", values, f"{cost:.2g}")
        )
    heads = ("method", "family", "knob", "values tried", "cost of a round")
    caption = (
        "The methods. The cost of a round is in trainings per sampled client, where "
        "half of the clients are sampled and the knob has its middle value. AutoCFL, "
        "known to us from its abstract, and MTCFL, a name in GCFL's tables, are our "
        "readings; OCFL's paper calls FL+HC BCL."
    )
    return tables.words(heads, rows, caption)


def setting_table(winners: DataFrame, world: str) -> tables.Table:
    """What the validation samples of a world chose for every row."""
    rows = []
    for line in winners[winners["world"] == world].itertuples():
        knob = "–"
        if isinstance(line.knob, str) and line.knob:
            knob = f"{line.knob} = {line.value}"
        rows.append((line.row, f"{line.lr:g}", knob, f"{POINTS * line.validation:.1f}"))
    heads = ("method", "learning rate", "knob", "validation accuracy, %")
    return tables.words(heads, rows, f"Chosen settings in the world {world}.")


# --- all methods in all worlds --------------------------------------------------------


def heat(frame: DataFrame, value: str = "accuracy") -> Figure:
    """Gains over FedAvg, methods by worlds; each family's best on average comes first.

    A dot marks a gain or loss whose 95 % interval over seeds leaves out zero.
    """
    plain = frame[frame["row"] == frame["method"]]  # nobody is told the number
    found = analysis.gains(plain, "FedAvg", value)
    gain = found.pivot(index="row", columns="world", values="gain") * POINTS
    holds = found.pivot(index="row", columns="world", values="holds")
    in_order = _by_family(frame, gain)
    columns = list(dict.fromkeys(frame["world"]))
    gain = gain.loc[in_order, columns]
    holds = holds.loc[in_order, columns]
    return _heat(gain, holds, _breaks(frame, in_order), VALUES.get(value, value))


def _by_family(frame: DataFrame, gain: DataFrame) -> list[str]:
    """Rows, controls first, then family by family, the best mean gain first."""
    family = frame.drop_duplicates("row").set_index("row")["family"]
    mean = gain.mean(axis=1)
    in_order: list[str] = []
    for name in ("control", *FAMILIES):
        members = [row for row in mean.index if family[row] == name]
        in_order += sorted(members, key=lambda row: -mean[row])
    return in_order


def _breaks(frame: DataFrame, in_order: Sequence[str]) -> dict[str, int]:
    """The first line of each family."""
    family = frame.drop_duplicates("row").set_index("row")["family"]
    first: dict[str, int] = {}
    for place, row in enumerate(in_order):
        first.setdefault(family[row], place)
    return first


def _heat(
    gain: DataFrame, holds: DataFrame, first: Mapping[str, int], name: str
) -> Figure:
    from matplotlib.figure import Figure

    style()
    fig = Figure(figsize=(9.2, 0.25 * len(gain) + 1.4))
    ax = fig.subplots()
    most = 20.0  # percentage points at the end of the colours
    picture = ax.imshow(
        gain.to_numpy(float), cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto"
    )
    for y, row in enumerate(gain.index):
        for x, world in enumerate(gain.columns):
            number = gain.loc[row, world]
            if np.isnan(number):
                continue
            mark = ""
            if holds.loc[row, world] != 0:
                mark = "•"
            ink = INK
            if abs(number) > 0.6 * most:
                ink = "white"
            ax.text(
                x, y, f"{number:+.0f}{mark}", ha="center", va="center", size=7.5,
                color=ink,
            )  # fmt: skip
    ax.set_xticks(range(gain.shape[1]), gain.columns, rotation=35, ha="right")
    ax.set_yticks(range(len(gain)), gain.index)
    ax.tick_params(axis="y", labelsize=8.5)
    ax.grid(False)
    for family, place in first.items():
        if place > 0:
            ax.axhline(place - 0.5, color=INK, linewidth=1)
        ax.annotate(
            family, (1.01, place), xycoords=("axes fraction", "data"), size=8.5,
            va="center", color=INK,
        )  # fmt: skip
    bar = fig.colorbar(picture, ax=ax, shrink=0.5, pad=0.14, extend="both")
    bar.set_label(f"{name}, points more than FedAvg")
    bar.outline.set_visible(False)
    return fig


def rank_picture(frame: DataFrame, value: str = "accuracy") -> Figure:
    """Mean rank of every row over worlds, with its interval and its extremes."""
    from matplotlib.figure import Figure

    table = analysis.ranks(frame, value)
    family = frame.drop_duplicates("row").set_index("row")["family"]
    groups = ("control", *FAMILIES)
    style()
    fig = Figure(figsize=(7.4, 0.21 * len(table) + 1.3))
    ax = fig.subplots()
    named = set()
    for place, (row, line) in enumerate(table.iterrows()):
        i = groups.index(family[row])
        ax.plot(
            [line["best"], line["worst"]], [place, place], color="#DDDDDD", linewidth=5
        )
        ax.plot([line["low"], line["high"]], [place, place], color=COLOURS[i])
        label = None
        if groups[i] not in named:
            label = groups[i]
            named.add(label)
        ax.plot(
            line["rank"], place, MARKERS[i], color=COLOURS[i], label=label, ls="none"
        )
    ax.set_yticks(range(len(table)), table.index)
    ax.tick_params(axis="y", labelsize=8.5)
    ax.invert_yaxis()
    ax.set(xlabel=f"rank by {VALUES.get(value, value)}; 1 is best")
    fig.legend(loc="outside upper center", ncols=3)
    return fig


# --- families and controls ------------------------------------------------------------


def ladder(frame: DataFrame, value: str = "accuracy") -> Figure:
    """One panel for each world: the controls, one model, and the best of each family.

    The best of a family is chosen without the seed that it is shown on.
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(frame["world"]))
    table = analysis.families(frame, value)
    rows = [analysis.MAJORITY, "LocalOnly", "Random clusters", "FedAvg"]
    rows += [*FAMILIES[2:], "Oracle clusters"]
    style()
    across = 5
    down = -(-len(names) // across)  # rounded up
    fig = Figure(figsize=(10.4, 2.5 * down + 0.6))
    axes = fig.subplots(down, across, sharey=True, squeeze=False)
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for ax, world in zip(axes.flat, names, strict=False):
        mine = table[table["world"] == world]
        for place, row in enumerate(rows):
            runs = POINTS * mine.loc[mine["row"] == row, value].dropna().to_numpy()
            if len(runs) == 0:
                continue
            colour = COLOURS[0]
            if row in CONTROLS or row == "FedAvg":
                colour = INK
            ax.plot([runs.min(), runs.max()], [place, place], color=colour)
            ax.plot(runs.mean(), place, "o", color=colour, ms=5)
        ax.set_title(world)
    labels = [f"best {row}" if row in FAMILIES else row for row in rows]
    axes[0, 0].set_yticks(range(len(rows)), labels)
    axes[0, 0].invert_yaxis()
    fig.supxlabel(f"{VALUES.get(value, value)}, %")
    return fig


def worth_picture(frame: DataFrame, value: str = "accuracy") -> Figure:
    """What being told the right number of clusters brings, world by world."""
    from matplotlib.figure import Figure

    table = analysis.worth_of_k(frame, value)
    methods = list(dict.fromkeys(table["method"]))
    names = list(dict.fromkeys(table["world"]))
    style()
    fig = Figure(figsize=(9.6, 0.36 * len(names) + 1.6))
    axes = fig.subplots(1, 2, sharey=True, sharex=True)
    for ax, over in zip(axes, ("wrong K", "chosen K"), strict=True):
        ax.axvline(0, color=INK, linewidth=1)
        for i, method in enumerate(methods):
            mine = table[(table["method"] == method) & (table["over"] == over)]
            shift = 0.14 * (i - (len(methods) - 1) / 2)
            at = np.array([names.index(world) for world in mine["world"]]) + shift
            low = POINTS * (mine["gain"] - mine["low"])
            high = POINTS * (mine["high"] - mine["gain"])
            ax.errorbar(
                POINTS * mine["gain"], at, xerr=[low, high], fmt=MARKERS[i], ms=4,
                color=COLOURS[i], linewidth=1, label=method,
            )  # fmt: skip
        ax.set(title=f"right number instead of the {over}")
        ax.set_xlabel("points of accuracy")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(methods))
    return fig


# --- clusters and costs ---------------------------------------------------------------


def clusters_picture(frame: DataFrame) -> Figure:
    """Does finding the groups pay? ARI against the gain over FedAvg, run by run."""
    from matplotlib.figure import Figure

    rows = [entry.name for entry in ENTRIES if entry.family == "clusters"]
    found = analysis.cluster_gains(frame, rows)
    style()
    fig = Figure(figsize=(9.6, 4.2))
    axes = fig.subplots(2, 4, sharex=True, sharey=True)
    names = list(dict.fromkeys(found["world"]))
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for ax, world in zip(axes.flat, names, strict=False):
        mine = found[found["world"] == world]
        ax.axhline(0, color=INK, linewidth=1)
        for i, row in enumerate(rows):
            line = mine[mine["row"] == row]
            ax.plot(
                line["ari"], POINTS * line["gain"], MARKERS[i % len(MARKERS)], ms=5,
                color=COLOURS[i % len(COLOURS)], label=row, ls="none",
                mfc="none" if i >= len(COLOURS) else None,
            )  # fmt: skip
        ax.set_title(world)
    fig.supxlabel("adjusted Rand index of the clusters found")
    fig.supylabel("points more than FedAvg")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right upper")
    return fig


def cost_picture(frame: DataFrame, value: str = "accuracy") -> Figure:
    """Accuracy against traffic, each row a point; the line joins the efficient ones."""
    from matplotlib.figure import Figure

    table = analysis.pareto(frame, value)
    table = table[table["bytes"] > 0]
    family = frame.drop_duplicates("row").set_index("row")["family"]
    groups = ("control", *FAMILIES)
    style()
    fig = Figure(figsize=(8.4, 4.8))
    ax = fig.subplots()
    for i, group in enumerate(groups):
        mine = table[[family[row] == group for row in table.index]]
        ax.plot(
            mine["bytes"] / 1e6, POINTS * mine[value], MARKERS[i], color=COLOURS[i],
            label=group, ls="none",
        )  # fmt: skip
    front = table[table["efficient"]]
    ax.plot(front["bytes"] / 1e6, POINTS * front[value], color=INK, linewidth=0.8)
    named = table[table.index.isin([*front.index, *REPRESENTATIVES])]
    heights = _apart(named["bytes"].to_numpy(), POINTS * named[value].to_numpy())
    for row, height in zip(named.index, heights, strict=True):
        right = 1.03 * named.loc[row, "bytes"] / 1e6
        ax.text(right, height, row, size=8.5, va="center")
    ax.set_xscale("log")
    ax.set(xlabel="traffic of a run in MB, mean over worlds")
    ax.set(ylabel=f"{VALUES.get(value, value)}, %, mean over worlds")
    fig.legend(loc="outside upper center", ncols=6)
    return fig


def server_picture(frame: DataFrame) -> Figure:
    """The server's time in a run, mean over worlds, for rows that are in all of them.

    A bar goes from the fastest world to the slowest.
    """
    from matplotlib.figure import Figure

    plain = frame[(frame["row"] == frame["method"]) & (frame["row"] != "LocalOnly")]
    table = analysis.by_world(plain, "server_seconds")
    table = table[analysis.complete(plain, "server_seconds")]
    in_order = table.mean().sort_values().index
    family = frame.drop_duplicates("row").set_index("row")["family"]
    groups = ("control", *FAMILIES)
    style()
    fig = Figure(figsize=(7.4, 0.21 * len(in_order) + 1.3))
    ax = fig.subplots()
    for place, row in enumerate(in_order):
        i = groups.index(family[row])
        ends = [table[row].min(), table[row].max()]
        ax.plot(ends, [place, place], color="#DDDDDD", linewidth=5)
        ax.plot(table[row].mean(), place, MARKERS[i], color=COLOURS[i])
    for i, group in enumerate(groups):
        if group in set(family[in_order]):
            ax.plot([], [], MARKERS[i], color=COLOURS[i], label=group)
    ax.set_yticks(range(len(in_order)), in_order)
    ax.tick_params(axis="y", labelsize=8.5)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set(xlabel="server's processor seconds in a run")
    fig.legend(loc="outside upper center", ncols=3)
    return fig


def cost_table(frame: DataFrame) -> tables.Table:
    """What a run costs and how steady its clusters are, a line for each method."""
    plain = frame[(frame["row"] == frame["method"]) & (frame["bytes"] > 0)]
    among = analysis.complete(plain, "bytes")
    traffic = analysis.by_world(plain, "bytes")[among]
    share = traffic.div(traffic["FedAvg"], axis=0).mean()
    updates = analysis.by_world(plain, "client_updates")[among]
    updates = updates.div(updates["FedAvg"], axis=0).mean()
    server = analysis.by_world(plain, "server_seconds")[among]
    grouped = plain[plain["family"] == "clusters"]
    steady = analysis.by_world(grouped, "stability").mean()
    many = analysis.by_world(grouped, "clusters").mean()
    told = {entry.name for entry in ENTRIES if entry.told}
    rows = []
    for row in share.sort_values(kind="stable").index:
        stability = "–"
        clusters = "–"
        if row in steady.index:
            stability = f"{steady[row]:.2f}"
            clusters = f"{many[row]:.1f}"
        rows.append((
            row,
            f"{share[row]:.2f}",
            f"{updates[row]:.2f}",
            f"{server[row].mean():.2f}",
            clusters,
            stability,
            "yes" if row in told else "no",
        ))  # fmt: skip
    heads = (
        "method", "traffic", "updates", "server, s", "clusters", "stability",
        "must be told K",
    )  # fmt: skip
    caption = (
        f"What methods cost ({scale(frame)}). Traffic and client updates are multiples "
        "of FedAvg's; the updates of pFedMe, Per-FedAvg and FedCCFA are shorter. "
        "Clusters are those at the end of a run. The server's time is of one "
        "processor, for a whole run. Stability is the adjusted Rand index between the "
        "memberships at the end and a quarter of the run before."
    )
    return tables.words(heads, rows, caption, kind="numbers")


def _apart(x: np.ndarray, y: np.ndarray, gap: float = 0.9) -> np.ndarray:
    """Heights for labels of points: where x is much the same, at least a gap apart."""
    heights = y.astype(float)
    done: list[int] = []
    for i in np.argsort(y, kind="stable"):
        near = [j for j in done if abs(np.log(x[i] / x[j])) < 0.3]
        if near:
            heights[i] = max(heights[i], heights[near].max() + gap)
        done.append(i)
    return heights


def against_table(frame: DataFrame, value: str = "accuracy") -> tables.Table:
    """What the named methods gain over FedAvg, on average over the worlds."""
    found = analysis.overall(frame[frame["row"].isin(REPRESENTATIVES)], value=value)
    rows = [
        (
            str(row),
            _interval(line),
            f"{line['ahead']:.0f} of {line['worlds']:.0f}",
            f"{line['p']:.2g}",
        )
        for row, line in found.iterrows()
    ]
    heads = ("method", "points over FedAvg", "worlds ahead", "p, corrected")
    caption = (
        f"Gains over FedAvg by {VALUES.get(value, value)} ({scale(frame)}): mean over "
        "worlds with 95 % interval; Wilcoxon's test over worlds, corrected by Holm for "
        f"{len(rows)} methods."
    )
    return tables.words(heads, rows, caption)


# --- many clients ---------------------------------------------------------------------

# Whose step a kernel is, and how it grows with K by the paper: FedGWC's Eq. 39 and
# FedCVR-Bolt's paragraph on computational cost. The others say nothing about it.
KERNELS = {
    "weighted k-means": ("WeCFL, FeSEM", "–"),
    "temperature": ("OCFL's trigger", "–"),
    "cosine + k-means": ("OCFL", "–"),
    "cosine + HDBSCAN": ("OCFL", "–"),
    "cosine + affinity propagation": ("OCFL", "–"),
    "cosine + mean shift": ("OCFL", "–"),
    "attraction + Otsu": ("GCFL", "–"),
    "perception affinity": ("FedGWC", "–"),
    "spectral choice": ("FedGWC", "1"),
    "RBF kernel + spectral": ("FedCVR-Bolt", "2"),
    "CFL-GP's partition": ("CFL-GP", "–"),
}


def kernels() -> dict[str, dict]:
    """Measured seconds and MB of the clustering steps, by number of clients."""
    text = Path(__file__).with_name("kernels.json").read_text(encoding="utf-8")
    return json.loads(text)["kernels"]


def scaling_picture() -> Figure:
    """Seconds and memory of every clustering step against the number of clients."""
    from matplotlib.figure import Figure

    style()
    fig = Figure(figsize=(10.4, 4.4))
    axes = fig.subplots(1, 2, sharex=True)
    measured = kernels()
    for i, name in enumerate(KERNELS):
        cells = measured[name]["cells"]
        clients = [int(K) for K in cells]
        look = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": "-" if i < len(COLOURS) else "--",
        }
        seconds = [max(cell["seconds"], 1e-4) for cell in cells.values()]
        megabytes = [max(cell["mb"], 1) for cell in cells.values()]
        axes[0].plot(clients, seconds, label=name, **look)
        axes[1].plot(clients, megabytes, **look)
    for ax, label in zip(axes, ("seconds on one core", "memory, MB"), strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set(xlabel="clients", title=label)
    fig.legend(loc="outside right upper")
    return fig


def scaling_table() -> tables.Table:
    """How the clustering steps grow with the number of clients."""
    rows = []
    measured = kernels()
    for name, (method, printed) in KERNELS.items():
        found = measured[name]
        largest = max(found["cells"], key=int)
        cell = found["cells"][largest]
        rows.append((
            f"{name} ({method})",
            f"{int(largest):,}",
            f"{cell['seconds']:.1f}",
            f"{cell['mb']:,}",
            f"{found['exponent']:.1f}",
            printed,
        ))  # fmt: skip
    heads = ("clustering step", "clients", "seconds", "MB", "power", "paper")
    caption = (
        "Clustering steps for the most clients that we timed: updates of 1,000 numbers "
        "(GCFL: 50) in four hidden groups, one core, one run each. Time grows like "
        "this power of the number of clients, fitted to the three largest numbers; the "
        "last column has what the paper says."
    )
    return tables.words(heads, rows, caption, kind="numbers")


# --- what matters to you --------------------------------------------------------------


def weighed_bars(
    frame: DataFrame, where: str, accuracy: int, worst: int, traffic: int, told: str
) -> list[dict]:
    """For the explorer: the ten best rows for a reader's weights, and how sure."""
    table = analysis.weighed(
        frame[frame["world"].isin(WHERE[where])],
        {"accuracy": accuracy, "worst_decile": worst, "bytes": traffic},
        told=told == "yes",
    )
    if table.empty:
        return [bars([0.0], [""]), text("Give at least one weight.")]
    top = table.head(10)
    first = top.index[0]
    as_good = [row for row in table.index[1:] if table.loc[row, "first"] >= 0.05]
    words = f"{first} comes first in {table.loc[first, 'first']:.0%} of the draws"
    if as_good:
        others = [f"{row} ({table.loc[row, 'first']:.0%})" for row in as_good[:5]]
        words += f"; also first: {', '.join(others)}"
    drawn = bars(
        {"score": top["score"].round(3).tolist()},
        top.index.tolist(),
        ylabel="score, 1 is best",
        ylim=(0, 1),
    )
    return [drawn, text(words + ".")]


# --- which method when ----------------------------------------------------------------


def guide_table(frame: DataFrame, value: str = "accuracy") -> tables.Table:
    """The short answer: what to take for each way in which clients may differ."""
    rows = []
    for where, names in WHERE.items():
        runs = frame[frame["world"].isin(names)]
        often = analysis.weighed(runs, {value: 1})["first"]
        often = often.sort_values(ascending=False, kind="stable")
        first = often.index[0]
        others = [f"{row} ({often[row]:.0%})" for row in often.index[1:]]
        others = others[: int((often >= 0.1).sum()) - 1]
        gaps = []
        for control in ("FedAvg", "LocalOnly"):
            found = analysis.gains(runs[runs["row"].isin([first, control])], control)
            gaps.append(_range(POINTS * found["gain"]))
        over_fedavg, over_alone = gaps
        also = ", ".join(others) or "–"
        best = f"{first} ({often[first]:.0%})"
        rows.append((where, best, over_fedavg, also, over_alone))
    heads = (
        "clients differ by", "take", "points over FedAvg", "or", "over training alone",
    )  # fmt: skip
    caption = (
        f"The short answer ({scale(frame)}). In brackets: how often a method comes "
        "first when seeds are drawn again, and worlds if there are several; who does "
        "so in less than a tenth of the draws is left out. Three seeds of one world "
        "allow ten different draws: 100 % means first in all ten, not certain. Gains "
        "are the method's own, from the world with the least to that with the most."
    )
    return tables.words(heads, rows, caption)


def _range(values: Series) -> str:
    """The least and the most of some differences, or the only one."""
    if len(values) == 1:
        return f"{values.iloc[0]:+.1f}"
    return f"{values.min():+.1f} to {values.max():+.1f}"


def choice_table(frame: DataFrame, value: str = "accuracy") -> tables.Table:
    """For each world: who is best, who is as good, and what the choice gains."""
    plain = frame[frame["row"] == frame["method"]]
    first = analysis.best(plain, value)
    means = analysis.by_world(plain, value)
    sure = analysis.held_out(frame, value=value)
    alone = analysis.held_out(frame, "LocalOnly", value)
    rows = []
    for world, line in first.iterrows():
        as_good = [
            row
            for row in line["as_good"]
            if means.loc[world, row] > line[value] - NEAR / POINTS
        ]
        others = ", ".join(as_good[:6]) or "nobody"
        if len(as_good) > 6:
            others += f" and {len(as_good) - 6} more"
        rows.append((
            str(world),
            f"{line['row']}, {POINTS * line[value]:.1f} %",
            others,
            _interval(sure.loc[world]),
            _interval(alone.loc[world]),
        ))  # fmt: skip
    heads = (
        "world", "best", "as good", "gain over FedAvg", "over LocalOnly",
    )  # fmt: skip
    caption = (
        f"The best method of each world by {VALUES.get(value, value)} "
        f"({scale(frame)}). Gains are those of the method that is best on the other "
        "seeds, in percentage points, with rough 95 % intervals over seeds. As good "
        f"are methods within {NEAR} points that three seeds cannot tell from the best."
    )
    return tables.words(heads, rows, caption)


def carry_table(frame: DataFrame, value: str = "accuracy") -> tables.Table:
    """How far a choice made in nine worlds is right in the tenth."""
    rows = []
    for world, line in analysis.elsewhere(frame, value).iterrows():
        rows.append((
            str(world),
            line["chosen"],
            f"{line['rank']} of {line['methods']}",
            f"{POINTS * line['short']:.1f}",
        ))  # fmt: skip
    heads = ("world left out", "best in the others", "its rank here", "points behind")
    caption = f"Choosing by the other worlds ({scale(frame)})."
    return tables.words(heads, rows, caption)


def _interval(line: Series) -> str:
    """A gain and its interval, in points."""
    gain, low, high = (POINTS * line[name] for name in ("gain", "low", "high"))
    return f"{gain:+.1f} ({low:+.1f} to {high:+.1f})"
