"""Edits of a text as ranges, and a kernel made of a text that was edited."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors.lines import lines_of, register_source
from ..simulation.launch import as_kernel


@dataclass(frozen=True)
class Edit:
    """A range of a file, and the text that belongs there; lines from 1, columns from 0, the end
    is not part of it."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "file": self.file,
            "start": {"line": self.line, "column": self.column},
            "end": {"line": self.end_line, "column": self.end_column},
            "text": self.text,
        }


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with edits that do not overlap applied to it."""
    lines = lines_of(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    for e in sorted(edits, key=lambda e: (e.line, e.column), reverse=True):
        text = text[: at(e.line, e.column)] + e.text + text[at(e.end_line, e.end_column) :]
    return text


def apply_dict(text: str, edits: Sequence[dict[str, Any]]) -> str:
    """Return a text with edits applied that came as JSON."""
    return apply(
        text,
        [
            Edit(
                e.get("file", ""),
                e["start"]["line"],
                e["start"]["column"],
                e["end"]["line"],
                e["end"]["column"],
                e["text"],
            )
            for e in edits
        ],
    )


def source_of(kernel: Any) -> tuple[str, str]:
    """Return (file, text) of a kernel; the text is "" if it cannot be read."""
    code = getattr(as_kernel(kernel).func, "__code__", None)
    file = code.co_filename if code is not None else ""
    return file, "".join(linecache.getlines(file))


_number = 0


def kernel_of_text(kernel: Any, text: str) -> Any:
    """Return what a kernel's module calls by its name once it has another text.

    Raises what running the text raises; LookupError for a kernel that is not at the top of it.
    """
    global _number
    inner = as_kernel(kernel)
    func = inner.func
    home = sys.modules.get(func.__module__)
    _number += 1
    file = f"{func.__code__.co_filename}#{_number}"
    register_source(file, text)
    try:
        module = types.ModuleType(func.__module__)
        module.__file__ = getattr(home, "__file__", None)
        module.__package__ = getattr(home, "__package__", None)
        sys.modules[func.__module__] = module
        exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    finally:
        if home is not None:
            sys.modules[func.__module__] = home
        else:
            sys.modules.pop(func.__module__, None)
        if len(linecache.cache) > 512:
            for name in [n for n in linecache.cache if "#" in n][:-64]:
                linecache.cache.pop(name, None)
    named: Any = module
    for name in func.__qualname__.split("."):
        named = getattr(named, name, None)
        if named is None:
            raise LookupError(f"{func.__qualname__} is not at the top of its module")
    before, after = func.__globals__, module.__dict__
    for name, value in before.items():  # constants that were set for this run
        if name.isupper() and name in after and isinstance(value, (int, float, str, tuple)):
            after[name] = value
    return named[inner.grid] if inner.grid else named
