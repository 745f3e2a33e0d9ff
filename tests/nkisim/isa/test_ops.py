"""Operator tables: complete, correct, and found under every name that kernels use."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.chip import ops
from nkisim.errors import NkiError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# The two tables of the documentation.
ISA_ALU = {
    *"invert bitwise_and bitwise_or bitwise_xor left_shift right_shift add subtract".split(),
    *"multiply maximum minimum equal not_equal greater_equal greater less_equal less".split(),
    *"logical_not logical_and logical_or logical_xor rsqrt reciprocal abs power".split(),
}
BITS = {*"invert bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()}
REDUCIBLE = {
    *"bitwise_and bitwise_or bitwise_xor add subtract multiply maximum minimum logical_and".split(),
    *"logical_or logical_xor".split(),
}
ISA_ACTIVATIONS = {
    *"copy square sigmoid relu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid".split(),
    *"gelu_apprx_sigmoid_dx silu silu_dx tanh softplus mish erf erf_dx exp log sin".split(),
    *"arctan sqrt rsqrt reciprocal sign abs".split(),
}


class NlFunction:
    """Stands for a function of the simulator's `nl`: it only carries the operator's name."""

    def __init__(self, nki_op: str):
        self.nki_op = nki_op


MAXIMUM = ("max", "maximum")


def test_tables_hold_what_is_documented():
    newer = {"abs_max", "abs_min"}  # of the package nki
    assert {op.name for op in ops.ALU.values() if op.isa} == ISA_ALU | newer
    assert {op.name for op in ops.ALU.values() if op.reducible} == REDUCIBLE
    assert {op.name for op in ops.ACTIVATIONS.values() if op.isa} == ISA_ACTIVATIONS
    assert {op.name for op in ops.ALU.values() if op.kind == "bitvec"} == BITS


class TestResolve:
    @pytest.mark.parametrize(
        "op", [np.max, np.amax, np.maximum, *map(NlFunction, MAXIMUM), *MAXIMUM, "amax"]
    )
    def test_all_names_of_maximum(self, op):
        assert ops.resolve_alu(op) is ops.ALU["maximum"]

    @pytest.mark.parametrize("op", [np.min, np.amin, np.minimum, NlFunction("min"), "minimum"])
    def test_all_names_of_minimum(self, op):
        assert ops.resolve_alu(op) is ops.ALU["minimum"]

    @pytest.mark.parametrize("name", sorted(ops.ALU))
    def test_alu_by_name_by_nl_and_by_itself(self, name):
        op = ops.ALU[name]
        assert ops.resolve_alu(name) is ops.resolve_alu(NlFunction(name)) is ops.resolve_alu(op)

    @pytest.mark.parametrize(
        "op, name",
        [
            (np.add, "add"),
            (np.subtract, "subtract"),
            (np.multiply, "multiply"),
            (np.abs, "abs"),
            (np.absolute, "abs"),
            (np.less, "less"),
            (np.greater_equal, "greater_equal"),
            (np.invert, "invert"),
            (np.bitwise_not, "invert"),
            (np.power, "power"),
            (np.divide, "divide"),
            (np.true_divide, "divide"),
            (np.mod, "mod"),
            (np.remainder, "mod"),
            (np.right_shift, "right_shift"),
            (np.logical_not, "logical_not"),
        ],
    )
    def test_alu_by_numpy_function(self, op, name):
        assert ops.resolve_alu(op).name == name

    @pytest.mark.parametrize(
        "op, name",
        [
            (np.copy, "copy"),
            (np.square, "square"),
            (np.exp, "exp"),
            (np.tanh, "tanh"),
            (np.log, "log"),
            (np.sin, "sin"),
            (np.arctan, "arctan"),
            (np.sqrt, "sqrt"),
            (np.reciprocal, "reciprocal"),
            (np.sign, "sign"),
            (np.abs, "abs"),
            (NlFunction("gelu"), "gelu"),
            ("identity", "copy"),
        ],
    )
    def test_activation(self, op, name):
        assert ops.resolve_act(op) is ops.resolve_unary(op) is ops.ACTIVATIONS[name]

    @pytest.mark.parametrize("name", ["cos", "tan", "ceil", "floor", "trunc", "negative", "invert"])
    def test_some_functions_exist_in_nl_but_not_as_activation(self, name):
        assert ops.resolve_unary(name).name == name
        with pytest.raises(NkiError):
            ops.resolve_act(name)

    @pytest.mark.parametrize(
        "resolve, op, hint",
        [
            (ops.resolve_alu, "multipy", "nl.multiply"),
            (ops.resolve_alu, np.mean, "nl.add"),
            (ops.resolve_alu, NlFunction("product"), "nl.multiply"),
            (ops.resolve_act, "gelu_tanh", "nl."),
            (ops.resolve_alu, 3, "nl.add"),
            (ops.resolve_alu, [np.add], "nl.add"),
            (ops.resolve_alu, None, "nl.add"),
            (ops.resolve_alu, "maxx", "nl.maximum"),
            (ops.resolve_act, np.identity, "nl."),
            (ops.resolve_alu, np.exp, "nl."),
            (ops.resolve_alu, NlFunction("softmax"), "nl."),
        ],
    )
    def test_unknown_operator_gets_a_hint(self, resolve, op, hint):
        with pytest.raises(NkiError) as caught:
            resolve(op)
        assert caught.value.id == "NKI-E11" and hint in caught.value.hint


X = np.array([[-2.5, -1, -0.0, 0.0], [0.5, 1, 3, 7.25]], np.float32)
Y = np.array([[1.5, -1, 2, 0], [4, 1, -3, 2]], np.float32)


class TestAlu:
    @pytest.mark.parametrize("name", sorted(n for n, op in ops.ALU.items() if op.kind == "arith"))
    def test_result_is_float32_and_out_may_be_an_operand(self, name):
        fn = ops.ALU[name].fn
        fresh = fn(X, Y)
        assert fresh.dtype == np.float32 and fresh.shape == X.shape
        for position in (0, 1):
            operands = [X.copy(), Y.copy()]
            out = operands[position]
            assert fn(*operands, out=out) is out
            np.testing.assert_array_equal(out, fresh)

    @pytest.mark.parametrize(
        "name, expected",
        [
            ("greater_equal", [[0, 1, 0, 1], [0, 1, 1, 1]]),
            ("logical_and", [[1, 1, 0, 0], [1, 1, 1, 1]]),
            ("logical_xor", [[0, 0, 1, 0], [0, 0, 0, 0]]),
            ("logical_not", [[0, 0, 1, 1], [0, 0, 0, 0]]),
            ("not_equal", [[1, 0, 1, 0], [1, 0, 1, 1]]),
        ],
    )
    def test_truth_is_one_and_zero(self, name, expected):
        np.testing.assert_array_equal(ops.ALU[name].fn(X, Y), expected)

    def test_unary_operators_ignore_the_operand(self):
        for op in ops.ALU.values():
            if op.unary:
                x = np.array([1, 4], np.int32 if op.kind == "bitvec" else np.float32)
                np.testing.assert_array_equal(op.fn(x, 0), op.fn(x, 5))

    def test_mod_takes_the_divisors_sign_and_fmod_the_dividends(self):
        a, b = np.float32([-7, 7, -7]), np.float32([3, -3, -3])
        assert ops.ALU["mod"].fn(a, b).tolist() == [2, -2, -1]
        assert ops.ALU["fmod"].fn(a, b).tolist() == [-1, 1, -1]

    @given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 40))
    def test_shifts_move_raw_bits_and_fill_with_zeros(self, value, by):
        a, b = np.array([value], np.int32), np.array([by], np.int32)
        right = (value % 2**32) >> by
        left = (value << by) % 2**32
        assert int(ops.ALU["right_shift"].fn(a, b)[0]) % 2**32 == right
        assert int(ops.ALU["left_shift"].fn(a, b)[0]) % 2**32 == left
        out = np.empty_like(a)
        assert ops.ALU["left_shift"].fn(a, b, out=out) is out and int(out[0]) % 2**32 == left

    @pytest.mark.parametrize(
        "value, dtype, expected",
        [
            (0xFFFFFFFF, "int32", -1),
            (0xFF, "int8", -1),
            (0x1FF, "uint8", 255),
            (-1, "uint16", 65535),
            (5, "int32", 5),
            (1, "bool", 1),
        ],
    )
    def test_constants_as_bits(self, value, dtype, expected):
        assert ops.bits(value, np.dtype(dtype)) == expected

    def test_ufunc_is_the_same_operator(self):
        for op in ops.ALU.values():
            if op.ufunc is not None and op.ufunc.nin == 2:
                a = Y.astype(np.int32) if op.kind == "bitvec" else X
                np.testing.assert_array_equal(op.ufunc(a, a), op.fn(a, a))


def exact(name: str, x: float) -> float:
    """Compute an activation function with the standard library, as its definition reads."""

    def cdf(v: float) -> float:
        return math.erfc(-v / math.sqrt(2)) / 2

    def density(v: float) -> float:
        return math.exp(-v * v / 2) / math.sqrt(2 * math.pi)

    def sigmoid(v: float) -> float:
        return 1 / (1 + math.exp(-v)) if v > -700 else 0.0

    def softplus(v: float) -> float:
        return max(v, 0) + math.log1p(math.exp(-abs(v)))

    return {
        "copy": lambda: x,
        "square": lambda: x * x,
        "sigmoid": lambda: sigmoid(x),
        "relu": lambda: max(x, 0.0),
        "gelu": lambda: x * cdf(x),
        "gelu_dx": lambda: cdf(x) + x * density(x),
        "gelu_apprx_tanh": lambda: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
        "gelu_apprx_sigmoid": lambda: x * sigmoid(1.702 * x),
        "gelu_apprx_sigmoid_dx": lambda: (
            sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - sigmoid(1.702 * x)))
        ),
        "silu": lambda: x * sigmoid(x),
        "silu_dx": lambda: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
        "tanh": lambda: math.tanh(x),
        "softplus": lambda: softplus(x),
        "mish": lambda: x * math.tanh(softplus(x)),
        "erf": lambda: math.erf(x),
        "erf_dx": lambda: 2 / math.sqrt(math.pi) * math.exp(-x * x),
        "exp": lambda: math.exp(x),
        "sign": lambda: float((x > 0) - (x < 0)),
        "abs": lambda: abs(x),
        "log": lambda: math.log(x),
        "sin": lambda: math.sin(x),
        "reduced_angle": lambda: math.remainder(x, 2 * math.pi),
        "arctan": lambda: math.atan(x),
        "sqrt": lambda: math.sqrt(x),
        "rsqrt": lambda: 1 / math.sqrt(x),
        "reciprocal": lambda: 1 / x,
        "cos": lambda: math.cos(x),
        "tan": lambda: math.tan(x),
        "ceil": lambda: math.ceil(x),
        "floor": lambda: math.floor(x),
        "trunc": lambda: math.trunc(x),
        "negative": lambda: -x,
        "logical_not": lambda: float(x == 0),
    }[name]()


NUMERIC = sorted(set(ops.ACTIVATIONS) - {"invert"})


class TestActivations:
    @pytest.mark.parametrize("name", NUMERIC)
    def test_accurate_to_a_few_units_in_the_last_place(self, name):
        op = ops.ACTIVATIONS[name]
        low = {"log": 1e-3, "sqrt": 0.0, "rsqrt": 1e-3, "reciprocal": 1e-3}.get(name, -12)
        x = np.linspace(low, 12, 4001, dtype=np.float32)
        expected = np.array([exact(name, float(v)) for v in x])
        # Near a zero crossing of a derivative the float32 result cannot do better than this.
        np.testing.assert_allclose(op.fn(x), expected, rtol=3e-7, atol=1e-9)

    @pytest.mark.parametrize("name", NUMERIC)
    def test_out_may_be_the_input(self, name):
        x = np.linspace(0.25, 3, 12, dtype=np.float32).reshape(2, 6)
        fresh = ops.ACTIVATIONS[name].fn(x)
        assert fresh.dtype == np.float32
        out = x.copy()
        assert ops.ACTIVATIONS[name].fn(out, out=out) is out
        np.testing.assert_array_equal(out, fresh)

    @pytest.mark.parametrize(
        "name, at_minus_inf, at_inf",
        [
            ("sigmoid", 0, 1),
            ("relu", 0, np.inf),
            ("gelu", 0, np.inf),
            ("gelu_dx", 0, 1),
            ("gelu_apprx_tanh", 0, np.inf),
            ("gelu_apprx_sigmoid", 0, np.inf),
            ("silu", 0, np.inf),
            ("gelu_apprx_sigmoid_dx", 0, 1),
            ("silu_dx", 0, 1),
            ("tanh", -1, 1),
            ("softplus", 0, np.inf),
            ("mish", 0, np.inf),
            ("erf", -1, 1),
            ("erf_dx", 0, 0),
            ("exp", 0, np.inf),
        ],
    )
    def test_limits_and_nan(self, name, at_minus_inf, at_inf):
        x = np.array([-np.inf, -3e38, 3e38, np.inf, np.nan], np.float32)
        got = ops.ACTIVATIONS[name].fn(x)
        assert got[0] == got[1] == at_minus_inf and got[3] == at_inf and np.isnan(got[4])
        assert got[2] == at_inf or np.isclose(got[2], 3e38)

    @given(st.floats(-6, 6, width=32))
    def test_erf_is_odd_and_accurate_relative_to_its_value(self, x):
        got = float(ops.ACTIVATIONS["erf"].fn(np.array([x], np.float32))[0])
        mirror = float(ops.ACTIVATIONS["erf"].fn(np.array([-x], np.float32))[0])
        assert got == -mirror and abs(got) <= 1
        assert math.isclose(got, math.erf(x), rel_tol=1e-7, abs_tol=1e-44)

    def test_gelu_keeps_its_tail(self):
        # 1 + erf(x) computed in float32 would be zero here.
        got = float(ops.ACTIVATIONS["gelu"].fn(np.float32([-7.0]))[0])
        assert math.isclose(got, exact("gelu", -7.0), rel_tol=1e-6) and got != 0

    @pytest.mark.parametrize(
        "name, inside, outside",
        [
            ("log", [2.0**-64, 1, 2.0**64], [0.0, 2.0**65, -1]),
            ("sin", [-3.14, 3.14], [3.2, -4]),
            ("arctan", [1.5], [1.6]),
            ("rsqrt", [1.0], [0.0, -1]),
            ("sqrt", [1.0], [0.0]),
            ("reciprocal", [-1.0, 2.0**-42], [2.0**-43, -(2.0**43), 0.0]),
            ("exp", [1e30, -np.inf, np.inf], []),
        ],
    )
    def test_valid_range(self, name, inside, outside):
        op = ops.ACTIVATIONS[name]
        assert not op.outside(np.float32(inside)).any()
        assert op.outside(np.float32(outside)).all()
