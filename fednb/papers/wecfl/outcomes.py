"""What came out of the runs of WeCFL's chapter: records as frames and tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import tables
from ..common import number_table, read, results
from . import deals
from .tasks import CURVES, SCALES, TABLES

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from ...sweeps import Task


ACCURACY, MACRO_F1 = CURVES
DATASETS = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
CLUSTER_WISE = ("α = (0.1, 10)", "(3, 2)-class")
CLIENT_WISE = ("α = 0.1", "2-class")
SETTINGS = (*CLUSTER_WISE, *CLIENT_WISE)
OWN_SCALE = {
    "scale_cifar10_class": ("cifar10", "(3, 2)-class"),
    "scale_cifar10_alpha": ("cifar10", "α = (0.1, 10)"),
    "scale_fashion_class": ("fashion_mnist", "(3, 2)-class"),
}
SAME_CLASSES = "scale_same_classes"
# the rows of that table
WITH_SAME_CLASSES = ("Same pair of classes", "WeCFL, K = pairs of classes")
# at which of a round's local steps our B is taken, in words
WHICH_STEPS = "the largest of a round's local steps"
LAPTOP = f"laptop scale ({SCALES['laptop']})"
OWN = f"the paper's scale ({SCALES['paper']})"


# --- records as frames ----------------------------------------------------------------


def printed(table: str) -> DataFrame:
    """The paper's own numbers of Table "2" or "5", as shares, with our tags."""
    return tables.printed(Path(__file__).with_name("printed.csv"), table)


def paper() -> DataFrame:
    """The paper's own numbers of both tables."""
    import pandas as pd

    return pd.concat([printed("2"), printed("5")], ignore_index=True)


def records(table: str, profile: str = "laptop") -> DataFrame:
    """A table's records, a line per run; a metric is the mean of its last 3 rounds."""
    return read("wecfl", table, TABLES[table](profile), last=3)


def with_halves(frame: DataFrame) -> DataFrame:
    """A table's frame with lines for ensembles of five.

    They are the first five members of the ten, measured beside them.
    """
    import pandas as pd

    names = {f"half_{name}": name for name in CURVES}
    few = frame[frame["row"].isin(["FedAvg+", "FedProx+"])]
    few = few.drop(columns=[*CURVES]).rename(columns=names).assign(K=5)
    return pd.concat([few, frame.drop(columns=[*names])], ignore_index=True)


@cache
def both() -> DataFrame:
    """Tables 2 and 5 at laptop scale: the paper's rows and our controls."""
    import pandas as pd

    names = [*deals.DEALT, "averages"]
    frame = with_halves(pd.concat(records(name) for name in names))
    frame = with_majority(frame, "laptop")
    last = frame["row"].eq("Oracle clusters")
    return frame.sort_values("K", kind="stable", key=lambda K: K + last)


def with_majority(frame: DataFrame, profile: str) -> DataFrame:
    """The runs, with a line for the majority class in each of their deals; K is 0."""
    import pandas as pd

    place = ["dataset", "setting", "seed"]
    facts = frame[[*place, "data_note"]].drop_duplicates(place)
    found = facts.merge(deals.read_majority(profile), on=place)
    if len(found) < len(facts):
        raise ValueError(
            f"majority.json lacks {len(facts) - len(found)} of {len(facts)} deals: "
            "make it with python -m fednb.papers.wecfl"
        )
    return pd.concat([found, frame], ignore_index=True)


@cache
def own_scale() -> DataFrame:
    """What there is of the runs at the paper's own scale: whole seeds of each table.

    Empty, with the columns of `both`, as long as there is none.
    """
    import pandas as pd

    found = [both().head(0)]
    for table in (*OWN_SCALE, SAME_CLASSES):
        tasks = whole_seeds(table)
        if tasks:
            runs = tables.frame(tasks, results("wecfl") / f"{table}.json", last=3)
            if table in OWN_SCALE:
                runs = with_majority(runs, "paper")
            found.append(runs)
    return pd.concat(found, ignore_index=True)


