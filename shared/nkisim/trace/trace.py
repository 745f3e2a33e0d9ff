"""The record of what a kernel did: one fixed, small row of integers an instruction.

What repeats (instruction, engine, dtypes, access patterns, parameters that cost time) is a
`OpSpec`, interned; a row then holds only the spec, the source line, the loop iteration and where
each operand starts. Checks, hazards and the schedule are passes over this.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from struct import Struct
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from ..chip.memory import HBM, PSUM, SBUF
from ..errors import Where, user_frame
from .numbers import fixed

#: How `Trace.rows` is laid out: spec, line and loop node of an instruction, and then storage and
#: byte offset of each operand. Where instruction i begins is `Trace.starts[i]`.
SPEC, LINE, NODE, HEAD = 0, 1, 2, 3
OPERAND = 2


#: what makes the bytes of a row with so many operands; array.extend takes long
_PACK2, _PACK3 = (Struct(f"{HEAD + OPERAND * n}q").pack for n in (2, 3))


def operand_at(start: Any, number: Any) -> Any:
    """Return where in `rows` operand `number` of the instruction at `start` is (or arrays)."""
    return start + HEAD + OPERAND * number


_LONG = 8192  # bytes of a code's table of lines from which on it is read once, as a whole


@lru_cache(maxsize=16)
def _line_numbers(code: CodeType) -> array | None:
    """Return the line of each word of a code; None if `frame.f_lineno` is as good.

    For that Python reads the table of lines from its start each time, which takes long where
    thousands of instructions are written out.
    """
    if len(code.co_linetable) < _LONG:
        return None
    numbers, number, begin, end = array("i"), code.co_firstlineno, 0, 0
    for start, end, line in code.co_lines():  # noqa: B007 (the last end counts)
        if line is not None and line != number:
            numbers += array("i", (number,)) * ((start - begin) // 2)
            number, begin = line, start
    return numbers + array("i", (number,)) * ((end - begin) // 2)


@dataclass(frozen=True)
class Pattern:
    """An operand's access pattern: memory, dtype, shape and strides in bytes."""

    memory: str
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

    def span(self, free: bool = False) -> int:
        """Return the bytes from the lowest to past the highest one touched.

        `free`: of one partition, that is, without the first dim.
        """
        return (
            sum((n - 1) * abs(s) for n, s in zip(self.shape[free:], self.strides[free:]))
            + self.dtype.itemsize
        )

    def fills(self) -> bool:
        """Return whether the elements of a partition lie side by side: none of them twice, and no
        gap between. As many elements as the span has room for can still leave holes in it."""
        step = self.dtype.itemsize
        for stride, n in sorted((abs(s), n) for n, s in zip(self.shape[1:], self.strides[1:])):
            if n > 1:
                if stride != step:
                    return False
                step *= n
        return 0 not in self.strides

    def lowest(self) -> int:
        """Return the bytes from the first element to the lowest (0, or less: negative strides)."""
        if min(self.strides, default=0) >= 0:
            return 0
        return sum((n - 1) * min(s, 0) for n, s in zip(self.shape, self.strides))


