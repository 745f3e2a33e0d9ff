"""Which functions are a kernel: the one that is launched, and what it calls, as syntax trees.

At a launch, names are looked up in the functions themselves, across files. For a file that is only
read, a kernel is what a launcher's decorator stands on, and names are those of the file.
"""

from __future__ import annotations

import ast
import linecache
import sysconfig
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..errors.frames import is_ours
from .constructs import BETA1, NKI

#: root package of an import -> the dialect that it speaks, and what its names are called here
ROOTS = {"neuronxcc.nki": BETA1, "nki": NKI}
LAUNCHERS = {"jit", "nki_jit", "trace", "baremetal", "benchmark", "profile", "simulate"}
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Source:
    """A file: its tree, what it imports, and its functions and classes at the top."""

    file: str
    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)  # local name -> dotted name
    dialects: set[str] = field(default_factory=set)
    functions: dict[str, _FunctionNode] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    #: of functions, also in functions and classes, by name and first line (of a decorator, if any)
    definitions: dict[tuple[str, int], _FunctionNode] = field(default_factory=dict)
    bound: dict[str, set[str]] = field(default_factory=dict)  # local name -> what it is bound to

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, _FunctionNode):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                self.definitions[node.name, first] = node
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self._bind(
                        alias.asname or alias.name.split(".")[0],
                        alias.name if alias.asname else alias.name.split(".")[0],
                    )
                    self._dialect_of(alias.name)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    dotted = f"{node.module}.{alias.name}"
                    self._bind(alias.asname or alias.name, dotted)
                    self._dialect_of(dotted)
        for node in self.tree.body:
            if isinstance(node, _FunctionNode):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node

    def _bind(self, name: str, dotted: str) -> None:
        self.names[name] = dotted
        self.bound.setdefault(name, set()).add(dotted)

    def _dialect_of(self, dotted: str) -> None:
        self.dialects |= {_root(dotted)} - {""}

    def dialect(self, node: ast.AST) -> str:
        """Return the dialect of a name or attribute; "" for none, or several (`try: import`)."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        name = node.id if isinstance(node, ast.Name) else ""
        dialects = {_root(".".join([d, *reversed(parts)])) for d in self.bound.get(name, ())}
        return dialects.pop() if len(dialects) == 1 else ""

    def dotted(self, node: ast.AST) -> str:
        """Return the full name of a name or attribute, "nki.language.load"; "" if it has none.

        Names of beta 1 lose their `neuronxcc.`: which dialect it is, is known already.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return ""
        full = ".".join([self.names[node.id], *reversed(parts)])
        return full.removeprefix("neuronxcc.")


def _root(dotted: str) -> str:
    """Return the dialect that a dotted name belongs to, "" if none."""
    for root, dialect in ROOTS.items():
        if f"{dotted}.".startswith(f"{root}."):
            return dialect
    return ""


@dataclass(frozen=True)
class Function:
    """A function that belongs to a kernel."""

    source: Source
    node: _FunctionNode
    dialect: str
    launched: bool  # it is the kernel itself, and not what it calls


@lru_cache(maxsize=256)
def _source(file: str, text: str) -> Source:
    try:
        return Source(file, ast.parse(text))
    except (RecursionError, MemoryError):  # of Python's parser, however much memory there is
        raise SyntaxError("it is nested too deeply", (file, 1, None, None)) from None


@lru_cache(maxsize=256)
def _parsed(file: str, text: str) -> Source | None:
    try:
        return _source(file, text)
    except (SyntaxError, ValueError):
        return None


def read(file: str) -> Source | None:
    """Return a file that Python has imported; None if its text is not there."""
    text = "".join(linecache.getlines(file))
    return _parsed(file, text) if text else None


def is_launched(node: ast.AST) -> bool:
    """Return whether a decorator of a launcher (`@nki.jit` ...) stands on a function."""
    for decorator in getattr(node, "decorator_list", ()):
        if isinstance(decorator, ast.Call):
            decorator = decorator.func
        name = (
            decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
        )
        if name in LAUNCHERS:
            return True
    return False


