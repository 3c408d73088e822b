"""FedCVR-Bolt: *Socially inspired coalition formation and client selection in federated learning*, anonymous, 2025,
under review (Algorithm 1).

| paper | here |
|---|---|
| θ_gl, P, α_k | theta[0], sampled, fed.n / Σ fed.n |
| θ_k, θ̄_k | seen[k], expected[k]: of D parameters, the ``columns`` |
| C^d, known only by (C^d α)_k and C^d_kk | c_alpha[k, d], c_diag[k, d] |
| γ of Eq. 4; γ_t of Eq. 11; β | gamma; rate; beta |
| ρ, C_p, j_p, v_k, π_p | cosine, coalitions, representatives, total_reduction, boltzmann |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..clustering import relabel, spectral, weighted_kmeans
from ..params import mean
from ..similarity import (
    cosine,
    covariance_step,
    laplacian,
    rbf,
    sigmoid,
    total_reduction,
    variance_reduction,
)
from .choice import boltzmann, divided, gumbel, representatives, seats, shuffled
from .wecfl import represent

__all__ = ["FedCVRBolt", "State", "variance_reduction"]

COALITIONS = {"rbf": rbf, "cosine": lambda x, _: cosine(x), "laplacian": laplacian}
COALITIONS |= {"sigmoid": lambda x, gamma: sigmoid(x, gamma, 1.0), "kmeans": None}


class State(NamedTuple):
    """One model for all, and what the server knows of each client."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros: all are served by it
    coalitions: Tensor  # (K,)
    columns: Tensor  # (d,) the parameters looked at
    seen: Tensor  # (K, d) what each client sent last
    expected: Tensor  # (K, d) what it was expected to send
    c_alpha: Tensor  # (K, d) float64
    c_diag: Tensor  # (K, d) float64


