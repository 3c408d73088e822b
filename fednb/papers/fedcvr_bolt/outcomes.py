"""What came out of the runs of FedCVR-Bolt's chapter: records as frames and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import claims, data, metrics, tables
from ..common import read, results
from . import tasks, theory

if TYPE_CHECKING:
    from pandas import DataFrame


PAPER = "fedcvr_bolt"
REGRESSION = ("table1_d1_iid", "table1_d1_noniid", "table1_d2_iid", "table1_d2_noniid")
SYNTHETIC = ("synthetic_rivals", "synthetic_parts", "synthetic_beta")
SCALES = {"laptop": "laptop scale", "paper": "the paper's scale"}  # profiles in words
SYNTHETIC_SCALES = {  # the paper says less of Synthetic: see the settings on the page
    "laptop": "60 rounds, ten steps, η = 0.02",
    "paper": "100 rounds, ten steps, η = 0.01",
}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LAST = 5  # rounds whose mean is reported, and over which a run goes up and down
BOLT = "FedCVR-Bolt as released"
PICK = "as released, uniform pick"
CORRECTED = "FedCVR-Bolt corrected"
TURNS = "FedAvg in turn"
GREEDY = "as released, β = inf"
RIVALS = ("FedAvg", "Power-of-Choice", "Active FL")
SHUFFLED = "as released, shuffled coalitions"
WEIGHTED = "as released, weight of the coalition"
# Shuffled coalitions are lots once more, and pictures say so.
SHOWN = {SHUFFLED: "other lots (shuffled)"}
ONE_FIT = "one fit to all data"  # least squares on all training data: nobody's method


# --- records --------------------------------------------------------------------------


def printed(table: str):
    """The paper's own numbers of Table "1", "2" or "4", accuracies as shares; a
    DataFrame with our tags.
    """
    return tables.printed(Path(__file__).with_name("printed.csv"), table)


def verdicts() -> list[claims.Claim]:
    """The chapter's claims with their verdicts, as written beside the records."""
    return claims.read(results(PAPER) / "verdicts.json")


def records(*names: str, profile: str = "laptop") -> DataFrame:
    """One line per run of some tables.

    A metric is its mean over the last five rounds. ``unrest`` is the standard deviation
    of the error or accuracy over them, ``area`` the mean of its curve after the
    warm-up, by the trapezoidal rule.
    """
    import pandas as pd

    frames = []
    for name in names:
        runs = tasks.TABLES[name](profile)
        frame = read(PAPER, name, runs, last=LAST, course=True)
        value = "mse" if name.startswith("table1") else "accuracy"
        warmups = [getattr(task.method, "warmup", None) for task in runs]
        warmup = max(w for w in warmups if w is not None)
        frame["unrest"] = [course[value][-LAST:].std() for course in frame["course"]]
        frame["area"] = [area(course, value, warmup) for course in frame["course"]]
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def area(course: DataFrame, value: str, start: int) -> float:
    """Mean height of a curve from round ``start`` on, by the trapezoidal rule.

    Rounds need not lie equally far apart. A run with fewer than two such rounds has
    none (nan).
    """
    late = course[course["round"] >= start]
    if len(late) < 2:
        return float("nan")
    x = late["round"].to_numpy(float)
    y = late[value].to_numpy(float)
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def regression(profile: str = "paper") -> DataFrame:
    """Table 1's runs, and those with one switch at a time."""
    frame = records(*REGRESSION, "table1_parts", profile=profile)
    frame["log_mse"] = np.log(frame["mse"])
    frame["log_unrest"] = np.log(frame["unrest"])
    return frame.assign(scale=SCALES[profile])


def synthetic(profile: str = "paper") -> DataFrame:
    """The runs on Synthetic(1, 1), under one name."""
    frame = records(*SYNTHETIC, profile=profile)
    return frame.assign(dataset="synthetic", scale=SYNTHETIC_SCALES[profile])


def images(setting: str = "α = 0.1") -> DataFrame:
    """The laptop runs on MNIST, CIFAR-10 and CIFAR-100, or MNIST dealt IID."""
    frame = records("table2")
    return frame[frame["setting"] == setting]


def own_scale(dataset: str) -> DataFrame | None:
    """Runs at the paper's own scale, whole seeds only; None if there are none yet."""
    name = f"{dataset}_paper"
    path = results(PAPER) / f"{name}.json"
    if not path.exists():
        return None
    done = tables.by_key(path)
    runs = tasks.TABLES[name]("paper")
    missing = {task.seed for task in runs if task.key not in done}
    whole = [task for task in runs if task.seed not in missing]
    if not whole:
        return None
    frame = read(PAPER, name, whole, last=LAST, course=True)
    warmup = tasks.SCALES["paper"].warmup
    courses = frame["course"]
    frame["unrest"] = [course["accuracy"][-LAST:].std() for course in courses]
    frame["area"] = [area(course, "accuracy", warmup) for course in courses]
    return frame


