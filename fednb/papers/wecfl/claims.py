"""WeCFL's claims, and questions of ours, judged on the committed records.

Where methods are compared, seeds are averaged first, and the cells of Tables 2 and 5
are the replicates: a cell is a data set and a setting. Where a claim is about all K,
five and ten are averaged, too, because they share data and seeds. Claims about one cell
have seeds as replicates. Claims about the course of a run have federations: a data set,
dealt with one seed. Runs with different K on one federation are averaged, for the same
reason. The paper's own effect is computed from its printed numbers in the same way: it
is the mean of printed cells, which the paper does not print itself.

B is a ratio, and scatters by factors, so its intervals are made of logarithms, and over
seeds alone: the deals of two data sets with one seed have the same shares.

Macro-F1 is the exception: the released code weights clients by their batches, our
records count them alike. So its direction is judged, without the printed effect. This
was settled after a look at the records. How large the lead over IFCA is, by either
measure, is asked apart, among our own questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import tables
from ...claims import Claim, Interval, effect, exactly, left_open, mean_of
from . import deals, outcomes, theory
from .outcomes import ACCURACY, LAPTOP, MACRO_F1, OWN

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    Among = Callable[[DataFrame], Series]  # chooses lines of a frame

CELL = ["dataset", "setting"]
SEEN = ["seed", "course"]
TOY = "toy (12 clients, softmax regression)"
LONGER = "30 clients, 30 rounds"
TABLES_2_AND_5 = "8.1, B.2, Tables 2, 5"
CLOSE_TO_ZERO = 0.1  # our line for B: the paper names none
DIRECTION_ONLY = (
    "; direction only: our records count clients alike, the released code by batches"
)
B_IS_SMALL = "Members of a cluster agree: B is close to zero"
B_GETS_BETTER = "B gets better and better"
WEIGHTED_AVERAGES = "Weights in the averages help FeSEM"
CLIENTS_ALIKE = "Weights in the averages help FeSEM if every client counts alike"
EQUATION_2 = "WeCFL beats FeSEM with unweighted averages (Eq. 2)"
MEASURES = {ACCURACY: "accuracy", MACRO_F1: "macro-F1"}

# What sections 8.1, 8.2, 8.3 and 6 say first about WeCFL, in this order.
HEADLINES = (
    "WeCFL is more accurate than FeSEM",
    "WeCFL is more accurate than IFCA",
    "Ten clusters beat one model, FedAvg",
    "Ten models are better than five: WeCFL",
    "WeCFL converges faster than FeSEM (mean of the curve)",
    "The clustering settles within ten rounds",
    B_IS_SMALL,
    "Under its bound on the step, distances to centres never grow",
)


def headlines(claims: Sequence[Claim]) -> list[Claim]:
    """The paper's main claims, for the first screen, in the order of ``HEADLINES``.

    Those that were judged at the paper's own scale follow.
    """
    by_statement = {claim.statement: claim for claim in claims}
    main = [by_statement[name] for name in HEADLINES if name in by_statement]
    return main + [claim for claim in claims if claim.scale == OWN and not claim.ours]


def by_verdict(claims: Sequence[Claim]) -> list[Claim]:
    """Claims sorted by verdict: what fails first, then what is open."""
    order = ("fails", "open", "not testable", "holds")
    return sorted(claims, key=lambda claim: order.index(claim.verdict))


def ends_of(courses: Sequence[DataFrame]) -> list[float]:
    """The accuracy in per cent of each run, mean of its last three rounds."""
    return [100 * course[ACCURACY].iloc[-3:].mean() for course in courses]


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
        *of_same_classes(),
        *our_questions(),
    ]


# --- effects --------------------------------------------------------------------------


def difference(
    frame: DataFrame, a: Any, b: Any, by: Sequence[str], value: str, tag: str
) -> Interval:
    """The effect a - b, all else averaged, over the cells of ``by``."""
    means = outcomes.mean_over_seeds(frame, [*by, tag], value)
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
    mine = outcomes.both()
    mine = mine[among(mine)]
    theirs = outcomes.paper()
    theirs = theirs[among(theirs)]
    printed = None
    if comparable and value in theirs and {a, b} <= set(theirs[tag]):
        printed = difference(theirs, a, b, CELL, value, tag).mean
    return Claim(
        statement,
        where,
        difference(mine, a, b, CELL, value, tag),
        printed,
        replicates=f"{len(mine[CELL].drop_duplicates())} cells (data set and law), "
        f"3 seeds averaged{'' if comparable else DIRECTION_ONLY}",
        scale=LAPTOP,
        ours=ours,
    )


def share(hits: int, runs: int) -> Interval:
    """A share of runs with its exact 95 % interval (Clopper and Pearson).

    Hold it against a line above 0, for a single hit lifts the interval above 0.
    """
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
    return ten_or_one(frame) & frame["setting"].isin(outcomes.CLIENT_WISE)


def lines_of(row: str, frame: DataFrame) -> Series:
    """Lines of one method."""
    return frame["row"] == row


# --- Tables 2 and 5 -------------------------------------------------------------------


def of_the_ranking() -> list[Claim]:
    """Section 8.1, and B.2: WeCFL outperforms almost all baselines."""
    against = partial(compared, where=TABLES_2_AND_5, a="WeCFL")
    better = partial(against, value=MACRO_F1, comparable=False)
    return [
        against("WeCFL is more accurate than FeSEM", b="FeSEM", among=clustered),
        better("WeCFL has a higher macro-F1 than FeSEM", b="FeSEM", among=clustered),
        against("WeCFL is more accurate than IFCA", b="IFCA", among=clustered),
        better("WeCFL has a higher macro-F1 than IFCA", b="IFCA", among=clustered),
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
        for frame in (outcomes.both(), outcomes.paper())
    ]
    personal = Claim(
        "Clusters balance personal and general, where models tuned for each over-fit",
        "1",
        reason="neither the paper's tables nor ours have a method that fine-tunes; "
        "training alone, a row of ours, is no such method",
    )
    return [
        without_groups,
        of_two_kinds(
            "Clustering does best with true groups (read: most ahead of one model)",
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
    """Sections 8.1, 8.2 and B.2: within an interval larger K is better, for all."""
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
        for frame in (outcomes.both(), outcomes.paper())
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
    means = outcomes.mean_over_seeds(frame, [*CELL, tag], ACCURACY)
    pair = tables.paired(means, tag, a, b, ACCURACY, CELL)
    return pair.differences.assign(difference=100 * pair.differences["difference"])


def by_kind(gains: DataFrame) -> DataFrame:
    """Gains with the kind of their setting, and the law that both kinds have."""
    clusters = gains["setting"].isin(outcomes.CLUSTER_WISE)
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
    both = outcomes.both()
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
    runs = outcomes.curves("figure2")
    moves = {
        row: [len(outcomes.changes(course)) for course in runs[row]]
        for row in ("IFCA", "WeCFL")
    }
    counts = "; ".join(f"{row} {', '.join(map(str, n))}" for row, n in moves.items())
    unstable = Claim(
        "IFCA's clusters change more often than WeCFL's",
        "8.1",
        minus(moves["IFCA"], moves["WeCFL"]),
        unit="rounds with a change",
        replicates=f"3 seeds, Figure 2: {counts}",
        scale=LONGER,
    )
    both = outcomes.both()
    printed = outcomes.paper()
    more_often = worse_with_ten(both, "IFCA") - worse_with_ten(both, "WeCFL")
    in_print = worse_with_ten(printed, "IFCA") - worse_with_ten(printed, "WeCFL")
    worse = Claim(
        "Larger K makes IFCA worse more often than WeCFL",
        "8.1",
        mean_of(more_often.tolist()),
        float(in_print.mean()),
        unit="of the runs (the paper: of its cells)",
        replicates="8 cells, a share of three seeds in each",
        scale=LAPTOP,
    )
    return [unstable, worse]


def worse_with_ten(frame: DataFrame, row: str) -> Series:
    """In each cell the share of a method's runs in which ten models are below five."""
    lines = frame[lines_of(row, frame)]
    index = [*CELL]
    if "seed" in lines:
        index.append("seed")
    wide = lines.pivot_table(ACCURACY, index, "K")
    return (wide[10] < wide[5]).groupby(CELL).mean()


