"""The one loop that runs every method."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import checks, metrics, store
from .door import Evaluation, Event, Judge, Meter
from .federation import Federation
from .history import History
from .identity import describe
from .training import one_blas_thread, one_thread
from .views import Arms, ArmsState

Measure = Callable[[Judge, Any], dict[str, Any]]


def measure(fed: Judge, state: Any) -> dict[str, Any]:
    """The book's usual numbers for a state: on local test sets, and about its clusters.

    A state may have ``votes`` (K, C), weights of a soft vote over its rows; without it
    each client uses its row. It may have ``clusters`` (K,) where several rows belong to
    one cluster; without it a row is a cluster.
    """
    result = fed.evaluate(state.theta, serving(state))
    return measure_models(result) | measure_clusters(fed, clusters_of(state))


def measure_models(result: Evaluation) -> dict[str, Any]:
    """The usual numbers of an evaluation: how well the clients are served."""
    confusion = result.confusion.cpu().numpy()  # (K, classes, classes)
    tested = confusion.sum((1, 2))
    accuracy = metrics.accuracy(confusion)
    spread = metrics.spread(accuracy)
    return {
        "loss": metrics.average(result.loss),
        "accuracy": metrics.average(accuracy),
        "accuracy_weighted": metrics.average(accuracy, tested),
        "accuracy_std": spread["std"],
        "accuracy_worst": spread["worst"],
        "balanced_accuracy": metrics.average(metrics.balanced_accuracy(confusion)),
        "macro_f1": metrics.average(metrics.macro_f1(confusion, over="true")),
        "macro_f1_union": metrics.average(metrics.macro_f1(confusion, over="union")),
    }


def serving(state: Any) -> torch.Tensor:
    """What serves each client: the state's ``votes`` (K, C), or else labels (K,)."""
    votes = getattr(state, "votes", None)
    if votes is not None:
        return votes
    return state.labels


def clusters_of(state: Any) -> torch.Tensor:  # (K,)
    """Each client's cluster: the state's ``clusters``, or else its labels."""
    return getattr(state, "clusters", state.labels)


def measure_clusters(fed: Judge, labels: Any) -> dict[str, Any]:
    """Compare clusters with the hidden ones, and by the clients' class frequencies."""
    labels = np.asarray(torch.as_tensor(labels).cpu())
    truth = fed.truth
    out = {
        "clusters": len(np.unique(labels)),
        "was": metrics.wasserstein_silhouette(truth.counts, labels),
        "wadb": metrics.wasserstein_davies_bouldin(truth.counts, labels),
    }
    if truth.labels is not None:
        out |= metrics.cluster_scores(truth.labels, labels)
    return out


def run(
    method: Any,
    fed: Federation,
    rounds: int,
    *,
    every: int = 1,
    last: int = 1,
    measure: Measure = measure,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    save_every: int | None = 10,
    save_seconds: float | None = None,
    watch: Callable[[int, History], None] | None = None,
) -> History:
    """Run a method for a number of rounds.

    The state is evaluated after every ``every``-th round and after each of the ``last``
    ones. A federation remembers who was visited and what was sent, so give every run a
    fresh one of the same seed: then all methods meet the same clients, batches and
    first model.

    Ctrl-C ends the run after the last whole round and keeps what was done. With
    ``checkpoint``, the run is saved there every ``save_every`` rounds and at its end,
    and goes on from there, bit for bit, when called again (also with more rounds).
    With ``save_seconds``, it is saved when so much time has passed; with
    ``save_every=None`` only then. ``watch(round, history)`` is called after each round.
    ``TQDM_DISABLE=1`` silences progress bars everywhere.
    """
    _check_run(method, fed, measure)
    for name, value, rule in (
        ("rounds", rounds, checks.integer(0)),
        ("every", every, checks.integer(1)),
        ("last", last, checks.integer(1)),
        ("save_every", save_every, checks.optional(checks.integer(1))),
        ("save_seconds", save_seconds, checks.optional(checks.number(least=0))),
    ):
        checks.argument("run", name, value, rule)
    # Matrix products add up in another order on several threads: one thread gives the
    # same bits on every machine. Clients still train on all the federation's workers.
    with one_thread(), one_blas_thread():
        return _rounds(
            method,
            fed,
            rounds,
            every=every,
            last=last,
            measure=measure,
            progress=progress,
            checkpoint=checkpoint,
            save_every=save_every,
            save_seconds=save_seconds,
            watch=watch,
        )


