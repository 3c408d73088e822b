"""The laws of the arena: shifted views, permuted labels, unequal sizes, validation."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednb import data, methods, models, partition
from fednb.federation import Federation
from fednb.partition import Partition, class_counts
from fednb.sweeps import Task
from fednb.training import Local

from .conftest import NETWORKS, blobs, federation, ragged
from .test_partition import BALANCED, counts, own, same

VIEWS = ("plain", "rotate 90", "rotate 180", "rotate 270", "invert", "noise", "blur")
SMALL = {"base": "digits", "size": 30}


def images(kinds, clients=None, **options):
    """Samples of each group, in the order of its clients, as pixels in [0, 1]."""
    clients = clients or (3,) * len(kinds)
    dataset, parts = data.shifted(
        kinds=kinds, clients=clients, **SMALL | {"blur": 1.0} | options
    )
    source = data.load("digits")
    x = dataset.x * np.reshape(source.std, (-1, 1, 1)) + np.reshape(
        source.mean, (-1, 1, 1)
    )
    rows = [np.sort(np.concatenate(pair)) for pair in zip(*parts[:2], strict=True)]
    groups = [
        np.concatenate([rows[k] for k in np.flatnonzero(parts.truth == g)])
        for g in range(len(kinds))
    ]
    return [x[i] for i in groups], [dataset.y[i] for i in groups]


# --- shifted -------------------------------------------------------------------------


@pytest.mark.parametrize("official", [False, True])
@settings(max_examples=8, deadline=None)
@given(
    clients=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    size=st.integers(20, 40),
    seed=st.integers(0, 99),
)
def test_every_sample_is_dealt_once_with_its_group(official, clients, size, seed):
    kinds = ("plain", "rotate 90", "relabel", "noise")[: len(clients)]
    dataset, parts = data.shifted(
        "digits",
        kinds,
        clients,
        size,
        test=0.0 if official else 0.25,
        official=official,
        seed=seed,
    )
    dealt = np.sort(np.concatenate([*parts.train, *parts.test]))
    assert np.array_equal(dealt, np.arange(dataset.n_train))
    assert len(dataset.x) == dataset.n_train
    assert parts.truth.tolist() == np.repeat(range(len(clients)), clients).tolist()
    for k in range(sum(clients)):
        whole = len(parts.train[k]) + len(parts.test[k])
        assert len(parts.train[k]) == size if official else whole == size


def test_clients_train_on_training_images_and_the_server_holds_official_ones():
    source = data.load("digits")
    dataset, parts = data.shifted(
        kinds=("plain",), clients=(10,), **SMALL, test=0.0, official=True, server=4
    )
    scale = np.reshape(source.std, (-1, 1, 1))
    pixels = dataset.x * scale + np.reshape(source.mean, (-1, 1, 1))
    pixels = np.round(pixels * 255).astype(int).reshape(len(dataset.x), -1)
    base = source.x.astype(int).reshape(len(source.x), -1)
    pool = set(map(bytes, base[: source.n_train]))
    official = list(map(bytes, base[source.n_train :]))
    assert set(map(bytes, pixels[np.concatenate(parts.train)])) <= pool
    held = list(map(bytes, pixels[dataset.n_train :]))
    tested = list(map(bytes, pixels[np.concatenate(parts.test)]))
    assert set(held) | set(tested) <= set(official)
    once = {image for image in held if official.count(image) == 1}
    assert len(once) > 30 and not once & set(tested)
    assert np.bincount(dataset.y[dataset.n_train :]).tolist() == [4] * 10


@pytest.mark.parametrize("kind", VIEWS)
def test_what_each_group_sees(kind):
    """The second group's images are the plain ones, turned, inverted, or spoiled."""
    (_, plain), (_, y) = images(("plain", "plain"))
    (first, seen), (_, y_seen) = images(("plain", kind))
    assert np.array_equal(y, y_seen)
    np.testing.assert_allclose(first, images(("plain", "plain"))[0][0], atol=1e-6)
    if kind.startswith("rotate"):
        for _ in range(int(kind.split()[1]) // 90):
            seen = np.rot90(seen, -1, axes=(2, 3))
        np.testing.assert_allclose(seen, plain, atol=1e-6)
    elif kind == "invert":
        np.testing.assert_allclose(1 - seen, plain, atol=1e-5)
        assert seen.min() >= -1e-5 and seen.max() <= 1 + 1e-5
    elif kind == "noise":
        std = data.load("digits").std[0]
        spread = (seen - plain).std()
        assert spread == pytest.approx(std, rel=0.05)
    elif kind == "blur":
        assert seen.std() < 0.8 * plain.std()
        np.testing.assert_allclose(seen.mean(), plain.mean(), rtol=0.05)
    else:
        np.testing.assert_allclose(seen, plain, atol=1e-6)


def test_a_rotation_by_ninety_degrees_is_counterclockwise():
    (_, plain), _ = images(("plain", "plain"))
    (_, seen), _ = images(("plain", "rotate 90"))
    np.testing.assert_allclose(seen[0, 0, -1, 0], plain[0, 0, 0, 0], atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99))
