"""Official: named data sets from an npz, from the cache, or by a download."""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from .. import checks
from ..models import torchvision
from .catalogue import FINGERPRINTS, OFFICIAL, PARTS, SHA256, names
from .dataset import Dataset, compute_fingerprint

KEYS = ("train_images", "train_labels", "test_images", "test_labels")
LARGEST_FILE = 2**31  # bytes; no npz of these sets comes near it
WORTH_SHARING = 2**24  # bytes of pixels from which on processes share a mapped file


def load_official(name: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load `digits` or one of `OFFICIAL`."""
    if name == "digits":
        return _digits()
    if name not in OFFICIAL:
        hint = ""
        for close in difflib.get_close_matches(name, names(), n=1):
            hint = f" Did you mean {close!r}?"
        raise ValueError(
            f"unknown data set {name!r}.{hint} Known: {', '.join(names())}"
        )
    trust = _accepts_unverified()
    path = _find_file(name, data_folder(root))
    if path is not None:
        return _from_file(name, path, path.stat().st_mtime_ns, trust)
    cache = cache_folder()
    try:
        dataset = _from_package(name, cache)
    except Exception as error:  # whatever a package or the network may raise
        raise FileNotFoundError(
            _not_found(name, data_folder(root), cache, error)
        ) from error
    wrong = _unlike_official(dataset)
    if wrong and not trust:
        source = OFFICIAL[name]
        raise ValueError(
            f"{source.package}'s files of {source.cls} in {cache} do not hold {name}: "
            f"{wrong}. Delete them, and they are fetched again, or set "
            f"FEDNB_UNVERIFIED=1 to accept them as they are"
        )
    return dataset


def at_hand() -> list[str]:
    """Name the data sets that `load` finds without a network: digits, and npz files."""
    folder = data_folder(None)
    found = [name for name in OFFICIAL if _find_file(name, folder) is not None]
    return ["digits", *found]


FOLDER = checks.optional(
    checks.Rule(lambda value: isinstance(value, str | os.PathLike), "a folder")
)


def data_folder(root: str | os.PathLike | None) -> Path | None:
    """Return `root`, else the folder that FEDNB_DATA names, else None."""
    folder = root or os.environ.get("FEDNB_DATA")
    if not folder:
        return None
    return Path(folder).expanduser()


def cache_folder() -> Path:
    """Return the folder of downloads and of mapped pixels."""
    return Path(os.environ.get("FEDNB_CACHE") or "~/.cache/fednb").expanduser()


def _files(name: str) -> list[str]:
    """List the files that may hold a data set, the whole before a part of it."""
    files = [f"{name}.npz"]
    if name in PARTS:
        files.append(PARTS[name].file)
    return files


def _find_file(name: str, folder: Path | None) -> Path | None:
    """Find the npz of a data set, None if there is none."""
    if folder is None:
        return None
    for file in _files(name):
        if (folder / file).is_file():
            return folder / file
    return None


def _not_found(name: str, folder: Path | None, cache: Path, error: Exception) -> str:
    """Say what was looked for, where, and what to do."""
    source = OFFICIAL[name]
    files = _files(name)
    why = str(error).strip().partition("\n")[0]
    return (
        f"the data set {name!r} was not found. Looked for\n"
        f"- {' or '.join(files)} in "
        f"{folder or 'no folder: neither root nor FEDNB_DATA is set'}\n"
        f"- {source.package}'s files of {source.cls} in {cache} "
        f"(set FEDNB_CACHE for another folder)\n"
        f"- a download through {source.package}: {type(error).__name__}: {why}\n"
        f"Set FEDNB_DATA to a folder that holds {files[0]} "
        f"(arrays {', '.join(KEYS)}), or try again with a network connection. "
        f"load('digits') needs neither."
    )


def _accepts_unverified() -> bool:
    """Read the switch FEDNB_UNVERIFIED; a word that is not yes or no is an error."""
    word = os.environ.get("FEDNB_UNVERIFIED", "").strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("", "0", "false", "no", "off"):
        return False
    raise ValueError(
        f"FEDNB_UNVERIFIED={word!r}: need 1, true, yes or on to accept files that "
        f"cannot be verified, and 0, false, no, off or nothing to refuse them"
    )


@lru_cache(maxsize=1)
def _digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits, 8 x 8.

    80 % of them are for training, by a fixed stratified split.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    raw = load_digits()
    x = np.rint(raw.images * (255 / 16)).astype(np.uint8)
    train, test = train_test_split(
        np.arange(len(x)), test_size=0.2, stratify=raw.target, random_state=0
    )
    return _dataset(
        "digits", 10, x[train], raw.target[train], x[test], raw.target[test]
    )


@lru_cache(maxsize=3)
def _from_file(name: str, path: Path, stamp: int, trust: bool) -> Dataset:
    """Read and verify an npz.

    Its time of change, `stamp`, makes the cache notice a new file. The file is read
    once: what is verified is what is used.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{path} is larger than any npz of {name}: it is another file")
    found = hashlib.sha256(content).hexdigest()
    known = SHA256.get(path.name, ())
    if known and found not in known and not trust:
        raise ValueError(
            f"{path} has sha256 {found}, expected {' or '.join(known)}: it is damaged "
            f"or another file. Fetch it again, or set FEDNB_UNVERIFIED=1 to accept it "
            f"as it is"
        )
    headers = _members(path, content, _read_header)
    _check_headers(name, path, headers)
    notes = _notes_of_file(name, path, headers[0].shape[0], headers[2].shape[0])
    if found not in known:
        notes.append("unverified")

    def unpack() -> Dataset:
        arrays = _members(path, content, _read_array)
        return _dataset(name, OFFICIAL[name].classes, *arrays, sha256=found)

    short = found[:16]
    if math.prod(headers[0].shape) < WORTH_SHARING or short not in FINGERPRINTS:
        dataset = unpack()
    else:
        mapped = cache_folder() / "pixels" / f"{name}_{short}.npy"
        dataset = _shared(mapped, unpack, FINGERPRINTS[short])
    return replace(dataset, note=", ".join(notes))


def _members(path: Path, content: bytes, read: Callable[[IO[bytes]], Any]) -> list:
    """Apply `read` to each of the four arrays inside an npz, in the order of KEYS."""
    results = []
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for key in KEYS:
                with archive.open(f"{key}.npy") as member:
                    results.append(read(member))
    except Exception as error:  # zip, LZMA, header, missing key: not such a file
        raise ValueError(
            f"{path} is not an npz with {', '.join(KEYS)}: {error}"
        ) from error
    return results


class Header(NamedTuple):
    """What an npy file says of its array before the numbers come."""

    shape: tuple[int, ...]
    dtype: np.dtype


def _read_header(member: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(member)
    if version != (1, 0):  # later ones allow headers of 4 GB
        raise ValueError(f"npy format {version}, expected (1, 0)")
    shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    return Header(shape, dtype)


def _read_array(member: IO[bytes]) -> np.ndarray:
    return np.lib.format.read_array(member, allow_pickle=False)


def _check_headers(name: str, path: Path, headers: list[Header]) -> None:
    """Refuse arrays of another form or size before they are decompressed."""
    for images, labels in (headers[:2], headers[2:]):
        _check_form(name, images, labels)
    found = sum(math.prod(shape) * dtype.itemsize for shape, dtype in headers)
    official = OFFICIAL[name]
    expected = (official.train + official.test) * official.pixels
    if found > 2 * expected:
        raise ValueError(
            f"{path} would take {found / 1e9:.2f} GB of memory, the whole of {name} "
            f"takes {expected / 1e9:.2f} GB: it is another file"
        )


def _notes_of_file(name: str, path: Path, train: int, test: int) -> list[str]:
    """Say what a file with so many training and test images lacks."""
    official = OFFICIAL[name]
    if name in PARTS and path.name == PARTS[name].file:
        note = PARTS[name].note.format(
            images=train + test,
            official=official.train + official.test,
            train=train,
            test=test,
        )
        return [note]
    return _missing(name, train, test)


def _missing(name: str, train: int, test: int) -> list[str]:
    """Say what so many training and test images lack of the official set."""
    official = OFFICIAL[name]
    notes = counts_in_words((train, test), (official.train, official.test))
    if official.note:
        notes.insert(0, official.note)
    return notes


def _shared(path: Path, unpack: Callable[[], Dataset], check: str) -> Dataset:
    """A data set whose pixels are mapped from `path`, which is written if need be.

    Beside it a JSON file holds the rest: labels and numbers. `check` is the data set's
    fingerprint: files that are damaged, or forged, are written anew. Where nothing can
    be written the data set stays in memory.
    """
    from filelock import FileLock

    dataset = _map(path, check)
    if dataset is not None:
        return dataset
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            dataset = _map(path, check)  # another process may have written it
            if dataset is None:
                made = unpack()
                if compute_fingerprint(made) != check:  # moments rounded in another way
                    return made
                _write_mapped(path, made)
                dataset = _map(path, check)
    except OSError:  # a read-only cache, or no room
        pass
    return dataset or unpack()


def _map(path: Path, check: str) -> Dataset | None:
    """The data set in `path` and its JSON file; None if its fingerprint is another."""
    try:
        x = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        facts = json.loads(path.with_suffix(".json").read_text())
        for name in ("mean", "std"):
            facts[name] = tuple(facts[name])
        y = np.array(facts.pop("y"), dtype=np.int64)
        y.setflags(write=False)
        dataset = Dataset(x=x, y=y, **facts)
        if compute_fingerprint(dataset) == check:
            return dataset
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return None


def _write_mapped(path: Path, dataset: Dataset) -> None:
    """Write what `_map` reads; `path` itself appears when everything is done."""
    facts = vars(dataset) | {"y": dataset.y.tolist()}
    del facts["x"]
    path.with_suffix(".json").write_text(json.dumps(facts))
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.save(file, dataset.x)
    os.replace(part, path)


@lru_cache(maxsize=3)
def _from_package(name: str, cache: Path) -> Dataset:
    """Let torchvision find the files of a data set in `cache`, or download them.

    torchvision verifies what it downloads, but not the files of MNIST, Fashion-MNIST
    and EMNIST that it finds. `_unlike_official` tells whether the arrays are wrong; the
    note says "unverified" if that cannot be known.
    """
    official = OFFICIAL[name]
    cache.mkdir(parents=True, exist_ok=True)
    if official.url:
        arrays = _fetch_npz(name, cache)
    else:
        arrays = _fetch_by_class(name, cache)
    if official.cls == "EMNIST":  # the official files hold every image transposed
        arrays[::2] = [images.swapaxes(1, 2) for images in arrays[::2]]
    dataset = _dataset(name, official.classes, *arrays)
    if dataset.x.nbytes >= WORTH_SHARING:
        file = f"{name}_{dataset.sha256[:16]}.npy"
        check = compute_fingerprint(dataset)
        dataset = _shared(cache / "pixels" / file, lambda: dataset, check)
    notes = _missing(name, train=len(arrays[0]), test=len(arrays[2]))
    verifiable = official.arrays or official.checked
    if not verifiable or _unlike_official(dataset):
        notes.append("unverified")
    return replace(dataset, note=", ".join(notes))


def _fetch_by_class(name: str, cache: Path) -> list[np.ndarray]:
    """The four arrays of a data set for which torchvision has a class."""
    official = OFFICIAL[name]
    make = getattr(torchvision().datasets, official.cls)
    options = {}
    if official.split:
        options["split"] = official.split
    arrays = []
    for train in (True, False):
        part = make(str(cache), train=train, download=True, **options)
        arrays += [np.asarray(part.data), np.asarray(part.targets)]
    return arrays


def _fetch_npz(name: str, cache: Path) -> list[np.ndarray]:
    """The four arrays of an npz on the network, fetched unless `cache` has it."""
    official = OFFICIAL[name]
    path = cache / f"{name}.npz"
    fetch = torchvision().datasets.utils.download_url
    fetch(official.url, str(cache), filename=path.name, md5=official.md5)
    return _members(path, path.read_bytes(), _read_array)


@lru_cache(maxsize=3)
def _unlike_official(dataset: Dataset) -> str:
    """Say how a package's arrays differ from the official set, "" if they do not."""
    official = OFFICIAL[dataset.name]
    y_train = dataset.y[: dataset.n_train]
    y_test = dataset.y[dataset.n_train :]
    short = counts_in_words(
        (len(y_train), len(y_test)), (official.train, official.test)
    )
    if short:
        return ", ".join(short)
    for kind, y in (("training", y_train), ("test", y_test)):
        classes = len(np.unique(y))
        if classes < official.classes:
            return f"{classes} of {official.classes} classes in the {kind} images"
    if official.arrays and dataset.sha256 != official.arrays:
        return f"the arrays have sha256 {dataset.sha256}, expected {official.arrays}"
    return ""


def _dataset(
    name, classes, x_train, y_train, x_test, y_test, *, sha256="", note=""
) -> Dataset:
    """Check, join and freeze the four arrays."""
    for x, y in ((x_train, y_train), (x_test, y_test)):
        _check_form(name, x, y)
        if y.min() < 0 or y.max() >= classes:
            raise ValueError(
                f"{name}: labels from {y.min()} to {y.max()}, "
                f"expected 0 to {classes - 1}"
            )
    x = np.concatenate([x_train, x_test])
    if x.ndim == 3:  # grey images
        x = x[:, None]
    else:
        x = x.transpose(0, 3, 1, 2)
    x = np.ascontiguousarray(x)  # (N, C, H, W)
    y = np.concatenate([y_train.ravel(), y_test.ravel()]).astype(np.int64)
    x.setflags(write=False)
    y.setflags(write=False)
    if not sha256:
        sha256 = hashlib.sha256(x.tobytes() + y.astype("<i8").tobytes()).hexdigest()
    mean, std = moments(x[: len(x_train)])
    return Dataset(
        name=name,
        x=x,
        y=y,
        n_train=len(x_train),
        classes=classes,
        sha256=sha256,
        note=note,
        mean=mean,
        std=std,
    )


def _check_form(
    name: str, images: Header | np.ndarray, labels: Header | np.ndarray
) -> None:
    """Check shape and type of images and their labels, given arrays or headers."""
    shape = images.shape
    grey = len(shape) == 3
    colour = len(shape) == 4 and shape[3] == 3
    is_image = images.dtype == np.uint8 and (grey or colour) and min(shape) > 0
    is_label = labels.dtype.kind in "iu" and math.prod(labels.shape) in shape[:1]
    if not (is_image and is_label):
        raise ValueError(
            f"{name}: {images.dtype} images {shape} with {labels.dtype} labels "
            f"{labels.shape}; need uint8 (N, H, W) or (N, H, W, 3) with N integers"
        )


def counts_in_words(have: Iterable[int], full: Iterable[int]) -> list[str]:
    """Say whether training and test images are fewer, or more, than the official."""
    notes = []
    for n, official, kind in zip(have, full, ("training", "test"), strict=True):
        if n != official:
            notes.append(f"{n:,} of {official:,} {kind} images")
    return notes


def moments(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of (N, C, H, W) uint8.

    In units of [0, 1], by exact sums of integers.
    """
    n = x.size / x.shape[1]
    first = x.sum(axis=(0, 2, 3), dtype=np.uint64) / n
    second = np.einsum("nchw,nchw->c", x, x, dtype=np.uint64, casting="unsafe") / n
    variance = np.maximum(second - first**2, 0)
    mean = first / 255
    std = np.sqrt(variance) / 255
    return tuple(mean.tolist()), tuple(std.tolist())
