"""Several methods through one federation: what they have in common is trained once, and they branch where they differ.

Before OCFL's trigger all clusterers share one model, and so do FedAvg, CFL and FL+HC. After it, those that found the
same cluster go on alike. `Arms` runs methods side by side and never trains a client twice from the same model in the
same round; each arm ends where it would have ended alone, bit for bit. `look` and `judge` are what its tasks measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

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


class State(NamedTuple):
    """The arms' own states, and what each saw in the last round."""

    theta: Tensor  # (1, D) the first arm's first model
    labels: Tensor  # (A, K)
    names: tuple[str, ...]
    arms: tuple[Any, ...]
    memory: tuple[
        dict[str, np.ndarray], ...
    ]  # each arm's federation: visits, draws, traffic
    sent: tuple[Tensor, ...]  # A x (K, D) the models that the clients received
    back: tuple[Update, ...]  # and what came back
    changed: Tensor  # (A,) the last round, from 1, in which the arm's clusters changed; 0: never


@dataclass(frozen=True)
class Arms:
    """Run methods, given as pairs of name and method, in step."""

    arms: tuple[tuple[str, Any], ...]

    def init(self, fed: Federation) -> State:
        """Start all arms."""
        names, methods = zip(*self.arms, strict=True)
        states = tuple(method.init(fed) for method in methods)
        labels = torch.stack([state.labels for state in states])
        none = torch.zeros(len(states), dtype=torch.long)
        return State(
            states[0].theta[:1],
            labels,
            names,
            states,
            (fed.snapshot(),) * len(states),
            (),
            (),
            none,
        )

    def step(self, state: State, fed: Federation, t: int) -> State:
        """Let each arm do its round, in its own federation."""
        once, arms, memory, sent, back = Once(fed), [], [], [], []
        for (_, method), old, before in zip(
            self.arms, state.arms, state.memory, strict=True
        ):
            fed.restore(before)
            arms.append(method.step(old, once, t))
            memory.append(fed.snapshot())
            sent.append(once.sent)
            back.append(once.back)
        labels = torch.stack([arm.labels for arm in arms])
        same = torch.stack(
            [_same(a, b) for a, b in zip(labels, state.labels, strict=True)]
        )
        changed = torch.where(same, state.changed, t + 1)
        return State(
            arms[0].theta[:1],
            labels,
            state.names,
            *map(tuple, (arms, memory, sent, back)),
            changed,
        )


class Once:
    """A federation for one round that trains no client twice on the same model."""

    def __init__(self, fed: Federation) -> None:
        self.fed, self.known = fed, {}
        self.sent = self.back = None  # of the last call

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fed, name)

    def train(
        self, theta: Tensor, clients: Tensor | None = None, *, travels: bool = True
    ) -> Update:
        """As `Federation.train`; what was trained before is looked up, and counted as if it had been done again."""
        who = torch.arange(self.fed.K) if clients is None else clients
        rows = theta.expand(len(who), -1) if theta.dim() == 1 else theta
        before = self.fed.snapshot()
        visits = before["visits"]
        keys = [
            (k, int(visits[k]), _bytes(row))
            for k, row in zip(who.tolist(), rows, strict=True)
        ]
        new = [i for i, key in enumerate(keys) if key not in self.known]
        if new:
            up = self.fed.train(rows[new], who[new], travels=travels)
            self.known |= {
                keys[i]: (up.theta[j], up.losses[j]) for j, i in enumerate(new)
            }
        visits[who.numpy()] += 1
        sent = rows.nbytes if travels else 0
        for name, more in {"down": sent, "up": sent, "updates": len(who)}.items():
            before[f"meter.{name}"] = before[f"meter.{name}"] + more
        self.fed.restore(before)
        new_rows, losses = zip(*(self.known[key] for key in keys), strict=True)
        self.sent, self.back = (
            rows,
            Update(torch.stack(new_rows), torch.stack(losses), who),
        )
        return self.back


def _bytes(x: Tensor) -> bytes:
    return x.contiguous().numpy().tobytes()


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
    """`look`; every ``every`` rounds also each arm's `scores`, as ``"arm|score"``; in round ``final`` `late` too."""
    out, known, last = look(fed, state), {}, fed.t + 1 == final
    if (fed.t + 1) % every and not last:
        return out
    x, y = fed.probe(per_class)
    for name, arm, back, changed in zip(
        state.names, state.arms, state.back, state.changed.tolist(), strict=True
    ):
        key = _bytes(arm.theta) + _bytes(arm.labels)
        if key not in known:  # arms that found the same are alike
            found, pf1 = scores(fed, arm, x, y)
            known[key] = found | (
                late(fed, arm, back, x, y, pf1, images) if last else {}
            )
        out |= {
            f"{name}|{kind}": v for kind, v in (known[key] | {"round": changed}).items()
        }
    return out


def scores(
    fed: Federation, arm: Any, x: Tensor, y: Tensor
) -> tuple[dict[str, Any], np.ndarray]:
    """How clients fare on their own test samples (PF1), their models on the server's (GF1), and the clusters.

    Beside the means, PF1 of each client (K,).
    """
    own = fed.evaluate(arm.theta, arm.labels).confusion.numpy()  # (K, classes, classes)
    pf1, gf1 = (
        metrics.macro_f1(own, over="true"),
        server_f1(fed, arm.theta, x, y)[arm.labels],
    )
    true, found = fed.truth.labels, arm.labels.numpy()
    kinds = ("ari", "ami", "homogeneity", "completeness")
    judges = (
        metrics.adjusted_rand,
        metrics.ami,
        metrics.homogeneity,
        metrics.completeness,
    )
    out = {
        "pf1": metrics.average(pf1),
        "pf1_union": metrics.average(metrics.macro_f1(own, over="union")),
        "gf1": metrics.average(gf1),
        "gap": metrics.average(np.abs(pf1 - gf1)),
        "accuracy": metrics.average(metrics.accuracy(own)),
        **{
            kind: float(score(true, found))
            for kind, score in zip(kinds, judges, strict=True)
        },
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
    """GF1 as the authors took it, of the clients' models before they are averaged; and insertion and deletion areas."""
    gf1 = server_f1(fed, back.theta, x, y)
    out = {
        "gf1_before": metrics.average(gf1),
        "gap_before": metrics.average(np.abs(pf1 - gf1)),
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
    guess = fed.predict(theta, x).argmax(2)  # (C, m)
    cells = y * fed.classes + guess
    counts = [
        torch.bincount(row, minlength=fed.classes**2).view(fed.classes, -1).numpy()
        for row in cells
    ]
    return metrics.macro_f1(np.stack(counts), over="union")


def keys(names: Iterable[str], kinds: Iterable[str]) -> tuple[str, ...]:
    """The names under which `judge` writes."""
    return tuple(f"{name}|{kind}" for name in names for kind in kinds)
