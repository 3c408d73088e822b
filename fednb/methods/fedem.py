"""FedEM: Marfoq, Neglia, Bellet, Kameni, Vidal, *Federated multi-task learning under a
mixture of distributions*, NeurIPS 2021 (Algorithm 1).

| paper | here |
|---|---|
| M components θ_m | theta[m], components |
| π_t, the mixture of client t | votes[t] |
| q_t(z = m) (E step) | q[t, m] |
| h_t = Σ_m π_tm h_θm | the soft vote by ``votes`` |

In the paper every *sample* has its own q. A federation weighs no single samples, so
here a client's samples share one q: FedEM at the level of clients. What a mixture
within one client's data would give is therefore missing, and π tends to one component
sooner than in the paper.

A component learns from each client by the share q_m of a gradient, so that it takes
smaller steps than FedAvg at the same learning rate. The authors run FedEM at three
times FedAvg's rate (0.03 to 0.01 on CIFAR-10): ``lr_scale=3``.
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
    """The components, and how much each counts at each client."""

    theta: Tensor  # (M, D)
    labels: Tensor  # (K,) the component that counts most
    votes: Tensor  # (K, M) π, rows sum to one


@dataclass(frozen=True)
class FedEM:
    """Every client trains every component, weighted by how well it explains the
    client's data, and is served by a mixture of them. One component is FedAvg.
    """

    components: int = 3  # how many models are mixed
    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # the losses are divided by this number in the E step: the larger, the more alike
    # the weights of the components
    temperature: float = 1.0
    lr_scale: float = 1.0  # learning rate in multiples of the federation's

    def __post_init__(self) -> None:
        checks.fields(
            self,
            components=checks.integer(1),
            sampled=checks.sampled,
            temperature=checks.number(above=0),
            lr_scale=checks.number(above=0),
        )

    def init(self, fed: Fed) -> State:
        """Initialise θ_1, …, θ_M, all different; π is uniform."""
        theta = fed.start(self.components)
        votes = theta.new_full((fed.K, self.components), 1 / self.components)
        return State(theta, torch.zeros_like(fed.n), votes)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta = state.theta
        clients = fed.sample(self.sampled)  # server broadcasts θ_m to the clients
        losses = fed.loss(theta, clients)
        q = posterior(state.votes[clients], losses, self.temperature)  # E step
        votes = state.votes.index_copy(0, clients, q)  # M step: π_m <- mean of q_m
        rows = []
        for m in range(len(theta)):  # M step: LocalSolver, the loss weighted by q_m
            update = fed.train(
                theta[m],
                clients,
                correct=lambda g, th, q_m: q_m * g,
                args=(q[:, m : m + 1],),
                slot=m,
                lr=self.lr_scale * fed.local.lr,
            )
            rows.append(mean(update.theta, fed.n[clients]))  # θ_m <- Σ_t n_t / n θ_mt
        return State(torch.stack(rows), votes.argmax(1), votes)


def posterior(prior: Tensor, losses: Tensor, temperature: float) -> Tensor:  # (n, M)
    """Mixture weights q_m ∝ π_m exp(−loss of θ_m), from the prior π and mean losses.

    Both are (n, M). π is kept above zero, so that every weight can grow again.
    """
    q = (prior.clamp_min(1e-6).log() - losses / temperature).softmax(1)
    return q.to(prior.dtype)
