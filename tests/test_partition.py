"""Partition laws: what every law promises, what each law promises, and what bad input
is told.
"""

import hashlib
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fednb import partition
from fednb.partition import Partition, class_counts

BALANCED = np.repeat(np.arange(10), 60)  # (600,)
LAWS = {  # name -> law on (y, clients), complete on every pool it accepts
    "iid": lambda y, k, **kw: partition.iid(y, k, **kw),
    "dirichlet": lambda y, k, **kw: partition.dirichlet(y, k, 0.7, **kw),
    "dirichlet tiny": lambda y, k, **kw: partition.dirichlet(y, k, 1e-300, **kw),
    "dirichlet 0": lambda y, k, **kw: partition.dirichlet(y, k, 0, **kw),
    "dirichlet inf": lambda y, k, **kw: partition.dirichlet(y, k, math.inf, **kw),
    "per class": lambda y, k, **kw: partition.dirichlet_per_class(y, k, 0.2, **kw),
    "per class tiny": lambda y, k, **kw: partition.dirichlet_per_class(
        y, k, 1e-9, **kw
    ),
    "per class inf": lambda y, k, **kw: partition.dirichlet_per_class(
        y, k, math.inf, **kw
    ),
    "n_class": lambda y, k, **kw: partition.n_class(y, k, 2, **kw),
    "cluster_dirichlet": lambda y, k, **kw: partition.cluster_dirichlet(y, k, 2, **kw),
    "cluster_n_class": lambda y, k, **kw: partition.cluster_n_class(
        y, k, 3, 4, 2, **kw
    ),
    "by_class_sets": lambda y, k, **kw: partition.by_class_sets(
        y, (k - 2, 2), (range(6), range(3, 10)), **kw
    ),
}
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
rough = st.lists(st.integers(0, 6), min_size=12, max_size=120).map(
    np.array
)  # classes may be rare or absent
rich = st.lists(st.integers(12, 30), min_size=10, max_size=10).map(
    lambda n: np.repeat(np.arange(10), n)[::-1]
)
fractions = st.sampled_from([0, 0.2, 0.5, 0.9])


def own(part: Partition) -> list[np.ndarray]:
    """All samples of each client."""
    return [np.concatenate(pair) for pair in zip(part.train, part.test, strict=True)]


def counts(part: Partition, y: np.ndarray = BALANCED) -> np.ndarray:
    """Samples per client and class, train and test together -> (K, C)."""
    return class_counts(own(part), y, y.max() + 1)


def same(a: Partition, b: Partition) -> bool:
    return all(
        len(x) == len(y) and all(map(np.array_equal, x, y))
        for x, y in zip(a[:2], b[:2], strict=True)
    )


# What every law promises.


def check(part: Partition, y: np.ndarray, clients: int, test: float) -> None:
    dealt = np.concatenate(own(part))
    assert np.array_equal(
        np.sort(dealt), np.arange(len(y))
    )  # no sample twice, none left out
    assert len(part.train) == len(part.test) == clients
    assert all(i.dtype == np.int64 for i in part.train + part.test)
    for a, b in zip(part.train, part.test, strict=True):
        assert len(a) >= 1
        assert len(b) >= 1 if test > 0 and len(a) + len(b) >= 2 else len(b) == 0


@every_law
@settings(max_examples=20, deadline=None)
@given(y=rich, clients=st.integers(6, 12), seed=st.integers(0, 99), test=fractions)
def test_complete_disjoint_and_never_empty(law, y, clients, seed, test):
    check(law(y, clients, seed=seed, test=test, min_size=1), y, clients, test)


@pytest.mark.parametrize(
    "name",
    [name for name in LAWS if "iid" in name or "dirichlet" in name or "per" in name],
)
@settings(max_examples=20, deadline=None)
@given(y=rough, clients=st.integers(2, 12), seed=st.integers(0, 99), test=fractions)
def test_complete_disjoint_and_never_empty_on_rough_pools(name, y, clients, seed, test):
    check(LAWS[name](y, clients, seed=seed, test=test, min_size=1), y, clients, test)


