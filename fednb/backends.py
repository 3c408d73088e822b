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

from .conv import accelerate, keep_memory
from .params import Layout
from .training import (
    Local,
    Plan,
    Seeded,
    augment,
    descend,
    draws,
    fresh_state,
    one_thread,
)

Correction = Callable[
    ..., Tensor
]  # correct(g, th, *args) -> g, on (D,) vectors or (n, D) matrices alike
Loss = Callable[
    [Tensor, Tensor], Tensor
]  # (outputs (B, ...), targets (B,)) -> loss of each sample (B,)
State = tuple[Tensor, ...]  # an optimiser's memory


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


class Lean:
    """One client per core at a time, each on a single torch thread."""

    def __init__(
        self, module: nn.Module, x: Tensor, y: Tensor, loss: Loss, workers: int
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
        theta, states = torch.empty_like(rows), list(states)
        losses = rows.new_full(
            (len(rows), max((len(p.size) for p in plans), default=0)), math.nan
        )

        def one(worker: Worker, i: int) -> None:
            given = [a[i] for a in args]
            loss, states[i] = self._train_client(
                worker, rows[i], plans[i], local, lr, correct, given, states[i]
            )
            theta[i] = worker.row
            losses[i, : len(loss)] = loss

        self._each(len(rows), one)
        return Trained(theta, losses, states)

    def _train_client(self, worker, row, plan, local, lr, correct, given, state):
        module, flat, trained, forward = worker
        P, D = self.layout.P, self.layout.D
        module.train()
        flat.copy_(row)
        kept = tuple(s.clone() for s in state or ())
        state = kept or fresh_state(flat[:P], local)
        whole = correct is not None or local.optimizer == "adam"
        if whole:  # these see the model as one vector
            th = [flat[:P]]
            memory = [[s] for s in state]
            frozen = self.frozen
        else:  # plain SGD takes the gradients as they come, tensor by tensor: no copy
            th = [p.data for p in trained]
            memory = [self._trained_tensors(module, s) for s in state]
            frozen = None  # no tensor of these is frozen
        index = plan.index.to(flat.device)
        shift = None if plan.shift is None else plan.shift.to(flat.device)
        losses = []
        stream = self._stream(plan.seed, training=True)
        for s, b in enumerate(plan.size):
            if self._stop.is_set():
                break
            x, y = (t.index_select(0, index[s, :b]) for t in (self.x, self.y))
            if shift is not None:
                x = augment(x, shift[s, :b])
            with stream:
                outputs = low_precision(forward, x) if local.amp else forward(x)
                loss = self.mean_loss(outputs, y)
            losses.append(loss.detach())
            g = gradients(loss, trained)
            if whole:
                g = [self._as_vector(g)]  # (P,)
            if correct is not None:
                g = [corrected(correct, F.pad(g[0], (0, D - P)), flat, given)[:P]]
            descend(th, g, memory, lr, local, frozen)
        return torch.stack(losses) if losses else flat[:0], state

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
    ) -> list[Tensor]:
        """Outputs (m, ...) of each task (row (D,), inputs (m, ...)).

        ``train`` evaluates in training mode. A model that draws random numbers draws
        them from streams that depend on ``seed`` and on the place of the task.
        """
        done = [
            list(x.split(batch)) for _, x in tasks
        ]  # inputs, each to be replaced by its outputs
        pieces = [(i, j) for i, parts in enumerate(done) for j in range(len(parts))]

        def one(worker: Worker, k: int) -> None:
            i, j = pieces[k]
            worker.module.train(train)
            with torch.no_grad(), self._stream(seed + k, training=train):
                worker.row.copy_(tasks[i][0])
                done[i][j] = worker.forward(done[i][j])

        self._each(len(pieces), one)
        return [torch.cat(parts) for parts in done]

    def _stream(self, seed: int, training: bool) -> AbstractContextManager:
        """The random stream of a model that draws in this mode; else nothing."""
        return Seeded(seed) if self.draws[training] else nullcontext()

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
            self._pool.append(Worker(module, row, trained, forward))
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

        alone = {"initializer": torch.set_num_threads, "initargs": (1,)}
        with one_thread(), ThreadPoolExecutor(self.workers, **alone) as pool:
            futures = [pool.submit(work, worker) for worker in self._pool[:n]]
            try:
                for future in futures:
                    future.result()
            except BaseException:  # Ctrl-C too: the threads end at their next step
                self._stop.set()
                raise


