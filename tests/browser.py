"""A headless Chromium for tests: no network unless asked for, every console error and
every request on record.

A test module imports ``browser_fixture`` and its tests take ``browser``, or a test
opens ``with chromium()`` itself. Where Chromium, chromedriver or selenium is missing,
both skip the test and say what is missing.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage
    --disable-background-networking --disable-component-update --disable-sync
    --no-first-run --force-device-scale-factor=1 --hide-scrollbars"""
# no name resolves; only this machine answers
CUT = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
PATIENCE = 60  # seconds: other work may share the machine


def programs() -> tuple[str, str]:
    """Where Chromium and its driver are; skips the test that asks if they are not
    here.
    """
    pytest.importorskip("selenium", reason="selenium is not installed")
    browsers = [
        shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")
    ]
    driver = shutil.which("chromedriver")
    if not any(browsers) or not driver:
        pytest.skip(
            "no Chromium with chromedriver here: "
            "apt-get install chromium chromium-driver"
        )
    return next(filter(None, browsers)), driver


@contextmanager
def chromium(*, network: bool = False) -> Iterator[Browser]:
    """A fresh browser with its own profile; without ``network`` it reaches 127.0.0.1
    and files only.
    """
    binary, driver = programs()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [
            *FLAGS.split(),
            f"--user-data-dir={profile}",
            *([] if network else [CUT]),
        ]:
            options.add_argument(flag)
        chrome = webdriver.Chrome(
            options=options, service=webdriver.ChromeService(driver)
        )
        try:
            browser = Browser(chrome)
            browser.resize(1280)
            yield browser
        finally:
            chrome.quit()


@pytest.fixture(name="browser", scope="module")
def browser_fixture() -> Iterator[Browser]:
    """One browser for the tests of a module, without network; each test sets the size
    and opens the page it needs.
    """
    with chromium() as browser:
        yield browser


class Browser:
    """What the tests do with a page. ``driver`` is selenium's, for the rest."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._console: list[dict] = []
        self._network: list[str] = []

    def open(self, where: str | Path) -> None:
        """Open an address or a file; the records of the page before are forgotten."""
        self._read_logs()
        self._console, self._network = [], []
        self.driver.get(where.absolute().as_uri() if isinstance(where, Path) else where)

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the page, phone widths included (a real window has a minimum
        width).
        """
        self.size = (width, height)
        size = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": False,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def theme(self, name: str) -> None:
        """Make the page ``light`` or ``dark``: by the system's preference, and as the
        book's own switch does.
        """
        feature = {"name": "prefers-color-scheme", "value": name}
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [feature]}
        )
        self.js(
            "for (const key of ['theme', 'mode']) {"
            " document.documentElement.dataset[key] = arguments[0];"
            " try { localStorage.setItem(key, arguments[0]) } catch {} }",
            name,
        )

    def js(self, code: str, *arguments: Any) -> Any:
        """Run JavaScript in the page; ``return`` gives a value back."""
        return self.driver.execute_script(code, *arguments)

    def find(self, css: str, inside: Any = None) -> Any:
        """The first element of a CSS selector."""
        return (inside or self.driver).find_element("css selector", css)

    def all(self, css: str, inside: Any = None) -> list[Any]:
        """All elements of a CSS selector."""
        return (inside or self.driver).find_elements("css selector", css)

    def wait(
        self, condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE
    ) -> Any:
        """Wait until the condition holds, and return its value; elements that are not
        there yet do not count.
        """
        from selenium.common.exceptions import WebDriverException

        end, last = time.monotonic() + seconds, None
        while time.monotonic() < end:
            try:
                if value := condition():
                    return value
            except WebDriverException as error:
                last = error
            time.sleep(0.05)
        raise AssertionError(
            f"waited {seconds} s in vain for {what or condition}: "
            f"{last}, {self.errors()[-5:]}"
        )

    def errors(self) -> list[str]:
        """Errors on the console since the page was opened."""
        self._read_logs()
        return [
            entry["message"] for entry in self._console if entry["level"] == "SEVERE"
        ]

    def requests(self) -> list[str]:
        """Addresses that the page asked for since it was opened, itself and inline data
        left out.
        """
        self._read_logs()
        return [
            url
            for url in self._network
            if not url.startswith(("data:", "blob:", "chrome", "about:"))
        ]

    def screenshot(self, path: Path, *, full: bool = False) -> None:
        """A PNG of what is visible, or of the whole page."""
        width, height = self.size
        if full:
            self.resize(width, self.js("return document.documentElement.scrollHeight"))
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {})
        path.write_bytes(base64.b64decode(picture["data"]))
        self.resize(width, height)

    def _read_logs(self) -> None:
        self._console += self.driver.get_log("browser")
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._network.append(message["params"]["request"]["url"])
