"""Where this dialect writes the arguments of a row otherwise: translations, one a row.

An adapter gets the machine and the arguments by name, and changes them into those of the plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...chip import dtypes, ops
from ...chip.memory import PSUM, sbuf
from ...errors import fail
from ...indexing.index import Index
from ...indexing.indirect import Indirect, Patterned, one_for_each_row
from ...isa import dve
from ...isa.dma import TRANSPOSES
from ...isa.operands import engine_code, is_scalar, regroup
from ...isa.table import ROWS, Row
from ...lint import level
from ...machine import allocate, bodies, suggestions
from ...machine.interface import Machine
from ...machine.limits import integer
from ...machine.tensor import Tensor
from . import compat
from .call import argument, dge_code, written
from .registers import held
from .views import settled

_MOST_DIMS = 4  # free dims of an index pattern
_VECTOR = 5  # nisa.engine.vector


def operands(m: Machine, given: dict[str, Any]) -> None:
    """Let operands with a run-time offset mean where it points now."""
    for name, x in given.items():
        if isinstance(x, Indirect):
            given[name] = settled(m, x)


def same_number(api: str, dst: Any, src: Any) -> None:
    """Raise unless two tiles have as many partitions and as many elements in each.

    Dims of size 1 of `src` repeat, as they do for NumPy: NKI-R11 says so.
    """
    if (
        dst.__class__ is not Tensor
        or src.__class__ is not Tensor
        or dst.size == src.size
        and dst.shape[0] == src.shape[0]
    ):
        return
    short = (1,) * (len(dst.shape) - len(src.shape))
    of_src = (*src.shape[:1], *short, *src.shape[1:])
    if (
        len(of_src) != len(dst.shape)
        or of_src[0] != dst.shape[0]
        or any(n not in (1, m) for n, m in zip(of_src[1:], dst.shape[1:]))
    ):
        raise fail(
            "NKI-S01",
            f"{api}: dst and src have different shapes",
            given=f"dst {dst.shape}, src {src.shape}",
            limit="as many partitions and as many elements in each",
            hint=suggestions.copy(api, dst, src),
        )


def tensor_copy(m: Machine, given: dict[str, Any]) -> Row | None:
    """Let one side start where data says: the dynamic copies of the table."""
    if given["engine"] == 2 and not m.hw.act_tensor_copy:
        raise fail(
            "NKI-E01",
            f"nisa.tensor_copy on the Scalar Engine of {m.hw.name}",
            limit="NeuronCore-v3 (trn2) or newer",
            hint="nisa.activation(dst, op=nl.copy, data=src)",
        )
    if isinstance(given["src"], Indirect):
        given["dst"] = settled(m, given["dst"])
        return ROWS["tensor_copy_dynamic_src"]
    if isinstance(given["dst"], Indirect):
        return ROWS["tensor_copy_dynamic_dst"]
    same_number("nisa.tensor_copy", given["dst"], given["src"])
    return None


def tensor_tensor(m: Machine, given: dict[str, Any]) -> None:
    """Let the Vector Engine write PSUM, which GpSimd does not reach."""
    operands(m, given)
    if (
        getattr(given["dst"], "memory", None) is PSUM
        and engine_code(given["engine"], "nisa.tensor_tensor") == 0
        and ops.resolve_alu(given["op"]).name != "power"
    ):
        given["engine"] = _VECTOR


def tensor_scalar(m: Machine, given: dict[str, Any]) -> None:
    """Let unary operators go without an operand."""
    operands(m, given)
    for k in "01":
        _unary(m, "tensor_scalar", given, k)


def _unary(m: Machine, name: str, given: dict[str, Any], k: str) -> None:
    """Give an operator of one operand a number for the other one."""
    op, value = given["op" + k], given["operand" + k]
    if (m.hw.alu_square_relu or level.release() >= "0.4") and (
        newer := ops.of_v4(op)
    ) is not None:  # NKI-R24 says it before trn3
        given["op" + k] = op = newer
    if op is None or not (alu := ops.resolve_alu(op)).unary:
        return
    if value is not None and not (is_scalar(value) and value == 0):
        raise fail(
            "NKI-E05",
            f"nisa.{name}: nl.{alu.name} takes no operand",
            given=f"operand{k}={value!r}"[:80],
            limit="None or 0",
        )
    given["operand" + k] = 0.0


def memset(m: Machine, given: dict[str, Any]) -> None:
    """Check that the value is of the kind of dst; the plan takes shape and dtype as well."""
    operands(m, given)
    dst, value = given["dst"], given["value"]
    written("nisa.memset", dst)
    if isinstance(value, (float, np.floating)) and dtypes.is_int(dst.dtype):
        if not float(value).is_integer():
            raise fail(
                "NKI-N07",
                "nisa.memset: the value is of another kind than dst",
                given=f"{value!r} into {dtypes.name(dst.dtype)}",
                limit="an integer for an integer tile",
                hint=f"value={int(value) if np.isfinite(value) else 0}",
            )
        compat.warn_older_form(
            m, f"nisa.memset: value={value!r} into {dtypes.name(dst.dtype)}", f"value={int(value)}"
        )
        given["value"] = int(value)
    if dst.dtype in dtypes.PACKED and value != 0:
        raise fail(
            "NKI-N07",
            "nisa.memset of a packed dtype",
            given=f"value {value!r}",
            limit="0",
            hint="write other values through a view: t.view(nl.uint32)",
        )
    given.update(shape=dst.shape, dtype=dst.dtype)


def matmul(m: Machine, given: dict[str, Any]) -> None:
    """Note sums onto what a matmul has not written; refuse what the Tensor Engine cannot write."""
    operands(m, given)
    dst = given["dst"]
    written("nisa.nc_matmul", dst)
    for name in ("stationary", "moving"):
        if getattr(given[name], "memory", None) is PSUM:
            raise fail(
                "NKI-M01",
                f"nisa.nc_matmul: {name} lies in PSUM",
                given=f"{given[name]!r}",
                limit="the Tensor Engine reads SBUF and writes PSUM",
                hint="nisa.tensor_copy(sbuf_tile, psum_tile) first",
            )
    if (
        dst.dtype != dtypes.FLOAT32
        and not given["is_transpose"]
        and not (m.hw.pe_bfloat16_result and dst.dtype == dtypes.BFLOAT16)
    ):
        raise fail(
            "NKI-D05",
            "the result of a matmul is float32",
            given=f"dst {dst!r}",
            limit="float32 in PSUM (bfloat16 as well from NeuronCore-v4 on)",
            hint="make dst with dtype=nl.float32, and cast in the copy to SBUF",
        )


def matmul_mx(m: Machine, given: dict[str, Any]) -> None:
    """Say what dst is before the row looks at the scales."""
    operands(m, given)
    written("nisa.nc_matmul_mx", given["dst"])


def tensor_scalar_reduce(m: Machine, given: dict[str, Any]) -> None:
    """Give the accumulators a tile to be read into where the kernel wants none."""
    operands(m, given)
    _unary(m, "tensor_scalar_reduce", given, "0")
    if given["reduce_res"] is None:
        key = ("unread", getattr(given["data"], "shape", (1,))[0])
        if key not in m.core.constants:
            with bodies.outside(m):
                m.core.constants[key] = allocate.create(m, (key[1], 1), dtypes.FLOAT32, sbuf)
        given["reduce_res"] = m.core.constants[key]


def activation(m: Machine, given: dict[str, Any]) -> None:
    """Make the bias tile of a number, once for each number."""
    operands(m, given)
    bias, data = given.get("bias"), given["data"]
    if not isinstance(bias, (int, float, np.generic)):
        return
    partitions = getattr(data, "shape", (1,))[0]
    key = (float(bias), partitions)
    if bias == 0:
        given["bias"] = None
    elif key not in m.core.constants:
        with bodies.outside(m):
            t = allocate.create(m, (partitions, 1), dtypes.FLOAT32, sbuf)
            m.core.constants[key] = dve.memset(t.shape, float(bias), t.dtype, dst=t)
    if bias != 0:
        given["bias"] = m.core.constants[key]


def tensor_reduce(m: Machine, given: dict[str, Any]) -> None:
    """Refuse axes that are not the last ones."""
    operands(m, given)
    data, axis = given["data"], given["axis"]
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(getattr(data, "shape", ()))
    dims = sorted({integer(a, "an axis") % max(rank, 1) for a in axes})
    if rank and dims and dims[0] > 0 and dims != list(range(rank - len(dims), rank)):
        dims = compat.reduced(m, given["dst"], data, dims) or dims
    if rank and dims and dims[0] > 0 and dims != list(range(rank - len(dims), rank)):
        raise fail(
            "NKI-S10",
            "nisa.tensor_reduce over axes that are not the last ones",
            given=f"axis {axis} of shape {data.shape}",
            limit="since 0.3 an axis is the tensor's own, and trailing free dims reduce",
            hint="bring them to the end: t.permute((0, 2, 1))" + compat.HINT,
        )
    given["axis"] = tuple(dims)


def _pairs(api: str, pattern: Any) -> list[tuple[int, int]]:
    """Return [[step, num], ...] as pairs of integers, or raise."""
    try:
        pairs = [(step, num) for step, num in pattern]
    except (TypeError, ValueError):
        raise fail(
            "NKI-N03",
            f"{api} takes pairs",
            given=f"pattern={pattern!r}"[:80],
            limit="[[step, num], ...], one pair for each free dim",
            hint="pattern=[[1, n]] counts along the free dim",
        ) from None
    return [(integer(step, "a step"), integer(num, "a number")) for step, num in pairs]


def _affine(m: Machine, api: str, dst: Any, given: dict[str, Any]) -> Index:
    """Return offset + p * channel_multiplier + sum(i * step) over [[step, num], ...]."""
    pattern = _pairs(api, given.pop("pattern"))
    offset = given.pop("offset")
    at = held(offset)
    value = integer(offset, "offset") if at is None else at
    step = integer(given.pop("channel_multiplier"), "channel_multiplier")
    if not 1 <= len(pattern) <= _MOST_DIMS:
        raise fail(
            "NKI-N03",
            f"{api}: the pattern has too many dims",
            given=f"{pattern}",
            limit=f"1 to {_MOST_DIMS} pairs [step, num], for the free dims",
        )
    shape = (dst.shape[0], *(n for _, n in pattern))
    count = 1
    for n in shape:
        count *= n
    if count != dst.size:
        raise fail(
            "NKI-S01",
            f"{api}: the pattern has another number of elements than dst",
            given=f"pattern {pattern}, dst {dst.shape}",
            limit="the product of its counts is the elements of a partition of dst",
        )
    return Index(value, shape, (step, *(s for s, _ in pattern)))


def iota(m: Machine, given: dict[str, Any]) -> None:
    """Make the index expression of the pattern."""
    operands(m, given)
    written("nisa.iota", given["dst"])
    given["expr"] = _affine(m, "nisa.iota", given["dst"], given)


_METHODS = {op.name: f"__{op.method}__" for op in ops.COMPARISONS}


def affine_select(m: Machine, given: dict[str, Any]) -> None:
    """Make the predicate: the pattern's value compared with 0."""
    operands(m, given)
    written("nisa.affine_select", given["dst"])
    if given["on_false_value"] is None:
        raise fail(
            "NKI-S09",
            "nisa.affine_select has no value for what it does not select",
            given="on_false_value=None",
            limit="a number",
        )
    tile = m.tile(given["on_true_tile"], "on_true_tile")
    index = _affine(m, "nisa.affine_select", tile, given)
    if tile.shape != index.shape:
        given["on_true_tile"] = regroup(tile, index.shape)
    name = ops.resolve_alu(given.pop("cmp_op")).name
    if name not in _METHODS or name == "not_equal":
        raise fail(
            "NKI-E11",
            "nisa.affine_select compares with 0",
            given=f"cmp_op=nl.{name}",
            limit="equal, less, less_equal, greater, greater_equal",
        )
    given["pred"] = getattr(index, _METHODS[name])(0)


