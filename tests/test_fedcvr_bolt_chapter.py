"""FedCVR-Bolt's tables as tasks, and what its chapter computes live."""

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
import torch

from fednb import data, models, reference, store
from fednb.federation import Federation
from fednb.identity import describe
from fednb.methods import FedAvg, FedCVRBolt, InTurn
from fednb.methods.choice import shuffle_members
from fednb.papers import fedcvr_bolt
from fednb.partition import Partition
from fednb.training import Local

from .conftest import federation
from .test_methods import SIZES, go

SIDES = np.repeat([0, 1, 2], [5, 3, 2])


def small() -> Federation:
    """Twelve clients of Synthetic(1, 1), all of the same size."""
    name = "synthetic(1.0, 1.0, clients=12, seed=0)"
    return Federation(
        *data.generate(name),
        partial(models.linear, 60, 10),
        local=Local(0.02, steps=3),
        dtype=torch.float64,
    )


# --- tasks ----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
@pytest.mark.parametrize("table", fedcvr_bolt.tasks.TABLES)
def test_tasks_are_well_formed(profile, table):
    tasks = fedcvr_bolt.tasks.TABLES[table](profile)
    if table.endswith("_paper") and profile == "laptop":
        assert tasks == []
        return
    assert len({task.key for task in tasks}) == len(tasks) and {
        task.profile for task in tasks
    } == {profile}
    assert len(
        {(task.dataset, task.seed, *task.tags.values()) for task in tasks}
    ) == len(tasks)
    least = (
        1
        if profile == "smoke"
        else {
            "table1": 20,
            "synthetic": 10,
            "table2": 3,
            "mnist": 10,
            "cifar10": 3,
        }[table.split("_")[0]]
    )
    assert len({task.seed for task in tasks}) >= least
    assert [task.seed for task in tasks] == sorted(
        task.seed for task in tasks
    )  # a sweep that is cut has whole seeds


def test_the_paper_profile_is_the_papers():
    for task in fedcvr_bolt.tasks.TABLES["table2"]("paper"):
        whole = task.tags["row"] in (
            "FeSEM",
            "LocalOnly",
        )  # all clients train: a tenth of the rounds
        assert task.rounds == (10 if whole else 100) and "clients=100" in describe(
            task.partition
        )
        assert (task.local.lr, task.local.epochs, task.local.steps) == (0.01, 10, None)
    bolt = next(
        t.method
        for t in fedcvr_bolt.tasks.TABLES["table1_d1_noniid"]("paper")
        if t.tags["row"] == "FedCVR-Bolt as printed"
    )
    assert (bolt.sampled, bolt.warmup, bolt.beta, bolt.rate) == (10, 30, 1.0, "round")


def test_presets_go_by_the_data_set():
    """What paper and scripts say of each data set, in the tasks that stand for it."""
    found = {}
    for table in ("table2", "synthetic_rivals", "table1_d1_noniid"):
        for task in fedcvr_bolt.tasks.TABLES[table]("laptop"):
            if task.seed == 0:
                dataset = task.dataset.split("(")[0]
                found[dataset, task.tags["row"]] = task.method
    for dataset, rate in {
        "mnist": "restart",
        "regression": "restart",
        "cifar10": 0.01,
        "cifar100": 0.01,
        "synthetic": 0.01,
    }.items():
        released = found[dataset, "FedCVR-Bolt as released"]
        printed = found[dataset, "FedCVR-Bolt as printed"]
        assert released.rate == rate and not released.warmup_estimates
        assert printed.rate == "round" and printed.warmup_estimates
        assert (printed.most is None) == (not dataset.startswith("cifar"))
        pick = found[dataset, "as released, uniform pick"]
        assert pick == replace(released, beta=0.0)
    everything = found["synthetic", "FedCVR-Bolt as released"]
    assert everything.representation == "all" and everything.most is None
    for dataset in ("mnist", "cifar10", "synthetic"):
        kernel = found[dataset, "as released, cosine"]
        released = found[dataset, "FedCVR-Bolt as released"]
        assert kernel == replace(released, coalitions="cosine")


def test_the_network_of_mnist_is_the_released_one():
    for profile in ("laptop", "paper"):
        net = fedcvr_bolt.tasks.SCALES[profile].models["mnist"]()
        shapes = [tuple(p.shape) for p in net.parameters() if p.dim() == 2]
        assert shapes == [(200, 784), (10, 200)]


def test_every_partition_of_the_paper_profile_can_be_dealt():
    y = np.arange(60_000) % 10
    tasks = {
        describe(t.partition): t
        for t in fedcvr_bolt.tasks.TABLES["table2"]("paper")
        if t.seed == 0
    }
    assert len(tasks) == 2
    for task in tasks.values():
        part = task.partition(y, seed=0)
        assert len(part.train) == 100 and min(map(len, part.test)) > 0


def test_all_rows_of_a_cell_train_equally_often():
    tasks = [
        t
        for t in fedcvr_bolt.tasks.TABLES["table2"]("laptop")
        if t.seed == 0 and t.dataset == "mnist"
    ]
    scale = fedcvr_bolt.tasks.SCALES["laptop"]
    for task in tasks:
        per_round = (
            scale.clients
            if task.tags["row"] in ("FeSEM", "LocalOnly")
            else task.method.sampled
        )
        assert task.rounds * per_round == scale.rounds * scale.P, task.tags


