"""`neuronxcc.nki.isa` (nisa): the instructions, straight from the table."""

from __future__ import annotations

from typing import Any

from ...chip import hw as _hw
from ...isa import act as _act
from ...isa import dma as _dma
from ...isa import dve as _dve
from ...isa import dynamic as _dynamic
from ...isa import gpsimd as _gpsimd
from ...isa import lower as _lower
from ...isa import pe as _pe
from ...isa import reduce as _reduce
from ...isa import rng as _rng
from ...isa import search as _search
from ...isa.table import ROWS as _ROWS
from ...isa.table import public as _public
from ...machine.context import current as _current
from ...machine.context import machine as _machine
from . import isa_constants as constants
from .isa_constants import dge_mode, engine, nc_version, oob_mode, reduce_cmd
from .language import bfp16, fp32

#: the modules that write the table; importing them is what fills it
TABLE = (_act, _dma, _dve, _dynamic, _gpsimd, _pe, _reduce, _rng, _search)

tensor_engine, scalar_engine, vector_engine = engine.tensor, engine.scalar, engine.vector
gpsimd_engine, dma_engine, unknown_engine = engine.gpsimd, engine.dma, engine.unknown

INSTRUCTIONS = {
    row.public.removeprefix("nisa."): _public(row)
    for row in _ROWS.values()
    if row.public.startswith("nisa.")
}
globals().update(INSTRUCTIONS)


def nc_transpose(
    data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = 0, **kwargs: Any
) -> Any:
    """Transpose a tile (P, F...) to (F, P): Tensor Engine up to 128 (result in PSUM), Vector 32."""
    m = _machine("nisa.nc_transpose")
    m.flush()
    return _lower.transpose(m, data, engine, dtype, mask)


def get_nc_version() -> nc_version:
    """Return the generation of the NeuronCore that is simulated."""
    m = _current.get()
    return nc_version[(m.hw if m is not None else _hw.get()).version]


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