class Grouped(NamedTuple):
    """The coalitions of a run in some rounds, and what they might have in common."""

    rounds: list[int]  # counted from 1
    coalitions: list[np.ndarray]  # (K,) for each of these rounds
    dates: list[np.ndarray]  # (K,) the round when a client was last seen; 0: never
    kinds: np.ndarray  # (K,) each client's most frequent class

    def agreement(self, seen_only: bool = False) -> tuple[list[float], list[float]]:
        """AMI of coalitions with dates, and with kinds, in each of the rounds.

        ``seen_only`` leaves out clients that were never seen: they are one coalition by
        necessity, since the server has the same row for all of them.
        """
        with_dates = []
        with_kinds = []
        for coalitions, dates in zip(self.coalitions, self.dates, strict=True):
            kept = dates > 0 if seen_only else np.full(len(dates), True)
            with_dates.append(metrics.ami(dates[kept], coalitions[kept]))
            with_kinds.append(metrics.ami(self.kinds[kept], coalitions[kept]))
        return with_dates, with_kinds

    def never_seen(self) -> float:
        """Share of clients that were not seen in the warm-up."""
        return float((self.dates[0] == 0).mean())


def grouped_record(
    curves: Mapping[str, Sequence[Any]], kinds: np.ndarray, warmup: int
) -> Grouped:
    """The coalitions that a record keeps, after the warm-up.

    The coalitions of a round are formed before its clients train, so a date is a round
    before it.
    """
    who = tasks.trained(curves["odd"], len(kinds))  # (rounds, K)
    found = Grouped([], [], [], kinds)
    last = np.zeros(len(kinds), int)
    for t, text in enumerate(curves["coalitions"]):
        if text and t >= warmup:
            found.rounds.append(t + 1)
            found.coalitions.append(tasks.numbers(text))
            found.dates.append(last.copy())
        last[who[t]] = t + 1
    return found


def recorded_groups(dataset: str) -> dict[int, Grouped]:
    """The coalitions as released at the paper's own scale, by seed; {} without runs."""
    frame = own_scale(dataset)
    if frame is None:
        return {}
    name = f"{dataset}_paper"
    done = tables.by_key(results(PAPER) / f"{name}.json")
    seeds = set(frame["seed"])
    found = {}
    for task in tasks.TABLES[name]("paper"):
        if task.tags["row"] == BOLT and task.seed in seeds:
            record = done[task.key]["metrics"]
            kinds = tasks.numbers(record["final"]["kinds"])
            found[task.seed] = grouped_record(
                record["curves"], kinds, task.method.warmup
            )
    return found


def runs_needed() -> DataFrame:
    """Table 1's printed leads with two groups, in per cent, and the unpaired runs that
    each would need. With one group the paper claims none.
    """
    table = printed("1").astype({"D": int}).query("heterogeneity == 'non-IID'")
    bolt = table[table["row"] == BOLT]
    rivals = table[table["row"] != BOLT]
    cells = rivals.merge(bolt, on=["D", "heterogeneity"], suffixes=("", "_bolt"))
    cells["lead"] = 100 * (1 - cells["mse_bolt"] / cells["mse"])
    cells["runs"] = [
        theory.seeds_needed(cell.mse - cell.mse_bolt, cell.mse_std, cell.mse_std_bolt)
        for cell in cells.itertuples()
    ]
    return cells[["D", "heterogeneity", "row", "lead", "runs"]]


def differences(frame: DataFrame, base: str, value: str = "accuracy") -> DataFrame:
    """Each row's paired difference from a base over seeds: mean, low, high.

    In points; in per cent, the minus sign for less, if ``value`` is a logarithm.
    """
    import pandas as pd

    def unit(x: float) -> float:
        return 100 * (np.expm1(x) if value.startswith("log_") else x)

    lines = []
    for row in frame["row"].unique():
        if row != base:
            pair = tables.paired(frame, "row", row, base, value, ["seed"])
            lines.append((row, *map(unit, pair[:3])))
    return pd.DataFrame(lines, columns=["row", "mean", "low", "high"])


def with_one_fit(part: DataFrame) -> DataFrame:
    """A cell of Table 1 with a further row: one least-squares fit to all training
    data.
    """
    import pandas as pd

    one = part[part["row"] == "FedAvg"].assign(row=ONE_FIT)
    errors = [theory.pooled(*data.generate(name)) for name in one["dataset"]]
    one["log_mse"] = np.log(errors)
    return pd.concat([part, one], ignore_index=True)


