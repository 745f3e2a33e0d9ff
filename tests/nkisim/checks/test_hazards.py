"""Broken promises of affine loops, byte by byte: what overlaps by half is no better than all."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.trace.geometry import Geometry, Regions
from nkisim.trace.trace import Pattern


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def found(run):
    return [(f.id, f.severity) for f in run.findings]


def hbm(*shape, dtype=np.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


# -- two iterations write the same bytes -----------------------------------------------------------


@nki.jit
def strips(x, step):
    """Store strips of 64 columns, `step` columns apart."""
    out = hbm(128, 256)
    for i in nl.affine_range((256 - 64) // step + 1):
        nl.store(out[:, i * step : i * step + 64], nl.load(x[:, 0:64]))  # BUG
    return out


def test_stores_that_overlap_by_half(breaks):
    assert not nkisim.run(strips, data(128, 64), 64).findings
    error = breaks(
        strips, data(128, 64), 32, id="NKI-L04", name="err_unexpected_output_dependencies"
    )
    assert "4,096 of 8,192 elements" in error.what and "i * size" in error.hint


@nki.jit
def stripes_of_a_grid(x, step):
    out = hbm(256, 64)
    i = nl.program_id(0)
    nl.store(out[i * step : i * step + 128], nl.load(x))  # BUG
    return out


def test_instances_of_a_grid_that_overlap_by_half(breaks):
    x = data(128, 64)
    assert not nkisim.run(stripes_of_a_grid[2], x, 128).findings
    error = breaks(stripes_of_a_grid[2], x, 64, id="NKI-L04")
    assert "instance of the grid" in error.what and "4,096 of 8,192" in error.what


def test_other_shapes_of_the_same_bytes(breaks):
    """One store sees the output as (256, 64), the other one as (128, 128)."""

    @nki.jit
    def kernel(x, y, at):
        out = hbm(256, 64)
        wide = out.reshape((128, 128))
        for i in nl.affine_range(2):
            nl.store(out[i * 64 : i * 64 + 64], nl.load(x))  # BUG
            nl.store(wide[at - i * 32 : at - i * 32 + 32], nl.load(y))
        return out

    x, y = data(64, 64), data(32, 128)
    assert not [f for f in nkisim.run(kernel, x, y, 96).findings]
    error = breaks(kernel, x, y, 48, id="NKI-L04")
    assert "2,048 of 4,096" in error.what


def test_columns_between_each_other_do_not_meet():
    """Even columns by one iteration and odd ones by the other share no byte."""

    @nki.jit
    def kernel(x):
        out = hbm(128, 128)
        p, f = nl.mgrid[0:128, 0:64]
        for i in nl.affine_range(2):
            nl.store(out[p, 2 * f + i], nl.load(x))
        return out

    assert not nkisim.run(kernel, data(128, 64)).findings


def test_a_tile_on_chip_that_is_written_by_half():
    @nki.jit
    def kernel(x, step):
        t, out = nl.ndarray((128, 96), np.float32), hbm(128, 96)
        for i in nl.affine_range(2):
            t[:, i * step : i * step + 48] = nl.load(x[i])
        if step < 48:
            t[:, step + 48 : 96] = 0
        nl.store(out, t)
        return out

    x = data(2, 128, 48)
    assert not nkisim.run(kernel, x, 48).findings
    run = nkisim.run(kernel, x, 24)
    assert found(run) == [("NKI-L05", "warning")]
    assert "(3,072 of 6,144 elements)" in run.findings[0].text


# -- an iteration reads what another one wrote -----------------------------------------------------


@nki.jit
def neighbours(x, loop, wide):
    """Each iteration adds up `wide` of its own and its left neighbour's columns."""
    out = hbm(128, 64)
    t = nl.load(x)
    for i in loop(1, 4):
        t[:, i * 16 : i * 16 + 16] = nl.multiply(t[:, i * 16 - wide : i * 16 - wide + 16], 2.0)
    nl.store(out, t)
    return out


