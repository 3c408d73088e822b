"""Several methods in one federation: what they have in common is trained once.

Before OCFL's trigger all clusterers share one model, and so do FedAvg, CFL and FL+HC.
After it, those that found the same cluster go on alike. `Arms` runs methods side by
side and never trains a client twice from the same model in the same round; each arm
ends where it would have ended alone, bit for bit.

There are two counts of the work. The federation's own meter, which a record keeps, says
what was really trained and sent: work that arms have in common counts once. What an arm
would have cost alone is in its part of ``State.memory``; `judge` reports it as
``"arm|client_updates"`` and ``"arm|bytes"``. `look` and `judge` are what the tasks
measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .. import metrics
from ..clustering import by_distance
from ..explain import insertion_deletion
from ..federation import Federation, Update
from ..methods.ocfl import displacement, temperature
from ..similarity import cosine_distance

CLUSTERERS = {
    "OCFL-KM": {"clusterer": "kmeans"},
    "OCFL-AFF": {"clusterer": "affinity"},
    "OCFL-MS": {"clusterer": "meanshift"},
    "OCFL-HDB": {"clusterer": "hdbscan"},
    "OCFL-AFF as released": {"clusterer": "affinity", "swapped": True},
    "OCFL-HDB as released": {"clusterer": "hdbscan", "noise": "together"},
}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


# Counters of a snapshot that grow with the work done.
COUNTERS = ("visits", "meter.down", "meter.up", "meter.updates")

Snapshot = dict[str, np.ndarray]


class State(NamedTuple):
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
    """Run methods, given as pairs of name and method, in step."""

    # 2: the federation's meter counts what was really done, not the last arm's work
    revision: ClassVar[int] = 2

    arms: tuple[tuple[str, Any], ...]

    def init(self, fed: Federation) -> State:
        """Start all arms, each in the federation as it was given."""
        start = fed.snapshot()
        total = fed.snapshot()
        once = Once(fed)
        states = []
        memory = []
        for _, method in self.arms:
            fed.restore(start)
            states.append(method.init(once))
            memory.append(fed.snapshot())
            add_work(total, start, memory[-1])
        remove_work(total, once.spared)
        fed.restore(total)
        return State(
            theta=states[0].theta[:1],
            labels=torch.stack([state.labels for state in states]),
            names=tuple(name for name, _ in self.arms),
            arms=tuple(states),
            memory=tuple(memory),
            sent=(),
            back=(),
            changed=torch.zeros(len(states), dtype=torch.long),
        )

    def step(self, state: State, fed: Federation, t: int) -> State:
        """Let each arm do its round, in its own federation."""
        total = fed.snapshot()
        once = Once(fed)
        arms = []
        memory = []
        sent = []
        back = []
        for (_, method), old, before in zip(
            self.arms, state.arms, state.memory, strict=True
        ):
            fed.restore(before)
            once.forget_last_call()
            arms.append(method.step(old, once, t))
            memory.append(fed.snapshot())
            sent.append(once.sent)
            back.append(once.back)
            add_work(total, before, memory[-1])
        remove_work(total, once.spared)
        fed.restore(total)

        labels = torch.stack([arm.labels for arm in arms])
        same = torch.stack(
            [_same(a, b) for a, b in zip(labels, state.labels, strict=True)]
        )
        return State(
            theta=arms[0].theta[:1],
            labels=labels,
            names=state.names,
            arms=tuple(arms),
            memory=tuple(memory),
            sent=tuple(sent),
            back=tuple(back),
            changed=torch.where(same, state.changed, t + 1),
        )


class Once:
    """A federation for one round that trains no client twice on the same model.

    It answers as the federation does, whose counters grow as if all had been trained
    again; ``spared`` says by how much too far.
    """

    def __init__(self, fed: Federation) -> None:
        self.fed = fed
        # (client, visit, model sent) -> its new row and its losses
        self.known: dict[tuple[int, int, bytes], tuple[Tensor, Tensor]] = {}
        self.travelled: set[tuple[int, int, bytes]] = set()
        self.spared: Snapshot = {name: np.array(0) for name in COUNTERS}
        self.spared["visits"] = np.zeros(fed.K, dtype=np.int64)
        self.forget_last_call()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fed, name)

    def forget_last_call(self) -> None:
        """Before an arm's round: nothing was sent."""
        nobody = torch.zeros(0, dtype=torch.long)
        self.sent = torch.zeros(0, self.fed.layout.D)
        self.back = Update(torch.zeros(0, self.fed.layout.D), torch.zeros(0, 0), nobody)

    def train(
        self,
        theta: Tensor,
        clients: Tensor | None = None,
        *,
        correct: Any = None,
        args: Sequence[Tensor] = (),
        travels: bool = True,
        slot: int = 0,
        **changes: Any,
    ) -> Update:
        """As `Federation.train`; what was trained before is looked up.

        Only plain calls are: no correction of gradients, no change of `Local`, and no
        optimiser that remembers earlier rounds.
        """
        who = self.fed._who("train", clients)
        rows = self.fed._row_per_client(theta, len(who))
        own_rule = correct is not None or len(args) > 0 or len(changes) > 0
        if own_rule or self.fed.local.keep_state or len(who) == 0:
            self.back = self.fed.train(
                theta,
                clients,
                correct=correct,
                args=args,
                travels=travels,
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
            (k, int(before["visits"][k]), _bytes(row))
            for k, row in zip(who.tolist(), rows, strict=True)
        ]
        is_new = [key not in self.known for key in keys]
        new = [i for i, yes in enumerate(is_new) if yes]
        looked_up = [i for i, yes in enumerate(is_new) if not yes]
        if new:
            update = self.fed.train(rows[new], who[new], travels=travels)
            for j, i in enumerate(new):
                steps = len(self.fed._plan(keys[i][0], self.fed.local).size)
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


