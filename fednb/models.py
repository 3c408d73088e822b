"""The papers' networks, as plain ``nn.Sequential``.

They are small enough to read, and fast paths can recognise them.
Each function makes one freshly initialised network; give a Federation the recipe, not
the network: ``Federation(..., model=partial(lenet5, classes=100))``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from . import checks


def linear(inputs: int = 64, classes: int = 10, bias: bool = True) -> nn.Sequential:
    """Softmax regression; with ``classes=1`` and real targets, linear regression.

    The convex case in which the papers' theory holds.
    """
    _check_sizes("linear", inputs=inputs, classes=classes)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes, bias=bias))


def mlp(
    inputs: int = 64, hidden: Sequence[int] = (64,), classes: int = 10
) -> nn.Sequential:
    """Fully connected ReLU network; ``mlp(784, (200, 200))`` is FedAvg's MNIST 2NN."""
    _check_sizes("mlp", inputs=inputs, classes=classes)
    checks.argument("mlp", "hidden", hidden, checks.integers())
    widths = [inputs, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def lenet5(shape: Sequence[int] = (3, 32, 32), classes: int = 10) -> nn.Sequential:
    """LeNet-5 with ReLU and max-pooling: WeCFL's CIFAR-10 network (its Table 4)."""
    _check_sizes("lenet5", shape=shape, classes=classes)
    channels, height, width = shape
    flat = 16 * _pooled(height, width, kernel=5, padding=0)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def cnn_bn(shape: Sequence[int] = (1, 28, 28), classes: int = 10) -> nn.Sequential:
    """Two 5x5 convolutions with BatchNorm: WeCFL's Fashion-MNIST network (its Table 3).

    Block 2 has BatchNorm2d(32).
    """
    _check_sizes("cnn_bn", shape=shape, classes=classes)
    channels, height, width = shape
    flat = 32 * _pooled(height, width, kernel=5, padding=2)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, classes),
    )


def cnn(
    shape: Sequence[int] = (3, 32, 32),
    filters: Sequence[int] = (64, 128),
    dense: Sequence[int] = (256, 128),
    classes: int = 10,
    padding: int = 0,
) -> nn.Sequential:
    """Two blocks of 5x5 convolution, ReLU and 2x2 max-pooling, then dense layers.

    With its defaults GCFL's CIFAR-10 network; ``cnn((1, 28, 28), (32, 64), ())`` is its
    MNIST one, and FedGWC's CIFAR-100 network is
    ``cnn(filters=(64, 64), dense=(384, 192), classes=100)``.
    """
    _check_sizes("cnn", shape=shape, classes=classes)
    checks.argument("cnn", "filters", filters, checks.integers(2))
    checks.argument("cnn", "dense", dense, checks.integers())
    checks.argument("cnn", "padding", padding, checks.integer(0))
    channels, height, width = shape
    first, second = filters
    sizes = [second * _pooled(height, width, kernel=5, padding=padding), *dense]
    hidden: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        hidden += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(
        nn.Conv2d(channels, first, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *hidden,
        nn.Linear(sizes[-1], classes),
    )


def tiny_vgg(shape: Sequence[int] = (1, 28, 28), classes: int = 10) -> nn.Sequential:
    """OCFL's network for MNIST and Fashion-MNIST.

    Three convolutions without pooling, 25 million parameters.
    """
    _check_sizes("tiny_vgg", shape=shape, classes=classes)
    convolutions = [(shape[0], 16), (16, 32), (32, 32)]
    widths = [32 * shape[1] * shape[2], 1000, 250, 100]
    layers: list[nn.Module] = []
    for channels_in, channels_out in convolutions:
        layers += [nn.Conv2d(channels_in, channels_out, 5, padding=2), nn.ReLU()]
    layers.append(nn.Flatten())
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


class Residual(nn.Module):
    """Two convolutions, to whose output the input is added."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        # made in any case: the initialisation of later layers depends on its draws
        projection = nn.Sequential(
            nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)
        )
        self.shortcut: nn.Module = projection
        if before == width and stride == 1:
            self.shortcut = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut to the body's output, then ReLU."""
        return (self.body(x) + self.shortcut(x)).relu()


def resnet34(classes: int = 10) -> nn.Sequential:
    """ResNet34 for small images, as OCFL has it.

    The first convolution is 3x3, and nothing is pooled before the blocks.
    """
    _check_sizes("resnet34", classes=classes)
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 1
            if block == 0 and width > 64:  # each stage but the first halves the image
                stride = 2
            layers.append(Residual(before, width, stride))
            before = width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)
    )


