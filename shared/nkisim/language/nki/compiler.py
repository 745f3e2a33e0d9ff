"""`nki.compiler` (ncc): nothing of it is needed to simulate."""
from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Say that a name of the package is not modelled, or that it does not exist."""
    from .versions import missing
    raise missing("ncc", name, globals())
