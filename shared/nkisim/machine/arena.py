"""Direct allocation: tensors that the kernel places itself.

Directly allocated tensors of a memory share one storage, its arena, so that tiles at the same
address really alias. The arena remembers which logical tile wrote which bytes last; a read
through another tile is how `vector_add_direct_allocation_bad` goes wrong, and is reported.
"""

from __future__ import annotations

import inspect
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.memory import (
    PSUM,
    SBUF,
    DirectBuffer,
    Storage,
    Write,
    contiguous_strides,
    free_range,
)
from ..errors import fail
from ..indexing.index import as_int
from . import source_text
from .block import BlockTensor
from .limits import sizes
from .tensor import Tensor

if TYPE_CHECKING:
    from .interface import Machine


def arena(m: Machine, memory: str) -> Storage:
    """Return the storage that all directly allocated tensors of a core's memory share."""
    key = (memory, m.core.program_id if m.launch.cores else ())
    st = m.memory.arenas.get(key)
    if st is None:
        size = m.hw.psum_bytes if memory is PSUM else m.hw.sbuf_bytes
        st = m.memory.arenas[key] = m.new_storage(memory, m.hw.pmax, size, grain=4, arena=True)
    return st


def place_tile(m: Machine, t: BlockTensor, idx: tuple[int, ...]) -> Tensor:
    """Return the physical tile of block `idx`, checking its address."""
    tile = t.blocks.get(idx)
    if tile is not None:
        return tile
    buffer, line, name = t.place
    shape = t.shape[t.nblock :]
    free = prod(shape[1:]) * t.dtype.itemsize
    part, addr = buffer.place(idx, shape[0], free)
    size = m.hw.psum_bytes if t.memory is PSUM else m.hw.sbuf_bytes
    if part < 0 or part + shape[0] > m.hw.pmax:
        raise fail(
            "NKI-A01",
            "a directly allocated tile leaves the partitions",
            given=f"partitions {part} .. {part + shape[0] - 1} for block {idx}",
            limit=f"0 .. {m.hw.pmax - 1}",
        )
    if addr < 0 or addr + free > size:
        raise fail(
            "NKI-A01",
            "a directly allocated tile leaves the memory",
            given=f"bytes {addr} .. {addr + free - 1} of each partition, for block {idx} "
            f"of shape {t.shape}",
            limit=f"0 .. {size - 1} in {t.memory.upper()} of {m.hw.name}",
            hint="use fewer physical tiles (num_free_tiles), a smaller tile, or a lower base_addr",
            nki_hint="use a smaller tile, or a lower address=",
        )
    if t.memory is SBUF and addr + free > m.hw.sbuf_usable_bytes:
        m.find(
            "NKI-A10",
            "warning",
            f"a directly allocated tile reaches byte {addr + free - 1} "
            f"of each partition; the compiler keeps what lies behind byte "
            f"{m.hw.sbuf_usable_bytes - 1} for itself on {m.hw.name}",
            line,
        )
    if addr % t.dtype.itemsize:
        raise fail(
            "NKI-A02",
            "a directly allocated tile is not aligned",
            given=f"byte address {addr} for {dtypes.name(t.dtype)}",
            limit=f"a multiple of {t.dtype.itemsize}",
        )
    st = arena(m, t.memory)
    if addr % st.grain or free % st.grain:
        st.set_grain(1)
    out = Tensor(
        m,
        st,
        part * st.row_bytes + addr,
        shape,
        (st.row_bytes, *contiguous_strides(shape[1:], t.dtype.itemsize)),
        t.dtype,
        0,
        t.memory,
    )
    out.owner = (t.serial, idx, line, name)
    t.blocks[idx] = out
    return out


def _extent(t: Tensor) -> tuple[int, int, int, int]:
    """Return (first partition, past last, first byte, past last byte) of a tile in its arena."""
    assert t.storage is not None
    p0, lo = divmod(t.offset, t.storage.row_bytes)
    return p0, p0 + t.shape[0], *free_range(lo, t.shape, t.strides, t.dtype.itemsize)


