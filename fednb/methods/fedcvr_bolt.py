"""FedCVR-Bolt: *Socially inspired coalition formation and client selection in federated
learning*, anonymous, 2025, under review (Algorithm 1).

| paper | here |
|---|---|
| θ_gl, P, α_k | theta[0], sampled, fed.n / Σ fed.n |
| θ_k, θ̄_k | seen[k], expected[k], each only in the ``columns`` that are compared |
| C^d, of which only (C^d α)_k and C^d_kk are kept | c_alpha[k, d], c_diag[k, d] |
| γ of Eq. 4; γ_t of Eq. 11; β | gamma; rate; beta |
| ρ, C_p, j_p | cosine_similarity, coalitions, representatives |
| v_k, π_p | total_reduction, boltzmann |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from .. import checks
from ..clustering import relabel, spectral, weighted_kmeans
from ..door import Fed, num_sampled
from ..params import Layout, mean
from ..similarity import (
    cosine,
    covariance_step,
    laplacian,
    rbf,
    sigmoid,
    total_reduction,
    variance_reduction,
)
from .choice import (
    boltzmann,
    coalition_weights,
    gumbel,
    largest,
    representatives,
    shuffle_members,
)
from .wecfl import compared_columns

__all__ = ["FedCVRBolt", "State", "variance_reduction"]

KERNELS = {
    "rbf": rbf,
    "cosine": lambda x, _: cosine(x),
    "laplacian": laplacian,
    "sigmoid": lambda x, gamma: sigmoid(x, gamma, 1.0),
}

# What the authors' four scripts change in `FedCVRBolt.as_released`.
RELEASED: dict[str, dict[str, Any]] = {
    "mnist": {},
    "cifar10": {"rate": 0.01},
    "synthetic": {"rate": 0.01, "representation": "all", "most": None},
    "regression": {"coalitions": "kmeans", "representation": "all"},
}
# What appendix C.2 says of the parameters looked at, for `FedCVRBolt.as_printed`.
PRINTED: dict[str, dict[str, Any]] = {
    "mnist": {"representation": "layer", "most": None},
    "cifar10": {"representation": "last", "most": 300},
    "synthetic": {"representation": "layer", "most": None},
    "regression": {"representation": "layer", "most": None},
}


class State(NamedTuple):
    """One model for all, and what the server knows of each client."""

    theta: Tensor  # (1, D)
    labels: Tensor  # (K,) zeros: one model serves all
    coalitions: Tensor  # (K,)
    columns: Tensor  # (d,) the parameters looked at
    seen: Tensor  # (K, d) what each client sent last
    expected: Tensor  # (K, d) what it was expected to send
    c_alpha: Tensor  # (K, d) (C^d α)_k, float64
    c_diag: Tensor  # (K, d) C^d_kk, the variance of each client's parameters, float64


def _is_coalitions(value: Any) -> bool:
    """Whether it is the name of a clustering, or a number for each client."""
    if isinstance(value, str):
        return value in KERNELS or value == "kmeans"
    integer = checks.integer(0)
    return isinstance(value, tuple) and all(integer.holds(v) for v in value)


COALITIONS = checks.Rule(
    _is_coalitions,
    " or ".join(repr(name) for name in (*KERNELS, "kmeans"))
    + ", or a tuple with an integer >= 0 for each client",
)


@dataclass(frozen=True)
class FedCVRBolt:
    """Form coalitions of clients that sent similar models, and train one of each.

    In a coalition the draw favours clients that reduce the variance of the global
    model; β = 0 draws uniformly, β = inf takes the best. There may be fewer than P
    coalitions (clients that never trained are all alike). Then the best of the other
    clients are trained, too.

    A plain call corrects three things:

    - Section 3.1 assumes means of zero, which models do not have: clients that trained
      in different rounds look unlike because the global model has moved. ``centred``
      rows are updates, θ_k - θ_gl.
    - In line 13 a representative is its own expectation, so that a client that trained
      seems to have no variance. With ``innovation`` it is compared with what was
      expected of it before it trained.
    - In line 18 a representative has the weight of its own samples, however large its
      coalition is, which is not the mean of Eq. 2. With ``aggregation="coalition"`` it
      has the weight of its coalition.

    ``as_printed`` and ``as_released`` have none of these corrections. They differ in
    γ_t, in the parameters looked at, and in the warm-up: the paper estimates C^d in it,
    the code does not.
    """

    sampled: int | float = 10  # P, clients per round: a number, or a fraction
    warmup: int = 30  # warm-up: uniform sampling in these first rounds
    # β: 0 draws uniformly within a coalition, inf takes the client of most value
    beta: float = 1.0
    # γ_t, how fast the estimated covariance learns: "restart" 1/2, 1/3, ... from the
    # first estimate on; "round" 1/t; a constant
    rate: float | str = "restart"
    # how coalitions are found: spectral clustering with the kernel "rbf", "cosine",
    # "laplacian" or "sigmoid"; "kmeans"; or a number given for each client
    coalitions: str | tuple[int, ...] = "rbf"
    # sharpness of the kernel: the larger, the fewer clients look alike
    gamma: float = 1.0
    # parameters looked at: weights of the "last" fully connected layer, this "layer"
    # with its biases, all "dense" layers, or "all" parameters
    representation: str = "last"
    most: int | None = 300  # at most so many of these parameters, drawn once; None: all
    # correlation of two clients before anything is known, in C^d(1)
    initial: float = 1.0
    variance: float = 1.0  # variance of a client before anything is known, in C^d(1)
    # compare updates, θ_k - θ_gl; False: models, whose means are not zero
    centred: bool = True
    # compare a client with what was expected before it trained; False: with what it
    # sent itself (line 13)
    innovation: bool = True
    # how much a representative counts: by the samples of its "coalition", or by its
    # "own"
    aggregation: str = "coalition"
    # a control: coalitions of the same sizes, with members drawn at random every round
    shuffled: bool = False
    # estimate C^d in the warm-up, too (appendix C.2)
    warmup_estimates: bool = False

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            warmup=checks.integer(0),
            beta=checks.number(least=0, infinite=True),
            rate=checks.either(
                checks.choice("restart", "round"), checks.number(least=0, most=1)
            ),
            coalitions=COALITIONS,
            gamma=checks.number(above=0),
            representation=checks.choice("last", "layer", "dense", "all"),
            most=checks.optional(checks.integer(1)),
            initial=checks.number(least=0, most=1),
            variance=checks.number(above=0),
            centred=checks.flag,
            innovation=checks.flag,
            aggregation=checks.choice("coalition", "own"),
            shuffled=checks.flag,
            warmup_estimates=checks.flag,
        )

    @classmethod
    def as_printed(cls, dataset: str = "mnist", **changes: Any) -> FedCVRBolt:
        """Algorithm 1 with appendix C, as for one of its data sets.

        These are "mnist", "cifar10", "synthetic" and "regression". Appendix C.2 does
        not say what happens in the warm-up to a coalition of which no client was drawn;
        here its expectations stay as they were.
        """
        checks.argument("as_printed", "dataset", dataset, checks.choice(*PRINTED))
        printed: dict[str, Any] = {
            "rate": "round",  # C.1: γ_t = 1/t
            "warmup_estimates": True,  # C.2
            "centred": False,  # Eq. 9 and 11 are about models
            "innovation": False,  # line 13
            "aggregation": "own",  # line 18
        }
        return cls(**printed | PRINTED[dataset] | changes)

    @classmethod
    def as_released(cls, dataset: str = "mnist", **changes: Any) -> FedCVRBolt:
        """The authors' code, as in one of its four scripts.

        These are "mnist", "cifar10", "synthetic" and "regression". Differences that
        remain: the scripts draw their 300 parameters from the last 2,000 (MNIST) or
        1,280 (CIFAR-10), which are the last layer's biases and all but the first ten of
        its weights; here they are drawn from all of its weights. They ask scikit-learn
        for P coalitions even if fewer than P models are different; here equal models
        stay together, and the remaining places go to the best of the other clients.
        """
        checks.argument("as_released", "dataset", dataset, checks.choice(*RELEASED))
        released: dict[str, Any] = {
            "centred": False,
            "innovation": False,
            "aggregation": "own",
        }
        return cls(**released | RELEASED[dataset] | changes)

    @classmethod
    def corrected(cls, **changes: Any) -> FedCVRBolt:
        """A plain call."""
        return cls(**changes)

    def init(self, fed: Fed) -> State:
        """Line 1: θ_k(1) = θ_gl(1) and C^d(1).

        C^d(1) = variance ((1 - initial) I + initial 11ᵀ) for all d.
        """
        self.check_given_coalitions(fed.K)
        theta = fed.start()
        columns = self.choose_columns(fed.layout, fed.draw())
        seen = theta[:, columns].repeat(fed.K, 1)
        if self.centred:
            seen = torch.zeros_like(seen)
        c_diag = torch.full_like(seen, self.variance, dtype=torch.float64)
        per_variance = self.initial + (1 - self.initial) * sample_shares(fed)  # (K,)
        return State(
            theta=theta,
            labels=torch.zeros_like(fed.n),
            coalitions=torch.zeros_like(fed.n),
            columns=columns,
            seen=seen,
            expected=seen,
            c_alpha=per_variance[:, None] * c_diag,
            c_diag=c_diag,
        )

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round of Algorithm 1."""
        P = num_sampled(self.sampled, fed.K)
        warming_up = t < self.warmup
        if warming_up and not self.warmup_estimates:
            return self.warm_up(state, fed, P)  # C.2: sample uniformly

        # 3, 5: cluster the clients by what they sent last
        coalitions = self.form(state.seen, P, fed.draw())
        if self.shuffled:
            coalitions = shuffle_members(fed, coalitions)
        if warming_up:
            # C.2: sample uniformly
            chosen, clients = uniform_choice(fed, coalitions, P)
        else:
            # 6: v_k, by Eq. 5 and 6
            value = total_reduction(state.c_alpha, state.c_diag)
            # 7: π_p, by Eq. 8
            pi = boltzmann(value, coalitions, self.beta)
            # 8: draw j_p ~ π_p from each coalition
            key = pi.log() + gumbel(fed)
            chosen, clients = representatives(key, coalitions, P)

        # 9-11: they receive θ_gl and train it
        trained = fed.train(state.theta[0], clients).theta
        seen = self.update_seen(state, clients, trained)
        # 4, 12-14: θ̄_k = ρ_kj θ_j, by Eq. 9
        expected = expectations(state, seen, chosen[coalitions], clients)
        # 15-17: C^d = (1 - γ_t) C^d + γ_t (θ^d - θ̄^d) (θ^d - θ̄^d)ᵀ, by Eq. 11
        c_alpha, c_diag = covariance_step(
            state.c_alpha,
            state.c_diag,
            self.residuals(state, seen, expected, clients),
            sample_shares(fed),
            self.rate_at(t),
        )
        # 18: θ_gl is the mean of the trained models
        weights = fed.n
        if self.aggregation == "coalition" and not warming_up:
            weights = coalition_weights(fed.n, coalitions, clients)
        return state._replace(
            theta=mean(trained, weights[clients])[None],
            coalitions=coalitions,
            seen=seen,
            expected=expected,
            c_alpha=c_alpha,
            c_diag=c_diag,
        )

    def check_given_coalitions(self, K: int) -> None:
        """Refuse given coalitions that are not K numbers of at most P coalitions."""
        if isinstance(self.coalitions, str):
            return
        P = num_sampled(self.sampled, K)
        groups = len(set(self.coalitions))
        if len(self.coalitions) != K or groups > P:
            raise ValueError(
                f"FedCVRBolt(coalitions={self.coalitions!r}): {len(self.coalitions)} "
                f"clients in {groups} coalitions, need one number for each of {K} "
                f"clients and at most sampled={P} coalitions"
            )

    def warm_up(self, state: State, fed: Fed, P: int) -> State:
        """Run a round of FedAvg, in which the server keeps what clients send."""
        clients = fed.sample(P)
        trained = fed.train(state.theta[0], clients).theta
        seen = self.update_seen(state, clients, trained)
        theta = mean(trained, fed.n[clients])[None]
        return state._replace(theta=theta, seen=seen, expected=seen)

    def update_seen(self, state: State, clients: Tensor, trained: Tensor) -> Tensor:
        """What each client sent last (K, d), after some sent trained models (n, D)."""
        sent = trained
        if self.centred:
            sent = trained - state.theta[0]
        return state.seen.index_copy(0, clients, sent[:, state.columns])

    def residuals(
        self, state: State, seen: Tensor, expected: Tensor, clients: Tensor
    ) -> Tensor:  # (K, d)
        """θ - θ̄ of Eq. 11, in float64.

        With ``innovation``, clients (n,) that trained in this round are compared with
        what was expected of them before.
        """
        residual = seen - expected
        if self.innovation:
            surprise = seen[clients] - state.expected[clients]
            residual = residual.index_copy(0, clients, surprise)
        return residual.double()

    def rate_at(self, t: int) -> float:
        """γ_t, in round t, counted from 0."""
        if not isinstance(self.rate, str):
            return self.rate
        if self.rate == "round":
            return 1 / (t + 1)
        first_estimate = self.warmup
        if self.warmup_estimates:
            first_estimate = 0
        return 1 / (t - first_estimate + 2)

    def form(self, seen: Tensor, P: int, seed: int) -> Tensor:  # (K,)
        """Cluster rows (K, d) into at most P coalitions, or return the given ones.

        Equal rows stay together.
        """
        if not isinstance(self.coalitions, str):
            return relabel(torch.tensor(self.coalitions, device=seen.device))
        rows = seen.double()
        if self.coalitions != "kmeans":
            rows = normalize(rows)  # line 3
        # sorted, so that the order of clients does not matter
        rows, row_of = rows.unique(dim=0, return_inverse=True)
        labels = row_of
        if len(rows) > P and self.coalitions == "kmeans":
            labels = weighted_kmeans(rows, row_of.bincount(), P, seed)[row_of]
        elif len(rows) > P:
            kernel = KERNELS[self.coalitions]
            labels = spectral(kernel(rows, self.gamma), P, seed)[row_of]
        return relabel(labels)

    def choose_columns(self, layout: Layout, seed: int) -> Tensor:  # (d,)
        """Columns of the parameters looked at: all of a kind, or ``most`` of them."""
        columns = compared_columns(layout, self.representation)
        order = np.random.default_rng(seed).permutation(len(columns))
        return columns[np.sort(order[: self.most])]


