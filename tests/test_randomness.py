"""Every random number has a seed of its own: no global state, whatever the threads."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fednb import models
from fednb.federation import Federation
from fednb.params import mean_by
from fednb.training import Local, Seeded, draws, one_thread

from .conftest import batches, blobs, federation, ragged

RANDOM = {
    "rand": lambda: torch.rand(3, 4),
    "randn": lambda: torch.randn(33),
    "randn_like": lambda: torch.randn_like(torch.ones(20)),
    "randint": lambda: torch.randint(5, (40,)),
    "randint from": lambda: torch.randint(2, 9, (40,)),
    "randint_like": lambda: torch.randint_like(torch.ones(20), 9),
    "randperm": lambda: torch.randperm(50),
    "multinomial": lambda: torch.multinomial(torch.ones(30), 10),
    "poisson": lambda: torch.poisson(torch.full((30,), 3.0)),
    "gamma": lambda: torch.distributions.Gamma(2.0, 1.0).sample((9,)),
    "dropout": lambda: F.dropout(torch.ones(100), 0.3),
    "dropout2d": lambda: F.dropout2d(torch.ones(4, 5, 3, 3), 0.3),
    "alpha_dropout": lambda: F.alpha_dropout(torch.ones(100), 0.3, training=True),
    "GPU dropout": lambda: torch.native_dropout(torch.ones(50), 0.3, True)[0],
    "rrelu": lambda: F.rrelu(-torch.ones(50), training=True),
    "gumbel_softmax": lambda: F.gumbel_softmax(torch.ones(4, 5)),
    "attention": lambda: F.scaled_dot_product_attention(
        *[torch.ones(1, 2, 3, 4)] * 3, dropout_p=0.2
    ),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(5, 6)),
    "trunc_normal": lambda: nn.init.trunc_normal_(torch.empty(5, 6)),
}


@pytest.fixture
def streams():
    """All global random streams; the test must leave them as they are."""

    def states():
        of_numpy = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().tolist(), random.getstate(), of_numpy

    before = states()
    yield
    after = states()
    assert after[:2] == before[:2]
    assert np.array_equal(after[2][1], before[2][1])


@pytest.mark.parametrize("operation", RANDOM.values(), ids=RANDOM)
def test_an_own_stream_is_the_global_one_of_that_seed(operation):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = operation()
        state = torch.get_rng_state()
        stream = Seeded(7)
        with stream:
            got = operation()
        assert torch.equal(got, expected)
        assert torch.equal(torch.get_rng_state(), state)
    assert stream.drew


def test_a_stream_goes_on_when_it_is_entered_again():
    whole, pieces = Seeded(1), Seeded(1)
    with whole:
        expected = torch.cat([torch.rand(3), torch.rand(4)])
    with pieces:
        first = torch.rand(3)
    with pieces:
        second = torch.rand(4)
    assert torch.equal(torch.cat([first, second]), expected)


def test_a_given_generator_is_kept():
    stream = Seeded(1)
    with stream:
        got = torch.rand(3, generator=torch.Generator().manual_seed(5))
        F.scaled_dot_product_attention(*[torch.ones(1, 2, 3, 4)] * 3)  # draws nothing
    assert torch.equal(got, torch.rand(3, generator=torch.Generator().manual_seed(5)))
    assert not stream.drew


def test_an_operation_that_cannot_be_seeded_is_named():
    with (
        Seeded(1),
        pytest.raises(RuntimeError, match=r"aten.dropout.* takes no generator"),
        torch.inference_mode(),
    ):
        torch.dropout(torch.ones(5), 0.5, True)


RECIPES = {
    "linear": models.linear,
    "mlp": models.mlp,
    "lenet5": models.lenet5,
    "cnn_bn": models.cnn_bn,
    "cnn": models.cnn,
    "tiny_vgg": partial(models.tiny_vgg, (1, 6, 6)),
    "resnet34": models.resnet34,
    "mobilenet_v2": partial(models.mobilenet_v2, 10),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_networks_are_those_of_the_global_seed(recipe, streams):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = recipe().state_dict()
    with Seeded(3):
        got = recipe().state_dict()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def slow():
    """A recipe that lets other threads draw before it is done."""
    first = nn.Linear(16, 8)
    time.sleep(0.002)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(8, 3))


def test_building_in_threads_gives_the_same_models(streams):
    """With torch's global generator 13 to 21 of 40 first models were others."""

    def first_models(seed):
        return Federation(blobs(), ragged((9, 14)), slow, seed=seed).start(2)

    alone = [first_models(seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(first_models, range(12)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_training_in_threads_gives_the_same_rows():
    def train(seed):
        fed = federation("lenet5", seed=seed, workers=2)
        return fed.train(fed.start()[0]).theta

    torch.set_num_threads(2)
    try:
        alone = [train(seed) for seed in range(4)]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(train, range(4)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_one_thread_gives_the_same_bits_on_any_number_of_cores():
    """A product of a few rows with many is added up differently on two threads."""
    make = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 44_426, generator=make)
    weights = torch.rand(30, generator=make)
    labels = torch.arange(30) % 5
    old = torch.zeros(5, 44_426)
    expected = mean_by(rows, weights, labels, old)  # on one thread, as all tests
    torch.set_num_threads(2)
    try:
        with one_thread():
            got = mean_by(rows, weights, labels, old)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(got, expected)


# --- models that draw while they train ------------------------------------------------


class Noisy(nn.Module):
    """A small network that disturbs its hidden layer by a function of it."""

    def __init__(self, disturb):
        super().__init__()
        self.first = nn.Linear(16, 8)
        self.last = nn.Linear(8, 3)
        self.disturb = disturb

    def forward(self, x):
        hidden = self.first(x.flatten(1))
        return self.last(self.disturb(hidden, self.training))


NOISE = {
    "dropout layer": lambda h, training: nn.Dropout(0.5).train(training)(h),
    "functional dropout": lambda h, training: F.dropout(h, 0.5, training),
    "randn": lambda h, training: h + 0.1 * torch.randn_like(h),
    "rrelu": lambda h, training: F.rrelu(h, training=training),
}


def noisy(disturb, **options):
    local = Local(lr=0.1, batch_size=5)
    return Federation(
        blobs(), ragged((9, 14, 7)), lambda: Noisy(disturb), local=local, **options
    )


@pytest.mark.parametrize("disturb", NOISE.values(), ids=NOISE)
def test_noise_is_seeded_by_client_whatever_the_workers(disturb, streams):
    first, second = noisy(disturb, workers=1), noisy(disturb, workers=3)
    assert second.backend.workers == 3
    theta = first.start()[0]
    a = first.train(theta)
    b = second.train(theta, torch.tensor([2, 0, 1]))
    assert torch.equal(a.theta, b.theta[torch.tensor([1, 2, 0])])
    assert not torch.equal(first.train(theta).theta, a.theta)  # the next visit
    assert not torch.equal(noisy(disturb, seed=1).train(theta).theta, a.theta)


@pytest.mark.parametrize("batch_stats", [False, True])
@pytest.mark.parametrize("disturb", NOISE.values(), ids=NOISE)
def test_noise_in_evaluation_is_seeded_too(disturb, batch_stats, streams):
    options = {"batch_stats": batch_stats, "workers": 2}
    feds = [noisy(disturb, **options) for _ in range(2)]
    theta = feds[0].start(2)
    labels = torch.tensor([0, 1, 1])
    a, b = (fed.evaluate(theta, labels) for fed in feds)
    assert torch.equal(a.loss, b.loss) and torch.equal(a.pred, b.pred)
    a, b = (fed.loss(theta) for fed in feds)
    assert torch.equal(a, b)
    x = feds[0]._x[:5]
    assert torch.equal(feds[0].predict(theta, x), feds[1].predict(theta, x))


@pytest.mark.parametrize("disturb", NOISE.values(), ids=NOISE)
def test_noise_is_refused_by_the_batched_backend(disturb):
    with pytest.raises(ValueError, match='draws random numbers.*backend="lean"'):
        noisy(disturb, backend="batched")


def test_dropout_of_a_client_is_that_of_its_seed():
    """What a loop with torch.manual_seed gives: recorded runs were made that way."""
    fed = noisy(NOISE["functional dropout"])
    theta = fed.start()[0]
    plan = batches(fed, 1)
    module = fed.network(theta).train()
    optimiser = torch.optim.SGD(module.parameters(), lr=fed.local.lr)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        for index, size in zip(plan.index, plan.size, strict=True):
            batch = index[:size]
            optimiser.zero_grad()
            x, y = fed.samples(batch)
            F.cross_entropy(module(x), y).backward()
            optimiser.step()
    got = fed.train(theta, torch.tensor([1])).theta[0]
    torch.testing.assert_close(got, fed.layout.row(module), rtol=0, atol=1e-6)


def test_drawing_is_found_in_the_mode_that_draws():
    x = torch.ones(2, 4)
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    assert draws(net.train(), x)
    assert not draws(net.eval(), x)
    assert not draws(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)).train(), x)
    assert not draws(models.cnn_bn((1, 8, 8)).train(), torch.ones(2, 1, 8, 8))