def test_a_read_of_half_of_what_another_iteration_wrote():
    x = data(128, 64)
    assert not nkisim.run(neighbours, x, nl.affine_range, 0).findings
    assert not nkisim.run(neighbours, x, nl.sequential_range, 8).findings
    run = nkisim.run(neighbours, x, nl.affine_range, 8)
    assert found(run) == [("NKI-L02", "warning")]
    assert "(1,024 of 2,048 elements)" in run.findings[0].text


@nki.jit
def own_half(x, whole):
    """Each iteration writes its half of a tile, and reads it, or all of it."""
    out, t = hbm(2, 128, 64), nl.zeros((128, 64), np.float32)
    for i in nl.affine_range(2):
        t[:, i * 32 : i * 32 + 32] = nl.load(x[i])
        mine = t if whole else t[:, i * 32 : i * 32 + 32]
        nl.store(out[i], nl.broadcast_to(nl.sum(mine, axis=1, keepdims=True), (128, 64)))
    return out


def test_a_read_of_more_than_an_iteration_wrote_itself():
    assert not nkisim.run(own_half, data(2, 128, 32), False).findings
    assert found(nkisim.run(own_half, data(2, 128, 32), True)) == [("NKI-L02", "warning")]


@nki.jit
def running_total(x, loop, inside):
    """An accumulator is looked at before the loop has ended."""
    out = hbm(4, 128, 8)
    acc = nl.zeros((128, 8), np.float32)
    for i in loop(4):
        acc += nl.load(x[i])
        if inside:
            nl.store(out[i], acc)  # BUG
    for i in nl.affine_range(4):
        if not inside:
            nl.store(out[i], acc)
    return out


