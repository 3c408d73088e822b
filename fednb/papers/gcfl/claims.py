"""What GCFL's paper says, judged on our runs by the one rule of `fednb.claims`.

Effects are differences between two rows of the same data set, setting and seed; the
interval is that of their mean over the paper's non-IID cells. The pairs of a cell share
its mean effect, which makes the interval wider, not narrower. Where nothing else is
said, clients take 25 steps between two clusterings; ``claims(steps=5)`` judges the same
on shorter local training.

Three rules keep the comparisons fair. "Best" is judged against rivals that train as
many client models as GCFL. The best rival of a cell is chosen on the *other* seeds:
chosen on the same runs it would owe a part of its lead to luck. And what ζ decides is
judged at the ζ that gives the paper's number of clusters, once these runs are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ... import tables
from ...claims import Claim, Interval, effect, exactly, mean_of
from . import figures, priors
from .tasks import CATEGORY, GROUPS

if TYPE_CHECKING:
    from pandas import DataFrame

ABLATIONS = {  # Table 5's row: what it says
    "Massless": "Mass helps",
    "Param-space": "Locations help, against parameters",
    "w/o symmetric normalization": "Normalisation helps",
    "w/o shielding": "The shield helps",
}
FEW = 3  # clusters that we call "one or a few"
CLOSE = 2.0  # points that we call "similar"


def claims(steps: int = 25) -> list[Claim]:
    """All claims, in the order of the paper, then questions of our own."""
    every = figures.small_scale(steps)
    runs = figures.unlike(every)
    parts = figures.parts(steps)
    scale = figures.AS_SMALL[steps]
    return [
        *of_the_idea(runs, scale),
        *accuracies(runs, scale),
        *where_clients_are_alike(every, scale),
        *larger_federations(),
        *convergence(),
        *ablations(parts, scale),
        *number_of_clusters(parts, scale),
        *untestable(),
        *our_questions(runs, parts, scale),
    ]


# --- the idea: sections 1 and 3.1 ---


def of_the_idea(runs: DataFrame, scale: str) -> list[Claim]:
    """What clusters are for, how good they are, and what they cost."""
    how: dict[str, Any] = {"replicates": _pairs(runs), "scale": scale}
    loss = tables.paired(
        runs, "row", "FedAvg", "GCFL", "loss", figures.PAIRS, percent=False
    )
    rivals = [row for row in figures.FINDERS if row in set(runs["row"])]
    return [
        Claim(
            "A cluster's model has less loss than one for all",
            "Eq. 1",
            effect(loss),
            unit="nats",
            **how,
        ),
        Claim(
            "More reasonable clusters (adjusted Rand index)",
            "abstract",
            effect(_over_best(runs, rivals, "ari")._replace(points=False)),
            unit="",
            **how,
        ),
        cost(runs, scale),
        no_sensitive_setting(),
    ]


def cost(runs: DataFrame, scale: str) -> Claim:
    """Clients' work and traffic against FedAvg's, the worse of the two."""
    means = runs.groupby("row")[["client_updates", "bytes"]].mean()
    saved = 100 * (1 - means.loc["GCFL"] / means.loc["FedAvg"])
    return Claim(
        "Costs clients no more than FedAvg",
        "1, 2.3",
        exactly(float(saved.min())),
        threshold=-1.0,
        unit="% saved",
        replicates="every run; client updates and bytes",
        scale=scale,
    )


def no_sensitive_setting() -> Claim:
    """ζ a hundred times as large costs less than `CLOSE` points."""
    crossed = figures.crossed()
    if crossed is None:
        runs = figures.completed()
        pair = tables.paired(runs, "row", "ζ = 1", "GCFL", "accuracy", figures.PAIRS)
        scale = f"{figures.AS_SMALL[5]}, Non-IID"
    else:
        runs = crossed[crossed["row"] == "GCFL"]
        pair = tables.paired(
            runs, "zeta", 1.0, figures.ZETA, "accuracy", figures.PAIRS, percent=True
        )
        scale = figures.AS_SMALL[25]
    return Claim(
        "No sensitive settings: ζ = 1 does as well as ζ = 0.01",
        "1, 5",
        effect(pair),
        threshold=-CLOSE,
        replicates=f"{pair.n} pairs",
        scale=scale,
    )


# --- Table 2 and section 4.3 ---


def accuracies(runs: DataFrame, scale: str) -> list[Claim]:
    """GCFL against its rivals where clients differ."""
    how: dict[str, Any] = {"replicates": _pairs(runs), "scale": scale}
    out = [_best(runs, "Best where clients differ", "2", scale)]
    for rival, words in {
        "FedAvg": "Clusters beat one model",
        "FL+HC": "Ahead of FL+HC, the second best",
        "FedCCFA": "Ahead of FedCCFA (here without its feature alignment)",
    }.items():
        lead = _lead(runs, rival)
        out.append(Claim(words, "4.3", lead, _printed_lead("2", rival), **how))
    out.append(gain_grows())
    return out


def gain_grows() -> Claim:
    """The lead over FedAvg with two classes a group less that with four.

    Our Non-IID clients are hardly more unlike each other in their labels than those of
    Non-IID-ES (`priors.unlikeness`), so the paper's two settings cannot order our runs.
    """
    import pandas as pd

    two = figures.recorded("laws").query("setting == '2 classes a group'")
    four = figures.both_datasets().query("setting == 'Non-IID-ES'")
    runs = pd.concat([two, four])
    lead = tables.paired(runs, "row", "GCFL", "FedAvg", "accuracy", figures.PAIRS)
    pair = tables.paired(
        lead.differences,
        "setting",
        "2 classes a group",
        "Non-IID-ES",
        "difference",
        ["dataset", "seed"],
        percent=True,
    )
    return Claim(
        "The gain grows with heterogeneity",
        "4.3",
        effect(pair),
        replicates=f"{pair.n} pairs of data set and seed; lead over FedAvg, two "
        "classes a group less four",
        scale=figures.AS_SMALL[5],
    )


def where_clients_are_alike(every: DataFrame, scale: str) -> list[Claim]:
    """Under IID: as accurate as one model, and with few clusters (our lines)."""
    runs = every[every["setting"] == "IID"]
    pair = tables.paired(runs, "row", "GCFL", "FedAvg", "accuracy", figures.PAIRS)
    counts = runs.loc[runs["row"] == "GCFL", "clusters"]
    return [
        Claim(
            "Like one model where clients are alike",
            "4.3",
            effect(pair),
            threshold=-CLOSE,
            replicates=f"{pair.n} pairs of data set and seed, IID",
            scale=scale,
        ),
        Claim(
            "One or a few clusters where clients are alike",
            "4.3",
            mean_of(FEW - counts),
            unit=f"clusters below {FEW}",
            replicates=f"{len(counts)} runs, IID, means over rounds",
            scale=scale,
        ),
    ]


# --- Table 3 ---


def larger_federations() -> list[Claim]:
    """Table 3: partial participation, 5 steps a round."""
    runs = figures.unlike(figures.larger())
    scales = {
        "medium": "32 clients, a quarter a round, 20 rounds of 5 steps",
        "large": "60 clients, a tenth a round, 20 rounds of 5 steps",
    }
    out = []
    for name, scale in scales.items():
        some = runs[runs["scale"] == name]
        out.append(_best(some, f"Best at the {name} scale", "3", scale))
        out.append(
            Claim(
                f"Clusters beat one model at the {name} scale",
                "Table 3",
                _lead(some, "FedAvg"),
                _printed_lead("3", "FedAvg", name),
                replicates=_pairs(some),
                scale=scale,
            )
        )
    less = _loses_less(figures.both_datasets(), runs)
    paper = [figures.printed(table).assign(seed=0) for table in "23"]
    out.append(
        Claim(
            "Loses less than FedAvg from small to large",
            "4.3",
            effect(less),
            effect(_loses_less(*paper)).mean,
            replicates=f"{less.n} pairs of data set and seed, Non-IID",
            scale=scales["large"],
        )
    )
    out.append(steadier_over_seeds(runs))
    return out


def steadier_over_seeds(runs: DataFrame) -> Claim:
    """Standard deviation over seeds: FedAvg's less GCFL's, in every cell."""
    by = [*figures.CELL, "scale"]
    spread = runs.groupby([*by, "row"], as_index=False)["accuracy"].std()
    pair = tables.paired(spread, "row", "FedAvg", "GCFL", "accuracy", by)
    paper = figures.unlike(figures.printed("3"))
    theirs = tables.paired(paper, "row", "FedAvg", "GCFL", "accuracy_std", by)
    return Claim(
        "Varies less from seed to seed than FedAvg",
        "4.3",
        effect(pair),
        effect(theirs).mean,
        replicates=f"{pair.n} cells, three seeds each",
        scale="32 and 60 clients, 20 rounds of 5 steps",
    )


# --- Table 4 and Figure 2 ---


def convergence() -> list[Claim]:
    """Rounds to 95 % of the end, early accuracy, oscillation: against Table 4's
    four.
    """
    runs = figures.unlike(figures.timed())
    four = figures.printed("4").assign(seed=0)
    scale = f"{figures.AS_SMALL[5]}, clustering from the start"
    best: dict[str, Any] = {
        "replicates": f"{_pairs(runs)}, the best of four rivals in each",
        "scale": scale,
    }
    rivals = figures.IN_TRAINING
    early = _over_best(runs, rivals, "auc50")
    return [
        Claim(
            "Reaches 95 % of its end in fewer rounds",
            "Table 4",
            mean_of(_rounds_saved(runs)),
            mean_of(_rounds_saved(four)).mean,
            unit="% of the rounds",
            **best,
        ),
        Claim(
            "Higher accuracy early on",
            "Table 4",
            effect(early),
            effect(_over_best(four, rivals, "auc50")).mean,
            **best,
        ),
        Claim(
            "Oscillates less",
            "4.3",
            effect(_rivals_mean_less_own(runs, "fall")),
            replicates=f"{_pairs(runs)}, the mean of four rivals",
            scale=scale,
        ),
    ]


# --- Table 5 ---


def ablations(parts: DataFrame, scale: str) -> list[Claim]:
    """Accuracy that GCFL has over itself without a part."""
    how: dict[str, Any] = {
        "replicates": _pairs(parts),
        "scale": f"{scale}, ζ = {figures.ZETA}",
    }
    out = [
        Claim(words, "4.4", _lead(parts, row), _printed_lead("5", row), **how)
        for row, words in ABLATIONS.items()
    ]
    out.append(most_essential(parts, **how))
    out.append(delayed_start())
    return out


def most_essential(parts: DataFrame, **how: Any) -> Claim:
    """Without the shield GCFL loses more than without the next important part."""
    others = [row for row in ABLATIONS if row != "w/o shielding"]
    sides = []
    for runs in (parts, figures.printed("5").assign(seed=0)):
        worst = _chosen(runs, others, "accuracy", largest=False)
        sides.append(_less(worst, runs, "w/o shielding", "accuracy"))
    ours, theirs = (effect(pair) for pair in sides)
    return Claim("The shield matters most", "4.4", ours, theirs.mean, **how)


def delayed_start() -> Claim:
    """Clustering after a quarter of the rounds against clustering at once."""
    import pandas as pd

    later = figures.recorded("sensitivity")
    later = later[later["row"] == "start after a quarter"]
    at_once = figures.recorded("table5")
    at_once = at_once[at_once["row"] == "No δ_init"]
    at_once = at_once[at_once["setting"] == "Non-IID"]
    runs = pd.concat([later, at_once])
    pair = tables.paired(
        runs, "row", "start after a quarter", "No δ_init", "accuracy", figures.PAIRS
    )
    paper = figures.printed("5").query("setting == 'Non-IID'")
    return Claim(
        "A delayed start helps",
        "4.4",
        effect(pair),
        100 * (_mean(paper, "GCFL") - _mean(paper, "No δ_init")),
        replicates=f"{pair.n} pairs of data set and seed, Non-IID",
        scale=figures.AS_SMALL[5],
    )


def number_of_clusters(parts: DataFrame, scale: str) -> list[Claim]:
    """Without the shield fewer clusters, at the ζ that gives the paper's number."""
    words = "Without the shield clusters collapse"
    crossed = figures.crossed()
    if crossed is None:
        ours = effect(_fewer_without_shield(parts))
        return [
            Claim(
                words,
                "4.4",
                reason="ζ, which the paper does not print, decides it: at ours, "
                f"{figures.ZETA}, there are {-ours.mean:.1f} more clusters without the "
                "shield, on the digits (Non-IID) from ζ = 0.3 on fewer; runs at the "
                "paper's number of clusters are still to come",
            )
        ]
    zeta = calibrated(crossed)
    runs = crossed[crossed["zeta"] == zeta]
    paper = figures.printed("5").assign(seed=0)
    return [
        Claim(
            words,
            "4.4",
            effect(_fewer_without_shield(runs)),
            _fewer_without_shield(paper).mean,
            unit="clusters",
            replicates=_pairs(runs),
            scale=f"{scale}, ζ = {zeta:g}: nearest to the paper's number of clusters",
        )
    ]


