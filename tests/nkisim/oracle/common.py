"""What every oracle needs: dtypes, casts, operators and the result of an instruction.

An oracle is a naive reading of the API reference (Neuron SDK 2.26, nki.isa and "NKI API Common
Fields") in NumPy and loops. Nothing here is taken from the simulator, so that the two can be
compared. An oracle takes the arguments of the public function as NumPy arrays, numbers and names
of operators, with `mask` as an array of bools over the grid that the mask speaks about, and
returns an `Expected` for each operand that is written ("" is the result tile).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

BF16, FP16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3), np.dtype(ml_dtypes.float8_e5m2)
U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)
U16, I16 = np.dtype(np.uint16), np.dtype(np.int16)
U32, I32 = np.dtype(np.uint32), np.dtype(np.int32)
FLOATS = (FP32, BF16, FP16, E4M3, E5M2)
INTS = (U8, I8, U16, I16, U32, I32)
FP32_MIN = np.float32(-3.4028235e38)


@dataclass
class Expected:
    """What an operand holds after an instruction.

    `value` is in the operand's shape and dtype; `written` are the elements that the instruction
    writes: the others keep what they held. `known` are the elements that the documentation says
    something about. `rtol` is the relative error that float32 arithmetic may make.
    """

    value: np.ndarray
    written: np.ndarray
    rtol: float = 0.0
    known: np.ndarray | None = None


def is_float(dtype: np.dtype) -> bool:
    """Return whether a dtype is one of the chip's floats."""
    return dtype in FLOATS


def f32(x: Any) -> np.ndarray:
    """Return values as float32: the engines cast their inputs to float32 (Common Fields)."""
    return np.asarray(x).astype(np.float32)


def cast(x: Any, dtype: Any) -> np.ndarray:
    """Cast through float32: to a float rounded to nearest even, to an integer saturated as well.

    Equal dtypes are copied bit by bit.
    """
    x, dtype = np.asarray(x), np.dtype(dtype)
    if x.dtype == dtype:
        return x.copy()
    x = f32(x)
    if is_float(dtype):
        with np.errstate(over="ignore"):  # to infinity
            return x.astype(dtype)
    limits = np.iinfo(dtype)
    wide = np.rint(x.astype(np.float64))
    return np.clip(
        np.nan_to_num(wide, posinf=np.inf, neginf=-np.inf), limits.min, limits.max
    ).astype(dtype)


_WIDER = {
    frozenset(pair): wide
    for *pair, wide in (
        (BF16, FP16, FP32),
        (E4M3, E5M2, BF16),
        (E4M3, FP16, FP16),
        (E5M2, FP16, FP16),
        (E4M3, BF16, BF16),
        (E5M2, BF16, BF16),
        (U8, I8, I16),
        (U8, U16, U16),
        (U8, I16, I16),
        (U8, U32, U32),
        (U8, I32, I32),
        (I8, I16, I16),
        (I8, U16, I32),
        (I8, I32, I32),
        (I8, U32, FP32),
        (U16, I16, I32),
        (U16, U32, U32),
        (U16, I32, I32),
        (I16, I32, I32),
        (I16, U32, FP32),
        (I32, U32, FP32),
    )
}


def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """Return the dtype that two tiles give ("NKI Type Promotion")."""
    if a == b:
        return a
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    return FP32 if FP32 in (a, b) else _WIDER[frozenset((a, b))]


# -- operators -----------------------------------------------------------------------------------

BITVEC = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "invert")

