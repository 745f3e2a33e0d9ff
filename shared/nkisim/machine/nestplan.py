"""Which `for` statements do nothing but load and add products, as their source says.

    for k in nl.affine_range(k_tiles):
        w = weights[:, k]
        for i in nl.affine_range(size):
            acc += nisa.nc_matmul(w, right[:, k, r + i:r + i + rows])

Nothing in such a nest can tell one iteration from another but its indices: each body is a few
statements and then, at most, one more loop; its calls are NKI's own, and its names hold numbers,
indices and tensors. So its body needs to run once only (nest.py). The syntax tree has to be that of
the code that runs: it is compiled to find out.
"""
from __future__ import annotations

import ast
import functools
import inspect
import linecache
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..chip.memory import Buffer
from .index import Grid, Index, MGrid, Slice
from .loopindex import LoopIndex
from .tensor import Tensor

_RANGES = ("affine_range", "sequential_range", "static_range", "range")
#: functions besides instructions: they make indices, tiles, and products of tiles
_FUNCTIONS = ("ds", "arange", "ParDim", "ndarray", "matmul")
#: where the functions of the languages are, and those that do more than issue instructions
_LANGUAGES = ("nkisim.language.", "nkisim.isa.")
_REMEMBERS = {"device_print", "dropout", "dynamic_range", "fori_loop", "loop_reduce", "no_reorder",
              "rand", "random_seed", "scalar", "shared_constant", "shared_identity_matrix",
              "while_loop"}
#: what tensors have that makes another view of them, or a copy
_METHODS = {"astype", "broadcast", "broadcast_to", "expand_dim", "expand_dims", "flatten_dims",
            "permute", "reshape", "reshape_dim", "select", "slice", "squeeze_dim"}
_LOOKS_AROUND = {"locals", "vars", "eval", "exec", "globals"}   # who may read any variable
_EXPRESSION = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Slice, ast.Tuple,
               ast.operator, ast.unaryop, ast.expr_context)
_ORDER = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
#: types of values that do nothing but what we see; languages add what their tensors are
PLAIN = [int, float, bool, str, type(None), type(...), Tensor, LoopIndex, Index, Grid, Slice,
         Buffer]
_OWN = __name__.partition(".")[0]


