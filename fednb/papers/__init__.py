"""The papers: one package each, and what they re-run, listed in ``CATALOGUE``.

A paper's ``tasks`` module holds ``TABLES``: from a table's name to the function that
makes its tasks for a profile (``smoke``, ``laptop``, ``workstation`` or ``paper``). The
list is empty where a table has no such version.
"""

from collections.abc import Callable

from .. import arena
from . import fedcvr_bolt, fedgwc, gcfl, ocfl, wecfl

PACKAGES = {
    "wecfl": wecfl,
    "fedgwc": fedgwc,
    "ocfl": ocfl,
    "fedcvr_bolt": fedcvr_bolt,
    "gcfl": gcfl,
}
CATALOGUE: dict[str, dict[str, Callable[[str], list]]] = {
    **{paper: package.tasks.TABLES for paper, package in PACKAGES.items()},
    "arena": arena.TABLES,
}
