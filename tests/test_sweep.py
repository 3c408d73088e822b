"""Sweeps: they record, resume, survive, and tell what went wrong."""

import dataclasses
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

from fednb import engines, models, partition, store, sweeps
from fednb.methods import FedAvg, FedAvgM, LocalOnly
from fednb.sweeps import Task, sweep
from fednb.training import Local

ROOT = Path(__file__).parents[1]


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


def quiet(tasks, path, **options):
    return sweep(tasks, path, progress=False, **{"n_jobs": 1} | options)


def test_a_sweep_goes_on_with_the_same_data_only(tmp_path):
    path = tmp_path / "table.json"
    first, *others = tasks()
    quiet([first], path)
    record = json.loads(path.read_text())[0]
    other_file = store.seal(record | {"data_sha256": 64 * "0"})
    store.write_table(path, [other_file])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another file of digits .* FEDNB_DATA"):
        quiet([first, *others], path)
    assert path.read_bytes() == before  # nothing is lost, and nothing was run
    assert not list(tmp_path.glob("table.runs/*.json"))
    assert quiet([first], path) == [other_file]  # nothing to do, nothing to refuse


def outcome(records):
    """What a record must say whatever happened on the way, by key."""
    drop = ("seconds", "server_seconds", "check", "peak_mb", "machine")
    return {
        record["key"]: {k: v for k, v in record.items() if k not in drop}
        for record in records
    }


def test_a_sweep_records_and_resumes(tmp_path):
    path = tmp_path / "table.json"
    first = quiet(tasks(curves=("accuracy",)), path)
    assert len(first) == 4 and all(name in first[0] for name in store.REQUIRED)
    assert first[0]["partition"] == "dirichlet(clients=4, alpha=1.0)"
    assert first[0]["seed"] == 0 and len(first[0]["data_sha256"]) == 64
    assert first[0]["metrics"]["curves"]["round"] == [1, 2]
    assert first[0]["peak_mb"] is None or first[0]["peak_mb"] > 10
    stamp = path.stat().st_mtime_ns
    again = quiet(tasks(curves=("accuracy",)), path)
    assert again == first and path.stat().st_mtime_ns == stamp  # nothing was run
    more = quiet(tasks(seeds=(1, 2), curves=("accuracy",)), path)
    assert len(more) == 4 and len(store.read(path)) == 6
    assert os.listdir(tmp_path) == ["table.json"]


def test_the_same_record_from_processes_and_from_here(tmp_path):
    here = quiet(tasks(seeds=(3,)), tmp_path / "a.json")
    there = quiet(tasks(seeds=(3,)), tmp_path / "b.json", n_jobs=2)
    assert outcome(here) == outcome(there)


def test_parts_of_a_sweep_make_the_whole(tmp_path):
    path = tmp_path / "table.json"
    whole = tasks(seeds=range(3))
    first = quiet(whole, path, part=(1, 2))
    assert {r["key"] for r in first} == {t.key for t in whole[::2]}
    assert len(quiet(whole, path, part=(2, 2))) == 3
    assert {r["key"] for r in store.read(path)} == {t.key for t in whole}
    with pytest.raises(ValueError, match="1 <= i <= n"):
        quiet(whole, path, part=(3, 2))


@dataclass(frozen=True)
class Broken(FedAvg):
    def step(self, state, fed, t):
        raise RuntimeError("no luck")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_failing_run_does_not_lose_the_others(tmp_path, n_jobs):
    path = tmp_path / "table.json"
    both = tasks(seeds=(0,), methods=(Broken(), FedAvg()))
    with pytest.raises(RuntimeError, match=r"(?s)1 of 2 runs failed.*Broken.*no luck"):
        quiet(both, path, n_jobs=n_jobs)
    assert [r["method"] for r in store.read(path)] == ["FedAvg()"]
    assert os.listdir(tmp_path) == ["table.json"]


@dataclass(frozen=True)
class Deadly(FedAvg):
    """Ends its process in round 1, as often as the file has lines to spare."""

    file: str = ""
    times: int = 99

    def step(self, state, fed, t):
        file = Path(self.file)
        deaths = len(file.read_text()) if file.exists() else 0
        if t == 1 and deaths < self.times:
            file.write_text("x" * (deaths + 1))
            os._exit(1)
        return super().step(state, fed, t)


def test_a_dead_worker_costs_one_run_which_is_tried_again(tmp_path):
    path = tmp_path / "table.json"
    deadly = Deadly(file=str(tmp_path / "deaths"), times=2)
    found = quiet(tasks(methods=(deadly, FedAvg())), path, n_jobs=2)
    assert len(found) == 4
    assert (tmp_path / "deaths").read_text() == "xx"