def whole_seeds(table: str) -> list[Task]:
    """The tasks of a table at the paper's own scale, of seeds that are all run.

    The control's seeds count only where the table that it belongs to has them.
    """
    have = set(tables.by_key(results("wecfl") / f"{table}.json"))
    by_seed: dict[int, list[Task]] = {}
    for task in TABLES[table]("paper"):
        by_seed.setdefault(task.seed, []).append(task)
    found = []
    for tasks in by_seed.values():
        if have.issuperset(task.key for task in tasks):
            found += tasks
    if table == SAME_CLASSES:
        seeds = {task.seed for task in whole_seeds("scale_cifar10_class")}
        found = [task for task in found if task.seed in seeds]
    return found


def company() -> DataFrame:
    """How many classes a model has to tell apart, and how accurate the rows are.

    CIFAR-10, (3, 2)-class, at the paper's own scale; `deals.classes_per_model` of the
    last round's clusters. One line for each row and seed, of seeds that the control
    has, too, so that all rows have the same ones; empty without runs.
    """
    import pandas as pd

    seeds = {task.seed for task in whole_seeds(SAME_CLASSES)}
    lines = []
    for table in ("scale_cifar10_class", SAME_CLASSES):
        path = results("wecfl") / f"{table}.json"
        records = tables.by_key(path)
        for task in whole_seeds(table):
            if task.seed not in seeds:
                continue
            curves = records[task.key]["metrics"]["curves"]
            train, _ = deals.dealt_counts(task, *deals.whole("cifar10"))
            labels = np.array(curves["labels"][-1])
            if task.tags["row"] == "IFCA as released":
                labels = np.zeros_like(labels)  # one model with many names
            line = {
                "row": task.tags["row"],
                "K": task.tags["K"],
                "seed": task.seed,
                "classes": deals.classes_per_model(train, labels),
                ACCURACY: float(np.mean(curves[ACCURACY][-3:])),
            }
            lines.append(line)
    place = {"dataset": "cifar10", "setting": "(3, 2)-class"}
    columns = ["row", "K", "seed", "classes", ACCURACY]
    return pd.DataFrame(lines, columns=columns).assign(**place)


def company_by_seed() -> DataFrame:
    """Accuracies of `company`, a line per seed, of seeds that have all its rows.

    Columns are rows with one number of clusters only.
    """
    frame = company()
    rows = ["FedAvg", "LocalOnly", "Oracle clusters", *WITH_SAME_CLASSES]
    wide = frame.pivot_table(ACCURACY, "seed", "row").reindex(columns=rows)
    return wide.dropna()


def curves(figure: str) -> dict[str, list[DataFrame]]:
    """The curves of Figure 2 or 3: a list of runs for each line."""
    path = results("wecfl") / f"{figure}.json"
    return tables.curves(TABLES[figure]("laptop"), path)


def ifca_runs() -> dict[str, list[DataFrame]]:
    """The curves of Figure 2, and of the released IFCA's parts."""
    return curves("figure2") | curves("choices")


def geometry() -> DataFrame:
    """The runs behind Figures 4, 5, 7 and 8, with their curves.

    B of a round is that of the worst cluster, the largest of the round's Q steps.
    ``B_median`` is that of the median cluster, and ``B_first`` has what B of the worst
    cluster is at the first step.
    """
    frame = read("wecfl", "geometry", TABLES["geometry"]("laptop"), course=True)
    for course, path in zip(frame["course"], steps()["course"], strict=True):
        worst = [np.max(B, axis=0) for B in path["B_steps"]]  # (C,) for each round
        course["B_first"] = course["B"]
        course["B"] = [B.max() for B in worst]
        course["B_median"] = [np.median(B) for B in worst]
    return frame


def steps() -> DataFrame:
    """The same runs, in the same order, with what only ``steps`` has kept.

    The course has ``B_steps``, a matrix (Q, C) for each round. The matrices of Figure 4
    and the picture of round 1 are columns.
    """
    tasks = TABLES["steps"]("laptop")
    frame = read("wecfl", "steps", tasks, course=True)
    found = tables.by_key(results("wecfl") / "steps.json")
    for name in ("cosines_centres", "cosines_members", "first_plane"):
        frame[name] = [found[task.key]["metrics"]["final"][name] for task in tasks]
    return frame


def mean_over_seeds(frame: DataFrame, by: list[str], value: str) -> DataFrame:
    """One line per cell of ``by``, the mean over its seeds and all else."""
    return frame.groupby(by, sort=False, as_index=False)[value].mean()


