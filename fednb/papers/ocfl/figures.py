"""OCFL's chapter in pictures, and the small live runs that it shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...clustering import by_distance
from ...door import Judge
from ...metrics import adjusted_rand
from ...params import mean
from ...plots import COLOURS, FAINT, INK, style
from ...similarity import cosine_distance
from . import arms, explain, outcomes, theory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


ROWS = ("FedAvg", "SCL", "BCL", "OCFL-HDB", "LocalOnly")
METHOD_COLOURS = dict(zip(ROWS, COLOURS, strict=False))  # in all figures the same


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
    rounds: Sequence[int] = (1, 3, 5, 9),
) -> Figure:
    """The toy's plane as clients see it, with lines from the model to both goals in
    some rounds; and the temperature.

    Arrows are stretched by R. Here all is divided by R's second entry, so that the
    second axis has its own units and angles are those of the arrows.
    """
    fig, (plane, course) = _figure(1, 2, 9.2, 5, width_ratios=(1, 1.15))
    stretch = float(R[0] / R[1])
    scale = torch.tensor([stretch, 1.0], dtype=mu.dtype)
    near, far = mu[[-1, 0], :2] * scale
    path = torch.stack([r.theta[:2] * scale for r in past])
    plane.plot(*path.T, "o-", color=FAINT, markersize=3, label="the model, each round")
    for t, colour in zip(rounds, COLOURS, strict=False):
        model = path[t - 1]
        angle = theory.angle_of_sight(past[t - 1].theta, mu[-1], mu[0], R)
        words = f"round {t}: φ = {np.degrees(angle):.0f}°"
        for goal in (near, far):
            plane.plot(*torch.stack([model, goal]).T, color=colour, linewidth=1.5)
        plane.plot(*model, "o", color=colour, markersize=7, label=words)
    plane.plot(*torch.stack([near, far]).T, "*", color=INK, markersize=11)
    for goal, name in ((near, "group 2"), (far, "group 1")):
        at = (float(goal[0]) - 0.1, float(goal[1]))
        plane.annotate(name, at, ha="right", va="center")
    plane.set(
        title="lines of sight to the goals (★)",
        xlabel=f"first axis (stretched {stretch:.1f} times)",
        ylabel="second axis",
        xlim=(-0.7, 2.2),
    )
    plane.legend(loc="upper right")
    course.semilogy(range(1, len(temperature) + 1), temperature, "o-", color=INK)
    bound = theory.two_cluster_temperature(np.pi, len(mu))
    course.axhline(bound, color="0.6", label="the largest that T can be")
    course.axvline(
        outcomes.fires(temperature), color=COLOURS[1], linestyle=":", label="trigger"
    )
    course.set(title="temperature", xlabel="round", ylabel="T")
    course.legend(loc="lower right")
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
    paths = climb(points, radius=1.5)
    for path in paths:
        axes[1].plot(*path.T, color="0.6", linewidth=1)
        axes[1].plot(*path[-1], "x", color=INK, markersize=8)
    _, tops = np.unique(paths[:, -1].round(3), axis=0, return_inverse=True)
    for i, j, cut in density_tree(points, 5):
        how = {"color": "0.6", "linestyle": ":"} if cut else {"color": INK}
        axes[2].plot(*points[[i, j]].T, linewidth=1, **how)
    dense = HDBSCAN(min_cluster_size=5, copy=True).fit(points).labels_
    for ax, labels, words in (
        (axes[0], found.labels_, "affinity propagation: points\nelect exemplars (□): "),
        (
            axes[1],
            tops.ravel(),
            "mean shift: points climb to\nwhere it is densest (×): ",
        ),
        (axes[2], dense, "HDBSCAN: a tree of links,\nlong ones (dotted) cut: "),
    ):
        order = list(dict.fromkeys(label for label in labels if label >= 0))
        colours = [
            COLOURS[order.index(label)] if label >= 0 else "0.6" for label in labels
        ]
        ax.scatter(*points.T, c=colours, s=22, zorder=3)
        ax.set(xticks=[], yticks=[], title=f"{words}{len(order)} groups")
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
    rise = outcomes.fires(T)
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
    fig, axes = _panels(len(names) + 1)
    one = [name for name in outcomes.SCENARIO + ["seed"] if name in runs]
    top = runs.groupby(one)["temperature"].transform("max")
    scaled = runs.assign(temperature=runs["temperature"] / top)
    panels = [(name, runs[runs["data"] == name]) for name in names]
    for ax, (name, own) in zip(axes.flat, [*panels, ("all", scaled)], strict=False):
        unit, words = 1, ""
        if own["temperature"].max() < 0.05:
            unit, words = 1000, ": T × 1000"
        for (clients, part), colour in zip(
            own.groupby("clients"), COLOURS, strict=False
        ):
            course = unit * part.groupby("round")["temperature"].agg(["mean", "std"])
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
                shift = 0.15 if colour == COLOURS[1] else 0
                ax.plot(middle + shift, low.min(), "^", color=colour)
        title = f"{name}{words}"
        if name == "all":
            title = "all: T ÷ each run’s largest"
        ax.set_title(title)
    for ax in axes[1]:
        ax.set_xlabel("round")
    for ax in axes.flat:
        ax.locator_params(axis="x", integer=True)
    for ax in axes[:, 0]:
        ax.set_ylabel("T")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, ncols=2, loc="outside upper center")
    for ax in axes.flat[len(names) + 1 :]:
        ax.set_visible(False)
    return fig


def _panels(least: int, **kwargs: Any) -> tuple[Figure, np.ndarray]:
    """Two lines of two or three panels, at least so many."""
    if least > 4:
        return _figure(2, 3, 8, 4.4, **kwargs)
    return _figure(2, 2, 7, 4.4, **kwargs)


def splits_in_any_round(scales: dict[str, DataFrame], rows: Sequence[str]) -> Figure:
    """Mean ARI of each clusterer by the round of the split, a panel for each scale.

    ``scales`` has the runs of `outcomes.every_round` under the name of their scale. A
    triangle marks the median round of the trigger.
    """
    fig, axes = _figure(1, len(scales), 9, 3.2, sharey=True)
    for ax, (name, looks) in zip(axes, scales.items(), strict=True):
        for row, dashes in zip(rows, ("-", "--", "-.", ":"), strict=False):
            course = looks[looks["row"] == row].groupby("round")["ari"].mean()
            ax.plot(course.index, course, dashes, label=row)
        middle = looks.loc[looks["round"] == 1, "fires"].median()
        bottom = looks.groupby(["row", "round"])["ari"].mean()[list(rows)].min()
        ax.plot(middle, bottom - 0.02, "^", color=INK, label="median trigger")
        ax.set(title=name, xlabel="round of the split")
    axes[0].set_ylabel("ARI")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
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

    ``courses`` is that of `outcomes.long_scores_over_rounds`.
    """
    from matplotlib.lines import Line2D

    groups = list(courses.groupby("data", sort=False))
    fig, axes = _panels(len(groups) + 1, sharex=True, sharey=True)
    for ax, (name, own) in zip(axes.flat, groups, strict=False):
        for row in rows:
            colour = METHOD_COLOURS[row]
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
    handles, _ = axes[0, 0].get_legend_handles_labels()
    handles.append(Line2D([], [], color=INK, label="full line: PF1"))
    handles.append(Line2D([], [], color=INK, linestyle="--", label="dashed: GF1"))
    axes[-1, -1].legend(handles=handles, loc="center")
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
            better = "better →" if kind == "insertion" else "← better"
            ax.set_xlabel(f"{kind} area ({better})")
        column[0].set_title(name)
    for ax in axes[:, 0]:
        ax.set_yticks(at, labels)
    return fig


