"""FedGWC and what its chapter needs: kernels against their loops, identities, and
splits that find the groups.
"""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fednb import clustering, reference, similarity
from fednb.experiment import run
from fednb.federation import Federation
from fednb.methods import (
    CFL,
    FairAvg,
    FedAvg,
    FedAvgM,
    FedGWC,
    FedOpt,
    FedProx,
    LocalOnly,
    PerFedAvg,
    PFedMe,
)
from fednb.methods.fedgwc import Seen, gaussian_rewards, groupless
from fednb.metrics import adjusted_rand
from fednb.papers import fedgwc
from fednb.training import Local
from fednb.views import Subfederation, follow, pack, unpack

from .conftest import NETWORKS, blobs, federation, ragged
from .test_methods import go, served

quick = settings(deadline=None, max_examples=40)
number = st.integers(-256, 256).map(lambda i: i / 64)
squares = st.integers(1, 8).flatmap(lambda K: arrays(float, (K, K), elements=number))
curves = st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda s: arrays(float, s, elements=number)
)
AGGREGATORS = [
    FedAvg(),
    FairAvg(),
    FedAvgM(),
    FedOpt(),
    FedProx(),
    PFedMe(local_rounds=2, steps=2),
    PerFedAvg(tau=2),
]


def groups(truth, noisy, samples=24, local=None, **options) -> Federation:
    """Clients of one task whose groups have labels without meaning (``noisy``), or
    another name for each class.
    """
    data, parts = (
        blobs(samples=(samples + 4) * len(truth)),
        ragged([samples] * len(truth), truth=truth),
    )
    y, rng = data.y.copy(), np.random.default_rng(1)
    for k, group in enumerate(truth):
        own = np.concatenate([parts.train[k], parts.test[k]])
        random = rng.integers(3, size=len(own))
        y[own] = (random if group else y[own]) if noisy else (y[own] + group) % 3
    data, model = dataclasses.replace(data, y=y), NETWORKS["mlp"][1]
    return Federation(
        data, parts, model, local=local or Local(lr=0.05, batch_size=8), **options
    )


# --- Gaussian rewards (Eq. 1) ---------------------------------------------------------


@quick
@given(curves)
def test_rewards_agree_with_their_loop(losses):
    omega = gaussian_rewards(torch.from_numpy(losses))
    assert omega.numpy() == pytest.approx(reference.gaussian_rewards(losses), abs=1e-10)
    assert ((omega > 0) & (omega <= 1)).all()


@quick
@given(curves, st.integers(1, 5), st.integers(-5, 5), st.randoms(use_true_random=False))
def test_rewards_know_neither_level_nor_scale_nor_order(losses, scale, level, random):
    x = torch.from_numpy(losses)
    want = gaussian_rewards(x)
    torch.testing.assert_close(
        gaussian_rewards(scale * x + level), want, rtol=0, atol=1e-9
    )
    order = random.sample(range(len(x)), len(x))
    torch.testing.assert_close(
        gaussian_rewards(x[order]), want[order], rtol=0, atol=1e-12
    )


def test_rewards_where_sigma_is_zero():
    for dtype in (torch.float32, torch.float64):
        third = torch.full(
            (7, 3), 1 / 3, dtype=dtype
        )  # a mean of thirds is not a third in every last digit
        assert gaussian_rewards(third).tolist() == [1.0] * 7
        assert gaussian_rewards(third, torch.arange(1, 8)).tolist() == [1.0] * 7
        assert gaussian_rewards(torch.tensor([[0.3, 5.0]], dtype=dtype)).tolist() == [
            1.0
        ]


def test_two_clients_learn_nothing_from_each_other():
    """With two losses each is one half of √2 σ away: Eq. 26 asks for three clients."""
    omega = gaussian_rewards(torch.tensor([[0.1, 7.0], [2.0, 6.5]]))
    assert omega.tolist() == pytest.approx([math.exp(-0.25)] * 2)


def test_rewards_of_clients_with_fewer_steps():
    nan = math.nan
    losses = torch.tensor([[1.0, 2.0, 9.0], [3.0, 2.5, nan], [1.5, nan, nan]])
    first = reference.gaussian_rewards(losses[:, :1].numpy())
    second = reference.gaussian_rewards(
        losses[:2, 1:2].numpy()
    )  # of the two who did it; nobody shared the third
    want = [(first[0] + second[0]) / 2, (first[1] + second[1]) / 2, first[2]]
    assert gaussian_rewards(losses).tolist() == pytest.approx(want)
    lost = torch.tensor([[1.0], [1.2], [math.inf]])
    assert gaussian_rewards(lost).tolist() == pytest.approx([math.exp(-0.25)] * 2 + [0])


def test_weighted_rewards_by_hand():
    losses, n = (
        torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64),
        torch.tensor([1, 2, 1]),
    )
    m, variance = 1.5, (1.5**2 + 2 * 0.5**2 + 2.5**2) / 4
    want = [math.exp(-((x - m) ** 2) / (2 * variance)) for x in (0, 1, 4)]
    assert gaussian_rewards(losses, n).tolist() == pytest.approx(want)


# --- perception affinity (Eq. 4) ------------------------------------------------------


@quick
@given(squares, st.floats(0.01, 3))
def test_affinity_agrees_with_its_loop(P, beta):
    W = similarity.perception_affinity(P, beta)
    assert W.numpy() == pytest.approx(reference.perception_affinity(P, beta), abs=1e-10)
    assert (
        torch.equal(W, W.T)
        and (W.diagonal() == 1).all()
        and W.min() >= 0
        and W.max() <= 1
    )


