"""Build the book: ``python book/build.py execute`` runs its notebooks, ``python book/build.py html`` makes the pages.

A notebook is executed once, by nbmake, as a test; its outputs go into the cache from which jupyter-book takes them. The
cache is thrown away when the library or the pinned versions change. Both verbs fail on a failing notebook, ``html`` on
any warning too, and neither does anything twice. This file is the book's Sphinx extension as well: see `setup`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
BOOK, BUILD, RUN = ROOT / "book", ROOT / "_build", ROOT / ".run"
CACHE = BUILD / ".jupyter_cache"
STAMP = BUILD / "book.sha256"  # what the pages were built from: there only after a build without warnings
QUIET = {"TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run one verb, one process at a time."""
    from filelock import FileLock

    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("verb", choices=["execute", "html"])
    verb = parser.parse_args(argv).verb
    BUILD.mkdir(exist_ok=True)
    with FileLock(BUILD / "book.lock"):
        return {"execute": execute, "html": html}[verb]()


# --- execution -------------------------------------------------------------------------------------------------------


def execute() -> int:
    """Run every notebook whose execution is not in the cache yet."""
    todo = [path for path in notebooks() if not known(path)]
    if not todo:
        print("notebooks: all executed already")
        return 0
    shutil.rmtree(RUN, ignore_errors=True)
    shutil.copytree(BOOK, RUN / "book", ignore=shutil.ignore_patterns(".*", "__pycache__"))
    copies = [RUN / path.relative_to(ROOT) for path in todo]
    report = RUN / "report.xml"
    plugins = ["-p", "nbmake.pytest_plugin", *(["-p", "xdist.plugin", "-n2"] if len(todo) > 1 else [])]
    options = [
        "--nbmake",
        "--overwrite",
        "--nbmake-timeout=120",
        f"--junitxml={report}",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    ours = ["-c", os.devnull, f"--rootdir={RUN}"]  # not the settings of the project's tests
    command = [sys.executable, "-m", "pytest", *ours, *plugins, *options, *copies]
    done = subprocess.run(command, cwd=RUN, env=environment(), capture_output=True, text=True)
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
    cases = {case.get("classname"): case for case in cases}  # "book.foundations.a_federated_round.ipynb"
    failed = 0
    for path, copy in zip(todo, copies, strict=True):
        case = cases.get(".".join(copy.relative_to(RUN).parts))
        passed = case is not None and not len(case) and not complaints(copy)
        failed += not passed
        seconds = float("nan" if case is None else case.get("time"))
        print(f"{'ran' if passed else 'FAILED'} {path.relative_to(ROOT)} in {seconds:.1f} s", flush=True)
        if passed:
            remember(path, copy, seconds)
        else:
            print(complaints(copy))
    if failed or done.returncode:
        print(done.stdout[-20_000:] if done.returncode else "", done.stderr[-5_000:], sep="\n")
        return done.returncode or 1
    shutil.rmtree(RUN)
    return 0


def environment() -> dict[str, str]:
    """Ours without what belongs to a pytest that may have called us, and without progress bars."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))} | QUIET


def notebooks() -> list[Path]:
    """Every notebook of the book."""
    return sorted(p for p in BOOK.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


def cache():
    """The store of executed notebooks; a new one if the library, the records or the pinned versions changed."""
    from jupyter_cache import get_cache

    now, mark = digest([ROOT / "constraints.txt", *library()]), CACHE / "made_with.sha256"
    if not mark.exists() or mark.read_text() != now:
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        mark.write_text(now)
    return get_cache(CACHE)


def known(path: Path) -> bool:
    """Whether the cache has this notebook: same code, same cell metadata."""
    import nbformat

    try:
        return bool(cache().match_cache_notebook(nbformat.read(path, as_version=4)))
    except KeyError:
        return False


def complaints(executed: Path) -> str:
    """What a notebook wrote to stderr: a reader would see it, so it fails the build, as a warning does."""
    import nbformat

    cells = enumerate(nbformat.read(executed, as_version=4).cells)
    outputs = [(i, output) for i, cell in cells for output in cell.get("outputs", ())]
    return "".join(f"cell {i} writes to stderr: {o.text}" for i, o in outputs if o.get("name") == "stderr")


def remember(path: Path, executed: Path, seconds: float) -> None:
    """Put the outputs into the cache, in the notebook as it is written: nbmake's notes would change its key.

    The state of live widgets stays out: pages show the explorers' own HTML.
    """
    import nbformat
    from jupyter_cache.base import CacheBundleIn

    nb, ran = (nbformat.read(p, as_version=4) for p in (path, executed))
    for cell, twin in zip(nb.cells, ran.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = twin.outputs, twin.execution_count
    nb.metadata.language_info = ran.metadata.get("language_info", {"name": "python"})
    bundle = CacheBundleIn(nb, path, data={"execution_seconds": seconds})
    cache().cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    STAMP.unlink(missing_ok=True)  # Sphinx sees no change in the notebook itself: all pages must be read again


# --- pages -----------------------------------------------------------------------------------------------------------


def html() -> int:
    """Execute what is new, then build the pages, unless nothing changed."""
    code = execute()
    if code:
        return code
    written = [p for p in BOOK.rglob("*") if p.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(p.parts)]
    now = digest([ROOT / "_config.yml", ROOT / "constraints.txt", *library(), *written])
    pages = BUILD / "html" / "index.html"
    if pages.exists() and STAMP.exists() and STAMP.read_text() == now:
        print(f"pages: up to date in {pages.relative_to(ROOT)}")
        return 0
    if STAMP.exists():
        STAMP.unlink()
    else:  # the last build failed or was stopped: read all pages again, or its warnings would not come again
        for leftover in (BUILD / ".doctrees", BUILD / "html"):
            shutil.rmtree(leftover, ignore_errors=True)
    started = time.perf_counter()
    command = [Path(sys.executable).with_name("jupyter-book"), "build", BOOK, "-W", "--keep-going"]
    path = os.pathsep.join(filter(None, [str(BOOK), os.environ.get("PYTHONPATH")]))  # PyPI has a ``build`` too
    code = subprocess.run(command, cwd=ROOT, env=environment() | {"PYTHONPATH": path}).returncode
    if code:
        print("pages: FAILED, see the warnings above")
        return code
    STAMP.write_text(now)
    print(f"pages: {pages.relative_to(ROOT)} in {time.perf_counter() - started:.0f} s")
    return 0


def library() -> list[Path]:
    """The files of fednb, and the records, that can change what a notebook shows."""
    files = [*(ROOT / "fednb").rglob("*"), *BOOK.glob("results/*/*")]
    return [p for p in files if p.suffix in {".py", ".js", ".css", ".csv", ".json"}]


def digest(paths: Iterable[Path]) -> str:
    """Hash of names and contents."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(ROOT)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


# --- what Sphinx calls -----------------------------------------------------------------------------------------------


def setup(app) -> dict[str, bool]:
    """Serve MathJax from the page's own folder, list the chapters that exist, make docstrings fit for the API pages."""
    app.connect("config-inited", _local_mathjax)
    app.connect("autodoc-process-docstring", _docstring, priority=100)  # before napoleon
    app.connect("autodoc-skip-member", _skip)
    app.connect("env-get-outdated", lambda *_: ["intro"])  # its list of chapters may be old
    app.connect("source-read", _chapters)
    app.connect("html-page-context", _without_thebe, priority=900)
    app.connect("html-page-context", _pending, priority=901)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _local_mathjax(app, config) -> None:
    """Take one file out of sphinx-mathjax-offline; its own hook would copy 24 MB and choose another build."""
    from importlib.util import find_spec

    home = Path(find_spec("sphinx-mathjax-offline").origin).parent
    config.html_static_path = [*config.html_static_path, str(home / "static" / "mathjax" / "tex-svg-full.js")]
    config.mathjax_path = "tex-svg-full.js"


def _without_thebe(app, page, template, context, doctree) -> None:
    """Drop the scripts of an extension that jupyter-book always loads: unused here, and broken on every page."""
    unwanted = [s for s in context["script_files"] if "thebe" in f"{s.filename} {s.attributes.get('body')}".lower()]
    context["script_files"] = [s for s in context["script_files"] if s not in unwanted]


def _pending(app, page, template, context, doctree) -> None:
    """Say on top of a chapter which of its runs are still to be done again."""
    if page.startswith("papers/") and "body" in context:
        note = pending_note(BOOK / "results" / page.removeprefix("papers/"))
        context["body"] = context["body"].replace("</h1>", "</h1>\n" + note, 1)


def pending_note(folder: Path) -> str:
    """An HTML note about runs for which old records stand in; "" if there are none."""
    from html import escape

    from fednb import store

    pending = store.read_pending(folder)
    recorded = {
        record["key"]
        for file in folder.glob("*.json")
        if file.name not in ("pending.json", "archive.json")
        for record in json.loads(file.read_text(encoding="utf-8"))
    }
    due = {key: note for key, note in pending.items() if key not in recorded}
    if not due:
        return ""
    changes = sorted({note["why"] for note in due.values()})
    items = "".join(f"<li><code>{escape(change)}</code></li>" for change in changes)
    return (
        '<div class="admonition warning"><p class="admonition-title">Being run again</p>'
        f"<p>{len(due)} of the runs behind this chapter were made before a method or a "
        "law was mended. Their old outcomes stand in the tables, the figures and the "
        "text below until the new runs are in.</p>"
        f"<details><summary>What has changed since</summary><ul>{items}</ul></details>"
        "</div>"
    )


PAPERS = {"wecfl": "WeCFL", "fedgwc": "FedGWC", "ocfl": "OCFL", "fedcvr_bolt": "FedCVR-Bolt", "gcfl": "GCFL"}


def _chapters(app, page: str, source: list[str]) -> None:
    """Fill in the introduction's list of what the book has, so that it never promises more."""
    if page == "intro" and "% chapters\n" in source[0]:
        source[0] = source[0].replace("% chapters\n", chapters() + "\n")


def chapters() -> str:
    """The papers' chapters in Markdown: the runs behind each, and which of the paper's claims held in them."""
    from fednb.show import literal

    marks = {"✓ holds": "hold", "✗ fails": "fail", "– not testable here": "not testable here"}
    rows = [f"| chapter | runs | claims that {' | '.join(marks.values())} |", "|---|---|---|---|---|"]
    lists = []
    for paper, name in PAPERS.items():
        path = BOOK / "papers" / f"{paper}.ipynb"
        if not path.exists():
            rows.append(f"| {name}, not written yet | | | | |")
            continue
        found = claims(path, "|".join(marks))
        counts = [sum(verdict == mark for verdict, _ in found) for mark in marks]
        files = [json.loads(file.read_text()) for file in (BOOK / "results" / paper).glob("*.json")]
        runs = len({record["key"] for file in files if type(file) is list for record in file})  # some are in two tables
        rows.append(f"| {{doc}}`{name} <papers/{paper}>` | {runs} | {' | '.join(map(str, counts))} |")
        lists.append(f"\n```{{dropdown}} {name}: claim by claim")
        lists += [f"- {verdict[0]} {literal(claim)}" for verdict, claim in found]
        lists.append("```")
    return "\n".join(rows + lists)


def claims(path: Path, verdicts: str) -> list[tuple[str, str]]:
    """Verdicts on the paper's claims as a notebook printed them, by `fednb.tables.verdicts`, when it was executed."""
    import nbformat

    store = cache()
    ran = store.get_cache_bundle(store.match_cache_notebook(nbformat.read(path, as_version=4)).pk).nb
    texts = [output.get("data", {}).get("text/plain", "") for cell in ran.cells for output in cell.get("outputs", ())]
    judged = [text for text in texts if text.startswith("The paper's claims")]  # and not our own questions
    return [found for text in judged for found in re.findall(rf"^({verdicts}): (.+)$", text, re.M)]


def _docstring(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings are written to be read in an editor: turn Markdown tables, bars and field comments into reST."""
    text = re.sub(r"^(\|.+\|\n)\|[-|: ]+\|\n((?:\|.+\|\n?)+)", _list_table, "\n".join(lines) + "\n", flags=re.M)
    text += _fields(obj) if what == "class" else ""
    lines[:] = re.sub(r"^\S.*", _escape_bars, text, flags=re.M).split("\n")


def _list_table(match: re.Match[str]) -> str:
    rows = [row.strip("|").split(" | ") for row in (match[1] + match[2]).strip().split("\n")]
    cells = "".join("   * - " + "\n     - ".join(cell.strip() for cell in row) + "\n" for row in rows)
    return f".. list-table::\n   :header-rows: 1\n   :widths: auto\n\n{cells}\n"


def _escape_bars(line: re.Match[str]) -> str:
    """``|x|`` is a substitution in reST, except in code."""
    return "".join(
        part if part.startswith("`") else part.replace("|", r"\|") for part in re.split("(`+[^`]*`+)", line[0])
    )


def _fields(cls: type) -> str:
    """The comments behind a class's fields, as a list."""
    import inspect

    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (TypeError, OSError):
        return ""
    found = re.findall(r"^    (\w+): [^#\n]+?  # (.+)$", source.split("\n    def ")[0], re.M)
    return "\n" + "".join(f"- ``{name}``: {comment.replace('*', chr(92) + '*')}\n" for name, comment in found) + "\n"


def _skip(app, what, name, obj, skip, options) -> bool | None:
    """Leave out what Python adds to a NamedTuple: ``Alias for field number 0``."""
    return True if type(obj).__name__ == "_tuplegetter" else None


if __name__ == "__main__":
    sys.exit(main())
