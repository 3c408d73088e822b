"""Sentences of WeCFL's chapter that numbers complete."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from . import claims, deals, outcomes
from .outcomes import ACCURACY, OWN
from .tasks import TABLES

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from ...claims import Claim


# --- the first screen -----------------------------------------------------------------


def summary(judged: Sequence[Claim]) -> str:
    """The main results in words, as Markdown for the first screen."""
    of = {claim.statement: claim for claim in judged}
    points = [
        about_one_model(of),
        about_training_alone(of),
        about_weights(of),
        about_ifca(of),
        about_the_theory(),
        own_scale_in_words(),
    ]
    return "\n".join(point for point in points if point)


def about_one_model(of: Mapping[str, Claim]) -> str:
    """Clusters against one model for all, and against chance."""
    claim = of["Ten clusters beat one model, FedAvg"]
    by_lot = mean(of["WeCFL beats random clusters of equal size"])
    return (
        "- **Groups beat one model by far.** WeCFL's ten clusters are "
        f"**{mean(claim):.0f}** points more accurate than FedAvg (paper "
        f"{claim.printed:.0f}). Clusters drawn by lot are {by_lot:.0f} points behind "
        "(five and ten averaged). On CIFAR-10 most of the lead is knowing which "
        "classes a client has: always answering its most frequent class, without a "
        f"model, {labels_in_words()}."
    )


def labels_in_words() -> str:
    """What the majority class gets on CIFAR-10, beside one model, five and ten."""
    frame = outcomes.cifar(outcomes.both())
    means = frame.groupby(["setting", "row", "K"])[ACCURACY].mean()
    ends = []
    for row, K in ((deals.MAJORITY, 0), ("FedAvg", 1), ("WeCFL", 5), ("WeCFL", 10)):
        levels = 100 * means.xs((row, K), level=("row", "K"))
        ends.append(f"{levels.min():.0f} to {levels.max():.0f} %")
    labels, one, five, ten = ends
    return (
        f"gives {labels}; FedAvg has {one}, WeCFL {five} with five clusters and {ten} "
        "with ten"
    )


def about_training_alone(of: Mapping[str, Claim]) -> str:
    """LocalOnly, the row that the paper does not have."""
    claim = of["WeCFL with ten clusters beats training alone"]
    like, unlike = outcomes.ahead_of_alone()
    return (
        "- **Training alone, a row that the paper lacks, does as well or better.** The "
        f"lead of ten clusters over it is {signed(mean(claim))} ({claim.verdict}): "
        f"{signed(like[0])} and {signed(like[-1])} where members of a group hold like "
        f"data, {signed(unlike[0])} to {signed(unlike[-1])} elsewhere."
        f"{alone_at_own_scale()}{with_the_same_classes()}"
    )


def alone_at_own_scale() -> str:
    """WeCFL's lead over training alone at the paper's own scale; "" without runs."""
    words = ""
    for dataset, setting in outcomes.own_cells():
        own, _ = outcomes.levels_at_own_scale(dataset, setting)
        lead = 100 * (own["WeCFL"] - own["LocalOnly"])
        words += f" At the paper's own scale ({cell_in_words(dataset, setting)}) it is "
        words += f"{signed(lead)}."
    return words


def with_the_same_classes() -> str:
    """What sharing brings those who hold the same classes."""
    wide = outcomes.company_by_seed()
    gain = 100 * (wide["WeCFL, K = pairs of classes"] - wide["LocalOnly"]).mean()
    seeds = outcomes.number_of_seeds(wide.reset_index())
    return (
        " There ten clusters mix clients with different classes. With a cluster for "
        "each pair of classes that occurs, twenty or a few more, the lead is "
        f"{signed(gain)} ({seeds}; *K* was chosen by knowing the deal)."
    )


def about_weights(of: Mapping[str, Claim]) -> str:
    """WeCFL against FeSEM, by three measures."""
    claim = of["WeCFL is more accurate than FeSEM"]
    alike = of["WeCFL beats FeSEM if every client counts alike"]
    macro = of["WeCFL has a higher macro-F1 than FeSEM"]
    return (
        f"- **Weights in *k*-means help a little.** WeCFL is **{mean(claim):.1f}** "
        f"points more accurate than FeSEM (paper {claim.printed:.1f}), which groups "
        "without weights; five and ten clusters averaged. If every client counts "
        f"alike, it is {signed(mean(alike))} ({alike.verdict}); by macro-F1, which "
        f"counts classes alike, {signed(mean(macro))} ({macro.verdict})."
    )


def about_ifca(of: Mapping[str, Claim]) -> str:
    """IFCA's row in print, ours, and the released code's."""
    claim = of["WeCFL is more accurate than IFCA"]
    return (
        f"- **IFCA does better than its row.** In print it is {claim.printed:.0f} "
        f"points behind WeCFL, in our runs **{mean(claim):.1f}**. The authors' public "
        f"code of spring 2022 has a slip in IFCA.{cost_of_the_slip(of)}"
        f"{ifca_row_at_own_scale()} Which code made the printed rows is not known."
    )


def cost_of_the_slip(judged: Mapping[str, Claim]) -> str:
    """What the slip costs the released IFCA, for the summary."""
    costs = [
        mean(claim)
        for name, claim in judged.items()
        if name.startswith("The slip makes the released IFCA less accurate")
    ]
    ends = f"{min(costs):.0f} to {max(costs):.0f}"
    return f" In the one setting where we took it apart, the slip costs {ends} points."


def ifca_row_at_own_scale() -> str:
    """IFCA as in its paper and as released, at the paper's own scale; "" without."""
    words = ""
    for dataset, setting in outcomes.own_cells():
        own, printed = outcomes.levels_at_own_scale(dataset, setting)
        levels = {row: 100 * level for row, level in own.items()}
        theirs = {row: 100 * level for row, level in printed.items()}
        over_one = levels["IFCA as released"] - levels["FedAvg"]
        in_print = theirs["IFCA"] - theirs["FedAvg"]
        words += (
            f" At the paper's own scale ({cell_in_words(dataset, setting)}) IFCA has "
            f"{levels['IFCA']:.0f} %. As released, with the slip and three smaller "
            f"differences, it has {levels['IFCA as released']:.0f} %, in print "
            f"{theirs['IFCA']:.0f} %; but over FedAvg these are {signed(over_one)} and "
            f"{signed(in_print)}."
        )
    return words


