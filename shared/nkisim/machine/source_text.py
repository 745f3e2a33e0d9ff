"""What the user's line says: the texts of a call's arguments, and of an operator's operands.

Cures quote them, so that what is printed can be put in the place of the line. Only read when
something has failed; what cannot be read for certain is left out, and the cure is general.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from ..errors import Where, user_frame


def _parsed(frame: FrameType) -> ast.Module | None:
    """Return the file of a frame, None if it cannot be read."""
    return _tree("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))


def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _statement() -> tuple[ast.stmt | None, FrameType | None]:
    """Return the statement that the user's code is executing, and its frame."""
    frame = user_frame(sys._getframe(1))
    if frame is None or frame.f_code.co_name.startswith("<"):
        return None, None  # a lambda or comprehension is a part of a statement
    tree = _parsed(frame)
    if tree is None:
        return None, frame
    return _innermost(tree, frame.f_lineno, frame.f_code.co_firstlineno), frame


def _innermost(tree: ast.Module, line: int, first: int = 1) -> ast.stmt | None:
    """Return the statement at a line, the last that begins there or before."""
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and first <= node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(statements, key=lambda node: node.lineno, default=None)


def _nodes(node_type: Any) -> Iterator[tuple[Any, FrameType]]:
    """Yield the expressions of a type in the statement, not those of a body below it."""
    statement, frame = _statement()
    if statement is None or frame is None:
        return
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop(0)
        if isinstance(node, node_type):
            yield node, frame
        todo += [
            child
            for child in ast.iter_child_nodes(node)
            if node is not statement or not isinstance(child, ast.stmt)
        ]


def calls(api: str) -> list[ast.Call]:
    """Return the calls of a function in the statement, by the last part of its name."""
    name = api.rpartition(".")[2]
    return [
        node
        for node, _ in _nodes(ast.Call)
        if getattr(node.func, "attr", getattr(node.func, "id", "")) == name
    ]


def arguments(api: str, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of a call's arguments; `names`: those of the signature, in its order.

    Empty if the statement has no such call, or two.
    """
    matching = calls(api)
    if len(matching) != 1 or any(
        isinstance(argument, ast.Starred) for argument in matching[0].args
    ):
        return {}
    texts = {name: ast.unparse(argument) for name, argument in zip(names, matching[0].args)}
    return texts | {k.arg: ast.unparse(k.value) for k in matching[0].keywords if k.arg}


def argument(name: str) -> str:
    """Return the text that a call of the statement gives for `name=`; "" if there is not one."""
    values = [k.value for node, _ in _nodes(ast.Call) for k in node.keywords if k.arg == name]
    return ast.unparse(values[0]) if len(values) == 1 else ""


def call(api: str, names: Sequence[str], **new: str) -> str:
    """Return the text of the statement's call with other arguments; "" if it cannot be read."""
    texts = arguments(api, names)
    if not texts or not calls(api):
        return ""
    texts = (
        {**{k: v for k, v in new.items() if k not in texts}, **texts, **new}
        if "dst" in new and "dst" not in texts
        else {**texts, **new}
    )
    return f"{ast.unparse(calls(api)[0].func)}({', '.join(f'{k}={v}' for k, v in texts.items())})"


def _is(text: ast.expr, operand: Any, frame: FrameType) -> bool:
    value = frame.f_locals.get(text.id) if isinstance(text, ast.Name) else None
    return value is not None and (value is operand or getattr(value, "_t", None) is operand)


def variable(is_it: Callable[[Any], bool]) -> str:
    """Return the first variable of the statement that holds a tensor so described, "" if none."""
    for node, frame in _nodes(ast.Name):
        value = frame.f_locals.get(node.id)
        if is_it(getattr(value, "_t", value)):
            return str(node.id)
    return ""


def operands(operator: type[ast.operator], operand: Any) -> tuple[str, str, bool] | None:
    """Return (left, right, whether it is `left op= right`) of an operator with this tensor."""
    for node, frame in _nodes((ast.BinOp, ast.AugAssign)):
        if not isinstance(node.op, operator):
            continue
        left, right = (
            (node.target, node.value)
            if isinstance(node, ast.AugAssign)
            else (node.left, node.right)
        )
        if _is(left, operand, frame) or _is(right, operand, frame):
            return ast.unparse(left), ast.unparse(right), isinstance(node, ast.AugAssign)
    return None


def assigned() -> str:
    """Return the name that the statement assigns to, "" if it is not one plain name."""
    return _one_name(_statement()[0])


def assigned_at(where: Where) -> str:
    """Return the name that a statement of the user's assigns to, "" if it is not one plain name."""
    return _assigned_in("".join(linecache.getlines(where.file)), where.line)


@functools.lru_cache(maxsize=64)
def _assigned_in(source: str, line: int) -> str:
    tree = _tree(source)
    return _one_name(_innermost(tree, line)) if tree else ""


def _one_name(statement: ast.stmt | None) -> str:
    if (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
    ):
        return statement.targets[0].id
    return ""


def target() -> str:
    """Return the text of what the statement assigns to, "" if it assigns nothing."""
    statement, _ = _statement()
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return ast.unparse(statement.targets[0])
    return ast.unparse(statement.target) if isinstance(statement, ast.AugAssign) else ""


def assigned_value() -> str:
    """Return the text of what the statement assigns, "" if it is no plain assignment."""
    statement, _ = _statement()
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return ast.unparse(statement.value)
    return ""


def is_returned(name: str) -> bool:
    """Return whether the function that the statement is in returns a variable."""
    statement, frame = _statement()
    if statement is None or frame is None:
        return False
    tree = _parsed(frame)
    assert tree is not None  # the statement is of it
    around = max(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and node.lineno <= statement.lineno <= (node.end_lineno or node.lineno)
        ),
        key=lambda node: node.lineno,
        default=tree,
    )
    return any(
        isinstance(part, ast.Name) and part.id == name
        for node in ast.walk(around)
        if isinstance(node, ast.Return) and node.value is not None
        for part in ast.walk(node.value)
    )


