"""The operators an instruction can be given: ALU operators and activation functions.

Both tables hold one entry per operator with a NumPy implementation on float32 arrays (bitvec ALU
operators: on integer arrays). Every implementation takes `out=`, which may be one of the inputs.
NumPy's floating-point warnings are left to the caller: on the chip overflow and 0/0 are silent,
so the machine runs an instruction under `np.errstate(all="ignore")`.

Sources: "Supported Math Operators" and "Supported Activation Functions" in the NKI API Common
Fields of SDK 2.26.
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import NkiError

Array = np.ndarray
VECTOR, SCALAR, GPSIMD = "vector", "scalar", "gpsimd"


@dataclass(frozen=True)
class AluOp:
    """An operator of tensor_tensor, tensor_scalar, reductions and scans.

    `fn(a, b, out=None)`: a unary operator ignores `b`. Comparisons and logical operators give
    1.0 / 0.0. `ufunc` is the NumPy ufunc with exactly these semantics, for reduce and accumulate.
    """

    name: str
    kind: str  # "bitvec" or "arith"
    fn: Callable[..., Array]
    ufunc: np.ufunc | None = None
    unary: bool = False
    reducible: bool = False
    engines: tuple[str, ...] = (VECTOR,)
    isa: bool = True  # False: an nl function only, which the SDK lowers to other instructions
    gives_truth: bool = False  # 1.0 or 0.0


@dataclass(frozen=True)
class ActOp:
    """A function of one argument: `fn(x, out=None)`, valid for `low <= x <= high`."""

    name: str
    fn: Callable[..., Array]
    low: float = -math.inf
    high: float = math.inf
    by_magnitude: bool = False  # the range is that of |x|
    engines: tuple[str, ...] = (SCALAR,)
    isa: bool = True  # False: an nl function, but no op of nisa.activation

    def outside(self, x: Array) -> Array:
        """Return where the hardware's result would be invalid; NaN counts as inside."""
        value = np.abs(x) if self.by_magnitude else x
        return (value < self.low) | (value > self.high)


# --- ALU operators -------------------------------------------------------------------------------


def _truth(ufunc: np.ufunc) -> Callable[..., Array]:
    """Let a comparing ufunc give 1.0 and 0.0 instead of booleans."""

    def fn(a: Array, b: Array, out: Array | None = None) -> Array:
        return ufunc(a, b).astype(np.float32) if out is None else ufunc(a, b, out=out)

    return fn


def _unary(function: Callable[..., Array]) -> Callable[..., Array]:
    """Let a function of one array take, and ignore, a second operand."""

    def fn(a: Array, b: Any = None, out: Array | None = None) -> Array:
        return function(a, out=out)

    return fn


def _shift(ufunc: np.ufunc) -> Callable[..., Array]:
    """Shift raw bits: zeros come in from both sides, also for signed types."""

    def fn(a: Array, b: Array, out: Array | None = None) -> Array:
        a = np.asarray(a)
        a = a.view(np.uint8) if a.dtype == np.bool_ else a
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        bits = ufunc(a.view(unsigned), np.asarray(b).astype(unsigned)).view(a.dtype)
        if out is None:
            return bits
        np.copyto(out, bits, casting="unsafe")
        return out

    return fn


def bits(value: int, dtype: np.dtype) -> Any:
    """Return an integer constant as the raw bits of an integer dtype: 0xFF as int8 is -1."""
    size = 8 * dtype.itemsize
    unsigned = np.array(int(value) & (2**size - 1), dtype=f"u{dtype.itemsize}")
    return unsigned.view(np.uint8 if dtype == np.bool_ else dtype)[()]


def _logical_not(x: Array, out: Array | None = None) -> Array:
    return np.equal(x, 0).astype(np.float32) if out is None else np.equal(x, 0, out=out)


def _rsqrt(x: Array, out: Array | None = None) -> Array:
    return np.reciprocal(np.sqrt(x, out=out), out=out)


def _arith(name: str, ufunc: np.ufunc, **more: Any) -> AluOp:
    return AluOp(name, "arith", ufunc, ufunc, **more)


def _compare(name: str, ufunc: np.ufunc, **more: Any) -> AluOp:
    return AluOp(name, "arith", _truth(ufunc), gives_truth=True, **more)


def _chosen(first: Array, a: Array, b: Array, out: Array | None) -> Array:
    """Return a where `first`, else b, each with its sign."""
    value = np.where(first, a, b)
    if out is None:
        return value
    np.copyto(out, value, casting="unsafe")
    return out


