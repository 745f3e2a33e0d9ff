"""An instruction on its way through the machine."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..chip.memory import SBUF
from .tensor import Tensor

NO_EXTRA: tuple = ()


class Instr:
    """One planned instruction: its row, sources, result shape, and what the run needs."""

    __slots__ = ("row", "srcs", "dst", "also", "shape", "dtype", "kind", "engine", "params",
                 "box", "mask", "line", "accumulate", "inplace", "extra")

    def __init__(self, srcs: tuple[Tensor, ...], shape: tuple[int, ...], dtype: np.dtype, *,
                 kind: str = SBUF, dst: Any = None, also: tuple[Tensor, ...] = (),
                 engine: str = "", params: Any = None, extra: tuple = NO_EXTRA):
        self.row: Any = None
        self.srcs, self.shape, self.dtype, self.kind = srcs, shape, dtype, kind
        self.dst = dst              # written explicitly; None: a result tile
        self.also = also            # further tiles written (reduce_res, dst_idx)
        self.engine = engine
        self.params = params        # what `run` needs besides the operands
        self.extra = extra          # what the cost depends on besides the operands
        self.box: list[tuple[int, int]] | None = None
        self.mask: np.ndarray | None = None
        self.line = -1
        self.accumulate = False     # matmul flag: add to what PSUM holds
        self.inplace = False        # written as dst += ...: order does not matter
