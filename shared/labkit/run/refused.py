"""What AWS's compiler is known to refuse in a kernel: testers and graders ask here.

A kernel that it refuses earns nothing, whatever a simulator computes; so it fails in both.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

#: settings under which a student wants no more than to be told
_LENIENT = {"NKISIM_CHECKS": ("off",), "NKI_LANGUAGE": ("off", "teach")}

#: of a kernel whose source is so deep or so long that it cannot be looked at
UNREADABLE: dict[str, object] = {
    "id": "",
    "severity": "error",
    "refused": True,
    "where": None,
    "text": "the file is nested so deeply, or so long, that what AWS's compiler refuses in it "
    "cannot be looked for. Try: statements and expressions of a hundred parts at most",
}


def refused_in(text: str, file: str, kernel: str, dialect: str) -> list[dict[str, object]]:
    """Return what the compiler refuses in the source of a kernel, for a verdict; each once.

    Raises: SyntaxError if the text is not Python.
    """
    import nkisim

    findings = [
        as_dict(f)
        for function in functions_behind(text, kernel)
        for f in nkisim.refusals(text, file, function, dialect)
    ]
    return list({json.dumps(f): f for f in findings}.values())


def in_source(kernels: Path, kernel: str, dialect: str) -> list[dict[str, Any]]:
    """Return what the compiler refuses in the source of a kernel of a file."""
    text = kernels.read_text(encoding="utf-8", errors="replace")
    try:
        return refused_in(text, str(kernels), kernel, dialect)
    except RecursionError:
        refused: list[dict[str, Any]] = []

        def read() -> None:
            try:
                refused.extend(refused_in(text, str(kernels), kernel, dialect))
            except (RecursionError, MemoryError):
                refused.append(UNREADABLE)

        deeply(read)
        return refused


def deeply(read: Callable[[], None]) -> None:
    """Call what reads source. Python compiles expressions of thousands of terms, which are as
    deep: they are read as well."""
    limit, size = sys.getrecursionlimit(), threading.stack_size(256 << 20)
    sys.setrecursionlimit(100_000)
    try:
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)


def with_found(
    refused: list[dict[str, Any]], findings: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what is refused in a kernel's source, then what a run of it found besides."""
    reported = {(f["id"], f["where"]) for f in refused}
    return [*refused, *(f for f in findings if (f["id"], f["where"]) not in reported)]


def as_told(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return findings as a tester tells them: where it has been asked to fail nothing for its
    language, what the compiler refuses is a warning that the grader fails it."""
    if all(os.environ.get(n, "").strip().lower() not in values for n, values in _LENIENT.items()):
        return findings
    note = "(the grader refuses this)"
    return [
        {**f, "severity": "warning", "text": f"{f['text']} {note}"} if f["refused"] else f
        for f in findings
    ]


def functions_behind(text: str, kernel: str) -> list[str]:
    """Return the names of the functions that a kernel's name may stand for in a file.

    That is the function of this name, and those that are named in what is assigned to it, in what
    decorates it and in what that returns: `kernel = nki.jit(other)`.
    """
    values, returned = _comes_from(text)
    seen: dict[str, None] = {}
    todo = [kernel]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen[name] = None  # one that makes the kernel returns it
            made = (*values.get(name, ()), *(returned.get(name, ()) if name != kernel else ()))
            todo += [
                n.id if isinstance(n, ast.Name) else n.attr
                for value in made
                for n in ast.walk(value)
                if isinstance(n, (ast.Name, ast.Attribute))
            ]
    return list(seen)


@lru_cache(maxsize=1)
def _comes_from(text: str) -> tuple[dict[str, list[ast.AST]], dict[str, list[ast.AST]]]:
    """Return by name what it may come from in a file, and what the functions of a name return."""
    values: dict[str, list[ast.AST]] = {}
    returned: dict[str, list[ast.AST]] = {}
    for node in ast.walk(ast.parse(text.removeprefix("\ufeff"))):
        targets, made = _bound(node)
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    values.setdefault(part.id, []).extend(made)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            values.setdefault(node.name, []).extend(node.decorator_list)
            returned.setdefault(node.name, []).extend(
                n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value
            )
    return values, returned


def _bound(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return the targets that a statement or expression binds, and the value that they get."""
    if isinstance(node, ast.Assign):
        return list(node.targets), [node.value]
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        return [node.target], [node.value] if node.value is not None else []
    if isinstance(node, (ast.For, ast.comprehension)):
        return [node.target], [node.iter]
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return [node.optional_vars], [node.context_expr]
    return [], []


def as_dict(finding: Any) -> dict[str, object]:
    """Return a finding for a verdict: what the compiler is known to refuse is an error."""
    return {
        "id": finding.id,
        "severity": "error" if finding.refused else finding.severity,
        "text": finding.text,
        "try": finding.suggestion(),
        "where": str(finding.where) if finding.where else None,
        "refused": finding.refused,
    }