@dataclass(frozen=True)
class OpSpec:
    """All instructions that cost the same: row of the table, engine, operands, parameters.

    `operands` are the patterns, outputs first; `outputs` of them are written (and read as well
    if `accumulate`). `masked`: of the first, only what a mask that is no box selects, or rows whose
    run-time index is inside. `numbers`: what else decides the result, and costs nothing: numbers
    and flags. Instructions that differ in them are not one, which a compiler could do at once.
    """

    row: Any
    engine: str
    operands: tuple[Pattern, ...]
    outputs: int
    accumulate: bool
    inplace: bool
    variant: Any
    masked: bool = False
    numbers: Any = None

    @property
    def indirect(self) -> bool:
        """Return whether run-time indices choose what is accessed."""
        return getattr(self.variant, "indirect", False)

    @property
    def scatters(self) -> bool:
        """Return whether run-time indices choose what is written."""
        return getattr(self.variant, "scatter", False)

    @property
    def adds(self) -> bool:
        """Return whether it adds to what its destination holds (a read-modify-write of DMA)."""
        return getattr(self.variant, "adds", False)

    @property
    def chosen(self) -> int:
        """Return of how many of the last sources run-time indices choose what is read."""
        return getattr(self.variant, "chosen", 0)

    @property
    def sources(self) -> tuple[Pattern, ...]:
        """Return the patterns of the sources that are read as a whole."""
        return self.operands[self.outputs : len(self.operands) - self.chosen]

    @property
    def read_bytes(self) -> int:
        """Return the bytes read from HBM by one such instruction."""
        plain = self._hbm_bytes(self.sources)
        if self.engine != "dma" or not self.indirect:
            return plain
        by_index = [p.memory for p in self.operands[len(self.operands) - self.chosen :]]
        if self.scatters and self.adds:  # what it adds to is read as well
            by_index.append(self.operands[0].memory)
        return plain + by_index.count(HBM) * self.moved.nbytes

    @property
    def write_bytes(self) -> int:
        """Return the bytes written to HBM by one such instruction."""
        if self.engine == "dma" and self.scatters:
            return self.moved.nbytes
        return self._hbm_bytes(self.operands[: self.outputs])

    @property
    def moved(self) -> Pattern:
        """Return the pattern of what a DMA moves. Where run-time indices choose what is written,
        the destination is all that they may choose from, and the source is moved. Where no operand
        is what moves, the variant has its shape.
        """
        if not self.scatters:
            return self.operands[0]
        if shape := getattr(self.variant, "shape", ()):
            side = self.operands[-1 if self.chosen else 0]
            return Pattern(
                side.memory,
                side.dtype,
                shape,
                tuple(prod(shape[d:]) * side.dtype.itemsize for d in range(1, len(shape) + 1)),
            )
        return self.sources[0]

    @property
    def sides(self) -> list[Pattern]:
        """Return the operands of a DMA that are all of what it moves, not chosen by indices."""
        n = self.moved.elements
        return [
            p
            for p in (*(() if self.scatters else self.operands[:1]), *self.sources)
            if p.elements == n
        ]

    def _hbm_bytes(self, operands: tuple[Pattern, ...]) -> int:
        """Return the bytes of operands in HBM, which DMAs move (a barrier only names them)."""
        return sum(p.nbytes for p in operands if p.memory is HBM) if self.engine == "dma" else 0


class StorageInfo(NamedTuple):
    """What a trace keeps of a storage; its bytes die with the last tensor that uses them."""

    id: int
    memory: str  # "hbm", "sbuf" or "psum"
    nparts: int
    row_bytes: int  # bytes per partition
    where: int  # line id of the allocation, or -1
    node: int  # loop iteration that allocated it
    arena: bool  # shared by the directly allocated tensors of a memory
    readonly: bool  # a kernel input


class StorageTable(NamedTuple):
    """The storages of a run as arrays, an element each."""

    code: np.ndarray  # of the memory: an index into Storages.MEMORIES
    nparts: np.ndarray
    row_bytes: np.ndarray  # bytes per partition
    line: np.ndarray  # of the allocation, or -1
    node: np.ndarray  # loop iteration that allocated it
    flags: np.ndarray

    @property
    def hbm(self) -> np.ndarray:
        return self.code == Storages.CODE[HBM]

    @property
    def psum(self) -> np.ndarray:
        return self.code == Storages.CODE[PSUM]

    @property
    def arena(self) -> np.ndarray:
        """Return which are shared by the directly allocated tensors of a memory."""
        return (self.flags & Storages.ARENA) > 0

    @property
    def fixed(self) -> np.ndarray:
        """Return which keep their place: made by a loop of the device, once for all iterations."""
        return (self.flags & Storages.FIXED) > 0

    @property
    def readonly(self) -> np.ndarray:
        """Return which are kernel inputs."""
        return (self.flags & Storages.READONLY) > 0


