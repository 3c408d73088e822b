"""FedCCFA: Chen, Xue, Wang, Liu, Huang, *Classifier clustering and feature alignment for federated learning under
distributed concept drift*, NeurIPS 2024 (Algorithm 1).

| paper | here |
|---|---|
| θ, extractor | the columns of theta outside the last dense layer, the same in every row |
| φ_k, classifier; φ_k,c, its part for class c | the last dense layer of row k; its line c with the bias |
| distance of φ_i,c and φ_j,c | madd |
| ε of DBSCAN, with one neighbour enough | eps |

What needs a look at single samples is not to be had through a federation: the balanced batch on which the paper trains
the classifiers that it compares (here the clients' own classifiers are compared), and the alignment of features with
class anchors. So this is FedCCFA's classifier clustering without its feature alignment, which the released code
switches on only after 20 rounds. There is one clustering for each class and none of the clients: ``labels`` are the
clients themselves, ``groups`` are the clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..clustering import components
from ..params import Layout, mean, mean_by
from ..similarity import cosine


class State(NamedTuple):
    """A model for each client, with an extractor that all share."""

    theta: Tensor  # (K, D)
    labels: Tensor  # (K,) 0, 1, …, K − 1
    groups: Tensor  # (K, M) for each class the first client that the client shared its line with when last sampled


@dataclass(frozen=True)
class FedCCFA:
    """Share the extractor among all clients, and each class's line of the classifier among those that see it alike."""

    sampled: int | float = 1.0
    eps: float = 0.1  # clients nearer than this share a line, and so do chains of them
    classifier_epochs: int = (
        1  # training of the classifier alone, before the extractor's by fed.local
    )

    def init(self, fed) -> State:
        """All clients start from the same model."""
        labels = torch.arange(fed.K, device=fed.n.device)
        M = len(lines(fed.layout))
        return State(
            fed.start().repeat(fed.K, 1),
            labels,
            torch.zeros_like(labels)[:, None].repeat(1, M),
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta, groups = state.theta.clone(), state.groups.clone()
        line = lines(fed.layout).to(theta.device)  # (M, h + 1) columns
        top = torch.zeros(
            fed.layout.D, dtype=torch.bool, device=theta.device
        ).index_fill(0, line.flatten(), True)
        S = fed.sample(self.sampled)  # server selects I_t
        rows = self.train_part(
            fed, theta[S], S, top, 0, epochs=self.classifier_epochs, steps=None
        )  # φ_k, with θ fixed
        rows = self.train_part(fed, rows, S, ~top, 1)  # θ_k, with φ_k fixed
        theta[:, ~top] = mean(rows, fed.n[S])[~top]  # server: θ <- Σ_k n_k / n θ_k
        theta[S[:, None], top.nonzero()[:, 0]] = rows[:, top]
        for c, columns in enumerate(line):  # for each class c
            phi = rows[:, columns]  # (n, h + 1)
            found = components(madd(phi) <= self.eps)  # cluster φ_1,c, φ_2,c, …
            merged = mean_by(
                phi, torch.ones_like(S), found, old=phi[: int(found.max()) + 1]
            )
            theta[S[:, None], columns] = merged[found]  # φ_k,c <- mean of its cluster
            first = torch.full_like(S, fed.K).scatter_reduce(
                0, found, S, "amin"
            )  # names that outlast the round
            groups[S, c] = first[found]
        return State(theta, state.labels, groups)

    def train_part(
        self, fed, rows: Tensor, S: Tensor, part: Tensor, slot: int, **changes
    ) -> Tensor:
        """Train the columns in the mask ``part`` (D,); weight decay must not move the others, nor BatchNorm."""
        up = fed.train(
            rows,
            S,
            correct=lambda g, th: g * part,
            travels=slot == 0,
            slot=slot,
            **changes,
        )
        return torch.where(part, up.theta, rows)


def lines(layout: Layout) -> Tensor:  # (M, h + 1)
    """Columns of each class's line of weights, and of its bias if there is one, in the last dense layer."""
    dense = [
        (n, s)
        for n, s in zip(layout.names, layout.shapes, strict=True)
        if n.endswith("weight") and len(s) == 2
    ]
    if not dense:
        raise ValueError(
            "FedCCFA clusters classifiers: the model needs a dense last layer"
        )
    name, shape = dense[-1]
    bias = name.removesuffix("weight") + "bias"
    own = [layout.columns(name).view(shape)] + (
        [layout.columns(bias)[:, None]] if bias in layout.names else []
    )
    return torch.cat(own, 1)


def madd(x: Tensor) -> Tensor:  # (n, n)
    """Mean absolute difference of the cosines that i and j have with all others: Σ_z |cos_iz − cos_jz| / (n − 2)."""
    C = cosine(x)
    D = torch.cdist(C, C, p=1) - 2 * (
        1 - C
    )  # of the sum over all z, the terms z = i and z = j are 1 − cos_ij each
    return (D.clamp_min(0) / max(len(x) - 2, 1)).fill_diagonal_(0)
