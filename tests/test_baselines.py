"""Baselines of the papers' tables: budgets, and what each does that others do not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fednb import tables
from fednb.clustering import relabel
from fednb.federation import Federation
from fednb.methods import (
    ALL,
    CFL,
    CFLGP,
    GCFL,
    MTCFL,
    OCFL,
    AutoCFL,
    BriggsHC,
    Ditto,
    Ensemble,
    FedCCFA,
    FedCVRBolt,
    FedEM,
    FedGWC,
    FedRep,
    FeSEM,
    FixedClusters,
    InTurn,
    PerFedAvg,
    PFedMe,
    WeCFL,
)
from fednb.methods.mtcfl import smaller_part, split_cluster
from fednb.papers import gcfl
from fednb.partition import Partition
from fednb.training import Local

from .conftest import NETWORKS, blobs, federation, ragged
from .test_gcfl import two_groups
from .test_methods import go, served

# --- budgets -------------------------------------------------------------------------

CLIENTS = 8
SAMPLED = 4
ROUNDS = 5
TRAIN_MORE = {
    PFedMe: "a personal model is found by local_rounds trainings in a row",
    PerFedAvg: "two trainings for each of tau steps, and a last one for all clients",
    Ensemble: "every member is a FedAvg of its own",
    FedEM: "every component is trained by every sampled client",
    FedCCFA: "classifier and extractor are trained one after the other",
    CFLGP: "clients train the criterion model beside that of their cluster",
    WeCFL: "all clients take part in every round",
    FeSEM: "all clients take part in every round",
    CFL: "the absent members of a cluster are asked in the round of its split",
    BriggsHC: "all clients take part in the round of the split",
    AutoCFL: "all clients take part in the rounds of the vote",
    FedGWC: "clients are sampled in every cluster",
    FedCVRBolt: "all clients may take part in the warm-up",
    Ditto: "a personal model is trained beside the common one",
    FedRep: "head and representation are trained one after the other",
}


def with_few_sampled(cls):
    """The method with four clients in a round; if it splits, then early."""
    early = {
        GCFL: {"delta_init": 1e9, "probe": 5},
        OCFL: {"at": 2, "clusterer": "kmeans", "clusters": 2},
        FixedClusters: {"labels": [0, 1] * (CLIENTS // 2)},
        MTCFL: {"gamma_max": 0.5},
    }
    return cls(sampled=SAMPLED, **early.get(cls, {}))


@pytest.mark.parametrize(
    "cls", [cls for cls in ALL if cls not in TRAIN_MORE], ids=lambda cls: cls.__name__
)
def test_a_round_costs_as_many_updates_as_clients_are_sampled(cls):
    """What is not listed in TRAIN_MORE promises it, whatever happens to clusters."""
    fed, _ = two_groups(clients=CLIENTS)
    state = go(with_few_sampled(cls), fed, ROUNDS)
    assert fed.meter.updates == ROUNDS * SAMPLED
    if cls in (MTCFL, OCFL, GCFL):
        assert len(state.labels.unique()) > 1


@pytest.mark.parametrize(
    ("method", "updates"),
    [
        (PFedMe(SAMPLED, local_rounds=3), 3 * SAMPLED * ROUNDS),
        (PerFedAvg(SAMPLED, tau=2), (2 * 2 * SAMPLED + CLIENTS) * ROUNDS),
        (Ensemble(members=3, sampled=SAMPLED), 3 * SAMPLED * ROUNDS),
        (FedEM(components=3, sampled=SAMPLED), 3 * SAMPLED * ROUNDS),
        (FedCCFA(SAMPLED), 2 * SAMPLED * ROUNDS),
        (Ditto(SAMPLED), 2 * SAMPLED * ROUNDS),
        (FedRep(SAMPLED), 2 * SAMPLED * ROUNDS),
        (WeCFL(2), CLIENTS * ROUNDS),
        (FeSEM(2), CLIENTS * ROUNDS),
        (BriggsHC(warmup=1, sampled=SAMPLED), CLIENTS + SAMPLED * (ROUNDS - 1)),
        (AutoCFL(SAMPLED, voting=2), 2 * CLIENTS + SAMPLED * (ROUNDS - 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_methods_that_train_more_train_as_much_as_they_say(method, updates):
    assert type(method) in TRAIN_MORE
    fed, _ = two_groups(clients=CLIENTS)
    go(method, fed, ROUNDS)
    assert fed.meter.updates == updates


# --- CFL and MTCFL -------------------------------------------------------------------


def test_cfl_trains_the_absent_in_the_round_of_a_split_and_in_no_other():
    fed, _ = two_groups(clients=CLIENTS)
    method = CFL(SAMPLED, wait=2, eps1=5.0, eps2=0.0)
    state = method.init(fed)
    spent = []
    for t in range(4):
        before = fed.meter.updates
        clusters = len(state.theta)
        state = method.step(state, fed, t)
        spent.append((fed.meter.updates - before, len(state.theta) - clusters))
    assert spent[:3] == [(SAMPLED, 0), (SAMPLED, 0), (CLIENTS, 1)]


def test_mtcfl_finds_the_groups_although_half_of_the_clients_miss_the_split():
    fed, truth = two_groups(clients=CLIENTS)
    state = go(MTCFL(SAMPLED), fed, 12)
    assert not state.late.any()
    assert torch.equal(relabel(state.labels), torch.from_numpy(truth))


def test_mtcfl_leaves_the_absent_with_the_larger_part_until_they_are_sampled():
    fed, _ = two_groups(clients=CLIENTS)
    first = MTCFL().init(fed)
    members = torch.tensor([1, 3, 4])
    delta = torch.tensor([[3.0], [-1.0], [-1.0]])
    part = torch.tensor([0, 1, 1])
    assert smaller_part(part, delta) == 0  # client 1 is alone
    state = split_cluster(first, 0, members, part == 0)
    assert state.labels.tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert state.late.tolist() == [k not in (1, 3, 4) for k in range(CLIENTS)]
    assert state.parent.tolist() == [0, 0]
    assert smaller_part(part[:2], delta[:2]) == 1  # a tie: the shorter update leaves
    assert smaller_part(part[:2], delta[:2].flip(0)) == 0


def test_a_late_client_of_mtcfl_joins_the_part_that_fits_it():
    fed, truth = two_groups(clients=CLIENTS)
    method = MTCFL(gamma_max=1.0)
    groups = torch.from_numpy(truth)
    rows = go(FixedClusters(truth), two_groups(clients=CLIENTS)[0], 3).theta
    state = method.init(fed)._replace(
        theta=rows,
        parent=torch.tensor([0, 0]),
        late=torch.ones(CLIENTS, dtype=torch.bool),
    )
    after = method.step(state, fed, 3)  # all stand in cluster 0, and all are late
    assert torch.equal(after.labels, groups) and not after.late.any()
    on_time = state._replace(late=torch.zeros_like(state.late))
    assert method.step(on_time, fed, 3).labels.eq(0).all()


# --- InTurn --------------------------------------------------------------------------


def cohorts(method, fed, rounds):
    """Who trained, round by round."""
    state = method.init(fed)
    out = []
    for t in range(rounds):
        before = fed.snapshot()["visits"]
        state = method.step(state, fed, t)
        out.append(frozenset(np.flatnonzero(fed.snapshot()["visits"] > before)))
    return out


def test_clients_in_turn_meet_others_in_every_cycle():
    fed = federation(sizes=(10,) * 12)
    rounds = cohorts(InTurn(3), fed, 12)  # three cycles of four rounds
    cycles = [rounds[:4], rounds[4:8], rounds[8:]]
    for cycle in cycles:
        assert frozenset().union(*cycle) == set(range(12))  # everybody, once
    assert set(cycles[0]) != set(cycles[1]) != set(cycles[2])


def test_in_turn_nobody_is_two_turns_ahead():
    """Five of twelve clients in a round: cycles do not end with a round."""
    fed = federation(sizes=(10,) * 12)
    method = InTurn(5)
    state = method.init(fed)
    for t in range(12):
        state = method.step(state, fed, t)
        assert int(state.turns.max() - state.turns.min()) <= 1
        assert int(state.turns.sum()) == 5 * (t + 1)


# --- the order of clients ------------------------------------------------------------


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize(
    "method",
    [
        CFLGP(3),
        CFLGP(3, sampled=7),
        CFLGP.as_released(clusters=4),
        AutoCFL(),
        MTCFL(4, gamma_max=0.3),
    ],
    ids=str,
)
def test_permuted_clients_give_permuted_models(method, case):
    """Among many clients k-means has several optima; the order must not choose, nor
    settle which part of a cluster is the larger.
    """
    rng = np.random.default_rng(case)
    clients = 12
    perm = rng.permutation(clients)
    sizes = rng.integers(6, 20, clients).tolist()
    shape, model = NETWORKS["mlp"]
    data = blobs(samples=sum(sizes) + 4 * clients, shape=shape)
    parts = ragged(sizes)
    moved = Partition([parts.train[k] for k in perm], [parts.test[k] for k in perm])
    options = {"local": Local(lr=0.05, batch_size=5), "dtype": torch.float64}
    here = served(go(method, Federation(data, parts, model, **options), 3))
    there = served(go(method, Federation(data, moved, model, ids=perm, **options), 3))
    torch.testing.assert_close(there, here[perm], rtol=0, atol=1e-9)


# --- the search for settings ---------------------------------------------------------


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_all_tuned_baselines_get_as_many_values_on_a_seed_of_their_own(profile):
    values = gcfl.tasks.candidates(gcfl.tasks.SCALES[profile], sampled=1.0)
    assert {len(of_one) for of_one in values.values()} == {3}
    assert set(values) == set(gcfl.tasks.CHOSEN)
    tasks = gcfl.tasks.tuning(profile)
    searched = {task.seed for task in tasks}
    used = {
        task.seed
        for name, make in gcfl.tasks.TABLES.items()
        if name != "tuning"
        for task in make(profile)
    }
    assert searched == {gcfl.tasks.SEARCH_SEED} and not searched & used


def test_the_tables_use_what_was_chosen():
    scale = gcfl.tasks.SCALES["laptop"]
    rows = gcfl.tasks.baselines(scale, sampled=0.25)
    for name, values in gcfl.tasks.candidates(scale, sampled=0.25).items():
        assert rows[name] == values[gcfl.tasks.CHOSEN[name]]


def test_the_best_value_has_the_highest_mean_accuracy():
    frame = pd.DataFrame(
        [
            ("CFL", 0.1, 0.5),
            ("CFL", 0.1, 0.3),
            ("CFL", 0.6, 0.6),
            ("CFL", 0.6, 0.4),
            ("FedEM", 3.0, 0.1),
        ],
        columns=["row", "value", "accuracy"],
    )
    assert gcfl.tasks.best_values(frame) == {"CFL": 0.6, "FedEM": 3.0}


TUNING = Path(__file__).parents[1] / "book" / "results" / "gcfl" / "tuning.json"


@pytest.mark.skipif(not TUNING.exists(), reason="the search was not run yet")
def test_the_chosen_values_are_those_that_the_search_found():
    frame = tables.frame(gcfl.tasks.tuning("laptop"), TUNING)
    assert gcfl.tasks.best_values(frame) == gcfl.tasks.CHOSEN
