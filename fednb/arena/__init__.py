"""The arena: all methods in the same worlds, equally tuned, ranked with intervals.

``worlds`` has ten federations with hidden structure, ``methods`` the methods and what
is tuned of each, ``tasks`` the runs, ``analysis`` the evaluation of their records, and
``figures`` the tables and pictures. `compare` sets a method of your own beside the
stored ones.
"""

from .comparison import Comparison, compare
from .tasks import TABLES
from .worlds import World, worlds

__all__ = ["TABLES", "Comparison", "World", "compare", "worlds"]
