"""The book's own Sphinx extension.

It lists the chapters that exist, with their verdicts, on the introduction; says on top
of a chapter how long it is and which of its runs are still to be done again; makes
docstrings fit for the API pages; and drops scripts and buttons without a use.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from execute_notebooks import BOOK

if TYPE_CHECKING:
    from fednb.claims import Claim

PAPERS = {
    "wecfl": "WeCFL",
    "fedgwc": "FedGWC",
    "ocfl": "OCFL",
    "fedcvr_bolt": "FedCVR-Bolt",
    "gcfl": "GCFL",
}

SEARCH_TEXTS = "search_texts.js"


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx what to call, and when."""
    app.connect("config-inited", drop_launch_buttons)
    app.connect("autodoc-process-docstring", on_docstring, priority=100)
    app.connect("autodoc-skip-member", on_member)
    app.connect("env-get-outdated", on_outdated)
    app.connect("source-read", on_source)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("html-page-context", add_pending_note, priority=901)
    app.connect("html-page-context", add_reading_time, priority=902)
    app.connect("build-finished", write_search_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# --- pages --------------------------------------------------------------------------


def on_outdated(app: Any, env: Any, added: Any, changed: Any, removed: Any) -> list:
    """Read the introduction at every build: its list of chapters may be old."""
    return ["intro"]


def on_source(app: Any, page: str, source: list[str]) -> None:
    """Fill in the introduction's list of chapters, so that it never promises more."""
    if page == "intro" and "% chapters\n" in source[0]:
        source[0] = source[0].replace("% chapters\n", chapters() + "\n")


def write_search_texts(app: Any, error: Exception | None) -> None:
    """Write the words of all pages, without pictures, for searches from ``file://``.

    There the search page may not read other pages; ``book.js`` reads this instead.
    """
    if error is not None or app.builder.format != "html":
        return
    texts = {}
    for page in sorted(app.env.found_docs):
        texts[f"{page}.html"] = words_of(app.env.get_doctree(page))
    script = f"window.FEDNB_TEXTS = {json.dumps(texts)};\n"
    path = Path(app.outdir) / "_static" / SEARCH_TEXTS
    path.write_text(script, encoding="utf-8")


def words_of(page: Any) -> str:
    """The text of a page, without HTML output: that holds pictures and sliders."""
    from docutils import nodes

    for output in list(page.findall(nodes.raw)):
        output.parent.remove(output)
    return page.astext()


def drop_launch_buttons(app: Any, config: Any) -> None:
    """Offer Colab and Binder only if ``_config.yml`` names the repository's address."""
    options = config.html_theme_options
    if not options.get("repository_url"):
        options.pop("repository_url", None)
        options.pop("launch_buttons", None)


def drop_thebe(app: Any, page: str, template: str, context: dict, tree: Any) -> None:
    """Drop the scripts of sphinx-thebe, which jupyter-book always loads.

    They are not used here, and report an error on every page.
    """
    wanted = []
    for script in context["script_files"]:
        words = f"{script.filename} {script.attributes.get('body')}"
        if "thebe" not in words.lower():
            wanted.append(script)
    context["script_files"] = wanted


def add_pending_note(
    app: Any, page: str, template: str, context: dict, tree: Any
) -> None:
    """Say on top of a chapter which of its runs are still to be done again."""
    if page.startswith("papers/") and "body" in context:
        note = pending_note(BOOK / "results" / page.removeprefix("papers/"))
        context["body"] = context["body"].replace("</h1>", "</h1>\n" + note, 1)


def add_reading_time(
    app: Any, page: str, template: str, context: dict, tree: Any
) -> None:
    """Say below the heading of a notebook how long its text takes to read."""
    path = BOOK / f"{page}.ipynb"
    if path.exists() and "body" in context:
        note = f'<p class="fednb-reading">{reading_time(path)}</p>'
        context["body"] = context["body"].replace("</h1>", "</h1>\n" + note, 1)


def reading_time(path: Path) -> str:
    """About how many minutes a notebook's prose takes, at 200 words a minute."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] != "code"]
    minutes = len(" ".join(prose).split()) / 200
    return f"About {5 * max(1, round(minutes / 5))} minutes to read."


def pending_note(folder: Path) -> str:
    """An HTML note about runs for which old records stand in; "" if there are none."""
    from fednb import store

    recorded = recorded_keys(folder)
    due = {
        key: note
        for key, note in store.read_pending(folder).items()
        if key not in recorded
    }
    if not due:
        return ""
    changes = sorted({note["why"] for note in due.values()})
    items = "".join(f"<li><code>{escape(change)}</code></li>" for change in changes)
    return (
        '<div class="admonition warning">'
        '<p class="admonition-title">Being run again</p>'
        f"<p>{len(due)} of the runs behind this chapter were made before a method or a "
        "law was mended. Their old outcomes stand in the tables, the figures and the "
        "text below until the new runs are in.</p>"
        f"<details><summary>What has changed since</summary><ul>{items}</ul></details>"
        "</div>"
    )


def recorded_keys(folder: Path, profile: str | None = None) -> set[str]:
    """Keys of a paper's records, of one profile or all; a run may be in two tables."""
    keys = set()
    for file in folder.glob("*.json"):
        if file.name == "verdicts.json":
            continue
        content = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(content, list):  # a table of records, or of verdicts
            for record in content:
                if "key" in record and profile in (None, record.get("profile")):
                    keys.add(record["key"])
    return keys


def chapters() -> str:
    """The papers' chapters in Markdown: the runs behind each, and which claims held."""
    from fednb.claims import VERDICTS, forest, tally
    from fednb.show import literal

    rows = [
        f"| chapter | runs | {' | '.join(VERDICTS)} | scale of most claims' runs |",
        "|---|---|---|---|---|---|---|",
    ]
    lists = []
    columns = {}
    for paper, name in PAPERS.items():
        if not (BOOK / "papers" / f"{paper}.ipynb").exists():
            rows.append(f"| {name}, not written yet | | | | | | |")
            continue
        found = claims_of(paper)
        columns[paper] = found
        runs = len(recorded_keys(BOOK / "results" / paper))
        counts = [str(count) for count in tally(found).values()]
        chapter = f"{{doc}}`{name} <papers/{paper}>`"
        cells = [chapter, str(runs), *counts, literal(usual_scale(found))]
        rows.append(f"| {' | '.join(cells)} |")
        picture = " ".join(forest(found, name).html.split("\n"))
        lists += [f"\n::::{{dropdown}} {name}: claim by claim", picture, "::::"]
    return "\n".join([overview(columns), "", *rows, *lists])


def usual_scale(claims: list[Claim]) -> str:
    """The scale at which most of the claims were judged."""
    scales = [claim.scale for claim in claims if claim.scale]
    return max(scales, key=scales.count, default="")


def overview(columns: dict[str, list[Claim]]) -> str:
    """All verdicts in one picture, as HTML in one line: a column of bars for a chapter.

    A bar is the interval of one claim, on a scale of its own; the line is what it has
    to pass, and the colour tells the verdict. A claim that cannot be tested is a dash.
    """
    from fednb.claims import VERDICTS

    parts = []
    for paper, claims in columns.items():
        ordered = sorted(claims, key=lambda claim: VERDICTS.index(claim.verdict))
        height = 11 * len(ordered) + 4
        bars = [small_bar(claim, 11 * row + 8) for row, claim in enumerate(ordered)]
        parts.append(
            f'<div><a href="papers/{paper}.html">{PAPERS[paper]}</a>'
            f'<svg viewBox="-52 0 104 {height}" role="img" '
            f'aria-label="{PAPERS[paper]}: {len(ordered)} claims as bars">'
            f'<path d="M0 0V{height}" class="line"/>{"".join(bars)}</svg></div>'
        )
    names = "".join(
        f'<span class="{verdict.replace(" ", "-")}">{verdict}</span>'
        for verdict in VERDICTS
    )
    caption = (
        "Every claim as the interval of our effect; right of the line speaks for it."
    )
    return (
        f'<figure class="fednb-overview"><div class="columns">{"".join(parts)}</div>'
        f"<figcaption>{caption} {names}</figcaption></figure>"
    )


def small_bar(claim: Claim, y: int) -> str:
    """A claim of the overview as SVG, with its words as a tool tip."""
    words = escape(" ".join(f"{claim.verdict}: {claim.statement}".split()))
    kind = claim.verdict.replace(" ", "-")
    if claim.interval is None:
        shape = f'<path d="M-4 {y}H4"/>'
    else:
        ends = [x - claim.threshold for x in claim.interval]
        mean, low, high = (0.0 if math.isnan(x) else x for x in ends)
        longest = max(abs(mean), abs(low), abs(high)) or 1.0
        left, right, middle = (48 * x / longest for x in (low, high, mean))
        shape = f'<path d="M{left:.1f} {y}H{right:.1f}"/>'
        shape += f'<circle cx="{middle:.1f}" cy="{y}" r="3.2"/>'
    return f'<g class="{kind}"><title>{words}</title>{shape}</g>'


def claims_of(paper: str) -> list[Claim]:
    """The paper's claims with their verdicts, as ``python -m fednb.papers`` kept them.

    Questions of our own are left out.
    """
    from fednb.claims import read

    path = BOOK / "results" / paper / "verdicts.json"
    if not path.exists():
        return []
    return [claim for claim in read(path) if not claim.ours]


# --- docstrings ---------------------------------------------------------------------


def on_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Turn a docstring, written to be read in an editor, into reST.

    That is: Markdown tables, bars, and the comments behind a class's fields. This comes
    before napoleon.
    """
    table = r"^(\|.+\|\n)\|[-|: ]+\|\n((?:\|.+\|\n?)+)"
    text = re.sub(table, list_table, "\n".join(lines) + "\n", flags=re.M)
    if what == "class":
        text += field_list(obj)
    lines[:] = re.sub(r"^\S.*", escape_bars, text, flags=re.M).split("\n")


def list_table(match: re.Match[str]) -> str:
    """A Markdown table as reST's list-table."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: auto",
        "",
    ]
    for row in (match[1] + match[2]).strip().split("\n"):
        first, *others = [cell.strip() for cell in row.strip("|").split(" | ")]
        lines.append(f"   * - {first}")
        lines += [f"     - {cell}" for cell in others]
    return "\n".join(lines) + "\n\n"


def escape_bars(line: re.Match[str]) -> str:
    """A line in which ``|x|`` is no substitution of reST; code stays as it is."""
    parts = re.split("(`+[^`]*`+)", line[0])
    return "".join(
        part if part.startswith("`") else part.replace("|", r"\|") for part in parts
    )


def field_list(cls: type) -> str:
    """The comments behind a class's fields, as a list."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (TypeError, OSError):
        return ""
    items = []
    above: list[str] = []  # comment lines directly above a field
    for line in source.split("\n    def ")[0].split("\n"):
        field = re.match(
            r"    (\w+): [^#]+?(?:  # type: ignore\S*)?(?:  # (.+))?$", line
        )
        comment = re.match(r"    # (.+)$", line)
        if comment:
            above.append(comment[1])
            continue
        if field and (field[2] or above):
            words = " ".join([*above, *filter(None, [field[2]])])
            escaped = words.replace("*", r"\*")
            items.append(f"- ``{field[1]}``: {escaped}\n")
        above = []
    return "\n" + "".join(items) + "\n"


def on_member(
    app: Any, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what Python adds to a NamedTuple: ``Alias for field number 0``."""
    return True if type(obj).__name__ == "_tuplegetter" else None