@every_law
def test_seeded(law):
    assert same(law(BALANCED, 12, seed=3), law(BALANCED, 12, seed=3))
    assert not same(law(BALANCED, 12, seed=3), law(BALANCED, 12, seed=4))


@every_law
@pytest.mark.parametrize("test", [0.1, 0.25, 0.5])
def test_split_is_stratified(law, test):
    part = law(BALANCED, 12, test=test)
    size = np.array([len(i) for i in own(part)])
    tested = class_counts(part.test, BALANCED, 10)
    assert np.all(
        abs(tested.sum(1) - test * size).clip(1) == 1
    )  # the asked fraction, to within one
    share = tested.sum(1, keepdims=True) / size[:, None]
    assert np.all(
        abs(tested - share * counts(part)) < 1
    )  # and each class its share, to within one


@every_law
def test_samples_of_a_class_are_dealt_at_random(law):
    dealt = own(law(BALANCED, 12))
    runs = [np.sort(i[BALANCED[i] == c]) for i in dealt for c in range(10)]
    assert not all(
        np.all(np.diff(run) == 1) for run in runs
    )  # not the next ones in file order


def test_every_sample_may_be_tested():
    tested = [
        int(i)
        for seed in range(60)
        for i in partition.iid(np.arange(10), 1, seed=seed).test[0]
    ]
    assert len(tested) == 120 and set(tested) == set(range(10))


@every_law
@pytest.mark.parametrize("min_size", [2, 20])
def test_min_size(law, min_size):
    assert counts(law(BALANCED, 12, min_size=min_size)).sum(1).min() >= min_size


@pytest.mark.parametrize(
    "law", ["iid", "dirichlet", "per class", "n_class", "cluster_dirichlet"]
)
def test_labels_with_gaps_and_a_list(law):
    y = [4 * int(c) for c in BALANCED]
    part = LAWS[law](y, 12)
    assert np.array_equal(np.sort(np.concatenate(own(part))), np.arange(600))


# What each law promises.


def test_iid_is_even_and_random():
    part = partition.iid(BALANCED, 7)
    assert set(counts(part).sum(1)) == {85, 86}
    assert part.truth.tolist() == [0] * 7
    assert counts(part).std(axis=0).min() > 0  # random, not stratified


def test_dirichlet_counts_classes_as_a_total_concentration():
    y = np.repeat(np.arange(100), 500)
    for seed in range(3):
        part = partition.dirichlet(y, 100, 0.5, seed=seed, test=0)
        held = (counts(part, y) > 0).sum(1)
        assert set(counts(part, y).sum(1)) == {500}
        assert (
            3 < held.mean() < 6.5 and held.max() <= 16
        )  # published: 2 to 13, mean 5.1; Dir(0.5·1): 65
        assert part.truth is None


def test_dirichlet_mixture_has_the_mean_and_variance_of_its_law():
    # With a pool that hardly runs out, q ~ Dir(alpha p): its mean is p, its variance
    # p(1-p)/(alpha+1); n draws from q add the factor 1 + alpha/n.
    y = np.repeat([0, 1], [150_000, 50_000])
    share = counts(partition.dirichlet(y, 4000, 3.0), y)[:, 0] / 50
    assert share.mean() == pytest.approx(0.75)
    assert share.var() == pytest.approx(0.75 * 0.25 / 4 * (1 + 3 / 50), rel=0.06)


def test_dirichlet_leftovers_do_not_always_go_to_the_last_client():
    last = [
        counts(
            partition.dirichlet(np.arange(1000) % 2, 50, 1, seed=seed),
            np.arange(1000) % 2,
        )[-1]
        for seed in range(40)
    ]
    assert (
        np.mean([row.min() == 0 for row in last]) < 0.6
    )  # the last to draw finds one class only


def test_dirichlet_zero_balances_what_it_can():
    y = np.repeat(np.arange(6), [50, 10, 10, 10, 10, 10])
    assert counts(partition.dirichlet(y, 2, 0), y).sum(1).tolist() == [
        50,
        50,
    ]  # the large class alone
    classes = counts(partition.dirichlet(y, 20, 0), y)
    assert sorted((classes > 0).sum(0)) == [2, 2, 2, 2, 2, 10]
    assert (
        np.count_nonzero(np.diff(classes.argmax(1))) > 5
    )  # clients of a class are not neighbours


