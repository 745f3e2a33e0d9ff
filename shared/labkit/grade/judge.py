"""The judge of one submission, in a process of its own.

Everything in this process is ours. The simulator runs here on inputs from the secret seed, the
reference is computed here, and the verdict and the predicted latency come from the very run whose
outputs were compared. The student's process says which instructions to run, over a pipe.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nkisim

from ..dialect import PACKAGE, dialect_of
from ..evaluate import FAILED, PASSED, Outcome, References, judge, score, several
from ..inputs import make_inputs
from ..load import load_module
from ..run import child
from ..run.backends import check_cores, copies, in_another_order, one_core
from ..run.refused import as_dict, with_found
from ..spec import Case, MustRaise, Passes
from .facade import Facade
from .plan import Graded, load_plan
from .recording import Recording
from .redraw import draws
from .rpc_server import Overdue, Refused, Session, StudentError
from .rules import read_source
from .sandbox import Student
from .time_flags import ReviewNotes

#: address space of this process where the job does not say it: what tensors and trace may take
MEMORY = 8 << 30

LONGEST_TEXT = 5000  # of a verdict: reports, pages and answers repeat it
#: seconds that the judge may take for a case beyond its limit; and, as Python's alarm rings between
#: calls of NumPy only, that one of these may go on then, before this process ends
SPARE_S, GRACE_S = 30.0, 10.0
MOST_STUCK = 2  # cases that end a judge; what comes after them is not run
OTHERS = "on_other_inputs"  # among the stats of a case: how it fails there
USED_UP = "the time for this submission was used up before"
TOO_LONG = "the kernel ran for too long and was stopped"


class NoKernel(StudentError):
    """The file lacks what the case names."""


class Bench:
    """Runs the cases of one submission; a student's process that is lost is started again."""

    def __init__(
        self,
        job: dict[str, Any],
        graded: Graded,
        facade: Facade,
        give_up: Callable[[str, str], None] | None = None,
    ):
        one_core()
        self.give_up = give_up  # ends this process: a case of that name and target does not end
        self.job, self.graded, self.facade = job, graded, facade
        self.folder = Path(job["submission"])
        self.files = {
            p.name: p.read_text(encoding="utf-8", errors="replace")
            for p in sorted(self.folder.glob("*.py"))
        }
        self.student: Student | None = None
        self.session: Session | None = None
        self.launched: Any = None  # carries out what was recorded last
        self.broken: dict[str, Any] | None = None  # why no case can run
        self.end = time.monotonic() + min(graded.plan.total_s, job.get("total_s") or math.inf)
        self.printed = ""
        self.stuck = 0  # cases that ended an earlier judge
        self.told = False  # the process has learnt something of the values of a case
        self.secret = False  # a hidden case has begun: nothing that it says is kept
        self.package = PACKAGE[dialect_of(job["kernels"])]
        self.refused: dict[str, list[dict[str, Any]]] = {}  # by kernel, of its source
        self.ranked = ranked_cases(graded)

    def read_source(self, runs: Sequence[tuple[Case, str]]) -> list[dict[str, Any]]:
        """Read the files for what the compiler refuses in them; return the flags for the staff."""
        kernels = sorted({case.kernel for case, _ in runs})
        name, dialect = self.job["kernels"], dialect_of(self.job["kernels"])
        flags, self.refused = read_source(self.files, f"{name}.py", kernels, dialect)
        return flags

    def start(self) -> Session:
        """Return the session; start a process for it if there is none."""
        if self.session is None:
            self.student = Student(self.folder, self.job["sandbox"], self.job.get("limits"))
            self.session = Session(
                self.facade, self.student.read, self.student.write, self.files, self.package
            )
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

    def run(self, case: Case, target: str, seed: int | None = None) -> dict[str, Any]:
        """Run one case and return a reply as the testers' child process gives it.

        `seed`: of the inputs; default: that of the job.

        Hidden cases come last, in a process of their own: what one knows of them it cannot print or
        raise in a case whose words are shown.
        """
        secret = case.name in self.graded.secret
        if self.told or secret and not self.secret:
            self.stop()
        self.told, self.secret = False, secret or self.secret
        if self.broken is not None:
            return {"error": self.broken}
        if [case.name, target] in self.job.get("stuck", []):
            self.stuck += 1
            return {"error": _error("crash", TOO_LONG)}
        if time.monotonic() > self.end or self.stuck >= MOST_STUCK:
            return {"error": _error("crash", USED_UP)}
        inputs = make_inputs(case, self.job["seed"] if seed is None else seed)

        def simulate() -> dict[str, Any]:
            self.launched = self._recorded(case, target, inputs)
            return self._simulate(case, target, inputs)

        return self._guarded(case, target, simulate)

    def run_again(self, case: Case, target: str, seed: int) -> dict[str, Any]:
        """Carry out what the last case has recorded on other inputs; return its outputs, or its
        error. A kernel that has seen values is recorded anew: it may ask for other things."""
        if time.monotonic() > self.end:
            return {"error": _error("crash", USED_UP)}
        inputs = make_inputs(case, seed)

        def outputs() -> dict[str, Any]:
            if self.told:
                self.stop()
                self.told = False
                self.launched = self._recorded(case, target, inputs)
            run = nkisim.run(self.launched, *inputs, target=target, **_keywords(case))
            return {"outputs": run.outputs}

        return self._guarded(case, target, outputs)

    def _guarded(
        self, case: Case, target: str, run: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return what a run gives, or its error in words; it has the time of a case."""
        loading, seconds = self.session is None, self.graded.plan.timeout_s + SPARE_S
        last = threading.Timer(seconds + GRACE_S, self.give_up or str, (case.name, target))
        last.daemon = True
        try:
            last.start()
            self._limit_time(seconds)
            self.start()
            loading = False
            self._deadline()
            return run()
        except NoKernel as error:
            reply = _error("request", error.text)
        except StudentError as error:
            reply = _error("import" if loading else "kernel", self._words(error))
            if error.kind == "NotImplementedError":
                reply["name"] = "not_written"
        except Overdue:
            self.stop()
            reply = _error("crash", TOO_LONG)
        except Refused as error:
            code = self.student.process.poll() if self.student is not None else None
            self.stop()
            reply = _error("crash", str(error) + (f" (exit code {code})" if code else ""))
        except MemoryError:
            self.stop()
            reply = _error("crash", "the kernel's tensors need more memory than there is")
        except Exception as error:  # of the simulator, about the kernel
            reply = child.describe(error, self.folder / f"{self.job['kernels']}.py")
            reply.setdefault("name", "")
            if loading:
                reply["kind"] = "import"
        finally:
            last.cancel()
            self._limit_time(0)
        if loading:
            self.stop()
            self.broken = reply
        return {"error": reply}

    @staticmethod
    def _limit_time(seconds: float) -> None:
        """End a request that keeps the simulator busy for so long; 0 switches it off."""
        if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():

            def ring(*_: Any) -> None:
                raise Overdue

            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def _recorded(self, case: Case, target: str, inputs: list[np.ndarray]) -> Any:
        """Let the student's process run a kernel, without values if it can do without; return what
        carries out the program that comes of it."""
        session = self.start()
        session.begin()  # an error that has ended the case before ends no other
        session.send(["kernel", case.kernel, list(case.constants)])
        try:
            answer = session.serve()
        except StudentError as error:
            raise NoKernel(error.kind, error.text, None) from None
        job = ["run", case.kernel, dict(case.constants)]
        named = case.kernel, len(case.inputs), list(_keywords(case))
        recording = Recording(session, job, answer, named, self._in_another_process)
        check_cores(recording.player)
        return recording.record(tuple(inputs), _keywords(case), target)

    def _in_another_process(self) -> Session:
        """Return the session of a process that has run nothing, for a kernel that needs values."""
        self.stop()
        self.told = True
        return self.start()

    def _simulate(self, case: Case, target: str, inputs: list[np.ndarray]) -> dict[str, Any]:
        """Carry out the program of a case: for outputs and time, and again in another order."""
        keywords = _keywords(case)
        run = nkisim.profile(self.launched, *copies(inputs), target=target, **keywords)
        again = in_another_order(
            run, lambda: nkisim.run(self.launched, *inputs, target=target, **keywords).outputs
        )
        us = float(run.latency_us)
        return {
            "profile": run,
            "outputs": run.outputs,
            "shuffled": again,
            "latency": {"p50": us, "p99": us},
            "latency_kind": "predicted",
            "stats": {
                "instructions": {str(k): int(n) for k, n in run.instructions.items()},
                "dma_transfers": int(run.dma_transfer_count),
                "hbm_read_bytes": int(run.hbm_read_bytes),
                "hbm_write_bytes": int(run.hbm_write_bytes),
                "engine_busy": {k: round(float(v), 4) for k, v in run.engine_busy.items()},
                "bound": str(run.bound),
                "model_error": str(run.model_error),
                "model_error_pct": run.trust.pct,
            },
            "findings": with_found(
                self.refused.get(case.kernel, []), [as_dict(f) for f in run.findings]
            ),
        }

    def _words(self, error: StudentError) -> str:
        """Return an error of the student's own in a sentence, with its line."""
        text = "".join(c if c.isprintable() else " " for c in error.text)[:500].strip()
        kernels = f"{self.job['kernels']}.py"
        if error.kind == "AssertionError":
            text_of = f"the kernel refuses this input: {text}"
            if not text:
                text_of = "an assert of the kernel fails"
        elif error.kind == "SystemExit":
            text_of = f"the kernel ends the program (exit {text or None})"
        elif error.kind == "NotImplementedError" and text:
            return text
        elif error.kind == "SyntaxError":
            place = f"{error.where[0]}:{error.where[1]}" if error.where else kernels
            return child.syntax_text(place, text, self._line(error.where))
        else:
            kind = error.kind if error.kind.isidentifier() else "an error"
            text_of = f"{kind}: {text}" if text else kind
        if error.where:
            file, line, name = error.where
            text_of += f"\n  where  {file}:{line} in {name}\n         {self._line(error.where)}"
        return text_of

    def _line(self, where: tuple[str, int, str] | None) -> str:
        """Return a line of the submission."""
        file, line, _ = where or ("", 1, "")
        return linecache.getline(file, line).strip()[:200] if file in self.files else ""


def _keywords(case: Case) -> dict[str, Any]:
    return {**case.kwargs, **case.kernel_kwargs}


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "id": "", "name": "", "text": text}


