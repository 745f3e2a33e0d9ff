"""Bring a class of Trainium machines up, guard its money, and tear it down without a trace."""

from __future__ import annotations

__version__ = "0.1.0"
