"""The chip in numbers: limits and clocks of one NeuronCore per generation, each with its source.

Sizes are bytes, clocks GHz, bandwidths 10^9 bytes per second, peaks 10^12 floating-point
operations per second. SBUF and PSUM sizes are *per partition* unless the name says total.
`NeuronCore.provenance` says where every number comes from:

- documented: AWS states it;  - fitted: we derived it from published measurements;
- assumed: neither, our best guess.
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ..errors import NkiError

KIB, MIB = 2**10, 2**20
TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
DEFAULT_TARGET = "trn1"


@dataclass(frozen=True)
class Source:
    """Where a number comes from and how far to trust it."""

    text: str
    tag: Literal["documented", "fitted", "assumed"] = "documented"


class FastModes(NamedTuple):
    """How many 16-bit elements a cycle the Vector Engine moves per partition, by what is moved."""

    copy: float                 # one input, contiguous, all in SBUF
    strided: float              # one input, strided or with a side in PSUM
    two_inputs: float           # both in SBUF, all contiguous


@dataclass(frozen=True)
class Timing:
    """How long things take beyond clocks: the constants of the latency model.

    Names end in their unit; `..._rate16`: elements a cycle and partition where all are 16 bits.
    """

    # Launch
    launch_us: float            # in nc_latency, on top of the kernel's body
    profile_us: float           # in neuron-profile's total_time, on top of the body

    # All engines
    min_interval_cycles: int    # the shortest initiation interval
    accumulator_read_cycles: int        # read-out of an accumulator register
    dynamic_copy_cycles: int    # the shortest copy whose start is data
    sbuf_burst_bytes: int       # elements that lie so far apart are no burst

    # Tensor Engine
    pe_wide_instructions: int   # that a float32 matmul is made of ...
    pe_wide_passes: int         # ... and how often they stream the moving operand, in all
    pe_transpose_passes: int    # of a float32 transpose
    pe_gap_cycles: float        # between two matmuls that stream back to back
    pe_latency_us: float        # from the last moving column to the result in PSUM
    pe_load_cycles_per_column: float        # fast weight load
    pe_strided_load_cycles_per_byte: float  # stationary elements 16 bytes or more apart
    pe_warmup_us: float         # activity until the clock is full; 0: always full
    pe_cold_factor: float       # how much slower until then

    # Vector, Scalar and GpSimd Engines
    dve_latency_us: float       # beyond one element per cycle, until the result is written
    dve_gap_us: float           # beyond it, until the next independent instruction can start
    dve_reciprocal_cycles: float        # per element
    dve_two_input_cycles: float         # per element of two inputs that both lie in SBUF
    dve_scan_cycles: float      # per element of a scan
    dve_triple_cycles: float    # per triple (count, mean, variance) of bn_aggr
    dve_reduce_rate16: float    # sums and maxima of bfloat16
    dve_zero_rate16: float      # zeros
    act_copy_rate16: float      # copies on the Scalar Engine
    act_latency_us: float
    act_gap_us: float
    act_function_us: float      # more, for a function that interpolates in a table
    act_table_us: float         # load of another function's table
    pool_latency_us: float
    pool_gap_us: float
    pool_start_cycles: int      # start of a GpSimd program
    pool_cores: int             # GpSimd cores that share the partitions
    hop_us: float               # semaphore from one instruction to the next that waits for it

    # DMA
    dma_trigger_us: float       # issue interval of triggers on a queue
    dma_start_us: float         # trigger to first descriptor on an engine
    dma_read_us: float          # latency of the first read (of the last one, when engines stream)
    dma_done_us: float          # last byte to the semaphore that a consumer sees
    dma_engine_gbps: float      # one engine, streaming
    dma_descriptor_ns: float    # one descriptor, besides its bytes
    dma_descriptor_floor_ns: float
    dma_semaphore_ns: float     # semaphore descriptor at the end of a DMA, on each engine
    dma_packet_bytes: int       # largest descriptor
    dma_split_bytes: int        # HBM to HBM: what an engine gets at least
    dma_small_write_bytes: int  # writes to HBM up to this size ...
    dma_small_write_factor: float       # ... move their bytes so much slower
    dma_transpose_ns: float     # one element of a DMA that transposes, on one engine
    dma_rmw_factor: float       # how much longer a DMA takes that adds to what is there
    dge_issue_us: float         # hardware descriptor generation: one DMA on its queue
    dge_row_us: float           # ... and each row (partition) of it

    # Modelled structure
    shared_ports: bool          # DVE/POOL exclude each other in SBUF, DVE/ACT in PSUM
    shared_banks: bool          # DVE and ACT exclude each other in one bank of PSUM

    provenance: Mapping[str, Source] = field(hash=False, repr=False)


@dataclass(frozen=True)
class NeuronCore:
    """One NeuronCore of a generation: what a kernel may use and how fast each engine ticks.

    No field has a default: a new generation says all of it, and where it knows it from.
    """

    name: str
    generation: int
    aliases: tuple[str, ...]
    calibrated: bool  # have predicted times been compared with measured ones?

    # Memories
    sbuf_bytes: int
    sbuf_usable_bytes: int  # what is left for tiles after the compiler's own reservation
    hbm_gbps: float  # whole chip; see hbm_gbps_per_core
    cores_per_chip: int

    # Clocks (GHz) and peaks
    pe_ghz: float
    dve_ghz: float
    act_ghz: float
    pool_ghz: float
    peak_tflops: Mapping[str, float] = field(hash=False)  # by dtype name, dense, one core

    # Limits
    pmax: int  # partitions
    psum_banks: int
    psum_bank_bytes: int
    psum_fmax: int  # fp32 elements in one bank
    gemm_stationary_fmax: int
    gemm_moving_fmax: int
    bn_stats_fmax: int
    dma_engines: int

    # Features: what some generations have and others do not
    dve_fast_modes: FastModes | None    # Vector Engine: several 16-bit elements a cycle
    act_resident: frozenset[str]        # functions of every activation table: never loaded
    reciprocal_with_bias: bool          # Scalar Engine: nl.reciprocal of x + bias
    range_select: bool                  # nisa.range_select exists
    pe_transpose_bit_exact: bool        # matmul's transpose mode keeps bits and dtype
    pe_double_row: bool                 # fp8 matmuls with two rows of K a partition
    small_pe_tiles: bool                # tile_size=(32, 32)
    hwdge: bool                         # hardware descriptor generation

    timing: Timing
    provenance: Mapping[str, Source] = field(hash=False, repr=False)

    @property
    def sbuf_total_bytes(self) -> int:
        """Return the SBUF size over all partitions."""
        return self.pmax * self.sbuf_bytes

    @property
    def psum_bytes(self) -> int:
        """Return the PSUM size of one partition (all banks)."""
        return self.psum_banks * self.psum_bank_bytes

    @property
    def psum_total_bytes(self) -> int:
        """Return the PSUM size over all partitions."""
        return self.pmax * self.psum_bytes

    @property
    def hbm_gbps_per_core(self) -> float:
        """Return one core's even share of the chip's HBM bandwidth."""
        return self.hbm_gbps / self.cores_per_chip

    def ghz(self, engine: str) -> float:
        """Return the clock of a compute engine ("tensor", "vector", "scalar", "gpsimd")."""
        return {"tensor": self.pe_ghz, "vector": self.dve_ghz, "scalar": self.act_ghz,
                "gpsimd": self.pool_ghz}[engine]


_ARCH = "Neuron SDK 2.26, Trainium/Inferentia2 Architecture Guide"
_ARCH2 = "Neuron SDK 2.26, Trainium2 Architecture Guide"
_ARCH3 = "Neuron SDK 2.32, Trainium3 Architecture Guide"
_LANGUAGE = "Neuron SDK 2.26, nki.language.tile_size"
_ISA = "Neuron SDK 2.26, nki.isa"

_COMMON = {
    "generation": Source(f"{_ISA}.nc_version"),
    "pmax": Source(_LANGUAGE),
    "psum_banks": Source(f"{_ARCH}, PSUM"),
    "psum_bank_bytes": Source(f"{_ARCH}, PSUM"),
    "psum_fmax": Source(_LANGUAGE),
    "gemm_stationary_fmax": Source(_LANGUAGE),
    "gemm_moving_fmax": Source(_LANGUAGE),
    "bn_stats_fmax": Source(_LANGUAGE),
    "dma_engines": Source(f"{_ARCH}, DMA: 32 on a chip of 2 cores, 16 serve a core"),
    "act_resident": Source("functions that published profiles never show a table load for; "
                           "AWS does not list what a table holds", "assumed"),
    "reciprocal_with_bias": Source(f"{_ISA}.activation"),
    "range_select": Source(f"{_ISA}.range_select: NeuronCore-v3 and newer"),
    "pe_transpose_bit_exact": Source(f"{_ARCH2}: transpose mode, new in NeuronCore-v3"),
    "pe_double_row": Source(f"{_ARCH2}: fp8 with K = 256, new in NeuronCore-v3"),
    "small_pe_tiles": Source(f"{_ISA}.nc_matmul: tile_size (32, 32) not on NeuronCore-v2"),
    "hwdge": Source(f"{_ISA}.dma_copy: dge_mode.hwdge on NeuronCore-v3 and newer"),
    "dve_fast_modes": Source(f"{_ARCH2}: 2 and 4 times the rate for 16-bit data, new in v3"),
}

#: Limits that no generation so far has changed: each core still names them.
_LIMITS = {"pmax": 128, "psum_banks": 8, "psum_bank_bytes": 2048, "psum_fmax": 512,
           "gemm_stationary_fmax": 128, "gemm_moving_fmax": 512, "bn_stats_fmax": 512,
           "dma_engines": 16}
_ACT_RESIDENT = frozenset(("copy", "identity", "square", "relu", "abs", "sign"))


def _provenance(guide: str, **special: Source) -> dict[str, Source]:
    """Merge the common sources with a generation's guide and its exceptions."""
    own = ("sbuf_bytes", "sbuf_usable_bytes", "hbm_gbps", "cores_per_chip",
           "pe_ghz", "dve_ghz", "act_ghz", "pool_ghz", "peak_tflops")
    return {**_COMMON, **{name: Source(guide) for name in own}, **special}


