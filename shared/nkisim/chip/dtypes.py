"""Data types of a tensor: which exist, how two of them promote, how values are cast.

A data type is a `np.dtype`. tfloat32 (8 exponent bits, 10 mantissa bits, 4 bytes) is
`np.dtype("V4")`, as in the SDK, so that it is distinct from float32; its values live in float32
arrays that `cast` has rounded: see `storage`. Engines compute in float32, so every cast between
different types passes through float32.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import NkiError
from . import half

BOOL = np.dtype(np.bool_)
UINT8, INT8 = np.dtype(np.uint8), np.dtype(np.int8)
UINT16, INT16 = np.dtype(np.uint16), np.dtype(np.int16)
UINT32, INT32 = np.dtype(np.uint32), np.dtype(np.int32)
FLOAT8_E4M3 = np.dtype(ml_dtypes.float8_e4m3)  # the IEEE-like variant: has infinities, max 240
FLOAT8_E5M2 = np.dtype(ml_dtypes.float8_e5m2)
FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
TFLOAT32, FLOAT32 = np.dtype("V4"), np.dtype(np.float32)

# of the package nki: OCP's 8-bit float without infinities, the scale of the microscaling formats,
# and packs of four of their values
FLOAT8_E4M3FN = np.dtype(ml_dtypes.float8_e4m3fn)
FLOAT8_E8M0FNU = np.dtype(ml_dtypes.float8_e8m0fnu)
FLOAT8_E4M3FN_X4 = np.dtype([("float8_e4m3fn_x4", "u4")])
FLOAT8_E5M2_X4 = np.dtype([("float8_e5m2_x4", "u4")])
FLOAT4_E2M1FN_X4 = np.dtype([("float4_e2m1fn_x4", "u2")])
PACKED = frozenset((FLOAT8_E4M3FN_X4, FLOAT8_E5M2_X4, FLOAT4_E2M1FN_X4))
# The dtypes of `nki.language` are names. NumPy knows the others; as on a Neuron machine, it makes
# arrays of these as well: np.zeros(shape, dtype=nl.float8_e4m3fn_x4).
np.sctypeDict.update({dtype.names[0]: dtype for dtype in PACKED if dtype.names})  # type: ignore[misc]

FP32_MIN = np.finfo(np.float32).min  # nl.fp32.min, bit pattern 0xFF7FFFFF

_NAMES: dict[np.dtype, str] = {
    BOOL: "bool",
    UINT8: "uint8",
    INT8: "int8",
    UINT16: "uint16",
    INT16: "int16",
    UINT32: "uint32",
    INT32: "int32",
    FLOAT8_E4M3: "float8_e4m3",
    FLOAT8_E5M2: "float8_e5m2",
    FLOAT16: "float16",
    BFLOAT16: "bfloat16",
    TFLOAT32: "tfloat32",
    FLOAT32: "float32",
}
SUPPORTED: tuple[np.dtype, ...] = tuple(_NAMES)
NEWER: dict[np.dtype, str] = {
    FLOAT8_E4M3FN: "float8_e4m3fn",
    FLOAT8_E8M0FNU: "float8_e8m0fnu",
    FLOAT8_E4M3FN_X4: "float8_e4m3fn_x4",
    FLOAT8_E5M2_X4: "float8_e5m2_x4",
    FLOAT4_E2M1FN_X4: "float4_e2m1fn_x4",
}
_FLOATS = frozenset(
    (FLOAT8_E4M3FN, FLOAT8_E8M0FNU, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, BFLOAT16, TFLOAT32, FLOAT32)
)

# Every spelling that is found without asking NumPy: dtypes, their scalar types, their names.
_KNOWN: dict[Any, np.dtype] = {
    spelling: dtype for dtype, text in _NAMES.items() for spelling in (dtype, dtype.type, text)
}
del _KNOWN[np.void]  # any raw-bytes dtype has this type, only "V4" is tfloat32
_KNOWN.update({bool: BOOL, "bool_": BOOL})
_KNOWN.update((spelling, dtype) for dtype, text in NEWER.items() for spelling in (dtype, text))
_KNOWN.update({ml_dtypes.float8_e4m3fn: FLOAT8_E4M3FN, ml_dtypes.float8_e8m0fnu: FLOAT8_E8M0FNU})


#: how other libraries call the data types
_OTHER_LIBRARIES = {
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "single": "float32",
    "tf32": "tfloat32",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "int": "int32",
    "i32": "int32",
    "s32": "int32",
    "long": "int32",
    "u32": "uint32",
    "i16": "int16",
    "u16": "uint16",
    "short": "int16",
    "i8": "int8",
    "u8": "uint8",
    "char": "int8",
    "byte": "uint8",
    "fp8": "float8_e4m3",
    "float8": "float8_e4m3",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int32": "int32",
    "int64": "int32",
    "float64": "float32",
    "double": "float32",
}


def normalize(dtype: Any) -> np.dtype:
    """Return the tensor dtype that a spelling means: NumPy or ml_dtypes type, dtype or name.

    Raises NkiError NKI-D01 for a 64-bit type, NKI-D02 for anything else that the chip has not.
    """
    try:
        return _KNOWN[dtype]
    except (KeyError, TypeError):  # TypeError: not even hashable
        pass
    try:
        own = getattr(dtype, "dtype", None)  # of a scalar type of JAX: jnp.bfloat16
        found = own if isinstance(own, np.dtype) else np.dtype(dtype) if dtype is not None else None
    except TypeError:
        found = None
    if found in _NAMES:
        return found
    if found is not None and found.kind in "iuf" and found.itemsize == 8:
        to = "float32" if found.kind == "f" else "int32"
        raise NkiError(
            id="NKI-D01",
            what=f"There is no {found.name} on the chip.",
            limit="tensor elements have at most 32 bits",
            given=f"dtype {found.name}",
            hint=f"dtype=nl.{to}: Python's own {dtype.__name__} has 64 bits"
            if dtype is float or dtype is int
            else f"Convert on the host before the call: x.astype(np.{to}). "
            f"NumPy makes {found.name} when it is not told otherwise.",
        )
    text = found.name if found is not None else str(dtype)
    hint = "Use one of nl.float32, nl.bfloat16, nl.float16, nl.int32 ..."
    if found is not None and found.newbyteorder("=") in _NAMES:
        hint = f"Its bytes are in the wrong order: convert with x.astype(np.{text})."
    elif meant := _OTHER_LIBRARIES.get(text.lower().removeprefix("torch.")):
        hint = f"dtype=nl.{meant}"
    elif near := difflib.get_close_matches(text.lower(), _NAMES.values(), n=3):
        hint = f"Did you mean {' or '.join(near)}?"
    raise NkiError(
        id="NKI-D02",
        what=f"{text} is not a data type of the chip.",
        limit="data types: " + ", ".join(_NAMES.values()),
        given=f"dtype {dtype!r}",
        hint=hint,
    )


def name(dtype: Any) -> str:
    """Return the name that the documentation uses, such as "bfloat16" or "tfloat32"."""
    dt = normalize(dtype)
    return _NAMES.get(dt) or NEWER[dt]


def is_float(dtype: np.dtype) -> bool:
    """Return whether a normalized dtype is a floating-point type."""
    return dtype in _FLOATS


def is_int(dtype: np.dtype) -> bool:
    """Return whether a normalized dtype is an integer type; bool counts, it is stored as uint8."""
    return dtype not in _FLOATS


def is_int32(dtype: np.dtype) -> bool:
    """Return whether a normalized dtype is int32 or uint32."""
    return dtype in (INT32, UINT32)


def storage(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the NumPy array that holds the values: float32 for tfloat32.

    In a launch with NKI_PRECISE_FP=0 it is float32 for every floating-point type.
    """
    if dtype in _FLOATS and (dtype == TFLOAT32 or not PRECISE.get()):
        return FLOAT32
    return dtype