def _priority(m: Machine, api: str, given: dict[str, Any]) -> None:
    """Check the class of service, which takes no part in the model."""
    value = given.pop("priority")
    if value is not None and (
        isinstance(value, bool) or value not in (0, 1, 2, 3) or not m.hw.dma_priority
    ):
        raise fail(
            "NKI-N01",
            f"{api} is given a priority that there is not",
            given=f"priority={value!r} on {m.hw.name}",
            limit="0 to 3 on NeuronCore-v4 (trn3), else nothing",
            hint="since 0.4 the place of oob_mode or dge_mode is that of priority: give "
            "them by keyword",
        )


#: the row's dge_mode of hardware descriptors, by trigger engine (unknown, scalar, sync)
_TRIGGERS = {0: 2, 2: 4, 6: 5}


def dma_copy(m: Machine, given: dict[str, Any]) -> None:
    """Refuse PSUM, and casts by hardware descriptors."""
    mode = given["dge_mode"]
    dge_code(given)
    _priority(m, "nisa.dma_copy", given)
    engine = given.pop("engine")
    dst, src = given["dst"], given["src"]
    for name, x in (("dst", dst), ("src", src)):
        if getattr(x, "memory", None) is PSUM and (name == "dst" or not m.dialect.older):
            raise fail(
                "NKI-M01",
                f"nisa.dma_copy: {name} lies in PSUM",
                given=f"{x!r}",
                limit="since 0.3 DMA moves between HBM and SBUF",
                hint=suggestions.psum_by_dma(name, given) + compat.HINT,
            )
    for x in (dst, src):
        one_for_each_row("nisa.dma_copy", x)
    if isinstance(src, Patterned) and src.size == getattr(dst, "size", 0):
        given["src"] = src.with_shape(dst.shape)
    elif isinstance(dst, Patterned) and dst.size == getattr(src, "size", 0):
        given["dst"] = dst.with_shape(src.shape)
    if mode == 2 and getattr(dst, "dtype", None) != getattr(src, "dtype", None):
        raise fail(
            "NKI-D05",
            "a DMA with hardware descriptors does not cast",
            given=f"{src!r} to {dst!r}",
            limit="equal dtypes with nisa.dge_mode.hwdge",
            hint="nisa.tensor_copy casts; or leave dge_mode out",
        )
    if mode == 2:
        if engine not in _TRIGGERS:
            raise fail(
                "NKI-E01",
                "nisa.dma_copy: this engine cannot trigger hardware descriptors",
                given=f"engine code {engine} with dge_mode=hwdge",
                limit="with nisa.dge_mode.hwdge only nisa.engine.scalar and sync are valid",
                hint="leave engine out, or use nisa.engine.sync",
            )
        given["dge_mode"] = _TRIGGERS[engine]
    if engine in (2, 6) and mode not in (0, 2):
        raise fail(
            "NKI-E01",
            "nisa.dma_copy: an engine is given that does not make descriptors",
            given=f"engine code {engine} without hwdge",
            limit="nisa.engine.sync and scalar go with nisa.dge_mode.hwdge",
        )


