"""FedCVR-Bolt: kernels against plain loops, its theory against simulation, its
selection, its rivals, its data.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fednb import clustering, data, models, reference, similarity
from fednb.door import num_sampled
from fednb.experiment import run
from fednb.federation import Federation
from fednb.methods import ActiveFL, FedAvg, FedCVRBolt, PowerOfChoice
from fednb.methods.choice import (
    boltzmann,
    coalition_weights,
    gumbel,
    representatives,
    weighted_sample,
)
from fednb.papers.fedcvr_bolt.tasks import (
    measure_classification,
    measure_regression,
    selection,
)
from fednb.params import mean
from fednb.partition import Partition
from fednb.sweeps import Task
from fednb.training import Local

from . import test_methods as contract
from .conftest import NETWORKS, blobs, federation, ragged
from .test_methods import SIZES

quick = settings(deadline=None, max_examples=40)
number = st.integers(-320, 320).map(lambda i: i / 64)
matrices = st.tuples(st.integers(1, 7), st.integers(1, 5)).flatmap(
    lambda s: arrays(float, s, elements=number)
)
KERNELS = ("rbf", "cosine", "laplacian", "sigmoid", "kmeans")
SOON = {"sampled": 3, "warmup": 1}


def go(method, fed, rounds=4):
    return contract.go(method, fed, rounds)


def covariance(K, seed=0):
    a = np.random.default_rng(seed).normal(size=(K, K + 2))
    return a @ a.T / K


# --- kernels --------------------------------------------------------------------------


@quick
@given(matrices, st.floats(0.01, 3), st.floats(-1, 1))
def test_kernels_agree_with_their_loops(x, gamma, c):
    assert similarity.homophily(x, gamma).numpy() == pytest.approx(
        reference.homophily(x, gamma), abs=1e-9
    )
    assert similarity.laplacian(x, gamma).numpy() == pytest.approx(
        reference.laplacian(x, gamma), abs=1e-9
    )
    assert similarity.sigmoid(x, gamma, c).numpy() == pytest.approx(
        reference.sigmoid(x, gamma, c), abs=1e-9
    )


@pytest.mark.parametrize("gamma", [0.0, 1e-6, 1.0, 1e6, 1e30])
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_homophily_rows_sum_to_one(gamma, far):
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(0)) + far
    W = similarity.homophily(x, gamma)
    assert W.isfinite().all() and (W >= 0).all()
    torch.testing.assert_close(W.sum(1), torch.ones(9))
    if gamma == 0:
        torch.testing.assert_close(W, torch.full((9, 9), 1 / 9))
    if gamma >= 1e6:
        torch.testing.assert_close(W, torch.eye(9))


def test_homophily_turns_block_diagonal_as_groups_agree():
    """Remark A1: what a client gives to other groups vanishes as the groups draw
    together.
    """
    rng, group = np.random.default_rng(0), np.repeat([0, 1, 2], 4)
    centres, noise = np.eye(3) * 2, rng.normal(size=(12, 3))
    across = [
        float(
            similarity.homophily(centres[group] + size * noise, 1.0)[
                group[:, None] != group
            ].sum()
        )
        for size in (1, 0.5, 0.1)
    ]
    assert across[0] > across[1] > across[2] and across[2] < 0.1


@pytest.mark.parametrize("kernel", [similarity.homophily, similarity.laplacian])
@pytest.mark.parametrize("gamma", [-1.0, math.inf, math.nan])
def test_a_senseless_gamma_is_refused(kernel, gamma):
    with pytest.raises(ValueError, match="gamma"):
        kernel(np.eye(3), gamma)


@pytest.mark.parametrize(
    "kernel",
    [
        partial(k, gamma=0.5)
        for k in (similarity.homophily, similarity.laplacian, similarity.sigmoid)
    ],
)
def test_types_and_diverged_rows(kernel):
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    assert (
        torch.equal(kernel(x.half()), kernel(x.half().float()))
        and kernel(x.double()).dtype == torch.float64
    )
    assert (
        torch.allclose(kernel(x.numpy()), kernel(x))
        and kernel(np.arange(6).reshape(3, 2)).dtype == torch.float64
    )
    x[2, 3] = math.nan
    with pytest.raises(ValueError, match="row 2 of x has NaN"):
        kernel(x)


def test_spectral_finds_blocks_and_ignores_negative_weights():
    truth = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    W = np.where(truth[:, None] == truth, 1.0, 0.01)
    assert (
        clustering.relabel(clustering.spectral(W, 3, seed=0)).tolist() == truth.tolist()
    )
    assert (
        clustering.relabel(
            clustering.spectral(np.where(W < 1, -0.5, W), 3, seed=0)
        ).tolist()
        == truth.tolist()
    )
    assert clustering.spectral(W, 1, seed=0).tolist() == [0] * 8
    with pytest.raises(ValueError, match="k=9"):
        clustering.spectral(W, 9, seed=0)


# --- variance reduction ---------------------------------------------------------------


@quick
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 99))
def test_variance_reduction_agrees_with_its_loop(K, D, seed):
    C = np.array([covariance(K, seed + d) for d in range(D)])
    C[0, 0], C[0, :, 0] = 0, 0  # a client without variance
    alpha = np.random.default_rng(seed).dirichlet(np.ones(K))
    assert similarity.variance_reduction(C, alpha).numpy() == pytest.approx(
        reference.variance_reduction(C, alpha)
    )


@pytest.mark.parametrize("initial", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    "rates", [[1 / (t + 2) for t in range(12)], [1.0, 0.5, 0.5, 0.01, 0.0], [0.9] * 30]
)
def test_two_numbers_per_client_and_parameter_are_enough(initial, rates):
    """The memory-light form follows the D matrices of Eq. 11 to 1e-8 and better."""
    rng, K, D = np.random.default_rng(1), 8, 5
    alpha = rng.dirichlet(np.ones(K))
    C = np.stack([initial * np.ones((K, K)) + (1 - initial) * np.eye(K)] * D)
    light = torch.from_numpy(C @ alpha).T, torch.ones(K, D).double()
    for rate in rates:
        theta, expected = rng.normal(size=(K, D)) * 10, rng.normal(size=(K, D))
        expected[2] = theta[2]  # a representative, as printed: no residual
        C = reference.covariance_step(C, theta, expected, rate)
        light = similarity.covariance_step(
            *light, torch.from_numpy(theta - expected), torch.from_numpy(alpha), rate
        )
        dense, v = (
            reference.variance_reduction(C, alpha),
            similarity.total_reduction(*light),
        )
        assert v.numpy() == pytest.approx(dense, rel=1e-8, abs=1e-12)
        assert similarity.variance_reduction(C, alpha).numpy() == pytest.approx(
            dense, rel=1e-8, abs=1e-12
        )


def test_a_thousand_clients_and_two_thousand_parameters():
    """Dense, C would be 16 GB. Parameters do not meet each other, so a few of them can
    be checked densely.
    """
    K, D, few = 1000, 2000, [0, 1, 1999]
    make = torch.Generator().manual_seed(0)
    alpha = torch.rand(K, generator=make).double()
    alpha /= alpha.sum()
    light, C = (
        (torch.ones(K, D).double(), torch.ones(K, D).double()),
        torch.ones(len(few), K, K).double(),
    )
    for rate in (0.5, 1 / 3):
        r = torch.randn(K, D, generator=make).double()
        light = similarity.covariance_step(*light, r, alpha, rate)
        C = (1 - rate) * C + rate * torch.einsum("kd,jd->dkj", r[:, few], r[:, few])
    assert similarity.total_reduction(*light).isfinite().all()
    some = similarity.total_reduction(*(part[:, few] for part in light))
    torch.testing.assert_close(
        some, similarity.variance_reduction(C, alpha), rtol=1e-8, atol=0
    )


def test_variance_reduction_refuses_other_shapes():
    with pytest.raises(ValueError, match="give"):
        similarity.variance_reduction(np.eye(3), np.ones(3))


# --- the theory of section 3.1 --------------------------------------------------------


@pytest.mark.parametrize("A", [[2], [0, 3], [4, 1, 0]])
def test_lemma_1_and_proposition_1_by_simulation(A):
    """Regress αᵀθ on θ_A: the slopes are Lemma 1's, and the variance explained is
    Proposition 1's.
    """
    rng, K = np.random.default_rng(0), 5
    C, alpha = covariance(K), rng.dirichlet(np.ones(K))
    theta = rng.multivariate_normal(np.zeros(K), C, 100_000)
    y, x = theta @ alpha, theta[:, A]
    slopes = np.linalg.lstsq(x, y, rcond=None)[0]
    assert slopes == pytest.approx(reference.projection(C, alpha, A), abs=0.02)
    assert y.var() - (y - x @ slopes).var() == pytest.approx(
        reference.subset_reduction(C, alpha, A), rel=0.03
    )


def test_corollary_1_and_the_whole_federation():
    C, alpha = covariance(6), np.random.default_rng(0).dirichlet(np.ones(6))
    one = [reference.subset_reduction(C, alpha, [k]) for k in range(6)]
    assert one == pytest.approx(reference.variance_reduction([C], alpha))
    assert reference.subset_reduction(C, alpha, range(6)) == pytest.approx(
        alpha @ C @ alpha
    )  # nothing is left


def test_proposition_2_holds_for_centred_models_only():
    """C_jk / C_kk θ_k is the mean of θ_j given θ_k when means are zero; otherwise it is
    off, and not by a little.
    """
    rng, C, mean_ = np.random.default_rng(0), covariance(3), np.array([5.0, 5.0, 5.0])
    theta = rng.multivariate_normal(mean_, C, 50_000)
    slope = C[0, 1] / C[1, 1]
    printed, centred = slope * theta[:, 1], mean_[0] + slope * (theta[:, 1] - mean_[1])
    assert np.square(theta[:, 0] - centred).mean() == pytest.approx(
        C[0, 0] - C[0, 1] ** 2 / C[1, 1], rel=0.05
    )
    assert (
        np.square(theta[:, 0] - printed).mean()
        > 2 * np.square(theta[:, 0] - centred).mean()
    )


@quick
@given(st.integers(0, 999))
def test_subsets_are_ordered_and_never_lose(seed):
    rng, K = np.random.default_rng(seed), 6
    C, alpha = covariance(K, seed), rng.dirichlet(np.ones(K))
    coalitions = [0, 0, 1, 1, 2, 2]
    best, greedy = (
        reference.best_subset(C, alpha, 3)[1],
        reference.greedy_subset(C, alpha, 3)[1],
    )
    chosen, ours = reference.one_per_coalition(C, alpha, coalitions)
    assert sorted(coalitions[k] for k in chosen) == [0, 1, 2]
    assert (
        best >= greedy - 1e-12
        and best >= ours - 1e-12
        and best <= alpha @ C @ alpha + 1e-12
    )
    assert reference.best_subset(C, alpha, 1)[1] == pytest.approx(
        reference.greedy_subset(C, alpha, 1)[1]
    )


def test_one_per_coalition_is_best_for_equal_blocks_and_not_for_unequal_ones():
    blocks = np.kron(np.eye(3), 0.9 * np.ones((2, 2))) + 0.1 * np.eye(6)
    alpha, coalitions = np.ones(6) / 6, [0, 0, 1, 1, 2, 2]
    assert reference.one_per_coalition(blocks, alpha, coalitions)[1] == pytest.approx(
        reference.best_subset(blocks, alpha, 3)[1]
    )
    loud = np.diag([10, 10, 1, 1, 1, 1]) ** 0.5
    noisy = (
        loud @ (0.2 * blocks + 0.8 * np.eye(6)) @ loud
    )  # two clients of one coalition vary more than all others
    best, value = reference.best_subset(noisy, alpha, 3)
    assert {0, 1} <= set(best) and value > reference.one_per_coalition(
        noisy, alpha, coalitions
    )[1]


# --- drawing clients ------------------------------------------------------------------


@quick
@given(
    arrays(float, 6, elements=number),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.floats(0, 5),
)
def test_boltzmann_agrees_with_its_loop(v, coalitions, beta):
    names, coalitions = np.unique(coalitions, return_inverse=True)
    pi = boltzmann(torch.from_numpy(v), torch.from_numpy(coalitions), beta)
    assert pi.numpy() == pytest.approx(
        reference.boltzmann(v, coalitions.tolist(), beta), abs=1e-12
    )


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e300, -1e300])
def test_boltzmann_is_stable(scale):
    v, coalitions = (
        torch.tensor([1.0, 2.0, 2.0, 5.0]).double() * scale,
        torch.tensor([0, 0, 0, 1]),
    )
    pi = boltzmann(v, coalitions, 3.0)
    best = [0, 0.5, 0.5, 1] if scale > 0 else [1, 0, 0, 1]
    assert pi.tolist() == best == boltzmann(v, coalitions, math.inf).tolist()
    assert boltzmann(v, coalitions, 0.0).tolist() == pytest.approx([1 / 3] * 3 + [1])


def test_gumbel_numbers_stay_with_their_clients():
    perm = np.array([3, 0, 5, 1, 4, 2])
    parts, source, model = (
        ragged(SIZES),
        blobs(samples=sum(SIZES) + 24),
        NETWORKS["mlp"][1],
    )
    moved = Partition([parts.train[k] for k in perm], [parts.test[k] for k in perm])
    here, there = (
        Federation(source, parts, model),
        Federation(source, moved, model, ids=perm),
    )
    first, again = gumbel(here), gumbel(here)
    assert (
        torch.equal(first[perm], gumbel(there))
        and len(first.unique()) == 6
        and not torch.equal(first, again)
    )


def test_weighted_sample_has_the_probabilities_it_is_given():
    fed, p, N = federation(), torch.tensor([0.5, 0.3, 0.2, 0.0]).double(), 500
    one = (
        torch.bincount(
            torch.cat([weighted_sample(fed, 1, p.log()) for _ in range(N)]), minlength=4
        )
        / N
    )
    two = (
        torch.bincount(
            torch.cat([weighted_sample(fed, 2, p.log()) for _ in range(N)]), minlength=4
        )
        / N
    )
    without = (
        sum(p[[1, 2]] * p[0] / (1 - p[[1, 2]])) + p[0]
    )  # first, or second after one of the others
    assert (one - p).abs().max() < 4 * math.sqrt(0.25 / N) and one[3] == 0
    assert abs(two[0] - without) < 4 * math.sqrt(0.25 / N) and two[3] == 0
    assert weighted_sample(fed, 4, p.log()).tolist() == [0, 1, 2, 3]


def test_num_sampled():
    assert num_sampled(10, 6) == 6
    assert num_sampled(3, 6) == 3
    assert num_sampled(0.5, 7) == 4
    assert num_sampled(1.0, 7) == 7
    for bad in (0, -1, 1.5, 0.0):
        with pytest.raises(ValueError, match="sampled"):
            num_sampled(bad, 6)


def test_one_representative_each_and_the_seats_filled():
    key, coalitions = (
        torch.tensor([0.1, 0.9, 0.5, 0.4, 0.8]),
        torch.tensor([0, 1, 0, 2, 1]),
    )
    first, S = representatives(key, coalitions, 3)
    assert first.tolist() == [2, 1, 3] and S.tolist() == [1, 2, 3]
    assert representatives(key, coalitions, 4)[1].tolist() == [
        1,
        2,
        3,
        4,
    ]  # the next largest key is client 4's


# --- FedCVR-Bolt ----------------------------------------------------------------------


def test_the_warm_up_is_fedavg():
    a = go(FedCVRBolt(sampled=3, warmup=4), federation(sizes=SIZES))
    b = go(FedAvg(sampled=3), federation(sizes=SIZES))
    assert torch.equal(a.theta, b.theta)


@pytest.mark.parametrize(
    "preset", [FedCVRBolt, FedCVRBolt.as_printed, FedCVRBolt.as_released]
)
def test_with_seats_for_all_it_is_fedavg(preset):
    a = go(preset(sampled=6, warmup=0), federation(sizes=SIZES, dtype=torch.float64))
    b = go(FedAvg(), federation(sizes=SIZES, dtype=torch.float64))
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_after_the_warm_up_it_keeps_the_contract(kernel):
    """Seeds, purity, budget and permutation, which the contract test sees in the
    warm-up only.
    """
    perm = np.array([3, 0, 5, 1, 4, 2])
    method = FedCVRBolt(**SOON, coalitions=kernel)
    parts, source, model = (
        ragged(SIZES),
        blobs(samples=sum(SIZES) + 24),
        NETWORKS["mlp"][1],
    )
    moved = Partition([parts.train[k] for k in perm], [parts.test[k] for k in perm])
    options = {"local": Local(lr=0.05, batch_size=5), "dtype": torch.float64}
    fed = Federation(source, parts, model, **options)
    here, again = (
        go(method, fed),
        go(method, Federation(source, parts, model, **options)),
    )
    there = go(method, Federation(source, moved, model, ids=perm, **options))
    assert all(torch.equal(a, b) for a, b in zip(here, again, strict=True))
    torch.testing.assert_close(here.theta, there.theta, rtol=0, atol=1e-9)
    torch.testing.assert_close(here.c_diag[perm], there.c_diag)
    assert fed.meter.updates == 4 * 3
    before = [s.clone() for s in here]
    method.step(here, fed, 4)
    assert all(torch.equal(a, b) for a, b in zip(here, before, strict=True))


@pytest.mark.parametrize(
    "cls", [FedCVRBolt, FedCVRBolt.as_printed], ids=["corrected", "as printed"]
)
def test_one_client_and_clients_that_are_alike(cls):
    state = go(cls(warmup=0), federation(sizes=(12,)))
    assert state.theta.isfinite().all() and state.coalitions.tolist() == [0]
    parts = Partition([np.arange(20)] * 3, [np.arange(20, 30)] * 3)
    fed = Federation(
        blobs(samples=40), parts, NETWORKS["mlp"][1], ids=[0, 0, 0], dtype=torch.float64
    )
    state = go(cls(sampled=2, warmup=0), fed)
    assert (
        state.theta.isfinite().all()
        and state.c_diag.isfinite().all()
        and fed.meter.updates == 8
    )


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    method, straight = FedCVRBolt(**SOON), federation(sizes=SIZES)
    options = {"progress": False, "measure": measure_classification}
    whole = run(method, straight, 6, **options)
    run(method, federation(sizes=SIZES), 3, checkpoint=tmp_path / "c.npz", **options)
    rest = run(
        method, federation(sizes=SIZES), 6, checkpoint=tmp_path / "c.npz", **options
    )
    assert all(torch.equal(a, b) for a, b in zip(whole.state, rest.state, strict=True))


@pytest.mark.parametrize("preset", [FedCVRBolt, FedCVRBolt.as_released])
@pytest.mark.parametrize("rate", ["restart", "round", 0.1])
def test_a_run_follows_the_dense_equations(preset, rate):
    """Eq. 9 and 11 with all K x K matrices, from what the state shows of each round."""
    method = preset(**SOON, rate=rate, initial=0.5)
    fed = federation(sizes=SIZES, dtype=torch.float64)
    alpha, state = (fed.n.double() / fed.n.sum()).numpy(), go(method, fed, 1)
    C = np.stack([0.5 * np.ones((6, 6)) + 0.5 * np.eye(6)] * len(state.columns))
    for t in range(1, 5):
        visits, old = fed.snapshot()["visits"], state
        state = method.step(state, fed, t)
        S = np.flatnonzero(fed.snapshot()["visits"] - visits)
        expected = state.expected.numpy().copy()
        for k in range(6):
            j = next(j for j in S if state.coalitions[j] == state.coalitions[k])
            rho = (
                1.0
                if j == k
                else torch.cosine_similarity(old.seen[k], old.seen[j], dim=0).item()
            )
            assert expected[k] == pytest.approx(rho * state.seen[j].numpy(), abs=1e-12)
        if method.innovation:
            expected[S] = old.expected.numpy()[S]
        gamma = {"restart": 1 / (t + 1), "round": 1 / (t + 1)}.get(rate, rate)
        C = reference.covariance_step(C, state.seen.numpy(), expected, gamma)
        v = similarity.total_reduction(state.c_alpha, state.c_diag)
        assert v.numpy() == pytest.approx(
            reference.variance_reduction(C, alpha), rel=1e-8
        )


def test_presets_look_at_what_paper_and_scripts_look_at():
    """On Synthetic's linear model, and on a network whose last layer has 84 inputs."""
    linear = partial(models.linear, 60, 10)
    name = "synthetic(1.0, 1.0, clients=6, seed=0)"
    small = Federation(*data.generate(name), linear)
    large = federation("lenet5", sizes=(40, 50))  # three classes
    found = {
        preset.__name__: {
            dataset: len(preset(dataset).init(fed).columns)
            for dataset, fed in (
                ("synthetic", small),
                ("mnist", large),
                ("cifar10", large),
            )
        }
        for preset in (FedCVRBolt.as_released, FedCVRBolt.as_printed)
    }
    last = 84 * 3
    assert found["as_released"] == {"synthetic": 610, "mnist": last, "cifar10": last}
    assert found["as_printed"] == {"synthetic": 610, "mnist": last + 3, "cifar10": last}
    assert FedCVRBolt.as_released("mnist").most == 300
    assert FedCVRBolt.as_printed("cifar10").most == 300
    for dataset, rate in {
        "mnist": "restart",
        "regression": "restart",
        "cifar10": 0.01,
        "synthetic": 0.01,
    }.items():
        assert FedCVRBolt.as_released(dataset).rate == rate
        assert FedCVRBolt.as_printed(dataset).rate == "round"
    assert FedCVRBolt.as_released("regression").coalitions == "kmeans"
    for preset in (FedCVRBolt.as_released, FedCVRBolt.as_printed):
        with pytest.raises(ValueError, match="dataset='femnist'"):
            preset("femnist")


