"""Copies on chip that start where data says: nisa.tensor_copy_dynamic_src and _dst."""
from __future__ import annotations

from typing import Any

from ..chip import dtypes
from ..chip.memory import HBM
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.machine import Machine
from ..machine.tensor import Indirect, Tensor
from . import formulas
from .dma import raise_out_of_bound, scatter
from .operands import engine_name, result_dtype
from .table import ANY, GPSIMD, SCALAR, VECTOR, instruction

_ENGINES = (VECTOR, SCALAR, GPSIMD)


def _dynamic(x: Any, name: str, api: str) -> Indirect:
    """Return an operand on chip that a run-time offset subscripts, or raise."""
    if isinstance(x, Indirect) and x.kind is not HBM and x.rows.size == 1:
        return x
    raise fail("NKI-I11", f"operand {name} of {api} has no run-time offset",
               given=f"{x!r}"[:90] if isinstance(x, Tensor) else type(x).__name__,
               limit="a tile in SBUF or PSUM, subscripted in a free dim by one element of an SBUF "
                     "tile of integers",
               hint="t[i_p, offsets[0, k] + i_f], or nisa.tensor_copy if nothing depends on data")


def _run_src(m: Machine, ins: Instr, dst: Tensor) -> None:
    src = ins.params
    flat, valid = src.flat()
    if not valid.all():
        raise_out_of_bound(src.base, flat, valid)
    data = src.base.storage.data.view(dtypes.storage(src.dtype))
    dtypes.cast(data[flat], dst.dtype, out=dst.np)


@instruction("tensor_copy_dynamic_src", engines=_ENGINES, run=_run_src, cost=formulas.dynamic_copy,
             source="Neuron SDK 2.26 API reference: nisa.tensor_copy_dynamic_src")
def tensor_copy_dynamic_src(m: Machine, src: Any, *, mask: Any = None, dtype: Any = None,
                            engine: Any = 0) -> Instr:
    """Copy a tile within SBUF and PSUM from an offset that is an element of an SBUF tile."""
    api = "nisa.tensor_copy_dynamic_src"
    at = _dynamic(src, "src", api)
    base = m.tile(at.base, "src")
    ins = Instr((base, at.rows), at.shape, result_dtype(dtype, base), params=at,
                extra=("indirect",), engine=engine_name(engine, _ENGINES, api) or ANY)
    if mask is not None:
        m.mask(ins, mask, at.shape, cut=False)
    return ins


def _run_dst(m: Machine, ins: Instr, dst: Tensor) -> None:
    scatter(m, ins.params, ins.srcs[0].np, False, False)


@instruction("tensor_copy_dynamic_dst", engines=_ENGINES, run=_run_dst, cost=formulas.dynamic_copy,
             merges=True, source="Neuron SDK 2.26 API reference: nisa.tensor_copy_dynamic_dst")
def tensor_copy_dynamic_dst(m: Machine, *, dst: Any, src: Any, mask: Any = None,
                            dtype: Any = None, engine: Any = 0) -> Instr:
    """Copy a tile within SBUF and PSUM to an offset that is an element of an SBUF tile."""
    api = "nisa.tensor_copy_dynamic_dst"
    at, t = _dynamic(dst, "dst", api), m.tile(src, "src")
    if t.size != at.size:
        raise fail("NKI-S01", f"{api}: destination and value have different shapes",
                   given=f"destination {at.shape}, value {t.shape}", limit="equal shapes")
    if mask is not None:
        raise fail("NKI-X02", "a mask on an indirect access is not modelled",
                   hint="cut the tile instead")
    return Instr((t.reshape(at.shape), at.rows), at.base.shape, at.dtype, dst=at.base,
                 kind=at.kind, params=at, extra=("indirect", "scatter"),
                 engine=engine_name(engine, _ENGINES, api) or ANY)
