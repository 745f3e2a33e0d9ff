"""How the `nl` language lowers to instructions.

Elementwise functions become one row of the table where shapes allow it; what the SDK builds out
of several instructions (softmax, matmul without transpose_x, partition broadcast) is built here
out of the same ones, so that checks and costs come for free.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops
from ..chip.memory import FULLY, HBM, PSUM, sbuf
from ..errors import fail
from ..indexing.geometry import moved
from ..machine import allocate, assignment, limits, numpy_idioms, suggestions
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from ..trace.written import written
from . import act, dve, pe
from . import reduce as reduction
from .operands import align, engine_code, is_scalar, result_dtype

_GIVES_TRUTH = frozenset(name for name, op in ops.ALU.items() if op.gives_truth)


def operator(m: Machine, name: str, *args: Any, **kw: Any) -> Any:
    """Do what a Python operator or an assignment on tensors means."""
    if name == "copy":
        return copy(m, *args, **kw)
    if name == "copy_into":
        return _copy_into(m, *args)
    if name == "fill":
        dst, value = args
        m.tile(dst, "destination")
        return dve.memset(dst.shape, value, dst.dtype, dst=dst)
    if name in ("negative", "invert", "abs"):
        return unary(m, name, *args)
    x, y = args
    return binary(m, name, x, y, partitions=False)


def copy(m: Machine, src: Any, dtype: Any = None, mask: Any = None) -> Tensor:
    """Copy a tile, keeping its dtype unless another is asked for."""
    return dve.tensor_copy(src, dtype=dtype, mask=mask)


def _copy_into(m: Machine, dst: Tensor, src: Tensor) -> None:
    """Copy a tile into a destination, repeating dims of size 1."""
    src = m.tile(src, "value").settle()
    m.tile(dst, "destination")
    if src.shape != dst.shape:
        target = assignment.fit(dst, src.shape)
        if target is None:
            src = broadcast_to(m, src, dst.shape)
        else:
            dst = target
    dve.tensor_copy(src, dst=dst)


# -- broadcasting ----------------------------------------------------------------------------


def broadcast_to(m: Machine, t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Repeat dims of size 1: free dims are a stride of 0, partitions a matmul with ones."""
    t.settle()
    dims = limits.sizes(shape)
    if len(dims) < len(t.shape) or t.memory is not HBM and t.nblock:
        raise fail(
            "NKI-S02", "a tensor cannot be broadcast to fewer dims", given=f"{t.shape} to {dims}"
        )
    if t.memory is HBM:
        lead = len(dims) - len(t.shape)
        old, strides = (1,) * lead + t.shape, (0,) * lead + t.strides
    else:
        t = align(t, len(dims))
        old, strides = t.shape, t.strides
    if any(a not in (1, b) for a, b in zip(old, dims)):
        raise fail(
            "NKI-S02",
            "shapes do not broadcast",
            given=f"{t.shape} to {dims}",
            limit="only dims of size 1 repeat",
            hint=f"load it as a row: nl.load(x.reshape((1, {old[0]})))"
            if t.memory is not HBM and t.size == old[0] == dims[-1]
            else "",
        )
    if t.memory is not HBM and old[0] == 1 and dims[0] > 1:
        t = _across_partitions(m, t, dims[0])
        old, strides = t.shape, t.strides
    return t.like(
        t.offset,
        dims,
        tuple(0 if a != b else s for a, b, s in zip(old, dims, strides)),
        0,
        moved(t.oob, t.shape, 0, len(dims) - len(t.shape)),
    )


def _across_partitions(m: Machine, t: Tensor, partitions: int) -> Tensor:
    """Return a tile (1, F...) repeated on `partitions` partitions: PE, then a copy to SBUF."""
    if partitions > m.hw.pmax:
        limits.check_tile(m.hw, "sbuf", (partitions, *t.shape[1:]), t.dtype)
    if t.memory is PSUM:
        t = dve.tensor_copy(t).settle()
    free = t.size
    flat = t.reshape((1, free))
    out = allocate.create(m, (partitions, free), t.dtype, sbuf)
    step = m.hw.gemm_moving_fmax
    for lo in range(0, free, step):
        hi = min(free, lo + step)
        out[:, lo:hi] = dve.tensor_copy(pe.partition_broadcast(flat[:, lo:hi], partitions))
    return out.reshape((partitions, *t.shape[1:]))


# -- elementwise -------------------------------------------------------------------------------


