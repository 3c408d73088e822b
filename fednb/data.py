"""Named data sets as arrays, and where they are looked for.

`load(name)` tries, in this order: `<name>.npz` in the folder `root` or `$FEDNB_DATA`;
torchvision's (for the medical sets, MedMNIST's) files in `$FEDNB_CACHE` or
`~/.cache/fednb`; a download into that cache, which needs `fednb[papers]`. If a set
cannot be found, a FileNotFoundError says what was looked for, where, and what to do.
`digits` is embedded in scikit-learn and needs neither file nor network.

An npz holds `train_images`, `train_labels`, `test_images`, `test_labels`: uint8 images,
N x H x W (grey) or N x H x W x 3. Contents are verified: an npz by the checksum of the
file, what a package reads by the number of images and, where it is known, the checksum
of the arrays. A wrong file is refused unless `FEDNB_UNVERIFIED=1` accepts it. Whatever
makes a set less than the official one, "unverified" included, stands in its `note`, to
be shown beside every result.

Two large federations of users and their photographs, `landmarks` and `inaturalist`,
come as lists and folders of images: `published` says which files go where, and
`as_published` is the law that deals them.

The pixels of a large set are unpacked once, into `pixels` in the cache, and mapped from
there: all processes of a sweep share one copy in memory.

Data that are drawn rather than found come with their clients, for each client has a law
of its own: `regression`, `synthetic`, `domains` and `shifted` give a Dataset and a
Partition. Written as a call in a text, `load("synthetic(alpha=1, beta=1, seed=3)")`,
they are data sets like any other, and `as_generated` is the law that deals them.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from . import checks
from .models import torchvision
from .partition import Partition, by_user, match_test, mixed

KEYS = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, the official training rows first; the arrays are read-only.

    `mean` and `std` are those of the training images per channel, pixels counted from 0
    to 1.
    """

    name: str
    x: np.ndarray = field(repr=False)  # (N, C, H, W) uint8, or real numbers
    y: np.ndarray = field(repr=False)  # (N,) int64; real numbers for a regression
    n_train: int  # rows [0, n_train) are for training, the others for the official test
    classes: int  # 0 for a regression
    sha256: str = ""  # of the npz file; without one, of the bytes of x and y
    note: str = ""  # what differs from the official set, "" if nothing
    mean: tuple[float, ...] | None = None  # (C,); None: x is used as it is
    std: tuple[float, ...] | None = None  # (C,)


def fingerprint(dataset: Dataset) -> str:
    """Return the sha256 of what a run takes from a data set, whatever its name.

    That is x and y (values, shapes, types), the number of training rows and classes,
    mean and std. Two data sets with one fingerprint give the same runs. The last few
    fingerprints of data sets with read-only arrays are remembered.
    """
    if _is_frozen(dataset.x) and _is_frozen(dataset.y):
        return _remembered_fingerprint(dataset)
    return _fingerprint(dataset)


def _is_frozen(array: Any) -> bool:
    return isinstance(array, np.ndarray) and not array.flags.writeable


