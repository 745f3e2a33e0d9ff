"""Nests of loops of which one iteration says what all of them do: the body runs once.

    for k in nl.affine_range(k_tiles):
        right = nl.load(rhs[k * 128:(k + 1) * 128, 0:512])
        for i in nl.affine_range(size):
            acc[i] += nisa.nc_matmul(left[:, k, i], right)

The source says that such a nest does nothing but load and add products (nestplan.py). Its body runs
in the first iteration, with indices that know how far each loop moves them (LoopIndex.steps). What
subscripts make of them is how far each loop moves an operand. So the record of all other iterations
follows by arithmetic (nestrecord.py), the same as if they had run one by one; and in a run with
values the loads of all are one strided copy, and the products one matrix product over strided views
(nestvalues.py, products.py).

Whatever does not fit (an index that decides something, a subscript past the end, an operand of
which a part is not written yet, an instruction of another kind) is no error here: the other
iterations then run one by one. The variable NKISIM_NESTS=0 makes all loops do so, for comparison.
"""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip.memory import FULLY, HBM, PSUM, SBUF, free_range
from ..errors import NkiError
from ..trace.trace import KIND
from . import nestagain, nestonce
from .context import current
from .loopindex import Compared, LoopIndex, Watch
from .nestplan import Plan, plan_of
from .nestrecord import Form, Line, Steps, Unrolled, unrolled
from .nestvalues import Issue, Sum, copied, from_hbm, is_known, make, operand_of_all
from .nestviews import Variable, Views
from .products import of_each_sum
from .sums import Sums
from .tensor import same_bytes

if TYPE_CHECKING:
    from .instruction import Instr
    from .loop import Loop
    from .machine import Machine
    from .tensor import Tensor

VARIABLE = "NKISIM_NESTS"
FEWEST = 3              # iterations below which nothing is gained
TRIES = 3               # nests at one place that do not fit, before they are left alone
MOST_BYTES = 64 << 20   # of tiles that a load makes in all iterations