def test_dirichlet_zero_is_one_class_per_client():
    y = np.repeat(np.arange(100), 20)
    assert set(
        map(tuple, np.sort(counts(partition.dirichlet(y, 100, 0), y), axis=1))
    ) == {(0,) * 99 + (20,)}
    many = counts(
        partition.dirichlet(y, 250, 0), y
    )  # more clients than classes: whole clients share a class
    assert np.all((many > 0).sum(1) == 1) and set((many > 0).sum(0)) == {2, 3}
    few = counts(partition.dirichlet(y, 40, 0), y)  # fewer clients: whole classes
    assert np.all((few > 0).sum(0) == 1) and set((few > 0).sum(1)) == {2, 3}


@settings(max_examples=50, deadline=None)
@given(y=rough, clients=st.integers(1, 12))
def test_dirichlet_zero_never_mixes_more_than_it_must(y, clients):
    held = counts(partition.dirichlet(y, clients, 0, min_size=1), y) > 0
    classes = len(set(y))
    assert (held.sum(1).max() == 1) if clients >= classes else (held.sum(0).max() == 1)


@pytest.mark.parametrize("law", [partition.dirichlet, partition.dirichlet_per_class])
@pytest.mark.parametrize("alpha", [1000, 1e6, math.inf])
def test_uniform_limit_is_exact(law, alpha):
    assert np.all(counts(law(BALANCED, 12, alpha)) == 5)
    odd = counts(law(BALANCED, 7, alpha))
    assert np.ptp(odd, axis=0).max() == 1 and np.ptp(odd.sum(1)) == 1


@pytest.mark.parametrize("law", [partition.dirichlet, partition.dirichlet_per_class])
def test_smaller_alpha_is_more_skewed(law):
    def top(alpha):
        c = counts(law(BALANCED, 10, alpha))
        return (c.max(1) / c.sum(1)).mean()

    assert top(0.1) > top(3) + 0.05 > top(300) + 0.1


def test_per_class_shares_have_the_variance_of_their_law():
    # A share of Dir(alpha 1_K) has mean 1/K and variance (1/K)(1 - 1/K)/(Kalpha + 1).
    y = np.repeat(np.arange(500), 1000)
    shares = counts(partition.dirichlet_per_class(y, 5, 2.0), y) / 1000
    assert shares.var() == pytest.approx(0.2 * 0.8 / 11, rel=0.1)


def test_per_class_sizes_differ_and_zero_keeps_classes_whole():
    assert np.ptp(counts(partition.dirichlet_per_class(BALANCED, 12, 0.5)).sum(1)) > 20
    whole = counts(partition.dirichlet_per_class(BALANCED, 4, 0))
    assert np.all((whole > 0).sum(0) == 1) and set((whole > 0).sum(1)) == {2, 3}


def test_per_class_repairs_what_redrawing_cannot():
    part = partition.dirichlet_per_class(
        BALANCED, 100, 1e-6, min_size=6
    )  # 10 classes, 100 clients, 600 samples
    assert set(counts(part).sum(1)) == {6}


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(1, 30), n=st.integers(1, 10), seed=st.integers(0, 9))
def test_n_class_holds_exactly_n_evenly(clients, n, seed):
    assume(clients * n >= 10)
    c = counts(partition.n_class(BALANCED, clients, n, seed=seed, min_size=1))
    holders = (c > 0).sum(0)
    assert np.all((c > 0).sum(1) == n)
    assert np.ptp(holders) <= 1
    assert all(np.ptp(column[column > 0]) <= 1 for column in c.T)


@pytest.mark.parametrize("clients, clusters", [(12, 3), (20, 6), (7, 7), (5, 1)])
def test_clusters_are_contiguous_equal_blocks(clients, clusters):
    for part in (
        partition.cluster_dirichlet(BALANCED, clients, clusters),
        partition.cluster_n_class(BALANCED, clients, clusters, 2, 2),
    ):
        assert part.truth.dtype == np.int64 and len(part.truth) == clients
        assert np.all(np.diff(part.truth) >= 0) and set(part.truth) == set(
            range(clusters)
        )
        assert np.ptp(np.bincount(part.truth)) <= 1


