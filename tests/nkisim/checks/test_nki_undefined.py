"""What nothing has written, in the dialect of today: seeds, scales, and parts of destinations."""

from __future__ import annotations

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

X = np.random.default_rng(0).standard_normal((128, 64)).astype(ml_dtypes.bfloat16)


def ids(run):
    return [f.id for f in run.findings if f.severity == "error"]


@pytest.mark.parametrize("row", [0, 4])
def test_rows_of_the_scales_that_quantize_does_not_write_stay_undefined(row):
    """Twins: the first four rows of a quadrant hold its scales; nothing writes the others."""

    @nki.jit
    def kernel(x):
        pack = nl.ndarray((128, 16), dtype=nl.float8_e4m3fn_x4)
        scale = nl.ndarray((128, 16), dtype=nl.uint8)
        nisa.quantize_mx(pack, nl.load(x), scale)
        out = nl.ndarray((4, 16), dtype=nl.uint8, buffer=nl.shared_hbm)
        nisa.dma_copy(out, scale[32 + row : 36 + row])
        return out

    assert ids(nkisim.run(kernel, X, target="trn3")) == (["NKI-U02"] if row else [])


def test_scales_that_were_there_before_are_kept():
    @nki.jit
    def kernel(x):
        pack = nl.ndarray((128, 16), dtype=nl.float8_e4m3fn_x4)
        scale = nl.ndarray((128, 16), dtype=nl.uint8)
        nisa.memset(scale, 7)
        nisa.quantize_mx(pack, nl.load(x), scale)
        out = nl.ndarray((128, 16), dtype=nl.uint8, buffer=nl.shared_hbm)
        nisa.dma_copy(out, scale)
        return out

    run = nkisim.run(kernel, X, target="trn3")
    assert ids(run) == [] and (run.outputs[4:32] == 7).all() and (run.outputs[:4] > 7).all()


@pytest.mark.parametrize("seeded", [True, False])
def test_a_seed_is_read_and_not_written(seeded):
    @nki.jit
    def kernel(x):
        seed = nl.ndarray((1, 1), dtype=nl.uint32)
        if seeded:
            nisa.memset(seed, 3)
        nisa.set_rng_seed(seed)
        bits = nl.ndarray((128, 8), dtype=nl.uint32)
        nisa.rng(bits)
        out = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, bits)
        return out

    if not seeded:
        with pytest.raises(NkiError, match="NKI-U01"):
            nkisim.run(kernel, X)
        return
    run = nkisim.run(kernel, X)
    assert ids(run) == [] and run.instructions["set_rng_seed"] == 1
    assert nkisim.profile(kernel, X).latency_us > 0


@pytest.mark.parametrize("columns", [6, 3])
def test_the_state_of_a_generator_must_be_whole(columns):
    @nki.jit
    def kernel(x):
        state = nl.ndarray((128, 6), dtype=nl.uint32)
        nisa.memset(state[:, :columns], 3)
        nisa.rand_set_state(src_seeds=state)
        nl.store(x, 1.0)

    if columns == 6:
        nkisim.run(kernel, X)
    else:
        with pytest.raises(NkiError, match=r"NKI-U01.*part"):
            nkisim.run(kernel, X)


# -- tiles at addresses of the kernel's, where others were before ----------------------------------

ROWS = X[:12].astype(np.float32)


def _after_another(body):
    """Run body(x, t): t has 8 rows at an address where another tile has been, 4 are written."""

    @nki.jit
    def kernel(x):
        before = nl.ndarray((8, 64), dtype=nl.float32, address=(0, 256))
        nisa.dma_copy(before, x[:8])
        t = nl.ndarray((8, 64), dtype=nl.float32, address=(0, 256))
        nisa.dma_copy(t[:4], x[8:12])
        return body(x, t, before)

    return nkisim.run(kernel, ROWS)


def _stored(t):
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, t)
    return out


def _doubled(t, address=None):
    double = nl.ndarray(t.shape, dtype=t.dtype, address=address)
    nisa.tensor_scalar(double, t, nl.multiply, 2.0)
    return double


