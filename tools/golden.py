"""Write down all that the simulator says of the kernels that are here, and compare with it later.

    PYTHONPATH=tools python -m golden write FILE [--only TEXT] [--sources DIR]
    PYTHONPATH=tools python -m golden compare FILE [--only TEXT] [--sources DIR]

For a change that must change nothing: write before it, compare after it. A file has a JSON object a
line: for each case of the labs in each dialect, for the points of the quick ones, for both kernels
of each example of a rule, for the labs' mistakes that tests make, and for each record of the
calibration that has a kernel here or, with --sources, in a checkout there. It takes some minutes.
`compare` lists what differs, and ends with 1 if anything does.
Values are not compared, but whether a lab's are right: their last bits are those of a BLAS.
"""

from __future__ import annotations

import argparse
import json
import linecache
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import nkisim
from labkit.evaluate import Outcome, evaluate, score
from labkit.inputs import make_inputs
from labkit.load import discover, load_lab, load_module
from labkit.spec import FLEET_TARGETS, Case, Lab
from nkisim.calibration import calibrate, records
from nkisim.checks.finding import Finding, as_finding
from nkisim.cli.examples import Example, examples
from nkisim.errors import NkiError
from nkisim.simulation import launch
from nkisim.trace.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
Entry = dict[str, Any]
Job = tuple[str, Callable[[], Entry]]


def digest(trace: Trace) -> str:
    """Return a hash of a trace: its instructions in their order, storages, loops and lines."""
    specs = [
        (k.row.name, k.engine, k.operands, k.outputs, k.accumulate, k.inplace, k.variant, k.masked,
         k.numbers)
        for k in trace.op_specs
    ]  # fmt: skip
    numbers = (
        trace.rows, trace.starts, trace.storages.data,
        trace.node_parent, trace.node_loop, trace.node_iter,
    )  # fmt: skip
    words = (specs, trace.loop_kind, trace.loop_line, [(w.line, w.function) for w in trace.lines])
    found = blake2b(re.sub(r" at 0x\w+", "", repr(words)).encode(), digest_size=8)
    for some in numbers:
        found.update(some)
    return found.hexdigest()


