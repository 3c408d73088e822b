"""What label shares alone can do: always answering a client's majority class.

Where clients differ in their labels, a model that has learned nothing about images but
knows its client's most frequent class is often right. The deals of the tables decide
how often, so no training is needed: ``python -m fednb.papers.gcfl`` deals them again
and writes ``book/results/gcfl/majority.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import partition
from ...sweeps import Task, commit
from ..common import majority_scores, results
from .tasks import TABLES

if TYPE_CHECKING:
    from pandas import DataFrame

ROW = "Majority class"
DEALT = {  # tables that deal the data anew, by their profile
    "table2_cifar10": "laptop",
    "table2_mnist": "laptop",
    "table3_medium": "laptop",
    "table3_large": "laptop",
    "laws": "laptop",
    "local_parts": "laptop",
    "twenty_a_round": "laptop",
    "epochs": "workstation",
}
PLACE = ["dataset", "profile", "scale", "setting", "seed"]  # what makes a deal
SCORES = ("accuracy", "balanced_accuracy", "macro_f1")


def unlikeness(train: np.ndarray) -> float:
    """How unlike two clients' label shares are, mean of all pairs: 0 alike, 1 disjoint.

    This is the total-variation distance; ``train`` counts samples, (K, classes).
    """
    shares = train / train.sum(1, keepdims=True)
    gaps = np.abs(shares[:, None] - shares[None]).sum(2) / 2  # (K, K)
    return float(gaps[np.triu_indices(len(train), 1)].mean())


def deal(task: Task) -> dict[str, Any]:
    """One deal of a table: its tags, and what its label shares alone give."""
    dataset = task.load()
    y = dataset.y[: dataset.n_train]
    parts = task.deal(y, dataset.y[dataset.n_train :])
    train = partition.class_counts(parts.train, y, dataset.classes)
    test = partition.class_counts(parts.test, y, dataset.classes)
    line: dict[str, Any] = {
        "dataset": task.dataset,
        "profile": task.profile,
        "scale": task.tags["scale"],
        "setting": task.tags["setting"],
        "seed": task.seed,
        "unlikeness": unlikeness(train),
    }
    scores = majority_scores(train, test)
    line |= {name: scores[name] for name in SCORES}
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}


def deals(tasks: Iterable[Task]) -> list[Task]:
    """One task for each deal."""
    found: dict[tuple, Task] = {}
    for task in tasks:
        tags = task.tags
        place = (task.dataset, task.profile, tags["scale"], tags["setting"], task.seed)
        found.setdefault(place, task)
    return list(found.values())


def write(path: str | Path) -> None:
    """Deal all tables again, and write what their label shares alone give."""
    tasks = deals(
        task for name, profile in DEALT.items() for task in TABLES[name](profile)
    )
    data = {task.dataset: task.load().sha256 for task in tasks}
    record = {
        "what": "always answering a client's majority class, and how unlike clients "
        "are",
        "command": "python -m fednb.papers.gcfl",
        "commit": commit(),
        "data_sha256": data,
    }
    lines = ",\n  ".join(json.dumps(deal(task)) for task in tasks)
    head = json.dumps(record, indent=1).removesuffix("\n}")
    text = f'{head},\n "deals": [\n  {lines}\n ]\n}}\n'
    Path(path).write_text(text, encoding="utf-8")


def read() -> DataFrame:
    """One line per deal of the tables."""
    import pandas as pd

    path = results("gcfl") / "majority.json"
    return pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))["deals"])


def beside(runs: DataFrame) -> DataFrame:
    """The runs, with a row for the majority class in each of their deals."""
    import pandas as pd

    places = runs[PLACE].drop_duplicates()
    found = places.merge(read(), on=PLACE).assign(row=ROW, client_updates=0, bytes=0)
    found["late"] = found["accuracy"]  # the same in every round
    if len(found) < len(places):
        raise ValueError(
            f"majority.json lacks {len(places) - len(found)} of {len(places)} deals: "
            "make it with python -m fednb.papers.gcfl"
        )
    facts = runs[["dataset", "data_note"]].drop_duplicates("dataset")
    return pd.concat([runs, found.merge(facts, on="dataset")], ignore_index=True)
