"""What came out of the runs of FedGWC's chapter: records as frames and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import metrics, tables
from ...door import num_sampled
from ...methods import FedGWC
from ...methods.fedgwc import DRAWS, groupless
from ...views import Arms
from .. import common
from . import priors
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
    from pandas import DataFrame, Series

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
DOMAINS_SPOKEN = {  # of Tables 4 and 7, in per cent of the clients
    "(50, 50, 0)": "50 % clean, 50 % noise",
    "(50, 0, 50)": "50 % clean, 50 % blur",
    "(40, 30, 30)": "40 % clean, 30 % noise, 30 % blur",
}
SETTINGS = {  # of the watched runs -> heads of the ingredient table
    "α = 0.5": "CIFAR-100,\nfew classes",
    "α = 0.05": "CIFAR-10,\n1–2 classes",
    "(40, 30, 30)": "CIFAR-10,\n3 levels",
    "(100, 0, 0)": "CIFAR-10,\nhomogeneous",
    "clean, noise, blur": "CIFAR-10,\n3 domains",
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


# --- reading the records ---


def watched_rules() -> dict[str, FedGWC]:
    """The rules that watched one run of FedAvg, in the order of their records."""
    return rules(SCALES["laptop"])


def ingredients(frame: DataFrame, settings: dict[str, str]) -> DataFrame:
    """When each rule first looked, over all settings, and the clusters found in each.

    ``settings`` names the columns. Numbers are means over seeds; the mix of three
    levels also gets the adjusted Rand index. – is no look. ``changes`` names the
    fields in which a rule differs from the one it is to be compared with: see
    `compared_with`.
    """
    import pandas as pd

    lines = {}
    for r, (name, rule) in enumerate(watched_rules().items()):
        if f"first_{r}" not in frame:  # a rule that the old records do not have yet
            continue
        made = frame[frame[f"first_{r}"] > 0]
        line = {"first look": "–"}
        if len(made):
            line["first look"] = f"{made[f'first_{r}'].mean():.0f}"
        for setting, head in settings.items():
            own = frame[frame["setting"] == setting]
            line[head] = f"{own[f'clusters_{r}'].mean():.1f}" if len(made) else "–"
            if setting == "(40, 30, 30)":
                line["its ARI"] = f"{own[f'ari_{r}'].mean():.2f}" if len(made) else "–"
        line["changes"] = ", ".join(changed_fields(rule, compared_with(name)))
        lines[SPOKEN.get(name, name)] = line
    return pd.DataFrame(lines).T


def compared_with(name: str) -> FedGWC:
    """The rule that another one is to be compared with.

    A step to the released code goes on from the step before it, and the first one from
    "as printed"; all others vary "as printed" or "corrected".
    """
    scale = SCALES["laptop"]
    known = watched_rules()
    if name in printed_rules(scale):
        return known["as printed"]
    steps = ["as printed", *steps_to_released(scale)]
    if name in steps:
        return known[steps[steps.index(name) - 1]]
    return known["corrected"]


def changed_fields(rule: FedGWC, base: FedGWC) -> list[str]:
    """Names of the fields in which two rules differ.

    ``priority`` is left out: a watched run samples uniformly for all rules.
    """
    names = [field.name for field in fields(FedGWC) if field.name != "priority"]
    return [name for name in names if getattr(rule, name) != getattr(base, name)]


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


def stored(table: str, last: int = 1) -> DataFrame:
    """One line per run of a table."""
    return common.read("fedgwc", table, TABLES[table]("laptop"), last=last)


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


def all_runs(table: str) -> DataFrame | None:
    """The runs of a laptop table that may not be run yet; None if one is missing."""
    tasks = TABLES[table]("laptop")
    path = common.results("fedgwc") / f"{table}.json"
    if not path.exists():
        return None
    done = tables.by_key(path)
    if any(task.key not in done for task in tasks):
        return None
    return common.read("fedgwc", table, tasks)


def untested(*settings: str) -> DataFrame | None:
    """FedGWC without our test, and random members at its splits; None if not yet run.

    All settings, or the given ones.
    """
    runs = all_runs("untested")
    if runs is None or not settings:
        return runs
    return runs[runs["setting"].isin(settings)]


def _in_place_of(runs: DataFrame, others: DataFrame | None) -> DataFrame:
    """The runs, with rows of the others instead of their own of the same name."""
    if others is None:
        return runs
    return joined(runs[~runs["row"].isin(others["row"])], others)


def judged_levels() -> DataFrame:
    """The runs of `levels` that the claims are judged on.

    FedGWC has no test of ours, and IFCA and FeSEM have its client updates, each as soon
    as it is run; until then they are the rows of `levels`.
    """
    runs = _in_place_of(levels(), all_runs("level_rivals"))
    own = untested(*MIXED)
    if own is not None:
        own = own[own["row"] == NO_TEST].assign(row="FedGWC")
    return _in_place_of(runs, own)


def judged_alike() -> DataFrame:
    """The homogeneous federations, under FedGWC without our test once it is run."""
    own = untested("(100, 0, 0)")
    return alike() if own is None else own


def judged_long() -> DataFrame:
    """The runs of 480 rounds, FedGWC without our test once it is run."""
    own = untested("α = 0.5")
    if own is not None:
        own = own[own["row"] == NO_TEST].assign(row="FedGWC")
    return _in_place_of(stored("longer"), own)


def judged_courses() -> dict[str, list[DataFrame]]:
    """The curves of the same runs, by row; with random members at the same splits."""
    runs = courses()
    if untested() is not None:
        own = untested_courses()
        runs |= {"FedGWC": own[NO_TEST], REPLAYED: own[REPLAYED]}
    return runs


def untested_courses() -> dict[str, list[DataFrame]]:
    """The curves of FedGWC without our test, and of its control, in 480 rounds."""
    tasks = TABLES["untested"]("laptop")
    long = [task for task in tasks if task.tags["setting"] == "α = 0.5"]
    return tables.curves(long, common.results("fedgwc") / "untested.json")


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


def agree(run: DataFrame, other: DataFrame) -> bool:
    """Whether two runs have the same balanced accuracies, as long as both go on."""
    shared = min(len(run), len(other))
    return run[VALUE][:shared].tolist() == other[VALUE][:shared].tolist()


def untested_table() -> DataFrame | None:
    """Table 1's cell without our test, seed by seed; None if it is not yet run.

    How FedGWC without the test and random members at its splits stand at the end of 480
    rounds: clusters, WAS, and the lead over FedAvg in points of balanced accuracy, at
    equal rounds and at equal client updates; and what is gained at the first split.
    """
    import pandas as pd

    runs = untested("α = 0.5")
    if runs is None:
        return None
    plain = courses()["no clusters"]
    lines = {}
    for row, own in untested_courses().items():
        facts = runs[runs["row"] == row].set_index("seed")
        for seed, (course, other) in enumerate(zip(own, plain, strict=True)):
            sizes = np.bincount(course["labels"].iloc[-1])
            lines[NAMES[row], f"seed {seed}"] = {
                "split by round": split_by(course),
                "sizes at the end": str(sorted(sizes.tolist(), reverse=True)),
                "WAS": f"{facts['was'][seed]:z.2f}",
                "client updates": f"{course['client_updates'].iloc[-1]:,}",
                "jump": f"{100 * jump(course, other, VALUE):+z.1f}",
                "lead at equal rounds": f"{100 * lead(course, other, 'round'):+z.1f}",
                "lead at equal updates": f"{100 * lead(course, other):+z.1f}",
            }
    return pd.DataFrame(lines).T.replace("nan", "–")


def least_sizes_table() -> DataFrame | None:
    """Table 1's cell without our test, by the least size of a cluster; None if not run.

    A line for each least size. Its leads over FedAvg are means over seeds, with the
    least and the greatest in brackets.
    """
    import pandas as pd

    runs = own_scale("k_min")
    smallest = untested("α = 0.5")
    if runs is None or smallest is None:
        return None
    plain = courses()["no clusters"]
    was = joined(runs, smallest).groupby("row")["was"].mean()
    by_row = {NO_TEST: untested_courses()[NO_TEST], **own_courses("k_min")}
    lines = {}
    for row, own in by_row.items():
        least = 3
        if row != NO_TEST:
            least = int(row.rpartition(" ")[2])
        clusters = [course["clusters"].iloc[-1] for course in own]
        updates = [course["client_updates"].iloc[-1] for course in own]
        line: dict[str, Any] = {
            "WAS": f"{was[row]:z.2f}",
            "clusters": _mean_and_ends(clusters, "{:.1f}"),
            "client updates": f"{np.mean(updates):,.0f}",
        }
        for by, words in (("round", "rounds"), ("client_updates", "updates")):
            leads = [100 * lead(*pair, by=by) for pair in zip(own, plain, strict=True)]
            line[f"lead at equal {words}"] = _mean_and_ends(leads, "{:+z.1f}")
        lines[least] = line
    table = pd.DataFrame(lines).T.sort_index().replace("nan", "–")
    return table.rename_axis("least size")


def _mean_and_ends(values: Sequence[float], form: str) -> str:
    """The mean of some numbers, and in brackets the least and the greatest."""
    mean, least, most = (
        form.format(number) for number in (np.mean(values), min(values), max(values))
    )
    return f"{mean} ({least} to {most})"


def emnist_table() -> DataFrame | None:
    """The FEMNIST half of Tables 5 and 9, ours on EMNIST; None if it is not yet run.

    Leads are over the same aggregator without FedGWC.
    """
    import pandas as pd

    runs = all_runs("emnist_small")
    if runs is None:
        return None
    runs = one_cluster(last_three(runs, "emnist_small"))
    paper = pd.concat([printed("9"), printed("5").assign(aggregator="FedAvg")])
    paper = paper[paper["dataset"] == "femnist"]
    courses = emnist_courses()
    lines = {}
    for (name, row, beta), own in runs.groupby(["aggregator", "row", "beta"]):
        same = paper[(paper["row"] == row) & (paper["aggregator"] == name)]
        if name == "FedAvg" and beta not in ("–", "0.5"):
            same = same[same["beta"] == beta]
        else:
            same = same[same["beta"].isna()]
        line = {
            "paper": f"{100 * same[VALUE].mean():.1f}",
            "ours": f"{100 * own[VALUE].mean():.1f}",
            "client updates": f"{own['client_updates'].mean():,.0f}",
            "clusters at the end": f"{own['clusters'].mean():.1f}",
        }
        shown = "without FedGWC"
        if row == "FedGWC":
            shown = NAMES[NO_TEST]
            plain = courses["no clusters", name, "–"]
            pairs = list(zip(courses[row, name, beta], plain, strict=True))
            for by, words in {"round": "rounds", "client_updates": "updates"}.items():
                ahead = 100 * np.mean([lead(*pair, by=by) for pair in pairs])
                line[f"lead at equal {words}"] = f"{ahead:+z.1f}"
        lines[name, shown, beta] = line
    answers = priors.read("emnist_small")[VALUE].mean()
    lines["–", priors.ROW, "–"] = {"ours": f"{100 * answers:.1f}"}
    table = pd.DataFrame(lines).T.fillna("–").replace("nan", "–")
    return table.rename_axis(["aggregator", "", "β"])


def emnist_courses() -> dict[tuple[str, str, str], list[DataFrame]]:
    """The curves of ``emnist_small`` by row, aggregator and β; a list has the seeds."""
    path = common.results("fedgwc") / "emnist_small.json"
    out: dict[tuple[str, str, str], list[DataFrame]] = {}
    for task in TABLES["emnist_small"]("laptop"):
        row, name, beta = (str(task.tags[tag]) for tag in ("row", "aggregator", "beta"))
        (course,) = tables.curves([task], path)[row]
        out.setdefault((row, name, beta), []).append(course)
    return out


def last_three(runs: DataFrame, table: str) -> DataFrame:
    """The frame of a laptop table, with accuracies as means of three evaluations."""
    means = common.read("fedgwc", table, TABLES[table]("laptop"), last=3)
    return runs.assign(**{VALUE: means[VALUE]})


IN_THE_PAPER = {"FedGWC as released": "FedGWC", "FedGWC": ""}  # whose number is whose
LARGER = {  # table -> the data set of the paper's Table 1
    "emnist": "femnist",
    "cifar100_long": "cifar100",
}


def larger_runs(table: str) -> DataFrame | None:
    """Table 1 in larger runs, ours beside the paper's; None if there are none.

    Ours are means over whole seeds. A dash is a number that does not exist. The paper's
    FedGWC stands beside the authors' rule, not beside ours.
    """
    import pandas as pd

    runs = own_scale(table)
    if runs is None:
        return None
    dataset = LARGER[table]
    paper = printed("1").query("aggregator == 'FedAvg'").set_index(["dataset", "row"])
    shown = {  # metric -> head, unit, digits
        VALUE: ("balanced", 100, "{:.1f}"),
        "was": ("WAS", 1, "{:z.2f}"),
        "wadb": ("WADB", 1, "{:.2f}"),
        "clusters": ("clusters", 1, "{:g}"),
    }
    curves = own_courses(table)
    lines = {}
    for row, own in runs.groupby("row", sort=False):
        theirs_is = str(row).split(" (")[0]  # "IFCA (5)" is IFCA there
        same = (dataset, IN_THE_PAPER.get(theirs_is, theirs_is))
        line = {}
        for metric, (head, unit, digits) in shown.items():
            theirs = np.nan
            if same in paper.index:
                theirs = unit * paper.loc[same, metric]
            line[f"{head}, paper"] = digits.format(theirs)
            line[f"{head}, ours"] = digits.format(round(unit * own[metric].mean(), 2))
        line["split by round"] = "–"
        if str(row).startswith(("FedGWC", "Random members")):
            line["split by round"] = ", ".join(map(split_by, curves[str(row)]))
        line["client updates"] = f"{own['client_updates'].mean():,.0f}"
        lines[NAMES.get(str(row), row)] = line
    if table in priors.DEALT:
        answers = priors.read(table)
        answers = answers[answers["seed"].isin(runs["seed"])]
        lines[priors.ROW] = {
            "balanced, ours": f"{100 * answers[VALUE].mean():.1f}",
            "client updates": "0",
        }
    return pd.DataFrame(lines).T.fillna("–").replace("nan", "–")


def split_by(course: DataFrame) -> str:
    """The first evaluated round at which a run has several clusters; –: never."""
    first = course.loc[course["clusters"] > 1, "round"]
    return f"{first.iloc[0]:,}" if len(first) else "–"


LOOKED = ("noise_anew", "looks")  # the tables with every look of each rule


def looks() -> DataFrame | None:
    """Every look of each rule in the tables ``LOOKED``: a line per run and rule.

    ``looks`` are [round, clusters found, Rand index]; ``split`` is the round of the
    first split, 0 without one, ``rand`` and ``ari`` its Rand index, plain and adjusted,
    and ``rand_of_one`` that of one big cluster. None as long as no seed is whole.
    """
    import pandas as pd

    lines = []
    for table in LOOKED:
        for task in _whole_seeds(table):
            if task.tags["row"] == "Watch":
                records = tables.by_key(common.results("fedgwc") / f"{table}.json")
                lines += _looks_of(task, records[task.key]["metrics"]["final"])
    if not lines:
        return None
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


def seeds_of_looks(runs: DataFrame) -> str:
    """How many of the seeds of ``looks`` these runs have, and looks, in words.

    Of looks only where a rule is judged: at the middle ε, and as printed.
    """
    seeds = {
        1: "One of the three seeds is run so far",
        2: "Two of the three seeds are run so far",
        3: "All three seeds are run",
    }[runs["seed"].nunique()]
    middle = f"ε = {EPSILONS[1]:g}"
    number = judged_rules(runs)["looks"].map(len).min()
    return (
        f"{seeds}; with {middle}, and as printed, each rule looks {number} times or "
        "more in every run"
    )


def looked_rivals() -> DataFrame | None:
    """IFCA and FeSEM in the tables ``LOOKED``, whole seeds only; None if none."""
    import pandas as pd

    frames = []
    for table in LOOKED:
        made = [task for task in _whole_seeds(table) if task.tags["row"] != "Watch"]
        if made:
            frames.append(common.read("fedgwc", table, made))
    if not frames:
        return None
    return pd.concat(frames, ignore_index=True)


def looked_table() -> DataFrame | None:
    """The Rand index in the runs of ``looks``, where there are groups to find.

    Of each rule at its first split, with the middle one of three ε, and of IFCA and
    FeSEM at the end; means over seeds. A rule that never split has one big cluster.
    None as long as no seed is whole.
    """
    import pandas as pd

    runs = looks()
    rivals = looked_rivals()
    if runs is None or rivals is None:
        return None
    runs = judged_rules(runs[runs["groups"] > 1])
    one = runs.groupby("setting", sort=False)["rand_of_one"].first()
    lines = {"one big cluster": one}
    for rule, own in runs.groupby("rule", sort=False):
        lines[f"{rule}, first split"] = own.groupby("setting")["rand"].mean()
    for row, own in rivals.groupby("row", sort=False):
        lines[f"{row}, at the end"] = own.groupby("setting")["rand"].mean()
    return pd.DataFrame(lines).T[[*one.index]].map("{:.2f}".format)


def joined(*frames: DataFrame) -> DataFrame:
    """Frames one below the other, with the columns that they share."""
    import pandas as pd

    return pd.concat(frames, join="inner", ignore_index=True)


def recorded_first_looks() -> list[dict[str, Any]]:
    """When the printed rule first looked, by reading; empty in the older record."""
    path = common.results("fedgwc") / "null_splits.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    return record.get("fires", [])


def stored_in_step(table: str) -> DataFrame:
    """`stored`, with each metric taken within FedGWC's rounds: see `in_step`."""
    records = tables.by_key(common.results("fedgwc") / f"{table}.json")
    return in_step(stored(table), records, table=table)


