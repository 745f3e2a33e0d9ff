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
from dataclasses import dataclass
from typing import Any

import numpy as np

from .hw import NeuronCore
from .memory import HBM, PSUM, free_extent
from .trace import Storages, Trace

# queues: what takes instructions in order. Stores are triggered by a queue of their own, so that
# one that waits for its data does not hold up the loads behind it.
PE, DVE, ACT, POOL, LOADS, STORES = range(6)
QUEUES = 6


@dataclass
class Versions:
    """The lives of tiles, as arrays: one element per version."""

    storage: np.ndarray
    first: np.ndarray           # instruction of the first and last access
    last: np.ndarray
    bytes: np.ndarray           # per partition (PSUM: whole banks); 0 for what is not placed here
    psum: np.ndarray            # bool
    resident: np.ndarray        # bytes per partition that it takes, wherever it lies


@dataclass
class Dependencies:
    """What each instruction waits for."""

    kind: list[int]
    queue: list[int]
    before: np.ndarray          # pairs: instruction before[x] has to be done ...
    after: np.ndarray           # ... for after[x], in program order of the latter
    versions: Versions
    overflow: dict[str, int]    # memory -> bytes per partition beyond what there is
    psum_use: dict[int, list[int]]      # instruction -> versions in PSUM that it accesses


class _Stores:
    """The storages of a run as arrays."""

    def __init__(self, storages: Storages):
        code, self.nparts, self.row_bytes, _, _, flags = \
            np.frombuffer(storages.data, np.int64).reshape(-1, 6).T
        self.hbm = code == storages._CODE[HBM]
        self.psum = code == storages._CODE[PSUM]
        self.arena = (flags & 1) > 0
        self.readonly = (flags & 2) > 0


class _Geometry:
    """Overlap of access patterns, remembered by pair and distance."""

    def __init__(self) -> None:
        self.ids: dict[tuple, int] = {}
        self.dims: list[tuple[tuple[int, ...], tuple[int, ...], int]] = []
        self._known: dict[tuple, bool] = {}

    def id(self, p: Any) -> int:
        """Return the id of a pattern's shape, strides and item size."""
        dims = tuple((n, abs(s)) for n, s in zip(p.shape, p.strides) if n > 1)
        item = p.dtype.itemsize
        dims = tuple(sorted(dims, key=lambda d: -d[1]))
        while dims and dims[-1][1] == item:             # contiguous dims are one wide element
            item *= dims[-1][0]
            dims = dims[:-1]
        reach: dict[int, int] = {}                      # dims of one stride are one longer dim
        for n, stride in dims:
            reach[stride] = reach.get(stride, 1) + n - 1
        dims = tuple((n, stride) for stride, n in reach.items())
        key = (dims, item)
        got = self.ids.get(key)
        if got is None:
            got = self.ids[key] = len(self.dims)
            self.dims.append((tuple(n for n, _ in dims), tuple(s for _, s in dims), item))
        return got

    def overlap(self, a: int, b: int, distance: int) -> bool:
        """Tell whether pattern `a`, and `b` that starts `distance` bytes later, share a byte."""
        key = (a, b, distance)
        got = self._known.get(key)
        if got is None:
            got = self._known[key] = self._compute(a, b, distance)
        return got

    def _compute(self, a: int, b: int, distance: int) -> bool:
        na, sa, wa = self.dims[a]
        nb, sb, wb = self.dims[b]
        strides = sorted({*sa, *sb}, reverse=True)
        return _meet(distance, strides, dict(zip(sa, na)), dict(zip(sb, nb)), wa, wb, 0)


