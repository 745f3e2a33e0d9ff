"""Hazards of loops: what hardware may reorder and therefore silently get wrong.

Iterations of `nl.affine_range`, and the instances of a grid, are independent by promise. This
pass over the trace finds the promises that a kernel breaks: two iterations that write the same
place, and an iteration that reads what another one wrote (nki-spec 5, traps 11, 30 and 38).
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ..chip.memory import HBM
from ..errors import NkiError, fail
from ..trace.trace import Kind, Storages, Trace


class Launch(Protocol):
    """What this pass has to know of the machine that ran a kernel."""

    trace: Trace
    storages: Storages
    arenas: dict[str, Any]          # the memories that the kernel allocates directly
    asked_id: bool                  # the kernel has called nl.program_id
    skip_middle_end: bool           # affine_range keeps the order of statements

    def find(self, id: str, severity: str, text: str, where: int = -1, other: int = -1) -> None:
        """Add a finding."""


_INDEPENDENT = {"affine_range": "iteration of nl.affine_range", "grid": "instance of the grid"}


def _shared_affine(m: Launch, a: int, b: int, home: int) -> int | None:
    """Return the affine loop (or grid) of which nodes `a` and `b` are two iterations, or None.

    Loops that the storage was created in (`home`) do not count: there each iteration has its own.
    """
    tr = m.trace
    outside = len(tr.path(home))
    for (loop, i), (other, j) in zip(tr.path(a)[outside:], tr.path(b)[outside:]):
        if loop != other:
            return None
        if i != j:
            return loop if tr.loop_kind[loop] in _INDEPENDENT else None
    return None


def check_loops(m: Launch) -> NkiError | None:
    """Look for broken promises of affine loops; add findings, return the error of the first
    HBM region that two iterations write (unless statements keep their order)."""
    tr = m.trace
    if not any(kind in tr.loop_kind for kind in _INDEPENDENT):
        return None
    error: NkiError | None = None
    seen: set[tuple] = set()
    for line, node, sid, home, writes, hbm, before, at in _meetings(m):
        key = (sid, line, before) if writes else (sid, line, before, "r")
        if key in seen or (loop := _shared_affine(m, at, node, home)) is None:
            continue
        seen.add(key)
        if writes:
            error = error or _written_twice(m, loop, hbm, line, before)
            continue
        what = _INDEPENDENT[tr.loop_kind[loop]]
        m.find("NKI-L02", "warning",
               f"an {what} reads what another one wrote; they may overlap or run in any "
               "order, so on the chip this value is undefined. Use nl.sequential_range, "
               "or give each its own tile", line, before)
    return error


def _meetings(m: Launch) -> Iterator[tuple[int, int, int, int, bool, bool, int, int]]:
    """Yield the accesses, in program order, to a region that another iteration wrote last.

    Each as (line, node, storage, node of the storage, whether it writes, whether in HBM, line and
    node of that write). A region is a start and an access pattern; updates may meet anywhere.
    """
    tr = m.trace
    rows, starts = np.frombuffer(tr.rows, np.int64), np.frombuffer(tr.starts, np.int64)
    stores = np.frombuffer(m.storages.data, np.int64).reshape(-1, 6)
    if not len(starts):
        return
    home_of = np.where(stores[:, 5] & 2, -1, stores[:, 4])      # -1: a kernel input
    for st in m.arenas.values():
        home_of[st.id] = -1             # there the kernel says what may share bytes
    # each operand of each instruction, by the tables of its kind
    forms: dict[tuple, int] = {}
    form, writes, update = [], [], []
    for kind in tr.kinds:
        ordered = kind.accumulate or kind.inplace or _updates(kind)
        for k, p in enumerate(kind.operands):
            form.append(forms.setdefault((p.shape, p.strides), len(forms)))
            writes.append(k < kind.outputs)
            update.append(ordered if k < kind.outputs else kind.inplace)
    count = np.array([len(k.operands) for k in tr.kinds])
    first = np.cumsum(count) - count
    kinds, lines = rows[starts], rows[starts + 1]
    each = count[kinds]
    instr = np.repeat(np.arange(len(starts)), each)
    n = np.arange(len(instr)) - np.repeat(np.cumsum(each) - each, each)
    sid, node = rows[starts[instr] + 3 + 2 * n], rows[starts + 2][instr]
    home = home_of[sid]
    keep = np.flatnonzero((home >= 0) & (home != node))         # not an iteration's own tiles
    instr, n, sid, node, home = (x[keep] for x in (instr, n, sid, node, home))
    which = first[kinds[instr]] + n
    offset = rows[starts[instr] + 4 + 2 * n]
    order = np.lexsort((np.array(form)[which], offset, sid))    # stable: program order within
    key = np.stack([sid, offset, np.array(form)[which]])[:, order]
    new = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))[:len(order)]
    group = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    write = np.array(writes)[which]
    last = np.maximum.accumulate(np.where(write[order], np.arange(len(order)), -1))
    last = np.append(-1, last[:-1])[:len(order)]                # the write before, if in the region
    met = (last >= group) & ~np.array(update)[which][order] & (node[order[last]] != node[order])
    pairs = sorted(zip(order[met].tolist(), order[last[met]].tolist()))
    for i, j in pairs:
        pattern = tr.kinds[int(kinds[instr[i]])].operands[int(n[i])]
        yield (int(lines[instr[i]]), int(node[i]), int(sid[i]), int(home[i]), bool(write[i]),
               pattern.kind is HBM, int(lines[instr[j]]), int(node[j]))


def _updates(kind: Kind) -> bool:
    """Tell whether a DMA adds to its destination, or writes rows that run-time indices choose.

    Which rows two iterations choose is data, so a promise that they differ is believed.
    """
    return kind.adds or kind.scatters


def _written_twice(m: Launch, loop: int, hbm: bool, line: int, other: int) -> NkiError | None:
    """Report two iterations that write one place: an error in HBM, a warning on chip."""
    kind = m.trace.loop_kind[loop]
    text = (f"more than one {_INDEPENDENT[kind]} writes the same "
            + ("HBM elements" if hbm else "tile"))
    if kind == "grid" and not m.asked_id:
        m.find("NKI-L05", "warning", "every instance of the grid does the same work and writes the "
               "same HBM elements: the kernel does not use nl.program_id", line, other)
        return None
    if hbm and not (m.skip_middle_end and kind == "affine_range"):
        return fail("NKI-L04", text, where=m.trace.where(line),
                    given="the destination does not depend on the loop variable"
                          if kind == "affine_range" else
                          "the destination does not depend on nl.program_id",
                    limit="iterations are independent; only += -= *= /= may meet in one place",
                    hint="index the destination with the loop variable, or use "
                         "nl.sequential_range" if kind == "affine_range" else
                         "index the destination with nl.program_id(axis)")
    m.find("NKI-L05", "warning", text + "; they may overlap, so each needs its own: create "
           "the tile inside the loop, or use nl.sequential_range", line, other)
    return None
