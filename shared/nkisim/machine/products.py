"""Matrix products that wait for each other: one BLAS call for a whole accumulation group.

A kernel accumulates many small products in a PSUM bank, acc += s1.T @ m1, acc += s2.T @ m2, ...
Their sum is one product, [s1; s2; ...].T @ [m1; m2; ...], which a CPU computes faster and, above
all, with one synchronisation of its threads instead of many. So products queue up here until
something reads their result or changes an operand; the machine calls `run` before either.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..chip.memory import free_range
from .tensor import Tensor

IS_RESULT, IS_OPERAND = 1, 2            # Storage.queued
MAX_ROWS = 4096                         # of a stacked operand: 8 MB for 512 columns
MAX_PRODUCTS = 1024                     # waiting altogether, as they keep their operands alive
#: bytes of stacked operands that are kept for later: weights are used again and again, and more
#: than fits a cache of the CPU is as slow to read as to stack anew
MAX_KEPT = 8 << 20


class Group:
    """The products that are added to one result.

    `operands` are the stationary and the moving ones as arrays; `places` say, in the same order,
    what they are: storage, offset, shape, strides, dtype and version of the bytes.
    """

    __slots__ = ("dst", "operands", "places")

    def __init__(self, dst: Tensor):
        self.dst = dst
        self.operands: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self.places: tuple[list[tuple], list[tuple]] = ([], [])


class Products:
    """The accumulating products of a launch that have not been computed yet."""

    def __init__(self) -> None:
        self._groups: dict[tuple, Group] = {}
        self._flagged: list[Any] = []
        self._operands: list[Tensor] = []               # not yet in _in_use
        self._in_use: dict[int, tuple[int, int]] = {}   # operands: bytes, by storage
        self._count = 0
        self._total = np.empty(0, np.float32)           # scratch
        self._stacks = Stacks(MAX_KEPT), Stacks(0)      # of stationary and of moving operands

    def add(self, stationary: np.ndarray, moving: np.ndarray, operands: tuple[Tensor, ...],
            dst: Tensor) -> None:
        """Queue dst += stationary.T @ moving; both are views of the operands' storages."""
        key = (dst.storage.id, dst.offset, dst.shape)           # type: ignore[union-attr]
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(dst)
            self._flag(dst.storage, IS_RESULT)
        a, b = operands
        st, at = a.storage, b.storage
        assert st is not None and at is not None
        if not st.queued:
            self._flag(st, IS_OPERAND)
        if not at.queued:
            self._flag(at, IS_OPERAND)
        self._operands += operands
        lefts, rights = group.operands
        lefts.append(stationary)
        rights.append(moving)
        left_at, right_at = group.places
        left_at.append((st.id, a.offset, a.shape, a.strides, a.dtype.num, st.version))
        right_at.append((at.id, b.offset, b.shape, b.strides, b.dtype.num, at.version))
        self._count += 1
        if len(lefts) * stationary.shape[0] >= MAX_ROWS or self._count >= MAX_PRODUCTS:
            self.run()

    def _flag(self, storage: Any, flag: int) -> None:
        if not storage.queued:
            self._flagged.append(storage)
        storage.queued |= flag

    def before_write(self, t: Tensor) -> None:
        """Compute what waits if it would notice that `t` is written."""
        storage: Any = t.storage
        if not storage.queued & IS_RESULT:
            for x in self._operands:
                lo, hi = _bytes(x)
                first, end = self._in_use.get(x.storage.id, (lo, hi))  # type: ignore[union-attr]
                self._in_use[x.storage.id] = min(lo, first), max(hi, end)  # type: ignore[union-attr]
            self._operands = []
            lo, hi = _bytes(t)
            first, end = self._in_use[storage.id]
            if hi <= first or end <= lo:
                return          # another slot of a ring of buffers, or the next tile of a row
        self.run()

    def run(self) -> None:
        """Compute everything that waits, results with the same moving operands in a row."""
        groups, self._groups, self._count = self._groups, {}, 0
        for storage in self._flagged:
            storage.queued = 0
        self._flagged = []
        self._operands = []
        self._in_use.clear()
        for group in sorted(groups.values(), key=lambda g: g.places[1]):
            self._compute(group)

    def _compute(self, group: Group) -> None:
        """Add the products of a group to its result, as one product of stacked operands."""
        out = group.dst.np
        m, n = out.shape[0], out.size // out.shape[0]
        left, right = (stacks.below(parts, places) for stacks, parts, places
                       in zip(self._stacks, group.operands, group.places))
        if self._total.size < m * n:
            self._total = np.empty(m * n, np.float32)
        total = np.matmul(left.T, right, out=self._total[:m * n].reshape(m, n))
        out += total.reshape(out.shape)


class Stacks:
    """Copies of operands below each other, kept for the next result that needs them.

    An operand is known by its place, which has the version of the bytes.
    """

    def __init__(self, most: int):
        self.most = most                    # bytes; the last one is kept in any case
        self._kept: dict[tuple, np.ndarray] = {}
        self._bytes = 0
        self._spare = np.empty(0, np.float32)

    def below(self, parts: list[np.ndarray], places: list[tuple]) -> np.ndarray:
        """Return operands below each other as one matrix; what was copied last stays valid."""
        first = parts[0]
        rows = first.shape[0]
        if len(parts) == 1:
            return first.reshape(rows, -1)
        key = tuple(places)
        stacked = self._kept.get(key)
        if stacked is None:
            stacked = self._kept[key] = self._room(sum(map(len, parts)), first.size // rows)
            at = 0
            for part in parts:
                stacked[at:at + len(part)].reshape(part.shape)[...] = part
                at += len(part)
        return stacked

    def _room(self, rows: int, columns: int) -> np.ndarray:
        """Return memory for a matrix: of the one kept longest if they take too much, else new."""
        size = rows * columns
        while self._kept and self._bytes + 4 * size > self.most:
            self._spare = self._kept.pop(next(iter(self._kept))).reshape(-1)
            self._bytes -= self._spare.nbytes
            if self._spare.base is not None:                # the whole of what it is a part of
                self._spare = self._spare.base
        self._bytes += 4 * size
        if self._spare.size < size:
            self._spare = np.empty(size, np.float32)
        flat, self._spare = self._spare, np.empty(0, np.float32)
        return flat[:size].reshape(rows, columns)


def _bytes(t: Tensor) -> tuple[int, int]:
    """Return the range of bytes of each partition that a tile lies in."""
    return free_range(t.offset % t.storage.row_bytes,           # type: ignore[union-attr]
                      t.shape, t.strides, t.dtype.itemsize)


__all__ = ["IS_OPERAND", "IS_RESULT", "Products"]
