"""SPMD grids: `kernel[g0, g1](...)`, `nl.program_id` and the logical cores of trn2."""
from __future__ import annotations

from typing import Any

from ..errors import fail
from ..machine import integer
from ..table import machine


class NC:
    """`nl.nc(n)`: a grid dim that spreads over logical cores; `nl.nc(2) * 4`, `4 * nl.nc(2)`."""

    def __init__(self, cores: int, programs: int = 1, fastest: bool = False):
        self.cores, self.programs, self.fastest = cores, programs, fastest

    def __mul__(self, n: int) -> NC:
        return NC(self.cores, self.programs * integer(n, "a grid size"), False)

    def __rmul__(self, n: int) -> NC:
        return NC(self.cores, self.programs * integer(n, "a grid size"), True)

    @property
    def size(self) -> int:
        return self.cores * self.programs


def nc(cores: int) -> NC:
    """Mark a grid dim as logical cores (trn2)."""
    return NC(integer(cores, "the number of cores"))


def spmd_dim(a: Any, b: Any) -> NC:
    """Return the grid dim of `a` times `b` programs, one of them nl.nc(...)."""
    if isinstance(a, NC) == isinstance(b, NC):
        raise fail("NKI-K06", "nl.spmd_dim takes nl.nc(...) and a number of programs",
                   given=f"{type(a).__name__} and {type(b).__name__}",
                   hint="nl.spmd_dim(nl.nc(2), 4), or nl.spmd_dim(4, nl.nc(2))")
    return a * b


def grid_sizes(grid: Any) -> tuple[int, ...]:
    """Return the sizes of a launch grid, or raise."""
    dims = grid if isinstance(grid, tuple) else (grid,)
    out = tuple(d.size if isinstance(d, NC) else integer(d, "a grid size") for d in dims)
    if not out or min(out) < 1:
        raise fail("NKI-K06", "a launch grid has a size below 1", given=f"{out}")
    return out


def program_id(axis: int) -> int:
    """Return this instance's index along a grid axis (0 without a grid)."""
    m = machine("nl.program_id")
    axis = integer(axis, "the axis of nl.program_id")
    m.asked_id = True
    if not m.grid:
        return 0
    if not -len(m.grid) <= axis < len(m.grid):
        raise fail("NKI-K06", f"grid axis {axis} does not exist", limit=f"grid {m.grid}")
    return m.program_id[axis]


def num_programs(axes: Any = None) -> int:
    """Return the number of instances along grid axes (all by default)."""
    m = machine("nl.num_programs")
    sizes = m.grid or (1,)
    axes = range(len(sizes)) if axes is None else axes if isinstance(axes, (tuple, list)) \
        else (axes,)
    n = 1
    for a in axes:
        n *= sizes[a]
    return n


def program_ndim() -> int:
    """Return the number of grid dims."""
    return len(machine("nl.program_ndim").grid)
