"""Creating tensors: `nl.ndarray` in each memory, and the kernel's arguments."""

from __future__ import annotations

import itertools
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.core import size
from ..chip.memory import (
    HBM,
    PSUM,
    Buffer,
    DirectBuffer,
    contiguous_strides,
    sbuf,
    shared_hbm,
)
from ..errors import NkiError, fail, user_frame
from .arena import place_tile
from .block import BlockTensor
from .limits import ParDim, check_tile, sizes
from .tensor import Tensor, new_tensor

if TYPE_CHECKING:
    from .interface import Machine


def create(m: Machine, shape: Any, dtype: Any, buffer: Any, name: str = "") -> Tensor:
    """Create a tensor as `nl.ndarray` does; its content is undefined."""
    key = None
    if shape.__class__ is tuple and buffer.__class__ is Buffer and buffer.memory is not HBM:
        key = (shape, tuple(map(type, shape)), dtype, buffer.memory)  # ParDim is an int as well
        layout = m.memory.layouts.get(key)
        if layout is not None:
            plain, strides, dt, blocks, row = layout
            st = m.new_storage(buffer.memory, plain[blocks], row, grain=dt.itemsize, where=m.here())
            return Tensor(m, st, 0, plain, strides, dt, blocks, buffer.memory)
    dims = sizes(shape)
    if dtype is None:
        raise fail("NKI-D02", "a tensor needs a dtype", hint="dtype=nl.float32")
    dt = dtypes.normalize(dtype)
    _known_to(m, dt)
    if dt == dtypes.BOOL:
        dt = dtypes.UINT8
    if buffer is None:
        buffer = sbuf
    if not isinstance(buffer, (Buffer, DirectBuffer)):
        raise fail(
            "NKI-M05",
            "buffer is not a memory",
            given=repr(buffer)[:60],
            limit="nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm, ncc.sbuf.mod_alloc(...) ...",
        )
    if len(dims) == 1 and isinstance(dims[0], ParDim):
        dims = (*dims, 1)  # (nl.par_dim(128),) is accepted: one element a partition
    marks = [d for d, n in enumerate(dims) if isinstance(n, ParDim)]
    plain = tuple(int(n) for n in dims)
    line = m.here()
    if isinstance(buffer, Buffer) and buffer.memory is HBM:
        return _create_hbm(m, plain, dt, buffer, line, name)
    if len(marks) > 1:
        raise fail(
            "NKI-P06",
            "a tensor has more than one partition dimension",
            given=f"{len(marks)} nl.par_dim in shape {plain}",
            limit="one nl.par_dim",
        )
    blocks = marks[0] if marks else 0
    check_tile(m.hw, buffer.memory, plain, dt, blocks)
    if isinstance(buffer, DirectBuffer):
        return _create_placed(m, plain, blocks, dt, buffer, line, name)
    strides, row = _layout(m, plain, blocks, dt, buffer)
    if key is not None and all(isinstance(n, int) for n in shape):  # a float has a finding
        m.memory.layouts[key] = (plain, strides, dt, blocks, row)
    st = m.new_storage(buffer.memory, plain[blocks], row, grain=dt.itemsize, where=line)
    return Tensor(m, st, 0, plain, strides, dt, blocks, buffer.memory)


def _known_to(m: Machine, dtype: np.dtype) -> None:
    """Refuse a dtype that came after the dialect of the kernel."""
    if not m.dialect.newer_dtypes and dtype in dtypes.NEWER:
        raise fail(
            "NKI-D02",
            f"neuronxcc.nki has no {dtypes.name(dtype)}",
            given=f"dtype {dtypes.name(dtype)}",
            limit="data types: " + ", ".join(map(dtypes.name, dtypes.SUPPORTED)),
            hint="nl.float8_e4m3, or the package nki",
        )


def _layout(
    m: Machine, shape: tuple[int, ...], blocks: int, dtype: np.dtype, buffer: Buffer
) -> tuple[tuple[int, ...], int]:
    """Return (strides, bytes of a partition) of a tensor on chip: its blocks one after another."""
    tile = contiguous_strides((1, *shape[blocks + 1 :]), dtype.itemsize)[0]
    bank = m.hw.psum_bank_bytes
    if buffer.memory is PSUM and blocks and tile < bank and bank % tile:
        tile = bank  # a block does not cross into the next bank
    row = prod(shape[:blocks]) * tile
    return (
        *(s * tile for s in contiguous_strides(shape[:blocks], 1)),
        row,
        *contiguous_strides(shape[blocks + 1 :], dtype.itemsize),
    ), row