# -- at a launch -----------------------------------------------------------------------------------


def of_kernel(func: Any, dialect: str = "") -> list[Function]:
    """Return the kernel of a Python function: itself, and the functions it calls by name.

    `dialect`: that of the kernel; without it, what its file imports says it.
    """
    functions: list[Function] = []
    sources: dict[str, Source | None] = {}
    seen: set[CodeType] = set()
    todo: list[tuple[Any, str]] = [(func, dialect)]
    while todo:
        one, above = todo.pop()
        one = _plain(one)
        code = getattr(one, "__code__", None)
        if code is None or code in seen or is_ours(file := code.co_filename) or _is_library(file):
            continue
        seen.add(code)
        if file not in sources:
            sources[file] = read(file)
        if (source := sources[file]) is None:
            continue
        if (node := source.definitions.get((code.co_name, code.co_firstlineno))) is None:
            continue
        speaks = above if above and not functions else _pick(source.dialects, above)
        if not speaks:
            continue
        functions.append(Function(source, node, speaks, launched=not functions))
        todo += [(value, speaks) for value in _called(node, names_of(one))]
    return functions


def _plain(value: Any) -> Any:
    """Return the Python function inside decorators that keep it in `func`."""
    for _ in range(8):
        if isinstance(value, FunctionType):
            return value
        value = (
            getattr(value, "func", None)
            or getattr(value, "__func__", None)
            or getattr(value, "kernel", None)
        )
    return None


def _pick(here: set[str], above: str) -> str:
    """Return the dialect of a function from what its file imports, else that of its caller."""
    if len(here) == 1:
        return next(iter(here))
    return above if above in here or not here else NKI


@lru_cache(maxsize=256)
def _is_library(file: str) -> bool:
    """Return whether a file is Python's, or of IPython: `display` in a kernel is a `print`."""
    paths = sysconfig.get_paths()
    return (
        "IPython" in Path(file).parts
        or file.startswith((paths["stdlib"], paths["platstdlib"]))
        and "site-packages" not in file
    )


def names_of(func: FunctionType) -> ChainMap[str, Any]:
    """Return the values of names that a function has from around it, then from its module."""
    held = {}
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or ()):
        with suppress(ValueError):  # not bound yet
            held[name] = cell.cell_contents
    return ChainMap(held, func.__globals__)


def _called(node: ast.AST, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what a function calls by name or as an attribute of a module."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name):
            yield names.get(call.func.id)
        elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            owner = names.get(call.func.value.id)
            if isinstance(owner, ModuleType):
                yield getattr(owner, call.func.attr, None)


# -- in a file -------------------------------------------------------------------------------------


def of_text(
    text: str, file: str, dialect: str = "", is_kernel: Callable[[ast.AST], bool] = is_launched
) -> list[Function]:
    """Return the functions of the kernels in a file's text; raise SyntaxError if it is no Python.

    `dialect` is for files whose imports do not say it; `is_kernel` picks the functions to begin
    with.
    """
    source = _source(file, text)
    if not source.dialects and not dialect:
        return []
    functions: dict[str, Function] = {}
    kernels = filter(is_kernel, source.definitions.values())
    todo = [(node, _dialect_of(source, node, dialect), True) for node in kernels]
    while todo:
        node, speaks, launched = todo.pop()
        key = f"{node.name}:{node.lineno}"
        if key in functions:
            continue
        functions[key] = Function(source, node, speaks, launched)
        for call in ast.walk(node):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in source.functions
            ):
                todo.append((source.functions[call.func.id], speaks, False))
    return sorted(functions.values(), key=lambda f: f.node.lineno)


def _dialect_of(source: Source, node: ast.AST, given: str) -> str:
    if len(source.dialects) == 1:
        return next(iter(source.dialects))
    for name in ast.walk(node):  # a file of both: what is said in the function decides
        if isinstance(name, ast.Name):
            dialect = _root(source.names.get(name.id, ""))
            if dialect:
                return dialect
    return given or NKI
