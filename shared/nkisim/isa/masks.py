"""What `mask=` does to an instruction: it narrows the operands, or selects what is written.

A mask ranges over the instruction's grid, which is its result unless the plan says otherwise. A
box of the grid (nearly always) narrows every operand and the result; where it does not, or where
values depend on their position, the whole is computed and the selected elements are written.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import fail
from ..indexing.index import Mask
from ..machine.instruction import Access, Kept

if TYPE_CHECKING:
    from ..machine.instruction import Instr
    from ..machine.tensor import Tensor
    from .table import Row

Box = list[tuple[int, int]]

EVERYTHING, PARTITIONS, NOTHING = "everything", "partitions", "nothing"  # what a mask may cut


def apply(row: Row, ins: Instr, mask: Any) -> None:
    """Apply the `mask=` of a call to a planned instruction."""
    if mask is True or isinstance(mask, np.bool_) and mask:
        return
    grid = ins.shape if ins.grid is None else ins.grid
    kept = tuple(range(len(grid))) if ins.kept is None else ins.kept
    if isinstance(mask, (bool, np.bool_)):
        ins.box = [(0, 0)] * len(ins.shape)  # a mask over loop variables, and it is false
        return
    if not isinstance(mask, Mask):
        raise fail(
            "NKI-I07",
            "mask is not a comparison of index expressions",
            given=f"{type(mask).__name__}",
            limit="affine comparisons joined by &, e.g. (i_p < 64) & (i_f < n)",
        )
    box = mask.box(grid)
    if box is not None and all(b == (0, n) for b, n in zip(box, grid)):
        return
    if box is not None and _cuts(row, ins, grid, box):
        narrowed = row.narrow(ins, box) if row.narrow else _narrowed(row, ins, grid, box)
        if narrowed is not None:
            if narrowed is not ins.srcs:
                for operand, t in zip((o for o in row.operands if o.role == "read"), narrowed):
                    operand.check_elements(t.m, t, row.api)
            ins.srcs = narrowed
            ins.also = tuple(t.narrow(lanes(t, box)) for t in ins.also)
            ins.box = [_of_result(d, n, box) for d, n in zip(kept, ins.shape)]
            return
    _select(row, ins, mask, grid, kept)


def _of_result(d: Kept, n: int, box: Box) -> tuple[int, int]:
    """Return what a box leaves of a result's dim: a dim of the grid, some of them flattened (the
    box leaves a leading run of those), or none."""
    if isinstance(d, slice):
        return 0, math.prod(max(0, hi - lo) for lo, hi in box[d])
    return (0, n) if d is None else box[d]


def _cuts(row: Row, ins: Instr, grid: tuple[int, ...], box: Box) -> bool:
    """Return whether a box may narrow the operands: values must not depend on what it cuts."""
    if isinstance(ins.variant, Access) and ins.variant.indirect:
        return False
    return row.mask_mode == EVERYTHING or row.mask_mode == PARTITIONS and leading(box[1:], grid[1:])


def leading(box: Box, grid: tuple[int, ...]) -> bool:
    """Return whether a box leaves a leading run of the flattened elements: no position changes."""
    cut = [d for d, (b, n) in enumerate(zip(box, grid)) if b != (0, n)]
    if not cut:
        return True
    return len(cut) == 1 and box[cut[0]][0] == 0 and all(n == 1 for n in grid[: cut[0]])


def lanes(t: Tensor, box: Box) -> Box:
    """Return the box that leaves the partitions of a grid's box and all free elements."""
    return [box[0], *((0, n) for n in t.shape[1:])]


def _narrowed(row: Row, ins: Instr, grid: tuple[int, ...], box: Box) -> tuple[Tensor, ...] | None:
    """Return the sources inside the box, or None if one of them is grouped otherwise."""
    if any(lo >= hi for lo, hi in box):
        return ins.srcs  # nothing is selected, nothing will be read
    out = []
    for t, by_lane in zip(ins.srcs, by_lanes(row, ins)):
        if by_lane:
            out.append(t.narrow(lanes(t, box)))
        elif len(t.shape) == len(grid) and all(a in (1, n) for a, n in zip(t.shape, grid)):
            out.append(t.narrow(box))
        else:
            return None
    return tuple(out)


def by_lanes(row: Row, ins: Instr) -> list[bool]:
    """Return for each source whether a mask cuts its partitions only."""
    declared = [o for o in row.operands if o.role == "read"]
    flags, scalars = [], iter(ins.scalars)
    for o in declared:
        if (o.numbers or o.optional) and next(scalars)[1] < 0:
            continue  # a number: it is no source
        flags.append(o.lanes)
    return flags + [False] * (len(ins.srcs) - len(flags))


def _select(
    row: Row, ins: Instr, mask: Mask, grid: tuple[int, ...], kept: tuple[Kept, ...]
) -> None:
    """Let the mask choose what is read of the grid, and what is written of the result.

    A reduction that skips elements (`row.skips`) writes what has any left.
    """
    values = mask.values(grid)
    dims = [d if isinstance(d, int) else None for d in kept]
    left = [d for d in dims if d is not None]
    gone = tuple(d for d in range(len(grid)) if d not in left)
    fits = bool(row.skips and row.skips(ins)) if gone else len(kept) == len(grid)
    if ins.also or not fits:
        raise fail(
            "NKI-X02",
            f"what this mask leaves of {row.api} is no part of its result",
            limit="here a mask cuts a range of each dim that the result has"
            + ("" if row.mask_mode == EVERYTHING else ", of partitions for this one"),
            hint="slice the operands instead, or mask them first: nl.copy(x, mask=...)",
        )
    ins.over = values
    written = np.asarray(values.any(axis=gone, keepdims=True)).transpose((*left, *gone))
    ins.mask = written.reshape(tuple(1 if d is None else grid[d] for d in dims))
