"""Loops whose iterations do the same to other elements: one instruction for all of them.

AWS's compiler makes of a loop over affine_range whose instructions differ only by an offset one
instruction with a dimension more, statement by statement. So nobody waits for one iteration alone:
all maxima of a group of tiles are there before the first exponential begins.
"""
from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF
from ..isa import dve
from ..trace.rewrite import Draft
from ..trace.trace import Kind, Trace, operand_at

_ENGINES = ("vector", "scalar", "any")


def vectorize(trace: Trace, hw: NeuronCore) -> Trace:
    """Return the trace with one instruction for those of a loop that differ by an offset only.

    Where a loop is too long for that, tiles in PSUM of as many iterations as a bank has room for
    lie in one, and one instruction reads them all.
    """
    draft, users = Draft(trace), _users(trace)
    changed = False
    for nest in _loops(trace):
        if _Loop(trace, draft, nest.at, nest.early).rewrite(hw, users):
            changed = True
            continue
        trips = len(nest.at)
        for n in range(trips // 2, 1, -1):
            if trips % n == 0 and all([
                    _Loop(trace, draft, nest.at[t:t + n], []).rewrite(hw, users, drains=True)
                    for t in range(0, trips, n)]):
                changed = True
                break
    return draft.finish() if changed else trace


def _users(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last instruction that uses each storage."""
    every = trace.operands()
    n = len(trace.storages)
    first, last = np.full(n, len(trace)), np.full(n, -1)
    np.minimum.at(first, every.storage, every.instr)
    np.maximum.at(last, every.storage, every.instr)
    return first, last


class _Nest(NamedTuple):
    """An innermost loop whose iterations are alike."""

    at: np.ndarray              # its instructions: (iteration, statement)
    early: list[int]            # tiles that are set to a value by the first of all iterations


def _loops(trace: Trace) -> list[_Nest]:
    """Return innermost affine loops whose iterations are alike."""
    kind, line, node = trace.instructions()
    if not len(node):
        return []
    loop = np.array(trace.node_loop)[node]
    begin = np.flatnonzero(np.append(True, np.diff(loop) != 0))
    end = np.append(begin[1:], len(loop))
    seen, counts = np.unique(loop[begin], return_counts=True)
    whole = set(seen[counts == 1].tolist())             # in one piece: there is no loop inside
    sets = np.array([k.row is dve.memset.row for k in trace.kinds])[kind]
    out = []
    for a, b in zip(begin.tolist(), end.tolist()):
        this = int(loop[a])
        if this not in whole or this < 0 or trace.loop_kind[this] != "affine_range":
            continue
        trips, every, early = len(np.unique(node[a:b])), np.arange(a, b), []
        first = np.flatnonzero(node[a:b] == node[a]) + a
        if trips > 1 and len(first) * trips > b - a:    # a sum that its first part makes zero
            early = [i for i in first[sets[first]].tolist() if kind[i] not in kind[first[-1] + 1:b]]
            every = np.setdiff1d(every, early)
        length = len(every) // trips
        if trips < 2 or length * trips != len(every):
            continue
        at = every.reshape(trips, length)
        if all((x[at] == x[at[0]]).all() for x in (kind, line)) \
                and (node[at] == node[at[:, :1]]).all():
            out.append(_Nest(at, early))
    return out


class _Loop:
    """One loop, or some iterations of it: where the operands of its statements are.

    `storage`, `offset`: by statement, arrays (iteration, operand).
    """

    def __init__(self, trace: Trace, draft: Draft, at: np.ndarray, early: list[int]):
        self.trace, self.draft, self.at, self.early = trace, draft, at, early
        self.trips, self.length = at.shape
        self.first = int(min(at[0, 0], *early)) if early else int(at[0, 0])
        starts = np.array(trace.starts, np.int64)[at]
        self.kinds = [draft.kind_of(i) for i in at[0].tolist()]
        self.storage, self.offset = [], []
        for p, kind in enumerate(self.kinds):
            where = operand_at(starts[:, p:p + 1], np.arange(len(kind.operands))[None, :])
            self.storage.append(draft.rows[where])
            self.offset.append(draft.rows[where + 1])

    def rewrite(self, hw: NeuronCore, users: tuple[np.ndarray, np.ndarray],
                drains: bool = False) -> bool:
        """Put in one instruction for each statement that allows it; tell whether there is any.

        `drains`: only for those that read tiles in PSUM, of which a bank holds all.
        """
        merged = [self._fits(p, hw) and (not drains or self._drains(p, hw))
                  for p in range(self.length)]
        if not any(merged) or drains and any(k.accumulate for k in self.kinds):
            return False
        tiles = self._tiles(users)
        if tiles is None or not self._room(tiles, hw):
            return False
        many = [self._as_one(p, tiles) if fits else None for p, fits in enumerate(merged)]
        many = [one if one and max(q.span(free=True) for q in one.operands) <= hw.psum_bytes
                else None for one in many]              # no more than lies in PSUM at once
        if not any(many):
            return False
        for i in self.early:
            kind = self.draft.kind_of(i)
            self.draft.put(self.first, i, kind, [self.draft.operand(i, j)
                                                 for j in range(len(kind.operands))])
        homes = {s: self.draft.storage(s, self.trace.storages[s].kind,
                                       row_bytes=self.trips * self.trace.storages[s].row_bytes)
                 for s in {mine[0] for mine in tiles.values()}}
        for p, one in enumerate(many):
            kind = self._at_home(one or self.kinds[p], p, tiles)
            for t in range(1 if one else self.trips):
                i = int(self.at[t, p])
                operands = []
                for s, at in zip(self.storage[p][t].tolist(), self.offset[p][t].tolist()):
                    if s in tiles:
                        head, number = tiles[s]
                        at += number * self.trace.storages[head].row_bytes
                        s = homes[head]
                    operands.append((s, at))
                self.draft.put(self.first, i, kind, operands)
        for i in (*self.early, *self.at.ravel().tolist()):
            self.draft.drop(i)
        return True

    def _at_home(self, kind: Kind, p: int, tiles: dict[int, tuple[int, int]]) -> Kind:
        """Return an instruction whose tiles lie beside those of the other iterations."""
        operands = []
        for j, q in enumerate(kind.operands):
            s = int(self.storage[p][0, j])
            row = self.trace.storages[s].row_bytes
            operands.append(replace(q, strides=(row * self.trips, *q.strides[1:]))
                            if s in tiles and q.strides[0] == row else q)
        return replace(kind, operands=tuple(operands))

    def _fits(self, p: int, hw: NeuronCore) -> bool:
        """Tell whether a statement is one that an engine could do for all iterations at once."""
        kind = self.kinds[p]
        if kind.engine not in _ENGINES or kind.indirect or kind.masked or kind.accumulate \
                or any(q.kind is HBM for q in kind.operands) or kind.row.merges:
            return False
        out = kind.operands[0]
        return self.trips * (out.elements // out.shape[0]) <= hw.timing.compiler_vector_elements

    def _drains(self, p: int, hw: NeuronCore) -> bool:
        """Tell whether a statement reads tiles of PSUM that lie in one bank together."""
        kind = self.kinds[p]
        return any(q.kind is PSUM and len(set(self.storage[p][:, j].tolist())) == self.trips
                   and self.trips * self.trace.storages[int(self.storage[p][0, j])].row_bytes
                   <= hw.psum_bank_bytes
                   for j, q in enumerate(kind.operands) if j >= kind.outputs)

    def _tiles(self, users: tuple[np.ndarray, np.ndarray]) -> dict[int, tuple[int, int]] | None:
        """Return {tile: (the first iteration's, iteration)} of tiles that one iteration alone uses.

        None if the statements cannot be taken one after the other: an iteration writes what
        another one uses.
        """
        tiles: dict[int, tuple[int, int]] = {}
        written: dict[int, int] = {}                    # storage -> bytes between iterations
        for p, kind in enumerate(self.kinds):
            for j in range(kind.outputs):
                s, at = self.storage[p][:, j], self.offset[p][:, j]
                if len(set(s.tolist())) == self.trips:
                    if kind.operands[j].kind is HBM or (at != at[0]).any() \
                            or (users[0][s] < self.at[:, 0]).any() \
                            or (users[1][s] > self.at[:, -1]).any():
                        return None
                    tiles.update((x, (int(s[0]), t)) for t, x in enumerate(s.tolist()))
                    continue
                step = np.diff(at)
                if (s != s[0]).any() or (step != step[0]).any():
                    return None
                if kind.accumulate and not step[0]:     # a sum over iterations: in any order
                    continue
                if abs(int(step[0])) < kind.operands[j].span(free=kind.operands[j].kind is not HBM):
                    return None
                if written.setdefault(int(s[0]), int(step[0])) != int(step[0]):
                    return None
        sums = {int(self.storage[p][0, j]) for p, kind in enumerate(self.kinds)
                for j in range(kind.outputs) if kind.accumulate} - set(tiles)
        for p, kind in enumerate(self.kinds):           # whoever reads it moves along
            for j in range(kind.outputs, len(kind.operands)):
                s, at = self.storage[p][:, j], self.offset[p][:, j]
                for x in set(s.tolist()):
                    if x in sums or x in written and (
                            (s != s[0]).any() or (np.diff(at) != written[x]).any()):
                        return None
        return tiles

    def _room(self, tiles: dict[int, tuple[int, int]], hw: NeuronCore) -> bool:
        """Tell whether tiles of all iterations at once leave most of the memories to others."""
        held = {SBUF: 0, PSUM: 0}
        for head in {head for head, _ in tiles.values()}:
            info = self.trace.storages[head]
            held[info.kind] += self.trips * info.row_bytes
        share = hw.timing.compiler_vector_share
        return held[SBUF] <= share * hw.sbuf_usable_bytes and held[PSUM] <= share * hw.psum_bytes

    def _as_one(self, p: int, tiles: dict[int, tuple[int, int]]) -> Kind | None:
        """Return the instruction for all iterations of a statement, None if there is none."""
        kind = self.kinds[p]
        long = kind.operands[0].elements > kind.operands[0].shape[0]
        operands = []
        for j, q in enumerate(kind.operands):
            s, at = self.storage[p][:, j].tolist(), self.offset[p][:, j]
            if all(tiles.get(x, (-1, -1)) == (s[0], t) for t, x in enumerate(s)):
                step = self.trace.storages[s[0]].row_bytes
            elif len(set(s)) > 1 or len(set(np.diff(at).tolist())) > 1:
                return None
            else:
                step = int(at[1] - at[0])
            single = q.elements == q.shape[0]
            if step and single and long and j >= kind.outputs:
                return None                             # a scalar a partition is one for all
            operands.append(replace(q, shape=(q.shape[0], self.trips, *q.shape[1:]),
                                    strides=(q.strides[0], step, *q.strides[1:])) if step else q)
        return replace(kind, operands=tuple(operands))
