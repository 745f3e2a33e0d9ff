"""Truth values of what has none: what the SDK refuses, and what it takes to mean something else.

`if`, `and`, `or` and `not` are decided when a kernel is traced. A parameter is then a handle, which
is true because it is there. Masks joined by `and` have run in the SDK: Python keeps the last one.
"""

from __future__ import annotations

import ast
import functools
import sys
from typing import Any

from ..errors import fail, user_frame
from ..lint import program
from . import suggestions
from .bytecode import joins
from .context import current


def no_truth(what: str, name: str = "err_control_flow_condition_depending_on_arange") -> None:
    """Raise for a condition that cannot be decided when the kernel is traced."""
    raise fail(
        "NKI-I08",
        f"{what} has no single truth value",
        name=name,
        limit="`if`, `not`, `and`, `or` and `while` are decided when the kernel is traced, "
        "before any data is there",
        hint=suggestions.extreme()
        or "combine masks with & and pass them as mask=; select data with nl.where",
        nki_hint="select data with nl.where(condition, a, b)",
    )


def of_mask() -> bool:
    """Return True, with a finding, for a mask that `and` or `or` joins to another; else raise."""
    m, frame = current.get(), user_frame(sys._getframe(1))
    if m is None or frame is None or not joins(frame.f_code, frame.f_lasti):
        no_truth("a mask (a comparison of index expressions)")
    else:
        m.find(
            "NKI-I14",
            "error",
            "masks are joined by `and` or `or` (a < b < c is an `and` as "
            "well): what is left of them is the last mask for `and`, the first for `or`. Write "
            "(i_p < 64) & (i_f < n), or |",
            m.here(),
        )
    return True


def of_handle(t: Any) -> bool:
    """Return True, with a finding, for a tensor in HBM; raise for a tile, which is data."""
    m = current.get()
    if m is None or t.memory != "hbm":
        no_truth("a tensor", "err_ambiguous_tensor_truth_value")
    else:
        m.find(
            "NKI-I15",
            "warning",
            f"the truth of {t!r} is asked for: it is true because the "
            "tensor is there, whatever it holds. Write `x is not None`; the SDK refuses `if x` "
            "in places (err_ambiguous_tensor_truth_value)",
            m.here(),
        )
    return True


def of_view(t: Any) -> bool:
    """Return True, with a note, for a tensor of the package nki: it is there.

    Its compiler takes an object for true, and AWS's own kernels ask so for optional parameters.
    Raises NKI-G27 where a `while` asks: there it is true for ever.
    """
    m, frame = current.get(), user_frame(sys._getframe(1))
    if m is not None:
        if frame is not None and frame.f_lineno in _loops(frame.f_code.co_filename):
            raise fail(
                "NKI-G27",
                "a tensor is the condition of a `while`, which never ends",
                given=f"while {t!r}",
                limit="`while` is decided when the kernel is traced, before any data is "
                "there: a tensor is true, whatever it holds",
                hint="nl.while_loop with a register for a loop that data ends; "
                "`x is not None` for an optional tensor",
            )
        m.find(
            "NKI-I15",
            "note",
            f"the truth of {t!r} is asked for: it is true because the tensor "
            "is there, whatever it holds. Write `x is not None`, or select data with "
            "nisa.select_reduce",
            m.here(),
        )
    return True


def compared_with_none(name: str) -> bool:
    """Return what `x == None` or `x != None` is for a tensor, with a finding: no elements are."""
    m = current.get()
    if m is not None:
        m.find(
            "NKI-I15",
            "warning",
            "a tensor is compared with None, which is no comparison of "
            "its elements. Write `x is None` or `x is not None`",
            m.here(),
        )
    return name == "not_equal"


def compared_with_number(number: float) -> bool:
    """Return what `t[0, 0] == 1.0` is for a tensor of `import nki`, with a finding."""
    m = current.get()
    if m is not None:
        m.find(
            "NKI-N04",
            "warning",
            f"an element of a tensor is compared with {number!r}: its value is not known when the "
            "kernel is traced, so that they are never equal. nl.where(condition, a, b) selects, "
            f"with condition = nl.equal(t, {number!r})",
            m.here(),
        )
    return False


def _loops(file: str) -> frozenset[int]:
    """Return the lines of a file where the whole of a `while`'s condition is one value."""
    source = program.read(file)
    return frozenset() if source is None else _conditions(source.tree)


@functools.lru_cache(maxsize=256)
def _conditions(tree: ast.Module) -> frozenset[int]:
    decided = (
        node.test
        for node in ast.walk(tree)
        if isinstance(node, ast.While)
        and isinstance(node.test, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    )
    return frozenset(
        line
        for test in decided
        for line in range(test.lineno, (test.end_lineno or test.lineno) + 1)
    )
