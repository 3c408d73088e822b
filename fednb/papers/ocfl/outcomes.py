"""What came out of the runs of OCFL's chapter: records as frames and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import tables
from .. import common
from . import archive, arms
from .archive import SIZES, scores
from .arms import CLUSTERERS
from .tasks import FIFTEEN, LOCAL_WORK, NAMES, SCALES, TABLES, THIRTY, THRESHOLDS

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...sweeps import Task


SCENARIO = ["data", "clients", "overlap", "balance"]
# the data sets' own names, where records and archive have others
SHOWN = {"CIFAR10": "CIFAR-10", "PATHMNIST": "PathMNIST", "BLOODMNIST": "BloodMNIST"}


# --- the records as frames ---


def fires(temperature: Sequence[float], window: int = 1) -> float:
    """The first round, from 1, in which the mean of the last ``window`` temperatures
    rises, or nan (section 6.3).
    """
    T = np.asarray(temperature, float)
    rises = np.flatnonzero(
        T[window:] > T[:-window]
    )  # two means of w rounds differ in their ends
    return float(rises[0] + window + 1) if len(rises) else np.nan


def every_round(
    tasks: Sequence[Task],
    path: str | Path,
    mark: str = "",
    clusterers: Sequence[str] = tuple(CLUSTERERS),
) -> DataFrame:
    """One line per run, clusterer and round: the temperature, when it fires, and how
    good clusters of this round are.

    ``mark="state "`` takes the updates with what is no parameter, where they were
    looked at.
    """
    import pandas as pd

    facts = tables.frame(tasks, path)[[*tables.FACTS]].to_dict("records")
    columns: dict[str, list] = defaultdict(list)
    for task, fact, curve in zip(tasks, facts, courses(tasks, path), strict=True):
        T = curve[f"{mark}temperature"].tolist()
        true = np.repeat(range(3), SIZES[_shape(task)])
        same = {"fires": fires(T), **fact, **task.tags}
        for name in clusterers:
            names = [list(found) for found in curve[mark + name]]  # rounds, clients
            columns["ari"] += scores(np.array(names), true, ["ari"])["ari"].tolist()
            columns["clusters"] += [len(set(row)) for row in names]
            columns["temperature"] += T
            columns["round"] += curve["round"].tolist()
            for key, value in (same | {"row": name}).items():
                columns[key] += [value] * len(T)
    return pd.DataFrame(columns)


def at_trigger(looks: DataFrame, fires: str = "fires") -> DataFrame:
    """The lines of `every_round` in which the trigger fires; where it never does, all
    stay together in one cluster.
    """
    import pandas as pd

    never = looks[looks[fires].isna() & (looks["round"] == 1)]
    together = {"ari": 0.0, "clusters": 1, "round": np.nan}
    return pd.concat(
        [looks[looks["round"] == looks[fires]], never.assign(**together)]
    ).sort_index()


def _shape(task: Task) -> tuple[int, str]:
    return int(task.tags["clients"]), str(task.tags["balance"])


def courses(tasks: Sequence[Task], path: str | Path) -> list[DataFrame]:
    """The curves of each task's run, in the tasks' order."""
    tagged = [replace(task, tags={"at": i}) for i, task in enumerate(tasks)]
    return [curve for (curve,) in tables.curves(tagged, path, "at").values()]


def side_by_side(tasks: Sequence[Task], path: str | Path) -> DataFrame:
    """One line per run and arm: its final scores, and what it would have cost alone.

    ``maps`` are those of `explain.group_maps`, ``insertion_curve`` and
    ``deletion_curve`` mean curves, where the records have them.

    Records of `Arms` before its revision 2 do not tell an arm's own cost: there
    ``client_updates`` and ``bytes`` are those of the whole run.
    """
    import pandas as pd

    frame = tables.frame(tasks, path)
    done = tables.by_key(path)
    finals = [done[task.key]["metrics"]["final"] for task in tasks]
    rows = dict.fromkeys(name for task in tasks for name, _ in task.method.arms)
    whole = frame[[name for name in frame.columns if "|" not in name]]
    parts = []
    for row in rows:
        own = frame[[name for name in frame.columns if name.startswith(f"{row}|")]]
        own = own.rename(columns=lambda name: name.split("|")[1])
        common = whole.drop(columns=own.columns.intersection(whole.columns))
        part = pd.concat([common, own], axis=1).assign(row=row)
        for name in ("maps", "insertion_curve", "deletion_curve"):
            kept = [final.get(f"{row}|{name}") for final in finals]
            if any(kept):
                part[name] = kept
        parts.append(part[own.notna().any(axis=1)])
    return pd.concat(parts, ignore_index=True)


def over_splits(frame: DataFrame, value: str) -> DataFrame:
    """Mean of a score over the splits, for each row, data set, number of clients and
    seed; with the runs' facts.
    """
    facts = {name: (name, "first") for name in tables.FACTS if name != "seed"}
    by = ["row", "data", "clients", "seed"]
    return (
        frame.groupby(by, sort=False)
        .agg(**facts, **{value: (value, "mean")})
        .reset_index()
    )


def archived(runs: DataFrame) -> DataFrame:
    """The archive's runs (`archive.summary`) with our names; rows that got the wrong
    matrix say so.
    """
    wrong = {
        "BCL": "BCL as released",
        "OCFL-AFF": "OCFL-AFF as released",
        "BNC": "FedAvg",
    }
    named = runs.rename(columns={"dataset": "data", "algorithm": "row"}).drop(
        columns=["ari", "ami", "homogeneity"]
    )
    named = named.rename(
        columns={
            f"final_{kind}": kind
            for kind in ("ari", "ami", "homogeneity", "completeness")
        }
    )
    return named.assign(row=named["row"].replace(wrong))


# --- what the chapter's pictures and claims stand on ---


@cache
def looks() -> DataFrame:
    """`every_round` of all data sets and numbers of clients."""
    return _stored(every_round, *FIFTEEN, *THIRTY)


@cache
def all_arms() -> DataFrame:
    """`side_by_side` of all tables that have every method."""
    return _stored(side_by_side, *FIFTEEN, "fashion_mnist30")


def thirty_clients() -> DataFrame:
    """ARI and PF1 (own classes) at the end with 30 clients, on both grey data sets.

    Means over four splits and three seeds of the short runs.
    """
    import pandas as pd

    runs = _stored(side_by_side, "fashion_mnist30", "mnist30")
    means = runs.pivot_table(["ari", "pf1"], "row", "data", sort=False)
    found = {}
    for name in ("MNIST", "FMNIST"):
        found[f"ARI, {name}"] = means["ari", name]
        found[f"PF1, {name}"] = means["pf1", name]
    return pd.DataFrame(found).rename_axis("method")


@cache
def kept_archive() -> dict[str, DataFrame]:
    """The summary of the authors' runs that is kept with the book, with our names.

    Data sets are in the paper's order.
    """
    frames = archive.kept(common.results("ocfl") / "archive.json")
    order = list(NAMES.values())
    named = {"runs": archived(frames["runs"])}
    for name in ("temperatures", "explanations"):
        columns = {"dataset": "data", "algorithm": "row"}
        named[name] = frames[name].rename(columns=columns)
    rows = named["explanations"].replace({"row": {"BNC": "FedAvg"}})
    named["explanations"] = rows
    for name, frame in named.items():
        place = frame["data"].map(order.index)
        named[name] = frame.iloc[place.argsort(kind="stable")].replace({"data": SHOWN})
    return named


def courses_of_arms(runs: Sequence[Task], path: str | Path) -> DataFrame:
    """PF1, GF1 and ARI of every arm in every measured round."""
    import pandas as pd

    columns: dict[str, list] = defaultdict(list)
    for task, curve in zip(runs, courses(runs, path), strict=True):
        first, _ = task.method.arms[0]
        measured = curve[curve[f"{first}|pf1"].notna()]
        for row, _ in task.method.arms:
            columns["round"] += measured["round"].tolist()
            for kind in ("pf1", "gf1", "ari"):
                columns[kind] += measured[f"{row}|{kind}"].tolist()
            for key, value in {"row": row, "seed": task.seed, **task.tags}.items():
                columns[key] += [value] * len(measured)
    return pd.DataFrame(columns)


# --- the long runs: three epochs a round ---


LONG = tuple(f"local_work_{name}" for name in LOCAL_WORK)


@cache
def long_looks() -> DataFrame:
    """`every_round` of the runs with three epochs a round."""
    return _stored(every_round, *LONG, profile="workstation")


@cache
def long_arms() -> DataFrame:
    """`side_by_side` of these runs; FL+HC's threshold is chosen on other seeds."""
    arms_ = _stored(side_by_side, *LONG, profile="workstation")
    return tuned(arms_, chosen_thresholds(arms_))


