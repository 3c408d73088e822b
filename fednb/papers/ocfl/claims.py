"""What OCFL's paper says, judged on our runs by the one rule of `fednb.claims`.

A scenario is a data set with a number of clients and a split. Seeds are averaged first,
and the interval is over scenarios. The effects "printed" are those of the authors'
archived runs, computed in the same way on the same quantity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import tables
from ...claims import Claim, Interval, effect, mean_of
from . import figures
from .figures import SCENARIO

if TYPE_CHECKING:
    from pandas import DataFrame, Series

HDB = "OCFL-HDB"
SCALE = "150 images a client, 12 rounds of 6 steps, LeNet-5"
ALL = "40 scenarios, three seeds averaged"
MOST = "24 scenarios, three seeds averaged"


def claims() -> list[Claim]:
    """All claims, in the order of the paper, then questions of our own."""
    return [
        *clusterers(),
        *against_rivals(),
        *temperature(),
        *personal_and_general(),
        *explanations(),
        *untestable(),
        *our_questions(),
    ]


# --- section 4.6.1: clusters ---


def clusterers() -> list[Claim]:
    """What each clusterer finds at the trigger, by the adjusted Rand index."""
    hits = figures.at_trigger(figures.looks())
    theirs = figures.kept_archive()["runs"]
    out = []
    for row, words in ((HDB, "HDBSCAN"), ("OCFL-MS", "Mean shift")):
        out.append(
            Claim(
                f"{words} recovers the groups at the trigger",
                "4.6.1",
                mean_of(_by_scenario(hits, row)),
                float(_by_scenario(theirs, row).mean()),
                threshold=0.9,
                unit="ARI",
                replicates=ALL,
                scale=SCALE,
            )
        )
    out.append(
        Claim(
            "HDBSCAN is as good as k-means that knows K",
            "4.6.1",
            _lead(hits, HDB, "OCFL-KM", "ari"),
            _lead(theirs, HDB, "OCFL-KM", "ari").mean,
            threshold=-0.05,
            unit="ARI",
            replicates=ALL,
            scale=SCALE,
        )
    )
    out.append(
        Claim(
            "Affinity propagation clusters worse than HDBSCAN",
            "4.6.1",
            _lead(hits, HDB, "OCFL-AFF", "ari"),
            _lead(theirs, HDB, "OCFL-AFF as released", "ari").mean,
            unit="ARI",
            replicates=ALL,
            scale=SCALE,
        )
    )
    out.append(hardest_split(hits, theirs))
    return out


def hardest_split(hits: DataFrame, theirs: DataFrame) -> Claim:
    """Overlapping and balanced groups are harder to find than those of other splits."""
    pair = _other_splits_less_hardest(hits)
    archive = _other_splits_less_hardest(theirs)
    return Claim(
        "Overlapping balanced is the hardest split",
        "4.6.1",
        effect(pair),
        archive.mean,
        unit="ARI",
        replicates=f"{pair.n} data sets and numbers of clients, HDBSCAN",
        scale=SCALE,
    )


def against_rivals() -> list[Claim]:
    """The headline: better clusters and better personal models than SCL and BCL."""
    arms = figures.all_arms()
    theirs = figures.kept_archive()["runs"]
    out = []
    for value, words, unit in (
        ("ari", "Finds the groups better", "ARI"),
        ("pf1_union", "Personal models are better", "F1"),
    ):
        archived = {"pf1_union": "final_pf1"}.get(value, value)
        for rival, name in (("SCL", "SCL"), ("BCL", "BCL as released")):
            out.append(
                Claim(
                    f"{words} than {rival}",
                    "4.6.1",
                    _lead(arms, HDB, rival, value),
                    _lead(theirs, HDB, name, archived).mean,
                    unit=unit,
                    replicates=MOST,
                    scale=SCALE,
                )
            )
    return out


# --- sections 3 and 4.6.2: the temperature ---


def temperature() -> list[Claim]:
    """When the trigger fires, and whether that is a good moment."""
    looks = figures.looks()
    hdb = looks[looks["row"] == HDB]
    fires = hdb[hdb["round"] == 1].groupby(SCENARIO)["fires"].mean()
    theirs = figures.kept_archive()["runs"]
    printed = theirs[theirs["row"] == HDB]["printed_round"].mean()
    early = Claim(
        "The split comes within the first three rounds",
        "7",
        mean_of(3.5 - fires),
        float(3.5 - printed),
        unit="rounds before 3.5",
        replicates=ALL,
        scale=SCALE,
    )
    moment = Claim(
        "The trigger finds a suitable moment",
        "1",
        mean_of(trigger_less_best(hdb)),
        threshold=-0.05,
        unit="ARI below the best round",
        replicates=ALL,
        scale=SCALE,
    )
    above = Claim(
        "After the trigger the temperature stays up",
        "4.6.2",
        mean_of(lowest_afterwards(hdb)),
        unit="T above its last minimum",
        replicates=ALL,
        scale=SCALE,
    )
    calmer = Claim(
        "A moving average would help (w = 2)",
        "6.3",
        effect(_window_two_less_one(looks)),
        unit="ARI",
        replicates=ALL,
        scale=SCALE,
    )
    return [early, moment, above, calmer]


def trigger_less_best(hdb: DataFrame) -> list[float]:
    """ARI in the round of the trigger less that of the best round, per scenario."""
    at = figures.at_trigger(hdb).groupby(SCENARIO)["ari"].mean()
    by_round = hdb.groupby([*SCENARIO, "round"])["ari"].mean()
    best = by_round.groupby(level=SCENARIO).max()
    return (at - best[at.index]).tolist()


def lowest_afterwards(hdb: DataFrame) -> list[float]:
    """The least temperature from the trigger on, less that of the round before it."""
    gaps = []
    for _, run in hdb.groupby([*SCENARIO, "seed"]):
        fires = run["fires"].iloc[0]
        if fires == fires:  # it fired
            before = run.loc[run["round"] == fires - 1, "temperature"].iloc[0]
            later = run.loc[run["round"] >= fires, "temperature"].min()
            gaps.append((*run[SCENARIO].iloc[0], later - before))
    import pandas as pd

    table = pd.DataFrame(gaps, columns=[*SCENARIO, "gap"])
    return table.groupby(SCENARIO)["gap"].mean().tolist()


# --- section 4.4: personal and general models ---


def personal_and_general() -> list[Claim]:
    """F1 on a client's own images, and on images of all classes."""
    arms = figures.all_arms()
    theirs = figures.kept_archive()["runs"]
    out = [
        Claim(
            "Personal models get better",
            "4.4",
            _lead(arms, HDB, "FedAvg", "pf1_union"),
            _lead(theirs, HDB, "FedAvg", "final_pf1").mean,
            unit="F1",
            replicates=MOST,
            scale=SCALE,
        )
    ]
    for rival, name in (("SCL", "SCL"), ("BCL", "BCL as released")):
        out.append(
            Claim(
                f"Keeps as much general knowledge as {rival}",
                "4.6.1",
                _lead(arms, HDB, rival, "gf1_before"),
                _lead(theirs, HDB, name, "final_gf1").mean,
                threshold=-0.05,
                unit="F1",
                replicates=MOST,
                scale=SCALE,
            )
        )
    return out


