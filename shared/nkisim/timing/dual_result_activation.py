"""Activations with two results, which the compiler computes one by one.

`nisa.activation(..., reduce_res=...)` returns its result and sums of it. AWS's compiler makes two
activations of it, and does everything that leads up to them twice, from the loads on: profiles of
two published kernels count twice the products, copies and bytes read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..chip.hw import NeuronCore
from ..trace.footprint import Accesses, accesses
from ..trace.rewrite import Draft
from ..trace.trace import Trace


def split_dual_results(trace: Trace, hw: NeuronCore) -> Trace:
    """Return the trace with another activation for the sums, and what it needs done again."""
    two = [k.row.once_per_result and k.outputs == 2 for k in trace.op_specs]
    if not any(two):
        return trace
    ends = np.flatnonzero(np.array(two)[trace.spec_ids()])
    acc = accesses(trace, hw)
    again, tiles = _leading_to(acc, ends)
    if len(np.intersect1d(again, ends)):  # one leads up to another
        return trace
    draft = Draft(trace)
    version = {
        (i, j): v
        for i, j, v in zip(acc.ev["instr"].tolist(), acc.ev["operand"].tolist(), acc.vid.tolist())
    }
    copies: dict[tuple[int, int], int] = {}  # (version or -1, storage) -> its copy

    def copy(i: int, j: int) -> tuple[int, int]:
        """Return (storage, offset) of operand `j` of instruction `i` when it is computed again."""
        storage, offset = draft.operand(i, j)
        v = version.get((i, j), -1)
        if j >= draft.spec_of(i).outputs and v not in tiles:
            return storage, offset  # an input, say
        key = (v, storage)
        if key not in copies:
            info = trace.storages[storage]
            copies[key] = draft.storage(storage, info.memory)
        return copies[key], offset

    for i in again.tolist():
        spec = draft.spec_of(i)
        draft.put(i, i, spec, [copy(i, j) for j in range(len(spec.operands))])
    for i in ends.tolist():
        spec = draft.spec_of(i)
        places = [draft.operand(i, j) for j in range(len(spec.operands))]
        draft.put(
            i,
            i,
            replace(spec, operands=(spec.operands[0], *spec.operands[2:]), outputs=1),
            [places[0], *places[2:]],
        )
        draft.put(
            i, i, spec, [copy(i, 0), places[1], *(copy(i, j) for j in range(2, len(spec.operands)))]
        )
        draft.drop(i)
    return draft.finish()


def _leading_to(acc: Accesses, ends: np.ndarray) -> tuple[np.ndarray, set[int]]:
    """Return the instructions that lead up to some, in program order, and the tiles between."""
    ev, vid = acc.ev, acc.vid
    on_chip = ~acc.stores.hbm[ev["storage"]]
    writes, reads = on_chip & ev["write"], on_chip & ~ev["write"]
    leads = np.zeros(len(acc.specs), bool)
    leads[ends] = True
    chosen = np.zeros(len(acc.versions.storage), bool)
    leading = np.zeros(len(acc.specs), bool)
    while True:
        chosen[vid[reads & leads[ev["instr"]]]] = True
        fresh = np.zeros(len(leads), bool)
        fresh[ev["instr"][writes & chosen[vid]]] = True
        fresh &= ~leading
        if not fresh.any():
            return np.flatnonzero(leading), set(np.flatnonzero(chosen).tolist())
        leading |= fresh
        leads = fresh
