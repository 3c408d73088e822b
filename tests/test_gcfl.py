"""GCFL and the baselines of its tables: kernels against their loops, identities, cases
with a known answer.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fednb import clustering, contract, models, reference, similarity
from fednb.federation import Federation
from fednb.methods import (
    CFLGP,
    MTCFL,
    AutoCFL,
    FedAvg,
    FedCCFA,
    FedEM,
    FedSoft,
    FixedClusters,
    LocalOnly,
)
from fednb.methods.fedccfa import lines, madd, train_part
from fednb.methods.fedem import posterior
from fednb.methods.gcfl import GCFL, locate
from fednb.partition import Partition
from fednb.training import Local

from .conftest import blobs, federation
from .test_methods import SIZES, go, same, served

quick = settings(deadline=None, max_examples=25)
seeds, FLAGS = st.integers(0, 10**6), list(itertools.product([False, True], repeat=2))


def bodies(seed, least=1, most=9):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(least, most))
    return rng.random((K, 3)), rng.random(K)


def two_groups(seed=0, clients=8, **options):
    """Half of the clients hold classes 0 and 1, the others 2 and 3; sizes differ."""
    data, rng = (
        blobs(samples=400, classes=4, test=80, seed=seed),
        np.random.default_rng(seed),
    )
    truth, train, test = np.arange(clients) % 2, [], []
    pools = [
        list(rng.permutation(np.flatnonzero(data.y[:400] // 2 == g))) for g in (0, 1)
    ]
    for k in range(clients):
        size = int(rng.integers(20, 35))
        own = np.array([pools[truth[k]].pop() for _ in range(size)])
        train.append(own[5:])
        test.append(own[:5])
    options = {"local": Local(lr=0.1, epochs=2, batch_size=8), "seed": seed} | options
    return Federation(
        data, Partition(train, test, truth), lambda: models.mlp(16, (8,), 4), **options
    ), truth


# --- kernels --------------------------------------------------------------------------


@quick
@given(seeds, st.floats(1e-3, 2), st.floats(0.3, 3))
def test_attraction_agrees_with_its_loop(seed, zeta, scale):
    z, m = bodies(seed)
    for flags in FLAGS:
        fast = similarity.attraction(z, m, zeta, *flags, scale)
        assert fast.numpy() == pytest.approx(
            reference.attraction(z, m, zeta, *flags, scale), abs=1e-11, rel=1e-11
        )
        assert torch.equal(fast, fast.T) and (fast.diagonal() == 0).all()


@quick
@given(seeds, st.floats(0.1, 10))
def test_attraction_on_other_scales(seed, c):
    """Masses in another unit change nothing after normalisation; nor do distances, if ζ
    is in the same unit.
    """
    z, m = bodies(seed, 3)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    A = similarity.attraction(z, m, 0.1)
    for other in (
        similarity.attraction(z, c * m, 0.1),
        similarity.attraction(c * z, m, 0.1 * c),
        similarity.attraction(z @ turn + 5, m, 0.1),
    ):
        torch.testing.assert_close(other, A, rtol=1e-8, atol=1e-12)
    plain = similarity.attraction(z, m, 0.1, normalised=False)
    torch.testing.assert_close(
        similarity.attraction(z, c * m, 0.1, normalised=False), c**2 * plain
    )


def test_attraction_by_hand():
    z, m = [[0.0], [1.0], [3.0]], [1.0, 2.0, 3.0]
    A = similarity.attraction(
        np.array(z), np.array(m), 1.0, shielded=False, normalised=False
    )
    assert A.tolist() == [[0, 1, 0.75], [1, 0, 2], [0.75, 2, 0]]
    shielded = similarity.attraction(np.array(z), np.array(m), 1.0, normalised=False)
    assert shielded[0, 2] == pytest.approx(
        0.75 * np.exp(-((3 / 2) ** 2))
    )  # distances 1, 2, 3: λ = 2


def test_bodies_at_one_place_and_far_away():
    place = torch.zeros(4, 2)
    assert similarity.attraction(place, torch.ones(4), 0.1).tolist() == pytest.approx(
        ((1 - torch.eye(4)) / 3).numpy(), abs=1e-6
    )
    z = torch.tensor(
        [[0.0], [0.0], [0.0], [0.0], [1.0]]
    )  # λ = 0: the last feels nobody
    A = similarity.attraction(z, torch.ones(5), 0.1)
    assert A.isfinite().all() and (A[4] == 0).all() and A[0, 1] == pytest.approx(1 / 3)
    assert similarity.attraction(torch.ones(1, 3), torch.ones(1), 0.1).tolist() == [
        [0.0]
    ]
    weightless = similarity.attraction(
        torch.rand(3, 2), torch.tensor([0.0, 1.0, 1.0]), 0.1
    )
    assert weightless.isfinite().all() and (weightless[0] == 0).all()


def test_attraction_refuses_nonsense():
    z = torch.rand(3, 2)
    for zeta in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="zeta"):
            similarity.attraction(z, torch.ones(3), zeta)
    for m in (torch.ones(2), -torch.ones(3), torch.full((3,), torch.nan)):
        with pytest.raises(ValueError, match="mass"):
            similarity.attraction(z, m, 0.1)


@quick
@given(seeds, st.sampled_from([None, 256]), st.booleans())
def test_otsu_components_agree_with_their_loop(seed, bins, join):
    A = similarity.attraction(*bodies(seed), 0.1)
    labels = clustering.otsu_components(A, bins, join)
    assert labels.tolist() == reference.otsu_components(A.tolist(), bins, join)
    assert torch.equal(clustering.otsu_components(7 * A.numpy(), bins, join), labels)
    if join and len(A) > 1:
        assert labels.bincount().min() >= 2


@quick
@given(seeds)
def test_otsu_components_follow_a_permutation(seed):
    A = similarity.attraction(*bodies(seed, 4), 0.1)
    perm = torch.from_numpy(np.random.default_rng(seed).permutation(len(A)))
    moved = clustering.otsu_components(A[perm][:, perm])
    assert torch.equal(moved, clustering.relabel(clustering.otsu_components(A)[perm]))


# Computed once by scikit-image 0.26: threshold_otsu of 16 and 256 bins named by their
# upper edges, and of all values as bins.
SCIKIT_IMAGE = [
    (1.12725, 0.9672343750000001, 2.209),
    (0.961375, 0.9298984375, 2.084),
    (0.9950625, 0.9410585937499999, 2.044),
    (1.039375, 0.8810546875, 2.046),
    (0.984875, 0.94128125, 2.164),
    (1.07825, 0.9138359375, 2.205),
]


@pytest.mark.parametrize("seed", range(len(SCIKIT_IMAGE)))
def test_otsu_is_that_of_scikit_image_in_every_bit(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 3, 12)
    A = (groups[:, None] == groups) + 0.5 * rng.random((12, 12))
    A = np.round(A + A.T, 3)
    found = tuple(clustering.otsu_threshold(A, bins) for bins in (16, 256, None))
    assert found == SCIKIT_IMAGE[seed]


def test_a_weak_pair_in_the_upper_half_of_its_bin_stays_weak():
    """The plain bin centre of scikit-image, with >=, would link it."""
    A = np.zeros((4, 4))
    A[0, 1] = A[2, 3] = 1
    A[0, 2] = 0.003  # the first of 256 bins ends at 0.0039, its centre is 0.00195
    A += A.T
    assert clustering.otsu_components(A).tolist() == [0, 0, 1, 1]
    assert clustering.otsu_components(A, bins=None).tolist() == [0, 0, 1, 1]


def test_otsu_components_in_simple_cases():
    assert clustering.otsu_components(torch.zeros(1, 1)).tolist() == [0]
    assert clustering.otsu_components(torch.zeros(3, 3)).tolist() == [0, 0, 0]
    even = (1 - torch.eye(4)) / 3
    assert (
        clustering.otsu_components(even).tolist() == [0] * 4
    )  # no two sorts of pairs: one cluster
    even[0, 1] = even[1, 0] = 1 / 3 + 1e-8
    assert clustering.otsu_components(even).tolist() == [0] * 4
    chain = torch.tensor([[0.0, 9, 1, 1], [9, 0, 8, 1], [1, 8, 0, 2], [1, 1, 2, 0]])
    assert clustering.otsu_components(chain).tolist() == [
        0,
        0,
        0,
        1,
    ]  # 0 and 2 meet through 1
    assert clustering.otsu_components(chain, join=True).tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="bins=1"):
        clustering.otsu_components(chain, bins=1)
    with pytest.raises(ValueError, match="the same both ways"):
        clustering.otsu_components(chain.triu())


@quick
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=9))
def test_components_join_whoever_is_linked(pairs):
    links = torch.zeros(7, 7, dtype=torch.bool)
    for a, b in pairs:
        links[a, b] = True  # in one direction only
    names = list(range(7))
    for a, b in pairs:
        names = [names[a] if name == names[b] else name for name in names]
    assert torch.equal(
        clustering.components(links), clustering.relabel(torch.tensor(names))
    )
    assert torch.equal(
        clustering.components(links.numpy()), clustering.components(links)
    )


@quick
@given(seeds)
def test_locations_agree_with_their_loop(seed):
    rng = np.random.default_rng(seed)
    logits, y = rng.normal(size=(4, 12, 3)) * 3, np.r_[0, 1, 2, rng.integers(3, size=9)]
    z, rho = locate(torch.from_numpy(logits), torch.from_numpy(y), 3)
    want_z, want_rho = reference.location(logits, y)
    assert z.numpy() == pytest.approx(want_z) and rho.numpy() == pytest.approx(want_rho)
    assert z.norm(dim=1).numpy() == pytest.approx(np.ones(4))


@quick
@given(seeds, st.integers(1, 7))
def test_madd_agrees_with_its_loop(seed, n):
    x = np.random.default_rng(seed).normal(size=(n, 4))
    assert madd(torch.from_numpy(x)).numpy() == pytest.approx(
        reference.madd(x), abs=1e-12
    )


# --- the probe set --------------------------------------------------------------------


def test_no_client_sample_is_in_the_probe_set():
    fed, _ = two_groups()
    x, y = fed.probe(5)
    used = torch.cat([fed.sample_numbers(on=on) for on in ("train", "test")])
    held = fed.samples(used)[0]
    assert (
        not (x[:, None] == held[None]).flatten(2).all(2).any()
    )  # blobs are real numbers: no two samples are alike
    assert (
        (held[:3, None] == held[None]).flatten(2).all(2).any(1).all()
    )  # the comparison would notice
    assert y.bincount().tolist() == [5] * 4


def test_the_probe_set_stays_the_same_and_depends_on_the_seed():
    fed, _ = two_groups()
    first = fed.probe(3)[0]
    fed.draw(), fed.sample(2)
    assert torch.equal(fed.probe(3)[0], first)
    assert not torch.equal(two_groups(seed=1)[0].probe(3)[0], first)


def test_a_server_that_lacks_a_class_says_so():
    data = blobs(samples=40)
    own = np.flatnonzero(data.y == 2)
    rest = np.flatnonzero((data.y != 2) & (np.arange(len(data.y)) < 40))
    fed = Federation(
        data,
        Partition([rest[5:]], [np.r_[rest[:5], own]], None),
        lambda: models.mlp(16, (8,), 3),
    )
    with pytest.raises(ValueError, match="class 2"):
        GCFL().step(GCFL().init(fed), fed, 0)


# --- GCFL -----------------------------------------------------------------------------


@dataclass(frozen=True)
class AtOnce(GCFL):
    delta_init: float = 1e9


@dataclass(frozen=True)
class Partly(GCFL):
    delta_init: float = 1e9
    sampled: int | float = 2


@dataclass(frozen=True)
class ByParameters(GCFL):
    delta_init: float = 1e9
    location: str = "parameters"


@pytest.mark.parametrize("rule", contract.RULES)
@pytest.mark.parametrize(
    "cls", [GCFL, AtOnce, Partly, ByParameters], ids=lambda cls: cls.__name__
)
def test_contract(cls, rule):
    if cls is Partly and rule == "twins":
        pytest.skip("which of two equal clients is sampled is drawn")
    contract.check(cls(), [rule])


@pytest.mark.parametrize("sampled", [1.0, 3])
def test_gcfl_that_never_starts_is_fedavg(sampled):
    same(GCFL(delta_init=0.0, latest=None, sampled=sampled), FedAvg(sampled=sampled))


@pytest.mark.parametrize(
    "variant",
    [{}, {"mass": False}, {"shielded": False}, {"location": "parameters"}],
    ids=str,
)
def test_gcfl_finds_two_groups_and_then_is_fedavg_in_each(variant):
    method, (fed, truth) = (
        GCFL(delta_init=1e9, **variant),
        two_groups(dtype=torch.float64),
    )
    state = go(method, fed, 4)
    assert state.labels.tolist() == truth.tolist()
    before = fed.snapshot()
    after = method.step(state, fed, 4)
    fed.restore(before)
    oracle = FixedClusters(truth)
    want = oracle.step(oracle.init(fed)._replace(theta=state.theta), fed, 4)
    torch.testing.assert_close(served(after), served(want), rtol=0, atol=1e-12)


def test_cold_start_lasts_until_the_global_model_is_stable():
    """The round in which Eq. 3 first holds is that of FedAvg, and clusters are found in
    it.
    """
    plain, P = two_groups()[0], two_groups()[0].layout.P
    state, change = FedAvg().init(plain), []
    for t in range(4):
        new = FedAvg().step(state, plain, t)
        change.append(
            float((new.theta - state.theta)[0, :P].norm() / state.theta[0, :P].norm())
        )
        state = new
    assert change[0] > change[1] > change[2]
    method, fed = GCFL(delta_init=(change[1] + change[2]) / 2), two_groups()[0]
    state, clusters = method.init(fed), []
    for t in range(4):
        state = method.step(state, fed, t)
        clusters.append(len(state.theta))
    assert clusters[:2] == [1, 1] and min(clusters[2:]) > 1


def test_cold_start_ends_at_the_latest():
    clusters = [
        len(go(GCFL(delta_init=0.0, latest=2), two_groups()[0], rounds).theta)
        for rounds in (2, 3)
    ]
    assert clusters[0] == 1 and clusters[1] > 1


def test_clients_not_sampled_stay_where_they_were_last_seen():
    method, (fed, _) = GCFL(delta_init=1e9, sampled=3), two_groups()
    before = method.step(method.init(fed), fed, 0)
    after = method.step(before, fed, 1)
    absent, seen = ~after.uploads[:, -1], before.seen
    assert int(after.uploads[:, -1].sum()) == 3 and bool((absent & seen).any())
    assert torch.equal(after.z[absent], before.z[absent]) and torch.equal(
        after.rho[absent], before.rho[absent]
    )
    assert not torch.equal(after.z[~absent], before.z[~absent])
    assert torch.equal(after.seen, before.seen | ~absent)


def test_clients_never_sampled_get_the_mean_of_all():
    method, (fed, _) = GCFL(delta_init=1e9, sampled=3), two_groups(dtype=torch.float64)
    state = method.step(method.init(fed), fed, 0)
    w = go(FedAvg(sampled=3), two_groups(dtype=torch.float64)[0], 1).theta[0]
    unseen = ~state.seen
    assert unseen.sum() == 5
    torch.testing.assert_close(served(state)[unseen], w.expand(5, -1))
    assert not (state.labels[unseen][:, None] == state.labels[state.seen]).any()


def test_mass_by_hand():
    fed = federation(sizes=SIZES)
    method = GCFL(alpha=2.0, beta=3.0, gamma=5.0, window=4)
    state = method.init(fed)
    state = state._replace(
        rho=torch.linspace(0, 1, 6),
        uploads=torch.tensor([[0, 0, 1, 1]] * 5 + [[0, 0, 0, 1]]) > 0,
    )
    early, late = method.weigh(state, fed.n, 1), method.weigh(state, fed.n, 30)
    for k, n in enumerate(SIZES):
        kappa = 1 if k == 5 else 2
        assert early[k] == pytest.approx(2 * n / 20 + 3 * kappa / 2 + 5 * k / 5)
        assert late[k] == pytest.approx(2 * n / 20 + 3 * kappa / 4 + 5 * k / 5)
    assert GCFL(mass=False).weigh(state, fed.n, 1).tolist() == [1.0] * 6


@pytest.mark.parametrize(
    ("absent", "first"), [("silent", 100.0), ("count", (10 * 100 + 30 * 1) / 40)]
)
def test_aggregation_by_hand(absent, first):
    """Of clusters {0, 1}, {2, 3} only client 0 was sampled; rows of theta are 1 and
    2.
    """
    method, fed = GCFL(absent=absent), federation(sizes=(10, 30, 20, 60))
    state = method.init(fed)._replace(
        theta=torch.tensor([[1.0], [2.0]]), labels=torch.tensor([0, 0, 0, 1])
    )
    rows, labels = torch.tensor([[100.0]]), torch.tensor([0, 0, 1, 1])
    theta = method.aggregate(state, fed.n, torch.tensor([0]), rows, labels)
    assert theta[:, 0].tolist() == pytest.approx([first, (20 * 1 + 60 * 2) / 80])


def test_singletons_may_join():
    for singletons in ("alone", "join"):
        for seed in range(3):
            state = go(
                GCFL(delta_init=1e9, singletons=singletons),
                federation(sizes=SIZES, seed=seed),
                1,
            )
            assert singletons == "alone" or state.labels.bincount().min() >= 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"location": "here"},
        {"singletons": "x"},
        {"absent": "x"},
        {"alpha": -1},
        {"window": 0},
    ],
    ids=str,
)
def test_gcfl_refuses(wrong):
    with pytest.raises(ValueError, match="GCFL"):
        GCFL(**wrong)


def test_gcfl_needs_some_mass():
    with pytest.raises(ValueError, match="alpha, beta, gamma above 0"):
        GCFL(alpha=0, beta=0, gamma=0)


# --- the baselines --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (FedEM(components=1, sampled=3), FedAvg(sampled=3)),
        (FedSoft(lam=0.0, sampled=2), LocalOnly(sampled=2)),
        (CFLGP(clusters=1, sampled=4), FedAvg(sampled=4)),
        (AutoCFL(adjust=False, n_max=1), FedAvg()),
        (MTCFL(gamma_max=1.0), FedAvg()),
    ],
    ids=str,
)
def test_identity(a, b):
    same(a, b)


@pytest.mark.parametrize(
    "method", [CFLGP(2), CFLGP.as_released(clusters=2), AutoCFL(), MTCFL()], ids=str
)
@pytest.mark.parametrize("seed", [0, 1])
def test_two_groups_are_found(method, seed):
    fed, truth = two_groups(seed)
    assert torch.equal(
        clustering.relabel(go(method, fed, 4).labels), torch.from_numpy(truth)
    )


def test_fedem_posterior_by_hand():
    q = posterior(
        torch.tensor([[0.5, 0.5], [0.9, 0.1]]),
        torch.tensor([[1.0, 2.0], [3.0, 3.0]]),
        0.5,
    )
    assert q[0].tolist() == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(2))])
    assert q[1].tolist() == pytest.approx([0.9, 0.1])


def test_fedem_serves_mixtures_that_separate_the_groups():
    fed, truth = two_groups()
    state = go(FedEM(components=2), fed, 6)
    assert state.votes.sum(1).numpy() == pytest.approx(np.ones(8), abs=1e-6)
    assert torch.equal(clustering.relabel(state.labels), torch.from_numpy(truth))
    assert torch.equal(state.labels, state.votes.argmax(1))


def test_fedem_trains_a_component_by_its_share():
    """A component that nobody believes in does not move."""
    fed = federation(sizes=SIZES, dtype=torch.float64)
    method = FedEM(components=2, temperature=1e9)
    state = method.init(fed)
    sure = state._replace(votes=torch.tensor([[1.0, 0.0]] * 6, dtype=torch.float64))
    after = method.step(sure, fed, 0).theta - sure.theta
    assert after[1].norm() < 1e-4 * after[0].norm()


def test_fedem_at_twice_the_learning_rate():
    """One component is FedAvg, so at twice the rate it is FedAvg at twice the rate."""
    local = Local(lr=0.05, batch_size=5, lr_decay=0.5)
    twice = Local(lr=0.1, batch_size=5, lr_decay=0.5)
    a = go(FedEM(1, lr_scale=2.0), federation(local=local, dtype=torch.float64), 3)
    b = go(FedAvg(), federation(local=twice, dtype=torch.float64), 3)
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-12)


def test_fedsoft_pulls_clients_towards_their_mixture():
    def distance(lam):
        fed = federation(sizes=SIZES, dtype=torch.float64)
        method = FedSoft(clusters=2, lam=lam)
        state = method.init(fed)
        after = method.step(state, fed, 0)
        return (after.theta[:6] - after.u @ state.theta[6:]).norm()

    assert distance(0.0) > distance(1.0) > distance(5.0)


def test_fedsoft_clusters_are_means_by_importance():
    fed = federation(sizes=SIZES, dtype=torch.float64)
    state = go(FedSoft(clusters=3), fed, 1)
    v = state.u * fed.n[:, None]
    torch.testing.assert_close(state.theta[6:], (v / v.sum(0)).T @ state.theta[:6])


def test_fedsoft_importance_by_hand_and_its_interval():
    shares = torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=torch.float64)
    u = FedSoft(clusters=2).importance(shares)
    assert u[0].tolist() == [0.25, 0.75]
    assert u[1].tolist() == pytest.approx([1 / 1.0001, 1e-4 / 1.0001])  # the smoother
    fed = federation(sizes=SIZES)
    method = FedSoft(every=2)
    first = method.step(method.init(fed), fed, 0)
    second = method.step(first, fed, 1)
    assert torch.equal(second.u, first.u)
    assert not torch.equal(method.step(second, fed, 2).u, second.u)


def test_the_share_of_samples_that_a_model_fits_best():
    """Counted sample by sample; ties go to the first model."""
    fed = federation(sizes=(9, 14, 7), dtype=torch.float64)
    theta = fed.start(3)
    shares = fed.best_share(theta)
    assert fed.meter.updates == 0 and fed.meter.down == 3 * theta.nbytes
    for k in range(fed.K):
        x, y = fed.samples(fed.sample_numbers([k], "train"))
        logits = fed.predict(theta, x)  # (3, n, classes)
        loss = torch.stack(
            [torch.nn.functional.cross_entropy(z, y, reduction="none") for z in logits]
        )
        wins = torch.bincount(loss.argmin(0), minlength=3)
        assert shares[k].tolist() == pytest.approx((wins / len(y)).tolist())
    tied = fed.best_share(theta[:1].repeat(2, 1), torch.tensor([1]))
    assert tied.tolist() == [[1.0, 0.0]]


def test_fedsoft_with_a_strong_pull_is_not_local_training():
    """Clients of one group get models that are alike, other than LocalOnly's."""
    spread = {}
    for lam in (0.0, 10.0):
        fed, truth = two_groups()
        theta = go(FedSoft(2, lam=lam), fed, 6).theta[: fed.K]
        own = theta[torch.from_numpy(truth) == 0]
        spread[lam] = float((own - own.mean(0)).norm())
    assert spread[10.0] < 0.5 * spread[0.0]


