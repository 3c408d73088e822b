"""OCFL's tables and figures as tasks: Zuziak, Pellungrini, Rinzivillo 2025, sections 4
to 6.

| name | what |
|---|---|
| mnist, ..., bloodmnist | Tables 1 and 2 and most figures: 15 clients, all splits |
| others30, fashion_mnist30, mnist30 | the same with 30 clients |
| participation | section 6.2: some clients are away when the others are clustered |
| batchnorm | a BatchNorm network: its statistics and counters in the update, or not |
| local_work_mnist, ... | three epochs a round on 400 samples a client |

A task runs all methods in step, see `arms`: what they have in common is trained once.
In every round FedAvg's updates are given to every clusterer: up to its trigger OCFL
*is* FedAvg, so one run tells when the trigger fires, what each clusterer finds then,
and what it would have found in any other round.

``laptop`` has the authors' splits and numbers of clients, and for all data sets one
small network, LeNet-5, instead of 25 million parameters (MNIST, Fashion-MNIST) and
ResNet34; about 100 training samples a client instead of thousands; 12 rounds of 6 steps
instead of 50 to 80 rounds of three epochs; plain SGD with one learning rate for all,
ten times the authors'. CFL and FL+HC wait for 5 rounds instead of 20; CFL takes a
cluster to be at rest when its mean update is down to 60 % of its longest, not 30 %, for
within 12 rounds FedAvg's does not fall further. With 30 clients all methods run on
Fashion-MNIST and MNIST; on the other data sets there is FedAvg, which is enough for
Tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ... import models
from ...experiment import measure
from ...methods import CFL, OCFL, BriggsHC, FedAvg, FixedClusters, LocalOnly
from ...partition import Partition
from ...sweeps import Task
from ...training import Local
from ..common import only_in
from .archive import SIZES
from .arms import CLUSTERERS, CORRECTED, Arms, at_threshold, judge, keys, look

# (classes of the data, overlap): the classes of each cluster
CLASSES = {
    (10, "non-overlapping"): ((0, 1, 2, 3), (4, 5, 6), (7, 8, 9)),
    (10, "overlapping"): ((0, 1, 2, 3, 8, 9), (4, 5, 6, 7, 8, 9), (0, 1, 2, 3, 4, 5)),
    (9, "non-overlapping"): ((0, 1, 2), (3, 4, 5), (6, 7, 8)),
    (9, "overlapping"): ((0, 1, 2, 7, 8), (4, 5, 6, 7, 8), (0, 1, 2, 3, 4, 5)),
    (8, "non-overlapping"): ((0, 1), (2, 3, 4), (5, 6, 7)),
    (8, "overlapping"): ((0, 1, 2, 6, 7), (3, 4, 5, 6, 7), (0, 1, 2, 3, 4)),
}
SPLITS = [
    (overlap, balance)
    for overlap in ("non-overlapping", "overlapping")
    for balance in ("balanced", "imbalanced")
]
# our names of data sets: the paper's
NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "FMNIST",
    "cifar10": "CIFAR10",
    "pathmnist": "PATHMNIST",
    "bloodmnist": "BLOODMNIST",
    "digits": "digits",
}


def split(
    y: np.ndarray,
    clients: int,
    overlap: str,
    balance: str,
    samples: int | None = None,
    *,
    seed: int = 0,
    test: float = 0.3,
    leaky: bool = False,
) -> Partition:
    """Deal one of the authors' four splits (section 4.1) into three clusters.

    Each cluster has its own classes and its own mixture of them.

    ``balanced`` clusters are equally large and mix their classes evenly. ``imbalanced``
    ones have 20, 47 and 33 % of the clients, and their mixture is drawn from Dir(1),
    once for each cluster. Each client draws ``samples``, by default N / clients;
    clients may share images, of which there are too few.

    In the authors' code an image can be among one client's training and another's test
    samples: ``leaky``. It draws with replacement and drops what came twice. Without it,
    a share ``test`` of each class is put aside for tests first.
    """
    rng = np.random.default_rng(seed)
    C = int(y.max()) + 1
    truth = np.repeat(range(3), SIZES[clients, balance])
    weights = np.ones((3, C))
    if balance == "imbalanced":
        weights = rng.dirichlet(np.ones(C), 3)
    is_held = [[c in held for c in range(C)] for held in CLASSES[C, overlap]]
    mixture = weights * is_held  # (3, C)
    mixture /= mixture.sum(1, keepdims=True)
    samples = samples or len(y) // clients
    tests = round(test * samples)
    piles = [rng.permutation(np.flatnonzero(y == c)) for c in range(C)]
    ends = [round(test * len(pile)) for pile in piles]
    test_piles = [pile[:end] for pile, end in zip(piles, ends, strict=True)]
    train_piles = [pile[end:] for pile, end in zip(piles, ends, strict=True)]
    train = []
    held_out = []
    for c in truth:
        if leaky:
            counts = rng.multinomial(samples, mixture[c])
            drawn = rng.permutation(_draw(piles, counts, rng, replace=True))
            cut = round((1 - test) * len(drawn))
            train.append(np.sort(drawn[:cut]))
            held_out.append(np.sort(drawn[cut:]))
        else:
            counts = rng.multinomial(samples - tests, mixture[c])
            train.append(_draw(train_piles, counts, rng))
            counts = rng.multinomial(tests, mixture[c])
            held_out.append(_draw(test_piles, counts, rng))
    return Partition(train, held_out, truth)


def _draw(
    piles: list[np.ndarray],
    counts: np.ndarray,
    rng: np.random.Generator,
    replace: bool = False,
) -> np.ndarray:
    """Draw so many of each pile, or all there are: sorted, each once."""
    taken = []
    for pile, count in zip(piles, counts, strict=True):
        if not replace:
            count = min(count, len(pile))
        taken.append(rng.choice(pile, count, replace))
    return np.unique(np.concatenate(taken))


@dataclass(frozen=True)
class Setup:
    """How one data set is trained."""

    model: Callable[[], Any]
    local: Local
    rounds: int
    eps: tuple[float, float] | None = None  # CFL's, as lengths; None: relative


@dataclass(frozen=True)
class Scale:
    """What a profile changes."""

    setups: dict[str, Setup]  # in the order of the table
    samples: int | None  # of a client, for training and tests; None: N / clients
    seeds: range
    wait: int  # rounds before CFL and FL+HC may cluster
    normed: Callable[[], Any]  # a network with BatchNorm
    law: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        setup = next(iter(self.setups.values()))
        return f"{self.samples or 'all'} samples a client, {setup.rounds} rounds"


def _small() -> dict[str, Setup]:
    """A short training with LeNet-5 for all data sets."""
    local = Local(0.1, steps=6, batch_size=16)
    grey = partial(models.lenet5, shape=(1, 28, 28))
    nets: dict[str, Callable[[], Any]] = {
        "mnist": grey,
        "fashion_mnist": grey,
        "cifar10": models.lenet5,
        "pathmnist": partial(models.lenet5, shape=(3, 28, 28), classes=9),
        "bloodmnist": partial(models.lenet5, shape=(3, 28, 28), classes=8),
    }
    return {name: Setup(net, local, rounds=12) for name, net in nets.items()}


def _middle() -> dict[str, Setup]:
    """Grey images' settings of the authors' Table 3 for all data sets, with LeNet-5."""
    local = Local(0.01, epochs=3, batch_size=32)
    nets = _small()
    return {
        name: Setup(nets[name].model, local, rounds=12)
        for name in ("mnist", "fashion_mnist", "cifar10")
    }


def _whole() -> dict[str, Setup]:
    """The authors' settings: Table 3, and CFL's thresholds from their released code."""
    grey = Local(0.01, epochs=3, batch_size=32)
    colour = Local(0.01, epochs=3, batch_size=64)
    adam = Local(1e-7, epochs=3, batch_size=128, optimizer="adam", weight_decay=0.01)
    return {
        "mnist": Setup(models.tiny_vgg, grey, 50, (0.35, 1.0)),
        "fashion_mnist": Setup(models.tiny_vgg, grey, 50, (0.35, 1.0)),
        "cifar10": Setup(models.resnet34, colour, 80, (185.0, 925.0)),
        "pathmnist": Setup(partial(models.resnet34, classes=9), adam, 75, (12.0, 60.0)),
        "bloodmnist": Setup(
            partial(models.resnet34, classes=8),
            replace(adam, lr=1e-6),
            75,
            (38.0, 188.0),
        ),
    }


_digits = partial(models.cnn_bn, shape=(1, 8, 8))
_smoke = {"digits": Setup(_digits, Local(0.1, steps=3, batch_size=16), 4)}
SCALES = {
    "smoke": Scale(
        setups=_smoke,
        samples=60,
        seeds=range(1),
        wait=2,
        normed=_digits,
    ),
    "laptop": Scale(
        setups=_small(),
        samples=150,
        seeds=range(3),
        wait=5,
        normed=models.cnn_bn,
    ),
    "workstation": Scale(
        setups=_middle(),
        samples=400,
        seeds=range(3),
        wait=5,
        normed=models.cnn_bn,
    ),
    "paper": Scale(
        setups=_whole(),
        samples=None,
        seeds=range(5),
        wait=20,
        normed=models.cnn_bn,
        law={"leaky": True},
    ),
}


def law(
    scale: Scale, clients: int, overlap: str, balance: str
) -> Callable[..., Partition]:
    """One of the four splits, at the profile's scale."""
    return partial(
        split,
        clients=clients,
        overlap=overlap,
        balance=balance,
        samples=scale.samples,
        **scale.law,
    )


