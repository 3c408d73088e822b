"""Write the records that need no training: ``python -m fednb.papers.fedgwc``.

Writes ``null_splits.json``, ``chance_test.json`` and ``majority.json`` into
``book/results/fedgwc``, or only the one that is named. Each of the first two takes
about ten minutes of one core; the last takes seconds, and needs the data.
"""

import sys

from ..common import results
from .priors import write as write_majority
from .theory import write_chance_test, write_null_splits

RECORDS = {
    "null_splits": write_null_splits,
    "chance_test": write_chance_test,
    "majority": write_majority,
}

if __name__ == "__main__":  # an import must not write anything
    for name in sys.argv[1:] or RECORDS:
        RECORDS[name](results("fedgwc") / f"{name}.json")
