"""Loads that are put off: nothing shows whether the bytes are in a tile, or still in HBM."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.lazy import deferred_loads
from nkisim.simulation.launch import launch

P, SLOTS, WIDTH = 8, 6, 12


def numbers(*shape, seed=0, dtype=np.float32):
    """Return small whole numbers: their sums are exact in any order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@pytest.fixture
def done(monkeypatch):
    """Return the list of the loads that were put off and then done."""
    seen = []
    real = deferred_loads.Late.run

    def run(load):
        seen.append(load.tile.shape)
        real(load)

    monkeypatch.setattr(deferred_loads.Late, "run", run)
    return seen


@nki.jit
def steps(x, w, program):
    """Run a list of (what, i, j, n) on two tiles of six slots each, and add products of them up."""
    out = nl.ndarray((len(program) + 2, P, SLOTS * WIDTH), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = []
    for source in (x, w):
        tile = nl.ndarray((P, SLOTS, WIDTH), dtype=x.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(SLOTS):
            tile[:, k] = nl.load(source[k])
        tiles.append(tile)
    left, right = tiles
    for number, (what, i, j, n) in enumerate(program):
        tile, source, n = (left, right)[j % 2], (x, w)[n % 2], min(n + 1, SLOTS - i)
        if what == "load":
            tile[:, i] = nl.load(source[j])
        elif what == "part":
            tile[2:P, i, j : j + 3] = nl.load(source[n - 1, 0 : P - 2, 3:6])
        elif what == "some":
            for k in nl.affine_range(n):
                tile[:, i + k] = nl.load(source[k])
        elif what == "new":
            tile = nl.ndarray((P, SLOTS, WIDTH), dtype=x.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(3):
                tile[:, 2 * k] = nl.load(source[k])
                tile[:, 2 * k + 1] = nl.load(source[k + i % 3])
            left, right = (tile, right) if j % 2 else (left, tile)
        elif what == "write":
            tile[:, i] = nl.multiply(tile[:, i], -1.0)
        elif what == "add":
            acc = nl.zeros((j + 1, WIDTH - i), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(n):
                acc += nisa.nc_matmul(left[:, i + k, i : i + j + 1], right[:, i + k, i:WIDTH])
            nl.store(out[number, 0 : j + 1, 0 : WIDTH - i], value=acc)
        elif what == "columns":
            sums = nl.zeros((3, nl.par_dim(2), 4), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(n):
                for c in nl.affine_range(3):
                    sums[c] += nisa.nc_matmul(
                        left[0:4, i + k, 2 * c : 2 * c + 2], right[0:4, i + k, 4 * c : 4 * c + 4]
                    )
            for c in nl.affine_range(3):
                nl.store(out[number, 0:2, 4 * c : 4 * c + 4], value=nl.copy(sums[c]))
        elif what == "itself":
            square = nl.zeros((WIDTH, WIDTH), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(n):
                square += nisa.nc_matmul(left[:, i + k], left[:, i + k])
            nl.store(out[number, 0:P, 0:WIDTH], value=square[0:P])
    nl.store(out[len(program)], value=left.reshape((P, SLOTS * WIDTH)))
    nl.store(out[len(program) + 1], value=right.reshape((P, SLOTS * WIDTH)))
    return out


WHATS = ["load", "part", "some", "new", "write", "add", "columns", "itself"]
STEP = st.tuples(st.sampled_from(WHATS), *[st.integers(0, SLOTS - 1)] * 3)


@settings(deadline=None, max_examples=200)
@given(
    program=st.lists(STEP, max_size=12),
    every=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_any_program_gives_the_bytes_of_loads_that_are_done_at_once(program, every, dtype):
    x, w = numbers(SLOTS, P, WIDTH, dtype=dtype), numbers(SLOTS, P, WIDTH, seed=1, dtype=dtype)
    runs = []
    for at_once in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if at_once:
                patch.setattr(deferred_loads, "put_off", lambda *args: False)
                patch.setattr("nkisim.loops.values.put_off", lambda *args: False)
            runs.append(
                launch(
                    steps, (x, w, program), {}, target="trn2", every_iteration=every and not at_once
                )
            )
    assert runs[0].outputs.tobytes() == runs[1].outputs.tobytes()
    assert list(map(str, runs[0].findings)) == list(map(str, runs[1].findings))
    assert runs[0].trace.rows == runs[1].trace.rows


@nki.jit
def blocks(a, b, rounds):
    """a.T @ b, both by way of tiles that slices fill, as often as wished."""
    k, m, n = a.shape[0] // 128, a.shape[1], b.shape[1]
    out = nl.ndarray((rounds, m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    for r in nl.static_range(rounds):
        left = nl.ndarray((128, k, m), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, k, n), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(k):
            left[:, i] = nl.load(a[i * 128 : (i + 1) * 128])
            right[:, i] = nl.load(b[i * 128 : (i + 1) * 128])
        acc = nl.zeros((m, n), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(k):
            acc += nisa.nc_matmul(left[:, i], right[:, i])
        nl.store(out[r], value=nl.copy(acc, dtype=out.dtype))
    return out


def test_products_read_their_operands_from_hbm(done):
    """The tiles in between never get any bytes."""
    a, b = numbers(512, 32), numbers(512, 64, seed=1)
    got = nkisim.simulate(blocks, a, b, 8)
    np.testing.assert_array_equal(got, np.broadcast_to(a.T @ b, got.shape))
    assert len(done) <= 4


def test_an_array_and_itself_are_rounded_as_two_tiles_are():
    a = np.random.default_rng(0).standard_normal((512, 96), dtype=np.float32)
    got = nkisim.simulate(blocks, a, a, 3)
    every = launch(blocks, (a, a, 3), {}, every_iteration=True)
    assert got.tobytes() == every.outputs.tobytes()


def test_what_no_load_has_filled_is_undefined(done):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 4, 8), dtype=x.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(3):
            tile[:, k] = nl.load(x[:, k])
        nl.store(out, value=tile)
        return out

    x = numbers(128, 4, 8)
    run = nkisim.run(kernel, x)
    assert [f.id for f in run.findings] == ["NKI-U02"]
    np.testing.assert_array_equal(run.outputs[:, :3], x[:, :3])
    assert np.isnan(run.outputs[:, 3]).all() and done


def test_a_load_from_what_the_kernel_writes_is_done_at_once(done):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        between = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.hbm)
        nl.store(between, value=nl.multiply(nl.load(x), 2.0))
        tile = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nl.load(between)
        nl.store(between, value=nl.zeros((128, 8), dtype=x.dtype, buffer=nl.sbuf))
        nl.store(out, value=tile)
        return out

    x = numbers(128, 8)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), 2 * x)
    assert len(done) == 1  # that of x
