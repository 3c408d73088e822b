"""The contract, over all methods; then the identities that tie methods together."""

import ast
import dataclasses
import inspect

import numpy as np
import pytest
import torch

from fednb import contract, methods
from fednb.methods import (
    ALL,
    FairAvg,
    FedAvg,
    FedAvgM,
    FedOpt,
    FedProx,
    FixedClusters,
    LocalOnly,
)

from .conftest import federation

SIZES = (9, 14, 7, 20, 11, 8)


def make(cls):
    return (
        FixedClusters([k % 2 for k in range(len(SIZES))])
        if cls is FixedClusters
        else cls()
    )


def go(method, fed, rounds=2, state=None):
    state = state or method.init(fed)
    for t in range(rounds):
        fed.t = t
        state = method.step(state, fed, t)
    return state


def served(state):
    """The model each client gets, (K, D): what must not depend on the names of
    clusters.
    """
    return state.theta[state.labels]


@pytest.fixture(params=ALL, ids=lambda cls: cls.__name__)
def cls(request):
    return request.param


def test_all_is_complete():
    """Every dataclass with init and step in fednb.methods is in ALL, and each has its
    own file.
    """
    public = {
        v
        for v in vars(methods).values()
        if isinstance(v, type) and dataclasses.is_dataclass(v)
    }
    assert public == set(ALL)
    assert len({c.__module__ for c in ALL}) == len(ALL)


def test_a_method_is_a_frozen_dataclass_with_a_cited_docstring(cls):
    method = make(cls)
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.sampled = 3
    assert (
        eval(repr(method), vars(methods)) == method
    )  # the repr tells all: records are keyed by it
    assert inspect.getmodule(cls).__doc__ and cls.__doc__


def functions_of(cls):
    """All functions in the file of a method, its own methods included."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(cls)))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def test_a_method_says_what_it_takes_and_knows_clients_as_fed_only(cls):
    for function in functions_of(cls):
        arguments = function.args
        given = [*arguments.args, *arguments.kwonlyargs]
        given += [rest for rest in (arguments.vararg, arguments.kwarg) if rest]
        for argument in given:
            place = f"{cls.__name__}: {argument.arg} of {function.name}"
            if argument.arg not in ("self", "cls"):
                assert argument.annotation is not None, place
            if argument.arg == "fed":
                assert ast.unparse(argument.annotation) == "Fed", place
        assert function.returns is not None, function.name


def test_a_step_fits_a_page(cls):
    """What is not the algorithm goes into functions with names of their own."""
    lines = inspect.getsource(cls.step).splitlines()
    assert len(lines) <= 50


@pytest.mark.parametrize("rule", contract.RULES)
def test_every_method_keeps_the_contract(cls, rule):
    def fixed(K):
        """Two clusters; twins, of whom there are three, must share one."""
        return FixedClusters([0] * K if K <= 3 else [k % 2 for k in range(K)])

    method = fixed if cls is FixedClusters else cls()
    assert contract.check(method, [rule]) == [rule]


# --- identities -----------------------------------------------------------------------


def same(a, b, network="cnn_bn", rounds=3, **options):
    A, B = (
        go(m, federation(network, sizes=SIZES, dtype=torch.float64, **options), rounds)
        for m in (a, b)
    )
    torch.testing.assert_close(served(A), served(B), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (FedProx(mu=0.0, sampled=3), FedAvg(sampled=3)),
        (FedAvgM(beta=0.0), FedAvg()),
        (FixedClusters([0] * 6, sampled=4), FedAvg(sampled=4)),
        (FixedClusters(range(6)), LocalOnly()),
        (FixedClusters(range(6), sampled=2), LocalOnly(sampled=2)),
    ],
    ids=str,
)
def test_identity(a, b):
    same(a, b)


def test_fairavg_is_fedavg_when_sizes_are_equal():
    a, b = (
        go(m, federation(sizes=(10,) * 4, dtype=torch.float64))
        for m in (FairAvg(), FedAvg())
    )
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-12)
    c, d = (
        go(m, federation(sizes=(5, 30), dtype=torch.float64))
        for m in (FairAvg(), FedAvg())
    )
    assert not torch.allclose(c.theta, d.theta)


def test_fedprox_pulls_clients_back():
    fed = federation(dtype=torch.float64)
    theta = fed.start()[0]
    drift = [
        (go(FedProx(mu=mu), federation(dtype=torch.float64), 1).theta[0] - theta).norm()
        for mu in (0.0, 1.0, 10.0)
    ]
    assert drift[0] > drift[1] > drift[2]


def test_fedavgm_gathers_momentum():
    """With constant updates the momentum's step grows by the geometric series 1, 1 + β,
    ...
    """
    fed = federation(dtype=torch.float64)
    state = FedAvgM(beta=0.5).init(fed)
    first = FedAvgM(beta=0.5).step(state, fed, 0)
    delta = (state.theta - first.theta)[0, : fed.layout.P]
    torch.testing.assert_close(first.v, delta)
    second = FedAvgM(beta=0.5).step(first, fed, 1)
    plain = FedAvgM(beta=0.0)
    fed2 = federation(dtype=torch.float64)
    plain.step(plain.init(fed2), fed2, 0)
    alone = plain.step(plain.init(fed2)._replace(theta=first.theta), fed2, 1)
    torch.testing.assert_close(second.v, 0.5 * first.v + alone.v)


@pytest.mark.parametrize("rule", ["adam", "yogi"])
def test_fedopt_first_step_by_hand(rule):
    method = FedOpt(rule=rule, server_lr=0.1, tau=1e-2)
    fed, twin = (
        federation("cnn_bn", dtype=torch.float64),
        federation("cnn_bn", dtype=torch.float64),
    )
    x, x_bar = fed.start()[0], go(FedAvg(), twin, 1).theta[0]
    P = fed.layout.P
    after = method.step(method.init(fed), fed, 0)
    for j in (0, P // 2, P - 1):
        d = float(x_bar[j] - x[j])
        v = 1e-4
        v = (
            0.99 * v + 0.01 * d * d
            if rule == "adam"
            else v - 0.01 * d * d * np.sign(v - d * d)
        )
        assert after.theta[0, j].item() == pytest.approx(
            x[j].item() + 0.1 * 0.1 * d / (v**0.5 + 1e-2), abs=1e-12
        )
    torch.testing.assert_close(
        after.theta[0, P:], x_bar[P:]
    )  # running statistics are averaged, not optimised


def test_random_clusters_keep_their_sizes():
    method = FixedClusters.random([3, 1, 2], seed=5)
    assert sorted(np.bincount(method.labels)) == [
        1,
        2,
        3,
    ] and method == FixedClusters.random([3, 1, 2], seed=5)
    assert len({FixedClusters.random([3, 3], seed=s) for s in range(8)}) > 1


@pytest.mark.parametrize("labels", [(), (0, 2), (1, 2)])
def test_fixed_clusters_refuse_gaps(labels):
    with pytest.raises(ValueError, match="every number"):
        FixedClusters(labels)


def test_fixed_clusters_refuse_another_federation():
    with pytest.raises(ValueError, match="2 labels for 4 clients"):
        FixedClusters([0, 1]).init(federation())


def test_fedopt_refuses_an_unknown_rule():
    with pytest.raises(ValueError, match="'adam' or 'yogi'"):
        FedOpt(rule="sgd")
