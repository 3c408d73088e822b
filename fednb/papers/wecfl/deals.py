"""Which classes the clients of the tables hold: Figures 1 and 6, and their clusters.

The deals follow from data and seed, so no training is needed:
``python -m fednb.papers.wecfl`` deals them again and writes
``book/results/wecfl/classes.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ... import data, partition
from ...experiment import commit
from ..common import results
from .tasks import SCALES, law

DATASET = "fashion_mnist"
# the four laws of section 7.1; the first also for the seeds of the geometry's runs
SEEDS = {"α = (0.1, 10)": (0, 1, 2), "(3, 2)-class": (0,), "α = 0.1": (0,),
         "2-class": (0,)}  # fmt: skip


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