def courses(table: str = "longer") -> dict[str, list[DataFrame]]:
    """The curves of a table's runs: for each row a list, one frame per seed."""
    path = common.results("fedgwc") / f"{table}.json"
    return tables.curves(TABLES[table]("laptop"), path)


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


def levels() -> DataFrame:
    """Tables 3 and 6: where levels of heterogeneity are mixed."""
    runs = stored("heterogeneity")
    return runs[runs["setting"] != "(100, 0, 0)"]


def domains() -> DataFrame:
    """Tables 4 and 7: clean, noisy and blurred images."""
    runs = stored("domains")
    return runs.assign(dataset=runs["base"])


def domain_table() -> DataFrame:
    """Tables 4 and 7 with what ours cost, settings in words."""
    runs, paper = (
        frame.replace({"setting": DOMAINS_SPOKEN})
        for frame in (domains(), printed_of("4", "7"))
    )
    return with_cost(runs, paper, ["setting", "row"], "rand", percent=False)


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
    return table.fillna("–").rename(index={"FedGWC": NAMES["FedGWC"]})


def where_it_split() -> DataFrame:
    """In how many runs FedGWC had more than one cluster at the end.

    With our test against chance, and without it where these runs are there.
    """
    import pandas as pd

    names = {
        "cifar100": "CIFAR-100, few classes (Tables 1, 9)",
        "beta": "the same with four other β (Table 5)",
        "longer": "the same for longer (Figure 2)",
    }
    lines = {}
    for table, name in names.items():
        lines[name] = stored(table)
    lines["mixes of levels (Tables 3, 6)"] = levels()
    lines["homogeneous clients (Figure 6)"] = alike()
    lines["visual domains (Tables 4, 7)"] = domains()
    shown = {}
    for name, runs in lines.items():
        own = runs[runs["row"] == "FedGWC"]
        split = int((own["clusters"] > 1).sum())
        rounds = int(own["rounds"].max())
        shown[name] = {"rounds": rounds, "split": f"{split} of {len(own)} runs"}
    without = {
        "the same for longer (Figure 2)": untested("α = 0.5"),
        "mixes of levels (Tables 3, 6)": untested(*MIXED),
        "homogeneous clients (Figure 6)": untested("(100, 0, 0)"),
    }
    for name, found in without.items():
        if found is not None:
            clusters = found.loc[found["row"] == NO_TEST, "clusters"]
            words = f"{int((clusters > 1).sum())} of {len(clusters)} runs"
            shown[name]["split without our test"] = words
    return pd.DataFrame(shown).T.fillna("–")


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


