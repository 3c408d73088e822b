"""Explorers in a real browser: printed on a page without network, and live in
JupyterLab.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat
import numpy as np
import psutil
import pytest

from fednb import store
from fednb.widgets import bars, explore, heatmap, lines, text
from tests.browser import PATIENCE, browser_fixture  # noqa: F401

BOOK = Path(__file__).parents[1] / "book"
CELL = """
from fednb.widgets import explore, lines, text

def power(a, k):
    if k == 2 and a == 3:
        raise ValueError("no such power")
    return [
        lines([a * x**k for x in range(5)], title="curve"),
        text(f"a = {a:g}, k = {k}, sum = {a + k:g}"),
    ]

explore(power, title="Powers", a=[0, 1, 2, 3], k=[1, 3])
"""


# ---- a page without a kernel


def split(alpha, K):
    shares = np.random.default_rng(0).dirichlet([alpha] * 4, size=K)
    return [
        heatmap(shares, title="shares"),
        bars(shares.max(1)),
        text(f"alpha {alpha:g} and K {K}"),
    ]


def curve(rate, kind):
    """Loss over rounds."""
    return lines({kind: np.exp(-rate * np.arange(9))}, ylabel="loss", log="y")


def picture(n):
    """A line that grows."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(3, 2))
    axes.plot(range(n))
    return figure


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    explorers = [
        explore(split, alpha=[0.1, 1, 10], K=[2, 5]),
        explore(curve, rate=[0.1, 0.5], kind=["train", "test"]),
        explore(picture, n=[2, 3, 4]),
        explore(picture, n=[2, 3, 4]),  # the very same twice on one page
    ]
    path = tmp_path_factory.mktemp("page") / "page.html"
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    head += "<title>page</title></head>"
    path.write_text(
        head + "<body>" + "\n".join(e.html for e in explorers) + "</body></html>",
        encoding="utf-8",
    )
    return path


def state(browser, explorer):
    return browser.js(
        "return arguments[0].querySelector('.fx-view').innerHTML", explorer
    )


def test_a_page_needs_neither_kernel_nor_network(browser, page):
    from selenium.webdriver import ActionChains, Keys

    browser.resize(1280)
    browser.open(page)
    browser.wait(lambda: len(browser.all(".fx-view > *")) == 6, "all panels")
    first, words, figure, twin = browser.all(".fednb-explore")

    alpha, K = browser.all("input[type=range]", first)
    assert [e.text for e in browser.all(".fx-marks span", first)] == [
        "0.1",
        "1",
        "10",
        "2",
        "5",
    ]
    before = state(browser, first)
    alpha.send_keys(Keys.ARROW_RIGHT)  # by keyboard
    K.send_keys(Keys.END)
    assert "alpha 1 and K 5" in first.text and state(browser, first) != before
    assert alpha.get_attribute("aria-valuetext") == "1"
    label = browser.find(f"label[for='{alpha.get_attribute('id')}']", first)
    assert label.text == "alpha" and alpha.accessible_name == "alpha"
    ActionChains(browser.driver).move_to_element_with_offset(
        alpha, alpha.size["width"] // 2 - 4, 0
    ).click().perform()
    assert "alpha 10 and K 5" in first.text  # by mouse, at the right end
    browser.all(".fx-marks span", first)[0].click()
    assert "alpha 0.1 and K 5" in first.text  # by a click on a mark
    assert "Values between the marks need a running kernel" in first.text

    before = state(browser, words)
    browser.find("input[type=radio]", words).send_keys(Keys.ARROW_RIGHT)
    assert (
        browser.find(".fx-legend", words).text == "test"
        and state(browser, words) != before
    )

    sources = [browser.find("img", e).get_attribute("src") for e in (figure, twin)]
    browser.find("input", figure).send_keys(Keys.ARROW_RIGHT)
    moved = [browser.find("img", e).get_attribute("src") for e in (figure, twin)]
    assert moved[0] != sources[0] and moved[1] == sources[1]
    assert (
        browser.find("img", figure).get_attribute("alt") == "A line that grows.; n = 3"
    )
    assert (
        browser.js("return arguments[0].naturalWidth", browser.find("img", figure))
        > 100
    )

    assert browser.errors() == []
    assert browser.requests() == [page.as_uri()]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_fits_the_screen_and_can_be_read(browser, page, width, theme):
    browser.resize(width)
    browser.open(page)
    browser.theme(theme)
    browser.wait(lambda: len(browser.all(".fx-view > *")) == 6, "all panels")
    assert browser.js("return document.documentElement.scrollWidth") <= width
    # Drawn for the width there is, so that labels keep their size. On a phone two
    # drawings share a screen's height and may be a little smaller.
    least = 1.0 if width == 1280 else 0.8
    for svg in browser.all(".fx-svg"):
        drawn = float(svg.get_attribute("width"))
        assert least * drawn - 1 <= svg.rect["width"] <= drawn + 1
        assert svg.get_attribute("aria-label")
    assert all(picture.get_attribute("alt") for picture in browser.all("img"))
    tops = {
        panel.rect["y"]
        for panel in browser.all(".fx-panel", browser.find(".fednb-explore"))
    }
    assert len(tops) == (1 if width == 1280 else 2), (
        "side by side on a desk, stacked on a phone"
    )


