"""Explanations and how good they are: saliency maps and their curves.

OCFL (section 5) asks whether models of good clusters explain themselves better. A
saliency map says how much each pixel matters for a class (GradCAM). If
it is right, removing the pixels that it likes best makes the class improbable at once
(the *deletion* curve falls, its area is small), and showing just these makes it
probable at once (the *insertion* curve rises, its area is large): Petsiuk, Das, Saenko,
*RISE*, BMVC 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...door import Judge
from ...params import Layout
from ...training import Seeded

if TYPE_CHECKING:
    from pandas import DataFrame

MODES = ("in", "out", "server")
Explainer = Callable[[nn.Module, Tensor, Tensor], Tensor]


def network(model: Callable[[], nn.Module], row: Tensor) -> nn.Module:
    """Make a network from its recipe and a row (D,) of models, ready to predict."""
    with Seeded(0):  # the fresh weights are thrown away
        module = model().to(row.device, row.dtype)
    layout = Layout.of(module)
    if row.shape != (layout.D,):
        raise ValueError(
            f"a row of shape {tuple(row.shape)} for a model of {layout.D} columns: "
            "give the same recipe"
        )
    layout.bind(module).copy_(row)
    return module.eval()


def gradcam(
    module: nn.Module,
    x: Tensor,
    target: Tensor,
    layer: nn.Module | None = None,
    batch: int = 512,
) -> Tensor:  # (n, H, W)
    """How much each pixel of images (n, C, H, W) speaks for class target[i]: GradCAM.

    The maps of a convolution's channels are summed, each weighted by its mean gradient
    of the class score; what speaks against the class is cut off, and the map is
    stretched to the image. ``layer`` is the last convolution by default.
    """
    if layer is None:
        convolutions = [m for m in module.modules() if isinstance(m, nn.Conv2d)]
        if not convolutions:
            raise ValueError(
                "GradCAM looks at a convolution, and this network has none: explain "
                "another network"
            )
        layer = convolutions[-1]
    maps = []
    for images, classes in zip(x.split(batch), target.split(batch), strict=True):
        channels, slopes = _channels(module, layer, images, classes)  # (n, c, h, w)
        weights = slopes.mean((2, 3), keepdim=True)  # (n, c, 1, 1)
        small = (weights * channels).sum(1, keepdim=True).relu()  # (n, 1, h, w)
        maps.append(F.interpolate(small, x.shape[2:], mode="bilinear")[:, 0])
    return torch.cat(maps)


def _channels(
    module: nn.Module, layer: nn.Module, images: Tensor, classes: Tensor
) -> tuple[Tensor, Tensor]:
    """What a layer gives for images, and the gradient of their class scores by it."""
    seen: list[Tensor] = []

    def keep(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not output.requires_grad:  # the network is frozen
            output.requires_grad_()
        seen.append(output)
        return output.clone()  # a ReLU in place must not change what is kept

    hook = layer.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            scores = module(images).gather(1, classes[:, None]).sum()
    finally:
        hook.remove()
    (slopes,) = torch.autograd.grad(scores, seen)
    return seen[0].detach(), slopes


def blur(x: Tensor, size: int = 11, sigma: float = 5.0) -> Tensor:
    """Blur images (n, C, H, W) by a Gaussian of ``size`` x ``size`` pixels.

    The defaults are RISE's. Edges are continued.
    """
    at = torch.arange(size, dtype=x.dtype, device=x.device) - size // 2
    kernel = (-at.square() / (2 * sigma**2)).exp()
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, 1, size)
    wide = F.pad(x, [size // 2, (size - 1) // 2] * 2, mode="replicate")
    return F.conv2d(
        F.conv2d(wide, kernel, groups=x.shape[1]),
        kernel.transpose(2, 3),
        groups=x.shape[1],
    )


@torch.no_grad()
def curve(
    module: nn.Module,
    x: Tensor,
    target: Tensor,
    saliency: Tensor,
    kind: str = "deletion",
    *,
    step: int | None = None,
    blank: Tensor | None = None,
    batch: int = 512,
) -> Tensor:  # (n, T + 1)
    """Probability of class target[i] while image i vanishes or appears.

    The most salient pixels change first: the images are (n, C, H, W), their maps (n, H,
    W). ``step`` pixels change at a time, a line's worth by default, which makes T = ⌈HW
    / step⌉ steps. Deletion goes from the image to nothing, insertion from nothing to
    the image. Nothing is ``blank`` (n, C, H, W): for deletion the value 0, the mean
    colour of standardised images, and for insertion the blurred image, as in RISE. All
    images at all steps go through the network as one long batch, cut in pieces.
    """
    if kind not in ("deletion", "insertion"):
        raise ValueError(f"kind={kind!r}: choose deletion or insertion")
    n, H, W = saliency.shape
    if x.shape[0] != n or x.shape[2:] != (H, W) or target.shape != (n,):
        raise ValueError(
            f"images {tuple(x.shape)}, maps {tuple(saliency.shape)}, targets "
            f"{tuple(target.shape)} differ"
        )
    if kind == "deletion":
        if blank is None:
            blank = torch.zeros_like(x)
        start = x
        end = blank
    else:
        if blank is None:
            blank = blur(x)
        start = blank
        end = x
    order = saliency.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1).view(n, 1, H, W)  # 0: the most salient pixel
    pixels = step or W  # that change in a step
    T = math.ceil(H * W / pixels)
    p = []
    # image i at step t is pair i (T + 1) + t
    for pair in torch.arange(n * (T + 1), device=x.device).split(batch):
        i = pair // (T + 1)
        t = pair % (T + 1)
        changed = rank[i] < (t * pixels).view(-1, 1, 1, 1)
        logits = module(torch.where(changed, end[i], start[i]))
        p.append(logits.softmax(1).gather(1, target[i, None])[:, 0])
    return torch.cat(p).view(n, T + 1)


def area(curve: Tensor) -> Tensor:
    """Area under curves (..., T + 1) over [0, 1] by the trapezoid rule: (...).

    It is linear: the mean of the areas of many images is the area under their mean
    curve.
    """
    return (curve[..., 1:] + curve[..., :-1]).mean(-1) / 2


def normalised(curves: Tensor) -> Tensor:
    """Curves (n, T + 1) of probabilities, each divided by its own largest value."""
    return curves / curves.amax(1, keepdim=True).clamp_min(1e-12)


def insertion_deletion(
    fed: Judge,
    state: Any,
    mode: str = "in",
    *,
    sample: int = 350,
    step: int | None = None,
    explainer: Explainer = gradcam,
    seed: int = 0,
    batch: int = 512,
    detailed: bool = False,
) -> DataFrame:
    """Judge the explanations of every cluster's model (OCFL, Algorithm 2).

    The frame has a line for each cluster that serves clients.

    The model of a cluster explains the true classes of up to ``sample`` images drawn
    from the test sets of its own clients (``mode="in"``), of all others (``"out"``), or
    from the server's own (``"server"``). Columns: cluster, clients, samples, and the
    mean areas ``insertion`` and ``deletion``, nan where there are no images (no others,
    if there is one cluster). The mean of a column over the clusters stands for the run.

    With ``detailed`` there are also the areas under each image's curve divided by its
    largest value, ``insertion_normalised`` and ``deletion_normalised``: they do not
    grow with the model's confidence. ``insertion_curve`` and ``deletion_curve`` are the
    mean curves, (T + 1,).
    """
    import pandas as pd

    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: choose from {', '.join(MODES)}")
    lines = []
    for c in state.labels.unique().tolist():
        members = state.labels == c  # (K,)
        pool = _pool(fed, members, mode).cpu().numpy()
        rng = np.random.default_rng([seed, c])
        chosen = torch.as_tensor(rng.permutation(pool)[:sample], device=fed.device)
        line = {"cluster": c, "clients": int(members.sum()), "samples": len(chosen)}
        line |= dict.fromkeys(("insertion", "deletion"), np.nan)
        if detailed:
            line |= {"insertion_normalised": np.nan, "deletion_normalised": np.nan}
            line |= {"insertion_curve": None, "deletion_curve": None}
        if len(chosen):
            module = fed.network(state.theta[c])
            x, y = fed.samples(chosen)
            maps = explainer(module, x, y)
            for kind in ("insertion", "deletion"):
                curves = curve(module, x, y, maps, kind, step=step, batch=batch)
                line[kind] = float(area(curves).mean())
                if detailed:
                    line[f"{kind}_normalised"] = float(area(normalised(curves)).mean())
                    line[f"{kind}_curve"] = curves.mean(0).cpu().numpy()
        lines.append(line)
    return pd.DataFrame(lines)


def group_maps(
    fed: Judge,
    state: Any,
    *,
    sample: int = 20,
    cells: int = 7,
    explainer: Explainer = gradcam,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Where models look, without the pixels: a mean saliency map for each hidden group.

    Of each group ``class`` is the one that its clients' test sets have most of. Up to
    ``sample`` of their images of it are explained, each by the model that serves its
    client: the same images whatever the ``state``. An image's map is scaled to the sum
    1. ``map`` is the mean of these maps in ``cells`` x ``cells`` squares, in percent of
    the largest.
    """
    truth = fed.truth.labels
    if truth is None:
        raise ValueError("group_maps: this federation has no hidden clusters")
    out: list[dict[str, Any]] = []
    for group in np.unique(truth):
        numbers = []
        owners = []
        for k in np.flatnonzero(truth == group):
            own = fed.sample_numbers(torch.as_tensor([k], device=fed.device))
            numbers.append(own)
            owners.append(torch.full((len(own),), int(k)))
        pool, owner = torch.cat(numbers), torch.cat(owners)
        _, y = fed.samples(pool)
        most = int(y.bincount().argmax())
        at = np.flatnonzero((y == most).cpu().numpy())
        at = np.random.default_rng([seed, group]).permutation(at)[:sample]
        maps = []
        for k in owner[at].unique():
            x, target = fed.samples(pool[at[owner[at].numpy() == int(k)]])
            module = fed.network(state.theta[state.labels[k]])
            maps.append(explainer(module, x, target))
        found = torch.cat(maps)  # (n, H, W)
        found = found / found.sum((1, 2), keepdim=True).clamp_min(1e-12)
        small = F.adaptive_avg_pool2d(found.mean(0)[None], cells)[0]
        percent = 100 * small / small.max().clamp_min(1e-12)
        out.append({"class": most, "map": percent.round().int().tolist()})
    return out


def _pool(fed: Judge, members: Tensor, mode: str) -> Tensor:  # (N,)
    """Numbers of the samples of Algorithm 2, lines 8 to 13.

    They are for the cluster of the clients in the mask ``members`` (K,).
    """
    if mode == "server":
        return fed.sample_numbers(on="server")
    if mode == "out":
        return fed.sample_numbers(~members)
    return fed.sample_numbers(members)
