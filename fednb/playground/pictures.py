"""What a run looks like: the same drawings live in JupyterLab and in the printed book.

Everything here is arrays in, drawings of ``fednb.widgets`` out. ``tour`` is the
explorer for pages without a kernel: a choice of settings, run when the page is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from .. import methods
from ..clustering import steady_names
from ..widgets import Explorer, explore, heatmap, lines, text
from .session import Arm
from .settings import Settings

MOST_COLUMNS = 40  # rounds that a picture of the membership shows
MOST_CLIENTS = 40  # clients that a picture shows, evenly chosen: it must be drawn fast
ROUNDS_TO_LEARN = 5  # after so many a run should be better than guessing


def class_map(settings: Settings) -> dict:
    """Client × class: how many samples of each class every client holds."""
    parts = settings.deal()
    counts = settings.counts(parts)  # (K, classes)
    truth = parts.truth
    names = [str(k) for k in range(len(counts))]
    title = "Who holds what"
    if num_hidden(truth) > 1:
        title += f": {num_hidden(truth)} hidden clusters"
    return heatmap(
        counts.T,
        x=names,
        y=list(range(counts.shape[1])),
        xlabel="client",
        ylabel="class",
        zlabel="samples",
        title=title,
        alt="Heat map of the number of samples of each class at each client",
        zlim=(0, int(counts.max())),
    )


def num_hidden(truth: np.ndarray | None) -> int:
    """How many hidden clusters there are; 1 if all clients are alike."""
    if truth is None:
        return 1
    return len(np.unique(truth))


def board(arms: Sequence[Arm]) -> list[dict]:
    """All drawings of some runs, as far as they are; none before a first round."""
    begun = [arm for arm in arms if arm.history.rows]
    if not begun:
        return []
    drawings = curves(begun)
    for arm in begun:
        drawings += [membership(arm), similarity(arm)]
    return [*drawings, *(text(summary(arm)) for arm in begun)]


def curves(arms: Sequence[Arm]) -> list[dict]:
    """Accuracy, worst client, agreement with the hidden clusters and traffic."""
    rounds = max(arm.task.rounds for arm in arms)
    hidden = all(num_hidden(arm.fed.truth.labels) > 1 for arm in arms)
    scores = ("ari", "ARI", "Clusters found: agreement with the hidden ones (ARI)")
    if not hidden:
        scores = ("was", "score", "Clusters found: Wasserstein-adjusted silhouette")
    kinds = (
        ("accuracy", "accuracy", "Accuracy, mean over clients", (0, 1)),
        ("accuracy_worst", "accuracy", "Accuracy of the worst client", (0, 1)),
        (*scores, (-0.05, 1.05) if hidden else None),
        ("bytes", "MB", "Traffic so far", None),
    )
    drawn = []
    for name, unit, title, limits in kinds:
        factor = 1e-6 if name == "bytes" else 1
        series = {arm.name: _column(arm, name, factor) for arm in arms}
        drawn.append(
            lines(
                series,
                x=range(1, 1 + max(len(values) for values in series.values())),
                xlabel="round",
                ylabel=unit,
                title=title,
                xlim=(1, max(2, rounds)),
                ylim=limits,
            )
        )
    return drawn


def _column(arm: Arm, name: str, factor: float) -> list[float | None]:
    values = [row.get(name) for row in list(arm.history.rows)]
    return [None if v is None else factor * v for v in values]


def membership(arm: Arm) -> dict:
    """Which model served each client, round by round; names of clusters kept steady."""
    rows = list(arm.history.rows)
    step = -(-len(rows) // MOST_COLUMNS)
    shown = rows[::-1][::step][::-1]  # the last round is always among them
    labels = np.array([row["labels"] for row in shown])  # (rounds, K)
    table = steady_names(labels)
    some = some_clients(table.shape[1])
    return heatmap(
        table.T[some],
        x=[str(row["round"]) for row in shown],
        y=some,
        xlabel="round",
        ylabel="client",
        zlabel="model that serves the client",
        title=f"{arm.name}: membership over rounds",
        zlim=(0, max(1, int(table.max()))),
    )


def some_clients(K: int) -> list[int]:
    """All clients, or so many, evenly chosen, as a picture can show."""
    if K <= MOST_CLIENTS:
        return list(range(K))
    return np.linspace(0, K - 1, MOST_CLIENTS).round().astype(int).tolist()


def similarity(arm: Arm) -> dict:
    """The matrix that the method clusters on, or cosines of the clients' last updates.

    See `pairs`.
    """
    matrix, name = pairs(arm)
    some = some_clients(len(matrix))
    title = "how alike two clients look"
    what = "cosine of the last updates"
    limits: Any = (-1, 1)
    if name:
        limits = None
        title = "what it clusters on"
        what = f"its matrix {name}"
    return heatmap(
        matrix[np.ix_(some, some)],
        x=some,
        y=some,
        xlabel="client",
        ylabel="client",
        zlabel=what,
        title=f"{arm.name}: {title}",
        zlim=limits,
    )


def pairs(arm: Arm) -> tuple[np.ndarray, str]:
    """A matrix over pairs of clients (K, K), and its name in the method's state.

    A method that keeps such a matrix, as FedGWC keeps P, clusters on it. For the others
    it is the cosine of two clients' last updates, and has no name.
    """
    state = arm.history.state
    K = arm.fed.K
    for name in getattr(state, "_fields", ()):
        value = getattr(state, name)
        square = isinstance(value, torch.Tensor) and value.shape == (K, K) and K > 1
        if square and name != "theta" and value.is_floating_point():
            return value.cpu().numpy(), name
    updates = arm.updates
    if updates is None:
        return np.full((K, K), np.nan), ""
    seen = updates.norm(dim=1) > 0
    unit = torch.nn.functional.normalize(updates)
    cosines = (unit @ unit.T).masked_fill(~(seen[:, None] & seen), torch.nan)
    return cosines.cpu().numpy(), ""


def summary(arm: Arm) -> str:
    """One line of numbers about the last round."""
    last = arm.history.rows[-1]
    words = [
        f"{arm.name}, round {last['round']}: accuracy {last['accuracy']:.3f}",
        f"worst client {last['accuracy_worst']:.3f}",
        f"{last['clusters']} cluster{'s' if last['clusters'] != 1 else ''}",
    ]
    for name, label in (("ari", "ARI"), ("was", "WAS"), ("wadb", "WADB")):
        value = last.get(name)
        if value is not None and np.isfinite(value):
            words.append(f"{label} {value:.2f}")
    words.append(f"{last['bytes'] / 1e6:.2f} MB")
    return ", ".join(words)


def warning(arm: Arm) -> str:
    """A sentence if the last loss is no better than that of guessing, else nothing.

    A learning rate that is too large rarely ends in NaN: ReLU networks stop learning.
    """
    rows = list(arm.history.rows)
    if len(rows) < ROUNDS_TO_LEARN:
        return ""
    last = rows[-1]
    classes = arm.fed.classes
    guessing = math.log(classes)
    if last["loss"] < guessing:
        return ""
    return (
        f"{arm.name}, round {last['round']}: the loss is {last['loss']:.2f}, no better "
        f"than guessing among {classes} classes ({guessing:.2f}). Is the learning rate "
        "too large, or far too small?"
    )


# --- without a kernel -----------------------------------------------------------------

CHOICES = {  # each finds clusters in a way of its own, or none
    "LocalOnly": methods.LocalOnly(),
    "IFCA": methods.IFCA(clusters=3),
    "WeCFL": methods.WeCFL(clusters=3),
    "GCFL": methods.GCFL(),
}
EVENNESS = (0.05, 1.0, 100.0)
RATES = (0.01, 0.1)
CURVES = ("accuracy", "worst client", "agreement")  # the traffic is told in words


def played(settings: Settings) -> list[Arm]:
    """The runs of some settings, done here and now."""
    arms = [Arm(name, task) for name, task in settings.tasks().items()]
    for arm in arms:
        arm.run(None, lambda _: None)
        if arm.error:
            raise RuntimeError(arm.error)
    return arms


def tour() -> Explorer:
    """The playground's pictures over a precomputed choice of settings, for a page.

    One picture at a time, so that it fits the screen of a phone.
    """
    rounds = 12

    @cache
    def arm(method: Any, between: float, lr: float) -> Arm:
        return played(_small(method, between, lr, rounds))[0]

    def one_picture(method: str, between: float, lr: float, picture: str) -> list[dict]:
        fedavg = arm(methods.FedAvg(), between, lr)
        chosen = arm(CHOICES[method], between, lr)
        arms = [fedavg, chosen]
        if picture == "classes":
            drawing = class_map(_small(methods.FedAvg(), between, lr, rounds))
        elif picture == "membership":
            drawing = membership(chosen)
        elif picture == "similarity":
            drawing = similarity(chosen)
        else:
            drawing = curves(arms)[CURVES.index(picture)]
        return [drawing, *(text(_in_short(one)) for one in arms)]

    return explore(
        one_picture,
        title="FedAvg beside a method you choose",
        alt="One picture of two runs: classes, curves, membership or similarity",
        labels={"between": "α₁ (small: groups differ)", "lr": "learning rate"},
        start={"method": "WeCFL", "lr": 0.1, "picture": "accuracy"},
        method=list(CHOICES),
        between=EVENNESS,
        lr=RATES,
        picture=["classes", *CURVES, "membership", "similarity"],
    )


def _in_short(arm: Arm) -> str:
    """Some numbers about the last round, on one line of a phone."""
    last = arm.history.final
    worst = last["accuracy_worst"]
    return (
        f"{arm.name}: accuracy {last['accuracy']:.2f}, worst {worst:.2f}, "
        f"{last['bytes'] / 1e6:.1f} MB"
    )


def _small(method: Any, between: float, lr: float, rounds: int) -> Settings:
    return Settings(
        law="cluster_dirichlet",
        law_values={"clusters": 3, "alphas": (between, 10.0)},
        clients=12,
        lr=lr,
        rounds=rounds,
        methods=(method,),
    )