def test_relabelling_is_a_bijection_of_the_classes_in_each_group(seed):
    kinds = ("plain", "relabel", "relabel")
    plain_x, plain_y = images(("plain",) * 3, seed=seed)
    x, y = images(kinds, seed=seed)
    assert np.array_equal(plain_y[0], y[0])
    maps = []
    for g in (1, 2):
        np.testing.assert_array_equal(x[g], plain_x[g])  # inputs stay
        pairs = set(zip(plain_y[g].tolist(), y[g].tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        maps.append(sorted(pairs))
    assert maps[0] != maps[1]


def test_the_same_seed_deals_the_same_and_another_does_not():
    call = "shifted('digits', ('noise', 'relabel'), (2, 3), 30, seed={})"
    a, b = (data.shifted("digits", ("noise", "relabel"), (2, 3), 30) for _ in range(2))
    assert data.fingerprint(a[0]) == data.fingerprint(b[0]) and same(a[1], b[1])
    other = data.shifted("digits", ("noise", "relabel"), (2, 3), 30, seed=1)
    assert data.fingerprint(a[0]) != data.fingerprint(other[0])
    named = data.load(call.format(1))
    assert data.fingerprint(named) == data.fingerprint(other[0])
    again = data.load(named.name)  # the name is the call that draws it again
    assert data.fingerprint(again) == data.fingerprint(named)


def test_the_server_can_probe_a_shifted_federation():
    name = "shifted('digits', ('plain', 'invert'), (2, 2), 30, server=5)"
    dataset = data.load(name)
    y = dataset.y[: dataset.n_train]
    fed = Federation(dataset, data.as_generated(y, name), partial(models.mlp, 64, (8,)))
    x, labels = fed.probe(5)
    assert len(x) == 50 and np.bincount(labels).tolist() == [5] * 10


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kinds": ("plain", "upside down")}, "kinds"),
        ({"kinds": "plain"}, "kinds"),
        ({"kinds": ()}, "kinds"),
        ({"kinds": ("plain",)}, "a number of clients for each kind"),
        ({"clients": (3, 0, 1, 1)}, "clients"),
        ({"clients": 4}, "clients"),
        ({"size": 1}, "size"),
        ({"noise": -1.0}, "noise"),
        ({"blur": float("nan")}, "blur"),
        ({"server": -1}, "server"),
        ({"server": 1000}, "lower server"),
        ({"seed": -1}, "seed"),
        ({"base": "synthetic()"}, "need a data set of images"),
        ({"size": 10_000}, "lower size"),
    ],
    ids=str,
)
def test_bad_arguments_of_shifted_are_told(wrong, words):
    with pytest.raises(ValueError, match=words):
        data.shifted(**SMALL | wrong)


