"""GpSimd Engine: index generation, gathers, reductions across partitions (nki-spec 2.3, 2.6)."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops, semantics
from ..chip.memory import SBUF
from ..errors import fail
from ..machine import allocate
from ..machine.index import Index, Mask, as_int
from ..machine.instruction import Instr
from ..machine.machine import Machine
from ..machine.tensor import Tensor
from . import formulas
from .dve import put
from .operands import is_scalar, result_dtype, split_vectors, values_of, vector
from .table import GPSIMD, VECTOR, instruction


def _run_iota(m: Machine, ins: Instr, dst: Tensor) -> None:
    expr = ins.params
    value = np.asarray(expr.values(dst.shape)) if expr.shape != dst.shape else expr.values()
    dst.np[...] = value if dtypes.is_int(dst.dtype) else dtypes.cast(value.astype(np.float32),
                                                                     dst.dtype)


@instruction("iota", engines=(GPSIMD,), run=_run_iota, cost=formulas.gpsimd,
             source="Neuron SDK 2.26 API reference: nisa.iota")
def iota(m: Machine, expr: Any, dtype: Any, *, mask: Any = None) -> Instr:
    """Return the values of an affine index expression as an SBUF tile."""
    if not isinstance(expr, Index):
        value = as_int(expr)
        if value is None:
            raise fail("NKI-I05", "nisa.iota takes an index expression", given=type(expr).__name__,
                       hint="nl.arange(512)[None, :]")
        expr = Index(value, (1, 1), (0, 0))
    if len(expr.shape) < 2:
        raise fail("NKI-I09", "nisa.iota needs an index expression with a partition axis",
                   given=f"shape {expr.shape}", hint="nl.arange(512)[None, :]")
    dt = dtypes.normalize(dtype)
    allocate.check_tile(m.hw, SBUF, expr.shape, dt)
    ins = Instr((), expr.shape, dt, params=expr)
    if mask is not None:
        m.mask(ins, mask, expr.shape, cut=False)
    return ins


def _run_affine_select(m: Machine, ins: Instr, dst: Tensor) -> None:
    pred, on_false = ins.params
    put(semantics.affine_select(np.broadcast_to(pred.values(), dst.shape),
                                dtypes.as_float32(ins.srcs[0].np), on_false), dst)


@instruction("affine_select", engines=(GPSIMD,), run=_run_affine_select, cost=formulas.gpsimd,
             source="Neuron SDK 2.26 API reference: nisa.affine_select")
def affine_select(m: Machine, pred: Any, on_true_tile: Any, on_false_value: Any, *,
                  mask: Any = None, dtype: Any = None) -> Instr:
    """Return the tile where one affine comparison of indices holds, else a number."""
    t = m.tile(on_true_tile, "on_true_tile")        # AWS's flash attention reads PSUM here
    if not isinstance(pred, Mask) or pred.terms is None or len(pred.terms) != 1:
        raise fail("NKI-I07", "nisa.affine_select takes one comparison of index expressions",
                   given=type(pred).__name__, limit="no & and no data",
                   hint="pred=(i_p >= i_f); call it twice for two conditions")
    ins = Instr((t,), t.shape, result_dtype(dtype, t), params=(pred, float(on_false_value)))
    if mask is not None:
        m.mask(ins, mask, t.shape, cut=False)
    return ins


def _run_partition_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.partition_reduce(ins.params, ins.srcs[0].np), dst)


@instruction("tensor_partition_reduce", engines=(GPSIMD,), run=_run_partition_reduce,
             cost=formulas.across_partitions,
             source="Neuron SDK 2.26 API reference: nisa.tensor_partition_reduce")
def tensor_partition_reduce(m: Machine, op: Any, data: Any, *, mask: Any = None,
                            dtype: Any = None) -> Instr:
    """Reduce across partitions: (P, F...) to (1, F...); slow, on GpSimd."""
    t = m.tile(data, "data", psum=False)
    alu = ops.resolve_alu(op)
    ins = Instr((t,), (1, *t.shape[1:]), result_dtype(dtype, t), params=alu, extra=(alu.name,))
    if mask is not None:
        m.mask(ins, mask, t.shape, keep=tuple(range(1, len(t.shape))))
        if ins.box is not None:
            ins.box = [(0, 1), *ins.box]
    return ins


def _run_local_gather(m: Machine, ins: Instr, dst: Tensor) -> None:
    per_idx, valid = ins.params
    out = semantics.local_gather(ins.srcs[0].np, ins.srcs[1].np, per_idx, valid)
    dst.np[...] = out.reshape(dst.np.shape)


@instruction("local_gather", engines=(GPSIMD,), run=_run_local_gather, cost=formulas.gpsimd,
             source="Neuron SDK 2.26 API reference: nisa.local_gather")
def local_gather(m: Machine, src_buffer: Any, index: Any, num_elem_per_idx: int = 1,
                 num_valid_indices: Any = None, *, mask: Any = None) -> Instr:
    """Gather elements with indices that each group of 16 partitions shares."""
    s, i = m.tile(src_buffer, "src_buffer", psum=False), m.tile(index, "index", psum=False)
    per_group = i.size // i.shape[0] * 16
    valid = per_group if num_valid_indices is None else int(num_valid_indices)
    if i.dtype != dtypes.UINT16 or i.shape[0] != s.shape[0] or i.shape[0] % 16 \
            or num_elem_per_idx not in (1, 2, 4, 8, 16, 32) or per_group > 4096:
        raise fail("NKI-S11", "nisa.local_gather: these operands do not fit together",
                   given=f"src {s.shape}, index {i.shape} of {dtypes.name(i.dtype)}, "
                         f"num_elem_per_idx={num_elem_per_idx}",
                   limit="uint16 indices on as many partitions as src, a multiple of 16; "
                         "1, 2, 4, 8, 16 or 32 elements an index; 4096 indices a core")
    shape = (s.shape[0], i.shape[1], 16, num_elem_per_idx) if len(i.shape) == 2 \
        and valid == per_group else (s.shape[0], valid, num_elem_per_idx)
    return Instr((s, i), shape, s.dtype, params=(int(num_elem_per_idx), valid),
                 extra=(int(num_elem_per_idx), valid))


def _run_gather_flattened(m: Machine, ins: Instr, dst: Tensor) -> None:
    dst.np[...] = semantics.gather_flattened(ins.srcs[0].np, ins.srcs[1].np).reshape(dst.np.shape)


@instruction("gather_flattened", engines=(GPSIMD,), run=_run_gather_flattened, cost=formulas.gpsimd,
             source="Neuron SDK 2.26 API reference: nl.gather_flattened")
def gather_flattened(m: Machine, data: Any, indices: Any, *, mask: Any = None, dtype: Any = None
                     ) -> Instr:
    """Gather per partition along the flattened free dims; the result has the indices' shape."""
    t, i = m.tile(data, "data", psum=False), m.tile(indices, "indices", psum=False)
    if dtypes.is_float(i.dtype) or i.shape[0] != t.shape[0]:
        raise fail("NKI-S11", "nl.gather_flattened: indices do not fit the data",
                   given=f"data {t.shape}, indices {i.shape} of {dtypes.name(i.dtype)}",
                   limit="uint32 indices on the same partitions")
    ins = Instr((t, i), i.shape, result_dtype(dtype, t))
    if mask is not None:
        m.mask(ins, mask, i.shape)
        ins.srcs = (t, ins.srcs[1])
    return ins


