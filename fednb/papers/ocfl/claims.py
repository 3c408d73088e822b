"""What OCFL's paper says, judged on our runs by the one rule of `fednb.claims`.

A scenario is a data set with a number of clients and a split. Seeds are averaged first,
and the interval is over scenarios. A claim's ``printed`` effect is that of the authors'
archived runs, at the end of a run. It is called *archive* on the page: the paper prints
means over rounds.

One rule says where there is such an effect: where the archive measured what we measure.
Two functions keep it for all claims, `archived_lead` and `archived_level`. They take

- the data sets whose arrows hold parameters only, as ours do (``GREY``): those of the
  ResNet34 data sets held BatchNorm's counters, too. `by_network` shows both kinds;
- rows of the same name: BCL and affinity propagation got the wrong matrix there, so the
  archive has them *as released* only;
- scores of the same kind (``SAME``): not GF1 after averaging, nor F1 over the client's
  own classes, nor the areas of explanations, see `areas`.

There are runs at two scales, see `short_runs` and `long_runs`. Claims are judged on the
long ones, which was settled before these were run; `at_two_scales` shows both side by
side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ... import tables
from ...claims import (
    MARKS,
    VERDICTS,
    Claim,
    Interval,
    counted,
    effect,
    forest,
    left_open,
    mean_of,
)
from . import outcomes
from .outcomes import SCENARIO

if TYPE_CHECKING:
    from pandas import DataFrame, Series

HDB = "OCFL-HDB"
DENSE = [HDB, "OCFL-MS"]
RECOVERED = 0.8  # our line for "recovers", in the ARI at the end of a run
SLIGHTLY = -0.05  # our line for what "as good as" and "slightly lower" may cost
SPLIT = ["data", "overlap", "balance"]
GREY = ["MNIST", "FMNIST"]  # the data sets whose networks have no BatchNorm
# our scores, and the archive's columns that hold the same
SAME = {
    "ari": "ari",
    "pf1_union": "final_pf1",
    "accuracy": "final_accuracy",
    "gf1_before": "final_gf1",
    "fires": "printed_round",
}
# how the page names scores
UNITS = {
    "ari": "ARI",
    "pf1": "PF1, own classes",
    "pf1_union": "PF1 as released",
    "gf1": "GF1",
    "gf1_before": "GF1 before averaging",
}


# what the chapter's text quotes: the gain in F1 over FedAvg, as released and over the
# client's own classes; the clusterers; questions of ours about the moment; explanations
GAIN = "Personal models are better than FedAvg’s"
GAIN_ON_OWN_CLASSES = f"{GAIN}, F1 over the client’s own classes"
AT_TRIGGER = "HDBSCAN recovers the groups at the trigger"
OVER_KMEANS = "HDBSCAN groups better than k-means that is told the number"
TRIGGER_NEAR_BEST = "The trigger is within 0.05 of the best round"
FIRST_NEAR_BEST = "Round 1 is within 0.05 of the best round"
BEATS_FIRST = "Splitting at the trigger beats round 1"
BEFORE_BEATS = "The matrix of the round before the trigger is better than that at it"
BEFORE_LATE = "The round before is better, too, if the trigger fires after round 2"
BEFORE_PERSONAL = "The matrix of the round before gives better personal models"
FALLS_FIRST = (
    "T falls first on MNIST and CIFAR-10, rises at once on FMNIST and PathMNIST"
)
BETTER_MAPS = "Personal models give more meaningful explanations"
MAPS_ALONE = "Explanations are better than those of training alone"
BEFORE = "OCFL-HDB, matrix before"  # the arm that asks it
SHORT = "150 images a client, 12 rounds of 6 steps, LeNet-5"
LONG = "400 images a client, 12 rounds of 3 epochs, LeNet-5"


class Evidence(TypedDict):
    """What a claim says of the runs behind it."""

    replicates: str  # what its interval is over
    scale: str


class Runs(NamedTuple):
    """The runs that claims are judged on, and those of the authors that count."""

    looks: DataFrame  # every clusterer in every round
    hits: DataFrame  # every clusterer at the trigger
    arms: DataFrame  # every method at the end
    theirs: DataFrame  # the archive's runs of ``GREY``, in the scenarios of ``looks``
    scale: str
    bcl: str  # how FL+HC's threshold was chosen

    def archived(self, frame: DataFrame) -> DataFrame:
        """The archive's runs in the scenarios of a frame."""
        return self.theirs.merge(frame[SCENARIO].drop_duplicates(), on=SCENARIO)

    @property
    def about(self) -> str:
        """Data sets, seeds and scale in words, for a caption."""
        names = ", ".join(self.looks["data"].unique())
        return f"{names}; {how_many_seeds(self.looks)}; {self.scale}"

    def words(self, frame: DataFrame) -> Evidence:
        """What the interval of a frame is over, and the scale of the runs."""
        scenarios = frame.groupby(SCENARIO).ngroups
        over = f"{scenarios} scenarios, {how_many_seeds(self.looks)} averaged"
        return {"replicates": over, "scale": self.scale}


