"""Power-of-Choice: Cho, Wang, Joshi, *Towards understanding biased client selection in
federated learning*, AISTATS 2022 (π_pow-d).

| paper | here |
|---|---|
| w | theta[0] |
| m = C K clients per round | sampled |
| d, A | candidates, A |
| p_k | fed.n / Σ fed.n |
| F_k(w) | fed.loss |
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .. import checks
from ..door import Fed, num_sampled
from ..params import mean
from .choice import weighted_sample
from .fedavg import State


@dataclass(frozen=True)
class PowerOfChoice:
    """Ask more clients for their loss than will train, and train those with a high one.

    If there are only as many candidates as clients that train, this is FedAvg with
    clients drawn in proportion to their samples. A plain call is the method of Cho et
    al. The presets are the baseline of FedCVR-Bolt: ``as_printed`` in its appendix C.1,
    which asks for the loss on test data; ``as_released`` in its code, which draws
    candidates uniformly and averages models by samples.
    """

    sampled: int | float = 10  # clients per round: a number, or a fraction
    # d: so many clients are asked for their loss; None: twice as many as will train
    candidates: int | None = None
    # who has more samples is asked more often, p_k; False: all alike
    proportional: bool = True
    # how much a client counts in the average: all "equal"; or by "samples"
    aggregation: str = "equal"
    on: str = "train"  # the data whose loss is asked for: "train" or "test"

    def __post_init__(self) -> None:
        checks.fields(
            self,
            sampled=checks.sampled,
            candidates=checks.optional(checks.integer(1)),
            proportional=checks.flag,
            aggregation=checks.choice("equal", "samples"),
            on=checks.choice("train", "test"),
        )

    @classmethod
    def as_printed(cls, sampled: int | float = 10) -> PowerOfChoice:
        """FedCVR-Bolt's appendix C.1."""
        return cls(sampled, on="test")

    @classmethod
    def as_released(cls, sampled: int | float = 10) -> PowerOfChoice:
        """FedCVR-Bolt's code."""
        return cls(sampled, proportional=False, aggregation="samples")

    def init(self, fed: Fed) -> State:
        """Initialise w."""
        return State(fed.start(), torch.zeros_like(fed.n))

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round."""
        w = state.theta[0]
        m = num_sampled(self.sampled, fed.K)
        # 1. sample the candidate client set A of d clients
        A = self.candidate_set(fed, self.num_candidates(m, fed.K))
        # 2. estimate local losses: send w to A, get F_k(w)
        loss = fed.loss(w, A, on=self.on)
        # 3. train the m with the largest F_k(w); nan, without test samples, comes last
        highest = loss.nan_to_num(-torch.inf).topk(m).indices
        clients = A[highest].sort().values
        trained = fed.train(w, clients).theta
        # average the m models
        weights = None
        if self.aggregation == "samples":
            weights = fed.n[clients]
        return State(mean(trained, weights)[None], state.labels)

    def num_candidates(self, m: int, K: int) -> int:
        """d, if m of K clients train: ``candidates``, or 2 m, but from m to K."""
        d = 2 * m
        if self.candidates is not None:
            d = max(self.candidates, m)
        return min(d, K)

    def candidate_set(self, fed: Fed, d: int) -> Tensor:  # (d,)
        """Draw d clients, by their shares p_k of all samples or uniformly."""
        if self.proportional:
            return weighted_sample(fed, d, fed.n.double().log())
        return fed.sample(d)
