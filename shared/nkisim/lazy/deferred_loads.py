"""Loads that are done when what they have loaded is looked at: mostly it never is.

What the kernel cannot write, its inputs, is as good where it lies: a product reads it from there
(`in_hbm`), and the tile never gets any bytes. That a load has written a tile is known at once. The
bytes come when they are first asked for (Storage.late); after that, loads are done at once.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..chip.memory import HBM, SBUF, free_range
from ..machine.instruction import PLAIN
from ..machine.tensor import Tensor, same_bytes
from .float32_copies import make

if TYPE_CHECKING:
    from ..machine.instruction import Instr

MOST = 256  # loads of a tile that wait


class Late(NamedTuple):
    """A load that has not been done: a part of a tile, and its values, of the same shape."""

    tile: Tensor
    src: Tensor

    def run(self) -> None:
        """Do it."""
        self.tile.to_write()
        np.copyto(self.tile.np, self.src.np)

    def meets(self, t: Tensor) -> bool:
        """Return whether a part of the same tile may have bytes in common with this one."""
        (p, lo, hi), (q, first, end) = _range(t), _range(self.tile)
        return p < q + self.tile.shape[0] and q < p + t.shape[0] and lo < end and first < hi

    def place(self, t: Tensor) -> Tensor | None:
        """Return where a part of the same tile lies in HBM; None if not all of it does."""
        tile, src, row = self.tile, self.src, t.storage.row_bytes
        p, rest = t.offset // row - tile.offset // row, t.offset % row - tile.offset % row
        if (
            p < 0
            or p + t.shape[0] > tile.shape[0]
            or rest < 0
            or not tile.strides[0] == t.strides[0] == row
        ):
            return None
        # the dims of the load, the widest first; of each, where the part begins, or ends
        dims = sorted(zip(tile.strides[1:], src.strides[1:], tile.shape[1:]), reverse=True)
        offset, at = src.offset + p * src.strides[0], []
        for wide, there, n in dims:
            k, rest = (0, rest) if n == 1 else divmod(rest, wide)
            at.append(k)
            offset += k * there
        strides = [src.strides[0]]
        for n, step in zip(t.shape[1:], t.strides[1:]):
            d = next(
                (
                    d
                    for d, (wide, _, many) in enumerate(dims)
                    if many > 1 and step >= wide and step % wide == 0
                ),
                None,
            )
            if d is None:
                if n > 1 and step:
                    return None
                strides.append(0)
                continue
            times = step // dims[d][0]
            at[d] += (n - 1) * times
            strides.append(times * dims[d][1])
        if rest or any(k >= n for k, (_, _, n) in zip(at, dims)):
            return None
        return Tensor(t.m, src.storage, offset, t.shape, tuple(strides), t.dtype, 0, HBM)


def moves(ins: Instr, dst: Tensor) -> bool:
    """Return whether a copy moves bytes to SBUF as they are, row by row."""
    return (
        ins.variant is PLAIN
        and len(ins.srcs) == 1
        and dst.memory is SBUF
        and same_bytes(ins.srcs[0], dst)
    )


def put_off(dst: Tensor, src: Tensor) -> bool:
    """Put a load of the same bytes off, or all iterations of one, if possible; return whether."""
    st = dst.storage
    if (
        not src.storage.readonly
        or not st.may_be_late
        or src.shape != dst.shape
        or src.oob is not None
        or dst.oob is not None
        or 0 in dst.strides
        or len(st.late) >= MOST
    ):
        return False
    held: Any = weakref.proxy(st)  # which keeps the load: else both would keep each other
    tile = Tensor(
        dst.m, held, dst.offset, dst.shape, dst.strides, dst.dtype, dst.nblock, dst.memory
    )
    st.late.append(Late(tile, src))
    return True


def in_hbm(
    t: Tensor, moves: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    """Return where an operand lies in all iterations of loops, and how far these move it: in HBM,
    if one load that has not been done has all of it."""
    every = make(t, moves, counts)
    for load in reversed(t.storage.late):
        if load.meets(every):
            there = load.place(every)
            if there is None:
                break
            n = 1 + len(counts)
            return there.like(
                there.offset, t.shape, (there.strides[0], *there.strides[n:]), 0, None
            ), there.strides[1:n]
    return t, moves


def _range(t: Tensor) -> tuple[int, int, int]:
    """Return the first partition of a part of a tile, and its range of bytes in each."""
    p, at = divmod(t.offset, t.storage.row_bytes)
    return p, *free_range(at, t.shape, t.strides, t.dtype.itemsize)


__all__ = ["in_hbm", "moves", "put_off"]
