"""Scores: arrays in, numbers out.

Everything here reads finished results (confusion matrices, cluster labels, learning
curves) and returns a float or a float64 array. Arguments are torch tensors of any type
and device, or numpy arrays.

Two conventions hold throughout. A score that is not defined (a client without test
samples, a silhouette of one cluster) is ``nan``, never a made-up 0, and `average` and
`spread` leave it out. A cluster is known by its members only: names may be numbers or
letters, and a noise label such as -1 is a cluster like any other.

Sources: FedGWC (section 6, appendices B and E) for the Wasserstein-adjusted scores and
the Rand index; OCFL (Definition 8) for the learning gap; GCFL (section 4.3.1) for T0.95
and AUC50.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from . import checks

Array = ArrayLike | torch.Tensor
SHARE = checks.number(above=0, most=1)


def _array(x: Array) -> np.ndarray:
    """The argument as a numpy array."""
    if not isinstance(x, torch.Tensor):
        return np.asarray(x)
    x = x.detach().cpu()
    if x.is_floating_point():
        x = x.double()  # numpy has no bfloat16
    return x.numpy()


def _floats(x: Array) -> np.ndarray:
    """The argument as an array of float64."""
    return _array(x).astype(np.float64)


def _amounts(x: Array, name: str) -> np.ndarray:
    """The argument called ``name`` as float64, finite and not negative."""
    v = _floats(x)
    bad = np.argwhere(~(np.isfinite(v) & (v >= 0)))
    if len(bad):
        at = tuple(bad[0].tolist())
        raise ValueError(
            f"{name}{list(at)} is {v[at]}: {name} must be finite and not negative"
        )
    return v


def _ratio(
    top: np.ndarray, bottom: np.ndarray, empty: float = np.nan
) -> float | np.ndarray:
    """Quotient of two arrays or numbers; ``empty`` where the bottom is 0."""
    out = np.divide(top, bottom, out=np.full(np.shape(top), empty), where=bottom > 0)
    if out.ndim == 0:
        return float(out)
    return out


def confusion(true: Array, pred: Array, classes: int) -> np.ndarray:
    """Count samples by true class (row) and predicted class (column), int64."""
    checks.argument("confusion", "classes", classes, checks.integer(1))
    t = _array(true)
    p = _array(pred)
    if t.ndim != 1 or t.shape != p.shape:
        raise ValueError(
            f"true {t.shape} and pred {p.shape} do not match: give two vectors of one "
            "length"
        )
    for name, v in (("true", t), ("pred", p)):
        if v.size and v.dtype.kind not in "iu":
            raise ValueError(f"{name} has type {v.dtype}: give integer class labels")
        if v.size and (v.min() < 0 or v.max() >= classes):
            raise ValueError(
                f"{name} holds {v.min()}..{v.max()}: classes={classes} allows "
                f"0..{classes - 1}"
            )
    cell = t.astype(np.int64) * classes + p.astype(np.int64)
    counts = np.bincount(cell, minlength=classes**2).astype(np.int64)
    return counts.reshape(classes, classes)


def _margins(confusion: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per class: hits, true samples, predictions, each (..., C)."""
    m = _amounts(confusion, "confusion")
    if m.ndim < 2 or m.shape[-1] != m.shape[-2]:
        raise ValueError(
            f"confusion has shape {m.shape}: give (..., C, C), rows true, columns "
            "predicted"
        )
    hits = np.diagonal(m, axis1=-2, axis2=-1)
    return hits, m.sum(-1), m.sum(-2)


def majority_confusion(train: ArrayLike, test: ArrayLike) -> np.ndarray:
    """Confusion matrices (K, classes, classes) of always answering the majority class.

    ``train`` and ``test`` (K, classes) count each client's samples of each class; the
    answer is the class that is most frequent in training. It is what label shares alone
    can do, without a look at any sample.
    """
    train = np.asarray(train)
    test = np.asarray(test)
    clients, classes = test.shape
    confusion = np.zeros((clients, classes, classes))
    confusion[np.arange(clients), :, train.argmax(1)] = test
    return confusion