def test_affinity_of_many_clients_agrees_with_its_loop():
    P = np.random.default_rng(0).uniform(size=(60, 60))
    assert similarity.perception_affinity(P, 0.1).numpy() == pytest.approx(
        reference.perception_affinity(P, 0.1), abs=1e-10
    )
    assert similarity.perception_affinity(
        P.astype(np.float32), 0.1
    ).numpy() == pytest.approx(reference.perception_affinity(P, 0.1), abs=1e-4)


@quick
@given(squares, st.randoms(use_true_random=False))
def test_affinity_is_unbiased_and_knows_no_order(P, random):
    W = similarity.perception_affinity(P, 0.5)
    order = random.sample(range(len(P)), len(P))
    torch.testing.assert_close(
        similarity.perception_affinity(P[np.ix_(order, order)], 0.5), W[order][:, order]
    )
    other = P.copy()
    np.fill_diagonal(other, 1e6)  # how a client perceives itself has no say
    assert torch.equal(similarity.perception_affinity(other, 0.5), W)
    other = P.copy()
    other[0, -1] += 5.0  # nor has how the two of a pair perceive each other
    torch.testing.assert_close(
        similarity.perception_affinity(other, 0.5)[0, -1], W[0, -1]
    )


def test_affinity_leaves_its_input_alone_and_checks_it():
    P = torch.rand(4, 4, requires_grad=True)
    before = P.detach().clone()
    assert not similarity.perception_affinity(P, 0.5).requires_grad and torch.equal(
        P, before
    )
    with pytest.raises(ValueError, match="square"):
        similarity.perception_affinity(torch.rand(3, 4), 0.5)
    with pytest.raises(ValueError, match="beta=0"):
        similarity.perception_affinity(P, 0)
    with pytest.raises(ValueError, match="row 1 of P has NaN"):
        similarity.perception_affinity(torch.tensor([[0.0, 1], [math.nan, 0]]), 0.5)


# --- spectral clustering and bipartition ----------------------------------------------


def blocks(sizes, inside=0.9, across=0.1, noise=0.02, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    W = np.where(truth[:, None] == truth, inside, across) + noise * rng.standard_normal(
        (len(truth), len(truth))
    )
    W = (W + W.T) / 2
    np.fill_diagonal(W, 1)
    return W, truth


@pytest.mark.parametrize("assign", ["kmeans", "ng", "cluster_qr"])
@pytest.mark.parametrize("score_on", ["affinity", "embedding"])
@pytest.mark.parametrize("sizes", [(9, 6), (8, 7, 5), (4, 6, 9, 7)])
def test_spectral_finds_blocks_and_their_number(assign, score_on, sizes):
    W, truth = blocks(sizes)
    for matrix in (W, torch.tensor(W), torch.tensor(W).float()):
        found = clustering.best_spectral(
            matrix, 6, seed=0, assign=assign, score_on=score_on
        )
        assert (
            found.labels.tolist() == clustering.relabel(truth).tolist()
            and found.labels.dtype == torch.int64
        )
        assert 0 < found.score < 1
    assert clustering.best_spectral(
        W, 6, seed=1, assign=assign, score_on=score_on
    ).labels.equal(found.labels)


def test_the_score_is_davies_bouldin_of_rows_of_the_affinity():
    W, truth = blocks((9, 6))
    found = clustering.best_spectral(W, 6, seed=0)
    assert found.score == pytest.approx(
        reference.davies_bouldin(W, found.labels.tolist())
    )
    assert reference.davies_bouldin(
        [[0.0], [2], [10], [14]], [0, 0, 1, 1]
    ) == pytest.approx((1 + 2) / 11)


@pytest.mark.parametrize("assign", ["kmeans", "cluster_qr"])
def test_spectral_agrees_with_scikit_learn(assign):
    from sklearn.cluster import SpectralClustering

    for seed in range(5):
        W, _ = blocks((7, 8, 6), inside=0.6, across=0.3, noise=0.1, seed=seed)
        W = W.clip(0.01)
        theirs = SpectralClustering(
            3, affinity="precomputed", assign_labels=assign, random_state=0
        ).fit_predict(W)
        maps = clustering.eigenmaps(W, 3)
        ours = clustering.cut_maps(maps, 3, seed=0, assign=assign)
        assert clustering.relabel(ours).tolist() == clustering.relabel(theirs).tolist()
        assert np.ptp(maps[:, 0]) < 1e-9  # the trivial eigenvector


def test_ng_clusters_the_directions_of_the_rows():
    """Ng, Jordan, Weiss 2001: eigenvectors of D^-½ W D^-½, rows of unit length."""
    W, truth = blocks((7, 8, 6), inside=0.6, across=0.3, noise=0.1)
    W = W.clip(0.01)
    A = W - np.diag(W.diagonal())
    d = A.sum(1) ** -0.5
    X = np.linalg.eigh(d[:, None] * A * d)[1][:, -3:]
    Y = X / np.linalg.norm(X, axis=1, keepdims=True)
    want = clustering.weighted_kmeans(Y, np.ones(21), 3, seed=0)
    maps = clustering.eigenmaps(W, 3)
    found = clustering.cut_maps(maps, 3, seed=0, assign="ng")
    assert found.tolist() == want.tolist() == clustering.relabel(truth).tolist()
    zero = np.vstack([maps, np.zeros((1, 3))])  # a client without any tie
    assert len(clustering.cut_maps(zero, 3, seed=0, assign="ng")) == 22


def test_no_split_without_structure():
    rng = np.random.default_rng(0)
    W = np.exp(-rng.uniform(size=(30, 30)))
    found = clustering.best_spectral((W + W.T) / 2, 5, seed=0)
    assert found.score > 1 and found.labels.tolist() == [0] * 30
    assert clustering.best_spectral(
        (W + W.T) / 2, 5, seed=0, bound=math.inf
    ).labels.any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for score_on in ("affinity", "embedding"):
            for matrix in (np.ones((8, 8)), np.full((8, 8), 0.5) + 0.5 * np.eye(8)):
                found = clustering.best_spectral(matrix, 5, seed=0, score_on=score_on)
                assert found.labels.tolist() == [0] * 8 and found.score == math.inf
    assert (
        clustering.davies_bouldin_of_rows(np.ones((4, 2)), np.array([0, 0, 1, 1]))
        == math.inf
    )


def test_small_matrices_and_small_clusters():
    for K in (1, 2):
        labels, score = clustering.best_spectral(np.eye(K), 5, seed=0)
        assert labels.tolist() == [0] * K and score == math.inf
    W, truth = blocks((9, 2))
    assert (
        clustering.best_spectral(W, 5, seed=0).labels.tolist()
        == clustering.relabel(truth).tolist()
    )
    for found in (
        clustering.best_spectral(W, 5, seed=0, smallest=3),
        clustering.best_spectral(W, 1, seed=0),
    ):
        sizes = np.bincount(found.labels)
        assert sizes.min() >= 3
    W, truth = blocks((4, 4), inside=1.0, across=0.0, noise=0.0)  # not even connected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            clustering.best_spectral(W, 5, seed=0).labels.tolist()
            == clustering.relabel(truth).tolist()
        )


