"""Scalar Engine: activation functions with scale, bias and reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops, semantics
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas, integers, registers, sums
from .accumulators import IDLE, REDUCE, RESET, RESET_REDUCE, use
from .dve import lanes_of, put
from .operands import WRITE, Tile, Vector, is_scalar
from .table import SCALAR, instruction
from .variants import Activation


def _run_activation(m: Machine, ins: Instr, dst: Tensor) -> None:
    fn, reduce_op, cmd = ins.params
    data = dtypes.as_float32(ins.srcs[0].np)
    bias, scale = ins.scalar(0, data.ndim), ins.scalar(1, data.ndim)
    scratch = None  # x, if it is not shared
    if not (is_scalar(scale) and scale == 1.0):
        data = scratch = data * (np.float32(scale) if is_scalar(scale) else scale)
    if bias is not None:
        data = np.add(data, bias, out=scratch)
    if fn.low != -np.inf or fn.high != np.inf:
        bad = fn.outside(data)
        if bad.any():
            m.find(
                "NKI-E07",
                "warning",
                f"nl.{fn.name} is evaluated outside of its valid range "
                f"[{fn.low:g}, {fn.high:g}]{' of |x|' if fn.by_magnitude else ''} for "
                f"{int(bad.sum())} of {bad.size} elements (e.g. {float(data[bad][0]):g}); the "
                "chip returns wrong values there without a sign",
                ins.line,
            )
    out = dst.np
    if (
        dst.dtype == dtypes.FLOAT32
        and out.shape == data.shape
        and out.flags.c_contiguous
        and data.flags.c_contiguous
    ):  # NumPy may round in another way where they are not
        value = fn.fn(data, out=out)
    else:
        value = np.asarray(fn.fn(data))
        put(value, dst)
    _reduce(m, ins, value, reduce_op, cmd)


def _touches_no_register(ins: Instr) -> bool:
    return ins.params[2] == IDLE and not ins.also


def _reduce(m: Machine, ins: Instr, value: np.ndarray, op: Any, cmd: int) -> None:
    """Drive the accumulator registers: one float32 a partition, shared by all activations."""
    if cmd == IDLE and not ins.also:
        return
    regs = m.core.registers.accumulators.get("scalar")
    if regs is None:
        regs = m.core.registers.accumulators["scalar"] = np.zeros((m.hw.pmax, 1), dtype=np.float32)
    lanes = lanes_of(ins.srcs[0])
    if cmd in (RESET, RESET_REDUCE):
        regs[lanes] = 0
    if cmd in (REDUCE, RESET_REDUCE):
        regs[lanes] = semantics.accumulate(op, value, regs[lanes])
    for t in ins.also:
        put(regs[lanes], t)


def _command(ins: Instr) -> tuple[int, str]:
    return ins.params[2], "add"


def _plan(m: Machine, op: Any, bias: Any, reduce_op: Any, reduce_res: Any, cmd: int) -> Instr:
    fn = ops.resolve_act(op)
    if bias is None and m.memory.direct:
        raise fail(
            "NKI-A08",
            "an activation without bias in a kernel that allocates directly",
            limit="the compiler would have to place a zero vector for it",
            hint="allocate a (128, 1) tile, set it to 0 and pass it as bias=",
        )
    if fn.name == "reciprocal" and bias is not None and not m.hw.reciprocal_with_bias:
        raise fail(
            "NKI-E08",
            f"nl.reciprocal takes no bias on {m.hw.name}",
            hint="add first, or use nisa.reciprocal",
        )
    red = None
    if cmd in (REDUCE, RESET_REDUCE):
        red = ops.resolve_alu(reduce_op if reduce_op is not None else "add")
        if red.name != "add":
            raise fail(
                "NKI-E06",
                "an activation can only add up its results",
                given=f"reduce_op={red.name}",
                limit="reduce_op=np.add",
            )
    return Instr(
        params=(fn, red, cmd), variant=Activation(fn.name, use(cmd, reduce_res is not None))
    )


_BIAS = Vector(
    "bias",
    optional=True,
    dtypes="float16 or wider",
    nki_dtypes="all but tfloat32",
    like="data",
    rule="NKI-E08",
    dtype_rule="NKI-E08",
)
_SCALE = Vector(
    "scale", numbers=True, dtypes="float32", like="data", rule="NKI-E09", dtype_rule="NKI-E10"
)
_TRAITS: dict[str, Any] = dict(
    engines=(SCALAR,),
    run=_run_activation,
    exact=integers.activation,
    cost=formulas.with_read_out,
    promotes=("data",),
    deferrable=_touches_no_register,
    check=registers.register_check(SCALAR, _command, keeps=True),
)


@instruction(
    "activation",
    public="nisa.activation",
    **_TRAITS,
    nki="nisa.activation(dst, op, data, bias=None, scale=1.0, reduce_op=None, "
    "reduce_res=None, reduce_cmd=0)",
    operands=(Tile("data"), _BIAS, _SCALE, Vector("reduce_res", WRITE, optional=True, like="data")),
    sums=sums.REGISTERS,
    once_per_result=True,
    source="Neuron SDK 2.26 API reference: nisa.activation",
)
def activation(
    m: Machine,
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = 0,
    mask: Any = None,
    dtype: Any = None,
) -> Instr:
    """Return op(data * scale + bias); scale number or float32 (P, 1), bias (P, 1) or None.

    `reduce_cmd` drives the per-partition accumulators, which `reduce_res` (P, 1) reads out.
    """
    return _plan(m, op, bias, reduce_op, reduce_res, int(reduce_cmd))


@instruction(
    "activation_reduce",
    public="nisa.activation_reduce",
    **_TRAITS,
    nki="nisa.activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0)",
    operands=(Tile("data"), _BIAS, _SCALE, Vector("reduce_res", WRITE, like="data")),
    sums=sums.REGISTERS,
    source="Neuron SDK 2.26 API reference: nisa.activation_reduce",
)
def activation_reduce(
    m: Machine,
    op: Any,
    data: Any,
    *,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: Any = None,
    dtype: Any = None,
) -> Instr:
    """Return op(data * scale + bias) and write the sum over its free dims to `reduce_res`."""
    return _plan(m, op, bias, reduce_op, reduce_res, RESET_REDUCE)
