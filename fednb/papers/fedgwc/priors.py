"""What label shares alone can do: always answering a client's majority class.

Clients of these tables hold few classes, and are tested on these only. Who knows a
client's most frequent class, and nothing about images, is often right. The deals of the
tables decide how often, so no training is needed: ``python -m fednb.papers.fedgwc
majority`` deals them again and writes ``book/results/fedgwc/majority.json``. The
paper's own deal of CIFAR-100 is among them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import metrics, partition
from ...sweeps import Task, commit
from ..common import majority_scores, results
from .tasks import TABLES

if TYPE_CHECKING:
    from pandas import DataFrame

ROW = "Majority class"
DEALT = {  # tables that deal the data anew, by their profile
    "longer": "laptop",
    "heterogeneity": "laptop",
    "emnist_small": "laptop",
    "emnist": "paper",
    "cifar100": "paper",
}


def deals(table: str) -> list[Task]:
    """One task for each deal of a table."""
    found: dict[tuple, Task] = {}
    for task in TABLES[table](DEALT[table]):
        place = (task.dataset, task.tags.get("setting"), task.seed)
        found.setdefault(place, task)
    return list(found.values())


def labels(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Labels for training and the test ones of a task's data.

    Of the whole CIFAR-100 in some order: its classes have equally many images, and how
    many of each a client gets depends on nothing else.
    """
    if task.dataset == "cifar100" and task.profile == "paper":
        return np.arange(50_000) % 100, np.arange(10_000) % 100
    dataset = task.load()
    return dataset.y[: dataset.n_train], dataset.y[dataset.n_train :]


def deal(table: str, task: Task) -> dict[str, Any]:
    """One deal: where it belongs, and what its label shares alone give."""
    y, y_test = labels(task)
    parts = task.deal(y, y_test)
    both = np.concatenate([y, y_test])
    classes = int(both.max()) + 1
    train = partition.class_counts(parts.train, both, classes)
    test = partition.class_counts(parts.test, both, classes)
    confusion = metrics.majority_confusion(train, test)
    released = metrics.share_weighted_accuracy(confusion, train)
    line = {
        "table": table,
        "dataset": task.dataset,
        "setting": task.tags.get("setting", ""),
        "seed": task.seed,
        "classes_held": float(np.mean((train > 0).sum(1))),
        "balanced_released": metrics.average(released),
    }
    line |= majority_scores(train, test)
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}


def write(path: str | Path) -> None:
    """Deal all tables again, and write what their label shares alone give."""
    dealt = [(table, task) for table in DEALT for task in deals(table)]
    files = {}
    for table, task in dealt:
        if table != "cifar100":  # the paper's, of which labels are known without it
            files[task.dataset] = task.load().sha256
    record = {
        "what": "always answering a client's most frequent class",
        "command": "python -m fednb.papers.fedgwc majority",
        "commit": commit(),
        "data_sha256": files,
    }
    lines = ",\n  ".join(json.dumps(deal(table, task)) for table, task in dealt)
    head = json.dumps(record, indent=1).removesuffix("\n}")
    text = f'{head},\n "deals": [\n  {lines}\n ]\n}}\n'
    Path(path).write_text(text, encoding="utf-8")


def read(table: str) -> DataFrame:
    """One line per deal of a table, as a row of it."""
    import pandas as pd

    path = results("fedgwc") / "majority.json"
    frame = pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))["deals"])
    return frame[frame["table"] == table].assign(row=ROW, client_updates=0)
