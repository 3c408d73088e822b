"""What GCFL's paper says, judged on our runs by the one rule of `fednb.claims`.

Effects are differences between two rows of the same data set, setting and seed; the
interval is that of their mean over the paper's non-IID cells. The pairs of a cell share
its mean effect, which makes the interval wider, not narrower. Where nothing else is
said, clients take 25 steps between two clusterings; ``claims(steps=5)`` judges the same
on shorter local training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import tables
from ...claims import Claim, Interval, effect, mean_of
from . import figures
from .tasks import CATEGORY, GROUPS

if TYPE_CHECKING:
    from pandas import DataFrame

ABLATIONS = {  # Table 5's row: what it says
    "Massless": "Mass helps",
    "Param-space": "Locations help, against parameters",
    "w/o symmetric normalization": "Normalisation helps",
    "w/o shielding": "The shield helps",
}


def claims(steps: int = 25) -> list[Claim]:
    """All claims, in the order of the paper, then questions of our own."""
    runs = figures.unlike(figures.small_scale(steps))
    parts = figures.parts(steps)
    scale = {"scale": figures.AS_SMALL[steps]}
    return [
        *accuracies(runs, **scale),
        *larger_federations(),
        *convergence(),
        *ablations(parts, **scale),
        *number_of_clusters(parts, **scale),
        *untestable(),
        *our_questions(runs, **scale),
    ]


# --- Table 2 and section 4.3 ---


def accuracies(runs: DataFrame, scale: str) -> list[Claim]:
    """GCFL against its rivals where clients differ, and against one model if not."""
    how = {"replicates": _pairs(runs), "scale": scale}
    out = [
        Claim(
            "Best where clients differ",
            "Table 2",
            _over_best_rival(runs),
            _printed_over_best_rival("2"),
            **how,
        )
    ]
    for rival, words in {
        "FedAvg": "Clusters beat one model",
        "FL+HC": "Ahead of FL+HC, the second best",
        "FedCCFA": "Ahead of FedCCFA",
    }.items():
        lead = _lead(runs, rival)
        out.append(Claim(words, "4.3", lead, _printed_lead("2", rival), **how))
    out.append(gain_grows(runs, **how))
    out.append(post_training_is_ahead(runs, **how))
    out.append(like_one_model(scale))
    return out


def gain_grows(runs: DataFrame, **how: str) -> Claim:
    """The lead over FedCCFA is larger under Non-IID than under Non-IID-ES."""
    lead = tables.paired(runs, "row", "GCFL", "FedCCFA", "accuracy", figures.PAIRS)
    table = lead.differences.rename(columns={"difference": "lead"})
    pair = tables.paired(
        table, "setting", "Non-IID", "Non-IID-ES", "lead", ["dataset", "seed"]
    )
    return Claim(
        "The gain grows with heterogeneity",
        "4.3",
        effect(pair._replace(points=True)),
        2.66 - 1.13,
        **how | {"replicates": f"{pair.n} pairs of data set and seed"},
    )


def post_training_is_ahead(runs: DataFrame, **how: str) -> Claim:
    """CFL and FL+HC against the in-training methods, GCFL left out, cell by cell."""
    ours = _by_category(runs)
    paper = figures.unlike(figures.printed("2")).assign(seed=0)
    theirs = _by_category(paper)
    return Claim(
        "Post-training clustering beats in-training",
        "4.3",
        effect(ours),
        effect(theirs).mean,
        **how | {"replicates": f"{ours.n} pairs of data set, setting and seed"},
    )


def like_one_model(scale: str) -> Claim:
    """Under IID GCFL loses no more than two points to FedAvg (our line)."""
    steps = 25 if "25" in scale else 5
    runs = figures.small_scale(steps)
    pair = tables.paired(
        runs[runs["setting"] == "IID"],
        "row",
        "GCFL",
        "FedAvg",
        "accuracy",
        figures.PAIRS,
    )
    return Claim(
        "Like one model where clients are alike",
        "4.3",
        effect(pair),
        threshold=-2.0,
        replicates=f"{pair.n} pairs of data set and seed",
        scale=scale,
    )


# --- Table 3 ---


def larger_federations() -> list[Claim]:
    """Table 3: partial participation, 5 steps a round."""
    runs = figures.unlike(figures.larger())
    how = {
        "replicates": f"{_pairs(runs)}, two scales",
        "scale": "32 and 60 clients, a quarter and a tenth a round, 5 steps",
    }
    lead = _lead(runs, "FedAvg", by=[*figures.PAIRS, "scale"])
    less = _loses_less(figures.both_datasets(), runs)
    paper = [figures.printed(table).assign(seed=0) for table in "23"]
    return [
        Claim(
            "Best in larger federations",
            "Table 3",
            _over_best_rival(runs, by=[*figures.PAIRS, "scale"]),
            _printed_over_best_rival("3"),
            **how,
        ),
        Claim(
            "Clusters beat one model there, too",
            "Table 3",
            lead,
            _printed_lead("3", "FedAvg"),
            **how,
        ),
        Claim(
            "Loses less than FedAvg from small to large",
            "4.3",
            effect(less),
            effect(_loses_less(*paper)).mean,
            replicates=f"{less.n} pairs of data set and seed, Non-IID",
            scale=how["scale"],
        ),
        steadier_over_seeds(runs, how["scale"]),
    ]


def steadier_over_seeds(runs: DataFrame, scale: str) -> Claim:
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
        scale=scale,
    )


# --- Table 4 and Figure 2 ---


def convergence() -> list[Claim]:
    """Rounds to 95 % of the end, early accuracy, oscillation: against Table 4's
    four.
    """
    runs = figures.unlike(figures.timed())
    four = figures.printed("4")
    scale = "20 clients, 20 rounds of 5 steps, clustering from the start"
    how = {"replicates": f"{_pairs(runs)}, mean of four rivals", "scale": scale}
    ours = {name: _rivals_mean(runs, name) for name in ("t95", "auc50", "fall")}
    theirs = {
        name: _rivals_mean(four.assign(seed=0), name) for name in ("t95", "auc50")
    }
    return [
        Claim(
            "Reaches 95 % of its end in fewer rounds",
            "Table 4",
            _scaled(ours["t95"], -1),
            -theirs["t95"].mean * 20 / 100,  # of 100 rounds, as ours are of 20
            unit="rounds",
            **how,
        ),
        Claim(
            "Higher accuracy early on",
            "Table 4",
            _scaled(ours["auc50"], 100),
            100 * theirs["auc50"].mean,
            **how,
        ),
        Claim("Oscillates less", "4.3", _scaled(ours["fall"], -100), **how),
    ]


# --- Table 5 ---


def ablations(parts: DataFrame, scale: str) -> list[Claim]:
    """Accuracy that GCFL has over itself without a part."""
    how = {"replicates": _pairs(parts), "scale": scale}
    out = [
        Claim(words, "4.4", _lead(parts, row), _printed_lead("5", row), **how)
        for row, words in ABLATIONS.items()
    ]
    out.append(most_essential(parts, **how))
    out.append(delayed_start())
    return out


def most_essential(parts: DataFrame, **how: str) -> Claim:
    """Without the shield GCFL loses more than without any other part."""
    others = [row for row in ABLATIONS if row != "w/o shielding"]
    worst = min(others, key=lambda row: _mean(parts, row))
    pair = tables.paired(
        parts, "row", worst, "w/o shielding", "accuracy", figures.PAIRS
    )
    paper = figures.printed("5")
    theirs = min(_mean(paper, row) for row in others) - _mean(paper, "w/o shielding")
    return Claim("The shield matters most", "4.4", effect(pair), 100 * theirs, **how)


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
    """How many clusters there are, and how many fewer without the shield."""
    how = {"replicates": _pairs(parts), "scale": f"{scale}, ζ = 0.01"}
    fewer = tables.paired(
        parts, "row", "GCFL", "w/o shielding", "clusters", figures.PAIRS
    )
    paper = figures.printed("5").assign(seed=0)
    theirs = tables.paired(
        paper, "row", "GCFL", "w/o shielding", "clusters", figures.PAIRS
    )
    return [
        Claim(
            "Without the shield clusters collapse",
            "4.4",
            effect(fewer),
            theirs.mean,
            unit="clusters",
            **how,
        ),
        fitting_number(parts, **how),
    ]


def fitting_number(parts: DataFrame, **how: str) -> Claim:
    """The number of clusters is within two of the five groups (our line)."""
    own = parts.loc[parts["row"] == "GCFL", "clusters"]
    return Claim(
        "Finds about the right number of clusters",
        "Table 5",
        mean_of(2 - (own - GROUPS).abs()),
        unit="clusters nearer than 2",
        **how | {"replicates": f"{len(own)} runs"},
    )


# --- what we cannot judge, and what we ask ---


def untestable() -> list[Claim]:
    """Claims without a number behind them, or beyond our runs."""
    return [
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


def our_questions(runs: DataFrame, scale: str) -> list[Claim]:
    """Controls that the paper does not have."""
    how = {"replicates": _pairs(runs), "scale": scale, "ours": True}
    out = [
        Claim("Ahead of training alone", "ours", _lead(runs, "LocalOnly"), **how),
        Claim(
            "Ahead of random clusters", "ours", _lead(runs, "Random clusters"), **how
        ),
        Claim(
            "Ahead of the true groups", "ours", _lead(runs, "Oracle clusters"), **how
        ),
        Claim(
            "Clusters beat one model by balanced accuracy",
            "ours",
            _lead(runs, "FedAvg", "balanced_accuracy"),
            **how,
        ),
    ]
    for setting in figures.UNLIKE:
        some = runs[runs["setting"] == setting]
        out.append(
            Claim(
                f"Ahead of training alone, balanced accuracy, {setting}",
                "ours",
                _lead(some, "LocalOnly", "balanced_accuracy"),
                **how | {"replicates": _pairs(some)},
            )
        )
    return out


# --- effects ---


def _pairs(runs: DataFrame) -> str:
    seeds = runs["seed"].nunique()
    cells = len(runs.drop_duplicates(figures.CELL))
    return f"{cells} cells × {seeds} seeds"


def _lead(
    runs: DataFrame,
    rival: str,
    value: str = "accuracy",
    by: list[str] = figures.PAIRS,
) -> Interval:
    return effect(tables.paired(runs, "row", "GCFL", rival, value, by, percent=True))


def _mean(runs: DataFrame, row: str) -> float:
    return float(runs.loc[runs["row"] == row, "accuracy"].mean())


def _printed_lead(table: str, rival: str) -> float:
    """The paper's mean lead over a row in its non-IID cells, in points."""
    paper = figures.unlike(figures.printed(table))
    return 100 * (_mean(paper, "GCFL") - _mean(paper, rival))