def accuracy(confusion: Array) -> float | np.ndarray:
    """Share of samples predicted right: (..., C, C) -> (...)."""
    hits, true, _ = _margins(confusion)
    return _ratio(hits.sum(-1), true.sum(-1))


def balanced_accuracy(confusion: Array) -> float | np.ndarray:
    """Mean recall over the classes that occur in the truth: (..., C, C) -> (...).

    FedGWC's printed definition (appendix F). Every class has the same weight, however
    rare it is.
    """
    hits, true, _ = _margins(confusion)
    recall = np.asarray(_ratio(hits, true, empty=0.0))
    return _ratio(recall.sum(-1), (true > 0).sum(-1))


def share_weighted_accuracy(confusion: Array, shares: Array) -> float | np.ndarray:
    """What FedGWC's released code calls balanced accuracy.

    (..., C, C), (..., C) -> (...). With h_c hits among n_c test samples of class c, and
    p_c the client's *train* share of it, the score is Σ h_c p_c / Σ n_c p_c. It favours
    frequent classes, the opposite of balancing. ``shares`` may be counts: a common
    factor cancels. A client that trained on none of its test classes gets nan.
    """
    hits, true, _ = _margins(confusion)
    p = _amounts(shares, "shares")
    if p.shape not in (true.shape, true.shape[-1:]):
        raise ValueError(
            f"shares has shape {p.shape}: give {true.shape}, a train share per client "
            "and class"
        )
    return _ratio((hits * p).sum(-1), (true * p).sum(-1))


def macro_f1(
    confusion: Array, over: Literal["true", "union"] = "true"
) -> float | np.ndarray:
    """Mean over classes of F1 = 2 hits / (true + predicted): (..., C, C) -> (...).

    ``over="true"`` averages the classes that occur in the truth. ``over="union"`` adds
    those that were only predicted, each with F1 = 0. This is scikit-learn's default and
    so that of OCFL's released code. For a client with three of ten classes, a single
    prediction of a fourth costs about a quarter of the score.
    """
    checks.argument("macro_f1", "over", over, checks.choice("true", "union"))
    hits, true, predicted = _margins(confusion)
    counted = true > 0
    if over == "union":
        counted = true + predicted > 0
    f1 = np.asarray(_ratio(2 * hits, true + predicted, empty=0.0))
    return _ratio((f1 * counted).sum(-1), counted.sum(-1))


def average(values: Array, weights: Array | None = None) -> float | np.ndarray:
    """Mean over clients, the last axis, without those that are nan: (..., K) -> (...).

    With `weights` (K,), such as test sizes, it is Σ w_k v_k / Σ w_k over the clients
    that have a value. If none has one, the mean is nan.
    """
    v = _floats(values)
    w = np.ones(v.shape[-1:])
    if weights is not None:
        w = _amounts(weights, "weights")
    if v.ndim == 0 or w.shape != v.shape[-1:]:
        raise ValueError(
            f"values {v.shape} and weights {w.shape} do not match: give one weight per "
            "client"
        )
    known = ~np.isnan(v)
    return _ratio((np.where(known, v, 0.0) * w).sum(-1), (known * w).sum(-1))


def spread(values: Array) -> dict[str, float]:
    """How much the scores (K,) of clients differ, without those that are nan.

    Returns ``std`` (of the population), ``worst`` (the minimum), and the percentiles
    ``p10`` and ``p90``.
    """
    v = _floats(values)
    if v.ndim != 1:
        raise ValueError(f"values has shape {v.shape}: give one score per client, (K,)")
    v = v[~np.isnan(v)]
    if not v.size:
        return dict.fromkeys(("std", "worst", "p10", "p90"), np.nan)
    return {
        "std": float(v.std()),
        "worst": float(v.min()),
        "p10": float(np.percentile(v, 10)),
        "p90": float(np.percentile(v, 90)),
    }


def learning_gap(personal: Array, general: Array) -> float | np.ndarray:
    """OCFL's learning gap (Eq. 11) of each client: |f(h, D_client) - f(h, D_server)|.

    f is a score such as macro F1 of the client's model h. Take the gap before the mean
    over clients: the gap of two means can be 0 although every client has a gap.
    """
    gap = np.abs(_floats(personal) - _floats(general))
    if gap.ndim == 0:
        return float(gap)
    return gap