def test_the_layer_needs_a_fully_connected_one():
    conv = partial(torch.nn.Conv2d, 1, 3, 4)
    net = Federation(
        blobs(samples=sum(SIZES) + 24),
        ragged(SIZES),
        lambda: torch.nn.Sequential(conv(), torch.nn.Flatten()),
    )
    with pytest.raises(ValueError, match="no fully connected"):
        FedCVRBolt(representation="layer").init(net)


@pytest.mark.parametrize("rate", ["restart", "round", 0.1])
@pytest.mark.parametrize("innovation", [False, True])
def test_a_warm_up_that_estimates_follows_the_dense_equations(rate, innovation):
    """FedAvg's draws and models, and Eq. 9 and 11 where a coalition was heard."""
    method = FedCVRBolt.as_printed(
        sampled=3, warmup=9, rate=rate, innovation=innovation
    )
    fed = federation(sizes=SIZES, dtype=torch.float64)
    other = federation(sizes=SIZES, dtype=torch.float64)
    fedavg = FedAvg(sampled=3)
    same = fedavg.init(other)
    alpha = (fed.n.double() / fed.n.sum()).numpy()
    state = method.init(fed)
    C = np.ones((len(state.columns), 6, 6))
    unheard = 0
    for t in range(5):
        visits = fed.snapshot()["visits"]
        old = state
        state = method.step(old, fed, t)
        same = fedavg.step(same, other, t)
        assert torch.equal(state.theta, same.theta)
        clients = np.flatnonzero(fed.snapshot()["visits"] - visits)
        expected = state.expected.numpy().copy()
        for k in range(6):
            mates = [j for j in clients if state.coalitions[j] == state.coalitions[k]]
            guesses = [old.expected[k].numpy()]
            if mates:
                rho = [
                    torch.cosine_similarity(old.seen[k], old.seen[j], dim=0).item()
                    for j in mates
                ]
                guesses = [
                    r * state.seen[j].numpy() for r, j in zip(rho, mates, strict=True)
                ]
            unheard += not mates
            assert any(np.allclose(expected[k], guess) for guess in guesses)
        if innovation:
            expected[clients] = old.expected.numpy()[clients]
        gamma = {"restart": 1 / (t + 2), "round": 1 / (t + 1)}.get(rate, rate)
        C = reference.covariance_step(C, state.seen.numpy(), expected, gamma)
        v = similarity.total_reduction(state.c_alpha, state.c_diag)
        dense = reference.variance_reduction(C, alpha)
        assert v.numpy() == pytest.approx(dense, rel=1e-8)
    assert unheard > 0  # else the test says less than it seems


