"""`nox -s verify_sim`: kernels through the chip, the SDK's simulator and nkisim, compared.

Each case of the labs and each micro-kernel runs on every backend that is here. Outputs are compared
with the reference and with each other, measured latencies with predicted ones. What comes out: a
table, a page, results/verify_sim.json, and records for `python -m nkisim calibrate --fit`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nkisim

from ..cli import known_labs
from ..dialect import DIALECTS
from ..evaluate import PASSED, Outcome, References, judge
from ..history.results import provenance, sdk_version
from ..load import labs_root, load_module
from ..remote.flags import add_host_flags
from ..run.child import job_of
from ..run.compare import compare
from ..run.worker import Worker
from ..show import add_json, answer, progress, terminal
from ..spec import TARGETS, Case, Lab, MustFailNumerically, MustRaise, SpecError, Tensor
from .generate import BY_HAND, RANDOM

BACKENDS = ("sim", "sdk-sim", "hw")
MICRO = Path(__file__).with_name("micro")
#: Columns of the micro-kernels: of small, middle and large instructions.
SIZES = (64, 512, 2048)
OUT = Path("results")
TOO_FAR_PCT = 25.0


def micro_lab() -> Lab:
    """Return the micro-kernels as a lab: a case for each instruction, size class and dtype."""
    cases: list[Case] = []

    def add(kernel: str, reference: str, *inputs: tuple[tuple[int, ...], str], **more: Any) -> None:
        size = "_".join(
            f"{'x'.join(map(str, shape))}{dtype[0]}{dtype[-2:]}" for shape, dtype in inputs
        )
        cases.append(
            Case(
                f"{kernel}_{size}",
                kernel,
                reference,
                tuple(Tensor(shape, dtype, low=0.5, high=1.5) for shape, dtype in inputs),
                measure=True,
                **more,
            )
        )

    for n in SIZES:
        for kernel, reference in (
            ("copy", "same"),
            ("copy_rows", "same"),
            ("tensor_tensor", "same"),
            ("tensor_copy", "same"),
        ):
            for dtype in ("float32", "bfloat16"):
                add(kernel, reference, ((128, n), dtype), accumulate=0)
        add("tensor_scalar", "add_ones", ((128, n), "float32"), roundings=16)
        add("tensor_reduce", "sums", ((128, n), "float32"), accumulate=n)
        add("reciprocal", "same", ((128, n), "float32"), roundings=32)
        add("activation", "tanh", ((128, n), "float32"), roundings=32)
    for n in (64, 512):
        for dtype in ("float32", "bfloat16"):
            add(
                "matmul",
                "product",
                ((128, 128), dtype),
                ((128, n), dtype),
                accumulate=128 * 16,
                output_dtype="float32",
            )
    add("transpose", "same", ((128, 128), "float32"), accumulate=0)
    return Lab("micro", "One instruction, many times", MICRO, tuple(cases))


def generated(folder: Path) -> Path:
    """Write the micro-kernels of the table into a folder; return it.

    They are tried out on the simulator as they are made, so a process of its own makes them:
    in this one, `nki` may be the SDK's.
    """
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "labkit.neuron.generate", str(folder)],
        env=dict(os.environ, NKI_BACKEND="sim", NKI_BANNER="0", PYTHONUTF8="1", PYTHONPATH=path),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise SpecError(f"the micro-kernels could not be written to {folder}: {why}")
    return folder


def row_labs(rows: Path) -> list[Lab]:
    """Return the micro-kernels of the table, one for each instruction: a lab for each dialect of
    those that are generated, in `rows`, and one of those that are written by hand.

    They have no reference: what they give is compared between the backends.
    """
    made = json.loads((rows / "rows.json").read_text(encoding="utf-8"))["cases"]
    labs = []
    for (name, folder), dialect in product((("rows", rows), ("hand", BY_HAND)), DIALECTS):
        cases = [
            Case(
                f"{one['kernel']}_{n}",
                one["kernel"],
                "",
                (Tensor((128, n), "float32", low=0.5, high=1.5),),
                accumulate=max(128, n),
                roundings=32,
                measure=True,
                targets=tuple(t for t, sizes in one["sizes"].items() if n in sizes),
            )
            for one in made
            if (one["folder"], one["dialect"]) == (name, dialect)
            for n in sorted({n for sizes in one["sizes"].values() for n in sizes})
        ]
        labs.append(Lab(name, "Each instruction", folder, tuple(cases), dialect=dialect))
    return labs


@dataclass
class Row:
    """One case on one target: what each backend said."""

    lab: str
    case: Case
    target: str
    verdicts: dict[str, str] = field(default_factory=dict)  # backend: against the reference
    disagree: list[str] = field(default_factory=list)  # backends against each other
    predicted_us: float | None = None
    measured_us: float | None = None
    instructions: dict[str, int] = field(default_factory=dict)

    @property
    def error_pct(self) -> float | None:
        """Return how far the prediction is off, in per cent of what was measured."""
        if not self.predicted_us or not self.measured_us:
            return None
        return 100 * (self.predicted_us / self.measured_us - 1)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "lab": self.lab,
            "case": self.case.name,
            "target": self.target,
            "verdicts": self.verdicts,
            "disagree": self.disagree,
            "predicted_us": self.predicted_us,
            "measured_us": self.measured_us,
            "error_pct": self.error_pct,
            "instructions": self.instructions,
        }


Runner = Callable[[str, Lab, Case, str], dict[str, Any]]


class Runners:
    """A child process for each backend; `run` is what a test replaces."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}

    def run(self, backend: str, lab: Lab, case: Case, target: str) -> dict[str, Any]:
        """Run a case on a backend and return the child's reply."""
        worker = self.workers.setdefault(backend, Worker(backend))
        job = job_of(
            case,
            kernels=str(lab.kernels),
            backend=backend,
            target=target,
            seed=lab.seed,
            dialect=lab.dialect,
            measure=True,
            profile="",
        )
        return worker.submit(job, case.limit_s(backend)).result()

    def close(self) -> None:
        """End the processes."""
        for worker in self.workers.values():
            worker.__exit__()