def test_spectral_and_bipartition_errors():
    with pytest.raises(ValueError, match="assign='magic'"):
        clustering.best_spectral(np.eye(4), 3, 0, assign="magic")
    with pytest.raises(ValueError, match="score_on='x'"):
        clustering.best_spectral(np.eye(4), 3, 0, score_on="x")
    with pytest.raises(ValueError, match="the same both ways"):
        clustering.best_spectral(np.triu(np.ones((3, 3))), 2, 0)
    with pytest.raises(ValueError, match="cannot be cut"):
        clustering.bipartition(np.ones((1, 1)))
    with pytest.raises(ValueError, match="linkage='ward'"):
        clustering.bipartition(np.ones((3, 3)), linkage="ward")


def test_best_spectral_survives_lapack(monkeypatch):
    """LAPACK gives up on some matrices when asked for some eigenvectors only: then all
    are computed.
    """
    import scipy.linalg

    truth = np.repeat([0, 1, 2], [4, 5, 6])
    W = 0.1 + 0.9 * (truth[:, None] == truth)
    usual, asked = scipy.linalg.eigh, []

    def stubborn(M, **how):
        asked.append(how)
        if "subset_by_index" in how:
            raise scipy.linalg.LinAlgError("Internal Error.")
        return usual(M, **how)

    monkeypatch.setattr(scipy.linalg, "eigh", stubborn)
    assert (
        clustering.best_spectral(W, 5, seed=0).labels.tolist()
        == clustering.relabel(truth).tolist()
    )
    assert len(asked) == 2


@quick
@given(st.integers(2, 7), st.integers(0, 10**6))
def test_single_linkage_is_the_optimal_bipartition(K, seed):
    S = similarity.cosine(np.random.default_rng(seed).standard_normal((K, 3))).numpy()
    part = clustering.bipartition(S, linkage="single").numpy()
    want, across = reference.bipartition(S.tolist())
    assert S[part == 0][:, part == 1].max() == pytest.approx(across)
    assert part.tolist() == want  # no ties among random numbers


@pytest.mark.parametrize("linkage", ["single", "complete"])
def test_bipartition_finds_two_blocks(linkage):
    S, truth = blocks((7, 4), inside=0.8, across=-0.3)
    assert (
        clustering.bipartition(torch.tensor(S), linkage).tolist()
        == clustering.relabel(truth).tolist()
    )


def test_single_linkage_may_cut_off_one_client_where_complete_does_not():
    x = np.array([[np.cos(a), np.sin(a)] for a in (0, 0.2, 0.4, 0.6, 0.8, 1.05)])
    S = similarity.cosine(x)
    assert clustering.bipartition(S, "single").tolist() == [0, 0, 0, 0, 0, 1]
    assert clustering.bipartition(S, "complete").sum() > 1


# --- a cluster as a federation --------------------------------------------------------


def test_a_subfederation_is_a_federation_of_its_clients():
    fed, twin = federation(dtype=torch.float64), federation(dtype=torch.float64)
    members = torch.tensor([1, 3])
    small = Subfederation(fed, members, members)
    assert (
        small.K == 2
        and small.n.tolist() == [14, 20]
        and small.sample(1).tolist() == [0, 1]
    )
    theta = fed.start()[0]
    up, same = (
        small.train(theta, torch.tensor([1])),
        twin.train(theta, torch.tensor([3])),
    )
    assert up.clients.tolist() == [1] and torch.equal(up.theta, same.theta)
    assert torch.equal(small.loss(theta), twin.loss(theta)[[1, 3]])
    assert torch.equal(small.loss(theta, torch.tensor([1])), twin.loss(theta)[[3]])
    assert fed.meter.updates == 1


