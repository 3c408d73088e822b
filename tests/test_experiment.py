import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fednb import models, partition, store
from fednb.experiment import Task, describe, measure, run, sweep
from fednb.history import History
from fednb.methods import FedAvg, FedAvgM, FixedClusters, LocalOnly
from fednb.training import Local

from .conftest import federation


def quiet(method, fed, rounds, **options):
    return run(method, fed, rounds, progress=False, **options)


def same_state(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# --- run -------------------------------------------------------------------------------------------------------------


def test_history_is_tidy():
    fed = federation(truth=[0, 0, 1, 1])
    history = quiet(FixedClusters([0, 0, 1, 1]), fed, 5, every=2)
    frame = history.frame()
    assert frame["round"].tolist() == [2, 4, 5]  # every second, and the last
    assert frame["client_updates"].tolist() == [8, 16, 20]
    assert frame["bytes"].tolist() == [u * 2 * 4 * fed.layout.D for u in (8, 16, 20)]
    assert frame["ari"].tolist() == [1.0] * 3 and frame["clusters"].tolist() == [2] * 3
    assert frame["labels"][0] == [0, 0, 1, 1]
    assert (
        frame[["accuracy", "macro_f1", "balanced_accuracy", "loss"]]
        .notna()
        .all(axis=None)
    )
    assert frame["seconds"].is_monotonic_increasing
    assert (
        len(history) == 3
        and "round 5" in repr(history)
        and repr(History()) == "History(empty)"
    )
    assert history.mean_of_last(2) == pytest.approx(frame["accuracy"][1:].mean())
    assert history.state.theta.shape == (2, fed.layout.D)


def test_measure_agrees_with_counting_by_hand():
    fed = federation()
    state = quiet(LocalOnly(), fed, 3).state
    numbers = measure(fed, state)
    right = []
    for k in range(fed.K):
        i = torch.as_tensor(fed._parts.test[k])
        right.append(
            (fed.predict(state.theta[k], fed._x[i]).argmax(1) == fed._y[i])
            .float()
            .mean()
            .item()
        )
    assert numbers["accuracy"] == pytest.approx(np.mean(right))
    assert numbers["accuracy_worst"] == pytest.approx(min(right))
    assert "ari" not in numbers  # there is no truth to compare with


def test_training_learns():
    fed = federation(sizes=(30, 30, 30), local=Local(lr=0.1, batch_size=5))
    history = quiet(FedAvg(), fed, 8)
    assert (
        history.final["accuracy"] > 0.8
        and history.rows[0]["loss"] > history.final["loss"]
    )


@pytest.mark.parametrize(
    "local",
    [Local(lr=0.05, batch_size=5), Local(momentum=0.9, keep_state=True)],
    ids=str,
)
def test_a_resumed_run_is_the_same_run(tmp_path, local):
    whole = quiet(FedAvgM(sampled=2), federation("cnn_bn", local=local), 6)
    path = tmp_path / "run.npz"
    quiet(
        FedAvgM(sampled=2),
        federation("cnn_bn", local=local),
        4,
        checkpoint=path,
        save_every=3,
    )
    resumed = quiet(
        FedAvgM(sampled=2), federation("cnn_bn", local=local), 6, checkpoint=path
    )
    assert same_state(whole.state, resumed.state)
    drop = ("seconds",)
    lines = [
        [{k: v for k, v in row.items() if k not in drop} for row in h.rows]
        for h in (whole, resumed)
    ]
    assert json.dumps(lines[0]) == json.dumps(lines[1])
    assert type(resumed.state) is type(whole.state)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    quiet(FedAvg(), federation(), 1, checkpoint=path)
    with pytest.raises(store.StoreError, match="another method"):
        quiet(FedAvgM(), federation(), 2, checkpoint=path)
    with pytest.raises(store.StoreError, match="another federation"):
        quiet(FedAvg(), federation(seed=1), 2, checkpoint=path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(store.StoreError, match="delete it to start afresh"):
        quiet(FedAvg(), federation(), 2, checkpoint=path)


def test_checkpoints_hold_trees_without_pickle(tmp_path):
    tree = (
        torch.arange(3),
        None,
        1.5,
        True,
        [torch.ones(2, 2)],
        {"a": np.zeros(2), "b": "text"},
        float("nan"),
    )
    store.save_checkpoint(tmp_path / "c.npz", {"x": 1}, tree=tree)
    meta, trees = store.load_checkpoint(tmp_path / "c.npz")
    back = trees["tree"]
    assert (
        meta == {"x": 1}
        and torch.equal(back[0], tree[0])
        and back[1:4] == (None, 1.5, True)
    )
    assert (
        torch.equal(back[4][0], tree[4][0])
        and back[5]["b"] == "text"
        and back[6] != back[6]
    )
    with np.load(tmp_path / "c.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)
    with pytest.raises(TypeError, match="cannot hold"):
        store.save_checkpoint(tmp_path / "d.npz", {}, tree=(object(),))
    assert not (tmp_path / "d.npz").exists()


@dataclass(frozen=True)
class Interrupted(FedAvg):
    """Pressed Ctrl-C in the middle of round 2, after its training."""

    def step(self, state, fed, t):
        new = super().step(state, fed, t)
        if t == 2:
            raise KeyboardInterrupt
        return new


def test_ctrl_c_keeps_what_was_done_and_can_go_on(tmp_path):
    path = tmp_path / "run.npz"
    with pytest.warns(UserWarning, match="stopped by hand after 2 of 5 rounds"):
        history = quiet(Interrupted(sampled=2), federation(), 5, checkpoint=path)
    assert history.interrupted and history.frame()["round"].tolist() == [1, 2]
    twin = quiet(FedAvg(sampled=2), federation(), 2)
    assert same_state(history.state, twin.state)
    meta, _ = store.load_checkpoint(path)
    assert meta["done"] == 2
    fed = federation()
    fed.restore(store.load_checkpoint(path)[1]["fed"])
    rest = FedAvg(sampled=2).step(history.state, fed, 2)
    assert same_state(rest, quiet(FedAvg(sampled=2), federation(), 3).state)


def test_divergence_stops_a_run_or_is_recorded():
    from fednb.federation import ClientError

    wild = Local(lr=1e20, batch_size=5, epochs=3)
    with pytest.raises(ClientError, match="diverged in round 0"):
        quiet(FedAvg(), federation(local=wild), 3)
    history = quiet(FedAvg(), federation(local=wild, diverged="record"), 2)
    assert history.events and history.final["events"] == len(history.events)
    assert history.frame()[["accuracy", "loss"]].notna().all(axis=None)


def test_run_refuses_nonsense_and_measures_nothing_in_no_rounds():
    for wrong in (
        {"rounds": -1},
        {"rounds": 1, "every": 0},
        {"rounds": 1, "save_every": 0},
    ):
        with pytest.raises(ValueError, match="need"):
            run(FedAvg(), federation(), **wrong)
    history = quiet(FedAvg(), federation(), 0)
    with pytest.raises(ValueError, match="not evaluated"):
        history.final  # noqa: B018


def test_progress_bar_shows_the_method(capfd, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    run(FedAvg(), federation(), 2)
    assert "FedAvg" in capfd.readouterr().err
    code = (
        "from tests.conftest import federation; from fednb import run, methods; "
        "run(methods.FedAvg(), federation(), 2)"
    )
    env = os.environ | {"TQDM_DISABLE": "1"}
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "FedAvg" not in done.stderr


# --- store -----------------------------------------------------------------------------------------------------------


def record(seed=0, **changes):
    body = dict.fromkeys(store.REQUIRED, "x") | {
        "seed": seed,
        "metrics": {"final": {"accuracy": 0.5}},
    }
    body |= changes
    return body | {"key": store.digest([seed, body["method"]])}


def test_records_round_trip_and_replace_by_key(tmp_path):
    path = tmp_path / "deep" / "table.json"
    for seed in (2, 0, 1):
        store.append(path, record(seed))
    store.append(
        path,
        record(
            1, metrics={"final": {"accuracy": float("nan"), "loss": np.float32(1 / 3)}}
        ),
    )
    records = store.read(path)
    assert [r["seed"] for r in records] == [0, 1, 2]
    assert records[1]["metrics"]["final"] == {"accuracy": None, "loss": 0.333333}
    assert os.listdir(path.parent) == ["table.json"]  # no lock, no temporary file stays


def test_damage_is_noticed_and_named(tmp_path):
    path = tmp_path / "table.json"
    for seed in (0, 1):
        store.append(path, record(seed))
    path.write_text(path.read_text().replace('"accuracy": 0.5', '"accuracy": 0.9', 1))
    with pytest.raises(store.StoreError, match=r"table.json: record 0 \(key .*altered"):
        store.read(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(store.StoreError, match="is not JSON"):
        store.read(path)
    path.write_text("{}")
    with pytest.raises(store.StoreError, match="list of records"):
        store.read(path)


def test_incomplete_records_and_large_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    with pytest.raises(store.StoreError, match="lacks machine"):
        store.append(path, {k: v for k, v in record().items() if k != "machine"})
    with pytest.raises(store.StoreError, match="seed must be an integer"):
        store.append(path, record() | {"seed": "0"})
    store.append(path, record())
    monkeypatch.setattr(store, "MAX_BYTES", 600)
    with pytest.raises(store.StoreError, match="fewer curves"):
        store.append(path, record(1))
    assert len(store.read(path)) == 1


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.atomically(path, fail)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


# --- sweeps ----------------------------------------------------------------------------------------------------------


def tasks(seeds=(0, 1), methods=None, **changes):
    base = {
        "dataset": "digits",
        "partition": partial(partition.dirichlet, clients=4, alpha=1.0),
        "model": partial(models.mlp, inputs=64, hidden=(8,), classes=10),
        "local": Local(lr=0.1, steps=2),
        "rounds": 2,
    } | changes
    return [
        Task(method=m, seed=s, **base)
        for m in methods or (FedAvg(), LocalOnly())
        for s in seeds
    ]


def test_a_sweep_records_and_resumes(tmp_path):
    path = tmp_path / "table.json"
    first = sweep(tasks(curves=("accuracy",)), path, n_jobs=1, progress=False)
    assert len(first) == 4 and all(name in first[0] for name in store.REQUIRED)
    assert (
        first[0]["partition"] == "dirichlet(alpha=1.0, clients=4)"
        and first[0]["seed"] == 0
    )
    assert (
        first[0]["metrics"]["curves"]["round"] == [1, 2]
        and len(first[0]["data_sha256"]) == 64
    )
    stamp = path.stat().st_mtime_ns
    again = sweep(tasks(curves=("accuracy",)), path, n_jobs=1, progress=False)
    assert again == first and path.stat().st_mtime_ns == stamp  # nothing was run
    more = sweep(
        tasks(seeds=(1, 2), curves=("accuracy",)), path, n_jobs=1, progress=False
    )
    assert len(more) == 4 and len(store.read(path)) == 6


def test_the_same_record_from_processes_and_from_here(tmp_path):
    here = sweep(tasks(seeds=(3,)), tmp_path / "a.json", n_jobs=1, progress=False)
    there = sweep(tasks(seeds=(3,)), tmp_path / "b.json", n_jobs=2, progress=False)
    assert [r["metrics"] for r in here] == [r["metrics"] for r in there]


def test_a_sweep_heeds_joblibs_configuration(tmp_path, monkeypatch):
    import joblib

    asked = []
    original = joblib.Parallel.__init__
    monkeypatch.setattr(
        joblib.Parallel,
        "__init__",
        lambda self, **kw: (asked.append(kw), original(self, **kw))[1],
    )
    with joblib.parallel_config(backend="threading", n_jobs=3):
        assert len(sweep(tasks(seeds=(4,)), tmp_path / "c.json", progress=False)) == 2
    assert asked[0]["n_jobs"] == 3 and asked[0]["return_as"] == "generator_unordered"


def test_two_writers_lose_nothing(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / "table.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: store.append(path, record(seed)), range(24)))
    assert [r["seed"] for r in store.read(path)] == list(range(24))


@dataclass(frozen=True)
class Broken(FedAvg):
    def step(self, state, fed, t):
        raise RuntimeError("no luck")


def test_a_failing_run_does_not_lose_the_others(tmp_path):
    path = tmp_path / "table.json"
    with pytest.raises(RuntimeError, match=r"(?s)1 of 2 runs failed.*Broken.*no luck"):
        sweep(
            tasks(seeds=(0,), methods=(Broken(), FedAvg())),
            path,
            n_jobs=1,
            progress=False,
        )
    assert [r["method"] for r in store.read(path)] == ["FedAvg(sampled=1.0)"]


KILLED = """
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.test_experiment import tasks
from fednb.experiment import sweep
sweep(tasks(seeds=range(12), rounds=3), {path!r}, n_jobs=1, progress=False)
"""


def test_a_killed_sweep_loses_and_doubles_nothing(tmp_path):
    path, root = tmp_path / "table.json", str(Path(__file__).parents[1])
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(root=root, path=str(path))]
    )
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    kept = store.read(path)
    assert 0 < len(kept) < 24
    done = sweep(tasks(seeds=range(12), rounds=3), path, n_jobs=1, progress=False)
    assert len(done) == 24 == len({r["key"] for r in done})
    assert all(old in done for old in kept)


def test_describe_names_calls_and_refuses_lambdas():
    assert describe(partial(partition.iid, clients=3)) == "iid(clients=3)"
    assert describe(models.cnn_bn) == "cnn_bn()"
    with pytest.raises(ValueError, match="lambda"):
        describe(lambda: None)


# --- reproduce -------------------------------------------------------------------------------------------------------


def test_reproduce_lists_and_runs(tmp_path, monkeypatch, capsys):
    from fednb import reproduce

    assert reproduce.main(["--list"]) == 0
    assert "--profile laptop" in capsys.readouterr().out
    monkeypatch.setitem(
        reproduce.CATALOGUE,
        "demo",
        {"table1": lambda profile: tasks(seeds=(0,), profile=profile)},
    )
    assert reproduce.main(["demo", "--out", str(tmp_path), "--jobs", "1"]) == 0
    assert "2 records" in capsys.readouterr().out
    assert {r["profile"] for r in store.read(tmp_path / "table1.json")} == {"smoke"}
    assert "demo: table1" in reproduce.listing()
    monkeypatch.setitem(reproduce.CATALOGUE, "demo", {"none": lambda profile: []})
    assert (
        reproduce.main(["demo", "--out", str(tmp_path / "empty")]) == 0
        and not (tmp_path / "empty").exists()
    )
    assert "demo none: nothing to run in profile smoke" in capsys.readouterr().out
    for wrong in (["nobody"], ["demo", "--table", "9"], []):
        with pytest.raises(SystemExit):
            reproduce.main(wrong)


def test_reproduce_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "fednb.reproduce", "--list"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "--profile smoke" in done.stdout
