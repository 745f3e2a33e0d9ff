"""Vector Engine: elementwise arithmetic, copies, reductions and scans (nki-spec 2.6)."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..chip import dtypes, ops, semantics
from ..chip.memory import PSUM, SBUF
from ..errors import fail
from ..machine import allocate
from ..machine.instruction import Instr
from ..machine.machine import Machine
from ..machine.tensor import Tensor
from . import formulas
from .operands import (
    check_bitvec,
    engine_name,
    is_scalar,
    not_both_psum,
    result_dtype,
    same_shape,
    split_vectors,
    values_of,
    vector,
)
from .table import ANY, GPSIMD, SCALAR, VECTOR, instruction

_F32 = dtypes.FLOAT32


def put(value: np.ndarray, dst: Tensor) -> None:
    """Write a computed value into the destination, cast to its dtype."""
    out = dst.np
    if value.shape != out.shape:
        value = np.broadcast_to(value, out.shape) if value.size != out.size \
            else value.reshape(out.shape)
    dtypes.cast(value, dst.dtype, out=out)


def _alu(op: ops.AluOp, a: Any, b: Any, dst: Tensor) -> None:
    """Apply an ALU operator; straight into `dst` when everything is float32."""
    out = dst.np
    if out.dtype == np.float32 and dst.dtype == _F32 and op.kind == "arith":
        op.fn(a, b, out=out)
    else:
        put(np.asarray(op.fn(a, b)), dst)


# -- copies and constants -------------------------------------------------------------------

def _run_copy(m: Machine, ins: Instr, dst: Tensor) -> None:
    dtypes.cast(ins.srcs[0].np, dst.dtype, out=dst.np)


@instruction("tensor_copy", engines=(VECTOR, SCALAR, GPSIMD), run=_run_copy,
             cost=formulas.fast_copy,
             source="Neuron SDK 2.26 API reference: nisa.tensor_copy")
def tensor_copy(m: Machine, src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = 0,
                dst: Any = None) -> Instr:
    """Copy a tile within SBUF and PSUM, casting to `dtype` if given."""
    t = m.tile(src, "src")
    ins = Instr((t,), t.shape, result_dtype(dtype, t), dst=dst,
                engine=engine_name(engine, (VECTOR, SCALAR, GPSIMD), "nisa.tensor_copy",
                                   t.kind is PSUM) or ANY)
    if mask is not None:
        m.mask(ins, mask, t.shape)
    return ins


def _run_memset(m: Machine, ins: Instr, dst: Tensor) -> None:
    value = ins.params
    if dtypes.is_int(dst.dtype) and isinstance(value, (int, np.integer)):
        dst.np[...] = np.array(value).astype(dst.dtype)
    else:
        dst.np[...] = dtypes.cast(np.float32(value).reshape(1), dst.dtype)[0]


# AWS's own simulator and doc tests let constants start at any partition
@instruction("memset", engines=(VECTOR, GPSIMD), run=_run_memset, on_partitions=False,
             cost=formulas.fill,
             source="Neuron SDK 2.26 API reference: nisa.memset")
def memset(m: Machine, shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = 0,
           dst: Any = None) -> Instr:
    """Return an SBUF tile filled with a number; dim 0 of `shape` is the partition dim."""
    dims = tuple(int(n) for n in allocate.sizes(shape))
    dt = result_dtype(dtype)  if dtype is not None else _F32
    if not is_scalar(value):
        raise fail("NKI-S09", "nisa.memset fills with a number", given=type(value).__name__)
    if dst is None:
        allocate.check_tile(m.hw, SBUF, dims, dt)
    ins = Instr((), dims, dt, dst=dst, params=value, extra=(float(value) == 0.0,),
                engine=engine_name(engine, (VECTOR, GPSIMD), "nisa.memset"))
    if mask is not None:
        m.mask(ins, mask, dims)
    return ins


def _run_predicated(m: Machine, ins: Instr, dst: Tensor) -> None:
    pred = ins.srcs[0].np != 0
    if ins.params["reverse"]:
        pred = ~pred
    value = ins.params["scalar"] if len(ins.srcs) == 1 else ins.srcs[1].np
    value = dtypes.cast(np.asarray(value, dtype=np.float32).reshape(-1), dst.dtype)[0] \
        if len(ins.srcs) == 1 else value
    np.copyto(dst.np, value, where=np.broadcast_to(pred.reshape(
        pred.shape if pred.ndim == dst.np.ndim else dst.np.shape), dst.np.shape))


@instruction("tensor_copy_predicated", engines=(VECTOR,), run=_run_predicated,
             cost=formulas.predicated, merges=True,
             source="Neuron SDK 2.26 API reference: nisa.tensor_copy_predicated")
def tensor_copy_predicated(m: Machine, *, src: Any, dst: Any, predicate: Any,
                           reverse_pred: bool = False, mask: Any = None, dtype: Any = None
                           ) -> Instr:
    """Copy `src` (tile or number) into `dst` where `predicate` is not zero."""
    out, pred = m.tile(dst, "dst"), m.tile(predicate, "predicate")
    srcs: tuple[Tensor, ...] = (pred,)
    if not is_scalar(src):
        s = m.tile(src, "src")
        not_both_psum(s, pred, ("src", "predicate"), "nisa.tensor_copy_predicated")
        same_shape(s, out, ("src", "dst"), "nisa.tensor_copy_predicated")
        srcs = (pred, s)
    ins = Instr(srcs, out.shape, out.dtype, dst=out,
                params={"reverse": bool(reverse_pred), "scalar": src})
    if mask is not None:
        m.mask(ins, mask, out.shape)
    return ins


# -- elementwise arithmetic ---------------------------------------------------------------------

def _run_tensor_tensor(m: Machine, ins: Instr, dst: Tensor) -> None:
    a, b = ins.srcs[0].np, ins.srcs[1].np
    op = ins.params
    if op.kind == "arith" and not (ins.engine == GPSIMD and op.name in ("add", "subtract",
                                                                        "multiply")):
        a, b = dtypes.as_float32(a), dtypes.as_float32(b)
    _alu(op, a, b, dst)


@instruction("tensor_tensor", engines=(VECTOR, GPSIMD), run=_run_tensor_tensor,
             cost=formulas.two_inputs,
             source="Neuron SDK 2.26 API reference: nisa.tensor_tensor")
def tensor_tensor(m: Machine, data1: Any, data2: Any, op: Any, *, dtype: Any = None,
                  mask: Any = None, engine: Any = 0) -> Instr:
    """Apply `op` to two tiles of the same shape, element by element, in float32."""
    a, b = m.tile(data1, "data1"), m.tile(data2, "data2")
    alu = ops.resolve_alu(op)
    a, b, shape = same_shape(a, b, ("data1", "data2"), "nisa.tensor_tensor")
    not_both_psum(a, b, ("data1", "data2"), "nisa.tensor_tensor")
    check_bitvec(alu, (a, b), "nisa.tensor_tensor")
    where = engine_name(engine, (VECTOR, GPSIMD), "nisa.tensor_tensor",
                        PSUM in (a.kind, b.kind))
    if not where and (alu.name == "power" or a.dtype == b.dtype and a.dtype.itemsize == 4
                      and dtypes.is_int(a.dtype) and alu.name in ("add", "subtract", "multiply")):
        where = GPSIMD                      # exact 32-bit integers need GpSimd
    ins = Instr((a, b), shape, result_dtype(dtype, a, b), engine=where, params=alu,
                extra=(alu.name,))
    if mask is not None:
        m.mask(ins, mask, shape)
    return ins


def _run_tensor_scalar(m: Machine, ins: Instr, dst: Tensor) -> None:
    steps, template = ins.params
    x: np.ndarray = ins.srcs[0].np
    values = values_of(ins, 1, template, x.ndim) if steps[0][0].kind == "arith" else \
        [v if v is not None else ins.srcs[k + 1].np.reshape((-1,) + (1,) * (x.ndim - 1))
         for k, v in enumerate(template)]
    if steps[0][0].kind == "arith":
        x = dtypes.as_float32(x)
        values = [np.float32(v) if is_scalar(v) else v for v in values]
    for k, (op, reverse) in enumerate(steps):
        v = values[k]
        if op.kind == "bitvec" and is_scalar(v):
            v = ops.bits(int(v), x.dtype)
        last = k == len(steps) - 1
        a, b = (v, x) if reverse else (x, v)
        if last:
            _alu(op, a, b, dst)
        else:
            x = np.asarray(op.fn(a, b))


@instruction("tensor_scalar", engines=(VECTOR, SCALAR, GPSIMD), run=_run_tensor_scalar,
             cost=formulas.fast_copy,
             source="Neuron SDK 2.26 API reference: nisa.tensor_scalar")
def tensor_scalar(m: Machine, data: Any, op0: Any, operand0: Any, reverse0: bool = False,
                  op1: Any = None, operand1: Any = None, reverse1: bool = False, *,
                  dtype: Any = None, mask: Any = None, engine: Any = 0) -> Instr:
    """Return (data op0 operand0) op1 operand1; operands are numbers or tiles of shape (P, 1)."""
    t = m.tile(data, "data")
    api = "nisa.tensor_scalar"
    steps = [(ops.resolve_alu(op0), bool(reverse0))]
    values = [vector(m, operand0, t.shape[0], "operand0", api)]
    if op1 is not None:
        steps.append((ops.resolve_alu(op1), bool(reverse1)))
        values.append(vector(m, operand1, t.shape[0], "operand1", api))
        if steps[0][0].kind != steps[1][0].kind:
            raise fail("NKI-E05", f"{api}: op0 and op1 are of different classes",
                       given=f"{steps[0][0].name} ({steps[0][0].kind}), "
                             f"{steps[1][0].name} ({steps[1][0].kind})",
                       limit="both bitvec or both arithmetic",
                       hint="make two calls")
    for op, _ in steps:
        check_bitvec(op, (t, *values), api)
    tiles, template = split_vectors(*values)
    where = engine_name(engine, (VECTOR, SCALAR, GPSIMD), api, t.kind is PSUM)
    if not where and any(op.name in ("rsqrt", "power") for op, _ in steps) and t.kind is not PSUM:
        where = GPSIMD
    dt = t.dtype if dtype is None and steps[0][0].kind == "bitvec" else \
        result_dtype(dtype, t, *values)
    ins = Instr((t, *tiles), t.shape, dt, engine=where, params=(steps, template),
                extra=tuple(op.name for op, _ in steps))
    if mask is not None:
        m.mask(ins, mask, t.shape)
        ins.srcs = (ins.srcs[0], *(_rows(s, ins) for s in tiles))
    return ins


def _rows(t: Tensor, ins: Instr) -> Tensor:
    """Narrow a (P, 1) operand to the partitions that a box mask leaves."""
    return t if ins.box is None or any(lo >= hi for lo, hi in ins.box) else \
        t.narrow([ins.box[0]] + [(0, 1)] * (len(t.shape) - 1))


def _run_scalar_tensor_tensor(m: Machine, ins: Instr, dst: Tensor) -> None:
    (op0, rev0, op1, rev1), template = ins.params
    x, y = dtypes.as_float32(ins.srcs[0].np), dtypes.as_float32(ins.srcs[1].np)
    v = values_of(ins, 2, template, x.ndim)[0]
    v = np.float32(v) if is_scalar(v) else v
    x = np.asarray(op0.fn(v, x) if rev0 else op0.fn(x, v))
    _alu(op1, *((y, x) if rev1 else (x, y)), dst)


@instruction("scalar_tensor_tensor", engines=(VECTOR,), run=_run_scalar_tensor_tensor,
             cost=formulas.scalar_two_inputs,
             source="Neuron SDK 2.26 API reference: nisa.scalar_tensor_tensor")
def scalar_tensor_tensor(m: Machine, *, data: Any, op0: Any, operand0: Any, op1: Any,
                         operand1: Any, reverse0: bool = False, reverse1: bool = False,
                         dtype: Any = None, mask: Any = None) -> Instr:
    """Return (data op0 operand0) op1 operand1: operand0 number or (P, 1), operand1 a tile."""
    api = "nisa.scalar_tensor_tensor"
    a, b = m.tile(data, "data"), m.tile(operand1, "operand1")
    a, b, shape = same_shape(a, b, ("data", "operand1"), api)
    not_both_psum(a, b, ("data", "operand1"), api)
    v = vector(m, operand0, a.shape[0], "operand0", api)
    tiles, template = split_vectors(v)
    alu0, alu1 = ops.resolve_alu(op0), ops.resolve_alu(op1)
    ins = Instr((a, b, *tiles), shape, result_dtype(dtype, a, b),
                params=((alu0, bool(reverse0), alu1, bool(reverse1)), template),
                extra=(alu0.name, alu1.name))
    if mask is not None:
        m.mask(ins, mask, shape)
    return ins


def _run_reciprocal(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(np.reciprocal(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction("reciprocal", engines=(VECTOR,), run=_run_reciprocal, cost=formulas.iterative,
             source="Neuron SDK 2.26 API reference: nisa.reciprocal")
def reciprocal(m: Machine, data: Any, *, dtype: Any = None, mask: Any = None) -> Instr:
    """Return 1 / data, precisely."""
    t = m.tile(data, "data")
    ins = Instr((t,), t.shape, result_dtype(dtype, t))
    if mask is not None:
        m.mask(ins, mask, t.shape)
    return ins


def _run_unary(m: Machine, ins: Instr, dst: Tensor) -> None:
    x = ins.srcs[0].np
    put(np.asarray(ins.params.fn(x if ins.params.name == "invert" else dtypes.as_float32(x))), dst)


@instruction("tensor_unary", engines=(VECTOR,), run=_run_unary, cost=formulas.fast_copy,
             source="Neuron SDK 2.26 API reference: nl.ceil, floor, trunc, negative, "
                    "invert (lowered to tensor_scalar)")
def tensor_unary(m: Machine, x: Any, op: Any, *, dtype: Any = None, mask: Any = None) -> Instr:
    """Apply a rounding, sign or bit function to a tile."""
    t = m.tile(x, "x")
    fn = ops.resolve_unary(op)
    ins = Instr((t,), t.shape, result_dtype(dtype, t), params=fn, extra=(fn.name,))
    if mask is not None:
        m.mask(ins, mask, t.shape)
    return ins


# -- reductions ------------------------------------------------------------------------------------

def reduced_axes(t: Tensor, axis: Any, api: str) -> tuple[int, ...]:
    """Return the free axes to reduce, as non-negative ints, or raise."""
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(t.shape)
    out = tuple(sorted({int(a) + rank if int(a) < 0 else int(a) for a in axes}))
    if not out or out[0] < 0 or out[-1] >= rank:
        raise fail("NKI-S10", f"{api}: axis is outside of the tile", given=f"axis {axis}",
                   limit=f"1 .. {rank - 1} (shape {t.shape})")
    if out[0] == 0:
        raise fail("NKI-S10", f"{api}: the partition dim cannot be reduced",
                   given=f"axis {axis} of shape {t.shape}", limit=f"free axes 1 .. {rank - 1}",
                   hint="reduce across partitions with a matmul by ones, a transpose, or "
                        "nisa.tensor_partition_reduce")
    return out


def reduced_shape(t: Tensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Return the result shape of a reduction; a tile keeps at least one free dim."""
    if keepdims:
        return tuple(1 if d in axes else n for d, n in enumerate(t.shape))
    shape = tuple(n for d, n in enumerate(t.shape) if d not in axes)
    return shape if len(shape) > 1 else (*shape, 1)


