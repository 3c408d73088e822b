"""LocalOnly: no federation at all, every client trains by itself.

The control that belongs beside every gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed


class State(NamedTuple):
    """A model for each client."""

    theta: Tensor  # (K, D)
    labels: Tensor  # (K,) 0, 1, ..., K - 1


@dataclass(frozen=True)
class LocalOnly:
    """Every client keeps its own model; nothing is shared."""

    sampled: int | float = 1.0  # clients that train in a round: a number, or a fraction

    def __post_init__(self) -> None:
        checks.fields(self, sampled=checks.sampled)

    def init(self, fed: Fed) -> State:
        """All clients start from the same model."""
        labels = torch.arange(fed.K, device=fed.n.device)
        return State(fed.start().repeat(fed.K, 1), labels)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Train the sampled clients on; nothing is sent."""
        clients = fed.sample(self.sampled)
        trained = fed.train(state.theta[clients], clients, travels=False).theta
        theta = state.theta.index_copy(0, clients, trained)
        return State(theta, state.labels)
