"""The runs nearer to the papers: their settings, and the parts they are made of."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from fednb import data, models
from fednb.experiment import run
from fednb.identity import describe
from fednb.methods import OCFL, BriggsHC, FedAvg, FedGWC
from fednb.papers import CATALOGUE, common, fedgwc, gcfl, ocfl
from fednb.papers.fedgwc.controls import (
    Replayed,
    Watch,
    WatchAll,
    Within,
    measure_looks,
    members,
    split_sizes,
)
from fednb.papers.ocfl.arms import Arms, at_threshold, judge, look
from fednb.papers.ocfl.explain import normalised
from fednb.partition import match_test
from fednb.reproduce import PROFILES

from .conftest import federation

CAMPAIGN = {
    "ocfl": ["local_work_mnist", "local_work_fashion_mnist", "local_work_cifar10"],
    "fedgwc": ["looks", "noise_anew", "k_min", "emnist", "cifar100_long"],
    "gcfl": ["epochs", "small_scale_mnist", "small_scale_cifar10"],
}
TABLES = [(paper, table) for paper, names in CAMPAIGN.items() for table in names]


def clients(number):
    """A small federation of clients of two sizes."""
    return federation(sizes=tuple(8 + 4 * (k % 2) for k in range(number)))


# --- profiles ----------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_every_table_answers_for_every_profile(profile):
    for paper, tables in CATALOGUE.items():
        for name, make in tables.items():
            assert {task.profile for task in make(profile)} <= {profile}, (paper, name)


def test_tables_are_empty_outside_their_profiles():
    tables = common.only_in(("smoke", "paper"), {"one": lambda profile: [profile]})
    assert [tables["one"](profile) for profile in PROFILES] == [
        ["smoke"],
        [],
        [],
        ["paper"],
    ]


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_tasks_are_well_formed(paper, table):
    make = CATALOGUE[paper][table]
    assert make("smoke") and not make("laptop")
    assert make("workstation") or make("paper")
    for profile in PROFILES:
        tasks = make(profile)
        assert len({task.key for task in tasks}) == len(tasks)
        cells = {(task.seed, task.dataset, *task.tags.values()) for task in tasks}
        assert len(cells) == len(tasks)
        seeds = [task.seed for task in tasks]
        assert seeds == sorted(seeds)  # whole seeds first


@pytest.mark.parametrize(("paper", "table"), [*TABLES[:1], *TABLES[3:-1]])
def test_smoke_runs_keep_what_later_questions_need(paper, table):
    task = CATALOGUE[paper][table]("smoke")[-1]
    record = task.record()
    assert {"client_updates", "bytes", "seconds", "peak_mb"} <= set(record)
    final = record["metrics"]["final"]
    curves = record["metrics"]["curves"]
    scores = ("accuracy", "balanced_accuracy")
    if paper == "ocfl":
        scores = tuple(f"OCFL-HDB|{score}" for score in (*scores, "pf1", "labels"))
    else:
        scores = (*scores, "macro_f1")
    assert set(scores) <= set(final)
    memberships = {"OCFL-HDB|labels", "labels", "members"} & set(curves)
    assert memberships or "looks_0" in final
    if task.tags.get("row") == "LocalOnly":  # everybody alone: there is nothing to keep
        memberships = set()
    for name in memberships:
        assert any(value is not None for value in curves[name])


@pytest.mark.parametrize("paper", ["ocfl", "gcfl"])
def test_the_other_tables_have_the_same_smoke_runs(paper):
    tables = [CATALOGUE[paper][name]("smoke") for name in CAMPAIGN[paper][-2:]]
    assert tables[0][-1].key == tables[1][-1].key


# --- OCFL --------------------------------------------------------------------------


def test_local_work_has_the_settings_of_the_campaign():
    cells = Counter()
    for name in CAMPAIGN["ocfl"]:
        for task in CATALOGUE["ocfl"][name]("workstation"):
            law = task.partition.keywords
            cells[task.dataset, law["overlap"], law["balance"]] += 1
            assert (law["clients"], law["samples"]) == (15, 400)
            assert "lenet5" in describe(task.model)
            local = task.local
            assert (local.lr, local.epochs, local.batch_size) == (0.01, 3, 32)
            assert local.steps is None and task.rounds == 12
            how = task.measure.keywords
            assert how["images"] == 50 and how["detailed"]
            assert how["thresholds"][0] == 0.05 and how["thresholds"][-1] == 0.5
            arms = dict(task.method.arms)
            assert next(iter(arms)) == "FedAvg"
            assert arms["OCFL-HDB, matrix before"] == OCFL(matrix="before")
            assert arms["OCFL-HDB in round 1"].at == 1
            assert arms["OCFL-HDB, window 2"].window == 2
            assert arms["BCL"] == BriggsHC(5) and "BCL as released" not in arms
            controls = {"Oracle clusters", "Random clusters", "LocalOnly", "SCL"}
            assert controls <= set(arms)
            assert {"OCFL-KM", "OCFL-MS", "OCFL-AFF", "OCFL-HDB"} <= set(arms)
    assert len(cells) == 12 and set(cells.values()) == {3}


def test_the_matrix_before_the_trigger_is_clustered():
    """Until the trigger the two are one; then each clusters its own matrix."""
    arms = Arms((("now", OCFL("kmeans")), ("before", OCFL("kmeans", matrix="before"))))
    fed = clients(9)
    state = arms.init(fed)
    matrices = []
    for t in range(12):
        fed.t = t
        state = arms.step(state, fed, t)
        now, before = state.arms
        matrices.append(before.before)
        assert bool(now.done) == bool(before.done)
        assert now.before.shape == (0, 0)
        if now.done:
            break
        assert torch.equal(now.theta, before.theta)
    assert now.done and t > 0
    from fednb.clustering import by_distance

    found = by_distance(matrices[-2], "kmeans", k=3, seed=0, noise="nearest")
    assert (found[:, None] == found).equal(before.labels[:, None] == before.labels)


@pytest.mark.parametrize("wrong", [{"sampled": 0.5}, {"at": 1}, {"matrix": "after"}])
def test_a_matrix_that_is_not_there_is_refused(wrong):
    with pytest.raises(ValueError, match="matrix"):
        OCFL(**{"matrix": "before"} | wrong)


def test_fl_hc_looks_as_it_would_split():
    arms = Arms((("FedAvg", FedAvg()), ("BCL", BriggsHC(warmup=1, threshold=0.3))))
    fed = clients(6)
    state = arms.init(fed)
    for t in range(2):
        fed.t = t
        state = arms.step(state, fed, t)
    seen = look(fed, state, thresholds=(0.0, 0.3, 2.0))
    split = "".join(map(str, state.arms[1].labels.tolist()))
    assert seen[at_threshold(0.3)] == split
    assert seen[at_threshold(0.0)] == "012345" and seen[at_threshold(2.0)] == "000000"
    assert (
        not set(seen)
        - {at_threshold(x) for x in (0.0, 0.3, 2.0)}
        - set(look(fed, state))
    )


def test_details_are_added_and_nothing_else_changes():
    task = CATALOGUE["ocfl"]["local_work_mnist"]("smoke")[0]
    few = tuple(pair for pair in task.method.arms if pair[0] in ("FedAvg", "OCFL-HDB"))
    fed = task.federation()
    state = Arms(few).init(fed)
    fed.t = 0
    state = Arms(few).step(state, fed, 0)
    plain = judge(fed, state, final=1, images=4)
    more = judge(fed, state, final=1, images=4, thresholds=(0.4,), detailed=True)
    areas = {"insertion", "deletion", "insertion_server", "deletion_server"}
    same = {name for name in plain if name.partition("|")[2] not in areas}
    assert all(plain[name] == more[name] for name in same) and len(same) > 20
    assert more["FedAvg|insertion_out"] is None  # one cluster has nobody outside
    assert 0 < more["FedAvg|insertion_normalised"] <= 1
    assert len(more["FedAvg|deletion_curve"]) == 8 + 1  # rows of pixels, and the start
    assert more["FedAvg|labels"] == "0" * 15


def test_normalised_curves_do_not_know_confidence():
    curves = torch.rand(4, 9)
    assert torch.allclose(normalised(curves), normalised(0.1 * curves))
    assert torch.equal(normalised(curves).amax(1), torch.ones(4))
    assert normalised(torch.zeros(2, 3)).isfinite().all()


# --- FedGWC ------------------------------------------------------------------------


def test_looks_has_the_settings_of_the_campaign():
    tasks = fedgwc.tasks.looks("workstation")
    assert {task.seed for task in tasks} == {3, 4, 5}
    assert len({task.tags["setting"] for task in tasks}) == 5
    watches = [task for task in tasks if task.tags["row"] == "Watch"]
    assert len(watches) == 15 and len(tasks) == 15 + 2 * 12
    for task in watches:
        assert task.rounds == 1_800 and task.method.sampled == 5
        assert task.method.warmup == 200
        rules = [rule for _, rule in task.method.rules]
        assert [rule.eps for rule in rules] == [*(4e-5, 6e-5, 1e-4) * 2, 1e-5]
        assert rules[0] == FedGWC.as_released(sampled=5, eps=4e-5, beta=0.5)
        assert rules[3] == FedGWC(sampled=5, eps=4e-5, beta=0.5)
        assert rules[6].whole_matrix and not rules[6].normalise
    levels = next(task for task in tasks if task.tags["setting"] == "levels")
    assert levels.partition.keywords["groups"] == (16, 12, 12)
    assert [t.dataset for t in watches[:3]] == [
        "domains(base='cifar10', clients=(20, 20, 0), size=300, noise=1.0, blur=2.0, "
        "alpha=100.0, test=0.2, seed=3)",
        "domains(base='cifar10', clients=(20, 20, 0), size=300, noise=3.0, blur=2.0, "
        "alpha=100.0, test=0.2, seed=3)",
        "domains(base='cifar10', clients=(20, 0, 20), size=300, noise=1.0, blur=6.0, "
        "alpha=100.0, test=0.2, seed=3)",
    ]
    updates = {"IFCA": 1_800 * 5, "FeSEM": 225 * 40}
    for task in tasks:
        if task.tags["row"] == "FeSEM":
            assert task.rounds * 40 == updates["FeSEM"] == updates["IFCA"]


def test_noise_anew_changes_nothing_but_when_noise_is_drawn():
    once = {
        (task.seed, task.tags["setting"], task.tags["row"]): task
        for task in fedgwc.tasks.looks("workstation")
    }
    tasks = fedgwc.tasks.noise_anew("workstation")
    assert len(tasks) == 18  # three seeds, two strengths, three rows
    for task in tasks:
        setting = task.tags["setting"].replace("noise anew", "noise")
        other = once[task.seed, setting, task.tags["row"]]
        name = other.dataset.replace(" test=0.2,", " test=0.2, anew=True,")
        law = partial(data.as_generated, name=name)
        model = partial(models.noisy, recipe=other.model)
        same = replace(other, dataset=name, partition=law, model=model)
        assert task.key == same.key != other.key
        assert task.curves == other.curves and task.rounds == other.rounds


def test_every_partition_of_looks_can_be_dealt():
    y = np.arange(20_000) % 10
    for task in fedgwc.tasks.looks("workstation"):
        if task.dataset == "cifar10" and task.tags["row"] == "Watch":
            part = task.partition(y, seed=task.seed)
            assert [len(own) for own in part.train] == [240] * 40


RULE = FedGWC(sampled=4, eps=0.02, chance=1.0, least=2)
VERSIONS = (
    ("corrected", RULE),
    ("reset", replace(RULE, retry="reset")),
    ("always", replace(RULE, retry="always")),
)


def watched_by(method, rounds=40):
    fed = clients(10)
    state = method.init(fed)
    for t in range(rounds):
        fed.t = t
        state = method.step(state, fed, t)
    return fed, state


def test_every_look_is_kept_and_the_first_is_that_of_watch():
    fed, state = watched_by(WatchAll(VERSIONS, sampled=4))
    _, once = watched_by(Watch(VERSIONS, sampled=4))
    assert torch.equal(state.theta, once.theta)
    counts = []
    for r in range(3):
        own = state.looks[:, 0] == r
        counts.append(int(own.sum()))
        assert state.looks[own, 1][0] == once.first[r]
        assert torch.equal(state.found[own][0], once.found[r])
    assert 2 <= counts[0] < counts[2] and 1 < counts[1] < counts[2]

    out = measure_looks(fed, state, final=fed.t + 1)
    assert [len(out[f"looks_{r}"]) for r in range(3)] == counts
    splits = [look for look in out["looks_2"] if look[1] > 1]
    assert out["split_2"] == (splits[0][0] if splits else 0)
    assert "looks_0" not in measure_looks(fed, state, final=0)


def test_rules_sleep_during_a_warm_start():
    _, warm = watched_by(WatchAll(VERSIONS, sampled=4, warmup=30), rounds=30)
    assert not len(warm.looks) and not warm.visits.any()
    _, cold = watched_by(WatchAll(VERSIONS, sampled=4), rounds=30)
    assert torch.equal(warm.theta, cold.theta)


def test_watching_goes_on_from_a_checkpoint(tmp_path):
    method = WatchAll(VERSIONS, sampled=4)
    whole = run(method, clients(10), 30, every=30, progress=False)
    path = tmp_path / "half.npz"
    for rounds in (17, 30):
        half = run(
            method,
            clients(10),
            rounds,
            every=30,
            progress=False,
            checkpoint=path,
        )
    assert torch.equal(half.state.looks, whole.state.looks)
    assert torch.equal(half.state.found, whole.state.found)


SPLITTING = FedGWC(sampled=0.5, eps=0.05, chance=1.0, k_min=2, least=2)


def test_replayed_members_have_the_rounds_and_sizes_of_every_split():
    method = Replayed(SPLITTING)
    fed = clients(16)
    twin = clients(16)
    state = method.init(fed)
    alone = SPLITTING.init(twin)
    other = False
    for t in range(60):
        fed.t = twin.t = t
        state = method.step(state, fed, t)
        alone = SPLITTING.step(alone, twin, t)
        # the original is the FedGWC that runs alone, bit for bit
        assert torch.equal(state.original.clusters, alone.clusters)
        assert torch.equal(state.original.theta, alone.theta)
        # the control has its sizes, cluster by cluster, and its number of updates
        assert state.clusters.bincount().equal(alone.clusters.bincount())
        assert fed.meter.updates == twin.meter.updates
        other |= not torch.equal(state.clusters, alone.clusters)
    assert len(alone.rows) > 2 and other


def test_replayed_members_go_on_from_a_checkpoint(tmp_path):
    method = Replayed(SPLITTING)
    whole = run(method, clients(16), 40, every=40, progress=False)
    path = tmp_path / "half.npz"
    for rounds in (23, 40):
        half = run(
            method,
            clients(16),
            rounds,
            every=40,
            progress=False,
            checkpoint=path,
        )
    assert whole.state.clusters.any()
    assert torch.equal(half.state.theta, whole.state.theta)
    assert torch.equal(half.state.clusters, whole.state.clusters)


def test_sizes_of_parts():
    before = torch.tensor([0, 0, 0, 1, 1])
    after = torch.tensor([0, 1, 0, 2, 2])
    assert split_sizes(before, after) == [[2, 1], [2]]
    assert members(after) == "01022" and members(torch.arange(40)) is None


def test_k_min_has_the_settings_of_the_campaign():
    """They are those of ``untested``, but for the least size."""
    tasks = fedgwc.tasks.least_sizes("workstation")
    beside = next(
        task
        for task in fedgwc.tasks.untested("laptop")
        if task.tags == {"setting": "α = 0.5", "row": "FedGWC, no test"}
        and task.seed == 0
    )
    assert {task.rounds for task in tasks} == {480} == {beside.rounds}
    assert Counter(task.seed for task in tasks) == {0: 3, 1: 3, 2: 3}
    for task, least in zip(tasks, (6, 10, 15), strict=False):
        assert task.tags == {"row": f"FedGWC, k_min = {least}"}
        assert task.method == replace(beside.method, k_min=least)
        same = replace(
            task, method=beside.method, profile="laptop", curves=beside.curves
        )
        assert same.key == beside.key


def rows_of(tasks):
    """The methods of tasks by seed and row, arms that run in step included."""
    found = {}
    for task in tasks:
        arms = {task.tags["row"]: task.method}
        if isinstance(task.method, Arms):
            arms = dict(task.method.arms)
        for row, method in arms.items():
            found[task.seed, row] = method
    return found


def test_emnist_is_the_papers():
    tasks = fedgwc.tasks.emnist("paper")
    assert Counter(task.seed for task in tasks) == {0: 4, 1: 2, 2: 2}
    y = np.arange(100_000) % 47
    part = tasks[0].partition(y, seed=0)
    assert [len(own) for own in part.train] == [250] * 400
    part = match_test(part, y, np.arange(16_323) % 47)
    assert min(map(len, part.test)) > 0
    for task in tasks:
        local = task.local
        assert (local.lr, local.batch_size, local.steps) == (0.01, 64, 8)
        assert local.weight_decay == 4e-4 and task.train_rows == 100_000
        assert task.rounds == (300 if "FeSEM" in task.tags["row"] else 3_000)
        assert task.partition.keywords["alpha"] == 0.01
    methods = rows_of(tasks)
    assert Counter(seed for seed, _ in methods) == {0: 8, 1: 5, 2: 5}
    for seed in range(3):
        own = methods[seed, "FedGWC"]
        assert (own.sampled, own.eps, own.beta) == (0.1, 1e-5, 0.5)
        rule = {"sampled": 40, "eps": 1e-5, "beta": 0.5}
        released = methods[seed, "FedGWC as released"]
        assert released == Within(FedGWC.as_released(**rule), 120_000)
        printed = methods[seed, "FedGWC as printed"]
        reading = {"priority": False, "whole_matrix": True}
        assert printed == Within(FedGWC.as_printed(**rule, **reading), 120_000)
        assert methods[seed, "no clusters"] == FedAvg(0.1)
    assert methods[0, "Random members, same splits"] == Replayed(methods[0, "FedGWC"])


def test_cifar100_long_has_the_settings_of_the_campaign():
    tasks = fedgwc.tasks.cifar100_long("workstation")
    y = np.arange(20_000) % 100
    part = tasks[0].partition(y, seed=0)
    assert [len(own) for own in part.train] == [200] * 100
    assert {task.rounds for task in tasks} == {10_000} and len(tasks) == 2
    rows = ["no clusters", "FedGWC", "FedGWC as released", "LocalOnly"]
    assert [row for _, row in rows_of(tasks)] == rows
    assert {(t.local.steps, t.local.lr, t.local.augment) for t in tasks} == {
        (7, 0.01, True)
    }


# --- GCFL --------------------------------------------------------------------------


def test_epochs_has_the_settings_of_the_campaign():
    tasks = gcfl.tasks.epochs("workstation")
    assert len(tasks) == 12 * 2 * 2 * 3
    for task in tasks:
        local = task.local
        assert (local.lr, local.epochs, local.batch_size) == (0.05, 5, 32)
        assert (task.rounds, local.lr_decay) == (40, 1.0)
        assert task.partition.keywords["samples"] == 20 * 600
        assert "labels" in task.curves and "balanced_accuracy" in task.curves
    zetas = {task.method.zeta for task in tasks if "GCFL" in task.tags["row"]}
    assert zetas == {0.01, 0.3}


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_the_small_scale_is_the_papers(dataset):
    make = gcfl.tasks.TABLES[f"small_scale_{dataset}"]
    paper = {task.tags["row"]: task for task in make("paper")}
    table2 = {
        task.tags["row"]: task
        for task in gcfl.tasks.TABLES[f"table2_{dataset}"]("paper")
        if task.tags["setting"] == "Non-IID-ES" and task.seed == 0
    }
    rows = {task.tags["row"] for task in gcfl.tasks.epochs("workstation")}
    assert set(paper) == rows and {task.rounds for task in paper.values()} == {100}
    for row in rows & set(table2):
        kept = {"every": 1, "curves": table2[row].curves}
        assert replace(paper[row], **kept).key == table2[row].key
    fewer = {task.tags["row"]: task for task in make("workstation")}
    for row, task in fewer.items():
        assert task.rounds == gcfl.tasks.FEW_ROUNDS[dataset]
        assert (task.local, describe(task.partition), describe(task.model)) == (
            paper[row].local,
            describe(paper[row].partition),
            describe(paper[row].model),
        )


def test_the_catalogue_knows_its_papers_modules():
    assert ocfl.tasks.TABLES is CATALOGUE["ocfl"]
