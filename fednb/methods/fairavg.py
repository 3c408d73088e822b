"""FairAvg: FedAvg with equal votes. Michieli and Ozay, *Are all users treated fairly in federated learning systems?*,
CVPR Workshops 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..params import mean
from .fedavg import FedAvg, State


@dataclass(frozen=True)
class FairAvg(FedAvg):
    """Average the clients' models with equal weights, whatever their sizes."""

    def step(self, state: State, fed, t: int) -> State:
        """Run one round."""
        S = fed.sample(self.sampled)
        up = fed.train(state.theta[0], S)
        return State(mean(up.theta)[None], state.labels)  # 1 / |S| for each
