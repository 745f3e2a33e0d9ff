"""What the record says about a tile's having been written, without any data."""
from __future__ import annotations

from typing import Any

from .conflicts import _Geometry
from .trace import Trace


def written(trace: Trace, tile: Any) -> bool:
    """Tell whether a recorded instruction has written any byte of a tile that is in scope.

    `tile` has storage, offset, shape, strides and dtype. Instructions since its storage was made
    lie in the iteration that made it, or in loops inside of that, which have higher numbers.
    """
    rows, starts, geometry = trace.rows, trace.starts, _Geometry()
    storage, mine = tile.storage, geometry.id(tile)
    for s in reversed(starts):
        if rows[s + 2] < storage.node:
            break
        kind = trace.kinds[rows[s]]
        for at, pattern in zip(range(s + 3, len(rows), 2), kind.operands[:kind.outputs]):
            if rows[at] == storage.id and geometry.overlap(mine, geometry.id(pattern),
                                                           rows[at + 1] - tile.offset):
                return True
    return False
