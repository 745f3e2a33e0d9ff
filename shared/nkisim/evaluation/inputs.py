"""Fresh inputs like those that a kernel was given: their shapes, dtypes and kind of values."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np


def fresh(args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> tuple[Any, Any]:
    """Return arguments of the same shapes and dtypes with other values.

    Values are those that were given at other places, so that indices stay indices and what was
    positive stays so; an array of one value gets the standard normal ones (integers: it stays).
    Seed 0 returns the arguments as they are; what is no array is copied.
    """
    args, kwargs = copy.deepcopy((args, kwargs))
    if not seed:
        return args, kwargs
    rng = np.random.default_rng(seed)
    return tuple(_other(a, rng) for a in args), {n: _other(a, rng) for n, a in kwargs.items()}


def _other(value: Any, rng: np.random.Generator) -> Any:
    if type(value).__module__.split(".")[0] == "torch" and hasattr(value, "flatten"):
        order = rng.permutation(value.numel()).tolist()
        return value.flatten()[order].reshape(value.shape)
    if not isinstance(value, np.ndarray) or value.size < 2:
        return value
    flat = value.reshape(-1)
    if (flat[0] == flat[1:]).all() and value.dtype.kind not in "iub?":
        return np.asarray(rng.standard_normal(value.shape, np.float32)).astype(value.dtype)
    rows = value[rng.permutation(len(value))].reshape(-1)  # and not the rows alone:
    return np.roll(rows, int(rng.integers(1, flat.size))).reshape(value.shape)
