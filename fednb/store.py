"""Results on disk: run records as JSON, checkpoints as npz, each written whole or not
at all.

A table of the book is a list of records in ``<table>.json``. A list that would pass
``MAX_BYTES`` goes on in ``<table>.2.json`` and so on; ``read`` reads them all. Each
record carries ``key``, the hash of what was asked for, and ``check``, the hash of the
whole record, so that damage is noticed.

While a sweep is under way every run has a file of its own, ``<table>.runs/<key>.json``,
written by whoever did the run. No two runs write the same file, so this needs no lock
and is safe on a network share. ``collect`` moves them into the table's file. Beside a
run's file there may be its checkpoint ``<key>.npz``, and ``<key>.round``, a text with
the number of rounds done, which tells that the run is alive.

Checkpoints hold arrays and JSON only: nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from .identity import digest

SCHEMA = 2
SPEC = (  # what was asked for; a record's key is the hash of those that it has
    *("schema", "method", "dataset", "partition", "model", "local", "rounds", "seed"),
    *("profile", "every", "last", "curves", "options", "official", "measure"),
    "train_rows",
)
REQUIRED = (
    *("schema", "method", "dataset", "data_sha256", "partition", "seed", "rounds"),
    *("profile", "version", "commit", "machine", "seconds", "client_updates"),
    *("bytes", "metrics"),
)
MAX_BYTES = 500_000  # of a results file, which is committed and shipped with the book
FRESH = 60.0  # seconds within which a run that is alive touches its file


class StoreError(ValueError):
    """A file of records or a checkpoint is damaged, or belongs to something else."""


# --- tables -------------------------------------------------------------------------


def results(name: str) -> Path:
    """The folder of committed records of a paper or the arena, wherever it is called.

    It is ``book/results/<name>`` of the checkout that we stand in, or of the one that
    holds the package; a wheel brings the same files as ``fednb/results/<name>``.
    """
    here = Path.cwd()
    package = Path(__file__).parent
    checkouts = (here, *here.parents, package.parent)
    folders = [folder / "book" / "results" for folder in checkouts]
    for folder in (*folders, package / "results"):
        if (folder / name).is_dir():
            return folder / name
    raise FileNotFoundError(
        f"no book/results/{name} in {here} or above it, and no records of {name} "
        f"with the package in {package}"
    )


def read(path: str | Path) -> list[dict[str, Any]]:
    """Read the records of a table; none if there is no file. A damaged one is named."""
    records = [
        record for part in table_files(Path(path)) for record in _read_file(part)
    ]
    return list({record["key"]: record for record in records}.values())


def append(path: str | Path, record: dict[str, Any]) -> None:
    """Add a record to a table; one with the same key takes the place of the old one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        write_table(path, [*read(path), seal(record)])


def collect(path: str | Path) -> list[dict[str, Any]]:
    """Move the finished runs of a table into its file, and return all its records.

    Runs whose file is damaged are left out and set aside as ``<key>.json.damaged``.
    """
    path = Path(path)
    folder = runs_folder(path)
    if not folder.is_dir():
        return read(path)
    with locked(path.parent):
        found = list(_finished(folder))
        if found:
            write_table(path, [*read(path), *found])
        for record in found:
            forget(folder, record["key"])
            (folder / f"{record['key']}.json").unlink(missing_ok=True)
        _tidy(folder)
    return read(path)


def read_pending(folder: Path) -> dict[str, dict[str, str]]:
    """What stands in for runs of a paper that are still to be done again, by key.

    Each note has ``stands_in``, the key of an old record, and ``why``, what differs.
    """
    file = folder / "pending.json"
    if not file.exists():
        return {}
    return json.loads(file.read_text(encoding="utf-8"))


def write_pending(folder: Path, notes: dict[str, dict[str, str]]) -> None:
    """Write what is pending; no file if nothing is."""
    file = folder / "pending.json"
    if not notes:
        file.unlink(missing_ok=True)
        return
    text = json.dumps(notes, indent=0, sort_keys=True, ensure_ascii=False) + "\n"
    _write_text(file, text)


def seal(record: dict[str, Any]) -> dict[str, Any]:
    """The record in plain JSON values with its ``check``; refuse what is no record."""
    record = plain(jsonable({k: v for k, v in record.items() if k != "check"}))
    missing = [name for name in ("key", *REQUIRED) if name not in record]
    if missing:
        raise StoreError(f"the record lacks {', '.join(missing)}")
    if type(record["seed"]) is not int:
        raise StoreError(f"seed must be an integer, not {record['seed']!r}")
    if record["key"] != key_of(record):
        raise StoreError(
            f"the key {record['key']} is not the hash of what the record says was "
            f"asked for, {key_of(record)}"
        )
    return record | {"check": digest(record)}