def unary(m: Machine, name: str, x: Any, dtype: Any = None, mask: Any = None) -> Tensor:
    """Apply a function of one tile: on the Scalar Engine, or the Vector Engine for a few."""
    if name == "copy":
        return copy(m, x, dtype, mask)
    fn = ops.resolve_unary(name)
    if name == "reciprocal":
        return dve.reciprocal(x, dtype=dtype, mask=mask)
    if not fn.isa:
        if name in _GIVES_TRUTH and dtype is None:
            dtype = dtypes.UINT8
        return dve.tensor_unary(x, name, dtype=dtype, mask=mask)
    return act.activation(name, x, dtype=dtype, mask=mask)


def binary(
    m: Machine,
    name: str,
    x: Any,
    y: Any,
    dtype: Any = None,
    mask: Any = None,
    partitions: bool = True,
) -> Tensor:
    """Apply a function of two tiles, or of a tile and a number.

    `partitions`: a tile of one partition is repeated to meet the other (nl functions do that,
    Python operators do not).
    """
    m.flush()
    if dtype is None and name in _GIVES_TRUTH:
        dtype = dtypes.UINT8
    if is_scalar(x) and is_scalar(y):
        raise fail(
            "NKI-M02",
            f"nl.{name} got two numbers",
            given=f"{x!r}, {y!r}",
            limit="at least one tile",
        )
    if is_scalar(y):
        return _with_number(name, m.tile(x, "x"), y, False, dtype, mask)
    if is_scalar(x):
        return _with_number(name, m.tile(y, "y"), x, True, dtype, mask)
    a, b = m.tile(x, "x"), m.tile(y, "y")
    if a.shape[0] != b.shape[0]:
        a, b = _same_partitions(m, name, a, b, partitions)
    if a.memory is PSUM and b.memory is PSUM:
        b = copy(m, b).settle()
    if name == "divide":
        dt = result_dtype(dtype, a, b)
        inverse = dve.reciprocal(b, dtype=dtypes.FLOAT32).settle()
        return binary(m, "multiply", a, inverse, dt, mask, partitions)
    alu = ops.resolve_alu(name)
    if alu.isa and a.size != b.size and alu.kind == "arith":
        if b.size == b.shape[0]:
            return dve.tensor_scalar(a, name, b, dtype=dtype, mask=mask)
        if a.size == a.shape[0]:
            return dve.tensor_scalar(b, name, a, reverse0=True, dtype=dtype, mask=mask)
    if dve.goes_to_gpsimd(m, alu, a, b, dtype):  # which does not reach PSUM
        a, b = (copy(m, t).settle() if t.memory is PSUM else t for t in (a, b))
    return dve.tensor_tensor(a, b, name, dtype=dtype, mask=mask)


def _with_number(name: str, t: Tensor, value: Any, first: bool, dtype: Any, mask: Any) -> Tensor:
    """Apply a function of a tile and a number; `first` if the number is the first operand."""
    if name == "divide":
        dt = result_dtype(dtype, t, value, np.float32(1) if dtypes.is_int(t.dtype) else value)
        if first and value == 1:
            return dve.reciprocal(t, dtype=dt, mask=mask)
        if first:
            inverse = dve.reciprocal(t, dtype=dtypes.FLOAT32)
            return dve.tensor_scalar(inverse.settle(), "multiply", value, dtype=dt, mask=mask)
        return dve.tensor_scalar(t, "multiply", 1.0 / float(value), dtype=dt, mask=mask)
    return dve.tensor_scalar(t, name, value, reverse0=first, dtype=dtype, mask=mask)


def _same_partitions(
    m: Machine, name: str, a: Tensor, b: Tensor, allowed: bool
) -> tuple[Tensor, Tensor]:
    """Repeat the operand that has one partition."""
    if not allowed or 1 not in (a.shape[0], b.shape[0]):
        raise fail(
            "NKI-S04",
            f"nl.{name}: the operands have different numbers of partitions",
            given=f"shapes {a.shape} and {b.shape}",
            limit="equal, or 1 in the nl functions; Python operators do not repeat partitions",
            hint=suggestions.vector_meant(a, b, "" if allowed else f"nl.{name}")
            or (
                suggestions.same_rows("x", a, "y", b)
                if allowed
                else f"nl.{name}(x, y) instead of the operator, or nl.broadcast_to first"
            ),
            nki_hint="slice the one that has more partitions to the other's; a row of HBM is "
            "copied into all: nisa.dma_copy(dst=t, src=row.broadcast(0, 128))",
        )
    if a.shape[0] == 1:
        return _spread(m, a, b), b
    return a, _spread(m, b, a)


