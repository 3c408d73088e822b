"""Scores against their plain loops, scikit-learn, identities, and numbers worked out by
hand.
"""

import math

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fednb import metrics, reference

CLASSES = 5
quick = settings(deadline=None, max_examples=60)
pairs = st.lists(st.tuples(*[st.integers(0, CLASSES - 1)] * 2), min_size=1, max_size=40)
clusterings = st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=20)
SCORES = [
    metrics.rand_index,
    metrics.adjusted_rand,
    metrics.ami,
    metrics.homogeneity,
    metrics.completeness,
]
WASSERSTEIN = [metrics.wasserstein_silhouette, metrics.wasserstein_davies_bouldin]


def split(both):
    return [list(side) for side in zip(*both, strict=True)]


def federation(seed=0, clients=12, classes=6):
    """Half of the clients even, half skewed: (K, C) counts and their clusters."""
    rng = np.random.default_rng(seed)
    even = rng.integers(40, 60, (clients // 2, classes))
    skewed = rng.integers(0, 5, (clients - clients // 2, classes))
    skewed[:, 0] += 200
    return np.concatenate([even, skewed]), np.repeat(
        [0, 1], [clients // 2, clients - clients // 2]
    )


# --- predictions ----------------------------------------------------------------------


@quick
@given(pairs)
def test_class_scores_agree_with_loops_and_sklearn(both):
    true, pred = split(both)
    m = metrics.confusion(true, pred, CLASSES)
    assert m.dtype == np.int64
    assert np.array_equal(m, sk.confusion_matrix(true, pred, labels=range(CLASSES)))
    assert metrics.accuracy(m) == pytest.approx(sk.accuracy_score(true, pred))
    assert metrics.balanced_accuracy(m) == pytest.approx(
        reference.balanced_accuracy(true, pred)
    )
    recall = sk.recall_score(true, pred, labels=sorted(set(true)), average="macro")
    assert metrics.balanced_accuracy(m) == pytest.approx(recall)
    for over, labels in (("true", sorted(set(true))), ("union", None)):
        ours = metrics.macro_f1(m, over=over)
        assert ours == pytest.approx(reference.macro_f1(true, pred, over=over))
        assert ours == pytest.approx(
            sk.f1_score(true, pred, labels=labels, average="macro", zero_division=0)
        )


def test_stray_prediction_costs_union_f1_only_a_class():
    m = np.zeros((10, 10), int)
    m[[0, 1, 2], [0, 1, 2]] = 1000
    m[0, 9] = 1
    assert metrics.macro_f1(m, over="true") > 0.999
    assert metrics.macro_f1(m, over="union") == pytest.approx(0.75, abs=1e-3)


def test_released_balanced_accuracy_by_hand():
    m = [[8, 2], [3, 1]]  # recalls 0.8 and 0.25
    assert metrics.balanced_accuracy(m) == pytest.approx(0.525)
    assert metrics.share_weighted_accuracy(m, [0.9, 0.1]) == pytest.approx(
        (8 * 0.9 + 1 * 0.1) / (10 * 0.9 + 4 * 0.1)
    )
    assert metrics.share_weighted_accuracy(m, [90, 10]) == pytest.approx(
        7.3 / 9.4
    )  # counts do as well
    assert metrics.share_weighted_accuracy(m, [0.5, 0.5]) == pytest.approx(
        metrics.accuracy(m)
    )
    assert math.isnan(
        metrics.share_weighted_accuracy([[5, 0], [0, 0]], [0, 1])
    )  # trained on another class


def test_stack_of_clients_equals_one_by_one_and_empty_client_is_nan():
    m = np.random.default_rng(0).integers(0, 9, (2, 3, 4, 4))
    m[1, 2] = 0
    shares = np.random.default_rng(1).random((2, 3, 4))
    for score in (metrics.accuracy, metrics.balanced_accuracy, metrics.macro_f1):
        got = score(m)
        assert got.shape == (2, 3)
        assert got.dtype == np.float64
        assert math.isnan(got[1, 2])
        assert np.isfinite(got.flat[:5]).all()
        assert got[0, 1] == score(m[0, 1])
        assert type(score(m[0, 1])) is float
    got = metrics.share_weighted_accuracy(m, shares)
    assert got[1, 0] == pytest.approx(
        metrics.share_weighted_accuracy(m[1, 0], shares[1, 0])
    )
    assert metrics.share_weighted_accuracy(m, np.ones(4))[0, 0] == pytest.approx(
        metrics.accuracy(m[0, 0])
    )


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_every_float_type_and_grad_is_taken_and_computed_in_float64(dtype):
    m = torch.tensor(
        [[[3.0, 1], [0, 2]], [[1, 0], [4, 4]]], dtype=dtype, requires_grad=True
    )
    assert np.array_equal(
        metrics.accuracy(m), metrics.accuracy(m.detach().double().numpy())
    )
    third = torch.full((3,), 1 / 3, dtype=dtype, requires_grad=True)
    assert metrics.average(third) == pytest.approx(
        float(third[0].detach().double()), rel=1e-15
    )
    assert metrics.auc(third, rounds=3) == pytest.approx(
        float(third[0].detach().double()), rel=1e-15
    )
    assert metrics.rounds_to(third) == 1
    counts, labels = federation()
    exact = torch.tensor(counts).to(
        dtype
    )  # counts up to 204 survive even bfloat16 to within a half per cent
    for score in WASSERSTEIN:
        assert score(exact.requires_grad_(), torch.tensor(labels)) == pytest.approx(
            score(counts, labels), abs=0.02
        )


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.int32, np.uint8]
)
def test_numpy_types(dtype):
    m = np.array([[3, 1], [0, 2]], dtype)
    assert metrics.accuracy(m) == pytest.approx(5 / 6, rel=1e-15)
    assert np.array_equal(
        metrics.confusion(np.array([1, 250], np.uint8), torch.tensor([0, 3]), 251).sum(
            1
        )[[1, 250]],
        [1, 1],
    )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: metrics.confusion([0, 5], [0, 1], 3),
            r"true holds 0\.\.5: classes=3 allows 0\.\.2",
        ),
        (lambda: metrics.confusion([0, 1], [0, -1], 3), r"pred holds -1\.\.0"),
        (lambda: metrics.confusion([0, 1], [0], 3), "do not match"),
        (lambda: metrics.confusion([0.0, 1.0], [0, 1], 3), "true has type float64"),
        (lambda: metrics.accuracy(np.ones((2, 3))), r"confusion has shape \(2, 3\)"),
        (lambda: metrics.macro_f1([[1, -2], [0, 1]]), r"confusion\[0, 1\] is -2.0"),
        (
            lambda: metrics.macro_f1([[1]], over="all"),
            r"macro_f1\(over='all'\): need 'true' or 'union'",
        ),
        (
            lambda: metrics.share_weighted_accuracy([[1]], [0.5, 0.5]),
            r"shares has shape \(2,\)",
        ),
        (lambda: metrics.average([1, 2], [1]), "one weight per client"),
        (lambda: metrics.average([1, 2], [1, math.nan]), r"weights\[1\] is nan"),
        (lambda: metrics.spread([[1, 2]]), "one score per client"),
        (lambda: metrics.rounds_to([0.1, math.nan]), r"curve\[1\] is nan"),
        (lambda: metrics.rounds_to([]), "one score per round"),
        (lambda: metrics.rounds_to([1], share=0), r"share=0\): need .* > 0 and <= 1"),
        (
            lambda: metrics.rounds_to([1], of="min"),
            r"of='min'\): need 'final' or 'max'",
        ),
        (lambda: metrics.auc([0.1] * 49), "rounds=50, but the curve has 49"),
        (
            lambda: metrics.rand_index([0, 1], [0, 1, 1]),
            "truth has 2 clients, found has 3",
        ),
        (lambda: metrics.ami([], []), "one cluster name per client"),
        (lambda: metrics.ami([0, math.nan], [0, 1]), "none of them nan"),
        (lambda: metrics.wasserstein([1, 2], [1]), "two vectors of one length"),
        (lambda: metrics.wasserstein([1, 2], [1, 1], p=0.5), "p >= 1"),
        (lambda: metrics.wasserstein_silhouette([[1, 2]], [0, 1]), "a row per client"),
        (
            lambda: metrics.wasserstein_davies_bouldin([1, 2], [0, 1]),
            "a row per client",
        ),
        (
            lambda: metrics.wasserstein_silhouette([[1, 2], [0, 0]], [0, 1]),
            "client 1 has only zero",
        ),
        (
            lambda: metrics.wasserstein_silhouette([[1, 2], [1, math.nan]], [0, 1]),
            r"frequencies\[1, 1\] is nan",
        ),
        (
            lambda: metrics.wasserstein_davies_bouldin([[1, -2], [1, 1]], [0, 1]),
            r"frequencies\[0, 1\] is -2",
        ),
    ],
)
def test_errors_name_the_value(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# --- over clients and rounds ----------------------------------------------------------


def test_average_leaves_out_nan_clients_and_their_weights():
    assert metrics.average([0.2, math.nan, 0.6]) == pytest.approx(0.4)
    assert metrics.average([0.2, math.nan, 0.6], [3, 100, 1]) == pytest.approx(0.3)
    got = metrics.average([[0.2, 0.4], [math.nan, 0.4], [math.nan, math.nan]], [3, 1])
    assert got == pytest.approx([0.25, 0.4, math.nan], nan_ok=True)
    assert math.isnan(metrics.average([0.5, math.nan], [0, 1]))


def test_spread_by_hand():
    got = metrics.spread([*np.arange(11) / 10, math.nan])
    assert got == pytest.approx(
        {"std": math.sqrt(0.1), "worst": 0.0, "p10": 0.1, "p90": 0.9}
    )
    assert list(got) == ["std", "worst", "p10", "p90"]
    assert all(math.isnan(v) for v in metrics.spread([math.nan]).values())


def test_learning_gap_is_taken_per_client():
    personal, general = [0.9, 0.3, math.nan], [0.3, 0.9, 0.5]
    assert metrics.learning_gap(personal, general) == pytest.approx(
        [0.6, 0.6, math.nan], nan_ok=True
    )
    assert metrics.learning_gap(0.3, torch.tensor(0.5)) == pytest.approx(0.2)
    assert metrics.average(metrics.learning_gap(personal, general)) == pytest.approx(
        0.6
    )


def test_convergence_speed_by_hand():
    curve = [0.1, 0.5, 0.77, 0.75, 0.9, 0.8]
    assert metrics.rounds_to(curve) == 3  # 0.95 * 0.8 = 0.76
    assert metrics.rounds_to(curve, of="max") == 5
    assert metrics.rounds_to(curve, share=1.0, of="max") == 5
    assert metrics.rounds_to([0.0, 0.0]) == 1
    assert metrics.auc(curve, rounds=4) == pytest.approx(0.53)
    assert metrics.auc([*[0.4] * 50, 1.0]) == pytest.approx(0.4)


@quick
@given(arrays(float, st.integers(1, 30), elements=st.floats(0, 1)), st.floats(0.01, 1))
def test_rounds_to_is_the_first_round_that_reaches_the_goal(curve, share):
    t = metrics.rounds_to(curve, share)
    assert curve[t - 1] >= share * curve[-1]
    assert (curve[: t - 1] < share * curve[-1]).all()


# --- clusters -------------------------------------------------------------------------


@quick
@given(clusterings)
def test_rand_index_counts_pairs(both):
    truth, found = split(both)
    assert metrics.rand_index(truth, found) == pytest.approx(
        reference.rand_index(truth, found)
    )
    assert metrics.rand_index(truth, found) == pytest.approx(
        metrics.rand_index(found, truth)
    )


@quick
@given(clusterings, st.permutations("wxyz"))
def test_scores_know_members_not_names(both, names):
    truth, found = split(both)
    renamed = [names[c] for c in found]
    for score in SCORES:
        assert score(truth, renamed) == pytest.approx(score(truth, found))
        assert score(found, torch.tensor(found) * 7 - 3) == pytest.approx(1)
    assert metrics.homogeneity(truth, found) == pytest.approx(
        metrics.completeness(found, truth)
    )


def test_scores_are_the_ones_they_say():
    truth, found = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 1]
    assert metrics.adjusted_rand(truth, found) == pytest.approx(
        sk.adjusted_rand_score(truth, found)
    )
    assert metrics.ami(truth, found) == pytest.approx(
        sk.adjusted_mutual_info_score(truth, found)
    )
    assert metrics.homogeneity(truth, range(6)) == pytest.approx(
        1
    )  # singletons mix nothing
    assert metrics.completeness(truth, range(6)) < 0.7
    assert metrics.completeness(truth, [0] * 6) == pytest.approx(
        1
    )  # one cluster tears nothing
    assert metrics.homogeneity(truth, [0] * 6) == pytest.approx(0)
    assert metrics.cluster_scores(truth, found) == {
        "ari": metrics.adjusted_rand(truth, found),
        "ami": metrics.ami(truth, found),
        "homogeneity": metrics.homogeneity(truth, found),
        "completeness": metrics.completeness(truth, found),
    }