_TRACES = "profile traces that students committed beside their trn2 kernels"
_TRACES1 = "profile traces that students committed beside their trn1 kernels"


def _read(what: str, traces: str = _TRACES) -> Source:
    return Source(f"{what}: read from {traces}", "fitted")


_TIMING = {
    "launch_us": Source("nc_latency less body of a kernel of one tile", "fitted"),
    "profile_us": Source("total_time less body in profiles of vector additions", "fitted"),
    "min_interval_cycles": Source(f"{_ISA}: MIN_II is about 64"),
    "accumulator_read_cycles": Source(f"{_ISA}.tensor_scalar_reduce, activation_reduce: + MIN_II; "
                                      f"{_ARCH}: ActReadAccumulator about 64 cycles"),
    "dynamic_copy_cycles": Source(f"{_ISA}.tensor_copy_dynamic_src: max(600, N)"),
    "sbuf_burst_bytes": Source(f"{_ARCH}: strides of 16 bytes and more halve the bandwidth"),
    "pe_wide_instructions": Source("a matmul of float32 shows as two instructions in profiles of "
                                   "AWS's tutorials (SDK 2.32) and in traces of trn2", "fitted"),
    "pe_wide_passes": Source(f"{_ISA}.nc_matmul: 4 cycles a row for float32"),
    "pe_transpose_passes": Source(f"{_ARCH2}: fp32 transposes twice as fast as on NeuronCore-v2"),
    "pe_gap_cycles": _read("streaming interval N + 6..8 cycles"),
    "pe_latency_us": _read("351 ns from begin to end of a matmul of 444 columns"),
    "pe_load_cycles_per_column": Source("Neuron SDK 2.26, NKI Performance Guide: fast weight "
                                        "load, up to 4 columns a cycle"),
    "pe_strided_load_cycles_per_byte": Source(
        f"{_ARCH}: strides of 16 bytes and more halve the bandwidth; the figure fits 16- and "
        "32-bit weights that lie strided", "fitted"),
    "pe_warmup_us": _read("everything takes twice as long for 3.4-4.5 us of activity"),
    "pe_cold_factor": Source("Neuron Explorer, Understanding throttling: limit of 50 %"),
    "dve_latency_us": _read("158 ns + N / 0.96 GHz"),
    "dve_gap_us": Source("60 cycles to start an SBUF access, partly hidden (Architecture Guide); "
                         "about 115 ns back to back in logs of third parties", "fitted"),
    "dve_reciprocal_cycles": Source("Neuron SDK 2.26, nki.isa.reciprocal: 8 N"),
    "dve_two_input_cycles": _read("tensor_tensor of float32 takes N / 0.96 GHz"),
    "dve_scan_cycles": Source(f"{_ISA}.tensor_tensor_scan: 2 N"),
    "dve_triple_cycles": Source(f"{_ISA}.bn_aggr: 13 N / 3"),
    "dve_reduce_rate16": Source(f"{_ISA}.tensor_reduce: N / 2 for bfloat16 add and max"),
    "dve_zero_rate16": Source(f"{_ISA}.memset: N / 2 for zeros of 16-bit floats"),
    "act_copy_rate16": Source(f"{_ARCH2}: 128 elements a cycle of any dtype"),
    "act_latency_us": _read("158 ns + N / 1.2 GHz for a copy"),
    "act_gap_us": _read("back to back N / 1.2 GHz + 10 ns"),
    "act_function_us": Source("exp of 128 and 4096 elements in 0.4 and 3.7 us (SDK 2.32, NKI DMA "
                              "overview)", "fitted"),
    "act_table_us": Source("Neuron SDK 2.32, NKI DMA overview: 1.3 us"),
    "pool_latency_us": Source("as the Vector Engine", "assumed"),
    "pool_gap_us": Source("as the Vector Engine", "assumed"),
    "pool_start_cycles": Source(f"{_ISA}.iota, affine_select: 150 + N"),
    "pool_cores": Source(f"{_ARCH}: 8 cores of 16 partitions"),
    "hop_us": _read("32-35 ns between dependent instructions"),
    "dma_trigger_us": _read("issue interval of 93 ns on the Sync Engine"),
    "dma_start_us": _read("0.75-0.80 us from trigger to the first engine, 1.3 us to the last"),
    "dma_read_us": _read("0.2-0.4 us with small descriptors, 0.87 us with 32 kB"),
    "dma_done_us": _read("0.35-0.51 us from the last read to the semaphore"),
    "dma_engine_gbps": _read("4.7 ns + bytes / 27.2 GB/s a descriptor"),
    "dma_descriptor_ns": _read("4.7 ns + bytes / 27.2 GB/s a descriptor"),
    "dma_descriptor_floor_ns": _read("never below about 7 ns"),
    "dma_semaphore_ns": Source("not visible in traces of trn2", "assumed"),
    "dma_packet_bytes": _read("32 packets of 32,000 bytes for 1 MB"),
    "dma_split_bytes": Source("below it descriptors are inefficient (SDK 2.26: 512 bytes); that "
                              "the compiler cuts there is a guess", "assumed"),
    "dma_small_write_bytes": Source("Neuron SDK 2.26: pieces of less than 512 bytes are slow; "
                                    "512 itself is in traces"),
    "dma_small_write_factor": _read("512-byte rows to HBM take 35-45 ns instead of 23"),
    "dma_transpose_ns": Source("attention that loads its operands transposed (public, trn1)",
                               "fitted"),
    "dma_rmw_factor": Source(f"{_ARCH3}: before it, half the rate"),
    "dge_issue_us": Source("0.727 us a DMA in vector additions of one row", "fitted"),
    "dge_row_us": Source("1.07 ns a row in vector additions of 128 rows", "fitted"),
    "shared_ports": Source(f"{_ARCH}: DVE and GpSimd cannot access SBUF at the same time, DVE "
                           "and ACT not PSUM"),
    "shared_banks": Source(f"{_ARCH2}: DVE and ACT access PSUM at the same time, but not the "
                           "same bank"),
}