def level_budgets() -> str:
    """Client updates of FedGWC and its rivals on mixes of levels, in a sentence.

    And how many runs of IFCA and FeSEM had other members at their last evaluation than
    at the one before.
    """
    table = "level_rivals"
    if all_runs(table) is None:
        table = "heterogeneity"
    records = tables.by_key(common.results("fedgwc") / f"{table}.json")
    rivals = [t for t in TABLES[table]("laptop") if t.tags["row"] in ("IFCA", "FeSEM")]
    moved = 0
    for task in rivals:
        labels = records[task.key]["metrics"]["curves"]["labels"]
        moved += metrics.rand_index(labels[-2], labels[-1]) < 1
    runs = judged_levels().groupby("row")["client_updates"]
    least, most = runs.min(), runs.max()
    words = (
        f"client updates: FedGWC {least['FedGWC']} to {most['FedGWC']}, "
        f"IFCA and FeSEM {most['IFCA']}"
    )
    if most["IFCA"] < least["FedGWC"]:
        words += ", where FedGWC still has one cluster"
    return (
        f"{words};\nIFCA, FeSEM: members still changed in {moved} of {len(rivals)} runs"
    )


def quality() -> DataFrame:
    """WAS and WADB of Tables 1, 3 and 6, ours beside the paper's, and what ours cost.

    Table 1 at 480 rounds. A dash is a score that does not exist: one cluster has none.
    """
    import pandas as pd

    one = stored("longer").assign(setting="α = 0.5")
    one = one[one["row"].isin(["FedGWC", "IFCA", "FeSEM"])]
    ours = pd.concat([one, shown_levels()])
    without = untested(*LEVELS_SPOKEN)
    if without is not None:
        here = without["setting"] == "α = 0.5"  # the others are in `shown_levels`
        ours = pd.concat([ours, without[here]])
    theirs = printed_of("1", "3", "6")
    theirs = theirs[theirs["dataset"] != "femnist"].fillna({"setting": "α = 0.5"})
    theirs = theirs[theirs["row"].isin(["FedGWC", "IFCA", "FeSEM"])]
    if without is not None:
        theirs = theirs.replace({"row": {"FedGWC": NO_TEST}})
    by = ["dataset", "setting", "row"]
    scores = ["was", "wadb"]
    ours = in_order(ours)
    mean = ours.groupby(by, sort=False)[[*scores, "clusters", "client_updates"]].mean()
    paper = theirs.groupby(by, sort=False)[[*scores, "clusters"]].mean()
    table = pd.DataFrame(
        {
            "WAS, paper": paper["was"].reindex(mean.index),
            "WAS, ours": mean["was"],
            "WADB, paper": paper["wadb"].reindex(mean.index),
            "WADB, ours": mean["wadb"],
            "clusters, paper": paper["clusters"].reindex(mean.index),
            "clusters, ours": mean["clusters"],
            "client updates": mean["client_updates"],
        }
    )
    shown = table.map("{:z.2f}".format)
    shown["clusters, paper"] = table["clusters, paper"].map("{:.0f}".format)
    shown["clusters, ours"] = table["clusters, ours"].map("{:.1f}".format)
    shown["client updates"] = table["client updates"].map("{:,.0f}".format)
    shown = shown.replace("nan", "–").rename(index=LEVELS_SPOKEN, level="setting")
    return shown.rename(index=NAMES, level="row")


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


