"""Write what the README says about results: ``python book/_tools/front_page.py``.

Its findings stand between two marks, and its picture is ``book/_assets/verdicts.svg``.
Both come from ``book/results/<paper>/verdicts.json``; a test says when they are old.
"""

from __future__ import annotations

import sys

from fednb.claims import VERDICTS, Claim, read, tally

from book_extension import PAPERS, recorded_keys
from execute_notebooks import BOOK, ROOT

README = ROOT / "README.md"
PICTURE = BOOK / "_assets" / "verdicts.svg"
MARKS = ("<!-- findings -->\n", "<!-- /findings -->")

# A finding is a paper, a statement that its verdicts.json judges, and what it tells.
FINDINGS = (
    (
        "gcfl",
        "Ahead of random clusters",
        "It matters who shares a model: the accuracy of GCFL's clusters against that "
        "of clusters drawn at random.",
    ),
    (
        "fedgwc",
        "The best clusters of IFCA and FeSEM beat training alone",
        "Clusters can be worse than none: the accuracy of the best clusters of IFCA "
        "and FeSEM against that of clients that train alone.",
    ),
    (
        "ocfl",
        "Finds the groups better than SCL (CFL)",
        "Clustering once can be enough: how well OCFL, in one early round, finds the "
        "hidden groups (ARI 1: all of them), against CFL, which splits again and "
        "again.",
    ),
)

COLOURS = {
    "holds": "#009e73",
    "fails": "#d55e00",
    "open": "#56b4e9",
    "not testable": "#b0b0b0",
}


def main() -> int:
    """Write both anew."""
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    text = before + MARKS[0] + findings() + MARKS[1] + after
    README.write_text(text, encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    return 0


def all_claims(paper: str) -> list[Claim]:
    """The paper's claims and our own questions; none as long as it has no verdicts."""
    path = BOOK / "results" / paper / "verdicts.json"
    if not path.exists():
        return []
    return read(path)


def claims_of_papers() -> dict[str, list[Claim]]:
    """The claims of each paper that has been judged, without our own questions."""
    found = {}
    for paper in PAPERS:
        claims = [claim for claim in all_claims(paper) if not claim.ours]
        if claims:
            found[paper] = claims
    return found


def findings() -> str:
    """A sentence with the tally of all verdicts, and a list of three findings."""
    judged = claims_of_papers()
    counts = tally(claim for claims in judged.values() for claim in claims)
    folders = [BOOK / "results" / paper for paper in PAPERS]
    runs = sum(len(recorded_keys(folder)) for folder in folders)
    large = sum(len(recorded_keys(folder, "paper")) for folder in folders)
    lines = [
        f"**{sum(counts.values())} claims judged by one rule**: "
        f"{counts['holds']} hold, {counts['fails']} fail, {counts['open']} are open, "
        f"{counts['not testable']} cannot be tested here. Behind the book are "
        f"{runs:,} recorded runs. {large:,} of them have the papers' own settings, "
        "most of these on small drawn data; the others are smaller, and each chapter "
        "says by how much. Three findings:",
        "",
    ]
    for paper, statement, words in FINDINGS:
        claim = find(paper, statement)
        lines.append(f"- **{effect(claim)}.** {words} {where(paper, claim)}.")
    return "\n".join(lines) + "\n"


def find(paper: str, statement: str) -> Claim:
    """The claim with this statement."""
    for claim in all_claims(paper):
        if claim.statement == statement:
            return claim
    raise KeyError(f"{paper}/verdicts.json has no claim {statement!r}: see FINDINGS")


def effect(claim: Claim) -> str:
    """The effect with its 95 % interval, short."""
    if claim.interval is None:
        return claim.reason
    mean, low, high = (rounded(x) for x in claim.interval)
    return f"{mean} {claim.unit}, 95 % interval {low} to {high}"


def rounded(x: float) -> str:
    """Two digits behind the point for small numbers, one for others."""
    digits = 2 if abs(x) < 1 else 1
    return f"{x:+.{digits}f}".replace("-", "−")


def where(paper: str, claim: Claim) -> str:
    """The file with the verdict, what its interval is over, and at which scale."""
    path = f"book/results/{paper}/verdicts.json"
    return f"[{PAPERS[paper]}]({path}): {claim.replicates}; {claim.scale}"


def picture() -> str:
    """All verdicts, a square for each claim and a row for each paper, as SVG."""
    judged = claims_of_papers()
    rows = []
    for row, (paper, claims) in enumerate(judged.items()):
        rows += squares(PAPERS[paper], claims, 34 + 26 * row)
    width = 130 + 18 * max(len(claims) for claims in judged.values())
    width = max(width, 470)
    height = 48 + 26 * len(judged)
    words = "; ".join(
        f"{PAPERS[paper]}: "
        + ", ".join(f"{n} {verdict}" for verdict, n in tally(claims).items())
        for paper, claims in judged.items()
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{words}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        *legend(),
        *rows,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def legend() -> list[str]:
    """The four verdicts with their colours."""
    lines = []
    for column, verdict in enumerate(VERDICTS):
        x = 110 + 80 * column
        lines += [
            f'<rect x="{x}" y="10" width="14" height="14" fill="{COLOURS[verdict]}"/>',
            f'<text x="{x + 19}" y="22" fill="#333333">{verdict}</text>',
        ]
    return lines


def squares(name: str, claims: list[Claim], y: int) -> list[str]:
    """A paper's name and its claims, in the order of the verdicts."""
    ordered = sorted(claims, key=lambda claim: VERDICTS.index(claim.verdict))
    lines = [f'<text x="12" y="{y + 14}" fill="#333333">{name}</text>']
    for place, claim in enumerate(ordered):
        lines.append(
            f'<rect x="{110 + 18 * place}" y="{y + 2}" width="14" height="14" '
            f'fill="{COLOURS[claim.verdict]}"/>'
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
