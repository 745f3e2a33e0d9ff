"""The site builds without a warning, leads nowhere wrong, and works from a folder, offline."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from filelock import FileLock

pytest.importorskip("sphinx", reason="sphinx is not installed (extra: docs)")
pytest.importorskip("myst_parser", reason="myst-parser is not installed (extra: docs)")
pytest.importorskip("furo", reason="furo is not installed (extra: docs)")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from docs import book

PAGES = (
    "README.html",
    "labs/vecadd/README.html",
    "labs/ffnn/README.html",
    "labs/conv2d/README.html",
    "reference/nkisim.html",
    "errors/NKI-P01.html",
    "docs/grading.html",
    "docs/neuron-profile.html",
    "CONTRIBUTING.html",
)


def test_the_map_of_the_pages_has_each_of_them_once():
    text = (book.ROOT / "docs" / "README.md").read_text("utf-8")
    listed = re.findall(r"^- \[.*?\]\((\w[\w-]*\.md)\)", text, flags=re.M)
    there = {path.name for path in (book.ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(there)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Build the site, once for all workers."""
    top = tmp_path_factory.getbasetemp()
    top = top.parent if "PYTEST_XDIST_WORKER" in os.environ else top
    with FileLock(top / "site.lock"):
        if not (top / "site").exists():
            folder = tmp_path_factory.mktemp("site")
            assert book.build(folder) == 0
            shutil.move(folder / "site", top / "site")
    return top / "site"


class Links(HTMLParser):
    """Collects what a page links to, what it loads, and the places that can be linked to."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        have = dict(attrs)
        self.ids.add(have.get("id") or "")
        if tag == "a" and have.get("href"):
            self.links.append(have["href"])
        elif tag in ("script", "img", "iframe") and have.get("src"):
            self.loads.append(have["src"])
        elif tag == "link" and have.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(have["href"])


def test_no_link_leads_nowhere_and_nothing_is_loaded_from_a_network(site):
    files = {str(path) for path in site.rglob("*") if path.is_file()}
    pages = {f: Links(Path(f).read_text("utf-8")) for f in files if f.endswith(".html")}
    assert len(pages) > 100
    broken, foreign = [], []
    for path, page in pages.items():
        for target in {*page.links, *page.loads}:
            if re.match(r"[a-z]+:|//", target):
                foreign += [f"{path}: {target}"] if target in page.loads else []
                continue
            name, place = urldefrag(target)
            name = unquote(name.partition("?")[0])
            where = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if where not in files or (
                place and where in pages and unquote(place) not in pages[where].ids
            ):
                broken.append(f"{path}: {target}")
    assert broken == [] and foreign == []


def test_no_answer_for_the_staff_is_in_it(site):
    text = "".join(path.read_text("utf-8") for path in site.rglob("*.html"))
    assert "answers (staff)" not in text and "Typical mistakes:" not in text


def test_references_come_from_docstrings(site):
    import nkisim

    text = re.sub(r"<[^>]+>", "", (site / "reference" / "nkisim.html").read_text("utf-8"))
    for what in (nkisim.run, nkisim.profile):
        assert what.__doc__.splitlines()[0].replace("`", "") in text.replace("\n", " ")


@pytest.fixture(scope="module")
def chromium():
    import tempfile

    from selenium import webdriver

    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser or not shutil.which("chromedriver"):
        pytest.skip("no Chromium with a chromedriver is installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for flag in (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder}",
        ):
            options.add_argument(flag)
        driver = webdriver.Chrome(
            options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
        )
        driver.set_script_timeout(60)
        yield driver
        driver.quit()


def test_the_search_finds_pages_without_a_server(site, chromium):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    chromium.get((site / "search.html").as_uri() + "?q=double+buffering")
    WebDriverWait(chromium, 30).until(  # results come one after the other
        lambda d: d.find_elements(By.CSS_SELECTOR, '#search-results li a[href*="labs/vecadd"]')
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "scheme, width", [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]
)
def test_pages_are_accessible(site, chromium, scheme, width):
    axe = importlib.util.find_spec("axe_core_python")
    if axe is None:
        pytest.skip("axe-core-python is not installed")
    script = (Path(axe.origin).parent / "axe.min.js").read_text("utf-8")
    chromium.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    chromium.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    # one style sheet for all: three kinds of pages show what a width or a scheme breaks
    for page in PAGES if (scheme, width) == ("light", 1280) else PAGES[::4]:
        chromium.get((site / page).as_uri())
        chromium.execute_script(
            "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
        )
        chromium.execute_script(script)
        found = chromium.execute_async_script(
            "axe.run(document).then((r) => arguments[0](r.violations.map("
            "(v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html).join(' | ')}`)))"
        )
        assert found == [], (page, found)
        assert chromium.execute_script("return document.documentElement.scrollWidth") <= width
