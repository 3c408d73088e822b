"""The one loop that runs every method, and sweeps of such runs."""

from __future__ import annotations

import platform
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import __version__, data, metrics, store
from .federation import Federation
from .history import History
from .partition import match_test
from .training import Local


def measure(fed: Federation, state: Any) -> dict[str, Any]:
    """All the book's usual numbers for one state: on local test sets, and about the clusters.

    A state may have ``votes`` (K, C), weights of a soft vote over its rows; without it each client uses its row. It may
    have ``clusters`` (K,) where several rows belong to one cluster; without it a row is a cluster.
    """
    votes = getattr(state, "votes", None)
    result = fed.evaluate(state.theta, state.labels if votes is None else votes)
    confusion = result.confusion.cpu().numpy()  # (K, classes, classes)
    tested = confusion.sum((1, 2))
    accuracy = metrics.accuracy(confusion)
    spread = metrics.spread(accuracy)
    out = {
        "loss": metrics.average(result.loss),
        "accuracy": metrics.average(accuracy),
        "accuracy_weighted": metrics.average(accuracy, tested),
        "accuracy_std": spread["std"],
        "accuracy_worst": spread["worst"],
        "balanced_accuracy": metrics.average(metrics.balanced_accuracy(confusion)),
        "macro_f1": metrics.average(metrics.macro_f1(confusion, over="true")),
        "macro_f1_union": metrics.average(metrics.macro_f1(confusion, over="union")),
    }
    return out | measure_clusters(fed, getattr(state, "clusters", state.labels))


def measure_clusters(fed: Federation, labels: Any) -> dict[str, Any]:
    """Compare the clusters found with the hidden ones, and judge them by the clients' class frequencies."""
    labels, truth = np.asarray(torch.as_tensor(labels).cpu()), fed.truth
    out = {
        "clusters": len(np.unique(labels)),
        "was": metrics.wasserstein_silhouette(truth.counts, labels),
        "wadb": metrics.wasserstein_davies_bouldin(truth.counts, labels),
    }
    if truth.labels is not None:
        out["ari"] = metrics.adjusted_rand(truth.labels, labels)
        out["ami"] = metrics.ami(truth.labels, labels)
        out["homogeneity"] = metrics.homogeneity(truth.labels, labels)
        out["completeness"] = metrics.completeness(truth.labels, labels)
    return out


def run(
    method: Any,
    fed: Federation,
    rounds: int,
    *,
    every: int = 1,
    last: int = 1,
    measure: Callable[[Federation, Any], dict[str, Any]] = measure,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    save_every: int = 10,
) -> History:
    """Run a method for a number of rounds; evaluate after every ``every``-th and after each of the ``last`` ones.

    A federation remembers who was visited and what was sent, so give every run a fresh one of the same seed: then all
    methods meet the same clients, batches and first model.

    Ctrl-C ends the run after the last whole round and keeps what was done. With ``checkpoint``, the run is saved there
    every ``save_every`` rounds and at its end, and goes on from there, bit for bit, when called again (also with more
    rounds). ``TQDM_DISABLE=1`` silences progress bars everywhere.
    """
    from tqdm.auto import tqdm

    if rounds < 0 or min(every, last, save_every) < 1:
        raise ValueError(
            f"rounds={rounds}, every={every}, last={last}, save_every={save_every}: need >= 0, then >= 1"
        )
    state = method.init(fed)
    history, done = History(state=state), 0
    identity = {"method": repr(method), "federation": fed.identity()}
    if checkpoint is not None and Path(checkpoint).exists():
        history, done = _resume(Path(checkpoint), identity, state, fed)
    history.events = fed.events
    clock = time.perf_counter() - (history.rows[-1]["seconds"] if history.rows else 0.0)

    def save() -> None:
        if checkpoint is not None:
            meta = {
                **identity,
                "done": done,
                "rows": history.rows,
                "events": history.events,
            }
            store.save_checkpoint(
                checkpoint, meta, state=tuple(history.state), fed=fed.snapshot()
            )

    with tqdm(
        total=rounds,
        initial=done,
        desc=type(method).__name__,
        leave=False,
        **silent(not progress),
    ) as bar:
        for t in range(done, rounds):
            before, events = fed.snapshot(), len(fed.events)
            try:
                fed.t = t
                state = method.step(history.state, fed, t)
                numbers = (
                    measure(fed, state)
                    if (t + 1) % every == 0 or t + last >= rounds
                    else None
                )
            except KeyboardInterrupt:
                fed.restore(before)
                del fed.events[events:]
                history.interrupted = True
                warnings.warn(
                    f"stopped by hand after {t} of {rounds} rounds", stacklevel=2
                )
                break
            history.state, done = state, t + 1
            if numbers is not None:
                labels = torch.as_tensor(state.labels).tolist()
                traffic = {
                    "client_updates": fed.meter.updates,
                    "bytes": fed.meter.bytes,
                    "events": len(fed.events),
                }
                history.add(
                    round=done,
                    **traffic,
                    seconds=time.perf_counter() - clock,
                    **numbers,
                    labels=labels,
                )
                bar.set_postfix(
                    {
                        k: f"{v:.3f}"
                        for k, v in numbers.items()
                        if k in ("loss", "accuracy")
                    }
                )
            bar.update()
            if done % save_every == 0:
                save()
    save()
    return history


