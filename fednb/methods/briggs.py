"""FL+HC: Briggs, Fan, Andras, *Federated learning with hierarchical clustering of local updates to improve training on
non-IID data*, IJCNN 2020; called BCL in the OCFL paper.

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
from ..clustering import agglomerative
from ..params import mean_by
from ..similarity import cosine, cosine_distance, sqdist
from .ocfl import displacement


class State(NamedTuple):
    """One model until the split, then one for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


@dataclass(frozen=True)
class BriggsHC:
    """FedAvg for a given number of rounds; then merge clients whose updates are near, and FedAvg in each cluster.

    All clients train in the round of the split, whatever ``sampled`` says, and their updates are averaged within the
    new clusters in that same round. ``as_released`` is the baseline in the code of OCFL's authors, which hands the
    clustering cosine *similarities* as if they were distances: the least alike are merged first, and where all are
    alike nobody is. The threshold lies on the scale of the metric.
    """

    warmup: int = 20
    threshold: float = 0.4  # OCFL's authors tried cosine distances from 0.05 to 0.4
    metric: str = "cosine"  # or "euclidean", "manhattan"
    linkage: str = "average"  # or "complete", "single"
    sampled: int | float = 1.0
    update: str = "parameters"  # or the whole "state", see OCFL
    aggregation: str = "samples"  # or "equal"
    swapped: bool = False  # similarities for distances

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
        code = {"update": "state", "aggregation": "equal", "swapped": True}
        return cls(warmup, threshold, **code | changes)

    @classmethod
    def corrected(cls, **changes: Any) -> BriggsHC:
        """The same as a plain call."""
        return cls(**changes)

    def init(self, fed) -> State:
        """Initialise w_0."""
        return State(fed.start(), torch.zeros_like(fed.n))

    def step(self, state: State, fed, t: int) -> State:
        """Run one round: before the split, at it, or after it."""
        theta, labels = state
        now = t == self.warmup
        S = fed.sample(1.0 if now else self.sampled)
        before = theta[labels[S]]
        up = fed.train(before, S)  # w_k <- ClientUpdate(k, w)
        if now:
            D = self.distances(
                displacement(fed, before, up, self.update)
            )  # of Δw_k = w_k - w
            labels = agglomerative(
                D, self.threshold, self.linkage
            )  # HierarchicalClustering(Δw, P)
            theta = theta.repeat(int(labels.max()) + 1, 1)  # each cluster starts from w
        weights = fed.n[S] if self.aggregation == "samples" else torch.ones_like(S)
        return State(
            mean_by(up.theta, weights, labels[S], old=theta), labels
        )  # w_c <- Σ n_k / n_c w_k

    def distances(self, delta: Tensor) -> Tensor:
        """All pairs of updates (K, d): what is handed to the clustering, (K, K)."""
        if self.metric == "cosine":
            return cosine(delta) if self.swapped else cosine_distance(delta)
        return (
            sqdist(delta).sqrt()
            if self.metric == "euclidean"
            else torch.cdist(delta, delta, p=1)
        )
