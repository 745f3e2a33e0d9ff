"""Registers of the engines' sequencers: loop bounds, conditions and run-time offsets."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import fail


class VirtualRegister:
    """A 32-bit register; there is no arithmetic on it, only moves, loads, stores and uses."""

    __slots__ = ("frozen", "value")

    def __init__(self, value: int | float | None = None, frozen: bool = False):
        self.value = 0 if value is None else value
        self.frozen = frozen            # the variable of a loop

    def set(self, value: int | float) -> None:
        """Write the register."""
        if self.frozen:
            raise fail("NKI-N04", "the variable of a dynamic loop is written",
                       limit="the loop alone counts it", hint="move it to a register of its own: "
                       "r = nisa.register_alloc(); nisa.register_move(r, i)")
        self.value = value

    def tile(self) -> np.ndarray:
        """Return the value as an offset."""
        return np.array([[int(self.value)]], dtype=np.int32)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        raise TypeError("a register is no Python number: its value is known when the kernel runs. "
                        "Use it as scalar_offset=, as a bound of nl.fori_loop or as the condition "
                        "of nl.while_loop")

    __int__ = __index__

    def __repr__(self) -> str:
        return "VirtualRegister()"


def no_arithmetic(symbol: str) -> Any:
    """Return a method that refuses an operator."""
    def method(self: VirtualRegister, other: Any = None) -> Any:
        raise fail("NKI-N04", f"registers have no operator {symbol}",
                   limit="registers are loaded, stored, moved and used as offsets and bounds",
                   hint="compute in a (1, 1) tile with nisa.tensor_scalar, then "
                        "nisa.register_load")
    return method


for _symbol, _name in (("+", "add"), ("-", "sub"), ("*", "mul"), ("//", "floordiv"), ("%", "mod"),
                       ("/", "truediv"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")):
    for _prefix in ("", "r") if len(_name) > 2 else ("",):
        setattr(VirtualRegister, f"__{_prefix}{_name}__", no_arithmetic(_symbol))
