"""Tiles that are used slice by slice: what touches all of one is cut along the slices.

A compiler spills what is in use, not what was allocated: where an instruction adds to
one slice at a time goes to HBM and comes back slice by slice. Only what fills or stores the whole
block stands in the way, and a fill or a plain DMA of a block is the same as one of each slice.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, PSUM, SBUF
from ..trace.footprint import accesses
from ..trace.rewrite import Draft
from ..trace.trace import OpSpec, Pattern, Trace


def cut(trace: Trace, hw: NeuronCore, rename: bool) -> Trace:
    """Return the trace with fills and stores of whole tiles cut where others use slices of them.

    Slices are disjoint ranges of bytes, of no less than a DMA moves well
    (`dma_small_write_bytes`). A tile that anything else uses across slices stays whole.
    """
    acc = accesses(trace, hw, rename)
    ev, vid, v = acc.ev, acc.vid, acc.versions
    draft = Draft(trace)
    placed = (~v.psum & (v.bytes > 0))[vid]
    whole = (ev["lo"] == v.lo[vid]) & (ev["hi"] == v.hi[vid])
    tile = np.stack([v.storage[vid], v.lo[vid]])
    used: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    parts = np.flatnonzero(placed & ~whole)
    for s, begin, lo, hi in zip(
        *tile[:, parts].tolist(), ev["lo"][parts].tolist(), ev["hi"][parts].tolist()
    ):
        used[s, begin].add((lo, hi))
    cuts = {
        key: sorted(ranges)
        for key, ranges in used.items()
        if _apart(sorted(ranges), hw.timing.dma_small_write_bytes)
    }
    if not cuts:
        return trace
    across: dict[tuple[int, int], list[int]] = defaultdict(list)
    of = np.flatnonzero(placed & whole)
    for e, s, begin in zip(of.tolist(), *tile[:, of].tolist()):
        if (s, begin) in cuts:
            across[s, begin].append(e)
    for key, events in across.items():
        made = [_cut(draft, acc, e, cuts[key]) for e in events]
        if any(pieces is None for pieces in made):
            continue
        for e, pieces in zip(events, made):
            i = int(ev["instr"][e])
            for spec, operands in pieces or ():
                draft.put(i, i, spec, operands)
            draft.drop(i)
    return draft.finish() if draft.dropped.any() else trace


def _apart(ranges: list[tuple[int, int]], least: int) -> bool:
    """Return whether sorted ranges of bytes are several, long enough, and do not overlap."""
    return (
        len(ranges) > 1
        and min(hi - lo for lo, hi in ranges) >= least
        and all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:]))
    )


def _cut(
    draft: Draft, acc: object, event: int, ranges: list[tuple[int, int]]
) -> list[tuple[OpSpec, list[tuple[int, int]]]] | None:
    """Return an instruction as one for each slice, None if it cannot be cut."""
    ev = acc.ev  # type: ignore[attr-defined]
    i, j, lo, hi = (int(ev[k][event]) for k in ("instr", "operand", "lo", "hi"))
    spec = draft.spec_of(i)
    stores = spec.engine == "dma" and len(spec.operands) == 2 and not spec.variant and j == 1
    if not (spec.row.fills and len(spec.operands) == 1 or stores and _plain(spec)):
        return None
    operand, width = spec.operands[j], hi - lo
    if not all(_row_bytes(p) == width for p in spec.operands):
        return None
    edges = sorted({lo, hi, *(x for r in ranges for x in r)})
    out = []
    for a, b in zip(edges, edges[1:]):
        narrow = tuple(_narrow(p, b - a) for p in spec.operands)
        operands = []
        for k in range(len(spec.operands)):
            storage, offset = draft.operand(i, k)
            operands.append((storage, offset + a - lo))
        out.append((replace(spec, operands=narrow), operands))
    return out if operand.memory is SBUF else None


def _plain(spec: OpSpec) -> bool:
    """Return whether a DMA stores a tile as it is."""
    to, of = spec.operands
    return (
        not spec.row.transposes
        and not spec.masked
        and (to.memory, of.memory) == (HBM, SBUF)
        and to.dtype == of.dtype
        and to.shape[0] == of.shape[0]
    )


def _row_bytes(p: Pattern) -> int:
    """Return the bytes of a row (all dims but the first), 0 if they do not lie side by side."""
    step = p.dtype.itemsize
    for n, s in reversed(list(zip(p.shape[1:], p.strides[1:]))):
        if n != 1 and s != step:
            return 0
        step *= n
    return step


def _narrow(p: Pattern, width: int) -> Pattern:
    """Return a pattern whose rows have only so many bytes."""
    item = p.dtype.itemsize
    return Pattern(p.memory, p.dtype, (p.shape[0], width // item), (p.strides[0], item))


def adds_products(spec: OpSpec) -> bool:
    """Return whether an instruction makes a tile of SBUF from one there and one in PSUM."""
    out, *others = spec.operands
    memories = {p.memory for p in others}
    return out.memory is SBUF and memories == {SBUF, PSUM}


def sink_fills(trace: Trace, hw: NeuronCore, rename: bool, sums: bool = False) -> Trace:
    """Return the trace with each fill of a whole tile right before the tile is used next.

    `sums`: only fills by an engine that next adds to the tile what lies in PSUM.
    """
    acc = accesses(trace, hw, rename)
    ev, vid, v = acc.ev, acc.vid, acc.versions
    draft = Draft(trace)
    placed = (~v.psum & (v.bytes > 0))[vid]
    order = np.argsort(vid, kind="stable")
    first = np.flatnonzero(np.append(True, vid[order][1:] != vid[order][:-1]))
    first = first[first + 1 < len(order)]
    begins, then = order[first], order[first + 1]
    moved = (
        placed[begins]
        & (vid[begins] == vid[then])
        & acc.whole[begins]
        & (ev["instr"][begins] < ev["instr"][then])
    )
    for i, before in zip(ev["instr"][begins[moved]].tolist(), ev["instr"][then[moved]].tolist()):
        spec = draft.spec_of(i)
        user = draft.spec_of(before)
        if sums and not (user.engine == spec.engine and adds_products(user)):
            continue
        if spec.row.fills and len(spec.operands) == 1:
            draft.put(before, i, spec, [draft.operand(i, 0)])
            draft.drop(i)
    return draft.finish() if draft.dropped.any() else trace