@nki.jit
def running_product(x, inside):
    out = hbm(4, 128, 8)
    acc = nl.zeros((128, 8), np.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        acc += nisa.nc_matmul(nl.load(x[i]), nl.load(x[i, :, 0:8]))
        if inside:
            nl.store(out[i], nl.copy(acc))  # BUG
    for i in nl.affine_range(4):
        if not inside:
            nl.store(out[i], nl.copy(acc))
    return out


def test_an_accumulator_that_is_read_inside_of_its_loop():
    """+= may meet in any order, so only the sum after the loop is defined."""
    x, wide = data(4, 128, 8), data(4, 128, 128)
    assert found(nkisim.run(running_total, x, nl.affine_range, True)) == [("NKI-L02", "warning")]
    assert not nkisim.run(running_total, x, nl.affine_range, False).findings
    assert not nkisim.run(running_total, x, nl.sequential_range, True).findings
    assert found(nkisim.run(running_product, wide, True)) == [("NKI-L02", "warning")]
    assert not nkisim.run(running_product, wide, False).findings


def test_a_tile_that_a_variable_carries_over():
    @nki.jit
    def kernel(x, loop, carry):
        out = hbm(4, 128, 8)
        before = nl.load(x[0])
        for i in loop(4):
            t = nl.load(x[i])
            nl.store(out[i], nl.add(t, before))
            if carry:
                before = t
        return out

    x = data(4, 128, 8)
    assert not nkisim.run(kernel, x, nl.affine_range, False).findings
    assert not nkisim.run(kernel, x, nl.sequential_range, True).findings
    run = nkisim.run(kernel, x, nl.affine_range, True)
    assert found(run) == [("NKI-L02", "warning")]
    assert run.findings[0].other.text == "t = nl.load(x[i])"


def test_an_accumulator_of_each_iteration_is_its_own():
    """Accumulated over an inner loop, read in the outer one that made (or set) it: in order."""

    @nki.jit
    def kernel(x, inside):
        out = hbm(2, 128, 8)
        shared = nl.ndarray((2, nl.par_dim(128), 8), np.float32)
        for i in nl.affine_range(2):
            acc = nl.zeros((128, 8), np.float32) if inside else shared[i]
            acc[...] = 0
            for j in nl.affine_range(3):
                acc += nl.load(x[i, j])
            nl.store(out[i], acc)
        return out

    x = data(2, 3, 128, 8)
    for inside in (True, False):
        run = nkisim.run(kernel, x, inside)
        assert not run.findings
        np.testing.assert_allclose(run.outputs, x.sum(1), rtol=1e-5, atol=1e-5)


def test_what_an_iteration_writes_in_pieces_is_its_own():
    """A tile of the outer loop, written by quarters and read whole by an inner loop."""

    @nki.jit
    def kernel(x):
        out = hbm(2, 2, 128, 64)
        for i in nl.affine_range(2):
            t = nl.ndarray((128, 64), np.float32)
            for j in nl.affine_range(4):
                t[:, j * 16 : j * 16 + 16] = nl.load(x[:, j * 16 : j * 16 + 16])
            for k in nl.affine_range(2):
                nl.store(out[i, k], t)
        return out

    assert not nkisim.run(kernel, data(128, 64)).findings


def test_updates_of_hbm_and_scatters_are_believed():
    """Which rows a scatter hits is data: only what is surely the same is said."""

    @nki.jit
    def kernel(x, rows):
        out = hbm(256, 8)
        c = nl.arange(8)[None, :]
        for i in nl.affine_range(2):
            nl.store(out[i * 128 : i * 128 + 128], 0)
        for i in nl.affine_range(2):
            nl.store(out[nl.load(rows[i]), c], nl.load(x[i]))
        for i in nl.affine_range(2):
            nl.store(
                out[i * 128 : i * 128 + 128],
                nl.multiply(nl.load(out[i * 128 : i * 128 + 128]), 2.0),
            )
        return out

    rows = np.arange(256, dtype=np.int32).reshape(2, 128, 1)
    assert not nkisim.run(kernel, data(2, 128, 8), rows).findings


def test_a_mask_that_is_no_box_does_not_fill_its_pattern():
    """Two triangles of a tile meet in no element; what they are stored over is not looked at."""

    @nki.jit
    def kernel(x):
        out = hbm(2, 32, 32)
        t = nl.zeros((32, 64), np.float32)
        p, f = nl.mgrid[0:32, 0:48]
        for i in nl.affine_range(2):
            below = p >= f + 32 * i
            t[p, f + 16 * i] = nl.copy(nl.load(x), mask=below)
        for i in nl.affine_range(2):
            nl.store(out[i], t[:, i * 32 : i * 32 + 32])
        return out

    assert not nkisim.run(kernel, data(32, 48)).findings


# -- against an oracle -----------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["read", "write", "update"]),
        st.integers(0, 8),
        st.integers(0, 8),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=4,
)


def oracle(program, count):
    """Return whether (a read, a write) meets what another iteration left, element by element."""
    left = [[] for _ in range(64)]  # per column: the iterations that its value is from
    reads = writes = False
    for i in range(count):
        for what, slope, start, width in program:
            for column in range(slope * i + start, slope * i + start + width):
                others = any(j != i for j in left[column])
                reads |= what == "read" and others
                writes |= what == "write" and others
                if what == "write":
                    left[column] = [i]
                elif what == "update":
                    left[column].append(i)
    return reads, writes


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(2, 3))
def test_meetings_are_found_exactly(program, count):
    @nki.jit
    def kernel():
        out, t = hbm(8, 64), nl.zeros((8, 64), np.float32)
        for i in nl.affine_range(count):
            for what, slope, start, width in program:
                part = t[:, slope * i + start : slope * i + start + width]
                if what == "read":
                    nl.copy(part)
                elif what == "write":
                    part[...] = 1
                else:
                    part += 1
        nl.store(out, t)
        return out

    ids = {f.id for f in nkisim.run(kernel).findings}
    assert ("NKI-L02" in ids, "NKI-L05" in ids) == oracle(program, count)


