"""What a module of the dialects offers to kernels, as opposed to what it imports for itself."""

from __future__ import annotations

from typing import Any


def offered(listed: str, names: dict[str, Any]) -> list[str]:
    """Return the names of a module that are documented (`listed`), and its instructions."""
    known = set(listed.split())
    return [name for name, x in names.items() if name in known or hasattr(x, "row")]
