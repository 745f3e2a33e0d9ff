"""Loops whose iterations do the same to other elements: one instruction for all of them.

AWS's compiler makes of a loop over affine_range whose instructions differ only by an offset one
instruction with a dimension more, statement by statement. So nothing waits for one iteration alone:
all maxima of a group of tiles are there before the first exponential begins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF
from ..trace.rewrite import Draft
from ..trace.trace import Operands, OpSpec, Trace, operand_at

_ENGINES = ("vector", "scalar", "any")


def vectorize(trace: Trace, hw: NeuronCore, phases: bool = False) -> Trace:
    """Return the trace with one instruction for those of a loop that differ by an offset only.

    `phases`: also of a loop around others, if none of them has become one instruction or is long
    by itself. What is small in it is then done for all of its iterations at once, so all that comes
    before is done before.
    Where a loop is too long for that, tiles in PSUM of as many iterations as a bank has room for
    lie in one, and one instruction reads them all.
    """
    draft, accesses = Draft(trace), trace.operands()
    users = _users(trace, accesses)
    changed = False
    done = np.zeros(len(trace), bool)  # instructions that are part of another
    for nest in reversed(_loops(trace, accesses)):  # from the inside out
        of_nest = slice(nest.at[0, 0], nest.at[-1, -1] + 1)
        if done[of_nest].any() or not (phases or nest.innermost):
            continue
        loop = _Loop(trace, draft, nest.at, nest.early, phases)
        if loop.rewrite(hw, users, nest.own):
            changed = done[of_nest] = True
            continue
        n = loop.iterations_a_bank(hw) if nest.innermost else 0
        if n > 1 and all(
            [
                _Loop(trace, draft, nest.at[t : t + n], [] if t else nest.early, phases).rewrite(
                    hw, users, nest.own, True
                )
                for t in range(0, len(nest.at), n)
            ]
        ):
            changed = done[of_nest] = True
    return draft.finish() if changed else trace


def _users(trace: Trace, accesses: Operands) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last instruction that uses each storage."""
    n = len(trace.storages)
    first, last = np.full(n, len(trace)), np.full(n, -1)
    np.minimum.at(first, accesses.storage, accesses.instr)
    np.maximum.at(last, accesses.storage, accesses.instr)
    return first, last


class _Nest(NamedTuple):
    """A loop whose iterations are alike."""

    at: np.ndarray  # its instructions: (iteration, statement)
    early: list[int]  # tiles that are set to a value by the first of all iterations
    innermost: bool
    own: np.ndarray  # which statements are in no loop inside of it


def _loops(trace: Trace, accesses: Operands) -> list[_Nest]:
    """Return affine loops whose iterations are alike, a loop before those inside of it."""
    spec, line, node = trace.instructions()
    if not len(node):
        return []
    sets = np.array([k.row.fills for k in trace.op_specs])[spec]
    parent, of = trace.node_parent, trace.node_loop
    first, last = _spans(node, np.array(parent))
    rounds: dict[int, list[int]] = {}  # loop -> its iterations
    outer = set()  # loops around others
    for n in np.flatnonzero(last).tolist():
        if of[n] >= 0:
            rounds.setdefault(of[n], []).append(n)
            outer.add(of[parent[n]])
    out = []
    for this in sorted(rounds):
        trips = [(int(first[n]), int(last[n])) for n in rounds[this]]
        if (
            len(trips) < 2
            or trace.loop_kind[this] != "affine_range"
            or any(y[0] != x[1] for x, y in zip(trips, trips[1:]))
        ):
            continue
        (a, b), (c, d), early = trips[0], trips[1], []
        instrs = np.arange(a, trips[-1][1])
        if b - a > d - c:  # a sum that its first part makes zero
            early = [
                i
                for i in range(a, b)
                if sets[i] and spec[i] not in spec[c:d] and _is_first(accesses, a, i)
            ]
            instrs = np.setdiff1d(instrs, early)
        length = len(instrs) // len(trips)
        if length * len(trips) != len(instrs):
            continue
        at = instrs.reshape(len(trips), length)
        if all((x[at] == x[at[0]]).all() for x in (spec, line)):
            out.append(_Nest(at, early, this not in outer, node[at[0]] == rounds[this][0]))
    return out


