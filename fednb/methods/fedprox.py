"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, *Federated optimization in heterogeneous networks*,
MLSys 2020 (Algorithm 2).

| paper | here |
|---|---|
| w^t | theta[0] |
| μ | mu |
| h_k(w; w^t) = F_k(w) + μ/2 ‖w − w^t‖² | the correction g + mu (th − w) of each gradient |
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import checks
from ..params import mean
from .fedavg import FedAvg, State


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients are pulled back to the model they received; μ = 0 is FedAvg."""

    mu: float = 0.1

    def __post_init__(self) -> None:
        checks.fields(self, sampled=checks.sampled, mu=checks.number(least=0))

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 2."""
        w = state.theta[0]
        S = fed.sample(self.sampled)  # server selects S_t
        up = fed.train(
            w, S, correct=lambda g, th: g + self.mu * (th - w)
        )  # argmin h_k(w; w^t), inexactly
        return State(mean(up.theta, fed.n[S])[None], state.labels)
