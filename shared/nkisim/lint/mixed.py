"""Kernels of one dialect that call the other: said for a file; a run ends at the call (NKI-K20)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..checks.finding import Finding
from ..errors import Where
from .constructs import BETA1, NKI
from .program import LAUNCHERS, Function
from .scan import ISA, LANGUAGE, MAKERS

_QUERIES = frozenset(("get_nc_version", "get_nc_sub_version"))  # of the chip, in any kernel
_PACKAGE = {BETA1: "neuronxcc.nki", NKI: "nki"}


def scan(functions: list[Function]) -> list[Finding]:
    """Return a finding for the first call of the other dialect in each kernel."""
    findings = []
    for function in functions:
        own = _of_launcher(function) if function.launched else ""
        for call, name, dialect in _calls(function) if own else ():
            if dialect != own:
                where = Where(function.source.file, call.lineno, function.node.name)
                text = (
                    f"{name} of {_PACKAGE[dialect]} is called in a kernel of {_PACKAGE[own]}: a "
                    "kernel has one dialect. Try: `import nki`, `import nki.isa as nisa` and "
                    "`import nki.language as nl`, or neuronxcc.nki in all three"
                )
                findings.append(Finding("NKI-K20", "error", text, where))
                break
    return findings


def _of_launcher(function: Function) -> str:
    """Return the dialect of the decorator that launches a kernel; "" if it is not known."""
    for decorator in function.node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if function.source.dotted(name).rpartition(".")[2] in LAUNCHERS:
            return function.source.dialect(name)
    return ""


def _calls(function: Function) -> Iterator[tuple[ast.Call, str, str]]:
    """Yield instructions and calls that make tiles, by their lines: what, name, dialect."""
    calls = [n for part in function.node.body for n in ast.walk(part) if isinstance(n, ast.Call)]
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        name = function.source.dotted(call.func)
        _, isa, last = name.partition(ISA)
        if not isa:
            _, _, last = name.partition(LANGUAGE)
        if last and (last not in _QUERIES if isa else last in MAKERS) and "." not in last:
            dialect = function.source.dialect(call.func)
            if dialect:
                yield call, f"{'nisa' if isa else 'nl'}.{last}", dialect


__all__ = ["scan"]
