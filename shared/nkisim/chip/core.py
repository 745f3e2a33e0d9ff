"""What is known of one NeuronCore: the fields, each of them with its source.

Sizes are bytes, clocks GHz, bandwidths 10^9 bytes per second, peaks 10^12 floating-point
operations per second. SBUF and PSUM sizes are *per partition* unless the name says total.
`provenance` says where every figure and feature comes from:

- documented: AWS states it;  - fitted: we derived it from published measurements;
- assumed: neither, our best guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

KIB, MIB, GIB = 2**10, 2**20, 2**30


def size(nbytes: int) -> str:
    """Return a number of bytes as people say it: "96 GiB", "176 KiB", "100 bytes"."""
    if nbytes >= GIB and nbytes % GIB == 0:
        return f"{nbytes // GIB} GiB"
    return f"{nbytes // KIB} KiB" if nbytes % KIB == 0 else f"{nbytes} bytes"


@dataclass(frozen=True)
class Source:
    """Where a fact comes from and how far to trust it.

    `narrow`: it rests on one kernel, or on one published number.
    """

    text: str
    tag: Literal["documented", "fitted", "assumed"] = "documented"
    narrow: bool = False


class FastModes(NamedTuple):
    """How many 16-bit elements a cycle the Vector Engine moves per partition, by what is moved."""

    copy: float  # one input, contiguous, all in SBUF
    strided: float  # one input, strided or with a side in PSUM
    two_inputs: float  # both in SBUF, all contiguous


@dataclass(frozen=True)
class Timing:
    """How long things take beyond clocks: the constants of the latency model.

    Names end in their unit; `..._rate16`: elements a cycle and partition where all are 16 bits.
    """

    # Launch
    launch_us: float  # in nc_latency, on top of the kernel's body
    profile_us: float  # in neuron-profile's total_time, on top of the body

    # All engines
    min_interval_cycles: int  # the shortest initiation interval
    accumulator_read_cycles: int  # read-out of an accumulator register
    dynamic_copy_cycles: int  # the shortest copy whose start is data
    sbuf_burst_bytes: int  # elements that lie so far apart are no burst

    # Tensor Engine
    pe_wide_instructions: int  # that a float32 matmul is made of ...
    pe_wide_passes: int  # ... and how often they stream the moving operand, in all
    pe_transpose_passes: int  # of a float32 transpose
    pe_gap_cycles: float  # between two matmuls that stream back to back
    pe_latency_us: float  # from the last moving column to the result in PSUM
    pe_load_cycles_per_column: float  # fast weight load
    pe_exposed_load_cycles: float  # of a float32 one that the stream does not hide
    pe_strided_load_cycles_per_byte: float  # stationary elements 16 bytes or more apart
    pe_window_us: float  # after each such window the clock is set anew; 0: always full
    pe_full_share: float  # busy for so much of a window: full clock after it
    pe_half_share: float  # for so much or less: half
    pe_share_spread: float  # by how much shares of windows differ from what they are here
    pe_cold_factor: float  # how much slower half is

    # Vector, Scalar and GpSimd Engines
    dve_latency_us: float  # beyond one element per cycle, until the result is written
    dve_gap_us: float  # beyond it, until the next independent instruction can start
    dve_reciprocal_cycles: float  # per element
    dve_two_input_cycles: float  # per element of two inputs that both lie in SBUF
    dve_wide_scalar_cycles: float  # per element of 4 bytes, one input, all in SBUF
    dve_scan_cycles: float  # per element of a scan
    dve_triple_cycles: float  # per triple (count, mean, variance) of bn_aggr
    dve_reduce_rate16: float  # sums and maxima of bfloat16
    dve_zero_rate16: float  # zeros
    dve_newer_rate: float  # elements a cycle of exponential, rand2, quantize_mx
    act_copy_rate16: float  # copies on the Scalar Engine
    act_latency_us: float
    act_gap_us: float
    act_function_us: float  # more, for a function that interpolates in a table
    act_function_gap_us: float  # ... and until the next instruction can start
    act_table_us: float  # load of another function's table
    pool_latency_us: float
    pool_gap_us: float
    pool_start_cycles: int  # start of a GpSimd program
    pool_topk_cycles: float  # per element that topk goes through
    pool_cores: int  # GpSimd cores that share the partitions
    hop_us: float  # semaphore from one instruction to the next that waits for it

    # DMA
    dma_trigger_us: float  # issue interval of triggers on a queue
    dma_start_us: float  # trigger to first descriptor on an engine
    dma_read_us: float  # latency of the first read (of the last one, when engines stream)
    dma_done_us: float  # last byte to the semaphore that a consumer sees
    dma_engine_gbps: float  # one engine, streaming
    dma_descriptor_ns: float  # one descriptor, besides its bytes
    dma_element_ns: float  # a descriptor of one element (4 bytes or less) takes no less
    dma_descriptor_floor_ns: float
    dma_semaphore_ns: float  # semaphore descriptor at the end of a DMA, on each engine
    dma_packet_bytes: int  # largest descriptor
    dma_split_bytes: int  # HBM to HBM: what an engine gets at least
    dma_small_write_bytes: int  # writes to HBM up to this size ...
    dma_small_write_factor: float  # ... move their bytes so much slower
    dma_transpose_ns: float  # one element of a DMA that transposes, on one engine ...
    dma_transpose_bytes: int  # ... if it has no more bytes
    dma_rmw_factor: float  # how much longer a DMA takes that adds to what is there
    dge_units: int  # that make descriptors side by side
    dge_least_bytes: int  # the smallest piece whose descriptor the hardware makes
    swdge_issue_us: float  # descriptors that GpSimd makes: one DMA ...
    swdge_row_us: float  # ... and each row (partition) of it
    dge_issue_us: float  # hardware descriptor generation: one DMA on its unit
    dge_row_us: float  # ... and each row (partition) of it

    # What the compiler is taken to do (timing/compiler.py, timing/banks.py)
    compiler_window: int  # "reorder": so many instructions of an engine are looked at
    compiler_vector_share: float  # of SBUF and PSUM that tiles of such a loop take at most
    compiler_vector_elements: int  # "vectorize": that one instruction writes of a partition
    compiler_merged_dmas: int  # "merge-dma": neighbours that become one at most
    compiler_load_us: float  # "late-loads": that a load is taken to need, and ...
    compiler_load_gbps: float  # ... how fast it is taken to move its bytes
    compiler_load_idle: float  # loads need longer if DMAs have less to spare than this share
    compiler_load_spread: float  # by what share more or less, in turn
    compiler_load_late_us: float  # a load waits for no instruction that ends so much too late
    compiler_kept_share: float  # of SBUF, for loads that are kept instead of done again
    compiler_whole_share: float  # more bytes that whole tiles may spill than their slices would
    compiler_psum_share: float  # of PSUM, left to what comes earlier in the program

    # Modelled structure
    shared_ports: bool  # DVE/POOL exclude each other in SBUF, DVE/ACT in PSUM
    shared_fast_port: bool  # a fast mode of DVE and POOL exclude each other in SBUF
    pe_background_transposes: bool  # a transpose runs beside the product or transpose before it
    shared_banks: bool  # DVE and ACT exclude each other in one bank of PSUM

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
    hbm_bytes: int  # whole chip
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
    quadrant: int  # partitions that engines read together: tiles start at a multiple of it
    psum_banks: int
    psum_bank_bytes: int
    psum_fmax: int  # fp32 elements in one bank
    gemm_stationary_fmax: int
    gemm_moving_fmax: int  # what nl.tile_size says
    pe_moving_fmax: int  # elements a partition that one matmul streams at most
    pe_result_bytes: int  # that one matmul writes of a partition at most, and does not cross
    bn_stats_fmax: int
    sbuf_operand_elements: int  # of an operand of any engine, a partition; repeated ones count
    psum_operand_elements: int
    dma_engines: int

    # Features: what some generations have and others do not
    dve_fast_modes: FastModes | None  # Vector Engine: several 16-bit elements a cycle
    act_resident: frozenset[str]  # functions of every activation table: never loaded
    reciprocal_with_bias: bool  # Scalar Engine: nl.reciprocal of x + bias
    act_arithmetic: bool  # Scalar Engine: nisa.tensor_scalar (multiply, add)
    act_tensor_copy: bool  # Scalar Engine: nisa.tensor_copy of the package nki
    alu_square_relu: bool  # nl.square and nl.relu as operators of nisa.tensor_scalar
    range_select: bool  # nisa.range_select exists
    pe_transpose_bit_exact: bool  # matmul's transpose mode keeps bits and dtype
    pe_double_row: bool  # fp8 matmuls with two rows of K a partition
    pe_bfloat16_result: bool  # matmuls write bfloat16 to PSUM, not only float32
    pe_adds_to_any: bool  # matmuls add to what another engine has written into PSUM
    small_pe_tiles: bool  # tile_size=(32, 32)
    hwdge: bool  # hardware descriptor generation
    dma_priority: bool  # classes of service of DMAs: priority=0 to 3
    column_indices: bool  # t.indirect(...): engines gather and scatter columns of tiles
    gen4_instructions: bool  # exponential, activate2, rand2, quantize_mx, nc_matmul_mx

    timing: Timing
    provenance: Mapping[str, Source] = field(hash=False, repr=False)

    @property
    def version(self) -> str:
        """Return the name of the generation among those of `nisa.nc_version`: "gen2"."""
        return f"gen{self.generation}"

    @property
    def title(self) -> str:
        """Return the name of the generation in AWS's documents: "NeuronCore-v2"."""
        return f"NeuronCore-v{self.generation}"

    @property
    def sbuf_total_bytes(self) -> int:
        """Return the SBUF size over all partitions."""
        return self.pmax * self.sbuf_bytes

    @property
    def pool_partitions(self) -> int:
        """Return how many partitions a core of GpSimd serves."""
        return self.pmax // self.timing.pool_cores

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
        """Return the clock of an engine: "tensor", "vector", "scalar", "gpsimd", "sync".

        That of Sync is in no document: GpSimd's is taken (assumed; a barrier there costs nothing).
        """
        return {
            "tensor": self.pe_ghz,
            "vector": self.dve_ghz,
            "scalar": self.act_ghz,
            "gpsimd": self.pool_ghz,
            "sync": self.pool_ghz,
        }[engine]
