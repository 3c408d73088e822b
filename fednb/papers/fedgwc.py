"""FedGWC's tables and figures as tasks: Licciardi et al., ICML 2025, section 7 and appendices G to J.

| name | what |
|---|---|
| cifar100 | Tables 1, 8 and 9, Figures 2 and 3: rivals, numbers of clusters, aggregators, and our controls |
| longer | Figure 2 again, for four times the rounds: what a split brings needs rounds to be seen |
| heterogeneity | Tables 3 and 6: three mixes of homogeneous and heterogeneous clients, and a homogeneous federation |
| domains | Tables 4 and 7: clean, noisy and blurred clients |
| beta | Table 5, with FedGWC's row of cifar100 for β = 0.5 |
| rules | Figures 4 to 8: one FedAvg run, watched by all the versions of the rule at once |

``laptop`` has 30 clients of 120 training and 80 test samples instead of 100 of 500 and 100, a fifth of them sampled
instead of a tenth, batches of 16, and some hundred rounds at five times the learning rate instead of 20,000. The net
is LeNet-5's two convolutions with a linear layer on top: with LeNet-5's three dense ones the loss does not leave its
first value within the rounds that we have. ε = 0.002, for with so few clients per round, and so few rounds, 1e-5 is
never reached; it lets pairs of clients meet some three times before the first attempt. Domains differ less in their
losses than classes do, so there pairs meet twice as often, with ε = 0.0002. Noise has σ = 1, as strong as the image,
and blur 2 pixels: the paper names neither. Server momentum moves by 1 - β of its sum, so that its step is as long as
FedAvg's in the long run; pFedMe and Per-FedAvg have eight gradients per round, near the seven of the others, and the
others' learning rate. FeSEM, which trains everybody in each round, gets a fifth of the rounds: the same number of
client updates. Of these the network and ε were chosen after a look at one seed, so that losses fall and splits occur
within the rounds that we can afford; the others were not tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import experiment, metrics, models, partition, tables
from ..data import as_generated, as_published
from ..experiment import Task
from ..methods import (
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
from ..training import Local

BETAS = (0.1, 0.5, 1.0, 2.0, 4.0)
CURVES = (
    "accuracy",
    "balanced_accuracy",
    "balanced_released",
    "clusters",
    "labels",
    "client_updates",
)


# --- controls that fork from FedGWC at its first split ---------------------------------------------------------------


@dataclass(frozen=True)
class Shuffled(FedGWC):
    """FedGWC's splits with their sizes, but who goes where is drawn at random."""

    def split(self, P: Tensor, sampled: int, seed: int) -> Tensor:
        """Permute the labels that FedGWC would give."""
        y = super().split(P, sampled, seed)
        return y[torch.as_tensor(np.random.default_rng(seed).permutation(len(y)))]


@dataclass(frozen=True)
class Told(FedGWC):
    """FedGWC's first attempt, but into given clusters; then no more."""

    truth: tuple[int, ...] = ()

    def split(self, P: Tensor, sampled: int, seed: int) -> Tensor:
        """Give the truth while all clients are together."""
        return (
            torch.tensor(self.truth)
            if len(P) == len(self.truth)
            else torch.zeros(len(P), dtype=torch.int64)
        )


