"""The critical path: the instructions that held each other up until the last one was done.

It starts at the instruction that ends last and goes back: to what that one waited for last, or to
what was before it on its queue. The time of the whole kernel is the time on this path, so making
anything else faster does not help.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM
from .cost import trigger_us
from .reasons import BUFFER, DATA, LEAD, NOTHING, ORDER, SPACE, reasons
from .schedule import ENGINES, Schedule

DMA = ENGINES.index("dma")
#: a queue that stood still for longer than this, in microseconds, was not what held up its next
NEAR = 0.06
#: waits that are shorter, in microseconds, are not reported
SHORT = 5e-4
#: steps that `to_dict` holds: the last ones
MOST_STEPS = 200

#: why an instruction did not start earlier -> the sentence; {who} is the one it waited for
WHY = {
    "start": "starts with the kernel",
    "data": "waits for the data of {who}",
    "buffer": "waits until {who} has read the buffer that it overwrites",
    "order": "waits until {who} has written to the same tile",
    "space": "waits for the memory that {who} is the last to use",
    "late-load": "is a load that is not triggered before {who} is done",
    "queue": "waits for its turn on its queue, behind {who}",
}
#: the same, where {who} is of the same line and name
_SAME = "comes one after the other on its queue"
_CODES = {
    NOTHING: "start",
    DATA: "data",
    BUFFER: "buffer",
    ORDER: "order",
    SPACE: "space",
    LEAD: "late-load",
}
#: what the time on the path was spent on -> in words
SPENT = {
    "run": "at work",
    "trigger": "triggers of DMAs on their queue",
    "dma_start": "from the trigger of a DMA to its first byte",
    "dma_line": "in line for the DMA engines",
    "latency": "from the end of an instruction to the start of the next",
}


def label(spec: Any) -> str:
    """Return what a person calls an instruction: its name; of a DMA, its direction."""
    if spec.engine != "dma":
        return str(spec.row.name)
    to_hbm = spec.operands[0].memory is HBM
    move = ("copy" if spec.read_bytes else "store") if to_hbm else "load"
    if not to_hbm and not spec.read_bytes:
        move = "copy"
    return f"spill {move}" if spec.row.spills else move


@dataclass(frozen=True)
class Step:
    """An instruction of the path. Times are in microseconds from the start of the kernel.

    `spent`: what its part of the path went on (keys of SPENT); `why`: a key of WHY, that it waited
    for `waited_for` (-1: nothing).
    """

    instr: int
    spent: dict[str, float]
    why: str
    waited_for: int

    @property
    def us(self) -> float:
        return sum(self.spent.values())


class CriticalPath:
    """The critical path of a schedule; `steps` in order of time.

    `takes`, `leaves`: when each instruction took its queue and left it (of a DMA: its trigger);
    `behind`: the one before it on its queue, or -1.
    """

    def __init__(self, plan: Schedule, hw: NeuronCore, dge: bool):
        self.plan, self.hw, self.dge = plan, hw, dge
        self.moves = np.asarray(plan.engine) == DMA
        self.queue = np.where(self.moves, plan.queue, plan.engine)
        trigger = np.array([trigger_us(x, hw) if x else 0.0 for x in plan.transfers] or [0.0])
        self.trigger = trigger[plan.deps.spec]
        self._queues()

    def _queues(self) -> None:
        plan = self.plan
        self.takes = np.where(self.moves, plan.issue, plan.start)
        self.leaves = np.where(self.moves, plan.issue + self.trigger, plan.end)
        self.behind = np.full(len(self.takes), -1)
        order = np.lexsort((self.takes, self.queue))
        before, after = order[:-1], order[1:]
        same = self.queue[before] == self.queue[after]
        before, after = before[same], after[same]
        self.behind[after] = before
        self.leaves[before] = np.minimum(self.leaves[before], self.takes[after])

    @cached_property
    def reasons(self) -> dict[str, np.ndarray]:
        return reasons(self.plan)

    def blocker(self, i: int) -> tuple[int, bool]:
        """Return what held up instruction i (or -1), and whether it was before it on its queue."""
        plan, pred, before = self.plan, int(self.plan.pred[i]), int(self.behind[i])
        takes = self.takes[i] - NEAR
        queued = (
            before >= 0
            and (pred < 0 or plan.end[pred] < takes)
            and bool(self.leaves[before] > takes)
        )
        return (before, True) if queued else (pred, False)

    @cached_property
    def steps(self) -> list[Step]:
        plan = self.plan
        out: list[Step] = []
        if not len(plan.end):
            return []
        i, as_queued = int(np.argmax(plan.end)), False
        t = float(plan.end[i])
        while i >= 0 and len(out) <= len(plan.end):
            spent, t = self._spent(i, as_queued, t)
            by, queued = self.blocker(i)
            why = "queue" if queued else _CODES[int(self.reasons["why"][i])]
            out.append(Step(i, spent, why if by >= 0 else "start", by))
            i, as_queued = by, queued
        return out[::-1]

    def _spent(self, i: int, queued: bool, t: float) -> tuple[dict[str, float], float]:
        """Return what the time before `t` went on while i was what others waited for, and from
        when on. `queued`: they waited for its place in the queue alone."""
        plan, out = self.plan, dict[str, float]()
        moves = bool(self.moves[i])

        def add(what: str, begin: float) -> None:
            nonlocal t
            if t > begin + SHORT:
                out[what] = out.get(what, 0.0) + t - begin
                t = begin

        if queued and moves:
            add("trigger", float(plan.issue[i]))
            return out, t
        add("latency", float(plan.end[i]))
        add("run", float(plan.start[i]))
        if moves:
            lead = self.hw.timing.dma_start_us + (float(self.trigger[i]) if self.dge else 0.0)
            line = max(0.0, float(plan.start[i] - plan.issue[i]) - lead)
            add("dma_line", float(plan.start[i]) - line)
            add("dma_start", float(plan.issue[i]))
        return out, t

    @cached_property
    def by_line(self) -> Counter[int]:
        """Return the microseconds of the path by line id of the trace (-1: unknown)."""
        _, lines = self._columns
        out: Counter[int] = Counter()
        for step in self.steps:
            out[int(lines[step.instr])] += step.us  # type: ignore[assignment]
        return out

    def to_dict(self, most: int = MOST_STEPS) -> dict[str, Any]:
        """Return the path, ready for JSON; all times predicted, in microseconds.

        `total_us`: its length; `spent_us`: what it went on (keys of SPENT; `run` by engine, as
        `run tensor`); `by_line`: for each line and instruction its time on the path and the most
        frequent reason why it waited, the longest first; `steps`: the last `most` steps, each with
        what it waited for and why; `steps_left_out`: how many there are before them.
        """
        specs = self.plan.trace.op_specs
        spec, line = self._columns
        spent: Counter[str] = Counter()
        rows: dict[tuple[int, str], dict[str, Any]] = {}
        for step in self.steps:
            i = step.instr
            engine = ENGINES[int(self.plan.engine[i])]
            for cause, us in step.spent.items():
                spent[f"run {engine}" if cause == "run" else cause] += us  # type: ignore[assignment]
            row = rows.setdefault(
                (int(line[i]), label(specs[spec[i]])),
                {"engine": engine, "us": 0.0, "steps": 0, "why": Counter()},
            )
            row["us"] += step.us
            row["steps"] += 1
            row["why"][step.why, self._why(step)] += 1
        total = sum(spent.values())
        by_line = []
        for (number, name), row in sorted(rows.items(), key=lambda item: -item[1]["us"]):
            (why, text), _ = row["why"].most_common(1)[0]
            by_line.append(
                {
                    "where": self._place(number),
                    "instruction": name,
                    "engine": row["engine"],
                    "us": row["us"],
                    "share": row["us"] / total if total else 0.0,
                    "steps": row["steps"],
                    "why": why,
                    "why_text": text,
                }
            )
        return {
            "predicted": True,
            "total_us": total,
            "spent_us": dict(spent.most_common()),
            "by_line": by_line,
            "steps": [self._step(s) for s in self.steps[-most:]],
            "steps_left_out": max(0, len(self.steps) - most),
        }

    def _step(self, step: Step) -> dict[str, Any]:
        i, plan = step.instr, self.plan
        spec, line = self._columns
        return {
            "instruction": i,
            "name": label(plan.trace.op_specs[spec[i]]),
            "engine": ENGINES[int(plan.engine[i])],
            "where": self._place(int(line[i])),
            "start_us": float(plan.start[i]),
            "end_us": float(plan.end[i]),
            "spent_us": step.spent,
            "why": step.why,
            "why_text": self._why(step),
            "waited_for": step.waited_for if step.waited_for >= 0 else None,
        }

    def _place(self, line: int) -> str | None:
        where = self.plan.trace.where(line)
        return None if where is None else str(where)

    def _why(self, step: Step) -> str:
        """Return in words why an instruction waited."""
        me, who = self._who(step.instr), self._who(step.waited_for)
        return _SAME if step.why == "queue" and me == who else WHY[step.why].format(who=who)

    def _who(self, i: int) -> str:
        """Return an instruction in words: "line 12's load"."""
        if i < 0:
            return ""
        spec, line = self._columns
        where = self.plan.trace.where(int(line[i]))
        name = label(self.plan.trace.op_specs[spec[i]])
        return f"line {where.line}'s {name}" if where else f"an instruction {name}"

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        spec, line, _ = self.plan.trace.instructions()
        return spec, line
