"""Copies on chip that start where data says: nisa.tensor_copy_dynamic_src and _dst."""

from __future__ import annotations

from typing import Any

from ..chip import dtypes
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas
from .cheaper import ENGINE
from .dma import raise_out_of_bound, scatter
from .masks import NOTHING
from .operands import UPDATE, RuntimeOffset, Tile, result_dtype
from .table import ANY, GPSIMD, SCALAR, VECTOR, instruction
from .variants import Access

_ENGINES = (VECTOR, SCALAR, GPSIMD)


def _run_src(m: Machine, ins: Instr, dst: Tensor) -> None:
    src = ins.params
    flat, valid = src.flat()
    if not valid.all():
        raise_out_of_bound(src, flat, valid)
    data = src.base.storage.elements(src.dtype)
    dtypes.cast(data[flat], dst.dtype, out=dst.np)


@instruction(
    "tensor_copy_dynamic_src",
    public="nisa.tensor_copy_dynamic_src",
    engines=_ENGINES,
    default=ANY,
    operands=(RuntimeOffset("src"),),
    mask_mode=NOTHING,
    run=_run_src,
    cost=formulas.dynamic_copy,
    cheaper=(ENGINE,),
    source="Neuron SDK 2.26 API reference: nisa.tensor_copy_dynamic_src",
)
def tensor_copy_dynamic_src(
    m: Machine, src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = 0
) -> Instr:
    """Copy a tile within SBUF and PSUM from an offset that is an element of an SBUF tile."""
    base = m.tile(src.base, "src")
    return Instr(
        src.shape,
        result_dtype(dtype, base),
        srcs=(base, src.rows),
        params=src,
        variant=Access(indirect=True),
    )


def _run_dst(m: Machine, ins: Instr, dst: Tensor) -> None:
    scatter(m, ins.params, ins.srcs[0].np, mask=ins.mask, line=ins.line)


@instruction(
    "tensor_copy_dynamic_dst",
    public="nisa.tensor_copy_dynamic_dst",
    engines=_ENGINES,
    default=ANY,
    operands=(RuntimeOffset("dst", UPDATE), Tile("src")),
    run=_run_dst,
    masks_itself=True,
    cost=formulas.dynamic_copy,
    cheaper=(ENGINE,),
    source="Neuron SDK 2.26 API reference: nisa.tensor_copy_dynamic_dst",
)
def tensor_copy_dynamic_dst(
    m: Machine, *, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Any = 0
) -> Instr:
    """Copy a tile within SBUF and PSUM to an offset that is an element of an SBUF tile."""
    if src.size != dst.size:
        raise fail(
            "NKI-S01",
            "nisa.tensor_copy_dynamic_dst: destination and value have different shapes",
            given=f"destination {dst.shape}, value {src.shape}",
            limit="equal shapes",
        )
    return Instr(
        dst.base.shape,
        dst.dtype,
        srcs=(src.reshape(dst.shape), dst.rows),
        dst=dst.base,
        params=dst,
        variant=Access(indirect=True, scatter=True),
        grid=dst.shape,
    )