_INDEX_ROWS = 16  # of the indices of a transposing gather, and of what it transposes


def _gathered(m: Machine, src: Patterned) -> None:
    """Hold a transpose of rows that indices choose to its documented shapes and dtypes."""
    rows, columns = src.rows.shape[0], src.rows.size // src.rows.shape[0]
    if (
        rows % _INDEX_ROWS
        or columns > 1
        and rows != m.hw.pmax
        or src.dtype.itemsize != 2
        or src.shape[-1] > m.hw.pmax
        or src.shape[0] % _INDEX_ROWS
        or len(src.shape) == 4
        and 1 not in src.shape[1:3]
    ):
        raise fail(
            "NKI-S03",
            "nisa.dma_transpose does not transpose these rows",
            given=f"indices {src.rows.shape}, rows {src.shape} of {src.dtype}",
            limit="indices (16 .. 128 by 16, 1) or (128, n), which count column by column; "
            "rows by 16 of 2-byte elements, the last dim up to 128; in 4-D one of the two dims "
            "between is 1",
            hint="nisa.dma_copy the rows, then nisa.nc_transpose",
        )
    if src.rows.dtype != np.uint32:
        raise fail(
            "NKI-S03",
            "nisa.dma_transpose does not take these indices",
            given=f"indices of {src.rows.dtype}",
            limit="uint32",
            hint="make the tensor that they come from of uint32",
        )