def how_many_seeds(frame: DataFrame) -> str:
    """The number of seeds in words."""
    count = frame["seed"].nunique()
    return {3: "three seeds"}.get(count, f"{count} seeds")


def short_runs() -> Runs:
    """The laptop's: six steps a round, all data sets."""
    bcl = "BCL’s threshold 0.4, not tuned"
    return _with_archive(outcomes.looks(), outcomes.all_arms(), SHORT, bcl)


def long_runs() -> Runs:
    """Those with three epochs a round, on which claims are judged."""
    bcl = "BCL’s threshold chosen on other seeds"
    return _with_archive(outcomes.long_looks(), outcomes.long_arms(), LONG, bcl)


def _with_archive(looks: DataFrame, arms: DataFrame, scale: str, bcl: str) -> Runs:
    theirs = outcomes.kept_archive()["runs"]
    theirs = theirs[theirs["data"].isin(GREY)]
    theirs = theirs.merge(looks[SCENARIO].drop_duplicates(), on=SCENARIO)
    return Runs(looks, outcomes.at_trigger(looks), arms, theirs, scale, bcl)


# --- the archive, where it measured what we measure ---


def archived_lead(
    mine: Runs, frame: DataFrame, a: str, b: str, value: str
) -> float | None:
    """The archive's lead of one row over another in a score of ours.

    In the scenarios of a frame of ours. None if the archive has not both rows, or not
    this score: the rule of all claims, see above.
    """
    theirs = mine.archived(frame)
    if value not in SAME or not {a, b} <= set(theirs["row"]):
        return None
    return _lead(theirs, a, b, SAME[value]).mean


def archived_level(
    mine: Runs, frame: DataFrame, rows: list[str], value: str = "ari"
) -> float | None:
    """The archive's mean of a score of ours over some rows, by the same rule."""
    theirs = mine.archived(frame)
    if value not in SAME or not set(rows) <= set(theirs["row"]):
        return None
    return float(_by_scenario(theirs, rows, SAME[value]).mean())


def claims() -> list[Claim]:
    """All claims, in the order of the paper, then questions of our own."""
    mine = long_runs()
    return [*judged_on(mine), *our_questions(mine)]


def judged_on(mine: Runs) -> list[Claim]:
    """The paper's claims on some runs."""
    return [
        *against_rivals(mine),
        *clusterers(mine),
        *general_knowledge(mine),
        *temperature(mine),
        *explanations(mine),
        *says_the_right_class(mine),
        *untestable(),
    ]


def headlines(judged: list[Claim]) -> list[Claim]:
    """The claims of the first screen: those that stand in the paper's introduction."""
    return [claim for claim in judged if "1" in claim.where.split(", ")]


# --- how the page shows them ---


def bars(claims: list[Claim], caption: str) -> tables.Table:
    """`fednb.claims.forest`, its diamonds named after the archive."""
    return forest(claims, caption, theirs="archive")


def table(claims: list[Claim], caption: str) -> tables.Table:
    """Claims with our effects, their lines, the archive's effects and the verdicts.

    They are grouped by verdict, each group in the order of the claims. What is said of
    a claim's runs beyond the scale of the first stands beside its line.
    """
    usual = claims[0].scale
    heads = ["claim", "verdict", "our effect (95 % interval)", "line and archive"]
    heads += ["section; over"]
    rows = []
    for claim in sorted(claims, key=lambda claim: VERDICTS.index(claim.verdict)):
        verdict = f"{MARKS[claim.verdict]} {claim.verdict}"
        cells = [claim.reason, "–", claim.where]
        if claim.interval is not None:
            yardsticks = f"line {claim.threshold:g}"
            if claim.printed is not None:
                yardsticks += f"; archive {_signed(claim.printed)}"
            over, _, _ = claim.replicates.partition(",")
            yardsticks += claim.scale.removeprefix(usual)
            cells = [_effect(claim), yardsticks]
            cells += [f"{claim.where}; {over}"]
        rows.append([claim.statement, verdict, *cells])
    return tables.words(heads, rows, f"{caption}: {counted(claims)}.")


