"""What decides the result of an instruction besides its operands: numbers and flags."""

from __future__ import annotations

from typing import Any

import numpy as np


def fixed(value: Any) -> Any:
    """Return parameters of an instruction as a value that is equal for equal ones.

    What is neither a number nor a collection of some is an operator, or tells where operands are,
    which the record has.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple([fixed(v) for v in value])
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.num, value.tobytes()
    return getattr(value, "name", None)