def test_one_cluster_has_the_rand_index_that_fedgwc_prints_for_ifca():
    assert metrics.rand_index(np.repeat([0, 1], 50), np.zeros(100)) == pytest.approx(
        2450 / 4950
    )
    assert metrics.rand_index(
        np.repeat([0, 1, 2], [40, 30, 30]), np.zeros(100)
    ) == pytest.approx(1650 / 4950)


# --- Wasserstein-adjusted -------------------------------------------------------------

vectors = st.integers(1, 5).flatmap(
    lambda n: st.tuples(*[arrays(float, n, elements=st.floats(0, 1))] * 2)
)


@quick
@given(vectors, st.sampled_from([1, 1.5, 2, 3]))
def test_sorting_is_the_best_permutation(both, p):
    x, y = both
    assert metrics.wasserstein(x, y, p) == pytest.approx(
        reference.wasserstein(x, y, p), abs=1e-9
    )
    assert metrics.wasserstein(x, y, p) == pytest.approx(metrics.wasserstein(y, x, p))
    assert metrics.wasserstein(x, x[::-1], p) == 0
    assert metrics.wasserstein(x, y, p) <= metrics.wasserstein(x, y, math.inf) + 1e-12


def test_wasserstein_by_hand_and_its_limit():
    assert metrics.wasserstein([1, 0], [0.5, 0.5]) == pytest.approx(0.5)
    assert metrics.wasserstein(
        [0, 0.9, 0.1], [0.5, 0, 0.5], p=math.inf
    ) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="C=8"):
        reference.wasserstein([0] * 8, [0] * 8)