def at_two_scales(caption: str) -> tables.Table:
    """Every claim on the short runs and beside it on the long ones."""
    sides = []
    for mine in (short_runs(), long_runs()):
        found = [*judged_on(mine), *our_questions(mine)]
        sides.append({claim.statement: claim for claim in found})
    short_claims, long_claims = sides
    rows = []
    for statement, claim in long_claims.items():
        if claim.interval is not None:
            before = _said(short_claims.get(statement))
            verdict, effect_ = _said(claim)
            rows.append([statement, *before, effect_, verdict])
    heads = ["claim or question", "short runs", "effect, short runs"]
    heads += ["effect, long runs", "long runs"]
    return tables.words(heads, rows, caption)


def _said(claim: Claim | None) -> tuple[str, str]:
    """A claim's verdict, and its effect or why there is none."""
    if claim is None:
        return "–", "not asked"
    words = f"{MARKS[claim.verdict]} {claim.verdict}"
    if claim.interval is None:
        return words, claim.reason
    return words, _effect(claim)


def _effect(claim: Claim) -> str:
    """Our effect with its unit and its interval, if there is one."""
    assert claim.interval is not None
    mean, low, high = claim.interval
    words = f"{_signed(mean)} {claim.unit}"
    if low <= high:  # not for nan
        words += f" ({_signed(low)} to {_signed(high)})"
    return words


def _signed(x: float) -> str:
    """A number with its sign: two decimals, three for a small one."""
    return f"{x:+.2f}" if abs(x) >= 0.1 else f"{x:+.3f}"


def by_network() -> DataFrame:
    """Effects of the archive by what its networks are, beside those of our short runs.

    On MNIST and Fashion-MNIST updates hold parameters only; ResNet34's hold
    BatchNorm's statistics and counters, too. Lines "over all rounds" are the paper's
    own measure, which our records do not have.
    """
    import pandas as pd

    mine = short_runs()
    kept = outcomes.kept_archive()
    whole = kept["runs"].fillna({"printed_rand": 0.0})  # a dash: no clusters
    same = whole.merge(mine.arms[SCENARIO].drop_duplicates(), on=SCENARIO)
    looked = mine.looks[mine.looks["row"] == HDB]

    def over(rival: str, value: str, frame: DataFrame) -> float:
        return _lead(frame, HDB, rival, value).mean

    lines: list[tuple[str, float, Callable[[DataFrame], float], DataFrame]] = [
        (
            "HDBSCAN minus SCL: ARI at the end",
            over("SCL", "ari", mine.arms),
            partial(over, "SCL", "ari"),
            same,
        ),
        (
            "the same over all rounds (Table 1)",
            nan,
            partial(over, "SCL", "printed_rand"),
            same,
        ),
        (
            "HDBSCAN minus SCL: PF1 at the end",
            over("SCL", "pf1_union", mine.arms),
            partial(over, "SCL", "final_pf1"),
            same,
        ),
        (
            "the same over all rounds (Figure 2)",
            nan,
            partial(over, "SCL", "pf1"),
            same,
        ),
        (
            "HDBSCAN minus k-means: ARI",
            over("OCFL-KM", "ari", mine.hits),
            partial(over, "OCFL-KM", "ari"),
            whole,
        ),
        (
            "other splits minus overlapping balanced: ARI",
            _other_splits_less_hardest(mine.hits).mean,
            lambda frame: _other_splits_less_hardest(frame).mean,
            whole,
        ),
        (
            "how often T falls first, by data set",
            falls_less_rises(looked).mean,
            lambda frame: falls_less_rises(frame).mean,
            kept["temperatures"],
        ),
    ]
    rows = {}
    for words, ours, effect_of, frame in lines:
        grey = frame["data"].isin(GREY)
        parts = [frame[grey], frame[~grey], frame]
        rows[words] = [ours, *map(effect_of, parts)]
    columns = ["ours, short", "MNIST, FMNIST"]
    columns += ["ResNet34 sets", "all"]
    found = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return found.rename_axis("effect")


# --- section 1, contribution 1: better than the state of the art ---


