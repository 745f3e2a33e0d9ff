"""What the expressions of a kernel were in a run: tiles with their shapes, indices, numbers.

The file is compiled once more with every expression of its functions wrapped in a call that notes
the value and passes it on; then a kernel of it runs on the simulator as it would without.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ..indexing.index import Index, Mask, as_int
from ..machine.tensor import Tensor

Place = tuple[int, int, int, int]
_MOST = 64  # different values that are kept of one expression
_NOTE = "__nkisim_saw__"


@dataclass(frozen=True)
class Tile:
    """A tensor as it was: `memory` is hbm, sbuf or psum; `blocks` dims precede the partition."""

    memory: str
    shape: tuple[int, ...]
    dtype: str
    blocks: int = 0


@dataclass(frozen=True)
class Affine:
    """An index expression: const + the sum of coeffs[e] * (0 .. shape[e] - 1)."""

    shape: tuple[int, ...]
    coeffs: tuple[int, ...]
    const: int


@dataclass
class Observed:
    """The values that an expression had; `more`: there were others than are kept."""

    values: dict[Any, None] = field(default_factory=dict)

    def add(self, value: Any) -> None:
        if len(self.values) < _MOST:
            self.values[value] = None

    def tiles(self) -> list[Tile]:
        return [v for v in self.values if isinstance(v, Tile)]

    def affines(self) -> list[Affine]:
        return [v for v in self.values if isinstance(v, Affine)]

    def numbers(self) -> list[int]:
        return [v for v in self.values if isinstance(v, int)]

    @property
    def is_tile(self) -> bool:
        """Return whether it always was a tensor."""
        return bool(self.values) and len(self.tiles()) == len(self.values)

    @property
    def is_mask(self) -> bool:
        return "mask" in self.values


def place_of(node: Any) -> Place:
    """Return where an expression (a node of `ast`) stands in its file."""
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


class _Wrap(ast.NodeTransformer):
    """Puts `__nkisim_saw__(place, value)` around the expressions of functions."""

    KINDS = (
        ast.Name,
        ast.Subscript,
        ast.Call,
        ast.BinOp,
        ast.UnaryOp,
        ast.Compare,
        ast.Attribute,
        ast.IfExp,
        ast.BoolOp,
        ast.Tuple,
    )

    def __init__(self) -> None:
        self.inside = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside += 1
        node.body = [self.visit(part) for part in node.body]
        self.inside -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        if isinstance(node.iter, ast.Call):  # loops look at the frame that asks for them
            node.iter.args = [self.visit(a) for a in node.iter.args]
        else:
            node.iter = self.visit(node.iter)
        node.body = [self.visit(part) for part in node.body]
        node.orelse = [self.visit(part) for part in node.orelse]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        return node  # masks look at how they are joined

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                node.func.value = self.visit(node.func.value)
            node.args = [self.visit(a) for a in node.args]
            node.keywords = [self.visit(k) for k in node.keywords]
        elif isinstance(node, ast.Subscript):
            node.value = self.visit(node.value)
            if isinstance(node.slice, ast.Tuple):  # may hold slices: no value by itself
                node.slice.elts = [self.visit(e) for e in node.slice.elts]
            else:
                node.slice = self.visit(node.slice)
        else:
            super().generic_visit(node)
        if (
            not self.inside
            or not isinstance(node, self.KINDS)
            or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        ):
            return node
        place = ast.Tuple([ast.Constant(n) for n in place_of(node)], ast.Load())
        call = ast.Call(ast.Name(_NOTE, ast.Load()), [place, node], [])
        return ast.copy_location(call, node)


class Observer:
    """A file's module with its expressions wrapped, and what they have been so far."""

    def __init__(self, path: str, text: str):
        self.seen: dict[Place, Observed] = {}
        tree = ast.fix_missing_locations(_Wrap().visit(ast.parse(text, path)))
        self.module = ModuleType("kernels_under_migration")
        self.module.__file__ = path
        setattr(self.module, _NOTE, self._saw)
        sys.modules[self.module.__name__] = self.module
        exec(compile(tree, path, "exec", dont_inherit=True), self.module.__dict__)

    def _saw(self, place: Place, value: Any) -> Any:
        self.seen.setdefault(place, Observed()).add(_note(value))
        return value

    def of(self, node: ast.AST) -> Observed:
        """Return what an expression was; empty if it was never reached."""
        return (
            self.seen.get(place_of(node)) or Observed() if hasattr(node, "lineno") else Observed()
        )


def _note(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Tile(value.memory, tuple(value.shape), value.dtype.name, value.nblock)
    if isinstance(value, Index):
        return Affine(value.shape, value.coeffs, value.const)
    if isinstance(value, Mask):
        return "mask"
    if isinstance(value, tuple) and all(type(v) is int for v in value):
        return value
    number = as_int(value)
    return number if number is not None else type(value).__name__
