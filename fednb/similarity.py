"""How alike clients are: rows in, one number for each pair out.

A client is a row (a flat model, an update, a loss curve), so all pairs at once are one matrix product, the
Gram matrix x xᵀ. The loops that the papers print are in `fednb.reference`.

Each function takes a torch tensor or a numpy array (K, D) and returns a tensor on the same device, computed
in the rows' own float type; half precision becomes float32 and integers become float64.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def _rows(x: Tensor | np.ndarray, name: str = "x") -> tuple[Tensor, Tensor]:
    """Rows (K, D), at least float32, and the largest magnitude in each, (K, 1)."""
    x = x if isinstance(x, Tensor) else torch.from_numpy(np.array(x, order="C"))
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: give one row per client, (K, D)")
    x = x.to(torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.float64)
    peak = torch.linalg.vector_norm(x, ord=math.inf, dim=1, keepdim=True)
    bad = (~peak.isfinite()).flatten().nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"row {bad[0]} of {name} has NaN or infinite values: that client has diverged")
    return x, peak


def cosine(x: Tensor | np.ndarray) -> Tensor:
    """Cosine similarity of all pairs of rows, ⟨x_i, x_j⟩ / (‖x_i‖ ‖x_j‖): (K, D) -> (K, K) in [-1, 1].

    OCFL, Definition 4. The diagonal is exactly 1. A zero row points nowhere: its cosine is 0 with every other
    row, other zero rows too, and 1 with itself, so that a client never seems far from itself.
    """
    x, peak = _rows(x)
    x = x / peak.masked_fill(peak == 0, 1)  # a cosine knows no length, so squares need not over- or underflow
    gram = x @ x.T  # (K, K)
    norm = gram.diagonal().sqrt()
    norm = norm.masked_fill(norm == 0, 1)
    cos = (gram / norm[:, None] / norm).clamp(-1, 1)
    return ((cos + cos.T) / 2).fill_diagonal_(1)


def cosine_distance(x: Tensor | np.ndarray) -> Tensor:
    """One minus `cosine`: (K, D) -> (K, K) in [0, 2], zero on the diagonal. OCFL, Definition 5."""
    return 1 - cosine(x)


def sqdist(x: Tensor | np.ndarray, y: Tensor | np.ndarray | None = None) -> Tensor:
    """Squared Euclidean distances ‖x_i - y_j‖² = ‖x_i‖² + ‖y_j‖² - 2⟨x_i, y_j⟩: (K, D), (M, D) -> (K, M).

    Never negative. Without `y` the rows of `x` meet each other, and the diagonal is exactly 0. The sum loses
    digits when rows lie close together and far from the origin, as clients' models do. Shifting all rows by
    one vector changes no distance, so the mean of `x` is subtracted first; the error that is left is about
    the float type's precision times the largest squared distance from that mean.
    """
    a, _ = _rows(x)
    b = a if y is None else _rows(y, "y")[0]
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"rows of x have {a.shape[1]} entries, rows of y have {b.shape[1]}: they must agree")
    dtype, mean = torch.promote_types(a.dtype, b.dtype), a.mean(0)
    a = (a - mean).to(dtype)
    b = a if y is None else (b - mean).to(dtype)
    d = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * (a @ b.T)).clamp_min(0)  # (K, M)
    if not d.isfinite().all():
        raise ValueError(f"squared distances overflow {dtype}: pass float64 rows, or scale them down")
    return d if y is not None else ((d + d.T) / 2).fill_diagonal_(0)


def rbf(x: Tensor | np.ndarray, gamma: float) -> Tensor:
    """Gaussian affinity exp(-γ ‖x_i - x_j‖²): (K, D) -> (K, K) in [0, 1], exactly 1 on the diagonal.

    The kernel of FedGWC, Eq. 4, where γ is called β. Large γ: only near neighbours are alike.
    """
    if not 0 < gamma < math.inf:
        raise ValueError(f"gamma={gamma}: give a finite number > 0")
    return (-gamma * sqdist(x)).exp()