def _curve(curve: Array) -> np.ndarray:
    """A learning curve (T,) as float64."""
    v = _amounts(curve, "curve")
    if v.ndim != 1 or not v.size:
        raise ValueError(f"curve has shape {v.shape}: give one score per round, (T,)")
    return v


def rounds_to(
    curve: Array, share: float = 0.95, of: Literal["final", "max"] = "final"
) -> int:
    """GCFL's T0.95: rounds that a curve (T,) needs to reach `share` of its final value.

    Rounds count from 1: curve[0] is the score after round 1. A curve that falls at the
    end reaches its final value early; ``of="max"`` compares with the best round
    instead.
    """
    v = _curve(curve)
    checks.argument("rounds_to", "share", share, SHARE)
    checks.argument("rounds_to", "of", of, checks.choice("final", "max"))
    goal = share * v[-1]
    if of == "max":
        goal = share * v.max()
    return int((v >= goal).argmax()) + 1


def auc(curve: Array, rounds: int = 50) -> float:
    """GCFL's AUC50: the mean score of the first 50 rounds, 1/50 Σ_t Acc_t.

    The curve is (T,) with T >= rounds.
    """
    checks.argument("auc", "rounds", rounds, checks.integer())
    v = _curve(curve)
    if not 1 <= rounds <= len(v):
        raise ValueError(
            f"rounds={rounds}, but the curve has {len(v)}: run longer or pass "
            f"rounds={len(v)}"
        )
    return float(v[:rounds].mean())


def _codes(labels: Array, name: str) -> np.ndarray:
    """Cluster names of any kind as codes 0..C-1."""
    v = _array(labels)
    if v.ndim != 1 or not v.size or (v.dtype.kind == "f" and np.isnan(v).any()):
        raise ValueError(
            f"{name} has shape {v.shape}: give one cluster name per client, none of "
            "them nan"
        )
    return np.unique(v, return_inverse=True)[1]


def _compare(score: str, truth: Array, found: Array) -> float:
    """One of scikit-learn's scores of two clusterings of the same clients."""
    import sklearn.metrics

    t = _codes(truth, "truth")
    f = _codes(found, "found")
    if len(t) != len(f):
        raise ValueError(
            f"truth has {len(t)} clients, found has {len(f)}: give one label per "
            "client in both"
        )
    return float(getattr(sklearn.metrics, score)(t, f))


def rand_index(truth: Array, found: Array) -> float:
    """Share of pairs of clients on which both clusterings agree (FedGWC, Eq. 45).

    They agree on a pair that is together in both, or apart in both.
    """
    return _compare("rand_score", truth, found)


def adjusted_rand(truth: Array, found: Array) -> float:
    """Rand index corrected for chance: 1 is perfect, 0 is chance, below 0 is worse.

    OCFL's RAND is this.
    """
    return _compare("adjusted_rand_score", truth, found)


def ami(truth: Array, found: Array) -> float:
    """Mutual information of the two clusterings, adjusted for chance: 1 is perfect."""
    return _compare("adjusted_mutual_info_score", truth, found)


def homogeneity(truth: Array, found: Array) -> float:
    """1 if no found cluster mixes clients of different true clusters.

    Singletons score 1. OCFL's printed COM column is this.
    """
    return _compare("homogeneity_score", truth, found)


def completeness(truth: Array, found: Array) -> float:
    """1 if clients of the same true cluster are always found together.

    One big cluster scores 1.
    """
    return _compare("completeness_score", truth, found)


def cluster_scores(truth: Array, found: Array) -> dict[str, float]:
    """Compare two clusterings (K,), (K,): ari, ami, homogeneity and completeness."""
    return {
        "ari": adjusted_rand(truth, found),
        "ami": ami(truth, found),
        "homogeneity": homogeneity(truth, found),
        "completeness": completeness(truth, found),
    }


