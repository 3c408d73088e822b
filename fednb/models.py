"""The papers' networks, as plain ``nn.Sequential``: small enough to read, and fast paths can recognise them.

Each function makes one freshly initialised network; give a Federation the recipe, not the network:
``Federation(..., model=partial(lenet5, classes=100))``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn


def linear(inputs: int = 64, classes: int = 10, bias: bool = True) -> nn.Sequential:
    """Softmax regression, or linear with ``classes=1``: the convex case in which the papers' theory holds."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes, bias=bias))


def mlp(inputs: int = 64, hidden: Sequence[int] = (64,), classes: int = 10) -> nn.Sequential:
    """Fully connected ReLU network; ``mlp(784, (200, 200))`` is FedAvg's MNIST 2NN."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in zip([inputs, *hidden[:-1]], hidden, strict=True):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else inputs, classes))


def lenet5(shape: Sequence[int] = (3, 32, 32), classes: int = 10) -> nn.Sequential:
    """LeNet-5 with ReLU and max-pooling: WeCFL's CIFAR-10 network (its Table 4)."""
    channels, height, width = shape
    flat = 16 * _pooled(height, width, kernel=5, padding=0)
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(
            nn.Flatten(),
            nn.Linear(flat, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        ),
    )


def cnn_bn(shape: Sequence[int] = (1, 28, 28), classes: int = 10) -> nn.Sequential:
    """Two 5x5 convolutions with BatchNorm: WeCFL's Fashion-MNIST network (its Table 3, BatchNorm2d(32) in block 2)."""
    channels, height, width = shape
    flat = 32 * _pooled(height, width, kernel=5, padding=2)
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(flat, classes)),
    )


def _pooled(height: int, width: int, kernel: int, padding: int) -> int:
    """Pixels left after two (convolution, 2x2 pool) blocks."""
    for _ in range(2):
        height, width = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
    if min(height, width) < 1:
        raise ValueError("the images are too small for this network; use mlp or linear")
    return math.prod((height, width))
