"""The contract of a method, as a check that anyone can run.

``check(MyMethod())`` runs a method on small federations and raises ``ContractError``
with a sentence if it breaks one of the rules below; it returns their names if all hold.
Nothing has to be registered: a class from a notebook will do. The library's own tests
run the same checks over all of its methods::

    from fednb.contract import check

    check(TrimmedMean(trim=0.2))

A method sees a federation only through a door that has the verbs of a method and
nothing else: the truth about clusters and the samples of clients are not there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import models
from .data import Dataset
from .door import Fed
from .federation import Federation
from .partition import Partition
from .training import Local

SIZES = (9, 14, 7, 20, 11, 8)  # training samples of the six clients
TESTS = 4  # test samples of each
ROUNDS = 2
# What a method may ask of a federation: all that ``Fed`` has, and nothing else.
_names = {*Fed.__annotations__, *vars(Fed)}
DOOR = tuple(sorted(name for name in _names if not name.startswith("_")))

Make = Callable[[int], Any]  # a method for so many clients


class ContractError(AssertionError):
    """A method breaks a rule of the contract."""


def check(method: Any, rules: Sequence[str] | None = None) -> list[str]:
    """Hold a method to the contract; return the names of the rules that were checked.

    ``method`` is an instance. One that must know the number of clients, as
    ``FixedClusters`` does, is given as a function of it: ``check(lambda K: ...)``.
    ``rules`` names some of ``RULES`` to check no others. The first rule that is broken
    raises a ``ContractError``.
    """
    if isinstance(method, type):
        raise TypeError(f"check: {method.__name__} is a class; pass an instance of it")
    is_method = hasattr(method, "init") and hasattr(method, "step")
    if not is_method and not callable(method):
        raise TypeError(f"check: {method!r} is no method: it needs init and step")
    make = (lambda K: method) if is_method else method
    wanted = list(RULES) if rules is None else list(rules)
    for name in wanted:
        if name not in RULES:
            raise ValueError(f"check: no rule {name!r}; there are {', '.join(RULES)}")
        try:
            RULES[name](make)
        except ContractError as error:
            raise ContractError(f"{_name(make)} breaks {name!r}: {error}") from error
    return wanted


# --- the door -------------------------------------------------------------------------


class Door:
    """A federation as a method sees it: the names in ``DOOR``, and no others."""

    def __init__(self, fed: Federation) -> None:
        def look(name: str) -> Any:
            if name in DOOR:
                return getattr(fed, name)
            raise ContractError(
                f"it touched fed.{name}; a method may use {', '.join(DOOR)}"
            )

        object.__setattr__(self, "_Door__look", look)

    def __getattr__(self, name: str) -> Any:
        return self.__look(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ContractError(f"it set fed.{name}; a method changes nothing there")


def go(method: Any, fed: Federation, rounds: int = ROUNDS) -> Any:
    """Run a method for some rounds, through the door; return its last state."""
    door = Door(fed)
    state = method.init(door)
    for t in range(rounds):
        fed.t = t
        state = method.step(state, door, t)
        _check_state(state, fed)
    return state


# --- small federations ----------------------------------------------------------------


def _blobs(samples: int, shape: tuple[int, ...], classes: int = 3) -> Dataset:
    """Gaussian classes, learnable in a few steps; thirty more samples for the
    server.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=samples + 30)
    centres = rng.normal(size=(classes, *shape)) * 2
    x = centres[y] + rng.normal(size=(samples + 30, *shape))
    return Dataset("blobs", x.astype(np.float32), y, n_train=samples, classes=classes)


def _blocks(sizes: Sequence[int]) -> Partition:
    """Consecutive blocks of samples, each with a few test samples after it."""
    train = []
    test = []
    start = 0
    for size in sizes:
        train.append(np.arange(start, start + size))
        test.append(np.arange(start + size, start + size + TESTS))
        start += size + TESTS
    return Partition(train, test, None)


NETWORKS: dict[str, tuple[tuple[int, ...], Callable]] = {
    "mlp": ((1, 4, 4), lambda: models.mlp(16, (8,), 3)),
    "lenet5": ((3, 16, 16), lambda: models.lenet5((3, 16, 16), 3)),
    "cnn_bn": ((1, 8, 8), lambda: models.cnn_bn((1, 8, 8), 3)),
}


def federation(
    network: str = "mlp",
    sizes: Sequence[int] = SIZES,
    parts: Partition | None = None,
    **options: Any,
) -> Federation:
    """A small federation of clients with these numbers of samples."""
    shape, model = NETWORKS[network]
    data = _blobs(sum(sizes) + TESTS * len(sizes), shape)
    local = Local(lr=0.05, batch_size=5)
    parts = _blocks(sizes) if parts is None else parts
    return Federation(data, parts, model, local=local, **options)


def served(state: Any) -> Tensor:
    """The model each client gets, (K, D), whatever the clusters are called."""
    return state.theta[state.labels]


# --- the rules ------------------------------------------------------------------------


def frozen(make: Make) -> None:
    """A method is a frozen dataclass: its fields are its hyper-parameters."""
    method = make(len(SIZES))
    _need(dataclasses.is_dataclass(method), "it is no dataclass: add @dataclass")
    parameters = type(method).__dataclass_params__
    _need(parameters.frozen, "its fields can be changed: use @dataclass(frozen=True)")


