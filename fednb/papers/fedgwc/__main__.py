"""Play equal clients, and record who is split: ``python -m fednb.papers.fedgwc``.

Writes ``book/results/fedgwc/null_splits.json``; it takes about ten minutes of one core.
"""

from ..common import results
from .theory import write_null_splits

if __name__ == "__main__":  # an import must not write anything
    write_null_splits(results("fedgwc") / "null_splits.json")
