"""Nests of loops that follow each other: the Tensor Engine ends one before it begins the next.

AWS's compiler schedules instructions within a nest of loops. Where the body of a loop holds one
nest after the other, say the scores of some tiles and then what they are multiplied with, none of
the second's products fills a wait of the first. Loops without others in them are no nests: what
they do is unrolled into what is around them.
"""
from __future__ import annotations

import numpy as np

from ..trace.footprint import PE
from ..trace.trace import Trace

_LOOPS = ("affine_range", "sequential_range")


def fences(trace: Trace, queue: np.ndarray) -> np.ndarray:
    """Return the instructions of the Tensor Engine with which such a nest begins, in order.

    `queue`: of each instruction. Those before it on that engine begin before it.
    """
    never = len(trace)
    parent, loop = trace.node_parent.tolist(), trace.node_loop.tolist()
    first = np.full(len(parent), never)
    mine = np.flatnonzero(queue == PE)
    np.minimum.at(first, trace.instructions().node[mine], mine)
    begin = first.tolist()                              # by node: with all that is inside
    nests, starts = set(), {}                           # of loops; where each begins
    for node in range(len(parent) - 1, 0, -1):          # a node comes after its parent
        above = parent[node]
        begin[above] = min(begin[above], begin[node])
        starts[loop[node]] = begin[node], above         # of its first iteration, in the end
        if trace.loop_kind[loop[node]] in _LOOPS:
            nests.add(loop[above])
    found, entered = [], set()                          # nodes in which there was a nest before
    for number in sorted(nests - {-1}):
        at, above = starts[number]
        if at == never:
            continue
        if above in entered:
            found.append(at)
        entered.add(above)
    return np.array(sorted(found), np.int64)
