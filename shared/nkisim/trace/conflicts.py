"""Which instructions have to wait for which, because they touch the same bytes.

Works on all accesses of a run at once, as arrays. An access belongs to a region: an access pattern
at an offset in one version of a tile. Accesses to one region conflict; accesses to two regions of
a version do if the regions share a byte, which is found out once for each pair of regions.
"""

from __future__ import annotations

import numpy as np

from .geometry import Geometry, ranges
from .trace import Trace

_SHIFT = 1 << 20  # patterns there may be
_CHUNK = 1 << 20  # pairs of regions looked at together


def pairs(
    trace: Trace,
    ev: dict[str, np.ndarray],
    vid: np.ndarray,
    specs: np.ndarray,
    queue: np.ndarray,
    apart: np.ndarray,
    whole: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (earlier, later) of instructions where the later has to wait.

    `ev`: accesses in program order, `vid`: the version of each, `specs` and `queue`: of each
    instruction, `apart`: accesses that matter only to the very same region,
    `whole`: accesses to all bytes of their version.
    A read waits for the last write, and of a sum for each part; a write for the last write and for
    the reads since, of other regions queue by queue for the last one. A matmul need not wait for
    the partial sums that its own engine adds to.
    """
    instr, write = ev["instr"], ev["write"]
    if not len(instr):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    geo = Geometry()
    pattern = np.array([geo.id(p) for _, _, p in trace.operand_specs()])
    keys = ev["offset"] * _SHIFT + pattern[ev["operand_spec"]]
    adds = np.array([k.accumulate for k in trace.op_specs])[specs[instr]] & write
    order = np.lexsort((keys, vid))  # region by region, in program order
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(keys[order]) != 0) | (np.diff(vid[order]) != 0)
    region = np.cumsum(fresh) - 1  # of the accesses in this order
    heads = order[fresh]  # the first access to each region
    acc = _Accesses(
        instr[order],
        write[order],
        adds[order],
        queue[instr[order]],
        order,
        region,
        np.flatnonzero(fresh),
    )
    written = np.bincount(region, acc.write, len(heads)) > 0
    conflicts = [acc.within()]
    shared = heads[~apart[heads]]
    if len(shared) and np.bincount(vid[shared]).max() > 1:
        conflicts += acc.across(
            *_links(geo, ev, vid, keys, heads, written & ~apart[heads], ~apart[heads], whole[heads])
        )
    before, after = (np.concatenate(arrays) for arrays in zip(*conflicts))
    keep = before != after
    return before[keep], after[keep]


class _Accesses:
    """Accesses, region by region and in program order within each."""

    def __init__(
        self,
        instr: np.ndarray,
        write: np.ndarray,
        adds: np.ndarray,
        queue: np.ndarray,
        when: np.ndarray,
        region: np.ndarray,
        begin: np.ndarray,
    ):
        self.instr, self.write, self.adds, self.queue = instr, write, adds, queue
        self.when, self.region, self.begin = when, region, begin

    def _own(self, last: np.ndarray, e: np.ndarray) -> np.ndarray:
        """Return whether accesses `e` add to what their own engine wrote last."""
        return self.adds[e] & (self.queue[last] == self.queue[e])

    def _sums(self) -> np.ndarray:
        """Return of each access the first part of the sum that the last write up to it belongs
        to."""
        at = np.arange(len(self.instr))
        last = np.full(len(at), -1)
        last[1:] = np.maximum.accumulate(np.where(self.write, at, -1))[:-1]
        last[last < self.begin[self.region]] = -1
        adds = (last >= 0) & self.write
        adds[adds] = self._own(last[adds], at[adds])
        return np.maximum.accumulate(np.where(self.write & ~adds, at, -1))

    def within(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs that conflict in one region."""
        n = len(self.instr)
        at = np.arange(n)
        last = np.full(n, -1)  # the last write before each access
        last[1:] = np.maximum.accumulate(np.where(self.write, at, -1))[:-1]
        last[last < self.begin[self.region]] = -1
        conflicting = last >= 0
        accumulates = np.zeros(n, bool)
        accumulates[conflicting] = self._own(last[conflicting], at[conflicting])
        conflicting &= ~accumulates
        conflicts = [(last[conflicting], at[conflicting])]
        # partial sums that are not the last: who ends their chain waits for all of them
        ends = np.minimum.accumulate(np.where(accumulates, n, at)[::-1])[::-1]
        ends = np.append(ends[1:], n)  # the first to come that does not add
        part = np.flatnonzero(self.write & np.append(accumulates[1:], False) & (ends < n))
        part = part[self.region[ends[part]] == self.region[part]]
        step = np.cumsum(self.write)  # of a read: the write that follows, +1
        writes = np.flatnonzero(self.write)
        until = np.append(writes, n)[step[ends[part]]]  # all that read the sum, not the first alone
        until = np.minimum(until, np.append(self.begin, n)[self.region[part] + 1])
        readers = np.where(self.write[ends[part]], 1, np.maximum(until - ends[part], 1))
        conflicts.append((np.repeat(part, readers), ranges(ends[part], readers)))
        # all reads between two writes: an engine that chooses among some may do an earlier one last
        reads = np.flatnonzero(~self.write)
        reads = reads[step[reads] < len(writes)]
        reads = reads[self.region[writes[step[reads]]] == self.region[reads]]
        conflicts.append((reads, writes[step[reads]]))
        before, after = (np.concatenate(arrays) for arrays in zip(*conflicts))
        return self.instr[before], self.instr[after]

    def across(self, a: np.ndarray, b: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the pairs of accesses to regions `a` and accesses to regions `b` before."""
        if not len(a):
            return []
        count = np.diff(np.append(self.begin, len(self.instr)))
        e = ranges(self.begin[a], count[a])  # every access to a ...
        other = np.repeat(b, count[a])  # ... with the region it meets
        span = len(self.instr) + 1  # before which access to b would each be?
        at = np.searchsorted(self.region * span + self.when, other * span + self.when[e])
        begin = self.begin[other]
        last = self._last(self.write, at, begin)
        conflicting = np.flatnonzero(last >= 0)
        conflicting = conflicting[~self._own(last[conflicting], e[conflicting])]
        out = [(self.instr[last[conflicting]], self.instr[e[conflicting]])]
        first = self._sums()[last[conflicting]]  # of a sum every part
        parts = ranges(first, last[conflicting] - first)
        after, writes = np.repeat(e[conflicting], last[conflicting] - first), self.write[parts]
        out.append((self.instr[parts[writes]], self.instr[after[writes]]))
        writes = self.write[e]
        e, at, begin, last = e[writes], at[writes], begin[writes], last[writes]
        since = np.where(last >= 0, self.when[last], -1)
        for q in np.unique(self.queue[~self.write]).tolist():
            read = self._last(~self.write & (self.queue == q), at, begin)
            conflicting = (read >= 0) & (self.when[read] > since)
            out.append((self.instr[read[conflicting]], self.instr[e[conflicting]]))
        return out

    @staticmethod
    def _last(which: np.ndarray, at: np.ndarray, begin: np.ndarray) -> np.ndarray:
        """Return the last of some accesses from `begin` on and before `at`, or -1."""
        last = np.maximum.accumulate(np.append(-1, np.where(which, np.arange(len(which)), -1)))[at]
        return np.where(last >= begin, last, -1)


def _links(
    geo: Geometry,
    ev: dict[str, np.ndarray],
    vid: np.ndarray,
    keys: np.ndarray,
    heads: np.ndarray,
    written: np.ndarray,
    wanted: np.ndarray,
    whole: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of regions that share a byte, at least one of them written.

    Each pair is there both ways. What is `whole` covers its version. Regions are sorted by version
    and first byte, so that what may overlap one is a range behind it.
    """
    regions = np.flatnonzero(wanted)
    v, lo, hi = vid[heads[regions]], ev["lo"][heads[regions]], ev["hi"][heads[regions]]
    span = int(hi.max()) + 1
    order = np.argsort(v * span + lo, kind="stable")
    regions, begin, end = regions[order], (v * span + lo)[order], (v * span + hi)[order]
    count = np.searchsorted(begin, end) - np.arange(len(regions)) - 1
    links: list[tuple[np.ndarray, np.ndarray]] = []
    cuts = np.searchsorted(np.cumsum(count), np.arange(0, int(count.sum()), _CHUNK), "right")
    for first, past in zip(cuts, np.append(cuts[1:], len(regions))):
        chunk = np.arange(first, past)
        a = np.repeat(chunk, count[chunk])
        b = ranges(chunk + 1, count[chunk])
        a, b = regions[a], regions[b]
        keep = written[a] | written[b]
        a, b = a[keep], b[keep]
        meet = whole[a] | whole[b]
        rest = np.flatnonzero(~meet)
        ka, kb = keys[heads[a[rest]]], keys[heads[b[rest]]]
        meet[rest] = geo.overlaps(ka % _SHIFT, kb % _SHIFT, kb // _SHIFT - ka // _SHIFT)
        links += [(a[meet], b[meet]), (b[meet], a[meet])]
    if not links:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return (np.concatenate([a for a, _ in links]), np.concatenate([b for _, b in links]))