def _rounds(
    method: Any,
    fed: Federation,
    rounds: int,
    *,
    every: int,
    last: int,
    measure: Measure,
    progress: bool,
    checkpoint: str | Path | None,
    save_every: int | None,
    save_seconds: float | None,
    watch: Callable[[int, History], None] | None,
) -> History:
    """The loop of `run`."""
    from tqdm.auto import tqdm

    state = method.init(fed)
    _check_state(state, fed, method)
    identity = {"method": _name(method), "federation": fed.identity()}
    saved = Checkpoint(checkpoint, save_every, save_seconds, identity)
    history, done = saved.resume(state, fed, rounds)
    history.events = fed.events
    clock = time.perf_counter()
    server_seconds = 0.0
    if history.rows:
        clock -= history.rows[-1]["seconds"]
        server_seconds = history.rows[-1].get("server_seconds", 0.0)
    bar = tqdm(
        total=rounds,
        initial=done,
        desc=type(method).__name__,
        leave=False,
        **silent(not progress),
    )
    with bar:
        for t in range(done, rounds):
            before = fed.snapshot()
            state_before = history.state
            rows_before = len(history.rows)
            events_before = len(fed.events)
            try:
                fed.t = t
                begun = time.thread_time()
                state = method.step(history.state, fed, t)
                server_seconds += time.thread_time() - begun
                _check_state(state, fed, method)
                history.state = state
                if (t + 1) % every == 0 or t + last >= rounds:
                    numbers = measure(fed, state)
                    store.jsonable(numbers)  # refuse now what no record can hold
                    history.add(
                        round=t + 1,
                        client_updates=fed.meter.updates,
                        bytes=fed.meter.bytes,
                        events=len(fed.events),
                        seconds=time.perf_counter() - clock,
                        server_seconds=server_seconds,
                        **numbers,
                        labels=torch.as_tensor(state.labels).tolist(),
                    )
                    bar.set_postfix(_shown(numbers))
            except KeyboardInterrupt:
                fed.restore(before)
                del fed.events[events_before:]
                del history.rows[rows_before:]
                history.state = state_before
                history.interrupted = True
                warnings.warn(
                    f"stopped by hand after {t} of {rounds} rounds", stacklevel=3
                )
                break
            done = t + 1
            bar.update()
            if watch is not None:
                watch(done, history)
            if saved.is_due(done):
                saved.save(history, done, fed)
    if save_every is not None or history.interrupted:
        saved.save(history, done, fed)
    history.meter = fed.meter
    return history


class Checkpoint:
    """The file in which a run is saved, and when: see `run`.

    ``identity`` tells the method and the federation, which must be the same when the
    run goes on. Without a path nothing is saved.
    """

    def __init__(
        self,
        path: str | Path | None,
        every: int | None,
        seconds: float | None,
        identity: dict[str, str],
    ) -> None:
        self.path = path
        self.every = every
        self.seconds = seconds
        self.identity = identity
        self.saved_at = time.monotonic()

    def resume(self, state: Any, fed: Federation, rounds: int) -> tuple[History, int]:
        """The saved history, and how many rounds are done; else a new history.

        A run of another method or federation, or of more than ``rounds``, is refused.
        """
        if self.path is None or not Path(self.path).exists():
            return History(state=state), 0
        meta, trees = store.load_checkpoint(self.path)
        for name, mine in self.identity.items():
            if meta[name] != mine:
                raise store.StoreError(
                    f"{self.path} holds another {name}: saved {meta[name]}, now "
                    f"{mine}; choose another checkpoint file"
                )
        if meta["done"] > rounds:
            raise store.StoreError(
                f"{self.path} holds {meta['done']} rounds, {rounds} were asked for: "
                "ask for more rounds, or choose another checkpoint file"
            )
        fed.restore(trees["fed"])
        fed.events[:] = [Event(*event) for event in meta["events"]]
        return History(meta["rows"], _moved(trees["state"], fed.device)), meta["done"]

    def is_due(self, done: int) -> bool:
        """Whether to save the run now, after so many rounds."""
        if self.every is not None and done % self.every == 0:
            return True
        passed = time.monotonic() - self.saved_at
        return self.seconds is not None and passed >= self.seconds

    def save(self, history: History, done: int, fed: Federation) -> None:
        """Save the run; if that fails, warn and let it go on."""
        self.saved_at = time.monotonic()
        if self.path is None:
            return
        rows = store.jsonable(history.rows)
        meta = {**self.identity, "done": done, "rows": rows, "events": fed.events}
        try:
            store.save_checkpoint(
                self.path, meta, state=history.state, fed=fed.snapshot()
            )
        except OSError as error:  # a run must not end because it could not be saved
            warnings.warn(f"no checkpoint in {self.path}: {error}", stacklevel=4)


