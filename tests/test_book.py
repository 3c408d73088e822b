"""The rules of the book: what a notebook may hold, that all it names exists, and that
the built pages hang together.
"""

import ast
import doctest
import hashlib
import html
import importlib
import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml

import fednb
from fednb import store
from fednb.claims import VERDICTS, Claim
from fednb.papers import CATALOGUE
from fednb.show import literal

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
MAKE_BOOK = BOOK / "_tools" / "make_book.py"
NOTEBOOKS = sorted(
    p for p in BOOK.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts
)
each_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda p: str(p.relative_to(BOOK))
)


def toc() -> list[str]:
    """The book's pages, in order, without suffix."""
    found = []

    def walk(node):
        for child in (
            node.get("parts", []) + node.get("chapters", []) + node.get("sections", [])
        ):
            found.extend([child["file"]] if "file" in child else [])
            walk(child)

    tree = yaml.safe_load((BOOK / "_toc.yml").read_text())
    walk(tree)
    return [tree["root"], *found]


@cache
def read(path):
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def cells(path, kind):
    return [cell for cell in read(path).cells if cell.cell_type == kind]


def prose(path):
    if path.suffix == ".md":
        return path.read_text()
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


def code(path):
    """The tree of all code cells, as one program."""
    return ast.parse("\n\n".join(cell.source for cell in cells(path, "code")))


def snippets(path):
    """Python in the prose: the solutions of exercises."""
    return [
        ast.parse(block)
        for block in re.findall(r"```+\s*python\n(.*?)```", prose(path), re.S)
    ]


# --- what a notebook may hold ---------------------------------------------------------


def test_toc_lists_every_page():
    pages = [
        str(p.relative_to(BOOK).with_suffix(""))
        for p in [*BOOK.rglob("*.md"), *NOTEBOOKS]
    ]
    assert sorted(toc()) == sorted(pages)


@each_notebook
def test_notebook_is_stored_without_outputs(path):
    notebook = read(path)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    for cell in cells(path, "code"):
        assert not cell.outputs and cell.execution_count is None, (
            f"clear the outputs: nbstripout {path.name}"
        )
    ids = Counter(cell.id for cell in notebook.cells)
    assert max(ids.values()) == 1, "cell ids must be unique"


@each_notebook
def test_no_widget_that_hangs_a_headless_run(path):
    hanging = {
        "interact",
        "interactive",
        "interact_manual",
        "interactive_output",
        "Output",
    }
    names = {n.id for n in ast.walk(code(path)) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(code(path)) if isinstance(n, ast.Attribute)}
    names |= {
        a.name
        for n in ast.walk(code(path))
        if isinstance(n, ast.ImportFrom)
        for a in n.names
    }
    assert not names & hanging, "use fednb.widgets.explore"


def defined_in_fednb(chapter=""):
    """Public functions and classes of the library's modules; of the papers' only those
    of the chapter's own.
    """
    found = set()
    for path in (ROOT / "fednb").rglob("*.py"):
        room, *inside = path.relative_to(ROOT / "fednb").parts
        if room in ("arena", "contract.py", "playground"):  # on pages of their own
            continue
        if room == "papers" and inside[0] != chapter:
            continue
        body = ast.parse(path.read_text()).body
        found |= {
            n.name
            for n in body
            if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"
        }
    return found


def imported(tree):
    """Names that a program imports from fednb, and the objects behind them."""
    found = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "fednb"
        ):
            for alias in node.names:
                home = importlib.import_module(node.module)
                try:
                    found[alias.asname or alias.name] = getattr(home, alias.name)
                except AttributeError:
                    found[alias.asname or alias.name] = importlib.import_module(
                        f"{node.module}.{alias.name}"
                    )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fednb":
                    module = importlib.import_module(alias.name)
                    found[alias.asname or "fednb"] = module if alias.asname else fednb
    return found


