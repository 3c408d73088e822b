"""GCFL's clustering by itself: its threshold, what becomes of large groups, how steady
it is, and bodies that move.

| paper | here |
|---|---|
| clients as bodies, after one round of the toy | `first_round` |
| q_a(x, y) (Eq. 6) of single probe images | `sureness` |
| ξ_intra < ξ_inter (section 3.1) | `gaps` |
| Ã of two groups far apart (Eq. 16) | 1 / (size - 1) within a group, 0 across |
| τ | `fednb.clustering.otsu_threshold`; which of two groups it tears: `torn` |
| section 5, force-driven updates of locations with velocity | `pull`, `drift` |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import data, models
from ...clustering import otsu_components, steady_names
from ...federation import Federation
from ...methods import FedAvg
from ...methods.gcfl import locate
from ...similarity import attraction
from ...training import Local
from .tasks import SCALES, law

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from pandas import DataFrame


class Bodies(NamedTuple):
    """The clients of the toy as bodies, after all have trained one model once."""

    fed: Federation
    rows: Tensor  # (20, D) their models
    z: Tensor  # (20, 10) locations
    rho: Tensor  # (20,) confidence
    mass: Tensor  # (20,) with α = β = γ = 1, and all attend


def toy(setting: str, seed: int = 0, lr: float = 0.1) -> Federation:
    """The chapter's live federation: digits dealt to twenty clients, small networks,
    five steps of 16 samples.
    """
    digits = data.load("digits")
    part = law(SCALES["smoke"], 20, setting)(digits.y[: digits.n_train], seed=seed)
    local = Local(lr, steps=5, batch_size=16)
    return Federation(
        digits, part, partial(models.mlp, 64, (32,), 10), local=local, seed=seed
    )


def observe(
    fed: Federation, rows: Tensor, per_class: int = 50
) -> tuple[Tensor, Tensor]:
    """What the server sees of models (n, D): locations z (n, M), and how sure they are
    in all, ρ (n,).
    """
    x, y = fed.probe(per_class)
    return locate(fed.predict(rows, x), y, fed.classes)


@cache
def first_round(setting: str, seed: int = 0) -> Bodies:
    """Let all clients of the toy train the same fresh model, and place them."""
    fed = toy(setting, seed)
    rows = fed.train(fed.start()[0]).theta
    z, rho = observe(fed, rows)
    mass = fed.n / fed.n.max() + 1 + rho
    return Bodies(fed, rows, z, rho, mass)


def sureness(fed: Federation, row: Tensor, x: Tensor, y: Tensor) -> np.ndarray:
    """How sure a model (D,) is of the true class of each sample: q, (m,) (Eq. 6)."""
    shares = fed.predict(row[None], x)[0].softmax(1)  # (m, classes)
    return shares[torch.arange(len(y)), y].numpy()


def count(found: Bodies, zeta: float, shielded: bool) -> int:
    """How many clusters there are at this ζ, with or without shield."""
    A = attraction(found.z, found.mass, zeta, shielded=shielded)
    return len(otsu_components(A).unique())


def gaps(apart: Tensor, labels: Tensor) -> tuple[float, float]:
    """The largest distance within a cluster, and the smallest between two clusters.

    ``apart`` (K, K) are the distances. Section 3.1 wants the first to be smaller. nan
    where there is no such pair.
    """
    together = labels[:, None] == labels[None]
    pairs = torch.ones_like(together).triu(1)
    within = apart[pairs & together]
    across = apart[pairs & ~together]
    largest = float(within.max()) if len(within) else float("nan")
    smallest = float(across.min()) if len(across) else float("nan")
    return largest, smallest


def population(seed: int = 3) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Twenty-one bodies in the plane, as three sorts of clouds (21, 2), and their
    masses (21,) by α : β : γ.
    """
    rng = np.random.default_rng(seed)
    corners = np.array([[0, 0], [1, 0], [0.5, 0.87]])
    sizes = {"three equal groups": [7, 7, 7], "groups of 3, 6, 12": [3, 6, 12]}
    clouds = {
        name: np.repeat(corners, n, 0) + 0.1 * rng.normal(size=(21, 2))
        for name, n in sizes.items()
    }
    clouds["one cloud"] = np.array([0.5, 0.4]) + 0.3 * rng.normal(size=(21, 2))
    volume = rng.uniform(0.2, 1, 21)
    sure = rng.uniform(0.1, 0.6, 21)
    masses = {
        "1 : 1 : 1": volume + 1 + sure,
        "1 : 0 : 0": volume,
        "0 : 0 : 1": sure,
        "none": np.ones(21),
    }
    return clouds, masses


def torn(small: int, large: int) -> bool:
    """Does Otsu's cut tear the larger of two perfect groups, of 2 <= small <= large
    bodies, into singletons?

    Each group is a point and the other is out of reach. So all pulls in a group of n
    are equal, and Eq. 16 makes them 1 / (n - 1): a body's pulls add up to one, and in a
    large group many share it. Otsu has two cuts to choose from: keep the pairs of both
    groups, or only those of the smaller. With p, q pairs in the smaller and the larger
    group and r across, the variance between weak and strong is r / (p + q) for the
    first, r² / 4p(q + r) for the second, up to a common factor. Their difference has
    the sign of 3 (small - 1) - (large - 1).
    """
    if not 2 <= small <= large:
        raise ValueError(
            f"torn({small}, {large}): give the sizes of two groups, 2 <= small <= large"
        )
    return large - 1 > 3 * (small - 1)


