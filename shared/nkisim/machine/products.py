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


class Group:
    """The products that are added to one result; `moving_at` says where their operands lie."""

    __slots__ = ("dst", "products", "moving_at")

    def __init__(self, dst: Tensor):
        self.dst = dst
        self.products: list[tuple[np.ndarray, np.ndarray]] = []
        self.moving_at: list[tuple] = []


class Products:
    """The accumulating products of a launch that have not been computed yet."""

    def __init__(self) -> None:
        self._groups: dict[tuple, Group] = {}
        self._flagged: list[Any] = []
        self._operands: list[Tensor] = []               # not yet in _in_use
        self._in_use: dict[int, tuple[int, int]] = {}   # operands: bytes, by storage
        self._count = 0
        self._scratch: dict[str, np.ndarray] = {}
        self._stacked: list[tuple] = []                 # what the scratch of moving operands holds

    def add(self, stationary: np.ndarray, moving: np.ndarray, operands: tuple[Tensor, ...],
            dst: Tensor) -> None:
        """Queue dst += stationary.T @ moving; both are views of the operands' storages."""
        key = (dst.storage.id, dst.offset, dst.shape)           # type: ignore[union-attr]
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(dst)
            self._flag(dst.storage, IS_RESULT)
        for t in operands:
            if not t.storage.queued:                            # type: ignore[union-attr]
                self._flag(t.storage, IS_OPERAND)
        self._operands += operands
        group.products.append((stationary, moving))
        t = operands[1]
        at: Any = t.storage
        group.moving_at.append((at.id, t.offset, t.shape, t.strides,
                                t.dtype.num))
        self._count += 1
        if len(group.products) * stationary.shape[0] >= MAX_ROWS or self._count >= MAX_PRODUCTS:
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
        self._stacked = []
        for group in sorted(groups.values(), key=lambda g: g.moving_at):
            self._compute(group)

    def _compute(self, group: Group) -> None:
        out, products = group.dst.np, group.products
        rows = sum(a.shape[0] for a, _ in products)
        m, n = out.shape[0], out.size // out.shape[0]
        if len(products) == 1:
            a, b = products[0]
            stacked_a, stacked_b = a.reshape(rows, -1), b.reshape(rows, -1)
        else:
            stacked_a = self._stack("a", rows, m, [a for a, _ in products])
            if group.moving_at == self._stacked:
                stacked_b = self._buffer("b", rows, n)
            else:
                stacked_b = self._stack("b", rows, n, [b for _, b in products])
                self._stacked = group.moving_at
        total = self._buffer("total", m, n)
        np.matmul(stacked_a.T, stacked_b, out=total)
        out += total.reshape(out.shape)

    def _stack(self, name: str, rows: int, columns: int, parts: list[np.ndarray]) -> np.ndarray:
        """Copy operands below each other into scratch memory."""
        stacked, at = self._buffer(name, rows, columns), 0
        for part in parts:
            stacked[at:at + part.shape[0]].reshape(part.shape)[...] = part
            at += part.shape[0]
        return stacked

    def _buffer(self, name: str, rows: int, columns: int) -> np.ndarray:
        """Return scratch memory of a size, the same again and again."""
        size = rows * columns
        flat = self._scratch.get(name)
        if flat is None or flat.size < size:
            flat = self._scratch[name] = np.empty(size, np.float32)
        return flat[:size].reshape(rows, columns)


def _bytes(t: Tensor) -> tuple[int, int]:
    """Return the range of bytes of each partition that a tile lies in."""
    return free_range(t.offset % t.storage.row_bytes,           # type: ignore[union-attr]
                      t.shape, t.strides, t.dtype.itemsize)


__all__ = ["IS_OPERAND", "IS_RESULT", "Products"]
