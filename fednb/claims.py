"""Verdicts on a paper's claims, by one rule for all.

A claim is about an effect: a difference between two rows of a table, in the direction
that the paper claims, so that a positive number speaks for it. Our runs give it an
interval; the paper often prints its size. Then the claim

- **holds** if the interval lies above the threshold (zero, unless the claim names one);
- **fails** if the interval lies below the threshold, or if it contains the threshold
  and excludes the effect that the paper prints;
- is **open** if the interval contains the threshold and does not exclude the printed
  effect, or if there is none to compare with: our runs cannot tell;
- is **not testable** here, with the reason.

A chapter's claims are made by ``fednb/papers/<paper>``; the book reads their verdicts
from a JSON file beside the records. Questions of our own, which the paper does not
raise, are judged by the same rule and kept apart (``ours``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

VERDICTS = ("holds", "fails", "open", "not testable")


class Interval(NamedTuple):
    """A mean effect with the ends of its 95 % interval; nan ends for a single pair."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Claim:
    """One claim, our evidence, and all that a reader needs to weigh it."""

    statement: str  # what is claimed, in our words
    where: str  # where it stands in the paper
    interval: Interval | None = None  # our effect in the claimed direction
    printed: float | None = None  # the paper's, in the same direction and unit
    threshold: float = 0.0  # the effect must be above it
    unit: str = "points"
    replicates: str = ""  # what the interval is over: "3 seeds x 6 settings"
    scale: str = ""  # of our runs
    reason: str = ""  # why it cannot be tested
    ours: bool = False  # a question of our own

    def __post_init__(self) -> None:
        if not self.statement.strip() or not self.where.strip():
            raise ValueError(f"{self}: a claim needs its statement and where it stands")
        if self.interval is None and not self.reason.strip():
            raise ValueError(f"{self.statement}: give an interval, or a reason")
        if self.interval is not None:
            if not self.replicates.strip() or not self.scale.strip():
                raise ValueError(
                    f"{self.statement}: say what the interval is over (replicates) and "
                    "the scale of the runs"
                )
            if self.interval.low > self.interval.high:
                raise ValueError(f"{self.statement}: {self.interval} is upside down")

    @property
    def verdict(self) -> str:
        """``holds``, ``fails``, ``open`` or ``not testable``, by the rule above."""
        if self.interval is None:
            return "not testable"
        _, low, high = self.interval
        if math.isnan(low) or math.isnan(high):
            return "open"
        if low > self.threshold:
            return "holds"
        if high < self.threshold:
            return "fails"
        if self.printed is not None and self.printed > high:
            return "fails"
        return "open"

    @property
    def evidence(self) -> str:
        """Our effect and the paper's, in words."""
        if self.interval is None:
            return self.reason
        mean, low, high = self.interval
        words = f"{mean:+.3g} {self.unit}"
        if not math.isnan(low):
            words += f" ({low:+.3g} to {high:+.3g})"
        words += f", {self.replicates}; {self.scale}"
        if self.printed is not None:
            words += f"; the paper prints {self.printed:+.3g}"
        return words

    @property
    def why(self) -> str:
        """Which part of the rule gave the verdict."""
        if self.interval is None:
            return "no run here can decide it"
        _, low, high = self.interval
        if math.isnan(low) or math.isnan(high):
            return "a single pair has no interval"
        bound = f"{self.threshold:g}"
        if self.verdict == "holds":
            return f"the interval lies above {bound}"
        if high < self.threshold:
            return f"the interval lies below {bound}"
        if self.verdict == "fails":
            return f"the interval contains {bound} and excludes the printed effect"
        if self.printed is None:
            return f"the interval contains {bound}"
        return f"the interval contains {bound} and does not exclude the printed effect"


def tally(claims: Iterable[Claim]) -> dict[str, int]:
    """How many claims have each verdict, in the order of ``VERDICTS``."""
    found = [claim.verdict for claim in claims]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def write(path: str | Path, claims: Iterable[Claim]) -> None:
    """Write claims with their verdicts as JSON, for the pages that quote them."""
    rows = []
    for claim in claims:
        row = asdict(claim)
        if claim.interval is not None:
            row["interval"] = [_number(x) for x in claim.interval]
        rows.append(row | {"verdict": claim.verdict})
    text = json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    Path(path).write_text(text, encoding="utf-8")


def read(path: str | Path) -> list[Claim]:
    """Read claims; a verdict that does not follow from its numbers is an error."""
    claims = []
    for row in json.loads(Path(path).read_text(encoding="utf-8")):
        verdict = row.pop("verdict")
        if row["interval"] is not None:
            row["interval"] = Interval(*(_unwrapped(x) for x in row["interval"]))
        claim = Claim(**row)
        if claim.verdict != verdict:
            raise ValueError(
                f"{path}: {claim.statement!r} is said to be {verdict!r}, and by its "
                f"numbers it is {claim.verdict!r}"
            )
        claims.append(claim)
    return claims


def _number(x: float) -> float | None:
    return None if math.isnan(x) else float(f"{x:.6g}")


def _unwrapped(x: Any) -> float:
    return math.nan if x is None else x
