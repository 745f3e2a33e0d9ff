"""Stands in for klr, AWS's open front end of NKI 0.1 and 0.2: its language tests ask our lint."""

from __future__ import annotations

from nki.language import NKIObject

__all__ = ["NKIObject"]
