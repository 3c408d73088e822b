"""The three workloads of the speed benchmark, and the two yardsticks every contender is
held against.

Plain torch and nothing else: no fednb, no peer library, so that every contender, each
in its own interpreter, trains the same models on the same tensors. W1 and W3 sample ten
clients a round, W2 takes all of them.

The yardsticks are the **plain loop** (`plain_round`: what one would write in an
afternoon) and the **limit** (`Limit`: the SGD steps alone, on every core, with no
federated learning around them).
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

State = dict[str, Tensor]


@dataclass(frozen=True)
class Workload:
    """One benchmark setting: the federation's shape, the model, and the local SGD every
    client runs.
    """

    name: str
    clients: int  # K
    sampled: int  # clients a round
    samples: int  # n, the same for every client
    shape: tuple[int, ...]
    classes: int
    make_model: Callable[[], nn.Module]
    batch: int
    lr: float
    momentum: float
    weight_decay: float
    epochs: int

    @property
    def steps(self) -> int:
        """SGD steps of one client in one round; the last batch of an epoch may be
        short.
        """
        return self.epochs * math.ceil(self.samples / self.batch)

    def model(self, seed: int = 0) -> nn.Module:
        """Return a fresh model whose initial weights depend on the seed alone."""
        torch.manual_seed(seed)
        return self.make_model()

    def optimizer(self, model: nn.Module) -> torch.optim.SGD:
        """Return a fresh optimiser: momentum never passes from one client to the
        next.
        """
        return torch.optim.SGD(
            model.parameters(),
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


def lenet() -> nn.Module:
    """W1: two small convolutions and three dense layers on 3x32x32, 100 classes."""
    features = [
        nn.Conv2d(3, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    head = [
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 100),
    ]
    return nn.Sequential(*features, *head)


def batchnorm_net() -> nn.Module:
    """W2: two convolutions with batch normalisation on 1x28x28, ten classes."""
    first = [
        nn.Conv2d(1, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    second = [
        nn.Conv2d(16, 32, 5, padding=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(1568, 10))


def mlp() -> nn.Module:
    """W3: 784-200-200-10."""
    hidden = [nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(200, 10))


WORKLOADS = {
    "W1": Workload("W1", 100, 10, 500, (3, 32, 32), 100, lenet, 64, 0.01, 0.0, 4e-4, 1),
    "W2": Workload(
        "W2", 200, 200, 300, (1, 28, 28), 10, batchnorm_net, 32, 0.001, 0.9, 0.0, 1
    ),
    "W3": Workload("W3", 100, 10, 600, (784,), 10, mlp, 100, 0.1, 0.0, 0.0, 10),
}


def workload(name: str, sampled: int | None = None) -> Workload:
    """Look a workload up; `sampled` cuts the clients of a round, for every contender
    alike.
    """
    if name not in WORKLOADS:
        raise KeyError(
            f"unknown workload {name!r}: choose one of {', '.join(WORKLOADS)}"
        )
    found = WORKLOADS[name]
    sampled = found.sampled if sampled is None else sampled
    if not 1 <= sampled <= found.clients:
        raise ValueError(f"sampled={sampled} of {name}: choose 1 to {found.clients}")
    return replace(found, sampled=sampled)


@lru_cache(maxsize=1)
def tensors(w: Workload, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Synthetic x (K, n, *shape) float32 and y (K, n) int64: noise around one centre
    per class.

    Learnable, so that a contender which does not train shows up in its loss; every
    fifth label is random, so that the loss stays well above zero (vanishing gradients
    would be denormal numbers, and slow). One set is kept per process.
    """
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(w.classes, (w.clients, w.samples), generator=generator)
    centres = 2 * torch.randn(w.classes, *w.shape, generator=generator)
    x = torch.randn(w.clients, w.samples, *w.shape, generator=generator)
    for client in range(
        w.clients
    ):  # client by client: W1 is 600 MB, a second copy would hurt
        x[client] += centres[y[client]]
    y[:, ::5] = torch.randint(w.classes, y[:, ::5].shape, generator=generator)
    return x, y