@dataclass(frozen=True)
class FedCVRBolt:
    """Group clients by what they sent last; of each group let one train who tells most about the mean of all.

    In a coalition the draw favours clients that reduce the variance of the global model; β = 0 draws uniformly, β = inf
    takes the best. If there are fewer than P coalitions (clients never seen are all alike), others fill the seats.

    ``as_printed`` and ``as_released`` differ in γ_t. A plain call mends three things. The means of section 3.1 are
    zero, those of models are not, so clients seen in different rounds look unlike because the global model has moved:
    ``centred`` rows are updates, θ_k - θ_gl. A representative is its own expectation in line 13, so that those who
    were seen have no variance: with ``innovation`` it is compared with what was expected before it was seen. And one
    who speaks for a large coalition has its own weight only in line 18, which is not the mean of Eq. 2.
    """

    sampled: int | float = 10  # P
    warmup: int = 30  # first rounds, with uniform sampling and without line 16
    beta: float = 1.0
    rate: float | str = (
        "restart"  # γ_t: "restart" 1/2, 1/3, ... after the warm-up; "round" 1/t; or a constant
    )
    coalitions: str | tuple[int, ...] = (
        "rbf"  # kernel of spectral clustering; "kmeans"; or given for each client
    )
    gamma: float = 1.0  # the kernel's
    representation: str = "last"  # parameters looked at: weights of the "last" fully connected layer, "dense" or "all"
    most: int | None = 300  # at most so many of them, drawn once; None: all
    initial: float = 1.0  # correlation of two clients in C^d(1)
    variance: float = 1.0  # of a client in C^d(1)
    centred: bool = True
    innovation: bool = True
    aggregation: str = "coalition"  # weight of a representative: samples of its coalition, or its "own"
    shuffled: bool = False  # the control: coalitions of the same sizes, their members drawn anew every round

    def __post_init__(self) -> None:
        rate = (
            self.rate in ("restart", "round")
            if isinstance(self.rate, str)
            else 0 <= self.rate <= 1
        )
        good = {
            "rate": rate,
            "beta": self.beta >= 0,
            "initial": 0 <= self.initial <= 1,
            "gamma": self.gamma > 0,
        }
        good |= {
            "aggregation": self.aggregation in ("coalition", "own"),
            "variance": self.variance > 0,
        }
        good |= {
            "coalitions": self.coalitions in COALITIONS
            or isinstance(self.coalitions, tuple)
        }
        for name in (name for name in good if not good[name]):
            raise ValueError(
                f"FedCVRBolt({name}={getattr(self, name)!r}) makes no sense: see the fields' comments"
            )

    @classmethod
    def as_printed(cls, **changes: Any) -> FedCVRBolt:
        """Algorithm 1 with appendix C; regression looks at all parameters, MNIST at the whole last layer."""
        return cls.as_released(**{"rate": "round"} | changes)

    @classmethod
    def as_released(cls, **changes: Any) -> FedCVRBolt:
        """The authors' code; its CIFAR-10 script has rate=0.01, its regression coalitions="kmeans"."""
        return cls(
            **{"centred": False, "innovation": False, "aggregation": "own"} | changes
        )

    @classmethod
    def corrected(cls, **changes: Any) -> FedCVRBolt:
        """A plain call."""
        return cls(**changes)

    def init(self, fed) -> State:
        """Line 1: θ_k(1) = θ_gl(1), and C^d(1) = variance ((1 - initial) I + initial 11ᵀ)."""
        theta, labels = fed.start(), torch.zeros_like(fed.n)
        columns = represent(
            torch.arange(fed.layout.D)[None], fed.layout, self.representation
        )[0]
        columns = columns[
            np.sort(
                np.random.default_rng(fed.draw()).permutation(len(columns))[: self.most]
            )
        ]
        seen = theta[:, columns].repeat(fed.K, 1) * (not self.centred)
        c_diag = torch.full_like(seen, self.variance, dtype=torch.float64)
        c_alpha = (self.initial + (1 - self.initial) * share(fed))[:, None] * c_diag
        return State(theta, labels, labels, columns, seen, seen, c_alpha, c_diag)

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        w, seen, P = state.theta[0], state.seen, seats(self.sampled, fed.K)
        if t < self.warmup:  # appendix C.2
            S, coalitions = fed.sample(P), state.coalitions
        else:
            coalitions = self.form(seen, P, fed.draw())  # l. 3 and 5
            coalitions = shuffled(fed, coalitions) if self.shuffled else coalitions
            v = total_reduction(state.c_alpha, state.c_diag)  # l. 6: Eq. 5 and 6
            key = boltzmann(v, coalitions, self.beta).log() + gumbel(fed)  # l. 7: Eq. 8
            first, S = representatives(key, coalitions, P)  # l. 8: j_p ~ π_p
        up = fed.train(w, S)  # l. 9 to 11
        rows = (up.theta - w if self.centred else up.theta)[:, state.columns]
        new = seen.index_copy(0, S, rows)  # (K, d): the others stay as they were
        weights = (
            fed.n
            if t < self.warmup or self.aggregation == "own"
            else divided(fed.n, coalitions, S)
        )
        state = state._replace(
            theta=mean(up.theta, weights[S])[None], coalitions=coalitions, seen=new
        )  # l. 18
        if t < self.warmup:
            return state._replace(expected=new)
        j = first[coalitions]  # (K,) the representative of each client
        rho = torch.nn.functional.cosine_similarity(seen, seen[j])  # l. 4
        expected = (rho[:, None] * new[j]).index_copy(
            0, first, new[first]
        )  # l. 12 to 14: Eq. 9
        r = new - (
            expected.index_copy(0, S, state.expected[S])
            if self.innovation
            else expected
        )  # (K, d)
        rate = {"restart": 1 / (t - self.warmup + 2), "round": 1 / (t + 1)}.get(
            self.rate, self.rate
        )
        c_alpha, c_diag = covariance_step(
            state.c_alpha, state.c_diag, r.double(), share(fed), rate
        )  # l. 16: Eq. 11
        return state._replace(expected=expected, c_alpha=c_alpha, c_diag=c_diag)

    def form(self, seen: Tensor, P: int, seed: int) -> Tensor:  # (K,)
        """At most P coalitions of rows (K, d), or those given; rows that are equal stay together."""
        if not isinstance(self.coalitions, str):
            return relabel(torch.tensor(self.coalitions, device=seen.device))
        kernel = COALITIONS[self.coalitions]
        rows = (
            torch.nn.functional.normalize(seen.double()) if kernel else seen.double()
        )  # l. 3
        rows, code = rows.unique(
            dim=0, return_inverse=True
        )  # sorted: the order of clients does not matter
        if len(rows) > P and kernel:
            code = spectral(kernel(rows, self.gamma), P, seed)[code]
        elif len(rows) > P:
            code = weighted_kmeans(rows, code.bincount(), P, seed)[code]
        return relabel(code)


def share(fed) -> Tensor:
    """α (K,): each client's share of all samples."""
    return fed.n.double() / fed.n.sum()