def table1_differences(kind: str = "non-IID") -> dict[str, DataFrame]:
    """Two cells of Table 1: by how many per cent each error differs from FedAvg's."""
    frame = regression()
    groups = "one group" if kind == "IID" else "two groups"
    found = {}
    for D in (1, 2):
        part = frame[(frame["D"] == D) & (frame["heterogeneity"] == kind)]
        if kind == "non-IID":
            part = with_one_fit(part)
        found[f"D = {D}, {groups}"] = differences(part, "FedAvg", "log_mse")
    return found


def unrest_table() -> dict[str, DataFrame]:
    """How steady the last rounds are, as a multiple of FedAvg's standard deviation."""
    frame = regression()
    found = {}
    for D in (1, 2):
        part = frame[(frame["D"] == D) & (frame["heterogeneity"] == "non-IID")]
        cell = differences(part, "FedAvg", "log_unrest")
        for name in ("mean", "low", "high"):
            cell[name] = 1 + cell[name] / 100
        found[f"D = {D}, two groups"] = cell
    return found


def image_differences() -> dict[str, DataFrame]:
    """Table 2's data sets at laptop scale: points above or below FedAvg."""
    frame = images()
    found = {}
    for name, title in TITLES.items():
        part = frame[frame["dataset"] == name]
        found[title] = differences(part, "FedAvg")
    return found


def mnist() -> DataFrame:
    """MNIST at the paper's own scale, or at laptop scale until that has been run."""
    own = own_scale("mnist")
    if own is not None:
        return own.assign(scale="the paper's scale")
    laptop = images()
    return laptop[laptop["dataset"] == "mnist"].assign(scale="laptop scale")


def largest_difference(frame: DataFrame) -> float:
    """The mean difference from FedAvg that is farthest from zero, in points."""
    return float(differences(frame, "FedAvg")["mean"].abs().max())


def both_scales() -> DataFrame:
    """The image data, by their titles, at laptop scale and, where run, at the
    paper's.
    """
    import pandas as pd

    frames = [images().assign(scale="laptop scale")]
    for dataset in ("mnist", "cifar10"):
        own = own_scale(dataset)
        if own is not None:
            frames.append(own.assign(scale="the paper's scale"))
    whole = pd.concat(frames, ignore_index=True)
    return whole.assign(data=whole["dataset"].map(TITLES))


def printed_images() -> DataFrame:
    """Tables 2 and 4 in one frame, every cell once."""
    import pandas as pd

    both = pd.concat([printed("2"), printed("4")]).drop_duplicates(["dataset", "row"])
    return both.assign(data=both["dataset"].map(TITLES))


def own_differences() -> dict[str, DataFrame]:
    """Points above or below FedAvg at the paper's own scale; {} without runs."""
    found = {}
    for dataset in ("mnist", "cifar10"):
        own = own_scale(dataset)
        if own is not None:
            found[f"{TITLES[dataset]}, {seeds(own)}"] = differences(own, "FedAvg")
    return found


def mnist_measures() -> tables.Table:
    """The rows of MNIST by further measures, and what each of them sends."""
    frame = mnist()
    means = frame.groupby("row", sort=False).mean(numeric_only=True)
    heads = {
        "accuracy": "accuracy",
        "balanced_accuracy": "balanced",
        "macro_f1": "macro-F1",
        "unrest": "unrest",
    }
    rows = []
    for row, mean in means.iterrows():
        cells = [_per_cent(mean[name]) for name in heads]
        cells += [f"{mean['evenness']:.2f}", f"{mean['bytes'] / 1e6:,.0f}"]
        rows.append((str(row), *cells))
    caption = f"MNIST, {frame['scale'].iloc[0]}, mean of {seeds(frame)}."
    if "balanced_accuracy" not in frame["course"].iloc[0]:
        caption += " Balanced accuracy and macro-F1 are those of the last round."
    caption += (
        " Accuracies and F1 in %; unrest is the sd of accuracy over the last five "
        "rounds, in points. Evenness is 1 if all clients trained equally often. MB "
        "sent: both ways, over the whole run, with the models sent to ask for a loss."
    )
    names = ("row", *heads.values(), "evenness", "MB sent")
    return tables.words(names, rows, caption, kind="numbers")


def _per_cent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f}"


def seeds(frame: DataFrame) -> str:
    """How many seeds some runs have, in words."""
    n = frame["seed"].nunique()
    return "1 seed" if n == 1 else f"{n} seeds"
