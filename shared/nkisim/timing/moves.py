"""Versions of tiles that go to other memory when the compiler changes a trace."""

from __future__ import annotations

import numpy as np

from ..chip.memory import SBUF
from ..trace.footprint import Accesses
from ..trace.rewrite import Draft


class Moves:
    """Moves versions of tiles to other storages."""

    def __init__(self, draft: Draft, acc: Accesses):
        self.draft, self.acc = draft, acc
        self.order = np.argsort(acc.vid, kind="stable")
        self.begin = np.searchsorted(acc.vid[self.order], np.arange(len(acc.versions.storage) + 1))

    def storage(self, v: int) -> int:
        """Return a new storage for version `v`."""
        return self.draft.storage(int(self.acc.versions.storage[v]), SBUF)

    def move(self, v: int, storage: int, shift: int = 0, memory: str | None = None) -> None:
        """Move all accesses to version `v`, `shift` bytes further; to another memory if asked."""
        ev = self.acc.ev
        for e in self.order[self.begin[v] : self.begin[v + 1]].tolist():
            self.draft.move(int(ev["instr"][e]), int(ev["operand"][e]), storage, memory, shift)


def most_held(acc: Accesses, but: np.ndarray | None = None) -> int:
    """Return the bytes of SBUF (per partition) that tiles but versions `but` take at most, with
    those that the kernel places by itself."""
    v = acc.versions
    other = ~v.psum
    if but is not None:
        other[but] = False
    steps = np.zeros(len(acc.specs) + 1, np.int64)
    np.add.at(steps, v.first[other], v.bytes[other])
    np.subtract.at(steps, v.last[other] + 1, v.bytes[other])
    return int(np.cumsum(steps).max(initial=0)) + acc.taken