def test_a_subfederation_remembers_the_losses_of_the_sampled():
    fed = federation(sizes=(10,) * 6)
    members = torch.tensor([0, 2, 4, 5])
    small = Subfederation(fed, members, members[[1, 3]])
    theta = fed.start()[0]
    first, second = (
        small.train(theta, small.sample()),
        small.train(theta, torch.arange(4)),
    )
    small.train(theta)  # of everyone: not the round's training
    at = torch.isin(second.clients, small.sample())
    assert (
        torch.equal(small.losses, torch.cat([first.losses, second.losses[at]], 1))
        and len(small.losses) == 2
    )


@pytest.mark.parametrize(
    ("size", "want"), [(4, 4), (99, 10), (0.1, 3), (0.5, 5), (1.0, 10)]
)
def test_at_least_three_of_a_fraction_are_sampled(size, want):
    members, visits = torch.arange(2, 12), torch.zeros(14, 14)
    for priority in (False, True):
        fed = federation(sizes=(5,) * 14)
        drawn = FedGWC(sampled=size, priority=priority).sample(fed, members, visits)
        assert len(drawn) == want and set(drawn.tolist()) <= set(members.tolist())
        assert drawn.tolist() == sorted(drawn.tolist())


def test_priority_for_those_who_were_sampled_least():
    """Section 4.1: who was sampled least comes first, ties are drawn by lot."""
    fed = federation(sizes=(5,) * 9)
    members = torch.tensor([1, 2, 4, 6, 8])
    visits = torch.diag(torch.tensor([0.0, 3, 1, 0, 2, 0, 1, 0, 1]))
    rule = FedGWC(sampled=2, priority=True)
    drawn = {tuple(rule.sample(fed, members, visits).tolist()) for _ in range(40)}
    assert drawn == {(2, 6), (2, 8), (6, 8)}
    state = rule.init(fed)
    for t in range(9):  # nine clients, two of them a round: after nine rounds all twice
        state = rule.step(state, fed, t)
    assert state.visits.diagonal().tolist() == [2] * 9


def test_a_state_follows_its_clients():
    state = PFedMe().init(federation(sizes=(5,) * 4))
    state = state._replace(theta=torch.arange(5.0)[:, None].expand(5, 3))
    half = follow(state, torch.tensor([False, True, False, True]))
    assert half.theta[:, 0].tolist() == [1, 3, 4] and half.labels.tolist() == [
        0,
        1,
    ]  # the last row is the server's
    one = follow(FedAvg().init(federation()), torch.tensor([True, False, False, True]))
    assert one.theta.shape[0] == 1 and one.labels.tolist() == [0, 0]


@pytest.mark.parametrize("method", [FedAvg(), FedAvgM(), PFedMe()])
def test_unpack_undoes_pack(method):
    fed = federation(sizes=(5,) * 6)
    whole = method.init(fed)
    masks = [
        torch.tensor([1, 0, 0, 1, 0, 1]) > 0,
        torch.tensor([0, 1, 0, 0, 1, 0]) > 0,
        torch.arange(6) == 2,
    ]
    parts = [(mask.nonzero()[:, 0], follow(whole, mask)) for mask in masks]
    state = FedGWC(method).init(fed)._replace(**pack(parts))
    assert torch.equal(served(state), served(whole)) and state.clusters.tolist() == [
        0,
        1,
        2,
        0,
        1,
        0,
    ]
    for (members, inner), (again, same) in zip(
        parts, unpack(state, method), strict=True
    ):
        assert torch.equal(members, again) and type(inner) is type(same)
        assert all(torch.equal(a, b) for a, b in zip(inner, same, strict=True))


# --- FedGWC ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "aggregator", [*AGGREGATORS, LocalOnly()], ids=lambda m: type(m).__name__
)
def test_fedgwc_that_never_splits_is_its_aggregator(aggregator):
    alone = dataclasses.replace(aggregator, sampled=3)
    options = {"network": "cnn_bn", "sizes": (9, 14, 7, 20, 11), "dtype": torch.float64}
    a = go(FedGWC(aggregator, sampled=3, eps=0.0), federation(**options), 3)
    b = go(alone, federation(**options), 3)
    assert torch.equal(served(a), served(b)) and not a.clusters.any()


def observed(method, K, sampled, rounds, noise=0.3, seed=0):
    """Replay losses around one level, and tell the round in which the trigger fires
    first.
    """
    rng = np.random.default_rng(seed)
    P = torch.full((K, K), method.initial / K**2, dtype=torch.float64)
    calm = torch.zeros((), dtype=torch.int64)
    seen = Seen(P, torch.zeros_like(P), torch.ones(()), calm)
    for t in range(rounds):
        S = torch.from_numpy(np.sort(rng.choice(K, sampled, replace=False)))
        losses = (
            1
            + noise * rng.standard_normal((sampled, 1))
            + 0.1 * rng.standard_normal((sampled, 8))
        )
        seen = method.observe(
            seen, S, torch.from_numpy(losses), torch.full((sampled,), 500), K
        )
        if method.due(seen.calm, sampled, K):
            return t + 1
    return None


