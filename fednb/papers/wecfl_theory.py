"""Section 6 of WeCFL in numbers: both objectives after each of a round's steps, and the bounds of its theorems.

| paper | here |
|---|---|
| F after the E, M and local step | F_E, F_M, F_L; F_0 is that of the round before |
| R after the same steps | R_E, R_M, R_L |
| U, B, β, σ² | U, B, beta, 0: a step sees all of a client's data |
| Q, η | Q, eta |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..clustering import kmeans_objective, weighted_kmeans
from ..federation import Federation
from ..params import mean_by
from ..similarity import clusterability, sqdist


def trace(
    fed: Federation,
    clusters: int,
    rounds: int,
    *,
    Q: int = 5,
    eta: float = 0.1,
    factor: float | None = None,
    U: float | None = None,
) -> list[dict[str, Any]]:
    """Run Algorithm 1 with whole gradients and look at it after every step of every round; one dict per round.

    With ``factor`` the learning rate is that of Theorem 6.2, η_i = factor · ‖ω_i - Ω_k‖ / (Q U), different for each
    client and round: at most 1 obeys the bound, more breaks it. Without, it is ``eta`` for all. Give a federation in
    float64, for inequalities hold only as far as numbers do.
    """
    if (factor is None) != (U is None):
        raise ValueError("trace: give factor and U together, or neither")
    lam = fed.n.to(fed.start().dtype)  # (K,)
    step = torch.full_like(lam, eta)
    omega, losses, _ = descend(
        fed, fed.start().repeat(fed.K, 1), step, Q
    )  # before it nobody has a model to cluster
    labels = weighted_kmeans(omega, lam, clusters, fed.draw())
    Omega = mean_by(omega, lam, labels, old=omega[:clusters])  # (C, D)
    lines = []
    for t in range(1, rounds + 1):
        line = {
            "round": t,
            "R_E": average(losses[-1], lam),
        }  # Eq. 42: the E step moves no model
        line["F_0"] = kmeans_objective(omega, lam, labels, Omega)
        labels = sqdist(omega, Omega).argmin(1)  # Expectation
        line["F_E"] = kmeans_objective(omega, lam, labels, Omega)
        Omega = mean_by(omega, lam, labels, old=Omega)  # Maximization
        line["F_M"] = kmeans_objective(omega, lam, labels, Omega)
        if factor is not None:
            step = (
                factor * (omega - Omega[labels]).norm(dim=1) / (Q * U)
            )  # (K,) Theorem 6.2
        omega, losses, g = descend(
            fed, Omega[labels], step, Q
        )  # Distribution, Local update
        line["F_L"] = kmeans_objective(omega, lam, labels, Omega)
        line["R_M"], line["R_L"] = average(losses[0], lam), average(losses[-1], lam)
        line["B"] = torch.stack([clusterability(q, lam, labels) for q in g]).amax(
            0
        )  # (C,) Eq. 5, at its worst
        line["U"] = g.norm(dim=2).max()
        line["squared_gradient"] = average(
            g.pow(2).sum(2).mean(0), lam
        )  # one term of Eq. 10's mean over t
        line["eta"], line["labels"] = step.mean(), labels
        lines.append(
            {
                name: v.tolist() if isinstance(v, Tensor) else v
                for name, v in line.items()
            }
        )
    return lines


def descend(
    fed: Federation, rows: Tensor, step: Tensor, Q: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Q gradient steps of client i with learning rate step[i] -> rows (K, D), losses (Q + 1, K), gradients (Q, K, D).

    One step at a time, so that each gradient can be seen: a step of learning rate one is the gradient.
    """
    gradients, losses = [], []
    for q in range(Q + 1):
        up = fed.train(rows, steps=1, batch_size=None, lr=1.0, momentum=0.0)
        losses.append(up.losses[:, 0])
        if q < Q:
            gradients.append(rows - up.theta)  # (K, D)
            rows = rows - step[:, None] * gradients[-1]
    return rows, torch.stack(losses), torch.stack(gradients)


def average(values: Tensor, lam: Tensor) -> Tensor:
    """Σ λ_i v_i / Σ λ_i."""
    return (lam * values).sum() / lam.sum()


def smoothness(x: np.ndarray) -> float:
    """β of softmax regression on inputs (N, d): half the largest eigenvalue of the mean of (x, 1)(x, 1)ᵀ (Eq. 7)."""
    flat = np.column_stack([np.reshape(x, (len(x), -1)).astype(float), np.ones(len(x))])
    return float(np.linalg.eigvalsh(flat.T @ flat / len(flat))[-1] / 2)


def rate_bound(
    T: np.ndarray, delta: float, Q: int, eta: float, beta: float, B: float, U: float
) -> np.ndarray:
    """The ε that Eq. 9 promises after T rounds: (Δ / (Q T) + η B U²) / (η - β η² / 2), with σ² = 0.

    Only the first term falls like 1/T; the second is a floor that no training passes, unless B = 0.
    """
    gain = eta - beta * eta**2 / 2
    if gain <= 0:
        raise ValueError(
            f"eta = {eta} is not below 2 / beta = {2 / beta:.3g}: the descent lemma promises nothing"
        )
    return (delta / (Q * np.asarray(T, dtype=float)) + eta * B * U**2) / gain