def test_as_printed_those_who_were_seen_have_no_variance():
    """Line 13 makes a representative its own expectation; γ_1 = 1 then leaves it none,
    and v must not be nan.
    """
    for preset, zero in ((FedCVRBolt.as_printed, True), (FedCVRBolt, False)):
        fed = federation(sizes=SIZES)
        state = go(preset(sampled=1, warmup=0, rate=1.0), fed, 1)
        assert bool((state.c_diag[fed.snapshot()["visits"] > 0] == 0).all()) == zero
        assert similarity.total_reduction(state.c_alpha, state.c_diag).isfinite().all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_coalitions_are_the_groups_whatever_the_order(kernel):
    rng, group = np.random.default_rng(0), np.arange(24) % 3
    rows = torch.from_numpy(np.eye(3, 6)[group] + 0.05 * rng.normal(size=(24, 6)))
    method, perm = FedCVRBolt(coalitions=kernel), rng.permutation(24)
    assert method.form(rows, 3, 0).tolist() == group.tolist()
    assert (
        method.form(rows[perm], 3, 0).tolist()
        == clustering.relabel(group[perm]).tolist()
    )


def test_equal_rows_stay_together():
    rows = torch.tensor([[1.0, 0], [0, 0], [2, 0], [0, 0], [0, 1], [0, 0]])
    assert FedCVRBolt().form(rows, 4, 0).tolist() == [
        0,
        1,
        0,
        1,
        2,
        1,
    ]  # (1, 0) and (2, 0) point the same way
    assert FedCVRBolt(coalitions="kmeans").form(rows, 4, 0).tolist() == [
        0,
        1,
        2,
        1,
        3,
        1,
    ]