def note_write(t: Tensor, line: int) -> None:
    """Record that a logical tile wrote its bytes of the arena; the records never overlap."""
    st = t.storage
    assert st is not None
    p0, p1, lo, hi = box = _extent(t)
    t.m.memory.masked_out.discard(t.owner)
    kept = []
    for w in st.writers:
        if not w.overlaps(*box):
            if w.owner == t.owner and (w.p0, w.p1) == (p0, p1) and (w.hi == lo or w.lo == hi):
                lo, hi = min(w.lo, lo), max(w.hi, hi)  # grows a neighbour of the same tile
            else:
                kept.append(w)
            continue
        if w.owner != t.owner:
            st.lost.setdefault(w.owner, set()).add(_common(w, box))
        for q0, q1, a, b in (
            (w.p0, p0, w.lo, w.hi),
            (p1, w.p1, w.lo, w.hi),
            (max(w.p0, p0), min(w.p1, p1), w.lo, box[2]),
            (max(w.p0, p0), min(w.p1, p1), box[3], w.hi),
        ):
            if q0 < q1 and a < b:  # what sticks out of the new write
                kept.append(Write(q0, q1, a, b, w.owner, w.line))
    kept.append(Write(p0, p1, lo, hi, t.owner, line))
    st.writers = kept


Box = tuple[int, int, int, int]  # partitions from, to; bytes from, to


def _common(w: Write, box: Box) -> Box:
    return max(w.p0, box[0]), min(w.p1, box[1]), max(w.lo, box[2]), min(w.hi, box[3])


def wrote(t: Tensor) -> bool:
    """Return whether a tile in an arena still holds what it wrote itself."""
    assert t.storage is not None
    box = _extent(t)
    owners = {w.owner for w in t.storage.writers if w.overlaps(*box)}
    return owners == {t.owner}


def _other_writes(t: Tensor) -> tuple[Write | None, list[Write]]:
    """Return who has overwritten what a tile had written (or None), and otherwise who
    has left bytes where the tile itself has not written yet.

    A tile that has written nothing of what is read is another name of what is there: that counts
    as overwritten, because the compiler does not order the two.
    """
    st, owner = t.storage, t.owner
    assert st is not None
    box = _extent(t)
    overlapping = [w for w in st.writers if w.overlaps(*box)]
    others = [w for w in overlapping if w.owner != owner]
    if not others or owner in t.m.memory.masked_out:  # its mask says that nothing is there
        return None, []
    lost = st.lost.get(owner, ()) if len(others) < len(overlapping) else (box,)
    taken = next((w for w in others if any(w.overlaps(*gone) for gone in lost)), None)
    return taken, [] if taken else others


