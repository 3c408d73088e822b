"""Records on disk: whole or not at all, damage noticed, nothing lost."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fednb import store


def record(seed=0, **changes):
    """A record that a run could have left."""
    body = dict.fromkeys(store.REQUIRED, "x")
    body |= {"schema": 2, "seed": seed, "metrics": {"final": {"accuracy": 0.5}}}
    body |= changes
    return body | {"key": store.key_of(body)}


def test_records_round_trip_and_replace_by_key(tmp_path):
    path = tmp_path / "deep" / "table.json"
    for seed in (2, 0, 1):
        store.append(path, record(seed))
    numbers = {"accuracy": float("nan"), "loss": np.float32(1 / 3)}
    store.append(path, record(1, metrics={"final": numbers}))
    records = store.read(path)
    assert [r["seed"] for r in records] == [0, 1, 2]
    assert records[1]["metrics"]["final"] == {"accuracy": None, "loss": 0.333333}
    assert os.listdir(path.parent) == ["table.json"]  # no lock, no temporary file


def test_values_become_json():
    tensors = {"a": torch.arange(3), "b": (np.float64(0.1), np.array([[1, 2]]))}
    assert store.jsonable(tensors) == {"a": [0, 1, 2], "b": [0.1, [[1, 2]]]}
    with pytest.raises(TypeError, match="cannot hold .* of type object"):
        store.jsonable({"a": [object()]})


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


def test_a_key_that_is_not_the_specs_is_refused(tmp_path):
    path = tmp_path / "table.json"
    forged = record(0) | {"rounds": 99}
    with pytest.raises(store.StoreError, match="not the hash of what"):
        store.append(path, forged)
    body = {k: v for k, v in forged.items() if k != "check"}
    sealed = body | {"check": store.digest(body)}  # a forger who knows the check
    path.write_text(json.dumps([sealed]))
    with pytest.raises(store.StoreError, match="the key is not that of its spec"):
        store.read(path)


def test_an_old_schema_is_named(tmp_path):
    path = tmp_path / "table.json"
    body = {k: v for k, v in record().items() if k != "schema"}
    path.write_text(json.dumps([body | {"check": store.digest(body)}]))
    with pytest.raises(store.StoreError, match="schema 1.*fednb.migrate"):
        store.read(path)


def test_incomplete_records_are_refused(tmp_path):
    path = tmp_path / "table.json"
    with pytest.raises(store.StoreError, match="lacks machine"):
        store.append(path, {k: v for k, v in record().items() if k != "machine"})
    with pytest.raises(store.StoreError, match="seed must be an integer"):
        store.append(path, record() | {"seed": "0"})


def test_a_table_that_grows_large_goes_on_in_further_files(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MAX_BYTES", 1500)
    path = tmp_path / "table.json"
    for seed in range(12):
        store.append(path, record(seed))
    files = sorted(tmp_path.glob("*.json"))
    assert len(files) > 2 and all(file.stat().st_size <= 1500 for file in files)
    assert [r["seed"] for r in store.read(path)] == list(range(12))
    monkeypatch.setattr(store, "MAX_BYTES", 500_000)
    store.append(path, record(12))
    assert list(tmp_path.glob("*.json")) == [path]  # no part of the past stays
    assert [r["seed"] for r in store.read(path)] == list(range(13))


def test_a_kill_between_two_parts_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MAX_BYTES", 1500)
    path = tmp_path / "table.json"
    for seed in range(1, 12):
        store.append(path, record(seed))
    before = {r["key"] for r in store.read(path)}
    write = store.atomically
    written = []

    def killed(file, what):
        if written:
            raise KeyboardInterrupt
        written.append(file)
        write(file, what)

    monkeypatch.setattr(store, "atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        store.append(path, record(0))
    assert before <= {r["key"] for r in store.read(path)}


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.atomically(path, fail)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_symbolic_link_stays_one(tmp_path):
    target = tmp_path / "elsewhere" / "table.json"
    target.parent.mkdir()
    target.write_text("[]")
    link = tmp_path / "table.json"
    link.symlink_to(target)
    store.append(link, record())
    assert link.is_symlink() and len(store.read(target)) == 1


def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "table.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: store.append(path, record(seed)), range(24)))
    assert [r["seed"] for r in store.read(path)] == list(range(24))


def test_writers_with_other_temp_folders_lose_nothing(tmp_path):
    """The lock is where the records are, not in a folder that each machine has."""
    path = tmp_path / "table.json"
    code = (
        "import sys; from tests.test_store import record; from fednb import store\n"
        "for seed in range(int(sys.argv[2]), int(sys.argv[2]) + 20):\n"
        "    store.append(sys.argv[1], record(seed))"
    )
    children = []
    for i in range(3):
        temp = tmp_path / f"tmp{i}"
        temp.mkdir()
        command = [sys.executable, "-c", code, str(path), str(100 * i)]
        env = os.environ | {"TMPDIR": str(temp)}
        root = Path(__file__).parents[1]
        children.append(subprocess.Popen(command, env=env, cwd=root))
    assert [child.wait() for child in children] == [0, 0, 0]
    assert len(store.read(path)) == 60


def test_runs_are_collected_and_their_folder_goes(tmp_path):
    path = tmp_path / "table.json"
    folder = store.runs_folder(path)
    for seed in (0, 1):
        store.write_run(folder, record(seed))
    store.beat(folder, record(0)["key"], 7)
    assert store.heartbeat(folder, record(0)["key"])[0] == 7
    (folder / f"{record(1)['key']}.npz").write_bytes(b"checkpoint")
    assert set(store.finished(path)) == {record(0)["key"], record(1)["key"]}
    assert len(store.collect(path)) == 2
    assert os.listdir(tmp_path) == ["table.json"]
    assert store.collect(path) == store.read(path)


def test_a_damaged_run_is_set_aside(tmp_path):
    path = tmp_path / "table.json"
    folder = store.runs_folder(path)
    store.write_run(folder, record(0))
    store.write_run(folder, record(1))
    file = folder / f"{record(1)['key']}.json"
    file.write_text(file.read_text()[:50])
    assert set(store.finished(path)) == {record(0)["key"]}
    assert [r["seed"] for r in store.collect(path)] == [0]
    assert [f.name for f in folder.iterdir()] == [f"{file.name}.damaged"]


def test_temporary_files_of_dead_writers_are_removed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    host = store._host()
    dead = tmp_path / f".a.json.{host}-{child.pid}.xyz.tmp"
    alive = tmp_path / f".a.json.{host}-{os.getpid()}.xyz.tmp"
    away = tmp_path / ".a.json.otherhost-1.xyz.tmp"
    old = tmp_path / ".b.json.otherhost-1.xyz.tmp"
    for file in (dead, alive, away, old):
        file.write_text("half")
    os.utime(old, (time.time() - 90_000,) * 2)
    store.clean_temporary(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {alive.name, away.name}


class Inner(NamedTuple):
    x: torch.Tensor


class Outer(NamedTuple):
    inner: tuple
    n: int


def test_checkpoints_keep_named_tuples(tmp_path):
    tree = Outer((Inner(torch.arange(2)), Inner(torch.ones(1))), 3)
    store.save_checkpoint(tmp_path / "c.npz", {}, tree=tree)
    back = store.load_checkpoint(tmp_path / "c.npz")[1]["tree"]
    assert type(back) is Outer and type(back.inner[1]) is Inner
    assert torch.equal(back.inner[0].x, torch.arange(2)) and back.n == 3


@pytest.mark.parametrize(
    ("module", "name"), [("os", "system"), ("nowhere", "X"), ("builtins", "list")]
)
def test_a_checkpoint_names_no_class_that_is_not_a_loaded_tuple(tmp_path, module, name):
    specs = {"tree": {"named": [module, name, []]}}
    text = np.array(json.dumps({"meta": {}, "specs": specs}))
    np.savez(tmp_path / "c.npz", __json__=text)
    with pytest.raises(store.StoreError, match="no tuple class"):
        store.load_checkpoint(tmp_path / "c.npz")
