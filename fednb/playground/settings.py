"""What a person chose in the playground: as tasks to run, and as code to keep.

A ``Settings`` checks only some of its fields. Whether they fit together shows when its
tasks make their federations: the library's own errors say what does not fit. ``LAWS``
and `networks_for` list what is offered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from .. import checks, data, methods, models, partition
from ..partition import Partition
from ..sweeps import Task
from ..training import Local, Seeded

METRICS = ("accuracy", "accuracy_worst", "clusters", "ari", "bytes", "labels")
MOST_METHODS = 3
LONGEST_NAME = 40  # characters of a method's name in a legend


class Knob(NamedTuple):
    """A number of a law that can be turned."""

    label: str
    start: float
    least: float
    most: float
    log: bool = False  # the slider moves by factors
    place: int | None = None  # in a tuple: ``alphas=(0.1, 10)`` has two knobs


class Law(NamedTuple):
    """A partition law and its knobs, by argument name."""

    function: Callable[..., Partition]
    label: str
    knobs: tuple[tuple[str, Knob], ...] = ()


ALPHA = Knob("α, evenness", 0.5, 0.01, 100, log=True)
CLUSTERS = Knob("hidden clusters", 4, 1, 10)
LAWS = {
    law.function.__name__: law
    for law in (
        Law(
            partition.cluster_n_class,
            "clusters that share n classes",
            (
                ("clusters", CLUSTERS),
                ("n", Knob("classes/cluster, n", 3, 1, 10)),
                ("m", Knob("classes/client, m", 2, 1, 10)),
            ),
        ),
        Law(
            partition.cluster_dirichlet,
            "clusters with Dirichlet shares",
            (
                ("clusters", CLUSTERS),
                ("alphas", Knob("α₁ between clusters", 0.1, 0.01, 100, True, 0)),
                ("alphas", Knob("α₂ within a cluster", 10, 0.01, 100, True, 1)),
            ),
        ),
        Law(partition.dirichlet, "Dirichlet mixture per client", (("alpha", ALPHA),)),
        Law(
            partition.dirichlet_per_class,
            "Dirichlet shares per class: sizes differ too",
            (("alpha", ALPHA),),
        ),
        Law(
            partition.n_class,
            "n classes per client",
            (("n", Knob("classes/client, n", 2, 1, 10)),),
        ),
        Law(partition.iid, "all alike (iid)"),
    )
}


def start_values(law: str) -> dict[str, Any]:
    """The arguments of a law with its knobs where they start."""
    values: dict[str, Any] = {}
    for name, knob in LAWS[law].knobs:
        if knob.place is None:
            values[name] = knob.start
        else:
            values[name] = (*values.get(name, ()), knob.start)
    return values


def _networks(
    shape: tuple[int, ...], classes: int
) -> dict[str, partial[nn.Sequential]]:
    """Recipes of the networks on offer, bound to the form of a data set."""
    size = int(np.prod(shape))
    return {
        "mlp": partial(models.mlp, inputs=size, hidden=(64,), classes=classes),
        "linear": partial(models.linear, inputs=size, classes=classes),
        "cnn_bn": partial(models.cnn_bn, shape=shape, classes=classes),
        "lenet5": partial(models.lenet5, shape=shape, classes=classes),
    }


@cache
def networks_for(dataset: str) -> dict[str, partial[nn.Sequential]]:
    """Recipes of the networks that can be built for a data set, by name."""
    found = data.load(dataset)
    built = {}
    for name, recipe in _networks(found.x.shape[1:], found.classes).items():
        try:
            with Seeded(0):  # torch's own random stream is not touched
                recipe()
        except (ValueError, RuntimeError):  # the images are too small for it
            continue
        built[name] = recipe
    return built


@dataclass(frozen=True)
class Settings:
    """All that is chosen in the playground.

    ``share`` of the clients is sampled in each round, by all methods alike: it takes
    the place of their own field ``sampled``. ``samples`` is how much of the data is
    dealt; None deals all. A client trains for ``epochs``, or for exactly ``steps``.
    """

    dataset: str = "digits"
    samples: int | None = None
    law: str = "cluster_n_class"
    law_values: dict[str, Any] = field(
        default_factory=lambda: start_values("cluster_n_class")
    )
    clients: int = 20
    model: str = "mlp"
    share: float = 1.0
    epochs: int = 1
    steps: int | None = None
    lr: float = 0.05
    batch_size: int = 32
    rounds: int = 30
    seed: int = 0
    methods: tuple[Any, ...] = (methods.FedAvg(), methods.WeCFL(clusters=4))

    def __post_init__(self) -> None:
        checks.fields(
            self,
            law=checks.choice(*LAWS),
            samples=checks.optional(checks.integer(1)),
            clients=checks.integer(1),
            share=checks.number(above=0, most=1),
            rounds=checks.integer(1),
            seed=checks.seed,
        )
        if not 1 <= len(self.methods) <= MOST_METHODS:
            raise ValueError(
                f"Settings: {len(self.methods)} methods; choose 1 to {MOST_METHODS}"
            )

    def partition(self) -> Callable[..., Partition]:
        """The law with its arguments bound."""
        function = LAWS[self.law].function
        law = partial(function, clients=self.clients, **self.law_values)
        if self.samples is not None:
            law = partial(partition.subset, law=law, samples=self.samples)
        return law

    def deal(self) -> Partition:
        """Who holds which samples."""
        found = data.load(self.dataset)
        return self.partition()(found.y[: found.n_train], seed=self.seed)

    def counts(self, parts: Partition) -> np.ndarray:  # (K, classes)
        """How many samples of each class every client holds, for training or test."""
        found = data.load(self.dataset)
        pairs = zip(parts.train, parts.test, strict=True)
        own = [np.concatenate(pair) for pair in pairs]
        return partition.class_counts(own, found.y, found.classes)

    def recipe(self) -> partial[nn.Sequential]:
        """The network, to be made afresh for each run."""
        offered = networks_for(self.dataset)
        if self.model not in offered:
            raise ValueError(
                f"{self.model} cannot take the samples of {self.dataset}: choose "
                f"{', '.join(offered)}"
            )
        return offered[self.model]

    def local(self) -> Local:
        """What a client does in a round."""
        return Local(
            lr=self.lr,
            epochs=self.epochs,
            steps=self.steps,
            batch_size=self.batch_size,
        )

    def arms(self) -> tuple[Any, ...]:
        """The methods, each sampling the same share of the clients."""
        return tuple(with_share(method, self.share) for method in self.methods)

    def names(self) -> list[str]:
        """A name for each method; equal classes are told apart by what differs."""
        return distinct_names(self.arms())

    def tasks(self) -> dict[str, Task]:
        """A task for each method, by name."""
        law = self.partition()
        recipe = self.recipe()
        local = self.local()
        return {
            name: Task(
                method=method,
                dataset=self.dataset,
                partition=law,
                model=recipe,
                local=local,
                rounds=self.rounds,
                seed=self.seed,
                profile="playground",
                curves=METRICS,
            )
            for name, method in zip(self.names(), self.arms(), strict=True)
        }

    def code(self) -> str:
        """Python that does the same runs, keeps them in ``histories`` and prints."""
        law = _call(LAWS[self.law].function, "partition", self.partition_arguments())
        if self.samples is not None:
            law = f"partial(partition.subset, law={law}, samples={self.samples})"
        recipe = self.recipe()
        network = _call(recipe.func, "models", recipe.keywords)
        arms = [
            f"    {name!r}: {write(method)},"
            for name, method in zip(self.names(), self.arms(), strict=True)
        ]
        return "\n".join([
            "from functools import partial",
            "from fednb import Federation, Local, "
            "data, methods, models, partition, run",
            "",
            f"dataset = data.load({self.dataset!r})",
            f"law = {law}",
            f"parts = law(dataset.y[: dataset.n_train], seed={self.seed})",
            f"model = {network}",
            f"local = {write(self.local(), 'Local')}",
            "arms = {",
            *arms,
            "}",
            "histories = {}",
            "for name, method in arms.items():",
            "    fed = Federation(dataset, parts, model, "
            f"local=local, seed={self.seed})",
            f"    histories[name] = run(method, fed, rounds={self.rounds})",
            "    print(name, round(histories[name].final['accuracy'], 3))",
        ])  # fmt: skip

    def partition_arguments(self) -> dict[str, Any]:
        """The arguments of the law, the number of clients first."""
        return {"clients": self.clients, **self.law_values}


def with_share(method: Any, share: float) -> Any:
    """The method with ``share`` as its ``sampled``, if it has such a field."""
    if any(one.name == "sampled" for one in fields(method)):
        return replace(method, sampled=share)
    return method


def distinct_names(arms: tuple[Any, ...]) -> list[str]:
    """``FedAvg``, or ``IFCA(clusters=2)`` where another IFCA stands beside it."""
    short = [type(method).__name__ for method in arms]
    names: list[str] = []
    for place, (method, name) in enumerate(zip(arms, short, strict=True), start=1):
        if short.count(name) > 1:
            name = write(method, name)
        if name in names or len(name) > LONGEST_NAME:
            name = f"{short[place - 1]} ({place})"
        names.append(name)
    return names


def write(value: Any, home: str | None = None) -> str:
    """An instance as the expression that makes it, with what differs from defaults."""
    if home is None:
        home = type(value).__name__  # a method from outside goes by its name
        if type(value) in methods.ALL:
            home = f"methods.{home}"
    given = []
    for one in fields(value):
        own = getattr(value, one.name)
        if own != one.default:
            text = write(own) if type(own) in methods.ALL else repr(own)
            given.append(f"{one.name}={text}")
    return f"{home}({', '.join(given)})"


def _call(function: Callable, module: str, arguments: dict[str, Any]) -> str:
    given = "".join(f", {name}={value!r}" for name, value in arguments.items())
    return f"partial({module}.{function.__name__}{given})"
