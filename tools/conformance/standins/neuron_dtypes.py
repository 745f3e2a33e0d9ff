"""Stands in for neuron_dtypes, a package of AWS's toolchain with which public tests cast arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nkisim.chip import dtypes
from nkisim.isa import mx

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
float8_e4m3fn_x4 = dtypes.FLOAT8_E4M3FN_X4
float8_e5m2_x4 = dtypes.FLOAT8_E5M2_X4
float4_e2m1fn_x4 = dtypes.FLOAT4_E2M1FN_X4

_PACKED = (float8_e4m3fn_x4, float8_e5m2_x4, float4_e2m1fn_x4)


def static_cast(array: Any, dtype: Any) -> np.ndarray:
    """Return an array in another dtype; four neighbours make one element of a packed dtype."""
    given, to = np.asarray(array), dtypes.normalize(dtype)
    if given.dtype in _PACKED:
        values = mx.unpacked(given, dtypes.name(given.dtype))
        given = values.reshape(*given.shape[:-1], -1)
    if to not in _PACKED:
        return given.astype(to)
    groups = given.astype(np.float32).reshape(*given.shape[:-1], -1, 4)
    if to != float4_e2m1fn_x4:
        return mx.packed(groups, dtypes.name(to))
    nibbles = groups.astype(ml_dtypes.float4_e2m1fn).view(np.uint8).astype(np.uint16)
    return np.bitwise_or.reduce(
        nibbles << (4 * np.arange(4, dtype=np.uint16)), axis=-1, dtype=np.uint16
    ).view(to)


def is_float_type(dtype: Any) -> bool:
    """Return whether a dtype is one of floating-point numbers."""
    return dtypes.is_float(dtypes.normalize(dtype))


def sizeinbytes(dtype: Any) -> int:
    """Return the bytes of an element."""
    return dtypes.normalize(dtype).itemsize


def finfo(dtype: Any) -> Any:
    """Return what NumPy says of a floating-point dtype."""
    return ml_dtypes.finfo(dtypes.normalize(dtype))