def test_smoke_runs_give_records(tmp_path):
    from fednb import tables

    for name in ("table1_d2_noniid", "synthetic_rivals", "table2"):
        tasks = fedcvr_bolt.tasks.TABLES[name]("smoke")[:8:4]
        for task in tasks:
            store.append(tmp_path / "x.json", task.record())
        frame = tables.frame(tasks, tmp_path / "x.json", last=5)
        value = "mse" if name.startswith("table1") else "accuracy"
        assert frame[value].gt(0).all() and frame["evenness"].between(0, 1).all()


def test_the_papers_own_scale_has_nothing_reduced_but_seeds_and_rows():
    whole = {t.tags["row"]: t for t in fedcvr_bolt.tasks.TABLES["table2"]("paper")}
    for name, rows, seeds in (("mnist", 60_000, 10), ("cifar10", 50_000, 3)):
        tasks = fedcvr_bolt.tasks.TABLES[f"{name}_paper"]("paper")
        assert len(tasks) == 7 * seeds
        for task in tasks:
            assert (task.dataset, task.train_rows) == (name, rows)
            assert (task.rounds, task.every, task.profile) == (100, 1, "paper")
            assert task.local == Local(0.01, epochs=10, batch_size=32)
            assert describe(task.partition) == describe(whole["FedAvg"].partition)
            assert task.method.sampled == 10
            assert getattr(task.method, "warmup", 30) == 30


def test_a_record_tells_who_trained_and_who_stood_together():
    tasks = fedcvr_bolt.tasks.TABLES["mnist_paper"]("smoke")
    chosen = {task.tags["row"]: task for task in tasks}
    assert len(chosen) == len(tasks) == 7
    task = chosen["FedCVR-Bolt as released"]
    record = task.record()["metrics"]
    curves = record["curves"]
    kinds = task.federation().truth.counts.argmax(1)
    assert fedcvr_bolt.tasks.numbers(record["final"]["kinds"]).tolist() == list(kinds)
    past = fedcvr_bolt.theory.follow(task.method, task.federation(), task.rounds)
    who = fedcvr_bolt.tasks.trained(curves["odd"], 12)  # (rounds, K)
    assert [np.flatnonzero(row).tolist() for row in who] == [
        now.picked.tolist() for now in past
    ]
    assert curves["round"] == [1, 2, 3, 4, 5, 6]
    assert [len(text) for text in curves["coalitions"]] == [0, 0, 0, 0, 12, 0]
    assert curves["coalitions"][4] == "".join(map(str, past[4].coalitions.tolist()))
    assert set(curves) >= {"accuracy", "balanced_accuracy", "macro_f1", "loss"}
    plain = chosen["FedAvg"].record()["metrics"]["curves"]
    assert set(plain["coalitions"]) == {""} and len(set(plain["odd"])) > 1


def test_printed_numbers_are_read_with_their_cells():
    one, two, four = (fedcvr_bolt.outcomes.printed(table) for table in "124")
    cell = (
        one[(one["D"] == 1) & (one["heterogeneity"] == "non-IID")]
        .set_index("row")
        .loc["FedAvg"]
    )
    assert (cell["mse"], cell["mse_std"]) == (57.1336, 24.1335)
    assert len(two) == 19 and two["accuracy"].between(0, 1).all() and "mse" not in two
    best = four.loc[four.groupby("dataset")["accuracy"].idxmax(), "row"]
    assert set(best) == {"FedCVR-Bolt as released"} and len(four) == 8
    rows = {
        t.tags["row"]
        for name in ("table1_d1_noniid", "table2")
        for t in fedcvr_bolt.tasks.TABLES[name]("laptop")
    }
    assert {*one["row"], *two["row"], *four["row"]} <= rows


# --- controls -------------------------------------------------------------------------


def test_in_turn_everybody_is_asked_before_anybody_twice():
    fed = federation(sizes=SIZES)
    go(InTurn(2), fed, 3)
    assert fed.snapshot()["visits"].tolist() == [1] * 6
    go(InTurn(6), whole := federation(sizes=SIZES), 2)
    assert whole.snapshot()["visits"].tolist() == [2] * 6


def test_in_turn_with_seats_for_all_is_fedavg():
    a, b = (go(m, federation(sizes=SIZES), 3) for m in (InTurn(1.0), FedAvg()))
    assert torch.equal(a.theta, b.theta)


def test_shuffled_coalitions_keep_their_sizes_and_lose_their_members():
    plain = FedCVRBolt.as_released(sampled=4, warmup=3)
    mixed = FedCVRBolt.as_released(sampled=4, warmup=3, shuffled=True)
    here, there = (
        fedcvr_bolt.theory.follow(m, small(), 4)[3].coalitions for m in (plain, mixed)
    )
    assert sorted(here.bincount().tolist()) == sorted(there.bincount().tolist())
    assert here.tolist() != there.tolist()


class Dice:
    """A federation that deals tickets from a list."""

    def __init__(self, *rolls):
        self.rolls = [torch.tensor(roll) for roll in rolls]

    def tickets(self):
        return self.rolls.pop(0)


def test_one_of_each_shuffled_coalition_is_a_lot():
    """All shuffles of four clients, three of them in one coalition: with a uniform pick
    every two clients are drawn equally often. With unequal odds they are not.
    """
    coalitions = torch.tensor([0, 0, 0, 1])
    lots = Counter()
    tilted = Counter()
    for rolls in product(permutations(range(4)), repeat=2):
        shuffled = shuffle_members(Dice(*rolls), coalitions)
        assert shuffled.bincount().tolist() == [3, 1]
        members = [np.flatnonzero(shuffled == p).tolist() for p in range(2)]
        for pair in product(*members):
            lots[frozenset(pair)] += Fraction(1, 3)
            odds = [k + 1 for k in members[0]]
            tilted[frozenset(pair)] += Fraction(pair[0] + 1, sum(odds))
    assert len(lots) == 6 and set(lots.values()) == {Fraction(24**2, 6)}
    assert len(set(tilted.values())) > 1


