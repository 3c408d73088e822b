"""The arena: all methods in the same worlds, equally tuned, ranked with their doubts.

``worlds`` has ten federations with something hidden in them, ``methods`` who takes part
and what of each is tuned, ``tasks`` the runs, and ``analysis`` what they say. `compare`
sets a method of your own beside the stored ones.
"""

from .comparison import Comparison, compare
from .tasks import TABLES
from .worlds import World, worlds

__all__ = ["TABLES", "Comparison", "World", "compare", "worlds"]
