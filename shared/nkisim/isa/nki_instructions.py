"""Instructions that came with the package nki: exponential, activate2, DMA that computes, topk ...

They exist in the dialect of today only; their parameters are those of NKI 0.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops
from ..chip.memory import HBM, SBUF
from ..errors import fail
from ..indexing.indirect import Indirect
from ..machine.instruction import PLAIN, Access, Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas, registers, sums
from .accumulators import IDLE, drive, use
from .cheaper import ENGINE, FEWER_BYTES
from .dma import gathered, run_of, scatter, with_shape
from .dve import put
from .operands import READ, UPDATE, WRITE, Moved, Tile, Vector, is_scalar, per_partition
from .table import DMA, GPSIMD, SCALAR, SYNC, TENSOR, VECTOR, instruction
from .variants import Activation, Ops

_API = "Neuron SDK 2.32 API reference: nki.isa"


# -- Vector Engine ------------------------------------------------------------------------------


def _run_exponential(m: Machine, ins: Instr, dst: Tensor) -> None:
    data = dtypes.as_float32(ins.srcs[0].np)
    value = np.exp(data - ins.scalar(0, data.ndim))
    put(value, dst)
    if ins.params or ins.also:
        reduced = drive(m, VECTOR, ins, value, ops.ALU["add"], ins.params, ins.scalar(1, 2))
        for t in ins.also:
            put(reduced, t)


@instruction(
    "exponential",
    nki="nisa.exponential(dst, src, max_value=0.0, reduce_res=None, reduce_cmd=0, reduce_init=0.0)",
    engines=(VECTOR,),
    run=_run_exponential,
    cost=formulas.four_a_cycle,
    needs="gen4_instructions",
    check=registers.register_check(VECTOR, lambda i: (i.params, "add")),
    operands=(
        Tile("src"),
        Vector("max_value", numbers=True, like="src"),
        Vector("reduce_init", numbers=True, like="src"),
        Vector("reduce_res", WRITE, optional=True, like="src"),
    ),
    promotes=("src",),
    sums=sums.REGISTERS,
    source=f"{_API}.exponential: four times the rate of ACT",
)
def exponential(
    m: Machine,
    src: Any,
    *,
    max_value: Any = 0.0,
    reduce_res: Any = None,
    reduce_cmd: Any = 0,
    reduce_init: Any = 0.0,
    dtype: Any = None,
) -> Instr:
    """Write exp(src - max_value), and add it up in the accumulators; max_value number or (P, 1)."""
    return Instr(
        params=int(reduce_cmd),
        variant=Ops("exp", registers=use(int(reduce_cmd), reduce_res is not None)),
    )


def _run_rng(m: Machine, ins: Instr, dst: Tensor) -> None:
    bits = m.core.registers.rng.integers(0, 2**32, size=dst.shape, dtype=np.uint32)
    dst.np[...] = bits.astype(f"u{dst.dtype.itemsize}").view(dst.dtype)


@instruction(
    "rng",
    nki="nisa.rng(dst, engine=5)",
    engines=(VECTOR, GPSIMD),
    run=_run_rng,
    cost=formulas.stream,
    cheaper=(ENGINE,),
    operands=(Tile("dst", WRITE, dtypes="integer"),),
    source=f"{_API}.rng",
)
def rng(m: Machine, dst: Any, *, engine: Any = 5) -> Instr:
    """Write 32 random bits per element; the dtype keeps the lowest."""
    return Instr()


def _run_rand2(m: Machine, ins: Instr, dst: Tensor) -> None:
    low, high = ins.scalar(0, dst.np.ndim), ins.scalar(1, dst.np.ndim)
    put(m.core.registers.rng.random(dst.shape, dtype=np.float32) * (high - low) + low, dst)


@instruction(
    "rand2",
    nki="nisa.rand2(dst, min, max)",
    engines=(VECTOR,),
    run=_run_rand2,
    cost=formulas.four_a_cycle,
    needs="gen4_instructions",
    operands=(
        Tile("dst", WRITE),
        Vector("min", numbers=True, like="dst"),
        Vector("max", numbers=True, like="dst"),
    ),
    source=f"{_API}.rand2: four values a cycle",
)
def rand2(m: Machine, dst: Any, *, min: Any, max: Any) -> Instr:
    """Write uniform random numbers between `min` and `max`, numbers or tiles (P, 1)."""
    return Instr()


def _run_state(m: Machine, ins: Instr, dst: None) -> None:
    words = ins.srcs[0].np.reshape(-1).astype(np.uint64)
    m.core.registers.rng = np.random.default_rng([int(w) & 0xFFFFFFFF for w in words])


_SEEDS: dict[str, Any] = dict(run=_run_state, cost=formulas.stream, on_partitions=False, writes=())


@instruction(
    "set_rng_seed",
    nki="nisa.set_rng_seed(src_seeds)",
    engines=(VECTOR,),
    **_SEEDS,
    operands=(Tile("src_seeds", documented="32-bit", elements=(1, 1)),),
    source=f"{_API}.set_rng_seed",
)
def set_rng_seed(m: Machine, src_seeds: Any) -> Instr:
    """Seed the generator of the Vector Engine with a (1, 1) tile."""
    return Instr()


@instruction(
    "rand_set_state",
    nki="nisa.rand_set_state(src_seeds, engine=3)",
    engines=(GPSIMD, VECTOR),
    **_SEEDS,
    needs="hwdge",
    operands=(Tile("src_seeds", dtypes="uint32"),),
    source=f"{_API}.rand_set_state",
)
def rand_set_state(m: Machine, src_seeds: Any, *, engine: Any = 3) -> Instr:
    """Set a generator's state: 6 words a lane on GpSimd, 24 on the Vector Engine."""
    return Instr()


