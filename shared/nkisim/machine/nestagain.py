"""A nest of loops that a kernel runs again and again, with other tiles and at other places.

    for t in range(tiles):
        acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(k_tiles):
            acc += nisa.nc_matmul(left[:, k, t * 128:(t + 1) * 128], right[:, k])

The first time its body runs once (nest.py), and with it some of the kernel's variables are watched
as indices are: those of which the source says that they are added up in subscripts and nothing else
(Plan.places). So how far each moves each operand is known as well. The next time, if all else that
the nest reads looks as it did, its body need not run at all: the record is the one that there is,
with other storages and offsets. In a run with values that goes for nests of products alone, which
wait with their new operands (nestvalues.Sum).
"""
from __future__ import annotations

import inspect
from enum import Enum
from types import FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip.memory import PSUM, Buffer, Storage
from ..errors import user_frame
from ..trace.trace import NODE, Storages
from .index import Grid, Index, MGrid, Slice
from .loopindex import LoopIndex, Watch
from .nestplan import Plan, found
from .nestrecord import NODE_OF_STORAGE
from .nestvalues import Sum, has_room
from .nestviews import Moves, Place, Ran, Variable
from .tensor import Tensor
from .tracedonce import set_variables

if TYPE_CHECKING:
    from .machine import Machine
    from .nest import Nest
    from .nestonce import Once

UNUSED = 12             # nests at one place that are remembered in vain, before none is any more
#: what moves a word of a record that is had again: nothing, the rows before it ... (Again.append)
_STAYS, _ROWS, _NODES, _OUTSIDE, _LOOPS, _PARENT, _FIRST = range(7)
#: types of values that are what they are equal to
_VALUES = frozenset((bool, str, tuple, type(None), type(...), FunctionType, ModuleType, Buffer,
                     type))


_EXPRESSIONS = frozenset((Index, Slice, Grid, MGrid))


def _form(x: Any) -> tuple | None:
    """Return what an index expression is, None if that moves with a loop."""
    kind = type(x)
    if kind is Index:
        return (kind, x.const, x.shape, x.coeffs) if type(x.const) is int else None
    if kind is Slice:
        return (kind, x.start, x.size) if type(x.start) is int else None
    forms = [_form(i) for i in x] if kind is Grid else []
    return None if None in forms else (kind, *forms)


class History:
    """What is known of a plan's nests in a run: those that have run, by what they looked like.

    `places`: the variables that have moved operands and nothing else so far.
    """

    def __init__(self, plan: Plan):
        self.places = frozenset(plan.places)
        self.seen: dict[tuple, Again] = {}
        self.unused = 0


class Look:
    """What a nest looks like as it begins.

    `key`: what its record depends on besides the `numbers` of variables that move operands (by
    name) and the places of `tiles`, the first one in each storage that it reads or writes.
    """

    def __init__(self, history: History, found: list[Any], values: range):
        self.history, self.found, self.values = history, found, values
        self.tiles: list[Tensor] = []
        self.numbers: dict[str, int] = {}

    def key(self, plan: Plan) -> tuple | None:
        """Return the key, None if it cannot be told."""
        self.tiles, self.numbers = [], {}
        tiles, numbers = self.tiles, self.numbers
        key: list[Any] = [self.values]
        storages: dict[int, int] = {}
        places = self.history.places
        for path, x in zip(plan.paths, self.found):
            kind = type(x)
            if kind is int:
                if path[0] in places:
                    numbers[path[0]] = x
                else:
                    key.append(x)
                continue
            if kind is LoopIndex:
                if path[0] not in places:
                    return None
                numbers[path[0]] = x.value
                continue
            if kind is not Tensor and (kind in _VALUES or isinstance(
                    x, (np.dtype, np.integer, np.ufunc, Enum, type))):
                key += (kind, x)
                continue
            if kind is float:
                key += (kind, str(x))                   # 0.0 and -0.0 are equal
                continue
            if kind in _EXPRESSIONS:
                if (form := _form(x)) is None:
                    return None
                key += form
                continue
            t = x if kind is Tensor else getattr(x, "_t", None)
            if type(t) is not Tensor or t.oob is not None or t.pending is not None \
                    or t.owner is not None or t.storage.arena:
                return None
            st = t.storage
            first = storages.get(st.id)
            if first is None:
                first = storages[st.id] = len(tiles)
                tiles.append(t)
            key += (first, t.offset - tiles[first].offset, t.shape, t.strides, t.dtype.num, t.kind,
                    t.nblock, st.row_bytes, t.offset if t.kind is PSUM else 0)
        return tuple(key)


    def known(self, plan: Plan) -> Again | None:
        """Return a nest that looked the same and has run."""
        if not self.history.seen:
            return None
        key = self.key(plan)
        return None if key is None else self.history.seen.get(key)


