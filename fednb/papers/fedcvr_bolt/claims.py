"""FedCVR-Bolt's claims, judged on the records by the one rule of `fednb.claims`.

Runs are compared pair by pair: the same data, first model and batches. An interval is
over seeds; where a claim is about several data sets, a seed's differences are averaged
over them first. The error of the regression is compared in per cent, by its logarithm.

Three claims are about every round of a run. Eight runs of Table 1 (four seeds, D = 1
and 2, two groups) are done again for them and watched: see
`fednb.papers.fedcvr_bolt.theory`. Their evidence is a count of runs.

MNIST is judged at the paper's own scale as soon as those records are there, and at
laptop scale until then. CIFAR-100 is left out: see `too_young`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ... import tables
from ...claims import Claim, Interval, effect, exactly
from . import figures, theory
from .figures import BOLT, CORRECTED, PICK, RIVALS, SHUFFLED, TURNS

if TYPE_CHECKING:
    from pandas import DataFrame

LAPTOP = "laptop scale"
PAPER = "the paper's scale"
WATCHED = [(D, seed) for D in (1, 2) for seed in range(4)]
TEXT_D2 = 1.7  # section 5.1's lead over FedAvg in per cent; our copy lacks the cell


def claims() -> list[Claim]:
    """All claims: the paper's, then questions of our own."""
    regression = figures.regression()
    images = figures.images()
    own = figures.own_scale("mnist")
    synthetic = figures.synthetic()
    return [
        *lower_error(regression),
        alike(regression),
        *more_accurate(images, own),
        too_young(images),
        *best_kernel(images),
        other_kernels(),
        *faster(images, own),
        *steadier(regression, images, own),
        *every_round(),
        *theory_claims(),
        *our_questions(regression, synthetic, images, own),
    ]


def headlines(found: Iterable[Claim]) -> list[Claim]:
    """The claims for the first screen: one or two for each promise of the paper."""
    return [claim for claim in found if claim.statement in HEADLINES]


# --- effects --------------------------------------------------------------------------


def lead(frame: DataFrame, row: str, base: str, value: str = "accuracy") -> Interval:
    """How many points a row is ahead of another, over seeds.

    Averaged over the frame's data sets first, where it has several.
    """
    both = frame[frame["row"].isin([row, base])]
    mean = both.groupby(["row", "seed"], sort=False)[value].mean().reset_index()
    pair = tables.paired(mean, "row", row, base, value, ["seed"], percent=True)
    return effect(pair)


def per_cent_less(frame: DataFrame, row: str, base: str, value: str) -> Interval:
    """By how many per cent a row's value is below another's; ``value`` is a
    logarithm.
    """
    mean, low, high = tables.paired(frame, "row", row, base, value, ["seed"])[:3]
    return Interval(*(-100 * math.expm1(x) for x in (mean, high, low)))


def printed_lead(base: str, datasets: Sequence[str], row: str = BOLT) -> float | None:
    """The paper's lead of a row in points, the mean over data sets that have both."""
    cells = tables.summary(
        figures.printed_images(), ["dataset", "row"], "accuracy"
    ).set_index(["dataset", "row"])["mean"]
    gaps = []
    for dataset in datasets:
        if (dataset, base) in cells and (dataset, row) in cells:
            gaps.append(100 * (cells[dataset, row] - cells[dataset, base]))
    return float(np.mean(gaps)) if gaps else None


def seeds(frame: DataFrame) -> str:
    """Over what an interval is, in words."""
    return f"{frame['seed'].nunique()} seeds"


# --- Table 1 --------------------------------------------------------------------------


def lower_error(regression: DataFrame) -> list[Claim]:
    """Table 1, two groups: a lower error than each of the three policies."""
    printed = figures.printed("1")
    found = []
    for D in (1, 2):
        ours = _cell(regression, D, "non-IID")
        theirs = _cell(printed, D, "non-IID").set_index("row")["mse"]
        for base in RIVALS:
            gain = TEXT_D2
            if base in theirs:
                gain = 100 * (1 - theirs[BOLT] / theirs[base])
            claim = Claim(
                statement=f"Regression, D = {D}: lower error than {base}",
                where="Table 1, 5.1",
                interval=per_cent_less(ours, BOLT, base, "log_mse"),
                printed=float(gain),
                unit="%",
                replicates=seeds(ours),
                scale=LAPTOP,
            )
            found.append(claim)
    return found


