"""The chapter's tables, made from the records.

Two functions return a sentence instead: `level_budgets` and `seeds_of_looks`. `presets`
reads the rule's source.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import metrics, tables
from ...methods import FedGWC
from . import outcomes, priors
from .outcomes import (
    COUNTS,
    LEVELS_SPOKEN,
    MIXED,
    NAMES,
    NO_TEST,
    REPLAYED,
    SPOKEN,
    VALUE,
    WATCHED_SPOKEN,
)
from .tasks import EPSILONS, SCALES, printed_rules, steps_to_released

if TYPE_CHECKING:
    from pandas import DataFrame, Series


# --- the rule ---


def presets() -> tables.Table:
    """The fields in which the rule as printed, as released and corrected differ.

    With what a field means, as the comments in the rule's source have it.
    """
    versions = {
        "as printed": vars(FedGWC.as_printed()),
        "as released": vars(FedGWC.as_released()),
        "corrected": vars(FedGWC.corrected()),
    }
    rows = []
    for name, meaning in meanings().items():
        values = [str(version[name]) for version in versions.values()]
        if name != "aggregator" and len({*values}) > 1:
            rows.append([name, *values, meaning])
    heads = ["field", *versions, "what it means"]
    table = tables.words(heads, rows, "The fields in which the three versions differ.")
    # the meaning is longer than a line, the others are not
    look = ".fednb-presets .fednb-table.fednb-table-words"
    wrap = f"{look} td:last-child {{ white-space: normal; min-width: 18rem; }}"
    short = f"{look} :is(th, td) {{ min-width: 0; }}"
    html = f'<div class="fednb-presets"><style>{short} {wrap}</style>{table.html}</div>'
    return tables.Table(html, table.text)


def meanings() -> dict[str, str]:
    """What each field of FedGWC means: the comments above it and behind it."""
    names = {field.name for field in fields(FedGWC)}
    found = {}
    said: list[str] = []  # comments since the last line of code
    for line in inspect.getsource(FedGWC).splitlines():
        code, _, comment = line.partition("# ")
        if comment:
            said.append(comment.replace("``", ""))
        field = re.match(r" {4}(\w+): ", code)
        if field and field[1] in names:
            found[field[1]] = " ".join(said)
        if code.strip():
            said = []
    return found


# --- drawn losses ---


def bound_table() -> DataFrame:
    """How often the printed rule splits equal clients: by rate, least size, rounds."""
    plays = outcomes.bound_runs()
    rate = plays["rate"].astype(str).replace("share", "share sampled")
    least = plays["k_min"].astype(str)
    rule = "rate " + rate + ", least size " + least
    share = (100 * plays["splits"] / plays["runs"]).map("{:.0f} %".format)
    table = plays.assign(rule=rule, share=share)
    shown = table.pivot(index=["rounds", "rule"], columns="clients", values="share")
    return shown.rename_axis(columns="equal clients")


def power() -> DataFrame:
    """How many looks at drawn losses split, by meetings: the score alone, and tested.

    In brackets the mean adjusted Rand index of all looks; no split counts 0.
    """
    import pandas as pd

    lines: dict[str, dict[tuple[str, str], str]] = {}
    for line in outcomes.chance_record()["chance"]:
        own = lines.setdefault(line["case"], {})
        head = f"{line['meetings']} meetings"
        for way, name in (("bound", "score alone"), ("tested", "with the test")):
            words = f"{line[way]} of {line['runs']}"
            if line["case"] != "equal clients":
                words += f" ({line[f'{way}_ari']:.2f})"
            own[head, name] = words
    return pd.DataFrame(lines).T


# --- which rule splits, and when ---


def where_it_split() -> DataFrame:
    """In how many runs FedGWC had more than one cluster at the end.

    With our test against chance, and without it where that was run.
    """
    import pandas as pd

    names = {
        "cifar100": "CIFAR-100, few classes (Tables 1, 9)",
        "beta": "the same with four other β (Table 5)",
        "longer": "the same for longer (Figure 2)",
    }
    lines = {}
    for table, name in names.items():
        lines[name] = outcomes.stored(table)
    lines["mixes of levels (Tables 3, 6)"] = outcomes.levels()
    lines["homogeneous clients (Figure 6)"] = outcomes.alike()
    lines["visual domains (Tables 4, 7)"] = outcomes.domains()
    shown = {}
    for name, runs in lines.items():
        own = runs[runs["row"] == "FedGWC"]
        split = int((own["clusters"] > 1).sum())
        rounds = int(own["rounds"].max())
        shown[name] = {"rounds": rounds, "split": f"{split} of {len(own)} runs"}
    without = {
        "the same for longer (Figure 2)": outcomes.untested("α = 0.5"),
        "mixes of levels (Tables 3, 6)": outcomes.untested(*MIXED),
        "homogeneous clients (Figure 6)": outcomes.untested("(100, 0, 0)"),
    }
    for name, found in without.items():
        clusters = found.loc[found["row"] == NO_TEST, "clusters"]
        words = f"{int((clusters > 1).sum())} of {len(clusters)} runs"
        shown[name]["split without our test"] = words
    return pd.DataFrame(shown).T.fillna("–")


SETTINGS = {  # of the watched runs -> heads of the ingredient table
    "α = 0.5": "CIFAR-100,\nfew classes",
    "α = 0.05": "CIFAR-10,\n1–2 classes",
    "(40, 30, 30)": "CIFAR-10,\n3 levels",
    "(100, 0, 0)": "CIFAR-10,\nhomogeneous",
    "clean, noise, blur": "CIFAR-10,\n3 domains",
}


def ingredients(frame: DataFrame, settings: dict[str, str]) -> DataFrame:
    """When each rule first looked, over all settings, and the clusters found in each.

    ``settings`` names the columns. Numbers are means over seeds; the mix of three
    levels also gets the adjusted Rand index. – is no look. ``changes`` names the
    fields in which a rule differs from the one it is to be compared with: see
    `compared_with`.
    """
    import pandas as pd

    lines = {}
    for r, (name, rule) in enumerate(outcomes.watched_rules().items()):
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
    known = outcomes.watched_rules()
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


def without_test(setting: str = "α = 0.5", draws: int = 1000) -> DataFrame:
    """What the corrected rule's first look finds without the test against chance.

    Beside its WAS stand those of random clusters of the same sizes.
    """
    import pandas as pd

    r = list(outcomes.watched_rules()).index("corrected, no test against chance")
    lines = {}
    for (name, seed), final in outcomes.watched_runs(all_seeds=True).items():
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


# --- CIFAR-100 ---


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
    runs = outcomes.stored_in_step("longer")
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

    paper = outcomes.printed("1")
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


def untested_table() -> DataFrame:
    """Table 1's cell without our test, seed by seed.

    How FedGWC without the test and random members at its splits stand at the end of 480
    rounds: clusters, WAS, and the lead over FedAvg in points of balanced accuracy, at
    equal rounds and at equal client updates; and what is gained at the first split.
    """
    import pandas as pd

    runs = outcomes.untested("α = 0.5")
    plain = outcomes.courses()["no clusters"]
    lines = {}
    for row, own in outcomes.untested_courses().items():
        facts = runs[runs["row"] == row].set_index("seed")
        for seed, (course, other) in enumerate(zip(own, plain, strict=True)):
            sizes = np.bincount(course["labels"].iloc[-1])
            ahead = outcomes.lead(course, other, "round")
            lines[NAMES[row], f"seed {seed}"] = {
                "split by round": outcomes.split_by(course),
                "sizes at the end": str(sorted(sizes.tolist(), reverse=True)),
                "WAS": f"{facts['was'][seed]:z.2f}",
                "client updates": f"{course['client_updates'].iloc[-1]:,}",
                "jump": f"{100 * outcomes.jump(course, other, VALUE):+z.1f}",
                "lead at equal rounds": f"{100 * ahead:+z.1f}",
                "lead at equal updates": f"{100 * outcomes.lead(course, other):+z.1f}",
            }
    return pd.DataFrame(lines).T.replace("nan", "–")


def least_sizes_table() -> DataFrame:
    """Table 1's cell without our test, by the least size of a cluster.

    A line for each least size. Its leads over FedAvg are means over seeds, with the
    least and the greatest in brackets.
    """
    import pandas as pd

    runs = outcomes.stored("k_min", last=3, profile="workstation")
    smallest = outcomes.untested("α = 0.5")
    plain = outcomes.courses()["no clusters"]
    was = outcomes.joined(runs, smallest).groupby("row")["was"].mean()
    by_row = {
        NO_TEST: outcomes.untested_courses()[NO_TEST],
        **outcomes.courses("k_min", profile="workstation"),
    }
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
            leads = [
                100 * outcomes.lead(*pair, by=by)
                for pair in zip(own, plain, strict=True)
            ]
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


# --- EMNIST, and larger runs ---


def emnist_table() -> DataFrame:
    """The FEMNIST half of Tables 5 and 9, ours on EMNIST.

    Leads are over the same aggregator without FedGWC.
    """
    import pandas as pd

    runs = outcomes.one_cluster(outcomes.last_three("emnist_small"))
    paper = pd.concat(
        [outcomes.printed("9"), outcomes.printed("5").assign(aggregator="FedAvg")]
    )
    paper = paper[paper["dataset"] == "femnist"]
    courses = outcomes.emnist_courses()
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
                ahead = 100 * np.mean([outcomes.lead(*pair, by=by) for pair in pairs])
                line[f"lead at equal {words}"] = f"{ahead:+z.1f}"
        lines[name, shown, beta] = line
    answers = priors.read("emnist_small")[VALUE].mean()
    lines["–", priors.ROW, "–"] = {"ours": f"{100 * answers:.1f}"}
    table = pd.DataFrame(lines).T.fillna("–").replace("nan", "–")
    return table.rename_axis(["aggregator", "", "β"])


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

    runs = outcomes.own_scale(table)
    if runs is None:
        return None
    dataset = LARGER[table]
    paper = (
        outcomes.printed("1")
        .query("aggregator == 'FedAvg'")
        .set_index(["dataset", "row"])
    )
    shown = {  # metric -> head, unit, digits
        VALUE: ("balanced", 100, "{:.1f}"),
        "was": ("WAS", 1, "{:z.2f}"),
        "wadb": ("WADB", 1, "{:.2f}"),
        "clusters": ("clusters", 1, "{:g}"),
    }
    curves = outcomes.own_courses(table)
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
            line["split by round"] = ", ".join(map(outcomes.split_by, curves[str(row)]))
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


# --- levels and domains ---


def level_budgets() -> str:
    """Client updates of FedGWC and its rivals on mixes of levels, in a sentence.

    And how many runs of IFCA and FeSEM had other members at their last evaluation than
    at the one before.
    """
    moved = outcomes.moved_members()
    runs = outcomes.judged_levels().groupby("row")["client_updates"]
    least, most = runs.min(), runs.max()
    return (
        f"client updates: FedGWC {least['FedGWC']} to {most['FedGWC']}, "
        f"IFCA and FeSEM {most['IFCA']};\n"
        f"IFCA, FeSEM: members still changed in {sum(moved)} of {len(moved)} runs"
    )


def quality() -> DataFrame:
    """WAS and WADB of Tables 1, 3 and 6, ours beside the paper's, and what ours cost.

    Table 1 at 480 rounds. A dash is a score that does not exist: one cluster has none.
    """
    import pandas as pd

    one = outcomes.stored("longer").assign(setting="α = 0.5")
    one = one[one["row"].isin(["FedGWC", "IFCA", "FeSEM"])]
    ours = pd.concat([one, outcomes.untested("α = 0.5"), outcomes.shown_levels()])
    theirs = outcomes.printed_of("1", "3", "6")
    theirs = theirs[theirs["dataset"] != "femnist"].fillna({"setting": "α = 0.5"})
    theirs = theirs[theirs["row"].isin(["FedGWC", "IFCA", "FeSEM"])]
    theirs = theirs.replace({"row": {"FedGWC": NO_TEST}})
    by = ["dataset", "setting", "row"]
    scores = ["was", "wadb"]
    ours = outcomes.in_order(ours)
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


def found_groups() -> DataFrame:
    """Levels and domains: the adjusted Rand index, and accuracy of three arms."""
    import pandas as pd

    mixed = outcomes.shown_levels()
    three = mixed[mixed["setting"] == "(40, 30, 30)"]
    answers = priors.read("heterogeneity").query("setting == '(40, 30, 30)'")
    balanced = pd.concat([three, answers]).groupby(["row", "dataset"])[VALUE].mean()
    balanced = 100 * balanced.unstack()
    means = {
        "ARI, levels": mixed.groupby("row")["ari"].mean(),
        "ARI, domains": outcomes.domains().groupby("row")["ari"].mean(),
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


DOMAINS_SPOKEN = {  # of Tables 4 and 7, in per cent of the clients
    "(50, 50, 0)": "50 % clean, 50 % noise",
    "(50, 0, 50)": "50 % clean, 50 % blur",
    "(40, 30, 30)": "40 % clean, 30 % noise, 30 % blur",
}


def domain_table() -> DataFrame:
    """Tables 4 and 7 with what ours cost, settings in words."""
    runs, paper = (
        frame.replace({"setting": DOMAINS_SPOKEN})
        for frame in (outcomes.domains(), outcomes.printed_of("4", "7"))
    )
    return with_cost(runs, paper, ["setting", "row"], "rand", percent=False)


# --- every look of each rule ---


def seeds_of_looks(runs: DataFrame) -> str:
    """How many looks these runs of `outcomes.looks` have at least, in words.

    Where a rule is judged: at the middle ε, and as printed.
    """
    middle = f"ε = {EPSILONS[1]:g}"
    number = outcomes.judged_rules(runs)["looks"].map(len).min()
    return (
        f"All three seeds are run; with {middle}, and as printed, each rule looks "
        f"{number} times or more in every run"
    )


def looked_table() -> DataFrame:
    """The Rand index in the runs of `outcomes.looks`, where there are groups.

    Of each rule at its first split, with the middle one of three ε, and of IFCA and
    FeSEM at the end; means over seeds. A rule that never split has one big cluster.
    """
    import pandas as pd

    runs = outcomes.looks()
    rivals = outcomes.looked_rivals()
    runs = outcomes.judged_rules(runs[runs["groups"] > 1])
    one = runs.groupby("setting", sort=False)["rand_of_one"].first()
    lines = {"one big cluster": one}
    for rule, own in runs.groupby("rule", sort=False):
        lines[f"{rule}, first split"] = own.groupby("setting")["rand"].mean()
    for row, own in rivals.groupby("row", sort=False):
        lines[f"{row}, at the end"] = own.groupby("setting")["rand"].mean()
    return pd.DataFrame(lines).T[[*one.index]].map("{:.2f}".format)


# --- Figures 5 to 8 ---


def refused(*settings: str) -> DataFrame:
    """Which check let a cut pass, or refused it, at the first look of seed 0."""
    import pandas as pd

    rule = outcomes.watched_rules()["corrected"]
    lines = {}
    for setting in settings:
        final = outcomes.watched_runs()[setting]
        tested = outcomes.against_chance(torch.tensor(final["P"]), rule)
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
    for (setting, seed), final in outcomes.watched_runs(all_seeds=True).items():
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