def mean_maps(arms_: DataFrame, rows: Sequence[str], names: Sequence[str]) -> Figure:
    """Figures 5, 15, 16 without the images: where the models of each method look.

    Mean GradCAM maps of one class for each hidden group, `explain.group_maps`, in the
    first run of some data sets: methods below each other.
    """
    one = arms_[(arms_["seed"] == arms_["seed"].min()) & arms_["data"].isin(names)]
    first = one.iloc[0]
    one = one[
        (one["overlap"] == first["overlap"]) & (one["balance"] == first["balance"])
    ]
    found = one.set_index(["data", "row"])["maps"]
    names = [name for name in names if name in set(one["data"])]
    groups = len(found.iloc[0])
    fig, axes = _figure(
        len(rows), groups * len(names), 1.3 * groups * len(names), 1.35 * len(rows)
    )
    axes = np.reshape(axes, (len(rows), -1))
    for row, line in zip(rows, axes, strict=True):
        maps = [each for name in names for each in found[name, row]]
        for ax, each in zip(line, maps, strict=True):
            ax.imshow(each["map"], vmin=0, vmax=100)
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
        line[0].set_ylabel(row, rotation=0, ha="right", va="center")
    titles = [
        f"{name}:\nclass {each['class']}"
        for name in names
        for each in found[name, rows[0]]
    ]
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, size=9)
    return fig


