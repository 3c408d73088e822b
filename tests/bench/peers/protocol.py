"""The line protocol between the benchmark's runner and one peer, over the peer's stdin
and stdout.

    peer   > READY                 set up, warmed up by one round
    runner > ROUNDS n
    peer   > DONE <seconds>        pure round time; the model's state continues
    runner > QUIT                  or end of file, or SIGTERM

A peer is started in `tests/bench` as `python -m peers.<name> W1`, by its own
environment's interpreter. Everything a peer library prints goes to stderr, as does the
loss after each block.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable

from workloads import Workload, workload


def arguments(setups: list[str]) -> tuple[Workload, argparse.Namespace]:
    """Read `W1|W2|W3 [--setup S] [--sampled n] [--seed s]`; the first set-up is the
    default.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=["W1", "W2", "W3"])
    parser.add_argument("--setup", choices=setups, default=setups[0])
    parser.add_argument(
        "--sampled", type=int, help="clients a round, if not the workload's own number"
    )
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    return workload(chosen.workload, chosen.sampled), chosen


def channel() -> Callable[[str], None]:
    """Take stdout for the protocol alone and send every other print to stderr. Returns
    the sender.
    """
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.set_inheritable(lines.fileno(), False)
    os.dup2(2, 1)
    return lambda line: print(line, file=lines, flush=True)


def on_sigterm(clean: Callable[[], None]) -> None:
    """Clean up and leave at once on SIGTERM, whatever the other threads are doing."""

    def leave(*_) -> None:
        clean()
        os._exit(143)

    signal.signal(signal.SIGTERM, leave)


def serve(
    send: Callable[[str], None],
    rounds: Callable[[int], None],
    loss: Callable[[], float],
) -> None:
    """Answer the runner until QUIT or end of file. `rounds(n)` is timed, `loss()` is
    not.
    """
    print(f"loss {loss():.4f} at the start", file=sys.stderr)
    rounds(1)
    send("READY")
    for line in sys.stdin:
        command, *values = line.split() or [""]
        if command == "QUIT":
            break
        if command != "ROUNDS" or len(values) != 1:
            raise ValueError(f"unknown line {line!r}: send 'ROUNDS n' or 'QUIT'")
        start = time.perf_counter()
        rounds(int(values[0]))
        seconds = time.perf_counter() - start
        print(f"loss {loss():.4f} after {values[0]} more rounds", file=sys.stderr)
        send(
            f"DONE {seconds:.6f}"
        )  # last: from here on the cores belong to the next contender
