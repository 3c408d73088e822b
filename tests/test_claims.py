"""Claims: the one rule, at its edges, and verdicts that follow from their numbers."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednb.claims import VERDICTS, Claim, Interval, read, tally, write


def claim(low=None, high=None, printed=None, **more):
    interval = None if low is None else Interval((low + high) / 2, low, high)
    words = {"replicates": "3 seeds", "scale": "laptop"} if interval else {}
    return Claim("A beats B", "Table 2", interval, printed, **words | more)


@pytest.mark.parametrize(
    ("low", "high", "printed", "verdict"),
    [
        (0.1, 2.0, None, "holds"),
        (0.1, 2.0, 5.0, "holds"),  # smaller than printed, and still there
        (-2.0, -0.1, None, "fails"),
        (-2.0, -0.1, 1.0, "fails"),
        (-1.0, 1.0, 3.0, "fails"),  # contains zero and excludes the printed effect
        (-1.0, 1.0, 0.5, "open"),  # contains both
        (-1.0, 1.0, 1.0, "open"),
        (-1.0, 1.0, None, "open"),  # nothing to compare with
        (-9.0, 9.0, 3.0, "open"),  # too wide to tell
        (0.0, 1.0, 0.5, "open"),  # above zero means above
        (math.nan, math.nan, 3.0, "open"),  # a single pair
    ],
)
def test_the_rule(low, high, printed, verdict):
    assert claim(low, high, printed).verdict == verdict


def test_a_claim_with_a_threshold_of_its_own():
    assert claim(0.85, 0.95, threshold=0.9, unit="ARI").verdict == "open"
    assert claim(0.91, 0.95, threshold=0.9, unit="ARI").verdict == "holds"
    assert claim(0.1, 0.2, threshold=0.9, unit="ARI").verdict == "fails"


def test_what_cannot_be_tested_says_why():
    untested = claim(reason="the data cannot be had here")
    assert untested.verdict == "not testable"
    assert untested.evidence == "the data cannot be had here"


@given(st.floats(-10, 10), st.floats(0, 10), st.floats(-10, 10) | st.none())
def test_a_verdict_says_why_in_words_that_are_true(middle, half, printed):
    low, high = middle - half, middle + half
    found = claim(low, high, printed)
    assert found.verdict in VERDICTS
    assert ("above" in found.why) == (low > 0)
    assert ("below" in found.why) == (high < 0)
    assert ("excludes the printed" in found.why) == (
        low <= 0 <= high and printed is not None and printed > high
    )


def test_more_evidence_never_turns_holds_into_fails():
    """An interval within another one cannot get the opposite verdict."""
    for low, high in ((0.1, 3.0), (-3.0, -0.1)):
        wide = claim(low, high).verdict
        narrow = claim(low + 0.05, high - 0.05).verdict
        assert wide == narrow


@pytest.mark.parametrize(
    "wrong",
    [
        {"statement": " ", "where": "T", "reason": "x"},
        {"statement": "A", "where": "", "reason": "x"},
        {"statement": "A", "where": "T"},
        {"statement": "A", "where": "T", "interval": Interval(0, -1, 1)},
        {
            "statement": "A",
            "where": "T",
            "interval": Interval(0, 1, -1),
            "replicates": "3 seeds",
            "scale": "laptop",
        },
    ],
)
def test_incomplete_claims_are_refused(wrong):
    with pytest.raises(ValueError, match=r"needs|give|say|upside"):
        Claim(**wrong)


def test_evidence_tells_all_a_reader_needs():
    words = claim(0.5, 1.5, 2.0).evidence
    assert words == ("+1 points (+0.5 to +1.5), 3 seeds; laptop; the paper prints +2")
    assert "(" not in claim(math.nan, math.nan).evidence


def test_claims_round_trip_and_a_forged_verdict_is_noticed(tmp_path):
    path = tmp_path / "verdicts.json"
    claims = [claim(0.1, 2.0, 3.0), claim(reason="no data"), claim(math.nan, math.nan)]
    write(path, claims)
    back = read(path)
    assert [c.verdict for c in back] == ["holds", "not testable", "open"]
    assert back[:2] == claims[:2]
    assert tally(back) == {"holds": 1, "fails": 0, "open": 1, "not testable": 1}
    rows = json.loads(path.read_text())
    rows[0]["verdict"] = "fails"
    path.write_text(json.dumps(rows))
    with pytest.raises(ValueError, match="by its numbers it is 'holds'"):
        read(path)
