"""Products that get a name before they are added to a sum: in the new dialect that is one call."""

from __future__ import annotations

import ast

from ..lint.program import Source


def products_added(function: ast.AST, source: Source) -> dict[ast.AST, tuple[ast.stmt, ast.Call]]:
    """Find `p = nisa.nc_matmul(...)` before `acc += p`, where p is used nowhere else."""
    added: dict[ast.AST, tuple[ast.stmt, ast.Call]] = {}
    loads = [
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]
    for node in ast.walk(function):
        body = getattr(node, "body", None)
        for one, then in zip(body, body[1:]) if isinstance(body, list) else ():
            if (
                isinstance(one, ast.Assign)
                and isinstance(one.targets[0], ast.Name)
                and isinstance(one.value, ast.Call)
                and isinstance(then, ast.AugAssign)
                and isinstance(then.op, ast.Add)
                and isinstance(then.value, ast.Name)
                and then.value.id == one.targets[0].id
                and loads.count(then.value.id) == 1
                and source.dotted(one.value.func) in ("nki.isa.nc_matmul", "nki.language.matmul")
            ):
                added[then] = one, one.value
    return added
