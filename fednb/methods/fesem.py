"""FeSEM: Xie, Long, Shen, Zhou, Wang, Jiang, Zhang, *Multi-center federated learning:
clients clustering for better personalization*, World Wide Web 2023; arXiv:2005.01026,
2020.

In WeCFL's words (its Eq. 2): the same algorithm with λ_i = 1 in the clustering, so a
client with ten samples pulls a centre as hard as one with a thousand. Symbols as in
:mod:`~fednb.methods.wecfl`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .wecfl import WeCFL


@dataclass(frozen=True)
class FeSEM(WeCFL):
    """WeCFL with equal weights in clustering.

    The average within a cluster is weighted by samples, as in FedAvg.
    """

    weights: str = "equal"

    @classmethod
    def as_printed(cls, clusters: int = 5) -> FeSEM:
        """Eq. 2: equal weights in the average too."""
        return cls(clusters, aggregation="equal", settle=False)

    @classmethod
    def as_released(cls, clusters: int = 5) -> FeSEM:
        """The authors' code.

        Last layer, k-means with equal weights, average by batches.
        """
        return cls(clusters, representation="last", aggregation="batches")
