"""Which `for` statements do nothing but add products to one tile, as their source says.

    for k in nl.affine_range(k_tiles):
        for i in nl.affine_range(size):
            acc += nisa.nc_matmul(left[:, k, i], right[:, k, r + i:r + i + rows])

Nothing in such a nest can tell one iteration from another but its indices: there is one statement,
its calls are NKI's own, and its names hold numbers and tensors. So its body needs to run once only
(nest.py). The syntax tree has to be that of the code that runs: it is compiled to find out.
"""
from __future__ import annotations

import ast
import functools
import inspect
import linecache
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np

from .loopindex import LoopIndex
from .tensor import Tensor

_RANGES = ("affine_range", "sequential_range")
_LOOKS_AROUND = {"locals", "vars", "eval", "exec", "globals"}   # who may read any variable
_EXPRESSION = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Slice, ast.Tuple,
               ast.operator, ast.unaryop, ast.expr_context)


@dataclass(frozen=True)
class Plan:
    """A nest: how many loops, the dotted names that it calls, and the names that it reads."""

    depth: int
    ranges: tuple[tuple[str, ...], ...]
    product: tuple[str, ...]
    data: tuple[str, ...]

    def holds(self, frame: FrameType) -> bool:
        """Tell whether the names are, in a frame, what the plan needs them to be."""
        code, known = frame.f_code, frame.f_globals
        own = __name__.partition(".")[0]
        for path in (*self.ranges, self.product):
            if path[0] in code.co_varnames or path[0] in code.co_freevars:
                return False
            found: Any = known.get(path[0])
            for name in path[1:]:
                found = getattr(found, name, None)
            if (getattr(found, "__module__", None) or "").partition(".")[0] != own:
                return False
        if not getattr(getattr(found, "row", None), "accumulates", False):
            return False
        variables = frame.f_locals
        fine = all(_is_plain(variables[n] if n in variables else known.get(n)) for n in self.data)
        if type(variables) is dict and code.co_flags & inspect.CO_OPTIMIZED:
            variables.clear()           # a copy that the frame keeps: tiles would live on in it
        return fine


def _is_plain(value: Any) -> bool:
    """Tell whether reading, adding and subscripting a value has no effect that we do not see."""
    return type(value) in (int, Tensor, LoopIndex) or isinstance(value, np.integer)


#: by code and place, which stay alive here
_plans: dict[tuple[int, int], tuple[CodeType, Plan | None]] = {}


def plan_of(frame: FrameType) -> Plan | None:
    """Return the plan of the nest whose outermost `for` now asks for its iterator in a frame."""
    code, at = frame.f_code, frame.f_lasti
    known = _plans.get((id(code), at))              # hashing the code itself would take long
    if known is None:
        known = _plans[id(code), at] = code, _find(code, frame.f_lineno)
    return known[1]


def _find(code: CodeType, line: int) -> Plan | None:
    function = _function(code)
    if function is None:
        return None
    heads = [n for n in ast.walk(function) if isinstance(n, ast.For) and n.iter.lineno == line]
    return _plan(heads[0], function, code) if len(heads) == 1 else None


@functools.lru_cache(maxsize=16)
def _parsed(text: str, file: str) -> tuple[ast.Module, CodeType] | None:
    try:
        return ast.parse(text), compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None


def _function(code: CodeType) -> ast.AST | None:
    """Return the syntax tree of a function, if its source is still what was compiled."""
    parsed = _parsed("".join(linecache.getlines(code.co_filename)), code.co_filename)
    if parsed is None:
        return None
    tree, module = parsed
    compiled = _nested(module, code)
    if compiled is None or compiled.co_code != code.co_code \
            or compiled.co_names != code.co_names or compiled.co_varnames != code.co_varnames:
        return None
    for n in ast.walk(tree):
        if isinstance(n, ast.FunctionDef) and n.name == code.co_name and code.co_firstlineno \
                == min([n.lineno, *(d.lineno for d in n.decorator_list)]):
            return n
    return None


def _nested(outer: CodeType, code: CodeType) -> CodeType | None:
    for c in outer.co_consts:
        if isinstance(c, CodeType):
            if (c.co_name, c.co_firstlineno) == (code.co_name, code.co_firstlineno):
                return c
            if (found := _nested(c, code)) is not None:
                return found
    return None


def _plan(head: ast.For, function: ast.AST, code: CodeType) -> Plan | None:
    ranges, indices = [], []
    node: ast.stmt = head
    data: list[ast.expr] = []
    while isinstance(node, ast.For):
        call, target = node.iter, node.target
        path = _path(call.func) if isinstance(call, ast.Call) and not call.keywords else None
        if path is None or path[-1] not in _RANGES or not isinstance(target, ast.Name) \
                or node.orelse or len(node.body) != 1:
            return None
        ranges.append(path)
        indices.append(target.id)
        assert isinstance(call, ast.Call)
        data += call.args
        node = node.body[0]
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add) \
            or not isinstance(node.value, ast.Call):
        return None
    call, total = node.value, node.target
    product = _path(call.func)
    of: ast.expr = total.value if isinstance(total, ast.Subscript) \
        and isinstance(total.slice, ast.Constant) else total            # acc[...] += ...
    if product is None or not isinstance(of, ast.Name) or of.id in indices \
            or any(k.arg is None for k in call.keywords):
        return None
    data += [of, *call.args, *(k.value for k in call.keywords)]
    inside = [n for e in data for n in ast.walk(e)]
    if not all(isinstance(n, _EXPRESSION) for n in inside) \
            or not all(_only_inside(i, function, code) for i in indices):
        return None
    names = {n.id for n in inside if isinstance(n, ast.Name)} - set(indices)
    return Plan(len(ranges), tuple(sorted(set(ranges))), product, tuple(sorted(names)))


def _path(node: ast.expr) -> tuple[str, ...] | None:
    """Return the parts of a dotted name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        front = _path(node.value)
        return None if front is None else (*front, node.attr)
    return None


def _only_inside(name: str, function: ast.AST, code: CodeType) -> bool:
    """Tell whether a variable is read in the bodies of loops over it only: nobody sees its last
    value."""
    if name not in code.co_varnames or name in code.co_cellvars:
        return False
    inside = {id(n) for loop in ast.walk(function) if isinstance(loop, ast.For)
              and isinstance(loop.target, ast.Name) and loop.target.id == name
              for s in loop.body for n in ast.walk(s)}
    return not any(isinstance(n, ast.Name) and (
        n.id in _LOOKS_AROUND or n.id == name and not isinstance(n.ctx, ast.Store)
        and id(n) not in inside) for n in ast.walk(function))


__all__ = ["Plan", "plan_of"]
