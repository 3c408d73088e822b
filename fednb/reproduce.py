r"""Re-run the papers' tables: ``python -m fednb.reproduce wecfl --table 2``.

Each chapter brings a module in ``fednb.papers`` with ``TABLES``, from table name to a
function that makes the tasks of a profile. What the book has on record, in
``book/results/<paper>/<table>.json``, is not run again. New runs go to
``runs/<paper>``, smoke runs to a scratch folder. With ``--out`` all runs of a table go
to a folder of your own, and only what is recorded there is left out.

A sweep that was stopped, in whatever way, goes on when it is started again. On several
machines that share a folder, start each with its part: in a Slurm array job of five ::

    sbatch --array=1-5 --wrap 'python -m fednb.reproduce wecfl --profile paper \
        --part $SLURM_ARRAY_TASK_ID/5'

or let Dask (``--engine dask --address tcp://...``) or submitit (``--engine slurm``)
deal the runs out.

``--due --out book/results/next/wecfl`` makes runs that the book's results lack;
``--adopt`` takes them over, or those in another ``--out``. ``--again`` runs what is
recorded once more, in ``_build/again``, and says how many runs agree to the last digit;
with ``--key`` a single run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import store
from .adopt import adopt
from .forecast import Record, forecast, known_records
from .papers import CATALOGUE
from .sweeps import ENGINES, Task, commit, sweep

COMMITTED = Path("book/results")  # written by --adopt, or if --out names it
NEW_RUNS = Path("runs")
SMOKE_RUNS = Path("_build/smoke")
PROFILES = {
    "smoke": "seconds, on the embedded digits: does it run?",
    "laptop": "real data at a declared reduced scale",
    "workstation": "real data, nearer to the paper: hours on a few cores",
    "paper": "the paper's own settings, fewer seeds at most: --dry-run tells the hours",
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
    if args.profile is None:
        args.profile = "laptop" if args.again else "smoke"
    if args.again and args.out is not None and _is_inside(args.out, COMMITTED):
        parser.error(f"--again must not write into {COMMITTED}: choose another --out")
    if args.key and not args.again:
        parser.error("--key chooses a recorded run: use it with --again")
    if args.adopt:
        return _adopt(args, names)
    if args.again:
        return _again(args, names)
    return _run(args, names)


def _run(args: argparse.Namespace, names: Sequence[str]) -> int:
    """Run tables, or say how long that would take, or collect what has finished."""
    scratch = SMOKE_RUNS if args.profile == "smoke" else NEW_RUNS
    out = args.out or scratch / args.paper
    known = []
    if args.dry_run:
        known = known_records(out, COMMITTED / args.paper)
    for name in names:
        tasks = CATALOGUE[args.paper][name](args.profile)
        committed = COMMITTED / args.paper / f"{name}.json"
        if args.due:
            tasks = due(tasks, committed)
        in_book: list[Task] = []
        if args.out is None and not args.due:
            recorded = store.finished(committed)
            in_book = [task for task in tasks if task.key in recorded]
            tasks = [task for task in tasks if task.key not in recorded]
        title = f"{args.paper} {name} ({args.profile})"
        path = out / f"{name}.json"
        if args.collect:
            _say(f"{title}: {len(store.collect(path))} records in {path}")
        elif not tasks and not in_book:
            _say(f"{args.paper} {name}: nothing to run in profile {args.profile}")
        elif not tasks:
            _say(f"{title}: 0 new, {len(in_book)} recorded before, in {committed}")
        elif args.dry_run:
            _say(f"{title}: {forecast(tasks, path, known)}{_beside(in_book)}")
        else:
            before = store.finished(path).keys()
            records = _sweep(args, tasks, path)
            old = sum(record["key"] in before for record in records)
            new = len(records) - old
            _say(
                f"{title}: {new} new, {old} recorded before, in {path}"
                f"{_beside(in_book)}"
            )
    return 0


def _beside(in_book: list[Task]) -> str:
    """What the book has of a table, if anything."""
    return f"; {len(in_book)} more are in {COMMITTED}" if in_book else ""


def _sweep(args: argparse.Namespace, tasks: list[Task], path: Path) -> list[Record]:
    return sweep(
        tasks,
        path,
        n_jobs=args.jobs,
        engine=args.engine,
        address=args.address,
        part=args.part,
    )


def _adopt(args: argparse.Namespace, names: Sequence[str]) -> int:
    """Take the records that wait for this paper over into the book's results."""
    source = args.out or COMMITTED / "next" / args.paper
    target = COMMITTED / args.paper
    profiles = [profile for profile in PROFILES if profile != "smoke"]
    keys = {
        name: {task.key for profile in profiles for task in make(profile)}
        for name, make in CATALOGUE[args.paper].items()
    }
    done = adopt(source, target, keys, names)
    for name, what in done.items():
        _say(f"{args.paper} {name}: {what}")
    if not done:
        _say(f"{args.paper}: no records wait in {source}")
    return 0


