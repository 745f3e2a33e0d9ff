"""`nki.meta`: where NKI 0.2 keeps what works on a kernel's text; see constants.py."""

from __future__ import annotations

from ..public_names import show_public_names_only
from . import constants as tensor

__all__ = ["tensor"]
show_public_names_only(__name__)
