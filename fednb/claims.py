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
raise, are judged by the same rule and kept apart (``ours``). Where runs cannot carry
the rule's verdict, a chapter may leave a claim open and say why (`left_open`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import store, tables

if TYPE_CHECKING:
    from .tables import Pair, Table

VERDICTS = ("holds", "fails", "open", "not testable")
RULE_ALONE = "by the book's rule alone: "  # then the verdict that `left_open` replaced
MARKS = {"holds": "✓", "fails": "✗", "open": "○", "not testable": "–"}
FOREST = """
.fednb-forest { --holds: #00705a; --fails: #b04400; --open: #0072b2; }
html[data-theme="dark"] .fednb-forest {
  --holds: #35c79d; --fails: #ff8f4d; --open: #56b4e9;
}
.fednb-forest { font-size: 0.85rem; margin: 0.5rem 0 1rem; }
.fednb-forest .line {
  align-items: center; border-top: 1px solid rgba(128, 128, 128, 0.25); display: grid;
  gap: 0 0.8rem; grid-template-columns: minmax(11rem, 5fr) 13rem minmax(12rem, 6fr);
  padding: 0.15rem 0;
}
.fednb-forest svg { display: block; height: 20px; width: 208px; overflow: visible; }
.fednb-forest .holds { color: var(--holds); }
.fednb-forest .fails { color: var(--fails); }
.fednb-forest .open { color: var(--open); }
.fednb-forest .verdict { font-weight: 600; }
@media (max-width: 720px) {
  .fednb-forest .line { grid-template-columns: 1fr; padding: 0.4rem 0; }
}
"""


class Interval(NamedTuple):
    """A mean effect with the ends of its 95 % interval; nan ends for a single pair."""

    mean: float
    low: float
    high: float


def effect(pair: Pair) -> Interval:
    """The interval of a paired difference, in percent points if it is one of shares."""
    scale = 1
    if pair.points:
        scale = 100
    return Interval(scale * pair.mean, scale * pair.low, scale * pair.high)


def mean_of(values: Iterable[float]) -> Interval:
    """The mean of some numbers with its 95 % t-interval."""
    x = np.array([float(value) for value in values])
    if len(x) == 0 or np.isnan(x).any():
        raise ValueError(f"mean_of({x}): give at least one number, and no nan")
    mean = float(x.mean())
    half = tables.half_width(x)
    return Interval(mean, mean - half, mean + half)


def exactly(value: float) -> Interval:
    """The interval of a number without noise: a toy, a proof, a count of all cases."""
    return Interval(value, value, value)


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
    reason: str = ""  # why it cannot be tested, or why its interval has no ends
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
        if low < high:
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
            return self.reason or "a single pair has no interval"
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


def left_open(claim: Claim, reason: str) -> Claim:
    """The claim as an open one, for this reason.

    Its interval and the verdict of the rule are kept in words. A claim that is open or
    not testable anyway is returned as it is.
    """
    if claim.interval is None or claim.verdict == "open":
        return claim
    mean, low, high = claim.interval
    return replace(
        claim,
        interval=Interval(mean, math.nan, math.nan),
        replicates=f"interval {low:+.3g} to {high:+.3g}, {claim.replicates}",
        reason=f"{reason}; {RULE_ALONE}{claim.verdict}",
    )


def tally(claims: Iterable[Claim]) -> dict[str, int]:
    """How many claims have each verdict, in the order of ``VERDICTS``."""
    found = [claim.verdict for claim in claims]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def counted(claims: Iterable[Claim]) -> str:
    """The tally in words, such as "1 holds, 4 fail, 2 open"."""
    several = {"holds": "hold", "fails": "fail"}
    parts = []
    for verdict, n in tally(claims).items():
        name = verdict
        if n > 1:
            name = several.get(verdict, verdict)
        if n > 0:
            parts.append(f"{n} {name}")
    return ", ".join(parts)


def judged(claims: Iterable[Claim], caption: str = "The paper's claims") -> Table:
    """A table of claims with our evidence and the verdicts, as the page shows it.

    Give the paper's claims, or questions of our own, not both: the caption counts them.
    """
    claims = list(claims)
    if len({claim.ours for claim in claims}) != 1:
        raise ValueError("give the paper's claims, or questions of ours, and not both")
    heads = ("claim", "verdict", "our runs", "where")  # a phone shows the first ones
    rows = []
    for claim in claims:
        seen = f"{claim.evidence}. So: {claim.why}."
        verdict = f"{MARKS[claim.verdict]} {claim.verdict}"
        rows.append((claim.statement, verdict, seen, claim.where))
    return tables.words(heads, rows, f"{caption}: {counted(claims)}.")


