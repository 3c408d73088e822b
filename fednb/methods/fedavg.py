"""FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, *Communication-efficient
learning of deep networks from decentralized data*, AISTATS 2017.

| paper | here |
|---|---|
| w | theta[0] |
| C, fraction of clients | sampled |
| S_t | clients |
| w_k | trained[k] |
| n_k | fed.n |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed
from ..params import mean


class State(NamedTuple):
    """One model for all."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros


@dataclass(frozen=True)
class FedAvg:
    """Average the clients' models, weighted by their numbers of samples."""

    sampled: int | float = 1.0  # clients per round: a number, or a fraction

    def __post_init__(self) -> None:
        checks.fields(self, sampled=checks.sampled)

    def init(self, fed: Fed) -> State:
        """Initialise w_0."""
        return State(fed.start(), torch.zeros_like(fed.n))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        clients = fed.sample(self.sampled)  # S_t <- random set of clients
        # w_k <- ClientUpdate(k, w_t), in parallel
        trained = fed.train(state.theta[0], clients).theta
        w = mean(trained, fed.n[clients])  # w_{t+1} <- sum_k n_k / m_t w_k
        return State(w[None], state.labels)
