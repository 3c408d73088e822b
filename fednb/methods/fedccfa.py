"""FedCCFA: Chen, Xue, Wang, Liu, Huang, *Classifier clustering and feature alignment
for federated learning under distributed concept drift*, NeurIPS 2024 (Algorithm 1).

| paper | here |
|---|---|
| θ, extractor | columns of theta outside the last dense layer, the same in all rows |
| φ_k, classifier; φ_k,c, its part for class c | the last dense layer of row k; line c |
| distance of φ_i,c and φ_j,c | madd |
| ε of DBSCAN, with one neighbour enough | eps |

What differs from the paper and its released code:

- **Comparison.** The authors compare classifiers that were trained for that purpose
  alone, by five epochs from the server's classifier on a batch with equally many (at
  most five) samples of each class. A federation deals no balanced batches. With
  ``comparison_steps`` such classifiers are trained on the client's ordinary batches;
  without (the default, and the released code's ``balanced_epochs: 0``) the clients' own
  classifiers are compared.
- **Learning rate.** The authors train classifiers at ten times the extractor's rate
  (0.1 to 0.01). Here both have the federation's, times ``classifier_lr_scale``.
- **Feature alignment** with class anchors needs single samples, and is missing. The
  released code switches it on after 20 rounds.
- The comparison classifiers' upload is not counted in bytes.

There is one clustering for each class and none of the clients: ``labels`` are the
clients themselves, ``groups`` are the clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import checks
from ..clustering import components, num_clusters
from ..door import Fed
from ..params import Layout, mean, mean_by
from ..similarity import cosine


class State(NamedTuple):
    """A model for each client, with an extractor that all share."""

    theta: Tensor  # (K, D)
    labels: Tensor  # (K,) 0, 1, …, K − 1
    # (K, M) for each class, the lowest-numbered client of those that share its line
    groups: Tensor


@dataclass(frozen=True)
class FedCCFA:
    """Share the extractor among all clients, and each class's line of the classifier
    among clients whose lines are near.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # clients whose lines for a class are nearer than this share it, and so do chains of
    # them
    eps: float = 0.1
    # epochs of the classifier alone, before the extractor trains
    classifier_epochs: int = 1
    # the classifier's learning rate in multiples of the federation's
    classifier_lr_scale: float = 1.0
    # steps of the classifiers trained for comparison; 0: compare the clients' own
    comparison_steps: int = 0

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            eps=checks.number(least=0, infinite=True),
            classifier_epochs=checks.integer(1),
            classifier_lr_scale=checks.number(above=0),
            comparison_steps=checks.integer(0),
        )

    def init(self, fed: Fed) -> State:
        """All clients start from the same model."""
        labels = torch.arange(fed.K, device=fed.n.device)
        classes = len(lines(fed.layout))
        groups = torch.zeros_like(labels)[:, None].repeat(1, classes)
        return State(fed.start().repeat(fed.K, 1), labels, groups)

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta = state.theta.clone()
        groups = state.groups.clone()
        columns_of = lines(fed.layout).to(theta.device)  # (M, h + 1)
        top = torch.zeros(fed.layout.D, dtype=torch.bool, device=theta.device)
        top[columns_of.flatten()] = True  # the classifier's columns
        clients = fed.sample(self.sampled)  # server selects I_t

        compared = self.comparison(fed, theta[clients], clients, top)
        # φ_k, with θ fixed
        rows = self.train_classifier(
            fed, theta[clients], clients, top, epochs=self.classifier_epochs, steps=None
        )
        rows = train_part(fed, rows, clients, ~top, slot=1)  # θ_k, with φ_k fixed
        if compared is None:
            compared = rows

        theta[:, ~top] = mean(rows, fed.n[clients])[~top]  # θ <- Σ_k n_k / n θ_k
        theta[clients[:, None], top.nonzero()[:, 0]] = rows[:, top]
        for c, columns in enumerate(columns_of):  # for each class c
            # cluster φ_1,c, φ_2,c, …
            found = components(madd(compared[:, columns]) <= self.eps)
            # φ_k,c <- mean of its cluster
            phi = mean_of_cluster(rows[:, columns], found)
            theta[clients[:, None], columns] = phi
            # name each cluster by its first client
            groups[clients, c] = first_of_cluster(clients, found)
        return State(theta, state.labels, groups)

    def comparison(
        self, fed: Fed, rows: Tensor, clients: Tensor, top: Tensor
    ) -> Tensor | None:
        """Classifiers that are trained to be compared only: rows (n, D).

        They start from the server's first one. None if the clients' own are compared.
        """
        if self.comparison_steps == 0:
            return None
        common = torch.where(top, fed.start()[0], rows)
        changes = {"steps": self.comparison_steps, "keep_state": False}
        return self.train_classifier(fed, common, clients, top, slot=2, **changes)

    def train_classifier(
        self,
        fed: Fed,
        rows: Tensor,
        clients: Tensor,
        top: Tensor,
        slot: int = 0,
        **changes: Any,
    ) -> Tensor:
        """Train the classifier, whose columns are in the mask ``top`` (D,)."""
        lr = self.classifier_lr_scale * fed.local.lr
        return train_part(fed, rows, clients, top, slot=slot, lr=lr, **changes)


def train_part(
    fed: Fed, rows: Tensor, clients: Tensor, part: Tensor, slot: int, **changes: Any
) -> Tensor:
    """Train only the columns in the mask ``part`` (D,): rows (n, D).

    The other columns stay as they are, whatever weight decay and BatchNorm's statistics
    do. Rows are sent with the first training of a round, slot 0.
    """
    update = fed.train(
        rows,
        clients,
        correct=lambda g, th: g * part,
        travels=slot == 0,
        slot=slot,
        **changes,
    )
    return torch.where(part, update.theta, rows)


def mean_of_cluster(rows: Tensor, labels: Tensor) -> Tensor:  # (n, d)
    """For each row (n, d) the mean of all rows in its cluster; labels (n,)."""
    old = rows[: num_clusters(labels)]  # not used, since no cluster is empty
    means = mean_by(rows, torch.ones_like(labels), labels, old=old)
    return means[labels]


def first_of_cluster(clients: Tensor, labels: Tensor) -> Tensor:  # (n,)
    """For each client (n,) the one with the lowest number in its cluster."""
    first = torch.full_like(clients, int(clients.max()))
    first = first.scatter_reduce(0, labels, clients, "amin")
    return first[labels]


def lines(layout: Layout) -> Tensor:  # (M, h + 1)
    """Columns of each of M classes in the last dense layer: its weights, then its bias.

    If the layer has no biases, there is one column less.
    """
    dense = layout.dense_layers()
    if not dense:
        raise ValueError(
            "FedCCFA clusters classifiers: the model needs a dense last layer"
        )
    weight = dense[-1] + "weight"
    bias = dense[-1] + "bias"
    shape = layout.shapes[layout.names.index(weight)]
    columns = layout.columns(weight).view(shape)
    if bias not in layout.names:
        return columns
    return torch.cat([columns, layout.columns(bias)[:, None]], 1)


def madd(x: Tensor) -> Tensor:  # (n, n)
    """Mean absolute difference of the cosines that i and j have with all others.

    Σ_z |cos_iz − cos_jz| / (n − 2) over z other than i and j: of the sum over all z,
    the terms z = i and z = j are 1 − cos_ij each.
    """
    C = cosine(x)
    D = torch.cdist(C, C, p=1) - 2 * (1 - C)
    return (D.clamp_min(0) / max(len(x) - 2, 1)).fill_diagonal_(0)