def choose_backend(device: torch.device, module: nn.Module, x: Tensor) -> str:
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

    A chunk is what fits the memory budget.
    """

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        loss: Loss,
        largest: int,
        chunk: int | None = None,
        memory: float | None = None,
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
            norm.__class__, norm.num_batches_tracked = RaggedNorm, None
        for conv in (m for m in self._module.modules() if type(m) is nn.Conv2d):
            if (
                conv.groups == 1
                and conv.padding_mode == "zeros"
                and not isinstance(conv.padding, str)
            ):
                conv.__class__ = UnfoldConv

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
        theta, states = rows.clone(), list(states)
        losses = rows.new_full((len(rows), int(steps.max(initial=0))), math.nan)
        order = np.argsort(-steps, kind="stable")
        size = self.chunk
        if size is None:
            size = self._chunk_that_fits(plans, rows) if len(rows) else 1
        for who in (order[at : at + size] for at in range(0, len(order), size)):
            i = torch.as_tensor(who, device=rows.device)
            some, given = [plans[k] for k in who], [a[i] for a in args]
            done = self._train_chunk(
                rows[i], some, local, lr, correct, given, [states[k] for k in who]
            )
            theta[i], losses[i, : steps[who[0]]] = done.theta, done.losses
            for k, state in zip(who, done.states, strict=True):
                states[k] = state
        return Trained(theta, losses, states)

    def _train_chunk(self, rows, plans, local, lr, correct, given, states) -> Trained:
        P, D = self.layout.P, self.layout.D
        B = self.largest  # the same padding whoever is in the chunk
        if local.batch_size is not None:
            B = min(local.batch_size, self.largest)
        index, weight, shift = stack(
            plans, B, rows
        )  # (S, m, B), (S, m, B), (S, m, B, 3)
        active = [sum(len(p.size) > s for p in plans) for s in range(len(index))]
        rows = rows.clone()  # (m, D)
        th, buffers = rows[:, :P], rows[:, P:]
        state = fresh_state(th, local)
        for i, kept in enumerate(states):
            for all_clients, own in zip(state, kept or (), strict=False):
                all_clients[i] = own
        losses = rows.new_full((len(rows), len(index)), math.nan)
        for s, a in enumerate(active):  # the first a clients still have a batch
            batch = index[s, :a]  # (a, B)
            x = self.x[batch]  # (a, B, ...)
            if shift is not None:
                x = augment(x.flatten(0, 1), shift[s, :a].flatten(0, 1)).unflatten(
                    0, batch.shape
                )
            batch = (x, self.y[batch], weight[s, :a])
            g, (losses[:a, s], buffers[:a]) = self._gradients(
                th[:a], buffers[:a], batch, local.amp
            )
            if correct is not None:
                g = corrected(
                    correct, F.pad(g, (0, D - P)), rows[:a], [v[:a] for v in given]
                )[:, :P]
            descend([th[:a]], [g], [[v[:a]] for v in state], lr, local, self.frozen)
        return Trained(
            rows, losses, [tuple(v[i].clone() for v in state) for i in range(len(rows))]
        )

    def _gradients(self, th, buffers, batch, amp):
        """Gradient (a, P) of each client's loss at its own parameters.

        And (losses (a,), new buffers (a, D - P)).
        """
        layout = self.layout
        names = layout.names[layout.n_parameters :]

        def loss_of(p, b, x, y, w):  # (P,), (D - P,), (B, ...), (B,), (B,)
            tensors = {
                name: t.clone()
                for name, t in layout.tensors(torch.cat([p.detach(), b])).items()
            }
            tensors |= layout.tensors(
                p
            )  # BatchNorm writes into the clones of its buffers
            for norm in self._norms:
                norm.weights = w
            run = partial(functional_call, self._module, tensors)  # of a batch
            losses = self.loss(low_precision(run, x) if amp else run(x), y)  # (B,)
            loss = (losses * w).sum() / w.sum()
            new = torch.cat([tensors[name].view(-1) for name in names]) if names else b
            return loss, (loss.detach(), new)

        return vmap(grad(loss_of, has_aux=True))(th, buffers, *batch)

    def _chunk_that_fits(self, plans: Sequence[Plan], rows: Tensor) -> int:
        """Clients per pass.

        A client takes what two samples save for the backward pass, times two for
        gradients, and some rows.
        """
        seen: list[int] = []
        row = rows[0].clone().requires_grad_()
        for norm in self._norms:
            norm.weights = rows.new_ones(2)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: (seen.append(t.nbytes), t)[1], lambda t: t
        ):
            functional_call(
                self._module,
                {n: t.clone() for n, t in self.layout.tensors(row).items()},
                (self.x[:2],),
            )
        per_client = (
            sum(seen) * max(p.index.shape[1] for p in plans) + 8 * rows[0].nbytes
        )
        budget = self.memory
        if budget is None:
            free = torch.cuda.mem_get_info(rows.device)[0] if rows.is_cuda else 4e9
            budget = 0.5 * free
        return max(1, int(budget / per_client))


class UnfoldConv(nn.Conv2d):
    """Convolution as one matrix product per client.

    Under vmap nn.Conv2d becomes a grouped convolution, whose rounding depends on how
    many clients are in the chunk; a batched matrix product treats each client alike,
    whatever the company.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x (B, C, H, W)."""
        patches = F.unfold(
            x, self.kernel_size, self.dilation, self.padding, self.stride
        )  # (B, C k k, L)
        y = self.weight.flatten(1) @ patches.transpose(0, 1).flatten(1)  # (O, B L)
        y = y.unflatten(1, (len(x), -1)).transpose(0, 1)  # (B, O, L)
        if self.bias is not None:
            y = y + self.bias[:, None]
        sides = zip(
            x.shape[2:],
            self.kernel_size,
            self.dilation,
            self.padding,
            self.stride,
            strict=True,
        )
        return y.unflatten(
            2, [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in sides]
        )


class RaggedNorm(_BatchNorm):
    """BatchNorm over the samples of weight one: padding leaves no trace."""

    weights: Tensor  # (B,), set by Batched before each call

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (B, C, ...) as nn.BatchNorm does, by means over real samples."""
        dims, wide = [0, *range(2, x.dim())], [1] * (x.dim() - 1)
        w = self.weights.view(-1, *wide)
        count = self.weights.sum() * math.prod(x.shape[2:])
        mu = (x * w).sum(dims, keepdim=True) / count
        var = ((x - mu).square() * w).sum(dims, keepdim=True) / count
        if self.track_running_stats:
            self.running_mean.mul_(1 - self.momentum).add_(
                self.momentum * mu.detach().flatten()
            )
            self.running_var.mul_(1 - self.momentum).add_(
                self.momentum * var.detach().flatten() * count / (count - 1)
            )
        y = (x - mu) * (var + self.eps).rsqrt()
        return (
            y * self.weight.view(-1, *wide[1:]) + self.bias.view(-1, *wide[1:])
            if self.affine
            else y
        )


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


