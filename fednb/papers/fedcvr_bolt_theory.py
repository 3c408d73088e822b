"""FedCVR-Bolt looked at from outside: whom a run picks and why, what Assumption A3 asks, where Proposition A3 leads.

| paper | here |
|---|---|
| C_p(t), π_p(k; t), P_t | Round.coalitions, Round.pi, Round.picked |
| G(θ), ∇L(θ), c of Assumption A3 | what ``alignment`` compares |
| η, L, M, σ², ε of Proposition A3 | eta, 1, what ``neighbourhood`` and ``promise`` give |
"""

from __future__ import annotations

from itertools import combinations, product
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import metrics, reference
from ..data import Dataset
from ..federation import Federation
from ..methods import FedCVRBolt
from ..methods.choice import boltzmann
from ..partition import Partition
from ..similarity import total_reduction
from .fedcvr_bolt import evenness


class Round(NamedTuple):
    """What the server knew when it chose, and whom it chose."""

    theta: Tensor  # (D,) the global model that was sent out
    rows: Tensor  # (K, d) what each client sent last, as the method compares it
    coalitions: Tensor  # (K,) zeros in a warm-up that does not estimate C
    value: Tensor  # (K,) v_k, Eq. 6
    pi: Tensor  # (K,) Eq. 8
    picked: np.ndarray  # clients that trained
    waited: (
        np.ndarray
    )  # (K,) rounds since each was last seen; since the start, if never


def follow(method: FedCVRBolt, fed: Federation, rounds: int) -> list[Round]:
    """Run the method and write down each round's selection; a method without coalitions has one, and no scores."""
    state, past, last = method.init(fed), [], np.zeros(fed.K, int)
    for t in range(rounds):
        fed.t, old, visits = t, state, fed.snapshot()["visits"]
        state = method.step(old, fed, t)
        picked = np.flatnonzero(fed.snapshot()["visits"] > visits)
        scored = hasattr(old, "c_alpha")
        value = (
            total_reduction(old.c_alpha, old.c_diag)
            if scored
            else torch.zeros(fed.K).double()
        )
        coalitions = state.coalitions if scored else state.labels
        pi = boltzmann(
            value, coalitions, method.beta if scored and t >= method.warmup else 0.0
        )
        past.append(
            Round(
                old.theta[0],
                getattr(old, "seen", None),
                coalitions,
                value,
                pi,
                picked,
                t - last,
            )
        )
        last[picked] = t + 1
    return past


def habits(past: list[Round]) -> dict[str, float]:
    """What a policy does, over some rounds: whom it picks, by what it groups, and how freely it draws.

    ``by date`` is the adjusted mutual information of a client's coalition and the round in which it was last seen.
    ``free`` is the entropy of the draws from π, as a share of what uniform draws would have: 1 if the score is ignored.
    """
    visits = np.bincount(
        np.concatenate([now.picked for now in past]), minlength=len(past[0].pi)
    )
    parts, drawn, uniform = [now.coalitions.numpy() for now in past], 0.0, 0.0
    for now, part in zip(past, parts, strict=True):
        drawn += float(torch.special.entr(now.pi).sum())
        uniform += float(np.log(np.bincount(part)).sum())
    return {
        "picked had waited": float(
            np.mean([now.waited[now.picked].mean() for now in past])
        ),
        "all had waited": float(np.mean([now.waited.mean() for now in past])),
        "covered": float((visits > 0).mean()),
        "evenness": evenness(visits),
        "by date": float(
            np.mean(
                [
                    metrics.ami(now.waited, part)
                    for now, part in zip(past, parts, strict=True)
                ]
            )
        ),
        "free": drawn / uniform if uniform else 1.0,
    }


def alignment(method: FedCVRBolt, past: list[Round], fed: Federation) -> list[float]:
    """⟨G, ∇L⟩ / ‖∇L‖² in each round after the warm-up: Assumption A3 wants it above some c > 0, always.

    ∇L = Σ_k α_k ∇L_k, and G is the mean of the gradient that the selected clients give together, over the policy's
    draws; here for clients of equal size, where one of each coalition has a fixed weight. Give a federation of its own.
    """
    n, out = fed.n.double(), []
    for now in past[method.warmup :]:
        up = fed.train(now.theta, steps=1, batch_size=None, lr=1.0).theta
        each = (now.theta - up)[
            :, : fed.layout.P
        ].double()  # (K, P) all clients' gradients
        C = int(now.coalitions.max()) + 1
        size = torch.bincount(now.coalitions, n)
        share = (
            size / n.sum()
            if method.aggregation == "coalition"
            else torch.full_like(size, 1 / C)
        )
        G, true = (share[now.coalitions] * now.pi) @ each, (n / n.sum()) @ each
        out.append(float(G @ true / true.square().sum()))
    return out


