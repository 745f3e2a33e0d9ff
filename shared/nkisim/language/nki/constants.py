"""`nki.tensor`, later `nki.meta.tensor`: arrays that NKI 0.1 and 0.2 make while they read a kernel.

They are what `nl.shared_constant` takes. Since 0.3 that takes NumPy's arrays, and these modules are
gone; kernels of older releases run with them here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...chip import dtypes
from ...machine.limits import integer
from ..public_names import show_public_names_only


def zeros(shape: Any, dtype: Any) -> np.ndarray:
    """Return an array of zeros."""
    return np.zeros(tuple(integer(n, "shape") for n in shape), dtypes.normalize(dtype))


def identity(n: Any, dtype: Any) -> np.ndarray:
    """Return the identity matrix of n rows."""
    return np.eye(integer(n, "n"), dtype=np.float32).astype(dtypes.normalize(dtype))


def arange(*bounds: Any, dtype: Any) -> np.ndarray:
    """Return the numbers 0 .. stop - 1, or start .. stop - 1 (with a step), as np.arange."""
    return np.arange(*(integer(b, "bounds") for b in bounds)).astype(dtypes.normalize(dtype))


__all__ = ["arange", "identity", "zeros"]
show_public_names_only(__name__)