def batches(
    w: Workload, x: Tensor, y: Tensor, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch over a client's x (n, ...) and y (n,) in a fresh random order."""
    for rows in torch.randperm(len(y), generator=generator).split(w.batch):
        yield x[rows], y[rows]


def train(
    w: Workload, model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator
) -> None:
    """Run the local SGD of one client, the textbook way."""
    optimizer = w.optimizer(model)
    model.train()
    for _ in range(w.epochs):
        for features, labels in batches(w, x, y, generator):
            optimizer.zero_grad()
            cross_entropy(model(features), labels).backward()
            optimizer.step()


def weighted_average(states: list[State], weights: list[float]) -> State:
    """sum_k (n_k / n) state_k, entry by entry; integer buffers keep their type."""
    total = sum(weights)
    mean = {
        name: sum(s[name] * (n / total) for s, n in zip(states, weights, strict=True))
        for name in states[0]
    }
    return {name: value.to(states[0][name].dtype) for name, value in mean.items()}


def plain_round(
    w: Workload,
    model: nn.Module,
    state: State,
    x: Tensor,
    y: Tensor,
    generator: torch.Generator,
) -> State:
    """One round of the plain loop: sample, copy the global state, train, average.
    Returns the new state.

    `model` is only a workbench. Call it under `torch.set_num_threads(1)` for the
    single-thread yardstick.
    """
    chosen = torch.randperm(w.clients, generator=generator)[: w.sampled].tolist()
    states = []
    for client in chosen:
        model.load_state_dict(state)
        train(w, model, x[client], y[client], generator)
        states.append(deepcopy(model.state_dict()))
    return weighted_average(states, [float(w.samples)] * len(chosen))


def probe_loss(w: Workload, model: nn.Module, seed: int = 0) -> float:
    """Mean loss over a few samples of every client, on a copy of the model.

    In training mode: some peers average the weights only, so their running BatchNorm
    statistics mean nothing.
    """
    x, y = tensors(w, seed)
    copy = deepcopy(model).train()
    with torch.no_grad():
        return cross_entropy(copy(x[:, :5].flatten(0, 1)), y[:, :5].flatten()).item()


def _limit_worker(name: str, sampled: int, clients: int, seed: int, pipe) -> None:
    """Train `clients` clients for every number of rounds received; ends when the pipe
    closes.
    """
    torch.set_num_threads(1)
    w = replace(workload(name, sampled), clients=1, sampled=1)
    x, y = tensors(w, seed)
    resident = (
        list(zip(x[0].split(w.batch), y[0].split(w.batch), strict=True)) * w.epochs
    )
    model = w.model(seed).train()
    optimizer = w.optimizer(model)
    pipe.send("ready")
    while True:
        try:
            rounds = pipe.recv()
        except EOFError:  # the parent closed its end, or died
            return
        for _ in range(rounds * clients):
            for features, labels in resident:
                optimizer.zero_grad()
                cross_entropy(model(features), labels).backward()
                optimizer.step()
        pipe.send("done")


class Limit:
    """The limit: bare models doing a round's SGD steps on resident batches, one process
    and thread per core.

    No sampling, copying or averaging. Use: `limit = Limit(w)`, `seconds =
    limit.rounds(5)`, `limit.close()`.
    """

    def __init__(self, w: Workload, processes: int | None = None, seed: int = 0):
        context = torch.multiprocessing.get_context(
            "spawn"
        )  # fork after torch threads have run may hang
        count = min(processes or len(os.sched_getaffinity(0)), w.sampled)
        shares = [
            w.sampled // count + (rank < w.sampled % count) for rank in range(count)
        ]
        self.pipes, self.workers = [], []
        for share in shares:
            ours, theirs = context.Pipe()
            arguments = (w.name, w.sampled, share, seed, theirs)
            worker = context.Process(target=_limit_worker, args=arguments, daemon=True)
            worker.start()
            theirs.close()  # so that the worker's death ends our recv
            self.pipes.append(ours)
            self.workers.append(worker)
        for pipe in self.pipes:
            pipe.recv()

    def rounds(self, n: int) -> float:
        """Seconds for n rounds."""
        start = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(n)
        for pipe in self.pipes:
            pipe.recv()
        return time.perf_counter() - start

    def close(self) -> None:
        """End the workers."""
        for pipe in self.pipes:
            pipe.close()
        for worker in self.workers:
            worker.join(timeout=5)
            worker.kill()
