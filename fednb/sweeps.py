"""Tasks, sweeps of them, and the records that they leave."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from . import __version__, checks, data, engines, store
from .experiment import Measure, measure, run, silent
from .federation import Federation
from .history import History
from .identity import describe, digest, revision
from .partition import Partition, match_test
from .training import Local

# --- tasks --------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One run of a sweep, in words that a record can hold.

    ``dataset`` is a name that ``data.load`` knows, a ``Dataset`` (its key is a hash of
    its content), or a function without arguments that makes one (its key is its name,
    its bound arguments and a hash of its source). ``partition`` and ``model`` are
    functions with their keywords bound by ``functools.partial``; the partition receives
    the training labels and the seed.
    ``curves`` names the metrics whose value at every evaluated round is kept, beside
    the final ones. ``tags`` name the cell of a table that the run belongs to; they are
    no part of what was asked for, so a table can be named anew without running
    anything again.
    """

    method: Any
    dataset: str | data.Dataset | Callable[[], data.Dataset]
    partition: Callable[..., Any]
    model: Callable[[], torch.nn.Module]
    local: Local
    rounds: int
    seed: int = 0
    profile: str = "smoke"
    every: int = 1
    last: int = 1
    curves: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)  # keywords of Federation
    official: bool = False  # test on official samples, see partition.match_test
    measure: Measure = measure
    train_rows: int | None = None  # refuse data with another number of training rows
    tags: Mapping[str, str | int | float] = field(default_factory=dict)
    _brought: ClassVar[dict[str, Any]] = {}  # the spec that came with a pickled task

    def spec(self) -> dict[str, Any]:
        """What was asked for, as JSON; a record's key is its hash.

        Fields of a task that have their default values are left out.
        """
        return dict(self._brought) or self._describe()

    def __getstate__(self) -> dict[str, Any]:
        """A task takes its spec along to other processes.

        They may not know the source of a class that was defined in a notebook, and
        would give it another key.
        """
        return self.__dict__ | {"_brought": self.spec()}

    def _describe(self) -> dict[str, Any]:
        """The spec, made from the fields."""
        always = {
            "schema": store.SCHEMA,
            "method": describe(self.method),
            "dataset": _dataset_name(self.dataset),
            "partition": describe(self.partition),
            "model": describe(self.model),
            "local": describe(self.local),
            "rounds": self.rounds,
            "seed": self.seed,
            "profile": self.profile,
        }
        options = {name: describe(value) for name, value in self.options.items()}
        sometimes = {
            "every": (self.every, 1),
            "last": (self.last, 1),
            "curves": (list(self.curves), []),
            "options": (options, {}),
            "official": (self.official, False),
            "measure": (describe(self.measure), "measure()"),
            "train_rows": (self.train_rows, None),
        }
        changed = {name: v for name, (v, usual) in sometimes.items() if v != usual}
        return always | changed

    @property
    def key(self) -> str:
        """Hash of the spec."""
        return digest(self.spec())

    def __str__(self) -> str:
        dataset = _dataset_name(self.dataset)
        return f"{describe(self.method)} on {dataset}, seed {self.seed}"

    def load(self) -> data.Dataset:
        """The data set itself."""
        if isinstance(self.dataset, str):
            return data.load(self.dataset)
        found = self.dataset
        if not isinstance(found, data.Dataset) and callable(found):
            found = found()
        if not isinstance(found, data.Dataset):
            raise TypeError(
                f"Task(dataset={self.dataset!r}): need the name of a data set, a "
                "Dataset, or a function that returns one"
            )
        return found

    def federation(self) -> Federation:
        """Load the data, partition it, and build the federation."""
        dataset = self.load()
        if self.train_rows not in (None, dataset.n_train):
            raise ValueError(
                f"{dataset.name} has {dataset.n_train:,} training rows here, this run "
                f"is about {self.train_rows:,}: point FEDNB_DATA at the right file"
            )
        return Federation(
            dataset,
            self.deal(dataset.y[: dataset.n_train], dataset.y[dataset.n_train :]),
            self.model,
            local=self.local,
            seed=self.seed,
            **self.options,
        )

    def deal(self, y: np.ndarray, y_test: np.ndarray) -> Partition:
        """Who holds which samples, given the labels for training and the test ones."""
        parts = self.partition(y, seed=self.seed)
        if self.official:
            parts = match_test(parts, y, y_test, seed=self.seed)
        return parts

    def record(
        self,
        *,
        progress: bool = False,
        checkpoint: Path | None = None,
        save_seconds: float = 60.0,
        watch: Callable[[int, History], None] | None = None,
    ) -> dict[str, Any]:
        """Do the run and write down what it gave.

        A run that was stopped on the way gives no record: KeyboardInterrupt is raised.
        """
        _reset_peak_memory()
        fed = self.federation()
        history = run(
            self.method,
            fed,
            self.rounds,
            every=self.every,
            last=self.last,
            measure=self.measure,
            progress=progress,
            checkpoint=checkpoint,
            save_every=None,
            save_seconds=save_seconds,
            watch=watch,
        )
        if history.interrupted:
            raise KeyboardInterrupt
        if history.final["round"] != self.rounds:
            raise RuntimeError(
                f"the run ended in round {history.final['round']} of {self.rounds}"
            )
        return self.describe_run(history, fed)

    def describe_run(self, history: History, fed: Federation) -> dict[str, Any]:
        """The record of a run of this task that was done elsewhere, by hand say."""
        dataset = self.load()
        elsewhere = {"round", "client_updates", "bytes", "events"}
        elsewhere |= {"seconds", "server_seconds"}
        final = {k: v for k, v in history.final.items() if k not in elsewhere}
        curves = {}
        if self.curves:
            curves["round"] = [row["round"] for row in history.rows]
        for name in self.curves:
            curves[name] = [row.get(name) for row in history.rows]
        return self.spec() | {
            "key": self.key,
            "data_sha256": dataset.sha256 or data.fingerprint(dataset),
            "data_note": dataset.note,
            "version": __version__,
            "commit": commit(),
            "machine": machine(),
            "seconds": history.final["seconds"],
            "server_seconds": round(history.final["server_seconds"], 4),
            "peak_mb": _peak_memory(),
            "client_updates": fed.meter.updates,
            "bytes": fed.meter.bytes,
            "metrics": {"final": final, "curves": curves},
            "events": [list(event) for event in history.events],
        }


