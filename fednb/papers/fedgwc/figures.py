"""FedGWC's chapter in pictures, and the small live runs that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import metrics
from ...door import Fed
from ...methods import FedGWC
from . import outcomes, theory
from .tasks import lookers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


# settings of `outcomes.LOOKED`, where a name alone would leave something out
LOOKED_SPOKEN = {
    "noise anew, σ = 1": "half clean, half with noise, σ = 1, drawn anew",
    "noise anew, σ = 3": "half clean, half with noise, σ = 3, drawn anew",
    "noise, σ = 1": "half clean, half with noise, σ = 1, drawn once",
    "noise, σ = 3": "half clean, half with noise, σ = 3, drawn once",
    "blur, 6 pixels": "half clean, half blurred by 6 pixels",
    "levels": "three levels: 16 clients with all classes, 12 with few, 12 with one",
    "equal clients": "equal clients: no split is right",
}


# --- one picture of the method ---


def how_it_works() -> Figure:
    """From losses to clusters as boxes: what clients do, what the server does."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, INK, style

    style()
    fig = Canvas(figsize=(5.8, 5.4))  # narrow: it is read on telephones, too
    ax = fig.add_subplot()
    ax.set(xlim=(0, 5.8), ylim=(0, 5.6))
    ax.axis("off")
    client = COLOURS[1]
    server = COLOURS[0]
    boxes = [
        (1.3, 5.0, "sampled clients train\ntheir cluster's model", client),
        (1.3, 2.8, "average the models\nwithin each cluster", server),
        (1.3, 0.6, "each part gets\na copy of the model", server),
        (4.5, 5.0, "losses of their\nlocal steps", client),
        (4.5, 3.9, "reward ω: near 1 for\nlosses near the mean", server),
        (4.5, 2.8, "matrix P: mean reward\nof k in j's company", server),
        (4.5, 1.7, "affinity W: like rows\nof P are close", server),
        (4.5, 0.6, "split: cut W into\n2 … n_max, if well apart", server),
    ]
    for x, y, words, colour in boxes:
        look = {"boxstyle": "round,pad=0.4", "fc": "white", "ec": colour, "lw": 1.6}
        ax.text(x, y, words, ha="center", va="center", fontsize=9.5, bbox=look)
    arrow = {"arrowstyle": "->", "color": INK, "lw": 1.2}
    ends = [
        ((2.4, 5.0), (3.6, 5.0)),
        ((4.5, 4.65), (4.5, 4.25)),
        ((4.5, 3.55), (4.5, 3.15)),
        ((4.5, 2.45), (4.5, 2.05)),
        ((4.5, 1.35), (4.5, 0.95)),
        ((3.35, 0.6), (2.45, 0.6)),
        ((1.3, 0.95), (1.3, 2.45)),
        ((1.0, 4.65), (1.0, 3.15)),
        ((1.6, 3.15), (1.6, 4.65)),
    ]
    for start, end in ends:
        ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
    ax.text(4.65, 2.25, "when P is at rest", va="center", fontsize=9)
    ax.text(0.9, 3.9, "models", ha="right", va="center", fontsize=9)
    ax.text(1.7, 3.9, "one model back", va="center", fontsize=9)
    return fig


# --- pictures of records ---