def ranked_cases(graded: Graded) -> frozenset[str]:
    """Return the names of the cases that count in the contest: see `spec.Contest`."""
    shown = {case.name: case for case, _ in graded.runs if case.name not in graded.secret}
    fleet = frozenset(n for n, case in shown.items() if graded.lab.contest.fleet in case.fleets)
    return fleet or frozenset(shown)


def record(outcome: Outcome, secret: bool, ranked: bool) -> dict[str, Any]:
    """Return what a verdict keeps of a case; nothing of a hidden one that its kernel could say.

    A kernel that sees a hidden shape can choose how to fail: by which rule, on how many elements,
    in what time. So a student learns of two ways only; `staff` has the reason for the staff.
    """
    case = outcome.case
    entry: dict[str, Any] = {
        "case": case.name,
        "kernel": case.kernel,
        "target": outcome.target,
        "hidden": secret,
        "status": outcome.status,
        "text": outcome.text,
        "detail": outcome.detail,
        "latency_us": outcome.latency and round(outcome.latency[f"p{case.percentile}"], 3),
        "latency_kind": outcome.latency_kind,
        "threshold_us": case.threshold_us.get(outcome.target),
        "engine_busy": outcome.stats.get("engine_busy"),
        "bound": outcome.stats.get("bound"),
        "dma_transfers": outcome.stats.get("dma_transfers"),
        "hbm_read_bytes": outcome.stats.get("hbm_read_bytes"),
        "hbm_write_bytes": outcome.stats.get("hbm_write_bytes"),
        "least_bytes": outcome.stats.get("least_bytes"),
        "contest": ranked,
        "findings": [f for f in outcome.findings if f["severity"] != "note"][:10],
    }
    if OTHERS in outcome.stats:  # which the hidden cases have part in
        entry |= {"staff": outcome.stats[OTHERS], "detail": ""}
    if secret:
        error = outcome.error or {}
        entry["staff"] = (
            ""
            if outcome.status == PASSED
            else error.get("id") or (outcome.text if outcome.comparisons else "")
        )
        entry |= {"detail": "", "findings": [], "threshold_us": None, "least_bytes": None}
        if error:
            entry["text"] = "the kernel does not run to its end on a hidden case"
        else:
            entry["text"] = (
                "right" if outcome.status == PASSED else "not as it should be on a hidden case"
            )
    return entry


