"""The one evaluator: run a lab's cases on a backend and judge them. Labs add no code here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .inputs import dtype_of, make_inputs
from .load import load_module
from .mistakes import Mistakes
from .run.backends import ORDER, SHUFFLE
from .run.child import job_of
from .run.compare import AnyArgmax, Comparison, compare
from .run.diagnose import Alternative
from .run.worker import Worker
from .spec import Case, Lab, MustFailNumerically, MustRaise, RubricLine, SpecError

PASSED, FAILED, NOT_RUN = "passed", "failed", "could not run"


@dataclass
class Outcome:
    """What became of one case on one target."""

    case: Case
    target: str
    status: str
    text: str  # one sentence
    detail: str = ""  # the whole report, for a failure
    comparisons: list[Comparison] = field(default_factory=list)
    error: dict[str, Any] | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    latency: dict[str, float] | None = None
    latency_kind: str | None = None  # "measured" on the chip, "predicted" by a model
    seconds: float = 0.0
    printed: str = ""

    @property
    def meets_threshold(self) -> bool | None:
        """Return whether the latency is within the case's threshold; None if not known."""
        return self.within(self.case.threshold_us)

    @property
    def unwritten(self) -> bool:
        """Return whether it ended at a stub, which says what is to be written."""
        return (self.error or {}).get("name") == "not_written"

    @property
    def state(self) -> str:
        """Return the status as people are told: a step that is not written is no failure."""
        return "not written yet" if self.unwritten else self.status

    def within(self, limits: Mapping[str, float]) -> bool | None:
        """Return whether the latency is within a limit by target; None if either is not known."""
        if self.target not in limits or self.latency is None:
            return None
        return self.latency[f"p{self.case.percentile}"] <= limits[self.target]

    def to_dict(self) -> dict[str, Any]:
        """Return the record for results.json."""
        return {
            "case": self.case.name,
            "kernel": self.case.kernel,
            "target": self.target,
            "status": self.status,
            "text": self.text,
            "comparisons": [c.to_dict() for c in self.comparisons],
            "error": self.error,
            "findings": self.findings,
            "stats": self.stats,
            "latency_us": self.latency,
            "latency_kind": self.latency_kind,
            "threshold_us": self.case.threshold_us.get(self.target),
            "meets_threshold": self.meets_threshold,
            "seconds": round(self.seconds, 4),
        }


def evaluate(
    lab: Lab,
    runs: Iterable[tuple[Case, str]],
    *,
    backend: str = "sim",
    seed: int | None = None,
    in_process: bool = False,
    kernels: Path | None = None,
    profile: str = "",
    measure: bool = False,
    time_limit: float | None = None,
) -> Iterator[Outcome]:
    """Run (case, target) pairs and yield an outcome each, in order.

    The kernels (default: the lab's, in its dialect) run in one child process per call; the verdict
    is computed here. Inputs come from `seed` (default: the lab's) on both sides. `measure` wants
    the latency of every case, not only of those that are judged by it. `time_limit`: the seconds
    that a kernel may run (default: what the case says).
    """
    kernels = kernels or lab.kernels
    seed = lab.seed if seed is None else seed
    references = References(load_module(lab.folder / "reference.py"), seed)
    written: dict[str, bool] = {}  # kernel -> for all arguments so far
    with Worker(backend, in_process) as worker:
        for case, target in runs:
            request = job_of(
                case,
                kernels=str(kernels),
                backend=backend,
                target=target,
                seed=seed,
                dialect=lab.dialect,
                measure=measure or case.measure or target in case.threshold_us,
                profile=profile.replace("{case}", case.name),
                limit_us=case.threshold_us.get(target),
                one_core=True,
            )
            coming = worker.submit(request, time_limit or case.limit_s(backend))
            # The reference is computed while the child runs the kernel, once that is known to be
            # written: a stub needs none, and for large cases that saves a minute.
            expected: tuple[Any, ...] = ()
            judged = not isinstance(case.expect, MustRaise)
            if ahead := judged and written.get(case.kernel, False):
                expected = references.of(case)
            reply = coming.result()
            stub = reply.get("error", {}).get("name") == "not_written"
            written[case.kernel] = written.get(case.kernel, True) and not stub
            if judged and not ahead and not stub:
                expected = references.of(case)
            yield judge(case, target, reply, expected, references)