def ingredient_map(table: DataFrame) -> Figure:
    """The ingredient table as a heat map in groups: the darker, the more clusters.

    Lines of one group that say the same, one below the other, are drawn as one.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    known = outcomes.rule_groups()
    heads = [head for head in table.columns if head != "changes"]
    groups: dict[str, list[str]] = {}
    for name in table.index:
        groups.setdefault(known[name], []).append(name)
    parts = {
        name: outcomes.merged(table.loc[names, heads]) for name, names in groups.items()
    }
    heights = [len(part) for part in parts.values()]
    fig = Canvas(figsize=(9.4, 0.27 * sum(heights) + 0.5 * len(parts) + 0.9))
    axes = fig.subplots(
        len(parts), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for ax, (group, part) in zip(axes, parts.items(), strict=True):
        _annotated(ax, part, plain=("first look", "its ARI"))
        ax.set_title(group, loc="left")
        ax.tick_params(labelbottom=False, labeltop=ax is axes[0])
    return fig


def _annotated(ax: Axes, cells: DataFrame, plain: Sequence[str]) -> None:
    """Cells of numbers, coloured from 1 to 4 clusters; ``plain`` columns are not."""
    import pandas as pd

    numbers = cells.apply(pd.to_numeric, errors="coerce").astype(float)
    numbers[[head for head in plain if head in numbers]] = np.nan
    image = np.ma.masked_invalid(numbers.to_numpy())
    ax.imshow(image, cmap="Blues", vmin=1, vmax=5, aspect="auto")
    for (i, j), words in np.ndenumerate(cells.to_numpy()):
        dark = not np.ma.is_masked(image[i, j]) and image[i, j] > 3.4
        colour = "white" if dark else "black"
        ax.text(j, i, words, ha="center", va="center", fontsize=8, color=colour)
    ax.set_xticks(range(len(cells.columns)), cells.columns, fontsize=8.5)
    ax.set_yticks(range(len(cells)), cells.index, fontsize=8.5)
    ax.grid(visible=False)
    ax.tick_params(length=0)


def draw_looks(runs: DataFrame) -> Figure:
    """When each rule looks in vain (rings), when it splits (dots), and what it finds.

    Looks of one kind within twenty rounds are drawn as one. The legend names what there
    is to see. The words at the end of a line are about the first split: see
    `first_splits`.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, style

    style()
    settings = list(dict.fromkeys(runs["setting"]))
    names = list(dict.fromkeys(runs["rule"]))
    short = [name.replace("whole matrix, ", "") for name in names]
    height = 0.7 + 0.28 * len(names)
    fig = Canvas(figsize=(7.0, 0.4 + height * len(settings)))
    axes = fig.subplots(len(settings), 1, squeeze=False, sharex=True)[:, 0]
    for ax, setting in zip(axes, settings, strict=True):
        own = runs[runs["setting"] == setting]
        for line in own.itertuples():
            y = names.index(line.rule) + 0.22 * (line.seed - own["seed"].mean())
            vain = [t for t, clusters, _ in line.looks if clusters == 1]
            split = [t for t, clusters, _ in line.looks if clusters > 1]
            ring = {"mfc": "none", "mec": "0.5", "ms": 3.5, "ls": ""}
            dot = {"color": COLOURS[0], "ms": 3.5, "ls": ""}
            for at, look, name in (
                (vain, ring, "a look without a split"),
                (split, dot, "a split"),
            ):
                if at:
                    drawn = apart(at)
                    ax.plot(drawn, [y] * len(drawn), "o", label=name, **look)
        for rule, same in own.groupby("rule"):
            beside = ax.get_yaxis_transform()  # x in shares of the panel, y in lines
            place = (1.01, names.index(rule))
            words = first_splits(same)
            ax.text(*place, words, va="center", fontsize=8.5, transform=beside)
        ax.set_yticks(range(len(names)), short, fontsize=9)
        ax.set(ylim=(len(names) - 0.5, -0.5))
        ax.set_title(LOOKED_SPOKEN.get(setting, setting), loc="left")
    axes[-1].set(xlabel="round", xlim=(0, 1800))
    once: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        once |= dict(zip(labels, handles, strict=True))
    fig.legend([*once.values()], [*once], loc="outside lower center", ncols=2)
    return fig


def apart(rounds: Sequence[int], least: int = 20) -> list[int]:
    """Some of the rounds, in order, each at least so far from the one before."""
    kept = [rounds[0]]
    for t in rounds:
        if t - kept[-1] >= least:
            kept.append(t)
    return kept


def first_splits(runs: DataFrame) -> str:
    """How many runs of a rule split, and the mean Rand index of their first splits.

    A run without a split counts as one big cluster.
    """
    made = runs[runs["split"] > 0]
    if len(runs) == 1 and len(made) == 0:
        return "no split"
    if len(runs) == 1:
        first = next(look for look in runs["looks"].iloc[0] if look[1] > 1)
        words = f"{first[1]} clusters"
    else:
        words = f"{len(made)} of {len(runs)} split"
    if len(made) and made["rand"].notna().any():
        words += f", Rand {runs['rand'].mean():.2f}"
    return words


