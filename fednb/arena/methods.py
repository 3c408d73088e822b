"""Who takes part in the arena, and what of each method is tuned.

Every method has the same small budget: three learning rates times at most three values
of its one most important knob. A method without such a knob has the rates only.

A run may spend a given number of client updates, in units of one ordinary local
training. A method that trains more in a round therefore gets fewer rounds:
``per_round`` says how much it spends.

Methods that must be told the number of clusters have it as their knob (``told``). They
appear three times: with the number that validation samples favour, with the right one,
and with a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import methods
from .worlds import GROUPS, World

NUMBERS = (2, GROUPS, 2 * GROUPS)  # of clusters, that a method may be told
RIGHT = GROUPS
WRONG = 2  # half of the groups have to share
STEPS = 10  # gradient steps of one client update

Make = Callable[[World, Any, int, int], Any]  # world, knob's value, rounds, seed
Cost = Callable[[World, Any], float]  # client updates in a round


def as_sampled(world: World, value: Any) -> float:
    """One local training of each sampled client."""
    return world.sampled


def twice(world: World, value: Any) -> float:
    """Two local trainings of each sampled client."""
    return 2 * world.sampled


def times(world: World, value: Any) -> float:
    """As many trainings of each sampled client as the knob says."""
    return value * world.sampled


def everybody(world: World, value: Any) -> float:
    """One local training of each client."""
    return world.clients


@dataclass(frozen=True)
class Entry:
    """A method of the arena: how it is made, what is tuned, and what a round costs."""

    name: str
    family: str
    make: Make
    knob: str = ""  # what is tuned beside the learning rate
    values: tuple[Any, ...] = (None,)
    per_round: Cost = as_sampled
    told: bool = False  # the knob is the number of clusters
    grouped_only: bool = False  # needs hidden groups

    @property
    def usual(self) -> Any:
        """The value of the knob before anything is tuned: the middle one."""
        return self.values[len(self.values) // 2]

    def rounds(self, world: World, value: Any, share: float = 1.0) -> int:
        """Rounds that a share of the world's budget pays for, at least two."""
        return max(2, round(share * world.updates / self.per_round(world, value)))


def _pfedme(world: World, lam: float, rounds: int, seed: int) -> Any:
    """Two local rounds of half the steps: the gradients of one client update."""
    return methods.PFedMe(
        sampled=world.sampled,
        lam=lam,
        eta=0.5 / lam,  # half of the way from w to the personal model
        local_rounds=2,
        steps=STEPS // 2,
    )


