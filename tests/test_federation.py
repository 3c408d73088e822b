import math
import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fednb import metrics, models
from fednb.experiment import measure
from fednb.federation import ClientError, Federation, Meter
from fednb.partition import Partition
from fednb.training import Local

from .conftest import NETWORKS, blobs, federation, held, ragged


def test_start_depends_on_seed_and_number_only():
    fed = federation()
    assert torch.equal(fed.start(3)[:1], fed.start())
    assert torch.equal(fed.start(3), federation().start(3))
    assert not torch.equal(fed.start(3)[0], fed.start(3)[1])
    assert not torch.equal(fed.start(), federation(seed=1).start())
    with pytest.raises(ValueError, match=r"start\(models=0\): need an integer >= 1"):
        fed.start(0)


def test_a_given_start_serves_all_methods():
    row = torch.randn(federation().layout.D)
    assert torch.equal(federation(start=row).start(2), row.repeat(2, 1))
    with pytest.raises(ValueError, match="start has shape"):
        federation(start=row[:3])


def test_sample_numbers_fractions_masks():
    fed = federation(sizes=(5,) * 10)
    assert fed.sample().tolist() == list(range(10))
    assert len(fed.sample(3)) == 3 and len(fed.sample(0.25)) == 3
    assert len(fed.sample(99)) == 10
    mask = torch.arange(10) % 2 == 1
    assert set(fed.sample(3, among=mask).tolist()) <= {1, 3, 5, 7, 9}
    assert fed.sample(1, among=torch.tensor([4])).tolist() == [4]
    assert fed.sample(3, among=torch.zeros(10, dtype=torch.bool)).tolist() == []
    draws = [tuple(fed.sample(4).tolist()) for _ in range(20)]
    assert len(set(draws)) > 10 and all(d == tuple(sorted(set(d))) for d in draws)
    again = federation(sizes=(5,) * 10)
    assert again.sample().tolist() == list(range(10)) and len(again.sample(3)) == 3
    for wrong in (0, -1, 1.5, 0.0):
        with pytest.raises(ValueError, match="sample"):
            fed.sample(wrong)


def test_sampling_is_uniform():
    fed = federation(sizes=(5,) * 8)
    counts = np.bincount(
        np.concatenate([fed.sample(2).numpy() for _ in range(2000)]), minlength=8
    )
    assert abs(counts - 500).max() < 4.5 * np.sqrt(2000 * 0.25 * 0.75)


def test_the_meter_counts_what_travels():
    fed = federation(dtype=torch.float32)
    D = fed.layout.D
    theta = fed.start()[0]
    fed.train(theta, torch.tensor([0, 2]))
    assert fed.meter == Meter(down=2 * D * 4, up=2 * D * 4, updates=2)
    fed.loss(fed.start(3), torch.tensor([1]))
    assert fed.meter == Meter(
        down=2 * D * 4 + 3 * D * 4, up=2 * D * 4 + 3 * 4, updates=2
    )
    assert fed.meter.bytes == fed.meter.down + fed.meter.up


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("backend", ["lean", "batched"])
def test_loss_of_every_row_at_every_client(network, backend):
    fed = federation(network, backend=backend, dtype=torch.float64)
    theta = fed.start(3)
    fast = fed.loss(theta)
    for c in range(3):
        module = fed.network(theta[c])
        for k in range(4):
            x, y = held(fed, k, "train")
            with torch.no_grad():
                slow = F.cross_entropy(module(x), y).item()
            assert fast[k, c].item() == pytest.approx(slow, abs=1e-10)
    assert torch.equal(fed.loss(theta[1], torch.tensor([2, 0])), fast[[2, 0], 1])
    assert fed.loss(theta, on="test").shape == (4, 3)


def test_training_lowers_the_loss():
    fed = federation(local=Local(lr=0.1, batch_size=5, epochs=5))
    theta = fed.start()[0]
    up = fed.train(theta)
    own = torch.stack(
        [fed.loss(row, torch.tensor([k]))[0] for k, row in enumerate(up.theta)]
    )
    assert (own < fed.loss(theta)).all()


