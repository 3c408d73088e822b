"""MTCFL: a baseline that the GCFL paper lists among the in-training methods, citing Sattler, Müller, Samek, *Clustered
federated learning: model-agnostic distributed multitask optimization under privacy constraints*, IEEE TNNLS 2021.

It cannot be pinned down. That reference is CFL's, for which the GCFL paper in turn cites IFCA's; no text or code tells
what "MT" (multi-task?) changes. What can be said is that the tables hold a *post-training* CFL and an *in-training*
MTCFL. So this is the part of Sattler's algorithm that needs no rest: its test of the gap between two groups' updates,
made from the start and in every round. It is our reading, and its row in a table should say so.

| Sattler et al. | here |
|---|---|
| α_cross^max, largest cosine between the two parts | at most 1 − 2 gamma_max² for a cut |
| ε1, ε2 | not asked |
"""

from __future__ import annotations

from dataclasses import dataclass

from .cfl import CFL, State


@dataclass(frozen=True)
class MTCFL:
    """Cut a cluster in two as soon as no client of one part pulls in the direction of a client of the other."""

    sampled: int | float = 1.0
    gamma_max: float = 0.7071  # √½: a cut needs cosines across of at most 0
    wait: int = 1  # rounds without a cut
    smallest: int = 2

    @property
    def cfl(self) -> CFL:
        """The same in CFL's words; no mean update is twice as long as the longest so far, so rest is not asked for."""
        options = {
            "gamma_max": self.gamma_max,
            "wait": self.wait,
            "smallest": self.smallest,
            "linkage": "single",
        }
        return CFL(self.sampled, eps1=2.0, eps2=0.0, **options)

    def init(self, fed) -> State:
        """All clients are one cluster."""
        return self.cfl.init(fed)

    def step(self, state: State, fed, t: int) -> State:
        """Run one round of CFL."""
        return self.cfl.step(state, fed, t)
