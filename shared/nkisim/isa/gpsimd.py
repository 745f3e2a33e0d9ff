"""GpSimd Engine: index generation, gathers, reductions across partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops, semantics
from ..chip.memory import SBUF
from ..errors import fail
from ..indexing.index import Index, Mask, as_int
from ..machine import limits
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas, integers, sums
from .cheaper import ACROSS
from .dve import put
from .masks import NOTHING, PARTITIONS
from .operands import Tile, check_bitvec, per_partition
from .table import GPSIMD, instruction
from .variants import ColumnsSelected, Gather, NothingSelected, Ops

#: GpSimd has no port to PSUM
_SBUF: Any = dict(memories=(SBUF,))
_GPSIMD: Any = dict(engines=(GPSIMD,), writes=(SBUF,))


def _run_iota(m: Machine, ins: Instr, dst: Tensor) -> None:
    expr = ins.params
    value = np.asarray(expr.values(dst.shape)) if expr.shape != dst.shape else expr.values()
    dst.np[...] = (
        value if dtypes.is_int(dst.dtype) else dtypes.cast(value.astype(np.float32), dst.dtype)
    )
    if m.settings.checks and not dtypes.is_int(dst.dtype):
        m.overflow.copied(ins, np.broadcast_to(value, dst.shape), dst)


@instruction(
    "iota",
    public="nisa.iota",
    **_GPSIMD,
    mask_mode=NOTHING,
    run=_run_iota,
    nki="nisa.iota(dst, pattern, offset=0, channel_multiplier=0)",
    cost=formulas.gpsimd,
    source="Neuron SDK 2.26 API reference: nisa.iota",
)
def iota(m: Machine, expr: Any, dtype: Any, *, mask: Any = None) -> Instr:
    """Return the values of an affine index expression as an SBUF tile."""
    if not isinstance(expr, Index):
        value = as_int(expr)
        if value is None:
            raise fail(
                "NKI-I05",
                "nisa.iota takes an index expression",
                given=type(expr).__name__,
                hint="nl.arange(512)[None, :]",
            )
        expr = Index(value, (1, 1), (0, 0))
    if len(expr.shape) < 2:
        raise fail(
            "NKI-I09",
            "nisa.iota needs an index expression with a partition axis",
            given=f"shape {expr.shape}",
            hint="nl.arange(512)[None, :]",
        )
    dt = dtypes.normalize(dtype)
    limits.check_tile(m.hw, SBUF, expr.shape, dt)
    return Instr(expr.shape, dt, params=expr)


def _run_affine_select(m: Machine, ins: Instr, dst: Tensor) -> None:
    pred, on_false = ins.params
    put(
        semantics.affine_select(
            pred.values(dst.shape), dtypes.as_float32(ins.srcs[0].np), on_false
        ),
        dst,
    )


def _one_comparison(pred: Mask) -> bool:
    """Return whether a mask is a single comparison; `==` is two that are opposite."""
    terms = pred.terms
    if terms is None or len(terms) > 2:
        return False
    return len(terms) == 1 or not any((terms[0] + terms[1]).bounds())


@instruction(
    "affine_select",
    public="nisa.affine_select",
    **_GPSIMD,
    mask_mode=NOTHING,
    nki="nisa.affine_select(dst, pattern, channel_multiplier, on_true_tile, "
    "on_false_value, cmp_op='equal', offset=0)",
    operands=(Tile("on_true_tile", documented="float or narrow", copied=True, **_SBUF),),
    promotes=("on_true_tile",),
    run=_run_affine_select,
    cost=formulas.gpsimd,
    source="Neuron SDK 2.26 API reference: nisa.affine_select",
)
def affine_select(
    m: Machine,
    pred: Any,
    on_true_tile: Any,
    on_false_value: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
) -> Instr:
    """Return the tile where one affine comparison of indices holds, else a number."""
    if not isinstance(pred, Mask) or not _one_comparison(pred):
        raise fail(
            "NKI-I07",
            "nisa.affine_select takes one comparison of index expressions",
            given=type(pred).__name__,
            limit="no & and no data",
            hint="pred=(i_p >= i_f); call it twice for two conditions",
        )
    fill = float(on_false_value)
    return Instr(params=(pred, fill), variant=_selects(pred, fill))


def _selects(pred: Mask, fill: float) -> NothingSelected | ColumnsSelected | None:
    """Return the variant of a selection that leaves whole columns out, else None."""
    terms = pred.terms
    if terms is None:
        return None
    if any(term.bounds()[1] < 0 for term in terms):
        return NothingSelected(fill)
    shape = terms[0].shape
    if len(shape) != 2 or any(len(t.shape) != 2 or t.shape[1] != shape[1] for t in terms):
        return None
    columns = np.arange(shape[1])
    selected = np.ones(shape[1], bool)
    for t in terms:  # the greatest value over the partitions, column by column
        most = int(t.const) + max(0, int(t.coeffs[0]) * (t.shape[0] - 1))
        selected &= most + int(t.coeffs[1]) * columns >= 0
    first, last = int(selected.argmax()), shape[1] - int(selected[::-1].argmax())
    return ColumnsSelected(fill, first, last) if last - first < shape[1] else None


def _run_partition_reduce(m: Machine, ins: Instr, dst: Tensor) -> None:
    alu, divisor = ins.params
    value = semantics.partition_reduce(alu, ins.srcs[0].np)
    put(value if divisor == 1 else value / np.float32(divisor), dst)


_ACROSS = frozenset(("add", "maximum", "bitwise_or", "bitwise_and"))


@instruction(
    "tensor_partition_reduce",
    public="nisa.tensor_partition_reduce",
    **_GPSIMD,
    nki="nisa.tensor_partition_reduce(dst, op, data)",
    operands=(Tile("data", **_SBUF),),
    promotes=("data",),
    run=_run_partition_reduce,
    exact=integers.tensor_partition_reduce,
    cost=formulas.across_partitions,
    cheaper=ACROSS,
    sums=sums.PARTITIONS,
    source="Neuron SDK 2.26 API reference: nisa.tensor_partition_reduce",
)
def tensor_partition_reduce(
    m: Machine, op: Any, data: Any, *, mask: Any = None, dtype: Any = None
) -> Instr:
    """Reduce across partitions: (P, F...) to (1, F...); slow, on GpSimd.

    The package nki has nl.average as well: the sum divided by P.
    """
    average = m.dialect.partition_average and "average" in (op, getattr(op, "nki_op", None))
    alu = ops.resolve_alu("add" if average else op)
    if alu.name not in _ACROSS:
        more = ("average",) if m.dialect.partition_average else ()
        raise fail(
            "NKI-E06",
            "nisa.tensor_partition_reduce cannot reduce with this operator",
            given=f"op={alu.name}",
            limit=", ".join(sorted((*_ACROSS, *more))),
        )
    check_bitvec(alu, (data,), "nisa.tensor_partition_reduce", dtype)
    return Instr(
        (1, *data.shape[1:]),
        params=(alu, data.shape[0] if average else 1),
        variant=Ops(alu.name),
        grid=data.shape,
        kept=(None, *range(1, len(data.shape))),
    )


def _in_range(m: Machine, ins: Instr, index: np.ndarray, size: int, what: str = "") -> None:
    """Say that indices point past what each partition holds."""
    bad = index[(index < 0) | (index >= size)]
    if bad.size and m.settings.checks:
        m.find(
            "NKI-I02",
            "warning",
            f"{bad.size:,} of {index.size:,} indices of {ins.row.api} "
            f"lie outside of 0 .. {size - 1}{what} (e.g. {int(bad.flat[0])}): what it reads "
            "there is undefined",
            ins.line,
        )


def _run_local_gather(m: Machine, ins: Instr, dst: Tensor) -> None:
    per_idx, valid = ins.variant
    many = m.hw.pool_partitions
    used = np.moveaxis(ins.srcs[1].np.reshape(-1, many, per_partition(ins.srcs[1])), 1, 2)
    _in_range(
        m,
        ins,
        used.reshape(used.shape[0], -1)[:, :valid],
        per_partition(ins.srcs[0]) - per_idx + 1,
        f" ({per_idx} elements each)" if per_idx > 1 else "",
    )
    out = semantics.local_gather(ins.srcs[0].np, ins.srcs[1].np, per_idx, valid)
    dst.np[...] = out.reshape(dst.np.shape)


@instruction(
    "local_gather",
    public="nisa.local_gather",
    **_GPSIMD,
    mask_mode=NOTHING,
    nki="nisa.local_gather(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None)",
    operands=(
        Tile("src_buffer", **_SBUF),
        Tile("index", dtypes="uint16", lanes=True, dtype_rule="NKI-S11", **_SBUF),
    ),
    run=_run_local_gather,
    cost=formulas.gpsimd,
    source="Neuron SDK 2.26 API reference: nisa.local_gather",
)
def local_gather(
    m: Machine,
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: Any = None,
    *,
    mask: Any = None,
) -> Instr:
    """Gather elements with indices that each group of 16 partitions shares."""
    s, i, many = src_buffer, index, m.hw.pool_partitions
    per_group = per_partition(i) * many
    valid = per_group if num_valid_indices is None else int(num_valid_indices)
    if (
        i.shape[0] != s.shape[0]
        or i.shape[0] % many
        or num_elem_per_idx not in (1, 2, 4, 8, 16, 32)
        or per_group > 4096
    ):
        raise fail(
            "NKI-S11",
            "nisa.local_gather: these operands do not fit together",
            given=f"src {s.shape}, index {i.shape} of {dtypes.name(i.dtype)}, "
            f"num_elem_per_idx={num_elem_per_idx}",
            limit="uint16 indices on as many partitions as src, a multiple of 16; "
            "1, 2, 4, 8, 16 or 32 elements an index; 4096 indices a core",
        )
    shape = (
        (s.shape[0], i.shape[1], many, num_elem_per_idx)
        if len(i.shape) == 2 and valid == per_group
        else (s.shape[0], valid, num_elem_per_idx)
    )
    return Instr(shape, s.dtype, variant=Gather(int(num_elem_per_idx), valid))


def _run_gather_flattened(m: Machine, ins: Instr, dst: Tensor) -> None:
    _in_range(m, ins, ins.srcs[1].np, per_partition(ins.srcs[0]))
    dst.np[...] = semantics.gather_flattened(ins.srcs[0].np, ins.srcs[1].np).reshape(dst.np.shape)


@instruction(
    "gather_flattened",
    public="nl.gather_flattened",
    **_GPSIMD,
    mask_mode=PARTITIONS,
    nki="nisa.nc_n_gather(dst, data, indices)",
    operands=(
        Tile("data", lanes=True, **_SBUF),
        Tile("indices", dtypes="integer", documented="uint32", dtype_rule="NKI-S11", **_SBUF),
    ),
    promotes=("data",),
    run=_run_gather_flattened,
    cost=formulas.gpsimd,
    source="Neuron SDK 2.26 API reference: nl.gather_flattened",
)
def gather_flattened(
    m: Machine, data: Any, indices: Any, *, mask: Any = None, dtype: Any = None
) -> Instr:
    """Gather per partition along the flattened free dims; the result has the indices' shape."""
    if indices.shape[0] != data.shape[0]:
        raise fail(
            "NKI-S11",
            "nl.gather_flattened: indices do not fit the data",
            given=f"data {data.shape}, indices {indices.shape}",
            limit="uint32 indices on the same partitions",
        )
    return Instr(indices.shape)


def _run_sequence_bounds(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(semantics.sequence_bounds(ins.srcs[0].np), dst)


@instruction(
    "sequence_bounds",
    public="nisa.sequence_bounds",
    **_GPSIMD,
    nki="nisa.sequence_bounds(dst, segment_ids)",
    operands=(Tile("segment_ids", documented="float32 or int32", **_SBUF),),
    promotes=("segment_ids",),
    run=_run_sequence_bounds,
    cost=formulas.gpsimd,
    source="Neuron SDK 2.26 API reference: nisa.sequence_bounds",
)
def sequence_bounds(m: Machine, *, segment_ids: Any, dtype: Any = None) -> Instr:
    """Return start and end of the run of equal ids that each element belongs to: (1, 2, n)."""
    t = segment_ids
    if t.shape[0] != 1 or len(t.shape) != 2:
        raise fail(
            "NKI-S11",
            "nisa.sequence_bounds takes one partition",
            given=f"{t.shape}",
            limit="shape (1, n)",
        )
    return Instr((1, 2, t.shape[1]))
