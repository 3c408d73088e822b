"""WeCFL's claims, and questions of ours, judged on the committed records.

Where methods are compared, seeds are averaged first, and the cells of Tables 2 and 5
are the replicates: a cell is a data set and a setting. Where a claim is about all K,
five and ten are averaged, too, because they share data and seeds. Claims about one cell
have seeds as replicates. The paper's own effect is computed from its printed numbers in
the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ... import tables
from ...claims import Claim, Interval, effect, exactly, mean_of
from . import figures, theory
from .figures import ACCURACY, LAPTOP, MACRO_F1, OWN

if TYPE_CHECKING:
    from pandas import DataFrame

CELL = ["dataset", "setting"]
TOY = "toy (12 clients, softmax regression)"
LONGER = "30 clients, 30 rounds"


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
    *,
    by: Sequence[str] = CELL,
    value: str = ACCURACY,
    tag: str = "row",
    among: Any = None,
    **more: Any,
) -> Claim:
    """A claim that a is above b in the cells of both tables, with the paper's effect.

    ``among`` chooses lines of a frame, ours or the paper's.
    """
    ours = figures.both()
    theirs = figures.paper()
    if among is not None:
        ours = ours[among(ours)]
        theirs = theirs[among(theirs)]
    interval = difference(ours, a, b, by, value, tag)
    printed = None
    if {a, b} <= set(theirs[tag]):
        printed = difference(theirs, a, b, by, value, tag).mean
    cells = len(ours[[*by]].drop_duplicates())
    words = {"replicates": f"{cells} cells, 3 seeds averaged", "scale": LAPTOP}
    return Claim(statement, where, interval, printed, **words | more)


def clustered(frame: DataFrame) -> Any:
    """Lines of methods with five or ten models."""
    return frame["K"].isin([5, 10])


def ten_or_one(frame: DataFrame) -> Any:
    """Lines without the methods with five models."""
    return frame["K"] != 5


# --- Tables 2 and 5 -------------------------------------------------------------------


def of_the_ranking() -> list[Claim]:
    """Section 8.1, and B.2: WeCFL outperforms almost all baselines."""
    place = "8.1, B.2, Tables 2, 5"
    return [
        compared("WeCFL is more accurate than FeSEM", place, "WeCFL", "FeSEM",
                 among=clustered),
        compared("WeCFL has a higher macro-F1 than FeSEM", place, "WeCFL", "FeSEM",
                 among=clustered, value=MACRO_F1),
        compared("WeCFL is more accurate than IFCA (mended)", place, "WeCFL", "IFCA",
                 among=clustered),
        compared("WeCFL has a higher macro-F1 than IFCA (mended)", place, "WeCFL",
                 "IFCA", among=clustered, value=MACRO_F1),
        compared("Ten clusters beat one model, FedAvg", "8.1, Tables 2, 5", "WeCFL",
                 "FedAvg", among=ten_or_one),
        compared("They beat FedAvg without true groups, too (client-wise)", "1, Table 5",
                 "WeCFL", "FedAvg",
                 among=lambda f: ten_or_one(f)
                 & f["setting"].isin(figures.CLIENT_WISE)),
        gain_is_larger_on_cifar(),
    ]  # fmt: skip


def gain_is_larger_on_cifar() -> Claim:
    """B.2: WeCFL's improvement over one model is larger on CIFAR-10."""
    sides = [
        _contrast(frame[ten_or_one(frame)], "row", "WeCFL", "FedAvg")
        for frame in (figures.both(), figures.paper())
    ]
    return _cifar_claim(
        "The gain over one model is larger on CIFAR-10", "B.2", sides, "4 settings"
    )


def of_the_number_of_clusters() -> list[Claim]:
    """Sections 8.1, 8.2 and B.2: larger K is better, for all methods."""
    place = "8.1, 8.2, B.2"
    found = [
        compared(f"Ten models are better than five: {row}", place, 10, 5, tag="K",
                 among=lambda f, row=row: f["row"] == row)
        for row in ("WeCFL", "FeSEM", "IFCA", "FedAvg+", "FedProx+")
    ]  # fmt: skip
    sides = [
        _contrast(frame[frame["row"] == "WeCFL"], "K", 10, 5)
        for frame in (figures.both(), figures.paper())
    ]
    words = "WeCFL gains more by larger K on CIFAR-10"
    return [*found, _cifar_claim(words, "B.2", sides, "4 settings")]


