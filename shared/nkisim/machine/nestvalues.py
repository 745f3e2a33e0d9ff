"""The values of a nest of loops: what its instructions do in all iterations, done at once."""
from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from ..chip.memory import FULLY, SBUF, Storage, contiguous_strides
from .late import in_hbm, put_off
from .loopindex import Compared
from .nestrecord import Steps
from .nestviews import Ran, Views
from .products import NOT_YET, of_each_sum, results_of
from .shadow import make, refresh_shadow
from .tensor import Tensor, same_bytes

if TYPE_CHECKING:
    from .instruction import Instr
    from .machine import Machine

_ids = itertools.count(-2, -1)          # of storages that are in no record


class Issue:
    """An instruction of a nest, in the first of all iterations, and the loops that it is in.

    `moves`: how far each of them moves its operands, the destination first. `waits`: the operands
    of a product that is not computed yet; `adds`: when it adds to a sum, if not always.
    """

    __slots__ = ("ins", "dst", "loops", "product", "adds", "moves", "waits", "_values")

    def __init__(self, ins: Instr, dst: Tensor, loops: int, product: bool, adds: Compared | None):
        self.ins, self.dst, self.loops, self.product = ins, dst, loops, product
        self.adds = adds
        self.moves: tuple[Steps, ...] = ()
        self.waits: tuple[np.ndarray, np.ndarray] | None = None
        self._values: Tensor | None = None

    def moves_in(self, depth: int) -> tuple[Steps, ...]:
        """Return how far all loops of the nest move its operands."""
        return tuple((*steps, *(0,) * (depth - self.loops)) for steps in self.moves)

    def line(self, views: Views, counts: tuple[int, ...]) -> Ran:
        """Return the instruction without its operands."""
        at = [self.dst.offset + by for _, by in of_each_sum(counts[:self.loops], self.moves[0])]
        return Ran(self.ins, views.places(self.ins, self.dst), at)

    @property
    def source(self) -> Storage:
        """Return where a load reads."""
        return self.ins.srcs[0].storage

    def repeat(self, dst: Tensor, counts: tuple[int, ...]) -> None:
        """Run the instruction for all iterations of its loops, which are free dims of `dst`."""
        again = self.ins.pattern()
        again.srcs, again.shape = (make(self.ins.srcs[0], self.moves[1], counts),), dst.shape
        self.ins.row.run(dst.m, again, dst)

    def loaded(self, counts: tuple[int, ...]) -> Tensor:
        """Return the tiles that a load makes in all iterations, one below the other."""
        if self._values is None:
            dst = self.dst
            row, parts = dst.strides[0], dst.shape[0]
            number = int(np.prod(counts))
            st = Storage(next(_ids), SBUF, number * parts, row, dst.dtype.itemsize, -1, 0, False,
                         False)
            st.fresh()
            steps = contiguous_strides(counts, parts * row)
            self.repeat(make(Tensor(dst.m, st, 0, dst.shape, dst.strides, dst.dtype, 0, SBUF),
                             steps, counts), counts)
            st.init = 2
            self._values = Tensor(dst.m, st, 0, dst.shape, dst.strides, dst.dtype, 0, SBUF)
        return self._values


class Sum:
    """A product of a nest in all iterations; `at` makes it one of other operands.

    `sums`: what the products of all iterations are added to.
    """

    __slots__ = ("operands", "counts", "moves", "opens", "adds", "sums")

    def __init__(self, x: Issue, counts: tuple[int, ...]):
        self.operands = x.dst, *x.ins.srcs
        self.counts, self.moves = counts[:x.loops], x.moves
        self.opens, self.adds = x.adds is not None, x.ins.accumulate
        self.sums = results_of(x.dst, self.counts, x.moves[0])

    def at(self, m: Machine, storages: list[Storage], offsets: list[int]) -> Sum:
        """Return the same for operands of the same forms that lie elsewhere."""
        new = Sum.__new__(Sum)
        new.operands = tuple([Tensor(m, st, at, t.shape, t.strides, t.dtype, 0, t.kind)
                              for t, st, at in zip(self.operands, storages, offsets)])
        new.counts, new.moves = self.counts, self.moves
        new.opens, new.adds = self.opens, self.adds
        new.sums = results_of(new.operands[0], self.counts, self.moves[0])
        return new

    def known(self, m: Machine) -> bool:
        """Tell whether all that the products read has been written, and no other sum is met."""
        return all(is_known(t, moves, self.counts)
                   for t, moves in zip(self.operands[1:], self.moves[1:])) \
            and not any(m.products.meets(t) for t in self.sums) \
            and (self.opens or all(is_known(t, (), ()) for t in self.sums))

    def wait(self, m: Machine, runs: int) -> None:
        """Let the products of all iterations wait; there are `runs` of them."""
        dst, a, b = self.operands
        if (a.storage.queued | b.storage.queued) & NOT_YET:
            m.products.run()
        dst.storage.version += runs
        for t in self.sums:
            dst.storage.mark(t.offset, t.shape, t.strides, t.dtype.itemsize)
        (a, left), (b, right) = from_hbm((a, self.moves[1]), (b, self.moves[2]), self.counts)
        m.products.add_all((a, b), dst, self.counts, (self.moves[0], left, right), self.opens)


