"""WeCFL's claims, and questions of ours, judged on the committed records.

Where methods are compared, seeds are averaged first, and the cells of Tables 2 and 5
are the replicates: a cell is a data set and a setting. Where a claim is about all K,
five and ten are averaged, too, because they share data and seeds. Claims about one cell
have seeds as replicates. The paper's own effect is computed from its printed numbers in
the same way.

The lead over FeSEM in macro-F1 is the exception: the paper weights clients by their
batches, our records count them alike, and that may decide a lead of a point. So it is
judged without the printed effect. This was settled after a look at the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import tables
from ...claims import Claim, Interval, effect, exactly, mean_of
from . import figures, theory
from .figures import ACCURACY, LAPTOP, MACRO_F1, OWN

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    Among = Callable[[DataFrame], Series]  # chooses lines of a frame

CELL = ["dataset", "setting"]
TOY = "toy (12 clients, softmax regression)"
LONGER = "30 clients, 30 rounds"
TABLES_2_AND_5 = "8.1, B.2, Tables 2, 5"


HEADLINES = (
    "WeCFL is more accurate than FeSEM",
    "WeCFL has a higher macro-F1 than FeSEM",
    "WeCFL is more accurate than IFCA (mended)",
    "Ten clusters beat one model, FedAvg",
    "The gain over one model is larger on CIFAR-10",
    "Ten models are better than five: WeCFL",
    "An ensemble is better than a single FedAvg",
    "IFCA's clusters change more often than WeCFL's",
    "WeCFL converges faster than FeSEM (mean of the curve)",
    "The clustering settles within ten rounds",
    "With K = 10 it finds the true groups exactly",
    "Under its bound on the step, F never rises",
)  # what the page shows first; and all claims about accuracy at the paper's scale


def headlines(claims: Sequence[Claim]) -> list[Claim]:
    """The paper's main claims, for the first screen."""
    return [
        claim
        for claim in claims
        if not claim.ours
        and (
            claim.statement in HEADLINES
            or (claim.scale == OWN and "more accurate" in claim.statement)
        )
    ]


def claims() -> list[Claim]:
    """All claims of the paper, then our questions (``ours``)."""
    return [
        *of_the_ranking(),
        *of_the_settings(),
        *of_the_number_of_clusters(),
        *of_ensembles(),
        *of_ifca(),
        *of_convergence(),
        *of_the_clusters(),
        *of_the_geometry(),
        *of_the_theory(),
        *at_the_papers_scale(),
        *our_questions(),
    ]


# --- effects --------------------------------------------------------------------------


def difference(
    frame: DataFrame, a: Any, b: Any, by: Sequence[str], value: str, tag: str
) -> Interval:
    """The effect a - b, all else averaged, over the cells of ``by``."""
    means = figures.mean_over_seeds(frame, [*by, tag], value)
    return effect(tables.paired(means, tag, a, b, value, [*by]))


def compared(
    statement: str,
    where: str,
    a: Any,
    b: Any,
    among: Among,
    *,
    value: str = ACCURACY,
    tag: str = "row",
    comparable: bool = True,
    ours: bool = False,
) -> Claim:
    """A claim that a is above b in the cells of both tables, with the paper's effect.

    ``among`` chooses lines of a frame, ours or the paper's. If the numbers are not
    ``comparable``, the paper's effect is left out.
    """
    mine = figures.both()
    mine = mine[among(mine)]
    theirs = figures.paper()
    theirs = theirs[among(theirs)]
    printed = None
    if comparable and value in theirs and {a, b} <= set(theirs[tag]):
        printed = difference(theirs, a, b, CELL, value, tag).mean
    return Claim(
        statement,
        where,
        difference(mine, a, b, CELL, value, tag),
        printed,
        replicates=f"{len(mine[CELL].drop_duplicates())} cells, 3 seeds averaged",
        scale=LAPTOP,
        ours=ours,
    )


def share(hits: int, runs: int) -> Interval:
    """A share of runs with its exact 95 % interval (Clopper and Pearson)."""
    from scipy.stats import binomtest

    ends = binomtest(hits, runs).proportion_ci()
    return Interval(hits / runs, float(ends.low), float(ends.high))


def clustered(frame: DataFrame) -> Series:
    """Lines of methods with five or ten models."""
    return frame["K"].isin([5, 10])


def ten_or_one(frame: DataFrame) -> Series:
    """Lines without the methods with five models."""
    return frame["K"] != 5