# --- sweeps -------------------------------------------------------------------------

ENGINES = ("local", "dask", "slurm")


def sweep(
    tasks: Iterable[Task],
    path: str | Path,
    *,
    n_jobs: int | None = None,
    progress: bool = True,
    engine: str = "local",
    address: str | None = None,
    part: tuple[int, int] = (1, 1),
    stall: float = 3600.0,
    save_seconds: float = 60.0,
) -> list[dict[str, Any]]:
    """Do the tasks that have no record yet, and return the records of all of them.

    ``path`` is the table's file. Every run is written, whole, into a file of its own as
    soon as it ends, and saved every ``save_seconds`` on the way: a sweep that was
    killed goes on where it was, if the files of its data sets are still the same. At
    the end, or when it is stopped, the runs are collected into the table's file (see
    :mod:`fednb.store`). A run that fails, or whose process dies three times, does not
    stop the others; all failures are reported at the end.

    ``engine`` is ``"local"`` (one process per core, or ``n_jobs``; one job runs in this
    process), ``"dask"`` (the scheduler at ``address``), or ``"slurm"`` (submitit;
    ``address="local"`` tries it without a scheduler). ``part=(2, 5)`` does the second
    fifth of the tasks, for any other scheduler. A local run that shows no sign of life
    for ``stall`` seconds is taken for dead.
    """
    from tqdm.auto import tqdm

    tasks = list(tasks)
    path = Path(path)
    checks.argument("sweep", "engine", engine, checks.choice(*ENGINES))
    checks.argument("sweep", "n_jobs", n_jobs, checks.optional(checks.integer(1)))
    mine = tasks[_share(part)]
    folder = store.runs_folder(path)
    done = store.finished(path)
    todo = list({task.key: task for task in mine if task.key not in done}.values())
    failures: list[str] = []
    if todo:
        _check_writable(folder)
        _check_same_files(todo, done.values(), path)
        bar = tqdm(
            total=sum(task.rounds for task in todo),
            desc=path.stem,
            unit="round",
            **silent(not progress),
        )
        with bar, _signals_stop(), _collected(path):
            look = _Progress(bar, folder, todo)
            outcomes = _outcomes(
                todo,
                folder,
                save_seconds=save_seconds,
                engine=engine,
                n_jobs=n_jobs,
                address=address,
                stall=stall,
                look=look,
            )
            failures = _receive(outcomes, folder, look)
    if failures:
        raise RuntimeError(
            f"{len(failures)} of {len(todo)} runs failed, the others are kept:\n\n"
            + "\n".join(failures)
        )
    wanted = {task.key for task in mine}
    found = store.finished(path).values()
    return [record for record in found if record["key"] in wanted]


