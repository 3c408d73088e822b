"""Checks of arguments: one sentence that says what was given and what is needed.

A rule knows a test and the words for it. ``fields`` holds the fields of a dataclass to
their rules, ``argument`` a single argument of a function::

    def __post_init__(self) -> None:
        checks.fields(self, clusters=checks.integer(1), sampled=checks.sampled)

    checks.argument("rbf", "gamma", gamma, checks.number(above=0))

Both raise ``ValueError``: ``IFCA(clusters=2.5): need an integer >= 1``. ``extra``
imports what a plain ``pip install fednb`` does not bring, or says how to install it.

``rules(IFCA())`` gives back the rules that a class holds its fields to, by name. A form
made of them offers exactly what the class accepts.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from numbers import Integral, Real
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np


class Rule(NamedTuple):
    """What an argument must be, as a test and in words.

    The rest is for those who build a form: ``kind`` is "integer", "number", "choice",
    "flag", "sampled", "optional" or "either" ("" if only the test knows); ``options``
    are the values of a choice; ``least`` and ``most`` bound a number (the bounds
    themselves may be excluded, the test knows); ``parts`` are the rules that this one
    is made of.
    """

    holds: Callable[[Any], bool]
    need: str
    kind: str = ""
    options: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None
    parts: tuple[Rule, ...] = ()


class _Heard(NamedTuple):
    """The rules that an instance's check has named so far."""

    owner: Any
    rules: dict[str, Rule]


_listener: ContextVar[_Heard | None] = ContextVar("_listener", default=None)


def fields(owner: Any, **rules: Rule) -> None:
    """Check fields of a dataclass instance, each against its rule."""
    heard = _listener.get()
    if heard is not None and heard.owner is owner:
        heard.rules.update(rules)
    for name, rule in rules.items():
        argument(type(owner).__name__, name, getattr(owner, name), rule)


def rules(owner: Any) -> dict[str, Rule]:
    """The rules of an instance's fields: those that its ``__post_init__`` checks."""
    heard = _Heard(owner, {})
    token = _listener.set(heard)
    try:
        getattr(owner, "__post_init__", lambda: None)()
    finally:
        _listener.reset(token)
    return heard.rules


def argument(owner: str, name: str, value: Any, rule: Rule) -> None:
    """Check one argument of the function or class named ``owner``."""
    if not rule.holds(value):
        raise ValueError(f"{owner}({name}={value!r}): need {rule.need}")


def array(owner: str, name: str, value: Any) -> np.ndarray:
    """Take an argument as an array of real numbers; refuse strings and the like."""
    try:
        found = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{owner}({name}): need an array of numbers") from error
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{owner}({name} of {found.dtype}): need real numbers")
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def extra(name: str, module: str) -> ModuleType:
    """Import a module that comes with one of fednb's extras, called ``name``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # something that the module itself needs
            raise
        raise ModuleNotFoundError(
            f'{module} is not installed: pip install "fednb[{name}]"', name=module
        ) from error


def integers(count: int | None = None) -> Rule:
    """A sequence of integers >= 1, so many if ``count`` is given."""

    def holds(value: Any) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str):
            return False
        right_length = count is None or len(value) == count
        return right_length and all(_is_integer(v) and v >= 1 for v in value)

    if count is None:
        return Rule(holds, "a sequence of integers >= 1")
    return Rule(holds, f"a sequence of {count} integers >= 1")


def integer(least: int | None = None, most: int | None = None) -> Rule:
    """An integer (not a bool) within bounds."""
    limits = _limits(least=least, most=most)

    def holds(value: Any) -> bool:
        return _is_integer(value) and _within(value, least=least, most=most)

    return Rule(holds, f"an integer{limits}", "integer", least=least, most=most)


def number(
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    *,
    infinite: bool = False,
) -> Rule:
    """A real number (not a bool, not nan) within bounds; finite unless ``infinite``."""
    limits = _limits(least=least, most=most, above=above, below=below)

    def holds(value: Any) -> bool:
        if not _is_number(value) or math.isnan(value):
            return False
        if math.isinf(value) and not infinite:
            return False
        return _within(value, least=least, most=most, above=above, below=below)

    kind = "a finite number"
    if infinite:
        kind = "a number"
    lowest = least
    if lowest is None:
        lowest = above
    highest = most
    if highest is None:
        highest = below
    return Rule(holds, f"{kind}{limits}", "number", least=lowest, most=highest)


def choice(*options: Any) -> Rule:
    """One of the options, all of one type."""
    words = " or ".join(repr(option) for option in options)
    kinds = tuple(type(option) for option in options)

    def holds(value: Any) -> bool:
        return isinstance(value, kinds) and value in options

    return Rule(holds, words, "choice", options)


def optional(rule: Rule) -> Rule:
    """None, or what the rule says."""
    return Rule(
        lambda value: value is None or rule.holds(value),
        f"None or {rule.need}",
        "optional",
        parts=(rule,),
    )


def either(first: Rule, second: Rule) -> Rule:
    """What one of two rules says."""

    def holds(value: Any) -> bool:
        return first.holds(value) or second.holds(value)

    return Rule(
        holds, f"{first.need}, or {second.need}", "either", parts=(first, second)
    )


def _is_sampled(value: Any) -> bool:
    if _is_integer(value):
        return value >= 1
    return isinstance(value, float) and 0 < value <= 1


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _within(
    value: float,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> bool:
    return (
        (least is None or value >= least)
        and (most is None or value <= most)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _limits(
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> str:
    """Words for the bounds: `` >= 0 and < 1``."""
    bounds = {">=": least, ">": above, "<=": most, "<": below}
    words = [f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None]
    if not words:
        return ""
    return " " + " and ".join(words)


sampled = Rule(
    _is_sampled,
    "a number of clients (an integer >= 1) or a fraction in (0, 1]",
    "sampled",
)
flag = Rule(lambda value: isinstance(value, bool), "True or False", "flag")
seed = integer(0)
