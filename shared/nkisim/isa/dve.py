"""Vector Engine: elementwise arithmetic, copies and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops
from ..chip.memory import PSUM, SBUF
from ..errors import fail
from ..machine import limits
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.overflow import exact
from ..machine.tensor import Tensor
from . import formulas
from .cheaper import ENGINE, FAST_COPY, SCALAR_TWO_INPUTS, TWO_INPUTS, ZEROS
from .operands import (
    UPDATE,
    WRITE,
    Tile,
    Vector,
    check_bitvec,
    engine_code,
    is_scalar,
    result_dtype,
)
from .table import ANY, GPSIMD, SCALAR, VECTOR, always, instruction
from .variants import Fill, Ops

_F32 = dtypes.FLOAT32
_ANY_ENGINE = (VECTOR, SCALAR, GPSIMD)
#: arithmetic with a scalar that the Scalar Engine has as well, as scale and bias
_SCALAR_ALSO = frozenset(("add", "subtract", "multiply"))


def put(value: np.ndarray, dst: Tensor) -> None:
    """Write a computed value into the destination, cast to its dtype."""
    out = dst.np
    if value.shape != out.shape:
        value = (
            np.broadcast_to(value, out.shape)
            if value.size != out.size
            else value.reshape(out.shape)
        )
    dtypes.cast(value, dst.dtype, out=out)


def lanes_of(t: Tensor) -> slice:
    """Return the partitions that a tile lies on: the lanes whose registers it drives."""
    first = t.offset // t.storage.row_bytes
    return slice(first, first + t.shape[0])


def in_order(ins: Instr, k: int) -> np.ndarray:
    """Return source `k` in the shape of the first: same elements, in the same order."""
    a, b = ins.srcs[0].np, ins.srcs[k].np
    return b if a.shape == b.shape else b.reshape(a.shape)


def _alu(op: ops.AluOp, a: Any, b: Any, dst: Tensor) -> None:
    """Apply an ALU operator; straight into `dst` when everything is float32."""
    out = dst.np
    if (
        out.dtype == np.float32
        and dst.dtype == _F32
        and op.kind == "arith"
        and out.shape in (np.shape(a), np.shape(b))
    ):  # not grouped in another way
        op.fn(a, b, out=out)
    else:
        put(np.asarray(op.fn(a, b)), dst)


# -- copies and constants -------------------------------------------------------------------


def _run_copy(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(ins.srcs[0].np, dst)
    copied_exactly(m, ins, ins.srcs[0].np, dst)


def copied_exactly(m: Machine, ins: Instr, source: np.ndarray, dst: Tensor) -> None:
    """Say so, if a copy of 32-bit integers as another dtype does not keep them."""
    if (
        source.dtype != dst.dtype
        and source.dtype.kind in "iu"
        and source.dtype.itemsize == 4
        and m.settings.checks
        and dst.dtype != dtypes.BOOL
        and ins.srcs[0].storage is not dst.storage
    ):
        m.overflow.copied(ins, source, dst)


@instruction(
    "tensor_copy",
    public="nisa.tensor_copy",
    engines=_ANY_ENGINE,
    default=ANY,
    nki="nisa.tensor_copy(dst, src, engine=0)",
    operands=(Tile("src"), Tile("dst", WRITE, optional=True)),
    hidden=("dst",),
    promotes=("src",),
    run=_run_copy,
    deferrable=always,
    cost=formulas.fast_copy,
    cheaper=(FAST_COPY, ENGINE),
    copies=True,
    source="Neuron SDK 2.26 API reference: nisa.tensor_copy",
)
def tensor_copy(
    m: Machine, src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = 0, dst: Any = None
) -> Instr:
    """Copy a tile within SBUF and PSUM, casting to `dtype` if given."""
    return Instr()


def _run_memset(m: Machine, ins: Instr, dst: Tensor) -> None:
    value = ins.params
    if dst.dtype in dtypes.PACKED:
        dst.np[...] = np.zeros((), dst.dtype)
    elif dtypes.is_int(dst.dtype) and isinstance(value, (int, np.integer)):
        dst.np[...] = np.array(value).astype(dst.dtype)
    else:
        dst.np[...] = dtypes.cast(np.float32(value).reshape(1), dst.dtype)[0]


# AWS's own simulator and doc tests let constants start at any partition
@instruction(
    "memset",
    public="nisa.memset",
    engines=(VECTOR, GPSIMD),
    on_partitions=False,
    nki="nisa.memset(dst, value, engine=0)",
    operands=(Tile("dst", WRITE, optional=True),),
    hidden=("dst",),
    run=_run_memset,
    cost=formulas.fill,
    cheaper=(*ZEROS, ENGINE),
    fills=True,
    source="Neuron SDK 2.26 API reference: nisa.memset",
)
def memset(
    m: Machine,
    shape: Any,
    value: Any,
    dtype: Any,
    *,
    mask: Any = None,
    engine: Any = 0,
    dst: Any = None,
) -> Instr:
    """Return an SBUF tile filled with a number; dim 0 of `shape` is the partition dim."""
    dims = tuple(int(n) for n in limits.sizes(shape))
    dt = _F32 if dtype is None else result_dtype(dtype)
    if not is_scalar(value):
        raise fail(
            "NKI-S09",
            "nisa.memset fills with a number",
            given=type(value).__name__,
            hint="nisa.memset(shape, 0.0, dtype); a copy of a tile: nl.copy(t)",
            nki_hint="nisa.memset(dst=t, value=0.0); a tile is copied by "
            "nisa.tensor_copy(dst=t, src=u)",
        )
    if dtypes.is_int(dt):
        dtypes.of_scalar(value)  # raises where it has more than 32 bits
    if dst is None:
        limits.check_tile(m.hw, SBUF, dims, dt)
    return Instr(dims, dt, params=value, variant=Fill(float(value) == 0.0))


def _run_predicated(m: Machine, ins: Instr, dst: Tensor) -> None:
    out = dst.np
    chosen = ins.srcs[0].np != 0
    if ins.params:
        chosen = ~chosen
    number, at = ins.scalars[0]
    value = np.float32(number).reshape(1) if at < 0 else np.reshape(ins.srcs[at].np, out.shape)
    if value.dtype != out.dtype:
        value = dtypes.cast(value, dst.dtype)
    np.copyto(out, value, where=chosen.reshape(out.shape))


@instruction(
    "tensor_copy_predicated",
    public="nisa.tensor_copy_predicated",
    engines=(VECTOR,),
    nki="nisa.tensor_copy_predicated(dst, src, predicate, reverse_pred=False)",
    operands=(
        Tile("dst", UPDATE),
        Tile("predicate", documented="unsigned", like="dst"),
        Tile("src", numbers=True, like="dst"),
    ),
    one_psum=("src", "predicate"),
    run=_run_predicated,
    cost=formulas.predicated,
    source="Neuron SDK 2.26 API reference: nisa.tensor_copy_predicated",
)
def tensor_copy_predicated(
    m: Machine,
    *,
    src: Any,
    dst: Any,
    predicate: Any,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
) -> Instr:
    """Copy `src` (tile or number) into `dst` where `predicate` is not zero."""
    if isinstance(src, Tensor) and src.dtype != dst.dtype:
        m.find(
            "NKI-D07",
            "note",
            f"src of nisa.tensor_copy_predicated is "
            f"{dtypes.name(src.dtype)} and dst {dtypes.name(dst.dtype)}; documented is one "
            "dtype for both",
            m.here(),
        )
    return Instr(params=bool(reverse_pred))


# -- elementwise arithmetic ---------------------------------------------------------------------

_EXACT = frozenset(("add", "subtract", "multiply"))  # on 32-bit integers, by GpSimd
_NOT_POWER = frozenset(ops.ALU) - {"power"}


def _in_integers(m: Machine, alu: ops.AluOp, a: Tensor, b: Tensor, dtype: Any) -> bool:
    """Return whether GpSimd computes a function of two tiles in 32-bit integers.

    neuronxcc.nki: sums and products of two tiles of one dtype. The package nki: all arithmetic, if
    the result has 32-bit integers as well.
    """
    if not m.dialect.all_integers_exact:
        return alu.name in _EXACT and a.dtype == b.dtype and dtypes.is_int32(a.dtype)
    return (
        alu.kind == "arith"
        and alu.name != "power"
        and dtypes.is_int32(a.dtype)
        and dtypes.is_int32(b.dtype)
        and (dtype is None or dtypes.is_int32(result_dtype(dtype)))
    )


def goes_to_gpsimd(m: Machine, alu: ops.AluOp, a: Tensor, b: Tensor, dtype: Any) -> bool:
    """Return whether GpSimd computes a function of two tiles unless an engine is named."""
    return alu.name == "power" or _in_integers(m, alu, a, b, dtype)


def _exact_tensor_tensor(m: Machine, ins: Instr) -> np.ndarray | None:
    op, integers = ins.params
    if op.kind != "arith" or integers and ins.engine == GPSIMD:
        return None
    return np.asarray(op.fn(exact(ins.srcs[0]), in_order(ins, 1).astype(np.float64)))


def _run_tensor_tensor(m: Machine, ins: Instr, dst: Tensor) -> None:
    a, b = ins.srcs[0].np, in_order(ins, 1)
    op, integers = ins.params
    if integers and ins.engine == GPSIMD:
        if a.dtype != b.dtype:
            a, b = a.astype(np.int64), b.astype(np.int64)
        value = np.asarray(op.fn(a, b))  # comparisons give float32
        if (
            a.dtype == np.int64
            and value.dtype == a.dtype
            or dtypes.is_int32(value.dtype)
            and dtypes.is_int32(dst.dtype)
        ):
            value = value.astype(dst.dtype)  # modulo 2**32
        put(value, dst)
        return
    if op.kind == "arith":
        a, b = dtypes.as_float32(a), dtypes.as_float32(b)
    _alu(op, a, b, dst)


@instruction(
    "tensor_tensor",
    public="nisa.tensor_tensor",
    engines=(VECTOR, GPSIMD),
    nki="nisa.tensor_tensor(dst, data1, data2, op, engine=0)",
    engine_ops={VECTOR: _NOT_POWER, GPSIMD: _EXACT | {"power"}},
    operands=(Tile("data1"), Tile("data2", like="data1")),
    one_psum=("data1", "data2"),
    promotes=("data1", "data2"),
    run=_run_tensor_tensor,
    deferrable=always,
    exact=_exact_tensor_tensor,
    cost=formulas.two_inputs,
    cheaper=TWO_INPUTS,
    source="Neuron SDK 2.26 API reference: nisa.tensor_tensor",
)
def tensor_tensor(
    m: Machine,
    data1: Any,
    data2: Any,
    op: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = 0,
) -> Instr:
    """Apply `op` to two tiles, element by element, in float32.

    GpSimd computes in 32-bit integers, modulo 2**32: in neuronxcc.nki sums and products of two
    tiles of int32, or of uint32; in the package nki all arithmetic of tiles of int32 or uint32 into
    such a tile, unless one of them lies in PSUM or engine=nisa.engine.vector is given.

    Both have as many partitions, and as many elements per partition, which are taken in order;
    the result has the shape of `data1`. Free dims of size 1 repeat.
    """
    alu = ops.resolve_alu(op)
    check_bitvec(alu, (data1, data2), "nisa.tensor_tensor", dtype)
    in_psum = PSUM in (data1.memory, data2.memory)
    # The package nki: "unless an operand lies in PSUM"; neuronxcc.nki refuses that.
    named = engine_code(engine, "nisa.tensor_tensor")
    chosen = not named and not (in_psum and m.dialect.psum_stays_on_dve)
    integers = _in_integers(m, alu, data1, data2, dtype)
    gpsimd = alu.name == "power" or integers and chosen
    if gpsimd and in_psum:
        raise fail(
            "NKI-E02",
            f"nisa.tensor_tensor: {alu.name} of these dtypes runs on GpSimd, "
            "which has no port to PSUM",
            given=f"data1 {data1!r}, data2 {data2!r}",
            limit="power, and 32-bit integer add, subtract and multiply, read SBUF",
            hint="copy the operand to SBUF first: nl.copy(x)",
            nki_hint="copy the operand to SBUF first: nisa.tensor_copy(dst, x)",
        )
    return Instr(params=(alu, integers), variant=Ops(alu.name), engine=GPSIMD if gpsimd else "")


def _exact_tensor_scalar(m: Machine, ins: Instr) -> np.ndarray | None:
    if ins.params[0][0].kind != "arith":
        return None
    data = exact(ins.srcs[0])
    for k, (op, reverse) in enumerate(ins.params):
        data = _exact_step(ins, k, op, reverse, data)
    return data


def _exact_step(ins: Instr, k: int, op: ops.AluOp, reverse: bool, data: np.ndarray) -> np.ndarray:
    """Return x op operand `k`, a number or a tile (P, 1)."""
    number, at = ins.scalars[k]
    v: Any = (
        float(number) if at < 0 else exact(ins.srcs[at]).reshape((-1,) + (1,) * (data.ndim - 1))
    )
    return np.asarray(op.fn(v, data) if reverse else op.fn(data, v))


def _run_tensor_scalar(m: Machine, ins: Instr, dst: Tensor) -> None:
    steps = ins.params
    data: Any = ins.srcs[0].np
    arith = steps[0][0].kind == "arith"
    if arith:
        data = dtypes.as_float32(data)
    for k, (op, reverse) in enumerate(steps):
        number, at = ins.scalars[k]
        if arith:
            v = ins.scalar(k, data.ndim) if at >= 0 else np.float32(number)
        else:
            v = (
                ins.srcs[at].np.reshape((-1,) + (1,) * (data.ndim - 1))
                if at >= 0
                else ops.bits(int(number), data.dtype)
            )
        a, b = (v, data) if reverse else (data, v)
        if k == len(steps) - 1:
            _alu(op, a, b, dst)
        else:
            data = np.asarray(op.fn(a, b))


@instruction(
    "tensor_scalar",
    public="nisa.tensor_scalar",
    engines=_ANY_ENGINE,
    nki="nisa.tensor_scalar(dst, data, op0, operand0, reverse0=False, op1=None, "
    "operand1=None, reverse1=False, engine=0)",
    engine_ops={SCALAR: frozenset(("add", "multiply")), GPSIMD: frozenset(("rsqrt",))},
    operands=(
        Tile("data"),
        Vector("operand0", numbers=True, like="data"),
        Vector("operand1", numbers=True, optional=True, like="data"),
    ),
    run=_run_tensor_scalar,
    exact=_exact_tensor_scalar,
    deferrable=always,
    cost=formulas.fast_copy,
    cheaper=(FAST_COPY, ENGINE),
    source="Neuron SDK 2.26 API reference: nisa.tensor_scalar",
)
def tensor_scalar(
    m: Machine,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = 0,
) -> Instr:
    """Return (data op0 operand0) op1 operand1; operands are numbers or tiles of shape (P, 1)."""
    api = "nisa.tensor_scalar"
    steps = [(ops.resolve_alu(op0), bool(reverse0))]
    values = [operand0]
    if op1 is not None:
        if operand1 is None:
            raise fail(
                "NKI-S09",
                f"{api} has an op1 and no operand1",
                limit="a number or a tile (P, 1) for each operator",
            )
        steps.append((ops.resolve_alu(op1), bool(reverse1)))
        values.append(operand1)
        if steps[0][0].kind != steps[1][0].kind:
            raise fail(
                "NKI-E05",
                f"{api}: op0 and op1 are of different classes",
                given=f"{steps[0][0].name} ({steps[0][0].kind}), "
                f"{steps[1][0].name} ({steps[1][0].kind})",
                limit="both bitvec or both arithmetic",
                hint="make two calls",
            )
    for op, _ in steps:
        check_bitvec(op, (data, *values), api, dtype)
    bitvec = steps[0][0].kind == "bitvec"
    dt = data.dtype if dtype is None and bitvec else result_dtype(dtype, data, *values)
    names = [op.name for op, _ in steps]
    gpsimd = data.memory is SBUF and any(name in ("rsqrt", "power") for name in names)
    either = not bitvec and all(name in _SCALAR_ALSO for name in names)
    return Instr(
        dtype=dt,
        params=steps,
        variant=Ops(*names),
        engine=GPSIMD if gpsimd else ANY if either else "",
    )


def _exact_scalar_tensor_tensor(m: Machine, ins: Instr) -> np.ndarray | None:
    op0, rev0, op1, rev1 = ins.params
    if "bitvec" in (op0.kind, op1.kind):
        return None
    x = _exact_step(ins, 0, op0, rev0, exact(ins.srcs[0]))
    y = in_order(ins, 1).astype(np.float64)
    return np.asarray(op1.fn(y, x) if rev1 else op1.fn(x, y))


def _run_scalar_tensor_tensor(m: Machine, ins: Instr, dst: Tensor) -> None:
    op0, rev0, op1, rev1 = ins.params
    x, y = dtypes.as_float32(ins.srcs[0].np), dtypes.as_float32(in_order(ins, 1))
    v = ins.scalar(0, x.ndim)
    v = np.float32(v) if is_scalar(v) else v
    x = np.asarray(op0.fn(v, x) if rev0 else op0.fn(x, v))
    _alu(op1, *((y, x) if rev1 else (x, y)), dst)


@instruction(
    "scalar_tensor_tensor",
    public="nisa.scalar_tensor_tensor",
    engines=(VECTOR,),
    nki="nisa.scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1, "
    "reverse0=False, reverse1=False)",
    operands=(
        Tile("data"),
        Tile("operand1", like="data"),
        Vector("operand0", numbers=True, like="data"),
    ),
    one_psum=("data", "operand1"),
    promotes=("data", "operand1"),
    run=_run_scalar_tensor_tensor,
    exact=_exact_scalar_tensor_tensor,
    deferrable=always,
    cost=formulas.scalar_two_inputs,
    cheaper=SCALAR_TWO_INPUTS,
    source="Neuron SDK 2.26 API reference: nisa.scalar_tensor_tensor",
)
def scalar_tensor_tensor(
    m: Machine,
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Instr:
    """Return (data op0 operand0) op1 operand1: operand0 number or (P, 1), operand1 a tile.

    The tiles have as many partitions and as many elements per partition, taken in order.
    """
    alu0, alu1 = ops.resolve_alu(op0), ops.resolve_alu(op1)
    return Instr(
        params=(alu0, bool(reverse0), alu1, bool(reverse1)), variant=Ops(alu0.name, alu1.name)
    )


def _run_reciprocal(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(np.reciprocal(dtypes.as_float32(ins.srcs[0].np)), dst)


@instruction(
    "reciprocal",
    public="nisa.reciprocal",
    engines=(VECTOR,),
    nki="nisa.reciprocal(dst, data)",
    operands=(Tile("data"),),
    promotes=("data",),
    run=_run_reciprocal,
    deferrable=always,
    cost=formulas.iterative,
    source="Neuron SDK 2.26 API reference: nisa.reciprocal",
)
def reciprocal(m: Machine, data: Any, *, dtype: Any = None, mask: Any = None) -> Instr:
    """Return 1 / data, precisely."""
    return Instr()


def _run_unary(m: Machine, ins: Instr, dst: Tensor) -> None:
    data = ins.srcs[0].np
    put(
        np.asarray(ins.params.fn(data if ins.params.name == "invert" else dtypes.as_float32(data))),
        dst,
    )


@instruction(
    "tensor_unary",
    engines=(VECTOR,),
    operands=(Tile("x"),),
    promotes=("x",),
    run=_run_unary,
    deferrable=always,
    cost=formulas.fast_copy,
    cheaper=(FAST_COPY,),
    source="Neuron SDK 2.26 API reference: nl.ceil, floor, trunc, negative, "
    "invert (lowered to tensor_scalar)",
)
def tensor_unary(m: Machine, x: Any, op: Any, *, dtype: Any = None, mask: Any = None) -> Instr:
    """Apply a rounding, sign or bit function to a tile."""
    fn = ops.resolve_unary(op)
    if fn.name == "invert":
        check_bitvec(ops.ALU["invert"], (x,), "nl.invert")
    return Instr(params=fn, variant=Ops(fn.name))
