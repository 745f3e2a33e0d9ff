"""Vector Engine: searching, selection and moves between partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops, semantics
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.limits import integer
from ..machine.tensor import Tensor
from . import formulas, integers, registers
from .accumulators import use
from .dve import in_order, lanes_of, put
from .masks import NOTHING, PARTITIONS
from .operands import NKI_ONLY, UPDATE, WRITE, Operand, Tile, Vector, note_dtype
from .table import VECTOR, instruction
from .variants import Ops

LONGEST = 16384  # elements per partition that a search goes through (nisa.max8)


def _eight(name: str, role: str = "read", **traits: Any) -> Operand:
    """Declare a tile of 8 elements a partition."""
    return Tile(name, role, elements=(8, 8), lanes=True, like="data", **traits)


def _run_max8(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.max8(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction(
    "max8",
    public="nisa.max8",
    engines=(VECTOR,),
    nki="nisa.max8(dst, src)",
    operands=(Tile("src", elements=(8, LONGEST)),),
    promotes=("src",),
    run=_run_max8,
    cost=formulas.stream,
    source="Neuron SDK 2.26 API reference: nisa.max8",
)
def max8(m: Machine, *, src: Any, mask: Any = None, dtype: Any = None) -> Instr:
    """Return the 8 largest values of each partition, in descending order, as (P, 8)."""
    return Instr((src.shape[0], 8), grid=src.shape, kept=(0, None))


def _run_find_index8(m: Machine, ins: Instr, dst: Tensor) -> None:
    index = semantics.find_index8(
        dtypes.as_float32(ins.srcs[0].np), dtypes.as_float32(ins.srcs[1].np)
    )
    dst.np[...] = index.reshape(dst.np.shape).astype(dst.np.dtype)


@instruction(
    "nc_find_index8",
    public="nisa.nc_find_index8",
    engines=(VECTOR,),
    nki="nisa.nc_find_index8(dst, data, vals)",
    operands=(Tile("data", elements=(8, LONGEST)), _eight("vals")),
    run=_run_find_index8,
    cost=formulas.stream,
    source="Neuron SDK 2.26 API reference: nisa.nc_find_index8",
)
def nc_find_index8(
    m: Machine, *, data: Any, vals: Any, mask: Any = None, dtype: Any = None
) -> Instr:
    """Return where each of the 8 `vals` of a partition first occurs in `data`, as uint32 (P, 8).

    Indices count the flattened free elements; equal values get successive positions.
    """
    dt = dtypes.UINT32 if dtype is None else dtypes.normalize(dtype)
    note_dtype(m, "the result of nisa.nc_find_index8", dt, "uint16 or uint32")
    return Instr((data.shape[0], 8), dt, grid=data.shape, kept=(0, None))


def _run_match_replace8(m: Machine, ins: Instr, dst: Tensor) -> None:
    imm, backwards = ins.params
    vals = dtypes.as_float32(ins.srcs[1].np)
    order = vals.reshape(vals.shape[0], -1)[:, ::-1] if backwards else vals
    value, index = semantics.match_replace8(dtypes.as_float32(ins.srcs[0].np), order, imm)
    if backwards:
        index = index[:, ::-1]
    put(value, dst)
    for t in ins.also:
        t.np[...] = index.reshape(t.np.shape).astype(t.np.dtype)


@instruction(
    "nc_match_replace8",
    public="nisa.nc_match_replace8",
    engines=(VECTOR,),
    nki="nisa.nc_match_replace8(dst, data, vals, imm, dst_idx=None)",
    operands=(
        Tile("data", elements=(8, LONGEST)),
        _eight("vals"),
        _eight("dst_idx", WRITE, documented="uint16 or uint32", optional=True),
    ),
    promotes=("data",),
    hidden=("backwards",),
    run=_run_match_replace8,
    cost=formulas.stream,
    source="Neuron SDK 2.26 API reference: nisa.nc_match_replace8",
)
def nc_match_replace8(
    m: Machine,
    *,
    data: Any,
    vals: Any,
    imm: Any,
    dst_idx: Any = None,
    mask: Any = None,
    dtype: Any = None,
    backwards: bool = False,
) -> Instr:
    """Return `data` with the first occurrence of each of 8 `vals` replaced by `imm`."""
    return Instr(params=(float(imm), bool(backwards)))


# -- selection ------------------------------------------------------------------------------

_MIN: Any = np.float32(dtypes.FP32_MIN)


def _only_max(op: Any, api: str) -> None:
    if ops.resolve_alu(op).name != "maximum":
        raise fail("NKI-E06", f"{api} reduces with max only", limit="reduce_op=np.max")


def _reduce_max(m: Machine, ins: Instr, value: np.ndarray, cmd: int) -> None:
    """Drive the Vector Engine's accumulators: the maximum, reset to -inf."""
    regs = m.core.registers.accumulators.get("vector")
    if regs is None:
        regs = m.core.registers.accumulators["vector"] = np.full(
            (m.hw.pmax, 1), -np.inf, dtype=np.float32
        )
    lanes = lanes_of(ins.srcs[0])
    if cmd in (1, 3):
        regs[lanes] = -np.inf
    if cmd in (2, 3):
        rows = value.reshape(value.shape[0], -1)
        regs[lanes] = np.maximum(regs[lanes], rows.max(axis=1, keepdims=True))
    for t in ins.also:
        put(regs[lanes], t)


