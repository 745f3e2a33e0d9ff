"""A lab as data: cases, what each must do, and what it is worth.

Plain frozen dataclasses: a spec is Python written by staff, so nothing is parsed and no
validation library is needed; what can be wrong with it is checked in `__post_init__`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import nkisim

from .dialect import KERNELS
from .tolerance import ERRORS

#: every generation that can be simulated, and those that a fleet runs on by default:
#: the ones that labs have thresholds for
TARGETS: tuple[str, ...] = nkisim.TARGETS
FLEET_TARGETS = ("trn1", "trn2")
#: The files that every lab folder has, under these names.
FILES = ("README.md", "spec.py", "reference.py", "kernels.py", "tester.py")
#: Seconds that a case may run: simulated, and where the SDK compiles it first.
TIME_LIMIT_S, COMPILED_LIMIT_S = 60.0, 900.0


def time_limit(products: float) -> float:
    """Return the time limit of a case in seconds: 60, and 30 for each 10^10 products."""
    return TIME_LIMIT_S + 30 * (products // 1e10)


class SpecError(Exception):
    """A lab, a case or a request that cannot be run as written; the text is for the user."""


@dataclass(frozen=True)
class Tensor:
    """An input: shape, dtype by name ("float32", "bfloat16", ...) and range of its values.

    Values are uniform in [low, high); integer dtypes get integers from the same range. With
    low == high all are that number. `file`: a .npy file that holds them instead.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = 0.0
    high: float = 1.0
    file: str = ""

    def __post_init__(self) -> None:
        if not self.shape or any(n < 1 for n in self.shape):
            raise SpecError(f"an input of shape {self.shape}: every dimension must be at least 1")
        if not self.low <= self.high:
            raise SpecError(f"an input with values in [{self.low}, {self.high}): empty range")


@dataclass(frozen=True)
class Passes:
    """Expect an output within tolerance of the reference."""


@dataclass(frozen=True)
class MustFailNumerically:
    """Expect a kernel that runs and is wrong; `why` is what the lab teaches with it."""

    why: str


@dataclass(frozen=True)
class MustRaise:
    """Expect an error: the simulator's id ("NKI-P01") or the SDK's name ("err_num_...").

    The name is the same on all backends; `why` is what the lab teaches with it.
    """

    error: str
    why: str = ""


Expect = Passes | MustFailNumerically | MustRaise


