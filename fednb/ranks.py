"""Do methods differ over many runs? Ranks, and tests on them.

Demšar, *Statistical comparisons of classifiers over multiple data sets*, JMLR 2006.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .plots import rank_diagram

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series


class CriticalDifferences(NamedTuple):
    """Which of several methods differ, judged by their ranks over many runs."""

    ranks: Series  # mean rank of each method, 1 is best, in that order
    friedman: float  # p-value of Friedman's test, whose null is: all methods are alike
    # for each pair, Wilcoxon's signed-rank test, adjusted by Holm; 1 on the diagonal
    p: DataFrame
    # maximal groups of neighbours in rank without significant differences
    groups: list[tuple[str, ...]]
    runs: int  # without those in which a score is missing


def critical_differences(
    scores: DataFrame, best: str = "high", alpha: float = 0.05
) -> CriticalDifferences:
    """Compare methods (columns) over runs (lines) by their ranks.

    Friedman's test comes first, then all pairs by Wilcoxon with Holm's correction.

    ``best`` says whether ``"high"`` (insertion) or ``"low"`` (deletion) scores are
    good. A run in which a score is nan is left out. If Friedman's test finds nothing,
    at p >= alpha, all methods are one group. Equal scores count half for each side
    (Demšar 2006).
    """
    import pandas as pd
    from scipy.stats import friedmanchisquare, rankdata

    if best not in ("high", "low"):
        raise ValueError(f"best={best!r}: choose high or low")
    scores = scores.dropna()
    if scores.shape[1] < 3 or len(scores) < 2:
        raise ValueError(
            f"{scores.shape[1]} methods in {len(scores)} runs without nan: Friedman "
            "needs at least 3 methods and 2 runs"
        )
    x = scores.to_numpy(float)
    worst_last = x
    if best == "high":
        worst_last = -x
    mean_ranks = rankdata(worst_last, axis=1).mean(0)
    ranks = pd.Series(mean_ranks, scores.columns).sort_values(kind="stable")
    friedman = 1.0
    if np.ptp(x, axis=1).any():  # some methods differ in some run
        friedman = float(friedmanchisquare(*x.T).pvalue)
    p = _pairs(scores[ranks.index])
    same = np.ones(p.shape, dtype=bool)
    if friedman < alpha:
        same = p.to_numpy() >= alpha
    return CriticalDifferences(
        ranks, friedman, p, _stretches(list(ranks.index), same), len(scores)
    )


def difference_diagram(found: CriticalDifferences) -> Figure:
    """Draw mean ranks, the best to the left, with a bar over each group of equals."""
    return rank_diagram(found.ranks.to_dict(), found.groups)


def signed_rank(gaps: np.ndarray) -> float:
    """Wilcoxon's p-value of paired differences (n,); zeros count half for each side."""
    from scipy.stats import wilcoxon

    if not gaps.any():
        return 1.0
    return float(wilcoxon(gaps, zero_method="zsplit").pvalue)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values (m,).

    They are the i-th least times m - i + 1, made monotone, at most 1.
    """
    p = np.asarray(p, float)
    order = p.argsort(kind="stable")
    raised = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    out = np.empty_like(p)
    out[order] = raised.clip(max=1)
    return out


def _pairs(scores: DataFrame) -> DataFrame:
    """Adjusted p-values of all pairs of columns, (A, A)."""
    import pandas as pd

    x = scores.to_numpy(float)
    i, j = np.triu_indices(x.shape[1], 1)
    gaps = (x[:, i] - x[:, j]).T  # (pairs, runs)
    p = holm(np.array([signed_rank(gap) for gap in gaps]))
    table = np.ones((x.shape[1], x.shape[1]))
    table[i, j] = p
    table[j, i] = p
    return pd.DataFrame(table, scores.columns, scores.columns)


def _stretches(names: list[str], same: np.ndarray) -> list[tuple[str, ...]]:
    """The longest stretches of names, two at least, in which all pairs are the same."""
    found = []
    reached = 0
    for a in range(len(names)):
        b = a + 1
        while b < len(names) and same[a : b + 1, b].all():
            b += 1
        if b > max(reached, a + 1):  # not inside the stretch before
            found.append(tuple(names[a:b]))
            reached = b
    return found
