"""FedGWC's sections 5, A and D in numbers, and a server that is fed with drawn losses
instead of trained clients.

| paper | here |
|---|---|
| γ_k^t, α_t | weights(omega, alpha) |
| α / (2 − α) σ² / S | stationary_variance |
| C_t of Proposition A.4 | entry_bound |
| clients sampled in all clusters, Theorem A.5 | total_sample |
| O(K n_max³ + K H n_max²), Appendix D | server_seconds, measured |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...clustering import cut_maps, davies_bouldin_of_rows, eigenmaps
from ...experiment import commit
from ...methods.fedgwc import FedGWC, Seen, gaussian_rewards
from ...similarity import perception_affinity


def weights(omega: np.ndarray, alpha: float | str) -> np.ndarray:
    """Gaussian weights γ^{t+1} = (1 - α_t) γ^t + α_t ω^t from γ^0 = 0 (Eq. 2): rewards
    (..., T) -> (..., T).

    α is a constant (Theorem 5.2), or "mean", α_t = 1/t: square summable, not summable
    (Theorem 5.1).
    """
    gamma, out = np.zeros(omega.shape[:-1]), np.empty_like(omega, dtype=float)
    for t in range(omega.shape[-1]):
        a = 1 / (t + 1) if alpha == "mean" else alpha
        gamma = (1 - a) * gamma + a * omega[..., t]
        out[..., t] = gamma
    return out


def stationary_variance(alpha: float, variance: float, S: int) -> float:
    """Where Var(γ) goes for a constant α and S independent rewards a round, α / (2 - α)
    · σ² / S (Eq. 18).
    """
    return alpha / (2 - alpha) * variance / S


def entry_bound(
    t: int | np.ndarray, alpha: float, start: float = 0.0
) -> float | np.ndarray:
    """C_t ≥ P_kj^t of Proposition A.4 (Eq. 24), with the t terms that t updates give:
    (1 - α)^t P^0 + 1 - (1 - α)^t.

    The paper counts one term more, which only loosens the bound.
    """
    return (1 - alpha) ** t * start + 1 - (1 - alpha) ** t


def total_sample(sizes: Sequence[int], rho: float, least: int = 3) -> float:
    """Clients sampled in a round, all clusters together: Σ_n max(ρ |C_n|, 3) (Eq. 28),
    no more than a cluster has.
    """
    return float(sum(min(max(rho * n, least), n) for n in sizes))


class Play(NamedTuple):
    """What a server saw and did."""

    P: Tensor  # (K, K) at the first attempt, or at the end
    visits: Tensor  # (K, K) likewise
    mse: list[float]  # of every round
    first: int  # the round of the first attempt; 0: there was none
    labels: Tensor  # (K,) what it found; zeros if nothing


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
    """Feed a rule with drawn losses l_k + N(0, noise²): the server without the
    training.

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
    made = None
    for t in range(1, rounds + 1):
        if rule.priority:
            often = seen.visits.diagonal().numpy()
            S = np.sort(np.argsort(often + rng.random(K))[:sampled])
        else:
            S = np.sort(rng.choice(K, sampled, replace=False))
        drawn = rng.normal(0, noise, (sampled, steps)).astype(np.float32)
        drawn = torch.as_tensor(mean[S, None] + drawn)
        seen = rule.observe(seen, torch.as_tensor(S), drawn, torch.ones(sampled), K)
        P, visits, mse, calm = seen
        curve.append(float(mse))
        due = t == rounds if force else rule.due(calm, sampled, K)
        if made is None and due:
            found = rule.split(rule.block(P, visits, everyone), sampled, seed)
            if again and not found.any():
                if rule.retry == "reset":
                    mse = torch.ones_like(mse)
                    seen = Seen(P, visits, mse, torch.zeros_like(calm))
                continue
            made = Play(P, visits, curve, t, found)
            if stop:
                break
    return made or Play(P, visits, curve, 0, nothing)


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
    way = {"again": True} if whole else {"force": True}
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


