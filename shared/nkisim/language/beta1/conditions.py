"""Conditions on a loop index that Python and the SDK read differently: found in the source.

The SDK traces the body of `affine_range` and `sequential_range` once: the index is a symbol, and
so is a comparison of it. As the test of an `if` statement that is fine. In an expression
(`a if i > 0 else b`, `i < n and ...`) Python asks the symbol for its truth, and there is one answer
for all iterations. Here the index is an int, and such expressions run as Python says.
"""
from __future__ import annotations

import ast
import linecache
from types import CodeType
from typing import Any

from ...checks.finding import Finding
from ...errors import Where, user_frame
from ...machine.machine import Machine

_LOOPS = ("affine_range", "sequential_range")
_known: dict[int, tuple[CodeType, list[Finding]]] = {}      # by id: hashing a code takes long


def note(m: Machine, frame: Any) -> None:
    """Add the findings of the function that has just begun a loop."""
    frame = user_frame(frame)
    if frame is None:
        return
    code = frame.f_code
    got = _known.get(id(code))
    if got is None:
        if len(_known) > 4096:
            _known.clear()
        got = _known[id(code)] = code, findings_of(code)
    for finding in got[1]:
        if finding not in m.findings:
            m.findings.append(finding)


def findings_of(code: CodeType) -> list[Finding]:
    """Return what is to be said of a function's source; nothing if there is none."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            lines = [node.lineno, *(d.lineno for d in node.decorator_list)]
            if min(lines) == code.co_firstlineno:
                scan = _Scan(code)
                for part in node.body:
                    scan.visit(part)
                return scan.findings
    return []


class _Scan(ast.NodeVisitor):
    """Goes through a function's body, with the names that depend on a loop index so far."""

    def __init__(self, code: CodeType):
        self.code = code
        self.symbols: set[str] = set()
        self.in_mask = False
        self.findings: list[Finding] = []

    def _symbolic(self, node: ast.AST) -> bool:
        """Tell whether a value depends on a loop index by arithmetic and comparison alone."""
        if isinstance(node, ast.Name):
            return node.id in self.symbols
        if isinstance(node, ast.BinOp):
            return self._symbolic(node.left) or self._symbolic(node.right)
        if isinstance(node, ast.UnaryOp):
            return self._symbolic(node.operand)
        return isinstance(node, ast.Compare) and any(
            map(self._symbolic, (node.left, *node.comparators)))

    def _say(self, node: ast.expr, severity: str, text: str) -> None:
        where = Where(self.code.co_filename, node.lineno, self.code.co_name)
        self.findings.append(Finding("NKI-L06", severity, text, where))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave out a function in the function: it has a code of its own."""

    def visit_For(self, node: ast.For) -> None:
        call = node.iter.func if isinstance(node.iter, ast.Call) else None
        name = call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
        if isinstance(node.target, ast.Name):
            (self.symbols.add if name in _LOOPS else self.symbols.discard)(node.target.id)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                symbolic = self._symbolic(node.value)
                (self.symbols.add if symbolic else self.symbols.discard)(target.id)

    def visit_If(self, node: ast.If) -> None:
        """Go past the test: as that of a statement, a comparison of indices is supported."""
        for part in (*node.body, *node.orelse):
            self.visit(part)

    def visit_keyword(self, node: ast.keyword) -> None:
        before, self.in_mask = self.in_mask, node.arg == "mask"
        self.generic_visit(node)
        self.in_mask = before

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if self._symbolic(node.test):
            self._say(node, "note", "a conditional expression tests a loop index. Here it picks in "
                      "every iteration; the SDK traces the body once and may pick one for all of "
                      "them. An `if` statement is decided in every iteration")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Report `and` and `or`: in a mask it decides what is computed, elsewhere it may not."""
        if any(map(self._symbolic, node.values[:-1])):
            word = "and" if isinstance(node.op, ast.And) else "or"
            self._say(node, "warning" if self.in_mask else "note",
                      f"`{word}` asks for the truth of a comparison of a loop index. Here that is "
                      "decided in every iteration; the SDK traces the body once and may drop it. "
                      f"Write {'&' if word == 'and' else '|'}, each comparison in parentheses")
        self.generic_visit(node)
