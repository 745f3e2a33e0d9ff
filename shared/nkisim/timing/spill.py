"""Spills: what a compiler has to do with tiles that do not fit the memory they live in.

When a tile needs memory and there is none, the tile that is not used for the longest time goes
(Belady's rule, which is what linear-scan register allocators do with spills). From SBUF it goes to
HBM: a DMA stores it once it is written, and another one loads it before it is used again. Tiles
that were loaded from an input and not changed are not stored, only loaded again. From PSUM it goes
to SBUF, with a copy, and is read there.

There is no constant here: what spills cost is what their DMAs and copies cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF
from ..isa import dma, dve
from ..isa.table import ANY
from ..trace.footprint import Accesses, accesses
from ..trace.rewrite import Draft
from ..trace.trace import OpSpec, Pattern, Trace

_NEVER = 1 << 60
_BYTE, _FLOAT = np.dtype(np.uint8), np.dtype(np.float32)


# what the compiler puts in: the rows of the table, under names of their own
LOAD, STORE, COPY = (
    replace(f.row, name=f"spill_{f.row.name}", loads=False, copies=False, spills=True)
    for f in (dma.load, dma.store, dve.tensor_copy)
)


def spill_sbuf(trace: Trace, hw: NeuronCore, rename: bool, room: bool = False) -> Trace:
    """Return the trace with loads and stores for what does not fit SBUF.

    `room`: keep room for what comes back while it is in flight.
    """
    budget = _beside_reloads(hw) if room else hw.sbuf_usable_bytes
    acc = accesses(trace, hw, rename)
    return _Sbuf(trace, acc, hw, budget - acc.taken, psum=False).run()


def _beside_reloads(hw: NeuronCore) -> int:
    """Return the bytes of a partition for tiles that stay, beside what DMAs have in flight.

    A tile that comes back needs its room from the trigger on, as long as a load is taken to need:
    what the DMA engines move in that time is for such tiles.
    """
    t = hw.timing
    moved = hw.dma_engines * t.dma_engine_gbps * t.compiler_load_us * 1e3
    return hw.sbuf_usable_bytes - int(moved / hw.pmax)


def spill_psum(trace: Trace, hw: NeuronCore, rename: bool) -> Trace:
    """Return the trace with copies to SBUF for what does not fit PSUM."""
    return _Psum(trace, accesses(trace, hw, rename), hw, hw.psum_bytes, psum=True).run()


@dataclass
class _Tile:
    """A version of a tile: where it is now."""

    storage: int  # of the copy on chip that is in use
    here: bool = False  # in the memory that it lives in
    born: bool = False
    dirty: bool = False  # written since it was stored
    written: int = -1  # the instruction that wrote it last
    away: int = -1  # storage that holds it when it is not here
    source: int = -1  # the load that filled it, if it can be loaded again
    next: int = _NEVER  # the next instruction that uses it


class _Scan:
    """One pass over the accesses in program order."""

    def __init__(self, trace: Trace, acc: Accesses, hw: NeuronCore, capacity: int, psum: bool):
        self.draft, self.acc, self.free = Draft(trace), acc, capacity
        self.small = hw.timing.dma_small_write_bytes
        v = acc.versions
        self.size = v.bytes.tolist()
        self.lo, self.hi = v.lo.tolist(), v.hi.tolist()
        self.tiles = [_Tile(s) for s in v.storage.tolist()]
        self.mine = ((v.psum == psum) & (v.bytes > 0))[acc.vid]
        self.readonly = acc.stores.readonly

    def run(self) -> Trace:
        """Scan, and return the changed trace."""
        acc, events = self.acc, np.flatnonzero(self.mine)
        vid, instr = acc.vid[events], acc.ev["instr"][events]
        write, operand = (
            acc.ev["write"][events].tolist(),
            acc.ev["operand"][events].tolist(),
        )
        order = np.argsort(vid, kind="stable")
        later = np.full(len(events), _NEVER)  # the next instruction with that version
        same = vid[order][1:] == vid[order][:-1]
        later[order[:-1][same]] = instr[order[1:][same]]
        begin = np.flatnonzero(np.append(True, instr[1:] != instr[:-1])) if len(instr) else instr
        nexts, vids, instrs = later.tolist(), vid.tolist(), instr.tolist()
        # (-next use, version): of tiles that are worth a DMA, and of others
        self.heaps: list[list[tuple[int, int]]] = [[], []]
        for first, past in zip(begin.tolist(), [*begin[1:].tolist(), len(instrs)]):
            i = instrs[first]
            now = dict.fromkeys(vids[first:past])
            for v in now:
                writes = any(write[e] for e in range(first, past) if vids[e] == v)
                self.need(i, v, writes, now)
            for e in range(first, past):
                v = vids[e]
                tile = self.tiles[v]
                self.access(i, operand[e], v, tile)
                if write[e]:
                    tile.dirty, tile.written = True, i
                tile.next = nexts[e]
            for v in now:
                tile = self.tiles[v]
                if tile.here:
                    if tile.next == _NEVER:
                        tile.here = False
                        self.free += self.size[v]
                    else:
                        heappush(self.heaps[self.size[v] < self.small], (-tile.next, v))
        return self.draft.finish()

    def room(self, size: int, now: dict[int, None]) -> None:
        """Make room for a tile by spilling others; those in use now stay.

        Small tiles go last: many of them would take a DMA each for little room.
        """
        for heap in self.heaps:
            keep = []
            while self.free < size and heap:
                entry = heappop(heap)
                v = entry[1]
                tile = self.tiles[v]
                if not tile.here or tile.next != -entry[0]:
                    continue  # an old entry
                if v in now or tile.written < 0:  # or never written: nothing to keep
                    keep.append(entry)
                    continue
                self.evict(v, tile)
                tile.here = False
                self.free += self.size[v]
            for entry in keep:
                heappush(heap, entry)

    def take(self, v: int, now: dict[int, None]) -> None:
        """Give a tile memory."""
        self.room(self.size[v], now)
        self.free -= self.size[v]
        self.tiles[v].here = self.tiles[v].born = True

    def pattern(self, v: int, memory: str, item: np.dtype = _BYTE) -> Pattern:
        """Return the access pattern of all of a tile, in its memory or packed in HBM."""
        s = self.draft.storages[self.tiles[v].storage]
        width = self.hi[v] - self.lo[v]
        row = width if memory is HBM else s.row_bytes
        return Pattern(memory, item, (s.nparts, width // item.itemsize), (row, item.itemsize))

    def need(self, i: int, v: int, writes: bool, now: dict[int, None]) -> None:
        """See to it that instruction `i` can use version `v`."""
        raise NotImplementedError

    def access(self, i: int, j: int, v: int, tile: _Tile) -> None:
        """Let operand `j` of instruction `i` use the version where it is."""
        raise NotImplementedError

    def evict(self, v: int, tile: _Tile) -> None:
        """Spill a version."""
        raise NotImplementedError


class _Sbuf(_Scan):
    """Spills from SBUF to HBM."""

    def need(self, i: int, v: int, writes: bool, now: dict[int, None]) -> None:
        tile = self.tiles[v]
        if tile.here:
            return
        back = tile.born
        self.take(v, now)
        if not back:
            return
        tile.storage = self.draft.storage(tile.storage, SBUF)
        if tile.source >= 0:  # load it once more from where it was
            spec = self.draft.spec_of(tile.source)
            operands = [self.draft.operand(tile.source, j) for j in range(len(spec.operands))]
            operands[0] = (tile.storage, operands[0][1])
        else:
            sides = (self.pattern(v, SBUF), self.pattern(v, HBM))
            spec = OpSpec(LOAD, "dma", sides, 1, False, False, ())
            operands = [(tile.storage, self.lo[v]), (tile.away, 0)]
        self.draft.put(i, i, spec, operands)

    def access(self, i: int, j: int, v: int, tile: _Tile) -> None:
        spec = self.draft.spec_of(i)
        if j < spec.outputs:  # can it be loaded again?
            again = (
                spec.row.loads
                and not tile.dirty
                and tile.written < 0
                and all(
                    self.readonly[self.draft.operand(i, k)[0]] for k in range(1, len(spec.operands))
                )
            )
            tile.source = i if again and self._all(v, spec) else -1
        if self.draft.operand(i, j)[0] != tile.storage:
            self.draft.move(i, j, tile.storage)

    def _all(self, v: int, spec: OpSpec) -> bool:
        """Return whether a load fills all of a version."""
        out = spec.operands[0]
        s = self.draft.storages[self.tiles[v].storage]
        return out.nbytes == s.nparts * (self.hi[v] - self.lo[v])

    def evict(self, v: int, tile: _Tile) -> None:
        if not tile.dirty or tile.source >= 0:
            return
        if tile.away < 0:
            s = self.draft.storages[tile.storage]
            width = self.hi[v] - self.lo[v]
            tile.away = self.draft.storage(tile.storage, HBM, s.nparts * width, 1)
        sides = (self.pattern(v, HBM), self.pattern(v, SBUF))
        spec = OpSpec(STORE, "dma", sides, 1, False, False, ())
        self.draft.put(
            tile.written + 1, tile.written, spec, [(tile.away, 0), (tile.storage, self.lo[v])]
        )
        tile.dirty = False


class _Psum(_Scan):
    """Spills from PSUM to SBUF, where other engines than the Tensor Engine can read them."""

    def need(self, i: int, v: int, writes: bool, now: dict[int, None]) -> None:
        tile = self.tiles[v]
        if tile.here or (tile.born and not writes):
            return
        back = tile.born
        self.take(v, now)
        if back:  # more is added to it
            tile.storage = self.draft.storage(tile.storage, PSUM)
            self._copy(i, i, v, (tile.storage, PSUM), (tile.away, SBUF))

    def access(self, i: int, j: int, v: int, tile: _Tile) -> None:
        if not tile.here:
            self.draft.move(i, j, tile.away, SBUF)
        elif self.draft.operand(i, j)[0] != tile.storage:
            self.draft.move(i, j, tile.storage)

    def evict(self, v: int, tile: _Tile) -> None:
        if tile.dirty:
            tile.away = self.draft.storage(tile.storage, SBUF)
            self._copy(tile.written + 1, tile.written, v, (tile.away, SBUF), (tile.storage, PSUM))
            tile.dirty = False

    def _copy(
        self, before: int, like: int, v: int, to: tuple[int, str], of: tuple[int, str]
    ) -> None:
        item = _FLOAT if (self.hi[v] - self.lo[v]) % _FLOAT.itemsize == 0 else _BYTE
        sides = (self.pattern(v, to[1], item), self.pattern(v, of[1], item))
        spec = OpSpec(COPY, ANY, sides, 1, False, False, ())
        self.draft.put(before, like, spec, [(to[0], self.lo[v]), (of[0], self.lo[v])])
