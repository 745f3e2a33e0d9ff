"""Who serves instructions: compute engines with their queues, DMA queues, and the DMA engines.

A queue says when it looks for work by an event (time, number of the queue) in the heap of the run
(events.py). Whatever is done once an instruction lies in few calls and plain attributes: these are
the inner loops of a prediction. All times are microseconds.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import Any

import numpy as np

from ..chip.hw import Timing
from ..trace.footprint import QUEUES

NEVER = float("inf")


class Engine:
    """A compute engine and its queue: of the instructions in its window it takes the first ready.

    `todo`: its instructions in program order; those before `limit` are in the window or
    have run; those from `end` on wait until all before have begun, and `held` places of the window
    with them; `fences`: the ends to come, the next one last; `ready`: heap of those that can run,
    by program order; `coming`: heap of (when its data are there, instruction); `free`: when the
    engine is; `due`: when it looks for work next; `done`: when the instruction that ran last is.
    `cost`: (interval, latency, activation table) by spec.
    """

    __slots__ = (
        "number",
        "todo",
        "end",
        "limit",
        "window",
        "held",
        "fences",
        "ready",
        "coming",
        "free",
        "due",
        "done",
        "cost",
        "events",
    )

    def __init__(
        self,
        number: int,
        todo: list[int],
        window: int,
        cost: list[tuple[float, float, str]],
        events: list,
    ):
        self.number, self.todo, self.end, self.limit = number, todo, len(todo), window
        self.window, self.held, self.fences = window, 0, list[int]()
        self.cost, self.events = cost, events
        self.ready: list[int] = []
        self.coming: list[tuple[float, int]] = []
        self.free, self.due, self.done = 0.0, NEVER, 0.0

    def stop_at(self, places: list[int]) -> None:
        """Let what is at these places of `todo`, and behind, wait until all before has begun."""
        self.fences = [self.end, *reversed(places)]
        self.end = self.fences.pop()
        self.limit = min(self.limit, self.end)
        self.held = self.window - self.limit

    def go_on(self) -> list[int]:
        """Note that the window cannot move; return what comes into it if all before has begun."""
        self.held += 1
        if not self.fences or self.held < self.window:
            return []
        first, self.end = self.end, self.fences.pop()
        self.limit = min(self.end, first + self.window)
        self.held -= self.limit - first
        return self.todo[first : self.limit]

    def begin(self, missing: list[int], when: list[float]) -> None:
        """Make ready what waits for nothing; some may not begin at once."""
        for i in self.todo[: self.limit]:
            if not missing[i]:
                if when[i]:
                    self.wake(i, when[i])
                else:
                    self.ready.append(i)
        if self.ready:
            self.poll(0.0)

    def poll(self, at: float) -> None:
        """Look for work at a time, unless that is done before."""
        if at < self.free:
            at = self.free
        if at < self.due:
            self.due = at
            heappush(self.events, (at, self.number))

    def wake(self, i: int, at: float) -> None:
        """Note that an instruction in the window can run from `at` on."""
        heappush(self.coming, (at, i))
        if at < self.free:  # poll(at), written out: this is done very often
            at = self.free
        if at < self.due:
            self.due = at
            heappush(self.events, (at, self.number))

    def take(self, at: float) -> int:
        """Return the first instruction that is ready; -1 if none is, and it looks again later."""
        self.due = NEVER
        ready, coming = self.ready, self.coming
        while coming and coming[0][0] <= at:
            heappush(ready, heappop(coming)[1])
        if ready:
            return heappop(ready)
        if coming:
            self.poll(coming[0][0])
        return -1

    def move_window(self, missing: list[int], when: list[float]) -> None:
        """Let the next instruction into the window, in place of one that was taken."""
        if self.limit < self.end:
            i = self.todo[self.limit]
            self.limit += 1
            if not missing[i]:
                heappush(self.coming, (when[i], i))
        elif self.fences:
            for i in self.go_on():
                if not missing[i]:
                    heappush(self.coming, (when[i], i))

    def next_look(self) -> tuple[float, int] | None:
        """Return the event at which it looks for work again; None if it has none."""
        at = self.free
        if not self.ready:
            if not self.coming:
                return None
            at = max(at, self.coming[0][0])
        self.due = at
        return at, self.number

    def put_off(self, i: int, at: float, retry: float) -> None:
        """Leave instruction `i` until `retry`, or (-1.0) until it is told; others go on."""
        if retry > 0.0:
            heappush(self.coming, (retry, i))
        if self.ready:
            self.poll(at)
        elif self.coming:
            self.poll(self.coming[0][0])

    def charge(self, spec: int, at: float) -> float:
        """Run an instruction of a spec; return when it starts. Sets `free` and `done`."""
        interval, latency, _ = self.cost[spec]
        self.free, self.done = at + interval, at + latency
        return at


class TensorEngine(Engine):
    """The Tensor Engine, whose clock is full only while it has much to do.

    Time is cut into windows. After one in which the engine was busy for more than a share `full`,
    its clock is full; after one of `half` or less it is half; else it stays. No source says to the
    instruction what falls into which window, so a share is taken to be anything within `spread`
    of what it is here, and `warm` is how likely the clock is full: what an instruction takes is
    the mean, and no kernel is half as fast for a hair. An instruction counts for the `rows` of
    the engine that it uses, by spec; what of it reaches into the next window counts there as if
    it used all. `until`: the end of the window; `used`: how long the engine was busy in it;
    `busy`: how long altogether. `warmer`: (interval, latency, what counts) by spec at full clock.
    """

    __slots__ = (
        "window_us",
        "full",
        "half",
        "spread",
        "cold",
        "until",
        "used",
        "warm",
        "busy",
        "warmer",
    )

    def __init__(
        self,
        number: int,
        todo: list[int],
        window: int,
        cost: list[tuple[float, float, str]],
        events: list,
        t: Timing,
        rows: list[float],
    ):
        super().__init__(number, todo, window, cost, events)
        self.warmer = [(us, latency, us * share) for (us, latency, _), share in zip(cost, rows)]
        self.window_us, self.cold = t.pe_window_us, t.pe_cold_factor
        self.full, self.half, self.spread = (
            t.pe_window_us * share
            for share in (t.pe_full_share, t.pe_half_share, t.pe_share_spread)
        )
        self.until, self.used, self.warm, self.busy = t.pe_window_us, 0.0, 0.0, 0.0
        if not self.window_us:
            self.warm = 1.0

    def charge(self, spec: int, at: float) -> float:
        if self.window_us and at >= self.until:
            self._go_on(at)
        interval, latency, used = self.warmer[spec]
        if self.warm < 1.0:
            slower = 1.0 + (self.cold - 1.0) * (1.0 - self.warm)
            latency += interval * (slower - 1.0)
            interval *= slower
            used *= slower
        self.used += used
        self.busy += interval
        self.free = at + interval
        self.done = at + latency
        return at

    def _go_on(self, at: float) -> None:
        """Go on to the window that a time is in."""
        over = self.free - self.until if self.free > self.until else 0.0
        while at >= self.until:
            here = self.used - over
            self.warm += (1.0 - self.warm) * self._likely(
                here - self.full
            ) - self.warm * self._likely(self.half - here)
            self.used, over = over, max(0.0, over - self.window_us)
            self.until += self.window_us
            if not self.used:  # nothing until then
                gone = (at - self.until) // self.window_us
                if gone >= 0:
                    self.warm = 0.0
                    self.until += (gone + 1) * self.window_us

    def _likely(self, over: float) -> float:
        """Return how likely the engine was busy long enough, if by so much more here."""
        if not -self.spread < over < self.spread:
            return float(over >= 0.0)
        return 0.5 + 0.5 * over / self.spread


class BackgroundTransposes(TensorEngine):
    """A Tensor Engine that transposes in the background of what came right before.

    `beside`: the time of that which no transpose has run beside yet; `transposes`, `least`: by
    spec, and the microseconds that an instruction takes in any case.
    """

    __slots__ = ("transposes", "least", "beside")

    def __init__(self, *engine: Any, transposes: list[bool], least: float):
        super().__init__(*engine)
        self.transposes, self.least, self.beside = transposes, least, 0.0

    def charge(self, spec: int, at: float) -> float:
        before, waited = self.busy, at > self.free
        super().charge(spec, at)
        took = self.busy - before
        beside = 0.0 if waited else self.beside
        self.beside = took
        if self.transposes[spec]:
            hidden = min(beside, max(0.0, took - self.least))
            self.beside = beside - hidden + took - hidden  # both are there for the next one
            if hidden:
                interval, _, used = self.warmer[spec]
                self.used -= hidden * used / interval
                self.busy -= hidden
                self.free -= hidden
                self.done -= hidden
        return at


class ScalarEngine(Engine):
    """The Scalar Engine, which loads the table of an activation function when that changes."""

    __slots__ = ("table", "load_us")

    def __init__(
        self,
        number: int,
        todo: list[int],
        window: int,
        cost: list[tuple[float, float, str]],
        events: list,
        t: Timing,
    ):
        super().__init__(number, todo, window, cost, events)
        self.table, self.load_us = "", t.act_table_us

    def charge(self, spec: int, at: float) -> float:
        interval, latency, table = self.cost[spec]
        if table and table != self.table:
            self.table = table
            at += self.load_us
        self.free, self.done = at + interval, at + latency
        return at


class SharedMemory:
    """What engines exclude each other from: banks of PSUM and ports of the memories.

    `bank_of`: the contended bank of an instruction; `ports` of a spec; `interval` of a spec.
    """

    __slots__ = ("bank_of", "ports", "interval", "bank_free", "port_free")

    def __init__(
        self, bank_of: dict[int, int], ports: list[tuple[int, ...]], interval: list[float]
    ):
        self.bank_of, self.ports, self.interval = bank_of, ports, interval
        self.bank_free: dict[int, float] = {}
        self.port_free = [0.0, 0.0]

    def claim(self, i: int, spec: int, at: float) -> float:
        """Take what instruction `i` needs, not before `at`; return when it has it."""
        bank = self.bank_of.get(i)
        if bank is not None:
            at = max(at, self.bank_free.get(bank, 0.0))
            self.bank_free[bank] = at + self.interval[spec]
        if self.ports:
            ports = self.ports[spec]
            for p in ports:
                at = max(at, self.port_free[p])
            for p in ports:
                self.port_free[p] = at + self.interval[spec]
        return at


class DmaQueue:
    """A queue that triggers DMAs: in program order, each when its data are there.

    `todo`: its DMAs; those before `limit` - 1 are triggered; `free`: when the queue is;
    `arrivals`: events (time, QUEUES + DMA) at which they get to the DMA engines, in order; only
    the first of them is in the heap. `again`: the event of the next one, when the first has been
    served; `done`: when it was seen to be. `cost`: microseconds of a trigger, by spec;
    `lead`: from a trigger to the engines.
    """

    __slots__ = (
        "todo",
        "limit",
        "free",
        "done",
        "again",
        "arrivals",
        "cost",
        "spec_of",
        "events",
        "issue",
        "missing",
        "lead",
    )

    def __init__(
        self,
        todo: list[int],
        cost: list[float],
        spec_of: list[int],
        events: list,
        issue: list[float],
        missing: list[int],
        lead: float,
    ):
        self.todo, self.cost, self.spec_of, self.events = todo, cost, spec_of, events
        self.issue, self.missing = issue, missing
        self.lead = lead
        self.limit = 1
        self.free = self.done = 0.0
        self.again: tuple[float, int] | None = None
        self.arrivals: deque[tuple[float, int]] = deque()

    def wake(self, i: int = -1, at: float = 0.0) -> None:
        """Trigger the next DMAs whose data are there; each is an event when it gets to the
        engines. (What has become ready, and when, the lists of the run say.)"""
        todo, missing, issue, arrivals = self.todo, self.missing, self.issue, self.arrivals
        h, now, end, idle = self.limit - 1, self.free, len(todo), not arrivals
        while h < end:
            i = todo[h]
            if missing[i]:
                break
            at = issue[i]  # until now: when its data are there
            if at < now:
                issue[i] = at = now
            now = at + self.cost[self.spec_of[i]]
            arrivals.append((at + self.lead, QUEUES + i))
            h += 1
        self.limit, self.free = h + 1, now
        if idle and arrivals:
            heappush(self.events, arrivals[0])

    def next_arrival(self) -> None:
        """Go on to the next arrival: the first was taken from the heap."""
        self.arrivals.popleft()
        self.again = self.arrivals[0] if self.arrivals else None


class DescriptorGenerators:
    """What makes the descriptors of DMAs while a kernel runs: a DMA waits for the first free unit.

    `units`: how many of the hardware's are in use where the compiler chooses; `cost`: microseconds
    by spec; `asked`: by spec, who makes them ("" is the compiler's choice). The Sync Engine
    triggers the first unit of the hardware, the Scalar Engine the second one.
    """

    __slots__ = ("cost", "free", "asked", "units", "software")

    def __init__(self, units: int, cost: list[float], asked: list[str]):
        self.cost, self.asked, self.units = cost, asked, units
        self.free, self.software = [0.0, 0.0], 0.0

    def make(self, spec: int, at: float) -> float:
        """Return when the descriptors are made of a DMA that was triggered at a time."""
        free, who = self.free, self.asked[spec]
        if who == "gpsimd":
            self.software = at = max(self.software, at) + self.cost[spec]
            return at
        if who == "static" or not self.units:
            return at
        unit = 1 if who == "scalar" else 0
        if not who and self.units > 1 and free[1] < free[0]:
            unit = 1
        first = free[unit]
        free[unit] = at = (first if first > at else at) + self.cost[spec]
        return at


class DmaEngines:
    """The DMA engines of a core. A DMA takes the first so many, each of them for the same time.

    `cost`: (microseconds, engines) by spec. `level`: all engines are free at the same time, and
    `level_at` says when, as long as DMAs take all of them; otherwise `free` does. The log:
    `served` has the DMAs in order; `ends` when each was done, engine by engine for those whose
    places in `served` are in `uneven`, and else once for all engines.
    """

    __slots__ = ("cost", "count", "level", "level_at", "free", "served", "ends", "uneven")

    def __init__(self, count: int, cost: list[tuple[float, int]]):
        self.count, self.cost = count, cost
        self.level, self.level_at = True, 0.0
        self.free = [0.0] * count
        self.served, self.ends, self.uneven = array("q"), array("d"), array("q")

    def serve(self, i: int, spec: int, at: float) -> tuple[float, float]:
        """Serve a DMA that is there at a time; return when it begins and when it is done."""
        us, count = self.cost[spec]
        if count != self.count or not self.level:
            return self._serve_each(i, us, count, at)
        if at < self.level_at:
            at = self.level_at
        self.level_at = done = at + us
        self.served.append(i)
        self.ends.append(done)
        return at, done

    def _serve_each(self, i: int, us: float, count: int, at: float) -> tuple[float, float]:
        """Serve a DMA engine by engine."""
        free = self.free
        if self.level:
            self.level, free[:] = False, [self.level_at] * self.count
        begin, done = NEVER, 0.0
        for e in range(count):
            s = free[e]
            if at > s:
                s = at
            if s < begin:
                begin = s
            free[e] = s = s + us
            if s > done:
                done = s
        self.uneven.append(len(self.served))
        self.served.append(i)
        self.ends.extend(free[:count])
        if count == self.count and min(free) == done:
            self.level, self.level_at = True, done
        return begin, done

    def log(self, spec_of: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Return (the DMAs in the order in which they were served, when each of their engines was
        done, how long the engines were busy altogether); `spec_of` is by instruction."""
        served = np.frombuffer(self.served, np.int64)
        us, count = np.array(self.cost or [(0.0, 0)]).T[:, spec_of[served]]
        engines = count.astype(np.int64)
        noted, repeated = np.ones(len(served), np.int64), engines.copy()
        uneven = np.frombuffer(self.uneven, np.int64)
        noted[uneven], repeated[uneven] = engines[uneven], 1
        ends = np.repeat(np.frombuffer(self.ends), np.repeat(repeated, noted))
        return served, ends, float(np.cumsum(us * count)[-1]) if len(served) else 0.0


class CappedDmaEngines(DmaEngines):
    """DMA engines that together are faster than HBM: a DMA is not done before HBM has served it.

    `hbm_us`: the time that HBM takes for its bytes, by spec.
    """

    __slots__ = ("hbm_us", "hbm_free")

    def __init__(self, count: int, cost: list[tuple[float, int]], hbm_us: list[float]):
        super().__init__(count, cost)
        self.hbm_us, self.hbm_free = hbm_us, 0.0

    def serve(self, i: int, spec: int, at: float) -> tuple[float, float]:
        begin, done = super().serve(i, spec, at)
        self.hbm_free = max(self.hbm_free, begin) + self.hbm_us[spec]
        if self.hbm_free > done:  # its engines wait for HBM
            done, count = self.hbm_free, self.cost[spec][1]
            noted = count if self.uneven and self.uneven[-1] == len(self.served) - 1 else 1
            self.ends[-noted:] = array("d", [done] * noted)
            self.free[:count] = [done] * count
            if count == self.count:
                self.level, self.level_at = True, done
        return begin, done