def _contrast(frame: DataFrame, tag: str, a: Any, b: Any) -> DataFrame:
    """The difference a - b in every data set and setting, in points."""
    means = figures.mean_over_seeds(frame, [*CELL, tag], ACCURACY)
    pair = tables.paired(means, tag, a, b, ACCURACY, CELL)
    return pair.differences.assign(difference=100 * pair.differences["difference"])


def _cifar_claim(
    statement: str, where: str, sides: list[DataFrame], cells: str
) -> Claim:
    """A claim that a gain is larger on CIFAR-10 than on Fashion-MNIST."""
    intervals = []
    for gains in sides:
        names = ("dataset", "cifar10", "fashion_mnist", "difference", ["setting"])
        intervals.append(effect(tables.paired(gains, *names, percent=False)))
    ours, theirs = intervals
    words = {"replicates": f"{cells}, 3 seeds averaged", "scale": LAPTOP}
    return Claim(statement, where, ours, theirs.mean, **words)


def of_ensembles() -> list[Claim]:
    """Section 8.1: ensembles help slightly, and are very stable."""
    both = figures.both()
    spread = both[ten_or_one(both)].groupby([*CELL, "row"])[ACCURACY].std()
    wide = 100 * spread.unstack("row")  # (8 cells, rows)
    single = wide["FedAvg"] + wide["FedProx"]
    voting = wide["FedAvg+"] + wide["FedProx+"]
    calmer = (single - voting) / 2
    found = [
        compared(f"An ensemble is better than a single {row}", "8.1", f"{row}+", row,
                 among=ten_or_one)
        for row in ("FedAvg", "FedProx")
    ]  # fmt: skip
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
    figure2 = figures.curves("figure2")
    moves = {
        row: [len(figures.changes(course)) for course in figure2[row]]
        for row in ("IFCA", "WeCFL")
    }
    more = [a - b for a, b in zip(moves["IFCA"], moves["WeCFL"], strict=True)]
    unstable = Claim(
        "IFCA's clusters change more often than WeCFL's",
        "8.1",
        mean_of(more),
        unit="rounds with a change",
        replicates="3 seeds, Figure 2",
        scale=LONGER,
    )
    worse = Claim(
        "IFCA sometimes gets worse with larger K",
        "8.1",
        mean_of(share_worse(figures.both())),
        float(sum(share_worse(figures.paper()))) / 8,
        unit="of the runs",
        replicates="8 cells",
        scale=LAPTOP,
    )
    return [unstable, worse]


def share_worse(frame: DataFrame) -> list[float]:
    """In each cell the share of seeds in which IFCA with ten models is below five."""
    ifca = frame[frame["row"] == "IFCA"]
    index = ["dataset", "setting"]
    if "seed" in ifca:
        index.append("seed")
    wide = ifca.pivot_table(ACCURACY, index, "K")
    worse = wide[10] < wide[5]
    return worse.groupby(level=["dataset", "setting"]).mean().tolist()


def of_convergence() -> list[Claim]:
    """Section 8.2, Figure 2: WeCFL converges faster than others."""
    figure2 = figures.curves("figure2")
    mean = {
        row: [100 * course[ACCURACY].mean() for course in runs]
        for row, runs in figure2.items()
    }
    found = []
    for rival in ("FeSEM", "IFCA"):
        ahead = [a - b for a, b in zip(mean["WeCFL"], mean[rival], strict=True)]
        found.append(
            Claim(
                f"WeCFL converges faster than {rival} (mean of the curve)",
                "8.2, Figure 2",
                mean_of(ahead),
                replicates="3 seeds",
                scale=LONGER,
            )
        )
    return found