def test_the_printed_trigger_never_fires_unless_the_whole_matrix_counts():
    assert observed(FedGWC.as_printed(), 40, 10, 700) is None
    assert observed(FedGWC.as_printed(whole_matrix=True), 40, 10, 700) is not None
    assert observed(FedGWC(), 40, 10, 700) > 50
    assert (
        observed(FedGWC(eps=1e-5), 12, 4, 1500) is not None
    )  # a mean converges whatever K and |P_t|
    assert (
        observed(FedGWC.as_released(), 40, 10, 700) is None
    )  # a constant α leaves noise, here more than ε
    assert observed(FedGWC.as_released(eps=3e-4), 40, 10, 700) is not None


def test_observe_by_hand():
    losses, S = (
        torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64),
        torch.tensor([0, 2, 3]),
    )
    omega = reference.gaussian_rewards(losses.numpy())
    P = torch.arange(25, dtype=torch.float64).view(5, 5) / 25
    seen = Seen(P, torch.zeros_like(P), torch.tensor(1.0), torch.tensor(4))
    want, change = P.numpy().copy(), 0.0
    for i, k in enumerate((0, 2, 3)):  # Eq. 3
        for j in (0, 2, 3):
            change += (0.1 * (omega[i] - want[k, j])) ** 2
            want[k, j] = 0.9 * want[k, j] + 0.1 * omega[i]
    new, visits, mse, calm = FedGWC.as_printed().observe(
        seen, S, losses, torch.ones(3), 5
    )
    assert (
        new.numpy() == pytest.approx(want)
        and float(mse) == pytest.approx(change / 9)
        and int(calm) == 0
    )
    assert visits.sum() == 9 and visits[0, 3] == 1 and visits[0, 1] == 0
    assert torch.equal(P, torch.arange(25, dtype=torch.float64).view(5, 5) / 25)
    printed = FedGWC.as_printed(whole_matrix=True, eps=1.0).observe(
        seen, S, losses, torch.ones(3), 5
    )
    assert float(printed[2]) == pytest.approx(change / 25) and int(printed[3]) == 5
    share = FedGWC.as_released().observe(seen, S, losses, torch.ones(3), 5)
    omega = gaussian_rewards(losses, torch.ones(3)).numpy()
    step = 0.6 * (omega / omega.sum() - P.numpy()[0, 3])
    assert float(share[0][0, 3] - P[0, 3]) == pytest.approx(step[0])
    assert (
        0.4 < float(share[2]) < 0.5
    )  # the moving average starts at 1 and forgets 60 %


def test_p_is_the_mean_reward_of_a_pairs_rounds():
    rng, method = np.random.default_rng(0), FedGWC(normalise=False)
    P = torch.rand(5, 5, dtype=torch.float64)  # the initial value has no say
    seen, rewards = Seen(P, 0 * P, torch.tensor(1.0), torch.tensor(0)), {}
    for _ in range(12):
        S, losses = np.sort(rng.choice(5, 3, replace=False)), rng.uniform(size=(3, 4))
        seen = method.observe(
            seen, torch.from_numpy(S), torch.from_numpy(losses), torch.ones(3), 5
        )
        for k, omega in zip(S, reference.gaussian_rewards(losses), strict=True):
            for j in S:
                rewards.setdefault((k, j), []).append(omega)
    for pair, omegas in rewards.items():
        assert float(seen[0][pair]) == pytest.approx(np.mean(omegas)) and int(
            seen[1][pair]
        ) == len(omegas)


TRUTH = [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_fedgwc_splits_two_obvious_groups_rightly(seed):
    fed, method = (
        groups(TRUTH, noisy=True, seed=seed),
        FedGWC(sampled=4, eps=1e-4),
    )
    state = method.init(fed)
    for t in range(120):
        fed.t, before = t, state
        state = method.step(state, fed, t)
        if len(state.mse) > 1:
            break
    assert state.clusters.tolist() == TRUTH and torch.equal(
        state.labels, state.clusters
    )
    assert torch.equal(
        state.theta[0], state.theta[1]
    )  # both start from the parent's model
    assert (
        state.mse.tolist() == [1, 1]
        and state.calm.tolist() == [0, 0]
        and not state.visits.any()
    )
    assert len(before.mse) == 1 and before.clusters.eq(0).all()
    again = method.step(state, fed, t + 1)
    assert not torch.equal(again.theta[0], again.theta[1])
    outside = torch.tensor(TRUTH)[:, None] != torch.tensor(TRUTH)
    assert torch.equal(again.P[outside], state.P[outside]) and not torch.equal(
        again.P, state.P
    )


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=lambda m: type(m).__name__)
def test_fedgwc_splits_over_every_aggregation(aggregator):
    """The trigger fires soon: what matters here is that states go with their clients,
    and that the run goes on.
    """
    fed = groups(TRUTH, noisy=True, samples=12, local=Local(lr=0.02, batch_size=8))
    method = FedGWC(aggregator, sampled=9, eps=1.0, alpha=0.1, patience=8, chance=1.0)
    state = method.init(fed)
    for t in range(40):
        before, state = state, method.step(state, fed, t)
        if len(state.mse) > 1:
            break
    C = len(state.mse)
    assert C > 1 and sorted(state.clusters.unique().tolist()) == list(range(C))
    assert state.theta.isfinite().all() and int(state.rows.sum()) == len(state.theta)
    assert int(state.labels.max()) < len(state.theta)
    personal = isinstance(aggregator, PFedMe | PerFedAvg)
    assert len(state.theta) == (12 + C if personal else C)
    for tensor in state.memory:  # children go on with the parent's momentum
        assert all(torch.equal(row, tensor[0]) for row in tensor)
    if isinstance(aggregator, PFedMe):  # whoever was not sampled keeps the model it had
        same = (served(state) == served(before)).all(1)
        assert same.sum() == 3
    after = go(method, fed, 2, state)
    assert after.theta.isfinite().all() and not torch.equal(
        served(after), served(state)
    )