def about_the_theory() -> str:
    """What the theorems are worth here, and how large B is."""
    return (
        "- **The theorems hold where we could test them, and do not explain the "
        "success.** We tested where no client changes its cluster; where one does, a "
        "lemma can fail. The bound on the step that keeps clusters together stops the "
        f"training. {size_of_b()}"
    )


def size_of_b() -> str:
    """How large B is, in a sentence."""
    frame = outcomes.geometry()
    ends = [course["B"].iloc[-1] for course in frame["course"]]
    starts = [course["B"].iloc[0] for course in frame["course"]]
    return (
        "And *B*, the disagreement inside a cluster relative to its mean gradient, "
        "is not close to zero at laptop scale: in the worst cluster it is "
        f"{min(starts):.1f} to {max(starts):.1f} after the first round and "
        f"{min(ends):.1f} to {max(ends):.1f} after the last "
        f"({outcomes.WHICH_STEPS})."
    )


def own_scale_in_words() -> str:
    """A point of the summary for each cell at the paper's own scale; "" without."""
    points = []
    for dataset, setting in outcomes.own_cells():
        own, printed = outcomes.levels_at_own_scale(dataset, setting)
        in_print = own[own.index.isin(printed.index)]
        points.append(
            f"- **At {OWN}** we ran one of the eight settings: "
            f"{cell_in_words(dataset, setting)}. Accuracy in % with ten models or one: "
            f"{levels_in_words(in_print, printed)}."
        )
    return "\n".join(points)


# --- what pictures show ---------------------------------------------------------------