def null_splits(sizes: Sequence[int] = NULL_SIZES, **how: Any):
    """How often each version of the rule splits equal clients: a DataFrame.

    One line for each number of clients, one column for each version: in how many plays
    it splits. For ``how`` see `null_plays`.
    """
    import pandas as pd

    plays = pd.DataFrame(null_plays(sizes, **how))
    return plays.pivot(index="clients", columns="version", values="splits")[
        list(versions())
    ].rename_axis(columns=None)


def write_null_splits(path: str | Path) -> None:
    """Write the record of null splits: ``python -m fednb.papers.fedgwc``.

    Two ways: one look after 60 rounds, and whole runs of 120 rounds in which each
    version looks when it would by itself.
    """
    ways = {
        "one look": {"rounds": 60, "runs": 20, "whole": False},
        "whole run": {"rounds": 120, "runs": 10, "whole": True},
    }
    code = commit()  # now: files may change while it plays
    lines = []
    for name, how in ways.items():
        plays = null_plays(first_seed=FRESH_SEED, **how)
        lines += [{"way": name, "rounds": how["rounds"], **line} for line in plays]
    record = {
        "what": "plays of equal clients (losses N(0, 0.3²), 7 steps) that were split",
        "command": "python -m fednb.papers.fedgwc",
        "commit": code,
        "revision": FedGWC.revision,
        "eps": 2e-3,
        "first_seed": FRESH_SEED,
    }
    lines = ",\n  ".join(json.dumps(line) for line in lines)
    head = json.dumps(record, indent=1, ensure_ascii=False).removesuffix("\n}")
    text = f'{head},\n "plays": [\n  {lines}\n ]\n}}\n'
    Path(path).write_text(text, encoding="utf-8")


def mse_floor(
    sampled: int, alpha: float = 0.1, steps: int = 7, rounds: int = 2000, seed: int = 0
) -> float:
    """Where the printed MSE over updated entries goes for equal clients, 2 α² / (2 - α)
    · Var(ω), by drawn rewards.

    An entry moves by α (ω - γ), with independent ω and γ of variances v and α / (2 - α)
    · v.
    """
    losses = torch.as_tensor(
        np.random.default_rng(seed).normal(size=(rounds, sampled, steps))
    )
    v = torch.stack([gaussian_rewards(round_) for round_ in losses]).var().item()
    return 2 * alpha**2 / (2 - alpha) * v


def server_seconds(
    K: int, n_max: int = 5, sampled: int = 10, repeat: int = 1, seed: int = 0
) -> dict[str, float]:
    """Time the server's work for K clients, the least of some repetitions: an update of
    P; then for an attempt the affinity, its eigenvectors, and k-means with the scores.
    """
    rng, rule, times = np.random.default_rng(seed), FedGWC(sampled=sampled), []
    P = torch.as_tensor(rng.random((K, K)), dtype=torch.float32)
    calm = torch.zeros((), dtype=torch.int64)
    seen = Seen(P, torch.ones(K, K), torch.ones(()), calm)
    S, losses = torch.arange(sampled), torch.rand(sampled, 7)
    for _ in range(repeat):
        clock = [perf_counter()]
        rule.observe(seen, S, losses, torch.ones(sampled), K)
        clock.append(perf_counter())
        W = perception_affinity(P / K**0.5, 0.5)
        clock.append(perf_counter())
        W = W.double().numpy()
        maps = eigenmaps(W, n_max + 1)
        clock.append(perf_counter())
        for n in range(2, n_max + 1):
            davies_bouldin_of_rows(W, cut_maps(maps[:, :n], n, seed, "kmeans"))
        clock.append(perf_counter())
        times.append(np.diff(clock))
    names = ("update of P", "affinity", "eigenvectors", "k-means, scores")
    return dict(zip(names, np.min(times, axis=0).tolist(), strict=True))


def pictured(P: Tensor, beta: float) -> tuple[Tensor, np.ndarray]:
    """The affinity W (K, K) of a matrix rescaled to [0, 1], and the clients in the
    plane of its eigenvectors (K, 2).
    """
    from sklearn.manifold import SpectralEmbedding

    W = perception_affinity((P - P.min()) / (P.max() - P.min()), beta)
    return W, SpectralEmbedding(
        2, affinity="precomputed", random_state=0
    ).fit_transform(W.numpy())
