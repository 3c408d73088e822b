"""What the arena's records say: settings that won, ranks, gains, and how sure they are.

A frame has a line per run, as `fednb.tables.frame` makes it from the table ``ranking``,
with the tags ``world`` and ``row``. Seeds of one world are no independent worlds. So
statements about a world take intervals over its seeds, and statements about all worlds
take each world's mean as one observation.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import metrics, tables
from ..ranks import CriticalDifferences, critical_differences, holm, signed_rank
from .methods import ENTRIES
from .tasks import allowed, entries, rows, tuning
from .worlds import worlds

if TYPE_CHECKING:
    from pandas import DataFrame, Series

DRAWS = 2000  # of worlds, for the intervals of mean ranks
MAJORITY = "Majority class"


# --- settings -------------------------------------------------------------------------


def tuned(profile: str, path: str | Path) -> DataFrame:
    """The finished runs of the table ``tuning``, a line for each.

    A run that broke down has no record; its setting cannot win.
    """
    tasks = tuning(profile)
    have = tables.by_key(path)
    done = [task for task in tasks if task.key in have]
    if len(done) < len(tasks):
        missing = len(tasks) - len(done)
        warnings.warn(
            f"{path} lacks {missing} of {len(tasks)} runs: their settings cannot win",
            stacklevel=2,
        )
    return tables.frame(done, path)


def choose(frame: DataFrame, profile: str) -> DataFrame:
    """The setting with the best validation accuracy for each world and row.

    Of equal ones the first wins: the lowest rate, then the first value. A row that is
    told the number of clusters, rightly or wrongly, chooses among the rates only.
    """
    import pandas as pd

    lines = []
    for name, world in worlds(profile).items():
        runs = frame[frame["world"] == name]
        if runs.empty:
            continue
        for entry in entries(world):
            for row in rows(world, entry):
                values = [str(value) for value in allowed(entry, row)]
                allowed_value = runs["value"].isin(values)
                tried = runs[(runs["method"] == entry.name) & allowed_value]
                if tried["accuracy"].isna().all():
                    raise ValueError(f"{row} has no run in {name}: sweep tuning first")
                best = tried.loc[tried["accuracy"].idxmax()]
                lines.append(
                    {
                        "world": name,
                        "row": row,
                        "method": entry.name,
                        "knob": entry.knob,
                        "lr": best["lr"],
                        "value": best["value"],
                        "validation": round(float(best["accuracy"]), 4),
                        "tried": len(tried),
                    }
                )
    return pd.DataFrame(lines)


def at_the_edge(winners: DataFrame, rates: Sequence[float]) -> DataFrame:
    """Rows whose chosen rate or value is an end of what was tried: more might help."""
    ends: dict[str, set[str]] = {}
    for entry in ENTRIES:
        values = [str(value) for value in entry.values]
        ends[entry.name] = set()  # two values have no middle
        if len(values) > 2:
            ends[entry.name] = {values[0], values[-1]}
    by_rate = winners["lr"].isin([min(rates), max(rates)])
    by_value = [
        value in ends[method]
        for value, method in zip(winners["value"], winners["method"], strict=True)
    ]
    return winners.assign(rate_at_edge=by_rate, value_at_edge=by_value)


# --- one table of worlds and rows -----------------------------------------------------


def with_majority(frame: DataFrame) -> DataFrame:
    """The frame with a row for the control that always says a client's majority class.

    Every record of a world and seed knows its accuracy; other metrics are missing.
    """
    import pandas as pd

    found = frame.drop_duplicates(["world", "seed"])
    extra = found[["world", "seed"]].assign(
        row=MAJORITY,
        method=MAJORITY,
        family="control",
        accuracy=found["majority"],
        client_updates=0,
        bytes=0,
    )
    return pd.concat([frame, extra], ignore_index=True)


def by_world(frame: DataFrame, value: str = "accuracy") -> DataFrame:
    """Means over seeds: a line for each world, a column for each row."""
    if value not in frame:
        raise ValueError(f"no column {value!r}: there are {', '.join(frame.columns)}")
    means = frame.groupby(["world", "row"], sort=False)[value].mean().unstack("row")
    in_order = list(dict.fromkeys(frame["world"]))
    return means.loc[in_order, list(dict.fromkeys(frame["row"]))]


def complete(frame: DataFrame, value: str = "accuracy") -> list[str]:
    """Rows that have a number in every world: only these can be ranked over worlds."""
    means = by_world(frame, value)
    return [row for row in means if means[row].notna().all()]


# --- ranks ----------------------------------------------------------------------------


def ranks(
    frame: DataFrame,
    value: str = "accuracy",
    among: Sequence[str] | None = None,
    seed: int = 0,
) -> DataFrame:
    """Mean rank of each row over worlds, 1 is best, with a 95 % interval.

    The interval is a bootstrap over worlds: it says how far the rank depends on which
    worlds were looked at. ``best`` and ``worst`` are the ranks in single worlds.
    """
    import pandas as pd

    means = by_world(frame, value)[_ranked(frame, value, among)]
    per_world = means.rank(axis=1, ascending=False)  # (W, R)
    x = per_world.to_numpy()
    draws = np.random.default_rng(seed).integers(len(x), size=(DRAWS, len(x)))
    low, high = np.percentile(x[draws].mean(1), [2.5, 97.5], axis=0)
    table = pd.DataFrame(
        {
            "rank": x.mean(0),
            "low": low,
            "high": high,
            "best": x.min(0),
            "worst": x.max(0),
        }
    )
    table.index = per_world.columns
    return table.sort_values("rank", kind="stable")


def critical(
    frame: DataFrame, value: str = "accuracy", among: Sequence[str] | None = None
) -> CriticalDifferences:
    """Friedman's test over worlds, and which pairs differ (Wilcoxon, Holm).

    Ten worlds cannot tell thirty methods apart: with 435 pairs no p-value survives
    Holm's correction. Ask about a few rows (``among``), or see `overall`.
    """
    means = by_world(frame, value)[_ranked(frame, value, among)]
    return critical_differences(means)


def _ranked(frame: DataFrame, value: str, among: Sequence[str] | None) -> list[str]:
    """The rows to rank, which must have a number in every world."""
    whole = complete(frame, value)
    if among is None:
        return whole
    lacking = [row for row in among if row not in whole]
    if lacking:
        raise ValueError(f"{lacking} have no {value} in some world, so no rank")
    return list(among)


# --- gains ----------------------------------------------------------------------------


def gains(
    frame: DataFrame, control: str = "FedAvg", value: str = "accuracy"
) -> DataFrame:
    """What each row gains over a control in each world: mean and 95 % interval.

    Differences are paired by seed. ``holds`` is 1 if the whole interval is above zero,
    -1 if it is below, else 0. Worlds without the control are left out.
    """
    import pandas as pd

    lines = []
    for world in dict.fromkeys(frame["world"]):
        runs = frame[(frame["world"] == world) & frame[value].notna()]
        found = list(dict.fromkeys(runs["row"]))
        if control not in found:
            continue
        for row in found:
            if row == control:
                continue
            pair = tables.paired(runs, "row", row, control, value, ["seed"])
            sign = int(pair.low > 0) - int(pair.high < 0)
            lines.append(
                {
                    "world": world,
                    "row": row,
                    "gain": pair.mean,
                    "low": pair.low,
                    "high": pair.high,
                    "seeds": pair.n,
                    "holds": sign,
                }
            )
    return pd.DataFrame(lines)


def overall(
    frame: DataFrame, control: str = "FedAvg", value: str = "accuracy"
) -> DataFrame:
    """What each row gains over a control in a world, on average over worlds.

    Each world's mean over seeds is one observation: mean, 95 % t-interval, in how many
    worlds the row is ahead, and Wilcoxon's p-value, corrected by Holm for all rows.
    """
    import pandas as pd

    means = by_world(frame, value)
    if control not in means:
        raise ValueError(f"no row {control!r}: there are {[*means]}")
    lines = []
    for row in means.columns.drop(control):
        gap = (means[row] - means[control]).dropna().to_numpy()
        n = len(gap)
        if n < 2:
            continue
        half = tables.half_width(gap)
        lines.append(
            {
                "row": row,
                "gain": gap.mean(),
                "low": gap.mean() - half,
                "high": gap.mean() + half,
                "ahead": int((gap > 0).sum()),
                "worlds": n,
                "p": signed_rank(gap),
            }
        )
    table = pd.DataFrame(lines).set_index("row")
    return table.assign(p=holm(table["p"].to_numpy())).sort_values(
        "gain", ascending=False, kind="stable"
    )


def best(frame: DataFrame, value: str = "accuracy") -> DataFrame:
    """The best row of each world that is no control, and who cannot be told from it.

    ``as_good`` are the rows whose interval of the paired difference to the best one,
    over seeds, reaches zero. Beside them stand the controls of that world.
    """
    import pandas as pd

    controls = set(frame.loc[frame["family"] == "control", "row"])
    means = by_world(frame, value)
    lines = []
    for world, line in means.iterrows():
        runs = frame[(frame["world"] == world) & frame[value].notna()]
        rivals = line.drop(controls, errors="ignore").dropna()
        first = rivals.idxmax()
        as_good = []
        for row in rivals.index.drop(first):
            pair = tables.paired(runs, "row", first, row, value, ["seed"])
            if not pair.low > 0:
                as_good.append(row)
        out = {"world": world, "row": first, value: rivals[first], "as_good": as_good}
        for control in sorted(controls):
            out[control] = line[control]
        lines.append(out)
    return pd.DataFrame(lines).set_index("world")


def families(frame: DataFrame, value: str = "accuracy") -> DataFrame:
    """The best of each family, chosen without the seed that it is shown on.

    So a family of ten has no advantage over one of three by choosing among more. The
    methods stand under the name of their family; controls and FedAvg as they are.
    """
    import pandas as pd

    plain = frame[(frame["row"] == frame["method"]) & frame[value].notna()]
    single = (plain["family"] == "control") | (plain["row"] == "FedAvg")
    parts = [plain.loc[single, ["world", "row", "seed", value]]]
    rest = plain[plain["family"] != "control"]
    for (world, family), runs in rest.groupby(["world", "family"], sort=False):
        for seed in dict.fromkeys(runs["seed"]):
            others = runs[runs["seed"] != seed]
            here = runs[runs["seed"] == seed].set_index("row")[value]
            chosen = others.groupby("row", sort=False)[value].mean().idxmax()
            line = {"world": world, "row": family, "seed": seed, value: here[chosen]}
            parts.append(pd.DataFrame([line | {"chosen": chosen}]))
    return pd.concat(parts, ignore_index=True)


def held_out(
    frame: DataFrame, control: str = "FedAvg", value: str = "accuracy"
) -> DataFrame:
    """What the best method of a world gains, chosen without the seed that judges it.

    The best of thirty is partly lucky. So for each seed the method is chosen on the
    other seeds, and its gain over the control is taken on this one.
    """
    import pandas as pd

    plain = frame[(frame["row"] == frame["method"]) & frame[value].notna()]
    rivals = plain[plain["family"] != "control"]
    lines = []
    for world in dict.fromkeys(plain["world"]):
        runs = rivals[rivals["world"] == world]
        base = plain[(plain["world"] == world) & (plain["row"] == control)]
        base = base.set_index("seed")[value]
        gaps = []
        chosen = []
        for seed in dict.fromkeys(runs["seed"]):
            others = runs[runs["seed"] != seed].groupby("row", sort=False)[value].mean()
            here = runs[runs["seed"] == seed].set_index("row")[value]
            chosen.append(others.idxmax())
            gaps.append(here[others.idxmax()] - base[seed])
        gain = float(np.mean(gaps))
        half = tables.half_width(np.array(gaps))
        lines.append(
            {
                "world": world,
                "chosen": list(dict.fromkeys(chosen)),
                "gain": gain,
                "low": gain - half,
                "high": gain + half,
            }
        )
    return pd.DataFrame(lines).set_index("world")


def elsewhere(frame: DataFrame, value: str = "accuracy") -> DataFrame:
    """How well a choice carries over: the best method of all other worlds, in this one.

    ``rank`` is its place in the world that was left out, ``short`` what it lacks there
    to the best one.
    """
    import pandas as pd

    plain = frame[(frame["row"] == frame["method"]) & (frame["family"] != "control")]
    means = by_world(plain, value)[complete(plain, value)]
    place = means.rank(axis=1, ascending=False)
    lines = []
    for world in means.index:
        chosen = place.drop(world).mean().idxmin()
        lines.append(
            {
                "world": world,
                "chosen": chosen,
                "rank": int(place.loc[world, chosen]),
                "methods": means.shape[1],
                "short": means.loc[world].max() - means.loc[world, chosen],
            }
        )
    return pd.DataFrame(lines).set_index("world")


def worth_of_k(frame: DataFrame, value: str = "accuracy") -> DataFrame:
    """What being told the right number of clusters brings, method by method.

    Over a wrong number, and over the one that validation samples favour; in each world
    with groups, paired by seed.
    """
    import pandas as pd

    lines = []
    for entry in ENTRIES:
        told = f"{entry.name}, told K"
        if told not in set(frame["row"]):
            continue
        others = {"wrong K": f"{entry.name}, wrong K", "chosen K": entry.name}
        for over, other in others.items():
            where = set(frame.loc[frame["row"] == told, "world"])
            both = frame[frame["row"].isin([told, other]) & frame["world"].isin(where)]
            for world in dict.fromkeys(both["world"]):
                runs = both[both["world"] == world]
                pair = tables.paired(runs, "row", told, other, value, ["seed"])
                lines.append(
                    {
                        "method": entry.name,
                        "over": over,
                        "world": world,
                        "gain": pair.mean,
                        "low": pair.low,
                        "high": pair.high,
                    }
                )
    return pd.DataFrame(lines)


# --- clusters, and what they cost -----------------------------------------------------


def stability(frame: DataFrame) -> Series:
    """How little memberships move in the last quarter of a run: ARI, 1 is not at all.

    The frame needs its curves: ``tables.frame(..., course=True)``.
    """
    import pandas as pd

    found = []
    for course in frame["course"]:
        texts = [text for text in course["members"] if isinstance(text, str)]
        if len(texts) < 2:
            found.append(np.nan)
            continue
        before = np.array(list(texts[-2]))
        after = np.array(list(texts[-1]))
        found.append(metrics.adjusted_rand(before, after))
    return pd.Series(found, frame.index, name="stability")


def cluster_gains(frame: DataFrame, rows: Sequence[str]) -> DataFrame:
    """ARI of the clusters and gain over FedAvg, run by run, where there are groups."""
    fedavg = frame[frame["row"] == "FedAvg"].set_index(["world", "seed"])["accuracy"]
    found = frame[frame["row"].isin(rows) & frame["ari"].notna()]
    hidden = {name for name in found["world"] if worlds("laptop")[name].is_grouped}
    found = found[found["world"].isin(hidden)]
    base = [fedavg[world, seed] for world, seed in found[["world", "seed"]].to_numpy()]
    gain = found["accuracy"] - np.array(base)
    return found[["world", "row", "seed", "ari"]].assign(gain=gain)


# --- what matters to a reader ---------------------------------------------------------


def weighed(
    frame: DataFrame, weights: Mapping[str, float], told: bool = False, seed: int = 0
) -> DataFrame:
    """Rows by a weighted score, 1 is best, and how often each comes first.

    In every world each metric is scaled so that the worst row has 0 and the best row 1.
    Traffic, ``bytes``, has a score of 1 for none, 1/2 for as much as FedAvg's, 1/3 for
    twice that. ``first`` is the share of bootstrap draws in which the row has the best
    score: seeds are drawn again within each world, and worlds, too, if there are
    several.

    Methods that were told the right number of groups take part only with ``told``. Left
    out are rows without a number in some world, rows with a wrong number of groups, and
    three controls: oracle clusters, random clusters and the majority class.
    """
    import pandas as pd

    usable = frame[~frame["row"].isin(["Oracle clusters", "Random clusters", MAJORITY])]
    usable = usable[~usable["row"].str.endswith("wrong K")]
    if not told:
        usable = usable[usable["row"] == usable["method"]]
    among = complete(usable, "worst_decile")
    chosen = {name: weight for name, weight in weights.items() if weight > 0}
    if not chosen or not among:
        return pd.DataFrame({"score": [], "first": []})
    weight = np.array(list(chosen.values())) / sum(chosen.values())  # (metrics,)
    scores = np.stack([_scores(usable, name, among) for name in chosen])
    score = np.tensordot(weight, scores, axes=1)  # (worlds, seeds, rows)
    num_worlds, num_seeds, _ = score.shape
    rng = np.random.default_rng(seed)
    drawn_seeds = rng.integers(num_seeds, size=(DRAWS, num_worlds, num_seeds))
    drawn_worlds = np.tile(np.arange(num_worlds), (DRAWS, 1))
    if num_worlds > 1:
        drawn_worlds = rng.integers(num_worlds, size=(DRAWS, num_worlds))
    draws = score[drawn_worlds[:, :, None], drawn_seeds]  # (draws, worlds, seeds, rows)
    winner = draws.mean((1, 2)).argmax(1)  # (draws,)
    table = pd.DataFrame(
        {
            "score": score.mean((0, 1)),
            "first": np.bincount(winner, minlength=len(among)) / DRAWS,
        },
        index=among,
    )
    return table.sort_values("score", ascending=False, kind="stable")


def _scores(frame: DataFrame, value: str, among: Sequence[str]) -> np.ndarray:
    """A metric (worlds, seeds, rows) on a scale on which 1 is good and 0 is bad."""
    wide = frame.set_index(["world", "seed", "row"])[value].unstack("row")
    in_order = list(dict.fromkeys(frame["world"]))
    cube = np.stack(
        [wide.loc[world, list(among)].to_numpy(float) for world in in_order]
    )
    if value == "bytes":
        fedavg = cube[:, :, [list(among).index("FedAvg")]]
        return 1 / (1 + cube / fedavg)
    means = cube.mean(1, keepdims=True)  # (worlds, 1, rows)
    low = means.min(2, keepdims=True)
    high = means.max(2, keepdims=True)
    return (cube - low) / np.maximum(high - low, 1e-12)


def pareto(frame: DataFrame, value: str = "accuracy", cost: str = "bytes") -> DataFrame:
    """Mean of a metric and of a cost for each row, and whether the row is efficient.

    Only rows that are in every world are compared. ``efficient`` rows form the Pareto
    front: no other row is at least as good at no higher cost, and better in one of
    the two.
    """
    import pandas as pd

    among = complete(frame, value)
    table = pd.DataFrame(
        {
            value: by_world(frame, value)[among].mean(),
            cost: by_world(frame, cost)[among].mean(),
        }
    )
    good = table[value].to_numpy()
    paid = table[cost].to_numpy()
    as_good = good[:, None] >= good  # (R, R) line beats column, or is equal
    as_cheap = paid[:, None] <= paid
    better = (good[:, None] > good) | (paid[:, None] < paid)
    beaten = (as_good & as_cheap & better).any(0)
    return table.assign(efficient=~beaten).sort_values(cost, kind="stable")
