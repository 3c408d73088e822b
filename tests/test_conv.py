"""The accelerated nets must give the plain module's outputs, gradients and running
statistics.
"""

import copy
import platform
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from fednb import backends, conv
from fednb.conv import accelerate, dense_gradients, keep_memory
from fednb.models import DrawNoise, linear, mlp
from fednb.training import Local, one_thread

from .conftest import federation


def block(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.ReLU(), nn.MaxPool2d(2))


def lenet(width: int = 6, bias: bool = True) -> nn.Sequential:
    """For images 3×16×16, nested, so that the order of the leaves matters."""
    features = nn.Sequential(
        block(nn.Conv2d(3, width, 5, bias=bias)), block(nn.Conv2d(width, 16, 3))
    )
    return nn.Sequential(
        features, nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10)
    )


def with_norm() -> nn.Sequential:
    """For images 1×12×12."""
    norm = nn.BatchNorm2d(16, momentum=0.3)
    return nn.Sequential(
        block(nn.Conv2d(1, 16, 5, padding=2), norm),
        nn.Flatten(),
        nn.Linear(16 * 36, 10),
    )


def gradients(f, module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Logits, then the gradients of a loss for the input and for every parameter."""
    x = x.clone().requires_grad_()
    logits = f(x)
    loss = F.cross_entropy(logits.flatten(1), torch.arange(len(x)) % logits[0].numel())
    return [logits.detach(), *torch.autograd.grad(loss, [x, *module.parameters()])]


def assert_same(module: nn.Module, x: torch.Tensor) -> None:
    """The plain module and an accelerated copy: same logits, gradients and buffers."""
    twin = copy.deepcopy(module)
    expected, got = gradients(module, module, x), gradients(accelerate(twin), twin, x)
    for a, b in zip(
        [*expected, *module.buffers()], [*got, *twin.buffers()], strict=True
    ):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def paired(monkeypatch) -> list[int]:
    """Notes each use of the paired columns, to be sure which road was taken."""
    calls, apply = [], conv._PoolReLU.apply
    monkeypatch.setattr(
        conv._PoolReLU, "apply", lambda *a: calls.append(1) or apply(*a)
    )
    return calls


@pytest.mark.parametrize("n", [1, 5, 32])
@pytest.mark.parametrize(
    ("width", "bias", "pairs"), [(6, True, 1), (8, False, 1), (9, True, 0)]
)
def test_lenet_agrees(paired, n, width, bias, pairs):
    assert_same(lenet(width, bias).double(), torch.randn(n, 3, 16, 16).double())
    assert len(paired) == pairs


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("n", [1, 6])
def test_batch_norm_agrees(paired, training, n):
    module = with_norm().double()
    module(
        3 + torch.randn(8, 1, 12, 12).double()
    )  # running statistics off their initial values
    with torch.no_grad():
        module[0][1].weight[::2] *= -1
    assert_same(module.train(training), torch.randn(n, 1, 12, 12).double())
    assert not paired


small = st.integers(1, 5)


@settings(max_examples=60, deadline=None)
@given(
    n=small,
    c=small,
    d=st.sampled_from([1, 3, 8, 9]),
    size=st.tuples(*[st.integers(2, 9)] * 2),
    data=st.data(),
)
def test_any_kernel_padding_and_size_agrees(n, c, d, size, data):
    kernel, padding = (
        data.draw(st.tuples(small, small)),
        data.draw(st.tuples(*[st.integers(0, 2)] * 2)),
    )
    assume(
        all(a + 2 * p - k >= 1 for a, p, k in zip(size, padding, kernel, strict=True))
    )  # at least 2×2 to pool
    assert_same(
        block(nn.Conv2d(c, d, kernel, padding=padding)).double(),
        torch.randn(n, c, *size).double(),
    )


@pytest.mark.parametrize("image", ["constant", "blank border"])
def test_ties_go_to_the_first_maximum(paired, image):
    """Whole numbers make every tie exact: one of the equal maxima gets the gradient,
    the one that torch chooses.
    """
    module = lenet().double()
    for layer in module[0].modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data = torch.randint(-2, 4, layer.weight.shape).double()
            layer.bias.data.fill_(1)
    x = torch.ones(4, 3, 16, 16).double()
    if image == "blank border":
        x[:, :, 5:11, 5:11] = torch.randint(0, 3, (4, 3, 6, 6)).double()
    assert_same(module, x)
    assert paired


def test_constant_images_give_the_same_weight_gradients(paired):
    module, x = lenet().double(), torch.full((4, 3, 16, 16), 0.1).double()
    f = accelerate(module)
    for a, b in zip(
        gradients(module, module, x)[2:], gradients(f, module, x)[2:], strict=True
    ):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)
    assert paired


@pytest.mark.parametrize(
    "change",
    [
        {"stride": 2},
        {"dilation": 2},
        {"groups": 2},
        {"padding": "same"},
        {"padding": 1, "padding_mode": "reflect"},
    ],
)
def test_other_convolutions_stay_native(paired, change):
    assert_same(
        block(nn.Conv2d(2, 4, 3, **change)).double(), torch.randn(3, 2, 12, 12).double()
    )
    assert not paired


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, 1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, padding=1),
    ],
)
def test_other_pools_stay_native(paired, pool):
    assert_same(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), pool).double(),
        torch.randn(3, 1, 11, 11).double(),
    )
    assert not paired


def test_unknown_modules_give_none():
    assert accelerate(nn.Linear(4, 2)) is None
    assert accelerate(nn.Sequential(nn.Flatten(), nn.Linear(4, 2))) is None
    assert (
        accelerate(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout(), nn.MaxPool2d(2)))
        is None
    )


def test_a_first_layer_of_another_kind_is_called_as_it_is(paired):
    module = nn.Sequential(DrawNoise(), lenet())
    x = torch.randn(4, 4, 16, 16)
    torch.manual_seed(1)
    expected = module(x)
    torch.manual_seed(1)
    torch.testing.assert_close(accelerate(module)(x), expected)
    assert paired
    assert accelerate(nn.Sequential(nn.Dropout(), nn.Flatten())) is None
    assert accelerate(nn.Sequential()) is None


def test_autocast_runs_the_plain_module(paired):
    module, x = lenet(), torch.randn(4, 3, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(accelerate(module)(x), module(x))
    assert not paired


@pytest.mark.parametrize("make", [lenet, with_norm])
def test_layouts_and_modes_leave_no_trace_in_the_module(make):
    module = make()
    strides = [p.stride() for p in module.parameters()]
    gradients(
        accelerate(module),
        module,
        torch.randn(4, *((3, 16, 16) if make is lenet else (1, 12, 12))),
    )
    assert [p.stride() for p in module.parameters()] == strides
    assert module.training


def test_parameters_are_read_at_each_call():
    module, x = lenet().double(), torch.randn(4, 3, 16, 16).double()
    f = accelerate(module)
    before = f(x)
    module.load_state_dict(lenet().double().state_dict())
    after = f(x)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, module(x), rtol=1e-10, atol=1e-10)


def test_threads_give_the_bits_of_a_single_thread():
    nets = [lenet() for _ in range(4)]
    batches = [torch.randn(16, 3, 16, 16) for _ in nets]
    alone = [gradients(accelerate(m), m, x) for m, x in zip(nets, batches, strict=True)]
    together: list = [None] * len(nets)

    def work(i: int) -> None:
        f = accelerate(nets[i])
        for _ in range(10):
            together[i] = gradients(f, nets[i], batches[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(nets))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(alone, together, strict=True):
        assert all(torch.equal(u, v) for u, v in zip(a, b, strict=True))


def test_keep_memory_is_granted_by_glibc():
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")


# --- dense layers ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 7, 100])
@pytest.mark.parametrize("hidden", [(), (1,), (33,), (200, 200), (8, 64, 5)])
def test_the_written_out_gradients_are_autograds_to_the_bit(hidden, n, dtype):
    net = mlp(49, hidden, 10).to(dtype)
    x = torch.randn(n, 1, 7, 7, dtype=dtype)
    before = x.clone()
    y = torch.randint(10, (n,))
    with one_thread():
        loss, found = dense_gradients(net)(x, y)
        expected = F.cross_entropy(net(x), y)
        autograds = torch.autograd.grad(expected, list(net.parameters()))
    assert torch.equal(x, before)
    assert torch.equal(loss, expected)
    assert not loss.requires_grad
    for a, b in zip(found, autograds, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"optimizer": "adam", "lr": 0.01},
    ],
)
@pytest.mark.parametrize("corrected", [False, True])
def test_training_by_written_out_gradients_keeps_every_bit(
    options, corrected, monkeypatch
):
    local = Local(**{"lr": 0.1, "batch_size": 5, "epochs": 20, **options})
    rows = []
    for by_hand in (True, False):
        if not by_hand:
            monkeypatch.setattr(backends, "dense_gradients", lambda module: None)
        fed = federation("mlp", local=local)
        start = fed.start()[0]
        pull = (lambda g, th, to: g + 0.1 * (th - to)) if corrected else None
        up = fed.train(start, correct=pull, args=[start[None]] if corrected else [])
        assert all((w.by_hand is not None) == by_hand for w in fed.backend._pool)
        rows.append(up)
    assert torch.equal(rows[0].theta, rows[1].theta)
    assert torch.equal(rows[0].losses.nan_to_num(), rows[1].losses.nan_to_num())


def test_other_nets_are_left_to_autograd():
    frozen = mlp(4, (3,), 2)
    frozen[1].weight.requires_grad_(False)
    tied = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied[3].weight = tied[1].weight
    dense = nn.Linear(4, 4)
    others = [
        lenet(),
        linear(4, 2, bias=False),
        frozen,
        tied,
        dense,
        nn.Sequential(dense, nn.ReLU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Flatten(), dense, nn.ReLU()),
        nn.Sequential(nn.Flatten(), dense, nn.Tanh(), nn.Linear(4, 2)),
        nn.Sequential(nn.Flatten(), dense, nn.Dropout(), nn.Linear(4, 2)),
    ]
    for net in others:
        assert dense_gradients(net) is None
    assert dense_gradients(mlp(4, (3,), 2)) is not None
