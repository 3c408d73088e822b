"""FL+HC: Briggs, Fan, Andras, *Federated learning with hierarchical clustering of
local updates to improve training on non-IID data*, IJCNN 2020; called BCL in the OCFL
paper.

| paper | here |
|---|---|
| n, rounds before clustering | warmup |
| P, distance threshold | threshold |
| L1, L2, cosine; linkage | metric, linkage |
| Δw_k | displacement: what client k's training changed |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..clustering import agglomerative, num_clusters
from ..door import Fed
from ..params import mean_by
from ..similarity import cosine, cosine_distance, sqdist
from .ocfl import displacement
from .wecfl import importance


class State(NamedTuple):
    """One model until the split, then one for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


@dataclass(frozen=True)
class BriggsHC:
    """FedAvg in a warm-up; then merge clients whose updates are near, and FedAvg in
    each cluster.

    All clients train in the round of the split, whatever ``sampled`` says, and their
    updates are averaged within the new clusters in that same round. ``as_released`` is
    the baseline in the code of OCFL's authors. It gives the clustering cosine
    *similarities* where distances are expected: the least alike are merged first, and
    clients that are all alike are not merged at all.
    """

    warmup: int = 20  # warm-up: no split in these first rounds
    # clients nearer than this distance are merged; OCFL's authors tried cosine
    # distances from 0.05 to 0.4
    threshold: float = 0.4
    # distance between two updates: "cosine", "euclidean" or "manhattan"
    metric: str = "cosine"
    # distance between two groups: the "average" one, the largest ("complete") or the
    # smallest ("single")
    linkage: str = "average"
    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # what is compared: how the "parameters" moved; or the whole "state", with
    # BatchNorm's statistics and batch counters
    update: str = "parameters"
    # how much a client counts in its cluster's average: by "samples", or all "equal"
    aggregation: str = "samples"
    # released code: similarities are clustered as if they were distances
    swapped: bool = False

    def __post_init__(self) -> None:
        checks.fields(
            self,
            warmup=checks.integer(0),
            threshold=checks.number(least=0),
            metric=checks.choice("cosine", "euclidean", "manhattan"),
            linkage=checks.choice("average", "complete", "single"),
            sampled=checks.sampled,
            update=checks.choice("parameters", "state"),
            aggregation=checks.choice("samples", "equal"),
            swapped=checks.flag,
        )
        if self.swapped and self.metric != "cosine":
            raise ValueError(
                f"BriggsHC(metric={self.metric!r}, swapped=True): "
                "only the cosine has a similarity"
            )

    @classmethod
    def as_released(
        cls, warmup: int = 20, threshold: float = 0.05, **changes: Any
    ) -> BriggsHC:
        """The code of OCFL's authors, at the least of their thresholds."""
        released: dict[str, Any] = {
            "update": "state",
            "aggregation": "equal",
            "swapped": True,
        }
        return cls(warmup, threshold, **released | changes)

    @classmethod
    def corrected(cls, **changes: Any) -> BriggsHC:
        """The same as a plain call."""
        return cls(**changes)

    def init(self, fed: Fed) -> State:
        """Initialise w_0."""
        return State(fed.start(), torch.zeros_like(fed.n))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round: before the split, at it, or after it."""
        theta = state.theta
        labels = state.labels
        split_now = t == self.warmup
        clients = fed.sample(self.sampled_in(t))
        before = theta[labels[clients]]
        update = fed.train(before, clients)  # w_k <- ClientUpdate(k, w)
        if split_now:
            delta = displacement(fed, before, update, self.update)  # Δw_k = w_k - w
            # HierarchicalClustering(Δw, P)
            labels = agglomerative(self.distances(delta), self.threshold, self.linkage)
            theta = theta.repeat(num_clusters(labels), 1)  # each cluster starts from w
        # w_c <- Σ n_k / n_c w_k
        weights = importance(fed, self.aggregation)[clients]
        theta = mean_by(update.theta, weights, labels[clients], old=theta)
        return State(theta, labels)

    def sampled_in(self, t: int) -> int | float:
        """How many clients train in round t: all in the round of the split."""
        if t == self.warmup:
            return 1.0
        return self.sampled

    def distances(self, delta: Tensor) -> Tensor:  # (K, K)
        """Distances of all pairs of updates (K, d); similarities if ``swapped``."""
        if self.swapped:
            return cosine(delta)
        if self.metric == "cosine":
            return cosine_distance(delta)
        if self.metric == "euclidean":
            return sqdist(delta).sqrt()
        return torch.cdist(delta, delta, p=1)