def b_in_words(frame: DataFrame) -> str:
    """How large B is in the networks' runs, and if it grows."""
    courses = frame["course"]
    least = min(course["B"].min() for course in courses)
    least = math.floor(10 * least) / 10  # not rounded up: no B is below it
    ends = [course["B_median"].iloc[-1] for course in courses]
    return (
        f"*B* of the worst cluster ({outcomes.WHICH_STEPS}) is {least} or more after "
        "every round of every run. It ends higher than it began in "
        f"{grown_in_words(frame)}. In the median cluster it ends at {min(ends):.1f} to "
        f"{max(ends):.1f}."
    )


def grown_in_words(frame: DataFrame) -> str:
    """In how many runs B ends higher than it began, by data set."""
    parts = []
    for dataset, runs in frame.groupby("dataset", sort=False)["course"]:
        parts.append(f"{_grown(runs, 'B')} on {outcomes.DATASETS[dataset]}")
    first = _grown(frame["course"], "B_first")
    return f"{' and '.join(parts)} (at a round's first step alone: in {first})"


def _grown(courses: Series, name: str) -> str:
    """In how many courses a number ends higher than it began, such as "2 of 3 runs"."""
    grown = sum(course[name].iloc[-1] > course[name].iloc[0] for course in courses)
    return f"{grown} of {len(courses)} runs"


def colours_in_words(frame: DataFrame) -> str:
    """What the colours of `figures.snapshots` are, and how right the first are."""
    ten = frame[frame["dataset"].eq("fashion_mnist") & frame["K"].eq(10)]
    first = ", ".join(f"{course['ari'].iloc[0]:.2f}" for course in ten["course"])
    return (
        "Colours are clusters: in round 1 those that were made of it, later those in "
        "which clients trained. The clusters made of round 1, the fair witness, have "
        f"an adjusted Rand index of {first} (seeds "
        f"{', '.join(map(str, ten['seed']))})."
    )


def torn_and_merged(frame: DataFrame) -> str:
    """How the clusters found differ from the hidden groups, seed by seed, in words."""
    run = frame[(frame["dataset"] == deals.DATASET) & (frame["K"] == 10)]
    parts = []
    for seed, course in zip(run["seed"], run["course"], strict=True):
        counts, truth = deals.read()["α = (0.1, 10)", seed]
        assert truth is not None
        labels = np.array(course["labels"].iloc[-1])
        sizes = counts.sum(1)  # (K,)
        torn = [g for g in set(truth) if len(set(labels[truth == g])) > 1]
        merged = [set(truth[labels == c]) for c in set(labels)]
        light = sorted({int(g) for groups in merged if len(groups) > 1 for g in groups})
        if not torn and not light:
            parts.append(f"seed {seed}: as dealt")
            continue
        heavy = ", ".join(f"{g} ({sizes[truth == g].sum()} samples)" for g in torn)
        pairs = " and ".join(f"{g} ({sizes[truth == g].sum()})" for g in light)
        parts.append(f"seed {seed}: group {heavy} is torn, groups {pairs} share one")
    return f"{'; '.join(parts)}."


# --- beside the tables ----------------------------------------------------------------


def leads_over_fesem(judged: Sequence[Claim]) -> str:
    """WeCFL's lead over FeSEM by the number of clusters, and weights in averages."""
    of = {claim.statement: claim for claim in judged}
    theirs = outcomes.paper()
    five, ten = (signed(outcomes.lead("FeSEM", K=K)) for K in (5, 10))
    printed_five, printed_ten = (
        signed(outcomes.lead("FeSEM", K=K, printed=theirs)) for K in (5, 10)
    )
    return (
        f"At laptop scale WeCFL's lead over FeSEM is {five} points with five clusters "
        f"and {ten} with ten; in the paper it is {printed_five} and {printed_ten}."
        f"{leads_at_own_scale()} Both methods also weigh by samples when they "
        f"*average*: {weights_in_averages(of)}."
    )


