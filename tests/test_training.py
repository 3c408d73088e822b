"""Two backends, one result: and that result is what a plain loop of torch.optim
gives.
"""

import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fednb.federation import ClientError, Federation
from fednb.training import Local, augment, plan

from .conftest import NETWORKS, batches, blobs, federation, ragged

CASES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "weight_decay": {"weight_decay": 0.01},
    "adam": {"optimizer": "adam", "lr": 0.01},
    "steps": {"steps": 7},
    "drop_last": {"drop_last": True, "epochs": 2},
    "whole": {"batch_size": None, "epochs": 2},
    "all": {"momentum": 0.5, "weight_decay": 0.01, "epochs": 2},
}


def local_of(case):
    return Local(**{"lr": 0.05, "batch_size": 5, **CASES[case]})


def plain_loop(fed, theta, clients, visit=0, mu=0.0):
    """The slow twin: one client after the other, a fresh module and torch.optim
    each.
    """
    rows, losses = [], []
    for k in clients:
        module = fed.network(theta).train()
        layout = fed.layout
        kind = torch.optim.Adam if fed.local.optimizer == "adam" else torch.optim.SGD
        options = {} if kind is torch.optim.Adam else {"momentum": fed.local.momentum}
        optimiser = kind(
            module.parameters(), lr=fed.local.lr, weight_decay=0.0, **options
        )
        drawn = batches(fed, k, visit)
        losses.append([])
        for index, size in zip(drawn.index, drawn.size, strict=True):
            optimiser.zero_grad()
            x, y = fed.samples(index[:size])
            loss = F.cross_entropy(module(x), y)
            loss.backward()
            start = dict(zip(layout.names, layout.tensors(theta).values(), strict=True))
            for name, p in module.named_parameters():
                if not p.requires_grad:
                    continue
                if p.grad is None:  # unused
                    p.grad = torch.zeros_like(p)
                p.grad += (
                    mu * (p.detach() - start[name])
                    + fed.local.weight_decay * p.detach()
                )
            optimiser.step()
            losses[-1].append(loss.item())
        rows.append(layout.row(module))
    return torch.stack(rows), losses


