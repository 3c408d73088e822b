"""Dataset: samples and labels as arrays, and a set of your own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from .. import checks


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, the official training rows first; the arrays are read-only.

    `mean` and `std` are those of the training images per channel, pixels counted from 0
    to 1.
    """

    name: str
    x: np.ndarray = field(repr=False)  # (N, C, H, W) uint8, or real numbers
    y: np.ndarray = field(repr=False)  # (N,) int64; real numbers for a regression
    n_train: int  # rows [0, n_train) are for training, the others for the official test
    classes: int  # 0 for a regression
    sha256: str = ""  # of the npz file; without one, of the bytes of x and y
    note: str = ""  # what differs from the official set, "" if nothing
    mean: tuple[float, ...] | None = None  # (C,); None: x is used as it is
    std: tuple[float, ...] | None = None  # (C,)


def fingerprint(dataset: Dataset) -> str:
    """Return the sha256 of what a run takes from a data set, whatever its name.

    That is x and y (values, shapes, types), the number of training rows and classes,
    mean and std. Two data sets with one fingerprint give the same runs. The last few
    fingerprints of data sets with read-only arrays are remembered.
    """
    if _is_frozen(dataset.x) and _is_frozen(dataset.y):
        return _remembered_fingerprint(dataset)
    return compute_fingerprint(dataset)


def _is_frozen(array: Any) -> bool:
    return isinstance(array, np.ndarray) and not array.flags.writeable


def compute_fingerprint(dataset: Dataset) -> str:
    """What `fingerprint` returns, computed even if it is remembered."""
    total = hashlib.sha256()
    for name in ("x", "y"):
        array = np.asarray(getattr(dataset, name))
        if array.dtype.hasobject:
            raise ValueError(f"{name} holds Python objects: give an array of numbers")
        total.update(f"{name} {array.shape} {array.dtype.str}\n".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    total.update(f"{int(dataset.n_train)} {int(dataset.classes)}\n".encode())
    for values in (dataset.mean, dataset.std):
        if values is not None:
            values = np.asarray(values, np.float64).tolist()
        total.update(f"{values}\n".encode())
    return total.hexdigest()


# a Dataset is its own key
_remembered_fingerprint = lru_cache(maxsize=4)(compute_fingerprint)


def from_arrays(
    x: Any,
    y: Any,
    *,
    name: str = "own",
    n_train: int | None = None,
    classes: int | None = None,
) -> Dataset:
    """Make a data set of your own samples: arrays, tensors or columns of a table.

    Labels may be integers from 0, or words, which are numbered in sorted order (the
    note tells which is which). Real numbers as labels make a regression only if
    ``classes=0`` says so. Inputs reach the network as real numbers: a network that
    embeds token ids calls ``x.long()`` first. ``n_train`` is how many rows, from the
    first on, are dealt to clients; the others stay with the server.
    """
    checks.argument("from_arrays", "n_train", n_train, checks.optional(_COUNT))
    checks.argument("from_arrays", "classes", classes, checks.optional(_COUNT))
    inputs = _own_inputs(x)
    labels, note = _own_labels(y, regression=classes == 0)
    if len(inputs) != len(labels) or len(inputs) == 0:
        raise ValueError(
            f"from_arrays: {len(inputs)} rows of x, {len(labels)} of y: need as many, "
            "and at least one"
        )
    if classes is None:
        classes = int(labels.max()) + 1
    if n_train is None:
        n_train = len(inputs)
    if not 1 <= n_train <= len(inputs):
        raise ValueError(
            f"from_arrays(n_train={n_train}): there are {len(inputs)} rows"
        )
    inputs.setflags(write=False)
    labels.setflags(write=False)
    made = Dataset(name, inputs, labels, n_train=n_train, classes=classes, note=note)
    return replace(made, sha256=fingerprint(made))


_COUNT = checks.integer(0)


def _plain_array(values: Any) -> np.ndarray:
    """A copy of an array, a tensor or a table as an array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.array(values)


def _own_inputs(x: Any) -> np.ndarray:
    found = _plain_array(x)
    if found.dtype == object or found.dtype.kind not in "biuf" or found.ndim < 2:
        raise ValueError(
            f"from_arrays: x has type {found.dtype} and shape {found.shape}: need "
            "numbers, one row per sample; turn words into columns first "
            "(pandas.get_dummies)"
        )
    if found.dtype == np.float64:
        return found.astype(np.float32)
    return found


def _own_labels(y: Any, regression: bool) -> tuple[np.ndarray, str]:
    """Labels as int64 from 0 (real numbers for a regression), and a note on names."""
    found = _plain_array(y)
    if found.ndim != 1:
        raise ValueError(f"from_arrays: y has shape {found.shape}: need one per row")
    if found.dtype == object:
        gaps = {"None", "nan", "NaT", "<NA>"}
        missing = sum(not isinstance(v, str) and str(v) in gaps for v in found)
        if missing:
            raise ValueError(
                f"from_arrays: {missing} of {len(found)} labels are missing: drop "
                "these rows first (pandas: table.dropna())"
            )
        found = found.astype(str)
    if found.dtype.kind in "US":
        names, numbers = np.unique(found.astype(str), return_inverse=True)
        words = ", ".join(f"{i} = {name}" for i, name in enumerate(names[:20]))
        return numbers.astype(np.int64), f"classes: {words}"
    if found.dtype.kind == "f" and not regression:
        raise ValueError(
            f"from_arrays: y has type {found.dtype}: need integers or words for "
            "classes, or classes=0 for a regression"
        )
    if found.dtype.kind not in "biuf":
        raise ValueError(f"from_arrays: y has type {found.dtype}: need labels")
    if regression:
        return found.astype(np.float32), ""
    return found.astype(np.int64), ""
