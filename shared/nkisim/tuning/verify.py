"""Run a candidate with arithmetic: does it compute what it should?"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..chip import dtypes
from ..simulation.launch import launch
from ..trace.trace import Trace
from ..workers import limited
from .space import Candidate, applied, kernel_of
from .sweep import ENDS, Job, refusal, silence

#: roundings of a product or a sum in fp32: 8 standard deviations pass in none of 1e14 elements
SAFETY = 8.0
U_SUM = 2.0**-24  # unit roundoff of fp32: PSUM and the vector engines compute in it
#: exp(x) has |x| roundings for each of x: at most ln of the largest number of fp32, where it is one
EXP_ROUNDINGS = 88.7
#: times that a value is rounded to the coarsest dtype of the kernel on its way
ROUNDINGS = 4


@dataclass
class Verdict:
    """What a run with arithmetic says: `right` is None if there was no reference."""

    right: bool | None
    text: str
    warnings: list[str] = field(default_factory=list)


@dataclass
class Ran:
    """A run with arithmetic: `outputs` as arrays; `refused`: why there are none."""

    outputs: list[np.ndarray] = field(default_factory=list)
    allowed: Allowed | None = None
    errors: list[str] = field(default_factory=list)  # ids of findings, of severity error
    warnings: list[str] = field(default_factory=list)
    refused: str = ""


def compute(job: Job, candidate: Candidate) -> Ran:
    """Run a candidate with arithmetic."""
    function = job.variants[candidate.variant]
    args, kwargs = job.arguments()
    kernel = kernel_of(function)
    try:
        with limited(job.seconds), applied(function, candidate) as named, silence():
            run = launch(kernel, args, {**kwargs, **named}, target=job.settings["target"])
    except ENDS as error:
        return Ran(refused=refusal(error)[0])
    warnings: dict[str, set[str]] = {}
    for f in run.findings:
        warnings.setdefault(f.severity, set()).add(f.id)
    return Ran(
        list(_arrays(run.outputs)),
        Allowed.of(run.trace),
        sorted(warnings.get("error", ())),
        sorted(warnings.get("warning", ())),
    )


def judge(ran: Ran, right: Any = None, others: Any = None, name: str = "") -> Verdict:
    """Say whether a run computed what it should: `right`, of a reference; else what `others` is,
    the outputs of another candidate, called `name`."""
    if ran.refused or ran.allowed is None:
        return Verdict(False, f"refused: {ran.refused}")
    verdict = Verdict(None, "no reference", ran.warnings)
    if right is not None:
        wrong = differs(ran.outputs, right, ran.allowed)
        verdict.right, verdict.text = not wrong, wrong or "right"
    elif others is not None:
        wrong = differs(ran.outputs, others, ran.allowed)
        verdict.right = False if wrong else None
        verdict.text = f"not what {name} computes: {wrong}" if wrong else f"as {name}"
    if ran.errors:  # right here, garbage or a race on the chip
        but = f"{verdict.text}, but " if verdict.right else ""
        verdict.right, verdict.text = False, f"{but}{', '.join(ran.errors)}"
    return verdict


def expected(reference: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return what the reference makes of the arguments; of those by name, what it takes."""
    try:
        reference_parameters = inspect.signature(reference).parameters
    except (TypeError, ValueError):
        reference_parameters = {}  # type: ignore[assignment]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in reference_parameters.values())
    return reference(
        *args, **{n: v for n, v in named.items() if takes_any or n in reference_parameters}
    )


@dataclass(frozen=True)
class Allowed:
    """How far two right results may be apart: |a - b| <= relative * |b| + absolute * rms(b).

    A sum of n products in fp32 is off by a random walk of n roundings, about sqrt(n) of them, in
    units of a typical element; and values pass through the coarsest dtype that a tile has, or
    through exp.
    """

    relative: float
    absolute: float

    @classmethod
    def of(cls, trace: Trace) -> Allowed:
        """Return what the record of a run allows: its longest sum, its coarsest dtype."""
        unit = max((_unit(p.dtype) for k in trace.op_specs for p in k.operands), default=U_SUM)
        functions = {getattr(k.variant, "function", k.row.name) for k in trace.op_specs}
        if functions & {"exp", "exponential"}:
            unit = max(unit, EXP_ROUNDINGS * U_SUM)
        sums = SAFETY * U_SUM * math.sqrt(_longest_sum(trace))
        return cls(2 * ROUNDINGS * unit, sums + 2 * ROUNDINGS * unit)


def _unit(dtype: np.dtype) -> float:
    if not dtypes.is_float(dtype):
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtypes.storage(dtype)).eps) / 2  # type: ignore[no-untyped-call]


def _longest_sum(trace: Trace) -> int:
    """Return about how many terms the longest sum has: of one tile, or of one PSUM result."""
    specs = trace.instructions().spec
    widest = max(
        (p.elements // max(1, p.shape[0]) for k in trace.op_specs for p in k.operands), default=1
    )
    adds = np.array([k.accumulate for k in trace.op_specs], bool)
    depth = np.array([k.operands[-1].shape[0] if k.accumulate else 0 for k in trace.op_specs])
    if not adds.any():
        return max(1, widest)
    accesses = trace.operands()
    added = (accesses.number == 0) & adds[specs[accesses.instr]]
    _, place = np.unique(
        np.stack([accesses.storage[added], accesses.offset[added]]), axis=1, return_inverse=True
    )
    return max(widest, int(np.bincount(place.ravel(), depth[specs[accesses.instr[added]]]).max()))


def differs(outputs: Any, others: Any, allowed: Allowed) -> str:
    """Return how outputs differ from what they should be; "" if they do not."""
    ours, theirs = list(_arrays(outputs)), list(_arrays(others))
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs instead of {len(theirs)}"
    for n, (a, b) in enumerate(zip(ours, theirs)):
        name = f"output {n}: " if len(ours) > 1 else ""
        if a.shape != b.shape:
            if a.size != b.size or [s for s in a.shape if s > 1] != [s for s in b.shape if s > 1]:
                return f"{name}shape {a.shape} instead of {b.shape}"
            a = a.reshape(b.shape)
        if not dtypes.is_float(a.dtype):
            if wrong := int((a != b).sum()):
                return f"{name}{wrong:,} of {a.size:,} elements are wrong"
            continue
        if a.dtype == b.dtype and (a == b).all():
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = y[np.isfinite(y)]
        rms = math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0
        with np.errstate(all="ignore"):
            far = np.abs(x - y) > allowed.relative * np.abs(y) + allowed.absolute * rms
        far = np.where(
            np.isfinite(y) & np.isfinite(x), far, ~((x == y) | (np.isnan(x) & np.isnan(y)))
        )
        if far.any():
            with np.errstate(all="ignore"):
                off = np.abs(x - y)[far]
            worst = f"{off[np.isfinite(off)].max():.3g}" if np.isfinite(off).any() else "NaN or inf"
            return f"{name}{int(far.sum()):,} of {a.size:,} elements are wrong, by up to {worst}"
    return ""


def _arrays(outputs: Any) -> Iterator[np.ndarray]:
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    if isinstance(outputs, (list, tuple)):
        for x in outputs:
            yield from _arrays(x)
    elif outputs is not None:
        if type(outputs).__module__.split(".")[0] == "torch":
            outputs = outputs.detach().cpu().double().numpy()
        yield np.asarray(outputs)
