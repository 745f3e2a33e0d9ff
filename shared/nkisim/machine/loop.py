"""The loops of a kernel: what `nl.affine_range` and `nl.sequential_range` return."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from . import replay, tracedonce

if TYPE_CHECKING:
    from .machine import Machine


class Loop:
    """The iterations of a loop; each is noted in the trace when it begins."""

    def __init__(self, m: Machine, kind: str, values: range):
        self.m, self.kind, self.values = m, kind, values

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        if self.kind == "grid" or not replay.is_for_statement(frame):
            return self._run(None)
        may = self.m.replays.on and len(self.values) >= replay.FEWEST
        return tracedonce.iterations(self.m, frame, self._run(frame if may else None))

    def _run(self, frame: FrameType | None) -> Iterator[Any]:
        """Yield the indices; in a `frame`, those of iterations that have to be executed."""
        m, tr = self.m, self.m.trace
        loop, parent = len(tr.loop_kind), m.node
        tr.loop_kind.append(self.kind)
        tr.loop_line.append(m.here())
        m.loop_open.append(True)
        try:
            if frame is not None:
                yield from replay.iterate(m, loop, parent, self.values, frame)
                return
            for i in self.values:
                m.enter(loop, parent, i)
                yield i
                m.flush()
        finally:
            m.loop_open[loop] = False
            m.node = parent
