"""The rules of the house: who imports whom, what an import costs, and that versions
stand in one place.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# design: a module imports from the layers below it; layer 0 from none of fednb
ALLOWED = {
    **dict.fromkeys(
        [
            "params",
            "similarity",
            "clustering",
            "reference",
            "metrics",
            "partition",
            "models",
            "conv",
        ],
        set(),
    ),
    "data": {"models", "partition"},
    "training": set(),
    "door": {"backends", "params", "training"},  # for its types only
    "backends": {"conv", "params", "training"},
    "entry": {"data", "partition", "training"},
    "federation": {
        *("backends", "data", "door", "entry", "params", "partition", "training"),
        "identity",
    },
    "views": {"backends", "door", "training"},
    "methods": {"params", "similarity", "clustering", "door", "views"},
    "history": {"door"},  # for its types only
    "contract": {"data", "door", "federation", "models", "partition", "training"},
    "identity": set(),
    "store": {"identity"},
    "engines": {"store"},
    "migrate": {"identity", "papers", "store"},
    "experiment": {
        *("door", "federation", "history", "identity", "metrics", "store"),
        *("training", "views"),
    },
    "sweeps": {
        *("data", "engines", "experiment", "federation", "history", "identity"),
        *("partition", "store", "training", "__version__"),
    },
    "arena": {
        *("data", "door", "experiment", "methods", "metrics", "models", "partition"),
        *("training", "ranks", "sweeps", "tables", "plots", "store", "widgets"),
    },
    "papers": {  # what the chapters need, so on top of nearly all
        *(
            "arena",
            "data",
            "experiment",
            "federation",
            "methods",
            "metrics",
            "models",
            "params",
            "partition",
            "training",
        ),
        *("claims", "clustering", "door", "plots", "reference", "similarity", "tables"),
        *("store", "sweeps", "views"),
    },
    "forecast": {"door", "sweeps", "identity", "store"},
    "adopt": {"store"},
    "reproduce": {"adopt", "sweeps", "forecast", "papers", "store"},
    "tables": {"store", "sweeps"},
    "plots": {"history"},
    "ranks": {"plots"},
    "checks": set(),
    "claims": {"store", "tables"},
    "show": {"plots"},
    "widgets": {"plots"},
    "playground": {  # a page of its own, so on top of nearly all
        *("backends", "clustering", "data", "experiment", "history"),
        *("methods", "models", "partition", "store", "sweeps", "training", "widgets"),
    },
    "__init__": set(),
}


def imports_of(path):
    """Modules of fednb that a file imports, siblings within its own package left
    out.
    """
    inside = len(path.relative_to(ROOT / "fednb").parts) - 1
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == inside + 1:
            yield from (
                [node.module.split(".")[0]]
                if node.module
                else [a.name for a in node.names]
            )
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
            )
            yield from (n.split(".")[1] for n in names if n.startswith("fednb."))


FILES = sorted((ROOT / "fednb").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_keep_to_the_layers(path):
    room = path.relative_to(ROOT / "fednb").parts[0].removesuffix(".py")
    allowed = ALLOWED[room] | {"checks"}  # every room checks its arguments
    assert set(imports_of(path)) <= allowed, f"{room} may import {allowed} from fednb"


def test_the_layer_test_sees_imports():
    found = set(imports_of(ROOT / "fednb" / "federation.py"))
    assert found - {"checks"} == ALLOWED["federation"]


PRIVATE = re.compile(r"\b(fed|federation|twin|view)\._(?!repr_)[a-z]\w*")


@pytest.mark.parametrize("folder", ["fednb", "tests"])
def test_nobody_reads_private_fields_of_a_federation(folder):
    """What a judge needs is a verb of `door.Judge`."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for match in PRIVATE.finditer(path.read_text()):
            found.append(f"{path.name}: {match[0]}")
    assert not found
    assert PRIVATE.search("fed._" + "x[0]")


