"""Nests of loops that follow each other: an engine ends one before it begins the next.

AWS's compiler schedules instructions within a nest of loops. Where the body of a loop holds one
nest after the other, say the scores of some tiles and then what they are multiplied with, none of
the second's instructions fills a wait of the first, nor of the last one the next iteration's.
Loops without others in them are no nests: what they do is unrolled into what is around them.
"""

from __future__ import annotations

import numpy as np

from ..trace.footprint import ACT, DVE, PE
from ..trace.trace import Trace

ENGINES = (PE, DVE, ACT)
_LOOPS = ("affine_range", "sequential_range")


def fences(trace: Trace, queue: np.ndarray) -> dict[int, list[int]]:
    """Return, for engines with such nests, the places in their queue where one begins, in order.

    `queue`: of each instruction. What an engine has before a place begins before what comes there.
    """
    parent, loop = trace.node_parent.tolist(), trace.node_loop.tolist()
    held: dict[int, list[int]] = {}  # body (a node) -> its nests (loops)
    inside, first = [False] * len(trace.loop_kind), list(range(len(trace.loop_kind)))
    for node in range(len(parent) - 1, 0, -1):  # a node comes after its parent
        number, above = loop[node], parent[node]
        first[number] = node  # of its iterations, in the end
        if above and trace.loop_kind[number] in _LOOPS:
            inside[loop[above]] = True
    for number, node in enumerate(first):
        if inside[number]:
            held.setdefault(parent[node], []).append(number)
    heads = []  # nodes with which something new begins
    for body, nests in held.items():
        if len(nests) > 1:
            heads += [first[number] for number in nests[1:]]
            if body and first[loop[body]] != body:
                heads.append(body)
    if not heads:
        return {}
    nodes = trace.instructions().node
    out = {}
    for engine in ENGINES:
        of_engine = nodes[queue == engine]
        begin = np.full(len(parent), len(of_engine))
        np.minimum.at(begin, of_engine, np.arange(len(of_engine)))
        at = begin.tolist()
        for i in range(len(parent) - 1, 0, -1):  # with all that is inside
            if at[i] < at[parent[i]]:
                at[parent[i]] = at[i]
        places = sorted({at[i] for i in heads} - {0, len(of_engine)})
        if places:
            out[engine] = places
    return out
