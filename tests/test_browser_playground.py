"""The playground in a real browser.

In JupyterLab: choose, run, change a parameter, stop. In the built book: the tour.
"""

import re
import time
from pathlib import Path

import nbformat
import pytest

from .browser import browser_fixture, chromium  # noqa: F401
from .test_book import pages_fixture  # noqa: F401
from .test_browser_lab import answers, jupyterlab

PATIENCE = 600  # seconds: the machine may be slow and busy
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
const label = (r) => r.querySelector("label");
const row = rows.find((r) => label(r) && words(label(r)) === name);
return row && row.querySelector(kind);
"""
STATUS = """
const state = /^(ready|running|pausing|paused|stopped|finished|failed)/;
return [...document.querySelectorAll(".fednb-playground .widget-html-content")]
  .map((e) => e.textContent.trim()).filter((s) => state.test(s)).join(" ");
"""
TITLES = """
const titles = document.querySelectorAll(".fednb-playground .fx-title");
return [...titles].map((e) => e.textContent);
"""
PLACES = """
const board = [...document.querySelectorAll(".fednb-playground .fx-board")].pop();
const panels = [...board.querySelectorAll(".fx-panel")];
return panels.map((panel) => panel.getBoundingClientRect().toJSON());
"""
TABS = ".fednb-playground .lm-TabBar-tab"
TAB = """
const page = arguments[0].closest(".widget-tab-contents > *");
return [...page.parentNode.children].indexOf(page);
"""
UNFOLD = """
const name = ".jupyter-widget-Collapse";
const folds = document.querySelectorAll(`.fednb-playground ${name}`);
for (const fold of folds)
  if (!fold.classList.contains("jupyter-widget-Collapse-open"))
    fold.querySelector(`${name}-header`).click();
