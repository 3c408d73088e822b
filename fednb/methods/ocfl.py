"""OCFL: Zuziak, Pellungrini, Rinzivillo, *One-shot clustering for federated learning
under clustering-agnostic assumption*, 2025 (Algorithm 1).

| paper | here |
|---|---|
| P, 𝒜, ℱ | clients, the sampled ones; clusterer; done |
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
from ..clustering import by_distance, num_clusters
from ..door import Fed, Update
from ..params import mean_by
from ..similarity import cosine_distance
from .wecfl import importance


class State(NamedTuple):
    """One model until the split, then one for each cluster.

    If a client was absent at the split, the common model stays as the last row.
    """

    theta: Tensor  # (1, D), then (C, D) or (C + 1, D)
    labels: Tensor  # (K,)
    temperature: Tensor  # (window,) up to the split, newest last; inf before round 1
    done: Tensor  # () bool, ℱ: whether the clients have been split
    # (C, d) mean direction of each cluster's updates at the split; (0, D) before it
    centres: Tensor
    # (K, K) Γ of the round before, where ``matrix`` asks for it; else (0, 0)
    before: Tensor


@dataclass(frozen=True)
class OCFL:
    """Average all models until the clients' updates begin to disagree more; then
    cluster once, for good.

    The split comes in the first round whose temperature is above that of the round
    before (``window=1``), so in the second round at the earliest. A client that was not
    sampled then (section 6.2) is served by the last common model. When it is sampled
    for the first time after the split, it trains that model, so that its update can be
    compared with those that were clustered, and joins the cluster whose mean direction
    is nearest. This first update is not averaged.

    A plain call is the corrected version. Each difference of paper and code is a field.
    """

    # what clusters the clients, 𝒜: "hdbscan", "affinity" or "meanshift", which find the
    # number of clusters; or "kmeans", which is told ``clusters``
    clusterer: str = "hdbscan"
    clusters: int = 3  # how many clusters k-means looks for; the others do not use it
    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    window: int = 1  # w, rounds over which the temperature is averaged (section 6.3)
    # which norm of the matrix Γ is the temperature; 2: root of the sum of squares
    p: float = 2
    # split in this round, whatever the temperature; 1 is the first, 0 never: a control.
    # None: when the temperature rises
    at: int | None = None
    # split if the temperature rises, T_t > T_{t-1}, as in text and code; False: also if
    # it stays equal, >=, as in line 20
    strict: bool = True
    # what is compared, Δ: how the "parameters" moved; or the whole "state", with
    # BatchNorm's statistics and batch counters
    update: str = "parameters"
    # how much a client counts in its cluster's average: by "samples"; or all "equal",
    # as printed and released
    aggregation: str = "samples"
    # HDBSCAN's outliers join the "nearest" cluster; or form one "together", or stay
    # "alone"
    noise: str = "nearest"
    # released code: affinity propagation is given distances where it expects
    # similarities
    swapped: bool = False
    # the distances Γ that are clustered: of the round that sets off the split,
    # "trigger", as in the paper; or of the round "before", in which the updates agreed
    # best: a proposal of ours
    matrix: str = "trigger"

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
            matrix=checks.choice("trigger", "before"),
        )
        if self.matrix == "before" and (self.sampled != 1.0 or self.at == 1):
            raise ValueError(
                f"OCFL(matrix='before', sampled={self.sampled!r}, at={self.at!r}): the "
                "round before must exist and have the same clients: sampled=1.0, at > 1"
            )

    @classmethod
    def as_printed(cls, clusterer: str = "hdbscan", **changes: Any) -> OCFL:
        """Algorithm 1 to the letter; the labels that 𝒜 gives are the clusters."""
        printed: dict[str, Any] = {
            "strict": False,  # line 20
            "aggregation": "equal",  # lines 26 to 28
            "noise": "together",  # line 22: the label of outliers is one of C
        }
        return cls(clusterer, **printed | changes)

    @classmethod
    def as_released(cls, clusterer: str = "hdbscan", **changes: Any) -> OCFL:
        """The authors' code."""
        released: dict[str, Any] = {
            "update": "state",
            "aggregation": "equal",
            "noise": "together",
            "swapped": True,
        }
        return cls(clusterer, **released | changes)

    @classmethod
    def corrected(cls, clusterer: str = "hdbscan", **changes: Any) -> OCFL:
        """The same as a plain call."""
        return cls(clusterer, **changes)

    def init(self, fed: Fed) -> State:
        """C = {P}, T_{-1} = ∞, ℱ = False (Algorithm 1, lines 5 to 7)."""
        theta = fed.start()
        return State(
            theta=theta,
            labels=torch.zeros_like(fed.n),
            temperature=theta.new_full((self.window,), math.inf),
            done=torch.tensor(False, device=fed.n.device),
            centres=theta[:0],
            before=theta.new_zeros(0, 0),
        )

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        clients = fed.sample(self.sampled)  # l. 9: P, or some of it
        before = state.theta[state.labels[clients]]  # l. 10: send each its model
        update = fed.train(before, clients)  # l. 11 to 13: local training
        if state.done:  # l. 15: ℱ, the clusters are final
            return self.step_after_split(state, fed, before, update)
        delta = displacement(fed, before, update, self.update)  # (n, d), l. 14: Δ_i
        Gamma = cosine_distance(delta)  # (n, n), l. 16: Γ
        newest = temperature(Gamma, self.p)  # l. 17 to 19: T_t
        temperatures = torch.cat([state.temperature, newest[None]])
        new = state._replace(temperature=temperatures[1:])
        clustered = Gamma
        if self.matrix == "before":
            clustered = state.before
            new = new._replace(before=Gamma)
        if self.should_split(temperatures, t):  # l. 20: T_t > T_{t-1}
            found = self.cluster(clustered, fed.draw())  # (n,), l. 22: C ← 𝒜(Γ)
            new = start_clusters(new, clients, found, delta)  # l. 23: ℱ ← True
        return self.average(new, fed, update)  # l. 26 to 28: within clusters

    def step_after_split(
        self, state: State, fed: Fed, before: Tensor, update: Update
    ) -> State:
        """Average within the clusters; clients that missed the split join one first."""
        clients = update.clients
        missed_split = state.labels[clients] == len(state.centres)  # (n,)
        if not missed_split.any():
            return self.average(state, fed, update)
        delta = displacement(fed, before, update, self.update)
        nearest = (normalize(delta) @ state.centres.T).argmax(1)
        joins = nearest[missed_split]
        labels = state.labels.index_copy(0, clients[missed_split], joins)
        new = state._replace(labels=labels)
        return self.average(new, fed, update, counts=~missed_split)

    def should_split(self, temperatures: Tensor, t: int) -> bool:
        """Whether to split in round t, given the last w + 1 temperatures.

        Two consecutive moving averages over w rounds differ only in the newest and the
        oldest temperature, so it is enough to compare these two.
        """
        if self.at is not None:
            return t + 1 == self.at
        newest = temperatures[-1]
        oldest = temperatures[0]
        if self.strict:
            return bool(newest > oldest)
        return bool(newest >= oldest)

    def cluster(self, Gamma: Tensor, seed: int) -> Tensor:  # (n,)
        """Labels that the clusterer 𝒜 gives to clients with distances Γ (n, n)."""
        return by_distance(
            Gamma,
            self.clusterer,
            k=self.clusters,
            seed=seed,
            noise=self.noise,
            swapped=self.swapped,
        )

    def average(
        self, state: State, fed: Fed, update: Update, counts: Tensor | None = None
    ) -> State:
        """Average the trained models in each cluster (l. 26 to 28, server step 1).

        ``counts`` (n,) is False for clients that are left out.
        """
        clients = update.clients
        weights = importance(fed, self.aggregation)[clients]
        if counts is not None:
            weights = weights * counts
        labels = state.labels[clients]
        return state._replace(
            theta=mean_by(update.theta, weights, labels, old=state.theta)
        )


