"""Results on disk: run records as JSON, checkpoints as npz. Both are written whole or not at all.

A table of the book is one JSON file, a list of records. Each record carries ``key``, a hash of what was asked for
(so that a sweep knows what is done already), and ``check``, a hash of the whole record (so that damage is noticed).
Checkpoints hold arrays and JSON only: nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

REQUIRED = (
    *(
        "method",
        "dataset",
        "data_sha256",
        "partition",
        "seed",
        "rounds",
        "profile",
        "version",
        "commit",
    ),
    *("machine", "seconds", "client_updates", "bytes", "metrics"),
)
MAX_BYTES = 500_000  # a results file is committed and shipped with the book


class StoreError(ValueError):
    """A file of records or a checkpoint is damaged, or belongs to something else."""


def digest(value: Any) -> str:
    """Hash of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, allow_nan=False).encode()
    ).hexdigest()[:16]


def read(path: str | Path) -> list[dict[str, Any]]:
    """Read the records of a file; none if it does not exist. A damaged record is named."""
    path = Path(path)
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text())
    except ValueError as error:
        raise StoreError(
            f"{path} is not JSON ({error}): restore it from git, or delete it to run again"
        ) from error
    if not isinstance(records, list):
        raise StoreError(f"{path} should be a list of records")
    for number, record in enumerate(records):
        body = {k: v for k, v in record.items() if k != "check"}
        if record.get("check") != digest(body):
            raise StoreError(
                f"{path}: record {number} (key {record.get('key')}, method {record.get('method')}) was altered or "
                "damaged: restore the file from git, or delete that record to run it again"
            )
    return records


def append(path: str | Path, record: dict[str, Any]) -> None:
    """Add a record to a file, once: a record with the same key takes the place of the old one."""
    path = Path(path)
    missing = [name for name in ("key", *REQUIRED) if name not in record]
    if missing:
        raise StoreError(f"the record lacks {', '.join(missing)}")
    if type(record["seed"]) is not int:
        raise StoreError(f"seed must be an integer, not {record['seed']!r}")
    record = plain({k: v for k, v in record.items() if k != "check"})
    record["check"] = digest(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = (
        Path(tempfile.gettempdir()) / f"fednb-{digest(str(path.resolve()))}.lock"
    )  # stays: who waits holds it open
    with FileLock(lock):
        records = [old for old in read(path) if old["key"] != record["key"]] + [record]
        records.sort(
            key=lambda r: (
                r["method"],
                r["dataset"],
                r["partition"],
                r["seed"],
                r["key"],
            )
        )
        text = (
            "[\n"
            + ",\n".join(
                json.dumps(r, sort_keys=True, allow_nan=False) for r in records
            )
            + "\n]\n"
        )
        if len(text) > MAX_BYTES:
            raise StoreError(
                f"{path} would grow to {len(text)} bytes, over {MAX_BYTES}: keep fewer curves per record"
            )
        atomically(path, lambda file: file.write(text.encode()))


def plain(value: Any) -> Any:
    """A value as JSON can hold it: nan becomes None, floats keep 6 digits, numpy numbers are unwrapped."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a temporary file beside ``path`` and put it in its place: a reader, or a kill, never sees half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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


# --- checkpoints -----------------------------------------------------------------------------------------------------


def save_checkpoint(path: str | Path, meta: dict[str, Any], **trees: Any) -> None:
    """Save JSON ``meta`` and trees of tensors, arrays, numbers, tuples and dicts in one npz file."""
    arrays: dict[str, np.ndarray] = {}
    specs = {name: _pack(tree, name, arrays) for name, tree in trees.items()}
    text = json.dumps({"meta": meta, "specs": specs})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    atomically(
        Path(path), lambda file: np.savez(file, __json__=np.array(text), **arrays)
    )


def load_checkpoint(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (meta, trees) as saved; a NamedTuple comes back as a tuple."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        head = json.loads(str(arrays.pop("__json__")))
    except Exception as error:
        raise StoreError(
            f"{path} is not a checkpoint that can be read ({error}): delete it to start afresh"
        ) from error
    return head["meta"], {
        name: _unpack(spec, arrays) for name, spec in head["specs"].items()
    }


def _pack(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        arrays[name] = (
            value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        )
        return {"tensor" if isinstance(value, Tensor) else "array": name}
    if isinstance(value, dict):
        return {"dict": {k: _pack(v, f"{name}.{k}", arrays) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_pack(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    raise TypeError(
        f"a checkpoint cannot hold {name} of type {type(value).__name__}: use tensors, numbers, tuples"
    )


def _unpack(spec: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    ((kind, value),) = spec.items()
    match kind:
        case "tensor":
            return torch.from_numpy(arrays[value])
        case "array":
            return arrays[value]
        case "dict":
            return {k: _unpack(v, arrays) for k, v in value.items()}
        case "list":
            return [_unpack(v, arrays) for v in value]
        case "tuple":
            return tuple(_unpack(v, arrays) for v in value)
    return value
