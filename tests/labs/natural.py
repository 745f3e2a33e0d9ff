"""What tests of labs share: a ladder that is right and goes down, and what students write wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

import nkisim
from labkit import compare, make_inputs
from labkit.evaluate import FAILED, PASSED, Outcome, References, evaluate, judge
from labkit.grade.plan import load_plan
from labkit.inputs import dtype_of
from labkit.load import load_lab, load_module
from labkit.mistakes import Mistakes
from labkit.spec import Case, Lab
from labkit.tolerance import tolerance

LABS = Path(__file__).parents[2] / "labs"


def ladder(lab: Lab) -> dict[str, Any]:
    """Return the steps of a lab's ladder in `import nki` and its kernels: modules by file name."""
    files = (*sorted((lab.folder / "solutions").glob("step*_nki.py")), lab.kernels)
    return {file.stem: load_module(file, f"ladder_{lab.name}_{file.stem}") for file in files}


def quick(lab: Lab) -> list[Case]:
    """Return the cases of a lab's quick fleet."""
    return [case for case in lab.cases if "quick" in case.fleets]


def all_right(lab: Lab, target: str, at_least: int) -> None:
    """Assert that a lab's kernels are right on quick and on hidden cases, and nothing is found."""
    graded = load_plan(lab.folder).lab
    cases = [c for c in graded.cases if "quick" in c.fleets or c not in lab.cases]
    cases = [c for c in cases if target in c.targets]
    assert len(cases) >= len([c for c in quick(lab) if target in c.targets]) + at_least
    for outcome in evaluate(graded, [(c, target) for c in cases], in_process=True):
        assert outcome.status == PASSED, (outcome.case.name, outcome.detail)
        assert outcome.meets_threshold is not False, outcome.case.name
        assert not [f for f in outcome.findings if f["severity"] != "note"], outcome.findings


def asked(case: Case) -> str:
    """Return the generation that a case is tried on: trn2, if it runs there."""
    return "trn2" if "trn2" in case.targets else case.targets[0]


def several(outputs: Any) -> tuple[Any, ...]:
    """Return the outputs of a kernel or a reference as a tuple."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def right(lab: Lab, module: Any, cases: list[Case]) -> None:
    """Assert that a step of a ladder is right on the cases that it has a kernel for."""
    reference = load_module(lab.folder / "reference.py", f"reference_of_{lab.name}")
    cases = [c for c in cases if hasattr(module, c.kernel)]
    assert cases
    for case in cases:
        wanted = getattr(reference, case.reference)(*make_inputs(case, lab.seed), **case.kwargs)
        inputs, target = make_inputs(case, lab.seed), asked(case)
        kernel = getattr(module, case.kernel)
        got = nkisim.simulate(kernel, *inputs, target=target, **case.kwargs)
        for k, (w, g) in enumerate(zip(several(wanted), several(got))):
            dtype = dtype_of(case.dtype_of_output(k))
            verdict = compare(w, g, dtype=dtype, accumulate=case.accumulate,
                              roundings=case.roundings, functions=case.functions)  # fmt: skip
            assert verdict.ok, (case.name, verdict.render())


def profiles(lab: Lab, case: Case, target: str) -> list[Any]:
    """Return the profiles of the steps that have a kernel for a case, from the first one on.

    Without values; where run-time indices decide what is read, the last step has values.
    """
    inputs = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
    steps = [getattr(m, case.kernel) for m in ladder(lab).values() if hasattr(m, case.kernel)]
    profs = [nkisim.profile(k, *inputs, target=target, compute=False, **case.kwargs) for k in steps]
    if profs[-1].floor()["unknown_bytes"]:
        inputs = list(make_inputs(case, lab.seed))
        profs[-1] = nkisim.profile(steps[-1], *inputs, target=target, **case.kwargs)
    times = [p.latency_us for p in profs]
    assert times == sorted(times, reverse=True), (case.name, times)
    assert times[-1] < case.threshold_us[target] < times[0], case.name
    return profs


def as_pytorch(case: Case, ours: np.ndarray, theirs: np.ndarray, more: int = 1) -> None:
    """Assert that an output and PyTorch's agree: both have the tolerance of the case.

    `more`: how many times as often PyTorch rounds to the dtype of the output.
    """
    limit = tolerance(ours.dtype, case.accumulate, theirs, more * case.roundings, case.functions)
    off = abs(ours.astype(np.float64) - theirs)
    assert (off <= 2 * (limit.atol + limit.rtol * abs(theirs))).all(), off.max()


def changed(
    lab: Lab, case: Case, right: str, wrong: str, folder: Path, target: str = "trn2"
) -> Outcome:
    """Return the judgement of a lab's kernels with one change."""
    source = lab.kernels.read_text("utf-8")
    assert right in source
    file = folder / lab.kernels.name
    file.write_text(source.replace(right, wrong), "utf-8")
    return next(evaluate(lab, [(case, target)], in_process=True, kernels=file))


def declared(name: str) -> list[tuple[str, Any]]:
    """Return (reference, mistake) of all that a lab declares."""
    return [(ref, m) for ref, known in Mistakes.load(LABS / name).of.items() for m in known]


def named(name: str, reference: str, mistake: Any) -> bool:
    """Return whether the output of a mistake gets its sentence in one of a lab's quick cases.

    Smaller cases first; asserts that it gets it in the first one where the output is wrong.
    """
    lab = load_lab(LABS / name)
    module = load_module(LABS / name / "reference.py")
    references = References(module, lab.seed)
    quick = [c for c in lab.cases if c.reference == reference and "quick" in c.fleets]
    for case in sorted(quick, key=lambda c: sum(math.prod(t.shape) for t in c.inputs)):
        inputs = make_inputs(case, lab.seed)
        with np.errstate(all="ignore"):
            wrong = mistake.output(getattr(module, reference), *inputs, **case.kwargs)
        if wrong is None:
            continue
        outputs = wrong if isinstance(wrong, tuple) else (wrong,)
        outputs = tuple(
            np.asarray(x).astype(dtype_of(case.dtype_of_output(place)))
            for place, x in enumerate(outputs)
        )
        outcome = judge(case, "trn2", {"outputs": outputs}, references.of(case), references)
        if outcome.status == FAILED and not any(np.isnan(x.astype(float)).any() for x in outputs):
            assert mistake.says in outcome.detail, outcome.detail
        if mistake.says in outcome.detail:
            return True
    return False
