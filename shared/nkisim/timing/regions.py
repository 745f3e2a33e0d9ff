"""Where the time goes: by source line, and by nest of loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from .critical_path import CriticalPath
from .schedule import ENGINES, Schedule

DMA = ENGINES.index("dma")


def _work_us(plan: Schedule, hw_engines: int) -> np.ndarray:
    """Return, by instruction, how long it keeps its engine busy, in microseconds.

    Of a DMA, as a share of all DMA engines. The sum over an engine is its `Schedule.busy`, without
    triggers of DMAs: the Tensor Engine's slow clock is shared out evenly.
    """
    each = [w.interval_us if w else 0.0 for w in plan.works]
    for k, x in enumerate(plan.transfers):
        if x is not None:
            each[k] = x.us * x.engines / hw_engines
    us = np.array(each or [0.0])[plan.deps.spec]
    on_tensor = np.asarray(plan.engine) == ENGINES.index("tensor")
    warm = float(us[on_tensor].sum())
    if warm:
        us = np.where(on_tensor, us * (plan.busy["tensor"] / warm), us)
    return us


def regions(path: CriticalPath) -> dict[str, list[dict[str, Any]]]:
    """Return where the time of a schedule goes, ready for JSON; all times predicted.

    `lines`: a row for each source line, the longest on the critical path first; `loops`: a row for
    each loop of the source (of all its runs together), in order of the program. Of each:

    - `where`: file, line and function, None if unknown; of a loop, also `kind`, `depth` (0:
      outermost), `runs` and `iterations` (of all runs)
    - `instructions`, and `moved_bytes`: how many bytes its DMAs move
    - `busy_us`: how long it keeps each engine busy (of the DMA engines: of all together)
    - `critical_us`: its part of the critical path. Over all lines they add up to the time of the
      kernel without the launch.
    - `span_us` (loops): the time in which at least one of its runs is between its first trigger or
      start and its last end
    """
    plan = path.plan
    spec, line, node = plan.trace.instructions()
    us = _work_us(plan, path.hw.dma_engines)
    moved = np.array([x.nbytes if x else 0 for x in plan.transfers] or [0])[spec]
    critical = np.zeros(len(spec))
    for step in path.steps:
        critical[step.instr] += step.us
    facts = _Facts(plan, us, moved, critical)
    return {"lines": _lines(facts, line), "loops": _loops(facts, node)}


class _Facts:
    """What is added up, an element an instruction."""

    def __init__(self, plan: Schedule, us: np.ndarray, moved: np.ndarray, critical: np.ndarray):
        self.plan, self.us, self.moved, self.critical = plan, us, moved, critical
        self.engine = np.asarray(plan.engine)

    def sums(self, group: np.ndarray, count: int) -> list[dict[str, Any]]:
        """Return a row for each of `count` groups; `group`: of each instruction, -1 for none."""
        grouped = group >= 0
        group = group[grouped]

        def total(values: np.ndarray) -> list[Any]:
            return np.bincount(group, values[grouped], count).tolist()

        number = np.bincount(group, minlength=count).tolist()
        moved, critical = total(self.moved), total(self.critical)
        busy = {
            name: total(np.where(self.engine == e, self.us, 0.0)) for e, name in enumerate(ENGINES)
        }
        return [
            {
                "instructions": number[g],
                "busy_us": {name: sums[g] for name, sums in busy.items() if sums[g]},
                "critical_us": critical[g],
                "moved_bytes": int(moved[g]),
            }
            for g in range(count)
        ]


def _lines(facts: _Facts, line: np.ndarray) -> list[dict[str, Any]]:
    places = facts.plan.trace.lines
    numbers: dict[tuple[str, int], int] = {}  # the record tells calls on one line apart
    index = np.array([numbers.setdefault((w.file, w.line), len(numbers)) for w in places] + [-1])
    first = {n: w for w, n in reversed(list(zip(places, index.tolist())))}
    group = index[line]
    group[group < 0] = len(numbers)
    rows = facts.sums(group, len(numbers) + 1)
    out = [
        {"where": str(first[n]) if n in first else None, **row}
        for n, row in enumerate(rows)
        if row["instructions"]
    ]
    return sorted(out, key=lambda row: -row["critical_us"])


def _loops(facts: _Facts, node: np.ndarray) -> list[dict[str, Any]]:
    """Return the loops; runs of one loop (by its line and what is around it) are one row."""
    trace, plan = facts.plan.trace, facts.plan
    parent, loop_of = np.array(trace.node_parent), np.array(trace.node_loop)
    runs = len(trace.loop_kind)
    above, iterations = np.full(runs, -1), np.bincount(loop_of[1:], minlength=runs)
    above[loop_of[1:]] = loop_of[parent[1:]]
    keys: dict[tuple[int, int, str], int] = {}
    rows: list[dict[str, Any]] = []
    group = np.zeros(runs, np.int64)
    for run in range(runs):  # a loop comes after the one around it
        outer = int(group[above[run]]) if above[run] >= 0 else -1
        key = (outer, int(trace.loop_line[run]), trace.loop_kind[run])
        if key not in keys:
            keys[key] = len(rows)
            where = trace.where(key[1])
            rows.append(
                {
                    "where": str(where) if where else None,
                    "kind": key[2],
                    "depth": rows[outer]["depth"] + 1 if outer >= 0 else 0,
                    "inside": outer if outer >= 0 else None,
                    "runs": 0,
                    "iterations": 0,
                    "span_us": 0.0,
                }
            )
        group[run] = keys[key]
        rows[keys[key]]["runs"] += 1
        rows[keys[key]]["iterations"] += int(iterations[run])
    run_of = loop_of[node]
    first, last = np.full(runs, np.inf), np.zeros(runs)
    while (run_of >= 0).any():  # each level of nesting
        in_loop = run_of >= 0
        np.minimum.at(first, run_of[in_loop], plan.issue[in_loop])
        np.maximum.at(last, run_of[in_loop], plan.end[in_loop])
        sums = facts.sums(np.where(in_loop, group[run_of], -1), len(rows))
        for row, more in zip(rows, sums):
            _add(row, more)
        run_of = np.where(in_loop, above[run_of], -1)
    for n, row in enumerate(rows):
        in_loop = np.flatnonzero((group == n) & (last > 0.0))
        row["span_us"] = active_us(first[in_loop], last[in_loop])
    return rows


def active_us(start: np.ndarray, stop: np.ndarray) -> float:
    """Return the length of the union of intervals: the time in which at least one was running."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, stop = start[order], np.maximum.accumulate(stop[order])
    return float(np.sum(np.maximum(0.0, stop - np.maximum(start, np.r_[start[0], stop[:-1]]))))


def _add(row: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if name == "busy_us":
            busy = row.setdefault(name, {})
            for engine, us in value.items():
                busy[engine] = busy.get(engine, 0.0) + us
        else:
            row[name] = row.get(name, 0) + value
