"""Make the book.

``python book/_tools/make_book.py execute`` runs the notebooks, ``... html`` runs them
and builds the pages, and ``... site`` does so and puts them into ``_build/site``, a
folder for any web server. All fail if a notebook fails, the last two on any warning
too, and none does anything twice.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from execute_notebooks import (
    BOOK,
    BUILD,
    PAGES_STAMP,
    ROOT,
    digest,
    environment,
    execute,
    library,
)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says, one process at a time."""
    from filelock import FileLock

    parser = argparse.ArgumentParser(
        description="Run the book's notebooks, and build its pages."
    )
    parser.add_argument("verb", choices=["execute", "html", "site"])
    verb = parser.parse_args(argv).verb
    BUILD.mkdir(exist_ok=True)
    with FileLock(BUILD / "book.lock"):
        if verb == "execute":
            return execute()
        if verb == "html":
            return html()
        return site()


def html() -> int:
    """Execute what is new, then build the pages unless nothing changed: exit code."""
    code = execute()
    if code:
        return code
    now = digest([ROOT / "_config.yml", ROOT / "constraints.txt", *library(), *book()])
    pages = BUILD / "html" / "index.html"
    has_stamp = PAGES_STAMP.exists()
    if pages.exists() and has_stamp and PAGES_STAMP.read_text() == now:
        print(f"pages: up to date in {pages.relative_to(ROOT)}")
        return 0
    if has_stamp:
        PAGES_STAMP.unlink()
    else:
        # The last build failed or was stopped. Read all pages again: otherwise Sphinx
        # would not repeat its warnings.
        for leftover in (BUILD / ".doctrees", BUILD / "html"):
            shutil.rmtree(leftover, ignore_errors=True)
    started = time.perf_counter()
    code = run_jupyter_book()
    if code:
        print("pages: FAILED, see the warnings above")
        return code
    PAGES_STAMP.write_text(now)
    seconds = time.perf_counter() - started
    print(f"pages: {pages.relative_to(ROOT)} in {seconds:.0f} s")
    return 0


def site() -> int:
    """Build the pages and copy what a web server needs: exit code."""
    code = html()
    if code:
        return code
    target = BUILD / "site"
    shutil.rmtree(target, ignore_errors=True)
    unwanted = shutil.ignore_patterns(
        ".buildinfo*", "objects.inv", "reports", "*webpack-macros.html"
    )
    shutil.copytree(BUILD / "html", target, ignore=unwanted)
    (target / ".nojekyll").touch()  # GitHub would leave out folders such as _static
    print(f"site: put {target.relative_to(ROOT)} on any web server")
    return 0


def run_jupyter_book() -> int:
    """Build the pages from the cache of executed notebooks: its exit code."""
    folder = Path(sys.executable).parent
    program = shutil.which("jupyter-book", path=str(folder)) or "jupyter-book"
    command = [program, "build", str(BOOK), "-W", "--keep-going"]
    return subprocess.run(command, cwd=ROOT, env=environment()).returncode


def book() -> list[Path]:
    """Every file of the book that somebody wrote."""
    unwanted = {"__pycache__", ".ipynb_checkpoints"}
    files = [path for path in BOOK.rglob("*") if path.is_file()]
    return [path for path in files if not unwanted & set(path.parts)]


if __name__ == "__main__":
    sys.exit(main())