def of_the_clusters() -> list[Claim]:
    """Section 8.3 and B.2: when the clusters settle, and if they are right."""
    figure3 = figures.curves("figure3")
    last = {
        K: [max([1, *figures.changes(c)]) for c in figure3[f"WeCFL, K = {K}"]]
        for K in (3, 5, 10)
    }
    figure2 = [
        max([1, *figures.changes(c)]) for c in figures.curves("figure2")["WeCFL"]
    ]
    right = [c["ari"].iloc[-1] for c in figure3["WeCFL, K = 10"]]
    whole = [c["completeness"].iloc[-1] for c in figure3["WeCFL, K = 3"]]
    words = {"replicates": "3 seeds", "scale": LONGER}
    rounds = {"unit": "rounds to spare", "threshold": -0.5}
    settles = [10 - x for x in [*figure2, *last[3], *last[5], *last[10]]]
    return [
        Claim("The clustering settles within ten rounds", "8.3", mean_of(settles),
              replicates="12 runs of Figures 2 and 3", scale=LONGER, **rounds),
        Claim("With K = 10 it settles in one round", "B.2",
              mean_of([1 - x for x in last[10]]), **words, **rounds),
        Claim("With K = 3 it settles in three rounds", "B.2",
              mean_of([3 - x for x in last[3]]), **words, **rounds),
        Claim("With K = 10 it finds the true groups exactly", "B.2", mean_of(right),
              1.0, threshold=0.995, unit="adjusted Rand index", **words),
        Claim("With K = 3 no true group is torn apart", "B.2", mean_of(whole), 1.0,
              threshold=0.995, unit="completeness", **words),
    ]  # fmt: skip


def of_the_geometry() -> list[Claim]:
    """Section 8.3 and B.2 on the networks of Tables 3 and 4; [] without records."""
    frame = figures.geometry()
    if frame is None:
        return []
    ten = frame[frame["K"] == 10]
    first = [course.iloc[0] for course in ten["course"]]
    last = [course.iloc[-1] for course in ten["course"]]
    words = {"replicates": f"{len(ten)} runs, K = 10", "scale": LAPTOP}

    def change(name: str, sign: float) -> Interval:
        ends = zip(first, last, strict=True)
        return mean_of([sign * (b[name] - a[name]) for a, b in ends])

    apart = [line["cosine_members"] - line["cosine_centres"] for line in last]
    return [
        Claim("Members of a cluster are more alike than centres", "8.3, Figure 4",
              mean_of(apart), 0.999 - 0.93, unit="of cosine", **words),
        Claim("Clients come closer to their centre", "B.2", change("to_centre", -1),
              unit="of distance, first to last round", **words),
        Claim("Centres move apart", "B.2", change("between", 1),
              unit="of distance, first to last round", **words),
        Claim("B is close to zero (below 0.1)", "6.2, 8.3",
              mean_of([-line["B"] for line in last]), threshold=-0.1,
              unit="of −B in the last round", **words),
        Claim("B gets better with every round", "B.2", change("B", -1),
              unit="of B, first to last round", **words),
    ]  # fmt: skip


# --- section 6 ------------------------------------------------------------------------


def of_the_theory() -> list[Claim]:
    """Section 6 on a toy where its assumptions hold."""
    free = theory.toy()
    U = free["U"].max()
    kept = theory.toy(1.0, U)
    obeys = int((kept["F_L"] <= kept["F_M"] + 1e-12).sum())
    ifca = theory.toy_ifca()
    falls = int((ifca["R_M"] <= ifca["R_0"] + 1e-12).sum())
    rate = theory.promise(free)
    under = int((rate["measured"] <= rate["promised"]).sum())
    noisy = theory.promise(theory.toy(batch=16))
    under_noise = int((noisy["measured"] <= noisy["promised"]).sum())
    squares = free["squared_gradient"]
    worst = free["B"].map(max)
    beta = theory.toy_smoothness()
    # U of the whole run, as Assumption 6.1 has it
    allowed = theory.largest_step(squares, worst, U, beta, 0.0)
    no_step = f"the toy has such a step in {int((allowed > 0).sum())} of 40 rounds: "
    no_step += "in the others the bound is not above zero"
    words = {"unit": "of 40 rounds", "threshold": 39.5, "scale": TOY}
    words["replicates"] = "one run without noise"
    return [
        Claim("IFCA's objective falls in every round", "6", exactly(falls), **words),
        Claim("Under its bound on the step, F never rises", "Theorem 6.2",
              exactly(obeys), **words),
        Claim("Below a second bound on the step, R falls in every round",
              "Theorem 6.8", reason=no_step),
        Claim("The squared gradient stays below the promised rate", "Theorem 6.9",
              exactly(under), **words),
        Claim("The same with noise (batches of 16)", "Theorem 6.9",
              exactly(under_noise), **words | {"replicates": "one run"}),
    ]  # fmt: skip


# --- the paper's own scale ------------------------------------------------------------


