"""A lab as data: cases, what each must do, and what it is worth.

Plain frozen dataclasses: a spec is Python written by staff, so nothing is parsed and no
validation library is needed; what can be wrong with it is checked in `__post_init__`.
"""

from __future__ import annotations

import math
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
#: The files that every lab folder has, under these names; and the kernels of at least one dialect.
FILES = ("README.md", "spec.py", "reference.py", "tester.py")
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
    low == high all are that number. `distinct`: so many integers that follow each other in memory
    are all different, as the numbers of a top-k are. `file`: a .npy file that holds them instead.
    `anywhere`: the range from which the grader's further runs draw, where a case has one number of
    many, such as a length.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = 0.0
    high: float = 1.0
    file: str = ""
    distinct: int = 0
    anywhere: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.shape or any(n < 1 for n in self.shape):
            raise SpecError(f"an input of shape {self.shape}: every dimension must be at least 1")
        if not self.low <= self.high:
            raise SpecError(f"an input with values in [{self.low}, {self.high}): empty range")
        if self.distinct and (
            math.prod(self.shape) % self.distinct or self.high - self.low < self.distinct
        ):
            raise SpecError(
                f"an input of shape {self.shape} with {self.distinct} different numbers in "
                f"[{self.low}, {self.high}): they must fit the range, and the shape hold whole lots"
            )


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
    values are only moved), `roundings` how often a value is rounded to the output dtype, `added`
    the largest number that is added between two of these, and `functions` what the chip computes
    with an error of its own ("exp", "sigmoid", "matmul");
    together they determine the tolerance (`labkit.tolerance`). Outputs must have `output_dtype`
    (default: that of the first input; a tuple has one for each output). `hw_options` go to
    `nki.baremetal` on the chip. `fleets` are the named groups of cases that it belongs to.
    `threshold_us` is the latency, by target, that full credit asks for, and `relaxed_us` what a
    part of it asks for; both of `percentile`. `most_transfers` is how many DMA transfers a right
    kernel may take (0: any number). `uses` are the instructions that the step teaches, by the
    beginnings of their names: a kernel has to use one of them. Both are counted in simulation
    only. `measure` asks for a latency also where there is no threshold. `flops` (two for a product
    and its addition) and `reads` and `writes` (the share of the bytes of the inputs and of the
    outputs) are what every right kernel has to do at least: the grader refuses a time in which no
    chip can (`nkisim.least_us`). `timeout_s` is how many seconds the kernel may run in simulation;
    compiled, it may take `COMPILED_LIMIT_S` at least.
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
    added: float = 0.0
    functions: tuple[str, ...] = ()
    output_dtype: str | tuple[str, ...] | None = None
    expect: Expect = Passes()
    targets: tuple[str, ...] = TARGETS
    fleets: tuple[str, ...] = ("quick", "full")
    hw_options: Mapping[str, Any] = field(default_factory=dict)
    threshold_us: Mapping[str, float] = field(default_factory=dict)
    relaxed_us: Mapping[str, float] = field(default_factory=dict)
    percentile: int = 50
    most_transfers: int = 0
    uses: tuple[str, ...] = ()
    measure: bool = False
    timeout_s: float = TIME_LIMIT_S
    flops: float = 0.0
    reads: float = 1.0
    writes: float = 1.0

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

    def dtype_of_output(self, place: int = 0) -> str:
        """Return the name of the dtype that an output must have."""
        if isinstance(self.output_dtype, tuple):
            return self.output_dtype[place]
        return self.output_dtype or self.inputs[0].dtype

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
    """A step of a lab: a section of its README, and the cases that show that it is done.

    `speed` asks that the cases also meet their thresholds.
    """

    number: int
    section: str
    cases: tuple[str, ...]
    speed: bool = False


#: what a contest can rank on: the latency in us, and the bytes that DMAs read from HBM and write to
#: it, spills included
QUANTITIES = ("time", "bytes")


def hbm_bytes(counts: Mapping[str, Any]) -> int | None:
    """Return what a run read from HBM and wrote to it, in bytes; None if that was not counted.

    `counts`: the stats of an outcome, or a case of a verdict.
    """
    read, written = counts.get("hbm_read_bytes"), counts.get("hbm_write_bytes")
    return None if read is None or written is None else int(read + written)


@dataclass(frozen=True)
class Contest:
    """What a lab's contest ranks right kernels by.

    The score is the geometric mean, over the cases and over the quantities of `rank` (from
    QUANTITIES), of how many times less than the reference a kernel takes. So half of the bytes
    count as much as half of the time, and the order does not depend on the reference. `fleet`: the
    cases that count; where none of them was judged, all visible ones do.
    """

    rank: tuple[str, ...] = ("time",)
    fleet: str = "contest"

    def __post_init__(self) -> None:
        if not self.rank or set(self.rank) - set(QUANTITIES) or len({*self.rank}) < len(self.rank):
            raise SpecError(
                f"a contest that ranks on {', '.join(self.rank) or 'nothing'}: it can rank on "
                f"{' and '.join(QUANTITIES)}, each once"
            )


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
    contest: Contest = Contest()
    dialect: str = ""  # which of the kernel files is meant (default: the first): see `speaking`

    def __post_init__(self) -> None:
        if not self.dialect:
            object.__setattr__(self, "dialect", next(iter(self.dialects), "beta1"))
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
        """Return the name for tables: with the dialect, if it is the second of two."""
        second = self.dialect in self.dialects[1:]
        return f"{self.name} ({self.dialect})" if second else self.name

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

    def runs(self, case: Case, target: str) -> bool:
        """Return whether a case is for a generation, and AWS runs the lab's dialect on it."""
        return target in case.targets and bool(nkisim.course.runs(self.dialect, target))

    def fleet(self, name: str, target: str) -> list[Case]:
        """Return the cases of a fleet ("quick", "full", ...) that run on `target`."""
        return [c for c in self.cases if name in c.fleets and self.runs(c, target)]

    def case(self, name: str) -> Case:
        """Return the case with this name; raise SpecError with near names if there is none."""
        for case in self.cases:
            if case.name == name:
                return case
        import difflib

        near = difflib.get_close_matches(name, [c.name for c in self.cases], n=3, cutoff=0.3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise SpecError(f"lab {self.name} has no case {name!r}.{hint}")
