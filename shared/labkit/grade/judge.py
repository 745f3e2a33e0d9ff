"""The judge of one submission: `python -m labkit.grade.judge < job.json > verdict.json`.

Everything in this process is ours. The simulator runs here on inputs from the secret seed, the
reference is computed here, and the verdict and the predicted latency come from the very run whose
outputs were compared. The student's process says which instructions to run, over a pipe.
"""
from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

import nkisim

from .. import child
from ..backends import check_cores, in_another_order, one_core
from ..compare import AnyArgmax
from ..dialect import PACKAGE, dialect_of
from ..evaluate import PASSED, Outcome, References, judge, score
from ..inputs import make_inputs
from ..load import load_module
from ..spec import Case, MustRaise
from .facade import Facade
from .plan import Graded, load_plan
from .rules import flags_of
from .sandbox import Student
from .session import Overdue, Refused, Session, StudentError

#: address space of this process: what the kernels' tensors and their trace may take
MEMORY = 8 << 30


class Cached(References):
    """Expected outputs, kept in a folder: every submission of a class has the same."""

    def __init__(self, path: Path, seed: int, folder: Path | None):
        super().__init__(load_module(path), seed)
        self.folder = folder

    def of(self, case: Case, swap: tuple[int, int] | None = None) -> tuple[Any, ...]:
        if self.folder is None or swap is not None:
            return super().of(case, swap)
        path = self.folder / f"{case.name}.npz"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                expected = super().of(case)
                arrays = {}
                for i, x in enumerate(expected):
                    if isinstance(x, AnyArgmax):
                        arrays[f"{i}-argmax-{x.accumulate}"] = np.asarray(x.scores)
                    else:
                        arrays[f"{i}-array-0"] = np.asarray(x)
                part = path.with_suffix(".part.npz")
                np.savez(part, **arrays)        # type: ignore[arg-type]
                os.replace(part, path)
        with np.load(path, allow_pickle=False) as file:
            found = [(*name.split("-"), file[name]) for name in file.files]
        found.sort(key=lambda entry: int(entry[0]))
        return tuple(AnyArgmax(array, int(more)) if kind == "argmax" else array
                     for _, kind, more, array in found)


