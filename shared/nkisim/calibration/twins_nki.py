"""Kernels in the package nki with the structure of published ones: see README.md."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS, COLUMNS = 128, 512  # of a result of one matmul


@nki.jit
def blocked_matmul(
    lhs_t: Any, rhs: Any, TILES_IN_BLOCK_M: int, TILES_IN_BLOCK_N: int, TILES_IN_BLOCK_K: int
) -> Any:
    """Return lhs_t.T @ rhs: for each block of columns all rows add up in SBUF over blocks of K."""
    (depth, rows), columns = lhs_t.shape, rhs.shape[1]
    high, wide = PARTITIONS * TILES_IN_BLOCK_M, COLUMNS * TILES_IN_BLOCK_N
    deep = PARTITIONS * TILES_IN_BLOCK_K
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, columns, wide):
        sums = []
        for _ in range(rows // PARTITIONS):
            sums.append(nl.ndarray((PARTITIONS, wide), dtype=out.dtype))
            nisa.memset(sums[-1], 0.0)
        for k0 in range(0, depth, deep):
            right = _rows(rhs, k0, n0, TILES_IN_BLOCK_K, wide)
            for m0 in range(0, rows, high):
                left = _rows(lhs_t, k0, m0, TILES_IN_BLOCK_K, high)
                _add_products(sums[m0 // PARTITIONS : (m0 + high) // PARTITIONS], left, right)
        for i, tile in enumerate(sums):
            nisa.dma_copy(dst=out[i * PARTITIONS : (i + 1) * PARTITIONS, n0 : n0 + wide], src=tile)
    return out


def _rows(x: Any, k0: int, at: int, count: int, wide: int) -> Any:
    """Load `count` tiles of 128 rows of x from row k0 on, columns at .. at + wide."""
    tile = nl.ndarray((PARTITIONS, count, wide), dtype=x.dtype)
    for k in range(count):
        first = k0 + k * PARTITIONS
        nisa.dma_copy(dst=tile[:, k, :], src=x[first : first + PARTITIONS, at : at + wide])
    return tile


def _add_products(sums: list[Any], left: Any, right: Any) -> None:
    """Add left.T @ right to tiles of 128 rows."""
    _, count, wide = right.shape
    for n in range(0, wide, COLUMNS):
        for i, total in enumerate(sums):
            acc = nl.ndarray((PARTITIONS, COLUMNS), dtype=nl.float32, buffer=nl.psum)
            for k in range(count):
                nisa.nc_matmul(
                    acc,
                    left[:, k, i * PARTITIONS : (i + 1) * PARTITIONS],
                    right[:, k, n : n + COLUMNS],
                )
            nisa.tensor_tensor(total[:, n : n + COLUMNS], total[:, n : n + COLUMNS], acc, nl.add)
