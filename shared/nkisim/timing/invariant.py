"""Arithmetic that does not change in a loop, and rows that are broadcast over partitions.

Profiles of state-space kernels show the time of DVE without the products of two tiles that each
iteration computes anew, and that of ACT without copies of broadcast rows out of PSUM.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import PSUM, SBUF
from ..trace.footprint import Accesses, accesses
from ..trace.rewrite import Draft
from ..trace.trace import OpSpec, Trace
from .moves import Moves, most_held

_ENGINES = ("vector", "scalar", "any")
_STATIC = "static_range"  # its iterations are instructions one after the other


class _Writers:
    """Who writes and reads the versions of tiles."""

    def __init__(self, acc: Accesses):
        ev, vid = acc.ev, acc.vid
        count = len(acc.versions.storage)
        writes = ev["write"].astype(bool)
        self.last = np.full(count, -1)  # instruction that writes it last
        np.maximum.at(self.last, vid[writes], ev["instr"][writes])
        self.once = np.bincount(vid[writes], minlength=count) == 1
        self.once[vid[writes & ~acc.whole]] = False  # all of it, by one instruction


def hoist_arithmetic(trace: Trace, hw: NeuronCore) -> Trace:
    """Do arithmetic of a loop whose operands are the same in all iterations once.

    Only where SBUF has room for what it makes beside everything else.
    """
    fit = np.array([_plain(k) for k in trace.op_specs] or [False])
    specs, _, node = trace.instructions()
    loop, iteration = (x[node] for x in _loops(trace)) if len(node) else (node, node)
    in_loops = np.flatnonzero(fit[specs] & (loop >= 0)) if len(specs) else specs
    if not len(in_loops):
        return trace
    acc = accesses(trace, hw)
    begin = np.full(len(trace.loop_kind) + 1, len(specs))
    np.minimum.at(begin, loop, np.arange(len(specs)))
    writers = _Writers(acc)
    same = _equal_work(acc, writers, in_loops, loop, iteration, begin)
    draft = Draft(trace)
    moves, v = Moves(draft, acc), acc.versions
    room = hw.sbuf_usable_bytes - most_held(acc)
    changed = False
    for first, others in same:
        room -= int(v.bytes[first[1]])
        if room < 0:
            break
        storage = moves.storage(first[1])
        for i, version in (first, *others):
            moves.move(version, storage, int(v.lo[first[1]] - v.lo[version]))
            if i != first[0]:
                draft.drop(i)
                changed = True
    return draft.finish() if changed else trace


def _plain(spec: OpSpec) -> bool:
    """Return whether an instruction computes one tile of SBUF from others, on DVE or ACT."""
    out, *others = spec.operands
    return (
        spec.engine in _ENGINES
        and spec.outputs == 1
        and len(others) > 0
        and out.memory is SBUF
        and all(p.memory in (SBUF, PSUM) for p in others)
        and not (spec.accumulate or spec.masked or spec.indirect or spec.row.merges or spec.inplace)
    )


def _loops(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return the loop around each node that is a loop for the compiler, -1 for none, and which
    node is the iteration of it."""
    loop, iteration = list(trace.node_loop), list(range(len(trace.node_loop)))
    for n, parent in enumerate(trace.node_parent):  # parents come first
        if loop[n] >= 0 and trace.loop_kind[loop[n]] == _STATIC:
            loop[n], iteration[n] = loop[parent], iteration[parent]
    return np.array(loop), np.array(iteration)


