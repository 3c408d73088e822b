"""Faster small nets on CPU cores: the same numbers with less work around them.

**Convolutional nets** (:func:`accelerate`) get fuller vector lanes. A CPU convolution
puts output channels into vector lanes, 16 at a time, and the NCHW max-pool is scalar
code; the small nets of federated learning (3 → 6 → 16 channels) lose much of their time
to that. Three remedies, chosen per layer:

* **paired columns**, for a first layer of few channels: copies of the kernel at column
  offsets 0 and 1, run with stride 2 along the width, give each two neighbouring outputs
  as two channels. Twice the lanes work, for (k + 1)/k times the arithmetic, and the
  pool's maximum over columns becomes a maximum of two contiguous blocks.
* **channels last**, for the other layers: native kernels, whose max-pool is vectorised
  in this layout only.
* **pool, then ReLU**, on a quarter of the data: the two commute, and so do their
  gradients.

**Stacks of dense layers** (:func:`dense_gradients`) get their backward pass written
out, which spares autograd's graph and its temporaries.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

KNOWN = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.Flatten, nn.Linear)
LANES = 16  # float32 numbers in a 512-bit register


def accelerate(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """A faster function of an NCHW batch that does what `module` does; None if unknown.

    `module` must be a (nested) `nn.Sequential` of Conv2d, BatchNorm2d, ReLU, MaxPool2d,
    Flatten and Linear, with at least one pool. Before these may stand a layer of
    another kind that changes the images, such as `models.DrawNoise`; it is called as it
    is. The function reads the module's own parameters, buffers and `training` flag at
    each call, so that weights may be loaded in place between calls. Forward hooks may
    not run; each thread needs its own module.
    """
    layers = _pool_first(_leaves(module))
    before: nn.Module = nn.Identity()
    if layers and type(layers[0]) not in KNOWN:
        before = layers.pop(0)
    kinds = [type(layer) for layer in layers]
    if nn.MaxPool2d not in kinds or any(kind not in KNOWN for kind in kinds):
        return None
    first: Any = layers[0]
    rest = layers
    paired = _pairs_pay(layers)
    if paired:
        rest = layers[3:]

    def forward(x: Tensor) -> Tensor:
        if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return module(x)
        x = before(x)
        if paired:
            x = _paired(first, x)
        else:
            x = _channels_last(x)
        for layer in rest:
            if type(layer) is nn.MaxPool2d:
                x = _channels_last(x)
            x = layer(x)
        return x

    return forward


def dense_gradients(
    module: nn.Module,
) -> Callable[[Tensor, Tensor], tuple[Tensor, list[Tensor]]] | None:
    """The mean cross-entropy and its gradients, written out for Linear-ReLU stacks.

    `module` must be an `nn.Sequential` of Flatten, Linear, ReLU, Linear, ..., Linear
    whose parameters are all trained; for others the answer is None. ``f(x, y)`` gives
    the loss, and the gradients in the order of ``module.parameters()``. It runs the
    kernels that autograd would run, so that the bits are the same; what it leaves out
    is the graph.
    """
    layers = _leaves(module)
    dense: list[Any] = layers[1::2]
    kinds = [type(layer) for layer in layers]
    of_a_stack = [nn.Flatten, *[nn.Linear, nn.ReLU] * len(dense)][:-1]
    if not dense or kinds != of_a_stack or not _all_trained(module, dense):
        return None
    weights = [layer.weight for layer in dense]
    biases = [layer.bias for layer in dense]

    @torch.no_grad()
    def loss_and_gradients(x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        inputs: list[Tensor] = []  # of each layer
        z = x.flatten(1)
        for weight, bias in zip(weights, biases, strict=True):
            if inputs:
                z.relu_()
            inputs.append(z)
            z = torch.addmm(bias, z, weight.t())
        loss, g = _cross_entropy(z, y)  # g: the gradient for the outputs of a layer
        found: list[Tensor] = []
        for i in reversed(range(len(weights))):
            found = [g.t().mm(inputs[i]), g.sum(0), *found]
            if i > 0:
                g = g.mm(weights[i])
                g = torch.ops.aten.threshold_backward(g, inputs[i], 0)
        return loss, found

    return loss_and_gradients


def _all_trained(module: nn.Module, dense: list[Any]) -> bool:
    """Whether the module's parameters are these layers' own, and all are trained."""
    expected = [tensor for layer in dense for tensor in (layer.weight, layer.bias)]
    actual = list(module.parameters())
    same = [id(tensor) for tensor in expected] == [id(tensor) for tensor in actual]
    return same and all(tensor.requires_grad for tensor in actual)


def _cross_entropy(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of outputs z (B, classes), and its gradient for them.

    These are the operations that F.cross_entropy and autograd go through. (A gradient
    as softmax(z) minus one-hot labels, divided by B, is rounded in another way.)
    """
    log_p = z.log_softmax(1)
    mean, ignored = 1, -100  # what F.cross_entropy passes by default
    loss, total = torch.ops.aten.nll_loss_forward(log_p, y, None, mean, ignored)
    one = torch.ones_like(loss)
    g = torch.ops.aten.nll_loss_backward(one, log_p, y, None, mean, ignored, total)
    return loss, torch.ops.aten._log_softmax_backward_data(g, log_p, 1, z.dtype)