def test_cflgp_keeps_names_and_averages_features():
    method, (fed, _) = CFLGP(2, features=10**9), two_groups()
    state = go(method, fed, 5)
    assert state.G.shape == (8, 2, fed.layout.P)  # no more features than parameters
    assert torch.equal(
        state.asked, torch.tensor([[3.0, 2.0]] * 8)
    )  # the models take turns
    for old in (state.labels, 1 - state.labels):
        assert torch.equal(method.partition(state.G, old, 0), old)


def test_cflgp_stops_clustering():
    fed, _ = two_groups()
    assert int(go(CFLGP(2, updates=2), fed, 4).asked.sum()) == 2 * 8
    assert int(go(CFLGP(2, period=3), two_groups()[0], 4).asked.sum()) == 2 * 8


def test_autocfl_gives_everybody_the_same_steps():
    fed = federation(sizes=(5, 9, 10, 50, 60), local=Local(epochs=2, batch_size=5))
    assert AutoCFL().work(fed) == {
        "steps": 4
    }  # the median client has 10 samples in 2 batches, 2 epochs
    assert AutoCFL(adjust=False).work(fed) == {}
    fixed = federation(local=Local(steps=3))  # all do the same already
    assert AutoCFL().work(fixed) == {}
    whole = federation(sizes=(5, 9), local=Local(epochs=3, batch_size=None))
    assert AutoCFL().work(whole) == {"steps": 3}