def silent(yes: bool) -> dict[str, bool]:
    """Keyword that silences a progress bar; without it tqdm heeds TQDM_DISABLE."""
    return {"disable": True} if yes else {}


def _resume(
    path: Path, identity: dict[str, str], state: Any, fed: Federation
) -> tuple[History, int]:
    meta, trees = store.load_checkpoint(path)
    for name, mine in identity.items():
        if meta[name] != mine:
            raise store.StoreError(
                f"{path} holds another {name}: saved {meta[name]}, now {mine}; choose another checkpoint file"
            )
    fed.restore(trees["fed"])
    fed.events[:] = [tuple(event) for event in meta["events"]]
    fields = [_moved(value, fed.device) for value in trees["state"]]
    return History(meta["rows"], type(state)(*fields)), meta["done"]


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, tuple):
        return tuple(_moved(v, device) for v in value)
    return value.to(device) if isinstance(value, torch.Tensor) else value


# --- sweeps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One run of a sweep, in words that a record can hold.

    ``partition`` and ``model`` are library functions with their keywords bound by ``functools.partial``; the partition
    receives the training labels and the seed. ``curves`` names the metrics whose value at every evaluated round is
    kept, beside the final ones. ``tags`` name the cell of a table that the run belongs to; they are no part of what was
    asked for, so a table can be named anew without running anything again.
    """

    method: Any
    dataset: str
    partition: Callable[..., Any]
    model: Callable[[], torch.nn.Module]
    local: Local
    rounds: int
    seed: int = 0
    profile: str = "smoke"
    every: int = 1
    last: int = 1
    curves: tuple[str, ...] = ()
    options: dict[str, Any] = field(
        default_factory=dict
    )  # further keywords of Federation
    official: bool = False  # test on official test samples with each client's class shares, see partition.match_test
    measure: Callable[[Federation, Any], dict[str, Any]] = measure
    tags: dict[str, str | int] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """What was asked for, as JSON; a record's key is its hash."""
        return {
            "method": repr(self.method),
            "dataset": self.dataset,
            "partition": describe(self.partition),
            "model": describe(self.model),
            "local": repr(self.local),
            "rounds": self.rounds,
            "seed": self.seed,
            "profile": self.profile,
            "every": self.every,
            "last": self.last,
            "curves": list(self.curves),
            "options": {k: repr(v) for k, v in self.options.items()},
            "official": self.official,
            "measure": describe(self.measure),
        }

    @property
    def key(self) -> str:
        """Hash of the spec."""
        return store.digest(self.spec())

    def federation(self) -> Federation:
        """Load the data, partition it, and build the federation."""
        dataset = data.load(self.dataset)
        y, y_test = dataset.y[: dataset.n_train], dataset.y[dataset.n_train :]
        parts = self.partition(y, seed=self.seed)
        if self.official:
            parts = match_test(parts, y, y_test, seed=self.seed)
        return Federation(
            dataset, parts, self.model, local=self.local, seed=self.seed, **self.options
        )

    def record(self, *, progress: bool = False) -> dict[str, Any]:
        """Do the run and write down what it gave."""
        dataset, fed = data.load(self.dataset), self.federation()
        when = {"every": self.every, "last": self.last}
        history = run(
            self.method,
            fed,
            self.rounds,
            **when,
            measure=self.measure,
            progress=progress,
        )
        elsewhere = ("round", "client_updates", "bytes", "events", "seconds")
        final = {k: v for k, v in history.final.items() if k not in elsewhere}
        curves = (
            {"round": [row["round"] for row in history.rows]} if self.curves else {}
        )
        curves |= {
            name: [row.get(name) for row in history.rows] for name in self.curves
        }
        return self.spec() | {
            "key": self.key,
            "data_sha256": dataset.sha256,
            "data_note": dataset.note,
            "version": __version__,
            "commit": commit(),
            "machine": machine(),
            "seconds": history.final["seconds"],
            "client_updates": fed.meter.updates,
            "bytes": fed.meter.bytes,
            "metrics": {"final": final, "curves": curves},
            "events": [list(event) for event in history.events],
        }