def of_convergence() -> list[Claim]:
    """Section 8.2, Figure 2: WeCFL converges faster than others."""
    runs = outcomes.curves("figure2")
    mean = {
        row: [100 * course[ACCURACY].mean() for course in courses]
        for row, courses in runs.items()
    }
    found = []
    for rival in ("FeSEM", "IFCA"):
        claim = Claim(
            f"WeCFL converges faster than {rival} (mean of the curve)",
            "8.2, Figure 2",
            minus(mean["WeCFL"], mean[rival]),
            replicates="3 seeds",
            scale=LONGER,
        )
        found.append(claim)
    return found


def of_the_clusters() -> list[Claim]:
    """Section 8.3 and B.2: when the clusters settle, and if they are right."""
    runs = outcomes.curves("figure3")
    settled = {
        K: [outcomes.settled(course) for course in runs[f"WeCFL, K = {K}"]]
        for K in (3, 5, 10)
    }
    cifar = [outcomes.settled(c) for c in outcomes.curves("figure2")["WeCFL"]]
    fashion = [sum(of_a_seed) / 3 for of_a_seed in zip(*settled.values(), strict=True)]
    right = [course["ari"].iloc[-1] for course in runs["WeCFL, K = 10"]]
    whole = [course["completeness"].iloc[-1] for course in runs["WeCFL, K = 3"]]
    exact = sum(ari == 1 for ari in right)
    figure_3 = "Figure 3 (Fashion-MNIST, α = (0.1, 10))"
    seen = partial(Claim, replicates=f"3 seeds, {figure_3}", scale=LONGER)
    return [
        seen(
            "The clustering settles within ten rounds",
            "8.3",
            mean_of([11 - t for t in [*cifar, *fashion]]),
            unit="rounds before round 11",
            replicates="3 seeds of each of Figures 2 and 3, K averaged",
        ),
        seen(
            "With K = 10 it settles in one round",
            "B.2",
            mean_of([2 - t for t in settled[10]]),
            unit="rounds before round 2",
        ),
        seen(
            "With K = 3 it settles in three rounds",
            "B.2",
            mean_of([4 - t for t in settled[3]]),
            unit="rounds before round 4",
        ),
        seen(
            "With K = 10 it finds the true groups exactly (in more than half of runs)",
            "B.2",
            share(exact, len(right)),
            threshold=0.5,
            unit="of the runs",
            replicates=f"{exact} of {len(right)} seeds, {figure_3}",
        ),
        seen(
            "With K = 3 no true group is torn apart",
            "B.2",
            mean_of(whole),
            1.0,
            threshold=0.995,
            unit="completeness",
        ),
        like_the_oracle(),
    ]