@pytest.mark.parametrize(
    ("sampled", "one", "two"), [(4, 4, 8), (0.25, 3, 4), (1.0, 12, 12)]
)
def test_what_a_split_does_to_the_number_of_updates(sampled, one, two):
    """A number of clients is sampled in each cluster; a fraction of each is a fraction
    of all, up to rounding.
    """
    fed, method = groups(TRUTH, noisy=True), FedGWC(sampled=sampled, least=2)
    state, labels = method.init(fed), torch.tensor(TRUTH)
    method.step(state, fed, 0)
    assert fed.meter.updates == one
    parts = [
        ((labels == c).nonzero()[:, 0], follow(FedAvg().init(fed), labels == c))
        for c in (0, 1)
    ]
    method.step(
        state._replace(
            **pack(parts), mse=torch.ones(2), calm=torch.zeros(2, dtype=torch.int64)
        ),
        fed,
        1,
    )
    assert fed.meter.updates == one + two


@pytest.mark.parametrize(("patience", "attempt"), [(None, 3), (1, 1), (5, 5)])
def test_patience(patience, attempt):
    """Without a number it takes as many calm rounds as it takes to sample everyone,
    here 12 / 4.
    """
    rule = FedGWC(sampled=4, eps=10.0, patience=patience, n_max=1, retry="reset")
    fed = groups(TRUTH, noisy=True)
    state = rule.init(fed)
    for t in range(attempt):
        assert int(state.calm) == t
        state = rule.step(state, fed, t)
    assert int(state.calm) == 0 and float(state.mse) == 1


def test_when_the_next_attempt_is_due():
    calm = torch.arange(50)
    due = {
        retry: [int(c) for c in calm if FedGWC(retry=retry).due(c, 4, 12)]
        for retry in ("double", "always", "reset")
    }
    assert due["double"] == [3, 6, 12, 24, 48]
    assert due["always"] == due["reset"] == list(range(3, 50))
    once = FedGWC(patience=1)
    assert [int(c) for c in calm if once.due(c, 4, 12)] == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize("retry", ["double", "reset", "always"])
def test_a_vain_attempt(retry):
    """Equal clients are not split; what was seen of them is kept."""
    fed = federation(sizes=(10,) * 6)
    rule = FedGWC(sampled=1.0, eps=10.0, patience=1, n_max=1, retry=retry)
    state = go(rule, fed, 2)
    assert len(state.mse) == 1 and not state.clusters.any()
    assert (state.visits == 2).all()
    assert int(state.calm) == (0 if retry == "reset" else 2)
    assert (float(state.mse) == 1) == (retry == "reset")


@pytest.mark.parametrize("seed", range(8))
def test_what_a_vain_attempt_saw_is_not_lost(seed):
    """The first attempts come too early; later ones need all that was seen before."""
    truth = np.repeat([0, 1], 15)
    rule = FedGWC(sampled=6, eps=2e-3)
    past = fedgwc.theory.play(rule, 0.5 * truth, 6, 720, again=True, seed=seed)
    early = fedgwc.theory.play(rule, 0.5 * truth, 6, 720, seed=seed)
    assert early.first and not early.labels.any()
    assert adjusted_rand(truth, past.labels) > 0.7


def test_options_of_the_split():
    rng = np.random.default_rng(0)
    level = np.where(np.arange(20) < 14, 0.8, 0.4)[:, None]
    P = torch.from_numpy(level + 0.02 * rng.standard_normal((20, 20)))
    want = [0] * 14 + [1] * 6
    assert FedGWC().split(P, 5, 0).tolist() == want
    assert FedGWC.as_printed().split(P, 5, 0).tolist() == want
    assert (
        not FedGWC(columns=True).split(P, 5, 0).any()
    )  # the level of a client is in its row only
    assert FedGWC(columns=True).split(P.T, 5, 0).tolist() == want
    assert (
        not FedGWC(k_min=7).split(P, 5, 0).any()
        and not FedGWC(room=True).split(P, 11, 0).any()
    )
    assert FedGWC().split(P / 1e3, 5, 0).tolist() == want  # rescaled
    assert not FedGWC().split(torch.zeros(6, 6), 3, 0).any()


def test_a_cloud_without_groups_has_the_spread_of_the_matrix():
    rng = np.random.default_rng(0)
    client = 0.3 * rng.standard_normal((40, 1))
    P = torch.as_tensor(0.5 + client + 0.1 * rng.standard_normal((40, 40)))
    drawn = groupless(P, rng)
    for x in (P, drawn):
        assert float(x.mean(1).std()) == pytest.approx(0.3, rel=0.3)
        assert float((x - x.mean(1, keepdim=True)).std()) == pytest.approx(0.1, rel=0.1)
    assert drawn.dtype == P.dtype and not torch.equal(drawn, groupless(P, rng))
    rows = torch.arange(5.0)[:, None].expand(5, 5)  # no spread within rows
    assert float((groupless(rows, rng).std(1)).max()) < 1e-6


