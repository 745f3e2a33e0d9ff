"""The views that the first iteration of loops makes, and how far each loop moves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..chip.memory import HBM
from ..indexing.index import Index, Slice
from .loopindex import LoopIndex, ObservedLoop

if TYPE_CHECKING:
    from ..machine.interface import Machine
    from ..machine.tensor import Tensor

_ALL = slice(None)
Moves = dict[ObservedLoop, int]  # bytes that one more iteration of each loop moves a view


class Views:
    """The views that have been made in the loops that are in their first iteration."""

    def __init__(self, m: Machine):
        self.m = m
        self.levels: list[tuple[ObservedLoop, range]] = []
        self.moving: dict[int, tuple[Tensor, Moves]] = {}  # views, by their id
        self.movers: dict[int, set[ObservedLoop]] = {}  # of views of each storage

    def note(self, view: Tensor, moves: Moves) -> None:
        """Note how far a view is moved."""
        self.moving[id(view)] = view, moves
        self.movers.setdefault(view.storage.id, set()).update(moves)

    def follow(self, t: Tensor, view: Tensor) -> None:
        """Note that a view has been made of another one by numbers: the same moves both."""
        base = self.moving.get(id(t))
        if base is not None:
            self.note(view, base[1])

    def compared(self, a: Tensor, b: Tensor) -> None:
        """Note that something depends on whether two views of a storage begin at one place."""
        views = [self.moving.get(id(t)) for t in (a, b)]
        moves_of_views = [seen[1] for seen in views if seen is not None]
        for w in self.movers.get(a.storage.id, ()):
            if (
                len({moves.get(w, 0) for moves in moves_of_views}) > 1
                or len(moves_of_views) < 2
                and any(moves.get(w, 0) for moves in moves_of_views or [{w: 1}])
            ):
                w.escaped = True

    def moves(self, t: Tensor) -> tuple[Moves, set[ObservedLoop]]:
        """Return how far each loop moves an operand, and the loops for which that is unknown."""
        seen = self.moving.get(id(t))
        if seen is not None:
            return seen[1], set()
        return {}, self.movers.get(t.storage.id, set())

    def view(self, t: Tensor, keys: tuple) -> Tensor | None:
        """Return what subscripts mean and how far the loops move it; None if that is unclear."""
        if type(...) in map(type, keys):
            at = next(i for i, k in enumerate(keys) if k is Ellipsis)
            keys = (*keys[:at], *[_ALL] * (len(t.shape) - len(keys) + 1), *keys[at + 1 :])
        if t.oob is not None or len(keys) > len(t.shape):
            return None
        part = t.nblock if t.memory is not HBM else -1
        plain: list[Any] = []
        base = self.moving.get(id(t))
        moves = {} if base is None else dict(base[1])
        moved = base is not None
        for d, (k, n, stride) in enumerate(zip(keys, t.shape, t.strides)):
            shift = _moved(k, n)
            if shift is None:
                return None
            first, steps, low, high = shift
            plain.append(first)
            if steps:
                moved = True
                if d == part or not self._inside(low, high, steps, n):
                    return None
                for watch, step in steps.items():
                    moves[watch] = moves.get(watch, 0) + step * stride
        if not moved:
            return None
        nest, self.m.loops.nest = self.m.loops.nest, None  # what is left of the subscripts is plain
        try:
            view = t[tuple(plain)]
        finally:
            self.m.loops.nest = nest
        self.note(view, moves)
        return view

    def _inside(self, low: int, high: int, steps: Moves, n: int) -> bool:
        """Return whether elements low ... high of a dim of n stay in it in all iterations."""
        for watch, values in self.levels:
            far = steps.get(watch, 0) * (len(values) - 1)
            if far > 0:
                high += far
            else:
                low += far
        return low >= 0 and high < n


def _moved(k: Any, n: int) -> tuple[Any, Moves, int, int] | None:
    """Return a subscript in the first iteration, what each loop adds to it, and the first and the
    last element of a dim of n that it touches then; None if there is no saying that."""
    cls = type(k)
    if cls is int or cls is LoopIndex:
        value, steps = _parts(k)
        return value, steps, value, value
    if cls is slice:
        (lo, steps), (hi, ends) = _parts(k.start), _parts(k.stop)
        if steps != ends or type(k.step) is LoopIndex:  # the size depends on an index
            return None
        return slice(lo, hi, k.step), steps, lo or 0, (n if hi is None else hi) - 1
    if cls is Slice:
        lo, steps = _parts(k.start)
        return Slice(lo, k.size), steps, lo, lo + k.size - 1
    if cls is Index:
        const, steps = _parts(k.const)
        first = Index(const, k.shape, k.coeffs)
        return first, steps, *first.bounds()
    return None


def _parts(index: Any) -> tuple[Any, Moves]:
    """Return a number in the first iteration, and what each loop adds to it."""
    return (
        (index.value, {w: s for w, s in index.steps.items() if s})
        if type(index) is LoopIndex
        else (index, {})
    )


__all__ = ["Moves", "Views"]