def _run_get_state(m: Machine, ins: Instr, dst: Tensor) -> None:
    state = np.random.default_rng(
        m.core.registers.rng.bit_generator.state["state"]["state"] & 0xFFFFFFFF
    )
    dst.np[...] = state.integers(0, 2**32, size=dst.shape, dtype=np.uint32)


@instruction(
    "rand_get_state",
    nki="nisa.rand_get_state(dst, engine=3)",
    engines=(GPSIMD, VECTOR),
    run=_run_get_state,
    cost=formulas.stream,
    needs="hwdge",
    operands=(Tile("dst", WRITE, dtypes="uint32"),),
    source=f"{_API}.rand_get_state",
)
def rand_get_state(m: Machine, dst: Any, *, engine: Any = 3) -> Instr:
    """Write words that stand for a generator's state; the chip's own are not published."""
    return Instr()


# -- Scalar Engine --------------------------------------------------------------------------------

_PAIRS = {
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
}
_ACCUMULATES = ("add", "maximum", "minimum", "abs_max", "abs_min")


def _name(op: Any) -> str:
    return getattr(op, "nki_op", op) if not isinstance(op, ops.AluOp) else op.name


def _run_activate2(m: Machine, ins: Instr, dst: Tensor) -> None:
    fn, steps, red, cmd, slope = ins.params
    data = dtypes.as_float32(ins.srcs[0].np)
    for k, (op, reverse) in enumerate(steps):
        if op is not None:
            v = ins.scalar(k, data.ndim)
            v = np.float32(v) if is_scalar(v) else v
            data = np.asarray(op.fn(v, data) if reverse else op.fn(data, v))
    value = (
        np.where(data > 0, data, np.float32(slope) * data)
        if fn is None
        else np.asarray(fn.fn(data))
    )
    put(value, dst)
    if cmd != IDLE or ins.also:
        reduced = drive(m, SCALAR, ins, value, red, cmd)
        for t in ins.also:
            put(reduced, t)


@instruction(
    "activate2",
    nki="nisa.activate2(dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, "
    "reverse0=False, reverse1=False, reduce_op=None, reduce_res=None, "
    "reduce_cmd=0)",
    engines=(SCALAR,),
    run=_run_activate2,
    cost=formulas.with_read_out,
    needs="gen4_instructions",
    promotes=("data",),
    check=registers.register_check(SCALAR, lambda i: (i.params[3], i.params[2].name), keeps=True),
    operands=(
        Tile("data"),
        Vector("imm0", numbers=True, like="data"),
        Vector("imm1", numbers=True, like="data"),
        Vector("reduce_res", WRITE, optional=True, like="data"),
    ),
    sums=sums.REGISTERS,
    source=f"{_API}.activate2",
)
def activate2(
    m: Machine,
    op: Any,
    data: Any,
    *,
    imm0: Any,
    imm1: Any,
    op0: Any,
    op1: Any,
    relu_param: Any = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = 0,
    dtype: Any = None,
) -> Instr:
    """Write op((data op0 imm0) op1 imm1); imm0, imm1 numbers or (P, 1); reduce as asked."""
    names = _name(op0), _name(op1)
    if names not in _PAIRS:
        raise fail(
            "NKI-E05",
            "nisa.activate2 does not have these two operators",
            given=f"{names}",
            limit=", ".join(f"({a}, {b})" for a, b in sorted(_PAIRS)),
        )
    red = ops.resolve_alu(reduce_op if reduce_op is not None else "add")
    if red.name not in _ACCUMULATES:
        raise fail(
            "NKI-E06",
            "nisa.activate2 cannot reduce with this operator",
            given=f"reduce_op=nl.{red.name}",
            limit=", ".join(_ACCUMULATES),
        )
    steps = [
        (None if n == "bypass" else ops.resolve_alu(n), bool(r))
        for n, r in zip(names, (reverse0, reverse1))
    ]
    fn = None if _name(op) == "prelu" else ops.resolve_act(op)
    return Instr(
        params=(fn, steps, red, int(reduce_cmd), relu_param),
        variant=Activation(
            fn.name if fn else "prelu", use(int(reduce_cmd), reduce_res is not None)
        ),
    )