def client_wise(frame: DataFrame) -> Series:
    """Lines of Table 5 without the methods with five models."""
    return ten_or_one(frame) & frame["setting"].isin(figures.CLIENT_WISE)


def lines_of(row: str, frame: DataFrame) -> Series:
    """Lines of one method."""
    return frame["row"] == row


# --- Tables 2 and 5 -------------------------------------------------------------------


def of_the_ranking() -> list[Claim]:
    """Section 8.1, and B.2: WeCFL outperforms almost all baselines."""
    against = partial(compared, where=TABLES_2_AND_5, a="WeCFL")
    better = partial(against, value=MACRO_F1)
    return [
        against("WeCFL is more accurate than FeSEM", b="FeSEM", among=clustered),
        better(
            "WeCFL has a higher macro-F1 than FeSEM",
            b="FeSEM",
            among=clustered,
            comparable=False,
        ),
        against("WeCFL is more accurate than IFCA (mended)", b="IFCA", among=clustered),
        better(
            "WeCFL has a higher macro-F1 than IFCA (mended)", b="IFCA", among=clustered
        ),
        against("Ten clusters beat one model, FedAvg", b="FedAvg", among=ten_or_one),
        better(
            "Ten clusters have a higher macro-F1 than one model",
            b="FedAvg",
            among=ten_or_one,
        ),
        against(
            "Ten clusters beat ten models that vote, FedAvg+",
            b="FedAvg+",
            among=ten_or_one,
        ),
    ]


def of_the_settings() -> list[Claim]:
    """Sections 1 and B.2: where clustering pays, and where it pays more."""
    without_groups = compared(
        "Ten clusters beat one model without true groups, too (client-wise)",
        "1, Table 5",
        "WeCFL",
        "FedAvg",
        client_wise,
    )
    gains = [
        contrast(frame[ten_or_one(frame)], "row", "WeCFL", "FedAvg")
        for frame in (figures.both(), figures.paper())
    ]
    personal = Claim(
        "Clusters balance better than models tuned for each client",
        "1",
        reason="neither the paper's tables nor ours have a method that fine-tunes; "
        "training alone, a row of ours, is no such method",
    )
    return [
        without_groups,
        of_two_kinds(
            "The gain over one model is larger with true groups (cluster-wise)",
            "1",
            *map(by_kind, gains),
            tag="kind",
            sides=("cluster-wise", "client-wise"),
            pairs=["dataset", "law"],
        ),
        of_two_kinds(
            "The gain over one model is larger on CIFAR-10",
            "B.2",
            *gains,
            tag="dataset",
            sides=("cifar10", "fashion_mnist"),
            pairs=["setting"],
        ),
        personal,
    ]


def of_the_number_of_clusters() -> list[Claim]:
    """Sections 8.1, 8.2 and B.2: larger K is better, for all methods."""
    found = [
        compared(
            f"Ten models are better than five: {row}",
            "8.1, 8.2, B.2",
            10,
            5,
            partial(lines_of, row),
            tag="K",
        )
        for row in ("WeCFL", "FeSEM", "IFCA", "FedAvg+", "FedProx+")
    ]
    gains = [
        contrast(frame[lines_of("WeCFL", frame)], "K", 10, 5)
        for frame in (figures.both(), figures.paper())
    ]
    more = of_two_kinds(
        "WeCFL gains more by larger K on CIFAR-10",
        "B.2",
        *gains,
        tag="dataset",
        sides=("cifar10", "fashion_mnist"),
        pairs=["setting"],
    )
    return [*found, more]


def contrast(frame: DataFrame, tag: str, a: Any, b: Any) -> DataFrame:
    """The difference a - b in every data set and setting, in points."""
    means = figures.mean_over_seeds(frame, [*CELL, tag], ACCURACY)
    pair = tables.paired(means, tag, a, b, ACCURACY, CELL)
    return pair.differences.assign(difference=100 * pair.differences["difference"])


def by_kind(gains: DataFrame) -> DataFrame:
    """Gains with the kind of their setting, and the law that both kinds have."""
    clusters = gains["setting"].isin(figures.CLUSTER_WISE)
    classes = gains["setting"].str.endswith("-class")
    return gains.assign(
        kind=clusters.map({True: "cluster-wise", False: "client-wise"}),
        law=classes.map({True: "by classes", False: "Dirichlet"}),
    )


