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
    """Average each cluster's rows by weight: FedAvg inside a cluster.

    It is the M step of WeCFL's Algorithm 1:
    G_c = Σ_{i in c} λ_i g_i / Σ_{i in c} λ_i. A cluster without members, or without
    weight, keeps its row.
    """
    new = np.array(old, dtype=float)  # (C, D)
    for c in range(len(new)):
        total = 0.0
        sum_of_rows = np.zeros(new.shape[1])
        for row, weight, label in zip(rows, weights, labels, strict=True):
            if label == c:
                total += weight
                sum_of_rows += weight * np.asarray(row)
        if total > 0:
            new[c] = sum_of_rows / total
    return new


def cosine(x) -> np.ndarray:
    """C_s(x_i, x_j) = ⟨x_i, x_j⟩ / (‖x_i‖ ‖x_j‖) (OCFL, Definition 4).

    It is 0 if either row is zero, and 1 of a row with itself.
    """
    K = len(x)
    C = np.eye(K)
    for i, j in combinations(range(K), 2):
        dot = sum(a * b for a, b in zip(x[i], x[j], strict=True))
        lengths = sqrt(sum(a * a for a in x[i])) * sqrt(sum(b * b for b in x[j]))
        if lengths > 0:
            C[i, j] = dot / lengths
            C[j, i] = dot / lengths
    return C


def sqdist(x, y=None) -> np.ndarray:
    """d(x_i, y_j) = Σ_d (x_id - y_jd)², the distance of WeCFL's Eq. 3b."""
    if y is None:
        y = x
    d = np.zeros((len(x), len(y)))
    for i in range(len(x)):
        for j in range(len(y)):
            d[i, j] = sum((a - b) ** 2 for a, b in zip(x[i], y[j], strict=True))
    return d


def rbf(x, gamma: float) -> np.ndarray:
    """K(x_i, x_j) = exp(-γ ‖x_i - x_j‖²) (FedGWC, the kernel of Eq. 4)."""
    return np.array([[exp(-gamma * d) for d in row] for row in sqdist(x)])


def gaussian_rewards(losses) -> np.ndarray:
    """ω_k = 1/S Σ_s exp(-(l_k^s - m^s)² / 2 (σ^s)²) (FedGWC, Eq. 1).

    m^s and (σ^s)² = 1/(n-1) Σ_k (l_k^s - m^s)² are mean and variance over the n sampled
    clients at step s. A step in which all losses are equal counts as 1.
    """
    n = len(losses)
    S = len(losses[0])
    omega = np.zeros(n)
    for s in range(S):
        step = [losses[k][s] for k in range(n)]
        m = sum(step) / n
        squares = sum((loss - m) ** 2 for loss in step)
        for k in range(n):
            if squares > 0:
                variance = squares / (n - 1)
                omega[k] += exp(-((step[k] - m) ** 2) / (2 * variance)) / S
            else:
                omega[k] += 1 / S
    return omega


def perception_affinity(P, beta: float) -> np.ndarray:
    """W_kj = exp(-β ‖v_k^j - v_j^k‖²) (FedGWC, Eq. 4).

    v_k^j is row k of P without its entries k and j.
    """
    K = len(P)
    W = np.eye(K)
    for k, j in combinations(range(K), 2):
        v_k = [P[k][i] for i in range(K) if i not in (k, j)]
        v_j = [P[j][i] for i in range(K) if i not in (k, j)]
        distance = sum((a - b) ** 2 for a, b in zip(v_k, v_j, strict=True))
        W[k, j] = exp(-beta * distance)
        W[j, k] = W[k, j]
    return W


