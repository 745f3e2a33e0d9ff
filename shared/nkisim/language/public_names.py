"""What a module of the dialects offers to kernels, as opposed to what it imports for itself."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def offered(listed: str, names: dict[str, Any]) -> list[str]:
    """Return the names of a module that are documented (`listed`), and its instructions."""
    documented = set(listed.split())
    return [name for name, x in names.items() if name in documented or hasattr(x, "row")]


def show_public_names_only(name: str) -> None:
    """Replace a module in `sys.modules` by one that has the names of its `__all__` alone.

    The last line of a module calls it with `__name__`. Importers then get the new module:
    `nl.machine` is an AttributeError with a suggestion, not what the module imports for its own
    use. Functions keep the names of the module that they were written in.
    """
    inner = sys.modules[name]
    public = set(inner.__all__)
    face = ModuleType(name)
    vars(face).update((n, x) for n, x in vars(inner).items() if n in public or n.startswith("__"))
    vars(face)["__dir__"] = lambda: sorted(n for n in vars(face) if not n.startswith("_"))
    sys.modules[name] = face