def shown_levels() -> DataFrame:
    """The runs of `levels` as the page shows them.

    With FedGWC without our test and its control, and with IFCA and FeSEM at FedGWC's
    client updates, each as soon as it is run.
    """
    return _in_place_of(
        _in_place_of(levels(), all_runs("level_rivals")), untested(*MIXED)
    )


def overlap(counts: np.ndarray, labels: np.ndarray) -> float:
    """The mean overlap of the class mixes of two clusters, Σ min(share, share).

    ``counts`` (K, C) are clients' samples by class, ``labels`` (K,) their clusters. 0:
    no class in common; 1: the same mix.
    """
    mixes = []
    for c in np.unique(labels):
        total = counts[labels == c].sum(0)
        mixes.append(total / total.sum())
    pairs = [(i, j) for i in range(len(mixes)) for j in range(i)]
    return float(np.mean([np.minimum(mixes[i], mixes[j]).sum() for i, j in pairs]))


def class_overlap(draws: int = 1000) -> DataFrame:
    """Figure 7 measured: overlap of classes between clusters, and in random ones.

    The corrected rule's first look in the watched runs, where it split; the random
    clusters have the same sizes.
    """
    import pandas as pd

    lines = {}
    for (setting, seed), final in watched_runs(all_seeds=True).items():
        labels = np.array(final["found"][0])
        if labels.max() == 0:
            continue
        counts = np.array(final["counts"])
        rng = np.random.default_rng(0)
        drawn = [overlap(counts, rng.permutation(labels)) for _ in range(draws)]
        low, high = np.quantile(drawn, [0.025, 0.975])
        lines[f"{WATCHED_SPOKEN[setting]}, seed {seed}"] = {
            "sizes": str(np.bincount(labels).tolist()),
            "overlap": f"{overlap(counts, labels):.2f}",
            "random clusters, 95 %": f"{low:.2f} to {high:.2f}",
        }
    return pd.DataFrame(lines).T


