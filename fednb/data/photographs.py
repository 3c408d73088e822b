"""Photographs: federations of users and their images, from published lists."""

from __future__ import annotations

import hashlib
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import checks
from ..partition import Partition, by_user
from .catalogue import PUBLISHED, SIDE, call_in, check_name
from .dataset import Dataset
from .official import (
    FOLDER,
    cache_folder,
    counts_in_words,
    data_folder,
    load_official,
    moments,
)


class Lists(NamedTuple):
    """The two lists of a published federation: training samples, then test samples."""

    ids: list[str]  # N image_ids
    y: np.ndarray  # (N,)
    users: np.ndarray  # (n_train,) numbered as they appear
    key: str  # the lists' fingerprint


def load_found(name: str, root: str | os.PathLike | None = None) -> Dataset:
    """Load a data set that is found rather than drawn: official, or photographs."""
    check_name("load", name)
    checks.argument("load", "root", root, FOLDER)
    if name.partition("(")[0] in PUBLISHED:
        return published(name, root)
    return load_official(name, root)


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
    check_name("published", name)
    kind, side = _side(name)
    return _from_images(kind, side, *_look_up(kind, root))


def _look_up(
    kind: str, root: str | os.PathLike | None
) -> tuple[Path, Path, tuple[int, ...]]:
    """Find the lists of training and of test samples, and their times of change.

    By the times the caches notice new lists.
    """
    checks.argument("published", "root", root, FOLDER)
    base = data_folder(root)
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
    check_name("as_published", name)
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
        kind, values, keywords = call_in(call)
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
    notes += counts_in_words((n_train, n_test), (official.train, official.test))
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
    cached = cache_folder() / kind / file
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
        mean, std = moments(x[: len(lists.users)])
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
