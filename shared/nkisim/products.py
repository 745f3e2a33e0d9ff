"""Matrix products that wait for each other: one BLAS call for a whole accumulation group.

A kernel accumulates many small products in a PSUM bank, acc += s1.T @ m1, acc += s2.T @ m2, ...
Their sum is one product, [s1; s2; ...].T @ [m1; m2; ...], which a CPU computes faster and, above
all, with one synchronisation of its threads instead of many. So products queue up here until
something reads their result or changes an operand; the machine calls `run` before either.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .tensor import Tensor

IS_RESULT, IS_OPERAND = 1, 2            # Storage.queued
MAX_ROWS = 4096                         # of a stacked operand: 8 MB for 512 columns
MAX_PRODUCTS = 1024                     # waiting altogether, as they keep their operands alive


class Products:
    """The accumulating products of a launch that have not been computed yet."""

    def __init__(self) -> None:
        self._groups: dict[tuple, tuple[Tensor, list[tuple[np.ndarray, np.ndarray]]]] = {}
        self._flagged: list[Any] = []
        self._count = 0
        self._scratch: dict[str, np.ndarray] = {}

    def add(self, stationary: np.ndarray, moving: np.ndarray, operands: tuple[Tensor, ...],
            dst: Tensor) -> None:
        """Queue dst += stationary.T @ moving; both are views of the operands' storages."""
        key = (dst.storage.id, dst.offset, dst.shape)           # type: ignore[union-attr]
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = (dst, [])
            self._flag(dst.storage, IS_RESULT)
        for t in operands:
            self._flag(t.storage, IS_OPERAND)
        group[1].append((stationary, moving))
        self._count += 1
        if len(group[1]) * stationary.shape[0] >= MAX_ROWS:
            self._compute(*self._groups.pop(key))
        elif self._count >= MAX_PRODUCTS:
            self.run()

    def _flag(self, storage: Any, flag: int) -> None:
        if not storage.queued:
            self._flagged.append(storage)
        storage.queued |= flag

    def run(self) -> None:
        """Compute everything that waits."""
        groups, self._groups, self._count = self._groups, {}, 0
        for storage in self._flagged:
            storage.queued = 0
        self._flagged = []
        for dst, products in groups.values():
            self._compute(dst, products)

    def _compute(self, dst: Tensor, products: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self._count = max(0, self._count - len(products))
        out = dst.np
        rows = sum(a.shape[0] for a, _ in products)
        m, n = out.shape[0], out.size // out.shape[0]
        if len(products) == 1:
            a, b = products[0]
            stacked_a, stacked_b = a.reshape(rows, -1), b.reshape(rows, -1)
        else:
            stacked_a, stacked_b = self._buffer("a", rows, m), self._buffer("b", rows, n)
            at = 0
            for a, b in products:
                end = at + a.shape[0]
                stacked_a[at:end].reshape(a.shape)[...] = a
                stacked_b[at:end].reshape(b.shape)[...] = b
                at = end
        total = self._buffer("total", m, n)
        np.matmul(stacked_a.T, stacked_b, out=total)
        out += total.reshape(out.shape)

    def _buffer(self, name: str, rows: int, columns: int) -> np.ndarray:
        """Return scratch memory of a size, the same again and again."""
        size = rows * columns
        flat = self._scratch.get(name)
        if flat is None or flat.size < size:
            flat = self._scratch[name] = np.empty(size, np.float32)
        return flat[:size].reshape(rows, columns)


__all__ = ["IS_OPERAND", "IS_RESULT", "Products"]
