"""What a client does in a round: its batches, its augmentation, its optimiser.

A client's batches come from a :class:`Plan`, drawn from the client's own random stream
before training starts, so that neither the number of workers, nor the chunk size, nor
the order of clients changes the result. :class:`Seeded` gives a client's dropout, and
the initialisation of a model, a random stream of their own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from . import checks

Count = TypeVar("Count", int, Tensor)


@dataclass(frozen=True)
class Local:
    """What a client does in one round.

    ``epochs`` passes over its data, or exactly ``steps`` SGD steps.
    """

    lr: float = 0.01
    epochs: int = 1
    steps: int | None = None
    batch_size: int | None = 32  # None: the whole client in one batch
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_decay: float = 1.0  # lr in round t is lr * lr_decay ** (t // decay_every)
    decay_every: int = 1
    optimizer: str = "sgd"  # or "adam"
    # momentum survives from round to round, as in WeCFL's released code
    keep_state: bool = False
    # skip an epoch's short last batch, as in FedGWC's released code
    drop_last: bool = False
    augment: bool = False  # random crop (padding 4) and horizontal flip
    amp: bool = False  # forward pass in bfloat16

    def __post_init__(self) -> None:
        checks.fields(
            self,
            lr=checks.number(above=0),
            epochs=checks.integer(1),
            steps=checks.optional(checks.integer(1)),
            batch_size=checks.optional(checks.integer(1)),
            momentum=checks.number(least=0, below=1),
            weight_decay=checks.number(least=0),
            lr_decay=checks.number(above=0, most=1),
            decay_every=checks.integer(1),
            optimizer=checks.choice("sgd", "adam"),
            keep_state=checks.flag,
            drop_last=checks.flag,
            augment=checks.flag,
            amp=checks.flag,
        )

    def lr_at(self, t: int) -> float:
        """Learning rate in round ``t``."""
        return self.lr * self.lr_decay ** (t // self.decay_every)

    def batches_per_epoch(self, n: Count) -> Count:
        """Number of batches into which n samples are cut, a short last one included.

        ``n`` is an integer >= 1, or a tensor of them: one for each client.
        """
        batch_size = self.batch_size or n
        return -(-n // batch_size)  # n / batch_size, rounded up


# --- inputs ---------------------------------------------------------------------------


class Pixels:
    """Images in uint8 that become a network's inputs when they are looked at.

    ``pixels[index]`` are the inputs of some samples: from 0 to 1, then normalised. That
    gives the same bits as to normalise all samples once and to index afterwards, in a
    quarter of the memory; and pixels in a mapped file are shared by all processes.
    """

    def __init__(
        self,
        raw: Tensor,
        mean: Tensor | None,
        std: Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        self.raw = raw  # (N, ...) uint8
        self.mean = mean  # None, or what fits the channels of (N, C, ...)
        self.std = std
        self.dtype = dtype
        self.shape = raw.shape
        self.device = raw.device

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: Tensor | slice | list[int]) -> Tensor:
        return self._inputs(self.raw[index])

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """``pixels[index]`` for a vector of numbers, as fast as tensors do it."""
        return self._inputs(self.raw.index_select(dim, index))

    def _inputs(self, raw: Tensor) -> Tensor:
        x = raw.to(self.dtype)
        x /= 255
        if self.mean is not None and self.std is not None:
            x.sub_(self.mean).div_(self.std)
        return x


Inputs = Tensor | Pixels  # both are indexed by sample


# --- batches --------------------------------------------------------------------------


class Plan(NamedTuple):
    """The batches of one client in one round, drawn before training."""

    # (S, B) sample numbers; short batches are filled up with the client's first sample
    index: Tensor  # type: ignore[assignment]
    size: np.ndarray  # (S,) true batch sizes
    shift: Tensor | None  # (S, B, 3) crop offsets dy, dx in 0..8 and flip in 0..1
    seed: int  # for layers that draw random numbers of their own (dropout)


def plan(samples: np.ndarray, local: Local, rng: np.random.Generator) -> Plan:
    """Shuffle the samples anew in each epoch and cut them into batches."""
    n = len(samples)
    B = min(local.batch_size or n, n)
    per_epoch = local.batches_per_epoch(n)
    if local.drop_last:
        per_epoch = n // B
    S = local.steps
    if S is None:
        S = local.epochs * per_epoch
    order = np.zeros((math.ceil(S / per_epoch), per_epoch * B), dtype=np.int64)
    kept = min(n, per_epoch * B)
    for epoch in order:
        epoch[:kept] = rng.permutation(n)[:kept]
    index = samples[order.reshape(-1, B)[:S]]  # (S, B)
    size = np.full(S, B)
    size[per_epoch - 1 :: per_epoch] = kept - (per_epoch - 1) * B
    shift = None
    if local.augment:
        shift = torch.from_numpy(rng.integers(0, (9, 9, 2), (S, B, 3)))
    return Plan(torch.from_numpy(index), size, shift, int(rng.integers(2**62)))


def augment(x: Tensor, shift: Tensor) -> Tensor:
    """Crop and flip images (b, C, H, W) by shifts (b, 3).

    An image is padded with zeros, cropped at the offsets shift[:, :2], and flipped
    where shift[:, 2] is 1.
    """
    b, _, H, W = x.shape
    padded = F.pad(x, (4, 4, 4, 4))
    rows = shift[:, 0, None] + torch.arange(H, device=x.device)  # (b, H)
    cols = torch.arange(W, device=x.device).expand(b, W)
    cols = torch.where(shift[:, 2, None] == 1, W - 1 - cols, cols)
    cols = shift[:, 1, None] + cols  # (b, W)
    image = torch.arange(b, device=x.device)[:, None, None]
    channels_last = padded.movedim(1, -1)
    cropped = channels_last[image, rows[:, :, None], cols[:, None, :]]
    return cropped.movedim(-1, 1)


# --- the optimiser --------------------------------------------------------------------


def descend(
    th: list[Tensor],
    g: list[Tensor],
    state: Sequence[list[Tensor]],
    lr: float,
    local: Local,
    frozen: Tensor | None = None,
) -> None:
    """One step of SGD with momentum, or of Adam, as torch.optim defines them, in place.

    ``th``, ``g`` and each list in ``state`` hold one flat tensor (..., P), or a tensor
    for each parameter; Adam needs the flat form. Columns that are ``frozen`` (P,) stay
    as they are, whatever their gradient.
    """
    if local.weight_decay:
        torch._foreach_add_(g, th, alpha=local.weight_decay)
    if frozen is not None:
        g = [part.masked_fill(frozen, 0) for part in g]
    if local.optimizer == "adam":
        (m,), (v,), (t,) = state
        (gradient,) = g
        t += 1
        m.lerp_(gradient, 0.1)
        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        th[0].sub_(lr / (1 - 0.9**t) * m / (v.sqrt() / (1 - 0.999**t).sqrt() + 1e-8))
        return
    if local.momentum:
        (velocity,) = state
        torch._foreach_mul_(velocity, local.momentum)
        torch._foreach_add_(velocity, g)
        g = velocity
    torch._foreach_add_(th, g, alpha=-lr)


def fresh_state(th: Tensor, local: Local) -> tuple[Tensor, ...]:
    """The optimiser's memory before the first step.

    For Adam two moments and the number of steps, for momentum one tensor, else nothing.
    """
    if local.optimizer == "adam":
        return torch.zeros_like(th), torch.zeros_like(th), torch.zeros_like(th[..., :1])
    if local.momentum:
        return (torch.zeros_like(th),)
    return ()


# --- threads --------------------------------------------------------------------------


class _Threads:
    """How many threads torch had before the first open ``one_thread``."""

    lock = threading.Lock()
    open = 0
    before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread inside.

    With more threads a sum or a matrix product is added up in another order, and its
    last bits differ. Inside, they are the same on any number of cores. Several Python
    threads may be inside at once; the last to leave restores what the first one found.
    """
    with _Threads.lock:
        if _Threads.open == 0:
            _Threads.before = torch.get_num_threads()
        _Threads.open += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _Threads.lock:
            _Threads.open -= 1
            if _Threads.open == 0:
                torch.set_num_threads(_Threads.before)


