"""Views of a federation: what a method sees when it does not have the clients alone.

:class:`Subfederation` is a cluster as a federation of its own, so that any method can
run inside it; FedGWC does that. :class:`Arms` runs several methods in step through one
federation and trains what they have in common only once; the chapters on OCFL and
FedGWC do that.

A view is a :class:`~fednb.door.Fed`, with all its verbs. It refuses the verbs of a
judge: ask the federation behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_type_hints

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from . import door
from .door import Fed, Judge, Update
from .training import plan

if TYPE_CHECKING:
    from .backends import Correction


class View:
    """What every view passes on, as it is, from the federation behind it."""

    def __init__(self, fed: Fed) -> None:
        self.fed = fed
        self.classes = fed.classes
        self.local = fed.local
        self.layout = fed.layout
        self.device = fed.device
        self.dtype = fed.dtype
        self.start = fed.start
        self.draw = fed.draw
        self.probe = fed.probe
        self.predict = fed.predict

    @property
    def t(self) -> int:
        """The round."""
        return self.fed.t

    def __getattr__(self, name: str) -> Any:
        if hasattr(Judge, name) or name in Judge.__annotations__:
            raise AttributeError(
                f"{type(self).__name__}.{name}: a view is for methods, and this is for "
                "judges; ask the federation behind it"
            )
        raise AttributeError(f"{type(self).__name__} has no {name}")


# --- a cluster as a federation --------------------------------------------------------


class Subfederation(View):
    """Some clients of a federation, numbered 0, 1, ... within it.

    ``members`` are their numbers in ``fed``, ascending. Without ``sampled``, ``sample``
    draws among the members. With ``sampled``, numbers of members in ``fed``, it returns
    these clients, whatever size the method inside asks for, and ``losses`` holds their
    losses.
    """

    def __init__(
        self, fed: Fed, members: Tensor, sampled: Tensor | None = None
    ) -> None:
        super().__init__(fed)
        self.members = _ascending("members", members, fed)  # (K',) numbers in fed
        self.sampled = sampled  # (n,) numbers in fed
        if sampled is not None:
            self.sampled = _ascending("sampled", sampled, fed)
            if not bool(torch.isin(self.sampled, self.members).all()):
                raise ValueError("Subfederation(sampled): need members only")
        self.K = len(self.members)
        self.n = fed.n[self.members]
        self._curves: list[Tensor] = []

    def sample(
        self, size: int | float = 1.0, among: Tensor | None = None
    ) -> Tensor:  # (n,)
        """The sampled clients, or a draw among the members if none were given."""
        pool = self.members[self._who("sample", among)]
        if self.sampled is None:
            return self._inside(self.fed.sample(size, among=pool))
        return self._inside(self.sampled[torch.isin(self.sampled, pool)])

    def tickets(self) -> Tensor:  # (K,)
        """The members' tickets."""
        return self.fed.tickets()[self.members]

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
        """Train members as ``fed.train`` does."""
        update = self.fed.train(
            theta,
            self.members[self._who("train", clients)],
            correct=correct,
            args=args,
            travels=travels,
            sent=sent,
            slot=slot,
            **changes,
        )
        # training of all members is no part of the round
        if self.sampled is not None and clients is not None:
            at = torch.isin(update.clients, self.sampled)
            self._curves.append(update.losses[at])
        return update._replace(clients=self._inside(update.clients))

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
        """Mean losses at members as ``fed.loss`` gives them."""
        who = self.members[self._who("loss", clients)]
        return self.fed.loss(
            theta, who, on, batches=batches, draw=draw, travels=travels
        )

    def best_share(self, theta: Tensor, clients: Tensor | None = None) -> Tensor:
        """Shares of members' samples as ``fed.best_share`` gives them."""
        return self.fed.best_share(
            theta, self.members[self._who("best_share", clients)]
        )

    @property
    def losses(self) -> Tensor:  # (n, S)
        """Losses of the sampled clients at all their steps so far."""
        if not self._curves:
            raise ValueError(
                "Subfederation.losses: none yet; they are those of the clients given "
                "as sampled, after they have trained"
            )
        return torch.cat(self._curves, 1)

    def _who(self, verb: str, clients: Tensor | None) -> Tensor:  # (n,)
        return door.client_numbers(verb, clients, self.K, self.device)

    def _inside(self, numbers: Tensor) -> Tensor:
        """Clients' numbers in this view, from those in ``fed``."""
        return torch.searchsorted(self.members, numbers)


