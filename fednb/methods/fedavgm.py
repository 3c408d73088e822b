"""FedAvgM: Hsu, Qi, Brown, *Measuring the effects of non-identical data distribution
for federated visual classification*, arXiv:1909.06335, 2019.

| paper | here |
|---|---|
| w | theta[0] |
| Δw | delta |
| v | v |
| β | beta |
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
    """One model for all, and the server's momentum."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    v: Tensor  # (P,)


@dataclass(frozen=True)
class FedAvgM:
    """FedAvg with momentum at the server.

    BatchNorm statistics are averaged without momentum.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    beta: float = 0.9  # momentum: share of the last step that is kept
    # how far the server goes along the mean update; 1: all the way
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            beta=checks.number(least=0, below=1),
            server_lr=checks.number(above=0),
        )

    def init(self, fed: Fed) -> State:
        """Start with no momentum."""
        theta = fed.start()
        return State(theta, torch.zeros_like(fed.n), theta.new_zeros(fed.layout.P))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round."""
        w = state.theta[0]
        P = fed.layout.P  # columns of the parameters
        clients = fed.sample(self.sampled)
        trained = fed.train(w, clients).theta
        w_bar = mean(trained, fed.n[clients])
        delta = (w - w_bar)[:P]  # Δw <- sum_k n_k / n Δw_k
        v = self.beta * state.v + delta  # v <- β v + Δw
        w = torch.cat([w[:P] - self.server_lr * v, w_bar[P:]])  # w <- w - v
        return State(w[None], state.labels, v)
