"""The door between a method and its clients: what may be asked, and what comes back.

A method is given a :class:`Fed`. It sees the number of clients ``K``, their sizes
``n``, and a few verbs; never a sample of a client, and never the hidden truth about
clusters. The judge of a method is given a :class:`Judge`, which can do all that a `Fed`
can, and may also look at samples, truth and traffic.

:class:`~fednb.federation.Federation` is both. A view of it, such as a cluster as a
federation of its own, is a `Fed` (see :mod:`fednb.views`). Tests hold every one of them
to the signatures below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from . import checks

if TYPE_CHECKING:
    from .backends import Correction
    from .params import Layout
    from .training import Local

# --- what passes the door -------------------------------------------------------------


class Update(NamedTuple):
    """What comes back from local training of n clients."""

    theta: Tensor  # (n, D) the clients' new rows
    losses: Tensor  # (n, S) loss at every local step, nan after a client's last
    clients: Tensor  # (n,) who they are


class Evaluation(NamedTuple):
    """How models do on labelled samples.

    Each sample has an owner, a class, and a class predicted. The owner is a client, or
    for the server's samples a model that several clients share.
    """

    owner: Tensor  # (N,)
    true: Tensor  # (N,)
    pred: Tensor  # (N,)
    # (K,) mean cross-entropy of each client; nan without samples, and infinite if the
    # client's model is not finite
    loss: Tensor
    of: Tensor  # (K,) the owner that stands for each client
    classes: int

    @property
    def confusion(self) -> Tensor:  # (K, classes, classes)
        """Counts of (true class, predicted class) for each client."""
        K = len(self.of)
        C = self.classes
        if K * C * C > 4e8:
            raise ValueError(
                f"{K} clients x {C} x {C} classes do not fit in memory: work on owner, "
                "true and pred"
            )
        owners = int(self.of.max()) + 1
        cells = (self.owner * C + self.true) * C + self.pred
        counts = torch.bincount(cells, minlength=owners * C * C)
        return counts.view(owners, C, C)[self.of]


class Truth(NamedTuple):
    """What only the judge may see.

    Hidden clusters (None if there are none), and the class counts of each client.
    """

    labels: np.ndarray | None  # (K,)
    counts: np.ndarray  # (K, classes)


@dataclass
class Meter:
    """Traffic so far.

    Bytes to the clients, bytes from them, and how many local trainings were done.
    """

    down: int = 0
    up: int = 0
    updates: int = 0

    @property
    def bytes(self) -> int:
        """Both directions together."""
        return self.down + self.up


class Event(NamedTuple):
    """Something that went wrong in a round, recorded because training went on."""

    round: int
    client: int
    what: str


# --- who may ask what -----------------------------------------------------------------


class Fed(Protocol):
    """What a method sees of a federation.

    ``clients`` is always a vector of their numbers, a mask (K,), or None for all.
    """

    K: int  # number of clients
    n: Tensor  # (K,) training samples of each client
    t: int  # the round, from 0
    classes: int  # 0 for a regression
    local: Local  # what a client does in a round
    layout: Layout  # of a row: D columns, the first P of them parameters
    device: torch.device
    dtype: torch.dtype  # of a row

    def start(self, models: int = 1) -> Tensor:  # (models, D)
        """Initial rows; row j depends on the seed and on j only.

        So all methods of one seed start alike.
        """

    def sample(
        self, size: int | float = 1.0, among: Tensor | None = None
    ) -> Tensor:  # (n,)
        """Draw clients without replacement: a number of them, or a fraction.

        ``among`` restricts the draw: a mask (K,), or numbers of clients.
        """

    def tickets(self) -> Tensor:  # (K,)
        """A random number in [0, 1) for each client, whatever the order of the clients.

        ``sample`` takes the clients with the smallest numbers. Turned into Gumbel
        noise, they draw clients with unequal probabilities.
        """

    def draw(self) -> int:
        """Draw an integer from the server's own stream, to seed its k-means, say.

        What ``sample`` draws does not depend on it.
        """

    def train(
        self,
        theta: Tensor,
        clients: Tensor | None = None,
        *,
        correct: Correction | None = None,
        args: Sequence[Tensor] = (),
        travels: bool = True,
        sent: int | None = None,
        slot: int = 0,
        **changes: Any,
    ) -> Update:
        """Send rows to clients, let each train on its data, and bring new rows back.

        ``theta`` is one row (D,) for all, or a row per client (n, D).

        ``correct(g, th)`` may change every gradient before it is used: FedProx is
        ``correct=lambda g, th: g + mu * (th - w)``. What differs from client to client
        is passed along in ``args``, tensors with one line per client:
        ``correct=lambda g, th, w: ..., args=(w,)``. Both g and th are rows, (D,) or
        (n, D), with zeros where g meets buffers.

        With ``travels=False`` the rows are the clients' own and stay with them: the
        meter counts updates but no bytes. ``sent`` is how many numbers travel each way
        for a client, if not a whole row: less if a part stays with the client, more if
        something goes along. A method that trains several models at a client numbers
        them by ``slot``: each has its own momentum, if kept. Further keywords change
        :class:`~fednb.training.Local` for this call: ``train(theta, S, lr=0.1)``.
        """

    def loss(
        self,
        theta: Tensor,
        clients: Tensor | None = None,
        on: str = "train",
        *,
        batches: int | None = None,
        draw: int = 0,
        travels: bool = True,
    ) -> Tensor:
        """Mean loss of every row at every client: (C, D) -> (n, C), or (D,) -> (n,).

        IFCA chooses by it. ``on`` is ``"train"`` or ``"test"``; a client without such
        samples has nan. ``batches`` limits it to so many random batches of each client,
        from a random stream of its own: training meets the same batches as without.
        A different ``draw``, such as ``fed.draw()``, gives different batches.

        With ``travels=False`` the clients have the rows: only losses are counted.
        """

    def best_share(self, theta: Tensor, clients: Tensor | None = None) -> Tensor:
        """Share of each client's training samples that each row fits best: (n, C).

        The row of least loss at a sample fits it best, the first of equals. FedSoft's
        importance weights are such shares.
        """

    def probe(self, per_class: int) -> tuple[Tensor, Tensor]:  # (m, ...), (m,)
        """Labelled samples of the server that no client holds.

        So many of each class, or as many as there are; the same ones whenever it is
        asked. They are among those of ``evaluate(on="server")``.
        """

    def predict(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs of every row on given inputs, computed at the server.

        (C, D), (m, ...) -> (C, m, classes).
        """