def test_only_the_weight_of_the_coalition_gives_the_mean_of_all():
    """If members of a coalition send the same, Eq. 2 is known from one each; line 18's
    weights miss it.
    """
    rng = np.random.default_rng(0)
    coalitions = torch.tensor([0, 0, 0, 0, 1, 2, 2])
    n, rows = (
        torch.from_numpy(rng.integers(1, 50, 7)),
        torch.from_numpy(rng.normal(size=(3, 5)))[coalitions],
    )
    for S in ([2, 4, 5], [0, 1, 4, 5], list(range(7))):
        S = torch.tensor(S)
        torch.testing.assert_close(
            mean(rows[S], coalition_weights(n, coalitions, S)[S]), mean(rows, n)
        )
    S = torch.tensor([2, 4, 5])
    assert not torch.allclose(mean(rows[S], n[S]), mean(rows, n))


def test_beta_goes_from_uniform_to_greedy():
    """With v_0 the largest of one coalition, client 0 is drawn ever more often."""
    shares = []
    for beta in (0.0, 1.0, math.inf):
        fed = federation(sizes=(10,) * 4)
        method = FedCVRBolt(sampled=1, warmup=0, beta=beta)
        state = method.init(fed)
        state = state._replace(
            c_alpha=torch.tensor([1.5, 1, 1, 1]).double()[:, None]
            * torch.ones_like(state.c_alpha[:, :1])
        )
        state = state._replace(
            c_diag=torch.ones_like(state.c_alpha), columns=state.columns[:1]
        )
        state = state._replace(seen=state.seen[:, :1], expected=state.expected[:, :1])
        for _ in range(60):
            method.step(state, fed, 0)
        shares.append(fed.snapshot()["visits"][0] / 60)
    assert (
        0.05 < shares[0] < 0.45 < shares[1] < 0.8 and shares[2] == 1
    )  # 1/4, e^1.25 / (e^1.25 + 3) = 0.54, 1