def found_groups() -> DataFrame:
    """Levels and domains: the adjusted Rand index, and accuracy of three arms."""
    import pandas as pd

    mixed = shown_levels()
    three = mixed[mixed["setting"] == "(40, 30, 30)"]
    answers = priors.read("heterogeneity").query("setting == '(40, 30, 30)'")
    balanced = pd.concat([three, answers]).groupby(["row", "dataset"])[VALUE].mean()
    balanced = 100 * balanced.unstack()
    means = {
        "ARI, levels": mixed.groupby("row")["ari"].mean(),
        "ARI, domains": domains().groupby("row")["ari"].mean(),
    }
    for dataset, own in balanced.items():
        means[f"balanced, three levels, {dataset} (%)"] = own
    rows = ["FedGWC", NO_TEST, REPLAYED, "Random members", "Oracle", "FeSEM", "IFCA"]
    rows.append(priors.ROW)
    table = pd.DataFrame(means)
    table = table.loc[[row for row in rows if row in table.index]]
    table = table.map("{:z.2f}".format).replace("nan", "–")
    updates = three.groupby("row")["client_updates"].mean()
    updates[priors.ROW] = 0
    table["client updates, three levels"] = updates.round().astype(int)
    return table.rename(index=NAMES)


def long_runs() -> DataFrame:
    """How the long runs stand at round 480, where all have as many client updates.

    The last column is the lead over FedAvg in balanced accuracy, seeds paired.
    FedGWC and random members have lines only if they split; else they are FedAvg. The
    majority class, the last line, needs no training.
    """
    import pandas as pd

    scores = {
        VALUE: "balanced",
        "balanced_released": "“balanced” as released",
        "accuracy": "plain",
    }
    shown = [*scores, *COUNTS]
    runs = stored_in_step("longer")
    for row in ("FedGWC", "Random members"):
        if (runs.loc[runs["row"] == row, "clusters"] == 1).all():
            runs = runs[runs["row"] != row]
    runs = pd.concat([runs, priors.read("longer")])
    table = runs.groupby("row", sort=False)[shown].mean()
    leads = {
        row: tables.paired(runs, "row", row, "no clusters", VALUE, ["seed"]).short
        for row in table.index
        if row != "no clusters"
    }
    table[[*scores]] = table[[*scores]].mul(100).round(1)
    table["clusters"] = table["clusters"].map("{:.1f}".format).replace("nan", "–")
    table["client_updates"] = table["client_updates"].round().astype(int)
    table["ahead of FedAvg by"] = table.index.map(leads).fillna("")
    answers = 100 * priors.read_clusters().groupby("row")["one_answer"].mean()
    table["one answer"] = table.index.map(answers).map("{:.1f}".format)
    table["one answer"] = table["one answer"].replace("nan", "–")
    heads = scores | {
        "clusters": "clusters at the end",
        "client_updates": "client updates",
    }
    return table.rename(index=NAMES, columns=heads)


