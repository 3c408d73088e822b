"""Judge the papers' claims on the committed records: ``python -m fednb.papers``.

Writes ``book/results/<paper>/verdicts.json``, which the introduction reads, for every
paper whose package has ``claims``.
"""

from . import PACKAGES
from .common import write_verdicts

if __name__ == "__main__":  # an import must not write anything
    for paper, package in PACKAGES.items():
        if hasattr(package, "claims"):
            print(paper, write_verdicts(paper, package.claims.claims()))