# --- NKI_PRECISE_FP ------------------------------------------------------------------------------

#: Whether values are rounded to the dtype that they are stored in; set for the time of a launch.
PRECISE: ContextVar[bool] = ContextVar("nkisim_precise", default=True)
PRECISE_VARIABLE = "NKI_PRECISE_FP"


@contextmanager
def precision() -> Iterator[None]:
    """Store values as NKI_PRECISE_FP says: 1 (default) rounded to their dtype, 0 in float32."""
    value = os.environ.get(PRECISE_VARIABLE) or "1"
    if value not in ("0", "1"):
        raise NkiError(
            id="NKI-K13",
            what=f"{PRECISE_VARIABLE} is neither 0 nor 1.",
            given=f"{PRECISE_VARIABLE}={value}",
        )
    token = PRECISE.set(value == "1")
    try:
        yield
    finally:
        PRECISE.reset(token)


# --- promotion -----------------------------------------------------------------------------------

_FLOAT_PAIRS = {  # pairs of different floats without float32, which always wins
    frozenset((FLOAT16, BFLOAT16)): FLOAT32,  # neither holds the other
    frozenset((FLOAT8_E4M3, FLOAT8_E5M2)): BFLOAT16,
    **{
        frozenset((TFLOAT32, small)): TFLOAT32
        for small in (FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)
    },
    **{
        frozenset((half, eighth)): half
        for half in (FLOAT16, BFLOAT16)
        for eighth in (FLOAT8_E4M3, FLOAT8_E5M2)
    },
}