def alike(regression: DataFrame) -> Claim:
    """Table 1, one group: no policy differs from FedCVR-Bolt by more than in the paper.

    The effect is that margin minus the largest difference, so it must be above zero.
    """
    printed = figures.printed("1")
    margin = 0.0
    worst = Interval(0.0, 0.0, 0.0)
    for D in (1, 2):
        theirs = _cell(printed, D, "IID").set_index("row")["mse"]
        ours = _cell(regression, D, "IID")
        for base in RIVALS:
            if base in theirs:
                margin = max(margin, 100 * abs(1 - theirs[BOLT] / theirs[base]))
            found = per_cent_less(ours, BOLT, base, "log_mse")
            if _farthest(found) > _farthest(worst):
                worst = found
    nearest = 0.0
    if worst.low > 0 or worst.high < 0:
        nearest = min(abs(worst.low), abs(worst.high))
    room = (abs(worst.mean), _farthest(worst), nearest)
    return Claim(
        statement="Regression, one group: all policies alike",
        where="5.1",
        interval=Interval(*(float(margin - x) for x in room)),
        unit=f"% below the {margin:.1f} % of the paper's own table",
        replicates=f"{seeds(regression)}, the pair that differs most",
        scale=LAPTOP,
    )


def _farthest(interval: Interval) -> float:
    return max(abs(interval.low), abs(interval.high))


def _cell(frame: DataFrame, D: int, kind: str) -> DataFrame:
    return frame[(frame["D"] == D) & (frame["heterogeneity"] == kind)]


# --- Tables 2 and 4 -------------------------------------------------------------------


def laptop_images(images: DataFrame, own: DataFrame | None) -> DataFrame:
    """MNIST and CIFAR-10; CIFAR-10 alone when MNIST has runs at the paper's scale."""
    wanted = ["mnist", "cifar10"] if own is None else ["cifar10"]
    return images[images["dataset"].isin(wanted)]


def more_accurate(images: DataFrame, own: DataFrame | None) -> list[Claim]:
    """Table 2: more accurate than each of six methods, on data where both are
    printed.
    """
    found = []
    if own is not None:
        for base in RIVALS:
            claim = Claim(
                statement=f"MNIST: more accurate than {base}",
                where="Table 2",
                interval=lead(own, BOLT, base),
                printed=printed_lead(base, ["mnist"]),
                replicates=seeds(own),
                scale=PAPER,
            )
            found.append(claim)
    theirs = figures.printed("2")
    for base in (*RIVALS, "FedProx", "IFCA", "FeSEM"):
        part = laptop_images(images, own if base in RIVALS else None)
        compared = theirs.loc[theirs["row"] == base, "dataset"]
        part = part[part["dataset"].isin(compared)]
        names = list(part["dataset"].unique())
        claim = Claim(
            statement=f"{_title(names)}: more accurate than {base}",
            where="Table 2",
            interval=lead(part, BOLT, base),
            printed=printed_lead(base, names),
            replicates=_over(part),
            scale=LAPTOP,
        )
        found.append(claim)
    return found


def too_young(images: DataFrame) -> Claim:
    """CIFAR-100 cannot be judged: at laptop scale the models have hardly begun to
    learn.
    """
    part = images[images["dataset"] == "cifar100"]
    ours = part.loc[part["row"] == "FedAvg", "accuracy"].mean()
    table = figures.printed("2").set_index(["dataset", "row"])["accuracy"]
    theirs = table["cifar100", "FedAvg"]
    return Claim(
        statement="CIFAR-100: more accurate than all six",
        where="Table 2",
        reason=f"FedAvg's accuracy is {ours:.0%} at laptop scale and {theirs:.0%} in "
        "the paper: our models have hardly begun to learn",
    )


def best_kernel(images: DataFrame) -> list[Claim]:
    """Table 4: the RBF kernel is better than each of three others."""
    part = laptop_images(images, None)
    return [
        Claim(
            statement=f"RBF is better than the {kernel} kernel",
            where="Table 4",
            interval=lead(part, BOLT, f"as released, {kernel}"),
            printed=printed_lead(f"as released, {kernel}", ["mnist", "cifar10"]),
            replicates=_over(part),
            scale=LAPTOP,
        )
        for kernel in ("cosine", "laplacian", "sigmoid")
    ]


def other_kernels() -> Claim:
    """B.1: the other kernels still beat the baselines; by the paper's own two
    tables.
    """
    baselines = figures.printed("2")
    kernels = figures.printed("4")
    margins = []
    for dataset in ("mnist", "cifar10"):
        rows = baselines[(baselines["dataset"] == dataset) & (baselines["row"] != BOLT)]
        others = kernels[(kernels["dataset"] == dataset) & (kernels["row"] != BOLT)]
        margins.append(others["accuracy"].min() - rows["accuracy"].max())
    return Claim(
        statement="Every other kernel still beats every baseline",
        where="B.1",
        interval=exactly(float(100 * min(margins))),
        replicates="the least of two data sets",
        scale="the paper's own Tables 2 and 4",
    )


