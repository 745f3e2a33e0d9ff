"""`nkisim.evaluate`: is a kernel right, how long does it take, and how sure is that?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..checks.finding import Finding, as_finding, worst_first
from ..errors import NkiError, Where
from ..errors.frames import is_ours
from ..lint import level
from ..machine.loop import SHUFFLE_VARIABLE
from ..simulation.launch import as_kernel, collected_findings, launch
from ..simulation.order import told_apart
from ..simulation.prediction import Profile, profile
from ..trace.trace import Trace
from ..tuning import verify
from ..tuning.sweep import ENDS, silence
from ..workers import TimeUp, can_limit, limited
from .fixes import Fix, fixes_of
from .inputs import fresh
from .ladder import Ladder

SCHEMA = "nkisim.evaluate/1"
#: seeds of fresh inputs, besides the inputs as they were given
SEEDS = (1,)
#: loops and grids whose order hardware does not keep
#: what the step "runs" says where a limit cannot be kept
NO_LIMIT = (
    "without its limit of {:g} s, which only the main thread on Linux and macOS can keep: "
    "evaluate in a process of its own (nkisim evaluate --isolated, nkisim serve)"
)
_UNORDERED = ("affine_range", "grid", "cores")


@dataclass
class Evaluation:
    """What is known of a kernel. All times are predicted, in microseconds.

    `verdict`: "right", "runs" (no reference was given), or what the first step of the ladder that
    failed is called (ladder.FAILED). `findings`: worst first, with the error that ended it.
    `fixes`: for each finding, edits that were tried and mend it. `profile`: None if it fails.
    """

    kernel: str
    target: str
    ladder: Ladder
    findings: list[Finding] = field(default_factory=list)
    error: BaseException | None = None
    profile: Profile | None = None
    fixes: dict[int, list[Fix]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    release: str = ""
    outputs: Any = None

    @property
    def verdict(self) -> str:
        return self.ladder.verdict

    @property
    def right(self) -> bool | None:
        """Return whether nothing failed; None if nothing did and no reference says that it is."""
        if self.verdict in ("right", "runs"):
            return True if self.verdict == "right" else None
        return False

    @property
    def latency_us(self) -> float | None:
        """Return the predicted latency, None if there is none."""
        return None if self.profile is None else float(self.profile.latency_us)

    @property
    def band_us(self) -> tuple[float, float] | None:
        """Return the least and the greatest latency by the error of the model; None: unknown."""
        return None if self.profile is None else self.profile.band_us

    @property
    def defer(self) -> bool:
        """Return whether the model does not know enough of this kernel to order it with others."""
        return self.profile is None or self.profile.trust.pct is None

    def faster_than(self, other: Evaluation) -> bool | None:
        """Return whether it is faster than another one; None where the model cannot tell.

        That is where the error of either is unknown, or where published pairs that differ by as
        little were ordered wrongly too often (simulation/order.py). Two that use the same
        instructions are variants of one kernel.
        """
        one, two = self.profile, other.profile
        if self.defer or other.defer or one is None or two is None:
            return None
        variants = {*one.instructions} == {*two.instructions}
        if not told_apart(one.latency_us, two.latency_us, variants):
            return None
        return bool(one.latency_us < two.latency_us)

    def refuse(self, findings: Iterable[Finding]) -> None:
        """Add what a compiler refuses in the source, if that was read apart from the kernel."""
        for f in findings:
            self.findings.insert(0, f)
            self.ladder.set("lints", False, f"{f.id} {f.text}")

    def to_dict(self, details: bool = True) -> dict[str, Any]:
        """Return it ready for JSON; docs/evaluate.md says what each field is.

        `details`: with the traffic of tensors, the floor, time by line and loop, the critical path
        and advice, which take some milliseconds more.
        """
        error = getattr(self.error, "nki_error", self.error)
        return {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "target": self.target,
            "release": self.release,
            "seeds": list(self.seeds),
            "verdict": self.verdict,
            "right": self.right,
            "ladder": self.ladder.to_list(),
            "error": None if error is None else error_dict(error),
            "findings": [
                {**finding_dict(f), "fixes": [fix.to_dict() for fix in self.fixes.get(n, ())]}
                for n, f in enumerate(self.findings)
            ],
            "time": self._time(),
            **(self._details() if details and self.profile is not None else {}),
        }

    def _time(self) -> dict[str, Any] | None:
        prof = self.profile
        if prof is None:
            return None
        band = self.band_us
        return {
            "predicted": True,
            "latency_us": float(prof.latency_us),
            "body_us": float(prof.body_us),
            "low_us": band and band[0],
            "high_us": band and band[1],
            "error": prof.model_error,
            "defer": self.defer,
            "bound": prof.bound,
            "sbuf_peak_bytes": prof.sbuf_peak_bytes,
            "psum_peak_banks": prof.psum_peak_banks,
            "spill_bytes": int(prof.spill_bytes),
        }

    def _details(self) -> dict[str, Any]:
        prof = self.profile
        assert prof is not None
        return {
            "floor": prof.floor(),
            "tensors": prof.tensors(),
            "regions": prof.regions(),
            "critical_path": prof.critical_path(),
            "advice": [a.to_dict() for a in prof.advice],
        }

    def summary(self) -> str:
        """Return it as text: the verdict, the steps, the time, and what to do."""
        lines = [f"{self.kernel} on {self.target}: {self.verdict}"]
        for step in self.ladder.steps.values():
            mark = {True: "yes", False: "NO", None: "-"}[step.passed]
            lines.append(f"  {step.name:<10}{mark:<4}{step.text}".rstrip())
        if self.profile is not None:
            prof = self.profile
            floor = prof.floor_us
            lines += [
                f"{prof.latency_us:,.1f} us predicted, not measured; error of the model: "
                f"{prof.model_error}",
                f"floor {floor:,.1f} us: {prof.latency_us / floor:.2f} times that"
                if floor
                else "no floor is known",
                *(f"advice: {a}" for a in prof.advice),
            ]
        for n, f in enumerate(self.findings):
            lines.append(str(f))
            lines += [f"  fix: {fix.title}" for fix in self.fixes.get(n, ())]
        return "\n".join(lines)

    def __repr__(self) -> str:
        time = "" if self.latency_us is None else f", {self.latency_us:,.1f} us predicted"
        return f"<evaluation of {self.kernel} for {self.target}: {self.verdict}{time}>"


def finding_dict(f: Finding) -> dict[str, Any]:
    """Return a finding ready for JSON."""
    return {
        "id": f.id,
        "severity": f.severity,
        "text": f.text,
        "where": f.where.to_dict() if f.where else None,
        "other": f.other.to_dict() if f.other else None,
        "hint": f.suggestion(),
    }


def error_dict(error: BaseException) -> dict[str, Any]:
    """Return what ended a kernel ready for JSON, with the fields of docs/json.md."""
    if isinstance(error, NkiError):
        return {"kind": "rule", **error.to_dict()}
    where = place_of(error)
    kind = "time" if isinstance(error, TimeUp) else "python"
    return no_rule(kind, said_of(error), None if where is None else where.to_dict())


def no_rule(kind: str, what: str, where: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an error that is no rule of ours, with the fields that those of rules have."""
    return {
        "kind": kind, "id": "", "name": "", "what": what, "limit": "", "given": "",
        "where": where, "hint": "",
    }  # fmt: skip