def _abs_max(a: Array, b: Array, out: Array | None = None) -> Array:
    return _chosen(np.absolute(a) > np.absolute(b), a, b, out)


def _abs_min(a: Array, b: Array, out: Array | None = None) -> Array:
    return _chosen(np.absolute(a) < np.absolute(b), a, b, out)


def _negative(x: Array, out: Array | None = None) -> Array:
    """Return -x; np.negative of NumPy 2.4 is wrong where x and `out` step over 4 elements."""
    return np.multiply(x, np.float32(-1), out=out)


_EVERYWHERE = (VECTOR, GPSIMD, SCALAR)  # the Scalar Engine adds and multiplies from trn2 on

ALU: dict[str, AluOp] = {
    op.name: op
    for op in (
        AluOp("invert", "bitvec", _unary(np.invert), np.invert, unary=True),
        AluOp("bitwise_and", "bitvec", np.bitwise_and, np.bitwise_and, reducible=True),
        AluOp("bitwise_or", "bitvec", np.bitwise_or, np.bitwise_or, reducible=True),
        AluOp("bitwise_xor", "bitvec", np.bitwise_xor, np.bitwise_xor, reducible=True),
        AluOp("left_shift", "bitvec", _shift(np.left_shift)),
        AluOp("right_shift", "bitvec", _shift(np.right_shift)),
        _arith("add", np.add, reducible=True, engines=_EVERYWHERE),
        _arith("subtract", np.subtract, reducible=True),
        _arith("multiply", np.multiply, reducible=True, engines=_EVERYWHERE),
        _arith("maximum", np.maximum, reducible=True),
        _arith("minimum", np.minimum, reducible=True),
        _compare("equal", np.equal),
        _compare("not_equal", np.not_equal),
        _compare("greater_equal", np.greater_equal),
        _compare("greater", np.greater),
        _compare("less_equal", np.less_equal),
        _compare("less", np.less),
        AluOp("abs_max", "arith", _abs_max),
        AluOp("abs_min", "arith", _abs_min),
        AluOp("logical_not", "arith", _unary(_logical_not), unary=True, gives_truth=True),
        _compare("logical_and", np.logical_and, reducible=True),
        _compare("logical_or", np.logical_or, reducible=True),
        _compare("logical_xor", np.logical_xor, reducible=True),
        AluOp("rsqrt", "arith", _unary(_rsqrt), unary=True, engines=(GPSIMD, SCALAR)),
        AluOp(
            "reciprocal",
            "arith",
            _unary(np.reciprocal),
            np.reciprocal,
            unary=True,
            engines=(VECTOR, SCALAR),
        ),
        AluOp(
            "abs", "arith", _unary(np.absolute), np.absolute, unary=True, engines=(VECTOR, SCALAR)
        ),
        _arith("power", np.power, engines=(GPSIMD,)),
        _arith("divide", np.true_divide, isa=False),
        _arith("mod", np.mod, isa=False),  # sign of the divisor
        _arith("fmod", np.fmod, isa=False),  # sign of the dividend
    )
}


#: operators that tensor_scalar and tensor_scalar_reduce have since NKI 0.4, on trn3 by its notes
ALU_V4: dict[str, AluOp] = {
    op.name: op
    for op in (
        AluOp("square", "arith", _unary(np.square), np.square, unary=True),
        AluOp(
            "relu",
            "arith",
            _unary(lambda x, out=None: np.maximum(x, np.float32(0), out=out)),
            unary=True,
        ),
    )
}


# --- activation functions ------------------------------------------------------------------------


def _horner(coefficients: tuple[float, ...], u: Array) -> Array:
    """Evaluate a polynomial, highest power first."""
    value = np.full_like(u, coefficients[0])
    for c in coefficients[1:]:
        value *= u
        value += c
    return value


@cache
def _interpolate(
    function: Callable[[float], float], low: float, high: float, degree: int
) -> tuple[float, ...]:
    """Return the Chebyshev interpolant of `function`, for `_horner` on [low, high] -> [-1, 1]."""
    from numpy.polynomial import chebyshev

    def sample(u: Array) -> Any:
        return [function(low + (v + 1) / 2 * (high - low)) for v in u]

    points = chebyshev.chebinterpolate(sample, degree)
    return tuple(chebyshev.cheb2poly(points)[::-1])


# erf and erfc come from interpolating the standard library's functions in double precision: no
# table of magic coefficients, and relative errors below 1e-7 in float32, tails included.
_ERF_END = 4.0  # erf(4) rounds to 1 in float32
_ERFC_END = 13.0  # erfc(13) = 7e-75; gelu(-18) is long 0 in float32
_ERFC_T = 2 / (2 + _ERFC_END)


