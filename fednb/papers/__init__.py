"""What each chapter re-runs: one module per paper, listed in ``CATALOGUE``.

A paper's module holds ``TABLES: dict[str, Callable[[str], list[Task]]]``: from a table's name to the function that
makes its tasks for a profile (``smoke``, ``laptop`` or ``paper``).
"""

from collections.abc import Callable

from . import fedcvr_bolt, fedgwc, gcfl, ocfl, wecfl

CATALOGUE: dict[str, dict[str, Callable[[str], list]]] = {
    "wecfl": wecfl.TABLES,
    "fedgwc": fedgwc.TABLES,
    "ocfl": ocfl.TABLES,
    "fedcvr_bolt": fedcvr_bolt.TABLES,
    "gcfl": gcfl.TABLES,
}
