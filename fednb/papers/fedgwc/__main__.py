"""Play drawn losses, and record who is split: ``python -m fednb.papers.fedgwc``.

Writes ``null_splits.json`` and ``chance_test.json`` into ``book/results/fedgwc``, or
only the one that is named; each takes about ten minutes of one core.
"""

import sys

from ..common import results
from .theory import write_chance_test, write_null_splits

RECORDS = {"null_splits": write_null_splits, "chance_test": write_chance_test}

if __name__ == "__main__":  # an import must not write anything
    for name in sys.argv[1:] or RECORDS:
        RECORDS[name](results("fedgwc") / f"{name}.json")
