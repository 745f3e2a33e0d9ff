"""The run itself: engines, DMA queues, DMA engines and banks of PSUM, in order of time.

Events are (time, queue) "this engine looks for work" and (time, QUEUES + instruction) "this DMA
reaches its engines". A queue takes, of the next `window` instructions of its engine, the first
that is ready; DMA triggers stay in order. What several compete for (DMA engines, the memory ports
that generation 2 shares) is served in order of time.

This is the inner loop of a prediction, so it works on flat lists, by instruction or by kind.
"""
from __future__ import annotations

from array import array
from dataclasses import dataclass
from heapq import heappop, heappush, heappushpop

import numpy as np

from ..chip.hw import NeuronCore
from ..trace.footprint import ACT, DVE, LOADS, PE, POOL, QUEUES, Dependencies
from . import cost
from .banks import Banks


@dataclass
class Times:
    """When each instruction was taken by its queue, started, and was seen to be done."""

    issue: list[float]
    start: list[float]
    seen: list[float]           # by those who wait for it
    pred: list[int]             # what it waited for last, or -1
    dma: np.ndarray             # DMAs as they were served
    dma_ends: np.ndarray        # when each of their engines was done
    pe_busy: float
    dma_busy: float             # of all DMA engines
    psum_missing: int           # bytes per partition of PSUM that were lent to end a deadlock


def _ports(deps: Dependencies, works: list[cost.Work | None], queue_of: list[int]
           ) -> list[tuple[int, ...]]:
    """Return the shared memory ports that each kind needs: 0 is SBUF between DVE and POOL, 1 is
    PSUM between DVE and ACT. A port that one engine alone uses does not count."""
    sides = ((DVE, POOL), (DVE, ACT))
    used = set(np.unique(deps.kind).tolist())
    wants = [[p for p, side in enumerate(sides) if k in used and q in side
              and w is not None and (w.sbuf, w.psum)[p]]
             for k, (q, w) in enumerate(zip(queue_of, works))]
    both = {p for p in (0, 1)
            if len({q for q, mine in zip(queue_of, wants) if p in mine}) == 2}
    return [tuple(p for p in mine if p in both) for mine in wants]