def key_of(record: dict[str, Any]) -> str:
    """Hash of what was asked for: of those fields of a record that are its spec."""
    return digest({name: record[name] for name in SPEC if name in record})


def plain(value: Any) -> Any:
    """A JSON value as records hold it: floats with 6 digits, and None for nan."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.6g}")
    return value


def jsonable(value: Any) -> Any:
    """A value in JSON's types: arrays and tuples as lists, numpy's numbers as Python's.

    What JSON has no type for is refused, before a long run ends on it.
    """
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"a record cannot hold {value!r} of type {type(value).__name__}: "
        "use numbers, texts, lists, dicts, arrays"
    )


def table_files(path: Path) -> Iterator[Path]:
    """The files of a table that exist: table.json, table.2.json, ..."""
    if path.exists():
        yield path
    number = 2
    while (further := path.with_suffix(f".{number}.json")).exists():
        yield further
        number += 1


def _read_file(path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreError(
            f"{path} is not JSON ({error}): restore it from git, or delete it to run "
            "again"
        ) from error
    if not isinstance(records, list):
        raise StoreError(f"{path} should be a list of records")
    for number, record in enumerate(records):
        _check_record(record, f"{path}: record {number}")
    return records


def _check_record(record: Any, where: str) -> None:
    if not isinstance(record, dict):
        raise StoreError(f"{where} is not a record")
    body = {k: v for k, v in record.items() if k != "check"}
    name = f"{where} (key {record.get('key')}, method {record.get('method')})"
    advice = "restore the file from git, or delete that record to run it again"
    if record.get("check") != digest(body):
        raise StoreError(f"{name} was altered or damaged: {advice}")
    if record.get("schema") != SCHEMA:
        raise StoreError(
            f"{name} has schema {record.get('schema', 1)}, this version reads "
            f"{SCHEMA}: python -m fednb.migrate brings records along"
        )
    if record.get("key") != key_of(record):
        raise StoreError(f"{name}: the key is not that of its spec: {advice}")


def write_table(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write the records into as many files as they need, and remove further ones."""
    newest = {record["key"]: record for record in records}
    order = ("method", "dataset", "partition", "seed", "key")
    ordered = sorted(newest.values(), key=lambda r: tuple(r[name] for name in order))
    files: list[list[str]] = [[]]
    size = 0
    for record in ordered:
        line = json.dumps(record, sort_keys=True, allow_nan=False)
        if files[-1] and size + len(line) + 2 > MAX_BYTES - 4:
            files.append([])
            size = 0
        files[-1].append(line)
        size += len(line) + 2
    old = list(table_files(path))
    new = [path] + [path.with_suffix(f".{i}.json") for i in range(2, len(files) + 1)]
    # Records move to later files as a table grows, so these are written first: a kill
    # in between leaves a record in two files, never in none.
    for file, lines in reversed(list(zip(new, files, strict=True))):
        text = "[\n" + ",\n".join(lines) + "\n]\n"
        _write_text(file, text)
    for file in set(old) - set(new):
        file.unlink()


# --- runs of a sweep ----------------------------------------------------------------


def runs_folder(path: str | Path) -> Path:
    """Where the runs of a table lie while it is being made."""
    return Path(path).with_suffix(".runs")


def write_run(folder: Path, record: dict[str, Any]) -> None:
    """Write one finished run into its own file."""
    record = seal(record)
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{record['key']}.json"
    _write_text(file, text)


def read_run(folder: Path, key: str) -> dict[str, Any] | None:
    """The record of a finished run; None if there is none, or it is damaged."""
    file = folder / f"{key}.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        _check_record(record, str(file))
    except (OSError, ValueError):
        return None
    return record


def finished(path: str | Path) -> dict[str, dict[str, Any]]:
    """All records of a table by key: those in its file, and runs not yet collected."""
    records = read(path)
    folder = runs_folder(path)
    if folder.is_dir():
        for file in folder.glob("*.json"):
            record = read_run(folder, file.stem)
            if record is not None:
                records.append(record)
    return {record["key"]: record for record in records}


def beat(folder: Path, key: str, rounds: int) -> None:
    """Note down how many rounds a run has done; it need not succeed."""
    with contextlib.suppress(OSError):
        (folder / f"{key}.round").write_text(str(rounds))


def heartbeat(folder: Path, key: str) -> tuple[int, float] | None:
    """(rounds done, seconds since that was noted) of a run; None if not running."""
    file = folder / f"{key}.round"
    try:
        return int(file.read_text() or 0), time.time() - file.stat().st_mtime
    except (OSError, ValueError):
        return None