def _check_same_files(
    todo: Iterable[Task], done: Iterable[dict[str, Any]], path: Path
) -> None:
    """Refuse to go on with another file of a data set than the recorded runs had.

    A data set that cannot be loaded is left to its runs, which say why.
    """
    recorded = {record["dataset"]: record["data_sha256"] for record in done}
    first = {_dataset_name(task.dataset): task for task in todo}
    for name in first.keys() & recorded.keys():
        try:
            dataset = first[name].load()
        except Exception:  # a loader of the user's own may raise anything
            continue
        if (dataset.sha256 or data.fingerprint(dataset)) != recorded[name]:
            raise ValueError(
                f"sweep: {path} has runs on another file of {name} than the one found "
                "now: set FEDNB_DATA to what it was then, or make the table in a "
                "folder of its own (--out)"
            )


def attempt(
    task: Task,
    folder: Path,
    save_seconds: float = 60.0,
    tell: Callable[[str, int], None] | None = None,
) -> dict[str, Any] | engines.Failure | Unwritten:
    """Do one run of a sweep, from its checkpoint if there is one, and write its record.

    Another sweep may have done it meanwhile: then its record is returned.
    """
    key = task.key
    record = store.read_run(folder, key)
    if record is not None:
        return record
    told_at = 0.0

    def watch(done: int, _: History) -> None:
        nonlocal told_at
        if tell is not None:
            tell(key, done)
        if time.monotonic() - told_at >= 1:
            told_at = time.monotonic()
            store.beat(folder, key, done)

    store.beat(folder, key, 0)
    try:
        record = _record_from_checkpoint(
            task, folder / f"{key}.npz", save_seconds, watch
        )
    except Exception:
        store.forget(folder, key)
        return engines.Failure(f"{task}:\n{traceback.format_exc()}")
    try:
        store.write_run(folder, record)
    except OSError as error:
        return Unwritten(record, str(error))
    store.forget(folder, key)
    return record


class Unwritten(NamedTuple):
    """A finished run that could not be written where it should be."""

    record: dict[str, Any]
    why: str


def _record_from_checkpoint(
    task: Task,
    checkpoint: Path,
    save_seconds: float,
    watch: Callable[[int, History], None],
) -> dict[str, Any]:
    """The task's record; a checkpoint that does not fit is dropped."""
    record = partial(
        task.record, checkpoint=checkpoint, save_seconds=save_seconds, watch=watch
    )
    try:
        return record()
    except store.StoreError as error:
        if not checkpoint.exists():
            raise
        warnings.warn(f"starting afresh: {error}", stacklevel=2)
        checkpoint.unlink()
        return record()


def _outcomes(
    todo: list[Task],
    folder: Path,
    save_seconds: float,
    engine: str,
    n_jobs: int | None,
    address: str | None,
    stall: float,
    look: _Progress,
) -> engines.Outcomes:
    """The outcomes of tasks as they come, from the engine that was asked for."""
    work = partial(attempt, folder=folder, save_seconds=save_seconds)
    jobs = min(n_jobs or os.cpu_count() or 1, len(todo))
    if engine == "dask":
        if address is None:
            raise ValueError('sweep(engine="dask") needs the scheduler\'s address')
        return engines.dask(todo, work, address)
    if engine == "slurm":
        return engines.slurm(todo, work, n_jobs or 100, folder, address)
    if jobs == 1:
        return engines.serial(todo, partial(work, tell=look.tell), folder)
    return engines.local(todo, work, jobs, folder, stall)


def _receive(outcomes: engines.Outcomes, folder: Path, look: _Progress) -> list[str]:
    """Take in outcomes until there are no more; return what went wrong."""
    failures = []
    unwritten: list[Unwritten] = []
    with contextlib.closing(outcomes):
        for outcome in outcomes:
            look.refresh()
            if outcome is None:
                continue
            task, found = outcome
            if isinstance(found, engines.Failure):
                failures.append(f"{task}: {found.why}")
            elif isinstance(found, Unwritten):
                unwritten.append(found)
            elif store.read_run(folder, task.key) is None:  # made on another disk
                unwritten.append(Unwritten(found, "made elsewhere"))
            unwritten = [late for late in unwritten if not _written(late, folder)]
            look.finish(task, found)
    return failures + _rescue(unwritten, folder)


def _written(late: Unwritten, folder: Path) -> bool:
    """Try to write a finished run once more."""
    try:
        store.write_run(folder, late.record)
    except OSError:
        return False
    store.forget(folder, late.record["key"])
    return True


