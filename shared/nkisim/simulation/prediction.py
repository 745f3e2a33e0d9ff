"""Predict how long a kernel takes: `nkisim.profile` and what it returns.

Every time here is a prediction of the latency model (see docs/latency-model.md), never measured.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

import numpy as np

from .. import advice
from ..checks.finding import Finding
from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..chip.hw import get as hw_of
from ..errors import Where, fail
from ..lint import level
from ..machine.interface import Machine
from ..machine.tile_values import TileValues
from ..timing import compiler as compiling
from ..timing import floor as floors
from ..timing import regions as region_sums
from ..timing import tensors as traffic
from ..timing import whatif
from ..timing.critical_path import CriticalPath
from ..timing.schedule import ENGINES, Schedule, together
from ..trace.footprint import Dependencies
from ..trace.names import storage_names
from ..trace.rewrite import Draft
from ..trace.trace import OpSpec, Trace
from .error_bands import trust
from .launch import Run, as_kernel, launch

DESCRIPTORS = ("static", "dge")
SEGMENT = np.dtype(
    [
        ("engine", np.int8),
        ("start_us", np.float64),
        ("end_us", np.float64),
        ("instr", np.int32),
        ("bytes", np.int32),
    ]
)
LIFETIME = np.dtype(
    [
        ("storage", np.int64),
        ("first_us", np.float64),
        ("last_us", np.float64),
        ("bytes_per_partition", np.int64),
        ("line", np.int64),
    ]
)
#: an engine that is busy for so much of the body is what limits a kernel
MOST_IN_ORDER = 20_000  # instructions of a kernel that is run a second time, in order
BOUND = 0.75


class Timeline:
    """When each instruction ran; arrays with one element per instruction, in program order.

    `start_us`, `end_us`: execution (DMA: first byte to completion); `issue_us`: when its queue
    took it; `engine`: index into ENGINES; `queue`: the same, of the queue that triggered it;
    `pred`: the instruction it waited for last, or -1; `spec`, `line`, `node`: as in the trace.
    """

    def __init__(self, trace: Trace, plan: Schedule):
        self.start_us, self.end_us, self.issue_us = plan.start, plan.end, plan.issue
        self.engine, self.queue, self.pred = plan.engine, plan.queue, plan.pred
        self.spec, self.line, self.node = trace.instructions()
        self._plan = plan

    @cached_property
    def dma_segments(self) -> np.ndarray:
        """Return what each DMA engine did: engine, start_us, end_us, instr, bytes."""
        plan = self._plan
        modelled = [transfer for transfer in plan.transfers if transfer is not None]
        if not modelled or not len(plan.dma):
            return np.zeros(0, SEGMENT)
        zero = modelled[0]
        transfers = [transfer or zero for transfer in plan.transfers]
        spec = self.spec[plan.dma]
        count = np.array([transfer.engines for transfer in transfers])[spec]
        instr = np.repeat(plan.dma, count)
        k = np.repeat(spec, count)
        out = np.zeros(len(instr), SEGMENT)
        out["engine"] = np.arange(len(instr)) - np.repeat(np.cumsum(count) - count, count)
        out["end_us"] = plan.dma_ends
        out["start_us"] = plan.dma_ends - np.array([transfer.us for transfer in transfers])[k]
        out["instr"] = instr
        out["bytes"] = np.array(
            [transfer.nbytes // max(1, transfer.engines) for transfer in transfers]
        )[k]
        return out


class Memory:
    """What lies in SBUF and PSUM over time, as step functions, and the life of each tile.

    `time_us`, `sbuf_bytes` (per partition), `psum_banks`; `lifetimes`: a structured array of
    storage, first_us, last_us, bytes_per_partition, line.
    """

    def __init__(self, machine: Machine, plan: Schedule):
        v = plan.deps.versions
        keep = v.resident > 0
        life = np.zeros(int(keep.sum()), LIFETIME)
        life["storage"] = v.storage[keep]
        life["first_us"] = plan.issue[v.first[keep]]
        life["last_us"] = np.maximum(plan.end[v.last[keep]], plan.end[v.first[keep]])
        life["bytes_per_partition"] = v.resident[keep]
        life["line"] = v.line[keep]
        self.lifetimes = life
        psum = self.psum = v.psum[keep]
        times = np.concatenate([life["first_us"], life["last_us"]])
        size = np.concatenate([life["bytes_per_partition"], -life["bytes_per_partition"]])
        both = np.concatenate([psum, psum])
        order = np.lexsort((size, times))  # at the same time, frees come first
        bank = machine.hw.psum_bank_bytes
        self.time_us = times[order]
        self.sbuf_bytes = np.cumsum(np.where(both, 0, size)[order])
        self.psum_banks = np.cumsum(np.where(both, -(-abs(size) // bank) * np.sign(size), 0)[order])

    def holders(self, psum: bool) -> list[tuple[int, int]]:
        """Return [(line, bytes or banks)] of what is held at the peak, largest first."""
        steps = self.psum_banks if psum else self.sbuf_bytes
        if not len(steps):
            return []
        at = self.time_us[int(np.argmax(steps))]
        held: Counter[int] = Counter()
        for row in self.lifetimes[
            (self.lifetimes["first_us"] <= at)
            & (self.psum == psum)
            & (self.lifetimes["last_us"] > at)
        ]:
            held[int(row["line"])] += int(row["bytes_per_partition"])
        return held.most_common()


@dataclass(frozen=True)
class Peak:
    """A line that holds memory at the peak."""

    where: Where | None
    amount: int


def seal_inputs(trace: Trace) -> None:
    """Mark the arguments that a kernel could have written and has not: they can be read again."""
    accesses, stores = trace.operands(), trace.storages
    seen, written = (
        np.bincount(used, minlength=len(stores)) > 0
        for used in (accesses.storage, accesses.storage[accesses.write])
    )
    for i in np.flatnonzero(seen & ~written & stores.table().hbm).tolist():
        stores.set_readonly(i)


def _of_cores(run: Run) -> list[Trace]:
    """Return the record of each core: all of it, or what each core of kernel[2] did."""
    cores = run.machine.launch.cores
    if cores is None:
        return [run.trace]
    out = []
    for node in cores.nodes:
        draft = Draft(run.trace)
        draft.dropped |= ~run.trace.below(node)
        out.append(draft.finish())
    return out


def _now() -> str:
    """Return the date and time (UTC); SOURCE_DATE_EPOCH, in seconds, takes its place."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(fixed) if fixed.isdigit() else time.time(), timezone.utc)
    return now.strftime("%Y-%m-%d %H:%M UTC")


