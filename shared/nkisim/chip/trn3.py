"""NeuronCore-v4: trn3. Documented numbers; nothing of it was compared with measurements."""

from __future__ import annotations

from . import trn2
from .core import GIB, KIB, FastModes
from .facts import ARCH3, ISA, ISA_NKI, LIMITS, assumed, documented, like, make_core

FACTS = {
    **LIMITS,
    **like(trn2.FACTS, "trn2", "pe_transpose_bit_exact", "pe_double_row"),
    "gemm_moving_fmax": assumed(512, "what nl.tile_size says on trn2; AWS gives no other"),
    "pe_moving_fmax": documented(
        8192, f"{ISA}.nc_matmul: 4096 for a float32 result, 8192 for a bfloat16 one"
    ),
    "pe_result_bytes": documented(16 * KIB, f"{ISA}.nc_matmul: as much as 8 banks of PSUM hold"),
    "psum_operand_elements": documented(
        8192, f"{ISA}.nc_matmul: 8192 for a bfloat16 result; 4096 are documented for NeuronCore-v2"
    ),
    "sbuf_bytes": documented(256 * KIB, ARCH3),
    "sbuf_usable_bytes": assumed(
        245_752, "8 bytes less than 240 KiB, as leanprover/KLR has it; nothing was compiled"
    ),
    "hbm_bytes": documented(144 * GIB, ARCH3),
    "hbm_gbps": documented(4700.0, ARCH3),
    "cores_per_chip": documented(8, ARCH3),
    "pe_ghz": documented(2.4, ARCH3),
    "dve_ghz": documented(1.2, ARCH3),
    "act_ghz": documented(1.2, ARCH3),
    "pool_ghz": documented(1.2, ARCH3),
    "peak_tflops": documented(
        {
            "bfloat16": 79.0,
            "float16": 79.0,
            "tfloat32": 79.0,
            "float32": 20.0,
            "float8_e4m3": 158.0,
            "float8_e5m2": 158.0,
            "float8_e4m3fn_x4": 315.0,
            "float8_e5m2_x4": 315.0,
            "float4_e2m1fn_x4": 315.0,
        },
        f"{ARCH3}: 2 x 128 elements a cycle of plain fp8 input, 8 x 128 of MX (315 TFLOPS); "
        "sparse input (5 x 128) has no instruction in NKI",
    ),
    "dve_fast_modes": documented(
        FastModes(copy=4, strided=2, two_inputs=2),
        f"{ARCH3}: 512 elements of 16 bits a cycle, 256 of others",
    ),
    "reciprocal_with_bias": documented(True, f"{ISA}.activation: not on NeuronCore-v2"),
    "act_arithmetic": documented(True, f"{ISA}.tensor_scalar: NeuronCore-v3 and newer"),
    "range_select": documented(True, f"{ISA}.range_select: NeuronCore-v3 and newer"),
    "small_pe_tiles": documented(True, f"{ISA}.nc_matmul: not on NeuronCore-v2"),
    "hwdge": documented(True, f"{ISA}.dma_copy: dge_mode.hwdge on NeuronCore-v3 and newer"),
    "act_tensor_copy": documented(
        True, f"{ISA_NKI}.tensor_copy: not on the Scalar Engine of NeuronCore-v2"
    ),
    "alu_square_relu": documented(True, "release notes of NKI 0.4: on trn3"),
    "pe_bfloat16_result": documented(True, f"{ARCH3}: sums in PSUM are float32 or bfloat16"),
    "pe_adds_to_any": documented(True, f"{ISA_NKI}.nc_matmul: undefined on NeuronCore-v2 and v3"),
    "dma_priority": documented(True, f"{ISA_NKI}.dma_copy: priority on NeuronCore-v4"),
    "column_indices": documented(True, f"{ISA_NKI}: .indirect() on NeuronCore-v4"),
    "gen4_instructions": documented(True, f"{ISA}: NeuronCore-v4 and newer"),
}

TIMING = {
    **like(trn2.TIMING, "trn2"),
    "dve_gap_us": assumed(0.048, "60 cycles, as trn2"),
    "dve_wide_scalar_cycles": documented(
        0.5, f"{ARCH3}: 256 elements a cycle of 32 bits, two for each of 128 lanes"
    ),
    "act_copy_rate16": documented(2.0, f"{ARCH3}: 256 elements of 16 bits a cycle"),
    "dma_engine_gbps": documented(
        33.0, "Neuron SDK 2.32, Guideline to Avoid Under-Utilizing DMA Bandwidth: 33 GB/s"
    ),
    "dma_rmw_factor": documented(1.0, f"{ARCH3}: as fast as other DMAs"),
    "shared_ports": documented(False, ARCH3),
    "shared_fast_port": assumed(True, f"as trn2; {ARCH3} says nothing about that bus"),
    "pe_background_transposes": documented(
        True, f"{ARCH3}: nearly twice as fast in long chains, or behind a larger product"
    ),
    "shared_banks": documented(False, ARCH3),
}

# trn3pre: what public projects with early chips tell the compiler and set in the environment
TRN3 = make_core("trn3", 4, ("gen4", "trn3pre"), calibrated=False, facts=FACTS, timing=TIMING)
