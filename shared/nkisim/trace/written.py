"""What the record says about a tile's having been written, without any data."""

from __future__ import annotations

from typing import Any

from .geometry import Geometry
from .trace import NODE, SPEC, Pattern, Trace, operand_at


def written(trace: Trace, tile: Any) -> bool:
    """Return whether a recorded instruction has written any byte of a tile that is in scope.

    `tile` is a Tensor. Instructions since its storage was made lie in the iteration that made it,
    or in loops inside of that, which have higher numbers: no others are looked at.
    """
    storage, rows, geometry = tile.storage, trace.rows, Geometry()
    mine = Pattern(tile.memory, tile.dtype, tile.shape, tile.strides)
    lowest = tile.offset + mine.lowest()
    for start in reversed(trace.starts):
        if rows[start + NODE] < storage.node:
            break
        spec = trace.op_specs[rows[start + SPEC]]
        for n, other in enumerate(spec.operands[: spec.outputs]):
            at = operand_at(start, n)
            if rows[at] == storage.id and geometry.overlap(
                geometry.id(mine), geometry.id(other), rows[at + 1] + other.lowest() - lowest
            ):
                return True
    return False