def _again(args: argparse.Namespace, names: Sequence[str]) -> int:
    """Run what is recorded once more, and compare."""
    out = args.out or Path("_build/again") / args.paper
    for name in names:
        recorded = store.finished(COMMITTED / args.paper / f"{name}.json")
        tasks = CATALOGUE[args.paper][name](args.profile)
        tasks = [task for task in tasks if task.key in recorded]
        if args.key:
            tasks = [task for task in tasks if task.key.startswith(args.key)]
        title = f"{args.paper} {name} ({args.profile})"
        path = out / f"{name}.json"
        if not tasks:
            _say(f"{title}: nothing is recorded")
        elif args.dry_run:
            known = known_records(out, COMMITTED / args.paper)
            _say(f"{title}: {forecast(tasks, path, known)}")
        else:
            _drop_other_code(path)
            records = _sweep(args, tasks, path)
            differ = [r for r in records if not agree(r, recorded[r["key"]])]
            same = len(records) - len(differ)
            _say(
                f"{title}: {len(records)} run again, {same} agree with the committed "
                f"records to the last digit, {len(differ)} do not; in {path}"
            )
            for record in differ:
                method, seed = record["method"], record["seed"]
                _say(f"  differs: {record['key']}, {method}, seed {seed}")
    return 0


def agree(record: Record, other: Record) -> bool:
    """Whether two records of a task say the same, to the last digit.

    Only what may differ from machine to machine is left out.
    """
    names = ("key", "data_sha256", "client_updates", "bytes", "metrics", "events")
    a, b = ({name: store.plain(r.get(name)) for name in names} for r in (record, other))
    return a == b


def _drop_other_code(path: Path) -> None:
    """Keep of an earlier ``--again`` only what this very code has computed."""
    records = store.collect(path)
    now = commit()
    mine = [r for r in records if r["commit"] == now and not now.endswith("-dirty")]
    if len(mine) < len(records):
        store.write_table(path, mine)


def _say(line: str) -> None:
    print(line, flush=True)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fednb.reproduce", description=__doc__.split("\n\n")[0]
    )
    add = parser.add_argument
    add("paper", nargs="?", help="which paper; --list shows them")
    add("--table", help="one table, by name or by the paper's number: --table 2")
    add("--profile", choices=PROFILES, help="smoke by default, laptop with --again")
    add("--out", type=Path, help="folder of the records (default: runs/PAPER)")
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
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--collect", action="store_true", help="only gather the runs that have finished"
    )
    other.add_argument(
        "--again",
        action="store_true",
        help="run what is recorded once more, in _build/again, and compare",
    )
    other.add_argument(
        "--adopt",
        action="store_true",
        help="take the records that wait in book/results/next over into the book's",
    )
    add("--key", help="with --again: only the run whose key begins in this way")
    add("--list", action="store_true", help="list papers, tables and profiles")
    return parser


def due(tasks: list[Task], committed: Path) -> list[Task]:
    """The tasks that have no committed record, or one made by uncommitted code.

    Their new records wait in ``book/results/next`` until the text of the chapter is
    brought up to date.
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
