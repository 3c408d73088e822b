"""Section 6 of WeCFL in numbers: its objectives after each step, and its bounds.

| paper | here |
|---|---|
| F after the E, M and local step | F_E, F_M, F_L; F_0 is that of the round before |
| R after the same steps | R_E, R_M, R_L |
| U, B, β, σ² | U, B, beta, noise: σ² of a batch, 0 if a step sees all data |
| B of the training before the M step | B_before |
| Q, η | Q, eta |
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import data, models, partition
from ...clustering import kmeans_objective, weighted_kmeans
from ...federation import Federation
from ...params import mean_by
from ...similarity import clusterability, sqdist

if TYPE_CHECKING:
    from pandas import DataFrame, Series

GROUPS = ("{0, 1, 2}", "{3, 4, 5, 6}", "{7, 8, 9}")  # classes of the toy's groups
ROUNDS = 40
Q = 5
ETA = 0.05


class Descent(NamedTuple):
    """Q steps of all clients, seen from the outside."""

    rows: Tensor  # (K, D) where they end
    losses: Tensor  # (Q + 1, K) on all of a client's data
    gradients: Tensor  # (Q, K, D) of all of a client's data
    noise: Tensor  # (Q, K) squared distance of the step's gradient from that


def trace(
    fed: Federation,
    clusters: int,
    rounds: int,
    *,
    Q: int = 5,
    eta: float = 0.1,
    factor: float | None = None,
    U: float | None = None,
    batch: int | None = None,
) -> list[dict[str, Any]]:
    """Run Algorithm 1 and look at it after every step of every round; a dict per round.

    With ``factor`` the learning rate is that of Theorem 6.2,
    η_i = factor · ‖ω_i - Ω_k‖ / (Q U), different for each client and round: at most 1
    obeys the bound, more breaks it. Without, it is ``eta`` for all. Steps use all data
    of a client, or ``batch`` samples. Give a federation in float64, for inequalities
    hold only as far as numbers do.
    """
    if (factor is None) != (U is None):
        raise ValueError("trace: give factor and U together, or neither")
    lam = fed.n.to(fed.start().dtype)  # (K,)
    step = torch.full_like(lam, eta)
    # before the first local update nobody has a model to cluster
    first = descend(fed, fed.start().repeat(fed.K, 1), step, Q, batch)
    omega = first.rows
    gradients = first.gradients
    labels = weighted_kmeans(omega, lam, clusters, fed.draw())
    Omega = mean_by(omega, lam, labels, old=omega[:clusters])  # (C, D)
    loss = average(first.losses[-1], lam)
    lines = []
    for t in range(1, rounds + 1):
        line = {"round": t, "R_E": loss}  # Eq. 42: the E step moves no model
        line["F_0"] = kmeans_objective(omega, lam, labels, Omega)
        labels = sqdist(omega, Omega).argmin(1)  # Expectation
        line["F_E"] = kmeans_objective(omega, lam, labels, Omega)
        line["B_before"] = worst_step(gradients, lam, labels)  # of Lemma A.4
        Omega = mean_by(omega, lam, labels, old=Omega)  # Maximization
        line["F_M"] = kmeans_objective(omega, lam, labels, Omega)
        if factor is not None and U is not None:  # (K,) Theorem 6.2
            step = factor * (omega - Omega[labels]).norm(dim=1) / (Q * U)
        # Distribution, local update
        local = descend(fed, Omega[labels], step, Q, batch)
        omega = local.rows
        gradients = local.gradients
        loss = average(local.losses[-1], lam)
        line["F_L"] = kmeans_objective(omega, lam, labels, Omega)
        line["R_M"] = average(local.losses[0], lam)
        line["R_L"] = loss
        line["B"] = worst_step(gradients, lam, labels)
        line["U"] = gradients.norm(dim=2).max()
        squares = gradients.pow(2).sum(2).mean(0)  # (K,)
        line["squared_gradient"] = average(squares, lam)  # a term of Eq. 10
        line["noise"] = average(local.noise.mean(0), lam)  # σ² of Assumption 6.7
        line["eta"] = step.mean()
        line["labels"] = labels
        lines.append({name: _plain(value) for name, value in line.items()})
    return lines


def worst_step(gradients: Tensor, lam: Tensor, labels: Tensor) -> Tensor:  # (C,)
    """B of Eq. 5 for each cluster: the largest of Q steps, gradients (Q, K, D)."""
    return torch.stack([clusterability(q, lam, labels) for q in gradients]).amax(0)


def descend(
    fed: Federation, rows: Tensor, step: Tensor, Q: int, batch: int | None = None
) -> Descent:
    """Let client i take Q steps of learning rate step[i] from row i of ``rows`` (K, D).

    One step at a time, so that each gradient can be seen: a step of learning rate one
    is the gradient.
    """
    losses = []
    gradients = []
    noise = []
    for q in range(Q + 1):
        whole, loss = gradient(fed, rows)
        losses.append(loss)
        if q == Q:
            break
        taken = whole
        if batch is not None:
            taken, _ = gradient(fed, rows, batch)
        gradients.append(whole)
        noise.append((taken - whole).pow(2).sum(1))
        rows = rows - step[:, None] * taken
    return Descent(
        rows, torch.stack(losses), torch.stack(gradients), torch.stack(noise)
    )


def gradient(
    fed: Federation, rows: Tensor, batch: int | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients (K, D) of the clients' losses at their rows, and the losses (K,)."""
    update = fed.train(rows, steps=1, batch_size=batch, lr=1.0, momentum=0.0)
    return rows - update.theta, update.losses[:, 0]