def majority_in_the_paper() -> DataFrame:
    """The majority class in the paper's own federations, beside its Table 1.

    In per cent, by the paper's definition of balanced accuracy and by that of the
    released code; the least and the greatest of three deals.
    """
    import pandas as pd

    paper = printed("1")
    lines = {}
    for name, table, dataset in (
        ("CIFAR-100, dealt anew", "cifar100", "cifar100"),
        ("EMNIST, α = 0.01 in total", "emnist", "femnist"),
        ("EMNIST, α = 0.01 for each class", priors.PER_CLASS, "femnist"),
    ):
        dealt = priors.read(table)
        own = paper[paper["dataset"] == dataset]
        lines[name] = {
            "classes a client holds": f"{dealt['classes_held'].mean():.1f}",
            "majority class, balanced": _ends(dealt[VALUE]),
            "the same, “balanced” as released": _ends(dealt["balanced_released"]),
            "rows of Table 1, in print": _ends(own[VALUE]),
        }
    return pd.DataFrame(lines).T


def _ends(shares: Series) -> str:
    """The least and the greatest of some shares, in per cent; one number if alike."""
    least, most = (f"{100 * share:.0f}" for share in (shares.min(), shares.max()))
    return least if least == most else f"{least} to {most}"


def final_sizes(row: str) -> list[list[int]]:
    """The sizes of a row's clusters at the end of the long runs, a list per seed."""
    labels = [np.asarray(run["labels"].iloc[-1]) for run in courses()[row]]
    return [np.bincount(own).tolist() for own in labels]


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


