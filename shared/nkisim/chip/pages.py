"""Memory for storages, which is used again when it is no longer looked at.

A kernel makes thousands of tiles of the same few sizes. Memory that comes from the operating system
anew each time costs a page fault for every 4 KB that is touched: more than what is computed there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

SMALLEST = 1 << 16  # bytes: what is smaller, the allocator of the C library keeps for itself
MOST = 256 << 20  # bytes that are kept while a kernel runs: a bound on what is dead
IDLE = 32 << 20  # bytes that are kept from one run to the next, about an SBUF


class _Block:
    """A piece of memory; `interface` is what NumPy asks of it, which takes long to make."""

    __slots__ = ("memory", "interface", "size")

    def __init__(self, memory: np.ndarray):
        self.memory, self.size = memory, memory.size
        self.interface: dict[str, Any] = memory.__array_interface__


class _FreeBlocks(threading.local):
    """Blocks of memory that are free, by their size; each thread has its own."""

    def __init__(self) -> None:
        self.blocks: OrderedDict[int, list[_Block]] = OrderedDict()
        self.bytes = 0
        self.most = IDLE

    def take(self, size: int) -> _Block | None:
        """Return a block of so many bytes, None if there is none."""
        try:
            block = self.blocks[size].pop()
        except (KeyError, IndexError):
            return None
        self.bytes -= size
        return block

    def give(self, block: _Block) -> None:
        """Keep a block; what is too much goes, of sizes that were not seen for long first.

        It may be called at any point of these methods: by the garbage collector.
        """
        size = block.size
        self.blocks.setdefault(size, []).append(block)
        self.blocks.move_to_end(size)
        self.bytes += size
        if self.bytes > self.most:
            self.shrink()

    def shrink(self) -> None:
        """Let go of what is too much."""
        while self.bytes > self.most and self.blocks:
            oldest = next(iter(self.blocks))
            if self.take(oldest) is None:
                self.blocks.pop(oldest, None)


_kept = _FreeBlocks()


@contextmanager
def busy() -> Iterator[None]:
    """Keep more memory meanwhile: a kernel runs, which will need again what it lets go of."""
    before, _kept.most = _kept.most, MOST
    try:
        yield
    finally:
        _kept.most = before
        _kept.shrink()


def keep_on() -> None:
    """Keep that much between runs as well: for a process, or a thread, that does nothing else."""
    _kept.most = MOST


class _Lease:
    """What arrays over a block refer to: as long as there is one, or a view of one, it lives."""

    __slots__ = ("block", "__array_interface__")

    def __init__(self, block: _Block):
        self.block = block
        self.__array_interface__ = block.interface

    def __del__(self, kept: _FreeBlocks = _kept) -> None:
        kept.give(self.block)


def _pooled(size: int) -> bool:
    return SMALLEST <= size <= MOST


def room(size: int) -> np.ndarray:
    """Return a flat uint8 array of so many bytes, which hold anything."""
    if not _pooled(size):
        return np.empty(size, np.uint8)
    return np.asarray(_Lease(_kept.take(size) or _Block(np.empty(size, np.uint8))))


def filled(size: int, byte: int) -> np.ndarray:
    """Return a flat uint8 array of so many bytes, all of one value."""
    block = _kept.take(size) if _pooled(size) else None
    if block is not None:
        block.memory.fill(byte)
        return np.asarray(_Lease(block))
    # pages of the operating system are zero
    made = np.full(size, byte, np.uint8) if byte else np.zeros(size, np.uint8)
    return np.asarray(_Lease(_Block(made))) if _pooled(size) else made


__all__ = ["busy", "filled", "keep_on", "room"]
