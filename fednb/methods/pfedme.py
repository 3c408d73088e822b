"""pFedMe: Dinh, Tran, Nguyen, *Personalized federated learning with Moreau envelopes*,
NeurIPS 2020 (Algorithm 1).

| paper | here |
|---|---|
| w, w_{i,r} | theta[K], w (n, D) |
| θ̃_i(w) = argmin f_i(θ) + λ/2 ‖θ − w‖² | theta[i], the personal model |
| R local rounds, K steps for each θ̃ | local_rounds, steps |
| λ, η, β | lam, eta, beta |
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
    """A personal model for each client, and the server's."""

    theta: Tensor  # (K + 1, D) the last row is w
    labels: Tensor  # (K,) 0, 1, ..., K - 1


@dataclass(frozen=True)
class PFedMe:
    """Every client has a model of its own, held near a common one.

    The common model moves towards the personal ones. In the paper all clients train in
    every round and a sample of them is averaged: ``all_train``. Here, as with other
    methods, only the sampled clients train, and the others are served by the personal
    model of their last round.

    Each of the ``steps`` uses a new batch, where the paper keeps one until w moves.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # λ, pull of a personal model towards the common one; stable for lr λ < 2
    lam: float = 15.0
    # step of a client's copy w of the common model, along λ (w − θ̃)
    eta: float = 0.005
    # how far the server moves towards the clients' mean w; 1: all the way
    beta: float = 1.0
    local_rounds: int = 5  # R: how often a client fits a personal model and moves w
    steps: int = 5  # K: SGD steps each time it fits the personal model
    # learning rate of the personal model; None: the federation's
    lr: float | None = None
    # as in the paper all clients train, and the sampled ones are averaged
    all_train: bool = False

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            lam=checks.number(least=0),
            eta=checks.number(least=0),
            beta=checks.number(least=0),
            local_rounds=checks.integer(1),
            steps=checks.integer(1),
            lr=checks.optional(checks.number(above=0)),
            all_train=checks.flag,
        )

    def init(self, fed: Fed) -> State:
        """Initialise w_0; all personal models are equal to it."""
        labels = torch.arange(fed.K, device=fed.n.device)
        return State(fed.start().repeat(fed.K + 1, 1), labels)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        P = fed.layout.P  # columns of the parameters
        lr = self.lr
        if lr is None:
            lr = fed.local.lr
        sampled = fed.sample(self.sampled)  # S_t
        clients = sampled
        if self.all_train:
            clients = torch.arange(fed.K, device=sampled.device)

        # server sends w_t; w_{i,0} = w_t
        w_t = state.theta[-1]
        w = w_t.expand(len(clients), -1)
        theta = w
        for r in range(self.local_rounds):  # for r = 0 to R − 1
            # θ̃_i(w_{i,r}), by K steps from the last one; w is sent once a round
            theta = fed.train(
                theta,
                clients,
                correct=lambda g, th, w: g + self.lam * (th - w),
                args=(w,),
                travels=r == 0,
                steps=self.steps,
                lr=lr,
            ).theta
            # w_{i,r+1} = w_{i,r} − η λ (w_{i,r} − θ̃_i)
            pull = self.eta * self.lam * (w - theta)[:, :P]
            w = torch.cat([w[:, :P] - pull, theta[:, P:]], 1)
        # server receives w_{i,R} of S_t
        received = mean(w[torch.isin(clients, sampled)])
        # w_{t+1} = (1 − β) w_t + β Σ_i w_{i,R} / |S_t|
        mixed = (1 - self.beta) * w_t + self.beta * received
        w_t = torch.cat([mixed[:P], received[P:]])
        personal = state.theta[:-1].index_copy(0, clients, theta)
        return state._replace(theta=torch.cat([personal, w_t[None]]))