def against_rivals(mine: Runs) -> list[Claim]:
    """The headline: better clusters and better personal models than SCL and BCL.

    BCL is FL+HC with distances, as its authors mean it. The archive has it with
    similarities in their place.
    """
    how = mine.words(mine.arms)
    tuned: Evidence = {
        "replicates": how["replicates"],
        "scale": f"{mine.scale}; {mine.bcl}",
    }
    out = []
    for statement, rival, value, where, said in (
        ("Finds the groups better than SCL (CFL)", "SCL", "ari", "1, 4.6.1", how),
        ("Finds the groups better than BCL (FL+HC)", "BCL", "ari", "1, 4.6.1", tuned),
        ("Personal models are better than SCL’s", "SCL", "pf1_union", "1, 4.6.1", how),
        (
            "Personal models are better than BCL’s",
            "BCL",
            "pf1_union",
            "1, 4.6.1",
            tuned,
        ),
        (GAIN, "FedAvg", "pf1_union", "4.6.1", how),
    ):
        ours = _lead(mine.arms, HDB, rival, value)
        theirs = archived_lead(mine, mine.arms, HDB, rival, value)
        unit = UNITS[value]
        out.append(Claim(statement, where, ours, theirs, unit=unit, **said))
    return out


# --- section 4.6.1: clusters ---


def clusterers(mine: Runs) -> list[Claim]:
    """What each clusterer finds at the trigger, by the adjusted Rand index."""
    how = mine.words(mine.hits)
    out = []
    for row, words, where in (
        (HDB, AT_TRIGGER, "1, 4.6.1"),
        ("OCFL-MS", "Mean shift recovers the groups at the trigger", "4.6.1"),
    ):
        out.append(
            Claim(
                words,
                where,
                mean_of(_by_scenario(mine.hits, [row])),
                archived_level(mine, mine.hits, [row]),
                threshold=RECOVERED,
                unit="ARI",
                **how,
            )
        )
    full = ["OCFL-KM", *DENSE]
    out += [
        Claim(
            "Cosine distances of all parameters tell the groups apart",
            "1, 4.6.1",
            mean_of(_by_scenario(mine.hits, full)),
            archived_level(mine, mine.hits, full),
            threshold=RECOVERED,
            unit="ARI, mean of three clusterers",
            **how,
        ),
        Claim(
            OVER_KMEANS,
            "4.6.1",
            _lead(mine.hits, HDB, "OCFL-KM", "ari"),
            archived_lead(mine, mine.hits, HDB, "OCFL-KM", "ari"),
            unit="ARI",
            **how,
        ),
        Claim(
            "Affinity propagation clusters worse than HDBSCAN",
            "4.6.1",
            _lead(mine.hits, HDB, "OCFL-AFF", "ari"),
            archived_lead(mine, mine.hits, HDB, "OCFL-AFF", "ari"),
            unit="ARI",
            **how,
        ),
        hardest_split(mine),
    ]
    return out


def hardest_split(mine: Runs) -> Claim:
    """Overlapping and balanced groups are found worse than those of other splits."""
    pair = _other_splits_less_hardest(mine.hits)
    archived = mine.archived(mine.hits)
    theirs = None
    if len(archived):
        theirs = _other_splits_less_hardest(archived).mean
    return Claim(
        "Overlapping balanced is harder than other splits",
        "4.6.1",
        effect(pair),
        theirs,
        unit="ARI, other splits minus this one",
        replicates=f"{pair.n} cells, data set × clients; HDBSCAN and mean shift",
        scale=mine.scale,
    )


# --- section 4.6.1: general knowledge ---


def general_knowledge(mine: Runs) -> list[Claim]:
    """GF1 of the model that serves a client, on images of all classes (Definition 8).

    The archive has it of the models before averaging. An SCL that did not split is
    FedAvg, which by the paper keeps more: only runs in which the rival split count.
    """
    out = [
        Claim(
            "FedAvg keeps more general knowledge",
            "4.6.1",
            _lead(mine.arms, "FedAvg", HDB, "gf1"),
            archived_lead(mine, mine.arms, "FedAvg", HDB, "gf1"),
            unit=UNITS["gf1"],
            **mine.words(mine.arms),
        )
    ]
    for rival in ("SCL", "BCL"):
        words = f"General knowledge is at most slightly below {rival}’s"
        both = where_it_split(mine.arms, rival)
        out.append(
            Claim(
                words,
                "1, 4.6.1",
                _lead(both, HDB, rival, "gf1"),
                archived_lead(mine, both, HDB, rival, "gf1"),
                threshold=SLIGHTLY,
                unit=UNITS["gf1"],
                **mine.words(both),
            )
        )
    return out


# --- sections 3, 4.6.2, 6.3 and 7: the temperature ---


