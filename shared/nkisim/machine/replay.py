"""Loops whose iterations repeat: a timing-only run executes a few and continues the record.

In the SDK the body of `affine_range` and `sequential_range` is traced once, so that its accesses
are affine in the loop index. A timing-only run relies on that: the step from iteration 1 to 2 in
every number of their record gives the numbers of the others, and the last but one is executed to
prove it. The index of the first iterations notices when Python decides something by it
(`if i == 0`, `i % 2`, `tiles[f"{i}"]`), and lists that grow are noticed as well: such loops run
whole. What is noticed too late restarts the launch without this module.
"""
from __future__ import annotations

import dis
import functools
import inspect
import sys
from array import array
from collections import deque
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..trace.trace import HEAD, KIND, LINE, OPERAND, Storages, StorageTable

if TYPE_CHECKING:
    from .machine import Machine

FEWEST = 8              # iterations below which nothing is gained
PROBES = 3              # iterations that run at first; the last two are compared
_COLLECTS = frozenset(dis.opmap[n] for n in ("LIST_APPEND", "SET_ADD", "MAP_ADD"))


class Diverged(BaseException):
    """A later iteration did not follow from the first ones; not an Exception, for `except` in
    kernels must not swallow it."""


class Watch:
    """A loop under observation; `escaped` once Python has decided something by its index."""

    def __init__(self) -> None:
        self.escaped = False


class LoopIndex(int):
    """The index of a loop in its first iterations; sums and multiples of it are watched as well.

    Everything else that looks at the value marks the loops that it depends on.
    """

    watches: frozenset[Watch]

    @classmethod
    def of(cls, value: int, watches: frozenset[Watch]) -> LoopIndex:
        """Return `value`, watched."""
        new = int.__new__(cls, value)
        new.watches = watches
        return new

    def _escape(self) -> None:
        for w in self.watches:
            w.escaped = True

    def __mul__(self, other: Any) -> Any:
        got = int.__mul__(self, other)
        if got is NotImplemented:               # a float, perhaps to be rounded
            self._escape()
            return got
        watches = self.watches
        if isinstance(other, LoopIndex):
            if watches & other.watches:         # i * i is not affine
                self._escape()
            watches |= other.watches
        return LoopIndex.of(got, watches)

    __rmul__ = __mul__

    def __neg__(self) -> LoopIndex:
        return LoopIndex.of(int.__neg__(self), self.watches)

    def __pos__(self) -> LoopIndex:
        return self


def _sum(name: str) -> Any:
    plain = getattr(int, name)

    def method(self: LoopIndex, other: Any) -> Any:
        got = plain(self, other)
        if got is NotImplemented:
            return got
        more = other.watches if isinstance(other, LoopIndex) else frozenset()
        return LoopIndex.of(got, self.watches | more)
    return method


def _escaping(name: str) -> Any:
    plain = getattr(int, name)

    def method(self: LoopIndex, *args: Any) -> Any:
        self._escape()
        for a in args:
            if isinstance(a, LoopIndex):
                a._escape()
        return plain(self, *args)
    return method


for _name in ("__add__", "__radd__", "__sub__", "__rsub__"):
    setattr(LoopIndex, _name, _sum(_name))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "bool", "hash", "int", "float", "abs", "round",
              "trunc", "ceil", "floor", "invert", "repr", "str", "format", "floordiv", "rfloordiv",
              "mod", "rmod", "divmod", "rdivmod", "truediv", "rtruediv", "pow", "rpow", "and",
              "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift"):
    setattr(LoopIndex, f"__{_name}__", _escaping(f"__{_name}__"))


class Part:
    """What one iteration appended to the trace."""

    def __init__(self, m: Machine, marks: tuple[int, ...]):
        self.marks = marks
        self.arrays = [np.array(a[n:], dtype=np.int64) for a, n in zip(_arrays(m), marks)]
        self.loops = list(zip(m.trace.loop_kind, m.trace.loop_line))[marks[-1]:]

    @property
    def storages(self) -> tuple[int, int]:
        """Return (first, past last) of the storages made in the iteration."""
        first = self.marks[2] // Storages.WIDTH
        return first, first + len(self.arrays[2]) // Storages.WIDTH


def _arrays(m: Machine) -> tuple[array, ...]:
    """Return the arrays of the trace that a loop's body appends to."""
    t = m.trace
    return t.rows, t.starts, t.storages.data, t.node_parent, t.node_loop, t.node_iter


def _marks(m: Machine) -> tuple[int, ...]:
    return (*map(len, _arrays(m)), len(m.trace.loop_kind))


