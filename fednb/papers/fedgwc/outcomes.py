"""What came out of the runs of FedGWC's chapter: records as frames and numbers.

The tables that the chapter shows are made from these, in `shown`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from ... import metrics, tables
from ...door import num_sampled
from ...methods import FedGWC
from ...methods.fedgwc import DRAWS, groupless
from ...views import Arms
from .. import common
from .controls import arm_key
from .tasks import (
    EPSILONS,
    SCALES,
    TABLES,
    lookers,
    other_betas,
    printed_rules,
    rules,
    steps_to_released,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...sweeps import Task


VALUE = "balanced_accuracy"
COUNTS = ("clusters", "client_updates")  # told as they are at the end, never averaged
NO_TEST = "FedGWC, no test"
REPLAYED = "Random members, same splits"
NAMES = {  # rows as the page calls them; a plain FedGWC() has a test of ours
    "no clusters": "FedAvg",
    "FedGWC": "FedGWC with our test",
    NO_TEST: "FedGWC without our test",
    "Random members": "random members, with our test",
    REPLAYED: "random members, same splits",
}
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
MIXED = ("(10, 0, 90)", "(10, 90, 0)", "(40, 30, 30)")  # mixes of Tables 3 and 6
LEVELS_SPOKEN = {  # mixes of Tables 3 and 6, in per cent of the clients
    "(10, 0, 90)": "10 % all classes, 90 % one",
    "(10, 90, 0)": "10 % all classes, 90 % few",
    "(40, 30, 30)": "40 % all, 30 % few, 30 % one",
    "α = 0.5": "all few",
}
WATCHED_SPOKEN = {  # the watched runs in words
    "α = 0.5": "CIFAR-100, three or four classes a client",
    "α = 0.05": "one or two classes a client",
    "(40, 30, 30)": "three levels",
    "(100, 0, 0)": "homogeneous",
    "clean, noise, blur": "three domains",
}
LEVEL_SIZES = {"levels": (16, 12, 12), "equal clients": (40,)}  # of table ``looks``
SPOKEN = {  # rules whose short name hides a second change
    "+ normalised rewards": "+ normalised rewards (MSE over updated entries)",
    "+ patience": "+ patience, and a fresh start after a look without a split",
    "+ α = P / K": "+ rate = share sampled, weighted means",
    "+ scored on the embedding": "+ scored on the embedding, QR",
    "corrected, constant α": "corrected, constant rate",
}


# --- the paper's own numbers ---


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


def printed_of(*numbers: str) -> DataFrame:
    """The paper's numbers of several tables, one below the other."""
    import pandas as pd

    return pd.concat([printed(number) for number in numbers], ignore_index=True)


# --- a table's runs ---


def stored(table: str, last: int = 1, profile: str = "laptop") -> DataFrame:
    """One line per run of a table, with means over the last evaluations."""
    return common.read("fedgwc", table, TABLES[table](profile), last=last)


def last_three(table: str) -> DataFrame:
    """The frame of a laptop table, with accuracies as means of three evaluations."""
    return stored(table).assign(**{VALUE: stored(table, last=3)[VALUE]})


def courses(
    table: str = "longer", profile: str = "laptop"
) -> dict[str, list[DataFrame]]:
    """The curves of a table's runs: for each row a list, one frame per seed."""
    path = common.results("fedgwc") / f"{table}.json"
    return tables.curves(TABLES[table](profile), path)


def stored_in_step(table: str) -> DataFrame:
    """`stored`, with each metric taken within FedGWC's rounds: see `in_step`."""
    records = tables.by_key(common.results("fedgwc") / f"{table}.json")
    return in_step(stored(table), records, table=table)


def in_step(
    frame: DataFrame,
    records: dict[str, dict[str, Any]],
    last: int = 3,
    table: str = "cifar100",
) -> DataFrame:
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


def joined(*frames: DataFrame) -> DataFrame:
    """Frames one below the other, with the columns that they share."""
    import pandas as pd

    return pd.concat(frames, join="inner", ignore_index=True)


def _in_place_of(runs: DataFrame, others: DataFrame) -> DataFrame:
    """The runs, with rows of the others instead of their own of the same name."""
    return joined(runs[~runs["row"].isin(others["row"])], others)


# --- the paper's tables, one by one ---


