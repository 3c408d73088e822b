"""The contract for methods from outside: each rule can be broken, and says so."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from fednb import contract
from fednb.methods import FedAvg
from fednb.params import mean


class State(NamedTuple):
    theta: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Outside:
    """FedAvg as a person would write it in a notebook."""

    def init(self, fed):
        return State(fed.start(), torch.zeros_like(fed.n))

    def step(self, state, fed, t):
        update = fed.train(state.theta[0])
        return State(mean(update.theta, fed.n)[None], state.labels)


def test_a_method_from_outside_passes():
    assert contract.check(Outside()) == list(contract.RULES)


def test_a_method_may_use_what_its_annotation_says():
    for name in ("K", "n", "t", "layout", "train", "sample", "draw", "tickets"):
        assert name in contract.DOOR
    assert not {"evaluate", "truth", "meter"} & set(contract.DOOR)


@pytest.mark.parametrize(
    "touch",
    [
        lambda fed: fed.truth,
        lambda door: door._x,
        lambda door: door._y,
        lambda door: door._parts,
        lambda door: door._server,
        lambda fed: fed.backend,
        lambda fed: fed.evaluate(fed.start(), None),  # a judge's
        lambda fed: fed.__dict__["_Door__fed"],
        lambda fed: getattr(fed, "tru" + "th"),
        lambda fed: setattr(fed, "t", 5),
    ],
)
def test_the_seal_holds_for_classes_outside_the_package(touch):
    @dataclass(frozen=True)
    class Peeks(Outside):
        def step(self, state, fed, t):
            touch(fed)
            return super().step(state, fed, t)

    with pytest.raises((contract.ContractError, KeyError), match="fed"):
        contract.check(Peeks(), ["shapes"])


def broken(name):
    """A method that breaks one rule."""

    @dataclass(frozen=True)
    class Broken(Outside):
        def step(self, state, fed, t):
            theta, labels = super().step(state, fed, t)
            if name == "shapes":
                theta = theta[:, :-1]
            elif name == "labels":
                labels = labels[:-1]
            elif name == "float labels":
                labels = labels.float()
            elif name == "finite":
                theta = theta * torch.nan
            elif name == "pure":
                state.theta.mul_(2)
            elif name == "own_streams":
                theta = theta + 0 * torch.rand(1)
            elif name == "numpy's stream":
                theta = theta + 0 * np.random.rand()  # noqa: NPY002
            elif name == "permutation":
                theta = theta * (1 + float(fed.n[0]))
            elif name == "one_client":
                theta = theta + 0 * fed.n[1]
            elif name == "twins":
                theta = torch.cat([theta, theta + 1])
                labels = torch.arange(fed.K) % 2
            return State(theta, labels)

    return Broken()


@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("shapes", "shapes", r"theta has shape .* need \(models, \d+\)"),
        ("labels", "shapes", r"labels have shape \(5,\), need 6 integers"),
        ("float labels", "shapes", "need 6 integers"),
        ("finite", "shapes", "NaN or infinite"),
        ("pure", "pure", "changed the state"),
        ("own_streams", "own_streams", "torch's global stream"),
        ("numpy's stream", "own_streams", "numpy's global stream"),
        ("permutation", "permutation", "permuted clients get other models"),
        ("twins", "twins", "cannot be told apart"),
    ],
)
def test_a_broken_rule_is_told_in_a_sentence(name, rule, words):
    with pytest.raises(
        contract.ContractError, match=f"Broken breaks '{rule}': .*{words}"
    ):
        contract.check(broken(name), [rule])


def test_a_method_that_needs_two_clients_fails_at_one():
    with pytest.raises(IndexError):
        contract.check(broken("one_client"), ["one_client"])


def test_a_method_that_never_trains_is_told():
    @dataclass(frozen=True)
    class Idle(Outside):
        def step(self, state, fed, t):
            return state

    with pytest.raises(contract.ContractError, match="no client was trained"):
        contract.check(Idle(), ["shapes"])


def test_seeds_must_matter():
    @dataclass(frozen=True)
    class Constant(Outside):
        def step(self, state, fed, t):
            fed.train(state.theta[0])
            return State(torch.ones_like(state.theta), state.labels)

    with pytest.raises(contract.ContractError, match="different seeds are the same"):
        contract.check(Constant(), ["reproducible"])


def test_a_method_must_be_a_frozen_dataclass():
    class Plain(Outside):
        pass

    @dataclass
    class Soft:
        def init(self, fed):
            return FedAvg().init(fed)

        def step(self, state, fed, t):
            return FedAvg().step(state, fed, t)

    assert contract.check(Plain(), ["frozen"]) == [
        "frozen"
    ]  # it inherits the decorator
    with pytest.raises(contract.ContractError, match="frozen=True"):
        contract.check(Soft(), ["frozen"])


def test_what_is_no_method_is_refused():
    with pytest.raises(TypeError, match="Outside is a class"):
        contract.check(Outside)
    with pytest.raises(TypeError, match="needs init and step"):
        contract.check(3)
    with pytest.raises(ValueError, match="no rule 'speed'"):
        contract.check(Outside(), ["speed"])