@pytest.mark.parametrize("backend", ["lean", "batched"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("network", NETWORKS)
def test_backends_agree_with_a_plain_loop(network, case, backend):
    fed = federation(
        network, local=local_of(case), backend=backend, dtype=torch.float64, chunk=3
    )
    theta = fed.start()[0]
    mu = 0.3 if case == "all" else 0.0
    correct = (lambda g, th: g + mu * (th - theta)) if mu else None
    up = fed.train(theta, correct=correct)
    rows, losses = plain_loop(fed, theta, range(fed.K), mu=mu)
    kept = torch.ones(fed.layout.D, dtype=torch.bool)
    if (network, case) == ("cnn_bn", "adam"):
        # a bias before BatchNorm has gradient zero, of which Adam makes steps of random
        # sign (the running mean sees it)
        kept[fed.layout.columns("[04].bias")] = False
        kept[fed.layout.P :] = False
    torch.testing.assert_close(up.theta[:, kept], rows[:, kept], rtol=0, atol=1e-10)
    for i, own in enumerate(losses):
        np.testing.assert_allclose(up.losses[i, : len(own)], own, rtol=0, atol=1e-10)
        assert up.losses[i, len(own) :].isnan().all()
    assert not torch.equal(up.theta[0], theta)


def test_per_client_arguments_of_a_correction():
    anchors = torch.randn(4, federation().layout.D, dtype=torch.float64)
    results = []
    for backend in ("lean", "batched"):
        fed = federation(backend=backend, dtype=torch.float64)
        up = fed.train(
            fed.start()[0],
            correct=lambda g, th, w, s: g + s * (th - w),
            args=(anchors, anchors[:, :1]),
        )
        results.append(up.theta)
    torch.testing.assert_close(*results, rtol=0, atol=1e-10)
    alone = federation(dtype=torch.float64)
    one = alone.train(
        alone.start()[0],
        torch.tensor([2]),
        correct=lambda g, th, w: g,
        args=(anchors[2:3],),
    )
    assert torch.equal(one.clients, torch.tensor([2]))


@pytest.mark.parametrize("backend", ["lean", "batched"])
def test_a_correction_of_wrong_shape_names_the_fault(backend):
    fed = federation(backend=backend)
    with pytest.raises(
        (ClientError, ValueError), match=r"correct\(g, th, ...\) returned shape"
    ):
        fed.train(fed.start()[0], correct=lambda g, th: g[..., :3])


@pytest.mark.parametrize("network", NETWORKS)
def test_same_bits_whatever_the_workers_and_the_order(network):
    theta = federation(network).start()[0]
    results = []
    for workers in (1, 2, 5):
        fed = federation(
            network,
            workers=workers,
            local=Local(lr=0.1, batch_size=5, momentum=0.9, augment=True),
        )
        order = torch.arange(4) if workers < 5 else torch.tensor([3, 1, 0, 2])
        up = fed.train(theta, order)
        results.append(up.theta[order.argsort()])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("network", NETWORKS)
def test_same_bits_whatever_the_chunk_and_the_order(network):
    theta = federation(network).start()[0]
    results = []
    for chunk, order in ((1, [0, 1, 2, 3]), (3, [0, 1, 2, 3]), (None, [2, 3, 1, 0])):
        fed = federation(
            network,
            backend="batched",
            chunk=chunk,
            local=Local(lr=0.1, batch_size=5, augment=True),
        )
        up = fed.train(theta, torch.tensor(order))
        results.append(up.theta[torch.tensor(order).argsort()])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    torch.testing.assert_close(results[0], results[2], rtol=0, atol=0)


def test_augmented_backends_agree():
    local = Local(lr=0.1, batch_size=5, augment=True, epochs=2)
    rows = [
        federation("lenet5", local=local, backend=b, dtype=torch.float64).train(
            federation("lenet5", dtype=torch.float64).start()[0]
        )
        for b in ("lean", "batched")
    ]
    torch.testing.assert_close(rows[0].theta, rows[1].theta, rtol=0, atol=1e-10)


def test_augment_is_crop_and_flip():
    x = torch.arange(2 * 1 * 8 * 8.0).view(2, 1, 8, 8)
    same = augment(x, torch.tensor([[4, 4, 0], [4, 4, 1]]))
    assert torch.equal(same[0], x[0])
    assert torch.equal(same[1], x[1].flip(-1))
    moved = augment(x, torch.tensor([[0, 8, 0], [4, 5, 0]]))
    assert torch.equal(moved[0, :, 4:, :4], x[0, :, :4, 4:])
    assert (moved[0, :, :4] == 0).all()
    assert torch.equal(moved[1, :, :, :7], x[1, :, :, 1:])


@pytest.mark.parametrize("backend", ["lean", "batched"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_kept_state_makes_two_rounds_one_long_one(backend, optimizer):
    """With a full batch there is no shuffling, so 2 x 2 steps with kept state are 4
    steps; reset state are not.
    """
    short = Local(
        lr=0.05,
        batch_size=None,
        steps=2,
        momentum=0.9,
        optimizer=optimizer,
        keep_state=True,
    )
    fed, options = (
        federation(local=short, backend=backend, dtype=torch.float64),
        {"keep_state": False, "steps": 4},
    )
    theta = fed.start()[0]
    twice = fed.train(fed.train(theta).theta).theta
    long = (
        federation(backend=backend, dtype=torch.float64, local=short)
        .train(theta, **options)
        .theta
    )
    torch.testing.assert_close(twice, long, rtol=0, atol=1e-10)
    forgetful = federation(backend=backend, dtype=torch.float64, local=short)
    reset = forgetful.train(
        forgetful.train(theta, keep_state=False).theta, keep_state=False
    ).theta
    assert not torch.allclose(reset, long)


def test_every_visit_has_new_batches_and_other_clients_do_not_matter():
    fed = federation()
    theta = fed.start()[0]
    first, second = fed.train(theta), fed.train(theta)
    assert not torch.equal(first.theta, second.theta)
    alone = federation()
    assert torch.equal(alone.train(theta, torch.tensor([2])).theta[0], first.theta[2])


def test_learning_rate_decays_by_round():
    fed = federation(local=Local(lr=0.1, lr_decay=0.5, decay_every=2, batch_size=None))
    theta = fed.start()[0]
    moves = []
    for t in (0, 1, 2, 4):
        fed.t = t
        moves.append((fed.train(theta).theta - theta).norm())
    moves = torch.stack(moves)
    torch.testing.assert_close(moves, moves[0] * torch.tensor([1.0, 1.0, 0.5, 0.25]))


def test_plan_covers_an_epoch_and_marks_short_batches():
    samples = np.arange(100, 113)
    p = plan(samples, Local(batch_size=5, epochs=2), np.random.default_rng(0))
    assert p.index.shape == (6, 5) and p.size.tolist() == [5, 5, 3, 5, 5, 3]
    for epoch in (slice(0, 3), slice(3, 6)):
        seen = [
            i
            for row, size in zip(p.index[epoch], p.size[epoch], strict=True)
            for i in row[:size].tolist()
        ]
        assert sorted(seen) == samples.tolist()
    dropped = plan(
        samples, Local(batch_size=5, drop_last=True), np.random.default_rng(0)
    )
    assert dropped.size.tolist() == [5, 5]
    tiny = plan(
        samples[:3], Local(batch_size=5, drop_last=True), np.random.default_rng(0)
    )
    assert tiny.size.tolist() == [3]  # a client smaller than a batch still trains
    steps = plan(samples, Local(batch_size=5, steps=4), np.random.default_rng(0))
    assert steps.size.tolist() == [5, 5, 3, 5]


@pytest.mark.parametrize("batch_size", [1, 4, 5, 100, None])
def test_batches_per_epoch_are_those_of_a_plan(batch_size):
    local = Local(batch_size=batch_size)
    sizes = [1, 4, 5, 13]
    planned = []
    for n in sizes:
        batches = plan(np.arange(n), local, np.random.default_rng(0))
        planned.append(len(batches.size))
    assert [local.batches_per_epoch(n) for n in sizes] == planned
    assert local.batches_per_epoch(torch.tensor(sizes)).tolist() == planned


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": 0.0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"epochs": 0},
        {"steps": 0},
        {"batch_size": 0},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"lr_decay": 0.0},
        {"decay_every": 0},
        {"optimizer": "adagrad"},
    ],
)
def test_local_refuses_nonsense(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Local(**wrong)


def test_an_error_names_the_client_and_leaves_no_thread():
    fed = federation(workers=2)
    before = set(threading.enumerate())

    def fail(g, th, k):
        if k == 2:
            raise RuntimeError("disk on fire")
        return g

    with pytest.raises(ClientError, match="client 2: RuntimeError: disk on fire"):
        fed.train(fed.start()[0], correct=fail, args=(torch.arange(4),))
    assert set(threading.enumerate()) == before
    assert torch.get_num_threads() == 1
    assert (
        fed.train(fed.start()[0]).theta.isfinite().all()
    )  # and the federation goes on


def test_an_error_stops_the_other_threads_at_their_next_step():
    """One worker fails at once, the other has 10,000 epochs to go: it must not finish
    them.
    """
    fed = federation(
        sizes=(20, 20), workers=2, local=Local(lr=0.01, batch_size=2, epochs=10_000)
    )
    steps = [0, 0]

    def fail(g, th, k):
        steps[int(k)] += 1
        if k == 1:
            raise RuntimeError("no")
        return g

    with pytest.raises(ClientError, match="client 1"):
        fed.train(fed.start()[0], correct=fail, args=(torch.arange(2),))
    assert steps[0] < 50_000 and steps[1] == 1


@pytest.mark.parametrize("backend", ["lean", "batched"])
def test_nobody_may_be_asked_to_train(backend):
    fed = federation(backend=backend)
    up = fed.train(fed.start()[0], torch.zeros(4, dtype=torch.bool))
    assert (
        up.theta.shape == (0, fed.layout.D)
        and len(up.losses) == 0
        and fed.meter.updates == 0
    )


def test_a_diverged_client_does_not_keep_its_momentum():
    local = Local(lr=0.05, batch_size=5, momentum=0.9, keep_state=True)
    fed = federation(local=local, diverged="record")
    theta, wild = fed.start()[0], torch.tensor([[1.0], [1.0], [1e38], [1.0]])
    fed.train(theta, correct=lambda g, th, s: g * s, args=(wild,))
    fed.train(theta)
    assert [e.client for e in fed.events] == [2]  # once: the next round is sound again


def test_ctrl_c_stops_the_threads():
    fed = federation(workers=2, local=Local(lr=0.01, batch_size=2, epochs=10_000))

    def interrupt(future, *_):
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    from concurrent.futures import Future

    original = Future.result
    Future.result = interrupt
    try:
        with pytest.raises(KeyboardInterrupt):
            fed.train(fed.start()[0])
    finally:
        Future.result = original
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("backend", ["lean", "batched"])
def test_divergence_is_an_error_that_names_the_client(backend):
    fed = federation(backend=backend, local=Local(lr=1e30, batch_size=5, epochs=3))
    with pytest.raises(ClientError, match=r"client \d diverged in round 0: .*lower lr"):
        fed.train(fed.start()[0])


@pytest.mark.parametrize("backend", ["lean", "batched"])
def test_divergence_can_be_recorded_instead(backend):
    fed = federation(backend=backend, diverged="record")
    theta = fed.start()[0]
    up = fed.train(
        theta,
        correct=lambda g, th, s: g * s,
        args=(torch.tensor([[1.0], [1.0], [1e38], [1.0]]),),
    )
    assert [e.client for e in fed.events] == [2]
    assert torch.equal(up.theta[2], theta) and up.theta.isfinite().all()


@pytest.mark.parametrize("backend", ["lean", "batched"])
def test_amp_trains_in_low_precision_on_the_same_rows(backend):
    exact, amp = (
        federation(backend=backend, local=Local(lr=0.05, batch_size=5, amp=a))
        for a in (False, True)
    )
    theta = exact.start()[0]
    a, b = exact.train(theta).theta, amp.train(theta).theta
    assert b.dtype == torch.float32 and not torch.equal(a, b)
    assert (a - b).norm() < 0.2 * (a - theta).norm()


def test_the_memory_budget_sets_the_chunk():
    fed = federation("lenet5", backend="batched")
    plans = [batches(fed, k) for k in range(4)]
    rows = fed.start().expand(4, -1)
    roomy, tight = fed.backend._chunk_that_fits(plans, rows), None
    fed.backend.memory = 1.0
    tight = fed.backend._chunk_that_fits(plans, rows)
    assert tight == 1 and roomy > 100


# --- frozen and unused parameters -----------------------------------------------------


class Partly(nn.Module):
    """A network of which one layer is frozen, and another is never used."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(16, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.norm.weight.requires_grad_(False)
        self.unused = nn.Linear(2, 2)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.norm(self.frozen(x.flatten(1)).relu()))


STILL = ("frozen.*", "norm.weight")


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_frozen_parameters_stay_and_the_others_train(case, mu):
    def make(backend):
        return Federation(
            blobs(),
            ragged((9, 14, 7)),
            Partly,
            local=local_of(case),
            backend=backend,
            dtype=torch.float64,
        )

    lean, batched = make("lean"), make("batched")
    layout = lean.layout
    theta = lean.start()[0]
    anchor = torch.ones_like(theta)  # a correction pulls frozen columns in vain
    correct = (lambda g, th: g + mu * (th - anchor)) if mu else None
    a, b = (fed.train(theta, correct=correct) for fed in (lean, batched))
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-10)
    torch.testing.assert_close(a.losses, b.losses, rtol=0, atol=1e-10, equal_nan=True)
    for pattern in STILL:
        columns = layout.columns(pattern)
        for up in (a, b):
            assert torch.equal(up.theta[:, columns], theta[columns].expand(3, -1))
    moved = layout.columns("last.*")
    assert (a.theta[:, moved] != theta[moved]).all()
    if mu == 0:
        rows, _ = plain_loop(lean, theta, range(3))
        torch.testing.assert_close(a.theta, rows, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", ["lean", "batched"])
def test_kept_momentum_of_frozen_parameters_is_zero(backend):
    local = Local(lr=0.1, momentum=0.9, weight_decay=0.1, keep_state=True)
    fed = Federation(blobs(), ragged((9, 14)), Partly, local=local, backend=backend)
    theta = fed.train(fed.train(fed.start()[0]).theta).theta
    still = torch.cat([fed.layout.columns(pattern) for pattern in STILL])
    assert torch.equal(theta[:, still], fed.start()[:, still].expand(2, -1))
    momenta = [v for name, v in fed.snapshot().items() if name.startswith("memory.")]
    assert len(momenta) == 2
    for momentum in momenta:
        assert (momentum[still] == 0).all() and momentum.any()
