"""FixedClusters: FedAvg within given clusters. The control for every clustered method.

With the hidden truth as labels it is the oracle; with random labels it shows the effect
of merely having several models. One cluster for all is FedAvg; one for each client is
LocalOnly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import checks
from ..clustering import num_clusters
from ..door import Fed
from ..params import mean_by


class State(NamedTuple):
    """A model for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


@dataclass(frozen=True)
class FixedClusters:
    """Average within the given clusters, numbered 0, 1, ..., C − 1."""

    labels: Sequence[int] | np.ndarray  # (K,) the number of each client's cluster
    sampled: int | float = 1.0  # clients per round: a number, or a fraction

    def __post_init__(self) -> None:
        checks.fields(self, sampled=checks.sampled)
        labels = tuple(np.asarray(self.labels).tolist())
        for label in labels:
            checks.argument("FixedClusters", "label", label, checks.integer(0))
        if not labels or set(labels) != set(range(max(labels) + 1)):
            raise ValueError(
                "FixedClusters: labels must use every number 0, 1, ..., C - 1; "
                "see clustering.relabel"
            )
        # a tuple can be hashed, and its repr shows all labels
        object.__setattr__(self, "labels", labels)

    @classmethod
    def random(
        cls, sizes: Sequence[int], seed: int = 0, sampled: int | float = 1.0
    ) -> FixedClusters:
        """Clusters of the given sizes whose members are drawn at random."""
        for size in sizes:
            checks.argument("FixedClusters.random", "size", size, checks.integer(1))
        checks.argument("FixedClusters.random", "seed", seed, checks.seed)
        labels = np.repeat(np.arange(len(sizes)), sizes)
        return cls(np.random.default_rng(seed).permutation(labels), sampled)

    def init(self, fed: Fed) -> State:
        """All clusters start from the same model."""
        if len(self.labels) != fed.K:
            raise ValueError(
                f"FixedClusters: {len(self.labels)} labels for {fed.K} clients"
            )
        labels = torch.tensor(self.labels, device=fed.n.device)
        return State(fed.start().repeat(num_clusters(labels), 1), labels)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Average the sampled clients of each cluster."""
        theta, labels = state
        clients = fed.sample(self.sampled)
        trained = fed.train(theta[labels[clients]], clients).theta
        theta = mean_by(trained, fed.n[clients], labels[clients], old=theta)
        return State(theta, labels)
