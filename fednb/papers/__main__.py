"""Judge the papers' claims on the committed records: ``python -m fednb.papers``.

Writes ``book/results/<paper>/verdicts.json``, which the introduction reads, for every
paper whose package has ``claims``.
"""

from ..training import one_blas_thread, one_thread
from . import PACKAGES
from .common import write_verdicts

if __name__ == "__main__":  # an import must not write anything
    # small sums: on a busy machine a second thread costs minutes of waiting
    with one_thread(), one_blas_thread():
        for paper, package in PACKAGES.items():
            if hasattr(package, "claims"):
                print(paper, write_verdicts(paper, package.claims.claims()))