def leads_at_own_scale() -> str:
    """WeCFL minus FeSEM with five and ten clusters at the paper's scale; "" without."""
    words = ""
    for dataset, setting in outcomes.own_cells():
        own = outcomes.own_cell(dataset, setting)
        leads = []
        for K in (5, 10):
            level = own[own["K"] == K].groupby("row")[ACCURACY].mean()
            leads.append(signed(100 * (level["WeCFL"] - level["FeSEM"])))
        cell = cell_in_words(dataset, setting)
        words += (
            f" At the paper's own scale ({cell}) ours is {leads[0]} and {leads[1]}."
        )
    return words


def weights_in_averages(judged: Mapping[str, Claim]) -> str:
    """What FeSEM's weighted averages add, as the end of a sentence."""
    adds, alike, lead = (
        f"{signed(mean(judged[name]))} ({judged[name].verdict})"
        for name in (claims.WEIGHTED_AVERAGES, claims.CLIENTS_ALIKE, claims.EQUATION_2)
    )
    return (
        f"in FeSEM that adds {adds}, and {alike} if every client counts alike. Over "
        f"FeSEM without these weights, as Eq. 2 has it, WeCFL's lead is {lead}"
    )


def with_more_rounds() -> str:
    """WeCFL beside LocalOnly early and late in Figure 2's runs, in words."""
    runs = outcomes.curves("figure2")
    parts = []
    for end in (10, 30):
        gaps = [
            100 * (a[ACCURACY].iloc[end - 3 : end] - b[ACCURACY].iloc[end - 3 : end])
            for a, b in zip(runs["WeCFL"], runs["LocalOnly"], strict=True)
        ]
        mean = float(np.mean(gaps))
        where = "ahead" if mean > 0 else "behind"
        parts.append(f"{abs(mean):.1f} points {where} after {end} rounds")
    words = "In Figure 2's runs below (CIFAR-10, (3, 2)-class, three seeds) WeCFL is "
    return f"{words}{' and '.join(parts)}."


def alone_at_both_scales() -> str:
    """WeCFL beside LocalOnly at laptop scale and at the paper's; "" without runs."""
    parts = []
    for dataset, setting in outcomes.own_cells():
        gaps = []
        for frame in (
            outcomes.cell(outcomes.both(), dataset, setting),
            outcomes.own_cell(dataset, setting),
        ):
            mean = frame[frame["K"] != 5].groupby("row")[ACCURACY].mean()
            gaps.append(100 * (mean["WeCFL"] - mean["LocalOnly"]))
        name = f"{outcomes.DATASETS[dataset]}, {setting}"
        seeds = outcomes.number_of_seeds(outcomes.own_cell(dataset, setting))
        parts.append(
            f"At the paper's scale ({name}, {seeds}) WeCFL minus LocalOnly is "
            f"{signed(gaps[1])} points; at laptop scale {signed(gaps[0])}."
        )
    return " ".join(parts)


def company_in_words() -> str:
    """What `outcomes.company` shows, in a sentence."""
    frame = outcomes.company()
    means = (
        outcomes.for_dots(frame)
        .groupby("line", sort=False)[["classes", ACCURACY]]
        .mean()
    )
    turned = means["classes"].corr(means[ACCURACY], method="spearman")
    return (
        f"{outcomes.number_of_seeds(frame).capitalize()}; rank correlation of the "
        f"{len(means)} rows between classes and accuracy: {turned:.2f}."
    ).replace("-", "−")


def ifca_at_own_scale() -> str:
    """Where IFCA stands at the paper's scale, in words; "" without runs."""
    rows = ["FedAvg", "IFCA", "IFCA as released", "WeCFL"]
    parts = []
    for dataset, setting in outcomes.own_cells():
        own, printed = outcomes.levels_at_own_scale(dataset, setting)
        seeds = outcomes.number_of_seeds(outcomes.own_cell(dataset, setting))
        name = f"{outcomes.DATASETS[dataset]}, {setting}"
        parts.append(
            f"At the paper's scale and learning rate ({name}, {seeds}), accuracy in % "
            "with ten models or one: "
            f"{levels_in_words(own[rows], printed)}."
        )
    return " ".join(parts)