def ifca_trace(
    fed: Federation, clusters: int, rounds: int, *, Q: int = 5, eta: float = 0.1
) -> list[dict[str, Any]]:
    """Run IFCA and look at its one objective, Eq. 1a, after each of a round's steps.

    R_0 is that of the round before, R_E after all have chosen, R_L of the clients' own
    models after Q whole gradients, R_M after averaging.
    """
    equal = torch.ones(fed.K, dtype=fed.start().dtype)
    step = torch.full_like(equal, eta)
    theta = fed.start(clusters)  # (C, D)
    labels = torch.zeros(fed.K, dtype=torch.long)
    lines = []
    for t in range(1, rounds + 1):
        losses = fed.loss(theta)  # (K, C)
        line = {"round": t, "R_0": chosen_loss(losses, labels)}
        labels = losses.argmin(1)
        line["R_E"] = chosen_loss(losses, labels)
        local = descend(fed, theta[labels], step, Q)
        line["R_L"] = local.losses[-1].mean()
        theta = mean_by(local.rows, equal, labels, old=theta)
        line["R_M"] = chosen_loss(fed.loss(theta), labels)
        line["labels"] = labels
        lines.append({name: _plain(value) for name, value in line.items()})
    return lines


def chosen_loss(losses: Tensor, labels: Tensor) -> Tensor:
    """Eq. 1a: the mean loss of clients under the models that they chose."""
    return losses.gather(1, labels[:, None]).mean()


def average(values: Tensor, lam: Tensor) -> Tensor:
    """Σ λ_i v_i / Σ λ_i."""
    return (lam * values).sum() / lam.sum()


def smoothness(x: np.ndarray) -> float:
    """β of softmax regression on inputs (N, d), Eq. 7.

    Half the largest eigenvalue of the mean of (x, 1)(x, 1)ᵀ.
    """
    rows = np.reshape(x, (len(x), -1)).astype(float)
    flat = np.column_stack([rows, np.ones(len(x))])
    return float(np.linalg.eigvalsh(flat.T @ flat / len(flat))[-1] / 2)


def rate_bound(
    T: np.ndarray,
    delta: float,
    Q: int,
    eta: float,
    beta: float,
    B: float,
    U: float,
    noise: float = 0.0,
) -> np.ndarray:
    """The ε that Eq. 9 promises after T rounds.

    (Δ / (Q T) + η B U² + β η² σ² / 2) / (η - β η² / 2). Only the first term falls like
    1/T; the others are a floor that no training passes, unless B and σ² are 0.
    """
    gain = eta - beta * eta**2 / 2
    if gain <= 0:
        raise ValueError(
            f"eta = {eta} is not below 2 / beta = {2 / beta:.3g}: the descent lemma "
            "promises nothing"
        )
    falls = delta / (Q * np.asarray(T, dtype=float))
    return (falls + eta * B * U**2 + beta * eta**2 * noise / 2) / gain


def largest_step(squares: Any, B: Any, U: Any, beta: float, noise: float) -> Any:
    """The second bound of Theorem 6.8 on η; not above 0 where it allows no step.

    Numbers, arrays or series: one bound for each.
    """
    return (squares - B * U**2) / (squares + noise) * 2 / beta