# --- section 5: explanations ---


def explanations() -> list[Claim]:
    """Areas under insertion and deletion curves, images of a model's own clients."""
    arms = figures.all_arms()
    arms = arms.assign(better=arms["insertion"] - arms["deletion"])
    theirs = figures.kept_archive()["explanations"]
    theirs = theirs[theirs["mode"] == "in"]
    theirs = theirs.assign(better=theirs["insertion"] - theirs["deletion"])
    by = ["data", "overlap", "balance"]
    few = arms[arms["clients"] == 15]
    out = []
    for value, first, second, words in (
        ("better", HDB, "FedAvg", "Explanations improve: insertion less deletion"),
        ("insertion", HDB, "FedAvg", "Explanations: insertion rises"),
        ("deletion", "FedAvg", HDB, "Explanations: deletion falls"),
    ):
        out.append(
            Claim(
                words,
                "5",
                _lead(few, first, second, value, by),
                _lead(theirs, first, second, value, by).mean,
                unit="area",
                replicates="20 scenarios, three seeds averaged",
                scale=SCALE,
            )
        )
    return out


# --- what we cannot judge, and what we ask ---


def untestable() -> list[Claim]:
    """Claims beyond our runs."""
    reason = "our networks are small; the authors' have up to 25 million parameters"
    return [
        Claim("Cosine distances work in very high dimension", "4.6.1", reason=reason)
    ]