def davies_bouldin(x, labels) -> float:
    """DB = 1/C Σ_i max_{j≠i} (S_i + S_j) / D_ij (FedGWC, Eq. 42).

    S_i is the mean distance of cluster i's rows from their centroid, and D_ij the
    distance between two centroids.
    """
    x = np.asarray(x, dtype=float)
    C = max(labels) + 1
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
    """Split in two parts with the least similarity across, argmin max α_ij (CFL).

    All splits are tried. Returns the labels and that max.
    """
    K = len(S)
    best: list[int] = []
    least = inf
    # client 0 is in part 0, and part 1 is not empty
    for bits in range(2 ** (K - 1) - 1):
        labels = [0] + [1 - (bits >> k & 1) for k in range(K - 1)]
        across = max(
            S[i][j] for i, j in combinations(range(K), 2) if labels[i] != labels[j]
        )
        if across < least:
            best = labels
            least = across
    return best, least


def wasserstein(x, y, p: float = 2) -> float:
    """W_p = min over permutations π of (1/C Σ_i |x_i - y_π(i)|^p)^(1/p), for C <= 7.

    This is FedGWC's Eq. 37.
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
    """RI = (a + b) / (N choose 2) (FedGWC, Eq. 45).

    a counts the pairs that are together in both, b those that are apart in both.
    """
    agree = 0
    pairs = 0
    for i, j in combinations(range(len(truth)), 2):
        agree += (truth[i] == truth[j]) == (found[i] == found[j])
        pairs += 1
    if pairs == 0:
        return 1.0
    return agree / pairs


def balanced_accuracy(true, pred) -> float:
    """Mean recall over the classes that occur (FedGWC, appendix F).

    A class's recall is the share of its samples that are predicted right.
    """
    recalls = []
    for c in sorted(set(true)):
        guesses = [p for t, p in zip(true, pred, strict=True) if t == c]
        recalls.append(guesses.count(c) / len(guesses))
    return sum(recalls) / len(recalls)


def macro_f1(true, pred, over: str = "true") -> float:
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN) (OCFL, 4.4).

    The classes are those that occur, or with ``over="union"`` also those predicted.
    """
    classes = set(true)
    if over == "union":
        classes = set(true) | set(pred)
    scores = []
    for c in sorted(classes):
        pairs = [(t == c, p == c) for t, p in zip(true, pred, strict=True)]
        tp = pairs.count((True, True))
        fp = pairs.count((False, True))
        fn = pairs.count((True, False))
        scores.append(2 * tp / (2 * tp + fp + fn))
    return sum(scores) / len(scores)


def kmeans_objective(rows, weights, labels, centres) -> float:
    """F = 1/Σ_j λ_j Σ_c Σ_i r_ic λ_i ‖g_i - G_c‖² (WeCFL, Eq. 3b).

    r_ic is 1 if i is in cluster c, else 0.
    """
    d = sqdist(rows, centres)  # (K, C)
    total = 0.0
    for i, c in enumerate(labels):
        total += weights[i] * d[i, c]
    return total / sum(weights)


def clusterability(gradients, weights, labels) -> list[float]:
    """B_k = max over i in k of ‖ḡ_k - ∇l_i‖ / ‖ḡ_k‖ (WeCFL, Eq. 5).

    ḡ_k = Σ_p λ_p ∇l_p / Σ_z λ_z is the weighted mean gradient of cluster k.
    """
    out = []
    for c in range(max(labels) + 1):
        members = [i for i, label in enumerate(labels) if label == c]
        total = sum(weights[i] for i in members)
        rows = [np.asarray(gradients[i], dtype=float) for i in members]
        mean = sum(weights[i] * g for i, g in zip(members, rows, strict=True)) / total
        stray = max(np.linalg.norm(mean - g) for g in rows)
        length = np.linalg.norm(mean)
        if length > 0:
            out.append(float(stray / length))
        elif stray > 0:
            out.append(inf)
        else:
            out.append(0.0)
    return out