def test_given_coalitions_are_used_and_kept():
    given = (0, 0, 1, 1, 0, 2, 2, 2, 1, 0, 1, 2)
    past = fedcvr_bolt.theory.follow(FedCVRBolt(3, 1, coalitions=given), small(), 4)
    assert all(now.coalitions.tolist() == list(given) for now in past[1:])
    assert all(sorted(given[k] for k in now.picked) == [0, 1, 2] for now in past[1:])
    with pytest.raises(ValueError, match="variance="):
        FedCVRBolt(variance=0.0)


def test_the_initial_covariance_scales_the_first_score():
    one, hundredth, identity = (
        fedcvr_bolt.theory.follow(FedCVRBolt(3, 0, **change), small(), 1)[0].value
        for change in ({}, {"variance": 0.01}, {"initial": 0.0})
    )
    torch.testing.assert_close(hundredth, 0.01 * one)
    torch.testing.assert_close(one, torch.full_like(one, 300.0))  # all ones: Σ_d 1² / 1
    torch.testing.assert_close(identity, one / 12**2)  # I: Σ_d α_k²


# --- a run, watched -------------------------------------------------------------------


def test_following_a_run_changes_nothing_and_sees_who_was_picked():
    method, fed = FedCVRBolt.as_released(sampled=3, warmup=2), small()
    past = fedcvr_bolt.theory.follow(method, fed, 6)
    state = go(method, small(), 5)
    assert torch.equal(past[5].theta, state.theta[0])
    last = np.zeros(12, int)
    for t, now in enumerate(past):
        assert len(now.picked) == 3 and np.array_equal(now.waited, t - last)
        last[now.picked] = t + 1
    C = int(past[4].coalitions.max()) + 1
    assert float(past[4].pi.sum()) == pytest.approx(C)


def test_other_methods_can_be_followed_too():
    past = fedcvr_bolt.theory.follow(InTurn(3), small(), 8)
    found = fedcvr_bolt.theory.habits(past[4:])
    assert found["evenness"] == found["covered"] == found["free"] == 1 and found[
        "picked had waited"
    ] == pytest.approx(4 - 1)


def test_habits_by_hand():
    half = torch.full((4,), 0.5)
    rounds = [
        fedcvr_bolt.theory.WatchedRound(
            None, None, torch.tensor([0, 0, 1, 1]), None, pi, np.array(p), np.array(w)
        )
        for pi, p, w in (
            (half, [0, 2], [1, 1, 2, 2]),
            (torch.tensor([1.0, 0, 0.5, 0.5]), [0, 3], [1, 1, 2, 2]),
        )
    ]
    found = fedcvr_bolt.theory.habits(rounds)
    assert found["picked had waited"] == found["all had waited"] == 1.5
    assert found["evenness"] == pytest.approx(16 / (4 * (4 + 0 + 1 + 1))) and found[
        "by date"
    ] == pytest.approx(1)
    assert found["covered"] == 3 / 4
    assert found["free"] == pytest.approx(3 / 4)  # one of four draws is settled


def test_alignment_is_one_without_selection_and_by_hand_with_it():
    everybody = FedCVRBolt(1, 0, beta=0.0, coalitions=(0,) * 12)
    past = fedcvr_bolt.theory.follow(everybody, small(), 2)
    found = fedcvr_bolt.theory.looks(everybody, past, small())
    assert [look.alignment for look in found] == pytest.approx([1.0, 1.0])
    assert [look.bias for look in found] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert [look.noise for look in found] == pytest.approx([1.0, 1.0])
    assert [look.noise_of_uniform_pick for look in found] == pytest.approx([1.0, 1.0])
    assert [look.error for look in found] == pytest.approx([1.0, 1.0])
    method = FedCVRBolt.as_released(
        sampled=2, warmup=0, coalitions=(0,) * 10 + (1,) * 2, beta=0.0
    )
    past, fed = fedcvr_bolt.theory.follow(method, small(), 1), small()
    w = past[0].theta
    g = torch.stack(
        [
            w
            - fed.train(w, torch.tensor([k]), steps=1, batch_size=None, lr=1.0).theta[0]
            for k in range(12)
        ]
    )
    G, true = (g[:10].mean(0) + g[10:].mean(0)) / 2, g.mean(0)
    expected = float(G @ true / (true @ true))
    (found,) = fedcvr_bolt.theory.looks(method, past, small())
    assert found.alignment == pytest.approx(expected)
    off = G - true
    assert found.bias == pytest.approx(float(off @ off / (true @ true)))
    lots = fedcvr_bolt.theory.noise_of_lots(g.numpy(), 2)
    assert found.error == pytest.approx(found.noise + float(off @ off) / lots)
    loss = float(small().loss(w).mean())
    assert found.loss == pytest.approx(loss)


# --- theory ---------------------------------------------------------------------------


def test_the_lemmas_agree_with_geometry_and_a_wrong_one_does_not(monkeypatch):
    found = fedcvr_bolt.theory.linear_prediction(matrices=3)
    assert found == {"sets": (75, 75), "pairs": (60, 60)}
    plain = reference.projection

    def wrong(C, alpha, A):
        return 1.01 * plain(C, alpha, A)

    monkeypatch.setattr(reference, "projection", wrong)
    assert fedcvr_bolt.theory.linear_prediction(matrices=3)["sets"].right == 0


