"""Directly allocated tensors with block dims: each block has an address of its own."""

from __future__ import annotations

from typing import Any

from ..chip.memory import DirectBuffer
from ..errors import fail
from ..indexing.index import whole
from ..loops.loopindex import observed
from .tensor import Tensor


class BlockTensor(Tensor):
    """A directly allocated tensor with block dims: each block index has an address of its own."""

    __slots__ = ("blocks", "place", "serial")
    blocks: dict[tuple[int, ...], Tensor]  # the tiles, by block index
    place: tuple[DirectBuffer, int, str]  # where they go, line of creation, name
    serial: int

    def tile(self, idx: tuple[int, ...]) -> Tensor:
        """Return the tile of block index `idx` as a view of the arena."""
        t = self.blocks.get(idx)
        if t is None:
            t = self.blocks[idx] = self.m.place_tile(self, idx)
        return t

    def __getitem__(self, key: Any) -> Tensor:
        keys = key if issubclass(type(key), tuple) else (key,)
        # any address may lie behind an index: a loop's is looked at
        idx = tuple(whole(observed(k), "a block index") for k in keys[: self.nblock])
        if len(idx) < self.nblock or None in idx:
            raise fail(
                "NKI-A04",
                "a directly allocated tensor needs all its block indices",
                given=f"subscript {key!r}"[:80],
                limit=f"{self.nblock} integers for the block dims of shape {self.shape}",
                hint="loop over the blocks: t[i] or t[i, :, 0:512]",
            )
        for i, n in zip(idx, self.shape):
            if not 0 <= i < n:  # type: ignore[operator]
                raise fail(
                    "NKI-I01",
                    f"block index {i} is outside of the tensor",
                    given=f"index {i}",
                    limit=f"0 .. {n - 1} (shape {self.shape})",
                )
        t = self.tile(idx)  # type: ignore[arg-type]
        rest = keys[self.nblock :]
        return t[rest] if rest else t
