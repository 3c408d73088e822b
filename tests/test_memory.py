"""What takes how much memory: properties of sizes, not of seconds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fednb import data
from fednb.data import Dataset
from fednb.federation import Federation
from fednb.training import Pixels

from .conftest import NETWORKS, blobs, ragged
from .test_data import arrays, save


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that an operation of this thread gives."""

    numbers = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        tensors = result if isinstance(result, tuple | list) else [result]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // 4)
        return result


def pixels(samples=60, shape=(3, 6, 6), seed=0) -> Dataset:
    """Random images in uint8 with the moments that `data.load` would give them."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (samples, *shape), dtype=np.uint8)
    x.setflags(write=False)
    mean, std = data.official.moments(x)
    y = rng.integers(3, size=samples)
    return Dataset("pixels", x, y, samples, 3, mean=mean, std=std)


def test_personal_models_are_judged_in_memory_that_does_not_grow_with_their_number():
    """Neither tests x models nor all test inputs are ever in memory at once."""
    K, tests = 300, 20
    samples = K * tests
    inputs = 16
    parts = ragged((2,) * K, tests=tests)
    fed = Federation(blobs(samples=K * (2 + tests)), parts, NETWORKS["mlp"][1])
    theta = fed.start().repeat(K, 1) + torch.randn(K, 1)
    with Largest() as largest:
        fed.evaluate(theta, torch.arange(K))
    assert 0 < largest.numbers < samples * inputs < samples * K


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_become_the_inputs_that_they_would_be_all_at_once(dtype):
    dataset = pixels()
    fed = Federation(dataset, ragged((26, 26)), _network, dtype=dtype)
    shape = (1, 3, 1, 1)
    mean, std = (
        torch.tensor(m, dtype=torch.float64).view(shape).to(dtype)
        for m in (dataset.mean, dataset.std)
    )
    whole = torch.from_numpy(dataset.x.copy()).to(dtype) / 255
    whole = (whole - mean) / std
    index = torch.tensor([5, 0, 59, 5])
    assert torch.equal(fed.samples(index)[0], whole[index])
    assert torch.equal(fed.backend.x.index_select(0, index), whole[index])
    assert torch.equal(fed.backend.x[index.view(2, 2)], whole[index.view(2, 2)])


def test_pixels_train_as_their_inputs_do():
    """The same bits as a federation that was given the normalised numbers."""
    dataset = pixels()
    made = Federation(dataset, ragged((26, 26)), _network)
    inputs = made.samples(torch.arange(60))[0].numpy()
    given = replace(dataset, x=inputs, mean=None, std=None)
    other = Federation(given, ragged((26, 26)), _network)
    a, b = (fed.train(fed.start()[0]) for fed in (made, other))
    assert torch.equal(a.theta, b.theta) and torch.equal(a.losses, b.losses)
    assert torch.equal(made.loss(a.theta), other.loss(a.theta))


def _network():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 3))


def test_a_federation_holds_no_copy_of_read_only_pixels():
    dataset = pixels()
    fed = Federation(dataset, ragged((26, 26)), _network)
    assert isinstance(fed.backend.x, Pixels)
    assert np.shares_memory(fed.backend.x.raw.numpy(), dataset.x)


def test_a_federation_does_not_follow_pixels_that_are_overwritten():
    dataset = pixels()
    dataset = replace(dataset, x=dataset.x.copy())
    fed = Federation(dataset, ragged((26, 26)), _network)
    before = fed.samples(torch.arange(60))[0]
    dataset.x[:] = 0
    assert torch.equal(fed.samples(torch.arange(60))[0], before)


# --- pixels that processes share ---------------------------------------------------


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A data folder with a tiny npz, and a cache for its pixels."""
    for name in ("FEDNB_DATA", "FEDNB_UNVERIFIED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(data.official, "WORTH_SHARING", 1)
    data.official._from_file.cache_clear()
    save(tmp_path / "cifar10.npz", monkeypatch, arrays("cifar10", colour=True))
    unknown = data.load("cifar10", tmp_path)
    assert not is_mapped(unknown)  # only what we know can be checked, and is shared
    known = {unknown.sha256[:16]: data.fingerprint(unknown)}
    monkeypatch.setattr(data.official, "FINGERPRINTS", known)
    yield tmp_path
    data.official._from_file.cache_clear()


def again(root) -> Dataset:
    """Load as another process would: without what this one remembers."""
    data.official._from_file.cache_clear()
    return data.load("cifar10", root)


def is_mapped(dataset: Dataset) -> bool:
    return isinstance(dataset.x.base, np.memmap) and not dataset.x.flags.writeable


def test_pixels_are_unpacked_once_and_mapped_by_all(folder, monkeypatch):
    monkeypatch.setattr(data.official, "WORTH_SHARING", 2**24)
    plain = again(folder)
    monkeypatch.setattr(data.official, "WORTH_SHARING", 1)
    first = again(folder)
    assert not is_mapped(plain) and is_mapped(first)

    def unpacked(member):
        raise AssertionError("unpacked again")

    monkeypatch.setattr(data.official, "_read_array", unpacked)
    second = again(folder)
    assert is_mapped(second)
    assert np.array_equal(second.x, plain.x) and np.array_equal(second.y, plain.y)
    for name, value in vars(plain).items():
        if name not in ("x", "y"):
            assert getattr(second, name) == value == getattr(first, name)
    assert data.fingerprint(second) == data.fingerprint(plain)
    assert not second.y.flags.writeable and second.y.dtype == np.int64


def test_the_known_files_have_known_fingerprints():
    known = {
        checksum[:16] for kinds in data.catalogue.SHA256.values() for checksum in kinds
    }
    assert set(data.catalogue.FINGERPRINTS) == known


def test_forged_pixels_do_not_pass_for_a_known_set(folder):
    """Pixels and facts that agree with each other, and with nothing that we know."""
    whole = again(folder)
    (file,) = (folder / "cache" / "pixels").glob("*.npy")
    forged = replace(whole, x=np.zeros_like(whole.x))
    data.official._write_mapped(file, forged)
    assert np.array_equal(again(folder).x, whole.x)


@pytest.mark.parametrize("damage", ["short", "changed", "no facts", "other facts"])
def test_damaged_pixels_are_unpacked_anew(folder, damage):
    whole = again(folder).x.copy()
    (file,) = (folder / "cache" / "pixels").glob("*.npy")
    facts = file.with_suffix(".json")
    content = file.read_bytes()
    if damage == "short":
        file.write_bytes(content[:-7])
    if damage == "changed":
        file.write_bytes(content[:-7] + b"1234567")
    if damage == "no facts":
        facts.unlink()
    if damage == "other facts":
        facts.write_text("[]")
    found = again(folder)
    assert is_mapped(found) and np.array_equal(found.x, whole)


def test_a_cache_that_cannot_be_written_leaves_the_set_in_memory(folder, monkeypatch):
    (folder / "cache").write_text("a file where a folder should be")
    found = again(folder)
    assert not is_mapped(found) and found.x.shape == (30, 3, 6, 5)