def test_cluster_dirichlet_separates_clusters_not_their_clients():
    y = np.repeat(np.arange(10), 600)
    part = partition.cluster_dirichlet(y, 40, 5)
    q = counts(part, y) / counts(part, y).sum(1, keepdims=True)  # (K, C)
    distance = abs(q[:, None] - q[None]).sum(-1) / 2  # (K, K) total variation
    alike = part.truth[:, None] == part.truth
    assert distance[alike].mean() < 0.2
    assert distance[~alike].mean() > 0.5
    size = np.bincount(part.truth, counts(part, y).sum(1))
    assert size.min() >= 0.3 * size.mean()


def test_cluster_dirichlet_with_uneven_blocks_and_nothing_to_spare():
    for first in (0.1, math.inf):
        part = partition.cluster_dirichlet(
            np.arange(6) % 3, 3, 2, (first, 10), min_size=2
        )
        assert counts(part, np.arange(6) % 3).sum(1).tolist() == [2, 2, 2]


def test_cluster_dirichlet_takes_the_limits():
    c = counts(partition.cluster_dirichlet(BALANCED, 12, 4, (0, math.inf))).reshape(
        4, 3, 10
    )
    assert np.all((c.sum(1) > 0).sum(0) == 1)  # a class is in one cluster
    assert np.all(np.ptp(c, axis=1) <= 1)  # whose clients share it evenly


@pytest.mark.parametrize("clusters, n, m", [(4, 3, 2), (3, 3, 2), (2, 5, 3)])
def test_cluster_n_class(clusters, n, m):
    part = partition.cluster_n_class(BALANCED, 20, clusters, n, m)
    c = counts(part) > 0
    assert np.all(c.sum(1) == m)
    assert all(c[part.truth == g].any(0).sum() == n for g in range(clusters))
    assert c.any(0).sum() == min(
        10, clusters * n
    )  # 3 clusters x 3 classes leave one class out


def test_by_class_sets_overlapping_as_in_ocfl():
    sets = [{0, 1, 2, 3, 8, 9}, set(range(4, 10)), set(range(6))]
    part = partition.by_class_sets(BALANCED, (3, 7, 5), sets)
    c = counts(part)
    assert part.truth.tolist() == [0] * 3 + [1] * 7 + [2] * 5
    for g, wanted in enumerate(sets):
        assert all(set(np.flatnonzero(row)) == wanted for row in c[part.truth == g])
    assert set(c[:, 0]) - {0} == {7, 8}  # 60 samples of class 0 shared by 3 + 5 clients
    assert c.sum() == 600


def test_by_class_sets_leaves_other_classes_out():
    c = counts(partition.by_class_sets(BALANCED, [2, 2], [[0, 1], [2]]))
    assert c.sum(0).tolist() == [60] * 3 + [0] * 7


# Official test samples.


@pytest.mark.parametrize("alpha", [0, 0.3, math.inf])
def test_match_test_follows_the_train_shares(alpha):
    y_test = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 30))
    part = partition.dirichlet(BALANCED, 10, alpha, test=0)
    matched = partition.match_test(part, BALANCED, y_test)
    taken = np.concatenate(matched.test)
    assert (
        len(set(taken)) == len(taken) == 300
    )  # half a test pool per train pool: all of it, no sample twice
    assert taken.min() >= 600 and taken.max() < 900
    assert matched.train is part.train
    y = np.concatenate([BALANCED, y_test])
    have, tested = class_counts(matched.train, y, 10), class_counts(matched.test, y, 10)
    assert np.all(abs(tested - have / 2) < 1)
    assert np.all(tested[have == 0] == 0)


def test_match_test_keeps_shares_when_the_pools_differ():
    y, y_test = np.repeat([0, 1], [400, 400]), np.repeat([0, 1], [100, 20])
    matched = partition.match_test(
        partition.dirichlet(y, 4, math.inf, test=0), y, y_test
    )
    tested = class_counts(matched.test, np.concatenate([y, y_test]), 2)
    assert np.all(tested == 5)  # the scarce class decides: 20 of 400