class References:
    """Compute expected outputs; keep the last one, which neighbours in a fleet often share.

    `module`: the lab's reference.py; the lab's known mistakes lie next to it.
    """

    def __init__(self, module: ModuleType, seed: int):
        self.module, self.seed = module, seed
        self._known: Mistakes | None = None
        self._last: tuple[Any, tuple[Any, ...]] = (None, ())

    def of(self, case: Case, swap: tuple[int, int] | None = None) -> tuple[Any, ...]:
        """Return the expected outputs; `swap=(i, j)`: as if input i held the values of input j."""
        key = (case.reference, case.inputs, repr(sorted(case.kwargs.items())), swap)
        if self._last[0] != key:
            inputs = make_inputs(case, self.seed)
            if swap is not None:
                inputs[swap[0]] = inputs[swap[1]]
            result = self._function(case)(*inputs, **case.kwargs)
            self._last = (key, result if isinstance(result, tuple) else (result,))
        return self._last[1]

    def _function(self, case: Case) -> Callable[..., Any]:
        function = getattr(self.module, case.reference, None)
        if not callable(function):
            raise SpecError(f"case {case.name}: reference.py has no {case.reference}")
        reference: Callable[..., Any] = function
        return reference

    def mistakes(self, case: Case, output: int, worst: tuple[int, ...]) -> list[Alternative]:
        """Return what the output would be with the mistakes that are known of the case's lab.

        And, for all labs: if one input had been overwritten by another. `worst`: the element that
        the output is most wrong in; where the reference takes long, only its surroundings matter.
        """
        if self._known is None:
            self._known = Mistakes.load(Path(self.module.__file__ or "").parent)
        alternatives = []
        for i, one in enumerate(case.inputs):
            for j, other in enumerate(case.inputs):
                if i != j and (one.shape, one.dtype) == (other.shape, other.dtype):
                    result = self.of(case, (i, j))[output]
                    if isinstance(result, np.ndarray):
                        alternatives.append(
                            Alternative(
                                f"input {i} was overwritten by input {j} before it was used "
                                "(two tiles at one address?)",
                                result,
                                kind="aliasing",
                            )
                        )
        return alternatives + self._known.alternatives(
            case.reference,
            self._function(case),
            make_inputs(case, self.seed),
            dict(case.kwargs),
            output,
            worst,
        )


def judge(
    case: Case,
    target: str,
    reply: dict[str, Any],
    expected: tuple[Any, ...],
    references: References,
) -> Outcome:
    """Turn a child's reply into a verdict."""
    outcome = Outcome(
        case,
        target,
        FAILED,
        "",
        findings=reply.get("findings", []),
        stats=reply.get("stats", {}),
        latency=reply.get("latency"),
        seconds=reply.get("seconds", 0.0),
        printed=reply.get("printed", ""),
    )
    if outcome.latency:
        outcome.latency_kind = reply.get("latency_kind")
    error = reply.get("error")
    if error:
        _judge_error(outcome, error)
    elif isinstance(case.expect, MustRaise):
        outcome.text = f"ran to its end, but should have ended in {case.expect.error}"
        outcome.detail = case.expect.why
    else:
        _judge_outputs(outcome, several(reply["outputs"]), expected, references)
        if outcome.status == PASSED and not isinstance(case.expect, MustFailNumerically):
            _judge_findings(outcome)
            if outcome.status == PASSED and reply.get("shuffled") is not None:
                _judge_shuffled(outcome, reply["shuffled"], expected, references)
            if outcome.status == PASSED:
                _judge_means(outcome)
    return outcome