# --- the toy: where all assumptions hold ----------------------------------------------


def toy_federation(copies: bool = False, seed: int = 0) -> Federation:
    """Softmax regression on the digits: twelve clients in three groups, in float64.

    With ``copies`` the four members of a group hold the very same samples.
    """
    digits = data.load("digits")
    y = digits.y[: digits.n_train]
    classes = [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    part = partition.by_class_sets(y, [4, 4, 4], classes)
    if copies:
        owners = np.repeat([0, 4, 8], 4)
        train = [part.train[i] for i in owners]
        test = [part.test[i] for i in owners]
        part = partition.Partition(train, test)
    net = partial(models.linear, 64, 10)
    return Federation(digits, part, net, dtype=torch.float64, seed=seed)


@cache
def toy(
    factor: float | None = None,
    U: float | None = None,
    copies: bool = False,
    batch: int | None = None,
    seed: int = 0,
) -> DataFrame:
    """WeCFL on the toy, a line per round; see `trace`."""
    import pandas as pd

    fed = toy_federation(copies, seed)
    lines = trace(
        fed, len(GROUPS), ROUNDS, Q=Q, eta=ETA, factor=factor, U=U, batch=batch
    )
    return pd.DataFrame(lines).set_index("round")


@cache
def toy_ifca(eta: float = ETA) -> DataFrame:
    """IFCA on the toy, a line per round; see `ifca_trace`."""
    import pandas as pd

    lines = ifca_trace(toy_federation(), len(GROUPS), ROUNDS, Q=Q, eta=eta)
    return pd.DataFrame(lines).set_index("round")


@cache
def toy_smoothness() -> float:
    """β of the toy: the largest of its clients'."""
    digits = data.load("digits")
    assert digits.mean is not None and digits.std is not None
    pixels = (digits.x / 255 - digits.mean[0]) / digits.std[0]  # what the network sees
    classes = [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    y = digits.y[: digits.n_train]
    part = partition.by_class_sets(y, [4, 4, 4], classes)
    return max(smoothness(pixels[own]) for own in part.train)


def allowed(past: DataFrame, U: float | Series | None = None) -> Series:
    """Theorem 6.8's second bound on η in each round of a toy.

    ``U`` is the longest gradient of the whole run, unless another one is given.
    """
    if U is None:
        U = past["U"].max()
    squares = past["squared_gradient"]
    worst = past["B"].map(max)
    return largest_step(squares, worst, U, toy_smoothness(), past["noise"].max())


def promise(past: DataFrame) -> DataFrame:
    """What Theorem 6.9 promises after each round of a toy, beside what is measured.

    For R* we take 0, which is below every loss, so that the promise is still true.
    """
    import pandas as pd

    B = past["B"].map(max).max()
    U = past["U"].max()
    noise = past["noise"].max()
    delta = past["R_E"].iloc[0]
    T = past.index.to_numpy()
    bound = rate_bound(T, delta, Q, ETA, toy_smoothness(), B, U, noise)
    measured = past["squared_gradient"].expanding().mean()  # Eq. 10
    return pd.DataFrame({"promised": bound, "measured": measured, "B": B, "U": U})


def rise_after_a_change() -> tuple[float, float]:
    """The rise of R in an M step after a client changed cluster, and Lemma A.4's bound.

    Eq. 30 lets all members of a cluster start from one model. Here one of two clients
    did not. Both have losses (w - c)² / 2 of one parameter and take one step.
    """
    eta = 0.5
    c = torch.tensor([-1.2, -0.2], dtype=torch.float64)
    starts = torch.tensor([0.0, 1.0], dtype=torch.float64)  # also the two old centres
    lam = torch.ones(2)
    slopes = starts - c  # (K,) the gradients: 1.2 for both
    omega = starts - eta * slopes
    labels = sqdist(omega[:, None], starts[:, None]).argmin(1)  # both join the first
    Omega = mean_by(omega[:, None], lam, labels, old=starts[:, None])[labels, 0]
    rise = ((Omega - c).pow(2) - (omega - c).pow(2)).mean() / 2
    B = clusterability(slopes[:, None], lam, labels)
    bound = eta * B.max() * slopes.abs().max() ** 2  # Q = 1
    return float(rise), float(bound)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value