def _create_placed(
    m: Machine,
    shape: tuple[int, ...],
    blocks: int,
    dtype: np.dtype,
    buffer: DirectBuffer,
    line: int,
    name: str,
) -> Tensor:
    """Create a tensor where the kernel says; every address is checked now."""
    m.memory.direct = m.dialect.places_all_tiles  # it forbids temporary tiles of the compiler
    if dtypes.storage(dtype).itemsize != dtype.itemsize:
        m.find(
            "NKI-K13",
            "warning",
            f"NKI_PRECISE_FP=0 does not reach a tensor of "
            f"{dtypes.name(dtype)} that is placed by the kernel: its bytes may be shared, so "
            "its values are still rounded",
            line,
        )
    buffer = _traced_once(m, buffer)
    t = BlockTensor(
        m, None, 0, shape, contiguous_strides(shape, dtype.itemsize), dtype, blocks, buffer.memory
    )
    t.blocks, t.place, t.serial = {}, (buffer, line, name), len(m.memory.storages) + m.memory.placed
    m.memory.placed += 1
    if buffer.check_rank is not None:
        buffer.check_rank(blocks)
    for idx in itertools.product(*(range(n) for n in shape[:blocks])):
        place_tile(m, t, idx)
    return t if blocks else t.tile(())


def _traced_once(m: Machine, buffer: DirectBuffer) -> DirectBuffer:
    """Return the placement that a loop body's allocation had in the loop's first iteration.

    The SDK traces a loop body once, so `addr += size` in it happens once; here it happens in
    every iteration. Allocations are matched by their place in the program, and by their
    number within an iteration, because Python loops inside the body are unrolled.
    """
    if m.core.node == m.core.top:
        return buffer
    tr = m.trace
    path: list[Any] = [tr.loop_line[loop] for loop, _ in tr.path(m.core.node)]
    frame = user_frame(sys._getframe(1))
    while frame is not None:
        path.append((frame.f_code, frame.f_lineno))  # f_lasti moves as Python specialises
        frame = frame.f_back
    site = tuple(path)
    number = m.memory.sites_seen.get((m.core.node, site), 0)
    m.memory.sites_seen[m.core.node, site] = number + 1
    return m.memory.sites.setdefault((site, number), buffer)


def _create_hbm(
    m: Machine, shape: tuple[int, ...], dtype: np.dtype, buffer: Buffer, line: int, name: str
) -> Tensor:
    """Create an HBM tensor; instances of a grid share the shared_hbm ones."""
    if buffer is shared_hbm:
        if m.core.node != m.core.top:
            raise fail(
                "NKI-O05",
                "a shared_hbm tensor is created inside a loop",
                limit="shared_hbm tensors are created at the kernel's top level",
                hint="move the nl.ndarray out of the loop, or use nl.private_hbm",
            )
        if m.launch.grid and m.core.shared_at < len(m.memory.shared):
            t = m.memory.shared[m.core.shared_at]
            m.core.shared_at += 1
            if t.shape != shape or t.dtype != dtype:
                raise fail(
                    "NKI-O05",
                    "two cores or instances create different shared_hbm tensors in the same place",
                    given=f"here {shape} of {dtype}, there {t!r}",
                    limit="shared tensors are one for all: each of them creates the same "
                    "ones in the same order",
                    hint="let only offsets depend on nl.program_id(0)",
                )
            return t
    nbytes = prod(shape) * dtype.itemsize
    if nbytes > m.hw.hbm_bytes:
        raise fail(
            "NKI-M11",
            "a tensor is larger than the memory of the chip",
            given=f"shape {shape} of {dtypes.name(dtype)}: {nbytes} bytes",
            limit=f"{size(m.hw.hbm_bytes)} of HBM on {m.hw.name}",
        )
    st = m.new_storage(
        HBM, 1, nbytes, grain=dtype.itemsize, where=line, shared=buffer is shared_hbm
    )
    t = new_tensor(m, st, shape, dtype)
    if buffer is shared_hbm and m.launch.grid:
        m.memory.shared.append(t)
        m.core.shared_at += 1
    return t


def input_tensor(
    m: Machine, array: np.ndarray, name: str, mutable: bool, in_place: bool = False
) -> Tensor:
    """Return the HBM tensor of a kernel argument (copied only if it is not contiguous).

    `in_place`: the kernel may write it, and writes the caller's array.
    """
    dt = dtypes.normalize(array.dtype)
    if array.size == 0:
        raise without_elements(name, array.shape)
    _known_to(m, dt)
    a = np.ascontiguousarray(array)
    if a is array and (mutable or in_place and not a.flags.writeable):
        a = a.copy()
    shape = a.shape if a.ndim else (1,)
    st = m.new_storage(HBM, 1, a.nbytes, grain=dt.itemsize, readonly=not mutable and not in_place)
    st.adopt(a.reshape(-1).view(np.uint8))
    if dt == dtypes.BOOL:
        dt = dtypes.UINT8
    return new_tensor(m, st, shape, dt)


def without_elements(name: str, shape: tuple[int, ...]) -> NkiError:
    """Return the error for an argument without elements."""
    return fail(
        "NKI-K04",
        f"argument {name} has no elements",
        given=f"shape {shape}",
        limit="at least one element",
        hint="pass None, and ask for that in the kernel",
    )


def zero_in_psum(t: Tensor) -> None:
    """Make a new PSUM tensor zero without an instruction: the first matmul overwrites it."""
    st = t.storage
    assert st is not None
    if t.m.compute:
        if st.queued:  # in the iteration before
            t.m.products.run()
        st.zero()
    st.lazy_zero = True
