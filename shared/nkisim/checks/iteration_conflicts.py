"""Where two iterations of a loop meet: accesses to bytes that another iteration wrote.

Works on all accesses of a run at once, as arrays. An access belongs to a region: an access pattern
at an offset in a storage. What is asked is, for each access, the last write to its own region, and
to each region that shares a byte with it, by another iteration of an affine loop (or instance of a
grid). A write that a later one has replaced does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import numpy as np

from ..trace.geometry import Geometry, Regions, ranges, touched
from ..trace.trace import Operands, OpSpec, Trace

INDEPENDENT = ("affine_range", "grid")
_CHECKS = 64  # pairs of two source lines that are looked at for one that counts


class Conflict(NamedTuple):
    """An access, and an earlier write by another iteration to some of the same bytes."""

    access: int  # numbers of operands, in trace.operands()
    write: int
    loop: int  # they are in two iterations of it
    same: bool  # the same region, not just one that overlaps


def _vague(spec: OpSpec, number: int) -> bool:
    """Return whether data or a mask decide which elements of its pattern an operand touches."""
    return _by_index(spec, number) or spec.masked or spec.indirect and spec.engine != "dma"


def _by_index(spec: OpSpec, number: int) -> bool:
    """Return whether run-time indices choose what an operand of a DMA touches."""
    return spec.scatters and number == 0 or number >= len(spec.operands) - spec.chosen


class Nodes:
    """The loop iterations of a run as arrays: parent, loop and depth of each."""

    def __init__(self, trace: Trace):
        self.parent, self.loop = np.array(trace.node_parent), np.array(trace.node_loop)
        independent = np.array([k in INDEPENDENT for k in trace.loop_kind] or [False])
        self.independent = independent[self.loop] & (self.loop >= 0)
        self.depth = np.zeros(len(self.parent), np.int64)
        at = self.parent.copy()
        while (at >= 0).any():  # a level of the tree at a time
            self.depth += at >= 0
            at = np.where(at >= 0, self.parent[at], -1)
        # the innermost iteration of an independent loop that a node lies in, or 0: what happens
        # in one of them happens in order
        self.owner = np.arange(len(self.parent))
        while len(up := np.flatnonzero(~self.independent[self.owner] & (self.owner > 0))):
            self.owner[up] = self.parent[self.owner[up]]

    def below(self, node: np.ndarray, home: np.ndarray) -> np.ndarray:
        """Return the ancestor of each node that is a child of its `home`; -1 if there is none."""
        at = node.copy()
        deep = np.flatnonzero(self.depth[at] > self.depth[home] + 1)
        while len(deep):
            at[deep] = self.parent[at[deep]]
            deep = deep[self.depth[at[deep]] > self.depth[home[deep]] + 1]
        return np.where((at > 0) & (self.parent[at] == home), at, -1)

    def inside(self, node: np.ndarray, loop: int) -> np.ndarray:
        """Return which nodes are an iteration of a loop, or lie in one: array of bool."""
        at, inside = node.copy(), np.zeros(len(node), bool)
        while (at >= 0).any():
            inside |= (at >= 0) & (self.loop[at] == loop)
            at = np.where(at >= 0, self.parent[at], -1)
        return inside

    def first_two(self, met: Conflict, nodes: np.ndarray, trace: Trace) -> str:
        """Return in words which iterations of a loop the two accesses of a meeting are in."""
        later, earlier = (self._iteration(int(n), met.loop, trace) for n in nodes)
        word = "iteration" if trace.loop_kind[met.loop] == "affine_range" else "number"
        return f"{word} {later} after {earlier}"

    def _iteration(self, node: int, loop: int, trace: Trace) -> int:
        while self.loop[node] != loop:
            node = int(self.parent[node])
        return trace.node_iter[node]

    def meet(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the independent loop that two nodes are iterations of; -1 if there is none."""
        a, b = a.copy(), b.copy()
        for x, y in ((a, b), (b, a)):
            deep = np.flatnonzero(self.depth[x] > self.depth[y])
            while len(deep):
                x[deep] = self.parent[x[deep]]
                deep = deep[self.depth[x[deep]] > self.depth[y[deep]]]
        apart = np.flatnonzero((a != b) & (self.parent[a] != self.parent[b]))
        while len(apart):
            a[apart], b[apart] = self.parent[a[apart]], self.parent[b[apart]]
            apart = apart[self.parent[a[apart]] != self.parent[b[apart]]]
        independent = (a != b) & (self.loop[a] == self.loop[b]) & self.independent[a]
        return np.where(independent, self.loop[a], -1)


