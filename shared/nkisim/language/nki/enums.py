"""`nki.isa.constants` and the memories: enums, whose members are the only spelling there is."""

from __future__ import annotations

import difflib
import enum
from typing import Any

from ...chip import hw, memory
from ...chip.memory import Buffer
from ...errors import fail


class _Members(enum.EnumMeta):
    """Says which members there are to who asks for another one."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        near = difflib.get_close_matches(name, cls.__members__, n=1)
        raise AttributeError(
            f"nisa.{cls.__name__} has no member {name!r}: it has "
            f"{', '.join(cls.__members__)}"
            + (f". Did you mean nisa.{cls.__name__}.{near[0]}?" if near else "")
        )


class Enum(enum.Enum, metaclass=_Members):
    """An enum of nisa."""

    __hash__ = object.__hash__  # Enum's own runs Python code, in each look for a known call


class engine(Enum):
    """Engines, for `engine=`."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Enum):
    """What an instruction does with the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who makes the DMA descriptors; the numbers are others than in neuronxcc.nki."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What a run-time index outside of the tensor does."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """Rates of the Tensor Engine."""

    none = "none"
    double_row = "double_row"


class dma_engine(Enum):
    """Who moves the data of `nisa.sendrecv`."""

    dma = 1
    gpsimd_dma = 2


class dependency(Enum):
    """What an edge between two instructions asks for (NKI 0.7)."""

    runtime = "runtime"
    schedule = "schedule"


#: generations of the NeuronCore, gen2, gen3 ..., in order: kernels compare them with < and >=
nc_version = enum.IntEnum("nc_version", hw.VERSIONS)  # type: ignore[misc]
nc_version.__str__ = int.__repr__  # type: ignore[method-assign]  # 3.10 prints the names


class MemoryRegion(Enum):
    """Memories of a tensor."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    def __call__(self, *args: Any, **kw: Any) -> Any:
        """Say that a memory is named, not called."""
        return BUFFERS[self](*args)


class DataType(str):
    """The name of a data type: a text, as in the SDK."""

    __slots__ = ()

    def __call__(self, *args: Any) -> Any:
        """Say that a data type makes no number."""
        shown = f"{args[0]!r}" if args and isinstance(args[0], (int, float)) else "t"
        raise fail(
            "NKI-K14",
            f"nl.{self} is called",
            given=f"nl.{self}({shown})",
            limit="a data type says what a tile holds",
            hint=f"write the number alone: {shown}"
            if shown != "t"
            else "a tile of it: result = nl.ndarray(t.shape, dtype=nl."
            + self
            + ", buffer=nl.sbuf); nisa.tensor_copy(dst=result, src=t)",
        )


#: the machine's name of each memory, and back
BUFFERS: dict[MemoryRegion, Buffer] = {
    MemoryRegion.sbuf: memory.sbuf,
    MemoryRegion.psum: memory.psum,
    MemoryRegion.private_hbm: memory.private_hbm,
    MemoryRegion.shared_hbm: memory.shared_hbm,
}
#: parameters of instructions that take a member of one enum
OF_PARAMETER: dict[str, type[Enum]] = {
    "engine": engine,
    "reduce_cmd": reduce_cmd,
    "dge_mode": dge_mode,
    "oob_mode": oob_mode,
    "perf_mode": matmul_perf_mode,
    "dma_engine": dma_engine,
}
