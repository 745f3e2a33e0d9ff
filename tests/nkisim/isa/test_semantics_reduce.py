"""Reductions and batch-norm statistics against per-element Python."""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nkisim.chip import semantics
from nkisim.chip.ops import ALU
from nkisim.errors import NkiError

# Small integers: every float32 sum and product below is exact, so equality can be demanded.
small = st.integers(-3, 3).map(float)
tiles = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=4, max_side=4), elements=small)
PYTHON = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "logical_and": lambda a, b: float(bool(a and b)),
    "logical_or": lambda a, b: float(bool(a or b)),
    "logical_xor": lambda a, b: float(bool(a) != bool(b)),
}


class TestReduce:
    @given(tiles, st.sampled_from(sorted(PYTHON)), st.data(), st.booleans())
    def test_like_python_over_any_free_axes(self, data, name, draw, negate):
        free = range(1, data.ndim)
        axes = tuple(draw.draw(st.sets(st.sampled_from(list(free)), min_size=1)))
        got = semantics.reduce(ALU[name], data, axes, keepdims=True, negate=negate)
        kept_shape = tuple(1 if k in axes else n for k, n in enumerate(data.shape))
        assert got.shape == kept_shape and got.dtype == np.float32
        for where in np.ndindex(*kept_shape):
            index = tuple(slice(None) if k in axes else w for k, w in enumerate(where))
            values = [float(v) for v in data[index].reshape(-1)]
            # one value is its own fold, but a logical fold gives a truth value
            expected = functools.reduce(PYTHON[name], values)
            if name.startswith("logical") and len(values) == 1:
                expected = float(bool(expected))
            assert got[where] == (-expected if negate else expected)

    @pytest.mark.parametrize(
        "shape, axes, expected",
        [
            ((4, 8), [1], (4, 1)),  # all free axes gone: one free dimension stays
            ((4, 8), 1, (4, 1)),
            ((4, 8), -1, (4, 1)),
            ((4, 3, 5), 2, (4, 3)),
            ((4, 3, 5), (1, 2), (4, 1)),
            ((4, 2, 3, 5), [2], (4, 2, 5)),
            ((4, 2, 3, 5, 6), [2, 4], (4, 2, 5)),
            ((1, 7), np.int64(1), (1, 1)),
        ],
    )
    def test_shapes(self, shape, axes, expected):
        assert semantics.reduce(ALU["maximum"], np.zeros(shape, np.float32), axes).shape == expected

    def test_sums_16_bit_values_in_float32(self):
        # One rounding at the end. Adding in bfloat16 would stop at 256.
        ones = np.ones((2, 512), ml_dtypes.bfloat16)
        assert semantics.reduce(ALU["add"], ones, 1).tolist() == [[512.0], [512.0]]

    def test_integers_lose_bits_beyond_float32(self):
        # Arithmetic on int32 goes through float32 in the Vector Engine.
        big = np.array([[2**24, 1]], np.int32)
        assert semantics.reduce(ALU["add"], big, 1).tolist() == [[2.0**24]]

    def test_bitvec_keeps_every_bit_and_ignores_negate(self):
        data = np.array([[0x7F0F00FF, 0x0F0FFFFF]], np.int32)
        got = semantics.reduce(ALU["bitwise_and"], data, 1, negate=True)
        assert got.dtype == np.int32 and got.tolist() == [[0x0F0F00FF]]

    @pytest.mark.parametrize("name", ["less", "abs", "power", "left_shift", "divide"])
    def test_refuses_operators_that_do_not_reduce(self, name):
        with pytest.raises(NkiError) as caught:
            semantics.reduce(ALU[name], np.ones((2, 2), np.float32), 1)
        assert caught.value.id == "NKI-E06" and name in caught.value.given


class TestAccumulate:
    @given(
        hnp.arrays(np.float32, (2, 3, 2), elements=small),
        st.sampled_from(["add", "subtract", "multiply", "maximum", "minimum"]),
    )
    def test_two_calls_are_one_long_call(self, data, name):
        op = ALU[name]
        state = semantics.accumulate(op, data[:, :2])
        got = semantics.accumulate(op, data[:, 2:], state)
        assert got.shape == (2, 1)
        np.testing.assert_array_equal(got, semantics.reduce(op, data.reshape(2, 6), 1))


class TestPartitionReduce:
    @given(tiles, st.sampled_from(["add", "maximum"]))
    def test_like_python(self, data, name):
        got = semantics.partition_reduce(ALU[name], data)
        assert got.shape == (1, *data.shape[1:])
        for where in np.ndindex(*data.shape[1:]):
            column = [float(data[(p, *where)]) for p in range(data.shape[0])]
            assert got[(0, *where)] == functools.reduce(PYTHON[name], column)


class TestBatchNorm:
    def test_hand_checked(self):
        # Even positions 1, 3, 5 and odd positions 2, 6 are counted apart.
        got = semantics.bn_stats(np.float32([[1, 2, 3, 6, 5]]))
        np.testing.assert_allclose(got, [[3, 3, 8, 2, 4, 8]])

    @given(
        hnp.arrays(
            np.float32,
            hnp.array_shapes(min_dims=2, max_dims=3, max_side=9),
            elements=st.floats(-100, 100, width=32),
        ),
        st.integers(1, 9),
    )
    def test_any_split_aggregates_to_mean_and_population_variance(self, data, cut):
        data = data.reshape(data.shape[0], -1)
        parts = [data[:, :cut], data[:, cut:]] if cut < data.shape[1] else [data]
        got = semantics.bn_aggr(np.concatenate([semantics.bn_stats(p) for p in parts], axis=1))
        assert got.shape == (data.shape[0], 2) and got.dtype == np.float32
        for row, (mean, variance) in zip(data, got):
            values = [float(v) for v in row]
            expected = math.fsum(values) / len(values)
            assert math.isclose(mean, expected, rel_tol=1e-5, abs_tol=1e-4)
            spread = math.fsum((v - expected) ** 2 for v in values) / len(values)
            assert math.isclose(variance, spread, rel_tol=1e-4, abs_tol=1e-2)

    def test_free_dimensions_are_flattened(self):
        data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        np.testing.assert_array_equal(
            semantics.bn_stats(data), semantics.bn_stats(data.reshape(2, 12))
        )
