"""Where tensors live: creation, the limits of a tile, and direct allocation (nki-spec 4.4).

Directly allocated tensors of a memory share one storage, its arena, so that tiles at the same
address really alias. The arena remembers which logical tile wrote which bytes last; a read
through another tile is how `vector_add_direct_allocation_bad` goes wrong, and is reported.
"""
from __future__ import annotations

import inspect
import itertools
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..chip.memory import (
    FULLY,
    HBM,
    PSUM,
    SBUF,
    Buffer,
    DirectBuffer,
    Storage,
    Write,
    contiguous_strides,
    free_extent,
    sbuf,
    shared_hbm,
)
from ..errors import fail, user_frame
from .block import BlockTensor
from .index import as_int, whole
from .tensor import Tensor, new_tensor

if TYPE_CHECKING:
    from .machine import Machine


class ParDim(int):
    """What `nl.par_dim(n)` returns: the size of the partition dimension, marked."""

    def __new__(cls, n: Any) -> ParDim:
        size = whole(n, "a partition dimension")
        if size is None:
            raise fail("NKI-S06", "nl.par_dim takes an integer", given=f"{n!r}"[:60])
        return int.__new__(cls, size)


def sizes(shape: Any, what: str = "a tensor") -> tuple[int, ...]:
    """Return a shape as ints (`ParDim` marks kept), or raise."""
    if isinstance(shape, float) or as_int(shape) is not None:
        shape = (shape,)
    out = []
    for n in tuple(shape):
        size = n if isinstance(n, ParDim) else whole(n, f"a size of {what}")
        if size is None or size < 1:
            raise fail("NKI-S06", f"{what} has a size that is not a positive integer",
                       given=f"shape {tuple(shape)!r}"[:90],
                       hint="use // instead of /; a size of 0 comes from a tile larger than the "
                            "tensor")
        out.append(size)
    return tuple(out)


def check_tile(hw: NeuronCore, kind: str, shape: tuple[int, ...], dtype: np.dtype,
               blocks: int = 0) -> None:
    """Raise if a tensor of `shape` (with `blocks` block dims) cannot be a tile of `kind`."""
    where = kind.upper()
    if shape[blocks] > hw.pmax:
        raise fail("NKI-P01",
                   f"a tile of {shape[blocks]} partitions is larger than {where} has",
                   given=f"shape {shape}: {shape[blocks]} partitions",
                   limit=f"{hw.pmax} partitions",
                   hint=f"loop over chunks of at most {hw.pmax} rows (nl.tile_size.pmax), or put "
                        "more elements on the free dimension: reshape to "
                        f"({hw.pmax}, n // {hw.pmax})")
    if len(shape) - blocks < 2:
        raise fail("NKI-P02", f"a tensor in {where} has too few dimensions",
                   given=f"shape {shape}", limit="a partition dim and at least one free dim",
                   hint=f"use ({shape[-1]}, 1) for one element a partition")
    free = prod(shape[blocks + 1:]) * dtype.itemsize
    limit = hw.psum_bytes if kind is PSUM else hw.sbuf_usable_bytes
    if free > limit:
        raise fail("NKI-M04", f"a tile does not fit a partition of {where}",
                   given=f"shape {shape} of {dtypes.name(dtype)}: {free} bytes per partition",
                   limit=f"{limit} bytes per partition on {hw.name}",
                   hint="split the free dimension into tiles and loop over them")


