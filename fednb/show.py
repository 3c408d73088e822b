"""Show pictures and source code in a notebook, so that JupyterLab and the built book look the same.

`show` turns a matplotlib figure into one self-contained ``<img>`` with an alternative text, for readers who cannot see
it. `source` prints the library's own code, so that a chapter never has a copy that could go stale.
"""

from __future__ import annotations

import base64
import html
import inspect
import io
import re
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST = 150_000  # bytes of one picture in a page
CRISP = 60_000  # up to here SVG is taken even if a bitmap were smaller
CARD = "background:#fff;border-radius:6px;padding:4px;max-width:100%;height:auto"  # readable on a dark page too


def show(fig: Figure, alt: str, width: int | None = None) -> None:
    """Display a figure, and close it. ``alt`` says in words what there is to see; ``width`` is in CSS pixels.

    The picture is an SVG, or a WebP bitmap where that is much smaller (many points); 150 kB at most.
    """
    from IPython.display import HTML, display

    display(HTML(image(fig, alt, width)))


def image(fig: Figure, alt: str, width: int | None = None) -> str:
    """The ``<img>`` that `show` displays, as text; the figure is closed."""
    import matplotlib.pyplot as plt

    if not alt.strip():
        raise ValueError(
            "a figure needs alt=...: one or two sentences that say what there is to see"
        )
    kind, data = "svg+xml", _svg(fig)
    if len(data) > CRISP:
        kind, data = min(
            (kind, data), ("webp", _webp(fig)), key=lambda picture: len(picture[1])
        )
    plt.close(fig)
    if len(data) > LARGEST:
        raise ValueError(
            f"the picture takes {len(data) / 1e3:.0f} kB, more than 150: draw fewer points, or smaller"
        )
    width = width or round(fig.get_figwidth() * 96)
    src = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img class="fednb-figure dark-light" style="{CARD}" width="{width}" alt="{html.escape(alt)}" src="{src}">'


def source(obj: Any) -> None:
    """Display the source of a function, method, class or module, with the name of its home above it."""
    from IPython.display import Markdown, display

    display(Markdown(listing(obj)))


def listing(obj: Any) -> str:
    """The Markdown that `source` displays, as text."""
    obj = (
        obj.fget
        if isinstance(obj, property)
        else inspect.unwrap(obj)
        if callable(obj)
        else obj
    )
    try:
        code = textwrap.dedent(inspect.getsource(obj)).rstrip()
    except (TypeError, OSError) as error:
        raise ValueError(
            f"no source to show for {obj!r}: give a function, method, class or module"
        ) from error
    home = (
        obj.__name__
        if inspect.ismodule(obj)
        else f"{obj.__module__}.{obj.__qualname__}"
    )
    fence = "`" * (1 + max(2, *(len(ticks) for ticks in re.findall("`+", code)), 0))
    return f"Source of `{home}`:\n\n{fence}python\n{code}\n{fence}"


def literal(text: str) -> str:
    """Return Markdown that shows `text` as it is, on one line.

    For text from files, such as the records: no character of it is taken for Markdown,
    HTML or a substitution. Every punctuation mark gets a backslash, as CommonMark
    allows, and line breaks become spaces.
    """
    one_line = " ".join(text.split())
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", one_line)


def _svg(fig: Figure) -> bytes:
    """Text as outlines, so that no font is needed; the same figure always gives the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "fednb", "svg.fonttype": "path"}):
        fig.savefig(
            buffer,
            format="svg",
            facecolor="white",
            bbox_inches="tight",
            metadata={"Date": None},
        )
    return re.sub(rb"\n\s*", b"\n", buffer.getvalue())


def _webp(fig: Figure) -> bytes:
    buffer = io.BytesIO()
    fig.savefig(
        buffer,
        format="webp",
        dpi=192,
        facecolor="white",
        bbox_inches="tight",
        pil_kwargs={"quality": 85, "method": 6},
    )
    return buffer.getvalue()
