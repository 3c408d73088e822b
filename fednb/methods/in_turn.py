"""InTurn: FedAvg whose clients take turns. The control for methods that select clients.

A method may do better than uniform sampling just because no client waits long between
two turns. This method does that and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed, num_sampled
from ..params import mean


class State(NamedTuple):
    """One model for all, and how often each client trained."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    turns: Tensor  # (K,) number of rounds in which it trained


@dataclass(frozen=True)
class InTurn:
    """Train the clients that had the fewest turns, and average by samples.

    In a cycle every client has one turn. The order is drawn anew for every cycle, so
    that clients train together with others each time. The last round of a cycle is
    filled up with clients of the next.
    """

    revision: ClassVar[int] = 2  # 2: the order is drawn anew for every cycle

    sampled: int | float = 10  # clients per round: a number, or a fraction

    def __post_init__(self) -> None:
        checks.fields(self, sampled=checks.sampled)

    def init(self, fed: Fed) -> State:
        """No client had a turn."""
        return State(fed.start(), torch.zeros_like(fed.n), torch.zeros_like(fed.n))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round."""
        waiting = state.turns + fed.tickets()  # a ticket in [0, 1) settles ties
        first = waiting.argsort(stable=True)[: num_sampled(self.sampled, fed.K)]
        clients = first.sort().values
        trained = fed.train(state.theta[0], clients).theta
        theta = mean(trained, fed.n[clients])[None]
        turns = state.turns.index_add(0, clients, torch.ones_like(clients))
        return State(theta, state.labels, turns)
