"""Ensemble: FedAvg+ and FedProx+, baselines of WeCFL (section 7.2). K independent runs
vote.

| paper | here |
|---|---|
| K trainings | members |
| λ of FedProx | mu |
| soft voting | votes: every member has one vote at every client |

The paper's code averages the members' logits; here their probabilities are averaged,
which is what soft voting means.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed
from ..params import mean


class State(NamedTuple):
    """The members, and how much each counts at each client."""

    theta: Tensor  # (M, D)
    labels: Tensor  # (K,) zeros: all clients are in one cluster
    votes: Tensor  # (K, M) ones


@dataclass(frozen=True)
class Ensemble:
    """Train FedAvg (``mu=0``) or FedProx several times from different first models; all
    clients are served by the soft vote.

    The control for "several models": as many as a clustered method has, and as many
    times the training, but no clusters. One member is FedAvg, or FedProx.
    """

    members: int = 5  # how many models are trained and vote
    mu: float = 0.0  # pull of FedProx back to the received model; 0: FedAvg
    sampled: int | float = 1.0  # clients per round: a number, or a fraction

    def __post_init__(self) -> None:
        checks.fields(
            self,
            members=checks.integer(1),
            mu=checks.number(least=0),
            sampled=checks.sampled,
        )

    def init(self, fed: Fed) -> State:
        """Initialise every member differently."""
        return State(
            theta=fed.start(self.members),
            labels=torch.zeros_like(fed.n),
            votes=torch.ones(fed.K, self.members, device=fed.n.device),
        )

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of each member, with clients and batches of its own."""
        rows = []
        for j, w in enumerate(state.theta):
            clients = fed.sample(self.sampled)
            pull = None
            if self.mu > 0:
                pull = partial(proximal, w=w, mu=self.mu)
            trained = fed.train(w, clients, correct=pull, slot=j).theta
            rows.append(mean(trained, fed.n[clients]))
        return state._replace(theta=torch.stack(rows))


def proximal(g: Tensor, th: Tensor, w: Tensor, mu: float) -> Tensor:
    """FedProx's gradient: g with a pull from the row th back to w."""
    return g + mu * (th - w)
