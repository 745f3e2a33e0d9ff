"""In the place of torch_xla, for harnesses that only ask for a device: it is the CPU."""
from __future__ import annotations

from . import core

__all__ = ["core"]