def weighted_kmeans(
    rows, weights, centres, rounds: int = 100
) -> tuple[list[int], np.ndarray]:
    """Descend WeCFL's Eq. 3b from given centres.

    Each row goes to its nearest centre, and each centre becomes the weighted mean of
    its rows, until no row moves.
    """
    labels: list[int] = []
    for _ in range(rounds):
        d = sqdist(rows, centres)  # (K, C)
        # E step: λ_i does not change the argmin
        nearest = [int(d[i].argmin()) for i in range(len(rows))]
        if nearest == labels:
            break
        labels = nearest
        centres = mean_by(rows, weights, labels, old=centres)  # M step
    return labels, np.asarray(centres, dtype=float)


def location(logits, y) -> tuple[np.ndarray, np.ndarray]:
    """Locations z (n, M) of models on a probe set, and their confidence ρ (n,).

    GCFL's Eqs. 6 to 8, and 11. q_a(x, y) is the probability that model a gives to the
    true class y, r_ak its mean over the samples of class k, and z_a = r_a / ‖r_a‖.
    ``logits`` is (n models, m samples, M classes), ``y`` (m,).
    """
    n, m, M = np.shape(logits)
    z = np.zeros((n, M))
    rho = np.zeros(n)
    for a in range(n):
        q = [
            exp(logits[a][i][y[i]]) / sum(exp(g) for g in logits[a][i])
            for i in range(m)
        ]
        for k in range(M):
            of_class = [q[i] for i in range(m) if y[i] == k]
            z[a, k] = sum(of_class) / len(of_class)
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
    """Ã_ab = A_ab / √(S_a S_b) with A_ab = m_a m_b / (d_ab + ζ) exp(-(d_ab / λ)²).

    GCFL's Eqs. 13 to 16. λ is ``scale`` times the median distance of two clients.
    """
    K = len(z)
    pairs = list(combinations(range(K), 2))
    A = np.zeros((K, K))
    if not pairs:
        return A
    d = {}
    for a, b in pairs:
        d[a, b] = sqrt(sum((p - q) ** 2 for p, q in zip(z[a], z[b], strict=True)))
    lam = scale * float(np.median(list(d.values())))
    for a, b in pairs:
        A[a, b] = m[a] * m[b] / (d[a, b] + zeta)
        if shielded and d[a, b] > 0 and lam > 0:
            A[a, b] *= exp(-((d[a, b] / lam) ** 2))
        elif shielded and d[a, b] > 0:  # half of the pairs are in one place
            A[a, b] = 0.0
        A[b, a] = A[a, b]
    if normalised:
        S = [sum(A[a]) for a in range(K)]
        for a, b in pairs:
            if S[a] * S[b] > 0:
                A[a, b] /= sqrt(S[a] * S[b])
            else:
                A[a, b] = 0.0
            A[b, a] = A[a, b]
    return A


def otsu_components(A, bins: int | None = 256, join: bool = False) -> list[int]:
    """Link the pairs with a strong attraction, and unite what is linked.

    GCFL, Algorithm 1. Weak and strong attractions are parted where w₀ w₁ (μ₀ - μ₁)² is
    largest (Otsu).
    """
    K = len(A)
    pairs = list(combinations(range(K), 2))
    values = [A[a][b] for a, b in pairs]
    if not pairs:
        return [0] * K
    low = min(values)
    high = max(values)
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        return [0] * K
    x = {pair: (v - low) / (high - low) for pair, v in zip(pairs, values, strict=True)}
    if bins is None:
        edges = sorted(set(x.values()))
    else:
        edges = [i / bins for i in range(bins + 1)]
    bin_of = {}
    for pair, v in x.items():
        bin_of[pair] = max(i for i, edge in enumerate(edges) if edge <= v)
        if bins is not None:
            bin_of[pair] = min(bin_of[pair], bins - 1)
    cut = 0
    largest = -1.0
    for i in range(1, len(edges)):  # bins below i are weak
        weak = [edges[j] for j in bin_of.values() if j < i]
        strong = [edges[j] for j in bin_of.values() if j >= i]
        if weak and strong:
            gap = sum(weak) / len(weak) - sum(strong) / len(strong)
            between = len(weak) * len(strong) * gap**2
            if between > largest * (1 + 1e-12):
                largest = between
                cut = i
    links = [pair for pair in pairs if bin_of[pair] >= cut]
    if join:
        linked = {a for pair in links for a in pair}
        for a in set(range(K)) - linked:
            others = [b for b in range(K) if b != a]
            strongest = max(others, key=lambda b: A[a][b])
            links.append((a, strongest))
    labels = list(range(K))
    for a, b in links:  # union(a, b)
        merged = labels[b]
        for i in range(K):
            if labels[i] == merged:
                labels[i] = labels[a]
    order = list(dict.fromkeys(labels))
    return [order.index(label) for label in labels]


