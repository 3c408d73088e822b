"""WeCFL's tables and figures as tasks: Ma et al., arXiv:2202.06187, sections 7, 8, B.

| name | what |
|---|---|
| table2_alpha, table2_class | cluster-wise non-IID: α = (0.1, 10), and (3, 2)-class |
| table5_alpha, table5_class | client-wise non-IID: α = 0.1, and 2-class |
| figure2 | convergence of IFCA, FeSEM and WeCFL on CIFAR-10, (3, 2)-class |
| figure3 | convergence of WeCFL on Fashion-MNIST, α = (0.1, 10), K = 3, 5, 10 |
| equal_sizes | rows of the two n-class tables under laws with clients of equal size |
| scale_* | the claims' rows at the paper's own scale |
| scale_same_classes | one such cell: clusters of clients with the very same classes |
| geometry | how clients and centres lie, and B of Eq. 5: Figures 4, 5, 7 and 8 |
| steps | B of Eq. 5 over all local steps; Figure 4; round 1 of Figures 7 and 8 |
| averages | FeSEM with averages that count all members alike, Eq. 2 |
| choices | what the released IFCA does, one thing at a time, in Figure 2's setting |
| variants | as printed, released, corrected: one difference at a time |

The n-class laws are those of the released code: each cluster and each client draws its
classes independently, so the sizes of clients differ. Laws that deal the classes evenly
make sizes all but equal, and then WeCFL is FeSEM; ``equal_sizes`` shows it.

``laptop`` keeps the networks of Tables 3 and 4, the ten local steps and the momentum,
and has 30 clients of 200 samples instead of 200 of 250 or 300, batches of 16, and a
tenth of the rounds at ten times the learning rate (the figures: a third of the rounds).
Momentum is kept from round to round in all profiles, as in the code that made the
paper's numbers.

Laptop records with the commit 907df63 call it dirty: the paper's numbers lay untracked
in that checkout. No tracked file differed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import data, models, partition
from ...experiment import measure
from ...federation import Federation
from ...methods import (
    IFCA,
    Ensemble,
    FedAvg,
    FedProx,
    FeSEM,
    FixedClusters,
    LocalOnly,
    WeCFL,
)
from ...methods.wecfl import represent
from ...params import mean_by
from ...similarity import clusterability, cosine
from ...sweeps import Task
from ...training import Local
from ..common import limited, only_in

TRUE_CLUSTERS = 10
MU = 0.95  # FedProx's λ, section 7.2
CURVES = ("accuracy_weighted", "macro_f1_union")
FURTHER = ("accuracy", "balanced_accuracy", "macro_f1", "ari", "clusters", "labels")
TRAIN_ROWS = {"cifar10": 50_000, "fashion_mnist": 60_000}  # of the whole data sets


@dataclass(frozen=True)
class Scale:
    """What a profile changes."""

    models: Mapping[str, Callable[..., Any]]  # a network for each data set, in order
    clients: int
    samples: int | None  # of the training pool, for all clients together; None: all
    rounds: int
    local: Local
    seeds: range
    longer: int  # rounds of the convergence figures
    official: bool = False
    law: dict[str, Any] = field(default_factory=dict)  # keywords of the partition laws

    def __str__(self) -> str:
        return f"{self.clients} clients, {self.rounds} rounds"


_local = Local(0.001, steps=10, batch_size=32, momentum=0.9, keep_state=True)
_nets = {"fashion_mnist": models.cnn_bn, "cifar10": models.lenet5}
_small = {"digits": partial(models.cnn_bn, shape=(1, 8, 8))}
SCALES = {
    "smoke": Scale(
        models=_small,
        clients=20,
        samples=None,
        rounds=2,
        local=replace(_local, lr=0.01, steps=2),
        seeds=range(1),
        longer=3,
    ),
    "laptop": Scale(
        models=_nets,
        clients=30,
        samples=6000,
        rounds=10,
        local=replace(_local, lr=0.01, batch_size=16),
        seeds=range(3),
        longer=30,
    ),
    "paper": Scale(
        models=_nets,
        clients=200,
        samples=None,
        rounds=100,
        local=_local,
        seeds=range(5),
        longer=100,
        official=True,
        law={"test": 0.0},
    ),
}


def law(scale: Scale, setting: str) -> Callable[..., partition.Partition]:
    """One of the four ways to deal the data (section 7.1), as the released code does.

    Two of them have a variant of ours with clients of equal size. The laws get as many
    samples as the profile allows.
    """
    both = {"clients": scale.clients, "min_size": 10, **scale.law}
    laws = {
        "α = (0.1, 10)": partial(
            partition.cluster_dirichlet,
            clusters=TRUE_CLUSTERS,
            alphas=(0.1, 10.0),
            **both,
        ),
        "(3, 2)-class": partial(
            partition.cluster_n_class_released, clusters=TRUE_CLUSTERS, n=3, m=2, **both
        ),
        "(3, 2)-class, equal sizes": partial(
            partition.cluster_n_class, clusters=TRUE_CLUSTERS, n=3, m=2, **both
        ),
        "α = 0.1": partial(partition.dirichlet_per_class, alpha=0.1, **both),
        "2-class": partial(partition.n_class_released, n=2, **both),
        "2-class, equal sizes": partial(partition.n_class, n=2, **both),
    }
    return limited(laws[setting], scale.samples)


def measure_ensemble(fed: Federation, state: Any) -> dict[str, Any]:
    """Measure all members together, and the first half of them.

    So ten members tell of five at no cost.
    """
    half = state.votes.shape[1] // 2
    few = measure(
        fed, state._replace(theta=state.theta[:half], votes=state.votes[:, :half])
    )
    return measure(fed, state) | {f"half_{name}": few[name] for name in CURVES}


def measure_geometry(fed: Federation, state: Any) -> dict[str, Any]:
    """Measure as usual, and how the models lie that the clients send next.

    Clients take one whole gradient, for B of Eq. 5, and one round of training, for
    cosines, distances and a picture. Then the federation is put back as it was.
    """
    before = fed.snapshot()
    rows = state.theta[state.labels]  # (K, D)
    gradients = whole_gradients(fed, rows)  # (K, P)
    trained = fed.train(rows).theta
    fed.restore(before)
    labels = state.labels.unique(return_inverse=True)[1]  # no empty clusters
    clusters = int(labels.max()) + 1
    g = represent(trained, fed.layout)  # (K, d)
    centres = mean_by(g, torch.ones_like(fed.n), labels, old=g[:clusters])
    to_centre = (g - centres[labels]).pow(2).sum(1)  # (K,)
    fellows = (labels[:, None] == labels) & ~torch.eye(fed.K, dtype=torch.bool)
    strangers = ~torch.eye(clusters, dtype=torch.bool)
    return measure(fed, state) | {
        "B": float(clusterability(gradients, fed.n, labels).max()),
        "cosine_members": float(cosine(g)[fellows].mean()),
        "cosine_centres": float(cosine(centres)[strangers].mean()),
        "to_centre": float(to_centre.mean().sqrt()),
        "between": float(torch.pdist(centres).min()),
        "plane": in_the_plane(g.numpy()),
    }


def measure_steps(fed: Federation, state: Any) -> dict[str, Any]:
    """Measure as usual, and B of Eq. 5 at each local step of the next round.

    ``B_steps`` (Q, C) has B of every cluster before each of the Q steps, where the
    clients' own training takes them. ``cosines_centres`` and ``cosines_members`` are
    the matrices of Figure 4, of what clients send at the end of that round; the members
    are those of the largest cluster. ``first_plane`` has what clients sent in round 1.
    The federation stays as it was.
    """
    assert fed.local.steps is not None
    rows = state.theta[state.labels]  # (K, D)
    labels = state.labels.unique(return_inverse=True)[1]  # no empty clusters
    B_steps = []
    for q in range(fed.local.steps):
        gradients = whole_gradients(fed, trained_for(fed, rows, q))
        B_steps.append(clusterability(gradients, fed.n, labels))
    g = represent(trained_for(fed, rows, fed.local.steps), fed.layout)  # (K, d)
    centres = mean_by(g, torch.ones_like(fed.n), labels, old=g[: int(labels.max()) + 1])
    largest = labels.mode().values
    first = represent(sent_first(fed), fed.layout)  # (K, d)
    return measure(fed, state) | {
        "B_steps": _rounded(torch.stack(B_steps), 4),
        "cosines_centres": _rounded(cosine(centres), 4),
        "cosines_members": _rounded(cosine(g[labels == largest]), 4),
        "first_plane": in_the_plane(first.numpy()),
    }


def trained_for(fed: Federation, rows: Tensor, steps: int) -> Tensor:  # (K, D)
    """Where clients are after so many steps of the next round, from ``rows`` (K, D).

    A shorter round has the first batches of a longer one, and momentum is put back, so
    this is a point of the very path that clients take next.
    """
    if steps == 0:
        return rows
    before = fed.snapshot()
    trained = fed.train(rows, steps=steps).theta
    fed.restore(before)
    return trained


def whole_gradients(fed: Federation, rows: Tensor) -> Tensor:  # (K, P)
    """Gradients of the clients' losses on all their samples, without buffers."""
    before = fed.snapshot()
    whole: dict[str, Any] = {"steps": 1, "batch_size": None, "lr": 1.0, "momentum": 0.0}
    moved = fed.train(rows, keep_state=False, **whole).theta
    fed.restore(before)
    return (rows - moved)[:, : fed.layout.P]