def quality_dots(score: str = "was") -> Figure:
    """WAS or WADB of Tables 3 and 6 as dots: a panel per mix, a line per method."""
    from ...plots import dots

    rows = ["FedGWC", outcomes.NO_TEST, outcomes.REPLAYED, "IFCA", "FeSEM", "Oracle"]
    ours = outcomes.shown_levels()
    ours = ours[ours["row"].isin(rows)]
    short = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}
    theirs = outcomes.printed_of("3", "6")
    theirs = theirs.replace({"row": {"FedGWC": outcomes.NO_TEST}})
    ours, theirs = (
        frame.assign(
            cell=frame["dataset"].map(short)
            + "\n"
            + frame["setting"].map(outcomes.LEVELS_SPOKEN)
        )
        for frame in (ours, theirs)
    )
    ours = outcomes.in_order(ours)
    ours, theirs = (frame.replace({"row": outcomes.NAMES}) for frame in (ours, theirs))
    fig = dots(ours, theirs, rows="row", columns="cell", value=score, across=3)
    better = "better →" if score == "was" else "← better"
    for ax in fig.axes:
        ax.set_xlabel(f"{score.upper()}   {better}")
        if score == "was":
            ax.set_xlim(-1.08, 1.08)
    fig.axes[0].set_ylim(len(rows) - 0.5, -0.5)  # all panels share it
    return fig


def long_curves() -> Figure:
    """Figure 2: balanced accuracy of the long runs over client updates."""
    runs = outcomes.courses() | outcomes.untested_courses()
    rows = (
        "no clusters",
        "FedGWC",
        outcomes.NO_TEST,
        outcomes.REPLAYED,
        "FeSEM",
        "IFCA",
        "LocalOnly",
    )
    return draw_courses({row: runs[row] for row in rows if row in runs})


def larger_curves(table: str) -> Figure | None:
    """The same for one of the larger tables, whole seeds only; None if it has none."""
    runs = outcomes.own_courses(table)
    if not runs:
        return None
    return draw_courses(runs)


def draw_courses(runs: Mapping[str, Sequence[DataFrame]]) -> Figure:
    """Balanced accuracy over client updates, a line for each row: its seeds' mean.

    A band is one standard deviation to each side. Rows in which nothing was split, and
    whose numbers are FedAvg's, share its line.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import curves, style

    style()
    plain = runs["no clusters"]
    lines = {}
    same = []  # names of rows that are FedAvg
    for row, seeds in runs.items():
        name = outcomes.NAMES.get(row, row)
        split = any((run["clusters"] > 1).any() for run in seeds)
        if not split and all(map(outcomes.agree, seeds, plain)):
            same.append(name)
        else:
            lines[name] = seeds
    fig = Canvas(figsize=(7.6, 3.5))
    curves(
        {" =\n".join(same): plain} | lines,
        outcomes.VALUE,
        x="client_updates",
        ax=fig.add_subplot(),
    )
    return fig


def matrices_at_first_look(*settings: str) -> Figure:
    """Figures 5 to 8: P, W and the plane of W's eigenvectors, a line per setting.

    They are those of the corrected rule's first look, in the stored runs of seed 0.
    Lines and colours are the hidden groups, or where there are none what was found.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    fig = Canvas(figsize=(10.4, 3.3 * len(settings)))
    axes = fig.subplots(len(settings), 3, squeeze=False)
    runs = outcomes.watched_runs()
    for line, setting in zip(axes, settings, strict=True):
        truth = outcomes.HIDDEN_SIZES[setting]
        final = runs[setting]
        classes = (np.array(final["counts"]) > 0).sum(1)
        labels = np.array(final["found"][0])
        clusters = int(labels.max()) + 1
        if truth is not None:
            labels = np.repeat(range(len(truth)), truth)
        draw_look(line, torch.tensor(final["P"]), 0.5, labels, classes)
        line[0].set_title(f"{outcomes.WATCHED_SPOKEN[setting]}: P")
        line[1].set_title("W")
        colour = "hidden group" if truth is not None else "cluster found"
        found = f"{clusters} cluster{'s' * (clusters > 1)} found"
        line[2].set_title(f"{found}\n(colour: {colour})")
    return fig


