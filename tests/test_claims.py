"""Claims: the one rule, at its edges, and verdicts that follow from their numbers."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fednb import plots, tables
from fednb.claims import (
    VERDICTS,
    Claim,
    Interval,
    effect,
    exactly,
    forest,
    judged,
    mean_of,
    read,
    tally,
    write,
)
from fednb.papers import PACKAGES
from fednb.papers.common import results


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
    page = json.loads(path.read_text())
    page["claims"][0]["verdict"] = "fails"
    path.write_text(json.dumps(page))
    with pytest.raises(ValueError, match="by its numbers it is 'holds'"):
        read(path)


def test_an_effect_of_shares_is_in_points():
    shares = pd.DataFrame(
        {
            "row": ["a", "a", "b", "b"],
            "seed": [0, 1, 0, 1],
            "x": [0.5, 0.6, 0.4, 0.4],
        }
    )
    pair = tables.paired(shares, "row", "a", "b", "x", ["seed"])
    mean, low, high = effect(pair)
    assert mean == pytest.approx(15)
    assert low == pytest.approx(100 * pair.low)
    assert high == pytest.approx(100 * pair.high)


def test_a_mean_has_the_interval_of_the_paired_difference_from_zero():
    values = [0.4, 1.0, 2.5]
    frame = pd.DataFrame({"row": list("aaabbb"), "seed": [0, 1, 2] * 2})
    frame["x"] = [*values, 0.0, 0.0, 0.0]
    pair = tables.paired(frame, "row", "a", "b", "x", ["seed"])
    assert mean_of(values) == pytest.approx((pair.mean, pair.low, pair.high))
    assert math.isnan(mean_of([1.0]).low)


def test_a_number_without_noise_is_judged_by_its_threshold():
    words = {"replicates": "all 40 rounds", "scale": "toy", "unit": "rounds"}
    never = Claim("F never rises", "6.2", exactly(40), threshold=39.5, **words)
    once = Claim("F never rises", "6.2", exactly(39), threshold=39.5, **words)
    assert never.verdict == "holds"
    assert once.verdict == "fails"
    assert "to" not in never.evidence.split(";")[0]


def test_the_page_shows_every_claim_with_evidence_and_verdict():
    claims = [claim(0.1, 2.0, 1.0), claim(-1.0, 1.0), claim(reason="no <data>")]
    table = judged(claims)
    assert "1 holds, 1 open, 1 not testable" in table.html
    twice = judged([claim(1, 4), claim(2, 4), claim(-2, -1)])
    assert "2 hold, 1 fails." in twice.html
    assert "no &lt;data&gt;" in table.html and "no <data>" in table.text
    with pytest.raises(ValueError, match="not both"):
        judged([claim(0.1, 2.0), claim(0.1, 2.0, ours=True)])


def test_a_forest_has_a_line_for_every_claim():
    claims = [claim(0.1, 2.0, 1.0), claim(-1.0, 1.0), claim(reason="no <data>")]
    found = forest(claims, "A & B")
    assert found.html.count('role="listitem"') == 3
    assert found.html.count("<svg") == 2  # what is not testable has no bar
    assert "A &amp; B: 1 holds, 1 open, 1 not testable." in found.html
    assert "A beats B: +1.1 (+0.1 to +2), paper +1 points, holds" in found.text


def test_bars_lie_where_their_numbers_are():
    """The longest end reaches 95 of 104 units; the rest is in proportion."""
    (bar,) = re.findall(r'class="holds" d="M(.+?) 0H(.+?)"', forest([claim(1, 4)]).html)
    assert bar == ("23.8", "95.0")
    above = forest([claim(0.5, 1.0, 2.0, threshold=-2.0)]).html
    assert 'd="M95.0 -6l6 6' in above  # the paper's effect, 4 above the line
    assert "M59.4 0H71.2" in above


def test_dots_show_the_paper_and_every_scale():
    ours = pd.DataFrame(
        {
            "row": ["A", "A", "B", "B"],
            "setting": ["x", "x", "x", "y"],
            "accuracy": [0.1, 0.3, 0.3, 0.4],
            "scale": ["laptop", "laptop", "paper", "laptop"],
        }
    )
    paper = pd.DataFrame({"row": ["A", "C"], "setting": "x", "accuracy": [0.3, 0.6]})
    how = {"rows": "row", "columns": "setting", "value": "accuracy"}
    fig = plots.dots(ours, paper, ours_name="scale", **how)
    left, right = fig.axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["A", "B", "C"]
    drawn = [(*line.get_xdata(),) for line in left.lines if line.get_marker() != "None"]
    assert drawn == [(0.2,), (0.3,), (0.3,), (0.6,)]
    assert right.get_title() == "y"
    fig = plots.dots(ours, paper, theirs="archive", **how)
    names = [text.get_text() for text in fig.legends[0].get_texts()]
    assert names == ["ours", "archive"]


def test_the_interval_of_a_mean_is_scipys():
    x = [0.3, 0.1, 0.7, 0.2]
    found = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    assert mean_of(x) == pytest.approx((np.mean(x), found.low, found.high))
    assert math.isnan(mean_of([1.0]).low)
    with pytest.raises(ValueError, match="at least one"):
        mean_of([])


JUDGED = [name for name, package in PACKAGES.items() if hasattr(package, "claims")]


@pytest.mark.parametrize("paper", JUDGED)
def test_the_committed_verdicts_are_those_of_the_records(paper, tmp_path):
    """If not: ``python -m fednb.papers``."""
    write(tmp_path / "verdicts.json", PACKAGES[paper].claims.claims())
    committed = results(paper) / "verdicts.json"
    assert committed.read_text() == (tmp_path / "verdicts.json").read_text()
