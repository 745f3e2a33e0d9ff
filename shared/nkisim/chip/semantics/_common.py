"""Shapes that every instruction shares: partitions first, one value per partition, flat free."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...errors import NkiError
from ..dtypes import as_float32
from ..ops import AluOp

Array = np.ndarray


def flat(data: Array) -> Array:
    """Flatten the free dimensions, the last one fastest: (P, ...) -> (P, N)."""
    return data.reshape(data.shape[0], -1)


def per_partition(value: Any, ndim: int) -> Any:
    """Return an operand as float32 that broadcasts along all free dimensions of a rank-`ndim` tile.

    A tile (P, 1) becomes (P, 1, ..., 1): partitions align first, unlike in NumPy. A Python or
    NumPy scalar becomes a float32 scalar.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        return as_float32(value).reshape(value.shape[0], *(1,) * (ndim - 1))
    return np.float32(value)


def not_an_accumulator(op: AluOp, allowed: Iterable[str]) -> NkiError:
    """Return the error for an operator that cannot fold many values into one."""
    return NkiError(
        id="NKI-E06",
        what=f"{op.name!r} cannot reduce: it does not fold values into one.",
        limit="reducing operators: " + ", ".join(allowed),
        given=f"op={op.name}",
        hint="Apply it element by element first (tensor_tensor, tensor_scalar), then reduce.",
    )


def poison(dtype: np.dtype) -> Any:
    """Return the value that stands for garbage: NaN in float types, all bits set in integers."""
    return np.frombuffer(b"\xff" * dtype.itemsize, np.uint8 if dtype == np.bool_ else dtype)[0]
