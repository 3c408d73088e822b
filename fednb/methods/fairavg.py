"""FairAvg: FedAvg with equal weights. Michieli and Ozay, *Are all users treated fairly
in federated learning systems?*, CVPR Workshops 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..door import Fed
from ..params import mean
from .fedavg import FedAvg, State


@dataclass(frozen=True)
class FairAvg(FedAvg):
    """Average the clients' models with equal weights, whatever their sizes."""

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round."""
        clients = fed.sample(self.sampled)
        trained = fed.train(state.theta[0], clients).theta
        w = mean(trained)  # weight 1 / |S| for each
        return State(w[None], state.labels)