def temperature(mine: Runs) -> list[Claim]:
    """When the trigger fires, and whether that is a good moment."""
    own = mine.looks[mine.looks["row"] == HDB]
    how = mine.words(own)
    when = archived_level(mine, own, [HDB], "fires")
    fires = _splits(own).groupby(SCENARIO)["fires"].mean()
    early = Claim(
        "The split comes within the first three rounds",
        "7",
        mean_of(3.5 - fires),
        None if when is None else 3.5 - when,
        unit="rounds, 3.5 minus that of the split",
        **how,
    )
    calmer = Claim(
        "A moving average may help (w = 2)",
        "6.3",
        effect(_window_two_less_one(mine.looks)),
        unit="ARI",
        **how,
    )
    return [
        counted_in_rounds(early),
        right_by_round_three(mine, own),
        counted_in_rounds(first_rounds(mine, own)),
        stays_up(mine, own),
        calmer,
    ]


def counted_in_rounds(claim: Claim) -> Claim:
    """A claim about numbers of rounds: open, where by the rule alone it fails.

    The temperature follows training, not rounds, and a round of ours has a tenth of the
    paper's steps (on CIFAR-10, where its batches are larger, a fifth). So our runs can
    show that few rounds are enough, but not that more are needed at the paper's scale.
    We settled this after a look at the long runs.
    """
    if claim.verdict != "fails":
        return claim
    return left_open(claim, "a round here has a tenth to a fifth of the paper’s steps")


def right_by_round_three(mine: Runs, own: DataFrame) -> Claim:
    """What is found by the runs that split within the first three rounds."""
    words = "Splits made by round three find the groups"
    soon = outcomes.at_trigger(own)
    soon = soon[soon["round"] <= 3]
    archived = mine.theirs[mine.theirs["row"] == HDB]
    archived = archived[archived["printed_round"] <= 3]
    theirs = None
    if len(archived):
        theirs = float(archived["ari"].mean())
    return Claim(
        words,
        "7",
        mean_of(_by_scenario(soon, [HDB])),
        theirs,
        threshold=RECOVERED,
        unit="ARI",
        **mine.words(soon),
    )


def first_rounds(mine: Runs, own: DataFrame) -> Claim:
    """On some data sets T falls first, on others it rises at once."""
    pair = falls_less_rises(own)
    return Claim(
        FALLS_FIRST,
        "4.6.2",
        effect(pair),
        falls_less_rises(_archived_temperatures(own)).mean,
        unit="share of runs whose T falls first, the former minus the latter",
        replicates=f"{pair.n} cells, split × clients",
        scale=mine.scale,
    )


def _archived_temperatures(own: DataFrame) -> DataFrame:
    """The archive's temperatures that count, in the scenarios and rounds of a frame."""
    hot = outcomes.kept_archive()["temperatures"]
    hot = hot[hot["data"].isin(GREY) & (hot["round"] <= own["round"].max())]
    return hot.merge(own[SCENARIO].drop_duplicates(), on=SCENARIO)


def stays_up(mine: Runs, own: DataFrame) -> Claim:
    """On all data sets but CIFAR-10 T does not come down again."""
    words = "After the trigger the temperature stays up (all but CIFAR-10)"
    ours = own[(own["data"] != "CIFAR-10") & own["fires"].notna()]
    hot = _archived_temperatures(ours)
    rises = hot.groupby(SCENARIO)["temperature"].agg(outcomes.fires).rename("fires")
    gaps = lowest_afterwards(hot.join(rises, on=SCENARIO).assign(seed=0))
    return Claim(
        words,
        "4.6.2",
        mean_of(lowest_afterwards(ours)),
        sum(gaps) / len(gaps),
        unit="T, the least from the trigger on minus that before it",
        **mine.words(ours),
    )


def less_best(own: DataFrame, at: DataFrame) -> list[float]:
    """ARI of the lines ``at`` minus that of the best round, for each scenario.

    Seeds are averaged first; the best of all rounds is known only afterwards, so no
    rule can be above 0.
    """
    at = at.groupby(SCENARIO)["ari"].mean()
    by_round = own.groupby([*SCENARIO, "round"])["ari"].mean()
    best = by_round.groupby(level=SCENARIO).max()
    return (at - best[at.index]).tolist()