def test_without_bias_the_gradient_ends_where_the_proposition_says(monkeypatch):
    rates = (0.5, 0.1)
    assert fedcvr_bolt.theory.neighbourhood(rates) == (2, 2)
    settle = fedcvr_bolt.theory.settle

    def biased(clients, sides, weights, *rest):
        return settle(clients, sides, np.ones(len(weights)) / len(weights), *rest)

    monkeypatch.setattr(fedcvr_bolt.theory, "settle", biased)
    assert fedcvr_bolt.theory.neighbourhood(rates).right == 0


def test_five_ways_to_choose_are_ordered():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(6, 9))
    C, alpha, sides = half @ half.T, np.ones(6) / 6, np.array([0, 0, 1, 1, 2, 2])
    found = fedcvr_bolt.theory.reductions(C, alpha, sides)
    total = alpha @ C @ alpha
    assert found["best"] == pytest.approx(reference.best_subset(C, alpha, 3)[1] / total)
    assert found["Eq. 7"] == pytest.approx(
        reference.one_per_coalition(C, alpha, sides.tolist())[1] / total
    )
    assert (
        1
        >= found["best"]
        >= max(
            found["greedy"],
            found["Eq. 7"],
            found["one each, by lot"],
            found["all by lot"],
        )
    )


def test_a_policy_by_enumeration():
    rng = np.random.default_rng(0)
    c, pi, w = rng.normal(size=(10, 2)), np.empty(10), np.array([0.5, 0.3, 0.2])
    groups = [np.flatnonzero(p == SIDES) for p in range(3)]
    for own in groups:
        pi[own] = rng.dirichlet(np.ones(len(own)))
    first, second = np.zeros(2), 0.0
    for drawn in product(*groups):
        p, x = pi[list(drawn)].prod(), w @ c[list(drawn)]
        first, second = first + p * x, second + p * float(x @ x)
    mean, variance = fedcvr_bolt.theory.policy(c, SIDES, pi, w)
    assert mean == pytest.approx(first) and variance == pytest.approx(
        second - first @ first
    )


@pytest.mark.parametrize("own", [True, False])
def test_the_neighbourhood_is_noise_and_bias(own):
    """θ ← (1 - η) θ + η c_P settles at ‖bias‖² + η σ² / (2 - η): only without bias does
    a small η end near zero.
    """
    c = np.random.default_rng(0).normal(size=(10, 2)) + 3 * SIDES[:, None]
    pi, w = (
        1 / np.bincount(SIDES)[SIDES],
        np.ones(3) / 3 if own else np.bincount(SIDES) / 10,
    )
    mean, variance = fedcvr_bolt.theory.policy(c, SIDES, pi, w)
    bias = float(np.square(mean - c.mean(0)).sum())
    path = fedcvr_bolt.theory.settle(fedcvr_bolt.theory.towards(c), SIDES, w, 0.2, 6000)
    assert path[200:].mean() == pytest.approx(bias + 0.2 * variance / 1.8, rel=0.1)
    assert (bias > 0.1) == own and (own or bias < 1e-12)


def test_seeds_needed():
    assert (
        fedcvr_bolt.theory.seeds_needed(1.0, 1.0, 1.0) == 16
    )  # the rule of thumb: 16 σ² / δ²
    assert fedcvr_bolt.theory.seeds_needed(0.1, 1.0, 1.0) == pytest.approx(1570, abs=1)
    rng, n, found = (
        np.random.default_rng(0),
        fedcvr_bolt.theory.seeds_needed(0.5, 1.0, 1.0),
        0,
    )
    for _ in range(400):
        a, b = rng.normal(size=n), rng.normal(0.5, size=n)
        found += (b.mean() - a.mean()) / np.sqrt(
            (a.var(ddof=1) + b.var(ddof=1)) / n
        ) > 1.98
    assert 0.72 < found / 400 < 0.88


def test_pooled_is_the_least_squares_fit():
    x = np.array([[1.0], [2.0], [3.0], [1.0], [1.0]], dtype=np.float32)
    y = np.array(
        [2.0, 4.0, 6.0, 3.0, 2.0], dtype=np.float32
    )  # the slope is 2; tests err by 1 and 0
    dataset = data.Dataset("line", x, y, 5, 0, "", "")
    parts = Partition(
        [np.array([0, 1]), np.array([2])], [np.array([3]), np.array([4])], None
    )
    assert fedcvr_bolt.theory.pooled(dataset, parts) == pytest.approx(0.5)


def test_one_parameter_of_length_one_is_a_sign():
    """Line 3 leaves nothing of the regression through the origin: clients of one sign
    are one coalition.
    """
    slopes = torch.tensor([[-4.0], [-3.0], [-0.1], [2.0]])
    assert FedCVRBolt().form(slopes, 3, 0).tolist() == [0, 0, 0, 1]
    assert len(FedCVRBolt(coalitions="kmeans").form(slopes, 3, 0).unique()) == 3


# --- outcomes, figures and claims -----------------------------------------------------


def test_a_record_tells_as_much_of_dates_and_kinds_as_a_watched_run():
    """The smoke run has coalitions in round 5; its dates are those that follow sees."""
    tasks = fedcvr_bolt.tasks.TABLES["mnist_paper"]("smoke")
    task = next(t for t in tasks if t.tags["row"] == "FedCVR-Bolt as released")
    record = task.record()["metrics"]
    kinds = fedcvr_bolt.tasks.numbers(record["final"]["kinds"])
    kept = fedcvr_bolt.outcomes.grouped_record(record["curves"], kinds, warmup=2)
    past = fedcvr_bolt.theory.follow(task.method, task.federation(), task.rounds)
    seen = fedcvr_bolt.figures.grouped(past, kinds, warmup=2)
    assert kept.rounds == [5] and seen.rounds == [3, 4, 5, 6]
    assert np.array_equal(kept.coalitions[0], seen.coalitions[2])
    assert np.array_equal(kept.dates[0], seen.dates[2])
    assert kept.agreement()[0][0] == seen.agreement()[0][2]
    with_kinds = fedcvr_bolt.theory.agreement(past[2:], kinds)
    assert seen.agreement()[1] == pytest.approx(with_kinds)


