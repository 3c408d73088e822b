"""GCFL's records and printed numbers as frames."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ... import metrics, tables
from .. import common
from . import theory
from .tasks import CATEGORY, SETTINGS, TABLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

CELL = ["dataset", "setting"]
PAIRS = [*CELL, "seed"]  # what two rows must have in common to be compared
UNLIKE = [name for name in SETTINGS if name != "IID"]
RIVALS = [name for name in CATEGORY if name != "GCFL"]  # of the paper
IN_TRAINING = ("FedEM", "FedSoft", "MTCFL", "IFCA")  # Table 4's, and Figure 2's
AS_SMALL = {
    5: "20 clients, 20 rounds of 5 steps",
    25: "20 clients, 12 rounds of 25 steps",
}


def printed(table: str) -> DataFrame:
    """The paper's numbers of Table "2", "3", "4" or "5", accuracies as shares."""
    return tables.printed(Path(__file__).with_name("printed.csv"), table)


def recorded(name: str) -> DataFrame:
    """One line per run of a table, with its course.

    ``clusters`` and ``ari`` are means over the rounds after the first quarter, ``late``
    is the mean accuracy over the second half of the rounds.
    """
    runs = common.read("gcfl", name, TABLES[name]("laptop"), course=True)
    courses = list(runs["course"])
    for column in ("clusters", "ari"):
        runs[column] = [c[column][len(c) // 4 :].mean() for c in courses]
    runs["late"] = [c["accuracy"][len(c) // 2 :].mean() for c in courses]
    return runs


def both_datasets() -> DataFrame:
    """Table 2 as we ran it: 5 steps a round, all rows."""
    return _joined("table2_cifar10", "table2_mnist")


def larger() -> DataFrame:
    """Table 3: a quarter of 32 clients a round, and a tenth of 60."""
    return _joined("table3_medium", "table3_large")


def small_scale(steps: int) -> DataFrame:
    """The rows of Tables 2 and 5 with 5 or with 25 steps between two clusterings.

    The ablations with 25 steps have six seeds, the other rows three; GCFL is in both.
    """
    if steps == 5:
        runs = _joined("table2_cifar10", "table2_mnist", "table5")
    elif steps == 25:
        runs = recorded("local_work")
    else:
        raise ValueError(f"steps={steps}: there are runs with 5 and with 25")
    return runs


def parts(steps: int) -> DataFrame:
    """GCFL and what it is without each part, where clients differ."""
    if steps == 25:
        return recorded("local_parts")
    runs = small_scale(steps)
    ablations = printed("5")["row"].unique()
    return runs[runs["row"].isin(ablations) & runs["setting"].isin(UNLIKE)]


def timed() -> DataFrame:
    """Table 4 and Figure 2: GCFL that clusters from the start, beside its rivals.

    ``t95`` and ``auc50`` as the paper defines them (with ten rounds instead of fifty),
    ``fall`` the mean fall of accuracy from one round to the next.
    """
    import pandas as pd

    runs = both_datasets()
    at_once = recorded("table5").query("row == 'No δ_init'").assign(row="GCFL")
    as_usual = (runs["row"] == "GCFL") & (runs["setting"] != "IID")
    runs = pd.concat([runs[~as_usual], at_once], ignore_index=True)
    measures = {
        "t95": metrics.rounds_to,
        "auc50": partial(metrics.auc, rounds=10),
        "fall": theory.fall,
    }
    for name, measure in measures.items():
        runs[name] = [measure(course["accuracy"]) for course in runs["course"]]
    return runs


def falls() -> DataFrame:
    """How many points each row loses from the small to the large scale, Non-IID.

    A line per row, columns (data set, paper or ours).
    """
    import pandas as pd

    sides = {
        "paper": pd.concat([printed("2"), printed("3")]),
        "ours": pd.concat([both_datasets(), larger()]),
    }
    out = {}
    for who, side in sides.items():
        side = side[side["setting"] == "Non-IID"]
        level = side.pivot_table("accuracy", ["dataset", "row"], "scale")
        for dataset in ("cifar10", "mnist"):
            out[dataset, who] = 100 * (level["small"] - level["large"])[dataset]
    table = pd.DataFrame(out).dropna(subset=[("cifar10", "ours")])
    return table.sort_values(("cifar10", "paper"))[["cifar10", "mnist"]]


def unlike(runs: DataFrame) -> DataFrame:
    """The runs in which clients differ."""
    return runs[runs["setting"].isin(UNLIKE)]


def leads(runs: DataFrame, value: str = "accuracy") -> DataFrame:
    """Each row's mean of a metric, its cost, and how far GCFL is ahead of it."""
    import pandas as pd

    rows = runs.groupby("row")
    pairs = {
        row: tables.paired(runs, "row", "GCFL", row, value, [*PAIRS, "scale"])
        for row in rows.groups
    }
    board = {
        "accuracy": rows["accuracy"].mean().mul(100).round(1),
        "balanced": rows["balanced_accuracy"].mean().mul(100).round(1),
        "macro-F1": rows["macro_f1"].mean().mul(100).round(1),
        "2nd half": rows["late"].mean().mul(100).round(1),
        "ends like": same_as(runs),
        "GCFL ahead by": {row: pair.short for row, pair in pairs.items()},
        "clusters": rows["clusters"].mean().round(1),
        "ARI": rows["ari"].mean().round(2),
        "client updates": rows["client_updates"].mean().round().astype(int),
        "MB": (rows["bytes"].mean() / 1e6).round().astype(int),
    }
    return (
        pd.DataFrame(board)
        .fillna({"ends like": ""})
        .sort_values("accuracy", ascending=False)
    )


def _joined(*names: str) -> DataFrame:
    import pandas as pd

    return pd.concat([recorded(name) for name in names], ignore_index=True)


def same_as(runs: DataFrame) -> dict[str, str]:
    """Rows whose runs end like those of a control, digit for digit: in how many."""
    ends = runs.pivot_table("accuracy", [*PAIRS, "scale"], "row")
    controls = [
        row for row in ("FedAvg", "LocalOnly", "Oracle clusters") if row in ends
    ]
    out = {}
    for row in ends:
        for control in controls:
            equal = int((ends[row] == ends[control]).sum())
            if row != control and equal > len(ends) / 3:
                out[row] = f"{control} in {equal} of {len(ends)} runs"
    return out


def table2_dots() -> Figure:
    """Table 2's non-IID cells: the paper's accuracy, and ours with 25 and 5 steps."""
    import pandas as pd

    from ...plots import dots

    runs = pd.concat(
        [
            small_scale(steps).assign(work=f"ours, {steps} steps a round")
            for steps in (25, 5)
        ]
    )
    ours = unlike(runs)
    paper = unlike(printed("2"))
    ablations = set(printed("5")["row"]) - {"GCFL"}
    ours = ours[~ours["row"].isin(ablations)]
    for side in (ours, paper):
        side["cell"] = [", ".join(cell) for cell in side[CELL].itertuples(index=False)]
        side["accuracy"] = 100 * side["accuracy"]
    best_first = ours.groupby("row")["accuracy"].mean().sort_values(ascending=False)
    place = {row: i for i, row in enumerate(best_first.index)}
    ours = ours.sort_values("row", key=lambda rows: rows.map(place), kind="stable")
    return dots(
        ours, paper, rows="row", columns="cell", value="accuracy", ours_name="work"
    )


def how_it_works() -> Figure:
    """A round of GCFL as boxes: what clients do, what the server does, what travels."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import COLOURS, INK, style

    style()
    fig = Canvas(figsize=(9, 2.7))
    ax = fig.add_subplot()
    ax.set(xlim=(0, 10), ylim=(0, 3))
    ax.axis("off")
    boxes = [
        (1.0, 0.6, "clients\ntrain their\ncluster's model", COLOURS[1]),
        (1.0, 2.3, "server: ask every\nmodel about the\nsame probe images", COLOURS[0]),
        (3.6, 2.3, "answers give\na place z,\nsize and sureness\na mass m", COLOURS[0]),
        (
            6.1,
            2.3,
            "pull of each pair:\nm m′ / distance,\nshielded, normalised",
            COLOURS[0],
        ),
        (8.8, 2.3, "cut weak pulls;\nwhat hangs\ntogether is\na cluster", COLOURS[0]),
        (8.8, 0.6, "average\nwithin each\ncluster", COLOURS[0]),
    ]
    for x, y, words, colour in boxes:
        look = {"boxstyle": "round,pad=0.4", "fc": "white", "ec": colour, "lw": 1.6}
        ax.text(x, y, words, ha="center", va="center", fontsize=8.5, bbox=look)
    arrow = {"arrowstyle": "->", "color": INK, "lw": 1.2}
    ends = [
        ((1.0, 1.1), (1.0, 1.75)),
        ((2.05, 2.3), (2.7, 2.3)),
        ((4.5, 2.3), (4.95, 2.3)),
        ((7.3, 2.3), (7.9, 2.3)),
        ((8.8, 1.65), (8.8, 1.1)),
        ((8.1, 0.6), (1.95, 0.6)),
    ]
    for start, end in ends:
        ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
    ax.text(
        5.0, 0.72, "each client gets its cluster's model", ha="center", fontsize=8.5
    )
    ax.text(1.1, 1.4, "models", fontsize=8.5)
    return fig


def completions() -> DataFrame:
    """GCFL with other values of what the paper does not tell, under Non-IID.

    In brackets the rank that it would have among the paper's twelve methods.
    """
    import pandas as pd

    field = both_datasets().query("setting == 'Non-IID'")
    beside = field[field["row"].isin(["GCFL", "Oracle clusters", "LocalOnly"])]
    runs = pd.concat([beside, recorded("sensitivity")], ignore_index=True)
    rivals = field[field["row"].isin(RIVALS)]
    rivals = rivals.groupby(["dataset", "row"])["accuracy"].mean()
    board = {}
    for row, own in runs.groupby("row", sort=False):
        line = {}
        for dataset, mean in own.groupby("dataset")["accuracy"].mean().items():
            rank = 1 + int((rivals[dataset] > mean).sum())
            line[dataset] = f"{100 * mean:.1f} ({rank})"
        pair = tables.paired(runs, "row", row, "GCFL", "accuracy", PAIRS)
        line["minus GCFL"] = pair.short
        line["clusters"] = round(own["clusters"].mean(), 1)
        board[row] = line
    return pd.DataFrame(board).T


def other_laws() -> DataFrame:
    """Accuracy under laws that the paper does not have, and GCFL's clusters."""
    means = recorded("laws").pivot_table(
        ["accuracy", "clusters"], CELL, "row", sort=False
    )
    out = means["accuracy"].mul(100)
    out["clusters of GCFL"] = means["clusters", "GCFL"]
    return out.round(1)


def convergence_curves() -> Figure:
    """Figure 2: accuracy over rounds, clustering from the start, in six panels."""
    from matplotlib.figure import Figure as Canvas

    from ...plots import curves, style

    style()
    fig = Canvas(figsize=(10, 5.6))
    axes = fig.subplots(2, 3)
    rows = ["GCFL", *IN_TRAINING, "Oracle clusters"]
    for ax, (cell, runs) in zip(
        axes.flat, timed().groupby(CELL, sort=False), strict=True
    ):
        courses = runs.groupby("row")["course"].agg(list)
        curves(courses[rows].to_dict(), ax=ax)
        ax.set_title(", ".join(cell))
        ax.get_legend().set_visible(ax is axes[0, 2])
    return fig
