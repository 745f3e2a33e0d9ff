"""NeuronCore-v3: trn2."""

from __future__ import annotations

from .core import GIB, KIB, FastModes
from .facts import (
    ARCH,
    ARCH2,
    ARCH3,
    COMPILER,
    ISA,
    ISA_NKI,
    LIMITS,
    PUBLISHED,
    TRACES2,
    Fact,
    assumed,
    documented,
    fitted,
    make_core,
)


def _read(value: float, what: str, *, narrow: bool = False) -> Fact:
    return fitted(value, f"{what}: read from {TRACES2}", narrow=narrow)


FACTS = {
    **LIMITS,
    "sbuf_bytes": documented(224 * KIB, ARCH2),
    "sbuf_usable_bytes": fitted(
        212_984,
        "8 bytes less than 208 KiB: of 229 compiled matmuls none with up to 206 KiB "
        "spills and each with 208 KiB does (SDK 2.32); the size that leanprover/KLR has",
    ),
    "hbm_bytes": documented(96 * GIB, ARCH2),
    "hbm_gbps": documented(2900.0, ARCH2),
    "cores_per_chip": documented(8, ARCH2),
    "pe_ghz": documented(2.4, ARCH2),
    "dve_ghz": documented(0.96, ARCH2),
    "act_ghz": documented(1.2, ARCH2),
    "pool_ghz": documented(1.2, ARCH2),
    "peak_tflops": documented(
        {
            "bfloat16": 79.0,
            "float16": 79.0,
            "tfloat32": 79.0,
            "float32": 20.0,
            "float8_e4m3": 158.0,
            "float8_e5m2": 158.0,
        },
        f"{ARCH2}; fp8 only in double-row mode (K = 256)",
    ),
    "dve_fast_modes": documented(
        FastModes(copy=4, strided=2, two_inputs=2), f"{ARCH2}: 2 and 4 times the rate"
    ),
    "reciprocal_with_bias": documented(True, f"{ISA}.activation: not on NeuronCore-v2"),
    "act_arithmetic": documented(True, f"{ISA}.tensor_scalar: NeuronCore-v3 and newer"),
    "range_select": documented(True, f"{ISA}.range_select: NeuronCore-v3 and newer"),
    "pe_transpose_bit_exact": documented(True, f"{ARCH2}: transpose mode"),
    "pe_double_row": documented(True, f"{ARCH2}: fp8 with K = 256"),
    "small_pe_tiles": documented(True, f"{ISA}.nc_matmul: not on NeuronCore-v2"),
    "hwdge": documented(True, f"{ISA}.dma_copy: dge_mode.hwdge on NeuronCore-v3 and newer"),
    "act_tensor_copy": documented(
        True, f"{ISA_NKI}.tensor_copy: not on the Scalar Engine of NeuronCore-v2"
    ),
    "alu_square_relu": documented(False, "release notes of NKI 0.4: on trn3"),
    "pe_bfloat16_result": documented(False, f"{ARCH3}: sums in PSUM are float32 or bfloat16"),
    "pe_adds_to_any": documented(False, f"{ISA_NKI}.nc_matmul: undefined on NeuronCore-v2 and v3"),
    "dma_priority": documented(False, f"{ISA_NKI}.dma_copy: priority on NeuronCore-v4"),
    "column_indices": documented(False, f"{ISA_NKI}: .indirect() on NeuronCore-v4"),
    "gen4_instructions": documented(False, f"{ISA}: NeuronCore-v4 and newer"),
}