def perfect(sizes: Sequence[int], normalised: bool = True) -> int:
    """How many clusters Algorithm 1 finds in groups that are points far from each
    other, of these sizes.
    """
    z = np.eye(len(sizes))[np.repeat(np.arange(len(sizes)), sizes)]
    A = attraction(z, np.ones(len(z)), 1e-9, normalised=normalised)
    return len(otsu_components(A, bins=None).unique())


def changes(fed: Federation, rounds: int) -> tuple[list[float], list[float]]:
    """FedAvg's relative change in each round, by which GCFL decides when to start (Eq.
    3), and its accuracy.
    """
    method = FedAvg()
    state = method.init(fed)
    ratio = []
    accuracy = []
    for t in range(rounds):
        old = state.theta[:, : fed.layout.P]
        state = method.step(state, fed, t)
        new = state.theta[:, : fed.layout.P]
        ratio.append(float((new - old).norm() / old.norm()))
        seen = fed.evaluate(state.theta, state.labels)
        accuracy.append(float((seen.pred == seen.true).double().mean()))
    return ratio, accuracy


def flicker(labels: ArrayLike) -> np.ndarray:
    """Share of clients whose companions change from one round to the next: labels (T,
    K) -> (T - 1,).

    Names of clusters do not count. One client that leaves changes the company of all it
    leaves behind.
    """
    labels = np.asarray(labels)
    together = labels[:, :, None] == labels[:, None]  # (T, K, K)
    return (together[1:] != together[:-1]).any(2).mean(1)


def changed(clusters: ArrayLike, ari: ArrayLike) -> float:
    """In which share of the rounds of the second half clusters change, at least.

    Records of the tables keep the number of clusters (T,) and the adjusted Rand index
    (T,), not who is with whom. A round in which either differs from the round before
    has other clusters; a round in which neither does may have, so this is a lower
    bound.
    """
    moved = np.diff(np.asarray(clusters, dtype=float)) != 0
    moved |= np.abs(np.diff(np.asarray(ari, dtype=float))) > 1e-9
    return float(moved[len(moved) // 2 :].mean())


def moved(labels: Sequence[Sequence[int]]) -> float:
    """Share of clients that change their cluster in a round of the second half, mean.

    Clusters (T, K) keep their names from round to round such that few clients change
    them, so a client that leaves counts, and those whom it leaves do not.
    """
    steady = steady_names(np.array(labels))
    changes = (steady[1:] != steady[:-1]).mean(1)
    return float(changes[len(changes) // 2 :].mean())


def letters(found: np.ndarray) -> list[str]:
    """A name for each body's cluster: A is the largest; who has no companion is
    alone.
    """
    size = np.bincount(found)
    rank = (-size).argsort(kind="stable").argsort()
    return ["alone" if size[c] == 1 else chr(ord("A") + rank[c]) for c in found]


def halves(past: DataFrame) -> dict[str, float]:
    """A history's frame in four numbers: accuracy in the last round, and means over the
    second half of the rounds.
    """
    middle = len(past) // 2
    late = past[middle:]
    moved = flicker([*past["labels"]])[middle - 1 :]
    means = {
        "2nd half": late["accuracy"].mean(),
        "clusters": late["clusters"].mean(),
        "flicker": moved.mean(),
    }
    return {"last round": past["accuracy"].iloc[-1], **means}


def fall(curve: ArrayLike) -> float:
    """How much a curve (T,) oscillates: its mean fall from one round to the next, where
    a rise counts as 0.
    """
    return float(-np.diff(np.asarray(curve, dtype=float)).clip(max=0).mean())


def pull(z: Tensor, m: Tensor, zeta: float) -> Tensor:  # (K, M)
    """Acceleration of each body: the force of Eq. 15 towards each other body, over its
    own mass.

    Eq. 15 has a strength and no direction; here it is (z_b - z_a) / (d_ab + ζ), a unit
    vector that fades out where two bodies meet. Divided by the mass of all bodies, so
    that more clients do not fall faster.
    """
    A = attraction(z, m, zeta, normalised=False) / (torch.cdist(z, z) + zeta)  # (K, K)
    return (A @ z - A.sum(1, keepdim=True) * z) / (m[:, None] * m.sum())


def drift(
    seen: Tensor,
    m: Tensor,
    *,
    gravity: float = 1.0,
    spring: float = 1.0,
    friction: float = 3.0,
    zeta: float = 0.1,
    dt: float = 0.05,
    steps: int = 20,
) -> Tensor:
    """Let bodies move: where clients are seen in each round (T, K, M) -> where the
    server puts them (T, K, M).

    The paper's future work, of which it says no more than that forces and velocities
    move the locations. Here a body is pulled by the others, held by a spring to the
    place where it is seen, and slowed down by friction; ``steps`` of length ``dt`` in a
    round. Without gravity it only smooths what is seen, which is the control.
    """
    p = seen[0].clone()
    v = torch.zeros_like(p)
    path = []
    for z in seen:
        for _ in range(steps):
            v = v + dt * (gravity * pull(p, m, zeta) + spring * (z - p) - friction * v)
            p = p + dt * v
        path.append(p)
    return torch.stack(path)
