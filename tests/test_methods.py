"""The contract, over all methods; then the identities that tie methods together."""

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

from fednb import methods
from fednb.federation import Federation
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
from fednb.partition import Partition
from fednb.training import Local

from .conftest import NETWORKS, blobs, federation, ragged

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
    """The model each client gets, (K, D): what must not depend on the names of clusters."""
    return state.theta[state.labels]


class Sealed(Federation):
    """A federation whose truth, data and partition are out of bounds while a method runs."""

    sealed = False

    def __getattribute__(self, name):
        if name in (
            "truth",
            "_data",
            "_x",
            "_y",
            "_parts",
            "_server",
        ) and object.__getattribute__(self, "sealed"):
            frame = inspect.currentframe().f_back
            if Path(frame.f_code.co_filename).parent.name == "methods":
                raise AssertionError(f"a method touched fed.{name}")
        return object.__getattribute__(self, name)


@pytest.fixture(params=ALL, ids=lambda cls: cls.__name__)
def cls(request):
    return request.param


def test_all_is_complete():
    """Every dataclass with init and step in fednb.methods is in ALL, and each has its own file."""
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


@pytest.mark.parametrize("network", NETWORKS)
def test_shapes_and_every_client_served(cls, network):
    fed = federation(network, sizes=SIZES)
    state = go(make(cls), fed)
    C = len(state.theta)
    assert state.theta.shape == (C, fed.layout.D) and state.theta.isfinite().all()
    assert state.labels.shape == (fed.K,) and not state.labels.is_floating_point()
    assert int(state.labels.min()) >= 0 and int(state.labels.max()) < C
    assert fed.meter.updates > 0 and not torch.equal(
        served(state), served(make(cls).init(fed))
    )


def test_same_seed_same_bits_other_seed_other_bits(cls):
    first, again = (go(make(cls), federation(sizes=SIZES)) for _ in range(2))
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    assert not torch.equal(
        first.theta, go(make(cls), federation(sizes=SIZES, seed=1)).theta
    )


def test_step_changes_nothing_that_it_was_given(cls):
    fed, method = federation(sizes=SIZES), make(cls)
    state = go(method, fed, 1)
    before = [s.clone() if isinstance(s, torch.Tensor) else s for s in state]
    method.step(state, fed, 1)
    for a, b in zip(state, before, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_randomness_comes_only_from_the_federation(cls):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    streams = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    go(make(cls), federation(sizes=SIZES))
    assert torch.equal(torch.get_rng_state(), streams[0])
    assert (np.random.get_state()[1] == streams[1]).all()  # noqa: NPY002


def test_permuted_clients_give_permuted_models(cls):
    perm = np.array([3, 0, 5, 1, 4, 2])
    shape, model = NETWORKS["mlp"]
    data, parts = blobs(samples=sum(SIZES) + 24, shape=shape), ragged(SIZES)
    moved = Partition(
        [parts.train[k] for k in perm], [parts.test[k] for k in perm], None
    )
    options = {"local": Local(lr=0.05, batch_size=5), "dtype": torch.float64}
    method = make(cls)
    other = (
        FixedClusters([method.labels[k] for k in perm])
        if cls is FixedClusters
        else method
    )
    there = served(go(method, Federation(data, parts, model, **options)))
    here = served(go(other, Federation(data, moved, model, ids=perm, **options)))
    torch.testing.assert_close(here, there[perm], rtol=0, atol=1e-9)


def test_one_client(cls):
    fed = federation(sizes=(12,))
    state = go(FixedClusters([0]) if cls is FixedClusters else cls(), fed)
    assert state.theta.isfinite().all() and state.labels.tolist() == [0]


def test_identical_clients_get_the_same_model(cls):
    """Clients with the same samples and the same random stream cannot be told apart."""
    data = blobs(samples=40)
    parts = Partition([np.arange(20)] * 3, [np.arange(20, 30)] * 3, None)
    fed = Federation(
        data, parts, NETWORKS["mlp"][1], ids=[0, 0, 0], dtype=torch.float64
    )
    state = go(FixedClusters([0, 0, 0]) if cls is FixedClusters else cls(), fed)
    models = served(state)
    torch.testing.assert_close(models, models[:1].expand_as(models), rtol=0, atol=1e-12)


def test_methods_never_touch_truth_or_data(cls):
    shape, model = NETWORKS["mlp"]
    data = blobs(samples=sum(SIZES) + 24, shape=shape)
    fed = Sealed(
        data, ragged(SIZES, truth=[0, 0, 0, 1, 1, 1]), model, local=Local(batch_size=5)
    )
    fed.sealed = True
    go(make(cls), fed)


def test_the_seal_works():
    class Cheat(FedAvg):
        pass

    code = "def step(self, state, fed, t):\n    fed.truth\n    return state"
    namespace = {}
    exec(compile(code, "methods/cheat.py", "exec"), namespace)
    Cheat.step = namespace["step"]
    fed = Sealed(blobs(), ragged((9, 14)), NETWORKS["mlp"][1])
    fed.sealed = True
    with pytest.raises(AssertionError, match="touched fed.truth"):
        go(Cheat(), fed)


# --- identities ------------------------------------------------------------------------------------------------------


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
    """With constant updates the momentum's step grows by the geometric series 1, 1 + β, ..."""
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