def test_the_parameters_looked_at():
    fed = federation("lenet5", sizes=(5, 5))
    weights = fed.layout.columns("11.weight")
    assert torch.equal(FedCVRBolt(most=None).init(fed).columns, weights)
    some = FedCVRBolt(most=30).init(fed).columns
    assert (
        len(some) == 30
        and torch.isin(some, weights).all()
        and torch.equal(some, some.sort().values)
    )
    assert (
        len(FedCVRBolt(most=None, representation="all").init(fed).columns)
        == fed.layout.P
    )


def test_presets_and_checks():
    assert FedCVRBolt.corrected() == FedCVRBolt()
    printed = FedCVRBolt.as_printed(beta=2.0)
    released = FedCVRBolt.as_released(coalitions="kmeans")
    assert printed.rate == "round" and printed.beta == 2.0
    assert released.rate == "restart" and released.coalitions == "kmeans"
    assert printed.warmup_estimates and not released.warmup_estimates
    for method in (printed, released):
        assert not method.centred and not method.innovation
        assert method.aggregation == "own"
    wrong = {
        "rate": "never",
        "beta": -1.0,
        "initial": 2.0,
        "gamma": 0.0,
        "coalitions": "poly",
        "aggregation": "x",
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name}="):
            FedCVRBolt(**{name: value})
    with pytest.raises(ValueError, match="rate=1.5"):
        FedCVRBolt(rate=1.5)


