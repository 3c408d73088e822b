"""The figures of the OCFL chapter, and its records as frames."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ... import tables
from ...clustering import by_distance
from ...door import Judge
from ...metrics import adjusted_rand
from ...params import mean
from ...plots import COLOURS, FAINT, INK, style
from ...similarity import cosine_distance
from .. import common
from . import archive, arms, explain, theory
from .archive import SIZES, scores
from .arms import CLUSTERERS
from .tasks import FIFTEEN, LOCAL_WORK, NAMES, TABLES, THIRTY

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ...experiment import Task


def _figure(
    rows: int, columns: int, width: float, height: float, **kwargs: Any
) -> tuple[Figure, np.ndarray]:
    from matplotlib.figure import Figure

    style()
    fig = Figure(figsize=(width, height))
    axes = fig.subplots(rows, columns, squeeze=False, **kwargs)
    return fig, axes[0] if rows == 1 else axes


def sight_lines(
    past: Sequence[theory.Round],
    mu: Tensor,
    R: Tensor,
    temperature: Sequence[float],
) -> Figure:
    """The toy's plane, stretched by R, with lines from the model to both goals in three
    rounds; and the temperature.
    """
    fig, (plane, course) = _figure(1, 2, 9, 3.6, width_ratios=(1, 2))
    near, far = (R * mu)[[-1, 0], :2]
    for t, colour in zip((1, 3, 6), COLOURS, strict=False):
        vee = torch.stack([near, (R * past[t - 1].theta)[:2], far])  # goal, model, goal
        plane.plot(*vee.T, color=colour, label=f"round {t}")
    plane.plot(
        *torch.stack([(R * r.theta)[:2] for r in past]).T,
        "o-",
        color=INK,
        markersize=3,
        linewidth=0.8,
    )
    plane.plot(*torch.stack([near, far]).T, "*", color=INK, markersize=12)
    plane.set(
        title="lines of sight to the goals (★)",
        xlabel="first axis (scaled by R)",
        ylabel="second axis (scaled by R)",
    )
    plane.set_aspect("equal")
    plane.legend(loc="upper right", bbox_to_anchor=(2, 1))
    course.semilogy(range(1, len(temperature) + 1), temperature, "o-", markersize=3)
    course.axvline(fires(temperature), color="0.6", linestyle=":")
    course.set(title="temperature; dotted: the trigger", xlabel="round", ylabel="T")
    return fig


def how_it_works() -> Figure:
    """The idea in three panels: a common model, its thermometer, and three models."""
    fig, axes = _figure(1, 3, 9.6, 3.1)
    groups = np.repeat(range(3), 3)
    spread = np.array([-0.16, 0.0, 0.16])
    directions = np.concatenate([c * 2 * np.pi / 3 + 0.5 + spread for c in range(3)])
    for ax, parted in ((axes[0], False), (axes[2], True)):
        for group, angle in zip(groups, directions, strict=True):
            middle = group * 2 * np.pi / 3 + 0.5
            shift = 0.9 * parted * np.array([np.cos(middle), np.sin(middle)])
            tip = shift + 0.8 * np.array([np.cos(angle), np.sin(angle)])
            ax.plot(*np.stack([shift, tip]).T, color=COLOURS[group], linewidth=1.8)
            ax.plot(*tip, marker=(3, 0, np.degrees(angle) - 90), color=COLOURS[group])
            ax.plot(*shift, "s", color=INK, markersize=11)
        reach = 1.9 if parted else 1.1
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
        ax.set_aspect("equal")
        ax.set_axis_off()
    axes[0].set_title("1. one model (■), everybody\nsends an arrow to the server")
    axes[2].set_title("3. cluster once; each group\nhas its own model from now on")
    course = [0.47, 0.41, 0.37, 0.35, 0.39]
    axes[1].plot(range(1, 6), course, "o-", color=INK)
    axes[1].axvline(5, color=COLOURS[1], linestyle=":")
    axes[1].annotate("first rise", (4.9, 0.45), ha="right", color=COLOURS[1])
    axes[1].set(title="2. the server watches how much\nthe arrows disagree")
    axes[1].set(xlabel="round", ylabel="temperature", xticks=range(1, 6))
    return fig


def three_clusterers(seed: int = 3) -> Figure:
    """How affinity propagation, mean shift and HDBSCAN see the same points."""
    from sklearn.cluster import HDBSCAN, AffinityPropagation

    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [3.2, 0.4], [1.4, 2.8]])
    points = np.repeat(centres, 8, axis=0) + rng.normal(scale=0.4, size=(24, 2))
    points = np.concatenate([points, [[4.3, 3.2]]])  # and one that belongs nowhere
    fig, axes = _figure(1, 3, 9.6, 3.4, sharex=True, sharey=True)
    found = AffinityPropagation(random_state=0).fit(points)
    for point, label in zip(points, found.labels_, strict=True):
        exemplar = points[found.cluster_centers_indices_[label]]
        axes[0].plot(*np.stack([point, exemplar]).T, color="0.6", linewidth=1)
    exemplars = points[found.cluster_centers_indices_]
    axes[0].plot(*exemplars.T, "s", color=INK, markersize=9, fillstyle="none")
    axes[0].set_title("affinity propagation:\npoints elect exemplars (□)")
    for path in climb(points, radius=1.5):
        axes[1].plot(*path.T, color="0.6", linewidth=1)
        axes[1].plot(*path[-1], "x", color=INK, markersize=8)
    axes[1].set_title("mean shift: points climb\nto where it is densest (×)")
    for i, j, cut in density_tree(points, 5):
        how = {"color": "0.6", "linestyle": ":"} if cut else {"color": INK}
        axes[2].plot(*points[[i, j]].T, linewidth=1, **how)
    axes[2].set_title("HDBSCAN: a tree of dense links,\nthe long ones (dotted) cut")
    dense = HDBSCAN(min_cluster_size=5, copy=True).fit(points).labels_
    for ax in axes:
        colours = [COLOURS[label] if label >= 0 else "0.6" for label in dense]
        ax.scatter(*points.T, c=colours, s=22, zorder=3)
        ax.set(xticks=[], yticks=[])
        ax.grid(False)
    return fig


def climb(points: np.ndarray, radius: float, steps: int = 30) -> np.ndarray:
    """Mean shift by hand: where each point (n, d) goes, (n, steps + 1, d).

    In each step everybody moves to the mean of the points within ``radius`` of it.
    """
    now = points.copy()
    path = [now]
    for _ in range(steps):
        apart = np.linalg.norm(now[:, None] - points[None], axis=2)  # (n, n)
        near = (apart <= radius).astype(float)
        now = near @ points / near.sum(1, keepdims=True)
        path.append(now)
    return np.stack(path, 1)


def density_tree(points: np.ndarray, least: int) -> list[tuple[int, int, bool]]:
    """HDBSCAN's tree of points (n, d): pairs (i, j), and whether the link is cut.

    Two points are as far apart as the largest of three: their distance, and the
    distances to their ``least``-th neighbours. A link is cut if its ends are not in one
    cluster.
    """
    from scipy.sparse.csgraph import minimum_spanning_tree
    from sklearn.cluster import HDBSCAN

    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    core = np.sort(apart, axis=1)[:, least - 1]
    reach = np.maximum(apart, np.maximum(core[:, None], core[None]))
    tree = minimum_spanning_tree(reach).tocoo()
    labels = HDBSCAN(min_cluster_size=least, copy=True).fit(points).labels_
    links = []
    for i, j in zip(tree.row, tree.col, strict=True):
        cut = labels[i] != labels[j] or labels[i] < 0
        links.append((int(i), int(j), bool(cut)))
    return links


def thermometer(T: Sequence[float]) -> Figure:
    """The temperature of one run, its last minimum, and the round of the trigger."""
    fig, (ax,) = _figure(1, 1, 6.4, 3)
    ax.plot(range(1, len(T) + 1), T, "o-", color=INK)
    rise = fires(T)
    if rise == rise:
        ax.axvline(rise, color=COLOURS[1], linestyle=":")
        ax.annotate("trigger ", (rise, max(T)), ha="right", color=COLOURS[1])
    ax.set(xlabel="round", ylabel="temperature T", xticks=range(1, len(T) + 1))
    return fig


def temperatures(runs: DataFrame) -> Figure:
    """Figures 3 and 4: T over the rounds, for each data set and for all together.

    ``runs`` has data, clients, round and temperature. Lines are means over splits and
    seeds, bands one standard deviation. In the last panel each run is divided by its
    largest temperature first, as in the paper. If ``runs`` says when the trigger
    ``fires``, a triangle marks the median round.
    """
    names = list(runs["data"].unique())
    fig, axes = _figure(2, 3, 8, 4.4)
    one = [name for name in SCENARIO + ["seed"] if name in runs]
    top = runs.groupby(one)["temperature"].transform("max")
    scaled = runs.assign(temperature=runs["temperature"] / top)
    panels = [(name, runs[runs["data"] == name]) for name in names]
    for ax, (name, own) in zip(axes.flat, [*panels, ("all", scaled)], strict=False):
        for (clients, part), colour in zip(
            own.groupby("clients"), COLOURS, strict=False
        ):
            course = part.groupby("round")["temperature"].agg(["mean", "std"])
            low = (course["mean"] - course["std"]).clip(lower=0)
            high = course["mean"] + course["std"]
            ax.plot(
                course.index, course["mean"], color=colour, label=f"{clients} clients"
            )
            ax.fill_between(
                course.index, low, high, color=colour, alpha=0.15, linewidth=0
            )
            if "fires" in part and name != "all":
                middle = part[part["round"] == 1]["fires"].median()
                ax.plot(middle, low.min(), "^", color=colour)
        ax.set_title("all, divided by maxima" if name == "all" else name)
        ax.ticklabel_format(axis="y", scilimits=(-2, 3))
    for ax in axes[1]:
        ax.set_xlabel("round")
    for ax in axes[:, 0]:
        ax.set_ylabel("T")
    axes[0, 0].legend()
    for ax in axes.flat[len(names) + 1 :]:
        ax.set_visible(False)
    return fig


def splits_in_any_round(looks: DataFrame, rows: Sequence[str]) -> Figure:
    """Mean ARI of each clusterer by the round of the split, and by its distance from
    the trigger.

    From two rounds before it to five after; further before it there are only the few
    runs whose trigger is late.
    """
    fig, axes = _figure(1, 2, 9, 3.2, sharey=True)
    after = looks.assign(after=looks["round"] - looks["fires"])
    for ax, x in zip(axes, ("round", "after"), strict=True):
        wide = after[after["after"].between(-2, 5)] if x == "after" else after
        for row, dashes in zip(rows, ("-", "--", "-.", ":"), strict=False):
            course = wide[wide["row"] == row].groupby(x)["ari"].mean()
            ax.plot(course.index, course, dashes, label=row)
    axes[0].set(xlabel="round of the split", ylabel="ARI")
    axes[1].set(xlabel="rounds after the trigger")
    axes[1].axvline(0, color="0.6", linestyle=":")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def segments(frame: DataFrame, rows: Sequence[str]) -> Figure:
    """Figure 2: from GF1 to PF1 for each method, a panel for each data set.

    A cross is GF1 before averaging. What the frame does not have is not drawn.
    """
    fig, axes = _figure(
        1, frame["data"].nunique(), 9.6, 0.28 * len(rows) + 1, sharey=True
    )
    marks = {
        "pf1": ("o", "PF1", COLOURS[0]),
        "gf1": ("s", "GF1", COLOURS[1]),
        "gf1_before": ("x", "GF1 before\naveraging", INK),
    }
    marks = {score: how for score, how in marks.items() if score in frame}
    lower = "gf1" if "gf1" in marks else "gf1_before"
    at = range(len(rows))
    for ax, (name, own) in zip(axes, frame.groupby("data", sort=False), strict=True):
        level = own.groupby("row")[list(marks)].mean().loc[list(rows)[::-1]]
        ax.hlines(at, level[lower], level["pf1"], color=FAINT, linewidth=4)
        for score, (marker, label, colour) in marks.items():
            ax.plot(level[score], at, marker, color=colour, label=label, markersize=5)
        ax.set(title=name, xlim=(0, 1), xlabel="macro-F1")
    axes[0].set_yticks(at, list(rows)[::-1])
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def f1_over_rounds(courses: DataFrame, rows: Sequence[str]) -> Figure:
    """PF1 (full lines) and GF1 (dashed) of some methods over the rounds, by data set.

    ``courses`` is that of `scores_over_rounds`.
    """
    fig, axes = _figure(2, 3, 8, 4.2, sharex=True, sharey=True)
    groups = list(courses.groupby("data", sort=False))
    for ax, (name, own) in zip(axes.flat, groups, strict=False):
        for row, colour in zip(rows, COLOURS, strict=False):
            means = own[own["row"] == row].groupby("round")[["pf1", "gf1"]].mean()
            ax.plot(means.index, means["pf1"], color=colour, label=row)
            ax.plot(means.index, means["gf1"], "--", color=colour)
        ax.set_title(name)
    for ax in axes[:, 0]:
        ax.set_ylabel("macro-F1")
    for ax in axes[-1]:
        ax.set_xlabel("round")
    for ax in axes.flat[len(groups) :]:
        ax.set_axis_off()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    axes[-1, -1].legend(handles, labels, loc="center")
    return fig


def boxes(frame: DataFrame, rows: Sequence[str]) -> Figure:
    """Figures 6 and 7: insertion above, deletion below, a panel for each data set.

    Over splits and seeds: a thin line from the least to the greatest area, a thick one
    between the quartiles, a mark at the median.
    """
    sets = list(frame.groupby("data", sort=False))
    height = 0.42 * len(rows) + 1.4
    fig, axes = _figure(2, len(sets), 9.2, height, sharey=True, sharex="row")
    labels = list(rows)[::-1]
    at = range(len(rows))
    for column, (name, own) in zip(axes.T, sets, strict=True):
        for ax, kind in zip(column, ("insertion", "deletion"), strict=True):
            areas = own.groupby("row")[kind].quantile([0, 0.25, 0.5, 0.75, 1])
            areas = areas.unstack().loc[labels]
            ax.hlines(at, areas[0.0], areas[1.0], color=INK, linewidth=1)
            ax.hlines(at, areas[0.25], areas[0.75], color=COLOURS[0], linewidth=5)
            ax.plot(areas[0.5], at, "D", color=INK, markersize=3)
            ax.set_xlabel(f"{kind} area")
        column[0].set_title(name)
    for ax in axes[:, 0]:
        ax.set_yticks(at, labels)
    return fig


def saliency(
    net: Callable[[], nn.Module],
    state: arms.State,
    x: Tensor,
    y: Tensor,
    clients: Sequence[int],
) -> Figure:
    """Figures 5, 15, 16: an image of each client, and what speaks for its class in the
    model that each arm gives it.
    """
    fig, axes = _figure(
        len(state.arms), 2 * len(clients), 1.5 * 2 * len(clients), 1.6 * len(state.arms)
    )
    for arm, name, line in zip(state.arms, state.names, axes, strict=True):
        for i, k in enumerate(clients):
            module = explain.network(net, arm.theta[arm.labels[k]])
            guess = int(module(x[i : i + 1]).argmax())
            line[2 * i].imshow(x[i, 0], cmap="gray_r")
            line[2 * i + 1].imshow(
                explain.gradcam(module, x[i : i + 1], y[i : i + 1])[0]
            )
            line[2 * i].set_title(f"client {k}: {int(y[i])}", size=9)
            line[2 * i + 1].set_title(f"said {guess}", size=9)
        line[0].set_ylabel(name)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.grid(False)
    return fig


def mean_curves(
    net: Callable[[], nn.Module],
    state: arms.State,
    own: Sequence[tuple[Tensor, Tensor]],
) -> Figure:
    """Insertion and deletion curves of each arm, one row of pixels a step.

    ``own[k]`` has images and classes of client k. Above are probabilities; below each
    image's curve is divided by its own largest value first. Legends have the areas.
    """
    fig, axes = _figure(2, 2, 8, 4.6, sharex=True)
    for column, kind in zip(axes.T, ("insertion", "deletion"), strict=True):
        for arm, name in zip(state.arms, state.names, strict=True):
            found = []
            for label, (x, y) in zip(arm.labels, own, strict=True):
                module = explain.network(net, arm.theta[label])
                maps = explain.gradcam(module, x, y)
                found.append(explain.curve(module, x, y, maps, kind))
            curves = torch.cat(found)
            for ax, part in zip(
                column, (curves, explain.normalised(curves)), strict=True
            ):
                middle = part.mean(0)
                words = f"{name}: {float(explain.area(middle)):.2f}"
                ax.plot(np.linspace(0, 1, len(middle)), middle, label=words)
        column[0].set_title(kind)
        column[1].set_xlabel("share of pixels changed")
        for ax in column:
            ax.set_ylim(0, 1.02)
            ax.legend(title="area")
    axes[0, 0].set_ylabel("probability of\nthe true class")
    axes[1, 0].set_ylabel("the same, divided by\nthe image’s largest")
    return fig


def three_modes(fed: Judge, state: arms.State, images: int = 40) -> DataFrame:
    """Algorithm 2 in its three modes, for every arm: areas, plain and normalised."""
    import pandas as pd

    names = {"in": "own", "out": "other clusters’", "server": "the server’s"}
    lines = []
    for arm, row in zip(state.arms, state.names, strict=True):
        for mode, images_of in names.items():
            found = explain.insertion_deletion(
                fed, arm, mode, sample=images, detailed=True
            )
            line = {"model": row, "images": images_of}
            for kind in ("insertion", "deletion"):
                line[kind] = found[kind].mean()
                line[f"{kind}, normalised"] = found[f"{kind}_normalised"].mean()
            lines.append(line)
    return pd.DataFrame(lines).set_index(["model", "images"])


# --- what can be tried in a minute ---


def few_shots(fed: Judge, share: float, rounds: int) -> DataFrame:
    """Section 6.2: cluster again in every round, with all directions seen so far.

    A share of the clients trains in each round. The server keeps the sum of each
    client's directions, and hands the cosine distances of those it has met to HDBSCAN.
    ``groups found`` is the ARI among them.
    """
    import pandas as pd

    true = fed.truth.labels
    assert true is not None
    theta = fed.start()[0]
    seen = torch.zeros(len(fed.n), fed.layout.P)
    lines = []
    for t in range(1, rounds + 1):
        update = fed.train(theta, fed.sample(share))
        delta = (update.theta - theta)[:, : fed.layout.P]
        seen[update.clients] += torch.nn.functional.normalize(delta)
        met = seen.any(1)  # (K,)
        found = by_distance(cosine_distance(seen[met]), "hdbscan").numpy()
        ari = adjusted_rand(true[met.numpy()], found)
        lines.append({"round": t, "clients met": int(met.sum()), "ARI": ari})
        theta = mean(update.theta, fed.n[update.clients])
    return pd.DataFrame(lines).set_index("round")


def captioned(frame: DataFrame, caption: str, digits: int = 2) -> tables.Table:
    """A frame as a table of the page: a caption, its index as the first columns."""
    flat = frame.reset_index()
    rows = []
    for line in flat.itertuples(index=False):
        rows.append([_cell(value, digits) for value in line])
    return tables.words([*map(str, flat.columns)], rows, caption, "numbers")


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return "–" if np.isnan(value) else f"{value:.{digits}f}"
    return str(value)


# --- the records as frames ---


def fires(temperature: Sequence[float], window: int = 1) -> float:
    """The first round, from 1, in which the mean of the last ``window`` temperatures
    rises, or nan (section 6.3).
    """
    T = np.asarray(temperature, float)
    rises = np.flatnonzero(
        T[window:] > T[:-window]
    )  # two means of w rounds differ in their ends
    return float(rises[0] + window + 1) if len(rises) else np.nan


def every_round(tasks: Sequence[Task], path: str | Path, mark: str = "") -> DataFrame:
    """One line per run, clusterer and round: the temperature, when it fires, and how
    good clusters of this round are.

    ``mark="state "`` takes the updates with what is no parameter, where they were
    looked at.
    """
    import pandas as pd

    facts = tables.frame(tasks, path)[[*tables.FACTS]].to_dict("records")
    columns: dict[str, list] = defaultdict(list)
    for task, fact, curve in zip(tasks, facts, courses(tasks, path), strict=True):
        T = curve[f"{mark}temperature"].tolist()
        true = np.repeat(range(3), SIZES[_shape(task)])
        same = {"fires": fires(T), **fact, **task.tags}
        for name in CLUSTERERS:
            names = [list(found) for found in curve[mark + name]]  # rounds, clients
            columns["ari"] += scores(np.array(names), true, ["ari"])["ari"].tolist()
            columns["clusters"] += [len(set(row)) for row in names]
            columns["temperature"] += T
            columns["round"] += curve["round"].tolist()
            for key, value in (same | {"row": name}).items():
                columns[key] += [value] * len(T)
    return pd.DataFrame(columns)


def at_trigger(looks: DataFrame, fires: str = "fires") -> DataFrame:
    """The lines of `every_round` in which the trigger fires; where it never does, all
    stay together in one cluster.
    """
    import pandas as pd

    never = looks[looks[fires].isna() & (looks["round"] == 1)]
    together = {"ari": 0.0, "clusters": 1, "round": np.nan}
    return pd.concat(
        [looks[looks["round"] == looks[fires]], never.assign(**together)]
    ).sort_index()


def _shape(task: Task) -> tuple[int, str]:
    return int(task.tags["clients"]), str(task.tags["balance"])


def courses(tasks: Sequence[Task], path: str | Path) -> list[DataFrame]:
    """The curves of each task's run, in the tasks' order."""
    tagged = [replace(task, tags={"at": i}) for i, task in enumerate(tasks)]
    return [curve for (curve,) in tables.curves(tagged, path, "at").values()]


def side_by_side(tasks: Sequence[Task], path: str | Path) -> DataFrame:
    """One line per run and arm: its final scores, and what it would have cost alone.

    Records of `Arms` before its revision 2 do not tell an arm's own cost: there
    ``client_updates`` and ``bytes`` are those of the whole run.
    """
    import pandas as pd

    frame = tables.frame(tasks, path)
    rows = dict.fromkeys(name for task in tasks for name, _ in task.method.arms)
    whole = frame[[name for name in frame.columns if "|" not in name]]
    parts = []
    for row in rows:
        own = frame[[name for name in frame.columns if name.startswith(f"{row}|")]]
        own = own.rename(columns=lambda name: name.split("|")[1])
        common = whole.drop(columns=own.columns.intersection(whole.columns))
        part = pd.concat([common, own], axis=1).assign(row=row)
        parts.append(part[own.notna().any(axis=1)])
    return pd.concat(parts, ignore_index=True)


def over_splits(frame: DataFrame, value: str) -> DataFrame:
    """Mean of a score over the splits, for each row, data set, number of clients and
    seed; with the runs' facts.
    """
    facts = {name: (name, "first") for name in tables.FACTS if name != "seed"}
    by = ["row", "data", "clients", "seed"]
    return (
        frame.groupby(by, sort=False)
        .agg(**facts, **{value: (value, "mean")})
        .reset_index()
    )


def archived(runs: DataFrame) -> DataFrame:
    """The archive's runs (`archive.summary`) with our names; rows that got the wrong
    matrix say so.
    """
    wrong = {
        "BCL": "BCL as released",
        "OCFL-AFF": "OCFL-AFF as released",
        "BNC": "FedAvg",
    }
    named = runs.rename(columns={"dataset": "data", "algorithm": "row"}).drop(
        columns=["ari", "ami", "homogeneity"]
    )
    named = named.rename(
        columns={
            f"final_{kind}": kind
            for kind in ("ari", "ami", "homogeneity", "completeness")
        }
    )
    return named.assign(row=named["row"].replace(wrong))


# --- what the chapter's pictures and claims stand on ---

SCENARIO = ["data", "clients", "overlap", "balance"]


@cache
def looks() -> DataFrame:
    """`every_round` of all data sets and numbers of clients."""
    return _stored(every_round, *FIFTEEN, *THIRTY)


@cache
def all_arms() -> DataFrame:
    """`side_by_side` of all tables that have every method."""
    return _stored(side_by_side, *FIFTEEN, "fashion_mnist30")


@cache
def kept_archive() -> dict[str, DataFrame]:
    """The summary of the authors' runs that is kept with the book, with our names.

    Data sets are in the paper's order.
    """
    frames = archive.kept(common.results("ocfl") / "archive.json")
    order = list(NAMES.values())
    named = {"runs": archived(frames["runs"])}
    for name in ("temperatures", "explanations"):
        columns = {"dataset": "data", "algorithm": "row"}
        named[name] = frames[name].rename(columns=columns)
    rows = named["explanations"].replace({"row": {"BNC": "FedAvg"}})
    named["explanations"] = rows
    return {
        name: frame.sort_values("data", key=lambda d: d.map(order.index), kind="stable")
        for name, frame in named.items()
    }


@cache
def scores_over_rounds() -> DataFrame:
    """PF1, GF1 and ARI of every arm in every measured round, 15 clients."""
    return _stored(_courses_of_arms, *FIFTEEN)


def _courses_of_arms(runs: Sequence[Task], path: str | Path) -> DataFrame:
    import pandas as pd

    columns: dict[str, list] = defaultdict(list)
    for task, curve in zip(runs, courses(runs, path), strict=True):
        first, _ = task.method.arms[0]
        measured = curve[curve[f"{first}|pf1"].notna()]
        for row, _ in task.method.arms:
            columns["round"] += measured["round"].tolist()
            for kind in ("pf1", "gf1", "ari"):
                columns[kind] += measured[f"{row}|{kind}"].tolist()
            for key, value in {"row": row, "seed": task.seed, **task.tags}.items():
                columns[key] += [value] * len(measured)
    return pd.DataFrame(columns)


# --- runs with more local work, as far as they are there ---


@cache
def local_work() -> tuple[DataFrame, DataFrame] | None:
    """`every_round` and `side_by_side` of the runs with three epochs a round.

    Only seeds whose runs are there on all data sets; None if there is none yet. FL+HC
    has the threshold that is best on the other seeds, see `tuned`.
    """
    import pandas as pd

    folder = common.results("ocfl")
    names = [f"local_work_{name}" for name in LOCAL_WORK]
    runs = {name: TABLES[name]("workstation") for name in names}
    missing = set()
    for name, own in runs.items():
        done = tables.by_key(folder / f"{name}.json")
        missing |= {task.seed for task in own if task.key not in done}
    parts = []
    for reader in (every_round, side_by_side):
        frames = []
        for name, own in runs.items():
            whole = [task for task in own if task.seed not in missing]
            if whole:
                frames.append(reader(whole, folder / f"{name}.json"))
        if not frames:
            return None
        parts.append(pd.concat(frames, ignore_index=True))
    return parts[0], tuned(parts[1])


def tuned(arms_: DataFrame) -> DataFrame:
    """The arms, with one row BCL: in each seed the threshold best on the others.

    The best has the highest mean ARI there. With one seed it is FL+HC's default.
    """
    import pandas as pd

    briggs = arms_["row"].str.startswith("BCL")
    parts = [arms_[~briggs]]
    for seed in arms_["seed"].unique():
        others = arms_[briggs & (arms_["seed"] != seed)]
        best = "BCL"
        if len(others):
            best = others.groupby("row")["ari"].mean().idxmax()
        own = arms_[(arms_["row"] == best) & (arms_["seed"] == seed)]
        parts.append(own.assign(row="BCL"))
    return pd.concat(parts, ignore_index=True)


def _stored(reader: Callable[..., DataFrame], *names: str) -> DataFrame:
    import pandas as pd

    folder = common.results("ocfl")
    frames = [reader(TABLES[name]("laptop"), folder / f"{name}.json") for name in names]
    return pd.concat(frames, ignore_index=True)
