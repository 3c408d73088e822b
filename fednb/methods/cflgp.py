"""CFL-GP: Kim, Kim, de Veciana, *Clustered federated learning via gradient-based partitioning*, ICML 2024
(Algorithm 1).

| paper | here |
|---|---|
| C clients, K models θ_k | fed.K, theta (clusters, D) |
| P, clustering period | period |
| T_cl, number of cluster updates | updates |
| g_c, gradient features | G[c] (clusters, d): how client c would move each model, in d of its parameters |
| β_t, moving average | 1, ½, ⅓, … at the first, second, third time that a model is asked about |

A gradient is what local training does to a model. Every ``period`` rounds one model in turn, the criterion, is trained
by all clients, and the features are clustered by k-means in their ``clusters`` leading singular directions. That the
models take turns is our reading of the paper; the rest is in its abstract, its algorithm's inputs and its code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..clustering import keep_names, weighted_kmeans
from ..params import mean_by


class State(NamedTuple):
    """A model for each cluster, and the clients' gradient features."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)
    G: Tensor  # (K, C, d)
    asked: Tensor  # (K, C) how often a client was asked about a model
    columns: Tensor  # (d,) parameters that count


@dataclass(frozen=True)
class CFLGP:
    """Group clients that would move the models in the same directions, remembered over many rounds.

    In the released code the criterion is the first model for ever, and what a client notes down in its place is how
    it moves the model of its own cluster: ``as_released``.
    """

    clusters: int = 5
    sampled: int | float = 1.0
    period: int = 1
    updates: int = 50  # clusters are final after so many
    features: int = 4096  # d: parameters drawn at random; the authors' option takes one in a hundred
    criterion: str = "cycle"  # the models in turn; or "own": the first model's place, filled with the client's own

    def __post_init__(self) -> None:
        if min(self.clusters, self.period, self.features) < 1 or self.criterion not in (
            "cycle",
            "own",
        ):
            raise ValueError(
                f"{self!r}: need clusters, period, features >= 1 and criterion 'cycle' or 'own'"
            )

    @classmethod
    def as_released(cls, **changes) -> CFLGP:
        """The authors' code, as to the criterion."""
        return cls(**{"criterion": "own"} | changes)

    @classmethod
    def corrected(cls, **changes) -> CFLGP:
        """The same as a plain call, and as printed."""
        return cls(**changes)

    def init(self, fed) -> State:
        """Models differ; all clients begin with the first; features are zero."""
        theta, P = fed.start(self.clusters), fed.layout.P
        draw = torch.Generator().manual_seed(fed.draw())
        columns = (
            torch.randperm(P, generator=draw)[: self.features]
            .sort()
            .values.to(theta.device)
        )
        G = theta.new_zeros(fed.K, self.clusters, len(columns))
        return State(
            theta, torch.zeros_like(fed.n), G, torch.zeros_like(G[:, :, 0]), columns
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta, labels, G, asked, columns = state
        S = fed.sample(self.sampled)
        up = fed.train(theta[labels[S]], S)  # clients train the model of their cluster
        if t % self.period == 0 and t // self.period < self.updates:
            c = (t // self.period) % len(theta) if self.criterion == "cycle" else 0
            move = (up.theta - theta[labels[S]])[:, columns]
            if (
                self.criterion == "cycle"
            ):  # the others train the criterion too; their cluster's model is another
                others = labels[S] != c
                if others.any():
                    there = fed.train(theta[c], S[others], slot=1).theta
                    move = move.index_copy(
                        0, others.nonzero()[:, 0], (there - theta[c])[:, columns]
                    )
            G, asked = G.clone(), asked.clone()
            asked[S, c] += 1
            G[S, c] += (move - G[S, c]) / asked[
                S, c, None
            ]  # g_c <- (1 − β) g_c + β gradient
            labels = self.partition(G, labels, fed.draw())
        return State(
            mean_by(up.theta, fed.n[S], labels[S], old=theta), labels, G, asked, columns
        )

    def partition(self, G: Tensor, old: Tensor, seed: int) -> Tensor:  # (K,)
        """Cluster the features, and name the clusters so that most clients keep theirs."""
        x = G.flatten(1).double()  # (K, C d)
        size, axes = torch.linalg.eigh(
            x @ x.T
        )  # the leading singular directions, by way of the Gram matrix
        leading = (axes * size.clamp_min(0).sqrt())[:, -self.clusters :]
        found = weighted_kmeans(
            leading, torch.ones_like(size), min(self.clusters, len(x)), seed
        )
        return keep_names(found, old, self.clusters)