def changes(course: DataFrame) -> list[int]:
    """The rounds in which the clusters of a run changed.

    Curves tell the clusters' adjusted Rand index and completeness, so a change is seen
    if it moves one of them.
    """
    numbers = course[["ari", "completeness"]]
    moved = numbers.diff().abs().iloc[1:].gt(1e-9).any(axis=1)
    return course["round"].iloc[1:][moved].tolist()


def settled(course: DataFrame) -> int:
    """The round from which on the clusters of a run stay as they are."""
    return max([1, *changes(course)])


def for_dots(frame: DataFrame) -> DataFrame:
    """A frame with a name for each line and each panel of a dot plot."""
    alone = [deals.MAJORITY, "FedAvg", "FedProx", "LocalOnly", "Oracle clusters"]
    single = frame["row"].isin([*alone, *WITH_SAME_CLASSES])
    line = frame["row"].where(single, frame["row"] + ", K = " + frame["K"].astype(str))
    panel = frame["dataset"].map(DATASETS) + ", " + frame["setting"]
    return frame.assign(line=line, panel=panel)


# --- tables ---------------------------------------------------------------------------


def full_table(table: str, value: str) -> tables.Table:
    """Table 2 or 5: the paper's numbers and below them ours."""
    settings = {"2": CLUSTER_WISE, "5": CLIENT_WISE}[table]
    ours = both()[both()["setting"].isin(settings)].replace({"dataset": DATASETS})
    theirs = printed(table).replace({"dataset": DATASETS})
    name = {ACCURACY: "Accuracy", MACRO_F1: "Macro-F1 (union)"}[value]
    return tables.beside(
        ours,
        theirs,
        rows=["K", "row"],
        columns=["dataset", "setting"],
        value=value,
        caption=f"{name}, as in Table {table}; K is the number of models; {LAPTOP}, "
        "η = 0.01 in all rows: for IFCA as released that is ten times its own.",
    )


def levels() -> DataFrame:
    """Mean accuracy with ten models or one: a line per setting, a column per row."""
    frame = both()[both()["K"] != 5]
    means = mean_over_seeds(frame, ["dataset", "setting", "row"], ACCURACY)
    return means.pivot_table(ACCURACY, ["dataset", "setting"], "row", sort=False)


def alone() -> tuple[tables.Table, str]:
    """LocalOnly beside other rows, and in how many columns it is ahead of all."""
    level = levels()
    runs = both()[both()["K"] != 5]
    shown = [deals.MAJORITY, "FedAvg", "Random clusters", "WeCFL", "Oracle clusters"]
    shown.append("LocalOnly")
    rows = []
    beaten = []
    for (dataset, setting), line in level.iterrows():
        name = f"{DATASETS[dataset]}, {setting}"
        here = runs[runs["dataset"].eq(dataset) & runs["setting"].eq(setting)]
        pair = tables.paired(here, "row", "WeCFL", "LocalOnly", ACCURACY, ["seed"])
        numbers = [f"{100 * line[row]:.1f}".replace("nan", "–") for row in shown]
        rows.append([name, *numbers, pair.short])
        if line.idxmax() != "LocalOnly":
            beaten.append(name)
    caption = f"Accuracy in %, K = 10, {LAPTOP}, mean of three seeds, and the "
    caption += "difference in points with its 95 % interval over seeds."
    table = number_table(["", *shown, "WeCFL − LocalOnly"], rows, caption)
    words = "LocalOnly is ahead of every other row of the tables in "
    words += f"{len(rows) - len(beaten)} of {len(rows)} settings"
    if beaten:
        words += f"; the exceptions: {'; '.join(beaten)}"
    return table, words + "."


