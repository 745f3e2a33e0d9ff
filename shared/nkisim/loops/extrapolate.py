"""From the first iteration of loops to the record of all.

    for t in range(tiles):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[t * 128:(t + 1) * 128])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.dma_copy(dst=out[t * 128:(t + 1) * 128], src=tile)

The source says that nothing but indices tells one iteration from another (source.py). So when the
first iteration of a loop is over, its rows give those of all others: subscripts say how far the
loop moves each operand, tiles that the iteration has made are as many storages further. Loops
inside have been continued in this way by then, and are copied with the rest.

What a machine remembers from one iteration to the next (sums in PSUM that have been read, zeros
that are not written yet, results that live on in a tile) may make the second one another: a loop
that touches such a thing runs whole, and so does one whose index decides something. The loops
around it may still be continued.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from ..chip.memory import HBM, PSUM, Storage
from ..errors import NkiError
from ..machine.tensor import Tensor
from ..trace.trace import SPEC, Storages, StorageTable
from .loopindex import Compared, LoopIndex, ObservedLoop
from .views import Moves, Views

if TYPE_CHECKING:
    from ..machine.instruction import Instr
    from ..machine.interface import Machine

MOST_PLACES = 256  # of a result in all iterations; each is checked
#: what a loop does to a word of a row; from _MOVES on, a number of `Extrapolation.moved`
_STAYS, _NODE, _STORAGE, _MOVES = range(4)
NODE_OF_STORAGE = StorageTable._fields.index("node")


class Issue:
    """An instruction of a first iteration, without its operands: what holds a result keeps it.

    `storages`, `moves`, `unknown`: of its operands; the first `outs` are written. `stale`:
    storages that are in another state the next time. `at`: where the result begins, in all
    iterations; `view`: its shape, strides and dtype. `adds`: when a product adds to its sum, if not
    always; then `words`: where its rows begin, and the `numbers` that decide in each.
    """

    def __init__(self, views: Views, ins: Instr, dst: Tensor, adds: Compared | None, word: int):
        operands = (dst, *ins.also, *ins.srcs)
        self.ins, self.outs, self.adds = ins.pattern(), 1 + len(ins.also), adds
        self.storages: list[Storage] = [t.storage for t in operands]
        seen = [views.moves(t) for t in operands]
        self.moves: list[Moves] = [moves for moves, _ in seen]
        self.unknown: set[ObservedLoop] = set().union(*[unknown for _, unknown in seen])
        self.at, self.view = [dst.offset], (dst.shape, dst.strides, dst.dtype)
        self.stale = {
            st.id
            for k, st in enumerate(self.storages)
            if st.arena or k < self.outs and lives_on(st)
        }
        if adds is not None:
            self.words, self.numbers = np.array([word]), np.array([adds.index.value])

    def roles(self, moved: list[Moves]) -> list[int]:
        """Return what a loop does to each word of its row; add its moves to those of others."""
        roles = [_STAYS, _STAYS, _NODE]
        for moves in self.moves:
            if moves:
                roles += (_STORAGE, _MOVES + len(moved))
                moved.append(moves)
            else:
                roles += (_STORAGE, _STAYS)
        return roles


def lives_on(st: Storage) -> bool:
    """Return whether a result that was put into a storage is still in use by a name of its own."""
    return bool(st.aliases) and any(ref() is not None for ref in st.aliases)


def state(m: Machine) -> tuple[int, ...]:
    """Return how much there is of what only a first iteration may add."""
    tr = m.trace
    return (
        len(m.findings),
        m.loops.left_out,
        len(tr.edges),
        len(tr.named),
        len(m.core.constants),
        len(m.memory.shared),
        len(m.memory.indexed),
        len(m.memory.masked_out),
    )


class Level:
    """A loop whose first iteration is running, and where what it leaves begins."""

    def __init__(self, run: Extrapolation, values: range, recorded: bool):
        m, tr = run.m, run.m.trace
        self.fits = m.pending is None  # or the first iteration ends what came before
        self.watch, self.values, self.recorded = ObservedLoop(), values, recorded
        self.rows, self.starts, self.storages = len(tr.rows), len(tr.starts), len(tr.storages)
        self.nodes, self.loops = len(tr.node_loop) - recorded, len(tr.loop_kind)
        self.issues = len(run.issues)
        self.state = state(m)


class Extrapolation(Views):
    """Loops that execute one iteration, from the outermost one on."""

    def __init__(self, m: Machine):
        super().__init__(m)
        self.stack: list[Level] = []
        self.issues: list[Issue] = []
        self.moved: list[Moves] = []
        self.roles = array("q")  # of all words of the record since `rows`
        self.rows = len(m.trace.rows)
        self.adds: Compared | None = None  # when the next product adds to its sum
        self.outer: ObservedLoop | None = None  # the outermost loop
        self.fits = False  # all of the outermost loop follows from one iteration

    # -- while an iteration runs -----------------------------------------------------------------
    def enter(self, values: range, recorded: bool) -> LoopIndex:
        """Begin the first iteration of a loop; return its index."""
        level = Level(self, values, recorded)
        self.outer = self.outer or level.watch
        self.stack.append(level)
        self.levels.append((level.watch, values))
        return LoopIndex(values[0], {level.watch: values.step})

    def answer(self, adds: Compared) -> bool:
        """Return whether the next product adds to its sum; it is known when others do."""
        self.adds = adds
        return adds.first()

    def issue(self, ins: Instr, dst: Tensor) -> None:
        """Take an instruction that is about to be recorded."""
        adds, self.adds = self.adds, None
        if (
            ins.box is not None
            or ins.mask is not None
            or getattr(ins.variant, "indirect", False)
            or any(t.storage.lazy_zero for t in ins.srcs)
        ):
            self.give_up()
        self.issues.append(Issue(self, ins, dst, adds, len(self.roles)))
        self.roles.extend(self.issues[-1].roles(self.moved))

    def give_up(self) -> None:
        """Run all loops that have begun whole."""
        for level in self.stack:
            level.fits = False

    # -- when it has run -------------------------------------------------------------------------
    def leave(self) -> bool:
        """End the first iteration of the innermost loop that has begun; return whether the record
        of all others has been appended."""
        level = self.stack.pop()
        self.levels.pop()
        if not self.stack:
            self.end()
        if len(level.values) > 1:
            if not self._fits(level):
                return False
            self._append(level)
        self.fits = not self.stack
        return True

    def end(self) -> None:
        """Stop watching: what is left is executed."""
        if self.m.loops.nest is self:
            self.m.loops.nest = None

    def _fits(self, level: Level) -> bool:
        """Return whether all iterations of a loop leave what its first one has left."""
        m, tr = self.m, self.m.trace
        if (
            not level.fits
            or level.watch.escaped
            or len(tr.starts) == level.starts
            or state(m) != level.state
            or len(tr.rows) != self.rows + len(self.roles)
        ):
            return False
        width = Storages.WIDTH
        if Storages.CODE[HBM] in tr.storages.data[level.storages * width :: width]:
            return False
        sums = m.memory.psum_sums
        by_products: dict[int, bool] = {}  # storages in PSUM
        for issue in self.issues[level.issues :]:
            if level.watch in issue.unknown or any(st < level.storages for st in issue.stale):
                return False
            for k, st in enumerate(issue.storages):
                if st.id >= level.storages:
                    continue
                if k >= issue.outs:
                    if st.id in sums:
                        return False
                elif (
                    lives_on(st)
                    or st.memory is PSUM
                    and issue.ins.row.accumulates
                    != by_products.setdefault(st.id, issue.ins.row.accumulates)
                ):
                    return False
                elif st.memory is PSUM and any(sums.get(st.id, {}).values()):
                    return False
            if not self._may_be(level, issue):
                return False
        return True

    def _may_be(self, level: Level, issue: Issue) -> bool:
        """Find where a result begins in all iterations; return whether each of them is allowed."""
        step, check = issue.moves[0].get(level.watch, 0), issue.ins.row.check
        if not step or check is None:
            return True
        if issue.ins.engine != "tensor":  # it asks for the accumulator registers: each use counts
            return not any(self.m.core.registers.sums.values())
        new = [at + k * step for k in range(1, len(level.values)) for at in issue.at]
        if len(new) > MOST_PLACES:
            return False
        shape, strides, dtype = issue.view
        st = issue.storages[0]
        try:
            for at in new:
                check(
                    self.m, issue.ins, Tensor(self.m, st, at, shape, strides, dtype, 0, st.memory)
                )
        except NkiError:
            return False
        issue.at += new
        return True

    def _append(self, level: Level) -> None:
        """Append the record of all iterations of a loop but the first."""
        m, tr, count = self.m, self.m.trace, len(level.values) - 1
        times = np.arange(1, count + 1)[:, None]
        made, nodes = len(tr.storages) - level.storages, len(tr.node_loop) - level.nodes
        loops = len(tr.loop_kind) - level.loops
        rows = np.array(tr.rows[level.rows :])
        roles = np.array(self.roles[level.rows - self.rows :])
        step = np.array([0, 0, 0, *[moves.get(level.watch, 0) for moves in self.moved]])[roles]
        step[(roles == _NODE) & (rows >= level.nodes)] = nodes
        step[(roles == _STORAGE) & (rows >= level.storages)] = made
        appended = rows + times * step
        self._set_op_specs(level, appended, times)
        starts = np.array(tr.starts[level.starts :])
        tr.rows.frombytes(appended.tobytes())
        tr.starts.frombytes((starts + times * len(rows)).tobytes())
        self.roles.frombytes(roles.tobytes() * count)
        if made:
            first = np.array(tr.storages.data[level.storages * Storages.WIDTH :])
            step = np.zeros((made, Storages.WIDTH), np.int64)
            step[:, NODE_OF_STORAGE] = nodes * (
                first[NODE_OF_STORAGE :: Storages.WIDTH] >= level.nodes
            )
            tr.storages.data.frombytes((first + times * step.reshape(-1)).tobytes())
        if nodes:
            parent, loop, index = (
                np.array(a[level.nodes :]) for a in (tr.node_parent, tr.node_loop, tr.node_iter)
            )
            step = np.zeros(nodes, np.int64)
            step[: level.recorded] = level.values.step
            tr.node_parent.frombytes((parent + times * ((parent >= level.nodes) * nodes)).tobytes())
            tr.node_loop.frombytes((loop + times * ((loop >= level.loops) * loops)).tobytes())
            tr.node_iter.frombytes((index + times * step).tobytes())
        if loops:
            tr.loop_kind += tr.loop_kind[level.loops :] * count
            tr.loop_line += tr.loop_line[level.loops :] * count
            m.loops.open += [False] * (loops * count)
        for issue in self.issues[level.issues :]:
            bank_sums = m.memory.psum_sums.get(issue.storages[0].id)
            if bank_sums is not None and issue.ins.row.accumulates:
                bank_sums.update((at, False) for at in issue.at)

    def _set_op_specs(self, level: Level, appended: np.ndarray, times: np.ndarray) -> None:
        """Set the op specs of products that add to their sums in some iterations only."""
        others: list[tuple[int, int]] = []
        for issue in self.issues[level.issues :]:
            if issue.adds is None:
                continue
            first, adds = issue.numbers, issue.adds
            later = first + times * adds.index.steps.get(level.watch, 0)
            words = issue.words - (level.rows - self.rows) + SPEC
            others += [
                (t, int(words[k]))
                for t, k in np.argwhere(
                    adds.op(later, adds.other) != adds.op(first, adds.other)
                ).tolist()
            ]
            issue.numbers = np.append(first, later)
            issue.words = np.append(issue.words, issue.words + times * appended.shape[1])
        for t, at in sorted(others):
            appended[t, at] = self.m.trace.adding(int(appended[t, at]))


__all__ = ["Extrapolation", "Issue", "lives_on", "state"]
