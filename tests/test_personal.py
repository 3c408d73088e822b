"""SCAFFOLD, Ditto, FedPer and FedRep: identities, bytes, and what each is there for."""

import numpy as np
import pytest
import torch

from fednb import models, reference
from fednb.data import Dataset
from fednb.federation import Federation
from fednb.methods import SCAFFOLD, Ditto, FedAvg, FedPer, FedRep, LocalOnly
from fednb.methods.scaffold import next_controls
from fednb.params import Layout
from fednb.partition import Partition
from fednb.training import Local

from .conftest import NETWORKS, federation
from .test_methods import SIZES, go, same, served

WHOLE = Local(lr=0.1, batch_size=None, steps=3)  # the same batches in every visit


def whole_batches(network="mlp", **options):
    return federation(network, sizes=SIZES, local=WHOLE, dtype=torch.float64, **options)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


# --- identities ----------------------------------------------------------------------


@pytest.mark.parametrize("network", NETWORKS)
def test_scaffold_with_zero_controls_is_fedavg(network):
    scaffold = SCAFFOLD(sampled=4, aggregation="samples")
    fed = federation(network, sizes=SIZES, dtype=torch.float64)
    state = scaffold.init(fed)
    for t in range(3):
        state = scaffold.step(state, fed, t)
        assert state.controls.any() and state.control.any()
        state = state._replace(
            control=torch.zeros_like(state.control),
            controls=torch.zeros_like(state.controls),
        )
    other = go(
        FedAvg(sampled=4), federation(network, sizes=SIZES, dtype=torch.float64), 3
    )
    close(state.theta, other.theta)


def test_scaffolds_controls_make_a_difference_from_the_second_round_on():
    for rounds, equal in ((1, True), (2, False)):
        a = go(SCAFFOLD(aggregation="samples"), whole_batches(), rounds)
        b = go(FedAvg(), whole_batches(), rounds)
        assert torch.allclose(a.theta, b.theta, rtol=0, atol=1e-10) is equal


def test_ditto_without_a_pull_is_local_only_beside_fedavg():
    ditto = go(Ditto(lam=0.0, sampled=4), whole_batches(), 3)
    close(ditto.theta[:-1], go(LocalOnly(sampled=4), whole_batches(), 3).theta)
    close(ditto.theta[-1:], go(FedAvg(sampled=4), whole_batches(), 3).theta)


def test_dittos_common_model_is_fedavgs_whatever_the_pull():
    for lam in (0.1, 5.0):
        ditto = go(Ditto(lam=lam), whole_batches(), 3)
        close(ditto.theta[-1:], go(FedAvg(), whole_batches(), 3).theta)


@pytest.mark.parametrize("method", [FedPer, FedRep])
@pytest.mark.parametrize("network", NETWORKS)
def test_an_empty_head_is_fedavg(method, network):
    same(method(personal=0, sampled=4), FedAvg(sampled=4), network)


def test_a_head_of_all_layers_is_local_only():
    same(FedPer(personal=2, sampled=4), LocalOnly(sampled=4), "mlp")


def test_fedrep_as_printed_is_the_same_where_sizes_are_equal():
    a, b = (
        go(method, federation(sizes=(10,) * 4, dtype=torch.float64))
        for method in (FedRep(), FedRep.as_printed())
    )
    close(a.theta, b.theta)
    same_sizes = federation(sizes=(5, 30), dtype=torch.float64)
    c = go(FedRep(), same_sizes)
    d = go(FedRep.as_printed(), federation(sizes=(5, 30), dtype=torch.float64))
    assert not torch.allclose(c.theta, d.theta)


@pytest.mark.parametrize(
    "method", [SCAFFOLD(sampled=4), Ditto(sampled=4), FedPer(sampled=4), FedRep(4)]
)
@pytest.mark.parametrize("network", NETWORKS)
def test_both_backends_agree(method, network):
    states = [
        go(method, federation(network, sizes=SIZES, backend=b, dtype=torch.float64))
        for b in ("lean", "batched")
    ]
    torch.testing.assert_close(states[0].theta, states[1].theta, rtol=0, atol=1e-8)


# --- SCAFFOLD ------------------------------------------------------------------------


def test_controls_agree_with_the_loop():
    rng = np.random.default_rng(0)
    own = rng.normal(size=(3, 4))
    common = rng.normal(size=4)
    x = rng.normal(size=4)
    y = rng.normal(size=(3, 4))
    steps = np.array([1, 2, 5])
    fast = next_controls(*map(torch.from_numpy, (own, common, x, y, steps)), lr=0.3)
    slow = reference.next_controls(own, common, x, y, steps, lr=0.3)
    np.testing.assert_allclose(fast.numpy(), slow, atol=1e-12)


def test_a_control_is_the_mean_gradient_of_the_last_visit():
    """From zero controls, a client that takes one step leaves with its gradient."""
    fed = federation(
        sizes=SIZES,
        local=Local(lr=0.1, batch_size=None, steps=1),
        dtype=torch.float64,
    )
    state = SCAFFOLD(sampled=3).step(SCAFFOLD().init(fed), fed, 0)
    seen = state.controls.any(1)
    assert int(seen.sum()) == 3
    x = SCAFFOLD().init(fed).theta[0]
    after = fed.train(x, seen).theta
    close(state.controls[seen], (x - after) / 0.1)
    close(state.control, state.controls.mean(0))


def test_the_common_control_stays_the_mean_of_all():
    state = go(SCAFFOLD(sampled=2), federation("cnn_bn", sizes=SIZES), 5)
    torch.testing.assert_close(state.control, state.controls.mean(0))
    fed = federation("cnn_bn", sizes=SIZES)
    assert not state.controls[:, fed.layout.P :].any()