def look(m: Machine, plan: Plan, frame: FrameType, values: range) -> Look | None:
    """Return what a nest looks like that is about to begin in a frame; None if it is of no use."""
    if m.pending is not None or m.body is not None:
        return None
    history = m.again.get(plan)
    if history is None:
        history = m.again[plan] = History(plan)
    if history.unused >= UNUSED or not frame.f_code.co_flags & inspect.CO_OPTIMIZED \
            or user_frame(frame) is not frame:
        return None
    variables, known = frame.f_locals, frame.f_globals
    every = [variables[path[0]] if len(path) == 1 and path[0] in variables else
             found(path, variables if path[0] in variables else known) for path in plan.paths]
    if type(variables) is dict:
        variables.clear()               # a copy that the frame keeps: tiles would live on in it
    return Look(history, every, values)


class Watched:
    """The variables that may do no more than move operands, watched while a nest runs once."""

    def __init__(self, look: Look, plan: Plan, frame: FrameType):
        self.look, self.plan, self.frame = look, plan, frame
        self.before: dict[str, Any] = {}
        self.variables: list[Variable] = []
        now: dict[str, Any] = {}
        for path, x in zip(plan.paths, look.found):
            if path[0] in look.history.places and type(x) in (int, LoopIndex):
                w = Variable(path[0])
                self.variables.append(w)
                self.before[w.name] = x
                value, others = (x, frozenset()) if type(x) is int else (x.value, x.watches)
                now[w.name] = LoopIndex(value, others | {w}, {w: 1})
        if now:
            set_variables(frame, now)

    def end(self) -> None:
        """Give the variables back what they were."""
        if self.before:
            set_variables(self.frame, self.before)
        del self.frame

    def remember(self, run: Nest | Once, ran: list[Ran], every: np.ndarray, which: list[int],
                 products: list[Sum] | None = None, runs: list[int] | None = None) -> None:
        """Remember loops that have run, for others that look the same.

        `ran`: their instructions; `which`: that of each in the record; `every`: each word of the
        record as one of what has run; with values, `products`, and how often each `runs`.
        """
        look, history = self.look, self.look.history
        history.unused += 1
        if look.key(self.plan) is None:
            return
        made = Again(run, look, every, products or [], runs or [])
        fits = made.fits(run, look, ran, which)
        escaped = {w.name for w in self.variables if w.escaped}
        if escaped:                                     # what is known does not say what they were
            history.places -= escaped
            history.seen.clear()
        key = look.key(self.plan)
        if fits and key is not None:
            made.numbers = look.numbers
            history.seen[key] = made


class Operand:
    """An operand in the first iteration: the place of its tile in `Look.tiles`, MADE or STAYS for
    others; what moves it, and how far it may begin from its storage's begin."""

    __slots__ = ("tile", "offset", "steps", "limit")
    MADE, STAYS = -1, -2            # by the nest; a constant of the machine

    def __init__(self, tile: int, p: Place):
        self.tile, self.offset, self.limit = tile, p.offset, p.limit
        self.steps = tuple(_named(p.moves).items())


