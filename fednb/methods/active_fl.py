"""Active FL: Goetz, Malik, Bui, Moon, Liu, Kumar, *Active federated learning*, arXiv:1909.12641, 2019 (Algorithm 1).

| paper | here |
|---|---|
| w | theta[0] |
| v_k = 1/√n_k Σ_i l(x_i, y_i; w) | value[k] |
| m | sampled |
| α_1, α_2, α_3 | alpha1, alpha2, alpha3 |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..params import mean
from .choice import num_sampled, weighted_sample


class State(NamedTuple):
    """One model for all, and how much each client was worth when last asked."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    value: Tensor  # (K,)


@dataclass(frozen=True)
class ActiveFL:
    """Draw clients by a softmax of their loss when they last trained; the least valued have no chance, some always do.

    The first values are those of the initial model, asked of all clients. FedCVR-Bolt compares with α = (0.8, 1, 0),
    ``as_printed``, and calls that Power-of-Choice's 2P candidates; ``as_released``, its code, draws 2P candidates
    uniformly, asks them for their mean loss anew, and lets its softmax choose P.
    """

    sampled: int | float = 10
    alpha1: float = (
        0.75  # share of clients, those of least value, that the softmax leaves out
    )
    alpha2: float = 0.01  # inverse temperature
    alpha3: float = 0.1  # share of the m clients that is drawn uniformly
    candidates: int | None = (
        None  # drawn uniformly and asked anew, instead of α_1; None: all, with their last values
    )
    scaled: bool = True  # v_k = √n_k times the mean loss; False: the mean loss

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            alpha1=checks.number(least=0, below=1),
            alpha2=checks.number(least=0),
            alpha3=checks.number(least=0, most=1),
            candidates=checks.optional(checks.integer(1)),
            scaled=checks.flag,
        )

    @classmethod
    def as_printed(cls, sampled: int | float = 10) -> ActiveFL:
        """FedCVR-Bolt's appendix C.1."""
        return cls(sampled, alpha1=0.8, alpha2=1.0, alpha3=0.0)

    @classmethod
    def as_released(cls, sampled: int = 10) -> ActiveFL:
        """FedCVR-Bolt's code."""
        return cls(
            sampled,
            alpha1=0.0,
            alpha2=1.0,
            alpha3=0.0,
            candidates=2 * sampled,
            scaled=False,
        )

    def init(self, fed) -> State:
        """Initialise w, and value it everywhere."""
        theta = fed.start()
        return State(
            theta,
            torch.zeros_like(fed.n),
            self.worth(fed, theta[0], torch.arange(fed.K)),
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta, labels, value = state
        m = num_sampled(self.sampled, fed.K)
        everybody = torch.ones_like(labels, dtype=torch.bool)
        pool = everybody
        if self.candidates is not None:
            A = fed.sample(max(self.candidates, m))
            pool = torch.zeros_like(everybody).index_fill(0, A, True)
            value = value.index_copy(0, A, self.worth(fed, theta[0], A))

        # v_k = -∞ for the α_1 K clients of least value
        left_out = value.argsort(stable=True)[: int(self.alpha1 * fed.K)]
        logits = (self.alpha2 * value).where(pool, -torch.inf)  # p_k ∝ exp(α_2 v_k)
        logits = logits.index_fill(0, left_out, -torch.inf)
        by_value = min(m - int(self.alpha3 * m), int(logits.isfinite().sum()))
        clients = weighted_sample(fed, by_value, logits)  # (1 - α_3) m by p_k
        if by_value < m:  # α_3 m of the others, uniformly
            others = everybody.index_fill(0, clients, False)
            uniform = fed.sample(m - by_value, among=others)
            clients = torch.cat([clients, uniform]).sort().values

        trained = fed.train(theta[0], clients).theta
        if self.candidates is None:  # v_k of those who trained, at the w they got
            worth = self.worth(fed, theta[0], clients)
            value = value.index_copy(0, clients, worth)
        return State(mean(trained, fed.n[clients])[None], labels, value)

    def worth(self, fed, w: Tensor, clients: Tensor) -> Tensor:  # (n,)
        """Value w at clients."""
        clients = clients.to(fed.n.device)
        return fed.loss(w, clients).double() * (
            fed.n[clients].sqrt() if self.scaled else 1
        )
