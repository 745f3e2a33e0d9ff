"""The chip in numbers: limits, clocks and features of one NeuronCore per generation.

Figures stand with their sources in a file for each generation (`trn1.py` ...); what a field means
is in `core.py`. A new generation is a file and a place in `CORES`.
"""

from __future__ import annotations

import os

from ..errors import NkiError
from .core import KIB, MIB, FastModes, NeuronCore, Source, Timing, size
from .trn1 import TRN1
from .trn2 import TRN2
from .trn3 import TRN3

TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
DEFAULT_TARGET = "trn1"

CORES = (TRN1, TRN2, TRN3)
TARGETS = tuple(core.name for core in CORES)
#: names and numbers of the generations, as `nisa.nc_version` has them: kernels compare them
VERSIONS = {core.version: core.generation for core in CORES}
_BY_NAME = {alias: core for core in CORES for alias in (core.name, *core.aliases)}


def get(target: str | None = None) -> NeuronCore:
    """Return the core for a target name; None reads the environment, then falls back to trn1.

    What a kernel runs on is `Kernel.core`, which asks the course as well.

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


__all__ = [
    "CORES",
    "KIB",
    "MIB",
    "TARGETS",
    "TRN1",
    "TRN2",
    "TRN3",
    "VERSIONS",
    "FastModes",
    "NeuronCore",
    "Source",
    "Timing",
    "get",
    "size",
]
