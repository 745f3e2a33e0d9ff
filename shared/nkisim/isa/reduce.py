"""Vector Engine: reductions, scans and statistics along the free dims."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..chip import dtypes, ops, semantics
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.limits import integer
from ..machine.overflow import exact
from ..machine.tensor import Tensor
from . import formulas, integers, registers, sums
from .accumulators import drive, use
from .cheaper import REDUCTION
from .dve import in_order, lanes_of, put
from .operands import WRITE, Tile, Vector, arithmetic, check_bitvec, is_scalar, per_partition
from .table import VECTOR, always, instruction
from .variants import Ops, Reduction


def reduced_axes(t: Tensor, axis: Any, api: str) -> tuple[int, ...]:
    """Return the free axes to reduce, as non-negative ints, or raise."""
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(t.shape)
    if any(isinstance(a, Tensor) for a in axes):
        raise fail(
            "NKI-S10",
            f"{api}: a tile is given as the axis",
            given=f"axis {axes[0]!r}",
            limit=f"a number or a tuple of numbers, 1 .. {rank - 1}",
            hint="nl.maximum(a, b), nl.minimum(a, b) and nl.add(a, b) work on two tiles; "
            "nl.max, nl.min and nl.sum reduce one",
        )
    whole = [integer(a, "an axis") for a in axes]
    out = tuple(sorted({a + rank if a < 0 else a for a in whole}))
    if not out or out[0] < 0 or out[-1] >= rank:
        raise fail(
            "NKI-S10",
            f"{api}: axis is outside of the tile",
            given=f"axis {axis}",
            limit=f"1 .. {rank - 1} (shape {t.shape})",
        )
    if out[0] == 0:
        raise fail(
            "NKI-S10",
            f"{api}: the partition dim cannot be reduced",
            given=f"axis {axis} of shape {t.shape}",
            limit=f"free axes 1 .. {rank - 1}",
            hint="axis=1 reduces each row; across rows, the partitions, a matmul by ones, a "
            "transpose, or nisa.tensor_partition_reduce",
        )
    return out


def _result_dims(rank: int, axes: tuple[int, ...], keepdims: bool) -> tuple[int | None, ...]:
    """Return for each dim of a reduction's result which dim of the tile it is, or None."""
    if keepdims:
        return tuple(None if d in axes else d for d in range(rank))
    left = tuple(d for d in range(rank) if d not in axes)
    return left if len(left) > 1 else (*left, None)  # a tile keeps at least one free dim


_FEW = 16  # elements that NumPy is slow to reduce to one, as in a max pool

#: What an element that a mask leaves out counts as.
_NOTHING = {
    "add": 0.0,
    "multiply": 1.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "logical_and": 1.0,
    "logical_or": 0.0,
    "logical_xor": 0.0,
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
}


def _run_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    op, axes, negate = ins.params
    data = ins.srcs[0].np
    if ins.over is not None:
        data = data if op.kind == "bitvec" else dtypes.as_float32(data)
        data = np.where(ins.over, data, np.array(_NOTHING[op.name]).astype(data.dtype))
    if op.name in ("maximum", "minimum", "add", "multiply") and op.ufunc is not None:
        data, short = dtypes.as_float32(data), prod(data.shape[a] for a in axes) <= _FEW
        value = (
            semantics.fold(op.ufunc, data, axes)
            if short or op.name in ("add", "multiply")
            else op.ufunc.reduce(data, axis=axes)
        )  # the order does not matter
        put(-value if negate else value, dst)
    else:
        put(semantics.reduce(op, data, axes, False, negate), dst)


def _exact_reduce(m: Machine, ins: Instr) -> np.ndarray | None:
    op, axes, negate = ins.params
    if op.name not in ("add", "multiply") or ins.over is not None:
        return None
    value = op.ufunc.reduce(exact(ins.srcs[0]), axis=axes)
    return -value if negate else value