def rivals(
    profile: str, dataset: str, clients: int, balance: str, seed: int
) -> tuple[tuple[str, Any], ...]:
    """All methods, FedAvg first, and the controls.

    These are LocalOnly, oracle and random clusters, and a split in round one.
    """
    scale = SCALES[profile]
    sizes = SIZES[clients, balance]
    eps = scale.setups[dataset].eps
    ocfl: Callable[..., OCFL] = OCFL
    if profile == "paper":
        ocfl = OCFL.as_released
    if eps is None:
        cfl = CFL(wait=scale.wait, eps1=0.6, eps2=0.6)
    else:
        cfl = CFL(wait=scale.wait, relative=False, eps1=eps[0], eps2=eps[1])
    truth = tuple(int(c) for c in np.repeat(range(3), sizes))
    return (
        ("FedAvg", FedAvg()),
        ("SCL", cfl),
        ("BCL as released", BriggsHC.as_released(scale.wait)),
        ("BCL", BriggsHC(scale.wait)),
        *((name, ocfl(clusterer)) for name, clusterer in CORRECTED.items()),
        ("OCFL-HDB in round 1", ocfl("hdbscan", at=1)),
        ("Oracle clusters", FixedClusters(truth)),
        ("Random clusters", FixedClusters.random(sizes, seed=seed)),
        ("LocalOnly", LocalOnly()),
    )


