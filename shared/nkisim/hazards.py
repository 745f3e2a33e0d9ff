"""Hazards of loops: what hardware may reorder and therefore silently get wrong.

Iterations of `nl.affine_range`, and the instances of a grid, are independent by promise. This
pass over the trace finds the promises that a kernel breaks: two iterations that write the same
place, and an iteration that reads what another one wrote (nki-spec 5, traps 11, 30 and 38).
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import NkiError, fail
from .memory import HBM

if TYPE_CHECKING:
    from .machine import Machine
    from .trace import Kind


_INDEPENDENT = {"affine_range": "iteration of nl.affine_range", "grid": "instance of the grid"}


def _shared_affine(m: Machine, a: int, b: int, home: int) -> int | None:
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


def check_loops(m: Machine) -> NkiError | None:
    """Look for broken promises of affine loops; add findings, return the error of the first
    HBM region that two iterations write (unless statements keep their order)."""
    tr, storages = m.trace, m.storages
    if not any(kind in tr.loop_kind for kind in _INDEPENDENT):
        return None
    last: dict[tuple, tuple[int, int]] = {}     # region -> (node, line) of its last write
    error: NkiError | None = None
    rows, kinds = tr.rows, tr.kinds
    seen: set[tuple] = set()
    node_of = storages.node
    arenas = {st.id for st in m.arenas.values()}    # there the kernel says what may share bytes
    for at in tr.starts:
        node = rows[at + 2]
        kind, line = kinds[rows[at]], rows[at + 1]
        k = at + 3
        for n, pattern in enumerate(kind.operands):
            sid, offset = rows[k], rows[k + 1]
            k += 2
            home = node_of(sid)
            if home == node or home < 0 or sid in arenas:        # its own iteration's, or an input
                continue
            region = (sid, offset, pattern.shape, pattern.strides)
            was = last.get(region)
            if n < kind.outputs:
                ordered = kind.accumulate or kind.inplace or _updates(kind)
                if was is not None and was[0] != node and not ordered \
                        and (sid, line, was[1]) not in seen \
                        and (loop := _shared_affine(m, was[0], node, home)) is not None:
                    seen.add((sid, line, was[1]))
                    error = error or _written_twice(m, loop, pattern.kind is HBM, line, was[1])
                last[region] = (node, line)
            elif was is not None and was[0] != node and not kind.inplace \
                    and (sid, line, was[1], "r") not in seen \
                    and (loop := _shared_affine(m, was[0], node, home)) is not None:
                seen.add((sid, line, was[1], "r"))
                what = _INDEPENDENT[tr.loop_kind[loop]]
                m.find("NKI-L02", "warning",
                       f"an {what} reads what another one wrote; they may overlap or run in any "
                       "order, so on the chip this value is undefined. Use nl.sequential_range, "
                       "or give each its own tile", line, was[1])
    return error


def _updates(kind: Kind) -> bool:
    """Tell whether a DMA adds to its destination, or writes rows that run-time indices choose.

    Which rows two iterations choose is data, so a promise that they differ is believed.
    """
    return kind.row.name == "atomic_rmw" or "scatter" in kind.extra


def _written_twice(m: Machine, loop: int, hbm: bool, line: int, other: int) -> NkiError | None:
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