class _Blas:
    """The limit that the first open ``one_blas_thread`` has set."""

    lock = threading.Lock()
    open = 0
    limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let numpy's and scipy's matrix products run on one thread inside.

    Several Python threads may be inside at once: the limit holds until the last leaves.
    """
    from threadpoolctl import threadpool_limits

    with _Blas.lock:
        if _Blas.open == 0:
            _Blas.limit = threadpool_limits(1)
        _Blas.open += 1
    try:
        yield
    finally:
        with _Blas.lock:
            _Blas.open -= 1
            if _Blas.open == 0:
                _Blas.limit.restore_original_limits()


# --- random streams -------------------------------------------------------------------


class Seeded(TorchDispatchMode):
    """A context in which torch's random operations draw from a generator of its own.

    ``with Seeded(5): net = lenet5()`` makes the network that ``torch.manual_seed(5)``
    and ``lenet5()`` would make, but torch's global generator is neither read nor
    written, and other threads are not affected. The context may be entered again: its
    stream goes on where it was. Operations that are given a generator keep it.
    ``drew`` tells whether a random number was drawn.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.drew = False
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, op, types, args=(), kwargs=None) -> Any:
        """Run an operation of torch; give it the generator if it is a random one."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in op.tags:
            return op(*args, **kwargs)
        if _needs_no_generator(op, args, kwargs):
            return op(*args, **kwargs)
        self.drew = True
        generator = self._generator(_device_of(args, kwargs))
        if op is torch.ops.aten.native_dropout.default:
            return _dropout(*args, generator=generator)
        random_op = _with_generator(op)
        if random_op is None:
            raise RuntimeError(
                f"{op} draws random numbers but takes no generator, so it cannot be "
                "seeded: use another operation in the model"
            )
        return random_op(*args, **{**kwargs, "generator": generator})

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            generator = torch.Generator(device).manual_seed(self.seed)
            self._generators[device] = generator
        return self._generators[device]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch's compiler, which takes seconds

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave torch.compile as it is; its flags are shared by all threads."""
        return True


