"""What a cause finds: a line, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Sign:
    """A cause at a line. `most`: microseconds of work that go with it, roughly what it can save.

    `instrs`: the instructions that pay; `say`: what the sentence needs; `more`: what only
    `Cause.without` needs; `also`: other lines that have it.
    """

    line: int
    most: float
    say: dict[str, Any]
    instrs: np.ndarray = field(default_factory=lambda: _NONE)
    more: Any = None
    also: tuple[int, ...] = ()


def size(nbytes: float) -> str:
    """Return bytes as people say them."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= one:
            return f"{nbytes / one:.3g} {unit}"
    return f"{nbytes:.0f} byte" + "s" * (round(nbytes) != 1)
