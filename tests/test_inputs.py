"""Bad inputs, one line each: converted, or refused in a sentence that says what is
needed.

The list comes from trying 719 calls by hand; what stands here gave silent nonsense or
an unclear error at first. Partition laws, data sets and methods have lines of their own
in their tests.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from fednb import clustering, metrics, models, similarity
from fednb.federation import ClientError, Federation
from fednb.history import History
from fednb.params import mean, mean_by
from fednb.partition import Partition
from fednb.training import Local

from .conftest import blobs, ragged


def make(**changes):
    """A small federation of which each argument can be changed."""
    given = {
        "data": blobs(),
        "parts": ragged((9, 14, 7)),
        "model": partial(models.mlp, 16, (8,), 3),
        "local": Local(lr=0.05, batch_size=5),
    }
    return Federation(**{**given, **changes})


def refuses(call, message):
    """The call ends in a ValueError of one sentence."""
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert caught.type is ValueError and "\n" not in str(caught.value)


# --- what a federation is given: converted --------------------------------------------


def same_as_plain(**changes):
    expected = make()
    got = make(**changes)
    theta = expected.start()[0]
    return torch.equal(got.train(theta).theta, expected.train(theta).theta)


def other_data(**changes):
    return replace(blobs(), **changes)


READ_ONLY = blobs().x.copy()
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor(blobs().x),
        blobs().x[::-1][::-1],
        np.ascontiguousarray(blobs().x[..., ::-1])[..., ::-1],
        blobs().x.astype(">f4"),
        blobs().x.astype(np.float64),
        blobs().x.astype(np.longdouble),
        READ_ONLY,
        blobs().x.tolist(),
    ],
    ids=["tensor", "stride", "columns", "endian", "f8", "long", "read-only", "list"],
)
def test_inputs_are_converted(x):
    assert same_as_plain(data=other_data(x=x))


@pytest.mark.parametrize(
    "kind", [np.uint8, np.int8, np.int32, np.uint64, ">i8", torch.tensor, list]
)
def test_labels_are_converted(kind):
    y = blobs().y
    y = kind(y) if callable(kind) and kind in (torch.tensor, list) else y.astype(kind)
    assert same_as_plain(data=other_data(y=y))


@pytest.mark.parametrize("kind", [list, torch.tensor, partial(np.array, dtype="i2")])
def test_sample_lists_are_converted(kind):
    parts = ragged((9, 14, 7))
    lists = Partition(
        [kind(own) for own in parts.train], [kind(own) for own in parts.test]
    )
    assert same_as_plain(parts=lists)
    assert make(parts=lists).identity() == make().identity()


def test_an_empty_list_is_an_empty_test_set():
    parts = ragged((9, 14, 7))
    fed = make(parts=parts._replace(test=[parts.test[0], [], parts.test[2]]))
    result = fed.evaluate(fed.start(), torch.zeros(3, dtype=torch.long))
    assert result.loss.isnan().tolist() == [False, True, False]


def test_a_start_row_may_be_a_list():
    row = [0.5] * make().layout.D
    assert torch.equal(make(start=row).start(2), torch.full((2, len(row)), 0.5))


# --- what a federation is given: refused ----------------------------------------------


def spoiled(value, at=(130, 0, 1, 1)):
    """Inputs with one number that makes no sense, in a test sample."""
    x = blobs().x.copy()
    x[at] = value
    return x


DATA = {
    "x complex": ({"x": blobs().x + 0j}, "data.x of complex64.: need real numbers"),
    "x object": ({"x": blobs().x.astype(object)}, "data.x of object.: need real"),
    "x strings": ({"x": blobs().x.astype(str)}, "data.x of <U.*: need real numbers"),
    "x int64 with a mean": (
        {"x": np.full((150, 1, 4, 4), 255), "mean": (0.5,), "std": (0.2,)},
        "data.x has type int64, and a mean: need uint8 pixels",
    ),
    "x nan": ({"x": spoiled(np.nan)}, "sample 130 of data.x has NaN or infinite"),
    "x inf": ({"x": spoiled(np.inf)}, "sample 130 of data.x has NaN or infinite"),
    "x beyond float32": (
        {"x": blobs().x.astype(np.float64) * 1e300},
        "of data.x has NaN or infinite",
    ),
    "mean without std": ({"mean": (0.5,)}, "data.std=None: need both, or neither"),
    "std without mean": ({"std": (0.5,)}, "data.mean=None .* need both, or neither"),
    "mean of 2 channels": (
        {"mean": (0.5, 0.5), "std": (1.0, 1.0)},
        "need one finite number for each channel",
    ),
    "std zero": ({"mean": (0.5,), "std": (0.0,)}, "need positive standard deviations"),
    "y strings": ({"y": blobs().y.astype(str)}, "data.y of <U.*: need real numbers"),
    "y ragged": ({"y": [[0], [1, 2]]}, "data.y.: need an array of numbers"),
    "y float": (
        {"y": blobs().y.astype(float)},
        "data.y has type float64, and data.classes is 3: need integers",
    ),
    "y two columns": ({"y": np.zeros((150, 2), int)}, "need one label per sample"),
    "y too short": ({"y": blobs().y[:-1]}, "150 samples but 149 labels"),
    "y negative": ({"y": blobs().y - 1}, r"labels -1..1 do not lie in 0..2"),
    "classes": ({"classes": 2.5}, r"Dataset\(classes=2.5\): need an integer >= 0"),
}


@pytest.mark.parametrize(("changes", "message"), DATA.values(), ids=DATA)
def test_data_that_make_no_sense_are_refused(changes, message):
    refuses(lambda: make(data=other_data(**changes)), message)


def test_targets_of_a_regression_must_be_finite():
    y = blobs().y.astype(np.float32)
    y[3] = np.nan
    line = partial(models.linear, 16, 1)
    refuses(
        lambda: make(data=other_data(y=y, classes=0), model=line),
        "sample 3 of data.y has NaN or infinite values",
    )


def lists(first):
    """A partition of which the first training list is another."""
    parts = ragged((9, 14, 7))
    return parts._replace(train=[first, *parts.train[1:]])


PARTS = {
    "2-d": (
        lists(np.zeros((2, 3), int)),
        r"client 0 has type int64 and shape \(2, 3\)",
    ),
    "floats": (lists([0.5, 1.5]), "client 0 has type float64 .* vector of integers"),
    "mask": (lists(np.ones(150, bool)), "client 0 has type bool"),
    "empty": (lists([]), "client 0 has no training samples"),
    "too large": (lists([0, 999]), "client 0 names sample 999, but the data has 150"),
    "negative": (lists([0, -1]), "client 0 names sample -1, but the data has 150"),
    "none": (Partition([], []), "0 training lists and 0 test lists"),
    "truth": (ragged((9, 14), truth=[0]), "parts.truth has 1 labels for 2 clients"),
    "tuple": (([[0]], [[1]]), r"Federation\(parts=tuple\): need a Partition"),
    "None": (None, r"Federation\(parts=NoneType\): need a Partition"),
}


@pytest.mark.parametrize(("parts", "message"), PARTS.values(), ids=PARTS)
def test_partitions_that_make_no_sense_are_refused(parts, message):
    refuses(lambda: make(parts=parts), message)


def not_a_loss(outputs, targets):
    return outputs.detach().sum(1)


OPTIONS = [
    ({"data": None}, "need a Dataset"),
    *[({"seed": v}, "need an integer >= 0") for v in (-1, 1.5, "a", None, math.nan)],
    *[({"device": v}, "need 'auto', 'cpu'") for v in ("gpu", None, 5, "")],
    *[({"backend": v}, "need 'auto' or 'lean'") for v in ("gpu", None, 1)],
    *[({"workers": v}, "need None or an integer >= 1") for v in (0, -1, 1.5, "2")],
    *[({"chunk": v}, "need None or an integer >= 1") for v in (0, -1, 2.5)],
    *[
        ({"memory": v}, "need None or a finite number > 0")
        for v in (0, -1.0, math.nan, math.inf, "1")
    ],
    *[
        ({"dtype": v}, "need a floating-point type")
        for v in (torch.int64, torch.complex64, float, "float32", not_a_loss)
    ],
    *[({"batch_stats": v}, "need True or False") for v in ("x", 1, None)],
    *[({"diverged": v}, "need 'raise' or 'record'") for v in ("ignore", None)],
    *[({"local": v}, r"need None or a Local\(...\)") for v in (0.1, {}, Local)],
    *[
        ({"ids": v}, "need 3 integers, one per client")
        for v in ([0, 1], [-1, 0, 1], [0.5] * 3, [10**12, 1, 2], [[0, 1, 2]])
    ],
    ({"ids": ["a", "b", "c"]}, "ids of <U1"),
    ({"ids": 3}, r"Federation\(ids=3\): need an array"),
    ({"loss": "mse"}, "need None or a function"),
    ({"loss": not_a_loss}, "not_a_loss.*need one number per sample that depends on"),
    ({"loss": nn.functional.cross_entropy}, "need one number per sample.*reduction="),
    ({"loss": torch.add}, "torch.*add.* fails for outputs"),
    ({"loss": math.sqrt}, "fails for outputs"),
    ({"start": torch.zeros(3)}, r"start has shape \(3,\): need a row of 163"),
    ({"start": torch.full((163,), math.nan)}, "need a row of 163 finite numbers"),
]


@pytest.mark.parametrize(("option", "message"), OPTIONS)
def test_options_that_make_no_sense_are_refused(option, message):
    if "chunk" in option or "memory" in option:
        option = {**option, "backend": "batched"}
    refuses(lambda: make(**option), message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named():
    refuses(lambda: make(device="cuda"), r"device='cuda'\): .*finds on this machine")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("lr", (0.0, -1, math.nan, math.inf, "a", None)),
        ("epochs", (0, 1.5, "1")),
        ("steps", (0, 2.5, "a")),
        ("batch_size", (0, 2.5, "a")),
        ("momentum", (1.0, -0.1, "a", math.nan)),
        ("weight_decay", (-1.0, math.inf)),
        ("lr_decay", (0.0, 1.1)),
        ("decay_every", (0, 1.5)),
        ("optimizer", ("adagrad", None)),
        ("keep_state", (1, None)),
        ("amp", ("yes",)),
    ],
)
def test_local_says_what_it_needs(field, values):
    for value in values:
        refuses(lambda value=value: Local(**{field: value}), rf"Local\({field}=.*need")


# --- the federation's verbs -----------------------------------------------------------

ROW = make().start()[0]
ROWS = make().start(3)
ONE = torch.zeros(3, dtype=torch.long)


VERBS = {
    "start 2.5": (lambda f: f.start(2.5), r"start\(models=2.5\): need an integer >= 1"),
    "start 0": (lambda f: f.start(0), r"start\(models=0\)"),
    "sample nan": (lambda f: f.sample(math.nan), r"sample\(size=nan\)"),
    "sample 1.5": (lambda f: f.sample(1.5), r"sample\(size=1.5\)"),
    "sample text": (lambda f: f.sample("x"), r"sample\(size='x'\)"),
    "sample among floats": (lambda f: f.sample(2, [0.5, 1.0]), "sample: clients are"),
    "train floats": (lambda f: f.train(ROW, [0.9]), "float32, need integers or"),
    "train 2-d mask": (lambda f: f.train(ROW, torch.ones(2, 2) > 0), "a mask of 4 for"),
    "train slot": (lambda f: f.train(ROW, slot=-1), r"train\(slot=-1\)"),
    "train args": (
        lambda f: f.train(ROW, correct=lambda g, th, a: g, args=(ROWS[:2],)),
        r"shape \(2, 163\) in args, need one line for each of 3 clients",
    ),
    "train width": (lambda f: f.train(ROW[:5]), r"train: theta of shape \(5,\), need"),
    "train rows": (lambda f: f.train(ROWS[:2]), "or one for each of 3 clients"),
    "train lr": (lambda f: f.train(ROW, lr=-1), r"Local\(lr=-1\)"),
    "loss width": (lambda f: f.loss(ROW[:5]), r"loss: theta of shape \(5,\)"),
    "loss server": (lambda f: f.loss(ROW, on="server"), "on='server'.*need 'train' or"),
    "predict width": (lambda f: f.predict(ROW[:5], f._x), "predict: theta of shape"),
    "predict inputs": (lambda f: f.predict(ROW, torch.ones(2, 3)), r"need inputs \(m,"),
    "predict nothing": (lambda f: f.predict(ROW, f._x[:0]), "predict: x has shape"),
    "probe 2.5": (lambda f: f.probe(2.5), r"probe\(per_class=2.5\)"),
    "probe 0": (lambda f: f.probe(0), r"probe\(per_class=0\)"),
    "evaluate width": (lambda f: f.evaluate(ROW[:5], ONE), "evaluate: theta of shape"),
    "evaluate on": (lambda f: f.evaluate(ROWS, ONE, on="all"), "on='all'.*need 'test'"),
    "labels short": (lambda f: f.evaluate(ROWS, ONE[:2]), "2 labels for 3 clients"),
    "labels float": (lambda f: f.evaluate(ROWS, [0.0, 0.5, 1.0]), "must be integers"),
    "labels high": (lambda f: f.evaluate(ROWS, [0, 1, 3]), r"integers in 0..2"),
    "votes inf": (
        lambda f: f.evaluate(ROWS, torch.full((3, 3), math.inf)),
        "finite weights",
    ),
    "votes nan": (
        lambda f: f.evaluate(ROWS, torch.full((3, 3), math.nan)),
        "finite weights",
    ),
}


@pytest.mark.parametrize(("call", "message"), VERBS.values(), ids=VERBS)
def test_verbs_say_what_they_need(call, message):
    fed = make()
    before = fed.snapshot()
    refuses(lambda: call(fed), message)
    assert all(np.array_equal(fed.snapshot()[k], before[k]) for k in before)


def test_verbs_convert_what_they_can():
    fed = make()
    assert fed.loss(ROWS, []).shape == (0, 3) and fed.loss(ROW, []).shape == (0,)
    assert fed.train(torch.zeros_like(ROW).long()).theta.dtype == torch.float32
    assert torch.equal(fed.evaluate(ROW, [0, 0, 0]).pred, fed.evaluate(ROWS, ONE).pred)
    assert fed.evaluate(ROWS, ONE.int()).loss.isfinite().all()
    assert fed.sample(2, [0, 2]).tolist() == [0, 2]
    assert fed.train(ROW, [True, False, True]).clients.tolist() == [0, 2]
    assert torch.equal(fed.loss(ROWS.numpy()), fed.loss(ROWS))


def test_evaluation_without_any_sample_is_an_error():
    none = [np.empty(0, dtype=np.int64)] * 3
    fed = make(parts=ragged((9, 14, 7))._replace(test=none))
    refuses(lambda: fed.evaluate(ROW, ONE), "there are no such samples")
    assert fed.loss(ROW).isfinite().all()
    data = other_data(n_train=150)
    refuses(lambda: make(data=data).evaluate(ROW, ONE, on="server"), "no such samples")


def test_a_failing_correction_names_client_and_cause():
    with pytest.raises(ClientError, match="client 0: ZeroDivisionError"):
        make().train(ROW, correct=lambda g, th: g / (1 // 0))


# --- kernels --------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(6, 4))
ONES = np.ones(6)
W = np.exp(-((X[:, :1] - X[:, 0]) ** 2))
D = np.abs(X[:, :1] - X[:, 0])
TEXT = np.full((6, 4), "a")
NAN = np.where(np.eye(6) > 0, np.nan, 1.0)
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
ZEROS = torch.zeros(6, dtype=torch.long)
HUGE = 1e200

KERNELS = {
    "cosine strings": (lambda: similarity.cosine(TEXT), "need real numbers"),
    "cosine complex": (lambda: similarity.cosine(torch.tensor(X) + 0j), "real numbers"),
    "cosine ragged": (
        lambda: similarity.cosine([[1.0], [1.0, 2.0]]),
        "an array of num",
    ),
    "sqdist strings": (lambda: similarity.sqdist(TEXT), "need real numbers"),
    "rbf gamma": (lambda: similarity.rbf(X, "a"), r"rbf\(gamma='a'\): need a finite"),
    "rbf nan": (lambda: similarity.rbf(X, math.nan), r"rbf\(gamma=nan\)"),
    "laplacian": (lambda: similarity.laplacian(X, -1), r"laplacian\(gamma=-1\)"),
    "homophily": (lambda: similarity.homophily(X, math.inf), r"homophily\(gamma=inf"),
    "sigmoid nan": (lambda: similarity.sigmoid(X, math.nan), r"sigmoid\(gamma=nan\)"),
    "sigmoid inf": (lambda: similarity.sigmoid(X, math.inf), r"sigmoid\(gamma=inf\)"),
    "sigmoid c": (lambda: similarity.sigmoid(X, 1.0, math.nan), r"sigmoid\(c=nan\)"),
    "sigmoid huge": (lambda: similarity.sigmoid(X * HUGE, 1.0), "inner products overf"),
    "perception huge": (
        lambda: similarity.perception_affinity(W * HUGE * np.arange(6), 0.5),
        "squared distances overflow",
    ),
    "perception beta": (
        lambda: similarity.perception_affinity(W, math.nan),
        r"perception_affinity\(beta=nan\)",
    ),
    "attraction mass": (
        lambda: similarity.attraction(X, ONES * 1e300, 0.1),
        "attractions overflow",
    ),
    "attraction zeta": (
        lambda: similarity.attraction(X, ONES, math.nan),
        r"attraction\(zeta=nan\)",
    ),
    "clusterability weights 0": (
        lambda: similarity.clusterability(torch.tensor(X), torch.zeros(6), ZEROS),
        "sum to zero",
    ),
    "clusterability nan": (
        lambda: similarity.clusterability(torch.tensor(NAN), torch.ones(6), ZEROS),
        "row 0 of gradients has NaN",
    ),
    "clusterability empty": (
        lambda: similarity.clusterability(
            torch.ones(0, 3), torch.ones(0), torch.ones(0).long()
        ),
        r"give \(K, D\)",
    ),
    "variance_reduction nan": (
        lambda: similarity.variance_reduction(np.full((2, 3, 3), np.nan), np.ones(3)),
        "give finite covariances",
    ),
    "variance_reduction negative": (
        lambda: similarity.variance_reduction(-np.eye(3)[None], np.ones(3)),
        "variances >= 0",
    ),
    "kmeans k=2.5": (
        lambda: clustering.weighted_kmeans(X, ONES, 2.5, 0),
        r"weighted_kmeans\(k=2.5\): need an integer",
    ),
    "kmeans n_init": (
        lambda: clustering.weighted_kmeans(X, ONES, 2, 0, n_init=0),
        r"weighted_kmeans\(n_init=0\)",
    ),
    "kmeans seed": (
        lambda: clustering.weighted_kmeans(X, ONES, 2, -1),
        r"weighted_kmeans\(seed=-1\): need an integer >= 0",
    ),
    "kmeans no columns": (
        lambda: clustering.weighted_kmeans(X[:, :0], ONES, 2, 0),
        r"give \(K, D\)",
    ),
    "kmeans huge": (
        lambda: clustering.weighted_kmeans(X * HUGE, ONES, 2, 0),
        "numbers above 1e\\+150: scale them down",
    ),
    "kmeans strings": (
        lambda: clustering.weighted_kmeans(TEXT, ONES, 2, 0),
        "need real numbers",
    ),
    "objective empty": (
        lambda: clustering.kmeans_objective(
            torch.tensor(X), torch.ones(6), LABELS, torch.full((3, 4), math.nan)
        ),
        "give finite rows, centres and weights",
    ),
    "objective weights 0": (
        lambda: clustering.kmeans_objective(
            torch.tensor(X), torch.zeros(6), LABELS, torch.zeros(3, 4)
        ),
        "must not sum to zero",
    ),
    "best_spectral n_max": (
        lambda: clustering.best_spectral(W, -1, 0),
        r"best_spectral\(n_max=-1\): need an integer >= 0",
    ),
    "best_spectral n_max 2.5": (
        lambda: clustering.best_spectral(W, 2.5, 0),
        r"best_spectral\(n_max=2.5\)",
    ),
    "best_spectral smallest": (
        lambda: clustering.best_spectral(W, 3, 0, smallest=0),
        r"best_spectral\(smallest=0\)",
    ),
    "best_spectral bound": (
        lambda: clustering.best_spectral(W, 3, 0, bound=math.nan),
        r"best_spectral\(bound=nan\)",
    ),
    "best_spectral huge": (
        lambda: clustering.best_spectral(W * HUGE, 3, 0),
        "W has numbers above",
    ),
    "spectral k": (lambda: clustering.spectral(W, 2.5, 0), r"spectral\(k=2.5\)"),
    "components nan": (lambda: clustering.components(NAN), "without NaN"),
    "components shape": (lambda: clustering.components(X), "need a square matrix"),
    "otsu bins": (
        lambda: clustering.otsu_components(W, bins=2.5),
        r"otsu_components\(bins=2.5\): need None or an integer >= 2",
    ),
    "otsu_threshold bins": (
        lambda: clustering.otsu_threshold(W, bins=0),
        r"otsu_threshold\(bins=0\)",
    ),
    "otsu huge": (lambda: clustering.otsu_components(W * HUGE), "A has numbers above"),
    **{
        f"by_distance {name} negative": (
            lambda name=name: clustering.by_distance(-D, name),
            "D has the entry -.*give distances",
        )
        for name in ("kmeans", "affinity", "meanshift", "hdbscan")
    },
    **{
        f"by_distance {name} empty": (
            lambda name=name: clustering.by_distance(np.zeros((0, 0)), name),
            "D has shape .0, 0.",
        )
        for name in ("kmeans", "affinity", "meanshift", "hdbscan")
    },
    "by_distance k": (
        lambda: clustering.by_distance(D, "kmeans", k=0),
        r"by_distance\(k=0\)",
    ),
    "hdbscan smallest 1": (
        lambda: clustering.hdbscan(D, smallest=1),
        r"hdbscan\(smallest=1\): need None or an integer >= 2",
    ),
    "hdbscan smallest 0": (
        lambda: clustering.hdbscan(D, smallest=0),
        r"hdbscan\(smallest=0\)",
    ),
    "hdbscan smallest -3": (
        lambda: clustering.hdbscan(D, smallest=-3),
        r"hdbscan\(smallest=-3\)",
    ),
    "agglomerative nan": (
        lambda: clustering.agglomerative(D, math.nan),
        r"agglomerative\(threshold=nan\): need a finite number >= 0",
    ),
    "agglomerative empty": (
        lambda: clustering.agglomerative(np.zeros((0, 0)), 0.5),
        "D has shape .0, 0.",
    ),
    "relabel strings": (
        lambda: clustering.relabel(np.array(["a", "b"])),
        r"relabel\(labels of <U1\): need real numbers",
    ),
    "keep_names small n": (
        lambda: clustering.keep_names(torch.tensor([0, 3]), torch.tensor([0, 1]), 2),
        r"names 0..3 do not lie in 0..1",
    ),
    "keep_names negative": (
        lambda: clustering.keep_names(torch.tensor([0, -1]), torch.tensor([0, 1]), 2),
        r"names -1..0 do not lie in 0..1",
    ),
    "steady_names negative": (
        lambda: clustering.steady_names([[0, 1], [0, -1]]),
        r"names -1..0 do not lie in",
    ),
    "steady_names floats": (
        lambda: clustering.steady_names([[0.0, 1.0], [0.0, 1.0]]),
        "give two vectors of K integers",
    ),
    "mean empty": (lambda: mean(torch.ones(0, 3)), "mean: need at least one row"),
    "mean strings": (lambda: mean(TEXT), r"mean\(rows of <U1\): need real numbers"),
    "mean inf": (
        lambda: mean(X, np.array([1, math.inf, 1, 1, 1, 1])),
        "weights must be finite",
    ),
    "mean nan": (lambda: mean(NAN), "mean: row 0 has NaN or infinite values"),
    "mean_by inf": (
        lambda: mean_by(X, ONES * math.inf, LABELS, X[:3]),
        "weights must be finite",
    ),
    "mean_by float labels": (
        lambda: mean_by(X, ONES, LABELS.float(), X[:3]),
        "labels have type torch.float32, need integers",
    ),
    "mean_by nan of weight 0": (
        lambda: mean_by(NAN, np.array([0, 1, 1, 1, 1, 1]), LABELS, np.zeros((3, 6))),
        "mean_by: row 0 has NaN or infinite values",
    ),
    "confusion -1": (
        lambda: metrics.confusion([0], [0], -1),
        r"confusion\(classes=-1\): need an integer >= 1",
    ),
    "confusion 2.5": (
        lambda: metrics.confusion([0], [0], 2.5),
        r"confusion\(classes=2.5\)",
    ),
    "auc 1.5": (lambda: metrics.auc([0.5] * 3, 1.5), r"auc\(rounds=1.5\)"),
    "mean_of_last 0": (
        lambda: History([{"accuracy": 1.0}]).mean_of_last(0),
        r"mean_of_last\(n=0\)",
    ),
    "mlp hidden=5": (
        lambda: models.mlp(4, 5),
        r"mlp\(hidden=5\): need a sequence of integers >= 1",
    ),
    "mlp hidden=(0,)": (lambda: models.mlp(4, (0,)), r"mlp\(hidden=\(0,\)\)"),
    "mlp classes": (
        lambda: models.mlp(4, (2,), -1),
        r"mlp\(classes=-1\): need an integer >= 1",
    ),
    "linear inputs": (lambda: models.linear(0), r"linear\(inputs=0\)"),
    "cnn_bn 2-d": (
        lambda: models.cnn_bn((28, 28)),
        r"cnn_bn\(shape=\(28, 28\)\): need a sequence of 3 integers",
    ),
    "lenet5 2-d": (lambda: models.lenet5((28, 28)), r"lenet5\(shape=\(28, 28\)\)"),
    "cnn filters": (
        lambda: models.cnn(filters=(6,)),
        r"cnn\(filters=\(6,\)\): need a sequence of 2 integers",
    ),
    "resnet34": (lambda: models.resnet34(2.5), r"resnet34\(classes=2.5\)"),
}


@pytest.mark.parametrize(("call", "message"), KERNELS.values(), ids=KERNELS)
def test_kernels_say_what_they_need(call, message):
    refuses(call, message)


def test_kernels_convert_what_they_can():
    counts = np.arange(6).reshape(3, 2)
    assert mean(counts).tolist() == [2.0, 3.0]
    assert mean(counts, [1, 1, 2]).tolist() == [2.5, 3.5]
    assert mean(counts.astype(">f8")[::-1]).tolist() == [2.0, 3.0]
    assert similarity.cosine(counts.astype(">i4")).dtype == torch.float64
    assert len(models.mlp(4, (), 3)) == 2  # no hidden layer: a linear model
    linked = clustering.components(np.eye(3)[::-1])
    assert linked.tolist() == [0, 1, 0]


def test_a_graph_without_edges_is_one_cluster():
    assert clustering.spectral(-W, 2, 0).tolist() == [0] * 6
