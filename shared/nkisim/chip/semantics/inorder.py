"""Sums and products in the order in which the engines make them: one element after the other.

NumPy adds in pairs, which rounds otherwise. The Vector Engine adds the elements of a partition in
the order in which the access pattern walks them, in float32: published outputs of tensor_reduce on
a chip are equal bit for bit to that sum, and to no sum in pairs.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ._common import Array

_FEW = 8  # results up to which one walk along the elements is faster
_TERMS = 16  # elements of each result up to which they are taken one by one
_BLOCK = 64  # elements of each result that are brought together
_BYTES = 1 << 20  # of a block, at most


def fold(ufunc: np.ufunc, data: Array, axes: tuple[int, ...]) -> Array:
    """Reduce axes of float32 data from the first element to the last, the last axis fastest."""
    kept = tuple(k for k in range(data.ndim) if k not in axes)
    shape = tuple(data.shape[k] for k in kept)
    many, n = prod(shape), prod(data.shape[k] for k in axes)
    if n == 0:
        return ufunc.reduce(data, axis=axes)
    if len(axes) > 1:
        data = data.transpose(*kept, *sorted(axes)).reshape(*shape, n)
        axes = (data.ndim - 1,)
    rows = np.moveaxis(data, axes[0], 0)
    if many <= _FEW:
        whole = np.ascontiguousarray(rows.reshape(n, many).T)
        return np.array(ufunc.accumulate(whole, axis=1)[:, -1]).reshape(shape)
    size = min(_BLOCK, _BYTES // (4 * many))
    out = np.array(rows[0], np.float32, order="C")
    if size < 2 or n <= _TERMS:
        for row in rows[1:]:
            ufunc(out, row, out=out)
        return out
    block = np.empty((size + 1, *shape), np.float32)
    last = axes[0] == data.ndim - 1
    for first in range(1, n, size):
        part = rows[first : first + size]
        if last:  # few lines of a cache, not one of each row
            part = np.moveaxis(np.ascontiguousarray(data[..., first : first + size]), -1, 0)
        block[0], block[1 : len(part) + 1] = out, part
        ufunc.reduce(
            block[: len(part) + 1].reshape(len(part) + 1, many), axis=0, out=out.reshape(many)
        )
    return out


__all__ = ["fold"]
