"""Matrix products that wait for each other: one BLAS call for a whole accumulation group.

A kernel accumulates many small products in a PSUM bank, acc += s1.T @ m1, acc += s2.T @ m2, ...
Their sum is one product, [s1; s2; ...].T @ [m1; m2; ...], which a CPU computes faster and, above
all, with one synchronisation of its threads instead of many. So products queue up here until
something reads their result or changes an operand; the machine calls `run` before either.

What drains a bank would do so after each tile. So instructions that read a result and do nothing
but compute another one wait as well (`hold`), and run after the products, in their order: tiles of
several banks are computed together then, with the operands that they have in common.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..chip.memory import HBM, free_range
from ..machine.tensor import Tensor
from .async_matmul import DEPTH, Batch, MatmulPool, multiply
from .groups import IS_DUE, IS_HELD, IS_OPERAND, IS_READ, IS_RESULT, ON_ITS_WAY, Group
from .stacks import as_one, beside, keep_apart, side_by_side
from .sums import Sums, replaces_zeros

if TYPE_CHECKING:
    from ..machine.instruction import Instr

MAX_ROWS = 8192  # of a stacked operand: 16 MB for 512 columns
MAX_COLUMNS = 1024  # of stationary operands beside each other
MAX_WIDTH = 4096  # and of moving ones
MAX_PRODUCTS = 2048  # waiting altogether, as they keep their operands alive
MAX_HELD = 1024  # other instructions, likewise


class Products:
    """The accumulating products of a launch that have not been computed yet."""

    def __init__(self) -> None:
        self._groups: dict[tuple, Group] = {}
        self._sums = Sums()  # where the results of groups lie
        self._flagged: list[Any] = []
        self._operands: list[Tensor] = []  # not yet in _in_use
        self._in_use: dict[int, tuple[int, int]] = {}  # operands: bytes, by storage
        self._held: list[tuple[Callable, Instr, Tensor]] = []
        self._count = self._alone = 0
        self._left: Any = None  # stacked operands of the last product
        self.matmul_pool: MatmulPool | None = None  # products are computed beside the kernel
        self._batches: deque[Batch] = deque()  # of those on their way

    def add(
        self,
        stationary: np.ndarray,
        moving: np.ndarray,
        operands: tuple[Tensor, ...],
        dst: Tensor,
        opens: bool = False,
    ) -> None:
        """Queue dst += stationary.T @ moving; both are views of the operands' storages.

        A product that `opens` a sum overwrites what is there; nothing waits to be added to it.
        """
        rows = stationary.shape[0]
        if self._count >= MAX_PRODUCTS or self._waiting(dst) + rows > MAX_ROWS:
            self.start()
            if dst.storage.queued & ON_ITS_WAY:  # one sum is added up in order
                self.finish()
        key = _result(dst)
        group = self._groups.get(key)
        if opens and group is not None:
            self.run()
            group = None
        if group is None:
            if self.overlaps_waiting(
                dst
            ):  # what both add to, groups would in any order, or at once
                self.run()
            self._sums.add(dst)
            group = self._groups[key] = Group(dst, opens or replaces_zeros(dst))
            self._flag(dst.storage, IS_RESULT)
        of_left = None
        for t, a, arrays, places, storages in zip(
            operands, (stationary, moving), group.operands, group.places, group.storages
        ):
            storages.add(t.storage)
            if not t.storage.queued:
                self._flag(t.storage, IS_OPERAND)
            arrays.append(a)
            place = _place(t)
            if place[0] == of_left:  # a product of an array and itself is rounded in its own way
                self._alone += 1
                place = (-self._alone, *place)
            of_left = place[0]
            places.append(place)
            self._operands.append(t)
        group.rows += rows
        self._count += 1

    def overlaps_waiting(self, dst: Tensor) -> bool:
        """Return whether products wait for another sum that has bytes in common with this one."""
        return (
            bool(dst.storage.queued & IS_RESULT)
            and _result(dst) not in self._groups
            and self._sums.overlaps(dst)
        )

    def _waiting(self, dst: Tensor) -> int:
        """Return how many rows of operands wait for a sum."""
        group = self._groups.get(_result(dst))
        return 0 if group is None else group.rows

    def _flag(self, storage: Any, flag: int) -> None:
        if not storage.queued:
            self._flagged.append(storage)
        storage.queued |= flag

    def hold(self, run: Callable[[Instr, Tensor], None], ins: Instr, dst: Tensor) -> None:
        """Call run(ins, dst) after the products that wait: the instruction reads their results."""
        if len(self._held) >= MAX_HELD:
            self.start()
        self._held.append((run, ins, dst))
        self._flag(dst.storage, IS_RESULT | IS_HELD)
        for t in ins.srcs:
            self._flag(t.storage, IS_OPERAND | IS_HELD)
            self._operands.append(t)

    def before_write(self, t: Tensor, adds: bool = False) -> None:
        """Compute what waits if it would notice that `t` is written, or that a product `adds` to
        it: others that wait would not."""
        if t.storage.queued & ON_ITS_WAY:
            self.finish()
        if (not adds or t.storage.queued & IS_HELD) and self.uses(t):
            self.start(t.storage)
            if t.storage.queued & ON_ITS_WAY:
                self.finish()

    def uses(self, t: Tensor) -> bool:
        """Return whether what waits would notice that a part of a flagged storage is written.

        What is on its way is there first.
        """
        storage: Any = t.storage
        if storage.queued & ON_ITS_WAY:
            self.finish()
        lo, hi = _bytes(t)
        if storage.queued & IS_RESULT:
            waiting = [_bytes(dst) for dst in self._results() if dst.storage is storage]
            if any(lo < end and first < hi for first, end in waiting):
                return True
        for operand in self._operands:
            at, past = _bytes(operand)
            first, end = self._in_use.get(operand.storage.id, (at, past))
            self._in_use[operand.storage.id] = min(at, first), max(past, end)
        self._operands = []
        first, end = self._in_use.get(storage.id, (0, 0))
        # else it is another slot of a ring of buffers, or the next tile of a row
        return lo < end and first < hi

    def _results(self) -> Iterator[Tensor]:
        """Yield what the products and the instructions that wait will write."""
        yield from (g.dst for g in self._groups.values())
        yield from (dst for _, _, dst in self._held)

    def run(self) -> None:
        """Compute everything that waits."""
        self.start()
        self.finish()

    def start(self, written: Any = None) -> None:
        """Compute the products that wait, results with the same moving operands together, or send
        them on their way; what they read may change from now on but where it is flagged. Of the
        storage that is to be `written` they have a copy."""
        groups, self._groups, self._count = self._groups, {}, 0
        if written is not None and self.matmul_pool is not None and written.id in self._in_use:
            keep_apart(written, self._in_use[written.id], groups.values())
        self._sums.clear()
        held, self._held = self._held, []
        for storage in self._flagged:
            storage.queued &= ON_ITS_WAY
        self._flagged = []
        self._operands = []
        self._in_use.clear()
        if not groups and not held:
            return
        batch = Batch(held)
        rows: dict[tuple, list[list[Group]]] = {}  # with the same stationary operands
        for alike in _with_same(groups.values(), 1):
            rows.setdefault(tuple([tuple(g.places[0]) for g in alike]), []).append(alike)
        for row in rows.values():
            self._compute(row, batch)
        if self.matmul_pool is None and not self._batches:
            _run_all(held)
            return
        for _, ins, dst in held:
            batch.due.append(ref(dst.storage))
            batch.read += [ref(t.storage) for t in ins.srcs]
        self._batches.append(batch)
        _flag(batch)
        while len(self._batches) > DEPTH:
            self._end_of(self._batches.popleft())

    def finish(self) -> None:
        """Wait for the products on their way, and run what waits for them."""
        while self._batches:
            self._end_of(self._batches.popleft())
        if self.matmul_pool is not None:
            self.matmul_pool.join()

    def join(self) -> None:
        """Wait for the products on their way, whose results are no longer wanted."""
        if self.matmul_pool is not None:
            self.matmul_pool.join()
        self._batches.clear()

    def _end_of(self, batch: Batch) -> None:
        if self.matmul_pool is not None:
            self.matmul_pool.finish(batch)
        for reference in (*batch.due, *batch.read):
            if (storage := reference()) is not None:
                storage.queued &= ~ON_ITS_WAY
        for later in self._batches:
            _flag(later)
        _run_all(batch.held)

    def _compute(self, row: list[list[Group]], batch: Batch) -> None:
        """Add the products of groups to their results: in each list those with the same moving
        operands, and in all of them the same stationary ones.

        Their stationary operands lie beside each other in one product of stacked operands.
        """
        left, also = beside(row[0], [g.dst.shape[0] for g in row[0]])
        for parts, copied, groups in _adjacent_operands(row):
            self._multiply(left, also, parts, copied, groups, batch)

    def _multiply(
        self,
        left: np.ndarray,
        also: bool,
        parts: list[np.ndarray],
        copied: bool,
        row: list[list[Group]],
        batch: Batch,
    ) -> None:
        """Multiply, or send the product on its way; `also` and `copied`: both are copies."""
        adds, columns = [], 0
        for groups in row:
            begin, bottom, columns = columns, 0, columns + _columns(groups)
            for out, opens in [(group.dst.np, group.opens) for group in groups]:
                top, bottom = bottom, bottom + out.shape[0]
                adds.append((out, np.s_[top:bottom, begin:columns], opens))
        product = [left, parts, columns, adds]
        if self.matmul_pool is None:
            multiply(product)
            return
        alive = 0  # bytes that there are for this product alone
        storages = {st for groups in row for st in groups[0].storages[1]}
        if copied or any(st.memory is not HBM for st in storages):
            alive += sum(part.nbytes for part in parts)
        if also and left is not self._left:
            alive += left.nbytes
        self._left = left
        self.matmul_pool.start(batch, alive, product)
        batch.due += [ref(g.dst.storage) for groups in row for g in groups]
        batch.read += [ref(st) for st in storages if not copied]
        batch.read += [ref(st) for g in row[0] for st in g.storages[0] if not also]


def _flag(batch: Batch) -> None:
    """Flag the storages of products on their way."""
    for flag, references in ((IS_DUE, batch.due), (IS_READ, batch.read)):
        for reference in references:
            if (storage := reference()) is not None:
                storage.queued |= flag


def _run_all(held: list[tuple[Callable, Instr, Tensor]]) -> None:
    """Run the instructions that have waited."""
    for run, ins, dst in held:
        run(ins, dst)


def _with_same(groups: Iterable[Group], which: int) -> Iterator[list[Group]]:
    """Yield the groups that have operands in common, so many that their results are MAX_COLUMNS."""
    alike: dict[tuple, list[Group]] = {}
    for group in groups:
        alike.setdefault(tuple(group.places[which]), []).append(group)
    for candidates in alike.values():
        together: list[Group] = []
        columns = 0
        for group in candidates:
            columns += group.dst.shape[0]
            if columns > MAX_COLUMNS and together:
                yield together
                together, columns = [], group.dst.shape[0]
            together.append(group)
        yield together


def _columns(groups: list[Group]) -> int:
    """Return how many columns the moving operands of groups have, which share them."""
    dst = groups[0].dst
    return dst.size // dst.shape[0]


def _adjacent_operands(
    row: list[list[Group]],
) -> list[tuple[list[np.ndarray], bool, list[list[Group]]]]:
    """Return moving operands, whether they are a copy, and the groups that have them; as one
    operand those that lie beside each other in memory, as the tiles of a row of a matrix do."""
    adjacent: list[tuple[list[np.ndarray], bool, list[list[Group]]]] = []
    for groups in row:
        right, copied = as_one(groups[0], 1, _columns(groups))
        if right is None:
            adjacent.append((groups[0].operands[1], False, [groups]))
            continue
        parts, _, lists = adjacent[-1] if adjacent else ([], False, [])
        wide = side_by_side(parts[0], right, MAX_WIDTH) if len(parts) == 1 else None
        if wide is not None:
            adjacent[-1] = [wide], False, [*lists, groups]
        else:
            adjacent.append(([right], copied, [groups]))
    return adjacent


def _place(t: Tensor) -> tuple:
    """Return what tells an operand from others: tiles that hold the same bytes of HBM are alike."""
    st = t.storage
    if st.loaded is not None:
        src, version, then = st.loaded
        if st.version == then:
            p, at = divmod(t.offset, st.row_bytes)
            return (
                src.storage.id,
                src.offset + p * src.strides[0] + at,
                t.shape,
                (src.strides[0], *t.strides[1:]),
                t.dtype.num,
                version,
            )
    return st.id, t.offset, t.shape, t.strides, t.dtype.num, st.version


def _result(dst: Tensor) -> tuple:
    """Return the key of a sum: the place and the shape of the tile that it is added to."""
    return dst.storage.id, dst.offset, dst.shape, dst.strides


def _bytes(t: Tensor) -> tuple[int, int]:
    """Return the range of bytes of each partition that a tile lies in."""
    if t.memory is HBM:
        return 0, t.storage.nbytes
    return free_range(t.offset % t.storage.row_bytes, t.shape, t.strides, t.dtype.itemsize)


__all__ = ["Products"]
