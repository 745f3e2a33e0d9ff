"""A whole file: its imports and decorators, its functions, and the two runs that compare them."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import NkiError
from ..errors.lines import register_source
from ..lint import level, program
from ..lint.program import Source
from ..simulation.prediction import profile
from .observe import Observer
from .rewrite import Decision, Edit, Function

MODULES = {
    "neuronxcc.nki": "nki",
    "neuronxcc.nki.language": "nki.language",
    "neuronxcc.nki.isa": "nki.isa",
    "neuronxcc.nki.typing": "nki.typing",
}


@dataclass
class Comparison:
    """What the two kernels made of the same inputs."""

    kernel: str
    worst: float = 0.0  # largest difference, in units of the largest old element
    equal: bool = False
    old_us: float = 0.0
    new_us: float = 0.0
    error: NkiError | Exception | None = None


@dataclass
class Migration:
    """A rewritten file, what a person must decide, and how the two compared."""

    text: str
    decisions: list[Decision]
    comparisons: list[Comparison] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)  # findings of the new text


@dataclass(frozen=True)
class Call:
    """A kernel of the file and the arguments of one run of it."""

    kernel: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def migrate(path: str, text: str, calls: Sequence[Call], target: str | None = None) -> Migration:
    """Rewrite a file with what runs of its kernels show; run the new ones and compare.

    Raises: NkiError, or what else the old kernels raise; SyntaxError if the text is no Python.
    """
    seen = Observer(path, text)
    old = [_run(getattr(seen.module, c.kernel), c, target) for c in calls]
    source = Source(path, ast.parse(text))
    new, decisions = _File(path, text, source, seen).rewrite()
    done = Migration(new, decisions)
    name = path + " (migrated)"
    try:
        module = _module(name, new)
        done.refused = [f for f in level.scan(program.of_text(new, name)) if f.severity != "note"]
    except Exception as error:
        done.comparisons = [Comparison(c.kernel, error=error) for c in calls]
        return done
    for c, before in zip(calls, old):
        done.comparisons.append(_compared(c, before, getattr(module, c.kernel), target))
    return done


def _module(name: str, text: str) -> ModuleType:
    register_source(name, text)
    module = ModuleType("migrated_kernels")
    sys.modules[module.__name__] = module
    module.__file__ = name
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    return module


def _run(kernel: Any, call: Call, target: str | None) -> Any:
    kernel = getattr(kernel, "kernel", kernel)  # @nki.benchmark and its like wrap one
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in call.args]
    return profile(kernel, *copies, target=target, **call.kwargs)


def _compared(call: Call, before: Any, kernel: Any, target: str | None) -> Comparison:
    result = Comparison(call.kernel, old_us=before.latency_us)
    try:
        after = _run(kernel, call, target)
    except Exception as error:
        result.error = error
        return result
    result.new_us = after.latency_us
    one, other = (
        x.outputs if isinstance(x.outputs, tuple) else (x.outputs,) for x in (before, after)
    )
    result.equal = len(one) == len(other)
    for a, b in zip(one, other):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            result.equal, result.worst = False, float("inf")
            return result
        x, y = a.astype(np.float64), b.astype(np.float64)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        size = float(np.nanmax(np.abs(x))) if x.size and not np.isnan(x).all() else 0.0
        with np.errstate(invalid="ignore"):  # infinities that are equal
            gap = float(np.max(np.where(same, 0.0, np.abs(x - y)))) if x.size else 0.0
        result.worst = max(result.worst, gap / size if size else gap)
    return result


class _File:
    """Applies edits to the lines of a file."""

    def __init__(self, path: str, text: str, source: Source, seen: Observer):
        self.path, self.text, self.source, self.seen = path, text, source, seen
        self.lines = text.split("\n")
        self.edits: list[Edit] = []
        self.decisions: list[Decision] = []
        self.comments = _comments(text)
        self.needs_sizes = False
        self._gone: list[tuple[ast.alias, ast.AST]] = []  # imports that the new dialect has not

    def rewrite(self) -> tuple[str, list[Decision]]:
        """Return the new text and what was left for a person."""
        nl, nisa = (
            self._local(f"neuronxcc.nki.{m}", short)
            for m, short in (("language", "nl"), ("isa", "nisa"))
        )
        self._imports(nl, nisa)
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.FunctionDef):
                self._decorators(node)
        for node in self.source.tree.body:
            if isinstance(node, ast.FunctionDef):
                self._function(node, nl, nisa)
        self._refuse_launchers()
        new = self._joined()
        if self.needs_sizes:
            first = re.search(r"^(@|def )", new, re.M)
            assert first is not None
            new = new[: first.start()] + _SIZES.format(nl=nl) + new[first.start() :]
        for alias, node in self._gone:
            if re.search(rf"(?<![\w.]){re.escape(alias.asname or alias.name)}\.", new):
                self._decide(node, f"{alias.name} is not in the new dialect")
        unused = f"import nki.isa as {nisa}"
        if nisa not in self.source.names and f"{nisa}." not in new:
            new = new.replace(f"{unused}\n", "", 1)
        return new, sorted(self.decisions, key=lambda d: d.line)

    def _local(self, module: str, otherwise: str) -> str:
        return next((n for n, full in self.source.names.items() if full == module), otherwise)

    def _function(self, node: ast.FunctionDef, nl: str, nisa: str) -> None:
        used = [
            n
            for n in ast.walk(node)
            if isinstance(n, ast.Call)
            and self.source.dotted(n.func).startswith(("nki.isa.", "nki.language."))
        ]
        reached = any(
            self.seen.of(part).values
            for part in ast.walk(node)
            if isinstance(part, (ast.Name, ast.Call))
        )
        if used and not reached:
            self.decisions.append(
                Decision(
                    node.lineno,
                    f"def {node.name}",
                    "no run reached this function: give a call of it",
                )
            )
            return
        function = Function(node, self.source, self.seen, nl, nisa, self.lines)
        function.rewrite()
        self.needs_sizes |= function.needs_sizes
        self.edits += function.edits
        self.decisions += function.decisions

    # -- imports and decorators --------------------------------------------------------------------

    def _imports(self, nl: str, nisa: str) -> None:
        missing = [
            f"import nki.{module} as {name}"
            for module, name in (("language", nl), ("isa", nisa))
            if name not in self.source.names
        ]
        for node in self.source.tree.body:
            if isinstance(node, ast.Import) and any(
                a.name.startswith("neuronxcc") for a in node.names
            ):
                lines = [line for a in node.names if (line := self._import_line(a, node))]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neuronxcc"):
                lines = self._from_lines(node)
            else:
                continue
            self._edit(node, [*lines, *missing])
            missing = []

    def _import_line(self, alias: ast.alias, node: ast.AST) -> str:
        new = MODULES.get(alias.name)
        if new is None:
            if not alias.name.startswith("neuronxcc"):
                return f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
            self._gone.append((alias, node))  # if it is still used, a person must decide
            return ""
        if alias.asname is None:
            self._decide(node, "names are written in full (neuronxcc.nki...): import with `as`")
            return f"import {new}"
        return f"import {new}" if alias.asname == new else f"import {new} as {alias.asname}"

    def _from_lines(self, node: ast.ImportFrom) -> list[str]:
        lines = []
        for a in node.names:
            full = f"{node.module}.{a.name}"
            local = a.asname or a.name
            if full in MODULES:
                new = MODULES[full]
                lines.append(f"import {new}" if new == local else f"import {new} as {local}")
            elif a.name in ("par_dim", "nki_jit", "benchmark", "baremetal", "simulate_kernel"):
                continue
            elif str(node.module) in MODULES:
                lines.append(
                    f"from {MODULES[str(node.module)]} import {a.name}"
                    + (f" as {a.asname}" if a.asname else "")
                )
            else:
                self._decide(node, f"{full} is not in the new dialect")
        return lines

    def _decorators(self, node: ast.FunctionDef) -> None:
        kept = 0
        for decorator in node.decorator_list:
            dotted = self.source.dotted(
                decorator.func if isinstance(decorator, ast.Call) else decorator
            )
            if not dotted.startswith("nki."):
                continue
            launcher = dotted.rpartition(".")[2] in program.LAUNCHERS
            nki = self._local("neuronxcc.nki", "nki")
            lines = [f"@{nki}.jit"] if launcher and not kept else []
            kept += bool(lines)
            if dotted.rpartition(".")[2] in ("benchmark", "profile"):
                self._decide(
                    decorator,
                    "nothing in the package measures: profile the compiled "
                    "kernel with neuron-explorer",
                )
            indent = self.lines[decorator.lineno - 1][: decorator.col_offset - 1]
            self.edits.append(
                Edit(
                    decorator.lineno,
                    decorator.end_lineno or decorator.lineno,
                    tuple(indent + line for line in lines),
                )
            )

    def _refuse_launchers(self) -> None:
        for node in ast.walk(self.source.tree):
            if (
                isinstance(node, ast.Call)
                and self.source.dotted(node.func)
                in ("nki.benchmark", "nki.baremetal", "nki.profile", "nki.simulate_kernel")
                and not any(
                    node in getattr(n, "decorator_list", ()) for n in ast.walk(self.source.tree)
                )
            ):
                self._decide(
                    node, "nki.simulate(kernel)(...) runs it; nothing in the package measures"
                )

    # -- text --------------------------------------------------------------------------------------

    def _edit(self, node: ast.stmt, lines: list[str]) -> None:
        indent = self.lines[node.lineno - 1][: node.col_offset]
        self.edits.append(
            Edit(
                node.lineno, node.end_lineno or node.lineno, tuple(indent + line for line in lines)
            )
        )

    def _decide(self, node: ast.AST, why: str) -> None:
        line = node.lineno  # type: ignore[attr-defined]
        self.decisions.append(Decision(line, self.lines[line - 1].strip(), why))

    def _joined(self) -> str:
        """Return the lines with the edits applied; comments of replaced lines go before them."""
        lines: list[str] = []
        at = 1
        for edit in sorted(self.edits, key=lambda e: e.first):
            if edit.first < at:
                continue  # on a line that another edit has replaced
            lines += self.lines[at - 1 : edit.first - 1]
            first = self.lines[edit.first - 1]
            indent = first[: len(first) - len(first.lstrip())]
            comments = [
                indent + self.comments[n]
                for n in range(edit.first, edit.last + 1)
                if n in self.comments
            ]
            if (
                len(comments) == 1
                and len(edit.lines) == 1
                and edit.lines[0].strip()
                and len(edit.lines[0]) + len(comments[0].strip()) < 98
            ):
                lines.append(f"{edit.lines[0]}  {comments[0].strip()}")
            else:
                lines += comments + [w for line in edit.lines for w in wrapped(line)]
            if not edit.lines and not comments and self._is_alone(edit):
                lines.append(indent + "pass")
            at = edit.last + 1
        return "\n".join(lines + self.lines[at - 1 :])

    def _is_alone(self, edit: Edit) -> bool:
        """Return whether a removed statement was the only one of its block."""
        for node in ast.walk(self.source.tree):
            for block in ("body", "orelse"):
                part = getattr(node, block, None)
                if (
                    isinstance(part, list)
                    and part
                    and all(
                        any(e.first <= s.lineno <= e.last and not e.lines for e in self.edits)
                        for s in part
                    )
                    and part[-1].lineno == edit.first
                ):
                    return True
        return False


def _comments(text: str) -> dict[int, str]:
    """Return the comments of a file by line, without those that have a line of their own."""
    comments = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
                comments[token.start[0]] = token.string
    except (tokenize.TokenError, IndentationError):
        pass
    return comments


def wrapped(line: str, width: int = 100) -> list[str]:
    """Return a line of code as lines of at most `width`, broken at commas inside a bracket."""
    if len(line) <= width or "(" not in line:
        return [line]
    open_at = line.index("(") + 1
    pieces, rest = [], line
    while len(rest) > width:
        cuts = [n for n in _commas(rest, open_at) if open_at < n < width]
        if not cuts:
            break
        pieces.append(rest[: cuts[-1] + 1])
        rest = " " * open_at + rest[cuts[-1] + 2 :]
    return [*pieces, rest]


def _commas(line: str, begin: int) -> list[int]:
    """Return the places of the commas between the arguments of the call that opens at `begin`."""
    commas, depth, quote = [], 0, ""
    for n in range(begin, len(line)):
        c = line[n]
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            commas.append(n)
    return commas


_SIZES = '''def size_in_bytes(dtype):
    """Return the bytes of an element."""
    if dtype in ({nl}.float32, {nl}.int32, {nl}.uint32):
        return 4
    return 2 if dtype in ({nl}.bfloat16, {nl}.float16, {nl}.int16, {nl}.uint16) else 1


'''
