"""Local SGD of many clients at once: two backends, one result.

:class:`Lean` is for CPUs: each worker thread owns one module whose tensors are views of
a row, so that loading a model is one copy, and an SGD step needs no optimiser object;
torch itself runs on one thread per worker. :class:`Batched` is for GPUs: all clients of
a round take each step together, as one ``vmap(grad)``; ragged batches are padded with
samples of weight zero, and nothing in the loop waits for the device.
"""

from __future__ import annotations

import copy
import math
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from .conv import accelerate, dense_gradients, keep_memory
from .params import Layout
from .training import (
    Inputs,
    Local,
    Plan,
    Seeded,
    augment,
    descend,
    draws,
    fresh_state,
    one_thread,
)

# correct(g, th, *args) -> g, on (D,) vectors or (n, D) matrices alike
Correction = Callable[..., Tensor]
# (outputs (B, ...), targets (B,)) -> loss of each sample (B,)
Loss = Callable[[Tensor, Tensor], Tensor]
State = tuple[Tensor, ...]  # an optimiser's memory
Batch = tuple[Tensor, Tensor, Tensor]  # inputs, targets and weights of samples


class Trained(NamedTuple):
    """Outcome of local training.

    Rows (n, D), losses (n, S) padded with nan, and each client's optimiser state.
    """

    theta: Tensor
    losses: Tensor
    states: list[State]


class TaskError(RuntimeError):
    """Task ``i`` of a parallel batch failed; the cause is chained."""

    def __init__(self, i: int, cause: Exception) -> None:
        super().__init__(f"task {i}: {type(cause).__name__}: {cause}")
        self.i = i


class Worker(NamedTuple):
    """One thread's own module, its tensors views of ``row``."""

    module: nn.Module
    row: Tensor  # (D,)
    trained: list[nn.Parameter]  # those that require a gradient
    # the module, or a faster function with the same outputs and gradients
    forward: Callable[[Tensor], Tensor]
    # the loss and its gradients at once, for nets where they are written out
    by_hand: Callable[[Tensor, Tensor], tuple[Tensor, list[Tensor]]] | None


