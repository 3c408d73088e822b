"""Sliders over the outcome of a function, in JupyterLab and in the printed book.

``explore(fn, alpha=[0.1, 1, 10], K=range(2, 9, 2))`` calls ``fn`` at every combination.
In JupyterLab it is a widget: values on the grid are looked up, others computed by the
kernel. In the book it is HTML that carries frames and ES module along, so that a page
needs neither kernel nor network. A frame is a matplotlib figure; a drawing made by
:func:`heatmap`, :func:`lines`, :func:`scatter`, :func:`bars` or :func:`text`; or a list
of these, shown side by side.
"""

from __future__ import annotations

import html
import itertools
import json
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any
from zlib import compress

import anywidget
import numpy as np
import traitlets
from tqdm import tqdm

from . import plots

KINDS = {"int": int, "float": float, "choice": str}
MOST = 2_000  # combinations of one grid
HEAVY = 12_000  # bytes of a compressed SVG; beyond it a WebP may be smaller
LIMIT = 300_000  # bytes of one explorer in a page
NOTE = "Precomputed. Values between the marks need a running kernel."
ADVICE = (
    f"{LIMIT // 1000} kB; use fewer grid values, smaller figures, or arrays "
    "(heatmap, lines, ...) instead of figures"
)


def explore(
    fn: Callable,
    *,
    title: str = "",
    alt: str = "",
    labels: Mapping[str, str] | None = None,
    start: Mapping[str, Any] | None = None,
    **grid: Iterable,
) -> Explorer:
    """Evaluate ``fn`` at every combination of the grid, and show sliders over that.

    Each further keyword is a parameter of ``fn`` with its values: numbers give a
    slider, words a choice. ``labels`` renames parameters for the reader,
    ``{"alpha": "Dirichlet α"}``; ``start`` names the values of the grid to open on,
    ``{"alpha": 1}``, instead of the first ones. ``alt`` tells in words what the
    pictures show (else the title or the first line of ``fn``'s docstring does). Over
    2,000 combinations or 300 kB in a page are refused.
    """
    labels = labels or {}
    start = start or {}
    unknown = {*labels, *start} - {*grid}
    if unknown:
        raise ValueError(
            f"explore: no parameter {', '.join(sorted(unknown))}; there are "
            f"{', '.join(grid)}"
        )
    params = []
    for name, values in grid.items():
        label = labels.get(name, name)
        params.append(_parameter(name, label, values, start.get(name)))
    return Explorer(fn, title, alt, params)


class Explorer(anywidget.AnyWidget):
    """What :func:`explore` returns: a live widget, with ``html`` for a page.

    The view asks for the frames by a message. They are no part of the synchronised
    state: that is saved with an executed notebook, and every page of the book would
    then carry the frames twice.
    """

    _esm = Path(__file__).with_name("explore.js")
    _css = Path(__file__).with_name("explore.css")
    spec = traitlets.Dict().tag(sync=True)
    # shown until the frames have arrived
    first: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def __init__(self, fn: Callable, title: str, alt: str, params: list[dict]) -> None:
        self.fn = fn
        self.name = getattr(fn, "__name__", "fn")
        self.params = params
        count = prod(len(p["values"]) for p in params)
        if count > MOST:
            raise ValueError(
                f"explore: {count:,} combinations, over the limit of {MOST:,}; use "
                "fewer values"
            )
        keys = list(itertools.product(*[p["values"] for p in params]))
        self.frames = {
            key: self._call(key)
            for key in tqdm(keys, delay=2, leave=False, file=sys.stdout)
        }
        first_line = (fn.__doc__ or "").strip().split("\n")[0]
        alt = alt or title or first_line or self.name
        note = "Precomputed."
        if any(p["kind"] != "choice" for p in params):
            note = NOTE
        first = self.frames[tuple(p["start"] for p in params)]
        super().__init__(
            spec={"title": title, "alt": alt, "params": params, "note": note},
            first=first,
        )
        self.html = self._page("".join(_still(panel, alt) for panel in self.first))
        self.on_msg(self._answer)

    def _page(self, still: str) -> str:
        """The explorer as HTML that carries its frames; ``still`` is shown at first."""
        data = json.dumps(
            {"spec": self.spec, "frames": [*self.frames.values()]},
            separators=(",", ":"),
        )
        packed = b64encode(compress(data.encode(), 9)).decode()
        page = (
            f'<div class="fednb-explore" data-frames="{packed}">\n'
            f'<style>\n{self._css}</style>\n<div class="fx-first">{still}</div>\n'
            "<noscript>Without JavaScript the sliders do not move: this is where they "
            "start.</noscript>\n"
            f'<script type="module">\n{self._esm}boot(document);\n</script>\n</div>'
        )
        size = len(page.encode())
        if size > LIMIT:
            raise ValueError(
                f"explore: {len(self.frames)} frames make {size // 1000} kB, over "
                f"{ADVICE}"
            )
        return page

    def _call(self, key: tuple) -> list[dict]:
        """Panels of one combination, computed; an error names the combination."""
        given = {p["name"]: value for p, value in zip(self.params, key, strict=True)}
        try:
            out = self.fn(**given)
            if not isinstance(out, list | tuple):
                out = [out]
            return [_panel(part) for part in out]
        except Exception as error:
            where = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise RuntimeError(
                f"{self.name}({where}) failed: {type(error).__name__}: {error}"
            ) from error

    def _answer(self, _, question: dict, buffers: list) -> None:
        """All frames if the view names no values, else the frame at these values."""
        values = question["values"]
        answer: dict[str, Any] = {"frames": [*self.frames.values()]}
        try:
            if values:
                key = self._key(values)
                answer = {"panels": self.frames.get(key) or self._call(key)}
        except (Exception, KeyboardInterrupt) as error:
            # the view shows it and goes on working
            answer = {"error": str(error) or type(error).__name__}
        self.send({"ticket": question["ticket"], **answer})

    def _key(self, values: Mapping[str, Any]) -> tuple:
        """The values in the order of the parameters; JavaScript's 1.0 may mean 1."""
        return tuple(KINDS[p["kind"]](values[p["name"]]) for p in self.params)

    def _repr_mimebundle_(self, **kwargs) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return {**data, "text/html": self.html}, metadata

    def __repr__(self) -> str:
        names = [self.name, *(p["name"] for p in self.params)]
        return f"explore({', '.join(names)})"


