"""The arena: worlds, budgets, honest tuning, and what its analysis makes of records."""

import dataclasses
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from fednb import arena, data, methods, tables
from fednb.arena import analysis, comparison, figures, tasks
from fednb.arena.__main__ import main
from fednb.arena.methods import ENTRIES, RIGHT, STEPS, WRONG
from fednb.arena.tasks import Setting
from fednb.arena.worlds import worlds
from fednb.federation import Federation
from fednb.papers import CATALOGUE
from fednb.ranks import signed_rank
from fednb.sweeps import sweep

SMOKE = worlds("smoke")
LAPTOP = worlds("laptop")
BY_NAME = {entry.name: entry for entry in ENTRIES}


def a_task(world="concept-shift", name="FedAvg", seed=0, tuning=False, value=None):
    entry = BY_NAME[name]
    setting = Setting(0.1, entry.usual if value is None else value)
    return tasks.task("smoke", SMOKE[world], entry, setting, seed, name, tuning)


# --- worlds --------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
def test_there_are_ten_worlds_each_with_a_sentence(profile):
    found = worlds(profile)
    assert len(found) == 10
    for world in found.values():
        assert world.hidden.endswith(".") and world.hidden.count(". ") <= 1
        assert 0 < world.sampled <= world.clients
        assert (world.law is None) == bool(world.kinds)
    if profile == "laptop":
        assert all(20 <= world.clients <= 40 for world in found.values())
        assert sum(world.is_grouped for world in found.values()) == 7


def test_an_unknown_profile_is_told():
    with pytest.raises(ValueError, match="no worlds of profile 'paper'"):
        worlds("paper")


@pytest.mark.parametrize("name", SMOKE)
def test_the_hidden_truth_is_what_the_world_says(name):
    world = SMOKE[name]
    fed = a_task(name).federation()
    assert world.clients == fed.K
    if world.groups is None:
        assert fed.truth.labels is None
    else:
        assert fed.truth.labels.tolist() == world.truth.tolist()
        assert len(set(world.truth.tolist())) == world.groups


@pytest.mark.parametrize("name", SMOKE)
def test_tuning_has_no_test_samples_and_training_no_validation_samples(name):
    fed = a_task(name, tuning=True, seed=tasks.TUNING_SEED).federation()
    assert len(fed.sample_numbers(on="test")) == 0
    train = set(fed.sample_numbers(on="train").tolist())
    aside = set(fed.sample_numbers(on="validation").tolist())
    assert len(aside) > 0 and not train & aside
    with pytest.raises(ValueError, match="no such samples"):
        fed.evaluate(fed.start(), torch.zeros(fed.K, dtype=torch.long))


@pytest.mark.parametrize("name", SMOKE)
def test_tests_are_official_images_that_no_client_ever_trains_on(name):
    """Train lists of any seed come from the training rows, tests from the others."""
    world = SMOKE[name]
    fed = a_task(name).federation()
    with pytest.raises(ValueError, match="no samples aside"):
        fed.sample_numbers(on="validation")
    tested = fed.sample_numbers(on="test")
    trained = fed.sample_numbers(on="train")
    assert len(tested) > 0 and not set(tested.tolist()) & set(trained.tolist())
    fed.probe(world.probe)  # and some are left for the server
    if not world.kinds:
        rows = data.load(world.dataset(0, tuning=False)).n_train
        assert tested.min() >= rows > trained.max()
        return
    assert "official=True" in world.dataset(0, tuning=False)
    assert "official=False" in world.dataset(0, tuning=True)
    assert "test=0.0" in world.dataset(0, tuning=True)


def test_the_ranking_meets_other_deals_than_the_tuning():
    for profile, scale in tasks.SCALES.items():
        assert tasks.TUNING_SEED not in scale.seeds, profile


# --- who takes part ------------------------------------------------------------------


def test_every_method_of_the_library_takes_part():
    world = LAPTOP["rotation"]
    made = {type(entry.make(world, entry.usual, 20, 0)) for entry in ENTRIES}
    assert made == set(methods.ALL)
    assert len(BY_NAME) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_all_have_the_same_small_budget_of_settings(entry):
    settings = tasks.settings(tasks.SCALES["laptop"], entry)
    assert len(settings) == 3 * len(entry.values) <= 9
    assert len(entry.values) == len(set(entry.values))
    assert bool(entry.knob) == (len(entry.values) > 1)
    if entry.told:
        assert {RIGHT, WRONG} < set(entry.values)
    for world in LAPTOP.values():
        if entry.grouped_only and not world.is_grouped:
            continue
        made = {repr(entry.make(world, value, 20, 0)) for value in entry.values}
        assert len(made) == len(entry.values)  # the knob turns something


