"""Indirect access: subscripts with an index tile, resolved when the kernel runs."""
from __future__ import annotations

from typing import Any

import numpy as np

from .errors import fail
from .index import Index, _broadcast, as_int
from .memory import HBM
from .tensor import Tensor


class Indirect:
    """A subscript with run-time indices: `h[idx_tile, i_f]`; only DMA can access it.

    `rows` is the index tile, used for dimension `dim` of `base`; `rest` holds the other (affine)
    subscripts. The result has the broadcast shape of all of them; the index tile lies along the
    partition axis.
    """

    __slots__ = ("base", "rows", "dim", "rest", "shape", "dtype", "kind")
    base: Tensor
    rows: Tensor
    dim: int
    rest: tuple
    shape: tuple[int, ...]
    dtype: np.dtype
    kind: str

    @staticmethod
    def make(base: Tensor, keys: tuple) -> Any:
        """Check the subscript and return the Indirect."""
        at = [d for d, k in enumerate(keys) if isinstance(k, Tensor)]
        if len(at) != 1 or len(keys) != len(base.shape):
            raise fail("NKI-I11", "an indirect access takes one index tile",
                       given=f"{len(at)} index tiles in {len(keys)} subscripts",
                       limit=f"one index tile, and an nl.arange index or an int for each of the "
                             f"other dims of shape {base.shape}")
        dim, rows = at[0], keys[at[0]].settle()
        part = base.nblock if base.kind is not HBM else 0
        if dim > part and (base.kind is not HBM or any(as_int(k) is None for k in keys[:dim])):
            raise fail("NKI-I12", "an index tile selects along a free dimension",
                       given=f"index tile in dimension {dim} of shape {base.shape}",
                       limit="indirect indices select rows: the partition or a block dim",
                       hint="gather along the free dim with nl.gather_flattened or "
                            "nisa.local_gather")
        if rows.kind is HBM or rows.dtype.kind not in "iu" or rows.size != rows.shape[0]:
            raise fail("NKI-I11", "an index tile must be an int32 or uint32 tile of shape (n, 1)",
                       given=f"{rows!r}", hint="nl.load the indices, or make them with nisa.iota")
        self = Indirect()
        grid: tuple[int, ...] = ()
        for d, k in enumerate(keys):
            if d != dim and k.__class__ is Index:
                grid = _broadcast(grid, k.shape)
            elif d != dim and as_int(k) is None:
                raise fail("NKI-I10", "slices and index tiles are mixed in one subscript",
                           hint="write nl.arange(n)[None, :] in place of the slice")
        rank = max(len(grid), 2)
        grid = _broadcast(grid, (rows.shape[0],) + (1,) * (rank - 1))
        self.base, self.rows, self.dim, self.rest = base, rows, dim, keys
        self.shape, self.dtype, self.kind = grid, base.dtype, base.kind
        return self

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (flat element index, in range) of every element, at run time."""
        item = self.base.dtype.itemsize
        rows = self.rows.np.reshape((-1,) + (1,) * (len(self.shape) - 1)).astype(np.int64)
        ok = (rows >= 0) & (rows < self.base.shape[self.dim])
        flat = self.base.offset // item + rows * (self.base.strides[self.dim] // item)
        for d, k in enumerate(self.rest):
            if d == self.dim:
                continue
            value = k.values() if k.__class__ is Index else as_int(k)
            ok = ok & (value >= 0) & (value < self.base.shape[d])    # type: ignore[operator]
            flat = flat + value * (self.base.strides[d] // item)     # type: ignore[operator]
        return np.broadcast_to(flat, self.shape), np.broadcast_to(ok, self.shape)