def like_the_oracle() -> Claim:
    """Section 8.3: with settled clusters WeCFL is FedAvg within each."""
    frame = outcomes.both()
    frame = frame[frame["K"].eq(10) & frame["setting"].eq("α = (0.1, 10)")]
    ends = frame.pivot_table(ACCURACY, ["dataset", "seed"], "row")
    right = frame[lines_of("WeCFL", frame)].set_index(["dataset", "seed"])["ari"] == 1
    ends = ends[right.reindex(ends.index)]
    same = int((ends["WeCFL"] == ends["Oracle clusters"]).sum())
    return Claim(
        "Once clusters stand, WeCFL is FedAvg within each (to the last digit)",
        "8.3",
        exactly(same),
        threshold=len(ends) - 0.5,
        unit=f"of {len(ends)} runs that found the true groups equal the oracle's",
        replicates="Table 2, α = (0.1, 10), K = 10",
        scale=LAPTOP,
    )


def of_the_geometry() -> list[Claim]:
    """Section 8.3 and B.2 on the networks of Tables 3 and 4.

    Figure 4 names no data set; its matrix in the released code has the size of the
    CIFAR-10 network's last layer. Figures 7 and 8, of which B.2 speaks, are of
    Fashion-MNIST, with ten and three clusters. Figure 5 shows both data sets.
    """
    frame = outcomes.geometry()
    ten = frame[frame["K"] == 10]
    cifar = frame[frame["dataset"] == "cifar10"]
    fashion = frame[frame["dataset"] == "fashion_mnist"]
    last = [course.iloc[-1] for course in cifar["course"]]
    apart = [line["cosine_members"] - line["cosine_centres"] for line in last]
    levels = [
        sum(line[name] for line in last) / len(last)
        for name in ("cosine_centres", "cosine_members")
    ]
    size = by_factors(
        [(seed, course["B"].iloc[-1]) for seed, course in ten[SEEN].to_numpy()]
    )
    falls = by_factors(
        [
            (seed, course["B"].iloc[0] / course["B"].iloc[-1])
            for seed, course in fashion[SEEN].to_numpy()
        ]
    )
    in_figure_4 = partial(
        Claim, replicates=f"{len(cifar)} seeds, CIFAR-10, K = 10", scale=LAPTOP
    )
    course = partial(
        Claim,
        unit="of distance, first to last round",
        replicates=f"{fashion['seed'].nunique()} seeds, Fashion-MNIST, "
        "K = 10 and 3 averaged",
        scale=LAPTOP,
    )
    return [
        in_figure_4(
            "Members of a cluster are more alike than centres",
            "8.3, Figure 4",
            mean_of(apart),
            0.999 - 0.93,
            unit="of cosine",
            replicates=f"{len(cifar)} seeds, CIFAR-10, K = 10; centres {levels[0]:.3f} "
            f"(paper about 0.93), members {levels[1]:.4f} (paper above 0.999)",
        ),
        above_0999(),
        in_figure_4(
            "Members of a cluster have cosines above 0.999, on average",
            "8.3, Figure 4",
            mean_of([1000 * (line["cosine_members"] - 0.999) for line in last]),
            unit="thousandths above 0.999",
        ),
        course(
            "Clients come closer to their centre",
            "B.2",
            change(fashion, "to_centre", -1),
        ),
        course("Centres move apart", "B.2", change(fashion, "between", 1)),
        Claim(
            B_IS_SMALL,
            "6.2, 8.3",
            Interval(-size.mean, -size.high, -size.low),
            threshold=-CLOSE_TO_ZERO,
            unit="= minus B of the worst cluster after the last round "
            f"(our line: {CLOSE_TO_ZERO})",
            replicates=f"{ten['seed'].nunique()} seeds, both data sets averaged, "
            f"K = 10; {outcomes.WHICH_STEPS}",
            scale=LAPTOP,
        ),
        course(
            B_GETS_BETTER,
            "B.2",
            falls,
            threshold=1.0,
            unit="= B after the first round / B after the last "
            f"({outcomes.WHICH_STEPS})",
        ),
    ]


