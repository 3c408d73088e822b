"""Who belongs together: a matrix in, one label per row out.

Labels are a torch int64 vector (K,) on the input's device. They are named 0, 1, ... in
the order in which the clusters first appear, so two clusterings with the same members
are equal as vectors.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import checks

SEED = checks.integer(0, 2**32 - 1)  # what scikit-learn takes
LARGEST = 1e150  # squares of larger numbers overflow float64
DENSE = 2000  # clients up to which all eigenvectors of a matrix are computed at once
BINS = checks.optional(checks.integer(2))
ASSIGN = checks.choice("kmeans", "ng", "cluster_qr")
SCORE_ON = checks.choice("affinity", "embedding")
CLUSTERER = checks.choice("kmeans", "affinity", "meanshift", "hdbscan")


def relabel(labels: Tensor | np.ndarray) -> Tensor:
    """Rename clusters 0..C-1 in order of first appearance: (K,) -> (K,) int64.

    Methods that split clusters leave gaps and arbitrary names behind; afterwards
    `theta[labels]` fits again. Members do not change. A noise label such as -1 becomes
    a cluster like any other.
    """
    if not isinstance(labels, Tensor):
        labels = torch.from_numpy(np.array(checks.array("relabel", "labels", labels)))
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            f"labels has shape {tuple(labels.shape)}, {labels.dtype}: give K integers"
        )
    names, code = labels.long().unique(return_inverse=True)  # (C,), (K,)
    place = torch.arange(len(labels), device=labels.device)
    # (C,) where each cluster appears first
    first = torch.full((len(names),), len(labels), device=labels.device)
    first = first.scatter_reduce(0, code, place, "amin")
    return first.argsort().argsort()[code]


def num_clusters(labels: Tensor) -> int:
    """Number C of clusters in labels (K,), which must use all of 0, 1, ..., C - 1."""
    return int(labels.max()) + 1


def keep_names(found: Tensor, old: Tensor, n: int) -> Tensor:
    """Rename clusters so that as many clients as possible keep their old name: (K,).

    ``found`` (K,) are the new clusters, ``old`` (K,) the names that clients had before.
    All names are among 0, 1, ..., n - 1, before and after.
    """
    from scipy.optimize import linear_sum_assignment

    _check_names("keep_names", n, found, old)
    same = torch.zeros(n, n, dtype=torch.long, device=found.device)
    # how many clients have each new and old name
    same.index_put_((found, old), torch.ones_like(found), accumulate=True)
    name = linear_sum_assignment(same.cpu().numpy(), maximize=True)[1]
    return torch.as_tensor(name, device=found.device)[found]


def steady_names(labels: Tensor | np.ndarray) -> np.ndarray:
    """Let clusters keep their names over rounds: (T, K) -> (T, K).

    Each round's clusters are renamed by `keep_names` after those of the round before.
    """
    rows = torch.as_tensor(np.array(labels))
    for t in range(1, len(rows)):
        n = int(rows[t - 1 : t + 1].max()) + 1
        rows[t] = keep_names(rows[t], rows[t - 1], n)
    return rows.numpy()


def _check_names(owner: str, n: int, *labels: Tensor) -> None:
    """Vectors of cluster names must be integers in 0..n-1."""
    checks.argument(owner, "n", n, checks.integer(1))
    for names in labels:
        integers = names.ndim == 1 and not names.is_floating_point()
        if not integers or names.shape != labels[0].shape:
            raise ValueError(f"{owner}: give two vectors of K integers")
        if len(names) and (int(names.min()) < 0 or int(names.max()) >= n):
            raise ValueError(
                f"{owner}: names {int(names.min())}..{int(names.max())} do not lie in "
                f"0..{n - 1}"
            )


def weighted_kmeans(
    x: Tensor | np.ndarray,
    weights: Tensor | np.ndarray,
    k: int,
    seed: int,
    n_init: int = 10,
) -> Tensor:
    """Split rows (K, D) into k clusters by weighted k-means: (K,) labels.

    Minimises WeCFL's Eq. 3b, Σ_i λ_i ‖g_i - G_c(i)‖², by Lloyd's steps from `n_init`
    k-means++ starts, the best of which wins: a local optimum, not always the global
    one. `weights` (K,) are the λ; equal ones give FeSEM's clustering, and a client of
    weight 0 does not move the means but joins the nearest one.

    Computed in float64; the same seed gives the same labels. Another order of the rows
    acts like another seed, since k-means++ draws rows by their position. No cluster is
    empty: if fewer than k rows of positive weight are *different*, there are only that
    many clusters. k larger than K is an error.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    checks.argument("weighted_kmeans", "k", k, checks.integer())
    checks.argument("weighted_kmeans", "seed", seed, SEED)
    checks.argument("weighted_kmeans", "n_init", n_init, checks.integer(1))
    rows = _float64(x)
    w = _float64(weights, "weights")
    _check(rows, w, k)
    k = _at_most_different(rows[w > 0], k)
    with threadpool_limits(1):  # threads add in any order, and a last digit can decide
        kmeans = KMeans(k, n_init=n_init, random_state=seed, tol=0)
        found = kmeans.fit(_fold(rows), sample_weight=w).labels_
    return _named(found, x)


