"""Forms of `nl` that the compiler of the package nki refuses, written as ones that build."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .index import Person

if TYPE_CHECKING:
    from .rewrite import Function

_POWERS = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
REDUCTIONS = ("sum", "max", "min", "prod", "mean")


def spread(text: str, shape: tuple[int, ...], wide: tuple[int, ...]) -> str:
    """Return a tile as a view that repeats its dims of size 1: nothing repeats by itself."""
    if len(shape) != len(wide):
        return text
    return text + "".join(
        f".broadcast({dim}, {n})"
        for dim, (k, n) in enumerate(zip(shape, wide))
        if dim and k == 1 < n
    )


def quotient(
    f: Function, texts: list[str], shapes: list[tuple[int, ...] | None], dtype: str
) -> str:
    """Return x / y as a product, since no engine divides; a shape is None for a number."""
    (x, y), (wide, narrow) = texts, shapes
    nl = f.nl
    if narrow is None:
        return f"{nl}.multiply({x}, 1.0 / ({y}){dtype})"
    inverse = f"{nl}.reciprocal({y}, dtype={nl}.float32)"
    if wide is None:
        return f"{nl}.multiply({inverse}, {x}{dtype})"
    return f"{nl}.multiply({spread(x, wide, narrow)}, {spread(inverse, narrow, wide)}{dtype})"


def power(f: Function, base: str, exponent: ast.expr, dtype: str) -> str:
    """Return a power of a tile with a number as its exponent."""
    try:
        number = ast.literal_eval(exponent)
    except ValueError:
        number = None
    name = _POWERS.get(number) if isinstance(number, (int, float)) else None
    if name is None:
        raise Person(
            f"nl.power with the exponent {ast.unparse(exponent)}: nisa.tensor_scalar(dst, "
            "t, op0=nl.power, operand0=number)"
        )
    return f"{f.nl}.{name}({base}{dtype})"


def with_keepdims(call: ast.Call, given: dict[str, ast.expr], rank: int) -> ast.Call:
    """Return a reduction that keeps the dims: a tile on chip has two."""
    if "keepdims" in given or rank > 2:
        return call
    return ast.copy_location(
        ast.Call(
            call.func, call.args, [*call.keywords, ast.keyword("keepdims", ast.Constant(True))]
        ),
        call,
    )
