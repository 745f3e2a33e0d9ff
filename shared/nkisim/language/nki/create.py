"""New tensors: in a memory, at an address of it, as `nl.ndarray` and its like make them."""

from __future__ import annotations

from typing import Any

from ...errors import fail
from ...machine import allocate, arena
from ...machine.interface import Machine
from ...machine.limits import integer
from ...machine.tensor import Tensor
from . import compat, refusals
from .enums import BUFFERS, DataType, MemoryRegion
from .tensor import NkiTensor

_TEXTS = frozenset((str, DataType))  # the two ways to name a data type


def is_hbm(buffer: Any) -> bool:
    """Return whether a memory is HBM."""
    return buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def create(
    m: Machine, shape: Any, dtype: Any, buffer: Any, name: str = "", address: Any = None
) -> NkiTensor:
    """Create a tensor of undefined content in a memory, at an address if one is given."""
    region = MemoryRegion.sbuf if buffer is None else buffer
    if not isinstance(region, MemoryRegion):
        raise fail(
            "NKI-M05",
            "buffer is not a memory",
            given=repr(buffer)[:60],
            limit="nl.sbuf, nl.psum, nl.private_hbm, nl.shared_hbm (no strings since 0.3)",
        )
    compat.marked(shape)
    if address is not None:
        t = _at(m, shape, dtype, region, name, address)
        if region is MemoryRegion.psum and m.memory.psum_sums:
            refusals.begun(t, m.memory.psum_sums)
        return NkiTensor(t, region, name)
    return NkiTensor(allocate.create(m, shape, dtype, BUFFERS[region], name), region, name)


def _at(
    m: Machine, shape: Any, dtype: Any, region: MemoryRegion, name: str, address: Any
) -> Tensor:
    """Create a tile at an address; one like it without findings is checked once."""
    memory, key = BUFFERS[region].memory, None
    if (
        m.core.node == m.core.top
        and dtype.__class__ in _TEXTS
        and shape.__class__ is address.__class__ is tuple
    ):
        key = (memory, m.core.program_id, dtype, shape, address, *map(type, (*shape, *address)))
        layout = m.memory.layouts.get(key)
        if layout is not None:
            offset, sizes, strides, dt = layout
            t = Tensor(m, arena.arena(m, memory), offset, sizes, strides, dt, 0, memory)
            t.owner = (
                len(m.memory.storages) + m.memory.placed,
                (),
                m.here(),
                name,
            )  # as arena.place_tile says
            m.memory.placed += 1
            return t
    before = m.findings.total
    t = allocate.create(m, shape, dtype, _placed(m, region, address), name)
    if key is not None and t.__class__ is Tensor and before == m.findings.total:
        m.memory.layouts[key] = t.offset, t.shape, t.strides, t.dtype
    return t


def _placed(m: Machine, region: MemoryRegion, address: Any) -> Any:
    """Return the direct placement of `address=(partition, byte in each partition)`."""
    if is_hbm(region) or not isinstance(address, (tuple, list)) or len(address) != 2:
        raise fail(
            "NKI-A03",
            "address= is no place on chip",
            given=f"{address!r} in {region.value}",
            limit="(partition, byte offset in a partition), in SBUF or PSUM",
        )
    part, byte = (integer(a, "an address") for a in address)
    if part % m.hw.quadrant:
        raise fail(
            "NKI-A01",
            "a tile is placed at a partition where none can start",
            given=f"partition {part}",
            limit="0, 32, 64 or 96",
        )
    if region is MemoryRegion.psum and byte % m.hw.psum_bank_bytes:
        raise fail(
            "NKI-A01",
            "a PSUM tile does not start at a bank",
            given=f"byte {byte}",
            limit=f"a multiple of {m.hw.psum_bank_bytes} bytes (the bytes of a bank)",
        )
    return arena.at(BUFFERS[region].memory, part, byte)