def calibrated(crossed: DataFrame) -> float:
    """The ζ whose number of clusters is nearest to the paper's, mean over cells."""
    whole = crossed[crossed["row"] == "GCFL"]
    ours = whole.groupby("zeta")["clusters"].mean()
    paper = figures.printed("5")
    theirs = paper.loc[paper["row"] == "GCFL", "clusters"].mean()
    return float((ours - theirs).abs().idxmin())


# --- what we cannot judge, and what we ask ---


def untestable() -> list[Claim]:
    """Claims without a number behind them, or beyond our runs."""
    return [
        Claim(
            "Clients of a cluster differ by less than ξ_intra, others by more",
            "3.1",
            reason="neither the difference Δ nor the two ξ are defined; clusters made "
            "of linked pairs cannot promise it, as the digits show",
        ),
        Claim(
            "Post-training clustering beats in-training",
            "4.3",
            reason="in the paper it has extra training, of unknown length; here every "
            "method has the same rounds (our own question below)",
        ),
        Claim(
            "A good balance of accuracy and complexity",
            "4.3",
            reason="no measure of complexity is named",
        ),
        Claim(
            "Clusters during training keep privacy",
            "1, 2",
            reason="no attack or bound is given; locations are model outputs on a "
            "probe set, which the server computes from the models it gets anyway",
        ),
    ]