def _promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """Apply the rules of "NKI Type Promotion" (SDK 2.26, NKI API Common Fields)."""
    if a == b:
        return a
    if is_float(a) and is_float(b):
        return FLOAT32 if FLOAT32 in (a, b) else _FLOAT_PAIRS[frozenset((a, b))]
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    wide = np.promote_types(UINT8 if a == BOOL else a, UINT8 if b == BOOL else b)
    return FLOAT32 if wide.itemsize == 8 else wide  # int64 would be needed: not on the chip


_PROMOTED = {(a, b): _promote(a, b) for a in SUPPORTED for b in SUPPORTED}


def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """Return the dtype of a result whose operands have (normalized) dtypes `a` and `b`."""
    return _PROMOTED[a, b]


def of_scalar(value: Any) -> np.dtype:
    """Return the dtype that a Python or NumPy scalar counts as when it meets a tile.

    Python scalars are the widest of their kind: bool uint8, int int32, float float32 (an int that
    needs 32 unsigned bits, such as the mask 0xFFFFFFFF, is uint32). NumPy scalars keep their
    dtype; 64-bit ones count as the Python scalar of equal value.
    """
    if isinstance(value, bool):
        return UINT8
    if isinstance(value, (float, np.float64)):
        return FLOAT32
    if isinstance(value, (int, np.int64, np.uint64)):
        if -(2**31) <= value < 2**31:
            return INT32
        if 0 <= value < 2**32:
            return UINT32
        raise NkiError(
            id="NKI-D03",
            what="An integer constant does not fit in 32 bits.",
            limit="-2147483648 ... 4294967295",
            given=str(value),
            hint="Write it as a float if its exact bits do not matter.",
        )
    return normalize(getattr(value, "dtype", type(value)))


# --- casting -------------------------------------------------------------------------------------


def as_float32(src: np.ndarray) -> np.ndarray:
    """Return `src` as float32 for computing; the same array, not a copy, if it is float32."""
    if src.dtype == FLOAT32:
        return src
    if src.dtype == TFLOAT32:
        return src.view(FLOAT32)
    return widened(src, np.empty(src.shape, FLOAT32))


