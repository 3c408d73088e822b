"""One method per file, each two functions and a state.

A method is a frozen dataclass whose fields are the paper's hyper-parameters::

    class State(NamedTuple):
        theta: Tensor   # (C, D) one row per model the server keeps
        labels: Tensor  # (K,)   the row that serves each client

    def init(self, fed: Fed) -> State            # the lines before the paper's loop
    def step(self, state: State, fed: Fed, t: int) -> State  # its body, line by line

``step`` changes nothing that it was given and draws random numbers only through
``fed``. A method in ``ALL`` takes part in the book's tests and tables.
"""

from typing import Protocol

from torch import Tensor

from ..door import Fed
from .active_fl import ActiveFL
from .autocfl import AutoCFL
from .briggs import BriggsHC
from .cfl import CFL
from .cflgp import CFLGP
from .ditto import Ditto
from .ensemble import Ensemble
from .fairavg import FairAvg
from .fedavg import FedAvg
from .fedavgm import FedAvgM
from .fedccfa import FedCCFA
from .fedcvr_bolt import FedCVRBolt
from .fedem import FedEM
from .fedgwc import FedGWC
from .fedopt import FedOpt
from .fedper import FedPer
from .fedprox import FedProx
from .fedrep import FedRep
from .fedsoft import FedSoft
from .fesem import FeSEM
from .fixed_clusters import FixedClusters
from .gcfl import GCFL
from .ifca import IFCA
from .in_turn import InTurn
from .local_only import LocalOnly
from .mtcfl import MTCFL
from .ocfl import OCFL
from .per_fedavg import PerFedAvg
from .pfedme import PFedMe
from .power_of_choice import PowerOfChoice
from .scaffold import SCAFFOLD
from .wecfl import WeCFL

ALL = (
    LocalOnly,
    FedAvg,
    FairAvg,
    FedAvgM,
    FedOpt,
    FedProx,
    FixedClusters,
    Ensemble,
    IFCA,
    FeSEM,
    WeCFL,
    CFL,
    FedGWC,
    PFedMe,
    PerFedAvg,
    BriggsHC,
    OCFL,
    CFLGP,
    AutoCFL,
    MTCFL,
    FedSoft,
    FedEM,
    FedCCFA,
    InTurn,
    PowerOfChoice,
    ActiveFL,
    FedCVRBolt,
    GCFL,
    SCAFFOLD,
    Ditto,
    FedPer,
    FedRep,
)

__all__ = ["ALL", "Method", "State", *(method.__name__ for method in ALL)]


class State(Protocol):
    """What a method remembers from round to round.

    Each method has a NamedTuple of its own for it.
    """

    theta: Tensor  # (C, D)
    labels: Tensor  # (K,)


class Method(Protocol):
    """What ``run`` asks of a method."""

    def init(self, fed: Fed) -> State:
        """Make the state before the first round."""

    def step(self, state: State, fed: Fed, t: int) -> State:
        """Do round ``t``."""