def single_models() -> DataFrame:
    """Table 1's rows: no clusters, clusters of models, and controls, in our order."""
    runs = stored_in_step("cifar100")
    runs = runs[runs["aggregator"].isin(["FedAvg", "none"]) | runs["C"].eq(1)]
    runs = one_cluster(runs)
    return runs.sort_values(
        "row", key=lambda rows: rows.map(ORDER.index), kind="stable"
    )


def aggregators() -> DataFrame:
    """Table 9's rows: six aggregators, without and with FedGWC."""
    runs = stored_in_step("cifar100")
    return one_cluster(runs[runs["row"].isin(["no clusters", "FedGWC"])])


def one_cluster(runs: DataFrame) -> DataFrame:
    """The runs, one cluster for pFedMe and Per-FedAvg: a client's model is none."""
    plain = runs["row"] == "no clusters"
    return runs.assign(clusters=runs["clusters"].mask(plain, 1))


def betas() -> DataFrame:
    """Table 5's rows: FedGWC with five values of β."""
    import pandas as pd

    half = aggregators().query("row == 'FedGWC' and aggregator == 'FedAvg'")
    runs = pd.concat([stored_in_step("beta"), half.assign(beta="0.5")])
    return runs.sort_values("beta", kind="stable")


def emnist_courses() -> dict[tuple[str, str, str], list[DataFrame]]:
    """The curves of ``emnist_small`` by row, aggregator and β; a list has the seeds."""
    path = common.results("fedgwc") / "emnist_small.json"
    out: dict[tuple[str, str, str], list[DataFrame]] = {}
    for task in TABLES["emnist_small"]("laptop"):
        row, name, beta = (str(task.tags[tag]) for tag in ("row", "aggregator", "beta"))
        (course,) = tables.curves([task], path)[row]
        out.setdefault((row, name, beta), []).append(course)
    return out


def levels() -> DataFrame:
    """Tables 3 and 6: where levels of heterogeneity are mixed."""
    runs = stored("heterogeneity")
    return runs[runs["setting"] != "(100, 0, 0)"]


def domains() -> DataFrame:
    """Tables 4 and 7: clean, noisy and blurred images."""
    runs = stored("domains")
    return runs.assign(dataset=runs["base"])


def alike() -> DataFrame:
    """The homogeneous federations of Figure 6."""
    runs = stored("heterogeneity")
    return runs[runs["setting"] == "(100, 0, 0)"]


def sampled_after_split() -> list[int]:
    """Clients in a round after the split, for each run of `levels` that split."""
    records = tables.by_key(common.results("fedgwc") / "heterogeneity.json")
    out = []
    for task in TABLES["heterogeneity"]("laptop"):
        if task.tags["row"] != "FedGWC" or task.tags["setting"] == "(100, 0, 0)":
            continue
        last = records[task.key]["metrics"]["curves"]["labels"][-1]
        sizes = np.bincount(last).tolist()
        if len(sizes) > 1:
            method = task.method
            each = [num_sampled(method.sampled, n) for n in sizes]
            out.append(sum(max(method.least, n) for n in each))
    return out


def final_sizes(row: str) -> list[list[int]]:
    """The sizes of a row's clusters at the end of the long runs, a list per seed."""
    labels = [np.asarray(run["labels"].iloc[-1]) for run in courses()[row]]
    return [np.bincount(own).tolist() for own in labels]


# --- larger runs, whole seeds only ---


def own_scale(table: str) -> DataFrame | None:
    """The runs of a larger table, whole seeds only; None if there are none.

    Metrics are means over the last three evaluations; clusters and client updates are
    those at the end.
    """
    made = _whole_seeds(table)
    if not made:
        return None
    runs = row_by_row(table, made, last=3)
    at_the_end = row_by_row(table, made)
    for count in COUNTS:
        runs[count] = at_the_end[count]
    return runs


def row_by_row(table: str, tasks: Sequence[Task], **how: Any) -> DataFrame:
    """`common.read`, with a line for each arm of a task whose methods run in step.

    An arm has its own scores, and the client updates and bytes that it costs alone;
    only the seconds are those of all arms together.
    """
    import pandas as pd

    parts = []
    for task in tasks:
        run = common.read("fedgwc", table, [task], **how)
        if not isinstance(task.method, Arms):
            parts.append(run)
            continue
        whole = run[[name for name in run.columns if "|" not in name]]
        for row, _ in task.method.arms:
            own = scores_of_arm(run, row).iloc[0].to_dict()
            parts.append(whole.assign(row=row, **own))
    return pd.concat(parts, ignore_index=True)


