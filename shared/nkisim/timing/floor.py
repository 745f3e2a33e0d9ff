"""The least time that any kernel can take for a problem, by the figures of a chip.

A kernel starts, its inputs come through the DMA engines, an engine works, its outputs go the same
way. What this leaves out is what the work costs to be done in pieces: the first and the last piece,
which nothing overlaps, and the work of the Vector and Scalar Engines.
"""

from __future__ import annotations

from typing import Any

from ..chip import dtypes
from ..chip.core import NeuronCore
from ..trace.trace import Trace
from .schedule import Schedule
from .whatif import body_us

#: products of bfloat16 that give one of float32: each operand as a sum of two, the smallest left
#: out. The documented rate of float32 is lower; a kernel may do this instead.
SPLIT_PRODUCTS = 3


def tensor_us(core: NeuronCore, flops: float, dtype: str) -> float:
    """Return how long the Tensor Engine works at least for so many operations of a dtype."""
    peak = core.peak_tflops.get(dtype, core.peak_tflops["bfloat16"])
    return flops / max(peak, core.peak_tflops["bfloat16"] / SPLIT_PRODUCTS) / 1e6


def floor_us(
    core: NeuronCore, came: float, went: float, tensor: float = 0.0, moved: bool = False
) -> float:
    """Return the microseconds that a launch takes at least.

    `came`, `went`: bytes of inputs and outputs; `tensor`: what the Tensor Engine has to do.
    `moved`: DMAs alone can do it, from HBM to HBM, where a byte that comes is one that goes.

    Else it is the longest of these: the way of a load, the work, one instruction that drains it,
    the way of a store; all bytes through the DMA engines once; the inputs, an instruction, the way
    of a store; the way of a load, an instruction, the outputs. A way is a DMA of one descriptor.
    Where nothing comes or goes there is no way.
    """
    t = core.timing
    per_us = core.dma_engines * t.dma_engine_gbps * 1e3
    piece = (t.dma_semaphore_ns + t.dma_descriptor_floor_ns) / 1e3
    start, end = t.dma_start_us, t.dma_read_us + t.dma_done_us
    way = start + piece + end
    step = t.hop_us + min(
        t.min_interval_cycles / core.ghz(e) / 1e3 + latency
        for e, latency in (("vector", t.dve_latency_us), ("scalar", t.act_latency_us))
    )
    first, last = way if came else 0.0, way if went else 0.0
    chains = [
        start + (came + went) / per_us + end if came or went else 0.0,
        start + came / per_us + end + step + last if came else 0.0,
        first + step + start + went / per_us + end if went else 0.0,
    ]
    if moved:
        chains = [start + max(piece, max(came, went) / per_us) + end]
    if tensor:
        slow = max(0.0, t.pe_window_us - first) * (1 - 1 / t.pe_cold_factor)
        chains.append(first + min(slow, tensor) + tensor + t.pe_latency_us + t.hop_us + step + last)
    return t.launch_us + max(chains)


def products_us(core: NeuronCore, trace: Trace) -> float:
    """Return how long the Tensor Engine works at least for the products of a trace."""
    total = 0.0
    for k, n in trace.counts().items():
        spec = trace.op_specs[k]
        flops = spec.row.flops(spec)
        if flops.ops and flops.model:
            total += tensor_us(core, n * flops.ops, dtypes.name(spec.operands[-1].dtype))
    return total


def floor(
    plan: Schedule, core: NeuronCore, came: int, went: int, unknown: int = 0
) -> dict[str, Any]:
    """Return how near a schedule is to the least time for its job, ready for JSON; in microseconds.

    `came`, `went`: the bytes that have to come and to go (tensors.least_bytes). `unknown`: those
    that run-time indices choose in a run without values, which does not know the indices.

    - `floor_us`: the least time of any kernel that reads these bytes once, writes these once and
      makes these products (of matmuls; other arithmetic counts nothing): `floor_us` above. It is
      never more than the schedule takes, as it could be where what is loaded is not used.
    - `launch_us`, `bytes_us`, `tensor_us`: what it is made of: the launch, all bytes once through
      the DMA engines, the products at the peak of their dtype
    - `unknown_bytes`, `with_unknown_us`: bytes that this leaves out, since run-time indices choose
      them and the run had no values; and the floor if all of them were different
    - `work_us`: the launch and the work of the engine that is busy longest, `busiest`: the least
      time for these instructions, if nothing ever waited
    """
    works = [w for w in plan.works if w is not None]
    tensor = products_us(core, plan.trace)
    busiest = max(plan.busy, key=lambda e: plan.busy[e])
    took = body_us(plan) + core.timing.launch_us
    least, most = (
        min(floor_us(core, came + more, went, tensor, moved=not works), took)
        for more in (0, unknown)
    )
    return {
        "predicted": True,
        "floor_us": least,
        "launch_us": core.timing.launch_us,
        "bytes_us": (came + went) / (core.dma_engines * core.timing.dma_engine_gbps * 1e3),
        "tensor_us": tensor,
        "least_read_bytes": came,
        "least_write_bytes": went,
        "unknown_bytes": unknown,
        "with_unknown_us": most,
        "work_us": core.timing.launch_us + plan.busy[busiest],
        "busiest": busiest,
    }
