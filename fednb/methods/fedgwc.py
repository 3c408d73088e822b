"""FedGWC: Licciardi, Leo, Fanì, Caputo, Ciccone, *Interaction-aware Gaussian weighting for clustered federated
learning*, ICML 2025 (Algorithms 1 and 2).

| paper | here |
|---|---|
| C^(n), P_(n), MSE_(n) | members, the block P[members, members], mse[n] |
| 𝒫_t^(n), l_k^{t,s}, ω_k^t, FLAggregator | S, losses (n, S), omega (n,), aggregator |
| α_t, ε, K_min, 𝒦, β | alpha, eps, k_min, perception_affinity, beta |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..clustering import best_spectral
from ..similarity import perception_affinity
from .fedavg import FedAvg
from .subfederation import Subfederation, follow, pack, unpack


class State(NamedTuple):
    """The aggregator's state in each cluster, one after the other, and what the clients' losses told."""

    theta: Tensor  # (R, D) with FedAvg inside one row for each cluster
    labels: Tensor  # (K,)
    clusters: Tensor  # (K,) 0 ... C - 1; the same as labels, unless the aggregator serves personal models
    rows: Tensor  # (C,) how many of the R rows each cluster has
    memory: tuple[Tensor, ...]  # what else the aggregator keeps, each (C, ...)
    P: Tensor  # (K, K) expected perception; blocks across clusters are out of use
    visits: Tensor  # (K, K) how often a pair was sampled together
    mse: Tensor  # (C,)
    calm: Tensor  # (C,) rounds in a row with mse < eps


@dataclass(frozen=True)
class FedGWC:
    """Reward clients whose losses are near their cluster's mean; split clusters whose members are perceived unlike.

    A plain call is the corrected version: P is a mean, so it converges (Theorem 5.1); pairs never seen count for
    nothing; a fraction of each cluster is sampled, so splits hardly cost client updates; tiny clusters are refused.
    """

    # 2: a vain attempt keeps the visits
    revision: ClassVar[int] = 2

    aggregator: Any = (
        FedAvg()
    )  # any method with one model, or one per client; its own ``sampled`` stays unused
    sampled: int | float = (
        0.1  # |𝒫_t| in each cluster: a number, or a fraction but at least ``least``
    )
    least: int = 3  # Eq. 26
    alpha: float | str = (
        "mean"  # a constant; "share" |𝒫_t| / |C|; "mean" 1, 1/2, 1/3 ... at a pair's visits
    )
    eps: float = 1e-5
    beta: float = 0.5
    n_max: int = 5
    k_min: int = 3  # no split leaves a smaller cluster
    normalise: bool = True  # rewards ω / Σ ω; False: Eq. 3
    weighted: bool = (
        False  # mean and σ² of Eq. 1 by samples; False: 1 / n and 1 / (n - 1)
    )
    initial: float = 0.0  # K² P^0
    whole_matrix: bool = False  # MSE over all pairs of the cluster; False: over those sampled in this round
    ema: bool = True  # MSE ← (1 - a) MSE + a new with a = |𝒫_t| / |C|; False: MSE ← new
    patience: int | None = None  # rounds in a row below ε; None: round(|C| / |𝒫_t|)
    reset: bool = True  # after a vain attempt wait again: MSE = 1
    # pairs never sampled together since the last split take their row's mean
    fill: bool = True
    columns: bool = False  # v_k is column k of P; False: row k
    rescale: bool = True  # P to [0, 1] before Eq. 4
    room: bool = False  # no more than |C| / |𝒫_t| clusters
    score_on: str = (
        "affinity"  # Davies-Bouldin of rows of W; or of the spectral "embedding"
    )
    assign: str = "kmeans"  # or "cluster_qr"

    def __post_init__(self) -> None:
        if self.alpha not in ("mean", "share") and not (
            isinstance(self.alpha, float) and 0 < self.alpha <= 1
        ):
            raise ValueError(
                f"FedGWC(alpha={self.alpha!r}): give mean, share, or a float in (0, 1]"
            )
        if getattr(self.aggregator, "sampled", 1.0) not in (1.0, self.sampled):
            raise ValueError(
                f"FedGWC samples for its aggregator: set FedGWC(sampled=...), not {self.aggregator!r}"
            )

    @classmethod
    def as_printed(cls, **changes: Any) -> FedGWC:
        """Algorithms 1 and 2 to the letter."""
        rule = dict(
            alpha=0.1,
            normalise=False,
            ema=False,
            patience=1,
            rescale=False,
            fill=False,
            k_min=1,
        )
        return cls(**rule | changes)

    @classmethod
    def as_released(cls, **changes: Any) -> FedGWC:
        """The authors' code, with its default β."""
        code = dict(
            sampled=10,
            alpha="share",
            beta=0.1,
            n_max=4,
            k_min=1,
            weighted=True,
            initial=1.0,
            columns=True,
        )
        return cls(
            **code
            | dict(fill=False, room=True, score_on="embedding", assign="cluster_qr")
            | changes
        )

    @classmethod
    def corrected(cls, **changes: Any) -> FedGWC:
        """The same as a plain call."""
        return cls(**changes)

    def init(self, fed) -> State:
        """Start with one cluster, P = 0 and MSE = 1 (Algorithm 1, lines 3 to 5)."""
        state, everyone = (
            self.aggregator.init(fed),
            torch.arange(fed.K, device=fed.n.device),
        )
        P = state.theta.new_full((fed.K, fed.K), self.initial / fed.K**2)
        return State(
            **pack([(everyone, state)]),
            P=P,
            visits=0 * P,
            mse=P.new_ones(1),
            calm=everyone[:1],
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        P, visits, parts = state.P, state.visits, []
        for n, (members, model) in enumerate(
            unpack(state, self.aggregator)
        ):  # l. 8: for n = 1 ... N_cl
            group = Subfederation(
                fed, members, self.sampled, self.least
            )  # l. 9: server samples 𝒫_t^(n)
            S, K = group.sampled, len(members)
            model = self.aggregator.step(
                model, group, t
            )  # l. 10 and 12: local updates, aggregation
            P, visits, mse, calm = self.observe(
                (P, visits, state.mse[n], state.calm[n]), S, group.losses, fed.n[S], K
            )
            y = torch.zeros_like(members)
            if self.due(calm, len(S), K):  # l. 15: if MSE < ε
                y = self.split(
                    self.block(P, visits, members), len(S), fed.draw()
                )  # l. 16: Algorithm 2
                if self.reset or y.any():  # l. 19
                    mse, calm = torch.ones_like(mse), torch.zeros_like(calm)
                if y.any():  # P of a vain attempt stays the mean of all its visits
                    visits = visits.index_put(
                        (members[:, None], members), visits.new_zeros(())
                    )
            parts += [
                (members[y == c], follow(model, y == c), mse, calm)
                for c in range(int(y.max()) + 1)
            ]  # l. 17, 18
        mse, calm = (torch.stack([part[i] for part in parts]) for i in (2, 3))
        return State(**pack(parts), P=P, visits=visits, mse=mse, calm=calm)  # l. 22

    def observe(
        self, seen: tuple[Tensor, ...], S: Tensor, losses: Tensor, n: Tensor, K: int
    ) -> tuple[Tensor, ...]:
        """Update (P, visits, mse, calm) by losses (|S|, steps) of clients S, of n samples each, in a cluster of K."""
        P, visits, mse, calm = seen
        omega = gaussian_rewards(losses, n if self.weighted else None)  # l. 11: Eq. 1
        omega = omega / omega.sum() if self.normalise else omega
        pairs, share = (S[:, None], S), len(S) / K
        visits = visits.index_put(pairs, visits[pairs] + 1)
        alpha = {"mean": 1 / visits[pairs], "share": share}.get(self.alpha, self.alpha)
        change = alpha * (
            omega[:, None] - P[pairs]
        )  # l. 13: Eq. 3, P_kj ← (1 - α) P_kj + α ω_k
        new = change.square().sum() / (K if self.whole_matrix else len(S)) ** 2  # l. 14
        mse = (1 - share) * mse + share * new if self.ema else new
        return (
            P.index_put(pairs, P[pairs] + change),
            visits,
            mse,
            torch.where(mse < self.eps, calm + 1, 0),
        )

    def due(self, calm: Tensor, sampled: int, K: int) -> bool:
        """Whether a cluster of K, calm for so many rounds, should be looked at."""
        return bool(calm >= (self.patience or max(1, round(K / sampled))))

    def block(self, P: Tensor, visits: Tensor, members: Tensor) -> Tensor:
        """What ``split`` gets of P (K, K) for some members; each has met itself, so no row is without a mean."""
        P, seen = P[members][:, members], visits[members][:, members] > 0
        mean = (P * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True).clamp_min(1)
        return P.where(seen, mean) if self.fill else P

    def split(self, P: Tensor, sampled: int, seed: int) -> Tensor:
        """Cluster by a block of P (K, K) as Algorithm 2 does; labels (K,) are all 0 if no split is good."""
        V = P.T if self.columns else P
        V = (
            (V - V.min()) / (V.max() - V.min())
            if self.rescale and V.max() > V.min()
            else V
        )
        W = perception_affinity(V, self.beta)  # Alg. 2, l. 3 and 4
        n = min(self.n_max, len(P) // sampled) if self.room else self.n_max
        return best_spectral(
            W, n, seed, self.assign, self.score_on, self.k_min
        ).labels  # Alg. 2, l. 5 to 13


def gaussian_rewards(losses: Tensor, weights: Tensor | None = None) -> Tensor:
    """How near each client's losses are to the mean: ω (n,) in [0, 1] from losses (n, S) at S local steps (Eq. 1).

    Where σ = 0 it is 1. nan is a step that a client did not do, and steps that one did alone do not count. With
    ``weights`` (n,) mean and variance are weighted, as in the released code.
    """
    done = losses.isfinite() & (losses.isfinite().sum(0) >= min(2, len(losses)))
    loss = (losses - losses.where(done, torch.inf).amin(0)).where(
        done, 0
    )  # equal losses are exactly 0 now
    w = done * (1 if weights is None else weights[:, None])
    square = (
        loss - (w * loss).sum(0) / w.sum(0).clamp_min(1)
    ).square()  # (n, S): (l_k - m)²
    variance = (w * square).sum(0) / (w.sum(0) - int(weights is None)).clamp_min(1)
    r = (-square / (2 * variance)).exp().where(variance > 0, 1)
    return (r * done).sum(1) / done.sum(1).clamp_min(1)