def slip_in_words(judged: Sequence[Claim]) -> str:
    """The released IFCA part by part, as Markdown."""
    asked = {claim.statement for claim in claims.of_the_slip()}
    parts = []
    for claim in judged:
        if claim.statement in asked:
            effect = f"{signed(mean(claim))} {claim.unit}"
            parts.append(f"- {claim.statement}: {effect} ({claim.verdict}).")
    head = "Part by part, in Figure 2's setting, three seeds:"
    return "\n".join([head, "", *parts, "", slip_beside_print()])


def slip_beside_print() -> str:
    """IFCA minus FedAvg in Figure 2's setting: in print, with the slip, without it."""
    setting = outcomes.cell(outcomes.paper(), "cifar10", "(3, 2)-class")
    printed = claims.at_ten(setting, "IFCA", "FedAvg").mean
    runs = outcomes.ifca_runs()
    slow = "η = 0.001"
    one = claims.ends_of(runs[f"FedAvg, {slow}"])
    leads = [
        signed(claims.minus(claims.ends_of(runs[f"{row}, {slow}"]), one).mean)
        for row in ("IFCA as released", "IFCA as released, without the slip")
    ]
    return (
        f"In print IFCA with ten models is {signed(printed)} points from FedAvg there. "
        "At the same learning rate, but at our scale, the released one is "
        f"{leads[0]}, and without the slip {leads[1]}."
    )


# --- beside the claims ----------------------------------------------------------------


def look_at_b(judged: Sequence[Claim]) -> str:
    """What the two lines about B rest on, as a point of a list in Markdown."""
    close, better = (
        claim
        for claim in judged
        if claim.statement in (claims.B_IS_SMALL, claims.B_GETS_BETTER)
    )
    grown = grown_in_words(outcomes.geometry())
    at_one = replace(close, threshold=-1.0).verdict
    return (
        "- *B* scatters by factors, so we judge factors, over three seeds (one seed "
        f"deals both data sets alike). *Close to zero*: {close.verdict} at our line, "
        f"{claims.CLOSE_TO_ZERO}; the paper names none, and at 1 the verdict would be "
        f"*{at_one}*. *Better and better*, on Fashion-MNIST: {better.verdict}; *B* "
        f"ends higher than it began in {grown}."
    )


def not_run() -> str:
    """What is not run yet, as Markdown; "" if all is."""
    left = []
    for table, (dataset, setting) in outcomes.OWN_SCALE.items():
        planned = len({task.seed for task in TABLES[table]("paper")})
        missing = planned - outcomes.own_cell(dataset, setting)["seed"].nunique()
        if missing:
            place = f"{outcomes.DATASETS[dataset]}, {setting}"
            seeds = f"seeds to come: {missing} of {planned}"
            left.append(f"{place}, at the paper's own scale ({seeds})")
    if not left:
        return ""
    return f"Not run yet: {'; '.join(left)}."


# --- parts of sentences ---------------------------------------------------------------


def cell_in_words(dataset: str, setting: str) -> str:
    """A cell at the paper's own scale, and how many seeds it has."""
    seeds = outcomes.number_of_seeds(outcomes.own_cell(dataset, setting))
    return f"{outcomes.DATASETS[dataset]}, {setting}, {seeds}"


def levels_in_words(levels: Series, printed: Series) -> str:
    """Accuracies by row in per cent, each with the paper's where it prints one."""
    parts = []
    for row, level in levels.items():
        words = f"{row} {100 * level:.1f}"
        if row in printed:
            words += f" (paper {100 * printed[row]:.1f})"
        parts.append(words)
    return ", ".join(parts)


def mean(claim: Claim) -> float:
    """Our effect."""
    assert claim.interval is not None
    return claim.interval.mean


def signed(points: float) -> str:
    """Points with their sign, and a true minus."""
    return f"{points:+.1f}".replace("-", "−")
