"""Who belongs together: a matrix in, one label per row out.

Labels are a torch int64 vector (K,) on the input's device. They are named 0, 1, ... in the order in which the
clusters first appear, so two clusterings with the same members are equal as vectors.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


def relabel(labels: Tensor | np.ndarray) -> Tensor:
    """Rename clusters 0..C-1 in order of first appearance: (K,) -> (K,) int64.

    Methods that split clusters leave gaps and arbitrary names behind; afterwards `theta[labels]` fits again.
    Members do not change. A noise label such as -1 becomes a cluster like any other.
    """
    labels = (
        labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    )
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            f"labels has shape {tuple(labels.shape)}, {labels.dtype}: give K integers"
        )
    names, code = labels.long().unique(return_inverse=True)  # (C,), (K,)
    place = torch.arange(len(labels), device=labels.device)
    first = torch.full((len(names),), len(labels), device=labels.device)
    first = first.scatter_reduce(
        0, code, place, "amin"
    )  # (C,) where each cluster is met first
    return first.argsort().argsort()[code]


def keep_names(found: Tensor, old: Tensor, n: int) -> Tensor:
    """Rename clusters (K,) so that as many clients as can be keep the name that they had before; there are n names."""
    from scipy.optimize import linear_sum_assignment

    same = torch.zeros(n, n, dtype=torch.long, device=found.device)
    same.index_put_(
        (found, old), torch.ones_like(found), accumulate=True
    )  # clients by new and old name
    name = torch.as_tensor(
        linear_sum_assignment(same.cpu().numpy(), maximize=True)[1], device=found.device
    )
    return name[found]


def steady_names(labels: Tensor | np.ndarray) -> np.ndarray:
    """Rename the clusters of each round after those of the round before: (T, K)."""
    rows = torch.as_tensor(np.array(labels))
    for t in range(1, len(rows)):
        rows[t] = keep_names(rows[t], rows[t - 1], int(rows[t - 1 : t + 1].max()) + 1)
    return rows.numpy()


def weighted_kmeans(
    x: Tensor | np.ndarray,
    weights: Tensor | np.ndarray,
    k: int,
    seed: int,
    n_init: int = 10,
) -> Tensor:
    """Split rows (K, D) into k clusters of least weighted squared distance to their means: (K,) labels.

    Minimises WeCFL's Eq. 3b, Σ_i λ_i ‖g_i - G_c(i)‖², by Lloyd's steps from `n_init` k-means++ starts, the
    best of which wins: a local optimum, not surely the global one. `weights` (K,) are the λ; equal ones give
    FeSEM's clustering, and a client of weight 0 has no say in where the means lie but joins the nearest.
    Computed in float64; the same seed gives the same labels. Each cluster has a member: if fewer than k rows
    of positive weight are *different*, there are only that many clusters. k larger than K is an error.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    device = x.device if isinstance(x, Tensor) else None
    rows, w = _float64(x), _float64(weights)
    _check(rows, w, k)
    k = min(
        k, len({row.tobytes() for row in rows[w > 0] + 0.0})
    )  # + 0.0, for -0.0 equals 0.0
    with threadpool_limits(
        1
    ):  # threads add in any order, and a last digit can move a client
        found = (
            KMeans(k, n_init=n_init, random_state=seed, tol=0)
            .fit(_fold(rows), sample_weight=w)
            .labels_
        )
    return relabel(torch.as_tensor(found, dtype=torch.int64, device=device))


def kmeans_objective(
    x: Tensor, weights: Tensor, labels: Tensor, centres: Tensor
) -> Tensor:
    """F = Σ_i λ_i ‖g_i - G_c(i)‖² / Σ_i λ_i, what WeCFL's clustering minimises (Eq. 3b): a number.

    `x` (K, D) are the clients' rows, `centres` (C, D) the clusters', `labels` (K,) say whose centre counts.
    """
    gap = ((x - centres[labels]) ** 2).sum(1)  # (K,)
    return (weights * gap).sum() / weights.sum()


class Spectral(NamedTuple):
    """The best of several spectral clusterings."""

    labels: Tensor  # (K,) all 0 if none was good enough
    score: float  # its Davies-Bouldin score, below which no other went; inf if there was nothing to try


