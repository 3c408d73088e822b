"""The batched backend on torch's meta device, where tensors have no numbers.

Whatever would make a GPU wait for the host (a number read from a tensor), and any
tensor left on the CPU, is an error there. So the loop is proved to be free of both for
every network of `models` and every correction that a method passes. Nothing is said
about speed: for that, `make bench-gpu`.
"""

import copy
import types
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from fednb import models
from fednb.backends import Batched, UnfoldConv, cross_entropy, squared_error
from fednb.params import Layout
from fednb.training import Local, Pixels, plan

from . import behaviour
from .conftest import federation

SIZES = (9, 14, 7)  # samples of three clients: their batches are ragged

# every network of `models`: name -> (shape of a sample, recipe)
NETWORKS = {
    "linear": ((64,), models.linear),
    "mlp": ((64,), models.mlp),
    "lenet5": ((3, 32, 32), models.lenet5),
    "cnn_bn": ((1, 28, 28), models.cnn_bn),
    "cnn": ((3, 32, 32), models.cnn),
    "tiny_vgg": ((1, 28, 28), models.tiny_vgg),
    "resnet34": ((3, 32, 32), models.resnet34),
    "mobilenet_v2": ((3, 33, 33), models.mobilenet_v2),
}
LOCALS = {
    "sgd": Local(batch_size=4),
    "momentum": Local(batch_size=4, momentum=0.9, weight_decay=0.01, keep_state=True),
    "adam": Local(batch_size=4, optimizer="adam"),
    "augmented": Local(batch_size=4, augment=True),
}


def on_meta(value):
    """The same thing with its tensors on the meta device, also those of a closure."""
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, partial):
        words = {name: on_meta(word) for name, word in value.keywords.items()}
        return partial(on_meta(value.func), *map(on_meta, value.args), **words)
    if isinstance(value, types.FunctionType) and value.__closure__:
        cells = [types.CellType(on_meta(c.cell_contents)) for c in value.__closure__]
        return types.FunctionType(
            value.__code__, value.__globals__, None, value.__defaults__, tuple(cells)
        )
    return value


def dry_run(network: nn.Module, shape, local, correct=None, args=(), **options):
    """Train three clients of the network on the meta device.

    Without dropout: that is for the lean backend, see `choose_backend`.
    """
    network = copy.deepcopy(network).to("meta")
    for layer in network.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    x = torch.empty(sum(SIZES), *shape, device="meta")
    if options.pop("pixels", False):
        x = Pixels(x.to(torch.uint8), x[:1] * 0, x[:1] * 0 + 1, torch.float32)
    y = torch.zeros(sum(SIZES), dtype=torch.long, device="meta")
    batched = Batched(network, x, y, cross_entropy, max(SIZES), **options)
    rng = np.random.default_rng(0)
    edges = np.cumsum([0, *SIZES])
    lists = [np.arange(a, b) for a, b in zip(edges, edges[1:], strict=False)]
    plans = [plan(samples, local, rng) for samples in lists]
    rows = torch.empty(len(SIZES), Layout.of(network).D, device="meta")
    states = [None] * len(SIZES)
    done = batched.train(rows, plans, local, 0.1, correct, args, states)
    again = batched.train(rows, plans, local, 0.1, correct, args, done.states)
    return batched, again


def test_all_networks_are_here():
    made = {
        name
        for name, thing in vars(models).items()
        if isinstance(thing, types.FunctionType)
        and thing.__module__ == models.__name__
        and not name.startswith("_")
        and name not in ("torchvision", "noisy")  # noisy wraps any of the others
    }
    assert made == set(NETWORKS)


