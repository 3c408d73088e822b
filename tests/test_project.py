"""The rules of the house: who imports whom, what an import costs, and that versions stand in one place."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# design: a module may import from the layers below it; layer-0 modules from none of fednb
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
    "backends": {"conv", "params", "training"},
    "entry": {"data", "partition", "training"},
    "federation": {"backends", "data", "entry", "params", "partition", "training"},
    "methods": {"params", "similarity", "clustering"},
    "history": set(),
    "identity": set(),
    "store": {"identity"},
    "engines": {"store"},
    "migrate": {"identity", "papers", "store"},
    "experiment": {
        "data",
        "engines",
        "identity",
        "federation",
        "history",
        "metrics",
        "partition",
        "store",
        "training",
        "__version__",
    },
    "papers": {  # what the chapters need, so on top of nearly all
        *(
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
        *("clustering", "explain", "plots", "reference", "similarity", "tables"),
    },
    "reproduce": {"experiment", "papers", "store"},
    "tables": {"experiment", "store"},
    "plots": {"history"},
    "explain": {"params", "plots", "training"},
    "checks": set(),
    "claims": set(),
    "show": set(),
    "widgets": set(),
    "__init__": set(),
}


def imports_of(path):
    """Modules of fednb that a file imports, siblings within its own package left out."""
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


def test_import_is_light():
    code = (
        "import time, sys; t = time.perf_counter(); import fednb; fednb.run; fednb.Federation; "
        "print(time.perf_counter() - t); "
        "print([m for m in ('matplotlib', 'ipywidgets', 'sklearn', 'pandas', 'torchvision') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    assert out[1] == "[]"


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
    for target in ("book", "lab", "test", "bench", "bench-peers"):
        assert re.search(rf"^{target}\s+\S", out, re.M), (
            f"make help does not list {target}"
        )


def test_the_readme_example_runs():
    """The example in the README is 30 lines at most, and does what it says."""
    code = re.search(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    ).group(1)
    assert len(code.splitlines()) <= 30
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert "FedAvg" in out.stdout and "LocalOnly" in out.stdout


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
