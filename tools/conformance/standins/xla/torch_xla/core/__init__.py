"""See torch_xla/__init__.py."""

from __future__ import annotations

from . import xla_model

__all__ = ["xla_model"]