def recorded_curves(arms_: DataFrame, rows: Sequence[str]) -> Figure:
    """Insertion (above) and deletion curves of the long runs, by data set.

    Lines are means over splits and seeds of the curves that `arms.judge` keeps, on
    images of a cluster's own clients.
    """
    sets = list(arms_.groupby("data", sort=False))
    fig, axes = _figure(2, len(sets), 9.2, 4.8, sharex=True, sharey=True)
    for column, (name, own) in zip(axes.T, sets, strict=True):
        for ax, kind in zip(column, ("insertion", "deletion"), strict=True):
            for row in rows:
                curves = own.loc[own["row"] == row, f"{kind}_curve"]
                middle = np.mean([*curves], axis=0)
                at = np.linspace(0, 1, len(middle))
                ax.plot(at, middle, color=METHOD_COLOURS[row], label=row)
        column[0].set_title(name)
        column[1].set_xlabel("share of pixels changed")
    axes[0, 0].set_ylabel("insertion:\nprobability of the class")
    axes[1, 0].set_ylabel("deletion:\nprobability of the class")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, ncols=len(rows), loc="outside upper center")
    return fig


def mean_curves(fed: Judge, state: arms.State) -> Figure:
    """Insertion and deletion curves of each arm, one row of pixels a step.

    They are means over the clusters of the means over all test images of a cluster's
    clients. Above are probabilities; below each image's curve is
    divided by its own largest value first. Legends have the areas.
    """
    fig, axes = _figure(2, 2, 9.2, 5, sharex=True)
    for column, kind in zip(axes.T, ("insertion", "deletion"), strict=True):
        for arm, name in zip(state.arms, state.names, strict=True):
            found = [_cluster_curves(fed, arm, c, kind) for c in arm.labels.unique()]
            for ax, parts in zip(column, zip(*found, strict=True), strict=True):
                middle = torch.stack(parts).mean(0)
                words = f"{name}: {float(explain.area(middle)):.2f}"
                at = np.linspace(0, 1, len(middle))
                ax.plot(at, middle, color=METHOD_COLOURS[name], label=words)
        better = "large is better" if kind == "insertion" else "small is better"
        column[0].set_title(f"{kind} ({better})")
        column[1].set_xlabel("share of pixels changed")
        for ax in column:
            ax.set_ylim(0, 1.02)
            ax.legend(title="area", loc="upper left", bbox_to_anchor=(1, 1))
    axes[0, 0].set_ylabel("probability of\nthe true class")
    axes[1, 0].set_ylabel("the same, divided by\nthe image’s largest")
    return fig


