"""The least time that any kernel can take for a problem, by the figures of a chip.

A kernel starts, its inputs come through the DMA engines, an engine works, its outputs go the same
way. What this leaves out is what the work costs to be done in pieces: the first and the last piece,
which nothing overlaps, and the work of the Vector and Scalar Engines.
"""

from __future__ import annotations

from ..chip.core import NeuronCore

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
    chains = [
        start + (came + went) / per_us + end,
        start + came / per_us + end + step + way,
        way + step + start + went / per_us + end,
    ]
    if moved:
        chains = [start + max(piece, max(came, went) / per_us) + end]
    if tensor:
        slow = max(0.0, t.pe_window_us - way) * (1 - 1 / t.pe_cold_factor)
        chains.append(way + min(slow, tensor) + tensor + t.pe_latency_us + t.hop_us + step + way)
    return t.launch_us + max(chains)
