"""Mean and variance in two steps (Vector Engine)."""

from __future__ import annotations

import numpy as np

from ..dtypes import as_float32
from ._common import Array, flat


def bn_stats(data: Array) -> Array:
    """Return count, mean and variance * count of even, then of odd elements: nki.isa.bn_stats.

    data (P, F...), at most 512 elements per partition; returns float32 (P, 6). Even and odd refer
    to the position in the flattened free dimensions; a half without elements is all zeros.
    """
    data = flat(as_float32(data))
    result = np.zeros((data.shape[0], 6), np.float32)
    for half in (0, 1):
        part = data[:, half::2]
        if count := part.shape[1]:
            mean = part.mean(axis=1, keepdims=True)
            result[:, 3 * half] = count
            result[:, 3 * half + 1] = mean[:, 0]
            result[:, 3 * half + 2] = np.square(part - mean).sum(axis=1)
    return result


def bn_aggr(data: Array) -> Array:
    """Combine triples of bn_stats into mean and variance: nki.isa.bn_aggr.

    data (P, 3k): k times (count, mean, variance * count); returns float32 (P, 2). The variance is
    that of the population (divided by the count).
    """
    count, mean, spread = np.moveaxis(flat(as_float32(data)).reshape(data.shape[0], -1, 3), 2, 0)
    total = count.sum(axis=1)
    overall = (count * mean).sum(axis=1) / total
    between = (count * np.square(mean - overall[:, None])).sum(axis=1)
    return np.stack((overall, (spread.sum(axis=1) + between) / total), axis=1)