def add_work(total: Snapshot, before: Snapshot, after: Snapshot) -> None:
    """Add what was done between two snapshots to the counters of ``total``."""
    for name in COUNTERS:
        _add(total, name, after[name] - before[name])


def remove_work(total: Snapshot, spared: Snapshot) -> None:
    """Take work that was not done off the counters of ``total``."""
    for name in COUNTERS:
        _add(total, name, -spared[name])


def _add(counters: Snapshot, name: str, more: Any) -> None:
    counters[name] = counters[name] + more


def _bytes(x: Tensor) -> bytes:
    return x.cpu().contiguous().numpy().tobytes()


def _same(a: Tensor, b: Tensor) -> Tensor:
    """Whether two labelings group alike."""
    return ((a[:, None] == a) == (b[:, None] == b)).all()


def look(
    fed: Federation, state: State, updates: Sequence[str] = ("parameters",)
) -> dict[str, Any]:
    """How hot the first arm's updates are, and what each clusterer would make of them now.

    The clusters of a round are written as one string, a character for each client.
    """
    out: dict[str, Any] = {}
    for kind in updates:
        mark = "" if kind == "parameters" else f"{kind} "
        Gamma = cosine_distance(displacement(fed, state.sent[0], state.back[0], kind))
        out[f"{mark}temperature"] = float(temperature(Gamma))
        for name, how in CLUSTERERS.items():
            found = by_distance(Gamma, k=3, seed=fed.seed, **how).tolist()
            out[mark + name] = "".join(DIGITS[c] for c in found)
    return out


def judge(
    fed: Federation,
    state: State,
    every: int = 3,
    final: int = 0,
    per_class: int = 40,
    images: int = 10,
) -> dict[str, Any]:
    """`look`, and now and then what each arm has reached, as ``"arm|score"``.

    Every ``every`` rounds and in round ``final`` these are each arm's `scores`, the
    ``round`` in which its clusters changed last, and the ``client_updates`` and
    ``bytes`` that it would have cost alone; in round ``final`` also `late`.
    """
    out = look(fed, state)
    last = fed.t + 1 == final
    if (fed.t + 1) % every and not last:
        return out
    x, y = fed.probe(per_class)
    known = {}
    for i, (name, arm) in enumerate(zip(state.names, state.arms, strict=True)):
        key = _bytes(arm.theta) + _bytes(arm.labels)
        votes = getattr(arm, "votes", None)
        if votes is not None:
            key += _bytes(votes)
        if key not in known:  # arms that found the same are alike
            found, pf1 = scores(fed, arm, x, y)
            if last:
                found |= late(fed, arm, state.back[i], x, y, pf1, images)
            known[key] = found
        memory = state.memory[i]
        own = {
            "round": int(state.changed[i]),
            "client_updates": int(memory["meter.updates"]),
            "bytes": int(memory["meter.down"] + memory["meter.up"]),
        }
        for kind, value in (known[key] | own).items():
            out[f"{name}|{kind}"] = value
    return out