def test_match_test_ties_do_not_favour_a_client():
    y, y_test = np.repeat(np.arange(10), 144), np.repeat(np.arange(10), 36)
    part = partition.dirichlet(y, 20, math.inf, test=0)
    sizes = [len(i) for i in partition.match_test(part, y, y_test).test]
    assert (
        min(sizes) >= 13 and max(sizes) <= 22 and sum(sizes) == 360
    )  # 18 each, were it not for rounding
    other = partition.match_test(part, y, y_test, seed=1)
    assert sizes != [len(i) for i in other.test]


def test_match_test_names_a_missing_class():
    part = partition.iid(BALANCED, 3)
    with pytest.raises(ValueError, match=r"classes \[7, 8, 9\]"):
        partition.match_test(part, BALANCED, np.arange(7))


def test_class_counts():
    got = class_counts(
        [np.array([0, 1]), np.array([], int), [2]], np.array([1, 1, 0]), 3
    )
    assert got.tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 0]] and got.dtype == np.int64
    assert class_counts([], np.array([1]), 2).shape == (0, 2)
    with pytest.raises(ValueError, match="classes = 1 is too few"):
        class_counts([[0]], np.array([1]), 1)


# No law moves by accident: recorded runs stand on these indices.

UNEVEN = np.random.default_rng(0).permutation(
    np.repeat(np.arange(10), np.arange(40, 90, 5))
)
USERS = np.random.default_rng(1).integers(12, size=len(UNEVEN))


def digest(part: Partition) -> str:
    """Hash all index lists, in order, and the hidden clusters."""
    total = hashlib.sha256()
    for lists in (part.train, part.test):
        for own in lists:
            total.update(np.array([len(own), *own], "<i8").tobytes())
    if part.truth is not None:
        total.update(part.truth.astype("<i8").tobytes())
    return total.hexdigest()[:16]


@pytest.mark.parametrize(
    "law, expected",
    [
        (partial(partition.iid, clients=7, seed=1), "7ccfb3727989855d"),
        (
            partial(partition.dirichlet, clients=7, alpha=0.5, seed=2),
            "928dcdd8cdff5891",
        ),
        (partial(partition.dirichlet, clients=12, alpha=0, seed=2), "b064c158bd506787"),
        (
            partial(partition.dirichlet, clients=7, alpha=math.inf, seed=2, test=0),
            "27d3ed021068bafe",
        ),
        (
            partial(
                partition.dirichlet_per_class, clients=7, alpha=0.3, seed=3, min_size=5
            ),
            "11dd517cbd9bd844",
        ),
        (
            partial(
                partition.dirichlet_per_class, clients=7, alpha=0, seed=3, min_size=5
            ),
            "f5e2f8a53d48dc24",
        ),
        (partial(partition.n_class, clients=7, n=3, seed=4), "6c80d2c6eb4531f2"),
        (
            partial(partition.cluster_dirichlet, clients=8, clusters=3, seed=5),
            "7df4c6270a75ce44",
        ),
        (
            partial(
                partition.cluster_dirichlet,
                clients=8,
                clusters=3,
                alphas=[0.3, 1],
                seed=5,
            ),
            "b4dc1b4650c66b16",
        ),
        (
            partial(partition.cluster_n_class, clients=8, clusters=3, n=4, m=2, seed=6),
            "25218d5140e48fa6",
        ),
        (
            partial(
                partition.by_class_sets,
                sizes=(3, 2),
                class_sets=(range(6), [3, 8, 9]),
                seed=7,
            ),
            "d2352b41d0a66ebf",
        ),
        (
            partial(partition.by_user, users=USERS, clients=9, seed=8),
            "bbd64ebae8b1d832",
        ),
        (
            partial(partition.by_user, users=[f"u{user}" for user in USERS], seed=8),
            "7f4afcfa0800049b",
        ),
        (
            partial(
                partition.mixed,
                groups=[3, 2, 2],
                alphas=[0, 0.5, 1000],
                size=20,
                seed=9,
            ),
            "ab0982c0c3e501c3",
        ),
        (
            partial(
                partition.mixed,
                groups=(3, 4),
                alphas=(0.0, math.inf),
                size=30,
                shared=True,
                seed=9,
            ),
            "4a4d602a24423ad7",
        ),
        (
            partial(
                partition.subset,
                law=partial(partition.iid, clients=5),
                samples=200,
                seed=11,
            ),
            "72ffa251f068d88f",
        ),
        (
            partial(
                partition.refill,
                law=partial(partition.dirichlet_per_class, clients=10, alpha=0.1),
                least=6,
                seed=12,
            ),
            "320a1b08b1840a0d",
        ),
    ],
    ids=lambda value: value.func.__name__ if callable(value) else value,
)
def test_laws_keep_their_indices(law, expected):
    assert digest(law(UNEVEN)) == expected