def test_adjusted_scores_are_sklearns_on_wasserstein_distances():
    counts, labels = federation()
    labels = np.array([0, 1, 0, 2, 1, 0, 1, 2, 2, 1, 0, 1])
    shares = counts / counts.sum(1, keepdims=True)
    W = np.array([[metrics.wasserstein(a, b) for b in shares] for a in shares])
    silhouette = sk.silhouette_score(W, labels, metric="precomputed")
    assert metrics.wasserstein_silhouette(counts, labels) == pytest.approx(silhouette)
    bouldin = sk.davies_bouldin_score(np.sort(shares, axis=1), labels)
    assert metrics.wasserstein_davies_bouldin(counts, labels) == pytest.approx(bouldin)


def test_adjusted_scores_prefer_the_right_clusters():
    counts, labels = federation()
    wrong = np.arange(len(labels)) % 2
    assert (
        metrics.wasserstein_silhouette(counts, labels)
        > 0.8
        > metrics.wasserstein_silhouette(counts, wrong)
    )
    assert (
        metrics.wasserstein_davies_bouldin(counts, labels)
        < 0.3
        < metrics.wasserstein_davies_bouldin(counts, wrong)
    )


@quick
@given(
    arrays(np.int64, (8, 4), elements=st.integers(0, 20)),
    arrays(np.int64, 8, elements=st.integers(0, 2)),
    st.randoms(),
)
def test_adjusted_scores_ignore_class_names_client_size_and_cluster_names(
    counts, labels, random
):
    assume((counts.sum(1) > 0).all())
    mixed = np.array(
        [random.sample(list(row), 4) for row in counts]
    )  # classes renamed for each client alone
    sizes = np.array([[random.randint(1, 9)] for _ in counts])
    for score in WASSERSTEIN:
        want = pytest.approx(score(counts, labels), nan_ok=True, abs=1e-9)
        assert score(mixed, labels) == want
        assert score(counts * sizes, labels) == want
        assert score(counts / counts.sum(1, keepdims=True), 5 - labels) == want


