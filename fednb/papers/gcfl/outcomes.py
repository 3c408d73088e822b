"""What came out of the runs of GCFL's chapter: records as frames and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import metrics, tables
from ...claims import Interval, effect
from ...clustering import otsu_components
from ...similarity import attraction
from .. import common
from . import priors, theory
from .tasks import CATEGORY, SCALES, SETTINGS, TABLES, TWENTY

if TYPE_CHECKING:
    from pandas import DataFrame


CELL = ["dataset", "setting"]
PAIRS = [*CELL, "seed"]  # what two rows must have in common to be compared
PLACES = [*PAIRS, "scale"]
UNLIKE = [name for name in SETTINGS if name != "IID"]
RIVALS = [name for name in CATEGORY if name != "GCFL"]  # of the paper
IN_TRAINING = ("FedEM", "FedSoft", "MTCFL", "IFCA")  # Table 4's
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
    return common.number_table(heads, rows, caption)


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
    return common.number_table(heads, rows, words)


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
    return common.number_table(["", *NAMES.values(), "clusters"], rows, words)


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
    return common.number_table(["", *listed, "GCFL's clusters"], rows, words)


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
    return common.number_table(["", *heads], rows, f"{words}; {AS_NEARER}.")


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
    return common.number_table(
        ["", *settings], rows, f"{words} rounds; digits, one run each."
    )


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
    return common.number_table(
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
    return common.number_table(
        heads, rows, f"{words}clients' label shares; 1 is disjoint."
    )


# --- effects that pictures show -------------------------------------------------------


Lines = Mapping[str, tuple[Interval, float | None]]  # a row: our effect, the paper's


def clearly_ahead(steps: int = 25) -> list[str]:
    """Rows that are clearly ahead of GCFL in a panel of `figures.table2_leads`.

    The whole interval of their lead is above zero.
    """
    panels = panels_by_setting(without_parts(unlike(small_scale(steps))))
    lines = [line for lines in panels.values() for line in lines.items()]
    return [row for row, (lead, _) in lines if lead.high < 0]


def panels_by_setting(runs: DataFrame) -> dict[str, Lines]:
    """GCFL's leads over each row, by setting and kind of accuracy."""
    order = runs.groupby("row")["accuracy"].mean().sort_values(ascending=False).index
    panels: dict[str, Lines] = {}
    for value in ("accuracy", "balanced_accuracy"):
        for setting in UNLIKE:
            own = runs[runs["setting"] == setting]
            said = None
            if value == "accuracy":
                said = printed("2").query("setting == @setting")
            title = f"{value.replace('_', ' ')}, {setting}"
            panels[title] = lead_lines(own, order, value, said)
    return panels


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


def lead_lines(
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


WORTH = {  # what a part is worth: the measure, in words
    "accuracy": "accuracy in points",
    "balanced_accuracy": "balanced in points",
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


def worth_tables() -> list[tables.Table]:
    """The numbers of `figures.parts_over_zeta`, a table for each measure."""
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
            cells = ["–" if said is None else f"{said:+.1f}".replace("-", "−")]
            cells += [in_words(found.get(zeta)) for zeta in zetas]
            rows.append([name, *cells])
        whole = f"{words.capitalize()}: {caption}"
        out.append(common.number_table(heads, rows, whole))
    return out


def in_words(interval: Interval | None) -> str:
    """An effect with its interval, to a tenth."""
    if interval is None:
        return "–"
    mean, low, high = interval
    return f"{mean:+z.1f} ({low:+z.1f} to {high:+z.1f})".replace("-", "−")