def start_clusters(
    state: State, clients: Tensor, found: Tensor, delta: Tensor
) -> State:
    """Start each cluster that was found among ``clients`` (n,) from the common model.

    If there are other clients, the common model is kept for them as the last row.
    """
    clusters = num_clusters(found)
    labels = torch.full_like(state.labels, clusters).index_copy(0, clients, found)
    rows = clusters
    if len(clients) < len(labels):
        rows = clusters + 1
    equal = torch.ones_like(clients)
    directions = mean_by(normalize(delta), equal, found, old=delta[:clusters])
    return state._replace(
        theta=state.theta.repeat(rows, 1),
        labels=labels,
        done=torch.ones_like(state.done),
        centres=normalize(directions),
    )


def temperature(Gamma: Tensor, p: float = 2) -> Tensor:
    """T(Γ) = ‖Γ‖_p / λ with λ = (n (n − 1) 2^p)^(1/p) (Definition 7).

    It says how much n clients disagree, in [0, 1]. Γ (n, n) holds cosine distances, and
    λ is the norm of a matrix that is 2 everywhere off the diagonal. But more than two
    clients cannot all be opposite to each other. So with p = 2 the largest possible T
    is √(n / (2 (n − 1))), for two groups of equal size with opposite directions.
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


def displacement(
    fed: Fed, before: Tensor, update: Update, what: str = "parameters"
) -> Tensor:
    """What training changed in each client's model, from ``before`` (n, D): (n, d).

    The ``"state"`` is all that ``state_dict`` holds: parameters, running statistics,
    and for each BatchNorm the number of batches seen. That number is the same for all
    clients, and so large that it hides their differences.
    """
    delta = update.theta - before
    if what == "parameters":
        return delta[:, : fed.layout.P]
    counters = sum(name.endswith("running_mean") for name in fed.layout.names)
    steps = (~update.losses.isnan()).sum(1, keepdim=True)  # (n, 1)
    return torch.cat([delta, steps.expand(-1, counters).to(delta.dtype)], 1)
