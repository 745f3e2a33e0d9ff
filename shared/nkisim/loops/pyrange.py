"""Python's `range` in kernels: a loop over it is recorded as other loops are.

The compiler unrolls such a loop, so it is not in the record; that is all that sets it apart from
`nl.affine_range`. While a kernel runs, `range` in its module is the class below. It makes plain
ranges but for the one purpose, a `for` statement whose other iterations follow from the first, and
says what is no range.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import user_frame
from ..machine import operand_errors
from ..machine.context import current
from .run import Start, inner, start
from .source import plan_of


class Unrecorded:
    """A loop that is not in the record; `begins`: what starts with it, None in another loop."""

    def __init__(self, values: builtins.range, begins: Start | None):
        self.values, self.begins = values, begins

    def __iter__(self) -> Iterator[Any]:
        m = current.get()
        assert m is not None, "made and used in the head of a `for` statement"
        if m.loops.nest is not None:
            return inner(m.loops.nest, self.values, (i for i in self.values), False)
        if self.begins is None:
            return iter(self.values)
        return self.begins.run(self.values, (i for i in self.values), False)


def unrolled(values: builtins.range) -> Any:
    """Return what a kernel's loop runs over: the values, or a loop that notices its iterations."""
    m = current.get()
    frame = user_frame(sys._getframe(1))
    if m is None or frame is None or not values:
        return values
    if m.loops.nest is not None:
        return values if plan_of(frame) is None else Unrecorded(values, None)
    begins = start(m, frame, values)
    return values if begins is None else Unrecorded(values, begins)


class _Type(type):
    def __call__(cls, *args: Any) -> Any:
        values = None
        with suppress(TypeError, ValueError):
            values = builtins.range(*args)
        if values is not None:
            return unrolled(values)
        if args and all(hasattr(a, "__index__") for a in args[:3]) and 0 not in args[2:]:
            return builtins.range(*args)  # a register says itself why it is no number
        operand_errors.bounds("range", args)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, builtins.range)


class range(metaclass=_Type):
    __doc__ = builtins.range.__doc__


@contextmanager
def known_to(function: Any) -> Iterator[None]:
    """Let loops over `range` in a function's module be noticed."""
    names = getattr(function, "__globals__", None)
    if names is None or "range" in names:
        yield
        return
    names["range"] = range
    try:
        yield
    finally:
        if names.get("range") is range:
            del names["range"]


__all__ = ["known_to", "unrolled"]