def scores_of_arm(frame: DataFrame, row: str) -> DataFrame:
    """The columns that `controls.measure_arms` wrote for one arm, by score."""
    start = arm_key(row, "")
    own = frame[[name for name in frame.columns if name.startswith(start)]]
    return own.rename(columns=lambda name: name[len(start) :])


def own_courses(table: str) -> dict[str, list[DataFrame]]:
    """The curves of a larger table by row, whole seeds only; a list has the seeds."""
    path = common.results("fedgwc") / f"{table}.json"
    out: dict[str, list[DataFrame]] = {}
    for task in _whole_seeds(table):
        name = str(task.tags["row"])
        (course,) = tables.curves([task], path)[name]
        if not isinstance(task.method, Arms):
            out.setdefault(name, []).append(course)
            continue
        for row, _ in task.method.arms:
            own = scores_of_arm(course, row).assign(round=course["round"])
            out.setdefault(row, []).append(own)
    return out


def _whole_seeds(table: str) -> list[Task]:
    """The tasks of a larger table whose seed is run to the end in all rows."""
    path = common.results("fedgwc") / f"{table}.json"
    if not path.exists():
        return []
    done = tables.by_key(path)
    wanted = [*TABLES[table]("workstation"), *TABLES[table]("paper")]
    missing = {task.seed for task in wanted if task.key not in done}
    return [task for task in wanted if task.seed not in missing]


# --- FedGWC without our test ---


def untested(*settings: str) -> DataFrame:
    """FedGWC without our test, and random members at its splits, in these settings."""
    runs = stored("untested")
    return runs[runs["setting"].isin(settings)]


def untested_courses() -> dict[str, list[DataFrame]]:
    """The curves of FedGWC without our test, and of its control, in 480 rounds."""
    tasks = TABLES["untested"]("laptop")
    long = [task for task in tasks if task.tags["setting"] == "α = 0.5"]
    return tables.curves(long, common.results("fedgwc") / "untested.json")


def shown_levels() -> DataFrame:
    """The runs of `levels` as the page shows them.

    With FedGWC without our test and its control, and with IFCA and FeSEM at FedGWC's
    client updates.
    """
    return joined(_fair_levels(), untested(*MIXED))


def _fair_levels() -> DataFrame:
    """The runs of `levels`, with IFCA and FeSEM at FedGWC's client updates."""
    return _in_place_of(levels(), stored("level_rivals"))


def moved_members() -> list[bool]:
    """Whether members changed at the last evaluation, for each run of `level_rivals`.

    These are IFCA and FeSEM; the evaluation is held against the one before.
    """
    records = tables.by_key(common.results("fedgwc") / "level_rivals.json")
    out = []
    for task in TABLES["level_rivals"]("laptop"):
        labels = records[task.key]["metrics"]["curves"]["labels"]
        out.append(metrics.rand_index(labels[-2], labels[-1]) < 1)
    return out


def in_order(runs: DataFrame) -> DataFrame:
    """Runs of Tables 1, 3 and 6 by data set, setting and row, as the page has them."""
    rows = ["FedGWC", NO_TEST, REPLAYED, "Random members", "IFCA", "FeSEM", "Oracle"]
    order = {
        "dataset": ["cifar100", "cifar10"],
        "setting": ["α = 0.5", *MIXED],
        "row": rows,
    }
    places = {name: runs[name].map(values.index) for name, values in order.items()}
    ranked = runs.assign(**{f"{name} place": at for name, at in places.items()})
    return ranked.sort_values([f"{name} place" for name in order], kind="stable")


# --- what the claims are judged on ---


def judged_levels() -> DataFrame:
    """The runs of `levels` that the claims are judged on.

    FedGWC has no test of ours, and IFCA and FeSEM have its client updates.
    """
    return _without_test(_fair_levels(), *MIXED)


def judged_long() -> DataFrame:
    """The runs of 480 rounds, FedGWC without our test."""
    return _without_test(stored("longer"), "α = 0.5")


def _without_test(runs: DataFrame, *settings: str) -> DataFrame:
    """The runs, with FedGWC without our test in these settings as FedGWC."""
    own = untested(*settings)
    own = own[own["row"] == NO_TEST].assign(row="FedGWC")
    return _in_place_of(runs, own)


