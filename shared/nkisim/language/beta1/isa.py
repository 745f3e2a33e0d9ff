"""`neuronxcc.nki.isa` (nisa): the instructions, straight from the table."""

from __future__ import annotations

from typing import Any

from ...chip import hw
from ...isa import act, dma, dve, dynamic, gpsimd, lower, pe, reduce, rng, search
from ...isa.table import ROWS, public
from ...machine.context import current
from ...machine.interface import Machine
from ..public_names import show_public_names_only
from . import isa_constants as constants
from .isa_constants import dge_mode, engine, nc_version, oob_mode, reduce_cmd
from .language import bfp16, fp32
from .public import public as named

#: the modules that write the table; importing them is what fills it
TABLE = (act, dma, dve, dynamic, gpsimd, pe, reduce, rng, search)

tensor_engine, scalar_engine, vector_engine = engine.tensor, engine.scalar, engine.vector
gpsimd_engine, dma_engine, unknown_engine = engine.gpsimd, engine.dma, engine.unknown

INSTRUCTIONS = {
    row.public.removeprefix("nisa."): public(row)
    for row in ROWS.values()
    if row.public.startswith("nisa.")
}
globals().update(INSTRUCTIONS)


def _nc_transpose(
    m: Machine, data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = 0
) -> Any:
    """Transpose a tile (P, F...) to (F, P): up to 128 x 128 on the Tensor Engine, into PSUM.

    `engine=nisa.vector_engine` takes up to 32 x 32.
    """
    return lower.transpose(m, data, engine, dtype, mask)


nc_transpose = named(_nc_transpose, "nc_transpose", "nisa")


def get_nc_version() -> nc_version:
    """Return the generation of the NeuronCore that is simulated."""
    m = current.get()
    return nc_version[(m.hw if m is not None else hw.get()).version]


def __getattr__(name: str) -> Any:
    """Say that a name of the SDK is not modelled, or that it does not exist."""
    from .missing import missing

    raise missing("nisa", name, globals())


__all__ = [
    "bfp16",
    "constants",
    "dge_mode",
    "dma_engine",
    "engine",
    "fp32",
    "get_nc_version",
    "gpsimd_engine",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
    *INSTRUCTIONS,
]
show_public_names_only(__name__)
