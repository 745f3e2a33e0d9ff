"""What must hold of any prediction, whatever the machine, held against public kernels.

    python tools/benchmarks/sanity.py --sources DIR [--suite NAME ...] [--cases TEXT] [--most N]

Runs the kernels of `nox -s conformance` (a folder of checkouts), schedules the record of each
launch again and again, and lists what no machine would do:

- a body shorter than what an engine, or the DMA engines, have to do one after the other;
- a body longer than everything one after the other, with nothing at once;
- half of the instructions taking longer than all of them;
- a faster engine, DMA or latency that makes a kernel slower by more than NOISE, or faster by more
  than by its rate; a slower one likewise.

What is left, and why, is told in docs/latency-model.md. Nothing is measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "benchmarks"), str(ROOT / "tools"), str(ROOT / "shared")]

import numpy as np  # noqa: E402
from conformance import child, layouts, pool  # noqa: E402
from conformance.suites import SUITES  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from nkisim.chip import hw  # noqa: E402
from nkisim.simulation import launch  # noqa: E402
from nkisim.simulation.prediction import descriptor_path, seal_inputs  # noqa: E402
from nkisim.timing import compiler, cost  # noqa: E402
from nkisim.timing.schedule import Schedule, schedule  # noqa: E402
from nkisim.timing.whatif import body_us  # noqa: E402
from nkisim.trace.rewrite import Draft  # noqa: E402
from nkisim.trace.trace import Trace  # noqa: E402

#: predictions that differ by less are the same
NOISE = 0.03
#: engine -> its clock
CLOCKS = {"tensor": "pe_ghz", "vector": "dve_ghz", "scalar": "act_ghz", "gpsimd": "pool_ghz"}
LATENCIES = (
    "pe_latency_us",
    "dve_latency_us",
    "act_latency_us",
    "pool_latency_us",
    "hop_us",
    "dma_start_us",
    "dma_read_us",
    "dma_done_us",
)
RATES = (1.02, 1.25, 1 / 1.02, 0.8)
OUT, MOST = "NKISIM_SANITY_OUT", "NKISIM_SANITY_MOST"


def quicker(core: hw.NeuronCore, by: float) -> Iterator[tuple[str, hw.NeuronCore]]:
    """Yield chips with one property `by` times as fast, and the name of the property."""
    t = core.timing
    for engine, clock in CLOCKS.items():
        yield engine, replace(core, **{clock: getattr(core, clock) * by})
    yield "dma", replace(core, timing=replace(t, dma_engine_gbps=t.dma_engine_gbps * by))
    yield (
        "latencies",
        replace(core, timing=replace(t, **{name: getattr(t, name) / by for name in LATENCIES})),
    )


def one_by_one(plan: Schedule, core: hw.NeuronCore, dge: bool) -> float:
    """Return the microseconds of all instructions of a schedule if nothing overlaps."""
    t, total = core.timing, 0.0
    count = np.bincount(plan.deps.spec, minlength=len(plan.works)).tolist()
    for n, w, x in zip(count, plan.works, plan.transfers):
        if w is not None:
            table = t.act_table_us if w.table else 0.0
            total += n * (w.latency_us * t.pe_cold_factor + t.hop_us + table)
        elif x is not None:
            total += n * (
                x.us
                + t.dma_start_us
                + t.dma_read_us
                + t.dma_done_us
                + cost.trigger_us(x, core)
                + dge * cost.descriptors_us(x, core)
            )
    return total


def half(trace: Trace) -> Trace:
    """Return the first half of a trace's instructions."""
    draft = Draft(trace)
    draft.dropped[len(trace) // 2 :] = True
    return draft.finish()


def broken(trace: Trace, core: hw.NeuronCore, dge: bool, on: frozenset[str]) -> Iterator[str]:
    """Yield what does not hold of a trace's predictions."""

    def us(core: hw.NeuronCore, some: Trace = trace) -> float:
        return body_us(schedule(some, core, dge=dge, on=on))

    plan = schedule(trace, core, dge=dge, on=on)
    body = body_us(plan)
    for engine, busy in plan.busy.items():
        if busy > body * (1 + 1e-6):
            yield f"{engine} works {busy:.1f} of {body:.1f} us"
    if (most := one_by_one(plan, core, dge)) < body:
        yield f"{body:.1f} us, one by one {most:.1f}"
    if len(trace) > 1 and (part := us(core, half(trace))) > body * (1 + NOISE):
        yield f"half of it takes {part:.1f} of {body:.1f} us"
    for by in RATES:
        for what, other in quicker(core, by):
            if plan.busy.get(what, 1.0):
                ratio = us(other) / body
                if not min(1.0, 1 / by) - NOISE <= ratio <= max(1.0, 1 / by) + NOISE:
                    yield f"{what} x {by:.2f}: time x {ratio:.2f}"


def watch(job: dict[str, Any]) -> None:
    """Let every launch of this process be looked at, each record once."""
    run_it, seen = launch._launch, set[str]()

    def spy(m: Any, kernel: Any, *args: Any) -> launch.Run:
        run = run_it(m, kernel, *args)
        trace, core = run.trace, hw.get(run.target)
        key = hashlib.sha256(bytes(trace.rows)).hexdigest()
        if (
            0 < len(trace) <= int(os.environ[MOST])
            and key not in seen
            and run.machine.launch.cores is None
        ):
            seen.add(key)
            seal_inputs(trace)
            on = compiler.options(
                None,
                compiler.has_middle_end(run.machine.dialect, run.machine.settings.skip_middle_end),
                core.name,
                run.machine.dialect,
            )
            found = list(broken(trace, core, descriptor_path(core, "", None) == "dge", on))
            name = f"{kernel.__name__} ({Path(job['file']).name})"
            line = {
                "suite": job["suite"],
                "kernel": name,
                "target": core.name,
                "instructions": len(trace),
                "broken": found,
            }
            with open(os.environ[OUT], "a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
        return run

    launch._launch = spy  # type: ignore[assignment]


def watched(job: dict[str, Any], results: Path) -> None:
    """Run a job with a look at its launches."""
    watch(job)
    child.run(job, results)


def main() -> int:
    """Print what does not hold; return 1 if there is anything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sources", type=Path, required=True, help="a folder of checkouts")
    parser.add_argument(
        "--suite",
        action="append",
        choices=[s.name for s in SUITES],
        help="only this one; can be given again",
    )
    parser.add_argument("--cases", default="", help="only checkouts and files with this text")
    parser.add_argument("--most", type=int, default=10_000, help="instructions of a kernel")
    options = parser.parse_args()
    if not options.sources.is_dir():
        parser.error(f"--sources {options.sources}: there is no such folder")
    jobs = [
        job
        for suite in SUITES
        if suite.name in (options.suite or [s.name for s in SUITES])
        for checkout in layouts.checkouts(suite, options.sources.resolve())
        for job in layouts.jobs(suite, checkout, full=False)
        if options.cases in f"{checkout.name} {job.name}"
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.jsonl"
        out.touch()
        os.environ.update({OUT: str(out), MOST: str(options.most)})
        for done in pool.Pool(2, watched).run(jobs):
            print(f"{done.job.suite}: {done.job.checkout.name} {done.job.name}", file=sys.stderr)
        found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    table = Table(box=None, title="Predictions that no machine would have", title_justify="left")
    for name in ("suite", "kernel", "target", "instructions", "what"):
        table.add_column(name, overflow="fold")
    bad = [f for f in found if f["broken"]]
    for f in sorted(bad, key=lambda f: (f["suite"], f["kernel"])):
        table.add_row(
            f["suite"], f["kernel"], f["target"], str(f["instructions"]), "\n".join(f["broken"])
        )
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    print(f"{len(found)} launches looked at, {len(bad)} with something.")
    return 1 if bad or not found else 0


if __name__ == "__main__":
    from sanity import main  # whose functions other processes can import

    sys.exit(main())