def test_a_split_must_beat_chance():
    """All clients sampled: rows of P are single numbers, and any cut of them looks
    good.
    """
    found = {1.0: 0, 0.01: 0}
    for chance in found:
        for seed in range(10):
            rule = FedGWC(eps=2e-3, chance=chance)
            past = fedgwc.theory.play(rule, np.zeros(10), 10, 20, force=True, seed=seed)
            found[chance] += int(past.labels.any())
    assert found[1.0] >= 5 and found[0.01] == 0
    far = np.repeat([0.0, 1.0], [7, 3])
    past = fedgwc.theory.play(FedGWC(), far, 10, 20, force=True)
    assert adjusted_rand(far, past.labels) == 1


def test_presets():
    assert FedGWC.corrected() == FedGWC() and FedGWC.as_printed(eps=1.0).eps == 1.0
    assert len({FedGWC(), FedGWC.as_printed(), FedGWC.as_released()}) == 3
    assert (
        CFL.corrected() == CFL()
        and len({CFL(), CFL.as_printed(), CFL.as_released()}) == 3
    )


def test_fedgwc_refuses_nonsense():
    for alpha in (0.0, 1.5, "slow"):
        with pytest.raises(ValueError, match="need 'mean' or 'share', or a finite"):
            FedGWC(alpha=alpha)
    with pytest.raises(ValueError, match="samples for its aggregator"):
        FedGWC(FedAvg(sampled=5), sampled=10)
    assert FedGWC(FedAvg(sampled=5), sampled=5).sampled == 5


def test_a_run_with_splits_resumes_bit_for_bit(tmp_path):
    method = FedGWC(FedAvgM(), sampled=9, eps=1.0, alpha=0.1, patience=8, chance=1.0)
    options = {"every": 100, "progress": False}
    whole = run(method, groups(TRUTH, noisy=True, samples=12), 14, **options).state
    run(
        method,
        groups(TRUTH, noisy=True, samples=12),
        9,
        **options,
        checkpoint=tmp_path / "c.npz",
    )
    resumed = run(
        method,
        groups(TRUTH, noisy=True, samples=12),
        14,
        **options,
        checkpoint=tmp_path / "c.npz",
    ).state
    for a, b in zip(whole, resumed, strict=True):
        assert (
            torch.equal(a, b)
            if isinstance(a, torch.Tensor)
            else all(map(torch.equal, a, b))
        )
    assert len(whole.mse) > 1


# --- CFL ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampled", [1.0, 3])
def test_cfl_that_never_splits_is_fedavg(sampled):
    options = {"network": "cnn_bn", "sizes": (9, 14, 7, 20, 11), "dtype": torch.float64}
    a = go(CFL(sampled, eps1=0.0, wait=0), federation(**options), 4)
    b = go(FedAvg(sampled), federation(**options), 4)
    torch.testing.assert_close(served(a), served(b), rtol=0, atol=1e-12)


STILL = Local(lr=0.1, batch_size=None, steps=5)


@pytest.mark.parametrize("seed", range(2))
def test_cfl_finds_three_groups_by_two_cuts(seed):
    """After the first cut a cluster's members are not 0, 1, ...: their own numbers must
    be used.
    """
    truth = [0, 1, 2] * 3
    fed = groups(truth, noisy=False, samples=100, local=STILL, seed=seed)
    state, counts = CFL(wait=0).init(fed), []
    for t in range(25):
        state = CFL(wait=0).step(state, fed, t)
        counts.append(len(state.theta))
    assert counts[0] == 1 and 2 in counts and counts[-1] == 3
    assert adjusted_rand(truth, state.labels) == 1
    assert CFL(wait=30).step(CFL().init(fed), fed, 29).labels.eq(0).all()


def test_a_cut_is_decided_by_all_members_and_children_average_at_once():
    truth = [0, 1] * 4
    fed = groups(truth, noisy=False, samples=60, local=STILL)
    method = CFL(sampled=6, wait=0, eps1=5.0, eps2=0.1)  # at once
    start = method.init(fed)
    state = method.step(start, fed, 0)
    assert (
        fed.meter.updates == 8
        and len(state.theta) == 2
        and adjusted_rand(truth, state.labels) == 1
    )
    twin = groups(truth, noisy=False, samples=60, local=STILL)
    up = twin.train(start.theta[0])
    for c in (0, 1):
        torch.testing.assert_close(state.theta[c], up.theta[state.labels == c].mean(0))
    assert method.step(start, groups(truth, False, 60, STILL), 0).peak.shape == (2,)


def test_cfl_thresholds():
    delta = torch.tensor([[3.0, 0], [-3.0, 0.1]])
    n, peak = torch.tensor([1, 1]), torch.tensor(2.0)
    assert CFL(eps1=0.1, eps2=1.0).should_split(delta, n, peak)
    assert not CFL(eps1=0.01, eps2=1.0).should_split(delta, n, peak)
    assert not CFL(eps1=0.1, eps2=1.6).should_split(
        delta, n, peak
    )  # 1.6 of 2 is more than 3
    assert CFL(eps1=0.1, eps2=1.6, relative=False).should_split(delta, n, peak)
    assert not CFL(eps1=0.1, eps2=1.0).should_split(
        delta, torch.tensor([2, 1]), peak
    )  # the mean is by samples
    assert CFL().cut(delta).tolist() == [0, 1]
    assert CFL(gamma_max=1.0).cut(delta).tolist() == [0, 0]
    assert CFL().cut(torch.ones(3, 2)).tolist() == [0, 0, 0]
    for smallest, clusters in ((4, 2), (5, 1)):  # of four clients
        method = CFL(wait=0, eps1=9.0, eps2=0.0, smallest=smallest)
        assert len(go(method, federation(dtype=torch.float64), 1).theta) == clusters


