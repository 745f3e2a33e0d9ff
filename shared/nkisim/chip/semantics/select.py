"""Choosing between a tile and a constant, element by element.

The maximum that select_reduce and range_select can take along is `reductions.accumulate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import FP32_MIN, as_float32
from ..ops import AluOp
from ._common import Array, per_partition


def select_reduce(
    predicate: Array, on_true: Array, on_false: Any, reverse_pred: bool = False
) -> Array:
    """Take `on_true` where the predicate is not zero, else `on_false`: nki.isa.select_reduce.

    predicate, on_true (P, F...); on_false a number or (P, 1). Returns float32.
    """
    chosen = (predicate == 0) if reverse_pred else (predicate != 0)
    return np.where(chosen, as_float32(on_true), per_partition(on_false, on_true.ndim))


def range_select(
    on_true: Array,
    comp_op0: AluOp,
    comp_op1: AluOp,
    bound0: Array,
    bound1: Array,
    range_start: int = 0,
    on_false: float | np.floating = FP32_MIN,
) -> Array:
    """Keep the elements whose position passes two comparisons: nki.isa.range_select.

    on_true (P, F...); bound0, bound1 float32 (P, 1) or numbers. The position is range_start plus
    the index in the flattened free dimensions, compared in float32. Returns float32; elsewhere
    `on_false`.
    """
    position = np.arange(range_start, range_start + on_true[0].size).astype(np.float32)
    position = position.reshape(1, *on_true.shape[1:])
    inside = comp_op0.fn(position, per_partition(bound0, on_true.ndim)) != 0
    inside = inside & (comp_op1.fn(position, per_partition(bound1, on_true.ndim)) != 0)
    return np.where(inside, as_float32(on_true), np.float32(on_false))


def affine_select(pred: Array, on_true: Array, on_false: float) -> Array:
    """Take `on_true` where `pred` (boolean) holds, else a constant: nki.isa.affine_select."""
    return np.where(pred, as_float32(on_true), np.float32(on_false))


def dropout(data: Array, prob: Any, rng: np.random.Generator) -> Array:
    """Replace elements by zero with probability `prob`: nki.isa.dropout.

    data (P, F...); prob a number or (P, 1): 1 drops everything, 0 nothing. Kept elements are
    not rescaled and keep their bits; returns data's dtype.
    """
    keep = rng.random(data.shape, np.float32) >= per_partition(prob, data.ndim)
    return np.where(keep, data, np.zeros((), data.dtype))
