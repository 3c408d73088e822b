"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, *Federated learning with
personalization layers*, arXiv:1912.00818, 2019 (Algorithms 1 and 2).

| paper | here |
|---|---|
| W_B, base layers | the columns of theta outside ``head``, the same in all rows |
| W_Pj, personalization layers | the columns ``head`` of row j |
| K_P, number of personalization layers | personal |
| γ_j, share of the samples | fed.n |
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
    """A model for each client, with a base that all share."""

    theta: Tensor  # (K, D)
    labels: Tensor  # (K,) 0, 1, …, K − 1


@dataclass(frozen=True)
class FedPer:
    """Average the base of the models; the last layers stay with their clients.

    Base and head are trained together. Without a head (``personal=0``) it is FedAvg;
    with all layers in the head it is LocalOnly. Only the base is sent.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    personal: int = 1  # so many layers, counted from the last, stay with the client

    def __post_init__(self) -> None:
        checks.fields(self, sampled=checks.sampled, personal=checks.integer(0))

    def init(self, fed: Fed) -> State:
        """All clients start from the same base and the same head."""
        labels = torch.arange(fed.K, device=fed.n.device)
        return State(fed.start().repeat(fed.K, 1), labels)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithms 1 and 2."""
        head = fed.layout.last_layers(self.personal).to(fed.n.device)  # (D,)
        clients = fed.sample(self.sampled)  # server sends W_B
        update = fed.train(  # (W_B,j, W_Pj) <- SGD on both
            state.theta[clients], clients, sent=int((~head).sum())
        )
        base = mean(update.theta, fed.n[clients])  # W_B <- Σ_j γ_j W_B,j
        theta = state.theta.index_copy(0, clients, update.theta)
        return State(torch.where(head, theta, base), state.labels)
