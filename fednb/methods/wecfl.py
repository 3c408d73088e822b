"""WeCFL: Ma, Long, Zhou, Jiang, Zhang, *On the convergence of clustered federated
learning*, arXiv:2202.06187, 2022 (Algorithm 1).

| paper | here |
|---|---|
| m clients, K clusters | fed.K, clusters |
| ω_i, g_i | trained[i], its columns in ``representation`` |
| Ω_k of the hypothesis H_k, G_k | theta[k], the same columns of it |
| r_ik = 1 | labels[i] = k |
| λ_i | weights: samples of client i |
| Q local steps, η | fed.local |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .. import checks
from ..clustering import weighted_kmeans
from ..door import Fed
from ..params import Layout, mean_by
from ..similarity import sqdist


class State(NamedTuple):
    """A model for each cluster."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


@dataclass(frozen=True)
class WeCFL:
    """Cluster the clients' models by weighted k-means in every round, and average
    within clusters.

    One round trains every client. ``as_printed`` does one E and one M step per round
    from the last centres, as Algorithm 1 says. ``as_released`` clusters by the last
    layer's weights and counts batches, as the authors' code does. A plain call is the
    corrected version: samples as weights, and a k-means that runs until it converges.
    """

    clusters: int = 5  # how many clusters k-means looks for
    # the part of a model that is compared, g_i: all fully connected layers, "dense"
    # (printed); weights of the "last" one (released); or "all" parameters
    representation: str = "dense"
    # distance between two models: squared "euclidean"; or "cosine", which scales both
    # to length one first
    distance: str = "euclidean"
    # how much a client counts in clustering, λ_i: by its "samples" or "batches", or all
    # "equal"
    weights: str = "samples"
    # how much a client counts in its cluster's average: "samples", "batches" or
    # "equal", as above
    aggregation: str = "samples"
    # k-means from fresh centres until it converges; False: one E step from the last
    # centres
    settle: bool = True

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

    def init(self, fed: Fed) -> State:
        """All clients start from one model.

        So what differs after a round comes from their data.
        """
        clusters = min(self.clusters, fed.K)
        return State(fed.start().repeat(clusters, 1), torch.zeros_like(fed.n))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1.

        It starts with the Distribution step, because in the first round no client has
        a trained model yet by which it could be clustered.
        """
        # Distribution: send H_k to its clients. Local update: Q steps give ω_i
        trained = fed.train(state.theta[state.labels]).theta
        g = self.represent(trained, fed)  # (K, d)
        if self.settle:
            # Expectation and Maximization, until no client moves: Eq. 3b
            weights = importance(fed, self.weights)
            labels = weighted_kmeans(g, weights, len(state.theta), fed.draw())
        else:
            # Expectation: k = argmin λ_i d(g_i, G_k); λ_i > 0 changes no argmin
            centres = self.last_centres(state, fed, g, t)
            labels = sqdist(g, centres).argmin(1)
        # Maximization: Eq. 12
        weights = importance(fed, self.aggregation)
        theta = mean_by(trained, weights, labels, old=state.theta)
        return State(theta, labels)

    def represent(self, theta: Tensor, fed: Fed) -> Tensor:
        """The part (n, d) of models or centres (n, D) by which clients are compared.

        It applies the function `represent` with the fields of this method.
        """
        return represent(theta, fed.layout, self.representation, self.distance)

    def last_centres(self, state: State, fed: Fed, g: Tensor, t: int) -> Tensor:
        """Centres G (C, d) of the last round; in round 0 random rows of g (K, d)."""
        if t == 0:
            return g[fed.sample(len(state.theta))]
        return self.represent(state.theta, fed)


def importance(fed: Fed, weights: str) -> Tensor:  # (K,)
    """λ: each client's ``"samples"``, its ``"batches"`` in an epoch, or ``"equal"``."""
    if weights == "equal":
        return torch.ones_like(fed.n)
    if weights == "batches":
        return fed.local.batches_per_epoch(fed.n)
    return fed.n


def represent(
    theta: Tensor, layout: Layout, what: str = "dense", distance: str = "euclidean"
) -> Tensor:  # (n, d)
    """The part of rows (n, D) by which clients are compared: see `compared_columns`.

    For the ``"cosine"`` distance its rows have length one.
    """
    if what == "all":
        part = theta[:, : layout.P]
    else:
        part = theta[:, compared_columns(layout, what)]
    if distance == "cosine":
        return normalize(part)
    return part


def compared_columns(layout: Layout, what: str) -> Tensor:  # (d,)
    """Columns of the parameters by which clients are compared.

    ``"all"`` parameters; all fully connected layers, ``"dense"``; the last ``"layer"``
    of them; or the weights of this layer without its biases, ``"last"``.
    """
    if what == "all":
        return torch.arange(layout.P)
    dense = layout.dense_layers()
    if not dense:
        raise ValueError(
            "the model has no fully connected layer to compare: use "
            f'representation="all", not {what!r}'
        )
    if what == "last":
        return layout.columns(dense[-1] + "weight")
    if what == "layer":
        return layout.columns(dense[-1] + "*")
    return torch.cat([layout.columns(prefix + "*") for prefix in dense])