def test_match_test_keeps_its_indices():
    part = partition.dirichlet(UNEVEN, 5, 0.5, test=0)
    part = partition.match_test(part, UNEVEN, UNEVEN[::3], seed=10)
    assert digest(part) == "f09124c9c4dc03d5"


# What bad input is told.


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda y: partition.iid(y, 0), "clients = 0"),
        (lambda y: partition.iid(y, 2.5), "clients = 2.5"),
        (lambda y: partition.iid(y, 301), "from 1 to 300"),
        (lambda y: partition.iid(y, 601, min_size=1), "clients = 601"),
        (lambda y: partition.iid(y, 3, min_size=0), "min_size = 0"),
        (lambda y: partition.iid(y, 3, min_size=201), "clients = 3"),
        (lambda y: partition.iid(y, 3, test=1), "test = 1"),
        (lambda y: partition.iid(y, 3, test=-0.1), "test = -0.1"),
        (lambda y: partition.iid(y, 3, test=math.nan), "test = nan"),
        (lambda y: partition.iid(y - 1, 3), "got -1"),
        (lambda y: partition.iid(y / 2, 3), "float64"),
        (lambda y: partition.iid(y.reshape(2, -1), 3), "shape"),
        (lambda y: partition.iid(y[:0], 3), "non-empty"),
        (lambda y: partition.dirichlet(y, 3, -1), "alpha = -1"),
        (lambda y: partition.dirichlet(y, 3, math.nan), "alpha = nan"),
        (lambda y: partition.dirichlet_per_class(y, 3, -1), "alpha = -1"),
        (
            lambda y: partition.dirichlet_per_class(y, 11, 0),
            "whole classes, not enough for 11",
        ),
        (lambda y: partition.n_class(y, 3, 11), "n = 11"),
        (lambda y: partition.n_class(y, 3, 0), "n = 0"),
        (lambda y: partition.n_class(y, 3, 2), "cannot hold all 10 classes"),
        (lambda y: partition.n_class(y, 100, 10), "fewer samples than clients"),
        (lambda y: partition.cluster_dirichlet(y, 3, 4), "clusters = 4"),
        (lambda y: partition.cluster_dirichlet(y, 3, 0), "clusters = 0"),
        (lambda y: partition.cluster_dirichlet(y, 4, 2, (0.1, -2)), "alphas = "),
        (lambda y: partition.cluster_n_class(y, 6, 2, 11), "n = 11"),
        (lambda y: partition.cluster_n_class(y, 6, 2, 2, 3), "m = 3"),
        (lambda y: partition.cluster_n_class(y, 4, 4, 3, 2), "1 clients x m = 2"),
        (lambda y: partition.by_class_sets(y, [1, 1], [[0]]), "1 sets"),
        (lambda y: partition.by_class_sets(y, [1, 0], [[0], [1]]), "sizes"),
        (
            lambda y: partition.by_class_sets(y, [1, 1], [[0], [12]]),
            r"class set \[12\]",
        ),
        (lambda y: partition.by_class_sets(y, [1, 1], [[0], []]), r"class set \[\]"),
        (
            lambda y: partition.by_class_sets(y, [1, 30], [[0], [1]], min_size=3),
            "client 1 gets 2 samples",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(BALANCED)
