"""Inputs of a case from a seed: the same arrays on every machine and in every process."""
from __future__ import annotations

import zlib

import numpy as np

from .spec import Case, SpecError


def dtype_of(name: str) -> np.dtype:
    """Return the NumPy dtype of a name; bfloat16 and the fp8 types come from ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes
        kind = getattr(ml_dtypes, name, None)
        if kind is None:
            raise SpecError(f"unknown dtype {name!r}") from None
        return np.dtype(kind)


def make_inputs(case: Case, seed: int) -> list[np.ndarray]:
    """Return the case's inputs.

    The stream depends on the seed and on the input's shape, dtype and place, not on the case's
    name or on the cases before it: a case gives the same numbers alone and in a fleet.
    """
    arrays = []
    for place, tensor in enumerate(case.inputs):
        dtype = dtype_of(tensor.dtype)
        key = zlib.crc32(f"{place}:{tensor.shape}:{tensor.dtype}".encode())
        rng = np.random.default_rng([seed, key])
        if dtype.kind in "iu":
            array: np.ndarray = rng.integers(int(tensor.low), int(tensor.high), tensor.shape)
        else:
            array = rng.random(tensor.shape, dtype=np.float32)
            array *= np.float32(tensor.high - tensor.low)
            array += np.float32(tensor.low)
        arrays.append(array.astype(dtype, copy=False))
    return arrays
