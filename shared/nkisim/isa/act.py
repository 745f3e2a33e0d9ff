"""Scalar Engine: activation functions with scale, bias and reduction (nki-spec 2.5)."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops, semantics
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.machine import Machine
from ..machine.tensor import Tensor
from . import formulas
from .dve import put
from .operands import is_scalar, result_dtype, split_vectors, values_of
from .table import SCALAR, instruction

IDLE, RESET, REDUCE, RESET_REDUCE = 0, 1, 2, 3      # nisa.reduce_cmd


def _run_activation(m: Machine, ins: Instr, dst: Tensor) -> None:
    fn, template, reduce_op, cmd = ins.params
    x = dtypes.as_float32(ins.srcs[0].np)
    scale, bias = values_of(ins, 1, template, x.ndim)
    if not (is_scalar(scale) and scale == 1.0):
        x = x * (np.float32(scale) if is_scalar(scale) else scale)
    if not (is_scalar(bias) and bias == 0.0):
        x = x + bias
    if fn.low != -np.inf or fn.high != np.inf:
        bad = fn.outside(x)
        if bad.any():
            m.find("NKI-E07", "warning",
                   f"nl.{fn.name} is evaluated outside of its valid range "
                   f"[{fn.low:g}, {fn.high:g}]{' of |x|' if fn.by_magnitude else ''} for "
                   f"{int(bad.sum())} of {bad.size} elements (e.g. {float(x[bad][0]):g}); the "
                   "chip returns wrong values there without a sign", ins.line)
    value = np.asarray(fn.fn(x))
    put(value, dst)
    _reduce(m, value, reduce_op, cmd, ins.also)


def _reduce(m: Machine, value: np.ndarray, op: Any, cmd: int, also: tuple[Tensor, ...]) -> None:
    """Drive the accumulator registers: one float32 a partition, shared by all activations."""
    if cmd == IDLE and not also:
        return
    regs = m.accumulators.get("scalar")
    if regs is None:
        regs = m.accumulators["scalar"] = np.zeros((m.hw.pmax, 1), dtype=np.float32)
    n = value.shape[0]
    if cmd in (RESET, RESET_REDUCE):
        regs[:] = 0
    if cmd in (REDUCE, RESET_REDUCE):
        regs[:n] = regs[:n] + semantics.accumulate(op, value)
    for t in also:
        dtypes.cast(regs[:t.shape[0]].reshape(t.np.shape), t.dtype, out=t.np)


def _vector(m: Machine, x: Any, partitions: int, what: str) -> Tensor:
    t = m.tile(x, what)
    if t.shape[0] != partitions or t.size != partitions:
        raise fail("NKI-E09" if what == "scale" else "NKI-E08",
                   f"activation {what} is not a vector of one element a partition",
                   given=f"shape {t.shape}", limit=f"({partitions}, 1)")
    return t


def _plan(m: Machine, op: Any, data: Any, bias: Any, scale: Any, reduce_op: Any, reduce_res: Any,
          cmd: int, mask: Any, dtype: Any) -> Instr:
    t = m.tile(data, "data")
    fn = ops.resolve_act(op)
    b: Any = 0.0
    if bias is not None:
        if is_scalar(bias):
            raise fail("NKI-E08", "activation bias is a number", given=f"bias={bias}",
                       limit="a vector of shape (P, 1) in float32, bfloat16 or float16, or None",
                       hint="make one: nl.full((128, 1), value, dtype=nl.float32)")
        b = _vector(m, bias, t.shape[0], "bias")
        if not dtypes.is_float(b.dtype) or b.dtype.itemsize == 1:
            raise fail("NKI-E08", "activation bias is not of a float dtype",
                       given=dtypes.name(b.dtype), limit="float32, bfloat16, float16")
    elif m.direct:
        raise fail("NKI-A08", "an activation without bias in a kernel that allocates directly",
                   limit="the compiler would have to place a zero vector for it",
                   hint="allocate a (128, 1) tile, set it to 0 and pass it as bias=")
    s: Any = scale
    if not is_scalar(scale):
        if not isinstance(scale, Tensor):
            m.tile(scale, "scale")
        s = _vector(m, scale, t.shape[0], "scale")
        if s.dtype != dtypes.FLOAT32:
            raise fail("NKI-E10", "activation scale tile is not float32",
                       given=dtypes.name(s.dtype), limit="a number, or a float32 tile (P, 1)")
    if fn.name == "reciprocal" and bias is not None and not m.hw.reciprocal_with_bias:
        raise fail("NKI-E08", f"nl.reciprocal takes no bias on {m.hw.name}",
                   hint="add first, or use nisa.reciprocal")
    tiles, template = split_vectors(s, b)
    also: tuple[Tensor, ...] = ()
    red = None
    if reduce_res is not None:
        also = (_vector(m, reduce_res, t.shape[0], "reduce_res"),)
    if cmd in (REDUCE, RESET_REDUCE):
        red = ops.resolve_alu(reduce_op if reduce_op is not None else "add")
        if red.name != "add":
            raise fail("NKI-E06", "an activation can only add up its results",
                       given=f"reduce_op={red.name}", limit="reduce_op=np.add")
    ins = Instr((t, *tiles), t.shape, result_dtype(dtype, t), also=also,
                params=(fn, template, red, cmd), extra=(fn.name, bool(also)))
    if mask is not None:
        m.mask(ins, mask, t.shape)
    return ins


@instruction("activation", engines=(SCALAR,), run=_run_activation, cost=formulas.with_read_out,
             act_table=True,
             source="Neuron SDK 2.26 API reference: nisa.activation")
def activation(m: Machine, op: Any, data: Any, *, bias: Any = None, scale: Any = 1.0,
               reduce_op: Any = None, reduce_res: Any = None, reduce_cmd: Any = 0,
               mask: Any = None, dtype: Any = None) -> Instr:
    """Return op(data * scale + bias); scale number or float32 (P, 1), bias (P, 1) or None.

    `reduce_cmd` drives the per-partition accumulators, which `reduce_res` (P, 1) reads out.
    """
    return _plan(m, op, data, bias, scale, reduce_op, reduce_res, int(reduce_cmd), mask, dtype)


@instruction("activation_reduce", engines=(SCALAR,), run=_run_activation,
             cost=formulas.with_read_out, act_table=True,
             source="Neuron SDK 2.26 API reference: nisa.activation_reduce")
def activation_reduce(m: Machine, op: Any, data: Any, *, reduce_op: Any, reduce_res: Any,
                      bias: Any = None, scale: Any = 1.0, mask: Any = None, dtype: Any = None
                      ) -> Instr:
    """Return op(data * scale + bias) and write the sum over its free dims to `reduce_res`."""
    return _plan(m, op, data, bias, scale, reduce_op, reduce_res, RESET_REDUCE, mask, dtype)
