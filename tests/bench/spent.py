"""``python -m tests.bench profile``: where the time of a laptop run goes.

One run for each paper, of its own method, in the first table that has one: CPU seconds
on one thread, by what they were spent on. With ``--rounds`` the first so many are
measured and stand for all; start-up is counted once. A run of one round before it maps
the data, as the first run of a sweep's worker does; what is imported late is imported
before. The table is printed and written to ``spent.json`` beside this file.
"""

import argparse
import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sklearn.cluster  # noqa: F401  # methods import it when they first cluster
import torch

from fednb import backends, engines, federation, store, sweeps
from fednb.papers import CATALOGUE
from fednb.sweeps import Task

FILE = Path(__file__).with_suffix(".json")
METHODS = {
    "wecfl": "WeCFL",
    "fedgwc": "FedGWC",
    "ocfl": "OCFL",
    "fedcvr_bolt": "FedCVRBolt",
    "gcfl": "GCFL",
}
PARTS = ("training", "evaluation", "clustering", "start-up", "input and output")
ONCE = ("start-up", "input and output")  # not in every round


class Clock:
    """CPU seconds by part; a part inside another one is not counted there."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys((*PARTS, "the rest"), 0.0)
        self._inside: list[float] = []  # seconds of the parts within each open one

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside."""
        start = time.process_time()
        self._inside.append(0.0)
        try:
            yield
        finally:
            whole = time.process_time() - start
            self.spent[name] += whole - self._inside.pop()
            if self._inside:
                self._inside[-1] += whole

    def timed(self, name: str, function: Callable) -> Callable:
        """The function, counted as a part."""

        @functools.wraps(function)
        def call(*args: Any, **words: Any) -> Any:
            with self.part(name):
                return function(*args, **words)

        return call


@contextmanager
def watched(clock: Clock, method: type) -> Iterator[None]:
    """Count the parts of all runs inside, by wrapping the functions they go through."""
    run = sweeps.run

    def run_with_timed_measure(*args: Any, measure: Callable, **words: Any) -> Any:
        return run(*args, measure=clock.timed("evaluation", measure), **words)

    wrapped: list[tuple[Any, str, Callable]] = [
        (sweeps, "run", run_with_timed_measure),
        *(
            (owner, name, clock.timed(part, getattr(owner, name)))
            for owner, name, part in (
                (backends.Lean, "train", "training"),
                (backends.Batched, "train", "training"),
                (federation.Federation, "loss", "evaluation"),
                (federation.Federation, "best_share", "evaluation"),
                (federation.Federation, "predict", "evaluation"),
                (method, "step", "clustering"),
                (Task, "federation", "start-up"),
                (store, "save_checkpoint", "input and output"),
                (store, "write_run", "input and output"),
                (store, "beat", "input and output"),
            )
        ),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in wrapped]
    for owner, name, function in wrapped:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def typical(paper: str) -> tuple[str, Task]:
    """The first laptop run of a paper's own method, and the table that it is in."""
    for table, make in CATALOGUE[paper].items():
        for task in make("laptop"):
            if type(task.method).__name__ == METHODS[paper]:
                return table, replace(task, options={**task.options, "workers": 1})
    raise LookupError(f"{paper} has no laptop run of {METHODS[paper]}")


def profile(paper: str, rounds: int) -> dict[str, Any]:
    """Seconds of each part of a whole run, from its first rounds."""
    table, task = typical(paper)
    short = replace(task, rounds=min(rounds, task.rounds), last=1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        sweeps.attempt(replace(short, rounds=1), Path(folder))
        with watched(clock, type(task.method)), clock.part("the rest"):
            outcome = sweeps.attempt(short, Path(folder))
    if isinstance(outcome, engines.Failure):
        raise RuntimeError(outcome.why)
    times = task.rounds / short.rounds
    seconds = {
        name: spent if name in ONCE else spent * times
        for name, spent in clock.spent.items()
    }
    whole = sum(seconds.values())
    return {
        "table": table,
        "rounds": task.rounds,
        "measured": short.rounds,
        "seconds": round(whole, 2),
        "shares": {name: round(s / whole, 4) for name, s in seconds.items()},
    }


def table_of(found: dict[str, Any]) -> str:
    """The shares, for people."""
    names = (*PARTS, "the rest")
    lines = [
        f"| paper, table | CPU seconds | {' | '.join(names)} |",
        f"|---|---|{'---|' * len(names)}",
    ]
    for paper, entry in found.items():
        shares = " | ".join(f"{100 * entry['shares'][name]:.1f} %" for name in names)
        lines.append(
            f"| {paper}, {entry['table']} | {entry['seconds']:.0f} | {shares} |"
        )
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Profile the papers that are asked for, and write the table down."""
    parser = argparse.ArgumentParser("python -m tests.bench profile", None, __doc__)
    parser.add_argument("papers", nargs="*", default=METHODS)
    parser.add_argument("--rounds", type=int, default=10**6, help="at most")
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for paper in asked.papers:
        found[paper] = profile(paper, asked.rounds)
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(table_of(found))
