"""Where sums lie to which products wait to be added, whether two have bytes in common, and whether
a sum is the first.
"""

from __future__ import annotations

from ..chip.memory import free_range
from ..machine.tensor import Tensor

#: the first partition, past the last one, and the same of the bytes in each
Box = tuple[int, int, int, int]


class Sums:
    """Boxes of sums, by storage: the one around them all, and each."""

    def __init__(self) -> None:
        self._boxes: dict[int, tuple[Box, list[Box]]] = {}

    def add(self, t: Tensor) -> None:
        """Note a sum."""
        box = box_of(t)
        if t.storage.id not in self._boxes:
            self._boxes[t.storage.id] = box, [box]
            return
        (p, q, lo, hi), boxes = self._boxes[t.storage.id]
        boxes.append(box)
        self._boxes[t.storage.id] = (
            (min(p, box[0]), max(q, box[1]), min(lo, box[2]), max(hi, box[3])),
            boxes,
        )

    def overlaps(self, t: Tensor) -> bool:
        """Return whether a tile has bytes in common with a sum."""
        around, boxes = self._boxes.get(t.storage.id, ((0, 0, 0, 0), []))
        box = box_of(t)
        return overlap(around, box) and any(overlap(one, box) for one in boxes)

    def clear(self) -> None:
        """Forget them all."""
        self._boxes.clear()


def box_of(t: Tensor) -> Box:
    """Return the box around a tile in SBUF or PSUM."""
    first, at = divmod(t.offset, t.storage.row_bytes)
    return first, first + t.shape[0], *free_range(at, t.shape, t.strides, t.dtype.itemsize)


def overlap(a: Box, b: Box) -> bool:
    """Return whether two boxes have something in common."""
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def replaces_zeros(dst: Tensor) -> bool:
    """Return whether a sum is the first that is written to zeros, and replaces all of them."""
    st = dst.storage
    if not st.untouched or dst.size * dst.dtype.itemsize != st.nbytes:
        return False
    st.fresh()
    return True


__all__ = ["Box", "Sums", "box_of", "overlap", "replaces_zeros"]