# -- GpSimd ---------------------------------------------------------------------------------------


def _run_nonzero(m: Machine, ins: Instr, dst: Tensor) -> None:
    offset, padding = ins.params
    src, out = ins.srcs[0].np, dst.np
    flat, rows = src.reshape(src.shape[0], -1), out.reshape(out.shape[0], -1)
    for p in range(0, flat.shape[0], m.hw.pool_partitions):
        at = np.flatnonzero(flat[p]) + offset
        rows[p, : len(at)], rows[p, len(at) : -1], rows[p, -1] = at, padding, len(at)
    out[...] = rows.reshape(out.shape)


@instruction(
    "nonzero_with_count",
    nki="nisa.nonzero_with_count(dst, src, index_offset=0, padding_val=-1)",
    engines=(GPSIMD,),
    writes=(SBUF,),
    run=_run_nonzero,
    cost=formulas.gpsimd,
    needs="hwdge",
    operands=(
        Tile("dst", UPDATE, memories=(SBUF,), dtypes="int32"),
        Tile("src", memories=(SBUF,), dtypes="float32 or int32"),
    ),
    source=f"{_API}.nonzero_with_count",
)
def nonzero_with_count(
    m: Machine, dst: Any, src: Any, *, index_offset: int = 0, padding_val: int = -1
) -> Instr:
    """Write where partitions 0, 16 ... 112 are not zero, then padding, then how often."""
    if src.shape[0] != dst.shape[0] or per_partition(dst) != per_partition(src) + 1:
        raise fail(
            "NKI-S01",
            "nisa.nonzero_with_count: dst does not fit src",
            given=f"src {src.shape}, dst {dst.shape}",
            limit="as many partitions, and one element more in each",
        )
    return Instr(params=(int(index_offset), int(padding_val)))


def _run_topk(m: Machine, ins: Instr, dst: Tensor) -> None:
    n, k = ins.params, per_partition(dst)
    src = dtypes.as_float32(ins.srcs[0].np)
    index = ins.also[0].np
    many = m.hw.pool_partitions
    for p in range(0, src.shape[0], many):
        snake = src[p : p + many].reshape(many, -1).T.reshape(-1)[:n]
        best = np.argsort(snake, kind="stable")[len(snake) - k :]
        dst.np[p : p + many] = snake[best].astype(dst.np.dtype)
        index[p : p + many] = best.astype(np.uint32)


@instruction(
    "topk",
    nki="nisa.topk(val_dst, idx_dst, src, n)",
    engines=(GPSIMD,),
    run=_run_topk,
    writes=(SBUF,),
    cost=formulas.top_k,
    operands=(
        Tile("dst", WRITE, memories=(SBUF,), dtypes="bfloat16"),
        Tile("idx_dst", WRITE, memories=(SBUF,), dtypes="uint32"),
        Tile("src", memories=(SBUF,), dtypes="bfloat16"),
    ),
    source=f"{_API}.topk: 4 n + K cycles",
)
def topk(m: Machine, dst: Any, idx_dst: Any, src: Any, n: int) -> Instr:
    """Write the K largest of n values of each 16 partitions (a snake), ascending, and where."""
    k, many = per_partition(dst), m.hw.pool_partitions
    if (
        not 8 <= n < 65536
        or not 1 <= k <= n
        or per_partition(src) * many < n
        or src.shape[0] % many
        or dst.shape != idx_dst.shape
        or dst.shape[0] != src.shape[0]
    ):
        raise fail(
            "NKI-S11",
            "nisa.topk: these operands do not fit together",
            given=f"src {src.shape}, val_dst {dst.shape}, idx_dst {idx_dst.shape}, n={n}",
            limit="8 <= n < 65536 and n <= 16 elements a column; 1 <= K <= n; partitions a "
            "multiple of 16; one shape for the results",
        )
    return Instr(params=int(n), variant=Ops("topk", str(n)))


# -- two cores ------------------------------------------------------------------------------------


def _wait(m: Machine, ins: Instr, dst: Tensor) -> None:
    """Do nothing: the cores have waited for each other (machine/cores.py)."""


