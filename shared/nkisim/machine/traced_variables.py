"""Python variables that the body of a traced loop changes.

The SDK traces the body of `nl.affine_range` and `nl.sequential_range` once, with a symbol for the
index, so `d = d // 2` or `count += 1` on a Python number takes place once, and every iteration on
the chip works with the value of that one trace. The simulator runs the body for each iteration; so
it puts such a variable back to what it was before the loop, and says so.

Tiles are not numbers: what they carry from iteration to iteration is for the hazards' checks.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .interface import Machine

_NUMBERS = (bool, int, float, str, type(None))


def numbers(m: Machine, frame: FrameType, names: dict[str, int]) -> dict[str, Any]:
    """Return those of the variables that hold numbers, as a loop begins.

    Most often it is a tile that is accumulated (`acc += ...`); a loop that has begun with tiles
    alone is not looked at again in this launch, for `f_locals` takes long.
    """
    head = (id(frame.f_code), frame.f_lasti)
    if head in m.loops.tile_loops:
        return {}
    held = frame.f_locals
    values = {
        name: held[name] for name in names if name in held and isinstance(held[name], _NUMBERS)
    }
    if not values and all(name in held for name in names):  # 3.13 has no set of its names
        m.loops.tile_loops.add(head)
    forget(frame, held)
    return values


def iterations(
    m: Machine,
    frame: FrameType,
    names: dict[str, int],
    before: dict[str, Any],
    inner: Iterator[Any],
) -> Iterator[Any]:
    """Yield from `inner`, with the numbers of `frame` as they were `before` the loop."""
    first = True
    for index in inner:
        if not first:
            _restore(m, frame, names, before)
        first = False
        yield index


def _restore(m: Machine, frame: FrameType, names: dict[str, int], before: dict[str, Any]) -> None:
    held = frame.f_locals
    moved = [
        name
        for name, value in before.items()
        if isinstance(held.get(name), _NUMBERS) and held[name] != value
    ]
    for name in moved:
        where = m.trace.line_of(frame.f_code, names[name])
        m.find(
            "NKI-L07",
            "note",
            f"the variable {name} is changed in a traced loop: the SDK runs the body once, so "
            f"each iteration begins with {name} = {before[name]!r}, as here",
            where,
        )
        held[name] = before[name]
    if moved and sys.version_info < (3, 13):  # since 3.13, f_locals writes through (PEP 667)
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    forget(frame, held)


def forget(frame: FrameType, held: Any) -> None:
    """Let go of what `f_locals` gave: before Python 3.13 a copy that a function's frame keeps.

    Tiles in it would live on, and whether a result is still in use decides what is recorded.
    """
    if type(held) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        held.clear()
