"""FedSoft: Ruan, Joe-Wong, *FedSoft: soft clustered federated learning with proximal local updating*, AAAI 2022
(Algorithm 1).

| paper | here |
|---|---|
| w_k, the personal model | theta[k], which serves client k |
| S cluster models c_s | theta[K:] |
| u_ks, importance | u[k, s], rows sum to one |
| v_sk = u_ks n_k / Σ_k u_ks n_k | weights of the average |
| λ, τ, σ | lam, every, smoother |

In the paper u_ks is the share of client k's *samples* that c_s fits best. A federation tells a method mean losses
only, so here u_k is a softmax of −loss / temperature. The paper draws the clients of each cluster by v_s and averages
them equally; here all draws are uniform, and the average is weighted by v_s, which aims at the same mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..params import mean


class State(NamedTuple):
    """A model for each client, then the cluster models."""

    theta: Tensor  # (K + C, D)
    labels: Tensor  # (K,) 0, 1, …, K − 1
    u: Tensor  # (K, C)


@dataclass(frozen=True)
class FedSoft:
    """One local training per client, pulled towards a mixture of cluster models, serves client and clusters at once."""

    clusters: int = 5
    sampled: int | float = 1.0
    lam: float = 0.1  # the pull
    every: int = 2  # rounds between two estimates of u
    smoother: float = 1e-4  # the least u
    temperature: float = (
        0.1  # a loss lower by this makes a cluster e times as important
    )

    def __post_init__(self) -> None:
        if (
            self.clusters < 1
            or self.every < 1
            or not (self.lam >= 0 and self.temperature > 0 and self.smoother > 0)
        ):
            raise ValueError(
                f"{self!r}: need clusters, every >= 1, lam >= 0 and temperature, smoother > 0"
            )

    def init(self, fed) -> State:
        """Cluster models differ; all clients start from the first."""
        c = fed.start(self.clusters)
        labels = torch.arange(fed.K, device=fed.n.device)
        return State(
            torch.cat([c[:1].expand(fed.K, -1), c]),
            labels,
            c.new_full((fed.K, len(c)), 1 / len(c)),
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        w, c = state.theta[: fed.K], state.theta[fed.K :]
        u = (
            self.importance(fed.loss(c)) if t % self.every == 0 else state.u
        )  # if t mod τ = 0: estimate u_ks
        S = fed.sample(self.sampled)
        pull = (
            u[S] @ c
        )  # Σ_s u_ks c_s: with Σ_s u_ks = 1 the gradient of λ/2 Σ_s u_ks ‖w − c_s‖² is λ (w − pull)
        correct = (
            None
            if self.lam == 0
            else lambda g, th, centre: g + self.lam * (th - centre)
        )
        up = fed.train(
            w[S], S, correct=correct, args=() if self.lam == 0 else (pull,)
        )  # w_k <- argmin h_k, inexactly
        v = u[S] * fed.n[S, None]  # (n, C)
        c = torch.stack(
            [mean(up.theta, v[:, s]) for s in range(len(c))]
        )  # c_s <- Σ_k v_sk w_k
        return State(torch.cat([w.index_copy(0, S, up.theta), c]), state.labels, u)

    def importance(self, losses: Tensor) -> Tensor:  # (K, C)
        """How much each cluster matters to each client, by mean losses (K, C)."""
        u = (-losses / self.temperature).softmax(1).clamp_min(self.smoother)
        return u / u.sum(1, keepdim=True)
