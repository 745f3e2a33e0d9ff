"""The record of what a kernel did: one fixed, small row of integers an instruction.

What repeats (instruction, engine, dtypes, access patterns, parameters that cost time) is a
`Kind`, interned; a row then holds only the kind, the source line, the loop iteration and where
each operand starts. Checks, hazards and the schedule are passes over this.
"""
from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from ..chip.memory import HBM, PSUM, SBUF
from ..errors import Where


@dataclass(frozen=True)
class Pattern:
    """An operand's access pattern: memory, dtype, shape and strides in bytes."""

    kind: str
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize

    def span(self) -> int:
        """Return the bytes from the first to past the last one touched (flat, HBM)."""
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + self.dtype.itemsize


@dataclass(frozen=True)
class Kind:
    """All instructions that cost the same: row of the table, engine, operands, parameters.

    `operands` are the patterns, outputs first; `outputs` of them are written (and read as well
    if `accumulate`).
    """

    row: Any
    engine: str
    operands: tuple[Pattern, ...]
    outputs: int
    accumulate: bool
    inplace: bool
    form: Any

    @property
    def indirect(self) -> bool:
        """Tell whether run-time indices choose what is accessed."""
        return getattr(self.form, "indirect", False)

    @property
    def scatters(self) -> bool:
        """Tell whether run-time indices choose what is written."""
        return getattr(self.form, "scatter", False)

    @property
    def adds(self) -> bool:
        """Tell whether it adds to what its destination holds (a read-modify-write of DMA)."""
        return getattr(self.form, "adds", False)

    @property
    def read_bytes(self) -> int:
        """Return the bytes read from HBM by one such instruction."""
        return sum(p.nbytes for p in self.operands[self.outputs:] if p.kind is HBM)

    @property
    def write_bytes(self) -> int:
        """Return the bytes written to HBM by one such instruction."""
        return sum(p.nbytes for p in self.operands[:self.outputs] if p.kind is HBM)


class StorageInfo(NamedTuple):
    """What a trace keeps of a storage; its bytes die with the last tensor that uses them."""

    id: int
    kind: str               # "hbm", "sbuf" or "psum"
    nparts: int
    row_bytes: int          # bytes per partition
    where: int              # line id of the allocation, or -1
    node: int               # loop iteration that allocated it
    arena: bool             # shared by the directly allocated tensors of a memory
    readonly: bool          # a kernel input


class Storages:
    """The storages of a run, as one flat array of integers; reads like a list of StorageInfo."""

    _KINDS = (HBM, SBUF, PSUM)
    _CODE = {HBM: 0, SBUF: 1, PSUM: 2}

    def __init__(self) -> None:
        self.data = array("q")

    def add(self, kind: str, nparts: int, row_bytes: int, where: int, node: int, arena: bool,
            readonly: bool) -> int:
        """Append a storage and return its id."""
        n = len(self.data) // 6
        self.data.extend((self._CODE[kind], nparts, row_bytes, where, node,
                          arena + 2 * readonly))
        return n

    def __len__(self) -> int:
        return len(self.data) // 6

    def __getitem__(self, i: int) -> StorageInfo:
        if not 0 <= i < len(self):
            raise IndexError(i)
        kind, nparts, row, where, node, flags = self.data[6 * i:6 * i + 6]
        return StorageInfo(i, self._KINDS[kind], nparts, row, where, node, bool(flags & 1),
                           bool(flags & 2))

    def node(self, i: int) -> int:
        """Return the loop iteration that allocated storage `i`, or -1 for a kernel input."""
        return -1 if self.data[6 * i + 5] & 2 else self.data[6 * i + 4]


