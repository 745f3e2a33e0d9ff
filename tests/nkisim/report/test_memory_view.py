"""Who lies where: the columns of tiles, and the page that draws them, in a real browser."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_viewer_browser import CHROMIUM, DRIVER, Page
from test_viewer_browser import chromium as chromium  # a fixture

import model_kernels
from nkisim import report
from nkisim.report.document import report_of
from nkisim.report.tiles import first_fit
from nkisim.simulation.prediction import profile

browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no Chromium with a chromedriver is installed (Debian, Ubuntu: chromium-driver)",
)
A = np.ones(128 * 4000, np.float32)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 50)), max_size=40),
    st.integers(50, 400),
)
def test_tiles_that_live_at_the_same_time_do_not_overlap(lives, room):
    first, long, size = (
        (np.array(x, np.int64) for x in zip(*lives)) if lives else (np.zeros(0, np.int64),) * 3
    )
    at = first_fit(first, first + long, size, room, taken=(10, 20))
    for i in range(len(at)):
        assert at[i] + size[i] <= 10 or at[i] >= 20
        assert at[i] + size[i] <= room or at[i] >= room  # none is drawn across the end
        for j in range(i):
            if first[i] < first[j] + long[j] and first[j] < first[i] + long[i]:
                assert at[i] + size[i] <= at[j] or at[j] + size[j] <= at[i]


def tiles_of(prof):
    """Return {name: [(at, bytes, over, writes, reads)]} of a profile."""
    found = report_of(prof)
    col, names = found.columns, found.head["names"]
    out: dict[str, list] = {}
    for k, name in enumerate(col["tile_name"]):
        write = col["use_write"][col["use_tile"] == k]
        out.setdefault(names[name], []).append(
            (
                int(col["tile_at"][k]),
                int(col["tile_bytes"][k]),
                int(col["tile_over"][k]),
                int(write.sum()),
                int((1 - write).sum()),
            )
        )
    return out


def bad(buffers):
    """Return an addition whose tensors all begin at address 0."""
    import neuronxcc.nki as nki
    import neuronxcc.nki.compiler as ncc
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

    @nki.jit
    def aliased(x, y):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        n = x.shape[0] // (128 * 1000)
        xs, ys, outs = (t.reshape((n, 128, 1000)) for t in (x, y, out))
        a, b, total = (
            nl.ndarray(
                (n, nl.par_dim(128), 1000),
                dtype=x.dtype,
                buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(buffers,)),
            )
            for _ in range(3)
        )
        for i in nl.affine_range(n):
            a[i] = nl.load(xs[i])
            b[i] = nl.load(ys[i])
            total[i] = nisa.tensor_tensor(a[i], b[i], op=nl.add)
            nl.store(outs[i], total[i])
        return out

    return aliased


def test_an_alias_is_a_tile_that_was_overwritten_and_never_read():
    found = tiles_of(profile(bad(2), A, A, target="trn1"))
    assert [t[0] for t in found["a"]] == [0, 4000, 0, 4000]  # physical tiles in turns
    assert all(over >= 0 and reads == 0 for _, _, over, _, reads in found["a"])
    assert all(over < 0 and reads == 2 for _, _, over, _, reads in found["b"])


def test_tiles_that_are_apart_are_all_read():
    right = profile(model_kernels.add_in_place_of(2), A, A, target="trn1")
    found = [t for rows in tiles_of(right).values() for t in rows]
    assert {at for at, *_ in found} == {k * 4000 for k in range(6)}
    assert all(over < 0 and reads and writes for _, _, over, writes, reads in found)


def test_every_use_of_a_tile_lies_in_its_life():
    col = report_of(
        profile(
            model_kernels.products,
            np.ones((128, 128), np.float32),
            np.ones((128, 512), np.float32),
            target="trn2",
        )
    ).columns
    tile, instr = col["use_tile"], col["use_instr"]
    assert (col["tile_first"][tile] <= col["start"][instr]).all()
    assert (
        col["start"][instr].astype(np.int64) + col["dur"][instr]
        <= col["tile_last"][tile].astype(np.int64) + 1
    ).all()
    assert set(tile.tolist()) == set(range(len(col["tile_name"])))


# -- the page ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return a folder with pages of an aliased addition, of products, and of spills."""
    folder = tmp_path_factory.mktemp("memory")
    report.save_html(profile(bad(2), A, A, target="trn1"), folder / "bad.html")
    report.save_html(
        profile(
            model_kernels.products,
            np.ones((128, 128), np.float32),
            np.ones((128, 512), np.float32),
            target="trn2",
        ),
        folder / "products.html",
    )
    report.save_html(
        profile(
            model_kernels.hoard, np.ones((32, 128, 1024), np.float32), target="trn2", compute=False
        ),
        folder / "spill.html",
    )
    return folder


