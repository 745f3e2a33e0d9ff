"""The event model: when each instruction of a trace runs, on which engine.

This room puts the parts together: what the compiler does with the trace (compiler.py, spill.py),
engines and costs (cost.py), who waits for whom (footprint.py, prefetch.py), the run itself
(events.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM
from ..errors import fail
from ..trace.footprint import (
    ACT,
    DVE,
    LOADS,
    PE,
    POOL,
    STORES,
    SYNC,
    TRIGGERED_BY,
    Dependencies,
    analyse,
)
from ..trace.trace import OpSpec, Trace
from . import compiler, cost, events, loop_nests, prefetch, slices, spill
from .balance import share_out

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
_QUEUE = {"tensor": PE, "vector": DVE, "scalar": ACT, "gpsimd": POOL, "sync": SYNC}
#: the engine of each queue, as an index into ENGINES
_OF_QUEUE = [ENGINES.index(name) for name in _QUEUE] + [
    ENGINES.index(next(name for name, q in _QUEUE.items() if q == TRIGGERED_BY[d]))
    for d in (LOADS, STORES)
]
#: microseconds that a meeting is expected too early by, so that what a core waits for shows
_EARLY = 1e-6


@dataclass
class Schedule:
    """When everything happens, in microseconds from the first DMA trigger or instruction.

    Arrays hold an element per instruction. `dma` are the DMA instructions in the order in which
    they were served; `dma_ends` has, one after the other, when each of their engines finished.
    """

    start: np.ndarray
    end: np.ndarray
    issue: np.ndarray
    pred: np.ndarray
    engine: np.ndarray
    queue: np.ndarray
    busy: dict[str, float]
    dma: np.ndarray
    dma_ends: np.ndarray
    works: list[cost.Work | None]  # by spec
    transfers: list[cost.Transfer | None]  # by spec
    engines: list[str]  # by spec
    deps: Dependencies
    trace: Trace  # what ran: with spills, if there are any
    spill_bytes: int  # that they move to and from HBM
    waiting_us: float = 0.0  # how much longer it is because of the other core


def queue_of(spec: OpSpec, engine: str) -> int:
    """Return the queue an instruction goes to."""
    if engine != "dma":
        return _QUEUE[engine]
    to_hbm = spec.operands[0].memory is HBM
    return STORES if to_hbm and any(p.memory is not HBM for p in spec.operands) else LOADS


@dataclass
class _Plan:
    """A trace whose instructions have engines and costs."""

    trace: Trace
    engines: list[str]
    works: list[cost.Work | None]
    transfers: list[cost.Transfer | None]
    queue_of: np.ndarray
    deps: Dependencies


def _plan(trace: Trace, hw: NeuronCore, on: frozenset[str]) -> _Plan:
    """Choose engines, and find costs and dependencies."""
    trace = share_out(trace, hw, "engines" in on)
    engines = [k.engine for k in trace.op_specs]
    works: list[cost.Work | None] = []
    transfers: list[cost.Transfer | None] = []
    for spec, engine in zip(trace.op_specs, engines):
        is_dma = engine == "dma"
        works.append(None if is_dma else cost.work(spec, hw, engine))
        transfers.append(cost.transfer(spec, hw) if is_dma else None)
    queues = np.array([queue_of(k, e) for k, e in zip(trace.op_specs, engines)] or [0], np.int64)
    deps = analyse(trace, hw, queues, "rename" in on)
    deps.by_use = "use-order" in on
    if "nests" in on:
        deps.fences = loop_nests.fences(trace, deps.queue)
    if "step-loads" in on:
        deps.lines = trace.instructions().line
    deps.leads = prefetch.waits(deps, trace.op_specs, works, transfers, hw, on)
    return _Plan(trace, engines, works, transfers, queues, deps)


def generators(hw: NeuronCore, dge: bool, on: frozenset[str]) -> int:
    """Return how many units make descriptors while the kernel runs."""
    return 0 if not dge else hw.timing.dge_units if "spread-dma" in on else 1


def schedule(
    trace: Trace,
    hw: NeuronCore,
    *,
    dge: bool = False,
    on: frozenset[str] = frozenset(compiler.DEFAULT),
    met: np.ndarray | None = None,
) -> Schedule:
    """Compute when each instruction runs; `dge`: hardware descriptor generation, `on`: what the
    compiler may do (compiler.py), `met`: when the other core lets each meeting happen.

    Tiles that do not fit are spilled: the schedule is then that of `Schedule.trace`, which has
    the instructions for it.
    """
    return _Core(trace, hw, dge, on, met).schedule()


def together(
    traces: list[Trace],
    hw: NeuronCore,
    *,
    dge: bool = False,
    on: frozenset[str] = frozenset(compiler.DEFAULT),
) -> list[Schedule]:
    """Compute when each instruction of cores that wait for each other runs; else as `schedule`.

    Where they meet (nisa.core_barrier, nisa.sendrecv) none goes on before all of them are there.
    """
    cores = [_Core(trace, hw, dge, on) for trace in traces]
    if len(cores) > 1 and len(cores[0].meetings):
        alone = [core.end() for core in cores]
        _meet(cores)
        for core, end in zip(cores, alone):
            core.waiting = core.end() - end
    return [core.schedule() for core in cores]


def _meet(cores: list[_Core]) -> None:
    """Run cores until each of their meetings is over when the last of them has come to it.

    What happens up to a time depends on earlier meetings alone. So a run whose meetings are right
    up to one of them shows when the cores come to that one: each run makes one more right at
    least, and what it showed of later ones is what the next run expects of them. A meeting is
    expected a hair too early: a core that comes later than that has come by itself.
    """
    count = len(cores[0].meetings)
    expected = np.zeros(count)
    for _ in range(2 * count + 2):
        early = np.maximum(expected - _EARLY, 0.0)
        for core in cores:
            core.meet(early)
        reached = np.max([core.reached() for core in cores], axis=0)
        shown = (reached > early + _EARLY / 2) | (early == 0.0)
        if (shown & (np.abs(reached - expected) <= 2 * _EARLY)).all():
            return
        expected = np.where(shown, reached, 0.0)  # expected too late: the next run shows when
    raise fail(
        "NKI-X02",
        "nkisim cannot tell when two cores meet",
        given=f"{count} meetings, which change from run to run",
        limit=f"{2 * count + 2} runs: each one settles a meeting or shows when it is",
        hint="this is a defect of nkisim: please report it with the kernel",
    )


class _Core:
    """A core and its schedule: the plan, and the times of its last run. `meetings`: the
    instructions at which it waits for another core, in program order."""

    def __init__(
        self,
        trace: Trace,
        hw: NeuronCore,
        dge: bool,
        on: frozenset[str],
        met: np.ndarray | None = None,
    ):
        self.hw, self.dge, self.on, self.waiting = hw, dge, on, 0.0
        unused = frozenset() if dge and hw.hwdge else frozenset(("software-elements",))
        self.written = compiler.rewrite(trace, hw, on - unused)
        overflow: dict[str, int] = {}
        rename = "rename" in on
        trace = self.written
        while True:
            self.plan = _plan(trace, hw, on)
            overflow.update(self.plan.deps.overflow)
            if "sbuf" in self.plan.deps.overflow:  # again, with instructions that spill
                spilled = (
                    _spilled(trace, hw, rename)
                    if "slice-spills" in on
                    else spill.spill_sbuf(trace, hw, rename)
                )
                self.plan = _plan(spilled, hw, on)
            meets = np.array([k.row.is_collective for k in self.plan.trace.op_specs] or [False])
            self.meetings = np.flatnonzero(meets[self.plan.deps.spec])
            self.plan.deps.meetings = self.meetings
            self.meet(met)
            if not self.times.psum_missing or "psum" in overflow:
                break
            overflow["psum"] = self.times.psum_missing
            trace = spill.spill_psum(trace, hw, rename)
        self.plan.deps.overflow = overflow

    def meet(self, met: np.ndarray | None) -> None:
        """Run with meetings that are not over before these times (microseconds)."""
        plan, deps = self.plan, self.plan.deps
        if met is not None and len(met) == len(self.meetings):
            deps.release = np.zeros(len(deps.spec))
            deps.release[self.meetings] = met
        self.times = events.run(
            deps,
            plan.queue_of.tolist(),
            plan.works,
            plan.transfers,
            self.hw,
            generators(self.hw, self.dge, self.on),
            self.hw.timing.compiler_window if "reorder" in self.on else 1,
        )

    def reached(self) -> np.ndarray:
        """Return when this core has come to each of its meetings."""
        return np.array(self.times.issue)[self.meetings]

    def end(self) -> float:
        """Return when all is done."""
        return max(self.times.seen, default=0.0)

    def schedule(self) -> Schedule:
        """Return the schedule of the last run."""
        spilled = (
            0
            if self.plan.trace is self.written
            else _hbm_bytes(self.plan.trace) - _hbm_bytes(self.written)
        )
        made = _schedule(self.plan, self.times, self.hw, spilled, self.dge)
        made.waiting_us = self.waiting
        return made


def _spilled(trace: Trace, hw: NeuronCore, rename: bool) -> Trace:
    """Return the trace with spills of whole tiles, or of slices where that moves much less.

    A tile that goes and comes back as a whole takes one DMA each way, and comes back before its
    first slice is used.
    """
    sunk = slices.sink_fills(trace, hw, rename)
    tiles = spill.spill_sbuf(sunk, hw, rename, room=True)
    parts = slices.cut(sunk, hw, rename)
    if parts is sunk:
        return tiles
    parts = spill.spill_sbuf(parts, hw, rename, room=True)
    least = _hbm_bytes(sunk)
    more = (_hbm_bytes(tiles) - least) / max(_hbm_bytes(parts) - least, 1)
    return parts if more > 1.0 + hw.timing.compiler_whole_share else tiles


def _hbm_bytes(trace: Trace) -> int:
    """Return the bytes that a trace moves to and from HBM."""
    return sum(
        n * (trace.op_specs[k].read_bytes + trace.op_specs[k].write_bytes)
        for k, n in trace.counts().items()
    )


def _schedule(
    plan: _Plan, times: events.Times, hw: NeuronCore, spilled: int, dge: bool
) -> Schedule:
    """Gather what a run says."""
    deps, engines, works = plan.deps, plan.engines, plan.works
    code = np.array([ENGINES.index(e) for e in engines] or [0], np.int8)
    triggers = np.array(_OF_QUEUE, np.int8)
    ran_on = code[deps.spec]
    hop = np.where(ran_on == ENGINES.index("dma"), 0.0, hw.timing.hop_us)
    busy = {e: 0.0 for e in ENGINES}
    interval = np.array([w.interval_us if w else 0.0 for w in works] or [0.0])
    for e, name in enumerate(ENGINES[:4]):
        busy[name] = float(interval[deps.spec[ran_on == e]].sum())
    busy["tensor"] = times.pe_busy
    trigger = np.array([cost.trigger_us(x, hw) if x else 0.0 for x in plan.transfers] or [0.0])
    for queue in TRIGGERED_BY:  # a trigger is an instruction of the engine
        busy[ENGINES[_OF_QUEUE[queue]]] += float(trigger[deps.spec[deps.queue == queue]].sum())
    software = np.array(
        [cost.descriptors_us(x, hw) if x and x.maker == "gpsimd" else 0.0 for x in plan.transfers]
        or [0.0]
    )
    busy["gpsimd"] += float(software[deps.spec].sum())
    busy["dma"] = times.dma_busy / hw.dma_engines
    return Schedule(
        np.array(times.start),
        np.array(times.seen) - hop,
        np.array(times.issue),
        np.array(times.pred, np.int32),
        ran_on,
        triggers[deps.queue],
        busy,
        times.dma,
        times.dma_ends,
        works,
        plan.transfers,
        engines,
        deps,
        plan.trace,
        spilled,
    )


__all__ = ["ENGINES", "Schedule", "schedule", "together"]
