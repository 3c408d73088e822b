"""FedGWC's sections 5, A, B and D in numbers, and a server that is fed with drawn
losses instead of trained clients.

| paper | here |
|---|---|
| γ_k^t, α_t | weights(omega, alpha) |
| α / (2 − α) σ² / S | stationary_variance |
| C_t of Proposition A.4 | entry_bound |
| clients sampled in all clusters, Theorem A.5 | total_sample, most_sampled |
| couplings of class shares, Theorem B.3 | cost_of_mixtures |
| O(K n_max³ + K H n_max²), Appendix D | server_seconds, measured |
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...clustering import cut_maps, davies_bouldin_of_rows, eigenmaps
from ...methods.fedgwc import FedGWC, Seen, gaussian_rewards
from ...metrics import adjusted_rand
from ...similarity import perception_affinity
from ...sweeps import commit


def weights(omega: np.ndarray, alpha: float | str) -> np.ndarray:
    """Gaussian weights of Eq. 2 from γ^0 = 0: rewards (..., T) -> (..., T).

    γ^{t+1} = (1 - α_t) γ^t + α_t ω^t. α is a constant (Theorem 5.2), or "mean",
    α_t = 1/t, which is square summable but not summable (Theorem 5.1).
    """
    gamma = np.zeros(omega.shape[:-1])
    out = np.empty_like(omega, dtype=float)
    for t in range(omega.shape[-1]):
        a = 1 / (t + 1) if alpha == "mean" else float(alpha)
        gamma = (1 - a) * gamma + a * omega[..., t]
        out[..., t] = gamma
    return out


def stationary_variance(alpha: float, variance: float, S: int) -> float:
    """Where Var(γ) goes for a constant α: α / (2 - α) · σ² / S (Eq. 18).

    ``S`` rewards of a round are independent.
    """
    return alpha / (2 - alpha) * variance / S


def entry_bound(
    t: int | np.ndarray, alpha: float, start: float = 0.0
) -> float | np.ndarray:
    """C_t ≥ P_kj^t of Proposition A.4 (Eq. 24): (1 - α)^t P^0 + 1 - (1 - α)^t.

    These are the t terms that t updates give. The paper counts one term more, which
    only loosens the bound.
    """
    return (1 - alpha) ** t * start + 1 - (1 - alpha) ** t


def total_sample(sizes: Sequence[int], rho: float, least: int = 3) -> float:
    """Clients sampled in a round by all clusters: Σ_n max(ρ |C_n|, 3) (Eq. 28).

    No cluster samples more clients than it has.
    """
    return float(sum(min(max(rho * n, least), n) for n in sizes))


def most_sampled(clients: int, rho: float, smallest: int) -> tuple[int, float]:
    """Check Theorem A.5 on all ways to cut clients into clusters of some least size.

    Returns the number of ways, and the most clients that any of them samples in a
    round.
    """
    ways = list(_partitions(clients, smallest, clients))
    return len(ways), max(total_sample(sizes, rho) for sizes in ways)


def _partitions(total: int, smallest: int, largest: int) -> Iterator[list[int]]:
    """All ways to write a number as a falling sum of parts within two bounds."""
    if total == 0:
        yield []
    for first in range(min(total, largest), smallest - 1, -1):
        for rest in _partitions(total - first, smallest, first):
            yield [first, *rest]


def cost_of_mixtures(
    x: np.ndarray, y: np.ndarray, mixtures: int, seed: int = 0
) -> np.ndarray:
    """Costs of random couplings between two lists of C class shares: (mixtures,).

    Eq. 34 lists the C! matchings as the only couplings. Mixtures of matchings are
    couplings, too: all doubly stochastic matrices are, and by Birkhoff's theorem each
    is a mixture of matchings. A cost is linear in the coupling, so a mixture costs no
    less than its cheapest matching.
    """
    rng = np.random.default_rng(seed)
    C = len(x)
    cost = np.square(x[:, None] - y)  # (C, C)
    out = []
    for _ in range(mixtures):
        matchings = [np.eye(C)[rng.permutation(C)] for _ in range(3)]
        coupling = np.tensordot(rng.dirichlet(np.ones(3)), matchings, 1) / C
        out.append(np.sqrt((coupling * cost).sum()))
    return np.array(out)


def hidden_by_sums() -> float:
    """How far a reward may differ between federations with equal sums (Appendix C).

    Two times three clients whose losses have the same sum and the same sum of squares,
    so the same m and σ. The server would need Σ ω at most if sums sufficed; Eq. 3 needs
    each client's own ω.
    """
    one = torch.tensor([[1.0], [-1.0], [0.0]])
    other = torch.tensor([[1.0], [1.0], [-2.0]]) / 3**0.5
    assert torch.allclose(one.sum(0), other.sum(0), atol=1e-6)
    assert torch.allclose(one.square().sum(0), other.square().sum(0))
    apart = gaussian_rewards(one) - gaussian_rewards(other)
    return float(apart.abs().max())


class Play(NamedTuple):
    """What a server saw and did."""

    P: Tensor  # (K, K) at the first attempt, or at the end
    visits: Tensor  # (K, K) likewise
    mse: list[float]  # of every round
    first: int  # the round of the first attempt; 0: there was none
    labels: Tensor  # (K,) what it found; zeros if nothing
    looks: list[int]  # rounds of all attempts


def play(
    rule: FedGWC,
    losses: Sequence[float] | np.ndarray,
    sampled: int,
    rounds: int,
    *,
    noise: float = 0.3,
    steps: int = 7,
    stop: bool = True,
    force: bool = False,
    again: bool = False,
    seed: int = 0,
) -> Play:
    """Feed a rule with drawn losses l_k + N(0, noise²): a server without training.

    Clients k = 0 ... K - 1 have mean losses ``losses`` (K,), the same in all rounds.
    With ``stop`` it ends with the first attempt. With ``force`` there is one attempt,
    after the last round, whatever the MSE says. With ``again`` the rule goes on after
    a vain attempt, as FedGWC does, until it splits; then ``first`` is the round of the
    split, and 0 if there was none.
    """
    rng = np.random.default_rng(seed)
    mean = np.asarray(losses, dtype=np.float32)
    K = len(mean)
    everyone = torch.arange(K)
    nothing = torch.zeros(K, dtype=torch.int64)
    P = torch.full((K, K), rule.initial / K**2)
    calm = torch.zeros((), dtype=torch.int64)
    seen = Seen(P, torch.zeros_like(P), torch.ones(()), calm)
    curve: list[float] = []
    looks: list[int] = []
    made = None
    for t in range(1, rounds + 1):
        if rule.priority:
            often = seen.visits.diagonal().numpy()
            S = np.sort(np.argsort(often + rng.random(K))[:sampled])
        else:
            S = np.sort(rng.choice(K, sampled, replace=False))
        noises = rng.normal(0, noise, (sampled, steps)).astype(np.float32)
        drawn = torch.as_tensor(mean[S, None] + noises)
        seen = rule.observe(seen, torch.as_tensor(S), drawn, torch.ones(sampled), K)
        P, visits, mse, calm = seen
        curve.append(float(mse))
        due = t == rounds if force else rule.due(calm, sampled, K)
        if made is None and due:
            looks.append(t)
            found = rule.split(rule.block(P, visits, everyone), sampled, seed)
            if again and not found.any():
                if rule.retry == "reset":
                    mse = torch.ones_like(mse)
                    seen = Seen(P, visits, mse, torch.zeros_like(calm))
                continue
            made = Play(P, visits, curve, t, found, looks)
            if stop:
                break
    return made or Play(P, visits, curve, 0, nothing, looks)


# --- how often equal clients are split ---

NULL_SIZES = (6, 8, 10, 12, 16, 20, 24, 30)
# Seeds from here on had no part in settling the corrected rule.
FRESH_SEED = 1000


def versions(eps: float = 2e-3) -> dict[str, FedGWC]:
    """The rule as printed, as released, as corrected before revision 2, and now.

    The version before revision 2 is shown with visits that are kept.
    """
    before = FedGWC(eps=eps, chance=1.0, retry="reset", assign="kmeans")
    return {
        "as printed": FedGWC.as_printed(eps=eps),
        "as released": FedGWC.as_released(eps=eps),
        "corrected before": before,
        "corrected": FedGWC(eps=eps),
    }


def null_plays(
    sizes: Sequence[int] = NULL_SIZES,
    *,
    share: float = 0.2,
    runs: int = 20,
    first_seed: int = 0,
    rounds: int = 60,
    whole: bool = False,
    eps: float = 2e-3,
) -> list[dict[str, Any]]:
    """Play each version of the rule on clients whose losses follow one law.

    One line for each number of clients K and each version: in how many of ``runs``
    plays it splits (``splits``), and in how many a part has fewer than three clients
    (``tiny``). Seeds are ``first_seed`` and those that follow. A share of the clients,
    at least three, is sampled in a round. Each version looks once, after the last
    round, or with ``whole`` whenever it would by itself, until it splits.
    """
    way = {"again": whole, "force": not whole}
    lines = []
    for K in sizes:
        sampled = max(3, ceil(share * K))
        for name, rule in versions(eps).items():
            splits = 0
            tiny = 0
            for seed in range(first_seed, first_seed + runs):
                past = play(rule, np.zeros(K), sampled, rounds, seed=seed, **way)
                if past.labels.any():
                    splits += 1
                    tiny += int(torch.bincount(past.labels).min() < 3)
            counts = {"runs": runs, "splits": splits, "tiny": tiny}
            lines.append({"clients": K, "sampled": sampled, "version": name, **counts})
    return lines


def write_null_splits(path: str | Path) -> None:
    """Write the record of null splits: ``python -m fednb.papers.fedgwc``.

    Three ways: one look after 60 rounds; whole runs of 120 rounds in which each
    version looks when it would by itself; and the same with all clients in each round.
    Then ``fires``: when the printed rule looks first within the paper's 20,000 rounds.
    """
    ways: dict[str, dict[str, Any]] = {
        "one look": {"rounds": 60, "runs": 20, "whole": False},
        "whole run": {"rounds": 120, "runs": 10, "whole": True},
        "all sampled": {"rounds": 120, "runs": 10, "whole": True, "share": 1.0},
    }
    code = commit()  # now: files may change while it plays
    lines = []
    for name, how in ways.items():
        for line in null_plays(first_seed=FRESH_SEED, **how):
            lines.append({"way": name, "rounds": how["rounds"], **line})
    record: dict[str, Any] = {
        "what": "plays of equal clients (losses N(0, 0.3²), 7 steps) that were split",
        "command": "python -m fednb.papers.fedgwc",
        "commit": code,
        "revision": FedGWC.revision,
        "eps": 2e-3,
        "first_seed": FRESH_SEED,
        "fires": first_looks(),
    }
    plays = ",\n  ".join(json.dumps(line) for line in lines)
    head = json.dumps(record, indent=1, ensure_ascii=False).removesuffix("\n}")
    text = f'{head},\n "plays": [\n  {plays}\n ]\n}}\n'
    Path(path).write_text(text, encoding="utf-8")


# --- what the test against chance and the score's bound do to drawn losses ---

TOLD_APART = {  # clients with drawn losses -> the mean loss of each of the thirty
    "equal clients": np.zeros(30),
    "8 of 30, gap 0.3": np.repeat([0.0, 0.3], [22, 8]),
    "15 of 30, gap 1": np.repeat([0.0, 1.0], [15, 15]),
    "three levels, gap 0.5": np.repeat([0.0, 0.5, 1.0], [12, 9, 9]),
}
MEETINGS = (3, 6, 12)


def rounds_for(meetings: float, clients: int, sampled: int) -> int:
    """Rounds after which a pair has met so often on average."""
    chance = sampled * (sampled - 1) / (clients * (clients - 1))
    return round(meetings / chance)


def chance_plays(
    meetings: Sequence[int] = MEETINGS,
    runs: int = 12,
    sampled: int = 6,
    cases: dict[str, np.ndarray] = TOLD_APART,
) -> list[dict[str, Any]]:
    """What the corrected rule finds with the test against chance, and without it.

    One look after so many meetings of a pair. One line for each case and number of
    meetings: in how many plays the score alone splits (``bound``), in how many the cut
    also beats chance (``tested``), and the mean adjusted Rand index of both.
    """
    untested = FedGWC(sampled=sampled, chance=1.0)
    tested = FedGWC(sampled=sampled)
    lines = []
    for name, level in cases.items():
        K = len(level)
        for often in meetings:
            rounds = rounds_for(often, K, sampled)
            found: dict[str, list[Tensor]] = {"bound": [], "tested": []}
            for seed in range(FRESH_SEED, FRESH_SEED + runs):
                past = play(untested, level, sampled, rounds, force=True, seed=seed)
                block = untested.block(past.P, past.visits, torch.arange(K))
                found["bound"].append(past.labels)
                found["tested"].append(tested.split(block, sampled, seed))
            line: dict[str, Any] = {"case": name, "meetings": often}
            line |= {"rounds": rounds, "runs": runs}
            for way, labels in found.items():
                right = [adjusted_rand(level, own.numpy()) for own in labels]
                line[way] = sum(bool(own.any()) for own in labels)
                line[f"{way}_ari"] = round(float(np.mean(right)), 3)
            lines.append(line)
    return lines


def bound_plays(
    sizes: Sequence[int] = NULL_SIZES, runs: int = 20, share: float = 0.2
) -> list[dict[str, Any]]:
    """How often the printed rule splits equal clients, by least size, rate and rounds.

    A share of the clients, at least three, is sampled in a round. Appendix F sets the
    rate to the share that is sampled, 0.1 there; Algorithm 2 has no least size, and
    three is the fewest clients that a cluster samples (Theorem A.5). One look, after 60
    rounds, as in `null_plays`, or after 300.
    """
    lines = []
    for rounds, rate, k_min in itertools.product((60, 300), (0.1, "share"), (1, 3)):
        rule = FedGWC.as_printed(k_min=k_min, alpha=rate)
        for K in sizes:
            sampled = max(3, ceil(share * K))
            splits = 0
            for seed in range(FRESH_SEED, FRESH_SEED + runs):
                past = play(rule, np.zeros(K), sampled, rounds, force=True, seed=seed)
                splits += int(past.labels.any())
            line = {"rounds": rounds, "rate": rate, "k_min": k_min, "clients": K}
            lines.append(line | {"sampled": sampled, "runs": runs, "splits": splits})
    return lines


def write_chance_test(path: str | Path) -> None:
    """Write the record of the test: ``python -m fednb.papers.fedgwc chance_test``."""
    record: dict[str, Any] = {
        "what": "one look at drawn losses: the test against chance, and the bound",
        "command": "python -m fednb.papers.fedgwc chance_test",
        "commit": commit(),
        "revision": FedGWC.revision,
        "first_seed": FRESH_SEED,
    }
    plays = {"chance": chance_plays(), "bound": bound_plays()}
    blocks = []
    for name, lines in plays.items():
        rows = ",\n  ".join(json.dumps(line) for line in lines)
        blocks.append(f' "{name}": [\n  {rows}\n ]')
    head = json.dumps(record, indent=1, ensure_ascii=False).removesuffix("\n}")
    text = ",\n".join([head, *blocks]) + "\n}\n"
    Path(path).write_text(text, encoding="utf-8")


READINGS = {"whole matrix": True, "updated entries": False}  # of the printed MSE


def first_looks(
    rounds: int = 20_000, runs: int = 10, clients: int = 100, sampled: int = 10
) -> list[dict[str, Any]]:
    """When the printed rule first looks at equal clients at its ε, 1e-5.

    One line for each reading of its MSE; a first look in round 0 means that there is
    none. The rounds, clients and samples of the paper's CIFAR-100.
    """
    lines = []
    for reading, whole in READINGS.items():
        rule = FedGWC.as_printed(whole_matrix=whole)
        first = []
        for seed in range(FRESH_SEED, FRESH_SEED + runs):
            past = play(rule, np.zeros(clients), sampled, rounds, seed=seed)
            first.append(past.first)
        lines.append({"reading": reading, "rounds": rounds, "first": first})
    return lines


def mse_floor(
    sampled: int, alpha: float = 0.1, steps: int = 7, rounds: int = 2000, seed: int = 0
) -> float:
    """Where the printed MSE over updated entries goes for equal clients.

    It is 2 α² / (2 - α) · Var(ω), with the variance of drawn rewards: an entry moves by
    α (ω - γ), with independent ω and γ of variances v and α / (2 - α) · v.
    """
    losses = torch.as_tensor(
        np.random.default_rng(seed).normal(size=(rounds, sampled, steps))
    )
    v = torch.stack([gaussian_rewards(round_) for round_ in losses]).var().item()
    return 2 * alpha**2 / (2 - alpha) * v


def server_seconds(
    K: int, n_max: int = 5, sampled: int = 10, repeat: int = 1, seed: int = 0
) -> dict[str, float]:
    """Time the server's work for K clients, the least of some repetitions.

    An update of P; then for an attempt the affinity, its eigenvectors, and k-means with
    the scores.
    """
    rng = np.random.default_rng(seed)
    rule = FedGWC(sampled=sampled)
    times = []
    P = torch.as_tensor(rng.random((K, K)), dtype=torch.float32)
    calm = torch.zeros((), dtype=torch.int64)
    seen = Seen(P, torch.ones(K, K), torch.ones(()), calm)
    S = torch.arange(sampled)
    losses = torch.rand(sampled, 7)
    for _ in range(repeat):
        clock = [perf_counter()]
        rule.observe(seen, S, losses, torch.ones(sampled), K)
        clock.append(perf_counter())
        W = perception_affinity(P / K**0.5, 0.5)
        clock.append(perf_counter())
        rows = W.double().numpy()
        maps = eigenmaps(rows, n_max + 1)
        clock.append(perf_counter())
        for n in range(2, n_max + 1):
            davies_bouldin_of_rows(rows, cut_maps(maps[:, :n], n, seed, "kmeans"))
        clock.append(perf_counter())
        times.append(np.diff(clock))
    names = ("update of P", "affinity", "eigenvectors", "k-means, scores")
    return dict(zip(names, np.min(times, axis=0).tolist(), strict=True))


def pictured(P: Tensor, beta: float) -> tuple[Tensor, np.ndarray]:
    """The affinity W (K, K) of P rescaled to [0, 1], and the clients in the plane.

    The plane (K, 2) is that of W's first eigenvectors.
    """
    from sklearn.manifold import SpectralEmbedding

    W = perception_affinity((P - P.min()) / (P.max() - P.min()), beta)
    plane = SpectralEmbedding(2, affinity="precomputed", random_state=0)
    return W, plane.fit_transform(W.numpy())
