"""IFCA: Ghosh, Chung, Yin, Ramchandran, *An efficient framework for clustered federated learning*, NeurIPS 2020
(Algorithm 1, model averaging). HypCluster, in Mansour, Mohri, Ro, Suresh, *Three approaches for personalization with
applications to federated learning*, arXiv:2002.10619, 2020, is the same alternation seen from the clients.

| paper | here |
|---|---|
| θ_j, j = 1 … k | theta[j], clusters |
| M_t | S |
| ĵ = argmin_j F_i(θ_j) | labels[i] |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..params import mean_by


class State(NamedTuple):
    """A model for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


@dataclass(frozen=True)
class IFCA:
    """Every client picks the model with the least loss on its own data, trains it, and clusters average.

    With given models the choice is exact: no other choice has a lower Eq. 1a of the WeCFL paper. HypCluster reads it
    as k hypotheses, each client served by its best. A cluster that nobody picks keeps its model and may never be picked
    again: the outcome hangs on the initial models, which therefore differ.

    ``as_released`` is the baseline in the public code of WeCFL's authors. There a cluster's clients hold one network
    object and train it one after the other; and each cluster's model is stored as the *same* server object, so after
    the first round all clusters are the one that was averaged last.
    """

    clusters: int = 5
    sampled: int | float = 1.0
    aliased: bool = False  # as_released

    def __post_init__(self) -> None:
        if self.clusters < 1:
            raise ValueError(f"IFCA(clusters={self.clusters}): need at least one")

    @classmethod
    def as_released(cls, clusters: int = 5) -> IFCA:
        """Cluster models and client models that are names of one object."""
        return cls(clusters, aliased=True)

    @classmethod
    def corrected(cls, clusters: int = 5) -> IFCA:
        """The same as a plain call, and as printed by Ghosh et al."""
        return cls(clusters)

    def init(self, fed) -> State:
        """Initialise θ_1, …, θ_k, all different."""
        return State(fed.start(self.clusters), torch.zeros_like(fed.n))

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta, labels = state
        S = fed.sample(self.sampled)  # M_t <- random subset of clients
        labels = labels.index_copy(
            0, S, choose(fed, theta, S)
        )  # broadcast all θ_j; ĵ = argmin_j F_i(θ_j)
        if self.aliased:
            return State(in_turn(fed, theta, labels, S), labels)
        up = fed.train(theta[labels[S]], S)  # θ_i <- LocalUpdate(θ_ĵ)
        return State(
            mean_by(up.theta, fed.n[S], labels[S], old=theta), labels
        )  # average within clusters


def choose(fed, theta: Tensor, clients: Tensor) -> Tensor:  # (n,)
    """For each client the row with the least loss on its training data; the first of equals."""
    if bool((theta == theta[0]).all()):  # aliased models need one look, not k
        return torch.zeros_like(clients)
    return fed.loss(theta, clients).argmin(1)


def in_turn(fed, theta: Tensor, labels: Tensor, clients: Tensor) -> Tensor:  # (C, D)
    """Train each cluster's one object client after client; then every cluster is the one averaged last."""
    theta = theta.clone()
    for i in clients.tolist():
        theta[labels[i]] = fed.train(theta[labels[i]], torch.tensor([i])).theta[0]
    return theta[labels[clients].max()].repeat(len(theta), 1)
