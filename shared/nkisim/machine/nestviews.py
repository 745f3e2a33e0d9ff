"""The views that the body of a nest of loops makes, and how far each loop moves them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip.memory import HBM, Storage
from .index import Index, Slice
from .loopindex import LoopIndex, Watch

if TYPE_CHECKING:
    from .instruction import Instr
    from .machine import Machine
    from .tensor import Tensor

_ALL = slice(None)
Moves = dict[Watch, int]                # bytes that one more iteration of each loop moves a view


class Variable(Watch):
    """A number of the kernel's that is watched while a nest runs, as if it were a loop's index.

    It moves views as a loop would that runs once: so one knows what another number would make of
    them. `escaped` once something else depends on it than where views begin.
    """

    __slots__ = ("name",)

    def __init__(self, name: str):
        super().__init__()
        self.name = name


class Bound:
    """What a subscript needs: elements low ... high of a dim of n, which `steps` of variables move.
    """

    __slots__ = ("low", "high", "n", "steps")

    def __init__(self, low: int, high: int, n: int, steps: Moves):
        self.low, self.high, self.n, self.steps = low, high, n, steps


class Place:
    """An operand in the first iteration. `moves`: how far each loop and variable moves it;
    `unknown`: what moves it nobody knows how far; `limit`: the bytes of a partition, if it has to
    begin in the first one."""

    __slots__ = ("storage", "offset", "moves", "limit", "unknown")

    def __init__(self, t: Tensor, moves: Moves | None, unknown: set[Watch], on_partitions: bool):
        self.storage: Storage = t.storage
        self.offset, self.moves, self.unknown = t.offset, moves or {}, unknown
        self.limit = t.storage.row_bytes if on_partitions and t.kind is not HBM else 0


class Ran:
    """An instruction of a first iteration, without its operands: who holds a result keeps it alive.

    The first `outs` of its `places` are written; `at`: where the result begins, in all iterations.
    """

    def __init__(self, ins: Instr, places: list[Place], at: list[int]):
        self.ins, self.places, self.at = ins.pattern(), places, at
        self.outs, self.product = 1 + len(ins.also), ins.row.accumulates


class Views:
    """The views of a nest; the base of Nest."""

    def __init__(self, m: Machine):
        self.m = m
        self.levels: list[tuple[Watch, range]] = []
        self.moving: dict[int, tuple[Tensor, Moves]] = {}       # views, by their id
        self.movers: dict[int, set[Watch]] = {}         # of views of each storage
        self.variables: list[Variable] = []
        self.bounds: list[Bound] = []   # of the variables that move them

    def _inside(self, low: int, high: int, steps: Moves, n: int) -> bool:
        """Tell whether elements low ... high of a dim of n stay in it in all iterations."""
        for watch, values in self.levels:
            far = steps.get(watch, 0) * (len(values) - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        by: Moves = {w: s for w, s in steps.items() if type(w) is Variable}
        if by:
            self.bounds.append(Bound(low, high, n, dict(by)))
        return low >= 0 and high < n

    def note(self, view: Tensor, moves: Moves) -> None:
        """Note how far a view is moved."""
        self.moving[id(view)] = view, moves
        self.movers.setdefault(view.storage.id, set()).update(moves)

    def places(self, ins: Instr, dst: Tensor) -> list[Place]:
        """Return the operands of an instruction, the written ones first."""
        found = []
        for t in (dst, *ins.also, *ins.srcs):
            seen = self.moving.get(id(t))
            moved = self.movers.get(t.storage.id) if seen is None else None
            unknown = {w for w in (*(w for w, _ in self.levels), *self.variables)
                       if w in moved} if moved else set()
            found.append(Place(t, seen and seen[1], unknown, ins.row.on_partitions))
        return found

    def defer(self, a: np.ndarray, b: np.ndarray) -> None:
        """Take the operands of the product that is being computed, if it is to wait."""

    def follow(self, t: Tensor, view: Tensor) -> None:
        """Take note of a view that numbers have made of another one."""

    def view(self, t: Tensor, keys: tuple) -> Tensor | None:
        """Return what subscripts mean, noting how far the loops move it; None if that is unclear.
        """
        if type(...) in map(type, keys):
            at = next(i for i, k in enumerate(keys) if k is Ellipsis)
            keys = (*keys[:at], *[_ALL] * (len(t.shape) - len(keys) + 1), *keys[at + 1:])
        if t.oob is not None or len(keys) > len(t.shape):
            return None
        part = t.nblock if t.kind is not HBM else -1
        plain: list[Any] = []
        base = self.moving.get(id(t))
        moves = {} if base is None else dict(base[1])
        moved = base is not None
        for d, (k, n, stride) in enumerate(zip(keys, t.shape, t.strides)):
            found = _moved(k, n)
            if found is None:
                return None
            first, steps, low, high = found
            plain.append(first)
            if steps:
                moved = True
                if d == part or not self._inside(low, high, steps, n):
                    steps = _fixed(steps)
                    if steps:
                        return None
                for watch, step in steps.items():
                    moves[watch] = moves.get(watch, 0) + step * stride
        if not moved:
            return None
        nest, self.m.nest = self.m.nest, None   # what is left of the subscripts is plain
        try:
            view = t[tuple(plain)]
        finally:
            self.m.nest = nest
        self.note(view, moves)
        return view


def _fixed(steps: Moves) -> Moves:
    """Return the steps of loops alone: something depends on what the variables are."""
    for w in steps:
        if type(w) is Variable:
            w.escaped = True
    return {w: s for w, s in steps.items() if type(w) is not Variable}


def _moved(k: Any, n: int) -> tuple[Any, Moves, int, int] | None:
    """Return a subscript in the first iteration, what each loop adds to it, and the first and the
    last element of a dim of n that it touches then; None if there is no saying that."""
    kind = type(k)
    if kind is int or kind is LoopIndex:
        value, steps = _parts(k)
        return value, steps, value, value
    if kind is slice:
        (lo, steps), (hi, ends) = _parts(k.start), _parts(k.stop)
        if steps != ends:               # the size depends on those that differ
            other = _fixed({w: s for w, s in (steps | ends).items()
                            if steps.get(w) != ends.get(w)})
            steps = {w: s for w, s in steps.items() if ends.get(w) == s}
            if other:
                return None
        if type(k.step) is LoopIndex:
            return None
        return slice(lo, hi, k.step), steps, lo or 0, (n if hi is None else hi) - 1
    if kind is Slice:
        lo, steps = _parts(k.start)
        return Slice(lo, k.size), steps, lo, lo + k.size - 1
    if kind is Index:
        const, steps = _parts(k.const)
        first = Index(const, k.shape, k.coeffs)
        return first, steps, *first.bounds()
    return None


def _parts(x: Any) -> tuple[Any, Moves]:
    """Return a number in the first iteration, and what each loop adds to it."""
    return (x.value, {w: s for w, s in (x.steps or {}).items() if s}) \
        if type(x) is LoopIndex else (x, {})


__all__ = ["Bound", "Moves", "Place", "Ran", "Variable", "Views"]
