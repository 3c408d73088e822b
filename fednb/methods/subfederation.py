"""A cluster as a small federation of its own, so that any method can run inside it.

FedGWC leaves open which algorithm aggregates within a cluster. A method asks little of its federation: sizes, a sample,
training. :class:`Subfederation` answers for some of the clients, who are numbered 0, 1, ... within it. The state of a
method can follow its clients into parts of a cluster, if all that belongs to single clients are rows of ``theta``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_type_hints

import torch
from torch import Tensor


class Subfederation:
    """Some clients of a federation for one round, and the ``sampled`` of them; it remembers their losses.

    ``size`` is a number of clients to sample, or a fraction of the members, but then ``least`` of them if there are.
    """

    def __init__(self, fed, members: Tensor, size: int | float, least: int = 1) -> None:
        self.fed, self.members = fed, members  # (K',) numbers in fed, ascending
        self.K, self.n = len(members), fed.n[members]
        self.t, self.local, self.layout, self.device = (
            fed.t,
            fed.local,
            fed.layout,
            fed.device,
        )
        self.start, self.draw, self.predict = fed.start, fed.draw, fed.predict
        if isinstance(size, float):
            size = max(math.ceil(size * self.K), least)
        self.sampled = fed.sample(size, among=members)  # (n,) numbers in fed
        self._curves: list[Tensor] = []

    def sample(self, size: int | float = 1.0, among: Tensor | None = None) -> Tensor:
        """The sampled clients: drawn once, so whatever the method inside asks for."""
        return torch.searchsorted(self.members, self.sampled)

    def train(self, theta: Tensor, clients: Tensor | None = None, **options: Any):
        """Train as ``fed.train`` does."""
        who = self.members if clients is None else self.members[clients]
        up = self.fed.train(theta, who, **options)
        if (
            clients is not None
        ):  # what is asked of everyone, whoever was sampled, is no part of the round
            self._curves.append(up.losses[torch.isin(up.clients, self.sampled)])
        return up._replace(clients=torch.searchsorted(self.members, up.clients))

    def loss(
        self, theta: Tensor, clients: Tensor | None = None, on: str = "train"
    ) -> Tensor:
        """Mean losses as ``fed.loss`` gives them."""
        return self.fed.loss(
            theta, self.members if clients is None else self.members[clients], on
        )

    @property
    def losses(self) -> Tensor:  # (n, S)
        """Losses of the sampled clients at all their steps so far."""
        return torch.cat(self._curves, 1)


def follow(state: Any, keep: Tensor) -> Any:
    """Restrict a method's state to the clients in the mask ``keep`` (K',).

    A row of theta that served others only is dropped. One that serves nobody is the server's own, and stays.
    """
    serves = torch.zeros(len(state.theta), dtype=torch.bool, device=keep.device)
    stays = ~serves.index_fill(0, state.labels, True)
    stays[state.labels[keep]] = True
    return state._replace(
        theta=state.theta[stays], labels=(stays.cumsum(0) - 1)[state.labels[keep]]
    )


def pack(parts: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Put (members, state, ...) of each cluster together, as tensors for all clients."""
    states = [state for _, state, *_ in parts]
    rows = torch.tensor([len(state.theta) for state in states])
    clusters = torch.cat([members for members, *_ in parts])
    labels = torch.empty_like(clusters)
    for c, (members, state, *_) in enumerate(parts):
        clusters[members], labels[members] = c, state.labels + int(rows[:c].sum())
    memory = zip(*(state[2:] for state in states), strict=True)
    return {
        "theta": torch.cat([state.theta for state in states]),  # (R, D)
        "labels": labels,  # (K,)
        "clusters": clusters,  # (K,)
        "rows": rows.to(labels.device),  # (C,)
        "memory": tuple(torch.stack(tensors) for tensors in memory),
    }


def unpack(state: Any, method: Any) -> list[tuple[Tensor, Any]]:
    """Undo :func:`pack`: members and ``method``'s own state, for each cluster."""
    kind, first = get_type_hints(method.init)["return"], 0
    parts = []
    for c, theta in enumerate(state.theta.split(state.rows.tolist())):
        members = (state.clusters == c).nonzero()[:, 0]
        parts.append(
            (
                members,
                kind(
                    theta, state.labels[members] - first, *(m[c] for m in state.memory)
                ),
            )
        )
        first += len(theta)
    return parts