def above_0999() -> Claim:
    """Figure 4, right: all cosines of one cluster's members.

    Ours is the largest cluster of each seed.
    """
    runs = outcomes.steps()
    runs = runs[runs["dataset"].eq("cifar10")]
    least = [min(map(min, matrix)) for matrix in runs["cosines_members"]]
    sizes = ", ".join(str(len(matrix)) for matrix in runs["cosines_members"])
    return Claim(
        "Any two members of a cluster have a cosine above 0.999",
        "8.3, Figure 4",
        mean_of([1000 * (cosine - 0.999) for cosine in least]),
        unit="thousandths above 0.999, least of all pairs",
        replicates=f"{len(runs)} seeds, CIFAR-10, K = 10, the largest cluster "
        f"({sizes} members)",
        scale=LAPTOP,
    )


def by_factors(values: Sequence[tuple[int, float]]) -> Interval:
    """The geometric mean of (seed, ratio) pairs; a seed's ratios are one replicate."""
    seeds: dict[int, list[float]] = {}
    for seed, ratio in values:
        seeds.setdefault(seed, []).append(math.log(ratio))
    ends = mean_of([sum(logs) / len(logs) for logs in seeds.values()])
    return Interval(*map(math.exp, ends))


def change(frame: DataFrame, name: str, sign: float) -> Interval:
    """How a number of each federation changes from the first to the last round.

    A federation is a data set dealt with one seed. Its runs with different K share data
    and start, so they are averaged.
    """
    moved = [course[name].iloc[-1] - course[name].iloc[0] for course in frame["course"]]
    federations = frame.assign(moved=moved).groupby(["dataset", "seed"])["moved"]
    return mean_of(sign * federations.mean())