def left_by_others(t: Tensor) -> np.ndarray | None:
    """Return which elements of a tile another one has left there, where it has not written itself;
    None if there are none, or if it is an error to read them."""
    st = t.storage
    assert st is not None
    _, others = _other_writes(t)
    if not others:
        return None
    st.set_grain(min(st.grain, t.dtype.itemsize))
    marks = np.zeros((st.nparts, st.row_bytes // st.grain), np.bool_)
    for w in others:
        marks[w.p0 : w.p1, w.lo // st.grain : -(-w.hi // st.grain)] = True
    left = st.marked(marks.reshape(-1), t.offset, t.shape, t.strides, t.dtype.itemsize)
    return left if left.any() else None


def _which(m: Machine, owner: Any) -> str:
    """Return what a kernel calls a tile, and where it was made."""
    _, idx, line, _ = owner
    made = m.trace.where(line)
    name = source_text.assigned_at(made) if made else ""
    which = f"[{', '.join(map(str, idx))}]" if idx else ""
    return f"{name or 'a tile'}{which}" + (f" ({made.short})" if made else "")


def check_owner(m: Machine, t: Tensor, line: int) -> bool:
    """Report a read of bytes that another logical tile has written over; return whether some are
    read that the tile has not written, and another has."""
    w, others = _other_writes(t)
    if w is None:
        return bool(others)
    _, _, lo, hi = _common(w, _extent(t))
    read, last = _which(m, t.owner), _which(m, w.owner)
    m.find(
        "NKI-A05",
        "error",
        f"{read} is read after {last if last != read else 'another one that is made there'} has "
        f"overwritten it: both lie at bytes {lo} .. {hi - 1} of {t.memory.upper()}. Give them "
        "different addresses (or more physical tiles)",
        line,
        w.line,
    )
    return False


def _tiles(value: Any, name: str) -> tuple[int, ...]:
    out = sizes(value, name) if value != () else ()
    return tuple(int(n) for n in out)


def _linear(idx: tuple[int, ...], tiles: tuple[int, ...]) -> int:
    """Return the physical tile number of block `idx` when `tiles` exist in each dim."""
    lin = 0
    for i, n in zip(idx, tiles or (1,) * len(idx)):
        lin = lin * n + i % n
    return lin


def mod_alloc(
    memory: str,
    base_addr: Any,
    base_partition: Any = 0,
    num_par_tiles: Any = (),
    num_free_tiles: Any = (),
    base_bank: Any = 0,
    num_bank_tiles: Any = (),
    bank_bytes: int = 2048,
) -> DirectBuffer:
    """Return the modulo allocation: block i lies in physical tile i mod the number of tiles."""
    base, part, bank = as_int(base_addr), as_int(base_partition), as_int(base_bank)
    if base is None or part is None or bank is None or min(base, part, bank) < 0:
        raise fail(
            "NKI-A01",
            "an address of a direct allocation is not a non-negative integer",
            given=f"base_addr={base_addr!r}, base_partition={base_partition!r}, "
            f"base_bank={base_bank!r}",
        )
    if part != 0 or (memory is PSUM and base != 0):
        raise fail(
            "NKI-A01",
            "this base of a direct allocation must be 0",
            given=f"base_partition={part}" + (f", base_addr={base}" if memory is PSUM else ""),
            limit="base_partition is 0; in PSUM base_addr is 0 as well",
        )
    free, par = _tiles(num_free_tiles, "num_free_tiles"), _tiles(num_par_tiles, "num_par_tiles")
    banks = _tiles(num_bank_tiles, "num_bank_tiles")

    def check_rank(blocks: int) -> None:
        if not blocks:  # nothing to place in turns: the SDK ignores the numbers
            return
        for text, tiles in (
            ("num_free_tiles", free),
            ("num_par_tiles", par),
            ("num_bank_tiles", banks),
        ):
            if tiles and len(tiles) != blocks:
                raise fail(
                    "NKI-A03",
                    f"{text} does not match the block dims",
                    given=f"{text}={tiles} for {blocks} block dim(s)",
                    limit="one number a block dim, or ()",
                )

    def place(idx: tuple[int, ...], pdim: int, fdim_bytes: int) -> tuple[int, int]:
        addr = base + _linear(idx, free) * fdim_bytes
        if memory is PSUM:
            addr += (bank + _linear(idx, banks)) * bank_bytes
        return part + _linear(idx, par) * pdim, addr

    return DirectBuffer(memory, place, check_rank)


def at(memory: str, partition: int, byte: int) -> DirectBuffer:
    """Return the allocation at a partition and a byte of each partition."""
    return DirectBuffer(memory, lambda idx, pdim, fdim_bytes: (partition, byte))


def alloc(memory: str, func: Any, bank_bytes: int = 2048) -> DirectBuffer:
    """Return the allocation by a function of (block index, pdim size, fdim bytes)."""
    try:  # by keyword where it has the documented names: it may be a partial
        by_name = {"idx", "pdim_size", "fdim_size"} <= set(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        by_name = False

    def place(idx: tuple[int, ...], pdim: int, fdim_bytes: int) -> tuple[int, int]:
        address = (
            func(idx=idx, pdim_size=pdim, fdim_size=fdim_bytes)
            if by_name
            else func(idx, pdim, fdim_bytes)
        )
        want = 3 if memory is PSUM else 2
        ok = isinstance(address, (tuple, list)) and len(address) == want
        values = [as_int(v) for v in address] if ok else [None]
        if None in values:
            raise fail(
                "NKI-A03",
                "an allocation function returned something else than addresses",
                given=repr(address)[:60],
                limit="(bank, start_partition, byte_addr)"
                if memory is PSUM
                else "(start_partition, byte_addr)",
            )
        if memory is PSUM:
            bank, part, addr = values
            if part or addr:  # type: ignore[truthy-bool]
                raise fail(
                    "NKI-A01",
                    "a PSUM tile starts at partition 0 and byte 0 of its bank",
                    given=f"start_partition={part}, byte_addr={addr}",
                )
            return 0, bank * bank_bytes  # type: ignore[operator]
        return values[0], values[1]  # type: ignore[return-value]

    return DirectBuffer(memory, place)
