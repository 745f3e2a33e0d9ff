"""The page in a real browser: Chromium, headless, without a network.

Frame and loading times are printed (`pytest -s`), not judged: they are the machine's.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import model_kernels
from nkisim import report
from nkisim.cli.kernel_arguments import load_kernel
from nkisim.simulation.prediction import profile

KERNELS = Path(__file__).parents[1].joinpath("kernels_for_reports.py")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,800",
)

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no Chromium with a chromedriver is installed (Debian, Ubuntu: chromium-driver)",
)


@pytest.fixture(scope="module")
def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        driver.set_script_timeout(120)
        yield driver
        driver.quit()


class Page:
    """One page of a profile in the browser."""

    def __init__(self, driver, path, width=1280, height=1000):
        self.driver = driver
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        driver.get_log("browser")
        driver.get(path.as_uri())
        WebDriverWait(driver, 60, 0.05).until(
            lambda _: self.js(
                "return !!window.nkisim || !document.getElementById('trouble').hidden"
            )
        )
        self.frame()

    def js(self, code, *args):
        return self.driver.execute_script(code, *args)

    def frame(self):
        """Let the browser draw."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def text(self, id):
        return self.driver.find_element(By.ID, id).text

    def at(self, event, lane):
        """Return where on the screen an event of a lane is."""
        return self.js(
            "const t = nkisim.timeline, l = t.lanes[arguments[1]], i = arguments[0];"
            "const r = t.base.getBoundingClientRect(), x = t.x(l.from[i]) + 4;"
            "return [r.left + x, r.top + l.y + l.height / 2]",
            event,
            lane,
        )

    def pointer(self, x, y, click=False):
        actions = ActionBuilder(self.driver)
        actions.pointer_action.move_to_location(int(x), int(y))
        if click:
            actions.pointer_action.click()
        actions.perform()
        self.frame()

    def key(self, key):
        self.driver.find_element(By.TAG_NAME, "body").send_keys(key)
        self.frame()

    def view(self):
        return self.js("return [nkisim.view.t0, nkisim.view.t1]")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


