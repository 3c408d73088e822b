"""The figures of the OCFL chapter: lines of sight, temperatures, F1 segments, saliency
maps and their curves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ... import tables
from ...plots import COLOURS, FAINT, INK, style
from .. import common
from . import archive, arms, explain, theory
from .archive import SIZES, scores
from .arms import CLUSTERERS
from .tasks import FIFTEEN, TABLES, THIRTY

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ...experiment import Task


def _figure(
    rows: int, columns: int, width: float, height: float, **kwargs: Any
) -> tuple[Figure, np.ndarray]:
    from matplotlib.figure import Figure

    """An empty figure and its axes: (columns,), or (rows, columns) for several rows."""
    style()
    fig = Figure(figsize=(width, height))
    axes = fig.subplots(rows, columns, squeeze=False, **kwargs)
    if rows == 1:
        return fig, axes[0]
    return fig, axes


def sight_lines(
    past: Sequence[theory.Round],
    mu: Tensor,
    R: Tensor,
    temperature: Sequence[float],
) -> Figure:
    """The toy's plane and its temperature.

    The plane is stretched by R. Lines go from the model to both goals in three rounds.
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


def temperatures(looks: DataFrame, archive: DataFrame) -> Figure:
    """Temperature over the rounds, a column for each data set.

    The archive's runs are above, ours below. Mean and standard deviation are over
    splits and seeds; a triangle marks the median round of our trigger.
    """
    one = looks[looks["row"] == looks["row"].iloc[0]]
    fig, axes = _figure(2, one["data"].nunique(), 9.6, 4.2, sharex=True)
    last = one["round"].max()
    for (above, below), (name, ours) in zip(
        axes.T, one.groupby("data", sort=False), strict=True
    ):
        theirs = archive[(archive["dataset"] == name) & (archive["round"] <= last)]
        for ax, frame in ((above, theirs), (below, ours)):
            for (clients, part), colour in zip(
                frame.groupby("clients"), COLOURS, strict=False
            ):
                course = part.groupby("round")["temperature"].agg(["mean", "std"])
                ax.plot(
                    course.index,
                    course["mean"],
                    color=colour,
                    label=f"{clients} clients",
                )
                low = (course["mean"] - course["std"]).clip(lower=0)
                high = (course["mean"] + course["std"]).clip(lower=0)
                ax.fill_between(
                    course.index, low, high, color=colour, alpha=0.15, linewidth=0
                )
                if ax is below:
                    ax.plot(
                        part[part["round"] == 1]["fires"].median(),
                        low.min(),
                        "^",
                        color=colour,
                    )
        above.set_title(name)
        above.ticklabel_format(axis="y", scilimits=(-2, 2))
        below.set_xlabel("round")
    axes[0, 0].set_ylabel("archive: T")
    axes[1, 0].set_ylabel("ours: T")
    axes[1, -1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def splits_in_any_round(looks: DataFrame, rows: Sequence[str]) -> Figure:
    """Mean ARI of each clusterer, by the round of a split.

    On the right rounds are counted from the trigger, from two before it to five after
    it. Further before it there are only the few runs whose trigger is late.
    """
    fig, axes = _figure(1, 2, 9, 3.2, sharey=True)
    looks = looks.assign(after=looks["round"] - looks["fires"])
    near = looks[looks["after"].between(-2, 5)]
    for ax, x, frame in zip(axes, ("round", "after"), (looks, near), strict=True):
        for row, dashes in zip(rows, ("-", "--", "-.", ":"), strict=False):
            course = frame[frame["row"] == row].groupby(x)["ari"].mean()
            ax.plot(course.index, course, dashes, label=row)
    axes[0].set(xlabel="round of the split", ylabel="ARI")
    axes[1].set(xlabel="rounds after the trigger")
    axes[1].axvline(0, color="0.6", linestyle=":")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def segments(frame: DataFrame, rows: Sequence[str]) -> Figure:
    """Figure 2: from GF1 to PF1 for each method, a panel for each data set.

    A cross is GF1 before averaging.
    """
    fig, axes = _figure(1, frame["data"].nunique(), 9.6, 3.6, sharey=True)
    marks = {
        "pf1": ("o", "PF1"),
        "gf1": ("s", "GF1"),
        "gf1_before": ("x", "GF1 before\naveraging"),
    }
    for ax, (name, ours) in zip(axes, frame.groupby("data", sort=False), strict=True):
        level = ours.groupby("row")[list(marks)].mean().loc[list(rows)[::-1]]
        at = range(len(rows))
        ax.hlines(at, level["gf1"], level["pf1"], color=FAINT, linewidth=4)
        for (score, (marker, label)), colour in zip(
            marks.items(), (COLOURS[0], COLOURS[1], INK), strict=True
        ):
            ax.plot(level[score], at, marker, color=colour, label=label, markersize=5)
        ax.set(title=name, xlim=(0, 1), xlabel="macro-F1")
    axes[0].set_yticks(range(len(rows)), list(rows)[::-1])
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def boxes(frame: DataFrame, rows: Sequence[str]) -> Figure:
    """Figures 6 and 7: insertion and deletion areas of each method.

    On the clients' own images, and on the server's.
    """
    fig, axes = _figure(1, 4, 9.6, 3.6, sharey=True)
    titles = {
        "insertion": "insertion,\nown images",
        "deletion": "deletion,\nown images",
        "insertion_server": "insertion,\nserver’s images",
        "deletion_server": "deletion,\nserver’s images",
    }
    upwards = list(rows)[::-1]
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        areas = [frame[frame["row"] == row][column].dropna() for row in upwards]
        ax.boxplot(
            areas,
            orientation="horizontal",
            tick_labels=upwards,
            flierprops={"markersize": 2},
        )
        ax.set(title=title, xlabel="area")
    return fig


def saliency(
    net: Callable[[], nn.Module],
    state: arms.State,
    x: Tensor,
    y: Tensor,
    clients: Sequence[int],
) -> Figure:
    """Figures 5, 15, 16: an image of each client, and its saliency map.

    The map shows what speaks for the true class in the model that each arm gives it.
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
    """Mean insertion and deletion curves of each arm.

    The mean is over the images and classes ``own[k]`` of every client k. The legend has
    the area as a share of the curve's maximum, times that maximum.
    """
    fig, axes = _figure(1, 2, 8.4, 3)
    for ax, kind in zip(axes, ("insertion", "deletion"), strict=True):
        for arm, name in zip(state.arms, state.names, strict=True):
            modules = [explain.network(net, arm.theta[label]) for label in arm.labels]
            curves = []
            for module, (x, y) in zip(modules, own, strict=True):
                saliency_map = explain.gradcam(module, x, y)
                curves.append(explain.curve(module, x, y, saliency_map, kind))
            middle = torch.cat(curves).mean(0)
            area = float(explain.area(middle))
            top = float(middle.max())
            label = f"{name}: {area:.2f} = {area / top:.2f} × {top:.2f}"
            ax.plot(np.linspace(0, 1, len(middle)), middle, label=label)
        room_for_legend = 1.5 * ax.get_ylim()[1]
        ax.set(title=kind, xlabel="share of pixels", ylim=(0, room_for_legend))
        ax.legend()
    axes[0].set_ylabel("probability of the true class")
    return fig


# --- the records as frames ---


def fires(temperature: Sequence[float], window: int = 1) -> float:
    """The first round, from 1, in which the mean of the last ``window`` temperatures
    rises; nan if it never does (section 6.3).
    """
    T = np.asarray(temperature, float)
    # two means of w rounds differ in their ends
    rises = np.flatnonzero(T[window:] > T[:-window])
    if len(rises) == 0:
        return np.nan
    return float(rises[0] + window + 1)


def every_round(tasks: Sequence[Task], path: str | Path, mark: str = "") -> DataFrame:
    """One line per run, clusterer and round.

    It has the temperature, the round in which the trigger fires, and how good the
    clusters of this round are. ``mark="state "`` takes the updates with what is no
    parameter, where they were looked at.
    """
    import pandas as pd

    parts = []
    facts = tables.frame(tasks, path)[[*tables.FACTS]].to_dict("records")
    for task, fact, curve in zip(tasks, facts, courses(tasks, path), strict=True):
        T = curve[f"{mark}temperature"].to_numpy()
        true = _truth(task)
        for name in CLUSTERERS:
            found = [list(text) for text in curve[mark + name]]
            names = np.array(found)  # (rounds, clients)
            part = pd.DataFrame(scores(names, true)).assign(
                clusters=[len(set(row)) for row in found],
                row=name,
                temperature=T,
                round=curve["round"],
                fires=fires(T),
            )
            parts.append(part.assign(**fact, **task.tags))
    return pd.concat(parts, ignore_index=True)


def at_trigger(looks: DataFrame, fires: str = "fires") -> DataFrame:
    """The lines of `every_round` in which the trigger fires.

    Where it never does, all clients stay together in one cluster.
    """
    import pandas as pd

    never = looks[looks[fires].isna() & (looks["round"] == 1)]
    together = {
        "ari": 0.0,
        "ami": 0.0,
        "homogeneity": 0.0,
        "completeness": 1.0,
        "clusters": 1,
        "round": np.nan,
    }
    return pd.concat(
        [looks[looks["round"] == looks[fires]], never.assign(**together)]
    ).sort_index()


def _truth(task: Task) -> np.ndarray:  # (K,)
    """The hidden cluster of each client, as `tasks.split` deals them."""
    clients = int(task.tags["clients"])
    balance = str(task.tags["balance"])
    return np.repeat(range(3), SIZES[clients, balance])


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
        scores = {
            name: name.removeprefix(f"{row}|")
            for name in frame.columns
            if name.startswith(f"{row}|")
        }
        of_arm = frame[[*scores]].rename(columns=scores)
        common = whole.drop(columns=of_arm.columns.intersection(whole.columns))
        part = pd.concat([common, of_arm], axis=1).assign(row=row)
        parts.append(part[of_arm.notna().any(axis=1)])
    return pd.concat(parts, ignore_index=True)


def over_splits(frame: DataFrame, value: str) -> DataFrame:
    """Mean of a score over the splits, with the runs' facts.

    One line for each row, data set, number of clients and seed.
    """
    facts = {name: (name, "first") for name in tables.FACTS if name != "seed"}
    by = ["row", "data", "clients", "seed"]
    return (
        frame.groupby(by, sort=False)
        .agg(**facts, **{value: (value, "mean")})
        .reset_index()
    )


def archived(runs: DataFrame) -> DataFrame:
    """The archive's runs (`archive.summary`) with our names.

    Rows whose clusterer was given the wrong matrix are called "as released".
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
    """The summary of the authors' runs that is kept with the book, with our names."""
    frames, _ = archive.summary(common.results("ocfl") / "archive.json", source="")
    named = {"dataset": "data", "algorithm": "row"}
    explanations = frames["explanations"].rename(columns=named)
    explanations = explanations.replace({"row": {"BNC": "FedAvg"}})
    return frames | {"runs": archived(frames["runs"]), "explanations": explanations}


def _stored(reader: Callable[..., DataFrame], *names: str) -> DataFrame:
    import pandas as pd

    folder = common.results("ocfl")
    frames = [reader(TABLES[name]("laptop"), folder / f"{name}.json") for name in names]
    return pd.concat(frames, ignore_index=True)
