import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from fednb import methods, store
from fednb.experiment import measure, run
from fednb.history import History
from fednb.identity import describe
from fednb.methods import FedAvg, FedAvgM, FixedClusters, LocalOnly
from fednb.papers.ocfl.arms import Arms
from fednb.training import Local

from .conftest import federation, held


def quiet(method, fed, rounds, **options):
    return run(method, fed, rounds, progress=False, **options)


def same_state(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# --- run ------------------------------------------------------------------------------


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
        x, y = held(fed, k)
        guess = fed.predict(state.theta[k], x).argmax(1)
        right.append((guess == y).float().mean().item())
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
    drop = ("seconds", "server_seconds")
    lines = [
        [{k: v for k, v in row.items() if k not in drop} for row in h.rows]
        for h in (whole, resumed)
    ]
    assert json.dumps(lines[0]) == json.dumps(lines[1])
    assert type(resumed.state) is type(whole.state)


class Pondering(FedAvg):
    """FedAvg whose server is busy for a twentieth of a second in every round."""

    def step(self, state, fed, t):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return super().step(state, fed, t)


def test_the_servers_time_counts_the_methods_own_work(tmp_path):
    path = tmp_path / "run.npz"
    history = quiet(Pondering(), federation(), 2, checkpoint=path)
    first, second = history.frame()["server_seconds"]
    assert 0.05 <= first <= second - 0.05
    assert second <= history.final["seconds"]
    resumed = quiet(Pondering(), federation(), 3, checkpoint=path)
    assert resumed.final["server_seconds"] >= second + 0.05


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


def test_no_rounds_measure_nothing():
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


def every_method():
    for cls in methods.ALL:
        four = FixedClusters([0, 1, 0, 1])
        yield pytest.param(four if cls is FixedClusters else cls(), id=cls.__name__)
    arms = (("FedAvg", FedAvg()), ("OCFL", methods.OCFL()), ("LocalOnly", LocalOnly()))
    yield pytest.param(Arms(arms), id="Arms")


@pytest.mark.parametrize("method", every_method())
def test_every_method_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, method):
    options = {"measure": nothing, "progress": False}
    whole = run(method, federation(), 4, **options)
    run(method, federation(), 2, checkpoint=tmp_path / "c.npz", **options)
    resumed = run(method, federation(), 4, checkpoint=tmp_path / "c.npz", **options)
    assert json.dumps(described(whole.state)) == json.dumps(described(resumed.state))


def nothing(fed, state):
    return {}


def described(value):
    """A state as text that tells types and every bit."""
    if isinstance(value, tuple):
        return [type(value).__name__, *(described(v) for v in value)]
    if isinstance(value, dict):
        return {k: described(v) for k, v in value.items()}
    return describe(value)


def test_fewer_rounds_than_saved_are_refused(tmp_path):
    quiet(FedAvg(), federation(), 3, checkpoint=tmp_path / "c.npz")
    with pytest.raises(store.StoreError, match="holds 3 rounds, 2 were asked for"):
        quiet(FedAvg(), federation(), 2, checkpoint=tmp_path / "c.npz")


def test_watch_hears_of_every_round():
    heard = []
    quiet(
        FedAvg(), federation(), 3, every=2, watch=lambda t, h: heard.append((t, len(h)))
    )
    assert heard == [(1, 0), (2, 1), (3, 2)]


class Wrong:
    """Returns what it was told to."""

    def __init__(self, state):
        self.state = state

    def init(self, fed):
        return FedAvg().init(fed)

    def step(self, state, fed, t):
        return self.state


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rounds": 2.5}, ValueError, r"run\(rounds=2.5\): need an integer >= 0"),
        ({"rounds": "3"}, ValueError, "need an integer"),
        ({"rounds": float("nan")}, ValueError, "need an integer"),
        ({"every": 0}, ValueError, "need an integer >= 1"),
        ({"last": -1}, ValueError, "need an integer >= 1"),
        ({"save_every": 0}, ValueError, "need None or an integer >= 1"),
        ({"method": FedAvg}, TypeError, r"FedAvg is a class; pass FedAvg\(\)"),
        ({"method": None}, TypeError, "None is no method: it needs init and step"),
        ({"fed": None}, TypeError, "None is not a Federation"),
        ({"measure": None}, TypeError, "measure=None is not a function"),
        ({"method": Wrong(None)}, TypeError, "Wrong returned NoneType: need theta"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_run_tells_what_is_wrong(changes, error, words):
    asked = {"method": FedAvg(), "fed": federation(), "rounds": 1} | changes
    with pytest.raises(error, match=words):
        run(**asked, progress=False)


def test_run_tells_of_states_of_wrong_shape():
    state = FedAvg().init(federation())
    with pytest.raises(ValueError, match="theta of shape"):
        quiet(Wrong(state._replace(theta=state.theta[:, :-1])), federation(), 1)
    with pytest.raises(ValueError, match=r"labels of shape \(3,\): need \(4,\)"):
        quiet(Wrong(state._replace(labels=state.labels[:-1])), federation(), 1)


@pytest.mark.parametrize("method", [methods.WeCFL(3), methods.IFCA(3)], ids=str)
def test_the_number_of_threads_does_not_change_a_bit(method):
    """Matrix products at the server add up in another order on several threads."""
    before = torch.get_num_threads()
    states = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            fed = federation("lenet5", sizes=(20,) * 12, workers=2)
            states.append(quiet(method, fed, 3).state)
            assert torch.get_num_threads() == threads  # as it was
    finally:
        torch.set_num_threads(before)
    assert same_state(*states)
