"""The papers' equations as plain loops: slow, short, and meant to be read.

Each function is the twin of a fast kernel elsewhere in the library; the tests hold the two together, and the
book prints the loop beside the equation. Arguments are numpy arrays or nested lists: rows (K, D), one weight
and one label for each row.
"""

from __future__ import annotations

from itertools import combinations, permutations
from math import exp, inf, sqrt

import numpy as np


def mean_by(rows, weights, labels, old) -> np.ndarray:
    """Average each cluster's rows by weight (FedAvg inside a cluster; the M step of WeCFL's Algorithm 1).

    G_c = Σ_{i in c} λ_i g_i / Σ_{i in c} λ_i. A cluster without members, or without weight, keeps its row.
    """
    new = np.array(old, dtype=float)  # (C, D)
    for c in range(len(new)):
        total, sum_of_rows = 0.0, np.zeros(new.shape[1])
        for row, weight, label in zip(rows, weights, labels, strict=True):
            if label == c:
                total += weight
                sum_of_rows += weight * np.asarray(row)
        if total > 0:
            new[c] = sum_of_rows / total
    return new


def cosine(x) -> np.ndarray:
    """C_s(x_i, x_j) = ⟨x_i, x_j⟩ / (‖x_i‖ ‖x_j‖) (OCFL, Definition 4); 0 if either is zero, 1 with itself."""
    K = len(x)
    C = np.eye(K)
    for i, j in combinations(range(K), 2):
        dot = sum(a * b for a, b in zip(x[i], x[j], strict=True))
        lengths = sqrt(sum(a * a for a in x[i])) * sqrt(sum(b * b for b in x[j]))
        C[i, j] = C[j, i] = dot / lengths if lengths > 0 else 0.0
    return C


def sqdist(x, y=None) -> np.ndarray:
    """d(x_i, y_j) = Σ_d (x_id - y_jd)², the distance of WeCFL's Eq. 3b."""
    y = x if y is None else y
    d = np.zeros((len(x), len(y)))
    for i in range(len(x)):
        for j in range(len(y)):
            d[i, j] = sum((a - b) ** 2 for a, b in zip(x[i], y[j], strict=True))
    return d


def rbf(x, gamma: float) -> np.ndarray:
    """K(x_i, x_j) = exp(-γ ‖x_i - x_j‖²) (FedGWC, the kernel of Eq. 4)."""
    return np.array([[exp(-gamma * d) for d in row] for row in sqdist(x)])


def wasserstein(x, y, p: float = 2) -> float:
    """W_p = min over permutations π of (1/C Σ_i |x_i - y_π(i)|^p)^(1/p) (FedGWC, Eq. 37), for C <= 7."""
    C = len(x)
    if C > 7:
        raise ValueError(f"C={C} classes have C! permutations: give at most 7, or use metrics.wasserstein")
    best = inf
    for pi in permutations(range(C)):
        best = min(best, sum(abs(x[i] - y[pi[i]]) ** p for i in range(C)) / C)
    return best ** (1 / p)


def rand_index(truth, found) -> float:
    """RI = (a + b) / (N choose 2): pairs together in both, plus pairs apart in both (FedGWC, Eq. 45)."""
    agree, pairs = 0, 0
    for i, j in combinations(range(len(truth)), 2):
        agree += (truth[i] == truth[j]) == (found[i] == found[j])
        pairs += 1
    return agree / pairs if pairs else 1.0


def balanced_accuracy(true, pred) -> float:
    """Mean over the classes that occur of the share of their samples predicted right (FedGWC, appendix F)."""
    recalls = []
    for c in sorted(set(true)):
        guesses = [p for t, p in zip(true, pred, strict=True) if t == c]
        recalls.append(guesses.count(c) / len(guesses))
    return sum(recalls) / len(recalls)


def macro_f1(true, pred, over: str = "true") -> float:
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN) (OCFL, 4.4); `over` as in metrics.macro_f1."""
    scores = []
    for c in sorted(set(true) if over == "true" else set(true) | set(pred)):
        pairs = [(t == c, p == c) for t, p in zip(true, pred, strict=True)]
        tp, fp, fn = pairs.count((True, True)), pairs.count((False, True)), pairs.count((True, False))
        scores.append(2 * tp / (2 * tp + fp + fn))
    return sum(scores) / len(scores)


def kmeans_objective(rows, weights, labels, centres) -> float:
    """F = 1/Σ_j λ_j Σ_c Σ_i r_ic λ_i ‖g_i - G_c‖², with r_ic = 1 if i is in cluster c (WeCFL, Eq. 3b)."""
    d = sqdist(rows, centres)  # (K, C)
    total = 0.0
    for i, c in enumerate(labels):
        total += weights[i] * d[i, c]
    return total / sum(weights)


def weighted_kmeans(rows, weights, centres, rounds: int = 100) -> tuple[list[int], np.ndarray]:
    """Descend WeCFL's Eq. 3b from given centres: nearest centre, weighted mean, until no client moves."""
    labels = None
    for _ in range(rounds):
        d = sqdist(rows, centres)  # (K, C)
        nearest = [int(d[i].argmin()) for i in range(len(rows))]  # E step: λ_i does not change the argmin
        if nearest == labels:
            break
        labels = nearest
        centres = mean_by(rows, weights, labels, old=centres)  # M step
    return labels, np.asarray(centres, dtype=float)