ASK_MORE = {"CFL": 2, "FL+HC": 1, "AutoCFL": 2}  # rounds with everybody


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_run_spends_its_budget_of_gradients(entry, monkeypatch):
    """Whatever a method trains: steps of all clients, against what it says to cost."""
    done = 0
    train = Federation.train

    def counted(self, *args, **options):
        nonlocal done
        update = train(self, *args, **options)
        done += int((~update.losses.isnan()).sum())
        return update

    monkeypatch.setattr(Federation, "train", counted)
    world = SMOKE["concept-shift"]
    task = a_task(name=entry.name)
    fed = task.federation()
    state = task.method.init(fed)
    for t in range(task.rounds):
        fed.t = t
        state = task.method.step(state, fed, t)
    planned = task.rounds * entry.per_round(world, entry.usual) * STEPS
    further = ASK_MORE.get(entry.name, 0) * (world.clients - world.sampled) * STEPS
    assert 0.7 * planned <= done <= 1.15 * planned + further


def test_who_trains_more_has_fewer_rounds():
    world = LAPTOP["rotation"]
    rounds = {e.name: e.rounds(world, e.usual) for e in ENTRIES}
    assert rounds["FedAvg"] == 50 and rounds["WeCFL"] == 25 and rounds["Ditto"] == 25
    few = {e.name: e.rounds(LAPTOP["few-sampled"], e.usual) for e in ENTRIES}
    assert few["FedAvg"] == 125 and few["WeCFL"] == 12
    assert BY_NAME["FedEM"].rounds(world, 4, share=0.5) == 6


# --- tasks ---------------------------------------------------------------------------


def test_the_tables_are_in_the_catalogue():
    assert CATALOGUE["arena"] is arena.TABLES
    for make in arena.TABLES.values():
        assert make("paper") == []


def test_memberships_are_kept_at_every_quarter_of_a_run():
    for task in tasks.ranking("smoke"):
        evaluated = {t for t in range(1, task.rounds + 1) if t % task.every == 0}
        evaluated.add(task.rounds)
        assert 2 <= len(evaluated) <= 4 and "members" in task.curves


@pytest.fixture(name="all_trials", scope="module")
def all_trials_fixture():
    """The tasks of the tuning, 2541 of them: made once for all tests."""
    return tasks.tuning("laptop")


def test_tuning_tries_every_setting_once_in_every_world(all_trials):
    found = all_trials
    assert len({task.key for task in found}) == len(found) == 2541
    assert {task.seed for task in found} == {tasks.TUNING_SEED}
    assert {task.measure for task in found} == {tasks.measure_validation}
    cells = {
        tuple(task.tags[name] for name in ("world", "method", "lr", "value"))
        for task in found
    }
    assert len(cells) == len(found)
    assert {task.tags["world"] for task in found} == set(LAPTOP)


def test_the_forecast_fits_three_hours_of_two_cores_and_counts_the_tasks(all_trials):
    cost = tasks.budget("laptop")
    assert cost["tuning"].runs == len(all_trials)
    assert sum(part.hours for part in cost.values()) / 2 < 3
    text = tasks.__doc__
    assert f"{cost['tuning'].runs:,}" in text and f"{cost['ranking'].runs:,}" in text
    assert f"| {cost['tuning'].hours:.1f} |" in text
    assert f"| {cost['ranking'].hours:.1f} |" in text
    spent = sum(
        task.rounds
        * BY_NAME[task.tags["method"]].per_round(
            LAPTOP[task.tags["world"]], value_of(task)
        )
        for task in all_trials
    )
    assert round(spent) == cost["tuning"].updates


def value_of(task):
    values = {str(value): value for value in BY_NAME[task.tags["method"]].values}
    return values[task.tags["value"]]


def test_rows_that_are_told_the_number_of_clusters_are_told_it():
    found = {
        (task.tags["world"], task.tags["row"]): task.method
        for task in tasks.ranking("smoke")
    }
    assert found["concept-shift", "IFCA, told K"].clusters == RIGHT
    assert found["concept-shift", "IFCA, wrong K"].clusters == WRONG
    assert not any("told K" in row for row in tasks.rows(SMOKE["iid"], BY_NAME["IFCA"]))


def test_without_chosen_settings_there_is_nothing_to_rank(monkeypatch, tmp_path):
    monkeypatch.setattr(tasks, "CHOSEN", tmp_path / "chosen.csv")
    assert tasks.ranking("laptop") == []


# --- what is measured ----------------------------------------------------------------


def test_the_worst_decile():
    accuracy = np.array([0.9, 0.1, 0.3, np.nan, *[0.8] * 17])
    assert tasks.worst_decile(accuracy) == pytest.approx(0.2)  # two of twenty
    assert tasks.worst_decile(np.array([0.5, 0.7])) == 0.5


def test_memberships_as_text():
    assert tasks.memberships(np.array([7, 7, 2, 7, 5])) == "00102"
    assert tasks.memberships(np.arange(62)) == tasks.SYMBOLS
    with pytest.raises(ValueError, match="63 clusters"):
        tasks.memberships(np.arange(63))


def test_a_measured_state():
    task = a_task("label-groups")
    fed = task.federation()
    out = tasks.measure_arena(fed, task.method.init(fed))
    assert out["members"] == "0" * fed.K and out["clusters"] == 1 and out["ari"] == 0
    assert out["worst_decile"] <= out["accuracy"]
    shares = []
    for k in range(fed.K):
        client = torch.tensor([k])
        _, train = fed.samples(fed.sample_numbers(client, on="train"))
        _, test = fed.samples(fed.sample_numbers(client, on="test"))
        shares.append((test == train.bincount().argmax()).double().mean())
    assert out["majority"] == pytest.approx(np.mean(shares))


