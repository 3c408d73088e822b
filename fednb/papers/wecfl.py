"""WeCFL's tables and figures as tasks: Ma et al., arXiv:2202.06187, sections 7 and 8 and appendix B.

| name | what |
|---|---|
| table2_alpha, table2_class | cluster-wise non-IID: α = (0.1, 10), and (3, 2)-class |
| table5_alpha, table5_class | client-wise non-IID: α = 0.1, and 2-class |
| figure2 | convergence of IFCA, FeSEM and WeCFL on CIFAR-10, (3, 2)-class |
| figure3 | convergence of WeCFL on Fashion-MNIST, α = (0.1, 10), K = 3, 5, 10 |
| equal_sizes | rows of the two n-class tables under laws with clients of equal size |
| scale_cifar10_class, ..._alpha, scale_fashion_class | the claims' rows at the paper's own scale |
| variants | as printed, as released, corrected: one difference at a time, on Fashion-MNIST |

The n-class laws are those of the released code: each cluster and each client draws its
classes independently, so the sizes of clients differ. Laws that deal the classes evenly
make sizes all but equal, and then WeCFL is FeSEM; ``equal_sizes`` shows it.

``laptop`` keeps the networks of Tables 3 and 4, the ten local steps and the momentum, and has 30 clients of 200 samples
instead of 200 of 250 or 300, batches of 16, and a tenth of the rounds at ten times the learning rate (the figures: a
third of the rounds). Momentum is kept from round to round in all profiles, as in the code that made the paper's
numbers.

The committed laptop records were made with the code of commit 907df63. Most call it dirty: the paper's numbers,
``wecfl.csv``, lay untracked in that checkout. No tracked file differed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import models, partition, tables
from ..experiment import Task, measure
from ..methods import (
    IFCA,
    Ensemble,
    FedAvg,
    FedProx,
    FeSEM,
    FixedClusters,
    LocalOnly,
    WeCFL,
)
from ..training import Local

TRUE_CLUSTERS = 10
MU = 0.95  # FedProx's λ, section 7.2
CURVES = ("accuracy_weighted", "macro_f1_union")
FURTHER = ("accuracy", "balanced_accuracy", "macro_f1", "ari", "clusters", "labels")
TRAIN_ROWS = {"cifar10": 50_000, "fashion_mnist": 60_000}  # of the whole data sets


@dataclass(frozen=True)
class Scale:
    """What a profile changes."""

    models: dict[
        str, Callable[[], Any]
    ]  # a network for each data set, in the order of the table
    clients: int
    samples: int | None  # of the training pool, for all clients together; None: all
    rounds: int
    local: Local
    seeds: range
    longer: int  # rounds of the convergence figures
    official: bool = False
    law: dict[str, Any] = field(
        default_factory=dict
    )  # further keywords of the partition laws

    def __str__(self) -> str:
        return f"{self.clients} clients, {self.rounds} rounds"


_local = Local(0.001, steps=10, batch_size=32, momentum=0.9, keep_state=True)
_nets = {"fashion_mnist": models.cnn_bn, "cifar10": models.lenet5}
_small = {"digits": partial(models.cnn_bn, shape=(1, 8, 8))}
SCALES = {
    "smoke": Scale(_small, 20, None, 2, replace(_local, lr=0.01, steps=2), range(1), 3),
    "laptop": Scale(
        _nets, 30, 6000, 10, replace(_local, lr=0.01, batch_size=16), range(3), 30
    ),
    "paper": Scale(
        _nets, 200, None, 100, _local, range(5), 100, official=True, law={"test": 0.0}
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
    return (
        laws[setting]
        if scale.samples is None
        else partial(partition.subset, law=laws[setting], samples=scale.samples)
    )


def measure_ensemble(fed, state) -> dict[str, Any]:
    """Measure all members together, and the first half of them: ten members tell of five at no cost."""
    half = state.votes.shape[1] // 2
    few = measure(
        fed, state._replace(theta=state.theta[:half], votes=state.votes[:, :half])
    )
    return measure(fed, state) | {f"half_{name}": few[name] for name in CURVES}


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
        method,
        dataset,
        law(scale, setting),
        scale.models[dataset],
        scale.local,
        scale.rounds,
        seed,
        profile,
        every=scale.rounds,
        last=3,  # the paper reports the mean of the last three rounds
        curves=CURVES,
        official=scale.official,
        tags={"setting": setting, "K": K, "row": row},
    )
    return replace(usual, **changes)


def oracle(scale: Scale) -> FixedClusters:
    """FedAvg within the true clusters, which the cluster-wise laws deal as blocks of clients."""
    return FixedClusters(
        np.repeat(range(TRUE_CLUSTERS), scale.clients // TRUE_CLUSTERS)
    )


def rivals(
    scale: Scale, seed: int, clustered: bool
) -> Iterator[tuple[int, str, Any, dict[str, Any]]]:
    """The lines of Tables 2 and 5, K by K, with our controls: LocalOnly, oracle and random clusters."""
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
    """Tasks of half of Table 2 or 5; one seed after the other, so that an unfinished sweep has whole seeds."""
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


def equal_sizes(profile: str) -> list[Task]:
    """Rows of the n-class tables where classes have equally many holders.

    Then clients have all but equal sizes, and WeCFL's weights change nothing.
    """
    rows = [(1, "FedAvg", FedAvg())]
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


def numbers_of_clusters(scale: Scale) -> dict[str, Any]:
    """Figure 3's WeCFL with five and ten clusters, and Figure 8's with three."""
    return {f"WeCFL, K = {K}": (K, WeCFL(K), {}) for K in (3, 5, 10)}


def variants(profile: str) -> list[Task]:
    """Each difference between paper, released code and us by itself, ten clusters, the BatchNorm network."""
    scale = SCALES[profile]
    dataset, plain = next(iter(scale.models)), WeCFL(10)
    cluster_wise = {
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
    own = {
        "partition": law(replace(scale, law={}), "α = 0.1"),
        "official": False,
    }  # copies share their test samples
    copies = own | {
        "partition": partial(partition.refill, law=own["partition"], least=6)
    }
    client_wise = {
        "corrected": (plain, own),
        "small clients replaced by copies": (plain, copies),
        "FedAvg": (FedAvg(), own),
        "FedAvg, small clients replaced by copies": (FedAvg(), copies),
    }
    return [
        task(profile, dataset, setting, seed, method, row, 10, **changes)
        for seed in scale.seeds
        for setting, arms in (("α = (0.1, 10)", cluster_wise), ("α = 0.1", client_wise))
        for row, (method, changes) in arms.items()
    ]


TABLES: dict[str, Callable[[str], list[Task]]] = {
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
    "variants": variants,
}


def printed(table: str):
    """The paper's own numbers of Table "2" or "5", as shares; a DataFrame with our tags."""
    return tables.printed(Path(__file__).with_suffix(".csv"), table)


def with_halves(frame):
    """A table's frame with lines for ensembles of five: the first five of the ten, measured beside them."""
    import pandas as pd

    names = {f"half_{name}": name for name in CURVES}
    few = (
        frame[frame["row"].isin(["FedAvg+", "FedProx+"])]
        .drop(columns=[*CURVES])
        .rename(columns=names)
    )
    return pd.concat([few.assign(K=5), frame.drop(columns=[*names])], ignore_index=True)
