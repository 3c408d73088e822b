"""Widgets made from a dataclass: a form offers what the class accepts, no more.

The rules are those that the class itself checks (``checks.rules``): numbers become
sliders, choices drop-downs, flags check boxes. What no slider can hold, such as
"None or an integer", is a text box, whose text is read as a Python literal and checked
by the class. Under each field stands the comment that the source has beside it.
"""

from __future__ import annotations

import ast
import html
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import ipywidgets as w

from .. import checks, methods

PRESETS = ("as_printed", "as_released", "corrected")
WIDE = {"description_width": "130px"}
SMALL = (
    "font-size:12px;line-height:1.3;color:var(--jp-ui-font-color2,#59636e);"
    "padding:0 0 6px 8px"
)
ANYTHING = checks.Rule(lambda value: True, "")  # of a field that nobody checks


class PresetError(ValueError):
    """A method has no preset of that name."""


class Form:
    """Widgets for the fields of a dataclass instance.

    ``form.value()`` builds an instance from the widgets' values, or raises the class's
    own error. ``form.set(instance)`` moves the widgets to the values of that instance.
    ``on_change`` is called after each change by hand, and once after ``set``. Fields in
    ``without`` have no widget and keep their value. ``form.view`` shows all widgets
    with their notes.
    """

    def __init__(
        self,
        instance: Any,
        on_change: Callable[[], None] = lambda: None,
        without: Iterable[str] = ("sampled",),
    ) -> None:
        self._instance = instance
        self._on_change = on_change
        self._quiet = False
        rules = checks.rules(instance)
        notes = field_notes(type(instance))
        self.widgets: dict[str, w.Widget] = {}
        for one in fields(instance):
            if one.name in without or not one.init:
                continue
            own = getattr(instance, one.name)
            widget = widget_for(one.name, own, rules.get(one.name))
            widget.observe(self._changed, "value")
            self.widgets[one.name] = widget
        self.view = w.VBox(
            [row(widget, notes.get(name, "")) for name, widget in self.widgets.items()]
        )

    def value(self) -> Any:
        """The instance that the widgets describe."""
        given = {}
        for name, widget in self.widgets.items():
            own = getattr(self._instance, name)
            shown = read(widget)
            if isinstance(shown, float) and shown != own:
                shown = three_digits(shown)
            given[name] = shown
        return replace(self._instance, **given)

    def set(self, instance: Any) -> None:
        """Show another instance of the same class."""
        self._quiet = True
        try:
            for name, widget in self.widgets.items():
                show(widget, getattr(instance, name))
        finally:
            self._quiet = False
        self._instance = instance
        self._on_change()

    def preset(self, name: str) -> None:
        """Show one of the class's presets."""
        self.set(preset(type(self._instance), name))

    def _changed(self, _: Any) -> None:
        if not self._quiet:
            self._on_change()


def presets(cls: type) -> list[str]:
    """Which of ``as_printed``, ``as_released`` and ``corrected`` a method has."""
    return [name for name in PRESETS if hasattr(cls, name)]


def preset(cls: type, name: str) -> Any:
    """The method as that preset makes it."""
    if name not in presets(cls):
        raise PresetError(f"{cls.__name__} has no preset {name}")
    return getattr(cls, name)()


def field_notes(cls: type) -> dict[str, str]:
    """What the source says beside each field, from the comments of class and bases.

    A comment stands behind the field, or on the lines above it.
    """
    notes: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found = _notes_in_source(base, {one.name for one in fields(cls)})
        notes |= {name: note for name, note in found.items() if note}
    return notes


def _notes_in_source(cls: type, names: set[str]) -> dict[str, str]:
    """The comments beside these fields in the source of one class."""
    try:
        lines = textwrap.dedent(inspect.getsource(cls)).splitlines()
    except (OSError, TypeError):  # typed in at a prompt
        return {}
    notes: dict[str, str] = {}
    above: list[str] = []
    for line in lines:
        code, _, comment = line.strip().partition("#")
        name = code.partition(":")[0].strip()
        if not code:
            above.append(comment.strip()) if comment else above.clear()
        elif name in names and name not in notes:
            notes[name] = " ".join([*above, comment.strip()]).strip()
            above.clear()
        else:
            above.clear()
    return notes


# --- one field ------------------------------------------------------------------------