def seed_of(job: dict[str, Any], *what: str) -> int:
    """Return the seed of inputs that no other submission has, nor another case of this one.

    Otherwise a submission could count what its inputs give, and the next one, or the next case,
    would have the answer as a constant.
    """
    text = ":".join((str(job["seed"]), job["submission_sha256"], *what))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def on_other_inputs(bench: Bench, outcome: Outcome, reply: dict[str, Any], module: Any) -> None:
    """Fail a case that is right on its own inputs only: see redraw.py."""
    case, target = outcome.case, outcome.target
    if outcome.status != PASSED or not isinstance(case.expect, Passes):
        return
    fewest, begun = min(array.size for array in several(reply["outputs"])), time.monotonic()
    for number, draw in enumerate(draws(case, bench.graded.lab.cases, fewest)):
        if draw is case and number and time.monotonic() - begun > bench.graded.plan.timeout_s / 2:
            continue  # one more of its own kind: fewer where a run takes long
        references = References(module, seed_of(bench.job, case.name, str(number)))
        other = bench.run_again(draw, target, references.seed)
        expected = () if "error" in other else references.of(draw)
        on_draw = judge(draw, target, other, expected, references)
        if on_draw.status != PASSED:
            outcome.status, outcome.stats[OTHERS] = FAILED, on_draw.text
            outcome.text = (
                "right on the inputs of this case, and fails on others of the same shapes: it is "
                "run on more inputs than the tester has, and on the ranges of the lab's other cases"
            )
            outcome.detail = f"{outcome.text}\n\n{on_draw.detail or on_draw.text}"
            return