@dataclass(frozen=True)
class Case:
    """One run of one kernel.

    `kwargs` go to kernel and reference, `kernel_kwargs` to the kernel alone, and `constants`
    replace module-level names of kernels.py for this run. `reference` names a function of
    reference.py. `accumulate` is the length of the longest sum behind one output element (0: the
    values are only moved), `roundings` how often a value is rounded to the output dtype, and
    `functions` what the chip computes with an error of its own ("exp", "sigmoid", "matmul");
    together they determine the tolerance (`labkit.tolerance`). Outputs must have `output_dtype`
    (default: that of the first input). `hw_options` go to `nki.baremetal` on the chip. `fleets` are
    the named groups of cases that it belongs to. `threshold_us` is the latency, by target, that
    full credit asks for, and `relaxed_us` what a part of it asks for; both of `percentile`.
    `measure` asks for a latency also where there is no threshold. `flops` (two for a product and
    its addition) and `reads` (the share of the input bytes) are what every right kernel has to do
    at least: the grader refuses a time in which no chip can (`nkisim.least_us`). `timeout_s` is how
    many seconds the kernel may run in simulation; compiled, it may take `COMPILED_LIMIT_S` at
    least.
    """

    name: str
    kernel: str
    reference: str
    inputs: tuple[Tensor, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    kernel_kwargs: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    accumulate: int = 1
    roundings: int = 1
    functions: tuple[str, ...] = ()
    output_dtype: str | None = None
    expect: Expect = Passes()
    targets: tuple[str, ...] = TARGETS
    fleets: tuple[str, ...] = ("quick", "full")
    hw_options: Mapping[str, Any] = field(default_factory=dict)
    threshold_us: Mapping[str, float] = field(default_factory=dict)
    relaxed_us: Mapping[str, float] = field(default_factory=dict)
    percentile: int = 50
    measure: bool = False
    timeout_s: float = TIME_LIMIT_S
    flops: float = 0.0
    reads: float = 1.0

    def __post_init__(self) -> None:
        if not self.inputs:
            raise SpecError(f"case {self.name}: a kernel needs at least one input")
        if self.accumulate < 0 or self.roundings < 1:
            raise SpecError(f"case {self.name}: accumulate must be >= 0 and roundings >= 1")
        if strange := sorted(set(self.functions) - set(ERRORS)):
            raise SpecError(
                f"case {self.name}: no error is known of {strange[0]!r}; functions "
                f"are {', '.join(ERRORS)}"
            )
        unknown = set(self.targets) - set(TARGETS)
        if unknown:
            raise SpecError(f"case {self.name}: unknown target {sorted(unknown)[0]!r}")

    def limit_s(self, backend: str) -> float:
        """Return how many seconds the kernel may run on a backend: the SDK compiles it first."""
        return self.timeout_s if backend == "sim" else max(self.timeout_s, COMPILED_LIMIT_S)


@dataclass(frozen=True)
class RubricLine:
    """Points for a set of cases; `speed` asks that they also meet their thresholds.

    `relaxed` is the share of the points for meeting only `relaxed_us`. `target`: the line is about
    runs on that generation (default: on all). `course` heads the lines that belong together.
    """

    text: str
    points: float
    cases: tuple[str, ...]
    speed: bool = False
    relaxed: float = 0.0
    target: str = ""
    course: str = ""


@dataclass(frozen=True)
class Step:
    """A step of a lab: a section of its README, and the cases that show that it is done."""

    number: int
    section: str
    cases: tuple[str, ...]


@dataclass(frozen=True)
class Lab:
    """A lab: its folder, its cases, what it is worth, and which files a student may edit."""

    name: str
    title: str
    folder: Path
    cases: tuple[Case, ...]
    rubric: tuple[RubricLine, ...] = ()
    steps: tuple[Step, ...] = ()
    editable: tuple[str, ...] = ("kernels.py",)
    seed: int = 149
    dialect: str = "beta1"  # which of the kernel files is meant: see `speaking`

    def __post_init__(self) -> None:
        names = [case.name for case in self.cases]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise SpecError(f"lab {self.name}: two cases are named {sorted(twice)[0]!r}")
        for line in self.rubric:
            for name in line.cases:
                if name not in names:
                    raise SpecError(
                        f"lab {self.name}: rubric line {line.text!r} names the case "
                        f"{name!r}, which does not exist"
                    )
        for step in self.steps:
            for name in step.cases:
                if name not in names:
                    raise SpecError(
                        f"lab {self.name}: step {step.number} names the case {name!r}, "
                        "which does not exist"
                    )

    @property
    def kernels(self) -> Path:
        """Return the file with the kernels, in the lab's dialect."""
        return self.folder / KERNELS[self.dialect]

    @property
    def handed_in(self) -> tuple[str, ...]:
        """Return the files that are graded: the dialect's kernels, and what else may be edited."""
        others = (name for name in self.editable if name not in KERNELS.values())
        return (KERNELS[self.dialect], *others)

    @property
    def label(self) -> str:
        """Return the name for tables: with the dialect, if it is not that of kernels.py."""
        return self.name if self.dialect == "beta1" else f"{self.name} ({self.dialect})"

    @property
    def dialects(self) -> tuple[str, ...]:
        """Return the dialects that the lab has kernels in."""
        return tuple(d for d, file in KERNELS.items() if (self.folder / file).is_file())

    def speaking(self, dialect: str) -> Lab:
        """Return the lab with its kernels of a dialect; raise SpecError if there are none."""
        if dialect not in self.dialects:
            others = " and ".join(KERNELS[d] for d in self.dialects)
            raise SpecError(
                f"there is no file {self.folder / KERNELS[dialect]}"
                + (
                    f"; the kernels of this lab are in {others} (--dialect "
                    f"{' or '.join(self.dialects)})"
                    if others
                    else ""
                )
            )
        return replace(self, dialect=dialect)

    def fleet(self, name: str, target: str) -> list[Case]:
        """Return the cases of a fleet ("quick", "full", ...) that run on `target`."""
        return [c for c in self.cases if name in c.fleets and target in c.targets]

    def case(self, name: str) -> Case:
        """Return the case with this name; raise SpecError with near names if there is none."""
        for case in self.cases:
            if case.name == name:
                return case
        import difflib

        near = difflib.get_close_matches(name, [c.name for c in self.cases], n=3, cutoff=0.3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise SpecError(f"lab {self.name} has no case {name!r}.{hint}")