def faster(images: DataFrame, own: DataFrame | None) -> list[Claim]:
    """Abstract: faster convergence; the mean of the curve after the warm-up."""
    part = laptop_images(images, None) if own is None else own
    name = "MNIST and CIFAR-10" if own is None else "MNIST"
    return [
        Claim(
            statement=f"{name}: converges faster than {base}",
            where="abstract",
            interval=lead(part, BOLT, base, "area"),
            unit="points of the curve's mean",
            replicates=_over(part),
            scale=LAPTOP if own is None else PAPER,
        )
        for base in RIVALS
    ]


def _title(names: Sequence[str]) -> str:
    titles = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
    return " and ".join(titles[name] for name in names)


def _over(frame: DataFrame) -> str:
    words = seeds(frame)
    if frame["dataset"].nunique() > 1:
        words += ", each the mean of two data sets"
    return words


# --- lower variance -------------------------------------------------------------------


def steadier(
    regression: DataFrame, images: DataFrame, own: DataFrame | None
) -> list[Claim]:
    """Section 3: more stable updates; how far a run goes up and down at its end."""
    found = []
    for D in (1, 2):
        part = _cell(regression, D, "non-IID")
        claim = Claim(
            statement=f"Regression, D = {D}: steadier than FedAvg",
            where="abstract, 3",
            interval=per_cent_less(part, BOLT, "FedAvg", "log_unrest"),
            unit="% less sd over the last 5 rounds",
            replicates=seeds(part),
            scale=LAPTOP,
        )
        found.append(claim)
    part = images[images["dataset"] == "mnist"] if own is None else own
    claim = Claim(
        statement="MNIST: steadier than FedAvg",
        where="abstract, 3",
        interval=lead(part, "FedAvg", BOLT, "unrest"),
        unit="points less sd over the last 5 rounds",
        replicates=seeds(part),
        scale=LAPTOP if own is None else PAPER,
    )
    return [*found, claim]


def watched(row: str) -> list[tuple[theory.Look, ...]]:
    """Eight runs of Table 1 with two groups, done again and watched."""
    return [theory.watched(f"table1_d{D}_noniid", row, seed) for D, seed in WATCHED]


def every_round() -> list[Claim]:
    """What is claimed of the update in every round, in eight runs of Table 1."""
    runs = watched(BOLT)
    quiet = 0
    descending = 0
    for run in runs:
        quiet += mean_below([look.noise for look in run], 1.0)
        descending += never_rises([look.loss for look in run])
    common = {
        "threshold": len(runs) - 0.5,
        "unit": f"of {len(runs)} runs",
        "replicates": "4 seeds, D = 1 and 2",
        "scale": "Table 1, laptop scale, watched",
    }
    return [
        Claim(
            "Its updates vary less than those of lots, on average",
            "abstract",
            exactly(quiet),
            **common,
        ),
        Claim(
            "Assumption A3 holds: the policy points downhill",
            "B.4",
            exactly(aligned(runs)),
            **common,
        ),
        Claim("The global loss never rises", "4", exactly(descending), **common),
    ]


def aligned(runs: Iterable[Sequence[theory.Look]]) -> int:
    """In how many runs ⟨G, ∇L⟩ is above zero in every round."""
    return sum(min(look.alignment for look in run) > 0 for run in runs)


def mean_below(numbers: Sequence[float], bound: float) -> bool:
    """Whether the geometric mean is below a bound."""
    return float(np.mean(np.log(numbers))) < math.log(bound)


def never_rises(numbers: Sequence[float]) -> bool:
    """Whether no number is above the one before it."""
    return bool((np.diff(numbers) <= 0).all())


# --- theory ---------------------------------------------------------------------------


def theory_claims() -> list[Claim]:
    """Assumption A1 by counting; what no run here can decide, with the reason."""
    paper = figures.tasks.SCALES["paper"]
    updates = paper.rounds - paper.warmup
    return [
        Claim(
            statement="The estimated covariances are invertible",
            where="A1, Remark A2",
            interval=exactly(1 + updates),
            threshold=paper.clients - 0.5,
            unit=f"rank at most, of {paper.clients}",
            replicates="an all-ones start and one outer product a round",
            scale=PAPER,
        ),
        Claim(
            statement="The gradient's variance is bounded",
            where="A2",
            reason="about all of parameter space: for squared errors variance grows "
            "like the squared distance from the minimum, for our networks nobody knows",
        ),
        Claim(
            statement="The overhead on the server is modest",
            where="4",
            reason="no number is named, and seconds depend on the machine; see the "
            "chapter's timings",
        ),
        Claim(
            statement="Secure aggregation can protect the models",
            where="D",
            reason="a matter of design: coalitions need the single models that secure "
            "aggregation hides, as the appendix says itself",
        ),
    ]