@instruction(
    "tensor_reduce",
    public="nisa.tensor_reduce",
    engines=(VECTOR,),
    nki="nisa.tensor_reduce(dst, op, data, axis, negate=False, keepdims=False)",
    operands=(Tile("data"),),
    promotes=("data",),
    run=_run_reduce,
    exact=_exact_reduce,
    deferrable=always,
    cost=formulas.reduction,
    cheaper=REDUCTION,
    skips=lambda ins: ins.params[0].name in _NOTHING,
    sums=sums.IN_ORDER,
    source="Neuron SDK 2.26 API reference: nisa.tensor_reduce",
)
def tensor_reduce(
    m: Machine,
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
) -> Instr:
    """Reduce free axes of a tile with `op`; the reduced axes go unless `keepdims`."""
    alu = ops.resolve_alu(op)
    if not alu.reducible:
        raise fail(
            "NKI-E06",
            f"nisa.tensor_reduce cannot reduce with nl.{alu.name}",
            limit="add, subtract, multiply, max, min, bitwise and logical operators",
        )
    check_bitvec(alu, (data,), "nisa.tensor_reduce", dtype)
    if negate and alu.kind == "bitvec":
        raise fail(
            "NKI-E05",
            "nisa.tensor_reduce negates numbers, not raw bits",
            given=f"negate=True with nl.{alu.name}",
            limit="negate with arithmetic operators",
            hint="invert the result in a step of its own: nl.invert(x)",
        )
    axes = reduced_axes(data, axis, "nisa.tensor_reduce")
    kept = _result_dims(len(data.shape), axes, keepdims)
    return Instr(
        tuple(1 if d is None else data.shape[d] for d in kept),
        params=(alu, axes, negate),
        variant=Reduction(alu.name, axes),
        grid=data.shape,
        kept=kept,
    )


#: how the accumulators reduce what tensor_scalar_reduce computes
_REGISTERS = ("add", "multiply", "maximum", "minimum")


def _run_tensor_scalar_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, reduce_op, reverse, cmd, negate = ins.params
    data = dtypes.as_float32(ins.srcs[0].np)
    v = ins.scalar(0, data.ndim)
    v = np.float32(v) if is_scalar(v) else v
    value = np.asarray(op0.fn(v, data) if reverse else op0.fn(data, v))
    put(value, dst)
    if not m.dialect.sums_in_registers:
        put(semantics.accumulate(reduce_op, value), ins.also[0])
        return
    load = ins.scalar(1, 2)
    reduced = drive(m, VECTOR, ins, value, reduce_op, cmd, 0.0 if load is None else load)
    for t in ins.also:
        put(-reduced if negate else reduced, t)


@instruction(
    "tensor_scalar_reduce",
    public="nisa.tensor_scalar_reduce",
    engines=(VECTOR,),
    operands=(
        Tile("data"),
        Vector("operand0", numbers=True, like="data"),
        Vector("reduce_init", numbers=True, optional=True, like="data"),
        Vector("reduce_res", WRITE, like="data"),
    ),
    nki="nisa.tensor_scalar_reduce(dst, data, op0, operand0, reduce_op, reduce_res=None, "
    "reverse0=False, reduce_cmd=3, reduce_init=None, reduce_res_negate=False)",
    hidden=("reduce_cmd", "reduce_init", "reduce_res_negate"),
    promotes=("data",),
    run=_run_tensor_scalar_reduce,
    exact=integers.tensor_scalar_reduce,
    check=registers.register_check(VECTOR, lambda i: (i.params[3], i.params[1].name)),
    cost=formulas.with_read_out,
    sums=sums.REGISTERS,
    source="Neuron SDK 2.26 API reference: nisa.tensor_scalar_reduce",
)
def tensor_scalar_reduce(
    m: Machine,
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
    reduce_cmd: Any = 3,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
) -> Instr:
    """Return data op0 operand0, and write its reduction over the free dims to `reduce_res`."""
    if reverse0 and not m.dialect.sums_in_registers:
        raise fail("NKI-E05", "nisa.tensor_scalar_reduce does not support reverse0")
    alu = arithmetic(op0, "nisa.tensor_scalar_reduce")
    red = arithmetic(reduce_op, "nisa.tensor_scalar_reduce")
    if not red.reducible or m.dialect.sums_in_registers and red.name not in _REGISTERS:
        raise fail(
            "NKI-E06",
            "nisa.tensor_scalar_reduce cannot reduce with this operator",
            given=f"reduce_op=nl.{red.name}",
            limit=", ".join(_REGISTERS),
        )
    return Instr(
        params=(alu, red, bool(reverse0), int(reduce_cmd), bool(reduce_res_negate)),
        variant=Ops(alu.name, red.name, use(int(reduce_cmd), reduce_res is not None)),
    )


# -- scans ----------------------------------------------------------------------------------------


