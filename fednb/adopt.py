"""Move records that wait for their chapter into the book's results.

New runs are made by ``reproduce --due --out book/results/next/<paper>``, so that the
tables of the book do not change under its text. When the chapter has been rewritten,
``python -m fednb.reproduce <paper> --adopt`` moves them into
``book/results/<paper>/<table>.json``. The old records that stood in for them are
removed, and so are their notes in ``pending.json``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from . import store

Record = dict[str, Any]


class Adopted(NamedTuple):
    """What was done to one table."""

    adopted: int
    pending: int  # runs for which an old record still stands in

    def __str__(self) -> str:
        return f"{self.adopted} adopted, {self.pending} still pending"


def adopt(
    source: Path,
    target: Path,
    tables: Mapping[str, Set[str]],
    names: Iterable[str] | None = None,
) -> dict[str, Adopted]:
    """Move records of tables from one folder into another: all, or none on an error.

    ``tables`` has the keys of each table's tasks: a record whose key is not among them
    is refused, and so is one of code that was not committed. ``names`` are the tables
    to move, all by default. A record that other tables in ``target`` want as well goes
    into these too.
    """
    if source.resolve() == target.resolve():
        raise ValueError(f"adopt: the records wait in {source}, where they would go")
    guarded = target
    if not target.is_dir():
        guarded = target.parent
    with store.locked(guarded):
        waiting = _waiting(source, tables, names)
        if not waiting:
            return {}
        notes = store.read_pending(target)
        found: dict[str, Record] = {}
        for records in waiting.values():
            found |= {record["key"]: record for record in records}
        left = {key: note for key, note in notes.items() if key not in found}
        changed = {}
        for name, keys in tables.items():
            path = target / f"{name}.json"
            if name in waiting or path.exists():
                new = [record for key, record in found.items() if key in keys]
                if new:
                    changed[name] = _merged(path, new, keys, notes, left)
        with _all_or_nothing(source, target):
            target.mkdir(parents=True, exist_ok=True)
            for name, records in changed.items():
                store.write_table(target / f"{name}.json", records)
            store.write_pending(target, left)
            for name in waiting:
                for file in store.table_files(source / f"{name}.json"):
                    file.unlink()
    with contextlib.suppress(OSError):  # not empty
        source.rmdir()
    return {
        name: Adopted(len(records), len(tables[name] & left.keys()))
        for name, records in waiting.items()
    }


def _waiting(
    source: Path, tables: Mapping[str, Set[str]], names: Iterable[str] | None
) -> dict[str, list[Record]]:
    """The records in ``source`` by table, each of them checked."""
    waiting: dict[str, list[Record]] = {}
    if not source.is_dir():
        return waiting
    if names is None:
        names = tables
    for name in names:
        path = source / f"{name}.json"
        records = store.collect(path)
        for record in records:
            words = f"{path}: record {record['key']}, {record['method']}"
            if record["key"] not in tables[name]:
                raise store.StoreError(
                    f"{words}, seed {record['seed']}, belongs to no task of {name}"
                )
            if record["commit"] == "unknown" or record["commit"].endswith("-dirty"):
                raise store.StoreError(
                    f"{words}, is of code that was not committed "
                    f"({record['commit']}): run it again"
                )
        if records:
            waiting[name] = records
    return waiting


def _merged(
    path: Path,
    new: list[Record],
    keys: Set[str],
    notes: dict[str, dict[str, str]],
    left: dict[str, dict[str, str]],
) -> list[Record]:
    """A table's records with the new ones, without those that stood in for them.

    An old record stays if it belongs to a task, or stands in for yet another run.
    """
    stood_in = {notes[r["key"]]["stands_in"] for r in new if r["key"] in notes}
    needed = keys | {note["stands_in"] for note in left.values()}
    old = [r for r in store.read(path) if r["key"] not in stood_in - needed]
    records = {record["key"]: record for record in [*old, *new]}
    files: dict[str, str] = {}
    for record in records.values():
        dataset = record["dataset"]
        if files.setdefault(dataset, record["data_sha256"]) != record["data_sha256"]:
            raise store.StoreError(
                f"{path} would mix runs on different files of {dataset}"
            )
    return list(records.values())


@contextlib.contextmanager
def _all_or_nothing(*folders: Path) -> Iterator[None]:
    """Bring the JSON files of some folders back as they were if something fails."""
    before = {
        file: file.read_bytes() for folder in folders for file in folder.glob("*.json")
    }
    try:
        yield
    except BaseException:
        for folder in folders:
            for file in folder.glob("*.json"):
                if file not in before:
                    file.unlink()
        for file, content in before.items():
            if not file.exists() or file.read_bytes() != content:
                store.atomically(file, partial(_write, content=content))
        raise


def _write(out: IO[bytes], content: bytes) -> None:
    out.write(content)
