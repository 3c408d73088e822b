"""FedGWC's rows in step: each arm ends where its method ends alone, bit for bit."""

import json
from dataclasses import replace
from functools import partial

import pytest

from fednb import models, partition
from fednb.experiment import run
from fednb.methods import FedAvg
from fednb.papers import fedgwc
from fednb.papers.fedgwc.controls import Replayed, Within, arm_key
from fednb.papers.fedgwc.tasks import KEPT
from fednb.training import Local

REPLAYED = "Random members, same splits"


@pytest.fixture(scope="module")
def setup():
    """Thirty clients of two levels, in which the corrected rule splits in time."""
    law = partial(partition.mixed, groups=(22, 8), alphas=(1000.0, 0.0), size=45)
    return fedgwc.tasks.tiny(30)._replace(
        law=partial(law, test=0.4),
        model=partial(models.mlp, 64, (16,), 10),
        local=Local(0.02, steps=3, batch_size=16),
        eps=0.02,
        rounds=45,
    )


@pytest.fixture(scope="module")
def rows(setup):
    """The rows of Table 1, with a fifth of the clients in a round."""
    found = setup.one_until_split()
    own = replace(found["FedGWC"], sampled=0.2)
    found |= {"no clusters": FedAvg(0.2), "FedGWC": own}
    for row in ("FedGWC as released", "FedGWC as printed"):
        found[row] = Within(replace(found[row].method, sampled=6), 45 * 6)
    return found | {REPLAYED: Replayed(own)}


def as_stored(record):
    """The record as a file has it, where a number that does not exist is None."""
    return json.loads(json.dumps(record), parse_constant=lambda name: None)


def measured_seldom(task):
    """The task with nine evaluations; memberships are kept at three of them."""
    measure = partial(task.measure.func, at=(5, 30, 45))
    return replace(task, every=5, measure=measure)


@pytest.fixture(scope="module")
def task(setup, rows):
    return measured_seldom(setup.in_step("smoke", 0, rows))


@pytest.fixture(scope="module")
def together(task):
    return as_stored(task.record())


def test_every_arms_record_is_that_of_its_method_alone(setup, rows, together):
    final = together["metrics"]["final"]
    curves = together["metrics"]["curves"]
    for row, method in rows.items():
        own_task = measured_seldom(setup.task("smoke", 0, row, method))
        alone = as_stored(own_task.record())
        wanted = alone["metrics"]
        for score in {*KEPT, "ari", "rand"} & set(wanted["final"]):
            assert final[arm_key(row, score)] == wanted["final"][score], (row, score)
        for score in KEPT:
            assert curves[arm_key(row, score)] == wanted["curves"][score], (row, score)
        for count in ("client_updates", "bytes"):
            assert final[arm_key(row, count)] == alone[count], (row, count)
    found = {row: curves[arm_key(row, "clusters")] for row in rows}
    assert max(found["no clusters"]) == 1
    assert max(found["FedGWC"]) > 1 and max(found["FedGWC as printed"]) > 1
    spent = [final[arm_key(row, "client_updates")] for row in [*rows][2:4]]
    assert spent[0] <= 45 * 6 and 45 * 6 - 30 < spent[1] <= 45 * 6
    assert found["FedGWC"] == found[REPLAYED]  # the same splits,
    members = [curves[arm_key(row, "members")] for row in ("FedGWC", REPLAYED)]
    assert members[0] != members[1]  # other members


def test_a_task_in_step_is_resumed(task, together, tmp_path):
    path = tmp_path / "checkpoint.npz"
    how = {"every": task.every, "measure": task.measure, "progress": False}
    run(task.method, task.federation(), 35, checkpoint=path, **how)
    resumed = as_stored(task.record(checkpoint=path))
    assert resumed["metrics"] == together["metrics"]
    assert resumed["client_updates"] == together["client_updates"]


def test_rows_that_never_split_are_trained_once():
    task = fedgwc.tasks.emnist("smoke")[0]
    record = task.record()
    final = record["metrics"]["final"]
    for row, _ in task.method.arms:
        assert final[arm_key(row, "clusters")] == 1
        assert final[arm_key(row, "client_updates")] == record["client_updates"] == 120
        assert final[arm_key(row, "bytes")] == record["bytes"]


def test_arms_are_read_as_rows(task, together, monkeypatch, tmp_path):
    monkeypatch.setattr(fedgwc.outcomes.common, "results", lambda paper: tmp_path)
    records = {task.key: together}
    monkeypatch.setattr(fedgwc.outcomes.tables, "by_key", lambda path: records)
    final = together["metrics"]["final"]
    runs = fedgwc.outcomes.row_by_row("emnist", [task]).set_index("row")
    assert [*runs.index] == [row for row, _ in task.method.arms]
    for row in runs.index:
        for score in ("accuracy", "clusters", "client_updates", "bytes"):
            assert runs.loc[row, score] == final[arm_key(row, score)]
    curve = together["metrics"]["curves"][arm_key("FedGWC", "accuracy")]
    means = fedgwc.outcomes.row_by_row("emnist", [task], last=3).set_index("row")
    mean = sum(curve[-3:]) / 3
    assert means.loc["FedGWC", "accuracy"] == pytest.approx(mean)
