"""How long a sweep will take: told from records where there are some.

A run that is left to do takes as long as

1. recorded runs of the same kind, which differ from it in the seed only, or the old
   record that stands in for it until it is done again;
2. runs of the same method in the same *setting* (data set, network, local work, number
   of clients and of samples), by seconds per round;
3. runs of any method in the same setting, by seconds per client update;
4. one round, tried now: one trial for a setting, not for every run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import store
from .door import num_sampled
from .identity import digest, integer_in, name_in
from .sweeps import Task

Record = dict[str, Any]
Seconds = dict[Any, list[float]]

TYPICAL_BYTES = 2000.0  # of a record, if there is none to look at


class Forecast(NamedTuple):
    """What a sweep has before it."""

    runs: int
    done: int
    seconds: float  # of one worker, for the runs that are left
    alike: int  # runs whose time is that of recorded runs of the same kind
    estimated: int  # runs whose time follows from other runs in the same setting
    guessed: int  # runs whose time follows from a trial of one round
    bytes: int  # of the table's file, in the end

    def __str__(self) -> str:
        left = self.runs - self.done
        return (
            f"{self.runs} runs, {self.done} recorded, {left} to do: about "
            f"{self.seconds / 3600:.2f} core hours ({self.alike} runs by records of "
            f"their kind, {self.estimated} by records in their setting, {self.guessed} "
            f"by a trial of one round); about {self.bytes / 1000:.0f} kB of records"
        )


def forecast(
    tasks: Iterable[Task],
    path: str | Path,
    known: Iterable[tuple[str, Record]] | None = None,
) -> Forecast:
    """Tell how many runs are left, and how long one worker would need for them.

    ``path`` is the table's file, in which records may be already. ``known`` are records
    whose times count too, see :func:`known_records`; those of all tables beside the
    file by default.
    """
    path = Path(path)
    tasks = list({task.key: task for task in tasks}.values())
    done = store.finished(path)
    todo = [task for task in tasks if task.key not in done]
    if known is None:
        known = known_records(path.parent)
    times = Times([*known, *done.items()])
    seconds = sum(times.of(task) for task in todo)
    sizes = [len(str(record)) for record in done.values()]
    usual = times.usual_bytes
    if sizes:
        usual = float(np.mean(sizes))
    return Forecast(
        runs=len(tasks),
        done=len(tasks) - len(todo),
        seconds=seconds,
        alike=times.alike,
        estimated=times.estimated,
        guessed=times.guessed,
        bytes=int(sum(sizes) + usual * len(todo)),
    )


def known_records(*folders: Path) -> list[tuple[str, Record]]:
    """Records of all tables in some folders, each with the key that it counts for.

    An old record counts for itself and for every run that it stands in for.
    """
    found: list[tuple[str, Record]] = []
    for folder in dict.fromkeys(folders):
        records: dict[str, Record] = {}
        for file in sorted(folder.glob("*.json")):
            with contextlib.suppress(store.StoreError):  # a file of something else
                records |= {record["key"]: record for record in store.read(file)}
        found += records.items()
        for key, note in store.read_pending(folder).items():
            if note["stands_in"] in records:
                found.append((key, records[note["stands_in"]]))
    return found


class Times:
    """Seconds that runs take, from records; trials fill the gaps."""

    def __init__(self, known: Iterable[tuple[str, Record]]) -> None:
        self.by_key: Seconds = {}
        self.by_kind: Seconds = {}
        self.per_round: Seconds = {}  # by setting and method
        self.per_update: Seconds = {}  # by setting
        self.per_trial: dict[Any, float] = {}  # by setting: seconds per client update
        self.alike = 0
        self.estimated = 0
        self.guessed = 0
        sizes = []
        for key, record in known:
            self._learn(key, record)
            sizes.append(len(str(record)))
        self.usual_bytes = TYPICAL_BYTES
        if sizes:
            self.usual_bytes = float(np.mean(sizes))

    def _learn(self, key: str, record: Record) -> None:
        spec = {name: record[name] for name in store.SPEC if name in record}
        seconds = record["seconds"]
        where = setting(spec)
        self.by_key.setdefault(key, []).append(seconds)
        self.by_kind.setdefault(kind(spec), []).append(seconds)
        per_round = self.per_round.setdefault((where, method_name(spec)), [])
        per_round.append(seconds / max(record["rounds"], 1))
        if record["client_updates"]:
            per_update = self.per_update.setdefault(where, [])
            per_update.append(seconds / record["client_updates"])

    def of(self, task: Task) -> float:
        """Seconds that a run will take, by the best source there is."""
        spec = task.spec()
        alike = self.by_key.get(task.key) or self.by_kind.get(kind(spec))
        if alike:
            self.alike += 1
            return float(np.median(alike))
        where = setting(spec)
        per_round = self.per_round.get((where, method_name(spec)))
        if per_round:
            self.estimated += 1
            return float(np.median(per_round)) * task.rounds
        updates = updates_per_round(task, spec)
        per_update = self.per_update.get(where)
        if per_update and updates is not None:
            self.estimated += 1
            return float(np.median(per_update)) * updates * task.rounds
        self.guessed += 1
        if updates is None:  # only a trial of this very method tells
            where = (where, method_name(spec))
            updates = 1
        if where not in self.per_trial:
            self.per_trial[where] = seconds_of_a_round(task) / updates
        return self.per_trial[where] * updates * task.rounds


def kind(spec: dict[str, Any]) -> str:
    """Hash of a spec without its seed: runs that differ in the seed only share it."""
    spec = {name: value for name, value in spec.items() if name != "seed"}
    if method_name(spec) == "FixedClusters":  # random members are drawn by the seed
        spec["method"] = "FixedClusters"
    spec["dataset"] = _without_seed(spec["dataset"])
    spec["partition"] = _without_seed(spec["partition"])
    return digest(spec)


def setting(spec: dict[str, Any]) -> tuple[Any, ...]:
    """What decides how long a client's update takes."""
    return (
        _without_seed(spec["dataset"]),
        spec["model"],
        spec["local"],
        integer_in(spec["partition"], "clients"),
        integer_in(spec["partition"], "samples"),
    )


def method_name(spec: dict[str, Any]) -> str:
    """A method without its settings: ``IFCA`` for ``IFCA@2(clusters=10)``."""
    return name_in(spec["method"])


def updates_per_round(task: Task, spec: dict[str, Any]) -> int | None:
    """How many clients train in a round, if each does so once; None if unknown."""
    clients = integer_in(spec["partition"], "clients")
    if clients is None or method_name(spec) == "Arms":  # several methods in one
        return None
    return num_sampled(getattr(task.method, "sampled", 1.0), clients)


def seconds_of_a_round(task: Task) -> float:
    """Time the second round of a run: the first one has start-up costs.

    On a CPU in processor time, which does not count what other programs took.
    """
    fed = task.federation()
    clock = time.perf_counter
    if fed.device.type == "cpu":
        clock = time.process_time
    state = task.method.init(fed)
    elapsed = 0.0
    for t in range(min(2, task.rounds)):
        fed.t = t
        begun = clock()
        state = task.method.step(state, fed, t)
        elapsed = clock() - begun
    begun = clock()
    task.measure(fed, state)
    judging = clock() - begun
    return elapsed + judging / task.every


def _without_seed(text: str) -> str:
    return text.partition("seed=")[0]