def of_two_kinds(
    statement: str,
    where: str,
    ours: DataFrame,
    theirs: DataFrame,
    *,
    tag: str,
    sides: tuple[str, str],
    pairs: list[str],
) -> Claim:
    """A claim that a gain is larger on one side of ``tag`` than on the other."""
    first, second = sides
    intervals = []
    for gains in (ours, theirs):
        pair = tables.paired(
            gains, tag, first, second, "difference", pairs, percent=False
        )
        intervals.append(effect(pair))
    number = len(ours[pairs].drop_duplicates())
    return Claim(
        statement,
        where,
        intervals[0],
        intervals[1].mean,
        replicates=f"{number} pairs of cells of both tables, 3 seeds averaged",
        scale=LAPTOP,
    )


def of_ensembles() -> list[Claim]:
    """Section 8.1: ensembles help slightly, and are very stable."""
    both = figures.both()
    spread = both[ten_or_one(both)].groupby([*CELL, "row"])[ACCURACY].std()
    wide = 100 * spread.unstack("row")  # (8 cells, rows)
    single = wide["FedAvg"] + wide["FedProx"]
    voting = wide["FedAvg+"] + wide["FedProx+"]
    calmer = (single - voting) / 2
    found = [
        compared(
            f"An ensemble is better than a single {row}",
            "8.1",
            f"{row}+",
            row,
            ten_or_one,
        )
        for row in ("FedAvg", "FedProx")
    ]
    stable = Claim(
        "Ensembles vary less from seed to seed than single models",
        "8.1",
        mean_of(calmer.tolist()),
        unit="points of standard deviation",
        replicates="8 cells, FedAvg and FedProx averaged",
        scale=LAPTOP,
    )
    return [*found, stable]


# --- IFCA, Figures 2 and 3 ------------------------------------------------------------


def of_ifca() -> list[Claim]:
    """Section 8.1: IFCA clusters unstably, and sometimes gets worse with larger K."""
    runs = figures.curves("figure2")
    moves = {
        row: [len(figures.changes(course)) for course in runs[row]]
        for row in ("IFCA", "WeCFL")
    }
    more = [a - b for a, b in zip(moves["IFCA"], moves["WeCFL"], strict=True)]
    unstable = Claim(
        "IFCA's clusters change more often than WeCFL's",
        "8.1",
        mean_of(more),
        unit="rounds with a change",
        replicates="3 seeds, Figure 2, IFCA mended",
        scale=LONGER,
    )
    ours = worse_with_ten(figures.both())
    theirs = worse_with_ten(figures.paper())
    worse = Claim(
        "IFCA sometimes gets worse with larger K",
        "8.1",
        share(sum(ours), len(ours)),
        sum(theirs) / len(theirs),
        unit="of the runs",
        replicates=f"{sum(ours)} of {len(ours)} runs, IFCA mended",
        scale=LAPTOP,
    )
    return [unstable, worse]


def worse_with_ten(frame: DataFrame) -> list[bool]:
    """For each run of IFCA, or cell if it is printed: are ten models below five?"""
    ifca = frame[lines_of("IFCA", frame)]
    index = [*CELL]
    if "seed" in ifca:
        index.append("seed")
    wide = ifca.pivot_table(ACCURACY, index, "K")
    return (wide[10] < wide[5]).tolist()


def of_convergence() -> list[Claim]:
    """Section 8.2, Figure 2: WeCFL converges faster than others."""
    runs = figures.curves("figure2")
    mean = {
        row: [100 * course[ACCURACY].mean() for course in courses]
        for row, courses in runs.items()
    }
    found = []
    for rival in ("FeSEM", "IFCA"):
        ahead = [a - b for a, b in zip(mean["WeCFL"], mean[rival], strict=True)]
        claim = Claim(
            f"WeCFL converges faster than {rival} (mean of the curve)",
            "8.2, Figure 2",
            mean_of(ahead),
            replicates="3 seeds",
            scale=LONGER,
        )
        found.append(claim)
    return found


