"""What `dst[...] = value` and `dst += value` do.

The instruction that made the value writes to where it goes, if it has not run yet and can; else a
copy, a fill or the operator does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.memory import HBM, PSUM
from . import operand_errors
from .block import BlockTensor
from .context import current
from .tensor import Indirect, Tensor

if TYPE_CHECKING:
    from .instruction import Instr
    from .interface import Machine


def assign(m: Machine, dst: Any, value: Any) -> None:
    """Do `dst[...] = value`."""
    if m is not current.get() and dst.__class__ is Tensor:
        operand_errors.of_another_launch(dst)
    if dst.__class__ is not Tensor:
        if isinstance(dst, Indirect) or dst.memory is HBM:
            operand_errors.assigned_hbm(dst)
        operand_errors.not_a_tile(dst, "destination")
    if dst.memory is HBM:
        operand_errors.assigned_hbm(dst)
    if dst.pending is not None:
        m.flush()
    if value.__class__ is Tensor:
        if value.pending is not None and m.pending is not None and m.pending[1] is value:
            ins = value.pending
            target = _target(dst, ins) if ins.can_write(dst.memory) else None
            if target is not None and not _rounds(m, ins, target):
                m.bind(ins, value, target)
                return
            m.flush()
        if value.same_place(dst):
            return  # p[i] += ...: already in place
        m.op("copy_into", dst, value)
    elif isinstance(value, (int, float, np.generic)):
        if m.pending is not None:
            m.flush()
        m.op("fill", dst, value)
    elif hasattr(value, "assign_to"):  # nl.loop_reduce
        value.assign_to(m, dst)
    else:
        operand_errors.not_a_tile(value, "of the assignment")


def has_its_dtype(result: Any) -> None:
    """Note that the kernel has said what dtype a result has: assigned to a tile of another, it
    is cast to both."""
    if result.__class__ is Tensor and result.pending is not None:
        result.pending.asked = True


def _rounds(m: Machine, ins: Instr, dst: Tensor) -> bool:
    """Return whether a tile of the dtype that was asked for has to be made first, and copied.

    With a mask the instruction writes `dst` as it is, which is said: what the mask leaves out keeps
    its value there.
    """
    if not ins.rounds(dst.dtype):
        return False
    if ins.box is None and ins.mask is None and ins.over is None:
        return True
    m.find(
        "NKI-K12",
        "note",
        f"{ins.row.api} is asked for dtype {dtypes.name(ins.dtype)} and is "
        f"assigned with a mask to a tile of {dtypes.name(dst.dtype)}: the dtype of the tile "
        "holds",
        m.here(),
    )
    return False


def _target(dst: Tensor, ins: Instr) -> Tensor | None:
    """Return the part of `dst` that an instruction writes; else as `fit`.

    A product of operands that a mask has cut, x[i_p, i_f][i_f < n], is as large as it would be
    without the masks, and is computed and written where they hold ("operand masking", the NKI API
    Common Fields); it goes into a tile of that part as well.
    """
    if ins.row.accumulates and dst.shape != ins.shape and len(ins.srcs) >= 2:
        (rows, columns), (whole, box) = map(_uncut, ins.srcs[:2])
        if len(rows) == 2 and dst.shape == (rows[1], *whole[1:]):
            return dst.narrow([columns[1], *box[1:]])
    return fit(dst, ins.shape)


def _uncut(t: Tensor) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Return the shape of an operand without its mask, and what the mask leaves of each dim."""
    return getattr(t, "uncut", None) or (t.shape, [(0, n) for n in t.shape])


def fit(dst: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Return `dst` seen with `shape`, None if the value must be broadcast; else raise."""
    if dst.shape == shape:
        return dst
    if [n for n in dst.shape if n != 1] == [n for n in shape if n != 1]:
        if dst.shape[0] == shape[0] or dst.memory is HBM:
            return dst.reshape(shape)
    lead = len(dst.shape) - len(shape)
    padded = (shape[0],) + (1,) * lead + shape[1:] if lead >= 0 else shape
    if lead >= 0 and all(a == b or b == 1 for a, b in zip(dst.shape, padded)):
        return None
    operand_errors.does_not_fit(dst, shape)


def accumulate(m: Machine, dst: Tensor, value: Any, op: str) -> Tensor:
    """Do `dst += value` (or -=, *=, /=) in place."""
    if m is not current.get() and dst.__class__ is Tensor:
        operand_errors.of_another_launch(dst)
    if (
        op == "add"
        and isinstance(value, Tensor)
        and value.pending is not None
        and dst.pending is None
        and m.pending is not None
        and m.pending[1] is value
    ):
        ins = value.pending
        if (
            ins.row.accumulates
            and (dst.memory == ins.memory or ins.can_write(dst.memory))
            and dst.dtype == dtypes.FLOAT32
        ):
            target = dst if dst.shape == ins.shape else _target(dst, ins)
            if target is not None:
                ins.accumulate = True
                m.bind(ins, value, target)
                return dst
    if isinstance(dst, BlockTensor):
        operand_errors.not_a_tile(dst, "destination")
    if (
        dst.memory is PSUM
        and dst.dtype != dtypes.FLOAT32
        and isinstance(value, Tensor)
        and value.pending is not None
        and value.pending.row.accumulates
    ):
        operand_errors.narrow_sum(m, dst)
    if m.pending is not None:
        m.flush()
    if dst.memory is HBM:
        operand_errors.assigned_hbm(dst)
    result = m.op(op, dst, value)
    if result.pending is not None:
        result.pending.inplace = True
    assign(m, dst, result)
    return dst