_TIMING3 = Timing(
    launch_us=9.7, profile_us=15.0,
    min_interval_cycles=64, accumulator_read_cycles=64, dynamic_copy_cycles=600,
    sbuf_burst_bytes=16,
    pe_wide_instructions=2, pe_wide_passes=4, pe_transpose_passes=2,
    pe_gap_cycles=7.0, pe_latency_us=0.163, pe_load_cycles_per_column=0.25,
    pe_strided_load_cycles_per_byte=1.0, pe_warmup_us=3.8, pe_cold_factor=2.0,
    dve_latency_us=0.158, dve_gap_us=0.060, dve_reciprocal_cycles=8.0,
    dve_two_input_cycles=1.0, dve_scan_cycles=2.0, dve_triple_cycles=13.0,
    dve_reduce_rate16=2.0, dve_zero_rate16=2.0,
    act_copy_rate16=1.0, act_latency_us=0.158, act_gap_us=0.010,
    act_function_us=0.110, act_table_us=1.3, pool_latency_us=0.158, pool_gap_us=0.060,
    pool_start_cycles=150, pool_cores=8, hop_us=0.033,
    dma_trigger_us=0.093, dma_start_us=1.1, dma_read_us=0.35, dma_done_us=0.45,
    dma_engine_gbps=27.2, dma_descriptor_ns=4.7, dma_descriptor_floor_ns=7.0,
    dma_semaphore_ns=0.0, dma_packet_bytes=32768, dma_split_bytes=512,
    dma_small_write_bytes=512, dma_small_write_factor=2.0, dma_transpose_ns=0.8,
    dma_rmw_factor=2.0, dge_issue_us=0.727, dge_row_us=0.00107,
    shared_ports=False, shared_banks=True, provenance=_TIMING,
)

