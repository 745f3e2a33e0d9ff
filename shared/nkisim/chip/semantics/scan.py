"""Running operations along the free dimension (Vector Engine), with a float32 state."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import as_float32
from ..ops import AluOp
from ._common import Array, flat, not_an_accumulator, per_partition


def _start(initial: Any, partitions: int, dtype: Any) -> Array:
    """Return the first state as an array of shape (P,)."""
    return np.array(np.broadcast_to(_values(initial, 1, dtype), (partitions,)))


def _values(operand: Any, ndim: int, dtype: Any) -> Any:
    """Return an operand (P, 1) or a number as per_partition does, in `dtype`."""
    if dtype is np.float32:
        return per_partition(operand, ndim)
    a = np.asarray(operand, dtype)
    return a.reshape(a.shape[0], *(1,) * (ndim - 1)) if a.ndim else a


def _rows(data: Array, dtype: Any) -> Array:
    return flat(as_float32(data) if dtype is np.float32 else data.astype(dtype))


def _running(ufunc: np.ufunc, data: Array, state: Array) -> Array:
    """Return state op x0, (state op x0) op x1, ... for each row of `data`."""
    columns = np.concatenate((state[:, None], data), axis=1)
    return ufunc.accumulate(columns, axis=1)[:, 1:]


def _all_ones(data: Array) -> bool:
    return data.size > 0 and data.flat[0] == 1 and bool((data == 1).all())


def tensor_tensor_scan(
    data0: Array,
    data1: Array,
    initial: Any,
    op0: AluOp,
    op1: AluOp,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = np.float32,
) -> Array:
    """Scan two tiles: nki.isa.tensor_tensor_scan, r[i] = (data0[i] op0 r[i-1]) op1 data1[i].

    data0, data1 (P, F...) of equal element counts; r[-1] is `initial`, a number or (P, 1). Free
    dimensions are walked in order, the last one fastest. `reverse0` / `reverse1` swap the inputs
    of an operator. Computes in `dtype`, as the engine does in float32; returns data0's shape.
    """
    a, b = _rows(data0, dtype), _rows(data1, dtype)
    state = _start(initial, a.shape[0], dtype)
    # Times one is exact in every case, so what remains is a running operation NumPy has in C.
    if op0.name == "multiply" and op1.ufunc and not reverse1 and _all_ones(a):
        return _running(op1.ufunc, b, state).reshape(data0.shape)
    steps_a, steps_b = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    result = np.empty_like(steps_a)
    first, second = op0.fn, op1.fn
    for x, y, r in zip(steps_a, steps_b, result):
        first(state, x, out=r) if reverse0 else first(x, state, out=r)
        second(y, r, out=r) if reverse1 else second(r, y, out=r)
        state = r
    return result.T.reshape(data0.shape)


# What an accumulator holds after a reset, by the operator that is going to accumulate.
_RESET = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


def tensor_scalar_cumulative(
    src: Array,
    op0: AluOp,
    imm0: Any,
    op1: AluOp,
    state: Any = None,
    *,
    dtype: Any = np.float32,
) -> tuple[Array, Array]:
    """Apply op0 with a scalar, then a running op1: nki.isa.tensor_scalar_cumulative, r[i] =
    (src[i] op0 imm0) op1 r[i-1].

    src (P, F...); imm0 a number or (P, 1); op1 add, subtract, multiply, maximum or minimum.
    `state` is what the accumulator registers hold before: None after reset_reduce, imm1 for
    load_reduce, the last call's second result for reduce. Returns the tile of src's shape in
    `dtype` and the registers (P, 1).
    """
    if op1.name not in _RESET or op1.ufunc is None:
        raise not_an_accumulator(op1, _RESET)
    data = _rows(src, dtype)
    data = op0.fn(data, _values(imm0, 2, dtype))
    start = _start(_RESET[op1.name] if state is None else state, data.shape[0], dtype)
    if op1.name == "subtract":  # x - state: sums whose elements take turns in their signs
        signs = np.where(np.arange(data.shape[1]) % 2, dtype(-1), dtype(1))
        result = signs * _running(np.add, signs * data, -start)
    else:
        result = _running(op1.ufunc, data, start)
    return result.reshape(src.shape), result[:, -1:].copy()
