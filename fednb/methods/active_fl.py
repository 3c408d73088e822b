"""Active FL: Goetz, Malik, Bui, Moon, Liu, Kumar, *Active federated learning*,
arXiv:1909.12641, 2019 (Algorithm 1).

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
from ..door import Fed, num_sampled
from ..params import mean
from .choice import weighted_sample


class State(NamedTuple):
    """One model for all, and each client's value when it was last asked."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    value: Tensor  # (K,) v_k


@dataclass(frozen=True)
class ActiveFL:
    """Draw clients by a softmax of their loss when they last trained.

    The softmax excludes the α₁ share of clients with the lowest values, and an α₃ share
    of those who train is drawn uniformly. Before the first round all clients are asked
    for the loss of the initial model.

    The presets are the baseline of the FedCVR-Bolt paper. ``as_printed`` is α =
    (0.8, 1, 0), which that paper calls equivalent to Power-of-Choice with 2P
    candidates. ``as_released`` is its code: it draws 2P candidates uniformly, asks them
    for their present mean loss, and chooses P of them by a softmax.
    """

    sampled: int | float = 10  # clients per round: a number, or a fraction
    # α₁, share of the clients that the softmax excludes: those with the lowest values
    alpha1: float = 0.75
    # α₂, inverse temperature: the larger, the more the highest values are preferred
    alpha2: float = 0.01
    alpha3: float = 0.1  # α₃, share of the clients that is drawn uniformly
    # so many clients are drawn uniformly and asked for their present value; only they
    # may be chosen. None: all clients, with the values of their last training
    candidates: int | None = None
    # a client's value v_k is √n_k times its mean loss; False: the mean loss
    scaled: bool = True

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

    def init(self, fed: Fed) -> State:
        """Initialise w, and ask all clients for their values."""
        theta = fed.start()
        everybody = torch.arange(fed.K, device=fed.n.device)
        value = self.value_of(fed, theta[0], everybody)
        return State(theta, torch.zeros_like(fed.n), value)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        w = state.theta[0]
        value = state.value
        m = num_sampled(self.sampled, fed.K)
        eligible = torch.ones_like(state.labels, dtype=torch.bool)  # (K,)
        if self.candidates is not None:
            # as released: ask some candidates for their present values
            asked = fed.sample(max(self.candidates, m))
            value = value.index_copy(0, asked, self.value_of(fed, w, asked))
            eligible = torch.zeros_like(eligible).index_fill(0, asked, True)

        # v_k = -∞ for the α_1 K clients of lowest value; p_k ∝ exp(α_2 v_k)
        logits = self.logits(value, eligible)
        # draw (1 - α_3) m clients by p_k, and α_3 m of the others uniformly
        clients = self.choose(fed, logits, m)
        trained = fed.train(w, clients).theta
        if self.candidates is None:
            # v_k of those who trained, at the w that they received
            value = value.index_copy(0, clients, self.value_of(fed, w, clients))
        # w <- Σ_k n_k / n w_k
        theta = mean(trained, fed.n[clients])[None]
        return State(theta, state.labels, value)

    def logits(self, value: Tensor, eligible: Tensor) -> Tensor:  # (K,)
        """The logarithm of p_k, up to a constant; -inf for excluded clients."""
        excluded = value.argsort(stable=True)[: int(self.alpha1 * len(value))]
        logits = (self.alpha2 * value).where(eligible, -torch.inf)
        return logits.index_fill(0, excluded, -torch.inf)

    def choose(self, fed: Fed, logits: Tensor, m: int) -> Tensor:  # (m,)
        """Draw (1 - α_3) m clients by the softmax, then the others uniformly.

        If the softmax excludes too many, more are drawn uniformly.
        """
        possible = int(logits.isfinite().sum())
        by_value = min(m - int(self.alpha3 * m), possible)
        clients = weighted_sample(fed, by_value, logits)
        if by_value == m:
            return clients
        others = torch.ones_like(logits, dtype=torch.bool)
        others = others.index_fill(0, clients, False)
        uniform = fed.sample(m - by_value, among=others)
        return torch.cat([clients, uniform]).sort().values

    def value_of(self, fed: Fed, w: Tensor, clients: Tensor) -> Tensor:  # (n,)
        """v_k of w (D,): √n_k times its mean loss at client k, or the mean loss."""
        loss = fed.loss(w, clients).double()
        if self.scaled:
            return loss * fed.n[clients].sqrt()
        return loss