def _erf_over_z(z2: float) -> float:
    z = math.sqrt(z2)
    return math.erf(z) / z if z else 2 / math.sqrt(math.pi)


def _log_erfc(t: float) -> float:
    """Return log(erfc(z) exp(z^2) / t) for t = 2 / (2 + z): nearly a straight line."""
    z = 2 / t - 2
    return math.log(math.erfc(z) / t) + z * z


def _erf(x: Array, out: Array | None = None) -> Array:
    """Return erf: an odd function, so z times a polynomial in z^2."""
    z = np.clip(x, -_ERF_END, _ERF_END, dtype=np.float64)
    z *= _horner(_interpolate(_erf_over_z, 0.0, _ERF_END**2, 18), z * z * (2 / _ERF_END**2) - 1)
    return _finish(z, out)


def _erfc(x: Array) -> Array:
    """Return erfc in double precision, accurate relative to its value where x is positive."""
    magnitude = np.abs(x, dtype=np.float64)
    z = np.minimum(magnitude, _ERFC_END)
    t = 2 / (2 + z)
    u = (t - _ERFC_T) * (2 / (1 - _ERFC_T)) - 1
    tail = t * np.exp(_horner(_interpolate(_log_erfc, _ERFC_T, 1.0, 12), u) - z * z)
    tail = np.where(magnitude > _ERFC_END, 0.0, tail)
    return np.where(np.signbit(x), 2 - tail, tail)


def _finish(value: Array, out: Array | None) -> Array:
    """Store a result in `out`, or return it as float32."""
    if out is None:
        return np.asarray(value, dtype=np.float32)
    np.copyto(out, value, casting="unsafe")
    return out


def _exact(formula: Callable[[Array], Array]) -> Callable[..., Array]:
    """Evaluate a formula in double precision and round once, so that ours is the exact function.

    An infinite input gives the limit, which is what the formula gives just below it.
    """

    def fn(x: Array, out: Array | None = None) -> Array:
        x64 = np.asarray(x, dtype=np.float64)
        return _finish(formula(x64), out)

    return fn


_SQRT2, _SQRT2PI = math.sqrt(2), math.sqrt(2 * math.pi)
_GELU_TANH = math.sqrt(2 / math.pi)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _times(x: Array, gate: Array) -> Array:
    """Return x * gate, where a closed gate (0) also stops an infinite x."""
    return np.where(gate == 0, 0.0, x * gate)


def _normal_cdf(x: Array) -> Array:
    return 0.5 * _erfc(-x / _SQRT2)


def _gelu_dx(x: Array) -> Array:
    return _normal_cdf(x) + _times(x, np.exp(-x * x / 2) / _SQRT2PI)


def _silu_dx(x: Array) -> Array:
    gate = _sigmoid(x)
    return gate + _times(x, gate * _sigmoid(-x))


def _gelu_sigmoid_dx(x: Array) -> Array:
    """Return the derivative of x * sigmoid(1.702 x)."""
    gate = _sigmoid(1.702 * x)
    return gate + _times(x, 1.702 * gate * _sigmoid(-1.702 * x))


def _reduced(x: Array) -> Array:
    """Return the angle between -pi and pi (as float32 has them) that has the same sine."""
    half = np.nextafter(np.float32(math.pi), np.float32(0))
    return np.clip(x - 2 * math.pi * np.round(x / (2 * math.pi)), -half, half)


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def _relu(x: Array, out: Array | None = None) -> Array:
    return np.maximum(x, np.float32(0), out=out)


def _copy(x: Array, out: Array | None = None) -> Array:
    return np.positive(x, out=out)