def two_slopes():
    """Clients whose least squares have different minima and different curvatures."""
    x = np.array([[1.0]] * 8 + [[3.0]] * 8, dtype=np.float32)
    y = np.array([2.0] * 8 + [-3.0] * 8, dtype=np.float32)  # slopes 2 and −1
    data = Dataset(name="slopes", x=x, y=y, n_train=16, classes=0)
    parts = Partition([np.arange(8), np.arange(8, 16)], [np.arange(0), np.arange(0)])
    return Federation(
        data,
        parts,
        lambda: models.linear(1, 1, bias=False),
        local=Local(lr=0.02, batch_size=None, steps=20),
        dtype=torch.float64,
    )


def test_scaffold_reaches_the_common_minimum_where_fedavg_drifts():
    """Σ x² (w − slope) = 0 at w = (1 · 2 − 9 · 1) / 10 = −0.7."""
    drifted = go(FedAvg(), two_slopes(), 60).theta.item()
    found = go(SCAFFOLD(), two_slopes(), 60).theta.item()
    assert abs(found + 0.7) < 1e-3 < 0.05 < abs(drifted + 0.7)


# --- Ditto, FedPer, FedRep -----------------------------------------------------------


def test_ditto_pulls_personal_models_to_the_common_one():
    spread = []
    for lam in (0.0, 1.0, 8.0):
        state = go(Ditto(lam=lam), whole_batches(), 4)
        spread.append((state.theta[:-1] - state.theta[-1]).norm())
    assert spread[0] > spread[1] > spread[2]


def test_one_personal_step_of_ditto_is_its_equation():
    fed = whole_batches()
    state = go(Ditto(lam=0.5), fed, 2)
    w = state.theta[-1]
    v = state.theta[:-1]
    plain = fed.train(v, steps=1).theta  # v − η ∇F
    after = Ditto(lam=0.5, steps=1).step(state, fed, 2).theta[:-1]
    close(after, plain - 0.1 * 0.5 * (v - w))


@pytest.mark.parametrize("method", [FedPer, FedRep])
def test_the_base_is_shared_and_heads_are_not(method):
    fed = federation("cnn_bn", sizes=SIZES)
    state = go(method(sampled=4), fed)
    head = fed.layout.last_layers(1)
    assert state.theta[:, ~head].unique(dim=0).shape[0] == 1
    assert state.theta[:, head].unique(dim=0).shape[0] > 4


def test_who_never_trained_has_the_first_head_and_the_new_base():
    fed = federation(sizes=SIZES)
    first = FedPer().init(fed)
    state = FedPer(sampled=2).step(first, fed, 0)
    head = fed.layout.last_layers(1)
    moved = (state.theta != first.theta)[:, head].any(1)
    assert int(moved.sum()) == 2
    assert (state.theta != first.theta)[:, ~head].any(1).all()


def test_fedrep_fits_the_head_before_the_representation_moves():
    """One round by hand."""
    fed = whole_batches()
    theta = fed.start()[0]
    head = fed.layout.last_layers(1)
    fitted = fed.train(theta, correct=lambda g, th: g * head, steps=2).theta
    assert (fitted == theta)[:, ~head].all()
    moved = fed.train(fitted, correct=lambda g, th: g * ~head).theta
    by_hand = torch.where(head, fitted, fed.n.double() @ moved / fed.n.sum())
    other = whole_batches()
    close(go(FedRep(head_steps=2), other, 1).theta, by_hand)


@pytest.mark.parametrize(
    ("method", "trainings", "share"),
    [
        (SCAFFOLD(), 1, lambda D, head: 2 * D),
        (Ditto(), 2, lambda D, head: D),
        (FedPer(), 1, lambda D, head: D - head),
        (FedRep(), 2, lambda D, head: D - head),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_trained_and_sent(method, trainings, share):
    fed = federation(sizes=SIZES)
    go(method, fed, 2)
    head = int(fed.layout.last_layers(1).sum())
    assert fed.meter.updates == 2 * trainings * len(SIZES)
    per_client = share(fed.layout.D, head) * 4  # bytes of a float
    assert fed.meter.down == fed.meter.up == 2 * len(SIZES) * per_client


def test_the_last_layers_of_the_networks():
    lenet = Layout.of(models.lenet5())
    assert int(lenet.last_layers(1).sum()) == 84 * 10 + 10
    assert int(lenet.last_layers(2).sum()) == 84 * 10 + 10 + 120 * 84 + 84
    assert lenet.last_layers(5).all() and not lenet.last_layers(0).any()
    norm = Layout.of(models.cnn_bn((1, 8, 8), 3))
    conv = 32 * 16 * 25 + 32
    dense = 32 * 4 * 3 + 3
    statistics = 4 * 32  # weight, bias, mean and variance of the second norm
    assert int(norm.last_layers(2).sum()) == conv + dense + statistics
    for wrong in (-1, 6):
        with pytest.raises(ValueError, match="has 5 layers with weights"):
            lenet.last_layers(wrong)


def test_a_head_that_the_model_has_not_is_refused():
    fed = federation(sizes=SIZES)
    with pytest.raises(ValueError, match="a head of 3 layers: the model has 2"):
        go(FedPer(personal=3), fed, 1)


def test_what_is_sent_is_checked():
    fed = federation(sizes=SIZES)
    with pytest.raises(ValueError, match="sent"):
        fed.train(fed.start()[0], sent=-1)
    with pytest.raises(ValueError, match="sent"):
        fed.train(fed.start()[0], sent=0.5)


def test_personal_models_serve_their_clients():
    state = go(Ditto(), federation(sizes=SIZES))
    assert served(state).shape[0] == len(SIZES)
    assert state.labels.tolist() == list(range(len(SIZES)))