def test_soft_votes_are_judged_as_votes():
    task = a_task(name="Ensemble")
    fed = task.federation()
    state = task.method.init(fed)
    both = tasks.measure_arena(fed, state)["accuracy"]
    alone = state._replace(votes=torch.eye(state.votes.shape[1])[:1].repeat(fed.K, 1))
    assert tasks.measure_arena(fed, alone)["accuracy"] != both


# --- choosing ------------------------------------------------------------------------


@pytest.fixture(name="trial_frame", scope="module")
def trial_frame_fixture(all_trials):
    """Made-up outcomes of all settings: higher rates are better, but IFCA's K = 8."""
    lines = []
    for task in all_trials:
        accuracy = task.tags["lr"]
        if task.tags["method"] == "IFCA" and task.tags["value"] == "8":
            accuracy += 0.5
        if task.tags["method"] == "FedProx":
            accuracy = 0.7  # all equal
        lines.append({**task.tags, "accuracy": accuracy})
    return pd.DataFrame(lines)


def test_the_best_on_validation_samples_is_chosen(trial_frame, monkeypatch, tmp_path):
    winners = analysis.choose(trial_frame, "laptop")
    cell = winners.set_index(["world", "row"])
    assert cell.loc[("rotation", "IFCA"), "value"] == "8"
    assert cell.loc[("rotation", "IFCA, told K"), "value"] == str(RIGHT)
    assert cell.loc[("rotation", "IFCA, wrong K"), "value"] == str(WRONG)
    assert cell.loc[("rotation", "FedAvg"), "lr"] == 0.2
    assert tuple(cell.loc[("iid", "FedProx"), ["lr", "value"]]) == (0.02, "0.01")
    assert (cell.loc[("iid", "IFCA"), "tried"], len(winners)) == (9, 397)

    path = tmp_path / "chosen.csv"
    winners.to_csv(path, index=False)
    monkeypatch.setattr(tasks, "CHOSEN", path)
    found = tasks.ranking("laptop")
    assert len(found) == 3 * 397
    cells = {tuple(v for k, v in t.tags.items() if k != "row") for t in found}
    assert len({task.key for task in found}) == 3 * len(cells)  # rows may share a run
    assert {task.seed for task in found} == {0, 1, 2}
    one = next(task for task in found if task.tags["row"] == "IFCA")
    assert one.method.clusters == 8 and one.local.lr == 0.2
    seeds = [task.seed for task in found]
    assert seeds == sorted(seeds)  # whole seeds first

    wrong = winners.assign(value="77")
    wrong.to_csv(tmp_path / "wrong.csv", index=False)
    monkeypatch.setattr(tasks, "CHOSEN", tmp_path / "wrong.csv")
    with pytest.raises(ValueError, match="run python -m fednb.arena"):
        tasks.ranking("laptop")


def test_a_method_without_any_run_is_told(trial_frame):
    frame = trial_frame
    with pytest.raises(ValueError, match="FedAvg has no run in iid"):
        analysis.choose(frame[frame["method"] != "FedAvg"], "laptop")


def test_what_stands_at_the_edge_of_its_grid():
    winners = pd.DataFrame(
        {
            "method": ["FedProx", "FedProx", "FedPer", "FedAvg"],
            "lr": [0.02, 0.06, 0.06, 0.2],
            "value": ["0.1", "1.0", "2", "None"],
        }
    )
    edge = analysis.at_the_edge(winners, (0.02, 0.06, 0.2))
    assert edge["rate_at_edge"].tolist() == [True, False, False, True]
    assert edge["value_at_edge"].tolist() == [False, True, False, False]


FEW = ("LocalOnly", "FedAvg", "IFCA")


def few(make, profile):
    """Tasks of some methods in one world, so that a test can sweep them."""
    return [
        task
        for task in make(profile)
        if task.tags["method"] in FEW and task.tags["world"] == "concept-shift"
    ]


def test_from_tuning_to_ranking_on_disk(monkeypatch, tmp_path):
    """The command line, on real runs of the smoke profile."""
    monkeypatch.setattr(analysis, "tuning", partial(few, tasks.tuning))
    some = [BY_NAME[name] for name in FEW]
    monkeypatch.setattr(analysis, "entries", lambda world: some)
    monkeypatch.setattr(
        analysis, "worlds", lambda profile: {"concept-shift": SMOKE["concept-shift"]}
    )
    records = tmp_path / "tuning.json"
    sweep(few(tasks.tuning, "smoke")[:-1], records, n_jobs=1, progress=False)
    out = tmp_path / "chosen.csv"
    with pytest.warns(UserWarning, match="lacks 1 of 5 runs"):
        assert (
            main(["--records", f"{records}", "--profile", "smoke", "--out", f"{out}"])
            == 0
        )
    winners = pd.read_csv(out)
    assert winners["row"].tolist() == [
        "LocalOnly",
        "FedAvg",
        "IFCA",
        "IFCA, told K",
        "IFCA, wrong K",
    ]
    assert winners["validation"].between(0, 1).all()


