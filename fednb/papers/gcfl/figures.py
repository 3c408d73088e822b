"""GCFL's records and printed numbers as frames, tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import metrics, plots, tables
from ...claims import Interval, effect
from ...clustering import otsu_components, otsu_threshold
from ...methods import GCFL
from ...similarity import attraction
from .. import common
from . import priors, theory
from .tasks import CATEGORY, SCALES, SETTINGS, SHIELD_AND_NORM, TABLES, TWENTY

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

CELL = ["dataset", "setting"]
PAIRS = [*CELL, "seed"]  # what two rows must have in common to be compared
PLACES = [*PAIRS, "scale"]
UNLIKE = [name for name in SETTINGS if name != "IID"]
RIVALS = [name for name in CATEGORY if name != "GCFL"]  # of the paper
IN_TRAINING = ("FedEM", "FedSoft", "MTCFL", "IFCA")  # Table 4's
OTHER_CURVES = {  # of Figure 2: how their grey lines are dashed
    "FedAvg": "-",
    "FedProx": "--",
    "AutoCFL": ":",
    "CFL-GP": "-.",
    "FedCCFA": (0, (6, 1.5, 1, 1.5, 1, 1.5)),
}
FINDERS = ("CFL", "FL+HC", "AutoCFL", "MTCFL")  # rivals that find the number themselves
FIND = (*FINDERS, "GCFL", "FedGWC", "OCFL")
TOLD = ("IFCA", "FedSoft", "CFL-GP", "FeSEM", "WeCFL", "Oracle clusters")
NAMES = {"cifar10": "CIFAR-10", "mnist": "MNIST"}
PARTS = {  # Table 5's rows in words
    "Massless": "masses all 1",
    "Param-space": "parameters as places",
    "w/o shielding": "no shield",
    "w/o symmetric normalization": "no normalisation",
    "No δ_init": "no cold start",
}
NOT_QUITE = ("AutoCFL", "MTCFL", "FedEM", "FedCCFA")  # the published method: a star
STAR = "*: not quite the published method; the fold on all rows tells what it is."
IN_TABLE3 = dict(zip(TWENTY, ("medium", "large"), strict=True))
ZETA = 0.01  # ours, in all tables that do not vary it
WIDTH = 7.2  # inches: as wide as the page
AS_SMALL = {
    25: "20 clients, 12 rounds of 25 steps (five epochs)",
    5: "20 clients, 20 rounds of 5 steps (one epoch)",
}
_more = SCALES["workstation"]
AS_NEARER = (
    f"{_more.clients[0]} clients of {_more.samples} samples, {_more.rounds} rounds of "
    f"{_more.local.epochs} epochs"
)
OVER_ZETA = {  # rows of table ``epochs``: ζ, and what it is at that ζ
    f"GCFL, ζ = {zeta:g}{ending}": (zeta, row)
    for zeta in (ZETA, 0.3)
    for row, ending in {"GCFL": "", "w/o shielding": ", w/o shielding"}.items()
}
WHAT = {  # a row: what it is here
    "FedAvg": "one model for all",
    "FedProx": "FedAvg with a pull back to the model that was sent, μ = 0.1",
    "CFL": "splits a cluster in two by cosines once its mean update is small; "
    "ε₁ = 0.6, the best of three",
    "FL+HC": "one hierarchical clustering of updates, after a quarter of the rounds; "
    "all clients take part in that round",
    "IFCA": "five models; a client takes the one with the least loss",
    "AutoCFL": "our reading of an abstract: the first rounds vote on who belongs "
    "together, and all clients take part in them; two votes, the best of three",
    "MTCFL": "our reading of a name: CFL's test of a split, made in every round",
    "FedSoft": "five models; each client has a model of its own, pulled to a "
    "mixture of them; λ = 0.1, the best of three",
    "FedEM": "three models, mixed by each client, one weight for all its samples; "
    "trains all three; learning rate × 3, the best of three",
    "CFL-GP": "k-means on gradients gathered over rounds, for which all "
    "clients train one more model",
    "FedCCFA": "shares classifiers class by class, without the alignment of features; "
    "trains thrice: classifier, extractor, and a classifier to compare; rate × 10, the "
    "best of three",
    "GCFL": "as we completed it",
    "FeSEM": "k-means on parameters",
    "WeCFL": "weighted k-means on parameters",
    "FedGWC": "splits by losses; all take part",
    "OCFL": "clusters once, by cosines",
    "LocalOnly": "control: everybody trains alone",
    "Oracle clusters": "control: the hidden groups (under IID five groups that differ "
    "in nothing)",
    "Random clusters": "control: groups of the same sizes, drawn by lot",
    priors.ROW: "control: always the client's most frequent class; nothing is trained",
}

# --- records as frames ----------------------------------------------------------------


def printed(table: str) -> DataFrame:
    """The paper's numbers of Table "2", "3", "4" or "5", accuracies as shares."""
    return tables.printed(Path(__file__).with_name("printed.csv"), table)