def test_evaluate_counts_right():
    fed = federation("cnn_bn", workers=2)
    theta, labels = fed.start(2), torch.tensor([0, 1, 1, 0])
    result = fed.evaluate(theta, labels)
    assert result.confusion.sum((1, 2)).tolist() == [4] * 4
    for k in range(4):
        x, y = held(fed, k)
        logits = fed.predict(theta[labels[k]], x)
        expected = torch.zeros(3, 3, dtype=torch.long)
        for true, pred in zip(y, logits.argmax(1), strict=True):
            expected[true, pred] += 1
        assert torch.equal(result.confusion[k], expected)
        assert result.loss[k].item() == pytest.approx(
            F.cross_entropy(logits, y).item(), rel=1e-5
        )


def test_evaluate_on_the_servers_samples_is_shared_between_clients():
    fed = federation()
    theta, labels = fed.start(3), torch.tensor([2, 0, 2, 0])
    result = fed.evaluate(theta, labels, on="server")
    server = fed.sample_numbers(on="server")
    assert result.confusion.shape == (4, 3, 3)
    assert len(result.owner) == 2 * len(server)
    assert torch.equal(result.confusion[0], result.confusion[2])
    x, y = fed.samples(server)
    expected = fed.predict(theta[2], x).argmax(1)
    assert result.confusion[0].diagonal().sum() == (expected == y).sum()
    used = torch.cat([fed.sample_numbers(on=on) for on in ("train", "test")])
    assert not torch.isin(server, used).any()  # the server holds no client's sample


def test_a_soft_vote_averages_probabilities_and_a_one_hot_vote_is_a_label():
    fed = federation()
    theta, labels = fed.start(3), torch.tensor([2, 0, 1, 0])
    hard, soft = (
        fed.evaluate(theta, labels),
        fed.evaluate(theta, F.one_hot(labels, 3).float()),
    )
    assert torch.equal(hard.pred, soft.pred) and torch.allclose(hard.loss, soft.loss)
    votes = torch.tensor([[1.0, 1.0, 2.0]] * 4)
    mixed = fed.evaluate(theta, votes)
    p = (
        fed.predict(theta, held(fed, 3)[0]).softmax(-1)
        * torch.tensor([0.25, 0.25, 0.5])[:, None, None]
    ).sum(0)
    assert torch.equal(mixed.pred[mixed.owner == 3], p.argmax(1))
    assert fed.evaluate(theta, votes, on="server").confusion.shape == (4, 3, 3)


@pytest.mark.parametrize(
    "labels", [[0, 1, 0], [0, 1, 2, 0], [0, -1, 0, 0], [0.0, 1.0, 0.0, 1.0]]
)
def test_evaluate_refuses_bad_labels(labels):
    fed = federation()
    with pytest.raises(ValueError, match="labels"):
        fed.evaluate(fed.start(2), torch.tensor(labels))


def test_evaluate_refuses_bad_votes():
    fed = federation()
    for votes in (torch.zeros(4, 2), -torch.ones(4, 2), torch.ones(4, 3)):
        with pytest.raises(ValueError, match="votes must be"):
            fed.evaluate(fed.start(2), votes)
    with pytest.raises(ValueError, match=r"evaluate\(on='training'\): need 'test'"):
        fed.evaluate(fed.start(), torch.zeros(4, dtype=torch.long), on="training")


def test_a_client_without_test_samples_has_nan_loss_and_no_counts():
    parts = ragged((9, 14))
    parts = Partition(parts.train, [parts.test[0], np.array([], dtype=np.int64)], None)
    fed = Federation(blobs(), parts, NETWORKS["mlp"][1])
    result = fed.evaluate(fed.start(), torch.zeros(2, dtype=torch.long))
    assert (
        result.loss.isnan().tolist() == [False, True]
        and int(result.confusion[1].sum()) == 0
    )