class Board(anywidget.AnyWidget):
    """Drawings that a program changes while it runs; for a live kernel only.

    ``board.show(lines(...), text(...))`` puts other drawings in their place, up to
    ``columns`` of them side by side. Only data travel, the browser draws. It tells when
    it has drawn: while ``board.busy``, a program should not send more, or a slow
    browser would fall behind.
    """

    _esm = Path(__file__).with_name("explore.js")
    _css = Path(__file__).with_name("explore.css")
    panels: Any = traitlets.List().tag(sync=True)
    columns = traitlets.Int(2).tag(sync=True)
    number = traitlets.Int(0).tag(sync=True)  # of the drawings that were sent last
    drawn = traitlets.Int(0).tag(sync=True)  # the last number that a browser has drawn

    def show(self, *parts: Any) -> None:
        """Show these drawings, and no others."""
        panels = [_panel(part) for part in parts]
        if panels == self.panels:
            return
        with self.hold_sync():
            self.panels = panels
            self.number += 1
        self._sent = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether the browser is still drawing what was sent last.

        After ten seconds, or without a browser, the answer is False.
        """
        waiting = 0 < self.drawn < self.number
        return waiting and time.monotonic() - self._sent < 10


def _parameter(name: str, label: str, values: Any, start: Any = None) -> dict:
    """What the view must know of a parameter: its kind, its values, where it starts."""
    if np.ndim(values) == 0:
        values = [values]
    values = [v.item() if isinstance(v, np.generic) else v for v in values]
    kind = _kind(values)
    if kind is None or not 0 < len(values) == len(set(values)):
        raise ValueError(
            f"explore: {name}={values!r}; give a list of different finite numbers or "
            "different words"
        )
    if kind != "choice":  # a slider rises
        values = sorted(map(KINDS[kind], values))
    if start is None:
        start = values[0]
    if start not in values:
        raise ValueError(f"explore: start {name}={start!r} is not on the grid {values}")
    return {
        "name": name,
        "label": label,
        "kind": kind,
        "values": values,
        "start": KINDS[kind](start),
    }


def _kind(values: list) -> str | None:
    """The one of ``KINDS`` that fits all the values; None if none does."""
    types = {type(v) for v in values}
    if types == {str}:
        return "choice"
    if not types <= {int, float} or not all(map(isfinite, values)):
        return None
    if types == {int}:
        return "int"
    return "float"


def heatmap(
    z,
    x=None,
    y=None,
    *,
    xlabel="",
    ylabel="",
    zlabel="",
    title="",
    alt="",
    cmap="viridis",
    zlim=None,
) -> dict:
    """A matrix (rows, columns) as coloured cells; NaN leaves a hole.

    ``x`` and ``y`` name its columns and rows. ``cmap="diverging"`` is white at zero.
    All frames of an explorer have the same axes and colours. These cover the data of
    all frames, unless ``xlim``, ``ylim`` or ``zlim`` are given. This holds for the
    other drawings too.
    """
    if np.ndim(z) != 2 or np.size(z) == 0 or cmap not in ("viridis", "diverging"):
        raise ValueError(
            f"heatmap: shape {np.shape(z)}, cmap {cmap!r}; give a matrix, and viridis "
            "or diverging"
        )
    return _drawing("heatmap", locals(), x=np.shape(z)[1], y=np.shape(z)[0])


def lines(
    series,
    x=None,
    *,
    xlabel="",
    ylabel="",
    title="",
    alt="",
    xlim=None,
    ylim=None,
    log="",
) -> dict:
    """Curves ``{"FedAvg": values, ...}``, or one, over a common ``x``.

    ``log="y"`` leaves out what is not positive.
    """
    return _drawing("lines", locals())


def bars(series, x=None, *, xlabel="", ylabel="", title="", alt="", ylim=None) -> dict:
    """Bars ``{"FedAvg": values, ...}``, or one group of them, over categories ``x``."""
    return _drawing("bars", locals())


def scatter(
    xy,
    labels=None,
    *,
    xlabel="",
    ylabel="",
    title="",
    alt="",
    xlim=None,
    ylim=None,
    connect=False,
    equal=False,
) -> dict:
    """Points (N, 2) coloured by label (N,).

    ``connect`` joins those of one label, ``equal`` keeps circles round.
    """
    if np.ndim(xy) != 2 or np.shape(xy)[1] != 2:
        raise ValueError(
            f"scatter: points of shape {np.shape(xy)}; give an (N, 2) array"
        )
    if labels is None:
        labels = [""] * len(xy)
    labels = list(map(str, _plain(labels)))
    return _drawing("scatter", locals(), labels=len(xy))


def text(text: str) -> dict:
    """A line of text beside the drawings: a number, or a caption for the parameters."""
    return {"kind": "text", "text": str(text)}


def _drawing(kind: str, fields: dict, **lengths: int) -> dict:
    """What explore.js draws, as a plain dictionary.

    ``lengths`` says how many values a field must have; if it is None, it becomes
    0, 1, 2, ...
    """
    if "series" in fields:
        series = fields["series"]
        if not isinstance(series, Mapping):
            series = {"": series}
        fields["series"] = series
        lengths = {"x": max(map(len, series.values()), default=0)}
    for name, length in lengths.items():
        if fields[name] is None:
            fields[name] = range(length)
        if len(fields[name]) != length or length == 0:
            raise ValueError(
                f"{kind}: {len(fields[name])} values in {name} for {length} places; "
                "give one for each"
            )
    return {"kind": kind, **_plain(fields)}


def _plain(value):
    """Arrays as lists, floats with four digits, what is not finite as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if isfinite(value) else None
    if value is None or isinstance(value, int | str):
        return value
    return str(value)


