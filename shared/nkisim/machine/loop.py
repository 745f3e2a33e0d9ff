"""The loops of a kernel: what `nl.affine_range` and `nl.sequential_range` return."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Generator, Iterator, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..errors import fail
from ..loops.run import inner, start
from . import traced_variables
from .bytecode import changed_names, is_for_statement

if TYPE_CHECKING:
    from .interface import Machine


SHUFFLE_VARIABLE = "NKISIM_SHUFFLE"


def shuffle_seed() -> int | None:
    """Return the seed that NKISIM_SHUFFLE asks for, None if it is not set."""
    text = os.environ.get(SHUFFLE_VARIABLE)
    if not text:
        return None
    if not text.isdecimal():
        raise fail(
            "NKI-K15", f"{SHUFFLE_VARIABLE} is no number", given=f"{SHUFFLE_VARIABLE}={text}"
        ).nowhere()
    return int(text)


def keeps_order(m: Machine, kind: str) -> bool:
    """Return whether what one iteration of a kind of loop does comes before what the next one does.

    Iterations of affine_range, instances of a grid and cores are independent of each other;
    skip_middle_end_transformations lets affine_range run as sequential_range does.
    """
    return (
        kind not in ("affine_range", "grid", "cores")
        or kind == "affine_range"
        and m.settings.skip_middle_end
    )


def in_any_order(m: Machine, kind: str, values: range, loop: int) -> Sequence[int]:
    """Return the indices of a loop in the order in which they run.

    With a seed, those of affine_range are shuffled, which the loop promises to bear, unless the
    kernel's directive keeps the order of statements; and the instances of a grid.
    """
    if m.settings.shuffle is None or kind == "cores" or keeps_order(m, kind):
        return values
    order = list(values)
    random.Random(m.settings.shuffle * 1_000_003 + loop).shuffle(order)
    return order if order != list(values) else order[::-1]  # two iterations change places


#: by code and place, which stay alive here: the numbers that the body of a `for` changes, if it is
_heads: dict[tuple[int, int], tuple[CodeType, dict[str, int] | None]] = {}


def _head(frame: FrameType) -> dict[str, int] | None:
    """Return what changed_names says of a `for` statement; None if it is none."""
    code, at = frame.f_code, frame.f_lasti
    cached = _heads.get((id(code), at))  # hashing the code itself would take long
    if cached is None:
        is_head = is_for_statement(code, at)
        cached = _heads[id(code), at] = code, changed_names(code, at) if is_head else None
    return cached[1]


class Loop:
    """The iterations of a loop; each is noted in the trace when it begins."""

    def __init__(self, m: Machine, kind: str, values: range):
        self.m, self.kind, self.values = m, kind, values

    def __iter__(self) -> Iterator[Any]:
        frame, m = sys._getframe(1), self.m
        if self.kind != "grid" and self.values:
            if m.loops.nest is not None:
                return inner(m.loops.nest, self.values, self.iterations(), True)
            begins = start(m, frame, self.values)
            if begins is not None:
                return begins.run(self.values, self.iterations(), True)
        names, line = None if self.kind == "grid" else _head(frame), m.trace.line(frame)
        iterations = self._run(line)
        numbers = names and traced_variables.numbers(m, frame, names)
        return (
            traced_variables.iterations(m, frame, names, numbers, iterations)
            if names and numbers
            else iterations
        )

    def iterations(self) -> Generator[Any, None, None]:
        """Yield the indices of all iterations, beginning each in the trace."""
        return self._run(self.m.here())

    def _run(self, line: int) -> Generator[Any, None, None]:
        """Yield the indices."""
        m, tr = self.m, self.m.trace
        loop, parent = len(tr.loop_kind), m.core.node
        tr.loop_kind.append(self.kind)
        tr.loop_line.append(line)
        m.loops.open.append(True)
        try:
            for i in in_any_order(m, self.kind, self.values, loop):
                tr.node_parent.append(parent)  # m.enter(loop, parent, i): this is a hot path
                tr.node_loop.append(loop)
                tr.node_iter.append(i)
                m.core.node = len(tr.node_loop) - 1
                yield i
                if m.pending is not None:
                    m.flush()
        finally:
            m.loops.open[loop] = False
            m.core.node = parent
