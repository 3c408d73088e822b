"""Which classes the clients of the tables hold, and what these alone can do.

The deals follow from data and seed, so no training is needed:
``python -m fednb.papers.wecfl`` deals them again and writes two files into
``book/results/wecfl``. ``classes.json`` has the counts of Figures 1 and 6.
``majority.json`` has the scores of always answering a client's most frequent class, a
control that has learned nothing about images: for each deal of Tables 2 and 5 at laptop
scale, and for five deals of each law at the paper's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import data, partition
from ...sweeps import Task, commit
from ..common import majority_scores, results
from .tasks import SCALES, TABLES, TRAIN_ROWS, labels_in_some_order, law

if TYPE_CHECKING:
    from pandas import DataFrame

DATASET = "fashion_mnist"
# the four laws of section 7.1; the first also for the seeds of the geometry's runs
SEEDS = {"α = (0.1, 10)": (0, 1, 2), "(3, 2)-class": (0,), "α = 0.1": (0,),
         "2-class": (0,)}  # fmt: skip
MAJORITY = "Majority class"
DEALT = ("table2_alpha", "table2_class", "table5_alpha", "table5_class")
CLASSES = 10


def deal(setting: str, seed: int, y: np.ndarray) -> dict[str, Any]:
    """One deal at laptop scale: its counts (K, classes) of training samples."""
    part = law(SCALES["laptop"], setting)(y, seed=seed)
    counts = partition.class_counts(part.train, y, 10)
    truth = part.truth
    if truth is not None:
        truth = truth.tolist()
    return {"setting": setting, "seed": seed, "truth": truth, "counts": counts.tolist()}


def write(path: str | Path) -> None:
    """Deal all again, and write what clients hold; a line for each deal."""
    dataset = data.load(DATASET)
    y = dataset.y[: dataset.n_train]
    record = {
        "what": "training samples of each client and class, laptop scale",
        "command": "python -m fednb.papers.wecfl",
        "commit": commit(),
        "data_sha256": {DATASET: dataset.sha256},
    }
    found = [deal(setting, seed, y) for setting in SEEDS for seed in SEEDS[setting]]
    _write(path, record, found)


def _write(path: str | Path, record: dict[str, Any], found: list[dict]) -> None:
    """A file with some facts and a line for each deal."""
    lines = ",\n  ".join(json.dumps(line, ensure_ascii=False) for line in found)
    head = json.dumps(record, indent=1).removesuffix("\n}")
    text = f'{head},\n "deals": [\n  {lines}\n ]\n}}\n'
    Path(path).write_text(text, encoding="utf-8")


def read() -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray | None]]:
    """Counts (K, classes) and hidden groups (K,) of each setting and seed."""
    path = results("wecfl") / "classes.json"
    found = {}
    for line in json.loads(path.read_text(encoding="utf-8"))["deals"]:
        truth = line["truth"]
        if truth is not None:
            truth = np.array(truth)
        place = (line["setting"], line["seed"])
        found[place] = (np.array(line["counts"]), truth)
    return found


def classes_per_model(counts: np.ndarray, labels: np.ndarray) -> float:
    """How many classes the model of a client has to tell apart, the mean over samples.

    ``counts`` (K, classes) are the clients' samples, ``labels`` (K,) their clusters. A
    model with c equally frequent classes counts c; in general it is the exponential of
    their entropy.
    """
    total = 0.0
    for cluster in np.unique(labels):
        samples = counts[labels == cluster].sum(0)  # (classes,)
        shares = samples[samples > 0] / samples.sum()
        total += samples.sum() * np.exp(-(shares * np.log(shares)).sum())
    return float(total / counts.sum())


# --- always answering the majority class ----------------------------------------------


def dealt_counts(
    task: Task, y: np.ndarray, y_test: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Training and test samples of each client and class in a task's deal."""
    parts = task.deal(y, y_test)
    both = np.concatenate([y, y_test])
    return tuple(
        partition.class_counts(part, both, CLASSES)
        for part in (parts.train, parts.test)
    )


def whole(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Classes of the training and test images of a whole data set, in some order.

    All classes have equally many images, and how many of them a client gets does not
    depend on the order.
    """
    return labels_in_some_order(TRAIN_ROWS[dataset]), labels_in_some_order(10_000)


def write_majority(path: str | Path) -> None:
    """Deal the tables again, and write what the majority class gets in each deal."""
    files = {}
    found = []
    for profile in ("laptop", "paper"):
        for name in SCALES[profile].models:
            if profile == "paper":
                y, y_test = whole(name)
            else:
                dataset = data.load(name)
                files[name] = dataset.sha256
                y = dataset.y[: dataset.n_train]
                y_test = dataset.y[dataset.n_train :]
            for task in _deals(profile, name):
                scores = majority_scores(*dealt_counts(task, y, y_test))
                line = {
                    "profile": profile,
                    "dataset": name,
                    "setting": task.tags["setting"],
                    "seed": task.seed,
                }
                found.append(line | {k: round(v, 6) for k, v in scores.items()})
    record = {
        "what": "always answering a client's most frequent class",
        "command": "python -m fednb.papers.wecfl",
        "commit": commit(),
        "data_sha256": files,
    }
    _write(path, record, found)


def _deals(profile: str, dataset: str) -> list[Task]:
    """One task for each deal of Tables 2 and 5."""
    return [
        task
        for table in DEALT
        for task in TABLES[table](profile)
        if task.dataset == dataset and task.tags["row"] == "FedAvg"
    ]


def read_majority(profile: str) -> DataFrame:
    """One line per deal of Tables 2 and 5, with the tags of a row of theirs."""
    import pandas as pd

    path = results("wecfl") / "majority.json"
    lines = json.loads(path.read_text(encoding="utf-8"))["deals"]
    frame = pd.DataFrame([line for line in lines if line["profile"] == profile])
    return frame.assign(row=MAJORITY, K=0, client_updates=0, bytes=0)