def _meet(d: int, strides: list[int], na: dict, nb: dict, wa: int, wb: int, at: int) -> bool:
    """Is there i < na, j < nb per stride with an element of b on one of a?

    b - a = d + sum (j - i) * stride must lie in (-wb, wa). Strides are tried from the largest;
    the smaller ones bound what a larger one may leave over.
    """
    rest_lo = sum((1 - na.get(s, 1)) * s for s in strides[at:])
    rest_hi = sum((nb.get(s, 1) - 1) * s for s in strides[at:])
    if d + rest_lo >= wa or d + rest_hi <= -wb:
        return False
    if at == len(strides):
        return True
    s = strides[at]
    if s == 0:
        return _meet(d, strides, na, nb, wa, wb, at + 1)
    lo, hi = 1 - na.get(s, 1), nb.get(s, 1) - 1
    inner_lo, inner_hi = rest_lo - lo * s, rest_hi - hi * s
    # d + k * s + [inner_lo, inner_hi] must reach (-wb, wa)
    k_lo = max(lo, -((d + inner_hi + wb - 1) // s))
    k_hi = min(hi, (wa - 1 - d - inner_lo) // s)
    if k_hi - k_lo > 64:
        return True                                     # too many to try: assume they meet
    return any(_meet(d + k * s, strides, na, nb, wa, wb, at + 1) for k in range(k_lo, k_hi + 1))


def analyse(trace: Trace, storages: Storages, hw: NeuronCore, queue_of: np.ndarray
            ) -> Dependencies:
    """Find what each instruction of a trace waits for; `queue_of` gives the queue of a kind."""
    rows = np.frombuffer(trace.rows, dtype=np.int64)
    starts = np.frombuffer(trace.starts, dtype=np.int64)
    kinds = rows[starts]
    queue = queue_of[kinds]
    stores = _Stores(storages)
    ev = _events(trace, stores, rows, starts, kinds)
    versions, vid = _versions(stores, hw, ev)
    releases = _releases(vid, ev["instr"], queue, len(versions.storage))
    waits, overflow = _place(versions, releases, hw)
    before, after = _conflicts(trace, ev, vid, kinds, queue.tolist(), waits, stores)
    psum_use: dict[int, list[int]] = {}
    mine = (versions.psum & (versions.bytes > 0))[vid]
    for i, v in zip(ev["instr"][mine].tolist(), vid[mine].tolist()):
        psum_use.setdefault(i, []).append(v)
    return Dependencies(kinds.tolist(), queue.tolist(), before, after, versions, overflow,
                        psum_use)


def _events(trace: Trace, stores: _Stores, rows: np.ndarray, starts: np.ndarray,
            kinds: np.ndarray) -> dict[str, np.ndarray]:
    """Return all accesses as arrays, in program order, an instruction's reads first.

    `lo`, `hi` are the bytes of a partition that are touched; `solid` says that all of them are
    written, in how many partitions.
    """
    width = max((len(k.operands) for k in trace.kinds), default=0)
    shape = (len(trace.kinds), width)
    used, out = np.zeros(shape, bool), np.zeros(shape, bool)
    extent, solid = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for k, kind in enumerate(trace.kinds):
        partly = kind.accumulate or kind.row.merges
        for j, p in enumerate(kind.operands):
            used[k, j], out[k, j] = True, j < kind.outputs
            if p.kind is HBM:
                extent[k, j] = p.span()
                continue
            extent[k, j] = free_extent(p.shape, p.strides, p.dtype.itemsize)
            if j < kind.outputs and not partly and 0 not in p.strides \
                    and extent[k, j] * p.shape[0] == p.nbytes:
                solid[k, j] = p.shape[0]
    skip, row = stores.readonly, stores.row_bytes
    parts = []
    for j in range(width):
        i = np.flatnonzero(used[kinds, j])
        at = starts[i] + 3 + 2 * j
        sid = rows[at]
        keep = ~skip[sid]
        i, at, sid = i[keep], at[keep], sid[keep]
        k, off = kinds[i], rows[at + 1]
        lo = off % row[sid]
        parts.append((i, out[k, j], sid, off, np.full(len(i), j), lo, lo + extent[k, j],
                      solid[k, j]))
    cols = [np.concatenate(c) for c in zip(*parts)] if parts else [np.zeros(0, np.int64)] * 8
    order = np.argsort(cols[0] * 2 + cols[1], kind="stable")
    names = ("instr", "write", "storage", "offset", "operand", "lo", "hi", "solid")
    return {name: c[order] for name, c in zip(names, cols)}


def _tiles(stores: _Stores, ev: dict[str, np.ndarray]
           ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut storages into tiles: ranges of bytes of which no access touches two.

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


def _versions(stores: _Stores, hw: NeuronCore, ev: dict[str, np.ndarray]
              ) -> tuple[Versions, np.ndarray]:
    """Number the lives of all tiles; return them and the version of each access."""
    tile, lo, hi = _tiles(stores, ev)
    nparts = np.where(stores.arena, -1, stores.nparts)
    renewed = ev["write"].astype(bool) & (ev["solid"] == nparts[ev["storage"]]) \
        & (ev["hi"] - ev["lo"] == (hi - lo)[tile])
    order = np.argsort(tile, kind="stable")
    fresh = renewed[order].copy()
    if len(order):
        fresh[0] = True
        fresh[1:] |= np.diff(tile[order]) != 0
    vid = np.empty(len(order), np.int64)
    vid[order] = np.cumsum(fresh) - 1
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(order))[:len(heads)] - 1
    storage = ev["storage"][order][heads]
    placed = ~stores.hbm & ~stores.arena
    psum = stores.psum[storage]
    size = (hi - lo)[tile[order][heads]]
    bank = hw.psum_bank_bytes
    size = np.where(psum, -(-size // bank) * bank, size) * placed[storage]
    instr = ev["instr"][order]
    resident = size
    if len(heads):
        arena = stores.arena[storage]
        used = np.maximum.reduceat(ev["hi"][order], heads) \
            - np.minimum.reduceat(ev["lo"][order], heads)
        resident = np.where(arena, used, size)
    return Versions(storage, instr[heads], instr[tails], size, psum, resident), vid


def _releases(vid: np.ndarray, instr: np.ndarray, queue: np.ndarray, count: int
              ) -> list[tuple[int, ...]]:
    """Return, for each version, its last access from each queue."""
    key = vid * QUEUES + queue[instr]
    order = np.argsort(key, kind="stable")              # events are in program order
    sorted_key = key[order]
    last = np.flatnonzero(np.append(np.diff(sorted_key) != 0, True)) if len(order) else order
    owners = (sorted_key[last] // QUEUES).tolist()
    who = instr[order[last]].tolist()
    out: list[list[int]] = [[] for _ in range(count)]
    for v, i in zip(owners, who):
        out[v].append(i)
    return [tuple(x) for x in out]


def _place(v: Versions, releases: list[tuple[int, ...]], hw: NeuronCore
           ) -> tuple[dict[int, list[int]], dict[str, int]]:
    """Hand out SBUF in program order; return what each first access has to wait for."""
    waits: dict[int, list[int]] = {}
    overflow: dict[str, int] = {}
    capacity = hw.sbuf_usable_bytes
    mine = np.flatnonzero(~v.psum & (v.bytes > 0))
    if int(v.bytes[mine].sum()) > capacity:
        births = mine[np.argsort(v.first[mine], kind="stable")]
        deaths = mine[np.argsort(v.last[mine], kind="stable")]
        sizes, last = v.bytes.tolist(), v.last.tolist()
        chunks: deque[list] = deque([[capacity, ()]])
        free, missing, dead, dying = capacity, 0, 0, deaths.tolist()
        for b, first in zip(births.tolist(), v.first[births].tolist()):
            while last[dying[dead]] < first:
                w = dying[dead]
                dead += 1
                back = sizes[w]
                if missing:                             # what never fitted is paid back first
                    used = min(missing, back)
                    missing, back = missing - used, back - used
                if back:
                    chunks.append([back, releases[w]])
                    free += back
            need = sizes[b]
            if need > free:
                missing += need - free
                overflow["sbuf"] = max(overflow.get("sbuf", 0), missing)
                need = free
            free -= need
            wait: list[int] = []
            while need:
                chunk = chunks[0]
                wait.extend(chunk[1])
                if chunk[0] > need:
                    chunk[0] -= need
                    need = 0
                else:
                    need -= chunk[0]
                    chunks.popleft()
            if wait:
                waits.setdefault(first, []).extend(wait)
    return waits, overflow


def _conflicts(trace: Trace, ev: dict[str, np.ndarray], vid: np.ndarray, kinds: np.ndarray,
               queue: list[int], waits: dict[int, list[int]], stores: _Stores
               ) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (earlier, later) of instructions of which the later has to wait.

    Per version and region (offset and pattern): [last writer, {queue: last reader}, regions that
    overlap, its first access]. A matmul need not wait for the partial sums that its own engine
    adds to. Pairs may repeat.
    """
    geo = _Geometry()
    width = max((len(k.operands) for k in trace.kinds), default=1)
    pids = np.zeros((max(1, len(trace.kinds)), width), np.int64)
    for k, kind in enumerate(trace.kinds):
        pids[k, :len(kind.operands)] = [geo.id(p) for p in kind.operands]
    instr, kind_of = ev["instr"], kinds[ev["instr"]]
    keys = ev["offset"] * _SHIFT + pids[kind_of, ev["operand"]]
    adds = np.array([k.accumulate for k in trace.kinds] or [False])[kind_of] & ev["write"]
    read = np.zeros(len(stores.hbm), bool)
    read[ev["storage"][~ev["write"]]] = True
    only_out = (stores.hbm & ~read)[ev["storage"]]      # outputs: only the same region matters
    regions = _Regions(geo, ev, keys, only_out, np.maximum(2048, stores.row_bytes // 256))
    tables: list[Any] = [None] * (int(vid.max(initial=-1)) + 1)
    before, after = array("q"), array("q")
    first, second = before.append, after.append
    region: Any
    queues = np.array(queue, np.int64)[instr] if len(instr) else instr
    for e, (i, w, key, q, v, own) in enumerate(zip(
            instr.tolist(), ev["write"].tolist(), keys.tolist(), queues.tolist(), vid.tolist(),
            adds.tolist())):
        table = tables[v]
        if table is None:
            region = [-1, None, (), e]
            tables[v] = {key: region}
        else:
            region = table.get(key)
            if region is None:
                region = [-1, None, [], e]
                regions.add(v, table, key, region)
        p = region[0]
        if not w:
            if p >= 0:
                first(p)
                second(i)
            for r in region[2]:
                if r[0] >= 0:
                    first(r[0])
                    second(i)
            if region[1] is None:
                region[1] = {q: i}
            else:
                region[1][q] = i
            continue
        if p >= 0 and p != i and not (own and queue[p] == q):
            first(p)
            second(i)
        if region[1]:
            for p in region[1].values():
                if p != i:
                    first(p)
                    second(i)
            region[1] = None
        for r in region[2]:
            p = r[0]
            if p >= 0 and p != i and not (own and queue[p] == q):
                first(p)
                second(i)
            if r[1]:
                for p in r[1].values():
                    if p != i:
                        first(p)
                        second(i)
        region[0] = i
    for i, earlier in waits.items():
        for p in set(earlier):
            if p != i:
                first(p)
                second(i)
    return np.frombuffer(before, np.int64), np.frombuffer(after, np.int64)


_SHIFT = 1 << 20


class _Regions:
    """The regions of versions, found by the blocks of bytes that they touch."""

    def __init__(self, geo: _Geometry, ev: dict[str, np.ndarray], keys: np.ndarray,
                 only_out: np.ndarray, grain: np.ndarray):
        self.geo, self.ev, self.keys, self.only_out = geo, ev, keys, only_out
        self.grain = grain
        self.index: dict[int, dict[int, list]] = {}

    def _blocks(self, e: int) -> range | tuple[int]:
        """Return the blocks that access `e` touches; (-1,) if they are many."""
        grain = int(self.grain[self.ev["storage"][e]])
        lo, hi = int(self.ev["lo"][e]) // grain, (int(self.ev["hi"][e]) - 1) // grain
        return range(lo, hi + 1) if hi - lo < 16 else (-1,)

    def add(self, v: int, table: dict[int, list], key: int, region: list) -> None:
        """Add a region to the table of version `v` and link it with those that overlap."""
        e = region[3]
        if not self.only_out[e]:
            index = self.index.get(v)
            if index is None:                           # there is one region so far
                (other, old), = table.items()
                index = self.index[v] = {b: [(other, old)] for b in self._blocks(old[3])}
            mine = self._blocks(e)
            if mine[0] < 0:                             # too wide for the index: look at all
                close = list(table.items())
            elif len(mine) == 1:
                close = [*index.get(mine[0], ()), *index.get(-1, ())]
            else:
                close = list({o: (o, r) for b in (*mine, -1) for o, r in index.get(b, ())}.values())
            offset, pid = key // _SHIFT, key % _SHIFT
            for other, r in close:
                if self.geo.overlap(other % _SHIFT, pid, offset - other // _SHIFT):
                    region[2].append(r)
                    r[2] = [*r[2], region]
            for b in mine:
                index.setdefault(b, []).append((key, region))
        table[key] = region
