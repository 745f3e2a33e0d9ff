"""Numbers of the engines' sequencers: registers, and scalars that the program computes with."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...chip import ops
from ...errors import fail
from ...indexing.index import as_int
from ...lint import level
from ...machine.context import current

BITS = 32  # of a register and of a scalar of nl.int32


class VirtualRegister:
    """A 32-bit register; there is no arithmetic on it, only moves, loads, stores and uses."""

    __slots__ = ("frozen", "value")

    def __init__(self, value: int | float | None = None, frozen: bool = False):
        self.value = 0 if value is None else value
        self.frozen = frozen  # the variable of a loop

    def set(self, value: int | float) -> None:
        """Write the register."""
        if self.frozen:
            raise fail(
                "NKI-N04",
                "the variable of a dynamic loop is written",
                limit="the loop alone counts it",
                hint="move it to a register of its own: "
                "r = nisa.register_alloc(); nisa.register_move(r, i)",
            )
        self.value = value

    def tile(self) -> np.ndarray:
        """Return the value as an offset."""
        return np.array([[int(self.value)]], dtype=np.int32)

    def __bool__(self) -> bool:
        m = current.get()
        verdict = level.in_run("register_condition", "a register decides a condition of Python")
        if verdict is not None and m is not None:
            m.find(*verdict, m.here())
        return bool(self.value)

    def __index__(self) -> int:
        raise TypeError(
            "a register is no Python number: its value is known when the kernel runs. "
            "Use it as scalar_offset=, as a bound of nl.fori_loop or as the condition "
            "of nl.while_loop"
        )

    __int__ = __index__

    def __repr__(self) -> str:
        return "VirtualRegister()"


class NkiScalar:
    """An integer that the device computes (NKI 0.7): nisa.scalar_load and nl.fori_loop make it.

    It has +, - and * with integers of Python and other scalars, in 32 bits that wrap around; each
    makes a new one. It is used as scalar_offset= and as a bound of nl.fori_loop. What a comparison
    makes can be used for nothing.
    """

    __slots__ = ("dtype", "is_comparison", "state")

    def __init__(self, state: int, dtype: Any = None, is_comparison: bool = False):
        half = 1 << BITS - 1
        self.state = (int(state) + half) % (2 * half) - half
        self.dtype = "int32" if dtype is None else dtype
        self.is_comparison = is_comparison

    @property
    def value(self) -> int:
        """Return the number, for a use; raise NKI-N12 for the result of a comparison."""
        if self.is_comparison:
            raise fail(
                "NKI-N12",
                "the result of a comparison of scalars is used",
                limit="it is traced, and nothing takes it",
                hint="compare in a tile: nisa.tensor_scalar(dst, data, op0=nl.less, ...)",
            )
        return self.state

    def _with(self, other: Any, symbol: str) -> int:
        """Return the other operand of an operator."""
        if isinstance(other, NkiScalar):
            return other.value
        n = None if isinstance(other, (bool, np.bool_)) else as_int(other)
        if n is None or not -(1 << BITS - 1) <= n < 1 << BITS - 1:
            raise fail(
                "NKI-N12",
                f"a scalar {symbol} what is no integer of its width",
                given=f"{other!r}"[:60],
                limit=f"an int of Python or another scalar, of {self.dtype}",
                hint="nisa.register_store and nisa.register_load take registers to tiles and back"
                if isinstance(other, VirtualRegister)
                else "",
            )
        return n

    def __bool__(self) -> bool:
        raise fail(
            "NKI-G28",
            "a scalar decides a condition of Python",
            limit="what is known while Python traces the kernel",
            hint="a loop of the chip: nl.fori_loop(0, scalar, body)",
        )

    def __index__(self) -> int:
        raise TypeError(
            "a scalar is no Python number: its value is known when the kernel runs. "
            "Use it as scalar_offset= or as a bound of nl.fori_loop"
        )

    __int__ = __index__

    __hash__ = object.__hash__

    def __neg__(self) -> NkiScalar:
        return NkiScalar(-self.value)

    def __pos__(self) -> NkiScalar:
        return NkiScalar(self.value)

    def __repr__(self) -> str:
        return f"NkiScalar(dtype={self.dtype})"


def held(x: Any) -> int | None:
    """Return what a register or a scalar holds, None if `x` is neither."""
    return int(x.value) if isinstance(x, (VirtualRegister, NkiScalar)) else None


# -- operators -----------------------------------------------------------------------------------


def no_arithmetic(symbol: str) -> Any:
    """Return a method of registers that refuses an operator."""

    def method(self: VirtualRegister, other: Any = None) -> Any:
        raise fail(
            "NKI-N04",
            f"registers have no operator {symbol}",
            limit="registers are loaded, stored, moved and used as offsets and bounds",
            hint="a scalar has + - *: s = nisa.scalar_load(tile) (since 0.7); or compute in "
            "a (1, 1) tile with nisa.tensor_scalar, then nisa.register_load",
        )

    return method


def _arithmetic(symbol: str, compute: Callable[[int, int], int], reflected: bool) -> Any:
    def method(self: NkiScalar, other: Any) -> NkiScalar:
        a, b = self.value, self._with(other, symbol)
        return NkiScalar(compute(b, a) if reflected else compute(a, b))

    return method


def _comparison(symbol: str, compute: Callable[[int, int], bool]) -> Any:
    def method(self: NkiScalar, other: Any) -> NkiScalar:
        return NkiScalar(compute(self.value, self._with(other, symbol)), is_comparison=True)

    return method


def _not_there(symbol: str) -> Any:
    def method(self: NkiScalar, other: Any = None) -> Any:
        raise fail(
            "NKI-N12",
            f"scalars have no operator {symbol}",
            limit="+, -, *, comparisons",
            hint="compute in a (1, 1) tile of int32, then nisa.scalar_load",
        )

    return method


_ARITHMETIC = ("add", "sub", "mul")
for _symbol, _name in (*(op[:2] for op in ops.ARITHMETIC), ("//", "floordiv")):
    for _prefix in ("", "r"):
        _method = f"__{_prefix}{_name}__"
        if _name in _ARITHMETIC:
            setattr(
                NkiScalar, _method, _arithmetic(_symbol, getattr(operator, _name), bool(_prefix))
            )
        else:
            setattr(NkiScalar, _method, _not_there(_symbol))
        setattr(VirtualRegister, _method, no_arithmetic(_symbol))
for _symbol, _name in (("~", "invert"), ("abs", "abs")):
    setattr(NkiScalar, f"__{_name}__", _not_there(_symbol))
for _symbol, _name in (("-", "neg"), ("+", "pos"), ("~", "invert"), ("abs", "abs")):
    setattr(VirtualRegister, f"__{_name}__", no_arithmetic(_symbol))
for _symbol, _name, *_ in ops.COMPARISONS:
    setattr(NkiScalar, f"__{_name}__", _comparison(_symbol, getattr(operator, _name)))
    if _name not in ("eq", "ne"):
        setattr(VirtualRegister, f"__{_name}__", no_arithmetic(_symbol))