@dataclass(eq=False)
class Plan:
    """A nest: how many loops, and which names its expressions need to be what they seem.

    `ranges`, `calls` and `values` are dotted names: of what the loops run over, of the functions
    that are called, and of what is read; `sums` are what a product is added to. `places`: variables
    of which the nest makes nothing but places: they are added up in subscripts, or before.
    """

    depth: int = 0
    ranges: set[tuple[str, ...]] = field(default_factory=set)
    calls: set[tuple[str, ...]] = field(default_factory=set)
    values: set[tuple[str, ...]] = field(default_factory=set)
    sums: set[tuple[str, ...]] = field(default_factory=set)
    places: set[str] = field(default_factory=set)

    @functools.cached_property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Return all dotted names, in an order that stays."""
        return tuple(sorted(self.ranges | self.calls | self.values | self.sums))

    wide: bool = False              # loops that run once in a run without values (nestonce.py)

    def holds(self, frame: FrameType) -> bool:
        """Tell whether the names are, in a frame, what the plan needs them to be."""
        variables, known = frame.f_locals, frame.f_globals

        def at(path: tuple[str, ...]) -> Any:
            return found(path, variables if path[0] in variables else known)
        fine = all(_is_ours(at(path), _RANGES) for path in self.ranges) \
            and all(_is_ours(at(path), _FUNCTIONS) or self.wide and _is_known(at(path))
                    for path in self.calls) \
            and all(_is_plain(at(path)) or self.wide and _is_known(at(path), True)
                    for path in self.values) \
            and all(type(at(path)) is Tensor for path in self.sums)
        if type(variables) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            variables.clear()           # a copy that the frame keeps: tiles would live on in it
        return fine


_NOTHING = object()


def found(path: tuple[str, ...], names: dict[str, Any]) -> Any:
    """Return what a dotted name is, where looking it up has no effect that we do not see."""
    x: Any = names.get(path[0], _NOTHING)
    for name in path[1:]:
        kind = type(x)
        if not (issubclass(kind, ModuleType) or kind is Grid or _from_us(x)):
            return _NOTHING
        x = getattr(x, name, _NOTHING)
    return x


def _from_us(x: Any) -> bool:
    return (getattr(type(x), "__module__", None) or "").partition(".")[0] == _OWN


def _is_ours(function: Any, names: tuple[str, ...]) -> bool:
    """Tell whether a function is an instruction of ours, or another one of these names."""
    return (getattr(function, "__module__", None) or "").partition(".")[0] == _OWN \
        and (getattr(function, "__name__", "") in names
             or names is _FUNCTIONS and hasattr(function, "row"))


def _is_known(x: Any, as_value: bool = False) -> bool:
    """Tell whether something is a function of ours that keeps nothing to itself; as a value, it
    may be an operator of NumPy or a member of an enum."""
    if as_value and (isinstance(x, np.ufunc) or isinstance(x, Enum) and _from_us(x)):
        return True
    module = getattr(x, "__module__", None) or ""
    return isinstance(x, FunctionType) and module.startswith(_LANGUAGES) \
        and x.__name__ not in _REMEMBERS


def _is_plain(value: Any) -> bool:
    """Tell whether reading, adding and subscripting a value has no effect that we do not see."""
    return type(value) in PLAIN or isinstance(value, (np.integer, np.dtype, MGrid)) \
        or type(value) is tuple and all(type(x) is int for x in value) \
        or isinstance(value, type) and issubclass(value, np.generic)


#: by code, place and whether it is wide; the code stays alive here
_plans: dict[tuple[int, int, bool], tuple[CodeType, Plan | None]] = {}


def plan_of(frame: FrameType, wide: bool = False) -> Plan | None:
    """Return the plan of the nest whose outermost `for` now asks for its iterator in a frame.

    `wide`: any instructions, and any number of loops in a loop.
    """
    code, at = frame.f_code, frame.f_lasti
    known = _plans.get((id(code), at, wide))        # hashing the code itself would take long
    if known is None:
        known = _plans[id(code), at, wide] = code, _find(code, frame.f_lineno, wide)
    return known[1]


def _find(code: CodeType, line: int, wide: bool) -> Plan | None:
    function = _function(code)
    if function is None:
        return None
    heads = [n for n in ast.walk(function) if isinstance(n, ast.For) and n.iter.lineno == line]
    return _plan(heads[0], function, code, wide) if len(heads) == 1 else None


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


def _plan(head: ast.For, function: ast.AST, code: CodeType, wide: bool) -> Plan | None:
    plan = Plan(wide=wide)
    own: set[str] = set()               # names that the nest gives values to
    stores = any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)
                 for n in ast.walk(head))       # t[k] = u[k]
    if not _is_loop(head, plan, own) or not (plan.calls or wide and stores) \
            or not all(_only_inside(name, function, code) for name in own):
        return None
    plan.values = {path for path in plan.values if path[0] not in own}
    plan.calls = {path for path in plan.calls if not (
        wide and path[0] in own and len(path) == 2 and path[1] in _METHODS)}
    plan.sums = {path for path in plan.sums if path[0] not in own}
    plan.places = {name for name in _places(head, own, _how_often(function, code))
                   if name in code.co_varnames and name not in code.co_cellvars}
    return plan


def _is_loop(node: ast.For, plan: Plan, own: set[str]) -> bool:
    """Tell whether a loop is one of a nest's, and note what it needs and binds."""
    call, target = node.iter, node.target
    path = _path(call.func) if isinstance(call, ast.Call) and not call.keywords else None
    if path is None or path[-1] not in _RANGES or not isinstance(target, ast.Name) or node.orelse:
        return False
    plan.depth += 1
    plan.ranges.add(path)
    own.add(target.id)
    assert isinstance(call, ast.Call)
    return all(_reads(plan, e) for e in call.args) and all(
        _is_loop(s, plan, own) if isinstance(s, ast.For) and (plan.wide or s is node.body[-1])
        else _is_simple(s, plan, own) for s in node.body)


def _places(head: ast.For, own: set[str], often: dict[str, int]) -> set[str]:
    """Return the names that occur in subscripts only, or in what names of the nest's `own` are
    bound to, where they are added to others.

    A product with an own name counts as something else; of other products, the side is meant whose
    names are bound more `often`.
    """
    placed: set[int] = set()

    def changes(e: ast.expr) -> int:
        return max((often.get(n.id, 0) for n in ast.walk(e) if isinstance(n, ast.Name)), default=0)

    def added(e: ast.expr | None) -> None:
        if isinstance(e, ast.Name):
            placed.add(id(e))
        elif isinstance(e, ast.UnaryOp):
            added(e.operand)
        elif isinstance(e, ast.BinOp):
            sides = [e.left, e.right]
            if isinstance(e.op, ast.Mult):
                most = changes(e)
                sides = [x for x in sides if changes(x) == most] if not any(
                    isinstance(n, ast.Name) and n.id in own for n in ast.walk(e)) else []
            elif not isinstance(e.op, (ast.Add, ast.Sub)):
                sides = []
            for x in sides:
                added(x)

    for s in ast.walk(head):
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
            added(s.value)
        if not isinstance(s, ast.Subscript):
            continue
        for e in s.slice.elts if isinstance(s.slice, ast.Tuple) else [s.slice]:
            if isinstance(e, ast.Slice):
                added(e.lower)
                added(e.upper)
            elif isinstance(e, ast.Call):               # nl.ds
                added(e.args[0] if e.args else None)
            else:
                added(e)
    names = [n for n in ast.walk(head) if isinstance(n, ast.Name)]
    return {n.id for n in names} - {n.id for n in names if id(n) not in placed} - own