def test_sorting_survives_shares_with_float_noise():
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.ones(10), 2)  # two kinds of client, known up to rounding
    rows = np.array(
        [rng.permutation(base[k % 2]) * rng.uniform(0.1, 9) for k in range(10)]
    )
    assert metrics.wasserstein_silhouette(rows, np.arange(10) % 2) == pytest.approx(1)
    assert metrics.wasserstein_davies_bouldin(rows, np.arange(10) % 2) == pytest.approx(
        0, abs=1e-6
    )
    for score in (
        WASSERSTEIN
    ):  # clients of one kind: what differs is rounding, and must not be scored
        assert math.isnan(score(rows[::2], [0, 1, 0, 1, 0]))


@pytest.mark.parametrize("score", WASSERSTEIN)
def test_undefined_adjusted_scores_are_nan(score):
    counts, _ = federation()
    assert math.isnan(score(counts, np.zeros(12)))  # one cluster
    assert math.isnan(score(counts, np.arange(12)))  # as many as clients
    one_class_each = np.eye(6)
    assert math.isnan(
        score(one_class_each, [0, 0, 0, 1, 1, 1])
    )  # all sorted rows are (1, 0, ..., 0)
    assert math.isfinite(score(counts, ["a"] * 11 + ["b"]))


def test_relabelled_groups_have_coinciding_centres_not_a_huge_score():
    """Centres that differ by float noise only must be skipped like equal ones (once it
    was 3e7).
    """
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 50, (6, 7))
    relabelled = np.concatenate([counts, counts[:, rng.permutation(7)]])
    assert metrics.wasserstein_davies_bouldin(relabelled, np.repeat([0, 1], 6)) == 0