class Watched(NamedTuple):
    """FedAvg's model, and what each of R rules makes of the clients' losses."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros
    P: Tensor  # (R, K, K)
    visits: Tensor  # (R, K, K)
    mse: Tensor  # (R,)
    calm: Tensor  # (R,)
    first: Tensor  # (R,) the round of the first attempt, 0 before it
    found: Tensor  # (R, K) its labels
    block: Tensor  # (R, K, K) what it clustered


@dataclass(frozen=True)
class Watch:
    """FedAvg, watched by rules: until its first split FedGWC is FedAvg, so one run tells
    when and how each rule would split.

    Each rule makes its first attempt and then only goes on to observe. Clients are
    sampled uniformly, whatever ``priority`` a rule has.
    """

    rules: tuple[tuple[str, FedGWC], ...]
    sampled: int | float = 1.0

    def init(self, fed) -> Watched:
        """Start with FedAvg's model and each rule's P."""
        theta, R = fed.start(), len(self.rules)
        P = torch.stack(
            [
                theta.new_full((fed.K, fed.K), rule.initial / fed.K**2)
                for _, rule in self.rules
            ]
        )
        zeros = torch.zeros(R, dtype=torch.int64)
        return Watched(
            theta,
            torch.zeros_like(fed.n),
            P,
            0 * P,
            P.new_ones(R),
            zeros,
            zeros,
            zeros[:, None] + 0 * fed.n,
            P,
        )

    def step(self, state: Watched, fed, t: int) -> Watched:
        """Run a round of FedAvg, and let each rule see its losses."""
        S, everyone, seed = fed.sample(self.sampled), torch.arange(fed.K), fed.draw()
        up = fed.train(state.theta[0], S)
        P, visits, mse, calm, first, found, block = (x.clone() for x in state[2:])
        for r, (_, rule) in enumerate(self.rules):
            seen = rule.observe(
                (P[r], visits[r], mse[r], calm[r]), S, up.losses, fed.n[S], fed.K
            )
            P[r], visits[r], mse[r], calm[r] = seen
            if not first[r] and rule.due(calm[r], len(S), fed.K):
                first[r], block[r] = t + 1, rule.block(P[r], visits[r], everyone)
                found[r] = rule.split(block[r], len(S), seed)
        n = fed.n[S] / fed.n[S].sum()
        return Watched(
            (n @ up.theta)[None],
            state.labels,
            P,
            visits,
            mse,
            calm,
            first,
            found,
            block,
        )


# --- measures --------------------------------------------------------------------------------------------------------


def measure_fedgwc(fed, state) -> dict[str, Any]:
    """The usual numbers, "balanced accuracy" as the released code computes it, and the Rand index of Tables 4 and 7."""
    counts = fed.evaluate(state.theta, state.labels).confusion.cpu().numpy()
    out = {
        "balanced_released": metrics.average(
            metrics.share_weighted_accuracy(counts, fed.truth.counts)
        )
    }
    if fed.truth.labels is not None:
        out["rand"] = metrics.rand_index(
            fed.truth.labels, getattr(state, "clusters", state.labels).numpy()
        )
    return experiment.measure(fed, state) | out


def measure_watch(fed, state) -> dict[str, Any]:
    """For each rule its MSE, its first attempt and how good that is; for the first rule also what it saw."""
    out = {f"mse_{r}": float(x) for r, x in enumerate(state.mse)}
    out |= {f"first_{r}": int(x) for r, x in enumerate(state.first)}
    for r, labels in enumerate(state.found):
        out |= {
            f"{name}_{r}": value
            for name, value in experiment.measure_clusters(fed, labels).items()
        }
    rounded = [[round(float(x), 4) for x in row] for row in state.block[0]]
    return out | {
        "P": rounded,
        "found": state.found.tolist(),
        "counts": fed.truth.counts.tolist(),
    }


# --- scales ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """What a profile changes."""

    data: dict[str, Callable[[], Any]]  # a network for each data set
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
        _small,
        30,
        40,
        0.4,
        0.2,
        12,
        12,
        12,
        6,
        40,
        4,
        replace(_ours, lr=0.1),
        0.01,
        0.01,
        range(1),
    ),
    "laptop": Scale(
        {"cifar100": _network(100), "cifar10": _network(10)},
        *(30, 200, 0.4, 0.2, 120, 90, 150, 40, 170, 10, _ours, 2e-3, 2e-4, range(3)),
    ),
    "paper": Scale(
        {
            "cifar100": partial(_theirs, classes=100),
            "cifar10": partial(_theirs, classes=10),
        },
        *(
            100,
            500,
            0.0,
            0.1,
            20_000,
            10_000,
            10_000,
            10_000,
            10_000,
            100,
            _local,
            1e-5,
            1e-5,
            range(3),
        ),
        official=True,
    ),
}


def pick(scale: Scale, dataset: str) -> str:
    """The data set if the profile has it, else its only one."""
    return dataset if dataset in scale.data else next(iter(scale.data))


def task(
    profile: str,
    dataset: str,
    law: Callable,
    seed: int,
    method: Any,
    rounds: int,
    tags: dict,
    **changes,
) -> Task:
    """One run."""
    scale = SCALES[profile]
    base = (
        dataset.partition("base='")[2].partition("'")[0] or dataset
    )  # domains(base='cifar100', ...)
    usual = Task(
        method,
        dataset,
        law,
        scale.data[base],
        scale.local,
        rounds,
        seed,
        profile,
        every=scale.every,
        curves=CURVES,
        official=scale.official and base == dataset,
        measure=measure_fedgwc,
        tags=tags,
    )
    return replace(usual, **changes)


def dirichlet(scale: Scale, alpha: float) -> Callable[..., partition.Partition]:
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
    """Rounds in which all clients together train as often as the sampled ones do in ``rounds``."""
    return max(1, round(rounds * scale.some / scale.clients))


# --- tables ----------------------------------------------------------------------------------------------------------


def gwc(scale: Scale, **changes: Any) -> FedGWC:
    """The corrected FedGWC, with the profile's ε and the paper's best β."""
    return FedGWC(**{"sampled": scale.sampled, "eps": scale.eps, "beta": 0.5} | changes)


def released(scale: Scale) -> FedGWC:
    """The authors' code, with the profile's ε and the paper's best β: as many clients of every cluster."""
    return FedGWC.as_released(sampled=scale.some, eps=scale.eps, beta=0.5)


