"""Rules of arguments: what they let through, and the sentence they refuse with."""

import math
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from fednb import checks


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (checks.integer(1), [1, 7, np.int64(3)], [0, -1, 1.0, 2.5, True, "3", None]),
        (checks.integer(0, 5), [0, 5], [6, -1]),
        (
            checks.number(least=0),
            [0, 0.5, np.float32(1)],
            [-1, math.nan, math.inf, "a"],
        ),
        (checks.number(above=0, infinite=True), [1, math.inf], [0, math.nan, None]),
        (checks.number(least=0, below=1), [0, 0.99], [1, True]),
        (checks.choice("adam", "sgd"), ["adam"], ["Adam", None, 3]),
        (checks.optional(checks.integer(1)), [None, 2], [0, 1.5]),
        (checks.either(checks.integer(1), checks.choice("x")), [1, "x"], [0, "y"]),
        (
            checks.sampled,
            [1, 10, 0.1, 1.0],
            [0, 0.0, 1.5, -1, math.nan, "x", None, True],
        ),
        (checks.flag, [True, False], [0, 1, None]),
        (checks.seed, [0, 5], [-1, 1.5, None]),
    ],
)
def test_a_rule_lets_through_what_it_says(rule, good, bad):
    assert all(rule.holds(value) for value in good)
    assert not any(rule.holds(value) for value in bad)


@dataclass(frozen=True)
class Example:
    clusters: int = 3

    def __post_init__(self):
        checks.fields(self, clusters=checks.integer(1))


def test_the_message_names_owner_field_value_and_need():
    with pytest.raises(
        ValueError, match=r"^Example\(clusters=2.5\): need an integer >= 1$"
    ):
        Example(2.5)
    with pytest.raises(
        ValueError, match=r"^rbf\(gamma=-1\): need a finite number > 0$"
    ):
        checks.argument("rbf", "gamma", -1, checks.number(above=0))


def test_a_missing_extra_is_named(monkeypatch):
    assert checks.extra("papers", "math") is math
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "fednb\[slurm\]"'):
        checks.extra("slurm", "submitit")


def test_what_an_extra_itself_lacks_is_not_hidden(monkeypatch, tmp_path):
    (tmp_path / "halfway.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found") as error:
        checks.extra("papers", "halfway")
    assert "pip install" not in str(error.value)
