"""`nl.shared_constant` of both dialects: arrays that are known when a kernel is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes
from ..errors import fail
from ..machine import allocate
from ..machine.interface import Machine
from ..machine.tensor import Tensor


def constant_tensor(m: Machine, array: Any, dtype: Any = None) -> Tensor:
    """Return an HBM tensor that holds an array as it is now, in 32 bits where it has 64.

    Raises NKI-D03 for integers that do not fit into int32, if no `dtype` is asked for.
    """
    a = np.array(array)  # a copy: the host may use it again
    if a.dtype.itemsize == 8 and dtype is None:
        dtype = np.float32 if a.dtype.kind == "f" else np.int32
        if a.size and a.dtype.kind in "iu" and not -(2**31) <= a.min() <= a.max() < 2**31:
            raise fail(
                "NKI-D03",
                "nl.shared_constant: a value does not fit in int32",
                given=f"{a.dtype} from {a.min()} to {a.max()}",
            )
    if dtype is not None:
        a = dtypes.from_host(a, dtypes.normalize(dtype))
    return allocate.input_tensor(m, a, "constant", mutable=False)