# --- analysis ------------------------------------------------------------------------


def ranking_frame(**scores):
    """Three worlds, three seeds; a row's score is its number plus the seed's noise."""
    rng = np.random.default_rng(0)
    lines = []
    for w, world in enumerate(("a", "b", "c")):
        for seed in range(3):
            shared = 0.01 * rng.normal()
            for row, score in scores.items():
                own = score[w] if isinstance(score, tuple) else score
                if own is None:
                    continue
                name = row.replace("_", " ")
                lines.append(
                    {
                        "world": world,
                        "row": name,
                        "method": name,
                        "family": "control" if name == "LocalOnly" else "clusters",
                        "seed": seed,
                        "accuracy": own + shared + 0.001 * rng.normal(),
                        "bytes": 10.0 if row == "cheap" else 100.0,
                        "majority": 0.1 * (w + 1),
                    }
                )
    return pd.DataFrame(lines)


def test_mean_ranks_and_their_intervals():
    frame = ranking_frame(best=0.9, middle=(0.8, 0.5, 0.5), last=(0.5, 0.8, 0.2))
    table = analysis.ranks(frame)
    assert table.index[0] == "best"
    assert (
        table.loc["best", ["rank", "low", "high", "best", "worst"]].tolist() == [1] * 5
    )
    assert table.loc["middle", "rank"] == pytest.approx(7 / 3)
    assert table.loc["middle", ["best", "worst"]].tolist() == [2, 3]
    low, high = table.loc["middle", ["low", "high"]]
    assert 2 <= low < 7 / 3 < high <= 3


def test_rows_that_are_missing_in_a_world_have_no_rank():
    frame = ranking_frame(a=0.9, b=0.8, oracle=(0.95, None, 0.95))
    assert analysis.complete(frame) == ["a", "b"]
    assert "oracle" not in analysis.ranks(frame).index
    with pytest.raises(ValueError, match="no rank"):
        analysis.ranks(frame, among=["a", "oracle"])
    with pytest.raises(ValueError, match="no column 'f1'"):
        analysis.ranks(frame, "f1")


def test_critical_differences_take_a_world_as_one_observation():
    frame = ranking_frame(a=0.9, b=0.8, c=0.7)
    found = analysis.critical(frame)
    assert found.runs == 3 and found.ranks.index.tolist() == ["a", "b", "c"]
    assert found.ranks.tolist() == [1, 2, 3]


def test_gains_over_a_control_world_by_world():
    frame = ranking_frame(FedAvg=0.5, up=(0.6, 0.5, None), down=0.4)
    table = analysis.gains(frame).set_index(["world", "row"])
    assert table.loc[("a", "up"), "gain"] == pytest.approx(0.1, abs=0.005)
    assert table.loc[("a", "up"), "holds"] == 1
    assert table.loc[("b", "up"), "holds"] == 0
    assert table.loc[("c", "down"), "holds"] == -1
    assert ("c", "up") not in table.index and table.loc[("a", "up"), "seeds"] == 3
    assert analysis.gains(frame, control="nobody").empty


def test_overall_gains_over_worlds():
    frame = ranking_frame(FedAvg=0.5, up=0.6, mixed=(0.6, 0.3, 0.5), equal=0.5)
    table = analysis.overall(frame)
    assert table.index[0] == "up" and table.loc["up", "ahead"] == 3
    assert table.loc["up", "low"] > 0 > table.loc["mixed", "low"]
    assert table.loc["mixed", "high"] > 0 and (table["p"] <= 1).all()
    assert table.loc["up", "p"] >= 0.25  # three worlds cannot do better, and Holm
    with pytest.raises(ValueError, match="no row 'nobody'"):
        analysis.overall(frame, control="nobody")


def test_the_best_of_a_world_and_its_equals():
    frame = ranking_frame(LocalOnly=(0.99, 0.1, 0.1), x=(0.9, 0.5, 0.7), y=0.7)
    table = analysis.best(frame)
    assert table["row"].tolist()[:2] == ["x", "y"]  # a control does not win
    assert table.loc["a", "as_good"] == [] and table.loc["b", "as_good"] == []
    assert len(table.loc["c", "as_good"]) == 1
    assert table.loc["a", "LocalOnly"] > table.loc["a", "accuracy"]


def test_majority_joins_as_a_control():
    frame = analysis.with_majority(ranking_frame(x=0.9))
    extra = frame[frame["row"] == analysis.MAJORITY]
    assert len(extra) == 9
    means = analysis.by_world(frame)[analysis.MAJORITY]
    assert means.tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_what_knowing_the_number_of_clusters_is_worth():
    lines = ranking_frame(IFCA=0.6, told=(0.8, 0.6, None), wrong=(0.5, 0.5, None))
    names = {"told": "IFCA, told K", "wrong": "IFCA, wrong K"}
    frame = lines.replace({"row": names})
    table = analysis.worth_of_k(frame).set_index(["over", "world"])
    assert table.loc[("wrong K", "a"), "gain"] == pytest.approx(0.3, abs=0.005)
    assert table.loc[("chosen K", "b"), "gain"] == pytest.approx(0.0, abs=0.005)
    assert set(table.index.unique("world")) == {"a", "b"}


