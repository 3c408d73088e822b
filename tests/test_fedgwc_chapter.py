"""FedGWC's tables as tasks, its controls, its laws of data, its theory in numbers, and
how its records are read.
"""

import copy
import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fednb import Federation, Local, data, experiment, metrics, models, run, store
from fednb.identity import describe
from fednb.methods import FedAvg, FedGWC
from fednb.papers import fedgwc
from fednb.partition import class_counts, match_test, mixed

PAGE = Path(__file__).parents[1] / "book" / "papers" / "fedgwc.ipynb"
Y = np.arange(20_000) % 20
GROUPS = partial(mixed, groups=(4, 3, 5), alphas=(1000.0, 0.5, 0.0), size=100)


# --- laws of data ---------------------------------------------------------------------


def test_mixed_deals_each_group_by_its_own_law():
    part = GROUPS(Y, test=0.0, seed=3)
    counts = class_counts(part.train, Y, 20)
    assert (
        part.truth.tolist() == [0] * 4 + [1] * 3 + [2] * 5
        and (counts.sum(1) == 100).all()
    )
    assert (counts[:4] == 5).all()  # uniform: exactly
    assert ((counts[4:7] > 0).sum(1) < 15).all() and (
        (counts[4:7] > 0).sum(1) > 1
    ).any()
    assert ((counts[7:] > 0).sum(1) == 1).all() and len(
        {row.argmax() for row in counts[7:]}
    ) == 5
    everyone = np.concatenate(part.train)
    assert len(set(everyone.tolist())) == len(everyone)
    assert not np.array_equal(
        everyone, np.concatenate(GROUPS(Y, test=0.0, seed=4).train)
    )


def test_mixed_sets_a_share_aside_and_says_what_it_cannot_do():
    part = GROUPS(Y, test=0.4)
    assert {len(own) for own in part.train} == {60} and {
        len(own) for own in part.test
    } == {40}
    with pytest.raises(ValueError, match="one each"):
        mixed(Y, (3, 2), (0.5,), 10)
    with pytest.raises(ValueError, match="no class has 1001"):
        mixed(Y, (2,), (0.0,), 1001)
    with pytest.raises(ValueError, match="samples are left"):
        mixed(Y, (21,), (0.5,), 1000)


def test_shared_groups_may_overlap_but_not_inside():
    law = partial(mixed, Y, (18, 2), (0.0, 1000.0), 1000, test=0.0)
    with pytest.raises(ValueError, match="left"):
        mixed(Y, (20, 2), (0.0, 1000.0), 1000, test=0.0)
    part = law(shared=True)
    one, other = (
        np.concatenate([part.train[k] for k in np.flatnonzero(part.truth == g)])
        for g in (0, 1)
    )
    assert (
        len(set(one.tolist())) == 18_000
        and len(set(other.tolist())) == 2000
        and set(one) & set(other)
    )
    assert (class_counts(part.train, Y, 20)[18:] == 50).all()
    tested = match_test(part, Y, np.arange(4000) % 20)
    assert min(map(len, tested.test)) > 0


def test_domains_are_the_base_data_seen_differently():
    sizes = "clients=(3, 2, 4), size=60, noise=0.5, blur=1.5, test=0.4, seed=2"
    name = f"domains(base='digits', {sizes})"
    dataset, parts = data.generate(name)
    assert (
        data.load(name) is dataset
        and len(parts.train) == 9
        and parts.truth.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    )
    clean, _ = data.generate(name.replace("(3, 2, 4)", "(9, 0, 0)"))
    np.testing.assert_array_equal(clean.y, dataset.y)
    rows = [np.concatenate([parts.train[k], parts.test[k]]) for k in range(9)]
    sight = [
        np.concatenate([rows[k] for k in np.flatnonzero(parts.truth == d)])
        for d in range(3)
    ]
    np.testing.assert_array_equal(dataset.x[sight[0]], clean.x[sight[0]])
    noise = dataset.x[sight[1]] - clean.x[sight[1]]
    assert noise.std() == pytest.approx(0.5, rel=0.03) and abs(noise.mean()) < 0.03
    steps = [np.abs(np.diff(x[sight[2]], axis=3)).mean() for x in (dataset.x, clean.x)]
    assert steps[0] < 0.5 * steps[1]  # neighbours are alike after blurring
    assert dataset.x[sight[2]].mean() == pytest.approx(
        clean.x[sight[2]].mean(), abs=0.1
    )


def test_domains_with_official_test_samples():
    dataset, parts = data.generate(
        "domains('digits', (5, 5, 0), 60, test=0.0, official=True)"
    )
    assert {len(own) for own in parts.train} == {60} and min(map(len, parts.test)) > 0
    assert len(dataset.x) == sum(map(len, [*parts.train, *parts.test]))


SMALL_NET = partial(models.mlp, 64, (16,), 10)


def in_domains(more, model, **options):
    """A federation of two clean and two other clients of the digits."""
    name = f"domains('digits', (2, 2, 0), 40, {more}, test=0.4, seed=1)"
    local = Local(0.05, steps=5, batch_size=8)
    return Federation(*data.generate(name), model, local=local, seed=2, **options)


def test_noise_to_be_drawn_anew_is_a_channel_of_its_own():
    sizes = "'digits', (3, 2, 4), 60, noise=0.5, blur=1.5, test=0.4, seed=2"
    once, parts = data.generate(f"domains({sizes})")
    anew, same = data.generate(f"domains({sizes}, anew=True)")
    assert anew.x.shape == (len(once.x), 2, 8, 8)
    for k, truth in enumerate(parts.truth):
        rows = np.concatenate([same.train[k], same.test[k]])
        assert np.array_equal(same.train[k], parts.train[k])
        assert (anew.x[rows, 1] == (0.5 if truth == 1 else 0)).all()
        assert np.array_equal(anew.x[rows, 0], once.x[rows, 0]) == (truth != 1)
    noise = once.x[:, 0] - anew.x[:, 0]  # of the one draw
    assert noise[np.abs(noise) > 0].std() == pytest.approx(0.5, rel=0.03)


def test_noise_is_drawn_at_every_look_and_by_the_seed():
    layer = models.DrawNoise().eval()
    image = torch.zeros(50, 3, 8, 8)
    strength = torch.full((50, 1, 8, 8), 2.0)
    strength[25:] = 0
    x = torch.cat([image, strength], 1)
    first, second = layer(x), layer(x)
    assert first.shape == image.shape and not torch.equal(first, second)
    assert float(first[:25].std()) == pytest.approx(2, rel=0.05)
    assert torch.equal(first[25:], image[25:])
    noisy = partial(models.noisy, SMALL_NET)
    rows = []
    losses = []
    for workers in (1, 2):
        fed = in_domains("noise=3.0, anew=True", noisy, workers=workers)
        rows.append(fed.train(fed.start()[0]).theta)
        losses.append(fed.loss(rows[-1]))
    assert torch.equal(*rows) and torch.equal(*losses)


def test_no_noise_drawn_anew_is_no_noise():
    plain = in_domains("noise=0.0", SMALL_NET)
    drawn = in_domains("noise=0.0, anew=True", partial(models.noisy, SMALL_NET))
    theta = plain.start()
    assert torch.equal(theta, drawn.start())
    once, anew = (fed.train(theta[0]) for fed in (plain, drawn))
    assert torch.equal(once.theta, anew.theta)
    assert torch.equal(once.losses, anew.losses)
    right = [
        fed.evaluate(once.theta, torch.arange(4)).confusion for fed in (plain, drawn)
    ]
    assert torch.equal(*right)


# --- what was never seen --------------------------------------------------------------


