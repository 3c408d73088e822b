"""What a client does in a round: its batches, its augmentation, its optimiser.

A client's batches come from a :class:`Plan`, drawn from the client's own random stream before training starts, so that
neither the number of workers, nor the chunk size, nor the order of clients changes the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Local:
    """What a client does in one round: ``epochs`` passes over its data, or exactly ``steps`` SGD steps."""

    lr: float = 0.01
    epochs: int = 1
    steps: int | None = None
    batch_size: int | None = 32  # None: the whole client in one batch
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_decay: float = 1.0  # lr in round t is lr * lr_decay ** (t // decay_every)
    decay_every: int = 1
    optimizer: str = "sgd"  # or "adam"
    keep_state: bool = (
        False  # momentum survives from round to round, as in WeCFL's released code
    )
    drop_last: bool = (
        False  # skip an epoch's short last batch, as in FedGWC's released code
    )
    augment: bool = False  # random crop (padding 4) and horizontal flip
    amp: bool = False  # forward pass in bfloat16

    def __post_init__(self) -> None:
        checks = {
            "lr": self.lr > 0 and math.isfinite(self.lr),
            "epochs": self.epochs >= 1,
            "steps": self.steps is None or self.steps >= 1,
            "batch_size": self.batch_size is None or self.batch_size >= 1,
            "momentum": 0 <= self.momentum < 1,
            "weight_decay": self.weight_decay >= 0,
            "lr_decay": 0 < self.lr_decay <= 1,
            "decay_every": self.decay_every >= 1,
            "optimizer": self.optimizer in ("sgd", "adam"),
        }
        for name, good in checks.items():
            if not good:
                raise ValueError(
                    f"Local({name}={getattr(self, name)!r}) makes no sense"
                )

    def lr_at(self, t: int) -> float:
        """Learning rate in round ``t``."""
        return self.lr * self.lr_decay ** (t // self.decay_every)


# --- batches ---------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The batches of one client in one round, drawn before training."""

    index: Tensor  # (S, B) rows of the data; a short batch is filled up with the client's first sample
    size: np.ndarray  # (S,) true batch sizes
    shift: Tensor | None  # (S, B, 3) crop offsets dy, dx in 0..8 and flip in 0..1
    seed: int  # for layers that draw random numbers of their own (dropout)


def plan(samples: np.ndarray, local: Local, rng: np.random.Generator) -> Plan:
    """Shuffle the samples anew in each epoch and cut them into batches."""
    n = len(samples)
    B = min(local.batch_size or n, n)
    per_epoch = n // B if local.drop_last else math.ceil(n / B)
    S = local.steps or local.epochs * per_epoch
    order = np.zeros((math.ceil(S / per_epoch), per_epoch * B), dtype=np.int64)
    kept = min(n, per_epoch * B)
    for epoch in order:
        epoch[:kept] = rng.permutation(n)[:kept]
    index = samples[order.reshape(-1, B)[:S]]  # (S, B)
    size = np.full(S, B)
    size[per_epoch - 1 :: per_epoch] = kept - (per_epoch - 1) * B
    shift = (
        torch.from_numpy(rng.integers(0, (9, 9, 2), (S, B, 3)))
        if local.augment
        else None
    )
    return Plan(torch.from_numpy(index), size, shift, int(rng.integers(2**62)))


def augment(x: Tensor, shift: Tensor) -> Tensor:
    """Crop each image (b, C, H, W) from its zero-padded self at offsets shift[:, :2], flip it where shift[:, 2]."""
    b, _, H, W = x.shape
    padded = F.pad(x, (4, 4, 4, 4))
    rows = shift[:, 0, None] + torch.arange(H, device=x.device)  # (b, H)
    cols = torch.arange(W, device=x.device).expand(b, W)
    cols = shift[:, 1, None] + torch.where(
        shift[:, 2, None] == 1, W - 1 - cols, cols
    )  # (b, W)
    which = torch.arange(b, device=x.device)[:, None, None]
    return padded.movedim(1, -1)[which, rows[:, :, None], cols[:, None, :]].movedim(
        -1, 1
    )


# --- the optimiser ----------------------------------------------------------------------------------------------------


def descend(
    th: list[Tensor],
    g: list[Tensor],
    state: Sequence[list[Tensor]],
    lr: float,
    local: Local,
) -> None:
    """One step of SGD with momentum, or of Adam, as torch.optim defines them, in place.

    A model is given as one flat tensor (..., P) or in pieces; Adam wants it in one.
    """
    if local.weight_decay:
        torch._foreach_add_(g, th, alpha=local.weight_decay)
    if local.optimizer == "adam":
        ((m,), (v,), (t,)), (g,) = state, g
        t += 1
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        th[0].sub_(lr / (1 - 0.9**t) * m / (v.sqrt() / (1 - 0.999**t).sqrt() + 1e-8))
        return
    if local.momentum:
        (m,) = state
        torch._foreach_mul_(m, local.momentum)
        torch._foreach_add_(m, g)
        g = m
    torch._foreach_add_(th, g, alpha=-lr)


def fresh_state(th: Tensor, local: Local) -> tuple[Tensor, ...]:
    """The optimiser's memory before the first step."""
    if local.optimizer == "adam":
        return torch.zeros_like(th), torch.zeros_like(th), torch.zeros_like(th[..., :1])
    return (torch.zeros_like(th),) if local.momentum else ()