def _step(a: Part, b: Part) -> list[np.ndarray] | None:
    """Return the step from one iteration's numbers to the next's, None if it cannot go on so."""
    if a.loops != b.loops or not len(b.arrays[0]):
        return None
    if any(len(x) != len(y) for x, y in zip(a.arrays, b.arrays)):
        return None
    steps = [y - x for x, y in zip(a.arrays, b.arrays)]
    rows, starts = b.arrays[0], b.arrays[1] - b.marks[0]
    if steps[0][starts + KIND].any() or steps[0][starts + LINE].any():
        return None                             # other kinds of instructions, or other lines
    every = StorageTable(*steps[2].reshape(-1, Storages.WIDTH).T)
    if any(x.any() for x in every._replace(node=every.code)):
        return None                             # storages that differ in more than their iteration
    # an operand lies in a storage of this iteration, or in the same one as in the last iteration
    at = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    named = (at >= HEAD) & ((at - HEAD) % OPERAND == 0)
    first, last = b.storages
    own = rows[named] >= first
    if not np.array_equal(steps[0][named], np.where(own, last - first, 0)):
        return None
    return steps


def _append(m: Machine, last: Part, steps: list[np.ndarray], count: int) -> None:
    """Append `count` iterations that follow `last`."""
    times = np.arange(1, count + 1, dtype=np.int64)[:, None]
    for a, base, step in zip(_arrays(m), last.arrays, steps):
        a.frombytes((base + times * step).tobytes())
    m.trace.loop_kind += [kind for kind, _ in last.loops] * count
    m.trace.loop_line += [line for _, line in last.loops] * count
    m.loop_open += [False] * (len(last.loops) * count)


def _check(part: Part, last: Part, steps: list[np.ndarray], later: int) -> None:
    """Raise Diverged unless `part` is what lies `later` iterations after `last`."""
    same = part.loops == last.loops and all(
        np.array_equal(a, b + later * s) for a, b, s in zip(part.arrays, last.arrays, steps))
    if not same:
        raise Diverged


def _counters(frame: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Return the integers and the sizes of the collections among a frame's variables."""
    numbers, sizes = {}, {}
    variables = frame.f_locals
    for name, value in variables.items():
        if isinstance(value, int):
            numbers[name] = int.__index__(value)
        elif isinstance(value, (list, dict, set, deque)):
            sizes[name] = len(value)
    if type(variables) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()       # before Python 3.13 a copy that the frame would keep: tiles in it
    return numbers, sizes       # would live on


def _plain_for(frame: Any) -> bool:
    """Tell whether a frame is at the head of a `for` that builds no list of its iterations."""
    return _collects_nothing(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=1024)
def _collects_nothing(code: CodeType, at: int) -> bool:
    head = [i for i in dis.get_instructions(code) if i.offset <= at][-1:]
    if not head or head[0].opname != "FOR_ITER":
        return False
    return not _COLLECTS.intersection(code.co_code[at:head[0].argval:2])


def iterate(m: Machine, loop: int, parent: int, values: range) -> Iterator[int]:
    """Yield the iterations of a loop that have to be executed, recording the others."""
    watch = Watch()
    watches = frozenset((watch,))
    parts: list[Part] = []
    counters: list[tuple[dict, dict]] = []
    k, n = 0, len(values)
    steps = None
    while k < n:
        marks = _marks(m)
        m.enter(loop, parent, values[k])
        yield LoopIndex.of(values[k], watches) if k < PROBES else values[k]
        m.flush()
        frame = sys._getframe(2)                # past Machine.loop: what the `for` is in
        if k < PROBES and not watch.escaped:
            parts.append(Part(m, marks))
            counters.append(_counters(frame))
            if k == PROBES - 1 and counters[-1][1] == counters[-2][1] and _plain_for(frame):
                steps = _step(*parts[1:])
                if steps is not None:
                    _append(m, parts[-1], steps, n - 2 - PROBES)
                    k = n - 3
        elif steps is not None and k == n - 2:
            later = k - PROBES + 1
            _check(Part(m, marks), parts[-1], steps, later)
            _check_counters(counters, _counters(frame), later)
        k += 1


def _check_counters(seen: list[tuple[dict, dict]], now: tuple[dict, dict], later: int) -> None:
    """Raise Diverged if a variable depends on how often the body ran."""
    (before, _), (last, sizes) = seen[-2:]
    numbers, sizes_now = now
    if sizes_now != sizes:
        raise Diverged
    for name, value in numbers.items():
        if name in last and name in before \
                and value != last[name] + later * (last[name] - before[name]):
            raise Diverged