def test_without_scripts_the_first_picture_is_there(browser, page):
    browser.driver.execute_cdp_cmd(
        "Emulation.setScriptExecutionDisabled", {"value": True}
    )
    try:
        browser.open(page)
        assert [e.get_attribute("alt") for e in browser.all("img")] == [
            "A line that grows."
        ] * 2
        assert "alpha 0.1 and K 2" in browser.find("body").text
        assert browser.find("noscript").rect["height"] > 10, "the hint is visible"
    finally:
        browser.driver.execute_cdp_cmd(
            "Emulation.setScriptExecutionDisabled", {"value": False}
        )


# ---- live


@contextmanager
def jupyterlab(folder):
    """A JupyterLab of its own on a free port, with no token; it and its kernels are
    gone afterwards.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    private = {
        f"JUPYTER_{n}_DIR": str(folder / ".jupyter" / n.lower())
        for n in ("CONFIG", "DATA", "RUNTIME")
    }
    private |= {
        "IPYTHONDIR": str(folder / ".ipython"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / ".jupyter" / "spaces"),
    }
    options = f"--no-browser --ip=127.0.0.1 --port={port} --allow-root"
    options += f" --ServerApp.root_dir={folder} --ServerApp.port_retries=0"
    options += " --IdentityProvider.token= --LabApp.expose_app_in_browser=True"
    with open(folder / "lab.log", "wb") as log:
        command = [sys.executable, "-m", "jupyterlab", *options.split()]
        server = subprocess.Popen(
            command, env={**os.environ, **private}, stdout=log, stderr=log, cwd=folder
        )
        try:
            yield f"http://127.0.0.1:{port}", server
        finally:
            family = [
                psutil.Process(server.pid),
                *psutil.Process(server.pid).children(recursive=True),
            ]
            server.terminate()  # a clean stop ends the kernels too
            _, left = psutil.wait_procs(family, timeout=20)
            for process in left:
                process.kill()
            server.wait()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def ready(url, server, folder):
    """Wait until the server answers."""
    end = time.monotonic() + PATIENCE
    while not answers(f"{url}/api/status"):
        log = (folder / "lab.log").read_text()[-2000:]
        assert server.poll() is None and time.monotonic() < end, log
        time.sleep(0.2)


def open_notebook(browser, url, path):
    """Open a notebook in JupyterLab, and wait for its kernel."""
    browser.open(f"{url}/lab/tree/{path}?reset")
    kernel = "return window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady"
    browser.wait(lambda: browser.js(kernel), "kernel", PATIENCE * 10)


def test_live_in_jupyterlab(browser, tmp_path):
    from selenium.webdriver import Keys

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(notebook, tmp_path / "live.ipynb")
    with jupyterlab(tmp_path) as (url, server):
        ready(url, server, tmp_path)
        browser.resize(1280)
        open_notebook(browser, url, "live.ipynb")
        browser.js("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        root = browser.wait(
            lambda: browser.find(".jp-OutputArea .fednb-explore"), "the widget"
        )

        def settles(note, words):
            def shown():
                return (
                    browser.find(".fx-status", root).text,
                    browser.find(".fx-view", root).text,
                )

            browser.wait(
                lambda: shown()[0] == note and words in shown()[1],
                f"{note}, {words}; shown: {shown()}",
            )

        settles("precomputed", "a = 0, k = 1, sum = 1")
        a, k = browser.all("input[type=range]", root)
        a.send_keys(Keys.ARROW_RIGHT)  # the next integer is on the grid
        settles("precomputed", "a = 1, k = 1, sum = 2")
        before = state(browser, root)
        k.send_keys(Keys.ARROW_RIGHT)  # k = 2 is not
        settles("computed live", "a = 1, k = 2, sum = 3")
        assert state(browser, root) != before
        k.send_keys(Keys.ARROW_RIGHT)
        settles("precomputed", "a = 1, k = 3, sum = 4")
        a.send_keys(Keys.END)
        k.send_keys(Keys.ARROW_LEFT)  # an error is shown, and does no harm
        settles(
            "power(a=3, k=2) failed: ValueError: no such power", "a = 3, k = 3, sum = 6"
        )
        k.send_keys(Keys.HOME)
        settles("precomputed", "a = 3, k = 1, sum = 4")
        assert not [e for e in browser.errors() if "fednb" in e or "explore" in e]
        children = psutil.Process(server.pid).children(recursive=True)
        assert children, "the kernel runs in a process of its own"
    assert not [child for child in children if child.is_running()], (
        "a kernel was left behind"
    )


# ---- the book's notebooks

# What MyST is written with, and nobody should read: roles, options, fences, targets.
RAW = re.compile(r"\{[a-z:]+\}`|^:class:|^```|^\([a-z-]+\)=", re.M)
CELLS = """
const cells = window.jupyterapp.shell.currentWidget.content.widgets;
return cells.some((cell) => cell.isPlaceholder()) ? null
  : cells.filter((cell) => cell.model.type === "markdown")
    .map((cell) => cell.node.innerText).join("\\n");