def create(m: Machine, shape: Any, dtype: Any, buffer: Any, name: str = "") -> Tensor:
    """Create a tensor as `nl.ndarray` does; its content is undefined."""
    key = None
    if shape.__class__ is tuple and buffer.__class__ is Buffer and buffer.kind is not HBM:
        key = (shape, tuple(map(type, shape)), dtype, buffer.kind)      # ParDim is an int as well
        got = m.layouts.get(key)
        if got is not None:
            plain, strides, dt, blocks, row = got
            st = m.new_storage(buffer.kind, plain[blocks], row, grain=dt.itemsize, where=m.here())
            return Tensor(m, st, 0, plain, strides, dt, blocks, buffer.kind)
    dims = sizes(shape)
    if dtype is None:
        raise fail("NKI-D02", "a tensor needs a dtype", hint="dtype=nl.float32")
    dt = dtypes.normalize(dtype)
    if dt == dtypes.BOOL:
        dt = dtypes.UINT8
    if buffer is None:
        buffer = sbuf
    if not isinstance(buffer, (Buffer, DirectBuffer)):
        raise fail("NKI-M05", "buffer is not a memory", given=repr(buffer)[:60],
                   limit="nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm, ncc.sbuf.mod_alloc(...) ...")
    if len(dims) == 1 and isinstance(dims[0], ParDim):
        dims = (*dims, 1)       # (nl.par_dim(128),) is accepted: one element a partition
    marks = [d for d, n in enumerate(dims) if isinstance(n, ParDim)]
    plain = tuple(int(n) for n in dims)
    line = m.here()
    if isinstance(buffer, Buffer) and buffer.kind is HBM:
        return _create_hbm(m, plain, dt, buffer, line, name)
    if len(marks) > 1:
        raise fail("NKI-P06", "a tensor has more than one partition dimension",
                   given=f"{len(marks)} nl.par_dim in shape {plain}", limit="one nl.par_dim")
    blocks = marks[0] if marks else 0
    check_tile(m.hw, buffer.kind, plain, dt, blocks)
    if isinstance(buffer, DirectBuffer):
        m.direct = True
        if not dtypes.PRECISE.get() and dtypes.storage(dt) != dt:
            m.find("NKI-K13", "warning", f"NKI_PRECISE_FP=0 does not reach a tensor of "
                   f"{dtypes.name(dt)} that is placed by the kernel: its bytes may be shared, so "
                   "its values are rounded as ever", line)
        buffer = _traced_once(m, buffer)
        t = BlockTensor(m, None, 0, plain, contiguous_strides(plain, dt.itemsize), dt, blocks,
                        buffer.kind)
        t.blocks, t.place, t.serial = {}, (buffer, line, name), len(m.storages) + m.placed
        m.placed += 1
        if buffer.check_rank is not None:
            buffer.check_rank(blocks)
        for idx in itertools.product(*(range(n) for n in plain[:blocks])):
            place_tile(m, t, idx)               # every address is checked at creation
        return t if blocks else t.tile(())
    free = contiguous_strides((1, *plain[blocks + 1:]), dt.itemsize)[0]
    if buffer.kind is PSUM and blocks and free < m.hw.psum_bank_bytes:
        free = m.hw.psum_bank_bytes if m.hw.psum_bank_bytes % free else free
    n_blocks = prod(plain[:blocks])
    row = n_blocks * free
    st = m.new_storage(buffer.kind, plain[blocks], row, grain=dt.itemsize, where=line)
    strides = (*(s * free for s in contiguous_strides(plain[:blocks], 1)), row,
               *contiguous_strides(plain[blocks + 1:], dt.itemsize))
    if key is not None:
        m.layouts[key] = (plain, strides, dt, blocks, row)
    return Tensor(m, st, 0, plain, strides, dt, blocks, buffer.kind)


def _traced_once(m: Machine, buffer: DirectBuffer) -> DirectBuffer:
    """Return the placement that a loop body's allocation had in the loop's first iteration.

    The SDK traces a loop body once, so `addr += size` in it happens once; here it happens in
    every iteration (trap 12). Allocations are matched by their place in the program, and by their
    number within an iteration, because Python loops inside the body are unrolled.
    """
    if m.node == 0:
        return buffer
    tr = m.trace
    path: list[Any] = [tr.loop_line[loop] for loop, _ in tr.path(m.node)]
    frame = user_frame(sys._getframe(1))
    while frame is not None:
        path.append((frame.f_code, frame.f_lineno))     # f_lasti moves as Python specialises
        frame = frame.f_back
    site = tuple(path)
    number = m.sites_seen.get((m.node, site), 0)
    m.sites_seen[m.node, site] = number + 1
    return m.sites.setdefault((site, number), buffer)


