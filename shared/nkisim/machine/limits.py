"""The sizes that a tensor on chip can have."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..chip.memory import PSUM, SBUF
from ..errors import fail
from ..indexing.index import addressed, as_int, whole
from .suggestions import no_bound, no_size, too_high

if TYPE_CHECKING:
    from .instruction import Instr


class ParDim(int):
    """What `nl.par_dim(n)` returns: the size of the partition dimension, marked."""

    def __new__(cls, n: Any) -> ParDim:
        size = whole(n, "a partition dimension")
        if size is None:
            raise fail("NKI-S06", "nl.par_dim takes an integer", given=f"{n!r}"[:60])
        return int.__new__(cls, size)


def sizes(shape: Any, what: str = "a tensor") -> tuple[int, ...]:
    """Return a shape as ints (`ParDim` marks kept), or raise."""
    if isinstance(shape, float) or as_int(shape) is not None:
        shape = (shape,)
    try:
        shape = tuple(shape)
    except TypeError:
        raise fail(
            "NKI-S06",
            f"{what} has no shape",
            given=f"shape {shape!r}"[:90],
            limit="a tuple of positive integers",
            hint="shape=(128, 512), or x.shape of another tensor",
        ) from None
    out = []
    for n in shape:
        size = n if isinstance(n, ParDim) else whole(n, f"a size of {what}")
        if size is None or size < 1:
            raise fail(
                "NKI-S06",
                f"{what} has a size that is not a positive integer",
                given=f"shape {shape!r}"[:90],
                hint=no_size(size),
            )
        out.append(size)
    return tuple(out)


def check_tile(
    hw: NeuronCore,
    memory: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    blocks: int = 0,
) -> None:
    """Raise if a tensor of `shape` (with `blocks` block dims) cannot be a tile of `memory`."""
    where = memory.upper()
    if not shape:
        raise fail(
            "NKI-P02",
            f"a tensor in {where} has no dimensions",
            given="shape ()",
            limit="a partition dim and at least one free dim",
            hint="use (1, 1) for one element",
        )
    if shape[blocks] > hw.pmax:
        raise fail(
            "NKI-P01",
            f"a tile of {shape[blocks]} partitions is larger than {where} has",
            given=f"shape {shape}: {shape[blocks]} partitions",
            limit=f"{hw.pmax} partitions",
            hint=f"loop over chunks of at most {hw.pmax} rows (nl.tile_size.pmax), or put "
            "more elements on the free dimension: reshape to "
            f"({hw.pmax}, n // {hw.pmax})" + too_high(),
        )
    if len(shape) - blocks < 2:
        raise fail(
            "NKI-P02",
            f"a tensor in {where} has too few dimensions",
            given=f"shape {shape}",
            limit="a partition dim and at least one free dim",
            hint=f"use ({shape[-1]}, 1) for one element a partition",
        )
    free = prod(shape[blocks + 1 :]) * dtype.itemsize
    limit = hw.psum_bytes if memory is PSUM else hw.sbuf_usable_bytes
    if free > limit:
        raise fail(
            "NKI-M04",
            f"a tile does not fit a partition of {where}",
            given=f"shape {shape} of {dtypes.name(dtype)}: {free} bytes per partition",
            limit=f"{limit} bytes per partition on {hw.name}",
            hint="split the free dimension into tiles and loop over them",
        )


def check_count(hw: NeuronCore, what: str, memory: str, shape: tuple[int, ...]) -> None:
    """Raise if an engine is given, or makes, more elements a partition than it takes.

    Views repeat what they read for nothing, so that no memory limits an operand.
    """
    most = {SBUF: hw.sbuf_operand_elements, PSUM: hw.psum_operand_elements}.get(memory)
    if most is not None and prod(shape[1:]) > most:
        raise fail(
            "NKI-P08",
            f"{what} has too many elements per partition",
            given=f"{prod(shape[1:])} (shape {shape})",
            limit=f"{most} in {memory.upper()} on {hw.name}, repeated ones counted",
            hint="split the free dim, and loop over its parts",
        )


def _distinct(t: Any) -> int:
    """Return the elements that a tensor reads or writes at most, what it repeats counted once."""
    many, reach = 1, 1
    for n, step in sorted(zip(t.shape, map(abs, t.strides)), key=lambda dim: dim[1]):
        if step:
            reach += (n - 1) * step // t.dtype.itemsize
            many = min(many * n, reach)
    return many


def check_transfer(hw: NeuronCore, api: str, ins: Instr, shapes: list[tuple[int, ...]]) -> None:
    """Raise if a DMA moves more elements than SBUF has, and each side repeats some (assumed).

    No document limits them. Each element of a copy, a broadcast, a gather or a scatter has a place
    of its own on one side at least; what repeats both sides moves the same bytes again.
    """
    moved = max(prod(shape) for shape in (*shapes, ins.grid or ins.shape))
    sides = (*ins.srcs, *(() if ins.dst is None else (ins.dst,)))
    most = max(hw.sbuf_total_bytes // ins.dtype.itemsize, *map(_distinct, sides))
    if moved > most:
        raise fail(
            "NKI-P08",
            f"{api}: a DMA repeats elements on both sides",
            given=f"{moved} elements",
            limit=f"{most}: as many as one of its tensors has, or SBUF",
            hint="repeat elements of the source only",
        )


def integer(value: Any, name: str) -> int:
    """Return a kernel's integer argument, or raise."""
    number = whole(value, name)
    if number is None:
        raise fail(
            "NKI-K05",
            f"{name} must be an integer",
            given=f"{type(value).__name__} {value!r}"[:60],
            hint=no_bound((value,)) or "use // instead of / so that sizes stay integers",
        )
    return addressed(number, name)
