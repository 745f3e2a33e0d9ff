"""`nki`: the dialect of Neuron SDK 2.29 and later, on the simulator."""
from __future__ import annotations

from typing import Any

from . import collectives, compiler, isa, language, typing
from . import dtypes as dtype
from .kernel import Kernel, cpu_simulate, jit, simulate

__simulator__ = True
__version__ = "0.6.0"


def __getattr__(name: str) -> Any:
    """Say that a name of the package is not modelled, or that it does not exist."""
    from .versions import missing
    raise missing("nki", name, globals())


_ = Kernel, cpu_simulate, collectives, compiler, dtype, isa, language, typing
__all__ = ["jit", "simulate"]
