"""Causes that lie with memory: instructions that wait until a buffer is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..chip.memory import PSUM
from ..timing import whatif
from ..timing.schedule import ENGINES
from ..trace.footprint import LOADS
from .facts import DMA, Facts
from .sign import Sign

#: the longest trace that is cut in halves; one with more instructions has tiles enough
CUT = 4000
BUSY = 0.75
#: microseconds: what waits shorter is not told of
STUCK = 0.06
#: from this share of the work of the lesser of the two on, DMAs and engines overlap
OVERLAPS = 0.1
COMPUTE = ENGINES[:4]
#: tiles: that far apart two halves of an iteration do not wait for each other
AHEAD = 2
ENGINE_NAMES = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd"}


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
    """Return which instructions write to PSUM: array of bool."""
    return np.array([k.operands[0].memory is PSUM for k in facts.op_specs] or [False])[facts.spec]


def _holder(facts: Facts, instrs: np.ndarray) -> str:
    """Return in words the line that the instructions wait for most often to leave memory."""
    deps, end = facts.plan.deps, facts.plan.end
    chosen = np.zeros(len(facts.spec), bool)
    chosen[instrs] = True
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
    for line, instrs in facts.by_line(np.flatnonzero((waits > 0.0) & ~_psum(facts))):
        yield Sign(
            line,
            float(waits[instrs].sum()),
            {"other": _holder(facts, instrs)},
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
    writers = np.flatnonzero(psum & (facts.plan.engine != DMA))
    line = facts.busiest(writers, facts.interval)
    readers = facts.of_specs(lambda k, n: any(p.memory is PSUM for p in k.operands[k.outputs :]))
    place = facts.where(facts.busiest(readers, facts.interval)) if len(readers) else None
    idle = facts.body - facts.plan.busy["tensor"]
    other = f"line {place.line}" if place else "another instruction"
    yield Sign(line, idle, {"other": other}, writers)


def no_banks(facts: Facts, sign: Sign) -> float:
    """With as much PSUM as is asked for."""
    keep = ~(facts.reuse & _psum(facts)[facts.plan.deps.after])
    hw = replace(facts.hw, psum_banks=facts.hw.psum_banks * max(1, len(facts.spec)))
    return facts.without(keep=keep, hw=hw, deps=replace(facts.plan.deps, contended={}))


# -- loads that come late ------------------------------------------------------------------------


def late_loads(facts: Facts) -> Iterator[Sign]:
    """Loads on the critical path that are not triggered before an engine has come near."""
    if not len(facts.plan.deps.leads[0]):
        return
    late = [s for s in facts.path.steps if s.why == "late-load"]
    most = facts.body - max(facts.plan.busy.values())
    by_line: dict[int, float] = {}
    for step in late:
        line = int(facts.line[step.instr])
        by_line[line] = by_line.get(line, 0.0) + step.us
    total = sum(by_line.values())
    for line, us in by_line.items():
        if line >= 0:
            where = facts.where(
                _most(facts.line[[s.waited_for for s in late if facts.line[s.instr] == line]])
            )
            yield Sign(
                line,
                most * us / total,
                {
                    "count": f"{sum(facts.line[s.instr] == line for s in late):,}",
                    "other": f"line {where.line}" if where else "an engine",
                },
                np.flatnonzero(facts.line == line),
            )


def _most(lines: np.ndarray) -> int:
    """Return the most frequent line that is known, or -1."""
    of_user = lines[lines >= 0]
    return int(np.bincount(of_user).argmax()) if len(of_user) else -1


def no_leads(facts: Facts, sign: Sign) -> float:
    """With loads that are triggered as soon as there is memory for them."""
    none = np.zeros(0, np.int64)
    return facts.without(deps=replace(facts.plan.deps, leads=(none, none)))


# -- loads behind others on a queue --------------------------------------------------------------


def blocked_queue(facts: Facts) -> Iterator[Sign]:
    """DMAs that wait for data at the head of their queue, with others behind them that could go."""
    plan, deps, path = facts.plan, facts.plan.deps, facts.path
    ready = np.zeros(len(facts.spec))  # as far as data and memory go
    before, after = deps.waits()
    np.maximum.at(ready, after, plan.end[before])
    behind = path.behind
    loads = np.flatnonzero((deps.queue == LOADS) & (behind >= 0))
    loads = loads[deps.queue[behind[loads]] == LOADS]
    head = behind[loads]
    # both go at once, and the one in front has only then got its data
    held = np.maximum(ready[loads], path.leaves[behind[head]] * (behind[head] >= 0))
    lost = np.minimum(plan.issue[head], ready[head]) - held
    stuck = (lost > STUCK) & (plan.issue[loads] - path.leaves[head] < STUCK)
    us = np.zeros(len(facts.spec))
    np.maximum.at(us, head[stuck], lost[stuck])
    for line, instrs in facts.by_line(np.flatnonzero(us > 0.0)):
        others = loads[stuck & (facts.line[head] == line)]
        place = facts.where(_most(facts.line[others]))
        pred = plan.pred[instrs]
        awaited = facts.where(_most(facts.line[pred[pred >= 0]]))
        yield Sign(
            line,
            min(float(us[instrs].sum()), facts.body - max(plan.busy.values())),
            {
                "count": f"{len(instrs):,}",
                "other": f"line {place.line}" if place else "others",
                "what": f"line {awaited.line}" if awaited else "an engine",
            },
            np.flatnonzero((facts.line == line) & (deps.queue == LOADS)),
        )


def _peak(facts: Facts) -> int:
    """Return the bytes of a partition of SBUF that tiles take at most, in program order."""
    v = facts.plan.deps.versions
    in_sbuf = ~v.psum & (v.resident > 0)
    change = np.zeros(len(facts.spec) + 1, np.int64)
    np.add.at(change, v.first[in_sbuf], v.resident[in_sbuf])
    np.add.at(change, v.last[in_sbuf] + 1, -v.resident[in_sbuf])
    return int(np.cumsum(change).max(initial=0))


def later(facts: Facts, sign: Sign) -> float:
    """With the DMAs, and all that uses what they bring, AHEAD tiles later in the program."""
    first = sign.instrs[facts.line[sign.instrs] == sign.line]
    if len(first) < 2:
        return facts.body
    tile = int(np.median(np.diff(first)))
    deps = facts.plan.deps
    if (AHEAD + 1) * _peak(facts) <= facts.hw.sbuf_usable_bytes:  # there is room for more buffers
        keep = ~facts.reuse | _psum(facts)[deps.after]
        deps = replace(deps, before=deps.before[keep], after=deps.after[keep])
    deps = whatif.delayed(deps, sign.instrs, AHEAD * tile)
    return min(facts.body, facts.without(deps=facts.planned_anew(deps)))


# -- engines that wait for each other ------------------------------------------------------------


def in_turn(facts: Facts) -> Iterator[Sign]:
    """An engine that waits for data of another while later instructions of its own are ready."""
    plan, path = facts.plan, facts.path
    ready = np.zeros(len(facts.spec))
    before, after = plan.deps.waits()
    np.maximum.at(ready, after, plan.end[before])
    most = facts.body - max(plan.busy.values())
    lost: dict[tuple[int, int], float] = {}
    for e in range(len(COMPUTE)):
        on_engine = np.flatnonzero(np.asarray(plan.engine) == e)
        on_engine = on_engine[np.argsort(plan.start[on_engine], kind="stable")]
        if len(on_engine) < 2:
            continue
        # the earliest time at which something that comes later on this engine could have begun
        soonest = np.minimum.accumulate(ready[on_engine][::-1])[::-1]
        waits = plan.start[on_engine[1:]] - np.maximum(path.leaves[on_engine[:-1]], soonest[1:])
        for i, us in zip(on_engine[1:].tolist(), waits.tolist()):
            pred = int(plan.pred[i])
            if us > STUCK and pred >= 0 and plan.engine[pred] not in (e, DMA):
                key = int(facts.line[i]), int(facts.line[pred])
                lost[key] = lost.get(key, 0.0) + us
    for (line, other), us in lost.items():
        if line >= 0:
            place = facts.where(other)
            yield Sign(
                line,
                min(us, most),
                {
                    "other": f"line {place.line}" if place else "another engine",
                    "engine": _engine(facts, line),
                },
                np.flatnonzero(facts.line == line),
            )


def _engine(facts: Facts, line: int) -> str:
    """Return the name of the engine that runs most of a line."""
    engine = np.asarray(facts.plan.engine)[facts.line == line]
    return ENGINE_NAMES[ENGINES[int(np.bincount(engine[engine != DMA]).argmax())]]


def any_order(facts: Facts, sign: Sign) -> float:
    """With engines that take whatever is ready, as far ahead as it is."""
    deps = replace(facts.plan.deps, fences={})
    return facts.without(deps=deps, window=len(facts.spec))


# -- tiles that are too large to overlap ---------------------------------------------------------


def _overlap(facts: Facts) -> float:
    """Return the share of the engines' time in which DMA engines move data as well, or the reverse:
    of whichever is less."""
    plan = facts.plan

    def union(some: np.ndarray) -> np.ndarray:
        """Return (begin, end) of stretches, apart and in order."""
        order = np.argsort(plan.start[some], kind="stable")
        begin, end = plan.start[some][order], np.maximum.accumulate(plan.end[some][order])
        fresh = np.append(True, begin[1:] > end[:-1])[: len(begin)]
        last = np.append(np.flatnonzero(fresh)[1:] - 1, len(begin) - 1)
        return np.stack([begin[fresh], end[last]])

    if facts.is_dma.all() or not facts.is_dma.any():
        return 0.0
    a, b = union(np.flatnonzero(facts.is_dma)), union(np.flatnonzero(~facts.is_dma))
    both = np.minimum(a[1][:, None], b[1]) - np.maximum(a[0][:, None], b[0])
    least = min(float((x[1] - x[0]).sum()) for x in (a, b))
    return float(np.maximum(0.0, both).sum()) / least if least else 0.0


def one_tile(facts: Facts) -> Iterator[Sign]:
    """A kernel in which no engine is busy, and nothing overlaps: a few large tiles."""
    yield from _large_tiles(facts, False)


def few_tiles(facts: Facts) -> Iterator[Sign]:
    """The same, where some tiles overlap: what does not are the first load and the last store."""
    yield from _large_tiles(facts, True)


def _large_tiles(facts: Facts, overlaps: bool) -> Iterator[Sign]:
    if max(facts.share.values()) >= BUSY or len(facts.spec) > CUT:
        return
    loads = facts.of_specs(lambda k, n: k.engine == "dma" and bool(k.read_bytes))
    if len(loads) and (_overlap(facts) >= OVERLAPS) == overlaps:
        yield Sign(
            facts.busiest(loads, facts.dma_us), float(facts.dma_us.max() + facts.interval.max()), {}
        )


def halved(facts: Facts, sign: Sign) -> float:
    """With tiles of half the size."""
    return facts.halved()
