"""Small federations that every test can afford."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import settings

from fednb import models
from fednb.data import Dataset
from fednb.federation import CLIENT, Federation
from fednb.partition import Partition
from fednb.training import Local, plan

settings.register_profile("fednb", deadline=None)  # a busy machine is no failure
settings.load_profile("fednb")

torch.set_num_threads(1)


def blobs(samples=120, shape=(1, 4, 4), classes=3, seed=0, test=30) -> Dataset:
    """Gaussian classes: learnable in a few steps, of any image shape."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=samples + test)
    centres = rng.normal(size=(classes, *shape)) * 2
    x = (centres[y] + rng.normal(size=(samples + test, *shape))).astype(np.float32)
    return Dataset(
        name="blobs",
        x=x,
        y=y,
        n_train=samples,
        classes=classes,
        sha256="0" * 64,
        note="",
        mean=None,
        std=None,
    )


def ragged(sizes, tests=4, truth=None) -> Partition:
    """Consecutive blocks of the given sizes, each with a few test samples of its own
    after it.
    """
    edges = np.cumsum([0, *[s + tests for s in sizes]])
    train = [np.arange(a, b - tests) for a, b in zip(edges, edges[1:], strict=False)]
    test = [np.arange(b - tests, b) for b in edges[1:]]
    return Partition(train, test, None if truth is None else np.asarray(truth))


NETWORKS = {
    "mlp": ((1, 4, 4), lambda: models.mlp(16, (8,), 3)),
    "lenet5": ((3, 16, 16), lambda: models.lenet5((3, 16, 16), 3)),
    "cnn_bn": ((1, 8, 8), lambda: models.cnn_bn((1, 8, 8), 3)),
}


def federation(
    network="mlp", sizes=(9, 14, 7, 20), *, truth=None, local=None, **options
) -> Federation:
    shape, model = NETWORKS[network]
    data = blobs(samples=sum(sizes) + 4 * len(sizes), shape=shape)
    local = local or Local(lr=0.05, batch_size=5)
    return Federation(data, ragged(sizes, truth=truth), model, local=local, **options)


def held(fed, client, on="test"):
    """Inputs and targets of a client's samples."""
    return fed.samples(fed.sample_numbers([client], on))


def batches(fed, client, visit=0):
    """The plan of a client's training in its first, second, ... round."""
    stream = np.random.default_rng([fed.seed, CLIENT, client, visit])
    return plan(fed.sample_numbers([client], "train").numpy(), fed.local, stream)


@pytest.fixture
def make_federation():
    return federation


@pytest.fixture
def make_local():
    return partial(Local, lr=0.05, batch_size=5)
