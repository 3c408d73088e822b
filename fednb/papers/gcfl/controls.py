"""GCFL with another answer to what the paper leaves open about absent clients."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...clustering import num_clusters, otsu_components
from ...door import Fed
from ...methods import GCFL
from ...methods.gcfl import State
from ...params import mean, mean_by
from ...similarity import attraction


@dataclass(frozen=True)
class ParticipantsOnly(GCFL):
    """GCFL that clusters the participants of a round, and nobody else.

    A client that is absent is no body in that round, and keeps the model that it had.
    So the server also holds models of earlier rounds, one row of ``theta`` each.
    """

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Run one round: as in GCFL, but absent clients stay out of it."""
        clients = fed.sample(self.sampled)
        trained = fed.train(state.theta[state.labels[clients]], clients).theta
        known = self.observe(state, fed, clients, trained)
        w = mean(trained, fed.n[clients])  # Eq. 2: θ_global
        if self.is_cold(known, w, fed, t):
            return known._replace(theta=w[None])

        A = attraction(
            known.z[clients],
            self.weigh(known, fed.n, t)[clients],
            self.zeta,
            self.shielded,
            self.normalised,
            self.shield,
        )
        found = otsu_components(A, self.bins, join=self.singletons == "join")
        clusters = num_clusters(found)
        new = mean_by(trained, fed.n[clients], found, old=trained[:clusters])

        absent = torch.ones_like(known.seen).index_fill(0, clients, False)
        kept, place = known.labels[absent].unique(return_inverse=True)
        labels = known.labels.masked_scatter(absent, clusters + place)
        labels = labels.index_copy(0, clients, found)
        theta = torch.cat([new, known.theta[kept]])
        started = torch.ones_like(known.started)
        return known._replace(theta=theta, labels=labels, started=started)
