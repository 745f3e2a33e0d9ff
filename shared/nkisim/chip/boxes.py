"""What has been written of a memory, as rectangles: most writes are the next tile of a grid.

To mark every element of an output costs a good part of what it costs to write it. Here a write is
two or three numbers. What is no rectangle, or would be one of very many, is refused: then marks
have to do (`marks` makes them of what has been written so far).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

MOST = 64  # ranges of columns, and of rows for each, that are told apart

Box = tuple[int, int, int, int]  # first row, past the last one; first column, past the last


class Boxes:
    """Bytes that have been written of `size`, seen as a plane of rows of `width` bytes.

    Each range of columns has the rows in which all of it has been written: where a range of rows
    begins, where it ends, where the next one begins ... No byte is in two boxes. `left`: how many
    have not been written.
    """

    __slots__ = ("size", "width", "left", "_rows", "_apart")

    def __init__(self, size: int, width: int):
        self.size, self.width, self.left = size, width, size
        self._apart = True  # no range of columns overlaps another one
        self._rows: dict[tuple[int, int], list[int]] = {}

    def add(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> bool:
        """Note that all elements of an access pattern (bytes) are written; False: it is refused."""
        run = _run(shape, strides, itemsize)
        box = self._box(offset, shape[0], strides[0], run) if run else None
        if box is None:
            return False
        top, bottom, lo, hi = box
        rows = self._rows.get((lo, hi)) if self._apart else None
        if rows is None:
            inside = []
            for (a, b), rows in self._rows.items():
                if not (a < hi and lo < b) or (a, b) == (lo, hi):
                    continue
                common = _common(rows, top, bottom)
                if common and a <= lo and hi <= b and common == bottom - top:
                    return True  # nothing new
                if common and (a < lo or hi < b or rows[0] < top or bottom < rows[-1]):
                    return False
                if common:
                    inside.append((a, b))  # a part of what is written now
                else:
                    self._apart = False
            for a, b in inside:
                self.left += _length(self._rows.pop((a, b))) * (b - a)
            rows = self._rows.setdefault((lo, hi), [top, top])
        if rows[-1] == top:  # the next one down
            rows[-1] = bottom
            self.left -= (bottom - top) * (hi - lo)
        else:
            before = _length(rows)
            i, j = bisect_left(rows, top), bisect_right(rows, bottom)
            rows[i:j] = [top][i % 2 :] + [bottom][j % 2 :]  # what touches another joins it
            self.left -= (_length(rows) - before) * (hi - lo)
        return len(rows) <= 2 * MOST and len(self._rows) <= MOST

    def has(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> bool | None:
        """Return whether all elements of an access pattern have been written, None if that is
        unclear."""
        run = _run(shape, strides, itemsize)
        exact = run > 0
        if not exact and len(shape) > 1 and min(strides) >= 0:  # the hull of it
            run = itemsize + sum((n - 1) * s for n, s in zip(shape[1:], strides[1:]))
        box = self._box(offset, shape[0], strides[0], run) if run else None
        if box is None:
            return None
        top, bottom, lo, hi = box
        written = 0
        for (a, b), rows in self._rows.items():
            if a < hi and lo < b:
                written += _common(rows, top, bottom) * (min(b, hi) - max(a, lo))
        return True if written == (bottom - top) * (hi - lo) else False if exact else None

    def _box(self, offset: int, rows: int, stride: int, run: int) -> Box | None:
        """Return where so many runs of bytes lie, None if that is no rectangle of the plane."""
        width = self.width
        top, lo = divmod(offset, width)
        if rows > 1 and stride == width:
            return (top, top + rows, lo, lo + run) if lo + run <= width else None
        if rows > 1:
            if stride != run:
                return None
            run *= rows  # one behind the other
        if lo + run <= width:
            return top, top + 1, lo, lo + run
        return (top, top + run // width, 0, width) if lo == 0 and run % width == 0 else None

    def uniform(self, rows: int) -> bool:
        """Return whether so many rows are all alike."""
        return all(row == [0, rows] for row in self._rows.values())

    def marks(self, size: int, grain: int) -> np.ndarray:
        """Return whether they have been written, for every `grain` of the first `size` bytes."""
        plane = np.zeros((-(-size // self.width), self.width // grain), np.bool_)
        for (lo, hi), rows in self._rows.items():
            for top, bottom in zip(rows[::2], rows[1::2]):
                plane[top:bottom, lo // grain : hi // grain] = True
        return plane.reshape(-1)[: size // grain]


def width_of(size: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the width of the plane in which an access to so many bytes is a rectangle."""
    return strides[0] if len(shape) > 1 and 0 < strides[0] <= size else size


def _length(rows: list[int]) -> int:
    """Return how many rows there are in ranges of them."""
    return sum(rows[1::2]) - sum(rows[::2])


def _common(rows: list[int], top: int, bottom: int) -> int:
    """Return how many rows between `top` and `bottom` there are in ranges of them."""
    i, j = bisect_right(rows, top), bisect_left(rows, bottom)
    return _length([top][(i + 1) % 2 :] + rows[i:j] + [bottom][(j + 1) % 2 :])


def _run(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return how many bytes lie together for each index of the first dim; 0: they are strewn, or
    those of one index lie among those of another."""
    run = itemsize
    for n, stride in zip(shape[:0:-1], strides[:0:-1]):
        if n != 1:
            if stride != run:
                return 0
            run *= n
    return run if shape and (shape[0] == 1 or strides[0] >= run) else 0


__all__ = ["Boxes", "width_of"]
