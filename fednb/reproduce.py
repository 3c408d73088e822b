r"""Re-run the papers' tables: ``python -m fednb.reproduce wecfl --table 2``.

Each chapter brings a module in ``fednb.papers`` with ``TABLES``, from table name to a
function that makes the tasks of a profile. Records go to
``book/results/<paper>/<table>.json`` (or below ``--out``), smoke runs to a scratch
folder.

A sweep that was stopped, in whatever way, goes on when it is started again. On several
machines that share a folder, start each with its part: in a Slurm array job of five ::

    sbatch --array=1-5 --wrap 'python -m fednb.reproduce wecfl --profile paper \
        --part $SLURM_ARRAY_TASK_ID/5'

or let Dask (``--engine dask --address tcp://...``) or submitit (``--engine slurm``)
deal the runs out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import store
from .experiment import ENGINES, Task, forecast, sweep
from .papers import CATALOGUE

COMMITTED = Path("book/results")
PROFILES = {
    "smoke": "seconds, on the embedded digits: does it run?",
    "laptop": "real data at a declared reduced scale",
    "paper": "the paper's own settings, for a GPU or a cluster",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run the tables, say where the records are."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.list:
        print(listing())
        return 0
    if args.paper not in CATALOGUE:
        known = ", ".join(CATALOGUE) or "it is still empty"
        parser.error(f"no paper {args.paper!r} in the catalogue: {known}")
    tables = CATALOGUE[args.paper]
    names = [name for name in tables if _is_asked_for(name, args.table)]
    if not names:
        known = ", ".join(tables)
        parser.error(f"{args.paper} has no table {args.table!r}: {known}")
    scratch = Path("_build/smoke") if args.profile == "smoke" else COMMITTED
    out = args.out or scratch / args.paper
    for name in names:
        tasks = tables[name](args.profile)
        if args.due:
            tasks = due(tasks, COMMITTED / args.paper / f"{name}.json")
        title = f"{args.paper} {name} ({args.profile})"
        path = out / f"{name}.json"
        if not tasks:
            print(
                f"{args.paper} {name}: nothing to run in profile {args.profile}",
                flush=True,
            )
        elif args.dry_run:
            print(f"{title}: {forecast(tasks, path)}", flush=True)
        elif args.collect:
            print(f"{title}: {len(store.collect(path))} records in {path}", flush=True)
        else:
            before = len(store.finished(path))
            records = sweep(
                tasks,
                path,
                n_jobs=args.jobs,
                engine=args.engine,
                address=args.address,
                part=args.part,
            )
            new = max(0, len(store.finished(path)) - before)
            old = len(records) - new
            print(f"{title}: {new} new, {old} recorded before, in {path}", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fednb.reproduce", description=__doc__.split("\n\n")[0]
    )
    add = parser.add_argument
    add("paper", nargs="?", help="which paper; --list shows them")
    add("--table", help="one table, by name or by the paper's number: --table 2")
    add("--profile", choices=PROFILES, default="smoke")
    add("--out", type=Path, help="folder of the records")
    add("--due", action="store_true", help="only runs that the committed records lack")
    add("--jobs", type=_positive, help="runs at a time (default: one per core)")
    add(
        "--part",
        type=_part,
        default=(1, 1),
        metavar="I/N",
        help="do the I-th of N parts",
    )
    add("--engine", choices=ENGINES, default="local", help="where the runs are done")
    add("--address", help="of the Dask scheduler, or submitit's cluster")
    add(
        "--dry-run", action="store_true", help="say how long it would take, run nothing"
    )
    add(
        "--collect", action="store_true", help="only gather the runs that have finished"
    )
    add("--list", action="store_true", help="list papers, tables and profiles")
    return parser


def due(tasks: list[Task], committed: Path) -> list[Task]:
    """The tasks without a committed record of clean code: with ``--out``, runs to come.

    What is made in this way waits in ``book/results/next`` until its chapter is told
    anew.
    """
    records = store.finished(committed)
    sound = {k for k, r in records.items() if not r["commit"].endswith("-dirty")}
    return [task for task in tasks if task.key not in sound]


def _is_asked_for(name: str, table: str | None) -> bool:
    """Whether ``--table 2`` means this table: it is its name, or begins with table2."""
    if table is None or name == table:
        return True
    numbered = f"table{table}"
    return name == numbered or name.startswith(f"{numbered}_")


def _part(text: str) -> tuple[int, int]:
    i, _, n = text.partition("/")
    if not (i.isdigit() and n.isdigit() and 1 <= int(i) <= int(n)):
        raise argparse.ArgumentTypeError(f"{text!r}: need I/N, such as 2/5")
    return int(i), int(n)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: need an integer >= 1")
    return int(text)


def listing() -> str:
    """The catalogue, as text."""
    lines = [f"{paper}: {', '.join(tables)}" for paper, tables in CATALOGUE.items()]
    lines = lines or ["no tables yet"]
    profiles = [f"--profile {name}: {what}" for name, what in PROFILES.items()]
    return "\n".join([*lines, "", *profiles])


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        print("stopped; what has finished is kept", file=sys.stderr)
        code = 130
    sys.stdout.flush()
    sys.exit(code)
