"""The papers' equations as plain loops: slow, short, and meant to be read.

Each function is the twin of a fast kernel elsewhere in the library; the tests hold the
two together, and the book prints the loop beside the equation. Arguments are numpy
arrays or nested lists: rows (K, D), one weight and one label for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations
from math import exp, inf, sqrt

import numpy as np


def mean_by(rows, weights, labels, old) -> np.ndarray:
    """Average each cluster's rows by weight (FedAvg inside a cluster; the M step of
    WeCFL's Algorithm 1).

    G_c = Σ_{i in c} λ_i g_i / Σ_{i in c} λ_i. A cluster without members, or without
    weight, keeps its row.
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
    """C_s(x_i, x_j) = ⟨x_i, x_j⟩ / (‖x_i‖ ‖x_j‖) (OCFL, Definition 4); 0 if either is
    zero, 1 with itself.
    """
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


def gaussian_rewards(losses) -> np.ndarray:
    """ω_k = 1/S Σ_s exp(-(l_k^s - m^s)² / 2 (σ^s)²) (FedGWC, Eq. 1); 1 where all losses
    of a step are equal.

    m^s and (σ^s)² = 1/(n-1) Σ_k (l_k^s - m^s)² are mean and variance over the n sampled
    clients at step s.
    """
    n, S = len(losses), len(losses[0])
    omega = np.zeros(n)
    for s in range(S):
        step = [losses[k][s] for k in range(n)]
        m = sum(step) / n
        variance = sum((loss - m) ** 2 for loss in step) / (n - 1) if n > 1 else 0.0
        for k in range(n):
            omega[k] += (
                exp(-((step[k] - m) ** 2) / (2 * variance)) / S
                if variance > 0
                else 1 / S
            )
    return omega


def perception_affinity(P, beta: float) -> np.ndarray:
    """W_kj = exp(-β ‖v_k^j - v_j^k‖²) (FedGWC, Eq. 4); v_k^j is row k of P without its
    entries k and j.
    """
    K = len(P)
    W = np.eye(K)
    for k, j in combinations(range(K), 2):
        v_k = [P[k][i] for i in range(K) if i not in (k, j)]
        v_j = [P[j][i] for i in range(K) if i not in (k, j)]
        W[k, j] = W[j, k] = exp(
            -beta * sum((a - b) ** 2 for a, b in zip(v_k, v_j, strict=True))
        )
    return W


def davies_bouldin(x, labels) -> float:
    """DB = 1/C Σ_i max_{j≠i} (S_i + S_j) / D_ij (FedGWC, Eq. 42): S spread about, D
    distance between, centroids.
    """
    x, C = np.asarray(x, dtype=float), max(labels) + 1
    groups = [x[[k for k, label in enumerate(labels) if label == c]] for c in range(C)]
    centre = [group.mean(0) for group in groups]
    S = [
        sum(sqrt(sum((row - m) ** 2)) for row in group) / len(group)
        for group, m in zip(groups, centre, strict=True)
    ]
    total = 0.0
    for i in range(C):
        total += max(
            (S[i] + S[j]) / sqrt(sum((centre[i] - centre[j]) ** 2))
            for j in range(C)
            if j != i
        )
    return total / C


def bipartition(S) -> tuple[list[int], float]:
    """Labels of the two parts with the least similarity across, argmin max α_ij (CFL),
    by trying all, and that max.
    """
    K = len(S)
    best: tuple[float, list[int]] = (inf, [])
    for bits in range(
        2 ** (K - 1) - 1
    ):  # client 0 is in part 0, and part 1 is not empty
        labels = [0] + [1 - (bits >> k & 1) for k in range(K - 1)]
        across = max(
            S[i][j] for i, j in combinations(range(K), 2) if labels[i] != labels[j]
        )
        best = min(best, (across, labels), key=lambda pair: pair[0])
    return best[1], best[0]


def wasserstein(x, y, p: float = 2) -> float:
    """W_p = min over permutations π of (1/C Σ_i |x_i - y_π(i)|^p)^(1/p) (FedGWC, Eq.
    37), for C <= 7.
    """
    C = len(x)
    if C > 7:
        raise ValueError(
            f"C={C} classes have C! permutations: give at most 7, or use "
            "metrics.wasserstein"
        )
    best = inf
    for pi in permutations(range(C)):
        best = min(best, sum(abs(x[i] - y[pi[i]]) ** p for i in range(C)) / C)
    return best ** (1 / p)


