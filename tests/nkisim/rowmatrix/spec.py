"""What the table cannot declare of a row: shapes, samples of its parameters, and its oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkisim.isa.operands import DTYPES, Operand
from nkisim.isa.table import ROWS
from oracle.common import FLOATS, INTS, is_float

from . import masks

GRIDS = {"2d": (6, 16), "3d": (6, 3, 8), "3d1": (6, 1, 16), "4d": (6, 2, 3, 4)}
TILE = "<a tile>"  # in a sample: this operand is a tile or vector, no number


def members(dtype_class: str) -> tuple[np.dtype, ...]:
    """Return the dtypes of a class that the table names, the usual one first."""
    # tfloat32 has no NumPy dtype that a kernel's argument could have
    return tuple(d for d in (*FLOATS, *INTS) if DTYPES[dtype_class][0](d))


@dataclass(frozen=True)
class Sample:
    """Arguments besides the tiles that are always there.

    `args`: numbers, names of operators, index expressions, or TILE for an operand that may be a
    tile. `fill`: what is in an operand (see data.fill). `only`: the dtypes of the tiles that it
    makes sense with: "float", "int", or a tuple of them. `psum`: operands may lie in PSUM.
    `dtypes`: of operands that do not go with the tiles.
    """

    args: dict[str, Any] = field(default_factory=dict)
    fill: dict[str, Any] = field(default_factory=dict)
    only: Any = None
    psum: bool = True
    dtypes: dict[str, Any] = field(default_factory=dict)

    def fits(self, dtype: np.dtype) -> bool:
        """Return whether the sample can be given with tiles of a dtype."""
        if self.only in ("float", "int"):
            return is_float(dtype) == (self.only == "float")
        return self.only is None or dtype in self.only


def sample(
    fill: dict | None = None,
    only: Any = None,
    psum: bool = True,
    dtypes: dict | None = None,
    **args: Any,
) -> Sample:
    return Sample(args, fill or {}, only, psum, dtypes or {})


def _same(grid: tuple[int, ...]) -> tuple[int, ...]:
    return grid


@dataclass(frozen=True)
class Spec:
    """How a row is tried.

    `shapes`: shapes of operands that are neither like the grid nor vectors. `domain`: the grid
    that a mask speaks about. `casts`: dtypes to give as dtype= (None: not given). `call`: turns the
    keyword arguments into what the public function takes, in the kernel.
    """

    row: str
    oracle: Callable
    samples: tuple[Sample, ...] = (Sample(),)
    grids: dict[str, tuple[int, ...]] = field(default_factory=lambda: GRIDS)
    masks: tuple[str, ...] = masks.EVERY
    shapes: dict[str, Callable] = field(default_factory=dict)
    takes: dict[str, tuple] = field(default_factory=dict)
    domain: Callable = _same
    casts: tuple = (None, "bfloat16", "float32", "int16")
    dtypes: tuple | None = None
    call: Callable | None = None
    public: str = ""
    variant: str = ""
    target: str = "trn1"
    step: int = 1
    no_cast: bool = False  # dst has the dtype of the case
    extra: tuple[Operand, ...] = ()  # tiles that an operand is subscripted with
    low: bool = True  # masks may leave out the first indices of a free dim

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Return the operands that the table declares for kernels, and those of subscripts."""
        row = ROWS[self.row]
        return (*(o for o in row.operands if o.name not in row.hidden), *self.extra)

    @property
    def result(self) -> tuple[str, ...]:
        """Return the memories of the tile that the function returns; none if it writes `dst`."""
        return () if any(o.name == "dst" for o in self.operands) else ROWS[self.row].writes

    @property
    def name(self) -> str:
        return f"{self.row}.{self.variant}" if self.variant else self.row
