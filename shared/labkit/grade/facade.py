"""What of NKI a stranger's kernel may name: the public functions and constants of the facades.

Anything else that a facade module happens to hold (modules, classes, helpers of the simulator) is
not there for it. Paths such as "neuronxcc.nki.language.add" travel; objects never do.
"""

from __future__ import annotations

import enum
import importlib
import types
from typing import Any

import numpy as np

#: the modules of each dialect, as kernels import them
MODULES = {
    "neuronxcc.nki": (
        "",
        ".language",
        ".isa",
        ".compiler",
        ".language.constants",
        ".isa.constants",
    ),
    "nki": ("", ".language", ".isa", ".compiler"),
}
#: names of the root that launch or make kernels; the grader launches
LAUNCHERS = ("jit", "trace", "baremetal", "benchmark", "profile", "simulate_kernel", "simulate")
#: decorators of the compiler module that only note an option on a function
OPTIONS = ("skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc")
#: helpers of the facades' own modules that are no part of NKI
_NOT_OURS = frozenset(("public", "machine", "fail", "missing", "current", "note"))
#: prefixes of the modules that NKI's functions come from
_HOMES = ("nkisim.language.", "nkisim.isa.")


class Facade:
    """The names that are offered, and the objects behind their paths."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.paths: dict[int, str] = {}
        self.modules: dict[str, dict[str, list[Any]]] = {}
        self.launchers: dict[str, list[str]] = {}
        self.options: dict[str, list[str]] = {}
        for root, parts in MODULES.items():
            for part in parts:
                try:
                    module = importlib.import_module(root + part)
                except ImportError:
                    continue
                self._module(root + part, module)
            if root in self.modules:
                self.launchers[root] = [
                    n for n in LAUNCHERS if n in dir(importlib.import_module(root))
                ]
                if f"{root}.compiler" in self.modules:
                    compiler = importlib.import_module(f"{root}.compiler")
                    self.options[f"{root}.compiler"] = [n for n in OPTIONS if hasattr(compiler, n)]

    def describe(self) -> list[Any]:
        """Return what the student's process builds its stand-ins from, ready for JSON."""
        return [self.modules, self.launchers, self.options]

    def find(self, module: str, name: str) -> list[Any]:
        """Return the entry of a name that a module has only when it is asked for, as those of
        older releases; raise AttributeError, with the module's own text, if it lacks it."""
        if (
            module not in self.modules
            or name.startswith("_")
            or name in _NOT_OURS
            or name in (*LAUNCHERS, *OPTIONS)
        ):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        entry = self._entry(f"{module}.{name}", getattr(importlib.import_module(module), name))
        if entry is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r} for kernels")
        return entry

    def _module(self, name: str, module: types.ModuleType) -> None:
        here: dict[str, list[Any]] = {}
        for key in dir(module):
            if key.startswith("_") or key in _NOT_OURS or key in (*LAUNCHERS, *OPTIONS):
                continue
            entry = self._entry(f"{name}.{key}", getattr(module, key))
            if entry is not None:
                here[key] = entry
        self.modules[name] = here

    def _entry(self, path: str, x: Any) -> list[Any] | None:
        """Return (kind, path, value) of a name, None if it is not for kernels."""
        if id(x) in self.paths and not isinstance(x, (int, float, str)):
            path = self.paths[id(x)]  # nl.sbuf is one thing under all its names
        if isinstance(x, np.dtype):
            return ["dtype", path, x.name]
        if isinstance(x, type):
            return self._class(path, x)
        if isinstance(x, enum.Enum):
            return self._keep("constant", path, x)
        if isinstance(x, (bool, int, float, str)):
            if isinstance(x, str):
                x = str(x)  # a data type of `import nki`, which is its name
            return ["value", path, x] if type(x) in (bool, int, float, str) else None
        if isinstance(x, types.FunctionType):
            home = (x.__module__ or "") + "."
            return self._keep("function", path, x) if home.startswith(_HOMES) else None
        if (
            isinstance(x, types.ModuleType)
            or callable(x)
            and not type(x).__module__.startswith("nkisim")
        ):
            return None
        if type(x).__module__.startswith("nkisim."):
            return self._keep("constant", path, x)
        return None

    def _class(self, path: str, x: type) -> list[Any] | None:
        if issubclass(x, np.generic):
            return ["type", path, np.dtype(x).name]
        if issubclass(x, enum.Enum):
            members = {m.name: int(m.value) if isinstance(m.value, int) else None for m in x}
            for member in x:
                self._keep("constant", f"{path}.{member.name}", member)
            return ["enum", path, members]
        ours = x.__module__.startswith("nkisim.language.") or x.__name__ in ("ParDim", "finfo")
        return self._keep("constant", path, x) if ours else None

    def _keep(self, kind: str, path: str, x: Any) -> list[Any]:
        self.objects.setdefault(path, x)
        self.paths.setdefault(id(x), path)
        return [kind, path, None]