def _judge_means(outcome: Outcome) -> None:
    """Fail a right kernel that does not do what its step teaches, where that was counted."""
    case, transfers = outcome.case, outcome.stats.get("dma_transfers", 0)
    instructions = outcome.stats.get("instructions", {})
    if case.most_transfers and transfers > case.most_transfers:
        outcome.status = FAILED
        outcome.text = (
            f"right, with {transfers:,} DMA transfers; at most {case.most_transfers:,} count here. "
            "A small transfer takes as long as a large one: move whole tiles"
        )
    elif case.uses and instructions and not any(i.startswith(case.uses) for i in instructions):
        outcome.status = FAILED
        outcome.text = (
            f"right, without {' or '.join(case.uses)}, which this step is about; it has "
            + ", ".join(instructions)
        )


def several(outputs: Any) -> tuple[Any, ...]:
    """Return the outputs of a kernel, which may be one."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _judge_shuffled(
    outcome: Outcome, again: Any, expected: tuple[Any, ...], references: References
) -> None:
    """Fail a case whose result is right in one order of iterations only, and say why.

    `again`: the outputs of another order, or the text of the error that it ended in.
    """
    other = Outcome(outcome.case, outcome.target, FAILED, "")
    if isinstance(again, str):
        other.text = again
    else:
        _judge_outputs(other, several(again), expected, references)
    if other.status == PASSED:
        return
    met = next(
        (f for f in outcome.findings if f["id"] in ORDER and f["severity"] == "warning"),
        {
            "id": "",
            "text": "Run-time indices choose what iterations write: two of them choose the same",
            "where": "",
        },
    )
    outcome.status, outcome.comparisons = FAILED, other.comparisons
    outcome.text = (
        "the result is right here by luck: with iterations in another order and DMAs "
        f"that take longer ({SHUFFLE}=1), {other.text}. {met['id']} {met['text']}"
    )
    outcome.detail = "\n".join(filter(None, (outcome.text, met["where"], "", other.detail)))


def _judge_findings(outcome: Outcome) -> None:
    """Fail a case with right results that the chip need not give: an error among the findings.

    What AWS's compiler refuses is marked as such ("refused"), and is one whatever its severity was.
    """
    wrong = next((f for f in outcome.findings if f["severity"] == "error"), None)
    if wrong is not None:
        outcome.status = FAILED
        outcome.text = (
            "AWS's compiler refuses this kernel"
            if wrong.get("refused")
            else "the result is right here by luck"
        ) + f": {wrong['id']} {wrong['text']}"
        outcome.detail = "\n".join(filter(None, (outcome.text, wrong["where"])))


def _judge_error(outcome: Outcome, error: dict[str, Any]) -> None:
    outcome.error = error
    expect, kind = outcome.case.expect, error["kind"]
    outcome.detail = error["text"]
    if kind in ("backend", "request", "import"):
        outcome.status, outcome.text = NOT_RUN, error["text"].splitlines()[0]
        return
    given = {name for name in (error.get("id"), error.get("name")) if name}
    if isinstance(expect, MustRaise) and expect.error in given:
        outcome.status = PASSED
        outcome.text = f"ended in {' '.join(sorted(given))}, as it should"
    elif isinstance(expect, MustRaise):
        outcome.text = f"ended in another error than {expect.error}"
    else:
        outcome.text = _first_line(error["text"])  # the simulator's begins with the rule's id


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "an error")


def _judge_outputs(
    outcome: Outcome, outputs: tuple[Any, ...], expected: tuple[Any, ...], references: References
) -> None:
    case = outcome.case
    if len(outputs) != len(expected):
        outcome.text = (
            f"the kernel returned {len(outputs)} outputs; the reference has {len(expected)}"
        )
        return
    for place, (wanted, given) in enumerate(zip(expected, outputs)):
        options: dict[str, Any] = {
            "accumulate": case.accumulate,
            "roundings": case.roundings,
            "functions": case.functions,
            "added": case.added,
            "dtype": None
            if isinstance(wanted, AnyArgmax)
            else dtype_of(case.dtype_of_output(place)),
        }
        result = compare(wanted, given, **options)
        if result.wrong:
            mistakes = references.mistakes(case, place, result.worst)
            if mistakes:
                result = compare(wanted, given, alternatives=mistakes, **options)
        outcome.comparisons.append(result)
    bad = [c for c in outcome.comparisons if not c.ok]
    if isinstance(case.expect, MustFailNumerically):
        _judge_wrong(outcome, case.expect, bad)
    elif bad:
        outcome.text = bad[0].text
        outcome.detail = "\n\n".join(c.render() for c in bad)
    else:
        outcome.status, outcome.text = PASSED, outcome.comparisons[0].text


def _judge_wrong(outcome: Outcome, expect: MustFailNumerically, bad: list[Comparison]) -> None:
    """Judge a kernel that has to be wrong: by its numbers, not by refusing to run."""
    if bad and all(c.wrong for c in bad):
        outcome.status = PASSED
        outcome.text = f"wrong, as it should be ({100 * bad[0].wrong_fraction:.3g} % of elements)"
        outcome.detail = bad[0].render()
    elif bad:
        outcome.text = bad[0].text
        outcome.detail = bad[0].render()
    else:
        outcome.text = "the result is right, but this kernel is meant to go wrong"
        outcome.detail = expect.why


def exit_code(outcomes: Sequence[Outcome], finished: bool = True) -> int:
    """Return 0 if all passed, 1 if any failed, else 2 (some could not run, or there were none).

    `finished`: a step that is not written yet has failed; else it does not count.
    """
    states = [o.status for o in outcomes if finished or not o.unwritten]
    if outcomes and not states:
        return 0
    if FAILED in states:
        return 1
    return 2 if NOT_RUN in states or not states else 0


def score(lab: Lab, outcomes: Iterable[Outcome]) -> list[tuple[RubricLine, float | None, str]]:
    """Return points per rubric line and why; None where a latency is needed and not known.

    A line earns its points if every one of its cases passed; a speed line asks the same runs to
    meet their thresholds, so that a fast wrong kernel earns nothing. A line whose target did not
    run at all is left out.
    """
    by_name: dict[str, list[Outcome]] = {}
    targets = set()
    for outcome in outcomes:
        by_name.setdefault(outcome.case.name, []).append(outcome)
        targets.add(outcome.target)
    return [
        (line, *_score_line(line, by_name))
        for line in lab.rubric
        if not line.target or line.target in targets
    ]


def _score_line(line: RubricLine, by_name: dict[str, list[Outcome]]) -> tuple[float | None, str]:
    runs, missing = [], []
    for name in line.cases:
        outcomes = [o for o in by_name.get(name, []) if line.target in ("", o.target)]
        runs += outcomes
        if not outcomes:
            missing.append(name)
    wrong = [o for o in runs if o.status != PASSED]
    if wrong:
        return 0.0, f"{wrong[0].case.name}: {wrong[0].text}"
    if missing:
        return None, f"not run: {', '.join(missing)}"
    if not line.speed:
        return line.points, "all cases passed"
    if any(o.meets_threshold is None for o in runs):
        return None, "right; speed not judged: no latency is known on this backend"
    slow = [o for o in runs if not o.meets_threshold]
    if not slow:
        return line.points, f"right and within every threshold ({_speeds(runs)})"
    if line.relaxed and all(o.within(o.case.relaxed_us) for o in slow):
        return line.points * line.relaxed, f"right, within the relaxed threshold ({_speeds(slow)})"
    return 0.0, f"right, but too slow ({_speeds(slow)})"


def _speeds(runs: Iterable[Outcome]) -> str:
    """Return latency and threshold of each run, and whether the latency is measured."""
    return "; ".join(
        f"{o.latency_kind} {o.latency[f'p{o.case.percentile}']:,.0f} of "
        f"{o.case.threshold_us[o.target]:,.0f} us"
        for o in runs
        if o.latency is not None
    )