def our_questions(runs: DataFrame, parts: DataFrame, scale: str) -> list[Claim]:
    """Controls that the paper does not have."""
    how: dict[str, Any] = {"scale": scale, "ours": True}
    out = []
    for rival, words in {
        "LocalOnly": "Ahead of training alone",
        "Random clusters": "Ahead of random clusters",
        "Oracle clusters": "Ahead of the true groups",
    }.items():
        lead = _lead(runs, rival)
        out.append(Claim(words, "ours", lead, replicates=_pairs(runs), **how))
    skewed = priors.beside(runs[runs["setting"] == "Non-IID"])
    out.append(
        Claim(
            "Ahead of the majority class, Non-IID",
            "ours",
            _lead(skewed, priors.ROW),
            replicates=_pairs(skewed),
            **how,
        )
    )
    for setting in figures.UNLIKE:
        some = runs[runs["setting"] == setting]
        for rival, words in {
            "FedAvg": "Clusters beat one model",
            "LocalOnly": "Ahead of training alone",
        }.items():
            out.append(
                Claim(
                    f"{words}, balanced accuracy, {setting}",
                    "ours",
                    _lead(some, rival, "balanced_accuracy"),
                    replicates=_pairs(some),
                    **how,
                )
            )
    normalised = _lead(parts, "w/o symmetric normalization", "balanced_accuracy")
    fewer = _fewer_without_shield(parts)
    own = parts.loc[parts["row"] == "GCFL", "clusters"]
    categories = _by_category(runs)
    timed = figures.unlike(figures.timed())
    early = effect(_rivals_mean_less_own(timed, "auc50"))
    out += [
        Claim(
            "Normalisation helps, balanced accuracy",
            "ours",
            normalised,
            replicates=_pairs(parts),
            **how,
        ),
        Claim(
            f"Fewer clusters without the shield at ζ = {figures.ZETA}",
            "ours",
            effect(fewer),
            unit="clusters",
            replicates=_pairs(parts),
            **how,
        ),
        Claim(
            "The number of clusters is within two of five",
            "ours",
            mean_of(2 - (own - GROUPS).abs()),
            unit="clusters nearer than 2",
            replicates=f"{len(own)} runs",
            **how,
        ),
        Claim(
            "Higher accuracy early on than the mean of four rivals",
            "ours",
            Interval(-early.mean, -early.high, -early.low),
            replicates=_pairs(timed),
            **how | {"scale": f"{figures.AS_SMALL[5]}, clustering from the start"},
        ),
        Claim(
            "Post-training beats in-training in the same rounds",
            "ours",
            effect(categories),
            replicates=_pairs(runs),
            **how,
        ),
    ]
    return out


