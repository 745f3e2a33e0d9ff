"""`nki`: the dialect of Neuron SDK 2.29 and later, on the simulator."""

from __future__ import annotations

from typing import Any

from ...lint import level
from . import collectives, compiler, isa, language, typing
from . import dtypes as dtype
from .kernel import Kernel, cpu_simulate, jit, simulate

__simulator__ = True


def __getattr__(name: str) -> Any:
    """Return the version that is asked about; say that another name is not there."""
    if name == "__version__":
        return f"{level.release()}.0"
    from .versions import missing

    raise missing("nki", name, globals())


_ = Kernel, cpu_simulate, collectives, compiler, dtype, isa, language, typing
__all__ = ["jit", "simulate"]
