"""Loops of loads and products in a run with values: all iterations do it at once.

    for k in nl.affine_range(k_tiles):
        right = nl.load(rhs[k * 128:(k + 1) * 128, 0:512])
        for i in nl.affine_range(size):
            acc[i] += nisa.nc_matmul(left[:, k, i], right)

Each body is some statements and then, at most, one more loop. So when the innermost one has run
once, all is known that the loops do. The loads of all iterations are one strided copy, and the
products one matrix product over strided views (products.py).

What does not fit (another instruction, an operand that is not wholly written yet, a sum that
other products meet) is no error: all iterations are then executed one by one.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from ..chip.memory import FULLY, HBM, PSUM, SBUF, Storage, contiguous_strides, free_range
from ..errors import NkiError
from ..lazy.deferred_loads import in_hbm, put_off
from ..lazy.float32_copies import as_f32, make, refresh_shadow
from ..lazy.products import of_each_sum
from ..lazy.sums import Sums
from ..machine.tensor import Tensor, same_bytes
from .extrapolate import Extrapolation, state
from .loopindex import Compared, LoopIndex

if TYPE_CHECKING:
    from ..machine.instruction import Instr
    from ..machine.interface import Machine

Steps = tuple[int, ...]  # bytes that one more iteration of each loop moves a view

MOST_BYTES = 64 << 20  # of tiles that a load makes in all iterations
_ids = itertools.count(-2, -1)  # of storages that are in no record


class Line:
    """An instruction, in the first of all iterations, and the loops that it is in.

    `moves`: how far each of them moves its operands, the destination first. `counts`: iterations
    of each. `waits`: it is a product that is not computed yet.
    """

    def __init__(self, ins: Instr, dst: Tensor, loops: int, product: bool, adds: Compared | None):
        self.ins, self.dst, self.loops, self.product = ins, dst, loops, product
        self.adds, self.waits = adds, False
        self.moves: tuple[Steps, ...] = ()
        self.counts: tuple[int, ...] = ()
        self._values: Tensor | None = None

    def repeat(self, dst: Tensor) -> None:
        """Run the instruction for all iterations of its loops, which are free dims of `dst`."""
        again = self.ins.pattern()
        again.srcs = (make(self.ins.srcs[0], self.moves[1], self.counts),)
        again.shape = dst.shape
        dst.m.run(again, dst)

    def loaded(self) -> Tensor:
        """Return the tiles that a load makes in all iterations, one below the other."""
        if self._values is None:
            dst = self.dst
            row, parts = dst.strides[0], dst.shape[0]
            st = Storage(
                next(_ids),
                SBUF,
                math.prod(self.counts) * parts,
                row,
                dst.dtype.itemsize,
                -1,
                0,
                False,
                False,
            )
            st.fresh()
            tile = Tensor(dst.m, st, 0, dst.shape, dst.strides, dst.dtype, 0, SBUF)
            self.repeat(make(tile, contiguous_strides(self.counts, parts * row), self.counts))
            st.init = 2
            self._values = tile
        return self._values

    def copied(self) -> None:
        """Do a load into a tile of the kernel's for all iterations of its loops."""
        every = make(self.dst, self.moves[0], self.counts)
        st, src = every.storage, self.ins.srcs[0]
        if not (
            same_bytes(src, self.dst) and put_off(every, make(src, self.moves[1], self.counts))
        ):
            every.to_write()
            self.repeat(every)
        st.version += math.prod(self.counts) - 1
        st.mark(every.offset, every.shape, every.strides, every.dtype.itemsize)
        if st.shadow is not None:
            refresh_shadow(every)


