"""Fix-its: edits that mend what a finding reports, where the cure is mechanical.

Candidates are made generously, from the finding's own hint and from a table of what goes wrong at a
line; each is applied to a copy of the file and evaluated, and only what makes the kernel right
is a fix. So a fix is never a guess; without a reference it is one that leaves nothing to report.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..checks.finding import Finding
from ..errors.lines import lines_of
from ..tuning.sweep import ENDS
from .edits import Edit, apply, kernel_of_text, source_of

#: candidates that are tried of one evaluation, and fixes that are told of one finding
TRIES, TOLD = 24, 2


@dataclass(frozen=True)
class Fix:
    """Edits of the kernel's file, and what they do in a sentence."""

    title: str
    edits: tuple[Edit, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"title": self.title, "edits": [e.to_dict() for e in self.edits]}


def fixes_of(
    findings: list[Finding], kernel: Any, mended: Callable[[Any], bool]
) -> dict[int, list[Fix]]:
    """Return fixes by the number of the finding that they belong to; `mended` says whether a
    kernel has nothing wrong."""
    file, text = source_of(kernel)
    if not text:
        return {}
    source = Source(file, text, kernel)
    out: dict[int, list[Fix]] = {}
    tried: set[str] = set()
    for n, finding in enumerate(findings):
        if finding.severity == "note":
            continue
        for fix in candidates(finding, source):
            new = apply(text, fix.edits)
            if new in tried or len(tried) >= TRIES or len(out.get(n, ())) >= TOLD:
                continue
            tried.add(new)
            if _works(kernel, new, mended):
                out.setdefault(n, []).append(fix)
    return out


def _works(kernel: Any, text: str, mended: Callable[[Any], bool]) -> bool:
    try:
        return mended(kernel_of_text(kernel, text))
    except (*ENDS, LookupError):
        return False