def test_mtcfl_asks_no_rest():
    fed, _ = two_groups()
    method = MTCFL()
    state = method.step(method.init(fed), fed, 0)
    assert len(state.theta) == 1  # wait
    assert len(method.step(state, fed, 1).theta) == 2


def test_fedccfa_shares_the_extractor_and_clusters_each_class():
    fed = federation("cnn_bn", sizes=SIZES, dtype=torch.float64)
    top = torch.zeros(fed.layout.D, dtype=torch.bool).index_fill(
        0, lines(fed.layout).flatten(), True
    )
    alone, together = (
        go(FedCCFA(eps=eps), federation("cnn_bn", sizes=SIZES, dtype=torch.float64))
        for eps in (0.0, 2.0)
    )
    for state in (alone, together):
        torch.testing.assert_close(
            state.theta[:, ~top], state.theta[:1, ~top].expand(6, -1)
        )
    assert (
        len(alone.theta[:, top].unique(dim=0)) == 6
        and (alone.groups == torch.arange(6)[:, None]).all()
    )
    torch.testing.assert_close(
        together.theta[:, top], together.theta[:1, top].expand(6, -1)
    )
    assert (together.groups == 0).all()


def test_fedccfa_trains_one_part_at_a_time():
    fed = federation(
        "cnn_bn", sizes=SIZES, local=Local(lr=0.05, batch_size=5, weight_decay=0.1)
    )
    rows, S = fed.start().repeat(6, 1), torch.arange(6)
    top = torch.zeros(fed.layout.D, dtype=torch.bool).index_fill(
        0, lines(fed.layout).flatten(), True
    )
    after = train_part(fed, rows, S, top, slot=0)
    assert torch.equal(after[:, ~top], rows[:, ~top]) and not torch.equal(
        after[:, top], rows[:, top]
    )


