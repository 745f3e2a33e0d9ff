"""What the source of a loop says of it: whether nothing but indices tells its iterations apart.

    for t in range(tiles):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[t * 128:(t + 1) * 128])
        store(out, tile, t)

Such a loop has statements, `if`s and loops of the same kind. They bind variables that nothing reads
outside of the iteration, read numbers, indices and tensors, and call functions of NKI, or functions
of the kernel's author that do no more than that. So its record depends on what its names hold as it
begins, and its iterations differ by their indices alone. The syntax tree has to be that of the code
that runs: it is compiled to find out.
"""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
from collections import ChainMap
from collections.abc import Callable, Iterator
from enum import Enum
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..chip.memory import Buffer
from ..indexing.index import Grid, Index, MGrid, Slice
from ..lint.program import names_of
from ..machine.limits import ParDim
from ..machine.tensor import Tensor
from ..machine.traced_variables import forget
from .loopindex import LoopIndex

Path = tuple[str, ...]  # a dotted name
Names = ChainMap[str, Any]

_RANGES = ("affine_range", "sequential_range", "static_range", "range")
#: besides those of the languages
_PURE = (len, min, max, abs, int, divmod, slice, ParDim)
#: where the functions of the languages are, and those that do more than issue instructions
_LANGUAGES = ("nkisim.language.", "nkisim.isa.")
_REMEMBERS = {
    "device_print",
    "dropout",
    "dynamic_range",
    "fori_loop",
    "loop_reduce",
    "no_reorder",
    "rand",
    "random_seed",
    "scalar",
    "shared_constant",
    "shared_identity_matrix",
    "while_loop",
}
#: what tensors have that makes another view of them, or a copy
_METHODS = {
    "astype",
    "broadcast",
    "broadcast_to",
    "expand_dim",
    "expand_dims",
    "flatten_dims",
    "permute",
    "reshape",
    "reshape_dim",
    "select",
    "slice",
    "squeeze_dim",
}
_LOOKS_AROUND = {"locals", "vars", "eval", "exec", "globals"}  # what may read any variable
_EXPRESSION = (
    ast.Name,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.List,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)
_ORDER = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
#: types of values that have no effect when they are read; languages add what their tensors are
PLAIN = {
    int,
    ParDim,
    float,
    bool,
    str,
    type(None),
    type(...),
    Tensor,
    LoopIndex,
    Index,
    Grid,
    Slice,
    slice,
    Buffer,
    MGrid,
}
_OWN = __name__.partition(".")[0]
_NOTHING = object()


# -- what names hold -------------------------------------------------------------------------------


def _found(path: Path, names: Names) -> Any:
    """Return what a dotted name is, where looking it up has no effect of its own."""
    value = names.get(path[0], _NOTHING)
    for name in path[1:]:
        if not (isinstance(value, ModuleType) or type(value) is Grid or _from_us(value)):
            return _NOTHING
        value = getattr(value, name, _NOTHING)
    return value


def _from_us(value: Any) -> bool:
    return (getattr(type(value), "__module__", None) or "").partition(".")[0] == _OWN


def _is_range(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] == _OWN and getattr(
        value, "__name__", ""
    ) in _RANGES


def _is_function(value: Any) -> bool:
    """Return whether something is a function of NKI that keeps nothing to itself."""
    return (
        isinstance(value, FunctionType)
        and (value.__module__ or "").startswith(_LANGUAGES)
        and value.__name__ not in _REMEMBERS
        or any(value is f for f in _PURE)
    )


def _is_value(value: Any) -> bool:
    """Return whether reading, adding and subscripting a value has no effect of its own."""
    cls = type(value)
    if cls in PLAIN:
        return True
    if cls is tuple:
        return all(map(_is_value, value))
    return (
        isinstance(value, (np.integer, np.dtype, np.ufunc))
        or isinstance(value, Enum)
        and _from_us(value)
        or isinstance(value, FunctionType)
        and _is_function(value)
        or isinstance(value, type)
        and issubclass(value, np.generic)
    )


def _is_tensor(value: Any) -> bool:
    return type(value) is Tensor