def imported_by(code):
    """The top-level modules that a fresh Python has loaded after running ``code``."""
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", f"{code}\n{report}"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(out.split())


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def private_imports(path):
    """Private names of other modules of the project that a file uses, siblings too."""
    tree = ast.parse(path.read_text())
    modules = {}  # what stands for another module here: name -> module
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if not node.level and home.partition(".")[0] not in OURS:
                continue
            for alias in node.names:
                name = f"{home}.{alias.name}".lstrip(".")
                modules[alias.asname or alias.name] = name
                if is_private(alias.name):
                    found.add(name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname and alias.name.partition(".")[0] in OURS:
                    modules[alias.asname] = alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            home = modules.get(node.value.id, "")
            is_module = home.rpartition(".")[2][:1].islower()  # a class has a capital
            if is_module and is_private(node.attr):
                found.add(f"{home}.{node.attr}")
    return found


TOOLS = sorted((ROOT / "book" / "_tools").glob("*.py"))
OURS = {"fednb", *(path.stem for path in TOOLS)}


@pytest.mark.parametrize(
    "path", [*FILES, *TOOLS], ids=lambda p: str(p.relative_to(ROOT))
)
def test_no_private_name_of_another_module_is_used(path):
    assert not private_imports(path)


def test_the_test_of_private_names_can_fail(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "from . import store\nfrom .data import _load\nfrom fednb import tables as t\n"
        "import fednb.show as s\nfrom .history import History\nimport numpy as np\n"
        "store._locked, t._need, s._words, History._make, np._core, store.__name__"
    )
    assert private_imports(file) == {
        "store._locked",
        "data._load",
        "fednb.tables._need",
        "fednb.show._words",
    }


def test_import_is_light():
    loaded = imported_by("import fednb; fednb.run; fednb.Federation")
    heavy = {"matplotlib", "ipywidgets", "sklearn", "pandas", "torchvision"}
    assert "torch" in loaded and not loaded & heavy


def test_no_module_needs_an_extra_to_be_imported():
    """A plain ``pip install fednb`` is enough until something of an extra is used."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in FILES
        if path.name != "__init__.py"
    ]
    loaded = imported_by("import " + ", ".join(names))
    assert "anywidget" in loaded  # the widgets' module was imported
    assert not loaded & {"torchvision", "distributed", "dask", "submitit"}
    gone = {"skimage", "scikit_posthocs", "statsmodels", "captum", "medmnist"}
    assert not loaded & gone


def test_public_names_exist():
    import fednb

    for name in fednb.__all__:
        assert getattr(fednb, name) is not None
    assert set(fednb.__all__) <= set(dir(fednb))
    with pytest.raises(AttributeError, match="nonsense"):
        fednb.nonsense  # noqa: B018


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {normal(name): version for name, version in pairs}


def direct():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [
        d for extra in project["optional-dependencies"].values() for d in extra
    ]
    return {normal(re.split(r"[<>=\[]", d)[0]) for d in wanted} - {"fednb"}


def test_every_dependency_is_pinned():
    assert direct() <= set(pins())


def test_the_extra_of_the_book_is_enough_for_its_notebooks():
    """Without make one installs ``.[book]``, and builds the book with it."""
    notebooks = (ROOT / "book").rglob("*.ipynb")
    assert any("torchvision()" in path.read_text() for path in notebooks)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "fednb[papers]" in settings["project"]["optional-dependencies"]["book"]


def test_environment_equals_constraints():
    lines = re.findall(
        r"^ +- ([\w.-]+)==(\S+)$", (ROOT / "environment.yml").read_text(), re.M
    )
    environment = {normal(name): version for name, version in lines}
    assert set(environment) == direct()
    assert environment == {name: pins()[name] for name in environment}


def test_this_environment_is_the_pinned_one():
    from importlib.metadata import version

    wrong = {
        n: (version(n), pins()[n])
        for n in direct()
        if version(n).split("+")[0] != pins()[n]
    }
    assert not wrong


def test_make_help_lists_the_targets():
    out = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for target in ("book", "site", "wheel", "lab", "test", "bench", "bench-peers"):
        assert re.search(rf"^{target}\s+\S", out, re.M), (
            f"make help does not list {target}"
        )


def test_the_readme_example_runs():
    """The example in the README is 30 lines at most, and prints what stands below."""
    text = (ROOT / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    printed = re.search(r"```text\n(.*?)```", text, re.S).group(1)
    assert len(code.splitlines()) <= 30
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    found = [line.split() for line in out.stdout.splitlines()]
    told = [line.split() for line in printed.splitlines()]
    assert found[:2] == told[:2]
    for row, words in zip(found[2:], told[2:], strict=True):
        assert row[0] == words[0]
        numbers = [float(x) for x in words[1:]]
        assert [float(x) for x in row[1:]] == pytest.approx(numbers, abs=0.03)


def test_the_example_of_the_api_pages_runs(tmp_path):
    text = (ROOT / "book" / "api" / "index.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    command = [sys.executable, "-c", code]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    out = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert out.returncode == 0, out.stderr
    assert 0 <= float(out.stdout) <= 1
    assert (tmp_path / "run.pt").exists()


def test_the_citation_names_this_version():
    import fednb

    text = (ROOT / "CITATION.cff").read_text()
    assert f"version: {fednb.__version__}\n" in text


def test_the_readme_tells_the_verdicts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_tools")
    import front_page

    again = "python book/_tools/front_page.py writes them anew"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert front_page.findings() in readme, again
    assert front_page.picture() == front_page.PICTURE.read_text(encoding="utf-8"), again


def test_the_readme_links_to_what_exists():
    """Headings of its own, and files of the project."""
    text = (ROOT / "README.md").read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith("#"):
            assert link[1:] in anchors, link
        else:
            assert "://" in link or (ROOT / link.split("#")[0]).exists(), link


def test_the_readme_can_be_pasted():
    """Into any shell: zsh and cmd take a comment behind a command for arguments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|bat)\n(.*?)```", text, re.S)
    assert len(blocks) >= 5
    for line in "".join(blocks).splitlines():
        assert "#" not in line and len(line) <= 80, line


def test_the_readme_checks_a_record_that_exists():
    from fednb import store

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command = r"(\w+) --table (\w+) --again --key (\w+)$"
    paper, table, start = re.search(command, text, re.M).groups()
    keys = store.finished(ROOT / "book" / "results" / paper / f"{table}.json")
    assert len([key for key in keys if key.startswith(start)]) == 1


def test_the_workflows_call_targets_of_make():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        called = re.findall(r"run: make (\S+)", path.read_text())
        assert called and set(called) <= targets, path


def test_the_readme_shows_the_book():
    pictures = re.findall(r"!\[(.+)\]\((.+)\)", (ROOT / "README.md").read_text())
    assert pictures and all(alt and (ROOT / path).exists() for alt, path in pictures)


def test_the_readme_shows_the_committed_bench_results():
    import json

    from tests.bench.__main__ import table

    results = json.loads((ROOT / "tests" / "bench" / "results.json").read_text())
    text = (ROOT / "README.md").read_text()
    assert table(results).split("\n\n")[0] in text
    assert f"{100 * results['server_share']:.1f} %" in text


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", *who, "-C", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True)


def test_a_commit_counts_only_if_it_tracks_the_library(tmp_path, monkeypatch):
    """An installed copy inside somebody's own repository is "unknown", not theirs."""
    from fednb import sweeps

    package = tmp_path / "env" / "fednb"
    package.mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    (package / "sweeps.py").write_text("")
    monkeypatch.setattr(sweeps, "__file__", str(package / "sweeps.py"))
    assert sweeps.commit() == "unknown"  # no repository at all
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "notes.txt")
    git(tmp_path, "commit", "--quiet", "-m", "notes")
    assert sweeps.commit() == "unknown"  # a repository of something else
    git(tmp_path, "add", "env")
    git(tmp_path, "commit", "--quiet", "-m", "library")
    assert re.fullmatch(r"[0-9a-f]{12}", sweeps.commit())
    (package / "sweeps.py").write_text("changed = True")
    assert sweeps.commit().endswith("-dirty")


def test_tables_about_speed_are_those_that_were_measured():
    """`book/api/runs.md` shows what the two benchmarks last wrote."""
    from .bench import kernels, spent

    page = (ROOT / "book" / "api" / "runs.md").read_text(encoding="utf-8")
    shown = {
        "profile": spent.table_of(json.loads(spent.FILE.read_text())),
        "kernels": kernels.table(json.loads(kernels.FILE.read_text())),
    }
    for name, table in shown.items():
        assert f"<!-- {name} -->\n{table}\n<!-- /{name} -->" in page
