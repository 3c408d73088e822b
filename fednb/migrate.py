"""Bring records along when the words that describe a task change.

``python -m fednb.migrate OLD`` compares this version with another checkout of the
project, OLD, in which the records were made. Both make the tasks of all tables; tasks
with the same data set, seed and tags belong together. So each old spec has its new one,
and a record is rewritten with the new spec, key and check, and nothing else changed.
It refuses when tasks do not pair off one to one, when a record belongs to none, or when
something has a higher revision now.

``--pending`` is for the other case: what is computed has changed, and the runs are
still to be done again. No record is touched. For every task that has lost its record
``pending.json`` notes which old one stands in for it until then, and what differs;
tables use it and say so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
REVISIONS = re.compile(r"(\w+)@(\d+)\(")
Tasks = dict[str, list[Any]]  # from paper/table to (spec, key, tags)
Pairs = dict[str, tuple[dict[str, Any], dict[str, Any]]]  # old key: (old, new spec)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and migrate all tables."""
    parser = argparse.ArgumentParser(prog="python -m fednb.migrate")
    parser.add_argument("old", type=Path, help="a checkout in which the records fit")
    parser.add_argument("--results", type=Path, default=Path("book/results"))
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--pending", action="store_true", help="only note what is due")
    args = parser.parse_args(argv)
    pairs = {
        name: pair(was, now, name)
        for name, was, now in _both(old_tasks(args.old, args.profile), args.profile)
    }
    if args.pending:
        return note_pending(pairs, args.results)
    files = {name: args.results / f"{name}.json" for name in pairs}
    moved = {
        name: migrate_table(read_raw(file), pairs[name], name)
        for name, file in files.items()
        if file.exists()
    }
    for name, records in moved.items():
        store.write_table(files[name], records)
    print(f"{sum(map(len, moved.values()))} records have their new specs")
    return 0


def old_tasks(checkout: Path, profile: str) -> Tasks:
    """Specs, keys and tags of all tasks by the code of another checkout."""
    command = [sys.executable, "-c", DUMP, profile]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{checkout} could not tell its tasks:\n{done.stderr}")
    return json.loads(done.stdout)


def new_tasks(profile: str) -> Tasks:
    """Specs, keys and tags of all tasks by this code."""
    return {
        f"{paper}/{table}": [
            (task.spec(), task.key, task.tags) for task in make(profile)
        ]
        for paper, tables in CATALOGUE.items()
        for table, make in tables.items()
    }


def _both(old: Tasks, profile: str) -> Iterator[tuple[str, list[Any], list[Any]]]:
    new = new_tasks(profile)
    for name, tasks in old.items():
        if name not in new:
            raise ValueError(f"{name} is no table any more")
        yield name, tasks, new[name]


def pair(old: list[Any], new: list[Any], name: str) -> Pairs:
    """From old key to (old spec, new spec); one to one, or an error.

    New tasks may have joined; none may have gone.
    """
    now = cells(new, name)
    pairs: Pairs = {}
    for cell, was in cells(old, name).items():
        if cell not in now:
            raise ValueError(f"{name}: there is no task {cell} any more")
        if pairs.setdefault(digest(was), (was, now[cell]))[1] != now[cell]:
            raise ValueError(f"{name}: {cell} would become two tasks")
    if len({digest(new_spec) for _, new_spec in pairs.values()}) != len(pairs):
        raise ValueError(f"{name}: two tasks would get the same key")
    return pairs


def cells(tasks: list[Any], name: str) -> dict[str, dict[str, Any]]:
    """Specs by what names a task in its table: data set, seed, profile and tags."""
    found: dict[str, dict[str, Any]] = {}
    for spec, _, tags in tasks:
        words = [spec["dataset"], spec["seed"], spec["profile"], tags]
        cell = json.dumps(words, sort_keys=True, ensure_ascii=False)
        if found.setdefault(cell, spec) != spec:
            raise ValueError(f"{name}: two different tasks are called {cell}")
    return found


def migrate_table(
    records: list[dict[str, Any]], pairs: Pairs, name: str
) -> list[dict[str, Any]]:
    """Records with their new specs, and nothing else changed."""
    moved = []
    for record in records:
        if record["key"] not in pairs:
            raise ValueError(f"{name}: record {record['key']} belongs to no task")
        was, now = pairs[record["key"]]
        if revisions(was) != revisions(now):
            raise ValueError(
                f"{name}: {was['method']}, seed {record['seed']}, has another revision "
                "now and must be run again: see --pending"
            )
        spec_fields = {*was, "key", "check"}
        facts = {k: v for k, v in record.items() if k not in spec_fields}
        moved.append(store.seal(now | facts | {"key": digest(now)}))
    if len({record["key"] for record in moved}) != len(moved):
        raise ValueError(f"{name}: two records would get the same key")
    return moved


def note_pending(pairs: dict[str, Pairs], results: Path) -> int:
    """Write which old records stand in for tasks that are still to be run."""
    for paper in dict.fromkeys(name.partition("/")[0] for name in pairs):
        before = store.read_pending(results / paper)
        notes: dict[str, dict[str, str]] = {}
        for name, table in pairs.items():
            if name.partition("/")[0] != paper:
                continue
            have = {record["key"] for record in store.read(results / f"{name}.json")}
            for key, (was, now) in table.items():
                if digest(now) in have:
                    continue
                if key in have:
                    notes[digest(now)] = {"stands_in": key, "why": difference(was, now)}
                elif key in before:  # it was pending already when OLD was made
                    notes[digest(now)] = before[key]
        store.write_pending(results / paper, notes)
        print(f"{paper}: {len(notes)} runs are pending")
    return 0


def difference(was: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between two specs, in words."""
    fields = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return "; ".join(f"{name}: {was.get(name)} → {now.get(name)}" for name in fields)


def revisions(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """The names in a spec that have a revision, each with its number."""
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