def lowest_afterwards(own: DataFrame) -> list[float]:
    """The least temperature from the trigger on, minus that of the round before it.

    One number for each scenario in which the trigger fires.
    """
    import pandas as pd

    gaps = []
    for _, run in own.groupby([*SCENARIO, "seed"]):
        fires = run["fires"].iloc[0]
        if fires == fires:  # it fired
            before = run.loc[run["round"] == fires - 1, "temperature"].iloc[0]
            later = run.loc[run["round"] >= fires, "temperature"].min()
            gaps.append((*run[SCENARIO].iloc[0], later - before))
    table = pd.DataFrame(gaps, columns=[*SCENARIO, "gap"])
    return table.groupby(SCENARIO)["gap"].mean().tolist()


# --- section 5: explanations ---


def explanations(mine: Runs) -> list[Claim]:
    """Whether personal models explain better.

    Areas under insertion and deletion curves both grow with a model's confidence.
    Those of curves that are normalised per image do not. Only the long runs have them.
    """
    arms = mine.arms
    if "insertion_normalised" not in arms:
        reason = "both areas grow with confidence, and these runs kept no curves"
        return [Claim(BETTER_MAPS, "5.1, 7", reason=reason)]
    arms = arms.assign(maps=arms["insertion_normalised"] - arms["deletion_normalised"])
    how = mine.words(arms)
    unit = "insertion minus deletion, normalised per image"
    ours = _lead(arms, HDB, "FedAvg", "maps")
    claim = Claim(BETTER_MAPS, "5.1, 7", ours, unit=unit, **how)
    alone = _lead(arms, HDB, "LocalOnly", "maps")
    question = Claim(MAPS_ALONE, "ours", alone, unit=unit, ours=True, **how)
    return [claim, question]


def areas(mine: Runs) -> list[Claim]:
    """The areas of section 5.1 as they are, on images of a model's own clients.

    Ours are those of the true class. The archive's are not, see `unseen_classes`.
    """
    few = mine.arms[mine.arms["clients"] == 15]
    few = few.assign(better=few["insertion"] - few["deletion"])
    out = []
    for value, first, second, words, unit in (
        ("insertion", HDB, "FedAvg", "Insertion areas are larger", "OCFL − FedAvg"),
        ("deletion", "FedAvg", HDB, "Deletion areas are smaller", "FedAvg − OCFL"),
        (
            "better",
            HDB,
            "FedAvg",
            "Insertion minus deletion, which grows with confidence, is larger",
            "OCFL − FedAvg",
        ),
    ):
        ours = _lead(few, first, second, value, SPLIT)
        how = mine.words(few)
        unit = f"area, {unit}"
        out.append(Claim(words, "ours", ours, unit=unit, ours=True, **how))
    return out


def unseen_classes() -> Series:
    """The archive's insertion areas on images of classes that a model's clients lack.

    Images of other clusters, for HDBSCAN on MNIST and Fashion-MNIST, without overlap:
    there the archived clusters are the hidden groups, which have no class in common,
    and they have trained apart since the first rounds. So areas of the true class would
    be near 0.
    """
    areas = outcomes.kept_archive()["explanations"]
    without = areas["data"].isin(GREY) & (areas["overlap"] == "non-overlapping")
    chosen = areas[without & (areas["row"] == HDB) & (areas["mode"] == "out")]
    return chosen.set_index(["data", "balance"])["insertion"]


def says_the_right_class(mine: Runs) -> list[Claim]:
    """Section 5.2: KM, MS and HDB predict the right class more often than the rest.

    Judged against two kinds of others, after a reader's objection: one mean of all four
    hid that some are level.
    """
    good = ["OCFL-KM", *DENSE]
    value = "accuracy"
    out = []
    for rest in (["FedAvg", "SCL"], ["BCL", "OCFL-AFF"]):
        ours = _by_scenario(mine.arms, good, value)
        gain = ours - _by_scenario(mine.arms, rest, value)
        high, low = (
            archived_level(mine, mine.arms, rows, value) for rows in (good, rest)
        )
        claim = Claim(
            f"KM, MS and HDB say the right class more often than {' and '.join(rest)}",
            "5.2",
            mean_of(gain),
            None if high is None or low is None else high - low,
            unit="accuracy, means of both sides",
            **mine.words(mine.arms),
        )
        out.append(claim)
    return out


# --- what we cannot judge, and what we ask ---


def untestable() -> list[Claim]:
    """Claims beyond our runs."""
    collapse = (
        "in the archive the fall begins after more rounds than ours have, on a network "
        "whose counters were in the update"
    )
    return [
        Claim("On CIFAR-10 the temperature falls to 0 later", "4.6.2", reason=collapse),
        Claim(
            "Saliency maps have fewer artefacts",
            "5.2",
            reason="judged by eye in the paper; it gives no measure of an artefact",
        ),
    ]