def judge_case(
    bench: Bench, case: Case, target: str, module: Any
) -> tuple[Outcome, dict[str, Any]]:
    """Run a case on its own inputs, and on others if it counts for speed; `module`: the lab's
    reference.py. Return what became of it, and the reply that says so."""
    references = References(module, seed_of(bench.job, case.name))
    reply = bench.run(case, target, references.seed)
    fails = isinstance(case.expect, MustRaise)
    expected = () if fails or "error" in reply else references.of(case)
    outcome = judge(case, target, reply, expected, references)
    if fails and outcome.status == PASSED and not (outcome.error or {}).get("id"):
        outcome.status, outcome.text = FAILED, "ended in an error of the kernel's own"
    if case.name in bench.ranked or target in case.threshold_us:
        on_other_inputs(bench, outcome, reply, module)
    return outcome, reply


def verdict(
    job: dict[str, Any], give_up: Callable[[str, str], None] | None = None
) -> dict[str, Any]:
    """Judge a submission and return the verdict, ready for JSON: the same bytes every time.

    `give_up`: called from another thread with a case and a target that do not end; "stuck" in the
    next job has them.
    """
    dialect = dialect_of(job["kernels"])
    graded = load_plan(Path(job["lab"]), job.get("full", False)).speaking(dialect)
    lab = graded.lab
    reference = load_module(lab.folder / "reference.py")
    bench = Bench(job, graded, Facade(), give_up)
    flags = bench.read_source(graded.runs)
    outcomes, notes = [], ReviewNotes(job.get("staff_us") or {})
    secret, ranked = graded.secret, bench.ranked
    try:
        for case, target in sorted(graded.runs, key=lambda run: run[0].name in secret):
            outcome, reply = judge_case(bench, case, target, reference)
            notes.at(outcome, reply, case.name in secret)
            outcomes.append(outcome)
    finally:
        bench.stop()
    shown = [record(o, o.case.name in secret, o.case.name in ranked) for o in outcomes]
    texts = {(e["case"], e["target"]): e["text"] for e in shown}
    lines = []
    scored = score(lab, outcomes)
    for line, points, why in scored:
        failing = next(
            (
                o
                for o in outcomes
                if o.case.name in line.cases
                and o.status != PASSED
                and line.target in ("", o.target)
            ),
            None,
        )
        if failing is not None:  # a hidden case is called so, and its text is the record's
            name = "a hidden case" if failing.case.name in secret else failing.case.name
            why = f"{name}: {texts[failing.case.name, failing.target]}"
        elif line.speed and secret & {*line.cases}:  # the times of hidden cases tell shapes
            why = why.partition(" (")[0]
        lines.append(
            {
                "text": line.text,
                "course": line.course,
                "points": points or 0.0,
                "of": line.points,
                "why": why,
            }
        )
    total = sum(points or 0.0 for _, points, _ in scored)
    document = plain(
        {
            "schema": "trainium-labs/verdict",
            "schema_version": 1,
            "lab": lab.name,
            "dialect": dialect,
            "key": job["key"],
            "submission_sha256": job["submission_sha256"],
            "nkisim": nkisim.__version__,
            "backend": "sim",
            "latency_kind": "predicted",
            "rank": list(lab.contest.rank),
            "points": round(total, 6),
            "of": round(graded.points, 6),
            "lines": lines,
            "cases": shown,
            "flags": flags,
            "looks": notes.found,
            "printed": bench.printed[:4000],
        }
    )
    return {**document, "pages": notes.pages}


