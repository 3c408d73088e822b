"""Where the runs of a sweep are done: in this process, in others, or on other machines.

An engine is a generator. It is given tasks and ``work``, a function of one task, and
yields pairs (task, outcome) as they come, in any order; an outcome is what ``work``
returned or a :class:`Failure`. About once a second it yields None, so that its caller
can show progress. Closing the generator stops all work.

A worker that dies (killed, out of memory, crashed) costs one run, which is tried again;
after ``TRIES`` deaths that run is given up and the others go on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from . import checks, store

TRIES = 3
TICK = 0.5  # seconds between two looks at the workers

Work = Callable[[Any], Any]
Outcomes = Generator[tuple[Any, Any] | None, None, None]


class Failure(NamedTuple):
    """A run that gave no record, and why."""

    why: str


def serial(tasks: Sequence[Any], work: Work, folder: Path) -> Outcomes:
    """Do one task after the other in this process."""
    waiting = deque(tasks)
    while waiting:
        task = take_next(waiting, folder)
        yield task, work(task)


def take_next(waiting: deque[Any], folder: Path) -> Any:
    """Take out the first task that no other sweep is doing; the first, if all are.

    So two sweeps of one table share its runs, and one of them finishes what the other
    left behind.
    """
    for task in waiting:
        if not store.is_under_way(folder, task.key):
            waiting.remove(task)
            return task
    return waiting.popleft()


# --- processes on this machine ------------------------------------------------------


def local(
    tasks: Sequence[Any], work: Work, jobs: int, folder: Path, stall: float
) -> Outcomes:
    """Do ``jobs`` tasks at a time in processes of this machine, by loky.

    Every worker is an executor of its own with one process, so that it is known whose
    run a dead process had. GPUs are dealt out, and the cores shared evenly. A run whose
    heartbeat in ``folder`` is older than ``stall`` seconds is taken for dead.
    """
    import loky

    waiting = deque(tasks)
    deaths: Counter[str] = Counter()
    workers = [_Worker(number, jobs) for number in range(jobs)]
    try:
        while waiting or any(worker.task is not None for worker in workers):
            for worker in workers:
                if worker.task is None and waiting:
                    worker.start(take_next(waiting, folder), work)
            busy = [worker for worker in workers if worker.task is not None]
            futures = [worker.future for worker in busy]
            loky.wait(futures, timeout=TICK, return_when="FIRST_COMPLETED")
            for worker in busy:
                if not worker.future.done():
                    if worker.silent_for(folder) > stall:
                        worker.stop()
                    continue
                task, outcome, died = worker.finish()
                if died:
                    deaths[task.key] += 1
                if died and deaths[task.key] < TRIES:
                    waiting.append(task)
                else:
                    yield task, outcome
            yield None
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """One process, the task that it has, and the future of that."""

    def __init__(self, number: int, jobs: int) -> None:
        self.environment = worker_environment(number, jobs)
        self.executor: Any = None
        self.task: Any = None
        self.future: Any = None
        self.since = 0.0

    def start(self, task: Any, work: Work) -> None:
        from loky.process_executor import ProcessPoolExecutor

        if self.executor is None:
            self.executor = ProcessPoolExecutor(
                max_workers=1,
                initializer=settle,
                initargs=(os.getpid(),),
                env=self.environment,
            )
        self.task = task
        self.since = time.monotonic()
        self.future = self.executor.submit(work, task)

    def silent_for(self, folder: Path) -> float:
        """Seconds since the run was last heard of."""
        since_start = time.monotonic() - self.since
        beat = store.heartbeat(folder, self.task.key)
        if beat is None:
            return since_start
        return min(since_start, beat[1])

    def finish(self) -> tuple[Any, Any, bool]:
        """The task, its outcome, and whether the process died over it."""
        task = self.task
        self.task = None
        error = self.future.exception()
        if error is None:
            return task, self.future.result(), False
        words = repr(error)
        died = not _is_about_the_task(error)
        if died:
            self.stop()
            words = f"the process died {TRIES} times over it"
        return task, Failure(f"{words}: {type(error).__name__}"), died

    def stop(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=False, kill_workers=True)
        self.executor = None


def _is_about_the_task(error: BaseException) -> bool:
    """Whether the task could not be sent, or its answer not be brought back."""
    import pickle

    return isinstance(error, pickle.PicklingError | AttributeError | TypeError)


def worker_environment(number: int, jobs: int) -> dict[str, str]:
    """Environment of worker ``number`` of ``jobs``: its share of cores, and its GPU."""
    import torch

    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = dict.fromkeys(names, threads)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        gpus = [gpu for gpu in visible.split(",") if gpu.strip()]
    else:
        gpus = [str(number) for number in range(torch.cuda.device_count())]
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    return environment


def settle(parent: int) -> None:
    """What a worker does first: leave Ctrl-C to its parent, and die when that is gone.

    A worker shows no progress bars, so it needs no lock for them that processes share;
    a killed one would leave its semaphore behind.
    """
    from tqdm.auto import tqdm

    tqdm.set_lock(threading.RLock())
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    if hasattr(os, "getppid") and os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()


# --- Dask ---------------------------------------------------------------------------


def dask(tasks: Sequence[Any], work: Work, address: str) -> Outcomes:
    """Do the tasks on the workers of a Dask scheduler.

    Workers need one thread each. A task whose worker is lost goes to another one; the
    scheduler gives up after three deaths (its setting allowed-failures).
    """
    distributed = checks.extra("dask", "distributed")
    with distributed.Client(address, set_as_default=False) as client:
        _check_threads(client)
        futures = {
            client.submit(work, task, key=f"fednb-{task.key}", pure=False): task
            for task in tasks
        }
        try:
            while futures:
                time.sleep(TICK)
                for future in [f for f in futures if f.done()]:
                    task = futures.pop(future)
                    if future.status == "finished":
                        yield task, future.result()
                    else:
                        error = future.exception()
                        yield task, Failure(f"{type(error).__name__}: {error}")
                yield None
        finally:
            if futures:
                client.cancel(list(futures), force=True)


def _check_threads(client: Any) -> None:
    """Refuse workers with several threads: runs would share one process."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    many = {name: w["nthreads"] for name, w in workers.items() if w["nthreads"] != 1}
    if many:
        raise ValueError(
            f"Dask workers need one thread each, these have more: {many}. Start them "
            "with: dask worker ADDRESS --nworkers N --nthreads 1"
        )