def _equal_work(
    acc: Accesses,
    writers: _Writers,
    instrs: np.ndarray,
    loop: np.ndarray,
    iteration: np.ndarray,
    begin: np.ndarray,
) -> list[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """Return groups of (instruction, version that it makes) that compute the same in a loop.

    Each group has one of every iteration. What is the same in some of them is none, nor is what an
    iteration computes twice: nothing says that AWS's compiler looks for it.
    """
    ev, vid = acc.ev, acc.vid
    chosen = np.zeros(len(acc.specs), bool)
    chosen[instrs] = True
    events = np.flatnonzero(chosen[ev["instr"]])
    inside = ~ev["write"][events].astype(bool) & (
        writers.last[vid[events]] >= begin[loop[ev["instr"][events]]]
    )
    makes = np.zeros(len(writers.last), bool)  # versions that such an instruction makes
    out = events[ev["write"][events].astype(bool)]
    makes[vid[out]] = True
    changing = np.zeros(len(acc.specs), bool)  # reads what others write in the loop
    changing[ev["instr"][events[inside & ~makes[vid[events]]]]] = True
    uses: dict[int, list[tuple[int, int, int]]] = {}
    made: dict[int, int] = {}
    for e in events[~changing[ev["instr"][events]]].tolist():
        i, v = int(ev["instr"][e]), int(vid[e])
        if ev["write"][e]:
            made[i] = v
        else:
            uses.setdefault(i, []).append((int(ev["operand"][e]), v, int(ev["offset"][e])))
    first: dict[tuple, tuple[int, int]] = {}
    stands_for: dict[int, int] = {}  # version -> that of the first iteration
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    fixed: set[tuple[int, int]] = set()  # (loop, version) made by what is hoisted
    times: Counter[tuple] = Counter()  # of each in an iteration
    lo = acc.versions.lo
    for i, v in sorted(made.items()):
        of = int(loop[i])
        if (
            not writers.once[v]
            or i not in uses
            or not all(writers.last[u] < begin[of] or (of, u) in fixed for _, u, _ in uses[i])
        ):
            continue
        fixed.add((of, v))
        key = (
            of,
            int(acc.specs[i]),
            *(
                (j, stands_for.get(u, u), at - int(lo[u]) if u in stands_for else at)
                for j, u, at in sorted(uses[i])
            ),
        )
        times[int(iteration[i]), key] += 1
        home = first.setdefault((key, times[int(iteration[i]), key]), (i, v))
        stands_for[v] = home[1]
        if home[0] != i:
            groups.setdefault(home, []).append((i, v))
    trips = Counter(loop[np.unique(iteration, return_index=True)[1]].tolist())
    return [
        (home, others)
        for home, others in groups.items()
        if len(others) + 1 == trips[int(loop[home[0]])]
    ]


def keep_broadcasts(trace: Trace, hw: NeuronCore) -> Trace:
    """Let rows that the Tensor Engine broadcasts over partitions be read out of PSUM.

    Only those that a bank holds whole, and that DVE and ACT alone read.
    """
    if not any(k.row.broadcasts_partitions for k in trace.op_specs):
        return trace
    acc = accesses(trace, hw)
    ev, vid = acc.ev, acc.vid
    writers, v = _Writers(acc), acc.versions
    rows = np.array([k.row.broadcasts_partitions for k in trace.op_specs])[acc.specs]
    copies = np.array([k.row.copies and not k.masked for k in trace.op_specs])[acc.specs]
    able = np.array([k.engine in _ENGINES for k in trace.op_specs])[acc.specs]
    writes = ev["write"].astype(bool)
    hard = np.zeros(len(v.storage), bool)  # another instruction reads it
    hard[vid[~writes & ~able[ev["instr"]]]] = True
    draft = Draft(trace)
    moves = Moves(draft, acc)
    of_copy = copies[ev["instr"]]
    source = dict(zip(ev["instr"][~writes & of_copy].tolist(), vid[~writes & of_copy].tolist()))
    changed = False
    for e in np.flatnonzero(writes & of_copy).tolist():
        i, to = int(ev["instr"][e]), int(vid[e])
        of = source.get(i, -1)
        if (
            of < 0
            or not (writers.once[of] and rows[writers.last[of]] and writers.once[to])
            or hard[to]
            or v.bytes[to] > hw.psum_bank_bytes
        ):
            continue
        here, there = (trace.storages[int(v.storage[x])] for x in (of, to))
        spec = draft.spec_of(i)
        if (
            here.row_bytes != there.row_bytes
            or spec.operands[0].shape != spec.operands[1].shape
            or spec.operands[0].dtype != spec.operands[1].dtype
        ):
            continue
        moves.move(to, here.id, int(v.lo[of] - v.lo[to]), memory=PSUM)
        draft.drop(i)
        changed = True
    return draft.finish() if changed else trace
