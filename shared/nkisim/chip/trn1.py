"""NeuronCore-v2: trn1 and inf2."""

from __future__ import annotations

from . import trn2
from .core import GIB, KIB
from .facts import (
    ARCH,
    ARCH2,
    ARCH3,
    COMPILER,
    ISA,
    ISA_NKI,
    LIMITS,
    PUBLISHED,
    TRACES1,
    Fact,
    assumed,
    documented,
    fitted,
    like,
    make_core,
)


def _read(value: float, what: str) -> Fact:
    return fitted(value, f"{what}: read from {TRACES1}")


FACTS = {
    **LIMITS,
    "sbuf_bytes": documented(192 * KIB, ARCH),
    "sbuf_usable_bytes": documented(
        176 * KIB, "Neuron SDK 2.26, Direct Allocation Developer Guide"
    ),
    "hbm_bytes": documented(32 * GIB, ARCH),
    "hbm_gbps": documented(820.0, ARCH),
    "cores_per_chip": documented(2, ARCH),
    "pe_ghz": documented(2.8, ARCH),
    "dve_ghz": documented(1.12, ARCH),
    "act_ghz": documented(1.4, ARCH),
    "pool_ghz": documented(1.4, ARCH),
    "peak_tflops": documented(
        {
            "bfloat16": 92.0,
            "float16": 92.0,
            "tfloat32": 92.0,
            "float32": 23.0,
            "float8_e4m3": 92.0,
            "float8_e5m2": 92.0,
        },
        ARCH,
    ),
    "dve_fast_modes": documented(None, f"{ARCH2}: new in NeuronCore-v3"),
    "reciprocal_with_bias": documented(False, f"{ISA}.activation: not on NeuronCore-v2"),
    "act_arithmetic": documented(False, f"{ISA}.tensor_scalar: NeuronCore-v3 and newer"),
    "range_select": documented(False, f"{ISA}.range_select: NeuronCore-v3 and newer"),
    "pe_transpose_bit_exact": documented(False, f"{ARCH2}: new in NeuronCore-v3"),
    "pe_double_row": documented(False, f"{ARCH2}: new in NeuronCore-v3"),
    "small_pe_tiles": documented(
        False, f"{ISA}.nc_matmul: tile_size (32, 32) not on NeuronCore-v2"
    ),
    "hwdge": documented(False, f"{ISA}.dma_copy: dge_mode.hwdge on NeuronCore-v3 and newer"),
    "act_tensor_copy": documented(
        False, f"{ISA_NKI}.tensor_copy: not on the Scalar Engine of NeuronCore-v2"
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
    # read from traces of trn2 only, or of no meaning without hardware descriptor generation
    **like(
        trn2.TIMING,
        "trn2",
        "pe_wide_instructions",
        "pe_gap_cycles",
        "pe_strided_load_cycles_per_byte",
        "act_gap_us",
        "act_function_us",
        "act_table_us",
        "hop_us",
        "dma_done_us",
        "dma_descriptor_ns",
        "dma_descriptor_floor_ns",
        "dma_small_write_factor",
        "dge_least_bytes",
        "swdge_issue_us",
        "swdge_row_us",
        "dge_units",
        "dge_issue_us",
        "dge_row_us",
    ),
    "dma_element_ns": assumed(7.0, "as any descriptor: no profile of trn1 says otherwise"),
    "launch_us": fitted(
        13.0,
        "nc_latency less body of one vector addition of one tile; kernels of five families "
        "say 13.5 (13.0 to 17.3)",
    ),
    "profile_us": fitted(
        14.0, "total_time less body of one vector addition in two sizes", narrow=True
    ),
    "pe_transpose_passes": documented(4, f"{ISA}.nc_matmul: 4 cycles a row for float32"),
    "pe_exposed_load_cycles": fitted(
        40.0,
        "float32 matmuls of four kernels that keep the engine busy: 75 cycles in some, none "
        "in others; bfloat16 shows none",
    ),
    "pe_latency_us": assumed(0.14, "as trn2, in cycles"),
    "pe_window_us": documented(0.0, "no warm-up is documented for this generation"),
    "pe_full_share": documented(0.0, "no warm-up is documented for this generation"),
    "pe_half_share": documented(0.0, "no warm-up is documented for this generation"),
    "pe_share_spread": documented(0.0, "no warm-up is documented for this generation"),
    "pe_cold_factor": documented(1.0, "no warm-up is documented for this generation"),
    "dve_latency_us": _read(0.213, "213 ns + 2 N / 1.12 GHz"),
    "dve_gap_us": fitted(
        0.025, "attention and mamba kernels that keep the engine busy with short instructions"
    ),
    "dve_reciprocal_cycles": fitted(
        3.5,
        "one silu kernel that the engine bounds; 8 N, as published, would take 1.7 times "
        "what was measured",
        narrow=True,
    ),
    "dve_wide_scalar_cycles": documented(1.0, f"{ISA}.tensor_scalar: N"),
    "dve_two_input_cycles": documented(2.0, f"{ISA}.tensor_tensor: 2 N; traces agree"),
    "act_copy_rate16": documented(1.0, f"{ARCH}: 128 elements a cycle"),
    "act_function_gap_us": fitted(
        0.0, "attention kernels whose functions keep the engine busy leave no room for more"
    ),
    "act_latency_us": documented(
        0.156,
        "dependent instructions of one element: 189 ns apart (SDK 2.26, NKI Performance Guide)",
    ),
    "dma_trigger_us": _read(0.089, "issue interval of 82-96 ns"),
    "dma_start_us": _read(1.3, "1.0-2.4 us to the first data"),
    "dma_read_us": _read(0.4, "1.0-2.4 us to the first data"),
    "dma_engine_gbps": _read(20.6, "packets of 16-32 kB at 19.7-21.3 GB/s"),
    "dma_semaphore_ns": fitted(
        60.0,
        "a semaphore descriptor of 75-78 ns in traces, partly hidden when DMAs follow each other",
    ),
    "dma_packet_bytes": _read(32768, "packets of 16-32 kB"),
    "dma_transpose_ns": fitted(
        0.8, "one attention kernel that loads its operands transposed", narrow=True
    ),
    "dma_rmw_factor": documented(2.0, f"{ARCH3}: before it, half the rate"),
    "shared_ports": documented(
        True, f"{ARCH}: DVE and GpSimd cannot access SBUF at the same time, DVE and ACT not PSUM"
    ),
    "shared_fast_port": documented(False, f"{ARCH2}: fast modes are new in NeuronCore-v3"),
    "pe_background_transposes": documented(False, f"{ARCH}: it has none"),
    "shared_banks": documented(False, f"{ARCH}: the whole port is shared, not a bank"),
}

TRN1 = make_core("trn1", 2, ("inf2", "gen2"), calibrated=True, facts=FACTS, timing=TIMING)
