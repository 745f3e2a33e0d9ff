"""Traps of values: dtypes, rounding, masks, reductions and activations.

The tests of the functions themselves are in `test_semantics_*.py`; here they run through kernels.
"""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

BF16 = np.dtype(ml_dtypes.bfloat16)


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def through(function, *arrays, shape=None, dtype=np.float32, **kwargs):
    """Run `function` on the tiles of arrays in a kernel; return what it computes."""

    @nki.jit
    def kernel(*tensors):
        result = function(*[nl.load(t) for t in tensors])
        out = nl.ndarray(shape or result.shape, dtype or result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return nkisim.simulate(kernel, *arrays, **kwargs)


def test_half_products_are_summed_in_float32():
    """NumPy's fp16 @ fp16 rounds every partial sum; the array sums exact products in float32."""
    a = np.full((128, 1), 0.1, np.float16)
    b = np.full((128, 1), 0.3, np.float16)
    out = through(nisa.nc_matmul, a, b)
    want = np.sum(a.astype(np.float32) * b.astype(np.float32))
    np.testing.assert_allclose(out.item(), want, rtol=1e-6)


def test_rounding_happens_at_the_copy():
    """A float32 result rounds once, where it is copied to a narrower tile."""
    a, b = data(128, 8), data(128, 8, seed=1)
    out = through(lambda s, m: nl.copy(nisa.nc_matmul(s, m), dtype=nl.bfloat16), a, b, dtype=BF16)
    exact = through(nisa.nc_matmul, a, b)
    np.testing.assert_array_equal(out, exact.astype(BF16))


def test_sums_keep_the_dtype_and_round_once():
    """NumPy's fp16 sum loses bits on the way; here 512 fp16 values sum in float32, rounded last."""
    x = np.full((4, 512), 0.1, np.float16)
    out = through(lambda t: nl.sum(t, axis=1), x, dtype=None)
    assert out.dtype == np.float16
    np.testing.assert_array_equal(
        out, x.astype(np.float32).sum(1, keepdims=True).astype(np.float16)
    )


@pytest.mark.parametrize(
    "dtype, scalar, want",
    [
        (np.float16, 1.2, np.float32),
        (np.int8, 2, np.int32),
        (np.float16, np.float16(2), np.float16),
        (np.float32, 2, np.float32),
        (np.uint8, True, np.uint8),
    ],
)
def test_python_numbers_are_the_widest(dtype, scalar, want):
    """NumPy lets a Python number adapt to the array; here fp16 * 1.2 is float32."""
    out = through(lambda t: nl.multiply(t, scalar), np.ones((2, 3), dtype), dtype=None)
    assert out.dtype == want


def test_comparisons_are_bytes():
    """A comparison is a tile of 0 and 1 in uint8, not bool."""
    x = data(4, 5)
    out = through(lambda t: t > 0, x, dtype=None)
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(out, (x > 0).astype(np.uint8))


def test_integers_pass_through_float32():
    """The Vector Engine has 24 bits of mantissa: 2**24 + 1 is lost, on GpSimd it is not."""
    x = np.full((1, 1), 2**24 + 1, np.int32)
    lossy = through(
        lambda t: nisa.tensor_scalar(t, nl.add, 0, dtype=nl.int32, engine=nisa.vector_engine),
        x,
        dtype=np.int32,
    )
    exact = through(
        lambda t: nisa.tensor_tensor(t, t, nl.subtract, engine=nisa.gpsimd_engine) + 0 * t,
        x,
        dtype=np.int32,
    )
    assert lossy.item() == 2**24 and exact.item() == 0
    same = through(lambda t: nisa.tensor_scalar(t, nl.bitwise_and, -1), x, dtype=np.int32)
    assert same.item() == 2**24 + 1


def test_casts_round_to_even_and_saturate():
    """NumPy truncates and wraps: 300.0 becomes 44 in uint8, 2.5 becomes 2 and 3.5 becomes 3."""
    x = np.array([[0.5, 1.5, 2.5, 3.5, -0.6, 300, -5, 127.5]], np.float32)
    assert through(lambda t: nl.copy(t, dtype=nl.uint8), x, dtype=np.uint8).tolist() == [
        [0, 2, 2, 4, 0, 255, 0, 128]
    ]
    assert through(lambda t: nl.copy(t, dtype=nl.int8), x, dtype=np.int8).tolist() == [
        [0, 2, 2, 4, -1, 127, -5, 127]
    ]
    big = np.array([[3e9, -3e9]], np.float32)
    assert through(lambda t: nl.copy(t, dtype=nl.int32), big, dtype=np.int32).tolist() == [
        [2**31 - 1, -(2**31)]
    ]


def test_low_precision_is_stored():
    """A simulator that keeps bf16 as float32 hides the rounding that the chip does."""
    x = data(8, 64)
    out = through(lambda t: nl.copy(nl.copy(t, dtype=nl.bfloat16), dtype=nl.float32), x)
    np.testing.assert_array_equal(out, x.astype(BF16).astype(np.float32))
    assert (out != x).any()


def test_fp32_min_as_mask_value():
    """fp32.min down-cast is -inf; exp gives 0, and -inf - -inf gives NaN: keep the max in fp32."""
    x = np.full((1, 4), nl.fp32.min, np.float32)
    assert (through(nl.exp, x) == 0).all()
    narrow = through(lambda t: nl.copy(t, dtype=nl.bfloat16), x)
    assert np.isneginf(narrow).all()
    nan = through(
        lambda t: nl.subtract(nl.copy(t, dtype=nl.float16), nl.copy(t, dtype=nl.float16)), x
    )
    assert np.isnan(nan).all()


def test_indices_count_the_access_pattern():
    """np.argmax of the base tensor is another number: the index counts what the pattern reads."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 1, 8), np.uint32, buffer=nl.shared_hbm)
        t = nl.load(x)
        for i, view in enumerate((t, t[:, 8:24])):
            best = nisa.max8(src=view)
            index = nisa.nc_find_index8(data=view, vals=best)
            assert index.dtype == np.uint32
            nl.store(out[i], index)
        return out

    x = np.zeros((1, 32), np.float32)
    x[0, 10], x[0, 20], x[0, 21] = 5, 3, 3
    out = nkisim.simulate(kernel, x)
    assert out[0, 0, :3].tolist() == [10, 20, 21]  # equal values: successive positions
    assert out[1, 0, :3].tolist() == [2, 12, 13]


def test_vector_operands_cast_silently():
    """A (P, 1) operand in fp16 works with an fp32 tile, and a DMA casts an fp16 bias."""

    @nki.jit
    def kernel(x, bias):
        out = nl.ndarray(x.shape, np.float32, buffer=nl.shared_hbm)
        wide = nl.ndarray((bias.shape[0], 1), np.float32)
        nisa.dma_copy(dst=wide, src=bias)
        t = nisa.tensor_scalar(nl.load(x), np.add, wide)
        nl.store(out, nisa.tensor_scalar(t, np.add, nl.load(bias)))
        return out

    x, bias = data(16, 4), data(16, seed=1).astype(np.float16)
    b = bias.astype(np.float32)[:, None]
    np.testing.assert_array_equal(nkisim.simulate(kernel, x, bias), (x + b) + b)


def test_masks_leave_the_rest_alone():
    """np.where needs a value for the rest; a masked instruction does not touch it."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:64, 0:8]
        t = nl.full(x.shape, 9, np.float32)
        t[...] = nl.load(x, mask=f < 3)
        t[p, f] = nl.exp(t[p, f], mask=(p >= 32) & (f < 3))
        nl.store(out, t)
        return out

    x = data(64, 8)
    want = np.full((64, 8), 9, np.float32)
    want[:, :3] = x[:, :3]
    want[32:, :3] = np.exp(x[32:, :3])
    np.testing.assert_allclose(nkisim.simulate(kernel, x), want, rtol=1e-6)


def test_dtypes_compare_in_every_spelling():
    """a.dtype == nl.float32, np.float32 and np.dtype("float32") all occur; bf16 is ml_dtypes'."""

    @nki.jit
    def kernel(x, y):
        for dtype in (nl.float32, np.float32, np.dtype("float32"), "float32"):
            assert x.dtype == dtype
        assert y.dtype == nl.bfloat16 == ml_dtypes.bfloat16 and y.dtype != nl.float16
        out = nl.ndarray(y.shape, y.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(y))
        return out

    y = data(4, 4).astype(BF16)
    out = nkisim.simulate(kernel, data(4, 4), y)
    assert out.dtype == BF16
    np.testing.assert_array_equal(out, y)


@pytest.mark.parametrize("op", [nl.max, nl.maximum, np.max, np.amax, np.maximum])
def test_two_names_one_op(op):
    """max and maximum are one operator, in the spelling of nl and of NumPy."""
    x = data(4, 9)
    np.testing.assert_array_equal(
        through(lambda t: nisa.tensor_reduce(op, t, axis=1), x), x.max(1, keepdims=True)
    )
    np.testing.assert_array_equal(
        through(lambda t: nisa.tensor_scalar(t, op, 0.0), x), np.maximum(x, 0)
    )
