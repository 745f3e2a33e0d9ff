"""What the record of a nest of loops looks like, from that of its first iterations.

Each loop of a nest runs some instructions and then the next inner loop. All that an iteration of a
loop changes in a row is the node (one more iteration has begun), where the operands start (how far
the loop moves them) and the storages that the iteration makes. So the rows of all iterations are
the first one's plus something that is the same for every nest of its kind, and computed once.
"""
from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ..trace.trace import HEAD, KIND, NODE, OPERAND, Storages, StorageTable, Trace

Steps = tuple[int, ...]                 # bytes that one more iteration of each loop moves a view
NODE_OF_STORAGE = StorageTable._fields.index("node")


class Line(NamedTuple):
    """An instruction of a nest: how many loops it is in, and its operands as in the record.

    `made`: for each operand, which of the storages that the nest makes it lies in, -1 for others.
    `other`: what to add to its kind in all iterations but those that are the first ones of all
    loops which do not move the destination (the product that opens a sum is of another kind).
    """

    loops: int
    moves: tuple[Steps, ...]
    made: tuple[int, ...]
    other: int = 0

    @property
    def width(self) -> int:
        return HEAD + OPERAND * len(self.moves)


class Form(NamedTuple):
    """What nests with the same record have in common, but for where it begins.

    `nodes`: which of the loops are in the record; others are unrolled before anybody records them.
    `made`: how many loops each storage that a nest makes is in, in their order.
    """

    values: tuple[range, ...]
    nodes: tuple[bool, ...]
    lines: tuple[Line, ...]
    made: tuple[int, ...]


class Unrolled:
    """The record of all iterations but the first, in terms of the first ones'."""

    def __init__(self, form: Form):
        self.form = form
        values, noded, lines, made = form
        depth, recorded = len(values), sum(noded)
        nodes: list[tuple[int, int, int]] = []          # parent, loop, index
        loops: list[int] = []                           # the level of each
        done: list[tuple[int, ...]] = []                # line, node, iterations, storages
        storages: list[tuple[int, int]] = []            # which one, node
        now = [0] * len(made)
        first_node = [0] * len(made)

        def run(level: int, parent: int, at: tuple[int, ...]) -> None:
            loop, node = len(loops), parent
            if noded[level]:
                loops.append(sum(noded[:level]))
            for n, i in enumerate(values[level]):
                if noded[level]:
                    node = len(nodes)
                    nodes.append((parent, loop, i))
                here = (*at, n) + (0,) * (depth - level - 1)
                for s in own[level]:
                    now[s] = len(storages)
                    storages.append((s, node))
                for k in inside[level]:
                    done.append((k, node, *here, *now))
                if level + 1 < depth:
                    run(level + 1, node, (*at, n))

        own = [[s for s, loops in enumerate(made) if loops == level + 1] for level in range(depth)]
        inside = [[k for k, line in enumerate(lines) if line.loops == level + 1]
                  for level in range(depth)]
        run(0, -1, ())
        self.inner = loops[recorded:]
        rest = np.array(nodes[recorded:], np.int64).reshape(-1, 3)
        self.parent, self.loop = rest[:, 0].copy(), rest[:, 1].copy()
        self.outer = np.flatnonzero(self.parent < 0)
        self.iteration = rest[:, 2].tobytes()
        for s, node in storages[:len(made)]:
            first_node[s] = node
        later = np.array(storages[len(made):], np.int64).reshape(-1, 2)
        self.storage = later[:, 0].copy()
        self.storage_node = later[:, 1] - np.array(first_node, np.int64)[self.storage]
        self._rows(np.array(done, np.int64))

    def _rows(self, done: np.ndarray) -> None:
        values, _, lines, made = self.form
        depth, count = len(values), len(lines)
        self.runs = np.bincount(done[:, 0], minlength=count).tolist()       # of each line
        widths = np.array([line.width for line in lines], np.int64)
        starts = np.cumsum(widths[done[:, 0]]) - widths[done[:, 0]]
        first = starts[:count]
        size = int(starts[-1] + widths[done[-1, 0]])
        which, delta = np.empty(size, np.int64), np.zeros(size, np.int64)
        for k, line in enumerate(lines):
            mine = done[:, 0] == k
            at, row = starts[mine], done[mine]
            which[at[:, None] + np.arange(line.width)] = first[k] + np.arange(line.width)
            delta[at + NODE] = row[:, 1] - row[0, 1]
            if line.other:
                here = [2 + d for d in range(line.loops) if not line.moves[0][d]]
                delta[at[row[:, here].any(axis=1)] + KIND] = line.other
            for number, (move, storage) in enumerate(zip(line.moves, line.made)):
                place = at + HEAD + OPERAND * number
                delta[place + 1] = row[:, 2:2 + depth] @ np.array(move, np.int64)
                if storage >= 0:
                    of = row[:, 2 + depth + storage]
                    delta[place] = of - of[0]
        begun = int(widths.sum())
        self.which, self.delta, self.starts = which[begun:], delta[begun:], starts[count:]
        self.every = which

    def append(self, tr: Trace, rows: int, storages: int, loops: int, nodes: int, parent: int
               ) -> None:
        """Append the rest of a record of which the first iterations begin at these places."""
        tr.starts.frombytes((self.starts + rows).tobytes())
        row = np.array(tr.rows[rows:], np.int64)
        tr.rows.frombytes((row[self.which] + self.delta).tobytes())
        if len(self.storage):
            width = Storages.WIDTH
            first = np.array(tr.storages.data[storages * width:], np.int64).reshape(-1, width)
            new = first[self.storage]
            new[:, NODE_OF_STORAGE] += self.storage_node
            tr.storages.data.frombytes(new.tobytes())
        parents = self.parent + nodes
        parents[self.outer] = parent
        tr.node_parent.frombytes(parents.tobytes())
        tr.node_loop.frombytes((self.loop + loops).tobytes())
        tr.node_iter.frombytes(self.iteration)
        kinds, lines = tr.loop_kind[loops:], tr.loop_line[loops:]
        tr.loop_kind += [kinds[i] for i in self.inner]
        tr.loop_line += [lines[i] for i in self.inner]


@functools.lru_cache(maxsize=256)
def unrolled(form: Form) -> Unrolled:
    """Return the record of nests of a form."""
    return Unrolled(form)


__all__ = ["NODE_OF_STORAGE", "Form", "Line", "Steps", "Unrolled", "unrolled"]