def verify_case(
    lab: Lab, case: Case, target: str, backends: Sequence[str], run: Runner, references: References
) -> Row:
    """Run a case on each backend and compare what comes out."""
    row, outputs = Row(lab.label, case, target), {}
    expected = (
        () if isinstance(case.expect, MustRaise) or not case.reference else references.of(case)
    )
    for backend in backends:
        reply = run(backend, lab, case, target)
        if case.reference or "error" in reply:
            outcome = judge(case, target, reply, expected, references)
        else:
            outcome = Outcome(
                case,
                target,
                PASSED,
                "ran",
                stats=reply.get("stats", {}),
                latency=reply.get("latency"),
                latency_kind=reply.get("latency_kind"),
            )
        row.verdicts[backend] = outcome.status if outcome.status == "passed" else outcome.text
        if outcome.latency:
            us = float(outcome.latency[f"p{case.percentile}"])
            if outcome.latency_kind == "measured":
                row.measured_us = us
            else:
                row.predicted_us = us
        if backend == "sim" and outcome.stats:
            row.instructions = outcome.stats.get("instructions", {})
        if (
            "outputs" in reply
            and not isinstance(case.expect, MustFailNumerically)
            and (case.reference or case.kernel not in RANDOM)
        ):
            given = reply["outputs"]
            outputs[backend] = given if isinstance(given, tuple) else (given,)
    for backend in [b for b in backends[1:] if b in outputs and backends[0] in outputs]:
        for ours, theirs in zip(outputs[backends[0]], outputs[backend]):
            if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
                result = compare(
                    ours.astype(np.float64) if ours.dtype.kind not in "iub" else ours,
                    theirs,
                    accumulate=case.accumulate,
                    roundings=case.roundings + 1,
                    added=case.added,
                )
                if not result.ok:
                    row.disagree.append(f"{backends[0]} and {backend}: {result.text}")
    return row


def records(rows: Iterable[Row], labs: dict[str, Lab], root: Path) -> dict[str, Any]:
    """Return what was measured in calibrate's schema; a kernel is known by its file's SHA-256."""
    out = []
    for row in rows:
        lab, case = labs[row.lab], row.case
        if row.measured_us is None or row.verdicts.get("hw") != "passed":
            continue
        path = lab.kernels
        plain = {
            k: v
            for k, v in {**case.kwargs, **case.kernel_kwargs}.items()
            if isinstance(v, (int, float, str, bool))
        }
        out.append(
            {
                "id": f"{row.lab}/{case.name} {row.target}",
                "target": row.target,
                "metric": "nc_latency",
                "value_us": row.measured_us,
                "confidence": "own",
                "source": {
                    "repo": ".",
                    "commit": "worktree",
                    "function": case.kernel,
                    "path": path.resolve().relative_to(root.resolve()).as_posix(),
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                },
                "set": dict(case.constants),
                "kwargs": plain,
                "args": [{"shape": list(t.shape), "dtype": t.dtype} for t in case.inputs],
            }
        )
    return {"schema": 1, "about": "measured by verify_sim", "records": out}


