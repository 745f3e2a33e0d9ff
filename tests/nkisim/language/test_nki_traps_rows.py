"""Traps of single instructions: what is expected of them, and is not so."""

from __future__ import annotations

from math import prod

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from test_nki_traps import array, refused, through

import nkisim


def ids(run):
    return {f.id for f in run.findings}


def turned(x, rows, many=0):
    """Gather as many rows (0: one for each index) and transpose them."""
    i, n, wide = nl.load(rows), many or rows.shape[0] * rows.shape[1], x.shape[1]
    t = nl.ndarray((wide, n), dtype=x.dtype)
    nisa.dma_transpose(t, x.ap([[wide, n], [1, wide]], vector_offset=i))
    return t


def some_rows(count, *shape):
    return np.random.default_rng(1).permutation(512)[:count].astype(np.uint32).reshape(shape)


def test_indices_of_a_transposing_gather_count_column_by_column():
    x = array(512, 32).astype(ml_dtypes.bfloat16)
    one = some_rows(48, 48, 1)
    assert (through(turned, x, one) == x[one[:, 0]].T).all()
    two = some_rows(256, 128, 2)
    got = through(turned, x, two)
    assert (got == x[two.T.reshape(-1)].T).all() and (got != x[two.reshape(-1)].T).any()


@pytest.mark.parametrize("shape, many", [((64, 1), 48), ((128, 2), 144), ((128, 3), 256)])
def test_a_transposing_gather_leaves_indices_over(shape, many):
    """The documentation: `indices.T.flatten()[:src.shape[0]]`."""
    x, rows = array(512, 32).astype(ml_dtypes.bfloat16), some_rows(prod(shape), *shape)
    used = rows.T.reshape(-1)[:many]
    assert (through(lambda x, i: turned(x, i, many), x, rows) == x[used].T).all()
    wrong = rows.T.reshape(-1).copy()
    wrong[many:] = 600  # what is left over moves nothing
    wrong = wrong.reshape(shape[::-1]).T.copy()
    assert (through(lambda x, i: turned(x, i, many), x, wrong) == x[used].T).all()


@pytest.mark.parametrize("inner", [(8, 4), (1, 8, 4), (8, 1, 4)])
def test_a_transposing_gather_of_rows_that_are_cut(inner):
    x, rows = array(512, 32).astype(ml_dtypes.bfloat16), some_rows(32, 32, 1)
    axes = (2, 1, 0) if len(inner) == 2 else (3, 1, 2, 0)
    want = x[rows[:, 0]].reshape(32, *inner).transpose(axes)

    def kernel(x, i):
        t = nl.ndarray(want.shape, dtype=x.dtype)
        steps = [32, *(prod(inner[d + 1 :]) for d in range(len(inner)))]
        pattern = [*map(list, zip(steps, (32, *inner)))]
        nisa.dma_transpose(t, x.ap(pattern, vector_offset=nl.load(i)), axes=axes)
        return t

    assert (through(kernel, x, rows) == want).all()


def test_what_a_transposing_gather_does_not_take():
    x = array(512, 32).astype(ml_dtypes.bfloat16)
    refused("NKI-S03", turned, x, np.zeros((64, 1), np.int32), text="uint32")

    def four(x, i):
        t = nl.ndarray((4, 2, 4, 16), dtype=x.dtype)
        pattern = [[32, 16], [16, 2], [4, 4], [1, 4]]
        nisa.dma_transpose(t, x.ap(pattern, vector_offset=nl.load(i)))
        return t

    refused("NKI-S03", four, x, np.zeros((16, 1), np.uint32), text="one of the two dims")
    few = np.zeros((16, 1), np.uint32)
    refused("NKI-N02", lambda x, i: turned(x, i, 32), x, few, text="16 offsets for 32 rows")