def our_questions(mine: Runs) -> list[Claim]:
    """Controls and corrected measures that the paper does not have."""
    looked = mine.words(mine.hits)
    end = mine.words(mine.arms)
    asked = [
        (
            "Affinity propagation, given distances as released, is worse than HDBSCAN",
            mine.hits,
            "OCFL-AFF as released",
            "ari",
            looked,
        ),
        ("Beats training alone", mine.arms, "LocalOnly", "pf1", end),
        ("Beats random clusters", mine.arms, "Random clusters", "pf1", end),
        (GAIN_ON_OWN_CLASSES, mine.arms, "FedAvg", "pf1", end),
        (
            "GF1 before averaging, as released, is above SCL’s",
            mine.arms,
            "SCL",
            "gf1_before",
            end,
        ),
    ]
    questions = []
    for words, frame, rival, value, how in asked:
        ours = _lead(frame, HDB, rival, value)
        theirs = archived_lead(mine, frame, HDB, rival, value)
        unit = UNITS[value]
        questions.append(
            Claim(words, "ours", ours, theirs, unit=unit, ours=True, **how)
        )
    return [
        *the_moment(mine),
        *questions,
        counted_in_rounds(found_by_round_three(mine)),
        *needs_no_threshold(mine),
        *areas(mine),
    ]


def the_moment(mine: Runs) -> list[Claim]:
    """How good the round of the trigger is beside others, by HDBSCAN's ARI.

    The archive has no other rounds. But where its ARI at the trigger is 1 no round can
    be better, so that the trigger is at the best round.
    """
    own = mine.looks[mine.looks["row"] == HDB]
    how = mine.words(own)
    late = own[own["fires"] > 2]
    at = outcomes.at_trigger(own)
    first = own[own["round"] == 1]
    unit = "ARI, minus that of the best of all rounds"
    archived = mine.archived(own)
    perfect = archived.loc[archived["row"] == HDB, "ari"] == 1.0
    best = 0.0 if perfect.all() else None
    asked = [
        (TRIGGER_NEAR_BEST, mean_of(less_best(own, at)), SLIGHTLY, unit, how),
        (FIRST_NEAR_BEST, mean_of(less_best(own, first)), SLIGHTLY, unit, how),
        (BEATS_FIRST, _between(own, "fires", "first"), 0.0, "ARI", how),
        (BEFORE_BEATS, _between(own, "before", "fires"), 0.0, "ARI", how),
    ]
    after_two = _between(late, "before", "fires")
    asked.append((BEFORE_LATE, after_two, 0.0, "ARI", mine.words(late)))
    if BEFORE in set(mine.arms["row"]):
        gain = _lead(mine.arms, BEFORE, HDB, "pf1")
        asked.append((BEFORE_PERSONAL, gain, 0.0, "F1", mine.words(mine.arms)))
    return [
        Claim(
            words,
            "ours",
            interval,
            best if words == TRIGGER_NEAR_BEST else None,
            threshold=line,
            unit=unit,
            ours=True,
            **evidence,
        )
        for words, interval, line, unit, evidence in asked
    ]


def needs_no_threshold(mine: Runs) -> list[Claim]:
    """HDBSCAN at the trigger against FL+HC at a threshold that nobody chose.

    The paper's contribution is a method without a setting to tune. The rival is the
    mean over thresholds in the range that the paper searched, in the round in which our
    FL+HC splits. Asked after a look. Only the long runs have looked at thresholds.
    """
    if mine.scale != LONG:
        return []
    blind = outcomes.untuned_briggs().groupby(SCENARIO)["ari"].mean()
    ours = _by_scenario(mine.hits, [HDB])
    claim = Claim(
        "Needs no threshold: groups better than BCL at the mean of 0.05 to 0.4",
        "ours",
        mean_of(ours - blind),
        unit="ARI",
        ours=True,
        **mine.words(mine.hits),
    )
    return [claim]


