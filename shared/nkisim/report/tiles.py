"""Who lies where in SBUF and PSUM, from when to when, and who writes and reads it.

A tile that the kernel placed itself lies where it said. For the others the model only counts bytes,
since AWS's allocator decides; they are drawn where they fit first, and the page says so.
"""

from __future__ import annotations

import heapq
import linecache
import re
from bisect import insort
from collections.abc import Callable
from typing import Any

import numpy as np

from nkisim.chip.memory import PSUM, SBUF
from nkisim.trace.footprint import Accesses, accesses

PLACED = 1  # flag: the kernel chose the address
_WRITES = re.compile(
    r"\bdst\s*=\s*([A-Za-z_]\w*)"
    r"|^\s*([A-Za-z_]\w*)\s*(?:\[.*?\])?\s*[-+*/|&]?=(?!=)"
)

Ticks = Callable[[Any], np.ndarray]


def tiles(
    prof: Any,
    ticks: Ticks,
    line_of: np.ndarray,
    lines: list[tuple[str, int, str]],
    names: list[str],
    storage_name: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the columns `tile_...` (one element a tile) and `use_...` (one an access).

    New names are appended to `names`. `tile_over` is the tile that was written over this one
    before anybody had read it, or -1.
    """
    trace, hw, line = prof.trace, prof.hw, prof.timeline
    acc = accesses(trace, hw, "rename" in prof.compiler)
    v, ev = acc.versions, acc.ev
    own = np.flatnonzero(v.bytes > 0)
    number = np.full(len(v.storage), -1)
    number[own] = np.arange(len(own))
    first = line.issue_us[v.first[own]]
    last = np.maximum(line.end_us[v.last[own]], line.end_us[v.first[own]])
    use = number[acc.vid]
    with_tile = use >= 0
    uses = [np.column_stack([use[with_tile], ev["instr"][with_tile], ev["write"][with_tile]])]
    placed = _Placed(acc, trace, prof.timeline, lines, line_of, names, len(own))
    at = np.zeros(len(own), np.int64)
    for psum, room in ((False, hw.sbuf_usable_bytes), (True, hw.psum_bytes)):
        which = np.flatnonzero(v.psum[own] == psum)
        taken = placed.extent(PSUM if psum else SBUF)
        at[which] = first_fit(first[which], last[which], v.bytes[own][which], room, taken)
    uses.append(np.array(placed.uses, np.int64).reshape(-1, 3))
    all_uses = np.concatenate(uses)
    all_uses = all_uses[np.argsort(all_uses[:, 0], kind="stable")]
    rows = placed.rows
    return {
        "tile_name": np.append(storage_name[v.storage[own]], rows["name"]).astype(np.int32),
        "tile_memory": np.append(v.psum[own], rows["psum"]).astype(np.uint8),
        "tile_line": np.append(line_of[v.line[own]], rows["line"]).astype(np.int32),
        "tile_at": np.append(at, rows["lo"]).astype(np.int32),
        "tile_bytes": np.append(v.bytes[own], rows["bytes"]).astype(np.int32),
        "tile_first": ticks(np.append(first, rows["first"])),
        "tile_last": ticks(np.append(last, rows["last"])),
        "tile_flag": np.append(np.zeros(len(own)), rows["flag"]).astype(np.uint8),
        "tile_over": np.append(np.full(len(own), -1), rows["over"]).astype(np.int32),
        "use_tile": all_uses[:, 0].astype(np.int32),
        "use_instr": all_uses[:, 1].astype(np.int32),
        "use_write": all_uses[:, 2].astype(np.uint8),
    }


def first_fit(
    first: np.ndarray,
    last: np.ndarray,
    size: np.ndarray,
    room: int,
    taken: tuple[int, int] | None = None,
) -> np.ndarray:
    """Return a byte for each tile, so that tiles that live at the same time do not overlap.

    `taken`: bytes that are none of theirs. What does not fit lies behind the end of the memory.
    """
    free: list[tuple[int, int]] = [(0, room), (room, 1 << 40)]
    if taken is not None:
        free = [(0, taken[0]), (taken[1], room), (room, 1 << 40)]
    free = [(a, b) for a, b in free if a < b]
    leaving: list[tuple[float, int, int]] = []
    out = np.zeros(len(first), np.int64)
    for k in np.argsort(first, kind="stable").tolist():
        now, need = float(first[k]), int(size[k])
        while leaving and leaving[0][0] <= now:
            _, a, b = heapq.heappop(leaving)
            _give_back(free, a, b, room)
        j = next(j for j, (a, b) in enumerate(free) if b - a >= need)
        a, b = free[j]
        out[k] = a
        if b - a == need:
            del free[j]
        else:
            free[j] = (a + need, b)
        heapq.heappush(leaving, (float(last[k]), a, a + need))
    return out


def _give_back(free: list[tuple[int, int]], a: int, b: int, room: int) -> None:
    """Put a range back, joined with its neighbours; none crosses the end of the memory."""
    insort(free, (a, b))
    j = free.index((a, b))
    while j + 1 < len(free) and free[j][1] == free[j + 1][0] and free[j][1] != room:
        free[j : j + 2] = [(free[j][0], free[j + 1][1])]
    while j and free[j - 1][1] == free[j][0] and free[j][0] != room:
        free[j - 1 : j + 1] = [(free[j - 1][0], free[j][1])]
        j -= 1


class _Placed:
    """The lives of what a kernel placed itself: bytes, from a write until they are overwritten."""

    def __init__(
        self,
        acc: Accesses,
        trace: Any,
        timeline: Any,
        lines: list[tuple[str, int, str]],
        line_of: np.ndarray,
        names: list[str],
        base: int,
    ):
        self.uses: list[tuple[int, int, int]] = []
        self.rows: dict[str, list[Any]] = {
            k: [] for k in ("name", "psum", "line", "lo", "bytes", "first", "last", "flag", "over")
        }
        ev, stores = acc.ev, acc.stores
        in_arena = np.flatnonzero(stores.arena[ev["storage"]])
        if not len(in_arena):
            return
        operand_specs = trace.operand_specs()
        sid, which = ev["storage"][in_arena], ev["operand_spec"][in_arena]
        part = ev["offset"][in_arena] // stores.row_bytes[sid]
        height = np.array([p.shape[0] for _, _, p in operand_specs])[which]
        adds = np.array([k.accumulate or k.row.merges for k, _, _ in operand_specs])[which]
        box = np.column_stack([sid, part, part + height, ev["lo"][in_arena], ev["hi"][in_arena]])
        boxes, region = np.unique(box, axis=0, return_inverse=True)
        near = _overlaps(boxes)
        called = _names(lines, line_of, names)
        now: dict[int, int] = {}  # region -> the life that is in it
        read: list[bool] = []
        lines_of = line_of[np.asarray(timeline.line, np.int64)]
        for instr, write, where, more in zip(
            ev["instr"][in_arena].tolist(),
            ev["write"][in_arena].tolist(),
            region.ravel().tolist(),
            adds.tolist(),
        ):
            here = [r for r in near[where] if r in now]
            end = float(timeline.end_us[instr])
            if write and not (more and here):
                life, place = len(read), int(lines_of[instr])
                s, _, _, lo, hi = boxes[where].tolist()
                for key, value in (
                    ("name", called[place]),
                    ("psum", bool(stores.psum[s])),
                    ("line", place),
                    ("lo", lo),
                    ("bytes", hi - lo),
                    ("last", end),
                    ("flag", PLACED),
                    ("first", float(timeline.issue_us[instr])),
                    ("over", -1),
                ):
                    self.rows[key].append(value)
                for r in here:
                    old = now.pop(r)
                    if not read[old] and self.rows["name"][old] != called[place]:
                        self.rows["over"][old] = base + life
                now[where] = life
                read.append(False)
                here = [where]
            for r in here:
                life = now[r]
                read[life] |= not write
                self.uses.append((base + life, instr, int(write)))
                self.rows["last"][life] = max(self.rows["last"][life], end)

    def extent(self, memory: str) -> tuple[int, int] | None:
        """Return the bytes from the first to behind the last that the kernel placed."""
        which = [k for k, psum in enumerate(self.rows["psum"]) if psum == (memory is PSUM)]
        if not which:
            return None
        return (
            min(self.rows["lo"][k] for k in which),
            max(self.rows["lo"][k] + self.rows["bytes"][k] for k in which),
        )


def _overlaps(boxes: np.ndarray) -> list[list[int]]:
    """Return, for each (storage, partitions, bytes), all that share a byte with it."""
    out = []
    for s, p0, p1, lo, hi in boxes.tolist():
        hit = (
            (boxes[:, 0] == s)
            & (boxes[:, 1] < p1)
            & (boxes[:, 2] > p0)
            & (boxes[:, 3] < hi)
            & (boxes[:, 4] > lo)
        )
        out.append(np.flatnonzero(hit).tolist())
    return out


def _names(lines: list[tuple[str, int, str]], line_of: np.ndarray, names: list[str]) -> list[int]:
    """Return for each line the name of the tile that it writes, as a place in `names`."""
    out = []
    for file, number, _ in lines:
        match = _WRITES.search(linecache.getline(file, number))
        text = (match[1] or match[2]) if match else "placed by the kernel"
        if text not in names:
            names.append(text)
        out.append(names.index(text))
    return [*out, 0]  # the last one: line -1
