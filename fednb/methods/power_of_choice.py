"""Power-of-Choice: Cho, Wang, Joshi, *Towards understanding biased client selection in federated learning*,
AISTATS 2022 (π_pow-d).

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

from ..params import mean
from .choice import seats, weighted_sample
from .fedavg import State


@dataclass(frozen=True)
class PowerOfChoice:
    """Ask more clients for their loss than will train, and train those with the highest.

    Of as many candidates as will train, it is FedAvg with clients drawn by their sizes. A plain call is Cho et al.'s;
    the presets are the baseline of FedCVR-Bolt: ``as_printed`` in its appendix C.1, which asks for the loss on test
    data, and ``as_released`` in its code: candidates drawn uniformly, models averaged by samples.
    """

    sampled: int | float = 10
    candidates: int | None = None  # d; None: twice as many as will train
    proportional: bool = True  # candidates drawn by p_k; False: uniformly
    aggregation: str = "equal"  # of the m models; or by "samples"
    on: str = "train"  # the data whose loss is asked for; or "test"

    def __post_init__(self) -> None:
        if self.aggregation not in ("equal", "samples") or self.on not in (
            "train",
            "test",
        ):
            raise ValueError(
                f'{self!r}: aggregation is "equal" or "samples", on "train" or "test"'
            )

    @classmethod
    def as_printed(cls, sampled: int | float = 10) -> PowerOfChoice:
        """FedCVR-Bolt's appendix C.1."""
        return cls(sampled, on="test")

    @classmethod
    def as_released(cls, sampled: int | float = 10) -> PowerOfChoice:
        """FedCVR-Bolt's code."""
        return cls(sampled, proportional=False, aggregation="samples")

    def init(self, fed) -> State:
        """Initialise w."""
        return State(fed.start(), torch.zeros_like(fed.n))

    def step(self, state: State, fed, t: int) -> State:
        """Run one round."""
        w, m = state.theta[0], seats(self.sampled, fed.K)
        d = min(max(self.candidates or 2 * m, m), fed.K)
        # 1. sample the candidate client set A of d clients
        A = (
            weighted_sample(fed, d, fed.n.double().log())
            if self.proportional
            else fed.sample(d)
        )
        loss = fed.loss(
            w, A, on=self.on
        )  # 2. estimate local losses: send w to A, get F_k(w)
        S = (
            A[loss.nan_to_num(-torch.inf).topk(m).indices].sort().values
        )  # 3. the m with the largest F_k(w)
        up = fed.train(w, S)
        weights = fed.n[S] if self.aggregation == "samples" else None
        return State(mean(up.theta, weights)[None], state.labels)
