"""nkisim.draw: a row for each source line, with what it reads and writes where it lies."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim


@nki.jit
def halves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r : r + 128])
        nisa.activation(dst=tile[:, 0:32], op=nl.relu, data=tile[:, 0:32])
        nisa.dma_copy(dst=out[r : r + 128], src=tile)
    return out


@nki.jit
def strided(x):
    out = nl.ndarray((128, 16, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    part = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_copy(dst=part[:, :, 0:3], src=tile[:, 0:32:2, 2:5])
    nisa.tensor_copy(dst=part[:, :, 3:8], src=tile[:, 0:32:2, 3:8])
    nisa.dma_copy(dst=out, src=part)
    return out


@nki.jit
def picked(table, which):
    out = nl.ndarray((8, 16), dtype=table.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((8, 1), dtype=which.dtype, buffer=nl.sbuf)
    tile = nl.ndarray((8, 16), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=index, src=which)
    nisa.dma_copy(dst=tile, src=table.ap([[16, 8], [1, 16]], vector_offset=index, indirect_dim=0))
    nisa.dma_copy(dst=out, src=tile)
    return out


def drawn(kernel, *args, **more):
    """Return the drawing's root and its text."""
    svg = nkisim.draw(kernel, *args, target="trn2", **more).svg
    return ET.fromstring(svg), svg


def test_a_row_for_each_line_and_the_regions_of_a_loop_side_by_side():
    root, svg = drawn(halves, np.ones((256, 64), np.float32))
    rows = re.findall(r'class="ink bold">(\w+)<', svg)
    assert rows == ["halves", "dma_copy", "activation", "dma_copy"]
    assert "DMA, 2 times" in svg and "Scalar Engine, 2 times" in svg and "2 tiles" in svg
    tips = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "rows 0 to 127, columns 0 to 63" in tips and "rows 128 to 255, columns 0 to 63" in tips
    assert tips.count("rows 0 to 127, columns 0 to 31") == 2  # read and written
    assert ">x<" in svg and ">out<" in svg and "prefers-color-scheme:dark" in svg


def test_runs_with_gaps_between_them_are_drawn_each_over_all_rows():
    """Three of eight columns, in every second group: 16 rectangles of 128 rows."""
    root, _ = drawn(strided, np.ones((128, 32, 8), np.float32))
    tips = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    read = [f"rows 0 to 127, columns {16 * k + 2} to {16 * k + 4}" for k in range(16)]
    assert all(tips.count(tip) == 1 for tip in read), tips
    assert "rows 0 to 127, columns 0 to 255" in tips


def test_the_source_lines_are_left_out_if_asked_for():
    with_code = drawn(halves, np.ones((256, 64), np.float32))[1]
    without = drawn(halves, np.ones((256, 64), np.float32), code=False)[1]
    assert "nisa.activation(" in with_code and "nisa." not in without


def test_what_an_index_chooses_is_drawn_as_that():
    which = np.arange(8, dtype=np.int32)[:, None]
    svg = drawn(picked, np.ones((100, 16), np.float32), which)[1]
    assert "rows that an index chooses" in svg


def test_a_broken_rule_is_raised():
    with pytest.raises(nkisim.NkiError, match="no multiple|leaves the tensor"):
        nkisim.draw(halves, np.ones((200, 64), np.float32), target="trn2")
