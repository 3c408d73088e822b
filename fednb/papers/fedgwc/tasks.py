"""FedGWC's tables and figures as tasks: Licciardi et al., ICML 2025, section 7 and
appendices G to J.

| name | what |
|---|---|
| cifar100 | Tables 1, 8 and 9, Figures 2 and 3, and our controls |
| longer | Figure 2 for four times the rounds: a split needs rounds to show |
| heterogeneity | Tables 3 and 6: three mixes of clients, and a homogeneous one |
| domains | Tables 4 and 7: clean, noisy and blurred clients |
| beta | Table 5, with FedGWC's row of cifar100 for β = 0.5 |
| rules | Figures 4 to 8: one FedAvg run, watched by all versions of the rule |
| looks | 40 clients, 1,800 rounds: every look of each rule; IFCA and FeSEM |
| noise_anew | the same for noise that is drawn anew at every access |
| untested | Tables 1, 3 and 6 without our test against chance; random members |
| level_rivals | Tables 3 and 6: IFCA and FeSEM with FedGWC's client updates |
| emnist_small | the FEMNIST half of Tables 5 and 9, on EMNIST, 30 clients |
| k_min | 480 rounds with other least sizes, beside ``untested`` |
| emnist | the FEMNIST half of Table 1 at the paper's own scale, on a part of EMNIST |
| cifar100_long | Table 1 with the paper's clients and 10,000 rounds |

``laptop`` has 30 clients of 120 training and 80 test samples instead of 100 of 500 and
100, a fifth of them sampled instead of a tenth, batches of 16, and some hundred rounds
at five times the learning rate instead of 20,000. The net is LeNet-5's two convolutions
with a linear layer on top: with LeNet-5's three dense ones the loss does not leave its
first value within the rounds that we have. ε = 0.002, for with so few clients per
round, and so few rounds, 1e-5 is never reached; it lets pairs of clients meet some
three times before the first attempt. Domains differ less in their losses than classes
do, so there pairs meet twice as often, with ε = 0.0002. Noise has σ = 1, as strong as
the image, and blur 2 pixels: the paper names neither. Server momentum moves by 1 - β of
its sum, so that its step is as long as FedAvg's in the long run; pFedMe and Per-FedAvg
have eight gradients per round, near the seven of the others, and the others' learning
rate. FeSEM, which trains everybody in each round, gets a fifth of the rounds: the same
number of client updates. Of these the network and ε were chosen after a look at one
seed, so that losses fall and splits occur within the rounds that we can afford; the
others were not tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ... import experiment, metrics, models, partition
from ...data import as_generated, as_published
from ...methods import (
    CFL,
    IFCA,
    FairAvg,
    FedAvg,
    FedAvgM,
    FedGWC,
    FedProx,
    FeSEM,
    LocalOnly,
    PerFedAvg,
    PFedMe,
)
from ...sweeps import Task
from ...training import Local
from ...views import Arms
from ..common import only_in
from .controls import (
    Replayed,
    Shuffled,
    Told,
    Watch,
    WatchAll,
    Within,
    all_fields,
    arm_key,
    measure_arms,
    measure_fedgwc,
    measure_looks,
    measure_members,
    measure_watch,
)

BETAS = (0.1, 0.5, 1.0, 2.0, 4.0)
CURVES = (
    "accuracy",
    "balanced_accuracy",
    "balanced_released",
    "clusters",
    "labels",
    "client_updates",
)


# --- scales ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """What a profile changes."""

    data: Mapping[str, Callable[[], Any]]  # a network for each data set
    clients: int
    size: int  # samples of a client, for training and testing
    test: float
    sampled: float
    rounds: int
    short: int  # rounds of ``heterogeneity``, which judges clusters only
    long: int  # rounds of ``domains``, which does too, and where ``patient`` ε is
    few: int  # rounds of IFCA and FeSEM there: their clusters settle early
    watched: int  # rounds of ``rules``
    every: int
    local: Local
    eps: float
    patient: float
    seeds: range
    official: bool = False

    def __str__(self) -> str:
        return f"{self.clients} clients, {self.rounds} rounds"

    @property
    def some(self) -> int:
        """Clients sampled in a round."""
        return round(self.sampled * self.clients)

    def parts(self, shares: Sequence[int]) -> tuple[int, ...]:
        """The paper's numbers of clients, which are per cent, as ours."""
        return tuple(round(share * self.clients / 100) for share in shares)


def _network(
    classes: int, shape: tuple[int, int, int] = (3, 32, 32)
) -> Callable[[], Any]:
    return partial(models.cnn, shape=shape, filters=(6, 16), dense=(), classes=classes)


_theirs = partial(models.cnn, filters=(64, 64), dense=(384, 192))
_local = Local(0.01, batch_size=64, weight_decay=4e-4, drop_last=True, augment=True)
_ours = replace(_local, lr=0.05, steps=7, batch_size=16, drop_last=False, augment=False)
_small = {"digits": partial(models.mlp, 64, (32,), 10)}
SCALES = {
    "smoke": Scale(
        data=_small,
        clients=30,
        size=40,
        test=0.4,
        sampled=0.2,
        rounds=12,
        short=12,
        long=12,
        few=6,
        watched=40,
        every=4,
        local=replace(_ours, lr=0.1),
        eps=0.01,
        patient=0.01,
        seeds=range(1),
    ),
    "laptop": Scale(
        data={"cifar100": _network(100), "cifar10": _network(10)},
        clients=30,
        size=200,
        test=0.4,
        sampled=0.2,
        rounds=120,
        short=90,
        long=150,
        few=40,
        watched=170,
        every=10,
        local=_ours,
        eps=2e-3,
        patient=2e-4,
        seeds=range(3),
    ),
    "paper": Scale(
        data={
            "cifar100": partial(_theirs, classes=100),
            "cifar10": partial(_theirs, classes=10),
        },
        clients=100,
        size=500,
        test=0.0,
        sampled=0.1,
        rounds=20_000,
        short=10_000,
        long=10_000,
        few=10_000,
        watched=10_000,
        every=100,
        local=_local,
        eps=1e-5,
        patient=1e-5,
        seeds=range(3),
        official=True,
    ),
}


