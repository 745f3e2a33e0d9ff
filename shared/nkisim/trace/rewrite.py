"""Change a trace as a compiler would: put instructions in, leave some out, move operands.

A `Draft` collects changes to a trace, by the places of instructions in the original; `finish`
returns the new trace and leaves the old one as it was.
"""

from __future__ import annotations

import copy
from array import array
from dataclasses import replace

import numpy as np

from .trace import HEAD, LINE, NODE, OPERAND, SPEC, OpSpec, Storages, Trace, operand_at


class Draft:
    """A trace that is being changed."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.op_specs = list(trace.op_specs)
        self.storages = Storages()
        self.storages.data.extend(trace.storages.data)
        self.rows = np.array(trace.rows, np.int64)
        self.starts = np.array(trace.starts, np.int64)
        self.dropped = np.zeros(len(self.starts), bool)
        self._ids: dict[OpSpec, int] = {}
        self._words = array("q")  # rows that are put in, one after the other
        #: (before which instruction, first word, like which)
        self._put: list[tuple[int, int, int]] = []

    def storage(
        self, like: int, memory: str, row_bytes: int | None = None, nparts: int | None = None
    ) -> int:
        """Add a storage: as storage `like` but in another memory, or of another size."""
        s = self.storages[like]
        return self.storages.add(
            memory,
            s.nparts if nparts is None else nparts,
            s.row_bytes if row_bytes is None else row_bytes,
            s.where,
            s.node,
            False,
            False,
        )

    def spec(self, spec: OpSpec) -> int:
        """Return the id of an op spec, which may be new."""
        spec_id = self._ids.get(spec)
        if spec_id is None:
            spec_id = self._ids[spec] = len(self.op_specs)
            self.op_specs.append(spec)
        return spec_id

    def put(self, before: int, like: int, spec: OpSpec, operands: list[tuple[int, int]]) -> None:
        """Put an instruction in before instruction `before`, at the source line of `like`.

        `operands`: storage and byte offset of each. What is put in at one place keeps its order.
        If `like` is dropped, it stands for it (and for others, perhaps).
        """
        self._put.append((before, len(self._words), like))
        at = self.starts[like]
        self._words.extend((self.spec(spec), int(self.rows[at + LINE]), int(self.rows[at + NODE])))
        for storage, offset in operands:
            self._words.extend((storage, offset))

    def operand(self, i: int, j: int) -> tuple[int, int]:
        """Return storage and byte offset of operand `j` of instruction `i`."""
        at = operand_at(self.starts[i], j)
        return int(self.rows[at]), int(self.rows[at + 1])

    def spec_of(self, i: int) -> OpSpec:
        return self.op_specs[self.rows[self.starts[i] + SPEC]]

    def move(self, i: int, j: int, storage: int, memory: str | None = None, shift: int = 0) -> None:
        """Let operand `j` of instruction `i` be in another storage, `shift` bytes further."""
        at = operand_at(self.starts[i], j)
        self.rows[at] = storage
        self.rows[at + 1] += shift
        if memory is not None:
            spec = self.spec_of(i)
            operands = tuple(
                replace(p, memory=memory) if k == j else p for k, p in enumerate(spec.operands)
            )
            self.rows[self.starts[i] + SPEC] = self.spec(replace(spec, operands=operands))

    def drop(self, i: int) -> None:
        """Leave an instruction out."""
        self.dropped[i] = True

    def finish(self) -> Trace:
        """Return the changed trace."""
        keep = np.flatnonzero(~self.dropped)
        words = np.frombuffer(self._words, np.int64) if self._words else np.zeros(0, np.int64)
        put = np.array(self._put, np.int64).reshape(-1, 3)
        place = np.concatenate([put[:, 0] * 2, keep * 2 + 1])  # put in: before the instruction
        begin = np.concatenate([put[:, 1] + len(self.rows), self.starts[keep]])
        order = np.argsort(place, kind="stable")
        begin = begin[order]
        pool = np.concatenate([self.rows, words])
        width = np.array([HEAD + OPERAND * len(k.operands) for k in self.op_specs] or [0])[
            pool[begin + SPEC]
        ]
        ends = np.cumsum(width)
        starts = ends - width
        rows = pool[np.repeat(begin - starts, width) + np.arange(int(width.sum()))]
        out = copy.copy(self.trace)
        out.op_specs, out.storages, out.writes = self.op_specs, self.storages, {}
        out.rows, out.starts = array("q"), array("q")
        out.rows.frombytes(rows.tobytes())
        out.starts.frombytes(starts.astype(np.int64).tobytes())
        before = np.arange(len(self.starts)) if self.trace.origin is None else self.trace.origin
        stands_for = np.where(self.dropped[put[:, 2]], put[:, 2], -1)
        ancestor = np.concatenate([stands_for, keep])[order]
        out.origin = np.where(ancestor >= 0, before[ancestor], -1) if len(before) else ancestor
        return out
