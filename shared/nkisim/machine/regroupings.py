"""Reshapes that look like transposes: two sizes of a shape change places, the elements do not."""

from __future__ import annotations

from typing import Any

from .interface import Machine


def reshaped(m: Machine, t: Any, new: tuple[int, ...]) -> None:
    """Remember a reshape of tensor `t` that exchanges two sizes."""
    old = t.shape
    if len(old) == len(new) and old != new:
        moved = [d for d in range(len(old)) if old[d] != new[d]]
        sizes = [old[d] for d in moved]
        if len(moved) == 2 and [new[d] for d in moved] == sizes[::-1] and 1 not in sizes:
            places = m.memory.exchanged.setdefault((old, new), {})
            is_input = t.storage.where < 0
            places.setdefault(is_input, m.here())


def ended(m: Machine) -> None:
    """Say which reshapes exchange two sizes, where none in the kernel exchanges them back.

    An input and a tensor of the kernel's that are both seen in the other shape are alike again.
    """
    exchanged = m.memory.exchanged
    for (old, new), places in exchanged.items():
        line = next(iter(places.values()))
        if (new, old) in exchanged or len(places) > 1 or m.findings.found("NKI-S15", line):
            continue
        m.find(
            "NKI-S15",
            "note",
            f"a reshape of {old} to {new} exchanges two sizes and leaves the elements in their "
            "order: it is not a transpose. Is one meant?",
            line,
        )


__all__ = ["ended", "reshaped"]