def _run_select_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    reverse, cmd = ins.params
    on_true = dtypes.as_float32(in_order(ins, 1))
    value = semantics.select_reduce(ins.srcs[0].np, on_true, ins.scalar(0, on_true.ndim), reverse)
    put(value, dst)
    if cmd or ins.also:
        _reduce_max(m, ins, value, cmd)


@instruction(
    "select_reduce",
    public="nisa.select_reduce",
    engines=(VECTOR,),
    nki="nisa.select_reduce(dst, predicate, on_true, on_false, reduce_res=None, "
    "reduce_cmd=0, reduce_op='maximum', reverse_pred=False)",
    operands=(
        Tile("dst", WRITE),
        Tile("predicate", documented="small integer", like="dst"),
        Tile("on_true", documented="float or narrow", like="dst"),
        Vector("on_false", numbers=True, like="dst"),
        Vector("reduce_res", WRITE, documented="float", optional=True, like="dst"),
    ),
    one_psum=("on_true", "predicate"),
    run=_run_select_reduce,
    exact=integers.select_reduce,
    check=registers.register_check(VECTOR, lambda i: (i.params[1], "maximum")),
    cost=formulas.with_read_out,
    source="Neuron SDK 2.26 API reference: nisa.select_reduce",
)
def select_reduce(
    m: Machine,
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = 0,
    reduce_op: Any = np.amax,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
) -> Instr:
    """Write `on_true` where `predicate` is not zero, else `on_false` (number or (P, 1))."""
    _only_max(reduce_op, "nisa.select_reduce")
    return Instr(
        params=(bool(reverse_pred), int(reduce_cmd)),
        variant=Ops("select", registers=use(int(reduce_cmd), reduce_res is not None)),
    )