class Plan:
    """What a loop, or a function, needs of the names in it.

    `paths`: what each has to be. `depth`: loops in it.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.own: set[str] = set()  # names that it binds
        self.ranges: set[Path] = set()
        self.calls: set[Path] = set()
        self.values: set[Path] = set()
        self.sums: set[Path] = set()  # what something is added to in place

    @functools.cached_property
    def paths(self) -> list[tuple[Path, Callable[[Any], bool]]]:
        """Return the names that come from outside, each with what it has to be."""
        calls = {
            p for p in self.calls if p[0] not in self.own or len(p) != 2 or p[1] not in _METHODS
        }
        return [
            (p, fits)
            for paths, fits in (
                (self.ranges, _is_range),
                (calls, _is_function),
                ({p for p in self.values if p[0] not in self.own}, _is_value),
                ({p for p in self.sums if p[0] not in self.own}, _is_tensor),
            )
            for p in sorted(paths)
        ]

    def holds(self, frame: FrameType) -> bool:
        """Return whether the names are, in a frame, what they have to be."""
        variables = frame.f_locals
        fine = self._fits(ChainMap(variables, frame.f_globals, vars(builtins)), ())
        forget(frame, variables)  # tiles would live on in it
        return fine

    def _fits(self, names: Names, within: tuple[CodeType, ...]) -> bool:
        for path, fits in self.paths:
            value = _found(path, names)
            if not fits(value) and not (fits is _is_function and _is_known(value, within)):
                return False
        return True


def _is_known(function: Any, within: tuple[CodeType, ...]) -> bool:
    """Return whether something is a function of the kernel's author that does no more than a loop
    may; `within`: those that call it."""
    if not isinstance(function, FunctionType) or function.__code__ in within:
        return False
    code = function.__code__
    plan = _plan(code, -1, lambda: _of_function(code))
    given = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
    return (
        plan is not None
        and all(map(_is_value, given))
        and plan._fits(ChainMap(*names_of(function).maps, vars(builtins)), (*within, code))
    )


# -- the source ------------------------------------------------------------------------------------

#: by code and place; the code stays alive here
_plans: dict[tuple[int, int], tuple[CodeType, Plan | None]] = {}


def plan_of(frame: FrameType) -> Plan | None:
    """Return the plan of the loop whose `for` now asks for its iterator in a frame."""
    code = frame.f_code
    return _plan(code, frame.f_lasti, lambda: _of_loop(code, frame.f_lineno))


def _plan(code: CodeType, at: int, find: Callable[[], Plan | None]) -> Plan | None:
    cached = _plans.get((id(code), at))  # hashing the code itself would take long
    if cached is None:
        cached = _plans[id(code), at] = code, find()
    return cached[1]


@functools.lru_cache(maxsize=16)
def _parsed(text: str, file: str) -> tuple[ast.Module, CodeType] | None:
    try:
        return ast.parse(text), compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _tree(code: CodeType) -> ast.FunctionDef | None:
    """Return the syntax tree of a function, if its source is still what was compiled."""
    parsed = _parsed("".join(linecache.getlines(code.co_filename)), code.co_filename)
    if parsed is None:
        return None
    tree, module = parsed
    if not any(
        c.co_code == code.co_code
        and c.co_names == code.co_names
        and c.co_varnames == code.co_varnames
        for c in _codes(module, code)
    ):
        return None
    for n in ast.walk(tree):
        if (
            isinstance(n, ast.FunctionDef)
            and n.name == code.co_name
            and code.co_firstlineno == min([n.lineno, *(d.lineno for d in n.decorator_list)])
        ):
            return n
    return None


def _codes(outer: CodeType, like: CodeType) -> Iterator[CodeType]:
    """Yield the code in another one that has the name and the first line of a third."""
    for c in outer.co_consts:
        if isinstance(c, CodeType):
            if (c.co_name, c.co_firstlineno) == (like.co_name, like.co_firstlineno):
                yield c
            yield from _codes(c, like)


def _of_loop(code: CodeType, line: int) -> Plan | None:
    function = _tree(code)
    if function is None:
        return None
    heads = [n for n in ast.walk(function) if isinstance(n, ast.For) and n.iter.lineno == line]
    if len(heads) != 1:
        return None
    plan = Plan()
    fine = _is_loop(heads[0], plan) and all(
        _only_inside(n, function, code, heads[0]) for n in plan.own
    )
    return plan if fine and (plan.calls or plan.sums or _stores(heads[0])) else None


def _of_function(code: CodeType) -> Plan | None:
    function = _tree(code)
    if function is None or function.args.vararg or function.args.kwarg or code.co_cellvars:
        return None
    plan = Plan()
    plan.own.update(code.co_varnames)
    body = function.body
    if isinstance(body[-1], ast.Return):
        if body[-1].value is not None and not _reads(plan, body[-1].value):
            return None
        body = body[:-1]
    return (
        plan
        if all(_is_statement(s, plan) for s in body)
        and not any(isinstance(n, ast.Name) and n.id in _LOOKS_AROUND for n in ast.walk(function))
        else None
    )


def _stores(head: ast.For) -> bool:
    """Return whether something is assigned to a part of a tile: t[k] = u[k]."""
    return any(
        isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) for n in ast.walk(head)
    )


def _is_loop(node: ast.For, plan: Plan) -> bool:
    """Return whether a loop's first iteration can record it; note what it needs and binds."""
    call, target = node.iter, node.target
    path = _path(call.func) if isinstance(call, ast.Call) and not call.keywords else None
    if path is None or path[-1] not in _RANGES or not isinstance(target, ast.Name) or node.orelse:
        return False
    assert isinstance(call, ast.Call)
    plan.depth += 1
    plan.ranges.add(path)
    plan.own.add(target.id)
    return all(_reads(plan, e) for e in call.args) and all(
        _is_statement(s, plan) for s in node.body
    )