def keep_memory(largest: int = 32 << 20) -> bool:
    """Ask the C library to keep freed memory for the next step; False if not glibc.

    By default glibc returns the pages of an SGD step to the system and faults them in
    again at the next, above all in threads: a tenth to a fifth of the time of the plain
    nets measured. Blocks above `largest` bytes are still returned. The request holds
    for the whole process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    M_MMAP_THRESHOLD = -3  # of <malloc.h>
    M_TRIM_THRESHOLD = -1
    return bool(
        mallopt(M_MMAP_THRESHOLD, largest) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    )


def _leaves(module: nn.Module) -> list[nn.Module]:
    """The layers of nested `nn.Sequential` in their order."""
    is_plain = type(module) is nn.Sequential  # a subclass may do something else
    if not isinstance(module, nn.Sequential) or not is_plain:
        return [module]
    leaves = []
    for child in module:
        leaves += _leaves(child)
    return leaves


def _pool_first(layers: list[nn.Module]) -> list[nn.Module]:
    """max(relu(z)) = relu(max(z)): exchange each ReLU with the MaxPool2d after it."""
    for i in range(len(layers) - 1):
        if type(layers[i]) is nn.ReLU and type(layers[i + 1]) is nn.MaxPool2d:
            layers[i : i + 2] = [layers[i + 1], layers[i]]
    return layers


def _pairs_pay(layers: list[nn.Module]) -> bool:
    """Whether the net begins with a Conv2d of few channels, MaxPool2d(2) and ReLU.

    The convolution must have stride 1 and zero padding.
    """
    if [type(a) for a in layers[:3]] != [nn.Conv2d, nn.MaxPool2d, nn.ReLU]:
        return False
    conv: Any = layers[0]
    pool: Any = layers[1]
    plain = (
        conv.stride == (1, 1)
        and conv.dilation == (1, 1)
        and conv.groups == 1
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
    )
    halves = (
        pool.kernel_size in (2, (2, 2))
        and pool.stride in (2, (2, 2))
        and pool.padding in (0, (0, 0))
        and pool.dilation in (1, (1, 1))
        and not pool.ceil_mode
        and not pool.return_indices
    )
    return plain and halves and 2 * conv.out_channels <= LANES


def _channels_last(x: Tensor) -> Tensor:
    # clone, not contiguous(): one channel is the same bytes in both layouts, and only
    # fresh strides say which is meant
    if x.stride(1) == 1:
        return x
    return x.clone(memory_format=torch.channels_last)


def _paired(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """relu(maxpool(conv(x))): (N, C, H, W) -> (N, D, H'/2, W'/2).

    Here conv(x) is (N, D, H', W').
    """
    # B[(s, d), c, i, j] = w[d, c, i, j - s] for s = 0, 1, so that
    # z[n, (s, d), i, m] = conv(x)[n, d, i, 2m + s]
    B = torch.cat([F.pad(conv.weight, (s, 1 - s)) for s in (0, 1)])
    z = F.conv2d(x.contiguous(), B, None, (1, 2), conv.padding)  # (N, 2D, H', W'/2)
    return _PoolReLU.apply(z, conv.bias)  # max(z + b) = max(z) + b


class _PoolReLU(torch.autograd.Function):
    """relu(b + max over 2×2) of paired columns: (N, 2D, H, W) -> (N, D, H // 2, W).

    Of equal values the first is the maximum, as in torch.
    """

    @staticmethod
    def forward(ctx, z: Tensor, b: Tensor | None) -> Tensor:
        left, right = z.chunk(2, 1)  # (N, D, H, W)
        m = torch.maximum(left, right)
        top, bottom = _row_pairs(m)  # (N, D, H // 2, W)
        # which way the maximum is, as 0. or 1.: multiplying by numbers is vectorised,
        # choosing by booleans is not
        rightwards = torch.gt(right, left, out=torch.empty_like(m))
        downwards = torch.gt(bottom, top, out=m.new_empty(top.shape))
        y = torch.maximum(top, bottom)
        if b is not None:
            y.add_(b.view(-1, 1, 1))
        y.relu_()
        ctx.save_for_backward(rightwards, downwards, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor | None]:
        rightwards, downwards, y = ctx.saved_tensors
        N, D, H, W = rightwards.shape
        g = torch.ops.aten.threshold_backward(g.contiguous(), y, 0)
        dm = g.new_empty(N, D, H, W)
        dz = g.new_empty(N, 2 * D, H, W)
        top, bottom = _row_pairs(dm)
        left, right = dz.chunk(2, 1)
        # each number of g goes one of the two ways
        torch.sub(g, torch.mul(g, downwards, out=bottom), out=top)
        dm[:, :, H // 2 * 2 :] = 0
        torch.sub(dm, torch.mul(dm, rightwards, out=right), out=left)
        if not ctx.needs_input_grad[1]:
            return dz, None
        return dz, g.sum((0, 2, 3))


def _row_pairs(m: Tensor) -> tuple[Tensor, Tensor]:
    """Views of the even and the odd rows; a last row without partner is left out."""
    even = m.shape[2] // 2 * 2
    return m[:, :, 0:even:2], m[:, :, 1:even:2]
