"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, *SCAFFOLD: stochastic
controlled averaging for federated learning*, ICML 2020 (Algorithm 1, option II).

| paper | here |
|---|---|
| x, server model | theta[0] |
| y_i | trained (n, D) |
| c, c_i, control variates | control (D,), controls (K, D) |
| K local steps, η_l | as many steps as the client took, the federation's lr |
| η_g | server_lr |
| S, N | clients, fed.K |
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
    """One model for all, and in which direction each client pulls it."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    control: Tensor  # (D,) mean of the controls
    controls: Tensor  # (K, D) zero in the columns of buffers


@dataclass(frozen=True)
class SCAFFOLD:
    """FedAvg whose clients correct each gradient by how they differ from the others.

    A client's control is its mean gradient in the last round in which it trained. So
    ``control`` minus its own control estimates how the mean gradient of all clients
    differs from its own. While all controls are zero, as in the first round, SCAFFOLD
    is FedAvg. The mean gradient is computed from the distance that the client went,
    which needs plain SGD: momentum is switched off.
    The control travels beside the model, so that twice as many bytes are sent.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # η_g: how far the server goes along the mean update; 1: all the way
    server_lr: float = 1.0
    # how much a client counts in the average: all "equal", as printed; or by "samples",
    # as in FedAvg
    aggregation: str = "equal"

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            server_lr=checks.number(above=0),
            aggregation=checks.choice("equal", "samples"),
        )

    def init(self, fed: Fed) -> State:
        """Initialise x; all controls are zero."""
        theta = fed.start()
        labels = torch.zeros_like(fed.n)
        controls = torch.zeros_like(theta).repeat(fed.K, 1)
        return State(theta, labels, torch.zeros_like(theta[0]), controls)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        x = state.theta[0]
        c = state.control
        clients = fed.sample(self.sampled)  # sample clients S
        c_i = state.controls[clients]
        update = fed.train(  # y_i <- y_i − η_l (g_i(y_i) − c_i + c), K times
            x,
            clients,
            correct=lambda g, th, c_i: g - c_i + c,
            args=(c_i,),
            sent=2 * fed.layout.D,  # communicate (x, c), and (Δy_i, Δc_i)
            momentum=0.0,
            optimizer="sgd",
        )
        steps = (~update.losses.isnan()).sum(1)
        lr = fed.local.lr_at(t)
        new = next_controls(c_i, c, x, update.theta, steps, lr)  # c_i⁺
        new[:, fed.layout.P :] = 0  # statistics of BatchNorm have no gradient

        weights = fed.n[clients]
        if self.aggregation == "equal":
            weights = torch.ones_like(weights)
        y = mean(update.theta, weights)
        stepped = x + self.server_lr * (y - x)  # x <- x + η_g / |S| Σ Δy_i
        x = torch.cat([stepped[: fed.layout.P], y[fed.layout.P :]])
        c = c + (new - c_i).sum(0) / fed.K  # c <- c + |S| / N · mean of Δc_i
        controls = state.controls.index_copy(0, clients, new)
        return State(x[None], state.labels, c, controls)


def next_controls(
    c_i: Tensor, c: Tensor, x: Tensor, y: Tensor, steps: Tensor, lr: float
) -> Tensor:  # (n, D)
    """Controls c_i⁺ = c_i − c + (x − y_i) / (K η_l) of clients that went from x to y_i.

    ``c_i`` (n, D) are their controls, ``c`` (D,) is the mean of all controls, and
    ``steps`` (n,) counts the local steps K of each client. What is added is a client's
    mean corrected gradient.
    """
    taken = steps.clamp_min(1).to(x)[:, None]
    return c_i - c + (x - y) / (taken * lr)