def memory(driver, path, **more):
    page = Page(driver, path, **more)
    page.js("nkisim.open('Memory')")
    page.frame()
    return page


@browser
def test_the_alias_is_said_with_who_wrote_over_whom(chromium, pages):
    page = memory(chromium, pages / "bad.html")
    chromium.find_element(By.CSS_SELECTOR, "#panel button.bad").click()
    said = page.text("panel")
    assert "4 tiles overwritten before anybody read them" in said
    assert "It was never read: b was written over its bytes" in said.replace("\n", " ")
    assert "Read by: none" in said and "load (DMA)" in said
    assert page.complaints() == []


@browser
def test_the_flow_leads_from_tile_to_tile_and_to_instructions(chromium, pages):
    page = memory(chromium, pages / "products.html")
    page.js(
        "const m = nkisim.maps.get(nkisim.profile), c = nkisim.profile.col;"
        "m.choose(m.order.find((k) => c.tile_memory[k] === 1))"
    )
    said = page.text("panel")
    assert "PSUM bank" in said and "nc_matmul" in said and "7 more times" in said
    chromium.find_element(By.CSS_SELECTOR, ".flow .columns button:has(.sw)").click()
    assert (
        page.js(
            "const m = nkisim.maps.get(nkisim.profile);"
            "return nkisim.profile.col.tile_memory[m.chosen]"
        )
        == 0
    )  # what the matmul read
    chromium.find_element(By.CSS_SELECTOR, ".flow li > button").click()
    assert page.js("return nkisim.tab") == "Selected"
    assert page.js("return nkisim.profile.name(nkisim.timeline.selected)") == "load (DMA)"


@browser
def test_arrows_walk_over_the_map_and_a_click_chooses(chromium, pages):
    page = memory(chromium, pages / "products.html")
    canvas = chromium.find_element(By.ID, "memorymap")
    chosen = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.ARROW_UP):
        canvas.send_keys(key)
        chosen.append(page.js("return nkisim.maps.get(nkisim.profile).chosen"))
    order = page.js("return nkisim.maps.get(nkisim.profile).order.slice(0, 2)")
    assert chosen[:3] == [order[0], order[1], order[0]] and chosen[3] != order[0]
    assert page.js("return document.activeElement.id") == "memorymap"
    x, y = page.js(
        "const m = nkisim.maps.get(nkisim.profile), r = m.base.getBoundingClientRect();"
        "const b = m.box(m.order.at(-1));"
        "return [r.left + b[0] + b[2] / 2, r.top + b[1] + 4]"
    )
    page.pointer(x, y, click=True)
    assert page.js("const m = nkisim.maps.get(nkisim.profile);return m.chosen === m.order.at(-1)")


@browser
def test_spilled_tiles_have_their_copies_on_the_map(chromium, pages):
    page = memory(chromium, pages / "spill.html")
    used, room = page.js(
        "const m = nkisim.maps.get(nkisim.profile);"
        "return [m.used[0], nkisim.profile.head.sbuf_bytes]"
    )
    assert 0.9 * room < used <= room
    names = page.js(
        "const p = nkisim.profile, m = nkisim.maps.get(p), out = new Set();"
        "for (const k of m.order) for (const u of usesOf(p).ofTile(k))"
        " out.add(p.name(p.col.use_instr[u])); return [...out]"
    )
    assert "spill load (DMA)" in names


AXE = importlib.util.find_spec("axe_core_python")


@pytest.mark.full
@browser
@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 1280), ("light", 390)])
def test_every_tab_is_accessible(chromium, pages, scheme, width):
    script = (Path(AXE.origin).parent / "axe.min.js").read_text("utf-8")
    chromium.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    try:
        page = memory(chromium, pages / "bad.html", width=width)
        page.js(script)
        page.js("nkisim.maps.get(nkisim.profile).step(1)")
        for tab in page.js("return nkisim.tabs"):
            page.js("nkisim.open(arguments[0])", tab)
            page.frame()
            found = chromium.execute_async_script(
                "axe.run(document).then((r) => arguments[0](r.violations.map("
                "(v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(' | ')}`)))"
            )
            assert found == [], (tab, found)
        assert page.js("return document.documentElement.scrollWidth") <= width
    finally:
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
