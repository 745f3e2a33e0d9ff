"""An instruction on its way through the machine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..chip import dtypes
from ..chip.memory import PSUM, SBUF
from .tensor import Tensor

#: what a dim of a result is: a dim of the grid, some of them flattened, or none of them
Kept = int | slice | None


class Plain(NamedTuple):
    """The variant of an instruction whose cost depends on its operands alone.

    A variant is what a cost formula has to know besides the operands, with a name for each part;
    rows that need one define their own.
    """


class Access(NamedTuple):
    """The variant of a copy: does it go where run-time indices point, and does it add there?

    `run`: elements that lie side by side where the indices point; a row has as many pieces as it
    takes of them. `shape`: of what moves, where no operand is it: indices choose both sides, or a
    number is written. `descriptors`: who makes them, if the kernel says so: "static" (the host,
    before it runs), "gpsimd", or the hardware: "hwdge", "scalar" or "sync" by trigger engine.
    """

    indirect: bool = False
    scatter: bool = False  # it is the destination that run-time indices choose
    adds: bool = False  # read-modify-write
    chosen: int = 0  # sources at the end, whose parts run-time indices choose
    run: int = 0
    shape: tuple[int, ...] = ()
    descriptors: str = ""


PLAIN = Plain()


class Instr:
    """One planned instruction: what a row's plan says, and what the machine makes of it.

    A plan leaves out what its row declares: operands, the shape of the first one, the dtype. What
    few instructions have is of the class until one has it: making one is in the hot path.
    """

    row: Any = None
    srcs: Any = None  # tiles that are read, in the order of the operands of the row
    also: tuple[Tensor, ...] = ()  # further tiles written (reduce_res, dst_idx)
    box: list[tuple[int, int]] | None = None  # of the result, after a mask
    mask: np.ndarray | None = None  # elements of the result that count
    over: np.ndarray | None = None  # elements of the grid that count
    line = -1
    accumulate = False  # matmul flag: add to what PSUM holds
    opens = False  # the first product of a sum, which overwrites what is there
    inplace = False  # written as dst += ...: order does not matter
    asked = False  # the kernel has said its dtype, by dtype=
    skips = False  # run-time indices may leave elements of the result unwritten
    wrote: np.ndarray | None = None  # then, after the run: the others; None: all
    dst: Any = None  # written explicitly; None: a result tile
    grid: tuple[int, ...] | None = None  # what a mask ranges over; None: the result
    kept: tuple[Kept, ...] | None = None  # of each dim of the result
    #: what instructions have in common that differ at most in places and strides of operands and in
    #: what a result is written to; None: unknown
    like: Any = None
    seen: tuple[tuple, int] | None = None  # what was recorded last, and the id of its op spec

    def __init__(
        self,
        shape: tuple[int, ...] | None = None,
        dtype: np.dtype | None = None,
        *,
        srcs: tuple[Tensor, ...] | None = None,
        dst: Any = None,
        memory: str = "",
        engine: str = "",
        params: Any = None,
        variant: Any = PLAIN,
        grid: tuple[int, ...] | None = None,
        kept: tuple[Kept, ...] | None = None,
    ):
        self.shape: Any = shape
        self.dtype: Any = dtype
        self.srcs = srcs
        self.dst = dst
        self.memory = memory or SBUF  # memory of a result tile
        self.engine = engine
        self.params = params  # what `run` needs besides the operands
        self.variant = variant  # what the cost depends on besides the operands
        #: operands that may be numbers: the number, or the place of the tile in `srcs`
        self.scalars: list[tuple[Any, int]] = []
        self.grid, self.kept = grid, kept

    def pattern(self) -> Instr:
        """Return the instruction without its operands, before any mask; all such are alike.

        It has as its own what else is the class's: Python finds that sooner.
        """
        new = Instr.__new__(Instr)
        new.accumulate = new.opens = new.inplace = False
        new.box = new.mask = new.dst = None
        new.also = ()
        new.row, new.shape, new.dtype, new.memory = self.row, self.shape, self.dtype, self.memory
        new.engine, new.params, new.variant = self.engine, self.params, self.variant
        new.scalars, new.like = self.scalars, self.like
        return new

    def can_write(self, memory: str) -> bool:
        """Return whether the result can go to a memory without a copy; GpSimd has no PSUM port."""
        return memory in self.row.writes and not (memory is PSUM and self.engine == "gpsimd")

    def rounds(self, dtype: np.dtype) -> bool:
        """Return whether the dtype that it is asked for loses what a tile of `dtype` would keep."""
        return self.asked and self.dtype != dtype and self.dtype != dtypes.FLOAT32

    @property
    def scatters(self) -> bool:
        """Return whether run-time indices choose what is written."""
        return self.variant.__class__ is Access and self.variant.scatter

    def scalar(self, k: int, rank: int) -> Any:
        """Return operand `k` of those that may be numbers, at run time.

        A number, or the float32 values of a tile (P, 1), shaped to repeat along `rank` - 1 free
        dims.
        """
        number, at = self.scalars[k]
        if at < 0:
            return number
        a = dtypes.as_float32(self.srcs[at].np)
        return a.reshape((a.shape[0],) + (1,) * (rank - 1))