def madd(x) -> np.ndarray:
    """D_ij = 1/(n-2) Σ_{z≠i,j} |cos(x_i, x_z) - cos(x_j, x_z)| (FedCCFA).

    It says how differently i and j stand to all others; 0 if there are no others.
    """
    C = cosine(x)
    n = len(x)
    D = np.zeros((n, n))
    for i, j in combinations(range(n), 2):
        others = [abs(C[i, z] - C[j, z]) for z in range(n) if z not in (i, j)]
        if others:
            D[i, j] = sum(others) / len(others)
            D[j, i] = D[i, j]
    return D


def homophily(theta, gamma: float) -> np.ndarray:
    """W_kj = exp(-γ ‖θ_k - θ_j‖²) / Σ_m exp(-γ ‖θ_k - θ_m‖²) (FedCVR-Bolt, Eq. 4).

    It says how much k listens to j.
    """
    K = rbf(theta, gamma)
    return np.array([[w / sum(row) for w in row] for row in K])


def laplacian(x, gamma: float) -> np.ndarray:
    """W_kj = exp(-γ Σ_d |x_kd - x_jd|) (FedCVR-Bolt, B.1)."""
    W = np.zeros((len(x), len(x)))
    for k, a in enumerate(x):
        for j, b in enumerate(x):
            distance = sum(abs(p - q) for p, q in zip(a, b, strict=True))
            W[k, j] = exp(-gamma * distance)
    return W


def sigmoid(x, gamma: float, c: float = 0.0) -> np.ndarray:
    """W_kj = tanh(γ ⟨x_k, x_j⟩ + c) (FedCVR-Bolt, B.1)."""
    W = np.zeros((len(x), len(x)))
    for k, a in enumerate(x):
        for j, b in enumerate(x):
            dot = sum(p * q for p, q in zip(a, b, strict=True))
            W[k, j] = np.tanh(gamma * dot + c)
    return W


def next_controls(c_i, c, x, y, steps, lr: float) -> np.ndarray:
    """c_i⁺ = c_i - c + (x - y_i) / (K_i η) (SCAFFOLD, Algorithm 1, option II)."""
    new = np.zeros((len(y), len(x)))
    for i in range(len(y)):
        for d in range(len(x)):
            mean_gradient = (x[d] - y[i][d]) / (steps[i] * lr)
            new[i, d] = c_i[i][d] - c[d] + mean_gradient
    return new


def covariance_step(C, theta, expected, rate: float) -> np.ndarray:
    """C^d ← (1 - γ) C^d + γ r^d (r^d)ᵀ with r^d = θ^d - θ̄^d (FedCVR-Bolt, Eq. 11).

    C is (D, K, K): all of these matrices.
    """
    C = np.array(C, dtype=float)
    for d in range(len(C)):
        r = [theta[k][d] - expected[k][d] for k in range(len(theta))]
        C[d] = (1 - rate) * C[d] + rate * np.outer(r, r)
    return C


def variance_reduction(C, alpha) -> np.ndarray:
    """v_k = Σ_d (C^d α)_k² / C^d_kk (FedCVR-Bolt, Eq. 5 and 6).

    C is (D, K, K) and α is (K,); 0 / 0 counts as 0.
    """
    K = len(alpha)
    v = np.zeros(K)
    for C_d in C:
        for k in range(K):
            c_alpha = sum(C_d[k][j] * alpha[j] for j in range(K))
            if C_d[k][k] > 0:
                v[k] += c_alpha**2 / C_d[k][k]
    return v


