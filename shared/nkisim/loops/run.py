"""The loops of kernels as they begin: which of their iterations have to be executed."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from .extrapolate import Extrapolation
from .source import Plan, plan_of

if TYPE_CHECKING:
    from ..machine.interface import Machine

FEWEST = 3  # iterations of a loop without others in it below which nothing is gained
DEAR, FEW = 3, 16  # an instruction with indices that are watched costs this many, and a loop
TRIES = 3  # loops at one place that do not fit, before they are left alone


class Start:
    """A loop that begins outside of all others that are watched."""

    def __init__(self, m: Machine, plan: Plan):
        self.m, self.plan = m, plan

    def run(
        self, values: range, indices: Generator[Any, None, None], recorded: bool
    ) -> Iterator[Any]:
        """Yield the indices that have to be executed."""
        m, plan = self.m, self.plan
        begin = len(m.trace.starts)
        run = m.loops.nest = Extrapolation(m)
        try:
            yield from inner(run, values, indices, recorded)
        finally:
            run.end()  # an error ends the kernel, or is caught in it
        if not run.fits:
            decided = run.outer is not None and run.outer.escaped
            m.loops.misfits[plan] = m.loops.misfits.get(plan, 0) + (TRIES if decided else 1)
        elif len(m.trace.starts) - begin < DEAR * len(run.issues) + FEW:
            m.loops.misfits[plan] = TRIES


def start(m: Machine, frame: FrameType, values: range) -> Start | None:
    """Return how a loop begins in a frame, None if all its iterations are to be executed: where
    values are computed, for one."""
    if (
        m.compute
        or m.settings.every_iteration
        or m.settings.shuffle is not None
        or m.watch is not None
        or m.launch.cores is not None
        or m.core.body is not None
        or m.memory.direct
        or m.pending is not None
    ):
        return None
    plan = plan_of(frame)
    if (
        plan is None
        or m.loops.misfits.get(plan, 0) >= TRIES
        or plan.depth == 1
        and len(values) < FEWEST
    ):
        return None
    if not plan.holds(frame):
        m.loops.misfits[plan] = m.loops.misfits.get(plan, 0) + 1
        return None
    return Start(m, plan)


def inner(
    run: Extrapolation, values: range, indices: Generator[Any, None, None], recorded: bool
) -> Iterator[Any]:
    """Yield the indices of a loop that have to be executed."""
    m = run.m
    for k, index in enumerate(indices):
        yield index if k else run.enter(values, recorded)
        if m.pending is not None:
            m.flush()
        if not k and run.leave():
            indices.close()
            return


__all__ = ["Start", "inner", "start"]
