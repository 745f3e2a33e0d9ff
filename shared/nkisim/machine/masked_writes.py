"""Instructions whose mask cuts no box: all is computed, what the mask selects is written.

Only what the mask selects has to lie inside of the tensors.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from ..chip.memory import Storage, contiguous_strides
from .tensor import Tensor

if TYPE_CHECKING:
    from .instruction import Instr
    from .interface import Machine


def check_bounds(t: Tensor, mask: np.ndarray | None) -> None:
    """Raise NKI-I01 if an access leaves its tensor at an element that a mask selects (None: all).

    A mask over other dims than the access has says nothing of it, and lets none leave.
    """
    for note in t.oob or ():
        out = ~note.inside(t.shape)
        if (
            mask is not None
            and len(mask.shape) == len(t.shape)
            and all(n in (1, size) for n, size in zip(t.shape, mask.shape))
        ):
            out = out & mask
        if out.any():
            raise note.error(t.shape)


def run(m: Machine, ins: Instr, dst: Tensor) -> None:
    """Run an instruction into a scratch tile, then write only what its mask selects."""
    ins, tmp = inside(m, ins), scratch(m, dst)
    leaves = dst.oob is not None
    if ins.row.merges:
        tmp.np[...] = (_inside(m, dst) if leaves else dst).np  # what it keeps is what was there
    ins.row.run(m, ins, tmp)
    assert ins.mask is not None
    if leaves:
        where = np.broadcast_to(ins.mask, dst.shape)
        held = dst.storage.elements(dst.dtype)  # type: ignore[union-attr]
        held[dst.flat_index()[where]] = tmp.np[where]
    else:
        np.copyto(dst.np, tmp.np, where=ins.mask)


def inside(m: Machine, ins: Instr) -> Instr:
    """Return an instruction that reads no view that leaves its tensor, but a copy of it."""
    if all(s.oob is None for s in ins.srcs):
        return ins
    new = copy.copy(ins)
    new.srcs = tuple(s if s.oob is None else _inside(m, s) for s in ins.srcs)
    return new


def _inside(m: Machine, t: Tensor) -> Tensor:
    """Return a copy of a view that leaves its tensor; what is outside is anything."""
    new, held = scratch(m, t), t.storage.elements(t.dtype)  # type: ignore[union-attr]
    new.np[...] = held[np.clip(t.flat_index(), 0, held.size - 1)]
    return new


def scratch(m: Machine, t: Tensor) -> Tensor:
    """Return a tile of the same shape and dtype that nothing else knows of."""
    st = Storage(
        -1, t.memory, t.shape[0], t.size * t.dtype.itemsize // t.shape[0], 1, -1, 0, False, False
    )
    st.fresh()
    return Tensor(
        m, st, 0, t.shape, contiguous_strides(t.shape, t.dtype.itemsize), t.dtype, 0, t.memory
    )
