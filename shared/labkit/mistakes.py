"""What students get wrong in a lab, as data: each mistake computes what it would have given.

A lab declares them in `mistakes.py`, next to its `reference.py`:

    MISTAKES = {"matmul": (Mistake("the bias is missing", without_bias), ...)}
    PARTS = {"matmul": first_rows}

by the name of the reference function. A failed output is compared with all of them, and the report
names those that agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .load import load_module
from .run.compare import AnyArgmax
from .run.diagnose import Alternative

FILE = "mistakes.py"


@dataclass(frozen=True)
class Mistake:
    """A mistake: the sentence that names it, and what it makes of the inputs.

    `output(right, *inputs, **kwargs)`: the case's inputs and arguments after the reference
    function; returns what `right` returns, only wrong: NaN in elements that are not known, None if
    the mistake is not possible with these inputs. `noise`: it loses precision only, so that its
    errors are like those of the kernel in size, not one by one.
    """

    says: str
    output: Callable[..., Any]
    noise: bool = False


@dataclass(frozen=True)
class Mistakes:
    """The mistakes of a lab by reference function.

    `parts`: for references that take long, `part(worst, *inputs, **kwargs)` returns the inputs of
    a part of the output around the element with index `worst`, and where that part is: an index.
    """

    of: dict[str, Sequence[Mistake]]
    parts: dict[str, Callable[..., Any]]

    @classmethod
    def load(cls, folder: Path) -> Mistakes:
        """Return those of a lab's folder: none, if it declares none."""
        if not (folder / FILE).is_file():
            return cls({}, {})
        module = load_module(folder / FILE)
        return cls(module.MISTAKES, getattr(module, "PARTS", {}))

    def alternatives(
        self,
        reference: str,
        right: Callable[..., Any],
        inputs: Sequence[np.ndarray],
        kwargs: dict[str, Any],
        output: int,
        worst: tuple[int, ...],
    ) -> list[Alternative]:
        """Return what each mistake gives for output number `output`, near its element `worst`."""
        if reference not in self.of:
            return []
        where: Any = ...
        if reference in self.parts:
            inputs, where = self.parts[reference](worst, *inputs, **kwargs)
        alternatives = []
        with np.errstate(all="ignore"):
            for mistake in self.of[reference]:
                result = mistake.output(right, *inputs, **kwargs)
                result = result[output] if isinstance(result, tuple) else result
                if result is not None:
                    wrong = result.scores if isinstance(result, AnyArgmax) else np.asarray(result)
                    alternatives.append(Alternative(mistake.says, wrong, where, mistake.noise))
        return alternatives


# -- what several labs share ---------------------------------------------------------------------

TILE = 128  # the side of the square that the Tensor Engine transposes


def turn_tiles(array: np.ndarray, tile: int = TILE) -> np.ndarray | None:
    """Transpose each tile x tile square of the first two axes in place; None if they don't fit."""
    rows, columns, *rest = array.shape
    if rows % tile or columns % tile:
        return None
    squares = array.reshape(rows // tile, tile, columns // tile, tile, *rest)
    return squares.swapaxes(1, 3).reshape(array.shape)


def rounded(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return x in float64, rounded to a dtype."""
    return np.asarray(array).astype(dtype).astype(np.float64)


def _move_tiles(right: Callable[..., Any], array: np.ndarray) -> np.ndarray | None:
    turned = turn_tiles(array)
    return None if turned is None else right(turned)


def _turn_in_place(right: Callable[..., Any], array: np.ndarray) -> np.ndarray | None:
    return turn_tiles(array) if array.shape[0] == array.shape[1] else None


#: of a kernel that transposes a matrix tile by tile
TRANSPOSES = (
    Mistake(
        "the matrix is not transposed: its elements are where they were",
        lambda right, x: x.reshape(x.shape[::-1]),
    ),
    Mistake("the tiles are where they belong, but inside no tile is transposed", _move_tiles),
    Mistake(
        "each tile is transposed inside, but stored where it came from: row and column of the "
        "tile must be exchanged as well",
        _turn_in_place,
    ),
)
