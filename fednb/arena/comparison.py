"""Your own method beside the stored ones, in a world of the arena."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import tables
from ..experiment import run
from ..store import plain
from ..store import results as stored_results
from ..sweeps import Task
from ..training import Local
from .methods import STEPS
from .tasks import (
    SCALES,
    TUNING_SEED,
    measure_arena,
    measure_validation,
    ranking,
)
from .worlds import World, worlds

if TYPE_CHECKING:
    from pandas import DataFrame


class Comparison(NamedTuple):
    """How a method of one's own fares in a world."""

    runs: DataFrame  # a line per seed: our metrics, client updates and bytes
    against: DataFrame  # ours minus each stored row, paired by seed; empty without any
    lr: float
    budget: int  # client updates that the stored runs had


def compare(
    method: Any,
    world: str,
    *,
    rounds: int | None = None,
    lr: float | None = None,
    profile: str = "laptop",
    results: str | Path | None = None,
    value: str = "accuracy",
    progress: bool = True,
) -> Comparison:
    """Run a method in a world of the arena, and set it beside the stored results.

    It meets the same clients, samples, batches and first model as the stored runs, seed
    by seed. Choose ``rounds`` such that they cost the world's budget of client updates.
    The default is right for a method that trains the world's ``sampled`` clients once
    in a round. Without ``lr`` the learning rate is chosen on validation samples, as for
    the other methods. To try other settings of your method, call this function again.

    ``results`` is the folder with ``ranking.json``, by default the book's. If it has
    no runs of this world and profile, only ours are returned.
    """
    import pandas as pd

    known = worlds(profile)
    if world not in known:
        raise ValueError(f"no world {world!r}: there are {', '.join(known)}")
    chosen = known[world]
    if rounds is None:
        rounds = max(2, chosen.updates // chosen.sampled)
    if lr is None:
        lr = best_rate(method, chosen, rounds, profile, progress)
    lines = []
    for seed in SCALES[profile].seeds:
        task = _task(method, chosen, rounds, lr, seed, profile)
        task = replace(task, measure=measure_arena)
        lines.append({"seed": seed} | _final(task, progress))
    ours = pd.DataFrame(lines)
    against = _differences(ours, chosen, profile, _folder(results), value)
    return Comparison(ours, against, lr, chosen.updates)


def _folder(results: str | Path | None) -> Path:
    """Where stored results are, or would be."""
    if results is not None:
        return Path(results)
    try:
        return stored_results("arena")
    except FileNotFoundError:
        return Path("book/results/arena")


def best_rate(
    method: Any, world: World, rounds: int, profile: str, progress: bool
) -> float:
    """The learning rate with the best validation accuracy, the lowest of equals."""
    scale = SCALES[profile]
    fewer = max(2, round(scale.share * rounds))
    scores = {}
    for lr in scale.rates:
        task = _task(method, world, fewer, lr, TUNING_SEED, profile, tuning=True)
        task = replace(task, measure=measure_validation)
        scores[lr] = _final(task, progress)["accuracy"]
    return max(scores, key=scores.__getitem__)


def _task(
    method: Any,
    world: World,
    rounds: int,
    lr: float,
    seed: int,
    profile: str,
    tuning: bool = False,
) -> Task:
    """A run of the method as the arena would do it."""
    return Task(
        method=method,
        dataset=world.dataset(seed, tuning),
        partition=world.deal(seed, tuning),
        model=world.model,
        local=Local(lr=lr, steps=STEPS, batch_size=16),
        rounds=rounds,
        seed=seed,
        profile=profile,
        every=rounds,
        options={"diverged": "record"},
    )


def _final(task: Task, progress: bool) -> dict[str, Any]:
    """The numbers after the last round, rounded as those of records are."""
    history = run(
        task.method,
        task.federation(),
        task.rounds,
        every=task.every,
        measure=task.measure,
        progress=progress,
    )
    left_out = ("labels", "seconds", "server_seconds", "events")
    final = {k: v for k, v in history.final.items() if k not in left_out}
    return plain(final)


def _differences(
    ours: DataFrame, world: World, profile: str, results: Path, value: str
) -> DataFrame:
    """Ours minus each stored row: mean, 95 % interval, and how often we lead."""
    import pandas as pd

    path = results / "ranking.json"
    have = tables.by_key(path)
    tasks = [task for task in ranking(profile) if task.tags["world"] == world.name]
    tasks = [task for task in tasks if task.key in have]
    if not tasks:
        return pd.DataFrame(columns=["row", "gain", "low", "high", "ahead", "seeds"])
    stored = tables.frame(tasks, path)
    lines = []
    for row in dict.fromkeys(stored["row"]):
        both = pd.concat(
            [
                stored.loc[stored["row"] == row, ["row", "seed", value]],
                ours[["seed", value]].assign(row="ours"),
            ]
        )
        pair = tables.paired(both, "row", "ours", row, value, ["seed"])
        lines.append(
            {
                "row": row,
                "gain": pair.mean,
                "low": pair.low,
                "high": pair.high,
                "ahead": pair.wins,
                "seeds": pair.n,
            }
        )
    return pd.DataFrame(lines).sort_values("gain", kind="stable", ignore_index=True)
