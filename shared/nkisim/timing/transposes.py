"""Transposing loads of 4-byte data: plain loads, and transposes on the Tensor Engine.

DMAs of AWS's compiler transpose 2-byte data alone. Published kernels have the same number of
transposes on the Tensor Engine whether they load float32 transposed or transpose it by themselves.
`nisa.dma_transpose` is taken to do the same (assumed: beta 1 refuses it, of the package nki no
profile is known). What comes out of SBUF stays with the DMA, two parts an element.
"""

from __future__ import annotations

from itertools import product

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF
from ..isa import dma, dve, pe
from ..isa.table import ANY, TENSOR
from ..trace.rewrite import Draft
from ..trace.trace import OpSpec, Pattern, Trace


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
        and to.shape == (of.shape[-1], *of.shape[1:-1], of.shape[0])
        and to.dtype.itemsize == of.dtype.itemsize > hw.timing.dma_transpose_bytes
    )


def _replace(draft: Draft, i: int, hw: NeuronCore) -> None:
    """Load up to 128 rows at a time, transpose them, and copy them to where they belong.

    The first dim and the last one change places; those between them stay, one matrix each.
    """
    to, of = draft.spec_of(i).operands
    (home, at), (source, begin) = (draft.operand(i, j) for j in (0, 1))
    rows, *between, columns = of.shape
    item = of.dtype.itemsize
    for where in product(*map(range, between)):
        into, out_of = (sum(k * step for k, step in zip(where, p.strides[1:-1])) for p in (to, of))
        for r in range(0, rows, hw.pmax):
            n = min(hw.pmax, rows - r)
            tile = draft.storage(home, SBUF, nparts=n, row_bytes=columns * item)
            turned = draft.storage(home, PSUM, nparts=columns, row_bytes=n * item)
            here = Pattern(SBUF, of.dtype, (n, columns), (columns * item, item))
            bank = Pattern(PSUM, of.dtype, (columns, n), (n * item, item))
            there = Pattern(HBM, of.dtype, (n, columns), (of.strides[0], of.strides[-1]))
            part = Pattern(SBUF, to.dtype, (columns, n), (to.strides[0], to.strides[-1]))
            draft.put(
                i,
                i,
                OpSpec(dma.load.row, "dma", (here, there), 1, False, False, ()),
                [(tile, 0), (source, begin + out_of + r * of.strides[0])],
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
                [(home, at + into + r * to.strides[-1]), (turned, 0)],
            )
    draft.drop(i)
