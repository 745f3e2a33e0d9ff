"""What one instruction costs in time: engines by the formula of its row, DMAs by descriptors.

The engine cycles come from the formula that the instruction's row names (`isa/formulas.py`);
clocks, latencies and the constants of DMA from `hw`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF
from ..isa import formulas
from ..trace.trace import OpSpec, Pattern


@dataclass(frozen=True)
class Work:
    """The cost of one instruction on an engine.

    `interval_us`: the engine can start the next instruction after that; `latency_us`: the result
    can be used after that (both from the start).
    """

    interval_us: float
    latency_us: float
    psum: bool = False  # touches PSUM, resp. SBUF: for ports that engines share
    sbuf: bool = False
    table: str = ""  # activation table that has to be loaded
    rows: float = 1.0  # share of the rows of the Tensor Engine that work
    transposes: bool = False  # on the Tensor Engine
    fast: bool = False  # in a fast mode of the Vector Engine


@dataclass(frozen=True)
class Transfer:
    """The cost of one DMA: `us` on each of `engines` DMA engines."""

    us: float
    engines: int
    descriptors: int  # in all
    rows: int  # contiguous pieces, as descriptor generation sees them
    nbytes: int
    hbm_read: int
    hbm_write: int
    triggers: float = 1.0  # less: a share of a larger DMA, and of its trigger
    #: who makes the descriptors: "" (the compiler chose) or as in machine/instruction.py, Access
    maker: str = ""


def trigger_us(x: Transfer, hw: NeuronCore) -> float:
    """Return how long the trigger of a DMA keeps its queue, in microseconds."""
    return x.triggers * hw.timing.dma_trigger_us


def descriptors_us(x: Transfer, hw: NeuronCore) -> float:
    """Return how long it takes to make the descriptors of a DMA, in microseconds.

    The hardware makes them, but for those of the host (0) and of GpSimd.
    """
    if x.maker == "static":
        return 0.0
    if x.maker == "gpsimd":
        return x.triggers * (hw.timing.swdge_issue_us + hw.timing.swdge_row_us * x.rows)
    return x.triggers * (hw.timing.dge_issue_us + hw.timing.dge_row_us * x.rows)


def issue_us(x: Transfer, hw: NeuronCore, dge: bool) -> float:
    """Return what limits how fast such DMAs follow each other, besides their bytes: microseconds.

    `dge`: the hardware makes the descriptors.
    """
    made = x.maker == "gpsimd" or dge and hw.hwdge and x.maker != "static"
    return descriptors_us(x, hw) if made else trigger_us(x, hw)


def too_small(x: Transfer, hw: NeuronCore) -> bool:
    """Return whether the pieces of a DMA of several rows are smaller than the hardware's can be."""
    return x.rows > 1 and x.nbytes < hw.timing.dge_least_bytes * max(x.rows, x.descriptors)


@lru_cache
def _without_fast_modes(hw: NeuronCore) -> NeuronCore:
    return replace(hw, dve_fast_modes=None)


def work(spec: OpSpec, hw: NeuronCore, engine: str) -> Work:
    """Return what an instruction of a compute engine costs when it runs on `engine`."""
    t = hw.timing
    cycles = spec.row.cost(spec, hw, engine)
    busy = cycles / hw.ghz(engine) / 1e3
    fast = engine == "vector" and cycles < spec.row.cost(spec, _without_fast_modes(hw), engine)
    table, rows, transposes = "", 1.0, False
    if engine == "tensor":  # the gap is in the formulas, in cycles
        gap, fixed = 0.0, t.pe_latency_us
        rows = spec.operands[spec.outputs].shape[0] / hw.pmax
        transposes = spec.row.cost is formulas.transposition or getattr(
            spec.variant, "transposes", False
        )
    elif engine == "scalar":
        gap, fixed = t.act_gap_us, t.act_latency_us
        function = getattr(spec.variant, "function", "")
        if function and function not in hw.act_resident:
            table = function
            fixed += t.act_function_us
            gap += t.act_function_gap_us
    elif engine == "vector":
        gap, fixed = t.dve_gap_us, t.dve_latency_us
    else:
        gap, fixed = t.pool_gap_us, t.pool_latency_us
    specs = {p.memory for p in spec.operands}
    interval = busy + gap
    if engine != "tensor":  # the shortest instruction has its gap in it
        interval = max(interval, t.min_interval_cycles / hw.ghz(engine) / 1e3)
    return Work(interval, busy + fixed, PSUM in specs, SBUF in specs, table, rows, transposes, fast)


ELEMENT = 4  # bytes: a piece of no more is one element

# -- DMA -------------------------------------------------------------------------------------------


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


def _apart(p: Pattern) -> bool:
    """Return whether the elements of a row lie apart, so that each is moved by itself.

    The rate of a DMA that transposes is that of whole rows on both sides.
    """
    rows = p.shape[0] if p.memory is SBUF else 1
    return p.elements > rows and _runs(p, p.memory is SBUF) == p.dtype.itemsize


