"""Where a view lies, and where it leaves its tensor.

A slice past the end is no error yet: a mask may cut it, and so may the next subscript. So each
view carries a `Beyond` for every dim of a tensor that it leaves, and whoever reads or writes the
view raises if one is left (`Machine.check_bounds`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..chip.memory import merge_dims
from ..errors import NkiError, fail
from ..machine import suggestions

#: One dim of a view in terms of the dims of a view of it: a constant, and {new dim: coefficient}.
Axis = tuple[int, dict[int, int]]


class Beyond(NamedTuple):
    """Dim `dim`, of `size` elements, is accessed at `const` + sum(coefficient * index).

    `coeffs` is {dim of the view: coefficient}.
    """

    dim: int
    size: int
    const: int
    coeffs: dict[int, int]

    def ends(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the least and the greatest element that a view of `shape` accesses."""
        lo = hi = self.const
        for d, c in self.coeffs.items():
            if c < 0:
                lo += c * (shape[d] - 1)
            else:
                hi += c * (shape[d] - 1)
        return lo, hi

    def inside(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return which elements of a view of `shape` are in the dim; it repeats over other dims."""
        at = np.full((1,) * len(shape), self.const)
        for d, c in self.coeffs.items():
            at = at + c * np.arange(shape[d]).reshape((-1,) + (1,) * (len(shape) - d - 1))
        return (at >= 0) & (at < self.size)

    def _mask(self, shape: tuple[int, ...]) -> str:
        """Return the mask that ends an access by a view of `shape` with the tensor, as Python."""
        steps = [d for d, c in self.coeffs.items() if c == 1]
        if len(steps) != 1 or len(shape) != 2:
            return f"index < {self.size}"
        axes = "[None, :]" if steps[0] else "[:, None]"
        return f"start + nl.arange({shape[steps[0]]}){axes} < {self.size}"

    def error(self, shape: tuple[int, ...]) -> NkiError:
        """Return the error of an access by a view of `shape`."""
        lo, hi = self.ends(shape)
        beyond = (
            "all of it lies beyond the end: which index goes with which dimension, and how far "
            "does the loop go?"
        )
        return fail(
            "NKI-I01",
            f"an access leaves the tensor in dimension {self.dim}",
            given=f"elements {lo} .. {hi}",
            limit=f"0 .. {self.size - 1}",
            hint=beyond
            if lo >= self.size > 1
            else f"if the last tile is partial, mask=({self._mask(shape)}) ends it with the "
            "tensor: a mask compares all of the index; otherwise check the loop bound",
            nki_hint=(
                "one row does not repeat by itself: load it into all partitions, "
                "nisa.dma_copy(dst=t, src=row.broadcast(0, n))"
                if self.dim == 0 and self.size == 1
                else beyond
                if lo >= self.size
                else "if the last tile is partial, end it with the tensor: "
                f"{suggestions.ended(self.dim, self.size)}; otherwise check the loop bound"
            ),
        )


Notes = list[Beyond] | None


#: Where a view lies: offset, shape and strides (bytes), block dims before the partitions, notes.
#: A plain tuple, because a view is made for every subscript that a kernel executes.
View = tuple[int, tuple[int, ...], tuple[int, ...], int, Notes]


class Strided(Protocol):
    """What can be viewed: a tensor, as far as its geometry goes; `memory` is its memory."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nblock: int
    oob: Notes
    memory: str


def leaving(notes: list[Beyond], shape: tuple[int, ...]) -> Notes:
    """Return the notes that a view of `shape` needs: None if it stays inside."""
    out = []
    for note in notes:
        lo, hi = note.ends(shape)
        if lo < 0 or hi >= note.size:
            out.append(note)
    return out or None


def carried(notes: Notes, axes: list[Axis]) -> list[Beyond]:
    """Return a view's notes in terms of a view of it, whose subscripts are `axes`."""
    out = []
    for dim, size, const, coeffs in notes or ():
        new: dict[int, int] = {}
        for d, c in coeffs.items():
            start, steps = axes[d]
            const += c * start
            for e, step in steps.items():
                new[e] = new.get(e, 0) + c * step
        out.append(Beyond(dim, size, const, new))
    return out


def moved(notes: Notes, shape: tuple[int, ...], first: int, by: int = 1) -> Notes:
    """Return the notes of a view with `by` dims inserted at `first`; dims of size 1 may repeat."""
    if notes is None:
        return None
    return carried(
        notes, [(0, {d + by if d >= first else d: 1} if n > 1 else {}) for d, n in enumerate(shape)]
    )


def reshaped(notes: Notes, old: tuple[int, ...], new: tuple[int, ...]) -> Notes:
    """Return the notes of a view of shape `old` seen as `new`; raise where that cannot be said."""
    if notes is None:
        return None
    out = []
    for note in notes:
        # an element's place in a dim regroups as its address does: as strides
        steps = merge_dims(old, tuple(note.coeffs.get(d, 0) for d in range(len(old))), new)
        if steps is None:
            raise note.error(old)
        out.append(note._replace(coeffs={d: c for d, c in enumerate(steps) if new[d] > 1 and c}))
    return out