class Again:
    """The record of a nest, to be had again."""

    def __init__(self, run: Nest | Once, look: Look, every: np.ndarray, products: list[Sum],
                 runs: list[int]):
        tr = run.m.trace
        width = Storages.WIDTH
        self.numbers = look.numbers
        self.tiles = [(t.storage.id, t.offset) for t in look.tiles]
        self.begin = run.storages, run.nodes, run.loops, run.parent
        self.rows = np.array(tr.rows[run.rows:], np.int64)
        self.starts = np.array(tr.starts[run.starts:], np.int64) - run.rows
        self.products, self.runs = products, runs
        made = np.array(tr.storages.data[run.storages * width:], np.int64)
        parent = np.array(tr.node_parent[run.nodes:], np.int64)
        loop = np.array(tr.node_loop[run.nodes:], np.int64)
        #: all words that are appended, and which of the words of `append` moves each
        self.words = np.concatenate([self.starts, self.rows, made,
                                     np.where(parent < run.nodes, 0, parent), loop])
        of_made = np.zeros(len(made), np.int64)
        of_made[NODE_OF_STORAGE::width] = np.where(
            made[NODE_OF_STORAGE::width] < run.nodes, _OUTSIDE, _NODES)
        self.moved_by = np.concatenate([
            np.full(len(self.starts), _ROWS), every + _FIRST, of_made,
            np.where(parent < run.nodes, _PARENT, _NODES), np.full(len(loop), _LOOPS)])
        self.cuts = (np.cumsum([len(self.starts), len(self.rows), len(made), len(parent)])
                     * self.words.itemsize).tolist()
        self.iteration = tr.node_iter[run.nodes:].tobytes()
        self.loops = tr.loop_kind[run.loops:], tr.loop_line[run.loops:]
        self.operands: list[tuple[bool, list[Operand]]] = []    # in a loop of the record?
        self.bounds: list[tuple[int, int, int, list[tuple[str, int]]]] = []
        self.written: set[int] = set()          # places of tiles
        self.read: set[int] = set()
        self.sums: dict[int, dict[int, bool]] = {}      # of tiles: where the products go

    def fits(self, run: Nest | Once, look: Look, ran: list[Ran], which: list[int]) -> bool:
        """Add how variables move operands; tell whether nothing else depends on them."""
        m, at = run.m, {t.storage.id: k for k, t in enumerate(look.tiles)}
        constants = {t.storage.id for t in m.constants.values()}
        heads = dict(zip(reversed(which), reversed(self.starts[:len(which)].tolist())))
        moved: set[Watch] = set()               # variables on which more depends
        for number, x in enumerate(ran):
            mine: list[Operand] = []
            for k, p in enumerate(x.places):
                st = p.storage
                place = Operand.MADE if st.id >= run.storages else \
                    Operand.STAYS if st.id in constants else at.get(st.id)
                if place is None or any(type(w) is Variable for w in p.unknown) \
                        or p.limit and p.offset >= p.limit:
                    return False
                mine.append(Operand(place, p))
                if place < 0:
                    continue
                if k < x.outs:
                    if not self._writes(m, x, place, st):
                        return False
                    if x.ins.row.check is not None:
                        moved.update(w for w in p.moves if type(w) is Variable)
                else:
                    self.read.add(place)
                    if st.id in m.psum_sums:
                        return False
            self.operands.append((int(self.rows[heads[number] + NODE]) >= run.nodes, mine))
        self.bounds = [(b.low, b.high, b.n, list(steps.items())) for b in run.bounds
                       if (steps := _named(b.steps))]
        for w in moved:
            w.escaped = True
        return not moved

    def _writes(self, m: Machine, x: Ran, place: int, st: Storage) -> bool:
        """Note that a tile is written; tell whether that leaves nothing for later."""
        self.written.add(place)
        if st.id in m.psum_filled or st.kind is PSUM and not x.product or lives_on(st):
            return False
        if x.product and st.id in m.psum_sums:
            self.sums.setdefault(place, {}).update((at, False) for at in x.at)
        return True

    def _may(self, m: Machine, tiles: list[Tensor], by: dict[str, int]) -> bool:
        """Tell whether nothing is to be said, nor to be done, about what the nest would do."""
        node_loop, is_open = m.trace.node_loop, m.loop_open
        for low, high, n, steps in self.bounds:
            move = sum([s * by[name] for name, s in steps])
            if low + move < 0 or high + move >= n:
                return False
        for t in tiles:
            if t.storage.node and not is_open[node_loop[t.storage.node]]:
                return False
        for k in self.read:
            st = tiles[k].storage
            if st.lazy_zero or st.id in m.psum_sums:        # it is noted that a sum has been read
                return False
        for k in self.written:
            st = tiles[k].storage
            if st.readonly or st.id in m.psum_filled or lives_on(st):
                return False
            known = m.psum_sums.get(st.id)
            if known and any(known.values()):
                return False
        return True

    def append(self, m: Machine, look: Look) -> bool:
        """Append the record for other tiles and numbers; False if that may be another one."""
        tr, tiles = m.trace, look.tiles
        by = {name: x - self.numbers[name] for name, x in look.numbers.items()}
        if not self._may(m, tiles, by):
            return False
        storages, nodes, loops, parent = self.begin
        outside = m.node - parent
        made, node = len(tr.storages) - storages, len(tr.node_loop) - nodes
        moves = [(t.storage.id - id, t.offset - offset)
                 for t, (id, offset) in zip(tiles, self.tiles)]
        moves += [(0, 0), (made, 0)]                    # Operand.STAYS, Operand.MADE
        # _STAYS, _ROWS, _NODES, _OUTSIDE, _LOOPS, _PARENT; and from _FIRST on those of the lines
        shift = [0, len(tr.rows), node, outside, len(tr.loop_kind) - loops, m.node]
        begins: list[list[int]] = []                    # of the operands of each line
        for inside, line in self.operands:
            shift += (0, 0, node if inside else outside)
            begins.append([])
            for x in line:
                storage, move = moves[x.tile]
                for name, s in x.steps:
                    move += s * by[name]
                if x.limit and not 0 <= x.offset + move < x.limit:
                    return False
                shift += (storage, move)
                begins[-1].append(x.offset + move)
        values = [p.at(m, [tiles[x.tile].storage for x in line], here)
                  for p, (_, line), here in zip(self.products, self.operands, begins)]
        if m.compute and not (all(v.known(m) for v in values) and has_room(m, values)):
            return False
        new = memoryview(self.words + np.array(shift, np.int64)[self.moved_by]).cast("B")
        starts, rows, stores, parents = self.cuts
        tr.starts.frombytes(new[:starts])
        tr.rows.frombytes(new[starts:rows])
        if stores > rows:
            tr.storages.data.frombytes(new[rows:stores])
        if parents > stores:
            tr.node_parent.frombytes(new[stores:parents])
            tr.node_loop.frombytes(new[parents:])
            tr.node_iter.frombytes(self.iteration)
            kinds, lines = self.loops
            tr.loop_kind += kinds
            tr.loop_line += lines
            m.loop_open += [False] * len(kinds)
        for k in self.written:
            st = tiles[k].storage
            st.lazy_zero, st.aliases = False, None
        for k, places in self.sums.items():
            m.psum_sums.setdefault(tiles[k].storage.id, {}).update(places)
        for v, runs in zip(values, self.runs):
            v.wait(m, runs)
        look.history.unused = 0
        return True


def lives_on(st: Storage) -> bool:
    """Tell whether a result that was put into a storage is still in use by a name of its own."""
    return bool(st.aliases) and any(ref() is not None for ref in st.aliases)


def _named(moves: Moves) -> dict[str, int]:
    """Return how far each variable moves a view, of those that do nothing else."""
    return {w.name: s for w, s in moves.items()         # type: ignore[attr-defined]
            if type(w) is Variable and s and not w.escaped}


__all__ = ["Again", "Look", "Watched", "lives_on", "look"]