# --- the rivals -----------------------------------------------------------------------


def trained(fed):
    return np.flatnonzero(fed.snapshot()["visits"]).tolist()


@pytest.mark.parametrize("on", ["train", "test"])
def test_power_of_choice_trains_the_worst_of_its_candidates(on):
    fed = federation(sizes=SIZES)
    worst = fed.loss(fed.start()[0], on=on).argsort(descending=True)[:2]
    go(PowerOfChoice(sampled=2, candidates=6, on=on), fed, 1)
    assert trained(fed) == worst.sort().values.tolist()


def test_power_of_choice_without_choice_is_fedavg():
    method = PowerOfChoice(
        sampled=3, candidates=3, proportional=False, aggregation="samples"
    )
    assert torch.equal(
        go(method, federation(sizes=SIZES)).theta,
        go(FedAvg(3), federation(sizes=SIZES)).theta,
    )
    assert PowerOfChoice.as_printed(3) == PowerOfChoice(3, on="test")
    assert PowerOfChoice.as_released(3) == PowerOfChoice(
        3, proportional=False, aggregation="samples"
    )
    for bad in ({"on": "server"}, {"aggregation": "x"}):
        with pytest.raises(ValueError, match="need '"):
            PowerOfChoice(**bad)


def test_active_fl_prefers_the_valued_and_updates_those_who_trained():
    fed = federation(sizes=SIZES)
    method = ActiveFL(sampled=2, alpha1=0.5, alpha2=1e6, alpha3=0.0)
    state = method.init(fed)
    torch.testing.assert_close(
        state.value, fed.loss(state.theta[0]).double() * fed.n.sqrt()
    )
    after = method.step(state, fed, 0)
    assert trained(fed) == state.value.topk(2).indices.sort().values.tolist()
    assert torch.equal(
        after.value, state.value
    )  # valued at the model they got, the first one
    again = method.step(after, fed, 1)
    changed = (again.value != after.value).nonzero()[:, 0].tolist()
    assert changed == after.value.topk(2).indices.sort().values.tolist()


