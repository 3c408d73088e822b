"""FedGWC's records, printed numbers and plays, as frames and pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import tables
from ...methods import FedGWC
from .. import common
from . import theory
from .tasks import SCALES, TABLES, rules

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

VALUE = "balanced_accuracy"
COUNTS = ("clusters", "client_updates")  # told as they are at the end, never averaged
NAMES = {"no clusters": "FedAvg", "Random members": "random members"}
ORDER = (
    "no clusters",
    "FedGWC",
    "FedGWC as released",
    "Random members",
    "LocalOnly",
    "CFL",
    "FeSEM",
    "IFCA",
)
SETTINGS = {  # of the watched runs
    "α = 0.5": "CIFAR-100",
    "(40, 30, 30)": "mix",
    "(100, 0, 0)": "homogeneous",
    "clean, noise, blur": "domains",
}
SPOKEN = {  # rules whose short name hides a second change
    "+ normalised rewards": "+ normalised rewards (MSE over updated entries)",
    "+ patience": "+ patience, and a fresh start after a vain look",
    "+ α = P / K": "+ α = share sampled, weighted means",
    "+ scored on the embedding": "+ scored on the embedding, QR",
}


def printed(table: str) -> DataFrame:
    """The paper's own numbers of a table, as shares where they are, with our tags."""
    return tables.printed(
        Path(__file__).with_name("printed.csv"), table, C="Int64", beta="str"
    )


def printed_cifar100(*numbers: str) -> DataFrame:
    """The same of one or more tables, CIFAR-100 only, every cell once."""
    import pandas as pd

    paper = pd.concat([printed(number) for number in numbers], ignore_index=True)
    paper = paper[paper["dataset"] == "cifar100"]
    tags = [tag for tag in ("row", "aggregator", "C", "beta") if tag in paper]
    return paper.drop_duplicates(tags)


# --- one picture of the method ---