def test_stability_compares_the_last_two_memberships():
    courses = [
        pd.DataFrame({"members": ["0000", "0011", "0011"]}),
        pd.DataFrame({"members": ["0011", "0101"]}),
        pd.DataFrame({"members": ["0011"]}),
    ]
    found = analysis.stability(pd.DataFrame({"course": courses}))
    assert found[0] == 1 and found[1] < 0.5 and np.isnan(found[2])


def test_the_pareto_front():
    frame = ranking_frame(cheap=0.5, good=0.9, beaten=0.7)
    table = analysis.pareto(frame)
    assert table["efficient"].to_dict() == {
        "cheap": True,
        "good": True,
        "beaten": False,
    }


def test_the_best_of_a_family_is_chosen_on_the_other_seeds():
    frame = ranking_frame(FedAvg=0.5, lucky=0.6, steady=0.65, LocalOnly=0.4)
    frame["family"] = frame["row"].map(
        {
            "FedAvg": "one model",
            "lucky": "clusters",
            "steady": "clusters",
            "LocalOnly": "control",
        }
    )
    first = (frame["row"] == "lucky") & (frame["world"] == "a") & (frame["seed"] == 0)
    frame.loc[first, "accuracy"] = 0.99  # one lucky seed makes it the best on average
    table = analysis.families(frame)
    found = table[(table["row"] == "clusters") & (table["world"] == "a")]
    found = found.set_index("seed")
    assert found.loc[0, "chosen"] == "steady"
    assert found.loc[0, "accuracy"] < 0.7  # its luck does not count on its own seed
    assert set(found.loc[[1, 2], "chosen"]) == {"lucky"}
    alone = table[(table["row"] == "LocalOnly") & (table["world"] == "b")]
    assert len(alone) == 3 and alone["chosen"].isna().all()
    gains = analysis.held_out(frame)
    assert gains.loc["a", "chosen"] == ["steady", "lucky"]
    assert gains.loc["b", "gain"] == pytest.approx(0.15, abs=0.01)
    assert gains.loc["b", "low"] > 0


def test_how_a_choice_carries_over_to_a_world_that_was_left_out():
    frame = ranking_frame(x=(0.9, 0.9, 0.1), y=(0.8, 0.8, 0.8), LocalOnly=1.0)
    table = analysis.elsewhere(frame)
    assert table.loc["c", "chosen"] == "x" and table.loc["c", "rank"] == 2
    assert table.loc["c", "short"] == pytest.approx(0.7, abs=0.01)
    assert (table["methods"] == 2).all()  # controls cannot be chosen


def test_a_readers_weights_decide_who_comes_first():
    frame = ranking_frame(FedAvg=0.5, good=0.9, cheap=0.4, oracle=0.95)
    frame = frame.replace({"row": {"oracle": "Oracle clusters"}})
    frame["worst_decile"] = frame["accuracy"] - 0.1
    by_accuracy = analysis.weighed(frame, {"accuracy": 1, "bytes": 0})
    assert by_accuracy.index.tolist() == ["good", "FedAvg", "cheap"]
    assert by_accuracy.loc["good", "first"] == 1
    assert by_accuracy.loc["good", "score"] == pytest.approx(1)
    by_traffic = analysis.weighed(frame, {"accuracy": 0, "bytes": 2})
    assert by_traffic.index[0] == "cheap"
    assert by_traffic.loc["FedAvg", "score"] == pytest.approx(0.5)
    assert analysis.weighed(frame, {"accuracy": 0}).empty


def test_only_who_knows_the_number_of_groups_is_told_it():
    frame = ranking_frame(FedAvg=0.5, IFCA=0.6, told=0.9, wrong=0.99)
    names = {"told": "IFCA, told K", "wrong": "IFCA, wrong K"}
    frame["method"] = frame["row"].replace(dict.fromkeys(names, "IFCA"))
    frame = frame.replace({"row": names})
    frame["worst_decile"] = frame["accuracy"]
    assert analysis.weighed(frame, {"accuracy": 1}).index[0] == "IFCA"
    assert analysis.weighed(frame, {"accuracy": 1}, told=True).index[0] == names["told"]


def test_finding_the_groups_beside_what_it_brings():
    frame = ranking_frame(FedAvg=0.5, IFCA=0.7)
    frame["world"] = frame["world"].map({"a": "iid", "b": "rotation", "c": "filters"})
    frame["ari"] = 0.8
    table = analysis.cluster_gains(frame, ["IFCA"])
    assert set(table["world"]) == {"rotation", "filters"}  # where there are groups
    assert table["gain"].mean() == pytest.approx(0.2, abs=0.01)


# --- figures -------------------------------------------------------------------------