def labels_alone() -> tuple[tables.Table, DataFrame]:
    """The majority class beside WeCFL on CIFAR-10, and WeCFL's leads over it in points.

    Our numbers, and the paper's beside five deals of ours at its scale. The leads have
    a line for each setting, and a column for each side and K.
    """
    import pandas as pd

    sides = {
        "ours": (cifar(both()), cifar(deals.read_majority("laptop"))),
        "paper": (cifar(paper()), cifar(deals.read_majority("paper"))),
    }
    rows = []
    leads = {}
    for setting in SETTINGS:
        row = [setting]
        for side, (runs, dealt) in sides.items():
            base = dealt[dealt["setting"].eq(setting)][ACCURACY]
            here = runs[runs["setting"].eq(setting) & runs["row"].eq("WeCFL")]
            row.append(_mean_and_range(base))
            for K, level in here.groupby("K")[ACCURACY].mean().items():
                row.append(f"{100 * level:.1f}")
                leads[setting, side, K] = 100 * (level - base.mean())
        rows.append(row)
    heads = ["", "30 clients: majority class", "our WeCFL, K = 5", "our WeCFL, K = 10"]
    heads += ["200 clients: majority class", "the paper's WeCFL, K = 5"]
    heads += ["the paper's WeCFL, K = 10"]
    caption = f"CIFAR-10, accuracy in %. Ours: {LAPTOP}, three seeds. At 200 clients "
    caption += "the majority class is that of five deals of ours by the same laws; the "
    caption += "paper's own deals are not known. In brackets the range of deals."
    return number_table(heads, rows, caption), pd.Series(leads).unstack([1, 2])


def cifar(frame: DataFrame) -> DataFrame:
    """The lines of CIFAR-10."""
    return frame[frame["dataset"].eq("cifar10")]


def ahead_of_alone() -> tuple[list[float], list[float]]:
    """WeCFL minus LocalOnly in points: where members are alike, and elsewhere."""
    level = levels()
    lead = 100 * (level["WeCFL"] - level["LocalOnly"])
    like = lead.index.get_level_values("setting") == "α = (0.1, 10)"
    return sorted(lead[like]), sorted(lead[~like])


def costs() -> tables.Table:
    """Client updates and traffic of the rows with ten models, on CIFAR-10."""
    frame = both()[(both()["K"] != 5) & (both()["dataset"] == "cifar10")]
    means = frame.groupby("row", sort=False)[["client_updates", "bytes"]].mean()
    rows = [
        [row, f"{line['client_updates']:,.0f}", f"{line['bytes'] / 1e6:,.0f}"]
        for row, line in means.iterrows()
    ]
    heads = ["CIFAR-10, K = 10", "client updates", "traffic in MB"]
    caption = f"What a run costs; {LAPTOP}. IFCA's chosen model counts twice: when it "
    caption += "is compared, and when it is trained. As released, models that are one "
    caption += "object travel once."
    return number_table(heads, rows, caption)


def by_law() -> tables.Table:
    """FeSEM and WeCFL under both n-class laws, and what the paper prints."""
    import pandas as pd

    equal = records("equal_sizes")
    equal["law"] = "equal sizes"
    equal["setting"] = equal["setting"].str.removesuffix(", equal sizes")
    sides = [both().assign(law="released"), equal, paper().assign(law="paper")]
    by = ["dataset", "setting", "K", "law", "row"]
    frame = mean_over_seeds(pd.concat(sides), by, ACCURACY)
    frame = frame[frame["setting"].isin(["(3, 2)-class", "2-class"])]
    cells = frame.set_index(by)[ACCURACY].sort_index()
    rows = []
    for dataset, name in DATASETS.items():
        for setting in ("(3, 2)-class", "2-class"):
            for K in (5, 10):
                line = [f"{name}, {setting}, K = {K}"]
                for side in ("equal sizes", "released", "paper"):
                    both_rows = cells[dataset, setting, K, side]
                    lead = both_rows["WeCFL"] - both_rows["FeSEM"]
                    line.append(f"{100 * both_rows['WeCFL']:.1f} ({100 * lead:+.1f})")
                rows.append(line)
    spread = ["mean lead (standard deviation)"]
    for side in ("equal sizes", "released", "paper"):
        wide = cells.xs(side, level="law").unstack("row")
        leads = 100 * (wide["WeCFL"] - wide["FeSEM"])
        spread.append(f"{leads.mean():+.1f} ({leads.std():.1f})")
    rows.append(spread)
    heads = ["", "ours, equal sizes", "ours, released law", "paper"]
    caption = "WeCFL's accuracy in %, in brackets its lead over FeSEM; "
    return number_table(heads, rows, f"{caption}{LAPTOP}, mean of three seeds.")


def lead(
    rival: str, *, dataset: str | None = None, K: int | None = None, printed: Any = None
) -> float:
    """WeCFL's mean lead over a rival in points of accuracy: ours, or the paper's.

    Of one data set, or with one K, if given. ``printed`` is a frame of the paper's
    numbers.
    """
    frame = both() if printed is None else printed
    if dataset is not None:
        frame = frame[frame["dataset"] == dataset]
    if K is not None:
        frame = frame[frame["K"] == K]
    mean = frame.groupby("row")[ACCURACY].mean()
    return 100 * float(mean["WeCFL"] - mean[rival])