@each_notebook
def test_the_library_is_not_copied(path):
    """No function or class of fednb is defined again, and no name imported from it is
    given to something else.
    """
    tree = code(path)
    defined = {
        n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)
    }
    stored = {
        n.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    stored |= {
        a.arg
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef)
        for a in n.args.args
    }
    assert not defined & defined_in_fednb(path.stem)
    assert not (stored | defined) & set(imported(tree))


def test_the_copy_test_can_fail():
    assert {"Federation", "FedAvg", "cosine", "explore"} <= defined_in_fednb()
    assert "fires" in defined_in_fednb("ocfl") - defined_in_fednb("wecfl")
    assert set(imported(ast.parse("from fednb import metrics as m\nimport fednb"))) == {
        "m",
        "fednb",
    }


@each_notebook
def test_every_name_of_fednb_exists(path):
    trees = [code(path), *snippets(path)]
    names = {
        k: v for tree in trees for k, v in imported(tree).items()
    }  # importing is half of the test
    for node in (n for tree in trees for n in ast.walk(tree)):
        chain = []
        while isinstance(node, ast.Attribute):
            chain.insert(0, node.attr)
            node = node.value
        where = names.get(node.id) if isinstance(node, ast.Name) else None
        for name in chain:
            if isinstance(where, ModuleType):
                assert hasattr(where, name), f"{where.__name__} has no {name}"
            where = getattr(where, name, None)


@each_notebook
def test_cells_are_short(path):
    """A screen shows a cell whole. How many cells a chapter has is its own affair."""
    lengths = [len(cell.source.splitlines()) for cell in cells(path, "code")]
    assert max(lengths) <= 25


@each_notebook
def test_chapter_has_its_parts(path):
    text = prose(path)
    opening = "\n".join(text.splitlines()[:60])
    assert text.startswith("# ")
    assert re.search(r"in this chapter", opening, re.I), (
        "say what the reader will be able to do"
    )
    assert re.search(r"(run ?time|runs in|\d+ (s|seconds))", opening, re.I), (
        "say how long the chapter runs"
    )
    assert re.search(r"^#+ Exercises", text, re.M)
    exercises = text[re.search(r"^#+ Exercises", text, re.M).start() :]
    solutions = re.findall(
        r"^[`:]{3,}\{admonition\} +Solution.*\n(?::.*\n)*?:class:.*\bdropdown\b",
        exercises,
        re.M,
    )
    assert len(solutions) >= 3, "three exercises at least, each with a folded solution"
    assert re.search(r"take.?away", text, re.I)


def calls(tree, name):
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) == name
        ):
            yield node


@each_notebook
def test_every_figure_goes_through_show_with_words(path):
    shown = list(calls(code(path), "show"))
    for call in shown:
        alt = next((k.value for k in call.keywords if k.arg == "alt"), None)
        assert alt is not None, "show(fig, alt=...)"
        assert not isinstance(alt, ast.Constant) or len(alt.value) >= 20, (
            "say in a sentence what there is to see"
        )
    attributes = {n.attr for n in ast.walk(code(path)) if isinstance(n, ast.Attribute)}
    assert not attributes & {"savefig"}


# --- sources of all kinds -------------------------------------------------------------


def bibliography():
    from pybtex.database import parse_file

    return set(parse_file(str(BOOK / "references.bib")).entries)


@pytest.mark.parametrize("page", toc())
def test_every_citation_is_in_the_bibliography(page):
    path = next(p for p in (BOOK / f"{page}.md", BOOK / f"{page}.ipynb") if p.exists())
    cited = {
        key.strip()
        for keys in re.findall(r"\{cite[:\w]*\}`([^`]+)`", prose(path))
        for key in keys.split(",")
    }
    assert cited <= bibliography()


API = sorted((BOOK / "api").glob("*.md"))


def modules():
    """Every public module of the library; a package counts as one too."""
    found = set()
    for path in (ROOT / "fednb").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if not parts[-1].startswith("_"):
            found.add(".".join(parts))
    return found - {"fednb"}


