"""The class's pages in a real browser: they load nothing, fit a phone, and can be read by all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ClassFolder
from labcloud.client import LabCloud
from link_class import Class
from test_report import weeks  # noqa: F401 (a fixture)

pytest.importorskip("selenium", reason="pip install selenium axe-core-python")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver (apt-get install)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start Chromium, without a network."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    home = tmp_path_factory.mktemp("chromium")
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        f"--user-data-dir={home}",
        "--proxy-server=127.0.0.1:1",
        "--proxy-bypass-list=127.0.0.1",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def show(browser: Any, width: int, scheme: str = "light") -> None:
    """Choose the width of the window and the colours that the user prefers."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


def looked_at(browser: Any, name: str) -> None:
    """Keep a picture where CLASSROOM_SCREENSHOTS says, for people."""
    if folder := os.environ.get("CLASSROOM_SCREENSHOTS"):
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))


def complaints(browser: Any) -> list[str]:
    """Return what axe-core has against the page, and what the browser's console says."""
    from axe_core_python.selenium import Axe

    found = Axe().run(browser)["violations"]
    said = [entry["message"] for entry in browser.get_log("browser")]
    return [f"{v['id']}: {n['html']}" for v in found for n in v["nodes"]] + said


@pytest.fixture()
def pages(
    weeks: Path,  # noqa: F811
    folder: ClassFolder,
    cloud: LabCloud,
    classroom: Callable[..., dict[str, Any]],
) -> Path:
    """Return the folder of a class with students on plan, near the cap, and without a machine."""
    folder.sections = {"alice": "lab-01", "bob": "lab-01", "carol": "lab-02"}
    folder.write(["alice", "bob", "carol", "dave"])
    classroom("report", folder.file)
    return weeks


@pytest.mark.parametrize("name", ["staff", "report"])
def test_a_page_is_whole_offline_on_a_phone_in_the_dark_and_for_everybody(
    browser: Any, pages: Path, name: str
) -> None:
    js = browser.execute_script
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
        show(browser, width, scheme)
        browser.get((pages / f"{name}.html").as_uri())
        assert js("return performance.getEntriesByType('resource').length") == 0, "loads nothing"
        assert js("return document.documentElement.scrollWidth <= innerWidth"), (name, width)
        found = complaints(browser)
        assert not found, "\n".join([f"{name} {width} {scheme}", *found])
        looked_at(browser, f"{name}-{width}-{scheme}")
    # What a table does not show at once is reached by the keyboard.
    reached = js("return [...document.querySelectorAll('.wide')].every((w) => w.tabIndex === 0)")
    assert reached


def test_the_staffs_page_says_what_is_wrong_and_who_waits(browser: Any, pages: Path) -> None:
    show(browser, 1280)
    browser.get((pages / "staff.html").as_uri())
    text = browser.execute_script("return document.body.innerText")
    assert text.index("Budgets are blind") < text.index("Queue") < text.index("Machines")
    row = (
        "return [...document.querySelectorAll('tr')].map((r) => r.innerText)"
        ".filter((t) => t.includes(arguments[0]))"
    )
    rows = browser.execute_script(row, "has no machine")
    assert len(rows) == 1 and rows[0].startswith("dave")
    assert "lab-02" in browser.execute_script(row, "carol")[0], "the roster's section"
    assert "asks for more" in browser.execute_script(row, "extend --limit bob")[0]


def test_the_spend_page_draws_the_weeks_against_the_plan(browser: Any, pages: Path) -> None:
    show(browser, 1280)
    browser.get((pages / "report.html").as_uri())
    js = browser.execute_script
    bars = js(
        "return [...document.querySelectorAll('svg rect')]"
        ".map((r) => r.getBoundingClientRect().height)"
    )
    assert len(bars) == 2 and all(height > 0 for height in bars)
    meters = js("return [...document.querySelectorAll('meter')].map((m) => m.value / m.max)")
    assert len(meters) == 4 and meters == sorted(meters, reverse=True), "the dearest first"


def test_a_student_starts_and_stops_in_the_browser(
    browser: Any,
    folder: ClassFolder,
    cloud: LabCloud,
    classroom: Callable[..., dict[str, Any]],
) -> None:
    folder.write(["alice", "bob"], my="lambda")
    made = Class(folder, cloud, classroom)
    classroom("stop", folder.file)
    js = browser.execute_script

    def press(do: str) -> str:
        js(f"document.querySelector('#{do} button').click()")
        cloud.settle()
        return str(js("return document.querySelector('[role=status]').innerText"))

    with made.server:
        browser.get_log("browser")
        for width, scheme in ((1280, "light"), (390, "dark")):
            show(browser, width, scheme)
            browser.get(made.links["alice"])
            assert "stopped" in js("return document.body.innerText")
            assert js("return document.documentElement.scrollWidth <= innerWidth")
            found = complaints(browser)
            assert not found, "\n".join([f"{width} {scheme}", *found])
            looked_at(browser, f"my-{width}-{scheme}")
            assert "It starts" in press("start") and made.state("alice") == "running"
            looked_at(browser, f"my-started-{width}-{scheme}")
            browser.get(made.links["alice"])
            assert "It stops" in press("stop") and made.state("alice") == "stopped"
            assert complaints(browser) == []
        browser.get(made.links["alice"].replace("&k=", "&k=x"))
        assert "not valid" in js("return document.body.innerText")
        assert js("return document.querySelectorAll('button').length") == 0