def test_only_a_transpose_takes_columns_of_indices_and_more_than_rows():
    x = array(512, 32).astype(ml_dtypes.bfloat16)
    rows = np.zeros((64, 2), np.uint32)
    refused("NKI-S03", turned, x, rows, text="(128, n)")
    refused("NKI-S03", turned, array(512, 32), rows[:, :1].copy(), text="2-byte")

    def copied(x, rows):
        t = nl.ndarray((128, 32), dtype=x.dtype)
        nisa.dma_copy(t, x.ap([[32, 128], [1, 32]], vector_offset=nl.load(rows)))
        return t

    def loaded(x, rows, many=32):
        return nl.load(x.ap([[32, many], [1, 32]], vector_offset=nl.load(rows)))

    def stored(x, rows):
        t = nl.load(x[0:32])
        nl.store(x.ap([[32, 32], [1, 32]], vector_offset=nl.load(rows)), t)
        return t

    refused("NKI-N02", copied, x, rows, text="dma_transpose")
    for kernel in loaded, stored:
        refused("NKI-N02", kernel, x, rows[:16].copy(), text="several columns")
        refused("NKI-N02", kernel, x, rows[:, :1].copy(), text="indices[0:32]")
    one = some_rows(32, 32, 1)
    assert (through(loaded, x, one) == x[one[:, 0]]).all()


def test_an_identity_is_not_loaded_again():
    refused(
        "NKI-M0",
        lambda x: nl.store(x, nl.load(nl.shared_identity_matrix(4, nl.float32))),
        array(4, 4),
    )


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_a_seed_may_not_reach_random_numbers_before_trn3(target):
    def kernel(x, seeded):
        if seeded:
            nl.random_seed(nl.full((1, 1), 7, nl.uint32))
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.rand((4, 8), nl.float32))
        return out

    runs = [nkisim.run(nki.jit(kernel), array(4, 4), True, target=target) for _ in range(2)]
    assert (runs[0].outputs == runs[1].outputs).all()
    assert ("NKI-R10" in ids(runs[0])) == (target == "trn2")
    assert "NKI-R10" not in ids(nkisim.run(nki.jit(kernel), array(4, 4), False, target=target))


@pytest.mark.parametrize(
    "second",
    [
        "tensor_scalar_reduce",
        "range_select",
        "select_reduce",
        "tensor_scalar_cumulative",
        "activation",
    ],
)
def test_all_that_reduce_on_an_engine_share_its_accumulators(second):
    """A sum kept by one instruction, and another one's between: the Scalar Engine has its own."""
    x = np.abs(array(4, 8)) + 1
    cmd = nisa.reduce_cmd

    def body(x):
        t, total = nl.load(x), nl.ndarray((4, 1), dtype=nl.float32)
        other, top = nl.ndarray((4, 8), dtype=nl.float32), nl.ndarray((4, 1), dtype=nl.float32)
        nisa.tensor_scalar_reduce(other, t, nl.multiply, 1.0, nl.add)
        if second == "tensor_scalar_reduce":
            nisa.tensor_scalar_reduce(other, t, nl.multiply, 0.0, nl.add, top)
        elif second == "range_select":
            low, high = (nl.full((4, 1), v, nl.float32) for v in (0.0, 8.0))
            nisa.range_select(other, t, nl.greater_equal, nl.less, low, high, reduce_res=top)
        elif second == "select_reduce":
            nisa.select_reduce(
                other,
                nl.full((4, 8), 1.0, nl.float32),
                t,
                0.0,
                reduce_res=top,
                reduce_cmd=cmd.reset_reduce,
            )
        elif second == "tensor_scalar_cumulative":
            nisa.tensor_scalar_cumulative(other, t, nl.multiply, nl.add, 0.0)
        else:
            nisa.activation(
                other, nl.copy, t, reduce_op=nl.add, reduce_res=top, reduce_cmd=cmd.reset_reduce
            )
        nisa.tensor_scalar_reduce(other, t, nl.multiply, 0.0, nl.add, total, reduce_cmd=cmd.reduce)
        return total

    kept = np.allclose(through(body, x)[:, 0], x.sum(1), rtol=1e-4)
    assert kept == (second == "activation")


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_8_bit_floats_end_where_their_dtype_says_and_are_taken_for_another(target):
    x = np.array([[300.0, -448.0, 240.0, 1.0]] * 4, np.float32)

    @nki.jit
    def kernel(x, wide):
        dtype = nl.float8_e4m3fn if wide else nl.float8_e4m3
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        t, back = nl.ndarray(x.shape, dtype=dtype), nl.ndarray(x.shape, dtype=nl.float32)
        nisa.tensor_copy(t, nl.load(x))
        nisa.tensor_copy(back, t)
        nisa.dma_copy(out, back)
        return out

    wide, narrow = (nkisim.run(kernel, x, w, target=target) for w in (True, False))
    assert wide.outputs[0].tolist() == [288.0, -448.0, 240.0, 1.0]
    assert np.isinf(narrow.outputs[0, :2]).all() and narrow.outputs[0, 2] == 240
    assert ("NKI-R08" in ids(wide)) == (target == "trn2") and "NKI-R08" not in ids(narrow)