def test_the_api_pages_have_every_module_and_method():
    text = "\n".join(path.read_text() for path in API)
    listed = set(re.findall(r"automodule:: ([\w.]+)", text))
    assert not modules() - listed
    assert {"fednb.arena.worlds", "fednb.papers.gcfl", "fednb.adopt"} <= modules()


def examples(path):
    return "\n".join(re.findall(r"```pycon\n(.*?)```", path.read_text(), re.S))


def test_every_module_has_an_example():
    """Modules directly below fednb; of a package, one example is enough."""
    text = "\n".join(examples(path) for path in API)
    rooms = {name.split(".")[1] for name in modules()}
    assert not [room for room in rooms if not re.search(rf"\b{room}\b", text)]


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_the_examples_of_an_api_page_run(path, tmp_path, monkeypatch):
    """One after the other, in a folder of their own; outputs are compared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(
        examples(path), {}, path.stem, str(path), 0
    )
    said = []
    results = doctest.DocTestRunner(optionflags=flags).run(test, out=said.append)
    assert not results.failed, "".join(said)
    assert results.attempted >= 5 or path.stem == "index"


def test_no_machine_path_in_the_sources():
    for path in [ROOT / "_config.yml", *BOOK.rglob("*.md"), *NOTEBOOKS]:
        assert not re.search(
            r"(^|[\s\"'(=])/(work|tmp|root|home)/", path.read_text(), re.M
        ), path


# --- the built pages ------------------------------------------------------------------


@pytest.fixture(name="pages", scope="session")
def pages_fixture() -> Path:
    """The built book; builds it if it is not there or old (one process at a time: it
    has a lock).
    """
    command = [sys.executable, MAKE_BOOK, "html"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return ROOT / "_build" / "html"


class Page(HTMLParser):
    """Ids, links, sources of scripts, styles and images, and images without words."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.mute, self.text = set(), [], [], [], text
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        if tag in ("script", "img", "iframe", "source") and attrs.get("src"):
            self.loads.append(attrs["src"])
        if tag == "link" and attrs.get("rel") not in (
            "canonical",
            "search",
            "index",
            "next",
            "prev",
        ):
            self.loads.append(attrs["href"])
        if tag == "img" and not (attrs.get("alt") or "").strip():
            self.mute.append(attrs.get("src", "")[:80])


@pytest.fixture(scope="session")
def parsed(pages):
    return {
        p: Page(p.read_text())
        for p in pages.rglob("*.html")
        if "_static" not in p.parts
    }


def test_every_page_is_built(pages):
    assert all((pages / f"{page}.html").exists() for page in toc())
    assert (pages / "index.html").exists()


def test_links_lead_somewhere(parsed, pages):
    broken = []
    for path, page in parsed.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (
                (path.parent / unquote(parts.path)).resolve() if parts.path else path
            )
            ids = parsed[target].ids if target in parsed else {unquote(parts.fragment)}
            if not target.exists() or (
                parts.fragment and unquote(parts.fragment) not in ids
            ):
                broken.append((path.name, link))
    assert not broken


def test_pages_load_only_their_own_files(parsed):
    for path, page in parsed.items():
        for address in page.loads:
            parts = urlsplit(address)
            assert parts.scheme in ("", "data") and not parts.netloc, (
                f"{path.name} loads {address}"
            )
            assert parts.scheme or (path.parent / unquote(parts.path)).exists(), (
                f"{path.name} lacks {address}"
            )


def test_mathjax_is_the_published_file_with_its_licence(pages):
    folder = pages / "_static" / "mathjax"
    found = hashlib.sha256((folder / "tex-svg-full.js").read_bytes()).hexdigest()
    assert found.startswith("a4354ff94fd868ae")  # mathjax 3.2.2 on npm
    assert "Apache License" in (folder / "LICENSE").read_text()