def table(rows: Sequence[Row], backends: Sequence[str]) -> Table:
    """Return a row a case: verdicts, latencies, the error of the prediction."""
    t = Table(title="nkisim against what is here", title_justify="left", box=None, pad_edge=False)
    t.add_column("case", overflow="fold")
    t.add_column("target")
    for backend in backends:
        t.add_column(backend, overflow="fold")
    for name in ("predicted us", "measured us", "error"):
        t.add_column(name, justify="right")
    for row in rows:
        marks = [
            "[green]right[/]"
            if row.verdicts.get(b) == "passed"
            else f"[red]{(row.verdicts.get(b) or '-')[:40]}[/]"
            for b in backends
        ]
        error = row.error_pct
        t.add_row(
            f"{row.lab}/{row.case.name}",
            row.target,
            *marks,
            "-" if row.predicted_us is None else f"{row.predicted_us:,.1f}",
            "-" if row.measured_us is None else f"{row.measured_us:,.1f}",
            "-" if error is None else f"{error:+.0f} %",
        )
    return t


def page(rows: Sequence[Row], facts: dict[str, Any], proposal: str) -> str:
    """Return the report as a page that works offline."""
    errors = [abs(r.error_pct) for r in rows if r.error_pct is not None]
    head = (
        f"median |error| {np.median(errors):.1f} % on {len(errors)} measured kernels"
        if errors
        else "nothing was measured here"
    )
    settings = ", ".join(f"{name} {value}" for name, value in facts.items())
    body = []
    for r in rows:
        bad = any(v != "passed" for v in r.verdicts.values()) or r.disagree
        error = r.error_pct
        width = min(100.0, abs(error or 0.0))
        color = "#c23f35" if abs(error or 0) > TOO_FAR_PCT else "#3b76c4"
        verdict = (
            "; ".join([*(f"{b}: {v}" for b, v in r.verdicts.items() if v != "passed"), *r.disagree])
            or "right"
        )
        body.append(
            f"<tr{' class=bad' if bad else ''}><td>{escape(r.lab)}/{escape(r.case.name)}</td>"
            f"<td>{r.target}</td><td>{escape(verdict)}</td>"
            f"<td class=n>{'-' if r.predicted_us is None else f'{r.predicted_us:,.1f}'}</td>"
            f"<td class=n>{'-' if r.measured_us is None else f'{r.measured_us:,.1f}'}</td>"
            f"<td class=n>{'-' if error is None else f'{error:+.0f} %'}</td><td>"
            f'<svg width=102 height=10><rect width="{width:.0f}" height=10 fill="{color}"/></svg>'
            "</td></tr>"
        )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>verify_sim</title><style>"
        "body{font:14px system-ui,sans-serif;margin:24px}td,th{text-align:left;padding:2px 12px 2px"
        " 0;border-bottom:1px solid #ddd}.n{text-align:right;white-space:nowrap}.bad td{color:"
        "#c23f35}pre{background:#f4f4f4;padding:12px;overflow:auto}</style>"
        "<h1>nkisim against hardware</h1>"
        f"<p>{escape(head)}. {escape(settings)}</p><table><tr><th>case<th>target<th>"
        "outputs<th>predicted us<th>measured us<th>error<th></tr>" + "".join(body) + "</table>"
        f"<h2>Proposal for constants</h2><pre>{escape(proposal)}</pre></html>\n"
    )


