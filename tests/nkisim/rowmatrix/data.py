"""Deterministic operands: numbers whose sums and products float32 holds exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.common import cast, is_float

TAKES_OP = ("op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1", "dst_rmw_op")


def fill(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, how: Any = "plain"
) -> np.ndarray:
    """Return an array; `how` names what is in it, or is a list of numbers to choose from."""
    signed = is_float(dtype) or np.iinfo(dtype).min < 0
    if not isinstance(how, str):
        return cast(np.float64(how)[rng.integers(0, len(how), shape)], dtype)
    if how == "distinct":  # no number twice in a partition
        numbers = (
            np.arange(-48, 49) / 8
            if is_float(dtype)
            else np.arange(-48, 49) + (0 if signed else 48)
        )
        numbers = np.unique(cast(numbers, dtype).astype(np.float64))
        n = int(np.prod(shape[1:]))
        return np.stack(
            [cast(rng.permutation(numbers)[:n], dtype) for _ in range(shape[0])]
        ).reshape(shape)
    if how == "large":  # more than the 24 bits of float32's mantissa
        return (rng.integers(10**8, 4 * 10**8, shape) | 1).astype(dtype)
    if how == "powers":  # products of many stay exact
        return cast(
            (rng.choice([-1, 1], shape) if signed else 1)
            * 2.0 ** rng.integers(0 if not is_float(dtype) else -1, 2, shape),
            dtype,
        )
    if how == "positive":
        return cast(rng.integers(2, 24, shape) / (8 if is_float(dtype) else 1), dtype)
    if how == "small":  # within [-pi/2, pi/2]
        return cast(rng.integers(-12, 13, shape) / 8, dtype)
    if how == "bits":  # 0 .. 7: as numbers, masks and shift counts
        return cast(rng.integers(0, 8, shape), dtype)
    assert how == "plain", how
    if is_float(dtype):
        return cast(rng.integers(-32, 33, shape) / 8, dtype)
    return cast(rng.integers(-6 if signed else 0, 13, shape), dtype)


def prefill(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return what a destination holds beforehand: no number that an instruction would write."""
    return cast(np.full(shape, 53.0 if not is_float(np.dtype(dtype)) else -56.0), dtype)