def test_every_picture_has_words(parsed):
    assert not {path.name: page.mute for path, page in parsed.items() if page.mute}


def test_pages_stay_small(parsed):
    assert not [
        path.name for path, page in parsed.items() if len(page.text) > 2_000_000
    ]


def test_the_bibliography_lists_every_entry(parsed, pages):
    assert len(
        re.findall(r'<div class="citation', parsed[pages / "references.html"].text)
    ) == len(bibliography())


def test_notebooks_can_be_downloaded_and_perhaps_launched(parsed, pages):
    """Colab and Binder are offered if, and only if, the repository has an address."""
    address = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    for path in NOTEBOOKS:
        links = parsed[pages / path.relative_to(BOOK).with_suffix(".html")].links
        assert any(link.endswith(path.name) and "://" not in link for link in links)
        hosts = {urlsplit(link).netloc for link in links}
        for host in ("colab.research.google.com", "mybinder.org"):
            assert (host in hosts) == bool(address)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_find_records_by_the_library(path):
    """So that a notebook runs from any folder, with the records of the package."""
    assert "../results" not in path.read_text(encoding="utf-8")


def test_chapters_say_how_long_they_are(parsed, pages):
    for path in NOTEBOOKS:
        page = parsed[pages / path.relative_to(BOOK).with_suffix(".html")]
        told = re.findall(r"About \d+ minutes to read|Reading time", page.text)
        assert len(told) == 1, path.name


def test_the_introduction_promises_only_what_exists(parsed, pages):
    text = parsed[pages / "intro.html"].text
    for paper in ("wecfl", "fedgwc", "ocfl", "fedcvr_bolt", "gcfl"):
        assert (f'href="papers/{paper}.html"' in text) == (
            BOOK / "papers" / f"{paper}.ipynb"
        ).exists()


def test_the_introduction_counts_the_verdicts_of_the_chapters(parsed, pages):
    intro = parsed[pages / "intro.html"].text
    rows = re.findall(
        r'href="papers/(\w+)\.html".*?</td>\s*((?:<td><p>\d+</p></td>\s*){5})',
        intro,
        re.S,
    )
    assert {paper for paper, _ in rows} == {
        p.stem for p in NOTEBOOKS if p.parent.name == "papers"
    }
    for paper, cells in rows:
        runs, *counts = map(int, re.findall(r"\d+", cells))
        chapter = parsed[pages / "papers" / f"{paper}.html"].text
        caption = r"The paper.{1,6}s claims(?:, [^:<]+)?: ([^<]+?)\.<"
        told = re.search(caption, chapter)[1]
        several = {"hold": "holds", "fail": "fails"}
        found = {
            several.get(name, name): int(n)
            for n, name in re.findall(r"(\d+) ([a-z ]+)", told)
        }
        assert counts == [found.get(verdict, 0) for verdict in VERDICTS]
        assert sum(counts) >= 8
        records = [
            record["key"]
            for table in CATALOGUE[paper]
            for record in store.read(
                ROOT / "book" / "results" / paper / f"{table}.json"
            )
        ]
        assert runs == len(set(records))


# --- the program that builds them, on a book of one chapter ---------------------------

TINY = {
    "_config.yml": "title: Tiny\nonly_build_toc_files: true\n"
    "execute: {execute_notebooks: cache, stderr_output: remove-warn}\n"
    "sphinx:\n  config: {nb_execution_raise_on_error: true}\n",
    "constraints.txt": "torch==0\n",
    "fednb/__init__.py": "",
    "book/_toc.yml": "format: jb-book\nroot: intro\nchapters:\n- file: one\n",
    "book/intro.md": "# Tiny\n\nSee {doc}`one`.\n",
}


TOOLS = sorted(path.stem for path in (BOOK / "_tools").glob("*.py"))


