"""Similarity and clustering kernels against their plain loops in `fednb.reference`."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fednb import clustering, reference, similarity

quick = settings(deadline=None, max_examples=60)
number = st.integers(-640, 640).map(
    lambda i: i / 64
)  # the loops square plainly: no tiny numbers
matrices = st.tuples(st.integers(1, 7), st.integers(1, 5)).flatmap(
    lambda s: arrays(float, s, elements=number)
)
EACH = [
    similarity.cosine,
    similarity.cosine_distance,
    similarity.sqdist,
    lambda x: similarity.rbf(x, 0.5),
]
HALVES = [torch.float16, torch.bfloat16]


# --- similarity -----------------------------------------------------------------------


@quick
@given(matrices, st.floats(0.01, 3))
def test_kernels_agree_with_their_loops(x, gamma):
    assert similarity.cosine(x).numpy() == pytest.approx(reference.cosine(x), abs=1e-9)
    assert similarity.cosine_distance(x).numpy() == pytest.approx(
        1 - reference.cosine(x), abs=1e-9
    )
    assert similarity.sqdist(x).numpy() == pytest.approx(reference.sqdist(x), abs=1e-9)
    assert similarity.rbf(x, gamma).numpy() == pytest.approx(
        reference.rbf(x, gamma), abs=1e-9
    )


@quick
@given(
    st.integers(1, 4).flatmap(
        lambda d: st.tuples(
            *[arrays(float, st.tuples(st.integers(1, 6), st.just(d)), elements=number)]
            * 2
        )
    )
)
def test_sqdist_between_two_sets(both):
    x, y = both
    assert similarity.sqdist(x, y).numpy() == pytest.approx(
        reference.sqdist(x, y), abs=1e-9
    )
    assert (similarity.sqdist(x, x) >= 0).all()


@quick
@given(matrices)
def test_symmetric_bounded_and_exact_on_the_diagonal(x):
    x = x.astype(np.float32)
    cos, dist, rbf = similarity.cosine(x), similarity.sqdist(x), similarity.rbf(x, 0.5)
    for matrix in (cos, dist, rbf):
        assert torch.equal(matrix, matrix.T)
        assert matrix.dtype == torch.float32
    assert (
        (cos.diagonal() == 1).all()
        and (dist.diagonal() == 0).all()
        and (rbf.diagonal() == 1).all()
    )
    assert (similarity.cosine_distance(x).diagonal() == 0).all()
    assert (
        cos.abs().max() <= 1 and dist.min() >= 0 and rbf.min() >= 0 and rbf.max() <= 1
    )


def test_rounding_never_leaves_the_bounds():
    row = torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
    scaled = (
        row * torch.linspace(-3, 3, 40)[:, None]
    )  # parallel and opposite, so cosines of exactly 1 and -1
    assert similarity.cosine(scaled).abs().max() == 1
    same = torch.cat([row.repeat(40, 1) * (1 + 1e-6 * torch.arange(40)[:, None]), -row])
    assert similarity.sqdist(same).min() == 0
    assert similarity.sqdist(same, same).min() == 0


@pytest.mark.parametrize("kernel", EACH)
def test_types(kernel):
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    for dtype in HALVES:
        assert torch.equal(kernel(x.to(dtype)), kernel(x.to(dtype).float()))
    half, double = x.numpy().astype(np.float16), x.double()
    assert torch.equal(kernel(half), kernel(torch.from_numpy(half).float()))
    assert kernel(double).dtype == torch.float64
    assert torch.allclose(kernel(double).float(), kernel(x), atol=1e-4)
    counts = np.arange(15).reshape(5, 3)[
        ::-1
    ]  # integers, and a view that torch cannot share
    counts.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel(counts).dtype == torch.float64
    assert kernel(x.clone().requires_grad_()).detach().equal(kernel(x))


def test_inputs_stay_as_they_were():
    x = torch.randn(4, 3)
    before = x.clone()
    for kernel in EACH:
        kernel(x)
    assert torch.equal(x, before)


def test_cosine_of_zero_rows_and_extreme_lengths():
    x = torch.tensor([[0.0, 0], [0, 0], [3, 4]])
    assert torch.equal(similarity.cosine(x), torch.eye(3))
    x = torch.tensor(
        [[1e-30, 0], [1e30, 1e30]]
    )  # squares would leave float32 on both sides
    assert similarity.cosine(x)[0, 1] == pytest.approx(0.5**0.5)


def test_sqdist_keeps_digits_of_close_models_far_from_the_origin():
    x = 100 + 1e-3 * torch.randn(
        6, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    x = x.float().double()  # what float32 can hold, so that only the arithmetic differs
    exact = torch.cdist(x, x).square()
    assert torch.allclose(similarity.sqdist(x.float()).double(), exact, rtol=1e-3)
    naive = (
        x.float().square().sum(1)[:, None]
        + x.float().square().sum(1)
        - 2 * x.float() @ x.float().T
    ).double()
    assert not torch.allclose(naive, exact, rtol=0.5)


def test_similarity_errors():
    bad = torch.ones(4, 2)
    bad[2, 1] = torch.nan
    for kernel in EACH:
        with pytest.raises(ValueError, match="row 2 of x has NaN"):
            kernel(bad)
        with pytest.raises(ValueError, match=r"shape \(3,\)"):
            kernel(torch.ones(3))
    with pytest.raises(ValueError, match="row 2 of y"):
        similarity.sqdist(torch.ones(1, 2), bad)
    with pytest.raises(ValueError, match="2 entries, rows of y have 3"):
        similarity.sqdist(torch.ones(1, 2), torch.ones(1, 3))
    with pytest.raises(ValueError, match="overflow torch.float32"):
        similarity.sqdist(torch.tensor([[0.0], [1e30]]))
    for gamma in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"gamma={gamma}"):
            similarity.rbf(torch.ones(2, 2), gamma)


# --- clustering -----------------------------------------------------------------------


@quick
@given(st.lists(st.integers(-3, 9), min_size=1, max_size=20))
def test_relabel_names_clusters_by_first_appearance(names):
    order = list(dict.fromkeys(names))
    want = [order.index(c) for c in names]
    for labels in (
        torch.tensor(names),
        np.array(names),
        np.array(names, np.int8),
        names,
    ):
        got = clustering.relabel(labels)
        assert got.dtype == torch.int64
        assert got.tolist() == want
    assert clustering.relabel(got).tolist() == want
    assert clustering.num_clusters(got) == len(set(names))
    assert clustering.relabel(torch.tensor([], dtype=torch.int64)).tolist() == []


def blobs(seed=0, sizes=(5, 8, 7), dim=4):
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    x = 10 * rng.standard_normal((len(sizes), dim))[truth] + 0.1 * rng.standard_normal(
        (len(truth), dim)
    )
    return x, rng.uniform(0.5, 5, len(truth)), truth


@pytest.mark.parametrize(
    "make",
    [
        torch.tensor,
        np.array,
        lambda x: torch.tensor(x).float(),
        lambda x: torch.tensor(x).bfloat16(),
    ],
)
def test_kmeans_finds_blobs_in_every_type(make):
    x, weights, truth = blobs()
    labels = clustering.weighted_kmeans(make(x), make(weights), k=3, seed=0)
    assert labels.dtype == torch.int64
    assert labels.tolist() == truth.tolist()  # blobs come in order, and so do names


def test_weights_decide():
    x = np.array([[0.0], [5.0], [9.0]])
    assert clustering.weighted_kmeans(x, [1, 1, 1], k=2, seed=0).tolist() == [0, 1, 1]
    assert clustering.weighted_kmeans(x, [1, 9, 9], k=2, seed=0).tolist() == [0, 0, 1]


@quick
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(4, 12))
def test_kmeans_is_a_fixed_point_of_the_loop_and_no_worse_than_its_start(
    seed, k, clients
):
    rng = np.random.default_rng(seed)
    x, weights = rng.standard_normal((clients, 2)), rng.uniform(0.1, 3, clients)
    labels = clustering.weighted_kmeans(x, weights, k, seed=0, n_init=3)
    assert (
        labels.tolist()
        == clustering.weighted_kmeans(x, weights, k, seed=0, n_init=3).tolist()
    )
    assert sorted(set(labels.tolist())) == list(range(k))
    centres = reference.mean_by(x, weights, labels.tolist(), old=np.zeros((k, 2)))
    again, moved = reference.weighted_kmeans(x, weights, centres)
    assert again == labels.tolist()  # no client nearer to another mean
    assert moved == pytest.approx(centres)
    one = reference.mean_by(x, weights, [0] * clients, old=np.zeros((1, 2)))
    ours = reference.kmeans_objective(x, weights, labels.tolist(), centres)
    assert ours <= reference.kmeans_objective(x, weights, [0] * clients, one) + 1e-12


def test_loop_descends_and_finds_the_same_blobs():
    x, weights, truth = blobs()
    start = x[[0, 5, 13]]
    before = reference.kmeans_objective(
        x, weights, reference.sqdist(x, start).argmin(1), start
    )
    labels, centres = reference.weighted_kmeans(x, weights, start)
    assert labels == clustering.weighted_kmeans(x, weights, k=3, seed=1).tolist()
    assert reference.kmeans_objective(x, weights, labels, centres) < before
    assert centres == pytest.approx(
        reference.mean_by(x, weights, truth, old=np.zeros((3, 4)))
    )


def test_kmeans_of_long_rows_sees_their_distances_only():
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((15, 3)), rng.uniform(0.1, 3, 15)
    turned = (
        x @ np.linalg.qr(rng.standard_normal((400, 3)))[0].T + 5
    )  # the same distances among 400 numbers
    for seed in range(5):
        want = clustering.weighted_kmeans(x, weights, k=4, seed=seed)
        assert torch.equal(
            clustering.weighted_kmeans(turned, weights, k=4, seed=seed), want
        )
    twins = np.repeat(rng.standard_normal((3, 400)), 4, axis=0)
    assert (
        clustering.weighted_kmeans(twins, np.ones(12), k=7, seed=0).tolist()
        == [0] * 4 + [1] * 4 + [2] * 4
    )


def test_kmeans_with_few_different_rows_and_zero_weights():
    x = np.array([[0.0, 0], [0, 0], [1, 1], [0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clustering.weighted_kmeans(x, np.ones(4), k=3, seed=0).tolist() == [
            0,
            0,
            1,
            0,
        ]
        assert clustering.weighted_kmeans(
            np.ones((3, 2)), np.ones(3), k=3, seed=0
        ).tolist() == [0, 0, 0]
        assert clustering.weighted_kmeans(x, np.ones(4), k=4, seed=0).tolist() == [
            0,
            0,
            1,
            0,
        ]
        assert clustering.weighted_kmeans(
            [[0.0], [-0.0]], np.ones(2), k=2, seed=0
        ).tolist() == [0, 0]
        twins = np.array(
            [[0.0], [0.0], [10.0], [400.0]]
        )  # two rows that count and differ make two clusters
        assert clustering.weighted_kmeans(
            twins, [1, 1, 1, 0], k=3, seed=0
        ).tolist() == [0, 0, 1, 1]
    far = np.array(
        [[0.0], [1.0], [10.0], [11.0], [400.0]]
    )  # a client without data must not take a cluster
    assert clustering.weighted_kmeans(far, [1, 1, 1, 1, 0], k=2, seed=0).tolist() == [
        0,
        0,
        1,
        1,
        1,
    ]


def test_kmeans_errors():
    x, ones = np.zeros((3, 2)), np.ones(3)
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"k={k} clusters of 3 rows"):
            clustering.weighted_kmeans(x, ones, k, seed=0)
    with pytest.raises(ValueError, match="do not match"):
        clustering.weighted_kmeans(x, np.ones(2), 1, seed=0)
    for weights in (-ones, 0 * ones, ones * np.nan):
        with pytest.raises(ValueError, match="not all zero"):
            clustering.weighted_kmeans(x, weights, 1, seed=0)
    x[1, 0] = np.inf
    with pytest.raises(ValueError, match="row 1 of x has NaN or infinite"):
        clustering.weighted_kmeans(x, ones, 1, seed=0)
    with pytest.raises(ValueError, match="give K integers"):
        clustering.relabel(torch.ones(3))


def test_kmeans_loops_by_hand():
    x, weights = [[0.0], [1.0], [2.0], [9.0]], [1, 2, 1, 4]
    assert (
        reference.kmeans_objective(x, weights, [0, 0, 1, 1], [[0.0], [8.0]])
        == (0 + 2 * 1 + 36 + 4 * 1) / 8
    )
    labels, centres = reference.weighted_kmeans(
        x, weights, [[0.0], [1.0]]
    )  # clients 1, then 2, change sides
    assert labels == [0, 0, 0, 1]
    assert centres.tolist() == [[1], [9]]


def test_mean_by_loop_by_hand():
    rows, old = [[1.0, 2], [3, 4], [9, 9]], [[0.0, 0], [7, 7], [5, 5]]
    got = reference.mean_by(rows, [1, 3, 0], [0, 0, 2], old)
    assert got.tolist() == [
        [2.5, 3.5],
        [7, 7],
        [5, 5],
    ]  # empty and weightless clusters keep their rows
    assert old == [[0, 0], [7, 7], [5, 5]]


# --- many clients: other algorithms above a size, the same results --------------------


def parted(groups=3, size=14, seed=0) -> np.ndarray:
    """A graph of equal parts without links between them: eigenvalues coincide."""
    rng = np.random.default_rng(seed)
    part = rng.uniform(0.5, 1, (size, size))
    return np.kron(np.eye(groups), (part + part.T) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_leading_eigenvectors_are_those_of_all(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 60))
    for M, n in ((x + x.T, 5), (parted(4, 15, seed), 6)):
        values, vectors = clustering.leading_eigenvectors(M, n)
        assert values == pytest.approx(np.linalg.eigvalsh(M)[::-1][:n], abs=1e-9)
        assert M @ vectors == pytest.approx(vectors * values, abs=1e-8)
        assert vectors.T @ vectors == pytest.approx(np.eye(n), abs=1e-8)
        again = clustering.leading_eigenvectors(M, n)[1]
        assert np.array_equal(again, vectors)


@pytest.mark.parametrize("linked", [False, True])
def test_spectral_cuts_of_many_clients_are_those_of_few(monkeypatch, linked):
    W = parted() + 0.05 * linked
    best = clustering.best_spectral(W, 4, seed=0)
    cut = clustering.spectral(W, 3, seed=0)
    dense = clustering.eigenmaps(W, 3)
    monkeypatch.setattr(clustering, "DENSE", 10)
    for label in (clustering.spectral(W, 3, seed=0), cut, best.labels):
        assert label.tolist() == [0] * 14 + [1] * 14 + [2] * 14
    many = clustering.best_spectral(W, 4, seed=0)
    assert torch.equal(many.labels, best.labels)
    assert many.score == pytest.approx(best.score, abs=1e-6)
    maps = clustering.eigenmaps(W, 3)  # the same space, in whatever axes
    assert np.linalg.matrix_rank(np.hstack([maps, dense]), tol=1e-7) == 3


@quick
@given(matrices)
def test_inner_products_in_blocks(x):
    x = torch.from_numpy(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similarity, "BLOCK", 3)
        gram = similarity.inner_products(x)
        cosines = similarity.cosine(x).numpy()
    torch.testing.assert_close(gram, x @ x.T, rtol=1e-12, atol=1e-12)
    assert torch.equal(gram, gram.T) or len(x) <= 3
    assert cosines == pytest.approx(reference.cosine(x.numpy()), abs=1e-9)


def test_perception_affinity_in_blocks_agrees_with_its_loop(monkeypatch):
    P = np.random.default_rng(0).normal(size=(11, 11))
    monkeypatch.setattr(similarity, "BLOCK", 4)
    found = similarity.perception_affinity(P, 0.3).numpy()
    assert found == pytest.approx(reference.perception_affinity(P, 0.3), abs=1e-9)


def test_k_means_counts_different_rows_no_further_than_it_must():
    rows = np.array([[0.0], [-0.0], [1.0], [1.0], [2.0]])
    counts = [clustering._at_most_different(rows, k) for k in (1, 2, 3, 4)]
    assert counts == [1, 2, 3, 3]


def test_cfl_gp_parts_many_clients_as_it_parts_few(monkeypatch):
    from fednb.methods import CFLGP, cflgp

    G = torch.from_numpy(parted()[:, None])  # (K, 1, d)
    old = torch.zeros(len(G), dtype=torch.long)
    few = CFLGP(3).partition(G, old, seed=0)
    monkeypatch.setattr(cflgp, "DENSE", 10)
    many = CFLGP(3).partition(G, old, seed=0)
    assert torch.equal(clustering.relabel(many), clustering.relabel(few))
    assert len(few.unique()) == 3