def mse_of_watched(setting: str = "α = 0.05") -> Figure:
    """Figure 4: the MSE that each version watches, recorded in training; first seed."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, style

    style()
    curves = outcomes.watched_curves(setting)
    names = list(outcomes.watched_rules())
    fig = Canvas(figsize=(7.4, 3.1))
    ax = fig.add_subplot()
    colours = {  # as in `mse_curves`
        "as printed, ε = 1e-5": COLOURS[0],
        "as released, ε = 1e-5": COLOURS[2],
        "corrected": COLOURS[3],
    }
    for name, colour in colours.items():
        mse = curves[f"mse_{names.index(name)}"]
        short = name.split(",")[0]
        ax.semilogy(curves["round"], mse, "o-", ms=3, color=colour, label=short)
    ax.axhline(1e-5, color="0.5", linestyle=":")
    ax.axhline(2e-3, color="0.5", linestyle="-.")  # dashed is the floor elsewhere
    ax.set(xlabel="round", ylabel="MSE")
    ax.set_title("CIFAR-10, α = 0.05. Dotted: the paper's ε; dash-dotted: ours")
    ax.legend()
    return fig


# --- the test against chance ---


def draw_chance(cases: dict[str, outcomes.Tested]) -> Figure:
    """Histograms of the draws' scores with the real one marked, a panel per case."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, style

    style()
    fig = Canvas(figsize=(4.4 * len(cases), 2.9))
    axes = fig.subplots(1, len(cases), squeeze=False, sharey=True)[0]
    for ax, (name, tested) in zip(axes, cases.items(), strict=True):
        scores = tested.drawn[np.isfinite(tested.drawn)]  # inf: no cut was allowed
        ax.hist(scores, bins=24, color="0.75", label="draws without groups")
        ax.axvline(tested.score, color=COLOURS[1], linewidth=2, label="the real P")
        ax.axvline(1, color="0.3", linestyle=":", label="the paper's bound")
        ax.set(xlabel="Davies–Bouldin score of the best cut   ← better")
        ax.set_title(f"{name}\n{tested.as_low} of {len(tested.drawn)} draws as low")
    axes[0].set(ylabel="draws")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3)
    return fig


# --- a run that is watched live ---


def draw_look(axes: Any, P: Any, beta: float, groups: Any, names: Any) -> None:
    """Draw P, its affinity W and the clients in the plane into three axes.

    Lines and colours tell ``groups`` (K,); ``names`` are written into the points.
    """
    from ...plots import matrix, spokes

    W, plane = theory.pictured(P, beta)
    matrix(P, groups, name="share of a round's rewards", ax=axes[0])
    matrix(W, groups, name="affinity", ax=axes[1])
    spokes(plane, groups, names=names, ax=axes[2])
    heads = ("P: reward of k beside j", "W: how alike rows are", "clients in the plane")
    for ax, head in zip(axes, heads, strict=True):
        for words in list(ax.texts):  # the names of the groups above a matrix
            if ax is not axes[2]:
                words.remove()
        ax.set(xticks=[], yticks=[], xlabel="client j", ylabel="client k")
        ax.set_title(head)
    axes[2].set(xlabel="1st eigenvector of W", ylabel="2nd eigenvector")


class Split(NamedTuple):
    """A cluster at the round in which it was split."""

    round: int
    members: Tensor  # (n,)
    block: Tensor  # (n, n) what the rule saw of P one round before
    labels: Tensor  # (n,) the parts