def plain(data: Any) -> Any:
    """Return a document whose texts are for any page and any terminal: names that a kernel gives,
    which errors quote, can hold escape codes, halves of characters, marks that turn lines, and be
    as long as a message."""
    if isinstance(data, str):
        cut = data if len(data) <= LONGEST_TEXT else data[:LONGEST_TEXT] + " ..."
        return "".join(c if c.isprintable() or c == "\n" else " " for c in cut)
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    return [plain(value) for value in data] if isinstance(data, (list, tuple)) else data


def begin() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what judges in this process (nkisim.workers); what the simulator prints goes nowhere.

    A judge that fails answers with a traceback under "failed".
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    nkisim.be_strict()

    def answer(job: dict[str, Any]) -> dict[str, Any]:
        try:
            import resource

            most = int(job.get("memory") or MEMORY)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        except (ImportError, ValueError, OSError):
            pass

        def give_up(*what: str) -> None:
            _stuck(job).write_text(json.dumps(what), encoding="utf-8")
            os._exit(1)

        try:
            return verdict(job, give_up)
        except Exception:
            return {"failed": traceback.format_exc()[-2000:]}

    return answer


def stuck_at(job: dict[str, Any]) -> list[str] | None:
    """Return the case and target at which the judge of a job gave up; None if it did not."""
    try:
        return json.loads(_stuck(job).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _stuck(job: dict[str, Any]) -> Path:
    return Path(job["submission"]).with_name("stuck.json")  # beside it: out of a kernel's reach
