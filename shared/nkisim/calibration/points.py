"""Measured kernels, traced once, whose times are asked for with other constants of the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..chip import hw
from ..chip.core import NeuronCore
from ..simulation.prediction import Profile, profile
from ..timing import cost, events, prefetch
from ..timing.schedule import Schedule, generators, queue_of
from . import records
from .records import Record, Skipped


@dataclass
class Launch:
    """One launch of a kernel: its schedule, whose costs alone are found anew."""

    plan: Schedule
    dge: bool
    on: frozenset[str]
    queues: list[int]

    @classmethod
    def of(cls, prof: Profile) -> Launch:
        """Return the launch that was profiled."""
        plan = prof.schedule
        return cls(
            plan,
            prof.descriptors == "dge",
            frozenset(prof.compiler),
            [queue_of(k, e) for k, e in zip(plan.trace.op_specs, plan.engines)],
        )

    def costs(self, core: NeuronCore) -> tuple[list, list]:
        """Return what the instructions of each op spec cost with these constants."""
        pairs = list(zip(self.plan.trace.op_specs, self.plan.engines))
        return (
            [None if e == "dma" else cost.work(k, core, e) for k, e in pairs],
            [cost.transfer(k, core) if e == "dma" else None for k, e in pairs],
        )

    def body_us(self, core: NeuronCore) -> float:
        """Return the body of the same instructions, engines and tiles with these constants."""
        works, transfers = self.costs(core)
        specs = self.plan.trace.op_specs
        deps = replace(
            self.plan.deps,
            leads=prefetch.waits(self.plan.deps, specs, works, transfers, core, self.on),
        )
        times = events.run(
            deps,
            self.queues,
            works,
            transfers,
            core,
            generators(core, self.dge, self.on),
            core.timing.compiler_window if "reorder" in self.on else 1,
        )
        hop = np.where([x is None for x in transfers], core.timing.hop_us, 0.0)
        return float((np.array(times.seen) - hop[self.plan.deps.spec]).max() - min(times.issue))


def overhead_us(metric: str, core: NeuronCore) -> float:
    """Return what a metric counts beside the body."""
    return {"nc_latency": core.timing.launch_us, "profile_total": core.timing.profile_us}.get(
        metric, 0.0
    )


@dataclass
class Point:
    """One measured kernel. (The number of some records is that of several launches.)"""

    record: Record
    launches: list[Launch]
    target: str
    dge: bool
    _asked: dict[tuple, float] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        return sum(len(x.plan.trace) for x in self.launches)

    def predict(self, core: NeuronCore) -> float:
        """Return the record's metric in us, as the model with these constants predicts it."""
        return sum(
            self._body(x, n, core) + overhead_us(self.record.metric, core)
            for n, x in enumerate(self.launches)
        )

    def _body(self, one: Launch, number: int, core: NeuronCore) -> float:
        """Return the body of a launch; the run is done once for all constants that cost alike."""
        t = core.timing
        key = (
            number,
            repr(one.costs(core)),
            t.hop_us,
            t.act_table_us,
            t.compiler_load_us,
            t.compiler_load_gbps,
            t.compiler_load_idle,
            t.compiler_load_spread,
            t.compiler_load_late_us,
            t.dma_trigger_us,
            t.dma_start_us,
            t.dma_read_us,
            t.dma_done_us,
            t.pe_window_us,
            t.pe_full_share,
            t.pe_half_share,
            t.pe_share_spread,
            t.swdge_issue_us,
            t.swdge_row_us,
            *((t.dge_issue_us, t.dge_row_us) if one.dge else ()),
        )
        if not any(x is not None for x in one.plan.transfers):
            key = key[:4]
        hashed = (number, hash(key))
        if hashed not in self._asked:
            self._asked[hashed] = one.body_us(core)
        return self._asked[hashed]


def prepare(record: Record, sources: Path | None, compiler: Iterable[str] | None = None) -> Point:
    """Trace a record's kernel; raise Skipped where it cannot be run."""
    launches = [_launch(r, sources, compiler) for r in record.parts or (record,)]
    return Point(record, launches, hw.get(record.target).name, launches[0].dge)


def _launch(record: Record, sources: Path | None, compiler: Iterable[str] | None) -> Launch:
    func = records.kernel(record, sources) if sources and not record.twin else records.twin(record)
    args, kwargs = records.arguments(record)
    prof = profile(
        func,
        *args,
        target=record.target,
        compute=False,
        descriptors=record.descriptors,
        compiler=compiler,
        **kwargs,
    )
    if not len(prof.schedule.issue):
        raise Skipped("it executes nothing")
    return Launch.of(prof)
