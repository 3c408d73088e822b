"""WeCFL: Ma, Long, Zhou, Jiang, Zhang, *On the convergence of clustered federated learning*, arXiv:2202.06187, 2022
(Algorithm 1).

| paper | here |
|---|---|
| m clients, K clusters | fed.K, clusters |
| ω_i, g_i | up.theta[i], its columns in ``representation`` |
| Ω_k, G_k | theta[k], the same columns of it |
| r_ik = 1 | labels[i] = k |
| λ_i | weights: samples of client i |
| Q local steps, η | fed.local |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..clustering import weighted_kmeans
from ..params import Layout, mean_by
from ..similarity import sqdist


class State(NamedTuple):
    """A model for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


@dataclass(frozen=True)
class WeCFL:
    """Cluster the clients' models by weighted k-means in every round, and average within clusters.

    One round trains every client. Presets: ``as_printed`` does one E and one M step per round from the last centres, as
    Algorithm 1 says; ``as_released`` clusters by the last layer's weights and counts batches, as the authors' code
    does. A plain call is the corrected version: samples as weights, and a k-means that runs until it settles.
    """

    clusters: int = 5
    representation: str = "dense"  # g_i: fully connected layers (printed), weights of the "last" one (released), "all"
    distance: str = (
        "euclidean"  # d: squared Euclidean; "cosine" is that between rows of length one
    )
    weights: str = "samples"  # λ_i in clustering: "samples", "batches" or "equal"
    aggregation: str = "samples"  # the same choice for the average within a cluster
    settle: bool = True  # k-means until it settles, from fresh centres; False: one E step from the last centres

    def __post_init__(self) -> None:
        checks.fields(
            self,
            clusters=checks.integer(1),
            representation=checks.choice("last", "dense", "all"),
            distance=checks.choice("euclidean", "cosine"),
            weights=checks.choice("samples", "batches", "equal"),
            aggregation=checks.choice("samples", "batches", "equal"),
            settle=checks.flag,
        )

    @classmethod
    def as_printed(cls, clusters: int = 5) -> WeCFL:
        """Algorithm 1 and appendix B.1."""
        return cls(clusters, settle=False)

    @classmethod
    def as_released(cls, clusters: int = 5) -> WeCFL:
        """The authors' code: last layer, batches for samples."""
        return cls(
            clusters, representation="last", weights="batches", aggregation="batches"
        )

    @classmethod
    def corrected(cls, clusters: int = 5) -> WeCFL:
        """The same as a plain call."""
        return cls(clusters)

    def init(self, fed) -> State:
        """All clients start from one model, so that what differs after a round is their data."""
        C = min(self.clusters, fed.K)
        return State(fed.start().repeat(C, 1), torch.zeros_like(fed.n))

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1, entered at its Distribution step: before it nobody has a model to cluster."""
        theta, labels = state
        up = fed.train(
            theta[labels]
        )  # Distribution: send H_k to its clients. Local update: Q steps give ω_i
        g = represent(
            up.theta, fed.layout, self.representation, self.distance
        )  # (K, d)
        if self.settle:  # Expectation and Maximization, until no client moves: Eq. 3b
            labels = weighted_kmeans(
                g, importance(fed, self.weights), len(theta), fed.draw()
            )
        else:  # Expectation: k = argmin λ_i d(g_i, G_k); λ_i > 0 changes no argmin
            G = (
                represent(theta, fed.layout, self.representation, self.distance)
                if t
                else g[fed.sample(len(theta))]
            )
            labels = sqdist(g, G).argmin(1)
        theta = mean_by(
            up.theta, importance(fed, self.aggregation), labels, old=theta
        )  # Maximization: Eq. 12
        return State(theta, labels)


def importance(fed, weights: str) -> Tensor:
    """λ (K,): each client's samples, its batches in an epoch, or one."""
    if weights == "equal":
        return torch.ones_like(fed.n)
    return (
        fed.n
        if weights == "samples"
        else -(fed.n // -(fed.local.batch_size or int(fed.n.max())))
    )


def represent(
    theta: Tensor, layout: Layout, what: str = "dense", distance: str = "euclidean"
) -> Tensor:
    """The part g (K, d) of rows (K, D) by which clients are compared; of length one for the cosine distance."""
    dense = [
        name.removesuffix("weight")
        for name, shape in zip(layout.names, layout.shapes, strict=True)
        if name.endswith("weight") and len(shape) == 2
    ]
    if what != "all" and not dense:
        raise ValueError(
            f'the model has no fully connected layer to compare: use representation="all", not {what!r}'
        )
    if what == "all":
        g = theta[:, : layout.P]
    elif what == "last":
        g = theta[:, layout.columns(dense[-1] + "weight")]
    else:
        g = theta[:, torch.cat([layout.columns(name + "*") for name in dense])]
    return torch.nn.functional.normalize(g) if distance == "cosine" else g