class _Accesses:
    """The accesses that can meet, sorted by region and then by time."""

    def __init__(
        self, trace: Trace, accesses: Operands, node: np.ndarray, homes: np.ndarray, nodes: Nodes
    ):
        self.nodes, home = nodes, homes[accesses.storage]
        inner = np.flatnonzero((home >= 0) & (home != node))  # not what is an iteration's own
        child = nodes.below(node[inner], home[inner])
        stage = np.where(child >= 0, nodes.loop[child], -1)  # a loop right below the home
        # in an independent loop below the storage's home that writes it
        keep = (stage >= 0) & (nodes.depth[nodes.owner[node[inner]]] > nodes.depth[home[inner]])
        inner, stage = inner[keep], stage[keep]
        place = accesses.storage[inner] * (len(trace.loop_kind) + 1) + stage
        places, which = np.unique(place, return_inverse=True)
        written = np.bincount(which, accesses.write[inner], len(places)) > 0
        inner, which = inner[written[which]], which[written[which]]

        operand_specs = trace.operand_specs()
        self.geometry = Geometry()
        pattern = np.array([self.geometry.id(p) for _, _, p in operand_specs], np.int64)
        # that the rows differ which two iterations choose is a promise that is believed
        ordered = [k.accumulate or k.inplace or k.adds or k.scatters for k, _, _ in operand_specs]
        update = np.array(
            [u if n < k.outputs else k.inplace for u, (k, n, _) in zip(ordered, operand_specs)],
            bool,
        )
        vague = np.array([_vague(k, n) for k, n, _ in operand_specs], bool)
        by_index = np.array([_by_index(k, n) for k, n, _ in operand_specs], bool)
        operand, lowest = accesses.operand_spec[inner], accesses.lowest[inner]
        time = accesses.instr[inner] * 2 + accesses.write[inner]  # an instruction reads first
        order = np.lexsort((time, pattern[operand], lowest, which))
        self.number, operand, self.time = inner[order], operand[order], time[order]
        self.write, self.update, self.vague = (
            accesses.write[self.number],
            update[operand],
            vague[operand],
        )
        self.by_index = by_index[operand]
        self.node = node[self.number]
        self.owner = nodes.owner[self.node]
        key = np.stack([which[order], lowest[order], pattern[operand]])
        fresh = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))[: len(order)]
        self.region = np.cumsum(fresh) - 1
        heads = np.flatnonzero(fresh)
        self.begin = np.append(heads, len(order))
        self.regions = Regions(key[0, heads], key[1, heads], key[2, heads], self.geometry)
        self.written = np.bincount(self.region, self.write, len(heads)) > 0
        self._runs()

    def _runs(self) -> None:
        """Find runs of writes to a region by one owner."""
        self.at = np.flatnonzero(self.write)  # writes, as places among accesses
        region, owner = self.region[self.at], self.owner[self.at]
        self.span = int(self.time.max(initial=0)) + 2
        self.when = region * self.span + self.time[self.at]
        count = np.arange(len(self.at))
        fresh = np.ones(len(self.at), bool)
        fresh[1:] = (np.diff(region) != 0) | (np.diff(owner) != 0)
        self.run = np.maximum.accumulate(np.where(fresh, count, 0))
        plain = np.maximum.accumulate(np.where(self.update[self.at], -1, count))
        # the last write of the run up to here that is no update, or -1
        self.plain = np.where(plain >= self.run, plain, -1)
        # the write that a chain of updates up to here began with: what it left is in the sum still
        fresh[1:] = np.diff(region) != 0
        self.head = (
            np.maximum.accumulate(np.where(fresh | ~self.update[self.at], count, 0))
            if len(count)
            else count
        )

    def last(self, region: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return the last write to regions before times, as an index into `at`, or -1."""
        k = np.searchsorted(self.when, region * self.span + time) - 1
        same_region = (k >= 0) & (self.region[self.at[np.maximum(k, 0)]] == region)
        return np.where(same_region, k, -1)

    def foreign(self, k: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """Return the last write up to write `k` by another owner that is not replaced, or -1.

        An owner's updates leave in place what they add to; its other writes replace it.
        """
        before = self.run[k] - 1  # the end of the run before
        same = (before >= 0) & (self.region[self.at[before]] == self.region[self.at[k]])
        before_own = np.where((self.plain[k] >= 0) | ~same, -1, before)
        return np.where(k < 0, -1, np.where(self.owner[self.at[k]] == owner, before_own, k))


def conflicts(
    trace: Trace,
    accesses: Operands,
    line: np.ndarray,
    node: np.ndarray,
    homes: np.ndarray,
    nodes: Nodes,
) -> Iterator[Conflict]:
    """Yield, in program order, one meeting of each pair of source lines and storage.

    `line`, `node`: of each instruction; `homes`: the node that each storage was made in, whose
    iterations each have their own, or -1 for storages that are of no interest.
    """
    acc = _Accesses(trace, accesses, node[accesses.instr], homes, nodes)
    if not len(acc.at):
        return
    links = _Links(acc)
    tries: dict[tuple, int] = {}
    for x, w, loop in _candidates(acc, links):
        first, second = int(acc.number[x]), int(acc.number[w])
        key = (
            int(accesses.storage[first]),
            int(line[accesses.instr[first]]),
            int(line[accesses.instr[second]]),
            bool(acc.write[x]),
        )
        if tries.get(key, 0) >= _CHECKS:
            continue
        later = acc.number[
            _writes_between(acc, x, w, np.append(links.of(acc.region[x]), acc.region[x]))
        ]
        if len(later) and not _left(trace, accesses, first, second, later.tolist()):
            tries[key] = tries.get(key, 0) + 1
            continue
        tries[key] = _CHECKS  # one of each is enough
        yield Conflict(first, second, loop, bool(acc.region[x] == acc.region[w]))


class _Links:
    """The regions that share a byte with each region."""

    def __init__(self, acc: _Accesses):
        a, b = acc.regions.overlapping(acc.written)
        order = np.lexsort((b, a))
        self.other = b[order]
        self.begin = np.searchsorted(a[order], np.arange(len(acc.begin)))
        self.count = np.diff(self.begin)

    def of(self, region: int) -> np.ndarray:
        return self.other[self.begin[region] : self.begin[region + 1]]


def _candidates(acc: _Accesses, links: _Links) -> Iterator[tuple[int, int, int]]:
    """Yield (access, write, loop) in program order: the last write by another iteration to each
    region that an access touches, itself and those linked to it, and what its sum began with."""
    access = np.flatnonzero(~acc.update)
    partly = access[~acc.vague[access] & (links.count[acc.region[access]] > 0)]
    count = links.count[acc.region[partly]]
    region = np.append(
        acc.region[access], links.other[ranges(links.begin[acc.region[partly]], count)]
    )
    access = np.append(access, np.repeat(partly, count))
    last = acc.last(region, acc.time[access])
    head = np.where(last < 0, -1, acc.head[last] if len(acc.head) else -1)
    added = np.where((head >= 0) & (head < last), head + 1, -1)  # the first update of a chain
    k = np.concatenate([acc.foreign(last, acc.owner[access]), head, added])
    access = np.tile(access, 3)
    access, k = access[k >= 0], k[k >= 0]
    write = acc.at[k]
    loop = acc.nodes.meet(acc.node[access], acc.node[write])
    # that indices of two iterations choose other rows is a promise that is believed
    apart = acc.by_index[write] & acc.by_index[access]
    certain = (acc.region[write] == acc.region[access]) & ~apart | ~acc.vague[write]
    keep = np.flatnonzero((loop >= 0) & certain)
    keep = keep[np.lexsort((acc.time[write[keep]], acc.number[access[keep]]))]
    yield from zip(access[keep].tolist(), write[keep].tolist(), loop[keep].tolist())


def carried_tiles(
    accesses: Operands, line: np.ndarray, node: np.ndarray, homes: np.ndarray, nodes: Nodes
) -> Iterator[tuple[int, int]]:
    """Yield (access, loop) of reads of a tile that another iteration has made, one of each
    line and loop: a Python variable has carried it over. Arguments as for `meetings`."""
    node, home = node[accesses.instr], homes[accesses.storage]
    read = np.flatnonzero((home > 0) & (home != node) & ~accesses.write)
    loop = nodes.meet(node[read], home[read])
    access, loop = read[loop >= 0], loop[loop >= 0]
    lines = np.stack([line[accesses.instr[access]], loop])
    for i in sorted(np.unique(lines, axis=1, return_index=True)[1].tolist()):
        yield int(access[i]), int(loop[i])


def _writes_between(acc: _Accesses, x: int, w: int, regions: np.ndarray) -> np.ndarray:
    """Return the writes to regions between write `w` and access `x` that are no updates."""
    k = acc.last(regions, np.full(len(regions), acc.time[x]))
    plain = np.where(k >= 0, acc.plain[k], -1)
    at = acc.at[plain[plain >= 0]]
    return at[acc.time[at] > acc.time[w]]


def _left(trace: Trace, accesses: Operands, access: int, write: int, later: list[int]) -> bool:
    """Return whether an access sees a byte of a write that later writes have left."""
    own, *others = shared_bytes(trace, accesses, (access, write, *later))
    seen = np.isin(own, others[0])
    for other in others[1:]:
        seen &= ~np.isin(own, other)
    return bool(seen.any())


def shared_bytes(trace: Trace, accesses: Operands, numbers: tuple[int, ...]) -> list[np.ndarray]:
    """Return where the bytes of some operands lie, all in the same unit."""
    operand_specs = trace.operand_specs()
    places = [
        (operand_specs[accesses.operand_spec[i]][2], int(accesses.lowest[i])) for i in numbers
    ]
    grain = gcd(*(n for p, at in places for n in (p.dtype.itemsize, at, *p.strides)))
    return [touched(p, at, grain) for p, at in places]