def _as_one(spec: OpSpec) -> OpSpec:
    """Return the DMA of many equal pieces that follow each other as one of wide rows."""
    n = spec.outputs
    wide = tuple(
        replace(p, shape=(*p.shape[:-1], n * p.shape[-1]))
        for p in (spec.operands[0], spec.operands[n])
    )
    return replace(spec, operands=wide, outputs=1)


def _source(spec: OpSpec) -> Pattern:
    """Return what a DMA reads, element by element of what it writes: a value may be repeated.

    A number is in no tile, and an index tile is not what is moved: then it is as `dst` is.
    """
    dst, srcs = spec.operands[0], spec.sources
    for p in srcs:
        if p.elements == dst.elements:
            return p
    for p in () if spec.indirect else srcs:
        if len(p.shape) == len(dst.shape) and all(n in (1, m) for n, m in zip(p.shape, dst.shape)):
            return replace(
                p,
                shape=dst.shape,
                strides=tuple(s if n == m else 0 for n, m, s in zip(p.shape, dst.shape, p.strides)),
            )
    return dst


def transfer(spec: OpSpec, hw: NeuronCore) -> Transfer:
    """Return the descriptors of a DMA, and the time they take on the engines it uses.

    A DMA engine serves 8 partitions. A descriptor moves one piece that is contiguous on both
    sides; pieces of neighbouring partitions share one if they follow each other in HBM.
    """
    t = hw.timing
    if spec.outputs > 1:  # neighbours that the compiler merged
        spec = _as_one(spec)
    dst = spec.operands[0]
    srcs = spec.sources
    indirect, moved = spec.indirect, spec.moved
    src = moved if spec.scatters else _source(spec)
    chip = dst if dst.memory is SBUF else src if src.memory is SBUF else None
    sides = [dst, src, *spec.sides]
    item = max(p.dtype.itemsize for p in sides)
    nbytes = max(1, moved.elements * item)
    if spec.row.transposes:  # element by element
        run = src.dtype.itemsize
    else:  # a piece is one on all sides
        pieces_of = spec.sides if indirect else sides
        run = min(
            (_runs(p, p.memory is SBUF) * item // p.dtype.itemsize for p in pieces_of),
            default=nbytes,
        )
    if indirect:  # rows chosen at run time never join
        run = min(run, nbytes // moved.shape[0])
        if spec.variant.run:
            run = min(run, spec.variant.run * item)
        if chip is not None:
            run = min(run, _runs(chip, True) * item // chip.dtype.itemsize)
    run = max(1, run)
    pieces = max(1, math.ceil(nbytes / run))
    if chip is None:  # HBM to HBM: cut evenly
        engines = min(hw.dma_engines, max(1, nbytes // t.dma_split_bytes))
        part = 1 / engines
    else:  # the last engine may have less to do
        served = hw.pmax // hw.dma_engines
        engines = min(hw.dma_engines, math.ceil(chip.shape[0] / served))
        part = min(1.0, served / chip.shape[0])
    per_engine = math.ceil(pieces * part)
    share = nbytes * part
    hbm = src if src.memory is HBM else dst
    joined = (
        chip is not None
        and not indirect
        and run * chip.shape[0] == nbytes
        and _runs(hbm, False) >= nbytes
    )
    if joined:  # whole partitions that follow each other
        per_engine = max(1, min(per_engine, math.ceil(share / t.dma_packet_bytes)))
        pieces = per_engine * engines
    each = share / per_engine
    slower = (
        t.dma_small_write_factor if dst.memory is HBM and each <= t.dma_small_write_bytes else 1.0
    )
    ns = per_engine * max(
        t.dma_element_ns if run <= ELEMENT else t.dma_descriptor_floor_ns,
        t.dma_descriptor_ns + slower * each / t.dma_engine_gbps,
    )
    if joined and chip is not None:  # each partition is still addressed
        ns = max(ns, chip.shape[0] * part * t.dma_descriptor_floor_ns)
    if spec.row.transposes:  # no sooner than the bytes of a plain copy
        parts = max(1, min(p.dtype.itemsize for p in sides) // t.dma_transpose_bytes)
        best = max(moved.elements * part * parts * t.dma_transpose_ns, share / t.dma_engine_gbps)
        ns = max(best, ns) if indirect or _apart(src) or _apart(dst) else best
        pieces = src.shape[0] if len(src.shape) > 1 else 1
    if spec.adds:
        ns *= t.dma_rmw_factor
    elif not spec.scatters and len(srcs) > 1:  # a sum reads each source, and adds
        ns *= len(srcs) * t.dma_rmw_factor
    rows = max(1, chip.shape[0] if chip is not None else pieces)
    maker = getattr(spec.variant, "descriptors", "") or ("gpsimd" if indirect else "")
    return Transfer(
        (ns + t.dma_semaphore_ns) / 1e3,
        engines,
        pieces,
        rows,
        nbytes,
        spec.read_bytes,
        spec.write_bytes,
        maker=maker,
    )