def _over_best_rival(runs: DataFrame, by: list[str] = figures.PAIRS) -> Interval:
    """GCFL less the rival of the best mean over seeds, chosen anew in every cell."""
    cells = [name for name in by if name != "seed"]
    rivals = runs[runs["row"].isin(figures.RIVALS)]
    means = rivals.groupby([*cells, "row"])["accuracy"].mean()
    best = means.groupby(level=cells).idxmax().tolist()
    chosen = {place[:-1]: place[-1] for place in best}
    of_cell = [chosen[tuple(line)] for line in runs[cells].itertuples(index=False)]
    is_best = runs["row"] == of_cell
    import pandas as pd

    pair = [runs[runs["row"] == "GCFL"], runs[is_best].assign(row="best rival")]
    return _lead(pd.concat(pair), "best rival", by=by)


def _printed_over_best_rival(table: str) -> float:
    paper = figures.unlike(figures.printed(table)).assign(seed=0)
    return _over_best_rival(paper, by=[*figures.PAIRS, "scale"]).mean


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


def _rivals_mean(runs: DataFrame, value: str) -> Interval:
    """GCFL less the mean of Table 4's four rivals, in the metric's own unit."""
    import pandas as pd

    rivals = runs[runs["row"].isin(figures.IN_TRAINING)]
    mean = rivals.groupby(figures.PAIRS, as_index=False)[value].mean()
    both = pd.concat([runs[runs["row"] == "GCFL"], mean.assign(row="rivals")])
    pair = tables.paired(both, "row", "GCFL", "rivals", value, figures.PAIRS)
    return effect(pair._replace(points=False))


def _scaled(interval: Interval, factor: float) -> Interval:
    """An interval times a number; a negative one turns it round."""
    ends = sorted([factor * interval.low, factor * interval.high])
    return Interval(factor * interval.mean, *ends)


def by_local_work() -> DataFrame:
    """Each claim's verdict with 25 and with 5 steps between two clusterings."""
    import pandas as pd

    longer, shorter = (
        {claim.statement: claim.verdict for claim in claims(steps)} for steps in (25, 5)
    )
    table = pd.DataFrame({"25 steps": longer, "5 steps": shorter})
    return table[table["25 steps"] != table["5 steps"]]
