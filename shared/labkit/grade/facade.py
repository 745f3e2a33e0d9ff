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

import nkisim

#: the modules of each dialect, as kernels import them
MODULES = {
    "neuronxcc.nki": (
        "",
        ".language",
        ".isa",
        ".compiler",
        ".typing",
        ".language.constants",
        ".isa.constants",
    ),
    "nki": (
        "",
        ".language",
        ".language.dtypes",
        ".dtype",
        ".isa",
        ".isa.constants",
        ".compiler",
        ".typing",
        ".collectives",
    ),
}
#: names of the root that launch or make kernels; the grader launches
LAUNCHERS = ("jit", "trace", "baremetal", "benchmark", "profile", "simulate_kernel", "simulate")
#: decorators of the compiler module that only note an option on a function
OPTIONS = ("skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc")
#: helpers of the facades' own modules that are no part of NKI
_NOT_OURS = frozenset(("public", "machine", "fail", "missing", "current", "note"))
#: prefixes of the modules that NKI's functions come from
_HOMES = ("nkisim.language.", "nkisim.isa.")


def _kinds(cls: type) -> list[str]:
    """Return the names of a class and of those that derive from it."""
    below: list[type] = type.__subclasses__(cls)
    return [cls.__name__, *(name for derived in below for name in _kinds(derived))]


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
        return [self.modules, self.launchers, self.options, nkisim.standalone()]

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

    def no_module(self, name: str) -> str:
        """Return why there is no module of a name, such as "nki.language.lod" after
        `from nki.language import lod`; nothing is loaded that is no facade."""
        try:
            if name.startswith(tuple(f"{root}." for root in MODULES)):
                importlib.import_module(name)
        except ImportError as error:
            return str(error)
        return f"No module named {name!r}"

    def _module(self, name: str, module: types.ModuleType) -> None:
        here: dict[str, list[Any]] = {}
        # classes first: a member of an enum has one path, by its class
        for key in sorted(dir(module), key=lambda key: not isinstance(getattr(module, key), type)):
            if key.startswith("_") or key in _NOT_OURS or key in (*LAUNCHERS, *OPTIONS):
                continue
            entry = self._entry(f"{name}.{key}", getattr(module, key))
            if entry is not None:
                here[key] = entry
        self.modules[name] = here

    def _entry(self, path: str, obj: Any) -> list[Any] | None:
        """Return (kind, path, value) of a name, None if it is not for kernels."""
        if id(obj) in self.paths and (
            isinstance(obj, enum.Enum) or not isinstance(obj, (int, float, str))
        ):
            path = self.paths[id(obj)]  # nl.sbuf is one thing under all its names
        if isinstance(obj, np.dtype):
            return ["dtype", path, obj.name]
        if isinstance(obj, type):
            return self._class(path, obj)
        if isinstance(obj, enum.Enum):
            return self._keep("constant", path, obj)
        if isinstance(obj, (bool, int, float, str)):
            if isinstance(obj, str):
                obj = str(obj)  # a data type of `import nki`, which is its name
            return ["value", path, obj] if type(obj) in (bool, int, float, str) else None
        if isinstance(obj, types.FunctionType):
            home = (obj.__module__ or "") + "."
            return self._keep("function", path, obj) if home.startswith(_HOMES) else None
        if (
            isinstance(obj, types.ModuleType)
            or callable(obj)
            and not type(obj).__module__.startswith("nkisim")
        ):
            return None
        if type(obj).__module__.startswith("nkisim."):
            return self._keep("constant", path, obj)
        return None

    def _class(self, path: str, cls: type) -> list[Any] | None:
        if issubclass(cls, np.generic):
            return ["type", path, np.dtype(cls).name]
        if issubclass(cls, enum.Enum):
            self.paths.setdefault(id(cls), path)
            for member in cls:
                self._keep("constant", f"{path}.{member.name}", member)
            values = {m.name: m.value if type(m.value) in (int, str) else m.name for m in cls}
            return ["enum", path, {"": issubclass(cls, int), **values}]
        ours = cls.__module__.startswith("nkisim.language.") or cls.__name__ in ("ParDim", "finfo")
        return [*self._keep("class", path, cls)[:2], _kinds(cls)] if ours else None

    def _keep(self, kind: str, path: str, obj: Any) -> list[Any]:
        self.objects.setdefault(path, obj)
        self.paths.setdefault(id(obj), path)
        return [kind, path, None]
