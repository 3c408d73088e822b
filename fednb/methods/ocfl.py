"""OCFL: Zuziak, Pellungrini, Rinzivillo, *One-shot clustering for federated learning under clustering-agnostic
assumption*, 2025 (Algorithm 1).

| paper | here |
|---|---|
| P, 𝒜, ℱ | S, the sampled clients; clusterer; done |
| θ_i^(t,0), Δ_i | before[i], delta[i] |
| Γ, C_d | Gamma, cosine_distance |
| T_t, λ | temperature(Gamma), whose denominator is λ |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .. import checks
from ..clustering import by_distance
from ..params import mean_by
from ..similarity import cosine_distance


class State(NamedTuple):
    """One model until the split, then one for each cluster, and the common one if somebody was away at the split."""

    theta: Tensor  # (1, D), then (C, D) or (C + 1, D)
    labels: Tensor  # (K,)
    temperature: (
        Tensor  # (window,) the newest, up to the split, at the end; inf: not yet
    )
    done: Tensor  # () ℱ: was there a split?
    centres: Tensor  # (C, d) mean direction of each cluster's updates at the split; (0, D) before


@dataclass(frozen=True)
class OCFL:
    """Average all models until the clients' updates begin to disagree more; then cluster once, for good.

    The split comes in the first round whose temperature is above that of the round before (``window=1``): the second
    round at the earliest. A client that was not sampled then (section 6.2) is served by the last common model. When its
    turn comes it trains that model, so that its update compares with those that were clustered, and joins the cluster
    whose mean direction is nearest; this first update serves to know the client, and is not averaged.

    A plain call is the corrected version: all that differs in paper or code is a field.
    """

    clusterer: str = "hdbscan"  # 𝒜; or "kmeans", which must know ``clusters``, "affinity", "meanshift"
    clusters: int = 3
    sampled: int | float = 1.0
    window: int = 1  # w, rounds in the moving average of section 6.3
    p: float = 2  # of the norm of Γ
    at: int | None = (
        None  # split in this round, 1 is the first, whatever the temperature; 0 never: a control
    )
    strict: bool = True  # T_t > T_{t-1} as in text and code; False: >= as in line 20
    update: str = "parameters"  # what Δ holds; or the whole "state": BatchNorm's statistics and batch counters too
    aggregation: str = (
        "samples"  # weights in a cluster's mean; or "equal", as printed and released
    )
    noise: str = "nearest"  # HDBSCAN's outliers join a cluster; or form one "together", or stay "alone"
    swapped: bool = (
        False  # affinity propagation is given distances where it expects similarities
    )

    def __post_init__(self) -> None:
        checks.fields(
            self,
            clusterer=checks.choice("hdbscan", "kmeans", "affinity", "meanshift"),
            clusters=checks.integer(1),
            sampled=checks.sampled,
            window=checks.integer(1),
            p=checks.number(least=1, infinite=True),
            at=checks.optional(checks.integer(0)),
            strict=checks.flag,
            update=checks.choice("parameters", "state"),
            aggregation=checks.choice("samples", "equal"),
            noise=checks.choice("nearest", "together", "alone"),
            swapped=checks.flag,
        )

    @classmethod
    def as_printed(cls, clusterer: str = "hdbscan", **changes: Any) -> OCFL:
        """Algorithm 1 to the letter; the labels that 𝒜 gives are the clusters."""
        return cls(
            clusterer,
            **{"strict": False, "aggregation": "equal", "noise": "together"} | changes,
        )

    @classmethod
    def as_released(cls, clusterer: str = "hdbscan", **changes: Any) -> OCFL:
        """The authors' code."""
        code = {
            "update": "state",
            "aggregation": "equal",
            "noise": "together",
            "swapped": True,
        }
        return cls(clusterer, **code | changes)

    @classmethod
    def corrected(cls, clusterer: str = "hdbscan", **changes: Any) -> OCFL:
        """The same as a plain call."""
        return cls(clusterer, **changes)

    def init(self, fed) -> State:
        """C = {P}, T_{-1} = ∞, ℱ = False (Algorithm 1, lines 5 to 7)."""
        theta = fed.start()
        T = theta.new_full((self.window,), math.inf)
        return State(
            theta,
            torch.zeros_like(fed.n),
            T,
            torch.zeros_like(fed.n[0], dtype=torch.bool),
            theta[:0],
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        theta, labels, T, done, centres = state
        S = fed.sample(self.sampled)  # l. 9: P, or some of it
        before = theta[labels[S]]  # l. 10
        up = fed.train(before, S)  # l. 11 to 13
        new = labels[S] == len(centres)  # after the split: who was away
        if done and not new.any():  # l. 15: ℱ
            return self.average(state, fed, up)
        delta = displacement(fed, before, up, self.update)  # (n, d), l. 14
        if done:
            nearest = (normalize(delta) @ centres.T).argmax(1)
            labels = labels.index_copy(0, S[new], nearest[new])
            return self.average(state._replace(labels=labels), fed, up, counts=~new)
        Gamma = cosine_distance(delta)  # l. 16
        T = torch.cat([T, temperature(Gamma, self.p)[None]])  # l. 17 to 19
        state = state._replace(temperature=T[1:])
        hotter = (
            T[-1] > T[0] if self.strict else T[-1] >= T[0]
        )  # l. 20: two means of w rounds differ in these
        if not (hotter if self.at is None else t + 1 == self.at):
            return self.average(state, fed, up)  # l. 24 and 25: all stay together
        how = {"k": self.clusters, "noise": self.noise, "swapped": self.swapped}
        found = by_distance(
            Gamma, self.clusterer, seed=fed.draw(), **how
        )  # (n,) l. 22: C ← 𝒜(Γ)
        C = int(found.max()) + 1
        labels = torch.full_like(labels, C).index_copy(0, S, found)
        theta = theta.repeat(
            C + int(len(S) < fed.K), 1
        )  # the last common model stays for those who are away
        centres = normalize(
            mean_by(normalize(delta), torch.ones_like(S), found, old=delta[:C])
        )
        return self.average(
            State(theta, labels, T[1:], ~done, centres), fed, up
        )  # l. 23: ℱ ← True

    def average(self, state: State, fed, up, counts: Tensor | bool = True) -> State:
        """Aggregate the clients' models in each cluster (lines 26 to 28, with a server step of 1)."""
        S = up.clients
        weights = (
            fed.n[S] if self.aggregation == "samples" else torch.ones_like(S)
        ) * counts
        return state._replace(
            theta=mean_by(up.theta, weights, state.labels[S], old=state.theta)
        )


def temperature(Gamma: Tensor, p: float = 2) -> Tensor:
    """T(Γ) = ‖Γ‖_p / λ with λ = (n (n − 1) 2^p)^(1/p) (Definition 7).

    It says how much n clients disagree, in [0, 1]. Γ (n, n) holds cosine distances, of
    which all but the diagonal could be 2 if they were free. They are not: with p = 2 no
    Γ is hotter than √(n / (2 (n − 1))), two camps of equal size that pull in opposite
    directions.
    """
    checks.argument("temperature", "p", p, checks.number(least=1, infinite=True))
    shape = tuple(Gamma.shape)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise ValueError(f"temperature(Gamma of shape {shape}): need (n, n) distances")
    if not bool(Gamma.isfinite().all()):
        raise ValueError("temperature(Gamma): need finite distances, found NaN or inf")
    n = len(Gamma)
    largest = Gamma.abs().max()
    if n == 1 or largest == 0 or p == math.inf:
        return largest / 2
    # divided by the largest, so that a large p does not underflow
    powers = (Gamma.abs() / largest).pow(p).sum()
    return largest / 2 * (powers / (n * (n - 1))) ** (1 / p)


def displacement(fed, before: Tensor, up, update: str = "parameters") -> Tensor:
    """What training changed in each client's model: (n, d).

    The ``"state"`` is all that ``state_dict`` holds: parameters, running statistics, and for each BatchNorm the number
    of batches seen, which is alike in all clients and so large that it hides their differences.
    """
    delta = up.theta - before
    if update == "parameters":
        return delta[:, : fed.layout.P]
    counters = sum(name.endswith("running_mean") for name in fed.layout.names)
    steps = (~up.losses.isnan()).sum(1, keepdim=True)  # (n, 1)
    return torch.cat([delta, steps.expand(-1, counters).to(delta.dtype)], 1)