def _per_fedavg(world: World, alpha: float, rounds: int, seed: int) -> Any:
    """Two gradients for each of τ steps: as many as one client update has."""
    return methods.PerFedAvg(sampled=world.sampled, alpha=alpha, tau=STEPS // 2)


def _per_fedavg_cost(world: World, alpha: float) -> float:
    """The sampled clients' gradients, and a step of every client at the end."""
    return world.sampled + world.clients / STEPS


def _fedccfa(world: World, ratio: float, rounds: int, seed: int) -> Any:
    return methods.FedCCFA(
        sampled=world.sampled, classifier_lr_scale=ratio, comparison_steps=STEPS // 2
    )


def _fedccfa_cost(world: World, ratio: float) -> float:
    """Classifiers to compare, an epoch of the classifier, and the extractor."""
    epoch = world.size / 16 + 0.5  # batches, the last one not full
    return world.sampled * (0.5 + epoch / STEPS + 1)


def _cflgp_cost(world: World, clusters: int) -> float:
    """Clients of other clusters train the criterion model, too."""
    return world.sampled * (2 - 1 / clusters)


def _power_of_choice(world: World, share: float, rounds: int, seed: int) -> Any:
    """Candidates between those who will train (0) and everybody (1)."""
    more = round(share * (world.clients - world.sampled))
    return methods.PowerOfChoice(world.sampled, candidates=world.sampled + more)


def _fedgwc(world: World, eps: float, rounds: int, seed: int) -> Any:
    return methods.FedGWC(sampled=world.sampled / world.clients, eps=eps)


def _random_clusters(world: World, value: None, rounds: int, seed: int) -> Any:
    """As many clusters as there are groups, or four, with random members."""
    sizes = [world.clients // GROUPS] * GROUPS
    return methods.FixedClusters.random(sizes, seed=seed, sampled=world.sampled)


ENTRIES = (
    # controls
    Entry(
        "LocalOnly",
        "control",
        lambda world, value, rounds, seed: methods.LocalOnly(world.sampled),
    ),
    Entry(
        "Oracle clusters",
        "control",
        lambda world, value, rounds, seed: methods.FixedClusters(
            world.truth, world.sampled
        ),
        grouped_only=True,
    ),
    Entry("Random clusters", "control", _random_clusters),
    # one model for all
    Entry(
        "FedAvg",
        "one model",
        lambda world, value, rounds, seed: methods.FedAvg(world.sampled),
    ),
    Entry(
        "FairAvg",
        "one model",
        lambda world, value, rounds, seed: methods.FairAvg(world.sampled),
    ),
    Entry(
        "FedAvgM",
        "one model",
        lambda world, beta, rounds, seed: methods.FedAvgM(world.sampled, beta=beta),
        knob="β of the server's momentum",
        values=(0.3, 0.6, 0.9),
    ),
    Entry(
        "FedOpt",
        "one model",
        lambda world, lr, rounds, seed: methods.FedOpt(world.sampled, server_lr=lr),
        knob="the server's learning rate",
        values=(0.003, 0.01, 0.03),
    ),
    Entry(
        "FedProx",
        "one model",
        lambda world, mu, rounds, seed: methods.FedProx(world.sampled, mu=mu),
        knob="μ",
        values=(0.01, 0.1, 1.0),
    ),
    Entry(
        "SCAFFOLD",
        "one model",
        lambda world, lr, rounds, seed: methods.SCAFFOLD(world.sampled, server_lr=lr),
        knob="η_g",
        values=(0.5, 1.0, 1.5),
    ),
    # one model for all, with chosen clients
    Entry(
        "InTurn",
        "choice of clients",
        lambda world, value, rounds, seed: methods.InTurn(world.sampled),
    ),
    Entry(
        "PowerOfChoice",
        "choice of clients",
        _power_of_choice,
        knob="share of the others who are candidates",
        values=(0.25, 0.5, 1.0),
    ),
    Entry(
        "ActiveFL",
        "choice of clients",
        lambda world, alpha1, rounds, seed: methods.ActiveFL(
            world.sampled, alpha1=alpha1
        ),
        knob="α₁, share left out",
        values=(0.1, 0.3, 0.5),
    ),
    Entry(
        "FedCVRBolt",
        "choice of clients",
        lambda world, beta, rounds, seed: methods.FedCVRBolt(
            world.sampled, warmup=rounds // 5, beta=beta
        ),
        knob="β",
        values=(0.1, 1.0, 10.0),
    ),
    # a model for each client
    Entry(
        "Ditto",
        "personal",
        lambda world, lam, rounds, seed: methods.Ditto(world.sampled, lam=lam),
        knob="λ",
        values=(0.03, 0.3, 3.0),
        per_round=twice,
    ),
    Entry(
        "FedPer",
        "personal",
        lambda world, layers, rounds, seed: methods.FedPer(
            world.sampled, personal=layers
        ),
        knob="personal layers",
        values=(1, 2),
    ),
    Entry(
        "FedRep",
        "personal",
        lambda world, layers, rounds, seed: methods.FedRep(
            world.sampled, personal=layers
        ),
        knob="personal layers",
        values=(1, 2),
        per_round=twice,
    ),
    Entry("pFedMe", "personal", _pfedme, knob="λ", values=(0.3, 1.0, 5.0)),
    Entry(
        "Per-FedAvg",
        "personal",
        _per_fedavg,
        knob="α",
        values=(0.01, 0.03, 0.1),
        per_round=_per_fedavg_cost,
    ),
    # several models for each client
    Entry(
        "Ensemble",
        "mixture",
        lambda world, members, rounds, seed: methods.Ensemble(
            members, sampled=world.sampled
        ),
        knob="members",
        values=(2, 3, 5),
        per_round=times,
    ),
    Entry(
        "FedEM",
        "mixture",
        lambda world, components, rounds, seed: methods.FedEM(
            components, world.sampled
        ),
        knob="components",
        values=(2, 3, 4),
        per_round=times,
    ),
    Entry(
        "FedSoft",
        "mixture",
        lambda world, clusters, rounds, seed: methods.FedSoft(clusters, world.sampled),
        knob="clusters",
        values=NUMBERS,
        told=True,
    ),
    Entry(
        "FedCCFA",
        "mixture",
        _fedccfa,
        knob="learning rate of the classifier, in the extractor's",
        values=(1.0, 3.0, 10.0),
        per_round=_fedccfa_cost,
    ),
    # clusters, whose number must be told
    Entry(
        "IFCA",
        "clusters",
        lambda world, clusters, rounds, seed: methods.IFCA(clusters, world.sampled),
        knob="clusters",
        values=NUMBERS,
        told=True,
    ),
    Entry(
        "FeSEM",
        "clusters",
        lambda world, clusters, rounds, seed: methods.FeSEM(clusters),
        knob="clusters",
        values=NUMBERS,
        per_round=everybody,
        told=True,
    ),
    Entry(
        "WeCFL",
        "clusters",
        lambda world, clusters, rounds, seed: methods.WeCFL(clusters),
        knob="clusters",
        values=NUMBERS,
        per_round=everybody,
        told=True,
    ),
    Entry(
        "CFL-GP",
        "clusters",
        lambda world, clusters, rounds, seed: methods.CFLGP(clusters, world.sampled),
        knob="clusters",
        values=NUMBERS,
        per_round=_cflgp_cost,
        told=True,
    ),
    # clusters, whose number is found
    Entry(
        "CFL",
        "clusters",
        lambda world, eps1, rounds, seed: methods.CFL(
            world.sampled, eps1=eps1, eps2=0.6, wait=rounds // 4
        ),
        knob="ε₁",
        values=(0.1, 0.3, 0.6),
    ),
    Entry(
        "FL+HC",
        "clusters",
        lambda world, threshold, rounds, seed: methods.BriggsHC(
            warmup=rounds // 5, threshold=threshold, sampled=world.sampled
        ),
        knob="threshold",
        values=(0.2, 0.4, 0.8),
    ),
    Entry(
        "OCFL",
        "clusters",
        lambda world, clusterer, rounds, seed: methods.OCFL(
            clusterer, sampled=world.sampled
        ),
        knob="clusterer",
        values=("affinity", "hdbscan", "meanshift"),
    ),
    Entry(
        "AutoCFL",
        "clusters",
        lambda world, voting, rounds, seed: methods.AutoCFL(
            world.sampled, voting=voting
        ),
        knob="rounds of the vote",
        values=(1, 2, 4),
    ),
    Entry(
        "MTCFL",
        "clusters",
        lambda world, gamma_max, rounds, seed: methods.MTCFL(
            world.sampled, gamma_max=gamma_max
        ),
        knob="γ_max",
        values=(0.5, 0.7071, 0.9),
    ),
    Entry(
        "FedGWC",
        "clusters",
        _fedgwc,
        knob="ε",
        values=(1e-4, 1e-3, 1e-2),
    ),
    Entry(
        "GCFL",
        "clusters",
        lambda world, zeta, rounds, seed: methods.GCFL(
            world.sampled, latest=rounds // 5, zeta=zeta, probe=world.probe
        ),
        knob="ζ",
        values=(0.01, 0.1, 1.0),
    ),
)