VECTOR = 1  # the lane
AS_WRITTEN = ("reorder", "engines", "rename")  # the compiler leaves out and puts in nothing


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a folder with the page of an addition, and with the one that compares two."""
    folder = tmp_path_factory.mktemp("pages")
    add = load_kernel(f"{KERNELS}:add")

    def of(tiles, free):
        a = np.ones((tiles, 128, free), np.float32)
        return profile(add, a, a, target="trn2", compiler=AS_WRITTEN)

    report.save_html(of(2, 1000), folder / "add.html")
    report.save_html(of(1, 2000), folder / "both.html", compare=of(2, 1000))
    return folder


@pytest.fixture
def page(chromium, saved):
    return Page(chromium, saved / "add.html")


def test_the_page_says_whose_numbers_it_shows_and_loads_nothing(page):
    assert page.text("title") == "add"
    banner = page.text("banner")
    assert banner.startswith("Predicted by nkisim for trn2 \u2013 not measured; error of the")
    assert page.js("return performance.getEntriesByType('resource').length") == 0
    assert page.complaints() == []


def test_instructions_are_drawn_where_they_are(page):
    def pixel(event, lane):
        return page.js(
            """
            const t = nkisim.timeline, l = t.lanes[arguments[1]], i = arguments[0];
            const x = t.x((l.from[i] + l.to[i]) / 2) + 0.42 * (t.x(l.to[i]) - t.x(l.from[i]));
            return [...t.base.getContext("2d").getImageData(x, l.y + 2, 1, 1).data]""",
            event,
            lane,
        )

    color = page.js("return rgb(PALETTE[nkisim.timeline.lanes[1].color[0]])")
    assert pixel(0, VECTOR)[:3] == pixel(1, VECTOR)[:3] == color


def test_pointing_at_an_instruction_tells_what_it_is(page):
    page.pointer(*page.at(0, VECTOR))
    tip = page.text("tip")
    assert tip.startswith("tensor_tensor")
    assert "writes: total: sbuf float32 [128, 1000]" in tip
    assert "reads: a_tile: sbuf float32 [128, 1000]" in tip
    assert "total = nl.add(a_tile, b_tile)" in tip and "waited for: load" in tip


def test_a_click_selects_the_instruction_and_its_source_line(page):
    page.pointer(*page.at(1, VECTOR), click=True)
    assert page.js("return nkisim.profile.name(nkisim.timeline.selected)") == "tensor_tensor"
    marked = page.driver.find_elements(By.CSS_SELECTOR, ".src.on")
    assert len(marked) == 1 and "nl.add(a_tile, b_tile)" in marked[0].text
    page.key("p")  # what it waited for
    assert page.js("return nkisim.profile.name(nkisim.timeline.selected)") == "load (DMA)"
    page.key(Keys.ESCAPE)
    assert page.js("return nkisim.timeline.selected") == -1


def test_arrows_walk_along_the_lane(page):
    page.pointer(*page.at(0, VECTOR), click=True)
    first = page.js("return nkisim.timeline.selected")
    page.js("document.activeElement.blur()")
    page.key(Keys.ARROW_RIGHT)
    assert page.js("return nkisim.timeline.selected") > first
    page.key(Keys.ARROW_LEFT)
    assert page.js("return nkisim.timeline.selected") == first


def test_the_critical_path_leads_back_to_the_first_trigger(page):
    page.driver.find_element(By.CSS_SELECTOR, "[data-do=chain]").click()
    chain = page.js("return nkisim.timeline.chain.map((link) => link.by)")
    launch = page.js("return nkisim.profile.launch")
    assert page.js("return nkisim.profile.takes[arguments[0]]", chain[-1]) == launch > 0
    shares = page.js("return nkisim.profile.shares(nkisim.timeline.chain)")
    assert sum(shares.values()) == pytest.approx(page.js("return nkisim.profile.total"), rel=1e-3)


def test_a_click_on_a_source_line_shows_its_instructions_alone(page):
    row = next(
        r for r in page.driver.find_elements(By.CSS_SELECTOR, ".src.hot") if "nl.store" in r.text
    )
    row.click()
    kept = page.js("return nkisim.timeline.lanes.map((l) => l.kept.count)")
    assert kept[VECTOR] == 0 and sum(kept) > 0
    row.click()
    assert page.js("return nkisim.timeline.filter") is None


def test_wheel_and_keys_zoom_and_pan(page):
    whole = page.view()
    x, y = page.at(0, VECTOR)
    actions = ActionBuilder(page.driver)
    actions.wheel_action.scroll(int(x), int(y), 0, -300)
    actions.perform()
    zoomed = page.view()
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    page.key("d")
    assert page.view()[0] > zoomed[0]
    page.key("0")
    assert page.view() == whole


def test_memory_under_the_pointer_names_what_holds_it(page):
    x, y = page.js(
        "const t = nkisim.timeline, c = t.curves.find((c) => c.label === 'SBUF in use');"
        "const r = t.base.getBoundingClientRect(), l = t.lanes[1];"
        "return [r.left + t.x((l.from[0] + l.to[0]) / 2), r.top + c.y + 9]"
    )
    page.pointer(x, y, click=True)
    for place in ("tip", "panel"):
        text = page.text(place)
        assert all(name in text for name in ("a_tile", "b_tile", "total")), place


def test_every_tab_opens_and_source_text_stays_text(page):
    for tab in ("Instructions", "Selected", "Memory", "Roofline", "Findings", "Metrics"):
        page.js("nkisim.open(arguments[0])", tab)
        assert page.text("panel")
    assert "dma_transfer_count" in page.text("panel")
    assert page.js("return document.images.length") == 0
    assert "<img src=x" in page.js("return document.getElementById('source').textContent")
    assert page.complaints() == []


def test_spills_stand_apart_from_what_the_kernel_moves(chromium, tmp_path):
    a = np.ones((32, 128, 1024), np.float32)
    prof = profile(model_kernels.hoard, a, target="trn2", compute=False)
    report.save_html(prof, tmp_path / "spill.html")
    page = Page(chromium, tmp_path / "spill.html")
    page.js("nkisim.open('Instructions')")
    rows = page.text("panel").splitlines()
    assert any(r.startswith("spill load (DMA)") for r in rows), rows
    assert any(r.startswith("load (DMA)") for r in rows)
    assert page.complaints() == []


def test_a_small_window_needs_no_sideways_scrolling(chromium, saved):
    page = Page(chromium, saved / "add.html", width=390, height=800)
    for tab in ("Instructions", "Memory", "Roofline", "Findings", "Metrics"):
        page.js("nkisim.open(arguments[0])", tab)
        assert page.js("return document.documentElement.scrollWidth") <= 390, tab
        broken = page.js("""const lines = text => { const range = document.createRange();
                range.selectNodeContents(text); return range.getClientRects().length; };
            return [...document.querySelectorAll("#panel th, #panel td:first-child")]
                .flatMap(cell => [...cell.childNodes]).filter(n => n.nodeType === Node.TEXT_NODE
                    && !/[ /]/.test(n.data.trim()) && lines(n) > 1).map(n => n.data)""")
        assert broken == [], tab


def test_two_profiles_stand_above_each_other_with_their_metrics(chromium, saved):
    page = Page(chromium, saved / "both.html")
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".timeline")) == 2
    row = next(
        r
        for r in page.driver.find_elements(By.CSS_SELECTOR, "#panel tr")
        if r.text.startswith("dma_transfer_count")
    )
    assert row.text.split() == ["dma_transfer_count", "3", "6", "2.0×"]
    assert page.complaints() == []


def test_a_damaged_page_says_so(chromium, saved, tmp_path):
    text = (saved / "add.html").read_text("utf-8")
    (tmp_path / "cut.html").write_text(text.replace('"blob":"', '"blob":"AAAA'), "utf-8")
    page = Page(chromium, tmp_path / "cut.html")
    assert "could not be shown" in page.text("trouble")


ANIMATE = """
const done = arguments[0], { view, timeline } = nkisim, frames = [], draws = [];
const draw = timeline.draw.bind(timeline);
timeline.draw = () => { const t = performance.now(); draw(); draws.push(performance.now() - t); };
let last = 0, n = 0;
function step(now) {
  if (last) frames.push(now - last);
  last = now;
  if (n < 60) view.zoom(0.93, view.total * 0.37);
  else if (n < 120) view.pan(0.02);
  else view.zoom(1.07);
  if (++n < 180) return requestAnimationFrame(step);
  const at = (list, p) => list.sort((a, b) => a - b)[Math.floor(list.length * p)].toFixed(1);
  done({ frame_ms: [at(frames, 0.5), at(frames, 0.95)], draw_ms: [at(draws, 0.5), at(draws, 0.95)],
         draws: draws.length, inks: timeline.words.filter((w) => w !== timeline.words[0]).length });
}
view.fit();
requestAnimationFrame(step);
"""


@pytest.mark.full
def test_200_000_events_load_and_move(chromium, tmp_path, capsys):
    a, b = np.zeros((3072, 3072), np.float16), np.zeros((3072, 6144), np.float16)
    prof = profile(
        load_kernel(f"{KERNELS}:matmul"), a, b, target="trn2", compute=False, compiler=AS_WRITTEN
    )
    began = time.perf_counter()
    report.save_html(prof, tmp_path / "big.html")
    wrote = time.perf_counter() - began
    page = Page(chromium, tmp_path / "big.html")
    events = page.js("return nkisim.profile.count + nkisim.profile.col.seg_engine.length")
    assert events > 200_000
    result = page.driver.execute_async_script(ANIMATE)
    assert result["draws"] >= 100 and result["inks"] > 1000
    assert page.complaints() == []
    size = (tmp_path / "big.html").stat().st_size
    with capsys.disabled():
        print(
            f"\n{events} events: page of {size / 1e6:.1f} MB written in {wrote:.1f} s, shown "
            f"after {page.js('return nkisim.loaded') / 1e3:.2f} s; median and 95th percentile: "
            f"{json.dumps(result)}"
        )


# -- what to change first, search, causes of waits -------------------------------------------------


def test_the_page_begins_with_what_to_change_first(chromium, tmp_path):
    kernel = load_kernel(f"{KERNELS}:matmul")
    prof = profile(
        kernel,
        np.ones((256, 128), np.float32),
        np.ones((256, 4096), np.float32),
        target="trn2",
        compute=False,
    )
    report.save_html(prof, tmp_path / "p.html")
    page = Page(chromium, tmp_path / "p.html")
    text = page.text("advice")
    assert prof.advice and all(a.place in text and a.text in text for a in prof.advice)
    assert "would save" in text
    chromium.find_element(By.CSS_SELECTOR, "#advice button").click()
    marked = page.js("return document.querySelector('#source .on')?.innerText")
    assert str(prof.advice[0].where.line) in marked
    assert page.complaints() == []


def search(page, words):
    box = page.driver.find_element(By.ID, "search")
    box.clear()
    box.send_keys(words)
    page.frame()
    return page.js("return nkisim.found")


def test_a_search_finds_instructions_by_name_line_tensor_and_time(page):
    loads, adds = [0, 1, 4, 5], [2, 6]
    assert sorted(search(page, "load")) == loads
    assert page.text("found") == "4 found"
    assert search(page, "vector") == search(page, "tensor_tensor") == adds
    line = page.js("return nkisim.profile.head.lines[nkisim.profile.col.line[2]][1]")
    assert search(page, f"line:{line}") == adds
    assert sorted(search(page, "dma a_tile")) == [0, 4]
    assert search(page, "#5") == [5]
    slow = search(page, ">1us")
    assert sorted(slow + search(page, "<1us")) == list(range(8)) and slow
    assert search(page, "load nonsense") == [] and "Nothing fits" in page.text("panel")


def test_enter_goes_through_what_was_found(page):
    search(page, "vector")
    box = page.driver.find_element(By.ID, "search")
    chosen = []
    for _ in range(3):
        box.send_keys(Keys.ENTER)
        chosen.append(page.js("return nkisim.timeline.selected"))
    assert chosen == [2, 6, 2] and page.text("found") == "1 of 2"
    box.send_keys(Keys.SHIFT, Keys.ENTER)
    assert page.js("return nkisim.timeline.selected") == 6
    box.send_keys(Keys.ESCAPE)
    assert page.js("return nkisim.found") is None and page.text("found") == ""


def reasons(page, i):
    return page.js("return nkisim.profile.reasons(arguments[0])", i)


def test_each_wait_says_its_cause_with_the_line(page, chromium, tmp_path):
    at = page.js("return nkisim.profile.head.lines.map((l) => l[1])")
    line = page.js("return Array.from(nkisim.profile.col.line)")
    assert reasons(page, 2) == [f"waits for line {at[line[1]]}'s load to bring b_tile"]
    why = reasons(page, 3)[0]
    assert why == f"waits for line {at[line[2]]}'s tensor_tensor to compute total"
    a = np.ones(128 * 3000, np.float32)
    prof = profile(model_kernels.add_in_place_of(1), a, a, target="trn2")
    report.save_html(prof, tmp_path / "one.html")
    one = Page(chromium, tmp_path / "one.html")
    said = [reason for i in range(len(prof.trace)) for reason in reasons(one, i)]
    assert any(s.startswith("waits for line") and "to free the buffer of" in s for s in said)


def test_waits_for_a_bank_and_for_a_table_are_told(chromium, tmp_path):
    def told(kernel, *args):
        prof = profile(kernel, *args, target="trn2", compute=False)
        report.save_html(prof, tmp_path / "w.html")
        page = Page(chromium, tmp_path / "w.html")
        return [reason for i in range(len(prof.trace)) for reason in reasons(page, i)]

    square, wide = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)
    assert any(
        re.search(
            "waits for line [0-9]+'s .* to (leave its bank of PSUM|free the buffer of sums)", s
        )
        for s in told(model_kernels.hoard_psum, square, wide)
    )
    assert any(
        "for the table of its function" in s
        for s in told(model_kernels.rounds, np.ones((128, 64), np.float32))
    )


def test_cards_bars_and_advice_say_the_same_shares_of_the_latency(page):
    busy = page.js("return nkisim.profile.head.engine_busy")
    cards = dict(page.js("return cardsOf(nkisim.profile).map((c) => c.slice(0, 2))"))
    active = {label.split()[0]: text for label, text in cards.items() if label.endswith("active")}
    assert active
    for name, text in active.items():
        assert text == page.js("return percent(arguments[0])", busy[name.lower()])
        bar = page.js(
            "return [...document.querySelectorAll('.bar')].find((b) => "
            "b.firstChild.textContent === arguments[0]).lastChild.textContent",
            name,
        )
        assert bar == text


def test_an_instruction_has_one_color_in_every_profile(page, chromium, saved, tmp_path):
    def colors(p):
        return p.js("return Object.fromEntries(nkisim.profile.top.map((r) => [r.label, r.color]))")

    first = colors(page)
    prof = profile(model_kernels.rounds, np.ones((128, 64), np.float32), target="trn2")
    report.save_html(prof, tmp_path / "other.html")
    second = colors(Page(chromium, tmp_path / "other.html"))
    shared = first.keys() & second.keys()
    assert len(shared) >= 3 and all(first[name] == second[name] for name in shared)


def test_the_values_of_a_tile_are_shown_at_its_instruction(chromium, tmp_path):
    add = load_kernel(f"{KERNELS}:add")
    a = np.linspace(-2, 5, 256 * 100, dtype=np.float32).reshape(2, 128, 100)
    b = np.zeros_like(a)
    b[1, 3, 4] = np.nan
    prof = profile(add, a, b, target="trn2", tile_values=True, compiler=AS_WRITTEN)
    report.save_html(prof, tmp_path / "v.html")
    page = Page(chromium, tmp_path / "v.html")
    page.js("nkisim.open('Values'); nkisim.select(6)")
    text = page.text("panel")
    assert "tensor_tensor" in text and "max 5" in text
    assert re.search(r"NaN 1\b", text) and re.search(r"infinite 0\b", text)
    assert page.js("return document.querySelectorAll('.heat .nan').length") == 1
    assert page.js("return document.querySelectorAll('.histogram .bar').length") == 24
    page.js("nkisim.select(2)")
    assert re.search(r"NaN 0\b", page.text("panel")) and "min -2" in page.text("panel")
    assert page.complaints() == []


def test_a_profile_without_values_says_how_to_get_them(page):
    page.js("nkisim.open('Values')")
    assert "tile_values=True" in page.text("panel")


def test_a_source_whose_hottest_line_is_in_sight_begins_at_its_top(page):
    """It was scrolled by half a line, which cut the name of the file."""
    seen = page.js(
        "const s = document.querySelector('#source');"
        "const hot = [...s.querySelectorAll('.hot')];"
        "return [s.scrollTop, s.clientHeight, Math.max(...hot.map("
        "(r) => r.offsetTop - s.offsetTop))]"
    )
    assert seen[0] == 0 or seen[2] > seen[1] - 20


# -- launch, scales, header, tables --------------------------------------------------------------


def test_the_timeline_ends_at_the_latency_of_the_header_and_shows_the_launch(page):
    head = page.js("return nkisim.profile.head")
    assert page.js("return nkisim.profile.total") == pytest.approx(head["latency_us"], rel=1e-3)
    (stretch,) = page.js("return nkisim.profile.stretches")
    assert stretch["to"] == pytest.approx(head["latency_us"] - head["body_us"])
    assert min(page.js("return [...nkisim.profile.takes]")) == pytest.approx(stretch["to"])
    x, y = page.at(0, VECTOR)
    left = page.js(
        "const t = nkisim.timeline; return t.base.getBoundingClientRect().left + t.x(arguments[0])",
        stretch["to"] / 2,
    )
    page.pointer(left, y)
    assert page.text("tip").startswith("launch")


def test_the_header_says_what_ran(page):
    facts = page.text("facts")
    for said in ("a 2×128×1000 float32", "b 2×128×1000 float32", "neuronxcc.nki", "trn2", "UTC"):
        assert said in facts
    assert page.driver.title.startswith("add - trn2 - predicted")


def test_each_row_says_what_it_shows(page):
    box = page.js(
        "const t = nkisim.timeline, l = t.lanes[arguments[0]];"
        "const r = t.base.getBoundingClientRect(); return [r.left + 20, r.top + l.y + 5]",
        4,
    )
    page.pointer(*box)
    assert page.text("tip").startswith("Sync") and "triggers loads" in page.text("tip")
    unknown = page.js(
        "const t = nkisim.timeline;"
        "return [...t.lanes, t.throughput, ...t.curves].filter((r) => !rowHelp(t, r.y + 1)).length"
    )
    assert unknown == 0


def test_tensors_and_regions_have_their_tabs(page):
    page.js("nkisim.open('Tensors')")
    assert "a argument float32 1000.0 KiB 1000.0 KiB – 1.00×" in page.text("panel")
    page.js("nkisim.open('Regions')")
    assert "affine_range" in page.text("panel") and "1 × 2" in page.text("panel")
    page.driver.find_element(By.CSS_SELECTOR, "#panel tr.go").click()
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".src.on")) == 1


def test_the_speed_of_light_has_a_bar_for_the_floor_and_each_engine(page):
    bars = page.driver.find_elements(By.CSS_SELECTOR, "#light .bar")
    names = [bar.text.split("\n")[0] for bar in bars]
    assert names[0] == "floor of the job" and {"DMA", "Vector"} <= set(names)
    assert "times the floor" in page.text("light")


def test_three_profiles_have_names_and_scales_of_their_own(chromium, tmp_path):
    add = load_kernel(f"{KERNELS}:add")

    def of(tiles):
        a = np.ones((tiles, 128, 1000), np.float32)
        return profile(add, a, a, target="trn2", compute=False)

    long, short, middle = of(40), of(1), of(4)
    report.save_html(long, tmp_path / "three.html", compare=[short, middle])
    page = Page(chromium, tmp_path / "three.html", height=2200)
    names = [n.text for n in page.driver.find_elements(By.CSS_SELECTOR, ".timeline .name")]
    assert [n[0] for n in names] == ["A", "B", "C"] and len(set(n[3:] for n in names)) == 3
    head = page.text("cards")
    assert "1/" in head and "×" in head and "%" in head
    spans = "return nkisim.timelines.map((t) => t.view.t1 - t.view.t0)"
    assert len(set(page.js(spans))) == 1
    page.driver.find_element(By.CSS_SELECTOR, "[data-do=scale]").click()
    own = page.js(spans)
    assert own[0] > own[2] > own[1]
    page.driver.find_element(By.CSS_SELECTOR, "[data-do=in]").click()
    assert page.js(spans)[1:] == own[1:]  # only the one that is looked at zooms
    page.driver.find_element(By.CSS_SELECTOR, "[data-do=scale]").click()
    assert len(set(page.js(spans))) == 1
    assert page.complaints() == []


def test_names_of_the_caller_win(chromium, tmp_path, saved):
    one, two = (report.load(saved / "add.html") for _ in range(2))
    report.save_html(one, tmp_path / "n.html", compare=two, names=["before", "after"])
    page = Page(chromium, tmp_path / "n.html")
    assert page.text("title") == "before (A) and after (B)"


def test_a_copy_is_in_the_row_of_the_engine_that_ran_it(chromium, tmp_path):
    matmul = load_kernel(f"{KERNELS}:matmul")
    some = np.ones((128, 256), np.float32), np.ones((128, 2048), np.float32)
    report.save_html(profile(matmul, *some, target="trn2"), tmp_path / "m.html")
    page = Page(chromium, tmp_path / "m.html")
    ran = page.js(
        "const p = nkisim.profile; return p.top.filter((r) => r.label === 'tensor_copy')"
        ".map((r) => [r.engine, r.count])"
    )
    lanes = page.js(
        "const p = nkisim.profile, n = {}; for (let i = 0; i < p.count; i++) "
        "if (p.name(i) === 'tensor_copy') n[p.col.engine[i]] = (n[p.col.engine[i]] ?? 0) + 1;"
        "return Object.entries(n).map(([e, c]) => [Number(e), c])"
    )
    assert sorted(ran) == sorted(lanes) and len(ran) == 2


def test_the_first_nan_is_marked(chromium, tmp_path):
    kernel = load_kernel(f"{KERNELS}:spoilt")
    prof = profile(kernel, np.full((128, 64), -1.0, np.float32), target="trn2", tile_values=True)
    report.save_html(prof, tmp_path / "nan.html")
    page = Page(chromium, tmp_path / "nan.html")
    assert "first NaN" in page.text("cards") and "kernels_for_reports.py" in page.text("cards")
    page.js("nkisim.open('Values')")
    page.driver.find_element(By.CSS_SELECTOR, "#panel button").click()
    assert page.js("return nkisim.profile.name(nkisim.timeline.selected)") == "activation"
    assert page.complaints() == []
