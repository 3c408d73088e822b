"""Run the book's notebooks once, as tests, and keep what they showed.

nbmake executes a copy of each notebook. The outputs go into the cache from which
jupyter-book takes them. The cache is thrown away when the library, the records or the
pinned versions change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from jupyter_cache.base import JupyterCacheAbstract
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
BUILD = ROOT / "_build"
RUN = ROOT / ".run"  # not in _build: nbmake leaves out what lies there
CACHE = BUILD / ".jupyter_cache"
PAGES_STAMP = BUILD / "book.sha256"  # what the pages were built from, without warnings
SECONDS_PER_CELL = 120

QUIET = {
    "TQDM_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


def execute() -> int:
    """Run every notebook that the cache does not have; the exit code, 0 if all ran."""
    todo = [path for path in notebooks() if not is_known(path)]
    if not todo:
        print("notebooks: all executed already")
        return 0
    shutil.rmtree(RUN, ignore_errors=True)
    unwanted = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(BOOK, RUN / "book", ignore=unwanted)
    copies = [RUN / path.relative_to(ROOT) for path in todo]
    report = RUN / "report.xml"
    done = run_nbmake(copies, report)
    cases = read_report(report)
    failed = 0
    for path, copy in zip(todo, copies, strict=True):
        case = cases.get(".".join(copy.relative_to(RUN).parts))
        complaint = complaints(copy)
        passed = case is not None and len(case) == 0 and not complaint
        seconds = float("nan") if case is None else float(case.get("time", "nan"))
        word = "ran" if passed else "FAILED"
        print(f"{word} {path.relative_to(ROOT)} in {seconds:.1f} s", flush=True)
        if passed:
            remember(path, copy, seconds)
        else:
            failed += 1
            print(complaint)
    if failed or done.returncode:
        if done.returncode:
            print(done.stdout[-20_000:])
        print(done.stderr[-5_000:])
        return done.returncode or 1
    shutil.rmtree(RUN)
    return 0


def run_nbmake(copies: list[Path], report: Path) -> subprocess.CompletedProcess[str]:
    """Execute notebooks in place; what became of each stands in ``report``."""
    command = [sys.executable, "-m", "pytest", "-q"]
    command += ["-c", os.devnull, f"--rootdir={RUN}"]  # not the settings of our tests
    command += ["-p", "no:cacheprovider"]
    command += ["-p", "nbmake.pytest_plugin", "--nbmake", "--overwrite"]
    command += [f"--nbmake-timeout={SECONDS_PER_CELL}", f"--junitxml={report}"]
    if len(copies) > 1:
        command += ["-p", "xdist.plugin", "-n2"]
    command += map(str, copies)
    return subprocess.run(
        command, cwd=RUN, env=environment(), capture_output=True, text=True
    )


def read_report(report: Path) -> dict[str, ElementTree.Element]:
    """The test cases by name: ``book.foundations.a_federated_round.ipynb``."""
    if not report.exists():
        return {}
    cases = ElementTree.parse(report).iter("testcase")
    return {case.get("classname", ""): case for case in cases}


def environment() -> dict[str, str]:
    """Ours without a calling pytest's variables, and without progress bars."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "COV_"))
    }
    return ours | QUIET


def notebooks() -> list[Path]:
    """Every notebook of the book."""
    found = BOOK.rglob("*.ipynb")
    return sorted(p for p in found if ".ipynb_checkpoints" not in p.parts)


def complaints(executed: Path) -> str:
    """What a notebook wrote to stderr: readers would see it, so it fails the build."""
    found = []
    for number, cell in enumerate(read(executed).cells):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                found.append(f"cell {number} writes to stderr: {output.text}")
    return "".join(found)


# --- the cache of executed notebooks ------------------------------------------------


def open_cache() -> JupyterCacheAbstract:
    """The cache; an empty one if library, records or pinned versions changed."""
    from jupyter_cache import get_cache

    now = digest([ROOT / "constraints.txt", *library()])
    mark = CACHE / "made_with.sha256"
    if not mark.exists() or mark.read_text() != now:
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        mark.write_text(now)
    return get_cache(CACHE)


def is_known(path: Path) -> bool:
    """Whether the cache has this notebook: same code, same cell metadata."""
    try:
        open_cache().match_cache_notebook(read(path))
    except KeyError:
        return False
    return True


def recall(path: Path) -> NotebookNode:
    """The notebook with its outputs, from the cache; KeyError if it is not there."""
    cache = open_cache()
    record = cache.match_cache_notebook(read(path))
    return cache.get_cache_bundle(record.pk).nb


def remember(path: Path, executed: Path, seconds: float) -> None:
    """Put the outputs of ``executed`` into the cache, in the notebook as written.

    nbmake's notes stay out, for they would change the key, and so does the state of
    live widgets: pages show the explorers' own HTML.
    """
    from jupyter_cache.base import CacheBundleIn

    notebook = read(path)
    ran = read(executed)
    for cell, twin in zip(notebook.cells, ran.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = twin.outputs
            cell.execution_count = twin.execution_count
    language = ran.metadata.get("language_info", {"name": "python"})
    notebook.metadata.language_info = language
    bundle = CacheBundleIn(notebook, path, data={"execution_seconds": seconds})
    cache = open_cache()
    cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    # Sphinx sees no change in the notebook itself: all pages must be read again.
    PAGES_STAMP.unlink(missing_ok=True)


def read(path: Path) -> NotebookNode:
    """A notebook from its file."""
    import nbformat

    return nbformat.read(path, as_version=4)


def library() -> list[Path]:
    """The files of fednb, and the records, that can change what a notebook shows."""
    files = [*(ROOT / "fednb").rglob("*"), *BOOK.glob("results/*/*")]
    kinds = {".py", ".js", ".css", ".csv", ".json"}
    return [path for path in files if path.suffix in kinds]


def digest(paths: Iterable[Path]) -> str:
    """Hash of names and contents."""
    total = hashlib.sha256()
    for path in sorted(paths):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(ROOT)}\0{content}\n".encode())
    return total.hexdigest()