def measures() -> tables.Table:
    """Rows of both tables with ten models or one, by five measures, at laptop scale."""
    frame = both()[both()["row"] != "Oracle clusters"]  # which Table 5 has not
    where = "Mean of the eight settings; accuracy by samples and macro-F1 (union) are "
    where += f"means of three rounds, the others of the last one; {LAPTOP}."
    return _measures(frame, where)


def own_measures(dataset: str, setting: str) -> tables.Table:
    """The same for one setting at the paper's own scale."""
    own = own_cell(dataset, setting)
    where = f"{DATASETS[dataset]}, {setting}, means of three rounds; {OWN}, "
    return _measures(own, f"{where}{number_of_seeds(own)}.")


def _measures(frame: DataFrame, where: str) -> tables.Table:
    """Five measures of rows with ten models or one; ``where`` ends the caption."""
    names = {
        ACCURACY: "accuracy by samples",
        "accuracy": "accuracy by clients",
        "balanced_accuracy": "balanced accuracy",
        "macro_f1": "macro-F1 (true classes)",
        MACRO_F1: "macro-F1 (union)",
    }
    frame = frame[frame["K"] != 5]
    means = 100 * frame.groupby("row", sort=False)[[*names]].mean()
    rows = [
        [str(row), *(f"{line[name]:.1f}" for name in names)]
        for row, line in means.iterrows()
    ]
    caption = "Five measures in %, ten models or one. Balanced accuracy and macro-F1 "
    caption += f"count classes alike. {where}"
    return number_table(["", *names.values()], rows, caption)


def scales(dataset: str, setting: str) -> tables.Table:
    """One column of Table 2: the paper's numbers, ours at both scales."""
    own = own_cell(dataset, setting)
    laptop = cell(both(), dataset, setting)
    sides = {
        "paper": cell(paper(), dataset, setting),
        "laptop scale": laptop,
        "the paper's scale": own,
    }
    found = {name: for_dots(frame).groupby("line") for name, frame in sides.items()}
    rows = []
    for line in for_dots(own)["line"].unique():
        row = [line]
        for groups in found.values():
            numbers = "–"
            if line in groups.groups:
                numbers = _mean_and_range(groups.get_group(line)[ACCURACY])
            row.append(numbers)
        rows.append(row)
    caption = f"Accuracy in %, {DATASETS[dataset]}, {setting}; in brackets the range "
    caption += f"of seeds. At {LAPTOP}: {number_of_seeds(laptop)}. At {OWN}, on the "
    caption += "whole data set with its official test images: "
    caption += f"{number_of_seeds(own)}; {run_times(own)}."
    return number_table(["", *sides], rows, caption)


def cell(frame: DataFrame, dataset: str, setting: str) -> DataFrame:
    """The lines of one data set and setting."""
    return frame[frame["dataset"].eq(dataset) & frame["setting"].eq(setting)]


def own_cell(dataset: str, setting: str) -> DataFrame:
    """The lines of one data set and setting at the paper's own scale."""
    return cell(own_scale(), dataset, setting)


def number_of_seeds(frame: DataFrame) -> str:
    """How many seeds a frame has, in words."""
    number = frame["seed"].nunique()
    return "one seed" if number == 1 else f"{number} seeds"


def run_times(frame: DataFrame) -> str:
    """What runs took, in words; every run has one core."""
    minutes = frame["seconds"] / 60
    words = f"{minutes.min():.0f} to {minutes.max():.0f} minutes of one core a run, "
    return f"{words}{minutes.sum() / 60:.1f} core hours in all"


def _mean_and_range(shares: Series) -> str:
    """A mean in percent, and the range of several runs."""
    words = f"{100 * shares.mean():.1f}"
    if len(shares) == 1:
        return words
    return f"{words} ({100 * shares.min():.1f} to {100 * shares.max():.1f})"