class Lean:
    """One client per core at a time, each on a single torch thread."""

    def __init__(
        self, module: nn.Module, x: Inputs, y: Tensor, loss: Loss, workers: int
    ) -> None:
        self.layout = Layout.of(module)
        self.x = x
        self.y = y
        self.mean_loss = mean_of(loss)
        self.frozen = frozen_columns(module)
        self.draws = modes_that_draw(module, x)
        self.workers = workers
        self._module = module
        self._stop = threading.Event()  # set when all threads should end
        keep_memory()
        self._pool: list[Worker] = []

    def train(
        self,
        rows: Tensor,
        plans: Sequence[Plan],
        local: Local,
        lr: float,
        correct: Correction | None,
        args: Sequence[Tensor],
        states: Sequence[State | None],
    ) -> Trained:
        """Train row i (of (n, D)) by plan i."""
        theta = torch.empty_like(rows)
        most_steps = max((len(p.size) for p in plans), default=0)
        losses = rows.new_full((len(rows), most_steps), math.nan)
        new_states: list[State] = [()] * len(rows)

        def train_one(worker: Worker, i: int) -> None:
            given = [values[i] for values in args]
            loss, new_states[i] = self._train_client(
                worker, rows[i], plans[i], local, lr, correct, given, states[i]
            )
            theta[i] = worker.row
            losses[i, : len(loss)] = loss

        self._each(len(rows), train_one)
        return Trained(theta, losses, new_states)

    def _train_client(
        self,
        worker: Worker,
        row: Tensor,
        plan: Plan,
        local: Local,
        lr: float,
        correct: Correction | None,
        given: Sequence[Tensor],
        kept: State | None,
    ) -> tuple[Tensor, State]:
        """Train one client from ``row`` (D,): its losses (S,), its optimiser's state.

        The trained row is then in ``worker.row``. ``given`` is the client's line of
        each of ``args``, and ``kept`` its optimiser's state of earlier rounds.
        """
        module, flat, trained, *_ = worker
        P = self.layout.P
        buffers = self.layout.D - P
        module.train()
        flat.copy_(row)
        state = fresh_state(flat[:P], local)
        if kept:
            state = tuple(tensor.clone() for tensor in kept)
        frozen: Tensor | None
        whole = correct is not None or local.optimizer == "adam"
        if whole:  # a correction and Adam see the model as one vector
            th = [flat[:P]]
            memory = [[tensor] for tensor in state]
            frozen = self.frozen
        else:  # plain SGD takes the gradients as they come, tensor by tensor: no copy
            th = [p.data for p in trained]
            memory = [self._trained_tensors(module, tensor) for tensor in state]
            frozen = None  # frozen parameters are not in these lists
        index = plan.index.to(flat.device)
        shift = plan.shift
        if shift is not None:
            shift = shift.to(flat.device)
        losses = []
        stream = self._stream(plan.seed, training=True)
        for s, b in enumerate(plan.size):
            if self._stop.is_set():
                break
            batch = index[s, :b]
            x = self.x.index_select(0, batch)
            y = self.y.index_select(0, batch)
            if shift is not None:
                x = augment(x, shift[s, :b])
            if worker.by_hand is not None and not local.amp:
                loss, g = worker.by_hand(x, y)
            else:
                with stream:
                    outputs = apply_network(worker.forward, x, local.amp)
                    loss = self.mean_loss(outputs, y)
                g = gradients(loss, trained)
            losses.append(loss.detach())
            if whole:
                g = [self._as_vector(g)]  # (P,)
            if correct is not None:
                g = [corrected(correct, F.pad(g[0], (0, buffers)), flat, given)[:P]]
            descend(th, g, memory, lr, local, frozen)
        if not losses:
            return flat[:0], state
        return torch.stack(losses), state

    def _as_vector(self, gradients: Sequence[Tensor]) -> Tensor:  # (P,)
        """Gradients of the trained parameters in their columns, zero in the others."""
        g = torch.cat([part.reshape(-1) for part in gradients])
        if self.frozen is None:
            return g
        return g.new_zeros(self.layout.P).masked_scatter_(~self.frozen, g)

    def _trained_tensors(self, module: nn.Module, state: Tensor) -> list[Tensor]:
        """A vector (P,) seen as tensors, without those of frozen parameters."""
        tensors = self.layout.tensors(state)
        return [
            tensors[name] for name, p in module.named_parameters() if p.requires_grad
        ]

    def logits(
        self,
        tasks: Sequence[tuple[Tensor, Tensor]],
        batch: int = 500,
        train: bool = False,
        seed: int = 0,
        samples: Inputs | None = None,
    ) -> list[Tensor]:
        """Outputs (m, ...) of each task (row (D,), inputs (m, ...)).

        With ``samples``, a task is (row, numbers (m,)): its inputs are looked up there,
        a batch at a time, so that they are never in memory all at once.
        ``train`` evaluates in training mode. A model that draws random numbers draws
        them from streams that depend on ``seed`` and on the place of the task.
        """
        # batches of inputs, or of sample numbers; each is replaced by its outputs
        batches = [list(x.split(batch)) for _, x in tasks]
        pieces = [(i, j) for i, parts in enumerate(batches) for j in range(len(parts))]

        def predict_one(worker: Worker, k: int) -> None:
            i, j = pieces[k]
            worker.module.train(train)
            with torch.no_grad(), self._stream(seed + k, training=train):
                worker.row.copy_(tasks[i][0])
                x = batches[i][j]
                if samples is not None:
                    x = samples.index_select(0, x)
                batches[i][j] = worker.forward(x)

        self._each(len(pieces), predict_one)
        return [torch.cat(parts) for parts in batches]

    def _stream(self, seed: int, training: bool) -> AbstractContextManager:
        """The random stream of a model that draws in this mode; else nothing."""
        if self.draws[training]:
            return Seeded(seed)
        return nullcontext()

    def _each(self, n: int, task: Callable[[Worker, int], None]) -> None:
        """Run task(worker, i) for i < n on all workers.

        The first error stops them and says which i it was.
        """
        self._stop.clear()
        while len(self._pool) < min(self.workers, n):
            module = copy.deepcopy(self._module)
            row = self.layout.bind(module)
            trained = [p for p in module.parameters() if p.requires_grad]
            forward = accelerate(module) or module
            by_hand = None
            if self.mean_loss is F.cross_entropy and not self.y.is_floating_point():
                by_hand = dense_gradients(module)
            self._pool.append(Worker(module, row, trained, forward, by_hand))
        todo = iter(range(n))  # shared: a range iterator hands out each number once

        def work(worker: Worker) -> None:
            for i in todo:
                if self._stop.is_set():
                    return
                try:
                    task(worker, i)
                except Exception as error:
                    self._stop.set()
                    raise TaskError(i, error) from error

        threads = ThreadPoolExecutor(
            self.workers, initializer=torch.set_num_threads, initargs=(1,)
        )
        with one_thread(), threads as pool:
            futures = [pool.submit(work, worker) for worker in self._pool[:n]]
            try:
                for future in futures:
                    future.result()
            except BaseException:  # Ctrl-C too: the threads end at their next step
                self._stop.set()
                raise


