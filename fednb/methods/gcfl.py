"""GCFL: Lu, Zhang, Mu, Zhang, *Adaptive federated clustering via gravitational dynamics*, 2026 (Algorithm 1).

| paper | here |
|---|---|
| n clients, m clusters | fed.K, len(theta) |
| θ_global, θ_i | theta[0] before the first clustering, theta[i] after it |
| δ_init, ε (Eq. 3) | delta_init, 1e-12 |
| P, 50 samples of each class | fed.probe(probe) |
| z_a (Eq. 8), ρ_a (Eq. 11) | z, rho |
| ν_a, κ_a, T (Eqs. 9, 10) | fed.n / fed.n.max(), uploads.mean(1), window |
| α, β, γ (Eq. 12) | alpha, beta, gamma |
| ζ, λ (Eqs. 14, 15) | zeta, shield × median distance |
| τ | otsu_components |

No code was released, and the paper names neither α, β, γ, T, ζ, δ_init nor what happens under partial participation.
Everything left open is a field; what the defaults follow is said beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import checks
from ..clustering import otsu_components
from ..params import mean
from ..similarity import attraction


class State(NamedTuple):
    """A model for each cluster, and what the server knows of each client as a body."""

    theta: Tensor  # (C, D); the last row serves the clients that were never sampled, if there are any
    labels: Tensor  # (K,)
    z: Tensor  # (K, M) locations, zeros before a client is first seen
    rho: Tensor  # (K,)
    seen: Tensor  # (K,) bool
    uploads: Tensor  # (K, T) bool: who took part in the last T rounds
    started: Tensor  # () bool: Eq. 3 has held


@dataclass(frozen=True)
class GCFL:
    """Cluster clients in every round by the attraction between bodies: where a model stands, and how much it weighs.

    A body's location is how sure its model is of each class on samples that the server holds; its mass counts data,
    attendance and confidence. The ablations of Table 5 are ``mass=False``, ``location="parameters"``,
    ``shielded=False``, ``normalised=False`` and ``delta_init=1e9``.
    """

    sampled: int | float = 1.0
    delta_init: float = 0.02  # relative change of the global model below which clustering starts; 1e9: at once. Eq. 3
    # measures a round's step, which grows with the learning rate and is small before learning sets in, too
    latest: int | None = (
        10  # the round in which clustering starts in any case: with few clients sampled, Eq. 3 may
    )
    # never hold; None: the paper's
    probe: int = 50  # samples per class (section 4.1)
    location: str = "probe"  # or "parameters": the local models themselves, and no confidence in the mass
    mass: bool = True  # False: all masses are 1
    alpha: float = 1.0  # weights of data volume, attendance and confidence: each factor is at most 1, so equal
    beta: float = (
        1.0  # weights let each count alike; a common factor of all three cancels
    )
    gamma: float = 1.0
    window: int = (
        10  # rounds over which attendance counts: one missed round is a tenth of it
    )
    zeta: float = 0.01  # "small": locations lie within √2 of each other, so far below the distances that matter
    shielded: bool = True
    shield: float = 1.0  # λ in medians of all distances; 1 is printed
    normalised: bool = True
    bins: int | None = (
        256  # of Otsu's histogram: scikit-image's default; None: no histogram
    )
    singletons: str = (
        "alone"  # what Algorithm 1's union leaves; or "join" whoever attracts them most
    )
    absent: str = "silent"  # who was not sampled has no part in Eq. 4, as in FedAvg; or "count": with the model it had

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            delta_init=checks.number(least=0, infinite=True),
            latest=checks.optional(checks.integer(0)),
            probe=checks.integer(1),
            location=checks.choice("probe", "parameters"),
            mass=checks.flag,
            alpha=checks.number(least=0),
            beta=checks.number(least=0),
            gamma=checks.number(least=0),
            window=checks.integer(1),
            zeta=checks.number(above=0),
            shielded=checks.flag,
            shield=checks.number(above=0),
            normalised=checks.flag,
            bins=checks.optional(checks.integer(2)),
            singletons=checks.choice("alone", "join"),
            absent=checks.choice("silent", "count"),
        )
        if max(self.alpha, self.beta, self.gamma) == 0:
            raise ValueError(f"{self!r}: need one of alpha, beta, gamma above 0")

    def init(self, fed) -> State:
        """Start with a single model θ_global^0."""
        theta, K = fed.start(), fed.K
        z = theta.new_zeros(
            K, fed.classes if self.location == "probe" else fed.layout.P
        )
        never = torch.zeros(K, self.window, dtype=torch.bool, device=theta.device)
        return State(
            theta,
            torch.zeros_like(fed.n),
            z,
            z.new_zeros(K),
            never[:, 0],
            never,
            never[0, 0],
        )

    def step(self, state: State, fed, t: int) -> State:
        """Run one round: local training, then aggregation for all (cold start) or within new clusters."""
        S = fed.sample(self.sampled)
        up = fed.train(
            state.theta[state.labels[S]], S
        )  # Eq. 5: clients train the model of their cluster
        state = self.observe(
            state, fed, S, up.theta
        )  # location anchoring, on the local models
        w = mean(up.theta, fed.n[S])  # Eq. 2
        if not state.started and (self.latest is None or t < self.latest):
            old, new = state.theta[0, : fed.layout.P], w[: fed.layout.P]
            if (new - old).norm() > self.delta_init * (
                old.norm() + 1e-12
            ):  # Eq. 3 does not hold yet
                return state._replace(theta=w[None])
        m = self.weigh(state, fed.n, t)[state.seen]  # mass modelling
        A = attraction(
            state.z[state.seen],
            m,
            self.zeta,
            self.shielded,
            self.normalised,
            self.shield,
        )  # Eqs. 13-16
        found = otsu_components(
            A, self.bins, self.singletons == "join"
        )  # threshold, union
        labels = torch.full_like(state.labels, int(found.max()) + 1).masked_scatter(
            state.seen, found
        )
        theta = self.aggregate(state, fed.n, S, up.theta, labels)
        if (
            not state.seen.all()
        ):  # nobody knows where they stand: for them the cold start goes on
            theta = torch.cat([theta[:-1], w[None]])
        return state._replace(
            theta=theta, labels=labels, started=torch.ones_like(state.started)
        )

    def observe(self, state: State, fed, S: Tensor, rows: Tensor) -> State:
        """Place the clients S by their local models; all others stay where they were last seen."""
        if self.location == "probe":
            x, y = fed.probe(self.probe)
            z, rho = locate(fed.predict(rows, x), y, fed.classes)
        else:
            z, rho = rows[:, : fed.layout.P], rows.new_zeros(len(S))
        now = torch.zeros_like(state.seen).index_fill(0, S, True)
        return state._replace(
            z=state.z.index_copy(0, S, z),
            rho=state.rho.index_copy(0, S, rho),
            seen=state.seen | now,
            uploads=torch.cat([state.uploads[:, 1:], now[:, None]], 1),
        )

    def weigh(self, state: State, n: Tensor, t: int) -> Tensor:  # (K,)
        """Mass of each client (Eq. 12); attendance is over the rounds so far, until there are ``window`` of them."""
        if not self.mass:
            return torch.ones_like(state.rho)
        nu = n / n.max()  # Eq. 9
        kappa = state.uploads.sum(1) / min(self.window, t + 1)  # Eq. 10
        return (self.alpha * nu + self.beta * kappa + self.gamma * state.rho).to(
            state.rho.dtype
        )

    def aggregate(
        self, state: State, n: Tensor, S: Tensor, rows: Tensor, labels: Tensor
    ) -> Tensor:  # (C, D)
        """Average within the new clusters (Eq. 4); one without a sampled member takes the models its members had."""
        n = n.to(rows.dtype)
        new, old = (
            F.one_hot(labels).to(n),
            F.one_hot(state.labels, len(state.theta)).to(n),
        )  # (K, C), (K, C')
        here = (new * n[:, None])[S].T  # (C, |S|) samples
        away = (
            new * n[:, None].index_fill(0, S, 0)
        ).T @ old  # (C, C') samples of the absent, by the model they had
        if self.absent == "silent":
            away = away * (here.sum(1, keepdim=True) == 0)
        total = here.sum(1, keepdim=True) + away.sum(1, keepdim=True)
        return (here / total) @ rows + (away / total) @ state.theta


def locate(logits: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Locations z (n, M) and confidence ρ (n,) of n models by their outputs (n, m, M) on m samples of classes y."""
    q = logits.softmax(2).gather(2, y.expand(len(logits), -1)[:, :, None])[
        :, :, 0
    ]  # (n, m), Eq. 6
    member = F.one_hot(y, classes).to(q)  # (m, M)
    r = q @ (member / member.sum(0))  # Eq. 7: mean over the samples of each class
    return F.normalize(r, eps=1e-30), q.mean(1)  # Eqs. 8 and 11