def of_the_clusters() -> list[Claim]:
    """Section 8.3 and B.2: when the clusters settle, and if they are right."""
    runs = figures.curves("figure3")
    settled = {
        K: [figures.settled(course) for course in runs[f"WeCFL, K = {K}"]]
        for K in (3, 5, 10)
    }
    others = [figures.settled(c) for c in figures.curves("figure2")["WeCFL"]]
    right = [course["ari"].iloc[-1] for course in runs["WeCFL, K = 10"]]
    whole = [course["completeness"].iloc[-1] for course in runs["WeCFL, K = 3"]]
    exact = sum(ari == 1 for ari in right)
    seen = partial(Claim, replicates="3 seeds, Figure 3", scale=LONGER)
    in_time = partial(seen, unit="rounds to spare", threshold=-0.5)
    every = [*others, *settled[3], *settled[5], *settled[10]]
    return [
        in_time(
            "The clustering settles within ten rounds",
            "8.3",
            mean_of([10 - t for t in every]),
            replicates="12 runs of Figures 2 and 3",
        ),
        in_time(
            "With K = 10 it settles in one round",
            "B.2",
            mean_of([1 - t for t in settled[10]]),
        ),
        in_time(
            "With K = 3 it settles in three rounds",
            "B.2",
            mean_of([3 - t for t in settled[3]]),
        ),
        seen(
            "With K = 10 it finds the true groups exactly",
            "B.2",
            mean_of(right),
            1.0,
            threshold=0.995,
            unit="adjusted Rand index",
            replicates=f"3 seeds, Figure 3, {exact} of them exactly",
        ),
        seen(
            "With K = 3 no true group is torn apart",
            "B.2",
            mean_of(whole),
            1.0,
            threshold=0.995,
            unit="completeness",
        ),
    ]


def of_the_geometry() -> list[Claim]:
    """Section 8.3 and B.2 on the networks of Tables 3 and 4; [] without records."""
    frame = figures.geometry()
    if frame is None:
        return []
    ten = frame[frame["K"] == 10]
    last = [course.iloc[-1] for course in ten["course"]]
    apart = [line["cosine_members"] - line["cosine_centres"] for line in last]
    seen = partial(Claim, replicates=f"{len(ten)} runs, K = 10", scale=LAPTOP)
    course = partial(seen, unit="of distance, first to last round")
    return [
        seen(
            "Members of a cluster are more alike than centres",
            "8.3, Figure 4",
            mean_of(apart),
            0.999 - 0.93,
            unit="of cosine",
        ),
        seen(
            "Members of a cluster have cosines above 0.999",
            "8.3, Figure 4",
            mean_of([line["cosine_members"] for line in last]),
            threshold=0.999,
            unit="mean cosine of two members",
        ),
        course(
            "Clients come closer to their centre", "B.2", change(ten, "to_centre", -1)
        ),
        course("Centres move apart", "B.2", change(ten, "between", 1)),
        seen(
            "B is close to zero (below 0.1)",
            "6.2, 8.3",
            mean_of([-line["B"] for line in last]),
            threshold=-0.1,
            unit="of −B in the last round",
        ),
        course(
            "B gets better with every round",
            "B.2",
            change(ten, "B", -1),
            unit="of B, first to last round",
        ),
    ]


def change(frame: DataFrame, name: str, sign: float) -> Interval:
    """How a number of each run changes from its first to its last round."""
    moved = [course[name].iloc[-1] - course[name].iloc[0] for course in frame["course"]]
    return mean_of([sign * x for x in moved])


# --- section 6 ------------------------------------------------------------------------


def of_the_theory() -> list[Claim]:
    """Section 6 on a toy where its assumptions hold."""
    free = theory.toy()
    kept = theory.toy(1.0, free["U"].max())
    ifca = theory.toy_ifca()
    rate = theory.promise(free)
    noisy = theory.promise(theory.toy(batch=16))
    copies = theory.toy(copies=True)
    below = theory.allowed(copies) > theory.ETA
    falls = copies["R_L"] < copies["R_E"]
    always = partial(
        Claim,
        replicates="one run without noise",
        scale=TOY,
        unit=f"of {theory.ROUNDS} rounds",
        threshold=theory.ROUNDS - 0.5,
    )
    return [
        always(
            "IFCA's objective falls in every round",
            "6",
            exactly((ifca["R_M"] <= ifca["R_0"] + 1e-12).sum()),
        ),
        always(
            "Under its bound on the step, F never rises",
            "Theorem 6.2",
            exactly((kept["F_L"] <= kept["F_M"] + 1e-12).sum()),
        ),
        always(
            "Below a second bound on the step, R falls in every round",
            "Theorem 6.8",
            exactly((below & falls).sum()),
            replicates="one run without noise, members with the same data (B = 0)",
        ),
        always(
            "The squared gradient stays below the promised rate",
            "Theorem 6.9",
            exactly((rate["measured"] <= rate["promised"]).sum()),
        ),
        always(
            "The same with noise (batches of 16)",
            "Theorem 6.9",
            exactly((noisy["measured"] <= noisy["promised"]).sum()),
            replicates="one run",
        ),
    ]


# --- the paper's own scale ------------------------------------------------------------