def draws(module: nn.Module, x: Tensor) -> bool:
    """Whether the module draws random numbers when it is applied to x in its mode."""
    stream = Seeded(0)
    with stream, torch.no_grad():
        module(x)
    return stream.drew


def _needs_no_generator(op: OpOverload, args: tuple, kwargs: dict) -> bool:
    """Whether a random operation has a generator already, or draws nothing this time.

    Dropout at a rate of 0 draws nothing.
    """
    if op is torch.ops.aten._fused_sdp_choice.default:  # only chooses a kernel
        return True
    names = _argument_types(op)
    given = dict(zip(names, args, strict=False)) | kwargs
    if given.get("generator") is not None:
        return True
    rates = [name for name in ("dropout_p", "dropout") if name in names]
    return any(given.get(name, 0) == 0 for name in rates)


@cache
def _with_generator(op: OpOverload) -> OpOverload | None:
    """The operation itself if it takes a generator, or its overload that does."""
    wanted = {**_argument_types(op), "generator": "Optional[Generator]"}
    for name in op.overloadpacket.overloads():
        overload = getattr(op.overloadpacket, name)
        if _argument_types(overload) == wanted:
            return overload
    return None


@cache
def _argument_types(op: OpOverload) -> dict[str, str]:
    """Names and types of an operation's arguments, in their order."""
    return {argument.name: str(argument.type) for argument in op._schema.arguments}


def _device_of(args: tuple, kwargs: dict) -> torch.device:
    """Where a random operation works: at its first tensor, or where it is told to."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value.device
    return torch.device(kwargs.get("device") or "cpu")


def _dropout(
    x: Tensor, p: float, train: bool | None, *, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Dropout as GPUs do it, where it is one operation that takes no generator."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return x * kept * scale, kept
