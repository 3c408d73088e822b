"""Catalogue: the data sets known by name, what is known of them, and how names read."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple


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
LONGEST_NAME = 1_000  # characters of a data set's name, calls included


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
    note: str  # a template: `official` fills in the numbers


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


def check_name(owner: str, name: Any) -> None:
    """Refuse a name that is no text, or too long to be one."""
    if not isinstance(name, str):
        raise ValueError(f"{owner}(name={name!r}): need the name of a data set")
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"{owner}(name={name[:40]!r}...): need at most {LONGEST_NAME:,} "
            f"characters, got {len(name):,}"
        )


def call_in(text: str) -> tuple[str, list, dict]:
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
