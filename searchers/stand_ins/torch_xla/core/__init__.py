"""See torch_xla."""
from __future__ import annotations

from . import xla_model

__all__ = ["xla_model"]
