"""MTCFL: a baseline that the GCFL paper lists among the in-training methods, citing
Sattler, Müller, Samek, *Clustered federated learning: model-agnostic distributed
multitask optimization under privacy constraints*, IEEE TNNLS 2021.

It cannot be pinned down. The reference is that of CFL (and for CFL the GCFL paper cites
IFCA), and no text or code tells what "MT" (multi-task?) changes. All we know is that
the tables hold a *post-training* CFL and an *in-training* MTCFL. So this is the
part of Sattler's algorithm that needs no stationary point: its test of the gap between
two groups' updates, made in every round. It is our reading, and its row in a table
should say so.

| Sattler et al. | here |
|---|---|
| α_cross^max, largest cosine between the two parts | at most 1 − 2 gamma_max² |
| ε1, ε2 | no such test |

**Partial participation.** A split is decided by the sampled members alone, so a round
costs as many client updates as clients are sampled. A member that was absent stays with
the larger part. When it is sampled next, it first compares the parts' models on its own
training data and joins the part with the least loss; then it trains like the others.
That costs it some evaluations and the bytes of those models, but no update.

Sattler's paper would send a late client down the tree of all old models, one update for
each level. The direction of a late client's only update in the round, compared with the
parts' directions at the split (as OCFL does it), is no substitute: it starts from a
model that has moved on. In a trial on two seeds that no table uses it found the groups
worse and was less accurate; no records of that trial were kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..door import Fed
from ..params import mean_by
from .cfl import cut


class State(NamedTuple):
    """A model for each cluster, and who missed a split."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)
    parent: Tensor  # (C,) the cluster that each was split off; 0 for the first
    late: Tensor  # (K,) bool: its cluster was split in its absence


@dataclass(frozen=True)
class MTCFL:
    """Split a cluster when the updates of its two parts point in different directions.

    Only sampled members decide; the module's docstring tells what the others do.
    """

    # 2: only the sampled members train and decide; 3: clients' numbers decide no tie
    revision: ClassVar[int] = 3

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # how different two parts must be to be split; √½: no positive cosine across
    gamma_max: float = 0.7071
    wait: int = 1  # warm-up: no split in these first rounds
    smallest: int = 2  # least number of sampled members that can split a cluster

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            gamma_max=checks.number(least=0, most=1),
            wait=checks.integer(0),
            smallest=checks.integer(2),
        )

    def init(self, fed: Fed) -> State:
        """All clients are one cluster."""
        labels = torch.zeros_like(fed.n)
        return State(
            theta=fed.start(),
            labels=labels,
            parent=labels.new_zeros(1),
            late=torch.zeros_like(labels, dtype=torch.bool),
        )

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round."""
        clients = fed.sample(self.sampled)
        # clients whose cluster was split in their absence choose a part of it
        new = place_late(state, fed, clients)
        before = new.theta[new.labels[clients]]
        trained = fed.train(before, clients).theta  # θ_i <- SGD(θ_c, D_i)
        delta = (trained - before)[:, : fed.layout.P]  # ΔW_i = θ_i − θ_c

        if t >= self.wait:
            for c in new.labels[clients].unique().tolist():  # for c ∈ C
                inside = new.labels[clients] == c
                if int(inside.sum()) < self.smallest:
                    continue
                # c1, c2 <- bipartition of α
                part = cut(delta[inside], "single", self.gamma_max)
                if part.any():  # C <- C without c, with c1 and c2
                    leaves = part == smaller_part(part, delta[inside])
                    new = split_cluster(new, c, clients[inside], leaves)

        # θ_c <- Σ_i D_i / D_c θ_i
        theta = mean_by(trained, fed.n[clients], new.labels[clients], old=new.theta)
        return new._replace(theta=theta)


def place_late(state: State, fed: Fed, clients: Tensor) -> State:
    """Let each late client choose a part: its cluster, or one that was split off it."""
    labels = state.labels.clone()
    for client in clients[state.late[clients]]:
        cluster = labels[client]
        is_part = (state.parent == cluster).index_fill(0, cluster, True)
        parts = is_part.nonzero()[:, 0]
        losses = fed.loss(state.theta[parts], client[None])  # (1, parts)
        labels[client] = parts[losses[0].argmin()]
    late = state.late.index_fill(0, clients, False)
    return state._replace(labels=labels, late=late)


def smaller_part(part: Tensor, delta: Tensor) -> int:
    """The part, 0 or 1, with fewer members; of equals, with the shorter updates.

    ``part`` (n,) and ``delta`` (n, P) are the members' parts and updates. Ties are not
    decided by the members' numbers, which must not matter.
    """
    sizes = []
    for p in (0, 1):
        members = int((part == p).sum())
        length = float(delta[part == p].norm())
        sizes.append((members, length))
    return sizes.index(min(sizes))


def split_cluster(state: State, c: int, members: Tensor, leaves: Tensor) -> State:
    """Move those of the sampled members (n,) of cluster ``c`` that leave to a new one.

    Absent members stay in ``c`` and are marked as late.
    """
    absent = (state.labels == c).index_fill(0, members, False)
    return State(
        theta=torch.cat([state.theta, state.theta[c : c + 1]]),
        labels=state.labels.index_fill(0, members[leaves], len(state.theta)),
        parent=torch.cat([state.parent, state.parent.new_tensor([c])]),
        late=state.late | absent,
    )