_TIMING2 = replace(
    _TIMING3, launch_us=13.0, profile_us=14.0,
    pe_transpose_passes=4, pe_latency_us=0.14, pe_warmup_us=0.0, pe_cold_factor=1.0,
    dve_latency_us=0.213, dve_gap_us=0.025, dve_reciprocal_cycles=3.5,
    dve_two_input_cycles=2.0, act_latency_us=0.156, hop_us=0.033,
    dma_trigger_us=0.089, dma_start_us=1.3, dma_read_us=0.4, dma_engine_gbps=20.6,
    dma_semaphore_ns=60.0, shared_ports=True, shared_banks=False,
    provenance={
        **_TIMING,
        "pe_transpose_passes": Source(f"{_ISA}.nc_matmul: 4 cycles a row for float32"),
        "pe_latency_us": Source("as generation 3, in cycles", "assumed"),
        "pe_warmup_us": Source("no warm-up is documented for this generation"),
        "pe_cold_factor": Source("no warm-up is documented for this generation"),
        "dve_latency_us": _read("213 ns + 2 N / 1.12 GHz", _TRACES1),
        "dve_gap_us": Source("attention and mamba kernels that keep the engine busy with short "
                             "instructions", "fitted"),
        "dve_reciprocal_cycles": Source("one silu kernel that the engine bounds; 8 N, as "
                                        "published, would take 1.7 times what was measured",
                                        "fitted"),
        "dve_two_input_cycles": Source(f"{_ISA}.tensor_tensor: 2 N; traces of trn1 agree"),
        "act_copy_rate16": Source(f"{_ARCH}: 128 elements a cycle"),
        "act_latency_us": Source("dependent instructions of one element: 189 ns apart (SDK 2.26, "
                                 "NKI Performance Guide)"),
        "dma_trigger_us": _read("issue interval of 82-96 ns", _TRACES1),
        "dma_start_us": _read("1.0-2.4 us to the first data", _TRACES1),
        "dma_read_us": _read("1.0-2.4 us to the first data", _TRACES1),
        "dma_engine_gbps": _read("packets of 16-32 kB at 19.7-21.3 GB/s", _TRACES1),
        "dma_semaphore_ns": Source("a semaphore descriptor of 75-78 ns in traces of trn1, partly "
                                   "hidden when DMAs follow each other", "fitted"),
    },
)

