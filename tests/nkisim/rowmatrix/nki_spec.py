"""How a row of the package nki is tried: operands, samples of its arguments, its oracle.

This dialect has no masks: views take their place. A cell is (row, dtype, rank, view); memories and
the dtype of the destination go round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracle.common import BF16, FP16, FP32

GRIDS = {"2d": (32, 12), "3d": (64, 3, 8), "4d": (16, 2, 3, 4)}
ON_CHIP = ("sbuf", "psum")
TILE = "<a tile>"
#: what an operand is a view of: name -> (shape of the storage, the view of it)
VIEWS: dict[str, tuple[Callable, Callable]] = {
    "whole": (lambda s: s, lambda t, s: t),
    "cut": (lambda s: (*s[:-1], s[-1] + 3), lambda t, s: t[..., 2 : 2 + s[-1]]),
    "steps": (lambda s: (*s[:-1], 2 * s[-1]), lambda t, s: t[..., 0 : 2 * s[-1] : 2]),
    "swapped": (lambda s: (*s[:-2], s[-1], s[-2]), None),  # free dims, in a tile of 3 or more
}


@dataclass(frozen=True)
class Of:
    """An operand. `shape`: of the grid; `dtypes` that it takes in turn (None: the cell's);
    `role`: "r" read, "w" written, "u" written in part; `views`: it is a view; `unlike`: its dtype
    is never the cell's alone."""

    role: str = "r"
    shape: Callable = lambda g: g
    dtypes: tuple | None = None
    memories: tuple[str, ...] = ON_CHIP
    fill: Any = "plain"
    views: bool = True


def vector(role: str = "r", **more: Any) -> Of:
    """Return an operand of one float32 a partition."""
    return Of(role, lambda g: (g[0], 1), (FP32,), views=False, **more)


def dst(*dtypes: np.dtype, **more: Any) -> Of:
    return Of("w", dtypes=dtypes or (FP32, BF16, FP16), **more)


@dataclass(frozen=True)
class Row:
    """A row: `samples` are arguments besides the tiles that are always there; TILE gives an
    operand that may be left out. `call(nisa, name, **arguments)` if it is no plain call."""

    name: str
    oracle: Callable
    operands: dict[str, Of]
    samples: tuple[dict[str, Any], ...] = ({},)
    dtypes: tuple = (FP32, BF16, FP16)
    grids: dict[str, tuple[int, ...]] = field(default_factory=lambda: GRIDS)
    views: tuple[str, ...] = tuple(VIEWS)
    optional: tuple[str, ...] = ()
    target: str = "trn3"
    rtol: float = 1e-5
    one_psum: bool = False  # at most one operand that is read lies in PSUM
    variant: str = ""
    expects: tuple[str, ...] = ()  # arguments that the oracle is given besides its own

    @property
    def id(self) -> str:
        return f"{self.name}.{self.variant}" if self.variant else self.name
