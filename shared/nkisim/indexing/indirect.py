"""Indirect access: subscripts with an index tile, resolved when the kernel runs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip.memory import HBM, merge_dims
from ..errors import fail, out_of_bound_at_run_time
from .index import Index, _broadcast, as_int

if TYPE_CHECKING:
    from ..machine.tensor import Tensor


def _is_one_slab(keys: tuple, at: int, left: tuple[int, ...]) -> bool:
    """Return whether a subscript is `h[:, index]`: slices and numbers beside a tile of one index.

    Index expressions (nl.arange) may stand in place of slices if one comes before the tile.
    """
    tile = keys[at]
    if (
        isinstance(tile, Shifted)
        or tile.size != 1
        or tile.dtype.kind not in "iu"
        or tile.memory is HBM
        or any(k is Ellipsis for k in keys)
    ):
        return False
    if any(k.__class__ is Index for k in keys):
        return any(k.__class__ is Index for k in keys[:at]) and not any(
            k.__class__ is slice for k in keys
        )
    return not set(left) <= {1} or any(k.__class__ is slice for k in keys)


class Shifted:
    """An index tile plus an index expression: `offsets[0, k] + i_f`."""

    __slots__ = ("tile", "index")

    def __init__(self, tile: Tensor, index: Index):
        self.tile, self.index = tile, index


class Indirect:
    """A subscript with run-time indices: `h[idx_tile, i_f]`; only DMA can access it.

    `rows` is the index tile, used for dimension `dim` of `base`; `rest` holds the other (affine)
    subscripts and `shift` what is added to the index tile. The result has the broadcast shape of
    all of them; the index tile lies along the partition axis, or is one offset for all partitions.
    """

    __slots__ = ("base", "rows", "shift", "dim", "rest", "shape", "dtype", "memory")
    base: Tensor
    rows: Tensor
    shift: Index | None
    dim: int
    rest: tuple
    shape: tuple[int, ...]
    dtype: np.dtype
    memory: str

    @staticmethod
    def make(base: Tensor, keys: tuple, at: list[int]) -> Indirect:
        """Check the subscript, in which index tiles stand at `at`, and return the Indirect."""
        left = base.shape[len(keys) :]
        if len(at) == 1 and base.memory is HBM and _is_one_slab(keys, at[0], left):
            d, rows = at[0], keys[at[0]].settle()
            first = (*keys[:d], 0, *keys[d + 1 :])
            return Patterned(
                base, base[first], rows, base.strides[d] // base.dtype.itemsize, base.shape[d]
            )
        if set(left) <= {1}:  # dims of one element, left out as in h[idx] of (n, 1)
            keys = (*keys, *[0] * len(left))
        if len(at) != 1 or len(keys) != len(base.shape):
            raise fail(
                "NKI-I11",
                "an indirect access takes one index tile",
                given=f"{len(at)} index tiles in {len(keys)} subscripts",
                limit=f"one index tile, and an nl.arange index or an int for each of the "
                f"other dims of shape {base.shape}",
                hint="to choose elements by a condition: t[...] = nl.where(condition, 0.0, t)"
                if keys[at[0]].shape == base.shape
                else "",
            )
        dim, key = at[0], keys[at[0]]
        shift = key.index if isinstance(key, Shifted) else None
        rows = (key.tile if isinstance(key, Shifted) else key).settle()
        part = base.nblock if base.memory is not HBM else 0
        free = any(as_int(k) is None for k in keys[:dim]) if base.memory is HBM else rows.size > 1
        if dim > part and free:
            raise fail(
                "NKI-I12",
                "an index tile selects along a free dimension",
                given=f"index tile in dimension {dim} of shape {base.shape}",
                limit="indirect indices select rows: the partition or a block dim",
                hint="gather along the free dim with nl.gather_flattened or nisa.local_gather",
            )
        if rows.memory is HBM or rows.dtype.kind not in "iu" or rows.size != rows.shape[0]:
            raise fail(
                "NKI-I11",
                "an index tile must be an int32 or uint32 tile of shape (n, 1)",
                given=f"{rows!r}",
                hint="nl.load the indices, or make them with nisa.iota",
                nki_hint="nisa.dma_copy the indices into a tile, or make them with nisa.iota",
            )
        self = Indirect()
        grid: tuple[int, ...] = () if shift is None else shift.shape
        for d, k in enumerate(keys):
            if d != dim and k.__class__ is Index:
                grid = _broadcast(grid, k.shape)
            elif d != dim and as_int(k) is None:
                raise fail(
                    "NKI-I10",
                    "slices and index tiles are mixed in one subscript",
                    hint="write nl.arange(n)[None, :] in place of the slice",
                )
        rank = max(len(grid), 2)
        grid = _broadcast(grid, (rows.shape[0],) + (1,) * (rank - 1))
        self.base, self.rows, self.shift, self.dim, self.rest = base, rows, shift, dim, keys
        base.m.memory.indexed.add(base.storage.id)  # type: ignore[union-attr]
        self.shape, self.dtype, self.memory = grid, base.dtype, base.memory
        return self

    @property
    def size(self) -> int:
        return prod(self.shape)

    def steps(self) -> list[int]:
        """Return how many elements further each dim goes, besides what the index tile says."""
        steps, item = [0] * len(self.shape), self.base.dtype.itemsize
        for d, k in enumerate(self.rest):
            index = self.shift if d == self.dim else k
            if index.__class__ is Index:
                for e, c in enumerate(index.coeffs_in(len(steps))):
                    steps[e] += c * (self.base.strides[d] // item)
        return steps

    def indices(self) -> np.ndarray:
        """Return the indices that move something, in their order, at run time (int64)."""
        return self.rows.np.reshape(-1).astype(np.int64)

    def run(self) -> int:
        """Return how many elements of the access lie side by side, whatever the indices say.

        Where there is an index for each row, rows do not join.
        """
        dims = list(zip(self.shape, self.steps()))
        n = 1
        for size, step in reversed(dims if self.rows.size == 1 else dims[1:]):
            if size == 1:
                continue
            if step != n:
                break
            n *= size
        return n

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (flat element index, in range) of every element, at run time."""
        item = self.base.dtype.itemsize
        rows = self.indices().reshape((-1,) + (1,) * (len(self.shape) - 1))
        if self.shift is not None:
            rows = rows + self.shift.values()
        ok = (rows >= 0) & (rows < self.base.shape[self.dim])
        flat = self.base.offset // item + rows * (self.base.strides[self.dim] // item)
        for d, k in enumerate(self.rest):
            if d == self.dim:
                continue
            value = k.values() if k.__class__ is Index else as_int(k)
            ok = ok & (value >= 0) & (value < self.base.shape[d])  # type: ignore[operator]
            flat = flat + value * (self.base.strides[d] // item)  # type: ignore[operator]
        return np.broadcast_to(flat, self.shape), np.broadcast_to(ok, self.shape)


class Patterned(Indirect):
    """An access pattern with a run-time offset: `view`, moved by `rows` * `step` elements.

    `rows` holds one offset for all, or one for each element of dim 0, column by column; each is
    one of 0 .. `limit` - 1. Offsets that are left over move nothing (`one_for_each_row` refuses
    them where only a transpose takes them).
    """

    __slots__ = ("limit", "step", "view")

    def __init__(self, base: Tensor, view: Tensor, rows: Tensor, step: int, limit: int):
        self.base, self.rows, self.view, self.step, self.limit = base, rows, view, step, limit
        base.m.memory.indexed.add(base.storage.id)  # type: ignore[union-attr]
        self.shift, self.dim, self.rest = None, 0, ()
        self.shape, self.dtype, self.memory = view.shape, view.dtype, view.memory

    def with_shape(self, shape: tuple[int, ...]) -> Patterned:
        """Return the same elements in another shape, if an access pattern can say that."""
        view, n = self.view, self.view.shape[0]
        if shape == view.shape or self.rows.size > 1 and shape[0] != n:
            return self
        strides = (
            merge_dims(view.shape, view.strides, shape)
            if self.rows.size == 1
            else merge_dims(view.shape[1:], view.strides[1:], shape[1:])
        )
        if strides is None:
            return self
        strides = strides if self.rows.size == 1 else (view.strides[0], *strides)
        return Patterned(
            self.base,
            view.like(view.offset, shape, strides, 0, None),
            self.rows,
            self.step,
            self.limit,
        )

    def steps(self) -> list[int]:
        return [s // self.view.dtype.itemsize for s in self.view.strides]

    def indices(self) -> np.ndarray:
        row_numbers = self.rows.np.reshape(self.rows.shape[0], -1).T.astype(np.int64).reshape(-1)
        return row_numbers if row_numbers.size == 1 else row_numbers[: self.shape[0]]

    def at(self, value: int) -> Tensor:
        """Return the plain view that an offset means; raise IndexError (NKI-I02) outside."""
        v, item = self.view, self.view.dtype.itemsize
        offset = v.offset + value * self.step * item
        if not 0 <= value < self.limit:
            raise out_of_bound_at_run_time(
                offset // item, self.base.storage.nbytes // item, value, self.limit
            )
        return v.like(offset, v.shape, v.strides, 0, None)

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        rows = self.indices().reshape((-1,) + (1,) * (len(self.shape) - 1))
        flat = self.view.flat_index() + rows * self.step
        size = self.base.storage.nbytes // self.dtype.itemsize  # type: ignore[union-attr]
        ok = (rows >= 0) & (rows < self.limit) & (flat >= 0) & (flat < size)
        return flat, np.broadcast_to(ok, self.shape)


def one_for_each_row(api: str, x: Any) -> None:
    """Raise NkiError (NKI-N02) for an access whose indices only nisa.dma_transpose takes.

    That is more of them than rows, or several in a partition.
    """
    if not isinstance(x, Patterned) or x.rows.size == 1:
        return
    several = x.rows.size != x.rows.shape[0]
    if several or x.rows.size != x.shape[0]:
        raise fail(
            "NKI-N02",
            f"{api}: "
            + ("indices of rows in several columns" if several else "more indices than rows"),
            given=f"vector_offset of shape {x.rows.shape} for {x.shape[0]} rows",
            limit="one index for each row, (rows, 1); nisa.dma_transpose alone takes (128, n) "
            "and more indices than rows",
            hint="one call for each column of the indices"
            if several
            else f"vector_offset=indices[0:{x.shape[0]}]",
        )