# --- quantity skew -------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    clients=st.integers(1, 30),
    alpha=st.sampled_from([0.05, 0.5, 1.0, 50.0, float("inf")]),
    seed=st.integers(0, 99),
    test=st.sampled_from([0, 0.2, 0.5]),
)
def test_quantity_skew_deals_every_sample_once(clients, alpha, seed, test):
    part = partition.quantity_skew(
        BALANCED, clients, alpha, seed=seed, test=test, min_size=5
    )
    dealt = np.concatenate(own(part))
    assert np.array_equal(np.sort(dealt), np.arange(len(BALANCED)))
    assert counts(part).sum(1).min() >= 5
    assert part.truth.tolist() == [0] * clients


def test_a_smaller_alpha_makes_sizes_less_equal():
    y = np.repeat(np.arange(10), 400)
    spread = []
    for alpha in (0.2, 1.0, 10.0, 1000.0):
        sizes = [
            counts(partition.quantity_skew(y, 20, alpha, seed=seed), y).sum(1).std()
            for seed in range(10)
        ]
        spread.append(np.mean(sizes))
    assert spread[0] > 1.5 * spread[1] > 3 * spread[2] > 3 * spread[3]
    assert spread[3] < 1  # equal, to within one


def test_sizes_of_a_quantity_skew_have_the_variance_of_their_law():
    """A share of Dir(α·1) over K clients has variance (K − 1) / (K² (K α + 1))."""
    y = np.zeros(40_000, np.int64)
    K, alpha = 400, 0.5
    sizes = counts(partition.quantity_skew(y, K, alpha, min_size=1), y).sum(1)
    share = (sizes - 1) / (len(y) - K)
    assert share.var() == pytest.approx((K - 1) / (K**2 * (K * alpha + 1)), rel=0.25)


def test_a_quantity_skew_skews_no_classes():
    y = np.repeat(np.arange(4), 3000)
    part = partition.quantity_skew(y, 10, 1.0, min_size=200)
    share = counts(part, y) / counts(part, y).sum(1, keepdims=True)
    assert abs(share - 0.25).max() < 0.12
    assert same(part, partition.quantity_skew(y, 10, 1.0, min_size=200))
    assert not same(part, partition.quantity_skew(y, 10, 1.0, min_size=200, seed=1))


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), "x", None])
def test_a_bad_concentration_is_told(alpha):
    with pytest.raises(ValueError, match="alpha"):
        partition.quantity_skew(BALANCED, 5, alpha)


# --- validation ----------------------------------------------------------------------

LAW = partial(partition.n_class, clients=12, n=3)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_validation_samples_come_from_training_and_from_nowhere_else(share):
    plain = LAW(BALANCED, seed=3)
    part = partition.with_validation(BALANCED, LAW, share, seed=3)
    lists = zip(plain.train, part.train, part.validation, strict=True)
    for before, train, validation in lists:
        assert np.array_equal(np.sort(np.concatenate([train, validation])), before)
        assert len(train) >= 1 and abs(len(validation) - share * len(before)) <= 1
    assert all(map(np.array_equal, plain.test, part.test))
    aside = class_counts(part.validation, BALANCED, 10)
    whole = class_counts(plain.train, BALANCED, 10)
    actual = aside.sum(1, keepdims=True) / whole.sum(1, keepdims=True)
    assert (abs(aside - actual * whole) < 1).all()  # each class gives its share


def test_validation_is_seeded():
    deals = [partition.with_validation(BALANCED, LAW, seed=seed) for seed in (3, 3, 4)]
    assert same(deals[0], deals[1]) and not same(deals[0], deals[2])


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), "x"])
def test_a_bad_share_is_told(share):
    with pytest.raises(ValueError, match="share"):
        partition.with_validation(BALANCED, LAW, share)


def test_validation_is_set_aside_once_and_last():
    aside = partial(partition.with_validation, law=LAW)
    for law in (
        partial(partition.with_validation, law=aside),
        partial(partition.subset, law=aside, samples=300),
        partial(partition.refill, law=aside, least=1),
    ):
        with pytest.raises(ValueError, match="aside"):
            law(BALANCED, seed=0)