def test_the_area_under_an_irregular_curve():
    course = pd.DataFrame({"round": [5, 10, 20, 21], "x": [9.0, 1.0, 3.0, 5.0]})
    whole = fedcvr_bolt.outcomes.area(course, "x", 10)
    assert whole == pytest.approx((10 * 2 + 1 * 4) / 11)
    assert np.isnan(fedcvr_bolt.outcomes.area(course, "x", 21))


def test_per_cent_less_is_of_the_geometric_mean():
    runs = pd.DataFrame(
        {
            "row": ["a", "a", "b", "b"],
            "seed": [0, 1, 0, 1],
            "log_mse": np.log([0.5, 0.5, 1.0, 2.0]),
        }
    )
    found = fedcvr_bolt.claims.per_cent_less(runs, "a", "b", "log_mse")
    assert found.mean == pytest.approx(100 * (1 - 0.5 / np.sqrt(2)))
    assert found.low < found.mean < found.high < 100


def test_printed_leads_are_those_of_the_paper():
    lead = fedcvr_bolt.claims.printed_lead
    assert lead("FedAvg", "mnist") == pytest.approx(90.23 - 86.30)
    assert lead("as released, cosine", "mnist") == pytest.approx(90.23 - 88.72)
    assert lead("FeSEM", "cifar10") == pytest.approx(57.06 - 44.66)
    assert lead("FeSEM", "mnist") is None  # not in our copy
    gain = fedcvr_bolt.claims.printed_gain
    assert gain(1, "FedAvg") == 3.0  # the text's; the table's is larger
    assert gain(1, "Active FL") == pytest.approx(100 * (1 - 54.7102 / 56.8328))


def test_a_printed_gain_counts_if_one_fit_to_all_data_has_it():
    runs = pd.DataFrame(
        {
            "row": ["FedAvg"] * 3 + [fedcvr_bolt.outcomes.ONE_FIT] * 3,
            "seed": [0, 1, 2] * 2,
            "log_mse": np.log([1.0, 2.0, 3.0, 0.98, 1.96, 2.94]),
        }
    )
    assert fedcvr_bolt.claims.reachable(runs, "FedAvg", 1.5) == 1.5
    assert fedcvr_bolt.claims.reachable(runs, "FedAvg", 3.0) is None


def test_runs_that_have_hardly_learned_judge_nothing():
    runs = pd.DataFrame({"dataset": "mnist", "row": "FedAvg", "accuracy": [0.5, 0.7]})
    reason = fedcvr_bolt.claims.too_young(runs, "laptop scale")
    assert "60% at laptop scale and 86% in the paper" in reason
    assert not fedcvr_bolt.claims.too_young(runs.assign(accuracy=0.8), "laptop scale")
    young = own_runs("mnist")
    young["accuracy"] -= 0.4
    claims = fedcvr_bolt.claims.more_accurate(
        fedcvr_bolt.outcomes.images(), {"mnist": young}
    )
    first = claims[0]
    assert first.statement == "MNIST: more accurate than the three policies"
    assert "at the paper's scale" in first.reason


def test_a_rival_that_errs_much_less_than_in_the_paper_has_no_printed_lead():
    """The paper's Power-of-Choice errs on 19 % of MNIST; four fifths are 15.2 %."""
    outgrown = fedcvr_bolt.claims.outgrown
    row = "Power-of-Choice"
    runs = pd.DataFrame({"dataset": "mnist", "row": row, "accuracy": [0.84, 0.86]})
    assert outgrown(runs, row, "mnist")
    assert not outgrown(runs.assign(accuracy=0.84), row, "mnist")
    assert not outgrown(runs.assign(row="FedProx"), "FedProx", "mnist")  # no cell
    laptop = fedcvr_bolt.claims.more_accurate(fedcvr_bolt.outcomes.images(), {})
    judged = {claim.statement: claim for claim in laptop}
    assert judged[f"MNIST: more accurate than {row}"].printed is None
    assert judged["MNIST: more accurate than FedAvg"].printed is not None
    assert judged["MNIST: more accurate than FeSEM"].verdict == "not testable"


def test_three_intervals_together_are_as_wide_as_bonferroni_asks():
    from scipy.stats import t

    alone = fedcvr_bolt.claims.Interval(1.0, 1.0 - t.ppf(0.975, 2), 5.0)
    mean, low, _ = fedcvr_bolt.claims.jointly(alone, 3, runs=3)
    assert mean == 1.0 and low == pytest.approx(1.0 - t.ppf(1 - 0.05 / 6, 2))
    same = fedcvr_bolt.claims.jointly(alone, 1, runs=3)
    assert same == pytest.approx(alone)
    runs = own_runs("mnist").query("seed < 5")
    one = fedcvr_bolt.claims.lead(runs, fedcvr_bolt.outcomes.BOLT, "FedAvg")
    three = fedcvr_bolt.claims.lead(
        runs, fedcvr_bolt.outcomes.BOLT, "FedAvg", together=3
    )
    wider = t.ppf(1 - 0.05 / 6, 4) / t.ppf(0.975, 4)
    assert three.mean - three.low == pytest.approx(wider * (one.mean - one.low))