@instruction(
    "core_barrier",
    nki="nisa.core_barrier(data, cores, engine=3)",
    engines=(GPSIMD, TENSOR, VECTOR, SCALAR, SYNC),
    run=_wait,
    writes=(),
    on_partitions=False,
    cost=formulas.semaphore,
    cheaper=(ENGINE,),
    needs="hwdge",
    is_collective=True,
    operands=(Moved("data", READ, HBM, SBUF),),
    source=f"{_API}.core_barrier: the "
    "engine is blocked, others are not; data is what the cores wait with",
)
def core_barrier(m: Machine, data: Any, *, cores: Any, engine: Any = 3) -> Instr:
    """Block an engine until the other core has come to its barrier.

    It comes after what this core has done with `data`, and before what it does with it later.
    """
    if not isinstance(cores, (tuple, list)) or sorted(cores) != [0, 1]:
        raise fail(
            "NKI-N10", "nisa.core_barrier names other cores", given=f"cores={cores}", limit="(0, 1)"
        )
    return Instr((), data.dtype, srcs=(data,), dst=data)


# -- DMA ------------------------------------------------------------------------------------------

_MOST_SOURCES = 16


def _run_compute(m: Machine, ins: Instr, dst: Tensor) -> None:
    parts, out_at, skip = ins.params
    total: Any = None
    for part in parts:
        value = dtypes.as_float32(gathered(part, skip).reshape(ins.grid))
        total = value if total is None else total + value
    if out_at is None:
        dtypes.cast(total, dst.dtype, out=dst.np)
    else:
        scatter(m, out_at, total, rmw=True, skip=skip, unique=True, line=ins.line)


def _storage(operand: Tensor | Indirect) -> Any:
    """Return where what a tensor or an access with indices names lies."""
    return (operand.base if isinstance(operand, Indirect) else operand).storage


@instruction(
    "dma_compute",
    nki="nisa.dma_compute(dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=0)",
    engines=(DMA,),
    on_partitions=False,
    run=_run_compute,
    cost=formulas.descriptors,
    cheaper=FEWER_BYTES,
    writes=(HBM, SBUF),
    operands=(Moved("dst", WRITE, HBM, SBUF),),
    sums=sums.SOURCES,
    source=f"{_API}.dma_compute",
)
def dma_compute(
    m: Machine,
    dst: Any,
    srcs: Any,
    reduce_op: Any,
    *,
    scales: Any = None,
    unique_indices: bool = True,
    oob_mode: Any = 0,
) -> Instr:
    """Write the sum of up to 16 tensors in HBM or SBUF; with an indirect dst, add to its rows."""
    if ops.resolve_alu(reduce_op).name != "add":
        raise fail(
            "NKI-E04",
            "nisa.dma_compute only adds",
            given=f"reduce_op={reduce_op!r}"[:60],
            limit="reduce_op=nl.add",
        )
    parts = list(srcs)
    if (
        not 1 <= len(parts) <= _MOST_SOURCES
        or scales is not None
        and any(float(s) != 1.0 for s in scales)
    ):
        raise fail(
            "NKI-E04",
            "nisa.dma_compute does not take these sources",
            given=f"{len(parts)} sources, scales={scales}",
            limit=f"1 to {_MOST_SOURCES} sources, scales of 1.0 or none",
        )
    for part in parts:
        if not isinstance(part, (Tensor, Indirect)) or part.size != dst.size:
            raise fail(
                "NKI-S01",
                "nisa.dma_compute: a source has another size than dst",
                given=f"source {getattr(part, 'shape', type(part).__name__)}, dst {dst.shape}",
                limit="as many elements in each",
            )
    at = None
    if isinstance(dst, Indirect):  # dst += source: the other source is dst itself
        in_place = [i for i, part in enumerate(parts) if _storage(part) is _storage(dst)]
        if len(parts) != 2 or not in_place:
            raise fail(
                "NKI-E04",
                "nisa.dma_compute adds to rows that indices choose",
                given=f"{len(parts)} sources" + (", none of them dst" if not in_place else ""),
                limit="two: what is added, and dst itself",
                hint="nisa.dma_compute(dst=rows, srcs=[tile, rows], reduce_op=nl.add)",
            )
        at = dst
        del parts[in_place[-1]]
    target = dst.base if at is not None else dst
    reads = tuple(part.rows if isinstance(part, Indirect) else part for part in parts)
    if at is not None:
        reads += (at.rows,)
    bases = tuple(part.base for part in parts if isinstance(part, Indirect))
    reads += bases
    indirect = at is not None or bool(bases)
    variant = (
        Access(
            indirect,
            at is not None,
            at is not None,
            len(bases),
            run_of(at, *parts),
            dst.shape if at is not None and bases else (),
        )
        if indirect
        else PLAIN
    )
    shaped = [part if isinstance(part, Indirect) else with_shape(part, dst.shape) for part in parts]
    ins = Instr(
        target.shape,
        target.dtype,
        srcs=reads,
        dst=target,
        params=(shaped, at, int(oob_mode) == 1),
        variant=variant,
        grid=dst.shape,
    )
    ins.inplace = at is not None
    return ins
