"""FedAvgM: Hsu, Qi, Brown, *Measuring the effects of non-identical data distribution for federated visual
classification*, arXiv:1909.06335, 2019.

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
from ..params import mean


class State(NamedTuple):
    """One model for all, and the server's momentum."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    v: Tensor  # (P,)


@dataclass(frozen=True)
class FedAvgM:
    """FedAvg whose server keeps momentum; BatchNorm statistics are averaged without it."""

    sampled: int | float = 1.0
    beta: float = 0.9
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            beta=checks.number(least=0, below=1),
            server_lr=checks.number(above=0),
        )

    def init(self, fed) -> State:
        """Start with no momentum."""
        theta = fed.start()
        return State(
            theta, torch.zeros_like(fed.n), torch.zeros_like(theta[0, : fed.layout.P])
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round."""
        w, P = state.theta[0], fed.layout.P
        S = fed.sample(self.sampled)
        up = fed.train(w, S)
        w_bar = mean(up.theta, fed.n[S])
        delta = (w - w_bar)[:P]  # Δw <- sum_k n_k / n Δw_k
        v = self.beta * state.v + delta  # v <- β v + Δw
        w = torch.cat([w[:P] - self.server_lr * v, w_bar[P:]])  # w <- w - v
        return State(w[None], state.labels, v)