def run(deps: Dependencies, queue_of_kind: list[int], works: list[cost.Work | None],
        transfers: list[cost.Transfer | None], hw: NeuronCore, dge: bool, window: int) -> Times:
    """Run everything; `queue_of_kind`, `works` and `transfers` are by kind."""
    t = hw.timing
    n = len(deps.kind)
    kind_of, queue_of = deps.kind.tolist(), deps.queue.tolist()
    first_succ = np.searchsorted(deps.before, np.arange(n + 1)).tolist()
    succ = deps.after.tolist()
    missing = np.bincount(deps.after, minlength=n).tolist()
    items = [np.flatnonzero(deps.queue == q) for q in range(QUEUES)]
    places = np.empty(n, np.int64)
    for some in items:
        places[some] = np.arange(len(some))
    place, todo = places.tolist(), [some.tolist() for some in items]
    limit = [window if q < LOADS else 1 for q in range(QUEUES)]
    free = [0.0] * QUEUES
    latest = [0.0] * QUEUES                     # completion of DMAs stays in order on a queue
    start, issue, seen = [0.0] * n, [0.0] * n, [-1.0] * n
    pred = [-1] * n
    when = issue                                # when what an instruction waits for is there
    timing = [(0.0, 0.0, "") if w is None else (w.interval_us, w.latency_us + t.hop_us, w.table)
              for w in works]
    ports = _ports(deps, works, queue_of_kind) if t.shared_ports else []
    shared = any(ports)
    port = [0.0, 0.0]
    bank_of = deps.contended if t.shared_banks else {}
    bank_free: dict[int, float] = {}
    now_ready: list[list[int]] = [[] for _ in range(QUEUES)]
    later: list[list[tuple[float, int]]] = [[] for _ in range(QUEUES)]
    events: list[tuple[float, int]] = []
    due = [float("inf")] * QUEUES               # when the next event of a queue is
    never = float("inf")
    for q in range(LOADS):
        now_ready[q] = [i for i in todo[q][:limit[q]] if not missing[i]]
        if now_ready[q]:
            events.append((0.0, q))
            due[q] = 0.0
    table = ""
    # Tensor Engine clock: activity that counts, and whether the clock is full
    warm_after, cold = t.pe_warmup_us, t.pe_cold_factor
    credit, warm, pe_last = 0.0, warm_after <= 0, 0.0
    pe_busy = dma_busy = 0.0
    dge = dge and hw.hwdge
    trigger_us = [0.0 if x is None else t.dge_issue_us + t.dge_row_us * x.rows if dge
                  else t.dma_trigger_us for x in transfers]
    lead = t.dma_start_us
    fixed = t.dma_read_us + t.dma_done_us
    dma_us = [(0.0, 0) if x is None else (x.us, x.engines) for x in transfers]
    all_engines = hw.dma_engines
    engines = [0.0] * all_engines
    even, same = 0.0, True                      # all DMA engines are free at the same time
    # HBM serves so many bytes a microsecond; a DMA from HBM to HBM moves its bytes twice
    hbm_rate = hw.hbm_gbps * 1e3
    capped = 2 * all_engines * t.dma_engine_gbps > hw.hbm_gbps
    hbm_us = [0.0 if x is None else (x.hbm_read + x.hbm_write) / hbm_rate for x in transfers]
    hbm_free = 0.0
    dma_log, ends = array("q"), array("d")      # of an `even` DMA there is one end
    ends_of = array("q")
    banks = Banks(deps, hw.psum_bytes)
    need_banks, tile_of, left = banks.need, banks.tile, banks.left

    def look(q: int, at: float) -> None:
        """Let a queue look for work at a time, if it does not do so before."""
        if at < free[q]:
            at = free[q]
        if at < due[q]:
            due[q] = at
            heappush(events, (at, q))

    def trigger(q: int) -> None:
        """Trigger the next DMAs of a queue: in order, each when its data are there."""
        mine, h, now = todo[q], limit[q] - 1, free[q]
        end = len(mine)
        while h < end:
            i = mine[h]
            if missing[i]:
                break
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
    again: tuple[float, int] | None = None      # an event of the queue that ran last
    while True:
        if again is not None:
            at, q = heappushpop(events, again)
            again = None
        elif events:
            at, q = heappop(events)
        elif banks.blocked:                             # what holds PSUM waits for PSUM
            i = banks.force()
            heappush(later[queue_of[i]], (free[queue_of[i]], i))
            look(queue_of[i], 0.0)
            continue
        else:
            break
        if q >= QUEUES:                                 # a DMA reaches its engines
            i = q - QUEUES
            us, count = dma_us[kind_of[i]]
            if same and count == all_engines:
                if at > even:
                    even = at
                start[i] = even
                done = even = even + us
                if capped:
                    hbm_free = max(hbm_free, start[i]) + hbm_us[kind_of[i]]
                    if hbm_free > done:
                        done = even = hbm_free
                ends.append(done)
                ends_of.append(1)
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
                if capped:
                    hbm_free = max(hbm_free, begin) + hbm_us[kind_of[i]]
                    if hbm_free > done:                 # its engines wait for HBM
                        done = hbm_free
                        engines[:count] = [done] * count
                        ends[-count:] = array("d", [done] * count)
                ends_of.append(count)
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
                continue                                # it has looked earlier
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
                retry = banks.take(i, at)
                if retry:                               # no bank is free: it waits, others go on
                    if retry > 0.0:
                        heappush(coming, (retry, i))
                    if ready:
                        look(q, at)
                    elif coming:
                        look(q, coming[0][0])
                    continue
                for j in banks.awake():
                    heappush(later[queue_of[j]], (at, j))
                    look(queue_of[j], at)
            k = kind_of[i]
            ahead = limit[q]
            if ahead < len(todo[q]):                    # the window moves on
                j = todo[q][ahead]
                if not missing[j]:
                    if when[j] <= at:
                        heappush(ready, j)
                    else:
                        heappush(coming, (when[j], j))
            limit[q] = ahead + 1
            interval, latency, need = timing[k]
            if i in bank_of:
                bank = bank_of[i]
                if bank_free.get(bank, 0.0) > at:
                    at = bank_free[bank]
                bank_free[bank] = at + interval
            if shared:
                for p in ports[k]:
                    if port[p] > at:
                        at = port[p]
                for p in ports[k]:
                    port[p] = at + interval
            if q == PE:
                if warm_after:
                    credit -= at - pe_last
                    if credit <= 0.0:
                        credit, warm = 0.0, False
                    if not warm:
                        latency += interval * (cold - 1.0)
                        interval *= cold
                    credit += interval
                    if credit >= warm_after:
                        credit, warm = warm_after, True
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
                again = (at, q)
            elif coming:
                ready_at = coming[0][0]
                if ready_at < at:
                    ready_at = at
                due[q] = ready_at
                again = (ready_at, q)
        seen[i] = done
        tile = tile_of[i]
        if tile != -1:
            if tile >= 0 and left[tile] > 1:
                left[tile] -= 1
            else:
                for j in banks.release(i, done):
                    heappush(later[queue_of[j]], (done, j))
                    look(queue_of[j], done)
        for j in succ[first_succ[i]:first_succ[i + 1]]:
            if done > when[j]:
                when[j] = done
                pred[j] = i
            wanting = missing[j] = missing[j] - 1
            if not wanting:
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
    log = np.frombuffer(dma_log, np.int64)
    counts = np.array([c for _, c in dma_us])[deps.kind[log]] if len(log) else log
    listed = np.frombuffer(ends_of, np.int64)
    each = np.repeat(np.where(listed < counts, counts, 1), listed)      # engines of each end
    return Times(issue, start, seen, pred, log, np.repeat(np.frombuffer(ends, np.float64), each),
                 pe_busy, dma_busy, banks.forced)