def reductions(
    C: np.ndarray, alpha: np.ndarray, coalitions: np.ndarray
) -> dict[str, float]:
    """Share of the variance of αᵀθ that is gone after seeing one client for each coalition, chosen in five ways."""
    P, groups = (
        int(coalitions.max()) + 1,
        [np.flatnonzero(coalitions == p) for p in range(coalitions.max() + 1)],
    )
    v = {
        A: reference.subset_reduction(C, alpha, A)
        for A in combinations(range(len(alpha)), P)
    }
    found = {
        "best": max(v.values()),
        "greedy": reference.greedy_subset(C, alpha, P)[1],
        "Eq. 7": reference.one_per_coalition(C, alpha, coalitions.tolist())[1],
        "one each, by lot": np.mean(
            [v[tuple(sorted(A))] for A in product(*(g.tolist() for g in groups))]
        ),
        "all by lot": np.mean([*v.values()]),
    }
    return {name: float(value / (alpha @ C @ alpha)) for name, value in found.items()}


# --- Proposition A3 on clients with quadratic losses -----------------------------------------------------------------


def policy(
    z: np.ndarray, coalitions: np.ndarray, pi: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, float]:
    """Where one draw per coalition leads: mean (D,) and variance of Σ_p w_p z_{j_p}, for optima z (K, D)."""
    mean, variance = np.zeros(z.shape[1]), 0.0
    for p, w in enumerate(weights):
        own, q = z[coalitions == p], pi[coalitions == p]
        middle = q @ own
        mean, variance = (
            mean + w * middle,
            variance + w**2 * float(q @ np.square(own - middle).sum(1)),
        )
    return mean, variance


def neighbourhood(
    z: np.ndarray,
    coalitions: np.ndarray,
    pi: np.ndarray,
    weights: np.ndarray,
    eta: float,
    rounds: int,
    seed: int = 0,
) -> np.ndarray:
    """‖∇L(θ(t))‖² (rounds,) of θ ← θ - η g, where client k has the loss ½‖θ - z_k‖² and all count alike.

    g = Σ_p w_p (θ - z_{j_p}), one client j_p ~ π_p from each coalition; ∇L = θ - mean of all z_k; L = 1.
    """
    rng, goal = np.random.default_rng(seed), z.mean(0)
    members = [np.flatnonzero(coalitions == p) for p in range(len(weights))]
    theta, out = goal + 1.0, np.empty(rounds)
    for t in range(rounds):
        out[t] = np.square(theta - goal).sum()
        drawn = [
            own[np.searchsorted(np.cumsum(pi[own]), rng.random() * pi[own].sum())]
            for own in members
        ]
        theta = theta - eta * (theta - weights @ z[drawn])
    return out


# --- Table 1 ---------------------------------------------------------------------------------------------------------


def seeds_needed(
    difference: float, std: float, other: float, power: float = 0.8
) -> int:
    """Runs of each method until a difference of means stands out: n = (z_0.975 + z_power)² (σ₁² + σ₂²) / δ².

    For unpaired runs, a two-sided test at 5 %, found with probability ``power``.
    """
    from scipy.stats import norm

    z = norm.ppf(0.975) + norm.ppf(power)
    return ceil(z**2 * (std**2 + other**2) / difference**2)


def pooled(dataset: Dataset, parts: Partition) -> float:
    """Mean over clients of the test error of one linear model fitted to all training samples: what one model can do."""
    x, y = dataset.x.astype(float), dataset.y.astype(float)
    rows = np.concatenate(parts.train)
    w = np.linalg.lstsq(x[rows], y[rows], rcond=None)[0]
    return float(np.mean([np.square(x[own] @ w - y[own]).mean() for own in parts.test]))