def task(
    profile: str,
    dataset: str,
    clients: int,
    overlap: str,
    balance: str,
    seed: int,
    arms: tuple[tuple[str, Any], ...] = (),
    more: dict[str, str] | None = None,
    **changes: Any,
) -> Task:
    """All methods, or those of ``arms``, on one split of one data set.

    ``more`` are further tags, and ``changes`` are fields of the task.
    """
    scale = SCALES[profile]
    setup = scale.setups[dataset]
    arms = arms or rivals(profile, dataset, clients, balance, seed)
    names = [name for name, _ in arms]
    usual = Task(
        method=Arms(arms),
        dataset=dataset,
        partition=law(scale, clients, overlap, balance),
        model=setup.model,
        local=setup.local,
        rounds=setup.rounds,
        seed=seed,
        profile=profile,
        curves=("temperature", *CLUSTERERS, *keys(names, ("pf1", "gf1", "ari"))),
        measure=partial(judge, final=setup.rounds),
        tags={
            "data": NAMES[dataset],
            "clients": clients,
            "overlap": overlap,
            "balance": balance,
            **(more or {}),
        },
    )
    return replace(usual, **changes)


def table(
    profile: str, clients: int, datasets: tuple[str, ...], full: bool = True
) -> list[Task]:
    """Every split of some data sets, with all methods or FedAvg only; seeds in order.

    In ``smoke``: the last split of the digits.
    """
    scale = SCALES[profile]
    splits = SPLITS
    if profile == "smoke":
        datasets = tuple(scale.setups)
        splits = SPLITS[-1:]
    arms: tuple[tuple[str, Any], ...] = ()  # all
    if not full and profile != "paper":
        arms = (("FedAvg", FedAvg()),)
    return [
        task(profile, dataset, clients, overlap, balance, seed, arms=arms)
        for seed in scale.seeds
        for dataset in datasets
        for overlap, balance in splits
    ]


def participation(profile: str) -> list[Task]:
    """HDBSCAN when only a share of 30 clients is sampled in a round."""
    return [
        task(
            profile,
            _one_dataset(profile),
            30,
            overlap,
            balance,
            seed,
            more={"sampled": f"{share:.0%}"},
            method=OCFL(sampled=share),
            measure=measure,
            curves=("ari", "macro_f1"),
            every=3,
        )
        for seed in SCALES[profile].seeds
        for overlap, balance in SPLITS
        for share in (1.0, 0.7, 0.4)
    ]


def _one_dataset(profile: str) -> str:
    """The data set of tables that have one only."""
    if profile == "smoke":
        return "digits"
    return "fashion_mnist"


