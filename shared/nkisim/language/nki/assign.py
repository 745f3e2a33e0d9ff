"""`t[...] = value`: AWS's simulator takes it, and kernels with it have been built."""

from __future__ import annotations

from typing import Any

from ...chip.memory import HBM
from ...errors import fail
from ...isa import dma, dve
from ...isa.operands import regroup
from ...machine.tensor import Tensor
from .call import NkiInstruction, settled
from .tensor import NkiTensor


def assign(dst: NkiTensor, value: Any) -> None:
    """Copy a tile or a number into a view, and say that an instruction with a dst is meant."""
    if isinstance(value, NkiInstruction):
        raise fail(
            "NKI-N05",
            "the result of an instruction is assigned to a tensor",
            limit="instructions write their dst, and return only a handle",
            hint="give the view as dst: nisa.tensor_tensor(t[...], a, b, op=nl.add)",
        )
    m = dst._t.m if isinstance(dst._t, Tensor) else dst._base.m
    m.flush()
    m.find(
        "NKI-N05",
        "note",
        "a tensor is assigned to. AWS's simulator copies, and kernels with "
        "it have been built; no document shows it. nisa.tensor_copy(dst, src), "
        "nisa.memset(dst, value) and nisa.dma_copy(dst, src) say which instruction is meant",
        m.here(),
    )
    if isinstance(value, NkiTensor):
        src = settled(m, value._t)
        if dst._t.kind is HBM or src.kind is HBM:
            dma.dma_copy(dst=dst._t, src=src)
            return
        to = settled(m, dst._t)
        if src.size != to.size:
            src = m.broadcast(src, to.shape)
        dve.tensor_copy(src, dst=_fitting(to, src))
    elif isinstance(value, (int, float)):
        if dst._t.kind is HBM:
            dma.store(dst._t, value)
        else:
            to = settled(m, dst._t)
            dve.memset(to.shape, value, to.dtype, dst=to)
    else:
        raise fail(
            "NKI-M02",
            "what is assigned is neither a tile nor a number",
            given=type(value).__name__,
            hint="results are written into a dst",
        )


def _fitting(dst: Tensor, src: Tensor) -> Tensor:
    return dst if dst.shape == src.shape else regroup(dst, src.shape)
