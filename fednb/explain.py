"""Explanations and how good they are: saliency maps, insertion and deletion curves, critical differences.

OCFL (section 5) asks whether models of good clusters explain themselves better. A saliency map says how much each pixel
matters for a class (GradCAM, through captum). If it is right, removing the pixels that it likes best makes the class
improbable at once (the *deletion* curve falls, its area is small), and showing just these makes it probable at once
(the *insertion* curve rises, its area is large): Petsiuk, Das, Saenko, *RISE*, BMVC 2018. Whether methods differ over
many runs is judged by ranks: Demšar, *Statistical comparisons of classifiers over multiple data sets*, JMLR 2006.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .params import Layout
from .plots import INK
from .training import Seeded

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

MODES = ("in", "out", "server")
Explainer = Callable[[nn.Module, Tensor, Tensor], Tensor]


def network(model: Callable[[], nn.Module], row: Tensor) -> nn.Module:
    """Make a network from its recipe and a row (D,) of a federation's models, ready to predict."""
    with Seeded(0):  # the fresh weights are thrown away
        module = model().to(row.device, row.dtype)
    layout = Layout.of(module)
    if row.shape != (layout.D,):
        raise ValueError(
            f"a row of shape {tuple(row.shape)} for a model of {layout.D} columns: give the same recipe"
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
    """How much each pixel of images (n, C, H, W) speaks for class target[i], by GradCAM; never negative.

    The maps of a convolution's channels are summed, each weighted by its mean gradient of the class score; what speaks
    against the class is cut off, and the map is stretched to the image. ``layer`` is the last convolution by default.
    """
    from captum.attr import LayerAttribution, LayerGradCam

    layer = layer or next(
        (m for m in reversed(list(module.modules())) if isinstance(m, nn.Conv2d)), None
    )
    if layer is None:
        raise ValueError(
            "GradCAM looks at a convolution, and this network has none: explain another network"
        )
    cam, maps = LayerGradCam(module, layer), []
    for images, classes in zip(x.split(batch), target.split(batch), strict=True):
        small = cam.attribute(
            images, classes, relu_attributions=True
        ).detach()  # (n, 1, h, w)
        maps.append(
            LayerAttribution.interpolate(small, tuple(x.shape[2:]), "bilinear")[:, 0]
        )
    return torch.cat(maps)


def blur(x: Tensor, size: int = 11, sigma: float = 5.0) -> Tensor:
    """Images (n, C, H, W) through a Gaussian of ``size`` x ``size`` pixels, RISE's by default; edges are continued."""
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
    """Probability of class target[i] while image i vanishes or appears, most salient pixels first.

    Images (n, C, H, W), their maps (n, H, W). ``step`` pixels change at a time, a line's worth by default, which makes
    T = ⌈HW / step⌉ steps. Deletion goes from the image to nothing, insertion from nothing to the image. Nothing is
    ``blank`` (n, C, H, W): for deletion the value 0, the mean colour of standardised images, and for insertion the
    blurred image, as in RISE. All images at all steps go through the network as one long batch, cut in pieces.
    """
    if kind not in ("deletion", "insertion"):
        raise ValueError(f"kind={kind!r}: choose deletion or insertion")
    n, H, W = saliency.shape
    if x.shape[0] != n or x.shape[2:] != (H, W) or target.shape != (n,):
        raise ValueError(
            f"images {tuple(x.shape)}, maps {tuple(saliency.shape)}, targets {tuple(target.shape)} differ"
        )
    if blank is None:
        blank = torch.zeros_like(x) if kind == "deletion" else blur(x)
    start, end = (x, blank) if kind == "deletion" else (blank, x)
    order = saliency.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1).view(n, 1, H, W)  # 0: the most salient pixel
    T = -(-H * W // (step or W))
    p = []
    for pair in torch.arange(n * (T + 1), device=x.device).split(
        batch
    ):  # image i at step t is pair i (T + 1) + t
        i, t = pair // (T + 1), pair % (T + 1)
        changed = rank[i] < (t * (step or W)).view(-1, 1, 1, 1)
        logits = module(torch.where(changed, end[i], start[i]))
        p.append(logits.softmax(1).gather(1, target[i, None])[:, 0])
    return torch.cat(p).view(n, T + 1)


def area(curve: Tensor) -> Tensor:
    """Area under curves (..., T + 1) over [0, 1] by the trapezoid rule: (...).

    It is linear: the mean of the areas of many images is the area under their mean curve.
    """
    return (curve[..., 1:] + curve[..., :-1]).mean(-1) / 2


def insertion_deletion(
    fed: Any,
    state: Any,
    model: Callable[[], nn.Module],
    mode: str = "in",
    *,
    sample: int = 350,
    step: int | None = None,
    explainer: Explainer = gradcam,
    seed: int = 0,
    batch: int = 512,
) -> DataFrame:
    """Judge the explanations of every cluster's model (OCFL, Algorithm 2): a line for each cluster that serves clients.

    The model of a cluster explains the true classes of up to ``sample`` images drawn from the test sets of its own
    clients (``mode="in"``), of all others (``"out"``), or from the server's own (``"server"``). Columns: cluster,
    clients, samples, and the mean areas ``insertion`` and ``deletion``, nan where there are no images (no others, if
    there is one cluster). The mean of a column over the clusters stands for the run.
    """
    import pandas as pd

    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: choose from {', '.join(MODES)}")
    lines = []
    for c in state.labels.unique().tolist():
        mine = (state.labels == c).cpu().numpy()
        pool = _pool(fed, mine, mode)
        rng = np.random.default_rng([seed, c])
        chosen = torch.as_tensor(rng.permutation(pool)[:sample], device=fed.device)
        line = {"cluster": c, "clients": int(mine.sum()), "samples": len(chosen)}
        line |= dict.fromkeys(("insertion", "deletion"), np.nan)
        if len(chosen):
            module, x, y = (
                network(model, state.theta[c]),
                fed._x[chosen],
                fed._y[chosen],
            )
            maps = explainer(module, x, y)
            for kind in ("insertion", "deletion"):
                line[kind] = float(
                    area(curve(module, x, y, maps, kind, step=step, batch=batch)).mean()
                )
        lines.append(line)
    return pd.DataFrame(lines)


def _pool(fed: Any, mine: np.ndarray, mode: str) -> np.ndarray:
    """Samples of Algorithm 2, lines 8 to 13, for the cluster of the clients in the mask ``mine`` (K,)."""
    if mode == "server":
        return fed._server.cpu().numpy()
    who = np.flatnonzero(mine if mode == "in" else ~mine)
    return np.concatenate([np.empty(0, np.int64), *(fed._parts.test[k] for k in who)])


class CriticalDifferences(NamedTuple):
    """Which of several methods differ, judged by their ranks over many runs."""

    ranks: Series  # mean rank of each method, 1 is best, in that order
    friedman: float  # p-value of: all methods are alike
    p: DataFrame  # for each pair, Wilcoxon's signed-rank test, adjusted by Holm; 1 on the diagonal
    groups: list[
        tuple[str, ...]
    ]  # neighbours in rank of whom no two differ, as long as can be
    runs: int  # without those in which a score is missing


def critical_differences(
    scores: DataFrame, best: str = "high", alpha: float = 0.05
) -> CriticalDifferences:
    """Compare methods (columns) over runs (lines): Friedman's test, then all pairs by Wilcoxon with Holm's correction.

    ``best`` says whether ``"high"`` (insertion) or ``"low"`` (deletion) scores are good. A run in which a score is nan
    is left out. If Friedman's test finds nothing, at p >= alpha, all methods are one group. Equal scores count half for
    each side (Demšar 2006).
    """
    import pandas as pd
    from scipy.stats import friedmanchisquare, rankdata

    if best not in ("high", "low"):
        raise ValueError(f"best={best!r}: choose high or low")
    scores = scores.dropna()
    if scores.shape[1] < 3 or len(scores) < 2:
        raise ValueError(
            f"{scores.shape[1]} methods in {len(scores)} whole runs: Friedman needs 3 and 2 at least"
        )
    x = scores.to_numpy(float)
    ranks = pd.Series(
        rankdata(-x if best == "high" else x, axis=1).mean(0), scores.columns
    ).sort_values(kind="stable")
    alike = not np.ptp(x, axis=1).any()
    friedman = 1.0 if alike else float(friedmanchisquare(*x.T).pvalue)
    p = _pairs(scores[ranks.index])
    same = p.to_numpy() >= alpha if friedman < alpha else np.ones(p.shape, dtype=bool)
    return CriticalDifferences(
        ranks, friedman, p, _stretches(list(ranks.index), same), len(scores)
    )


def difference_diagram(found: CriticalDifferences) -> Figure:
    """Draw mean ranks on a line, the best to the left, a bar over each group of those that do not differ.

    scikit-posthocs draws, but is told the groups: given p-values it lets a bar reach over methods that do differ from
    some others under it.
    """
    import pandas as pd
    import scikit_posthocs
    from matplotlib.figure import Figure

    names = found.ranks.index
    together = [
        [
            float(a == b or any({a, b} <= set(group) for group in found.groups))
            for b in names
        ]
        for a in names
    ]
    fig = Figure(figsize=(7.5, 0.25 * len(names) + 0.8), layout="constrained")
    scikit_posthocs.critical_difference_diagram(
        found.ranks,
        pd.DataFrame(together, names, names),
        ax=fig.add_subplot(),
        label_fmt_left="{label} ({rank:.2f})",
        label_fmt_right="({rank:.2f}) {label}",
        color_palette=dict.fromkeys(names, INK),
    )
    return fig


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values (m,): the i-th least times m - i + 1, made monotone, at most 1."""
    p = np.asarray(p, float)
    order = p.argsort(kind="stable")
    raised = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    out = np.empty_like(p)
    out[order] = raised.clip(max=1)
    return out


def _pairs(scores: DataFrame) -> DataFrame:
    """Adjusted p-values of all pairs of columns, (A, A)."""
    import pandas as pd
    from scipy.stats import wilcoxon

    x = scores.to_numpy(float)
    i, j = np.triu_indices(x.shape[1], 1)
    gaps = (x[:, i] - x[:, j]).T  # (pairs, runs)
    p = holm(
        np.array(
            [
                wilcoxon(gap, zero_method="zsplit").pvalue if gap.any() else 1.0
                for gap in gaps
            ]
        )
    )
    table = np.ones((x.shape[1],) * 2)
    table[i, j] = table[j, i] = p
    return pd.DataFrame(table, scores.columns, scores.columns)


def _stretches(names: list[str], same: np.ndarray) -> list[tuple[str, ...]]:
    """The longest stretches of names, at least two, within which all pairs are the same."""
    found, reached = [], 0
    for a in range(len(names)):
        b = a + 1
        while b < len(names) and same[a : b + 1, b].all():
            b += 1
        if b > max(reached, a + 1):  # not inside the stretch before
            found.append(tuple(names[a:b]))
            reached = b
    return found