def judged_courses() -> dict[str, list[DataFrame]]:
    """The curves of the same runs, by row; with random members at the same splits."""
    own = untested_courses()
    return courses() | {"FedGWC": own[NO_TEST], REPLAYED: own[REPLAYED]}


# --- one run beside another ---


def lead(own: DataFrame, other: DataFrame, by: str = "client_updates") -> float:
    """How far one run is ahead of another, both up to the updates of the shorter.

    With ``by="round"``, up to its rounds.
    """
    limit = min(run[by].max() for run in (own, other))
    return level_at(own, limit, by) - level_at(other, limit, by)


def level_at(run: DataFrame, limit: float, by: str = "client_updates") -> float:
    """Balanced accuracy, the mean of the last three evaluations within the limit."""
    inside = run[run[by] <= limit]
    return float(inside[VALUE].tail(3).mean())


def jump(course: DataFrame, plain: DataFrame, metric: str) -> float:
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


def split_by(course: DataFrame) -> str:
    """The first evaluated round at which a run has several clusters; –: never."""
    first = course.loc[course["clusters"] > 1, "round"]
    return f"{first.iloc[0]:,}" if len(first) else "–"


def agree(run: DataFrame, other: DataFrame) -> bool:
    """Whether two runs have the same balanced accuracies, as long as both go on."""
    shared = min(len(run), len(other))
    return run[VALUE][:shared].tolist() == other[VALUE][:shared].tolist()


# --- rules that watch one run ---

HIDDEN_SIZES = {  # setting -> what the lines part: the truth, or what was found
    "α = 0.05": None,
    "(40, 30, 30)": (12, 9, 9),
    "(100, 0, 0)": None,
    "clean, noise, blur": (12, 9, 9),
}


def watched_rules() -> dict[str, FedGWC]:
    """The rules that watched one run of FedAvg, in the order of their records."""
    return rules(SCALES["laptop"])


def rule_groups() -> dict[str, str]:
    """The part of the ingredient table that each rule, as it is shown, belongs to."""
    scale = SCALES["laptop"]
    groups = dict.fromkeys(watched_rules(), "corrected, and with one thing changed")
    groups |= dict.fromkeys(printed_rules(scale), "as printed")
    groups |= dict.fromkeys(
        steps_to_released(scale), "step by step to the released code"
    )
    groups |= dict.fromkeys(other_betas(scale), "corrected, another β")
    return {SPOKEN.get(name, name): group for name, group in groups.items()}


def merged(cells: DataFrame) -> DataFrame:
    """Lines that say the same, one below the other, as one: named by its ends."""
    kept: list[list[Any]] = []  # first name, last name, line
    for name, line in cells.iterrows():
        if kept and kept[-1][2].equals(line):
            kept[-1][1] = name
        else:
            kept.append([name, name, line])
    names = [first if first == last else f"{first} … {last}" for first, last, _ in kept]
    out = cells.loc[[first for first, *_ in kept]]
    return out.set_axis(names)


def watched_runs(all_seeds: bool = False) -> dict[Any, dict[str, Any]]:
    """What the rules saw in the watched runs of the first seed, by setting.

    With ``all_seeds`` by setting and seed.
    """
    records = tables.by_key(common.results("fedgwc") / "rules.json")
    out: dict[Any, dict[str, Any]] = {}
    for task in TABLES["rules"]("laptop"):
        setting = task.tags["setting"]
        final = records[task.key]["metrics"]["final"]
        if all_seeds:
            out[setting, task.seed] = final
        elif task.seed == 0:
            out[setting] = final
    return out


def watched_curves(setting: str) -> dict[str, list[Any]]:
    """What was recorded along the watched run of a setting, in its first seed."""
    records = tables.by_key(common.results("fedgwc") / "rules.json")
    made = TABLES["rules"]("laptop")
    task = next(task for task in made if task.tags["setting"] == setting)
    return records[task.key]["metrics"]["curves"]


# --- every look of each rule ---

LOOKED = ("noise_anew", "looks")  # the tables with every look of each rule


