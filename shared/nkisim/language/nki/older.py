"""Calls of instructions as NKI 0.1 and 0.2 had them, for NKI_LANGUAGE_VERSION=0.1 or 0.2.

What 0.3 changed in a call has another meaning today, or none. What only looks for mistakes that
those releases did not look for stays as it is.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...chip import dtypes
from ...errors import NkiError
from ...machine.tensor import Tensor

#: instructions whose parameters had another order (API references of 0.1 and 0.2)
_ORDER = {
    "affine_select": ("dst", "pattern", "offset", "channel_multiplier", "on_true_tile",
                      "on_false_value", "cmp_op", "name"),
    "dma_compute": ("dst", "srcs", "scales", "reduce_op", "name"),
    "dma_copy": ("dst", "src", "dst_rmw_op", "oob_mode", "dge_mode", "unique_indices", "name"),
    "dma_transpose": ("dst", "src", "axes", "dge_mode", "oob_mode", "name"),
}
#: parameters that have gone since, with the values that change nothing here
_GONE: dict[str, dict[str, tuple]] = {
    "dma_copy": {"dst_rmw_op": (None,), "unique_indices": (True,)},
    "sendrecv": {"use_gpsimd_dma": (False, True)},      # which engine moves the data
}
HINT = "; kernels of NKI 0.1 and 0.2 run with NKI_LANGUAGE_VERSION=0.2"


def arguments(name: str, args: tuple, kw: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a call of 0.1 or 0.2 as those of today's call."""
    order = _ORDER.get(name, ())
    if len(args) <= len(order):
        kw = {**dict(zip(order, args)), **kw}
        args = ()
    for gone, idle in _GONE.get(name, {}).items():
        if kw.get(gone, idle[0]) in idle:
            kw = {k: v for k, v in kw.items() if k != gone}
    if "dtype" in kw and _is_that_of(kw.get("dst"), kw["dtype"]):   # AWS's own kernels say it again
        kw = {k: v for k, v in kw.items() if k != "dtype"}
    return args, kw


def _is_that_of(dst: Any, dtype: Any) -> bool:
    """Tell whether a tile of the kernel's has a dtype."""
    try:
        return dst.dtype == dtypes.normalize(dtype)
    except (AttributeError, TypeError, NkiError):
        return False


def meant(name: str, given: dict[str, Any]) -> None:
    """Change arguments by name into what they meant in 0.1 and 0.2."""
    if name == "tensor_reduce" and given["data"].__class__ is Tensor:
        # "[1, 2] is a legal axis field": axes were counted from the last one
        axis, rank = given["axis"], len(given["data"].shape)
        many = len(axis) if isinstance(axis, (list, tuple)) else 1
        given["axis"] = tuple(range(max(1, rank - many), rank))
    if name == "memset" and given["dst"].__class__ is Tensor:
        value = given["value"]
        if isinstance(value, (float, np.floating)) and dtypes.is_int(given["dst"].dtype) \
                and float(value).is_integer():
            given["value"] = int(value)


def par_dim(size: Any) -> Any:
    """Return the size of a dim: the parser of 0.1 and 0.2 did not look at the mark."""
    return size


NAMES = {"par_dim": par_dim}        # of nl
