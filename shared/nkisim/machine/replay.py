"""Loops whose iterations repeat: a timing-only run executes a few and continues the record.

In the SDK the body of `affine_range` and `sequential_range` is traced once, so that its accesses
are affine in the loop index. A timing-only run relies on that. A loop of n iterations goes through
these states:

- probing: iterations 0, 1 and 2 are executed with an index that notices when Python decides
  something by it (loopindex.py);
- if anything stands against it: whole, all others are executed as well;
- continued: the step from iteration 1 to 2 in every number of their record gives the numbers of
  the iterations 3 to n - 3, which are appended to the record;
- proven: iteration n - 2 is executed, and was what the step foretells. The last one is executed.

What a slice, a modulo or one bound of a mask makes of an affine index is affine up to some
iteration and something else after it, and does not come back; so what holds for 1, 2 and n - 2
holds between. A mask of two sides may select in the middle what it does not at both ends: where a
mask leaves an instruction out, or is no box, the loop runs whole. So do loops in whose frame
something else than the index moves: counters, flags, lists that grow, iterators. What a body keeps
elsewhere (a global, an attribute of an attribute) is not seen.

A loop that is not what was foretold raises Diverged: the kernel then runs again without all this.
"""
from __future__ import annotations

import functools
import inspect
from array import array
from collections import deque
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..trace.trace import HEAD, KIND, LINE, OPERAND, Storages, StorageTable
from .loopindex import LoopIndex, Watch

if TYPE_CHECKING:
    from .machine import Machine

FEWEST = 8              # iterations below which nothing is gained
PROBES = 3              # iterations that are executed at first; all but the first are compared


class Diverged(BaseException):
    """A later iteration did not follow from the first ones; not an Exception, for `except` in
    kernels must not swallow it."""


class Replays:
    """How a run deals with its loops: `on` if it may continue them."""

    def __init__(self, on: bool):
        self.on = on
        self.unproven = 0       # loops that are continued and not proven yet
        self.watched = False    # LoopIndex has been handed out
        self.left_out = 0       # instructions of which a mask left nothing

    def trusts(self, error: Exception) -> bool:
        """Tell whether an error of the kernel is the one that the whole run has.

        In an unproven loop an earlier iteration may have failed first; and a TypeError may be the
        fault of a LoopIndex (C code that takes nothing but ints).
        """
        return not self.unproven and not (self.watched and isinstance(error, TypeError))

    def finish(self) -> None:
        """Raise Diverged if a loop was left before it was proven."""
        if self.unproven:
            raise Diverged


# -- what an iteration leaves behind -----------------------------------------------------------

@functools.lru_cache(maxsize=1024)
def _sort(kind: type) -> str:
    """Return what Variables make of values of a type; "" if they do not look at them."""
    if kind is LoopIndex:
        return "index"
    if issubclass(kind, (int, float, complex, str, bytes, type(None), np.generic)):
        return "value"
    if issubclass(kind, (list, tuple, set, dict, deque)):
        return "collection"
    if hasattr(kind, "__next__"):
        return "iterator"
    return "object" if kind.__dictoffset__ and not issubclass(kind, (ModuleType, type)) else ""


class Variables:
    """The variables of a loop's frame after an iteration, and what is one level inside of them.

    `moving` follows from the index; `fixed`, values and sizes of collections, does not. Names of
    what is inside are pairs. `unknown`: there is an iterator, and nobody can tell where it is.
    """

    def __init__(self, frame: FrameType):
        self.fixed: dict[Any, Any] = {}
        self.moving: dict[Any, int] = {}
        self.unknown = False
        variables = frame.f_locals
        for name, value in variables.items():
            self._note(name, value)
        # Before Python 3.13 the f_locals of a function are a copy that its frame keeps. Tiles in
        # it would live on; whether a result is still in use decides what is recorded.
        if type(variables) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            variables.clear()

    def _note(self, name: Any, value: Any, inside: bool = False) -> None:
        kind: Any = type(value)
        sort = _sort(kind)
        if sort == "index":
            self.moving[name] = value.value
        elif sort == "value":
            self.fixed[name] = value
        elif sort == "iterator":
            self.unknown = True
        elif sort == "collection":
            self.fixed[name] = kind, len(value)
        inner: Any = ()
        if not inside and sort == "collection":
            inner = value.items() if issubclass(kind, dict) else enumerate(value)
        elif not inside and sort == "object":
            inner = value.__dict__.items()
        for k, v in inner:
            self._note((name, k), v, True)

    def follow(self, before: Variables, last: Variables, steps: int) -> bool:
        """Tell whether these are what lies `steps` iterations after the two `before` and `last`."""
        moved = {k: v + steps * (v - before.moving[k]) for k, v in last.moving.items()}
        return self.fixed | self.moving == last.fixed | moved

    def goes_on_from(self, before: Variables) -> bool:
        """Tell whether only what follows from the index has moved since the iteration before."""
        return not self.unknown and self.fixed == before.fixed \
            and self.moving.keys() == before.moving.keys()