def _at_most_different(rows: np.ndarray, k: int) -> int:
    """How many rows differ from each other, counted up to k."""
    seen = set()
    for row in rows:
        seen.add((row + 0.0).tobytes())  # -0.0 equals 0.0
        if len(seen) == k:
            break
    return len(seen)


def kmeans_objective(
    x: Tensor, weights: Tensor, labels: Tensor, centres: Tensor
) -> Tensor:
    """The objective of WeCFL's clustering (Eq. 3b), a number.

    F = Σ_i λ_i ‖g_i - G_c(i)‖² / Σ_i λ_i. `x` (K, D) are the clients' rows, `weights`
    (K,) the λ, `centres` (C, D) the clusters' centres, and `labels` (K,) say which
    centre belongs to each client.
    """
    gap = ((x - centres[labels]) ** 2).sum(1)  # (K,)
    objective = (weights * gap).sum() / weights.sum()
    if not bool(objective.isfinite()):
        raise ValueError(
            "kmeans_objective: give finite rows, centres and weights; the weights must "
            "not sum to zero"
        )
    return objective


class Spectral(NamedTuple):
    """The best of several spectral clusterings."""

    labels: Tensor  # (K,) all 0 if none was good enough
    score: float  # the lowest Davies-Bouldin score; inf if no cut was tried


