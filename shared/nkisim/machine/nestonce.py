"""Loops of which a run without values executes one iteration each, whatever instructions they hold.

    for t in range(tiles):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[t * 128:(t + 1) * 128])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.dma_copy(dst=out[t * 128:(t + 1) * 128], src=tile)

Without values all that an instruction leaves is its row in the record, and the source says that
nothing but indices tells one iteration from another (nestplan.py). So when the first iteration of a
loop is over, its rows give those of all others: subscripts say how far the loop moves each operand,
tiles that the iteration has made are as many storages further. Loops inside have been continued in
this way by then, and are copied with the rest.

What a machine remembers from one iteration to the next (sums in PSUM that have been read, zeros
that are not written yet, results that live on in a tile) may make the second one another: a loop
that touches such a thing runs whole, and so does one whose index decides something. The loops
around it may still be continued.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip.memory import HBM, PSUM
from ..errors import NkiError
from ..trace.trace import HEAD, KIND, OPERAND, Storages
from . import nestagain
from .loopindex import Compared, LoopIndex, Watch
from .nestagain import lives_on
from .nestrecord import NODE_OF_STORAGE
from .nestviews import Place, Ran, Variable, Views
from .tensor import Tensor

if TYPE_CHECKING:
    from .instruction import Instr
    from .machine import Machine

LEAST = 12              # instructions that take as long to execute as to append
FEW = 4                 # instructions of a nest below which nothing is gained
MOST_SMALL = 32         # loops with fewer, inside of one, that are appended even so
MOST_PLACES = 256       # of a result in all iterations, of which each is checked
_NODE, _STORAGE, _OFFSET = 1, 2, 3      # what the words of a row are, 0 for those that stay


class Issue(Ran):
    """An instruction of a loop's first iteration. `stale`: storages that are in another state the
    next time."""

    def __init__(self, places: list[Place], adds: Compared | None, ins: Instr, dst: Tensor):
        super().__init__(ins, places, [dst.offset])
        self.adds = adds
        self.stale: set[int] = set()
        self.view = dst.shape, dst.strides, dst.dtype


class Level:
    """A loop whose first iteration is running, and where what it leaves begins."""

    def __init__(self, once: Once, values: range, recorded: bool):
        m, tr = once.m, once.m.trace
        self.fits = m.pending is None           # or the first iteration ends what came before
        self.watch, self.values, self.recorded = Watch(), values, recorded
        self.rows, self.starts, self.storages = len(tr.rows), len(tr.starts), len(tr.storages)
        self.nodes, self.loops = len(tr.node_loop) - recorded, len(tr.loop_kind)
        self.issues = len(once.which)
        self.state = _state(m)


def _state(m: Machine) -> tuple[int, ...]:
    """Return how much there is of what only a first iteration may add."""
    tr = m.trace
    return (len(m.findings), m.replays.left_out, len(tr.edges), len(tr.named), len(m.constants),
            len(m.shared), len(m.indexed), len(m.masked_out))


class Once(Views):
    """Loops of which one iteration is executed, from the outermost one on.

    `issues`: the instructions that were executed; `which`: that of each one in the record.
    """

    def __init__(self, m: Machine, watched: nestagain.Watched | None):
        super().__init__(m)
        self.watched = watched
        self.variables = [] if watched is None else watched.variables
        self.stack: list[Level] = []
        self.issues: list[Issue] = []
        self.which: list[int] = []
        self.numbers: list[int] = []            # of each: what decides whether a product adds
        self.adds: Compared | None = None
        self.small = 0                  # loops of which little was to be appended
        self.fits = False               # all of the outermost loop follows from one iteration
        tr = m.trace
        self.parent, self.loops, self.nodes = m.node, len(tr.loop_kind), len(tr.node_loop)
        self.rows, self.starts, self.storages = len(tr.rows), len(tr.starts), len(tr.storages)

    # -- while an iteration runs -----------------------------------------------------------------
    def enter(self, values: range, recorded: bool) -> LoopIndex:
        """Begin the first iteration of a loop; return its index."""
        level = Level(self, values, recorded)
        self.stack.append(level)
        self.levels.append((level.watch, values))
        return LoopIndex(values[0], frozenset((level.watch,)), {level.watch: values.step})

    def follow(self, t: Tensor, view: Tensor) -> None:
        """Note that a view has been made of another one by numbers: the same moves both."""
        base = self.moving.get(id(t))
        if base is not None:
            self.note(view, base[1])

    def issue(self, ins: Instr, dst: Tensor) -> None:
        """Take an instruction that is about to be recorded."""
        adds, self.adds = self.adds, None
        if ins.box is not None or ins.mask is not None or getattr(ins.form, "indirect", False) \
                or len(self.m.trace.starts) != self.starts + len(self.which) \
                or any(t.storage.lazy_zero for t in ins.srcs):
            self.give_up()
        x = Issue(self.places(ins, dst), adds, ins, dst)
        for k, p in enumerate(x.places):
            st = p.storage
            if st.arena or k < x.outs and lives_on(st):
                x.stale.add(st.id)
        self.which.append(len(self.issues))
        self.numbers.append(0 if adds is None else adds.index.value)
        self.issues.append(x)

    def answer(self, adds: Compared) -> bool:
        """Return whether the next product adds to its sum; see Nest.answer."""
        self.adds = adds
        for w in adds.index.steps or ():
            w.escaped |= type(w) is Variable
        return adds.first()

    def give_up(self) -> None:
        """Run all loops that have begun whole."""
        for level in self.stack:
            level.fits = False

    # -- when it has run -------------------------------------------------------------------------
    def leave(self) -> bool:
        """End the first iteration of the innermost loop that has begun; tell whether the record
        of all others has been appended."""
        level = self.stack.pop()
        self.levels.pop()
        if not self.stack:
            self.end()
        if len(level.values) < 2:
            return True
        if (len(level.values) - 1) * (len(self.which) - level.issues) < LEAST:
            self.small += 1
            if self.small > MOST_SMALL:
                return False
        mine = dict.fromkeys(self.which[level.issues:])
        if not self._fits(level, [self.issues[k] for k in mine]):
            return False
        self._append(level, list(mine))
        if not self.stack:
            self.fits = True
            if self.watched is not None:
                self.watched.remember(self, list(self.issues), words(self.issues, self.which),
                                      self.which)
        return True

    def end(self) -> None:
        """End it all: what is left runs as ever."""
        if self.m.nest is self:
            self.m.nest = None
            if self.watched is not None:
                self.watched.end()

    def _fits(self, level: Level, mine: list[Issue]) -> bool:
        m, tr = self.m, self.m.trace
        if not level.fits or level.watch.escaped or _state(m) != level.state \
                or len(tr.starts) != self.starts + len(self.which) \
                or not len(tr.starts) > level.starts:
            return False
        width = Storages.WIDTH
        if Storages.CODE[HBM] in tr.storages.data[level.storages * width::width]:
            return False
        written: dict[int, bool] = {}           # storages in PSUM: by products?
        read: set[int] = set()
        for x in mine:
            if any(level.watch in p.unknown for p in x.places) \
                    or any(st < level.storages for st in x.stale):
                return False
            for k, p in enumerate(x.places):
                st = p.storage
                if st.id >= level.storages:
                    continue
                if k >= x.outs:
                    read.add(st.id)
                elif lives_on(st):
                    return False
                elif st.kind is PSUM and written.setdefault(st.id, x.product) != x.product:
                    return False
            if not self._places(level, x):
                return False
        sums = m.psum_sums
        return not any(st in sums and any(sums[st].values()) for st in written) \
            and not any(st in sums for st in read)

    def _places(self, level: Level, x: Issue) -> bool:
        """Find where a result begins in all iterations; tell whether each of them is allowed."""
        step = x.places[0].moves.get(level.watch, 0)
        check = x.ins.row.check
        if not step or check is None:
            return True
        new = [at + k * step for k in range(1, len(level.values)) for at in x.at]
        if len(new) > MOST_PLACES:
            return False
        shape, strides, dtype = x.view
        st = x.places[0].storage
        try:
            for at in new:
                check(self.m, x.ins, Tensor(self.m, st, at, shape, strides, dtype, 0, st.kind))
        except NkiError:
            return False
        x.at += new
        return True

    def _append(self, level: Level, mine: list[int]) -> None:
        """Append the record of all iterations of a loop but the first."""
        m, tr, count = self.m, self.m.trace, len(level.values) - 1
        times = np.arange(1, count + 1, dtype=np.int64)[:, None]
        made, nodes = len(tr.storages) - level.storages, len(tr.node_loop) - level.nodes
        loops = len(tr.loop_kind) - level.loops
        rows = np.array(tr.rows[level.rows:], np.int64)
        starts = np.array(tr.starts[level.starts:], np.int64)
        which = self.which[level.issues:]
        local = {i: n for n, i in enumerate(mine)}
        ran = [self.issues[i] for i in mine]
        place = words(ran, [local[i] for i in which])
        role, move = (x[place] for x in _layout(ran, level.watch))
        step = np.where(role == _OFFSET, move, 0)
        step[(role == _NODE) & (rows >= level.nodes)] = nodes
        step[(role == _STORAGE) & (rows >= level.storages)] = made
        every = rows + times * step
        numbers = self._kinds(level, mine, every, starts - level.rows)
        tr.rows.frombytes(every.tobytes())
        tr.starts.frombytes((starts + times * len(rows)).tobytes())
        width = Storages.WIDTH
        data = np.array(tr.storages.data[level.storages * width:], np.int64)
        if made:
            step = np.zeros((made, width), np.int64)
            inside = data.reshape(-1, width)[:, NODE_OF_STORAGE] >= level.nodes
            step[inside, NODE_OF_STORAGE] = nodes
            tr.storages.data.frombytes((data + times * step.reshape(-1)).tobytes())
        if nodes:
            parent, loop, index = (np.array(a[level.nodes:], np.int64)
                                   for a in (tr.node_parent, tr.node_loop, tr.node_iter))
            tr.node_parent.frombytes((parent + times * ((parent >= level.nodes) * nodes)).tobytes())
            tr.node_loop.frombytes((loop + times * ((loop >= level.loops) * loops)).tobytes())
            step = np.zeros(nodes, np.int64)
            step[:level.recorded] = level.values.step
            tr.node_iter.frombytes((index + times * step).tobytes())
        tr.loop_kind += tr.loop_kind[level.loops:] * count
        tr.loop_line += tr.loop_line[level.loops:] * count
        m.loop_open += [False] * (loops * count)
        self.which += which * count
        self.numbers += numbers
        for x in ran:
            known = m.psum_sums.get(x.places[0].storage.id)
            if known is not None and x.product:
                known.update((at, False) for at in x.at)

    def _kinds(self, level: Level, mine: list[int], every: np.ndarray, heads: np.ndarray
               ) -> list[int]:
        """Set the kinds of products that add to their sums in some iterations and not in others;
        return the `numbers` of all later iterations."""
        count, which = len(every), np.array(self.which[level.issues:])
        if all(self.issues[i].adds is None for i in mine):
            return self.numbers[level.issues:] * count
        before = np.array(self.numbers[level.issues:], np.int64)
        later = np.tile(before, (count, 1))
        other = np.zeros(later.shape, bool)
        for i in mine:
            adds = self.issues[i].adds
            if adds is None:
                continue
            at = np.flatnonzero(which == i)
            step = (adds.index.steps or {}).get(level.watch, 0)
            later[:, at] += step * np.arange(1, count + 1)[:, None]
            other[:, at] = adds.op(later[:, at], adds.other) != adds.op(before[at], adds.other)
        for k, n in np.argwhere(other).tolist():
            place = heads[n] + KIND
            every[k, place] = self.m.trace.adding(int(every[k, place]))
        return later.reshape(-1).tolist()


def words(ran: list[Issue], which: list[int]) -> np.ndarray:
    """Return each word of a record as one of the rows of what has run, which lie one behind the
    other; `which`: what of it each instruction is."""
    width = np.array([HEAD + OPERAND * len(x.places) for x in ran], np.int64)
    first = np.cumsum(width) - width
    each = np.array(which, np.int64)
    ends = np.cumsum(width[each])
    return np.arange(int(ends[-1])) + np.repeat(first[each] - ends + width[each], width[each])


def _layout(ran: list[Issue], watch: Watch) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each word of the rows of what has run, its role, and how far a loop moves it."""
    role: list[int] = []
    moves: list[int] = []
    for x in ran:
        role += (0, 0, _NODE)
        moves += (0,) * HEAD
        for p in x.places:
            role += (_STORAGE, _OFFSET)
            moves += (0, p.moves.get(watch, 0))
    return np.array(role, np.int64), np.array(moves, np.int64)


def inner(m: Machine, values: range, indices: Generator[Any, None, None], recorded: bool, once: Once
          ) -> Iterator[Any]:
    """Yield the indices of a loop that have to be executed."""
    for k, index in enumerate(indices):
        yield index if k else once.enter(values, recorded)
        if m.pending is not None:
            m.flush()
        if not k and once.leave():
            indices.close()
            return


def outermost(m: Machine, values: range, indices: Generator[Any, None, None], recorded: bool,
              plan: Any, watch: Callable[[], nestagain.Watched] | None) -> Iterator[Any]:
    """Yield the indices of an outermost loop that have to be executed. `watch` begins to watch
    variables meanwhile."""
    once = m.nest = Once(m, None if watch is None else watch())
    try:
        yield from inner(m, values, indices, recorded, once)
    finally:
        once.end()              # an error ends the kernel, or is caught in it
    if not once.fits or len(once.which) < FEW:
        m.misfits[plan] = m.misfits.get(plan, 0) + 1


__all__ = ["Once", "inner", "outermost"]