def has_room(m: Machine, sums: list[Sum]) -> bool:
    """Tell whether the products of several lines can wait together."""
    return len(sums) < 2 or m.products.has_room([
        (x.sums, math.prod(x.counts) // len(x.sums), x.operands[1].shape[0]) for x in sums])


def is_known(t: Tensor, moves: Steps, counts: tuple[int, ...]) -> bool:
    """Tell whether all of an operand has been written, in all iterations of loops."""
    st = t.storage
    if st.arena or st.init == FULLY:
        return not st.arena
    every = make(t, moves, counts)
    return st.defined(t.offset, every.shape, every.strides, t.dtype.itemsize)


def copied(load: Issue, counts: tuple[int, ...], runs: int) -> None:
    """Do a load into a tile of the kernel's for all iterations of its loops."""
    every = make(load.dst, load.moves[0], counts)
    st = every.storage
    src = load.ins.srcs[0]
    if not (same_bytes(src, load.dst) and put_off(every, make(src, load.moves[1], counts))):
        every.to_write()
        load.repeat(every, counts)
    st.version += runs - 1
    st.mark(every.offset, every.shape, every.strides, every.dtype.itemsize)
    if st.shadow is not None:
        refresh_shadow(every)


def from_hbm(one: tuple[Tensor, Steps], other: tuple[Tensor, Steps], counts: tuple[int, ...]
             ) -> tuple[tuple[Tensor, Steps], tuple[Tensor, Steps]]:
    """Return the operands of a product, and how far loops move them, where loads would have read
    them; but not both from one array: a product of an array and itself is rounded in another way.
    """
    left = in_hbm(*one, counts) if one[0].storage.late else one
    right = in_hbm(*other, counts) if other[0].storage.late else other
    return left, other if right[0].storage is left[0].storage else right


def operand_of_all(t: Tensor, moves: Steps, load: Issue | None, counts: tuple[int, ...],
                   copy: bool = False) -> tuple[Tensor, Steps]:
    """Return a product's operand in the first iteration, and how far the loops move it.

    What a `load` of the nest has put into a tile of the nest's own is where it was loaded from, or
    a copy that has all iterations; a `copy` where the other operand is from the same place, for a
    product of an array and itself is rounded in another way.
    """
    if load is None:
        return t, moves
    src, tile = load.ins.srcs[0], load.dst
    inner = counts[:load.loops]
    outer, rest = moves[:load.loops], moves[load.loops:]
    if same_bytes(src, tile) and not copy:
        p, at = divmod(t.offset, tile.strides[0])
        there = Tensor(t.m, src.storage, src.offset + p * src.strides[0] + at, t.shape,
                       (src.strides[0], *t.strides[1:]), t.dtype, 0, src.kind)
        return there, (*(a + b for a, b in zip(outer, load.moves[1])), *rest)
    every = load.loaded(inner)
    steps = contiguous_strides(inner, tile.shape[0] * tile.strides[0])
    return Tensor(t.m, every.storage, t.offset, t.shape, t.strides, t.dtype, 0, t.kind), \
        (*(a + b for a, b in zip(outer, steps)), *rest)


__all__ = ["Issue", "Sum", "copied", "has_room", "is_known", "make", "operand_of_all"]