def _is_first(accesses: Operands, begin: int, fill: int) -> bool:
    """Return whether no instruction from `begin` on uses what one fills: it may come before them,
    and none of them needs what was there."""
    first, its, end = np.searchsorted(accesses.instr, (begin, fill, fill + 1))
    return not np.isin(accesses.storage[its:end], accesses.storage[first:its]).any()


def _spans(node: np.ndarray, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first instruction of each iteration and the one after its last, 0 for none."""
    first, last = np.full(len(parent), len(node)), np.zeros(len(parent), np.int64)
    np.minimum.at(first, node, np.arange(len(node)))
    np.maximum.at(last, node, np.arange(len(node)) + 1)
    for n in range(len(parent) - 1, 0, -1):  # those inside of it come later
        if last[n]:
            p = parent[n]
            first[p], last[p] = min(first[p], first[n]), max(last[p], last[n])
    return first, last


class _Loop:
    """One loop, or some iterations of it: where the operands of its statements are.

    `storage`, `offset`: by statement, arrays (iteration, operand). `short`: only instructions that
    are short by themselves are joined.
    """

    def __init__(self, trace: Trace, draft: Draft, at: np.ndarray, early: list[int], short: bool):
        self.trace, self.draft, self.at, self.early, self.short = trace, draft, at, early, short
        self.trips, self.length = at.shape
        self.first = int(min(at[0, 0], *early)) if early else int(at[0, 0])
        starts = draft.starts[at]
        self.specs = [draft.spec_of(i) for i in at[0].tolist()]
        self.storage, self.offset = [], []
        for p, spec in enumerate(self.specs):
            where = operand_at(starts[:, p : p + 1], np.arange(len(spec.operands))[None, :])
            self.storage.append(draft.rows[where])
            self.offset.append(draft.rows[where + 1])

    def rewrite(
        self,
        hw: NeuronCore,
        users: tuple[np.ndarray, np.ndarray],
        own: np.ndarray,
        drains: bool = False,
    ) -> bool:
        """Put in one instruction for each of its own statements that allows it.

        Return whether there is any.

        `drains`: only for those that read tiles in PSUM that a bank holds whole.
        """
        merged = [bool(own[p]) and self._fits(p, hw, self.trips) for p in range(self.length)]
        if drains:
            merged = [
                fits and 0 < self._drains(p) * self.trips <= hw.psum_bank_bytes
                for p, fits in enumerate(merged)
            ]
        if not any(merged):
            return False
        tiles = self._tiles(users)
        if tiles is None or not self._room(tiles, hw):
            return False
        many = [self._as_one(p, tiles) if fits else None for p, fits in enumerate(merged)]
        many = [
            one if one and max(q.span(free=True) for q in one.operands) <= hw.psum_bytes else None
            for one in many
        ]  # no more than lies in PSUM at once
        if not any(many):
            return False
        for i in self.early:
            spec = self.draft.spec_of(i)
            self.draft.put(
                self.first, i, spec, [self.draft.operand(i, j) for j in range(len(spec.operands))]
            )
        homes = {
            s: self.draft.storage(
                s,
                self.trace.storages[s].memory,
                row_bytes=self.trips * self.trace.storages[s].row_bytes,
            )
            for s in {tile[0] for tile in tiles.values()}
        }
        for p, one in enumerate(many):
            spec = self._at_home(one or self.specs[p], p, tiles)
            for t in range(1 if one else self.trips):
                i = int(self.at[t, p])
                operands = []
                for s, at in zip(self.storage[p][t].tolist(), self.offset[p][t].tolist()):
                    if s in tiles:
                        head, number = tiles[s]
                        at += number * self.trace.storages[head].row_bytes
                        s = homes[head]
                    operands.append((s, at))
                self.draft.put(self.first, i, spec, operands)
        for i in (*self.early, *self.at.ravel().tolist()):
            self.draft.drop(i)
        return True

    def _at_home(self, spec: OpSpec, p: int, tiles: dict[int, tuple[int, int]]) -> OpSpec:
        """Return an instruction whose tiles lie beside those of the other iterations."""
        operands = []
        for j, q in enumerate(spec.operands):
            s = int(self.storage[p][0, j])
            row = self.trace.storages[s].row_bytes
            operands.append(
                replace(q, strides=(row * self.trips, *q.strides[1:]))
                if s in tiles and q.strides[0] == row
                else q
            )
        return replace(spec, operands=tuple(operands))

    def _fits(self, p: int, hw: NeuronCore, trips: int) -> bool:
        """Return whether an engine could do a statement for `trips` iterations at once."""
        spec = self.specs[p]
        if (
            spec.engine not in _ENGINES
            or spec.indirect
            or spec.masked
            or spec.accumulate
            or any(q.memory is HBM for q in spec.operands)
            or spec.row.merges
        ):
            return False
        each = [q.elements // q.shape[0] for q in spec.operands]
        most = hw.timing.compiler_vector_elements
        return trips * each[0] <= most and (max(each) < most or not self.short)

    def _drains(self, p: int) -> int:
        """Return the bytes of the tile in PSUM that each iteration reads, 0 for none."""
        spec = self.specs[p]
        return max(
            (
                self.trace.storages[int(self.storage[p][0, j])].row_bytes
                for j, q in enumerate(spec.operands)
                if j >= spec.outputs
                and q.memory is PSUM
                and len(set(self.storage[p][:, j].tolist())) == self.trips
            ),
            default=0,
        )

    def iterations_a_bank(self, hw: NeuronCore) -> int:
        """Return of how many iterations a bank has room for what is drained, 0 for none."""
        if any(k.accumulate for k in self.specs):
            return 0
        sizes = [(p, self._drains(p)) for p in range(self.length)]
        return max(
            (
                n
                for p, size in sizes
                if size
                for n in range(2, min(self.trips, hw.psum_bank_bytes // size + 1))
                if self.trips % n == 0 and self._fits(p, hw, n)
            ),
            default=0,
        )

    def _tiles(self, users: tuple[np.ndarray, np.ndarray]) -> dict[int, tuple[int, int]] | None:
        """Return {tile: (the first iteration's, iteration)} of tiles that one iteration alone uses.

        None if the statements cannot be taken one after the other: an iteration writes what
        another one uses.
        """
        tiles: dict[int, tuple[int, int]] = {}
        written: dict[int, int] = {}  # storage -> bytes between iterations
        for p, spec in enumerate(self.specs):
            for j in range(spec.outputs):
                s, at = self.storage[p][:, j], self.offset[p][:, j]
                if len(set(s.tolist())) == self.trips:
                    if (
                        spec.operands[j].memory is HBM
                        or (at != at[0]).any()
                        or (users[0][s] < self.at[:, 0]).any()
                        or (users[1][s] > self.at[:, -1]).any()
                    ):
                        return None
                    tiles.update((x, (int(s[0]), t)) for t, x in enumerate(s.tolist()))
                    continue
                step = np.diff(at)
                if (s != s[0]).any() or (step != step[0]).any():
                    return None
                if spec.accumulate and not step[0]:  # a sum over iterations: in any order
                    continue
                if abs(int(step[0])) < spec.operands[j].span(
                    free=spec.operands[j].memory is not HBM
                ):
                    return None
                if written.setdefault(int(s[0]), int(step[0])) != int(step[0]):
                    return None
        sums = {
            int(self.storage[p][0, j])
            for p, spec in enumerate(self.specs)
            for j in range(spec.outputs)
            if spec.accumulate
        } - set(tiles)
        for p, spec in enumerate(self.specs):  # whoever reads it moves along
            for j in range(spec.outputs, len(spec.operands)):
                s, at = self.storage[p][:, j], self.offset[p][:, j]
                for x in set(s.tolist()):
                    if (
                        x in sums
                        or x in written
                        and ((s != s[0]).any() or (np.diff(at) != written[x]).any())
                    ):
                        return None
        return None if any(self._meet(x) for x in written) else tiles

    def _meet(self, storage: int) -> bool:
        """Return whether an iteration writes what another one uses, of a storage through which all
        accesses move alike."""
        accesses = [
            (p, j)
            for p, spec in enumerate(self.specs)
            for j in range(len(spec.operands))
            if self.storage[p][0, j] == storage
        ]
        apart = np.r_[1 - self.trips : 0, 1 : self.trips]  # iterations between two
        one = np.maximum(apart, 0)
        for p, j in accesses:
            if j >= self.specs[p].outputs:
                continue
            low, high = self._bytes(p, j)
            for other in accesses:
                if other != (p, j):
                    least, most = self._bytes(*other)
                    meet = (least[:, one] < high[:, one - apart]) & (
                        low[:, one - apart] < most[:, one]
                    )
                    if meet.all(0).any():
                        return True
        return False

    def _bytes(self, p: int, j: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where an access begins and ends in each iteration: partitions and bytes of one (of
        HBM, bytes)."""
        q = self.specs[p].operands[j]
        at = self.offset[p][:, j] + q.lowest()
        if q.memory is HBM:
            return at[None], at[None] + q.span(free=False)
        low = np.stack(np.divmod(at, self.trace.storages[self.storage[p][0, j]].row_bytes))
        return low, low + np.array([[q.shape[0]], [q.span(free=True)]])

    def _room(self, tiles: dict[int, tuple[int, int]], hw: NeuronCore) -> bool:
        """Return whether what all iterations write leaves most of the memories to others."""
        held = {SBUF: 0, PSUM: 0}
        for head in {head for head, _ in tiles.values()}:
            info = self.trace.storages[head]
            held[info.memory] += self.trips * info.row_bytes
        parts: dict[int, tuple[str, int]] = {}  # of what they share: all that they write
        for p, spec in enumerate(self.specs):
            for j, q in enumerate(spec.operands[: spec.outputs]):
                s, at = int(self.storage[p][0, j]), self.offset[p][:, j]
                if s not in tiles and q.memory in held:
                    size = int(at.max() - at.min()) + q.span(free=True)
                    parts[s] = q.memory, max(size, parts.get(s, ("", 0))[1])
        for memory, size in parts.values():
            held[memory] += size
        share = hw.timing.compiler_vector_share
        return held[SBUF] <= share * hw.sbuf_usable_bytes and held[PSUM] <= share * hw.psum_bytes

    def _as_one(self, p: int, tiles: dict[int, tuple[int, int]]) -> OpSpec | None:
        """Return the instruction for all iterations of a statement, None if there is none."""
        spec = self.specs[p]
        long = spec.operands[0].elements > spec.operands[0].shape[0]
        operands = []
        for j, q in enumerate(spec.operands):
            s, at = self.storage[p][:, j].tolist(), self.offset[p][:, j]
            if all(tiles.get(x, (-1, -1)) == (s[0], t) for t, x in enumerate(s)):
                step = self.trace.storages[s[0]].row_bytes
            elif len(set(s)) > 1 or len(set(np.diff(at).tolist())) > 1:
                return None
            else:
                step = int(at[1] - at[0])
            single = q.elements == q.shape[0]
            if step and single and long and j >= spec.outputs:
                return None  # a scalar a partition is one for all
            operands.append(
                replace(
                    q,
                    shape=(q.shape[0], self.trips, *q.shape[1:]),
                    strides=(q.strides[0], step, *q.strides[1:]),
                )
                if step
                else q
            )
        return replace(spec, operands=tuple(operands))