def pretended(seeds=2):
    """A frame as `figures.records` makes it: every row of every world, drawn."""
    rng = np.random.default_rng(0)
    lines = []
    for world in LAPTOP.values():
        for entry in tasks.entries(world):
            for row in tasks.rows(world, entry):
                for seed in range(seeds):
                    line = {"world": world.name, "row": row, "method": entry.name}
                    line |= {"family": entry.family, "seed": seed}
                    line |= {"accuracy": rng.uniform(0.4, 0.9), "ari": rng.uniform()}
                    line |= {"bytes": rng.uniform(1e6, 1e8), "majority": 0.3}
                    lines.append(line)
    frame = pd.DataFrame(lines)
    frame["worst_decile"] = frame["accuracy"] - 0.2
    frame["balanced_accuracy"] = frame["accuracy"] - 0.1
    frame["server_seconds"] = rng.uniform(0.1, 10, len(frame))
    frame["stability"] = rng.uniform(size=len(frame))
    frame["client_updates"] = 500
    frame["clusters"] = 4
    return analysis.with_majority(frame)


def test_pictures_name_every_world_and_every_method():
    frame = pretended()
    heat = figures.heat(frame, "worst_decile").axes[0]
    shown = [label.get_text() for label in heat.get_yticklabels()]
    assert set(shown) == {entry.name for entry in ENTRIES} - {"FedAvg"}
    assert [label.get_text() for label in heat.get_xticklabels()] == [*LAPTOP]
    ranked = figures.rank_picture(frame).axes[0].get_yticklabels()
    assert "GCFL" in [label.get_text() for label in ranked]
    panels = [ax.get_title() for ax in figures.ladder(frame).axes]
    assert panels == [*LAPTOP]
    grouped = [world.name for world in LAPTOP.values() if world.is_grouped]
    found = figures.clusters_picture(frame).axes
    assert [ax.get_title() for ax in found if ax.get_title()] == grouped
    worth = figures.worth_picture(frame).axes[0]
    assert [label.get_text() for label in worth.get_yticklabels()] == grouped
    assert figures.cost_picture(frame).axes[0].get_xscale() == "log"
    timed = figures.server_picture(frame).axes[0].get_yticklabels()
    assert {"FedAvg", "GCFL"} <= {label.get_text() for label in timed}


def test_tables_have_a_line_for_every_world():
    frame = pretended()
    for table in (figures.choice_table(frame), figures.carry_table(frame)):
        for name in LAPTOP:
            assert f"\n{name}\n" in table.text
    assert figures.method_table().text.count("cost of a round") >= len(ENTRIES)
    assert "270 degrees" in figures.world_table(LAPTOP).text


def test_the_short_answer_names_who_is_best_and_how_surely():
    frame = pretended()
    frame.loc[frame["row"] == "GCFL", "accuracy"] = 0.95
    frame.loc[frame["row"] == "FedAvg", "accuracy"] = 0.9
    table = figures.guide_table(frame).text
    for where in figures.WHERE:
        assert f"\n{where}\n  take: GCFL (100%)\n" in table
    assert "points over FedAvg: +5.0\n" in table  # one world
    assert "points over FedAvg: +5.0 to +5.0\n" in table
    assert "\n  or: –\n" in table


def test_labels_of_neighbours_stand_apart():
    heights = figures._apart(np.array([1.0, 1.0, 9.0]), np.array([5.0, 5.1, 5.05]))
    assert heights[1] >= heights[0] + 0.9 and heights[2] == 5.05


def test_gains_over_fedavg_are_tested_for_the_named_methods_only():
    frame = pretended()
    frame.loc[frame["row"] == "GCFL", "accuracy"] = 0.95
    table = figures.against_table(frame).text
    assert "corrected by Holm for 11 methods" in table
    best = table.split("\nGCFL\n")[1].split("\n")[:3]
    assert best[1].endswith("10 of 10") and best[2].endswith(": 0.021")


def test_the_table_of_costs_compares_with_fedavg():
    frame = pretended()
    frame.loc[frame["row"] == "IFCA", "bytes"] = 3 * 2.0e7
    frame.loc[frame["row"] == "FedAvg", "bytes"] = 2.0e7
    frame.loc[frame["row"] == "IFCA", "server_seconds"] = 1.25
    frame.loc[frame["row"] == "IFCA", "stability"] = 0.5
    table = figures.cost_table(frame).text
    ifca = table.split("\nIFCA\n")[1].split("\n")[:6]
    found = [line.split(": ")[1] for line in ifca]
    assert found == ["3.00", "1.00", "1.25", "4.0", "0.50", "yes"]
    assert "\nFedAvg\n  traffic: 1.00\n" in table


def test_clustering_steps_are_drawn_as_far_as_they_were_measured():
    assert set(figures.kernels()) == set(figures.KERNELS)
    seconds, memory = figures.scaling_picture().axes
    for line in seconds.lines:
        cells = figures.kernels()[line.get_label()]["cells"]
        assert line.get_xdata().tolist() == [int(K) for K in cells]
    assert len(memory.lines) == len(figures.KERNELS)
    assert "10,000" in figures.scaling_table().text