def _run_scan(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, op1, rev0, rev1 = ins.params
    number, at = ins.scalars[0]
    initial = number if at < 0 else ins.srcs[at].np
    put(
        semantics.tensor_tensor_scan(
            ins.srcs[0].np, in_order(ins, 1), initial, op0, op1, rev0, rev1
        ),
        dst,
    )


@instruction(
    "tensor_tensor_scan",
    public="nisa.tensor_tensor_scan",
    engines=(VECTOR,),
    nki="nisa.tensor_tensor_scan(dst, data0, data1, initial, op0, op1, "
    "reverse0=False, reverse1=False)",
    operands=(
        Tile("data0"),
        Tile("data1", like="data0"),
        Vector("initial", numbers=True, like="data0"),
    ),
    one_psum=("data0", "data1"),
    promotes=("data0", "data1"),
    run=_run_scan,
    exact=integers.tensor_tensor_scan,
    cost=formulas.scan,
    sums=sums.RECURRENCE,
    source="Neuron SDK 2.26 API reference: nisa.tensor_tensor_scan",
)
def tensor_tensor_scan(
    m: Machine,
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
) -> Instr:
    """Scan along the free dims: r[i] = (data0[i] op0 r[i-1]) op1 data1[i], r[-1] = initial.

    The tiles have as many partitions and as many elements per partition, taken in order.
    """
    api = "nisa.tensor_tensor_scan"
    return Instr(
        params=(arithmetic(op0, api), arithmetic(op1, api), bool(reverse0), bool(reverse1))
    )


def _run_cumulative(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, op1, cmd = ins.params
    data = ins.srcs[0]
    regs = m.core.registers.accumulators.get(VECTOR)
    if regs is None:
        regs = m.core.registers.accumulators[VECTOR] = np.zeros((m.hw.pmax, 1), dtype=np.float32)
    lanes = lanes_of(data)
    state: Any = {2: regs[lanes], 4: ins.scalar(1, 2)}.get(cmd)  # None: start anew
    out, regs[lanes] = semantics.tensor_scalar_cumulative(
        data.np, op0, ins.scalar(0, 2), op1, state
    )
    put(out, dst)


@instruction(
    "tensor_scalar_cumulative",
    public="nisa.tensor_scalar_cumulative",
    nki="nisa.tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1=None, reduce_cmd=3)",
    engines=(VECTOR,),
    operands=(
        Tile("dst", WRITE, dtypes="float or narrow"),
        Tile("src", like="dst", dtypes="float or narrow"),
        Vector("imm0", numbers=True, like="src"),
        Vector("imm1", numbers=True, optional=True, like="src"),
    ),
    run=_run_cumulative,
    exact=integers.tensor_scalar_cumulative,
    check=registers.register_check(VECTOR, lambda i: (i.params[2], i.params[1].name)),
    cost=formulas.scan,
    sums=sums.RECURRENCE,
    source="Neuron SDK 2.27 API reference: nisa.tensor_scalar_cumulative",
)
def tensor_scalar_cumulative(
    m: Machine,
    *,
    src: Any,
    dst: Any,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: Any = 3,
    dtype: Any = None,
    mask: Any = None,
) -> Instr:
    """Write the running op1 of (src op0 imm0) along the free dims.

    `reduce_cmd`: reset_reduce starts anew, reduce goes on from the last state, load_reduce
    starts from `imm1`.
    """
    cmd = int(reduce_cmd)
    if cmd == 4 and imm1 is None:
        raise fail("NKI-S09", "nisa.tensor_scalar_cumulative: load_reduce needs imm1")
    alus = ops.resolve_alu(op0), ops.resolve_alu(op1)
    return Instr(params=(*alus, cmd), variant=Ops(alus[0].name, alus[1].name, use(cmd, False)))


# -- statistics -------------------------------------------------------------------------------


def _run_bn_stats(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.bn_stats(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction(
    "bn_stats",
    public="nisa.bn_stats",
    engines=(VECTOR,),
    nki="nisa.bn_stats(dst, data)",
    operands=(Tile("data", elements=(1, "bn_stats_fmax")),),
    promotes=("data",),
    run=_run_bn_stats,
    cost=formulas.stream,
    sums=sums.STATISTICS,
    source="Neuron SDK 2.26 API reference: nisa.bn_stats",
)
def bn_stats(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Return count, mean and variance*count of the even, then of the odd elements: (P, 6)."""
    return Instr((data.shape[0], 6), grid=data.shape, kept=(0, None))


def _run_bn_aggr(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.bn_aggr(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction(
    "bn_aggr",
    public="nisa.bn_aggr",
    engines=(VECTOR,),
    operands=(Tile("data"),),
    nki="nisa.bn_aggr(dst, data)",
    promotes=("data",),
    run=_run_bn_aggr,
    cost=formulas.statistics,
    sums=sums.TRIPLES,
    source="Neuron SDK 2.26 API reference: nisa.bn_aggr",
)
def bn_aggr(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Combine triples of bn_stats (P, 3k) into mean and variance: (P, 2)."""
    if per_partition(data) % 3:
        raise fail(
            "NKI-P08",
            "nisa.bn_aggr takes triples",
            given=f"{per_partition(data)} elements",
            limit="a multiple of 3 per partition",
        )
    return Instr((data.shape[0], 2), grid=data.shape, kept=(0, None))
