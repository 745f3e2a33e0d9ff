"""Scans against a per-element Python loop in float32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nkisim.chip import semantics
from nkisim.chip.ops import ALU
from nkisim.errors import NkiError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
values = st.floats(-4, 4, width=16)
binary = st.sampled_from(
    ["add", "subtract", "multiply", "maximum", "minimum", "less", "equal", "logical_and"]
)


def one(name: str, a: np.float32, b: np.float32) -> np.float32:
    """Apply an operator to two float32 numbers."""
    return {
        "add": lambda: a + b,
        "subtract": lambda: a - b,
        "multiply": lambda: a * b,
        "maximum": lambda: max(a, b),
        "minimum": lambda: min(a, b),
        "less": lambda: np.float32(a < b),
        "equal": lambda: np.float32(a == b),
        "logical_and": lambda: np.float32(bool(a) and bool(b)),
    }[name]()


def naive_scan(a, b, initial, op0, op1, reverse0=False, reverse1=False):
    """Follow the formula of the documentation, one element at a time."""
    out = np.empty(a.shape, np.float32).reshape(a.shape[0], -1)
    for p in range(a.shape[0]):
        state = np.float32(initial[p, 0] if isinstance(initial, np.ndarray) else initial)
        for i, (x, y) in enumerate(zip(a[p].reshape(-1), b[p].reshape(-1))):
            state = one(op0, state, x) if reverse0 else one(op0, x, state)
            state = one(op1, y, state) if reverse1 else one(op1, state, y)
            out[p, i] = state
    return out.reshape(a.shape)


class TestTensorTensorScan:
    @given(
        hnp.arrays(np.float32, (2, 2, 2, 3), elements=values),
        binary,
        binary,
        st.booleans(),
        st.booleans(),
        st.booleans(),
        values,
    )
    def test_like_a_loop(self, ab, op0, op1, reverse0, reverse1, per_partition, start):
        # Trap 39: (P, 2, 3) is walked with the last free dimension fastest.
        a, b = ab
        initial = np.float32([[start], [start + 1]]) if per_partition else start
        got = semantics.tensor_tensor_scan(a, b, initial, ALU[op0], ALU[op1], reverse0, reverse1)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, naive_scan(a, b, initial, op0, op1, reverse0, reverse1))

    @given(
        hnp.arrays(np.float32, (2, 7), elements=st.floats(-1e3, 1e3, width=32)),
        binary,
        st.booleans(),
        st.booleans(),
        values,
    )
    def test_multiplying_by_ones_takes_the_fast_path_to_the_same_bits(self, b, op1, r0, r1, start):
        ones = np.ones_like(b)
        got = semantics.tensor_tensor_scan(ones, b, start, ALU["multiply"], ALU[op1], r0, r1)
        np.testing.assert_array_equal(got, naive_scan(ones, b, start, "multiply", op1, r0, r1))

    def test_a_single_other_factor_leaves_the_fast_path(self):
        a = np.float32([[1, 1, 1, 3]])
        got = semantics.tensor_tensor_scan(a, np.ones_like(a), 0, ALU["multiply"], ALU["add"])
        assert got.tolist() == [[1, 2, 3, 10]]

    def test_the_state_is_float32_whatever_the_inputs(self):
        ones = np.ones((1, 3000), np.float16)
        got = semantics.tensor_tensor_scan(ones, ones, 0, ALU["multiply"], ALU["add"])
        assert got[0, -1] == 3000  # float16 stops counting at 2048


CUMULATIVE = ["add", "subtract", "multiply", "maximum", "minimum"]


class TestTensorScalarCumulative:
    @given(
        hnp.arrays(np.float32, (2, 2, 3), elements=values),
        values,
        st.sampled_from(CUMULATIVE),
        values,
    )
    def test_like_a_loop(self, src, imm0, op1, start):
        got, registers = semantics.tensor_scalar_cumulative(src, ALU["add"], imm0, ALU[op1], start)
        expected = naive_scan(
            np.ones_like(src), src + np.float32(imm0), start, "multiply", op1, reverse1=True
        )
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(registers, expected.reshape(2, -1)[:, -1:])

    @pytest.mark.parametrize(
        "op1, expected",
        [
            ("add", [3, 5, 6]),
            ("subtract", [3, -1, 2]),
            ("multiply", [3, 6, 6]),
            ("maximum", [3, 3, 3]),
            ("minimum", [3, 2, 1]),
        ],
    )
    def test_a_reset_starts_from_the_operators_neutral_value(self, op1, expected):
        got, _ = semantics.tensor_scalar_cumulative(
            np.float32([[3, 2, 1]]), ALU["add"], 0.0, ALU[op1]
        )
        assert got.tolist() == [expected]

    def test_operands_per_partition(self):
        got, _ = semantics.tensor_scalar_cumulative(
            np.float32([[1, 1], [1, 1]]),
            ALU["multiply"],
            np.float32([[2], [3]]),
            ALU["add"],
            np.float32([[10], [20]]),
        )
        assert got.tolist() == [[12, 14], [23, 26]]

    def test_refuses_operators_that_do_not_accumulate(self):
        with pytest.raises(NkiError) as caught:
            semantics.tensor_scalar_cumulative(
                np.ones((1, 2), np.float32), ALU["add"], 0, ALU["less"]
            )
        assert caught.value.id == "NKI-E06"