def _cluster_curves(fed: Judge, arm: Any, c: Tensor, kind: str) -> list[Tensor]:
    """The mean curve (T + 1,) of a cluster's model on images of its own clients; and
    that of the images' normalised curves.
    """
    x, y = fed.samples(fed.sample_numbers(arm.labels == c))
    module = fed.network(arm.theta[c])
    curves = explain.curve(module, x, y, explain.gradcam(module, x, y), kind)
    return [curves.mean(0), explain.normalised(curves).mean(0)]


def where_all_are_right(fed: Judge, state: arms.State) -> DataFrame:
    """Normalised areas of each arm, on all own images and on those that all get right.

    An image belongs to a client, and is explained by the model that serves it. Means
    are over images.
    """
    import pandas as pd

    areas: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    right_parts = []
    for k in range(len(fed.n)):
        own = torch.zeros(len(fed.n), dtype=torch.bool)
        own[k] = True
        x, y = fed.samples(fed.sample_numbers(own))
        right = torch.ones(len(y), dtype=torch.bool)
        for arm, name in zip(state.arms, state.names, strict=True):
            module = fed.network(arm.theta[arm.labels[k]])
            right &= module(x).argmax(1) == y
            maps = explain.gradcam(module, x, y)
            for kind in ("insertion", "deletion"):
                curves = explain.normalised(explain.curve(module, x, y, maps, kind))
                areas[name, kind].append(explain.area(curves))
        right_parts.append(right)
    everywhere = torch.cat(right_parts)
    lines = {}
    for name in state.names:
        line = {}
        for kind in ("insertion", "deletion"):
            found = torch.cat(areas[name, kind])
            line[f"{kind}, all images"] = float(found.mean())
            line[f"{kind}, all models right"] = float(found[everywhere].mean())
        lines[name] = line
    return pd.DataFrame(lines).T.rename_axis("model")


def explained(fed: Judge, state: arms.State, every: int = 3) -> dict[str, float]:
    """A measure for `fednb.run`: how well each arm's models explain, now and then.

    Insertion minus deletion area, normalised per image, as ``"arm|mode"``, on up to 40
    images a cluster of its own clients ("in") and of the server.
    """
    out: dict[str, float] = {}
    if (fed.t + 1) % every:
        return out
    for arm, name in zip(state.arms, state.names, strict=True):
        for mode in ("in", "server"):
            found = explain.insertion_deletion(fed, arm, mode, sample=40, detailed=True)
            gap = found["insertion_normalised"] - found["deletion_normalised"]
            out[f"{name}|{mode}"] = float(gap.mean())
    return out


def explained_over_rounds(courses: DataFrame) -> Figure:
    """Figures 6 and 7 over the rounds: `explained` on own and on the server's images.

    ``courses`` has the rounds and the columns that `explained` writes.
    """
    fig, axes = _figure(1, 2, 8, 3, sharey=True)
    titles = {"in": "on own images", "server": "on the server’s images"}
    for ax, (mode, title) in zip(axes, titles.items(), strict=True):
        for column in courses.columns:
            name, _, where = column.partition("|")
            if where == mode:
                course = courses[["round", column]].dropna()
                colour = METHOD_COLOURS[name]
                ax.plot(course["round"], course[column], "o-", color=colour, label=name)
        ax.set(title=title, xlabel="round")
    axes[0].set_ylabel("insertion − deletion,\nnormalised per image")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


# --- the archive beside our runs ---


def dots(ours: DataFrame, theirs: DataFrame, across: int = 3) -> Figure:
    """Table 1 as a picture: ARI by data set and row, the archive's as diamonds.

    If ``ours`` has a column ``scale``, each scale has its own dots.
    """
    from ...plots import dots as paper_and_ours

    sides = [frame.rename(columns={"ari": "ARI"}) for frame in (ours, theirs)]
    return paper_and_ours(
        *sides,
        rows="row",
        columns="data",
        value="ARI",
        ours_name="scale" if "scale" in ours else "ours",
        theirs="archive, end of run",
        across=across,
    )


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
