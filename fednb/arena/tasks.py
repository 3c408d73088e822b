"""The arena's tables as tasks: ``tuning`` and ``ranking``.

``tuning`` tries all settings of all methods in all worlds, on a deal of its own
(``TUNING_SEED``), with half of the budget. A fifth of each client's training samples is
set aside, and the setting with the best mean accuracy on these validation samples wins.
These federations have no test samples. Tests use the official test images, and the only
such images here are the few that the server holds for GCFL. The winners are published
in ``chosen.csv``; ``python -m fednb.arena`` writes it from the records.

``ranking`` runs the winners on three other deals, with all training samples, and judges
them on official test samples with the class shares of each client. Without
``chosen.csv`` there is nothing to rank in profile ``laptop``.

What ``laptop`` costs (``budget("laptop")`` computes it anew):

| table | runs | client updates | core hours |
|---|---|---|---|
| tuning: 10 worlds × 32 or 33 methods × 3, 6 or 9 settings | 2,541 | 593,000 | 2.8 |
| ranking: 10 worlds × 32 or 43 rows × 3 seeds, at most | 1,191 | 559,000 | 2.3 |

Together 5.0 core hours, or two and a half hours on two cores; where two runs at a time
slow each other down by a third, as in some of the records, a bit over three.

What was cut to fit: 20 or 40 clients; 500 client updates of 10 steps in a
run, and 400 with the convolutional network; half of that in tuning; one seed of tuning,
three of ranking; FedPer and FedRep have two values of their knob, for the networks have
three and four layers.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import metrics
from ..door import Judge
from ..experiment import clusters_of, serving
from ..sweeps import Task
from ..training import Local
from .methods import ENTRIES, RIGHT, STEPS, WRONG, Entry
from .worlds import World, worlds

TUNING_SEED = 1000
CHOSEN = Path(__file__).with_name("chosen.csv")
SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Scale:
    """What a profile says about runs."""

    rates: tuple[float, ...]  # learning rates that every method may choose from
    seeds: range  # of the ranking
    share: float  # of the budget that a run of the tuning has
    names: tuple[str, ...] | None = None  # worlds; None: all

    @property
    def usual_rate(self) -> float:
        """The learning rate before anything is tuned: the middle one."""
        return self.rates[len(self.rates) // 2]

    def worlds(self, profile: str) -> list[World]:
        """The profile's worlds."""
        found = worlds(profile)
        return [found[name] for name in self.names or found]


SCALES = {
    "smoke": Scale(
        rates=(0.1,),
        seeds=range(1),
        share=0.5,
        names=("concept-shift", "few-sampled"),
    ),
    "laptop": Scale(rates=(0.02, 0.06, 0.2), seeds=range(3), share=0.5),
}


class Setting(NamedTuple):
    """What was chosen for a row of the ranking."""

    rate: float
    value: Any


# --- what is written down of a run ----------------------------------------------------


def measure_validation(fed: Judge, state: Any) -> dict[str, Any]:
    """How well clients are served on their validation samples; nothing else is seen."""
    confusion = _confusion(fed, state, on="validation")
    return {
        "accuracy": metrics.average(metrics.accuracy(confusion)),
        "balanced_accuracy": metrics.average(metrics.balanced_accuracy(confusion)),
    }


def measure_arena(fed: Judge, state: Any) -> dict[str, Any]:
    """What the ranking judges by: test accuracy in several ways, and the clusters.

    ``members`` has a character for each client: those of one cluster share it.
    ``majority`` is the accuracy of a client's most frequent training class.
    """
    confusion = _confusion(fed, state, on="test")  # (K, classes, classes)
    accuracy = np.asarray(metrics.accuracy(confusion))  # (K,)
    truth = fed.truth
    frequent = truth.counts.argmax(1)  # (K,)
    tests = confusion.sum(2)  # (K, classes)
    hits = tests[np.arange(len(tests)), frequent]
    out: dict[str, Any] = {
        "accuracy": metrics.average(accuracy),
        "accuracy_std": metrics.spread(accuracy)["std"],
        "worst_decile": worst_decile(accuracy),
        "balanced_accuracy": metrics.average(metrics.balanced_accuracy(confusion)),
        "macro_f1": metrics.average(metrics.macro_f1(confusion, over="true")),
        "majority": metrics.average(hits / np.maximum(tests.sum(1), 1)),
    }
    labels = clusters_of(state).cpu().numpy()
    out["clusters"] = len(np.unique(labels))
    out["members"] = memberships(labels)
    if truth.labels is not None:
        out["ari"] = metrics.adjusted_rand(truth.labels, labels)
        out["ami"] = metrics.ami(truth.labels, labels)
    return out