@cache
def long_scores_over_rounds() -> DataFrame:
    """PF1, GF1 and ARI of every arm in every measured round of these runs.

    FL+HC has the thresholds of `long_arms`.
    """
    courses = _stored(courses_of_arms, *LONG, profile="workstation")
    ends = courses[courses["round"] == courses["round"].max()]
    return tuned(courses, chosen_thresholds(ends))


@cache
def briggs_looks() -> DataFrame:
    """What FL+HC finds in every round of the long runs, at each threshold."""
    names = [arms.at_threshold(threshold) for threshold in THRESHOLDS]
    return _stored(partial(every_round, clusterers=names), *LONG, profile="workstation")


def untuned_briggs() -> DataFrame:
    """The same in the round in which FL+HC splits, at the thresholds that the paper
    tried: 0.05 to 0.4.
    """
    tried = [arms.at_threshold(t) for t in THRESHOLDS if t <= 0.4]
    looked = briggs_looks()
    splits = looked["round"] == SCALES["workstation"].wait + 1
    return looked[splits & looked["row"].isin(tried)]


def by_threshold() -> DataFrame:
    """Mean ARI of FL+HC in the long runs: thresholds, and some rounds of the split."""
    names = [arms.at_threshold(threshold) for threshold in THRESHOLDS]
    looked = briggs_looks()
    means = looked.groupby(["row", "round"])["ari"].mean().unstack().loc[names]
    rounds = {t: f"round {t}" for t in (1, 3, 6, 12)}
    return means[[*rounds]].rename(columns=rounds).rename_axis("threshold")