def test_regression_uses_squared_error():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    y = x @ np.array([1.0, -2.0], dtype=np.float32)
    data = replace(blobs(), x=x, y=y, n_train=60, classes=1)
    parts = Partition(
        [np.arange(30), np.arange(30, 50)], [np.arange(50, 55), np.arange(55, 60)], None
    )
    fed = Federation(
        data,
        parts,
        lambda: models.linear(2, 1),
        local=Local(lr=0.1, epochs=300),
        dtype=torch.float64,
    )
    theta = fed.train(fed.start()[0]).theta
    torch.testing.assert_close(
        theta[0, :2], torch.tensor([1.0, -2.0], dtype=torch.float64), atol=1e-3, rtol=0
    )
    assert fed.loss(theta, on="test").max() < 1e-4
    with pytest.raises(ValueError, match="counts classes"):
        fed.evaluate(theta, torch.tensor([0, 1]))


def test_snapshot_and_restore_are_exact():
    local = Local(lr=0.05, batch_size=5, momentum=0.9, keep_state=True)
    fed = federation(local=local)
    theta = fed.start()[0]
    fed.sample(2)
    theta = fed.train(theta).theta.mean(0)
    saved = fed.snapshot()
    first = fed.sample(2), fed.train(theta).theta, fed.meter
    other = federation(local=local)
    other.restore(saved)
    for a, b in zip(
        first, (other.sample(2), other.train(theta).theta, other.meter), strict=True
    ):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    fed.restore(saved)
    assert torch.equal(fed.sample(2), first[0])
    with pytest.raises(ValueError, match="snapshot of 4 clients"):
        federation(sizes=(5, 5)).restore(saved)


def test_truth_is_there_for_the_judge():
    fed = federation(truth=[0, 0, 1, 1])
    assert fed.truth.labels.tolist() == [0, 0, 1, 1]
    assert fed.truth.counts.sum(1).tolist() == fed.n.tolist()


def absolute_error(outputs, y):
    return (F.one_hot(y, 3) - outputs).abs().sum(1)


def weighted(weights):
    """Cross-entropy with class weights."""
    weight = torch.tensor(weights)
    return partial(F.cross_entropy, weight=weight, reduction="none")


class Twin(nn.Sequential):
    """A network of the same size as another, and of another type."""


def build(**changes):
    """A federation of which each part can be changed alone."""
    given = {
        "data": blobs(),
        "parts": ragged((9, 14)),
        "model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3)),
    }
    return Federation(**{**given, **changes})


IDENTITIES = {
    "seed": lambda: {"seed": 1},
    "inputs": lambda: {"data": replace(blobs(), x=blobs().x + 1)},
    "labels": lambda: {"data": replace(blobs(), y=(blobs().y + 1) % 3)},
    "normalisation": lambda: {"data": replace(blobs(), mean=(0.1,), std=(1.0,))},
    "server's samples": lambda: {"data": replace(blobs(), n_train=100)},
    "partition": lambda: {"parts": ragged((14, 9))},
    "truth": lambda: {"parts": ragged((9, 14), truth=[0, 1])},
    "layer": lambda: {
        "model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.ReLU())
    },
    "type": lambda: {"model": lambda: Twin(nn.Flatten(), nn.Linear(16, 3))},
    "frozen": lambda: {"model": frozen_bias},
    "loss": lambda: {"loss": absolute_error},
    "loss's weights": lambda: {"loss": weighted([1.0, 1.0, 1.00001])},
    "loss module": lambda: {"loss": nn.CrossEntropyLoss(reduction="none")},
    "dtype": lambda: {"dtype": torch.float64},
    "start": lambda: {"start": torch.zeros(51)},
    "ids": lambda: {"ids": [1, 0]},
    "local": lambda: {"local": Local(lr=0.3)},
    "backend": lambda: {"backend": "batched"},
    "batch_stats": lambda: {"batch_stats": True},
    "diverged": lambda: {"diverged": "record"},
}