ACTIVATIONS: dict[str, ActOp] = {
    op.name: op
    for op in (
        ActOp("copy", _copy),
        ActOp("square", np.square),
        ActOp("sigmoid", _exact(_sigmoid)),
        ActOp("relu", _relu),
        ActOp("gelu", _exact(lambda x: _times(x, _normal_cdf(x)))),
        ActOp("gelu_dx", _exact(_gelu_dx)),
        ActOp(
            "gelu_apprx_tanh",
            _exact(lambda x: _times(x, _sigmoid(2 * _GELU_TANH * (x + 0.044715 * x**3)))),
        ),
        ActOp("gelu_apprx_sigmoid", _exact(lambda x: _times(x, _sigmoid(1.702 * x)))),
        ActOp("gelu_apprx_sigmoid_dx", _exact(_gelu_sigmoid_dx)),
        ActOp("silu", _exact(lambda x: _times(x, _sigmoid(x)))),
        ActOp("silu_dx", _exact(_silu_dx)),
        ActOp("tanh", np.tanh),
        ActOp("softplus", _exact(_softplus)),
        ActOp("mish", _exact(lambda x: _times(x, np.tanh(_softplus(x))))),
        ActOp("erf", _erf),
        ActOp("erf_dx", _exact(lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x))),
        ActOp("exp", np.exp),
        ActOp("sign", np.sign),
        ActOp("abs", np.absolute),
        ActOp("log", np.log, 2.0**-64, 2.0**64),
        ActOp("sin", np.sin, -math.pi, math.pi),
        ActOp("arctan", np.arctan, -math.pi / 2, math.pi / 2),
        ActOp("sqrt", np.sqrt, 2.0**-116, 2.0**118),
        ActOp("rsqrt", _rsqrt, 2.0**-87, 2.0**97),
        ActOp("reciprocal", np.reciprocal, 2.0**-42, 2.0**42, by_magnitude=True),
        ActOp("cos", np.cos, isa=False),
        ActOp("tan", np.tan, isa=False),
        ActOp("reduced_angle", _exact(_reduced), engines=(VECTOR,), isa=False),  # in nl.sin of nki
        ActOp("ceil", np.ceil, engines=(VECTOR,), isa=False),
        ActOp("floor", np.floor, engines=(VECTOR,), isa=False),
        ActOp("trunc", np.trunc, engines=(VECTOR,), isa=False),
        ActOp("negative", _negative, engines=(VECTOR,), isa=False),
        ActOp("invert", np.invert, engines=(VECTOR,), isa=False),
        ActOp("logical_not", _logical_not, engines=(VECTOR,), isa=False),
    )
}


def elementwise(listed: str) -> tuple[list[str], list[str]]:
    """Return which of the names of `nl` are elementwise functions: of one tile, and of two."""
    listed_names = set(listed.split())
    return (
        [name for name in ACTIVATIONS if name in listed_names],
        [name for name, op in ALU.items() if name in listed_names and not op.unary],
    )


class PythonOperator(NamedTuple):
    """An operator of Python, and the function of `nl` that it is of tiles."""

    symbol: str
    method: str  # __add__ and __radd__, without what is around it
    name: str
    node: type[ast.AST]


ARITHMETIC = (
    PythonOperator("+", "add", "add", ast.Add),
    PythonOperator("-", "sub", "subtract", ast.Sub),
    PythonOperator("*", "mul", "multiply", ast.Mult),
    PythonOperator("/", "truediv", "divide", ast.Div),
    PythonOperator("**", "pow", "power", ast.Pow),
    PythonOperator("%", "mod", "mod", ast.Mod),
    PythonOperator("&", "and", "bitwise_and", ast.BitAnd),
    PythonOperator("|", "or", "bitwise_or", ast.BitOr),
    PythonOperator("^", "xor", "bitwise_xor", ast.BitXor),
    PythonOperator("<<", "lshift", "left_shift", ast.LShift),
    PythonOperator(">>", "rshift", "right_shift", ast.RShift),
)
COMPARISONS = (
    PythonOperator("<", "lt", "less", ast.Lt),
    PythonOperator("<=", "le", "less_equal", ast.LtE),
    PythonOperator(">", "gt", "greater", ast.Gt),
    PythonOperator(">=", "ge", "greater_equal", ast.GtE),
    PythonOperator("==", "eq", "equal", ast.Eq),
    PythonOperator("!=", "ne", "not_equal", ast.NotEq),
)


# --- finding an operator -------------------------------------------------------------------------

_ALIASES = {
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "absolute": "abs",
    "true_divide": "divide",
    "remainder": "mod",
    "bitwise_not": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "pow": "power",
    "identity": "copy",
    "atan": "arctan",
    # as ops of reductions, in sample kernels
    "sum": "add",
    "prod": "multiply",
}

# What people write for an operator that is called otherwise here.
_MEANT = {"product": "multiply", "any": "logical_or", "all": "logical_and", "mean": "add"}

_NUMPY = {
    getattr(np, spelling): _ALIASES.get(spelling, spelling)
    for spelling in (*ALU, *ACTIVATIONS, *_ALIASES)
    if hasattr(np, spelling)
}
del _NUMPY[np.identity]  # the matrix, not the function


#: what arguments of instructions that are operators are called
ARGUMENTS = frozenset(("op", "op0", "op1", "reduce_op", "cmp_op", "comp_op0", "comp_op1"))