class Part:
    """What one iteration appended to the trace, and the variables after it.

    `start` is where its part of each array begins; `left_out` is how many instructions masks had
    left out by then. `heads`: where its instructions begin in its rows. `masked`: a mask has left
    one out since, or is no box.
    """

    def __init__(self, m: Machine, start: tuple[int, ...], left_out: int, frame: FrameType):
        self.start = start
        self.arrays = [np.array(a[n:], dtype=np.int64) for a, n in zip(_arrays(m), start)]
        self.loops = list(zip(m.trace.loop_kind, m.trace.loop_line))[start[-1]:]
        self.heads = self.arrays[1] - start[0]
        kinds = set(self.arrays[0][self.heads + KIND].tolist())
        self.masked = m.replays.left_out > left_out or any(m.trace.kinds[k].masked for k in kinds)
        self.variables = Variables(frame)

    @property
    def storages(self) -> tuple[int, int]:
        """Return (first, past last) of the storages made in the iteration."""
        first = self.start[2] // Storages.WIDTH
        return first, first + len(self.arrays[2]) // Storages.WIDTH


def _arrays(m: Machine) -> tuple[array, ...]:
    """Return the arrays of the trace that a loop's body appends to."""
    t = m.trace
    return t.rows, t.starts, t.storages.data, t.node_parent, t.node_loop, t.node_iter


def _lengths(m: Machine) -> tuple[int, ...]:
    return (*map(len, _arrays(m)), len(m.trace.loop_kind))


# -- from two iterations to all ------------------------------------------------------------------

def _step(a: Part, b: Part) -> list[np.ndarray] | None:
    """Return the step from one iteration's numbers to the next's, None if it cannot go on so."""
    if a.loops != b.loops or not len(b.arrays[0]) or a.masked or b.masked:
        return None
    if any(len(x) != len(y) for x, y in zip(a.arrays, b.arrays)):
        return None
    if not b.variables.goes_on_from(a.variables):
        return None
    steps = [y - x for x, y in zip(a.arrays, b.arrays)]
    return steps if _same_instructions(b, steps) and _same_storages(b, steps) else None


def _same_instructions(b: Part, steps: list[np.ndarray]) -> bool:
    """Tell whether kinds and lines of the instructions are the same, and storages of the same
    size are made."""
    heads = b.heads
    storages = StorageTable(*steps[2].reshape(-1, Storages.WIDTH).T)
    return not (steps[0][heads + KIND].any() or steps[0][heads + LINE].any()
                or any(x.any() for x in storages._replace(node=storages.code)))


def _same_storages(b: Part, steps: list[np.ndarray]) -> bool:
    """Tell whether each operand lies in a storage made in its own iteration, which is then as
    many storages further, or in the very same one."""
    rows, heads = b.arrays[0], b.heads
    column = np.arange(len(rows)) - np.repeat(heads, np.diff(np.append(heads, len(rows))))
    named = (column >= HEAD) & ((column - HEAD) % OPERAND == 0)
    first, last = b.storages
    own = rows[named] >= first
    return np.array_equal(steps[0][named], np.where(own, last - first, 0))


def _append(m: Machine, last: Part, steps: list[np.ndarray], count: int) -> None:
    """Append `count` iterations that follow `last`."""
    times = np.arange(1, count + 1, dtype=np.int64)[:, None]
    for a, base, step in zip(_arrays(m), last.arrays, steps):
        a.frombytes((base + times * step).tobytes())
    m.trace.loop_kind += [kind for kind, _ in last.loops] * count
    m.trace.loop_line += [line for _, line in last.loops] * count
    m.loop_open += [False] * (len(last.loops) * count)


def _follows(part: Part, probes: list[Part], steps: list[np.ndarray], later: int) -> bool:
    """Tell whether `part` is what lies `later` iterations after the last of two `probes`."""
    before, last = probes
    return part.loops == last.loops \
        and all(len(a) == len(b) and np.array_equal(a, b + later * s)
                for a, b, s in zip(part.arrays, last.arrays, steps)) \
        and part.variables.follow(before.variables, last.variables, later)


# -- the loop itself -----------------------------------------------------------------------------

def iterate(m: Machine, loop: int, parent: int, values: range, frame: FrameType
            ) -> Iterator[Any]:
    """Yield the indices of a loop's iterations that have to be executed, recording the others.

    `frame` is the one whose `for` statement it is; `loop` and `parent` as in Machine.enter.
    """
    watch = Watch()
    watches = frozenset((watch,))
    probes: list[Part] = []
    m.replays.watched = True
    for k, value in enumerate(values[:PROBES]):
        start, left_out = _lengths(m), m.replays.left_out
        m.enter(loop, parent, value)
        yield LoopIndex(value, watches)
        m.flush()
        if k:                               # the first may be special
            probes.append(Part(m, start, left_out, frame))
    rest = values[PROBES:]
    steps = None if watch.escaped else _step(*probes)
    if steps is not None:
        skipped, rest = len(rest) - 2, rest[-1:]
        _append(m, probes[-1], steps, skipped)
        m.replays.unproven += 1
        start, left_out = _lengths(m), m.replays.left_out
        m.enter(loop, parent, values[-2])
        yield values[-2]
        m.flush()
        if not _follows(Part(m, start, left_out, frame), probes, steps, skipped + 1):
            raise Diverged
        m.replays.unproven -= 1
    for value in rest:
        m.enter(loop, parent, value)
        yield value
        m.flush()