TIMING = {
    **PUBLISHED,
    **COMPILER,
    "launch_us": fitted(
        9.7,
        "nc_latency less body of one vector addition of one tile; kernels of twelve families "
        "say 9.6 (8.8 to 11.8)",
    ),
    "profile_us": fitted(15.0, "total_time less body in profiles of vector additions"),
    "pe_wide_instructions": fitted(
        2,
        "a float32 matmul shows as two instructions in profiles of AWS's tutorials (SDK 2.32) "
        "and in traces",
    ),
    "pe_transpose_passes": documented(
        2, f"{ARCH2}: fp32 transposes twice as fast as on NeuronCore-v2"
    ),
    "pe_gap_cycles": _read(7.0, "streaming interval N + 6..8 cycles"),
    "pe_exposed_load_cycles": _read(0.0, "stationary loads hidden behind the stream before"),
    "pe_latency_us": _read(0.163, "351 ns from begin to end of a matmul of 444 columns"),
    "pe_strided_load_cycles_per_byte": fitted(
        1.0,
        f"{ARCH}: strides of 16 bytes and more halve the bandwidth; the figure fits the 16- "
        "and 32-bit weights of one convolution",
        narrow=True,
    ),
    "pe_window_us": _read(
        4096 / 1200, "4096 cycles at 1.2 GHz: all 128 windows of 8 traces obey the shares below"
    ),
    "pe_full_share": _read(0.78, "full clock after a window at least 78 % busy"),
    "pe_half_share": _read(1 / 3, "half after one at most a third busy"),
    "pe_share_spread": assumed(
        0.1,
        "when windows begin is not known, nor to the instruction what falls into them; 0.05 "
        "to 0.12 predict as well",
    ),
    "pe_cold_factor": documented(2.0, "Neuron Explorer, Understanding throttling: limit of 50 %"),
    "dve_latency_us": _read(0.158, "158 ns + N / 0.96 GHz"),
    "dve_gap_us": fitted(
        0.060,
        "60 cycles to start an SBUF access, partly hidden (Architecture Guide); about "
        "115 ns back to back in logs of third parties",
    ),
    "dve_reciprocal_cycles": documented(8.0, f"{ISA}.reciprocal: 8 N"),
    "dve_two_input_cycles": _read(1.0, "tensor_tensor of float32 takes N / 0.96 GHz"),
    "dve_wide_scalar_cycles": _read(
        0.63, "float32 arithmetic with a scalar from SBUF to SBUF takes 0.63 cycles an element"
    ),
    "act_copy_rate16": documented(1.0, f"{ARCH2}: 128 elements a cycle of any dtype"),
    "act_latency_us": _read(0.158, "158 ns + N / 1.2 GHz for a copy"),
    "act_gap_us": _read(0.010, "back to back N / 1.2 GHz + 10 ns"),
    "act_function_us": fitted(
        0.110,
        "exp of 128 and 4096 elements in 0.4 and 3.7 us (SDK 2.32, NKI DMA overview)",
        narrow=True,
    ),
    "act_function_gap_us": fitted(
        0.14, "functions of attention kernels repeat every N / 1.2 GHz + 0.14-0.18 us"
    ),
    "act_table_us": documented(1.3, "Neuron SDK 2.32, NKI DMA overview: 1.3 us"),
    "hop_us": _read(0.033, "32-35 ns between dependent instructions"),
    "dma_trigger_us": _read(0.093, "issue interval of 93 ns on the Sync Engine"),
    "dma_start_us": _read(1.1, "0.75-0.80 us from trigger to the first engine, 1.3 us to the last"),
    "dma_read_us": _read(0.35, "0.2-0.4 us with small descriptors, 0.87 us with 32 kB"),
    "dma_done_us": _read(0.45, "0.35-0.51 us from the last read to the semaphore"),
    "dma_engine_gbps": _read(27.2, "4.7 ns + bytes / 27.2 GB/s a descriptor"),
    "dma_descriptor_ns": _read(4.7, "4.7 ns + bytes / 27.2 GB/s a descriptor"),
    "dma_descriptor_floor_ns": _read(7.0, "never below about 7 ns"),
    "dma_element_ns": fitted(
        10.0,
        "pieces of 2 and 4 bytes: 9.9 to 10.0 ns each on an engine in two published profiles",
        narrow=True,
    ),
    "dma_semaphore_ns": assumed(0.0, "not visible in traces of trn2"),
    "dma_packet_bytes": _read(32768, "32 packets of 32,000 bytes for 1 MB"),
    "dma_small_write_factor": _read(
        2.0, "512-byte rows to HBM take 35-45 ns instead of 23 in one transpose", narrow=True
    ),
    "dma_transpose_ns": assumed(
        0.2,
        f"{ARCH2}: up to 90 % of the DMA rate, which would be 0.08 for 2 bytes; that is for "
        "the best shapes, and no measurement was compared",
    ),
    "dma_rmw_factor": documented(2.0, f"{ARCH3}: before it, half the rate"),
    "dge_least_bytes": fitted(
        4,
        "nine decode kernels: each load of 128 2-byte elements takes as long as one whose rows are "
        "chosen at run time (a twin with one of them instead of 16 takes 13 us less); vector "
        "additions with 4-byte elements fit the hardware's descriptors",
        narrow=True,
    ),
    "swdge_issue_us": fitted(
        1.0,
        "decode kernels whose rows are chosen at run time: 1.23 us a DMA of 128 rows, whether of "
        "256, 1024 or 4096 bytes; how much of it is a row's share is assumed",
        narrow=True,
    ),
    "swdge_row_us": fitted(0.0018, "the same kernels: 1.23 us for 128 rows", narrow=True),
    "dge_units": documented(2, "Neuron SDK 2.32, Descriptor Generation Engine: two blocks a core"),
    "dge_issue_us": fitted(
        0.486, "one vector addition, a row at a time; about 0.6 us is documented", narrow=True
    ),
    "dge_row_us": fitted(0.00095, "vector additions and a transpose, 128 rows at a time"),
    "shared_ports": documented(False, f"{ARCH2}: DVE, ACT and GpSimd access memory in parallel"),
    "shared_fast_port": assumed(
        True,
        f"{ARCH2}: the performance mode uses a memory bus that Vector Engine and GpSimd share, and "
        "hardware arbitrates; what either of them loses by that is not documented, so that they "
        "take turns is a guess",
    ),
    "pe_background_transposes": documented(False, f"{ARCH3}: new in NeuronCore-v4"),
    "shared_banks": documented(
        True, f"{ARCH2}: DVE and ACT access PSUM at the same time, but not the same bank"
    ),
}

TRN2 = make_core("trn2", 3, ("gen3",), calibrated=True, facts=FACTS, timing=TIMING)