def without_test(setting: str = "α = 0.5", draws: int = 1000) -> DataFrame:
    """What the corrected rule's first look finds without the test against chance.

    Beside its WAS stand those of random clusters of the same sizes.
    """
    import pandas as pd

    r = list(watched_rules()).index("corrected, no test against chance")
    lines = {}
    for (name, seed), final in watched_runs(all_seeds=True).items():
        if name != setting:
            continue
        labels = np.array(final["found"][r])
        line = {"first look": f"round {final[f'first_{r}']}"}
        line |= {"sizes": str(np.bincount(labels).tolist()), "WAS (paper: 0.1)": "–"}
        line |= {"WAS of random clusters, 95 %": "–"}
        if labels.any():
            counts = np.array(final["counts"])
            rng = np.random.default_rng(0)
            drawn = [
                metrics.wasserstein_silhouette(counts, rng.permutation(labels))
                for _ in range(draws)
            ]
            low, high = np.quantile(drawn, [0.025, 0.975])
            line["WAS (paper: 0.1)"] = f"{final[f'was_{r}']:.2f}"
            line["WAS of random clusters, 95 %"] = f"{low:.2f} to {high:.2f}"
        lines[f"seed {seed}"] = line
    return pd.DataFrame(lines).T


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


HIDDEN_SIZES = {  # setting -> what the lines part: the truth, or what was found
    "α = 0.05": None,
    "(40, 30, 30)": (12, 9, 9),
    "(100, 0, 0)": None,
    "clean, noise, blur": (12, 9, 9),
}