_ARITH = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": lambda a, b: b if b > a else a,
    "minimum": lambda a, b: b if b < a else a,
    "equal": lambda a, b: float(a == b),
    "not_equal": lambda a, b: float(a != b),
    "greater": lambda a, b: float(a > b),
    "greater_equal": lambda a, b: float(a >= b),
    "less": lambda a, b: float(a < b),
    "less_equal": lambda a, b: float(a <= b),
    "logical_and": lambda a, b: float(a != 0 and b != 0),
    "logical_or": lambda a, b: float(a != 0 or b != 0),
    "logical_xor": lambda a, b: float((a != 0) != (b != 0)),
    "power": lambda a, b: float(a) ** float(b),
}
_BITS = {
    "bitwise_and": lambda a, b, bits: a & b,
    "bitwise_or": lambda a, b, bits: a | b,
    "bitwise_xor": lambda a, b, bits: a ^ b,
    "left_shift": lambda a, b, bits: a << b,
    "right_shift": lambda a, b, bits: a >> b,  # logical: there is no arithmetic one
}
ALIASES = {"max": "maximum", "min": "minimum"}


def arith(op: str, a: Any, b: Any) -> np.float32:
    """Apply an arithmetic operator to two numbers, in float32."""
    return np.float32(_ARITH[ALIASES.get(op, op)](np.float32(a), np.float32(b)))


def bits(op: str, a: Any, b: Any, dtype: np.dtype) -> np.generic:
    """Apply a bitvec operator to the raw bits of two integers of one dtype."""
    width = dtype.itemsize * 8
    full = (1 << width) - 1
    raw = _BITS[op](int(a) & full, int(b) & full, width) & full
    return np.array(raw, dtype=f"uint{width}").view(dtype)[()]


def binary(op: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Apply an operator element by element: bits of integers, or float32 arithmetic."""
    out = np.empty(x.shape, dtype=x.dtype if op in BITVEC else np.float32)
    for at in np.ndindex(*x.shape):
        out[at] = bits(op, x[at], y[at], x.dtype) if op in BITVEC else arith(op, x[at], y[at])
    return out


def fold(op: str, values: Any, dtype: np.dtype = FP32) -> Any:
    """Reduce a list of numbers with an operator, from the first to the last."""
    if op in BITVEC:
        total = values[0]
        for v in values[1:]:
            total = bits(op, total, v, dtype)
        return total
    if op.startswith("logical"):
        values = [float(v != 0) for v in values]
    total = np.float32(values[0])
    for v in values[1:]:
        total = arith(op, total, v)
    return total


# -- shapes and masks ----------------------------------------------------------------------------


def column(x: Any, like: np.ndarray) -> np.ndarray:
    """Return a number, or a vector of one element a partition, repeated over a tile."""
    x = np.asarray(x)
    if x.ndim:
        x = x.reshape((-1,) + (1,) * (like.ndim - 1))
    return np.broadcast_to(x, like.shape)


def second(first: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two tiles as they meet in an instruction that reads both.

    "The two tiles must have the same partition axis size and the same number of elements per
    partition": they meet in element order, and the result has the first one's shape. Where the
    numbers differ, free dims of size 1 repeat (which the SDK accepts without saying so).
    """
    assert first.shape[0] == other.shape[0]
    if first.size == other.size:
        return first, other.reshape(first.shape)
    rank = max(first.ndim, other.ndim)

    def pad(x):
        return x.reshape(x.shape[:1] + (1,) * (rank - x.ndim) + x.shape[1:])

    a, b = np.broadcast_arrays(pad(first), pad(other))
    return a, b


def selected(x: np.ndarray, mask: np.ndarray, p: int) -> np.ndarray:
    """Return the elements of partition `p` that a mask selects, in element order."""
    return x[p].reshape(-1)[mask[p].reshape(-1)]


def rows(mask: np.ndarray, n: int) -> np.ndarray:
    """Return which elements of (P, n) an instruction writes: the partitions with work."""
    some = mask.reshape(mask.shape[0], -1).any(axis=1)
    return np.repeat(some[:, None], n, axis=1)


def column_of(values: list, mask: np.ndarray, like: np.ndarray, rtol: float = 0.0) -> Expected:
    """Return what a (P, 1) operand holds: values[p] where the mask leaves work in p."""
    written = rows(mask, 1)
    out = np.zeros(written.shape, dtype=np.float32)
    for p, v in enumerate(values):
        if written[p, 0]:
            out[p, 0] = v
    return Expected(cast(out, like.dtype).reshape(like.shape), written.reshape(like.shape), rtol)