def test_only_leads_with_two_groups_are_asked_for_their_runs():
    needed = fedcvr_bolt.outcomes.runs_needed()
    assert set(needed["heterogeneity"]) == {"non-IID"} and len(needed) == 5
    lead = 100 * (1 - 54.7102 / 57.1336)  # the text says 3 %
    first = needed.query("D == 1 and row == 'FedAvg'").iloc[0]
    assert first["lead"] == pytest.approx(lead)


def look(alignment: float, loss: float) -> fedcvr_bolt.theory.Look:
    return fedcvr_bolt.theory.Look(alignment, 1.0, 1.0, 0.0, 1.0, loss)


def test_rounds_uphill_and_rounds_with_a_higher_loss_are_counted():
    run = [look(1.0, 3.0), look(-2.0, 4.0), look(0.5, 4.0), look(0.1, 2.0)]
    assert fedcvr_bolt.claims.uphill(run) == 1 / 4
    assert fedcvr_bolt.claims.rises([now.loss for now in run]) == 1 / 3
    words = fedcvr_bolt.claims.how_often("uphill", [0.5, 0.15])
    assert words == ", uphill in 15% to 50% of a run's rounds"


def test_losses_of_any_method_are_those_of_its_looks():
    run = "table1_d1_noniid", fedcvr_bolt.outcomes.BOLT, 0
    looks = fedcvr_bolt.theory.watched(*run)
    losses = fedcvr_bolt.theory.global_losses(*run)
    assert len(losses) == 60
    assert losses[-len(looks) :] == pytest.approx([now.loss for now in looks])


def test_clients_never_seen_can_be_left_out_of_the_agreement():
    """Seen clients stand by their kind, the two never seen are a third coalition."""
    run = fedcvr_bolt.outcomes.Grouped(
        rounds=[3],
        coalitions=[np.array([0, 0, 1, 1, 2, 2])],
        dates=[np.array([1, 2, 1, 2, 0, 0])],
        kinds=np.array([0, 0, 1, 1, 0, 1]),
    )
    assert run.never_seen() == 1 / 3
    with_dates, with_kinds = run.agreement(seen_only=True)
    assert with_kinds == pytest.approx([1.0]) and with_dates[0] < 0.1
    assert run.agreement()[0][0] > with_dates[0]


def test_a_warm_up_of_lots_misses_some():
    missed = fedcvr_bolt.figures.expected_never_seen()
    assert [*missed.values()] == pytest.approx([0.9**30, 0.9**20, 0.9**15])


def test_a_row_beyond_the_axis_has_an_arrow_and_its_number():
    part = pd.DataFrame(
        [("a", 1.0, 0.5, 1.5), ("b", 14.2, 4.6, 24.6), ("c", -30.0, -31.0, -29.0)],
        columns=["row", "mean", "low", "high"],
    )
    fig = fedcvr_bolt.figures.forest({"cell": part}, "%", limits=(-5, 5))
    (ax,) = fig.axes
    assert [text.get_text() for text in ax.texts] == ["+14 ▶", "◀ -30"]
    assert ax.get_xlim() == (-5, 5)


def own_runs(dataset: str) -> pd.DataFrame:
    """Seven rows, ten seeds, a lead of two points for each row over the next."""
    rows = [*fedcvr_bolt.outcomes.RIVALS, "FedAvg in turn", fedcvr_bolt.outcomes.PICK]
    rows = [fedcvr_bolt.outcomes.CORRECTED, fedcvr_bolt.outcomes.BOLT, *rows]
    lines = []
    for place, row in enumerate(rows):
        for seed in range(10):
            level = 0.9 - 0.02 * place + 0.001 * (seed * (place + 1) % 7)
            lines.append((row, seed, dataset, level, level, 0.01 + 0.001 * place))
    columns = ["row", "seed", "dataset", "accuracy", "area", "unrest"]
    return pd.DataFrame(lines, columns=columns)


def test_at_the_papers_scale_images_are_judged_there():
    own = {name: own_runs(name) for name in ("mnist", "cifar10")}
    laptop = fedcvr_bolt.outcomes.images()
    found = fedcvr_bolt.claims.more_accurate(laptop, own)
    large = [claim for claim in found if claim.scale == "the paper's scale"]
    assert len(large) == 6 and {claim.verdict for claim in large} == {"holds"}
    assert {claim.replicates for claim in large} == {"10 seeds, 3 rivals together"}
    small = {claim.statement for claim in found} - {claim.statement for claim in large}
    assert small == {
        "MNIST: more accurate than FedProx",
        "MNIST: more accurate than IFCA",
        "MNIST: more accurate than FeSEM",
        "CIFAR-10: more accurate than FedProx, IFCA and FeSEM",
        "CIFAR-100: more accurate than all six",
    }
    mnist = own["mnist"].assign(scale="the paper's scale")
    quick = fedcvr_bolt.claims.faster(mnist)
    assert {claim.scale for claim in quick} == {"the paper's scale"}
    assert {claim.verdict for claim in quick} == {"holds"}


def test_headlines_are_claims_and_keep_their_order():
    judged = fedcvr_bolt.outcomes.verdicts()
    found = [claim.statement for claim in fedcvr_bolt.claims.headlines(judged)]
    names = fedcvr_bolt.claims.HEADLINES
    assert found == [name for name in names if name in found]
    # CIFAR-10 has a line as soon as its runs can judge it
    assert set(names) - set(found) <= {"CIFAR-10: more accurate than FedAvg"}
    # all that is claimed against FedAvg and was judged is there
    tested = [c.statement for c in judged if not c.ours and c.interval is not None]
    assert {name for name in tested if name.endswith("than FedAvg")} <= set(found)