@contextmanager
def setting(name: str, value: str | None) -> Iterator[None]:
    """Set a variable of the environment in the block; None leaves it as it is."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def evaluate(
    kernel: Any,
    *args: Any,
    reference: Callable[..., Any] | None = None,
    target: str | None = None,
    release: str | None = None,
    seeds: Sequence[int] = SEEDS,
    inputs: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]] | None = None,
    limits: Mapping[str, float] | None = None,
    fixes: bool = True,
    compiler: Iterable[str] | None = None,
    descriptors: str | None = None,
    **kwargs: Any,
) -> Evaluation:
    """Say whether a kernel is right, how long it takes, and how sure that is.

    Args:
        kernel: a function, decorated or plain; or `kernel[grid]`.
        args, kwargs: what the kernel takes: the first inputs.
        reference: takes what the kernel takes, and returns what it should.
        target: "trn1", "trn2" ...; default: as for every kernel.
        release: of NKI, whose rules hold ("0.3"); default: as the environment says.
        seeds: of fresh inputs that the kernel is run with besides those given.
        inputs: makes them, as (args, kwargs) of a seed; default: the values of the inputs given
            in another order.
        limits: {"seconds": s}: how long each run may take. Kept in the main thread on Linux and
            macOS; elsewhere the step "runs" says that it was not.
        fixes: whether edits are looked for, and tried, that mend what is wrong.
        compiler, descriptors: as for `nkisim.profile`.

    Returns: an Evaluation; what is wrong with the kernel is in it, nothing of that is raised.
    Raises: NkiError for a target or release that there is not; what the reference raises.
    """
    run = _Evaluating(
        kernel, args, kwargs, reference, target, release, tuple(seeds), inputs, dict(limits or {}),
        {"compiler": compiler, "descriptors": descriptors},
    )  # fmt: skip
    with setting(level.VERSION_VARIABLE, release):
        level.release()  # is there such a one?
        try:
            out = run.evaluate()
        except _ReferenceFails as failed:
            assert failed.__cause__ is not None
            raise failed.__cause__ from None
        if fixes and out.right is False:
            run.known = doubted(out.findings)
            out.fixes = fixes_of(out.findings, run.kernel, run.mended)
    return out


def _as_finding(error: BaseException) -> Finding:
    """Return what ended a kernel as a finding: a broken rule, or an exception with its place."""
    rule = getattr(error, "nki_error", error)
    if isinstance(rule, NkiError):
        return as_finding(rule)
    return Finding("", "error", said_of(error), place_of(error))


def said_of(error: BaseException) -> str:
    """Return an exception that is no rule of ours in a line."""
    return " ".join(f"{type(error).__name__}: {error}".strip(": ").split())


def place_of(error: BaseException) -> Where | None:
    """Return the last line of the user's that an exception went through."""
    if isinstance(error, TimeUp):
        return error.where
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Where(error.filename, error.lineno)
    where, tb = None, error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if not is_ours(code.co_filename) and not code.co_filename.startswith("<frozen"):
            where = Where(code.co_filename, tb.tb_lineno, code.co_name)
        tb = tb.tb_next
    return where


