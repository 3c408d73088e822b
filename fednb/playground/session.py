"""Runs that can be paused, continued and stopped: a thread for each method.

A ``Session`` goes through these states::

    ready ──run──▶ running ──pause──▶ pausing ──▶ paused
      ▲              │  ▲                │           │
      │              │  └───────────── resume ───────┘
      │              ├── last round ──▶ finished
      │              ├── error ───────▶ failed
      │              └── stop ────────▶ stopped
      └──reset── from any state

The runs are those of ``fednb.run``, bit for bit. A federation trains its clients one
after the other and asks the session's ``Control`` before each, so a run can wait or end
inside a round. It is ``pausing`` until all threads wait; then it is ``paused``, and
nothing changes any more. ``stop`` does not wait for a thread: one that is inside a
client's training ends at the next client, and its results are ignored.
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
from ..experiment import run
from ..history import History
from ..sweeps import Task

STATES = ("ready", "running", "pausing", "paused", "stopped", "finished", "failed")
COLUMNS = 20_000  # parameters of a client's last update that are kept for the picture


class Stopped(BaseException):
    """Leaves a run from inside a round; no method can catch it by mistake."""


class Control:
    """Tells the threads of a session to go on, to wait, or to end.

    ``on_wait`` is called by each thread that begins to wait.
    """

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self.waiting = 0  # threads that wait now
        self._on_wait = on_wait
        self._changed = threading.Condition()
        self._paused = False
        self._ended = False

    def check(self) -> None:
        """Return when the calling thread may go on; raise `Stopped` if it must end."""
        with self._changed:
            must_wait = self._paused
            if must_wait:
                self.waiting += 1
        if must_wait:
            self._on_wait()
            with self._changed:
                self._changed.wait_for(lambda: not self._paused)
                self.waiting -= 1
        if self._ended:
            raise Stopped

    def pause(self) -> None:
        """Let the threads wait."""
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        """Let the threads continue."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def end(self) -> None:
        """Let the threads end, also those that wait."""
        self._ended = True
        self.resume()


class PausableBackend:
    """A backend that asks a ``Control`` before each client.

    A client's result depends neither on its neighbours nor on their order, so these
    are the bits of the backend itself.
    """

    def __init__(self, backend: Any, control: Control) -> None:
        self._backend = backend
        self._control = control

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
            self._control.check()
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
        self._control.check()
        return self._backend.logits(tasks, **options)


class Arm:
    """The run of one method, whose progress other threads may read at any time."""

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

    def run(self, control: Control | None, report: Callable[[Arm], None]) -> None:
        """Do the run, and call ``report`` after each round and at the end.

        What goes wrong is kept in ``error``. Without a control nothing can stop it.
        """
        try:
            self._run(control, report)
        except Stopped:
            pass
        except Exception as error:
            self.error = f"{self.name}: {type(error).__name__}: {error}"
            self.trace = traceback.format_exc()
        self.ended = True
        report(self)

    def _run(self, control: Control | None, report: Callable[[Arm], None]) -> None:
        fed: Any = self.task.federation()  # two of its parts are wrapped below
        if control is not None:
            fed.backend = PausableBackend(fed.backend, control)
        self._keep_updates(fed)
        self.fed = fed

        def watch(done: int, history: History) -> None:
            self.history = history
            report(self)
            if control is not None:
                control.check()

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
        rows = list(self.history.rows)  # the thread may append while we write
        if not rows:
            raise ValueError(f"{self.name}: no round is done yet, nothing to save")
        last = rows[-1]
        done = History(rows)
        done.events = self.history.events[: last["events"]]
        task = replace(self.task, rounds=last["round"])
        record = task.describe_run(done, self.fed)
        # The federation has also counted the round that is under way.
        record["client_updates"] = last["client_updates"]
        record["bytes"] = last["bytes"]
        return record


class Session:
    """Up to three methods learning side by side, in threads.

    ``on_change`` is called, from any thread, whenever there is something new to show.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.arms: list[Arm] = []
        self.error = ""
        self._on_change = on_change
        self._lock = threading.RLock()  # held while the state changes
        self._state = "ready"
        self._control = Control()
        self._threads: list[threading.Thread] = []
        self._clock = 0.0  # when the runs started or resumed last
        self._spent = 0.0  # seconds of running before that

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        state = self._state
        at_work = sum(not arm.ended for arm in self.arms)
        if state == "paused" and self._control.waiting < at_work:
            return "pausing"
        return state

    @property
    def active(self) -> bool:
        """Whether runs are under way, paused ones included."""
        return self._state in ("running", "paused")

    @property
    def alive(self) -> bool:
        """Whether a thread of the last run is still at work."""
        return any(thread.is_alive() for thread in self._threads)

    def run(self, tasks: dict[str, Task]) -> None:
        """Start the tasks, each in a thread of its own."""
        if not tasks:
            raise ValueError("run: no method was chosen")
        with self._lock:
            self._need("run", "ready", "stopped", "finished", "failed")
            control = Control(on_wait=self._on_change)
            self.arms = [Arm(name, task) for name, task in tasks.items()]
            self.error = ""
            self._control = control
            self._spent = 0.0
            self._clock = time.monotonic()
            self._state = "running"
            self._threads = [
                threading.Thread(
                    target=arm.run,
                    args=(control, self._reporter(control)),
                    name=f"playground {arm.name}",
                    daemon=True,
                )
                for arm in self.arms
            ]
        for thread in self._threads:
            thread.start()
        self._on_change()

    def pause(self) -> None:
        """Let each run wait before its next client."""
        with self._lock:
            self._need("pause", "running")
            self._spent = self.seconds
            self._control.pause()
            self._state = "paused"
        self._on_change()

    def resume(self) -> None:
        """Continue after a pause."""
        with self._lock:
            self._need("continue", "paused")
            self._clock = time.monotonic()
            self._state = "running"
            self._control.resume()
        self._on_change()

    def stop(self) -> None:
        """End the runs; what they did so far stays to be looked at and saved."""
        with self._lock:
            self._need("stop", "running", "paused")
            self._spent = self.seconds
            self._state = "stopped"
            self._control.end()
        self._on_change()

    def reset(self) -> None:
        """Forget the runs, whatever they are doing."""
        with self._lock:
            self._control.end()
            self.arms = []
            self.error = ""
            self._spent = 0.0
            self._state = "ready"
        self._on_change()

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
        """How long the rest will take at the pace so far; None before a first round."""
        progress = self.progress
        if not self.active or progress == 0:
            return None
        return self.seconds * (1 / progress - 1)

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

    def _reporter(self, control: Control) -> Callable[[Arm], None]:
        """What a thread calls after each round and at its end.

        Reports of an earlier run's threads, which have another control, are ignored.
        """

        def report(arm: Arm) -> None:
            with self._lock:
                if control is not self._control or not self.active:
                    return
                if arm.error:
                    self._fail(arm.error)
                elif all(one.ended for one in self.arms):
                    self._spent = self.seconds
                    self._state = "finished"
            self._on_change()

        return report

    def _fail(self, error: str) -> None:
        self._spent = self.seconds
        self.error = error
        self._state = "failed"
        self._control.end()
