"""What the record says about a tile's having been written, without any data."""

from __future__ import annotations

from typing import Any

import numpy as np

from .geometry import Geometry
from .trace import NODE, SPEC, Pattern, Trace, operand_at


class Writes:
    """The places that recorded instructions have written in one storage.

    They are collected as they are asked for: an instruction is looked at once, however many tiles
    of the storage are asked about.
    """

    def __init__(self) -> None:
        self.looked_at = 0  # instructions of the trace
        self.geometry = Geometry()
        self.places: set[tuple[int, int]] = set()  # id of the pattern, its lowest byte

    def place(self, pattern: Pattern, offset: int) -> tuple[int, int]:
        """Return what stands for an access at a byte offset."""
        return self.geometry.id(pattern), offset + pattern.lowest()

    def collect(self, trace: Trace, storage: Any) -> None:
        """Add the places that instructions since the last call have written.

        Instructions since the storage was made lie in the iteration that made it, or in loops
        inside of that, which have higher numbers: no others are looked at.
        """
        rows, starts = trace.rows, trace.starts
        for n in range(len(starts) - 1, self.looked_at - 1, -1):
            start = starts[n]
            if rows[start + NODE] < storage.node:
                break
            spec = trace.op_specs[rows[start + SPEC]]
            for number, pattern in enumerate(spec.operands[: spec.outputs]):
                at = operand_at(start, number)
                if rows[at] == storage.id:
                    self.places.add(self.place(pattern, rows[at + 1]))
        self.looked_at = len(starts)

    def meets(self, place: tuple[int, int]) -> bool:
        """Return whether any byte of an access has been written."""
        if place in self.places:
            return True
        if not self.places:
            return False
        patterns, lowest = np.array([*self.places]).T
        places = np.full(len(patterns), place[0])
        return bool(self.geometry.overlaps(places, patterns, lowest - place[1]).any())


def written(trace: Trace, tile: Any) -> bool:
    """Return whether a recorded instruction has written any byte of a tile (a Tensor in scope)."""
    writes = trace.writes.setdefault(tile.storage.id, Writes())
    writes.collect(trace, tile.storage)
    pattern = Pattern(tile.memory, tile.dtype, tile.shape, tile.strides)
    return writes.meets(writes.place(pattern, tile.offset))