def batchnorm(profile: str) -> list[Task]:
    """FedAvg with a BatchNorm network, whose updates are given to each clusterer.

    They are given twice: as parameters, and with all that is no parameter. FL+HC runs
    beside it, as released and corrected.
    """
    scale = SCALES[profile]
    arms = (
        ("FedAvg", FedAvg()),
        ("BCL as released", BriggsHC.as_released(scale.wait)),
        ("BCL", BriggsHC(scale.wait)),
    )
    seen = tuple(
        f"{mark}{name}"
        for mark in ("", "state ")
        for name in ("temperature", *CLUSTERERS)
    )
    look_twice = partial(look, updates=("parameters", "state"))
    return [
        task(
            profile,
            _one_dataset(profile),
            15,
            overlap,
            balance,
            seed,
            arms=arms,
            model=scale.normed,
            measure=look_twice,
            curves=seen,
        )
        for seed in scale.seeds
        for overlap, balance in SPLITS
    ]


THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)  # FL+HC looks
TRIED = (0.1, 0.2, 0.3)  # thresholds with which FL+HC runs, beside its default, 0.4


def local_rivals(
    profile: str, dataset: str, balance: str, seed: int
) -> tuple[tuple[str, Any], ...]:
    """The arms of ``local_work``: all methods, and OCFL-HDB with one change at a time.

    FL+HC has four thresholds, so that the best one on the other seeds can be taken.
    """
    arms = dict(rivals(profile, dataset, 15, balance, seed))
    del arms["BCL as released"]
    arms["OCFL-HDB, matrix before"] = OCFL("hdbscan", matrix="before")
    arms["OCFL-HDB, window 2"] = OCFL("hdbscan", window=2)
    for threshold in TRIED:
        arms[f"BCL, threshold {threshold:g}"] = BriggsHC(
            SCALES[profile].wait, threshold=threshold
        )
    return tuple(arms.items())


def local_work(profile: str, dataset: str) -> list[Task]:
    """Every split of a data set with nearly the paper's local work: 15 clients.

    As in the paper: the splits, the number of clients, batches of 32, η = 0.01 and
    three epochs a round (on CIFAR-10 the paper has batches of 64). Reduced: 400 samples
    a client, 280 of them for training, instead of about 4,000; LeNet-5 instead of 25
    million parameters or ResNet34; 12 rounds instead of 50 or 80; CFL and FL+HC wait
    for 5 rounds instead of 20, and CFL's thresholds are ``laptop``'s; three seeds.

    Every clusterer looks in every round, FL+HC at ``THRESHOLDS``. Explanations are
    judged on 50 images a cluster, one row of pixels a step; mean maps of 20 images a
    hidden group stand for Figures 5, 15 and 16, as no image may be kept. All of this
    was fixed before the first of these runs.
    """
    scale = SCALES[profile]
    splits = SPLITS
    images = 50
    if profile == "smoke":
        dataset = "digits"
        splits = SPLITS[-1:]
        images = 5
    measure_in_detail = partial(
        judge,
        final=scale.setups[dataset].rounds,
        images=images,
        thresholds=THRESHOLDS,
        detailed=True,
    )
    looks = [at_threshold(threshold) for threshold in THRESHOLDS]
    kinds = ("pf1", "gf1", "ari", "accuracy", "balanced_accuracy", "labels")
    tasks = []
    for seed in scale.seeds:
        for overlap, balance in splits:
            arms = local_rivals(profile, dataset, balance, seed)
            names = [name for name, _ in arms]
            one = task(
                profile,
                dataset,
                15,
                overlap,
                balance,
                seed,
                arms=arms,
                measure=measure_in_detail,
                curves=("temperature", *CLUSTERERS, *looks, *keys(names, kinds)),
            )
            tasks.append(one)
    return tasks


LOCAL_WORK = ("mnist", "fashion_mnist", "cifar10")
GREY = ("mnist", "fashion_mnist")
COLOUR = ("cifar10", "pathmnist", "bloodmnist")
# tables with 15 clients: one for each data set, so that no file gets large
FIFTEEN = (*GREY, *COLOUR)
THIRTY = ("fashion_mnist30", "others30")
TABLES: dict[str, Callable[[str], list[Task]]] = only_in(
    ("smoke", "laptop", "paper"),
    {
        **{name: partial(table, clients=15, datasets=(name,)) for name in FIFTEEN},
        "batchnorm": batchnorm,
        "participation": participation,
        "others30": partial(table, clients=30, datasets=("mnist", *COLOUR), full=False),
        "fashion_mnist30": partial(table, clients=30, datasets=("fashion_mnist",)),
        "mnist30": partial(table, clients=30, datasets=("mnist",)),
    },
) | only_in(
    ("smoke", "workstation"),
    {f"local_work_{name}": partial(local_work, dataset=name) for name in LOCAL_WORK},
)
