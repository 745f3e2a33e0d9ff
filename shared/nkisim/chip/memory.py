"""The chip's memories: HBM, SBUF and PSUM as bytes.

On chip, a `Storage` is a [partition, byte] array: byte b of partition p lies at p * row_bytes + b.
A tensor that the allocator places has a storage of its own; tensors that the kernel places
(`ncc.sbuf.mod_alloc` ...) share one storage per memory, so that they really alias.
Bytes that nothing has written are known, and hold 0xFF (NaN in every float type, -1 in ints).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import fail
from . import dtypes
from .boxes import Boxes, width_of

HBM, SBUF, PSUM = "hbm", "sbuf", "psum"
NEVER, PARTLY, FULLY = 0, 1, 2  # how much of a storage has been written
POISON = 0xFF
MOST_RUNS = 100  # parts of a mask that are gone through one by one


class Buffer:
    """A memory that a tensor can be created in: `nl.sbuf`, `nl.psum`, `nl.hbm` ..."""

    __slots__ = ("name", "memory")

    def __init__(self, name: str, memory: str):
        self.name, self.memory = name, memory

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __call__(self, *args: Any, **kw: Any) -> Any:
        """Say that a memory is named, not called."""
        shape = args[0] if args and isinstance(args[0], tuple) else "(128, 512)"
        raise fail(
            "NKI-M05",
            f"nl.{self.name} is called",
            limit="a memory is named, with buffer=",
            hint=f"t = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.{self.name})",
        )


sbuf = Buffer("sbuf", SBUF)
psum = Buffer("psum", PSUM)
private_hbm = hbm = Buffer("private_hbm", HBM)
shared_hbm = Buffer("shared_hbm", HBM)


@dataclass(frozen=True)
class DirectBuffer:
    """A memory with the kernel's own placement (direct allocation).

    `place(idx, pdim_size, fdim_bytes)` returns (start_partition, byte_addr) of the tile with
    block index `idx`; for PSUM the byte address counts from bank 0.
    """

    memory: str
    place: Callable[[tuple[int, ...], int, int], tuple[int, int]]
    check_rank: Callable[[int], None] | None = None


def room(size: int) -> np.ndarray:
    """Return a flat uint8 array of so many bytes, which hold anything."""
    return np.empty(size, np.uint8)


class Storage:
    """Bytes of one memory, with what is known about their having been written."""

    __slots__ = (
        "id",
        "memory",
        "nparts",
        "row_bytes",
        "nbytes",
        "_data",
        "init",
        "_mask",
        "_origin",
        "grain",
        "_missing",
        "where",
        "readonly",
        "lazy_zero",
        "aliases",
        "shadow",
        "node",
        "arena",
        "writers",
        "lost",
        "queued",
        "wide",
        "version",
        "loaded",
        "_fill",
        "_same_rows",
        "_rest",
        "_boxes",
        "__weakref__",
    )

    def __init__(
        self,
        id: int,
        memory: str,
        nparts: int,
        row_bytes: int,
        grain: int,
        where: int,
        node: int,
        arena: bool,
        readonly: bool,
    ):
        self.id, self.memory = id, memory
        self.nparts, self.row_bytes = nparts, row_bytes
        self.nbytes = nparts * row_bytes
        self._data: np.ndarray | None = None
        self._fill = POISON  # every byte of what has no data yet
        self._rest = False  # bytes that nothing has written still hold anything
        self.init = NEVER
        self._boxes: Boxes | None = None  # what has been written, as long as that will do
        self._mask: np.ndarray | None = None  # then: which elements are defined
        self._same_rows = False  # the mask is that of one partition: all are alike
        self._origin: np.ndarray | None = None  # of those that are not: where they come from
        self.grain = grain  # bytes a mask entry stands for
        self._missing = 0
        self.where = where  # line id of the allocation
        self.readonly = readonly  # kernel inputs
        self.lazy_zero = False  # nl.zeros in PSUM: no memset until someone needs it
        self.aliases: Any = None  # weak references: results that were bound here
        self.shadow: dict[int, np.ndarray] | None = None  # float32 copies, by dtype.num
        self.node = node  # loop iteration that allocated it
        self.arena = arena
        self.writers: Any = ()  # arena: who wrote which bytes last
        self.lost: Any = {} if arena else None  # arena: who was overwritten, and where
        self.queued = 0  # products wait that use it (products.py)
        self.version = 0  # how often something has been written
        self.loaded: Any = None  # what it is a copy of, and the versions of both then
        self.wide: tuple[np.dtype, np.ndarray] | None = None  # see `elements`

    @property
    def data(self) -> np.ndarray:
        """Return the bytes, as a flat uint8 array."""
        if self._data is None:
            self._data = (
                np.full(self.nbytes, self._fill, np.uint8)
                if self._fill
                else np.zeros(self.nbytes, np.uint8)
            )
        elif self._rest:
            self._poison_rest()
        return self._data

    def data_of(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> np.ndarray:
        """Return the bytes, for a look at those of an access pattern."""
        if self._rest and self.defined(offset, shape, strides, itemsize):
            assert self._data is not None
            return self._data
        return self.data

    def data_to_write(self) -> np.ndarray | None:
        """Return the bytes if the next write is to be seen before any of the others, or None.

        What that write leaves out is poisoned when it is looked at, which is mostly never.
        """
        if self._data is None and self._fill and not self.arena:
            self._data, self._rest = room(self.nbytes), True
        return self._data if self._rest else None

    def _poison_rest(self) -> None:
        """Poison what nothing has written."""
        self._rest = False
        if self.init == FULLY:
            return
        assert self._data is not None
        if self._mask is None and self._boxes is None:
            self._data.fill(POISON)
            return
        mask = self._masks()
        rows = self._data.view(f"u{self.grain}").reshape(self.nparts if self._same_rows else 1, -1)
        poison = np.iinfo(rows.dtype).max  # all bits
        free = np.concatenate(([False], ~mask, [False]))
        edges = np.flatnonzero(free[1:] != free[:-1])
        if len(edges) > 2 * MOST_RUNS:
            np.copyto(rows, poison, where=free[1:-1])
        else:
            for first, end in edges.reshape(-1, 2).tolist():
                rows[:, first:end] = poison

    def adopt(self, flat: np.ndarray) -> None:
        """Take a flat uint8 array that is wholly written as the bytes."""
        self._data, self.init, self.wide, self._rest = flat, FULLY, None, False

    def elements(self, dtype: np.dtype) -> np.ndarray:
        """Return all elements, seen as `dtype`, as a flat array of `dtypes.storage(dtype)`.

        With NKI_PRECISE_FP=0 a tensor of a low-precision dtype lives in a float32 array beside
        the bytes. The bytes count again, rounded, as soon as they are seen as another dtype: that
        is what they mean then. An arena is bytes only, because its tiles share them.
        """
        held = dtypes.storage(dtype)
        keeps = held.itemsize != dtype.itemsize and not self.arena
        if self.wide is not None and not (keeps and self.wide[0] == dtype):
            (old_dtype, values), self.wide = self.wide, None
            np.copyto(self.data.view(old_dtype), values, casting="unsafe")
        if not keeps:
            return self.data.view(held if held.itemsize == dtype.itemsize else dtype)
        if self.wide is None:
            self.wide = dtype, self.data.view(dtype).astype(np.float32)
        return self.wide[1]

    def buffers(self) -> list[np.ndarray]:
        """Return the flat arrays that hold its elements, as bytes and as float32."""
        return [
            x
            for x in (self._data, *(self.shadow or {}).values(), self.wide and self.wide[1])
            if x is not None
        ]

    def fresh(self) -> None:
        """Allocate without poisoning: the next write covers every byte."""
        if self._data is None:
            self._data = room(self.nbytes)

    def zero(self) -> None:
        """Make every byte zero, which takes no time until one is looked at."""
        self._data, self._fill, self.init, self.wide, self._rest = None, 0, FULLY, None, False

    def zeros_below(self) -> None:
        """Let every byte hold zero for a sum, though nothing has written them."""
        if self._data is None:
            self._fill = 0
        else:
            self.data[...] = 0

    def renew(self) -> None:
        """Forget what has been written: the next iteration of a loop makes this tile again."""
        self._data, self._fill, self._rest, self.init, self.wide = None, POISON, False, NEVER, None
        self._boxes = self._mask = self._origin = None
        self._same_rows, self._missing, self.lazy_zero = False, 0, False
        self.shadow = self.loaded = self.aliases = None
        self.version += 1

    @property
    def untouched(self) -> bool:
        """Return whether all bytes are zero: they were not looked at since `zero`."""
        return self._data is None and self._fill == 0

    # -- what has been written ----------------------------------------------
    # An element is defined, or it is not: because nothing has written it (origin 0), or because
    # what was written came from elements that were not defined (the number of who read those).
    def set_grain(self, grain: int) -> None:
        """Refine the mask so that one entry stands for `grain` bytes."""
        if grain >= self.grain:
            return
        if self._mask is not None:
            self._mask = np.repeat(self._mask, self.grain // grain)
            self._missing *= self.grain // grain
        if self._origin is not None:
            self._origin = np.repeat(self._origin, self.grain // grain)
        self.grain = grain

    def mask_view(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> np.ndarray:
        """Return which elements of an access pattern (bytes) are defined, as a view."""
        if itemsize < self.grain:
            self.set_grain(itemsize)
        mask = self._masks()
        if self._same_rows:
            if self._in_all_partitions(offset, shape, strides, itemsize):
                return self._view(mask, offset, shape, (0, *strides[1:]), itemsize)
            mask = self._tell_apart()
        return self._view(mask, offset, shape, strides, itemsize)

    def _masks(self) -> np.ndarray:
        """Return the mask, of what has been written so far if there is none yet."""
        if self._mask is None:
            boxes, self._boxes = self._boxes, None
            self._same_rows = self.nparts > 1 and (boxes is None or boxes.uniform(self.nparts))
            size = self.row_bytes if self._same_rows else self.nbytes
            if boxes is not None:
                self._mask = boxes.marks(size, self.grain)
                self._count()
            else:  # zeros cost nothing until used
                make = np.ones if self.init == FULLY else np.zeros
                self._mask = make(size // self.grain, np.bool_)
                self._missing = 0 if self.init == FULLY else self._mask.size
        return self._mask

    def defined(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> bool:
        """Return whether all elements of an access pattern (bytes) are defined."""
        if self.init == FULLY:
            return True
        if self._mask is None:
            in_boxes = self._boxes is not None and self._boxes.has(offset, shape, strides, itemsize)
            if in_boxes is not None:
                return in_boxes
        return bool(self.mask_view(offset, shape, strides, itemsize).all())

    def _in_all_partitions(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> bool:
        """Return whether an access pattern is the same in each partition, and leaves none out."""
        if len(shape) < 2 or shape[0] != self.nparts or strides[0] != self.row_bytes:
            return False
        lo, hi = free_range(offset, shape, strides, itemsize)
        return lo >= 0 and hi <= self.row_bytes

    def _tell_apart(self) -> np.ndarray:
        """Keep a mask of each partition from now on, and return it."""
        assert self._mask is not None
        self._same_rows, self._mask = False, np.tile(self._mask, self.nparts)
        self._missing *= self.nparts
        return self._mask

    def origins(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> np.ndarray:
        """Return -1 for the defined elements of an access pattern, the origin of the others."""
        defined = self.mask_view(offset, shape, strides, itemsize)
        origin = (
            0
            if self._origin is None
            else self._view(self._origin, offset, shape, strides, itemsize)
        )
        out = np.where(defined, np.int16(-1), np.asarray(origin, np.int16))
        return out if out.ndim == len(shape) else out.max(axis=-1)

    def marked(
        self,
        marks: np.ndarray,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
    ) -> np.ndarray:
        """Return which elements of an access pattern are marked; a mark stands for a grain."""
        out = self._view(marks, offset, shape, strides, itemsize)
        return out if out.ndim == len(shape) else np.asarray(out.any(axis=-1))

    def _view(
        self,
        flat: np.ndarray,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
    ) -> np.ndarray:
        g = self.grain
        if itemsize > g:
            shape, strides = (*shape, itemsize // g), (*strides, g)
        return np.ndarray(
            shape,
            flat.dtype,
            flat,
            offset // g * flat.itemsize,
            tuple(s // g * flat.itemsize for s in strides),
        )

    def mark(
        self,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
        where: np.ndarray | None = None,
    ) -> None:
        """Record that an access pattern (or its elements at `where`) has been written.

        Only what `where` selects has to lie inside of the storage.
        """
        if self.init == FULLY:
            return
        if where is None and self._mask is None:
            if itemsize < self.grain:
                self.set_grain(itemsize)
            boxes = self._boxes
            if boxes is None:
                boxes = self._boxes = Boxes(
                    self.nbytes,
                    self.row_bytes if self.nparts > 1 else width_of(self.nbytes, shape, strides),
                )
            if boxes.add(offset, shape, strides, itemsize):
                self.init = PARTLY
                if boxes.left == 0:
                    self.init, self._boxes, self._origin = FULLY, None, None
                return
        if where is not None:
            self._mark_where(offset, shape, strides, itemsize, where)
            self._count()
        else:
            view = self.mask_view(offset, shape, strides, itemsize)
            view = view[0] if self._same_rows else view
            if 0 in strides:
                view[...] = True
                self._count()
            else:
                self._missing -= view.size - int(np.count_nonzero(view))
                view[...] = True
        if self._missing <= 0:
            self.init, self._mask, self._origin = FULLY, None, None
        else:
            self.init = PARTLY

    def _mark_where(
        self,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
        where: np.ndarray,
    ) -> None:
        ends = [(n - 1) * stride for n, stride in zip(shape, strides)]
        if (
            offset + sum(min(0, e) for e in ends) >= 0
            and offset + sum(max(0, e) for e in ends) + itemsize <= self.nbytes
        ):
            self.mask_view(0, (), (), itemsize)
            view = self.mask_view(offset, shape, strides, itemsize)
            view[np.broadcast_to(where, shape)] = True
            return
        at = np.asarray(offset)  # it leaves the storage: one by one
        for n, stride in zip(shape, strides):
            at = at[..., None] + np.arange(n) * stride
        at = at[np.broadcast_to(where, shape)]
        self.mask_view(0, (), (), itemsize)  # the mask is there, whole and fine enough
        assert self._mask is not None
        self._mask[at[:, None] // self.grain + np.arange(itemsize // self.grain)] = True

    def spoil(
        self,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
        origin: np.ndarray,
    ) -> None:
        """Record that elements of an access pattern are undefined: where `origin` is not -1.

        They hold what an instruction has made of what was undefined, which is no poison.
        """
        if self._rest:
            self._poison_rest()
        if self.init == FULLY:
            self._mask = self._boxes = None  # of before the write that filled it
        self.mask_view(0, (), (), itemsize)
        view = self.mask_view(offset, shape, strides, itemsize)
        assert self._mask is not None
        if self._origin is None:
            self._origin = np.zeros(self._mask.size, np.uint8)
        origins = self._view(self._origin, offset, shape, strides, itemsize)
        if view.ndim > origin.ndim:
            origin = origin[..., None]
        origin = np.broadcast_to(origin, view.shape)
        bad = origin >= 0
        view[bad], origins[bad] = False, origin[bad]
        self._count()
        self.init = PARTLY

    def _count(self) -> None:
        mask = self._mask
        assert mask is not None
        self._missing = int(mask.size - np.count_nonzero(mask))


@dataclass(frozen=True)
class Write:
    """Bytes of an arena and the logical tile that wrote them last."""

    p0: int
    p1: int
    lo: int
    hi: int
    owner: Any
    line: int

    def overlaps(self, p0: int, p1: int, lo: int, hi: int) -> bool:
        return self.p0 < p1 and p0 < self.p1 and self.lo < hi and lo < self.hi


def free_range(
    offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, int]:
    """Return the lowest byte of a tile's free dims and the one past the highest; their first
    element is `offset` bytes from the start of a partition."""
    ends = [(n - 1) * s for n, s in zip(shape[1:], strides[1:])]
    return (offset + sum(min(e, 0) for e in ends), offset + sum(max(e, 0) for e in ends) + itemsize)


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the row-major strides in bytes."""
    out = [0] * len(shape)
    step = itemsize
    for d in range(len(shape) - 1, -1, -1):
        out[d] = step
        step *= shape[d]
    return tuple(out)


@functools.lru_cache(maxsize=1024)
def merge_dims(
    shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the strides of a reshape to `new` that copies nothing, or None if there is none.

    Groups of old and new dims that hold the same number of elements are matched from the front;
    within a group the old dims must be contiguous with each other.
    """
    old = [(n, s) for n, s in zip(shape, strides) if n != 1]
    out = [0] * len(new)
    i = k = 0
    last = 1
    while k < len(new):
        if new[k] == 1 or i == len(old):
            k += 1  # a dim of one element: any stride will do
            continue
        first_old, first_new = i, k
        n_old, n_new = old[i][0], new[k]
        while n_old != n_new:
            if n_new < n_old:
                k += 1
                if k == len(new):
                    return None
                n_new *= new[k]
            else:
                i += 1
                if i == len(old):
                    return None
                n_old *= old[i][0]
        for a, b in zip(old[first_old:i], old[first_old + 1 : i + 1]):
            if a[1] != b[0] * b[1]:
                return None
        step = old[i][1]
        for d in range(k, first_new - 1, -1):
            out[d] = step
            step *= new[d]
        last = out[k]
        i, k = i + 1, k + 1
    for d in range(len(new)):
        if new[d] == 1:
            out[d] = last
    return tuple(out)
