"""FedSoft: Ruan, Joe-Wong, *FedSoft: soft clustered federated learning with proximal
local updating*, AAAI 2022 (Algorithm 1).

| paper | here |
|---|---|
| w_k, the personal model | theta[k], which serves client k |
| S cluster models c_s | theta[K:] |
| u_ks, share of client k's samples that c_s fits best | u[k, s], rows sum to one |
| v_sk = u_ks n_k / Σ_k u_ks n_k | weights of the average |
| h_k = f_k + λ/2 Σ_s u_ks ‖w − c_s‖² | the correction g + lam (th − Σ_s u_ks c_s) |
| λ, τ, σ | lam, every, smoother |

What differs from the paper, or from its experiments:

- The paper draws the clients of each cluster by v_s and averages them equally. Here all
  methods meet the same uniformly drawn clients, and the average is weighted by v_s,
  which aims at the same mean. With all clients in every round there is no difference.
- λ belongs to the local training. The authors have 0.1, and 0.01 on CIFAR-10, with
  hundreds of steps of Adam, which end where the pull and the gradient balance. In five
  steps of SGD at lr = 0.1, λ = 0.1 pulls a model by 1 − (1 − lr λ)⁵ = 5 % of its way to
  the mixture, so FedSoft stays close to LocalOnly. A stronger pull does not help in
  short runs: the first mixture is one of random networks, and later ones lag behind
  (λ = 1 is worse in GCFL's table ``tuning``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed
from ..params import mean


class State(NamedTuple):
    """A model for each client, then the cluster models."""

    theta: Tensor  # (K + C, D)
    labels: Tensor  # (K,) 0, 1, …, K − 1
    u: Tensor  # (K, C)


@dataclass(frozen=True)
class FedSoft:
    """Train one personal model per client, pulled towards a mixture of cluster models.

    A client is served by its personal model. Each cluster model is a weighted mean of
    the personal models.
    """

    revision: ClassVar[int] = 2  # 2: u counts samples; it was a softmax of mean losses

    clusters: int = 5  # how many cluster models are mixed
    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # λ, pull of a personal model towards its mixture; stable for lr · lam < 2
    lam: float = 0.1
    every: int = 2  # rounds between two estimates of u, the shares of the mixture
    smoother: float = 1e-4  # the least share u of a cluster model in a mixture

    def __post_init__(self) -> None:
        checks.fields(
            self,
            clusters=checks.integer(1),
            sampled=checks.sampled,
            lam=checks.number(least=0),
            every=checks.integer(1),
            smoother=checks.number(above=0, most=1),
        )

    def init(self, fed: Fed) -> State:
        """Cluster models differ; all clients start from the first."""
        c = fed.start(self.clusters)
        personal = c[:1].expand(fed.K, -1)
        labels = torch.arange(fed.K, device=fed.n.device)
        u = c.new_full((fed.K, len(c)), 1 / len(c))
        return State(torch.cat([personal, c]), labels, u)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        w = state.theta[: fed.K]
        c = state.theta[fed.K :]
        u = state.u
        if t % self.every == 0:  # if t mod τ = 0: all clients estimate u_ks
            u = self.importance(fed.best_share(c))
        clients = fed.sample(self.sampled)
        # w_k <- argmin h_k, inexactly
        trained = self.train(fed, w[clients], clients, u[clients] @ c)
        # c_s <- Σ_k v_sk w_k
        v = u[clients] * fed.n[clients, None]  # (n, C)
        c = torch.stack([mean(trained, v_s) for v_s in v.T])
        w = w.index_copy(0, clients, trained)
        return State(torch.cat([w, c]), state.labels, u)

    def train(self, fed: Fed, w: Tensor, clients: Tensor, mixture: Tensor) -> Tensor:
        """w_k <- argmin h_k, inexactly; the rows ``mixture`` (n, D) are Σ_s u_ks c_s.

        With Σ_s u_ks = 1 the gradient of λ/2 Σ_s u_ks ‖w − c_s‖² is λ (w − mixture).
        """
        if self.lam == 0:
            return fed.train(w, clients).theta
        return fed.train(
            w,
            clients,
            correct=lambda g, th, centre: g + self.lam * (th - centre),
            args=(mixture,),
        ).theta

    def importance(self, shares: Tensor) -> Tensor:  # (K, C)
        """Turn the shares (K, C) of samples that each cluster fits best into u.

        No share is below σ, so that no cluster is without clients.
        """
        u = shares.clamp_min(self.smoother)
        return u / u.sum(1, keepdim=True)