def refuse_text(api: str, argument: str, text: str) -> None:
    """Raise for the name of an operator where kernels give the function; others are not known."""
    name = _ALIASES.get(text, text)
    if name in ALU or name in ACTIVATIONS:
        raise NkiError(
            id="NKI-E11",
            what=f"{api}: {argument} is a text",
            limit="an operator is a function of nl or NumPy, not its name",
            given=f"{argument}={text!r}",
            hint=f"the function itself, not called: {argument}=nl.{name}",
        )


def name_of(op: Any) -> str:
    """Return the canonical name for a string, a NumPy function or an nl function, or ""."""
    if not isinstance(op, str):
        named = getattr(op, "nki_op", None)
        if named is None:
            try:
                return _NUMPY.get(op, "")
            except TypeError:  # not hashable
                return ""
        op = named
    return _ALIASES.get(op, op)


def _resolve(op: Any, table: dict[str, Any], what: str) -> Any:
    """Look an operator up in a table or raise NKI-E11 with the nearest names."""
    operator = table.get(name_of(op))
    if operator is not None:
        return operator
    text = op if isinstance(op, str) else getattr(op, "nki_op", getattr(op, "__name__", repr(op)))
    legal = [name for name, row in table.items() if row.isa]
    spellings = {name: name for name in legal} | {
        alias: name for alias, name in (_ALIASES | _MEANT).items() if name in legal
    }
    near = dict.fromkeys(
        spellings[match] for match in difflib.get_close_matches(text, spellings, n=3)
    )
    old, new = _of_the_other_kind(_ALIASES.get(text, text), what)
    if old:
        near = {}
    raise NkiError(
        id="NKI-E11",
        what=f"{text!r} is not {what}.",
        limit="operators: " + ", ".join(legal),
        given=f"op={text}",
        hint="Did you mean " + " or ".join(f"nl.{n}" for n in near) + "?"
        if near
        else old or "Give a function of nl (nl.add) or NumPy (np.add), without calling it.",
        nki_hint=""
        if near
        else new
        or "Give a function of nl, without calling it: op="
        + ("nl.exp." if "activation" in what else "nl.add."),
    )


def _of_the_other_kind(name: str, what: str) -> tuple[str, str]:
    """Return what to write in each dialect for a function of the other kind; "" if it is none."""
    if name in ACTIVATIONS and not ACTIVATIONS[name].isa:
        call = f"nl.{name}(t), a function that makes its instructions"
        return call, call
    if "ALU" in what and name in ACTIVATIONS:
        return (
            f"a function of one operand: nisa.activation(nl.{name}, t), or nl.{name}(t)",
            f"a function of one operand: nisa.activation(dst=y, op=nl.{name}, data=t)",
        )
    if "activation" in what and name in ALU:
        return (
            f"an operator of two: nisa.tensor_tensor(a, b, op=nl.{name}), or nl.{name}(a, b)",
            f"an operator of two: nisa.tensor_tensor(dst=y, data1=a, data2=b, op=nl.{name}), "
            "nisa.tensor_scalar with a number",
        )
    return "", ""


def _remember(resolve: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Cache a resolver by its argument; what cannot be hashed is no operator and fails anew."""
    resolved: dict[Any, Any] = {}

    def resolver(op: Any) -> Any:
        try:
            operator = resolved.get(op)
        except TypeError:  # not hashable
            operator = None
        if operator is None:
            operator = resolved[op] = resolve(op)
        return operator

    resolver.__doc__, resolver.__name__ = resolve.__doc__, resolve.__name__
    return resolver


_ISA_ACTIVATIONS = {name: op for name, op in ACTIVATIONS.items() if op.isa}


@_remember
def resolve_alu(op: Any) -> AluOp:
    """Return the ALU operator that an nl function, NumPy function or name means."""
    return op if isinstance(op, AluOp) else _resolve(op, ALU, "an ALU operator")


def of_v4(op: Any) -> AluOp | None:
    """Return the ALU operator that an nl function means since NKI 0.4, and not before."""
    return ALU_V4.get(name_of(op))


@_remember
def resolve_act(op: Any) -> ActOp:
    """Return the activation function that an nl function, NumPy function or name means."""
    return op if isinstance(op, ActOp) else _resolve(op, _ISA_ACTIVATIONS, "an activation function")


@_remember
def resolve_unary(op: Any) -> ActOp:
    """Return a function of one tile: an activation function or one that only nl offers."""
    return op if isinstance(op, ActOp) else _resolve(op, ACTIVATIONS, "a function of one tile")
