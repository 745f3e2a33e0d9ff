"""The event model: when each instruction of a trace runs, on which engine.

Each engine takes its instructions in order, one at a time, when the data they wait for are there.
DMAs are triggered by queues, in order too, and share 16 DMA engines that serve requests as they
arrive. What several engines compete for (DMA engines, the shared memory ports of generation 2) is
served in order of time: queues first run ahead as far as nothing shared is needed, then the
earliest request is served. That is exact, because what follows a request is never earlier than it.
"""
from __future__ import annotations

import gc
from array import array
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from . import cost
from .footprint import ACT, DVE, LOADS, PE, POOL, QUEUES, STORES, Dependencies, analyse
from .hw import NeuronCore
from .memory import HBM, PSUM
from .table import ANY
from .trace import Kind, Storages, Trace

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
_QUEUE = {"tensor": PE, "vector": DVE, "scalar": ACT, "gpsimd": POOL, "sync": LOADS}
#: how far ahead of the oldest waiting instruction of an engine the compiler looks for one that is
#: ready: AWS's compiler reorders instructions, also where it keeps the order of loops. Fitted:
#: 1 (as written) is up to 3 times too slow, 16 is enough for most kernels, attention over long
#: rows needs some 200.
WINDOW = 256
#: the engine whose queue triggers DMAs: loads on Sync, stores on GpSimd (as in profiles)
TRIGGERED_BY = {LOADS: ENGINES.index("sync"), STORES: ENGINES.index("gpsimd")}


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
    works: list[cost.Work | None]           # by kind
    transfers: list[cost.Transfer | None]   # by kind
    deps: Dependencies


def assign_engines(kinds: list[Kind], counts: dict[int, int], hw: NeuronCore) -> list[str]:
    """Choose the engines of copies that leave it open: the one with less to do, by workload.

    What must run somewhere is counted first; then the largest kinds choose. PSUM drains go to
    the Scalar Engine when it makes no difference, as in profiles.
    """
    load = {"vector": 0.0, "scalar": 0.0}
    out = [k.engine for k in kinds]
    open_: list[tuple[float, int]] = []
    for k, kind in enumerate(kinds):
        if kind.engine == ANY:
            open_.append((cost.work(kind, hw, "vector").interval_us * counts.get(k, 0), k))
        elif kind.engine in load:
            load[kind.engine] += cost.work(kind, hw, kind.engine).interval_us * counts.get(k, 0)
    for _, k in sorted(open_, reverse=True):
        psum = any(p.kind is PSUM for p in kinds[k].operands)
        took = {e: cost.work(kinds[k], hw, e).interval_us * counts.get(k, 0) for e in load}
        best = min(load, key=lambda e: (round(load[e] + took[e], 3), (e == "vector") == psum))
        out[k] = best
        load[best] += took[best]
    return out


def _queue_of(kind: Kind, engine: str) -> int:
    """Return the queue an instruction goes to."""
    if engine != "dma":
        return _QUEUE[engine]
    to_hbm = kind.operands[0].kind is HBM
    return STORES if to_hbm and any(p.kind is not HBM for p in kind.operands) else LOADS


def schedule(trace: Trace, storages: Storages, hw: NeuronCore, *, dge: bool = False,
             window: int = WINDOW) -> Schedule:
    """Compute when each instruction runs; `dge`: hardware descriptor generation."""
    counts = trace.counts()
    engines = assign_engines(trace.kinds, counts, hw)
    works: list[cost.Work | None] = []
    transfers: list[cost.Transfer | None] = []
    for kind, engine in zip(trace.kinds, engines):
        is_dma = engine == "dma"
        works.append(None if is_dma else cost.work(kind, hw, engine))
        transfers.append(cost.transfer(kind, hw) if is_dma else None)
    queue_of = np.array([_queue_of(k, e) for k, e in zip(trace.kinds, engines)] or [0], np.int64)
    collecting = gc.isenabled()
    gc.disable()                        # millions of small lists, and no garbage among them
    try:
        deps = analyse(trace, storages, hw, queue_of)
        run = _Run(deps, works, transfers, hw, dge, window)
        run.simulate()
    finally:
        if collecting:
            gc.enable()
    code = np.array([ENGINES.index(e) for e in engines] or [0], np.int8)
    triggers = np.array([0, 1, 2, 3, TRIGGERED_BY[LOADS], TRIGGERED_BY[STORES]], np.int8)
    kinds = np.array(deps.kind, np.int64)
    start, end = np.array(run.start), np.array(run.seen)
    ran_on = code[kinds] if len(kinds) else np.zeros(0, np.int8)
    hop = np.where(ran_on == ENGINES.index("dma"), 0.0, hw.timing.hop_us)
    busy = {e: 0.0 for e in ENGINES}
    for e, name in enumerate(ENGINES[:4]):
        sel = kinds[ran_on == e]
        if len(sel):
            busy[name] = float(np.array([w.interval_us if w else 0.0 for w in works])[sel].sum())
    busy["tensor"] = run.pe_busy
    busy["sync"] = hw.timing.dma_trigger_us * int((queue_of[kinds] == LOADS).sum()) \
        if len(kinds) else 0.0
    busy["dma"] = run.dma_busy / hw.dma_engines
    return Schedule(start, end - hop, np.array(run.issue), np.array(run.pred, np.int32), ran_on,
                    triggers[queue_of[kinds]] if len(kinds) else ran_on, busy,
                    np.array(run.dma, np.int64), np.frombuffer(run.dma_ends, np.float64),
                    works, transfers, deps)


