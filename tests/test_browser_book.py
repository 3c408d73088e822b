"""The built book in a real browser, opened from files with the network cut, as a reader
on a train would open it.
"""

import re

import pytest

from .browser import browser_fixture  # noqa: F401
from .test_book import BOOK, NOTEBOOKS, pages_fixture, toc  # noqa: F401

each_page = pytest.mark.parametrize("page", toc())
chapters = [
    str(path.relative_to(BOOK).with_suffix(""))
    for path in NOTEBOOKS
    if re.search(r"\b(explore|tour)\(", path.read_text())
]

# Text of the page that is not code, script or style, and that a formula's source could
# be left over in.
LEFT_OVER = r"""
const article = document.querySelector("article");
const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (node.parentElement.closest("code, pre, script, style, mjx-container")) continue;
  if (/\\\(|\\\[|\$[^$\s][^$\n]*\$|\{(cite|doc|ref|math)\}/.test(node.data))
    found.push(node.data.trim().slice(0, 80));
}
return found;
"""

# Every piece of text whose colour is too close to what lies behind it (WCAG: 4.5, for
# large text 3).
FAINT = r"""
const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) =>
  0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = colour => {
  const n = colour.match(/[\d.]+/g).map(Number);
  return n.length < 4 ? [...n, 1] : n;
};
const over = (top, below) =>
  [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
function behind(element) {
  const layers = [];
  for (let e = element; e; e = e.parentElement)
    layers.push(parse(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
}
// the last rectangle drawn under the middle of the text, else the page
function painted(svg, text) {
  const box = text.getBoundingClientRect();
  const x = box.x + box.width / 2;
  const y = box.y + box.height / 2;
  const under = [...svg.querySelectorAll("rect")].filter(rect => {
    const r = rect.getBoundingClientRect();
    const before = rect.compareDocumentPosition(text) & 4;
    return before && r.left <= x && x <= r.right && r.top <= y && y <= r.bottom;
  }).map(rect => getComputedStyle(rect).fill)
    .filter(fill => fill !== "none")
    .map(parse);
  return under.reduce((below, top) => over(top, below), behind(svg));
}
const skip = ".highlight, mjx-container, script, style, noscript, .headerlink, "
  + "title, desc, [aria-hidden=true] .fa";
const found = new Set();
for (const element of document.querySelectorAll("article *")) {
  const pieces = [...element.childNodes].filter(n => n.nodeType === 3);
  const text = pieces.map(n => n.data).join("").trim();
  if (!text || element.closest(skip) || !element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const svg = element.closest("svg");
  const ink = parse(svg ? style.fill : style.color);
  const ground = svg ? painted(svg, element) : behind(element);
  const [a, b] = [light(over(ink, ground)), light(ground)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  const large = parseFloat(style.fontSize) >= 24;
  const name = element.className.baseVal ?? element.className;
  if (ratio < (large ? 3 : 4.5))
    found.add(`${ratio.toFixed(2)} ${element.tagName}.${name}: ${text.slice(0, 40)}`);
}
return [...found];
"""


