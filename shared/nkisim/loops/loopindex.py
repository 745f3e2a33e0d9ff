"""The index of a loop in its first iteration: it stands in for an int and notices who looks.

The record of a loop follows from its first iteration (extrapolate.py) only if nothing in its body
is decided by the value of its index. Subscripts and index expressions of tensors ask how far the
loop moves the value, because what they record moves in step with it. Everything else asks for the
value, and is noticed: `if i == 0`, `SIZES[i]`, `range(i)`, `f"{i}"`, `np.arange(i)`,
`isinstance(i, int)`.

`LoopIndex` is no subclass of int for that reason: Python and NumPy read an int's value out of its
memory without calling any method. The price: in the simulator, where such an index may turn up,
one asks `type(x)`, for `isinstance(x, ...)` counts as looking.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np


class ObservedLoop:
    """A loop under observation; `escaped` once Python has decided something by its index."""

    __slots__ = ("escaped",)

    def __init__(self) -> None:
        self.escaped = False


class LoopIndex:
    """A loop's index, or a sum or a multiple of some.

    `value` is the integer in the first iterations of all loops, for those who know how it moves.
    `steps`: how far one more iteration of each loop moves it. `look()` is for everybody else.
    """

    __slots__ = ("value", "steps")

    def __init__(self, value: int, steps: dict[ObservedLoop, int]):
        self.value, self.steps = value, steps

    def observe(self) -> int:
        """Return the value, noting that anything may be decided by it."""
        for w in self.steps:
            w.escaped = True
        return self.value

    __index__ = __int__ = observe

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        """Say `int` to `isinstance`, which asks here when the real type does not fit."""
        self.observe()
        return int

    def __getattr__(self, name: str) -> Any:
        """Return what an int has besides operators: bit_length, numerator ..."""
        if name in LoopIndex.__slots__:  # not set yet: a copy is being made
            raise AttributeError(name)
        return getattr(self.observe(), name)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return int, (self.observe(),)  # copies are plain

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(observed, inputs), **kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.observe(), dtype)

    # -- arithmetic that stays in step with the index ------------------------------------------
    def _added(self, f: Callable, other: Any) -> LoopIndex:
        """Return f(self, other) for a sum or a difference."""
        if type(other) is not LoopIndex:
            return LoopIndex(f(self.value, other), {w: f(s, 0) for w, s in self.steps.items()})
        steps, other_steps = self.steps, other.steps
        return LoopIndex(
            f(self.value, other.value),
            {w: f(steps.get(w, 0), other_steps.get(w, 0)) for w in steps | other_steps},
        )

    def _times(self, f: Callable, other: Any) -> LoopIndex | int:
        """Return the product of both, which `f` makes."""
        if type(other) is not LoopIndex:
            return LoopIndex(self.value * other, {w: s * other for w, s in self.steps.items()})
        return self.observe() * other.observe()  # neither i * i nor i * j stays in step

    def __neg__(self) -> LoopIndex:
        return self._times(operator.mul, -1)  # type: ignore[return-value]

    def __pos__(self) -> LoopIndex:
        return self


class Compared:
    """A comparison of an index with a number; who asks whether it is true looks at the index.

    A product's `accumulate=k > 0` is a comparison that is answered for all iterations at once.
    """

    __slots__ = ("index", "op", "other")

    def __init__(self, index: LoopIndex, op: Callable, other: int):
        self.index, self.op, self.other = index, op, other

    def first(self) -> bool:
        """Return what it is in the first iteration."""
        return self.op(self.index.value, self.other)

    def __bool__(self) -> bool:
        return self.op(self.index.observe(), self.other)

    def __int__(self) -> int:
        return int(bool(self))

    __index__ = __hash__ = __int__

    def __eq__(self, other: Any) -> bool:
        return bool(self) == other

    def __and__(self, other: Any) -> Any:
        return bool(self) & other

    def __or__(self, other: Any) -> Any:
        return bool(self) | other

    def __invert__(self) -> int:
        return ~int(self)

    def __repr__(self) -> str:
        return repr(bool(self))

    __rand__, __ror__ = __and__, __or__


# messages name the type of what they were given: to a kernel's author it is an int
LoopIndex.__name__ = LoopIndex.__qualname__ = "int"


def observed(value: Any) -> Any:
    """Return the plain value of a LoopIndex, looked at, and everything else as it is."""
    return value.observe() if type(value) is LoopIndex else value


def _as_number(value: Any) -> Any:
    """Return a LoopIndex as it is, an integer as an int, and None for everything else."""
    if type(value) is LoopIndex:
        return value
    return int(value) if isinstance(value, (int, np.integer)) else None


def _operator(f: Callable, swapped: bool, keep: Callable | None) -> Callable:
    """Return the method of `f(index, other)`; `keep` makes the result a LoopIndex again."""

    def method(self: LoopIndex, other: Any, *modulus: Any) -> Any:
        number = _as_number(other)
        if number is None and not isinstance(other, (float, complex)):
            return NotImplemented  # an Index, a tensor, None ...: theirs to decide
        if f in _COMPARISONS and type(number) is int:
            return Compared(self, f, number)
        if keep is None or number is None:
            self.observe()
            other = observed(other)
            return f(other, self.value) if swapped else f(self.value, other, *modulus)
        return keep(self, (lambda a, b: f(b, a)) if swapped else f, number)

    return method


def _observing(name: str) -> Callable:
    """Return a method of int that looks at the value."""
    plain = getattr(int, name)

    def method(self: LoopIndex, *args: Any) -> Any:
        return plain(self.observe(), *args)

    return method


_COMPARISONS = {getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_KEPT: dict[str, Callable] = {
    "add": LoopIndex._added,
    "sub": LoopIndex._added,
    "mul": LoopIndex._times,
}
_BINARY: dict[str, Callable] = {
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "lshift", "rshift", "xor")
    },
    "and": operator.and_,
    "or": operator.or_,
    "pow": pow,
    "divmod": divmod,
}
for _name, _f in _BINARY.items():
    setattr(LoopIndex, f"__{_name}__", _operator(_f, False, _KEPT.get(_name)))
    setattr(LoopIndex, f"__r{_name}__", _operator(_f, True, _KEPT.get(_name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(LoopIndex, f"__{_name}__", _operator(getattr(operator, _name), False, None))
for _name in (
    "bool",
    "hash",
    "float",
    "abs",
    "round",
    "trunc",
    "ceil",
    "floor",
    "invert",
    "repr",
    "str",
    "format",
):
    setattr(LoopIndex, f"__{_name}__", _observing(f"__{_name}__"))