def run_and_watch(
    rule: FedGWC, fed: Fed, rounds: int
) -> tuple[np.ndarray, list[Split]]:
    """Train with FedGWC: each round's clusters (rounds, K), and all splits."""
    state = rule.init(fed)
    course = []
    splits = []
    for t in range(rounds):
        before = state
        state = rule.step(before, fed, t)
        course.append(state.clusters.numpy().copy())
        for c in range(int(before.clusters.max()) + 1):
            members = (before.clusters == c).nonzero()[:, 0]
            after = state.clusters[members]
            if after.unique().numel() > 1:
                block = rule.block(before.P, before.visits, members)
                labels = after.unique(return_inverse=True)[1]
                splits.append(Split(t + 1, members, block, labels))
    return np.array(course), splits


def split_tree(course: np.ndarray, names: np.ndarray) -> Figure:
    """Who is in which cluster over the rounds: each client a line, a split a fork.

    ``course`` (rounds, K) are clusters; ``names`` (K,) tell hidden kinds, by which
    lines are coloured. Lines of other clusters may move, to make room.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, style

    style()
    fig = Canvas(figsize=(8.4, 3.4))
    ax = fig.add_subplot()
    rounds, K = course.shape
    order = np.lexsort([names, *course[:: max(1, rounds // 50)]])
    place = np.empty((rounds, K))
    for t in range(rounds):
        gap = 2.5 * course[t][order]  # clusters keep their distance
        _, rank = np.unique(gap, return_inverse=True)
        place[t, order] = np.arange(K) + 2.5 * rank
    place -= place.mean(1, keepdims=True)
    kinds = list(dict.fromkeys(names.tolist()))
    for k in range(K):
        colour = COLOURS[kinds.index(names[k])]
        ax.plot(range(1, rounds + 1), place[:, k], color=colour, linewidth=1.2)
    for kind in kinds:
        ax.plot([], [], color=COLOURS[kinds.index(kind)], label=str(kind))
    for t in range(1, rounds):
        for c in np.unique(course[t - 1]):
            members = course[t - 1] == c
            if len(np.unique(course[t][members])) > 1:
                ax.plot(t, place[t - 1, members].mean(), "ko", ms=5)
    ax.plot([], [], "ko", ms=5, label="a cluster is split")
    ax.set(xlabel="round", yticks=[], ylabel="clients")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig


def draw_splits(splits: Sequence[Split], beta: float, names: np.ndarray) -> Figure:
    """Figure 3: the members of each cluster in the plane, when it was split.

    Colours tell the hidden kinds, ``names`` (K,), as in `split_tree`; shapes the parts.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, style

    style()
    shapes = ("o", "^", "s", "D", "v")
    kinds = list(dict.fromkeys(names.tolist()))
    fig = Canvas(figsize=(3.4 * len(splits), 3.3))
    axes = fig.subplots(1, len(splits), squeeze=False)[0]
    for ax, split in zip(axes, splits, strict=True):
        _, plane = theory.pictured(split.block, beta)
        own = names[split.members.numpy()]
        for part in split.labels.unique().tolist():
            for kind in dict.fromkeys(own.tolist()):
                inside = (split.labels.numpy() == part) & (own == kind)
                colour = COLOURS[kinds.index(kind)]
                look = {"color": colour, "marker": shapes[part % len(shapes)]}
                ax.scatter(*plane[inside].T, s=46, alpha=0.85, linewidths=0, **look)
        sizes = torch.bincount(split.labels).tolist()
        ax.set(xticks=[], yticks=[], xlabel="1st eigenvector of W")
        ax.set_title(f"round {split.round}: {len(split.members)} clients into {sizes}")
    axes[0].set(ylabel="2nd eigenvector")
    return fig


# --- plays ---


def played_looks() -> DataFrame:
    """The columns of `outcomes.looks`, of plays with drawn losses: three levels.

    40 clients with mean losses 0, 0.5 and 1.5, 5 sampled in a round, 1,800 rounds; each
    rule stops at its first split.
    """
    import pandas as pd

    sizes = outcomes.LEVEL_SIZES["levels"]
    level = np.repeat([0.0, 0.5, 1.5], sizes)
    lines = []
    for name, rule in lookers(5, epsilons=(6e-5,)).items():
        past = theory.play(rule, level, 5, 1800, again=True, seed=3)
        found = past.labels.numpy()
        rand = metrics.rand_index(level, found)
        last = [past.first, int(found.max()) + 1, round(rand, 3)]
        seen = [[t, 1, 0.0] for t in past.looks if t != past.first]
        if past.first:
            seen.append(last)
        line = {"setting": "levels, drawn losses", "seed": 3, "rule": name}
        lines.append(line | {"looks": seen, "split": past.first, "rand": rand})
    return pd.DataFrame(lines)