boxes = st.tuples(
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([4, 8, 16, 20, 64]),
    st.sampled_from([4, 8, 12]),
    st.integers(0, 60),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(boxes, st.integers(0, 1), st.booleans()), min_size=2, max_size=8))
def test_regions_that_overlap_are_all_found(regions):
    geometry, seen = Geometry(), []
    for (n, m, s, r, at), stage, written in regions:
        p = Pattern("sbuf", np.dtype("u4"), (n, m), (s, r))
        touched = {at + i * s + j * r + b for i in range(n) for j in range(m) for b in range(4)}
        seen.append((stage, at, geometry.id(p), written, touched))
    stage, lowest, pattern, written, _ = zip(*seen)
    a, b = Regions(*map(np.array, (stage, lowest, pattern)), geometry).overlapping(
        np.array(written)
    )
    wanted = {
        (i, j)
        for i, x in enumerate(seen)
        for j, y in enumerate(seen)
        if i != j and x[0] == y[0] and (x[3] or y[3]) and x[4] & y[4]
    }
    assert set(zip(a.tolist(), b.tolist())) == wanted


@pytest.mark.parametrize("tiles", [40])
def test_many_tiles_side_by_side_are_no_pairs(tiles):
    """In an output of tiles x tiles tiles no two are close, though their spans of bytes are."""
    geometry = Geometry()
    tile = geometry.id(Pattern("hbm", np.dtype("f4"), (8, 4), (tiles * 16, 4)))
    at = np.add.outer(np.arange(tiles) * 8 * tiles * 16, np.arange(tiles) * 16).reshape(-1)
    regions = Regions(np.zeros(len(at), int), at, np.full(len(at), tile), geometry)
    assert not len(regions.overlapping(np.ones(len(at), bool))[0])
    assert not geometry._known  # it was seen without looking at any


@pytest.mark.parametrize("waits", [False, True])
def test_a_core_that_does_not_wait_for_the_other(waits):
    import nki
    import nki.isa as nki_isa
    import nki.language as nki_nl

    @nki.jit
    def kernel(x):
        out = nki_nl.ndarray((128, 64), dtype=x.dtype, buffer=nki_nl.shared_hbm)
        half = nki_nl.ndarray((128, 64), dtype=x.dtype, buffer=nki_nl.shared_hbm)
        mine = nki_nl.program_id(0) * 64
        other = 64 - mine
        nki_nl.store(half[mine : mine + 64], nki_nl.load(x[mine : mine + 64]))
        if waits:
            nki_isa.core_barrier(half, (0, 1))
        nki_nl.store(out[mine : mine + 64], nki_nl.load(half[other : other + 64]))
        return out

    found = [f for f in nkisim.run(kernel[2], data(128, 64)).findings if f.id == "NKI-L02"]
    assert len(found) == (not waits)
    if found:
        assert found[0].severity == "warning" and "core_barrier" in found[0].text
        assert "a core reads" in found[0].text and "sequential_range" not in found[0].text


@nki.jit
def zeros_in_psum(x, inside):
    """Add zeros in PSUM, which no product is added to, in the iterations of a loop."""
    out = hbm(128, 64)
    acc = nl.zeros((128, 64), nl.float32, buffer=nl.psum)
    tile = nl.load(x)
    if not inside:
        nl.store(out, nl.add(tile, acc))
    for i in nl.affine_range(4):
        nl.store(out[:, i * 16 : i * 16 + 16], nl.add(tile[:, i * 16 : i * 16 + 16], acc[:, 0:16]))
    return out


@pytest.mark.parametrize("inside", [False, True])
def test_zeros_in_psum_are_made_where_they_are_declared(inside):
    x = data(128, 64)
    run = nkisim.run(zeros_in_psum, x, inside)
    assert not run.findings and np.array_equal(run.outputs, x)
