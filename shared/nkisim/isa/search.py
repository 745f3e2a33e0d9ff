"""Vector Engine: searching, statistics, selection and shuffles (nki-spec 2.6)."""
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
from .operands import not_both_psum, result_dtype, same_shape, split_vectors, vector
from .table import VECTOR, instruction


def _free(t: Tensor) -> int:
    return t.size // t.shape[0]


def _size(t: Tensor, lo: int, hi: int, api: str) -> None:
    if not lo <= _free(t) <= hi:
        raise fail("NKI-P08", f"{api}: wrong number of elements per partition",
                   given=f"{_free(t)} (shape {t.shape})", limit=f"{lo} .. {hi}")


def _run_max8(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.max8(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction("max8", engines=(VECTOR,), run=_run_max8, cost=formulas.stream,
             source="Neuron SDK 2.26 API reference: nisa.max8")
def max8(m: Machine, *, src: Any, mask: Any = None, dtype: Any = None) -> Instr:
    """Return the 8 largest values of each partition, in descending order, as (P, 8)."""
    t = m.tile(src, "src")
    _size(t, 8, 16384, "nisa.max8")
    ins = Instr((t,), (t.shape[0], 8), result_dtype(dtype, t))
    if mask is not None:
        m.mask(ins, mask, t.shape, keep=(0,))
        if ins.box is not None:
            ins.box = [ins.box[0], (0, 8)]
    return ins


def _run_find_index8(m: Machine, ins: Instr, dst: Tensor) -> None:
    index = semantics.find_index8(dtypes.as_float32(ins.srcs[0].np),
                                  dtypes.as_float32(ins.srcs[1].np))
    dst.np[...] = index.reshape(dst.np.shape).astype(dst.np.dtype)


@instruction("nc_find_index8", engines=(VECTOR,), run=_run_find_index8, cost=formulas.stream,
             source="Neuron SDK 2.26 API reference: nisa.nc_find_index8")
def nc_find_index8(m: Machine, *, data: Any, vals: Any, mask: Any = None, dtype: Any = None
                   ) -> Instr:
    """Return where each of the 8 `vals` of a partition first occurs in `data`, as uint32 (P, 8).

    Indices count the flattened free elements; equal values get successive positions.
    """
    t, v = m.tile(data, "data"), m.tile(vals, "vals")
    _size(t, 8, 16384, "nisa.nc_find_index8")
    _size(v, 8, 8, "nisa.nc_find_index8 vals")
    same_partitions(t, v, "nisa.nc_find_index8")
    dt = dtypes.UINT32 if dtype is None else dtypes.normalize(dtype)
    ins = Instr((t, v), (t.shape[0], 8), dt)
    if mask is not None:
        m.mask(ins, mask, t.shape, keep=(0,))
        if ins.box is not None:
            ins.box = [ins.box[0], (0, 8)]
            ins.srcs = (ins.srcs[0], v.narrow(ins.box))
    return ins


def same_partitions(a: Tensor, b: Tensor, api: str) -> None:
    """Raise if two operands lie on different numbers of partitions."""
    if a.shape[0] != b.shape[0]:
        raise fail("NKI-S04", f"{api}: the operands have different numbers of partitions",
                   given=f"shapes {a.shape} and {b.shape}")


def _run_match_replace8(m: Machine, ins: Instr, dst: Tensor) -> None:
    value, index = semantics.match_replace8(dtypes.as_float32(ins.srcs[0].np),
                                            dtypes.as_float32(ins.srcs[1].np), ins.params)
    put(value, dst)
    for t in ins.also:
        t.np[...] = index.reshape(t.np.shape).astype(t.np.dtype)


@instruction("nc_match_replace8", engines=(VECTOR,), run=_run_match_replace8, cost=formulas.stream,
             source="Neuron SDK 2.26 API reference: nisa.nc_match_replace8")
def nc_match_replace8(m: Machine, *, data: Any, vals: Any, imm: Any, dst_idx: Any = None,
                      mask: Any = None, dtype: Any = None) -> Instr:
    """Return `data` with the first occurrence of each of 8 `vals` replaced by `imm`."""
    t, v = m.tile(data, "data"), m.tile(vals, "vals")
    _size(t, 8, 16384, "nisa.nc_match_replace8")
    _size(v, 8, 8, "nisa.nc_match_replace8 vals")
    same_partitions(t, v, "nisa.nc_match_replace8")
    also = () if dst_idx is None else (m.tile(dst_idx, "dst_idx"),)
    ins = Instr((t, v), t.shape, result_dtype(dtype, t), also=also, params=float(imm))
    if mask is not None:
        m.mask(ins, mask, t.shape)
        if ins.box is not None:
            rows = [ins.box[0], (0, 8)]
            ins.srcs = (ins.srcs[0], v.narrow(rows))
            ins.also = tuple(a.narrow(rows) for a in also)
    return ins


def _run_bn_stats(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.bn_stats(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction("bn_stats", engines=(VECTOR,), run=_run_bn_stats, cost=formulas.stream,
             source="Neuron SDK 2.26 API reference: nisa.bn_stats")
def bn_stats(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Return count, mean and variance*count of the even, then of the odd elements: (P, 6)."""
    t = m.tile(data, "data")
    _size(t, 1, m.hw.bn_stats_fmax, "nisa.bn_stats")
    ins = Instr((t,), (t.shape[0], 6), result_dtype(dtype, t))
    if mask is not None:
        m.mask(ins, mask, t.shape, keep=(0,))
        if ins.box is not None:
            ins.box = [ins.box[0], (0, 6)]
    return ins


def _run_bn_aggr(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.bn_aggr(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction("bn_aggr", engines=(VECTOR,), run=_run_bn_aggr, cost=formulas.statistics,
             source="Neuron SDK 2.26 API reference: nisa.bn_aggr")
def bn_aggr(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Combine triples of bn_stats (P, 3k) into mean and variance: (P, 2)."""
    t = m.tile(data, "data")
    if _free(t) % 3:
        raise fail("NKI-P08", "nisa.bn_aggr takes triples", given=f"{_free(t)} elements",
                   limit="a multiple of 3 per partition")
    ins = Instr((t,), (t.shape[0], 2), result_dtype(dtype, t))
    if mask is not None:
        m.mask(ins, mask, t.shape, keep=(0,))
        if ins.box is not None:
            ins.box = [ins.box[0], (0, 2)]
    return ins


# -- selection ------------------------------------------------------------------------------

_MIN: Any = np.float32(-3.4028235e38)


def _reduce_max(m: Machine, value: np.ndarray, cmd: int, also: tuple[Tensor, ...]) -> None:
    """Drive the Vector Engine's accumulators: the maximum, reset to -inf."""
    regs = m.accumulators.get("vector")
    if regs is None:
        regs = m.accumulators["vector"] = np.full((m.hw.pmax, 1), -np.inf, dtype=np.float32)
    n = value.shape[0]
    if cmd in (1, 3):
        regs[:] = -np.inf
    if cmd in (2, 3):
        regs[:n] = np.maximum(regs[:n], value.reshape(n, -1).max(axis=1, keepdims=True))
    for t in also:
        put(regs[:t.shape[0]], t)


def _run_select_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    template, reverse, cmd = ins.params
    on_false = dtypes.as_float32(ins.srcs[2].np) if template[0] is None else template[0]
    value = semantics.select_reduce(ins.srcs[0].np, dtypes.as_float32(ins.srcs[1].np), on_false,
                                    reverse)
    put(value, dst)
    if cmd or ins.also:
        _reduce_max(m, value, cmd, ins.also)


@instruction("select_reduce", engines=(VECTOR,), run=_run_select_reduce,
             cost=formulas.with_read_out,
             source="Neuron SDK 2.26 API reference: nisa.select_reduce")
def select_reduce(m: Machine, *, dst: Any, predicate: Any, on_true: Any, on_false: Any,
                  reduce_res: Any = None, reduce_cmd: Any = 0, reduce_op: Any = np.amax,
                  reverse_pred: bool = False, mask: Any = None, dtype: Any = None) -> Instr:
    """Write `on_true` where `predicate` is not zero, else `on_false` (number or (P, 1))."""
    api = "nisa.select_reduce"
    out, pred, yes = m.tile(dst, "dst"), m.tile(predicate, "predicate"), m.tile(on_true, "on_true")
    not_both_psum(yes, pred, ("on_true", "predicate"), api)
    same_shape(yes, pred, ("on_true", "predicate"), api)
    if ops.resolve_alu(reduce_op).name != "maximum":
        raise fail("NKI-E06", f"{api} reduces with max only", limit="reduce_op=np.max")
    no = vector(m, on_false, yes.shape[0], "on_false", api)
    tiles, template = split_vectors(no)
    also = () if reduce_res is None else (m.tile(reduce_res, "reduce_res"),)
    ins = Instr((pred, yes, *tiles), out.shape, out.dtype, dst=out, also=also,
                params=(template, bool(reverse_pred), int(reduce_cmd)))
    if mask is not None:
        m.mask(ins, mask, out.shape)
    return ins


def _run_range_select(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, op1, start, cmd = ins.params
    x = dtypes.as_float32(ins.srcs[0].np)
    value = semantics.range_select(x, op0, op1, ins.srcs[1].np, ins.srcs[2].np, start, _MIN)
    put(value, dst)
    if cmd or ins.also:
        _reduce_max(m, value, cmd, ins.also)


@instruction("range_select", engines=(VECTOR,), run=_run_range_select, cost=formulas.with_read_out,
             source="Neuron SDK 2.26 API reference: nisa.range_select")
def range_select(m: Machine, *, on_true_tile: Any, comp_op0: Any, comp_op1: Any, bound0: Any,
                 bound1: Any, reduce_cmd: Any = 0, reduce_res: Any = None,
                 reduce_op: Any = np.amax, range_start: int = 0, on_false_value: Any = _MIN,
                 mask: Any = None, dtype: Any = None) -> Instr:
    """Keep the elements whose flattened position passes two comparisons, else fp32.min.

    NeuronCore-v3 and newer. `bound0`, `bound1` are float32 tiles (P, 1).
    """
    api = "nisa.range_select"
    if not m.hw.range_select:
        raise fail("NKI-E03", f"{api} does not exist on {m.hw.name}",
                   limit="NeuronCore-v3 (trn2) or newer", hint="nisa.affine_select, or a mask")
    t = m.tile(on_true_tile, "on_true_tile")
    bounds = [vector(m, b, t.shape[0], n, api) for b, n in ((bound0, "bound0"),
                                                            (bound1, "bound1"))]
    if not all(isinstance(b, Tensor) for b in bounds):
        raise fail("NKI-S09", f"{api}: the bounds are tiles", limit="float32 of shape (P, 1)")
    also = () if reduce_res is None else (m.tile(reduce_res, "reduce_res"),)
    ins = Instr((t, *bounds), t.shape, result_dtype(dtype, t), also=also,
                params=(ops.resolve_alu(comp_op0), ops.resolve_alu(comp_op1), int(range_start),
                        int(reduce_cmd)), extra=(bool(also),))
    if mask is not None:
        m.mask(ins, mask, t.shape)
    return ins


# -- across partitions ---------------------------------------------------------------------------

def _run_shuffle(m: Machine, ins: Instr, dst: Tensor) -> None:
    dst.np[...] = semantics.stream_shuffle(ins.srcs[0].np, dst.np, ins.params)


@instruction("nc_stream_shuffle", engines=(VECTOR,), run=_run_shuffle,
             cost=formulas.stream, merges=True,
             source="Neuron SDK 2.26 API reference: nisa.nc_stream_shuffle")
def nc_stream_shuffle(m: Machine, src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None,
                      mask: Any = None) -> Instr:
    """Move partitions within each quadrant of 32: `dst` i gets `src` mask[i]; 255 keeps."""
    s, d = m.tile(src, "src"), m.tile(dst, "dst")
    if s.dtype != d.dtype:
        raise fail("NKI-D05", "nisa.nc_stream_shuffle does not cast",
                   given=f"{dtypes.name(s.dtype)} to {dtypes.name(d.dtype)}")
    ins = Instr((s,), d.shape, d.dtype, dst=d, params=[int(v) for v in shuffle_mask])
    if mask is not None:
        m.mask(ins, mask, d.shape)
    return ins


def _run_cumulative(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, op1, template, cmd = ins.params
    k = 1
    values = []
    for v in template:
        if v is None:
            values.append(ins.srcs[k].np)
            k += 1
        else:
            values.append(v)
    regs = m.accumulators.get("cumulative")
    state: Any = None
    if cmd == 2 and regs is not None:
        state = regs[:ins.srcs[0].shape[0]]
    elif cmd == 4:
        state = values[1]
    out, last = semantics.tensor_scalar_cumulative(ins.srcs[0].np, op0, values[0], op1, state)
    put(out, dst)
    m.accumulators["cumulative"] = last


@instruction("tensor_scalar_cumulative", engines=(VECTOR,), run=_run_cumulative, cost=formulas.scan,
             source="Neuron SDK 2.27 API reference: nisa.tensor_scalar_cumulative")
def tensor_scalar_cumulative(m: Machine, *, src: Any, dst: Any, op0: Any, op1: Any, imm0: Any,
                             imm1: Any = None, reduce_cmd: Any = 3, dtype: Any = None,
                             mask: Any = None) -> Instr:
    """Write the running op1 of (src op0 imm0) along the free dims.

    `reduce_cmd`: reset_reduce starts anew, reduce goes on from the last state, load_reduce
    starts from `imm1`.
    """
    api = "nisa.tensor_scalar_cumulative"
    s, d = m.tile(src, "src"), m.tile(dst, "dst")
    values = [vector(m, imm0, s.shape[0], "imm0", api)]
    if imm1 is not None:
        values.append(vector(m, imm1, s.shape[0], "imm1", api))
    tiles, template = split_vectors(*values)
    cmd = int(reduce_cmd)
    if cmd == 4 and imm1 is None:
        raise fail("NKI-S09", f"{api}: load_reduce needs imm1")
    return Instr((s, *tiles), d.shape, d.dtype, dst=d,
                 params=(ops.resolve_alu(op0), ops.resolve_alu(op1), template, cmd))
