"""Loading: any data set by its name."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from ..partition import Partition, match_test
from .catalogue import check_name
from .dataset import Dataset
from .drawn import GENERATORS, generate
from .photographs import load_found


def load(name: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load a data set by name.

    It comes from `root` or `$FEDNB_DATA`, the cache, or the network (see `fednb.data`).
    The last few sets stay in memory, so that loading again is free; their arrays are
    read-only for that reason.
    """
    check_name("load", name)
    if name.partition("(")[0] in GENERATORS:
        return generate(name)[0]
    return load_found(name, root)


def with_official_tests(
    y: np.ndarray,
    name: str,
    law: Callable[..., Partition],
    keep: int = 0,
    *,
    seed: int = 0,
) -> Partition:
    """Deal by a law, and give each client official test samples of the set `name`.

    A law for `Task`, next to `dataset=name`: `partition.match_test` with at least
    `keep` samples of each class left for the server.
    """
    dataset = load(name)
    if not np.array_equal(y, dataset.y[: dataset.n_train]):
        raise ValueError(
            f"these {np.size(y)} labels are not those of {name!r}: load that data set"
        )
    y_test = dataset.y[dataset.n_train :]
    return match_test(law(y, seed=seed), y, y_test, seed=seed, keep=keep)
