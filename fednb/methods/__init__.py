"""One method per file, each two functions and a state.

A method is a frozen dataclass whose fields are the paper's hyper-parameters::

    class State(NamedTuple):
        theta: Tensor   # (C, D) one row per model the server keeps
        labels: Tensor  # (K,)   the row that serves each client

    def init(self, fed) -> State             # the lines before the paper's loop
    def step(self, state, fed, t) -> State   # its body, one comment per pseudo-code line

``step`` changes nothing that it was given and draws random numbers only through ``fed``. A method joins the book's
tests and tables by standing in ``ALL``.
"""

from typing import Protocol

from torch import Tensor

from .ensemble import Ensemble
from .fairavg import FairAvg
from .fedavg import FedAvg
from .fedavgm import FedAvgM
from .fedopt import FedOpt
from .fedprox import FedProx
from .fesem import FeSEM
from .fixed_clusters import FixedClusters
from .ifca import IFCA
from .local_only import LocalOnly
from .wecfl import WeCFL

ALL = (LocalOnly, FedAvg, FairAvg, FedAvgM, FedOpt, FedProx, FixedClusters, Ensemble, IFCA, FeSEM, WeCFL)

__all__ = ["ALL", "Method", "State", *(method.__name__ for method in ALL)]


class State(Protocol):
    """What a method remembers from round to round; a NamedTuple in the method's own file."""

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


class Method(Protocol):
    """What ``run`` asks of a method."""

    def init(self, fed) -> State:
        """Make the state before the first round."""

    def step(self, state: State, fed, t: int) -> State:
        """Do round ``t``."""