def propose(path: Path, root: Path) -> str:
    """Return what `nkisim calibrate --fit` says of the records."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "nkisim",
            "calibrate",
            "--fit",
            str(path),
            "--sources",
            str(root),
            "--write",
            str(path.with_name("verify_sim.proposal.json")),
        ],
        capture_output=True,
        text=True,
    )
    return (done.stdout + done.stderr).strip()


def verify_sim_parser() -> argparse.ArgumentParser:
    """Return the parser of verify_sim."""

    names, _ = known_labs()
    parser = argparse.ArgumentParser(prog="labkit verify_sim", description=verify_sim.__doc__)
    parser.add_argument(
        "labs",
        nargs="*",
        metavar="LAB",
        help=f"labs to run (default: {', '.join(names)} and micro)",
    )
    parser.add_argument(
        "--target", choices=TARGETS, help="the generation of this machine's chip (default: trn1)"
    )
    parser.add_argument(
        "--backend",
        action="append",
        choices=BACKENDS,
        help="compare these (default: all that are here)",
    )
    parser.add_argument("--full", action="store_true", help="all cases, not only the quick ones")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER")
    add_json(parser)
    add_host_flags(parser)
    return parser


def verify_sim(argv: Sequence[str] | None = None, run: Runner | None = None) -> int:
    """Compare nkisim with the SDK's simulator and with the chip, where they are."""
    from ..fleet.bench import has_neuron_devices

    names, load = known_labs()
    args = verify_sim_parser().parse_args(argv)
    backends = tuple(dict.fromkeys(("sim", *(args.backend or BACKENDS))))
    if run is None and "hw" in backends and not has_neuron_devices():
        if not args.backend:
            raise SpecError(
                "verify_sim compares with a chip, and there is no Neuron device here. "
                "On a Neuron machine:  nox -s verify_sim  (or --host NAME); the SDK's "
                "simulator alone:  --backend sdk-sim"
            )
        raise SpecError("--backend hw needs a Neuron device, and there is none here")
    chosen = args.labs or [*names, "micro"]
    ours = [name for name in chosen if name != "micro"]
    loaded = [*(load(ours) if ours else ()), *([micro_lab()] if "micro" in chosen else ())]
    # an SDK speaks one of them; without an SDK all kernels that there are
    spoken = {nkisim.installed_dialect()} if sdk_version() else set(DIALECTS)
    labs = {
        one.label: one
        for lab in loaded
        for dialect in lab.dialects
        if dialect in spoken
        for one in [lab.speaking(dialect)]
    }
    if "micro" in chosen:
        # records name a kernel by its path in the repository: wherever --out is, it is there
        root = labs_root().resolve().parent
        out = args.out if args.out.resolve().is_relative_to(root) else root / OUT
        made = row_labs(generated(out / "rows"))
        labs |= {lab.label: lab for lab in made if lab.dialect in spoken}
    fleet, target = "full" if args.full else "quick", args.target or "trn1"
    console, rows, runners = terminal(), [], Runners()
    todo = [
        (lab, case)
        for lab in labs.values()
        for case in lab.cases
        if fleet in case.fleets and lab.runs(case, target)
    ]
    try:
        with progress(console) as bar:
            task = bar.add_task("verify_sim", total=len(todo))
            for lab in labs.values():
                references = References(load_module(lab.folder / "reference.py"), lab.seed)
                for case in [c for owner, c in todo if owner is lab]:
                    rows.append(
                        verify_case(lab, case, target, backends, run or runners.run, references)
                    )
                    bar.advance(task)
    finally:
        runners.close()
    return report(rows, labs, backends, target, args.out, console)


def report(
    rows: Sequence[Row],
    labs: dict[str, Lab],
    backends: Sequence[str],
    target: str,
    out: Path,
    console: Console,
) -> int:
    """Write the files, print the table; return 0 if all agree, 1 if not."""
    root = labs_root().resolve().parent
    first = next(iter(labs.values()))
    facts = provenance(first, "hw" if "hw" in backends else "sdk-sim", target, first.seed)
    out.mkdir(parents=True, exist_ok=True)
    compared = {**facts, "backends": list(backends), "cases": [r.to_dict() for r in rows]}
    answer.update(compared)
    text = json.dumps(compared, indent=1) + "\n"
    (out / "verify_sim.json").write_text(text, encoding="utf-8")
    measured = records(rows, labs, root)
    path = out / "verify_sim.records.json"
    path.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    proposal = (
        propose(path, root)
        if measured["records"]
        else "nothing was measured, so there is nothing to fit"
    )
    shown = {k: v for k, v in facts.items() if k in ("time", "sdk", "target", "git_commit") and v}
    (out / "verify_sim.html").write_text(page(rows, shown, proposal), encoding="utf-8")
    console.print(table(rows, backends))
    for row in rows:
        for text in row.disagree:
            console.print(f"{row.lab}/{row.case.name}: {text}", highlight=False, markup=False)
    console.print(proposal, highlight=False, markup=False, soft_wrap=True)
    seen = sorted({name for row in rows for name in row.instructions})
    console.print(
        f"\n{len(seen)} instructions of the table were run: {', '.join(seen)}", highlight=False
    )
    console.print(
        f"written: {out / 'verify_sim.json'}, .html, {path.name} (for calibrate --fit)",
        highlight=False,
    )
    for folder in {lab.folder for lab in labs.values() if lab.name == "rows"}:
        console.print(
            f"kernels of single instructions: {folder}; its rows.json says which has none, and why",
            highlight=False,
            soft_wrap=True,
        )
    agree = all(v == "passed" for r in rows for v in r.verdicts.values())
    return 0 if agree and not any(r.disagree for r in rows) else 1