def pick(scale: Scale, dataset: str) -> str:
    """The data set if the profile has it, else its only one."""
    return dataset if dataset in scale.data else next(iter(scale.data))


def task(
    profile: str,
    dataset: str,
    law: Callable[..., Any],
    seed: int,
    method: Any,
    rounds: int,
    tags: dict[str, Any],
    base: str | None = None,
    **changes: Any,
) -> Task:
    """One run; ``base`` is the data set that a generated one is made of."""
    scale = SCALES[profile]
    base = base or dataset
    usual = Task(
        method=method,
        dataset=dataset,
        partition=law,
        model=scale.data[base],
        local=scale.local,
        rounds=rounds,
        seed=seed,
        profile=profile,
        every=scale.every,
        curves=CURVES,
        official=scale.official and base == dataset,
        measure=measure_fedgwc,
        tags=tags,
    )
    return replace(usual, **changes)


def client_mixtures(scale: Scale, alpha: float) -> Callable[..., partition.Partition]:
    """Clients whose classes are mixed by α, of the profile's size."""
    return partial(
        partition.mixed,
        groups=(scale.clients,),
        alphas=(alpha,),
        size=scale.size,
        test=scale.test,
        min_size=2,
    )


def slow(scale: Scale, rounds: int) -> int:
    """Rounds of all clients with as many client updates as ``rounds`` of a sample."""
    return max(1, round(rounds * scale.some / scale.clients))


# --- tables ---------------------------------------------------------------------------


def gwc(scale: Scale, **changes: Any) -> FedGWC:
    """The corrected FedGWC, with the profile's ε and the paper's best β."""
    return FedGWC(**{"sampled": scale.sampled, "eps": scale.eps, "beta": 0.5} | changes)


def released(scale: Scale) -> FedGWC:
    """The authors' code, with the profile's ε and the paper's best β.

    It samples as many clients of every cluster.
    """
    return FedGWC.as_released(sampled=scale.some, eps=scale.eps, beta=0.5)


def aggregators(scale: Scale) -> dict[str, Callable[..., Any]]:
    """Table 9's, each with its settings but for who is sampled."""
    lr = scale.local.lr
    steps = 4
    return {
        "FedAvg": FedAvg,
        "FedAvgM": partial(FedAvgM, server_lr=0.1),
        "FedProx": partial(FedProx, mu=0.01),
        "FairAvg": FairAvg,
        "pFedMe": partial(PFedMe, eta=lr, local_rounds=2, steps=steps),
        "Per-FedAvg": partial(PerFedAvg, alpha=lr, tau=steps),
    }