def test_the_readers_explorer_names_who_else_comes_first():
    frame = pretended()
    drawn, words = figures.weighed_bars(frame, "not known", 2, 1, 0, "no")
    assert len(drawn["x"]) == 10 and "comes first in" in words["text"]
    _, words = figures.weighed_bars(frame, "nothing, or size", 0, 0, 0, "no")
    assert words["text"] == "Give at least one weight."
    assert set(figures.WHERE["not known"]) == set(LAPTOP)


def test_a_portrait_shows_what_each_group_sees():
    counts, images = figures.portrait(SMOKE["rotation"])
    assert counts.shape == (8, 10) and images.shape == (40, 80)
    counts, images = figures.portrait(SMOKE["label-skew"])
    assert images.shape == (10, 80)  # no groups, one line


def test_only_whole_seeds_are_ranked():
    made = [
        a_task(seed=seed, name=name) for seed in (0, 1) for name in ("FedAvg", "GCFL")
    ]
    have = {task.key for task in made[:3]}
    assert figures.whole_seeds(made, have) == made[:2]


# --- your own ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mine(methods.FedAvg):
    """FedAvg under another name."""


def test_ones_own_method_beside_the_stored_ones(monkeypatch, tmp_path):
    stored = few(tasks.ranking, "smoke")
    sweep(stored, tmp_path / "ranking.json", n_jobs=1, progress=False)
    monkeypatch.setattr(comparison, "ranking", partial(few, tasks.ranking))
    found = arena.compare(
        Mine(sampled=4),
        world="concept-shift",
        profile="smoke",
        results=tmp_path,
        progress=False,
    )
    assert found.lr == 0.1 and found.budget == 24
    assert found.runs["client_updates"].tolist() == [24]
    against = found.against.set_index("row")
    assert against.loc["FedAvg", "gain"] == 0  # the same clients, batches and model
    frame = tables.frame(stored, tmp_path / "ranking.json")
    local = frame.loc[frame["row"] == "LocalOnly", "accuracy"].item()
    ours = found.runs["accuracy"].item()
    assert against.loc["LocalOnly", "gain"] == pytest.approx(ours - local)


def test_without_stored_results_there_are_only_ones_own_runs(tmp_path):
    found = arena.compare(
        Mine(sampled=4),
        "label-skew",
        rounds=2,
        lr=0.05,
        profile="smoke",
        results=tmp_path,
        progress=False,
    )
    assert found.against.empty and found.runs["round"].tolist() == [2]
    assert comparison._folder(None).name == "arena"  # there or not, nothing is lost
    with pytest.raises(ValueError, match="no world 'mars'"):
        arena.compare(Mine(), "mars")


# --- the page ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranked():
    return figures.records()


def points_over(ranked, control, value="accuracy"):
    """Gains in points: rows by worlds."""
    plain = ranked[ranked["row"] == ranked["method"]]
    gains = analysis.gains(plain, control, value)
    return 100 * gains.pivot(index="row", columns="world", values="gain")


def family_means(ranked, value):
    means = analysis.families(ranked, value).groupby(["world", "row"])[value].mean()
    return 100 * means.unstack()


def test_the_page_stands_on_whole_seeds(ranked):
    assert set(ranked["world"]) == set(LAPTOP) and ranked["seed"].nunique() == 3


def test_the_page_is_right_about_the_budget(ranked):
    runs = ranked[~ranked["row"].isin([analysis.MAJORITY, "pFedMe", "Per-FedAvg"])]
    budget = {world.name: world.updates for world in LAPTOP.values()}
    spent = runs["client_updates"] / runs["world"].map(budget)
    fixed = ~runs["method"].isin(["CFL", "FedCCFA", "AutoCFL", "FL+HC", "FedGWC"])
    assert spent[fixed].between(0.84, 1.03).all()
    assert spent[~fixed & (runs["row"] != "FedCCFA")].between(0.99, 1.26).all()
    assert round(spent[runs["row"] == "FedCCFA"].max(), 2) == 1.56


def test_the_page_is_right_about_clients_that_are_alike(ranked):
    gain = points_over(ranked, "FedAvg")[[*figures.LIKE]]
    assert gain.drop(analysis.MAJORITY).max(axis=None) < 3
    assert (gain.loc["LocalOnly"] < -5).all()
    assert (gain.loc[["AutoCFL", "MTCFL", "CFL"]] > -1).all(axis=None)
    assert (gain.loc[["WeCFL", "FeSEM", "FL+HC"]] < -2).all(axis=None)


def test_the_page_is_right_about_groups(ranked):
    gain = points_over(ranked, "FedAvg")
    assert gain.loc["FedPer", "concept-shift"] > gain.loc["Oracle clusters"].max() - 1
    means = family_means(ranked, "accuracy")
    assert (
        means.loc[[*figures.SIGHT], "clusters"]
        > means.loc[[*figures.SIGHT], "personal"]
    ).all()
    near = ["concept-shift", "rotation", "filters", "many-small"]
    assert (means.loc[near, "clusters"] > means.loc[near, "Oracle clusters"] - 2).all()
    assert (means.loc[near, "clusters"] > means.loc[near, "LocalOnly"] + 5).all()
    alone = points_over(ranked, "LocalOnly")[["label-groups", "few-sampled"]]
    assert alone.max(axis=None) < 3 and (alone.loc["Oracle clusters"] < 0).all()