def test_fedccfa_trains_classifiers_at_a_rate_of_their_own():
    fed, twin = (
        federation(sizes=SIZES, local=Local(lr=0.05), dtype=torch.float64)
        for _ in range(2)
    )
    rows = fed.start().repeat(6, 1)
    clients = torch.arange(6)
    top = torch.zeros(fed.layout.D, dtype=torch.bool)
    top[lines(fed.layout).flatten()] = True
    method = FedCCFA(classifier_lr_scale=3.0)
    after = method.train_classifier(fed, rows, clients, top)
    by_hand = train_part(twin, rows, clients, top, slot=0, lr=3 * 0.05)
    torch.testing.assert_close(after, by_hand, rtol=0, atol=1e-12)


def test_fedccfa_compares_classifiers_that_start_alike():
    """They differ by the clients' data only, and are not those that serve."""
    fed = federation(sizes=SIZES, dtype=torch.float64)
    method = FedCCFA(comparison_steps=2)
    before = method.init(fed)
    own = torch.arange(6)[:, None].to(before.theta)
    rows = before.theta + own  # clients whose models are far apart
    top = torch.zeros(fed.layout.D, dtype=torch.bool)
    top[lines(fed.layout).flatten()] = True
    compared = method.comparison(fed, rows, torch.arange(6), top)
    moved = (compared - fed.start())[:, top]
    assert float(moved.norm(dim=1).max()) < 5 and float(moved.norm(dim=1).min()) > 0
    assert torch.equal(compared[:, ~top], rows[:, ~top])
    assert FedCCFA().comparison(fed, rows, torch.arange(6), top) is None
    served = method.step(before, fed, 0).theta
    other = federation(sizes=SIZES, dtype=torch.float64)
    assert not torch.equal(served, FedCCFA().step(before, other, 0).theta)