def rivals(scale: Scale) -> Iterator[tuple[int, str, str, Any, dict[str, Any]]]:
    """Rows of Tables 1, 8 and 9, each with what it changes in a task.

    Clusters asked for (0: it finds them), row, aggregator, method, changes. FedAvg goes
    on for half as long again, for rows that train more clients in a round.
    """
    rounds = scale.rounds
    for name, make in aggregators(scale).items():
        longer = {"rounds": rounds + rounds // 2} if name == "FedAvg" else {}
        yield 1, "no clusters", name, make(sampled=scale.sampled), longer
        yield 0, "FedGWC", name, gwc(scale, aggregator=make()), {}
    yield 0, "FedGWC as released", "FedAvg", released(scale), {}
    yield 0, "Random members", "FedAvg", Shuffled(**all_fields(gwc(scale))), {}
    yield scale.clients, "LocalOnly", "none", LocalOnly(scale.sampled), {}
    yield 0, "CFL", "FedAvg", CFL(sampled=scale.sampled), {}
    for C in (2, 3, 4, 5):
        everybody = {"rounds": slow(scale, rounds), "every": slow(scale, scale.every)}
        yield C, "FeSEM", "FedAvg", FeSEM(C), everybody
        yield C, "IFCA", "FedAvg", IFCA(C, sampled=scale.sampled), {}


def cifar100(profile: str) -> list[Task]:
    """Tasks of Tables 1, 8 and 9."""
    scale = SCALES[profile]
    dataset = pick(scale, "cifar100")
    law = client_mixtures(scale, 0.5)
    tasks = []
    for seed in scale.seeds:
        for C, row, name, method, changes in rivals(scale):
            tags = {"C": C, "row": row, "aggregator": name}
            how: dict[str, Any] = {"rounds": scale.rounds, "tags": tags} | changes
            tasks.append(task(profile, dataset, law, seed, method, **how))
    return tasks


def longer(profile: str) -> list[Task]:
    """Some rows of Table 1 for longer, and IFCA and FeSEM with eight clusters.

    None at paper scale, which is long enough.
    """
    scale = SCALES[profile]
    if scale.official:
        return []
    far = replace(scale, rounds=4 * scale.rounds, every=2 * scale.every)
    rows = {"no clusters", "FedGWC", "Random members", "LocalOnly", "FeSEM", "IFCA"}
    some = [
        arm
        for arm in rivals(far)
        if arm[1] in rows and arm[2] in ("FedAvg", "none") and arm[0] not in (2, 3, 4)
    ]
    eight = [
        (8, f"{row} (8)", name, replace(m, clusters=8), more)
        for C, row, name, m, more in some
        if C == 5
    ]
    dataset = pick(scale, "cifar100")
    law = client_mixtures(scale, 0.5)
    usual = {"rounds": far.rounds, "every": far.every}
    tasks = []
    for seed in scale.seeds:
        for C, row, _, method, changes in some + eight:
            tags = {"C": C, "row": row}
            how: dict[str, Any] = usual | {"tags": tags} | changes
            tasks.append(task(profile, dataset, law, seed, method, **how))
    return tasks


MIXES = {
    "cifar100": {
        "(10, 0, 90)": ((10, 90), (1000.0, 0.0)),
        "(10, 90, 0)": ((10, 90), (1000.0, 0.5)),
        "(40, 30, 30)": ((40, 30, 30), (1000.0, 0.05, 0.0)),
        "(100, 0, 0)": ((100,), (1000.0,)),
    },
    "cifar10": {
        "(10, 0, 90)": ((10, 90), (100.0, 0.0)),
        "(10, 90, 0)": ((10, 90), (100.0, 0.5)),
        "(40, 30, 30)": ((40, 30, 30), (100.0, 0.5, 0.0)),
        "(100, 0, 0)": ((100,), (100.0,)),
    },
}


def mix(scale: Scale, dataset: str, setting: str) -> partial[partition.Partition]:
    """Groups of clients, each with its α (Tables 3 and 6)."""
    shares, alphas = MIXES.get(dataset, MIXES["cifar10"])[setting]
    law = partial(
        partition.mixed,
        groups=scale.parts(shares),
        alphas=alphas,
        size=scale.size,
        test=scale.test,
    )
    return partial(law, shared=True) if scale.official else law


def arms(
    scale: Scale, groups: Sequence[int], rounds: int, eps: float
) -> Iterator[tuple[int, str, Any, dict[str, Any]]]:
    """Rows of the cluster tables, each with what it changes in a task.

    Clusters asked for (0: it finds them), row, method, changes. IFCA and FeSEM are told
    the number of groups. With three groups there are controls, with one only the
    question whether it is split.
    """
    C = len(groups)
    own = gwc(scale, eps=eps)
    yield 0, "FedGWC", own, {"rounds": rounds}
    if C == 3:
        yield 0, "Random members", Shuffled(**all_fields(own)), {"rounds": rounds}
        truth = tuple(np.repeat(range(C), groups).tolist())
        yield 0, "Oracle", Told(**all_fields(own), truth=truth), {"rounds": rounds}
    if C > 1:
        seldom = slow(scale, scale.every)
        everybody = {"rounds": slow(scale, scale.few), "every": seldom}
        yield C, "FeSEM", FeSEM(C), everybody
        yield C, "IFCA", IFCA(C, sampled=scale.sampled), {"rounds": scale.few}


def heterogeneity(profile: str) -> list[Task]:
    """Tasks of Tables 3 and 6."""
    scale = SCALES[profile]
    out = []
    for seed in scale.seeds:
        for dataset in scale.data:
            for setting in MIXES["cifar10"]:
                law = mix(scale, dataset, setting)
                for C, row, method, changes in arms(
                    scale, law.keywords["groups"], scale.short, scale.eps
                ):
                    tags = {"setting": setting, "C": C, "row": row}
                    out.append(
                        task(profile, dataset, law, seed, method, tags=tags, **changes)
                    )
    return out


DOMAINS = {
    "(50, 50, 0)": (50, 50, 0),
    "(50, 0, 50)": (50, 0, 50),
    "(40, 30, 30)": (40, 30, 30),
}


def domains(profile: str) -> list[Task]:
    """Tasks of Tables 4 and 7."""
    scale = SCALES[profile]
    out = []
    for seed in scale.seeds:
        for base in scale.data:
            for setting, shares in DOMAINS.items():
                dataset = domain_data(scale, base, shares, seed)
                groups = [n for n in scale.parts(shares) if n]
                for C, row, method, changes in arms(
                    scale, groups, scale.long, scale.patient
                ):
                    tags = {"base": base, "setting": setting, "C": C, "row": row}
                    law = partial(as_generated, name=dataset)
                    if row in ("FedGWC", "FeSEM", "IFCA"):
                        out.append(
                            task(
                                profile,
                                dataset,
                                law,
                                seed,
                                method,
                                tags=tags,
                                base=base,
                                **changes,
                            )
                        )
    return out


def domain_data(
    scale: Scale,
    base: str,
    shares: Sequence[int],
    seed: int,
    noise: float = 1.0,
    blur: float = 2.0,
    anew: bool = False,
) -> str:
    """The name of a data set of clean, noisy and blurred clients, for ``data.load``."""
    more = ""
    if scale.official:
        more += ", official=True"
    if anew:
        more += ", anew=True"
    return (
        f"domains(base={base!r}, clients={scale.parts(shares)}, size={scale.size}, "
        f"noise={noise}, blur={blur}, "
        f"alpha=100.0, test={scale.test}{more}, seed={seed})"
    )


def beta(profile: str) -> list[Task]:
    """Tasks of Table 5, but for β = 0.5, which is FedGWC's row in ``cifar100``."""
    scale = SCALES[profile]
    dataset = pick(scale, "cifar100")
    return [
        task(
            *(
                profile,
                dataset,
                client_mixtures(scale, 0.5),
                seed,
                gwc(scale, beta=b),
                scale.rounds,
            ),
            {"beta": str(b), "row": "FedGWC"},
        )
        for seed in scale.seeds
        for b in BETAS
        if b != gwc(scale).beta
    ]


def rules(scale: Scale) -> dict[str, FedGWC]:
    """The rule as we correct it, printed, released, all steps between, and other β.

    Columns of records go by a rule's number: new ones come last.
    """
    own = gwc(scale)
    return {
        "corrected": own,
        **printed_rules(scale),
        **steps_to_released(scale),
        "corrected, patient ε": replace(own, eps=scale.patient),
        "corrected, columns of P": replace(own, columns=True),
        "corrected, unseen pairs as they are": replace(own, fill=False),
        "corrected, constant α": replace(own, alpha=scale.some / scale.clients),
        "corrected, not rescaled": replace(own, rescale=False),
        "corrected, scored on the embedding": replace(own, score_on="embedding"),
        **other_betas(scale),
        "corrected, k-means": replace(own, assign="kmeans"),
        "corrected, no test against chance": replace(own, chance=1.0),
    }


def printed_rules(scale: Scale) -> dict[str, FedGWC]:
    """The rule as printed, and other readings of it."""
    printed = FedGWC.as_printed(sampled=scale.some, beta=0.5)
    return {
        "as printed, ε = 1e-5": printed,
        "as printed, whole matrix, ε = 1e-5": replace(printed, whole_matrix=True),
        "as printed": replace(printed, eps=scale.eps),
        "as printed, whole matrix": replace(printed, eps=scale.eps, whole_matrix=True),
    }


def steps_to_released(scale: Scale) -> dict[str, FedGWC]:
    """From the printed rule to the released one, each with one change more."""
    printed = printed_rules(scale)["as printed"]
    step = replace(printed, priority=False)  # Watch samples uniformly
    changes: dict[str, dict[str, Any]] = {
        "+ normalised rewards": {"normalise": True},
        "+ smoothed MSE": {"ema": True},
        "+ patience": {"patience": None, "retry": "reset"},
        "+ α = P / K": {"alpha": "share", "weighted": True},
        "+ P rescaled": {"rescale": True},
        "+ columns of P": {"columns": True},
        "+ P⁰ = 1 / K²": {"initial": 1.0},
        "+ scored on the embedding": {"score_on": "embedding", "assign": "cluster_qr"},
    }
    found = {}
    for name, change in changes.items():
        step = replace(step, **change)
        found[name] = step
    code = released(scale)
    return {
        **found,
        "as released": code,
        "as released, ε = 1e-5": replace(code, eps=1e-5),
    }


def other_betas(scale: Scale) -> dict[str, FedGWC]:
    """The corrected rule with other β."""
    own = gwc(scale)
    others = [beta for beta in BETAS if beta != own.beta]
    return {f"corrected, β = {beta:g}": replace(own, beta=beta) for beta in others}


def watched(profile: str) -> list[Task]:
    """Tasks of the ingredients and of Figures 4 to 8."""
    scale = SCALES[profile]
    out = []
    method = Watch(tuple(rules(scale).items()), scale.sampled)
    kept: dict[str, Any] = {
        "measure": measure_watch,
        "curves": tuple(f"mse_{r}" for r in range(len(method.rules))),
    }
    settings: dict[str, tuple[str, Callable[..., Any]]] = {  # data set, law
        "α = 0.5": ("cifar100", client_mixtures(scale, 0.5)),
        "α = 0.05": ("cifar10", client_mixtures(scale, 0.05)),
        "(40, 30, 30)": ("cifar10", mix(scale, "cifar10", "(40, 30, 30)")),
        "(100, 0, 0)": ("cifar10", mix(scale, "cifar10", "(100, 0, 0)")),
    }
    for seed in scale.seeds:
        for setting, (name, law) in settings.items():
            tags = {"setting": setting, "row": "Watch"}
            out.append(
                task(
                    profile,
                    pick(scale, name),
                    law,
                    seed,
                    method,
                    scale.watched,
                    tags,
                    **kept,
                )
            )
        base = pick(scale, "cifar10")
        data = domain_data(scale, base, DOMAINS["(40, 30, 30)"], seed)
        tags = {"setting": "clean, noise, blur", "row": "Watch"}
        out.append(
            task(
                profile,
                data,
                partial(as_generated, name=data),
                seed,
                method,
                scale.watched,
                tags,
                base=base,
                **kept,
            )
        )
    return out


# --- nearer to the paper -------------------------------------------------------------

EPSILONS = (4e-5, 6e-5, 1e-4)  # of ``looks``, fixed before its first run
WARM = 200  # rounds that no rule sees
LOOKED_AT = {  # setting -> noise, blur and per cent of clean, noisy, blurred clients
    "noise, σ = 1": (1.0, 2.0, (50, 50, 0)),
    "noise, σ = 3": (3.0, 2.0, (50, 50, 0)),
    "blur, 6 pixels": (1.0, 6.0, (50, 0, 50)),
}
ANEW = {"noise anew, σ = 1": 1.0, "noise anew, σ = 3": 3.0}  # of ``noise_anew``


def lookers(sampled: int, epsilons: Sequence[float] = EPSILONS) -> dict[str, FedGWC]:
    """The rules of ``looks``, all with the paper's best β.

    Released and corrected rule have each ε of ``epsilons``. The printed one has the
    paper's, with the MSE over the whole matrix: the reading in which it fires.
    """
    rules = {}
    for eps in epsilons:
        rules[f"released, ε = {eps:g}"] = FedGWC.as_released(
            sampled=sampled, eps=eps, beta=0.5
        )
    for eps in epsilons:
        rules[f"corrected, ε = {eps:g}"] = FedGWC(sampled=sampled, eps=eps, beta=0.5)
    rules["printed, whole matrix, ε = 1e-05"] = FedGWC.as_printed(
        sampled=sampled, eps=1e-5, beta=0.5, whole_matrix=True
    )
    return rules


class Setting(NamedTuple):
    """One federation of ``looks`` or ``noise_anew``."""

    dataset: str
    law: Callable[..., Any]
    model: Callable[[], Any]
    groups: int


def looks(profile: str) -> list[Task]:
    """Give every version of the rule its chance: one FedAvg log, watched by all.

    CIFAR-10 in five settings: half of the clients with noise of σ = 1 or 3, or blurred
    by 6 pixels (the paper names neither); three levels of heterogeneity, (16, 12, 12)
    clients with α = 100, 0.5 and 0; and equal clients. IFCA and FeSEM are told the
    number of groups and get as many client updates; where there is one group, they
    have nothing to find.

    Reduced against Tables 4, 6 and 7: 40 clients instead of 100, 5 of them a round
    instead of 10, 240 training and 60 test images a client instead of 500 and 100 (of
    a 40 % subset of CIFAR-10, where the whole is not there), batches of 32 instead of
    64, the narrow network of ``laptop`` at η = 0.05 instead of 0.01, no augmentation,
    1,800 rounds instead of 10,000; seeds 3 to 5, which no other table uses. A warm
    start: the rules see the losses from round 201 on.
    """
    scale = long_scale(profile)
    dataset = pick(scale, "cifar10")
    model = scale.data[dataset]
    tasks = []
    for seed in scale.seeds:
        settings = {}
        for setting, (noise, blur, shares) in LOOKED_AT.items():
            if profile == "smoke":  # enough of them in ``noise_anew``
                continue
            name = domain_data(scale, dataset, shares, seed, noise, blur)
            law = partial(as_generated, name=name)
            settings[setting] = Setting(name, law, model, groups=2)
        for setting, mixture, groups in (
            ("levels", "(40, 30, 30)", 3),
            ("equal clients", "(100, 0, 0)", 1),
        ):
            law = mix(scale, "cifar10", mixture)
            settings[setting] = Setting(dataset, law, model, groups)
        tasks += looked_at(profile, seed, settings)
    return tasks


def noise_anew(profile: str) -> list[Task]:
    """The two settings of ``looks`` with noise, drawn anew at every access.

    As in the authors' code, in training and in tests; `data.domains` by itself draws it
    once. All else is as in ``looks``, the same clean images and rows among it.

    Settled before the first of these runs: the claim that noise is told apart is judged
    here, with σ = 3, by the same rules, the same ε and the same measure as blur,
    whatever they show. The runs with noise drawn once are shown beside them.
    """
    scale = long_scale(profile)
    dataset = pick(scale, "cifar10")
    model = partial(models.noisy, recipe=scale.data[dataset])
    tasks = []
    for seed in scale.seeds:
        settings = {}
        for setting, strength in ANEW.items():
            name = domain_data(
                scale, dataset, (50, 50, 0), seed, noise=strength, anew=True
            )
            law = partial(as_generated, name=name)
            settings[setting] = Setting(name, law, model, groups=2)
        tasks += looked_at(profile, seed, settings)
    return tasks


def long_scale(profile: str) -> Scale:
    """What ``looks`` and ``noise_anew`` have in common."""
    if profile == "smoke":
        return replace(SCALES["smoke"], rounds=40)
    return replace(
        SCALES["laptop"],
        clients=40,
        size=300,
        test=0.2,
        sampled=0.125,
        rounds=1_800,
        every=100,
        local=replace(_ours, batch_size=32),
        seeds=range(3, 6),
    )


def looked_at(profile: str, seed: int, settings: Mapping[str, Setting]) -> list[Task]:
    """All rules on one FedAvg log in each setting, and IFCA and FeSEM where groups are.

    IFCA and FeSEM are told the number of groups and get as many client updates.
    """
    scale = long_scale(profile)
    rules = lookers(scale.some)
    warmup = WARM
    if profile == "smoke":
        rules = lookers(scale.some, epsilons=(0.02, 0.05, 0.1))
        warmup = 4
    watch = WatchAll(tuple(rules.items()), scale.some, warmup)
    curves = ("accuracy", "balanced_accuracy", "macro_f1")
    watched: dict[str, Any] = {
        "measure": partial(measure_looks, final=scale.rounds),
        "curves": (*curves, *(f"mse_{r}" for r in range(len(rules)))),
    }
    keep = {"curves": (*curves, "clusters", "labels", "ari", "rand", "client_updates")}
    tasks = []
    for setting, (dataset, law, model, groups) in settings.items():
        rows: list[tuple[str, Any, int, int, dict[str, Any]]] = []
        rows.append(("Watch", watch, scale.rounds, scale.every, watched))
        if groups > 1:
            seldom = slow(scale, scale.every)
            rounds = slow(scale, scale.rounds)
            ifca = IFCA(groups, sampled=scale.some)
            rows.append(("IFCA", ifca, scale.rounds, scale.every, keep))
            rows.append(("FeSEM", FeSEM(groups), rounds, seldom, keep))
        for row, method, rounds, every, changes in rows:
            made = Task(
                method=method,
                dataset=dataset,
                partition=law,
                model=model,
                local=scale.local,
                rounds=rounds,
                seed=seed,
                profile=profile,
                every=every,
                measure=measure_fedgwc,
                tags={"setting": setting, "C": groups, "row": row},
            )
            tasks.append(replace(made, **changes))
    return tasks


def without_our_test(scale: Scale) -> FedGWC:
    """The corrected FedGWC without the test against chance, which the paper lacks."""
    return gwc(scale, chance=1.0)


def untested(profile: str) -> list[Task]:
    """FedGWC without our test against chance, in the cells of Tables 1, 3 and 6.

    The paper splits if the Davies-Bouldin score is at most 1, and has no such test. So
    its row stands here beside the tested one of ``longer`` and ``heterogeneity``, with
    the same data, seeds and rounds, and all other fields alike. Random members repeat
    its splits: their rounds and sizes. Homogeneous clients have no such control; there
    the only question is whether they are split.

    Settled before the first of these runs: these settings, and that the claims of
    Tables 1, 3 and 6 and of Figure 2 are judged on these runs, whatever they show.
    """
    scale = SCALES[profile]
    own = without_our_test(scale)
    rows: dict[str, Any] = {
        "FedGWC, no test": own,
        "Random members, same splits": Replayed(own),
    }
    cells: list[tuple[str, str, Callable[..., Any], int, int]] = [
        (
            pick(scale, "cifar100"),
            "α = 0.5",
            client_mixtures(scale, 0.5),
            4 * scale.rounds,
            2 * scale.every,
        )
    ]
    for dataset in scale.data:
        for setting in MIXES["cifar10"]:
            levels = mix(scale, dataset, setting)
            cells.append((dataset, setting, levels, scale.short, scale.every))
    tasks = []
    for seed in scale.seeds:
        for dataset, setting, law, rounds, every in cells:
            for row, method in rows.items():
                if setting == "(100, 0, 0)" and method is not own:
                    continue
                tags = {"setting": setting, "row": row}
                made = task(profile, dataset, law, seed, method, rounds, tags)
                tasks.append(replace(made, every=every))
    return tasks


def level_rivals(profile: str) -> list[Task]:
    """IFCA and FeSEM in the mixes of Tables 3 and 6, with FedGWC's client updates.

    ``heterogeneity`` gave them 240 on ``laptop``. Here they train for FedGWC's rounds
    and one evaluation longer: 600 client updates, where FedGWC had 540 to 564.
    Otherwise as there. Settled before the first of these runs, and that the claims
    against IFCA and FeSEM are judged on these runs, whatever they show.
    """
    scale = SCALES[profile]
    rounds = scale.short + scale.every
    tasks = []
    for seed in scale.seeds:
        for dataset in scale.data:
            for setting in MIXES["cifar10"]:
                law = mix(scale, dataset, setting)
                C = len(law.keywords["groups"])
                if C == 1:
                    continue
                seldom = {
                    "rounds": slow(scale, rounds),
                    "every": slow(scale, scale.every),
                }
                tags = {"setting": setting, "C": C}
                for row, method, how in (
                    ("FeSEM", FeSEM(C), seldom),
                    ("IFCA", IFCA(C, sampled=scale.sampled), {"rounds": rounds}),
                ):
                    own: dict[str, Any] = {"tags": tags | {"row": row}} | how
                    tasks.append(task(profile, dataset, law, seed, method, **own))
    return tasks


def emnist_small(profile: str) -> list[Task]:
    """The FEMNIST half of Tables 5 and 9, on a part of EMNIST with 47 classes.

    α = 0.01 as in the paper; clients, network and local training as in ``cifar100``,
    and 180 rounds, half as long again, so that a split has time to show. FedGWC has no
    test against chance, as the paper's has none. Table 9's five aggregators, and five
    values of β with FedAvg. Settled before the first of these runs.
    """
    scale = SCALES[profile]
    rounds = scale.rounds + scale.rounds // 2
    law = client_mixtures(scale, 0.01)
    dataset = pick(scale, "digits")
    how: dict[str, Any] = {}
    if profile != "smoke":
        dataset = "emnist_bymerge"
        how = {"base": "cifar100", "model": _network(47, shape=(1, 28, 28))}
    own = without_our_test(scale)
    arms: list[tuple[str, str, float | None, Any]] = []
    for name, make in aggregators(scale).items():
        if name != "FairAvg":  # of Table 2
            arms.append(("no clusters", name, None, make(sampled=scale.sampled)))
            arms.append(("FedGWC", name, own.beta, replace(own, aggregator=make())))
    for other in BETAS:
        if other != own.beta:
            arms.append(("FedGWC", "FedAvg", other, replace(own, beta=other)))
    tasks = []
    for seed in scale.seeds:
        for row, name, b, method in arms:
            tags = {
                "row": row,
                "aggregator": name,
                "beta": "–" if b is None else str(b),
            }
            tasks.append(task(profile, dataset, law, seed, method, rounds, tags, **how))
    return tasks


def least_sizes(profile: str) -> list[Task]:
    """What a least size of clusters brings.

    CIFAR-100 as in ``untested``, which has the least size 3 and random members at its
    splits: 30 clients, a fifth of them a round, 480 rounds, ε = 0.002, the same seeds,
    and no test against chance. (With that test FedGWC splits nothing there, so a least
    size could change nothing.) Settled before the first of these runs.
    """
    scale = SCALES["smoke" if profile == "smoke" else "laptop"]
    far = replace(scale, rounds=4 * scale.rounds, every=2 * scale.every)
    own = without_our_test(scale)
    rows = {
        f"FedGWC, k_min = {least}": replace(own, k_min=least) for least in (6, 10, 15)
    }
    return [
        Task(
            method=method,
            dataset=pick(scale, "cifar100"),
            partition=client_mixtures(scale, 0.5),
            model=scale.data[pick(scale, "cifar100")],
            local=scale.local,
            rounds=far.rounds,
            seed=seed,
            profile=profile,
            every=far.every,
            curves=(*CURVES, "macro_f1"),
            measure=measure_fedgwc,
            tags={"row": row},
        )
        for seed in scale.seeds
        for row, method in rows.items()
    ]


KEPT = (  # curves of the runs at the paper's scale
    *("accuracy", "balanced_accuracy", "balanced_released", "macro_f1"),
    *("clusters", "was", "wadb", "members", "client_updates"),
)
IN_STEP = "in step"  # the row of a task with several methods


def evaluated_every(rounds: int) -> int:
    """Rounds from one evaluation to the next, if there are thirty of them."""
    return max(1, rounds // 30)


def members_kept_at(rounds: int) -> tuple[int, ...]:
    """The rounds of six of these evaluations, at which memberships are kept."""
    every = evaluated_every(rounds)
    return tuple(every * i for i in (1, 5, 10, 15, 20, 25))


class OwnScale(NamedTuple):
    """A federation at the paper's scale, as it is run here."""

    dataset: str
    law: Callable[..., partition.Partition]
    model: Callable[[], Any]
    local: Local
    clients: int
    rounds: int
    official: bool = True
    train_rows: int | None = None
    eps: float = 1e-5

    @property
    def some(self) -> int:
        """A tenth of the clients, who are sampled in a round."""
        return self.clients // 10

    def task(self, profile: str, seed: int, row: str, method: Any) -> Task:
        """One run, measured 30 times; memberships are kept at six of them."""
        everybody = isinstance(method, FeSEM)  # a tenth of the rounds, equal updates
        rounds = self.rounds // 10 if everybody else self.rounds
        return Task(
            method=method,
            dataset=self.dataset,
            partition=self.law,
            model=self.model,
            local=self.local,
            rounds=rounds,
            seed=seed,
            profile=profile,
            every=evaluated_every(rounds),
            curves=KEPT,
            official=self.official,
            measure=partial(measure_members, at=members_kept_at(rounds)),
            train_rows=self.train_rows,
            tags={"row": row},
        )

    def in_step(self, profile: str, seed: int, rows: Mapping[str, Any]) -> Task:
        """Several rows as one task: what they have in common is trained once."""
        arms = Arms(tuple(rows.items()), keep_updates=False)
        usual = self.task(profile, seed, IN_STEP, arms)
        return replace(
            usual,
            curves=tuple(arm_key(row, score) for row in rows for score in KEPT),
            measure=partial(measure_arms, at=members_kept_at(usual.rounds)),
        )

    def one_until_split(self) -> dict[str, Any]:
        """FedAvg, and three FedGWC that are FedAvg until their first split.

        Section 4.1 of the paper puts clients first that were sampled seldom, without
        saying how. Here the printed rule samples uniformly, as it does in all other
        tables and as the authors' code does: then only its splits tell it from FedAvg.
        Its MSE is that of the whole matrix, as in ``looks``: over updated entries alone
        it would hardly ever be small enough for a look.

        As released and as printed, FedGWC samples as many clients of *every* cluster,
        so its rounds can come to cost ten times as much. It stops when it has had
        FedAvg's client updates, at which rows are compared.
        """
        rule: dict[str, Any] = {"sampled": self.some, "eps": self.eps, "beta": 0.5}
        printed = FedGWC.as_printed(**rule, priority=False, whole_matrix=True)
        updates = self.rounds * self.some
        return {
            "no clusters": FedAvg(0.1),
            "FedGWC": FedGWC(sampled=0.1, eps=self.eps, beta=0.5),
            "FedGWC as released": Within(FedGWC.as_released(**rule), updates),
            "FedGWC as printed": Within(printed, updates),
        }


def tiny(clients: int = 40) -> OwnScale:
    """What ``smoke`` has in the place of a large federation."""
    return OwnScale(
        dataset="digits",
        law=partial(partition.dirichlet, alpha=0.5, clients=clients),
        model=_small["digits"],
        local=SCALES["smoke"].local,
        clients=clients,
        rounds=30,
        official=False,
    )


def emnist(profile: str) -> list[Task]:
    """The FEMNIST half of Table 1 at the paper's own scale, on a part of EMNIST.

    As in the paper: 47 classes, 400 clients, α = 0.01, a tenth of the clients a round,
    3,000 rounds, LeNet-5, batches of 64, η = 0.01, weight decay 4e-4, ε = 1e-5. The
    data are not the paper's: the 116,323 images of EMNIST by-merge's official test
    part, split at random into 100,000 for training, 250 a client, and 16,323 for
    tests. The paper's eight steps a round are two epochs of these rather than one.
    Reduced: the seeds, 3 for FedAvg, the three FedGWC and LocalOnly, 1 for the others.

    FedAvg, the three FedGWC and random members run in step, one task for a seed.

    β = 0.5, one of three values that tie in Table 5's column. FeSEM trains all clients
    in each round and has a tenth of the rounds: equal client updates. IFCA and FeSEM
    have five clusters, the largest number that the paper tried.
    """
    if profile == "smoke":
        setup = tiny()
    else:
        setup = OwnScale(
            dataset="emnist_bymerge",
            law=partial(partition.dirichlet, alpha=0.01, clients=400, test=0.0),
            model=partial(models.lenet5, shape=(1, 28, 28), classes=47),
            local=Local(0.01, steps=8, batch_size=64, weight_decay=4e-4),
            clients=400,
            rounds=3_000,
            train_rows=100_000,
        )
    rows = setup.one_until_split()
    controls = {"Random members, same splits": Replayed(rows["FedGWC"])}
    alone = {
        "LocalOnly": LocalOnly(0.1),
        "IFCA (5)": IFCA(5, sampled=0.1),
        "FeSEM (5)": FeSEM(5),
    }
    tasks = [setup.in_step(profile, 0, rows | controls)]
    for row, method in alone.items():
        tasks.append(setup.task(profile, 0, row, method))
    if profile != "smoke":
        for seed in (1, 2):
            tasks.append(setup.in_step(profile, seed, rows))
            tasks.append(setup.task(profile, seed, "LocalOnly", alone["LocalOnly"]))
    return tasks


def cifar100_long(profile: str) -> list[Task]:
    """Rows of Table 1 with the paper's clients and half of its rounds.

    As in the paper: 100 clients, α = 0.5, a tenth of them a round, seven steps of
    batches of 64, η = 0.01, weight decay 4e-4, augmentation, ε = 1e-5. Reduced: 200
    images a client instead of 500 and a 40 % subset of the data, two epochs a round
    instead of one; the narrow network of ``laptop``; 10,000 rounds, the default of the
    released code, instead of 20,000; one seed.

    FedAvg and two FedGWC, corrected and as released, run in step, as one task.
    """
    if profile == "smoke":
        setup = tiny()
    else:
        setup = OwnScale(
            dataset="cifar100",
            law=partial(
                partition.mixed,
                groups=(100,),
                alphas=(0.5,),
                size=200,
                test=0.0,
                min_size=2,
            ),
            model=_network(100),
            local=replace(_local, epochs=1, steps=7, drop_last=False),
            clients=100,
            rounds=10_000,
            train_rows=20_000,
        )
    rows = setup.one_until_split()
    del rows["FedGWC as printed"]  # the campaign asks for the other two
    return [
        setup.in_step(profile, 0, rows),
        setup.task(profile, 0, "LocalOnly", LocalOnly(0.1)),
    ]


TABLES: dict[str, Callable[[str], list[Task]]] = {
    **only_in(
        ("smoke", "laptop", "paper"),
        {
            "rules": watched,
            "heterogeneity": heterogeneity,
            "domains": domains,
            "cifar100": cifar100,
            "longer": longer,
            "beta": beta,
        },
    ),
    **only_in(
        ("smoke", "laptop"),
        {
            "untested": untested,
            "level_rivals": level_rivals,
            "emnist_small": emnist_small,
        },
    ),
    **only_in(
        ("smoke", "workstation"),
        {
            "looks": looks,
            "noise_anew": noise_anew,
            "k_min": least_sizes,
            "cifar100_long": cifar100_long,
        },
    ),
    **only_in(("smoke", "paper"), {"emnist": emnist}),
}


class Published(NamedTuple):
    """A federation of Table 2, or FEMNIST of Table 1, at the paper's scale."""

    clients: int
    classes: int
    rounds: int
    local: Local
    eps: float


# FEMNIST: section 7.1 counts 47 classes, which is EMNIST's split by merge
LARGE = {
    "emnist_bymerge": Published(
        clients=400,
        classes=47,
        rounds=3_000,
        local=Local(0.01, batch_size=64, weight_decay=4e-4, drop_last=True),
        eps=1e-5,
    ),
    "landmarks": Published(
        clients=823,
        classes=2028,
        rounds=1_000,
        local=Local(0.1, steps=7),
        eps=1e-4,
    ),
    "inaturalist": Published(
        clients=2714,
        classes=1203,
        rounds=2_000,
        local=Local(0.1, steps=5),
        eps=1e-2,
    ),
}


def measure_large(fed, state) -> dict[str, Any]:
    """Accuracy and clusters, where confusion matrices of all clients would not fit in
    memory.
    """
    e = fed.evaluate(state.theta, state.labels)
    hits, tests = (
        torch.bincount(e.owner, w, fed.K) for w in ((e.true == e.pred).double(), None)
    )
    out = {"accuracy": metrics.average((hits / tests).cpu().numpy())}
    return out | experiment.measure_clusters(
        fed, getattr(state, "clusters", state.labels)
    )


def large() -> list[Task]:
    """FEMNIST, Landmarks and iNaturalist as the paper ran them; never run here.

    A tenth of FEMNIST's clients is sampled in a round, of the others ten clients. These
    are no part of ``TABLES``, for no other profile can hold them.
    """
    out = []
    for name, size in LARGE.items():
        if name == "emnist_bymerge":
            sampled = 0.1
            some = round(0.1 * size.clients)
            law = partial(partition.dirichlet, alpha=0.01)
            law = partial(law, clients=size.clients, test=0.0)
            net = partial(models.lenet5, shape=(1, 28, 28))
            how: dict[str, Any] = {"official": True}
        else:
            sampled = some = 10
            law = partial(as_published, name=name, clients=size.clients)
            net = partial(models.mobilenet_v2, pretrained=True)
            how = {"options": {"backend": "lean"}, "measure": measure_large}
        rows = {
            "FedGWC": FedGWC(sampled=sampled, eps=size.eps),
            "no clusters": FedAvg(sampled),
            "CFL": CFL(sampled=sampled),
            "FedGWC as released": FedGWC.as_released(sampled=some, eps=size.eps),
        }
        rows |= {f"IFCA, C = {C}": IFCA(C, sampled=sampled) for C in (2, 3, 4, 5)}
        for seed in range(3):
            for row, method in rows.items():
                made = Task(
                    method=method,
                    dataset=name,
                    partition=law,
                    model=partial(net, classes=size.classes),
                    local=size.local,
                    rounds=size.rounds,
                    seed=seed,
                    profile="paper",
                    every=100,
                )
                out.append(replace(made, tags={"row": row}, **how))
    return out