def traced(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what `run` returns, and the digest of the trace of each kernel that ended in it."""
    seen: list[str] = []

    def observe(_: str, run: launch.Run) -> None:
        seen.append(digest(run.trace))

    launch.OBSERVERS.append(observe)
    try:
        return run(), seen
    finally:
        launch.OBSERVERS.remove(observe)


def labs() -> Iterator[Job]:
    """Yield each case of each lab, dialect and target, and then the points."""
    for name in discover(ROOT / "labs"):
        for dialect in load_lab(ROOT / "labs" / name).dialects:
            lab = load_lab(ROOT / "labs" / name).speaking(dialect)
            outcomes: list[Outcome] = []
            for target in FLEET_TARGETS:
                for case in lab.cases:
                    if lab.runs(case, target):
                        yield (
                            f"lab {name} {dialect} {target} {case.name}",
                            partial(_case, lab, case, target, outcomes),
                        )
            yield f"lab {name} {dialect} points", partial(_points, lab, outcomes)


def _case(lab: Lab, case: Case, target: str, outcomes: list[Outcome]) -> Entry:
    """Return what a case gives without values, and with them if it is small (the quick fleet)."""
    module = load_module(lab.kernels, "kernels_without_values")
    with patch.dict(vars(module), case.constants):
        entry = _predicted(lab, case, target, getattr(module, case.kernel))
    if "quick" in case.fleets:
        (outcome,), seen = traced(
            lambda: list(evaluate(lab, [(case, target)], in_process=True, measure=True))
        )
        outcomes.append(outcome)
        entry.update(_judged(outcome, seen))
    return entry


def _predicted(lab: Lab, case: Case, target: str, kernel: Any) -> Entry:
    inputs = make_inputs(case, lab.seed)
    settings = {**case.kwargs, **case.kernel_kwargs}
    run = partial(nkisim.profile, kernel, *inputs, target=target, compute=False, **settings)
    try:
        made, seen = traced(run)
    except Exception as error:
        return {"timing only": str(getattr(error, "id", type(error).__name__))}
    return {"timing only": [made.latency_us, *seen]}


def _judged(outcome: Outcome, seen: list[str]) -> Entry:
    return {
        "status": outcome.status,
        "us": (outcome.latency or {}).get("p50"),
        "findings": [
            f"{f['id']} {(f['where'] or '').split(' ')[0].rpartition('/')[2]}"
            for f in outcome.findings
        ],
        "error": (outcome.error or {}).get("id"),
        "traces": seen,
    }


def _points(lab: Lab, outcomes: list[Outcome]) -> Entry:
    return {"points": [[line.text, points] for line, points, _ in score(lab, outcomes)]}


def found_in(e: Example, wrong: bool, folder: Path) -> list[Finding]:
    """Return what is found when an example's wrong or right kernel runs."""
    path = folder / f"{'wrong' if wrong else 'right'}.py"
    path.write_text(e.source(wrong), "utf-8")
    linecache.checkcache(str(path))
    x = np.random.default_rng(0).random((128, 512), dtype=np.float32) + 0.5
    names = {"NEURON_PLATFORM_TARGET_OVERRIDE": e.target, "NKI_LANGUAGE_VERSION": e.release}
    with patch.dict(os.environ, names), launch.collected_findings() as runs:
        try:
            exec(
                compile(e.source(wrong), path, "exec", dont_inherit=True),
                {"__name__": "example", "x": x},
            )
        except Exception as error:
            rule = getattr(error, "nki_error", error)
            if isinstance(rule, NkiError):
                runs.append([as_finding(rule)])
            else:
                runs.append([Finding(type(error).__name__, "error", str(error))])
    return [f for found in runs for f in found]


def rules() -> Iterator[Job]:
    """Yield the wrong and the right kernel of each example of a rule."""
    for e in examples():
        for which in ("wrong", "right"):
            yield f"rule {e.id} {e.dialect} {e.title}, {which}", partial(_rule, e, which == "wrong")


def _rule(e: Example, wrong: bool) -> Entry:
    with tempfile.TemporaryDirectory() as folder:
        found, seen = traced(lambda: found_in(e, wrong, Path(folder)))
    lines = [f"{f.id} {f.severity} {f.where.line if f.where else '-'}" for f in found]
    return {"findings": lines, "traces": seen}


def mistakes() -> Iterator[Job]:
    """Yield the labs' kernels with the mistakes that tests/labs/test_mistakes.py makes."""
    tests = load_module(ROOT / "tests/labs/test_mistakes.py")
    for dialect, rows in (("kernels", tests.KERNEL_MISTAKES), ("kernels_nki", tests.NEWER)):
        for lab, case, right, wrong, says, *more in rows:
            source = (ROOT / "labs" / lab / f"{dialect}.py").read_text("utf-8")
            source = source.replace(right, wrong).replace(*(*more, ("", ""))[0])
            source += tests.ROW_OF if dialect == "kernels" else ""
            yield (
                f"mistake {lab} {dialect} {case.name}: {says}",
                partial(_mistake, tests.judged, lab, case, source, says),
            )


def _mistake(judged: Callable[..., Outcome], lab: str, case: Case, source: str, says: str) -> Entry:
    with tempfile.TemporaryDirectory() as folder:
        outcome, seen = traced(lambda: judged(lab, case, source, Path(folder)))
    return {**_judged(outcome, seen), "named": says in outcome.detail}


def calibration(sources: Path | None = None) -> Iterator[Job]:
    """Yield the kernels of ours that are like published ones, and those of `sources`."""
    for record in records.load():
        for where in dict.fromkeys((sources, None)):
            if where or record.twin:
                yield (
                    f"{'record' if where else 'twin'} {record.id}",
                    partial(_record, record, where),
                )


_profiles: dict[str, Any] = {}  # the last one: a kernel has several records, in a row


def _record(record: records.Record, sources: Path | None) -> Entry:
    out, seen = traced(lambda: calibrate.compare(record, sources, _profiles))
    return {
        "measured us": out.measured_us, "us": out.predicted_us, "bound": out.bound,
        "instructions": out.instructions, "skipped": out.skipped, "traces": seen,
    }  # fmt: skip


def entries(only: str, sources: Path | None) -> Iterator[tuple[str, Entry]]:
    """Yield what is written, by name; show how far it is."""
    jobs = [
        job
        for some in (labs(), rules(), mistakes(), calibration(sources))
        for job in some
        if only in job[0]
    ]
    for n, (name, job) in enumerate(jobs, 1):
        print(f"{n}/{len(jobs)} {name}", file=sys.stderr, flush=True)
        yield name, json.loads(json.dumps(job()))  # as a file gives it back


def differences(before: dict[str, Entry], now: dict[str, Entry]) -> list[tuple[str, str, Any, Any]]:
    """Return (name, field, before, now) of what differs; a name that one has not is such, too."""
    found: list[tuple[str, str, Any, Any]] = []
    for name in [*before, *(n for n in now if n not in before)]:
        was, has = before.get(name), now.get(name)
        if was is None or has is None:
            found.append((name, "is there", was is not None, has is not None))
            continue
        found += [
            (name, field, was.get(field), has.get(field))
            for field in {**was, **has}
            if was.get(field) != has.get(field)
        ]
    return found


def main(argv: list[str] | None = None) -> int:
    """Write or compare; return 1 if something differs."""
    parser = argparse.ArgumentParser(prog="golden", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="only what has this in its name")
    parser.add_argument("--sources", type=Path, help="folder of checkouts, for the calibration")
    options = parser.parse_args(argv)
    if options.what == "write":
        with options.file.open("w", encoding="utf-8") as file:
            for name, entry in entries(options.only, options.sources):
                file.write(json.dumps({"name": name, **entry}) + "\n")
        return 0
    lines = map(json.loads, options.file.read_text("utf-8").splitlines())
    before = {line.pop("name"): line for line in lines}
    now = dict(entries(options.only, options.sources))
    found = differences({n: e for n, e in before.items() if options.only in n}, now)
    for row in [("name", "field", "before", "now"), *found] if found else []:
        print(" | ".join(map(str, row)))
    print(f"{len(found)} differences in {len(now)} records")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