# --- personalised baselines -----------------------------------------------------------


def test_pfedme_with_one_full_step_is_fedprox():
    """R = 1 and η λ = 1: w moves all the way to the proximal point, which is FedProx's
    local model.
    """
    options = {"network": "cnn_bn", "sizes": (10,) * 4, "dtype": torch.float64}
    a = PFedMe(sampled=3, lam=4.0, eta=0.25, local_rounds=1, steps=3)
    a = go(a, federation(**options), 3)
    b = go(
        FedProx(sampled=3, mu=4.0),
        federation(**options, local=Local(lr=0.05, batch_size=5, steps=3)),
        3,
    )
    torch.testing.assert_close(a.theta[-1], b.theta[0], rtol=0, atol=1e-12)


def test_pfedme_limits():
    fed = federation(dtype=torch.float64)
    start = fed.start()[0]
    still = go(PFedMe(beta=0.0), federation(dtype=torch.float64), 2)
    assert torch.equal(still.theta[-1], start) and not torch.equal(
        still.theta[0], start
    )
    far = [
        (
            go(PFedMe(lam=lam, eta=0.0), federation(dtype=torch.float64), 1).theta[0]
            - start
        ).norm()
        for lam in (0.0, 1.0, 15.0)
    ]
    assert far[0] > far[1] > far[2] > 0
    alone = go(
        PFedMe(lam=0.0, local_rounds=1, steps=4), federation(dtype=torch.float64), 1
    )  # nothing pulls
    free = federation(dtype=torch.float64).train(start, steps=4)
    torch.testing.assert_close(alone.theta[:-1], free.theta)


def test_who_trains_in_pfedme():
    fed = federation(sizes=(10,) * 5)
    method = PFedMe(sampled=2)
    before = method.init(fed)
    after = method.step(before, fed, 0)
    changed = (after.theta != before.theta).any(1)
    assert changed[:-1].sum() == 2 and changed[-1]
    assert (
        fed.meter.bytes == 2 * 2 * before.theta[0].nbytes
    )  # w goes down and up once, whatever R
    fed = federation(sizes=(10,) * 5)
    everyone = PFedMe(sampled=2, all_train=True).step(before, fed, 0)
    assert (everyone.theta != before.theta).any(1).all()
    assert torch.equal(
        everyone.theta[-1], after.theta[-1]
    )  # only those sampled are averaged
    a, b = (
        go(
            PFedMe(all_train=every, sampled=5),
            federation(sizes=(10,) * 5, dtype=torch.float64),
            2,
        )
        for every in (False, True)
    )
    assert torch.equal(a.theta, b.theta)


def gradient(fed, row, k):
    """Gradient of client k's mean loss by autograd, with no help from the backends."""
    module = fed.network(row).train()
    x, y = fed.samples(fed.sample_numbers([k], "train"))
    loss = torch.nn.functional.cross_entropy(module(x), y)
    return torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))]
    )


def test_per_fedavg_by_hand():
    local = Local(lr=0.1, batch_size=None)
    fed = federation(sizes=(12, 9), local=local, dtype=torch.float64)
    method = PerFedAvg(alpha=0.3, beta=0.2, tau=2)
    state = method.step(method.init(fed), fed, 0)
    rows = []
    for k in (0, 1):
        w = fed.start()[0]
        for _ in range(2):
            w = w - 0.2 * gradient(fed, w - 0.3 * gradient(fed, w, k), k)
        rows.append(w)
    w = (rows[0] + rows[1]) / 2
    torch.testing.assert_close(state.theta[-1], w)
    for k in (0, 1):
        torch.testing.assert_close(state.theta[k], w - 0.3 * gradient(fed, w, k))


def test_per_fedavg_without_a_personal_step_is_fairavg():
    local = Local(lr=0.1, batch_size=None, steps=3)
    a, b = (federation(local=local, dtype=torch.float64) for _ in range(2))
    state = go(PerFedAvg(alpha=1e-14, tau=3), a, 2)
    torch.testing.assert_close(
        state.theta, go(FairAvg(), b, 2).theta.expand_as(state.theta)
    )


def test_personal_models_of_a_network_with_batchnorm_have_running_statistics():
    fed = federation("cnn_bn")
    start, P = fed.start()[0], fed.layout.P
    for method in (PFedMe(), PerFedAvg()):
        state = go(method, federation("cnn_bn"), 1)
        assert (state.theta[:, P:] != start[P:]).any(1).all()


@pytest.mark.parametrize(
    "method", [PFedMe(local_rounds=2), PerFedAvg(tau=2)], ids=lambda m: type(m).__name__
)
def test_both_backends_personalise_alike(method):
    a, b = (
        go(method, federation(backend=backend, dtype=torch.float64), 2)
        for backend in ("lean", "batched")
    )
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-9)


def test_clusters_are_counted_as_such_when_every_client_has_a_row():
    from fednb.experiment import measure

    fed = federation(sizes=(9, 14, 7, 20), truth=[0, 0, 1, 1])
    method = FedGWC(aggregator=PFedMe(), sampled=1.0)
    state = method.init(fed)
    state = method.step(state, fed, 0)
    assert len(state.labels.unique()) == 4 and measure(fed, state)["clusters"] == 1