def _panel(part) -> dict:
    """What a function may return, as a drawing: a figure, a drawing, words."""
    if hasattr(part, "savefig"):
        return _figure(part)
    fields = part
    if isinstance(part, str):
        fields = text(part)
    elif is_dataclass(part) and not isinstance(part, type):
        fields = asdict(part)
    makers: dict[str, Callable[..., dict]] = {
        "heatmap": heatmap,
        "lines": lines,
        "scatter": scatter,
        "bars": bars,
        "text": text,
    }
    if not isinstance(fields, Mapping) or fields.get("kind") not in makers:
        raise TypeError(
            f"cannot show {part!r:.60}; return a figure, {', '.join(makers)}, or a "
            "list of them"
        )
    arguments = dict(fields)
    make = makers[arguments.pop("kind")]
    return make(**arguments)


def _figure(figure) -> dict:
    """A matplotlib figure as SVG, or WebP if that is smaller.

    It is closed, or the notebook would show it a second time.
    """
    import matplotlib.pyplot as plt

    unwanted = dict.fromkeys(["Date", "Creator", "Format", "Type"])
    try:
        with plt.rc_context({"savefig.bbox": "standard"}):
            drawn = plots.svg(figure, "none", metadata=unwanted).decode()
            drawn = re.sub(r"^.*?(?=<svg)|<!--.*?-->|\n\s*", " ", drawn, flags=re.S)
            drawn = re.sub(r' (d|x|y)="[^"]*"', _to_a_hundredth, drawn.strip())
            picture = {"svg": drawn}
            size = len(compress(drawn.encode(), 9))
            if size > HEAVY:
                packed = plots.webp(figure, 80, dpi=150)
                if len(packed) < size:
                    picture = {"webp": b64encode(packed).decode()}
    finally:
        plt.close(figure)
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return {"kind": "figure", "width": width, "height": height, **picture}


def _to_a_hundredth(found: re.Match[str]) -> str:
    """The numbers of an SVG attribute, cut to 0.01 point."""
    return re.sub(r"(\.\d\d)\d+", r"\1", found[0])


def _still(panel: dict, alt: str) -> str:
    """What a page shows before the module runs, or where scripts do not run."""
    if panel["kind"] != "figure":
        return f"<p>{html.escape(panel.get('text') or panel['alt'] or alt)}</p>"
    if "svg" in panel:
        data = "svg+xml;base64," + b64encode(panel["svg"].encode()).decode()
    else:
        data = "webp;base64," + panel["webp"]
    return (
        f'<img class="fx-img" src="data:image/{data}" alt="{html.escape(alt)}" '
        f'width="{panel["width"]}">'
    )
