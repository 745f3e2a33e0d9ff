"""Do the tiles that live at the same time fit into SBUF and PSUM?

A tile lives from its first access to its last, in the order in which the kernel issues its
instructions; one that is overwritten as a whole begins anew. What does not fit the compiler moves
out and in again (spills), or refuses. The schedule of a profile counts what that costs; a plain
run only says that it is so. Tiles of few partitions can lie beside each other, in quadrants of
their own: counted is what tiles need at least, however they are laid.
"""

from __future__ import annotations

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import PSUM, SBUF
from ..trace.footprint import Versions, accesses
from ..trace.trace import Trace
from .execution import Execution

_NAMED = 3  # allocations that a message names


def check_capacity(m: Execution) -> None:
    """Add a finding for each memory on chip that the tiles of a run do not fit into."""
    stores, hw = m.trace.storages.table(), m.hw
    limits = {SBUF: hw.sbuf_usable_bytes, PSUM: hw.psum_bytes}
    placed = ~stores.hbm & ~stores.arena
    all_together = {
        SBUF: stores.row_bytes[placed & ~stores.psum].sum(),
        PSUM: (
            -(-stores.row_bytes[placed & stores.psum] // hw.psum_bank_bytes) * hw.psum_bank_bytes
        ).sum(),
    }
    if all(all_together[memory] <= limit for memory, limit in limits.items()):
        return  # the usual case needs no lives
    versions = accesses(m.trace, hw).versions
    lines = m.trace.instructions().line
    for memory, limit in limits.items():
        chosen = np.flatnonzero((versions.psum == (memory is PSUM)) & (versions.bytes > 0))
        at, peak = _peak(versions, chosen, len(lines), stores.nparts[versions.storage], hw)
        if peak > limit and not m.findings.found("NKI-R01", int(lines[at])):  # it says the same
            unit, per = ("banks", hw.psum_bank_bytes) if memory is PSUM else ("bytes", 1)
            m.findings.find(
                "NKI-M10",
                "warning",
                f"tiles that are alive at the same time take "
                f"{peak // per:,} {unit} per partition of {memory.upper()}, which has "
                f"{limit // per:,}: {_largest(m.trace, versions, chosen, at, per, unit)}. On the "
                "chip the compiler moves some of them out and in again, or refuses the kernel",
                int(lines[at]),
            )


def check_placed(m: Execution) -> None:
    """Add a finding for each tensor on chip that a kernel leaves to the compiler to place, if it
    places others itself."""
    if not m.direct:
        return
    stores = m.trace.storages.table()
    left = ~stores.hbm & ~stores.arena & (stores.line >= 0)
    left &= np.isin(np.arange(len(left)), m.trace.operands().storage)
    for line in np.unique(stores.line[left]).tolist():
        m.findings.find(
            "NKI-A06",
            "warning",
            "a tensor on chip is left to the compiler to place in a "
            "kernel that places others itself; the SDK wants all of them to be placed by the "
            "kernel: buffer=ncc.sbuf.mod_alloc(base_addr=...)",
            line,
        )


def _peak(
    v: Versions, chosen: np.ndarray, instructions: int, nparts: np.ndarray, hw: NeuronCore
) -> tuple[int, int]:
    """Return the instruction at which most bytes per partition are needed, and how many.

    Two tiles of more than half of the partitions share one; all tiles share the quadrants.
    """
    size, quadrants = v.bytes[chosen], hw.pmax // hw.quadrant
    wide = _taken(v, chosen, np.where(nparts[chosen] > hw.pmax // 2, size, 0), instructions)
    area = _taken(v, chosen, -(-nparts[chosen] // hw.quadrant) * size, instructions)
    needed = np.maximum(wide, -(-area // quadrants))
    at = int(needed.argmax())
    return at, int(needed[at])


def _taken(v: Versions, chosen: np.ndarray, size: np.ndarray, instructions: int) -> np.ndarray:
    """Return the sum of `size` of the tiles that are alive, by instruction."""
    change = np.zeros(instructions + 1, np.int64)
    np.add.at(change, v.first[chosen], size)
    np.add.at(change, v.last[chosen] + 1, -size)
    return np.cumsum(change)


def _largest(trace: Trace, v: Versions, chosen: np.ndarray, at: int, per: int, unit: str) -> str:
    """Return in words which allocations take most at an instruction."""
    alive = chosen[(v.first[chosen] <= at) & (v.last[chosen] >= at)]
    sums: dict[int, int] = {}
    for line, size in zip(v.line[alive].tolist(), v.bytes[alive].tolist()):
        sums[line] = sums.get(line, 0) + size
    top = sorted(sums.items(), key=lambda item: -item[1])
    places = [trace.where(line) for line, _ in top]
    words = [
        f"{size // per:,} {unit} from line {where.line if where else '?'}"
        for where, (_, size) in zip(places[:_NAMED], top)
    ]
    more = len(top) - _NAMED
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")