class Storages:
    """The storages of a run, as one flat array of integers; reads like a list of StorageInfo."""

    MEMORIES = (HBM, SBUF, PSUM)
    CODE = {HBM: 0, SBUF: 1, PSUM: 2}
    WIDTH = len(StorageTable._fields)  # integers a storage, in that order
    _PACK = Struct(f"{WIDTH}q").pack
    ARENA, READONLY, FIXED = 1, 2, 4  # flags

    def __init__(self) -> None:
        self.data = array("q")

    def add(
        self,
        memory: str,
        nparts: int,
        row_bytes: int,
        where: int,
        node: int,
        arena: bool,
        readonly: bool,
        fixed: bool = False,
    ) -> int:
        """Append a storage and return its id."""
        data = self.data
        n = len(data) // self.WIDTH
        data.frombytes(
            self._PACK(
                self.CODE[memory],
                nparts,
                row_bytes,
                where,
                node,
                arena * self.ARENA + readonly * self.READONLY + fixed * self.FIXED
                if arena or readonly or fixed
                else 0,
            )
        )
        return n

    def set_readonly(self, i: int) -> None:
        """Mark a storage that nothing writes."""
        self.data[self.WIDTH * i + self.WIDTH - 1] |= self.READONLY

    def __len__(self) -> int:
        return len(self.data) // self.WIDTH

    def __getitem__(self, i: int) -> StorageInfo:
        if not 0 <= i < len(self):
            raise IndexError(i)
        at = self.WIDTH * i
        memory, nparts, row, where, node, flags = self.data[at : at + self.WIDTH]
        return StorageInfo(
            i,
            self.MEMORIES[memory],
            nparts,
            row,
            where,
            node,
            bool(flags & self.ARENA),
            bool(flags & self.READONLY),
        )

    def table(self) -> StorageTable:
        """Return all storages as arrays (copies: the run may go on)."""
        return StorageTable(*np.array(self.data, np.int64).reshape(-1, self.WIDTH).T)


class Instructions(NamedTuple):
    """All instructions of a trace, in program order, as arrays."""

    spec: np.ndarray  # id: an index into Trace.op_specs
    line: np.ndarray  # id, or -1
    node: np.ndarray  # loop iteration


class Operands(NamedTuple):
    """All operands of all instructions, in program order, an instruction's outputs first."""

    instr: np.ndarray  # number of the instruction
    number: np.ndarray  # of the operand in it, 0 being the destination
    storage: np.ndarray
    offset: np.ndarray  # bytes, of the first element ...
    lowest: np.ndarray  # ... and of the lowest that is touched
    write: np.ndarray  # bool; an accumulating instruction reads what it writes as well
    operand_spec: np.ndarray  # index into Trace.operand_specs(): its spec and access pattern


