"""Inputs of a case from a seed: the same arrays on every machine and in every process."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import zlib
from pathlib import Path
from typing import Any

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
        dtype: np.dtype[Any] = np.dtype(kind)
        return dtype


#: How often the inputs lie in memory while a case runs: here and in the process of the kernel, as
#: arrays and as the simulator's HBM, and what the reference makes of them.
COPIES = 4


def machine_memory() -> int | None:
    """Return the bytes of memory that this machine has; None where it does not say."""
    if sys.platform == "win32":
        kilobytes = ctypes.c_ulonglong()
        answered = ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(
            ctypes.byref(kilobytes)
        )
        return kilobytes.value * 1024 if answered else None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_memory(case: Case) -> None:
    """Raise SpecError if the inputs cannot fit; many systems kill a process that tries."""
    size = sum(math.prod(t.shape) * dtype_of(t.dtype).itemsize for t in case.inputs)
    memory = machine_memory()
    if memory is not None and COPIES * size > memory:
        raise SpecError(
            f"case {case.name}: the inputs have {size / 1e9:,.3g} GB and are needed "
            f"about {COPIES} times; this machine has {memory / 1e9:,.3g} GB of memory. "
            "Try a smaller size"
        )


def make_inputs(case: Case, seed: int) -> list[np.ndarray]:
    """Return the case's inputs.

    The stream depends on the seed and on the input's shape, dtype and place, not on the case's
    name or on the cases before it: a case gives the same numbers alone and in a fleet.
    """
    check_memory(case)
    arrays = []
    for place, tensor in enumerate(case.inputs):
        dtype = dtype_of(tensor.dtype)
        if tensor.file:
            arrays.append(load_array(Path(tensor.file), tensor.shape, dtype))
            continue
        key = zlib.crc32(f"{place}:{tensor.shape}:{tensor.dtype}".encode())
        rng = np.random.default_rng([seed, key])
        if tensor.distinct:
            low, span = int(tensor.low), int(tensor.high) - int(tensor.low)
            lots = math.prod(tensor.shape) // tensor.distinct
            drawn = [rng.permutation(span)[: tensor.distinct] + low for _ in range(lots)]
            array: np.ndarray = np.concatenate(drawn).reshape(tensor.shape)
        elif dtype.kind in "iu":
            array = rng.integers(int(tensor.low), int(tensor.high), tensor.shape)
        else:
            array = rng.random(tensor.shape, dtype=np.float32)
            array *= np.float32(tensor.high - tensor.low)
            array += np.float32(tensor.low)
        arrays.append(array.astype(dtype, copy=False))
    return arrays


def load_array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the array of a .npy file; raise SpecError unless it is what is expected."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise SpecError(
            f"there is no file {path.name} in {path.parent}; reference.py --store-data writes it"
        ) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} is not a NumPy array file ({error})") from None
    if array.dtype != dtype or array.shape != shape:
        raise SpecError(
            f"{path} holds {array.dtype} of shape {array.shape}; expected {dtype} of shape {shape}"
        )
    data: np.ndarray[Any, Any] = array
    return data
