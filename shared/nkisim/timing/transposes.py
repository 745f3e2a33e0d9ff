"""Transposing loads of 4-byte data: plain loads, and transposes on the Tensor Engine.

DMAs of AWS's compiler transpose 2-byte data alone. Published kernels have the same number of
transposes on the Tensor Engine whether they load float32 transposed or transpose it by themselves.
"""

from __future__ import annotations

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF
from ..isa import dma, dve, pe
from ..isa.table import ANY, TENSOR
from ..trace.rewrite import Draft
from ..trace.trace import OpSpec, Pattern, Trace

WIDE = 4  # bytes of an element that DMAs do not transpose


def on_tensor_engine(trace: Trace, hw: NeuronCore) -> Trace:
    """Return the trace with other instructions for transposing loads of 4-byte data."""
    wide = [_is_wide(k, hw) for k in trace.op_specs]
    if not any(wide):
        return trace
    draft = Draft(trace)
    for i, k in enumerate(trace.spec_ids().tolist()):
        if wide[k]:
            _replace(draft, i, hw)
    return draft.finish()


def _is_wide(spec: OpSpec, hw: NeuronCore) -> bool:
    """Return whether an instruction is one that keeps its dtype.

    A cast stays with the DMA, as the times of published kernels that cast have it.
    """
    if not spec.row.wide_on_tensor_engine or spec.indirect:
        return False
    to, of = spec.operands
    return (
        (to.memory, of.memory) == (SBUF, HBM)
        and len(to.shape) == len(of.shape) == 2
        and to.dtype.itemsize == of.dtype.itemsize == WIDE
    )


def _replace(draft: Draft, i: int, hw: NeuronCore) -> None:
    """Load up to 128 rows at a time, transpose them, and copy them to where they belong."""
    to, of = draft.spec_of(i).operands
    (home, at), (source, begin) = (draft.operand(i, j) for j in (0, 1))
    rows, columns = of.shape
    item = of.dtype.itemsize
    for r in range(0, rows, hw.pmax):
        n = min(hw.pmax, rows - r)
        tile = draft.storage(home, SBUF, nparts=n, row_bytes=columns * item)
        turned = draft.storage(home, PSUM, nparts=columns, row_bytes=n * item)
        here = Pattern(SBUF, of.dtype, (n, columns), (columns * item, item))
        bank = Pattern(PSUM, of.dtype, (columns, n), (n * item, item))
        there = Pattern(HBM, of.dtype, (n, columns), of.strides)
        part = Pattern(SBUF, to.dtype, (columns, n), to.strides)
        draft.put(
            i,
            i,
            OpSpec(dma.load.row, "dma", (here, there), 1, False, False, ()),
            [(tile, 0), (source, begin + r * of.strides[0])],
        )
        draft.put(
            i,
            i,
            OpSpec(pe.nc_transpose_pe.row, TENSOR, (bank, here), 1, False, False, ()),
            [(turned, 0), (tile, 0)],
        )
        draft.put(
            i,
            i,
            OpSpec(dve.tensor_copy.row, ANY, (part, bank), 1, False, False, ()),
            [(home, at + r * to.strides[1]), (turned, 0)],
        )
    draft.drop(i)