class Source:
    """The text of a kernel's file, and its tree."""

    def __init__(self, file: str, text: str, kernel: Any):
        self.file, self.text = file, text
        self.lines = [line.encode() for line in lines_of(text)]
        self.tree = ast.parse(text)
        self.functions = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)]

    def at(self, line: int) -> list[ast.stmt]:
        """Return the statements that a line is in, the innermost first."""
        statements = [
            n
            for n in ast.walk(self.tree)
            if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)
        ]
        return sorted(statements, key=lambda n: (n.end_lineno or n.lineno) - n.lineno)

    def function(self, line: int) -> ast.AST:
        """Return the function that a line is in, else the whole file."""
        inside = [f for f in self.functions if f.lineno <= line <= (f.end_lineno or 0)]
        return inside[-1] if inside else self.tree

    def replace(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that puts a text in the place of a node."""

        def column(line: int, offset: int) -> int:
            return len(self.lines[line - 1][:offset].decode())

        n: Any = node
        return Edit(
            self.file,
            n.lineno,
            column(n.lineno, n.col_offset),
            n.end_lineno,
            column(n.end_lineno, n.end_col_offset),
            text,
        )

    def code(self, node: ast.AST) -> str:
        """Return the text of a node."""
        return ast.get_source_segment(self.text, node) or ""

    def made(self, name: str, line: int) -> ast.Call | None:
        """Return the last call before a line whose result gets a name."""
        calls = [
            n.value
            for n in ast.walk(self.function(line))
            if isinstance(n, ast.Assign)
            and n.lineno <= line
            and isinstance(n.value, ast.Call)
            and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)
        ]
        return max(calls, key=lambda c: c.lineno, default=None)


def candidates(finding: Finding, source: Source) -> Iterator[Fix]:
    """Yield edits that may mend what a finding reports, the likeliest first."""
    places = [w.line for w in (finding.where, finding.other) if w and w.file == source.file]
    for line in dict.fromkeys(places):
        for statement in source.at(line)[:1]:
            for make in (_meant, _from_hint, _operators, _exchange, _allocation, _loop, _bounds):
                yield from make(finding, source, statement, line)


def _inner(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement's own line: of a loop its head, not its body."""
    if isinstance(statement, ast.For):
        yield from ast.walk(statement.iter)
    elif isinstance(statement, (ast.If, ast.While)):
        yield from ast.walk(statement.test)
    else:
        yield from ast.walk(statement)


def _meant(f: Finding, source: Source, statement: ast.stmt, line: int) -> Iterator[Fix]:
    """A name that there is not: the one that was meant."""
    message = f"{f.text} {f.hint}"
    words = re.findall(r"did you mean\s+'?([\w.]+)", message, re.IGNORECASE)
    words += re.findall(r"(?<![\w.])((?:nl|nisa|nki)\.[\w.]*\w)", f.hint)
    if unknown := re.search(r"name '(\w+)' is not defined", f.text):
        names = {n.id for n in ast.walk(source.tree) if isinstance(n, ast.Name)} - {unknown[1]}
        names |= {n.arg for n in ast.walk(source.tree) if isinstance(n, ast.arg)}
        words += difflib.get_close_matches(unknown[1], sorted(names), n=3)
    for word in dict.fromkeys(words):
        last = word.rpartition(".")[2]
        for node in _inner(statement):
            old = node.attr if isinstance(node, ast.Attribute) else ""
            if isinstance(node, ast.keyword) and node.arg and _near(node.arg, last):
                text = f"{last}={source.code(node.value)}"
                yield Fix(f"{node.arg}= -> {last}=", (source.replace(node, text),))
            elif isinstance(node, ast.Name) and node.id != last and _near(node.id, last):
                yield Fix(f"{node.id} -> {last}", (source.replace(node, last),))
            elif old and old != last and _near(old, last):
                whole = word if "." in word else f"{source.code(node.value)}.{last}"  # type: ignore
                yield Fix(f"{source.code(node)} -> {whole}", (source.replace(node, whole),))


def _near(a: str, b: str) -> bool:
    return difflib.SequenceMatcher(None, a, b).ratio() > 0.55


def _from_hint(f: Finding, source: Source, statement: ast.stmt, line: int) -> Iterator[Fix]:
    """The Python that a hint ends in: in the place of the statement, or of one of its parts."""
    for part in re.split(r";\s+(?:or|and)?\s*", f.hint):
        _, colon, code = part.partition(": ")
        code = (code if colon else part).strip().rstrip(".")
        try:
            parsed = ast.parse(code).body
        except SyntaxError:
            continue
        if len(parsed) != 1 or "..." in code:
            continue
        new = parsed[0]
        if isinstance(new, ast.Assign) and isinstance(new.targets[0], ast.Name):
            name = new.targets[0].id
            call = source.made(name, line)
            if call is not None:  # t=x[0:128] of a call reads like an assignment
                text = ast.get_source_segment(code, new.value) or ""
                yield Fix(f"{name} = {text}", (source.replace(call, text),))
            for node in _inner(statement):
                if isinstance(node, ast.keyword) and node.arg == name:
                    text = ast.get_source_segment(code, new.value) or ""
                    yield Fix(f"{name}={text}", (source.replace(node.value, text),))
        elif isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
            called = ast.unparse(new.value.func)
            for node in _inner(statement):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == called:
                    yield Fix(f"write {code}", (source.replace(node, code),))
            if isinstance(statement, ast.Expr):
                yield Fix(f"write {code}", (source.replace(statement, code),))


#: an operator of Python -> the function of the language that does the same
_FUNCTIONS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}


