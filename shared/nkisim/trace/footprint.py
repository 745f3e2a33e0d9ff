"""Who waits for whom: data dependencies and reuse of memory, from a trace.

Two accesses conflict if they can touch the same byte: the boxes of their access patterns overlap,
and they are not interleaved slices of one tile. A tile that is overwritten as a whole begins a
new life ("version") in other memory, as the compiler renames it. Memory of versions is handed out
in program order, the longest free first, and what waits for memory waits for the last access of
the version that had it before: so buffering decides what overlaps. (Banks of PSUM are few; the
schedule hands them out as instructions come to need them.)
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM
from . import conflicts
from .trace import StorageTable, Trace

# queues: what takes instructions in order. Stores are triggered by a queue of their own, so that
# one that waits for its data does not hold up the loads behind it.
PE, DVE, ACT, POOL, SYNC, LOADS, STORES = range(7)
QUEUES = 7
#: the engine whose queue triggers DMAs: loads on Sync, stores on GpSimd (as in profiles)
TRIGGERED_BY = {LOADS: SYNC, STORES: POOL}


@dataclass
class Versions:
    """The lives of tiles, as arrays: one element per version."""

    storage: np.ndarray
    first: np.ndarray  # instruction of the first and last access
    last: np.ndarray
    bytes: np.ndarray  # per partition (PSUM: whole banks); 0 for what is not placed here
    psum: np.ndarray  # bool
    resident: np.ndarray  # bytes per partition that it takes, wherever it lies
    line: np.ndarray  # of the allocation, as in the trace
    lo: np.ndarray  # bytes of a partition of the storage
    hi: np.ndarray


@dataclass
class Dependencies:
    """What each instruction waits for."""

    spec: np.ndarray
    queue: np.ndarray
    before: np.ndarray  # pairs, sorted: instruction before[x] has to be done ...
    after: np.ndarray  # ... for after[x]
    versions: Versions
    overflow: dict[str, int]  # memory -> bytes per partition beyond what there is
    psum_instr: np.ndarray  # accesses to tiles in PSUM: instruction ...
    psum_version: np.ndarray  # ... and version, in program order
    contended: dict[int, int]  # instruction -> bank of PSUM that both DVE and ACT use
    #: pairs like `before` and `after`, of loads that the compiler does not trigger earlier
    leads: tuple[np.ndarray, np.ndarray] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    by_use: bool = False  # loads are triggered in the order in which they are used
    #: by instruction, the source line whose loads are not put off into a step (None: put off)
    lines: np.ndarray | None = None
    #: by queue, the places in it where what comes begins only after all that comes before
    fences: dict[int, list[int]] = field(default_factory=dict)
    #: the instructions at which it waits for another core, in program order
    meetings: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    #: when the other core lets an instruction begin, in microseconds (None: there is no other)
    release: np.ndarray | None = None

    def waits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all pairs of instructions whose second waits for the first, sorted."""
        if not len(self.leads[0]):
            return self.before, self.after
        before, after = (
            np.concatenate(arrays) for arrays in zip((self.before, self.after), self.leads)
        )
        each = before << 32 | after
        each.sort(kind="stable")  # of what is sorted for the most part
        return each >> 32, each & 0xFFFFFFFF


@dataclass
class Accesses:
    """All accesses of a run, in program order, an instruction's reads first.

    `ev`: arrays of an element per access (instr, write, storage, offset, operand, lo, hi, solid);
    `vid`: its version; `whole`: it writes all of a tile, with which a version begins.
    """

    ev: dict[str, np.ndarray]
    vid: np.ndarray
    whole: np.ndarray
    versions: Versions
    specs: np.ndarray  # by instruction
    stores: StorageTable

    @property
    def taken(self) -> int:
        """Return the bytes of a partition of SBUF below which the kernel places tiles by itself;
        those that it leaves to the compiler lie above."""
        stores = self.stores
        placed = (stores.arena & ~stores.psum & ~stores.hbm)[self.ev["storage"]]
        return int(self.ev["hi"][placed].max(initial=0))