def is_under_way(folder: Path, key: str) -> bool:
    """Whether a process that is alive seems to be doing this run right now."""
    beat = heartbeat(folder, key)
    return beat is not None and beat[1] < FRESH


def forget(folder: Path, key: str) -> None:
    """Remove a run's checkpoint and heartbeat."""
    for ending in ("npz", "round"):
        with contextlib.suppress(OSError):
            (folder / f"{key}.{ending}").unlink()


def _finished(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*.json")):
        record = read_run(folder, file.stem)
        if record is None:
            os.replace(file, file.with_suffix(".json.damaged"))
        else:
            yield record


def _tidy(folder: Path) -> None:
    """Remove what dead processes left behind, and the folder if nothing is in it."""
    for file in folder.glob("*.round"):
        if not is_under_way(folder, file.stem):
            file.unlink(missing_ok=True)
    clean_temporary(folder)
    clean_temporary(folder.parent)
    with contextlib.suppress(OSError):
        folder.rmdir()


# --- writing ------------------------------------------------------------------------


def _write_text(path: Path, text: str) -> None:
    atomically(path, lambda out: out.write(text.encode()))


def atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a temporary file beside ``path`` and put it in its place.

    A reader, or a kill, never sees half a file. A symbolic link stays one: the file
    that it points to is replaced.
    """
    path = path.resolve()
    prefix = f".{path.name}.{_host()}-{os.getpid()}."
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def clean_temporary(folder: Path) -> None:
    """Remove temporary files of writers that were killed: no process has their number.

    Those of other machines are removed when they are a day old.
    """
    for file in folder.glob(".*.tmp"):
        host, _, pid = file.name.removesuffix(".tmp").rsplit(".", 2)[1].rpartition("-")
        with contextlib.suppress(OSError, ValueError):
            mine = host == _host()
            old = time.time() - file.stat().st_mtime > 86_400
            if old or (mine and not _alive(int(pid))):
                file.unlink()


def _host() -> str:
    return socket.gethostname().replace(".", "_").replace("-", "_") or "host"


def _alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # there is no harmless way to ask
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's process
    return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, so that two sweeps do not collect at the same moment.

    The lock is on the folder itself and leaves no file behind. Where the system has no
    such locks, collect from one process at a time.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# --- checkpoints --------------------------------------------------------------------


def save_checkpoint(path: str | Path, meta: dict[str, Any], **trees: Any) -> None:
    """Save JSON ``meta`` and trees of tensors, arrays, numbers, tuples and dicts."""
    arrays: dict[str, Any] = {}
    specs = {name: _pack(tree, name, arrays) for name, tree in trees.items()}
    text = json.dumps({"meta": meta, "specs": specs})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    atomically(
        Path(path), lambda file: np.savez(file, __json__=np.array(text), **arrays)
    )


def load_checkpoint(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (meta, trees) as saved."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        head = json.loads(str(arrays.pop("__json__")))
        trees = {name: _unpack(spec, arrays) for name, spec in head["specs"].items()}
        return head["meta"], trees
    except Exception as error:
        raise StoreError(
            f"{path} is not a checkpoint that can be read ({error}): delete it to "
            "start afresh"
        ) from error


def _pack(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, Tensor):
        arrays[name] = value.detach().cpu().numpy()
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, dict):
        pairs = [
            [_pack(k, f"{name}.k{i}", arrays), _pack(v, f"{name}.{i}", arrays)]
            for i, (k, v) in enumerate(value.items())
        ]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [_pack(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]
        if isinstance(value, list):
            return {"list": items}
        if hasattr(value, "_fields"):
            kind = type(value)
            return {"named": [kind.__module__, kind.__qualname__, items]}
        return {"tuple": items}
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    raise TypeError(
        f"a checkpoint cannot hold {name} of type {type(value).__name__}: "
        "use tensors, numbers, tuples"
    )


def _unpack(spec: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    ((kind, value),) = spec.items()
    match kind:
        case "tensor":
            return torch.from_numpy(arrays[value])
        case "array":
            return arrays[value]
        case "dict":
            return {_unpack(k, arrays): _unpack(v, arrays) for k, v in value}
        case "list":
            return [_unpack(v, arrays) for v in value]
        case "tuple":
            return tuple(_unpack(v, arrays) for v in value)
        case "named":
            module, name, items = value
            return _named_tuple(module, name)(*(_unpack(v, arrays) for v in items))
    return value


def _named_tuple(module: str, name: str) -> Callable[..., Any]:
    """A NamedTuple class that is loaded already: nothing is imported for a file."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple)):
        raise StoreError(f"no tuple class {module}.{name} is loaded: import it first")
    return found