def choose_backend(device: torch.device, module: nn.Module, x: Inputs) -> str:
    """The backend that ``"auto"`` stands for: batched on a GPU, lean on a CPU.

    A model that draws random numbers while it trains is left to the lean one, with a
    warning, for the batched backend has no random stream for each client.
    """
    if device.type != "cuda":
        return "lean"
    if modes_that_draw(module, x)[True]:
        warnings.warn(
            "the model draws random numbers while it trains (dropout, say): clients "
            "train one after the other (the lean backend), which a GPU does slowly",
            stacklevel=3,
        )
        return "lean"
    return "batched"


class Batched:
    """All clients of a chunk in one vectorised pass.

    A chunk is what fits the memory budget. ``convolution`` is ``"unfold"``, a matrix
    product for each client (see `UnfoldConv`), or ``"grouped"``, torch's own grouped
    convolution. By default a GPU takes the one that is faster there, by a measurement
    of about a second; elsewhere it is ``"unfold"``.
    """

    def __init__(
        self,
        module: nn.Module,
        x: Inputs,
        y: Tensor,
        loss: Loss,
        largest: int,
        chunk: int | None = None,
        memory: float | None = None,
        convolution: str | None = None,
    ) -> None:
        lean = Lean(module, x, y, loss, workers=1)
        if lean.draws[True]:
            raise ValueError(
                "the model draws random numbers while it trains (dropout, say), for "
                "which the batched backend has no stream per client: use "
                'backend="lean"'
            )
        self.layout = Layout.of(module)
        self.x = x
        self.y = y
        self.loss = loss
        self.largest = largest  # samples of the largest client
        self.chunk = chunk
        self.memory = memory
        self.frozen = lean.frozen
        self.logits = lean.logits
        self._module = copy.deepcopy(module).train()
        self._norms = [m for m in self._module.modules() if isinstance(m, _BatchNorm)]
        for norm in self._norms:
            norm.__class__ = RaggedNorm
            norm.num_batches_tracked = None
        self._convolutions = [
            layer
            for layer in self._module.modules()
            if type(layer) is nn.Conv2d and can_unfold(layer)
        ]
        if convolution is None:
            convolution = "unfold"
            if x.device.type == "cuda" and self._convolutions:
                convolution = self.faster_convolution()
        self.convolve_by(convolution)

    def convolve_by(self, convolution: str) -> None:
        """Let all convolutions be computed by ``"unfold"`` or ``"grouped"``."""
        kinds = {"unfold": UnfoldConv, "grouped": nn.Conv2d}
        for layer in self._convolutions:
            layer.__class__ = kinds[convolution]
        self.convolution = convolution

    def faster_convolution(self, seconds: float = 1.0, clients: int = 8) -> str:
        """The convolution with the faster gradients on this device.

        Each has half the time for as many batches as it can; its fastest one counts.
        """
        fastest = {}
        for convolution in ("unfold", "grouped"):
            self.convolve_by(convolution)
            self._time_gradients(clients)  # warm up
            end = time.perf_counter() + seconds / 2
            taken = [self._time_gradients(clients)]
            while time.perf_counter() < end:
                taken.append(self._time_gradients(clients))
            fastest[convolution] = min(taken)
        return min(fastest, key=lambda name: fastest[name])

    def _time_gradients(self, clients: int) -> float:
        """Seconds for the gradients of so many clients, at a batch of 32 samples."""
        samples = torch.arange(32, device=self.x.device) % len(self.x)
        samples = samples.expand(clients, -1)
        row = self.layout.row(self._module)
        rows = row.expand(clients, -1)
        P = self.layout.P
        weights = row.new_ones(samples.shape)
        batch = (self.x[samples], self.y[samples], weights)
        _synchronise(self.x.device)
        start = time.perf_counter()
        self._gradients(rows[:, :P], rows[:, P:], batch, amp=False)
        _synchronise(self.x.device)
        return time.perf_counter() - start

    def train(
        self,
        rows: Tensor,
        plans: Sequence[Plan],
        local: Local,
        lr: float,
        correct: Correction | None,
        args: Sequence[Tensor],
        states: Sequence[State | None],
    ) -> Trained:
        """Train row i (of (n, D)) by plan i.

        Clients with most steps come first, so that those still at work are a prefix.
        """
        steps = np.array([len(p.size) for p in plans], dtype=int)
        theta = rows.clone()
        losses = rows.new_full((len(rows), int(steps.max(initial=0))), math.nan)
        new_states: list[State] = [()] * len(rows)
        order = np.argsort(-steps, kind="stable")
        size = self.chunk
        if size is None:
            size = self._chunk_that_fits(plans, rows)
        for first in range(0, len(order), size):
            chunk = order[first : first + size]
            i = torch.as_tensor(chunk, device=rows.device)
            done = self._train_chunk(
                rows[i],
                [plans[k] for k in chunk],
                local,
                lr,
                correct,
                [values[i] for values in args],
                [states[k] for k in chunk],
            )
            theta[i] = done.theta
            losses[i, : steps[chunk[0]]] = done.losses
            for k, state in zip(chunk, done.states, strict=True):
                new_states[k] = state
        return Trained(theta, losses, new_states)

    def _train_chunk(
        self,
        rows: Tensor,
        plans: Sequence[Plan],
        local: Local,
        lr: float,
        correct: Correction | None,
        given: Sequence[Tensor],
        states: Sequence[State | None],
    ) -> Trained:
        """Train row i (of (m, D)) by plan i, all clients at once."""
        P = self.layout.P
        B = self.largest  # the same padding whoever is in the chunk
        if local.batch_size is not None:
            B = min(local.batch_size, self.largest)
        # (S, m, B), (S, m, B), (S, m, B, 3)
        index, weight, shift = stack(plans, B, rows)
        active = [sum(len(p.size) > s for p in plans) for s in range(len(index))]
        rows = rows.clone()  # (m, D)
        th = rows[:, :P]
        buffers = rows[:, P:]
        state = fresh_state(th, local)
        for i, kept in enumerate(states):
            for all_clients, one_client in zip(state, kept or (), strict=False):
                all_clients[i] = one_client
        losses = rows.new_full((len(rows), len(index)), math.nan)
        for s, a in enumerate(active):  # the first a clients still have a batch
            samples = index[s, :a]  # (a, B)
            x = self.x[samples]  # (a, B, ...)
            if shift is not None:
                moved = augment(x.flatten(0, 1), shift[s, :a].flatten(0, 1))
                x = moved.unflatten(0, samples.shape)
            batch = (x, self.y[samples], weight[s, :a])
            g, (losses[:a, s], buffers[:a]) = self._gradients(
                th[:a], buffers[:a], batch, local.amp
            )
            if correct is not None:
                padded = F.pad(g, (0, buffers.shape[1]))
                g = corrected(correct, padded, rows[:a], [v[:a] for v in given])[:, :P]
            descend([th[:a]], [g], [[v[:a]] for v in state], lr, local, self.frozen)
        new_states = [tuple(v[i].clone() for v in state) for i in range(len(rows))]
        return Trained(rows, losses, new_states)

    def _gradients(
        self, th: Tensor, buffers: Tensor, batch: Batch, amp: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Gradients (a, P) of the clients' losses, each at the client's parameters.

        Returned together with the losses (a,) and the new buffers (a, D - P).
        """
        layout = self.layout
        names = layout.names[layout.n_parameters :]

        def loss_of(p: Tensor, b: Tensor, x: Tensor, y: Tensor, w: Tensor):
            # (P,), (D - P,), (B, ...), (B,), (B,)
            both = layout.tensors(torch.cat([p.detach(), b]))
            tensors = {name: tensor.clone() for name, tensor in both.items()}
            # BatchNorm writes into the clones of its buffers
            tensors |= layout.tensors(p)
            for norm in self._norms:
                norm.weights = w
            network = partial(functional_call, self._module, tensors)
            losses = self.loss(apply_network(network, x, amp), y)  # (B,)
            loss = (losses * w).sum() / w.sum()
            new = b
            if names:
                new = torch.cat([tensors[name].view(-1) for name in names])
            return loss, (loss.detach(), new)

        return vmap(grad(loss_of, has_aux=True))(th, buffers, *batch)

    def _chunk_that_fits(self, plans: Sequence[Plan], rows: Tensor) -> int:
        """Number of clients per pass.

        A client takes eight rows and, for each sample of a batch, twice what the sample
        saves for the backward pass: its gradients take as much again.
        """
        if len(rows) == 0:
            return 1
        saved: list[int] = []

        def note_size(tensor: Tensor) -> Tensor:
            saved.append(tensor.nbytes)
            return tensor

        row = rows[0].clone().requires_grad_()
        tensors = {name: t.clone() for name, t in self.layout.tensors(row).items()}
        for norm in self._norms:
            norm.weights = rows.new_ones(2)
        with torch.autograd.graph.saved_tensors_hooks(note_size, lambda t: t):
            functional_call(self._module, tensors, (self.x[:2],))
        largest_batch = max(p.index.shape[1] for p in plans)
        per_client = sum(saved) * largest_batch + 8 * rows[0].nbytes
        budget = self.memory
        if budget is None:
            free = 4e9
            if rows.is_cuda:
                free = torch.cuda.mem_get_info(rows.device)[0]
            budget = 0.5 * free
        return max(1, int(budget / per_client))


def _synchronise(device: torch.device) -> None:
    """Wait until a GPU has done what it was asked; a CPU never lags behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def can_unfold(conv: nn.Conv2d) -> bool:
    """Whether `UnfoldConv` computes what this layer does."""
    zero_padding = conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
    return conv.groups == 1 and zero_padding


class UnfoldConv(nn.Conv2d):
    """Convolution as one matrix product per client.

    Under vmap nn.Conv2d becomes a grouped convolution, whose rounding depends on how
    many clients are in the chunk; a batched matrix product treats each client alike,
    whatever the company.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x (B, C, H, W)."""
        assert not isinstance(self.padding, str)  # see `can_unfold`
        patches = F.unfold(  # (B, C k k, L)
            x, self.kernel_size, self.dilation, self.padding, self.stride
        )
        y = self.weight.flatten(1) @ patches.transpose(0, 1).flatten(1)  # (O, B L)
        y = y.unflatten(1, (len(x), -1)).transpose(0, 1)  # (B, O, L)
        if self.bias is not None:
            y = y + self.bias[:, None]
        sides = []
        for axis in (0, 1):
            padded = x.shape[2 + axis] + 2 * self.padding[axis]
            reach = self.dilation[axis] * (self.kernel_size[axis] - 1)
            sides.append((padded - reach - 1) // self.stride[axis] + 1)
        return y.unflatten(2, sides)


class RaggedNorm(_BatchNorm):
    """BatchNorm over the samples of weight one: padding leaves no trace."""

    weights: Tensor  # (B,), set by Batched before each call

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (B, C, ...) as nn.BatchNorm does, by means over real samples."""
        dims = [0, *range(2, x.dim())]  # all but the channels
        per_sample = (-1, *[1] * (x.dim() - 1))
        per_channel = (-1, *[1] * (x.dim() - 2))
        w = self.weights.view(per_sample)
        count = self.weights.sum() * math.prod(x.shape[2:])
        mu = (x * w).sum(dims, keepdim=True) / count
        var = ((x - mu).square() * w).sum(dims, keepdim=True) / count
        if self.running_mean is not None and self.running_var is not None:
            rate = self.momentum
            if rate is None:
                raise ValueError("BatchNorm(momentum=None) is not supported here")
            new_mean = rate * mu.detach().flatten()
            new_var = rate * var.detach().flatten() * count / (count - 1)
            self.running_mean.mul_(1 - rate).add_(new_mean)
            self.running_var.mul_(1 - rate).add_(new_var)
        y = (x - mu) * (var + self.eps).rsqrt()
        if not self.affine:
            return y
        return y * self.weight.view(per_channel) + self.bias.view(per_channel)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Loss of each sample, (B, classes), (B,) -> (B,)."""
    return F.cross_entropy(logits, y, reduction="none")


def squared_error(out: Tensor, y: Tensor) -> Tensor:
    """Loss of each sample, for real targets of any shape (B, ...) -> (B,)."""
    return (out.reshape(y.shape) - y).square().reshape(len(y), -1).mean(1)


def mean_of(loss: Loss) -> Loss:
    """The mean of a loss over a batch; cross-entropy has it in one operation."""
    if loss is cross_entropy:
        return F.cross_entropy
    return lambda outputs, y: loss(outputs, y).mean()


def frozen_columns(module: nn.Module) -> Tensor | None:  # (P,)
    """Mark the columns of parameters that require no gradient; None if all do."""
    parameters = list(module.parameters())
    if all(p.requires_grad for p in parameters):
        return None
    marks = [
        torch.full((p.numel(),), not p.requires_grad, device=p.device)
        for p in parameters
    ]
    return torch.cat(marks)


def modes_that_draw(module: nn.Module, x: Inputs) -> dict[bool, bool]:
    """Whether the module draws random numbers, by its ``training`` flag."""
    trial = copy.deepcopy(module)
    two_samples = x[[0, -1]]
    return {mode: draws(trial.train(mode), two_samples) for mode in (False, True)}


def apply_network(forward: Callable[[Tensor], Tensor], x: Tensor, amp: bool) -> Tensor:
    """Outputs for x; with ``amp`` computed in bfloat16 and given back in x's type."""
    if not amp:
        return forward(x)
    with torch.autocast(x.device.type, torch.bfloat16):
        return forward(x).to(x.dtype)


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Gradient of the loss for each parameter; zero for one that is not used."""
    found = torch.autograd.grad(
        loss, parameters, allow_unused=True, materialize_grads=True
    )
    return list(found)


def corrected(
    correct: Correction, g: Tensor, th: Tensor, given: Sequence[Tensor]
) -> Tensor:
    """Apply a method's correction to the gradient, and hold it to its shape."""
    out = correct(g, th, *given)
    if out.shape != g.shape:
        raise ValueError(
            f"correct(g, th, ...) returned shape {tuple(out.shape)} for a gradient "
            f"{tuple(g.shape)}"
        )
    return out


def stack(
    plans: Sequence[Plan], B: int, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Batches of m clients as one padded array on the device.

    index and weight are (S, m, B), shift is (S, m, B, 3).
    """
    S = max(len(p.index) for p in plans)
    index = torch.zeros(S, len(plans), B, dtype=torch.int64)
    weight = torch.zeros(S, len(plans), B, dtype=rows.dtype)
    shift = None
    if plans[0].shift is not None:
        shift = torch.zeros(S, len(plans), B, 3, dtype=torch.int64)
    for k, p in enumerate(plans):
        steps, b = p.index.shape
        index[:, k] = p.index[0, 0]
        index[:steps, k, :b] = p.index
        weight[:steps, k] = torch.arange(B) < torch.from_numpy(p.size)[:, None]
        if shift is not None and p.shift is not None:
            shift[:steps, k, :b] = p.shift
    if shift is not None:
        shift = shift.to(rows.device, non_blocking=True)
    return (
        index.to(rows.device, non_blocking=True),
        weight.to(rows.device, non_blocking=True),
        shift,
    )