def test_classifier_lines():
    fed = (
        federation()
    )  # mlp 16 - 8 - 3: the last layer has 3 lines of 8 weights and a bias
    row = torch.arange(fed.layout.D)
    tensors = fed.layout.tensors(row)
    weight, bias = list(tensors.values())[-2:]
    assert torch.equal(row[lines(fed.layout)], torch.cat([weight, bias[:, None]], 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedEM(components=0),
        lambda: FedSoft(clusters=0),
        lambda: CFLGP(criterion="x"),
        lambda: AutoCFL(voting=0),
    ],
)
def test_baselines_refuse(make):
    with pytest.raises(ValueError, match="need|at least"):
        make()


@given(st.integers(0, 10**6))
def test_followed_clusters_are_the_same_clusters_with_steadier_names(seed):
    labels = np.random.default_rng(seed).integers(0, 4, (6, 9))
    found = clustering.steady_names(labels)
    assert np.array_equal(
        found[:, :, None] == found[:, None], labels[:, :, None] == labels[:, None]
    )  # names only
    assert np.array_equal(found[0], labels[0])
    stay = [(rows[1:] == rows[:-1]).sum() for rows in (found, labels)]
    assert stay[0] >= stay[1]


def test_a_new_cluster_gets_a_new_name():
    assert (
        clustering.steady_names([[0, 0, 1], [1, 1, 0], [2, 2, 0]]).tolist()
        == [[0, 0, 1]] * 3
    )
    assert clustering.steady_names(
        [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2]]
    ).tolist() == [
        [0, 0, 0, 0],
        [1, 0, 0, 0],
        [1, 2, 0, 0],
    ]
