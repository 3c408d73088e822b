"""Arguments of methods that make no sense are refused, with a sentence that tells why.

The first list holds what once gave silent nonsense, the second what failed somewhere
inside with an unclear error. FedGWC and FedCVR-Bolt have tests of their own.
"""

import math
from dataclasses import fields

import numpy as np
import pytest

from fednb.door import num_sampled
from fednb.methods import (
    ALL,
    CFL,
    CFLGP,
    GCFL,
    IFCA,
    MTCFL,
    OCFL,
    SCAFFOLD,
    ActiveFL,
    AutoCFL,
    BriggsHC,
    Ditto,
    Ensemble,
    FedAvg,
    FedAvgM,
    FedCCFA,
    FedCVRBolt,
    FedEM,
    FedGWC,
    FedOpt,
    FedPer,
    FedProx,
    FedRep,
    FedSoft,
    FeSEM,
    FixedClusters,
    InTurn,
    LocalOnly,
    PerFedAvg,
    PFedMe,
    PowerOfChoice,
    WeCFL,
)
from fednb.training import Local

from .conftest import federation

nan = math.nan
inf = math.inf

SILENT = [
    (FedAvgM, {"beta": -1.0}),
    (FedAvgM, {"beta": 2.0}),
    (FedAvgM, {"server_lr": 0.0}),
    (FedAvgM, {"server_lr": -1.0}),
    (FedOpt, {"server_lr": -1.0}),
    (FedOpt, {"beta1": 2.0}),
    (FedOpt, {"beta2": -1.0}),
    (FedOpt, {"tau": -1.0}),
    (FedProx, {"mu": -1.0}),
    (FedProx, {"mu": nan}),
    (CFL, {"eps1": nan}),
    (CFL, {"eps1": -1.0}),
    (CFL, {"eps2": nan}),
    (CFL, {"gamma_max": nan}),
    (CFL, {"wait": -1}),
    (CFL, {"smallest": 1}),
    (CFL, {"linkage": "average"}),
    (PFedMe, {"lam": -1.0}),
    (PFedMe, {"eta": -1.0}),
    (PFedMe, {"beta": nan}),
    (PFedMe, {"local_rounds": 0}),
    (PFedMe, {"local_rounds": -1}),
    (PFedMe, {"steps": 0}),
    (PFedMe, {"lr": 0.0}),
    (PerFedAvg, {"beta": 0.0}),
    (PerFedAvg, {"alpha": 0.0}),
    (PerFedAvg, {"tau": 0}),
    (PerFedAvg, {"tau": -1}),
    (BriggsHC, {"warmup": -1}),
    (OCFL, {"p": nan}),
    (OCFL, {"p": 0.5}),
    (OCFL, {"at": -1}),
    (OCFL, {"at": 1.5}),
    (CFLGP, {"updates": -1}),
    (CFLGP, {"features": 0}),
    (CFLGP, {"criterion": "x"}),
    (AutoCFL, {"n_max": 0}),
    (AutoCFL, {"n_max": -1}),
    (AutoCFL, {"voting": 0}),
    (MTCFL, {"gamma_max": nan}),
    (MTCFL, {"gamma_max": -1.0}),
    (MTCFL, {"smallest": 1}),
    (FedSoft, {"smoother": 2.0}),
    (FedSoft, {"lam": -0.1}),
    (FedSoft, {"every": 0}),
    (FedCCFA, {"eps": nan}),
    (FedCCFA, {"eps": -1.0}),
    (FedCCFA, {"classifier_lr_scale": 0.0}),
    (FedCCFA, {"comparison_steps": -1}),
    (FedEM, {"lr_scale": 0.0}),
    (FedEM, {"temperature": nan}),
    (PowerOfChoice, {"candidates": 0}),
    (PowerOfChoice, {"candidates": -1}),
    (PowerOfChoice, {"on": "server"}),
    (ActiveFL, {"candidates": 0}),
    (ActiveFL, {"candidates": -1}),
    (ActiveFL, {"alpha1": 1.0}),
    (GCFL, {"delta_init": nan}),
    (GCFL, {"delta_init": -1.0}),
    (GCFL, {"latest": -1}),
    (GCFL, {"zeta": 0.0}),
    (GCFL, {"bins": 1}),
    (SCAFFOLD, {"server_lr": 0.0}),
    (SCAFFOLD, {"server_lr": nan}),
    (SCAFFOLD, {"aggregation": "mean"}),
    (Ditto, {"lam": -1.0}),
    (Ditto, {"lam": nan}),
    (Ditto, {"steps": 0}),
    (FedPer, {"personal": -1}),
    (FedPer, {"personal": 0.5}),
    (FedRep, {"personal": -1}),
    (FedRep, {"head_steps": 0}),
    (FedRep, {"aggregation": None}),
    (IFCA, {"batches": 0}),
    (WeCFL, {"settle": 1}),
    (FixedClusters, {"labels": [0, 0.5, 1]}),
    (FixedClusters, {"labels": [0, -1]}),
]
UNCLEAR = [
    (Ensemble, {"members": 2.5}),
    (Ensemble, {"members": 0}),
    (IFCA, {"clusters": 2.5}),
    (IFCA, {"clusters": nan}),
    (IFCA, {"clusters": "3"}),
    (FeSEM, {"clusters": 2.5}),
    (FeSEM, {"clusters": nan}),
    (WeCFL, {"clusters": 2.5}),
    (BriggsHC, {"threshold": nan}),
    (BriggsHC, {"threshold": -1.0}),
    (BriggsHC, {"threshold": inf}),
    (OCFL, {"window": 2.5}),
    (OCFL, {"clusters": 0}),
    (PowerOfChoice, {"candidates": 2.5}),
    (FedOpt, {"rule": "sgd"}),
    (WeCFL, {"representation": 3}),
]