# --- section 6 ------------------------------------------------------------------------


def of_the_theory() -> list[Claim]:
    """Section 6 on a toy where its assumptions hold."""
    kept = theory.toy(1.0, theory.toy()["U"].max())
    ifca = theory.toy_ifca()
    copies = theory.toy(copies=True)
    rate = theory.promise(copies)
    below = theory.allowed(copies) > theory.ETA
    falls = copies["R_L"] < copies["R_E"]
    always = partial(
        Claim,
        replicates="one run without noise",
        scale=TOY,
        unit=f"of {theory.ROUNDS} rounds",
        threshold=theory.ROUNDS - 0.5,
    )
    same_data = "one run without noise, members with the same data (B = 0), nobody "
    same_data += "changes cluster"
    real = int((theory.allowed(theory.toy()) > 0).sum())
    return [
        always(
            "IFCA's objective falls in every round",
            "6",
            exactly((ifca["R_M"] <= ifca["R_0"] + 1e-12).sum()),
            replicates="one run without noise; the paper's argument leaves out "
            f"averaging, which lifts it in {(ifca['R_M'] > ifca['R_L']).sum()}",
        ),
        always(
            "Under its bound on the step, distances to centres never grow",
            "Theorem 6.2",
            exactly((kept["F_L"] <= kept["F_M"] + 1e-12).sum()),
            replicates="a theorem; one run without noise checks our reading",
        ),
        always(
            "Below the second of two bounds on the step, R falls in every round",
            "Theorem 6.8, Eq. 45",
            exactly((below & falls).sum()),
            replicates=same_data,
        ),
        always(
            "The squared gradient stays below the promised rate",
            "Theorem 6.9",
            exactly((rate["measured"] <= rate["promised"]).sum()),
            replicates=same_data,
        ),
        Claim(
            "Below both bounds on the step, R falls in every round",
            "Theorem 6.8",
            reason="members with the same data sit on their centre, so the first bound "
            f"allows no step; with real groups the second allows one in {real} of "
            f"{theory.ROUNDS} rounds of the toy (U of the whole run)",
        ),
        Claim(
            "Training diverges if B is too large",
            "6.2",
            reason=f"the paper names no size; in the toy B rises to "
            f"{max(map(max, theory.toy()['B'])):.1f}, and R falls in every round",
        ),
        Claim(
            "The squared gradient stays below that rate with unlike members or noise",
            "Theorem 6.9",
            reason="the promise lies above U², which no squared gradient exceeds, so "
            "no run could contradict it",
        ),
    ]


# --- the paper's own scale ------------------------------------------------------------


def at_the_papers_scale() -> list[Claim]:
    """The main claims with ten clusters on runs at the paper's own scale.

    A single seed has no interval, and two decide nothing: see `of_three_or_more`. The
    page shows their numbers.
    """
    found = []
    frame = outcomes.own_scale()
    for (dataset, setting), cell in frame.groupby(CELL, sort=False):
        if cell["seed"].nunique() == 1:
            continue
        theirs = outcomes.paper()
        theirs = theirs[(theirs["dataset"] == dataset) & (theirs["setting"] == setting)]
        seeds = outcomes.number_of_seeds(cell)
        name = f"{outcomes.DATASETS[dataset]}, {setting}, {seeds}"
        where = f"at the paper's scale ({name})"
        seen = partial(Claim, replicates=seeds, scale=OWN)
        told = []
        for rival in ("FeSEM", "IFCA", "FedAvg"):
            mine = at_ten(cell, "WeCFL", rival)
            printed = at_ten(theirs, "WeCFL", rival).mean
            text = f"WeCFL is more accurate than {rival} {where}"
            told.append(seen(text, "Table 2", mine, printed))
        more, printed_more = (
            difference(side[lines_of("WeCFL", side)], 10, 5, runs(side), ACCURACY, "K")
            for side in (cell, theirs)
        )
        text = f"Ten clusters are better than five {where}"
        told.append(seen(text, "8.1", more, printed_more.mean))
        alone = at_ten(cell, "WeCFL", "LocalOnly")
        text = f"WeCFL is better than training alone {where}"
        told.append(seen(text, "ours", alone, ours=True))
        for text, a, b in (
            ("WeCFL beats random clusters of equal size", "WeCFL", "Random clusters"),
            ("Ten clusters beat a client's majority class", "WeCFL", deals.MAJORITY),
            ("IFCA is more accurate than as released", "IFCA", "IFCA as released"),
        ):
            mine = at_ten(cell, a, b)
            told.append(seen(f"{text} {where}", "ours", mine, ours=True))
        found += of_three_or_more(told, cell)
    return found


