"""Selections and dropout against per-element Python."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nkisim.chip import semantics
from nkisim.chip.dtypes import BFLOAT16, FP32_MIN, cast
from nkisim.chip.ops import ALU

pytestmark = pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
numbers = st.floats(-100, 100, width=16)


class TestSelectReduce:
    @given(
        hnp.arrays(np.uint8, (2, 2, 3), elements=st.integers(0, 2)),
        hnp.arrays(np.float16, (2, 2, 3), elements=numbers),
        st.booleans(),
        st.booleans(),
    )
    def test_like_a_loop(self, predicate, on_true, reverse, per_partition):
        on_false = np.float32([[-1], [-2]]) if per_partition else -1.0
        got = semantics.select_reduce(predicate, on_true, on_false, reverse)
        assert got.dtype == np.float32
        for where in np.ndindex(*got.shape):
            other = on_false[where[0], 0] if per_partition else on_false
            chosen = bool(predicate[where]) != reverse
            assert got[where] == (on_true[where] if chosen else other)


COMPARE = {
    "equal": lambda a, b: a == b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}


class TestRangeSelect:
    @given(
        hnp.arrays(np.float32, (2, 2, 4), elements=numbers),
        st.sampled_from(sorted(COMPARE)),
        st.sampled_from(sorted(COMPARE)),
        st.integers(0, 5),
        st.lists(st.integers(-2, 12).map(float), min_size=4, max_size=4),
    )
    def test_like_a_loop(self, data, comp0, comp1, start, bounds):
        bound0, bound1 = np.float32(bounds).reshape(2, 2, 1)
        got = semantics.range_select(data, ALU[comp0], ALU[comp1], bound0, bound1, start)
        assert got.dtype == np.float32 and got.shape == data.shape
        for p in range(2):
            for i, (value, result) in enumerate(zip(data[p].reshape(-1), got[p].reshape(-1))):
                inside = COMPARE[comp0](start + i, bound0[p, 0]) and COMPARE[comp1](
                    start + i, bound1[p, 0]
                )
                assert result == (value if inside else FP32_MIN)

    def test_down_cast_of_the_fill_value_is_minus_infinity(self):
        # A whole row outside the range, kept in 16 bits, subtracts to NaN.
        out = semantics.range_select(
            np.ones((1, 3), np.float32),
            ALU["less"],
            ALU["less"],
            np.float32([[0]]),
            np.float32([[0]]),
        )
        assert cast(out, BFLOAT16).astype(np.float32).tolist() == [[-np.inf] * 3]
        assert np.exp(out - out.max()).tolist() == [[1, 1, 1]]


class TestDropout:
    def test_probability_is_that_of_dropping_and_nothing_is_rescaled(self):
        data = np.full((128, 512), 3, np.float32)
        got = semantics.dropout(data, 0.2, np.random.default_rng(0))
        assert set(np.unique(got)) == {0.0, 3.0}
        assert abs((got == 0).mean() - 0.2) < 0.01

    def test_probability_per_partition(self):
        prob = np.float32([[0], [1], [0.5]])
        got = semantics.dropout(np.ones((3, 20, 50), np.float32), prob, np.random.default_rng(0))
        dropped = (got == 0).mean(axis=(1, 2))
        assert dropped[0] == 0 and dropped[1] == 1 and abs(dropped[2] - 0.5) < 0.05

    @pytest.mark.parametrize("dtype", [np.int32, ml_dtypes.bfloat16, np.float16])
    def test_kept_elements_keep_their_bits(self, dtype):
        data = np.full((2, 64), 2**24 + 1 if dtype is np.int32 else 1.5).astype(dtype)
        got = semantics.dropout(data, 0.5, np.random.default_rng(0))
        assert got.dtype == data.dtype and set(got.reshape(-1).tolist()) == {0, data[0, 0].item()}