def _is_statement(s: ast.stmt, plan: Plan) -> bool:
    """Return whether a statement does no more than it may; note what it needs and binds."""
    if isinstance(s, ast.For):
        return _is_loop(s, plan)
    if isinstance(s, ast.If):
        return _reads(plan, s.test, True) and all(
            _is_statement(inner, plan) for inner in (*s.body, *s.orelse)
        )
    if isinstance(s, ast.Expr):
        return isinstance(s.value, (ast.Call, ast.Constant)) and _reads(plan, s.value)
    if isinstance(s, ast.Assign):
        target = s.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if len(s.targets) == 1 and all(isinstance(n, ast.Name) for n in names):
            plan.own.update(n.id for n in names if isinstance(n, ast.Name))
            return _reads(plan, s.value)
        return (
            len(s.targets) == 1
            and isinstance(target, ast.Subscript)
            and _reads(plan, target)
            and _reads(plan, s.value)
        )
    if not isinstance(s, ast.AugAssign) or not isinstance(s.op, ast.Add):
        return isinstance(s, ast.Pass)
    if isinstance(s.target, ast.Name):
        plan.sums.add((s.target.id,))
    return (
        isinstance(s.target, (ast.Name, ast.Subscript))
        and _reads(plan, s.target)
        and _reads(plan, s.value)
    )


def _reads(plan: Plan, e: ast.expr, truth: bool = False) -> bool:
    """Note the names that an expression reads and calls; return whether it does nothing else.

    Only where its `truth` is asked for may it compare: an `if`, and `accumulate=k > 0`.
    """
    if isinstance(e, ast.Call):
        path = _path(e.func)
        if any(k.arg is None for k in e.keywords):
            return False
        if path is not None:
            plan.calls.add(path)
        elif not (
            isinstance(e.func, ast.Attribute)
            and e.func.attr in _METHODS
            and _reads(plan, e.func.value)
        ):  # tile[:, k].reshape(...)
            return False
        return all(_reads(plan, inner) for inner in e.args) and all(
            _reads(plan, k.value, k.arg == "accumulate") for k in e.keywords
        )
    if isinstance(e, (ast.Name, ast.Attribute)):
        path = _path(e)
        if path is None:
            return False
        plan.values.add(path)
        return True
    if isinstance(e, ast.IfExp):
        return _reads(plan, e.test, True) and _reads(plan, e.body) and _reads(plan, e.orelse)
    parts = [inner for inner in ast.iter_child_nodes(e) if isinstance(inner, ast.expr)]
    if isinstance(e, (ast.Compare, ast.BoolOp)):
        plain = isinstance(e, ast.BoolOp) or all(isinstance(op, _ORDER) for op in e.ops)
        return truth and plain and all(_reads(plan, inner, True) for inner in parts)
    return isinstance(e, _EXPRESSION) and all(_reads(plan, inner, truth) for inner in parts)


def _path(node: ast.expr) -> Path | None:
    """Return the parts of a dotted name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        front = _path(node.value)
        return None if front is None else (*front, node.attr)
    return None


def _binds(s: ast.stmt, name: str) -> bool:
    """Return whether a statement gives a variable a value, whatever way it goes."""
    if isinstance(s, ast.If):
        return all(any(_binds(inner, name) for inner in part) for part in (s.body, s.orelse))
    return isinstance(s, ast.Assign) and any(
        isinstance(n, ast.Name) and n.id == name
        for t in s.targets
        for n in (t.elts if isinstance(t, ast.Tuple) else [t])
    )


def _only_inside(name: str, function: ast.AST, code: CodeType, loop: ast.For) -> bool:
    """Return whether each statement that reads a variable comes after one of the same block that
    binds it: what an iteration of a loop leaves in it is not read. What is bound before the loop
    counts neither in it nor after it."""
    if name not in code.co_varnames or name in code.co_cellvars:
        return False
    inside: set[int] = set()
    for block in ast.walk(function):
        if not isinstance(block, (ast.For, ast.If)):
            continue
        for part in (block.body, block.orelse):
            bound = (
                isinstance(block, ast.For)
                and part is block.body
                and isinstance(block.target, ast.Name)
                and block.target.id == name
            )
            for s in part:
                if any(n is loop for n in ast.walk(s)):
                    bound = False
                    continue
                if bound:
                    inside.update(map(id, ast.walk(s)))
                bound = bound or _binds(s, name)
    return not any(
        isinstance(n, ast.Name)
        and (
            n.id in _LOOKS_AROUND
            or n.id == name
            and not isinstance(n.ctx, ast.Store)
            and id(n) not in inside
        )
        for n in ast.walk(function)
    )


__all__ = ["PLAIN", "Plan", "plan_of"]