class Tiny:
    """A project of one chapter in a folder of its own."""

    def __init__(self, root):
        self.root = root
        for name, text in TINY.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        shutil.copytree(BOOK / "_tools", root / "book" / "_tools")
        self.write("print(6 * 7)")

    def tool(self, name):
        """A module of this book's tools: they look for the book that they lie in."""
        return importlib.import_module(name)

    def write(self, source, text="# One", name="one.ipynb"):
        notebook = nbformat.v4.new_notebook(
            metadata={"kernelspec": {"name": "python3", "display_name": "Python"}}
        )
        notebook.cells = [
            nbformat.v4.new_markdown_cell(text, id="a"),
            nbformat.v4.new_code_cell(source, id="b"),
        ]
        nbformat.write(notebook, self.root / "book" / name)

    def build(self, verb):
        tools = self.root / "book" / "_tools"
        command = [sys.executable, tools / "make_book.py", verb]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.root)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    project = Tiny(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "book" / "_tools")
    forget_tools()
    yield project
    forget_tools()


def forget_tools():
    """Tools look for the book that they lie in: ours, or the tiny one's."""
    for name in TOOLS:
        sys.modules.pop(name, None)


def test_a_good_book_is_made_once(tiny):
    code, said = tiny.build("html")
    assert code == 0 and "ran book/one.ipynb" in said, said
    assert "42" in (tiny.root / "_build" / "html" / "one.html").read_text()
    code, said = tiny.build("html")
    assert (
        code == 0
        and "all executed already" in said
        and "up to date" in said
        and len(said.splitlines()) == 2
    )

    (tiny.root / "book" / "intro.md").write_text("# Tiny\n\nSee {doc}`none`.\n")
    for _ in range(2):  # a warning does not go away by asking again
        code, said = tiny.build("html")
        assert (
            code != 0 and "unknown document" in said and "all executed already" in said
        ), said

    tool = tiny.tool("execute_notebooks")
    chapter = tiny.root / "book" / "one.ipynb"
    tiny.write("print(6 * 7)", text="# One\n\nOther words.")
    assert tool.is_known(chapter), "prose does not run"
    for name in ("fednb/__init__.py", "constraints.txt"):
        tool.remember(chapter, chapter, 1.0)
        assert tool.is_known(chapter)
        (tiny.root / name).write_text("# changed\n")
        assert not tool.is_known(chapter), (
            f"a change of {name} must throw the executions away"
        )


def test_a_site_is_a_folder_for_a_web_server(tiny):
    code, said = tiny.build("site")
    assert code == 0 and "site: put _build/site" in said, said
    site = tiny.root / "_build" / "site"
    assert (site / "one.html").exists() and (site / ".nojekyll").exists()
    assert not (site / ".buildinfo").exists()
    assert not list(site.rglob("*macros*")), "templates of the theme, with dead links"


@pytest.mark.parametrize("address", ["", "https://github.com/somebody/fednb"])
def test_launch_buttons_need_an_address(tiny, address):
    settings = yaml.safe_load((ROOT / "_config.yml").read_text())
    tiny_settings = yaml.safe_load(TINY["_config.yml"])
    tiny_settings["repository"] = settings["repository"] | {"url": address}
    tiny_settings["launch_buttons"] = settings["launch_buttons"]
    for name in ("extra_extensions", "local_extensions"):
        tiny_settings["sphinx"][name] = settings["sphinx"][name]
    (tiny.root / "_config.yml").write_text(yaml.safe_dump(tiny_settings))
    code, said = tiny.build("html")
    assert code == 0, said
    page = Page((tiny.root / "_build" / "html" / "one.html").read_text())
    launched = [link for link in page.links if "somebody" in link]
    if address:
        copy = "somebody/fednb"
        colab = f"https://colab.research.google.com/github/{copy}/blob/main"
        binder = f"https://mybinder.org/v2/gh/{copy}/main?urlpath=lab/tree"
        assert f"{colab}/book/one.ipynb" in launched
        assert f"{binder}/book/one.ipynb" in launched
    else:
        assert not launched
        assert not [link for link in page.links if "colab" in link or "binder" in link]
    assert "About 5 minutes to read" in page.text
    texts = tiny.root / "_build" / "html" / "_static" / "search_texts.js"
    assert '"one.html": "One' in texts.read_text()