def wasserstein(x: Array, y: Array, p: float = 2) -> float:
    """W_p between two clients' class frequencies (C,), (C,) (FedGWC, Eq. 38).

    (1/C Σ |x_(i) - y_(i)|^p)^(1/p) of the sorted vectors. Sorting is the best matching
    of classes (Theorem B.3), so *which* classes a client holds does not matter. Vectors
    are not rescaled: pass shares to compare clients of different size.
    """
    a = np.sort(_amounts(x, "x"))
    b = np.sort(_amounts(y, "y"))
    if a.ndim != 1 or not a.size or a.shape != b.shape or not p >= 1:
        raise ValueError(
            f"x {a.shape}, y {b.shape}, p={p}: give two vectors of one length, and "
            "p >= 1"
        )
    gap = np.abs(a - b)
    largest = gap.max()
    if largest == 0 or p == np.inf:
        return float(largest)
    # divided by the largest, so that a large p does not underflow
    return float(largest * np.mean((gap / largest) ** p) ** (1 / p))


def _ranked(frequencies: Array, labels: Array) -> tuple[np.ndarray, np.ndarray, bool]:
    """Sorted class shares (K, C), cluster codes (K,), whether scores are defined."""
    x = _amounts(frequencies, "frequencies")
    codes = _codes(labels, "labels")
    if x.ndim != 2 or len(x) != len(codes):
        raise ValueError(
            f"frequencies {x.shape}, {len(codes)} labels: give (K, C) and K, a row per "
            "client"
        )
    empty = np.flatnonzero(x.sum(1) == 0)
    if len(empty):
        raise ValueError(
            f"client {empty[0]} has only zero frequencies: leave out clients without "
            "samples"
        )
    x = np.sort(x, axis=1)[:, ::-1]  # Eq. 7: x_(1) >= x_(2) >= ...
    x = x / x.sum(1, keepdims=True)
    x = x.round(12)  # shares that differ by rounding errors only are equal
    clusters = codes.max() + 1
    defined = 1 < clusters < len(x) and bool(np.ptp(x, axis=0).any())
    return x, codes, defined


def wasserstein_silhouette(frequencies: Array, labels: Array) -> float:
    """FedGWC's WAS: the silhouette of clients at their Wasserstein distances.

    It lies in [-1, 1]; higher is better. `frequencies` (K, C) are class counts or
    shares of the clients' train data, `labels` (K,) their clusters. Each row is scaled
    to sum 1 and sorted. Whether distances have the factor 1/C of Eq. 7 or the C^(-1/2)
    of Eq. 38 does not matter: a silhouette is a ratio of distances. The score depends
    on how uneven a client's classes are, not on which they are.

    It is nan where no silhouette exists: with one cluster there is no nearest other
    one, with a cluster per client there are no distances inside, and with all sorted
    rows equal every distance is 0.
    """
    from scipy.spatial.distance import pdist, squareform
    from sklearn.metrics import silhouette_score

    x, codes, defined = _ranked(frequencies, labels)
    if not defined:
        return np.nan
    # by differences: scikit-learn's matrix product leaves 1e-8 between equal rows
    distances = squareform(pdist(x))
    return float(silhouette_score(distances, codes, metric="precomputed"))


def wasserstein_davies_bouldin(frequencies: Array, labels: Array) -> float:
    """FedGWC's WADB: Davies-Bouldin (Eq. 42-44) of the clients' sorted class shares.

    It is >= 0; lower is better. Arguments, scale and nan are as in
    `wasserstein_silhouette`. The mean of sorted rows is the Wasserstein barycentre of a
    cluster, so Euclidean centroids are the right ones. Where two centroids coincide,
    Eq. 43 divides by 0; such pairs are skipped, as in scikit-learn. This makes the
    score too good, so read WADB beside WAS.
    """
    from scipy.spatial.distance import cdist

    x, codes, defined = _ranked(frequencies, labels)
    if not defined:
        return np.nan
    clusters = [x[codes == c] for c in range(codes.max() + 1)]
    centres = np.array([rows.mean(0) for rows in clusters])
    centres = centres.round(12)  # centres that differ by rounding errors only are equal
    radii = [
        np.linalg.norm(rows - centre, axis=1).mean()
        for rows, centre in zip(clusters, centres, strict=True)
    ]
    spread = np.array(radii)
    between = cdist(centres, centres)
    overlap = np.asarray(_ratio(spread[:, None] + spread, between, empty=0.0))
    return float(overlap.max(1).mean())