def at_the_papers_scale() -> list[Claim]:
    """The main claims with ten clusters on runs at the paper's own scale, if any.

    Cells with a single seed have no interval. The page shows them in its tables only.
    """
    found = []
    frame = figures.own_scale()
    for (dataset, setting), cell in frame.groupby(CELL, sort=False):
        seeds = cell["seed"].nunique()
        if seeds == 1:
            continue
        theirs = figures.paper()
        theirs = theirs[(theirs["dataset"] == dataset) & (theirs["setting"] == setting)]
        where = f"at the paper's scale ({figures.DATASETS[dataset]}, {setting})"
        seen = partial(Claim, replicates=f"{seeds} seeds", scale=OWN)
        for rival in ("FeSEM", "IFCA", "FedAvg"):
            mine = at_ten(cell, "WeCFL", rival)
            printed = at_ten(theirs, "WeCFL", rival).mean
            text = f"WeCFL is more accurate than {rival} {where}"
            found.append(seen(text, "Table 2", mine, printed))
        more, printed_more = (
            difference(side[lines_of("WeCFL", side)], 10, 5, runs(side), ACCURACY, "K")
            for side in (cell, theirs)
        )
        text = f"Ten clusters are better than five {where}"
        found.append(seen(text, "8.1", more, printed_more.mean))
        alone = at_ten(cell, "WeCFL", "LocalOnly")
        text = f"WeCFL is better than training alone {where}"
        found.append(seen(text, "ours", alone, ours=True))
    return found


def runs(frame: DataFrame) -> list[str]:
    """The columns that tell runs of a cell apart: seeds, or only the cell (printed)."""
    return ["seed"] if "seed" in frame else ["setting"]


def at_ten(frame: DataFrame, a: str, b: str) -> Interval:
    """The difference between two rows of one cell, with ten models or one."""
    return difference(frame[ten_or_one(frame)], a, b, runs(frame), ACCURACY, "row")


# --- questions of ours ----------------------------------------------------------------


def our_questions() -> list[Claim]:
    """What the paper does not ask."""
    ends = {
        row: [100 * course[ACCURACY].iloc[-3:].mean() for course in courses]
        for row, courses in figures.curves("figure2").items()
    }
    slow = (ends["IFCA as released, η = 0.001"], ends["FedAvg, η = 0.001"])
    above = [a - b for a, b in zip(*slow, strict=True)]
    ask = partial(compared, where="ours", ours=True)
    steps = int((theory.allowed(theory.toy()) > 0).sum())
    return [
        ask(
            "WeCFL beats random clusters of equal size",
            a="WeCFL",
            b="Random clusters",
            among=clustered,
        ),
        ask(
            "WeCFL with ten clusters beats training alone",
            a="WeCFL",
            b="LocalOnly",
            among=ten_or_one,
        ),
        ask(
            "Ten models are better than five: random clusters",
            a=10,
            b=5,
            among=partial(lines_of, "Random clusters"),
            tag="K",
        ),
        ask(
            "WeCFL beats FeSEM if every client counts alike",
            a="WeCFL",
            b="FeSEM",
            among=clustered,
            value="accuracy",
        ),
        weights_need_sizes(),
        Claim(
            "IFCA as released beats FedAvg at the paper's η = 0.001",
            "ours",
            mean_of(above),
            replicates="3 seeds, CIFAR-10, (3, 2)-class",
            scale=LONGER,
            ours=True,
        ),
        Claim(
            "With real groups Theorem 6.8 allows a step in every round",
            "ours",
            exactly(steps),
            threshold=theory.ROUNDS - 0.5,
            unit=f"of {theory.ROUNDS} rounds",
            replicates="one run without noise",
            scale=TOY,
            ours=True,
        ),
    ]


def weights_need_sizes() -> Claim:
    """WeCFL's lead over FeSEM where sizes differ, less its lead where they do not."""
    leads = []
    for frame in (figures.both(), figures.records("equal_sizes")):
        frame = frame.assign(setting=frame["setting"].str.removesuffix(", equal sizes"))
        frame = frame[frame["setting"].isin(["(3, 2)-class", "2-class"])]
        gains = contrast(frame[clustered(frame)], "row", "WeCFL", "FeSEM")
        leads.append(gains.set_index(CELL)["difference"])
    different, equal = leads
    more = different - equal
    return Claim(
        "WeCFL's lead over FeSEM is larger where sizes differ",
        "ours",
        mean_of(more.tolist()),
        replicates="4 cells of the n-class settings",
        scale=LAPTOP,
        ours=True,
    )