def doubted(findings: Iterable[Finding]) -> set[str]:
    """Return the rules that say that something is wrong, or that a compiler may refuse it."""
    return {f.id for f in findings if f.severity != "note" or f.id.startswith("NKI-R")}


class _ReferenceFails(BaseException):
    """The reference raised an exception, which is no matter of the kernel."""


class _Evaluating:
    """One evaluation, step by step."""

    def __init__(
        self,
        kernel: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reference: Callable[..., Any] | None,
        target: str | None,
        release: str | None,
        seeds: tuple[int, ...],
        inputs: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]] | None,
        limits: dict[str, float],
        settings: dict[str, Any],
    ):
        self.kernel = getattr(kernel, "kernel", kernel)
        self.args, self.kwargs = args, kwargs
        self.reference, self.seeds, self.inputs = reference, seeds, inputs
        self.seconds, self.settings = limits.get("seconds"), settings
        self.target = as_kernel(self.kernel).core(target).name
        self.release = release or level.release()
        self.expected: dict[int, Any] = {}
        self.known: set[str] = set()  # what is wrong with the kernel before it is edited

    def arguments(self, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a seed; 0 are those given."""
        if seed and self.inputs is not None:
            return self.inputs(seed)
        return fresh(self.args, self.kwargs, seed)

    def should(self, seed: int) -> Any:
        """Return what the reference makes of a seed's arguments, computed once."""
        if seed not in self.expected:
            assert self.reference is not None
            args, kwargs = self.arguments(seed)
            try:
                self.expected[seed] = verify.expected(self.reference, args, kwargs)
            except Exception as error:
                raise _ReferenceFails from error
        return self.expected[seed]

    def evaluate(self, kernel: Any = None) -> Evaluation:
        """Take the steps of the ladder with a kernel (default: the one that is evaluated)."""
        kernel = self.kernel if kernel is None else kernel
        name = getattr(as_kernel(kernel), "__name__", "kernel")
        out = Evaluation(name, self.target, Ladder(), seeds=self.seeds, release=self.release)
        out.ladder.set("parses", True)
        findings: list[Finding] = []
        with collected_findings() as runs:
            try:
                self._steps(kernel, out)
            except ENDS as error:
                out.error = error
                out.ladder.broken(error)
                findings.append(_as_finding(error))
        findings += [f for of_run in runs for f in of_run]
        if out.profile is not None:
            findings += out.profile.findings
        out.findings = worst_first(findings)
        return out

    def _steps(self, kernel: Any, out: Evaluation) -> None:
        args, kwargs = self.arguments(0)
        with limited(self.seconds), silence():
            prof = profile(kernel, *args, target=self.target, **self.settings, **kwargs)
        out.profile, out.outputs = prof, prof.outputs
        out.ladder.add_findings(prof.findings)
        if self.seconds and not can_limit():
            out.ladder["runs"].text = NO_LIMIT.format(self.seconds)
        allowed = verify.Allowed.of(prof.trace) if self.reference is not None else None
        if allowed is None:
            out.ladder.set("right", None, "no reference was given")
        else:
            self._compare(out, "right", 0, prof.outputs, allowed)
            for seed in self.seeds:
                if out.ladder["right"].passed is not False:
                    self._compare(out, "right", seed, self._run(kernel, seed), allowed)
        self._shuffled(kernel, out, prof.trace, allowed)

    def _run(self, kernel: Any, seed: int) -> Any:
        args, kwargs = self.arguments(seed)
        with limited(self.seconds), silence():
            return launch(kernel, args, kwargs, target=self.target).outputs

    def _compare(
        self, out: Evaluation, step: str, seed: int, outputs: Any, allowed: verify.Allowed
    ) -> None:
        wrong = verify.differs(outputs, self.should(seed), allowed)
        inputs = f"seed {seed}" if seed else "the inputs given"
        out.ladder.set(step, not wrong, f"{inputs}: {wrong}" if wrong else "")

    def _shuffled(
        self, kernel: Any, out: Evaluation, trace: Trace, allowed: verify.Allowed | None
    ) -> None:
        """Run once more, in another order, what hardware may reorder."""
        if not any(kind in _UNORDERED for kind in trace.loop_kind):
            out.ladder.set("any_order", True, "it has no loop that hardware may reorder")
            return
        seed = self.seeds[-1] if self.seeds and self.reference is not None else 0
        with setting(SHUFFLE_VARIABLE, "1"):
            outputs = self._run(kernel, seed)
        if allowed is not None:
            self._compare(out, "any_order", seed, outputs, allowed)
            return
        wrong = verify.differs(outputs, out.outputs, verify.Allowed.of(trace))
        out.ladder.set("any_order", not wrong, wrong)

    def mended(self, kernel: Any) -> bool:
        """Return whether an edited kernel is right; without a reference, whether nothing is wrong
        with it. It may bring no warning and no doubt that the kernel did not have."""
        now = self.evaluate(kernel)
        if doubted(now.findings) - self.known:
            return False
        return bool(now.right) if self.reference is not None else now.right is None


__all__ = ["SCHEMA", "Evaluation", "evaluate"]