def accesses(trace: Trace, hw: NeuronCore, rename: bool = True) -> Accesses:
    """Find the accesses of a trace and the lives of its tiles.

    `rename`: a tile that is overwritten as a whole begins a new life, in other memory.
    """
    stores = trace.storages.table()
    ev = _events(trace, stores)
    versions, vid, whole = _versions(stores, hw, ev, rename)
    return Accesses(ev, vid, whole, versions, trace.spec_ids(), stores)


def analyse(
    trace: Trace, hw: NeuronCore, queue_of: np.ndarray, rename: bool = True
) -> Dependencies:
    """Find what each instruction of a trace waits for; `queue_of` gives the queue of a spec."""
    acc = accesses(trace, hw, rename)
    ev, versions, vid, specs, stores = acc.ev, acc.versions, acc.vid, acc.specs, acc.stores
    queue = queue_of[specs]
    waits, overflow = _place(acc, queue, hw)
    read = np.zeros(len(stores.hbm), bool)
    read[ev["storage"][~ev["write"]]] = True
    apart = (stores.hbm & ~read)[ev["storage"]]  # outputs: only the same region matters
    before, after = conflicts.pairs(trace, ev, vid, specs, queue, apart, acc.whole)
    asked = [
        (before, after),
        waits,
        _fences(trace, specs, queue),
        _edges(trace),
        _registers(trace, specs, queue),
    ]
    each = np.concatenate([ids for ids, _ in asked]) << 32 | np.concatenate(
        [ids for _, ids in asked]
    )
    each.sort()
    each = each[np.append(True, each[1:] != each[:-1])] if len(each) else each
    before, after = each >> 32, each & 0xFFFFFFFF
    banked = (versions.psum & (versions.bytes > 0))[vid]
    return Dependencies(
        specs,
        queue,
        before,
        after,
        versions,
        overflow,
        ev["instr"][banked],
        vid[banked],
        _contended(acc, queue, hw) if hw.timing.shared_banks else {},
    )