def named(case):
    cls, wrong = case
    return f"{cls.__name__}-{wrong}"


@pytest.mark.parametrize("case", SILENT + UNCLEAR, ids=named)
def test_a_field_that_makes_no_sense_is_refused_by_name(case):
    cls, wrong = case
    name = next(iter(wrong)).removesuffix("s")  # labels are judged one by one
    options = {"labels": [0, 1]} if cls is FixedClusters else {}
    with pytest.raises(ValueError, match=rf"{cls.__name__}\({name}.*: need "):
        cls(**options | wrong)


def with_sampled():
    """Methods that sample clients; two are tested elsewhere."""
    elsewhere = (FedGWC, FedCVRBolt)
    return [
        cls
        for cls in ALL
        if cls not in elsewhere and "sampled" in {field.name for field in fields(cls)}
    ]


@pytest.mark.parametrize("cls", with_sampled(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("sampled", [nan, inf, "x", None, 0, 0.0, -1, 1.5, True])
def test_sampled_is_a_number_of_clients_or_a_fraction(cls, sampled):
    options = {"labels": [0, 1]} if cls is FixedClusters else {}
    with pytest.raises(ValueError, match="a number of clients .* or a fraction"):
        cls(sampled=sampled, **options)


def test_one_rule_says_how_many_are_sampled():
    """The methods that choose for themselves count as the federation's sample does."""
    fed = federation(sizes=(9,) * 7)
    for sampled in (1, 3, 7, 10, 0.1, 0.5, 1.0, np.int64(2)):
        assert num_sampled(sampled, fed.K) == len(fed.sample(sampled))
    for sampled in (0, -1, 1.5, 0.0, nan, "x", None):
        with pytest.raises(ValueError, match="a number of clients"):
            num_sampled(sampled, 6)


def test_none_is_not_zero_and_takes_the_federations_rate():
    """What is left out comes from the federation; what is given is heeded."""
    local = Local(lr=0.05, batch_size=5)
    for given, left_out in (
        (PFedMe(lr=0.05), PFedMe()),
        (PerFedAvg(beta=0.05, tau=2), PerFedAvg(tau=2)),
        (PowerOfChoice(2, candidates=4), PowerOfChoice(2)),
    ):
        outcomes = []
        for method in (given, left_out):
            fed = federation(local=local)
            outcomes.append(method.step(method.init(fed), fed, 0).theta)
        assert outcomes[0].equal(outcomes[1])


def test_random_clusters_refuse_sizes_and_seeds_that_make_no_sense():
    for wrong in ({"sizes": [3, 0]}, {"sizes": [2.5]}, {"sizes": [3], "seed": -1}):
        with pytest.raises(ValueError, match="need an integer"):
            FixedClusters.random(**wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedAvgM(beta=0.0),
        lambda: FedSoft(lam=0.0),
        lambda: CFL(eps1=0.0, wait=0, gamma_max=1.0),
        lambda: GCFL(delta_init=inf, latest=None, bins=None),
        lambda: OCFL(at=0, p=inf),
        lambda: CFLGP(updates=0),
        lambda: FedCCFA(eps=0.0),
        lambda: PFedMe(lam=0.0, eta=0.0, beta=0.0),
        lambda: BriggsHC(warmup=0, threshold=0),
        lambda: InTurn(sampled=np.int64(3)),
        lambda: LocalOnly(sampled=np.float64(0.5)),
        lambda: FedAvg(sampled=1),
    ],
)
def test_limits_that_make_sense_are_taken(make):
    make()