class Bench:
    """Runs the cases of one submission; a student's process that is lost is started again."""

    def __init__(self, job: dict[str, Any], graded: Graded, facade: Facade):
        one_core()
        self.job, self.graded, self.facade = job, graded, facade
        self.folder = Path(job["submission"])
        self.files = {p.name: p.read_text(encoding="utf-8", errors="replace")
                      for p in sorted(self.folder.glob("*.py"))}
        self.student: Student | None = None
        self.session: Session | None = None
        self.broken: dict[str, Any] | None = None       # why no case can run
        self.end = time.monotonic() + graded.plan.total_s
        self.printed = ""
        self.secret = False         # a hidden case has begun: nothing that it says is kept
        self.package = PACKAGE[dialect_of(job["kernels"])]

    def start(self) -> Session:
        """Return the session, of a new process if there is none."""
        if self.session is None:
            self.student = Student(self.folder, self.job["sandbox"], self.job.get("limits"))
            self.session = Session(self.facade, self.student.read, self.student.write, self.files,
                                   self.package)
            self.session.send(self.facade.describe())
            self._deadline()
            self.session.send(["import", self.job["kernels"]])
            self.session.serve()
        return self.session

    def _deadline(self) -> None:
        assert self.session is not None
        now = time.monotonic()
        self.session.deadline = min(now + self.graded.plan.timeout_s, max(self.end, now + 0.1))

    def stop(self) -> None:
        """End the student's process."""
        if self.student is not None:
            self.student.stop()
            if not self.secret:
                self.printed += self.student.printed
        self.student = self.session = None

    def run(self, case: Case, target: str) -> dict[str, Any]:
        """Run one case and return a reply as the testers' child process gives it.

        Hidden cases come last, in a process of their own: what one knows of them it cannot print or
        raise in a case whose words are shown.
        """
        if case.name in self.graded.secret and not self.secret:
            self.stop()
            self.secret = True
        if self.broken is not None:
            return {"error": self.broken}
        if time.monotonic() > self.end:
            return {"error": _error("crash", "the time for this submission was used up before")}
        loading = self.session is None
        try:
            self._watch(self.graded.plan.timeout_s + 30)
            session = self.start()
            loading = False
            self._deadline()
            return self._simulate(session, case, target)
        except StudentError as error:
            reply = _error("import" if loading else "kernel", self._words(error, loading))
            if error.kind == "NotImplementedError":
                reply["name"] = "not_written"
        except Overdue:
            self.stop()
            reply = _error("crash", "the kernel ran for too long and was stopped")
        except Refused as error:
            code = self.student.process.poll() if self.student is not None else None
            self.stop()
            reply = _error("crash", str(error) + (f" (exit code {code})" if code else ""))
        except MemoryError:
            self.stop()
            reply = _error("crash", "the kernel's tensors need more memory than there is")
        except Exception as error:      # of the simulator, about the kernel
            reply = child.describe(error, self.folder / f"{self.job['kernels']}.py")
            reply.setdefault("name", "")
        finally:
            self._watch(0)
        if loading:
            self.stop()
            self.broken = reply
        return {"error": reply}

    @staticmethod
    def _watch(seconds: float) -> None:
        """Let a request that keeps the simulator itself busy end too; 0: no more."""
        if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
            def ring(*_: Any) -> None:
                raise Overdue
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def _simulate(self, session: Session, case: Case, target: str) -> dict[str, Any]:
        session.send(["kernel", case.kernel])
        answer = session.serve()
        options, grid = answer if isinstance(answer, list) and len(answer) == 2 else ([], None)
        constants = dict(case.constants)

        def run_there(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            session.begin()
            session.send(["run", case.kernel, constants, session.encode(args),
                          session.encode(kwargs)])
            return session.serve()
        keywords = {**case.kwargs, **case.kernel_kwargs}
        kernel = _function(case.kernel, len(case.inputs), list(keywords), run_there)
        kernel.nki_options = tuple(o for o in options if isinstance(o, str))
        launched: Callable[..., Any] = importlib.import_module(self.package).jit(kernel)
        if grid is not None:
            launched = launched[grid]           # type: ignore[index]
        check_cores(launched)
        inputs = make_inputs(case, self.job["seed"])
        run = nkisim.profile(launched, *inputs, target=target, **keywords)

        def repeat() -> Any:
            other = nkisim.run(launched, *inputs, target=target, **keywords)
            if (other.instructions, other.hbm_write_bytes) != (run.instructions,
                                                               run.hbm_write_bytes):
                raise ValueError("the kernel asks for other instructions when it runs again")
            return other.outputs
        again = in_another_order(run, repeat)
        us = float(run.latency_us)
        return {"outputs": run.outputs, "shuffled": again, "latency": {"p50": us, "p99": us},
                "latency_kind": "predicted",
                "stats": {"instructions": {str(k): int(n) for k, n in run.instructions.items()},
                          "dma_transfers": int(run.dma_transfer_count),
                          "hbm_read_bytes": int(run.hbm_read_bytes),
                          "hbm_write_bytes": int(run.hbm_write_bytes),
                          "engine_busy": {k: round(float(v), 4)
                                          for k, v in run.engine_busy.items()},
                          "bound": str(run.bound), "model_error": str(run.model_error)},
                "findings": [{"id": f.id, "severity": f.severity, "text": f.text,
                              "where": str(f.where) if f.where else None}
                             for f in run.findings]}

    def _words(self, error: StudentError, loading: bool) -> str:
        """Return an error of the student's own in a sentence, with its line."""
        text = "".join(c if c.isprintable() else " " for c in error.text)[:500].strip()
        if error.kind == "AssertionError":
            what = f"the kernel refuses this input: {text}" if text else "an assert fails"
        elif error.kind == "SystemExit":
            what = "the kernel ends the program"
        elif error.kind == "NotImplementedError" and text:
            return text
        elif error.kind == "SyntaxError":
            what = f"the file is not Python: {text}"
        else:
            kind = error.kind if error.kind.isidentifier() else "an error"
            what = f"{kind}: {text}" if text else kind
        if error.where:
            file, line, _ = error.where
            source = (self.files[file].splitlines() + [""] * line)[line - 1].strip()[:200]
            what += f"\n  where  {file}:{line}\n         {source}"
        return what


def _function(name: str, inputs: int, keywords: list[str], run: Callable[..., Any]) -> Any:
    """Return a function with named parameters, as a kernel has, that calls run(args, kwargs).

    Names are those of the lab's cases; no word of it is the student's.
    """
    first = ", ".join(f"input{i}" for i in range(inputs))
    rest = "".join(f", {k}" for k in keywords)
    named = ", ".join(f"{k}={k}" for k in keywords)
    scope: dict[str, Any] = {"run": run}
    exec(f"def kernel({first}{rest}):\n    return run(({first},), dict({named}))\n", scope)
    scope["kernel"].__name__ = scope["kernel"].__qualname__ = name
    return scope["kernel"]


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "id": "", "name": "", "text": text}