class Trace:
    """Struct-of-arrays record of the instructions, storages, loops and source lines of a run."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self._kind_ids: dict[tuple, int] = {}
        self.storages = Storages()
        self.lines: list[Where] = []
        self._line_ids: dict[tuple[int, int], int] = {}     # (id of a code object, offset) ->
        self._codes: list[CodeType] = []                    # kept, so that ids stay unique
        self._place_ids: dict[Where, int] = {}
        # a row: kind, line, loop node, then (storage, byte offset) of each operand
        self.rows = array("q")
        self.starts = array("q")
        # a node is one iteration of one loop; node 0 is the kernel's top level
        self.node_parent = array("q", [-1])
        self.node_loop = array("q", [-1])
        self.node_iter = array("q", [0])
        self.loop_kind: list[str] = []
        self.loop_line: list[int] = []

    def line(self, frame: Any) -> int:
        """Return the id of the source line a frame is at."""
        if frame is None:
            return -1
        key = (id(frame.f_code), frame.f_lasti)     # hashing the code itself would take long
        got = self._line_ids.get(key)
        if got is None:
            where = Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            got = self._place_ids.get(where)        # several instructions lie on one line
            if got is None:
                got = self._place_ids[where] = len(self.lines)
                self.lines.append(where)
            self._line_ids[key] = got
            self._codes.append(frame.f_code)
        return got

    def where(self, line: int) -> Where | None:
        """Return the place of a line id, or None if it is unknown."""
        return self.lines[line] if line >= 0 else None

    def record(self, ins: Any, outs: tuple, line: int, node: int) -> None:
        """Append one instruction that writes `outs` and reads `ins.srcs`."""
        operands = outs + ins.srcs
        if len(operands) == 2:                              # written out: this is the hot path
            x, y = operands
            key: tuple = (ins.row, ins.engine, ins.accumulate, ins.inplace, len(outs), ins.form,
                          x.kind, x.dtype.num, x.shape, x.strides,
                          y.kind, y.dtype.num, y.shape, y.strides)
            row: tuple = (line, node, x.storage.id, x.offset, y.storage.id, y.offset)
        elif len(operands) == 3:
            x, y, z = operands
            key = (ins.row, ins.engine, ins.accumulate, ins.inplace, len(outs), ins.form,
                   x.kind, x.dtype.num, x.shape, x.strides, y.kind, y.dtype.num, y.shape,
                   y.strides, z.kind, z.dtype.num, z.shape, z.strides)
            row = (line, node, x.storage.id, x.offset, y.storage.id, y.offset, z.storage.id,
                   z.offset)
        else:
            key = (ins.row, ins.engine, ins.accumulate, ins.inplace, len(outs), ins.form,
                   *(v for t in operands for v in (t.kind, t.dtype.num, t.shape, t.strides)))
            row = (line, node, *(v for t in operands for v in (t.storage.id, t.offset)))
        kind = self._kind_ids.get(key)
        if kind is None:
            kind = self._kind_ids[key] = len(self.kinds)
            self.kinds.append(Kind(
                ins.row, ins.engine,
                tuple(Pattern(t.kind, t.dtype, t.shape, t.strides) for t in operands),
                len(outs), ins.accumulate, ins.inplace, ins.form))
        rows = self.rows
        self.starts.append(len(rows))
        rows.append(kind)
        rows.extend(row)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[Kind, int, int, list[tuple[int, int]]]]:
        """Yield (kind, line, node, [(storage, byte offset) of each operand])."""
        rows, kinds = self.rows, self.kinds
        for s in self.starts:
            kind = kinds[rows[s]]
            n = len(kind.operands)
            ops = rows[s + 3:s + 3 + 2 * n]
            yield kind, rows[s + 1], rows[s + 2], list(zip(ops[::2], ops[1::2]))

    def counts(self) -> Counter:
        """Return the number of instructions by kind id."""
        rows = self.rows
        return Counter(rows[s] for s in self.starts)

    def path(self, node: int) -> list[tuple[int, int]]:
        """Return [(loop, iteration)] of a node, outermost first."""
        out = []
        while node > 0:
            out.append((self.node_loop[node], self.node_iter[node]))
            node = self.node_parent[node]
        return out[::-1]