def shapes(make: Make) -> None:
    """Every client is served by a finite row of theta, on networks of three kinds."""
    for network in NETWORKS:
        fed = federation(network)
        method = make(fed.K)
        first = method.init(Door(fed))
        state = go(method, fed)
        _need(fed.meter.updates > 0, "no client was trained in two rounds")
        moved = not torch.equal(served(state), served(first))
        _need(moved, f"after two rounds of {network} all models are what they were")


def reproducible(make: Make) -> None:
    """The same seed gives the same bits, another seed other ones."""
    method = make(len(SIZES))
    first = go(method, federation())
    again = go(method, federation())
    _need(_same(first, again), "two runs with one seed differ")
    other = go(method, federation(seed=1))
    same = first.theta.shape == other.theta.shape and torch.equal(
        first.theta, other.theta
    )
    _need(not same, "runs with different seeds are the same")


def pure(make: Make) -> None:
    """``step`` changes nothing that it was given."""
    fed = federation()
    method = make(fed.K)
    state = go(method, fed, 1)
    before = [s.clone() if isinstance(s, Tensor) else s for s in state]
    method.step(state, Door(fed), 1)
    _need(_same(state, before), "step changed the state that it was given")


def own_streams(make: Make) -> None:
    """Random numbers come from the federation, not from a global stream."""
    torch_stream = torch.get_rng_state()
    numpy_stream = _numpy_stream()
    go(make(len(SIZES)), federation())
    drew = not torch.equal(torch.get_rng_state(), torch_stream)
    _need(not drew, "it draws from torch's global stream: use fed.draw()")
    drew = not np.array_equal(_numpy_stream(), numpy_stream)
    _need(not drew, "it draws from numpy's global stream: use fed.draw()")


def permutation(make: Make) -> None:
    """Clients in another order, with their streams, get the same models."""
    method = make(len(SIZES))
    order = np.array([3, 0, 5, 1, 4, 2])
    parts = _blocks(SIZES)
    moved = Partition(
        [parts.train[k] for k in order], [parts.test[k] for k in order], None
    )
    original = go(method, federation(dtype=torch.float64))
    other = _permuted(method, order)
    permuted = go(other, federation(parts=moved, ids=order, dtype=torch.float64))
    gap = float((served(permuted) - served(original)[order]).abs().max())
    _need(gap <= 1e-9, f"permuted clients get other models, off by {gap:.2g}")


def one_client(make: Make) -> None:
    """A federation of one client works."""
    state = go(make(1), federation(sizes=(12,)))
    _need(served(state).shape[0] == 1, "the only client is not served")


def twins(make: Make) -> None:
    """Clients with the same samples and stream get the same model."""
    data = _blobs(40, (1, 4, 4))
    parts = Partition([np.arange(20)] * 3, [np.arange(20, 30)] * 3, None)
    network = NETWORKS["mlp"][1]
    fed = Federation(data, parts, network, ids=[0, 0, 0], dtype=torch.float64)
    models_of = served(go(make(3), fed))
    gap = float((models_of - models_of[:1]).abs().max())
    _need(gap <= 1e-12, f"clients that cannot be told apart differ by {gap:.2g}")


RULES: dict[str, Callable[[Make], None]] = {
    rule.__name__: rule
    for rule in (
        frozen,
        shapes,
        reproducible,
        pure,
        own_streams,
        permutation,
        one_client,
        twins,
    )
}


# --- parts ----------------------------------------------------------------------------


def _need(holds: bool, words: str) -> None:
    if not holds:
        raise ContractError(words)


def _check_state(state: Any, fed: Federation) -> None:
    """Rows (C, D) of finite numbers, and for each client the number of one of them."""
    theta: Any = getattr(state, "theta", None)
    labels: Any = getattr(state, "labels", None)
    named = isinstance(theta, Tensor) and isinstance(labels, Tensor)
    _need(named, "its state needs tensors theta and labels")
    fits = theta.dim() == 2 and theta.shape[1] == fed.layout.D
    D = fed.layout.D
    _need(fits, f"theta has shape {tuple(theta.shape)}, need (models, {D})")
    _need(bool(theta.isfinite().all()), "theta has NaN or infinite values")
    fits = labels.shape == (fed.K,) and not labels.is_floating_point()
    _need(fits, f"labels have shape {tuple(labels.shape)}, need {fed.K} integers")
    inside = int(labels.min()) >= 0 and int(labels.max()) < len(theta)
    _need(inside, f"labels name rows outside 0..{len(theta) - 1}")


def _numpy_stream() -> np.ndarray:
    """A copy of the state of numpy's global stream."""
    state: Any = np.random.get_state()  # noqa: NPY002
    return np.append(state[1], state[2])


def _same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two states are equal, field by field."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if isinstance(a, Tensor):
            if a.shape != b.shape or not torch.equal(a, b):
                return False
        elif isinstance(a, tuple):
            if not _same(a, b):
                return False
        elif a != b:
            return False
    return True


def _permuted(method: Any, order: np.ndarray) -> Any:
    """The method, with its labels (if it has any) in the clients' new order."""
    labels = getattr(method, "labels", None)
    if labels is None:
        return method
    return dataclasses.replace(method, labels=[labels[k] for k in order])


def _name(make: Make) -> str:
    return type(make(len(SIZES))).__name__