def forest(
    claims: Iterable[Claim],
    caption: str = "The paper's claims",
    theirs: str = "paper",
) -> Table:
    """Claims as bars against the line that they have to pass, one above the other.

    A bar is our interval, its dot the mean, a diamond the effect that the paper prints;
    colour and word tell the verdict. Effects have different units, so every line has
    its own scale, and its numbers stand beside it. What is not testable has no bar.
    ``theirs`` names what the diamonds are taken from.
    """
    claims = list(claims)
    caption = f"{caption}: {counted(claims)}."
    lines = "".join(_line(claim, theirs) for claim in claims)
    page = (
        f'<div class="fednb-forest" role="list" aria-label="{escape(caption)}">'
        f"<style>{FOREST}</style><p>{escape(caption)}</p>{lines}</div>"
    )
    words = []
    for claim in claims:
        said = [_numbers(claim, theirs), claim.verdict]
        words.append(f"{claim.statement}: {', '.join(filter(None, said))}")
    return tables.Table(page, "\n".join([caption, *words]))


def _line(claim: Claim, theirs: str) -> str:
    """One claim of a forest, as HTML."""
    kind = claim.verdict.replace(" ", "-")
    verdict = (
        f'<span class="verdict {kind}">{MARKS[claim.verdict]} {claim.verdict}</span>'
    )
    bar = ""
    if claim.interval is not None:
        bar = _bar(claim, claim.interval, kind, theirs)
    return (
        f'<div class="line" role="listitem"><div>{escape(claim.statement)}</div>'
        f"<div>{bar}</div><div>{verdict} {escape(_numbers(claim, theirs))}</div></div>"
    )


def _bar(claim: Claim, interval: Interval, kind: str, theirs: str) -> str:
    """The interval, its mean and the paper's effect around the claim's line, as SVG."""
    mean, low, high = (x - claim.threshold for x in interval)
    paper = None
    ends = [mean, low, high]
    if claim.printed is not None:
        paper = claim.printed - claim.threshold
        ends.append(paper)
    longest = max(abs(x) for x in ends if not math.isnan(x)) or 1.0
    at = partial(_place, longest=longest)
    parts = ['<path d="M0 -9V9" stroke="currentColor" stroke-width="1"/>']
    if low < high:
        line = f"M{at(low)} 0H{at(high)}"
        parts.append(
            f'<path class="{kind}" d="{line}" stroke="currentColor" stroke-width="3"/>'
        )
    parts.append(
        f'<circle class="{kind}" cx="{at(mean)}" r="4.5" fill="currentColor"/>'
    )
    if paper is not None:
        diamond = f"M{at(paper)} -6l6 6l-6 6l-6 -6z"
        parts.append(
            f'<path d="{diamond}" fill="none" stroke="currentColor" '
            'stroke-width="1.5"/>'
        )
    words = escape(f"{claim.statement}: {_numbers(claim, theirs)}")
    shapes = "".join(parts)
    return (
        f'<svg viewBox="-104 -10 208 20" role="img" aria-label="{words}">{shapes}</svg>'
    )


def _place(x: float, longest: float) -> str:
    return f"{95 * x / longest:.1f}"


def _numbers(claim: Claim, theirs: str) -> str:
    """Our effect, its interval and the paper's effect, short."""
    if claim.interval is None:
        return ""
    mean, low, high = claim.interval
    words = f"{mean:+.2g}"
    if low < high:
        words += f" ({low:+.2g} to {high:+.2g})"
    if claim.printed is not None:
        words += f", {theirs} {claim.printed:+.2g}"
    if claim.threshold:
        words += f", line at {claim.threshold:g}"
    return f"{words} {claim.unit}".strip()


def write(path: str | Path, claims: Iterable[Claim]) -> None:
    """Write claims with their verdicts as JSON, for the pages that quote them."""
    rows = []
    for claim in claims:
        row = asdict(claim)
        if claim.interval is not None:
            row["interval"] = store.plain([float(x) for x in claim.interval])
        if claim.printed is not None:
            row["printed"] = store.plain(float(claim.printed))
        rows.append(row | {"verdict": claim.verdict})
    page = {"claims": rows}
    text = json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    Path(path).write_text(text, encoding="utf-8")


def read(path: str | Path) -> list[Claim]:
    """Read claims; a verdict that does not follow from its numbers is an error."""
    claims = []
    page = json.loads(Path(path).read_text(encoding="utf-8"))
    for row in page["claims"]:
        verdict = row.pop("verdict")
        if row["interval"] is not None:
            # None stands for nan
            ends = np.array(row["interval"], dtype=float).tolist()
            row["interval"] = Interval(*ends)
        claim = Claim(**row)
        if claim.verdict != verdict:
            raise ValueError(
                f"{path}: {claim.statement!r} is said to be {verdict!r}, and by its "
                f"numbers it is {claim.verdict!r}"
            )
        claims.append(claim)
    return claims
