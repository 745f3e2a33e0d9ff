"""Results that nothing reads: what an instruction computed is dropped, or written over unread.

Two cases. A line of the kernel whose results never reach an output, in no iteration: the tile is
never read, or only by lines that are dropped themselves. And a line that writes over what it wrote
the time before, from other data, while nothing has read it: a sum was meant, or another place.
Constants are left out (a tile may be set as a whole and then filled), and so is what drives a
register or a generator of random numbers. A kernel that stores nothing it has computed has no
result at all, as in a measurement of one instruction: nothing is said of it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ..chip.memory import HBM, SBUF
from ..trace.footprint import Accesses, accesses
from ..trace.geometry import Geometry
from ..trace.trace import OpSpec, Trace
from .execution import Execution

#: rules that say the same of iterations of an affine loop
_THE_SAME = ("NKI-L04", "NKI-L05")
_HARDLY = 4  # one of so many results is hardly one
#: what a row that writes over others does not do, and what to write instead
_ADDS = {
    "dma_compute": ". dma_compute reduces its sources alone: to what is there it adds nothing. "
    "Try: put dst among the sources: nisa.dma_compute(dst, [dst, t], reduce_op=nl.add)"
}
_LOOKED_AT = 64  # places of one line that are looked at for one that counts


class _Steps(NamedTuple):
    """The instructions of a run by step: a line and what it does there (a row of the table).

    A line of a helper loads many tensors: what it loads of each tensor in HBM is a step.
    """

    step: np.ndarray  # of each instruction
    line: np.ndarray  # of each step
    row: list[str]
    source: np.ndarray  # the storage in HBM that a step loads, -1 for all else

    def among(self, step: int) -> str:
        """Return which of the tensors that its line loads a step loads, "" if it is the only."""
        same = (self.line == self.line[step]) & (self.source >= 0)
        same &= np.array([r == self.row[step] for r in self.row])
        sources = sorted(self.source[same].tolist())
        if self.source[step] < 0 or len(sources) < 2:
            return ""
        at = sources.index(int(self.source[step])) + 1
        return f" (of {len(sources)} tensors in HBM that this line loads, number {at})"


def check_unused(m: Execution) -> None:
    """Add a finding for each line whose results are dropped."""
    trace = m.trace
    if not len(trace):
        return
    acc = accesses(trace, m.hw)
    steps = _steps(trace, acc)
    specs = np.array([_is_of_interest(k) for k in trace.op_specs], bool)
    stored = acc.ev["write"].astype(bool) & acc.stores.hbm[acc.ev["storage"]]
    if not specs[acc.specs[acc.ev["instr"][stored]]].any():
        return  # it has no result at all
    unseen = np.zeros(len(acc.stores.hbm), bool)
    unseen[list(m.unseen | m.indexed)] = True
    if any(f.id == "NKI-A05" for f in m.findings):
        unseen |= acc.stores.arena  # tiles lie on each other: that says it all
    over, op_specs = _Over(trace, acc, steps, unseen), specs[acc.specs]
    named: set[int] = set()
    reported = {f.where for f in m.findings if f.id in _THE_SAME}

    def tell(step: int, text: str, other: int = -1, sure: bool = False) -> None:
        line, first = int(steps.line[step]), int(np.argmax(steps.step == step))
        if op_specs[first] and step not in named and trace.where(line) not in reported:
            named.add(step)
            spec = trace.op_specs[acc.specs[first]]  # a load that is replaced may be on purpose
            loads = spec.engine == "dma" and spec.operands[0].memory is SBUF
            m.findings.find(
                "NKI-U04", "note" if loads and not sure else "warning", text, line, other
            )

    alone = m.cores is None  # two cores may write the same
    for step, other in over.by_others() if alone else ():
        tell(
            step,
            f"what {steps.row[step]} writes here is written over before anything has read it"
            + _ADDS.get(steps.row[other], ""),
            int(steps.line[other]),
        )
    for step, other, lost in _dropped(trace, acc, steps, unseen, op_specs):
        if steps.source[step] >= 0:
            text = f"what {steps.row[step]} loads here is never used{steps.among(step)}"
        else:
            text = f"what {steps.row[step]} computes here never reaches an output"
        tell(step, f"{text}: nothing reads it, or only what is dropped itself", other, sure=lost)
    for step in over.by_itself() if alone else ():
        tell(
            step,
            f"{steps.row[step]} writes over what it wrote here the time before, which "
            "nothing has read: only the last result is left. Was a sum meant, or another place "
            "for each?",
            sure=True,
        )
    for step, dead, total in _partly(acc, steps, unseen, op_specs) if alone else ():
        if dead >= 2 and total - dead <= max(1, total // _HARDLY):
            tell(
                step,
                f"of {total} results that {steps.row[step]} computes here, {dead} are never "
                "read. Was a sum meant, or are all of them to be stored?",
            )
        elif steps.source[step] >= 0:  # the last one may be loaded ahead of time
            tell(
                step,
                f"of {total} tiles that {steps.row[step]} loads here{steps.among(step)}, {dead} "
                "are never read",
            )


def _steps(trace: Trace, acc: Accesses) -> _Steps:
    specs, line, _ = trace.instructions()
    names = sorted({k.row.name for k in trace.op_specs})
    row = np.array([names.index(k.row.name) for k in trace.op_specs], np.int64)[specs]
    loads = np.array(
        [
            k.engine == "dma" and k.outputs == 1 and k.operands[0].memory is not HBM
            for k in trace.op_specs
        ],
        bool,
    )
    operands = trace.operands()
    reads = np.flatnonzero(~operands.write & acc.stores.hbm[operands.storage])[::-1]
    source = np.full(len(specs), -1, np.int64)
    source[operands.instr[reads]] = operands.storage[reads]  # the first one
    source[~loads[specs]] = -1
    stores = len(acc.stores.hbm) + 1
    keys, step = np.unique(
        ((line + 1) * len(names) + row) * stores + source + 1, return_inverse=True
    )
    of, source = keys // stores, keys % stores - 1
    return _Steps(step, of // len(names) - 1, [names[i] for i in of % len(names)], source)


def _is_of_interest(spec: OpSpec) -> bool:
    """Return whether an instruction is nothing but its results, computed from something."""
    drives = "reduce_cmd" in spec.row.signature.parameters and getattr(
        spec.variant, "registers", True
    )
    return len(spec.operands) > spec.outputs > 0 and not (
        drives or spec.row.is_collective or spec.scatters
    )


# -- results that reach no output ------------------------------------------------------------------


def _dropped(
    trace: Trace, acc: Accesses, steps: _Steps, unseen: np.ndarray, some: np.ndarray
) -> list[tuple[int, int, bool]]:
    """Return (step, line of the tile, is it lost?) of the steps whose results reach no output.

    A load is lost if no other one of its tensor in HBM is used; else it may be there on purpose,
    as one way of two to load the same.

    `some`: the instructions that are nothing but their results.
    """
    ev, operand_specs = acc.ev, trace.operand_specs()
    storage, write = ev["storage"], ev["write"].astype(bool)
    adds = np.array(
        [
            k.accumulate or k.inplace or k.adds or k.row.merges or k.masked
            for k, _, _ in operand_specs
        ],
        bool,
    )[ev["operand_spec"]]
    step = steps.step[ev["instr"]]
    ends = (acc.stores.hbm | unseen)[storage]  # what is written there is not lost
    live = np.zeros(len(steps.line), bool)
    live[steps.step[~some]] = True
    live[step[write & ends]] = True
    if live.all():
        return []
    size = len(steps.line)
    writers = np.unique(acc.vid[write] * size + step[write])
    readers = np.unique(acc.vid[~write | adds] * size + step[~write | adds])
    begin = np.searchsorted(readers // size, writers // size)
    count = np.searchsorted(readers // size, writers // size, "right") - begin
    at = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    edges = np.unique(np.repeat(writers % size, count) * size + readers[at] % size)
    feeds: dict[int, list[int]] = defaultdict(list)  # step -> the steps that it reads from
    fed: dict[int, set[int]] = defaultdict(set)
    for writer, reader in zip((edges // size).tolist(), (edges % size).tolist()):
        if writer != reader:
            feeds[reader].append(writer)
            fed[writer].add(reader)
    todo = np.flatnonzero(live).tolist()
    while todo:
        for writer in feeds[todo.pop()]:
            if not live[writer]:
                live[writer] = True
                todo.append(writer)
    # what a loop would carry to its next iteration: its tile is read, before, in this one
    used = np.zeros(len(acc.stores.hbm), bool)
    used[storage[~write & live[step]]] = True
    carried = np.zeros(size, bool)
    carried[step[write & used[storage]]] = True
    dead = np.flatnonzero(~live & ~carried)
    if not len(dead):
        return []
    last = [s for s in dead.tolist() if not fed[s]] or dead[-1:].tolist()
    made = {
        int(s): int(acc.stores.line[st]) for s, st in zip(step[write][::-1], storage[write][::-1])
    }
    used_sources = set(np.delete(steps.source, dead).tolist()) - {-1}
    return [(s, made.get(s, -1), int(steps.source[s]) not in used_sources) for s in last]


def _partly(
    acc: Accesses, steps: _Steps, unseen: np.ndarray, some: np.ndarray
) -> list[tuple[int, int, int]]:
    """Return (step, unread results, all results) of steps that write a tile of their own each time
    and whose results are read in part."""
    ev = acc.ev
    write = ev["write"].astype(bool)
    read = np.bincount(ev["storage"][~write], minlength=len(acc.stores.hbm)) > 0
    single = np.bincount(ev["instr"], write, len(acc.specs)) == 1
    plain_writes = (
        write
        & some[ev["instr"]]
        & single[ev["instr"]]
        & ~(acc.stores.hbm | unseen | acc.stores.arena)[ev["storage"]]
    )
    size = len(steps.line)
    each = np.unique(ev["storage"][plain_writes] * size + steps.step[ev["instr"][plain_writes]])
    alive = np.bincount(each % size, read[each // size], size).astype(int)
    total = np.bincount(each % size, minlength=size)
    dead = total - alive
    return [(int(s), int(dead[s]), int(total[s])) for s in np.flatnonzero((alive > 0) & (dead > 0))]


# -- results that are written over -----------------------------------------------------------------


class _Over:
    """Writes that a later one replaces, before anything has read them."""

    def __init__(self, trace: Trace, acc: Accesses, steps: _Steps, unseen: np.ndarray):
        self.ev, self.trace = acc.ev, trace
        ev, operand_specs, self.geometry = acc.ev, trace.operand_specs(), Geometry()
        self.pattern = np.array([self.geometry.id(p) for _, _, p in operand_specs], np.int64)
        plain = np.array(
            [
                n < k.outputs
                and not (
                    k.accumulate
                    or k.inplace
                    or k.adds
                    or k.row.merges
                    or k.masked
                    or k.scatters
                    or k.row.is_collective
                )
                for k, n, _ in operand_specs
            ],
            bool,
        )
        self.step, write = steps.step[ev["instr"]], ev["write"].astype(bool)
        self.writes = np.bincount(self.step[write], minlength=len(steps.line))
        writes = np.flatnonzero(write & ~unseen[ev["storage"]])
        order = writes[
            np.lexsort(
                (
                    writes,
                    self.pattern[ev["operand_spec"][writes]],
                    ev["offset"][writes],
                    ev["storage"][writes],
                )
            )
        ]
        a, b = order[:-1], order[1:]  # a write, and the next to the same place
        same = (
            (ev["storage"][a] == ev["storage"][b])
            & (ev["offset"][a] == ev["offset"][b])
            & (self.pattern[ev["operand_spec"][a]] == self.pattern[ev["operand_spec"][b]])
            & plain[ev["operand_spec"][b]]
        )
        self.a, self.b = a[same], b[same]
        reads = np.flatnonzero(~write)
        self.reads = reads = reads[np.argsort(ev["storage"][reads], kind="stable")]
        span = len(write) + 1
        key = ev["storage"][reads] * span + reads
        self.lo, self.hi = (
            np.searchsorted(key, ev["storage"][x] * span + x) for x in (self.a, self.b)
        )

    def unread(self, i: int) -> bool:
        """Return whether nothing reads a byte of write `a[i]` before `b[i]`."""
        between, at = self.reads[self.lo[i] : self.hi[i]], self.a[i]
        if not len(between):
            return True
        ev = self.ev
        p = np.full(len(between), self.pattern[ev["operand_spec"][at]])
        return not self.geometry.overlaps(
            p, self.pattern[ev["operand_spec"][between]], ev["offset"][between] - ev["offset"][at]
        ).any()

    def by_itself(self) -> list[int]:
        """Return the steps that write over their own results, made of other data."""
        alone = np.array([k.outputs == 1 for k, _, _ in self.trace.operand_specs()], bool)
        candidates = np.flatnonzero(
            (self.step[self.a] == self.step[self.b]) & alone[self.ev["operand_spec"][self.a]]
        )
        if not len(candidates):
            return []
        sources = _Sources(self.trace)
        tried: dict[int, int] = defaultdict(int)
        steps: set[int] = set()
        order = np.argsort(self.hi[candidates] - self.lo[candidates], kind="stable")
        for i in candidates[order].tolist():  # those without any read between first
            s = int(self.step[self.a[i]])
            if s in steps or tried[s] >= _LOOKED_AT:
                continue
            tried[s] += 1
            if sources.differ(
                int(self.ev["instr"][self.a[i]]), int(self.ev["instr"][self.b[i]])
            ) and self.unread(i):
                steps.add(s)
        return sorted(steps)

    def by_others(self) -> list[tuple[int, int]]:
        """Return (step, later step) where the later one replaces all results."""
        over = np.bincount(self.step[self.a], minlength=len(self.writes))
        all_ = (self.writes == over) & (over > 0)
        replaced = []
        asked = np.flatnonzero(all_[self.step[self.a]])
        asked = asked[np.argsort(self.step[self.a[asked]], kind="stable")]
        which = self.step[self.a[asked]]
        for s in np.unique(which).tolist():
            pairs = asked[which == s]
            others = self.step[self.b[pairs]]
            if (others != s).any() and all(self.unread(i) for i in pairs.tolist()):
                replaced.append((s, int(others[others != s][0])))
        return replaced


class _Sources:
    """What each instruction reads, and when that is written."""

    def __init__(self, trace: Trace):
        accesses = trace.operands()
        self.instr, self.read = accesses.instr, ~accesses.write
        self.place = np.stack([accesses.storage, accesses.offset], axis=1)
        writes = np.flatnonzero(accesses.write)
        self.span = len(trace) + 1
        self.written = np.sort(accesses.storage[writes] * self.span + accesses.instr[writes])

    def differ(self, one: int, other: int) -> bool:
        """Return whether two instructions read other places, or places written in between."""
        first, second = self._places(one), self._places(other)
        if not np.array_equal(first, second):
            return True
        at = [np.searchsorted(self.written, first[:, 0] * self.span + i) for i in (one, other)]
        return bool((at[0] < at[1]).any())

    def _places(self, i: int) -> np.ndarray:
        events = slice(*np.searchsorted(self.instr, (i, i + 1)))
        return self.place[events][self.read[events]]


__all__ = ["check_unused"]
