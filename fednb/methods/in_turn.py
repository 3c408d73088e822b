"""InTurn: FedAvg whose clients take turns. The control for methods that select clients.

A method may do better than uniform sampling just because it comes back to nobody too soon. This one does only that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..params import mean
from .choice import seats


class State(NamedTuple):
    """One model for all, and when each client last trained."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    seen: Tensor  # (K,) the round it was last seen, from 1; 0: never


@dataclass(frozen=True)
class InTurn:
    """Train the clients who have waited longest, in an order drawn anew each time, and average by samples."""

    sampled: int | float = 10  # clients per round: a number, or a fraction

    def init(self, fed) -> State:
        """Nobody was seen."""
        return State(fed.start(), torch.zeros_like(fed.n), torch.zeros_like(fed.n))

    def step(self, state: State, fed, t: int) -> State:
        """Run one round."""
        wait = (
            t - state.seen
        ).double() + fed.tickets()  # a ticket is less than a round: it settles ties
        S = wait.topk(seats(self.sampled, fed.K)).indices.sort().values
        up = fed.train(state.theta[0], S)
        return State(
            mean(up.theta, fed.n[S])[None],
            state.labels,
            state.seen.index_fill(0, S, t + 1),
        )
