"""`nki.isa.constants`: the enums of the instruction set."""

from __future__ import annotations

from ..public_names import show_public_names_only
from .enums import (
    dependency,
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)

__all__ = [
    "dependency",
    "dge_mode",
    "dma_engine",
    "engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
]
show_public_names_only(__name__)