def sent_first(fed: Federation) -> Tensor:  # (K, D)
    """What clients sent in the first round, when all started from one model."""
    before = fed.snapshot()
    unused = {
        name: np.zeros_like(value)
        for name, value in before.items()
        if not name.startswith("memory.")  # momentum of earlier rounds
    }
    fed.restore(unused)
    trained = fed.train(fed.start().repeat(fed.K, 1)).theta
    fed.restore(before)
    return trained


def _rounded(values: Tensor, digits: int) -> list[list[float]]:
    return values.double().numpy().round(digits).tolist()


def in_the_plane(rows: np.ndarray) -> list[list[float]]:
    """Rows (K, D) as points of the plane by t-SNE, two coordinates each."""
    from sklearn.manifold import TSNE

    points = TSNE(perplexity=5, random_state=0).fit_transform(rows)  # (K, 2)
    return points.round(1).tolist()


def task(
    profile: str,
    dataset: str,
    setting: str,
    seed: int,
    method: Any,
    row: str,
    K: int,
    **changes: Any,
) -> Task:
    """One run."""
    scale = SCALES[profile]
    usual = Task(
        method=method,
        dataset=dataset,
        partition=law(scale, setting),
        model=scale.models[dataset],
        local=scale.local,
        rounds=scale.rounds,
        seed=seed,
        profile=profile,
        every=scale.rounds,
        last=3,  # the paper reports the mean of the last three rounds
        curves=CURVES,
        official=scale.official,
        tags={"setting": setting, "K": K, "row": row},
    )
    return replace(usual, **changes)