def frozen_bias():
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    network[1].bias.requires_grad_(False)
    return network


@pytest.mark.parametrize("change", IDENTITIES.values(), ids=IDENTITIES)
def test_identity_tells_federations_apart(change):
    assert build().identity() == build().identity()
    assert build(**change()).identity() != build().identity()


def test_identity_sees_what_a_printed_tensor_does_not_show():
    names = {
        build(loss=weighted([1.0, 1.0, last])).identity() for last in (1.0, 1.00001)
    }
    modules = {
        build(loss=nn.CrossEntropyLoss(torch.tensor(w), reduction="none")).identity()
        for w in ([1.0, 1.0, 1.0], [1.0, 1.0, 2.0])
    }
    sizes = (2,) * 1200
    data = blobs(samples=4 * 1200)
    truths = [np.zeros(1200, int), np.zeros(1200, int)]
    truths[1][600] = 1
    hidden = {
        build(data=data, parts=ragged(sizes, tests=1, truth=truth)).identity()
        for truth in truths
    }
    assert len(names) == len(modules) == len(hidden) == 2


def test_identity_does_not_depend_on_the_run_or_the_machine():
    fed = build(workers=2)
    before = fed.identity()
    fed.train(fed.start()[0])
    assert fed.identity() == before == build(workers=1).identity()
    assert "2 clients" in before


def test_client_data_is_held_once():
    fed = federation(workers=3)
    fed.train(fed.start()[0])
    arrays = [v for v in vars(fed).values() if isinstance(v, torch.Tensor)]
    inputs = [v for v in arrays if v.shape == fed.backend.x.shape]
    assert [v.data_ptr() for v in inputs] == [fed.backend.x.data_ptr()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "gpu"}, "backend='gpu'"),
        ({"diverged": "ignore"}, "diverged='ignore'"),
        ({"model": NETWORKS["mlp"][1]()}, "recipe, not a network"),
        ({"model": lambda: models.mlp(16, (8,), 7)}, "the data has 3 classes"),
        (
            {"model": lambda: models.mlp(99, (8,), 3)},
            r"cannot take inputs of shape \(1, 4, 4\)",
        ),
        (
            {
                "parts": Partition(
                    [np.arange(5), np.array([], int)], [np.arange(5, 7)] * 2, None
                )
            },
            "client 1 has no training",
        ),
        (
            {"parts": Partition([np.array([999])], [np.arange(2)], None)},
            "names sample 999",
        ),
        ({"parts": Partition([np.arange(5)], [], None)}, "1 training lists and 0 test"),
    ],
)
def test_bad_input_is_refused_with_a_reason(change, message):
    options = {"parts": ragged((9, 14)), "model": NETWORKS["mlp"][1], **change}
    with pytest.raises((ValueError, TypeError), match=message):
        Federation(blobs(), **options)


def test_labels_out_of_range_are_refused():
    with pytest.raises(ValueError, match="do not lie in 0..1"):
        Federation(
            replace(blobs(), classes=2),
            ragged((9, 14)),
            lambda: models.mlp(16, (8,), 2),
        )


def test_batchnorm_that_counts_is_refused():
    def model():
        return nn.Sequential(nn.BatchNorm2d(1, momentum=None), models.mlp(16, (8,), 3))

    with pytest.raises(ValueError, match="set a momentum"):
        Federation(blobs(), ragged((9, 14)), model)


def test_train_refuses_nonsense():
    fed = federation()
    theta = fed.start()[0]
    for clients, message in (
        ([0, 9], "numbered 0..3"),
        ([1, 1], "listed twice"),
        ([True, False], "a mask of 2"),
    ):
        with pytest.raises(ValueError, match=message):
            fed.train(theta, torch.tensor(clients))
    with pytest.raises(ValueError, match="theta of shape"):
        fed.train(theta[:-1])
    with pytest.raises(ValueError, match="theta of shape"):
        fed.train(fed.start(3))
    with pytest.raises(TypeError, match="learning_rate"):
        fed.train(theta, learning_rate=1.0)


