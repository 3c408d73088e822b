"""Data sets: the embedded digits, npz files and their checks, the packages' road
(offline), messages.
"""

import hashlib
import importlib
import io
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fednb import data, models

REPO = Path(__file__).parents[1]
REAL = Path(os.environ.get("FEDNB_DATA") or REPO.parent / "shared" / "data")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No data folder, an empty cache, and no package that could reach the network."""
    for name in ("FEDNB_DATA", "FEDNB_UNVERIFIED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))
    data.official._from_package.cache_clear()
    yield
    data.official._from_package.cache_clear()


@pytest.fixture
def offline(monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("no network\nsecond line")

    monkeypatch.setattr(data.official, "torchvision", fail)


def arrays(
    name: str = "mnist", n: int = 20, colour: bool = False, seed: int = 0
) -> dict[str, np.ndarray]:
    """Small arrays of the form of a data set's npz."""
    rng, classes = np.random.default_rng(seed), data.OFFICIAL[name].classes
    shape = (n, 6, 5) + (3,) * colour
    return {
        "train_images": rng.integers(0, 256, shape, dtype=np.uint8),
        "train_labels": rng.integers(0, classes, n, dtype=np.uint8),
        "test_images": rng.integers(0, 256, (n // 2, *shape[1:]), dtype=np.uint8),
        "test_labels": rng.integers(0, classes, n // 2, dtype=np.uint8),
    }


def save(
    path: Path, monkeypatch, content: dict[str, np.ndarray], known: bool = True
) -> str:
    """Write an npz and, if `known`, enter its checksum in the table."""
    np.savez(path, **content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if known:
        monkeypatch.setitem(data.catalogue.SHA256, path.name, (digest,))
    return digest


# The embedded set.


def test_digits():
    d = data.load("digits")
    assert (
        d.x.shape == (1797, 1, 8, 8) and d.x.dtype == np.uint8 and d.y.dtype == np.int64
    )
    assert (d.x.min(), d.x.max()) == (0, 255) and len(np.unique(d.x)) == 17
    assert (d.n_train, d.classes, d.note) == (1437, 10, "")
    shares = [
        np.bincount(part) / len(part) for part in (d.y[: d.n_train], d.y[d.n_train :])
    ]
    assert abs(shares[0] - shares[1]).max() < 0.003  # stratified
    assert (
        d.sha256 == "fa94de7d3306693bea21ad9cb1213ce308948a22f258531b8bdb6e092a265588"
    )  # results cite it


def test_digits_are_the_real_ones():
    from sklearn.datasets import load_digits

    raw, d = load_digits(), data.load("digits")
    back = np.rint(d.x[:, 0] / 255 * 16)
    want = {
        (image.tobytes(), y) for image, y in zip(raw.images, raw.target, strict=True)
    }
    assert {(image.tobytes(), y) for image, y in zip(back, d.y, strict=True)} == want


@pytest.mark.parametrize("colour", [False, True])
def test_mean_and_std_are_of_the_training_rows(monkeypatch, tmp_path, colour):
    save(tmp_path / "mnist.npz", monkeypatch, content := arrays(colour=colour))
    d = data.load("mnist", tmp_path)
    x = content["train_images"].reshape(20, 30, -1) / 255  # (N, pixels, channels)
    assert d.mean == pytest.approx(x.mean((0, 1)))
    assert d.std == pytest.approx(x.std((0, 1)))


def test_sets_are_immutable_and_kept():
    d = data.load("digits")
    assert data.load("digits") is d
    with pytest.raises(ValueError, match="read-only"):
        d.x[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        d.y[0] = 0
    with pytest.raises(AttributeError):
        d.note = "other"
    assert len(repr(d)) < 300  # no pixels


# A data set named by its content.


def made(**changes):
    """A data set as a user may make it."""
    rng = np.random.default_rng(0)
    parts = {"x": rng.normal(size=(6, 2, 3)), "y": np.arange(6) % 3, "n_train": 4}
    return data.Dataset(**{"name": "mine", "classes": 3} | parts | changes)


def test_fingerprint_is_of_the_content():
    same = [made(), made(name="other"), made(x=made().x.copy(order="F"), note="note")]
    same += [made(x=torch.tensor(made().x)), made(y=made().y.tolist())]
    assert len({data.fingerprint(dataset) for dataset in same}) == 1
    x, y = made().x, made().y
    others = [
        *(made(x=x + 1e-15), made(x=x.astype(np.float32)), made(x=x.reshape(6, 3, 2))),
        *(made(y=y[::-1]), made(y=y.astype(np.int32)), made(x=x[:, ::-1])),
        *(made(n_train=5), made(classes=4), made(mean=(0.5,), std=(1.0,))),
    ]
    scaled = [made(mean=mean, std=np.ones(1)) for mean in ([0.5], np.full(1, 0.5))]
    assert {data.fingerprint(s) for s in scaled} == {data.fingerprint(others[-1])}
    prints = {data.fingerprint(dataset) for dataset in [made(), *others]}
    assert len(prints) == 1 + len(others)
    assert all(len(text) == 64 for text in prints)


def test_fingerprint_follows_a_change_of_the_arrays():
    dataset = made()
    before = data.fingerprint(dataset)
    dataset.x[0] += 1
    assert data.fingerprint(dataset) != before


def test_fingerprint_of_a_frozen_set_is_remembered(monkeypatch):
    digits = data.load("digits")
    before = data.fingerprint(digits)
    monkeypatch.setattr(data.dataset.hashlib, "sha256", None)  # would fail if called
    assert data.fingerprint(digits) == before


def test_fingerprint_of_large_samples_and_of_objects():
    wide = made(x=np.zeros((6, 2000)))
    other = made(x=np.eye(6, 2000, 1500))
    assert data.fingerprint(wide) != data.fingerprint(other)
    with pytest.raises(ValueError, match="y holds Python objects"):
        data.fingerprint(made(y=np.array([None] * 6)))


# Files.


@pytest.mark.parametrize("how", ["root", "environment"])
def test_npz_round_trip(monkeypatch, tmp_path, how):
    digest = save(
        tmp_path / "cifar10.npz", monkeypatch, content := arrays("cifar10", colour=True)
    )
    monkeypatch.setenv(
        "FEDNB_DATA", str(tmp_path if how == "environment" else tmp_path / "empty")
    )
    d = data.load("cifar10", root=tmp_path if how == "root" else None)
    assert d.x.shape == (30, 3, 6, 5) and d.x.flags.c_contiguous
    assert np.array_equal(d.x[:20].transpose(0, 2, 3, 1), content["train_images"])
    assert np.array_equal(d.x[20:].transpose(0, 2, 3, 1), content["test_images"])
    assert np.array_equal(
        d.y, np.concatenate([content["train_labels"], content["test_labels"]])
    )
    assert (d.name, d.n_train, d.classes, d.sha256) == ("cifar10", 20, 10, digest)
    assert d.note == "20 of 50,000 training images, 10 of 10,000 test images"


def test_a_full_verified_set_has_no_note(monkeypatch, tmp_path):
    monkeypatch.setitem(
        data.OFFICIAL, "mnist", data.OFFICIAL["mnist"]._replace(train=20, test=10)
    )
    save(tmp_path / "mnist.npz", monkeypatch, arrays())
    assert data.load("mnist", tmp_path).note == ""


def test_the_whole_set_and_a_subset_are_both_known(monkeypatch, tmp_path):
    official = data.OFFICIAL["cifar10"]._replace(train=20, test=10)
    monkeypatch.setitem(data.OFFICIAL, "cifar10", official)
    folders = {n: tmp_path / f"{n}" for n in (20, 16)}
    digests = {}
    for n, folder in folders.items():
        folder.mkdir()
        path, content = folder / "cifar10.npz", arrays("cifar10", n, colour=True)
        digests[n] = save(path, monkeypatch, content, known=False)
    monkeypatch.setitem(data.catalogue.SHA256, "cifar10.npz", tuple(digests.values()))
    whole, subset = (data.load("cifar10", folders[n]) for n in (20, 16))
    assert (whole.note, whole.sha256) == ("", digests[20])
    assert subset.note == "16 of 20 training images, 8 of 10 test images"
    assert subset.sha256 == digests[16]


def test_labels_in_a_column_as_medmnist_writes_them(monkeypatch, tmp_path):
    content = arrays("pathmnist", colour=True)
    content["train_labels"] = content["train_labels"][:, None]
    save(tmp_path / "pathmnist.npz", monkeypatch, content)
    assert data.load("pathmnist", tmp_path).y.shape == (30,)


def test_partial_bloodmnist_says_so_and_yields_to_the_full_one(monkeypatch, tmp_path):
    save(
        tmp_path / "bloodmnist_partial.npz",
        monkeypatch,
        arrays("bloodmnist", colour=True),
    )
    assert (
        data.load("bloodmnist", tmp_path).note
        == "partial: 30 of 15,380 images, official split not kept"
    )
    save(
        tmp_path / "bloodmnist.npz",
        monkeypatch,
        arrays("bloodmnist", colour=True),
        known=False,
    )
    assert data.load("bloodmnist", tmp_path).note.endswith("test images, unverified")


def test_emnist_by_merge_says_that_it_is_the_test_part(monkeypatch, tmp_path):
    content = arrays("emnist_bymerge")
    save(tmp_path / "emnist_bymerge_part.npz", monkeypatch, content)
    d = data.load("emnist_bymerge", tmp_path)
    assert (d.classes, d.n_train, len(d.x)) == (47, 20, 30)
    assert d.note == (
        "partial: the 30 images of the official test part, re-split at random 20 / 10"
    )
    assert np.array_equal(d.x[:20, 0], content["train_images"])  # upright already


def test_mismatch_is_an_error_unless_accepted(monkeypatch, tmp_path):
    digest = save(tmp_path / "mnist.npz", monkeypatch, arrays(), known=False)
    with pytest.raises(ValueError, match="Fetch it again") as error:
        data.load("mnist", tmp_path)
    for part in (
        digest,
        *data.catalogue.SHA256["mnist.npz"],
        "FEDNB_UNVERIFIED=1",
        str(tmp_path / "mnist.npz"),
    ):
        assert part in str(error.value)
    monkeypatch.setenv("FEDNB_UNVERIFIED", "0")
    with pytest.raises(ValueError, match="Fetch it again"):
        data.load("mnist", tmp_path)
    monkeypatch.setenv("FEDNB_UNVERIFIED", "1")
    assert data.load("mnist", tmp_path).note.endswith("unverified")
    monkeypatch.delenv("FEDNB_UNVERIFIED")
    with pytest.raises(
        ValueError, match="Fetch it again"
    ):  # what was accepted once is not remembered
        data.load("mnist", tmp_path)


@pytest.mark.parametrize("word", ["", "0", "false", "False", "no", "OFF", " 0 "])
def test_words_for_no(monkeypatch, tmp_path, word):
    save(tmp_path / "mnist.npz", monkeypatch, arrays(), known=False)
    monkeypatch.setenv("FEDNB_UNVERIFIED", word)
    with pytest.raises(ValueError, match="Fetch it again"):
        data.load("mnist", tmp_path)


@pytest.mark.parametrize("word", ["1", "true", "True", "yes", "ON", " 1"])
def test_words_for_yes(monkeypatch, tmp_path, word):
    save(tmp_path / "mnist.npz", monkeypatch, arrays(), known=False)
    monkeypatch.setenv("FEDNB_UNVERIFIED", word)
    assert data.load("mnist", tmp_path).note.endswith("unverified")


@pytest.mark.parametrize("word", ["2", "maybe", "-1", "y"])
def test_other_words_are_an_error(monkeypatch, tmp_path, word):
    save(tmp_path / "mnist.npz", monkeypatch, arrays())
    monkeypatch.setenv("FEDNB_UNVERIFIED", word)
    with pytest.raises(ValueError, match=f"FEDNB_UNVERIFIED='{word}': need 1, true"):
        data.load("mnist", tmp_path)


def test_what_is_verified_is_what_is_used(monkeypatch, tmp_path):
    """A file that is exchanged after it was hashed changes nothing: one read."""
    path = tmp_path / "mnist.npz"
    content = arrays()
    save(path, monkeypatch, content)
    sha256 = hashlib.sha256

    def hash_then_exchange(raw=b""):
        monkeypatch.setattr(data.official.hashlib, "sha256", sha256)
        np.savez(path, **arrays(seed=1))
        return sha256(raw)

    monkeypatch.setattr(data.official.hashlib, "sha256", hash_then_exchange)
    d = data.load("mnist", tmp_path)
    assert data.official.hashlib.sha256 is sha256  # the file was exchanged
    assert np.array_equal(d.x[:20, 0], content["train_images"])


def test_an_npz_that_expands_is_refused_unread(monkeypatch, tmp_path):
    """The headers of a small file may promise gigabytes: they say enough."""
    monkeypatch.setenv("FEDNB_UNVERIFIED", "1")
    n = 2_000_000
    shapes = {"images": (n, 28, 28), "labels": (n,)}
    with zipfile.ZipFile(tmp_path / "mnist.npz", "w") as archive:
        for key in data.official.KEYS:
            shape = shapes[key.partition("_")[2]]
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            buffer = io.BytesIO()
            np.lib.format.write_array_header_1_0(buffer, header)
            archive.writestr(f"{key}.npy", buffer.getvalue())
    monkeypatch.setattr(data.official, "_read_array", None)  # would fail if called
    with pytest.raises(ValueError, match="3.14 GB of memory, the whole of mnist"):
        data.load("mnist", tmp_path)


def test_objects_are_never_unpickled(monkeypatch, tmp_path):
    class Bad:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    labels = np.array([Bad()] * 20, dtype=object)
    save(tmp_path / "mnist.npz", monkeypatch, change(train_labels=labels))
    with pytest.raises(ValueError, match="object labels"):
        data.load("mnist", tmp_path)
    assert not (tmp_path / "executed").exists()


def test_a_member_that_is_no_array(monkeypatch, tmp_path):
    path = tmp_path / "mnist.npz"
    save(path, monkeypatch, arrays())
    with zipfile.ZipFile(path, "w") as archive:
        for key in data.official.KEYS:
            archive.writestr(f"{key}.npy", "text")
    monkeypatch.setenv("FEDNB_UNVERIFIED", "1")
    with pytest.raises(ValueError, match="is not an npz with train_images"):
        data.load("mnist", tmp_path)


def test_a_file_too_large_is_not_read(monkeypatch, tmp_path):
    save(tmp_path / "mnist.npz", monkeypatch, arrays())
    monkeypatch.setattr(data.official, "LARGEST_FILE", 1000)
    with pytest.raises(ValueError, match="larger than any npz of mnist"):
        data.load("mnist", tmp_path)


def test_a_damaged_byte_is_noticed_also_after_loading(monkeypatch, tmp_path):
    path = tmp_path / "mnist.npz"
    save(path, monkeypatch, arrays())
    data.load("mnist", tmp_path)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ValueError, match="sha256"):
        data.load("mnist", tmp_path)


def change(**new):
    return {**arrays(), **new}


@pytest.mark.parametrize(
    "content, message",
    [
        ({"x_train": np.zeros(3)}, "train_images"),
        (change(train_images=np.zeros((20, 6, 5))), "float64 images"),
        (change(train_images=np.uint8(1)), r"images \(\)"),
        (change(train_images=np.zeros((0, 6, 5), np.uint8)), r"\(0, 6, 5\)"),
        (change(train_images=np.zeros((20, 6, 5, 2), np.uint8)), r"\(20, 6, 5, 2\)"),
        (change(test_labels=np.zeros(7, np.uint8)), r"labels \(7,\)"),
        (change(test_labels=np.zeros(10)), "float64 labels"),
        (change(test_labels=np.full(10, 10)), "labels from 10 to 10, expected 0 to 9"),
        (change(test_labels=np.full(10, -1)), "labels from -1"),
    ],
)
def test_files_of_another_form(monkeypatch, tmp_path, content, message):
    save(tmp_path / "mnist.npz", monkeypatch, content)
    with pytest.raises(ValueError, match=message):
        data.load("mnist", tmp_path)


def test_a_file_that_is_no_npz(monkeypatch, tmp_path):
    (tmp_path / "emnist.npz").write_text("<html>not found</html>")
    with pytest.raises(ValueError, match="emnist.npz is not an npz with train_images"):
        data.load("emnist", tmp_path)


def test_checksums_are_of_sets_we_know():
    files = {f"{name}.npz" for name in data.OFFICIAL}
    files |= {part.file for part in data.catalogue.PARTS.values()}
    assert set(data.catalogue.SHA256) <= files
    assert set(data.catalogue.PARTS) <= set(data.OFFICIAL)
    digests = [digest for known in data.catalogue.SHA256.values() for digest in known]
    assert all(len(digest) == 64 for digest in digests)
    assert len(set(digests)) == len(digests)


# Messages.


def test_unknown_name():
    with pytest.raises(
        ValueError, match="'fashionmnist'. Did you mean 'fashion_mnist'?"
    ) as error:
        data.load("fashionmnist")
    assert all(name in str(error.value) for name in data.names())
    with pytest.raises(ValueError, match="unknown data set 'zzz'. Known: digits"):
        data.load("zzz")


def test_names():
    every = (
        "digits mnist fashion_mnist cifar10 cifar100 emnist emnist_bymerge femnist "
        "pathmnist bloodmnist landmarks inaturalist"
    )
    assert sorted(data.names()) == sorted(every.split())


def test_a_set_that_cannot_be_had(monkeypatch, tmp_path, offline):
    with pytest.raises(FileNotFoundError) as error:
        data.load("bloodmnist", tmp_path)
    message = str(error.value)
    for part in (
        f"bloodmnist.npz or bloodmnist_partial.npz in {tmp_path}",
        f"MedMNIST's files of BloodMNIST in {tmp_path / 'cache'}",
        "a download through MedMNIST: OSError: no network\n",
        "Set FEDNB_DATA to a folder that holds bloodmnist.npz",
        "train_images, train_labels, test_images, test_labels",
        "load('digits')",
    ):
        assert part in message
    assert "second line" not in message
    assert isinstance(error.value.__cause__, OSError)


def test_a_set_that_cannot_be_had_without_a_folder(offline):
    with pytest.raises(FileNotFoundError, match="neither root nor FEDNB_DATA is set"):
        data.load("mnist")


# The packages, with their classes replaced: no network.


def fake_torchvision(calls, cls, images, labels):
    def make(root, train, download, **options):
        calls.append((root, train, download, options))
        part = slice(0, 20) if train else slice(20, 30)
        return types.SimpleNamespace(data=images[part], targets=labels[part])

    return types.SimpleNamespace(datasets=types.SimpleNamespace(**{cls: make}))


def tiny_official(monkeypatch, name, **changes):
    """Let the official set have 20 training and 10 test images, of unknown content."""
    sizes = {"train": 20, "test": 10, "arrays": ""} | changes
    monkeypatch.setitem(data.OFFICIAL, name, data.OFFICIAL[name]._replace(**sizes))


@pytest.mark.parametrize(
    "name",
    ["mnist", "fashion_mnist", "cifar10", "cifar100", "emnist", "emnist_bymerge"],
)
def test_torchvision_road(monkeypatch, tmp_path, name):
    shape = (30, 6, 6, 3) if name.startswith("cifar") else (30, 6, 6)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    labels = np.arange(30) % 10
    given = (torch.tensor(images), torch.tensor(labels))
    if name.startswith("cifar"):  # there torchvision keeps an array and a list
        given = (images, labels.tolist())
    calls = []
    fake = fake_torchvision(calls, data.OFFICIAL[name].cls, *given)
    monkeypatch.setattr(data.official, "torchvision", lambda: fake)
    tiny_official(monkeypatch, name, classes=10)
    d = data.load(name)
    cache = str(tmp_path / "cache")
    splits = {"emnist": "balanced", "emnist_bymerge": "bymerge"}
    options = {"split": splits[name]} if name in splits else {}
    assert calls == [(cache, True, True, options), (cache, False, True, options)]
    assert d.n_train == 20
    assert np.array_equal(d.y, labels)
    upright = images.swapaxes(1, 2) if name in splits else images
    if name.startswith("cifar"):
        assert np.array_equal(d.x, upright.transpose(0, 3, 1, 2))
    else:
        assert np.array_equal(d.x, upright[:, None])
    assert d.sha256 == hashlib.sha256(d.x.tobytes() + d.y.tobytes()).hexdigest()
    # with no checksum of the arrays, only CIFAR's files are verified by torchvision
    assert d.note == ("" if name.startswith("cifar") else "unverified")
    assert data.load(name) is d and len(calls) == 2


@pytest.mark.parametrize("name", ["pathmnist", "bloodmnist"])
def test_medmnist_road(monkeypatch, tmp_path, name):
    content, calls = arrays(name, colour=True), []
    content["train_labels"] = (np.arange(20) % 8)[:, None]  # every class
    content["test_labels"] = (np.arange(10) % 8)[:, None]

    def download_url(url, root, filename, md5):
        calls.append((url, root, filename, md5))
        np.savez(Path(root) / filename, **content)

    utils = types.SimpleNamespace(download_url=download_url)
    fake = types.SimpleNamespace(datasets=types.SimpleNamespace(utils=utils))
    monkeypatch.setattr(data.official, "torchvision", lambda: fake)
    tiny_official(monkeypatch, name, classes=8)
    d = data.load(name)
    official = data.OFFICIAL[name]
    file = f"{name}.npz"
    assert calls == [(official.url, str(tmp_path / "cache"), file, official.md5)]
    assert f"/{file}?" in official.url and len(official.md5) == 32
    assert d.x.shape == (30, 3, 6, 5) and d.n_train == 20 and d.note == ""
    assert np.array_equal(d.y[:20], content["train_labels"].ravel())
    assert np.array_equal(d.x[20:], content["test_images"].transpose(0, 3, 1, 2))


def test_medmnist_is_verified_by_its_md5(monkeypatch, tmp_path):
    """torchvision keeps a file whose md5 is right, and asks the network otherwise."""
    content = arrays("bloodmnist", colour=True)
    content["train_labels"] = np.arange(20) % 8
    content["test_labels"] = np.arange(10) % 8
    (tmp_path / "cache").mkdir()
    path = tmp_path / "cache" / "bloodmnist.npz"
    np.savez(path, **content)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    nowhere = "file:///nowhere/bloodmnist.npz"
    tiny_official(monkeypatch, "bloodmnist", url=nowhere, md5=md5)
    assert data.load("bloodmnist").note == ""
    data.official._from_package.cache_clear()
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(FileNotFoundError, match="a download through MedMNIST"):
        data.load("bloodmnist")


# What a package's files hold is verified.


def zeros_in_the_cache(tmp_path):
    """The attack: torchvision reads processed/*.pt if it is there, unverified."""
    folder = tmp_path / "cache" / "MNIST" / "processed"
    folder.mkdir(parents=True)
    for file, n in (("training.pt", 20), ("test.pt", 10)):
        content = (torch.zeros(n, 6, 6, dtype=torch.uint8), torch.arange(n) % 10)
        torch.save(content, folder / file)


def test_wrong_files_in_the_cache_are_refused(monkeypatch, tmp_path):
    zeros_in_the_cache(tmp_path)
    with pytest.raises(ValueError, match="do not hold mnist: 20 of 60,000 training"):
        data.load("mnist")
    tiny_official(monkeypatch, "mnist", arrays="f" * 64)
    data.official._from_package.cache_clear()
    with pytest.raises(ValueError, match=f"sha256 .*, expected {'f' * 64}. Delete"):
        data.load("mnist")
    with pytest.raises(ValueError, match="FEDNB_UNVERIFIED=1"):
        data.load("mnist")  # also at the second try, from memory
    monkeypatch.setenv("FEDNB_UNVERIFIED", "1")
    accepted = data.load("mnist")
    assert accepted.note == "unverified"
    monkeypatch.delenv("FEDNB_UNVERIFIED")
    tiny_official(monkeypatch, "mnist", arrays=accepted.sha256)
    data.official._from_package.cache_clear()
    assert data.load("mnist").note == ""


def test_a_package_without_some_class_is_refused(monkeypatch, tmp_path):
    images = np.zeros((30, 6, 6), np.uint8)
    fake = fake_torchvision([], "EMNIST", images, np.arange(30) % 9)
    monkeypatch.setattr(data.official, "torchvision", lambda: fake)
    tiny_official(monkeypatch, "emnist")
    with pytest.raises(ValueError, match="9 of 47 classes in the training images"):
        data.load("emnist")


def test_known_arrays_are_those_of_the_known_files():
    """The npz and the package hold the same images: one is the check of the other."""
    path = REAL / "mnist.npz"
    if not path.is_file():
        pytest.skip("no mnist.npz in FEDNB_DATA or ../shared/data")
    d = data.load("mnist", REAL)
    arrays = hashlib.sha256(d.x.tobytes() + d.y.tobytes()).hexdigest()
    assert arrays == data.OFFICIAL["mnist"].arrays


def test_a_file_comes_before_the_packages(monkeypatch, tmp_path, offline):
    save(tmp_path / "mnist.npz", monkeypatch, arrays())
    assert data.load("mnist", tmp_path).n_train == 20


def test_torchvision_imports_in_a_fresh_process():
    code = """
import sys
from fednb.models import torchvision
assert "torchvision" not in sys.modules  # import fednb stays light
tv = torchvision()
assert torchvision() is tv is sys.modules["torchvision"]
import torch, torchvision.transforms
network = tv.models.resnet18(num_classes=3).eval()
assert network(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
assert tv.datasets.CIFAR10
children = [m.split(".")[1] for m in sys.modules if m.startswith("torchvision.")]
# nothing of the failed import is left behind
assert not [m for m in children if not hasattr(tv, m)]
print("fine")
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "fine\n", run.stderr


def test_a_download_without_torchvision_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(FileNotFoundError, match=r'pip install "fednb\[papers\]"'):
        data.load("mnist")


def test_torchvision_failing_otherwise_is_not_hidden(monkeypatch):
    def fail(name):
        raise RuntimeError("something else")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(RuntimeError, match="something else"):
        models.torchvision()


# The real files, where they are.

slow = pytest.mark.skipif(
    "FEDNB_SLOW" not in os.environ,
    reason="set FEDNB_SLOW=1 to read the large files too",
)


def has_whole_cifar10():
    path = REAL / "cifar10.npz"
    return path.is_file() and path.stat().st_size > 100_000_000


@pytest.mark.parametrize(
    "name, shape, n_train, note",
    [
        ("mnist", (70_000, 1, 28, 28), 60_000, ""),
        (
            "pathmnist",
            (11_799, 3, 28, 28),
            9_999,
            "9,999 of 89,996 training images, 1,800 of 7,180 test images",
        ),
        pytest.param("fashion_mnist", (70_000, 1, 28, 28), 60_000, "", marks=slow),
        pytest.param(
            "cifar10", (24_000, 3, 32, 32), 20_000, "20,000 of 50,000", marks=slow
        ),
        pytest.param(
            "cifar100", (24_000, 3, 32, 32), 20_000, "20,000 of 50,000", marks=slow
        ),
        pytest.param(
            "bloodmnist",
            (7_555, 3, 28, 28),
            5_657,
            "partial: 7,555 of 15,380",
            marks=slow,
        ),
        pytest.param(
            "emnist_bymerge",
            (116_323, 1, 28, 28),
            100_000,
            "partial: the 116,323 images of the official test part, "
            "re-split at random 100,000 / 16,323",
            marks=slow,
        ),
    ],
)
def test_real_files(name, shape, n_train, note):
    if not list(REAL.glob(f"{name}*.npz")):
        pytest.skip(f"no {name} npz in FEDNB_DATA or ../shared/data")
    if name == "cifar10" and has_whole_cifar10():
        pytest.skip("FEDNB_DATA has the whole of cifar10: see the test below")
    d = data.load(name, REAL)
    assert d.x.shape == shape and d.n_train == n_train and d.note.startswith(note)
    assert len(np.unique(d.y)) == d.classes == data.OFFICIAL[name].classes
    if name == "mnist":
        assert (d.mean[0], d.std[0]) == pytest.approx(
            (0.1307, 0.3081), abs=1e-4
        )  # as everyone uses them


@slow
def test_the_whole_of_cifar10():
    if not has_whole_cifar10():
        pytest.skip("FEDNB_DATA has no cifar10.npz with all 60,000 images")
    d = data.load("cifar10", REAL)
    assert (d.x.shape, d.n_train, d.note) == ((60_000, 3, 32, 32), 50_000, "")
    assert (np.bincount(d.y[:50_000]) == 5_000).all()
    assert (np.bincount(d.y[50_000:]) == 1_000).all()
    assert d.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-4)  # as published
