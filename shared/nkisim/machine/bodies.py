"""Bodies of loops that run on the device: their tiles are made once, and end with the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..chip.memory import Storage
from ..trace.trace import LINE, NODE, SPEC

if TYPE_CHECKING:
    from .interface import Machine


class Body:
    """What the body of a loop allocates, in its order; every iteration gets the same.

    The compiler emits a body once, so its n-th allocation is the same one in all iterations. What
    it holds ends with the iteration: its first product overwrites, and reading it before it is
    written is found.
    `made`: storages, and bodies of loops in it; `at`: the place in this iteration. `issued`: what
    the first iteration issues itself, as (instruction, line); `since`: where this one began.
    """

    def __init__(self) -> None:
        self.made: list[Storage | Body] = []
        self.at = 0
        self.issued: list[tuple[str, int]] | None = None
        self.since = -1

    def begin(self, m: Machine) -> None:
        """Begin an iteration: what the one before has left to do is done in its place."""
        self.end(m)
        charge(m, m.hw.timing.min_interval_cycles)  # a branch, in the place of an instruction
        self.at, self.since = 0, len(m.trace.starts)

    def end(self, m: Machine) -> None:
        """End an iteration; say it if another one has issued other instructions.

        A kernel that is traced goes through the body once, so that only Python can tell them apart.
        """
        m.flush()
        tr, first = m.trace, self.since
        self.since = -1
        if first < 0 or not m.dialect.traced:
            return
        issued = [
            (tr.op_specs[tr.rows[s + SPEC]].row.name, tr.rows[s + LINE])
            for s in tr.starts[first:]
            if tr.rows[s + NODE] == m.core.node
        ]
        if self.issued is None:
            self.issued = issued
        elif issued != self.issued:
            name, line = next(
                (a for a, b in zip_longest(issued, self.issued) if a != b and a),
                (issued or self.issued)[-1],
            )
            m.find(
                "NKI-L12",
                "warning",
                f"an iteration of a loop of the chip issues {len(issued)} "
                f"instructions, the first one {len(self.issued)}, and they differ at {name}: "
                "the compiler traces the body once, and repeats what it issues then",
                line,
            )

    def next(self) -> Storage | Body | None:
        """Return what was made at this place in the iteration before, None in the first one."""
        self.at += 1
        return self.made[self.at - 1] if self.at <= len(self.made) else None


def charge(m: Machine, cycles: float, us: float = 0.0) -> None:
    """Add what the sequencers of the engines do, which no instruction of the record shows."""
    m.launch.control[m.core.top] = (
        m.launch.control.get(m.core.top, 0.0) + us + cycles / m.hw.ghz("vector") / 1e3
    )


def charge_load(m: Machine, hbm: bool) -> None:
    """Add the way of a number into a register, as long as a copy takes whose start is one."""
    t = m.hw.timing
    charge(m, t.dynamic_copy_cycles, t.dma_start_us + t.dma_read_us + t.dma_done_us if hbm else 0.0)


@contextmanager
def loop(m: Machine) -> Iterator[Body]:
    """Enter a loop of the device; its caller calls `begin` before each iteration."""
    outer, tr, parent = m.core.body, m.trace, m.core.node
    earlier = outer.next() if outer is not None else None
    body = earlier if isinstance(earlier, Body) else Body()
    if outer is not None and earlier is None:
        outer.made.append(body)
    number = len(tr.loop_kind)
    tr.loop_kind.append("fori_loop")
    tr.loop_line.append(m.here())
    m.loops.open.append(True)
    m.enter(number, parent, 0)
    if body.made:  # the loop runs again: its tiles live again
        _reopen(body, m.core.node)
    m.core.body = body
    try:
        yield body
        body.end(m)
    finally:
        m.core.body = outer
        m.loops.open[number] = False
        m.core.node = parent


def _reopen(body: Body, node: int) -> None:
    for made in body.made:
        if isinstance(made, Storage):
            made.node = node


@contextmanager
def outside(m: Machine) -> Iterator[None]:
    """Allocate for the whole kernel, wherever it is."""
    kept = m.core.body, m.core.node
    m.core.body, m.core.node = None, m.core.top
    try:
        yield
    finally:
        m.core.body, m.core.node = kept


def recycled(m: Machine, body: Body, memory: str, nparts: int, row_bytes: int) -> Storage | None:
    """Return the storage that an iteration before has made at this place, emptied, if any."""
    storage = body.next()
    if not isinstance(storage, Storage) or (storage.memory, storage.nparts, storage.row_bytes) != (
        memory,
        nparts,
        row_bytes,
    ):
        return None
    if storage.queued:
        m.products.run()
    storage.renew()
    m.memory.psum_filled.discard(storage.id)
    m.memory.psum_sums.pop(storage.id, None)
    return storage
