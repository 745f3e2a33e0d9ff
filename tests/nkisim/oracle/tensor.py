"""Tensor Engine: products, transpositions, and a row repeated over partitions."""

from __future__ import annotations

import numpy as np

from .common import FP32, Expected, cast


def nc_matmul(
    stationary,
    moving,
    *,
    is_stationary_onezero=False,
    is_moving_onezero=False,
    is_transpose=False,
    tile_position=(),
    tile_size=(),
    perf_mode=None,
    mask,
):
    """stationary^T @ moving in float32; the free dims of moving stay."""
    # `mask` is over the result's grid. The documentation says only that the compiler cannot tell
    # the free dims of the operands apart in it, and offers masks of operands instead: the matrix
    # gives no mask here but whole and nothing, and tests masks of operands by themselves.
    s, m = stationary.astype(np.float64), moving.astype(np.float64)
    if perf_mode is not None:  # pairs of rows: contraction over K and the second dim
        s, m = s.reshape(-1, s.shape[-1]), m.reshape(-1, m.shape[-1])
    k, columns, rest = s.shape[0], s.reshape(s.shape[0], -1), m.reshape(m.shape[0], -1)
    value = np.zeros((columns.shape[1], rest.shape[1]), np.float64)
    for i in range(k):
        value += np.outer(columns[i], rest[i])
    return {"": Expected(cast(value.reshape(-1, *m.shape[1:]), FP32), mask)}


def nc_transpose(data, *, mask, dtype=None, engine="unknown"):
    """(P, F...) to (F, P), the free dims flattened; the mask is over data."""
    turned = data.reshape(data.shape[0], -1).T
    return {"": Expected(cast(turned, dtype or data.dtype), mask.reshape(data.shape[0], -1).T)}


def broadcast_to(src, *, shape, mask):
    """Repeat dims of size 1, the partition dim as well."""
    return {"": Expected(np.broadcast_to(src, shape).copy(), mask)}