# Folded cells, solutions and lists are opened first: what they hide has to fit as well.
UNFOLD = """
for (const fold of document.querySelectorAll("article details")) fold.open = true;
for (const fold of document.querySelectorAll("article .toggle-hidden"))
  fold.classList.remove("toggle-hidden");
"""
CUT_OFF = """
const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
const found = [];
for (const element of document.querySelectorAll(`article ${arguments[0]}`)) {
  let box = element;
  while (!scrolls(box) && box.parentElement) box = box.parentElement;
  if (box.scrollWidth > box.clientWidth + 1)
    found.push(`${box.scrollWidth} > ${box.clientWidth}: `
      + element.textContent.trim().slice(0, 80));
}
return found;
"""
# What is wider than the paper, and what a fold shows only after a while.
OFF_PAPER = """
return [...document.querySelectorAll("article :is(table, pre, svg, img)")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 2)
  .map(e => `${e.getBoundingClientRect().right}: ${e.outerHTML.slice(0, 80)}`);
"""
FADING = """
return document.getAnimations()
  .filter(a => a.effect.target?.closest("article"))
  .map(a => a.effect.target.outerHTML.slice(0, 80));
"""
# Tables that are wider than their place are moved to their right end.
SCROLL_TABLES = """
const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
let moved = 0;
for (const table of document.querySelectorAll("article table")) {
  let box = table;
  while (!scrolls(box) && box.parentElement) box = box.parentElement;
  if (box.scrollWidth <= box.clientWidth + 2) continue;
  box.scrollLeft = box.scrollWidth;
  table.dataset.moved = "yes";
  moved += 1;
}
return moved;
"""
# Their rows of which no name is to be seen: its own, or one that spans several rows.
NAMELESS = """
const box = e => e.getBoundingClientRect();
const found = [];
for (const table of document.querySelectorAll("article table[data-moved]")) {
  const names = [...table.querySelectorAll("tbody :is(th, td:first-child)")]
    .filter(name => getComputedStyle(name).position === "sticky")
    .filter(name => name.textContent.trim() && box(name).left >= 0)
    .map(box);
  for (const row of table.querySelectorAll("tbody tr")) {
    const y = box(row.lastElementChild).top + 5;
    if (!names.some(name => name.top <= y && y <= name.bottom))
      found.push(row.textContent.trim().slice(0, 80));
  }
}
return found;
"""
SMALL = """
const found = [];
for (const control of arguments[0].querySelectorAll("input, button, select, label")) {
  const target = control.closest(".fx-choice label") || control;
  const {width, height} = target.getBoundingClientRect();
  const words = target.classList.contains("fx-label");
  if (!words && height && Math.min(width, height) < 24)
    found.push(target.outerHTML.slice(0, 80));
}
return found;
"""


@pytest.fixture
def book(browser, pages):
    """Opens pages, light and wide unless told otherwise."""

    def open_page(page, theme="light", width=1280):
        browser.resize(width, 900)
        browser.open(pages / f"{page}.html")
        browser.theme(theme)
        browser.wait(
            lambda: browser.js("return document.readyState") == "complete",
            f"{page} to load",
        )
        if browser.js("return !!document.querySelector('.math')"):
            typeset = """return !!document.querySelector(".math mjx-container")
              && !document.querySelector(".math:empty")"""
            browser.wait(lambda: browser.js(typeset), "MathJax")
        return browser

    return open_page


def no_harm_done(browser):
    """No error on the console, and nothing asked of the network."""
    assert not browser.errors()
    assert not [
        address for address in browser.requests() if not address.startswith("file:")
    ]


@each_page
def test_page_is_whole_without_a_network(book, page):
    browser = book(page)
    assert browser.js(
        "return [...document.querySelectorAll('.math')]"
        ".every(e => e.querySelector('mjx-container'))"
    )
    assert not browser.js(
        "return document.querySelectorAll('[data-mml-node=merror]').length"
    )
    assert not browser.js(LEFT_OVER)
    assert browser.js(
        "return [...document.images].every(i => i.complete && i.naturalWidth > 0)"
    )
    no_harm_done(browser)


def test_the_checks_can_fail(book):
    browser = book("notation")
    browser.js(
        "document.querySelector('article p').innerHTML ="
        " 'left $x_k$ over <b style=\"color:#eee\">faint</b>'"
    )
    assert browser.js(LEFT_OVER) == ["left $x_k$ over"]
    assert any("faint" in line for line in browser.js(FAINT))
    assert (
        browser.js("return document.querySelectorAll('.math mjx-container').length")
        > 50
    )


@each_page
def test_text_is_readable_in_both_themes(book, page):
    for theme in ("light", "dark"):
        browser = book(page, theme=theme)
        assert browser.js("return document.documentElement.dataset.theme") == theme
        assert not browser.js(FAINT)