def _how_often(function: ast.AST, code: CodeType) -> dict[str, int]:
    """Return the names that loops of a function give values to (2), and its arguments (1): what
    else there is changes less often."""
    in_loops = {n.id for loop in ast.walk(function) if isinstance(loop, (ast.For, ast.While))
                for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return dict.fromkeys(code.co_varnames[:code.co_argcount], 1) | dict.fromkeys(in_loops, 2)


def _is_simple(s: ast.stmt, plan: Plan, own: set[str]) -> bool:
    """Tell whether a statement is one of a nest's, and note what it needs and binds."""
    if isinstance(s, ast.If):
        return (plan.wide or not s.orelse) and _reads(plan, s.test, True) \
            and all(_is_loop(x, plan, own) if plan.wide and isinstance(x, ast.For)
                    else _is_simple(x, plan, own) for x in (*s.body, *s.orelse))
    if isinstance(s, ast.Expr):
        return isinstance(s.value, (ast.Call, ast.Constant)) and _reads(plan, s.value)
    if isinstance(s, ast.Assign):
        target = s.targets[0]
        if len(s.targets) > 1:
            return False
        if isinstance(target, ast.Name):
            own.add(target.id)
            return _reads(plan, s.value)
        return isinstance(target, ast.Subscript) and _reads(plan, target) and _reads(plan, s.value)
    if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
        plan.sums.add((s.target.id,))
    return isinstance(s, ast.AugAssign) and isinstance(s.op, ast.Add) \
        and isinstance(s.target, (ast.Name, ast.Subscript)) \
        and (plan.wide or isinstance(s.value, ast.Call)) \
        and _reads(plan, s.target) and _reads(plan, s.value)


def _reads(plan: Plan, e: ast.expr, truth: bool = False) -> bool:
    """Note the names that an expression reads and calls; tell whether it does nothing else.

    Only where its `truth` is asked for may it compare: an `if`, and `accumulate=k > 0`.
    """
    if isinstance(e, ast.Call):
        path = _path(e.func)
        if any(k.arg is None for k in e.keywords):
            return False
        if path is not None:
            plan.calls.add(path)
        elif not (plan.wide and isinstance(e.func, ast.Attribute) and e.func.attr in _METHODS
                  and _reads(plan, e.func.value)):          # tile[:, k].reshape(...)
            return False
        return all(_reads(plan, x) for x in e.args) \
            and all(_reads(plan, k.value, k.arg == "accumulate") for k in e.keywords)
    if isinstance(e, (ast.Name, ast.Attribute)):
        path = _path(e)
        if path is None:
            return False
        plan.values.add(path)
        return True
    parts = [x for x in ast.iter_child_nodes(e) if isinstance(x, ast.expr)]
    if isinstance(e, (ast.Compare, ast.BoolOp)):
        plain = isinstance(e, ast.BoolOp) or all(isinstance(op, _ORDER) for op in e.ops)
        return truth and plain and all(_reads(plan, x, True) for x in parts)
    return (isinstance(e, _EXPRESSION) or plan.wide and isinstance(e, ast.List)) \
        and all(_reads(plan, x, truth) for x in parts)


def _path(node: ast.expr) -> tuple[str, ...] | None:
    """Return the parts of a dotted name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        front = _path(node.value)
        return None if front is None else (*front, node.attr)
    return None


def _binds(s: ast.stmt, name: str) -> bool:
    """Tell whether a statement gives a variable a value, whatever way it goes."""
    if isinstance(s, ast.If):
        return all(any(_binds(x, name) for x in part) for part in (s.body, s.orelse))
    return isinstance(s, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == name for t in s.targets)


def _only_inside(name: str, function: ast.AST, code: CodeType) -> bool:
    """Tell whether each statement that reads a variable comes after one of the same block that
    binds it: nobody sees the value that a loop leaves."""
    if name not in code.co_varnames or name in code.co_cellvars:
        return False
    inside: set[int] = set()
    for block in ast.walk(function):
        if not isinstance(block, (ast.For, ast.If)):
            continue
        for part in (block.body, block.orelse):
            bound = isinstance(block, ast.For) and part is block.body \
                and isinstance(block.target, ast.Name) and block.target.id == name
            for s in part:
                if bound:
                    inside.update(map(id, ast.walk(s)))
                bound = bound or _binds(s, name)
    return not any(isinstance(n, ast.Name) and (
        n.id in _LOOKS_AROUND or n.id == name and not isinstance(n.ctx, ast.Store)
        and id(n) not in inside) for n in ast.walk(function))


__all__ = ["PLAIN", "Plan", "found", "plan_of"]
