"""The long fault campaign: ``make faults``.

A small sweep is done undisturbed once. Then it is done again and again while things go
wrong: its processes are killed at random moments, it gets signals, the disk fills up,
its folder cannot be written, two sweeps do it at once, a worker stops answering. After
each trouble the sweep is started again until it ends well. Then the records must be
those of the undisturbed sweep, no process may be left, and no stray file.

The outcome goes to ``tests/faults/results.json``; the book shows it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from fednb.sweeps import sweep

from ..test_sweep import outcome, tasks

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "book" / "api" / "runs.md"
SCRIPT = """
import sys
from tests.faults.__main__ import workload
from fednb.sweeps import sweep
sweep(workload(), sys.argv[1], n_jobs=2, save_seconds=0.2, stall=float(sys.argv[2]))
"""
STRAY = {"table.json"}  # what may lie in the folder in the end


def workload() -> list:
    """Twelve runs of about a second, with rounds short enough to be saved often."""
    return tasks(seeds=range(6), rounds=150, every=50)


class Sweep:
    """A sweep in a process group of its own."""

    def __init__(self, folder: Path, stall: float = 60.0, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder / "table.json"), str(stall)],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | env,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def workers(self) -> list[psutil.Process]:
        """The processes that do the runs."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
            return [c for c in children if "popen_loky" in " ".join(c.cmdline())]
        except psutil.Error:
            return []

    def wait(self, seconds: float = 300) -> int:
        return self.process.wait(seconds)

    def is_gone(self) -> bool:
        """Whether no process of the group is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


def at_a_random_moment(sweep: Sweep, folder: Path, chance: random.Random) -> bool:
    """Wait until some run is on, and then up to three seconds more."""
    runs = folder / "table.runs"
    deadline = time.monotonic() + 60
    while sweep.process.poll() is None and time.monotonic() < deadline:
        if runs.is_dir() and any(runs.glob("*.round")):
            time.sleep(chance.uniform(0, 3))
            return sweep.process.poll() is None
        time.sleep(0.01)
    return False


# --- troubles ------------------------------------------------------------------------


def kill_parent(folder: Path, chance: random.Random) -> None:
    """Kill the process that leads the sweep, with SIGKILL."""
    sweep = Sweep(folder)
    if at_a_random_moment(sweep, folder, chance):
        os.kill(sweep.process.pid, signal.SIGKILL)
    finish(sweep)


def kill_worker(folder: Path, chance: random.Random) -> None:
    """Kill one worker, with SIGKILL; the sweep must end well by itself."""
    sweep = Sweep(folder)
    if at_a_random_moment(sweep, folder, chance):
        workers = sweep.workers()
        if workers:
            chance.choice(workers).kill()
    assert sweep.wait() == 0, "the sweep failed"
    finish(sweep)


def interrupt_worker(folder: Path, chance: random.Random) -> None:
    """Send SIGINT to one worker; nothing should happen."""
    sweep = Sweep(folder)
    if at_a_random_moment(sweep, folder, chance):
        workers = sweep.workers()
        if workers:
            chance.choice(workers).send_signal(signal.SIGINT)
    assert sweep.wait() == 0, "the sweep failed"
    finish(sweep)


def signal_parent(folder: Path, chance: random.Random) -> None:
    """Send SIGTERM, SIGINT or SIGHUP to the process that leads the sweep."""
    sweep = Sweep(folder)
    if at_a_random_moment(sweep, folder, chance):
        kinds = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        os.kill(sweep.process.pid, chance.choice(kinds))
    finish(sweep)


def signal_group(folder: Path, chance: random.Random) -> None:
    """Send SIGINT to all processes, as Ctrl-C in a terminal does."""
    sweep = Sweep(folder)
    if at_a_random_moment(sweep, folder, chance):
        os.killpg(sweep.process.pid, signal.SIGINT)
    finish(sweep)


def silence_worker(folder: Path, chance: random.Random) -> None:
    """Stop one worker with SIGSTOP: it never answers, and must be replaced."""
    sweep = Sweep(folder, stall=10.0)
    if at_a_random_moment(sweep, folder, chance):
        workers = sweep.workers()
        if workers:
            chance.choice(workers).send_signal(signal.SIGSTOP)
    assert sweep.wait() == 0, "the sweep failed"
    finish(sweep)


def two_sweeps(folder: Path, chance: random.Random) -> None:
    """Do it twice at once, with different folders for temporary files; kill one."""
    temps = [tempfile.mkdtemp() for _ in range(2)]
    sweeps = [Sweep(folder, TMPDIR=temp) for temp in temps]
    if at_a_random_moment(sweeps[0], folder, chance) and chance.random() < 0.5:
        os.kill(sweeps[0].process.pid, signal.SIGKILL)
    for one in sweeps:
        finish(one)
    for temp in temps:
        shutil.rmtree(temp, ignore_errors=True)


def full_disk(folder: Path, chance: random.Random) -> None:
    """Fill the disk while the sweep is on, and make room later."""
    sweep = Sweep(folder)
    if at_a_random_moment(sweep, folder, chance):
        ballast = folder / "ballast"
        handle = os.open(ballast, os.O_CREAT | os.O_WRONLY)
        with contextlib.suppress(OSError):
            while True:
                os.write(handle, b"x" * 4096)
        os.close(handle)
        time.sleep(chance.uniform(0, 6))
        ballast.unlink()
    finish(sweep)


def read_only(folder: Path, chance: random.Random) -> None:
    """Mount the folder read-only while the sweep is on, and writable later."""
    sweep = Sweep(folder)
    if at_a_random_moment(sweep, folder, chance):
        remount(folder, "ro")
        time.sleep(chance.uniform(0, 6))
        remount(folder, "rw")
    finish(sweep)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=False)


def finish(sweep: Sweep) -> None:
    """Wait for the end, and for all its processes to be gone."""
    sweep.wait()
    deadline = time.monotonic() + 20
    while not sweep.is_gone() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sweep.is_gone(), "a process was left behind"


TROUBLES: dict[Callable[..., None], tuple[int, str]] = {
    kill_parent: (25, "the leading process killed (SIGKILL)"),
    kill_worker: (25, "a worker killed (SIGKILL)"),
    signal_parent: (9, "SIGTERM, SIGINT or SIGHUP to the leading process"),
    signal_group: (5, "Ctrl-C to all processes"),
    interrupt_worker: (4, "SIGINT to one worker"),
    silence_worker: (4, "a worker that never answers (SIGSTOP)"),
    two_sweeps: (5, "two sweeps at once, one of them killed in half of the cases"),
    full_disk: (5, "a full disk for some seconds"),
    read_only: (4, "a read-only folder for some seconds"),
}


def trial(trouble: Callable[..., None], seed: int, wanted: dict[str, Any]) -> str:
    """Have one trouble, end the sweep well, and compare; "" or what went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="fednb-faults-"))
    disk = trouble in (full_disk, read_only)
    if (
        disk
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)],
            capture_output=True,
        ).returncode
    ):
        return "skipped: a small disk cannot be mounted here"
    try:
        trouble(folder, random.Random(seed))
        records = sweep(workload(), folder / "table.json", n_jobs=1, progress=False)
        if outcome(records) != wanted:
            return "the records differ"
        stray = {file.name for file in folder.iterdir()} - STRAY
        if stray:
            return f"stray files: {sorted(stray)}"
        return ""
    except AssertionError as error:
        return str(error)
    finally:
        if disk:
            remount(folder, "rw")
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def table(results: list[dict[str, Any]]) -> str:
    """The outcome as the book shows it."""
    lines = ["| trouble | times | survived |", "|---|---|---|"]
    for row in results:
        lines.append(f"| {row['trouble']} | {row['times']} | {row['survived']} |")
    return "\n".join(lines)


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials")
    parser.add_argument("--only", help="one trouble, by the name of its function")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        calm = sweep(workload(), Path(temp) / "table.json", n_jobs=1, progress=False)
    wanted = outcome(calm)
    results = []
    for trouble, (times, words) in TROUBLES.items():
        if args.only not in (None, trouble.__name__):
            continue
        count = max(1, round(times * args.share))
        found = []
        for seed in range(count):
            clock = time.monotonic()
            what = trial(trouble, seed, wanted)
            found.append(what)
            spent = time.monotonic() - clock
            print(f"{trouble.__name__} {seed}: {what or 'survived'} ({spent:.0f} s)")
            sys.stdout.flush()
        skipped = sum(what.startswith("skipped") for what in found)
        row = {"trouble": words, "times": count - skipped, "survived": found.count("")}
        results.append(row)
    print(table(results))
    if args.only is None and args.share == 1.0:
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        write_page(results)
    return int(any(row["survived"] < row["times"] for row in results))


def write_page(results: list[dict[str, Any]]) -> None:
    """Put the table into the book's page about runs and records."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition("<!-- faults -->\n")
    _, _, after = rest.partition("<!-- /faults -->")
    whole = f"{before}<!-- faults -->\n{table(results)}\n<!-- /faults -->{after}"
    PAGE.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