def rand_index(truth, found) -> float:
    """RI = (a + b) / (N choose 2): pairs together in both, plus pairs apart in both
    (FedGWC, Eq. 45).
    """
    agree, pairs = 0, 0
    for i, j in combinations(range(len(truth)), 2):
        agree += (truth[i] == truth[j]) == (found[i] == found[j])
        pairs += 1
    return agree / pairs if pairs else 1.0


def balanced_accuracy(true, pred) -> float:
    """Mean over the classes that occur of the share of their samples predicted right
    (FedGWC, appendix F).
    """
    recalls = []
    for c in sorted(set(true)):
        guesses = [p for t, p in zip(true, pred, strict=True) if t == c]
        recalls.append(guesses.count(c) / len(guesses))
    return sum(recalls) / len(recalls)


def macro_f1(true, pred, over: str = "true") -> float:
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN) (OCFL, 4.4); `over` as in
    metrics.macro_f1.
    """
    scores = []
    for c in sorted(set(true) if over == "true" else set(true) | set(pred)):
        pairs = [(t == c, p == c) for t, p in zip(true, pred, strict=True)]
        tp, fp, fn = (
            pairs.count((True, True)),
            pairs.count((False, True)),
            pairs.count((True, False)),
        )
        scores.append(2 * tp / (2 * tp + fp + fn))
    return sum(scores) / len(scores)


def kmeans_objective(rows, weights, labels, centres) -> float:
    """F = 1/Σ_j λ_j Σ_c Σ_i r_ic λ_i ‖g_i - G_c‖², with r_ic = 1 if i is in cluster c
    (WeCFL, Eq. 3b).
    """
    d = sqdist(rows, centres)  # (K, C)
    total = 0.0
    for i, c in enumerate(labels):
        total += weights[i] * d[i, c]
    return total / sum(weights)


def clusterability(gradients, weights, labels) -> list[float]:
    """B_k = max over i in k of ‖ḡ_k - ∇l_i‖ / ‖ḡ_k‖, with ḡ_k = Σ_p λ_p ∇l_p / Σ_z λ_z
    over k (WeCFL, Eq. 5).
    """
    out = []
    for c in range(max(labels) + 1):
        members = [i for i, label in enumerate(labels) if label == c]
        total = sum(weights[i] for i in members)
        mean = (
            sum(weights[i] * np.asarray(gradients[i], dtype=float) for i in members)
            / total
        )
        stray = max(np.linalg.norm(mean - gradients[i]) for i in members)
        length = np.linalg.norm(mean)
        out.append(float(stray / length) if length > 0 else (inf if stray > 0 else 0.0))
    return out


def weighted_kmeans(
    rows, weights, centres, rounds: int = 100
) -> tuple[list[int], np.ndarray]:
    """Descend WeCFL's Eq. 3b from given centres: nearest centre, weighted mean, until
    no client moves.
    """
    labels: list[int] = []
    for _ in range(rounds):
        d = sqdist(rows, centres)  # (K, C)
        nearest = [
            int(d[i].argmin()) for i in range(len(rows))
        ]  # E step: λ_i does not change the argmin
        if nearest == labels:
            break
        labels = nearest
        centres = mean_by(rows, weights, labels, old=centres)  # M step
    return labels, np.asarray(centres, dtype=float)


def location(logits, y) -> tuple[np.ndarray, np.ndarray]:
    """Where models stand on a probe set (GCFL, Eqs. 6 to 8) and how sure they are of it
    (Eq. 11): z (n, M), ρ (n,).

    q_a(x, y) is the probability that model a gives to the true class y, r_ak its mean
    over the samples of class k, and z_a = r_a / ‖r_a‖. ``logits`` is (n models, m
    samples, M classes), ``y`` (m,).
    """
    n, m, M = np.shape(logits)
    z, rho = np.zeros((n, M)), np.zeros(n)
    for a in range(n):
        q = [
            exp(logits[a][i][y[i]]) / sum(exp(g) for g in logits[a][i])
            for i in range(m)
        ]
        for k in range(M):
            own = [q[i] for i in range(m) if y[i] == k]
            z[a, k] = sum(own) / len(own)
        z[a] /= sqrt(sum(r * r for r in z[a]))
        rho[a] = sum(q) / m
    return z, rho


def attraction(
    z,
    m,
    zeta: float,
    shielded: bool = True,
    normalised: bool = True,
    scale: float = 1.0,
) -> np.ndarray:
    """Ã_ab = A_ab / √(S_a S_b) with A_ab = m_a m_b / (d_ab + ζ) exp(-(d_ab / λ)²)
    (GCFL, Eqs. 13 to 16).
    """
    K = len(z)
    pairs = list(combinations(range(K), 2))
    d = {
        (a, b): sqrt(sum((p - q) ** 2 for p, q in zip(z[a], z[b], strict=True)))
        for a, b in pairs
    }
    lam = scale * float(np.median(list(d.values()))) if pairs else 0.0
    A = np.zeros((K, K))
    for a, b in pairs:
        A[a, b] = m[a] * m[b] / (d[a, b] + zeta)
        if shielded and d[a, b] > 0:
            A[a, b] *= exp(-((d[a, b] / lam) ** 2)) if lam > 0 else 0.0
        A[b, a] = A[a, b]
    if normalised:
        S = [sum(A[a]) for a in range(K)]
        for a, b in pairs:
            A[a, b] = A[b, a] = A[a, b] / sqrt(S[a] * S[b]) if S[a] * S[b] > 0 else 0.0
    return A


def otsu_components(A, bins: int | None = 256, join: bool = False) -> list[int]:
    """Cut the attractions where w₀ w₁ (μ₀ - μ₁)² is largest, link the strong pairs,
    unite (GCFL, Algorithm 1).
    """
    K = len(A)
    pairs = list(combinations(range(K), 2))
    values = [A[a][b] for a, b in pairs]
    labels = list(range(K))
    low, high = (min(values), max(values)) if pairs else (0.0, 0.0)
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        return [0] * K
    x = {pair: (v - low) / (high - low) for pair, v in zip(pairs, values, strict=True)}
    edges = (
        sorted(set(x.values())) if bins is None else [i / bins for i in range(bins + 1)]
    )
    bin_of = {
        pair: max(i for i, edge in enumerate(edges) if edge <= v)
        for pair, v in x.items()
    }
    if bins is not None:
        bin_of = {pair: min(i, bins - 1) for pair, i in bin_of.items()}
    best, cut = -1.0, 0
    for i in range(1, len(edges)):  # bins below i are weak
        weak = [edges[j] for j in bin_of.values() if j < i]
        strong = [edges[j] for j in bin_of.values() if j >= i]
        if weak and strong:
            between = (
                len(weak)
                * len(strong)
                * (sum(weak) / len(weak) - sum(strong) / len(strong)) ** 2
            )
            if between > best * (1 + 1e-12):
                best, cut = between, i
    links = [pair for pair in pairs if bin_of[pair] >= cut]
    if join:
        for a in set(range(K)) - {a for pair in links for a in pair}:
            links.append(
                (a, max((b for b in range(K) if b != a), key=lambda b: A[a][b]))
            )
    for a, b in links:  # union(a, b)
        labels = [labels[a] if label == labels[b] else label for label in labels]
    order = list(dict.fromkeys(labels))
    return [order.index(label) for label in labels]


def madd(x) -> np.ndarray:
    """D_ij = 1/(n-2) Σ_{z≠i,j} |cos(x_i, x_z) - cos(x_j, x_z)| (FedCCFA): how
    differently others see i and j.
    """
    C, n = cosine(x), len(x)
    D = np.zeros((n, n))
    for i, j in combinations(range(n), 2):
        others = [abs(C[i, z] - C[j, z]) for z in range(n) if z not in (i, j)]
        D[i, j] = D[j, i] = sum(others) / len(others) if others else 0.0
    return D


def homophily(theta, gamma: float) -> np.ndarray:
    """W_kj = exp(-γ ‖θ_k - θ_j‖²) / Σ_m exp(-γ ‖θ_k - θ_m‖²), how much k listens to j
    (FedCVR-Bolt, Eq. 4).
    """
    K = rbf(theta, gamma)
    return np.array([[w / sum(row) for w in row] for row in K])


def laplacian(x, gamma: float) -> np.ndarray:
    """W_kj = exp(-γ Σ_d |x_kd - x_jd|) (FedCVR-Bolt, B.1)."""
    return np.array(
        [
            [
                exp(-gamma * sum(abs(p - q) for p, q in zip(a, b, strict=True)))
                for b in x
            ]
            for a in x
        ]
    )


def sigmoid(x, gamma: float, c: float = 0.0) -> np.ndarray:
    """W_kj = tanh(γ ⟨x_k, x_j⟩ + c) (FedCVR-Bolt, B.1)."""
    return np.array(
        [
            [
                np.tanh(gamma * sum(p * q for p, q in zip(a, b, strict=True)) + c)
                for b in x
            ]
            for a in x
        ]
    )


def next_controls(own, common, x, y, steps, lr: float) -> np.ndarray:
    """c_i⁺ = c_i - c + (x - y_i) / (K_i η) (SCAFFOLD, Algorithm 1, option II)."""
    new = np.zeros((len(y), len(x)))
    for i in range(len(y)):
        for d in range(len(x)):
            mean_gradient = (x[d] - y[i][d]) / (steps[i] * lr)
            new[i, d] = own[i][d] - common[d] + mean_gradient
    return new


def covariance_step(C, theta, expected, rate: float) -> np.ndarray:
    """C^d ← (1 - γ) C^d + γ r^d (r^d)ᵀ with r^d = θ^d - θ̄^d (FedCVR-Bolt, Eq. 11): all
    of (D, K, K).
    """
    C = np.array(C, dtype=float)
    for d in range(len(C)):
        r = [theta[k][d] - expected[k][d] for k in range(len(theta))]
        C[d] = (1 - rate) * C[d] + rate * np.outer(r, r)
    return C


def variance_reduction(C, alpha) -> np.ndarray:
    """v_k = Σ_d (C^d α)_k² / C^d_kk (FedCVR-Bolt, Eq. 5 and 6), from (D, K, K) and
    (K,); 0 / 0 counts as 0.
    """
    K = len(alpha)
    v = np.zeros(K)
    for C_d in C:
        for k in range(K):
            c_alpha = sum(C_d[k][j] * alpha[j] for j in range(K))
            v[k] += c_alpha**2 / C_d[k][k] if C_d[k][k] > 0 else 0.0
    return v


def boltzmann(v, coalitions, beta: float) -> np.ndarray:
    """π_p(k) = exp(β v_k) / Σ_{j in C_p} exp(β v_j), for each client in its coalition
    (FedCVR-Bolt, Eq. 8).
    """
    total = {
        p: sum(exp(beta * v[j]) for j in range(len(v)) if coalitions[j] == p)
        for p in set(coalitions)
    }
    return np.array([exp(beta * v[k]) / total[coalitions[k]] for k in range(len(v))])


def projection(C, alpha, A) -> np.ndarray:
    """α̂ with E[αᵀθ | θ_A] = Σ_{k in A} α̂_k θ_k for θ of mean zero: C_AA⁻¹ (Cα)_A
    (FedCVR-Bolt, Lemma 1).
    """
    C, A = np.asarray(C, dtype=float), list(A)
    return np.linalg.solve(C[A][:, A], (C @ alpha)[A])


def subset_reduction(C, alpha, A) -> float:
    """v_A = (Cα)_Aᵀ C_AA⁻¹ (Cα)_A, by how much seeing A lowers the variance of αᵀθ
    (FedCVR-Bolt, Prop. 1).
    """
    return float((np.asarray(C) @ alpha)[list(A)] @ projection(C, alpha, A))


def best_subset(C, alpha, size: int) -> tuple[tuple[int, ...], float]:
    """The clients A, |A| = size, with the largest v_A, by trying all, and that v_A."""
    subsets = combinations(range(len(alpha)), size)
    return max(
        ((A, subset_reduction(C, alpha, A)) for A in subsets), key=lambda pair: pair[1]
    )


def greedy_subset(C, alpha, size: int) -> tuple[tuple[int, ...], float]:
    """Add the client that raises v_A most, again and again (Das and Kempe 2008)."""
    A: list[int] = []
    for _ in range(size):
        rest = [k for k in range(len(alpha)) if k not in A]
        A.append(max(rest, key=lambda k: subset_reduction(C, alpha, [*A, k])))
    return tuple(A), subset_reduction(C, alpha, A)


def one_per_coalition(C, alpha, coalitions) -> tuple[tuple[int, ...], float]:
    """The client with the largest v_k in each coalition (FedCVR-Bolt, Eq. 7), and the
    v_A of them all.
    """
    v = [subset_reduction(C, alpha, [k]) for k in range(len(alpha))]
    A = [
        max((k for k in range(len(v)) if coalitions[k] == p), key=lambda k: v[k])
        for p in sorted(set(coalitions))
    ]
    return tuple(A), subset_reduction(C, alpha, A)


def temperature(Gamma, p: float = 2) -> float:
    """T(Γ) = ‖Γ‖_p / λ, ‖Γ‖_p = (Σ_i Σ_j |γ_ij|^p)^(1/p), λ = (n (n - 1) 2^p)^(1/p)
    (OCFL, Definition 7).
    """
    n, total = len(Gamma), 0.0
    for i in range(n):
        for j in range(n):
            total += abs(Gamma[i][j]) ** p
    return total ** (1 / p) / (n * (n - 1) * 2**p) ** (1 / p) if n > 1 else 0.0


def first_rise(temperatures, window: int = 1) -> int | None:
    """Round, from 1, in which OCFL splits: the moving average is above that of the
    round before (section 6.3).
    """
    for t in range(window, len(temperatures)):
        now = sum(temperatures[t - window + 1 : t + 1]) / window
        before = sum(temperatures[t - window : t]) / window
        if now > before:
            return t + 1
    return None


def agglomerative(D, threshold: float, linkage: str = "average") -> list[int]:
    """Merge the two nearest clusters while they are nearer than the threshold (FL+HC);
    labels by first appearance.
    """
    clusters = [[i] for i in range(len(D))]
    links: dict[str, Callable[[list[float]], float]] = {
        "average": lambda distances: sum(distances) / len(distances),
        "complete": max,
        "single": min,
    }
    link = links[linkage]
    while len(clusters) > 1:
        gaps = {}
        for a, b in combinations(range(len(clusters)), 2):
            gaps[a, b] = link([D[i][j] for i in clusters[a] for j in clusters[b]])
        a, b = min(gaps, key=lambda pair: gaps[pair])
        if gaps[a, b] >= threshold:
            break
        clusters[a] += clusters.pop(b)
    clusters = sorted(sorted(cluster) for cluster in clusters)
    return [
        next(c for c, cluster in enumerate(clusters) if i in cluster)
        for i in range(len(D))
    ]


def pixel_curve(predict, start, end, saliency, step: int) -> list[float]:
    """Turn ``start`` into ``end`` (channels, height, width), most salient pixels first,
    ``step`` at a time.

    ``predict(image)`` is the probability of the target class, here before each change
    and after the last. From the image to nothing it is the deletion curve, from nothing
    to the image the insertion curve (Petsiuk et al. 2018).
    """
    image, saliency = np.array(start), np.asarray(saliency)
    H, W = saliency.shape
    pixels = sorted((-saliency[h, w], h, w) for h in range(H) for w in range(W))
    curve = [predict(image)]
    for first in range(0, len(pixels), step):
        for _, h, w in pixels[first : first + step]:
            image[:, h, w] = np.asarray(end)[:, h, w]
        curve.append(predict(image))
    return curve


def trapezoid(curve) -> float:
    """Area under a curve over [0, 1] whose points are evenly spaced (RISE's AUC)."""
    return sum((a + b) / 2 for a, b in zip(curve, curve[1:], strict=False)) / (
        len(curve) - 1
    )


def holm(p) -> list[float]:
    """Holm's adjusted p-values: the i-th least of m times m - i + 1, never less than
    the one before, at most 1.
    """
    order, adjusted, least = (
        sorted(range(len(p)), key=lambda i: p[i]),
        [0.0] * len(p),
        0.0,
    )
    for place, i in enumerate(order):
        least = max(least, (len(p) - place) * p[i])
        adjusted[i] = min(1.0, least)
    return adjusted