def how_it_works() -> Figure:
    """From losses to clusters as boxes: what clients do, what the server does."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, INK, style

    style()
    fig = Canvas(figsize=(9.4, 2.9))
    ax = fig.add_subplot()
    ax.set(xlim=(0, 11), ylim=(0, 3))
    ax.axis("off")
    client, server = COLOURS[1], COLOURS[0]
    boxes = [
        (1.0, 0.55, "sampled clients\ntrain their\ncluster's model", client),
        (1.0, 2.3, "losses\nof their\nlocal steps", client),
        (3.3, 2.3, "reward ω:\nnear 1 for losses\nnear the mean", server),
        (5.6, 2.3, "matrix P:\nmean reward of k\nin j's company", server),
        (7.8, 2.3, "affinity W:\nlike rows of P\nare close", server),
        (10.0, 2.3, "split:\ncut W into 2 … n,\nif well apart", server),
        (10.0, 0.55, "each part gets\na copy of\nthe model", server),
        (5.6, 0.55, "average the models\nwithin each cluster", server),
    ]
    for x, y, words, colour in boxes:
        look = {"boxstyle": "round,pad=0.4", "fc": "white", "ec": colour, "lw": 1.6}
        ax.text(x, y, words, ha="center", va="center", fontsize=8.5, bbox=look)
    arrow = {"arrowstyle": "->", "color": INK, "lw": 1.2}
    ends = [
        ((1.0, 1.05), (1.0, 1.8)),
        ((1.7, 2.3), (2.3, 2.3)),
        ((4.25, 2.3), (4.6, 2.3)),
        ((6.6, 2.3), (6.95, 2.3)),
        ((8.6, 2.3), (9.05, 2.3)),
        ((10.0, 1.8), (10.0, 1.05)),
        ((9.05, 0.55), (6.9, 0.55)),
        ((4.3, 0.55), (2.1, 0.55)),
        ((2.1, 0.75), (4.3, 0.75)),
    ]
    for start, end in ends:
        ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
    ax.text(6.75, 1.65, "when P is at rest", ha="center", fontsize=8.5)
    ax.text(3.2, 0.95, "models, in every round", ha="center", fontsize=8.5)
    ax.text(3.2, 0.2, "one model back", ha="center", fontsize=8.5)
    return fig


# --- reading the records ---


def watched_rules() -> dict[str, FedGWC]:
    """The rules that watched one run of FedAvg, in the order of their records."""
    return rules(SCALES["laptop"])


def ingredients(frame: DataFrame, settings: dict[str, str]) -> DataFrame:
    """When each rule first looked, over all settings, and the clusters found in each.

    ``settings`` names the columns. Numbers are means over seeds; the mix of three
    groups also gets the adjusted Rand index. – is no attempt. ``changes`` names the
    fields in which a rule differs from the one it is to be compared with: see
    `compared_with`.
    """
    import pandas as pd

    lines = {}
    for r, (name, rule) in enumerate(watched_rules().items()):
        if f"first_{r}" not in frame:  # a rule that the old records do not have yet
            continue
        made = frame[frame[f"first_{r}"] > 0]
        line = {"first attempt": "–"}
        if len(made):
            line["first attempt"] = f"{made[f'first_{r}'].mean():.0f}"
        for setting, head in settings.items():
            own = frame[frame["setting"] == setting]
            line[head] = f"{own[f'clusters_{r}'].mean():.1f}" if len(made) else "–"
            if setting == "(40, 30, 30)":
                line[f"{head}, ARI"] = (
                    f"{own[f'ari_{r}'].mean():.2f}" if len(made) else "–"
                )
        line["changes"] = ", ".join(changed_fields(rule, compared_with(name)))
        lines[SPOKEN.get(name, name)] = line
    return pd.DataFrame(lines).T


def compared_with(name: str) -> FedGWC:
    """The rule that another one is to be compared with.

    A rule with + and "as released" go on from the line above, the first one from "as
    printed"; all others vary "as printed" or "corrected".
    """
    known = watched_rules()
    names = list(known)
    above = names[names.index(name) - 1]
    if name == "+ normalised rewards":
        above = "as printed"
    elif name.startswith(("as printed", "as released,")):
        above = name.split(",")[0]
    elif name.startswith("corrected"):
        above = "corrected"
    return known[above]


def changed_fields(rule: FedGWC, base: FedGWC) -> list[str]:
    """Names of the fields in which two rules differ.

    ``priority`` is left out: a watched run samples uniformly for all rules.
    """
    names = [field.name for field in fields(FedGWC) if field.name != "priority"]
    return [name for name in names if getattr(rule, name) != getattr(base, name)]


def rule_group(name: str) -> str:
    """The part of the ingredient table that a rule belongs to."""
    if name.startswith("as printed"):
        group = "as printed"
    elif name.startswith(("+", "as released")):
        group = "step by step to the released code"
    elif "β" in name:
        group = "corrected, another β"
    else:
        group = "corrected, something changed"
    return group


def ingredient_map(table: DataFrame) -> Figure:
    """The ingredient table as a heat map in groups: the darker, the more clusters."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    groups: dict[str, list[str]] = {}
    for name in table.index:
        groups.setdefault(rule_group(name), []).append(name)
    heads = [head for head in table.columns if head != "changes"]
    heights = [len(names) for names in groups.values()]
    fig = Canvas(figsize=(9.4, 0.27 * sum(heights) + 0.5 * len(groups) + 0.6))
    axes = fig.subplots(
        len(groups), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for ax, (group, names) in zip(axes, groups.items(), strict=True):
        _annotated(ax, table.loc[names, heads], plain=("first attempt", "mix, ARI"))
        ax.set_title(group, loc="left")
        ax.tick_params(labelbottom=ax is axes[-1])
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


def at_updates(course, budget: float, metric: str, last: int = 3) -> float:
    """The mean of a run's last evaluations within ``budget`` client updates."""
    within = course[metric][course["client_updates"] <= budget]
    return float(within.iloc[-last:].mean())


def jump(course, plain, metric: str) -> float:
    """What a run gains at its first split, less what ``plain`` gains then.

    From the last evaluation before the split to the second one after it; nan if it
    splits too late for that, or never.
    """
    split = np.flatnonzero(course["clusters"] > 1)
    if not len(split) or not 0 < split[0] < len(course) - 1:
        return float("nan")
    ends = [split[0] - 1, split[0] + 1]
    own, other = (np.asarray(frame[metric])[ends] for frame in (course, plain))
    return float(np.diff(own)[0] - np.diff(other)[0])


def in_step(
    frame, records: dict[str, dict[str, Any]], last: int = 3, table: str = "cifar100"
):
    """The frame of a table, cut where FedGWC's runs end.

    Each metric is the mean of the last evaluations within FedGWC's rounds; clusters
    and client updates are those of the last one. FedAvg goes on for half as long again,
    to be compared at equal client updates; here it is cut where the others end.
    """
    frame = frame.copy()
    tasks = TABLES[table]("laptop")
    rounds = next(task.rounds for task in tasks if task.tags["row"] == "FedGWC")
    for i, task in enumerate(tasks):
        curves = records[task.key]["metrics"]["curves"]
        inside = np.flatnonzero(np.array(curves["round"]) <= rounds)[-last:]
        for metric in {*curves} & {*frame.columns} - {*COUNTS}:
            frame.loc[i, metric] = np.mean([curves[metric][j] for j in inside])
        for count in {*curves} & {*frame.columns} & {*COUNTS}:
            frame.loc[i, count] = curves[count][inside[-1]]
    return frame


def stored(table: str, last: int = 1):
    """One line per run of a table."""
    return common.read("fedgwc", table, TABLES[table]("laptop"), last=last)


def stored_in_step(table: str):
    """The same, with each metric taken within FedGWC's rounds: see `in_step`."""
    records = tables.by_key(common.results("fedgwc") / f"{table}.json")
    return in_step(stored(table), records, table=table)


def courses(table: str = "longer") -> dict:
    """The curves of a table's runs: for each row a list, one frame per seed."""
    path = common.results("fedgwc") / f"{table}.json"
    return tables.curves(TABLES[table]("laptop"), path)


def single_models() -> DataFrame:
    """Table 1's rows: no clusters, clusters of models, and controls, in our order."""
    runs = stored_in_step("cifar100")
    runs = runs[runs["aggregator"].isin(["FedAvg", "none"]) | runs["C"].eq(1)]
    return runs.sort_values(
        "row", key=lambda rows: rows.map(ORDER.index), kind="stable"
    )


def aggregators() -> DataFrame:
    """Table 9's rows: six aggregators, without and with FedGWC."""
    runs = stored_in_step("cifar100")
    return runs[runs["row"].isin(["no clusters", "FedGWC"])]


def betas() -> DataFrame:
    """Table 5's rows: FedGWC with five values of β."""
    import pandas as pd

    half = aggregators().query("row == 'FedGWC' and aggregator == 'FedAvg'")
    runs = pd.concat([stored_in_step("beta"), half.assign(beta="0.5")])
    return runs.sort_values("beta", kind="stable")


def levels() -> DataFrame:
    """Tables 3 and 6: where levels of heterogeneity are mixed."""
    runs = stored("heterogeneity")
    return runs[runs["setting"] != "(100, 0, 0)"]


def domains() -> DataFrame:
    """Tables 4 and 7: clean, noisy and blurred images."""
    runs = stored("domains")
    return runs.assign(dataset=runs["base"])


def printed_of(*numbers: str) -> DataFrame:
    """The paper's numbers of several tables, one below the other."""
    import pandas as pd

    return pd.concat([printed(number) for number in numbers], ignore_index=True)


def with_cost(
    runs: DataFrame,
    paper: DataFrame,
    rows: Sequence[str],
    value: str = VALUE,
    percent: bool = True,
) -> DataFrame:
    """The paper's number, ours, and what ours cost; a block of columns per data set.

    Ours are means over seeds. Client updates and clusters are those at the end. A dash
    is a number that does not exist.
    """
    import pandas as pd

    by = [*rows, "dataset"]
    digits = "{:.1f}" if percent else "{:.2f}"
    scale = 100 if percent else 1
    columns = {
        "paper": (paper.groupby(by)[value].mean() * scale, digits),
        "ours": (runs.groupby(by)[value].mean() * scale, digits),
        "client updates": (runs.groupby(by)["client_updates"].mean(), "{:,.0f}"),
        "clusters at the end": (runs.groupby(by)["clusters"].mean(), "{:.1f}"),
    }
    lines: dict[tuple, dict[tuple[str, str], str]] = {}
    for key in dict.fromkeys(runs[by].itertuples(index=False, name=None)):
        *names, dataset = key
        line = lines.setdefault(tuple(names), {})
        for head, (numbers, form) in columns.items():
            number = numbers.to_dict().get(key, np.nan)
            line[dataset, head] = "–" if np.isnan(number) else form.format(number)
    table = pd.DataFrame(list(lines.values()))
    table.index = pd.MultiIndex.from_tuples(list(lines), names=rows)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table.fillna("–")


def found_groups() -> DataFrame:
    """Levels and domains: the adjusted Rand index, and accuracy of three arms."""
    import pandas as pd

    mixed = levels()
    three = mixed[mixed["setting"] == "(40, 30, 30)"]
    balanced = 100 * three.groupby(["row", "dataset"])[VALUE].mean().unstack()
    means = {
        "ARI, levels": mixed.groupby("row")["ari"].mean(),
        "ARI, domains": domains().groupby("row")["ari"].mean(),
    }
    for dataset, own in balanced.items():
        means[f"balanced, three levels, {dataset} (%)"] = own
    rows = ["FedGWC", "Random members", "Oracle", "FeSEM", "IFCA"]
    table = pd.DataFrame(means).loc[rows].map("{:z.2f}".format).replace("nan", "–")
    updates = three.groupby("row")["client_updates"].mean()
    table["client updates, three levels"] = updates.round().astype(int)
    return table


def long_runs() -> DataFrame:
    """How the long runs end, and FedAvg within as many client updates as FedGWC.

    The last column is FedGWC's lead in balanced accuracy, in points, seeds paired.
    """
    scores = {
        VALUE: "balanced",
        "balanced_released": "“balanced” as released",
        "accuracy": "plain",
    }
    shown = [*scores, *COUNTS]
    runs = stored_in_step("longer")
    table = runs.groupby("row", sort=False)[shown].mean()
    leads = {
        row: tables.paired(runs, "row", "FedGWC", row, VALUE, ["seed"]).short
        for row in table.index
        if row != "FedGWC"
    }
    table.loc["FedAvg, at most as many updates"] = _fedavg_at_equal_updates(shown)
    table[[*scores]] = table[[*scores]].mul(100).round(1)
    table["clusters"] = table["clusters"].round(1)
    table["client_updates"] = table["client_updates"].round().astype(int)
    table["FedGWC ahead by"] = table.index.map(leads).fillna("")
    heads = scores | {
        "clusters": "clusters at the end",
        "client_updates": "client updates",
    }
    return table.rename(index=NAMES, columns=heads)


def _fedavg_at_equal_updates(columns: Sequence[str]) -> dict[str, float]:
    runs = courses()
    ends: dict[str, list[float]] = {name: [] for name in columns}
    for own, plain in zip(runs["FedGWC"], runs["no clusters"], strict=True):
        budget = own["client_updates"].iloc[-1]
        for name in columns:
            last = 1 if name in COUNTS else 3
            ends[name].append(at_updates(plain, budget, name, last))
    return {name: float(np.mean(values)) for name, values in ends.items()}


def final_sizes(row: str) -> list[list[int]]:
    """The sizes of a row's clusters at the end of the long runs, a list per seed."""
    labels = [np.asarray(run["labels"].iloc[-1]) for run in courses()[row]]
    return [np.bincount(own).tolist() for own in labels]


def first_splits() -> list[float]:
    """The first evaluation of each long run with more than one cluster, by seed."""
    runs = courses()["FedGWC"]
    return [run["round"][run["clusters"] > 1].min() for run in runs]


def long_curves() -> Figure:
    """Figure 2: balanced accuracy of the long runs, over rounds and client updates."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import curves, style

    style()
    fig = Canvas(figsize=(9.8, 3.5))
    axes = fig.subplots(1, 2, sharey=True)
    runs = courses()
    rows = ["no clusters", "FedGWC", "Random members", "FeSEM", "IFCA", "LocalOnly"]
    wanted = [VALUE, "round", "client_updates"]
    means = {
        NAMES.get(row, row): sum(run[wanted] for run in runs[row]) / len(runs[row])
        for row in rows
    }
    for ax, unit in zip(axes, ("round", "client_updates"), strict=True):
        curves(means, VALUE, x=unit, ax=ax)
    axes[0].get_legend().remove()
    for first in first_splits():
        axes[0].axvline(first, color="0.7", linestyle=":", zorder=0)
    return fig


def watched_runs() -> dict[str, dict[str, Any]]:
    """What the rules saw in the watched runs of the first seed, by setting."""
    records = tables.by_key(common.results("fedgwc") / "rules.json")
    tasks = [task for task in TABLES["rules"]("laptop") if task.seed == 0]
    return {
        task.tags["setting"]: records[task.key]["metrics"]["final"] for task in tasks
    }


def matrices_at_first_look(*settings: str) -> Figure:
    """Figures 5 to 8: P, W and the plane of W's eigenvectors, a line per setting.

    They are those of the corrected rule's first look, in the stored runs of seed 0.
    """
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    fig = Canvas(figsize=(10.4, 3.1 * len(settings)))
    axes = fig.subplots(len(settings), 3, squeeze=False)
    runs = watched_runs()
    for line, setting in zip(axes, settings, strict=True):
        final = runs[setting]
        classes = (np.array(final["counts"]) > 0).sum(1)
        found = np.array(final["found"][0])
        draw_look(line, torch.tensor(final["P"]), 0.5, found, classes)
        line[0].set_ylabel(setting)
    return fig


def draw_look(axes: Any, P: Any, beta: float, found: Any, names: Any) -> None:
    """Draw P, its affinity W and the clients in the plane into three axes."""
    from ...plots import matrix, spokes

    W, plane = theory.pictured(P, beta)
    matrix(P, found, name="P", ax=axes[0])
    matrix(W, found, name="W", ax=axes[1])
    spokes(plane, found, names=names, ax=axes[2])
    for ax in axes:
        ax.set(xticks=[], yticks=[], xlabel="", ylabel="")


def evolution() -> Figure:
    """Figures 3 and 7: who is in which cluster, and each cluster's sorted shares."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    from ...clustering import steady_names
    from ...plots import style

    style()
    course = courses()["FedGWC"][0]
    labels = steady_names([*course["labels"]])  # (evaluations, clients)
    last = labels[-1]
    counts = np.array(watched_runs()["α = 0.5"]["counts"])  # (clients, classes)
    shares = counts / counts.sum(1, keepdims=True)
    sorted_shares = np.sort(shares)[:, ::-1]
    fig = Canvas(figsize=(10, 3))
    left, right = fig.subplots(1, 2)
    colours = mpl.colormaps["tab10"]
    order = last.argsort(kind="stable")
    step = course["round"].iloc[1] - course["round"].iloc[0]
    ends = (course["round"].iloc[0] - step / 2, course["round"].iloc[-1] + step / 2)
    image = labels[:, order].T
    box = (*ends, len(last), 0)
    left.imshow(
        image,
        aspect="auto",
        cmap=colours,
        vmin=0,
        vmax=9,
        extent=box,
        interpolation="nearest",
    )
    left.set(xlabel="round", ylabel="clients, by last cluster")
    left.set_title("who is in which cluster")
    for c in range(int(last.max()) + 1):
        mean = sorted_shares[last == c].mean(0)[:10]
        name = f"{int((last == c).sum())} clients"
        right.plot(range(1, 11), mean, "o-", color=colours(c % 10), label=name)
    right.set(xlabel="a client's classes, largest first", ylabel="share")
    right.set_title("sorted class shares")
    right.legend(fontsize=8)
    return fig


# --- plays ---


def null_splits(way: str = "one look") -> DataFrame:
    """The record of equal clients that were split, one line per size and version.

    ``way`` is "one look" or "whole run"; ``share`` is the share of plays that split.
    """
    import pandas as pd

    path = common.results("fedgwc") / "null_splits.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    plays = pd.DataFrame(record["plays"])
    plays = plays[plays["way"] == way]
    return plays.assign(share=plays["splits"] / plays["runs"])


def null_map() -> Figure:
    """How often each version splits equal clients, by their number: two heat maps."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    fig = Canvas(figsize=(10, 2.5))
    axes = fig.subplots(1, 2, sharey=True)
    for ax, way in zip(axes, ("one look", "whole run"), strict=True):
        plays = null_splits(way)
        order = list(theory.versions())
        share = plays.pivot(index="version", columns="clients", values="share")
        share = 100 * share.loc[order]
        ax.imshow(share, cmap="Oranges", vmin=0, vmax=100, aspect="auto")
        for (i, j), number in np.ndenumerate(share.to_numpy()):
            ink = "white" if number > 60 else "black"
            words = f"{number:.0f}"
            ax.text(j, i, words, ha="center", va="center", fontsize=9, color=ink)
        ax.set_xticks(range(len(share.columns)), share.columns)
        ax.set_yticks(range(len(order)), order)
        ax.set(xlabel="clients, all alike")
        rounds = plays["rounds"].iloc[0]
        ax.set_title(
            f"{way}, {rounds} rounds: % of {plays['runs'].iloc[0]} plays split"
        )
        ax.grid(visible=False)
        ax.tick_params(length=0)
    return fig


def presets() -> DataFrame:
    """The fields in which the rule as printed, as released and corrected differ."""
    import pandas as pd

    versions = {
        "as printed": FedGWC.as_printed(),
        "as released": FedGWC.as_released(),
        "corrected": FedGWC(),
    }
    values = {name: vars(rule) for name, rule in versions.items()}
    table = pd.DataFrame(values).drop("aggregator").map(str)
    return table[table.nunique(axis=1) > 1]


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
    were sampled.
    """
    import pandas as pd

    lines = {}
    for fill, name in ((False, "zero"), (True, "mean of the row")):
        rule = FedGWC(sampled=6, eps=2e-4, fill=fill)
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
    """Seconds of the server's work by number of clients, and the power of growth."""
    import pandas as pd

    repeats = {100: 5, 300: 3, 1000: 2, 3000: 1}
    seconds = {K: theory.server_seconds(K, repeat=n) for K, n in repeats.items()}
    times = pd.DataFrame(seconds).T
    growth = np.log(times.loc[3000] / times.loc[1000]) / np.log(3)
    shown = times.rename_axis("clients").map("{:.4f} s".format)
    shown.loc["exponent"] = growth.map("{:.1f}".format)
    return shown


def draw_losses(fed: Any, losses: Any, usual: int) -> Figure:
    """Who holds which classes, and the losses of all clients; the first are usual."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import class_map, style

    style()
    fig = Canvas(figsize=(9.2, 3.2))
    left, right = fig.subplots(1, 2)
    class_map(fed.truth.counts, fed.truth.labels, ax=left)
    steps = range(1, losses.shape[1] + 1)
    right.plot(steps, losses[:usual].T, color="C0", linewidth=1)
    right.plot(steps, losses[usual:].T, color="C1", linewidth=1.5)
    right.set(xlabel="local step", ylabel="loss")
    right.set_title("all digits (blue), one digit (orange)")
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
    ax.set(xlabel="mean loss of the client", ylabel="reward ω")
    ax.legend()
    return fig


def draw_found(P: Any, beta: float, found: Any, names: Any) -> Figure:
    """What a rule sees and finds at one look: P, W, the clients in the plane."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import style

    style()
    fig = Canvas(figsize=(10.4, 3))
    draw_look(fig.subplots(1, 3), P, beta, found, names)
    return fig
