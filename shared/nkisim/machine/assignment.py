"""What `dst[...] = value` and `dst += value` do.

The instruction that made the value writes to where it goes, if it has not run yet and can; else a
copy, a fill or the operator does.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.memory import HBM, PSUM
from . import refuse
from .block import BlockTensor
from .tensor import Indirect, Tensor

if TYPE_CHECKING:
    from .instruction import Instr
    from .machine import Machine


def assign(m: Machine, dst: Any, value: Any) -> None:
    """Do `dst[...] = value`."""
    if dst.__class__ is not Tensor:
        if isinstance(dst, Indirect) or dst.kind is HBM:
            refuse.assigned_hbm(dst)
        refuse.not_a_tile(dst, "destination")
    if dst.kind is HBM:
        refuse.assigned_hbm(dst)
    if dst.pending is not None:
        m.flush()
    if value.__class__ is Tensor:
        if value.pending is not None and m.pending is not None \
                and m.pending[1] is value:
            ins = value.pending
            target = fit(dst, ins.shape) if ins.can_write(dst.kind) else None
            if target is not None and not _rounds(m, ins, target):
                m.bind(ins, value, target)
                return
            m.flush()
        if value.same_place(dst):
            return                                  # p[i] += ...: already in place
        m.op("copy_into", dst, value)
    elif isinstance(value, (int, float, np.generic)):
        if m.pending is not None:
            m.flush()
        m.op("fill", dst, value)
    elif hasattr(value, "assign_to"):               # nl.loop_reduce
        value.assign_to(m, dst)
    else:
        refuse.not_a_tile(value, "of the assignment")


def has_its_dtype(result: Any) -> None:
    """Note that the kernel has said of which dtype a result is: assigned to a tile of another, it
    is cast to both."""
    if result.__class__ is Tensor and result.pending is not None:
        result.pending.asked = True


def _rounds(m: Machine, ins: Instr, dst: Tensor) -> bool:
    """Tell whether a tile of the dtype that was asked for has to be made first, and copied.

    With a mask the instruction writes `dst` as it is, which is said: what the mask leaves out keeps
    its value there.
    """
    if not ins.rounds(dst.dtype):
        return False
    if ins.box is None and ins.mask is None and ins.over is None:
        return True
    m.find("NKI-K12", "note", f"{ins.row.api} is asked for dtype {dtypes.name(ins.dtype)} and is "
           f"assigned with a mask to a tile of {dtypes.name(dst.dtype)}: the dtype of the tile "
           "holds", m.here())
    return False


def fit(dst: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Return `dst` seen with `shape`, None if the value must be broadcast; else raise."""
    if dst.shape == shape:
        return dst
    if [n for n in dst.shape if n != 1] == [n for n in shape if n != 1]:
        if dst.shape[0] == shape[0] or dst.kind is HBM:
            return dst.reshape(shape)
    lead = len(dst.shape) - len(shape)
    padded = (shape[0],) + (1,) * lead + shape[1:] if lead >= 0 else shape
    if lead >= 0 and all(a == b or b == 1 for a, b in zip(dst.shape, padded)):
        return None
    refuse.does_not_fit(dst, shape)


def accumulate(m: Machine, dst: Tensor, value: Any, op: str) -> Tensor:
    """Do `dst += value` (or -=, *=, /=) in place."""
    if op == "add" and isinstance(value, Tensor) and value.pending is not None \
            and dst.pending is None and m.pending is not None and m.pending[1] is value:
        ins = value.pending
        if ins.row.accumulates and (dst.kind == ins.kind or ins.can_write(dst.kind)) \
                and dst.dtype == dtypes.FLOAT32:
            target = dst if dst.shape == ins.shape else fit(dst, ins.shape)
            if target is not None:
                ins.accumulate = True
                m.bind(ins, value, target)
                return dst
    if isinstance(dst, BlockTensor):
        refuse.not_a_tile(dst, "destination")
    if dst.kind is PSUM and dst.dtype.kind in "iu" and isinstance(value, Tensor) \
            and value.pending is not None and value.pending.row.accumulates:
        refuse.integer_sum(dst)
    if m.pending is not None:
        m.flush()
    if dst.kind is HBM:
        refuse.assigned_hbm(dst)
    result = m.op(op, dst, value)
    if result.pending is not None:
        result.pending.inplace = True
    assign(m, dst, result)
    return dst