@each_page
def test_page_fits_a_phone(book, page):
    browser = book(page, width=360)
    scrolls = "table, pre, mjx-container, .pst-scrollable-table-container, .fx-panels"
    wide = """return [...document.querySelectorAll("article *")]
      .filter(e => !e.closest(arguments[0])
        && e.getBoundingClientRect().right > 361)
      .map(e => e.outerHTML.slice(0, 120))"""
    assert browser.js("return document.documentElement.scrollWidth") <= 360, browser.js(
        wide, scrolls
    )[:5]
    assert browser.js("return document.body.scrollWidth") <= 360


@each_page
def test_nothing_is_cut_off_on_a_laptop(book, page):
    """At 1280 px no code block, no output and no table needs sideways scrolling."""
    browser = book(page)
    browser.js(UNFOLD)
    assert not browser.js(CUT_OFF, "pre")
    assert not browser.js(CUT_OFF, "table")


@each_page
def test_a_printed_page_is_whole(book, page):
    """On A4 nothing leaves the paper, and what was folded can be seen at once."""
    browser = book(page, width=673)  # 210 mm less two margins of 16 mm
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        browser.js("window.dispatchEvent(new Event('beforeprint'))")
        assert not browser.js(OFF_PAPER)
        assert not browser.js(FADING)
        assert not browser.js(
            "return [...document.querySelectorAll('article details:not([open])')]"
        )
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_what_is_cut_off_is_found(book):
    browser = book("lessons")
    browser.js(
        "document.querySelector('article p').outerHTML = '<div class=\"highlight\">"
        "<pre>' + 'long '.repeat(60) + '</pre></div>'"
    )
    assert len(browser.js(CUT_OFF, "pre")) == 1


@pytest.mark.parametrize("page", chapters)
def test_explorers_fit_a_phone(book, page):
    """One screen tall, targets of 24 px, and changes that a screen reader tells."""
    browser = book(page, width=390)
    explorers = browser.wait(lambda: browser.all(".fednb-explore"), "explorers")
    for explorer in explorers:
        browser.wait(lambda e=explorer: browser.all("input", e), "controls")
        assert explorer.size["height"] <= 844
        assert browser.all("[aria-live]", explorer)
        assert not browser.js(SMALL, explorer)


@pytest.mark.parametrize("page", ["notation", "papers/gcfl"])
def test_row_names_stay_on_a_phone(book, page):
    """A table that is wider than the screen scrolls under the names of its rows."""
    browser = book(page, width=390)
    browser.js(UNFOLD)
    scrolled = browser.wait(lambda: browser.js(SCROLL_TABLES), "wide tables")
    assert scrolled >= 3
    assert not browser.js(NAMELESS)


def test_lost_row_names_are_found(book):
    browser = book("notation", width=390)
    browser.js(SCROLL_TABLES)
    browser.js("document.querySelector('article tbody td').style.position = 'static'")
    assert len(browser.js(NAMELESS)) == 1


def test_names_of_names_stand_side_by_side(book):
    """A method and, of its runs, whose: both stay, and do not cover each other."""
    browser = book("papers/gcfl", width=390)
    browser.js(UNFOLD)
    browser.wait(lambda: browser.js(SCROLL_TABLES), "wide tables")
    ends = browser.js("""
      const row = document.querySelector("article tbody tr:has(th + th)");
      const box = (name) => name.getBoundingClientRect();
      return [...row.querySelectorAll("th")].map(box).map((b) => [b.left, b.right]);
    """)
    (_, end), (start, _) = ends[:2]
    assert start >= end - 1


