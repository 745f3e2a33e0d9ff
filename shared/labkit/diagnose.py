"""Guess what kind of mistake made an output wrong. A guess is a hint, never part of a verdict."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .tolerance import Tolerance

_TILE = 128  # rows of a tile: the granularity at which stale data is looked for
_MAX_ELEMENTS = 1 << 24  # larger outputs are not searched


@dataclass(frozen=True)
class Guess:
    """A kind of mistake and the sentence shown for it."""

    kind: str
    text: str


def guess_kind(expected: np.ndarray, actual: np.ndarray, bad: np.ndarray, limit: Tolerance,
               alternatives: Sequence[tuple[str, np.ndarray]] = ()) -> Guess | None:
    """Return the first explanation that fits, from the most to the least specific."""
    if expected.size > _MAX_ELEMENTS:
        return None
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(all="ignore"):
        for description, other in alternatives:
            if other.shape == a.shape and _mostly(_near(a, other.astype(np.float64), limit)[bad]):
                return Guess("aliasing", description)
        tests: tuple[Callable[..., Guess | None], ...] = (
            _uninitialised, _zeros, _rounding, _layout, _stale_tile, _scaled, _accumulation)
        for test in tests:
            guess = test(e, a, bad, limit)
            if guess:
                return guess
    return None


def _mostly(mask: np.ndarray) -> bool:
    return mask.size > 0 and float(mask.mean()) > 0.9


def _near(a: np.ndarray, e: np.ndarray, limit: Tolerance) -> np.ndarray:
    return np.abs(a - e) <= limit.atol + limit.rtol * np.abs(e)


def _uninitialised(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance,
                   ) -> Guess | None:
    odd = ~np.isfinite(a) & np.isfinite(e)
    if not odd.any():
        return None
    return Guess("not a number", f"{int(odd.sum())} elements are NaN or inf: memory that was "
                                 "never written, or an overflow")


def _zeros(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    if not _mostly(a[bad] == 0):
        return None
    if not a.any():
        return Guess("all zeros", "the whole output is zero: is the result ever accumulated and "
                                  "stored?")
    return Guess("missing accumulation", "the wrong elements are all zero: a part of the output "
                                         "is never computed")


def _rounding(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    allowed = limit.atol + limit.rtol * np.abs(e)
    if limit.atol == 0 or not (np.abs(a - e) <= 64 * allowed).all():
        return None
    return Guess("rounding", "small errors everywhere, as from accumulating in a dtype with "
                             "fewer bits (is something kept in fp16 or bf16 too early?)")


def _layout(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    for first in range(e.ndim):
        for second in range(first + 1, e.ndim):
            swapped = np.swapaxes(a, first, second)
            if min(e.shape[first], e.shape[second]) == 1:
                continue
            if swapped.shape == e.shape and _mostly(_near(swapped, e, limit)[bad]):
                return Guess("layout", f"axes {first} and {second} are exchanged (a transpose too "
                                       "many or too few)")
            folded = swapped.reshape(e.shape) if swapped.shape != e.shape else None
            if folded is not None and _mostly(_near(folded, e, limit)[bad]):
                return Guess("layout", f"axes {first} and {second} are exchanged before a reshape")
    if not bad.any() or np.ptp(e[bad]) == 0:
        return None
    ordered = _near(np.sort(a[bad]), np.sort(e[bad]), limit)
    if _mostly(ordered) and int(bad.sum()) > 8:
        return Guess("layout", "the right values in the wrong places: check indices and the "
                               "layout of the tiles")
    return None


def _stale_tile(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    """Look for wrong tiles that hold what belongs to another tile."""
    if e.ndim == 1:
        if e.size % _TILE or e.size == _TILE:
            return None
        e, a, bad = (x.reshape(-1, _TILE) for x in (e, a, bad))
    else:
        e, a, bad = (x.reshape(-1, x.shape[-1]) for x in (e, a, bad))
    wrong = np.flatnonzero(bad.all(axis=1))[:64]
    found = [(row, int(hit[0])) for row in wrong
             if (hit := np.flatnonzero(_near(a[row], e, limit).all(axis=1))).size]
    if not wrong.size or len(found) < 0.9 * wrong.size:
        return None
    row, source = found[0]
    return Guess("stale tile", f"row {row} of the output (in rows of {e.shape[1]} elements) holds "
                               f"what belongs in row {source}: a tile read after or before it "
                               "was overwritten, or an index that does not move on")


def _scaled(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    large = bad & (np.abs(e) > 0.1 * np.abs(e).max())
    if int(large.sum()) < 4:
        return None
    ratio = a[large] / e[large]
    middle = float(np.median(ratio))
    if not (np.isfinite(middle) and middle) or float(np.std(ratio)) > 1e-3 * abs(middle):
        return None
    kind = "missing accumulation" if middle < 1 else "scaled"
    return Guess(kind, f"the wrong elements are {middle:.4g} times what they should be (terms "
                       "left out, or added more than once)")


def _accumulation(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance,
                  ) -> Guess | None:
    """Sums of which terms are missing still follow the right ones, only smaller."""
    x, y = e[bad], a[bad]
    if x.size < 16 or np.std(x) == 0 or np.std(y) == 0:
        return None
    follows = float(np.corrcoef(x, y)[0, 1])
    size = float(np.sqrt((y * y).mean() / (x * x).mean()))
    if follows > 0.3 and size < 0.98:
        return Guess("missing accumulation", f"the output follows the reference but is smaller "
                                             f"({size:.2g} of its size): terms of the sum are "
                                             "missing or overwritten")
    return None