def expectations(
    state: State, seen: Tensor, representative: Tensor, clients: Tensor
) -> Tensor:  # (K, d)
    """θ̄_k = ρ_kj θ_j for client k and the representative j of its coalition (Eq. 9).

    ρ_kj is the cosine of what k and j had sent before this round, ``seen`` (K, d) what
    they have sent now. ``representative`` (K,) is the j of each client, ``clients``
    (n,) are those that trained. If j did not train, the expectation stays as it was.
    """
    rho = cosine_similarity(state.seen, state.seen[representative])  # (K,)
    expected = rho[:, None] * seen[representative]
    # ρ_jj is exactly 1
    j = representative.unique()
    expected = expected.index_copy(0, j, seen[j])
    # C.2: uniform sampling may miss a coalition, about which nothing is learned then
    heard = torch.isin(representative, clients)  # (K,)
    return torch.where(heard[:, None], expected, state.expected)


def uniform_choice(fed: Fed, coalitions: Tensor, P: int) -> tuple[Tensor, Tensor]:
    """Draw P clients uniformly, as ``fed.sample`` does, whatever their coalitions.

    Returns the client of each coalition whose ticket is best (C,), which need not be
    among the drawn, and the drawn clients (P,).
    """
    key = -fed.tickets()
    chosen, _ = representatives(key, coalitions, P)
    return chosen, largest(key, P)


def sample_shares(fed: Fed) -> Tensor:  # (K,)
    """α: each client's share of all samples."""
    return fed.n.double() / fed.n.sum()