def test_the_page_is_right_about_balanced_accuracy(ranked):
    worlds = ["label-skew", "label-dirichlet"]
    accuracy = family_means(ranked, "accuracy").loc[worlds]
    balanced = family_means(ranked, "balanced_accuracy").loc[worlds]
    one_model = balanced[["FedAvg", "one model"]].max(axis=1)
    for family in ("personal", "clusters"):
        assert (accuracy[family] > accuracy["FedAvg"] + 5).all()
        assert (balanced[family] <= one_model + 0.5).all()


def test_the_page_is_right_about_the_number_of_clusters(ranked):
    table = analysis.worth_of_k(ranked)
    worth = 100 * table.groupby(["method", "over"])["gain"].mean().unstack()
    assert (worth.drop("FedSoft")["wrong K"] > 8).all()
    assert abs(worth.loc["FedSoft", "wrong K"]) < 1
    assert (worth["chosen K"] < 0).all()


def test_the_page_is_right_about_ranks(ranked):
    found = analysis.critical(ranked, among=figures.REPRESENTATIVES)
    assert found.friedman < 0.01 and len(found.groups) == 1
    assert len(found.groups[0]) == len(figures.REPRESENTATIVES)
    named = ranked[ranked["row"].isin(figures.REPRESENTATIVES)]
    against = analysis.overall(named)
    assert against["p"].idxmin() == "FedCVRBolt" and against["p"].min() < 0.05
    assert 0.05 < against.loc["IFCA", "p"] < 0.1
    short = 100 * analysis.elsewhere(ranked)["short"]
    assert short.idxmax() == "label-skew" and short.drop("label-skew").max() < 3


def test_the_page_is_right_about_lines_that_need_a_word(ranked):
    fedgwc = ranked[ranked["row"] == "FedGWC"]
    assert (fedgwc["clusters"] == 1).mean() >= 0.9
    assert set(fedgwc["rounds"]) == {40, 50, 125}
    died = ranked[(ranked["row"] == "FedPer") & (ranked["world"] == "quantity")]
    assert sorted(died["accuracy"] < 0.3) == [False, False, True]


def test_the_page_is_right_about_families(ranked):
    means = family_means(ranked, "accuracy")
    p = {
        other: signed_rank((means["clusters"] - means[other]).to_numpy())
        for other in ("FedAvg", "LocalOnly", "personal")
    }
    assert p["FedAvg"] < 0.05 and p["LocalOnly"] < 0.05 and p["personal"] > 0.05
    assert analysis.overall(ranked[ranked["row"] == ranked["method"]])["p"].min() > 0.05


def test_the_page_is_right_about_the_index(ranked):
    names = [entry.name for entry in ENTRIES if entry.family == "clusters"]
    found = analysis.cluster_gains(ranked, names)
    slope = {
        world: runs[["ari", "gain"]].corr("spearman").iloc[0, 1]
        for world, runs in found.groupby("world")
    }
    flat = {world for world, value in slope.items() if value < 0.5}
    assert flat == {"label-groups", "few-sampled"}
    assert found.loc[found["world"] == "filters", "ari"].max() < 0.5
    ends = ranked[ranked["row"].isin(["MTCFL", "FL+HC"])]
    assert (ends.loc[ends["world"] == "label-skew", "clusters"] == 20).all()


def test_the_page_is_right_about_chosen_numbers():
    chosen = pd.read_csv(tasks.CHOSEN)
    told = {entry.name for entry in ENTRIES if entry.told} - {"FedSoft"}
    grouped = [world.name for world in LAPTOP.values() if world.is_grouped]
    mine = chosen[chosen["row"].isin(told) & chosen["world"].isin(grouped)]
    assert len(mine) == 28 and 0.6 < (mine["value"] == "4").mean() < 0.75
    assert (chosen["lr"] == 0.2).mean() == pytest.approx(0.42, abs=0.01)


def test_the_numbers_in_the_pages_prose_are_those_of_the_records(ranked):
    gain = points_over(ranked, "FedAvg")
    assert gain.loc["LocalOnly", [*figures.LIKE]].abs().astype(int).tolist() == [9, 17]
    assert gain.loc[["AutoCFL", "MTCFL"]].min(axis=None) > -0.55
    assert gain.loc["FL+HC"].min() == pytest.approx(-7.2, abs=0.1)
    clustered = [entry.name for entry in ENTRIES if entry.family == "clusters"]
    assert len(clustered) == 11 and (gain.loc[clustered, "filters"] < 0).sum() == 4
    means = 100 * analysis.by_world(ranked, "accuracy")
    assert round(means.loc["label-groups", analysis.MAJORITY]) == 62
    assert round(means.loc["filters"].max()) == 38
    assert means.loc["label-groups", "Oracle clusters"] < 62
    scaffold = ranked[(ranked["row"] == "SCAFFOLD") & (ranked["world"] == "label-skew")]
    assert sorted(scaffold["accuracy"] < 0.12) == [False, True, True]
