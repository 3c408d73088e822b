"""Per-FedAvg: Fallah, Mokhtari, Ozdaglar, *Personalized federated learning with theoretical guarantees: a
model-agnostic meta-learning approach*, NeurIPS 2020 (Algorithm 1, first-order).

| paper | here |
|---|---|
| w_k | theta[K] |
| w_{k+1,t}^i, w̃_{k+1,t}^i | w, ahead (n, D) |
| α, β, τ | alpha, beta, tau |
| w − α ∇f_i(w), the model that client i uses | theta[i] |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..params import mean


class State(NamedTuple):
    """The personal models, and the one from which each is a step away."""

    theta: Tensor  # (K + 1, D) the last row is w
    labels: Tensor  # (K,) 0, 1, ..., K - 1


@dataclass(frozen=True)
class PerFedAvg:
    """Learn a model that becomes good for a client by one gradient step on its data.

    This is the first-order variant, which drops the Hessian from the factor I − α ∇²f. After each round every client,
    sampled or not, takes its step from the new model and is served by the outcome. That costs an update of each client
    but no bytes: to evaluate a model costs none with other methods either.
    """

    sampled: int | float = 1.0
    alpha: float = 0.01  # the personal step
    beta: float | None = None  # the step of w; None: the federation's lr
    tau: int = 10  # local steps of w, each on two fresh batches

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            alpha=checks.number(above=0),
            beta=checks.optional(checks.number(above=0)),
            tau=checks.integer(1),
        )

    def init(self, fed) -> State:
        """Initialise w_0; nobody is personal yet."""
        return State(
            fed.start().repeat(fed.K + 1, 1), torch.arange(fed.K, device=fed.n.device)
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        S = fed.sample(self.sampled)  # server chooses A_k
        far = {
            "steps": 1,
            "momentum": 0.0,
            "optimizer": "sgd",
            "lr": fed.local.lr if self.beta is None else self.beta,
        }
        near = far | {"lr": self.alpha, "lr_decay": 1.0}
        w, P = (
            state.theta[-1].expand(len(S), -1),
            fed.layout.P,
        )  # and sends w_k; w_{k+1,0}^i = w_k
        for i in range(self.tau):  # for t = 1 to τ
            ahead = fed.train(
                w, S, travels=i == 0, **near
            ).theta  # w̃ = w − α ∇f_i(w, D)
            there = fed.train(ahead, S, travels=False, **far).theta  # w̃ − β ∇f_i(w̃, D')
            w = torch.cat(
                [(w + there - ahead)[:, :P], there[:, P:]], 1
            )  # w − β ∇f_i(w̃, D')
        w = mean(w)  # server averages w_{k+1,τ}^i
        own = fed.train(
            w, travels=False, **near
        ).theta  # the step of each client, sampled or not
        return state._replace(theta=torch.cat([own, w[None]]))
