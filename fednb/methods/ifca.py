"""IFCA: Ghosh, Chung, Yin, Ramchandran, *An efficient framework for clustered federated
learning*, NeurIPS 2020 (Algorithm 1, model averaging). HypCluster, in Mansour, Mohri,
Ro, Suresh, *Three approaches for personalization with applications to federated
learning*, arXiv:2002.10619, 2020, is the same alternation seen from the clients.

| paper | here |
|---|---|
| θ_j, j = 1 … k | theta[j], clusters |
| M_t | clients |
| ĵ = argmin_j F_i(θ_j) | labels[i] |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed
from ..params import mean_by


class State(NamedTuple):
    """A model for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


@dataclass(frozen=True)
class IFCA:
    """Every client picks the model with the least loss on its own data and trains it.

    For given models this choice is optimal: no other one gives a lower value of Eq. 1a
    of the WeCFL paper. A cluster that nobody picks keeps its model and may never be
    picked again, so the outcome depends on the initial models, which must differ. With
    ``batches`` the choice is cheaper: the losses are computed on that many random
    batches of each client instead of all its data.

    ``as_released`` is the baseline in the public code of WeCFL's authors (FedBase):

    - Clients of a cluster hold one network object and train it one after the other, and
      each picked cluster is then stored as the *same* server object (``aliased``). So
      after the first round all clusters that were ever picked are one model. Should
      clients pick a cluster that never was, its model replaces all others.
    - A client keeps the best model so far and compares it with the next, each on three
      random batches of its own; the later model wins a tie (``pairwise``). Between
      equal models the batches decide: half of the clients take the last cluster.
    - The optimiser is created anew in every round, so momentum is not kept even where
      the other methods of that code keep it (``new_optimizer``).
    """

    clusters: int = 5  # how many models there are to pick from
    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # released code: all clusters that were ever picked become one model
    aliased: bool = False
    # random batches of its own data on which a client compares the models; None: all
    # its data
    batches: int | None = None
    # released code: a client compares two models at a time, each on new batches
    pairwise: bool = False
    # released code: momentum is forgotten after every round
    new_optimizer: bool = False

    def __post_init__(self) -> None:
        checks.fields(
            self,
            clusters=checks.integer(1),
            sampled=checks.sampled,
            aliased=checks.flag,
            batches=checks.optional(checks.integer(1)),
            pairwise=checks.flag,
            new_optimizer=checks.flag,
        )

    @classmethod
    def as_released(cls, clusters: int = 5) -> IFCA:
        """FedBase: clusters share one network; clients choose by three batches."""
        return cls(clusters, aliased=True, batches=3, pairwise=True, new_optimizer=True)

    @classmethod
    def corrected(cls, clusters: int = 5) -> IFCA:
        """The same as a plain call, and as printed by Ghosh et al."""
        return cls(clusters)

    def init(self, fed: Fed) -> State:
        """Initialise θ_1, …, θ_k, all different."""
        return State(fed.start(self.clusters), torch.zeros_like(fed.n))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta = state.theta
        clients = fed.sample(self.sampled)  # M_t <- random subset of clients
        chosen = self.choose(fed, theta, clients)  # broadcast all θ_j; ĵ = argmin F_i
        labels = state.labels.index_copy(0, clients, chosen)
        changes: dict[str, Any] = {}
        if self.new_optimizer:
            changes["keep_state"] = False
        if self.aliased:
            return State(train_aliased(fed, theta, labels, clients, **changes), labels)
        trained = fed.train(theta[chosen], clients, **changes).theta  # θ_i from θ_ĵ
        # average within clusters
        theta = mean_by(trained, fed.n[clients], chosen, old=theta)
        return State(theta, labels)

    def choose(self, fed: Fed, theta: Tensor, clients: Tensor) -> Tensor:  # (n,)
        """The row with the lowest loss for each client.

        Of equal rows it is the first, but with ``pairwise`` the last.
        """
        if self.pairwise:
            return choose_pairwise(fed, theta, clients, self.batches)
        if bool((theta == theta[0]).all()):  # all rows are equal
            return torch.zeros_like(clients)
        if self.batches is None:
            return fed.loss(theta, clients).argmin(1)
        losses = fed.loss(theta, clients, batches=self.batches, draw=fed.draw())
        return losses.argmin(1)


def choose_pairwise(
    fed: Fed, theta: Tensor, clients: Tensor, batches: int | None
) -> Tensor:  # (n,)
    """Let each client compare its best row so far with the next; the next wins ties.

    Each of the two rows is evaluated on other random batches of the client. A row that
    several clusters share is sent and evaluated once.
    """
    rows, row_of = theta.unique(dim=0, return_inverse=True)  # (U, D), (C,)
    best = torch.zeros_like(clients)
    for k in range(1, len(theta)):
        of_all = fed.loss(
            rows, clients, batches=batches, draw=fed.draw(), travels=k == 1
        )  # (n, U)
        of_best = of_all.gather(1, row_of[best][:, None])[:, 0]
        of_next = fed.loss(
            theta[k], clients, batches=batches, draw=fed.draw(), travels=False
        )
        best = torch.where(of_best >= of_next, k, best)
    return best


def train_aliased(
    fed: Fed, theta: Tensor, labels: Tensor, clients: Tensor, **changes: Any
) -> Tensor:  # (C, D)
    """Train each cluster's object client after client, then merge the picked clusters.

    Returns the models of all clusters. Clusters with equal rows share an object
    already: the server's. The server averages the picked clusters into that object, one
    after the other, and all of them share it from then on. So it ends with the model of
    the last picked cluster that had an object of its own. If there is none, it ends
    with what the clients made of the shared object.
    """
    same = (theta[:, None] == theta).all(2)  # (C, C)
    object_of = same.long().argmax(1)  # (C,) the first cluster with the same object
    alone = same.sum(1) == 1  # (C,) has an object of its own
    rows = theta.clone()
    for client in clients.tolist():
        row = object_of[labels[client]]
        rows[row] = fed.train(rows[row], torch.tensor([client]), **changes).theta[0]
    picked = torch.zeros_like(alone).index_fill(0, labels[clients], True)
    candidates = picked & alone
    if not bool(candidates.any()):
        candidates = picked
    last = int(candidates.nonzero().max())
    becomes_one = picked | ~alone
    return torch.where(becomes_one[:, None], rows[object_of[last]], theta)
