"""Who belongs together: a matrix in, one label per row out.

Labels are a torch int64 vector (K,) on the input's device. They are named 0, 1, ... in the order in which the
clusters first appear, so two clusterings with the same members are equal as vectors.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def relabel(labels: Tensor | np.ndarray) -> Tensor:
    """Rename clusters 0..C-1 in order of first appearance: (K,) -> (K,) int64.

    Methods that split clusters leave gaps and arbitrary names behind; afterwards `theta[labels]` fits again.
    Members do not change. A noise label such as -1 becomes a cluster like any other.
    """
    labels = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(f"labels has shape {tuple(labels.shape)}, {labels.dtype}: give K integers")
    names, code = labels.long().unique(return_inverse=True)  # (C,), (K,)
    place = torch.arange(len(labels), device=labels.device)
    first = torch.full((len(names),), len(labels), device=labels.device)
    first = first.scatter_reduce(0, code, place, "amin")  # (C,) where each cluster is met first
    return first.argsort().argsort()[code]


def weighted_kmeans(
    x: Tensor | np.ndarray, weights: Tensor | np.ndarray, k: int, seed: int, n_init: int = 10
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
    k = min(k, len({row.tobytes() for row in rows[w > 0] + 0.0}))  # + 0.0, for -0.0 equals 0.0
    with threadpool_limits(1):  # threads add in any order, and a last digit can move a client
        found = KMeans(k, n_init=n_init, random_state=seed, tol=0).fit(_fold(rows), sample_weight=w).labels_
    return relabel(torch.as_tensor(found, dtype=torch.int64, device=device))


def _float64(x: Tensor | np.ndarray) -> np.ndarray:
    return np.asarray(x.detach().cpu().double() if isinstance(x, Tensor) else x, dtype=np.float64)


def _fold(rows: np.ndarray) -> np.ndarray:
    """The same points in K, not D, dimensions: k-means needs distances only, and the Gram matrix has them."""
    if rows.shape[1] <= len(rows):
        return rows
    x = rows - rows.mean(0)  # (K, D)
    size, axes = np.linalg.eigh(x @ x.T)  # x xᵀ = V diag(λ) Vᵀ = z zᵀ with z = V diag(√λ)
    return axes * np.sqrt(size.clip(0))  # (K, K)


def _check(rows: np.ndarray, weights: np.ndarray, k: int) -> None:
    if rows.ndim != 2 or weights.shape != rows.shape[:1]:
        raise ValueError(f"x {rows.shape} and weights {weights.shape} do not match: give (K, D) and (K,)")
    if not 1 <= k <= len(rows):
        raise ValueError(f"k={k} clusters of {len(rows)} rows: k must lie in 1..{len(rows)}")
    bad = np.flatnonzero(~np.isfinite(rows).all(1))
    if len(bad):
        raise ValueError(f"row {bad[0]} of x has NaN or infinite values: that client has diverged")
    if not (np.isfinite(weights) & (weights >= 0)).all() or weights.sum() == 0:
        least, total = weights.min(), weights.sum()
        raise ValueError(f"weights (least {least}, sum {total}) must be finite, >= 0, and not all zero")
