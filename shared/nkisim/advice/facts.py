"""What the causes look at: one schedule, as arrays, and what it would take without some cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM
from ..errors import Where
from ..timing import cost, prefetch, whatif
from ..timing.critical_path import CriticalPath
from ..timing.schedule import ENGINES, Schedule
from ..trace.footprint import Dependencies
from ..trace.trace import Operands, OpSpec

DMA = ENGINES.index("dma")


class Facts:
    """A schedule and what is known about it; times in microseconds.

    `spec`, `line`: of each instruction, as in the trace; `dge`, `on`: how it was scheduled.
    """

    def __init__(self, plan: Schedule, hw: NeuronCore, dge: bool, on: frozenset[str]):
        self.plan, self.hw, self.dge, self.on = plan, hw, dge, on
        self.trace, self.op_specs = plan.trace, plan.trace.op_specs
        self.spec, self.line, _ = plan.trace.instructions()
        self.body = whatif.body_us(plan)
        self.unread: np.ndarray | None = None  # instructions; see work.unread
        self.share = {e: us / self.body if self.body else 0.0 for e, us in plan.busy.items()}
        #: of the latency, launch included: what sentences say, since the page's bars and cards do
        self.of_latency = {e: us / (self.body + hw.timing.launch_us) for e, us in plan.busy.items()}

    @cached_property
    def is_dma(self) -> np.ndarray:
        """Return which instructions are DMAs (bool)."""
        return np.asarray(self.plan.engine) == DMA

    @cached_property
    def path(self) -> CriticalPath:
        return CriticalPath(self.plan, self.hw, self.dge)

    @property
    def bound(self) -> str:
        """Return the engine that is busy most."""
        return max(self.share, key=lambda e: self.share[e])

    def without(self, **what: Any) -> float:
        """Return the body without some cost; arguments as of `timing.whatif.without`."""
        hw = what.pop("hw", self.hw)
        return whatif.without(self.plan, hw, dge=self.dge, on=self.on, **what)

    def planned_anew(self, deps: Dependencies) -> Dependencies:
        """Return dependencies of another program, with loads and fills when the compiler would."""
        plan = self.plan
        if len(deps.spec) == len(plan.deps.spec):
            deps = replace(deps, lines=plan.deps.lines)
        works, transfers = plan.works, plan.transfers
        return replace(
            deps,
            leads=prefetch.waits(deps, self.op_specs, works, transfers, self.hw, self.on),
        )

    def others(self, instrs: np.ndarray, other: Callable[[OpSpec], OpSpec]) -> float:
        """Return the body with other instructions in the place of some."""
        return whatif.others(self.plan, self.hw, instrs, other, dge=self.dge, on=self.on)

    def halved(self) -> float:
        """Return the body with tiles of half the size."""
        return whatif.halved(self.plan, self.hw, dge=self.dge, on=self.on)

    def faster(self, **fields: Any) -> NeuronCore:
        """Return the chip with other constants of time."""
        return replace(self.hw, timing=replace(self.hw.timing, **fields))

    def where(self, line: int) -> Where | None:
        return self.trace.where(line)

    # -- instructions ------------------------------------------------------------------------

    def of_specs(self, wanted: Any) -> np.ndarray:
        """Return the instructions whose spec `wanted(spec, id)` accepts, in program order."""
        chosen = np.array([bool(wanted(k, n)) for n, k in enumerate(self.op_specs)] or [False])
        return np.flatnonzero(chosen[self.spec])

    def by_line(self, instrs: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (line, its instructions) for those whose line is known."""
        lines = self.line[instrs]
        for line in np.unique(lines[lines >= 0]).tolist():
            yield line, instrs[lines == line]

    def busiest(self, instrs: np.ndarray, us: np.ndarray) -> int:
        """Return the line of the instructions with the most time (`us` by spec), or -1."""
        lines = self.line[instrs]
        on_a_line = lines >= 0
        if not on_a_line.any():
            return -1
        return int(np.bincount(lines[on_a_line], us[self.spec[instrs]][on_a_line]).argmax())

    @cached_property
    def interval(self) -> np.ndarray:
        """Return how long an instruction of each spec keeps its engine (0 for DMAs)."""
        return np.array([w.interval_us if w else 0.0 for w in self.plan.works] or [0.0])

    def cheaper(self, hw: NeuronCore) -> np.ndarray:
        """Return what an instruction of each spec would save its engine on another chip."""
        rewrites = [
            cost.work(k, hw, e).interval_us if w else 0.0
            for k, e, w in zip(self.op_specs, self.plan.engines, self.plan.works)
        ]
        return self.interval - np.array(rewrites or [0.0])

    # -- DMA ---------------------------------------------------------------------------------

    def stream_us(self, nbytes: int) -> float:
        """Return how long all DMA engines take for some bytes at their full rate."""
        t = self.hw.timing
        return nbytes / (self.hw.dma_engines * t.dma_engine_gbps * 1e3)

    @cached_property
    def dma_us(self) -> np.ndarray:
        """Return, by spec, how long a DMA takes of all DMA engines together."""
        return np.array(
            [x.us * x.engines / self.hw.dma_engines if x else 0.0 for x in self.plan.transfers]
            or [0.0]
        )

    @cached_property
    def trigger_us(self) -> np.ndarray:
        """Return, by spec, how long a DMA keeps what issues it: its queue, or what makes
        descriptors."""
        return np.array(
            [cost.issue_us(x, self.hw, self.dge) if x else 0.0 for x in self.plan.transfers]
            or [0.0]
        )

    @cached_property
    def nbytes(self) -> np.ndarray:
        """Return, by spec, the bytes that a DMA moves."""
        return np.array([x.nbytes if x else 0 for x in self.plan.transfers] or [0], np.int64)

    @cached_property
    def operands(self) -> Operands:
        return self.trace.operands()

    @cached_property
    def hbm_side(self) -> dict[str, np.ndarray]:
        """Return the operands of DMAs that lie in HBM, as columns of the access table."""
        accesses = self.operands
        operand_specs = self.trace.operand_specs()
        hbm = np.array(
            [p.memory is HBM and k.engine == "dma" for k, _, p in operand_specs] or [False]
        )
        in_hbm = hbm[accesses.operand_spec]
        return {name: getattr(accesses, name)[in_hbm] for name in accesses._fields}

    # -- waits -------------------------------------------------------------------------------

    @cached_property
    def reuse(self) -> np.ndarray:
        """Return which waits (pairs of `plan.deps`) are for memory, not for data: array of bool.

        A wait is for data if the later instruction reads a tile that the earlier one writes.
        """
        deps, accesses = self.plan.deps, self.operands
        adds = np.array([k.accumulate for k in self.op_specs] or [False])[self.spec]
        count = len(self.trace.storages) or 1
        wrote = np.unique(accesses.instr[accesses.write] * count + accesses.storage[accesses.write])
        reads = ~accesses.write | adds[accesses.instr]
        order = np.argsort(accesses.instr[reads], kind="stable")
        instr, storage = accesses.instr[reads][order], accesses.storage[reads][order]
        first = np.searchsorted(instr, deps.after)
        past = np.searchsorted(instr, deps.after, "right")
        data = np.zeros(len(deps.after), bool)
        for n in range(int((past - first).max(initial=0))):
            inside = first + n < past
            key = deps.before[inside] * count + storage[first[inside] + n]
            at = np.minimum(np.searchsorted(wrote, key), max(0, len(wrote) - 1))
            data[inside] |= (wrote[at] == key) if len(wrote) else False
        return ~data


def is_transpose(spec: OpSpec) -> bool:
    """Return whether an instruction is a transpose on the Tensor Engine."""
    flops = spec.row.flops(spec)
    return bool(flops.ops) and not flops.model
