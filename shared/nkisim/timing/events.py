"""The run itself: engines, DMA queues, DMA engines and banks of PSUM, in order of time.

Events are (time, queue) "this engine looks for work" and (time, QUEUES + instruction) "this DMA
reaches its engines": one in the heap for each DMA queue. An engine takes, of the next
`window` instructions of its queue, the first that is ready; DMA triggers stay in order. What
several compete for (DMA engines, memory ports, banks of PSUM) is served in order of time.

This is the inner loop of a prediction: `_Run.run` goes round once an instruction, on flat lists;
what it decides between lies in engines.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappushpop

import numpy as np

from ..chip.hw import NeuronCore
from ..trace.footprint import ACT, DVE, LOADS, PE, POOL, QUEUES, Dependencies
from . import cost, prefetch
from .banks import Banks
from .engines import (
    BackgroundTransposes,
    CappedDmaEngines,
    DescriptorGenerators,
    DmaEngines,
    DmaQueue,
    Engine,
    ScalarEngine,
    SharedMemory,
    TensorEngine,
)


@dataclass
class Times:
    """When each instruction was taken by its queue, started, and was seen to be done."""

    issue: list[float]
    start: list[float]
    seen: list[float]  # by those who wait for it
    pred: list[int]  # what it waited for last, or -1
    dma: np.ndarray  # DMAs as they were served
    dma_ends: np.ndarray  # when each of their engines was done
    pe_busy: float
    dma_busy: float  # of all DMA engines
    psum_missing: int  # bytes per partition of PSUM that were lent to end a deadlock


def _ports(
    deps: Dependencies, works: list[cost.Work | None], queue_of: list[int], hw: NeuronCore
) -> list[tuple[int, ...]]:
    """Return the shared memory ports that each spec needs: 0 is SBUF between DVE and POOL, 1 is
    PSUM between DVE and ACT. A port that one engine alone uses does not count."""
    t, used = hw.timing, set(np.unique(deps.spec).tolist())

    def needs(w: cost.Work, q: int) -> list[int]:
        bus = t.shared_ports or t.shared_fast_port and (w.fast or q == POOL)
        sides = ((DVE, POOL), w.sbuf and bus), ((DVE, ACT), w.psum and t.shared_ports)
        return [p for p, (side, there) in enumerate(sides) if q in side and there]

    wants = [
        needs(w, q) if k in used and w is not None else []
        for k, (q, w) in enumerate(zip(queue_of, works))
    ]
    both = {p for p in (0, 1) if len({q for q, ports in zip(queue_of, wants) if p in ports}) == 2}
    return [tuple(p for p in ports if p in both) for ports in wants]


def run(
    deps: Dependencies,
    queue_of_spec: list[int],
    works: list[cost.Work | None],
    transfers: list[cost.Transfer | None],
    hw: NeuronCore,
    dge: int,
    window: int,
) -> Times:
    """Run everything; `queue_of_spec`, `works` and `transfers` are by spec.

    `dge`: how many units make descriptors meanwhile; 0: all were made by the compiler.
    """
    return _Run(deps, queue_of_spec, works, transfers, hw, dge if hw.hwdge else 0, window).run()


def _shared(
    deps: Dependencies, works: list[cost.Work | None], queue_of_spec: list[int], hw: NeuronCore
) -> SharedMemory | None:
    """Return what engines exclude each other from, None if that is nothing."""
    t = hw.timing
    ports = _ports(deps, works, queue_of_spec, hw) if t.shared_ports or t.shared_fast_port else []
    banks = deps.contended if t.shared_banks else {}
    if not any(ports) and not banks:
        return None
    return SharedMemory(
        banks, ports if any(ports) else [], [0.0 if w is None else w.interval_us for w in works]
    )


def _dma_engines(transfers: list[cost.Transfer | None], hw: NeuronCore) -> DmaEngines:
    """Return the DMA engines; with HBM behind them if it may be slower.

    HBM serves so many bytes a microsecond; a DMA from HBM to HBM moves its bytes twice.
    """
    times = [(0.0, 0) if x is None else (x.us, x.engines) for x in transfers]
    if 2 * hw.dma_engines * hw.timing.dma_engine_gbps <= hw.hbm_gbps:
        return DmaEngines(hw.dma_engines, times)
    rate = hw.hbm_gbps * 1e3
    return CappedDmaEngines(
        hw.dma_engines,
        times,
        [0.0 if x is None else (x.hbm_read + x.hbm_write) / rate for x in transfers],
    )


class _Run:
    """The state of a run. Lists have an element per instruction.

    `when`: when all that an instruction waits for is there, as far as is known; it is the list
    `issue`, which gets its final value when the instruction is taken. `missing`: how many it still
    waits for; `place`: its number in its queue, `queue_of`; `succ`, from `first_succ` on: who
    waits for it; `pred`: whom it waited for last, for data or for banks of PSUM. `tile_of`, `left`,
    `need_banks`: see Banks.
    """

    __slots__ = (
        "deps",
        "spec_of",
        "queue_of",
        "succ",
        "first_succ",
        "missing",
        "place",
        "start",
        "issue",
        "when",
        "seen",
        "pred",
        "events",
        "queues",
        "tensor",
        "dma",
        "after_dma",
        "generators",
        "by_software",
        "software_done",
        "shared",
        "banks",
        "put_off",
        "need_banks",
        "tile_of",
        "left",
    )

    def __init__(
        self,
        deps: Dependencies,
        queue_of_spec: list[int],
        works: list[cost.Work | None],
        transfers: list[cost.Transfer | None],
        hw: NeuronCore,
        dge: int,
        window: int,
    ):
        n = len(deps.spec)
        self.deps = deps
        self.spec_of = deps.spec.tolist()
        before, after = deps.waits()
        self.first_succ = [0, *np.cumsum(np.bincount(before, minlength=n)).tolist()]
        self.succ = after.tolist()
        self.missing = np.bincount(after, minlength=n).tolist()
        self.start, self.seen, self.pred = [0.0] * n, [-1.0] * n, [-1] * n
        self.issue = self.when = [0.0] * n if deps.release is None else deps.release.tolist()
        self.events: list[tuple[float, int]] = []
        self.banks = Banks(deps, hw.psum_bytes, hw.timing.compiler_psum_share)
        self.put_off: set[int] = set()  # who had to wait for banks
        self.need_banks, self.tile_of, self.left = (
            self.banks.need,
            self.banks.tile,
            self.banks.left,
        )
        self.shared = _shared(deps, works, queue_of_spec, hw)
        self.dma = _dma_engines(transfers, hw)
        makers = ["" if x is None else x.maker for x in transfers]
        self.by_software = [m == "gpsimd" for m in makers]
        self.software_done = 0.0
        self.generators = (
            DescriptorGenerators(
                dge, [0.0 if x is None else cost.descriptors_us(x, hw) for x in transfers], makers
            )
            if dge or any(self.by_software)
            else None
        )
        self.after_dma = hw.timing.dma_read_us + hw.timing.dma_done_us
        self._make_queues(works, transfers, hw, window)

    def _make_queues(
        self,
        works: list[cost.Work | None],
        transfers: list[cost.Transfer | None],
        hw: NeuronCore,
        window: int,
    ) -> None:
        """Make the queues, and let them begin."""
        t, queue = hw.timing, self.deps.queue
        items = [np.flatnonzero(queue == q) for q in range(QUEUES)]
        if self.deps.by_use:
            items[LOADS] = prefetch.by_use(self.deps)
        places = np.empty(len(queue), np.int64)
        for some in items:
            places[some] = np.arange(len(some))
        self.place = places.tolist()
        todo = [some.tolist() for some in items]
        costs = [
            (0.0, 0.0, "") if w is None else (w.interval_us, w.latency_us + t.hop_us, w.table)
            for w in works
        ]
        rows = [1.0 if w is None else w.rows for w in works]
        engine = (PE, todo[PE], window, costs, self.events, t, rows)
        self.tensor = TensorEngine(*engine)
        if t.pe_background_transposes:
            self.tensor = BackgroundTransposes(
                *engine,
                transposes=[w is not None and w.transposes for w in works],
                least=t.pe_gap_cycles / hw.ghz("tensor") / 1e3,
            )
        special: dict[int, Engine] = {
            PE: self.tensor,
            ACT: ScalarEngine(ACT, todo[ACT], window, costs, self.events, t),
        }
        engines = [
            special.get(q) or Engine(q, todo[q], window, costs, self.events) for q in range(LOADS)
        ]
        trigger_us = [0.0 if x is None else cost.trigger_us(x, hw) for x in transfers]
        dma_queues = [
            DmaQueue(
                todo[q],
                trigger_us,
                self.spec_of,
                self.events,
                self.issue,
                self.missing,
                t.dma_start_us,
            )
            for q in range(LOADS, QUEUES)
        ]
        self.queues: list = [*engines, *dma_queues]
        self.queue_of = [self.queues[q] for q in queue.tolist()]
        for q, fences in self.deps.fences.items():
            engines[q].stop_at(fences)
        for e in engines:
            e.begin(self.missing, self.when)
        for d in dma_queues:
            d.wake()

    def run(self) -> Times:
        """Take the events in order of time until there are none."""
        events, queues, queue_of, need_banks = (
            self.events,
            self.queues,
            self.queue_of,
            self.need_banks,
        )
        again: tuple[float, int] | None = None  # an event of the queue that ran last
        while True:
            if again is not None:
                at, q = heappushpop(events, again)
                again = None
            elif events:
                at, q = heappop(events)
            elif self.banks.blocked:  # what holds PSUM waits for PSUM
                i = self.banks.force()
                queue_of[i].wake(i, queue_of[i].free)
                continue
            else:
                return self._times()
            if q < QUEUES:
                engine = queues[q]
                if at != engine.due:  # it has looked earlier
                    continue
                i = engine.take(at)
                if i < 0 or i in need_banks and not self._take_banks(i, engine, at):
                    continue
                self._start(i, engine, at)
                done, again = engine.done, engine.next_look()
            else:
                i = q - QUEUES
                queue = queue_of[i]
                done, again = self._serve(i, queue, at), queue.again
            self._tell(i, done)

    def _start(self, i: int, engine: Engine, at: float) -> None:
        """Let an engine run the instruction that it has taken."""
        engine.move_window(self.missing, self.when)
        spec = self.spec_of[i]
        if self.shared is not None:
            at = self.shared.claim(i, spec, at)
        self.issue[i] = self.start[i] = engine.charge(spec, at)

    def _tell(self, i: int, done: float) -> None:
        """Note when an instruction is done, free its banks, and wake the instructions that wait."""
        when, missing, place = self.when, self.missing, self.place
        self.seen[i] = done
        tile = self.tile_of[i]  # of the instruction in PSUM, -1 if none
        if tile >= 0 and self.left[tile] > 1:  # others still use its only one
            self.left[tile] -= 1
        elif tile != -1:
            self._leave_banks(i, done)
        for j in self.succ[self.first_succ[i] : self.first_succ[i + 1]]:
            if done > when[j]:
                when[j] = done
                self.pred[j] = i
            missing[j] -= 1
            if not missing[j]:
                queue = self.queue_of[j]
                if place[j] < queue.limit:
                    queue.wake(j, when[j])

    def _serve(self, i: int, queue: DmaQueue, at: float) -> float:
        """Let a DMA, the first in its queue, have the DMA engines; return when it is done."""
        spec = self.spec_of[i]
        if self.generators is not None:
            at = self.generators.make(spec, at)
        self.start[i], done = self.dma.serve(i, spec, at)
        done += self.after_dma
        if self.by_software[spec]:  # a queue of its own
            self.software_done = done = max(self.software_done, done)
        elif done > queue.done:  # completions stay in order on a queue
            queue.done = done
        else:
            done = queue.done
        queue.next_arrival()
        return done

    def _take_banks(self, i: int, engine: Engine, at: float) -> bool:
        """Take the banks of PSUM that an instruction is the first to need, if they are free."""
        retry = self.banks.take(i, at)
        if retry:
            engine.put_off(i, at, retry)
            self.put_off.add(i)
            return False
        if i in self.put_off and self.banks.freed > self.when[i]:
            self.pred[i] = self.banks.freed_by  # later than the data that it waited for
        for j in self.banks.awake():  # they may try again
            self.queue_of[j].wake(j, at)
        return True

    def _leave_banks(self, i: int, at: float) -> None:
        """Give back the banks of tiles in PSUM that an instruction was the last to use."""
        for j in self.banks.release(i, at):  # they may try again
            self.queue_of[j].wake(j, at)

    def _times(self) -> Times:
        served, ends, dma_busy = self.dma.log(self.deps.spec)
        return Times(
            self.issue,
            self.start,
            self.seen,
            self.pred,
            served,
            ends,
            self.tensor.busy,
            dma_busy,
            self.banks.forced,
        )