class _Run:
    """The state of one simulation: what each queue is at, when what is free."""

    def __init__(self, deps: Dependencies, works: list, transfers: list, hw: NeuronCore,
                 dge: bool, window: int):
        self.window = window
        self.hw, self.deps, self.dge = hw, deps, dge
        self.works, self.transfers = works, transfers
        n = len(deps.kind)
        self.start, self.issue = [0.0] * n, [0.0] * n
        self.seen = [-1.0] * n          # when those who wait see that it is done
        self.pred = [-1] * n
        self.dma: list[int] = []
        self.dma_ends = array("d")
        self.pe_busy = self.dma_busy = 0.0
        # memory ports that generation 2 shares, if both sides use them
        self.port = [0.0, 0.0]          # SBUF between DVE and POOL, PSUM between DVE and ACT
        self.ports_of = self._ports() if hw.timing.shared_ports else {}

    def _ports(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return {(queue, kind): ports it needs} for ports that two engines compete for."""
        users: list[dict[int, set[int]]] = [{}, {}]
        for k, q in set(zip(self.deps.kind, self.deps.queue)):
            w = self.works[k]
            if w is None:
                continue
            if w.sbuf and q in (DVE, POOL):
                users[0].setdefault(q, set()).add(k)
            if w.psum and q in (DVE, ACT):
                users[1].setdefault(q, set()).add(k)
        out: dict[tuple[int, int], tuple[int, ...]] = {}
        for port, by_queue in enumerate(users):
            if len(by_queue) == 2:
                for q, ks in by_queue.items():
                    for k in ks:
                        out[q, k] = (*out.get((q, k), ()), port)
        return out

    def simulate(self) -> None:
        """Run everything, in order of time.

        Events are (time, queue) "this engine looks for work" and (time, QUEUES + instruction)
        "this DMA reaches its engines". A queue takes, of the next `window` instructions of its
        engine, the first one that is ready: a compiler schedules what the kernel says within such
        a distance. DMA triggers stay in order.
        """
        deps, t = self.deps, self.hw.timing
        kind_of, queue_of = deps.kind, deps.queue
        n = len(kind_of)
        succ, first_succ, missing = _successors(deps, n)
        queue = np.array(queue_of, np.int64)
        items = [np.flatnonzero(queue == q).tolist() for q in range(QUEUES)]
        place = np.empty(n, np.int64)
        for todo in items:
            place[todo] = np.arange(len(todo))
        place = place.tolist()                          # type: ignore[assignment]
        limit = [self.window if q < LOADS else 1 for q in range(QUEUES)]
        free = [0.0] * QUEUES
        latest = [0.0] * QUEUES                 # completion of DMAs stays in order on a queue
        seen, start, issue, pred = self.seen, self.start, self.issue, self.pred
        when = issue                            # when what an instruction waits for is there
        none = (0.0, 0.0, "")
        timing = [none if w is None else (w.interval_us, w.latency_us + t.hop_us, w.table)
                  for w in self.works]
        ports_of, port = self.ports_of, self.port
        now_ready: list[list[int]] = [[] for _ in range(QUEUES)]
        later: list[list[tuple[float, int]]] = [[] for _ in range(QUEUES)]
        events: list[tuple[float, int]] = []
        never = float("inf")
        due = [never] * QUEUES                  # when the next event of a queue is
        for q in range(LOADS):
            now_ready[q] = [i for i in items[q][:limit[q]] if not missing[i]]
            if now_ready[q]:
                events.append((0.0, q))
                due[q] = 0.0
        table = ""
        # Tensor Engine clock: activity that counts, and whether the clock is full
        window, cold = t.pe_warmup_us, t.pe_cold_factor
        credit, warm, pe_last = 0.0, window <= 0, 0.0
        pe_busy = dma_busy = 0.0
        dge = self.dge and t.dge_rings > 0
        trigger_us = [0.0 if x is None else t.dge_issue_us + t.dge_row_us * x.rows if dge
                      else t.dma_trigger_us for x in self.transfers]
        lead = t.dma_start_us
        fixed = t.dma_read_us + t.dma_done_us
        dma_us = [(0.0, 0) if x is None else (x.us, x.engines) for x in self.transfers]
        all_engines = self.hw.dma_engines
        engines = [0.0] * all_engines
        even, same = 0.0, True                  # all DMA engines are free at the same time
        dma_log, ends = self.dma, self.dma_ends
        banks = _Banks(deps, self.hw.psum_bytes)
        need_banks, psum_use = banks.need, deps.psum_use

        def look(q: int, at: float) -> None:
            """Let a queue look for work at a time, if it does not do so before."""
            if at < free[q]:
                at = free[q]
            if at < due[q]:
                due[q] = at
                heappush(events, (at, q))

        def trigger(q: int) -> None:
            """Trigger the next DMAs of a queue: in order, each when its data are there."""
            todo, h, now = items[q], limit[q] - 1, free[q]
            while h < len(todo) and not missing[todo[h]]:
                i = todo[h]
                at = when[i]
                if at < now:
                    at = now
                issue[i] = at
                now = at + trigger_us[kind_of[i]]
                heappush(events, ((now if dge else at) + lead, QUEUES + i))
                h += 1
            limit[q], free[q] = h + 1, now

        for q in range(LOADS, QUEUES):
            trigger(q)
        while events or banks.blocked:
            if not events:                              # what holds PSUM waits for PSUM
                i = banks.force()
                heappush(later[queue_of[i]], (free[queue_of[i]], i))
                look(queue_of[i], 0.0)
            at, q = heappop(events)
            if q >= QUEUES:                             # a DMA reaches its engines
                i = q - QUEUES
                k = kind_of[i]
                us, count = dma_us[k]
                if same and count == all_engines:
                    if at > even:
                        even = at
                    start[i] = even
                    done = even = even + us
                    ends.extend([done] * count)
                else:
                    if same:
                        engines, same = [even] * all_engines, False
                    begin, done = 1e300, 0.0
                    for e in range(count):
                        s = engines[e]
                        if at > s:
                            s = at
                        if s < begin:
                            begin = s
                        s += us
                        engines[e] = s
                        if s > done:
                            done = s
                        ends.append(s)
                    start[i] = begin
                    if count == all_engines and min(engines) == done:
                        same, even = True, done
                dma_log.append(i)
                dma_busy += us * count
                done += fixed
                q = queue_of[i]
                if done < latest[q]:
                    done = latest[q]
                latest[q] = done
            else:
                if at != due[q]:
                    continue                            # it has looked earlier
                due[q] = never
                ready, coming = now_ready[q], later[q]
                while coming and coming[0][0] <= at:
                    heappush(ready, heappop(coming)[1])
                if not ready:
                    if coming:
                        look(q, coming[0][0])
                    continue
                i = heappop(ready)
                if i in need_banks:
                    again = banks.take(i, at)
                    if again:                           # no bank is free: it waits, others go on
                        if again > 0.0:
                            heappush(coming, (again, i))
                        if ready:
                            look(q, at)
                        elif coming:
                            look(q, coming[0][0])
                        continue
                    for j in banks.awake():
                        heappush(later[queue_of[j]], (at, j))
                        look(queue_of[j], at)
                k = kind_of[i]
                if limit[q] < len(items[q]):            # the window moves on
                    j = items[q][limit[q]]
                    if not missing[j]:
                        if when[j] <= at:
                            heappush(ready, j)
                        else:
                            heappush(coming, (when[j], j))
                limit[q] += 1
                interval, latency, need = timing[k]
                if ports_of and (q, k) in ports_of:
                    for p in ports_of[q, k]:
                        if port[p] > at:
                            at = port[p]
                    for p in ports_of[q, k]:
                        port[p] = at + interval
                if q == PE:
                    if window:
                        credit -= at - pe_last
                        if credit <= 0.0:
                            credit, warm = 0.0, False
                        if not warm:
                            latency += interval * (cold - 1.0)
                            interval *= cold
                        credit += interval
                        if credit >= window:
                            credit, warm = window, True
                        pe_last = at + interval
                    pe_busy += interval
                elif need and need != table:
                    table = need
                    at += t.act_table_us
                issue[i] = start[i] = at
                done = at + latency
                at += interval
                free[q] = at
                if ready:
                    due[q] = at
                    heappush(events, (at, q))
                elif coming:
                    look(q, coming[0][0])
            seen[i] = done
            if i in psum_use:
                for j in banks.release(i, done):
                    heappush(later[queue_of[j]], (done, j))
                    look(queue_of[j], done)
            for x in range(first_succ[i], first_succ[i + 1]):
                j = succ[x]
                if done > when[j]:
                    when[j] = done
                    pred[j] = i
                left = missing[j] = missing[j] - 1
                if not left:
                    q = queue_of[j]
                    if place[j] < limit[q]:
                        if q >= LOADS:
                            trigger(q)
                            continue
                        ready_at = when[j]
                        heappush(later[q], (ready_at, j))
                        if ready_at < free[q]:
                            ready_at = free[q]
                        if ready_at < due[q]:
                            due[q] = ready_at
                            heappush(events, (ready_at, q))
        self.pe_busy, self.dma_busy = pe_busy, dma_busy
        if banks.forced:
            deps.overflow["psum"] = banks.forced


class _Banks:
    """Banks of PSUM, taken by the first access to a tile and free after the last one.

    What comes later in the program leaves half of the banks to what comes before it.
    """

    def __init__(self, deps: Dependencies, capacity: int):
        v = deps.versions
        self.size = np.minimum(v.bytes, capacity).tolist()
        self.use = deps.psum_use
        self.left: dict[int, int] = {}
        self.need: dict[int, int] = {}          # by first access, until it has been served
        for i, tiles in self.use.items():
            for t in tiles:
                if t not in self.left:
                    self.left[t] = 0
                    self.need[i] = min(capacity, self.need.get(i, 0) + self.size[t])
                self.left[t] += 1
        self.order = sorted(self.need)
        self.oldest = 0
        self.free, self.reserve = capacity, capacity // 2
        self.coming: list[tuple[float, int]] = []       # (time, bytes) that will be free
        self.blocked: set[int] = set()
        self.trying = -1        # of those that wait, one at a time tries when a bank gets free
        self.forced = 0

    def take(self, i: int, at: float) -> float:
        """Take banks for instruction `i`: 0.0, or when to try again, or -1.0 (it will be told)."""
        coming = self.coming
        while coming and coming[0][0] <= at:
            self.free += heappop(coming)[1]
        oldest = self.order[self.oldest] == i
        if self.free - self.need[i] < (0 if oldest else self.reserve):
            if coming and (oldest or self.trying in (-1, i)):
                if not oldest:
                    self.trying = i
                return coming[0][0]
            if self.trying == i:
                self.trying = -1
            self.blocked.add(i)
            return -1.0
        if self.trying == i:
            self.trying = -1
        self.free -= self.need.pop(i)
        return 0.0

    def awake(self) -> list[int]:
        """Return who may try now, after somebody has taken banks."""
        order, before = self.order, self.oldest
        while self.oldest < len(order) and order[self.oldest] not in self.need:
            self.oldest += 1
        told: list[int] = []
        if not self.blocked:
            return told
        if self.oldest != before and order[self.oldest] in self.blocked:
            told.append(order[self.oldest])
            self.blocked.discard(order[self.oldest])
        if self.trying < 0 and self.blocked:
            told.append(min(self.blocked))
            self.blocked.discard(told[-1])
        return told

    def release(self, i: int, done: float) -> list[int]:
        """Note that `i` is done with its tiles; return who may try then."""
        freed = False
        for t in self.use[i]:
            self.left[t] -= 1
            if not self.left[t]:
                heappush(self.coming, (done, self.size[t]))
                freed = True
        if not freed or not self.blocked or self.trying >= 0:
            return []
        first = min(self.blocked)
        self.blocked.discard(first)
        return [first]

    def force(self) -> int:
        """Let the oldest waiting instruction go ahead, with banks that do not exist."""
        i = min(self.blocked)
        self.blocked.remove(i)
        self.forced += self.need[i]
        self.free += self.need[i] + self.reserve
        return i


def _successors(deps: Dependencies, n: int) -> tuple[list[int], list[int], list[int]]:
    """Return who waits for each instruction (flat, with starts), and for how many each waits."""
    order = np.argsort(deps.before, kind="stable")
    starts = np.searchsorted(deps.before[order], np.arange(n + 1))
    missing = np.bincount(deps.after, minlength=n)
    return deps.after[order].tolist(), starts.tolist(), missing.tolist()


__all__ = ["ENGINES", "Schedule", "assign_engines", "schedule"]