def test_official_test_samples_leave_validation_as_it_is():
    part = partition.with_validation(BALANCED, partial(LAW, test=0.0))
    matched = partition.match_test(part, BALANCED, BALANCED)
    assert all(map(np.array_equal, part.validation, matched.validation))
    assert all((test >= len(BALANCED)).all() for test in matched.test)


def test_some_official_samples_are_kept_for_the_server():
    y_test = np.repeat(np.arange(10), 20)
    part = partial(LAW, test=0.0)(BALANCED, seed=0)
    for keep in (0, 5):
        matched = partition.match_test(part, BALANCED, y_test, keep=keep)
        used = class_counts(matched.test, np.concatenate([BALANCED, y_test]), 10)
        assert used.sum(0).max() == 20 - keep
    with pytest.raises(ValueError, match="beside the 20 that are kept"):
        partition.match_test(part, BALANCED, y_test, keep=20)
    with pytest.raises(ValueError, match="keep"):
        partition.match_test(part, BALANCED, y_test, keep=-1)


def test_a_law_with_official_tests_is_match_test():
    source = data.load("digits")
    y = source.y[: source.n_train]
    law = partial(partition.iid, clients=5, test=0.0)
    found = data.with_official_tests(y, "digits", law, keep=3, seed=2)
    wanted = partition.match_test(
        law(y, seed=2), y, source.y[source.n_train :], seed=2, keep=3
    )
    assert same(found, wanted)
    with pytest.raises(ValueError, match="not those of 'digits'"):
        data.with_official_tests(y[1:], "digits", law)


def with_aside(sizes=(12, 10, 14)):
    """A federation whose clients' last three training samples are for validation."""
    parts = ragged(sizes)
    train = [own[:-3] for own in parts.train]
    aside = [own[-3:] for own in parts.train]
    return parts._replace(train=train, validation=aside)


def test_a_federation_trains_without_its_validation_samples():
    dataset = blobs(samples=60)
    parts = with_aside()
    whole = Federation(dataset, parts, NETWORKS["mlp"][1], local=Local(lr=0.1))
    without = Federation(
        dataset,
        parts._replace(validation=None),
        NETWORKS["mlp"][1],
        local=Local(lr=0.1),
    )
    assert whole.n.tolist() == without.n.tolist() == [9, 7, 11]
    theta = whole.start()[0]
    assert whole.train(theta).theta.equal(without.train(theta).theta)
    assert whole.identity() != without.identity()

    labels = np.zeros(3, np.int64)
    judged = whole.evaluate(whole.start(), labels, on="validation")
    assert judged.owner.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    y = np.concatenate([dataset.y[own] for own in parts.validation])
    assert judged.true.tolist() == y.tolist()
    with pytest.raises(ValueError, match="set no samples aside"):
        without.evaluate(whole.start(), labels, on="validation")


def test_validation_samples_are_not_the_servers():
    dataset = blobs(samples=30, test=30)
    parts = Partition([np.arange(30)], [np.arange(30, 40)], None, [np.arange(40, 50)])
    fed = Federation(dataset, parts, NETWORKS["mlp"][1])
    held = fed.evaluate(fed.start(), np.zeros(1, np.int64), on="server")
    assert len(held.true) == 10


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        ([np.arange(3)], "1 validation lists for 3 clients"),
        ([np.arange(3)] * 3, "a sample in two of its lists"),
        ([np.array([999])] * 3, "999"),
    ],
)
def test_bad_validation_lists_are_told(validation, words):
    parts = with_aside()._replace(validation=validation)
    with pytest.raises(ValueError, match=words):
        Federation(blobs(samples=60), parts, NETWORKS["mlp"][1])


def test_old_keys_stay():
    """The new field of a partition is no part of what was asked for before."""
    task = Task(methods.FedAvg(), "digits", LAW, models.mlp, Local(), 1)
    assert task.key == "996f49117bf91ed6"


def test_methods_cannot_ask_for_losses_on_validation_samples():
    fed = federation()
    with pytest.raises(ValueError, match="on"):
        fed.loss(fed.start(), on="validation")