def aggregators(scale: Scale) -> dict[str, Callable[..., Any]]:
    """Table 9's, each with its settings but for who is sampled."""
    lr, steps = scale.local.lr, 4
    return {
        "FedAvg": FedAvg,
        "FedAvgM": partial(FedAvgM, server_lr=0.1),
        "FedProx": partial(FedProx, mu=0.01),
        "FairAvg": FairAvg,
        "pFedMe": partial(PFedMe, eta=lr, local_rounds=2, steps=steps),
        "Per-FedAvg": partial(PerFedAvg, alpha=lr, tau=steps),
    }


def rivals(scale: Scale) -> Iterator[tuple[int, str, str, Any, dict[str, Any]]]:
    """Rows of Tables 1, 8 and 9: clusters asked for (0: it finds them), row, aggregator, method, changes."""
    T = scale.rounds
    for name, make in aggregators(
        scale
    ).items():  # FedAvg goes on, for those that train more clients in a round
        yield (
            1,
            "no clusters",
            name,
            make(sampled=scale.sampled),
            {"rounds": T + T // 2} if name == "FedAvg" else {},
        )
        yield 0, "FedGWC", name, gwc(scale, aggregator=make()), {}
    yield 0, "FedGWC as released", "FedAvg", released(scale), {}
    yield 0, "Random members", "FedAvg", Shuffled(**_fields(gwc(scale))), {}
    yield scale.clients, "LocalOnly", "none", LocalOnly(scale.sampled), {}
    yield 0, "CFL", "FedAvg", CFL(sampled=scale.sampled), {}
    for C in (2, 3, 4, 5):
        everybody = {"rounds": slow(scale, T), "every": slow(scale, scale.every)}
        yield C, "FeSEM", "FedAvg", FeSEM(C), everybody
        yield C, "IFCA", "FedAvg", IFCA(C, sampled=scale.sampled), {}


def _fields(method: FedGWC) -> dict[str, Any]:
    """The fields of a method by name, for a control that has the same ones."""
    return {field.name: getattr(method, field.name) for field in fields(method)}


def cifar100(profile: str) -> list[Task]:
    """Tasks of Tables 1, 8 and 9."""
    scale = SCALES[profile]
    dataset = pick(scale, "cifar100")
    return [
        task(
            *(profile, dataset, dirichlet(scale, 0.5), seed, method),
            **{"rounds": scale.rounds, "tags": {"C": C, "row": row, "aggregator": name}}
            | changes,
        )
        for seed in scale.seeds
        for C, row, name, method, changes in rivals(scale)
    ]


def longer(profile: str) -> list[Task]:
    """Some rows of Table 1 for longer, and IFCA and FeSEM with as many clusters as FedGWC then finds; none at paper
    scale, which is long enough.
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
    return [
        task(
            *(profile, pick(scale, "cifar100"), dirichlet(scale, 0.5), seed, method),
            **{"rounds": far.rounds, "every": far.every, "tags": {"C": C, "row": row}}
            | changes,
        )
        for seed in scale.seeds
        for C, row, _, method, changes in some + eight
    ]


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


def mix(scale: Scale, dataset: str, setting: str) -> Callable[..., partition.Partition]:
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
    """Rows of the cluster tables: clusters asked for (0: it finds them), row, method, rounds; IFCA and FeSEM are told
    the number of groups. With three groups there are controls, with one only the question whether it is split.
    """
    C, own = len(groups), gwc(scale, eps=eps)
    yield 0, "FedGWC", own, {"rounds": rounds}
    if C == 3:
        yield 0, "Random members", Shuffled(**_fields(own)), {"rounds": rounds}
        truth = tuple(np.repeat(range(C), groups).tolist())
        yield 0, "Oracle", Told(**_fields(own), truth=truth), {"rounds": rounds}
    if C > 1:
        yield (
            C,
            "FeSEM",
            FeSEM(C),
            {"rounds": slow(scale, scale.few), "every": slow(scale, scale.every)},
        )
        yield C, "IFCA", IFCA(C, sampled=scale.sampled), {"rounds": scale.few}


def heterogeneity(profile: str) -> list[Task]:
    """Tasks of Tables 3 and 6."""
    scale, out = SCALES[profile], []
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
    scale, out = SCALES[profile], []
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
) -> str:
    """The name of a data set of clean, noisy and blurred clients, for ``data.load``."""
    official = ", official=True" if scale.official else ""
    return (
        f"domains(base={base!r}, clients={scale.parts(shares)}, size={scale.size}, noise={noise}, blur={blur}, "
        f"alpha=100.0, test={scale.test}{official}, seed={seed})"
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
                dirichlet(scale, 0.5),
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
    """The rule as we correct it, printed and released, each step between them, and the other β."""
    printed = FedGWC.as_printed(sampled=scale.some, beta=0.5)
    uniform = replace(printed, eps=scale.eps, priority=False)  # as Watch samples
    own = gwc(scale)
    code = released(scale)
    between = {
        "as printed, ε = 1e-5": printed,
        "as printed, whole matrix, ε = 1e-5": replace(printed, whole_matrix=True),
        "as printed": replace(printed, eps=scale.eps),
        "as printed, whole matrix": replace(printed, eps=scale.eps, whole_matrix=True),
        "+ normalised rewards": (step := replace(uniform, normalise=True)),
        "+ smoothed MSE": (step := replace(step, ema=True)),
        "+ patience": (step := replace(step, patience=None, retry="reset")),
        "+ α = P / K": (step := replace(step, alpha="share", weighted=True)),
        "+ P rescaled": (step := replace(step, rescale=True)),
        "+ columns of P": (step := replace(step, columns=True)),
        "+ P⁰ = 1 / K²": (step := replace(step, initial=1.0)),
        "+ scored on the embedding": replace(
            step, score_on="embedding", assign="cluster_qr"
        ),
        "as released": code,
        "as released, ε = 1e-5": replace(code, eps=1e-5),
        "corrected, patient ε": replace(own, eps=scale.patient),
        "corrected, columns of P": replace(own, columns=True),
        "corrected, unseen pairs as they are": replace(own, fill=False),
        "corrected, constant α": replace(own, alpha=scale.some / scale.clients),
        "corrected, not rescaled": replace(own, rescale=False),
        "corrected, scored on the embedding": replace(own, score_on="embedding"),
    }
    other = {
        f"corrected, β = {b:g}": replace(own, beta=b) for b in BETAS if b != own.beta
    }
    later = {  # the last ones: columns of records go by a rule's number
        "corrected, k-means": replace(own, assign="kmeans"),
        "corrected, no test against chance": replace(own, chance=1.0),
    }
    return {"corrected": own, **between, **other, **later}


def watched(profile: str) -> list[Task]:
    """Tasks of the ingredients and of Figures 4 to 8."""
    scale, out = SCALES[profile], []
    names = ("cifar100", "cifar10", "cifar10", "cifar10")
    settings = ("α = 0.5", "α = 0.05", "(40, 30, 30)", "(100, 0, 0)")
    method = Watch(tuple(rules(scale).items()), scale.sampled)
    kept = {
        "measure": measure_watch,
        "curves": tuple(f"mse_{r}" for r in range(len(method.rules))),
    }
    for seed in scale.seeds:
        for name, setting in zip(names, settings, strict=True):
            law = (
                dirichlet(scale, float(setting[4:]))
                if setting[0] == "α"
                else mix(scale, name, setting)
            )
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
        data = domain_data(scale, pick(scale, "cifar10"), DOMAINS["(40, 30, 30)"], seed)
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
                **kept,
            )
        )
    return out


TABLES: dict[str, Callable[[str], list[Task]]] = {
    "rules": watched,
    "heterogeneity": heterogeneity,
    "domains": domains,
    "cifar100": cifar100,
    "longer": longer,
    "beta": beta,
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
    """Accuracy and clusters, where confusion matrices of all clients would not fit in memory."""
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
            how = {"official": True}
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
                    method,
                    name,
                    law,
                    partial(net, classes=size.classes),
                    size.local,
                    size.rounds,
                    seed,
                    "paper",
                    every=100,
                )
                out.append(replace(made, tags={"row": row}, **how))
    return out


def printed(table: str):
    """The paper's own numbers of a table, as shares where they are; a DataFrame with our tags."""
    return tables.printed(
        Path(__file__).with_suffix(".csv"), table, C="Int64", beta="str"
    )


# --- reading the records ---------------------------------------------------------------------------------------------


def ingredients(frame, settings: dict[str, str]):
    """For each rule: the round of its first attempt, over all settings, and the clusters found in each; seeds averaged.

    ``settings`` names the columns. The mix of three groups also gets the adjusted Rand index. – is no attempt.
    """
    import pandas as pd

    lines = {}
    for r, name in enumerate(rules(SCALES["laptop"])):
        if f"first_{r}" not in frame:  # a rule that the old records do not have yet
            continue
        made = frame[frame[f"first_{r}"] > 0]
        line = {"first attempt": "–"}
        if len(made):
            line["first attempt"] = f"{made[f'first_{r}'].mean():.0f}"
        for setting, head in settings.items():
            own = frame[frame["setting"] == setting]
            line[head] = f"{own[f'clusters_{r}'].mean():.1f}" if len(made) else "–"
            if setting == "(40, 30, 30)":
                line[f"{head}, ARI"] = (
                    f"{own[f'ari_{r}'].mean():.2f}" if len(made) else "–"
                )
        lines[name.replace("P / K", "share sampled")] = line
    return pd.DataFrame(lines).T


def at_updates(course, budget: float, metric: str, last: int = 3) -> float:
    """A metric of a run, a frame with a line per evaluation: mean of the last ones within ``budget`` client updates."""
    return float(course[metric][course["client_updates"] <= budget].iloc[-last:].mean())


def jump(course, plain, metric: str) -> float:
    """What a run gains from the last evaluation before its first split to the second one after it, less what ``plain``
    gains in the same rounds; nan if it splits too late for that, or never.
    """
    split = np.flatnonzero(course["clusters"] > 1)
    if not len(split) or not 0 < split[0] < len(course) - 1:
        return float("nan")
    ends = [split[0] - 1, split[0] + 1]
    own, other = (np.asarray(frame[metric])[ends] for frame in (course, plain))
    return float(np.diff(own)[0] - np.diff(other)[0])


def in_step(
    frame, records: dict[str, dict[str, Any]], last: int = 3, table: str = "cifar100"
):
    """The frame of a table with each metric the mean of the last evaluations within FedGWC's rounds.

    FedAvg goes on for half as long again, to be compared at equal client updates; here it is cut where the others end.
    """
    frame = frame.copy()
    tasks = TABLES[table]("laptop")
    rounds = next(task.rounds for task in tasks if task.tags["row"] == "FedGWC")
    for i, task in enumerate(tasks):
        curves = records[task.key]["metrics"]["curves"]
        inside = np.flatnonzero(np.array(curves["round"]) <= rounds)[-last:]
        for metric in {*curves} & {*frame.columns} - {"clusters", "client_updates"}:
            frame.loc[i, metric] = np.mean([curves[metric][j] for j in inside])
    return frame