# --- batch schedulers ---------------------------------------------------------------


def slurm(
    tasks: Sequence[Any], work: Work, jobs: int, folder: Path, cluster: str | None
) -> Outcomes:
    """Do each task as a job of a batch scheduler, by submitit, ``jobs`` at a time.

    ``cluster`` is submitit's: None finds Slurm, "local" starts processes here.
    """
    submitit = checks.extra("slurm", "submitit")
    executor = submitit.AutoExecutor(folder=folder / "submitit", cluster=cluster)
    executor.update_parameters(name="fednb", timeout_min=24 * 60)
    waiting = deque(tasks)
    deaths: Counter[str] = Counter()
    running: dict[Any, Any] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.popleft()
                running[executor.submit(work, task)] = task
            time.sleep(TICK)
            for job in [job for job in running if job.done()]:
                task = running.pop(job)
                outcome = _job_outcome(job)
                if isinstance(outcome, Failure):
                    deaths[task.key] += 1
                    if deaths[task.key] < TRIES:
                        waiting.append(task)
                        continue
                yield task, outcome
            yield None
    finally:
        for job in running:
            with suppress(Exception):
                job.cancel(check=False)


def _job_outcome(job: Any) -> Any:
    try:
        return job.result()
    except Exception as error:
        return Failure(f"the job died {TRIES} times: {type(error).__name__}: {error}")