def _fingerprint(dataset: Dataset) -> str:
    total = hashlib.sha256()
    for name in ("x", "y"):
        array = np.asarray(getattr(dataset, name))
        if array.dtype.hasobject:
            raise ValueError(f"{name} holds Python objects: give an array of numbers")
        total.update(f"{name} {array.shape} {array.dtype.str}\n".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    total.update(f"{int(dataset.n_train)} {int(dataset.classes)}\n".encode())
    for values in (dataset.mean, dataset.std):
        if values is not None:
            values = np.asarray(values, np.float64).tolist()
        total.update(f"{values}\n".encode())
    return total.hexdigest()


_remembered_fingerprint = lru_cache(maxsize=4)(_fingerprint)  # a Dataset is its own key


def from_arrays(
    x: Any,
    y: Any,
    *,
    name: str = "own",
    n_train: int | None = None,
    classes: int | None = None,
) -> Dataset:
    """Make a data set of your own samples: arrays, tensors or columns of a table.

    Labels may be integers from 0, or words, which are numbered in sorted order (the
    note tells which is which). Real numbers as labels make a regression only if
    ``classes=0`` says so. Inputs reach the network as real numbers: a network that
    embeds token ids calls ``x.long()`` first. ``n_train`` is how many rows, from the
    first on, are dealt to clients; the others stay with the server.
    """
    checks.argument("from_arrays", "n_train", n_train, checks.optional(_COUNT))
    checks.argument("from_arrays", "classes", classes, checks.optional(_COUNT))
    inputs = _own_inputs(x)
    labels, note = _own_labels(y, regression=classes == 0)
    if len(inputs) != len(labels) or len(inputs) == 0:
        raise ValueError(
            f"from_arrays: {len(inputs)} rows of x, {len(labels)} of y: need as many, "
            "and at least one"
        )
    if classes is None:
        classes = int(labels.max()) + 1
    if n_train is None:
        n_train = len(inputs)
    if not 1 <= n_train <= len(inputs):
        raise ValueError(
            f"from_arrays(n_train={n_train}): there are {len(inputs)} rows"
        )
    inputs.setflags(write=False)
    labels.setflags(write=False)
    made = Dataset(name, inputs, labels, n_train=n_train, classes=classes, note=note)
    return replace(made, sha256=fingerprint(made))


_COUNT = checks.integer(0)


def _plain_array(values: Any) -> np.ndarray:
    """A copy of an array, a tensor or a table as an array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.array(values)


def _own_inputs(x: Any) -> np.ndarray:
    found = _plain_array(x)
    if found.dtype == object or found.dtype.kind not in "biuf" or found.ndim < 2:
        raise ValueError(
            f"from_arrays: x has type {found.dtype} and shape {found.shape}: need "
            "numbers, one row per sample; turn words into columns first "
            "(pandas.get_dummies)"
        )
    if found.dtype == np.float64:
        return found.astype(np.float32)
    return found


def _own_labels(y: Any, regression: bool) -> tuple[np.ndarray, str]:
    """Labels as int64 from 0 (real numbers for a regression), and a note on names."""
    found = _plain_array(y)
    if found.ndim != 1:
        raise ValueError(f"from_arrays: y has shape {found.shape}: need one per row")
    if found.dtype == object:
        gaps = {"None", "nan", "NaT", "<NA>"}
        missing = sum(not isinstance(v, str) and str(v) in gaps for v in found)
        if missing:
            raise ValueError(
                f"from_arrays: {missing} of {len(found)} labels are missing: drop "
                "these rows first (pandas: table.dropna())"
            )
        found = found.astype(str)
    if found.dtype.kind in "US":
        names, numbers = np.unique(found.astype(str), return_inverse=True)
        words = ", ".join(f"{i} = {name}" for i, name in enumerate(names[:20]))
        return numbers.astype(np.int64), f"classes: {words}"
    if found.dtype.kind == "f" and not regression:
        raise ValueError(
            f"from_arrays: y has type {found.dtype}: need integers or words for "
            "classes, or classes=0 for a regression"
        )
    if found.dtype.kind not in "biuf":
        raise ValueError(f"from_arrays: y has type {found.dtype}: need labels")
    if regression:
        return found.astype(np.float32), ""
    return found.astype(np.int64), ""


class Official(NamedTuple):
    """The published form of a data set."""

    package: str  # whose files they are
    cls: str  # what the package calls it
    classes: int
    train: int  # images
    test: int
    pixels: int  # numbers per image
    split: str = ""  # which of several, where the package asks
    note: str = ""  # what its name promises and it lacks
    arrays: str = ""  # `Dataset.sha256` as a package must give it, "" if unknown
    checked: bool = False  # whether the files are verified at each reading
    url: str = ""  # of an npz, where no class of torchvision fetches the set
    md5: str = ""  # of that npz


OFFICIAL = {
    "mnist": Official(
        package="torchvision",
        cls="MNIST",
        classes=10,
        train=60_000,
        test=10_000,
        pixels=28 * 28,
        arrays="b3fe36794a3a345d09632e9d79f122d61ca91a07e5a22f8536973655bacf2a78",
    ),
    "fashion_mnist": Official(
        package="torchvision",
        cls="FashionMNIST",
        classes=10,
        train=60_000,
        test=10_000,
        pixels=28 * 28,
        arrays="75979490032625d6583ff7101de6f9243d07d0a8d33d3c9b3b7e79b4c59382af",
    ),
    "cifar10": Official(
        package="torchvision",
        cls="CIFAR10",
        classes=10,
        train=50_000,
        test=10_000,
        pixels=32 * 32 * 3,
        arrays="88cb2239d6faefc5313a1d8af7f0e1a122be82a5a0930f0bea3314cf9c3f44ca",
        checked=True,
    ),
    "cifar100": Official(
        package="torchvision",
        cls="CIFAR100",
        classes=100,
        train=50_000,
        test=10_000,
        pixels=32 * 32 * 3,
        checked=True,
    ),
    "emnist": Official(
        package="torchvision",
        cls="EMNIST",
        classes=47,
        train=112_800,
        test=18_800,
        pixels=28 * 28,
        split="balanced",
    ),
    # LEAF's FEMNIST is these 62 classes grouped by writer. The laws of `partition`, as
    # those of FedGWC, need no writers.
    "femnist": Official(
        package="torchvision",
        cls="EMNIST",
        classes=62,
        train=697_932,
        test=116_323,
        pixels=28 * 28,
        split="byclass",
        note="EMNIST by class, writers unknown",
    ),
    # The 47 classes of FedGWC's FEMNIST: upper- and lower-case letters that look alike
    # are one class.
    "emnist_bymerge": Official(
        package="torchvision",
        cls="EMNIST",
        classes=47,
        train=697_932,
        test=116_323,
        pixels=28 * 28,
        split="bymerge",
    ),
    "pathmnist": Official(
        package="MedMNIST",
        cls="PathMNIST",
        classes=9,
        train=89_996,
        test=7_180,
        pixels=28 * 28 * 3,
        checked=True,
        url="https://zenodo.org/records/10519652/files/pathmnist.npz?download=1",
        md5="a8b06965200029087d5bd730944a56c1",
    ),
    "bloodmnist": Official(
        package="MedMNIST",
        cls="BloodMNIST",
        classes=8,
        train=11_959,
        test=3_421,
        pixels=28 * 28 * 3,
        checked=True,
        url="https://zenodo.org/records/10519652/files/bloodmnist.npz?download=1",
        md5="7053d0359d879ad8a5505303e11de1dc",
    ),
}
LARGEST_FILE = 2**31  # bytes; no npz of these sets comes near it
WORTH_SHARING = 2**24  # bytes of pixels from which on processes share a mapped file
LONGEST_NAME = 1_000  # characters of a data set's name, calls included
FOLDER = checks.optional(
    checks.Rule(lambda value: isinstance(value, str | os.PathLike), "a folder")
)


class Published(NamedTuple):
    """A federation published as lists; the images themselves come from elsewhere."""

    title: str
    source: str  # of the images
    classes: int
    train: int
    test: int


PUBLISHED = {
    "landmarks": Published(
        "Landmarks-User-160k",
        "Google Landmarks Dataset v2 (train)",
        2_028,
        164_172,
        19_526,
    ),
    "inaturalist": Published(
        "iNaturalist-User-120k",
        "iNaturalist 2017 (train_val_images)",
        1_203,
        120_300,
        35_641,
    ),
}
SIDE = 64  # pixels of a published image, unless its name asks for others

SHA256 = {  # file -> its known checksums; a set may come in more than one form
    "mnist.npz": ("d3d5f11dd0fda2ce173728a21686709d330204101b01a9197ae496fab4d4d770",),
    "fashion_mnist.npz": (
        "c9197ee560c9acf230ecbb856df0071d7e7a84d50e98fdbeadf87ab18a2741a5",
    ),
    "cifar10.npz": (
        # 20,000 / 4,000 images, balanced
        "7135f82e74f0669c83c94e4e1d5a634ee860a5f2d839700542c71cc321fa76e2",
        # the whole set
        "0c89ce4dd39e0327752d292c3df4bab0ca2f114787616057ca16d5324c0a4e4e",
    ),
    "cifar100.npz": (
        "b7f73dd9d1673e39155700e874d50c116f66e75eb65e60dd0c7b30f6f358ec1f",
    ),
    "pathmnist.npz": (
        "7089c0cb6942bf34c5f542471ee43db81a610f801e70d8e68df74b1c1f00763c",
    ),
    "bloodmnist_partial.npz": (
        "07c1e2c44ef484fb611ece844fe007cbe6003c5d0ec1a56eb8ca7345d0ab4cbe",
    ),
    "emnist_bymerge_part.npz": (
        "db73a098db55116ec144a7490aaa2dcc515886d5463486a7cc0f9aee409f7fa5",
    ),
}

FINGERPRINTS = {  # first digits of a known file's checksum -> fingerprint of its data
    "d3d5f11dd0fda2ce": (  # MNIST
        "4b28e61ad232bcbe904d03e2fcffe1a9133d6d05566a59c19ee19e5771cf8a05"
    ),
    "c9197ee560c9acf2": (  # Fashion-MNIST
        "825a2727fb94177afe5d2a909d0e5ac2a24dbcbd055b6b27ccdd47b9c0cc6d2a"
    ),
    "7135f82e74f0669c": (  # CIFAR-10, 20,000 / 4,000 images
        "1fd040f7c00c0c62662c8971c2be7fd60a7203c827ac6de7789b59b26a92de72"
    ),
    "0c89ce4dd39e0327": (  # CIFAR-10, the whole set
        "343a8829b5eab1c745810c638f9f0373483dcfaa52b7e153631c222f8674baba"
    ),
    "b7f73dd9d1673e39": (  # CIFAR-100
        "b663d1280401cb9c6b4ca0dc6b71fea06d6e54b14b09106b714e1938cd0c199a"
    ),
    "7089c0cb6942bf34": (  # PathMNIST
        "b340a952a02839bb231f851dbecce0ddaa6a62d464f85aa5c60ec50458e18895"
    ),
    "07c1e2c44ef484fb": (  # BloodMNIST, a part
        "84c68f29b8f1b484e93f16d0e5335e4dfa05f2f36039210e181302e141071bac"
    ),
    "db73a098db55116e": (  # EMNIST by merge, a part
        "00b4a54fa61a79b2d0e84560b11c13d10548489d01fcd600fe78b50fbd4211c7"
    ),
}


class Part(NamedTuple):
    """A file with a part of a data set, used where the whole is not there."""

    file: str
    note: str  # a template: `_notes_of_file` fills in the numbers


PARTS = {
    "bloodmnist": Part(
        file="bloodmnist_partial.npz",
        note="partial: {images:,} of {official:,} images, official split not kept",
    ),
    "emnist_bymerge": Part(
        file="emnist_bymerge_part.npz",
        note="partial: the {images:,} images of the official test part, "
        "re-split at random {train:,} / {test:,}",
    ),
}


def names() -> list[str]:
    """Name the data sets that `load` knows."""
    return ["digits", *OFFICIAL, *PUBLISHED]


def at_hand() -> list[str]:
    """Name the data sets that `load` finds without a network: digits, and npz files."""
    folder = _data_folder(None)
    found = [name for name in OFFICIAL if _find_file(name, folder) is not None]
    return ["digits", *found]


def load(name: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load a data set by name.

    It comes from `root` or `$FEDNB_DATA`, the cache, or the network (see the module).
    The last few sets stay in memory, so that loading again is free; their arrays are
    read-only for that reason.
    """
    _check_name("load", name)
    checks.argument("load", "root", root, FOLDER)
    if name.partition("(")[0] in GENERATORS:
        return generate(name)[0]
    if name.partition("(")[0] in PUBLISHED:
        return published(name, root)
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
    path = _find_file(name, _data_folder(root))
    if path is not None:
        return _from_file(name, path, path.stat().st_mtime_ns, trust)
    cache = _cache()
    try:
        dataset = _from_package(name, cache)
    except Exception as error:  # whatever a package or the network may raise
        raise FileNotFoundError(
            _not_found(name, _data_folder(root), cache, error)
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


def _data_folder(root: str | os.PathLike | None) -> Path | None:
    """Return `root`, else the folder that FEDNB_DATA names, else None."""
    folder = root or os.environ.get("FEDNB_DATA")
    if not folder:
        return None
    return Path(folder).expanduser()


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


def _check_name(owner: str, name: Any) -> None:
    """Refuse a name that is no text, or too long to be one."""
    if not isinstance(name, str):
        raise ValueError(f"{owner}(name={name!r}): need the name of a data set")
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"{owner}(name={name[:40]!r}...): need at most {LONGEST_NAME:,} "
            f"characters, got {len(name):,}"
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
        mapped = _cache() / "pixels" / f"{name}_{short}.npy"
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
    notes = _short((train, test), (official.train, official.test))
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
                if _fingerprint(made) != check:  # moments rounded in another way
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
        if _fingerprint(dataset) == check:
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
        check = _fingerprint(dataset)
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
    short = _short((len(y_train), len(y_test)), (official.train, official.test))
    if short:
        return ", ".join(short)
    for kind, y in (("training", y_train), ("test", y_test)):
        classes = len(np.unique(y))
        if classes < official.classes:
            return f"{classes} of {official.classes} classes in the {kind} images"
    if official.arrays and dataset.sha256 != official.arrays:
        return f"the arrays have sha256 {dataset.sha256}, expected {official.arrays}"
    return ""


def _short(have: Iterable[int], full: Iterable[int]) -> list[str]:
    """Say whether training and test images are fewer, or more, than the official."""
    notes = []
    for n, official, kind in zip(have, full, ("training", "test"), strict=True):
        if n != official:
            notes.append(f"{n:,} of {official:,} {kind} images")
    return notes


def _cache() -> Path:
    return Path(os.environ.get("FEDNB_CACHE") or "~/.cache/fednb").expanduser()


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
    mean, std = _moments(x[: len(x_train)])
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


def _moments(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
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


# --- published federations ---


class Lists(NamedTuple):
    """The two lists of a published federation: training samples, then test samples."""

    ids: list[str]  # N image_ids
    y: np.ndarray  # (N,)
    users: np.ndarray  # (n_train,) numbered as they appear
    key: str  # the lists' fingerprint


def published(name: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load a federation of users and their photographs.

    They are those of Hsu et al. (ECCV 2020, arXiv:2003.08082): `landmarks` is
    Landmarks-User-160k (1,262 users, 2,028 classes), `inaturalist` is
    iNaturalist-User-120k (9,275 users, 1,203 classes). Nothing is downloaded: the lists
    are those published with the paper, the images those of the Google Landmarks
    Dataset v2 and of iNaturalist 2017. `root` or `$FEDNB_DATA` must hold them as ::

        landmarks/federated_train.csv                 columns user_id, image_id, class
        landmarks/test.csv                            columns image_id, class
        landmarks/images/a/b/c/abc0123456789def.jpg   flat or in folders, however deep
        inaturalist/federated_train_user_120k.csv
        inaturalist/test.csv
        inaturalist/images/...

    Images become squares of `side` pixels: the shorter side is resized, and the middle
    of the picture is kept. FedGWC names no size: 64 is our choice, and
    `load("landmarks(side=224)")` asks for another. This is done once, with a progress
    bar, into a uint8 file beside the lists (or in the cache, if their folder is
    read-only).
    `x` is that file, mapped, not read, and the images are no longer needed. `sha256` is
    of the pixels and labels; another JPEG library may round otherwise.

    Memory: the file has 3·side² bytes per image, 2.3 GB (landmarks) and 1.9 GB at side
    64, 28 and 23 GB at 224. A Federation on a CPU maps it, and reads of it what is
    looked at; on a GPU it holds all of it, in uint8.
    """
    _check_name("published", name)
    kind, side = _side(name)
    return _from_images(kind, side, *_look_up(kind, root))


def _look_up(
    kind: str, root: str | os.PathLike | None
) -> tuple[Path, Path, tuple[int, ...]]:
    """Find the lists of training and of test samples, and their times of change.

    By the times the caches notice new lists.
    """
    checks.argument("published", "root", root, FOLDER)
    base = _data_folder(root)
    folder = None
    lists = []
    if base is not None:
        folder = base / kind
        lists = [*folder.glob("federated_train*.csv"), *folder.glob("test.csv")]
    if len(lists) != 2 or lists[1].name != "test.csv":
        title, source, *_ = PUBLISHED[kind]
        raise FileNotFoundError(
            f"the data set {kind!r} was not found. Looked for one "
            f"federated_train*.csv, and test.csv, in "
            f"{folder or 'no folder: neither root nor FEDNB_DATA is set'}\n"
            f"- the lists: {title} of the Federated Vision Datasets (Hsu et al. 2020); "
            f"put both files into a folder {kind} of the folder that FEDNB_DATA names\n"
            f"- the images: {source}; put them into {kind}/images, each as "
            f"<image_id>.jpg, flat or in folders\n"
            f"load('digits') needs neither."
        )
    train, test = lists
    return train, test, (train.stat().st_mtime_ns, test.stat().st_mtime_ns)


def as_published(
    y: np.ndarray,
    name: str,
    clients: int | None = None,
    *,
    seed: int = 0,
    test: float = 0.2,
    min_size: int = 2,
    root: str | os.PathLike | None = None,
) -> Partition:
    """Deal a published federation to its users, see `partition.by_user`.

    A law for `Task`, next to `dataset=name`. The published test images have no users:
    they stay with the server, and a share `test` of each user's own samples is held out
    instead. FedGWC has 823 clients of landmarks and 2,714 of inaturalist, fewer than
    there are users, and does not say which: `clients=823` keeps the users with most
    samples, as would any rule of a least size.
    """
    _check_name("as_published", name)
    kind, _ = _side(name)
    lists = _read_lists(kind, *_look_up(kind, root))
    if not np.array_equal(y, lists.y[: len(lists.users)]):
        raise ValueError(
            f"these {np.size(y)} labels are not the training labels of {name!r}: "
            f"load that data set"
        )
    return by_user(y, lists.users, clients, seed=seed, test=test, min_size=min_size)


def _side(name: str) -> tuple[str, int]:
    """Read `landmarks` or `landmarks(side=64)`."""
    call = name
    if "(" not in call:
        call += "()"
    try:
        kind, values, keywords = _call(call)
        side = _asked_side(*values, **keywords)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name!r}: write it as {name.partition('(')[0]}(side={SIDE}); {error}"
        ) from error
    if kind not in PUBLISHED:
        raise ValueError(f"{name!r}: need one of {', '.join(PUBLISHED)}")
    if not checks.integer(1).holds(side):
        raise ValueError(f"{name!r}: side = {side!r}, need a number of pixels >= 1")
    return kind, side


def _asked_side(side: Any = SIDE) -> Any:
    """The argument of `landmarks(side=64)`, however it was given."""
    return side


@lru_cache(maxsize=2)
def _from_images(
    kind: str, side: int, train: Path, test: Path, stamps: tuple[int, ...]
) -> Dataset:
    """Map the pixels of all images; make their file first, if it is not there."""
    official = PUBLISHED[kind]
    lists = _read_lists(kind, train, test, stamps)
    n_train = len(lists.users)
    n_test = len(lists.ids) - n_train
    path = _pixel_file(kind, train.parent, f"pixels_{side}_{lists.key}.npy")
    if not path.is_file():
        _draw_up(path, train.parent / "images", official.source, lists, side)
    x, facts = _mapped(path, (len(lists.ids), 3, side, side))
    notes = [f"images cut to {side} x {side}"]
    notes += _short((n_train, n_test), (official.train, official.test))
    return Dataset(
        name=f"{kind}(side={side})",
        x=x,
        y=lists.y,
        n_train=n_train,
        classes=official.classes,
        sha256=facts["sha256"],
        note=", ".join(notes),
        mean=tuple(facts["mean"]),
        std=tuple(facts["std"]),
    )


def _pixel_file(kind: str, folder: Path, file: str) -> Path:
    """Find the file of pixels, or the place for it: beside the lists, or the cache."""
    beside = folder / file
    cached = _cache() / kind / file
    if beside.is_file():
        return beside
    if cached.is_file() or not os.access(folder, os.W_OK):
        return cached
    return beside


@lru_cache(maxsize=2)
def _read_lists(kind: str, train: Path, test: Path, stamps: tuple[int, ...]) -> Lists:
    classes = PUBLISHED[kind].classes
    train_content = train.read_bytes()  # read once: what is hashed is what is parsed
    test_content = test.read_bytes()
    train_columns = ["user_id", "image_id", "class"]
    train_rows = _read_list(train, train_content, train_columns, classes)
    test_rows = _read_list(test, test_content, ["image_id", "class"], classes)
    ids = [*train_rows["image_id"], *test_rows["image_id"]]
    y = np.concatenate([train_rows["class"].to_numpy(), test_rows["class"].to_numpy()])
    y.setflags(write=False)
    users = train_rows["user_id"].factorize()[0].astype(np.int64)
    key = hashlib.sha256(train_content + test_content).hexdigest()[:12]
    return Lists(ids, y, users, key)


def _read_list(path: Path, content: bytes, columns: list[str], classes: int):
    import pandas as pd

    types = {"user_id": str, "image_id": str, "class": np.int64}
    try:
        rows = pd.read_csv(
            io.BytesIO(content),
            usecols=columns,
            dtype={c: types[c] for c in columns},
            keep_default_na=False,
        )
    except ValueError as error:
        raise ValueError(
            f"{path} is not a list with the columns {', '.join(columns)}: {error}"
        ) from error
    if not len(rows) or rows["class"].min() < 0 or rows["class"].max() >= classes:
        raise ValueError(
            f"{path}: need at least one row, and classes from 0 to {classes - 1}"
        )
    return rows


def _draw_up(path: Path, images: Path, source: str, lists: Lists, side: int) -> None:
    """Write all pixels to `path` and, beside it, a JSON file with their checksum.

    `path` appears when everything is done.
    """
    from filelock import FileLock
    from numpy.lib.format import open_memmap
    from tqdm.auto import tqdm

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if path.is_file():  # made by another process, while this one waited
            return
        places = _find(images, source, lists.ids)
        part = path.with_suffix(".part")
        x = open_memmap(part, "w+", np.uint8, (len(places), 3, side, side))

        def put(i: int) -> None:
            x[i] = _read_image(places[i], side)

        # threads are enough: Pillow decodes outside Python's lock
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            jobs = pool.map(put, range(len(places)))
            title = f"{images.parent.name}, {side} pixels"
            for _ in tqdm(jobs, total=len(places), desc=title):
                pass
        x.flush()
        mean, std = _moments(x[: len(lists.users)])
        digest = hashlib.sha256(x.reshape(-1))
        digest.update(lists.y.astype("<i8"))
        facts = {"sha256": digest.hexdigest(), "mean": mean, "std": std}
        path.with_suffix(".json").write_text(json.dumps(facts))
        os.replace(part, path)


def _find(images: Path, source: str, ids: list[str]) -> list[Path]:
    """Find `<id>.jpg` of each id, anywhere below the folder."""
    wanted = {f"{i}.jpg" for i in ids}
    found: dict[str, Path] = {}
    for folder, _, files in os.walk(images):
        found |= {file: Path(folder, file) for file in wanted.intersection(files)}
    lost = sorted(wanted - found.keys())
    if lost:
        raise FileNotFoundError(
            f"{len(lost):,} of {len(wanted):,} images are not in {images} or below it, "
            f"such as {', '.join(lost[:3])}. They are part of {source}: put them "
            f"there, flat or in folders"
        )
    return [found[f"{i}.jpg"] for i in ids]


def _read_image(path: Path, side: int) -> np.ndarray:  # (3, side, side)
    """Resize a picture's shorter side and take its middle."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            # a JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, which is faster
            image.draft("RGB", (2 * side, 2 * side))
            square = ImageOps.fit(
                image.convert("RGB"), (side, side), Image.Resampling.BICUBIC
            )
    except OSError as error:
        raise ValueError(
            f"{path} is not a whole image: {error}. Fetch it again"
        ) from error
    return np.asarray(square).transpose(2, 0, 1)


def _mapped(path: Path, shape: tuple[int, ...]) -> tuple[np.ndarray, dict]:
    """Map the pixels (N, 3, side, side), read-only, and read what is known of them."""
    try:
        x = np.load(path, mmap_mode="r", allow_pickle=False)
        facts = json.loads(path.with_suffix(".json").read_text())
        if x.shape != shape or x.dtype != np.uint8:
            raise ValueError(f"{x.dtype} {x.shape}, expected uint8 {shape}")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): delete it, and it is made again from the "
            f"images"
        ) from error
    return np.asarray(x), facts


# --- data that are drawn ---


def regression(
    clusters: int = 2,
    intercept: bool = False,
    *,
    features: int = 1,
    clients: int = 100,
    samples: int = 100,
    tests: int = 100,
    x_mean: tuple[float, float] = (-1.0, 1.0),
    x_std: float = 0.5,
    theta_mean: tuple[float, float] = (-5.0, 0.0),
    theta_std: float = 0.1,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Draw FedCVR-Bolt's federated linear regression and its clients.

    Section 5.1 and appendix C.3. Client k is of a hidden cluster j, drawn uniformly.
    Its inputs are N(μ_j, x_std² I) in `features` dimensions, after a column of ones if
    there is an `intercept`, so that D = features + intercept. Each sample i has
    coefficients of its own, θ_i ~ N(θ̄_j, theta_std² I), and y_i = θ_iᵀ x_i. The best a
    model can do in cluster j is then a squared error of theta_std² E‖x‖². One cluster
    is the IID case.

    The paper draws μ_j and θ̄_j uniformly and does not say from where; the defaults are
    those of its released code.
    """
    given = dict(locals())
    _check_arguments(
        "regression",
        given,
        clusters=checks.integer(1),
        intercept=checks.flag,
        features=checks.integer(1),
        clients=checks.integer(1),
        samples=checks.integer(1),
        tests=checks.integer(1),
        x_mean=RANGE,
        x_std=checks.number(least=0),
        theta_mean=RANGE,
        theta_std=checks.number(least=0),
        seed=checks.seed,
    )
    rng = np.random.default_rng(seed)
    D = features + int(intercept)
    mu = rng.uniform(*x_mean, (clusters, features))
    theta_bar = rng.uniform(*theta_mean, (clusters, D))
    truth = rng.integers(clusters, size=clients)
    sizes = [samples + tests] * clients
    j = np.repeat(truth, sizes)  # (N,) the cluster of each sample
    x = rng.normal(mu[j], x_std)  # (N, features)
    if intercept:
        x = np.concatenate([np.ones((len(x), 1)), x], axis=1)  # (N, D)
    theta = rng.normal(theta_bar[j], theta_std)  # (N, D)
    y = (theta * x).sum(1).astype(np.float32)
    dataset = _generated("regression", given, x, y, classes=0)
    return dataset, _blocks(sizes, [tests] * clients, truth)


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    clients: int = 100,
    samples: int | None = 100,
    test: float = 0.2,
    shared: bool = False,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Draw Synthetic(α, β) of Li et al. (FedProx, MLSys 2020) and its clients.

    60 features, 10 classes, one linear law per client: y = argmax(W_k x + b_k) with
    entries of W_k and b_k from N(u_k, 1), u_k ~ N(0, α), and x ~ N(v_k, Σ) with
    v_k ~ N(B_k, 1), B_k ~ N(0, β), Σ diagonal, Σ_jj = j^-1.2. α says how much models
    differ, β how much inputs do.

    With `shared`, u_k and B_k are one number for a client, as in Li et al.; then u_k
    adds the same to all ten classes, and α changes no label. Otherwise u_k is drawn for
    each class and B_k for each feature, as in FedCVR-Bolt's code.

    Clients have `samples` each, training and test together; None draws the long-tailed
    sizes of Li et al., 50 + lognormal(4, 2). A share `test` of them, but at least one,
    is for testing; test=0 leaves none.
    """
    given = dict(locals())
    _check_arguments(
        "synthetic",
        given,
        alpha=checks.number(least=0),
        beta=checks.number(least=0),
        clients=checks.integer(1),
        samples=checks.optional(checks.integer(1)),
        test=checks.number(least=0, below=1),
        shared=checks.flag,
        seed=checks.seed,
    )
    rng = np.random.default_rng(seed)
    F = 60  # features
    C = 10  # classes
    if samples is None:
        long_tailed = 50 + rng.lognormal(4, 2, clients).astype(int)
        sizes = long_tailed.tolist()
    else:
        sizes = [samples] * clients
    sigma = np.arange(1, F + 1) ** -0.6  # the roots of Σ_jj
    xs = []
    ys = []
    for size in sizes:
        if shared:
            u = rng.normal(0, np.sqrt(alpha), 1)
            B = rng.normal(0, np.sqrt(beta), 1)
        else:
            u = rng.normal(0, np.sqrt(alpha), C)
            B = rng.normal(0, np.sqrt(beta), F)
        W = rng.normal(u[:, None], 1, (C, F))
        b = rng.normal(u, 1, C)
        v = rng.normal(B, 1, F)
        x = rng.normal(v, sigma, (size, F)).astype(np.float32)
        xs.append(x)
        ys.append((x @ W.T + b).argmax(1))
    tests = [0] * clients
    if test > 0:
        tests = [min(max(round(test * size), 1), size - 1) for size in sizes]
    x = np.concatenate(xs)
    y = np.concatenate(ys)
    return _generated("synthetic", given, x, y, C), _blocks(sizes, tests)


def domains(
    base: str = "cifar100",
    clients: Sequence[int] = (15, 15, 0),
    size: int = 200,
    *,
    noise: float = 1.0,
    blur: float = 2.0,
    alpha: float = 100.0,
    test: float = 0.2,
    official: bool = False,
    anew: bool = False,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Deal a data set to clients that see it clean, noisy or blurred.

    FedGWC's visual domains (Tables 4 and 7). `clients` counts the clients of each
    domain, the hidden clusters; each gets `size` training samples of the base, nearly
    uniform in class (`alpha`, see `partition.mixed`). As in the authors' code noise is
    N(0, noise²) on every normalised pixel, and blur is a Gaussian of `blur` pixels
    before normalisation. Neither number is published. A share `test` of the samples is
    for testing. With test=0 and `official`, clients are tested on official test samples
    instead, dealt by `partition.match_test`.

    Noise is drawn here, once for each image. The authors' code draws it whenever an
    image is looked at. With `anew` it is left to the network: images stay clean, and
    one channel more says how strong the noise of each pixel is. `models.noisy` makes a
    network that draws it.
    """
    given = dict(locals())
    from scipy.ndimage import gaussian_filter

    _check_arguments(
        "domains",
        given,
        base=TEXT,
        clients=THREE_COUNTS,
        size=checks.integer(2),
        noise=checks.number(least=0),
        blur=checks.number(least=0),
        alpha=checks.number(least=0, infinite=True),
        test=checks.number(least=0, below=1),
        official=checks.flag,
        anew=checks.flag,
        seed=checks.seed,
    )
    source = _images("domains", base)
    assert source.mean is not None and source.std is not None
    part = _equal_clients(
        source,
        clients=sum(clients),
        size=size,
        alpha=alpha,
        test=test,
        official=official,
        seed=seed,
    )
    rows = [np.concatenate(both) for both in zip(part.train, part.test, strict=True)]
    sizes = [len(both) for both in rows]
    tests = [len(samples) for samples in part.test]
    every_row = np.concatenate(rows)  # (N,)
    truth = np.repeat(np.arange(3), clients)  # (K,)
    domain = np.repeat(truth, sizes)  # (N,)
    noisy = domain == 1
    blurred = domain == 2
    x = source.x[every_row] / np.float32(255)  # (N, C, H, W)
    x[blurred] = gaussian_filter(x[blurred], (0, 0, blur, blur))
    mean = np.reshape(source.mean, (-1, 1, 1))
    std = np.reshape(source.std, (-1, 1, 1))
    x = (x - mean) / std
    if anew:
        strength = np.zeros_like(x[:, :1])  # (N, 1, H, W)
        strength[noisy] = noise
        x = np.concatenate([x, strength], axis=1)
    else:
        rng = np.random.default_rng([seed, 1])
        x[noisy] += rng.normal(0, noise, x[noisy].shape)
    dataset = _generated("domains", given, x, source.y[every_row], source.classes)
    return replace(dataset, note=source.note), _blocks(sizes, tests, truth)


VIEWS = ("plain", "rotate 90", "rotate 180", "rotate 270", "invert", "noise", "blur")


def shifted(
    base: str = "fashion_mnist",
    kinds: Sequence[str] = ("plain", "rotate 90", "rotate 180", "rotate 270"),
    clients: Sequence[int] = (5, 5, 5, 5),
    size: int = 250,
    *,
    noise: float = 1.0,
    blur: float = 2.0,
    alpha: float = 1000.0,
    test: float = 0.2,
    official: bool = False,
    server: int = 0,
    seed: int = 0,
) -> tuple[Dataset, Partition]:
    """Deal a data set to groups of clients that each see it in a way of their own.

    Group g, a hidden cluster, has `clients[g]` clients of the kind `kinds[g]`:

    - "plain", "rotate 90" (or 180, 270), "invert" (the negative), "noise" of
      N(0, noise²) on normalised pixels, and "blur" by a Gaussian of `blur` pixels are
      covariate shifts: other inputs, the same classes.
    - "relabel" is a concept shift: the same inputs, but classes have new numbers, by
      a permutation drawn for this group.

    Each client gets `size` samples of the base, uniform in class (`alpha`, see
    `partition.mixed`). A share `test` of them is for testing. With test=0 and
    `official`, clients are tested on official test samples instead. The server gets
    `server` official test samples of each class that no client holds, as they are.
    """
    given = dict(locals())
    _check_arguments(
        "shifted",
        given,
        base=TEXT,
        kinds=KINDS,
        clients=checks.integers(),
        size=checks.integer(2),
        noise=checks.number(least=0),
        blur=checks.number(least=0),
        alpha=checks.number(least=0),
        test=checks.number(least=0, below=1),
        official=checks.flag,
        server=checks.integer(0),
        seed=checks.seed,
    )
    if len(kinds) != len(clients):
        raise ValueError(
            f"shifted(kinds={kinds}, clients={clients}): need a number of clients for "
            "each kind"
        )
    source = _images("shifted", base)
    assert source.mean is not None and source.std is not None
    part = _equal_clients(
        source,
        clients=sum(clients),
        size=size,
        alpha=alpha,
        test=test,
        official=official,
        seed=seed,
        keep=server,
    )
    rows = [np.concatenate(both) for both in zip(part.train, part.test, strict=True)]
    sizes = [len(both) for both in rows]
    tests = [len(samples) for samples in part.test]
    dealt = np.concatenate(rows)  # (N,)
    held = _held_by_the_server(source, dealt, server, seed)  # (M,)
    truth = np.repeat(np.arange(len(kinds)), clients)  # (K,)
    group = np.repeat(truth, sizes)  # (N,)
    x = source.x[np.concatenate([dealt, held])] / np.float32(255)  # (N + M, C, H, W)
    y = source.y[np.concatenate([dealt, held])]
    mean = np.reshape(source.mean, (-1, 1, 1)).astype(np.float32)
    std = np.reshape(source.std, (-1, 1, 1)).astype(np.float32)
    for g, kind in enumerate(kinds):
        mine = np.flatnonzero(group == g)
        rng = np.random.default_rng([seed, 2, g])
        if kind == "relabel":
            y[mine] = rng.permutation(source.classes)[y[mine]]
        elif kind == "noise":
            drawn = rng.standard_normal(x[mine].shape, np.float32)
            x[mine] += noise * std * drawn
        else:
            x[mine] = _seen_as(x[mine], kind, blur)
    dataset = _generated("shifted", given, (x - mean) / std, y, source.classes)
    dataset = replace(dataset, n_train=len(dealt), note=source.note)
    return dataset, _blocks(sizes, tests, truth)


def _seen_as(x: np.ndarray, kind: str, blur: float) -> np.ndarray:
    """Images (n, C, H, W) with values in [0, 1], rotated, inverted or blurred."""
    if kind == "plain":
        return x
    if kind == "invert":
        return 1 - x
    if kind == "blur":
        from scipy.ndimage import gaussian_filter

        return gaussian_filter(x, (0, 0, blur, blur))
    turns = int(kind.removeprefix("rotate ")) // 90
    if x.shape[2] != x.shape[3]:
        raise ValueError(f"shifted: {kind!r} needs square images, not {x.shape[2:]}")
    return np.rot90(x, turns, axes=(2, 3))


def _images(owner: str, base: str) -> Dataset:
    """The named data set, which must be one of images."""
    source = load(base)
    if source.mean is None or source.std is None:
        raise ValueError(f"{owner}(base={base!r}): need a data set of images")
    return source


def _equal_clients(
    source: Dataset,
    clients: int,
    size: int,
    alpha: float,
    test: float,
    official: bool,
    seed: int,
    keep: int = 0,
) -> Partition:
    """Clients of one size and nearly one class mixture, before they are made to
    differ.
    """
    y = source.y[: source.n_train]
    part = mixed(y, [clients], [alpha], size, seed=seed, test=test)
    if official:
        part = match_test(part, y, source.y[source.n_train :], seed=seed, keep=keep)
    return part


def _held_by_the_server(
    source: Dataset, dealt: np.ndarray, per_class: int, seed: int
) -> np.ndarray:
    """Official test rows that no client holds: so many of each class."""
    free = np.setdiff1d(np.arange(source.n_train, len(source.y)), dealt)
    free = np.random.default_rng([seed, 1]).permutation(free)
    held = [np.empty(0, np.int64)]
    for c in range(source.classes):
        of_class = free[source.y[free] == c][:per_class]
        if len(of_class) < per_class:
            raise ValueError(
                f"shifted(server={per_class}): only {len(of_class)} official test "
                f"samples of class {c} are held by no client; lower server, size or "
                "clients"
            )
        held.append(of_class)
    return np.concatenate(held)


GENERATORS: dict[str, Callable[..., tuple[Dataset, Partition]]] = {
    "regression": regression,
    "synthetic": synthetic,
    "domains": domains,
    "shifted": shifted,
}


def generate(name: str) -> tuple[Dataset, Partition]:
    """Draw data and clients from a call written as text.

    Such as `generate("regression(clusters=2, seed=3)")`. The last few stay in memory.
    """
    _check_name("generate", name)
    return _generate(name)


@lru_cache(maxsize=3)
def _generate(name: str) -> tuple[Dataset, Partition]:
    try:
        make, values, keywords = _call(name)
        if make not in GENERATORS:
            raise ValueError(f"unknown function {make!r}")
        return GENERATORS[make](*values, **keywords)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name!r} is no call of {' or '.join(GENERATORS)} with plain values: "
            f"{error}"
        ) from error


def as_generated(y: np.ndarray, name: str, *, seed: int = 0) -> Partition:
    """Deal a drawn data set to the clients that it was drawn for.

    A law for `Task`, next to `dataset=name`. Everything is settled by the seed in
    `name`; the `seed` that every law takes changes nothing here.
    """
    dataset, parts = generate(name)
    if not np.array_equal(y, dataset.y[: dataset.n_train]):
        raise ValueError(
            f"these {np.size(y)} labels are not those of {name!r}: load that data set"
        )
    return parts


def with_official_tests(
    y: np.ndarray,
    name: str,
    law: Callable[..., Partition],
    keep: int = 0,
    *,
    seed: int = 0,
) -> Partition:
    """Deal by a law, and give each client official test samples of the set `name`.

    A law for `Task`, next to `dataset=name`: `partition.match_test` with at least
    `keep` samples of each class left for the server.
    """
    dataset = load(name)
    if not np.array_equal(y, dataset.y[: dataset.n_train]):
        raise ValueError(
            f"these {np.size(y)} labels are not those of {name!r}: load that data set"
        )
    y_test = dataset.y[dataset.n_train :]
    return match_test(law(y, seed=seed), y, y_test, seed=seed, keep=keep)


def _call(text: str) -> tuple[str, list, dict]:
    """Take a call written as text apart: its function, its values, its keywords."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("need a function's name and its values in brackets")
        values = [_literal(value) for value in call.args]
        keywords = {word.arg: _literal(word.value) for word in call.keywords}
        if len(keywords) < len(call.keywords):
            raise ValueError("an argument is given twice")
    except (RecursionError, MemoryError):
        raise ValueError("brackets or signs are nested too deeply") from None
    return call.func.id, values, keywords


def _literal(node: ast.expr) -> Any:
    """Read a number, text, list or the like; nothing is evaluated."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ValueError(f"{ast.unparse(node)} is no plain value") from None


def _generated(
    kind: str, given: dict, x: np.ndarray, y: np.ndarray, classes: int
) -> Dataset:
    """Freeze what was drawn; its name is the call that draws it again."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    x.setflags(write=False)
    y.setflags(write=False)
    values = ", ".join(f"{word}={value!r}" for word, value in given.items())
    return Dataset(
        name=f"{kind}({values})",
        x=x,
        y=y,
        n_train=len(x),
        classes=classes,
        sha256=hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest(),
        note="drawn",
    )


def _blocks(
    sizes: Sequence[int], tests: Sequence[int], truth: np.ndarray | None = None
) -> Partition:
    """Give client k the k-th block of rows, the last `tests[k]` of them for testing."""
    train = []
    test = []
    end = 0
    for size, held_out in zip(sizes, tests, strict=True):
        start = end
        end = start + size
        train.append(np.arange(start, end - held_out))
        test.append(np.arange(end - held_out, end))
    return Partition(train, test, truth)


def _check_arguments(owner: str, given: dict[str, Any], **rules: checks.Rule) -> None:
    """Check the arguments that a function was given, each against its rule."""
    for name, rule in rules.items():
        checks.argument(owner, name, given[name], rule)


def _is_range(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    finite = all(checks.number().holds(end) for end in value)
    return finite and value[0] <= value[1]


def _is_three_counts(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return False
    counts = all(checks.integer(0).holds(count) for count in value)
    return counts and sum(value) > 0


def _is_kinds(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(kind in (*VIEWS, "relabel") for kind in value)


KINDS = checks.Rule(_is_kinds, f"a list of {', '.join(VIEWS)} or relabel")
RANGE = checks.Rule(_is_range, "two finite numbers, the smaller one first")
THREE_COUNTS = checks.Rule(
    _is_three_counts, "three integers >= 0, not all 0: clean, noisy, blurred clients"
)
TEXT = checks.Rule(lambda value: isinstance(value, str), "a text")