def our_questions() -> list[Claim]:
    """Controls and corrected measures that the paper does not have."""
    looks = figures.looks()
    arms = figures.all_arms()
    asked = [
        (
            "Splitting at the trigger beats round 1",
            _trigger_less_first(looks),
            "ARI",
            ALL,
        ),
        ("Beats training alone", _lead(arms, HDB, "LocalOnly", "pf1"), "F1", MOST),
        (
            "Beats random clusters",
            _lead(arms, HDB, "Random clusters", "pf1"),
            "F1",
            MOST,
        ),
        (
            "Personal models get better, F1 over the client's own classes",
            _lead(arms, HDB, "FedAvg", "pf1"),
            "F1",
            MOST,
        ),
        (
            "General knowledge is kept, after averaging, against FedAvg",
            _lead(arms, HDB, "FedAvg", "gf1"),
            "F1",
            MOST,
        ),
    ]
    return [
        Claim(
            words,
            "ours",
            interval,
            unit=unit,
            replicates=replicates,
            scale=SCALE,
            ours=True,
        )
        for words, interval, unit, replicates in asked
    ]


# --- effects ---


def _by_scenario(frame: DataFrame, row: str, value: str = "ari") -> Series:
    """Means over seeds of one row."""
    lines = frame[frame["row"] == row]
    return lines.groupby(SCENARIO)[value].mean()


def _lead(
    frame: DataFrame, a: str, b: str, value: str, by: list[str] = SCENARIO
) -> Interval:
    """One row less another in every scenario, seeds averaged, in the unit of scores."""
    means = frame.groupby([*by, "row"], as_index=False)[value].mean()
    return effect(tables.paired(means, "row", a, b, value, by, percent=False))


def _other_splits_less_hardest(frame: DataFrame) -> tables.Pair:
    by = ["data", "clients"]
    hdb = frame[frame["row"] == HDB]
    hardest = (hdb["overlap"] == "overlapping") & (hdb["balance"] == "balanced")
    split = hardest.map({True: "hardest", False: "others"})
    means = (
        hdb.assign(split=split).groupby([*by, "split"], as_index=False)["ari"].mean()
    )
    return tables.paired(means, "split", "others", "hardest", "ari", by, percent=False)


def _trigger_less_first(looks: DataFrame) -> Interval:
    import pandas as pd

    hdb = looks[looks["row"] == HDB]
    places = [
        figures.at_trigger(hdb).assign(place="trigger"),
        hdb[hdb["round"] == 1].assign(place="first"),
    ]
    both = pd.concat(places).groupby([*SCENARIO, "place"], as_index=False)["ari"].mean()
    pair = tables.paired(
        both, "place", "trigger", "first", "ari", SCENARIO, percent=False
    )
    return effect(pair)


def _window_two_less_one(looks: DataFrame) -> tables.Pair:
    """ARI at the trigger of a window of two rounds, less that of one round."""
    import pandas as pd

    hdb = looks[looks["row"] == HDB]
    runs = hdb.groupby([*SCENARIO, "seed"])["temperature"]
    places = []
    for window in (1, 2):
        fires = runs.agg(figures.fires, window=window).rename("later")
        at = figures.at_trigger(hdb.join(fires, on=[*SCENARIO, "seed"]), "later")
        places.append(at.assign(window=window))
    means = pd.concat(places)
    means = means.groupby([*SCENARIO, "window"], as_index=False)["ari"].mean()
    return tables.paired(means, "window", 2, 1, "ari", SCENARIO, percent=False)