def gap_to_alone(after: int) -> float:
    """WeCFL with ten clusters minus LocalOnly in points, after so many rounds.

    CIFAR-10, (3, 2)-class, at the paper's own scale; the mean over seeds.
    """
    table = "scale_cifar10_class"
    tasks = [task for task in whole_seeds(table) if task.tags["K"] != 5]
    runs = tables.curves(tasks, results("wecfl") / f"{table}.json")
    levels = [
        np.mean([run.set_index("round")[ACCURACY][after] for run in runs[row]])
        for row in ("WeCFL", "LocalOnly")
    ]
    return 100 * float(levels[0] - levels[1])


def levels_at_own_scale(dataset: str, setting: str) -> tuple[Series, Series]:
    """Accuracy by row at the paper's own scale, ten models or one: ours, and theirs."""
    ours, theirs = (
        frame[frame["K"] != 5].groupby("row", sort=False)[ACCURACY].mean()
        for frame in (own_cell(dataset, setting), cell(paper(), dataset, setting))
    )
    return ours, theirs


def own_cells() -> list[tuple[str, str]]:
    """The cells that have runs at the paper's own scale."""
    found = own_scale()[["dataset", "setting"]].drop_duplicates()
    return [(line["dataset"], line["setting"]) for _, line in found.iterrows()]


def ifca_gaps() -> tuple[tables.Table, str]:
    """IFCA minus FedAvg and minus WeCFL: in the paper, ours, as released.

    The words say in how many lines the released one is below FedAvg. A star marks a
    cell in which runs of an earlier reading of the released code stand in.
    """
    sides = {
        "minus FedAvg: paper": (paper(), "IFCA", "FedAvg"),
        "minus FedAvg: ours": (both(), "IFCA", "FedAvg"),
        "minus FedAvg: as released, η = 0.01": (both(), "IFCA as released", "FedAvg"),
        "minus WeCFL: paper": (paper(), "IFCA", "WeCFL"),
        "minus WeCFL: ours": (both(), "IFCA", "WeCFL"),
    }
    old = standing_in()
    rows = []
    below = 0
    for dataset, name in DATASETS.items():
        for setting in SETTINGS:
            line = [f"{name}, {setting}"]
            for frame, row, base in sides.values():
                here = frame["dataset"].eq(dataset) & frame["setting"].eq(setting)
                mean = frame[here].groupby("row")[ACCURACY].mean()  # over seeds and K
                star = "*" if (dataset, setting, row) in old else ""
                gap = 100 * (mean[row] - mean[base])
                below += row == "IFCA as released" and gap < 0
                line.append(f"{gap:+.1f}{star}")
            rows.append(line)
    caption = "IFCA's accuracy minus that of FedAvg and of WeCFL, in points; K = 5 and "
    caption += f"10 averaged; {LAPTOP}."
    if old:
        caption += " * Runs with one model object, but with choices by all samples."
    words = (
        "As released, but at our η = 0.01, ten times the released one, IFCA is below "
    )
    words += f"FedAvg in {below} of {len(rows)} lines."
    return number_table(["IFCA", *sides], rows, caption), words


def standing_in() -> set[tuple[Any, ...]]:
    """Cells and rows of Tables 2 and 5 with runs that await their successors."""
    found = set()
    for table in deals.DEALT:
        tasks = TABLES[table]("laptop")
        due = tables.pending(tasks, results("wecfl") / f"{table}.json")
        for task in tasks:
            if task.key in due:
                found.add((task.dataset, task.tags["setting"], task.tags["row"]))
    return found


def stability() -> tables.Table:
    """How often clusters change in Figure 2's runs, and where the runs end."""
    rows = []
    for row, runs in ifca_runs().items():
        counts = [len(changes(course)) for course in runs]
        ends = [100 * course[ACCURACY].iloc[-3:].mean() for course in runs]
        words = ", ".join(map(str, counts))
        if row in ("FedAvg", "FedAvg, η = 0.001", "LocalOnly", "Oracle clusters"):
            words = "–"  # nothing to choose
        rows.append([row, words, ", ".join(f"{x:.1f}" for x in ends)])
    heads = [
        "Figure 2",
        "rounds with a change of clusters",
        "accuracy in %, rounds 28–30",
    ]
    caption = "Three seeds each, 30 rounds, η = 0.01 unless said; CIFAR-10, "
    caption += "(3, 2)-class, 30 clients. A change of clusters is seen if it moves the "
    caption += "adjusted Rand index or the completeness."
    return number_table(heads, rows, caption)


