"""`neuronxcc.nki.language.constants`: helpers that sample kernels reach for."""

from __future__ import annotations

from typing import Any

from ...chip import dtypes
from ..public_names import show_public_names_only


def sizeinbytes(dtype: Any) -> int:
    """Return the item size of a dtype in bytes."""
    return dtypes.normalize(dtype).itemsize


__all__ = ["sizeinbytes"]
show_public_names_only(__name__)
