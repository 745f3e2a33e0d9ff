"""What decides the result of an instruction besides its operands: numbers and flags."""

from __future__ import annotations

from typing import Any

import numpy as np


def fixed(x: Any) -> Any:
    """Return parameters of an instruction as a value that is equal for equal ones.

    What is neither a number nor a collection of some is an operator, or tells where operands are,
    which the record has.
    """
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    if isinstance(x, (list, tuple)):
        return tuple([fixed(v) for v in x])
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype.num, x.tobytes()
    return getattr(x, "name", None)