def _create_hbm(m: Machine, shape: tuple[int, ...], dtype: np.dtype, buffer: Buffer, line: int,
                name: str) -> Tensor:
    """Create an HBM tensor; instances of a grid share the shared_hbm ones."""
    if buffer is shared_hbm:
        if m.node != m.top:
            raise fail("NKI-O05", "a shared_hbm tensor is created inside a loop",
                       limit="shared_hbm tensors are created at the kernel's top level",
                       hint="move the nl.ndarray out of the loop, or use nl.private_hbm")
        if m.grid and m.shared_at < len(m.shared):
            t = m.shared[m.shared_at]
            m.shared_at += 1
            return t
    nbytes = prod(shape) * dtype.itemsize
    st = m.new_storage(HBM, 1, nbytes, grain=dtype.itemsize, where=line,
                       shared=buffer is shared_hbm)
    t = new_tensor(m, st, shape, dtype)
    if buffer is shared_hbm and m.grid:
        m.shared.append(t)
        m.shared_at += 1
    return t


def input_tensor(m: Machine, array: np.ndarray, name: str, mutable: bool) -> Tensor:
    """Return the HBM tensor of a kernel argument (copied only if it is not contiguous)."""
    dt = dtypes.normalize(array.dtype)
    if array.size == 0:
        raise fail("NKI-K04", f"argument {name} has no elements", given=f"shape {array.shape}",
                   limit="at least one element")
    a = np.ascontiguousarray(array)
    if mutable and a is array:
        a = a.copy()
    shape = a.shape if a.ndim else (1,)
    st = m.new_storage(HBM, 1, a.nbytes, grain=dt.itemsize, readonly=not mutable)
    st.adopt(a.reshape(-1).view(np.uint8))
    if dt == dtypes.BOOL:
        dt = dtypes.UINT8
    return new_tensor(m, st, shape, dt)


# -- direct allocation ---------------------------------------------------------------------

def arena(m: Machine, kind: str) -> Storage:
    """Return the storage that all directly allocated tensors of a memory share."""
    st = m.arenas.get(kind)
    if st is None:
        size = m.hw.psum_bytes if kind is PSUM else m.hw.sbuf_bytes
        st = m.arenas[kind] = m.new_storage(kind, m.hw.pmax, size, grain=4, arena=True)
    return st


def place_tile(m: Machine, t: BlockTensor, idx: tuple[int, ...]) -> Tensor:
    """Return the physical tile of block `idx`, checking its address."""
    got = t.blocks.get(idx)
    if got is not None:
        return got
    buffer, line, name = t.place
    shape = t.shape[t.nblock:]
    free = prod(shape[1:]) * t.dtype.itemsize
    part, addr = buffer.place(idx, shape[0], free)
    size = m.hw.psum_bytes if t.kind is PSUM else m.hw.sbuf_bytes
    if part < 0 or part + shape[0] > m.hw.pmax:
        raise fail("NKI-A01", "a directly allocated tile leaves the partitions",
                   given=f"partitions {part} .. {part + shape[0] - 1} for block {idx}",
                   limit=f"0 .. {m.hw.pmax - 1}")
    if addr < 0 or addr + free > size:
        raise fail("NKI-A01", "a directly allocated tile leaves the memory",
                   given=f"bytes {addr} .. {addr + free - 1} of each partition, for block {idx} "
                         f"of shape {t.shape}",
                   limit=f"0 .. {size - 1} in {t.kind.upper()} of {m.hw.name}",
                   hint="use fewer physical tiles (num_free_tiles), a smaller tile, or a lower "
                        "base_addr")
    if t.kind is SBUF and addr + free > m.hw.sbuf_usable_bytes:
        m.find("NKI-A10", "warning", f"a directly allocated tile reaches byte {addr + free - 1} "
               f"of each partition; the compiler keeps what lies behind byte "
               f"{m.hw.sbuf_usable_bytes - 1} for itself on {m.hw.name}", line)
    if addr % t.dtype.itemsize:
        raise fail("NKI-A02", "a directly allocated tile is not aligned",
                   given=f"byte address {addr} for {dtypes.name(t.dtype)}",
                   limit=f"a multiple of {t.dtype.itemsize}")
    st = arena(m, t.kind)
    if addr % st.grain or free % st.grain:
        st.set_grain(1)
    out = Tensor(m, st, part * st.row_bytes + addr, shape,
                 (st.row_bytes, *contiguous_strides(shape[1:], t.dtype.itemsize)), t.dtype, 0,
                 t.kind)
    out.owner = (t.serial, idx, line, name)
    t.blocks[idx] = out
    return out