def refused(*settings: str) -> DataFrame:
    """Which check let a cut pass, or refused it, at the first look of seed 0."""
    import pandas as pd

    rule = watched_rules()["corrected"]
    lines = {}
    for setting in settings:
        final = watched_runs()[setting]
        tested = against_chance(torch.tensor(final["P"]), rule)
        outcome = "split"
        if tested.as_low > 1:
            outcome = "refused by chance"
        if tested.score > 1:
            outcome = "refused by the bound"
        lines[WATCHED_SPOKEN[setting]] = {
            "score of the best cut": f"{tested.score:.2f}",
            "draws that score as low": f"{tested.as_low} of {len(tested.drawn)}",
            "outcome": outcome,
        }
    return pd.DataFrame(lines).T


def chance_record() -> dict[str, Any]:
    """The record of the test against chance and of the bound, on drawn losses."""
    path = common.results("fedgwc") / "chance_test.json"
    return json.loads(path.read_text(encoding="utf-8"))


def power() -> DataFrame:
    """How many looks at drawn losses split, by meetings: the score alone, and tested.

    In brackets the mean adjusted Rand index of all looks; no split counts 0.
    """
    import pandas as pd

    lines: dict[str, dict[tuple[str, str], str]] = {}
    for line in chance_record()["chance"]:
        own = lines.setdefault(line["case"], {})
        head = f"{line['meetings']} meetings"
        for way, name in (("bound", "score alone"), ("tested", "with the test")):
            words = f"{line[way]} of {line['runs']}"
            if line["case"] != "equal clients":
                words += f" ({line[f'{way}_ari']:.2f})"
            own[head, name] = words
    return pd.DataFrame(lines).T


def bound_runs(**wanted: Any) -> DataFrame:
    """Plays of the printed rule on equal clients with these fields, a line per size."""
    import pandas as pd

    plays = pd.DataFrame(chance_record()["bound"])
    for field, value in wanted.items():
        plays = plays[plays[field] == value]
    return plays


def bound_table() -> DataFrame:
    """How often the printed rule splits equal clients: by rate, least size, rounds."""
    plays = bound_runs()
    rate = plays["rate"].astype(str).replace("share", "share sampled")
    least = plays["k_min"].astype(str)
    rule = "rate " + rate + ", least size " + least
    share = (100 * plays["splits"] / plays["runs"]).map("{:.0f} %".format)
    table = plays.assign(rule=rule, share=share)
    shown = table.pivot(index=["rounds", "rule"], columns="clients", values="share")
    return shown.rename_axis(columns="equal clients")


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