def test_a_run_that_always_dies_is_reported_and_the_others_are_kept(tmp_path):
    path = tmp_path / "table.json"
    deadly = Deadly(file=str(tmp_path / "deaths"))
    mixed = tasks(seeds=(0,), methods=(deadly,)) + tasks(seeds=range(4))
    with pytest.raises(RuntimeError, match=r"1 of 9 runs failed.*(?s:.)*died 3 times"):
        quiet(mixed, path, n_jobs=2)
    assert len(store.read(path)) == 8
    assert (tmp_path / "deaths").read_text() == "xxx"


@dataclass(frozen=True)
class Asleep(FedAvg):
    """Never answers the first time."""

    file: str = ""

    def step(self, state, fed, t):
        file = Path(self.file)
        if not file.exists():
            file.write_text("seen")
            time.sleep(1000)
        return super().step(state, fed, t)


def test_a_worker_that_never_answers_is_replaced(tmp_path):
    path = tmp_path / "table.json"
    asleep = Asleep(file=str(tmp_path / "seen"))
    some = tasks(seeds=(0,), methods=(asleep, FedAvg()))
    assert len(quiet(some, path, n_jobs=2, stall=8.0)) == 2


def test_a_measure_that_json_cannot_hold_is_told_in_the_first_round(tmp_path):
    (task,) = tasks(seeds=(0,), methods=(FedAvg(),), measure=bad_measure)
    with pytest.raises(RuntimeError, match="cannot hold"):
        quiet([task], tmp_path / "table.json")
    (task,) = tasks(seeds=(0,), methods=(FedAvg(),), measure=tensor_measure)
    (found,) = quiet([task], tmp_path / "table.json")
    assert found["metrics"]["final"]["rows"] == [0.0, 1.0]


def bad_measure(fed, state):
    return {"what": object()}


def tensor_measure(fed, state):
    return {"rows": torch.arange(2.0), "one": np.int64(3)}


# --- interrupted ---------------------------------------------------------------------


@dataclass(frozen=True)
class Pressed(FedAvg):
    """Somebody presses Ctrl-C in the second round."""

    def step(self, state, fed, t):
        if t == 1:
            raise KeyboardInterrupt
        return super().step(state, fed, t)


def test_ctrl_c_ends_a_sweep_and_never_writes_a_part(tmp_path):
    path = tmp_path / "table.json"
    some = tasks(seeds=(0,), methods=(FedAvg(), Pressed(), LocalOnly()))
    with (
        pytest.raises(KeyboardInterrupt),
        pytest.warns(UserWarning, match="stopped by hand after 1 of 2"),
    ):
        quiet(some, path)
    assert [r["method"] for r in store.read(path)] == ["FedAvg()"]


def test_a_record_of_too_few_rounds_is_refused(monkeypatch):
    (task,) = tasks(seeds=(0,), methods=(FedAvg(),), rounds=3)
    run = sweeps.run

    def short(method, fed, rounds, **options):
        return run(method, fed, rounds - 1, **options)

    monkeypatch.setattr(sweeps, "run", short)
    with pytest.raises(RuntimeError, match="ended in round 2 of 3"):
        task.record()


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path):
    """Its last save is used: the rounds before it are not done again."""
    folder = tmp_path / "table.runs"
    (task,) = tasks(seeds=(0,), methods=(FedAvgM(sampled=2),), rounds=6)
    undisturbed = task.record()
    done = []

    def stop(key, rounds):
        done.append(rounds)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweeps.attempt(task, folder, 0.0, tell=stop)
    assert (folder / f"{task.key}.npz").exists()
    record = sweeps.attempt(task, folder, tell=lambda key, rounds: done.append(rounds))
    assert done == [1, 2, 3, 4, 4, 5, 6]
    assert outcome([record]) == outcome([undisturbed])
    assert os.listdir(folder) == [f"{task.key}.json"]


def test_a_checkpoint_that_does_not_fit_is_dropped(tmp_path):
    folder = tmp_path / "table.runs"
    folder.mkdir()
    (task,) = tasks(seeds=(0,), methods=(FedAvg(),))
    (folder / f"{task.key}.npz").write_bytes(b"half a file")
    with pytest.warns(UserWarning, match="starting afresh"):
        record = sweeps.attempt(task, folder)
    assert outcome([record]) == outcome([task.record()])


SCRIPT = """
import signal
import sys
from tests.test_sweep import tasks
from fednb.sweeps import sweep
# a shell that runs tests in the background has them ignore Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)
sweep(tasks(seeds=range(12), rounds=3), sys.argv[1], n_jobs=int(sys.argv[2]))
"""


