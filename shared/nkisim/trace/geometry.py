"""Which bytes access patterns touch, and which of them share one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_CHUNK = 1 << 20  # pairs of regions that are looked at together
_TRIED = 65  # so many steps of a stride are tried one by one


class Geometry:
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
        while dims and dims[-1][1] == item:  # contiguous dims are one wide element
            item *= dims[-1][0]
            dims = dims[:-1]
        reach: dict[int, int] = {}  # dims of one stride are one longer dim
        for n, stride in dims:
            reach[stride] = reach.get(stride, 1) + n - 1
        dims = tuple((n, stride) for stride, n in reach.items())
        key = (dims, item)
        pattern = self.ids.get(key)
        if pattern is None:
            pattern = self.ids[key] = len(self.dims)
            self.dims.append((tuple(n for n, _ in dims), tuple(s for _, s in dims), item))
        return pattern

    def overlap(self, a: int, b: int, distance: int) -> bool:
        """Return whether pattern `a`, and `b` that starts `distance` bytes later, share a byte."""
        key = (a, b, distance)
        shared = self._known.get(key)
        if shared is None:
            shared = self._known[key] = bool(self._meet(*np.array([[a], [b], [distance]]))[0])
        return shared

    def overlaps(self, a: np.ndarray, b: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """Return `overlap` (bool) for arrays of patterns and distances."""
        size = len(self.dims)
        shapes, shape = np.unique(a * size + b, return_inverse=True)
        apart, gap = np.unique(distance, return_inverse=True)
        cases, which = np.unique(shape * len(apart) + gap, return_inverse=True)
        shape = shapes[cases // len(apart)]
        return self._meet(shape // size, shape % size, apart[cases % len(apart)])[which]

    def _meet(self, a: np.ndarray, b: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return whether there is i < na, j < nb per stride with an element of b on one of a.

        b - a = d + sum (j - i) * stride must lie in (-wb, wa). Strides are tried from the largest;
        the smaller ones bound what a larger one may leave over.
        """
        dims = [dict(zip(strides, sizes)) for sizes, strides, _ in self.dims]
        items = np.array([item for _, _, item in self.dims])
        levels = []  # stride, steps backwards and forwards, what smaller ones add
        lo = hi = 0 * d
        for s in sorted({s for p in np.unique((a, b)).tolist() for s in dims[p] if s}):
            steps = np.array([of_strides.get(s, 1) - 1 for of_strides in dims])
            back, ahead = -steps[a], steps[b]
            levels.append((s, back, ahead, lo, hi))
            lo, hi = lo + back * s, hi + ahead * s
        meets, case = np.zeros(len(d), bool), np.arange(len(d))
        wa, wb = items[a], items[b]
        for s, back, ahead, lo, hi in reversed(levels):
            # d + k * s + [lo, hi] must reach (-wb, wa)
            low, high = lo[case], hi[case]
            first = np.maximum(back[case], -((d + high + wb[case] - 1) // s))
            count = np.minimum(ahead[case], (wa[case] - 1 - d - low) // s) - first + 1
            # too many to try: assume they meet; where nothing is smaller, each of these does
            meets[case[count > np.where(low == high, 0, _TRIED)]] = True
            undecided = (count > 0) & ~meets[case]
            count = count[undecided]
            case, d = (
                np.repeat(case[undecided], count),
                np.repeat(d[undecided], count) + s * ranges(first[undecided], count),
            )
        meets[case[(d > -wb[case]) & (d < wa[case])]] = True
        return meets


def touched(p: Any, lowest: int, grain: int = 1) -> np.ndarray:
    """Return the places of all bytes of an access whose lowest byte is given.

    `grain`: in units of so many bytes, which must divide what there is.
    """
    at = lowest // grain + np.arange(p.dtype.itemsize // grain)
    for n, stride in zip(p.shape, p.strides):
        at = (np.arange(n)[:, None] * (abs(stride) // grain) + at).reshape(-1)
    return at


def ranges(begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return begin[0], begin[0] + 1 ... (count[0] of them), begin[1] ... as one array."""
    ends = np.cumsum(count)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begin - ends + count, count)


class Regions:
    """Access patterns at places: arrays of stage (regions of two stages never meet), lowest byte
    and id of the pattern in a Geometry."""

    def __init__(
        self, stage: np.ndarray, lowest: np.ndarray, pattern: np.ndarray, geometry: Geometry
    ):
        self.stage, self.lowest, self.pattern = stage, lowest, pattern
        self.geometry = geometry

    def overlapping(self, written: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of regions that share a byte, at least one of them `written`.

        Each pair is there both ways. Few regions of a kernel overlap, and most cannot: seen in
        the digits of their addresses they are boxes that lie side by side (`_boxes`).
        """
        overlaps: list[tuple[np.ndarray, np.ndarray]] = []
        for regions in self._of_same_patterns():
            lo, hi = self._boxes(regions)
            group = np.unique(self.stage[regions], return_inverse=True)[1]
            for first, past in zip(lo, hi):
                group = _clusters(group, first, past)
            size, written_there = np.bincount(group), np.bincount(group, written[regions]) > 0
            close = np.flatnonzero((size > 1)[group] & written_there[group])
            for a, b in _pairs(group[close], lo[:, close], hi[:, close]):
                a, b = regions[close[a]], regions[close[b]]
                keep = written[a] | written[b]
                a, b = a[keep], b[keep]
                meet = self.geometry.overlaps(
                    self.pattern[a], self.pattern[b], self.lowest[b] - self.lowest[a]
                )
                overlaps += [(a[meet], b[meet]), (b[meet], a[meet])]
        if not overlaps:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return (np.concatenate([a for a, _ in overlaps]), np.concatenate([b for _, b in overlaps]))

    def _of_same_patterns(self) -> list[np.ndarray]:
        """Return the regions of stages with the same patterns, one array for all such stages."""
        several = np.bincount(self.stage)[self.stage] > 1
        size = len(self.geometry.dims)
        pairs = np.unique(self.stage[several] * size + self.pattern[several])
        stages = pairs // size
        cuts = np.flatnonzero(np.append(True, np.diff(stages) != 0)) if len(pairs) else pairs
        patterns, classes = (pairs % size).tolist(), np.full(int(self.stage.max(initial=0)) + 1, -1)
        numbers: dict[tuple, int] = {}
        for first, past in zip(cuts.tolist(), [*cuts[1:].tolist(), len(pairs)]):
            classes[stages[first]] = numbers.setdefault(tuple(patterns[first:past]), len(numbers))
        which = np.where(several, classes[self.stage], -1)
        return [np.flatnonzero(which == c) for c in range(len(numbers))]

    def _boxes(self, regions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return first and past last digit of regions, by digit and region.

        The strides of the patterns are the weights of the digits, the largest first: an address
        is sum(digit * stride) + byte. A pattern is a box of digits, unless a digit carries over:
        then all that are below get their whole range. So regions that share a byte have boxes
        that overlap.
        """
        dims = [dict(zip(strides, sizes)) for sizes, strides, _ in self.geometry.dims]
        items = np.array([item for _, _, item in self.geometry.dims], np.int64)
        pattern = self.pattern[regions]
        weights = sorted({s for p in np.unique(pattern) for s in dims[p] if s}, reverse=True)
        steps = [np.array([d.get(s, 1) - 1 for d in dims], np.int64) for s in weights]
        below = items + sum((n * s for n, s in zip(steps, weights)), start=0 * items)
        rest, wide, top = self.lowest[regions], np.zeros(len(regions), bool), 0
        lo, hi = [], []
        for s, n in zip(weights, steps):
            below = below - n * s  # bytes that the smaller digits reach
            first, rest = rest // s, rest % s
            last = first + n[pattern] + (rest + below[pattern] - 1) // s
            lo.append(np.where(wide, 0, first))
            hi.append(np.where(wide, -(-top // s), last + 1))
            wide, top = wide | (rest + below[pattern] > s), s
        lo.append(np.where(wide, 0, rest))
        hi.append(np.where(wide, top, rest + items[pattern]))
        return np.array(lo), np.array(hi)


def _clusters(group: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """Split groups of intervals where there is a gap; return the new group of each."""
    span = int(hi.max(initial=0)) + 1
    order = np.argsort(group * span + lo, kind="stable")
    begin = (group * span + lo)[order]
    reach = np.maximum.accumulate((group * span + hi)[order])
    out = np.empty(len(order), np.int64)
    out[order] = np.cumsum(np.append(True, begin[1:] >= reach[:-1])[: len(order)]) - 1
    return out


def _pairs(
    group: np.ndarray, lo: np.ndarray, hi: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the pairs of boxes of one group that overlap in every digit, some at a time."""
    best: tuple = ()
    for low, high in zip(lo, hi):  # the digit in which the fewest do
        span = int(high.max(initial=0)) + 1
        order = np.argsort(group * span + low, kind="stable")
        begin, end = (group * span + low)[order], (group * span + high)[order]
        count = np.searchsorted(begin, end) - np.arange(len(order)) - 1
        if not best or count.sum() < best[0].sum():
            best = count, order
    count, order = best
    cuts = np.searchsorted(np.cumsum(count), np.arange(0, int(count.sum()), _CHUNK), "right")
    for first, past in zip(cuts, np.append(cuts[1:], len(order))):
        chunk = np.arange(first, past)
        a, b = order[np.repeat(chunk, count[chunk])], order[ranges(chunk + 1, count[chunk])]
        meet = ((lo[:, a] < hi[:, b]) & (lo[:, b] < hi[:, a])).all(axis=0)
        yield a[meet], b[meet]