def test_active_fl_leaves_out_the_least_valued_and_draws_some_uniformly():
    fed = federation(sizes=SIZES)
    method = ActiveFL(sampled=2, alpha1=0.5, alpha2=0.0, alpha3=0.0)
    state = method.init(fed)
    for _ in range(30):
        method.step(state, fed, 0)
    assert trained(fed) == state.value.topk(3).indices.sort().values.tolist()
    free = federation(sizes=SIZES)
    for _ in range(30):
        ActiveFL(sampled=2, alpha1=0.5, alpha3=1.0).step(state, free, 0)
    assert trained(free) == list(range(6))


def test_active_fl_as_released_asks_its_candidates_anew():
    fed = federation(sizes=SIZES)
    method = ActiveFL.as_released(2)
    state = method.init(fed)
    theta = go(FedAvg(), federation(sizes=SIZES), 2).theta
    after = method.step(state._replace(theta=theta), fed, 0)
    asked = (after.value != state.value).nonzero()[:, 0].tolist()
    assert len(asked) == 4 and set(trained(fed)) <= set(asked)
    with pytest.raises(ValueError, match="alpha1"):
        ActiveFL(alpha1=1.0)


# --- data that are drawn, and what is measured ----------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("clusters", [1, 2])
def test_regression_has_the_law_it_says(clusters, intercept):
    dataset, parts = data.regression(
        clusters, intercept, clients=20, samples=300, tests=50, theta_std=0.2, seed=1
    )
    D = 1 + intercept
    assert (
        dataset.x.shape == (20 * 350, D)
        and dataset.y.dtype == np.float32
        and dataset.n_train == len(dataset.x)
    )
    assert {len(own) for own in parts.train} == {300} and {
        len(own) for own in parts.test
    } == {50}
    assert sorted(np.concatenate([*parts.train, *parts.test])) == list(
        range(len(dataset.x))
    )
    assert set(parts.truth) == set(range(clusters))
    slopes = []
    for j in range(clusters):
        rows = np.concatenate(
            [parts.train[k] for k in np.flatnonzero(parts.truth == j)]
        )
        x, y = dataset.x[rows], dataset.y[rows]
        theta = np.linalg.lstsq(x, y, rcond=None)[0]
        floor = 0.2**2 * np.square(x).sum(1).mean()
        assert np.square(y - x @ theta).mean() == pytest.approx(floor, rel=0.1)
        assert (theta > -5.1).all() and (theta < 0.1).all()
        slopes.append(theta)
    if clusters == 2:
        assert np.abs(slopes[0] - slopes[1]).max() > 0.1
    if intercept:
        assert (dataset.x[:, 0] == 1).all()