def _by_hardware(m: Machine, src: Any) -> None:
    """Hold a transpose by hardware descriptors to its documented shapes (those of 0.6)."""
    shape = src.shape
    ok = (
        len(shape) > 1 and shape[0] == 16
        if len(shape) < 3
        else shape[0] in (1, 2, 4, 8, 16) and shape[0] * shape[-2] % 16 == 0
    )
    if not ok or src.dtype.itemsize != 2 or shape[-1] > m.hw.pmax:
        raise fail(
            "NKI-S03",
            "nisa.dma_transpose with hwdge does not take this shape",
            given=f"src {shape} of {src.dtype}",
            limit="hwdge: 2-byte elements, the last dim up to 128; 16 rows in 2-D; in 3-D "
            "and 4-D 1, 2, 4, 8 or 16 in front, times the last but one dim a multiple "
            "of 16",
            hint="leave dge_mode out",
        )


def dma_transpose(m: Machine, given: dict[str, Any]) -> None:
    """Hold the shape of dst to the permuted one, and src to what makes its descriptors."""
    by_hardware = given["dge_mode"] == 2
    dge_code(given)
    _priority(m, "nisa.dma_transpose", given)
    dst, src = given["dst"], given["src"]
    written("nisa.dma_transpose", dst)
    if isinstance(src, Patterned) and src.rows.size > 1:
        _gathered(m, src)
    if by_hardware:
        _by_hardware(m, src)
    want = tuple(src.shape[a] for a in TRANSPOSES.get(len(src.shape), ()))
    if want and dst.shape != want and compat.filled(dst.shape, want):
        given["dst"] = dst = regroup(dst, want)
    if want and dst.shape != want:
        raise fail(
            "NKI-S01",
            "nisa.dma_transpose: dst has another shape than the transposed src",
            given=f"src {src.shape}, dst {dst.shape}",
            limit=f"since 0.4 exactly {want}",
            hint="make dst with that shape",
        )


