"""Tensor indirection (NeuronCore-v4): columns of a tile that a tile of offsets chooses.

The chip reads or writes them as a part of the instruction that names the view. Here each is an
instruction of its own around it: values are the same, and the time has a pass more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import fail
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas
from .dma import check_collisions
from .operands import UPDATE, Tile
from .table import GPSIMD, SCALAR, VECTOR, instruction
from .variants import Ops

_API = "Neuron SDK 2.32 API reference: nki.language.NkiTensor.indirect"


def offsets(index: np.ndarray, group: int, count: int, free: int) -> np.ndarray:
    """Return the offsets (P, count) of each partition, or raise NKI-I02 for one outside.

    A group of partitions shares its offsets: number i is at index[i % group, i // group] of it.
    """
    flat = index.reshape(index.shape[0] // group, group, -1).astype(np.int64)
    snake = flat.transpose(0, 2, 1).reshape(len(flat), -1)[:, :count]
    bad = (snake < 0) | (snake >= free)
    if bad.any():
        raise fail(
            "NKI-I02",
            "an offset of .indirect() leaves the tile",
            given=f"offset {snake[bad][0]}",
            limit=f"0 .. {free - 1} along the free dims",
        )
    return np.repeat(snake, group, axis=0)


def _run_gather(m: Machine, ins: Instr, dst: Tensor) -> None:
    data, index = (s.np for s in ins.srcs)
    flat = data.reshape(data.shape[0], -1)
    dst.np[...] = np.take_along_axis(
        flat, offsets(index, ins.params, dst.shape[1], flat.shape[1]), axis=1
    )


def _run_scatter(m: Machine, ins: Instr, dst: Tensor) -> None:
    value, index = (s.np for s in ins.srcs)
    value = value.reshape(value.shape[0], -1)
    whole = dst.np.reshape(dst.shape[0], -1)  # a copy, where the view has steps
    at = offsets(index, ins.params, value.shape[1], whole.shape[1])
    if m.settings.checks:
        rows = np.arange(len(at))[:, None] * whole.shape[1]
        check_collisions(m, (rows + at).ravel(), value.ravel(), False, ins.line)
    np.put_along_axis(whole, at, value, axis=1)
    dst.np[...] = whole.reshape(dst.np.shape)


_ROW: dict[str, Any] = dict(
    engines=(VECTOR, SCALAR, GPSIMD), cost=formulas.stream, needs="gen4_instructions", source=_API
)


@instruction(
    "indirect_gather",
    operands=(Tile("data"), Tile("index", dtypes="integer")),
    run=_run_gather,
    promotes=("data",),
    **_ROW,
)
def indirect_gather(m: Machine, data: Any, index: Any, count: int, group: int) -> Instr:
    """Read `count` columns of a tile; partitions in groups of `group` share their offsets."""
    return Instr((data.shape[0], count), params=group, variant=Ops("indirect"))


@instruction(
    "indirect_scatter",
    operands=(Tile("dst", UPDATE), Tile("value"), Tile("index", dtypes="integer")),
    run=_run_scatter,
    **_ROW,
)
def indirect_scatter(m: Machine, dst: Any, value: Any, index: Any, group: int) -> Instr:
    """Write the columns of `value` where offsets point; the others stay."""
    return Instr(params=group, variant=Ops("indirect"))