def boltzmann(v, coalitions, beta: float) -> np.ndarray:
    """π_p(k) = exp(β v_k) / Σ_{j in C_p} exp(β v_j) (FedCVR-Bolt, Eq. 8).

    For each client k in its coalition p.
    """
    total = {
        p: sum(exp(beta * v[j]) for j in range(len(v)) if coalitions[j] == p)
        for p in set(coalitions)
    }
    return np.array([exp(beta * v[k]) / total[coalitions[k]] for k in range(len(v))])


def projection(C, alpha, A) -> np.ndarray:
    """α̂ = C_AA⁻¹ (Cα)_A (FedCVR-Bolt, Lemma 1).

    It is the α̂ with E[αᵀθ | θ_A] = Σ_{k in A} α̂_k θ_k, for θ of mean zero.
    """
    C = np.asarray(C, dtype=float)
    A = list(A)
    return np.linalg.solve(C[A][:, A], (C @ alpha)[A])


def subset_reduction(C, alpha, A) -> float:
    """v_A = (Cα)_Aᵀ C_AA⁻¹ (Cα)_A (FedCVR-Bolt, Prop. 1).

    It says by how much seeing A lowers the variance of αᵀθ.
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
    """The client with the largest v_k in each coalition, and the v_A of them all.

    This is FedCVR-Bolt's Eq. 7.
    """
    v = [subset_reduction(C, alpha, [k]) for k in range(len(alpha))]
    A = [
        max((k for k in range(len(v)) if coalitions[k] == p), key=lambda k: v[k])
        for p in sorted(set(coalitions))
    ]
    return tuple(A), subset_reduction(C, alpha, A)


def temperature(Gamma, p: float = 2) -> float:
    """T(Γ) = ‖Γ‖_p / λ (OCFL, Definition 7).

    ‖Γ‖_p = (Σ_i Σ_j |γ_ij|^p)^(1/p) and λ = (n (n - 1) 2^p)^(1/p).
    """
    n = len(Gamma)
    if n == 1:
        return 0.0
    total = 0.0
    for i in range(n):
        for j in range(n):
            total += abs(Gamma[i][j]) ** p
    return total ** (1 / p) / (n * (n - 1) * 2**p) ** (1 / p)


def first_rise(temperatures, window: int = 1) -> int | None:
    """Round, from 1, in which OCFL splits (section 6.3).

    It is the first whose moving average is above that of the round before.
    """
    for t in range(window, len(temperatures)):
        now = sum(temperatures[t - window + 1 : t + 1]) / window
        before = sum(temperatures[t - window : t]) / window
        if now > before:
            return t + 1
    return None


def agglomerative(D, threshold: float, linkage: str = "average") -> list[int]:
    """Merge the two nearest clusters while they are nearer than the threshold (FL+HC).

    Clusters are numbered by their first members.
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
    """Turn ``start`` into ``end`` (channels, height, width), ``step`` pixels at a time.

    The most salient pixels come first. Returns ``predict(image)``, the probability of
    the target class, before the first change and after each one. If ``end`` is an empty
    image, this is the deletion curve; if ``start`` is, the insertion curve (Petsiuk et
    al. 2018).
    """
    image = np.array(start)
    saliency = np.asarray(saliency)
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
    steps = len(curve) - 1
    return sum((curve[i] + curve[i + 1]) / 2 for i in range(steps)) / steps


def holm(p) -> list[float]:
    """Holm's adjusted p-values.

    The i-th least of m p-values times m - i + 1, but never less than the one before and
    at most 1.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted = [0.0] * len(p)
    least = 0.0
    for place, i in enumerate(order):
        least = max(least, (len(p) - place) * p[i])
        adjusted[i] = min(1.0, least)
    return adjusted