def best_spectral(
    W: Tensor | np.ndarray,
    n_max: int,
    seed: int,
    assign: str = "kmeans",
    score_on: str = "affinity",
    smallest: int = 1,
    bound: float = 1.0,
) -> Spectral:
    """Cut an affinity matrix (K, K) into 2, ..., n_max spectral clusters and keep the best cut (FedGWC, Alg. 2).

    Best is the least Davies-Bouldin score; if that exceeds ``bound``, nothing is cut and all labels are 0. A client's
    features for that score are its row of W (``score_on="affinity"``, as printed) or the ``"embedding"``, the first n
    non-trivial eigenvectors (as released). Eigenvectors become clusters by ``"kmeans"``; by ``"ng"``, k-means of rows
    of unit length (Ng, Jordan, Weiss 2001); or by ``"cluster_qr"``, a pivoted QR without randomness.
    Cuts with a cluster of fewer than ``smallest`` clients do not count.
    """
    _check_choice("assign", assign, ("kmeans", "ng", "cluster_qr"))
    _check_choice("score_on", score_on, ("affinity", "embedding"))
    A, best = _affinity(W), Spectral(torch.zeros(len(W), dtype=torch.int64), math.inf)
    n_max = min(n_max, len(A) - 1, len(A) // smallest)
    if (
        n_max >= 2 and np.ptp(A[~np.eye(len(A), dtype=bool)]) > 1e-8
    ):  # eigenvectors of equal numbers are arbitrary
        maps = _eigenmaps(A, n_max + 1)  # (K, n_max + 1)
        for n in range(2, n_max + 1):
            labels = _assign(maps[:, :n], n, seed, assign)
            sizes = np.bincount(labels)
            if (
                len(sizes) == n and sizes.min() >= smallest
            ):  # clients that coincide make fewer clusters
                score = _davies_bouldin(
                    A if score_on == "affinity" else maps[:, 1 : n + 1], labels
                )
                if score < best.score:
                    best = Spectral(torch.from_numpy(labels), score)
    labels = best.labels if best.score <= bound else torch.zeros_like(best.labels)
    return Spectral(
        relabel(labels).to(W.device if isinstance(W, Tensor) else "cpu"), best.score
    )


def spectral(W: Tensor | np.ndarray, k: int, seed: int) -> Tensor:
    """Cut an affinity matrix (K, K) into at most k spectral clusters: (K,) labels.

    k-means of the k leading generalised eigenvectors of the graph whose edges are W (Shi and Malik 2000). Weights of
    an affinity are not negative: a negative one counts as no edge.
    """
    A = _affinity(W).clip(0)
    if not 1 <= k <= len(A):
        raise ValueError(f"k={k} clusters of {len(A)} rows: k must lie in 1..{len(A)}")
    labels = torch.from_numpy(_assign(_eigenmaps(A, k), k, seed, "kmeans"))
    return labels.to(W.device if isinstance(W, Tensor) else "cpu")


def bipartition(S: Tensor | np.ndarray, linkage: str = "complete") -> Tensor:
    """Cut a similarity matrix (K, K) in two, K >= 2: (K,) labels 0 and 1, client 0 in part 0.

    CFL asks for the two parts with the least similarity across, argmin max_{i in c1, j in c2} α_ij. Merging the most
    similar pair of clients first (``"single"`` linkage) finds exactly that; it may cut off one client. CFL's released
    code links ``"complete"``: a part is as alike as its least similar pair.
    """
    from sklearn.cluster import AgglomerativeClustering

    _check_choice("linkage", linkage, ("complete", "single"))
    A = _affinity(S, "S")
    if len(A) < 2:
        raise ValueError("one client cannot be cut in two")
    found = AgglomerativeClustering(
        2, metric="precomputed", linkage=linkage
    ).fit_predict(A.max() - A)
    return relabel(
        torch.as_tensor(
            found, dtype=torch.int64, device=S.device if isinstance(S, Tensor) else None
        )
    )


def components(links: Tensor | np.ndarray) -> Tensor:
    """Label the connected parts of a graph (K, K), whose links count in both directions: (K,)."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    links = links if isinstance(links, Tensor) else torch.from_numpy(np.array(links))
    found = connected_components(csr_matrix(links.cpu().numpy() != 0), directed=False)[
        1
    ]
    return relabel(torch.as_tensor(found, dtype=torch.int64, device=links.device))


def otsu_components(
    A: Tensor | np.ndarray, bins: int | None = 256, join: bool = False
) -> Tensor:
    """Link every pair that attracts each other strongly, A_ab >= τ, and label the connected parts: (K, K) -> (K,).

    The end of GCFL's Algorithm 1. τ is Otsu's threshold of the values above the diagonal: it cuts them in weak and
    strong with the largest variance between the two, at the edge of one of ``bins`` equal bins from the least value to
    the largest, or anywhere if ``bins`` is None. Otsu always finds two sorts, be there two or not; only if all values
    are equal, to six digits, there is one cluster. With ``join`` a client without a strong tie is linked to the one
    that attracts it most, instead of being a cluster of its own.
    """
    values, above, low, high = _pairs(A)
    if low == high:
        return torch.zeros(
            len(values),
            dtype=torch.int64,
            device=A.device if isinstance(A, Tensor) else None,
        )
    links = values >= _otsu(above, bins)
    np.fill_diagonal(links, False)
    if join:
        np.fill_diagonal(values, -1)
        alone = np.flatnonzero(~links.any(1))
        links[alone, values[alone].argmax(1)] = True
    labels = components(links)
    return labels.to(A.device) if isinstance(A, Tensor) else labels


def otsu_threshold(A: Tensor | np.ndarray, bins: int | None = 256) -> float:
    """The τ of `otsu_components`, in the units of A (K, K), K >= 2: pairs with A_ab >= τ are linked."""
    _, above, low, high = _pairs(A)
    if low == high:
        raise ValueError(f"A has {len(above)} pairs, all alike: nothing to cut")
    return float(low + (high - low) * _otsu(above, bins))


def _pairs(A: Tensor | np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """A (K, K) in units of its least and largest pair, the values above its diagonal, and the two; alike if equal."""
    values = _affinity(A, "A")
    upper = np.triu(np.ones(values.shape, dtype=bool), 1)
    low, high = (
        (values[upper].min(), values[upper].max()) if upper.any() else (0.0, 0.0)
    )
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        return values, values[upper], low, low
    values = (values - low) / (high - low)  # Otsu's cut is the same on every scale
    return values, values[upper], low, high


def _otsu(values: np.ndarray, bins: int | None) -> float:
    """The least value, or bin edge, of the strong among values in [0, 1]."""
    from skimage.filters import threshold_otsu

    if bins is None:  # every value is a bin; Otsu names the last of the weak
        centres, counts = np.unique(values, return_counts=True)
        return float(
            centres[
                np.searchsorted(
                    centres, threshold_otsu(hist=(counts, centres)), side="right"
                )
            ]
        )
    if bins < 2:
        raise ValueError(
            f"bins={bins}: Otsu cuts between bins, so give 2 or more, or None"
        )
    counts, edges = np.histogram(values, bins, range=(0, 1))
    return float(
        threshold_otsu(hist=(counts, edges[1:]))
    )  # bins named by their upper edges: then weak < τ <= strong


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

    ``"kmeans"`` (which is told k) and ``"meanshift"`` take row i of D as the features of client i: clients are alike if
    they are as far from everybody. ``"hdbscan"`` takes distances, and what it calls ``noise`` is dealt with as in
    `hdbscan`. ``"affinity"`` propagation wants similarities, -D; ``swapped`` hands it the distances as OCFL's released
    code does, so that the farthest clients are its best examples.
    """
    _check_choice(
        "clusterer", clusterer, ("kmeans", "affinity", "meanshift", "hdbscan")
    )
    if len(_affinity(D, "D")) == 1:
        return _named(np.zeros(1), D)
    if clusterer == "kmeans":
        return weighted_kmeans(D, np.ones(len(D)), min(k, len(D)), seed)
    if clusterer == "affinity":
        return affinity_propagation(D if swapped else -D, seed)
    return mean_shift(D) if clusterer == "meanshift" else hdbscan(D, noise=noise)


def affinity_propagation(S: Tensor | np.ndarray, seed: int = 0) -> Tensor:
    """Let clients of similarity S (K, K) choose examples among themselves (Frey and Dueck 2007): (K,) labels.

    How many examples there are follows from the median of S, which is what a client must be worth to become one. All
    share one cluster if the messages do not settle, or if all similarities are equal.
    """
    from sklearn.cluster import AffinityPropagation

    A = _affinity(S, "S")
    if len(A) == 1 or np.ptp(A[~np.eye(len(A), dtype=bool)]) == 0:
        return _named(np.zeros(len(A)), S)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # scikit-learn warns when nothing settles, and calls all clients -1
        return _named(
            AffinityPropagation(affinity="precomputed", random_state=seed).fit_predict(
                A
            ),
            S,
        )


def mean_shift(x: Tensor | np.ndarray) -> Tensor:
    """Move each row (K, D) uphill to a peak of their density; who meets is a cluster (Comaniciu and Meer 2002).

    The bandwidth is scikit-learn's guess, the mean distance to the farthest of the nearest 30 %. These count the
    row itself: below seven rows it would be alone and the guess 0, so at least one more is taken.
    """
    from sklearn.cluster import MeanShift, estimate_bandwidth

    rows = _fold(_float64(x))
    width = estimate_bandwidth(rows, quantile=max(0.3, min(1.0, 2 / len(rows))))
    width = max(width, 1e-9 * np.ptp(rows))  # rows that are equal but for rounding
    return _named(MeanShift(bandwidth=width or None).fit_predict(rows), x)


def hdbscan(
    D: Tensor | np.ndarray, smallest: int | None = None, noise: str = "nearest"
) -> Tensor:
    """Find the dense groups that last longest as a distance threshold on D (K, K) sinks: HDBSCAN, (K,) labels.

    No group has fewer than ``smallest`` clients, a fifth of K by default as in OCFL, but at least 2. Clients in no
    group, the ``noise``, join the group that is ``"nearest"`` on average, or form one cluster ``"together"`` (which is
    what becomes of the label -1 in OCFL's released code), or stay ``"alone"``. Without any group all are one cluster.
    """
    from sklearn.cluster import HDBSCAN

    _check_choice("noise", noise, ("nearest", "together", "alone"))
    A = _affinity(D, "D")
    smallest = smallest or max(2, round(len(A) / 5))
    if len(A) < smallest:
        return _named(np.zeros(len(A)), D)
    found = HDBSCAN(
        min_cluster_size=smallest, metric="precomputed", copy=True
    ).fit_predict(A)
    lost, groups = found < 0, range(found.max() + 1)
    if noise == "nearest" and groups:
        found[lost] = np.argmin(
            [A[lost][:, found == c].mean(1) for c in groups], axis=0
        )
    if noise == "alone" and groups:
        found[lost] = len(groups) + np.arange(lost.sum())
    return _named(found, D)


def agglomerative(
    D: Tensor | np.ndarray, threshold: float, linkage: str = "average"
) -> Tensor:
    """Merge the nearest two clusters until they are ``threshold`` or more apart: distances (K, K) to (K,) labels.

    How far two clusters are apart: the ``"average"``, largest (``"complete"``) or least (``"single"``) distance of
    their members.
    """
    from sklearn.cluster import AgglomerativeClustering

    _check_choice("linkage", linkage, ("average", "complete", "single"))
    A = _affinity(D, "D")
    if len(A) == 1:
        return _named(np.zeros(1), D)
    options = {
        "metric": "precomputed",
        "linkage": linkage,
        "distance_threshold": threshold,
    }
    return _named(AgglomerativeClustering(None, **options).fit_predict(A), D)


def _named(found: np.ndarray, like: Tensor | np.ndarray) -> Tensor:
    """Labels as this module gives them."""
    return relabel(
        torch.as_tensor(
            found,
            dtype=torch.int64,
            device=like.device if isinstance(like, Tensor) else None,
        )
    )


def _eigenmaps(W: np.ndarray, n: int) -> np.ndarray:
    """Spectral coordinates (K, n): the n least eigenvectors u of I - D^-½ W D^-½, as D^-½ u; the first is constant."""
    from scipy.linalg import LinAlgError, eigh

    W = W - np.diag(W.diagonal())  # a graph's Laplacian knows no loops
    scale = 1 / np.sqrt(np.where(W.sum(1) > 0, W.sum(1), 1))
    K, M = len(W), W * scale * scale[:, None]  # D^-½ W D^-½
    try:
        u = eigh(M, subset_by_index=(K - n, K - 1))[1]  # ascending
    except LinAlgError:  # LAPACK's way to some eigenvectors can fail where many eigenvalues nearly coincide
        u = eigh(M, driver="ev")[1][:, K - n :]
    return u[:, ::-1] * scale[:, None]


def _davies_bouldin(x: np.ndarray, labels: np.ndarray) -> float:
    """Davies-Bouldin score (FedGWC, Eq. 42); infinite if two centroids coincide.

    scikit-learn takes coinciding centroids for perfect clusters, and is slow for few
    rows.
    """
    clusters = [x[labels == c] for c in range(labels.max() + 1)]
    centres = np.stack([own.mean(0) for own in clusters])
    radii = [
        np.linalg.norm(own - centre, axis=1).mean()
        for own, centre in zip(clusters, centres, strict=True)
    ]
    spread = np.array(radii)
    distance = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(distance, math.inf)
    if distance.min() <= 1e-8:
        return math.inf
    return float(((spread[:, None] + spread) / distance).max(1).mean())


def _assign(maps: np.ndarray, n: int, seed: int, assign: str) -> np.ndarray:
    """Labels (K,) from n spectral coordinates (K, n)."""
    if assign == "cluster_qr":
        from scipy.linalg import polar, qr

        pivots = qr(maps.T, mode="r", pivoting=True)[1][
            :n
        ]  # n clients that point in the most different directions
        return np.abs(maps @ polar(maps[pivots].T)[0]).argmax(
            1
        )  # turned so that each has an axis to itself
    if assign == "ng":
        length = np.linalg.norm(maps, axis=1, keepdims=True)
        maps = maps / np.where(length > 0, length, 1)
    return weighted_kmeans(maps, np.ones(len(maps)), n, seed).numpy()


def _affinity(W: Tensor | np.ndarray, name: str = "W") -> np.ndarray:
    """A symmetric matrix of finite numbers, in float64."""
    A = _float64(W)
    if (
        A.ndim != 2
        or A.shape[0] != A.shape[1]
        or not np.isfinite(A).all()
        or not np.allclose(A, A.T)
    ):
        raise ValueError(
            f"{name} has shape {A.shape}: give one finite number for each pair, the same both ways"
        )
    return A


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r}: choose from {', '.join(choices)}")