# --- effects ---


def _pairs(runs: DataFrame) -> str:
    seeds = runs["seed"].nunique()
    cells = len(runs.drop_duplicates(figures.CELL))
    return f"{cells} cells × {seeds} seeds"


def _lead(runs: DataFrame, rival: str, value: str = "accuracy") -> Interval:
    pair = tables.paired(runs, "row", "GCFL", rival, value, figures.PAIRS, percent=True)
    return effect(pair)


def _mean(runs: DataFrame, row: str) -> float:
    return float(runs.loc[runs["row"] == row, "accuracy"].mean())


def _printed_lead(table: str, rival: str, scale: str | None = None) -> float:
    """The paper's mean lead over a row in its non-IID cells, in points."""
    paper = figures.unlike(figures.printed(table))
    if scale is not None:
        paper = paper[paper["scale"] == scale]
    return 100 * (_mean(paper, "GCFL") - _mean(paper, rival))


def _best(runs: DataFrame, words: str, table: str, scale: str) -> Claim:
    """GCFL against the best rival of each cell that trains no more client models."""
    rivals = figures.same_budget(runs)
    paper = figures.unlike(figures.printed(table)).assign(seed=0)
    paper = paper[paper["scale"].isin(runs["scale"])]
    return Claim(
        words,
        f"Table {table}",
        effect(_over_best(runs, rivals, "accuracy")),
        effect(_over_best(paper, rivals, "accuracy")).mean,
        replicates=f"{_pairs(runs)}; best of {len(rivals)} rivals with no more client "
        "updates, chosen on the other seeds",
        scale=scale,
    )