def best_spectral(
    W: Tensor | np.ndarray,
    n_max: int,
    seed: int,
    assign: str = "kmeans",
    score_on: str = "affinity",
    smallest: int = 1,
    bound: float = 1.0,
) -> Spectral:
    """Cut an affinity matrix (K, K) into 2, ..., n_max clusters and keep the best cut.

    FedGWC, Algorithm 2. The best cut has the lowest Davies-Bouldin score; if that
    exceeds ``bound``, nothing is cut and all labels are 0. Cuts with a cluster of fewer
    than ``smallest`` clients are left out.

    ``score_on`` says which features of a client are scored: its row of W
    (``"affinity"``, as printed) or the first n non-trivial eigenvectors
    (``"embedding"``, as released). ``assign`` says how eigenvectors become clusters: by
    ``"kmeans"``; by ``"ng"``, k-means of rows of unit length (Ng, Jordan, Weiss 2001);
    or by ``"cluster_qr"``, a pivoted QR without randomness.
    """
    checks.argument("best_spectral", "n_max", n_max, checks.integer(0))
    checks.argument("best_spectral", "seed", seed, SEED)
    checks.argument("best_spectral", "assign", assign, ASSIGN)
    checks.argument("best_spectral", "score_on", score_on, SCORE_ON)
    checks.argument("best_spectral", "smallest", smallest, checks.integer(1))
    checks.argument("best_spectral", "bound", bound, checks.number(0, infinite=True))
    A = _affinity(W)
    best = Spectral(torch.zeros(len(A), dtype=torch.int64), math.inf)
    n_max = min(n_max, len(A) - 1, len(A) // smallest)
    # if all pairs are equally alike, the eigenvectors are arbitrary: nothing is cut
    differ = n_max >= 2 and np.ptp(_off_diagonal(A)) > 1e-8
    if differ:
        maps = eigenmaps(A, n_max + 1)  # (K, n_max + 1)
        for n in range(2, n_max + 1):
            labels = cut_maps(maps[:, :n], n, seed, assign)
            sizes = np.bincount(labels)
            if len(sizes) < n or sizes.min() < smallest:
                continue  # clients that coincide make fewer clusters
            features = A
            if score_on == "embedding":
                features = maps[:, 1 : n + 1]
            score = davies_bouldin_of_rows(features, labels)
            if score < best.score:
                best = Spectral(torch.from_numpy(labels), score)
    chosen = best.labels
    if best.score > bound:
        chosen = torch.zeros_like(chosen)
    return Spectral(_named(chosen, W), best.score)


def spectral(W: Tensor | np.ndarray, k: int, seed: int) -> Tensor:
    """Cut an affinity matrix (K, K) into at most k spectral clusters: (K,) labels.

    k-means of the k leading generalised eigenvectors of the graph whose edges are W
    (Shi and Malik 2000). A negative affinity counts as no edge. A graph without edges
    is one cluster.
    """
    checks.argument("spectral", "k", k, checks.integer())
    checks.argument("spectral", "seed", seed, SEED)
    A = _affinity(W).clip(0)
    if not 1 <= k <= len(A):
        raise ValueError(f"k={k} clusters of {len(A)} rows: k must lie in 1..{len(A)}")
    if not (_off_diagonal(A) > 0).any():
        return _one_cluster(W)
    labels = torch.from_numpy(cut_maps(eigenmaps(A, k), k, seed, "kmeans"))
    return labels.to(_device(W))


def bipartition(S: Tensor | np.ndarray, linkage: str = "complete") -> Tensor:
    """Cut a similarity matrix (K, K) in two, K >= 2: (K,) labels 0 and 1.

    Client 0 is in part 0. CFL asks for the two parts with the least similarity across,
    argmin max_{i in c1, j in c2} α_ij. Merging the most similar pair of clients first
    (``"single"`` linkage) finds exactly that; it may cut off one client. CFL's released
    code links ``"complete"``: a part is as alike as its least similar pair.
    """
    from sklearn.cluster import AgglomerativeClustering

    rule = checks.choice("complete", "single")
    checks.argument("bipartition", "linkage", linkage, rule)
    A = _affinity(S, "S")
    if len(A) < 2:
        raise ValueError("one client cannot be cut in two")
    merge = AgglomerativeClustering(2, metric="precomputed", linkage=linkage)
    return _named(merge.fit_predict(A.max() - A), S)


def components(links: Tensor | np.ndarray) -> Tensor:
    """Label the connected parts of a graph (K, K): (K,).

    An entry that is not zero is a link, and counts in both directions.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    matrix = links
    if isinstance(links, Tensor):
        matrix = links.detach().cpu()
    matrix = checks.array("components", "links", matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or np.isnan(matrix).any():
        raise ValueError(
            f"components: links of shape {matrix.shape}, need a square matrix without "
            "NaN"
        )
    found = connected_components(csr_matrix(matrix != 0), directed=False)[1]
    return _named(found, links)


def otsu_components(
    A: Tensor | np.ndarray, bins: int | None = 256, join: bool = False
) -> Tensor:
    """Link every pair that attracts each other strongly: (K, K) -> (K,) labels.

    The end of GCFL's Algorithm 1: pairs with A_ab >= τ are linked, and the connected
    parts are the clusters. τ is Otsu's threshold of the values above the diagonal: the
    cut into weak and strong values with the largest variance between the two groups.
    The cut lies at an edge of ``bins`` equal bins from the lowest value to the highest,
    or anywhere if ``bins`` is None. Otsu always finds two groups of values, whether
    there are two or not; only if all values are equal, to six digits, is there one
    cluster. A client without a link is a cluster of its own; with ``join`` it is linked
    to the client that attracts it most.
    """
    checks.argument("otsu_components", "bins", bins, BINS)
    values, above, low, high = _pairs(A)
    if low == high:
        return _one_cluster(A)
    links = values >= _otsu(above, bins)
    np.fill_diagonal(links, False)
    if join:
        np.fill_diagonal(values, -1)
        alone = np.flatnonzero(~links.any(1))
        links[alone, values[alone].argmax(1)] = True
    return components(links).to(_device(A))


def otsu_threshold(A: Tensor | np.ndarray, bins: int | None = 256) -> float:
    """The τ of `otsu_components`, in the units of A (K, K), K >= 2.

    Pairs with A_ab >= τ are linked.
    """
    checks.argument("otsu_threshold", "bins", bins, BINS)
    _, above, low, high = _pairs(A)
    if low == high:
        raise ValueError(f"A has {len(above)} pairs, all alike: nothing to cut")
    return float(low + (high - low) * _otsu(above, bins))


def _pairs(A: Tensor | np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """A scaled so that its pairs lie in [0, 1], and the scale.

    Returns the scaled matrix (K, K), its values above the diagonal, and the lowest and
    highest of these before scaling. If all are equal, nothing is scaled, and the lowest
    is returned twice.
    """
    values = _affinity(A, "A")
    upper = np.triu(np.ones(values.shape, dtype=bool), 1)
    if not upper.any():  # a single client
        return values, values[upper], 0.0, 0.0
    low = values[upper].min()
    high = values[upper].max()
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        return values, values[upper], low, low
    values = (values - low) / (high - low)  # Otsu's cut is the same on every scale
    return values, values[upper], low, high


def _otsu(values: np.ndarray, bins: int | None) -> float:
    """Otsu's threshold τ for values in [0, 1]: values >= τ are strong.

    τ is the edge of a bin or, if ``bins`` is None, the smallest strong value.
    """
    if bins is None:  # every value is a bin; τ is the value after the last weak one
        centres, counts = np.unique(values, return_counts=True)
        return float(centres[_last_weak(counts, centres) + 1])
    counts, edges = np.histogram(values, bins, range=(0, 1))
    upper = edges[1:]  # bins named by their upper edges: then weak < τ <= strong
    return float(upper[_last_weak(counts, upper)])


def _last_weak(counts: np.ndarray, centres: np.ndarray) -> int:
    """Otsu's cut of a histogram (B,): the last of the weak bins.

    It makes n₁ n₂ (μ₁ - μ₂)², the variance between weak and strong, largest. The first
    and the last bin must not be empty. Numbers of values are single precision, as in
    scikit-image, with which this agrees in every bit.
    """
    counts = counts.astype(np.float32)
    sums = counts * centres
    n_weak = np.cumsum(counts)
    n_strong = np.cumsum(counts[::-1])[::-1]
    mean_weak = np.cumsum(sums) / n_weak
    mean_strong = np.cumsum(sums[::-1])[::-1] / n_strong
    gap = mean_weak[:-1] - mean_strong[1:]
    return int(np.argmax(n_weak[:-1] * n_strong[1:] * gap**2))


def by_distance(
    D: Tensor | np.ndarray,
    clusterer: str = "hdbscan",
    *,
    k: int = 3,
    seed: int = 0,
    noise: str = "nearest",
    swapped: bool = False,
) -> Tensor:
    """Cluster by distances (K, K) with any of the clusterers of OCFL: (K,) labels.

    ``"kmeans"`` (which needs k) and ``"meanshift"`` take row i of D as the features of
    client i: two clients are alike if their distances to all clients are. ``"hdbscan"``
    takes distances; `hdbscan` says what ``noise`` means. ``"affinity"`` propagation
    takes similarities, -D; with ``swapped`` it is given the distances themselves, as in
    OCFL's released code, so that it prefers the farthest clients as exemplars.
    """
    checks.argument("by_distance", "clusterer", clusterer, CLUSTERER)
    checks.argument("by_distance", "k", k, checks.integer(1))
    distances = _distances(D)
    if len(distances) == 1:
        return _one_cluster(D)
    if clusterer == "kmeans":
        equal = np.ones(len(distances))
        return weighted_kmeans(D, equal, min(k, len(distances)), seed)
    if clusterer == "affinity":
        similarities = -distances
        if swapped:
            similarities = distances
        return _named(affinity_propagation(similarities, seed), D)
    if clusterer == "meanshift":
        return mean_shift(D)
    return hdbscan(D, noise=noise)


def affinity_propagation(S: Tensor | np.ndarray, seed: int = 0) -> Tensor:
    """Affinity propagation (Frey and Dueck 2007) of similarities (K, K): (K,) labels.

    Clients choose exemplars among themselves, one for each cluster. How many there are
    follows from the parameter called preference, which is the median of S. If the
    messages do not converge, or all similarities are equal, there is one cluster.
    """
    from sklearn.cluster import AffinityPropagation

    checks.argument("affinity_propagation", "seed", seed, SEED)
    A = _affinity(S, "S")
    if len(A) == 1 or np.ptp(_off_diagonal(A)) == 0:
        return _one_cluster(S)
    messages = AffinityPropagation(affinity="precomputed", random_state=seed)
    with warnings.catch_warnings():
        # scikit-learn warns if nothing converges, and labels all clients -1
        warnings.simplefilter("ignore")
        return _named(messages.fit_predict(A), S)


def mean_shift(x: Tensor | np.ndarray) -> Tensor:
    """Mean shift (Comaniciu and Meer 2002) of rows (K, D): (K,) labels.

    Each row moves uphill to a peak of the rows' density; rows that meet there are a
    cluster. The bandwidth is scikit-learn's estimate: the mean distance of a row to the
    farthest of its nearest 30 %. A row counts as its own neighbour, so with fewer than
    seven rows 30 % would be the row alone, at distance 0; then two rows are taken.
    """
    from sklearn.cluster import MeanShift, estimate_bandwidth
    from threadpoolctl import threadpool_limits

    rows = _float64(x)
    _check(rows, np.ones(len(rows)), 1)
    with threadpool_limits(1):  # two threads take ten times as long for its small steps
        rows = _fold(rows)
        width = estimate_bandwidth(rows, quantile=max(0.3, min(1.0, 2 / len(rows))))
        width = max(width, 1e-9 * np.ptp(rows))  # rows that are equal but for rounding
        found = MeanShift(bandwidth=width or None).fit_predict(rows)
    return _named(found, x)


def hdbscan(
    D: Tensor | np.ndarray, smallest: int | None = None, noise: str = "nearest"
) -> Tensor:
    """HDBSCAN of distances D (K, K): (K,) labels.

    Its clusters are the dense groups that persist longest as a distance threshold
    falls. None has fewer than ``smallest`` clients: by default a fifth of K, as in
    OCFL, but at least 2. Clients outside all groups, the ``noise``, join the group that
    is ``"nearest"`` on average, form one cluster ``"together"`` (the effect of the
    label -1 in OCFL's released code), or stay ``"alone"``. If there is no group, all
    clients are one cluster.
    """
    from sklearn.cluster import HDBSCAN

    rule = checks.choice("nearest", "together", "alone")
    checks.argument("hdbscan", "noise", noise, rule)
    checks.argument("hdbscan", "smallest", smallest, checks.optional(checks.integer(2)))
    A = _distances(D)
    if smallest is None:
        smallest = max(2, round(len(A) / 5))
    if len(A) < smallest:
        return _one_cluster(D)
    density = HDBSCAN(min_cluster_size=smallest, metric="precomputed", copy=True)
    found = density.fit_predict(A)
    groups = found.max() + 1
    if groups == 0:
        return _one_cluster(D)
    outside = found < 0
    if noise == "nearest":
        distance = [A[outside][:, found == c].mean(1) for c in range(groups)]
        found[outside] = np.argmin(distance, axis=0)
    if noise == "alone":
        found[outside] = groups + np.arange(outside.sum())
    return _named(found, D)


def agglomerative(
    D: Tensor | np.ndarray, threshold: float, linkage: str = "average"
) -> Tensor:
    """Merge the nearest two clusters again and again, by distances (K, K): (K,) labels.

    Merging ends when the nearest two are ``threshold`` or more apart. The distance of
    two clusters is the ``"average"``, largest (``"complete"``) or smallest
    (``"single"``) distance between their members.
    """
    from sklearn.cluster import AgglomerativeClustering

    rule = checks.choice("average", "complete", "single")
    checks.argument("agglomerative", "linkage", linkage, rule)
    checks.argument("agglomerative", "threshold", threshold, checks.number(least=0))
    A = _affinity(D, "D")  # may be negative: BriggsHC.swapped hands over similarities
    if len(A) == 1:
        return _one_cluster(D)
    merge = AgglomerativeClustering(
        None, metric="precomputed", linkage=linkage, distance_threshold=threshold
    )
    return _named(merge.fit_predict(A), D)


def _named(found: Tensor | np.ndarray, like: Tensor | np.ndarray) -> Tensor:
    """Labels (K,) in order of first appearance, on the device of ``like``."""
    labels = torch.as_tensor(found, dtype=torch.int64, device=_device(like))
    return relabel(labels)


def _one_cluster(like: Tensor | np.ndarray) -> Tensor:
    """Labels (K,) of K clients in one cluster, on the device of ``like`` (K, ...)."""
    return torch.zeros(len(like), dtype=torch.int64, device=_device(like))


def _device(x: Tensor | np.ndarray) -> torch.device:
    """Where results for the argument ``x`` belong; arrays are on the CPU."""
    if isinstance(x, Tensor):
        return x.device
    return torch.device("cpu")


def _off_diagonal(A: np.ndarray) -> np.ndarray:
    """The entries of A (K, K) outside its diagonal, in one vector."""
    return A[~np.eye(len(A), dtype=bool)]


def eigenmaps(W: np.ndarray, n: int) -> np.ndarray:
    """Spectral coordinates of a graph (K, K): (K, n).

    They are D^-½ u for the eigenvectors u of the n smallest eigenvalues of
    I - D^-½ W D^-½; the first is constant.
    """
    from scipy.linalg import LinAlgError, eigh

    K = len(W)
    M = W.copy()
    np.fill_diagonal(M, 0)  # a graph without loops
    degree = M.sum(1)
    scale = 1 / np.sqrt(np.where(degree > 0, degree, 1))
    M *= scale  # D^-½ W D^-½, in place
    M *= scale[:, None]
    if K > DENSE and 10 * n < K:
        return leading_eigenvectors(M, n)[1] * scale[:, None]
    try:
        u = eigh(M, subset_by_index=(K - n, K - 1))[1]  # ascending
    except LinAlgError:  # LAPACK can fail where many eigenvalues nearly coincide
        u = eigh(M, driver="ev")[1][:, K - n :]
    return u[:, ::-1] * scale[:, None]


def leading_eigenvectors(M: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n largest eigenvalues of a symmetric M (K, K), and their vectors (K, n).

    By Lanczos iterations, which need products with M only: time K² for each, where all
    eigenvectors take K³. They may overlook an eigenvalue that occurs more than once, as
    in a graph of several parts; so what was found is taken out of M, and the rest is
    searched again until it has nothing larger. A fixed first vector makes the result
    the same each time.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    first = np.random.default_rng(0).standard_normal(len(M))

    def search(wanted: int) -> tuple[np.ndarray, np.ndarray]:
        def rest(v: np.ndarray) -> np.ndarray:  # M - Σ λ u uᵀ over what was found
            return M @ v - vectors @ (values * (vectors.T @ v))

        operator = LinearOperator(M.shape, rest, dtype=M.dtype)
        size = min(len(M), max(4 * wanted, 40))
        return eigsh(operator, wanted, which="LA", v0=first, ncv=size)

    values = np.empty(0)
    vectors = np.empty((len(M), 0))
    wanted = n
    while True:
        more, axes = search(wanted)
        done = len(values) >= n and more.max() <= np.sort(values)[-n] + 1e-10
        if done or len(values) >= 2 * n:
            break
        values = np.concatenate([values, more])
        vectors = np.concatenate([vectors, axes], axis=1)
        wanted = 1
    order = np.argsort(-values, kind="stable")[:n]
    return values[order], vectors[:, order]


def davies_bouldin_of_rows(x: np.ndarray, labels: np.ndarray) -> float:
    """Davies-Bouldin score (FedGWC, Eq. 42); infinite if two centroids coincide.

    scikit-learn takes coinciding centroids for perfect clusters, and is slow for few
    rows.
    """
    clusters = [x[labels == c] for c in range(labels.max() + 1)]
    centres = np.stack([rows.mean(0) for rows in clusters])
    radii = [
        np.linalg.norm(rows - centre, axis=1).mean()
        for rows, centre in zip(clusters, centres, strict=True)
    ]
    spread = np.array(radii)
    distance = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(distance, math.inf)
    if distance.min() <= 1e-8:
        return math.inf
    return float(((spread[:, None] + spread) / distance).max(1).mean())


def cut_maps(maps: np.ndarray, n: int, seed: int, assign: str) -> np.ndarray:
    """Labels (K,) from n spectral coordinates (K, n)."""
    if assign == "cluster_qr":
        from scipy.linalg import polar, qr

        # n clients that point in the most different directions
        pivots = qr(maps.T, mode="r", pivoting=True)[1][:n]
        # rotate, so that each of them lies along an axis of its own
        rotation = polar(maps[pivots].T)[0]
        return np.abs(maps @ rotation).argmax(1)
    if assign == "ng":
        length = np.linalg.norm(maps, axis=1, keepdims=True)
        maps = maps / np.where(length > 0, length, 1)
    return weighted_kmeans(maps, np.ones(len(maps)), n, seed).numpy()


def _affinity(W: Tensor | np.ndarray, name: str = "W") -> np.ndarray:
    """A symmetric matrix of finite numbers, in float64."""
    A = _float64(W, name)
    square = A.ndim == 2 and A.shape[0] == A.shape[1] and A.size > 0
    if not square or not np.isfinite(A).all() or not np.allclose(A, A.T):
        raise ValueError(
            f"{name} has shape {A.shape}: give one finite number for each pair, the "
            "same both ways"
        )
    if np.abs(A).max() > LARGEST:
        raise ValueError(f"{name} has numbers above {LARGEST:g}: scale them down")
    return A


def _distances(D: Tensor | np.ndarray) -> np.ndarray:
    """A symmetric matrix of finite numbers >= 0, in float64."""
    A = _affinity(D, "D")
    if A.min() < 0:
        raise ValueError(f"D has the entry {A.min():g}: give distances, which are >= 0")
    return A


def _float64(x: Tensor | np.ndarray, name: str = "x") -> np.ndarray:
    """The argument called ``name`` as an array of float64."""
    if isinstance(x, Tensor):
        return np.asarray(x.detach().cpu().double())
    return checks.array("clustering", name, x).astype(np.float64, copy=False)


def _fold(rows: np.ndarray) -> np.ndarray:
    """Rows (K, D) as (K, min(K, D)), with the same distances between them.

    k-means needs nothing but distances, and the Gram matrix x xᵀ determines them:
    x xᵀ = V diag(λ) Vᵀ = z zᵀ with z = V diag(√λ).
    """
    if rows.shape[1] <= len(rows):
        return rows
    x = rows - rows.mean(0)  # (K, D)
    size, axes = np.linalg.eigh(x @ x.T)
    return axes * np.sqrt(size.clip(0))  # (K, K)


def _check(rows: np.ndarray, weights: np.ndarray, k: int) -> None:
    """Refuse rows (K, D) or weights (K,) that are no finite numbers, and k > K."""
    if rows.ndim != 2 or weights.shape != rows.shape[:1] or rows.shape[1] == 0:
        raise ValueError(
            f"x {rows.shape} and weights {weights.shape} do not match: give (K, D) and "
            "(K,)"
        )
    if not 1 <= k <= len(rows):
        raise ValueError(
            f"k={k} clusters of {len(rows)} rows: k must lie in 1..{len(rows)}"
        )
    peak = np.abs(rows).max(1)
    bad = np.flatnonzero(~np.isfinite(peak))
    if len(bad):
        raise ValueError(
            f"row {bad[0]} of x has NaN or infinite values: that client has diverged"
        )
    if peak.max() > LARGEST:
        raise ValueError(f"x has numbers above {LARGEST:g}: scale them down")
    if not (np.isfinite(weights) & (weights >= 0)).all() or weights.sum() == 0:
        raise ValueError(
            f"weights (least {weights.min()}, sum {weights.sum()}) must be finite, "
            ">= 0, and not all zero"
        )