def _extent(t: Tensor) -> tuple[int, int, int, int]:
    """Return (first partition, past last, first byte, past last byte) of a tile in its arena."""
    assert t.storage is not None
    p0, lo = divmod(t.offset, t.storage.row_bytes)
    return p0, p0 + t.shape[0], lo, lo + free_extent(t.shape, t.strides, t.dtype.itemsize)


def note_write(t: Tensor, line: int) -> None:
    """Record that a logical tile wrote its bytes of the arena; the records never overlap."""
    st = t.storage
    assert st is not None
    p0, p1, lo, hi = box = _extent(t)
    kept = []
    for w in st.writers:
        if not w.overlaps(*box):
            if w.owner == t.owner and (w.p0, w.p1) == (p0, p1) and (w.hi == lo or w.lo == hi):
                lo, hi = min(w.lo, lo), max(w.hi, hi)       # grows a neighbour of the same tile
            else:
                kept.append(w)
            continue
        for q0, q1, a, b in ((w.p0, p0, w.lo, w.hi), (p1, w.p1, w.lo, w.hi),
                             (max(w.p0, p0), min(w.p1, p1), w.lo, box[2]),
                             (max(w.p0, p0), min(w.p1, p1), box[3], w.hi)):
            if q0 < q1 and a < b:                           # what sticks out of the new write
                kept.append(Write(q0, q1, a, b, w.owner, w.line))
    kept.append(Write(p0, p1, lo, hi, t.owner, line))
    st.writers = kept


def wrote(t: Tensor) -> bool:
    """Tell whether a tile in an arena still holds what it wrote itself."""
    assert t.storage is not None
    box = _extent(t)
    owners = {w.owner for w in t.storage.writers if w.overlaps(*box)}
    return owners == {t.owner}


def check_owner(m: Machine, t: Tensor, line: int) -> None:
    """Report a read of bytes that another logical tile has written over."""
    mine = t.owner
    box = _extent(t)
    assert t.storage is not None
    w = next((w for w in t.storage.writers if w.owner != mine and w.overlaps(*box)), None)
    if w is None:
        return
    lo, hi = max(w.lo, box[2]), min(w.hi, box[3])
    made, other = m.trace.where(mine[2]), m.trace.where(w.owner[2])
    m.find("NKI-A05", "error",
           f"a tile is read after another tile has overwritten it: both lie at bytes "
           f"{lo} .. {hi - 1} of {t.kind.upper()}. Read: tile {mine[1]} of the tensor created at "
           f"{made}; last write: tile {w.owner[1]} of the tensor created at {other}. Give them "
           "different base addresses (or more physical tiles)", line, w.line)


def _tiles(value: Any, name: str) -> tuple[int, ...]:
    out = sizes(value, name) if value != () else ()
    return tuple(int(n) for n in out)


def _linear(idx: tuple[int, ...], tiles: tuple[int, ...]) -> int:
    """Return the physical tile number of block `idx` when `tiles` exist in each dim."""
    lin = 0
    for i, n in zip(idx, tiles or (1,) * len(idx)):
        lin = lin * n + i % n
    return lin


