"""What label shares alone can do: constant answers, without a look at any image.

Clients of these tables hold few classes, and are tested on these only. Who knows a
client's most frequent class is often right. That is a personal answer, which no shared
model can give; a cluster has one answer for all its members. Deals and clusters decide
how good both are, so no training is needed: ``python -m fednb.papers.fedgwc majority``
deals again and writes ``book/results/fedgwc/majority.json``.

Among the deals is CIFAR-100 at the paper's own scale, dealt anew by the law of the
released code, and FEMNIST with the other reading of α = 0.01, as one for each class.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import metrics, partition, tables
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
PER_CLASS = "emnist, α per class"  # 47 times 0.01 is the law's total then
CLUSTERED = ("longer", "untested")  # tables with one answer for each cluster found


def deals(table: str) -> list[Task]:
    """One task for each deal of a table."""
    if table == PER_CLASS:
        law = partial(partition.dirichlet, alpha=0.47, clients=400, test=0.0)
        return [replace(task, partition=law) for task in deals("emnist")]
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


def counts(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """How many samples of each class clients hold for training and tests, (K, C)."""
    y, y_test = labels(task)
    parts = task.deal(y, y_test)
    both = np.concatenate([y, y_test])
    classes = int(both.max()) + 1
    train = partition.class_counts(parts.train, both, classes)
    test = partition.class_counts(parts.test, both, classes)
    return train, test


def deal(table: str, task: Task) -> dict[str, Any]:
    """One deal: where it belongs, and what its label shares alone give."""
    train, test = counts(task)
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


def one_answer(train: np.ndarray, test: np.ndarray, clusters: np.ndarray) -> float:
    """Balanced accuracy if each cluster always gives the single answer best for it.

    The best by its members' training samples (K, C), of equal ones the most frequent;
    the score is over tests (K, C).
    """
    held = (train > 0) / (train > 0).sum(1, keepdims=True)  # a class's worth to each
    asked = (test > 0) / (test > 0).sum(1, keepdims=True)
    shares = train / train.sum(1, keepdims=True)
    scores = np.zeros(len(train))
    for cluster in np.unique(clusters):
        members = clusters == cluster
        answer = (held + 1e-6 * shares)[members].sum(0).argmax()
        scores[members] = asked[members, answer]
    return float(scores.mean())


def clustered() -> list[dict[str, Any]]:
    """The best constant answers of the clusters at the end of CIFAR-100's long runs."""
    lines = []
    for table in CLUSTERED:
        records = tables.by_key(results("fedgwc") / f"{table}.json")
        for task in TABLES[table]("laptop"):
            if task.tags.get("setting", "α = 0.5") != "α = 0.5":
                continue
            curves = records[task.key]["metrics"]["curves"]
            found = np.array(curves["labels"][-1])
            line = {"table": table, "row": task.tags["row"], "seed": task.seed}
            line["one_answer"] = round(one_answer(*counts(task), found), 6)
            lines.append(line)
    return lines


def write(path: str | Path) -> None:
    """Deal all tables again, and write what their label shares alone give."""
    dealt = [(table, task) for table in (*DEALT, PER_CLASS) for task in deals(table)]
    files = {}
    for table, task in dealt:
        if table != "cifar100":  # the paper's, of which labels are known without it
            files[task.dataset] = task.load().sha256
    record = {
        "what": "always answering a client's most frequent class, or a cluster's best",
        "command": "python -m fednb.papers.fedgwc majority",
        "commit": commit(),
        "data_sha256": files,
    }
    parts = {
        "deals": [deal(table, task) for table, task in dealt],
        "clusters": clustered(),
    }
    text = json.dumps(record, indent=1).removesuffix("\n}")
    for name, lines in parts.items():
        inside = ",\n  ".join(json.dumps(line) for line in lines)
        text += f',\n "{name}": [\n  {inside}\n ]'
    Path(path).write_text(text + "\n}\n", encoding="utf-8")


def read(table: str) -> DataFrame:
    """One line per deal of a table, as a row of it."""
    frame = _stored("deals")
    return frame[frame["table"] == table].assign(row=ROW, client_updates=0)


def read_clusters() -> DataFrame:
    """One line per run: the best constant answers of its clusters."""
    return _stored("clusters")


def _stored(part: str) -> DataFrame:
    import pandas as pd

    path = results("fedgwc") / "majority.json"
    return pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))[part])
