"""Ditto: Li, Hu, Beirami, Smith, *Ditto: fair and robust federated learning through
personalization*, ICML 2021 (Algorithm 1, with FedAvg as its global solver).

| paper | here |
|---|---|
| w^t, global model | theta[K] |
| v_k, personal model | theta[k] |
| λ | lam |
| s, personal steps | steps |
| h_k(v; w) = F_k(v) + λ/2 ‖v − w‖² | the correction g + lam (v − w) of each gradient |
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
    """A personal model for each client, and the common one."""

    theta: Tensor  # (K + 1, D) the last row is w
    labels: Tensor  # (K,) 0, 1, …, K − 1


@dataclass(frozen=True)
class Ditto:
    """FedAvg, and beside it a model for each client that is pulled towards FedAvg's.

    The personal models never reach the server: λ = 0 is LocalOnly beside FedAvg, and a
    large λ holds everybody at FedAvg's model. A client trains twice in a round.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # λ, pull of a personal model towards the common one; stable for lr · λ < 2
    lam: float = 0.1
    # s, SGD steps of the personal model; None: as many as for the common model
    steps: int | None = None

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            lam=checks.number(least=0),
            steps=checks.optional(checks.integer(1)),
        )

    def init(self, fed: Fed) -> State:
        """Initialise w_0; all v_k start from it."""
        labels = torch.arange(fed.K, device=fed.n.device)
        return State(fed.start().repeat(fed.K + 1, 1), labels)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        w = state.theta[-1]
        clients = fed.sample(self.sampled)  # server samples S_t and sends w^t
        common = fed.train(w, clients)  # solve the local sub-problem of G from w^t
        changes: dict[str, Any] = {}
        if self.steps is not None:
            changes["steps"] = self.steps
        personal = fed.train(  # v_k <- v_k − η (∇F_k(v_k) + λ (v_k − w^t)), s times
            state.theta[clients],
            clients,
            correct=lambda g, v: g + self.lam * (v - w),
            travels=False,
            slot=1,
            **changes,
        )
        new = mean(common.theta, fed.n[clients])  # server aggregates to w^{t+1}
        theta = state.theta.index_copy(0, clients, personal.theta)
        return State(torch.cat([theta[:-1], new[None]]), state.labels)