def _spread(m: Machine, t: Tensor, other: Tensor) -> Tensor:
    """Return a tile (1, F...) repeated for an operation with `other`.

    The Vector Engine reads the product with ones where it is, if it fits a bank of PSUM and the
    other operand lies in SBUF.
    """
    if other.memory is PSUM or t.memory is PSUM or t.size > m.hw.psum_fmax:
        return _across_partitions(m, t, other.shape[0])
    flat = pe.partition_broadcast(t.reshape((1, t.size)), other.shape[0]).settle()
    return flat.reshape((other.shape[0], *t.shape[1:]))


def where(
    m: Machine, condition: Any, x: Any, y: Any, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Take x where the condition is not zero, else y."""
    cond = m.tile(condition, "condition").settle()
    dt = result_dtype(dtype, *(v for v in (x, y)))
    out = allocate.create(m, cond.shape, dt, sbuf)
    for value, name in ((y, "y"), (x, "x")):
        if not is_scalar(value):
            value = m.tile(value, name).settle()
            if value.shape != cond.shape:
                value = broadcast_to(m, value, cond.shape)
            if name == "x" and value.dtype != dt:
                value = copy(m, value, dt).settle()
        if name == "y":
            out[...] = value
        else:
            dve.tensor_copy_predicated(src=value, dst=out, predicate=cond)
    if mask is None:
        return out
    return copy(m, out, mask=mask)


# -- reductions -----------------------------------------------------------------------------------


def reduce(
    m: Machine,
    name: str,
    x: Any,
    axis: Any,
    dtype: Any = None,
    mask: Any = None,
    keepdims: bool = False,
) -> Tensor:
    """Reduce free axes: sum, max, min, prod, all."""
    if x.__class__ is Tensor:  # an error names what was called
        reduction.reduced_axes(x, axis, f"nl.{numpy_idioms.REDUCERS.get(name, name)}")
    return reduction.tensor_reduce(name, x, axis, dtype=dtype, mask=mask, keepdims=keepdims)


def _count(t: Tensor, axis: Any, api: str) -> int:
    n = 1
    for a in reduction.reduced_axes(t, axis, api):
        n *= t.shape[a]
    return n


def mean(
    m: Machine, x: Any, axis: Any, dtype: Any = None, mask: Any = None, keepdims: bool = False
) -> Tensor:
    """Return the mean over free axes: a sum in float32 and a scale."""
    t = m.tile(x, "x").settle()
    n = _count(t, axis, "nl.mean")
    dt = result_dtype(dtype, t)
    if dtype is None and dtypes.is_int(dt):
        dt = dtypes.FLOAT32
    total = reduce(m, "add", t, axis, dtypes.FLOAT32, mask, keepdims).settle()
    return dve.tensor_scalar(total, "multiply", 1.0 / n, dtype=dt)


def var(m: Machine, x: Any, axis: Any, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the population variance over free axes, in two passes."""
    t = m.tile(x, "x").settle()
    n = _count(t, axis, "nl.var")
    center = mean(m, t, axis, dtypes.FLOAT32, mask, keepdims=True).settle()
    diff = binary(m, "subtract", t, center, dtypes.FLOAT32, mask).settle()
    square = act.activation("square", diff, mask=mask).settle()
    total = reduce(m, "add", square, axis, dtypes.FLOAT32, mask).settle()
    return dve.tensor_scalar(total, "multiply", 1.0 / n, dtype=result_dtype(dtype, t))


def softmax(
    m: Machine, x: Any, axis: Any, dtype: Any = None, compute_dtype: Any = None, mask: Any = None
) -> Tensor:
    """Return exp(x - max) / sum over free axes; the sum comes with the exponential."""
    t = m.tile(x, "x").settle()
    axes = reduction.reduced_axes(t, axis, "nl.softmax")
    dt = result_dtype(dtype, t)
    f32 = dtypes.FLOAT32
    if axes != tuple(range(1, len(t.shape))) or mask is not None:
        top = reduce(m, "maximum", t, axis, f32, mask, keepdims=True).settle()
        exp = act.activation("exp", binary(m, "subtract", t, top, f32, mask).settle(), mask=mask)
        total = reduce(m, "add", exp.settle(), axis, f32, mask, keepdims=True).settle()
        return binary(m, "multiply", exp, dve.reciprocal(total).settle(), dt, mask)
    down = reduction.tensor_reduce("maximum", t, axis, dtype=f32, negate=True).settle()
    total = allocate.create(m, (t.shape[0], 1), f32, sbuf)
    exp = act.activation_reduce("exp", t, bias=down, reduce_op="add", reduce_res=total, dtype=f32)
    exp.settle()
    return dve.tensor_scalar(exp, "multiply", dve.reciprocal(total).settle(), dtype=dt)


def rms_norm(
    m: Machine,
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-6,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Return x * w / sqrt(sum(x^2) / n + epsilon) over free axes."""
    t = m.tile(x, "x").settle()
    f32 = dtypes.FLOAT32
    square = act.activation("square", t, dtype=f32, mask=mask).settle()
    total = reduce(m, "add", square, axis, f32, mask, keepdims=True).settle()
    scaled = dve.tensor_scalar(total, "multiply", 1.0 / n, op1="add", operand1=epsilon).settle()
    root = act.activation("rsqrt", scaled).settle()
    out = binary(m, "multiply", t, root, f32, mask).settle()
    return binary(m, "multiply", out, w, result_dtype(dtype, t), mask)


class LoopReduce:
    """What `nl.loop_reduce` returns: a value that the tile it is assigned to takes in.

    Which loops are reduced over (`loop_indices`) decides nothing: it is done wherever it stands.
    """

    def __init__(self, x: Any, op: Any, loop_indices: Any, dtype: Any, mask: Any):
        self.x, self.op, self.dtype, self.mask = x, op, dtype, mask

    def assign_to(self, m: Machine, dst: Tensor) -> None:
        """Do dst = op(dst, x), or set a destination that no instruction has written yet."""
        m.flush()
        x = m.tile(self.x, "x")
        m.tile(dst, "destination")
        if not self._has_value(m, dst):
            result = copy(m, x, self.dtype, self.mask)
        else:
            result = binary(m, ops.resolve_alu(self.op).name, dst, x, self.dtype, self.mask)
        if result.pending is not None:
            result.pending.inplace = True
        m.assign(dst, result)

    @staticmethod
    def _has_value(m: Machine, dst: Tensor) -> bool:
        """Return whether a tile has a value. The record decides, not data: a timing-only run issues
        the same. Free zeros in PSUM and the copy of a tile that changes are not in the record."""
        st = dst.storage
        assert st is not None
        return st.lazy_zero or st.init == FULLY or written(m.trace, dst)


# -- Tensor Engine ---------------------------------------------------------------------------------


def matmul(m: Machine, x: Any, y: Any, transpose_x: bool = False, mask: Any = None) -> Tensor:
    """Return x @ y in PSUM; without `transpose_x`, x is transposed first (PE and a copy)."""
    a = m.tile(x, "x").settle()
    if not transpose_x:
        if len(a.shape) != 2:
            raise fail("NKI-S03", "nl.matmul takes 2-D tiles", given=f"x {a.shape}")
        whole = getattr(a, "uncut", None)
        a = copy(m, pe.nc_transpose_pe(a).settle()).settle()
        if whole is not None:
            a.uncut = whole[0][::-1], whole[1][::-1]
    return pe.nc_matmul(a, y, mask=mask)


def transpose(m: Machine, x: Any, engine: Any = 0, dtype: Any = None, mask: Any = None) -> Tensor:
    """Transpose a tile on the Tensor Engine, or on the Vector Engine if asked for."""
    engine, side = engine_code(engine, "nisa.nc_transpose"), m.hw.quadrant
    t = m.tile(x, "data")
    free = t.size // t.shape[0]
    if engine == 5:
        if m.memory.direct or max(t.shape[0], free) <= side or t.shape[0] % side or free % side:
            return pe.nc_transpose_dve(x, dtype=dtype, mask=mask)
        m.find(
            "NKI-P08",
            "note",
            "the Vector Engine transposes up to 32 x 32; the SDK takes "
            f"this tile {t.shape} of several such blocks, which goes to the Tensor Engine here",
            m.here(),
        )
    elif engine not in (0, 1):
        raise fail(
            "NKI-E01",
            "nc_transpose runs on the Tensor or the Vector Engine",
            limit="engine=nisa.tensor_engine (up to 128 x 128) or nisa.vector_engine "
            "(up to 32 x 32)",
        )
    if engine == 0 and (t.memory is PSUM or m.memory.direct and max(free, t.shape[0]) <= side):
        return pe.nc_transpose_dve(x, dtype=dtype, mask=mask)
    return pe.nc_transpose_pe(x, dtype=dtype, mask=mask)


__all__ = [
    "LoopReduce",
    "binary",
    "broadcast_to",
    "copy",
    "matmul",
    "mean",
    "operator",
    "reduce",
    "rms_norm",
    "softmax",
    "transpose",
    "unary",
    "var",
    "where",
]