class Nest(Views):
    """A nest that is being run, from its outermost loop to the last instruction of its body.

    `watched`: the variables that are watched meanwhile, if it is of use to know what they do.
    """

    def __init__(self, m: Machine, plan: Plan, watched: nestagain.Watched | None):
        super().__init__(m)
        self.depth, self.watched = plan.depth, watched
        self.variables = [] if watched is None else watched.variables
        self.recorded: list[bool] = []  # which of them are in the record
        self.adds: Compared | None = None       # when the next product does
        self.issues: list[Issue] = []   # what the body has issued
        self.fits = False               # all other iterations follow from the first
        self.never = False              # nor will they another time
        tr = m.trace
        self.parent, self.loops, self.nodes = m.node, len(tr.loop_kind), len(tr.node_loop)
        self.rows, self.starts, self.storages = len(tr.rows), len(tr.starts), len(tr.storages)
        self.made: list[int] = []       # of each storage since: how many loops it is in
        self.before = self._counts()

    def _counts(self) -> tuple[int, ...]:
        m = self.m
        return len(m.findings), m.replays.left_out, len(m.trace.edges), len(m.trace.named)

    # -- while the body runs ---------------------------------------------------------------------
    def level(self, loop: Loop | Unrecorded) -> LoopIndex:
        """Return the index of the next inner loop in its first iteration."""
        self._note_made()
        watch, values = Watch(), loop.values
        self.levels.append((watch, values))
        self.recorded.append(not isinstance(loop, Unrecorded))
        return LoopIndex(values[0], frozenset((watch,)), {watch: values.step})

    def issue(self, ins: Instr, dst: Tensor) -> None:
        """Take an instruction that is about to be recorded; give the nest up if it is of no use."""
        adds, self.adds = self.adds, None
        product = ins.row.accumulates and dst.kind is PSUM and (ins.accumulate or adds is not None)
        if ins.box is not None or ins.mask is not None or ins.also or not (
                product and len(ins.srcs) == 2 or _is_load(ins, dst) and (
                    dst.storage.id >= self.storages     # a tile that no product can wait for
                    or not any(x.product for x in self.issues))):
            self.give_up()
            return
        self._note_made()
        self.issues.append(Issue(ins, dst, len(self.levels), product, adds))

    def _note_made(self) -> None:
        """Note the storages that have been made, and in how many loops."""
        more = len(self.m.storages) - self.storages - len(self.made)
        self.made += [len(self.levels)] * more

    def answer(self, adds: Compared) -> bool:
        """Return whether the next product adds to its sum; the same goes for all iterations."""
        self.adds = adds
        return adds.first()

    def give_up(self) -> None:
        """Run all iterations one by one, here and the next time."""
        self.never = True
        self.end(False)

    def defer(self, a: np.ndarray, b: np.ndarray) -> None:
        """Take the operands of the product that is being computed: it waits for the others."""
        self.issues[-1].waits = a, b

    # -- when it has run -------------------------------------------------------------------------
    def end(self, whole: bool) -> None:
        """Decide whether all other iterations follow from the first, if that is `whole`."""
        self.m.nest = None
        if self.watched is not None:
            self.watched.end()
        self.fits = whole and self._fits()
        if not self.fits:
            for issue in self.issues:
                if issue.waits is not None:
                    self.m.products.add(*issue.waits, issue.ins.srcs, issue.dst,
                                        not issue.ins.accumulate)

    def _fits(self) -> bool:
        m, tr = self.m, self.m.trace
        if not self.issues or len(self.levels) != self.depth or m.body is not None and self.made \
                or len(self.made) != len(m.storages) - self.storages \
                or len(tr.starts) != self.starts + len(self.issues) \
                or self._counts() != self.before:
            return False
        if any(watch.escaped for watch, _ in self.levels):
            self.never = True
            return False
        self.counts = tuple(len(values) for _, values in self.levels)
        if math.prod(self.counts) == 1:
            return False
        for issue in self.issues:
            issue.moves = tuple(self._moves(t, issue.loops)
                                for t in (issue.dst, *issue.ins.srcs))
        moving = {t.storage.id for t, moves in self.moving.values()
                  if any(type(w) is not Variable for w in moves)}
        if any(t.storage.id in moving and id(t) not in self.moving
               and (k or t.storage.id < self.storages)          # else it makes the tile
               for x in self.issues for k, t in enumerate((x.dst, *x.ins.srcs))):
            return False                        # may be a part of one that moves
        loads: dict[int, Issue] = {}
        return all(self._sum_fits(x, loads) if x.product else self._load_fits(x, loads)
                   for x in self.issues) and self._apart(loads) and self._sums_apart() \
            and all(st in loads for st in range(self.storages, len(m.storages)))

    def _moves(self, t: Tensor, loops: int) -> Steps:
        """Return how far each of the outer loops moves a view, in bytes."""
        moves = self.moving[id(t)][1] if id(t) in self.moving else {}
        return tuple(moves.get(watch, 0) for watch, _ in self.levels[:loops])

    def _load_fits(self, issue: Issue, loads: dict[int, Issue]) -> bool:
        """Tell whether a load writes another place in each iteration, all in ascending order."""
        dst, src = issue.dst, issue.ins.srcs[0]
        st = dst.storage
        if st.id in loads or st.arena or src.shape != dst.shape:
            return False
        loads[st.id] = issue
        counts = self.counts[:issue.loops]
        if st.id >= self.storages:
            return not any(issue.moves[0]) and self.made[st.id - self.storages] == issue.loops \
                and dst.size * dst.dtype.itemsize == st.nbytes \
                and (not self.m.compute or same_bytes(src, dst)
                     or st.nbytes * math.prod(counts) <= MOST_BYTES) \
                and (not self.m.compute or is_known(src, issue.moves[1], counts))
        lo, hi = free_range(0, dst.shape, dst.strides, dst.dtype.itemsize)
        span = hi - lo
        for n, step in zip(reversed(counts), reversed(issue.moves[0])):
            if n > 1 and step < span:
                return False
            span += (n - 1) * step
        if 0 in dst.strides or not self.m.compute:
            return 0 not in dst.strides
        every = make(dst, issue.moves[0], counts)
        return not (st.queued and self.m.products.uses(every)) \
            and is_known(src, issue.moves[1], counts)

    def _sum_fits(self, issue: Issue, loads: dict[int, Issue]) -> bool:
        """Tell whether a product can be added with those of all other iterations."""
        counts = self.counts[:issue.loops]
        for t, moves in zip(issue.ins.srcs, issue.moves[1:]):
            load = loads.get(t.storage.id)
            if load is not None:
                if t.storage.id < self.storages and not _reads_what_it_wrote(
                        t, moves, load, counts):
                    return False
            elif t.storage.id >= self.storages \
                    or self.m.compute and not is_known(t, moves, counts):
                return False
        if issue.dst.storage.id >= self.storages:
            return False                        # a new sum each time
        if issue.adds is not None and not self._opens(issue, issue.adds, counts):
            return False
        return not self.m.compute or issue.waits is not None and not issue.dst.storage.arena

    def _opens(self, issue: Issue, adds: Compared, counts: tuple[int, ...]) -> bool:
        """Tell whether the first product of each sum, and no other one, overwrites what is there,
        and all sums are opened before anything is added to one."""
        steps = adds.index.steps or {}
        value, later = np.array(adds.index.value), np.array(False)
        stay = True
        for (watch, _), n, step in zip(self.levels, counts, issue.moves[0]):
            if not step and not stay and n > 1:
                return False
            stay = stay and not step
            value = np.add.outer(value, steps.get(watch, 0) * np.arange(n))
            later = np.logical_or.outer(later, (np.arange(n) > 0) & (not step))
        return bool((adds.op(value, adds.other) == later).all())

    def _apart(self, loads: dict[int, Issue]) -> bool:
        """Tell whether what the nest writes is read by nothing but products, and sums are not."""
        sums = {x.dst.storage.id for x in self.issues if x.product}
        return not any(t.storage.id in sums or t.storage.id in loads and not x.product
                       for x in self.issues for t in x.ins.srcs)

    def _sums_apart(self) -> bool:
        """Tell whether each sum lies by itself, as its instruction demands it, and how many come
        from where does not matter."""
        m = self.m
        places = Sums()
        waiting = []
        for x in self.issues:
            if not x.product:
                continue
            dst, check = x.dst, x.ins.row.check
            counts = self.counts[:x.loops]
            sums = []
            for _, by in of_each_sum(counts, x.moves[0]):
                sums.append(dst.like(dst.offset + by, dst.shape, dst.strides, 0, None))
                if places.meet(sums[-1]) or not self._may_add(sums[-1], x.adds is not None):
                    return False
                places.add(sums[-1])
                try:
                    if by and check is not None:
                        check(m, x.ins, sums[-1])
                except NkiError:
                    return False
            waiting.append((sums, math.prod(counts) // len(sums), x.ins.srcs[0].shape[0]))
        return len(waiting) < 2 or not m.compute or m.products.has_room(waiting)

    def _may_add(self, dst: Tensor, opens: bool) -> bool:
        """Tell whether products can be added to a sum without anything to be said about it."""
        m, st = self.m, dst.storage
        return not m.products.meets(dst) and (
            opens or not m.psum_sums.get(st.id, {}).get(dst.offset) and (
                not m.compute or is_known(dst, (), ())))

    def go_on(self) -> None:
        """Append the record of all iterations but the first, and do what they do."""
        m, tr = self.m, self.m.trace
        kinds = [tr.rows[at + KIND] for at in tr.starts[self.starts:]]
        record = unrolled(Form(
            tuple(values for _, values in self.levels), tuple(self.recorded), tuple(
                Line(x.loops, x.moves_in(self.depth), tuple(
                    max(t.storage.id - self.storages, -1) for t in (x.dst, *x.ins.srcs)),
                    tr.other_kind(x.ins, (x.dst,)) - kind if self._adds_later(x) else 0)
                for x, kind in zip(self.issues, kinds)), tuple(self.made)))
        record.append(tr, self.rows, self.storages, self.loops, self.nodes, self.parent)
        m.loop_open += [False] * len(record.inner)
        if self.watched is not None:
            self._remember(self.watched, record)
        for x in self.issues:
            if x.product:
                self._sums_written(x)
        if not m.compute:
            return
        loads = {}
        for x, runs in zip(self.issues, record.runs):
            counts = self.counts[:x.loops]
            if not x.product:
                if x.dst.storage.id < self.storages:
                    copied(x, counts, runs)
                else:
                    loads[x.dst.storage.id] = x
                continue
            x.dst.storage.version += runs - 1
            (s, by), (t, by_right) = zip(x.ins.srcs, x.moves[1:])
            left, right = loads.get(s.storage.id), loads.get(t.storage.id)
            a, by = operand_of_all(s, by, left, self.counts)
            b, by_right = operand_of_all(t, by_right, right, self.counts,
                                         left is not None and right is not None
                                         and left.source is right.source)
            (a, by), (b, by_right) = from_hbm((a, by), (b, by_right), counts)
            m.products.add_all((a, b), x.dst, counts, (x.moves[0], by, by_right),
                               x.adds is not None)

    def _remember(self, watched: nestagain.Watched, record: Unrolled) -> None:
        """Remember a nest of nothing but products."""
        if self.made or not all(x.product for x in self.issues):
            watched.look.history.unused += 1
            return
        watched.remember(self, [x.line(self, self.counts) for x in self.issues], record.every,
                         list(range(len(self.issues))),
                         [Sum(x, self.counts) for x in self.issues], record.runs)

    def _adds_later(self, x: Issue) -> bool:
        """Tell whether a product that overwrites adds to a sum in later iterations."""
        return x.adds is not None and any(
            n > 1 and not step for n, step in zip(self.counts, x.moves[0]))

    def _sums_written(self, x: Issue) -> None:
        """Note that all sums have been written, and not been read since."""
        dst, st = x.dst, x.dst.storage
        known = self.m.psum_sums.get(st.id)
        if known is None and st.init == FULLY:
            return
        for _, by in of_each_sum(self.counts[:x.loops], x.moves[0]):
            if self.m.compute:
                st.mark(dst.offset + by, dst.shape, dst.strides, dst.dtype.itemsize)
            if known is not None:
                known[dst.offset + by] = False


class Unrecorded:
    """A loop that is unrolled before anybody records it: `range` of Python.

    `begins`: the nest that begins with it, None if it is in one.
    """

    def __init__(self, values: range, begins: Start | None):
        self.values, self.begins = values, begins

    def iterations(self) -> Generator[int, None, None]:
        yield from self.values

    def __iter__(self) -> Iterator[Any]:
        """Begin the next inner loop of the running nest, or a nest."""
        m = current.get()
        assert m is not None, "made and used in the head of a `for` statement"
        if m.nest is not None:
            return inner(m, self, m.nest)
        assert self.begins is not None
        return self.begins.run(m, self)


def _is_load(ins: Instr, dst: Tensor) -> bool:
    """Tell whether an instruction copies from HBM to SBUF, by fixed addresses."""
    return ins.row.repeats and len(ins.srcs) == 1 and dst.kind is SBUF \
        and ins.srcs[0].kind is HBM and ins.srcs[0].oob is None and not ins.params.get("rmw") \
        and not getattr(ins.form, "indirect", False)


def _reads_what_it_wrote(t: Tensor, moves: Steps, load: Issue, counts: tuple[int, ...]) -> bool:
    """Tell whether an operand is a part of what a load has written in the same iteration."""
    dst, row = load.dst, t.storage.row_bytes
    own = moves[:load.loops]
    if own != load.moves[0] or t.strides[0] != dst.strides[0]:
        return False
    (p, at), (q, written) = divmod(t.offset, row), divmod(dst.offset, row)
    item, inner = t.dtype.itemsize, counts[load.loops:]
    lo, hi = free_range(at, (1, *inner, *t.shape[1:]), (0, *moves[load.loops:], *t.strides[1:]),
                        item)
    first, end = free_range(written, dst.shape, dst.strides, dst.dtype.itemsize)
    whole = end - first == dst.size // dst.shape[0] * dst.dtype.itemsize
    return whole and first <= lo and hi <= end and q <= p \
        and p + t.shape[0] <= q + dst.shape[0]


# -- the loops ------------------------------------------------------------------------------------

def enabled() -> bool:
    """Tell whether nests are run once, as NKISIM_NESTS says."""
    return os.environ.get(VARIABLE, "") != "0"


class Start:
    """A nest that begins with a loop in a frame; `known`: one that looked the same and has run."""

    def __init__(self, plan: Plan, frame: FrameType, look: nestagain.Look | None):
        self.plan, self.frame, self.look = plan, frame, look
        self.known = None if look is None else look.known(plan)

    def run(self, m: Machine, loop: Loop | Unrecorded) -> Iterator[Any]:
        """Yield the indices of the outermost loop that have to be executed."""
        look, plan, frame = self.look, self.plan, self.frame
        if self.known is not None and look is not None and self.known.append(m, look):
            return iter(())
        watch = None if look is None else lambda: nestagain.Watched(look, plan, frame)
        if m.compute:
            return outermost(m, loop, plan, watch)
        return nestonce.outermost(m, loop.values, loop.iterations(),
                                  loop.__class__ is not Unrecorded, plan, watch)


def start(m: Machine, frame: FrameType, values: range) -> Start | None:
    """Return the nest that begins with a loop in a frame, None if there is none."""
    if not m.nests or m.shuffle is not None or m.watch is not None or m.cores is not None:
        return None
    if not m.compute and (m.pending is not None or m.body is not None or m.direct):
        return None
    plan = plan_of(frame, not m.compute)
    if plan is None or m.misfits.get(plan, 0) >= TRIES \
            or plan.depth == 1 and len(values) < FEWEST:
        return None
    made = Start(plan, frame, nestagain.look(m, plan, frame, values))
    if made.known is None and not plan.holds(frame):
        m.misfits[plan] = m.misfits.get(plan, 0) + 1
        return None
    return made


def outermost(m: Machine, loop: Loop | Unrecorded, plan: Plan,
              watch: Callable[[], nestagain.Watched] | None) -> Iterator[Any]:
    """Yield the indices of a nest's outermost loop that have to be executed. `watch` begins to
    watch variables meanwhile."""
    if m.pending is not None:
        m.flush()
    nest = m.nest = Nest(m, plan, None if watch is None else watch())
    try:
        yield from _inner(m, loop, nest)
    finally:
        if m.nest is nest:              # an error ends the kernel, or is caught in it
            nest.end(False)
    if nest.fits:
        nest.go_on()
    else:
        m.misfits[plan] = m.misfits.get(plan, 0) + (TRIES if nest.never else 1)


def inner(m: Machine, loop: Loop | Unrecorded, nest: Nest | nestonce.Once) -> Iterator[Any]:
    """Return the indices of a loop of a nest that have to be executed."""
    if isinstance(nest, nestonce.Once):
        return nestonce.inner(m, loop.values, loop.iterations(), loop.__class__ is not Unrecorded,
                              nest)
    return _inner(m, loop, nest)


def _inner(m: Machine, loop: Loop | Unrecorded, nest: Nest) -> Iterator[Any]:
    """Yield them, where the innermost loop ends the first iteration of all."""
    indices = loop.iterations()
    for k, index in enumerate(indices):
        yield index if k else nest.level(loop)
        if m.pending is not None:
            m.flush()
        if m.nest is nest:              # the innermost loop's first iteration is over
            nest.end(True)
        if nest.fits:
            indices.close()
            return


__all__ = ["Nest", "Unrecorded", "enabled", "inner", "start"]
