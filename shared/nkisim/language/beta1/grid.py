"""SPMD grids: `kernel[g0, g1](...)`, `nl.program_id` and the logical cores of trn2."""

from __future__ import annotations

from typing import Any

from ...errors import fail
from ...machine.context import machine
from ...machine.grid import NC
from ...machine.limits import integer


def nc(cores: int) -> NC:
    """Mark a grid dim as logical cores (trn2)."""
    return NC(integer(cores, "the number of cores"))


def spmd_dim(a: Any, b: Any) -> NC:
    """Return the grid dim of `a` times `b` programs, one of them nl.nc(...)."""
    if isinstance(a, NC) == isinstance(b, NC):
        raise fail(
            "NKI-K06",
            "nl.spmd_dim takes nl.nc(...) and a number of programs",
            given=f"{type(a).__name__} and {type(b).__name__}",
            hint="nl.spmd_dim(nl.nc(2), 4), or nl.spmd_dim(4, nl.nc(2))",
        )
    return a * b


def program_id(axis: int) -> int:
    """Return this instance's index along a grid axis (0 without a grid)."""
    m = machine("nl.program_id")
    axis = integer(axis, "the axis of nl.program_id")
    m.launch.asked_id = True
    if not m.launch.grid:
        return 0
    if not -len(m.launch.grid) <= axis < len(m.launch.grid):
        raise fail("NKI-K06", f"grid axis {axis} does not exist", limit=f"grid {m.launch.grid}")
    return m.core.program_id[axis]


def num_programs(axes: Any = None) -> int:
    """Return the number of instances along grid axes (all by default)."""
    m = machine("nl.num_programs")
    sizes = m.launch.grid or (1,)
    axes = (
        range(len(sizes)) if axes is None else axes if isinstance(axes, (tuple, list)) else (axes,)
    )
    n = 1
    for a in axes:
        n *= sizes[a]
    return n


def program_ndim() -> int:
    """Return the number of grid dims."""
    return len(machine("nl.program_ndim").launch.grid)
