"""What OCFL's tasks measure while several methods run in step.

Before OCFL's trigger all clusterers share one model, and so do FedAvg, CFL and FL+HC.
After it, those that found the same cluster go on alike. `fednb.views.Arms` runs them
side by side and trains what they have in common once. `look` and `judge` measure them;
`judge` reports what an arm would have cost alone as ``"arm|client_updates"`` and
``"arm|bytes"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import metrics
from ...clustering import agglomerative, by_distance
from ...door import Update
from ...experiment import clusters_of, serving
from ...federation import Federation
from ...methods.ocfl import displacement, temperature
from ...similarity import cosine_distance
from ...views import Arms as Arms
from ...views import ArmsState as State
from ...views import tensor_bytes
from ..common import as_text
from .explain import group_maps, insertion_deletion

# The clusterer of each row that is not "as released".
CORRECTED = {
    "OCFL-KM": "kmeans",
    "OCFL-AFF": "affinity",
    "OCFL-MS": "meanshift",
    "OCFL-HDB": "hdbscan",
}
# How each row clusters: arguments of `clustering.by_distance`.
CLUSTERERS: dict[str, dict[str, Any]] = {
    **{name: {"clusterer": clusterer} for name, clusterer in CORRECTED.items()},
    "OCFL-AFF as released": {"clusterer": "affinity", "swapped": True},
    "OCFL-HDB as released": {"clusterer": "hdbscan", "noise": "together"},
}


def look(
    fed: Federation,
    state: State,
    updates: Sequence[str] = ("parameters",),
    thresholds: Sequence[float] = (),
) -> dict[str, Any]:
    """How hot the first arm's updates are, and what each clusterer makes of them.

    The clusters of a round are written as one string, a character for each client.
    With ``thresholds``, FL+HC looks too, with each of them as its distance threshold.
    """
    out: dict[str, Any] = {}
    for kind in updates:
        mark = f"{kind} "
        if kind == "parameters":
            mark = ""
        Gamma = cosine_distance(displacement(fed, state.sent[0], state.back[0], kind))
        out[f"{mark}temperature"] = float(temperature(Gamma))
        for name, how in CLUSTERERS.items():
            found = by_distance(Gamma, k=3, seed=fed.seed, **how)
            out[mark + name] = as_text(found)
        for threshold in thresholds:
            found = agglomerative(Gamma, threshold, "average")
            out[mark + at_threshold(threshold)] = as_text(found)
    return out


def at_threshold(threshold: float) -> str:
    """The name under which `look` writes what FL+HC finds at a threshold."""
    return f"BCL at {threshold:g}"


def judge(
    fed: Federation,
    state: State,
    every: int = 3,
    final: int = 0,
    per_class: int = 40,
    images: int = 10,
    thresholds: Sequence[float] = (),
    detailed: bool = False,
) -> dict[str, Any]:
    """`look`, and now and then what each arm has reached, as ``"arm|score"``.

    Every ``every`` rounds and in round ``final`` these are each arm's `scores`, the
    ``round`` in which its clusters changed last, and the ``client_updates`` and
    ``bytes`` that it would have cost alone; in round ``final`` also `late`.

    ``thresholds`` are those of `look`. With ``detailed`` there are each arm's
    ``balanced_accuracy`` and ``labels``, a character for each client, and `late` is
    detailed, too.
    """
    out = look(fed, state, thresholds=thresholds)
    last = fed.t + 1 == final
    if (fed.t + 1) % every and not last:
        return out
    x, y = fed.probe(per_class)
    known: dict[bytes, dict[str, Any]] = {}
    for i, (name, arm) in enumerate(zip(state.names, state.arms, strict=True)):
        key = tensor_bytes(arm.theta) + tensor_bytes(arm.labels)
        votes = getattr(arm, "votes", None)
        if votes is not None:
            key += tensor_bytes(votes)
        if key not in known:  # arms that found the same are alike
            found, pf1 = scores(fed, arm, x, y, detailed)
            if last:
                found |= late(
                    fed,
                    arm,
                    state.back[i],
                    x,
                    y,
                    pf1=pf1,
                    images=images,
                    detailed=detailed,
                )
            known[key] = found
        memory = state.memory[i]
        alone = {
            "round": int(state.changed[i]),
            "client_updates": int(memory["meter.updates"]),
            "bytes": int(memory["meter.down"] + memory["meter.up"]),
        }
        for kind, value in (known[key] | alone).items():
            out[f"{name}|{kind}"] = value
    return out


def scores(
    fed: Federation, arm: Any, x: Tensor, y: Tensor, detailed: bool = False
) -> tuple[dict[str, Any], np.ndarray]:
    """PF1, GF1 and how good the clusters are; and PF1 of each client (K,).

    PF1 is that of clients on their own test samples, GF1 that of their models on the
    server's. With ``detailed`` also balanced accuracy and who is in which cluster.
    """
    confusion = fed.evaluate(arm.theta, serving(arm)).confusion.numpy()  # (K, M, M)
    pf1 = np.asarray(metrics.macro_f1(confusion, over="true"))
    gf1 = served_f1(fed, arm, x, y)
    found = clusters_of(arm).numpy()
    true = fed.truth.labels
    if true is None:
        raise ValueError("scores: this federation has no hidden clusters")
    out: dict[str, Any] = {
        "pf1": metrics.average(pf1),
        "pf1_union": metrics.average(metrics.macro_f1(confusion, over="union")),
        "gf1": metrics.average(gf1),
        "gap": metrics.average(np.abs(pf1 - gf1)),
        "accuracy": metrics.average(metrics.accuracy(confusion)),
        **metrics.cluster_scores(true, found),
        "clusters": len(np.unique(found)),
    }
    if detailed:
        balanced = metrics.balanced_accuracy(confusion)
        out["balanced_accuracy"] = metrics.average(balanced)
        out["labels"] = as_text(found)
    return out, pf1


def late(
    fed: Federation,
    arm: Any,
    back: Update,
    x: Tensor,
    y: Tensor,
    pf1: np.ndarray,
    images: int,
    detailed: bool = False,
) -> dict[str, Any]:
    """GF1 as the authors took it, and insertion and deletion areas.

    Theirs is of the models that clients sent, before they are averaged. With
    ``detailed`` one row of pixels changes at a time instead of four, images of other
    clusters are explained too (``_out``), areas are also given as normalised per
    image, and the mean curves of a cluster's own images and the mean maps of a hidden
    group's are kept.
    """
    gf1 = server_f1(fed, back.theta, x, y)
    personal = pf1[back.clients.cpu().numpy()]
    out = {
        "gf1_before": metrics.average(gf1),
        "gap_before": metrics.average(np.abs(personal - gf1)),
    }
    row_of_pixels = x.shape[-1]
    if detailed:
        return out | detailed_explanations(fed, arm, images, step=row_of_pixels)
    for mode, mark in {"in": "", "server": "_server"}.items():
        found = insertion_deletion(
            fed, arm, mode, sample=images, step=4 * row_of_pixels
        )
        for kind in ("insertion", "deletion"):
            out[f"{kind}{mark}"] = float(found[kind].mean())
    return out


def detailed_explanations(
    fed: Federation, arm: Any, images: int, step: int
) -> dict[str, Any]:
    """Areas of all modes, also normalised, the mean curves of mode *in*, and maps.

    An area is None where no image is left: one cluster has nobody outside. ``maps`` are
    those of `group_maps`.
    """
    out: dict[str, Any] = {"maps": group_maps(fed, arm)}
    for mode, mark in {"in": "", "out": "_out", "server": "_server"}.items():
        found = insertion_deletion(
            fed, arm, mode, sample=images, step=step, detailed=True
        )
        for kind in ("insertion", "deletion"):
            for how in ("", "_normalised"):
                area = float(found[f"{kind}{how}"].mean())
                out[f"{kind}{mark}{how}"] = area
                if np.isnan(area):
                    out[f"{kind}{mark}{how}"] = None
            if mode == "in":
                curves = found[f"{kind}_curve"].dropna()
                mean = np.mean([*curves], axis=0, dtype=np.float64)
                out[f"{kind}_curve"] = mean.round(4).tolist()
    return out


def server_f1(
    fed: Federation, theta: Tensor, x: Tensor, y: Tensor
) -> np.ndarray:  # (C,)
    """Macro-F1 of each model (C, D) on the server's samples."""
    return _macro_f1(fed, fed.predict(theta, x).argmax(2), y)


def served_f1(fed: Federation, arm: Any, x: Tensor, y: Tensor) -> np.ndarray:  # (K,)
    """Macro-F1 of what serves each client, a model or a soft vote of them."""
    votes = getattr(arm, "votes", None)  # (K, C)
    if votes is None:
        return server_f1(fed, arm.theta, x, y)[arm.labels]
    probability = fed.predict(arm.theta, x).softmax(2)  # (C, m, classes)
    mixed = torch.einsum("kc,cmj->kmj", votes.to(probability), probability)
    return _macro_f1(fed, mixed.argmax(2), y)


def _macro_f1(fed: Federation, guess: Tensor, y: Tensor) -> np.ndarray:  # (C,)
    """Macro-F1 of guesses (C, m) of the classes y (m,)."""
    cells = y * fed.classes + guess
    counts = [
        torch.bincount(row, minlength=fed.classes**2).view(fed.classes, -1).numpy()
        for row in cells
    ]
    return np.asarray(metrics.macro_f1(np.stack(counts), over="union"))


def keys(names: Iterable[str], kinds: Iterable[str]) -> tuple[str, ...]:
    """The names under which `judge` writes."""
    return tuple(f"{name}|{kind}" for name in names for kind in kinds)
