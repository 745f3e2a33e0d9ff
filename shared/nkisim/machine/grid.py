"""The sizes of a launch grid: `kernel[g0, g1]`, with logical cores (`nl.nc`) or without."""

from __future__ import annotations

from typing import Any

from ..errors import fail
from .limits import integer


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


def grid_sizes(grid: Any) -> tuple[int, ...]:
    """Return the sizes of a launch grid, or raise."""
    dims = grid if isinstance(grid, tuple) else (grid,)
    out = tuple(d.size if isinstance(d, NC) else integer(d, "a grid size") for d in dims)
    if not out or min(out) < 1:
        raise fail("NKI-K06", "a launch grid has a size below 1", given=f"{out}")
    return out
