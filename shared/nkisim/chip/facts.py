"""Facts of a generation, each a value with its source; and those that hold for all so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .core import NeuronCore, Source, Timing

ARCH = "Neuron SDK 2.26, Trainium/Inferentia2 Architecture Guide"
ARCH2 = "Neuron SDK 2.26, Trainium2 Architecture Guide"
ARCH3 = "Neuron SDK 2.32, Trainium3 Architecture Guide"
ISA = "Neuron SDK 2.26, nki.isa"
ISA_NKI = "Neuron SDK 2.32, nki.isa"
TILE_SIZE = "Neuron SDK 2.26, nki.language.tile_size"
TRACES1 = "profile traces that students committed beside their trn1 kernels"
TRACES2 = "profile traces that students committed beside their trn2 kernels"


class Fact(NamedTuple):
    """A value and where it comes from."""

    value: Any
    source: Source


Facts = Mapping[str, Fact]


def documented(value: Any, text: str) -> Fact:
    """AWS states it."""
    return Fact(value, Source(text, "documented"))


def fitted(value: Any, text: str, *, narrow: bool = False) -> Fact:
    """We derived it from published measurements; `narrow`: from one kernel or one number."""
    return Fact(value, Source(text, "fitted", narrow))


def assumed(value: Any, text: str) -> Fact:
    """Our best guess."""
    return Fact(value, Source(text, "assumed"))


def like(facts: Facts, whose: str, *names: str) -> dict[str, Fact]:
    """Take over facts of another generation (all, or those named), as the guesses that they are.

    A new generation without facts of its own begins with `like(trn3.FACTS, "trn3")`.
    """
    return {
        name: assumed(facts[name].value, f"as {whose}; nothing was compared")
        for name in names or facts
    }


def make_core(
    name: str,
    generation: int,
    aliases: tuple[str, ...],
    *,
    calibrated: bool,
    facts: Facts,
    timing: Facts,
) -> NeuronCore:
    """Return a core; raises TypeError if a field is missing from the facts, or unknown."""
    return NeuronCore(
        name,
        generation,
        aliases,
        calibrated,
        timing=Timing(
            **{n: f.value for n, f in timing.items()},
            provenance={n: f.source for n, f in timing.items()},
        ),
        **{n: f.value for n, f in facts.items()},
        provenance={n: f.source for n, f in facts.items()},
    )


#: limits that AWS has published for every generation so far
LIMITS = {
    "pmax": documented(128, TILE_SIZE),
    "quadrant": documented(32, f"{ARCH}: engines read partitions from 0, 32, 64 or 96 on"),
    "psum_banks": documented(8, f"{ARCH}, PSUM"),
    "psum_bank_bytes": documented(2048, f"{ARCH}, PSUM"),
    "psum_fmax": documented(512, TILE_SIZE),
    "gemm_stationary_fmax": documented(128, TILE_SIZE),
    "gemm_moving_fmax": documented(512, TILE_SIZE),
    "pe_moving_fmax": documented(512, TILE_SIZE),
    "pe_result_bytes": documented(2048, f"{ARCH}, PSUM: one bank"),
    "bn_stats_fmax": documented(512, TILE_SIZE),
    "sbuf_operand_elements": documented(
        64 * 1024, f"{ARCH}: up to 64K elements of the free dimension in SBUF (Vector and Scalar)"
    ),
    "psum_operand_elements": documented(
        4 * 1024, f"{ARCH}: up to 4K elements of the free dimension in PSUM (Vector and Scalar)"
    ),
    "dma_engines": documented(16, f"{ARCH}, DMA: 32 on a chip of 2 cores, 16 serve a core"),
    "act_resident": assumed(
        frozenset(("copy", "identity", "square", "relu", "abs", "sign")),
        "AWS does not list what a table holds: functions that need no interpolation",
    ),
}

#: figures that AWS has published with the instructions, for NeuronCore-v2 and v3 alike
PUBLISHED = {
    "min_interval_cycles": documented(64, f"{ISA}: MIN_II is about 64"),
    "accumulator_read_cycles": documented(
        64,
        f"{ISA}.tensor_scalar_reduce, activation_reduce: + MIN_II; {ARCH}: ActReadAccumulator "
        "about 64 cycles",
    ),
    "dynamic_copy_cycles": documented(600, f"{ISA}.tensor_copy_dynamic_src: max(600, N)"),
    "sbuf_burst_bytes": documented(16, f"{ARCH}: strides of 16 bytes and more halve the bandwidth"),
    "pe_wide_passes": documented(4, f"{ISA}.nc_matmul: 4 cycles a row for float32"),
    "pe_load_cycles_per_column": documented(
        0.25, "Neuron SDK 2.26, NKI Performance Guide: fast weight load, up to 4 columns a cycle"
    ),
    "dve_scan_cycles": documented(2.0, f"{ISA}.tensor_tensor_scan: 2 N"),
    "dve_triple_cycles": documented(13.0, f"{ISA}.bn_aggr: 13 N / 3"),
    "dve_reduce_rate16": documented(2.0, f"{ISA}.tensor_reduce: N / 2 for bfloat16 add and max"),
    "dve_zero_rate16": documented(2.0, f"{ISA}.memset: N / 2 for zeros of 16-bit floats"),
    "pool_start_cycles": documented(150, f"{ISA}.iota, affine_select: 150 + N"),
    "dve_newer_rate": documented(
        4.0,
        "Neuron SDK 2.32, nki.isa: exponential at 4 times the rate of ACT, rand2 and "
        "quantize_mx 4 elements a cycle; NeuronCore-v4 only",
    ),
    "pool_topk_cycles": documented(4.0, "Neuron SDK 2.32, nki.isa.topk: 4 n + K"),
    "pool_cores": documented(8, f"{ARCH}: 8 cores of 16 partitions"),
    "pool_latency_us": assumed(0.158, "as the Vector Engine of trn2"),
    "pool_gap_us": assumed(0.060, "as the Vector Engine of trn2"),
    "dma_split_bytes": assumed(
        512,
        "below it descriptors are inefficient (SDK 2.26: 512 bytes); that the compiler cuts "
        "there is a guess",
    ),
    "dma_transpose_bytes": assumed(
        2,
        f"{ISA_NKI}.dma_transpose: descriptors of the hardware and of GpSimd take 2 bytes, and a "
        f"compiler of beta 1 takes no more; {ARCH2} names 4-byte data without a rate of its own, "
        "so that bytes move as fast in both is a guess",
    ),
    "dma_small_write_bytes": documented(
        512, "Neuron SDK 2.26: pieces of less than 512 bytes are slow; 512 itself is in traces"
    ),
}

#: what AWS's compiler is taken to do on any generation
COMPILER = {
    "compiler_window": fitted(
        256,
        "1 (as written) is up to 3 times too slow and 16 enough for most kernels; attention "
        "over long rows needs some 200",
        narrow=True,
    ),
    "compiler_vector_share": assumed(0.5, "so that a loop does not spill because of it"),
    "compiler_vector_elements": fitted(
        512,
        "one-dimensional convolutions: loops of 64 x 3 elements are one instruction, of "
        "512 x 3 and 2048 x 3 not; four PSUM drains of 128 are one in traces",
    ),
    "compiler_merged_dmas": assumed(16, "a guess: so many rows, one for each DMA engine"),
    "compiler_load_us": fitted(
        2.0,
        "about 2 us for a DMA, as AWS's documents have it; matmuls of 74 block sizes: those "
        "with loads of 64 KiB wait 0.1 to 0.3 us for each",
    ),
    "compiler_load_gbps": fitted(
        100.0, "the same: with loads of 256 KiB they hardly wait; 50 to 200 fit as well"
    ),
    "compiler_load_idle": assumed(
        0.15,
        "so that a kernel just bound by an engine is not half as fast again as one just "
        "bound by DMAs; two records lie between",
    ),
    "compiler_load_spread": assumed(
        0.15,
        "the estimate is the compiler's; 0.1 to 0.2 predict as well, and without it matmuls "
        "of some block sizes are a quarter faster on a Tensor Engine that is 1 % faster",
    ),
    "compiler_load_late_us": assumed(
        1.0,
        "half of what the shortest load is taken to need; no record has loads that wait for "
        "instructions of more than 1 us (one kernel: 2.4 % less)",
    ),
    "compiler_kept_share": assumed(
        0.25,
        "kernels of the package nki keep loads that take 32 KB a partition (two of attention "
        "prefill, the tutorial matmul with 256 rows of K), none of 15 keeps 128 KB",
    ),
    "compiler_whole_share": assumed(
        0.25,
        "bytes and counts of DMAs of eight profiles of the tutorial matmul: those of whole tiles "
        "where slices save up to 3 % of what spills, of slices where they save a quarter or more",
    ),
    "compiler_psum_share": assumed(0.5, "so that what comes later cannot take all banks"),
}
