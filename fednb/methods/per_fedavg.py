"""Per-FedAvg: Fallah, Mokhtari, Ozdaglar, *Personalized federated learning with
theoretical guarantees: a model-agnostic meta-learning approach*, NeurIPS 2020
(Algorithm 1, first-order).

| paper | here |
|---|---|
| w_k | theta[K] |
| w_{k+1,t}^i, w̃_{k+1,t}^i | w, ahead (n, D) |
| α, β, τ | alpha, beta, tau |
| w − α ∇f_i(w), the model that client i uses | theta[i] |
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
    """The personal models, and the one from which each is a step away."""

    theta: Tensor  # (K + 1, D) the last row is w
    labels: Tensor  # (K,) 0, 1, ..., K - 1


@dataclass(frozen=True)
class PerFedAvg:
    """Learn a model that becomes good for a client by one gradient step on its data.

    This is the first-order variant, which drops the Hessian from the factor I − α ∇²f.
    After each round every client, sampled or not, takes its step from the new model and
    is served by the outcome. That costs an update of each client but no bytes: with the
    other methods, too, sending a model to evaluate it costs none.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    alpha: float = 0.01  # length of the one step that makes the model personal
    # learning rate of the common model w; None: the federation's
    beta: float | None = None
    tau: int = 10  # local steps of w, each on two fresh batches

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            alpha=checks.number(above=0),
            beta=checks.optional(checks.number(above=0)),
            tau=checks.integer(1),
        )

    def init(self, fed: Fed) -> State:
        """Initialise w_0; all personal models are equal to it."""
        labels = torch.arange(fed.K, device=fed.n.device)
        return State(fed.start().repeat(fed.K + 1, 1), labels)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        P = fed.layout.P  # columns of the parameters
        beta = self.beta
        if beta is None:
            beta = fed.local.lr
        one_step: dict[str, Any] = {"steps": 1, "momentum": 0.0, "optimizer": "sgd"}
        alpha_step = one_step | {"lr": self.alpha, "lr_decay": 1.0}
        beta_step = one_step | {"lr": beta}

        clients = fed.sample(self.sampled)  # server chooses A_k
        # and sends w_k; w_{k+1,0}^i = w_k
        w = state.theta[-1].expand(len(clients), -1)
        for i in range(self.tau):  # for t = 1 to τ
            # w̃ = w − α ∇f_i(w, D)
            ahead = fed.train(w, clients, travels=i == 0, **alpha_step).theta
            # w̃ − β ∇f_i(w̃, D')
            further = fed.train(ahead, clients, travels=False, **beta_step).theta
            # w − β ∇f_i(w̃, D')
            w = torch.cat([(w + further - ahead)[:, :P], further[:, P:]], 1)
        w = mean(w)  # server averages w_{k+1,τ}^i
        # the step of each client, sampled or not
        personal = fed.train(w, travels=False, **alpha_step).theta
        return state._replace(theta=torch.cat([personal, w[None]]))
