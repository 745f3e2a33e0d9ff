"""The live board in a real browser: it renews itself and leaves what someone set as it was."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from grading import SOLVED, small_lab
from test_board import Server

selenium = pytest.importorskip("selenium")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    os.name != "posix" or not (CHROMIUM and DRIVER),
    reason="no Chromium with a chromedriver is installed (Debian, Ubuntu: chromium-driver)",
)


@pytest.fixture
def browser(tmp_path):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path / 'chromium'}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def until(what):
    """Wait for something to be so."""
    for _ in range(600):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("it did not become so")


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 390])
def test_a_live_board_keeps_what_was_set(tmp_path, browser, width):
    small_lab(tmp_path)
    server = Server(tmp_path, ["reference", "ann", "bob"])
    js = browser.execute_script
    status = "return document.querySelector('[role=status]').textContent"
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 500, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        server.submit("reference", SOLVED.encode())
        server.submit("ann", SOLVED.encode())
        until(lambda: b"2 judged" in server.get("/")[1])
        until(lambda: b"kernel-" in server.get("/")[1])
        browser.get(f"http://127.0.0.1:{server.port}/")
        assert js("return document.documentElement.scrollWidth <= innerWidth")
        js("""window.same = true;
              const button = [...document.querySelectorAll("th button")]
                .find((b) => b.textContent === "who");
              button.click(); button.click(); button.focus();
              const wide = document.querySelector(".wide"); wide.scrollLeft = 60;
              scrollTo(0, 40);""")
        before = js("return [document.querySelector('.wide').scrollLeft, scrollY]")
        assert before[0] == (60 if width < 500 else 0)
        names = (
            "return [...document.querySelectorAll('td.name:nth-child(2)')].map("
            "(c) => c.textContent)"
        )
        server.submit("bob", (SOLVED + "\n# bob's\n").encode())
        until(lambda: server.get("/")[1].count(b"kernel-") == 2)
        js("document.dispatchEvent(new Event('visibilitychange'))")
        until(lambda: len(js(names)) == 3)
        assert js(names) == sorted(js(names), reverse=True)
        assert js("return window.same")  # it was not loaded anew
        assert js("return document.activeElement.textContent") == "who"
        assert js("return [document.querySelector('.wide').scrollLeft, scrollY]") == before
        assert "3 judged" in js(status)
        assert browser.get_log("browser") == []
    finally:
        server.process.kill()
        server.process.wait()
    js("document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: "does not answer" in js(status))
    assert len(js(names)) == 3
