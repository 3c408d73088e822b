"""Choose the arena's settings from its tuning: ``python -m fednb.arena``.

It writes ``fednb/arena/chosen.csv``, from which the table ``ranking`` is made.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..store import results
from . import analysis
from .tasks import CHOSEN, SCALES


def main(argv: Sequence[str] | None = None) -> int:
    """Read the records, choose, write, and say what stands at the edge of its grid."""
    parser = argparse.ArgumentParser(
        prog="python -m fednb.arena", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--records", type=Path, help="default: the book's tuning.json")
    parser.add_argument("--profile", choices=SCALES, default="laptop")
    parser.add_argument("--out", type=Path, default=CHOSEN)
    args = parser.parse_args(argv)
    records = args.records or results("arena") / "tuning.json"
    frame = analysis.tuned(args.profile, records)
    winners = analysis.choose(frame, args.profile)
    winners.to_csv(args.out, index=False, lineterminator="\n")
    edge = analysis.at_the_edge(winners, SCALES[args.profile].rates)
    print(
        f"{len(winners)} settings in {args.out}; the rate is at an end of the grid in "
        f"{edge['rate_at_edge'].sum()}, the knob in {edge['value_at_edge'].sum()}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
