"""What the passes look at of the machine that ran a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..chip.hw import NeuronCore
from ..dialect import Dialect
from ..trace.trace import Trace
from .finding import Findings


@dataclass(frozen=True)
class Execution:
    """A kernel's run: its record, its findings, and what the record does not show."""

    trace: Trace
    hw: NeuronCore
    dialect: Dialect
    findings: Findings
    compute: bool  # values were computed
    skip_middle_end: bool  # affine_range keeps the order of statements
    asked_id: bool  # the kernel has called nl.program_id
    cores: Any  # the cores that run a kernel together, None for one
    direct: bool  # the kernel places its tensors on chip itself
    arenas: dict[tuple, Any]  # the memories that it places them in
    indexed: set[int]  # storages indexed at run time:
    unseen: set[int]  # storages with reads that the record does not show
