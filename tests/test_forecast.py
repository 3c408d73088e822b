"""How long a sweep will take, told from records before anything is tried."""

import dataclasses
import time
from functools import partial

import pytest

from fednb import forecast as module
from fednb import models, partition, store
from fednb.forecast import forecast, known_records
from fednb.methods import FedAvg, FedProx, FixedClusters, LocalOnly
from fednb.training import Local
from fednb.views import Arms

from .test_sweep import quiet, tasks


@pytest.fixture(name="trials")
def trials_fixture(monkeypatch):
    """The tasks that were tried; a round of each takes two seconds."""
    tried = []

    def two_seconds(task):
        tried.append(task)
        return 2.0

    monkeypatch.setattr(module, "seconds_of_a_round", two_seconds)
    return tried


def write(path, task, seconds, updates=8, key=None):
    """A record of a task that was never run."""
    record = task.spec() | {
        "key": key or task.key,
        "data_sha256": "0" * 64,
        "version": "0",
        "commit": "abc",
        "machine": "",
        "seconds": seconds,
        "client_updates": updates,
        "bytes": 0,
        "metrics": {"final": {}},
    }
    store.append(path, record)
    return record


def counts(found):
    return (found.runs, found.done, found.alike, found.estimated, found.guessed)


def test_a_forecast_counts_and_times(tmp_path):
    path = tmp_path / "table.json"
    some = tasks(seeds=range(3))
    before = forecast(some, path)
    assert counts(before) == (6, 0, 0, 0, 6)
    assert before.seconds > 0
    quiet(some[:1], path)
    after = forecast(some, path)
    assert counts(after) == (6, 1, 2, 3, 0)
    assert "6 runs, 1 recorded, 5 to do" in str(after)
    assert "2 runs by records of their kind, 3 by records in their" in str(after)


def test_recorded_runs_need_no_trial(tmp_path, trials):
    path = tmp_path / "t.json"
    first, other = tasks(seeds=(0, 1), methods=(FedAvg(),))
    write(path, first, seconds=30.0)
    found = forecast([first, other], path)
    assert found.seconds == 30 and not trials


def test_an_old_record_stands_in_for_its_run(tmp_path, trials):
    committed = tmp_path / "demo" / "t.json"
    (old,) = tasks(seeds=(0,), methods=(FedAvg(),), rounds=7)
    (new,) = tasks(seeds=(0,), methods=(FedProx(),), model=models.linear)
    write(committed, old, seconds=11.0)
    note = {"stands_in": old.key, "why": "FedProx now"}
    store.write_pending(committed.parent, {new.key: note})
    known = known_records(tmp_path / "next", committed.parent)
    found = forecast([new], tmp_path / "next" / "t.json", known)
    assert counts(found) == (1, 0, 1, 0, 0) and found.seconds == 11
    assert not trials


def test_other_runs_in_the_setting_tell_seconds_per_update(tmp_path, trials):
    path = tmp_path / "elsewhere.json"
    (known,) = tasks(seeds=(0,), methods=(FedAvg(),))
    write(path, known, seconds=16.0, updates=8)  # four clients, two rounds
    longer, few = tasks(seeds=(0,), methods=(FedProx(), FedAvg(0.5)), rounds=10)
    found = forecast([longer], tmp_path / "t.json")
    assert found.seconds == 10 * 4 * 2 and found.estimated == 1
    found = forecast([few], tmp_path / "t.json")  # the same method: seconds per round
    assert found.seconds == 10 * 8 and found.estimated == 1
    (some,) = tasks(seeds=(0,), methods=(FedProx(sampled=3),))
    assert forecast([some], tmp_path / "t.json").seconds == 2 * 3 * 2
    assert not trials


@pytest.mark.parametrize(
    "change",
    [
        {"local": Local(lr=0.1, steps=20)},
        {"model": models.linear},
        {"partition": partial(partition.dirichlet, clients=40, alpha=1.0)},
        {"dataset": "synthetic(clients=4)"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_runs_in_another_setting_tell_nothing(tmp_path, trials, change):
    path = tmp_path / "t.json"
    (known,) = tasks(seeds=(0,), methods=(LocalOnly(),))
    write(path, known, seconds=16.0)
    assert forecast(tasks(seeds=(0,), methods=(FedAvg(),), **change), path).guessed == 1
    assert len(trials) == 1


def test_one_trial_for_a_setting(tmp_path, trials):
    some = tasks(seeds=range(5), methods=(FedAvg(), FedProx(), FedAvg(2)), rounds=3)
    found = forecast(some, tmp_path / "t.json")
    assert found.guessed == 15 and len(trials) == 1
    assert found.seconds == pytest.approx(3 * 5 * (2 + 2 + 1))  # two of four train


def test_arms_are_tried_by_themselves(tmp_path, trials):
    arms = Arms((("a", FedAvg()), ("b", LocalOnly())))
    some = tasks(seeds=(0, 1), methods=(FedAvg(), arms), rounds=3)
    found = forecast(some, tmp_path / "t.json")
    assert [type(task.method) for task in trials] == [FedAvg, Arms]
    assert found.seconds == 4 * 3 * 2


def test_a_trial_does_not_count_what_other_programs_take():
    def waits(fed, state):
        time.sleep(3)
        return {}

    task = dataclasses.replace(tasks(seeds=(0,), methods=(FedAvg(),))[0], measure=waits)
    assert 0 < module.seconds_of_a_round(task) < 2


def test_random_clusters_of_other_seeds_count_as_one_kind(tmp_path, trials):
    """A forecast knows them by one recorded seed."""
    some = [
        dataclasses.replace(task, method=FixedClusters.random([2, 2], seed=task.seed))
        for task in tasks(seeds=range(3), methods=(FedAvg(),))
    ]
    write(tmp_path / "t.json", some[0], seconds=5.0)
    found = forecast(some, tmp_path / "t.json")
    assert found.alike == 2 and found.seconds == 10 and not trials


def test_files_of_something_else_are_passed_over(tmp_path, trials):
    (tmp_path / "archive.json").write_text('{"a": 1}')
    (task,) = tasks(seeds=(0,), methods=(FedAvg(),))
    write(tmp_path / "t.json", task, seconds=5.0)
    assert [key for key, _ in known_records(tmp_path)] == [task.key]
    assert known_records(tmp_path / "nowhere") == []