# --- recipes --------------------------------------------------------------------------


def disturbed(stream):
    """A recipe that adds a number from elsewhere to the first weight."""

    def recipe():
        network = NETWORKS["mlp"][1]()
        with torch.no_grad():
            next(network.parameters())[0, 0] += stream()
        return network

    return recipe


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            disturbed(np.random.random),  # noqa: NPY002
            "two different networks for one seed",
        ),
        (disturbed(random.random), "two different networks for one seed"),
        (lambda: None, "recipe returned NoneType: need an nn.Module"),
        (lambda: models.mlp, "recipe returned function: need an nn.Module"),
        (nn.Linear, "needs arguments .*in_features.*: bind them"),
        (models.mlp(), "a recipe, not a network"),
        ("mlp", "a recipe, not a network"),
        (None, "a recipe, not a network"),
        (lambda: nn.Flatten(), "no parameters to train"),
        (lambda: models.mlp(16, (8,), 3).requires_grad_(False), "no parameters to"),
        (lambda: nn.LSTM(4, 3), "need one tensor of outputs|cannot take inputs"),
    ],
)
def test_a_recipe_that_is_none_is_refused(model, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Federation(blobs(), ragged((9, 14)), model)


# --- models that are not finite -------------------------------------------------------


@pytest.fixture(params=[math.nan, math.inf, 3e38])
def broken(request):
    """Three rows, the last of which is not finite, or gives outputs that are not."""
    theta = federation().start(3)
    if request.param == 3e38:
        theta[2] *= 3e38
    else:
        theta[2, -1] = request.param
    return theta


LABELS = torch.tensor([0, 2, 1, 2])
VOTES = torch.tensor([[1.0, 0, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("labels", [LABELS, VOTES], ids=["labels", "votes"])
@pytest.mark.parametrize("on", ["test", "server"])
def test_a_model_that_is_not_finite_is_wrong_and_told_of(broken, labels, on):
    fed = federation(diverged="record")
    fed.t = 7
    result = fed.evaluate(broken, labels, on=on)
    accuracy = metrics.accuracy(result.confusion)
    assert accuracy[[1, 3]].tolist() == [0, 0] and accuracy[[0, 2]].max() > 0
    assert result.loss.isinf().tolist() == [False, True, False, True]
    (event,) = fed.events
    assert event[:2] == (7, 1) and "NaN or infinite" in event.what
    sound = federation().evaluate(broken[:2], torch.tensor([0, 0, 1, 0]), on=on)
    assert torch.equal(result.loss[[0, 2]], sound.loss[[0, 2]])


def test_a_mean_loss_does_not_forget_a_broken_model(broken):
    fed = federation(diverged="record")
    state = SimpleNamespace(theta=broken, labels=LABELS)
    numbers = measure(fed, state)
    assert numbers["loss"] == math.inf and numbers["accuracy_worst"] == 0


def test_a_broken_model_that_serves_nobody_does_no_harm(broken):
    fed = federation()
    fed.evaluate(broken, torch.tensor([0, 1, 1, 0]))
    assert fed.events == []


def test_a_broken_model_raises_by_default(broken):
    fed = federation()
    with pytest.raises(ClientError, match="client 1 is served by a model with NaN"):
        fed.evaluate(broken, LABELS)
    with pytest.raises(ClientError, match="client 0 was given a model with NaN"):
        fed.loss(broken)


def test_the_loss_of_a_broken_model_is_infinite(broken):
    fed = federation(diverged="record")
    losses = fed.loss(broken, torch.tensor([3, 1]))
    assert losses.isinf().tolist() == [[False, False, True]] * 2
    assert losses.argmin(1).max() < 2  # IFCA does not choose it
    assert [event.client for event in fed.events] == [3]
