"""Causes that lie with memory: instructions that wait until a buffer is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..chip.memory import PSUM
from .facts import DMA, Facts
from .sign import Sign

#: the longest trace that is cut in halves; one with more instructions has tiles enough
CUT = 4000
BUSY = 0.75


def _waits(facts: Facts) -> np.ndarray:
    """Return how long each instruction waits for memory alone, with its data and queue ready."""
    plan, deps, reuse = facts.plan, facts.plan.deps, facts.reuse
    ready = np.zeros(len(facts.spec))
    np.maximum.at(ready, deps.after[~reuse], plan.end[deps.before[~reuse]])
    free = np.zeros(len(facts.spec))
    np.maximum.at(free, deps.after[reuse], plan.end[deps.before[reuse]])
    order = np.lexsort((plan.issue, deps.queue))
    same = np.append(False, np.diff(deps.queue[order]) == 0)[: len(order)]
    last = np.zeros(len(order))
    last[order[1:]] = np.where(same[1:], plan.issue[order[:-1]], 0.0)
    return np.maximum(0.0, np.minimum(free, plan.issue) - np.maximum(ready, last))


def _psum(facts: Facts) -> np.ndarray:
    """Tell which instructions write to PSUM."""
    return np.array([k.operands[0].memory is PSUM for k in facts.op_specs] or [False])[facts.spec]


def _holder(facts: Facts, mine: np.ndarray) -> str:
    """Return in words the line that the instructions wait for most often to leave memory."""
    deps, end = facts.plan.deps, facts.plan.end
    chosen = np.zeros(len(facts.spec), bool)
    chosen[mine] = True
    waits = facts.reuse & chosen[deps.after]
    last = np.zeros(len(facts.spec))
    np.maximum.at(last, deps.after[waits], end[deps.before[waits]])
    lines = facts.line[deps.before[waits & (end[deps.before] >= last[deps.after])]]
    lines = lines[lines >= 0]
    place = facts.where(int(np.bincount(lines).argmax())) if len(lines) else None
    return f"line {place.line}" if place else "an earlier instruction"


def single_buffer(facts: Facts) -> Iterator[Sign]:
    """Lines that wait for a buffer in SBUF."""
    waits = _waits(facts)
    for line, some in facts.by_line(np.flatnonzero((waits > 0.0) & ~_psum(facts))):
        yield Sign(
            line,
            float(waits[some].sum()),
            {"other": _holder(facts, some)},
            np.flatnonzero(facts.line == line),
        )


def no_reuse(facts: Facts, sign: Sign) -> float:
    """Without waiting for memory, in this line and in those that share its buffers."""
    return facts.without(keep=~facts.reuse | _psum(facts)[facts.plan.deps.after])


def psum_banks(facts: Facts) -> Iterator[Sign]:
    """Lines that wait for PSUM: for a bank, or for the tile that is in it."""
    deps, psum = facts.plan.deps, _psum(facts)
    used = np.zeros(len(deps.versions.storage), np.int64)
    used[deps.psum_version] = deps.versions.bytes[deps.psum_version]
    full = used.sum() > facts.hw.psum_bytes
    waits = np.where(psum, _waits(facts), 0.0)
    if not (full or waits.any()):
        return
    mine = np.flatnonzero(psum & (facts.plan.engine != DMA))
    line = facts.busiest(mine, facts.interval)
    readers = facts.of_specs(lambda k, n: any(p.memory is PSUM for p in k.operands[k.outputs :]))
    place = facts.where(facts.busiest(readers, facts.interval)) if len(readers) else None
    idle = facts.body - facts.plan.busy["tensor"]
    other = f"line {place.line}" if place else "another instruction"
    yield Sign(line, idle, {"other": other}, mine)


def no_banks(facts: Facts, sign: Sign) -> float:
    """With as much PSUM as is asked for."""
    keep = ~(facts.reuse & _psum(facts)[facts.plan.deps.after])
    hw = replace(facts.hw, psum_banks=facts.hw.psum_banks * max(1, len(facts.spec)))
    return facts.without(keep=keep, hw=hw)


def one_tile(facts: Facts) -> Iterator[Sign]:
    """A kernel in which no engine is busy, and little overlaps: a few large tiles."""
    if max(facts.share.values()) >= BUSY or len(facts.spec) > CUT:
        return
    loads = facts.of_specs(lambda k, n: k.engine == "dma" and bool(k.read_bytes))
    if len(loads):
        yield Sign(
            facts.busiest(loads, facts.dma_us), float(facts.dma_us.max() + facts.interval.max()), {}
        )


def halved(facts: Facts, sign: Sign) -> float:
    """With tiles of half the size."""
    return facts.halved()