# --- questions of our own -------------------------------------------------------------


def our_questions(
    regression: DataFrame,
    synthetic: DataFrame,
    images: DataFrame,
    own: DataFrame | None,
) -> list[Claim]:
    """Which part does what, and what the controls say."""
    D1 = _cell(regression, 1, "non-IID")
    D2 = _cell(regression, 2, "non-IID")
    mnist = images[images["dataset"] == "mnist"] if own is None else own
    size = LAPTOP if own is None else PAPER
    less = "% less sd over the last 5 rounds"

    def ask(statement, frame, interval, unit="points", scale=LAPTOP):
        return Claim(
            statement,
            "ours",
            interval,
            unit=unit,
            replicates=seeds(frame),
            scale=scale,
            ours=True,
        )

    runs = watched(CORRECTED)
    return [
        ask(
            "Synthetic: the score adds accuracy",
            synthetic,
            lead(synthetic, BOLT, PICK),
        ),
        ask(
            "Regression, D = 1: the score makes it steadier",
            D1,
            per_cent_less(D1, BOLT, PICK, "log_unrest"),
            less,
        ),
        ask(
            "Regression, D = 1: coalitions alone make it steadier",
            D1,
            per_cent_less(D1, PICK, "FedAvg", "log_unrest"),
            less,
        ),
        ask(
            "Regression, D = 1: any groups of these sizes would do",
            D1,
            per_cent_less(D1, SHUFFLED, "FedAvg", "log_unrest"),
            less,
        ),
        ask(
            "Regression, D = 1: corrected has a lower error than FedAvg",
            D1,
            per_cent_less(D1, CORRECTED, "FedAvg", "log_mse"),
            "%",
        ),
        ask(
            "Regression, D = 2: corrected has a lower error than FedAvg",
            D2,
            per_cent_less(D2, CORRECTED, "FedAvg", "log_mse"),
            "%",
        ),
        ask(
            "MNIST: corrected is steadier than FedAvg",
            mnist,
            lead(mnist, "FedAvg", CORRECTED, "unrest"),
            "points less sd over the last 5 rounds",
            size,
        ),
        ask(
            "MNIST: corrected is more accurate than FedAvg",
            mnist,
            lead(mnist, CORRECTED, "FedAvg"),
            scale=size,
        ),
        ask(
            "Synthetic: more accurate than FedAvg",
            synthetic,
            lead(synthetic, BOLT, "FedAvg"),
        ),
        ask(
            "Synthetic: coalitions beat groups of the same sizes",
            synthetic,
            lead(synthetic, BOLT, SHUFFLED),
        ),
        ask(
            "Synthetic: better than taking turns",
            synthetic,
            lead(synthetic, BOLT, TURNS),
        ),
        Claim(
            "Corrected: Assumption A3 holds",
            "ours",
            exactly(aligned(runs)),
            threshold=len(runs) - 0.5,
            unit=f"of {len(runs)} runs",
            replicates="4 seeds, D = 1 and 2",
            scale="Table 1, laptop scale, watched",
            ours=True,
        ),
        twenty_runs(),
    ]


def twenty_runs() -> Claim:
    """Whether twenty unpaired runs would tell one of Table 1's leads from its ±."""
    fewest = int(figures.runs_needed()["runs"].min())
    return Claim(
        statement="Twenty unpaired runs would show one of Table 1's leads",
        where="ours",
        interval=exactly(20 - fewest),
        unit="runs to spare",
        replicates="the easiest of its comparisons",
        scale="the paper's own Table 1",
        ours=True,
    )


HEADLINES = (
    "Regression, D = 1: lower error than FedAvg",
    "Regression, D = 2: lower error than FedAvg",
    "Regression, D = 1: lower error than Power-of-Choice",
    "Regression, one group: all policies alike",
    "MNIST: more accurate than FedAvg",
    "MNIST: more accurate than Power-of-Choice",
    "MNIST: more accurate than Active FL",
    "MNIST and CIFAR-10: more accurate than FedAvg",
    "MNIST and CIFAR-10: more accurate than Active FL",
    "MNIST and CIFAR-10: more accurate than IFCA",
    "RBF is better than the laplacian kernel",
    "Every other kernel still beats every baseline",
    "MNIST: converges faster than FedAvg",
    "MNIST and CIFAR-10: converges faster than FedAvg",
    "Regression, D = 1: steadier than FedAvg",
    "Regression, D = 2: steadier than FedAvg",
    "MNIST: steadier than FedAvg",
    "Its updates vary less than those of lots, on average",
    "Assumption A3 holds: the policy points downhill",
    "The global loss never rises",
)
