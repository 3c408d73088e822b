"""A toy for OCFL's temperature: two clusters with quadratic losses, where it falls and
then rises for a reason.

Client i wants to be at its cluster's goal: its loss is ½ (θ − μ_i)ᵀ H (θ − μ_i), with
one diagonal H for all. E gradient steps of size η move it by Δ_i = R (μ_i − θ) with R =
I − (I − ηH)^E, and FedAvg moves θ by the mean of the Δ_i. So all that matters is under
which angle φ the model *sees* the two goals, in the metric R. With two clusters of
equal size and no noise, every pair across has the cosine distance 1 − cos φ, every pair
within 0, and (Definition 7, p = 2)

    T = √(n / (2 (n − 1))) (1 − cos φ) / 2.

The goals stand one above the other, and the model starts below and to the side. It is
quick along the first axis, so it slides under them until one hides behind the other: φ
shrinks. Then it climbs past the lower goal and sees them on opposite sides: φ opens.
That is the fall and the rise. A model that starts between the goals sees only the rise.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...clustering import by_distance
from ...methods.ocfl import temperature
from ...metrics import adjusted_rand
from ...similarity import cosine_distance
from .arms import CORRECTED


class Round(NamedTuple):
    """One round of the toy."""

    theta: Tensor  # (d,) the model that all clients receive
    delta: Tensor  # (n, d) what they send back


def goals(separation: float, clients: int = 12, dim: int = 40) -> Tensor:  # (n, d)
    """The clients' goals, on the second axis.

    Half of them are ``separation`` above the origin, half are as far below it.
    """
    mu = torch.zeros(clients, dim, dtype=torch.float64)
    mu[: clients // 2, 1] = separation
    mu[clients // 2 :, 1] = -separation
    return mu


def simulate(
    mu: Tensor,
    start: tuple[float, float] = (0.5, -3.0),
    curvature: tuple[float, float] = (0.2, 0.05),
    lr: float = 0.5,
    steps: int = 8,
    noise: float = 0.0,
    rounds: int = 14,
    seed: int = 0,
) -> list[Round]:
    """Run FedAvg on the quadratics, from (start, 0, ..., 0).

    All axes after the second have the second's curvature. Every gradient has Gaussian
    noise of length about ``noise``.
    """
    n, d = mu.shape
    rng = np.random.default_rng(seed)
    theta = torch.zeros(d, dtype=mu.dtype)
    theta[0], theta[1] = start
    H = torch.full((d,), curvature[1], dtype=mu.dtype)
    H[0] = curvature[0]
    history = []
    for _ in range(rounds):
        rows = theta.repeat(n, 1)
        for _ in range(steps):
            stir = torch.as_tensor(rng.normal(size=(n, d))) * noise / math.sqrt(d)
            rows = rows - lr * (H * (rows - mu) + stir)
        history.append(Round(theta, rows - theta))
        theta = rows.mean(0)
    return history


def angle_of_sight(theta: Tensor, a: Tensor, b: Tensor, pull: Tensor) -> float:
    """The angle φ between R (a − θ) and R (b − θ), for a diagonal R (d,)."""
    x = pull * (a - theta)
    y = pull * (b - theta)
    return math.acos(float(torch.clamp(x @ y / (x.norm() * y.norm()), -1, 1)))


def pull(
    curvature: tuple[float, float], lr: float, steps: int, dim: int
) -> Tensor:  # (d,)
    """The diagonal of R = I − (I − ηH)^E."""
    H = torch.full((dim,), curvature[1], dtype=torch.float64)
    H[0] = curvature[0]
    return 1 - (1 - lr * H) ** steps


def two_cluster_temperature(angle: float, clients: int) -> float:
    """T of two equal clusters whose members agree, seen under an angle."""
    return math.sqrt(clients / (2 * (clients - 1))) * (1 - math.cos(angle)) / 2


@cache
def outcomes(
    separation: float, steps: int, noise: float, rounds: int = 8
) -> tuple[list[float], dict[str, list[float]]]:
    """The toy's temperature and the ARI of each clusterer, in every round."""
    history = simulate(goals(separation), steps=steps, noise=noise, rounds=rounds)
    Gammas = [cosine_distance(r.delta) for r in history]
    true = np.repeat([0, 1], len(Gammas[0]) // 2)
    scores = {}
    for name, clusterer in CORRECTED.items():
        scores[name] = [
            adjusted_rand(true, by_distance(Gamma, clusterer, k=2).numpy())
            for Gamma in Gammas
        ]
    return [float(temperature(Gamma)) for Gamma in Gammas], scores
