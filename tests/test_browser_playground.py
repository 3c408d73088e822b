"""The playground in a real JupyterLab: choose, run, change a parameter, stop."""

import re
import time
from pathlib import Path

import nbformat
import pytest

from .browser import PATIENCE, browser_fixture  # noqa: F401
from .test_browser_lab import answers, jupyterlab

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "book" / "playground.ipynb"

# The panel's widgets by their labels: what a person would look for.
FIND = r"""
const root = document.querySelector(".fednb-playground");
const words = (e) => e.textContent.trim();
const [kind, name] = arguments;
if (kind === "button")
  return [...root.querySelectorAll("button")].find((b) => words(b).endsWith(name));
const rows = [...root.querySelectorAll(".widget-inline-hbox")];
const row = rows.find((r) => r.querySelector("label") && words(r.querySelector("label")) === name);
return row && row.querySelector(kind);
"""
STATUS = """
return [...document.querySelectorAll(".fednb-playground .widget-html-content")]
  .map((e) => e.textContent.trim()).filter((s) => /^(ready|running|paused|stopped|finished|failed)/.test(s))
  .join(" ");
"""
TITLES = """
return [...document.querySelectorAll(".fednb-playground .fx-title")].map((e) => e.textContent);
"""
TEXT = "return document.querySelector('.fednb-playground').textContent"


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """The notebook's panel, open in JupyterLab with a live kernel."""
    folder = tmp_path_factory.mktemp("lab")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    wanted = ("imports", "panel")
    notebook.cells = [cell for cell in notebook.cells if cell.id in wanted]
    nbformat.write(notebook, folder / "playground.ipynb")
    with jupyterlab(folder) as (url, server):
        end = time.monotonic() + PATIENCE
        while not answers(f"{url}/api/status"):
            assert server.poll() is None and time.monotonic() < end
            time.sleep(0.2)
        browser.resize(1280, 1400)
        browser.open(f"{url}/lab/tree/playground.ipynb?reset")
        ready = "return window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady"
        browser.wait(lambda: browser.js(ready), "the kernel")
        browser.js("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        browser.wait(
            lambda: browser.find(".fednb-playground .fx-board .fx-svg"),
            "the panel and its first picture",
        )
        yield Panel(browser, folder)


class Panel:
    """What a person does with the panel."""

    def __init__(self, browser, folder):
        self.browser = browser
        self.folder = folder

    def find(self, kind, name):
        return self.browser.wait(
            lambda: self.browser.js(FIND, kind, name), f"{kind} {name}"
        )

    def press(self, name):
        self.browser.js("arguments[0].click()", self.find("button", name))

    def choose(self, label, option):
        from selenium.webdriver.support.ui import Select

        Select(self.find("select", label)).select_by_visible_text(option)

    def type(self, label, value):
        """Write a number into the box beside a slider."""
        box = self.find(".widget-readout", label)
        self.browser.js("arguments[0].focus(); arguments[0].textContent = ''", box)
        box.send_keys(f"{value}\n")

    def status(self, word, seconds=PATIENCE):
        return self.browser.wait(
            lambda: (
                self.browser.js(STATUS).startswith(word) and self.browser.js(STATUS)
            ),
            f"{word}; shown: {self.browser.js(STATUS)}",
            seconds,
        )

    def pictures(self):
        """Titles of the drawings on both boards."""
        return self.browser.js(TITLES)

    def says(self, words):
        self.browser.wait(
            lambda: words in self.browser.js(TEXT),
            f"{words!r} in {self.browser.js(TEXT)[-600:]}",
        )


def rounds_shown(status):
    """Rounds done by each method: [10, 7] in ``paused · round 10, 7 of 300 · ...``."""
    return [int(number) for number in re.findall(r"\d+(?=.* of )", status)]


def test_the_class_map_follows_a_slider_at_once(lab):
    cells = ".fednb-playground .fx-board rect"
    before = len(lab.browser.all(cells))
    lab.type("clients", 8)
    lab.browser.wait(
        lambda: 0 < len(lab.browser.all(cells)) < before, "fewer clients on the map"
    )
    lab.type("clients", 20)
    lab.browser.wait(lambda: len(lab.browser.all(cells)) == before, "all clients again")


def test_a_law_that_does_not_fit_is_refused_in_a_sentence(lab):
    lab.type("classes/client, m", 9)
    lab.says("m = 9")
    lab.type("classes/client, m", 2)
    lab.browser.wait(lambda: "m = 9" not in lab.browser.js(TEXT), "the sentence to go")


def test_choose_run_change_and_stop(lab):
    lab.choose("method 2", "IFCA")
    lab.type("rounds", 300)
    clock = time.monotonic()
    lab.press("Run")
    lab.browser.wait(
        lambda: "Accuracy, mean over clients" in lab.pictures(), "the first curve"
    )
    first_curve = time.monotonic() - clock
    status = lab.status("running")
    assert "of 300" in status
    lab.browser.wait(
        lambda: "IFCA: membership over rounds" in lab.pictures(), "the second method"
    )

    lab.type("seed", 3)  # the panel answers while it trains
    lab.press("As code")
    lab.says("methods.IFCA()")

    lab.press("Pause")
    paused = rounds_shown(lab.status("paused"))
    time.sleep(1)
    later = rounds_shown(lab.browser.js(STATUS))
    # Each method may end the round whose clients had all trained when Pause came.
    assert all(0 <= b - a <= 1 for a, b in zip(paused, later, strict=True))
    lab.press("Continue")
    lab.status("running")

    clock = time.monotonic()
    lab.press("Stop")
    lab.status("stopped")
    print(f"first curve {first_curve:.2f} s, stop {time.monotonic() - clock:.2f} s")

    lab.press("Save")
    lab.says("saved to my_runs")
    assert (lab.folder / "my_runs" / "playground.json").exists()
    lab.press("Reset")
    lab.status("ready")


def test_an_error_is_shown_and_the_panel_goes_on(lab):
    lab.press("Reset")  # whatever went before
    lab.status("ready")
    lab.choose("method 1", "FixedClusters")  # labels for the twenty clients of now
    lab.type("clients", 12)
    lab.press("Run")
    lab.status("failed")
    lab.says("20 labels for 12 clients")
    lab.choose("method 1", "FedAvg")
    lab.type("rounds", 2)
    lab.press("Run")
    lab.status("finished")
    assert not [e for e in lab.browser.errors() if "fednb" in e or "explore" in e]