def mobilenet_v2(
    classes: int = 1000, pretrained: bool = False, dropout: float = 0.2
) -> nn.Sequential:
    """MobileNetV2 as torchvision builds it, for colour images.

    FedGWC's network for Landmarks and iNaturalist. With ``pretrained``, all layers but
    the last start from ImageNet-1K: torchvision's ``IMAGENET1K_V1``, since the paper
    does not say which weights. ``dropout`` before the last layer is torchvision's; the
    batched backend has none, so take ``Federation(..., backend="lean")`` or
    ``dropout=0``. Images should have more than 32 pixels a side: at 32 the last maps
    are single pixels, and BatchNorm cannot train on a batch of one sample.
    """
    _check_sizes("mobilenet_v2", classes=classes)
    checks.argument("mobilenet_v2", "dropout", dropout, checks.number(0, 1))
    zoo = torchvision().models
    net = zoo.mobilenet_v2(num_classes=classes, dropout=dropout)
    if pretrained:
        state = _weights(zoo.MobileNet_V2_Weights.IMAGENET1K_V1)
        body = {
            name.removeprefix("features."): tensor
            for name, tensor in state.items()
            if name.startswith("features.")
        }
        net.features.load_state_dict(body)
    return nn.Sequential(
        net.features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *net.classifier
    )


class DrawNoise(nn.Module):
    """Add normal noise to images, drawn anew whenever they are looked at.

    The last channel of the input is the standard deviation of a pixel's noise:
    (N, C + 1, H, W) -> (N, C, H, W).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Draw noise for each pixel and channel, in training and in evaluation."""
        image = x[:, :-1]
        strength = x[:, -1:]
        return image + strength * torch.randn_like(image)


def noisy(recipe: Callable[[], nn.Module]) -> nn.Sequential:
    """A network that sees its images through noise, for ``domains(..., anew=True)``.

    ``recipe`` makes the network behind the noise.
    """
    return nn.Sequential(DrawNoise(), recipe())


def _weights(weights) -> dict[str, Tensor]:
    """Find torchvision's weights among torch's files, or download them there."""
    try:
        return weights.get_state_dict(progress=False, check_hash=True)
    except Exception as error:  # whatever the network may raise
        folder = Path(torch.hub.get_dir()) / "checkpoints"
        file = weights.url.rpartition("/")[2]
        raise FileNotFoundError(
            "the pretrained weights were not found, nor could they be downloaded "
            f"({type(error).__name__}: {error}). Put torchvision's file {file} into "
            f"{folder} (TORCH_HOME moves it), or take pretrained=False"
        ) from error


def torchvision() -> ModuleType:
    """Import torchvision, also where its operators do not fit a CPU-only torch.

    There the import stops at "operator torchvision::nms does not exist". Declaring the
    two operators it registers against is enough for data sets, transforms and models;
    only detection needs the operators themselves.
    """
    try:
        return checks.extra("papers", "torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for module in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
        del sys.modules[module]  # half-imported: the second try must run them again
    schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for op in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, op):
            torch.library.define(f"torchvision::{op}", schema)
    return importlib.import_module("torchvision")


def _check_sizes(network: str, **sizes: int | Sequence[int]) -> None:
    """Check a shape (channels, height, width) and sizes that are single integers."""
    for name, value in sizes.items():
        rule = checks.integer(1)
        if name == "shape":
            rule = checks.integers(3)
        checks.argument(network, name, value, rule)


def _pooled(height: int, width: int, kernel: int, padding: int) -> int:
    """Number of pixels after two blocks of convolution and 2x2 pooling."""
    shrinks_by = kernel - 1 - 2 * padding
    for _ in range(2):
        height = (height - shrinks_by) // 2
        width = (width - shrinks_by) // 2
    if min(height, width) < 1:
        raise ValueError("the images are too small for this network; use mlp or linear")
    return height * width
