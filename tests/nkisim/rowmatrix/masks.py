"""Masks and index expressions, as a kernel writes them and as arrays of NumPy."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Affine:
    """const + the sum of coefficient * index over the dims of a grid."""

    coefficients: tuple[int, ...]
    const: int = 0

    def array(self, grid: tuple[int, ...]) -> np.ndarray:
        return self.const + sum(c * i for c, i in zip(self.coefficients, np.indices(grid)))

    def index(self, axes: list) -> Any:
        """Return the expression over a kernel's index objects, one for each dim."""
        out: Any = None
        for c, axis in zip(self.coefficients, axes):
            if c:
                term = axis if c == 1 else axis * c
                out = term if out is None else out + term
        return out + self.const if self.const else out


@dataclass(frozen=True)
class Compare:
    """`left kind right`: what a mask, or the predicate of affine_select, is made of."""

    left: Affine
    kind: str
    right: int

    def array(self, grid: tuple[int, ...]) -> np.ndarray:
        return _COMPARE[self.kind](self.left.array(grid), self.right)

    def index(self, axes: list) -> Any:
        return _COMPARE[self.kind](self.left.index(axes), self.right)


def axes(nl: Any, grid: tuple[int, ...], mgrid: bool = False) -> list:
    """Return index objects over a grid, from nl.arange or from nl.mgrid."""
    if mgrid:
        return list(nl.mgrid[tuple(slice(0, n) for n in grid)])
    whole = (slice(None),)
    return [
        nl.arange(n)[(None,) * d + whole + (None,) * (len(grid) - d - 1)]
        for d, n in enumerate(grid)
    ]


def _along(dim: int, rank: int) -> Affine:
    return Affine(tuple(int(d == dim) for d in range(rank)))


@dataclass(frozen=True)
class Case:
    """A mask by name: comparisons joined by &; or a bool of a loop variable."""

    name: str
    terms: tuple[Compare, ...] = ()
    always: bool | None = None

    def array(self, grid: tuple[int, ...]) -> np.ndarray:
        """Return which elements of the grid are selected."""
        if self.always is not None:
            return np.full(grid, self.always)
        out = np.ones(grid, bool)
        for term in self.terms:
            out &= term.array(grid)
        return out

    def index(self, nl: Any, grid: tuple[int, ...], mgrid: bool) -> Any:
        """Return what a kernel passes as mask=, or None."""
        out = None
        if self.terms:
            over = axes(nl, grid, mgrid)
            for term in self.terms:
                one = term.index(over)
                out = one if out is None else out & one
        return out


BOX = ("none", "partition", "free", "free_first", "free_middle", "free_one", "both")
EVERY = (*BOX, "slanted", "true", "false")


def of(name: str, grid: tuple[int, ...], step: int = 1, low: bool = True) -> Case | None:
    """Return the mask of a name over a grid, or None where the grid has no such dim.

    `step`: what is left in the last dim is a multiple of this. `low`: the first indices of a free
    dim may be left out.
    """
    rank, last = len(grid), len(grid) - 1
    p = Compare(_along(0, rank), "<", max(1, grid[0] - 2 if grid[0] < 16 else grid[0] // 2))
    cut = max(step, grid[-1] * 2 // 3 // step * step)
    if name == "none":
        return Case(name)
    if name in ("true", "false"):
        return Case(name, always=name == "true")
    if name == "partition":
        return Case(name, (p,))
    if name == "free":
        return Case(name, (Compare(_along(last, rank), "<", cut),))
    if name == "free_first":
        return (
            Case(name, (Compare(_along(1, rank), "<=", grid[1] - 2),))
            if rank > 2 and grid[1] > 1
            else None
        )
    if name == "free_middle":
        return (
            Case(name, (Compare(_along(2, rank), ">=", 1),)) if rank > 3 and grid[2] > 1 else None
        )
    if name == "free_one":  # a dim of size 1: the mask holds everywhere
        return (
            Case(name, (Compare(_along(1, rank), "<", 1),)) if rank > 2 and grid[1] == 1 else None
        )
    if name == "both":
        return Case(
            name,
            (
                p,
                Compare(_along(last, rank), ">=", grid[-1] - cut)
                if low
                else Compare(_along(last, rank), "<", cut),
            ),
        )
    assert name == "slanted"
    return Case(
        name, (Compare(Affine((1,) + (0,) * (rank - 2) + (1,)), "<", grid[0] + grid[-1] - 4),)
    )
