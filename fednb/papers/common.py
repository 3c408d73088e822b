"""What the papers' packages share: where records lie, and how their tables are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import metrics, partition, tables
from ..claims import Claim, tally, write
from ..store import results

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame
    from torch import Tensor

    from ..sweeps import Task

Law = Callable[..., partition.Partition]
Table = Callable[[str], "list[Task]"]  # from a profile to its tasks
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # clusters, a character for each


def read(paper: str, table: str, tasks: Iterable[Task], **how: Any) -> DataFrame:
    """The records of a table's tasks as a frame: see `fednb.tables.frame`."""
    return tables.frame(tasks, results(paper) / f"{table}.json", **how)


def only_in(profiles: Iterable[str], tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables, with tasks in these profiles only; in the others they have none."""
    profiles = tuple(profiles)
    return {name: partial(_tasks, profiles, make) for name, make in tables.items()}


def _tasks(profiles: tuple[str, ...], make: Table, profile: str) -> list[Task]:
    if profile not in profiles:
        return []
    return make(profile)


def limited(law: Law, samples: int | None) -> Law:
    """The law, dealing so many samples of the training pool only; None: all of them."""
    if samples is None:
        return law
    return partial(partition.subset, law=law, samples=samples)


def write_verdicts(paper: str, claims: Iterable[Claim]) -> dict[str, int]:
    """Write a paper's verdicts beside its records, and count them."""
    claims = list(claims)
    write(results(paper) / "verdicts.json", claims)
    return tally(claim for claim in claims if not claim.ours)


def as_text(labels: Tensor | np.ndarray) -> str:
    """Labels (K,) below 36 as a text with a character for each client."""
    return "".join(DIGITS[label] for label in labels.tolist())


def number_table(heads: list[str], rows: list[list[str]], caption: str) -> tables.Table:
    """A small table of numbers, with a caption; long heads take several lines."""
    table = tables.words(heads, rows, caption, kind="numbers")
    heads_wrap = ".fednb-table.fednb-table-numbers th { white-space: normal; }"
    return tables.Table(f"<style>{heads_wrap}</style>{table.html}", table.text)


# --- always answering a client's majority class ---------------------------------------


def majority_scores(train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    """Scores of always answering a client's most frequent training class.

    Means over clients. ``train`` and ``test`` count a client's samples of each class,
    (K, classes).
    """
    confusion = metrics.majority_confusion(train, test)
    accuracy = metrics.accuracy(confusion)  # (K,)
    union = metrics.macro_f1(confusion, over="union")
    return {
        "accuracy_weighted": metrics.average(accuracy, test.sum(1)),
        "accuracy": metrics.average(accuracy),
        "balanced_accuracy": metrics.average(metrics.balanced_accuracy(confusion)),
        "macro_f1": metrics.average(metrics.macro_f1(confusion, over="true")),
        "macro_f1_union": metrics.average(union),
    }