def looks() -> DataFrame:
    """Every look of each rule in the tables ``LOOKED``: a line per run and rule.

    ``looks`` are [round, clusters found, Rand index]; ``split`` is the round of the
    first split, 0 without one, ``rand`` and ``ari`` its Rand index, plain and adjusted,
    and ``rand_of_one`` that of one big cluster.
    """
    import pandas as pd

    lines = []
    for table in LOOKED:
        records = tables.by_key(common.results("fedgwc") / f"{table}.json")
        for task in TABLES[table]("workstation"):
            if task.tags["row"] == "Watch":
                lines += _looks_of(task, records[task.key]["metrics"]["final"])
    scores = ("rand", "ari", "was", "wadb")
    return pd.DataFrame(lines).astype(dict.fromkeys(scores, float))  # None is nan then


def _looks_of(task: Task, final: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of `looks` for one run, from what was measured at its end."""
    setting = str(task.tags["setting"])
    sizes = LEVEL_SIZES.get(setting, (20, 20))
    alone = metrics.rand_index(np.repeat(range(len(sizes)), sizes), np.zeros(40))
    lines = []
    for r, name in enumerate(lookers(5)):
        line: dict[str, Any] = {"setting": setting, "seed": task.seed, "rule": name}
        line |= {"groups": len(sizes), "rand_of_one": alone}
        line |= {"looks": final[f"looks_{r}"], "split": final[f"split_{r}"]}
        line |= {"rand": final.get(f"rand_{r}", alone)}
        line |= {"ari": final.get(f"ari_{r}", 0.0)}  # 0: that of one big cluster
        if len(sizes) == 1:
            line |= {"rand": None, "ari": None}  # there is nothing to find
        for score in ("was", "wadb"):
            line[score] = final.get(f"{score}_{r}", np.nan)
        lines.append(line)
    return lines


def judged_rules(runs: DataFrame) -> DataFrame:
    """Of the runs of ``looks`` those that are judged.

    They are those at the middle one of the three ε, and those as printed.
    """
    least, _, most = (f"ε = {eps:g}" for eps in EPSILONS)
    return runs[~runs["rule"].str.endswith((least, most))]


def with_each_epsilon(runs: DataFrame) -> DataFrame:
    """Of the runs of ``looks`` those of the rules that were run with three ε."""
    return runs[~runs["rule"].str.startswith("printed")]


def looked_rivals() -> DataFrame:
    """IFCA and FeSEM in the tables ``LOOKED``."""
    import pandas as pd

    frames = []
    for table in LOOKED:
        made = TABLES[table]("workstation")
        rivals = [task for task in made if task.tags["row"] != "Watch"]
        frames.append(common.read("fedgwc", table, rivals))
    return pd.concat(frames, ignore_index=True)


# --- the test against chance ---


class Tested(NamedTuple):
    """The score of the best cut of a matrix, and of the draws without groups."""

    score: float
    drawn: np.ndarray

    @property
    def as_low(self) -> int:
        """How many draws score as low, or lower."""
        return int((self.drawn <= self.score).sum())


def against_chance(P: Tensor, rule: FedGWC, sampled: int = 6) -> Tested:
    """What the rule's test against chance compares, for rows of P (K, K)."""
    rng = np.random.default_rng(0)
    score = rule.cut(P, sampled, 0).score
    drawn = [rule.cut(groupless(P, rng), sampled, 0).score for _ in range(DRAWS)]
    return Tested(score, np.array(drawn))


def chance_record() -> dict[str, Any]:
    """The record of the test against chance and of the bound, on drawn losses."""
    path = common.results("fedgwc") / "chance_test.json"
    return json.loads(path.read_text(encoding="utf-8"))


def bound_runs(**wanted: Any) -> DataFrame:
    """Plays of the printed rule on equal clients with these fields, a line per size."""
    import pandas as pd

    plays = pd.DataFrame(chance_record()["bound"])
    for field, value in wanted.items():
        plays = plays[plays[field] == value]
    return plays


# --- equal clients that were split ---

NULL_WAYS = ("one look", "whole run", "all sampled")


def null_splits(way: str = "one look") -> DataFrame:
    """The record of equal clients that were split, one line per size and version.

    ``way`` is one of ``NULL_WAYS``; ``share`` is the share of plays that split.
    """
    import pandas as pd

    path = common.results("fedgwc") / "null_splits.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    plays = pd.DataFrame(record["plays"])
    plays = plays[plays["way"] == way]
    return plays.assign(share=plays["splits"] / plays["runs"])


def recorded_first_looks() -> list[dict[str, Any]]:
    """When the printed rule first looked, by reading; empty in the older record."""
    path = common.results("fedgwc") / "null_splits.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    return record.get("fires", [])