def row(widget: w.Widget, note: str) -> w.Widget:
    """A field's widget with a note below it; a text box says what it accepts."""
    if not note and isinstance(widget, w.Combobox):
        note = widget.placeholder
    if not note:
        return widget
    words = html.escape(note.replace("``", ""))
    return w.VBox([widget, w.HTML(f'<div style="{SMALL}">{words}</div>')])


def three_digits(value: float) -> float:
    """A slider's number without the digits that its arithmetic adds."""
    return float(f"{value:.3g}")


def widget_for(name: str, value: Any, rule: checks.Rule | None) -> w.Widget:
    """The widget of a field with this value and rule."""
    look = {"description": name.replace("_", " "), "style": WIDE}
    look["layout"] = w.Layout(width="auto")
    if rule is None:
        rule = ANYTHING
    kind = rule.kind
    if kind == "flag":
        return w.Checkbox(value=value, indent=True, **look)
    if kind == "choice":
        return w.Dropdown(options=list(rule.options), value=value, **look)
    if kind == "integer":
        return _integer(value, rule, look)
    if kind == "number" and rule.least is not None and not rule.holds(math.inf):
        return _number(value, rule, look)
    if type(value) in methods.ALL:
        return _method(value, rule, look)
    return w.Combobox(
        value=repr(value),
        options=[repr(option) for option in _options(rule)],
        placeholder=rule.need,
        continuous_update=False,
        **look,
    )


def _integer(value: int, rule: checks.Rule, look: dict) -> w.Widget:
    least = 0 if rule.least is None else int(rule.least)
    most = max(20, 4 * value) if rule.most is None else int(rule.most)
    return w.IntSlider(
        value=value, min=least, max=most, continuous_update=False, **look
    )


def _number(value: float, rule: checks.Rule, look: dict) -> w.Widget:
    """A slider that moves by factors where zero is excluded, else by equal steps.

    Where the class sets no upper bound, the slider ends at a multiple of the value.
    """
    look = {"continuous_update": False, "readout_format": ".3g", **look}
    least: Any = rule.least
    if least == 0 and not rule.holds(0.0):
        most = 1000 * value if rule.most is None else rule.most
        return w.FloatLogSlider(
            value=value,
            min=math.log10(value / 1000),
            max=math.log10(most),
            step=0.001,
            **look,
        )
    if rule.most is not None:
        most = rule.most
    elif value > least:
        most = 4 * value
    else:
        most = least + 1
    step = (most - least) / 1000
    if not rule.holds(least):
        least += step
    if not rule.holds(most):
        most -= step
    return w.FloatSlider(value=value, min=least, max=most, step=step, **look)


def _method(value: Any, rule: checks.Rule, look: dict) -> w.Widget:
    """A drop-down of the methods that the rule lets through, as they are by default."""
    offered = {type(value).__name__: value}
    kinds: Iterable[Any] = methods.ALL
    for cls in kinds:
        try:
            candidate = cls()
        except TypeError:  # needs arguments
            continue
        if rule.holds(candidate):
            offered.setdefault(cls.__name__, candidate)
    return w.Dropdown(options=list(offered.items()), value=value, **look)


def _options(rule: checks.Rule) -> list[Any]:
    """What a text box can suggest: choices and None, also inside other rules."""
    found = list(rule.options)
    if rule.kind == "optional":
        found.append(None)
    for part in rule.parts:
        found += _options(part)
    return found


def read(widget: w.Widget) -> Any:
    """The value of a field's widget."""
    if not isinstance(widget, w.Combobox):
        return widget.value
    text = widget.value.strip()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    if text.replace("_", "").isalnum() and not text[:1].isdigit():
        return float("inf") if text == "inf" else text  # a word without quotes
    raise ValueError(
        f"{widget.description} = {text}: need {widget.placeholder or 'a Python value'}"
    )


def show(widget: w.Widget, value: Any) -> None:
    """Let a field's widget show a value; bounds give way if they must."""
    if isinstance(widget, w.Combobox):
        widget.value = repr(value)
        return
    if isinstance(widget, w.FloatLogSlider):
        widget.min = min(widget.min, math.log10(value))
        widget.max = max(widget.max, math.log10(value))
    elif isinstance(widget, w.IntSlider | w.FloatSlider):
        widget.min = min(widget.min, value)
        widget.max = max(widget.max, value)
    widget.value = value
