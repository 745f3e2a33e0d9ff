"""Operands of products as matrices for BLAS: as they lie in memory, or copied below each other."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..chip import pages
from ..chip.memory import merge_dims

if TYPE_CHECKING:
    from .products import Group


class Stacks:
    """Copies of operands below each other, kept for the next result that needs them.

    An operand is known by its place, which has the version of the bytes.
    """

    def __init__(self, most: int):
        self.most = most                    # bytes; the last one is kept in any case
        self._kept: dict[tuple, np.ndarray] = {}
        self._bytes = 0

    def of(self, groups: list[Group], which: int, columns: list[int],
           copies: list[tuple] | None = None) -> tuple[np.ndarray, bool]:
        """Return operands of groups as one matrix: those of a group below each other, the groups
        beside each other, with so many columns each; and whether that is a copy of them. What is
        to be copied is added to `copies`, (to, from), if there are any: then it is not kept."""
        parts, places = groups[0].operands[which], groups[0].places[which]
        a = None if len(groups) > 1 else parts[0] if len(parts) == 1 else \
            in_a_row(parts, [len(place[-1][0]) if place[-1] else 0 for place in places])
        if a is not None:
            shape = a.size // columns[0], columns[0]
            if len(parts) == 1 and not places[0][-1]:
                whole = a.reshape(shape)
                return whole, not np.may_share_memory(whole, a)
            strides = merge_dims(a.shape, a.strides, shape)
            if strides is not None:             # rows below each other as they are
                return as_strided(a, shape, strides), False
        key = tuple(tuple(g.places[which]) for g in groups)
        stacked = self._kept.get(key)
        if stacked is None:
            rows = sum(part.size for part in parts) // columns[0]
            if copies is None:
                stacked = self._kept[key] = self._room(rows, sum(columns))
            else:
                stacked = matrix(rows, sum(columns))
            right = 0
            for group, width in zip(groups, columns):
                left, right, end = right, right + width, 0
                for part in group.operands[which]:
                    top, end = end, end + part.size // width
                    to = stacked[top:end, left:right].reshape(part.shape)
                    if copies is None:
                        to[...] = part
                    else:
                        copies.append((to, part))
        return stacked, True

    def _room(self, rows: int, columns: int) -> np.ndarray:
        """Return memory for a matrix; those kept longest go if they take too much."""
        size = 4 * rows * columns
        while self._kept and self._bytes + size > self.most:
            self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes
        self._bytes += size
        return matrix(rows, columns)


def in_a_row(parts: list[np.ndarray], loops: list[int]) -> np.ndarray | None:
    """Return arrays that lie in one memory at the same distance as one with a dim in front, or
    None. Each has so many dims of `loops` in front, of which one may be."""
    base, begin, step, total = parts[0].base, _address(parts[0]), 0, 0
    for a, dims in zip(parts, loops):
        if dims:
            step = a.strides[0]
    step = step or _address(parts[1]) - begin
    one = parts[0][0] if loops[0] else parts[0]
    if base is None or one.strides[-1] != one.itemsize:
        return None
    for a, dims in zip(parts, loops):
        if dims > 1 or a.base is not base or _address(a) != begin + total * step \
                or a.shape[dims:] != one.shape or a.strides[dims:] != one.strides \
                or dims and a.strides[0] != step:
            return None
        total += len(a) if dims else 1
    return as_strided(one, (total, *one.shape), (step, *one.strides))


def _address(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def matrix(rows: int, columns: int) -> np.ndarray:
    """Return a float32 matrix that holds anything."""
    return pages.room(4 * rows * columns).view(np.float32).reshape(rows, columns)


__all__ = ["Stacks", "matrix"]
