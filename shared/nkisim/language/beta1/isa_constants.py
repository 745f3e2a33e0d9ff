"""`neuronxcc.nki.isa.constants`: the enums of the instruction set."""

from __future__ import annotations

from enum import IntEnum

from ...chip import hw
from ..public_names import show_public_names_only


class engine(IntEnum):
    """Compute engines, for `engine=`."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(IntEnum):
    """What an instruction does with the accumulator registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(IntEnum):
    """How DMA descriptors are generated."""

    none = 0
    swdge = 1
    hwdge = 2
    unknown = 3


class oob_mode(IntEnum):
    """What an indirect access outside of the tensor does."""

    error = 0
    skip = 1


#: generations of the NeuronCore: gen2, gen3 ...
nc_version = IntEnum("nc_version", hw.VERSIONS)  # type: ignore[misc]

for _numbers in (engine, reduce_cmd, dge_mode, oob_mode, nc_version):
    _numbers.__str__ = int.__repr__  # type: ignore[method-assign]  # 3.10 prints the names


__all__ = ["dge_mode", "engine", "nc_version", "oob_mode", "reduce_cmd"]
show_public_names_only(__name__)