def test_the_sentence_about_images_counts_every_claim_about_mnist_once():
    """At the scale of each: here three at the paper's, the others at laptop scale."""
    laptop = fedcvr_bolt.outcomes.images()
    own = {"mnist": own_runs("mnist")}
    judged = [
        *fedcvr_bolt.claims.more_accurate(laptop, own),
        *fedcvr_bolt.claims.best_kernel(laptop),
    ]
    words = fedcvr_bolt.words.said_of_images(judged)
    pattern = r"On MNIST \((.+?), (\d+) seeds\) we judge (\d+) claims: (.+?)\."
    found = re.findall(pattern, words)
    assert [(scale, seeds, every) for scale, seeds, every, _ in found] == [
        ("the paper's scale", "10", "3"),
        ("laptop scale", "3", "5"),
    ]
    for _, _, every, counts in found:
        assert int(every) == sum(map(int, re.findall(r"\d+", counts)))
    assert "CIFAR-100, more accurate than all six: not testable." in words


def test_the_words_on_mnist_are_those_of_its_two_claims():
    Claim = fedcvr_bolt.claims.Claim
    Interval = fedcvr_bolt.claims.Interval
    how = {"where": "here", "replicates": "10 seeds", "scale": "the paper's scale"}
    judged = [
        Claim(
            "MNIST: more accurate than FedAvg", interval=Interval(2.0, 1.0, 3.0), **how
        ),
        Claim(
            "MNIST: the score adds accuracy", interval=Interval(-0.5, -1.0, 0.5), **how
        ),
    ]
    words = fedcvr_bolt.words.mnist_in_words(judged)
    assert "**MNIST** (the paper's scale, 10 seeds)." in words
    assert "FedAvg's: +2.0 points (+1.0 to +3.0): *holds*" in words
    assert "without: -0.5 points (-1.0 to +0.5): *open*" in words


def test_rows_are_told_by_their_intervals():
    """As released and corrected lead FedAvg in all seeds; the others are behind."""
    words = fedcvr_bolt.words.against(own_runs("mnist"))
    ahead, behind = words.split("; ")
    assert ahead.startswith("ahead of FedAvg: *FedCVR-Bolt corrected* (+")
    assert "*FedCVR-Bolt as released* (+" in ahead
    assert behind.startswith("behind FedAvg: *Power-of-Choice* (-")
    same = own_runs("mnist").assign(accuracy=[*range(10)] * 7)
    assert fedcvr_bolt.words.against(same).startswith("not to be told from it: ")


def test_images_are_told_at_the_papers_scale_where_it_was_run(monkeypatch):
    outcomes = fedcvr_bolt.outcomes
    monkeypatch.setattr(outcomes, "own_scale", lambda dataset: None)
    assert fedcvr_bolt.words.own_in_words() == ""
    assert "can hardly be told from FedAvg" in fedcvr_bolt.words.laptop_in_words()
    own = {"mnist": own_runs("mnist").query("seed < 5")}
    monkeypatch.setattr(outcomes, "own_scale", own.get)
    words = fedcvr_bolt.words.own_in_words()
    assert words.startswith("**MNIST at the paper's scale**: 100 clients, 10 a round")
    assert "all images, 5 seeds" in words and "CIFAR-10" not in words
    assert "hardly be told" not in fedcvr_bolt.words.laptop_in_words()


def test_single_switches_are_told(monkeypatch):
    outcomes = fedcvr_bolt.outcomes
    rows = [outcomes.BOLT, *fedcvr_bolt.words.ALONE]
    lines = [
        (row, D, "non-IID", seed, np.log(1 + D + seed) - 0.01 * rows.index(row))
        for row, D, seed in product(rows, (1, 2), range(3))
    ]
    columns = ["row", "D", "heterogeneity", "seed", "log_mse"]
    runs = pd.DataFrame(lines, columns=columns)
    monkeypatch.setattr(outcomes, "regression", lambda: runs)
    words = fedcvr_bolt.words.alone_in_words()
    assert "the weight of the coalition -3.0 % (-3.0 to -3.0)" in words
    wanted = {t.tags["row"] for t in fedcvr_bolt.tasks.TABLES["table1_parts"]("laptop")}
    assert wanted == set(fedcvr_bolt.words.ALONE)


def test_a_louder_score_is_told(monkeypatch):
    outcomes = fedcvr_bolt.outcomes
    tasks = fedcvr_bolt.tasks.TABLES["synthetic_beta"]("laptop")
    rows = [outcomes.PICK, *dict.fromkeys(task.tags["row"] for task in tasks)]
    lines = [
        (row, seed, 0.5 + 0.01 * rows.index(row) + 0.001 * seed)
        for row, seed in product(rows, range(3))
    ]
    runs = pd.DataFrame(lines, columns=["row", "seed", "accuracy"])
    monkeypatch.setattr(outcomes, "synthetic", lambda: runs)
    assert "β = 10 +2.0 (+2.0 to +2.0)" in fedcvr_bolt.words.louder_in_words()


