"""The eight largest values of each partition, and finding or replacing values (Vector Engine)."""

from __future__ import annotations

import numpy as np

from ..dtypes import as_float32, cast
from ._common import Array, flat

NOT_FOUND = np.uint32(0xFFFFFFFF)


def max8(src: Array) -> Array:
    """Return the 8 largest values per partition, descending: nki.isa.max8.

    src (P, F...) with at least 8 elements per partition; returns float32 (P, 8). A value that
    occurs twice is returned twice.
    """
    data = flat(as_float32(src))
    largest = np.partition(data, data.shape[1] - 8, axis=1)[:, -8:]
    return np.sort(largest, axis=1)[:, ::-1]


def _first(match: Array) -> tuple[Array, Array]:
    """Return the rows of a boolean (P, N) with a match, and the first match of each of these."""
    first = match.argmax(axis=1)
    rows = np.flatnonzero(match[np.arange(len(match)), first])
    return rows, first[rows]


def find_index8(data: Array, vals: Array) -> Array:
    """Return where each of 8 values occurs in its partition: nki.isa.nc_find_index8.

    data (P, F...), vals (P, 8) or (P, a, b) with a * b = 8. Returns uint32 (P, 8): positions in the
    flattened free dimensions of `data`. If a value is listed twice, the second one gets the next
    occurrence. A value that does not occur gets all ones (the documentation: undefined).
    """
    data, vals = flat(as_float32(data)), flat(as_float32(vals))
    free = np.ones(data.shape, bool)  # occurrences that no earlier value has taken
    index = np.full(vals.shape, NOT_FOUND)
    for j in range(vals.shape[1]):
        rows, first = _first((data == vals[:, j : j + 1]) & free)
        index[rows, j] = first
        free[rows, first] = False
    return index


def match_replace8(data: Array, vals: Array, imm: float) -> tuple[Array, Array]:
    """Replace the first occurrence of each of 8 values by `imm`: nki.isa.nc_match_replace8.

    data (P, F...), vals (P, 8) or (P, a, b) with a * b = 8. Values are handled in order and each
    one sees what the earlier ones replaced. Returns a new tile of data's shape and dtype, and the
    positions as uint32 of vals' shape (all ones where nothing matched).
    """
    replaced = flat(data.copy())
    constant = cast(np.array([imm], np.float32), data.dtype)
    values = as_float32(replaced)  # what is compared: both sides as float32
    wanted = flat(as_float32(vals))
    index = np.full(wanted.shape, NOT_FOUND)
    for j in range(wanted.shape[1]):
        rows, first = _first(values == wanted[:, j : j + 1])
        index[rows, j] = first
        replaced[rows, first] = constant
        values[rows, first] = as_float32(constant)
    return replaced.reshape(data.shape), index.reshape(vals.shape)