def _run_sequence_bounds(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.sequence_bounds(ins.srcs[0].np), dst)


@instruction("sequence_bounds", engines=(GPSIMD,), run=_run_sequence_bounds, cost=formulas.gpsimd,
             source="Neuron SDK 2.26 API reference: nisa.sequence_bounds")
def sequence_bounds(m: Machine, *, segment_ids: Any, dtype: Any = None) -> Instr:
    """Return start and end of the run of equal ids that each element belongs to: (1, 2, n)."""
    t = m.tile(segment_ids, "segment_ids", psum=False)
    if t.shape[0] != 1 or len(t.shape) != 2:
        raise fail("NKI-S11", "nisa.sequence_bounds takes one partition", given=f"{t.shape}",
                   limit="shape (1, n)")
    return Instr((t,), (1, 2, t.shape[1]), result_dtype(dtype, t))


# -- random numbers (Vector Engine) and dynamic copies -------------------------------------------

def _run_dropout(m: Machine, ins: Instr, dst: Tensor) -> None:
    (prob,) = values_of(ins, 1, ins.params, ins.srcs[0].np.ndim)
    put(semantics.dropout(dtypes.as_float32(ins.srcs[0].np), prob, m.rng), dst)


@instruction("dropout", engines=(VECTOR,), run=_run_dropout, cost=formulas.stream,
             source="Neuron SDK 2.26 API reference: nisa.dropout")
def dropout(m: Machine, data: Any, prob: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Replace elements by zero with probability `prob` (number or (P, 1)); no rescaling."""
    t = m.tile(data, "data")
    tiles, template = split_vectors(vector(m, prob, t.shape[0], "prob", "nisa.dropout"))
    ins = Instr((t, *tiles), t.shape, result_dtype(dtype, t), params=template)
    if mask is not None:
        m.mask(ins, mask, t.shape)
    return ins


def _run_rand(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(m.rng.random(dst.shape, dtype=np.float32), dst)


@instruction("rand", engines=(VECTOR,), run=_run_rand, cost=formulas.stream,
             source="Neuron SDK 2.26 API reference: nl.rand")
def rand(m: Machine, shape: Any, dtype: Any = None) -> Instr:
    """Return an SBUF tile of uniform random numbers in [0, 1)."""
    dims = tuple(int(n) for n in allocate.sizes(shape))
    dt = dtypes.FLOAT32 if dtype is None else dtypes.normalize(dtype)
    allocate.check_tile(m.hw, SBUF, dims, dt)
    return Instr((), dims, dt)


def _dynamic(m: Machine, x: Any, name: str) -> Any:
    if is_scalar(x) or isinstance(x, Tensor):
        return x
    return m.tile(x, name)


def _run_seed(m: Machine, ins: Instr, dst: Tensor) -> None:
    seed = int(ins.srcs[0].np.reshape(-1)[0]) if len(ins.srcs) > 1 else int(ins.params)
    m.rng = np.random.default_rng(seed & 0xFFFFFFFF)


@instruction("random_seed", engines=(VECTOR,), run=_run_seed, cost=formulas.stream,
             source="Neuron SDK 2.26 API reference: nl.random_seed")
def random_seed(m: Machine, seed: Any, *, mask: Any = None) -> Instr:
    """Seed the random number generator with an int or a (1, 1) tile."""
    seed = _dynamic(m, seed, "seed")
    if isinstance(seed, Tensor):
        return Instr((m.tile(seed, "seed"), seed), (1, 1), dtypes.INT32)
    return Instr((), (1, 1), dtypes.INT32, params=seed)