@pytest.mark.parametrize("row", ["FedCVR-Bolt as released", "FedCVR-Bolt corrected"])
def test_clients_that_train_by_formula_train_as_usual(row):
    """A few rounds of Table 1, by formula and by the federation."""
    task = fedcvr_bolt.theory.task_of("table1_d2_noniid", row, seed=0)
    method = replace(task.method, warmup=2)
    usual = task.federation()
    quick = fedcvr_bolt.theory.LinearClients(task)
    expected = fedcvr_bolt.theory.follow(method, usual, 6)
    found = fedcvr_bolt.theory.follow(method, quick, 6)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.theta, b.theta, rtol=1e-5, atol=1e-6)
        assert np.array_equal(a.picked, b.picked)
    all_at_once = fedcvr_bolt.theory.gradients(expected[-1].theta, task.federation())
    by_formula = fedcvr_bolt.theory.gradients(expected[-1].theta, quick)
    np.testing.assert_allclose(by_formula, all_at_once, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="plain steps"):
        fedcvr_bolt.theory.LinearClients(
            replace(task, local=Local(0.1, steps=3, momentum=0.9))
        )


def test_runs_at_the_papers_scale_are_read_when_whole_seeds_are_there(
    tmp_path, monkeypatch
):
    """Smoke runs in their place: one seed whole, of the other only FedAvg."""
    rows = ("FedAvg", "FedCVR-Bolt as released")
    smoke = fedcvr_bolt.tasks.TABLES["mnist_paper"]("smoke")
    first = [task for task in smoke if task.tags["row"] in rows]
    second = [replace(task, seed=1) for task in first]
    tables_ = {"mnist_paper": lambda profile: first + second}
    folder = tmp_path / "book" / "results" / "fedcvr_bolt"
    folder.mkdir(parents=True)
    regression = fedcvr_bolt.outcomes.regression("laptop")
    drawn = fedcvr_bolt.outcomes.synthetic("laptop")
    monkeypatch.setattr(fedcvr_bolt.outcomes, "regression", lambda: regression)
    monkeypatch.setattr(fedcvr_bolt.outcomes, "synthetic", lambda: drawn)
    monkeypatch.setattr(fedcvr_bolt.tasks, "TABLES", tables_)
    monkeypatch.chdir(tmp_path)
    assert fedcvr_bolt.outcomes.own_scale("mnist") is None
    assert fedcvr_bolt.outcomes.own_differences() == {}
    assert "at the paper's scale" not in fedcvr_bolt.words.scale_of_runs()
    for task in [*first, second[0]]:
        store.append(folder / "mnist_paper.json", task.record())
    frame = fedcvr_bolt.outcomes.own_scale("mnist")
    assert frame["row"].tolist() == list(rows) and set(frame["seed"]) == {0}
    assert frame["unrest"].gt(0).all()
    groups = fedcvr_bolt.outcomes.recorded_groups("mnist")
    assert list(groups) == [0] and groups[0].rounds == [5]
    (panel,) = fedcvr_bolt.outcomes.own_differences().items()
    assert panel[0] == "MNIST, 1 seed" and list(panel[1]["row"]) == [rows[1]]
    assert "MNIST at the paper's scale: 1 seed." in fedcvr_bolt.words.scale_of_runs()
    measured = fedcvr_bolt.outcomes.mnist_measures()
    assert "MNIST, the paper's scale, mean of 1 seed." in measured.text
    assert all(f"\n{row}\n" in measured.text for row in rows)


def test_drawn_data_are_judged_at_both_scales(monkeypatch):
    """In the place of the paper's runs: ours, with half the error as released."""
    outcomes = fedcvr_bolt.outcomes
    laptop = outcomes.regression("laptop")
    drawn = outcomes.synthetic("laptop")
    better = laptop.assign(scale="the paper's scale")
    better.loc[better["row"] == outcomes.BOLT, "log_mse"] -= np.log(2)
    runs = {"laptop": laptop, "paper": better}
    monkeypatch.setattr(outcomes, "regression", runs.get)
    monkeypatch.setattr(outcomes, "synthetic", lambda profile: drawn)
    table = fedcvr_bolt.claims.at_two_scales()
    assert "60 rounds, η = 0.02" in table.text and "100 rounds, η = 0.01" in table.text
    (line,) = (
        line
        for line in table.text.split("\n\n")
        if "Regression, D = 1: lower error than FedAvg" in line
    )
    assert "open: " in line and "holds: +50" in line


def test_a_lead_that_other_lots_have_too_is_left_open():
    outcomes = fedcvr_bolt.outcomes
    unrest = {"FedAvg": 0.0, outcomes.BOLT: -1.0, outcomes.SHUFFLED: 0.0}
    lines = [
        {"D": 1, "heterogeneity": "non-IID", "scale": "here", "seed": seed, "row": row}
        | {"log_unrest": value + 0.1 * (seed + len(row)) % 0.3}
        for row, value in unrest.items()
        for seed in range(5)
    ]
    frame = pd.DataFrame(lines)
    claim = fedcvr_bolt.claims.steadier_regression(frame, 1)
    assert claim.verdict == "holds"
    frame.loc[frame["row"] == outcomes.SHUFFLED, "log_unrest"] -= 0.9
    claim = fedcvr_bolt.claims.steadier_regression(frame, 1)
    assert claim.verdict == "open" and claim.interval.mean > 0
    assert "would pass as well" in claim.reason and "holds" in claim.reason


def test_measures_say_which_of_them_are_of_the_last_round():
    """Records at laptop scale have no curves of balanced accuracy and macro-F1."""
    frame = fedcvr_bolt.outcomes.mnist()
    measured = fedcvr_bolt.outcomes.mnist_measures().text
    curves = "balanced_accuracy" in frame["course"].iloc[0]
    assert ("are those of the last round" in measured) == (not curves)
    mean = frame.loc[frame["row"] == "FedAvg", "accuracy"].mean()
    assert f"FedAvg\n  accuracy: {100 * mean:.1f}\n" in measured
