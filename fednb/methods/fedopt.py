"""FedOpt: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, *Adaptive
federated optimization*, ICLR 2021 (Algorithm 2).

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
from ..door import Fed
from ..params import mean


class State(NamedTuple):
    """One model for all, and the server's two moments."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    m: Tensor  # (P,)
    v: Tensor  # (P,)


@dataclass(frozen=True)
class FedOpt:
    """FedAvg whose server takes an Adam or Yogi step.

    BatchNorm statistics are averaged as in FedAvg.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    rule: str = "adam"  # the server's optimiser: "adam" or "yogi"
    server_lr: float = 0.01  # η, length of the server's steps
    beta1: float = 0.9  # share of the mean update of earlier rounds that is kept
    beta2: float = 0.99  # share of the squared updates of earlier rounds that is kept
    # added to the root of the squares: the larger, the closer to FedAvgM
    tau: float = 1e-3

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

    def init(self, fed: Fed) -> State:
        """Initialise x_0 and v_{-1} = τ²."""
        theta = fed.start()
        m = theta.new_zeros(fed.layout.P)
        v = torch.full_like(m, self.tau**2)
        return State(theta, torch.zeros_like(fed.n), m, v)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 2."""
        x = state.theta[0]
        P = fed.layout.P  # columns of the parameters
        clients = fed.sample(self.sampled)
        trained = fed.train(x, clients).theta
        x_bar = mean(trained, fed.n[clients])
        delta = (x_bar - x)[:P]  # Δ_t
        m = self.beta1 * state.m + (1 - self.beta1) * delta  # m_t
        if self.rule == "adam":  # v_t, FedAdam
            v = self.beta2 * state.v + (1 - self.beta2) * delta**2
        else:  # v_t, FedYogi
            v = state.v - (1 - self.beta2) * delta**2 * torch.sign(state.v - delta**2)
        # x_{t+1} = x_t + η m_t / (√v_t + τ)
        parameters = x[:P] + self.server_lr * m / (v.sqrt() + self.tau)
        x = torch.cat([parameters, x_bar[P:]])
        return State(x[None], state.labels, m, v)
