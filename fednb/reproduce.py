"""Re-run the papers' tables: ``python -m fednb.reproduce wecfl --table 2 --profile laptop``.

Each chapter brings a module in ``fednb.papers`` with ``TABLES``, from table name to a function that makes the tasks of
a profile. Records go to ``book/results/<paper>/<table>.json`` (or below ``--out``), smoke runs to a scratch folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .experiment import sweep
from .papers import CATALOGUE

PROFILES = {
    "smoke": "seconds, on the embedded digits: does it run?",
    "laptop": "real data at a declared reduced scale",
    "paper": "the paper's own settings, for a GPU or a cluster",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run the tables, say where the records are."""
    parser = argparse.ArgumentParser(
        prog="python -m fednb.reproduce", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("paper", nargs="?", help="which paper; --list shows them")
    parser.add_argument("--table", help="one table only")
    parser.add_argument("--profile", choices=PROFILES, default="smoke")
    parser.add_argument("--out", type=Path, help="folder of the records")
    parser.add_argument(
        "--jobs", type=int, help="runs at a time (default: one per core)"
    )
    parser.add_argument(
        "--list", action="store_true", help="list papers, tables and profiles"
    )
    args = parser.parse_args(argv)
    if args.list:
        print(listing())
        return 0
    if args.paper not in CATALOGUE:
        parser.error(
            f"no paper {args.paper!r} in the catalogue: {', '.join(CATALOGUE) or 'it is still empty'}"
        )
    tables = CATALOGUE[args.paper]
    if args.table is not None and args.table not in tables:
        parser.error(f"{args.paper} has no table {args.table!r}: {', '.join(tables)}")
    out = (
        args.out
        or Path("_build/smoke" if args.profile == "smoke" else "book/results")
        / args.paper
    )
    for name in [args.table] if args.table else tables:
        tasks = tables[name](args.profile)
        if not tasks:
            print(f"{args.paper} {name}: nothing to run in profile {args.profile}")
            continue
        records = sweep(tasks, out / f"{name}.json", n_jobs=args.jobs)
        print(
            f"{args.paper} {name} ({args.profile}): {len(records)} records in {out / name}.json"
        )
    return 0


def listing() -> str:
    """The catalogue, as text."""
    lines = [
        f"{paper}: {', '.join(tables)}" for paper, tables in CATALOGUE.items()
    ] or ["no tables yet"]
    return "\n".join(
        [*lines, "", *(f"--profile {name}: {what}" for name, what in PROFILES.items())]
    )


if __name__ == "__main__":
    sys.exit(main())