def worst_decile(accuracy: np.ndarray) -> float:
    """Mean accuracy of the tenth of the clients that fares worst, at least one."""
    tested = np.sort(accuracy[~np.isnan(accuracy)])
    return float(tested[: max(1, len(tested) // 10)].mean())


def memberships(labels: np.ndarray) -> str:
    """Labels (K,) as a text: clusters are named in the order of their first members."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    if len(first) > len(SYMBOLS):
        raise ValueError(f"{len(first)} clusters: there are {len(SYMBOLS)} symbols")
    return "".join(SYMBOLS[rank[i]] for i in inverse)


def _confusion(fed: Judge, state: Any, on: str) -> np.ndarray:
    """Counts (K, classes, classes) on a list of each client's samples."""
    result = fed.evaluate(state.theta, serving(state), on=on)
    return result.confusion.cpu().numpy()


# --- tasks ----------------------------------------------------------------------------


def entries(world: World) -> list[Entry]:
    """Who takes part in a world."""
    return [entry for entry in ENTRIES if world.is_grouped or not entry.grouped_only]


def task(
    profile: str,
    world: World,
    entry: Entry,
    setting: Setting,
    seed: int,
    row: str,
    tuning: bool = False,
) -> Task:
    """One run."""
    if tuning:
        rounds = entry.rounds(world, setting.value, SCALES[profile].share)
        how: dict[str, Any] = {"every": rounds, "measure": measure_validation}
    else:
        rounds = entry.rounds(world, setting.value)
        how = {
            "every": math.ceil(rounds / 4),
            "curves": ("accuracy", "members"),
            "measure": measure_arena,
        }
    tags: dict[str, str | int | float] = {
        "world": world.name,
        "row": row,
        "method": entry.name,
        "family": entry.family,
        "lr": setting.rate,
        "value": str(setting.value),
    }
    return Task(
        method=entry.make(world, setting.value, rounds, seed),
        dataset=world.dataset(seed, tuning),
        partition=world.deal(seed, tuning),
        model=world.model,
        local=Local(lr=setting.rate, steps=STEPS, batch_size=16),
        rounds=rounds,
        seed=seed,
        profile=profile,
        options={"diverged": "record"},
        tags=tags,
        **how,
    )


def tuning(profile: str) -> list[Task]:
    """All settings of all methods in all worlds, on validation samples."""
    if profile not in SCALES:
        return []
    scale = SCALES[profile]
    tasks = []
    for world in scale.worlds(profile):
        for entry in entries(world):
            for setting in settings(scale, entry):
                trial = task(
                    profile,
                    world,
                    entry,
                    setting,
                    seed=TUNING_SEED,
                    row=entry.name,
                    tuning=True,
                )
                tasks.append(trial)
    return tasks


def settings(scale: Scale, entry: Entry) -> list[Setting]:
    """What a method may choose from: each rate with each value of its knob."""
    return [Setting(rate, value) for rate in scale.rates for value in entry.values]


def ranking(profile: str) -> list[Task]:
    """The chosen settings, on test samples; one seed after the other.

    So a sweep that is not finished has whole seeds.
    """
    if profile not in SCALES:
        return []
    scale = SCALES[profile]
    winners = chosen(profile)
    tasks = []
    for seed in scale.seeds:
        for world in scale.worlds(profile):
            for entry in entries(world):
                for row in rows(world, entry):
                    setting = winners.get((world.name, row))
                    if setting is not None:
                        tasks.append(task(profile, world, entry, setting, seed, row))
    return tasks


def rows(world: World, entry: Entry) -> Iterator[str]:
    """Names under which a method is ranked."""
    yield entry.name
    if entry.told and world.is_grouped:
        yield f"{entry.name}, told K"
        yield f"{entry.name}, wrong K"


def allowed(entry: Entry, row: str) -> tuple[Any, ...]:
    """Values of the knob that a row may have."""
    if row == f"{entry.name}, told K":
        return (RIGHT,)
    if row == f"{entry.name}, wrong K":
        return (WRONG,)
    return entry.values


def chosen(profile: str) -> dict[tuple[str, str], Setting]:
    """The setting of each world and row; none before settings were chosen.

    In ``smoke``, where nothing is tuned, it is the middle of what could be tried.
    """
    if profile == "smoke":
        return _untuned(profile)
    if not CHOSEN.exists():
        return {}
    return _read_chosen(CHOSEN)


def _untuned(profile: str) -> dict[tuple[str, str], Setting]:
    scale = SCALES[profile]
    found = {}
    for world in scale.worlds(profile):
        for entry in entries(world):
            for row in rows(world, entry):
                values = allowed(entry, row)
                usual = values[len(values) // 2]
                found[world.name, row] = Setting(scale.usual_rate, usual)
    return found


@cache
def _read_chosen(path: Path) -> dict[tuple[str, str], Setting]:
    """Settings by world and row; a value is found again among the method's own."""
    by_name = {entry.name: entry for entry in ENTRIES}
    found = {}
    with path.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            entry = by_name[line["method"]]
            values = {str(value): value for value in entry.values}
            if line["value"] not in values:
                raise ValueError(
                    f"{path.name}: {line['row']} has {entry.knob} = {line['value']}, "
                    f"the arena has {[*values]}: run python -m fednb.arena"
                )
            setting = Setting(float(line["lr"]), values[line["value"]])
            found[line["world"], line["row"]] = setting
    return found


# --- what it costs --------------------------------------------------------------------

# Milliseconds of one core for a client update of ten steps in batches of 16. In the
# records, FedAvg needs 27 with WeCFL's LeNet-5 on CIFAR-10, and 15 to 24 with
# FedCVR-Bolt's perceptron on MNIST, which is four times as wide as the arena's. The
# arena's own networks took this much processor time in a probe of one second.
MILLISECONDS = {"mlp": 4.1, "cnn": 28.8}
OVERHEAD = 1.2  # records: IFCA and GCFL 1.8 to 1.9, FedEM and FedSoft 1.3, others 1.0
PER_RUN = 1.0  # seconds: loading, dealing, evaluation


class Cost(NamedTuple):
    """What a table costs."""

    runs: int
    updates: int  # of clients, each of ten steps
    hours: float  # of one core


def budget(profile: str) -> dict[str, Cost]:
    """Runs, client updates and core hours of both tables.

    The ranking is counted as if settings were chosen that no two rows share.
    """
    scale = SCALES[profile]
    tried = _Sum()
    ranked = _Sum()
    for world in scale.worlds(profile):
        for entry in entries(world):
            for setting in settings(scale, entry):
                tried.add(world, entry, setting.value, scale.share)
            for row in rows(world, entry):
                value = allowed(entry, row)[-1]
                for _ in scale.seeds:
                    ranked.add(world, entry, value, 1.0)
    return {"tuning": tried.cost(), "ranking": ranked.cost()}


class _Sum:
    """Adds up what runs cost."""

    def __init__(self) -> None:
        self.runs = 0
        self.updates = 0.0
        self.seconds = 0.0

    def add(self, world: World, entry: Entry, value: Any, share: float) -> None:
        """Count one run."""
        rounds = entry.rounds(world, value, share)
        spent = rounds * entry.per_round(world, value)
        name = world.network
        self.runs += 1
        self.updates += spent
        self.seconds += PER_RUN + OVERHEAD * spent * MILLISECONDS[name] / 1000

    def cost(self) -> Cost:
        """All of it."""
        return Cost(self.runs, round(self.updates), self.seconds / 3600)


TABLES: dict[str, Callable[[str], list[Task]]] = {
    "tuning": tuning,
    "ranking": ranking,
}