def chosen_thresholds(arms_: DataFrame) -> dict[int, str]:
    """For each seed the row of FL+HC with the highest mean ARI on the other seeds."""
    briggs = arms_[arms_["row"].str.startswith("BCL")]
    chosen = {}
    for seed in briggs["seed"].unique():
        others = briggs[briggs["seed"] != seed]
        chosen[int(seed)] = str(others.groupby("row")["ari"].mean().idxmax())
    return chosen


def tuned(frame: DataFrame, chosen: dict[int, str]) -> DataFrame:
    """The frame with one row BCL: in each seed the one of `chosen_thresholds`."""
    import pandas as pd

    parts = [frame[~frame["row"].str.startswith("BCL")]]
    for seed, row in chosen.items():
        own = frame[(frame["row"] == row) & (frame["seed"] == seed)]
        parts.append(own.assign(row="BCL"))
    return pd.concat(parts, ignore_index=True)


def _stored(
    reader: Callable[..., DataFrame], *names: str, profile: str = "laptop"
) -> DataFrame:
    import pandas as pd

    folder = common.results("ocfl")
    frames = [reader(TABLES[name](profile), folder / f"{name}.json") for name in names]
    return pd.concat(frames, ignore_index=True).replace({"data": SHOWN})


def areas_by_mode(arms_: DataFrame, rows: Sequence[str], normalised: bool) -> DataFrame:
    """Mean areas in the three modes of Algorithm 2, plain or normalised per image.

    For the long runs, whose records have them; one cluster has no others.
    """
    marks = {"in": "", "out": "_out", "server": "_server"}
    columns = {}
    for kind in ("insertion", "deletion"):
        for images, mark in marks.items():
            column = f"{kind}{mark}"
            if normalised:
                column += "_normalised"
            columns[column] = f"{kind}, {images}"
    means = arms_.groupby("row")[[*columns]].mean().loc[list(rows)]
    return means.rename(columns=columns).rename_axis("model")


# --- tables ---------------------------------------------------------------------------


def by_place(looks: DataFrame, rows: Sequence[str]) -> DataFrame:
    """Mean ARI of each clusterer if the split is made in round 1, around the trigger,
    or in the last round. Around the trigger: of the runs in which it fires.
    """
    import pandas as pd

    found = looks[looks["row"].isin(rows)]
    after = found["round"] - found["fires"]
    places = {
        "round 1": found["round"] == 1,
        "before the trigger": after == -1,
        "at the trigger": after == 0,
        "after it": after == 1,
        "last round": found["round"] == found["round"].max(),
    }
    means = {
        name: found[at].groupby("row")["ari"].mean() for name, at in places.items()
    }
    return pd.DataFrame(means).loc[list(rows)].rename_axis("clusterer")


def windows(looks: DataFrame, rows: Sequence[str]) -> DataFrame:
    """Section 6.3: what clusterers find at the trigger of a moving average.

    ARI is 0 where it never fires.
    """
    import pandas as pd

    run = [*SCENARIO, "seed"]
    once = looks[looks["row"] == "OCFL-HDB"].groupby(run)["temperature"]
    lines = {}
    for window in (1, 2, 3, 4):
        fire = once.agg(fires, window=window).rename("later")
        hits = at_trigger(looks.join(fire, on=run), "later")
        lines[window] = {
            "runs that fire": f"{fire.notna().mean():.0%}",
            "mean round": round(fire.mean(), 1),
            **hits.groupby("row")["ari"].mean()[list(rows)],
        }
    return pd.DataFrame(lines).T.rename_axis("window w")


def beside(ours: DataFrame, theirs: DataFrame, caption: str) -> tables.Table:
    """Table 1: the ARI of the archive at the end of a run and below it ours."""
    return tables.beside(
        ours,
        theirs,
        rows=["data", "row"],
        columns=SCENARIO[1:],
        value="ari",
        caption=caption,
        percent=False,
        best=None,
        theirs="archive",
    )


def captioned(frame: DataFrame, caption: str, digits: int = 2) -> tables.Table:
    """A frame as a table of the page: a caption, its index as the first columns."""
    flat = frame.reset_index()
    rows = []
    for line in flat.itertuples(index=False):
        rows.append([_cell(value, digits) for value in line])
    return tables.words([*map(str, flat.columns)], rows, caption, "numbers")


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return "–" if np.isnan(value) else f"{value:z.{digits}f}"
    return str(value)