_UNCALIBRATED = Source("the figure of generation 3; nothing was compared", "assumed")
_TIMING4 = replace(
    _TIMING3, dma_engine_gbps=33.0, dve_gap_us=0.048, act_copy_rate16=2.0, dma_rmw_factor=1.0,
    shared_banks=False,
    provenance={**{name: _UNCALIBRATED for name in _TIMING},
                "dma_engine_gbps": Source("Neuron SDK 2.32, Guideline to Avoid Under-Utilizing "
                                          "DMA Bandwidth: 33 GB/s"),
                "act_copy_rate16": Source(f"{_ARCH3}: 256 elements a cycle of 16 bits"),
                "dma_rmw_factor": Source(f"{_ARCH3}: as fast as other DMAs"),
                "shared_ports": Source(_ARCH3), "shared_banks": Source(_ARCH3),
                "dve_gap_us": Source("60 cycles, as generation 3", "assumed")},
)

TRN1 = NeuronCore(
    name="trn1", generation=2, aliases=("inf2", "gen2"), calibrated=True,
    sbuf_bytes=192 * KIB, sbuf_usable_bytes=176 * KIB,
    hbm_gbps=820.0, cores_per_chip=2,
    pe_ghz=2.8, dve_ghz=1.12, act_ghz=1.4, pool_ghz=1.4,
    peak_tflops={"bfloat16": 92.0, "float16": 92.0, "tfloat32": 92.0, "float32": 23.0,
                 "float8_e4m3": 92.0, "float8_e5m2": 92.0},
    **_LIMITS,
    dve_fast_modes=None, act_resident=_ACT_RESIDENT, reciprocal_with_bias=False,
    range_select=False, pe_transpose_bit_exact=False, pe_double_row=False, small_pe_tiles=False,
    hwdge=False,
    timing=_TIMING2,
    provenance=_provenance(
        _ARCH,
        sbuf_usable_bytes=Source("Neuron SDK 2.26, Direct Allocation Developer Guide"),
    ),
)