class WithValues(Extrapolation):
    """Loops of loads and products, `depth` of them in each other."""

    def __init__(self, m: Machine, depth: int):
        super().__init__(m)
        self.depth, self.storages = depth, len(m.memory.storages)
        self.lines: list[Line] = []
        self.made: list[int] = []  # of each storage since: how many loops it is in
        self.all_fit: bool | None = None  # not known before the innermost loop has run

    def enter(self, values: range, recorded: bool) -> LoopIndex:
        """Begin the first iteration of a loop; return its index."""
        self._note_made()
        return super().enter(values, recorded)

    def issue(self, ins: Instr, dst: Tensor) -> None:
        """Take an instruction that is about to be recorded; give up if it is of no use."""
        adds = self.adds
        super().issue(ins, dst)
        product = (
            ins.row.accumulates and dst.memory is PSUM and (ins.accumulate or adds is not None)
        )
        if (
            ins.box is not None
            or ins.mask is not None
            or ins.also
            or not (
                product
                and len(ins.srcs) == 2
                or _is_load(ins, dst)
                and (
                    dst.storage.id >= self.storages  # a tile that no product can wait for
                    or not any(x.product for x in self.lines)
                )
            )
        ):
            self.give_up()
            return
        self._note_made()
        self.lines.append(Line(ins, dst, len(self.levels), product, adds))

    def _note_made(self) -> None:
        """Note the storages that have been made, and in how many loops."""
        more = len(self.m.memory.storages) - self.storages - len(self.made)
        self.made += [len(self.levels)] * more

    def defers(self, ins: Instr) -> bool:
        """Return whether the product that is about to be computed waits for those of all."""
        if self.all_fit is None and self.lines and self.lines[-1].ins is ins:
            self.lines[-1].waits = True
            return True
        return False

    def give_up(self) -> None:
        """Execute all iterations one by one, here and the next time."""
        super().give_up()
        self.end()

    def end(self) -> None:
        """Stop watching; what waits and does not fit is computed as ever."""
        super().end()
        if self.all_fit is None:
            self.all_fit = False
            for x in self.lines:
                if x.waits:
                    a, b = map(as_f32, x.ins.srcs)
                    self.m.products.add(a, b, x.ins.srcs, x.dst, not x.ins.accumulate)

    def leave(self) -> bool:
        """End the first iteration of the innermost loop that has begun; return whether that of
        all others has been done."""
        if self.all_fit is None and self._all_fit():
            self.all_fit = True
            self.m.loops.nest = None
        if not self.all_fit:
            self.end()
            return False
        level = self.stack.pop()
        self.levels.pop()
        if len(level.values) > 1:
            self._append(level)
        if not self.stack:
            self.fits = True
            self._do()
        return True

    # -- what fits -------------------------------------------------------------------------------
    def _all_fit(self) -> bool:
        m = self.m
        if (
            not self.lines
            or len(self.levels) != self.depth
            or len(self.made) != len(m.memory.storages) - self.storages
        ):
            return False
        counts = tuple(len(values) for _, values in self.levels)
        now = state(m), len(m.trace.rows)
        if math.prod(counts) == 1 or any(
            not level.fits
            or level.watch.escaped
            or now != (level.state, self.rows + len(self.roles))
            for level in self.stack
        ):
            return False
        if any(x.stale or any(watch in x.unknown for watch, _ in self.levels) for x in self.issues):
            return False
        for x, issue in zip(self.lines, self.issues):
            x.counts = counts[: x.loops]
            x.moves = tuple(
                tuple(moves.get(watch, 0) for watch, _ in self.levels[: x.loops])
                for moves in issue.moves
            )
        loads: dict[int, Line] = {}
        return (
            all(
                self._sum_fits(x, loads) if x.product else self._load_fits(x, loads)
                for x in self.lines
            )
            and self._apart(loads)
            and self._sums_apart()
            and all(st in loads for st in range(self.storages, len(m.memory.storages)))
        )

    def _load_fits(self, x: Line, loads: dict[int, Line]) -> bool:
        """Return whether a load writes another place in each iteration, in ascending order."""
        dst, src = x.dst, x.ins.srcs[0]
        st = dst.storage
        if st.id in loads or st.arena or src.shape != dst.shape:
            return False
        loads[st.id] = x
        if st.id >= self.storages:
            return (
                not any(x.moves[0])
                and self.made[st.id - self.storages] == x.loops
                and dst.size * dst.dtype.itemsize == st.nbytes
                and (same_bytes(src, dst) or st.nbytes * math.prod(x.counts) <= MOST_BYTES)
                and _is_known(src, x.moves[1], x.counts)
            )
        lo, hi = free_range(0, dst.shape, dst.strides, dst.dtype.itemsize)
        span = hi - lo
        for n, step in zip(reversed(x.counts), reversed(x.moves[0])):
            if n > 1 and step < span:
                return False
            span += (n - 1) * step
        return (
            0 not in dst.strides
            and not (st.queued and self.m.products.uses(make(dst, x.moves[0], x.counts)))
            and _is_known(src, x.moves[1], x.counts)
        )

    def _sum_fits(self, x: Line, loads: dict[int, Line]) -> bool:
        """Return whether a product can be added with those of all other iterations."""
        for t, moves in zip(x.ins.srcs, x.moves[1:]):
            load = loads.get(t.storage.id)
            if load is None:
                if t.storage.id >= self.storages or not _is_known(t, moves, x.counts):
                    return False
            elif t.storage.id < self.storages and not _reads_what_it_wrote(t, moves, load, x):
                return False
        return (
            x.waits
            and not x.dst.storage.arena
            and x.dst.storage.id < self.storages
            and (x.adds is None or self._opens(x, x.adds))
        )

    def _opens(self, x: Line, adds: Compared) -> bool:
        """Return whether the first product of each sum, and no other one, overwrites what is there,
        and all sums are opened before anything is added to one."""
        value, later = np.array(adds.index.value), np.array(False)
        stay = True
        for (watch, _), n, step in zip(self.levels, x.counts, x.moves[0]):
            if not step and not stay and n > 1:
                return False
            stay = stay and not step
            value = np.add.outer(value, adds.index.steps.get(watch, 0) * np.arange(n))
            later = np.logical_or.outer(later, (np.arange(n) > 0) & (not step))
        return bool((adds.op(value, adds.other) == later).all())

    def _apart(self, loads: dict[int, Line]) -> bool:
        """Return whether nothing but products reads what is written, and no sums are read."""
        sums = {x.dst.storage.id for x in self.lines if x.product}
        return not any(
            t.storage.id in sums or t.storage.id in loads and not x.product
            for x in self.lines
            for t in x.ins.srcs
        )

    def _sums_apart(self) -> bool:
        """Return whether each sum lies by itself, as its instruction demands it, and how many come
        from where does not matter."""
        m, places, waiting = self.m, Sums(), []
        for x, issue in zip(self.lines, self.issues):
            if not x.product:
                continue
            dst, check = x.dst, x.ins.row.check
            sums = [
                dst.like(dst.offset + by, dst.shape, dst.strides, 0, None)
                for _, by in of_each_sum(x.counts, x.moves[0])
            ]
            for t in sums:
                if places.meet(t) or not self._may_add(t, x.adds is not None):
                    return False
                places.add(t)
                try:
                    if t.offset != dst.offset and check is not None:
                        check(m, x.ins, t)
                except NkiError:
                    return False
            issue.at = [t.offset for t in sums]
            waiting.append((sums, math.prod(x.counts) // len(sums), x.ins.srcs[0].shape[0]))
        return len(waiting) < 2 or m.products.has_room(waiting)

    def _may_add(self, dst: Tensor, opens: bool) -> bool:
        """Return whether products can be added to a sum without anything to be said about it."""
        m, st = self.m, dst.storage
        return not m.products.meets(dst) and (
            opens
            or not m.memory.psum_sums.get(st.id, {}).get(dst.offset)
            and _is_known(dst, (), ())
        )

    # -- what all iterations do --------------------------------------------------------------------
    def _do(self) -> None:
        """Do what all iterations do."""
        m = self.m
        loads: dict[int, Line] = {}
        for x, issue in zip(self.lines, self.issues):
            st = x.dst.storage
            if not x.product:
                if st.id < self.storages:
                    x.copied()
                else:
                    loads[st.id] = x
                continue
            if st.init != FULLY:
                for at in issue.at:
                    st.mark(at, x.dst.shape, x.dst.strides, x.dst.dtype.itemsize)
            st.version += math.prod(x.counts) - 1
            (s, by), (t, by_right) = zip(x.ins.srcs, x.moves[1:])
            left, right = loads.get(s.storage.id), loads.get(t.storage.id)
            same = (
                left is not None
                and right is not None
                and left.ins.srcs[0].storage is right.ins.srcs[0].storage
            )
            one, other = _of_all(s, by, left), _of_all(t, by_right, right, same)
            (a, by), (b, by_right) = _from_hbm(one, other, x.counts)
            m.products.add_all(
                (a, b), x.dst, x.counts, (x.moves[0], by, by_right), x.adds is not None
            )
            for (tile, steps), read in ((one, a), (other, b)):
                if tile is not read:
                    m.products.also_read(tile, x.counts, steps)


def _is_load(ins: Instr, dst: Tensor) -> bool:
    """Return whether an instruction copies from HBM to SBUF, by fixed addresses."""
    return (
        ins.row.loop_vectorizable
        and len(ins.srcs) == 1
        and dst.memory is SBUF
        and ins.srcs[0].memory is HBM
        and ins.srcs[0].oob is None
        and not ins.params.get("rmw")
        and not getattr(ins.variant, "indirect", False)
    )


def _is_known(t: Tensor, moves: Steps, counts: tuple[int, ...]) -> bool:
    """Return whether all of an operand has been written, in all iterations of loops."""
    st = t.storage
    if st.arena or st.init == FULLY:
        return not st.arena
    every = make(t, moves, counts)
    return st.defined(t.offset, every.shape, every.strides, t.dtype.itemsize)


def _reads_what_it_wrote(t: Tensor, moves: Steps, load: Line, x: Line) -> bool:
    """Return whether an operand is a part of what a load has written in the same iteration."""
    dst, row = load.dst, t.storage.row_bytes
    own = moves[: load.loops]
    if own != load.moves[0] or t.strides[0] != dst.strides[0]:
        return False
    (p, at), (q, written) = divmod(t.offset, row), divmod(dst.offset, row)
    lo, hi = free_range(
        at,
        (1, *x.counts[load.loops :], *t.shape[1:]),
        (0, *moves[load.loops :], *t.strides[1:]),
        t.dtype.itemsize,
    )
    first, end = free_range(written, dst.shape, dst.strides, dst.dtype.itemsize)
    whole = end - first == dst.size // dst.shape[0] * dst.dtype.itemsize
    return whole and first <= lo and hi <= end and q <= p and p + t.shape[0] <= q + dst.shape[0]


def _from_hbm(
    one: tuple[Tensor, Steps], other: tuple[Tensor, Steps], counts: tuple[int, ...]
) -> tuple[tuple[Tensor, Steps], tuple[Tensor, Steps]]:
    """Return the operands of a product, and how far loops move them, where loads would have read
    them; but not both from one array: a product of an array and itself is rounded in another way.
    """
    left = in_hbm(*one, counts) if one[0].storage.late else one
    right = in_hbm(*other, counts) if other[0].storage.late else other
    return left, other if right[0].storage is left[0].storage else right


def _of_all(t: Tensor, moves: Steps, load: Line | None, copy: bool = False) -> tuple[Tensor, Steps]:
    """Return a product's operand in the first iteration, and how far the loops move it.

    What a `load` has put into a tile of its own iteration is where it was loaded from, or a copy
    that has all iterations; a `copy` where the other operand is from the same place, for a product
    of an array and itself is rounded in another way.
    """
    if load is None:
        return t, moves
    src, tile = load.ins.srcs[0], load.dst
    outer, rest = moves[: load.loops], moves[load.loops :]
    if same_bytes(src, tile) and not copy:
        p, at = divmod(t.offset, tile.strides[0])
        there = Tensor(
            t.m,
            src.storage,
            src.offset + p * src.strides[0] + at,
            t.shape,
            (src.strides[0], *t.strides[1:]),
            t.dtype,
            0,
            src.memory,
        )
        return there, (*(a + b for a, b in zip(outer, load.moves[1])), *rest)
    every = load.loaded()
    steps = contiguous_strides(load.counts, tile.shape[0] * tile.strides[0])
    return Tensor(t.m, every.storage, t.offset, t.shape, t.strides, t.dtype, 0, t.memory), (
        *(a + b for a, b in zip(outer, steps)),
        *rest,
    )


__all__ = ["WithValues"]
