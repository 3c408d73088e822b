"""Show pictures and source code alike in JupyterLab and in the built book.

`show` turns a matplotlib figure into one self-contained ``<img>`` with an alternative
text, for readers who cannot see it. `source` prints the library's own code, so that a
chapter never has a copy that could go stale.
"""

from __future__ import annotations

import ast
import base64
import html
import inspect
import io
import re
import textwrap
import tokenize
from typing import TYPE_CHECKING, Any

from . import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELETED = "\0"  # marks a line that held nothing but a note
NOTES = 3  # a function with so many notes is shown in two columns
LAYOUT = """
.fednb-source { margin: 0.5rem 0 1rem; }
.fednb-columns {
  border: 1px solid rgba(128, 128, 128, 0.35);
  border-radius: 6px;
  display: grid;
  grid-template-columns: minmax(8rem, 2fr) 7fr;
  padding: 0.3rem 0;
}
.fednb-columns > div { margin: 0; min-width: 0; padding: 0.12rem 0.6rem; }
.fednb-columns .fednb-note { font-size: 0.82rem; line-height: 1.35; opacity: 0.85; }
.fednb-columns .fednb-code { background: none; }
.fednb-columns .fednb-code pre {
  background: none; border: 0; box-shadow: none; font-size: 0.74rem; margin: 0;
  overflow-wrap: anywhere; padding: 0; white-space: pre-wrap;
}
@media (max-width: 720px) {
  .fednb-columns { grid-template-columns: 1fr; }
  .fednb-columns .fednb-note:empty { display: none; }
  .fednb-columns .fednb-note { padding-top: 0.5rem; }
}
"""  # colours are the page's own, light or dark
LARGEST = 150_000  # bytes of one picture in a page
CRISP = 60_000  # up to here SVG is taken even if a bitmap were smaller
# readable on a dark page too
CARD = "background:#fff;border-radius:6px;padding:4px;max-width:100%;height:auto"


def show(fig: Figure, alt: str, width: int | None = None) -> None:
    """Display a figure, and close it.

    ``alt`` says in words what there is to see; ``width`` is in CSS pixels.

    The picture is an SVG, or a WebP bitmap where that is much smaller (many points);
    150 kB at most.
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
    page = {"facecolor": "white", "bbox_inches": "tight"}
    kind = "svg+xml"
    drawn = plots.svg(fig, "path", metadata={"Date": None}, **page)
    data = re.sub(rb"\n\s*", b"\n", drawn)
    if len(data) > CRISP:
        lossy = plots.webp(fig, 85, dpi=192, **page)
        sharp = plots.few_colours(fig, dpi=192, **page)
        packed = min(lossy, sharp, key=len)
        if len(packed) < len(data):
            kind = "webp"
            data = packed
    plt.close(fig)
    if len(data) > LARGEST:
        raise ValueError(
            f"the picture takes {len(data) / 1e3:.0f} kB, more than 150: draw fewer "
            "points, or smaller"
        )
    width = width or round(fig.get_figwidth() * 96)
    src = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return (
        f'<img class="fednb-figure dark-light" style="{CARD}" width="{width}" '
        f'alt="{html.escape(alt)}" src="{src}">'
    )


def source(obj: Any) -> None:
    """Display the source of a function, method, class or module, with its home above.

    A function with notes, comments that name the paper's lines, is shown in two
    columns: the notes on the left, the code that they belong to on the right.
    """
    from IPython.display import HTML, Markdown, display

    if inspect.isfunction(obj) and _count_notes(obj) >= NOTES:
        display(HTML(two_columns(obj)))
    else:
        display(Markdown(listing(obj)))


def _count_notes(function: Any) -> int:
    return sum(bool(note) for note, _ in annotated(function))


def listing(obj: Any) -> str:
    """The Markdown of a listing in one column, as text."""
    code = _code(obj)
    fence = "`" * (1 + max(2, *(len(ticks) for ticks in re.findall("`+", code)), 0))
    return f"Source of `{_home(obj)}`:\n\n{fence}python\n{code}\n{fence}"


def two_columns(function: Any) -> str:
    """The HTML of a listing with notes on the left, as text.

    The first sentences of the docstring stand above; the rest of it is left out.
    """
    rows = []
    for note, lines in annotated(function):
        code = _highlighted("\n".join(lines))
        rows.append(
            f'<div class="fednb-note">{html.escape(note)}</div>'
            f'<div class="fednb-code highlight"><pre>{code}</pre></div>'
        )
    title = f"Source of <code>{html.escape(_home(function))}</code>"
    summary = html.escape((inspect.getdoc(function) or "").split("\n\n")[0])
    summary = re.sub(r"``?([^`]+)``?", r"<code>\1</code>", summary)
    return (
        f'<div class="fednb-source"><style>{LAYOUT}</style><p>{title}: {summary}</p>'
        f'<div class="fednb-columns">{"".join(rows)}</div></div>'
    )


def annotated(function: Any) -> list[tuple[str, list[str]]]:
    """The code of a function in pieces, each with the note that belongs to it.

    A note is a comment, on lines of its own above the code or behind a line. It holds
    up to the next one. Comments in brackets, ``# (K, D)``, are shapes and stay in the
    code. Pieces without a note have the note "".
    """
    code = _without_docstring(_code(function))
    lines = code.split("\n")
    starts = _statement_starts(code)
    notes: dict[int, list[str]] = {}
    for number, (column, shape, note) in _comments(code).items():
        lines[number] = (lines[number][:column].rstrip() + shape).rstrip()
        alone = not lines[number].strip()
        if alone:
            lines[number] = DELETED
        start = number if alone else starts.get(number, number)
        notes.setdefault(start, []).append(note)
    pieces: list[tuple[str, list[str]]] = []
    waiting: list[str] = []  # notes on lines of their own, which belong to what follows
    for number, line in enumerate(lines):
        waiting += notes.get(number, [])
        if line == DELETED:
            continue
        if waiting or not pieces:
            pieces.append((" ".join(waiting), []))
            waiting = []
        pieces[-1][1].append(line)
    return [(note, _trimmed(piece)) for note, piece in pieces]


def _comments(code: str) -> dict[int, tuple[int, str, str]]:
    """Line → (column, shape that stays in the code, note) of comments with a note."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("# ").strip()
        parts = re.match(r"(\([^()]*\))?[,:]?\s*(.*)", text)
        shape, note = parts.groups() if parts else (None, text)
        if note:
            line, column = token.start
            found[line - 1] = (column, f"  # {shape}" if shape else "", note)
    return found