def _operators(f: Finding, source: Source, statement: ast.stmt, line: int) -> Iterator[Fix]:
    """Operators between tiles, which the package nki does not have: all of a function at once."""
    language = next(
        (
            a.asname
            for n in ast.walk(source.tree)
            if isinstance(n, ast.Import)
            for a in n.names
            if a.name == "nki.language" and a.asname
        ),
        "",
    )
    if f.id != "NKI-N04" or not language:
        return
    tiles: set[str] = set()

    def is_tile(node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp):
            return type(node.op) in _FUNCTIONS and (is_tile(node.left) or is_tile(node.right))
        if isinstance(node, ast.Call):
            return source.code(node.func).startswith(f"{language}.")
        return isinstance(node, ast.Name) and node.id in tiles

    def written(node: ast.AST) -> str:
        if isinstance(node, ast.BinOp) and is_tile(node):
            name = _FUNCTIONS[type(node.op)]
            return f"{language}.{name}({written(node.left)}, {written(node.right)})"
        return source.code(node)

    nodes = list(ast.walk(source.function(line)))
    made = [
        (n.lineno, to.id, n.value)
        for n in nodes
        if isinstance(n, ast.Assign) and isinstance(to := n.targets[0], ast.Name)
    ]
    for _, name, value in sorted(made, key=lambda m: m[0]):
        if is_tile(value):
            tiles.add(name)
    operators = [n for n in nodes if isinstance(n, ast.BinOp) and is_tile(n)]
    parts = {id(part) for n in operators for part in (n.left, n.right)}
    edits = tuple(source.replace(n, written(n)) for n in operators if id(n) not in parts)
    if edits:
        yield Fix(f"operators of tiles -> functions of {language}", edits)


def _exchange(f: Finding, source: Source, statement: ast.stmt, line: int) -> Iterator[Fix]:
    """Operands of one call that stand in each other's place."""
    for node in _inner(statement):
        if not isinstance(node, ast.Call):
            continue
        values = [(k.arg, k.value) for k in node.keywords if k.arg]
        values += [(str(n), a) for n, a in enumerate(node.args)]
        values = [(n, v) for n, v in values if isinstance(v, (ast.Name, ast.Subscript))]
        for i, (one, a) in enumerate(values):
            for other, b in values[i + 1 :]:
                edits = source.replace(a, source.code(b)), source.replace(b, source.code(a))
                yield Fix(f"exchange {one} and {other}", edits)


def _allocation(f: Finding, source: Source, statement: ast.stmt, line: int) -> Iterator[Fix]:
    """A tile of the statement in the other memory, of another dtype, or with zeros in it."""
    names = {n.id for n in _inner(statement) if isinstance(n, ast.Name)}
    calls = [c for name in sorted(names) if (c := source.made(name, line)) is not None]
    calls += [n for n in _inner(statement) if isinstance(n, ast.Call)]
    for call in calls:
        for k in call.keywords:
            now = source.code(k.value)
            if k.arg == "buffer":
                for new in ("nl.psum", "nl.sbuf", "nl.shared_hbm"):
                    if now != new:
                        yield Fix(f"buffer={new}", (source.replace(k.value, new),))
            elif k.arg == "dtype" and now != "nl.float32":
                yield Fix("dtype=nl.float32", (source.replace(k.value, "nl.float32"),))
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("ndarray", "empty"):
            zeros = f"{source.code(call.func.value)}.zeros"
            yield Fix(f"{source.code(call.func)} -> {zeros}", (source.replace(call.func, zeros),))


def _loop(f: Finding, source: Source, statement: ast.stmt, line: int) -> Iterator[Fix]:
    """A loop around the line whose iterations depend on each other, in order."""
    for outer in source.at(line):
        head = outer.iter if isinstance(outer, ast.For) else None
        if isinstance(head, ast.Call) and isinstance(head.func, ast.Attribute):
            if head.func.attr == "affine_range":
                new = f"{source.code(head.func.value)}.sequential_range"
                yield Fix(f"affine_range -> {new}", (source.replace(head.func, new),))


def _bounds(f: Finding, source: Source, statement: ast.stmt, line: int) -> Iterator[Fix]:
    """A bound that is off by a number: of the statement, or of the loops around it."""
    heads = [s.iter for s in source.at(line) if isinstance(s, ast.For)]
    for node in [*_inner(statement), *(n for head in heads for n in ast.walk(head))]:
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, (ast.Add, ast.Sub))
            and isinstance(node.right, ast.Constant)
        ):
            yield Fix(
                f"{source.code(node)} -> {source.code(node.left)}",
                (source.replace(node, source.code(node.left)),),
            )