"""
FOLDS = """
const folds = [...document.querySelectorAll(".jp-MarkdownCell details")];
return [folds.length, folds.filter((fold) => fold.open).length];
"""
MATHS = ".jp-MarkdownCell .katex, .jp-MarkdownCell mjx-container"
LINK = """
const links = [...document.querySelectorAll(".jp-MarkdownCell a")];
links.find((a) => a.textContent.trim() === arguments[0]).click();
"""
TITLE = "return window.jupyterapp.shell.currentWidget.title.label"


def test_jupyterlab_shows_no_raw_directive(browser, tmp_path):
    """Solutions are folded, maths is set, links open notebooks (jupyterlab-myst)."""
    names = [
        "playground.ipynb",
        "your_own.ipynb",
        "foundations/a_federated_round.ipynb",
    ]
    (tmp_path / "foundations").mkdir()
    for name in names:
        shutil.copy(BOOK / name, tmp_path / name)
    with jupyterlab(tmp_path) as (url, server):
        ready(url, server, tmp_path)
        for name in reversed(names):
            source = (tmp_path / name).read_text()
            browser.resize(1100, 15_000)  # JupyterLab draws what can be seen
            open_notebook(browser, url, name)
            browser.wait(
                lambda: (text := browser.js(CELLS)) and not RAW.search(text),
                f"{name} without raw text; left: "
                f"{RAW.findall(browser.js(CELLS) or '')}",
                PATIENCE * 5,
            )
            wanted = source.count(":class: dropdown")
            browser.wait(
                lambda n=wanted: browser.js(FOLDS) == [n, 0], f"{wanted} folds"
            )
            assert "$" not in source or browser.all(MATHS)
        browser.js(LINK, "A federated round")
        browser.wait(
            lambda: browser.js(TITLE) == "a_federated_round.ipynb", "the linked page"
        )


# ---- your own


IDLE = """
const prompts = [...document.querySelectorAll(".jp-InputPrompt")];
return !prompts.some((prompt) => prompt.textContent.includes("*"));
"""
GO_TO = """
const notebook = window.jupyterapp.shell.currentWidget.content;
const place = notebook.widgets.findIndex((cell) => cell.model.id === arguments[0]);
notebook.activeCellIndex = place;
return notebook.widgets[place].node.querySelector(".jp-OutputArea")?.innerText ?? "";
"""


def test_a_sweep_that_is_interrupted_goes_on(browser, tmp_path, monkeypatch):
    """With the interrupt button, in the notebook as a person has it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where the notebook keeps its records
    notebook = nbformat.read(BOOK / "your_own.ipynb", as_version=4)
    wanted = ["imports", "trimmed", "pca", "table", "from-arrays"]
    wanted += ["tasks", "some", "resume"]
    notebook.cells = [cell for cell in notebook.cells if cell.id in wanted]
    tasks = notebook.cells[wanted.index("tasks")]
    assert "rounds=15," in tasks.source
    tasks.source = tasks.source.replace("rounds=15,", "rounds=60,")  # time to act
    nbformat.write(notebook, tmp_path / "own.ipynb")

    def do(command):
        browser.js(f"window.jupyterapp.commands.execute('notebook:{command}')")

    def done(words):
        browser.wait(
            lambda: words in browser.js(GO_TO, "resume") and browser.js(IDLE),
            f"{words!r} below the sweep",
            PATIENCE * 10,
        )

    with jupyterlab(tmp_path) as (url, server):
        ready(url, server, tmp_path)
        browser.resize(1280, 5000)
        open_notebook(browser, url, "own.ipynb")
        browser.js(GO_TO, "resume")
        do("run-all-above")
        browser.wait(
            lambda: "5 of 12 runs" in browser.js(GO_TO, "some"), "five", PATIENCE * 10
        )
        browser.js(GO_TO, "resume")
        do("run-cell")
        (table,) = tmp_path.glob("tmp*/bands.json")
        browser.wait(lambda: len(store.finished(table)) > 5, "a sixth", PATIENCE * 10)
        do("interrupt-kernel")
        done("KeyboardInterrupt")
        kept = {record["key"]: record["check"] for record in store.read(table)}
        assert 5 < len(kept) < 12
        do("run-cell")
        done("12 of 12 runs are recorded")
        after = {record["key"]: record["check"] for record in store.read(table)}
        assert len(after) == 12 and kept.items() <= after.items()  # not run again
