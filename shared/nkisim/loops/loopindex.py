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
    `steps`: how far one more iteration of each loop moves it. Everybody else has to `observe()`.
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

    def __neg__(self) -> LoopIndex:
        return _multiplied(operator.mul)(self, -1)

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


# -- operators -------------------------------------------------------------------------------------


def _of_numbers(method: Callable) -> Callable:
    """Let a method of an index and a number leave other operands to decide: an Index, a tensor."""

    def checked(self: LoopIndex, other: Any, *modulus: Any) -> Any:
        if type(other) is LoopIndex or isinstance(other, (int, np.integer, float, complex)):
            return method(self, other, *modulus)
        return NotImplemented

    return checked


def _integer(number: Any) -> int | None:
    """Return an integer as an int, None for a float and for an index, which is not looked at."""
    return (
        None if type(number) is LoopIndex or isinstance(number, (float, complex)) else int(number)
    )


def _by_value(f: Callable) -> Callable:
    """Return the method of an operator that looks at the value."""

    def method(self: LoopIndex, other: Any, *modulus: Any) -> Any:
        return f(self.observe(), observed(other), *modulus)

    return method


def _compared(f: Callable) -> Callable:
    """Return the method of a comparison.

    A comparison with an integer does not look at the value until its result is used.
    """

    def method(self: LoopIndex, other: Any) -> Any:
        n = _integer(other)
        return f(self.observe(), observed(other)) if n is None else Compared(self, f, n)

    return method


def _added(f: Callable) -> Callable:
    """Return the method of a sum or a difference, which moves in step with its indices."""

    def method(self: LoopIndex, other: Any) -> Any:
        if type(other) is LoopIndex:
            own, others = self.steps, other.steps
            steps = {w: f(own.get(w, 0), others.get(w, 0)) for w in own | others}
            return LoopIndex(f(self.value, other.value), steps)
        n = _integer(other)
        if n is None:
            return f(self.observe(), other)
        return LoopIndex(f(self.value, n), {w: f(s, 0) for w, s in self.steps.items()})

    return method


def _multiplied(f: Callable) -> Callable:
    """Return the method of a product: a multiple moves in step, neither i * i nor i * j does."""

    def method(self: LoopIndex, other: Any) -> Any:
        n = _integer(other)
        if n is None:
            return f(self.observe(), observed(other))
        return LoopIndex(f(self.value, n), {w: f(s, n) for w, s in self.steps.items()})

    return method


def _swapped(f: Callable) -> Callable:
    return lambda a, b: f(b, a)


def _observing(name: str) -> Callable:
    """Return a method of int that looks at the value."""
    plain = getattr(int, name)

    def method(self: LoopIndex, *args: Any) -> Any:
        return plain(self.observe(), *args)

    return method


_ARITHMETIC: dict[str, tuple[Callable, Callable]] = {
    "add": (operator.add, _added),
    "sub": (operator.sub, _added),
    "mul": (operator.mul, _multiplied),
    "and": (operator.and_, _by_value),
    "pow": (pow, _by_value),
    "divmod": (divmod, _by_value),
    "or": (operator.or_, _by_value),
}
for _name in ("floordiv", "mod", "truediv", "lshift", "rshift", "xor"):
    _ARITHMETIC[_name] = getattr(operator, _name), _by_value
for _name, (_f, _made) in _ARITHMETIC.items():
    setattr(LoopIndex, f"__{_name}__", _of_numbers(_made(_f)))
    setattr(LoopIndex, f"__r{_name}__", _of_numbers(_made(_swapped(_f))))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(LoopIndex, f"__{_name}__", _of_numbers(_compared(getattr(operator, _name))))
for _name in "bool hash float abs round trunc ceil floor invert repr str format".split():
    setattr(LoopIndex, f"__{_name}__", _observing(f"__{_name}__"))