def test_searches_find_words_but_no_pictures(tiny):
    from docutils import nodes

    page = nodes.section("", nodes.paragraph(text="A curve falls."))
    page += nodes.raw("", "<svg>long</svg>", format="html")
    extension = tiny.tool("book_extension")
    assert extension.words_of(page) == "A curve falls."


def test_notebooks_install_the_project_if_it_has_an_address(monkeypatch):
    monkeypatch.syspath_prepend(BOOK / "_tools")
    import launch

    for path in NOTEBOOKS:
        right = launch.has_right_cell(read(path), path, launch.address())
        assert right, "python book/_tools/launch.py writes the install cells"


def test_the_install_cell_installs_only_where_nothing_is(tiny, monkeypatch, tmp_path):
    """Written by the tool as the address says; it gets the project and goes there."""
    launch = tiny.tool("launch")
    config = tiny.root / "_config.yml"
    chapter = tiny.root / "book" / "one.ipynb"
    before = chapter.read_text()
    assert launch.main() == 0 and chapter.read_text() == before
    where = "https://example.org/somebody/fednb"
    config.write_text(config.read_text() + f"repository: {{url: '{where}'}}\n")
    launch.main()
    launch.main()
    cells = nbformat.read(chapter, as_version=4).cells
    assert [cell.id for cell in cells] == ["a", "install", "b"]
    done = []
    monkeypatch.setattr(subprocess, "run", lambda words, check: done.append(words))
    exec(cells[1].source, {})
    assert not done  # fednb is here
    there = tmp_path / "elsewhere"
    (there / "fednb" / "book").mkdir(parents=True)
    monkeypatch.chdir(there)
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = importlib.machinery.ModuleSpec("fednb", None)  # what Python makes of one
    for found in (None, folder):
        done.clear()
        monkeypatch.chdir(there)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, f=found: f)
        exec(cells[1].source, {})
        clone, install = done
        assert clone[:2] == ["git", "clone"] and where in clone
        assert install[-1] == "fednb[papers]"
        assert Path.cwd() == there / "fednb" / "book"
    (there / "fednb" / "pyproject.toml").touch()  # a clone of an earlier attempt
    done.clear()
    monkeypatch.chdir(there)
    exec(cells[1].source, {})
    assert done == [install]
    config.write_text(config.read_text().replace(where, ""))
    launch.main()
    assert [cell.id for cell in nbformat.read(chapter, as_version=4).cells] == [
        "a",
        "b",
    ]


def test_a_bad_notebook_fails_every_time(tiny):
    tiny.write("1 / 0")
    tiny.write("import sys\nprint('beware', file=sys.stderr)", name="two.ipynb")
    for _ in range(2):
        code, said = tiny.build("execute")
        assert (
            code != 0
            and "FAILED book/one.ipynb" in said
            and "FAILED book/two.ipynb" in said
        )
        assert "ZeroDivisionError" in said and "cell 1 writes to stderr: beware" in said


def test_docstrings_become_restructured_text(tiny):
    extension = tiny.tool("book_extension")
    lines = [
        "Say |x| and `a|b`.",
        "",
        "| paper | here |",
        "|---|---|",
        "| w | theta[0] |",
        "",
    ]
    extension.on_docstring(None, "module", "", None, None, lines)
    assert lines[0] == r"Say \|x\| and `a|b`."
    assert lines[2:8] == [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: auto",
        "",
        "   * - paper",
        "     - here",
    ]
    assert "- ``theta``: (n, D) the clients' new rows" in extension.field_list(
        fednb.federation.Update
    )
    fields = extension.field_list(fednb.training.Plan)
    assert "- ``index``: (S, B) sample numbers" in fields and "type:" not in fields