TRN2 = NeuronCore(
    name="trn2", generation=3, aliases=("gen3",), calibrated=True,
    sbuf_bytes=224 * KIB, sbuf_usable_bytes=208 * KIB,
    hbm_gbps=2900.0, cores_per_chip=8,
    pe_ghz=2.4, dve_ghz=0.96, act_ghz=1.2, pool_ghz=1.2,
    peak_tflops={"bfloat16": 79.0, "float16": 79.0, "tfloat32": 79.0, "float32": 20.0,
                 "float8_e4m3": 158.0, "float8_e5m2": 158.0},
    **_LIMITS,
    dve_fast_modes=FastModes(copy=4, strided=2, two_inputs=2), act_resident=_ACT_RESIDENT,
    reciprocal_with_bias=True, range_select=True, pe_transpose_bit_exact=True, pe_double_row=True,
    small_pe_tiles=True, hwdge=True,
    timing=_TIMING3,
    provenance=_provenance(
        _ARCH2,
        sbuf_usable_bytes=Source("224 KiB less the 16 KiB that generation 2 reserves; agrees with "
                                 "the usable size that kernels report", "assumed"),
        peak_tflops=Source(f"{_ARCH2}; fp8 only in double-row mode (K = 256)"),
    ),
)

TRN3 = NeuronCore(
    name="trn3", generation=4, aliases=("gen4",), calibrated=False,
    sbuf_bytes=256 * KIB, sbuf_usable_bytes=240 * KIB,
    hbm_gbps=4700.0, cores_per_chip=8,
    pe_ghz=2.4, dve_ghz=1.2, act_ghz=1.2, pool_ghz=1.2,
    peak_tflops={"bfloat16": 79.0, "float16": 79.0, "tfloat32": 79.0, "float32": 20.0,
                 "float8_e4m3": 315.0, "float8_e5m2": 315.0},
    **_LIMITS,
    dve_fast_modes=FastModes(copy=4, strided=2, two_inputs=2), act_resident=_ACT_RESIDENT,
    reciprocal_with_bias=True, range_select=True, pe_transpose_bit_exact=True, pe_double_row=True,
    small_pe_tiles=True, hwdge=True,
    timing=_TIMING4,
    provenance=_provenance(
        _ARCH3,
        sbuf_usable_bytes=Source("256 KiB less the 16 KiB that generation 2 reserves", "assumed"),
        gemm_moving_fmax=Source("as generation 2; newer documents allow more", "assumed"),
        dve_fast_modes=Source(f"{_ARCH3}: 512 elements of 16 bits a cycle, 256 of others"),
        pe_transpose_bit_exact=Source("as generation 3", "assumed"),
        pe_double_row=Source("as generation 3", "assumed"),
        peak_tflops=Source(f"{_ARCH3}; the fp8 figure is that of MXFP8", "assumed"),
    ),
)

CORES = (TRN1, TRN2, TRN3)
_BY_NAME = {alias: core for core in CORES for alias in (core.name, *core.aliases)}


def get(target: str | None = None) -> NeuronCore:
    """Return the core for a target name; None reads the environment, then falls back to trn1.

    Raises NkiError NKI-T01 for a name that is no target.
    """
    origin = "the target argument"
    if target is None:
        # An empty variable is what `VAR= command` leaves behind: the user meant "unset".
        target, origin = os.environ.get(TARGET_VARIABLE) or DEFAULT_TARGET, TARGET_VARIABLE
    core = _BY_NAME.get(target.strip().lower()) if isinstance(target, str) else None
    if core is None:
        raise NkiError(
            id="NKI-T01",
            what=f"There is no target named {target!r}.",
            limit="targets: " + ", ".join("/".join((c.name, *c.aliases)) for c in CORES),
            given=f"{origin} = {target!r}",
            hint=f'Pass target="trn1" or target="trn2", or set {TARGET_VARIABLE}.',
        )
    return core