def at_the_papers_scale() -> list[Claim]:
    """The main claims on runs at the paper's own scale; [] if there are none yet."""
    found = []
    frame = figures.own_scale()
    for (dataset, setting), cell in frame.groupby(["dataset", "setting"], sort=False):
        theirs = figures.paper()
        theirs = theirs[(theirs["dataset"] == dataset) & (theirs["setting"] == setting)]
        seeds = cell["seed"].nunique()
        where = f"{figures.DATASETS[dataset]}, {setting}"
        words = {"replicates": f"{seeds} seeds, {where}", "scale": OWN}
        for a, b in (("WeCFL", "FeSEM"), ("WeCFL", "IFCA"), ("WeCFL", "FedAvg")):
            mine, printed = (_at_ten(side, a, b) for side in (cell, theirs))
            text = f"{a} is more accurate than {b}, K = 10: {where}"
            found.append(Claim(text, "Table 2", mine, printed.mean, **words))
        wecfl, printed = (
            difference(side[side["row"] == "WeCFL"], 10, 5, _seed(side), ACCURACY, "K")
            for side in (cell, theirs)
        )
        text = f"Ten clusters are better than five: {where}"
        found.append(Claim(text, "8.1", wecfl, printed.mean, **words))
        alone = _at_ten(cell, "WeCFL", "LocalOnly")
        text = f"WeCFL is better than training alone: {where}"
        found.append(Claim(text, "ours", alone, **words, ours=True))
    return found


def _seed(frame: DataFrame) -> list[str]:
    """The columns that tell runs of a cell apart: seeds, or only the cell (printed)."""
    return ["seed"] if "seed" in frame else ["setting"]


def _at_ten(frame: DataFrame, a: str, b: str) -> Interval:
    """The difference between two rows of one cell, with ten models or one."""
    return difference(frame[ten_or_one(frame)], a, b, _seed(frame), ACCURACY, "row")


# --- questions of ours ----------------------------------------------------------------


def our_questions() -> list[Claim]:
    """What the paper does not ask."""
    figure2 = figures.curves("figure2")
    ends = {
        row: [100 * course[ACCURACY].iloc[-3:].mean() for course in runs]
        for row, runs in figure2.items()
    }
    slow = ("IFCA as released, η = 0.001", "FedAvg, η = 0.001")
    above = [a - b for a, b in zip(*(ends[row] for row in slow), strict=True)]
    mine = {"ours": True}
    return [
        compared("WeCFL beats random clusters of equal size", "ours", "WeCFL",
                 "Random clusters", among=clustered, **mine),
        compared("WeCFL with ten clusters beats training alone", "ours", "WeCFL",
                 "LocalOnly", among=ten_or_one, **mine),
        compared("Ten models are better than five: random clusters", "ours", 10, 5,
                 tag="K", among=lambda f: f["row"] == "Random clusters",
                 **mine),
        by_client(),
        weights_need_sizes(),
        Claim("IFCA as released beats FedAvg at the paper's η = 0.001", "ours",
              mean_of(above), replicates="3 seeds, CIFAR-10, (3, 2)-class",
              scale=LONGER, **mine),
    ]  # fmt: skip


def by_client() -> Claim:
    """WeCFL against FeSEM by the mean over clients, not over samples."""
    both = figures.both()
    interval = difference(
        both[clustered(both)], "WeCFL", "FeSEM", CELL, "accuracy", "row"
    )
    return Claim(
        "WeCFL beats FeSEM if every client counts alike",
        "ours",
        interval,
        replicates="8 cells, 3 seeds averaged",
        scale=LAPTOP,
        ours=True,
    )


def weights_need_sizes() -> Claim:
    """WeCFL's lead over FeSEM where sizes differ, less its lead where they do not."""
    sides = [figures.both(), figures.records("equal_sizes")]
    leads = []
    for frame in sides:
        frame = frame.assign(setting=frame["setting"].str.removesuffix(", equal sizes"))
        frame = frame[frame["setting"].isin(["(3, 2)-class", "2-class"])]
        means = figures.mean_over_seeds(
            frame[clustered(frame)], [*CELL, "row"], ACCURACY
        )
        pair = tables.paired(means, "row", "WeCFL", "FeSEM", ACCURACY, CELL)
        leads.append(pair.differences.set_index(CELL)["difference"])
    more = 100 * (leads[0] - leads[1])
    return Claim(
        "WeCFL's lead over FeSEM is larger where sizes differ",
        "ours",
        mean_of(more.tolist()),
        replicates="4 cells of the n-class settings",
        scale=LAPTOP,
        ours=True,
    )
