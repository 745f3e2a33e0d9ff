"""Who waits for whom: data dependencies and reuse of memory, from a trace.

Two accesses conflict if they can touch the same byte: the boxes of their access patterns overlap,
and they are not interleaved slices of one tile. A tile that is overwritten as a whole begins a
new life ("version") in other memory, as the compiler renames it. Memory of versions is handed out
in program order, the longest free first, and what waits for memory waits for the last access of
the version that had it before: so buffering decides what overlaps.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from .hw import NeuronCore
from .memory import HBM, PSUM, SBUF, Storage
from .trace import Trace

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


@dataclass
class Dependencies:
    """What each instruction waits for."""

    kind: list[int]
    queue: list[int]
    preds: list[tuple[int, ...]]
    versions: Versions
    overflow: dict[str, int]    # memory -> bytes per partition beyond what there is


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


def analyse(trace: Trace, storages: list[Storage], hw: NeuronCore, queue_of: np.ndarray
            ) -> Dependencies:
    """Find what each instruction of a trace waits for; `queue_of` gives the queue of a kind."""
    n = len(trace)
    rows = np.frombuffer(trace.rows, dtype=np.int64)
    starts = np.frombuffer(trace.starts, dtype=np.int64)
    kinds = rows[starts]
    queue = queue_of[kinds]
    ev = _events(trace, storages, rows, starts, kinds)
    versions, vid = _versions(trace, storages, hw, ev, n)
    releases = _releases(vid, ev["instr"], queue, len(versions.storage))
    waits, overflow = _place(versions, releases, hw)
    preds = _conflicts(trace, ev, vid, kinds, queue.tolist(), waits, storages, n)
    return Dependencies(kinds.tolist(), queue.tolist(), preds, versions, overflow)


def _events(trace: Trace, storages: list[Storage], rows: np.ndarray, starts: np.ndarray,
            kinds: np.ndarray) -> dict[str, np.ndarray]:
    """Return all accesses as arrays, in program order, an instruction's reads first."""
    width = max((len(k.operands) for k in trace.kinds), default=0)
    shape = (len(trace.kinds), width)
    used, out, size = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, np.int64)
    for k, kind in enumerate(trace.kinds):
        partly = kind.accumulate or kind.row.merges
        for j, p in enumerate(kind.operands):
            used[k, j], out[k, j] = True, j < kind.outputs
            if j < kind.outputs and not partly and 0 not in p.strides and p.kind is not HBM:
                size[k, j] = p.nbytes
    skip = np.array([st.readonly for st in storages], bool)
    nbytes = np.array([-1 if st.arena or st.kind is HBM else st.nbytes for st in storages],
                      np.int64)
    parts = []
    for j in range(width):
        i = np.flatnonzero(used[kinds, j])
        at = starts[i] + 3 + 2 * j
        sid = rows[at]
        keep = ~skip[sid]
        i, at, sid = i[keep], at[keep], sid[keep]
        k = kinds[i]
        parts.append((i, out[k, j], sid, rows[at + 1], np.full(len(i), j),
                      size[k, j] == nbytes[sid]))
    cols = [np.concatenate(c) for c in zip(*parts)] if parts else [np.zeros(0, np.int64)] * 6
    order = np.argsort(cols[0] * 2 + cols[1], kind="stable")
    names = ("instr", "write", "storage", "offset", "operand", "whole")
    return {name: c[order] for name, c in zip(names, cols)}


