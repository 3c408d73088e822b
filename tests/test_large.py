"""The large federations of users and photographs, in tiny folders made here, and the
network they are meant for.
"""

import hashlib
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fednb import data, models, partition
from fednb.federation import ClientError, Federation
from fednb.methods import FedAvg
from fednb.sweeps import Task
from fednb.training import Local

from .conftest import blobs, ragged

USERS = ["ann", "bob", "ann", "NA", "bob", "ann", "eve", "bob", "ann", "bob"]
CLASSES = [0, 1, 2, 0, 1, 2, 3, 1, 0, 2]
TESTS = [3, 1, 0]


def picture(i: int) -> np.ndarray:  # (H, W, 3)
    """A smooth picture of its own colour, wide or tall, with a left third and a top
    third that must be cut off.
    """
    shape = (48, 144, 3) if i % 2 else (144, 48, 3)
    pixels = np.full(shape, 255, np.uint8)
    pixels[48:96] = pixels[:, 48:96] = (
        20 * i
    )  # the middle, whichever way the picture lies
    return pixels


def places(images: Path, layout: str, i: str) -> Path:
    return images.joinpath(
        {"flat": ".", "letters": "/".join(i[:3]), "species": f"train/Aves/{i[-1]}"}[
            layout
        ]
    )


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Make a folder of lists and images for a federation of 10 + 3 photographs, of 4
    classes.
    """
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDNB_DATA", raising=False)

    def make(
        kind: str = "landmarks",
        layout: str = "letters",
        lists: str = "federated_train.csv",
    ) -> Path:
        monkeypatch.setitem(
            data.PUBLISHED, kind, data.PUBLISHED[kind]._replace(classes=4)
        )
        home = tmp_path / kind
        home.mkdir()
        ids = [hashlib.md5(bytes([i])).hexdigest() for i in range(13)]
        for i, name in enumerate(ids):
            place = places(home / "images", layout, name)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture(i)).save(place / f"{name}.jpg", quality=95)
        train = [f"{u},{i},{c}" for u, i, c in zip(USERS, ids, CLASSES, strict=False)]
        test = [f"{i},{c}" for i, c in zip(ids[10:], TESTS, strict=True)]
        (home / lists).write_text("\n".join(["user_id,image_id,class", *train]))
        (home / "test.csv").write_text("\n".join(["image_id,class", *test]))
        return tmp_path

    return make


@pytest.mark.parametrize(
    "kind, layout, lists",
    [
        ("landmarks", "letters", "federated_train.csv"),
        ("landmarks", "flat", "federated_train.csv"),
        ("inaturalist", "species", "federated_train_user_120k.csv"),
    ],
)
def test_photographs_become_rows(folder, kind, layout, lists):
    root = folder(kind, layout, lists)
    d = data.load(f"{kind}(side=24)", root)
    assert (
        d.x.shape == (13, 3, 24, 24)
        and d.x.dtype == np.uint8
        and d.n_train == 10
        and d.classes == 4
    )
    assert d.y.tolist() == CLASSES + TESTS and d.y.dtype == np.int64
    for i in range(13):  # of each picture its middle, in the order of the lists
        assert abs(d.x[i, :, 2:-2, 2:-2].astype(int) - 20 * i).max() <= 3
    x = d.x[:10] / 255
    assert d.mean == pytest.approx(x.mean((0, 2, 3))) and d.std == pytest.approx(
        x.std((0, 2, 3))
    )
    assert d.sha256 == hashlib.sha256(d.x.tobytes() + d.y.tobytes()).hexdigest()
    full = data.PUBLISHED[kind]
    assert d.name == f"{kind}(side=24)"
    assert d.note == (
        f"images cut to 24 x 24, 10 of {full.train:,} training images, "
        f"3 of {full.test:,} test images"
    )


def test_the_plain_name_has_64_pixels_and_the_environment_is_heeded(
    folder, monkeypatch
):
    monkeypatch.setenv("FEDNB_DATA", str(folder()))
    d = data.load("landmarks")
    assert (
        d.x.shape[2:] == (64, 64)
        and data.load("landmarks(64)") is d
        and {"landmarks", "inaturalist"} <= {*data.names()}
    )


def test_pixels_are_mapped_read_only_and_outlive_the_images(folder):
    root = folder()
    first = data.load("landmarks(side=8)", root)
    assert (
        isinstance(first.x.base, np.memmap)
        and not first.x.flags.writeable
        and not first.y.flags.writeable
    )
    (pixels,) = (root / "landmarks").glob("pixels_8_*.npy")
    for image in (root / "landmarks").rglob("*.jpg"):
        image.unlink()
    data.photographs._from_images.cache_clear()
    again = data.load("landmarks(side=8)", root)
    assert again is not first and np.array_equal(again.x, first.x)
    assert (again.sha256, again.mean, again.std) == (
        first.sha256,
        first.mean,
        first.std,
    )
    assert not list((root / "landmarks").glob("*.part"))
    pixels.write_bytes(pixels.read_bytes()[:-5])
    data.photographs._from_images.cache_clear()
    with pytest.raises(ValueError, match=r"pixels_8_\w+.npy is damaged .*delete it"):
        data.load("landmarks(side=8)", root)


def test_new_lists_mean_new_pixels(folder):
    root = folder()
    first, lists = (
        data.load("landmarks(side=8)", root),
        root / "landmarks" / "federated_train.csv",
    )
    lists.write_text("\n".join(lists.read_text().splitlines()[:-1]))
    os.utime(lists, ns=(1, 1))
    assert data.load("landmarks(side=8)", root).n_train == 9 and first.n_train == 10


def test_a_read_only_folder_leaves_the_pixels_in_the_cache(folder, monkeypatch):
    root = folder()
    monkeypatch.setattr(data.photographs.os, "access", lambda path, mode: False)
    d = data.load("landmarks(side=8)", root)
    assert d.x.shape == (13, 3, 8, 8) and not list((root / "landmarks").glob("pixels*"))
    assert len(list((root / "cache" / "landmarks").glob("pixels_8_*.npy"))) == 1


def test_grey_pictures_have_three_channels(folder):
    root = folder(layout="flat")
    image = next((root / "landmarks" / "images").glob("*.jpg"))
    Image.fromarray(np.full((9, 12), 77, np.uint8)).save(image)
    x = data.load("landmarks(side=6)", root).x
    assert (abs(x.astype(int) - 77).max((1, 2, 3)) <= 1).sum() == 1


# What is missing or wrong is told.


def test_absent_lists_say_what_to_put_where(folder, monkeypatch):
    with pytest.raises(FileNotFoundError, match="neither root nor FEDNB_DATA is set"):
        data.load("inaturalist")
    root = folder()
    (root / "landmarks" / "test.csv").unlink()
    with pytest.raises(FileNotFoundError) as error:
        data.load("landmarks", root)
    parts = (
        "federated_train*.csv, and test.csv",
        str(root / "landmarks"),
        "Landmarks-User-160k",
    )
    for part in (
        *parts,
        "Google Landmarks Dataset v2",
        "landmarks/images",
        "<image_id>.jpg",
        "FEDNB_DATA",
    ):
        assert part in str(error.value)
    assert "//" not in str(error.value)  # names, no hosts


def test_two_training_lists_are_one_too_many(folder):
    root = folder()
    (root / "landmarks" / "federated_train_geo_1k.csv").write_text(
        "user_id,image_id,class\n1,a,0\n"
    )
    with pytest.raises(FileNotFoundError, match="one federated_train"):
        data.load("landmarks", root)


def test_absent_images_are_counted_and_named(folder):
    root = folder()
    lost = sorted(
        (root / "landmarks" / "images").rglob("*.jpg"), key=lambda path: path.name
    )[:4]
    for image in lost:
        image.unlink()
    message = "4 of 13 images are not in .*images or below it, "
    message += rf"such as {lost[0].name}, .* Google Landmarks"
    with pytest.raises(FileNotFoundError, match=message):
        data.load("landmarks", root)


def test_a_broken_image_is_named_and_leaves_nothing_that_looks_whole(folder):
    root = folder()
    image = next((root / "landmarks" / "images").rglob("*.jpg"))
    image.write_bytes(image.read_bytes()[:300])
    with pytest.raises(ValueError, match=f"{image.name} is not a whole image"):
        data.load("landmarks(side=8)", root)
    assert not list((root / "landmarks").glob("pixels*.npy"))
    Image.fromarray(picture(0)).save(image)
    assert (
        len(data.load("landmarks(side=8)", root).x) == 13
    )  # and the next try starts anew


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "user,image_id,class\n1,a,0\n",
            "federated_train.csv is not a list with the columns "
            "user_id, image_id, class",
        ),
        ("user_id,image_id,class\n1,a,dog\n", "is not a list"),
        ("", "is not a list"),
        ("user_id,image_id,class\n", "at least one row"),
        ("user_id,image_id,class\n1,a,4\n", "classes from 0 to 3"),
    ],
)
def test_lists_of_another_form(folder, text, message):
    root = folder()
    (root / "landmarks" / "federated_train.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        data.load("landmarks", root)


@pytest.mark.parametrize(
    "name",
    [
        "landmarks(side=0)",
        "landmarks(side=1.5)",
        "landmarks(width=3)",
        "landmarks(",
        "landmarks(x)",
    ],
)
def test_sides_that_are_none(name):
    with pytest.raises(ValueError, match=r"landmarks\("):
        data.load(name)


# Who holds what.


def test_users_are_the_clients(folder):
    root = folder()
    d = data.load("landmarks(side=8)", root)
    parts = data.as_published(d.y[:10], "landmarks(side=8)", root=root, test=0.25)
    held = [sorted([*a, *b]) for a, b in zip(parts.train, parts.test, strict=True)]
    assert held == [[0, 2, 5, 8], [1, 4, 7, 9]] and [
        len(own) for own in parts.test
    ] == [1, 1]
    pixels = list((root / "landmarks").glob("pixels*.npy"))
    everyone = data.as_published(d.y[:10], "landmarks", root=root, min_size=1)
    assert [len(own) for own in everyone.train] == [3, 3, 1, 1] and [
        len(own) for own in everyone.test
    ] == [1, 1, 0, 0]
    assert (
        list((root / "landmarks").glob("pixels*.npy")) == pixels
    )  # users have no size: nothing new is made
    with pytest.raises(ValueError, match="these 13 labels are not the training labels"):
        data.as_published(d.y, "landmarks(side=8)", root=root)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=6, max_size=60),
    st.integers(1, 3),
    st.sampled_from([0, 0.2, 0.5]),
    st.integers(0, 5),
)
def test_by_user_deals_each_user_its_own(pairs, min_size, test, seed):
    users, y = np.array(pairs).T
    sizes = np.bincount(users)
    if sizes.max() < min_size:
        with pytest.raises(ValueError, match="no user has min_size"):
            partition.by_user(y, users, min_size=min_size)
        return
    parts = partition.by_user(y, users, seed=seed, test=test, min_size=min_size)
    kept = np.flatnonzero(sizes >= min_size)
    assert len(parts.train) == len(kept) and parts.truth is None
    for k, train, held in zip(kept, parts.train, parts.test, strict=True):
        assert np.array_equal(
            np.sort(np.concatenate([train, held])), np.flatnonzero(users == k)
        )
        assert len(train) >= 1 and len(held) == (
            min(max(round(test * sizes[k]), 1), sizes[k] - 1) if test else 0
        )
        share = len(held) / sizes[k]  # stratified, to within one sample of each class
        assert (
            abs(
                np.bincount(y[held], minlength=4)
                - share * np.bincount(y[users == k], minlength=4)
            )
            <= 1
        ).all()


def test_by_user_keeps_the_largest_in_their_order():
    users = np.repeat([3, 1, 4, 2, 0], [5, 2, 5, 7, 3])
    parts = partition.by_user(np.zeros(22, int), users, clients=2, test=0)
    assert [set(users[own].tolist()) for own in parts.train] == [
        {2},
        {3},
    ]  # 3 and 4 have five each: the first stays
    assert all(
        np.array_equal(a, b)
        for a, b in zip(
            parts.train,
            partition.by_user(users * 0, users, 2, test=0).train,
            strict=True,
        )
    )
    for wrong, message in (
        ({"clients": 6}, "clients = 6"),
        ({"min_size": 8}, "no user"),
        ({"test": 1}, "test = 1"),
    ):
        with pytest.raises(ValueError, match=message):
            partition.by_user(np.zeros(22, int), users, **wrong)
    with pytest.raises(ValueError, match=r"users of shape \(21,\)"):
        partition.by_user(np.zeros(22, int), users[1:])


def test_seeds_hold_out_other_samples():
    users, y = np.repeat([0, 1], 40), np.tile([0, 1, 2, 3], 20)
    a, b, c = (partition.by_user(y, users, seed=seed).test for seed in (0, 0, 1))
    assert all(map(np.array_equal, a, b)) and not all(map(np.array_equal, a, c))


def test_a_published_federation_is_a_task(folder, monkeypatch):
    """The road of the paper profile: a record from lists and photographs, with
    MobileNetV2.
    """
    monkeypatch.setenv("FEDNB_DATA", str(folder()))
    task = Task(
        FedAvg(),
        "landmarks(side=33)",
        partial(data.as_published, name="landmarks", clients=2),
        partial(models.mobilenet_v2, classes=4),
        Local(lr=0.01, steps=1, batch_size=3),
        rounds=1,
        options={"backend": "lean"},
    )
    record = task.record()
    assert (
        record["partition"] == "as_published(name='landmarks', clients=2)"
        and record["client_updates"] == 2
    )
    assert (
        record["data_note"].startswith("images cut to 33 x 33")
        and record["metrics"]["final"]["loss"] > 0
    )
    assert len(task.federation()._server) == 3  # the published test images
    json.dumps(record)


def test_femnist_is_emnist_by_class(monkeypatch, tmp_path):
    import types

    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path))
    monkeypatch.delenv("FEDNB_DATA", raising=False)
    asked = []

    def make(root, train, download, split):
        asked.append(split)
        return types.SimpleNamespace(
            data=torch.arange(62 * 6, dtype=torch.uint8).view(62, 2, 3),
            targets=torch.arange(62),
        )

    fake = types.SimpleNamespace(datasets=types.SimpleNamespace(EMNIST=make))
    monkeypatch.setattr(data.official, "torchvision", lambda: fake)
    official = data.OFFICIAL["femnist"]._replace(train=62, test=62)
    monkeypatch.setitem(data.OFFICIAL, "femnist", official)
    data.official._from_package.cache_clear()
    d = data.load("femnist")
    data.official._from_package.cache_clear()
    assert (
        asked == ["byclass", "byclass"]
        and d.classes == 62
        and d.note == "EMNIST by class, writers unknown, unverified"
    )
    assert d.x[0, 0].tolist() == [
        [0, 3],
        [1, 4],
        [2, 5],
    ]  # the files hold every image transposed


# The network.


def large(backend: str, side: int = 33, sizes=(5, 4), **options) -> Federation:
    network = options.pop("network", {"dropout": 0})
    local = Local(lr=0.05, batch_size=4, steps=1)
    model = partial(models.mobilenet_v2, classes=3, **network)
    return Federation(
        blobs(20, (3, side, side)),
        ragged(sizes, 2),
        model,
        local=local,
        backend=backend,
        **options,
    )


def test_mobilenet_trains_alike_in_both_backends():
    lean, batched = (large(b, dtype=torch.float64) for b in ("lean", "batched"))
    theta = lean.start()[0]
    a, b = lean.train(theta), batched.train(theta)
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-7)
    P, D = lean.layout.P, lean.layout.D
    assert (
        P == 2_223_872 + 3 * 1281 and D - P == 2 * 17_056
    )  # parameters, then means and variances of BatchNorm
    assert not torch.equal(a.theta[0, :P], theta[:P]) and not torch.equal(
        a.theta[0, P:], theta[P:]
    )
    assert lean.evaluate(a.theta, torch.arange(2)).loss.isfinite().all()


def test_dropout_wants_the_lean_backend():
    with pytest.raises(ValueError, match='use backend="lean"'):
        large("batched", network={})
    fed = large("lean", network={})
    assert fed.train(fed.start()[0]).theta.isfinite().all()


def test_a_batch_of_one_tiny_picture_is_refused_with_the_client():
    fed = large("lean", side=32, sizes=(4, 1))
    with pytest.raises(ClientError, match="client 1: .*more than 1 value per channel"):
        fed.train(fed.start()[0])


def test_pretrained_layers_are_torchvisions_and_the_last_is_fresh(
    monkeypatch, tmp_path
):
    weights = models.torchvision().models.MobileNet_V2_Weights.IMAGENET1K_V1
    torch.manual_seed(1)
    known = models.torchvision().models.mobilenet_v2().state_dict()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(known, tmp_path / "hub" / "checkpoints" / weights.url.rpartition("/")[2])
    torch.manual_seed(2)
    net, plain = models.mobilenet_v2(5, pretrained=True), models.mobilenet_v2(5)
    body = {name: t for name, t in net.state_dict().items() if name.startswith("0.")}
    assert len(body) == 312 and all(
        torch.equal(t, known[f"features.{name[2:]}"]) for name, t in body.items()
    )
    assert net[-1].weight.shape == (5, 1280)
    assert not torch.equal(net[0][0][0].weight, plain[0][0][0].weight)


def test_pretrained_weights_that_cannot_be_had(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def fail(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(
        FileNotFoundError,
        match=r"OSError: no network.*mobilenet_v2-b0353104.pth into .*checkpoints",
    ):
        models.mobilenet_v2(5, pretrained=True)