def scores(
    fed: Federation, arm: Any, x: Tensor, y: Tensor
) -> tuple[dict[str, Any], np.ndarray]:
    """PF1, GF1 and how good the clusters are; and PF1 of each client (K,).

    PF1 is that of clients on their own test samples, GF1 that of their models on the
    server's.
    """
    votes = getattr(arm, "votes", None)
    serving = arm.labels if votes is None else votes
    own = fed.evaluate(arm.theta, serving).confusion.numpy()  # (K, classes, classes)
    pf1 = metrics.macro_f1(own, over="true")
    gf1 = served_f1(fed, arm, x, y)
    true = fed.truth.labels
    found = getattr(arm, "clusters", arm.labels).numpy()
    out = {
        "pf1": metrics.average(pf1),
        "pf1_union": metrics.average(metrics.macro_f1(own, over="union")),
        "gf1": metrics.average(gf1),
        "gap": metrics.average(np.abs(pf1 - gf1)),
        "accuracy": metrics.average(metrics.accuracy(own)),
        "ari": float(metrics.adjusted_rand(true, found)),
        "ami": float(metrics.ami(true, found)),
        "homogeneity": float(metrics.homogeneity(true, found)),
        "completeness": float(metrics.completeness(true, found)),
        "clusters": len(np.unique(found)),
    }
    return out, pf1


def late(
    fed: Federation,
    arm: Any,
    back: Update,
    x: Tensor,
    y: Tensor,
    pf1: np.ndarray,
    images: int,
) -> dict[str, Any]:
    """GF1 as the authors took it, and insertion and deletion areas.

    Theirs is of the models that clients sent, before they are averaged.
    """
    gf1 = server_f1(fed, back.theta, x, y)
    own = pf1[back.clients.cpu().numpy()]
    out = {
        "gf1_before": metrics.average(gf1),
        "gap_before": metrics.average(np.abs(own - gf1)),
    }
    for mode, mark in {"in": "", "server": "_server"}.items():
        found = insertion_deletion(
            fed, arm, fed._model, mode, sample=images, step=4 * x.shape[-1]
        )
        out |= {
            f"{kind}{mark}": float(found[kind].mean())
            for kind in ("insertion", "deletion")
        }
    return out


def server_f1(
    fed: Federation, theta: Tensor, x: Tensor, y: Tensor
) -> np.ndarray:  # (C,)
    """Macro-F1 of each model (C, D) on the server's samples."""
    return _macro_f1(fed, fed.predict(theta, x).argmax(2), y)


def served_f1(fed: Federation, arm: Any, x: Tensor, y: Tensor) -> np.ndarray:  # (K,)
    """Macro-F1 of what serves each client, a model or a soft vote of them."""
    votes = getattr(arm, "votes", None)  # (K, C)
    if votes is None:
        return server_f1(fed, arm.theta, x, y)[arm.labels]
    probability = fed.predict(arm.theta, x).softmax(2)  # (C, m, classes)
    mixed = torch.einsum("kc,cmj->kmj", votes.to(probability), probability)
    return _macro_f1(fed, mixed.argmax(2), y)


def _macro_f1(fed: Federation, guess: Tensor, y: Tensor) -> np.ndarray:  # (C,)
    """Macro-F1 of guesses (C, m) of the classes y (m,)."""
    cells = y * fed.classes + guess
    counts = [
        torch.bincount(row, minlength=fed.classes**2).view(fed.classes, -1).numpy()
        for row in cells
    ]
    return metrics.macro_f1(np.stack(counts), over="union")


def keys(names: Iterable[str], kinds: Iterable[str]) -> tuple[str, ...]:
    """The names under which `judge` writes."""
    return tuple(f"{name}|{kind}" for name in names for kind in kinds)
