"""Traps of the package nki, continued: sums, engines, accumulators, what tiles hold and when."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from test_nki_traps import array, refused, through

import nkisim

CMD = nisa.reduce_cmd


def findings(body, *arrays, target="trn2"):
    """Run `body(*HBM tensors)`, which returns a tile in SBUF; return the ids of what was found."""

    def kernel(*xs):
        t = body(*xs)
        out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    return {f.id for f in nkisim.run(nki.jit(kernel), *arrays, target=target).findings}


# -- sums in PSUM ---------------------------------------------------------------------------------


def summed(x, first):
    """Add x.T @ x three times, but for the first round."""
    t, acc = nl.load(x), nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
    for i in range(3):
        if i > 0:
            nisa.nc_matmul(acc, t, t, accumulate=first(i))
    return nl.copy(acc)


def test_a_sum_onto_a_product_of_what_nothing_has_written_is_a_sum_onto_something():
    """What lacks is data, not a first product: the finding names the tile that nothing wrote."""

    def body(x):
        t, acc = nl.ndarray((4, 8), x.dtype), nl.ndarray((8, 8), nl.float32, buffer=nl.psum)
        nisa.dma_copy(dst=t[0:2], src=x[0:2])
        for i in range(2):
            nisa.nc_matmul(acc, t, t, accumulate=i > 0)
        return nl.copy(acc)

    found = findings(body, array(4, 8))
    assert "NKI-N08" not in found and found & {"NKI-U01", "NKI-U02", "NKI-O04"}, found


def test_a_branch_that_skips_the_first_product_leaves_no_sum_to_add_to():
    """accumulate=(i > 0) names the first round, which is not the first product."""
    x = array(4, 8)
    refused("NKI-N08", lambda x: summed(x, lambda i: i > 0), x)
    np.testing.assert_allclose(
        through(lambda x: summed(x, lambda i: None), x),
        2 * x.T @ x,
        rtol=1e-4,
        atol=1e-5,
    )


# -- engines --------------------------------------------------------------------------------------


def test_integers_in_psum_are_added_by_the_vector_engine():
    """So they are rounded to float32; in SBUF GpSimd adds them exactly."""
    x = np.full((4, 4), 2**24 + 1, np.int32)

    def body(x, buffer):
        t, other = nl.load(x), nl.ndarray((4, 4), dtype=nl.int32, buffer=buffer)
        nisa.tensor_copy(other, t)
        nisa.tensor_tensor(t, other, t, nl.add)
        return t

    assert (through(lambda x: body(x, nl.sbuf), x) == 2 * x).all()
    assert (through(lambda x: body(x, nl.psum), x) == 2**25).all()


def test_rsqrt_does_not_read_psum():
    x = np.abs(array(4, 8)) + 1

    def body(x, buffer):
        t = nl.ndarray((4, 8), dtype=nl.float32, buffer=buffer)
        nisa.tensor_copy(t, nl.load(x))
        return nl.rsqrt(t)

    np.testing.assert_allclose(through(lambda x: body(x, nl.sbuf), x), x**-0.5, rtol=1e-5)
    refused("NKI-M01", lambda x: body(x, nl.psum), x, text="since 0.5")


def test_the_scalar_engine_copies_since_trn2():
    def body(x):
        t, other = nl.load(x), nl.ndarray((4, 8), dtype=nl.float32)
        nisa.tensor_copy(other, t, engine=nisa.engine.scalar)
        return other

    x = array(4, 8)
    assert (through(body, x) == x).all()
    refused("NKI-E01", body, x, target="trn1")


def test_unary_operators_take_no_other_operand_than_zero():
    x = np.abs(array(4, 8)) + 1

    def body(x, operand):
        t = nl.load(x)
        nisa.tensor_scalar(t, t, nl.rsqrt, operand)
        return t

    assert (through(lambda x: body(x, 0), x) == through(lambda x: body(x, None), x)).all()
    refused("NKI-E05", lambda x: body(x, 3.0), x)


def test_a_double_row_has_the_two_beside_the_partitions():
    def body(x, shape):
        tiles = [nl.ndarray(shape(n), dtype=nl.float8_e4m3) for n in (8, 16)]
        for t in tiles:
            nisa.memset(t, 1.0)
        acc = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, *tiles, perf_mode=nisa.matmul_perf_mode.double_row)
        return nl.copy(acc)

    assert (through(lambda x: body(x, lambda n: (128, 2, n)), array(4, 4)) == 256).all()
    for shape in (lambda n: (128, 2 * n), lambda n: (128, n, 2)):
        refused("NKI-E14", lambda x, shape=shape: body(x, shape), array(4, 4))


# -- functions and accumulators -------------------------------------------------------------------


def test_the_sine_of_nl_has_no_range():
    """It brings the angle into the range of the Scalar Engine first."""
    x = np.linspace(-1000, 1000, 4 * 64, dtype=np.float32).reshape(4, 64)
    x[0, :2] = np.float32(np.pi), -np.float32(np.pi)
    for dtype in (None, nl.bfloat16):
        got = through(lambda x, d=dtype: nl.sin(nl.load(x), d), x)
        np.testing.assert_allclose(
            np.float64(got), np.sin(x.astype(np.float64)), atol=1e-6 if dtype is None else 1e-2
        )
    assert "NKI-E07" not in findings(lambda x: nl.sin(nl.load(x)), x)


def test_eight_small_values_are_found_from_the_front_and_replaced_from_the_back():
    values = np.full((1, 8), 5, np.float32)

    def body(x, replace):
        t, index = nl.load(x), nl.ndarray((1, 8), dtype=nl.uint32)
        if replace:
            nisa.nc_match_replace8(nl.ndarray((1, 8), dtype=nl.float32), t, t, 0.0, index)
        else:
            nisa.nc_find_index8(index, t, t)
        return index

    assert through(lambda x: body(x, False), values).tolist() == [list(range(8))]
    assert through(lambda x: body(x, True), values).tolist() == [list(range(7, -1, -1))]


def test_a_sum_may_be_written_where_the_result_is():
    def body(x):
        t, dst = nl.load(x), nl.ndarray((4, 1), dtype=nl.float32)
        nisa.activation(
            dst,
            nl.copy,
            t[:, 0:1],
            scale=2.0,
            reduce_op=nl.add,
            reduce_res=dst,
            reduce_cmd=CMD.reset_reduce,
        )
        return dst

    x = array(4, 8)
    np.testing.assert_allclose(through(body, x), 2 * x[:, :1], rtol=1e-6)


def test_range_select_begins_a_new_maximum():
    def body(x):
        t, dst, top = (
            nl.load(x),
            nl.ndarray((4, 8), dtype=nl.float32),
            nl.ndarray((4, 1), dtype=nl.float32),
        )
        bounds = [nl.full((4, 1), v, nl.float32) for v in (0.0, 4.0)]
        for part in (t, nl.multiply(t, 0.5)):  # of the second one only
            nisa.range_select(dst, part, nl.greater_equal, nl.less, *bounds, reduce_res=top)
        return top

    x = np.abs(array(4, 8))
    np.testing.assert_allclose(through(body, x)[:, 0], x[:, :4].max(1) / 2, rtol=1e-6)


# -- what tiles hold, and when --------------------------------------------------------------------


def test_a_repeated_destination_keeps_the_last_element():
    def body(x):
        t, dst = nl.load(x), nl.ndarray((4, 1), dtype=nl.float32)
        nisa.tensor_copy(dst.broadcast(1, 8), t)
        return dst

    x = array(4, 8)
    assert (through(body, x) == x[:, -1:]).all()


def test_copies_inside_of_hbm_and_inside_of_sbuf():
    def body(x):
        there = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(there, x)
        t, other = nl.load(there), nl.ndarray((4, 8), dtype=nl.float32)
        nisa.dma_copy(other, t)
        return other

    x = array(4, 8)
    assert (through(body, x) == x).all()


def _rounds(x, inside, address):
    """Load, compute and store tiles: one tile for all, or one a round."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=x.dtype)
    for i in range(x.shape[0] // 128):
        if inside:
            t = nl.ndarray((128, 512), dtype=x.dtype, address=address)
        nisa.dma_copy(t, x[i * 128 : (i + 1) * 128])
        nisa.activation(t, nl.exp, t)
        nisa.dma_copy(out[i * 128 : (i + 1) * 128], t)
    return out


def test_a_tile_for_all_rounds_makes_them_wait_as_does_an_address():
    """Unless the compiler renames it, which it does not do where an address is given."""

    def time(inside, address, compiler):
        return nkisim.profile(
            nki.jit(_rounds),
            np.zeros((1024, 512), np.float32),
            inside,
            address,
            compute=False,
            compiler=compiler,
        ).body_us

    written, renamed = ("reorder", "engines"), ("reorder", "engines", "rename")
    alone = time(True, None, written)
    assert time(False, None, written) > 2 * alone
    assert time(False, None, renamed) == pytest.approx(alone)
    assert time(True, (0, 0), renamed) > 2 * alone


# -- kernels ---------------------------------------------------------------------------------------

FACTOR = 2.0


@nki.jit
def scaled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), FACTOR))
    return out


def test_no_kernel_is_kept_from_an_earlier_call(monkeypatch):
    """AWS keeps compiled kernels by shapes and arguments: a global that changes is not seen."""
    x = array(4, 8)
    first = scaled(x)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert (first == 2 * x).all() and (scaled(x) == 3 * x).all()


@pytest.mark.parametrize("value", [None, "0", "1"])
def test_a_call_simulates_whatever_nki_simulator_says(monkeypatch, value):
    """No other thing than a simulation can be asked for here, so the variable changes nothing."""
    if value is None:
        monkeypatch.delenv("NKI_SIMULATOR", raising=False)
    else:
        monkeypatch.setenv("NKI_SIMULATOR", value)
    x = array(4, 8)
    got = scaled(x)
    assert isinstance(got, np.ndarray) and (got == 2 * x).all()