def _run_range_select(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, op1, start, cmd = ins.params
    data = dtypes.as_float32(ins.srcs[0].np)
    bound0, bound1 = (np.float32(ins.scalar(k, data.ndim)) for k in (0, 1))
    value = semantics.range_select(data, op0, op1, bound0, bound1, start, _MIN)
    put(value, dst)
    if cmd or ins.also:
        _reduce_max(m, ins, value, cmd)


_COMPARISONS = frozenset(("equal", "less", "less_equal", "greater", "greater_equal"))


@instruction(
    "range_select",
    public="nisa.range_select",
    engines=(VECTOR,),
    nki="nisa.range_select(dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, "
    "reduce_cmd=3, reduce_res=None, reduce_op='maximum', range_start=0, "
    "on_false_value=-3.4028234663852886e+38)",
    mask_mode=PARTITIONS,
    needs="range_select",
    operands=(
        Tile("on_true_tile", dtypes="float"),
        Vector("bound0", numbers=NKI_ONLY, dtypes="float32", like="on_true_tile"),
        Vector("bound1", numbers=NKI_ONLY, dtypes="float32", like="on_true_tile"),
        Vector("reduce_res", WRITE, optional=True, like="on_true_tile"),
    ),
    promotes=("on_true_tile",),
    run=_run_range_select,
    check=registers.register_check(VECTOR, lambda i: (i.params[3], "maximum")),
    cost=formulas.with_read_out,
    source="Neuron SDK 2.26 API reference: nisa.range_select",
)
def range_select(
    m: Machine,
    *,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = 0,
    reduce_res: Any = None,
    reduce_op: Any = np.amax,
    range_start: int = 0,
    on_false_value: Any = _MIN,
    mask: Any = None,
    dtype: Any = None,
) -> Instr:
    """Keep the elements whose flattened position passes two comparisons, else fp32.min.

    NeuronCore-v3 and newer. `bound0`, `bound1` are float32 tiles (P, 1), in the package nki numbers
    as well (NKI-R14). `on_false_value` can only be the least float32, and the reduction only a
    maximum.
    """
    api = "nisa.range_select"
    _only_max(reduce_op, api)
    comparisons = ops.resolve_alu(comp_op0), ops.resolve_alu(comp_op1)
    for op in comparisons:
        if op.name not in _COMPARISONS:
            raise fail(
                "NKI-E11",
                f"{api} compares positions with bounds",
                given=f"nl.{op.name}",
                limit=", ".join(sorted(_COMPARISONS)),
            )
    if np.float32(on_false_value) != _MIN:
        raise fail(
            "NKI-E12",
            f"{api}: on_false_value is not the least float32",
            given=str(on_false_value),
            limit="nl.fp32.min",
            hint="leave it out; select another value with nisa.select_reduce",
        )
    return Instr(
        params=(*comparisons, int(range_start), int(reduce_cmd)),
        variant=Ops("select", registers=use(int(reduce_cmd), reduce_res is not None)),
    )


# -- across partitions ---------------------------------------------------------------------------


def _run_shuffle(m: Machine, ins: Instr, dst: Tensor) -> None:
    dst.np[...] = semantics.stream_shuffle(ins.srcs[0].np, dst.np, ins.params)


@instruction(
    "nc_stream_shuffle",
    public="nisa.nc_stream_shuffle",
    engines=(VECTOR,),
    mask_mode=NOTHING,
    nki="nisa.nc_stream_shuffle(dst, src, shuffle_mask)",
    operands=(Tile("src"), Tile("dst", UPDATE)),
    run=_run_shuffle,
    cost=formulas.stream,
    source="Neuron SDK 2.26 API reference: nisa.nc_stream_shuffle",
)
def nc_stream_shuffle(
    m: Machine, src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None, mask: Any = None
) -> Instr:
    """Move partitions within each quadrant of 32: `dst` i gets `src` mask[i]; 255 keeps."""
    if src.dtype != dst.dtype:
        raise fail(
            "NKI-D05",
            "nisa.nc_stream_shuffle does not cast",
            given=f"{dtypes.name(src.dtype)} to {dtypes.name(dst.dtype)}",
        )
    if src.size // src.shape[0] != dst.size // dst.shape[0]:
        raise fail(
            "NKI-S01",
            "nisa.nc_stream_shuffle: dst and src have different shapes",
            given=f"dst {dst.shape}, src {src.shape}",
            limit="as many elements in each partition",
            hint="slice both to the same columns",
        )
    if not isinstance(shuffle_mask, (list, tuple, range, np.ndarray)):
        raise fail(
            "NKI-S13",
            "nisa.nc_stream_shuffle: shuffle_mask is no list",
            given=f"shuffle_mask={shuffle_mask!r}"[:80],
            limit="32 numbers, 0 .. 31 or 255",
            hint="shuffle_mask=list(range(32)) moves nothing",
        )
    entries = [integer(v, "an entry of shuffle_mask") for v in shuffle_mask]
    semantics.shuffled(src.shape[0], dst.shape[0], entries)
    return Instr(params=entries)
