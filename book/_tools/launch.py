"""Let notebooks install the project where they find none: on Colab, say.

``python book/_tools/launch.py`` reads the repository's address from ``_config.yml`` and
gives every notebook an install cell with it, or takes the cell away while there is no
address. A test says when the cells are old. The pages do not show the cell.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from execute_notebooks import BOOK, ROOT, notebooks, read

if TYPE_CHECKING:
    from nbformat import NotebookNode

CELL_ID = "install"
INSTALL = """\
# Not in a copy of the project (on Colab, say)? Then get one and install it.
import importlib.util
import os
import subprocess
import sys

found = importlib.util.find_spec("fednb")
if found is None or found.origin is None:  # nothing, or a mere folder of that name
    if not os.path.exists("fednb/pyproject.toml"):
        subprocess.run(["git", "clone", "--depth=1", "{address}", "fednb"], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--editable", "fednb[papers]"], check=True)
    sys.path.insert(0, os.path.abspath("fednb"))
    os.chdir("fednb/{folder}")
"""


def main() -> int:
    """Write the cells anew where they are not as they should be."""
    import nbformat

    for path in notebooks():
        notebook = read(path)
        if has_right_cell(notebook, path, address()):
            continue
        notebook.cells = [cell for cell in notebook.cells if cell.id != CELL_ID]
        if address():
            notebook.cells.insert(1, install_cell(path, address()))
        nbformat.write(notebook, path)
        print(f"changed {path.relative_to(ROOT)}")
    return 0


def address() -> str:
    """The repository's address; "" as long as it has none."""
    import yaml

    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return (settings.get("repository") or {}).get("url") or ""


def install_cell(path: Path, where: str) -> NotebookNode:
    """The install cell of a notebook: it ends in the notebook's own folder."""
    import nbformat

    folder = path.parent.relative_to(BOOK.parent).as_posix()
    source = INSTALL.format(address=where, folder=folder).rstrip()
    metadata = {"tags": ["remove-cell"]}
    return nbformat.v4.new_code_cell(source, id=CELL_ID, metadata=metadata)


def has_right_cell(notebook: NotebookNode, path: Path, where: str) -> bool:
    """Whether a notebook has the cell that belongs to this address, or none."""
    found = [cell.source for cell in notebook.cells if cell.id == CELL_ID]
    wanted = [install_cell(path, where).source] if where else []
    return found == wanted


if __name__ == "__main__":
    sys.exit(main())
