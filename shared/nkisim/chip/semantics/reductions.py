"""Reductions along the free dimensions (Vector Engine) and across partitions (GpSimd Engine)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dtypes import as_float32
from ..ops import ALU, AluOp
from . import inorder
from ._common import Array, flat, not_an_accumulator

_UFUNCS = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


def _fold(op: AluOp, data: Array, axes: tuple[int, ...]) -> Array:
    """Reduce `axes` away; in float32, for bitvec operators on the raw bits."""
    if not op.reducible:
        raise not_an_accumulator(op, (name for name, other in ALU.items() if other.reducible))
    ufunc = op.ufunc or _UFUNCS[op.name]
    if op.kind == "bitvec":
        return ufunc.reduce(data, axis=axes)
    data = as_float32(data)
    if op.name in ("add", "subtract", "multiply"):  # subtract: the first one minus all others
        return inorder.fold(ufunc, data, axes)
    return ufunc.reduce(data, axis=axes).astype(np.float32, copy=False)


def reduce(
    op: AluOp, data: Array, axes: int | Sequence[int], keepdims: bool = False, negate: bool = False
) -> Array:
    """Reduce free axes of a tile: nki.isa.tensor_reduce.

    data (P, F...) of any dtype; axes in 1 ... rank-1 (negative ones count from the end). The result
    is float32 for arithmetic operators, of data's dtype for bitvec operators. Without `keepdims`
    the reduced axes vanish, but a tile keeps one free dimension: (P, F) over axis 1 is (P, 1).
    `negate` multiplies an arithmetic result by -1.
    """
    axes = (axes,) if isinstance(axes, (int, np.integer)) else axes
    axes = tuple(sorted(int(axis) % data.ndim for axis in axes))
    result = _fold(op, data, axes)
    if negate and op.kind == "arith":
        result = -result
    if keepdims:
        return np.expand_dims(result, axes)
    return result if result.ndim > 1 else result[:, None]


def accumulate(op: AluOp, data: Array, state: Array | None = None) -> Array:
    """Reduce all free dimensions into one accumulator register per partition: (P, F...) -> (P, 1).

    `state` is what the registers (P, 1) hold before; None means just reset. The part that
    nki.isa.activation, activation_reduce, tensor_scalar_reduce, select_reduce and range_select
    share.
    """
    data = flat(as_float32(data))
    if state is not None:
        data = np.concatenate((as_float32(state), data), axis=1)
    return reduce(op, data, (1,))


def partition_reduce(op: AluOp, data: Array) -> Array:
    """Reduce across partitions: nki.isa.tensor_partition_reduce, (P, F...) -> (1, F...)."""
    return _fold(op, data, (0,))[None]