def modes_that_draw(module: nn.Module, x: Tensor) -> dict[bool, bool]:
    """Whether the module draws random numbers, by its ``training`` flag."""
    trial = copy.deepcopy(module)
    two_samples = x[[0, -1]]
    return {mode: draws(trial.train(mode), two_samples) for mode in (False, True)}


def low_precision(forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Run the forward pass in bfloat16, and give its outputs back in x's type."""
    with torch.autocast(x.device.type, torch.bfloat16):
        return forward(x).to(x.dtype)


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Gradient of the loss for each parameter; zero for one that is not used."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [
        torch.zeros_like(p) if g is None else g
        for g, p in zip(found, parameters, strict=True)
    ]


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
    shift = (
        None
        if plans[0].shift is None
        else torch.zeros(S, len(plans), B, 3, dtype=torch.int64)
    )
    for k, p in enumerate(plans):
        steps, b = p.index.shape
        index[:, k] = p.index[0, 0]
        index[:steps, k, :b] = p.index
        weight[:steps, k] = torch.arange(B) < torch.from_numpy(p.size)[:, None]
        if shift is not None:
            shift[:steps, k, :b] = p.shift
    move = [
        None if t is None else t.to(rows.device, non_blocking=True)
        for t in (index, weight, shift)
    ]
    return tuple(move)