def of_three_or_more(found: Sequence[Claim], cell: DataFrame) -> list[Claim]:
    """The claims as they are if a cell has three seeds; left open if it has two.

    An interval from two seeds is as wide as chance will have it: where both methods
    found the same clusters in one of them, it has hardly any width. Settled after a
    look at two seeds.
    """
    if cell["seed"].nunique() >= 3:
        return [*found]
    return [left_open(claim, "two seeds decide nothing") for claim in found]


def of_same_classes() -> list[Claim]:
    """Does sharing help those who hold the same classes? At the paper's own scale.

    Asked after a look at the first seed; [] as long as there is no other.
    """
    wide = outcomes.company_by_seed()
    if len(wide) < 2:
        return []
    frame = wide.reset_index()
    cell = f"CIFAR-10, (3, 2)-class, {outcomes.number_of_seeds(frame)}"
    gains = {
        "Clusters of clients with the same classes beat training alone": (
            "Same pair of classes"
        ),
        "WeCFL with a cluster for each pair of classes beats training alone": (
            "WeCFL, K = pairs of classes"
        ),
    }
    found = [
        Claim(
            f"{statement} at the paper's scale ({cell})",
            "ours",
            mean_of(100 * (wide[row] - wide["LocalOnly"])),
            replicates=outcomes.number_of_seeds(frame),
            scale=OWN,
            ours=True,
        )
        for statement, row in gains.items()
    ]
    return of_three_or_more(found, frame)


def runs(frame: DataFrame) -> list[str]:
    """The columns that tell runs of a cell apart: seeds, or only the cell (printed)."""
    return ["seed"] if "seed" in frame else ["setting"]


def at_ten(frame: DataFrame, a: str, b: str) -> Interval:
    """The difference between two rows of one cell, with ten models or one."""
    return difference(frame[ten_or_one(frame)], a, b, runs(frame), ACCURACY, "row")


# --- questions of ours ----------------------------------------------------------------


def our_questions() -> list[Claim]:
    """What the paper does not ask."""
    ends = {row: ends_of(runs) for row, runs in outcomes.curves("figure2").items()}
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
        beyond_labels(5),
        beyond_labels(10),
        weights_need_sizes(),
        Claim(
            "IFCA as released beats FedAvg at the paper's η = 0.001",
            "ours",
            minus(ends["IFCA as released, η = 0.001"], ends["FedAvg, η = 0.001"]),
            replicates="3 seeds, CIFAR-10, (3, 2)-class",
            scale=LONGER,
            ours=True,
        ),
        *(size_of_the_lead(value, name) for value, name in MEASURES.items()),
        closer_on_cifar(),
        *of_unweighted_averages(),
        *of_the_slip(),
        Claim(
            "With real groups Theorem 6.8's second bound allows a step in every round",
            "ours",
            exactly(steps),
            threshold=theory.ROUNDS - 0.5,
            unit=f"of {theory.ROUNDS} rounds",
            replicates="one run without noise, U of the whole run",
            scale=TOY,
            ours=True,
        ),
    ]


