"""Bring records along when the words that describe a task change.

``python -m fednb.migrate OLD`` compares this version with another checkout of the
project, OLD, in which the records were made. Both make the tasks of all tables; the
n-th task of a table there is the n-th task here. So each old spec has its new one, and
a record is rewritten with the new spec, key and check, and with nothing else changed.

It refuses when the tasks of the two versions do not pair off one to one, or when a
record belongs to none. A task whose method, law or network has a higher revision now
is not the same any more: its records are named, and removed with ``--drop``, to be run
again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import store
from .identity import digest
from .papers import CATALOGUE

DUMP = """
import json, sys
from fednb.papers import CATALOGUE
out = {}
for paper, tables in CATALOGUE.items():
    for table, make in tables.items():
        tasks = [(t.spec(), t.key, t.tags) for t in make(sys.argv[1])]
        out[paper + "/" + table] = tasks
print(json.dumps(out))
"""
SAME = ("seed", "rounds", "profile")  # what no migration may change
REVISIONS = re.compile(r"(\w+)@(\d+)\(")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and migrate all tables."""
    parser = argparse.ArgumentParser(prog="python -m fednb.migrate")
    parser.add_argument("old", type=Path, help="a checkout in which the records fit")
    parser.add_argument("--results", type=Path, default=Path("book/results"))
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--drop", action="store_true", help="remove outdated records")
    args = parser.parse_args(argv)
    pairs = pair(old_tasks(args.old, args.profile), new_tasks(args.profile))
    files = {name: args.results / f"{name}.json" for name in pairs}
    moved = {
        name: migrate_table(read_raw(file), pairs[name], name)
        for name, file in files.items()
        if file.exists()
    }
    outdated = [line for _, lines in moved.values() for line in lines]
    print(f"{sum(len(records) for records, _ in moved.values())} records fit")
    for line in outdated:
        print("outdated:", line)
    if outdated and not args.drop:
        print("nothing was written: --drop removes the outdated ones")
        return 1
    for name, (records, _) in moved.items():
        store.write_table(files[name], records)
    return 0


def old_tasks(checkout: Path, profile: str) -> dict[str, list[Any]]:
    """Specs, keys and tags of all tasks by the code of another checkout."""
    command = [sys.executable, "-c", DUMP, profile]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{checkout} could not tell its tasks:\n{done.stderr}")
    return json.loads(done.stdout)


def new_tasks(profile: str) -> dict[str, list[Any]]:
    """Specs, keys and tags of all tasks by this code."""
    return {
        f"{paper}/{table}": [
            (task.spec(), task.key, task.tags) for task in make(profile)
        ]
        for paper, tables in CATALOGUE.items()
        for table, make in tables.items()
    }


def pair(
    old: dict[str, list[Any]], new: dict[str, list[Any]]
) -> dict[str, dict[str, tuple[dict, dict]]]:
    """For each table: from old key to (old spec, new spec); one to one, or an error."""
    out = {}
    for name in old:
        if name not in new:
            raise ValueError(f"{name} is no table any more")
        if len(old[name]) != len(new[name]):
            raise ValueError(
                f"{name}: {len(old[name])} tasks then, {len(new[name])} now"
            )
        specs: dict[str, tuple[dict, dict]] = {}
        for (was, key, tags), (now, _, tags_now) in zip(
            old[name], new[name], strict=True
        ):
            same = all(was[field] == now[field] for field in SAME)
            if not same or tags != tags_now:
                raise ValueError(f"{name}: {tags} then, {tags_now} now")
            if specs.setdefault(key, (was, now))[1] != now:
                raise ValueError(f"{name}: {key} would become two tasks")
            specs[key] = (was, now)
        if len({digest(now) for _, now in specs.values()}) != len(specs):
            raise ValueError(f"{name}: two tasks would get the same key")
        out[name] = specs
    return out


def migrate_table(
    records: list[dict[str, Any]], specs: dict[str, tuple[dict, dict]], name: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Records with their new specs, and words about those that are outdated."""
    fit = []
    outdated = []
    for record in records:
        if record["key"] not in specs:
            raise ValueError(f"{name}: record {record['key']} belongs to no task")
        was, now = specs[record["key"]]
        if revisions(was) != revisions(now):
            outdated.append(f"{name}: {record['method']}, seed {record['seed']}")
            continue
        spec_fields = {*was, "key", "check"}
        facts = {k: v for k, v in record.items() if k not in spec_fields}
        fit.append(store.seal(now | facts | {"key": digest(now)}))
    if len({record["key"] for record in fit}) != len(fit):
        raise ValueError(f"{name}: two records would get the same key")
    return fit, outdated


def revisions(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """The names in a spec that carry a revision, with it."""
    return set(REVISIONS.findall(json.dumps(spec, ensure_ascii=False)))


def read_raw(path: Path) -> list[dict[str, Any]]:
    """Records of any schema, each held against its own check."""
    records = json.loads(path.read_text(encoding="utf-8"))
    for record in records:
        body = {k: v for k, v in record.items() if k != "check"}
        if record["check"] != digest(body):
            raise store.StoreError(f"{path}: {record.get('key')} is damaged")
    return records


if __name__ == "__main__":
    sys.exit(main())
