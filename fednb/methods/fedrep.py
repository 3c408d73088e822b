"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, *Exploiting shared representations
for personalized federated learning*, ICML 2021 (Algorithm 1).

| paper | here |
|---|---|
| φ, representation | the columns of theta outside ``head``, the same in all rows |
| h_i, head | the columns ``head`` of row i |
| τ, head steps | head_steps |
| r n sampled clients | clients |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed
from ..params import mean


class State(NamedTuple):
    """A model for each client, with a representation that all share."""

    theta: Tensor  # (K, D)
    labels: Tensor  # (K,) 0, 1, …, K − 1


@dataclass(frozen=True)
class FedRep:
    """FedPer with turns: each client first fits its head, then the representation.

    The representation is thus moved by heads that fit it. Without a head
    (``personal=0``) it is FedAvg. A client trains twice in a round; only the
    representation is sent. ``as_printed`` has the paper's equal weights; the plain
    call weights clients by samples, as FedAvg and the usual code do.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    personal: int = 1  # so many layers, counted from the last, stay with the client
    # τ, SGD steps of the client's own layers; None: as many as for the common ones
    head_steps: int | None = None
    # how much a client counts in the average: by "samples"; or all "equal", as printed
    aggregation: str = "samples"

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            personal=checks.integer(0),
            head_steps=checks.optional(checks.integer(1)),
            aggregation=checks.choice("samples", "equal"),
        )

    @classmethod
    def as_printed(cls, sampled: int | float = 1.0) -> FedRep:
        """Algorithm 1: all representations count alike."""
        return cls(sampled, aggregation="equal")

    def init(self, fed: Fed) -> State:
        """Initialise φ_0 and the heads, all alike."""
        labels = torch.arange(fed.K, device=fed.n.device)
        return State(fed.start().repeat(fed.K, 1), labels)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        head = fed.layout.last_layers(self.personal).to(fed.n.device)  # (D,)
        clients = fed.sample(self.sampled)  # server sends φ^t to r n clients
        rows = state.theta[clients]
        if bool(head.any()):
            changes: dict[str, Any] = {}
            if self.head_steps is not None:
                changes["steps"] = self.head_steps
            rows = train_columns(  # h_i <- GRD(f_i(h_i, φ^t), h_i), τ times
                fed, rows, clients, head, travels=False, slot=1, **changes
            )
        rows = train_columns(  # φ_i <- GRD(f_i(h_i, φ), φ^t)
            fed, rows, clients, ~head, sent=int((~head).sum())
        )
        weights = fed.n[clients]
        if self.aggregation == "equal":
            weights = torch.ones_like(weights)
        phi = mean(rows, weights)  # φ^{t+1} <- Σ_i φ_i / (r n)
        theta = state.theta.index_copy(0, clients, rows)
        return State(torch.where(head, theta, phi), state.labels)


def train_columns(
    fed: Fed, rows: Tensor, clients: Tensor, part: Tensor, **options: Any
) -> Tensor:  # (n, D)
    """Train the columns in the mask ``part`` (D,); the others stay as they are.

    Neither weight decay nor BatchNorm's statistics may move the others.
    """
    update = fed.train(rows, clients, correct=lambda g, th: g * part, **options)
    return torch.where(part, update.theta, rows)
