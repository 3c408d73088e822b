"""AutoCFL: Gong, Xing, Liu, Xi, Chen, *Adaptive client clustering for efficient federated learning over non-IID and
imbalanced data*, IEEE Transactions on Big Data 10(6), 2024.

Known to us from its abstract only: the number of local epochs is adjusted to each client's data, so that imbalance
does not spoil the clustering; and a weighted vote, without a number of clusters given, groups the clients. Who votes,
on what and with which weight, cannot be pinned down. Our reading: every client does the same number of local steps;
the first rounds vote, each by a spectral clustering of the updates' directions, with the more weight the better its
clusters are separated; pairs that more than half of the weight puts together are linked.

| abstract | here |
|---|---|
| local training adjustment | adjust |
| weighted voting | ballots, total |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..clustering import best_spectral, components
from ..params import mean_by
from ..similarity import cosine


class State(NamedTuple):
    """A model for each cluster, and the votes so far."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)
    ballots: Tensor  # (K, K) weight of the rounds that put a pair together
    total: Tensor  # () weight of all rounds


@dataclass(frozen=True)
class AutoCFL:
    """Let the first rounds vote on who belongs together; then average within those clusters."""

    sampled: int | float = 1.0  # after the vote; in it all clients take part
    voting: int = 2  # rounds
    adjust: bool = (
        True  # as many local steps for each client as the median client's epochs have
    )
    n_max: int = 10  # most clusters in one vote

    def __post_init__(self) -> None:
        if self.voting < 1:
            raise ValueError(
                f"AutoCFL(voting={self.voting}): at least one round must vote"
            )

    def init(self, fed) -> State:
        """All clients are one cluster, and nobody has voted."""
        theta = fed.start()
        ballots = theta.new_zeros(fed.K, fed.K)
        return State(theta, torch.zeros_like(fed.n), ballots, ballots.sum())

    def step(self, state: State, fed, t: int) -> State:
        """Run one round."""
        theta, labels, ballots, total = state
        S = fed.sample(self.sampled if t >= self.voting else 1.0)
        up = fed.train(
            theta[labels[S]], S, **self.work(fed)
        )  # local training adjustment
        if t < self.voting:
            alike = (1 + cosine((up.theta - theta[0])[:, : fed.layout.P])) / 2
            vote = best_spectral(alike, self.n_max, fed.draw())
            weight = 1 / (
                1 + min(vote.score, 1.0)
            )  # 1 for perfect clusters, ½ for clusters that are none
            ballots, total = (
                ballots + weight * (vote.labels[:, None] == vote.labels).to(ballots),
                total + weight,
            )
        if t == self.voting - 1:
            labels = components(
                2 * ballots > total
            )  # the majority decides about each pair
            theta = theta.repeat(int(labels.max()) + 1, 1)
        return State(
            mean_by(up.theta, fed.n[S], labels[S], old=theta), labels, ballots, total
        )

    def work(self, fed) -> dict[str, int]:
        """The change of local training that gives all clients the same number of steps."""
        local = fed.local
        if not self.adjust or local.steps is not None:
            return {}
        per_epoch = -(fed.n // -(local.batch_size or int(fed.n.max())))  # (K,) batches
        return {"steps": local.epochs * int(per_epoch.median())}
