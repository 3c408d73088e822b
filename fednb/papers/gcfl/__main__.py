"""Score the majority class on every deal: ``python -m fednb.papers.gcfl``.

Writes ``book/results/gcfl/majority.json``; it takes seconds and needs the data.
"""

from ..common import results
from .priors import write

if __name__ == "__main__":
    write(results("gcfl") / "majority.json")