@pytest.mark.parametrize("address", [None, (0, 512)])
def test_rows_that_another_tile_has_left_may_be_read_and_not_used(address):
    """Whole tiles are computed on where rows are padding: what others left there is no matter."""
    run = _after_another(lambda x, t, before: _stored(_doubled(t, address)[:4]))
    assert [f for f in run.findings if f.severity != "note"] == []
    assert (run.outputs == 2 * ROWS[8:12]).all()


@pytest.mark.parametrize("address", [None, (0, 512)])
def test_rows_that_another_tile_has_left_are_undefined(address):
    run = _after_another(lambda x, t, before: _stored(_doubled(t, address)))
    (found,) = [f for f in run.findings if f.severity == "error"]
    assert found.id == "NKI-U02" and "256 of 512 elements" in found.text


def test_rows_that_another_tile_has_overwritten_are_lost():
    """The twin: the tile had written them before."""

    def body(x, t, before):
        return _stored(_doubled(before)[:4])

    assert ids(_after_another(body)) == ["NKI-A05"]


def test_two_tiles_at_one_address_are_named():
    @nki.jit
    def kernel(x):
        first = nl.ndarray((8, 64), dtype=nl.float32, address=(0, 0))
        second = nl.ndarray((8, 64), dtype=nl.float32, address=(0, 128))
        nisa.dma_copy(first, x[:8])
        nisa.dma_copy(second, x[:8])
        return _stored(first)

    (found,) = nkisim.run(kernel, ROWS).findings
    line = kernel.__wrapped__.__code__.co_firstlineno + 2
    assert found.text.startswith(
        f"first (test_nki_undefined.py:{line}) is read after second "
        f"(test_nki_undefined.py:{line + 1}) has overwritten it: both lie at bytes 128 .. 255"
    )


def test_a_tile_that_has_written_nothing_is_no_name_for_another_one():
    @nki.jit
    def kernel(x):
        nisa.dma_copy(nl.ndarray((8, 64), dtype=nl.float32, address=(0, 256)), x[:8])
        return _stored(_doubled(nl.ndarray((8, 64), dtype=nl.float32, address=(0, 256))))

    assert ids(nkisim.run(kernel, ROWS)) == ["NKI-A05"]


@nki.jit
def sums(x, y, columns, shown):
    """Add two products into the first columns of a new tile, and show some columns of it."""
    left, right = nl.load(x), nl.load(y)
    acc = nl.ndarray((64, 256), dtype=nl.float32, buffer=nl.psum)
    for _ in range(2):
        nisa.nc_matmul(acc[:, 0:columns], left, right[:, 0:columns])
    copy = nl.ndarray((64, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(copy[:, 0:shown], acc[:, 0:shown])
    out = nl.ndarray((64, shown), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, copy[:, 0:shown])
    return out


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("columns", [256, 100])
def test_a_first_product_overwrites_what_it_covers_and_nothing_else(columns, threads, monkeypatch):
    monkeypatch.setenv("NKISIM_THREADS", threads)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((128, 64), (128, 256)))
    run = nkisim.run(sums, x, y, columns, columns, target="trn2")
    assert np.array_equal(run.outputs, 2 * x.T @ y[:, :columns]) and not ids(run)
    if columns < 256:
        assert ids(nkisim.run(sums, x, y, columns, 256, target="trn2")) == ["NKI-U02"]


@nki.jit
def sum_after_a_transpose(x, other):
    """Transpose a tile that is half written; then add up in its PSUM bank."""
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    whole = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=whole, src=x)
    half = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=half[0:64], src=x[0:64])
    turned = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.psum, address=(0, 0))
    nisa.nc_transpose(dst=turned, data=half)
    kept = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=kept[:, 0:64], src=turned[:, 0:64])
    total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum, address=(0, 0))
    if not other:
        nisa.nc_matmul(dst=total, stationary=half, moving=whole)
    nisa.nc_matmul(dst=total, stationary=whole, moving=whole)
    result = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@pytest.mark.parametrize("other", [True, False])
def test_a_sum_does_not_depend_on_what_another_tile_left_at_its_address(other):
    """The first product overwrites it, unless it is one of the same tile, of undefined numbers."""
    x = np.random.default_rng(0).standard_normal((128, 128)).astype(ml_dtypes.bfloat16)
    run = nkisim.run(sum_after_a_transpose, x, other, target="trn2")
    assert ("NKI-U02" in {f.id for f in run.findings}) == (not other)
