"""Stands in for torch_xla where a public program only asks it for a device: it is the CPU."""

from __future__ import annotations

from typing import Any

from . import core
from .core import xla_model

__all__ = ["core", "device", "sync"]


def device() -> Any:
    """Return the CPU, whose tensors the simulated kernels take."""
    return xla_model.xla_device()


def sync() -> None:
    """Do nothing: nothing is lazy here."""
