"""FedOpt: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, *Adaptive federated optimization*,
ICLR 2021 (Algorithm 2).

| paper | here |
|---|---|
| x | theta[0] |
| Δ_t, m_t, v_t | delta, m, v |
| β1, β2, τ, η | beta1, beta2, tau, server_lr |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..params import mean


class State(NamedTuple):
    """One model for all, and the server's two moments."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    m: Tensor  # (P,)
    v: Tensor  # (P,)


@dataclass(frozen=True)
class FedOpt:
    """FedAvg whose server takes an Adam or Yogi step; BatchNorm statistics are averaged plainly."""

    sampled: int | float = 1.0
    rule: str = "adam"  # or "yogi"
    server_lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3  # adaptivity: the larger, the closer to FedAvgM

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            rule=checks.choice("adam", "yogi"),
            server_lr=checks.number(above=0),
            beta1=checks.number(least=0, below=1),
            beta2=checks.number(least=0, below=1),
            tau=checks.number(above=0),
        )

    def init(self, fed) -> State:
        """Initialise x_0 and v_{-1} = τ²."""
        theta = fed.start()
        zero = torch.zeros_like(theta[0, : fed.layout.P])
        return State(theta, torch.zeros_like(fed.n), zero, zero + self.tau**2)

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 2."""
        x, P = state.theta[0], fed.layout.P
        S = fed.sample(self.sampled)
        up = fed.train(x, S)
        x_bar = mean(up.theta, fed.n[S])
        delta = (x_bar - x)[:P]  # Δ_t
        m = self.beta1 * state.m + (1 - self.beta1) * delta  # m_t
        if self.rule == "adam":
            v = self.beta2 * state.v + (1 - self.beta2) * delta**2
        else:
            v = state.v - (1 - self.beta2) * delta**2 * torch.sign(state.v - delta**2)
        x = torch.cat(
            [x[:P] + self.server_lr * m / (v.sqrt() + self.tau), x_bar[P:]]
        )  # x_{t+1}
        return State(x[None], state.labels, m, v)
