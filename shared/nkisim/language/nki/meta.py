"""`nki.meta`: where NKI 0.2 keeps what works on a kernel's text; see constants.py."""

from __future__ import annotations

from . import constants as tensor

__all__ = ["tensor"]
