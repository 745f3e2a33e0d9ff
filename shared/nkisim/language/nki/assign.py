"""`t[...] = value`: AWS's simulator takes it, and kernels with it have been built."""

from __future__ import annotations

from typing import Any

from ...chip.memory import HBM
from ...errors import fail
from ...isa import dma, dve
from ...isa.operands import regroup
from ...machine.interface import Machine
from ...machine.tensor import Tensor
from .handles import NkiInstruction
from .views import settled


def assign(m: Machine, dst: Any, value: Any) -> None:
    """Copy a tile or a number into a view, and say that an instruction with a dst is meant."""
    if isinstance(value, NkiInstruction):
        raise fail(
            "NKI-N05",
            "the result of an instruction is assigned to a tensor",
            limit="instructions write their dst, and return only a handle",
            hint="give the view as dst: nisa.tensor_tensor(t[...], a, b, op=nl.add)",
        )
    m.flush()
    m.find(
        "NKI-N05",
        "note",
        "a tensor is assigned to. AWS's simulator copies, and kernels with "
        "it have been built; no document shows it. nisa.tensor_copy(dst, src), "
        "nisa.memset(dst, value) and nisa.dma_copy(dst, src) say which instruction is meant",
        m.here(),
    )
    if isinstance(value, (int, float)):
        if dst.memory is HBM:
            dma.store(dst, value)
        else:
            to = settled(m, dst)
            dve.memset(to.shape, value, to.dtype, dst=to)
    elif hasattr(value, "memory"):  # of a view, what it shows
        src = settled(m, value)
        if dst.memory is HBM or src.memory is HBM:
            dma.dma_copy(dst=dst, src=src)
            return
        to = settled(m, dst)
        if src.size != to.size:
            src = m.broadcast(src, to.shape)
        dve.tensor_copy(src, dst=_fitting(to, src))
    else:
        raise fail(
            "NKI-M02",
            "what is assigned is neither a tile nor a number",
            given=type(value).__name__,
            hint="results are written into a dst",
        )


def _fitting(dst: Tensor, src: Tensor) -> Tensor:
    return dst if dst.shape == src.shape else regroup(dst, src.shape)