"""
BOTTOM = "return arguments[0].getBoundingClientRect().bottom"
TO_THE_TOP = "document.querySelector('.fednb-playground').scrollIntoView()"
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
        browser.wait(lambda: browser.js(ready), "the kernel", PATIENCE)
        browser.js("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        browser.wait(
            lambda: browser.find(".fednb-playground .fx-board .fx-svg"),
            "the panel and its first picture",
            PATIENCE,
        )
        yield Panel(browser, folder)


class Panel:
    """What a person does with the panel."""

    def __init__(self, browser, folder):
        self.browser = browser
        self.folder = folder

    def wait(self, condition, what):
        """Wait until a condition holds, and return its value."""
        return self.browser.wait(condition, what, PATIENCE)

    def find(self, kind, name):
        return self.wait(lambda: self.browser.js(FIND, kind, name), f"{kind} {name}")

    def press(self, name):
        """Click a button as soon as it can be clicked."""
        button = self.find("button", name)
        self.wait(lambda: not button.get_property("disabled"), f"{name} to be enabled")
        self.browser.js("arguments[0].click()", button)

    def open_tab(self, place):
        """Show a tab of the panel: 0 the clients, 1 a round, 2 the methods."""
        self.wait(lambda: len(self.browser.all(TABS)) == 3, "three tabs")
        self.browser.all(TABS)[place].click()

    def reveal(self, element):
        """Open the tab that an element is on."""
        self.open_tab(self.browser.js(TAB, element))

    def choose(self, label, option):
        from selenium.webdriver.support.ui import Select

        box = self.find("select", label)
        self.reveal(box)
        Select(box).select_by_visible_text(option)

    def unfold(self, label):
        """Show the parameters of the methods, until the field of a label is seen."""

        def is_seen():
            field = self.browser.js(FIND, "select", label)
            if field is not None and not field.is_displayed():
                self.browser.js(UNFOLD)
            return field is not None and field.is_displayed()

        self.wait(is_seen, f"the field {label}")

    def type(self, label, value):
        """Write a number into the box beside a slider."""
        box = self.find(".widget-readout", label)
        self.reveal(box)
        self.browser.js("arguments[0].focus(); arguments[0].textContent = ''", box)
        box.send_keys(f"{value}\n")

    def status(self, word):
        """Wait for a status that begins with a word, and return it."""

        def shown():
            status = self.browser.js(STATUS)
            return status.startswith(word) and status

        return self.wait(shown, f"{word}; shown: {self.browser.js(STATUS)}")

    def pictures(self):
        """Titles of the drawings on both boards."""
        return self.browser.js(TITLES)

    def says(self, words):
        self.wait(
            lambda: words in self.browser.js(TEXT),
            f"{words!r} in {self.browser.js(TEXT)[-600:]}",
        )


def lower_edge(lab, name):
    """How far below the upper edge of the window a button ends."""
    return lab.browser.js(BOTTOM, lab.find("button", name))


def rounds_shown(status):
    """The rounds in ``paused · round 10, 7 of 300 · ...``: ``10, 7 of 300``."""
    return re.search(r"round (.* of \d+)", status)[1]


@pytest.mark.parametrize("tab", [0, 1, 2], ids=["clients", "round", "methods"])
def test_run_is_on_the_first_screen(lab, tab):
    """Panel at the top of a laptop's window: Run, Pause and Stop can be seen.

    Also with the parameters of a method with many fields unfolded.
    """
    lab.browser.resize(1280, 720)
    try:
        if tab == 2:
            lab.choose("method 2", "FedGWC")
            lab.unfold("aggregator")
        lab.open_tab(tab)
        lab.browser.js(TO_THE_TOP)
        for name in ("Run", "Pause", "Stop"):
            lab.wait(
                lambda name=name: 0 < lower_edge(lab, name) < 690,
                f"{name} on the first screen; it ends at {lower_edge(lab, name)}",
            )
    finally:
        if tab == 2:
            lab.choose("method 2", "WeCFL")
        lab.open_tab(0)
        lab.browser.resize(1280, 1400)


def test_the_class_map_follows_a_slider_at_once(lab):
    cells = ".fednb-playground .fx-board rect"
    before = len(lab.browser.all(cells))
    lab.type("clients", 8)
    lab.wait(
        lambda: 0 < len(lab.browser.all(cells)) < before, "fewer clients on the map"
    )
    lab.type("clients", 20)
    lab.wait(lambda: len(lab.browser.all(cells)) == before, "all clients again")


def test_a_law_that_does_not_fit_is_refused_in_a_sentence(lab):
    lab.type("classes/client, m", 9)
    lab.says("m = 9")
    lab.press("Run")  # refused: nothing starts
    assert lab.status("ready")
    lab.type("classes/client, m", 2)
    lab.wait(lambda: "m = 9" not in lab.browser.js(TEXT), "the sentence to go")


def test_choose_run_change_and_stop(lab):
    lab.choose("method 2", "IFCA")
    lab.type("rounds", 300)
    lab.type("local epochs", 10)  # long enough: nothing below races against its end
    lab.press("Run")
    lab.wait(lambda: "Accuracy, mean over clients" in lab.pictures(), "the first curve")
    assert "of 300" in lab.status("running")
    lab.wait(
        lambda: "IFCA: membership over rounds" in lab.pictures(), "the second method"
    )

    tops = [picture["y"] for picture in lab.browser.js(PLACES)[:2]]
    assert tops[0] == tops[1], "two pictures side by side on a desk"

    lab.type("seed", 3)  # the panel answers while it trains
    lab.says("These pictures belong to the run before: press Stop, then Run")
    lab.press("As code")
    lab.says("methods.IFCA(clusters=4)")

    lab.press("Pause")
    paused = rounds_shown(lab.status("paused"))
    time.sleep(1)  # if a thread were still at work, a round could end now
    assert rounds_shown(lab.browser.js(STATUS)) == paused
    lab.press("Continue")
    lab.status("running")

    lab.press("Stop")
    lab.status("stopped")
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
    lab.type("local epochs", 1)
    lab.type("rounds", 2)
    lab.press("Run")
    lab.status("finished")
    lab.says("FedAvg, round 2: accuracy")


def test_the_first_point_comes_soon_and_stop_acts_at_once(lab):
    """Printed, not asserted: on a quiet machine 2 s and 1 s are the aims."""
    lab.press("Reset")
    lab.status("ready")
    lab.type("clients", 20)
    lab.type("rounds", 300)
    clock = time.monotonic()
    lab.press("Run")
    lab.wait(lambda: "Accuracy, mean over clients" in lab.pictures(), "the first curve")
    print(f"first point after {time.monotonic() - clock:.2f} s")
    clock = time.monotonic()
    lab.press("Reset")
    lab.status("ready")
    print(f"at rest after {time.monotonic() - clock:.2f} s")
    assert not [e for e in lab.browser.errors() if "fednb" in e or "explore" in e]


CHOICES = "return [...document.querySelectorAll('.fednb-explore .fx-choice input')]"


def test_the_tour_works_from_a_file_and_fits_a_phone(pages):
    """No kernel, no network, and each picture on one screen of 390 × 844."""
    with chromium() as browser:
        browser.resize(390, 844)
        browser.open(pages / "playground.html")
        browser.wait(lambda: browser.find(".fednb-explore .fx-svg"), "tour", PATIENCE)
        names = browser.js(CHOICES + ".map((i) => i.value)")
        assert {"IFCA", "GCFL", "classes", "accuracy", "membership"} <= set(names)
        drawn = set()
        for place in range(len(names)):
            browser.js(CHOICES + "[arguments[0]].click()", place)
            drawn.add(browser.find(".fednb-explore .fx-view").text)
            assert browser.find(".fednb-explore").rect["height"] <= 844, names[place]
        assert len(drawn) > len(names) // 2  # other choices, other pictures
        assert browser.js("return document.documentElement.scrollWidth") <= 390
        assert not browser.errors()
        asked = [url for url in browser.requests() if not url.startswith("file:")]
        assert asked == []
