"""GCFL: Lu, Zhang, Mu, Zhang, *Adaptive federated clustering via gravitational
dynamics*, 2026 (Algorithm 1).

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

No code was released. The paper does not give α, β, γ, T, ζ and δ_init, and does not say
what happens under partial participation. Everything left open is a field, and a comment
beside it says where its default comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import checks
from ..clustering import num_clusters, otsu_components
from ..door import Fed
from ..params import mean
from ..similarity import attraction


class State(NamedTuple):
    """A model for each cluster, and what the server knows of each client as a body."""

    # (C, D); if some clients were never sampled, the last row serves them
    theta: Tensor
    labels: Tensor  # (K,)
    z: Tensor  # (K, M) locations, zeros until a client is first sampled
    rho: Tensor  # (K,) confidence
    seen: Tensor  # (K,) bool: whether a client was ever sampled
    uploads: Tensor  # (K, T) bool: who took part in the last T rounds
    started: Tensor  # () bool: whether clustering has started


@dataclass(frozen=True)
class GCFL:
    """Cluster clients in every round by the attraction between bodies.

    A body's location says how sure a client's model is of each class, on samples that
    the server holds. Its mass counts data, attendance and confidence. The ablations of
    Table 5 are ``mass=False``, ``location="parameters"``, ``shielded=False``,
    ``normalised=False`` and ``delta_init=1e9``.
    """

    sampled: int | float = 1.0  # clients per round: a number, or a fraction
    # relative change of the global model below which clustering starts; 1e9: at once.
    # Eq. 3 measures the step of a round, which grows with the learning rate, and which
    # is small before learning sets in, too
    delta_init: float = 0.02
    # clustering starts in this round at the latest: Eq. 3 may never hold if few clients
    # are sampled. None: no limit, as in the paper
    latest: int | None = 10
    # samples per class with which the server probes the models (section 4.1)
    probe: int = 50
    # where a client stands: by its answers to the "probe"; or "parameters": by its
    # model itself, with no confidence in the mass
    location: str = "probe"
    mass: bool = True  # clients have masses (Eq. 12); False: all masses are 1
    # weight of data volume in the mass. All three parts are at most 1, so with equal
    # weights none dominates; a common factor of the weights cancels
    alpha: float = 1.0
    beta: float = 1.0  # weight of attendance in the mass: how often a client took part
    # weight of confidence in the mass: how sure a model is of its answers
    gamma: float = 1.0
    # rounds over which attendance counts: one missed round is a tenth of it
    window: int = 10
    # ζ, added to each distance. The paper only calls it "small": here it is far below
    # the distances that matter, which are at most √2
    zeta: float = 0.01
    # distant clients hardly attract each other (Eq. 15); False: Eq. 14 alone
    shielded: bool = True
    # λ: how far the attraction reaches, in medians of all distances; 1 is printed
    shield: float = 1.0
    # heavy or central clients do not attract all others (Eq. 16)
    normalised: bool = True
    # bins of Otsu's histogram, which tells strong pulls from weak; 256 is
    # scikit-image's default. None: no histogram
    bins: int | None = 256
    # clients without a link stay "alone", as in Algorithm 1's union; or "join" the
    # client that attracts them most
    singletons: str = "alone"
    # clients that were not sampled are "silent", with no part in Eq. 4, as in FedAvg;
    # or they "count" with the model that they had
    absent: str = "silent"

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

    def init(self, fed: Fed) -> State:
        """Start with a single model θ_global^0."""
        theta = fed.start()
        dimensions = fed.layout.P
        if self.location == "probe":
            dimensions = fed.classes
        z = theta.new_zeros(fed.K, dimensions)
        boolean: dict[str, Any] = {"dtype": torch.bool, "device": theta.device}
        return State(
            theta=theta,
            labels=torch.zeros_like(fed.n),
            z=z,
            rho=z.new_zeros(fed.K),
            seen=torch.zeros(fed.K, **boolean),
            uploads=torch.zeros(fed.K, self.window, **boolean),
            started=torch.zeros((), **boolean),
        )

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round.

        Clients train; then the server averages all models (cold start), or forms new
        clusters and averages within them.
        """
        clients = fed.sample(self.sampled)
        # Eq. 5: clients train the model of their cluster
        trained = fed.train(state.theta[state.labels[clients]], clients).theta
        # location anchoring: place the clients by their local models
        known = self.observe(state, fed, clients, trained)
        w = mean(trained, fed.n[clients])  # Eq. 2: θ_global
        if self.is_cold(known, w, fed, t):  # Eq. 3 does not hold yet
            return known._replace(theta=w[None])

        # mass modelling, of the clients that have a location
        mass = self.weigh(known, fed.n, t)[known.seen]
        A = attraction(  # Eqs. 13 to 16
            known.z[known.seen],
            mass,
            self.zeta,
            self.shielded,
            self.normalised,
            self.shield,
        )
        # threshold τ, and the union of all pairs above it
        found = otsu_components(A, self.bins, join=self.singletons == "join")
        # clients never sampled come last, in a cluster of their own
        labels = torch.full_like(known.labels, num_clusters(found))
        labels = labels.masked_scatter(known.seen, found)
        # Eq. 4: average within the new clusters
        theta = self.aggregate(known, fed.n, clients, trained, labels)
        if not known.seen.all():
            # clients never sampled are served by the mean of this round's models
            theta = torch.cat([theta[:-1], w[None]])
        started = torch.ones_like(known.started)
        return known._replace(theta=theta, labels=labels, started=started)

    def observe(self, state: State, fed: Fed, clients: Tensor, rows: Tensor) -> State:
        """Place clients (n,) by their local models (n, D); the others stay in place."""
        if self.location == "probe":
            x, y = fed.probe(self.probe)
            z, rho = locate(fed.predict(rows, x), y, fed.classes)
        else:
            z = rows[:, : fed.layout.P]
            rho = rows.new_zeros(len(clients))
        present = torch.zeros_like(state.seen).index_fill(0, clients, True)
        return state._replace(
            z=state.z.index_copy(0, clients, z),
            rho=state.rho.index_copy(0, clients, rho),
            seen=state.seen | present,
            uploads=torch.cat([state.uploads[:, 1:], present[:, None]], 1),
        )

    def is_cold(self, state: State, w: Tensor, fed: Fed, t: int) -> bool:
        """Whether the server still averages all models, w (D,) being their mean.

        That is so until, for the first time, ‖w − θ_global‖ ≤ δ_init (‖θ_global‖ + ε)
        (Eq. 3), or until round ``latest``.
        """
        if state.started:
            return False
        if self.latest is not None and t >= self.latest:
            return False
        old = state.theta[0, : fed.layout.P]
        new = w[: fed.layout.P]
        return bool((new - old).norm() > self.delta_init * (old.norm() + 1e-12))

    def weigh(self, state: State, n: Tensor, t: int) -> Tensor:  # (K,)
        """Mass of each client (Eq. 12), with n (K,) samples, in round t.

        Attendance is a share of the last ``window`` rounds, or of all rounds so far
        while there are fewer.
        """
        if not self.mass:
            return torch.ones_like(state.rho)
        nu = n / n.max()  # Eq. 9
        kappa = state.uploads.sum(1) / min(self.window, t + 1)  # Eq. 10
        mass = self.alpha * nu + self.beta * kappa + self.gamma * state.rho  # Eq. 12
        return mass.to(state.rho.dtype)

    def aggregate(
        self, state: State, n: Tensor, clients: Tensor, rows: Tensor, labels: Tensor
    ) -> Tensor:  # (C, D)
        """Average trained models (|S|, D) within the new clusters (Eq. 4).

        A cluster without a sampled member takes the models that its members had. With
        ``absent="count"``, so do all absent members.
        """
        n = n.to(rows.dtype)
        samples = F.one_hot(labels).to(n) * n[:, None]  # (K, C)
        old = F.one_hot(state.labels, len(state.theta)).to(n)  # (K, C')
        present = samples[clients].T  # (C, |S|)
        # (C, C') samples of absent members, by the model that they had
        absent = samples.index_fill(0, clients, 0).T @ old
        if self.absent == "silent":
            nobody_present = present.sum(1, keepdim=True) == 0  # (C, 1)
            absent = absent * nobody_present
        total = present.sum(1, keepdim=True) + absent.sum(1, keepdim=True)
        return (present / total) @ rows + (absent / total) @ state.theta


def locate(logits: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Locations z (n, M) and confidence ρ (n,) of n models.

    ``logits`` (n, m, M) are their outputs on m samples of the classes y (m,).
    """
    true = y.expand(len(logits), -1)[:, :, None]  # (n, m, 1)
    q = logits.softmax(2).gather(2, true)[:, :, 0]  # (n, m), Eq. 6
    member = F.one_hot(y, classes).to(q)  # (m, M)
    r = q @ (member / member.sum(0))  # Eq. 7: mean over the samples of each class
    return F.normalize(r, eps=1e-30), q.mean(1)  # Eqs. 8 and 11