def asks(node_type: type[ast.AST]) -> bool:
    """Return whether the statement has a node of a type, for example a comparison."""
    return any(True for _ in _nodes(node_type))


def base(text: str) -> str:
    """Return the name that an expression begins with: x of x[0:128]; "" if there is none."""
    head = text.partition("[")[0].partition(".")[0].strip()
    return head if head.isidentifier() else ""


def value_of(text: str) -> Any:
    """Return the value of the variable that an expression begins with, None if there is none."""
    _, frame = _statement()
    return None if frame is None else frame.f_locals.get(base(text))


def first_index(text: str) -> str:
    """Return i of x[i] and x[i, :], "" of anything else."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return ""
    if not isinstance(node, ast.Subscript):
        return ""
    first, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if isinstance(first, ast.Slice) or any(ast.unparse(k) != ":" for k in rest):
        return ""
    return ast.unparse(first)


def sliced(dim: int) -> tuple[str, str, str] | None:
    """Return (tensor, start, stop) of the slice of a dim, None if there is none, or two kinds."""
    slices: dict[tuple[str, str], str] = {}
    for node, _ in _nodes(ast.Subscript):
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        key = keys[dim] if dim < len(keys) else None
        if isinstance(key, ast.Slice) and key.lower and key.upper and not key.step:
            ends = ast.unparse(key.lower), ast.unparse(key.upper)
            slices.setdefault(ends, ast.unparse(node.value))
    if len(slices) != 1:
        return None
    ((ends, name),) = slices.items()
    return (name, *ends)


def part(text: str, shape: Sequence[int], wanted: Sequence[int]) -> str:
    """Return the text of that part of a tensor which has the shape `wanted`."""
    if text.isidentifier() and len(shape) > 1 and tuple(shape[:-1]) == tuple(wanted):
        return f"{text}[{':, ' * len(wanted)}0]"
    if (
        not text.isidentifier()
        or len(shape) != len(wanted)
        or any(n > m for n, m in zip(wanted, shape))
    ):
        return ""
    cut = [":" if n == m else f"0:{n}" for n, m in zip(wanted, shape)]
    while cut and cut[-1] == ":":
        cut.pop()
    return f"{text}[{', '.join(cut)}]" if cut else text