def _statement_starts(code: str) -> dict[int, int]:
    """The first line of the statement that a line is part of; of ``if`` its head."""
    starts = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            for line in range(node.lineno, end + 1):
                starts[line - 1] = node.lineno - 1
    return starts


def _without_docstring(code: str) -> str:
    """The source of a function with its docstring cut out."""
    function: Any = ast.parse(code).body[0]
    first = function.body[0]
    is_docstring = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    if not is_docstring:
        return code
    lines = code.split("\n")
    return "\n".join(lines[: first.lineno - 1] + lines[first.end_lineno :])


def _trimmed(lines: list[str]) -> list[str]:
    """The lines without empty ones at the end."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _highlighted(code: str) -> str:
    """The code as HTML, with the classes by which a theme colours it."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return html.escape(code)
    lexer = PythonLexer(stripnl=False, stripall=False)
    return highlight(code, lexer, HtmlFormatter(nowrap=True)).rstrip("\n")


def _code(obj: Any) -> str:
    """The source of what is to be shown, from the left margin on."""
    if isinstance(obj, property):
        obj = obj.fget
    elif callable(obj):
        obj = inspect.unwrap(obj)
    try:
        return textwrap.dedent(inspect.getsource(obj)).rstrip()
    except (TypeError, OSError) as error:
        raise ValueError(
            f"no source to show for {obj!r}: give a function, method, class or module"
        ) from error


def _home(obj: Any) -> str:
    """Where it lives: module and name."""
    if isinstance(obj, property):
        obj = obj.fget
    if inspect.ismodule(obj):
        return obj.__name__
    return f"{obj.__module__}.{obj.__qualname__}"


def literal(text: str) -> str:
    """Return Markdown that shows `text` as it is, on one line.

    For text from files, such as the records: no character of it is taken for Markdown,
    HTML or a substitution. Every punctuation mark gets a backslash, as CommonMark
    allows, and line breaks become spaces.
    """
    one_line = " ".join(text.split())
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", one_line)
