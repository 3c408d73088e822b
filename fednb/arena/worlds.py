"""The worlds of the arena: ten federations, each with something hidden in it.

A world says who holds which samples and how much training a run may spend. What is
hidden is known to the judge only. Where there are hidden groups, there are four of
equal size, each a block of consecutive clients. Their number is the same everywhere, so
that a method told a wrong number is wrong in all these worlds.

| name | data | who is like whom |
|---|---|---|
| iid | Fashion-MNIST | everybody is like everybody: the null |
| quantity | MNIST | the same law for all, very different numbers of samples |
| label-skew | CIFAR-10 | every client has a class mixture of its own, no groups |
| label-groups | CIFAR-10 | four groups by the classes that they hold |
| label-dirichlet | Fashion-MNIST | four groups by their class mixtures |
| concept-shift | Fashion-MNIST | four groups that give the classes other numbers |
| rotation | MNIST | four groups that see the images turned |
| filters | CIFAR-10 | four groups: plain, inverted, noisy, blurred images |
| few-sampled | Fashion-MNIST | label groups, 40 clients, a tenth of them per round |
| many-small | EMNIST | four groups by the characters they write, 40 small clients |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import models, partition
from ..data import as_generated, with_official_tests

GROUPS = 4  # where a world has hidden groups
VALIDATION = 0.2  # of a client's training samples, while settings are chosen
TURNS = ("plain", "rotate 90", "rotate 180", "rotate 270")
FILTERS = ("plain", "invert", "noise", "blur")


@dataclass(frozen=True)
class World:
    """A federation with a hidden truth, and a budget for every run in it."""

    name: str
    hidden: str  # one sentence
    base: str  # data set
    model: partial[Any]  # of one of the functions of `models`
    clients: int
    sampled: int  # clients per round
    size: int  # training samples of a client, on average
    updates: int  # client updates of a run, each of ``Local.steps`` steps
    groups: int | None = None  # hidden groups, 1: all alike; None: nobody is alike
    law: Callable[..., partition.Partition] | None = None  # who holds which samples
    kinds: tuple[str, ...] = ()  # instead of a law: what each group sees
    probe: int = 10  # samples of each class that the server holds

    def __post_init__(self) -> None:
        if (self.law is None) == (len(self.kinds) == 0):
            raise ValueError(f"world {self.name!r}: give it a law or kinds, not both")

    @property
    def is_grouped(self) -> bool:
        """Whether there are hidden groups to be found."""
        return self.groups is not None and self.groups > 1

    @property
    def network(self) -> str:
        """What kind of network it has: "mlp" or "cnn"."""
        return self.model.func.__name__

    @property
    def truth(self) -> np.ndarray:  # (K,)
        """The hidden group of each client, as the laws deal them: in blocks."""
        return np.sort(np.arange(self.clients) % (self.groups or 1))

    def dataset(self, seed: int, tuning: bool) -> str:
        """Name of the data set; shifted images are drawn with their clients.

        While settings are chosen there are no test samples.
        """
        if not self.kinds:
            return self.base
        sizes = tuple(np.bincount(self.truth).tolist())
        return (
            f"shifted({self.base!r}, {self.kinds!r}, {sizes!r}, {self.size}, test=0.0, "
            f"official={not tuning}, server={self.probe}, seed={seed})"
        )

    def deal(self, seed: int, tuning: bool) -> Callable[..., partition.Partition]:
        """The law for a task, with validation samples while settings are chosen."""
        law = partial(as_generated, name=self.dataset(seed, tuning))
        if self.law is not None:
            samples = self.clients * self.size
            law = partial(partition.subset, law=self.law, samples=samples)
        if tuning:
            return partial(partition.with_validation, law=law, share=VALIDATION)
        if self.kinds:  # the data set has test samples, dealt with the others
            return law
        return partial(with_official_tests, name=self.base, law=law, keep=self.probe)


@dataclass(frozen=True)
class Size:
    """What a profile says about the size of worlds."""

    bases: dict[str, str]  # which data set stands for which
    clients: int  # of an ordinary world; half of them are sampled
    many: int  # of a world with many clients
    samples: int  # of a client
    few: int  # samples of a client in the world of many small ones
    updates: int  # client updates of a run
    updates_cnn: int  # where the network is a convolutional one
    probe: int


SIZES = {
    "smoke": Size(
        bases=dict.fromkeys(("fashion_mnist", "mnist", "cifar10", "emnist"), "digits"),
        clients=8,
        many=8,
        samples=30,
        few=20,
        updates=24,
        updates_cnn=24,
        probe=1,
    ),
    "laptop": Size(
        bases={
            "fashion_mnist": "fashion_mnist",
            "mnist": "mnist",
            "cifar10": "cifar10",
            "emnist": "emnist_bymerge",
        },
        clients=20,
        many=40,
        samples=250,
        few=60,
        updates=500,
        updates_cnn=400,
        probe=10,
    ),
}

NETWORKS = {
    "digits": partial(models.mlp, inputs=64, hidden=(16, 16)),
    "mnist": partial(models.mlp, inputs=784, hidden=(64, 32)),
    "fashion_mnist": partial(models.mlp, inputs=784, hidden=(64, 32)),
    "emnist_bymerge": partial(models.mlp, inputs=784, hidden=(64, 32), classes=47),
    "cifar10": partial(models.cnn, filters=(6, 16), dense=(64,)),
}
# Two halves of the digits, capital letters, and small letters that look unlike these;
# letters that are less than a hundredth of the data are left out.
CHARACTERS: tuple[tuple[int, ...], ...] = (
    (0, 1, 2, 3, 4),
    (5, 6, 7, 8, 9),
    (12, 15, 18, 21, 22, 23, 24, 25, 28, 29, 30, 31, 32, 34),
    (36, 38, 39, 42, 43, 45, 46),
)
TEN_CLASSES = ((0, 1, 2), (3, 4), (5, 6), (7, 8, 9))


def worlds(profile: str) -> dict[str, World]:
    """The worlds of a profile, by name."""
    if profile not in SIZES:
        raise ValueError(f"no worlds of profile {profile!r}: there are {[*SIZES]}")
    size = SIZES[profile]
    usual: dict[str, Any] = {"clients": size.clients, "test": 0.0, "min_size": 10}
    many: dict[str, Any] = {"clients": size.many, "test": 0.0, "min_size": 8}
    characters = CHARACTERS
    if size.bases["emnist"] == "digits":
        characters = TEN_CLASSES
    found = [
        _world(
            size,
            "iid",
            "Nothing is hidden: all clients draw from one law.",
            "fashion_mnist",
            groups=1,
            law=partial(partition.iid, **usual),
        ),
        _world(
            size,
            "quantity",
            "All clients draw from one law, but some have many times the samples of "
            "others.",
            "mnist",
            groups=1,
            law=partial(partition.quantity_skew, alpha=0.5, **usual),
        ),
        _world(
            size,
            "label-skew",
            "Every client has a class mixture of its own, and nobody's is another's.",
            "cifar10",
            law=partial(partition.dirichlet_per_class, alpha=0.3, **usual),
        ),
        _world(
            size,
            "label-groups",
            "Four groups hold three classes each, and a client two of these.",
            "cifar10",
            groups=GROUPS,
            law=partial(partition.cluster_n_class, clusters=GROUPS, n=3, m=2, **usual),
        ),
        _world(
            size,
            "label-dirichlet",
            "Four groups have class mixtures of their own, alike within a group.",
            "fashion_mnist",
            groups=GROUPS,
            law=partial(partition.cluster_dirichlet, clusters=GROUPS, **usual),
        ),
        _world(
            size,
            "concept-shift",
            "Four groups see the same images and give the classes different numbers.",
            "fashion_mnist",
            groups=GROUPS,
            kinds=("relabel",) * GROUPS,
        ),
        _world(
            size,
            "rotation",
            "Four groups see the images turned by 0, 90, 180 and 270 degrees.",
            "mnist",
            groups=GROUPS,
            kinds=TURNS,
        ),
        _world(
            size,
            "filters",
            "Four groups see the images plain, inverted, noisy or blurred.",
            "cifar10",
            groups=GROUPS,
            kinds=FILTERS,
        ),
        _world(
            size,
            "few-sampled",
            "Four groups hold three classes each, and a client two of these; a tenth "
            "of the clients take part in a round.",
            "fashion_mnist",
            groups=GROUPS,
            clients=size.many,
            sampled=max(2, size.many // 10),
            law=partial(partition.cluster_n_class, clusters=GROUPS, n=3, m=2, **many),
        ),
        _world(
            size,
            "many-small",
            "Four groups write different characters, and a client has few samples.",
            "emnist",
            groups=GROUPS,
            clients=size.many,
            sampled=size.many // 4,
            size=size.few,
            law=partial(
                partition.by_class_sets,
                sizes=(size.many // GROUPS,) * GROUPS,
                class_sets=characters,
                test=0.0,
                min_size=8,
            ),
        ),
    ]
    return {world.name: world for world in found}


def _world(scale: Size, name: str, hidden: str, base: str, **changes: Any) -> World:
    """A world of the usual size, unless ``changes`` say otherwise."""
    updates = scale.updates
    if base == "cifar10":
        updates = scale.updates_cnn
    usual = {
        "clients": scale.clients,
        "sampled": scale.clients // 2,
        "size": scale.samples,
        "updates": updates,
        "probe": scale.probe,
    }
    found = scale.bases[base]
    return World(
        name=name, hidden=hidden, base=found, model=NETWORKS[found], **usual | changes
    )