def _ascending(name: str, clients: Tensor, fed: Fed) -> Tensor:
    """Numbers of one client or more, each larger than the one before."""
    words = f"Subfederation({name})"
    numbers = door.client_numbers(words, clients, fed.K, fed.device)
    if len(numbers) == 0 or bool((numbers.diff() <= 0).any()):
        raise ValueError(f"{words}: need one client at least, in ascending order")
    return numbers


def follow(state: Any, keep: Tensor) -> Any:
    """Restrict a method's state to the clients in the mask ``keep`` (K',).

    That can be done if all that belongs to single clients are rows of ``theta``: for a
    method with one model for all, or one for each client. A row of theta that served
    only others is dropped. A row that serves nobody is the server's own, and stays.
    """
    none = torch.zeros(len(state.theta), dtype=torch.bool, device=keep.device)
    serves = none.index_fill(0, state.labels, True)
    stays = ~serves
    stays[state.labels[keep]] = True
    place = stays.cumsum(0) - 1  # of each old row among those that stay
    return state._replace(theta=state.theta[stays], labels=place[state.labels[keep]])


def pack(parts: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Put (members, state, ...) of all clusters together, as tensors of all clients."""
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
    kind = get_type_hints(method.init, localns={"Fed": Fed})["return"]
    parts = []
    first = 0  # row of theta with which the cluster begins
    for c, theta in enumerate(state.theta.split(state.rows.tolist())):
        members = (state.clusters == c).nonzero()[:, 0]
        memory = [tensor[c] for tensor in state.memory]
        own_state = kind(theta, state.labels[members] - first, *memory)
        parts.append((members, own_state))
        first += len(theta)
    return parts


# --- several methods in step ----------------------------------------------------------

# Counters of a snapshot that grow with the work done.
COUNTERS = ("visits", "meter.down", "meter.up", "meter.updates")

Snapshot = dict[str, np.ndarray]


class ArmsState(NamedTuple):
    """The arms' own states, and what each saw in the last round."""

    theta: Tensor  # (1, D) the first arm's first model
    labels: Tensor  # (A, K)
    names: tuple[str, ...]
    arms: tuple[Any, ...]
    memory: tuple[Snapshot, ...]  # of each arm's federation: visits, draws, traffic
    sent: tuple[Tensor, ...]  # A x (n, D) the models that clients received last
    back: tuple[Update, ...]  # and what came back
    changed: Tensor  # (A,) the last round, from 1, in which clusters changed; 0: never


@dataclass(frozen=True)
class Arms:
    """Run methods, given as pairs of name and method, in step.

    No client is trained twice from the same model in the same round, yet each arm ends
    where it would have ended alone, bit for bit.

    There are two counts of the work. The federation's own meter, which a record keeps,
    says what was really trained and sent: work that arms have in common counts once.
    What an arm would have cost alone is in its part of ``ArmsState.memory``.
    :func:`fednb.experiment.run_together` gives each arm its own history and meter.

    A state keeps what clients received and sent back in the last round, for measures
    that look at updates. With many clients and arms this is most of a checkpoint:
    ``keep_updates=False`` leaves it out.
    """

    # 2: the federation's meter counts what was really done, not the last arm's work
    revision: ClassVar[int] = 2

    arms: tuple[tuple[str, Any], ...]
    keep_updates: bool = True

    def __post_init__(self) -> None:
        if len(self.arms) == 0:
            raise ValueError("Arms(arms=()): need one method at least")

    def init(self, fed: Judge) -> ArmsState:
        """Start all arms, each in the federation as it was given."""
        start = fed.snapshot()
        total = fed.snapshot()
        shared = SharedTraining(fed)
        states = []
        memory = []
        for _, method in self.arms:
            fed.restore(start)
            states.append(method.init(shared))
            memory.append(fed.snapshot())
            _add_work(total, start, memory[-1])
        _remove_work(total, shared.spared)
        fed.restore(total)
        return ArmsState(
            theta=states[0].theta[:1],
            labels=torch.stack([state.labels for state in states]),
            names=tuple(name for name, _ in self.arms),
            arms=tuple(states),
            memory=tuple(memory),
            sent=(),
            back=(),
            changed=torch.zeros(len(states), dtype=torch.long),
        )

    def step(self, state: ArmsState, fed: Judge, t: int) -> ArmsState:
        """Let each arm do its round, in its own federation."""
        total = fed.snapshot()
        shared = SharedTraining(fed)
        arms = []
        memory = []
        sent = []
        back = []
        for (_, method), old, before in zip(
            self.arms, state.arms, state.memory, strict=True
        ):
            fed.restore(before)
            shared.forget_last_call()
            arms.append(method.step(old, shared, t))
            memory.append(fed.snapshot())
            if self.keep_updates:
                sent.append(shared.sent)
                back.append(shared.back)
            _add_work(total, before, memory[-1])
        _remove_work(total, shared.spared)
        fed.restore(total)

        labels = torch.stack([arm.labels for arm in arms])
        same = torch.stack(
            [_same(a, b) for a, b in zip(labels, state.labels, strict=True)]
        )
        return ArmsState(
            theta=arms[0].theta[:1],
            labels=labels,
            names=state.names,
            arms=tuple(arms),
            memory=tuple(memory),
            sent=tuple(sent),
            back=tuple(back),
            changed=torch.where(same, state.changed, t + 1),
        )


class SharedTraining(View):
    """A federation for one round that trains no client twice on the same model.

    It answers as the federation does. The federation's counters grow as if every
    client had been trained; ``spared`` is the part of this that was not done.
    ``sent`` and ``back`` are the rows of the last training and what came back.
    """

    def __init__(self, fed: Judge) -> None:
        super().__init__(fed)
        self.fed: Judge = fed
        self.K = fed.K
        self.n = fed.n
        self.sample = fed.sample
        self.tickets = fed.tickets
        self.loss = fed.loss
        self.best_share = fed.best_share
        # (client, visit, model sent) -> its new row and its losses
        self.known: dict[tuple[int, int, bytes], tuple[Tensor, Tensor]] = {}
        self.travelled: set[tuple[int, int, bytes]] = set()
        self.spared: Snapshot = {name: np.array(0) for name in COUNTERS}
        self.spared["visits"] = np.zeros(fed.K, dtype=np.int64)
        self.forget_last_call()

    def forget_last_call(self) -> None:
        """Start an arm's round: nothing has been sent yet."""
        nobody = torch.zeros(0, dtype=torch.long)
        self.sent = torch.zeros(0, self.layout.D)
        self.back = Update(torch.zeros(0, self.layout.D), torch.zeros(0, 0), nobody)

    def snapshot(self) -> Snapshot:
        """The federation's counters, for an arm that runs a second method beside it."""
        return self.fed.snapshot()

    def restore(self, arrays: Snapshot) -> None:
        """Take back what snapshot() gave.

        Work done since then still counts in the end: ``spared`` is lowered by it.
        """
        now = self.fed.snapshot()
        for name in COUNTERS:
            _add(self.spared, name, arrays[name] - now[name])
        self.fed.restore(arrays)

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
        """Train as ``fed.train`` does; what was trained before is looked up.

        Only plain calls are looked up: those without a correction of gradients, changes
        of `Local` or ``sent``, and without an optimiser that remembers earlier rounds.
        """
        who = door.client_numbers("train", clients, self.K, self.device)
        rows = door.matrix_of_rows("train", theta, self.layout, self.dtype, self.device)
        rows = door.row_per_client(theta, rows, len(who))
        own_rule = correct is not None or len(args) > 0 or len(changes) > 0
        own_rule = own_rule or sent is not None
        if own_rule or self.local.keep_state or len(who) == 0:
            self.back = self.fed.train(
                theta,
                clients,
                correct=correct,
                args=args,
                travels=travels,
                sent=sent,
                slot=slot,
                **changes,
            )
        else:
            self.back = self._train_or_look_up(rows, who, travels)
        self.sent = rows
        return self.back

    def _train_or_look_up(self, rows: Tensor, who: Tensor, travels: bool) -> Update:
        before = self.fed.snapshot()
        keys = [
            (k, int(before["visits"][k]), model)
            for k, model in zip(who.tolist(), _bytes_of_rows(rows), strict=True)
        ]
        is_new = [key not in self.known for key in keys]
        new = [i for i, yes in enumerate(is_new) if yes]
        looked_up = [i for i, yes in enumerate(is_new) if not yes]
        if new:
            update = self.fed.train(rows[new], who[new], travels=travels)
            for j, i in enumerate(new):
                steps = self._num_steps(keys[i][0])
                self.known[keys[i]] = (update.theta[j], update.losses[j, :steps])

        # count as if all had been trained, and note what was not done or sent again
        if looked_up:
            numbers = who.cpu().numpy()
            after = self.fed.snapshot()
            after["visits"][numbers[looked_up]] += 1
            self.spared["visits"][numbers[looked_up]] += 1
            _add(after, "meter.updates", len(looked_up))
            _add(self.spared, "meter.updates", len(looked_up))
            if travels:
                size = rows[0].nbytes
                again = [i for i in looked_up if keys[i] in self.travelled]
                for direction in ("meter.down", "meter.up"):
                    _add(after, direction, size * len(looked_up))
                    _add(self.spared, direction, size * len(again))
            self.fed.restore(after)
        if travels:
            self.travelled.update(keys)

        found = [self.known[key] for key in keys]
        theta = torch.stack([row for row, _ in found])
        losses = pad_sequence(
            [losses for _, losses in found],
            batch_first=True,
            padding_value=torch.nan,
        )
        return Update(theta, losses, who)

    def _num_steps(self, client: int) -> int:
        """How many local steps a client does in a round."""
        samples = np.arange(int(self.n[client]))
        return len(plan(samples, self.local, np.random.default_rng(0)).size)


def _add_work(total: Snapshot, before: Snapshot, after: Snapshot) -> None:
    """Add what was done between two snapshots to the counters of ``total``."""
    for name in COUNTERS:
        _add(total, name, after[name] - before[name])


def _remove_work(total: Snapshot, spared: Snapshot) -> None:
    """Take work that was not done off the counters of ``total``."""
    for name in COUNTERS:
        _add(total, name, -spared[name])


def _add(counters: Snapshot, name: str, more: Any) -> None:
    counters[name] = counters[name] + more


def tensor_bytes(x: Tensor) -> bytes:
    """A tensor's numbers as bytes: equal if and only if they are the same bits."""
    return x.cpu().contiguous().numpy().tobytes()


def _bytes_of_rows(rows: Tensor) -> list[bytes]:
    """`tensor_bytes` of each row (n, D); one model that is sent to all, only once."""
    if rows.stride(0) == 0:
        return [tensor_bytes(rows[0])] * len(rows)
    return [tensor_bytes(row) for row in rows]


def _same(a: Tensor, b: Tensor) -> Tensor:
    """Whether two labelings group alike."""
    return ((a[:, None] == a) == (b[:, None] == b)).all()
