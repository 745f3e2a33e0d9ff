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
from dataclasses import dataclass, field
from typing import Literal

from .errors import NkiError

KIB, MIB, GIB = 2**10, 2**20, 2**30
TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
DEFAULT_TARGET = "trn1"


@dataclass(frozen=True)
class Source:
    """Where a number comes from and how far to trust it."""

    text: str
    tag: Literal["documented", "fitted", "assumed"] = "documented"


@dataclass(frozen=True)
class NeuronCore:
    """One NeuronCore of a generation: what a kernel may use and how fast each engine ticks."""

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

    provenance: Mapping[str, Source] = field(hash=False, repr=False)

    # Limits that no generation so far has changed
    pmax: int = 128
    max_free_dims: int = 4
    sbuf_free_elements: int = 65536  # per partition and instruction operand
    psum_free_elements: int = 4096
    psum_banks: int = 8
    psum_bank_bytes: int = 2048
    psum_fmax: int = 512  # fp32 elements in one bank
    gemm_stationary_fmax: int = 128
    gemm_moving_fmax: int = 512
    bn_stats_fmax: int = 512
    dma_engines: int = 16

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


_ARCH = "Neuron SDK 2.26, Trainium/Inferentia2 Architecture Guide"
_ARCH2 = "Neuron SDK 2.26, Trainium2 Architecture Guide"
_ARCH3 = "Neuron SDK 2.32, Trainium3 Architecture Guide"
_LANGUAGE = "Neuron SDK 2.26, nki.language.tile_size"
_ISA = "Neuron SDK 2.26, nki.isa"

_COMMON = {
    "generation": Source(f"{_ISA}.nc_version"),
    "pmax": Source(_LANGUAGE),
    "max_free_dims": Source(f"{_ARCH}, access patterns"),
    "sbuf_free_elements": Source(f"{_ARCH}, tile size considerations"),
    "psum_free_elements": Source(f"{_ARCH}, tile size considerations"),
    "psum_banks": Source(f"{_ARCH}, PSUM"),
    "psum_bank_bytes": Source(f"{_ARCH}, PSUM"),
    "psum_fmax": Source(_LANGUAGE),
    "gemm_stationary_fmax": Source(_LANGUAGE),
    "gemm_moving_fmax": Source(_LANGUAGE),
    "bn_stats_fmax": Source(_LANGUAGE),
    "dma_engines": Source(f"{_ARCH}, DMA: 32 on a chip of 2 cores, 16 serve a core"),
}


def _provenance(guide: str, **special: Source) -> dict[str, Source]:
    """Merge the common sources with a generation's guide and its exceptions."""
    own = ("sbuf_bytes", "sbuf_usable_bytes", "hbm_bytes", "hbm_gbps", "cores_per_chip",
           "pe_ghz", "dve_ghz", "act_ghz", "pool_ghz", "peak_tflops")
    return {**_COMMON, **{name: Source(guide) for name in own}, **special}


TRN1 = NeuronCore(
    name="trn1", generation=2, aliases=("inf2", "gen2"), calibrated=True,
    sbuf_bytes=192 * KIB, sbuf_usable_bytes=176 * KIB,
    hbm_bytes=32 * GIB, hbm_gbps=820.0, cores_per_chip=2,
    pe_ghz=2.8, dve_ghz=1.12, act_ghz=1.4, pool_ghz=1.4,
    peak_tflops={"bfloat16": 92.0, "float16": 92.0, "tfloat32": 92.0, "float32": 23.0,
                 "float8_e4m3": 92.0, "float8_e5m2": 92.0},
    provenance=_provenance(
        _ARCH,
        sbuf_usable_bytes=Source("Neuron SDK 2.26, Direct Allocation Developer Guide"),
    ),
)

TRN2 = NeuronCore(
    name="trn2", generation=3, aliases=("gen3",), calibrated=True,
    sbuf_bytes=224 * KIB, sbuf_usable_bytes=208 * KIB,
    hbm_bytes=96 * GIB, hbm_gbps=2900.0, cores_per_chip=8,
    pe_ghz=2.4, dve_ghz=0.96, act_ghz=1.2, pool_ghz=1.2,
    peak_tflops={"bfloat16": 79.0, "float16": 79.0, "tfloat32": 79.0, "float32": 20.0,
                 "float8_e4m3": 158.0, "float8_e5m2": 158.0},
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
    hbm_bytes=144 * GIB, hbm_gbps=4700.0, cores_per_chip=8,
    pe_ghz=2.4, dve_ghz=1.2, act_ghz=1.2, pool_ghz=1.2,
    peak_tflops={"bfloat16": 79.0, "float16": 79.0, "tfloat32": 79.0, "float32": 20.0,
                 "float8_e4m3": 315.0, "float8_e5m2": 315.0},
    provenance=_provenance(
        _ARCH3,
        sbuf_usable_bytes=Source("256 KiB less the 16 KiB that generation 2 reserves", "assumed"),
        gemm_moving_fmax=Source("as generation 2; newer documents allow more", "assumed"),
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