def oracle(scale: Scale) -> FixedClusters:
    """FedAvg within the true clusters: the cluster-wise laws deal blocks of clients."""
    labels: Any = np.repeat(range(TRUE_CLUSTERS), scale.clients // TRUE_CLUSTERS)
    return FixedClusters(labels)


def rivals(
    scale: Scale, seed: int, clustered: bool
) -> Iterator[tuple[int, str, Any, dict[str, Any]]]:
    """The lines of Tables 2 and 5, K by K, with our controls.

    The controls are LocalOnly, oracle clusters and random ones.
    """
    m = scale.clients
    yield 1, "FedAvg", FedAvg(), {}
    yield 1, "FedProx", FedProx(mu=MU), {}
    yield m, "LocalOnly", LocalOnly(), {}
    if clustered:
        yield TRUE_CLUSTERS, "Oracle clusters", oracle(scale), {}
    votes = {
        "measure": measure_ensemble,
        "curves": (*CURVES, *(f"half_{name}" for name in CURVES)),
    }
    yield 10, "FedAvg+", Ensemble(members=10), votes
    yield 10, "FedProx+", Ensemble(members=10, mu=MU), votes
    for K in (5, 10):
        yield K, "IFCA", IFCA(K), {}
        yield K, "IFCA as released", IFCA.as_released(K), {}
        yield K, "FeSEM", FeSEM(K), {}
        yield K, "WeCFL", WeCFL(K), {}
        yield K, "Random clusters", FixedClusters.random([m // K] * K, seed=seed), {}


def table(profile: str, setting: str, clustered: bool) -> list[Task]:
    """Tasks of half of Table 2 or 5.

    One seed comes after the other, so that an unfinished sweep has whole seeds.
    """
    scale = SCALES[profile]
    return [
        task(profile, dataset, setting, seed, method, row, K, **changes)
        for seed in scale.seeds
        for dataset in scale.models
        for K, row, method, changes in rivals(scale, seed, clustered)
    ]


def own_scale(
    profile: str, dataset: str, setting: str, seeds: Sequence[int]
) -> list[Task]:
    """Rows of Table 2 at the paper's own scale: the ones that its claims are about.

    Nothing is reduced but the number of seeds, and of rows: the ensembles would take
    ten times as long as the others. There is no laptop version; ``smoke`` has digits.
    """
    if profile == "laptop":
        return []
    scale = SCALES[profile]
    dataset = dataset if dataset in scale.models else next(iter(scale.models))
    rows = {"FedAvg", "LocalOnly", "Oracle clusters", "FeSEM", "WeCFL"}
    only_ten = {"IFCA", "IFCA as released", "Random clusters"}
    kept = {
        "every": max(1, scale.rounds // 5),
        "curves": (*CURVES, *FURTHER),
        "train_rows": TRAIN_ROWS[dataset] if profile == "paper" else None,
    }
    return [
        task(profile, dataset, setting, seed, method, row, K, **kept)
        for seed in seeds
        for K, row, method, _ in rivals(scale, seed, clustered=True)
        if row in rows or (row in only_ten and K == 10)
    ]


def same_classes(
    profile: str, dataset: str, setting: str, seeds: Sequence[int]
) -> list[Task]:
    """Clusters of clients that hold the very same classes, and WeCFL with as many.

    Where training alone is ahead of the clusters, is it because they share, or because
    their members bring other classes? Asked after a look at the first seed of
    ``scale_cifar10_class``, whose deals, settings and measures these runs have.
    """
    scale = SCALES[profile]
    made = []
    for like in own_scale(profile, dataset, setting, seeds):
        if like.tags["row"] != "FedAvg":
            continue
        name = dataset if dataset in scale.models else next(iter(scale.models))
        labels = classes_held(scale, name, setting, like.seed)
        K = int(labels.max()) + 1
        for row, method in (
            ("Same pair of classes", FixedClusters(labels)),
            ("WeCFL, K = pairs of classes", WeCFL(K)),
        ):
            tags = {**like.tags, "K": K, "row": row}
            made.append(replace(like, method=method, tags=tags))
    return made


def labels_in_some_order(rows: int) -> np.ndarray:
    """Classes of so many images, equally many of each of ten."""
    return np.arange(rows) % 10


def classes_held(scale: Scale, dataset: str, setting: str, seed: int) -> np.ndarray:
    """A number for each client (K,), the same for clients with the same classes.

    Of a whole data set the order does not matter: all its classes have equally many
    images, and who gets how many of each depends on nothing else.
    """
    if dataset in TRAIN_ROWS:
        y = labels_in_some_order(TRAIN_ROWS[dataset])
    else:
        loaded = data.load(dataset)
        y = loaded.y[: loaded.n_train]
    part = law(scale, setting)(y, seed=seed)
    held = partition.class_counts(part.train, y, 10) > 0  # (K, classes)
    return np.unique(held, axis=0, return_inverse=True)[1]


def equal_sizes(profile: str) -> list[Task]:
    """Rows of the n-class tables where classes have equally many holders.

    Then clients have all but equal sizes, and WeCFL's weights change nothing.
    """
    rows: list[tuple[int, str, Any]] = [(1, "FedAvg", FedAvg())]
    for K in (5, 10):
        rows += [(K, "FeSEM", FeSEM(K)), (K, "WeCFL", WeCFL(K))]
    return [
        task(profile, dataset, setting, seed, method, row, K)
        for setting in ("(3, 2)-class, equal sizes", "2-class, equal sizes")
        for seed in SCALES[profile].seeds
        for dataset in SCALES[profile].models
        for K, row, method in rows
    ]


def figure(
    profile: str, dataset: str, setting: str, arms: Callable[[Scale], dict[str, Any]]
) -> list[Task]:
    """Tasks of a convergence figure: longer runs, measured every round."""
    scale = SCALES[profile]
    dataset = dataset if dataset in scale.models else next(iter(scale.models))
    kept = {
        "rounds": scale.longer,
        "every": 1,
        "curves": (*CURVES, "ari", "completeness"),
    }
    return [
        task(profile, dataset, setting, seed, method, row, K, **kept | changes)
        for seed in scale.seeds
        for row, (K, method, changes) in arms(scale).items()
    ]


def clustered_methods(scale: Scale) -> dict[str, Any]:
    """Figure 2's three methods with ten clusters, and the controls."""
    slow = {"local": replace(scale.local, lr=0.001)}
    return {
        "IFCA": (10, IFCA(10), {}),
        "FeSEM": (10, FeSEM(10), {}),
        "WeCFL": (10, WeCFL(10), {}),
        "IFCA as released": (10, IFCA.as_released(10), {}),
        "IFCA as released, η = 0.001": (10, IFCA.as_released(10), slow),
        "FedAvg": (1, FedAvg(), {}),
        "FedAvg, η = 0.001": (1, FedAvg(), slow),
        "LocalOnly": (scale.clients, LocalOnly(), {}),
        "Oracle clusters": (10, oracle(scale), {}),
    }


def parts_of_ifca(scale: Scale) -> dict[str, Any]:
    """What the released IFCA does, one thing at a time, at Figure 2's two rates.

    Figure 2 itself has IFCA, and IFCA as released, which does all of this.
    """
    parts = {
        "IFCA": IFCA(10),
        "IFCA, three batches": IFCA(10, batches=3),
        "IFCA as released, without the slip": replace(
            IFCA.as_released(10), aliased=False
        ),
        "IFCA, the slip alone": IFCA(10, aliased=True),
    }
    arms: dict[str, Any] = {}
    for row, method in parts.items():
        if row != "IFCA":
            arms[row] = (10, method, {})
        slow = {"local": replace(scale.local, lr=0.001)}
        arms[f"{row}, η = 0.001"] = (10, method, slow)
    return arms


def numbers_of_clusters(scale: Scale) -> dict[str, Any]:
    """Figure 3's WeCFL with five and ten clusters, and Figure 8's with three."""
    return {f"WeCFL, K = {K}": (K, WeCFL(K), {}) for K in (3, 5, 10)}


def geometry(profile: str) -> list[Task]:
    """WeCFL on α = (0.1, 10) with ten clusters, and with three on Fashion-MNIST.

    Measured every round: Figures 4, 5, 7 and 8, and the clusterability B of the
    networks of Tables 3 and 4.
    """
    scale = SCALES[profile]
    first, *others = scale.models
    kept = {
        "every": 1,
        "measure": measure_geometry,
        "curves": ("B", "cosine_members", "cosine_centres", "to_centre", "between",
                   "plane", "labels", "ari", "completeness"),
    }  # fmt: skip
    return [
        task(profile, dataset, "α = (0.1, 10)", seed, WeCFL(K), f"K = {K}", K, **kept)
        for seed in scale.seeds
        for dataset, K in ((first, 10), (first, 3), *((name, 10) for name in others))
    ]


def steps(profile: str) -> list[Task]:
    """The runs of ``geometry`` once more, with B over all local steps of a round.

    What is not a curve is kept of the last round only.
    """
    kept: dict[str, Any] = {
        "measure": measure_steps,
        "curves": ("B_steps", "labels", "ari"),
    }
    return [replace(made, **kept) for made in geometry(profile)]


def averages(profile: str) -> list[Task]:
    """FeSEM of Tables 2 and 5 with averages that count all members alike, Eq. 2."""
    scale = SCALES[profile]
    row = "FeSEM, unweighted averages"
    return [
        task(profile, dataset, setting, seed, FeSEM(K, aggregation="equal"), row, K)
        for seed in scale.seeds
        for dataset in scale.models
        for setting in ("α = (0.1, 10)", "(3, 2)-class", "α = 0.1", "2-class")
        for K in (5, 10)
    ]


def variants(profile: str) -> list[Task]:
    """Each difference between paper, released code and us by itself.

    Ten clusters, and the network with BatchNorm.
    """
    scale = SCALES[profile]
    dataset = next(iter(scale.models))
    plain = WeCFL(10)
    cluster_wise: dict[str, tuple[Any, dict[str, Any]]] = {
        "corrected": (plain, {}),
        "as printed: one E and one M step a round": (WeCFL.as_printed(10), {}),
        "as released: last layer, batches": (WeCFL.as_released(10), {}),
        "last layer only": (replace(plain, representation="last"), {}),
        "all layers": (replace(plain, representation="all"), {}),
        "cosine distance": (replace(plain, distance="cosine"), {}),
        "λ = batches": (replace(plain, weights="batches", aggregation="batches"), {}),
        "momentum restarts every round": (
            plain,
            {"local": replace(scale.local, keep_state=False)},
        ),
        "no eval mode": (plain, {"options": {"batch_stats": True}}),
        "FedAvg": (FedAvg(), {}),
        "FedAvg, no eval mode": (FedAvg(), {"options": {"batch_stats": True}}),
        "LocalOnly": (LocalOnly(), {}),
        "LocalOnly, no eval mode": (LocalOnly(), {"options": {"batch_stats": True}}),
    }
    deal = law(replace(scale, law={}), "α = 0.1")
    # copies share their test samples
    own: dict[str, Any] = {"partition": deal, "official": False}
    copies = own | {"partition": partial(partition.refill, law=deal, least=6)}
    client_wise: dict[str, tuple[Any, dict[str, Any]]] = {
        "corrected": (plain, own),
        "small clients replaced by copies": (plain, copies),
        "FedAvg": (FedAvg(), own),
        "FedAvg, small clients replaced by copies": (FedAvg(), copies),
    }
    settings = {"α = (0.1, 10)": cluster_wise, "α = 0.1": client_wise}
    tasks = []
    for seed in scale.seeds:
        for setting, arms in settings.items():
            for row, (method, changes) in arms.items():
                made = task(profile, dataset, setting, seed, method, row, 10, **changes)
                base = "corrected"
                if isinstance(method, FedAvg | LocalOnly):
                    base = type(method).__name__
                tasks.append(replace(made, tags={**made.tags, "base": base}))
    return tasks


TABLES: dict[str, Callable[[str], list[Task]]] = only_in(
    ("smoke", "laptop", "paper"),
    {
        "table2_alpha": partial(table, setting="α = (0.1, 10)", clustered=True),
        "table2_class": partial(table, setting="(3, 2)-class", clustered=True),
        "table5_alpha": partial(table, setting="α = 0.1", clustered=False),
        "table5_class": partial(table, setting="2-class", clustered=False),
        "figure2": partial(
            figure, dataset="cifar10", setting="(3, 2)-class", arms=clustered_methods
        ),
        "figure3": partial(
            figure,
            dataset="fashion_mnist",
            setting="α = (0.1, 10)",
            arms=numbers_of_clusters,
        ),
        "equal_sizes": equal_sizes,
        "scale_cifar10_class": partial(
            own_scale, dataset="cifar10", setting="(3, 2)-class", seeds=range(3)
        ),
        "scale_cifar10_alpha": partial(
            own_scale, dataset="cifar10", setting="α = (0.1, 10)", seeds=range(1)
        ),
        "scale_fashion_class": partial(
            own_scale, dataset="fashion_mnist", setting="(3, 2)-class", seeds=range(1)
        ),
        "scale_same_classes": partial(
            same_classes, dataset="cifar10", setting="(3, 2)-class", seeds=range(3)
        ),
        "geometry": geometry,
        "steps": steps,
        "averages": averages,
        "choices": partial(
            figure, dataset="cifar10", setting="(3, 2)-class", arms=parts_of_ifca
        ),
        "variants": variants,
    },
)