def variants() -> tuple[tables.Table, list[str]]:
    """Each difference by itself: the table, and which are clear of zero.

    Variants with the same numbers share a line.
    """
    frame = records("variants")
    names: dict[tuple[str, ...], list[str]] = {}  # numbers -> variants
    clear = []
    for setting, part in frame.groupby("setting", sort=False):
        for row, own in part.groupby("row", sort=False):
            base = own["base"].iloc[0]
            line = []
            for metric in CURVES:
                if row == base:
                    line.append(f"{100 * own[metric].mean():.1f}")
                    continue
                pair = tables.paired(part, "row", row, base, metric, ["seed"])
                line.append(pair.short.replace("+0.0 (+0.0 to +0.0)", "the same"))
                if pair.low > 1e-9 or pair.high < -1e-9:
                    name = {ACCURACY: "accuracy", MACRO_F1: "macro-F1"}[metric]
                    clear.append(f"{row} ({name})")
            ari = own["ari"].mean()
            line.append("–" if np.isnan(ari) else f"{ari:.2f}")
            names.setdefault((str(setting), *line), []).append(str(row))
    rows = [
        [f"{setting}: {'; '.join(same)}", *numbers]
        for (setting, *numbers), same in names.items()
    ]
    heads = ["variant", "accuracy", "macro-F1 (union)", "Rand"]
    caption = (
        "Points of difference from the run it is compared with, 95 % interval over "
    )
    caption += "three seeds; lines without a sign are those runs, in %. Rand: adjusted "
    caption += f"Rand index. Fashion-MNIST, K = 10, {LAPTOP}. No eval mode: BatchNorm "
    caption += "uses the statistics of a client's own test samples. Copies: clients "
    caption += "that are too small are replaced by copies of others. The released code "
    caption += "does both."
    return number_table(heads, rows, caption), clear


def race_table(deal: str, histories: dict[str, Any]) -> tables.Table:
    """Where a race ends: accuracy, macro-F1 and adjusted Rand index."""
    names = {
        "accuracy": "accuracy",
        "macro_f1": "macro-F1 (true classes)",
        "ari": "adjusted Rand index",
    }
    rows = []
    for method, history in histories.items():
        rows.append([method, *(f"{history.final[name]:.3f}" for name in names)])
    caption = f"{deal}, after ten rounds on the digits; means over clients."
    return number_table(["", *names.values()], rows, caption)


def geometry_table(frame: DataFrame) -> tables.Table:
    """Figure 4 and B of Eq. 5 in numbers, after the first and the last round."""
    names = {
        "cosine_centres": "cosine of centres",
        "cosine_members": "cosine of members",
        "to_centre": "client to centre",
        "between": "least distance of centres",
        "B": "B, worst cluster",
        "B_median": "B, median cluster",
    }
    rows = []
    for (dataset, row), runs in frame.groupby(["dataset", "row"], sort=False):
        for place in (0, -1):
            ends = [course.iloc[place] for course in runs["course"]]
            means = [np.mean([line[metric] for line in ends]) for metric in names]
            head = f"{DATASETS.get(dataset, dataset)}, {row}, "
            head += f"after round {ends[0]['round']}"
            rows.append([head, *(f"{x:.3f}" for x in means)])
    caption = f"Clients and centres on α = (0.1, 10), mean of the seeds; {LAPTOP}. "
    caption += f"B: {WHICH_STEPS}; the worst client of a cluster, on all samples of "
    caption += "a client, with BatchNorm as in training. Cosines are means over all "
    caption += "dense layers and all pairs; the paper speaks of every pair of one "
    caption += "cluster. Its Figure 4 names no data set; in the released code its "
    caption += "matrix has the size of the CIFAR-10 network's last layer."
    return number_table(["", *names.values()], rows, caption)


# --- counts for the text --------------------------------------------------------------


def exact_recoveries() -> dict[str, int]:
    """In how many seeds of that deal FeSEM and WeCFL find the hidden groups exactly."""
    frame = both()
    here = frame["dataset"].eq(deals.DATASET) & frame["setting"].eq("α = (0.1, 10)")
    rows = frame[here & frame["K"].eq(10) & frame["row"].isin(["FeSEM", "WeCFL"])]
    return rows["ari"].eq(1).groupby(rows["row"]).sum().to_dict()