class Trace:
    """Struct-of-arrays record of the instructions, storages, loops and source lines of a run."""

    def __init__(self) -> None:
        self.op_specs: list[OpSpec] = []
        self._spec_ids: dict[tuple, int] = {}
        self.storages = Storages()
        self._places: list[tuple[str, int, str]] = []  # by line id: a Where takes long to make
        self._place_ids: dict[tuple[str, int, str], int] = {}
        #: code by its id, kept, so that ids stay unique: with its `_line_numbers`, and the ids of
        #: its lines by number, or by offset where there are none; None if it is not the user's
        self._codes: dict[int, tuple[CodeType, array | None, dict[int, int] | None]] = {}
        # as the constants at the top of this file say; `instructions` and `operands` read it
        self.rows = array("q")
        self.starts = array("q")
        #: in a trace that a compiler has changed: the instruction that each was before, -1 for new
        self.origin: np.ndarray | None = None
        #: what the kernel asks to be done before what, and the instructions that have a name; by
        #: their places before any change
        self.edges: list[tuple[int, int]] = []
        self.named: dict[str, list[int]] = {}
        #: what has been written, by storage (trace/written.py)
        self.writes: dict[int, Any] = {}
        # a node is one iteration of one loop; node 0 is the kernel's top level
        self.node_parent = array("q", [-1])
        self.node_loop = array("q", [-1])
        self.node_iter = array("q", [0])
        self.loop_kind: list[str] = []
        self.loop_line: list[int] = []

    def line(self, frame: Any) -> int:
        """Return the id of the source line that the user's code is at: in `frame` or above."""
        while frame is not None:
            code = frame.f_code
            cached = self._codes.get(id(code))  # hashing the code itself would take long
            if cached is None:
                users = user_frame(frame) is frame
                cached = self._codes[id(code)] = (
                    code,
                    _line_numbers(code) if users else None,
                    {} if users else None,
                )
            _, numbers, ids = cached
            if ids is not None:
                at = frame.f_lasti if numbers is None else numbers[frame.f_lasti >> 1]
                line_id = ids.get(at)
                if line_id is None:
                    line_id = ids[at] = self.line_of(
                        code, frame.f_lineno if numbers is None else at
                    )
                return line_id
            frame = frame.f_back
        return -1

    def line_of(self, code: CodeType, lineno: int) -> int:
        """Return the id of a line of `code`."""
        place = code.co_filename, lineno, code.co_name
        line_id = self._place_ids.get(place)  # several instructions lie on one line
        if line_id is None:
            line_id = self._place_ids[place] = len(self._places)
            self._places.append(place)
        return line_id

    def where(self, line: int) -> Where | None:
        """Return the place of a line id, or None if it is unknown."""
        return Where(*self._places[line]) if line >= 0 else None

    @property
    def lines(self) -> list[Where]:
        """Return all source lines, by their ids."""
        return [Where(*place) for place in self._places]

    def record(self, ins: Any, outs: tuple, line: int, node: int) -> None:
        """Append one instruction that writes `outs` and reads `ins.srcs`."""
        operands = outs + ins.srcs
        rows, count = self.rows, len(operands)
        self.starts.append(len(rows))
        strides: Any
        if count == 3:  # written out: this is the hot path
            first, second, third = operands
            strides = first.strides, second.strides, third.strides
        elif count == 2:
            first, second = operands
            strides = first.strides, second.strides
        else:
            first = operands[0] if operands else None
            strides = tuple([t.strides for t in operands])
        like = ins.like
        if like is None or not outs:
            spec = self._spec(ins, operands, len(outs))
        else:
            layout = (ins.accumulate, ins.inplace, first.memory, first.dtype, first.shape, strides)
            seen = like.seen  # hashing the layout would take longer
            spec = (
                seen[1]
                if seen is not None and seen[0] == layout
                else self._spec_like(ins, operands, len(outs), layout)
            )
        if count == 3:
            rows.frombytes(
                _PACK3(
                    spec,
                    line,
                    node,
                    first.storage.id,
                    first.offset,
                    second.storage.id,
                    second.offset,
                    third.storage.id,
                    third.offset,
                )
            )
        elif count == 2:
            rows.frombytes(
                _PACK2(
                    spec,
                    line,
                    node,
                    first.storage.id,
                    first.offset,
                    second.storage.id,
                    second.offset,
                )
            )
        else:
            rows.extend(
                (spec, line, node, *[v for t in operands for v in (t.storage.id, t.offset)])
            )

    def _spec_like(self, ins: Any, operands: tuple, outs: int, layout: tuple) -> int:
        """Return the id of the spec of an instruction that is like others (Instr.like), in a layout
        in which they were not the last time."""
        key = (ins.like, *layout)
        spec_id = self._spec_ids.get(key)
        if spec_id is None:
            spec_id = self._spec_ids[key] = self._spec(ins, operands, outs)
        ins.like.seen = layout, spec_id
        return spec_id

    def _spec(self, ins: Any, operands: tuple, outs: int) -> int:
        """Return the id of a spec by all that makes it."""
        masked = ins.mask is not None or ins.skips
        numbers = None if ins.engine == "dma" else (fixed(ins.params), fixed(ins.scalars))
        key = (
            ins.row,
            ins.engine,
            ins.accumulate,
            ins.inplace,
            outs,
            masked,
            ins.variant,
            numbers,
            *[v for t in operands for v in (t.memory, t.dtype.num, t.shape, t.strides)],
        )
        spec = self._spec_ids.get(key)
        if spec is None:
            spec = self._spec_ids[key] = len(self.op_specs)
            self.op_specs.append(
                OpSpec(
                    ins.row,
                    ins.engine,
                    tuple(Pattern(t.memory, t.dtype, t.shape, t.strides) for t in operands),
                    outs,
                    ins.accumulate,
                    ins.inplace,
                    ins.variant,
                    masked,
                    numbers,
                )
            )
        return spec

    def adding(self, spec: int) -> int:
        """Return the id of the spec that adds where another one overwrites, or the reverse."""
        k = self.op_specs[spec]
        key = (
            k.row,
            k.engine,
            not k.accumulate,
            k.inplace,
            k.outputs,
            k.masked,
            k.variant,
            k.numbers,
            *[v for p in k.operands for v in (p.memory, p.dtype.num, p.shape, p.strides)],
        )
        other = self._spec_ids.get(key)
        if other is None:
            other = self._spec_ids[key] = len(self.op_specs)
            self.op_specs.append(replace(k, accumulate=not k.accumulate))
        return other

    def __len__(self) -> int:
        return len(self.starts)

    def spec_ids(self) -> np.ndarray:
        """Return the id of each instruction's spec."""
        return np.array(self.rows, np.int64)[np.array(self.starts, np.int64) + SPEC]

    def instructions(self) -> Instructions:
        """Return spec, line and loop iteration of every instruction."""
        rows, starts = np.array(self.rows, np.int64), np.array(self.starts, np.int64)
        return Instructions(rows[starts + SPEC], rows[starts + LINE], rows[starts + NODE])

    def operand_specs(self) -> list[tuple[OpSpec, int, Pattern]]:
        """Return (spec, number of the operand, access pattern) of all operands of all specs."""
        return [(k, n, p) for k in self.op_specs for n, p in enumerate(k.operands)]

    def operands(self) -> Operands:
        """Return every access of the run; what passes over a trace know of its layout."""
        rows, starts = np.array(self.rows, np.int64), np.array(self.starts, np.int64)
        count = np.array([len(k.operands) for k in self.op_specs], np.int64)
        outputs = np.array([k.outputs for k in self.op_specs], np.int64)
        specs = rows[starts + SPEC]
        each = count[specs] if len(count) else specs
        instr = np.repeat(np.arange(len(starts)), each)
        number = np.arange(len(instr)) - np.repeat(np.cumsum(each) - each, each)
        at = operand_at(starts[instr], number)
        specs = specs[instr]
        operand_spec = (np.cumsum(count) - count)[specs] + number
        lowest = np.array([p.lowest() for _, _, p in self.operand_specs()], np.int64)
        offset = rows[at + 1]
        return Operands(
            instr,
            number,
            rows[at],
            offset,
            offset + lowest[operand_spec],
            number < outputs[specs],
            operand_spec,
        )

    def below(self, node: int) -> np.ndarray:
        """Return which instructions are in a node, or in a loop in it: array of bool."""
        inside = np.zeros(len(self.node_parent), bool)
        inside[node] = True
        for i in range(node + 1, len(inside)):  # a node comes after its parent
            inside[i] |= inside[self.node_parent[i]]
        return inside[self.instructions().node]

    def __iter__(self) -> Iterator[tuple[OpSpec, int, int, list[tuple[int, int]]]]:
        """Yield (spec, line, node, [(storage, byte offset) of each operand])."""
        rows, specs = self.rows, self.op_specs
        for s in self.starts:
            spec = specs[rows[s + SPEC]]
            ops = rows[s + HEAD : operand_at(s, len(spec.operands))]
            yield (spec, rows[s + LINE], rows[s + NODE], list(zip(ops[::OPERAND], ops[1::OPERAND])))

    def counts(self) -> Counter:
        """Return the number of instructions by spec id."""
        count = np.bincount(self.spec_ids(), minlength=len(self.op_specs)).tolist()
        return Counter({spec: n for spec, n in enumerate(count) if n})

    def path(self, node: int) -> list[tuple[int, int]]:
        """Return [(loop, iteration)] of a node, outermost first."""
        out = []
        while node > 0:
            out.append((self.node_loop[node], self.node_iter[node]))
            node = self.node_parent[node]
        return out[::-1]
