"""What one instruction costs: engine cycles and DMA descriptors, from its access patterns.

Each row of the instruction table names a formula of this file. A formula sees the dtypes, shapes
and strides of the operands (a `Kind`), never a name, and returns the engine's busy time: cycles
that it cannot spend on the next instruction. The formulas are those that AWS published for
NeuronCore-v2 (SDK 2.26, nki.isa), with what traces of NeuronCore-v3 show to be different.
The time until the result can be used comes from `hw.Timing`.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF

if TYPE_CHECKING:
    from ..trace.trace import Kind, Pattern

MIN_II = 64             # engine cycles: the shortest initiation interval (nki.isa)
_FLOAT16 = (dtypes.BFLOAT16, dtypes.FLOAT16)
_FP8 = (dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E5M2)
_WIDE = (dtypes.FLOAT32, dtypes.TFLOAT32)


@dataclass(frozen=True)
class Work:
    """The cost of one instruction on an engine.

    `interval_us`: the engine can start the next instruction after that; `latency_us`: the result
    can be used after that (both from the start). `flops`: of the algorithm (a multiply-add is 2).
    """

    interval_us: float
    latency_us: float
    flops: int = 0
    psum: bool = False          # touches PSUM, resp. SBUF: for the port locks of generation 2
    sbuf: bool = False
    table: str = ""             # activation table that has to be loaded


@dataclass(frozen=True)
class Transfer:
    """The cost of one DMA: `us` on each of `engines` DMA engines from `first` on."""

    us: float
    first: int
    engines: int
    descriptors: int            # in all
    rows: int                   # contiguous pieces, as descriptor generation sees them
    nbytes: int
    hbm_read: int
    hbm_write: int


Formula = Callable[["Kind", NeuronCore, str], float]


# -- formulas: engine cycles ---------------------------------------------------------------------

def free(p: Pattern) -> int:
    """Return the elements per partition of an operand on chip."""
    return p.elements // p.shape[0]


def _out(kind: Kind) -> int:
    return free(kind.operands[0])


def _in(kind: Kind) -> int:
    srcs = kind.operands[kind.outputs:]
    return max((free(p) for p in srcs), default=_out(kind))


def _contiguous(p: Pattern) -> bool:
    """Tell whether the free dims of an operand are contiguous."""
    step = p.dtype.itemsize
    for n, s in zip(reversed(p.shape[1:]), reversed(p.strides[1:])):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def _is16(p: Pattern) -> bool:
    return p.dtype in _FLOAT16


def stream(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """One element per cycle and partition."""
    return max(MIN_II, _in(kind), _out(kind))


def fast_copy(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """One element per cycle; on v3 the Vector Engine moves 16-bit data 2 or 4 times as fast."""
    n: float = max(_in(kind), _out(kind))
    if hw.generation >= 3 and engine == "vector":
        tiles = [p for p in kind.operands if free(p) > 1 or n == 1]
        if all(_is16(p) for p in tiles):
            psum = any(p.kind is PSUM for p in tiles)
            n /= 2 if psum or not all(_contiguous(p) for p in tiles) else 4
    return max(MIN_II, n)


def dynamic_copy(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """A copy whose start is data: max(600, N), where the other operand is the whole tensor."""
    return max(600, min(_out(kind), free(kind.operands[kind.outputs])))


def two_inputs(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """tensor_tensor: two reads of SBUF halve the rate of v2, unless both are bfloat16."""
    n = max(_in(kind), _out(kind))
    srcs = kind.operands[kind.outputs:]
    tiles = [p for p in srcs if p.kind is SBUF]
    if hw.generation >= 3:
        both = len(tiles) == 2 and all(_is16(p) and _contiguous(p) for p in kind.operands)
        return max(MIN_II, n / 2 if both else n)
    if len(tiles) < 2:
        return max(MIN_II, n)
    fast = all(p.dtype == dtypes.BFLOAT16 and _contiguous(p) for p in srcs)
    if fast and kind.form and kind.form[0] in ("add", "subtract", "multiply"):
        return max(MIN_II, n)
    return max(MIN_II, 2 * n)


def scalar_two_inputs(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """scalar_tensor_tensor: 2N on v2 but for bfloat16 subtract and multiply."""
    n = _out(kind)
    if hw.generation >= 3:
        return max(MIN_II, n)
    fast = kind.form == ("subtract", "multiply") and n % 2 == 0 and all(
        p.dtype == dtypes.BFLOAT16 for p in kind.operands[kind.outputs:] if free(p) > 1)
    return max(MIN_II, n if fast else 2 * n)


def scan(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """tensor_tensor_scan: each element waits for the one before."""
    return max(MIN_II, 2 * _out(kind))


def reduction(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """tensor_reduce: N of the input; half of it for sums and maxima of bfloat16."""
    n = _in(kind)
    both = all(p.dtype == dtypes.BFLOAT16 for p in kind.operands)
    if both and kind.form and kind.form[0] in ("add", "maximum"):
        return max(MIN_II, n / 2)
    return max(MIN_II, n)


def with_read_out(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """A stream and the read-out of an accumulator register if a reduction is written."""
    return stream(kind, hw, engine) + (MIN_II if kind.outputs > 1 else 0)


def fill(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """memset: zeros in 16 bits go twice as fast."""
    n = _out(kind)
    return max(MIN_II, n / 2 if _is16(kind.operands[0]) and kind.form == (True,) else n)


def iterative(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """reciprocal on the Vector Engine: 8 cycles an element (published)."""
    return max(MIN_II, hw.timing.dve_reciprocal_cycles * _out(kind))


def predicated(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """tensor_copy_predicated: the predicate is a second input."""
    return max(MIN_II, _out(kind) * (2 if hw.generation < 3 else 1))


def statistics(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """bn_aggr: 13 cycles for every triple."""
    return max(MIN_II, 13 * _in(kind) / 3)


def gpsimd(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """A GpSimd program: a start-up and one element per cycle."""
    return 150 + max(_in(kind), _out(kind))


def across_partitions(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """Reduction over partitions on GpSimd: its 16-lane cores pass on every partition.

    AWS says "slow" and gives no formula: one pass for each partition of a lane is assumed.
    """
    return 150 + _in(kind) * kind.operands[kind.outputs].shape[0] / 8


def _stationary(p: Pattern, hw: NeuronCore) -> float:
    """Cycles to load the stationary operand: a quarter of its columns with fast weight load.

    Elements that lie 16 bytes or more apart cannot be fetched in bursts: the load then moves
    one byte a cycle and partition.
    """
    columns = free(p)
    if p.strides[-1] >= 16 and p.shape[-1] > 1:
        return columns * p.dtype.itemsize * hw.timing.pe_strided_load_cycles_per_byte
    return columns * hw.timing.pe_load_cycles_per_column


def _pe_passes(dtype: Any) -> int:
    return 4 if dtype in _WIDE else 1


def matmul(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """One moving column per cycle; float32 takes two instructions of two passes each.

    The next stationary operand loads behind the current stream, so the slower of the two counts.
    """
    a, b = kind.operands[kind.outputs], kind.operands[-1]
    onezero, _, transposes, _, double = kind.form
    t = hw.timing
    n = free(b) / (2 if double else 1)
    wide = b.dtype in _WIDE
    if wide and transposes and hw.generation >= 3:      # bit-exact transpose mode
        return max(MIN_II, 2 * n) + t.pe_gap_cycles
    passes, instructions = (4, 2) if wide else (1, 1)
    streaming = max(MIN_II, n * passes / instructions) + t.pe_gap_cycles
    if double and hw.generation >= 3:
        streaming = max(MIN_II, n) + t.pe_gap_cycles
    return instructions * max(streaming, _stationary(a, hw))


def transposition(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """nc_transpose on PE: the tile is stationary, an identity of as many columns moves."""
    src = kind.operands[kind.outputs]
    n = max(src.shape[0], min(MIN_II, free(src)))
    passes = 1 if src.dtype not in _WIDE else 2 if hw.generation >= 3 else 4
    return max(n * passes + hw.timing.pe_gap_cycles, _stationary(src, hw))


def ones_product(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """Partition broadcast: a matmul with a row of ones."""
    src = kind.operands[kind.outputs]
    return max(MIN_II, free(src) * _pe_passes(src.dtype)) + hw.timing.pe_gap_cycles


def small_transposition(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """nc_transpose on the Vector Engine, 32 x 32."""
    return max(MIN_II, _in(kind))


def matmul_flops(kind: Kind) -> int:
    """Return 2 K M N of a matmul."""
    a, b = kind.operands[kind.outputs], kind.operands[-1]
    rows = 2 if kind.form[-1] else 1
    return 2 * a.shape[0] * free(a) * free(b) // rows


# -- one instruction ------------------------------------------------------------------------------

#: Functions that every activation table holds: they never make one be loaded.
_IN_EVERY_TABLE = frozenset(("copy", "identity", "square", "relu", "abs", "sign"))


def work(kind: Kind, hw: NeuronCore, engine: str) -> Work:
    """Return what an instruction of a compute engine costs when it runs on `engine`."""
    t = hw.timing
    row = kind.row
    cycles = row.cost(kind, hw, engine)
    ghz = {"tensor": hw.pe_ghz, "vector": hw.dve_ghz, "scalar": hw.act_ghz}.get(
        engine, hw.pool_ghz)
    busy = cycles / ghz / 1e3
    kinds = {p.kind for p in kind.operands}
    table = ""
    flops = 0
    if engine == "tensor":
        latency = busy + t.pe_latency_us
        if row.accumulates:
            flops = matmul_flops(kind)
    elif engine == "scalar":
        fixed, gap = t.act_latency_us, t.act_gap_us
        function = getattr(kind.form, "function", "")
        if function and function not in _IN_EVERY_TABLE:
            table = function
            fixed += t.act_function_us
        latency, busy = busy + fixed, busy + gap
    else:
        fixed, gap = (t.dve_latency_us, t.dve_gap_us) if engine == "vector" \
            else (t.pool_latency_us, t.pool_gap_us)
        latency, busy = busy + fixed, busy + gap
    return Work(busy, latency, flops, PSUM in kinds, SBUF in kinds, table)


# -- DMA -----------------------------------------------------------------------------------------

def _runs(p: Pattern, partitions: bool) -> int:
    """Return the bytes of the contiguous pieces of a pattern; SBUF partitions never join."""
    step = p.dtype.itemsize
    run = step
    dims = list(zip(p.shape, p.strides))
    for n, s in reversed(dims[1:] if partitions else dims):
        if n == 1:
            continue
        if s != step:
            break
        step *= n
        run = step
    return run


def _as_one(kind: Kind) -> Kind:
    """Return the DMA of many equal pieces that follow each other as one of wide rows."""
    n = kind.outputs
    wide = tuple(replace(p, shape=(*p.shape[:-1], n * p.shape[-1]))
                 for p in (kind.operands[0], kind.operands[n]))
    return replace(kind, operands=wide, outputs=1)


def transfer(kind: Kind, hw: NeuronCore) -> Transfer:
    """Return the descriptors of a DMA, and the time they take on the engines it uses.

    A DMA engine serves 8 partitions. A descriptor moves one piece that is contiguous on both
    sides; pieces of neighbouring partitions share one if they follow each other in HBM.
    """
    t = hw.timing
    if kind.outputs > 1:                            # neighbours that the compiler merged
        kind = _as_one(kind)
    dst = kind.operands[0]
    srcs = kind.operands[kind.outputs:]
    src = next((p for p in srcs if p.elements == dst.elements), dst)
    indirect = kind.indirect
    chip = dst if dst.kind is SBUF else src if src.kind is SBUF else None
    moved = srcs[0] if indirect and dst.kind is HBM and srcs else dst
    item = max(dst.dtype.itemsize, src.dtype.itemsize)
    nbytes = max(1, moved.elements * item)
    if indirect:                                    # rows chosen at run time: one piece each
        rows = moved.shape[0]
        run = nbytes // rows
    elif kind.row.cost is transposing_dma:          # element by element
        run = src.dtype.itemsize
    else:
        run = min(_runs(dst, dst.kind is SBUF) * nbytes // (dst.elements * dst.dtype.itemsize),
                  _runs(src, src.kind is SBUF) * nbytes // (src.elements * src.dtype.itemsize))
    run = max(1, run)
    pieces = max(1, math.ceil(nbytes / run))
    if chip is None:                                # HBM to HBM: cut evenly
        engines = min(hw.dma_engines, max(1, nbytes // 512))
    else:
        engines = min(hw.dma_engines, math.ceil(chip.shape[0] / (hw.pmax // hw.dma_engines)))
    per_engine = math.ceil(pieces / engines)
    share = nbytes / engines
    hbm = src if src.kind is HBM else dst
    joined = chip is not None and not indirect and run * chip.shape[0] == nbytes \
        and _runs(hbm, False) >= nbytes
    if joined:                                      # whole partitions that follow each other
        per_engine = max(1, min(per_engine, math.ceil(share / t.dma_packet_bytes)))
        pieces = per_engine * engines
    each = share / per_engine
    slower = t.dma_small_write_factor \
        if dst.kind is HBM and each <= t.dma_small_write_bytes else 1.0
    ns = per_engine * max(t.dma_descriptor_floor_ns,
                          t.dma_descriptor_ns + slower * each / t.dma_engine_gbps)
    if joined and chip is not None:                 # each partition is still addressed
        ns = max(ns, chip.shape[0] / engines * t.dma_descriptor_floor_ns)
    if kind.row.cost is transposing_dma:
        ns = moved.elements / engines * t.dma_transpose_ns
        pieces = src.shape[0] if len(src.shape) > 1 else 1
    if kind.adds:
        ns *= 2                                     # read-modify-write: half the rate (AWS)
    rows = max(1, chip.shape[0] if chip is not None else pieces)
    return Transfer((ns + t.dma_semaphore_ns) / 1e3, 0, engines, pieces, rows, nbytes,
                    kind.read_bytes, kind.write_bytes)


def plain_dma(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """A DMA: descriptors, see `transfer`; no engine cycles."""
    return 0.0


def transposing_dma(kind: Kind, hw: NeuronCore, engine: str) -> float:
    """A DMA that transposes: see `transfer`; no engine cycles."""
    return 0.0


__all__ = ["Transfer", "Work", "transfer", "work", "Formula", "_FP8"]