def dma_compute(m: Machine, given: dict[str, Any]) -> None:
    """Take the machine's tensors out of the list."""
    given["srcs"] = [argument(x) for x in given["srcs"]]
    for x in (given["dst"], *given["srcs"]):
        one_for_each_row("nisa.dma_compute", x)


def renamed(**names: str) -> Any:
    """Return an adapter for rows whose written operand has another name here."""

    def adapt(m: Machine, given: dict[str, Any]) -> None:
        operands(m, given)
        for own, name in names.items():
            given[name] = given.pop(own)

    return adapt


def match_replace(m: Machine, given: dict[str, Any]) -> None:
    """Walk the values from the last to the first, as since 0.6."""
    operands(m, given)
    given["backwards"] = True


def shuffle(m: Machine, given: dict[str, Any]) -> None:
    """Take any sequence as the mask."""
    operands(m, given)
    if hasattr(given["shuffle_mask"], "__iter__"):
        given["shuffle_mask"] = list(given["shuffle_mask"])


ADAPTERS: dict[str, Any] = {
    "tensor_copy": tensor_copy,
    "tensor_tensor": tensor_tensor,
    "tensor_scalar": tensor_scalar,
    "nc_matmul_mx": matmul_mx,
    "tensor_scalar_reduce": tensor_scalar_reduce,
    "activation": activation,
    "activation_reduce": activation,
    "memset": memset,
    "nc_matmul": matmul,
    "tensor_reduce": tensor_reduce,
    "iota": iota,
    "affine_select": affine_select,
    "dma_copy": dma_copy,
    "dma_transpose": dma_transpose,
    "nc_match_replace8": match_replace,
    "nc_stream_shuffle": shuffle,
    "dma_compute": dma_compute,
    "topk": renamed(val_dst="dst"),
}