def _over_best(
    runs: DataFrame, rivals: Sequence[str], value: str, largest: bool = True
) -> tables.Pair:
    """GCFL less the best rival of each cell."""
    best = _chosen(runs, rivals, value, largest)
    own = runs[runs["row"] == "GCFL"]
    return _less(own.assign(row="chosen"), best.assign(row="best"), "best", value)


def _chosen(
    runs: DataFrame, rows: Sequence[str], value: str, largest: bool = True
) -> DataFrame:
    """For each cell and seed the run of the row that is best on the other seeds.

    Where there is one seed only, as in print, the best on that one.
    """
    import pandas as pd

    picked = []
    for _, own in runs[runs["row"].isin(rows)].groupby(figures.CELL):
        level = own.pivot_table(value, "seed", "row")
        for seed in level.index:
            others = level.drop(index=seed) if len(level) > 1 else level
            means = others.mean()
            row = means.idxmax() if largest else means.idxmin()
            picked.append(own[(own["seed"] == seed) & (own["row"] == row)])
    return pd.concat(picked).assign(row="chosen")


def _less(first: DataFrame, runs: DataFrame, row: str, value: str) -> tables.Pair:
    """The rows called "chosen" of one frame less a row of another."""
    import pandas as pd

    both = pd.concat([first, runs[runs["row"] == row]])
    return tables.paired(both, "row", "chosen", row, value, figures.PAIRS, percent=True)


