"""Nests of loops that add products to one tile: the body runs once, for all iterations.

    for k in nl.affine_range(k_tiles):
        for i in nl.affine_range(size):
            acc += nisa.nc_matmul(left[:, k, i], right[:, k, r + i:r + i + rows])

The source says that such a nest does nothing else (nestplan.py). Its body runs in the first
iteration, with indices that know how far each loop moves them (LoopIndex.steps). What a subscript
makes of them is how far each iteration moves an operand. So the record of all other iterations
follows by arithmetic, the same as if they had run one by one; and in a run with values their
products are one matrix product over strided views (products.py).

Whatever does not fit (an index that decides something, a subscript past the end, an operand of
which a part is not written yet) is no error here: the other iterations then run one by one. The
variable NKISIM_NESTS=0 makes all loops do so, for comparison.
"""
from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip.memory import FULLY, HBM
from ..trace.trace import HEAD, KIND, NODE, OPERAND
from .loopindex import LoopIndex, Watch
from .nestplan import Plan, plan_of

if TYPE_CHECKING:
    from .instruction import Instr
    from .loop import Loop
    from .machine import Machine
    from .tensor import Tensor

VARIABLE = "NKISIM_NESTS"
TRIES = 3               # nests at one place that do not fit, before they are left alone
Moves = dict[Watch, int]                # bytes that one more iteration of each loop moves a view