def sweep(
    tasks: Iterable[Task],
    path: str | Path,
    *,
    n_jobs: int | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Do the tasks whose records are not in the file yet, and return the records of all of them.

    Runs go through joblib: ``loky`` processes by default (one per core), or what ``joblib.parallel_config`` says, for
    Dask or Ray. Each record is in the file, whole, as soon as its run ends (with a backend that returns results only
    together, when all have ended): a sweep that was killed goes on where it was. A run that fails does not stop the
    others; all failures are reported at the end.
    """
    from joblib import Parallel, cpu_count, delayed
    from joblib.parallel import get_active_backend
    from tqdm.auto import tqdm

    tasks = list(tasks)
    done = {record["key"] for record in store.read(path)}
    todo = list({task.key: task for task in tasks if task.key not in done}.values())
    failures = []
    backend, configured = (
        get_active_backend()
    )  # (loky, None) unless parallel_config says otherwise
    jobs = n_jobs or configured or min(cpu_count(), max(len(todo), 1))
    mode = "generator_unordered" if backend.supports_return_generator else "list"
    outcomes = Parallel(n_jobs=jobs, return_as=mode)(
        delayed(_attempt)(task) for task in todo
    )
    for outcome in tqdm(
        outcomes, total=len(todo), desc=Path(path).stem, **silent(not progress)
    ):
        if isinstance(outcome, dict):
            store.append(path, outcome)
        else:
            failures.append(outcome)
    if failures:
        raise RuntimeError(
            f"{len(failures)} of {len(todo)} runs failed, the others are kept:\n\n"
            + "\n".join(failures)
        )
    wanted = {task.key for task in tasks}
    return [record for record in store.read(path) if record["key"] in wanted]


def _attempt(task: Task) -> dict[str, Any] | str:
    try:
        return task.record()
    except Exception:
        what = f"{task.method!r}, {task.dataset}, {describe(task.partition)}"
        return f"{what}, seed {task.seed}:\n{traceback.format_exc()}"


def describe(function: Callable[..., Any]) -> str:
    """A function with its bound arguments, as one would write the call: ``dirichlet(clients=20, alpha=0.5)``."""
    if not isinstance(function, partial):
        if function.__name__ == "<lambda>":
            raise ValueError(
                "a record cannot name a lambda: use a library function, or functools.partial of one"
            )
        return f"{function.__name__}()"

    def word(value: Any) -> str:
        return describe(value) if callable(value) else repr(value)

    bound = [
        *(word(a) for a in function.args),
        *(f"{k}={word(v)}" for k, v in sorted(function.keywords.items())),
    ]
    return f"{function.func.__name__}({', '.join(bound)})"


def commit() -> str:
    """The checkout's commit, marked when files differ from it; "unknown" outside a checkout."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", here, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "-dirty" if git("status", "--porcelain", "--", here) else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    """What the numbers were computed on, without naming it."""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    system = f"{platform.system()} {platform.machine()}"
    threads = f"{torch.get_num_threads()} threads"
    return f"{system}, {threads}{gpu}, torch {torch.__version__}"