def _fewer_without_shield(runs: DataFrame) -> tables.Pair:
    return tables.paired(
        runs, "row", "GCFL", "w/o shielding", "clusters", figures.PAIRS
    )


def _loses_less(small: DataFrame, large: DataFrame) -> tables.Pair:
    """GCFL's lead over FedAvg at the large scale less that at the small one, Non-IID.

    This is FedAvg's fall from small to large less GCFL's.
    """
    import pandas as pd

    runs = pd.concat([small, large])
    runs = runs[runs["scale"].isin(["small", "large"]) & (runs["setting"] == "Non-IID")]
    by = ["dataset", "seed", "scale"]
    lead = tables.paired(runs, "row", "GCFL", "FedAvg", "accuracy", by).differences
    return tables.paired(
        lead, "scale", "large", "small", "difference", by[:2], percent=True
    )


def _by_category(runs: DataFrame) -> tables.Pair:
    """Post-training methods less in-training ones, means of rows, in every pair."""
    kinds = runs["row"].map(CATEGORY)
    some = runs[(runs["row"] != "GCFL") & kinds.isin(["post-training", "in-training"])]
    some = some.assign(kind=kinds)
    means = some.groupby([*figures.PAIRS, "kind"], as_index=False)["accuracy"].mean()
    return tables.paired(
        means, "kind", "post-training", "in-training", "accuracy", figures.PAIRS
    )


def _rounds_saved(runs: DataFrame) -> list[float]:
    """By how many percent GCFL's T0.95 is shorter than the shortest rival's."""
    best = _chosen(runs, figures.IN_TRAINING, "t95", largest=False)
    own = runs[runs["row"] == "GCFL"].set_index(figures.PAIRS)["t95"]
    rival = best.set_index(figures.PAIRS)["t95"].reindex(own.index)
    return (100 * (1 - own / rival)).tolist()


def _rivals_mean_less_own(runs: DataFrame, value: str) -> tables.Pair:
    """The mean of Table 4's four rivals less GCFL."""
    import pandas as pd

    rivals = runs[runs["row"].isin(figures.IN_TRAINING)]
    mean = rivals.groupby(figures.PAIRS, as_index=False)[value].mean()
    both = pd.concat([runs[runs["row"] == "GCFL"], mean.assign(row="rivals")])
    return tables.paired(
        both, "row", "rivals", "GCFL", value, figures.PAIRS, percent=True
    )


def by_local_work(longer: Iterable[Claim]) -> tables.Table:
    """Claims of 25 steps a round whose verdict is another one with 5."""
    shorter = {claim.statement: claim.verdict for claim in claims(steps=5)}
    rows = [
        (claim.statement, claim.verdict, shorter[claim.statement])
        for claim in longer
        if claim.verdict != shorter[claim.statement]
    ]
    heads = ("claim", "25 steps a round", "5 steps")
    return tables.words(heads, rows, "Verdicts that depend on local training.")