@pytest.mark.parametrize(
    "shape, dtype, ok",
    [
        ((16, 128), ml_dtypes.bfloat16, True),
        ((16, 64), ml_dtypes.bfloat16, True),
        ((4, 8, 16), ml_dtypes.bfloat16, True),
        ((32, 128), ml_dtypes.bfloat16, False),
        ((16, 128), np.float32, False),
        ((16, 8, 128), ml_dtypes.bfloat16, True),
        ((3, 16, 16), ml_dtypes.bfloat16, False),
    ],
)
def test_a_transpose_by_hardware_descriptors_has_its_shapes(shape, dtype, ok):
    def body(x):
        t = nl.ndarray(shape[::-1], dtype=x.dtype)
        nisa.dma_transpose(t, x, dge_mode=nisa.dge_mode.hwdge)
        return t

    x = np.ones(shape, dtype)
    if ok:
        assert (through(body, x) == 1).all()
    else:
        refused("NKI-S03", body, x, text="hwdge")


def test_garbage_times_zero_is_garbage():
    def kernel(x, filled):
        t = nl.ndarray((4, 8), dtype=nl.float32)
        if filled:
            nisa.memset(t, 5.0)
        nisa.dma_copy(dst=t[:, 0:4], src=x)
        nisa.tensor_scalar(t, t, nl.multiply, 0.0)
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t)
        return out

    assert "NKI-U02" in ids(nkisim.run(nki.jit(kernel), array(4, 4), False))
    assert "NKI-U02" not in ids(nkisim.run(nki.jit(kernel), array(4, 4), True))


def test_a_partition_of_trn2_has_212984_bytes():
    def body(x, elements):
        t = nl.ndarray((4, elements), dtype=nl.uint8)
        for begin in range(0, elements, 65_536):  # as many as an instruction takes
            nisa.memset(t[:, begin : min(begin + 65_536, elements)], 1)
        return t[:, 0:4]

    x = array(4, 4)
    assert (through(lambda x: body(x, 212_984), x) == 1).all()
    refused("NKI-M04", lambda x: body(x, 212_985), x)


@pytest.mark.parametrize("what", ["copy", "reduction"])
def test_work_on_one_partition_at_a_time_is_refused(what):
    """Twins: a row after the other, and all of them at once."""

    def body(x, rows):
        t, out = nl.load(x), nl.ndarray((16, 8), dtype=nl.float32)
        sums = nl.ndarray((16, 1), dtype=nl.float32)
        for r in range(0, 16, rows):
            if what == "copy":
                nisa.tensor_copy(out[r : r + rows], t[r : r + rows])
            else:
                nisa.tensor_reduce(sums[r : r + rows], nl.add, t[r : r + rows], 1)
        return out if what == "copy" else sums

    x = array(16, 8)
    want = x if what == "copy" else x.sum(1, keepdims=True)
    np.testing.assert_allclose(through(lambda x: body(x, 16), x), want, rtol=1e-5)
    refused("NKI-P04", lambda x: body(x, 1), x)
