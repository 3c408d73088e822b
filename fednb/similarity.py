"""How alike clients are: rows in, one number for each pair out.

A client is a row (a flat model, an update, a loss curve), so all pairs at once are one
matrix product, the Gram matrix x xᵀ. The loops that the papers print are in
`fednb.reference`.

Each function takes a torch tensor or a numpy array (K, D) and returns a tensor on the
same device, computed in the rows' own float type; half precision becomes float32 and
integers become float64.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from . import checks

POSITIVE = checks.number(above=0)
NOT_NEGATIVE = checks.number(least=0)
BLOCK = 2000  # rows whose inner products are computed at once


def _rows(x: Tensor | np.ndarray, name: str = "x") -> tuple[Tensor, Tensor]:
    """Rows (K, D), at least float32, and the largest magnitude in each, (K, 1)."""
    if not isinstance(x, Tensor):
        x = torch.from_numpy(np.array(checks.array("similarity", name, x), order="C"))
    if x.ndim != 2 or x.shape[1] == 0 or x.is_complex():
        raise ValueError(
            f"{name} has shape {tuple(x.shape)} and type {x.dtype}: give one row of "
            "real numbers per client, (K, D)"
        )
    dtype = torch.float64
    if x.is_floating_point():
        dtype = torch.promote_types(x.dtype, torch.float32)
    x = x.to(dtype)
    peak = torch.linalg.vector_norm(x, ord=math.inf, dim=1, keepdim=True)
    bad = (~peak.isfinite()).flatten().nonzero().flatten().tolist()
    if bad:
        raise ValueError(
            f"row {bad[0]} of {name} has NaN or infinite values: that client has "
            "diverged"
        )
    return x, peak


def _no_overflow(pairs: Tensor, what: str) -> Tensor:
    """Return the pairs (K, K) as they are; raise if one is too large for its type."""
    if not bool(pairs.isfinite().all()):
        raise ValueError(
            f"{what} overflow {pairs.dtype}: pass float64 rows, or scale them down"
        )
    return pairs


def inner_products(x: Tensor) -> Tensor:
    """The Gram matrix x xᵀ: (K, D) -> (K, K).

    For many rows in blocks, each pair of blocks once: half the products.
    """
    if len(x) <= BLOCK:
        return x @ x.T
    gram = x.new_empty(len(x), len(x))
    for i in range(0, len(x), BLOCK):
        j = i + BLOCK
        torch.mm(x[i:j], x[i:].T, out=gram[i:j, i:])
        gram[j:, i:j] = gram[i:j, j:].T
    return gram


def cosine(x: Tensor | np.ndarray) -> Tensor:
    """Cosine similarity of all pairs of rows: (K, D) -> (K, K) in [-1, 1].

    ⟨x_i, x_j⟩ / (‖x_i‖ ‖x_j‖). OCFL, Definition 4. The diagonal is exactly 1. A row of
    zeros has no direction: its cosine is 1 with itself and 0 with every other row, even
    with another row of zeros.
    """
    x, peak = _rows(x)
    # a cosine does not depend on lengths: rescaled rows do not over- or underflow
    x = x / peak.masked_fill(peak == 0, 1)
    gram = inner_products(x)
    norm = gram.diagonal().sqrt()
    norm = norm.masked_fill(norm == 0, 1)
    cos = (gram / norm[:, None] / norm).clamp(-1, 1)
    return ((cos + cos.T) / 2).fill_diagonal_(1)


def cosine_distance(x: Tensor | np.ndarray) -> Tensor:
    """One minus `cosine`: (K, D) -> (K, K) in [0, 2].

    Zero on the diagonal. OCFL, Definition 5.
    """
    return 1 - cosine(x)


def sqdist(x: Tensor | np.ndarray, y: Tensor | np.ndarray | None = None) -> Tensor:
    """Squared Euclidean distances: (K, D), (M, D) -> (K, M).

    ‖x_i - y_j‖² = ‖x_i‖² + ‖y_j‖² - 2⟨x_i, y_j⟩, never negative. Without `y` the rows
    of `x` are compared with each other, and the diagonal is exactly 0.

    The sum loses digits if rows lie close together and far from the origin, as clients'
    models do. Shifting all rows by one vector changes no distance, so the mean of `x`
    is subtracted first. The remaining error is about the float type's precision times
    the largest squared distance from that mean.
    """
    a, _ = _rows(x)
    b = a
    if y is not None:
        b, _ = _rows(y, "y")
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"rows of x have {a.shape[1]} entries, rows of y have {b.shape[1]}: they "
            "must agree"
        )
    dtype = torch.promote_types(a.dtype, b.dtype)
    mean = a.mean(0)
    a = (a - mean).to(dtype)
    if y is None:
        b = a
    else:
        b = (b - mean).to(dtype)
    d = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * (a @ b.T)  # (K, M)
    d = _no_overflow(d.clamp_min(0), "squared distances")
    if y is None:
        return ((d + d.T) / 2).fill_diagonal_(0)
    return d


def rbf(x: Tensor | np.ndarray, gamma: float) -> Tensor:
    """Gaussian affinity exp(-γ ‖x_i - x_j‖²): (K, D) -> (K, K) in [0, 1].

    Exactly 1 on the diagonal. The kernel of FedGWC, Eq. 4, where γ is called β. Large
    γ: only near neighbours are alike.
    """
    checks.argument("rbf", "gamma", gamma, POSITIVE)
    return (-gamma * sqdist(x)).exp()


def homophily(theta: Tensor | np.ndarray, gamma: float) -> Tensor:
    """Social influence (FedCVR-Bolt, Eq. 4): (K, D) -> (K, K).

    W_kj = exp(-γ ‖θ_k - θ_j‖²) / Σ_m exp(-γ ‖θ_k - θ_m‖²) is the influence of client j
    on client k: `rbf` with each row divided by its sum. Rows sum to one, and W is not
    symmetric. With γ = 0 all influences are equal; with a large γ each client is
    influenced by itself only. W is the random walk on the graph of `rbf`, and has the
    eigenvectors from which normalised spectral clustering of that graph starts.
    """
    checks.argument("homophily", "gamma", gamma, NOT_NEGATIVE)
    return (-gamma * sqdist(theta)).softmax(1)


def laplacian(x: Tensor | np.ndarray, gamma: float) -> Tensor:
    """Laplacian kernel exp(-γ ‖x_i - x_j‖_1): (K, D) -> (K, K) in [0, 1].

    FedCVR-Bolt, appendix B.1.
    """
    checks.argument("laplacian", "gamma", gamma, POSITIVE)
    x, _ = _rows(x)
    return (-gamma * torch.cdist(x, x, p=1)).exp()


def sigmoid(x: Tensor | np.ndarray, gamma: float, c: float = 0.0) -> Tensor:
    """Sigmoid kernel tanh(γ ⟨x_i, x_j⟩ + c): (K, D) -> (K, K) in [-1, 1].

    FedCVR-Bolt, appendix B.1.
    """
    checks.argument("sigmoid", "gamma", gamma, checks.number())
    checks.argument("sigmoid", "c", c, checks.number())
    x, _ = _rows(x)
    gram = _no_overflow(x @ x.T, "inner products")
    return (gamma * (gram + gram.T) / 2 + c).tanh()


def perception_affinity(P: Tensor | np.ndarray, beta: float) -> Tensor:
    """FedGWC's affinity (Eq. 4): interaction matrix (K, K) -> (K, K) in [0, 1].

    W_kj = exp(-β ‖v_k^j - v_j^k‖²). v_k^j is row k of P without its entries k and j:
    how the others perceive client k. Rows k and j lose the same two columns, so this
    distance is the squared distance of whole rows without two terms, (P_kk - P_jk)² and
    (P_kj - P_jj)². One matrix product gives all pairs. The diagonal of P does not
    matter; that of W is exactly 1.
    """
    checks.argument("perception_affinity", "beta", beta, POSITIVE)
    P = _rows(P, "P")[0].detach()
    K = len(P)
    if P.shape != (K, K):
        raise ValueError(
            f"P has shape {tuple(P.shape)}: an interaction matrix is square, (K, K)"
        )
    # columns with mean 0: no distance changes, and fewer digits are lost
    Q = P.clone().fill_diagonal_(0)
    Q = Q.sub_(Q.sum(0) / max(K - 1, 1)).fill_diagonal_(0)
    # ‖q_k - q_j‖² of all pairs
    norm = Q.square().sum(1)  # (K,)
    d = inner_products(Q)
    d = d.mul_(-2).add_(norm).add_(norm[:, None])
    # without their terms in columns k and j, which are q_jk² and q_kj²
    d = d.sub_(Q.square_()).sub_(Q.T).clamp_min_(0)
    _no_overflow(d, "squared distances")
    torch.add(d, d.T, out=Q)  # exactly symmetric, whatever the rounding
    return Q.mul_(-beta / 2).exp_().fill_diagonal_(1)


def clusterability(gradients: Tensor, weights: Tensor, labels: Tensor) -> Tensor:
    """How far the gradients of a cluster are from their mean: (K, D) -> (C,).

    B_k = max_i ‖ḡ_k - ∇l_i‖ / ‖ḡ_k‖: WeCFL's Eq. 5, with ḡ_k the mean of the cluster's
    gradients, weighted by λ. 0 means that all of them are equal; at 1 one of them is as
    far from the mean as the mean is long. B is infinite if the mean is zero but not all
    gradients are. A cluster without members has 0.
    """
    gradients, _ = _rows(gradients, "gradients")
    weights = torch.as_tensor(weights, device=gradients.device)
    labels = torch.as_tensor(labels, device=gradients.device)
    _check_members(weights, labels, len(gradients))
    labels = labels.long()
    C = int(labels.max()) + 1
    member = torch.nn.functional.one_hot(labels, C).T * weights  # (C, K)
    total = member.sum(1, keepdim=True)
    if not bool((total[labels] > 0).all()):
        raise ValueError("clusterability: the weights of a cluster sum to zero")
    share = (member / total.clamp_min(1e-300)).to(gradients.dtype)
    mean = share @ gradients  # (C, D)
    distance = (mean[labels] - gradients).norm(dim=1)  # (K,)
    farthest = mean.new_zeros(C).scatter_reduce(0, labels, distance, "amax")
    length = mean.norm(dim=1)
    return torch.where(farthest > 0, farthest / length, 0.0)


def _check_members(weights: Tensor, labels: Tensor, clients: int) -> None:
    """Refuse weights and labels that are not one sound number for each client."""
    if weights.shape != (clients,) or labels.shape != (clients,) or clients == 0:
        raise ValueError(
            f"clusterability: {clients} rows, weights {tuple(weights.shape)}, labels "
            f"{tuple(labels.shape)}: give (K, D), (K,) and (K,)"
        )
    if labels.is_floating_point() or int(labels.min()) < 0:
        raise ValueError("clusterability: labels must be integers >= 0")
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("clusterability: weights must be finite and not negative")


def attraction(
    z: Tensor | np.ndarray,
    m: Tensor | np.ndarray,
    zeta: float,
    shielded: bool = True,
    normalised: bool = True,
    scale: float = 1.0,
) -> Tensor:
    """GCFL's pull between clients as bodies: (K, K), zero on the diagonal.

    Bodies have locations z (K, M) and masses m (K,). A_ab = m_a m_b / (d_ab + ζ), with
    the Euclidean distance d (Eq. 14). ``shielded`` adds the factor exp(-(d_ab / λ)²),
    where λ is ``scale`` times the median of all distances, so that distant bodies
    hardly attract each other (Eq. 15). If λ = 0, only bodies at the same place do.
    ``normalised`` divides by √(S_a S_b), where S_a is the sum of all pulls at a, so
    that heavy or central bodies do not attract all others (Eq. 16). A body without any
    pull keeps its zeros.
    """
    checks.argument("attraction", "zeta", zeta, POSITIVE)
    checks.argument("attraction", "scale", scale, POSITIVE)
    z = _rows(z, "z")[0].detach()
    m = torch.as_tensor(m, dtype=z.dtype, device=z.device)
    if m.shape != z.shape[:1] or not bool((m.isfinite() & (m >= 0)).all()):
        raise ValueError(
            f"m has shape {tuple(m.shape)}: give one finite mass >= 0 for each of the "
            f"{len(z)} rows of z"
        )
    # without the matrix product distances of equal rows are exactly 0
    d = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    A = (m[:, None] * m).div_(d + zeta)  # (K, K)
    _no_overflow(A, "attractions")
    if shielded and len(z) > 1:
        pairs = d[torch.ones_like(d, dtype=torch.bool).triu_(1)]
        lam = scale * float(np.median(pairs.cpu().numpy()))
        A.mul_(torch.where(d > 0, d / lam, 0).square_().neg_().exp_())
    A.fill_diagonal_(0)
    if normalised:
        S = A.sum(1).sqrt_()
        S.masked_fill_(S == 0, 1)
        A.div_(S[:, None] * S)
    return A


def variance_reduction(C: Tensor | np.ndarray, alpha: Tensor | np.ndarray) -> Tensor:
    """By how much knowing client k reduces the variance of αᵀθ, summed over all d.

    (D, K, K), (K,) -> (K,). FedCVR-Bolt, Eq. 5 and 6: v_k = Σ_d (C^d α)_k² / C^d_kk,
    where C^d is the covariance of the clients' d-th parameters. A client without
    variance reduces nothing: 0 / 0 is 0. Of each C^d only C^d α and the diagonal
    matter, so a running estimate keeps no more than these: see `covariance_step`.
    """
    C = torch.as_tensor(C).double()
    alpha = torch.as_tensor(alpha).double()
    if C.ndim != 3 or C.shape[1:] != (len(alpha), len(alpha)):
        raise ValueError(
            f"C has shape {tuple(C.shape)}, alpha {tuple(alpha.shape)}: give "
            "(D, K, K) and (K,)"
        )
    variances = C.diagonal(dim1=1, dim2=2).T
    sound = bool(C.isfinite().all()) and bool(alpha.isfinite().all())
    if not sound or not bool((variances >= 0).all()):
        raise ValueError(
            "variance_reduction: give finite covariances, with variances >= 0 on the "
            "diagonals"
        )
    return total_reduction((C @ alpha).T, variances)


def total_reduction(c_alpha: Tensor, c_diag: Tensor) -> Tensor:
    """`variance_reduction` from (C^d α)_k and C^d_kk alone: (K, D), (K, D) -> (K,)."""
    return (c_alpha.square() / c_diag.where(c_diag > 0, 1)).where(c_diag > 0, 0).sum(1)


def covariance_step(
    c_alpha: Tensor, c_diag: Tensor, r: Tensor, alpha: Tensor, rate: float
) -> tuple[Tensor, Tensor]:
    """One step of a running covariance, by residuals r (K, D) at a rate γ.

    FedCVR-Bolt, Eq. 11: C^d ← (1 - γ) C^d + γ r^d (r^d)ᵀ. The D matrices (K, K) are not
    stored, only what `total_reduction` needs of them: (C^d α)_k and C^d_kk, both
    (K, D), which are returned anew. The outer product times α is r^d ⟨r^d, α⟩, and its
    diagonal is r^d squared.
    """
    new_c_alpha = c_alpha.lerp(r * (alpha @ r), rate)
    new_c_diag = c_diag.lerp(r.square(), rate)
    return new_c_alpha, new_c_diag