def record(outcome: Outcome, secret: bool) -> dict[str, Any]:
    """Return what a verdict keeps of a case; nothing of a hidden one that its kernel could say."""
    case = outcome.case
    entry: dict[str, Any] = {
        "case": case.name, "kernel": case.kernel, "target": outcome.target, "hidden": secret,
        "status": outcome.status, "text": outcome.text, "detail": outcome.detail,
        "latency_us": outcome.latency and round(outcome.latency[f"p{case.percentile}"], 3),
        "latency_kind": outcome.latency_kind,
        "threshold_us": case.threshold_us.get(outcome.target),
        "engine_busy": outcome.stats.get("engine_busy"), "bound": outcome.stats.get("bound"),
        "dma_transfers": outcome.stats.get("dma_transfers"),
        "hbm_read_bytes": outcome.stats.get("hbm_read_bytes"),
        "findings": [f for f in outcome.findings if f["severity"] != "note"][:10]}
    if secret:
        guess = next((c.guess.text for c in outcome.comparisons if c.guess), "")
        error = outcome.error or {}
        entry["detail"] = f"looks like {guess}" if guess else ""
        entry["findings"] = [{"id": f["id"], "severity": f["severity"], "text": "", "where": None}
                             for f in entry["findings"]]
        if error:
            entry["text"] = f"rule {error['id']} is broken" if error.get("id") \
                else "the kernel does not run to its end on a hidden case"
        elif outcome.status != PASSED and not outcome.comparisons:
            entry["text"] = "not as it should be on a hidden case"
    return entry


def verdict(job: dict[str, Any]) -> dict[str, Any]:
    """Judge a submission and return the verdict, ready for JSON: the same bytes every time."""
    graded = load_plan(Path(job["lab"]), job.get("full", False))
    lab = graded.lab
    cache = Path(job["references"]) if job.get("references") else None
    references = Cached(lab.folder / "reference.py", job["seed"], cache)
    bench = Bench(job, graded, Facade())
    outcomes = []
    try:
        for case, target in sorted(graded.runs, key=lambda run: run[0].name in graded.secret):
            reply = bench.run(case, target)
            expected = () if isinstance(case.expect, MustRaise) or "error" in reply \
                else references.of(case)
            outcome = judge(case, target, reply, expected, references)
            if isinstance(case.expect, MustRaise) and outcome.status == PASSED \
                    and not (outcome.error or {}).get("id"):
                outcome.status, outcome.text = "failed", "ended in an error of the kernel's own"
            outcomes.append(outcome)
    finally:
        bench.stop()
    secret = graded.secret
    shown = [record(o, o.case.name in secret) for o in outcomes]
    texts = {(e["case"], e["target"]): e["text"] for e in shown}
    lines = []
    scored = score(lab, outcomes)
    for line, points, why in scored:
        failing = next((o for o in outcomes if o.case.name in line.cases and o.status != PASSED
                        and line.target in ("", o.target)), None)
        if failing is not None:         # a hidden case is called so, and its text is the record's
            name = "a hidden case" if failing.case.name in secret else failing.case.name
            why = f"{name}: {texts[failing.case.name, failing.target]}"
        lines.append({"text": line.text, "course": line.course, "points": points or 0.0,
                      "of": line.points, "why": why})
    total = sum(points or 0.0 for _, points, _ in scored)
    flags = flags_of(bench.files)
    return plain({"schema": "trainium-labs/verdict", "schema_version": 1, "lab": lab.name,
            "dialect": dialect_of(job["kernels"]), "key": job["key"],
            "submission_sha256": job["submission_sha256"],
            "nkisim": nkisim.__version__, "backend": "sim", "latency_kind": "predicted",
            "points": round(total, 6), "of": round(graded.points, 6), "lines": lines,
            "cases": shown, "flags": flags,
            "printed": bench.printed[:4000]})


def plain(x: Any) -> Any:
    """Return a document whose texts are for any page and any terminal: names that a kernel gives,
    which errors quote, can hold escape codes, halves of characters, and marks that turn lines."""
    if isinstance(x, str):
        return "".join(c if c.isprintable() or c == "\n" else " " for c in x)
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    return [plain(value) for value in x] if isinstance(x, (list, tuple)) else x


def main() -> int:
    """Read a job, judge, write the verdict; what the simulator prints goes nowhere."""
    job = json.load(sys.stdin)
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")
    try:
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
    os.environ["NKI_BACKEND"], os.environ["NKI_BANNER"] = "sim", "0"
    with private:
        json.dump(verdict(job), private, sort_keys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