def _versions(trace: Trace, storages: list[Storage], hw: NeuronCore, ev: dict[str, np.ndarray],
              n: int) -> tuple[Versions, np.ndarray]:
    """Number the lives of all tiles; return them and the version of each access."""
    sid = ev["storage"]
    order = np.argsort(sid, kind="stable")
    fresh = ev["whole"][order].copy()
    if len(order):
        fresh[0] = True
        fresh[1:] |= np.diff(sid[order]) != 0
    vid = np.empty(len(order), np.int64)
    vid[order] = np.cumsum(fresh) - 1
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(order)) - 1
    storage = sid[order][heads]
    bank = hw.psum_bank_bytes
    size = np.array([0 if st.arena or st.kind is HBM else
                     st.row_bytes if st.kind is SBUF else -(-st.row_bytes // bank) * bank
                     for st in storages], np.int64)
    psum = np.array([st.kind is PSUM for st in storages], bool)
    instr = ev["instr"][order]
    return Versions(storage, instr[heads], instr[tails], size[storage], psum[storage]), vid


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
    """Hand out memory in program order; return what each first access has to wait for."""
    waits: dict[int, list[int]] = {}
    overflow: dict[str, int] = {}
    for name, is_psum, capacity in (("sbuf", False, hw.sbuf_usable_bytes),
                                    ("psum", True, hw.psum_bytes)):
        mine = np.flatnonzero((v.psum == is_psum) & (v.bytes > 0))
        if int(v.bytes[mine].sum()) <= capacity:
            continue
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
                overflow[name] = max(overflow.get(name, 0), missing)
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
               queue: list[int], waits: dict[int, list[int]], storages: list[Storage], n: int
               ) -> list[tuple[int, ...]]:
    """Return the instructions that each one has to wait for.

    Per version and region (offset and pattern): [last writer, {queue: last reader}, regions that
    overlap]. Instructions of one queue run in order, so a write need not wait for its own
    queue's reads and writes, and a matmul not for the partial sums it adds to.
    """
    geo = _Geometry()
    pids = [[geo.id(p) for p in k.operands] for k in trace.kinds]
    shift = 1 << 20
    kind_of = kinds.tolist()
    adds = [k.accumulate for k in trace.kinds]
    written = np.zeros(len(storages), bool)
    read = np.zeros(len(storages), bool)
    written[ev["storage"][ev["write"]]] = True
    read[ev["storage"][~ev["write"]]] = True
    only_out = (written & ~read & np.array([st.kind is HBM for st in storages], bool)).tolist()
    tables: dict[int, dict[int, list]] = {}
    preds: list[Any] = [()] * n
    overlap = geo.overlap
    current, found = -1, set()                          # type: ignore[var-annotated]
    for i, w, s, off, j, v in zip(*(ev[c].tolist() for c in ("instr", "write", "storage",
                                                             "offset", "operand")),
                                  vid.tolist()):
        if i != current:
            if found:
                preds[current] = tuple(found)
            current, found = i, set(waits.get(i, ())) if waits else set()
            found.discard(i)
            q = queue[i]
            k = kind_of[i]
        pid = pids[k][j]
        key = off * shift + pid
        table = tables.get(v)
        if table is None:
            table = tables[v] = {}
        region = table.get(key)
        if region is None:
            region = [-1, None, []]
            if table and not only_out[s]:
                near = region[2]
                for other, r in table.items():
                    if overlap(other % shift, pid, off - other // shift):
                        near.append(r)
                        r[2].append(region)
            table[key] = region
        if w:
            dma = q >= LOADS
            p = region[0]
            if p >= 0 and (queue[p] != q or dma):
                found.add(p)
            readers = region[1]
            if readers:
                for rq, p in readers.items():
                    if rq != q or dma:
                        found.add(p)
                region[1] = None
            for r in region[2]:
                p = r[0]
                if p >= 0 and (queue[p] != q or dma):
                    found.add(p)
                if r[1]:
                    for rq, p in r[1].items():
                        if rq != q or dma:
                            found.add(p)
            region[0] = i
            found.discard(i)
        else:
            p = region[0]
            if p >= 0:
                found.add(p)
            for r in region[2]:
                if r[0] >= 0:
                    found.add(r[0])
            if region[1] is None:
                region[1] = {q: i}
            else:
                region[1][q] = i
    if found:
        preds[current] = tuple(found)
    return preds