def _end(plan: Schedule) -> float:
    return float(plan.end.max(initial=0.0))


def _name_engines(plan: Schedule) -> None:
    """Write into the record which engines were chosen for its instructions."""
    for k, engine in enumerate(plan.engines):
        spec = plan.trace.op_specs[k]
        if spec.engine != engine:
            plan.trace.op_specs[k] = replace(spec, engine=engine)


class Profile:
    """A kernel's predicted performance on a target."""

    def __init__(
        self,
        run: Run,
        core: NeuronCore,
        descriptors: str,
        kernel_name: str,
        options: frozenset[str] = frozenset(compiling.DEFAULT),
        tile_values: TileValues | None = None,
    ):
        self.kernel_name, self.hw, self.descriptors = kernel_name, core, descriptors
        self.trace, self.machine = run.trace, run.machine
        self.outputs, self.findings = run.outputs, list(run.findings)
        self.may_meet = run.may_meet
        self.arguments = run.arguments
        self.dialect = run.machine.dialect.name
        self.release = level.release()
        #: what this is a run of, in the header of the page: a lab's case, if there is one
        self.case = ""
        #: the caller demands the dtypes that there are: no advice to use shorter ones
        self.keep_dtypes = False
        self.date = _now()
        self._options = options
        self.compiler = tuple(name for name in compiling.OPTIONS if name in options)
        seal_inputs(run.trace)
        plans = together(_of_cores(run), core, dge=descriptors == "dge", on=options)
        self.cores = len(plans)
        self.schedule = max(plans, key=_end)  # of the core that takes longest
        self.trace = self.schedule.trace  # with spills, if there are any
        self.tile_values = tile_values and tile_values.followed(self.trace.origin)
        for plan in plans:
            _name_engines(plan)
        self._take_times(plans)
        self._count(plans)
        self.memory = Memory(run.machine, self.schedule)
        self.sbuf_peak_bytes = int(self.memory.sbuf_bytes.max(initial=0))
        self.psum_peak_banks = int(self.memory.psum_banks.max(initial=0))
        self.bound = self._bound()
        self.trust = trust(self.schedule, core, descriptors == "dge", self.bound, self.cores)
        self.model_error = self.trust.text
        self._check_capacity(self.schedule.deps)

    def _take_times(self, plans: list[Schedule]) -> None:
        """Set the latencies, in us: from the first instruction of any core to the last one."""
        timing, launch = self.hw.timing, self.machine.launch
        first = min(float(plan.issue.min(initial=np.inf)) for plan in plans)
        first = first if np.isfinite(first) else 0.0  # there are no instructions
        #: registers and loops of the chip: no instruction, and nothing overlaps them here
        self.control_us = max(launch.control.values(), default=0.0)
        self.body_us = _end(self.schedule) - first + self.control_us
        self.waiting_us = self.schedule.waiting_us  # of that core for the other
        self.latency_us = self.body_us + timing.launch_us
        self.profile_total_us = self.body_us + timing.profile_us
        self.timeline = Timeline(self.trace, self.schedule)
        self.engine_busy = {
            engine: min(1.0, us / self.latency_us) for engine, us in self.schedule.busy.items()
        }

    def _count(self, plans: list[Schedule]) -> None:
        """Count the instructions, transfers, bytes and operations of all cores."""
        counts = [
            (spec, n)
            for plan in plans
            for spec, n in zip(
                plan.trace.op_specs,
                np.bincount(plan.deps.spec, minlength=len(plan.trace.op_specs)).tolist(),
            )
        ]
        self.instructions: Counter[str] = Counter()
        for spec, n in counts:
            self.instructions[spec.row.name] += n
        self.dma_transfer_count = sum(n for spec, n in counts if spec.engine == "dma")
        self.hbm_read_bytes = sum(n * spec.read_bytes for spec, n in counts)
        self.hbm_write_bytes = sum(n * spec.write_bytes for spec, n in counts)
        self.spill_bytes = sum(plan.spill_bytes for plan in plans)
        self.flops, self.mfu = self._flops(counts)

    @cached_property
    def in_order_us(self) -> float | None:
        """Return the latency in us if each engine keeps the order of the program.

        AWS says only that its compiler may reorder what is independent (`nl.no_reorder` forbids
        it). None: the prediction does not reorder, or it is not worth a second run: for several
        cores, a compiler with a middle end (which is seen to reorder) or a very large kernel.
        """
        if (
            self.cores > 1
            or "reorder" not in self._options
            or self.machine.dialect.middle_end
            or not 0 < len(self.schedule.issue) <= MOST_IN_ORDER
        ):
            return None
        nothing = np.zeros(0, np.int64)
        body = whatif.without(
            self.schedule,
            self.hw,
            dge=self.descriptors == "dge",
            on=self._options - {"reorder"},
            instrs=nothing,
        )
        return float(body + self.control_us + self.hw.timing.launch_us)

    @property
    def band_us(self) -> tuple[float, float] | None:
        """Return the least and the greatest latency in us by the error of the model; None: unknown.

        The greatest is no less than the latency in the order of the program (`in_order_us`): no
        measured kernel says how far the compiler of the package nki goes from it.
        """
        if self.trust.pct is None:
            return None
        share = self.trust.pct / 100
        most = max(self.latency_us * (1 + share), self.in_order_us or 0.0)
        return self.latency_us * (1 - share), most

    @property
    def target(self) -> str:
        return self.hw.name

    @cached_property
    def advice(self) -> list[advice.Advice]:
        """Return what to change first: at most three sentences, each with what it would save.

        Computed when it is first asked for: that takes a few more schedules.
        """
        return advice.advise(
            self.schedule,
            self.hw,
            dge=self.descriptors == "dge",
            on=self._options,
            latency_us=self.latency_us,
            keep_dtypes=self.keep_dtypes,
        )

    @cached_property
    def path(self) -> CriticalPath:
        """Return the critical path, on the core that takes longest."""
        return CriticalPath(self.schedule, self.hw, self.descriptors == "dge")

    def critical_path(self) -> dict[str, Any]:
        """Return what held up what until the last instruction was done, ready for JSON.

        Time on the path by line and by what it went on, and its last steps, each with what it
        waited for and why: see `CriticalPath.to_dict`. Times are predicted, in microseconds.
        """
        return self.path.to_dict()

    def regions(self) -> dict[str, list[dict[str, Any]]]:
        """Return where the time goes by source line and by loop, ready for JSON.

        See `nkisim.timing.regions.regions`. Times are predicted, in microseconds.
        """
        return region_sums.regions(self.path)

    def tensors(self) -> list[dict[str, Any]]:
        """Return the traffic of each tensor in HBM, ready for JSON: bytes, bytes read and written,
        and `repeat`, how often each byte is read. See `nkisim.timing.tensors.tensors`.
        """
        return self._tensors

    @cached_property
    def _tensors(self) -> list[dict[str, Any]]:
        given = {a["storage"]: a["name"] for a in self.arguments if "storage" in a}
        return traffic.tensors(self.trace, storage_names(self.trace, given), given, self._chosen)

    def _chosen(self, storage: int, write: bool) -> traffic.Touched | None:
        """Return what run-time indices have chosen of a storage; None: the run had no values."""
        if not self.machine.compute:
            return None
        touched = self.machine.memory.chosen.of(storage, write)
        return traffic.Touched(*touched) if touched else traffic.Touched(1, np.zeros(0, bool))

    def floor(self) -> dict[str, Any]:
        """Return the least time that any kernel can take for this job, and what it is made of.

        Ready for JSON; predicted, in microseconds. See `nkisim.timing.floor.floor`.
        """
        rows = self.tensors()
        came, went = traffic.least_bytes(rows)
        return floors.floor(self.schedule, self.hw, came, went, traffic.unknown_bytes(rows))

    @cached_property
    def floor_us(self) -> float:
        """Return the least time that any kernel can take for this job, in microseconds."""
        return float(self.floor()["floor_us"])

    @cached_property
    def counters(self) -> dict[str, float]:
        """Return what a profiler counts, after what the compiler does, by the names that
        measurement records have.

        Transfers, packets (descriptors) and bytes of DMAs, bytes to and from HBM, spilled bytes;
        `..._active`: the share of the body in which an engine works (of the DMA engines: their
        mean); `pe_full_clock`: the share of the Tensor Engine's work at its full clock.
        """
        plan, busy = self.schedule, self.schedule.busy
        count = np.bincount(plan.deps.spec, minlength=len(plan.transfers)).tolist()
        full = sum(
            n * w.interval_us
            for n, w, e in zip(count, plan.works, plan.engines)
            if w is not None and e == "tensor"
        )
        slow = self.hw.timing.pe_cold_factor
        cold = (busy["tensor"] - full) * slow / (slow - 1) if slow > 1 else 0.0
        body = self.body_us or 1.0
        return {
            "dma_transfers": self.dma_transfer_count,
            "dma_packets": sum(
                n * transfer.descriptors for n, transfer in zip(count, plan.transfers) if transfer
            ),
            "dma_bytes": self.hbm_read_bytes + self.hbm_write_bytes,
            "hbm_read_bytes": self.hbm_read_bytes,
            "hbm_write_bytes": self.hbm_write_bytes,
            "spill_bytes": self.spill_bytes,
            "pe_active": busy["tensor"] / body,
            "dve_active": busy["vector"] / body,
            "act_active": busy["scalar"] / body,
            "pool_active": busy["gpsimd"] / body,
            "dma_active": busy["dma"] / body,
            "pe_full_clock": 1.0 - cold / busy["tensor"] if busy["tensor"] else 1.0,
        }

    @property
    def verdict(self) -> str:
        """Return a sentence if there is no advice, else ""."""
        if self.advice:
            return ""
        return advice.verdict(self.schedule, self.hw, self.descriptors == "dge")

    @property
    def sbuf_peak_lines(self) -> list[Peak]:
        """Return the lines that hold SBUF at the peak, with bytes per partition."""
        return self._peak(False)

    @property
    def psum_peak_lines(self) -> list[Peak]:
        """Return the lines that hold PSUM at the peak, with bytes per partition."""
        return self._peak(True)

    def _peak(self, psum: bool) -> list[Peak]:
        return [Peak(self.trace.where(line), n) for line, n in self.memory.holders(psum)]

    def _flops(self, spec_counts: list[tuple[OpSpec, int]]) -> tuple[int, float]:
        """Return the model's flops, and their share of the peak of the dtypes in use."""
        total, ideal = 0, 0.0
        peaks = self.hw.peak_tflops
        for spec, n in spec_counts:
            flops = spec.row.flops(spec)
            if flops.ops and flops.model:
                dtype = dtypes.name(spec.operands[-1].dtype)
                total += n * flops.ops
                ideal += n * flops.ops / (peaks.get(dtype, peaks["bfloat16"]) * 1e6)
        return total, ideal / self.latency_us / self.cores if self.latency_us else 0.0

    def _bound(self) -> str:
        """Name the engine that limits the kernel; "latency" if none does."""
        if not self.body_us:
            return "latency"
        busy = {e: us / self.body_us for e, us in self.schedule.busy.items()}
        top = max(busy, key=lambda e: busy[e])
        return top if busy[top] >= BOUND else "latency"

    def _check_capacity(self, deps: Dependencies) -> None:
        for memory, missing in deps.overflow.items():
            limit = self.hw.psum_bytes if memory == "psum" else self.hw.sbuf_usable_bytes
            self.findings.append(
                Finding(
                    "NKI-M10",
                    "warning",
                    f"tiles that are alive at the same time take "
                    f"{limit + missing} bytes per partition of {memory.upper()}, which has "
                    f"{limit}; "
                    + (
                        "the rest is copied to SBUF and read there"
                        if memory == "psum"
                        else f"spills to HBM and loads again move {self.spill_bytes:,} bytes"
                    )
                    + ". The predicted time has that; the compiler may do it otherwise, or refuse.",
                )
            )

    # -- files and text ---------------------------------------------------------------------
    def to_dict(self) -> dict[str, Any]:
        """Return the facts, ready for JSON. All times are predicted, in microseconds."""

        def place(w: Where | None) -> str | None:
            return None if w is None else str(w)

        return {
            "kernel": self.kernel_name,
            "case": self.case,
            "dialect": self.dialect,
            "release": self.release,
            "target": self.hw.name,
            "predicted": True,
            "calibrated": self.hw.calibrated,
            "model_error": self.model_error,
            "model_error_like": self.trust.to_dict(),
            "descriptors": self.descriptors,
            "compiler": list(self.compiler),
            "latency_us": self.latency_us,
            "in_order_us": self.in_order_us,
            "band_us": self.band_us,
            "body_us": self.body_us,
            "profile_total_us": self.profile_total_us,
            "engine_busy": self.engine_busy,
            "flops": self.flops,
            "mfu": self.mfu,
            "hbm_read_bytes": self.hbm_read_bytes,
            "hbm_write_bytes": self.hbm_write_bytes,
            "dma_transfer_count": self.dma_transfer_count,
            "spill_bytes": self.spill_bytes,
            "counters": self.counters,
            "sbuf_peak_bytes": self.sbuf_peak_bytes,
            "psum_peak_banks": self.psum_peak_banks,
            "sbuf_peak_lines": [[place(p.where), p.amount] for p in self.sbuf_peak_lines],
            "psum_peak_lines": [[place(p.where), p.amount] for p in self.psum_peak_lines],
            "instructions": dict(self.instructions),
            "bound": self.bound,
            "arguments": [dict(a) for a in self.arguments],
            "floor": self.floor(),
            "tensors": self.tensors(),
            "regions": self.regions(),
            "critical_path": self.critical_path(),
            "advice": [a.to_dict() for a in self.advice],
            "verdict": self.verdict,
            "findings": [
                {
                    "id": f.id,
                    "severity": f.severity,
                    "text": f.text,
                    "where": place(f.where),
                    "other": place(f.other),
                }
                for f in self.findings
            ],
        }

    def summary(self) -> str:
        """Return the facts as text, in the shape of neuron-profile's summary."""
        text: str = _report().summary(self)
        return text

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Write the profile for `python -m nkisim view`; without the viewer, its facts."""
        try:
            from .. import report
        except ImportError:
            text = json.dumps(self.to_dict(), indent=1)
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(text + "\n")
        else:
            report.save_json(self, path)

    def save_html(
        self,
        path: str | os.PathLike[str],
        compare: Iterable[Profile] = (),
        names: Iterable[str] = (),
    ) -> None:
        """Write the profile as one self-contained page.

        `compare`: up to seven profiles to show below it; `names`: what the page calls each.
        """
        _report().save_html(self, path, compare=list(compare), names=list(names))

    def save_table(self, path: str | os.PathLike[str]) -> None:
        """Write a row for each instruction, as CSV or (if pyarrow is installed) Parquet.

        The name ends in .csv or .parquet. Columns are those of Neuron Explorer, times nanoseconds.
        """
        _report().save_table(self, path)

    def save_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as a trace for the Perfetto UI."""
        _report().save_perfetto(self, path)

    def _repr_html_(self) -> str:
        """Return what a notebook shows of a profile: its page."""
        page: str = _report().inline(self)
        return page

    def __repr__(self) -> str:
        return (
            f"<profile of {self.kernel_name}: {self.latency_us:.1f} us predicted for "
            f"{self.hw.name}, bound by {self.bound}>"
        )