def test_synthetic_has_the_form_of_li_et_al():
    dataset, parts = data.synthetic(1, 1, clients=8, samples=50, seed=2)
    assert (
        dataset.x.shape == (400, 60) and dataset.classes == 10 and parts.truth is None
    )
    assert {(len(a), len(b)) for a, b in zip(parts.train, parts.test, strict=True)} == {
        (40, 10)
    }
    own = [
        dataset.x[np.concatenate(pair)]
        for pair in zip(parts.train, parts.test, strict=True)
    ]
    spread = np.mean([x.std(0, ddof=1) for x in own], axis=0)
    assert spread == pytest.approx(np.arange(1, 61) ** -0.6, rel=0.2)
    sizes = [
        len(a) + len(b)
        for a, b in zip(*data.synthetic(samples=None, clients=30)[1][:2], strict=True)
    ]
    assert min(sizes) >= 50 and max(sizes) > 4 * np.median(sizes)


def test_one_shift_for_all_classes_changes_no_label():
    """α has no effect on labels in Li et al.'s form, where u_k is one number; drawn for
    each class it has.
    """
    for shared in (True, False):
        little, much = (
            data.synthetic(alpha, 1, clients=5, shared=shared)[0]
            for alpha in (0.0, 9.0)
        )
        assert (
            np.array_equal(little.x, much.x)
            and np.array_equal(little.y, much.y) == shared
        )


@pytest.mark.parametrize(
    "name",
    [
        "regression(2, True, clients=4, seed=3)",
        "synthetic(1, 0.5, clients=4, samples=None)",
    ],
)
def test_a_name_is_enough_to_draw_the_data_again(name):
    dataset, parts = data.generate(name)
    again = data.load(dataset.name)
    assert (
        data.load(name) is dataset
        and again is not dataset
        and again.sha256 == dataset.sha256
    )
    assert np.array_equal(again.x, dataset.x) and not dataset.x.flags.writeable
    dealt = data.as_generated(again.y, dataset.name, seed=7)
    assert all(
        np.array_equal(a, b) for a, b in zip(dealt.train, parts.train, strict=True)
    )
    assert (
        data.generate(name.replace("clients=4", "clients=5"))[0].sha256
        != dataset.sha256
    )
    with pytest.raises(ValueError, match="not those"):
        data.as_generated(again.y[:-1], name)


@pytest.mark.parametrize(
    "name",
    [
        "regression",
        "regression(clusters=0)",
        "synthetic(colour=1)",
        "synthetic(open('x'))",
        "regression(2",
    ],
)
def test_a_senseless_call_is_refused(name):
    with pytest.raises(ValueError, match="is no call of regression or synthetic"):
        data.load(name)


def test_regression_is_measured_by_hand():
    dataset, parts = data.regression(clients=5, samples=12, tests=8)
    fed = Federation(
        dataset,
        parts,
        partial(models.linear, 1, 1, bias=False),
        local=Local(0.1),
        dtype=torch.float64,
    )
    state = go(FedAvg(2), fed, 3)
    before, numbers = fed.meter.bytes, measure_regression(fed, state)
    own = [
        float(np.square(dataset.x[i, 0] * state.theta.item() - dataset.y[i]).mean())
        for i in parts.test
    ]
    assert numbers["mse"] == pytest.approx(np.mean(own)) == numbers["mse_weighted"]
    assert numbers["mse_std"] == pytest.approx(np.std(own)) and numbers[
        "mse_worst"
    ] == pytest.approx(max(own))
    assert fed.meter.bytes == before


def test_selection_counts_visits():
    fed = federation(sizes=SIZES)
    assert selection(fed) == {"coverage": 0, "evenness": 1, "most_visits": 0}
    go(FedAvg(), fed, 2)
    assert selection(fed) == {
        "coverage": 1,
        "evenness": pytest.approx(1),
        "most_visits": 2,
    }
    fed.train(fed.start()[0], torch.tensor([0]))
    assert selection(fed)["evenness"] == pytest.approx(13**2 / 6 / (5 * 4 + 9))
    assert "accuracy" in measure_classification(fed, FedAvg().init(fed))


def test_drawn_data_run_as_tasks():
    arguments = "clusters=2, intercept=True, clients=6, samples=20, tests=10, seed=1"
    name = f"regression({arguments})"
    task = Task(
        FedCVRBolt(sampled=2, warmup=1),
        name,
        partial(data.as_generated, name=name),
        partial(models.linear, inputs=2, classes=1, bias=False),
        Local(0.05, steps=5, batch_size=10),
        rounds=4,
        seed=1,
        measure=measure_regression,
    )
    record = task.record()
    assert record["dataset"] == name and record["client_updates"] == 8
    assert record["data_sha256"] == data.load(name).sha256
    assert 0 < record["metrics"]["final"]["mse"] < np.square(data.load(name).y).mean()
