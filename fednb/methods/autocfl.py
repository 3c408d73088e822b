"""AutoCFL: Gong, Xing, Liu, Xi, Chen, *Adaptive client clustering for efficient
federated learning over non-IID and imbalanced data*, IEEE Transactions on Big Data
10(6), 2024.

Known to us from its abstract only: the number of local epochs is adjusted to each
client's data, so that imbalance does not spoil the clustering; and a weighted vote,
without a number of clusters given, groups the clients. Who votes, on what and with
which weight, cannot be pinned down. Our reading: every client does the same number of
local steps, so that clients with little data do more epochs; the first rounds vote,
each by a spectral clustering of the updates' directions, with the more weight the
better its clusters are separated; pairs that more than half of the weight puts together
are linked.

| abstract | here |
|---|---|
| local training adjustment | adjust |
| weighted voting | ballots, total |

The adjustment is part of AutoCFL only where a federation trains by epochs. Where
``Local.steps`` is set, as in all our tables at laptop scale, every client does the same
number of steps *with every method*: the adjustment is in force for AutoCFL and its
rivals alike, there is nothing left for ``adjust`` to change, and a table shows what the
vote is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..clustering import best_spectral, components, num_clusters
from ..door import Fed
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
    """Let the first rounds vote on who belongs together; then average within those
    clusters.
    """

    revision: ClassVar[int] = 2  # 2: the order of clients does not matter to k-means

    sampled: int | float = 1.0  # after the vote; in it all clients take part
    voting: int = 2  # warm-up: rounds in which all clients train and their updates vote
    # all clients do as many steps as the median client does in its epochs
    adjust: bool = True
    n_max: int = 10  # most clusters in one vote

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            voting=checks.integer(1),
            adjust=checks.flag,
            n_max=checks.integer(1),
        )

    def init(self, fed: Fed) -> State:
        """All clients are one cluster, and no round has voted."""
        theta = fed.start()
        return State(
            theta=theta,
            labels=torch.zeros_like(fed.n),
            ballots=theta.new_zeros(fed.K, fed.K),
            total=theta.new_zeros(()),
        )

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round."""
        theta, labels, ballots, total = state
        is_voting = t < self.voting
        clients = fed.sample(self.sampled_in(t))
        work = self.work(fed)  # local training adjustment
        trained = fed.train(theta[labels[clients]], clients, **work).theta
        if is_voting:  # weighted voting
            delta = (trained - theta[0])[:, : fed.layout.P]
            alike = (1 + cosine(delta)) / 2
            found, score = self.vote(alike, fed.draw())
            together = found[:, None] == found
            # from ½ without clusters to 1 for perfectly separated ones
            weight = 1 / (1 + min(score, 1.0))
            ballots = ballots + weight * together.to(ballots)
            total = total + weight
        if t == self.voting - 1:
            labels = components(2 * ballots > total)  # link pairs with a majority
            theta = theta.repeat(num_clusters(labels), 1)
        # average within clusters
        theta = mean_by(trained, fed.n[clients], labels[clients], old=theta)
        return State(theta, labels, ballots, total)

    def sampled_in(self, t: int) -> int | float:
        """How many clients train in round t: all while they vote."""
        if t < self.voting:
            return 1.0
        return self.sampled

    def vote(self, alike: Tensor, seed: int) -> tuple[Tensor, float]:
        """Labels (K,) of one spectral clustering, and its Davies–Bouldin score.

        Its k-means draws the first centres by row number. So clients are sorted first,
        by how much they are like all others, and their numbers do not matter.
        """
        order = alike.sum(1).argsort(stable=True)
        best = best_spectral(alike[order][:, order], self.n_max, seed)
        labels = torch.empty_like(best.labels).index_copy(0, order, best.labels)
        return labels, best.score

    def work(self, fed: Fed) -> dict[str, Any]:
        """Options of ``fed.train`` that let all clients do the same number of steps."""
        local = fed.local
        if not self.adjust or local.steps is not None:
            return {}
        per_epoch = local.batches_per_epoch(fed.n)  # (K,)
        return {"steps": local.epochs * int(per_epoch.median())}