def widened(src: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the float32 array `out` after copying values of any other dtype into it."""
    if src.dtype == FLOAT16:
        half.widen(src, out)
    else:
        np.copyto(out, src, casting="unsafe")
    return out


def from_host(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert an array of the host, which may be 64 bits wide, as it is before a kernel sees it.

    Integers go to integers without passing through float32, which ends at 2**24; rounding,
    saturation and NaN are those of `cast`.
    """
    if a.dtype.kind in "OSUMmc":  # Python objects, texts, dates, complex numbers
        normalize(a.dtype)  # raises
    if a.dtype.itemsize < 8 or is_float(dtype) or dtype == BOOL:
        small = a.astype(FLOAT32) if a.dtype.itemsize == 8 else a
        return cast(small, dtype, np.empty(a.shape, FLOAT32 if dtype == TFLOAT32 else dtype))
    limits = np.iinfo(dtype)
    whole = (
        np.nan_to_num(np.rint(a), posinf=limits.max, neginf=limits.min)
        if a.dtype.kind == "f"
        else a
    )
    least = 0 if a.dtype.kind == "u" else limits.min
    return np.clip(whole, least, limits.max).astype(dtype)


def cast(src: np.ndarray, dtype: np.dtype, out: np.ndarray | None = None) -> np.ndarray:
    """Convert values to a normalized dtype as the engines and DMA do; return a new array or `out`.

    Equal dtypes are copied bit by bit. Otherwise values pass through float32:
    to float: rounded to nearest, ties to even; to integer: rounded likewise, then saturated, NaN
    becomes 0; to bool: not zero. `out` has dtype `storage(dtype)` (nothing is rounded if that is
    wider) and may be strided. Overflow to infinity raises NumPy's floating-point warnings unless
    the caller has silenced them.
    """
    if out is None:
        out = np.empty(src.shape, storage(dtype))
    if src.dtype == dtype and dtype != TFLOAT32:
        if (
            src.ndim == 2
            and src.size >= _TURNED
            and 0 < src.strides[0] < src.strides[1]
            and src.strides[1] % _COLLIDES == 0
            and out.shape == src.shape
        ):
            _turn(src, out)
        else:
            np.copyto(out, src)
        return out
    if dtype == FLOAT32 and src.dtype == FLOAT16 and src.shape == out.shape:
        return widened(src, out)
    x = as_float32(src)
    if out.dtype == FLOAT16 and x.shape == out.shape:
        half.narrow(x, out)
    elif dtype == TFLOAT32 and PRECISE.get():
        _round_tf32(x, out)
    elif dtype in _FLOATS:
        np.copyto(out, x, casting="unsafe")
        if out.itemsize == 1:
            _say_overflow(x, out)
    elif dtype == BOOL:
        np.not_equal(x, 0, out=out)
    else:
        _to_integer(x, dtype, out)
    return out


_TURNED = 1 << 12  # elements from which on `_turn` is worth it
_COLLIDES = 1 << 9  # bytes: rows a multiple of this apart share few lines of a cache
_TURNED_AT_ONCE = 1 << 17  # bytes of its buffer, which should stay in a cache of the CPU


def _turn(src: np.ndarray, out: np.ndarray) -> None:
    """Copy a matrix whose columns, not rows, are close together, as transposes do.

    Columns a power of two of bytes apart, as in tiles, fall on the same few lines of a cache, which
    then loses them between an element of one and its neighbour in the row. So the columns are first
    copied beside each other, at a distance that is no power of two.
    """
    rows, columns = src.shape
    step = max(1, _TURNED_AT_ONCE // (rows * src.itemsize))
    apart = 64 // src.itemsize
    buffer = np.empty((min(step, columns), rows + apart), src.dtype)[:, :rows]
    for i in range(0, columns, step):
        part = buffer[: columns - i]
        part[...] = src.T[i : i + step]
        out[:, i : i + step] = part.T


def _say_overflow(x: np.ndarray, out: np.ndarray) -> None:
    """Call who asked NumPy to be told of an overflow: casts to 8-bit floats do not say it."""
    callback = np.geterrcall()
    if (
        np.geterr()["over"] == "call"
        and callable(callback)
        and not np.isfinite(out.astype(FLOAT32)).all()
        and np.isfinite(x).all()
    ):
        callback("overflow", 2)


def _to_integer(x: np.ndarray, dtype: np.dtype, out: np.ndarray) -> None:
    """Round float32 `x` to nearest even and saturate it into an integer array."""
    limits = np.iinfo(dtype)
    # The largest 32-bit integers are no float32 numbers, so saturate in double precision there.
    value = np.rint(x, dtype=np.float64 if limits.bits == 32 else FLOAT32)
    np.clip(value, limits.min, limits.max, out=value)
    np.copyto(value, 0, where=np.isnan(value))
    np.copyto(out, value, casting="unsafe")


def _round_tf32(x: np.ndarray, out: np.ndarray) -> None:
    """Round float32 to 10 mantissa bits, ties to even; infinities and NaN stay as they are."""
    bits = x.view(np.uint32) if x.flags.c_contiguous else np.ascontiguousarray(x).view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = (bits + (np.uint32(0x0FFF) + odd)) & np.uint32(0xFFFFE000)
    np.copyto(out, np.where(np.isfinite(x), rounded.view(np.float32), x))