def _float64(x: Tensor | np.ndarray) -> np.ndarray:
    return np.asarray(
        x.detach().cpu().double() if isinstance(x, Tensor) else x, dtype=np.float64
    )


def _fold(rows: np.ndarray) -> np.ndarray:
    """The same points in K, not D, dimensions: k-means needs distances only, and the Gram matrix has them."""
    if rows.shape[1] <= len(rows):
        return rows
    x = rows - rows.mean(0)  # (K, D)
    size, axes = np.linalg.eigh(
        x @ x.T
    )  # x xᵀ = V diag(λ) Vᵀ = z zᵀ with z = V diag(√λ)
    return axes * np.sqrt(size.clip(0))  # (K, K)


def _check(rows: np.ndarray, weights: np.ndarray, k: int) -> None:
    if rows.ndim != 2 or weights.shape != rows.shape[:1]:
        raise ValueError(
            f"x {rows.shape} and weights {weights.shape} do not match: give (K, D) and (K,)"
        )
    if not 1 <= k <= len(rows):
        raise ValueError(
            f"k={k} clusters of {len(rows)} rows: k must lie in 1..{len(rows)}"
        )
    bad = np.flatnonzero(~np.isfinite(rows).all(1))
    if len(bad):
        raise ValueError(
            f"row {bad[0]} of x has NaN or infinite values: that client has diverged"
        )
    if not (np.isfinite(weights) & (weights >= 0)).all() or weights.sum() == 0:
        least, total = weights.min(), weights.sum()
        raise ValueError(
            f"weights (least {least}, sum {total}) must be finite, >= 0, and not all zero"
        )
