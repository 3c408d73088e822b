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
    labels, start = labels or {}, start or {}
    if unknown := {*labels, *start} - {*grid}:
        raise ValueError(
            f"explore: no parameter {', '.join(sorted(unknown))}; there are "
            f"{', '.join(grid)}"
        )
    return Explorer(
        fn,
        title,
        alt,
        [_parameter(n, labels.get(n, n), v, start.get(n)) for n, v in grid.items()],
    )


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
        self.fn, self.name, self.params = fn, getattr(fn, "__name__", "fn"), params
        if (count := prod(len(p["values"]) for p in params)) > MOST:
            raise ValueError(
                f"explore: {count:,} combinations, over the limit of {MOST:,}; use "
                "fewer values"
            )
        keys = list(itertools.product(*[p["values"] for p in params]))
        self.frames = {
            key: self._call(key)
            for key in tqdm(keys, delay=2, leave=False, file=sys.stdout)
        }
        alt = alt or title or (fn.__doc__ or "").strip().split("\n")[0] or self.name
        note = NOTE if any(p["kind"] != "choice" for p in params) else "Precomputed."
        first = self.frames[tuple(p["start"] for p in params)]
        super().__init__(
            spec={"title": title, "alt": alt, "params": params, "note": note},
            first=first,
        )
        self.html = self._page("".join(_still(panel, alt) for panel in self.first))
        self.on_msg(self._answer)

    def _page(self, still: str) -> str:
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
        if (size := len(page.encode())) > LIMIT:
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
            return [
                _panel(part)
                for part in (out if isinstance(out, list | tuple) else [out])
            ]
        except Exception as error:
            where = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise RuntimeError(
                f"{self.name}({where}) failed: {type(error).__name__}: {error}"
            ) from error

    def _answer(self, _, question: dict, buffers: list) -> None:
        """All frames if the view names no values, else the frame at these values."""
        values = question["values"]
        try:
            key = values and tuple(
                KINDS[p["kind"]](values[p["name"]]) for p in self.params
            )  # 1.0 comes as 1
            answer: dict[str, Any] = {"frames": [*self.frames.values()]}
            if key:
                answer = {"panels": self.frames.get(key) or self._call(key)}
        except (
            Exception,
            KeyboardInterrupt,
        ) as error:  # shown in the view, which goes on working
            answer = {"error": str(error) or type(error).__name__}
        self.send({"ticket": question["ticket"], **answer})

    def _repr_mimebundle_(self, **kwargs) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return {**data, "text/html": self.html}, metadata

    def __repr__(self) -> str:
        return f"explore({', '.join([self.name, *(p['name'] for p in self.params)])})"


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
    values = [
        v.item() if isinstance(v, np.generic) else v
        for v in ([values] if np.ndim(values) == 0 else values)
    ]
    kinds = {type(v) for v in values}
    kind = "choice" if kinds == {str} else "int" if kinds == {int} else "float"
    good = kind == "choice" or (kinds <= {int, float} and all(map(isfinite, values)))
    if not good or not 0 < len(values) == len(set(values)):
        raise ValueError(
            f"explore: {name}={values!r}; give a list of different finite numbers or "
            "different words"
        )
    ordered = (
        values if kind == "choice" else sorted(map(KINDS[kind], values))
    )  # a slider rises
    start = ordered[0] if start is None else start
    if start not in ordered:
        raise ValueError(
            f"explore: start {name}={start!r} is not on the grid {ordered}"
        )
    return {
        "name": name,
        "label": label,
        "kind": kind,
        "values": ordered,
        "start": KINDS[kind](start),
    }


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
    labels = [""] * len(xy) if labels is None else [str(v) for v in _plain(labels)]
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
        fields["series"] = (
            fields["series"]
            if isinstance(fields["series"], Mapping)
            else {"": fields["series"]}
        )
        lengths = {"x": max(map(len, fields["series"].values()), default=0)}
    for name, length in lengths.items():
        fields[name] = range(length) if fields[name] is None else fields[name]
        if len(fields[name]) != length or length == 0:
            raise ValueError(
                f"{kind}: {len(fields[name])} values in {name} for {length} places; "
                "give one for each"
            )
    return {"kind": kind, **_plain(fields)}


def _plain(value):
    """Arrays as lists, floats with four digits, what is not finite as None."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if isfinite(value) else None
    return value if value is None or isinstance(value, int | str) else str(value)


def _panel(part) -> dict:
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
    return makers[fields["kind"]](
        **{name: value for name, value in fields.items() if name != "kind"}
    )


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
    svg = b64encode(panel.get("svg", "").encode()).decode()
    data = f"svg+xml;base64,{svg}" if svg else f"webp;base64,{panel['webp']}"
    return (
        f'<img class="fx-img" src="data:image/{data}" alt="{html.escape(alt)}" '
        f'width="{panel["width"]}">'
    )