def test_a_picture_can_be_enlarged_on_a_phone(book):
    browser = book("papers/gcfl", width=390)
    browser.js(UNFOLD)
    find = "const [one] = [...document.querySelectorAll('img.fednb-figure')]"
    find += ".filter((picture) => picture.getAttribute('width') > 600);"
    widths = f"{find} return [one.clientWidth, one.parentElement.clientWidth];"
    click = f"{find} one.nextElementSibling.click();"
    shrunk, place = browser.js(widths)
    assert shrunk <= place
    browser.js(click)
    own, place = browser.js(widths)
    assert own > 600 > 390 > place
    assert browser.js("return document.documentElement.scrollWidth") <= 390
    browser.js(click)
    assert browser.js(widths) == [shrunk, place]


def test_wide_screens_have_no_button_to_enlarge(book):
    browser = book("papers/gcfl")
    assert browser.js(
        "return [...document.querySelectorAll('.fednb-enlarge')]"
        ".every((button) => getComputedStyle(button).display === 'none')"
    )


def test_the_introduction_leads_to_the_first_chapter(book):
    browser = book("intro")
    following = browser.find("a.right-next").get_attribute("href")
    assert following.endswith(f"{toc()[1]}.html")


def test_files_are_saved_not_shown(book):
    browser = book(chapters[0])
    saved = browser.js(
        "return [...document.querySelectorAll('.dropdown-download-buttons a')]"
        ".map(link => link.hasAttribute('download'))"
    )
    assert saved and all(saved)


@pytest.mark.parametrize("page", chapters)
def test_sliders_move_by_keyboard(book, page):
    from selenium.webdriver.common.keys import Keys

    browser = book(page)
    explorers = browser.all(".fednb-explore")
    assert explorers
    outcome = """return [...arguments[0].querySelectorAll("svg, img, .fx-text")]
      .map(e => e.outerHTML).join()"""
    for explorer in explorers:
        controls = browser.wait(
            lambda e=explorer: browser.all("input", e), "the explorer's controls"
        )
        for control in controls:
            radio = control.get_attribute("type") == "radio"
            if radio and control.is_selected():
                continue
            before = browser.js(outcome, explorer)
            browser.js("arguments[0].focus()", control)
            at_end = control.get_attribute("value") == control.get_attribute("max")
            control.send_keys(
                Keys.SPACE if radio else Keys.ARROW_LEFT if at_end else Keys.ARROW_RIGHT
            )
            browser.wait(
                lambda e=explorer, b=before: browser.js(outcome, e) != b,
                "another outcome",
                seconds=10,
            )
    no_harm_done(browser)


def test_search_works_from_a_file(browser, pages):
    browser.open((pages / "search.html").as_uri() + "?q=Dirichlet")
    hits = """return [...document.querySelectorAll("#search-results li a")]
      .map(a => a.getAttribute("href"))"""
    found = browser.wait(lambda: browser.js(hits), "search results")
    assert any(
        "partition" in hit or "heterogeneity" in hit or "api/kernels" in hit
        for hit in found
    )
    excerpts = """return [...document.querySelectorAll('#search-results li p.context')]
      .map(p => p.textContent)"""
    sentences = browser.wait(lambda: browser.js(excerpts), "sentences around the hits")
    assert any("Dirichlet" in sentence for sentence in sentences)
    no_harm_done(browser)


def test_theme_switch_and_folded_solutions(book):
    """What a reader clicks: the theme's button, and the solution of an exercise."""
    chapter = next(page for page in toc() if page.startswith("foundations/"))
    browser = book(chapter)
    solution = browser.find(".admonition.dropdown")
    hidden = """
      const inside = arguments[0].querySelector("p:not(.admonition-title), pre");
      return inside.getClientRects().length === 0
        || getComputedStyle(inside).visibility === "hidden";"""
    assert browser.js(hidden, solution)
    browser.js(
        "arguments[0].querySelector('button, .admonition-title').click()", solution
    )
    browser.wait(
        lambda: not browser.js(hidden, solution), "the solution to unfold", seconds=10
    )
    button = ".theme-switch-button"
    before = browser.js("return document.documentElement.dataset.mode")
    browser.js(f"document.querySelector({button!r}).click()")
    assert browser.js("return document.documentElement.dataset.mode") != before
    no_harm_done(browser)