def mod_alloc(kind: str, base_addr: Any, base_partition: Any = 0, num_par_tiles: Any = (),
              num_free_tiles: Any = (), base_bank: Any = 0,
              num_bank_tiles: Any = (), bank_bytes: int = 2048) -> DirectBuffer:
    """Return the modulo allocation: block i lies in physical tile i mod the number of tiles."""
    base, part, bank = as_int(base_addr), as_int(base_partition), as_int(base_bank)
    if base is None or part is None or bank is None or min(base, part, bank) < 0:
        raise fail("NKI-A01", "an address of a direct allocation is not a non-negative integer",
                   given=f"base_addr={base_addr!r}, base_partition={base_partition!r}, "
                         f"base_bank={base_bank!r}")
    if part != 0 or (kind is PSUM and base != 0):
        raise fail("NKI-A01", "this base of a direct allocation must be 0",
                   given=f"base_partition={part}" + (f", base_addr={base}" if kind is PSUM else ""),
                   limit="base_partition is 0; in PSUM base_addr is 0 as well")
    free, par = _tiles(num_free_tiles, "num_free_tiles"), _tiles(num_par_tiles, "num_par_tiles")
    banks = _tiles(num_bank_tiles, "num_bank_tiles")

    def check_rank(blocks: int) -> None:
        if not blocks:          # nothing to place in turns: the SDK ignores the numbers
            return
        for text, tiles in (("num_free_tiles", free), ("num_par_tiles", par),
                            ("num_bank_tiles", banks)):
            if tiles and len(tiles) != blocks:
                raise fail("NKI-A03", f"{text} does not match the block dims",
                           given=f"{text}={tiles} for {blocks} block dim(s)",
                           limit="one number a block dim, or ()")

    def place(idx: tuple[int, ...], pdim: int, fdim_bytes: int) -> tuple[int, int]:
        addr = base + _linear(idx, free) * fdim_bytes
        if kind is PSUM:
            addr += (bank + _linear(idx, banks)) * bank_bytes
        return part + _linear(idx, par) * pdim, addr

    return DirectBuffer(kind, place, check_rank)


def alloc(kind: str, func: Any, bank_bytes: int = 2048) -> DirectBuffer:
    """Return the allocation by a function of (block index, pdim size, fdim bytes)."""
    try:                # by keyword where it has the documented names: it may be a partial
        by_name = {"idx", "pdim_size", "fdim_size"} <= set(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        by_name = False

    def place(idx: tuple[int, ...], pdim: int, fdim_bytes: int) -> tuple[int, int]:
        got = func(idx=idx, pdim_size=pdim, fdim_size=fdim_bytes) if by_name \
            else func(idx, pdim, fdim_bytes)
        want = 3 if kind is PSUM else 2
        ok = isinstance(got, (tuple, list)) and len(got) == want
        values = [as_int(v) for v in got] if ok else [None]
        if None in values:
            raise fail("NKI-A03", "an allocation function returned something else than addresses",
                       given=repr(got)[:60],
                       limit="(bank, start_partition, byte_addr)" if kind is PSUM
                             else "(start_partition, byte_addr)")
        if kind is PSUM:
            bank, part, addr = values
            if part or addr:                                     # type: ignore[truthy-bool]
                raise fail("NKI-A01", "a PSUM tile starts at partition 0 and byte 0 of its bank",
                           given=f"start_partition={part}, byte_addr={addr}")
            return 0, bank * bank_bytes                          # type: ignore[operator]
        return values[0], values[1]                              # type: ignore[return-value]
    return DirectBuffer(kind, place)


def zero_in_psum(t: Tensor) -> None:
    """Make a new PSUM tensor zero without an instruction: the first matmul overwrites it."""
    st = t.storage
    assert st is not None
    if t.m.compute:
        st.adopt(np.zeros(st.nbytes, dtype=np.uint8))
    st.lazy_zero = True


__all__ = ["FULLY", "SBUF", "ParDim", "alloc", "arena", "check_owner", "check_tile", "create",
           "input_tensor", "mod_alloc", "note_write", "place_tile", "sizes", "zero_in_psum"]