def test_unseen_pairs_take_the_mean_of_their_row():
    P, visits = (
        torch.tensor([[0.2, 0.4, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 0.0]]),
        torch.eye(3),
    )
    visits[0, 1], visits[2, 2] = 2, 0
    full = torch.tensor([[0.2, 0.4, 0.3], [0.3, 0.3, 0.3], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(FedGWC().block(P, visits, torch.arange(3)), full)
    torch.testing.assert_close(
        FedGWC().block(P, visits, torch.tensor([0, 2])),
        torch.tensor([[0.2, 0.2], [0.0, 0.0]]),
    )
    assert FedGWC(fill=False).block(P, visits, torch.arange(3)).equal(P)


def test_equal_clients_are_split_by_how_often_they_were_sampled_unless_filled():
    split = {}
    for fill in (False, True):
        rule = FedGWC(sampled=6, eps=2e-4, fill=fill)
        plays = [
            fedgwc.theory.play(rule, np.zeros(40), 6, 400, seed=seed)
            for seed in range(6)
        ]
        assert all(p.first for p in plays)
        split[fill] = [p for p in plays if p.labels.any()]
    assert len(split[False]) >= 3 and not split[True]
    for p in split[False]:
        small, often = (
            p.labels == torch.bincount(p.labels).argmin(),
            p.visits.diagonal(),
        )
        assert often[small].mean() < often[~small].mean()


# --- controls -------------------------------------------------------------------------


def digits(seed=0) -> Federation:
    source = data.load("digits")
    parts = mixed(
        source.y[: source.n_train], (22, 8), (1000.0, 0.0), 45, test=0.4, seed=seed
    )
    net = partial(models.mlp, 64, (16,), 10)
    return Federation(
        source, parts, net, local=Local(0.02, steps=3, batch_size=16), seed=seed
    )


RULE = FedGWC(sampled=0.2, eps=0.02)


@pytest.fixture(scope="module")
def runs():
    truth = tuple(np.repeat([0, 1], [22, 8]).tolist())
    methods = {
        "FedGWC": RULE,
        "random": fedgwc.controls.Shuffled(**fedgwc.controls.all_fields(RULE)),
        "told": fedgwc.controls.Told(**fedgwc.controls.all_fields(RULE), truth=truth),
        "FedAvg": FedAvg(0.2),
        "watch": fedgwc.controls.Watch(
            (("own", RULE), ("released", FedGWC.as_released(sampled=6, eps=0.02))), 0.2
        ),
    }
    out = {}
    for name, method in methods.items():
        how = {
            "measure": fedgwc.controls.measure_watch
            if name == "watch"
            else fedgwc.controls.measure_fedgwc,
            "progress": False,
        }
        out[name] = run(method, digits(), 45, **how)
    return out


def test_one_evaluation_gives_the_usual_numbers_and_two_of_the_papers(monkeypatch):
    fed = digits()
    state = FedAvg(0.2).init(fed)
    usual = experiment.measure(fed, state)
    result = fed.evaluate(state.theta, state.labels)
    evaluated = []
    monkeypatch.setattr(fed, "evaluate", lambda *a: evaluated.append(a) or result)
    found = fedgwc.controls.measure_fedgwc(fed, state)
    assert len(evaluated) == 1
    shares = metrics.share_weighted_accuracy(result.confusion.numpy(), fed.truth.counts)
    assert found == usual | {
        "balanced_released": metrics.average(shares),
        "rand": metrics.rand_index(fed.truth.labels, state.labels.numpy()),
    }


def test_controls_fork_from_fedgwc_at_its_first_split(runs):
    own, other, told = (runs[name].rows for name in ("FedGWC", "random", "told"))
    first = next(i for i, row in enumerate(own) if row["clusters"] > 1)
    for i in range(first):
        assert (
            own[i]["loss"]
            == other[i]["loss"]
            == told[i]["loss"]
            == runs["FedAvg"].rows[i]["loss"]
        )
    sizes = [np.bincount(np.bincount(rows[first]["labels"])) for rows in (own, other)]
    assert np.array_equal(*sizes) and own[first]["labels"] != other[first]["labels"]
    assert told[first]["ari"] == 1 and told[-1]["clusters"] == 2  # then no more


def test_watch_is_fedavg_and_sees_what_fedgwc_does(runs):
    state, rows = runs["watch"].state, runs["FedGWC"].rows
    torch.testing.assert_close(state.theta, runs["FedAvg"].state.theta)
    first = next(row for row in rows if row["clusters"] > 1)
    assert int(state.first[0]) == first["round"]
    assert metrics.adjusted_rand(state.found[0].numpy(), first["labels"]) == 1
    final = runs["watch"].final
    assert {"mse_0", "first_1", "clusters_1", "ari_0", "P", "found", "counts"} <= {
        *final
    }
    assert np.shape(final["P"]) == (30, 30) and np.shape(final["counts"]) == (30, 10)


def test_measures_have_both_balanced_accuracies_and_the_rand_index(runs):
    final = runs["told"].final
    assert (
        0 < final["balanced_released"] <= 1
        and final["balanced_released"] != final["balanced_accuracy"]
    )
    assert final["rand"] == 1
    fed, state = digits(), runs["FedGWC"].state
    light = fedgwc.tasks.measure_large(fed, state)
    assert light["accuracy"] == pytest.approx(runs["FedGWC"].final["accuracy"])


# --- tasks ----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
@pytest.mark.parametrize(
    "table", ["rules", "heterogeneity", "domains", "cifar100", "longer", "beta"]
)
def test_tasks_are_well_formed(profile, table):
    tasks = fedgwc.tasks.TABLES[table](profile)
    if (profile, table) == ("paper", "longer"):
        assert not tasks  # the paper's own number of rounds is long enough
        return
    assert len({task.key for task in tasks}) == len(tasks) > 0 and {
        task.profile for task in tasks
    } == {profile}
    cells = {(task.seed, task.dataset, *task.tags.values()) for task in tasks}
    assert len(cells) == len(tasks)
    assert len({task.seed for task in tasks}) >= (1 if profile == "smoke" else 3)
    assert [task.seed for task in tasks] == sorted(
        task.seed for task in tasks
    )  # whole seeds first


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
@pytest.mark.parametrize("table", ["untested", "level_rivals", "emnist_small"])
def test_tasks_of_the_fairer_runs_are_well_formed(profile, table):
    tasks = fedgwc.tasks.TABLES[table](profile)
    assert not fedgwc.tasks.TABLES[table]("paper")
    cells = {(task.seed, task.dataset, *task.tags.values()) for task in tasks}
    assert len({task.key for task in tasks}) == len(cells) == len(tasks) > 0
    seeds = [task.seed for task in tasks]
    assert seeds == sorted(seeds)  # whole seeds first


def test_the_untested_rows_differ_from_todays_in_the_test_only():
    made = fedgwc.tasks.TABLES
    today = {}
    for task in made["longer"]("laptop"):
        if task.tags["row"] == "FedGWC":
            today[task.seed, task.dataset, "α = 0.5"] = task
    for task in made["heterogeneity"]("laptop"):
        if task.tags["row"] == "FedGWC":
            today[task.seed, task.dataset, task.tags["setting"]] = task
    rows = {}
    for task in made["untested"]("laptop"):
        where = (task.seed, task.dataset, task.tags["setting"])
        rows.setdefault(task.tags["row"], {})[where] = task
    own = rows["FedGWC, no test"]
    assert own.keys() == today.keys()
    for where, task in own.items():
        assert task.method.chance == 1
        method = replace(task.method, chance=today[where].method.chance)
        usual = replace(task, method=method, tags=today[where].tags)
        assert usual.key == today[where].key  # nothing else is different
    control = rows["Random members, same splits"]
    assert {cell for _, _, cell in own} - {cell for _, _, cell in control} == {
        "(100, 0, 0)"
    }
    for where, task in control.items():
        assert task.method.method == own[where].method
        assert (task.rounds, task.every) == (own[where].rounds, own[where].every)


def test_rivals_of_levels_have_no_fewer_client_updates_than_fedgwc():
    for task in fedgwc.tasks.TABLES["level_rivals"]("laptop"):
        sampled = 30 if task.tags["row"] == "FeSEM" else 6
        assert task.rounds * sampled == 600
        assert task.method.clusters == task.tags["C"] > 1


def test_every_partition_of_the_paper_profile_can_be_dealt():
    pools = {"cifar100": np.arange(50_000) % 100, "cifar10": np.arange(50_000) % 10}
    tasks = [
        t
        for table in fedgwc.tasks.TABLES.values()
        for t in table("paper")
        if t.seed == 0 and t.dataset in pools
    ]
    for task in {(t.dataset, describe(t.partition)): t for t in tasks}.values():
        y = pools[task.dataset]
        part = task.partition(y, seed=0)
        assert (
            {len(own) for own in part.train} == {500}
            and len(part.train) == 100
            and task.official
        )
        part = match_test(part, y, np.arange(10_000) % (y.max() + 1))
        assert min(map(len, part.test)) > 0, describe(task.partition)


def test_the_paper_profile_is_the_papers():
    for task in fedgwc.tasks.TABLES["cifar100"]("paper"):
        local = task.local
        assert (local.lr, local.batch_size, local.weight_decay, local.epochs) == (
            0.01,
            64,
            4e-4,
            1,
        )
        assert "filters=(64, 64)" in describe(
            task.model
        ) and "dense=(384, 192)" in describe(task.model)
        if task.tags["row"] == "FedGWC":
            assert (
                task.rounds,
                task.method.eps,
                task.method.sampled,
                task.method.beta,
            ) == (20_000, 1e-5, 0.1, 0.5)
    groups = {
        t.tags["setting"]: t.partition.keywords["groups"]
        for t in fedgwc.tasks.TABLES["heterogeneity"]("paper")
    }
    assert groups == {
        "(10, 0, 90)": (10, 90),
        "(10, 90, 0)": (10, 90),
        "(40, 30, 30)": (40, 30, 30),
        "(100, 0, 0)": (100,),
    }


def test_the_large_federations_are_described():
    tasks = fedgwc.tasks.large()
    assert len({task.key for task in tasks}) == len(tasks) and {
        task.profile for task in tasks
    } == {"paper"}
    sets = {task.dataset for task in tasks}
    assert sets == {"emnist_bymerge", "landmarks", "inaturalist"}
    femnist = next(task for task in tasks if task.dataset == "emnist_bymerge")
    assert "classes=47" in describe(femnist.model)  # as the paper counts them
    assert any(
        "clients=2714" in describe(task.partition) and task.method.eps == 1e-2
        for task in tasks[-8:-6]
    )


def test_a_smoke_run_gives_records(tmp_path):
    tasks = [
        t
        for t in fedgwc.tasks.TABLES["domains"]("smoke")
        if t.tags["setting"] == "(50, 50, 0)"
    ]
    for task in tasks:
        store.append(tmp_path / "x.json", task.record())
    from fednb import tables

    frame = tables.frame(tasks, tmp_path / "x.json")
    assert (
        frame["row"].tolist() == ["FedGWC", "FeSEM", "IFCA"]
        and frame["rand"].between(0, 1).all()
    )


def test_one_hundred_rules_watch_alike():
    rules = fedgwc.tasks.rules(fedgwc.tasks.SCALES["laptop"])
    assert (
        rules["corrected"] == fedgwc.tasks.gwc(fedgwc.tasks.SCALES["laptop"])
        and len(set(map(repr, rules.values()))) >= 20
    )
    assert rules["as printed, ε = 1e-5"] == FedGWC.as_printed(sampled=6, beta=0.5)
    step = replace(rules["+ scored on the embedding"], n_max=4, room=True)
    assert step == rules["as released"]  # the ladder of ingredients leads there


# --- the paper's numbers, and how records are read ------------------------------------


def test_printed_numbers_are_read_with_their_cells():
    one = (
        fedgwc.outcomes.printed("1")
        .set_index(["dataset", "row", "aggregator"])
        .loc["cifar100", "FedGWC", "FedAvg"]
    )
    assert (
        one["balanced_accuracy"],
        one["balanced_accuracy_std"],
        one["clusters"],
        one["was"],
    ) == (
        0.534,
        0.004,
        4,
        0.1,
    )
    assert fedgwc.outcomes.printed("8").query(
        "row == 'FeSEM' and C == 4 and dataset == 'cifar100'"
    )["balanced_accuracy"].tolist() == [0.509]
    assert fedgwc.outcomes.printed("5").query("beta == '4.0'")[
        "balanced_accuracy"
    ].tolist() == [
        0.526,
        0.761,
        0.558,
        0.471,
    ]
    assert [len(fedgwc.outcomes.printed(n)) for n in "123456789"] == [
        14,
        14,
        9,
        9,
        20,
        9,
        9,
        16,
        20,
    ]


def test_runs_are_compared_around_a_split():
    own = pd.DataFrame(
        {
            "round": [1, 2, 3, 4],
            "clusters": [1, 1, 2, 2],
            "client_updates": [6, 12, 20, 28],
        }
    )
    own["accuracy"] = [0.1, 0.2, 0.5, 0.6]
    plain = own.assign(
        clusters=1, client_updates=[6, 12, 18, 24], accuracy=[0.1, 0.2, 0.25, 0.3]
    )
    assert fedgwc.outcomes.jump(own, plain, "accuracy") == pytest.approx(0.4 - 0.1)
    assert np.isnan(fedgwc.outcomes.jump(plain, own, "accuracy"))


# --- theory ---------------------------------------------------------------------------


def test_weights_converge_with_shrinking_steps_but_not_with_constant_ones():
    R = np.random.default_rng(0).random((500, 400, 4))
    mean, constant = (
        fedgwc.theory.weights(R.mean(2), alpha) for alpha in ("mean", 0.2)
    )
    np.testing.assert_allclose(mean[:, -1], R.mean((1, 2)))
    assert mean[:, -1].var() < 0.02 * R.var()
    assert constant[:, -1].mean() == pytest.approx(0.5, abs=0.01)
    assert constant[:, -1].var() == pytest.approx(
        fedgwc.theory.stationary_variance(0.2, 1 / 12, 4), rel=0.2
    )


def test_entries_stay_under_their_bound_and_samples_under_theorem_a5():
    rule = FedGWC.as_printed(sampled=5)
    past = fedgwc.theory.play(rule, np.linspace(0, 2, 12), 5, 60)
    assert (
        torch.as_tensor(fedgwc.theory.entry_bound(past.visits.numpy(), 0.1)) + 1e-6
        >= past.P
    ).all()
    assert (
        fedgwc.theory.entry_bound(0, 0.1, 0.7) == 0.7
        and fedgwc.theory.entry_bound(10**4, 0.1) == 1
    )
    assert (
        fedgwc.theory.total_sample([60, 40], 0.1) == 10
        and fedgwc.theory.total_sample([10] * 10, 0.1) == 30
    )
    assert fedgwc.theory.total_sample([2, 98], 0.1) == pytest.approx(11.8)


def test_play_finds_outliers_and_half_and_half_with_patience():
    outliers = np.repeat([0.0, 1.0], [27, 3])
    past = fedgwc.theory.play(FedGWC(sampled=6), outliers, 6, 120, force=True)
    assert (
        past.first == 120 and metrics.adjusted_rand(outliers, past.labels.numpy()) == 1
    )
    halves = np.repeat([0.0, 1.0], 15)
    short, long = (
        fedgwc.theory.play(FedGWC(sampled=6), halves, 6, T, force=True)
        for T in (60, 240)
    )
    assert (
        metrics.adjusted_rand(halves, long.labels.numpy())
        == 1
        > metrics.adjusted_rand(halves, short.labels.numpy())
    )
    again = fedgwc.theory.play(FedGWC(sampled=6), halves, 6, 60, force=True)
    assert torch.equal(again.P, short.P)


def test_the_printed_rule_stays_above_its_threshold():
    past = fedgwc.theory.play(FedGWC.as_printed(), np.zeros(50), 10, 600)
    assert past.first == 0 and len(past.mse) == 600 and min(past.mse[300:]) > 1e-5
    settled = fedgwc.theory.play(FedGWC.as_printed(), np.zeros(12), 5, 2000, stop=False)
    assert np.mean(settled.mse[1000:]) == pytest.approx(
        fedgwc.theory.mse_floor(5), rel=0.15
    )


def test_server_seconds_and_pictures():
    seconds = fedgwc.theory.server_seconds(40, repeat=2)
    assert [*seconds] == [
        "update of P",
        "affinity",
        "eigenvectors",
        "k-means, scores",
    ] and min(seconds.values()) >= 0
    W, plane = fedgwc.theory.pictured(torch.rand(12, 12), 0.5)
    assert W.shape == (12, 12) and plane.shape == (12, 2)


def test_longer_runs_are_cut_where_the_others_end():
    tasks = fedgwc.tasks.TABLES["cifar100"]("laptop")
    curves = {
        "round": [10, 20, 110, 120, 150],
        "accuracy": [0.0, 0.3, 0.4, 0.5, 0.9],
        "clusters": [1, 1, 2, 2, 2],
    }
    records = {task.key: {"metrics": {"curves": curves}} for task in tasks}
    frame = pd.DataFrame({"accuracy": [0.9] * len(tasks), "clusters": 7})
    cut = fedgwc.outcomes.in_step(frame, records)
    assert np.allclose(cut["accuracy"], 0.4) and (frame["accuracy"] == 0.9).all()
    assert (cut["clusters"] == 2).all()  # at the end, not a mean of 1, 2 and 2
    tasks = fedgwc.tasks.TABLES["longer"]("laptop")
    longer = curves | {"round": [10, 20, 120, 480, 720]}
    records = {task.key: {"metrics": {"curves": longer}} for task in tasks}
    frame = pd.DataFrame({"accuracy": [0.9] * len(tasks)})
    assert np.allclose(
        fedgwc.outcomes.in_step(frame, records, table="longer")["accuracy"], 0.4
    )


def test_ingredients_say_when_each_rule_attempts_and_what_it_finds():
    R = len(fedgwc.tasks.rules(fedgwc.tasks.SCALES["laptop"]))
    line = {f"first_{r}": 0 if r == 1 else 80 + r for r in range(R)} | {
        f"clusters_{r}": 2 for r in range(R)
    }
    line |= {f"ari_{r}": 0.25 for r in range(R)} | {"setting": "(40, 30, 30)"}
    table = fedgwc.shown.ingredients(
        pd.DataFrame([line, line | {"first_0": 90}]), {"(40, 30, 30)": "mix"}
    )
    assert (
        len(table) == R
        and table.iloc[0].tolist() == ["85", "2.0", "0.25", ""]
        and table.iloc[1].tolist() == ["–"] * 3 + ["eps"]
    )
    changes = table["changes"]
    assert changes["+ patience, and a fresh start after a look without a split"] == (
        "patience, retry"
    )
    assert changes["+ smoothed MSE"] == "ema"
    assert changes["corrected, β = 1"] == "beta"
    groups = fedgwc.outcomes.rule_groups()
    assert set(table.index) <= set(groups)
    assert len(set(groups.values())) == 4
    names = [name for name in fedgwc.outcomes.SPOKEN if name in table.index]
    assert not names  # a name that hides a change is not shown
    assert len(fedgwc.figures.ingredient_map(table).axes) == 4


def test_tables_show_cost_beside_accuracy():
    runs = pd.DataFrame(
        {
            "row": ["A", "A", "B"],
            "dataset": "cifar100",
            "balanced_accuracy": [0.1, 0.2, 0.3],
            "client_updates": [1000, 3000, 720],
            "clusters": [2, 3, 1],
        }
    )
    paper = pd.DataFrame(
        {"row": ["A", "C"], "dataset": "cifar100", "balanced_accuracy": [0.5, 0.6]}
    )
    table = fedgwc.shown.with_cost(runs, paper, ["row"])["cifar100"]
    assert table.index.get_level_values("row").tolist() == ["A", "B"]
    assert table.iloc[0].tolist() == ["50.0", "15.0", "2,000", "2.5"]
    assert table.iloc[1].tolist() == ["–", "30.0", "720", "1.0"]


def test_null_plays_start_at_their_first_seed():
    plays = partial(fedgwc.theory.null_plays, (6,), runs=3, rounds=30)
    lines = plays(first_seed=1000)
    assert [line["version"] for line in lines] == list(fedgwc.theory.versions())
    assert lines == plays(first_seed=1000)
    assert all(0 <= line["tiny"] <= line["splits"] <= 3 for line in lines)
    printed = fedgwc.theory.versions()["as printed"]
    found = [
        fedgwc.theory.play(printed, np.zeros(6), 3, 30, force=True, seed=seed)
        for seed in (1000, 1001, 1002)
    ]
    assert lines[0]["splits"] == sum(bool(past.labels.any()) for past in found)


def test_versions_that_split_equal_clients():
    def splits(*sizes, **how):
        lines = fedgwc.theory.null_plays(sizes, runs=4, **how)
        return {(line["version"], line["clients"]): line["splits"] for line in lines}

    one = splits(6, 20, rounds=40)
    assert one["as printed", 6] == 4 and one["as released", 6] >= 2
    assert one["corrected", 6] == one["corrected", 20] == 0
    whole = splits(8, rounds=80, whole=True)
    assert whole["corrected before", 8] >= 2 and whole["corrected", 8] == 0


def test_the_record_of_null_splits_is_of_fresh_seeds_and_known_code():
    path = fedgwc.outcomes.common.results("fedgwc") / "null_splits.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["first_seed"] == fedgwc.theory.FRESH_SEED == 1000
    assert record["revision"] == FedGWC.revision
    assert not record["commit"].endswith(("dirty", "unknown"))
    for way in fedgwc.outcomes.NULL_WAYS:
        plays = fedgwc.outcomes.null_splits(way)
        if way == "all sampled" and not len(plays):
            continue  # a record that is older than these plays
        sizes = [*fedgwc.theory.NULL_SIZES]
        for version in fedgwc.theory.versions():
            own = plays[plays["version"] == version]
            assert own["clients"].tolist() == sizes
        assert plays["share"].between(0, 1).all()


def test_plays_of_the_test_against_chance_and_of_the_bound():
    cases = {
        "equal": np.zeros(12),
        "apart": np.repeat([0.0, 3.0], [9, 3]),
    }
    equal, apart = fedgwc.theory.chance_plays((8,), runs=2, sampled=4, cases=cases)
    assert equal["rounds"] == fedgwc.theory.rounds_for(8, 12, 4) == 88
    assert equal["tested"] == 0 and equal["tested_ari"] == 1
    assert apart["tested"] == 2 and apart["tested_ari"] > 0.9
    assert all(line["tested"] <= line["bound"] for line in (equal, apart))
    lines = fedgwc.theory.bound_plays((6,), runs=2)
    assert len(lines) == 8 and {line["sampled"] for line in lines} == {3}
    loose, strict = lines[0], lines[1]
    assert (loose["k_min"], strict["k_min"]) == (1, 3)
    assert loose["splits"] >= strict["splits"]


def test_the_record_of_the_test_against_chance_is_of_fresh_seeds_and_known_code():
    record = fedgwc.outcomes.chance_record()
    assert record["first_seed"] == fedgwc.theory.FRESH_SEED
    assert record["revision"] == FedGWC.revision
    assert not record["commit"].endswith(("dirty", "unknown"))
    cases = list(dict.fromkeys(line["case"] for line in record["chance"]))
    assert cases == [*fedgwc.theory.TOLD_APART]
    table = fedgwc.shown.power()
    assert list(table.index) == cases
    assert table.shape == (len(cases), 2 * len(fedgwc.theory.MEETINGS))
    shown = fedgwc.shown.bound_table()
    assert shown.columns.tolist() == [*fedgwc.theory.NULL_SIZES] and len(shown) == 8
    # the first line repeats the plays of null_splits.json
    one = fedgwc.outcomes.null_splits("one look").query("version == 'as printed'")
    same = fedgwc.outcomes.bound_runs(rounds=60, rate=0.1, k_min=1)
    assert same["splits"].tolist() == one["splits"].tolist()


def test_the_histogram_shows_what_the_rule_decides():
    rule = FedGWC(sampled=4)
    level = np.repeat([0.0, 3.0], [9, 3])
    for losses in (np.zeros(12), level):
        past = fedgwc.theory.play(rule, losses, 4, 88, force=True)
        block = rule.block(past.P, past.visits, torch.arange(12))
        tested = fedgwc.outcomes.against_chance(block, rule, 4)
        split = tested.score <= 1 and tested.as_low <= 1
        assert split == bool(past.labels.any())
    assert split and len(tested.drawn) == 199
    fig = fedgwc.figures.draw_chance({"a": tested, "b": tested})
    assert "0 of 199" in fig.axes[0].get_title()


def test_lines_that_agree_are_drawn_as_one():
    cells = pd.DataFrame({"x": ["1", "1", "2", "1"]}, index=["a", "b", "c", "d"])
    merged = fedgwc.outcomes.merged(cells)
    assert merged.index.tolist() == ["a … b", "c", "d"]
    assert merged["x"].tolist() == ["1", "2", "1"]


def test_shares_of_splits_have_exact_intervals():
    whole = fedgwc.claims.left_whole(0, 80)
    assert whole.mean == whole.high == 1 and 0.95 < whole.low < 0.96
    half = fedgwc.claims.left_whole(10, 20)
    assert half.mean == 0.5 and half.low == pytest.approx(1 - half.high)
    small, large = fedgwc.claims.over_splitting()
    assert "6 to 12 of them" in small.statement and "16 to 30" in large.statement


# --- claims ---------------------------------------------------------------------------


def test_runs_that_never_split_carry_no_verdict():
    runs = pd.DataFrame({"row": ["FedGWC", "IFCA"], "clusters": [1, 5]})
    how = {"replicates": "3 seeds", "scale": "small", "printed": 5.0}
    found = fedgwc.claims.Interval(-9.0, -10.0, -8.0)
    claim = fedgwc.claims.about_clusters(runs, "Better", "Table 1", found, **how)
    assert claim.verdict == "not testable" and "split" in claim.evidence
    assert claim.interval is None
    split = runs.assign(clusters=[2, 5])
    claim = fedgwc.claims.about_clusters(split, "Better", "Table 1", found, **how)
    assert claim.verdict == "fails"


def test_the_better_rival_is_the_higher_was_and_the_lower_wadb():
    runs = pd.DataFrame(
        {
            "dataset": "cifar10",
            "setting": "a",
            "row": ["FedGWC", "IFCA", "FeSEM"],
            "was": [0.5, 0.1, -0.2],
            "wadb": [1.0, 4.0, 1.5],
        }
    )
    assert fedgwc.claims._over_better_rival(runs, "was") == pytest.approx([0.4])
    assert fedgwc.claims._over_better_rival(runs, "wadb") == pytest.approx([0.5])
    unsplit = runs.assign(was=[np.nan, 0.1, -0.2])
    assert fedgwc.claims._over_better_rival(unsplit, "was") == []


def test_headlines_are_claims_of_the_paper():
    judged = fedgwc.claims.claims()
    chosen = fedgwc.claims.headlines(judged)
    names = [re.split(r": | \(rule as", claim.statement)[0] for claim in chosen]
    assert list(dict.fromkeys(names)) == [*fedgwc.claims.HEADLINES]
    assert not any(claim.ours for claim in chosen)


def test_indices_end_at_one_and_six_runs_decide_nothing():
    cut = fedgwc.claims.at_most_one(fedgwc.claims.Interval(0.9, 0.7, 1.1))
    assert (cut.low, cut.high) == (0.7, 1.0)
    assert fedgwc.claims.homogeneous().verdict == "not testable"
    assert fedgwc.claims.left_whole(0, 6).low < 0.95


# --- the fairer runs ------------------------------------------------------------------


@pytest.fixture
def fairer(tmp_path, monkeypatch):
    """A folder of records in which every fairer run copies one that is there."""
    outcomes = fedgwc.outcomes
    folder = outcomes.common.results("fedgwc")
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    known = {}
    for table in ("longer", "heterogeneity", "cifar100", "beta"):
        records = outcomes.tables.by_key(folder / f"{table}.json")
        for task in fedgwc.tasks.TABLES[table]("laptop"):
            tags = task.tags
            cell = tags.get("setting", table)
            where = (tags["row"], tags.get("aggregator", "FedAvg"), tags.get("beta"))
            known[task.seed, task.dataset, cell, *where] = records[task.key]

    def copied(table, task):
        tags = task.tags
        seed, dataset = task.seed, task.dataset
        if table == "emnist_small":
            beta = tags["beta"]
            place, beta = (
                ("beta", beta) if beta not in ("–", "0.5") else ("cifar100", None)
            )
            return known[seed, "cifar100", place, tags["row"], tags["aggregator"], beta]
        cell = "longer" if tags["setting"] == "α = 0.5" else tags["setting"]
        row = tags["row"] if table == "level_rivals" else "FedGWC"
        return known[seed, dataset, cell, row, "FedAvg", None]

    made = {}
    read = outcomes.tables.by_key

    def write(table, change=lambda record, task: record):
        (tmp_path / f"{table}.json").write_text("")
        made[table] = {
            task.key: change(copy.deepcopy(copied(table, task)), task)
            for task in fedgwc.tasks.TABLES[table]("laptop")
        }

    def by_key(path):
        return made[path.stem] if path.stem in made else read(path)

    monkeypatch.setattr(outcomes.tables, "by_key", by_key)
    monkeypatch.setattr(outcomes.common, "results", lambda paper: tmp_path)
    return write


@pytest.mark.parametrize(
    ("table", "reader"),
    [
        ("untested", fedgwc.claims.by_level),
        ("level_rivals", fedgwc.claims.level_quality),
        ("emnist_small", fedgwc.claims.on_emnist),
        ("k_min", fedgwc.shown.least_sizes_table),
    ],
)
def test_without_its_records_no_other_rule_is_judged(fairer, tmp_path, table, reader):
    (tmp_path / f"{table}.json").unlink()
    with pytest.raises(FileNotFoundError, match=table):
        reader()


def test_claims_are_judged_on_the_rule_without_our_test(fairer):
    def split(record, task):
        curves, final = record["metrics"]["curves"], record["metrics"]["final"]
        if task.tags["setting"] != "α = 0.5" or task.seed == 2:
            return record
        control = task.tags["row"] == "Random members, same splits"
        curves["clusters"] = [1, 1, 1, 1] + [2] * (len(curves["round"]) - 4)
        curves["labels"][-1] = [0] * 20 + [1] * 10
        if not control:
            better = [x + 0.1 for x in curves["balanced_accuracy"]]
            curves["balanced_accuracy"] = better
        final |= {"clusters": 2, "was": 0.1, "wadb": 2.0}
        return record

    fairer("untested", split)
    figures = fedgwc.figures
    first, *_ = fedgwc.claims.accuracies()
    assert first.interval.mean == pytest.approx(20 / 3, abs=0.2)  # of three seeds two
    assert "2 of them split" in first.replicates and "without" in first.scale
    members, jump = fedgwc.claims.members_long()
    assert members.interval.mean == pytest.approx(10) and members.ours
    assert jump.interval.mean == pytest.approx(0) and jump.ours
    was, wadb = fedgwc.claims.table1_quality()
    assert was.interval.mean > 0 and wadb.statement.endswith("(WADB, lower is better)")
    assert fedgwc.claims.jumps().interval.mean == pytest.approx(0, abs=5)
    table = fedgwc.shown.untested_table()
    line = table.loc[("FedGWC without our test", "seed 0")]
    assert line["sizes at the end"] == "[20, 10]" and line["WAS"] == "0.10"
    assert line["split by round"] == "100"
    assert table.loc[("FedGWC without our test", "seed 2"), "split by round"] == "–"
    quality = fedgwc.shown.quality().xs("FedGWC without our test", level="row")
    assert (quality["WAS, paper"] != "–").all()
    shown = fedgwc.shown.where_it_split()["split without our test"]
    assert shown["the same for longer (Figure 2)"] == "2 of 3 runs"
    names = [
        words.get_text() for words in figures.quality_dots().axes[0].get_yticklabels()
    ]
    assert names[:2] == ["FedGWC with our test", "FedGWC without our test"]
    drawn = [line.get_label() for line in figures.long_curves().axes[0].lines]
    assert drawn[0] == "FedAvg =\nFedGWC with our test"
    assert "FedGWC without our test" in drawn


def test_levels_are_judged_against_rivals_at_equal_updates():
    runs = fedgwc.outcomes.judged_levels()
    rivals = runs[runs["row"].isin(fedgwc.claims.RIVALS)]
    assert len(rivals) == 36 and set(rivals["client_updates"]) == {600}
    _, was, *_ = fedgwc.claims.level_quality()
    assert was.interval.low < was.interval.mean < was.interval.high
    assert "IFCA and FeSEM 600" in was.scale


def test_tables_5_and_9_on_emnist(fairer):
    fairer("emnist_small")
    helps, robust = fedgwc.claims.on_emnist()
    assert helps.verdict == robust.verdict == "not testable"  # nothing was split there
    table = fedgwc.shown.emnist_table()
    assert len(table) == 15
    line = table.loc[("FedProx", "FedGWC without our test", "0.5")]
    assert line["paper"] == "76.3" and line["clusters at the end"] == "1.0"
    assert line["lead at equal updates"] == line["lead at equal rounds"] == "+0.0"
    plain = table.loc[("pFedMe", "without FedGWC", "–")]
    assert plain["clusters at the end"] == "1.0"  # a client's own model is no cluster
    assert table.loc[("FedAvg", "FedGWC without our test", "2.0"), "paper"] == "75.6"

    def split(record, task):
        record["metrics"]["final"]["clusters"] = 2
        return record

    fairer("emnist_small", split)
    helps, robust = fedgwc.claims.on_emnist()
    assert helps.interval.mean == pytest.approx(0, abs=0.01)
    assert robust.interval.mean == pytest.approx(0, abs=0.01)


def test_what_the_page_says_of_the_rule_without_our_test():
    own = fedgwc.outcomes.untested_courses()
    plain = fedgwc.outcomes.courses()["no clusters"]
    pairs = zip(own["FedGWC, no test"], own["Random members, same splits"], strict=True)
    for (split, control), other in zip(pairs, plain, strict=True):
        assert 4 <= split["clusters"].iloc[-1] <= 7
        leads = [fedgwc.outcomes.lead(one, other) for one in (split, control)]
        assert 0.05 < leads[0] < leads[1]  # random members gain more, in every seed
    runs = fedgwc.outcomes.untested("α = 0.5").groupby(["seed", "row"])["was"].first()
    ours, random = (runs.xs(row, level="row") for row in sorted(own))
    assert (ours > random).all() and (ours < 0.1).all()
    table = fedgwc.shown.where_it_split()["split without our test"]
    assert table["mixes of levels (Tables 3, 6)"] == "17 of 18 runs"
    assert table["homogeneous clients (Figure 6)"] == "1 of 6 runs"


def test_the_two_scores_disagree_on_table_1():
    runs = fedgwc.outcomes.judged_long()
    runs = runs.assign(setting=runs["seed"])
    for score, sign in (("was", 1), ("wadb", -1)):
        gaps = fedgwc.claims._over_better_rival(runs, score)
        assert len(gaps) == 3 and all(sign * gap > 0 for gap in gaps)


# --- larger runs, when they come ------------------------------------------------------


@pytest.fixture
def looked(tmp_path, monkeypatch):
    """Made-up records of the tables ``LOOKED`` beside the other ones of the book.

    Every rule looks twice in vain, then splits with one mistake or none; IFCA and FeSEM
    find nothing of use.
    """
    outcomes = fedgwc.outcomes
    here = outcomes.common.results("fedgwc")
    known = store.read(here / "longer.json")[0]
    for file in here.glob("*.json"):
        (tmp_path / file.name).symlink_to(file)
    split = {"rand": 0.9, "ari": 0.7, "was": 0.9, "wadb": 0.5, "clusters": 2}
    final = {"rand": 0.4, "was": -0.5, "wadb": 2.0, "clusters": 3}
    for r in range(len(fedgwc.tasks.lookers(5))):
        vain = [[400, 1, 0.3], [500, 1, 0.3]]
        final |= {f"looks_{r}": [*vain, [800, 2, 0.9]], f"split_{r}": 800}
        final |= {f"{score}_{r}": value for score, value in split.items()}
    final["wadb_0"] = None  # as a file has a number that does not exist
    record = known | {"metrics": {"final": final, "curves": {}}}
    made = {table: {} for table in outcomes.LOOKED}
    for table, records in made.items():
        for task in fedgwc.tasks.TABLES[table]("workstation"):
            records[task.key] = record | {"dataset": task.dataset, "seed": task.seed}
    read = outcomes.tables.by_key
    monkeypatch.setattr(
        outcomes.tables,
        "by_key",
        lambda path: made[path.stem] if path.stem in made else read(path),
    )
    monkeypatch.setattr(outcomes.common, "results", lambda paper: tmp_path)
    return made


def test_a_missing_look_is_an_error(looked):
    looked["looks"].clear()
    with pytest.raises(ValueError, match="lacks 24 of"):
        fedgwc.outcomes.looked_rivals()
    with pytest.raises(KeyError):
        fedgwc.outcomes.looks()


def test_each_rule_is_judged_where_it_first_splits(looked):
    runs = fedgwc.outcomes.looks()
    assert set(runs["seed"]) == {3, 4, 5}
    assert set(runs["rule"]) == {*fedgwc.tasks.lookers(5)}
    two = runs[runs["groups"] == 2]
    assert np.allclose(two["rand_of_one"], 2 * 190 / 780)
    assert (runs["split"] == 800).all()
    first = runs["rule"] == [*fedgwc.tasks.lookers(5)][0]
    assert runs.loc[first, "wadb"].isna().all() and runs["wadb"][~first].eq(0.5).all()
    axes = fedgwc.figures.draw_looks(runs[runs["seed"] == 3]).axes
    assert len(axes) == 7
    assert {text.get_text() for text in axes[0].texts} == {"2 clusters, Rand 0.90"}
    equal = {text.get_text() for text in axes[-1].texts}  # they have no groups to find
    assert equal == {"2 clusters"}
    *claims, three_at_once = fedgwc.claims.domains()
    assert three_at_once.verdict == "not testable"
    claims += fedgwc.claims.by_level_long()
    names = [claim.statement for claim in claims[:6]]
    assert names == [  # noise drawn once for each image is not judged
        f"Separates visual domains: {setting} (rule as {rule})"
        for setting in ("noise anew, σ = 3", "blur, 6 pixels")
        for rule in ("released", "printed", "corrected")
    ]
    means = {claim.interval.mean for claim in claims[6:]}  # adjusted: levels
    assert [*means] == [pytest.approx(0.7)]
    assert claims[6].unit == "adjusted Rand index"
    seeds = {claim.replicates for claim in claims}
    assert seeds == {"3 of 3 seeds; no split counts 0"}
    assert {claim.verdict for claim in claims} == {"holds"}
    judged = fedgwc.claims.headlines(claims)
    assert len(judged) == 6  # as released and as printed
    assert not any("corrected" in claim.statement for claim in judged)
    assert [claim.ours for claim in claims] == 3 * [False, False, True]
    words = fedgwc.claims.on_looks(claims)
    assert "blur, 6 pixels *holds*; three levels *holds*" in words
    assert words.endswith("three levels *holds*") and "ε = 6e-05" in words
    assert fedgwc.shown.seeds_of_looks(runs) == (
        "All three seeds are run; with ε = 6e-05, and as printed, each rule looks 3 "
        "times or more in every run"
    )


def test_fewer_than_three_seeds_decide_nothing(monkeypatch):
    lines = [
        {"setting": "levels", "rule": rule, "seed": seed, "split": 800, "ari": 0.7}
        | {"looks": [[800, 2, 0.9]]}
        for rule in fedgwc.claims.RULES_JUDGED.values()
        for seed in (3, 4, 5)
    ]
    for seeds, verdict in {1: "open", 2: "open", 3: "holds"}.items():
        runs = pd.DataFrame([line for line in lines if line["seed"] < 3 + seeds])
        monkeypatch.setattr(fedgwc.outcomes, "looks", lambda runs=runs: runs)
        claims = fedgwc.claims.by_level_long()
        assert [claim.verdict for claim in claims] == 3 * [verdict]


def test_levels_with_several_looks_are_held_against_equal_updates(looked):
    statement = "Better clusters of levels than IFCA and FeSEM ({}) (rule as released)"
    names = [
        statement.format("WAS, higher is better"),
        statement.format("WADB, lower is better"),
    ]
    found = {c.statement: c for c in fedgwc.claims.level_quality()}
    was, wadb = (found[name] for name in names)
    assert was.interval.mean == pytest.approx(0.9 - -0.5)
    assert wadb.interval.mean == pytest.approx(2.0 - 0.5)
    assert was.verdict == wadb.verdict == "holds"
    assert was.printed == pytest.approx(0.6 - 0.1)  # Table 6, three levels
    assert wadb.printed is None and "9,000 client updates" in was.scale
    rand = fedgwc.shown.looked_table()
    assert rand.loc["released, ε = 6e-05, first split", "levels"] == "0.90"
    assert rand.loc["IFCA, at the end", "levels"] == "0.40"


def shown_by(words, judged=()):
    """What the one cell of the page that has these words displays."""
    page = json.loads(PAGE.read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in page["cells"]]
    (source,) = [source for source in sources if words in source]
    shown = []
    names = {"fedgwc": fedgwc, "figures": fedgwc.figures, "judged": judged}
    names |= {"outcomes": fedgwc.outcomes, "shown": fedgwc.shown}
    names |= {"Markdown": str, "display": shown.append}
    names |= {"show": lambda figure, alt: shown.append(figure)}
    exec(source, names)
    return shown


def test_the_page_shows_the_looks(looked):
    judged = [*fedgwc.claims.domains(), *fedgwc.claims.by_level_long()]
    words, picture = shown_by("outcomes.looks()")
    _, table, verdicts = shown_by("shown.looked_table()", judged)
    assert "All three seeds are run; with ε = 6e-05" in words
    assert len(picture.axes) == 7 and len(table) == 6
    assert "as released: noise anew, σ = 3 *holds*; blur, 6 pixels *holds*" in verdicts


def test_least_sizes_stand_beside_the_least_one():
    table = fedgwc.shown.least_sizes_table()
    assert [*table.index] == [3, 6, 10, 15]
    untested = fedgwc.outcomes.untested("α = 0.5")
    own = untested[untested["row"] == fedgwc.outcomes.NO_TEST]
    assert table.loc[3, "WAS"] == f"{own['was'].mean():z.2f}"
    assert table.loc[15, "clusters"] == "1.0 (1.0 to 1.0)"
    assert table.loc[15, "lead at equal rounds"] == "+0.0 (+0.0 to +0.0)"  # is FedAvg
    assert table.loc[15, "WAS"] == "–"  # one cluster has none


def test_looks_are_drawn_apart():
    assert fedgwc.figures.apart([5]) == [5]
    assert fedgwc.figures.apart([5, 6, 24, 25, 44, 45]) == [5, 25, 45]


def test_rules_and_rivals_stand_in_one_table(monkeypatch):
    names = list(fedgwc.tasks.lookers(5))
    rand = dict(zip(names, [0.1, 0.9, 0.1, 0.1, 0.8, 0.1, 0.5], strict=True))
    lines = [
        {"setting": setting, "rule": name, "seed": seed, "groups": groups}
        | {"rand": rand[name], "rand_of_one": 0.49}
        for setting, groups in (("blur, 6 pixels", 2), ("equal clients", 1))
        for name in names
        for seed in (3, 4)
    ]
    rivals = pd.DataFrame({"row": ["IFCA", "IFCA"], "rand": [0.6, 0.8]})
    rivals = rivals.assign(setting="blur, 6 pixels")
    monkeypatch.setattr(fedgwc.outcomes, "looks", lambda: pd.DataFrame(lines))
    monkeypatch.setattr(fedgwc.outcomes, "looked_rivals", lambda: rivals)
    table = fedgwc.shown.looked_table()
    assert [*table.columns] == ["blur, 6 pixels"]
    assert [*table["blur, 6 pixels"]] == ["0.49", "0.90", "0.80", "0.50", "0.70"]
    assert table.index[-1] == "IFCA, at the end"


def test_domains_are_held_against_the_better_rival_of_each_seed(monkeypatch):
    setting = "blur, 6 pixels"
    rules = fedgwc.claims.RULES_JUDGED
    rand = {"released": [1.0, 0.9, 1.0], "printed": [0.9, 0.5, 0.7]}
    lines = [
        {"setting": setting, "rule": rules[rule], "seed": seed, "rand": own[seed]}
        for rule, own in rand.items()
        for seed in range(3)
    ]
    rivals = [
        {"setting": setting, "row": row, "seed": seed, "rand": own[seed]}
        for row, own in {"IFCA": [0.5, 0.5, 0.6], "FeSEM": [0.6, 0.4, 0.5]}.items()
        for seed in range(3)
    ]
    monkeypatch.setattr(fedgwc.outcomes, "looks", lambda: pd.DataFrame(lines))
    monkeypatch.setattr(fedgwc.outcomes, "looked_rivals", lambda: pd.DataFrame(rivals))
    released, printed = fedgwc.claims.domains_beside_rivals()
    assert released.interval.mean == pytest.approx(0.4)
    assert printed.interval.mean == pytest.approx((0.3 + 0.0 + 0.1) / 3)
    assert (released.verdict, printed.verdict) == ("holds", "open")


def test_rules_that_hardly_looked_are_not_judged(monkeypatch):
    names = list(fedgwc.tasks.lookers(5))
    common = {"rand": 0.49, "rand_of_one": 0.49, "split": 0}
    common |= {"setting": "noise, σ = 3"}
    lines = [
        common | {"rule": name, "seed": seed, "looks": [[900, 1, 0.49]] * looks}
        for name, looks in zip(names, [3, 3, 3, 2, 2, 2, 2], strict=True)
        for seed in (3, 4, 5)
    ]
    monkeypatch.setattr(fedgwc.outcomes, "looks", lambda: pd.DataFrame(lines))
    noise = "noise, σ = 3"
    found = fedgwc.claims.at_first_split("It finds", "here", noise, 0.5)
    verdicts = [claim.verdict for claim in found]
    assert verdicts == ["fails", "not testable", "not testable"]
    runs = pd.DataFrame(lines)
    words = fedgwc.figures.first_splits(runs[runs["rule"] == names[0]])
    assert words == "0 of 3 split"
    assert fedgwc.figures.first_splits(runs[:1]) == "no split"


@pytest.fixture
def large_emnist(tmp_path, monkeypatch):
    """Records of ``emnist`` in which FedGWC as released splits.

    The first seed is whole; the others lack the rules of FedGWC.
    """
    known = store.read(fedgwc.outcomes.common.results("fedgwc") / "longer.json")[0]
    monkeypatch.setattr(fedgwc.outcomes.common, "results", lambda paper: tmp_path)
    assert fedgwc.shown.larger_runs("emnist") is None
    usual = {"balanced_accuracy": [0.1, 0.6, 0.7, 0.8], "clusters": [1, 1, 1, 1]}
    usual |= {"client_updates": [250, 500, 750, 1000], "wadb": [None, None, None, 2.0]}
    split = {"balanced_accuracy": [0.1, 0.6, 0.9, 0.9], "clusters": [1, 1, 4, 4]}
    split = usual | split | {"client_updates": [250, 500, 1000, 1500]}
    records = {}
    for task in fedgwc.tasks.TABLES["emnist"]("paper"):
        curves = dict(usual)
        if task.tags["row"] == "in step":
            curves = {}
            for row, _ in task.method.arms:
                own = split if row == "FedGWC as released" else usual
                curves |= {f"{row}|{score}": own[score] for score in own}
        final = {name: values[-1] for name, values in curves.items()}
        if task.tags["row"] != "in step":
            final |= {"was": None}
            del final["client_updates"]
        else:
            final |= {f"{row}|was": None for row, _ in task.method.arms}
        curves["round"] = [100, 200, 300, 400]
        if task.seed == 0 or task.tags["row"] != "in step":
            metrics = {"final": final, "curves": curves}
            records[task.key] = known | {"metrics": metrics, "client_updates": 1000}
    (tmp_path / "emnist.json").write_text("")
    monkeypatch.setattr(fedgwc.outcomes.tables, "by_key", lambda path: records)


def test_larger_runs_are_used_by_whole_seeds(large_emnist):
    assert set(fedgwc.outcomes.own_scale("emnist")["seed"]) == {0}
    courses = fedgwc.outcomes.own_courses("emnist")
    assert {len(seeds) for seeds in courses.values()} == {1}
    assert fedgwc.outcomes.own_scale("cifar100_long") is None


def test_larger_runs_stand_beside_the_papers_table(large_emnist):
    table = fedgwc.shown.larger_runs("emnist")
    assert len(table) == 9
    answers = table.loc["Majority class"]
    assert answers["balanced, ours"] == "93.3"
    assert answers["WAS, ours"] == "–"
    line = table.loc["IFCA (5)"]
    assert line["balanced, paper"] == "76.7" and line["balanced, ours"] == "70.0"
    assert line["WAS, ours"] == "–"
    assert (line["clusters, ours"], line["client updates"]) == ("1", "1,000")
    assert table.loc["LocalOnly", "balanced, paper"] == "–"
    # the paper's number stands beside the authors' rule, not beside ours
    assert table.loc["FedGWC with our test", "balanced, paper"] == "–"
    assert table.loc["FedAvg", "balanced, paper"] == "76.6"
    line = table.loc["FedGWC as released"]
    assert (line["balanced, paper"], line["balanced, ours"]) == ("76.1", "80.0")
    assert line["split by round"] == "300"  # of the evaluated ones
    assert table.loc["FedGWC with our test", "split by round"] == "–"
    assert (line["clusters, ours"], line["client updates"]) == ("4", "1,500")


def test_only_rows_with_fedavgs_numbers_share_its_line(large_emnist):
    drawn = fedgwc.figures.larger_curves("emnist").axes[0].lines
    first, released = drawn
    assert first.get_label().startswith("FedAvg =\nFedGWC with our test =\n")
    assert released.get_label() == "FedGWC as released"
    assert released.get_xdata()[-1] == 1500
    assert fedgwc.figures.larger_curves("cifar100_long") is None


def test_the_page_takes_emnist_in_by_itself(large_emnist):
    words, picture, heads, table = shown_by("shown.larger_runs(")
    assert "split anew" in words and "beside the authors' released rule" in heads
    assert len(picture.axes[0].lines) == 2
    assert len(table) == 9


def test_femnist_is_judged_for_each_rule_at_equal_updates(large_emnist):
    released, corrected = fedgwc.claims.femnist()
    assert corrected.verdict == "not testable"  # it never split
    assert released.verdict == "open"  # a single seed
    assert released.replicates == "1 seed, 1 of them split"
    assert released.printed == pytest.approx(0.1) and "fewer than" in released.reason
    ahead = (0.1 + 0.6 + 0.9) / 3 - (0.6 + 0.7 + 0.8) / 3  # up to 1,000 updates
    assert released.interval.mean == pytest.approx(100 * ahead)


# --- the majority class ---------------------------------------------------------------


def test_every_deal_has_its_majority_class():
    for table in (*fedgwc.priors.DEALT, fedgwc.priors.PER_CLASS):
        made = fedgwc.priors.read(table)
        wanted = fedgwc.priors.deals(table)
        places = [(task.tags.get("setting", ""), task.seed) for task in wanted]
        assert [*zip(made["setting"], made["seed"], strict=True)] == places
        assert made["balanced_accuracy"].between(0, 1).all()
    (record,) = fedgwc.priors.read("emnist").query("seed == 0").to_dict("records")
    assert record["classes_held"] == pytest.approx(1.16)  # of 47


def test_the_papers_own_deal_is_computed_without_its_data(monkeypatch):
    monkeypatch.setattr(data, "load", None)  # would fail if called
    task = fedgwc.priors.deals("cifar100")[1]
    line = fedgwc.priors.deal("cifar100", task)
    stored = fedgwc.priors.read("cifar100").query("seed == 1").to_dict("records")[0]
    assert line == {name: stored[name] for name in line}


def test_the_majority_class_stands_in_the_tables():
    row = fedgwc.priors.ROW
    long = fedgwc.shown.long_runs().loc[row]
    answers = fedgwc.priors.read("longer")["balanced_accuracy"]
    assert long["balanced"] == round(100 * answers.mean(), 1)
    assert (long["clusters at the end"], long["client updates"]) == ("–", 0)
    found = fedgwc.shown.found_groups().loc[row]
    assert found["ARI, levels"] == "–" and found.iloc[-1] == 0
    small = fedgwc.shown.emnist_table().loc[("–", row, "–")]
    assert float(small["ours"]) > 90 and small["paper"] == "–"
    paper = fedgwc.shown.majority_in_the_paper()
    assert set(paper["rows of Table 1, in print"]) == {"42 to 53", "76 to 83"}
    claims = fedgwc.claims.against_majority()
    assert len(claims) == 3 and all(claim.ours for claim in claims)


def test_a_clusters_best_single_answer_by_hand():
    train = np.array([[3, 1, 0], [2, 0, 0], [0, 0, 4], [0, 5, 1]])
    test = np.array([[1, 1, 0], [2, 0, 0], [0, 0, 1], [0, 2, 2]])
    apart = fedgwc.priors.one_answer(train, test, np.arange(4))
    assert apart == pytest.approx((1 / 2 + 1 + 1 + 1 / 2) / 4)  # each its own majority
    pairs = fedgwc.priors.one_answer(train, test, np.array([0, 0, 1, 1]))
    assert pairs == pytest.approx((1 / 2 + 1 + 1 + 1 / 2) / 4)  # classes 0 and 2
    together = fedgwc.priors.one_answer(train, test, np.zeros(4))
    assert together == pytest.approx((1 / 2 + 1) / 4)  # class 0, or class 2: the same


def test_a_cluster_for_each_client_has_its_majority_class():
    found = fedgwc.priors.read_clusters()
    alone = found[found["row"] == "LocalOnly"].set_index("seed")["one_answer"]
    answers = fedgwc.priors.read("longer").set_index("seed")["balanced_accuracy"]
    assert alone.to_dict() == pytest.approx(answers.to_dict(), abs=1e-6)
    assert set(found["table"]) == {"longer", "untested"} and len(found) == 30


# --- pictures of splits, and classes in clusters --------------------------------------


def test_splits_are_watched_and_drawn():
    course, splits = fedgwc.figures.run_and_watch(RULE, digits(), 45)
    assert course.shape == (45, 30) and len(splits) >= 1
    first = splits[0]
    assert len(first.members) == 30 and first.block.shape == (30, 30)
    assert len(np.unique(course[first.round - 1])) == int(first.labels.max()) + 1
    assert len(np.unique(course[first.round - 2])) == 1
    kinds = np.repeat(["all", "one"], [22, 8])
    assert len(fedgwc.figures.split_tree(course, kinds).axes[0].lines) >= 30
    drawn = fedgwc.figures.draw_splits(splits, 0.5, kinds)
    assert len(drawn.axes) == len(splits)


def test_overlap_of_classes():
    counts = np.array([[10, 0, 0], [0, 10, 0], [5, 5, 0], [0, 0, 10]])
    apart = fedgwc.shown.overlap(counts, np.array([0, 0, 0, 1]))
    assert apart == 0
    assert fedgwc.shown.overlap(counts[:3], np.array([0, 0, 1])) == 1
    assert fedgwc.shown.overlap(counts[:3], np.array([0, 1, 1])) == pytest.approx(0.25)


def test_couplings_sums_and_ways_to_cut():
    x, y = np.random.default_rng(1).dirichlet(np.ones(5), 2)
    costs = fedgwc.theory.cost_of_mixtures(x, y, 200)
    assert costs.min() >= metrics.wasserstein(x, y) and len(costs) == 200
    assert fedgwc.theory.most_sampled(100, 0.1, 30)[1] == pytest.approx(10)
    assert fedgwc.theory.most_sampled(100, 0.1, 25)[1] == pytest.approx(12)
    assert fedgwc.theory.most_sampled(6, 0.5, 2)[0] == 4  # 6, 4+2, 3+3, 2+2+2
    assert fedgwc.theory.hidden_by_sums() == pytest.approx(1 - np.exp(-2 / 3), abs=1e-5)


def test_plays_remember_every_look():
    rule = FedGWC(sampled=4, eps=0.01)
    past = fedgwc.theory.play(rule, np.zeros(12), 4, 150, again=True)
    assert len(past.looks) > 1 and past.looks == sorted(past.looks)
    lines = fedgwc.theory.first_looks(rounds=30, runs=2, clients=20, sampled=10)
    assert [line["reading"] for line in lines] == [*fedgwc.theory.READINGS]
    assert all(len(line["first"]) == 2 for line in lines)