class Nest:
    """A nest that is being run, from its outermost loop to the last instruction of its body."""

    def __init__(self, m: Machine, plan: Plan):
        self.m, self.depth = m, plan.depth
        self.levels: list[tuple[Watch, range]] = []
        self.moving: dict[int, tuple[Tensor, Moves]] = {}       # views, by their id
        self.instr: tuple[Instr, Tensor] | None = None          # what the body has issued
        self.product: tuple[np.ndarray, np.ndarray] | None = None       # its operands' values
        self.fits = False               # all other iterations follow from the first
        tr = m.trace
        self.parent, self.loops, self.nodes = m.node, len(tr.loop_kind), len(tr.node_loop)
        self.rows, self.starts = len(tr.rows), len(tr.starts)
        self.before = self._counts()

    def _counts(self) -> tuple[int, ...]:
        m = self.m
        return len(m.trace.storages), len(m.findings), m.replays.left_out

    # -- while the body runs ---------------------------------------------------------------------
    def level(self, values: range) -> LoopIndex:
        """Return the index of the next inner loop in its first iteration."""
        watch = Watch()
        self.levels.append((watch, values))
        return LoopIndex(values[0], frozenset((watch,)), {watch: values.step})

    def _inside(self, x: LoopIndex, n: int) -> bool:
        """Tell whether an index is in 0 ... n - 1 in all iterations."""
        assert x.steps is not None
        low = high = x.value
        for watch, values in self.levels:
            far = x.steps.get(watch, 0) * (len(values) - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        return low >= 0 and high < n

    def view(self, t: Tensor, keys: tuple) -> Tensor | None:
        """Return what subscripts mean, noting how far the loops move it; None if that is unclear.
        """
        if t.oob is not None or len(keys) > len(t.shape) or id(t) in self.moving:
            return None
        part = t.nblock if t.kind is not HBM else -1
        plain: list[Any] = []
        moves: Moves = {}
        for d, (k, n, stride) in enumerate(zip(keys, t.shape, t.strides)):
            first = k
            if type(k) is slice:
                first, end = k.start, k.stop
                if type(first) is LoopIndex and first.steps is not None:
                    if type(end) is not LoopIndex or end.steps != first.steps \
                            or not self._inside(end, n + 1):
                        return None
                elif type(end) is LoopIndex and end.steps is not None:
                    return None
                k = slice(_value(first), _value(end), k.step)
            elif type(k) is not int and type(k) is not LoopIndex:
                return None
            plain.append(_value(k))
            if type(first) is LoopIndex and first.steps is not None:
                if d == part or not self._inside(first, n):
                    return None
                for watch, step in first.steps.items():
                    moves[watch] = moves.get(watch, 0) + step * stride
        if not moves:
            return None
        view = t[tuple(plain)]
        self.moving[id(view)] = view, moves
        return view

    # -- when it has run -------------------------------------------------------------------------
    def end(self, whole: bool) -> None:
        """Decide whether all other iterations follow from the first, if that is `whole`."""
        self.m.nest = None
        self.fits = whole and self._fits()
        if self.product is not None and not self.fits:
            ins, dst = self.instr                               # type: ignore[misc]
            self.m.products.add(*self.product, ins.srcs, dst)

    def _fits(self) -> bool:
        m, tr = self.m, self.m.trace
        if self.instr is None or len(self.levels) != self.depth \
                or any(watch.escaped for watch, _ in self.levels) \
                or len(tr.starts) != self.starts + 1 or self._counts() != self.before:
            return False
        ins, dst = self.instr
        if not ins.accumulate or ins.box is not None or ins.mask is not None or ins.also \
                or len(ins.srcs) != 2 or not self.moving.keys() <= {id(t) for t in ins.srcs}:
            return False
        return not m.compute or self.product is not None and self._known(dst, ins.srcs)

    def _known(self, dst: Tensor, srcs: tuple[Tensor, ...]) -> bool:
        """Tell whether all that the nest reads has been written."""
        if dst.storage.init != FULLY or dst.storage.arena:
            return False
        for t in srcs:
            st = t.storage
            if st.arena:
                return False
            if st.init != FULLY:
                shape, strides = self._all_of(t)
                if not st.mask_view(t.offset, shape, strides, t.dtype.itemsize).all():
                    return False
        return True

    def _all_of(self, t: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides of what an operand is in all iterations together."""
        moves = self._moves(t)
        used = [(len(values), step) for (_, values), step in zip(self.levels, moves) if step]
        return (*(n for n, _ in used), *t.shape), (*(s for _, s in used), *t.strides)

    def _moves(self, t: Tensor) -> tuple[int, ...]:
        """Return how far each loop moves an operand, in bytes."""
        moves = self.moving[id(t)][1] if id(t) in self.moving else {}
        return tuple(moves.get(watch, 0) for watch, _ in self.levels)

    def go_on(self) -> None:
        """Append the record of all iterations but the first, and queue the products of all."""
        m, tr = self.m, self.m.trace
        assert self.instr is not None
        ins, dst = self.instr
        shape = _shape(tuple(values for _, values in self.levels))
        moves = tuple(map(self._moves, ins.srcs))
        row = np.array(tr.rows[self.rows:], np.int64)
        tr.rows.frombytes((row + _deltas(shape.values, moves, len(row))).tobytes())
        count = len(shape.leaf) - 1
        at = self.rows + len(row)
        tr.starts.extend(range(at, at + count * len(row), len(row)))
        parents = shape.parent + self.nodes
        parents[shape.outer] = self.parent
        tr.node_parent.frombytes(parents.tobytes())
        tr.node_loop.frombytes((shape.loop + self.loops).tobytes())
        tr.node_iter.frombytes(shape.iteration)
        kinds, lines = tr.loop_kind[self.loops:], tr.loop_line[self.loops:]
        tr.loop_kind += [kinds[i] for i in shape.inner]
        tr.loop_line += [lines[i] for i in shape.inner]
        m.loop_open += [False] * len(shape.inner)
        if m.compute:
            assert self.product is not None
            dst.storage.version += count
            m.products.add_all(self.product, ins.srcs, dst, tuple(map(len, shape.values)), moves)


def _value(x: Any) -> Any:
    return x.value if type(x) is LoopIndex else x


# -- what the record of a nest looks like --------------------------------------------------------

class _Shape:
    """The loops and iterations of a nest in the order in which they begin.

    As numbers from the first of the nest's own: of each iteration its loop, the iteration that
    this loop runs in, and its index. All but those of the first, which are in the record.
    """

    def __init__(self, values: tuple[range, ...]):
        self.values = values
        nodes: list[tuple[int, int, int]] = []          # parent, loop, index
        loops: list[int] = []                           # the level of each
        leaf: list[int] = []

        def run(level: int, parent: int) -> None:
            loop = len(loops)
            loops.append(level)
            for i in values[level]:
                nodes.append((parent, loop, i))
                if level + 1 < len(values):
                    run(level + 1, len(nodes) - 1)
                else:
                    leaf.append(len(nodes) - 1)
        run(0, -1)
        self.leaf = np.array(leaf, np.int64)
        self.inner = loops[len(values):]
        rest = np.array(nodes[len(values):], np.int64).reshape(-1, 3)
        self.parent, self.loop = rest[:, 0].copy(), rest[:, 1].copy()
        self.outer = np.flatnonzero(self.parent < 0)
        self.iteration = rest[:, 2].tobytes()


@functools.lru_cache(maxsize=256)
def _shape(values: tuple[range, ...]) -> _Shape:
    return _Shape(values)


@functools.lru_cache(maxsize=1024)
def _deltas(values: tuple[range, ...], moves: tuple[tuple[int, ...], ...], width: int
            ) -> np.ndarray:
    """Return how the rows of all iterations but the first differ from the first one's."""
    leaf = _shape(values).leaf
    out = np.zeros((len(leaf), width), np.int64)
    out[:, NODE] = leaf - leaf[0]
    steps = np.indices(tuple(map(len, values))).reshape(len(values), -1)
    for number, move in enumerate(moves, 1):            # operand 0 is the sum
        out[:, HEAD + OPERAND * number + 1] = np.array(move, np.int64) @ steps
    assert not out[:, KIND].any()
    return out[1:]


# -- the loops ------------------------------------------------------------------------------------

def enabled() -> bool:
    """Tell whether nests are run once, as NKISIM_NESTS says."""
    return os.environ.get(VARIABLE, "") != "0"


def plan_for(m: Machine, frame: FrameType) -> Plan | None:
    """Return the plan of the nest that begins with the loop whose iterator a frame asks for."""
    if not m.nests or m.shuffle is not None or m.watch is not None or m.cores is not None:
        return None
    plan = plan_of(frame)
    if plan is None or m.misfits.get(plan, 0) >= TRIES or not plan.holds(frame):
        return None
    return plan


def outermost(m: Machine, loop: Loop, plan: Plan) -> Iterator[Any]:
    """Yield the indices of a nest's outermost loop that have to be executed."""
    if m.pending is not None:
        m.flush()
    nest = m.nest = Nest(m, plan)
    try:
        yield from inner(m, loop, nest)
    finally:
        if m.nest is nest:              # an error ends the kernel, or is caught in it
            nest.end(False)
    if nest.fits:
        nest.go_on()
    else:
        m.misfits[plan] = m.misfits.get(plan, 0) \
            + (TRIES if any(w.escaped for w, _ in nest.levels) else 1)


def inner(m: Machine, loop: Loop, nest: Nest) -> Iterator[Any]:
    """Yield the indices of a loop of a nest that have to be executed."""
    indices = loop.iterations()
    for k, index in enumerate(indices):
        yield index if k else nest.level(loop.values)
        if m.pending is not None:
            m.flush()
        if m.nest is nest:              # the innermost loop's first iteration is over
            nest.end(True)
        if nest.fits:
            indices.close()
            return


__all__ = ["Nest", "enabled", "inner", "outermost", "plan_for"]
