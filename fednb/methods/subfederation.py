"""A cluster as a small federation of its own, so that a method can run inside it.

FedGWC leaves open which algorithm aggregates within a cluster. A method asks little of
its federation: sizes, a sample, training. :class:`Subfederation` answers for some of
the clients, who are numbered 0, 1, ... within it. The state of a method can follow its
clients into parts of a cluster, if all that belongs to single clients are rows of
``theta``: a method with one model for all, or one for each client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_type_hints

import torch
from torch import Tensor


class Subfederation:
    """Some clients of a federation for one round, of whom ``sampled`` train.

    It remembers the losses of the sampled clients.
    """

    def __init__(self, fed, members: Tensor, sampled: Tensor) -> None:
        self.fed = fed
        self.members = members  # (K',) numbers in fed, ascending
        self.sampled = sampled  # (n,) numbers in fed, ascending
        self.K = len(members)
        self.n = fed.n[members]
        self.t = fed.t
        self.local = fed.local
        self.layout = fed.layout
        self.device = fed.device
        self.start = fed.start
        self.draw = fed.draw
        self.predict = fed.predict
        self._curves: list[Tensor] = []

    def sample(self, size: int | float = 1.0, among: Tensor | None = None) -> Tensor:
        """The sampled clients, whatever size the method inside asks for."""
        return torch.searchsorted(self.members, self.sampled)

    def train(self, theta: Tensor, clients: Tensor | None = None, **options: Any):
        """Train as ``fed.train`` does."""
        who = self.members if clients is None else self.members[clients]
        up = self.fed.train(theta, who, **options)
        if clients is not None:  # training of all members is no part of the round
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

    A row of theta that served only others is dropped. A row that serves nobody is the
    server's own, and stays.
    """
    serves = torch.zeros(len(state.theta), dtype=torch.bool, device=keep.device)
    stays = ~serves.index_fill(0, state.labels, True)
    stays[state.labels[keep]] = True
    return state._replace(
        theta=state.theta[stays], labels=(stays.cumsum(0) - 1)[state.labels[keep]]
    )


def pack(parts: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Put (members, state, ...) of all clusters together, as tensors for all clients."""
    states = [state for _, state, *_ in parts]
    rows = torch.tensor([len(state.theta) for state in states])
    clusters = torch.cat([members for members, *_ in parts])
    labels = torch.empty_like(clusters)
    for c, (members, state, *_) in enumerate(parts):
        clusters[members] = c
        labels[members] = state.labels + int(rows[:c].sum())
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
    kind = get_type_hints(method.init)["return"]
    parts = []
    first = 0  # row of theta with which the cluster begins
    for c, theta in enumerate(state.theta.split(state.rows.tolist())):
        members = (state.clusters == c).nonzero()[:, 0]
        memory = [tensor[c] for tensor in state.memory]
        model = kind(theta, state.labels[members] - first, *memory)
        parts.append((members, model))
        first += len(theta)
    return parts
