"""CFL: Sattler, Müller, Samek, *Clustered federated learning: model-agnostic distributed multitask optimization under
privacy constraints*, IEEE Transactions on Neural Networks and Learning Systems 32(8), 2021.

| paper | here |
|---|---|
| ΔW_i | delta[i] = up.theta[i] − theta[labels[i]], parameters only |
| ‖Σ_i D_i / D_c ΔW_i‖ < ε1 | the cluster has come to rest: eps1 |
| max_i ‖ΔW_i‖ > ε2 | some members have not: eps2 |
| α_ij | cosine(delta)[i, j] |
| γ_max < √((1 − α_cross^max) / 2) | gamma_max |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..clustering import bipartition
from ..params import mean, mean_by
from ..similarity import cosine


class State(NamedTuple):
    """A model for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)
    peak: Tensor  # (C,) the longest mean update of each cluster, and of those that it came from


@dataclass(frozen=True)
class CFL:
    """Average within clusters; cut one in two when it has come to rest but its members pull in different directions.

    CFL is made for full participation. With fewer clients sampled, the others of a cluster are asked for their updates
    in the very round in which those sampled would have it split: a split is decided by all whom it concerns.
    """

    sampled: int | float = 1.0
    eps1: float = 0.3
    eps2: float = 0.5
    relative: bool = True  # eps1 and eps2 are multiples of ``peak``; False: lengths
    gamma_max: float = 0.0  # how far a client's update may be from its group's; 0 cuts whatever is not parallel
    linkage: str = (
        "complete"  # the released code's; "single" is the optimal cut of the paper
    )
    wait: int = 20  # no cut in the first rounds
    smallest: int = 3  # clusters of fewer clients are not cut

    @classmethod
    def as_printed(cls, **changes) -> CFL:
        """The paper's optimal bipartition, from the first round on."""
        return cls(**dict(linkage="single", wait=0, smallest=2) | changes)

    @classmethod
    def as_released(cls, **changes) -> CFL:
        """The authors' notebook: lengths that fit its network and data. Its confusion of client numbers is not kept."""
        return cls(**dict(relative=False, eps1=0.4, eps2=1.6) | changes)

    @classmethod
    def corrected(cls, **changes) -> CFL:
        """The same as a plain call."""
        return cls(**changes)

    def init(self, fed) -> State:
        """All clients are one cluster, C = {{1, ..., m}}."""
        theta = fed.start()
        return State(theta, torch.zeros_like(fed.n), theta.new_zeros(1))

    def step(self, state: State, fed, t: int) -> State:
        """Run one round."""
        theta, labels, peak = state.theta, state.labels.clone(), state.peak.clone()
        S, P = fed.sample(self.sampled), fed.layout.P
        new = fed.train(theta[labels[S]], S).theta  # θ_i <- SGD(θ_c, D_i)
        for c in labels[S].unique().tolist():  # for c ∈ C
            members = S[labels[S] == c]  # client numbers, in the order of delta
            delta = new[labels[S] == c, :P] - theta[c, :P]  # ΔW_i = θ_i − θ_c
            peak[c] = max(peak[c], mean(delta, fed.n[members]).norm())
            small = int((labels == c).sum()) < self.smallest
            if (
                t < self.wait
                or small
                or not self.restless(delta, fed.n[members], peak[c])
            ):
                continue
            others = (labels == c).index_fill(0, S, False).nonzero()[:, 0]
            if len(others):  # with full participation there are none
                S, new = (
                    torch.cat([S, others]),
                    torch.cat([new, fed.train(theta[c], others).theta]),
                )
                members, delta = (
                    S[labels[S] == c],
                    new[labels[S] == c, :P] - theta[c, :P],
                )
            if self.restless(delta, fed.n[members], peak[c]):
                part = self.cut(delta)  # c1, c2 <- bipartition of α
                if part.any():
                    labels[members[part == 1]] = len(
                        theta
                    )  # C <- C without c, with c1 and c2
                    theta, peak = (
                        torch.cat([theta, theta[c : c + 1]]),
                        torch.cat([peak, peak[c : c + 1]]),
                    )
        theta = mean_by(
            new, fed.n[S], labels[S], old=theta
        )  # θ_c <- θ_c + Σ_i D_i / D_c ΔW_i
        return State(theta, labels, peak)

    def restless(self, delta: Tensor, n: Tensor, peak: Tensor) -> bool:
        """Whether the mean update (n clients, P) is shorter than ε1 while the longest one is longer than ε2."""
        unit = peak if self.relative else 1.0
        return bool(
            mean(delta, n).norm() < self.eps1 * unit
            and delta.norm(dim=1).max() > self.eps2 * unit
        )

    def cut(self, delta: Tensor) -> Tensor:
        """Labels (n,) of two parts; all 0 if they are no further apart than ``gamma_max`` explains."""
        alpha = cosine(delta)
        part = bipartition(alpha, self.linkage)
        across = alpha[part == 0][:, part == 1].max()
        return (
            part
            if self.gamma_max < ((1 - across) / 2).sqrt()
            else torch.zeros_like(part)
        )