def recorded(name: str) -> DataFrame:
    """One line per run of a table, with its course.

    ``clusters`` and ``ari`` are means over the rounds after the first quarter, ``late``
    is the mean accuracy over the second half of the rounds, ``restless`` the share of
    these in which clusters change (`theory.changed`), ``moved`` the share of clients
    that change theirs (nan where records do not keep who is with whom).
    """
    return _recorded(name).copy()


@cache
def _recorded(name: str) -> DataFrame:
    runs = common.read("gcfl", name, TABLES[name]("laptop"), course=True)
    return _with_means(runs)


def _with_means(runs: DataFrame) -> DataFrame:
    """Runs with means over rounds of what has a curve."""
    courses = list(runs["course"])
    for column in ("clusters", "ari"):
        runs[column] = [c[column][len(c) // 4 :].mean() for c in courses]
    runs["late"] = [c["accuracy"][len(c) // 2 :].mean() for c in courses]
    runs["restless"] = [theory.changed(c["clusters"], c["ari"]) for c in courses]
    runs["moved"] = [
        theory.moved([*c["labels"]]) if "labels" in c else np.nan for c in courses
    ]
    return runs


@cache
def whole_seeds(name: str, profile: str = "laptop") -> DataFrame | None:
    """Runs of a table of which only some seeds may be there yet: whole seeds, or None.

    See `recorded` for the columns.
    """
    path = common.results("gcfl") / f"{name}.json"
    have = set(tables.by_key(path))
    by_seed: dict[int, list] = {}
    for task in TABLES[name](profile):
        by_seed.setdefault(task.seed, []).append(task)
    tasks = []
    for of_seed in by_seed.values():
        if have.issuperset(task.key for task in of_seed):
            tasks += of_seed
    if not tasks:
        return None
    return _with_means(tables.frame(tasks, path, course=True))


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
        return _joined("table2_cifar10", "table2_mnist", "table5")
    if steps == 25:
        return recorded("local_work")
    raise ValueError(f"steps={steps}: there are runs with 5 and with 25")


def parts(steps: int) -> DataFrame:
    """GCFL and what it is without each part, where clients differ."""
    if steps == 25:
        return recorded("local_parts")
    runs = small_scale(steps)
    return runs[runs["row"].isin(_ablations() | {"GCFL"}) & _is_unlike(runs)]


def crossed() -> DataFrame:
    """ζ crossed with the parts of Table 5, beside our ζ; 25 steps, six seeds.

    ``zeta`` is its value; ``row`` is GCFL or what it is without a part. Only the start
    has not been taken away at our ζ.
    """
    import pandas as pd

    varied = _joined("zeta", "zeta_parts")
    varied = varied.assign(row=varied["without"])
    ours = recorded("local_parts").assign(zeta=ZETA)
    return pd.concat([ours, varied], ignore_index=True)


def around(rows: Sequence[str], zeta: float) -> DataFrame | None:
    """GCFL and it without some parts at one ζ; None if not all have been run there."""
    runs = crossed()
    runs = runs[(runs["zeta"] == zeta) & runs["row"].isin(["GCFL", *rows])]
    if not {*rows} <= {*runs["row"]}:
        return None
    return runs


def nearer() -> DataFrame | None:
    """Runs nearer to the paper, of table ``epochs``; None if not run yet.

    They have five times the samples. GCFL with our ζ is called GCFL, as elsewhere.
    """
    runs = whole_seeds("epochs", "workstation")
    if runs is None:
        return None
    return runs.assign(row=runs["row"].replace({f"GCFL, ζ = {ZETA:g}": "GCFL"}))


def nearer_over_zeta() -> DataFrame | None:
    """GCFL of these runs at two ζ, with and without shield, in columns of `crossed`."""
    runs = whole_seeds("epochs", "workstation")
    if runs is None:
        return None
    runs = runs[runs["row"].isin(OVER_ZETA)]
    zetas = [OVER_ZETA[row][0] for row in runs["row"]]
    return runs.assign(zeta=zetas, row=[OVER_ZETA[row][1] for row in runs["row"]])


def attendance() -> DataFrame:
    """GCFL at the medium scale with other choices about absent clients, beside ours."""
    import pandas as pd

    ours = unlike(recorded("table3_medium"))
    ours = ours[ours["row"].isin(["GCFL", "Oracle clusters"])]
    return pd.concat([ours, recorded("attendance")], ignore_index=True)


def twenty(as_in_table3: bool = True) -> DataFrame:
    """Table 3 with twenty participants a round, and five epochs.

    GCFL with our ζ is called GCFL; a further row has only the participants of a round
    as bodies. ``as_in_table3`` calls the scales medium and large; else they keep their
    numbers of clients.
    """
    runs = _joined("twenty_a_round", "participants")
    runs = runs.assign(row=runs["row"].replace({f"GCFL, ζ = {ZETA:g}": "GCFL"}))
    if not as_in_table3:
        return runs
    return runs.assign(scale=runs["scale"].map(IN_TABLE3))


def crowd() -> DataFrame:
    """What is found among more and more clients: a line per cell, seed and size.

    ``gcfl`` is the adjusted Rand index of Algorithm 1 with our ζ, ``wide`` with 0.3,
    ``average`` with average linkage in the place of the union, ``told`` that of k-means
    on the same places. ``largest`` is the largest cluster's share of the clients;
    ``clusters`` and ``bare`` are numbers of clusters with and without the shield, at
    ζ = 0.3.
    """
    import pandas as pd

    tasks = TABLES["crowd"]("laptop")
    records = tables.by_key(common.results("gcfl") / "crowd.json")
    frames = []
    for task in tasks:
        final = records[task.key]["metrics"]["final"]
        looks = {
            "clients": final["crowd_sizes"],
            "gcfl": final[f"crowd_ari_{ZETA:g}"],
            "wide": final["crowd_ari_0.3"],
            "average": final[f"crowd_average_ari_{ZETA:g}"],
            "told": final["crowd_ari_told"],
            "clusters": final["crowd_clusters_0.3"],
            "bare": final["crowd_bare_clusters_0.3"],
            "largest": final[f"crowd_largest_{ZETA:g}"],
        }
        cell = {"dataset": task.dataset, "setting": task.tags["setting"]}
        frames.append(pd.DataFrame(looks).assign(**cell, seed=task.seed))
    return pd.concat(frames, ignore_index=True)


def largest_cluster(runs: DataFrame) -> float:
    """Share of the clients in the largest cluster of the last round, mean over runs."""
    shares = []
    for course in runs["course"]:
        sizes = np.bincount(course["labels"].iloc[-1])
        shares.append(sizes.max() / sizes.sum())
    return float(np.mean(shares))


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
    measures: dict[str, Callable[..., float]] = {
        "t95": metrics.rounds_to,
        "auc50": partial(metrics.auc, rounds=10),
        "fall": theory.fall,
    }
    for name, measure in measures.items():
        runs[name] = [measure(course["accuracy"]) for course in runs["course"]]
    return runs


def without_cold_start() -> DataFrame:
    """How many runs of GCFL equal those that cluster from the first round on.

    A line for each data set and step count: ``runs``, ``equal`` digit for digit in
    every round, and ``first``, the earliest and the latest round with more than one
    cluster.
    """
    import pandas as pd

    at_once = recorded("table5").query("row == 'No δ_init'").set_index(PAIRS)["course"]
    lines = []
    for steps in (25, 5):
        runs = unlike(small_scale(steps))
        own = runs[runs["row"] == "GCFL"]
        for dataset, some in own.groupby("dataset"):
            courses = some.set_index(PAIRS)["course"]
            firsts = [1 + int(np.argmax(c["clusters"] > 1)) for c in courses]
            line = {"dataset": dataset, "steps": steps, "runs": len(some)}
            line |= {"first": (min(firsts), max(firsts)), "equal": 0}
            if steps == 5:
                same = [
                    c["accuracy"].equals(at_once[k]["accuracy"])
                    for k, c in courses.items()
                ]
                line["equal"] = sum(same)
            lines.append(line)
    return pd.DataFrame(lines)


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
        for dataset in NAMES:
            out[dataset, who] = 100 * (level["small"] - level["large"])[dataset]
    table = pd.DataFrame(out).dropna(subset=[("cifar10", "ours")])
    return table.sort_values(("cifar10", "paper"))[[*NAMES]]


def unlike(runs: DataFrame) -> DataFrame:
    """The runs in which clients differ."""
    return runs[_is_unlike(runs)]


def without_parts(runs: DataFrame) -> DataFrame:
    """The runs but for those of GCFL without one of its parts."""
    return runs[~runs["row"].isin(_ablations())]


def shown(row: str) -> str:
    """A row's name in tables and pictures; a star if it is not the published method."""
    name = PARTS.get(row, row)
    if row in NOT_QUITE:
        return f"{name}*"
    return name


def same_budget(runs: DataFrame) -> list[str]:
    """The paper's rivals that train no more clients' models than GCFL, at any scale.

    Five percent more are allowed.
    """
    updates = runs.pivot_table("client_updates", "row", "scale")
    within = (updates <= 1.05 * updates.loc["GCFL"]).all(axis=1)
    return [row for row in RIVALS if within.get(row, False)]


def same_as(runs: DataFrame) -> dict[str, str]:
    """Rows that end like a control: digit for digit in a third of the runs or more,
    or less than a point away on average.
    """
    ends = runs.pivot_table("accuracy", PLACES, "row")
    out = {}
    for row in ends:
        for control in ("FedAvg", "LocalOnly", "Oracle clusters"):
            if row == control or control not in ends:
                continue
            equal = int((ends[row] == ends[control]).sum())
            apart = 100 * (ends[row] - ends[control]).abs().mean()
            if equal >= len(ends) / 3:
                out[row] = f"{control} in {equal} of {len(ends)} runs"
            elif apart < 1:
                out[row] = f"{control}, {apart:.1f} points apart"
    return out


def _is_unlike(runs: DataFrame) -> Any:
    return runs["setting"].isin(UNLIKE)


def _ablations() -> set[str]:
    return set(printed("5")["row"]) - {"GCFL"}


def _joined(*names: str) -> DataFrame:
    import pandas as pd

    return pd.concat([recorded(name) for name in names], ignore_index=True)


# --- tables ---------------------------------------------------------------------------


def number_table(heads: list[str], rows: list[list[str]], caption: str) -> tables.Table:
    """A small table of numbers, with a caption; long heads take several lines."""
    table = tables.words(heads, rows, caption, kind="numbers")
    heads_wrap = ".fednb-table.fednb-table-numbers th { white-space: normal; }"
    return tables.Table(f"<style>{heads_wrap}</style>{table.html}", table.text)


def board(runs: DataFrame, caption: str) -> tables.Table:
    """What each row reaches and what it costs, means over all runs, best first."""
    runs = priors.beside(runs)
    means = runs.groupby("row").mean(numeric_only=True)
    means = means.sort_values("accuracy", ascending=False)
    shares = ("accuracy", "balanced_accuracy", "macro_f1", "late")
    rows = []
    for row, line in means.iterrows():
        cells = [f"{100 * line[name]:.1f}" for name in shares]
        cells += [f"{line['clusters']:.1f}", f"{line['ari']:.2f}"]
        cells += [f"{line['client_updates']:.0f}", f"{line['bytes'] / 1e6:.0f}"]
        rows.append([shown(row), *(cell.replace("nan", "–") for cell in cells)])
    heads = ["", "accuracy", "balanced", "macro-F1", "2nd half", "clusters", "Rand",
             "client updates", "MB"]  # fmt: skip
    seeds = runs["seed"].nunique()
    caption += f" Accuracies in %, mean over cells and {seeds} seeds; macro-F1: a "
    caption += "client's mean F1 of all classes; 2nd half: mean accuracy over the "
    caption += "second half of the rounds; clusters and Rand (adjusted Rand index): "
    caption += "over all rounds after the first quarter; MB: models sent, in megabytes."
    if set(means.index) & set(NOT_QUITE):
        caption += f" {STAR}"
    return number_table(heads, rows, caption)


def twenty_tables() -> list[tables.Table]:
    """Table 3 beside our runs with twenty participants, and the majority class."""
    runs = priors.beside(twenty(as_in_table3=False))
    found = []
    for clients, some in runs.groupby("scale", sort=False):
        words = f"accuracy, as in Table 3; 20 of {clients} a round, five epochs."
        some = some.assign(scale=IN_TABLE3[clients])
        found += [full_table("3", some, dataset, words) for dataset in NAMES]
    return found


def twenty_boards() -> list[tables.Table]:
    """A `board` for 80 and for 200 clients, twenty of them a round."""
    runs = twenty(as_in_table3=False)
    words = "of them 20 a round, 20 rounds of 25 steps (five epochs)."
    return [
        board(some, f"{clients}, {words}")
        for clients, some in runs.groupby("scale", sort=False)
    ]


def who_is_who(frames: Mapping[str, DataFrame]) -> tables.Table:
    """What each row of the tables is here, and which control some of them equal.

    ``frames`` are runs by what they are called.
    """
    like = {name: same_as(unlike(runs)) for name, runs in frames.items()}
    rows = []
    for row, what in WHAT.items():
        found = [f"{name}: {ends[row]}" for name, ends in like.items() if row in ends]
        words = what
        if found:
            words += f". Ends like a control ({'; '.join(found)})"
        number = "told" if row in TOLD else "found" if row in FIND else "–"
        rows.append((shown(row), CATEGORY.get(row, "ours"), words, number))
    heads = ("row", "category", "what it is here", "clusters")
    words = (
        "The rows, and whether they are told the number of clusters. Ends like: last "
    )
    words += (
        "accuracies that are a control's, digit for digit or nearly, where clients "
    )
    return tables.words(heads, rows, f"{words}differ.")


def full_table(
    table: str, runs: DataFrame, dataset: str, words: str, **how: Any
) -> tables.Table:
    """A table of the paper for one data set: its numbers, and below them ours."""
    paper = printed(table)
    paper = paper[paper["scale"].isin(runs["scale"])]
    if table == "2":
        runs = without_parts(runs)
    shape: dict[str, Any] = {"rows": ["row"], "columns": ["setting"], "digits": 2}
    shape |= {"value": "accuracy"} | how
    caption = f"{NAMES[dataset]}: {words}"
    if set(runs["row"]) & set(NOT_QUITE):
        caption += f" {STAR}"
    names = with_budgets(runs)
    if any("×" in name for name in names.values()):
        caption += " ×: client updates, in GCFL's."
    sides = []
    for side in (runs, paper):
        own = side[side["dataset"] == dataset]
        rows = [names.get(shown(row), shown(row)) for row in own["row"]]
        sides.append(own.assign(row=rows))
    ours, theirs = sides
    return tables.beside(ours, theirs, caption=caption, **shape)


def falls_table() -> tables.Table:
    """`falls` as a table."""
    rows = []
    for row, line in falls().iterrows():
        cells = [f"{x:z.1f}".replace("nan", "–") for x in line]
        rows.append([shown(row), *cells])
    heads = [""]
    heads += [f"{name}, {who}" for name in NAMES.values() for who in ("paper", "ours")]
    words = "Points of accuracy lost from the small to the large scale, Non-IID; the "
    words += f"paper has 50 participants a round at both, we have 20 and 6. {STAR}"
    return number_table(heads, rows, words)


def completions() -> tables.Table:
    """GCFL with other values of what the paper does not tell, under Non-IID."""
    runs = priors.beside(completed())
    rows = []
    for row, own in runs.groupby("row", sort=False):
        line = [str(row)]
        for dataset in NAMES:
            line.append(_both_accuracies(own[own["dataset"] == dataset]))
        line.append(f"{own['clusters'].mean():.1f}".replace("nan", "–"))
        rows.append(line)
    words = "Accuracy / balanced accuracy in %, and clusters, under Non-IID; "
    words += f"{AS_SMALL[5]}, three seeds."
    return number_table(["", *NAMES.values(), "clusters"], rows, words)


def _both_accuracies(runs: DataFrame) -> str:
    """Mean accuracy and balanced accuracy, in percent."""
    values = ("accuracy", "balanced_accuracy")
    return " / ".join(f"{100 * runs[value].mean():.1f}" for value in values)


def completed() -> DataFrame:
    """GCFL with our choices, two controls, and GCFL with other choices, Non-IID."""
    import pandas as pd

    field = both_datasets().query("setting == 'Non-IID'")
    beside = field[field["row"].isin(["GCFL", "Oracle clusters", "LocalOnly"])]
    return pd.concat([beside, recorded("sensitivity")], ignore_index=True)


def other_laws() -> tables.Table:
    """Accuracy under laws that the paper does not have, and GCFL's clusters."""
    runs = priors.beside(recorded("laws"))
    listed = [priors.ROW, "LocalOnly", "FedAvg", "IFCA", "GCFL"]
    rows = []
    for (dataset, setting), own in runs.groupby(CELL, sort=False):
        cells = [_both_accuracies(own[own["row"] == row]) for row in listed]
        count = own.loc[own["row"] == "GCFL", "clusters"].mean()
        rows.append([f"{NAMES[dataset]}, {setting}", *cells, f"{count:.1f}"])
    words = "Accuracy / balanced accuracy in %, and how many clusters GCFL forms; "
    words += f"{AS_SMALL[5]}, three seeds."
    return number_table(["", *listed, "GCFL's clusters"], rows, words)


def nearer_clusters() -> tables.Table:
    """How many clusters GCFL finds with more data, by ζ and shield; the paper's last.

    Call it only if `nearer_over_zeta` has runs.
    """
    runs = nearer_over_zeta()
    assert runs is not None
    shield = {"GCFL": "with shield", "w/o shielding": "without"}
    ours = runs.pivot_table("clusters", ["zeta", "row"], CELL)
    said = printed("5").pivot_table("clusters", "row", CELL)
    rows = []
    for zeta, row in ours.index:
        cells = [f"{count:.1f}" for count in ours.loc[zeta, row]]
        rows.append([f"ζ = {zeta:g}, {shield[row]}", *cells])
    for row, words in shield.items():
        cells = [f"{count:.1f}" for count in said.loc[row, ours.columns]]
        rows.append([f"paper, {words}", *cells])
    heads = [f"{NAMES[dataset]}, {setting}" for dataset, setting in ours.columns]
    words = f"Clusters, means over rounds and {runs['seed'].nunique()} seeds"
    return number_table(["", *heads], rows, f"{words}; {AS_NEARER}.")


def live_table(runs: Mapping[tuple[str, str], DataFrame]) -> tables.Table:
    """Live runs in short: means over the second half of the rounds."""
    settings = list(dict.fromkeys(setting for setting, _ in runs))
    rows = []
    for method in dict.fromkeys(method for _, method in runs):
        line = [method]
        for setting in settings:
            found = theory.halves(runs[setting, method])
            cells = [f"{found['2nd half']:.2f}", f"{found['clusters']:.1f}"]
            cells.append(f"{found['flicker']:.2f}")
            line.append(" / ".join(cells))
        rows.append(line)
    words = "Accuracy / number of clusters / flicker, means over the second half of the"
    return number_table(["", *settings], rows, f"{words} rounds; digits, one run each.")


def restless_table() -> tables.Table:
    """In how many rounds clusters change, for methods that may change them."""
    listed = ["GCFL", "Param-space", "w/o shielding", "w/o symmetric normalization",
             "CFL", "IFCA", "MTCFL", "CFL-GP", "AutoCFL", "FL+HC"]  # fmt: skip
    means = {
        steps: unlike(small_scale(steps)).groupby("row")["restless"].mean()
        for steps in (25, 5)
    }
    rows = []
    for row in listed:
        cells = [f"{100 * mean[row]:.0f} %" for mean in means.values()]
        rows.append([shown(row), *cells])
    heads = ["", "12 rounds of five epochs", "20 rounds of one epoch"]
    words = "Share of the rounds of the second half in which a method's clusters change"
    return number_table(
        heads, rows, f"{words}; means over cells and three seeds. {STAR}"
    )


def inside_and_across() -> tables.Table:
    """Are the data of a cluster's clients more alike than those of two clusters?

    After the toy's first round, where clients differ.
    """
    rows = []
    for setting in UNLIKE:
        found = theory.first_round(setting)
        labels = otsu_components(attraction(found.z, found.mass, ZETA))
        counts = torch.as_tensor(found.fed.truth.counts, dtype=torch.float64)
        shares = counts / counts.sum(1, keepdim=True)  # (K, classes)
        apart = torch.cdist(shares, shares, p=1) / 2
        inside, across = theory.gaps(apart, labels)
        kept = "yes" if inside < across else "no"
        rows.append([setting, f"{inside:.2f}", f"{across:.2f}", kept])
    heads = ["", "largest Δ within a cluster", "smallest across", "ξ exist?"]
    words = "The digits after one round. Δ: half the sum of all differences of two "
    return number_table(heads, rows, f"{words}clients' label shares; 1 is disjoint.")


# --- pictures of records --------------------------------------------------------------


def table2_dots() -> Figure:
    """Table 2's non-IID cells: the paper's accuracy, and ours with 25 and 5 steps."""
    import pandas as pd

    both = []
    for steps in (25, 5):
        runs = priors.beside(unlike(small_scale(steps)))
        epochs = {25: "five epochs", 5: "one epoch"}[steps]
        both.append(runs.assign(work=f"ours, {epochs} a round"))
    ours = pd.concat(both)
    ours = _for_dots(without_parts(ours))
    best_first = ours.groupby("row")["accuracy"].mean().sort_values(ascending=False)
    place = {row: i for i, row in enumerate(best_first.index)}
    ours = ours.sort_values("row", key=lambda rows: rows.map(place), kind="stable")
    fig = plots.dots(
        ours,
        _for_dots(unlike(printed("2"))),
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
    cell = frame["dataset"].map(NAMES) + ", " + frame["setting"]
    frame = frame.assign(row=frame["row"].map(shown))
    return frame.assign(cell=cell).assign(**{"accuracy in %": 100 * frame["accuracy"]})


Lines = Mapping[str, tuple[Interval, float | None]]  # a row: our effect, the paper's


def forest(panels: Mapping[str, Lines], xlabel: str, across: int = 2) -> Figure:
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
    runs = unlike(small_scale(steps))
    return _leads_by_setting(without_parts(runs))


def nearer_leads() -> Figure:
    """The same with more data; call it only if `nearer` has runs."""
    runs = nearer()
    assert runs is not None
    without = [name for name, (_, row) in OVER_ZETA.items() if row != "GCFL"]
    return _leads_by_setting(runs[~runs["row"].isin(without)])


def clearly_ahead(steps: int = 25) -> list[str]:
    """Rows whose lead over GCFL has an interval above zero, in a panel of these."""
    panels = _panels_by_setting(without_parts(unlike(small_scale(steps))))
    lines = [line for lines in panels.values() for line in lines.items()]
    return [row for row, (lead, _) in lines if lead.high < 0]


def _leads_by_setting(runs: DataFrame) -> Figure:
    return forest(_panels_by_setting(runs), "GCFL ahead by, in points")


def _panels_by_setting(runs: DataFrame) -> dict[str, Lines]:
    order = runs.groupby("row")["accuracy"].mean().sort_values(ascending=False).index
    panels: dict[str, Lines] = {}
    for value in ("accuracy", "balanced_accuracy"):
        for setting in UNLIKE:
            own = runs[runs["setting"] == setting]
            said = None
            if value == "accuracy":
                said = printed("2").query("setting == @setting")
            title = f"{value.replace('_', ' ')}, {setting}"
            panels[title] = _leads(own, order, value, said)
    return panels


def twenty_leads() -> Figure:
    """GCFL's lead with 80 and with 200 clients, last round and second half."""
    titles = {scale: clients for clients, scale in IN_TABLE3.items()}
    return _leads_by_scale(twenty(), titles)


def table3_leads() -> Figure:
    """The same with 8 of 32 and 6 of 60 clients a round, and one epoch."""
    return _leads_by_scale(
        unlike(larger()), {"medium": "8 of 32 clients", "large": "6 of 60 clients"}
    )


def _leads_by_scale(runs: DataFrame, titles: Mapping[str, str]) -> Figure:
    """``titles`` has a name for each scale."""
    order = runs.groupby("row")["accuracy"].mean().sort_values(ascending=False).index
    names = with_budgets(runs)
    panels: dict[str, Lines] = {}
    for value, words in {"accuracy": "last round", "late": "2nd half"}.items():
        for scale, title in titles.items():
            own = runs[runs["scale"] == scale]
            said = None
            if value == "accuracy":
                said = unlike(printed("3")).query("scale == @scale")
            lines = _leads(own, order, value, said)
            panels[f"{title}, {words}"] = {
                names[row]: line for row, line in lines.items()
            }
    return forest(panels, "GCFL ahead by, in points (×: client updates, in GCFL's)")


def with_budgets(runs: DataFrame) -> dict[str, str]:
    """Rows as they are shown, with their client updates in GCFL's, if they have more.

    Where scales differ in that, each has its number, in the order of the runs.
    """
    updates = runs.pivot_table("client_updates", "row", "scale", sort=False)
    times = updates.div(updates.loc["GCFL"])
    out = {}
    for row, more in times.iterrows():
        name = shown(str(row))
        out[name] = name
        if more.max() > 1.05:
            numbers = dict.fromkeys(f"×{x:.1f}" for x in more.dropna())
            out[name] += f" {' / '.join(numbers)}"
    return out


def _leads(
    runs: DataFrame, rows: Sequence[str], value: str, paper: DataFrame | None
) -> Lines:
    """GCFL's lead over each row, and the paper's."""
    said = {} if paper is None else paper.groupby("row")["accuracy"].mean().to_dict()
    out = {}
    for row in rows:
        if row == "GCFL":
            continue
        pair = tables.paired(runs, "row", "GCFL", row, value, PLACES, percent=True)
        theirs = 100 * (said["GCFL"] - said[row]) if row in said else None
        out[shown(row)] = (effect(pair), theirs)
    return out


WORTH = {  # what a part is worth: the measure, and its name in pictures
    "accuracy": "accuracy,\npoints",
    "balanced_accuracy": "balanced,\npoints",
    "clusters": "clusters",
}


def worth(row: str, value: str) -> dict[float, Interval]:
    """GCFL minus GCFL without one part, by ζ."""
    out = {}
    for zeta in sorted(crossed()["zeta"].unique()):
        runs = around([row], zeta)
        if runs is not None:
            shares = value != "clusters"
            pair = tables.paired(runs, "row", "GCFL", row, value, PAIRS, percent=shares)
            out[float(zeta)] = effect(pair)
    return out


def printed_worth(row: str, value: str) -> float | None:
    """The same in the paper, mean over cells; it has no balanced accuracy."""
    paper = printed("5").assign(seed=0)
    if value not in paper:
        return None
    shares = value != "clusters"
    pair = tables.paired(paper, "row", "GCFL", row, value, PAIRS, percent=shares)
    return effect(pair).mean


def parts_over_zeta(judged_at: float) -> Figure:
    """What each part is worth over ζ; ``judged_at`` is marked, and the paper's worth.

    Above zero GCFL has more than GCFL without that part.
    """
    from matplotlib.figure import Figure as Canvas

    plots.style()
    fig = Canvas(figsize=(WIDTH, 5.2))
    axes = fig.subplots(len(WORTH), len(PARTS), sharex=True, sharey="row")
    for line, (value, words) in zip(axes, WORTH.items(), strict=True):
        for ax, row in zip(line, PARTS, strict=True):
            found = worth(row, value)
            means = [one.mean for one in found.values()]
            reach = [one.high - one.mean for one in found.values()]
            ax.errorbar([*found], means, reach, marker="o", ms=4, lw=1.2)
            said = printed_worth(row, value)
            if said is not None:
                ax.axhline(said, color=plots.INK, linestyle=":", lw=1.5)
            ax.axhline(0, color=plots.INK, lw=1)
            ax.axvspan(judged_at / 1.5, judged_at * 1.5, alpha=0.15, lw=0)
        line[0].set_ylabel(words)
    for ax, row in zip(axes[0], PARTS, strict=True):
        ax.set_title(PARTS[row].replace(" ", "\n", 1), fontsize=10)
    for ax in axes[-1]:
        ax.set(xscale="log", xlabel="ζ", xlim=(0.006, 1.7))
        ax.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    return fig


def worth_tables() -> list[tables.Table]:
    """The numbers of `parts_over_zeta`, a table for each measure."""
    runs = crossed()
    zetas = sorted(runs["zeta"].unique())
    heads = ["", "paper", *(f"ζ = {zeta:g}" for zeta in zetas)]
    caption = f"GCFL minus GCFL with this change; {AS_SMALL[25]}, six seeds."
    out = []
    for value, words in WORTH.items():
        rows = []
        for row, name in PARTS.items():
            found = worth(row, value)
            said = printed_worth(row, value)
            cells = ["–" if said is None else f"{said:+.1f}"]
            cells += [_with_ends(found.get(zeta)) for zeta in zetas]
            rows.append([name, *cells])
        measure = words.replace("\n", " in ").replace(",", "").capitalize()
        out.append(number_table(heads, rows, f"{measure}: {caption}"))
    return out


def _with_ends(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    mean, low, high = interval
    return f"{mean:+z.1f} ({low:+z.1f} to {high:+z.1f})"


def completions_forest() -> Figure:
    """Other choices against ours, in points of accuracy under Non-IID."""
    return _against_ours(completed(), f"{AS_SMALL[5]}, Non-IID")


def attendance_forest() -> Figure:
    """The same for absent clients, at the medium scale."""
    title = "8 of 32 clients a round, 20 rounds of 5 steps (one epoch)"
    return _against_ours(attendance(), title)


def _against_ours(runs: DataFrame, title: str) -> Figure:
    lines = {}
    for row in runs["row"].unique():
        if row != "GCFL":
            pair = tables.paired(runs, "row", row, "GCFL", "accuracy", PAIRS)
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
    runs = timed()
    for column, dataset in enumerate(NAMES):
        for line, setting in enumerate(SETTINGS):
            ax = axes[line, column]
            own = runs[(runs["dataset"] == dataset) & (runs["setting"] == setting)]
            for row in (*OTHER_CURVES, *IN_TRAINING, "Oracle clusters", "GCFL"):
                courses = own.loc[own["row"] == row, "course"]
                mean = np.mean([course["accuracy"] for course in courses], axis=0)
                ax.plot(range(1, len(mean) + 1), mean, **_line_look(row))
            ax.set(title=f"{NAMES[dataset]}, {setting}", xlabel="round")
            ax.set_ylabel("accuracy")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4)
    return fig


def _line_look(row: str) -> dict[str, Any]:
    if row == "GCFL":
        return {"color": "black", "linewidth": 2.6, "label": row}
    if row in IN_TRAINING:
        colour = plots.COLOURS[IN_TRAINING.index(row)]
        return {"color": colour, "linewidth": 1.6, "label": shown(row)}
    if row == "Oracle clusters":
        return {"color": "black", "linewidth": 1.2, "linestyle": ":", "label": row}
    grey: dict[str, Any] = {"color": "#8c8c8c", "linewidth": 1.1}
    return grey | {"linestyle": OTHER_CURVES[row], "label": shown(row)}


def shield_over_zeta() -> Figure:
    """Clusters over ζ, whole and without a part, and what the paper prints."""
    from matplotlib.figure import Figure as Canvas

    runs = crossed()
    runs = runs[runs["row"].isin(SHIELD_AND_NORM)]
    plots.style()
    fig = Canvas(figsize=(WIDTH, 2.9))
    axes = fig.subplots(1, 4, sharey=True)
    said = printed("5").set_index([*CELL, "row"])["clusters"]
    cells = runs.groupby(CELL, sort=False)
    for ax, (cell, own) in zip(axes, cells, strict=True):
        for i, row in enumerate(own["row"].unique()):
            means = own[own["row"] == row].groupby("zeta")["clusters"].mean()
            ax.plot(means.index, means, "os^"[i] + "-", label=shown(row))
            ax.axhline(said[(*cell, row)], color=plots.COLOURS[i], linestyle=":")
        ax.set(title=f"{NAMES[cell[0]]},\n{cell[1]}", xscale="log", xlabel="ζ")
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
    cells = crowd().groupby(CELL, sort=False)
    for ax, (cell, own) in zip(axes, cells, strict=True):
        for i, (column, label) in enumerate(looks.items()):
            seeds = own.groupby("clients")[column]
            mean = seeds.mean()
            ax.plot(mean.index, mean, "os^D"[i] + "-", label=label)
            ends = (seeds.min(), seeds.max())
            ax.fill_between(mean.index, *ends, color=plots.COLOURS[i], alpha=0.15, lw=0)
        ax.set(title=f"{NAMES[cell[0]]},\n{cell[1]}", xlabel="clients")
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
    for ax, name in zip(axes, UNLIKE, strict=True):
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
        A = attraction(found.z, found.mass, ZETA, **options)
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
        A = attraction(found.z, found.mass, ZETA)
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
    for ax, setting in zip(axes, UNLIKE, strict=True):
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