class Judge(Fed, Protocol):
    """What metrics, explanations and checkpoints see: all of a federation.

    Nothing that a judge asks for is counted by the meter.
    """

    seed: int
    meter: Meter
    events: list[Event]

    @property
    def truth(self) -> Truth:
        """Hidden clusters and class counts: for metrics, never for methods."""

    def evaluate(self, theta: Tensor, labels: Tensor, on: str = "test") -> Evaluation:
        """Let every client be served by its row, and compare with the truth.

        On its ``test`` or ``train`` samples, on its ``validation`` samples if the
        partition set some aside, or on those of the ``server`` that no client holds.
        ``labels`` is (K,), the row of each client; or (K, C), the weight of each row in
        a soft vote of probabilities.
        """

    def unmetered_loss(
        self, theta: Tensor, clients: Tensor | None = None, on: str = "test"
    ) -> Tensor:
        """Mean losses as ``loss`` gives them, without counting them as traffic."""

    def sample_numbers(
        self, clients: Tensor | None = None, on: str = "test"
    ) -> Tensor:  # (N,)
        """Which samples of the data set the clients hold, one client after the other.

        ``on`` is ``"test"``, ``"train"`` or ``"validation"``, or ``"server"`` for
        those that no client holds.
        """

    def samples(self, numbers: Tensor) -> tuple[Tensor, Tensor]:  # (N, ...), (N,)
        """Inputs, as the network takes them, and targets of samples by number."""

    def network(self, row: Tensor) -> nn.Module:
        """A network of its own with the numbers of a row (D,), ready to predict."""

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that changes in a federation while it runs, as arrays.

        ``restore`` brings it back bit for bit.
        """

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take back what ``snapshot`` gave."""


# --- checks of what is asked ----------------------------------------------------------


def num_sampled(sampled: int | float, K: int) -> int:
    """How many of K clients ``sampled`` means: a number, at most K, or a fraction.

    ``fed.sample`` draws that many.
    """
    checks.argument("num_sampled", "sampled", sampled, checks.sampled)
    if isinstance(sampled, float):
        return math.ceil(sampled * K)
    return min(sampled, K)


def client_numbers(
    verb: str, clients: Tensor | None, K: int, device: torch.device
) -> Tensor:  # (n,)
    """Numbers of the clients meant by numbers, by a mask, or by None (all)."""
    if clients is None:
        return torch.arange(K, device=device)
    who = torch.as_tensor(clients, device=device)
    if who.dtype == torch.bool:
        if who.shape != (K,):
            raise ValueError(f"{verb}: a mask of {who.numel()} for {K} clients")
        return who.nonzero()[:, 0]
    if who.numel() == 0:  # an empty list has no type of its own
        who = who.long()
    if who.is_floating_point() or who.is_complex():
        raise ValueError(
            f"{verb}: clients are given as {who.dtype}, need integers or a mask"
        )
    who = who.long().reshape(-1)
    if len(who) and not (int(who.min()) >= 0 and int(who.max()) < K):
        raise ValueError(
            f"{verb}: clients are numbered 0..{K - 1}, found "
            f"{int(who.min())}..{int(who.max())}"
        )
    return who


def is_one_row(theta: Tensor) -> bool:
    """Whether ``theta`` is a row (D,), not a matrix of rows."""
    return torch.as_tensor(theta).dim() == 1


def matrix_of_rows(
    verb: str, theta: Tensor, layout: Layout, dtype: torch.dtype, device: torch.device
) -> Tensor:  # (C, D)
    """One row (D,), or several (C, D), as a matrix; integers become ``dtype``."""
    rows = torch.as_tensor(theta, device=device)
    if not rows.is_floating_point():
        rows = rows.to(dtype)
    if rows.dim() == 1:
        rows = rows[None]
    if rows.dim() != 2 or rows.shape[1] != layout.D:
        raise ValueError(
            f"{verb}: theta of shape {tuple(torch.as_tensor(theta).shape)}, need "
            f"rows of {layout.D} columns"
        )
    return rows


def row_per_client(theta: Tensor, rows: Tensor, n: int) -> Tensor:  # (n, D)
    """The ``rows`` of ``theta`` that n clients are sent: one for all, or one each."""
    if is_one_row(theta):
        return rows.expand(n, -1)
    if len(rows) != n:
        raise ValueError(
            f"train: theta of shape {tuple(rows.shape)}, need one row of "
            f"{rows.shape[1]} columns, or one for each of {n} clients"
        )
    return rows