_FEW = 16               # elements that are reduced to one: below this, fold whole slices


def _reduce(ufunc: Any, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Reduce axes; NumPy is slow where few elements make one, as in a max pool."""
    if prod(x.shape[a] for a in axes) > _FEW:
        return ufunc.reduce(x, axis=axes)
    slices = np.moveaxis(x, axes, range(len(axes)))
    value: np.ndarray | None = None
    for at in np.ndindex(*(x.shape[a] for a in axes)):
        value = slices[at].copy() if value is None else ufunc(value, slices[at], out=value)
    assert value is not None
    return value


def _run_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    op, axes, negate = ins.params
    x = ins.srcs[0].np
    if op.name in ("maximum", "minimum", "add", "multiply") and op.ufunc is not None:
        x = dtypes.as_float32(x)
        value = _reduce(op.ufunc, x, axes)
        put(-value if negate else value, dst)
    else:
        put(semantics.reduce(op, x, axes, False, negate), dst)


@instruction("tensor_reduce", engines=(VECTOR,), run=_run_reduce, cost=formulas.reduction,
             source="Neuron SDK 2.26 API reference: nisa.tensor_reduce")
def tensor_reduce(m: Machine, op: Any, data: Any, axis: Any, *, mask: Any = None,
                  dtype: Any = None, negate: bool = False, keepdims: bool = False) -> Instr:
    """Reduce free axes of a tile with `op`; the reduced axes go unless `keepdims`."""
    t = m.tile(data, "data")
    alu = ops.resolve_alu(op)
    if not alu.reducible:
        raise fail("NKI-E06", f"nisa.tensor_reduce cannot reduce with nl.{alu.name}",
                   limit="add, subtract, multiply, max, min, bitwise and logical operators")
    axes = reduced_axes(t, axis, "nisa.tensor_reduce")
    ins = Instr((t,), reduced_shape(t, axes, keepdims), result_dtype(dtype, t),
                params=(alu, axes, negate), extra=(alu.name, axes))
    if mask is not None:
        m.mask(ins, mask, t.shape, keep=tuple(d for d in range(len(t.shape)) if d not in axes))
        if ins.box is not None and not keepdims and len(ins.box) < len(ins.shape):
            ins.box = [*ins.box, (0, 1)]
        elif ins.box is not None and keepdims:
            kept = iter(ins.box)
            ins.box = [(0, 1) if d in axes else next(kept) for d in range(len(t.shape))]
    return ins


def _fold(op: ops.AluOp, value: np.ndarray, dst: Tensor) -> None:
    """Write the reduction of a result over all its free dims into a (P, 1) tile."""
    dtypes.cast(semantics.accumulate(op, value).reshape(dst.np.shape), dst.dtype, out=dst.np)


def _run_tensor_scalar_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, reduce_op, template = ins.params
    x = dtypes.as_float32(ins.srcs[0].np)
    v = values_of(ins, 1, template, x.ndim)[0]
    value = np.asarray(op0.fn(x, np.float32(v) if is_scalar(v) else v))
    put(value, dst)
    _fold(reduce_op, value, ins.also[0])


@instruction("tensor_scalar_reduce", engines=(VECTOR,), run=_run_tensor_scalar_reduce,
             cost=formulas.with_read_out,
             source="Neuron SDK 2.26 API reference: nisa.tensor_scalar_reduce")
def tensor_scalar_reduce(m: Machine, *, data: Any, op0: Any, operand0: Any, reduce_op: Any,
                         reduce_res: Any, reverse0: bool = False, dtype: Any = None,
                         mask: Any = None) -> Instr:
    """Return data op0 operand0, and write its reduction over the free dims to `reduce_res`."""
    api = "nisa.tensor_scalar_reduce"
    t, res = m.tile(data, "data"), m.tile(reduce_res, "reduce_res")
    if reverse0:
        raise fail("NKI-E05", f"{api} does not support reverse0")
    v = vector(m, operand0, t.shape[0], "operand0", api)
    tiles, template = split_vectors(v)
    alu, red = ops.resolve_alu(op0), ops.resolve_alu(reduce_op)
    ins = Instr((t, *tiles), t.shape, result_dtype(dtype, t), also=(res,),
                params=(alu, red, template), extra=(alu.name, red.name))
    if mask is not None:
        m.mask(ins, mask, t.shape)
    return ins


# -- scans ----------------------------------------------------------------------------------------

def _run_scan(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, op1, rev0, rev1, template = ins.params
    initial = ins.srcs[2].np if template[0] is None else template[0]
    put(semantics.tensor_tensor_scan(ins.srcs[0].np, ins.srcs[1].np, initial, op0, op1, rev0,
                                     rev1), dst)


@instruction("tensor_tensor_scan", engines=(VECTOR,), run=_run_scan, cost=formulas.scan,
             source="Neuron SDK 2.26 API reference: nisa.tensor_tensor_scan")
def tensor_tensor_scan(m: Machine, data0: Any, data1: Any, initial: Any, op0: Any, op1: Any,
                       reverse0: bool = False, reverse1: bool = False, *, dtype: Any = None,
                       mask: Any = None) -> Instr:
    """Scan along the free dims: r[i] = (data0[i] op0 r[i-1]) op1 data1[i], r[-1] = initial."""
    api = "nisa.tensor_tensor_scan"
    a, b = m.tile(data0, "data0"), m.tile(data1, "data1")
    a, b, shape = same_shape(a, b, ("data0", "data1"), api)
    not_both_psum(a, b, ("data0", "data1"), api)
    start = vector(m, initial, a.shape[0], "initial", api)
    tiles, template = split_vectors(start)
    ins = Instr((a, b, *tiles), shape, result_dtype(dtype, a, b),
                params=(ops.resolve_alu(op0), ops.resolve_alu(op1), bool(reverse0),
                        bool(reverse1), template))
    if mask is not None:
        m.mask(ins, mask, shape)
    return ins