def _rescue(unwritten: list[Unwritten], folder: Path) -> list[str]:
    """Write runs that could not be written into a temporary folder, and say where."""
    if not unwritten:
        return []
    refuge = Path(tempfile.mkdtemp(prefix="fednb-runs-"))
    for late in unwritten:
        store.write_run(refuge, late.record)
    return [
        f"{len(unwritten)} finished runs could not be written to {folder} "
        f"({unwritten[0].why}). They are in {refuge}: make room, copy them there, and "
        "start the sweep again"
    ]


class _Progress:
    """A bar over the rounds of all runs, and a line in the log for each run."""

    def __init__(self, bar: Any, folder: Path, tasks: list[Task]) -> None:
        self.bar = bar
        self.folder = folder
        self.rounds = dict.fromkeys((task.key for task in tasks), 0)
        self.finished: set[str] = set()
        self.looked_at = 0.0

    def tell(self, key: str, rounds: int) -> None:
        """Note how far a run is."""
        self.bar.update(rounds - self.rounds[key])
        self.rounds[key] = rounds

    def refresh(self) -> None:
        """Read the heartbeats of the runs under way, about once a second."""
        if time.monotonic() - self.looked_at < 1 or self.bar.disable:
            return
        self.looked_at = time.monotonic()
        for key in self.rounds:
            if key not in self.finished:
                beat = store.heartbeat(self.folder, key)
                if beat is not None:
                    self.tell(key, beat[0])

    def finish(self, task: Task, outcome: Any) -> None:
        """Tell of a run that has ended."""
        self.finished.add(task.key)
        self.tell(task.key, task.rounds)
        self.bar.set_postfix(runs=f"{len(self.finished)}/{len(self.rounds)}")
        if self.bar.disable:
            return
        if isinstance(outcome, engines.Failure):
            words = "FAILED"
        else:
            record = outcome
            if isinstance(outcome, Unwritten):
                record = outcome.record
            words = f"{record['seconds']:.1f} s"
            score = record["metrics"]["final"].get("accuracy")
            if score is not None:
                words += f", accuracy {score:.3f}"
        clock = time.strftime("%H:%M:%S")
        self.bar.write(f"{clock} {task.key} {task}: {words}", file=sys.stderr)


def _share(part: tuple[int, int]) -> slice:
    """The i-th of n shares of a list, as a slice: every n-th task."""
    i, n = part
    if not 1 <= i <= n:
        raise ValueError(f"sweep(part={part}): need (i, n) with 1 <= i <= n")
    return slice(i - 1, None, n)


def _check_writable(folder: Path) -> None:
    """Find out before the first run whether records can be written at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".try"):
            pass
    except OSError as error:
        raise store.StoreError(
            f"records cannot be written to {folder}: {error}"
        ) from None


@contextlib.contextmanager
def _collected(path: Path) -> Iterator[None]:
    """Collect the finished runs at the end, also after an error."""
    try:
        yield
    finally:
        try:
            store.collect(path)
        except OSError as error:
            warnings.warn(
                f"{path} could not be written ({error}); the runs are kept in "
                f"{store.runs_folder(path)}",
                stacklevel=3,
            )


@contextlib.contextmanager
def _signals_stop() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a sweep as Ctrl-C does: in good order."""
    names = ("SIGTERM", "SIGHUP")
    kinds = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        kinds = []

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


# --- provenance ---------------------------------------------------------------------


def commit() -> str:
    """The checkout's commit, marked when files differ from it.

    "unknown" outside a checkout, or in a repository that does not track this library.
    """
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        found = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--", str(folder))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    if changed:
        return f"{found}-dirty"
    return found


def machine() -> str:
    """What the numbers were computed on, without naming it."""
    gpu = ""
    if torch.cuda.is_available():
        gpu = f", {torch.cuda.get_device_name()}"
    system = f"{platform.system()} {platform.machine()}"
    threads = f"{torch.get_num_threads()} threads"
    return f"{system}, {threads}{gpu}, torch {torch.__version__}"


def _dataset_name(dataset: str | data.Dataset | Callable[[], data.Dataset]) -> str:
    """What a record calls a data set: its name, with a hash if it is one of our own.

    A generator whose revision was raised is named with it.
    """
    if isinstance(dataset, data.Dataset):
        return f"{dataset.name}#{data.fingerprint(dataset)[:16]}"
    if not isinstance(dataset, str):
        return describe(dataset)
    name = dataset
    maker = data.GENERATORS.get(name.partition("(")[0])
    if maker is None or revision(maker) == 1:
        return name
    return name.replace("(", f"@{revision(maker)}(", 1)


def _reset_peak_memory() -> None:
    """Let Linux count the peak memory of this process anew."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory() -> int | None:
    """The most memory that this process had, in MB; None where it cannot be told."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    return None