def null_map() -> Figure:
    """How often each version splits equal clients, by their number: heat maps."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    ways = [way for way in outcomes.NULL_WAYS if len(outcomes.null_splits(way))]
    fig = Canvas(figsize=(6.6, 2.3 * len(ways)))
    axes = fig.subplots(len(ways), 1, sharex=True)
    for ax, way in zip(axes, ways, strict=True):
        plays = outcomes.null_splits(way)
        order = list(theory.versions())
        share = plays.pivot(index="version", columns="clients", values="share")
        share = 100 * share.loc[order]
        ax.imshow(share, cmap="Oranges", vmin=0, vmax=100, aspect="auto")
        for (i, j), number in np.ndenumerate(share.to_numpy()):
            ink = "white" if number > 60 else "black"
            words = f"{number:.0f}"
            ax.text(j, i, words, ha="center", va="center", fontsize=9, color=ink)
        ax.set_xticks(range(len(share.columns)), share.columns)
        names = {"corrected before": "earlier, no test"}
        if way != "all sampled":
            names["as released"] = "as released, few sampled"
        ax.set_yticks(range(len(order)), [names.get(name, name) for name in order])
        rounds = plays["rounds"].iloc[0]
        runs = plays["runs"].iloc[0]
        words = f"{way}, {rounds} rounds: % of {runs} plays that are split"
        ax.set_title(words, loc="left")
        ax.grid(visible=False)
        ax.tick_params(length=0)
    axes[-1].set(xlabel="number of equal clients")
    return fig


def mse_curves(rounds: int = 1500) -> Figure:
    """The MSE that each version watches, for 100 equal clients, 10 sampled."""
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    versions = {
        "as printed, updated entries": FedGWC.as_printed(),
        "as printed, whole matrix": FedGWC.as_printed(whole_matrix=True),
        "as released": FedGWC.as_released(),
        "corrected": FedGWC(),
    }
    fig = Canvas(figsize=(7.4, 3.3))
    ax = fig.add_subplot()
    for name, rule in versions.items():
        past = theory.play(rule, np.zeros(100), 10, rounds, stop=False)
        when = f"round {past.first}" if past.first else "never"
        ax.semilogy(pd.Series(past.mse).rolling(10).median(), label=f"{name}: {when}")
    ax.axhline(1e-5, color="0.5", linestyle=":")
    ax.axhline(theory.mse_floor(10), color="0.5", linestyle="--")
    ax.set(xlabel="round", ylabel="MSE")
    ax.set_title("100 clients, 10 sampled. Dotted: ε; dashed: floor")
    ax.legend()
    return fig


def unseen_pairs(runs: int = 16) -> DataFrame:
    """Equal clients, with the zeros of unseen pairs and with their row's mean.

    How many plays are split, and how often the members of the small and the large part
    were sampled. The middle line gives priority to clients that were sampled seldom.
    """
    import pandas as pd

    versions: dict[str, dict[str, Any]] = {
        "zero": {"fill": False},
        "zero, seldom sampled first": {"fill": False, "priority": True},
        "mean of the row": {"fill": True},
    }
    lines = {}
    for name, changes in versions.items():
        rule = FedGWC(sampled=6, eps=2e-4, **changes)
        visits: dict[bool, list[float]] = {True: [], False: []}
        for seed in range(runs):
            past = theory.play(rule, np.zeros(40), 6, 400, seed=seed)
            if not past.labels.any():
                continue
            small = past.labels == torch.bincount(past.labels).argmin()
            often = past.visits.diagonal()
            for inside in (True, False):
                visits[inside].append(float(often[small == inside].mean()))
        means = {
            inside: f"{np.mean(own):.1f}" if own else "–"
            for inside, own in visits.items()
        }
        lines[name] = {
            f"splits (of {runs})": len(visits[True]),
            "rounds sampled, large part": means[False],
            "rounds sampled, small part": means[True],
        }
    return pd.DataFrame(lines).T.rename_axis("unseen pairs")


def luck(runs: int = 12) -> DataFrame:
    """How many federations of 30 clients, equal in law, are split, by their samples.

    A batch of 16 has a noise of 0.3, so the mean loss of n samples scatters by
    0.3 · √(16 / n).
    """
    import pandas as pd

    rule = FedGWC(sampled=6, eps=2e-4)
    counts = {}
    for n in (30, 120, 500, 2000):
        splits = 0
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            level = rng.normal(0, 0.3 * np.sqrt(16 / n), 30)
            past = theory.play(rule, level, 6, 400, seed=seed)
            splits += int(past.labels.any())
        counts[f"{n:,} samples"] = f"{splits} of {runs} split"
    return pd.Series(counts, name="equal in law").to_frame().T


def server_times() -> DataFrame:
    """Seconds of a look by number of clients, and the power with which they grow."""
    import pandas as pd

    repeats = {100: 5, 300: 3, 1000: 2, 3000: 1}
    seconds = {K: theory.server_seconds(K, repeat=n) for K, n in repeats.items()}
    times = pd.DataFrame(seconds).T.drop(columns="update of P")  # mostly our copy of P
    growth = np.log(times.loc[3000] / times.loc[1000]) / np.log(3)
    shown = times.rename_axis("clients").map("{:.4f} s".format)
    shown.loc["exponent"] = growth.map("{:.1f}".format)
    return shown


def draw_losses(fed: Any, losses: Any, usual: int) -> Figure:
    """Who holds which classes, and all clients' losses with m ± σ, as in Figure 1.

    The first ``usual`` clients are those with all classes.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import class_map, style

    style()
    fig = Canvas(figsize=(9.2, 3.2))
    left, right = fig.subplots(1, 2)
    class_map(fed.truth.counts, fed.truth.labels, ax=left)
    for words, name in zip(left.texts, ("all digits", "one digit"), strict=True):
        words.set_text(name)
    left.set(ylabel="digit")
    steps = range(1, losses.shape[1] + 1)
    mean = losses.mean(0)
    spread = losses.std(0)
    right.fill_between(steps, mean - spread, mean + spread, color="0.85")
    right.plot(steps, mean, "--", color="0.3")
    right.plot(steps, losses[:usual].T, color="C0", linewidth=1)
    right.plot(steps, losses[usual:].T, color="C1", linewidth=1.5)
    ends = {"color": "0.3", "va": "center", "fontsize": 9}
    for name, own in (("all digits", losses[:usual]), ("one digit", losses[usual:])):
        at = float(own[:, -1].median())
        right.text(len(steps) + 0.15, at, name, **ends)
    right.set(xlabel="local step", ylabel="loss", xlim=(1, len(steps) + 1.6))
    right.set_title("dashed: mean m; grey: m ± σ")
    return fig


def draw_rewards(losses: Any, omega: Any, usual: int) -> Figure:
    """Each client's mean loss and its reward; the first are usual."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    fig = Canvas(figsize=(5.6, 3))
    ax = fig.add_subplot()
    mean = losses.mean(1)
    ax.scatter(mean[:usual], omega[:usual], label="all digits")
    ax.scatter(mean[usual:], omega[usual:], label="one digit", marker="s")
    ax.axvline(mean.mean(), color="0.4", linestyle="--", label="mean of all")
    ax.set(xlabel="mean loss of the client", ylabel="reward ω", ylim=(0, 1.05))
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def draw_found(P: Any, beta: float, found: Any, names: Any) -> Figure:
    """What a rule sees and finds at one look: P, W, the clients in the plane."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    fig = Canvas(figsize=(10.4, 3.3))
    draw_look(fig.subplots(1, 3), P, beta, found, names)
    return fig