@pytest.mark.parametrize("convolution", ["unfold", "grouped"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_round_never_waits_for_the_host(name, convolution):
    shape, make = NETWORKS[name]
    local = LOCALS["momentum"]
    batched, done = dry_run(make(), shape, local, convolution=convolution)
    assert done.theta.device.type == done.losses.device.type == "meta"
    assert done.theta.shape == (len(SIZES), batched.layout.D)
    assert done.losses.shape == (len(SIZES), 4)


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS)
def test_every_optimiser_and_augmentation(local, pixels):
    shape, make = NETWORKS["cnn_bn"]
    _, done = dry_run(make(), shape, local, pixels=pixels, chunk=2)
    assert done.theta.device.type == "meta"


def corrections():
    """Every correction that a method passes in its first rounds, by who passes it."""
    found = {}
    for method in behaviour.cases():
        name = type(method).__name__
        fed = federation(sizes=behaviour.SIZES, truth=[0, 0, 0, 1, 1, 1])
        inner = fed.backend.train

        def spy(rows, plans, local, lr, correct, args, states, name=name, inner=inner):
            if correct is not None:
                code = getattr(correct, "func", correct).__code__
                case = (name, code.co_filename, code.co_firstlineno)
                found[case] = (correct, [a[:1] for a in args], local)
            return inner(rows, plans, local, lr, correct, args, states)

        fed.backend.train = spy
        state = method.init(fed)
        for t in range(3):
            fed.t = t
            state = method.step(state, fed, t)
    return found


def test_every_correction_of_a_method():
    found = corrections()
    who = {name for name, *_ in found}
    assert {"FedProx", "SCAFFOLD", "Ditto", "FedRep", "PFedMe"} <= who
    assert {"FedEM", "FedSoft", "FedCCFA"} <= who
    network = federation().network(federation().start()[0])
    for (name, *_), (correct, args, local) in found.items():
        args = [a.expand(len(SIZES), *a.shape[1:]).to("meta") for a in args]
        _, done = dry_run(network, (1, 4, 4), local, on_meta(correct), args)
        assert done.theta.device.type == "meta", name


def test_what_the_dry_run_is_there_to_find():
    network = federation().network(federation().start()[0])
    dry = partial(dry_run, network, (1, 4, 4), Local(batch_size=4))
    stray = torch.zeros(Layout.of(network).D)
    with pytest.raises(RuntimeError, match="device"):
        dry(lambda g, th: g + stray)
    with pytest.raises(RuntimeError, match="meta"):
        dry(lambda g, th: g * float(g.sum()))


# --- two ways to convolve ----------------------------------------------------------


def trained(convolution: str):
    fed = federation("lenet5", backend="batched", dtype=torch.float64)
    fed.backend.convolve_by(convolution)
    return fed.train(fed.start()[0])


def test_both_convolutions_train_the_same():
    a, b = trained("unfold"), trained("grouped")
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-12)
    torch.testing.assert_close(a.losses, b.losses, rtol=0, atol=1e-12, equal_nan=True)


def test_a_cpu_unfolds_and_a_measurement_chooses_one_of_the_two(monkeypatch):
    fed = federation("lenet5", backend="batched")
    kinds = {type(layer) for layer in fed.backend._convolutions}
    assert fed.backend.convolution == "unfold" and kinds == {UnfoldConv}
    slow = {"unfold": 2.0, "grouped": 1.0}
    batched = fed.backend
    monkeypatch.setattr(
        batched, "_time_gradients", lambda clients: slow[batched.convolution]
    )
    assert batched.faster_convolution(seconds=0) == "grouped"
    slow["grouped"] = 3.0
    assert batched.faster_convolution(seconds=0) == "unfold"
    monkeypatch.undo()
    assert batched.faster_convolution(seconds=0) in slow


def test_real_targets_pass_too():
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 1)).to("meta")
    x = torch.empty(9, 1, 4, 4, device="meta")
    batched = Batched(network, x, x[:, 0, 0, 0], squared_error, 9)
    local = Local(batch_size=4)
    plans = [plan(np.arange(9), local, np.random.default_rng(0))]
    rows = torch.empty(1, 17, device="meta")
    done = batched.train(rows, plans, local, 0.1, None, [], [None])
    assert done.losses.shape == (1, 3)
