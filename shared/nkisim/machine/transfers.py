"""DMAs of a shuffled run: each takes effect as late as what orders it allows.

A DMA runs beside the engines. What waits for it is what touches the same bytes: the compiler, or
the framework that allocates tiles, puts a semaphore between the two, and so it does for HBM and for
tiles that a kernel places itself. Nothing orders the iterations of an affine_range, which promise
to be independent, nor the instances of a grid, nor two cores between two waits: there a DMA may
read and write after all that another iteration does. Outside of a shuffled run a DMA takes effect
at once, in program order, which is one of the orders that are allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..chip.memory import HBM, free_range
from ..errors import NkiError
from ..lazy.float32_copies import refresh_shadow
from ..lazy.groups import NOT_YET
from .instruction import Instr
from .loop import keeps_order
from .tensor import Tensor

if TYPE_CHECKING:
    from .interface import Machine

MOST = 256  # DMAs under way; the first of more of them ends: it was late enough


class Box(NamedTuple):
    """Where an operand lies: partitions and bytes of each, a superset of what it touches."""

    storage: int
    p0: int
    p1: int
    lo: int
    hi: int

    def overlaps(self, other: Box) -> bool:
        return (
            self.storage == other.storage
            and self.p0 < other.p1
            and other.p0 < self.p1
            and self.lo < other.hi
            and other.lo < self.hi
        )


class PendingDma(NamedTuple):
    """A DMA that has been issued and has not taken effect; `node`: the iteration it is in."""

    ins: Instr
    outs: tuple[Tensor, ...]
    node: int
    reads: tuple[Box, ...]
    writes: tuple[Box, ...]


class Transfers:
    """The DMAs under way in a launch, in program order."""

    def __init__(self, m: Machine):
        self.m = m
        self._held: list[PendingDma] = []

    def before(self, ins: Instr, outs: tuple[Tensor, ...]) -> None:
        """Let the DMAs take effect that an instruction waits for."""
        if not self._held:
            return
        reads, writes = _boxes(ins.srcs), _boxes(outs)
        arenas = {t.storage.id for t in (*ins.srcs, *outs) if t.storage.arena}
        for one in [held for held in self._held if self._waits(reads, writes, arenas, held)]:
            self._held.remove(one)
            self._perform(one)

    def _waits(
        self, reads: tuple[Box, ...], writes: tuple[Box, ...], arenas: set[int], one: PendingDma
    ) -> bool:
        """Return whether something orders accesses of the running iteration after a DMA."""
        met = {a.storage for a in reads for b in one.writes if a.overlaps(b)}
        met.update(a.storage for a in writes for b in (*one.reads, *one.writes) if a.overlaps(b))
        return bool(met) and (bool(met & arenas) or not _apart(self.m, one.node, self.m.core.node))

    def hold(self, ins: Instr, outs: tuple[Tensor, ...]) -> None:
        """Put a DMA off that has been issued in the running iteration."""
        self._held.append(PendingDma(ins, outs, self.m.core.node, _boxes(ins.srcs), _boxes(outs)))
        if len(self._held) > MOST:
            self._perform(self._held.pop(0))

    def finish(self) -> None:
        """Let all DMAs take effect, in program order: all of them are waited for."""
        while self._held:
            self._perform(self._held.pop(0))

    def _perform(self, one: PendingDma) -> None:
        """Move the bytes now; that they are written has been noted when the DMA was issued."""
        m = self.m
        if any(t.storage.queued & NOT_YET for t in one.ins.srcs):
            m.products.run()
        for t in one.outs:
            if t.storage.queued:
                m.products.before_write(t)
        try:
            m.run(one.ins, one.outs[0])
        except (NkiError, IndexError) as exc:  # a run-time index carries its rule along
            if isinstance(rule := getattr(exc, "nki_error", exc), NkiError):
                rule.at(m.trace.where(one.ins.line), final=True)  # not that of who waits
            raise
        for t in one.outs:
            t.storage.version += 1
            if t.storage.shadow is not None:
                refresh_shadow(t)


def _boxes(tensors: tuple[Tensor, ...]) -> tuple[Box, ...]:
    return tuple(_box(t) for t in tensors)


def _box(t: Tensor) -> Box:
    st = t.storage
    if t.memory is HBM:
        lo, hi = free_range(t.offset, (1, *t.shape), (0, *t.strides), t.dtype.itemsize)
        return Box(st.id, 0, 1, lo, hi)
    first, lo = divmod(t.offset, st.row_bytes)
    return Box(
        st.id, first, first + t.shape[0], *free_range(lo, t.shape, t.strides, t.dtype.itemsize)
    )


def _apart(m: Machine, a: int, b: int) -> bool:
    """Return whether two nodes lie in two iterations (instances, cores) that nothing orders."""
    parent, loop = m.trace.node_parent, m.trace.node_loop
    below_a = below_b = -1
    while a != b:  # a node comes after its parent
        if a > b:
            below_a, a = a, parent[a]
        else:
            below_b, b = b, parent[b]
    return (
        below_a >= 0
        and below_b >= 0
        and loop[below_a] == loop[below_b]
        and not keeps_order(m, m.trace.loop_kind[loop[below_a]])
    )