def run_together(
    methods: Mapping[str, Any],
    fed: Federation,
    rounds: int,
    *,
    measure: Measure = measure,
    **options: Any,
) -> dict[str, History]:
    """Run several methods, given by name, in step through one federation.

    Each ends where it would have ended alone, bit for bit, and has its own history and
    meter, as if it had been alone; only ``seconds``, ``server_seconds`` and ``events``
    are those of all together. What methods have in common is trained once (see
    :class:`~fednb.views.Arms`): ``fed.meter`` counts that. ``options`` are those of
    :func:`run`.
    """
    arms = Arms(tuple(methods.items()))
    for method in methods.values():
        _check_run(method, fed, measure)
    together = run(
        arms, fed, rounds, measure=partial(_measure_arms, measure=measure), **options
    )
    histories = {}
    for i, name in enumerate(methods):
        history = History(state=together.state.arms[i])
        for row in together.rows:
            arm = row["arms"][i]
            history.add(
                round=row["round"],
                client_updates=arm["client_updates"],
                bytes=arm["bytes"],
                events=row["events"],
                seconds=row["seconds"],
                server_seconds=row["server_seconds"],
                **arm["numbers"],
                labels=arm["labels"],
            )
        history.events = together.events
        history.interrupted = together.interrupted
        counts = together.state.memory[i]
        names = ("down", "up", "updates")
        history.meter = Meter(**{name: int(counts[f"meter.{name}"]) for name in names})
        histories[name] = history
    return histories


def _measure_arms(fed: Judge, state: ArmsState, measure: Measure) -> dict[str, Any]:
    """Measure each arm in the federation as it would be if the arm had been alone."""
    together = fed.snapshot()
    arms = []
    try:
        for arm, memory in zip(state.arms, state.memory, strict=True):
            fed.restore(memory)
            found = {
                "client_updates": fed.meter.updates,
                "bytes": fed.meter.bytes,
                "numbers": measure(fed, arm),
                "labels": torch.as_tensor(arm.labels).tolist(),
            }
            arms.append(found)
    finally:
        fed.restore(together)
    return {"arms": arms}


def silent(yes: bool) -> dict[str, bool]:
    """Keyword that silences a progress bar; without it tqdm heeds TQDM_DISABLE."""
    if yes:
        return {"disable": True}
    return {}


def _shown(numbers: dict[str, Any]) -> dict[str, str]:
    """What a progress bar tells of the last evaluation."""
    shown = {name: numbers.get(name) for name in ("loss", "accuracy")}
    return {k: f"{v:.3f}" for k, v in shown.items() if isinstance(v, float)}


def _name(method: Any) -> str:
    try:
        return describe(method)
    except (TypeError, ValueError):  # a method need not be a dataclass
        return repr(method)


def _check_run(method: Any, fed: Any, measure: Any) -> None:
    if isinstance(method, type):
        raise TypeError(f"run: {method.__name__} is a class; pass {method.__name__}()")
    if not hasattr(method, "init") or not hasattr(method, "step"):
        raise TypeError(f"run: {method!r} is no method: it needs init and step")
    if not isinstance(fed, Federation):
        raise TypeError(f"run: {fed!r} is not a Federation")
    if not callable(measure):
        raise TypeError(f"run: measure={measure!r} is not a function of (fed, state)")


def _check_state(state: Any, fed: Federation, method: Any) -> None:
    """Tell the author of a method what is wrong with the state that it returned."""
    who = type(method).__name__
    theta = getattr(state, "theta", None)
    labels = getattr(state, "labels", None)
    if theta is None or labels is None:
        raise TypeError(f"{who} returned {type(state).__name__}: need theta and labels")
    if theta.dim() != 2 or theta.shape[1] != fed.layout.D:
        raise ValueError(
            f"{who} returned theta of shape {tuple(theta.shape)}: need (models, "
            f"{fed.layout.D}), a row of the network's {fed.layout.D} numbers for each"
        )
    if torch.as_tensor(labels).shape[-1] != fed.K:
        raise ValueError(
            f"{who} returned labels of shape {tuple(labels.shape)}: need ({fed.K},), "
            "the row that serves each client"
        )


def _moved(value: Any, device: torch.device) -> Any:
    """The same tree with its tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        items = [_moved(v, device) for v in value]
        if hasattr(value, "_fields"):  # a NamedTuple
            return type(value)(*items)
        return tuple(items)
    return value