def _report() -> Any:
    from .. import report

    return report


def descriptor_path(core: NeuronCore, options: str, wanted: str | None) -> str:
    """Return "static" or "dge": as wanted, else what target and compile options imply."""
    has = core.hwdge
    if wanted is None:
        return "dge" if has and "--disable-dge" not in options else "static"
    if wanted not in DESCRIPTORS:
        raise fail(
            "NKI-K09",
            "there is no such way to make DMA descriptors",
            given=repr(wanted),
            limit=" or ".join(DESCRIPTORS),
        )
    if wanted == "dge" and not has:
        raise fail(
            "NKI-K09",
            f"{core.name} has no hardware descriptor generation",
            given="descriptors='dge'",
            limit="trn2 or newer",
            hint="leave it out",
        )
    return wanted


def profile(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    compute: bool = True,
    descriptors: str | None = None,
    compiler: Iterable[str] | None = None,
    tile_values: bool = False,
    **kwargs: Any,
) -> Profile:
    """Predict how long a kernel takes, and where the time goes.

    Args:
        kernel: a function, decorated with `@nki.jit` or plain; or `kernel[grid]`.
        args, kwargs: what the kernel takes; only shapes and dtypes matter for the time.
        target: "trn1", "trn2" ...; default NEURON_PLATFORM_TARGET_OVERRIDE, else trn1
            (kernels of the package nki: trn2).
        compute: False leaves out the arithmetic; `outputs` is then None.
        descriptors: "static" or "dge"; default: static on trn1 and where the kernel's
            `additional_compile_opt` has --disable-dge, else hardware descriptor generation.
        compiler: what the compiler is taken to do, names of `nkisim.compiler.OPTIONS`; default
            what the compiler of that dialect does, () is strictly as written.
        tile_values: True keeps for the page what each of the first instructions wrote: extremes,
            NaNs, a histogram and a small picture.

    Raises: NkiError when the kernel breaks a rule of NKI or of the chip.
    """
    options = str(getattr(kernel, "options", {}).get("additional_compile_opt") or "")
    inner = as_kernel(kernel)
    core = inner.core(target)
    path = descriptor_path(core, options, descriptors)
    values = TileValues() if tile_values and compute else None
    run = launch(inner, args, kwargs, target=target, compute=compute, tile_values=values)
    return of_run(run, getattr(inner, "__name__", "kernel"), path, compiler, values)


def of_run(
    run: Run,
    name: str,
    descriptors: str | None = None,
    compiler: Iterable[str] | None = None,
    values: TileValues | None = None,
) -> Profile:
    """Predict the time of a kernel that has run; arguments as `profile` takes them."""
    core = hw_of(run.target)
    on = compiling.options(
        compiler,
        compiling.has_middle_end(run.machine.dialect, run.machine.settings.skip_middle_end),
        core.name,
        run.machine.dialect,
    )
    return Profile(run, core, descriptor_path(core, "", descriptors), name, on, values)


__all__ = ["ENGINES", "Memory", "Peak", "Profile", "Timeline", "of_run", "profile"]
