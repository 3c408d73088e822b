"""Runs that can be paused, continued and stopped: a thread for each method.

A ``Session`` goes through these states::

    ready ──run──▶ running ◀─continue─ paused
      ▲              │ │ └────pause────▶ │
      │              │ └─ last round ─▶ finished
      └──reset── stopped, finished or failed ◀── stop, error

The runs are those of ``fednb.run``, bit for bit. A federation is made to stop and to
wait inside a round: it trains its clients one after the other and looks at the
session's wish before each. Nobody waits for a thread: ``stop`` frees the session at
once, and a thread that is still inside a kernel ends at the next client, unheard.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..backends import TaskError, Trained
from ..experiment import Task, run
from ..history import History

STATES = ("ready", "running", "paused", "stopped", "finished", "failed")
COLUMNS = 20_000  # parameters of a client's last update that are kept for the picture


class Stopped(BaseException):
    """Leaves a run from inside a round; no method can catch it by mistake."""


class Wish:
    """What the person wants of the runs: go on, wait, or end."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._go.set()
        self._end = threading.Event()

    def wait(self) -> None:
        """Return when a run may go on; leave it if it should end."""
        self._go.wait()
        if self._end.is_set():
            raise Stopped

    def pause(self) -> None:
        """Let the runs wait."""
        self._go.clear()

    def go_on(self) -> None:
        """Let the runs continue."""
        self._go.set()

    def end(self) -> None:
        """Let the runs end, also those that wait."""
        self._end.set()
        self._go.set()


class Patient:
    """A backend that looks at a wish before each client.

    A client's result depends neither on its neighbours nor on their order, so these
    are the bits of the backend itself.
    """

    def __init__(self, backend: Any, wish: Wish) -> None:
        self._backend = backend
        self._wish = wish

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def train(
        self,
        rows: Tensor,
        plans: Sequence[Any],
        local: Any,
        lr: float,
        correct: Any,
        args: Sequence[Tensor],
        states: Sequence[Any],
    ) -> Trained:
        """Train row i (of (n, D)) by plan i, one after the other."""
        steps = max((len(plan.size) for plan in plans), default=0)
        theta = torch.empty_like(rows)
        losses = rows.new_full((len(rows), steps), torch.nan)
        after = list(states)
        for i, plan in enumerate(plans):
            self._wish.wait()
            one = slice(i, i + 1)
            own = [values[one] for values in args]
            try:
                done = self._backend.train(
                    rows[one], [plan], local, lr, correct, own, states[one]
                )
            except TaskError as error:  # it was the i-th client, not the first
                cause: Any = error.__cause__
                raise TaskError(i, cause) from cause
            theta[i] = done.theta[0]
            losses[i, : done.losses.shape[1]] = done.losses[0]
            after[i] = done.states[0]
        return Trained(theta, losses, after)

    def logits(self, tasks: Sequence[Any], **options: Any) -> list[Tensor]:
        """Outputs of each task (row, inputs)."""
        self._wish.wait()
        return self._backend.logits(tasks, **options)


class Arm:
    """One method on its way: what it has done so far, for whoever wants to look."""

    def __init__(self, name: str, task: Task) -> None:
        self.name = name
        self.task = task
        self.history = History()
        self.fed: Any = None  # the federation, once it is made
        self.updates: Tensor | None = None  # (K, d) each client's last update
        self.error = ""
        self.trace = ""
        self.ended = False

    @property
    def rounds_done(self) -> int:
        """The last round that was evaluated."""
        return self.history.rows[-1]["round"] if self.history.rows else 0

    def go(self, wish: Wish | None, tell: Callable[[Arm], None]) -> None:
        """Do the run; what goes wrong is kept in ``error``. None: go to the end."""
        try:
            self._go(wish, tell)
        except Stopped:
            pass
        except Exception as error:
            self.error = f"{self.name}: {type(error).__name__}: {error}"
            self.trace = traceback.format_exc()
        self.ended = True
        tell(self)

    def _go(self, wish: Wish | None, tell: Callable[[Arm], None]) -> None:
        fed: Any = self.task.federation()  # two of its parts are wrapped below
        if wish is not None:
            fed.backend = Patient(fed.backend, wish)
        self._keep_updates(fed)
        self.fed = fed

        def watch(done: int, history: History) -> None:
            self.history = history
            tell(self)
            if wish is not None:
                wish.wait()

        run(self.task.method, fed, self.task.rounds, progress=False, watch=watch)

    def _keep_updates(self, fed: Any) -> None:
        """Remember each client's last update; the method sees no difference."""
        train = fed.train

        def train_and_keep(theta: Tensor, clients: Any = None, **options: Any) -> Any:
            update = train(theta, clients, **options)
            sent = torch.as_tensor(theta)
            change = (update.theta - sent)[:, : fed.layout.P][:, -COLUMNS:]
            if self.updates is None:
                self.updates = change.new_zeros(fed.K, change.shape[1])
            kept = self.updates.clone()  # a reader may be looking at the old one
            kept[update.clients] = change
            self.updates = kept
            return update

        fed.train = train_and_keep

    def record(self) -> dict[str, Any]:
        """The record of the rounds done so far: a run of as many rounds."""
        if not self.history.rows:
            raise ValueError(f"{self.name}: no round is done yet, nothing to save")
        task = replace(self.task, rounds=self.rounds_done)
        return task.describe_run(self.history, self.fed)


