"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, *Federated optimization in
heterogeneous networks*, MLSys 2020 (Algorithm 2).

| paper | here |
|---|---|
| w^t | theta[0] |
| μ | mu |
| h_k(w; w^t) = F_k(w) + μ/2 ‖w − w^t‖² | the gradient g + mu (th − w) |
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import checks
from ..door import Fed
from ..params import mean
from .fedavg import FedAvg, State


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients are pulled back to the model that they received.

    μ = 0 is FedAvg.
    """

    mu: float = 0.1  # μ, pull back to the received model; 0: FedAvg

    def __post_init__(self) -> None:
        checks.fields(self, sampled=checks.sampled, mu=checks.number(least=0))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 2."""
        w = state.theta[0]
        clients = fed.sample(self.sampled)  # server selects S_t
        # w_k <- argmin h_k(w; w^t), inexactly
        update = fed.train(w, clients, correct=lambda g, th: g + self.mu * (th - w))
        # server aggregates the w_k
        w_new = mean(update.theta, fed.n[clients])
        return State(w_new[None], state.labels)
