"""CFL-GP: Kim, Kim, de Veciana, *Clustered federated learning via gradient-based
partitioning*, ICML 2024 (Algorithm 1).

| paper | here |
|---|---|
| C clients, K models θ_k | fed.K, theta (clusters, D) |
| P, clustering period | period |
| T_cl, number of cluster updates | updates |
| g_c, gradient features | G[c] (clusters, d): client c's moves of each model |
| β_t, moving average | 1, ½, ⅓, … at the n-th time that a model is asked about |

A gradient is what local training does to a model, in d of its parameters. Every
``period`` rounds one model in turn, the criterion, is trained by all clients, and the
features are clustered by k-means in their ``clusters`` leading singular directions.
That the models take turns is our reading of the paper; the rest is in its abstract, its
algorithm's inputs and its code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..clustering import (
    DENSE,
    keep_names,
    leading_eigenvectors,
    weighted_kmeans,
)
from ..door import Fed
from ..params import mean_by


class State(NamedTuple):
    """A model for each cluster, and the clients' gradient features."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)
    G: Tensor  # (K, C, d)
    asked: Tensor  # (K, C) how often a client was asked about a model
    columns: Tensor  # (d,) the parameters in the features


@dataclass(frozen=True)
class CFLGP:
    """Group clients that would move the models in the same directions, remembered over
    many rounds.

    ``as_released``: in the released code the criterion is always the first model, but
    what a client records for it is how it moves the model of its own cluster.
    """

    revision: ClassVar[int] = 2  # 2: the order of clients does not matter to k-means

    clusters: int = 5  # how many clusters k-means looks for
    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    period: int = 1  # rounds between two clusterings, P
    updates: int = 50  # clusters are final after so many clusterings, T_cl
    # d: parameters of a model that are compared, drawn at random; the authors': one in
    # 100
    features: int = 4096
    # the model that all clients train to be compared: each in turn, "cycle"; or "own":
    # that of their cluster, as released
    criterion: str = "cycle"

    def __post_init__(self) -> None:
        checks.fields(
            self,
            clusters=checks.integer(1),
            sampled=checks.sampled,
            period=checks.integer(1),
            updates=checks.integer(0),
            features=checks.integer(1),
            criterion=checks.choice("cycle", "own"),
        )

    @classmethod
    def as_released(cls, **changes: Any) -> CFLGP:
        """The authors' code, as to the criterion."""
        return cls(**{"criterion": "own"} | changes)

    @classmethod
    def corrected(cls, **changes: Any) -> CFLGP:
        """The same as a plain call, and as printed."""
        return cls(**changes)

    def init(self, fed: Fed) -> State:
        """Models differ; all clients begin with the first; features are zero."""
        theta = fed.start(self.clusters)
        draw = torch.Generator().manual_seed(fed.draw())
        order = torch.randperm(fed.layout.P, generator=draw)
        columns = order[: self.features].sort().values.to(theta.device)
        G = theta.new_zeros(fed.K, self.clusters, len(columns))
        asked = torch.zeros_like(G[:, :, 0])
        return State(theta, torch.zeros_like(fed.n), G, asked, columns)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta, labels, G, asked, columns = state
        clients = fed.sample(self.sampled)
        before = theta[labels[clients]]
        trained = fed.train(before, clients).theta  # the model of one's cluster
        updates_so_far = t // self.period
        if t % self.period == 0 and updates_so_far < self.updates:
            move = (trained - before)[:, columns]
            if self.criterion == "cycle":  # the criterion is model c
                c = updates_so_far % len(theta)
                move = self.moves_of(c, fed, state, clients, move)
            else:  # as released: recorded as if for the first model
                c = 0
            G = G.clone()
            asked = asked.clone()
            asked[clients, c] += 1
            # g_c <- (1 − β) g_c + β gradient, with β = 1 / asked
            G[clients, c] += (move - G[clients, c]) / asked[clients, c, None]
            # cluster the features g_c
            labels = self.partition(G, labels, fed.draw())
        # average within clusters
        theta = mean_by(trained, fed.n[clients], labels[clients], old=theta)
        return State(theta, labels, G, asked, columns)

    def moves_of(
        self, c: int, fed: Fed, state: State, clients: Tensor, move: Tensor
    ) -> Tensor:  # (n, d)
        """How the clients move model c: those of other clusters train it, too.

        ``move`` (n, d) is how they moved the models of their own clusters.
        """
        others = state.labels[clients] != c
        if not others.any():
            return move
        trained = fed.train(state.theta[c], clients[others], slot=1).theta
        change = (trained - state.theta[c])[:, state.columns]
        return move.index_copy(0, others.nonzero()[:, 0], change)

    def partition(self, G: Tensor, old: Tensor, seed: int) -> Tensor:  # (K,)
        """Cluster the features G (K, C, d); most clients keep their ``old`` label (K,).

        k-means draws its first centres by row number. So clients are sorted first, by
        the length of their features, and their numbers do not matter.
        """
        x = G.flatten(1).double()  # (K, C d)
        order = x.norm(dim=1).argsort(stable=True)
        x = x[order]
        # the leading singular directions, by way of the Gram matrix
        if len(x) > DENSE:
            gram = (x @ x.T).cpu().numpy()
            values, vectors = leading_eigenvectors(gram, self.clusters)
            size, axes = x.new_tensor(values), x.new_tensor(vectors)
        else:
            size, axes = torch.linalg.eigh(x @ x.T)
        leading = (axes * size.clamp_min(0).sqrt())[:, -self.clusters :]
        clusters = min(self.clusters, len(x))
        found = weighted_kmeans(leading, torch.ones_like(x[:, 0]), clusters, seed)
        named = keep_names(found, old[order], self.clusters)
        return torch.empty_like(old).index_copy(0, order, named)