class Session:
    """Up to three methods learning side by side, in threads.

    ``on_change`` is called, from any thread, whenever there is something new to show.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.arms: list[Arm] = []
        self.error = ""
        self._on_change = on_change
        self._lock = threading.RLock()
        self._state = "ready"
        self._wish = Wish()
        self._threads: list[threading.Thread] = []
        self._clock = 0.0  # when the runs went on last
        self._spent = 0.0  # seconds of running before that

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        return self._state

    @property
    def alive(self) -> bool:
        """Whether a thread of the last run is still at work."""
        return any(thread.is_alive() for thread in self._threads)

    def run(self, tasks: dict[str, Task]) -> None:
        """Start the tasks, each in a thread of its own."""
        self._need("run", "ready", "stopped", "finished", "failed")
        if not tasks:
            raise ValueError("run: no method was chosen")
        with self._lock:
            self.arms = [Arm(name, task) for name, task in tasks.items()]
            self.error = ""
            self._wish = Wish()
            self._spent = 0.0
            self._clock = time.monotonic()
            self._state = "running"
            wish = self._wish
            self._threads = [
                threading.Thread(
                    target=arm.go,
                    args=(wish, self._hear(wish)),
                    name=f"playground {arm.name}",
                    daemon=True,
                )
                for arm in self.arms
            ]
        for thread in self._threads:
            thread.start()
        self._on_change()

    def pause(self) -> None:
        """Let the runs wait before the next client."""
        self._need("pause", "running")
        self._spent = self.seconds
        self._wish.pause()
        self._set("paused")

    def go_on(self) -> None:
        """Continue after a pause."""
        self._need("continue", "paused")
        self._clock = time.monotonic()
        self._wish.go_on()
        self._set("running")

    def stop(self) -> None:
        """End the runs; what they did so far stays to be looked at and saved."""
        self._need("stop", "running", "paused")
        self._spent = self.seconds
        self._wish.end()
        self._set("stopped")

    def reset(self) -> None:
        """Forget the runs, whatever they are doing."""
        self._wish.end()
        with self._lock:
            self.arms = []
            self.error = ""
            self._spent = 0.0
        self._set("ready")

    @property
    def seconds(self) -> float:
        """For how long the runs have been running, pauses left out."""
        if self._state != "running":
            return self._spent
        return self._spent + time.monotonic() - self._clock

    @property
    def progress(self) -> float:
        """Share of all rounds that is done."""
        wanted = sum(arm.task.rounds for arm in self.arms)
        done = sum(arm.rounds_done for arm in self.arms)
        return done / wanted if wanted else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take if it goes on like this; None: cannot be told."""
        if self._state not in ("running", "paused") or self.progress == 0:
            return None
        return self.seconds * (1 / self.progress - 1)

    def join(self, seconds: float = 60.0) -> None:
        """Wait until the threads have ended; for tests and scripts."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _need(self, verb: str, *states: str) -> None:
        if self._state not in states:
            raise ValueError(
                f"{verb}: the session is {self._state}, need {' or '.join(states)}"
            )

    def _set(self, state: str) -> None:
        self._state = state
        self._on_change()

    def _hear(self, wish: Wish) -> Callable[[Arm], None]:
        """What a thread calls after each round and at its end.

        Threads of an earlier run, which have another wish, are not heard.
        """

        def tell(arm: Arm) -> None:
            with self._lock:
                if wish is not self._wish or self._state not in ("running", "paused"):
                    return
                if arm.error:
                    self._fail(arm.error)
                elif all(one.ended for one in self.arms):
                    self._spent = self.seconds
                    self._state = "finished"
            self._on_change()

        return tell

    def _fail(self, error: str) -> None:
        self._spent = self.seconds
        self.error = error
        self._state = "failed"
        self._wish.end()
