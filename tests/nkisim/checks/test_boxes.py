"""What is written as rectangles is what marks of each byte say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.chip.boxes import MOST, Boxes, width_of
from nkisim.chip.memory import FULLY, HBM, PARTLY, SBUF, Storage

ROWS, ROW = 6, 24


@st.composite
def patterns(draw):
    """Return an access pattern of 4-byte (or 2-byte) elements of a plane of ROWS x ROW bytes."""
    item = draw(st.sampled_from([4, 4, 2]))
    kind = draw(st.sampled_from(["rows", "tile", "tile", "run", "strided", "three", "turned"]))
    across = ROW // item
    top = draw(st.integers(0, ROWS - 1))
    height = draw(st.integers(1, ROWS - top))
    lo = draw(st.integers(0, across - 1))
    n = draw(st.integers(1, across - lo))
    if kind == "rows":
        return top * ROW, (height, across), (ROW, item), item
    if kind == "tile":
        return top * ROW + lo * item, (height, n), (ROW, item), item
    if kind == "run":
        first = draw(st.integers(0, ROWS * across - 1))
        return first * item, (draw(st.integers(1, ROWS * across - first)), 1), (item, item), item
    if kind == "strided":
        return top * ROW, (height, across // 2), (ROW, 2 * item), item
    if kind == "three":
        return top * ROW, (height, 2, max(1, n // 2)), (ROW, ROW // 2, item), item
    return top * ROW, (across, height), (item, ROW), item


def seen(marks, at):
    """Return the part of an array of all bytes that an access pattern touches, as a view."""
    offset, shape, strides, item = at
    return np.ndarray((*shape, item), np.bool_, marks, offset, (*strides, 1))


@settings(deadline=None, max_examples=500)
@given(st.lists(patterns(), min_size=1, max_size=8), st.lists(patterns(), max_size=4))
def test_boxes_against_a_mark_for_each_byte(writes, reads):
    size = ROWS * ROW
    boxes, marks = Boxes(size, width_of(size, *writes[0][1:3])), np.zeros(size, np.bool_)
    for at in writes:
        if boxes.add(*at):
            seen(marks, at)[...] = True
        assert boxes.left == size - marks.sum()
        for other in (*reads, at):
            assert boxes.has(*other) in (None, bool(seen(marks, other).all()))
    if boxes.width % 2 == 0:
        assert (boxes.marks(size, 2) == marks.reshape(-1, 2).all(axis=1)).all()


@settings(deadline=None, max_examples=500)
@given(st.sampled_from([(HBM, 1), (SBUF, ROWS)]), st.data())
def test_a_storage_against_a_mark_for_each_byte(kind, draws):
    kind, parts = kind
    size = ROWS * ROW
    storage, marks = (
        Storage(0, kind, parts, size // parts, 4, -1, 0, False, False),
        np.zeros(size, np.bool_),
    )
    for _ in range(draws.draw(st.integers(0, 8))):
        at = draws.draw(patterns())
        what = draws.draw(st.sampled_from(["mark", "mark", "mark", "some", "spoil", "ask"]))
        part = seen(marks, at)
        chosen = np.random.default_rng(at[0]).random(at[1]) < 0.5
        if what == "mark":
            storage.mark(*at)
            part[...] = True
        elif what == "some":
            storage.mark(*at, chosen)
            part[chosen] = True
        elif what == "spoil":
            storage.spoil(*at, np.where(chosen, np.int16(1), np.int16(-1)))
            part[chosen] = False
        assert storage.defined(*at) == bool(part.all())
        if what == "ask":
            assert ((storage.origins(*at) < 0) == part.all(axis=-1)).all()
    assert (storage.init == FULLY) <= marks.all()
    for at in draws.draw(st.lists(patterns(), max_size=3)):
        assert storage.defined(*at) == bool(seen(marks, at).all())


@pytest.mark.parametrize("order", [1, -1])
def test_tiles_of_a_grid_need_no_marks(order):
    storage = Storage(0, HBM, 1, 64 * 64 * 4, 4, -1, 0, False, False)
    tiles = [(m, n) for m in range(0, 64, 16) for n in range(0, 64, 32)][::order]
    for m, n in tiles:
        assert storage.init != FULLY
        storage.mark(m * 256 + n * 4, (16, 32), (256, 4), 4)
        assert storage._mask is None
        assert storage.defined(m * 256 + n * 4, (16, 32), (256, 4), 4)
        assert storage.defined(m * 256, (16, 64), (256, 4), 4) == (
            (m, 32 - n) in tiles[: tiles.index((m, n))]
        )
    assert storage.init == FULLY


@pytest.mark.parametrize("step", [-2, 2])
def test_very_many_boxes_become_marks(step):
    """Every second row, then the others: too many ranges to keep."""
    rows = 4 * MOST
    storage = Storage(0, HBM, 1, rows * 8, 4, -1, 0, False, False)
    for row in [*range(0, rows, 2), *range(1, rows, 2)][:: step // 2]:
        assert storage.init in (0, PARTLY)
        storage.mark(row * 8, (1, 2), (8, 4), 4)
        assert storage.defined(row * 8, (1, 2), (8, 4), 4)
    assert storage.init == FULLY
