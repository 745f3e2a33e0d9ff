"""What is graded: a lab's visible cases, hidden ones, points, and what a late day costs.

A lab's plan is `hidden/plan.py`, which is never exported: a function `plan(spec)` that gets the
lab's spec module and returns a `Plan`. Without one the lab's own rubric is graded, on its quick
cases and on all that the rubric names with --full.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import nkisim

from ..load import load_lab, load_module
from ..spec import FLEET_TARGETS, Case, Lab, RubricLine, SpecError


@dataclass(frozen=True)
class Plan:
    """What a submission is judged by.

    `rubric` names cases of the lab and of `hidden`; only those that it names run. `targets`: the
    generations that lines without a target are judged on; none: that of the course of the
    kernels' dialect, trn1 for neuronxcc.nki and trn2 for import nki. `timeout_s`: wall time of a
    case, and `total_s` of all of them together. `memory_gb`: address space of the judge, which
    holds the tensors of the kernels and their trace.
    """

    rubric: tuple[RubricLine, ...]
    hidden: tuple[Case, ...] = ()
    targets: tuple[str, ...] = ()
    timeout_s: float = 60.0
    total_s: float = 600.0
    memory_gb: int = 4


@dataclass(frozen=True)
class Graded:
    """A lab as it is graded: its cases are the plan's, in order; `secret` are the hidden names."""

    lab: Lab
    plan: Plan
    secret: frozenset[str]

    @property
    def runs(self) -> list[tuple[Case, str]]:
        """Return every (case, target) that a line of the rubric needs, each once."""
        wanted: dict[tuple[str, str], None] = {}
        for line in self.lab.rubric:
            for target in (line.target,) if line.target else self.targets:
                for name in line.cases:
                    if self.lab.runs(self.lab.case(name), target):
                        wanted[name, target] = None
        return [(self.lab.case(name), target) for name, target in wanted]

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the generations that lines without a target are judged on."""
        own = nkisim.course.OF_DIALECT[self.lab.dialect].target
        return self.plan.targets or (own,)

    @property
    def points(self) -> float:
        return sum(line.points for line in self.lab.rubric)

    def speaking(self, dialect: str) -> Graded:
        """Return the same for kernels of a dialect; raise SpecError if the lab has none."""
        return replace(self, lab=self.lab.speaking(dialect))


def load_plan(folder: Path, full: bool = False) -> Graded:
    """Return a lab with the plan that it is graded by; raise SpecError if they do not fit."""
    lab = load_lab(folder)
    path = folder / "hidden" / "plan.py"
    if path.is_file() and not full:
        made = load_module(path).plan(load_module(folder / "spec.py"))
        if not isinstance(made, Plan):
            raise SpecError(f"{folder.name}/hidden/plan.py: plan(spec) must return a Plan")
    else:
        quick = {c.name for c in lab.cases if full or "quick" in c.fleets}
        made = Plan(
            tuple(line for line in lab.rubric if set(line.cases) <= quick),
            targets=FLEET_TARGETS,
            timeout_s=900,
            total_s=7200,
            memory_gb=8,
        )
    if not made.rubric:
        raise SpecError(f"the lab {lab.name} has no rubric to grade by; write hidden/plan.py")
    judged = dataclasses.replace(
        lab, cases=(*lab.cases, *made.hidden), rubric=made.rubric, steps=()
    )
    return Graded(judged, made, frozenset(c.name for c in made.hidden))


def digest(folder: Path, *more: str) -> str:
    """Return the hash of what else a verdict depends on, apart from the submission."""
    hasher = hashlib.sha256()
    for path in sorted([*folder.glob("*.py"), *folder.glob("hidden/*.py")]):
        if path.name not in ("kernels.py", "kernels_nki.py"):  # the staff's solutions
            hasher.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for text in more:
        hasher.update(text.encode() + b"\0")
    return hasher.hexdigest()


@dataclass(frozen=True)
class LatePolicy:
    """Hold what a late day costs: `per_day` of the points for each begun day, up to `days`."""

    deadline: datetime | None = None
    per_day: float = 0.1
    days: int = 3

    def share(self, submitted: datetime | None) -> tuple[float, str]:
        """Return the share of the points that is left, and why."""
        if self.deadline is None or submitted is None or submitted <= self.deadline:
            return 1.0, ""
        seconds = (submitted - self.deadline).total_seconds()
        late = int(-(-seconds // 86400))
        if late > self.days:
            return 0.0, f"{late} days late: accepted until {self.days} days after the deadline"
        return max(
            0.0, 1 - self.per_day * late
        ), f"{late} day{'s' * (late > 1)} late: {100 * self.per_day * late:g} % less"