NASTY = [
    "<script>alert(1)</script>",
    "\\<img src=x onerror=alert(1)>",
    "![x](https://example.org/x.png) and [y](https://example.org)",
    "{{ 7 * 7 }} {doc}`intro` \\{{ 7 * 7 }}",
    "*a* **b** _c_ `d` $e$ ~f~ |g| &lt; &#60; <https://example.org>",
    "# no heading\n\n- no list\n\n```\nno code\n```",
    "FedAvg, α = 0.1 (accuracy)",
]


def spans(markdown):
    """What a page of the book would show inline, as (kind, text)."""
    from myst_parser.config.main import MdParserConfig
    from myst_parser.mdit_to_docutils.base import DocutilsRenderer
    from myst_parser.parsers.mdit import create_md_parser

    settings = yaml.safe_load((ROOT / "_config.yml").read_text())["parse"]
    config = MdParserConfig(enable_extensions=settings["myst_enable_extensions"])
    parser = create_md_parser(config, DocutilsRenderer)
    tokens = [token for token in parser.parse(markdown) if token.type == "inline"]
    return [(child.type, child.content) for t in tokens for child in t.children]


@pytest.mark.parametrize("text", NASTY)
def test_literal_text_is_shown_as_it_is(text):
    found = spans(f"Before {literal(text)}")
    assert {kind for kind, _ in found} <= {"text", "text_special"}
    assert "".join(part for _, part in found) == "Before " + " ".join(text.split())


def test_the_list_of_chapters_takes_claims_literally(tiny, monkeypatch):
    extension = tiny.tool("book_extension")
    (tiny.root / "book" / "papers").mkdir()
    tiny.write("", name="papers/wecfl.ipynb")
    found = [Claim(text, "Table 1", reason="no data") for text in NASTY]
    monkeypatch.setattr(extension, "claims_of", lambda paper: found)
    page = extension.chapters()
    for text in NASTY:
        assert html.escape(" ".join(text.split("\n"))) in page
    assert "\n\n<" not in page  # one block of HTML for each chapter


def test_a_chapter_says_which_of_its_runs_are_due(tiny):
    extension = tiny.tool("book_extension")
    folder = tiny.root / "book" / "results" / "wecfl"
    folder.mkdir(parents=True)
    (folder / "table.json").write_text('[{"key": "done"}]')
    (folder / "archive.json").write_text('{"runs": []}')
    assert extension.pending_note(folder) == ""
    pending = {
        "done": {"why": "IFCA 1 → 2"},
        "due": {"why": "<MTCFL> 1 → 2"},
    }
    store.write_pending(folder, pending)
    note = extension.pending_note(folder)
    assert "1 of the runs behind this chapter" in note
    assert "&lt;MTCFL&gt; 1 → 2" in note and "IFCA" not in note


@each_notebook
def test_text_from_records_is_shown_literally(path):
    """An f-string for Markdown holds formatted numbers, or text through `literal`."""
    own = {"words", "whence"}  # sentences of the chapters themselves
    for call in calls(code(path), "Markdown"):
        for value in ast.walk(call):
            if isinstance(value, ast.FormattedValue) and value.format_spec is None:
                what = ast.unparse(value.value)
                assert what.startswith("literal(") or what in own, what


def test_a_change_of_the_library_reaches_the_page(tiny):
    """The notebook itself stays as it is, so Sphinx would think its page up to date (it
    did, once).
    """
    tiny.write('print(open("../../fednb/__init__.py").read())')
    for words in ("first edition", "second edition"):
        (tiny.root / "fednb" / "__init__.py").write_text(f"# {words}\n")
        code, said = tiny.build("html")
        assert code == 0 and "ran book/one.ipynb" in said, said
        assert words in (tiny.root / "_build" / "html" / "one.html").read_text()