def size_of_the_lead(value: str, name: str) -> Claim:
    """Is WeCFL's lead over IFCA as large as the paper prints it?"""
    mine = outcomes.both()
    theirs = outcomes.paper()
    intervals = [
        difference(frame[clustered(frame)], "WeCFL", "IFCA", CELL, value, "row")
        for frame in (mine, theirs)
    ]
    return Claim(
        f"At laptop scale WeCFL's lead over IFCA in {name} is as large as in print",
        "ours",
        intervals[0],
        intervals[1].mean,
        threshold=round(intervals[1].mean, 1),
        replicates="8 cells, 3 seeds averaged",
        scale=LAPTOP,
        ours=True,
    )


def closer_on_cifar() -> Claim:
    """B.2 says that clients come closer on Fashion-MNIST."""
    frame = outcomes.geometry()
    runs = frame[frame["dataset"] == "cifar10"]
    return Claim(
        "Clients come closer to their centre on CIFAR-10, too",
        "ours",
        change(runs, "to_centre", -1),
        unit="of distance, first to last round",
        replicates=f"{len(runs)} seeds, CIFAR-10, K = 10",
        scale=LAPTOP,
        ours=True,
    )


def of_unweighted_averages() -> list[Claim]:
    """FeSEM as Eq. 2 has it: all members count alike."""
    ask = partial(compared, where="ours", among=clustered, ours=True)
    plain = "FeSEM, unweighted averages"
    return [
        ask(WEIGHTED_AVERAGES, a="FeSEM", b=plain),
        ask(CLIENTS_ALIKE, a="FeSEM", b=plain, value="accuracy"),
        ask(EQUATION_2, a="WeCFL", b=plain),
    ]


def beyond_labels(K: int) -> Claim:
    """Is WeCFL on CIFAR-10 better than always answering a client's majority class?"""
    names = {5: "five", 10: "ten"}

    def among(frame: DataFrame) -> Series:
        return frame["dataset"].eq("cifar10") & frame["K"].isin([0, K])

    return compared(
        f"On CIFAR-10 {names[K]} clusters beat a client's majority class",
        "ours",
        "WeCFL",
        deals.MAJORITY,
        among,
        ours=True,
    )


def of_the_slip() -> list[Claim]:
    """The released IFCA part by part."""
    runs = outcomes.ifca_runs()
    moves = {
        row: [len(outcomes.changes(course)) for course in courses]
        for row, courses in runs.items()
    }
    ends = {row: ends_of(courses) for row, courses in runs.items()}
    ask = partial(
        Claim,
        where="ours",
        replicates="3 seeds, CIFAR-10, (3, 2)-class",
        scale=LONGER,
        ours=True,
    )
    found = [
        ask(
            "Three batches make IFCA's clusters change more often",
            interval=minus(moves["IFCA, three batches"], moves["IFCA"]),
            unit="more rounds with a change",
        ),
        ask(
            "Three batches make IFCA less accurate",
            interval=minus(ends["IFCA"], ends["IFCA, three batches"]),
            unit="points lost",
        ),
    ]
    slow = ", η = 0.001"
    for rate, where in (("", "η = 0.01"), (slow, "the paper's η = 0.001")):
        released = f"IFCA as released{rate}"
        honest = f"IFCA as released, without the slip{rate}"
        alone = f"IFCA, the slip alone{rate}"
        found += [
            ask(
                f"The slip makes the released IFCA less accurate at {where}",
                interval=minus(ends[honest], ends[released]),
                unit="points lost",
            ),
            ask(
                f"The slip alone makes IFCA less accurate at {where}",
                interval=minus(ends[f"IFCA{rate}"], ends[alone]),
                unit="points lost",
            ),
        ]
    return found


def minus(a: Sequence[float], b: Sequence[float]) -> Interval:
    """The mean difference of paired runs."""
    return mean_of([x - y for x, y in zip(a, b, strict=True)])


def weights_need_sizes() -> Claim:
    """WeCFL's lead over FeSEM where sizes differ, minus that where they do not."""
    leads = []
    for frame in (outcomes.both(), outcomes.records("equal_sizes")):
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