def start_sweep(path, jobs, **env):
    """A sweep in a process of its own, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(jobs)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | env,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def group_is_gone(child):
    """Whether no process of the sweep is left."""
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("kind", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"])
def test_a_stopped_sweep_loses_nothing_and_leaves_no_orphan(tmp_path, kind):
    path = tmp_path / "table.json"
    child = start_sweep(path, jobs=2)
    wait_for(lambda: len(store.finished(path)) >= 2)
    before = set(store.finished(path))
    os.kill(child.pid, getattr(signal, kind))
    child.wait(30)
    wait_for(lambda: group_is_gone(child))
    kept = outcome(store.finished(path).values())
    assert 2 <= len(kept) < 24
    if kind != "SIGKILL":
        # Collected on the way out; a worker may still end a run before it is killed.
        collected = outcome(store.read(path))
        assert before <= collected.keys() <= kept.keys()
    done = outcome(quiet(tasks(seeds=range(12), rounds=3), path))
    assert len(done) == 24 and all(done[key] == kept[key] for key in kept)
    assert os.listdir(tmp_path) == ["table.json"]


def test_two_sweeps_of_one_table_share_the_work(tmp_path):
    path = tmp_path / "table.json"
    children = []
    for i in range(2):
        temp = tmp_path / f"tmp{i}"
        temp.mkdir()
        children.append(start_sweep(path, jobs=2, TMPDIR=str(temp)))
    assert [child.wait(120) for child in children] == [0, 0]
    whole = tasks(seeds=range(12), rounds=3)
    assert {r["key"] for r in store.read(path)} == {task.key for task in whole}
    assert not store.runs_folder(path).exists()
    assert [f.name for f in tmp_path.iterdir() if f.is_file()] == ["table.json"]


def test_runs_that_another_sweep_is_doing_come_last(tmp_path):
    first, second, third, fourth = tasks()
    done = []

    def work(task):
        if task is first:  # meanwhile another sweep begins two runs, and one dies
            store.beat(tmp_path, second.key, 1)
            store.beat(tmp_path, third.key, 1)
            long_ago = time.time() - 2 * store.FRESH
            os.utime(tmp_path / f"{third.key}.round", (long_ago, long_ago))
        done.append(task)

    list(engines.serial([first, second, third, fourth], work, tmp_path))
    assert done == [first, third, fourth, second]


# --- disks ---------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_told_before_the_first_run(tmp_path):
    (tmp_path / "table.runs").write_text("a file where the folder should be")
    with pytest.raises(store.StoreError, match="cannot be written"):
        quiet(tasks(methods=(Broken(),)), tmp_path / "table.json")


def test_a_full_disk_loses_no_finished_run(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    write = store.write_run
    tries = []

    def full(folder, record):
        tries.append(folder)
        if len(tries) <= 3:
            raise OSError(28, "No space left on device")
        write(folder, record)

    monkeypatch.setattr(store, "write_run", full)
    assert len(quiet(tasks(), path)) == 4  # written when there was room again
    assert len(tries) > 4


def test_what_the_disk_never_takes_is_put_elsewhere(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    write = store.write_run
    refuge = tmp_path / "refuge"
    refuge.mkdir()
    monkeypatch.setattr(sweeps.tempfile, "mkdtemp", lambda prefix: str(refuge))

    def full(folder, record):
        if Path(folder) != refuge:
            raise OSError(28, "No space left on device")
        write(folder, record)

    monkeypatch.setattr(store, "write_run", full)
    with pytest.raises(RuntimeError, match="4 finished runs could not be written"):
        quiet(tasks(), path)
    assert len(list(refuge.glob("*.json"))) == 4


def test_a_checkpoint_that_cannot_be_saved_does_not_end_the_run(tmp_path, monkeypatch):
    def full(*args, **trees):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "save_checkpoint", full)
    (task,) = tasks(seeds=(0,), methods=(FedAvg(),))
    with pytest.warns(UserWarning, match="no checkpoint"):
        record = task.record(checkpoint=tmp_path / "x.npz", save_seconds=0.0)
    assert outcome([record]) == outcome([task.record()])


# --- engines -------------------------------------------------------------------------


def test_workers_share_cores_and_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = [engines.worker_environment(i, 4) for i in range(4)]
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found] == ["0", "1", "0", "1"]
    assert {e["OMP_NUM_THREADS"] for e in found} == {"2"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    found = [engines.worker_environment(i, 2) for i in range(2)]
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found] == ["5", "7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "CUDA_VISIBLE_DEVICES" not in engines.worker_environment(0, 1)


def test_a_sweep_leaves_no_semaphore_behind(tmp_path):
    """Python's resource tracker would say so at the end."""
    code = (
        "import sys; from tests.test_sweep import quiet, tasks\n"
        "quiet(tasks(seeds=(0,)), sys.argv[1], n_jobs=2)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "table.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "leaked" not in done.stderr
    assert len(store.read(tmp_path / "table.json")) == 2


def test_a_task_that_cannot_be_sent_is_reported(tmp_path):
    import threading

    task = tasks(seeds=(0,), methods=(FedAvg(),))[0]
    sealed = dataclasses.replace(task, tags={"lock": threading.Lock()})
    with pytest.raises(RuntimeError, match=r"(?s)1 of 5 runs failed.*pickle"):
        quiet([sealed, *tasks(seeds=(5, 6))], tmp_path / "table.json", n_jobs=2)
    assert len(store.read(tmp_path / "table.json")) == 4


@pytest.fixture(scope="module")
def scheduler():
    """A Dask cluster of two processes with one thread each."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        yield cluster


def test_dask_gives_the_same_records(tmp_path, scheduler):
    address = scheduler.scheduler_address
    there = quiet(tasks(), tmp_path / "a.json", engine="dask", address=address)
    assert outcome(there) == outcome(quiet(tasks(), tmp_path / "b.json"))
    assert os.listdir(tmp_path / "..") and (tmp_path / "a.json").exists()


def test_a_dead_dask_worker_costs_one_run(tmp_path, scheduler):
    address = scheduler.scheduler_address
    deadly = Deadly(file=str(tmp_path / "deaths"), times=1)
    some = tasks(methods=(deadly, FedAvg()))
    found = quiet(some, tmp_path / "a.json", engine="dask", address=address)
    assert len(found) == 4 and (tmp_path / "deaths").read_text() == "x"


def test_dask_workers_with_several_threads_are_refused(tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=4, processes=False, dashboard_address=":0"
        ) as cluster,
        pytest.raises(ValueError, match="one thread each"),
    ):
        address = cluster.scheduler_address
        quiet(tasks(), tmp_path / "a.json", engine="dask", address=address)


def test_submitit_gives_the_same_records(tmp_path):
    pytest.importorskip("submitit")
    some = tasks(seeds=(0,))
    path = tmp_path / "a.json"
    there = sweep(some, path, engine="slurm", address="local", n_jobs=2, progress=False)
    assert outcome(there) == outcome(quiet(some, tmp_path / "b.json"))


# --- the command ---------------------------------------------------------------------


def test_data_of_another_size_are_refused():
    (task,) = tasks(seeds=(0,), methods=(FedAvg(),), train_rows=50_000)
    with pytest.raises(ValueError, match=r"1,437 training rows here.*50,000"):
        task.federation()
    assert task.spec()["train_rows"] == 50_000


@pytest.fixture
def demo(monkeypatch):
    from fednb import reproduce

    def make(profile):
        return tasks(seeds=(0,), profile=profile)

    tables = {"table1": make, "table2_alpha": make, "table2_class": lambda _: []}
    monkeypatch.setitem(reproduce.CATALOGUE, "demo", tables)
    return reproduce


def test_reproduce_lists_and_runs(tmp_path, demo, capsys):
    assert demo.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert "--profile laptop" in out and "demo: table1, table2_alpha" in out
    there = ["demo", "--out", str(tmp_path), "--jobs", "1"]
    assert demo.main([*there, "--table", "1"]) == 0
    assert "2 new, 0 recorded before" in capsys.readouterr().out
    assert demo.main([*there, "--table", "table1"]) == 0
    assert "0 new, 2 recorded before" in capsys.readouterr().out
    assert {r["profile"] for r in store.read(tmp_path / "table1.json")} == {"smoke"}


def test_reproduce_takes_a_papers_number(tmp_path, demo, capsys):
    assert demo.main(["demo", "--table", "2", "--out", str(tmp_path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "demo table2_alpha (smoke): 2 runs, 0 recorded, 2 to do" in out
    assert "demo table2_class: nothing to run in profile smoke" in out
    assert "table1" not in out and not list(tmp_path.iterdir())


def test_reproduce_can_do_only_what_is_due(tmp_path, demo):
    clean, dirty = (task.record() for task in tasks(seeds=(0,)))
    clean["commit"] = "abc"
    dirty["commit"] = "abc-dirty"
    path = tmp_path / "table1.json"
    for record in (clean, dirty):
        store.append(path, record)
    more = tasks(seeds=(0, 1))
    found = {task.key for task in demo.due(more, path)}
    assert found == {task.key for task in more} - {clean["key"]}


def test_reproduce_collects(tmp_path, demo, capsys):
    (task, _) = tasks(seeds=(0,))
    store.write_run(tmp_path / "table1.runs", task.record())
    assert demo.main(["demo", "--table", "1", "--out", str(tmp_path), "--collect"]) == 0
    assert "1 records in" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "table1.json").read_text())) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ["nobody"],
        [],
        ["demo", "--table", "9"],
        ["demo", "--part", "3/2"],
        ["demo", "--part", "x"],
        ["demo", "--jobs", "0"],
    ],
)
def test_reproduce_refuses_nonsense(demo, wrong):
    with pytest.raises(SystemExit):
        demo.main(wrong)


def test_reproduce_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "fednb.reproduce", "--list"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0 and "--profile smoke" in done.stdout