def _fences(trace: Trace, specs: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (earlier, later) of the waits at barriers: they keep their place on their engine.

    What the engine has before it in the program it has done by then; what comes later there, or is
    a DMA that the engine triggers, waits. Other engines do not.
    """
    barrier = np.array(
        [k.row.is_collective and k.engine != "dma" for k in trace.op_specs] or [False]
    )[specs]
    before, after = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for q in np.unique(queue[barrier]).tolist():
        for side in (q, *(d for d, engine in TRIGGERED_BY.items() if engine == q)):
            queued = np.flatnonzero((queue == side) | barrier & (queue == q))
            fence = barrier[queued] & (queue[queued] == q)
            count = np.cumsum(fence)  # barriers up to here
            at = queued[fence]
            last = count - fence  # barriers before
            waits = last > 0
            before.append(at[last[waits] - 1])
            after.append(queued[waits])
            if side == q:
                comes = (count < len(at)) & ~fence
                before.append(queued[comes])
                after.append(at[count[comes]])
    return np.concatenate(before), np.concatenate(after)


def _edges(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return (earlier, later) of the waits that the kernel asks for by itself.

    Those of instructions that the compiler has left out are none.
    """
    edges = np.array(trace.edges, np.int64).reshape(-1, 2)
    if trace.origin is not None and len(edges):
        kept = np.flatnonzero(trace.origin >= 0)
        now = np.full(int(max(edges.max(), trace.origin.max(initial=0))) + 1, -1)
        now[trace.origin[kept]] = kept
        edges = now[edges]
        edges = edges[(edges >= 0).all(axis=1) & (edges[:, 0] < edges[:, 1])]
    return edges[:, 0], edges[:, 1]


def _registers(trace: Trace, specs: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (earlier, later) of the waits for the accumulator registers of an engine.

    What goes on with a sum waits for who used the registers before; what begins another one waits
    for who went on with the last.
    """
    use = np.array([getattr(k.variant, "registers", 0) for k in trace.op_specs] or [0])[specs]
    before, after = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for q in np.unique(queue[use > 1]).tolist():
        users = np.flatnonzero((use > 0) & (queue == q))
        goes_on = use[users] > 1
        waits = goes_on[1:] | goes_on[:-1]
        before.append(users[:-1][waits])
        after.append(users[1:][waits])
    return np.concatenate(before), np.concatenate(after)


def _contended(acc: Accesses, queue: np.ndarray, hw: NeuronCore) -> dict[int, int]:
    """Return the bank of instructions on DVE and ACT, if the other one uses the bank as well.

    A tile that the allocator places has banks of its own, so its version stands for the bank.
    """
    ev, stores = acc.ev, acc.stores
    sides = queue[ev["instr"]]
    in_psum = stores.psum[ev["storage"]] & ((sides == DVE) | (sides == ACT))
    instr, sides = ev["instr"][in_psum], sides[in_psum]
    by_address = -1 - ev["lo"][in_psum] // hw.psum_bank_bytes
    bank = np.where(stores.arena[ev["storage"][in_psum]], by_address, acc.vid[in_psum])
    banks, which = np.unique(bank, return_inverse=True)
    both = (np.bincount(which, sides == DVE, len(banks)) > 0) & (
        np.bincount(which, sides == ACT, len(banks)) > 0
    )
    contended = both[which]
    return dict(zip(instr[contended].tolist(), bank[contended].tolist()))


def _events(trace: Trace, stores: StorageTable) -> dict[str, np.ndarray]:
    """Return all accesses as arrays, in program order, an instruction's reads first.

    `lo`, `hi` are the bytes of a partition that are touched; `solid` says that all of them are
    written, in how many partitions. Accesses to inputs, which need no wait, are left out.
    """
    operand_specs = trace.operand_specs()
    extent, solid = np.zeros(len(operand_specs), np.int64), np.zeros(len(operand_specs), np.int64)
    for f, (spec, number, p) in enumerate(operand_specs):
        extent[f] = p.span(free=p.memory is not HBM)
        partly = spec.accumulate or spec.row.merges or spec.masked or spec.scatters
        if p.memory is not HBM and number < spec.outputs and not partly and p.fills():
            solid[f] = p.shape[0]
    accesses = trace.operands()
    writable = np.flatnonzero(~stores.readonly[accesses.storage])
    writable = writable[
        np.argsort(accesses.instr[writable] * 2 + accesses.write[writable], kind="stable")
    ]
    accesses = type(accesses)(*(column.take(writable) for column in accesses))
    lo = accesses.lowest % stores.row_bytes[accesses.storage]
    return {
        "instr": accesses.instr,
        "write": accesses.write,
        "storage": accesses.storage,
        "offset": accesses.lowest,
        "operand": accesses.number,
        "operand_spec": accesses.operand_spec,
        "lo": lo,
        "hi": lo + extent[accesses.operand_spec],
        "solid": solid[accesses.operand_spec],
    }


def _tiles(
    stores: StorageTable, ev: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut storages into tiles: ranges of bytes such that no access touches two.

    A tensor with block dims is many tiles, which live and die on their own. Returns the tile of
    each access, and where tiles begin and end. HBM tensors and what the kernel places by itself
    are one tile.
    """
    sid = ev["storage"]
    one = (stores.hbm | stores.arena)[sid]
    lo, hi = np.where(one, 0, ev["lo"]), np.where(one, 1, ev["hi"])
    span = int(hi.max(initial=1)) + 1
    order = np.argsort(sid * span + lo, kind="stable")
    reach = np.maximum.accumulate((sid * span + hi)[order])
    begin = (sid * span + lo)[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = begin[1:] >= reach[:-1]
    tile = np.empty(len(order), np.int64)
    tile[order] = np.cumsum(fresh) - 1
    heads = np.flatnonzero(fresh)
    first = begin[heads] - sid[order][heads] * span
    last = np.maximum.reduceat(hi[order], heads) if len(heads) else first
    return tile, first, last


def _versions(
    stores: StorageTable, hw: NeuronCore, ev: dict[str, np.ndarray], rename: bool
) -> tuple[Versions, np.ndarray, np.ndarray]:
    """Number the lives of all tiles; return them, the version of each access, and whether it
    writes all of the tile, with which a version begins."""
    tile, lo, hi = _tiles(stores, ev)
    nparts = np.where(stores.arena | stores.fixed, -1, stores.nparts)
    renewed = (
        ev["write"].astype(bool)
        & (ev["solid"] == nparts[ev["storage"]])
        & (ev["hi"] - ev["lo"] == (hi - lo)[tile])
    )
    order = np.argsort(tile, kind="stable")
    fresh = renewed[order] & rename
    if len(order):
        fresh[0] = True
        fresh[1:] |= np.diff(tile[order]) != 0
    vid = np.empty(len(order), np.int64)
    vid[order] = np.cumsum(fresh) - 1
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(order))[: len(heads)] - 1
    storage = ev["storage"][order][heads]
    placed = ~stores.hbm & ~stores.arena
    psum = stores.psum[storage]
    begin, end = lo[tile[order][heads]], hi[tile[order][heads]]
    size = end - begin
    bank = hw.psum_bank_bytes
    size = np.where(psum, -(-size // bank) * bank, size) * placed[storage]
    instr = ev["instr"][order]
    resident = size
    if len(heads):
        arena = stores.arena[storage]
        used = np.maximum.reduceat(ev["hi"][order], heads) - np.minimum.reduceat(
            ev["lo"][order], heads
        )
        resident = np.where(arena, used, size)
    return (
        Versions(
            storage,
            instr[heads],
            instr[tails],
            size,
            psum,
            resident,
            stores.line[storage],
            begin,
            end,
        ),
        vid,
        renewed,
    )


def _place(
    acc: Accesses, queue: np.ndarray, hw: NeuronCore
) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, int]]:
    """Hand out SBUF in program order; return (earlier, later) of the waits for it."""
    v, vid, instr = acc.versions, acc.vid, acc.ev["instr"]
    before, after = array("q"), array("q")
    overflow: dict[str, int] = {}
    capacity = hw.sbuf_usable_bytes - acc.taken
    placed = np.flatnonzero(~v.psum & (v.bytes > 0))
    if int(v.bytes[placed].sum()) > capacity:
        user, begin = _last_accesses(vid, instr, queue, len(v.storage))
        births = placed[np.argsort(v.first[placed], kind="stable")]
        deaths = placed[np.argsort(v.last[placed], kind="stable")]
        sizes, last = v.bytes.tolist(), v.last.tolist()
        chunks: deque[list[int]] = deque([[capacity, -1]])  # bytes, and who had them
        free, missing, dead, dying = capacity, 0, 0, deaths.tolist()
        for b, first in zip(births.tolist(), v.first[births].tolist()):
            while last[dying[dead]] < first:
                w = dying[dead]
                dead += 1
                back = sizes[w]
                if missing:  # what never fitted is paid back first
                    used = min(missing, back)
                    missing, back = missing - used, back - used
                if back:
                    chunks.append([back, w])
                    free += back
            need = sizes[b]
            if need > free:
                missing += need - free
                overflow["sbuf"] = max(overflow.get("sbuf", 0), missing)
                need = free
            free -= need
            while need:
                chunk = chunks[0]
                w = chunk[1]
                if w >= 0:
                    for i in user[begin[w] : begin[w + 1]]:
                        if i != first:
                            before.append(i)
                            after.append(first)
                if chunk[0] > need:
                    chunk[0] -= need
                    need = 0
                else:
                    need -= chunk[0]
                    chunks.popleft()
    return (np.frombuffer(before, np.int64), np.frombuffer(after, np.int64)), overflow


def _last_accesses(
    vid: np.ndarray, instr: np.ndarray, queue: np.ndarray, count: int
) -> tuple[list[int], list[int]]:
    """Return, version by version, its last access from each queue, and where a version begins."""
    last = np.full(count * QUEUES, -1)
    last[vid * QUEUES + queue[instr]] = instr  # in program order: the last one stays
    accessed = np.flatnonzero(last >= 0)
    return (
        last[accessed].tolist(),
        np.searchsorted(accessed, np.arange(count + 1) * QUEUES).tolist(),
    )