def found_by_round_three(mine: Runs) -> Claim:
    """A stricter reading of section 7: a split after round three finds nothing.

    The authors' own runs do not pass it, so it is not taken for the paper's claim. It
    was the first reading that we tried.
    """
    own = mine.looks[mine.looks["row"] == HDB]
    hits = outcomes.at_trigger(own)
    found = hits.assign(ari=hits["ari"].where(hits["round"] <= 3, 0.0))
    archived = mine.theirs[mine.theirs["row"] == HDB]
    theirs = None
    if len(archived):
        late = archived["printed_round"] > 3
        theirs = float(archived["ari"].mask(late, 0.0).mean())
    return Claim(
        "All runs find the groups by round three, a later split counting as none",
        "ours",
        mean_of(_by_scenario(found, [HDB])),
        theirs,
        threshold=RECOVERED,
        unit="ARI",
        ours=True,
        **mine.words(own),
    )


# --- effects ---


def _splits(own: DataFrame) -> DataFrame:
    """A line for each run with the round of its split, ``fires``.

    A trigger that never fires counts as one round after the last.
    """
    after_last = own["round"].max() + 1
    return own[own["round"] == 1].fillna({"fires": after_last})


def where_it_split(arms: DataFrame, rival: str) -> DataFrame:
    """The arms of the runs in which a rival ends with more than one cluster."""
    run = [*SCENARIO, "seed"]
    split = arms.loc[(arms["row"] == rival) & (arms["clusters"] > 1), run]
    return arms.merge(split, on=run)


def _by_scenario(frame: DataFrame, rows: list[str], value: str = "ari") -> Series:
    own = frame[frame["row"].isin(rows)]
    return own.groupby(SCENARIO)[value].mean()


def _lead(
    frame: DataFrame, a: str, b: str, value: str, by: list[str] = SCENARIO
) -> Interval:
    """One row minus another in every scenario, seeds averaged, in scores' own unit."""
    means = frame.groupby([*by, "row"], as_index=False)[value].mean()
    return effect(tables.paired(means, "row", a, b, value, by, percent=False))


def _other_splits_less_hardest(frame: DataFrame) -> tables.Pair:
    own = frame[frame["row"].isin(DENSE)]
    hardest = (own["overlap"] == "overlapping") & (own["balance"] == "balanced")
    split = hardest.map({True: "hardest", False: "others"})
    return _paired(own.assign(split=split), "split", "others", "hardest", "ari")


def falls_less_rises(frame: DataFrame) -> tables.Pair:
    """The share of runs in which T falls first: MNIST and CIFAR-10 minus the others.

    The others are FMNIST and PathMNIST. Paired by split and number of clients; a data
    set that is not there is left out.
    """
    kinds = {"MNIST": "falls", "CIFAR-10": "falls", "FMNIST": "rises"}
    kinds["PathMNIST"] = "rises"
    run = [name for name in (*SCENARIO, "seed") if name in frame]
    first, second = (
        frame[frame["round"] == t].set_index(run)["temperature"] for t in (1, 2)
    )
    falls = (second < first).astype(float).rename("share").reset_index()
    falls["kind"] = falls["data"].map(kinds)
    by = ["clients", "overlap", "balance"]
    known = falls.dropna(subset="kind")
    return _paired(known, "kind", "falls", "rises", "share", by)


def _paired(
    frame: DataFrame,
    what: str,
    a: Any,
    b: Any,
    value: str,
    by: tuple[str, ...] | list[str] = ("data", "clients"),
) -> tables.Pair:
    means = frame.groupby([*by, what], as_index=False)[value].mean()
    return tables.paired(means, what, a, b, value, [*by], percent=False)


def _between(looks: DataFrame, a: str, b: str) -> Interval:
    """HDBSCAN's ARI in one round minus that in another, paired by scenario.

    A round is "first", that of the trigger ("fires"), or the one "before" it.
    """
    import pandas as pd

    own = looks[looks["row"] == HDB].dropna(subset="fires")
    at = {
        "first": own["round"] == 1,
        "fires": own["round"] == own["fires"],
        "before": own["round"] == own["fires"] - 1,
    }
    both = pd.concat([own[at[place]].assign(place=place) for place in (a, b)])
    return effect(_paired(both, "place", a, b, "ari", SCENARIO))


def _window_two_less_one(looks: DataFrame) -> tables.Pair:
    """ARI at the trigger of a window of two rounds, minus that of one round."""
    import pandas as pd

    own = looks[looks["row"] == HDB]
    temperatures = own.groupby([*SCENARIO, "seed"])["temperature"]
    places = []
    for window in (1, 2):
        fires = temperatures.agg(outcomes.fires, window=window).rename("later")
        at = outcomes.at_trigger(own.join(fires, on=[*SCENARIO, "seed"]), "later")
        places.append(at.assign(window=window))
    return _paired(pd.concat(places), "window", 2, 1, "ari", SCENARIO)
