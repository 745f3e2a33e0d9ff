"""Random programs whose addresses, counts and numbers exist only when they run.

Gathers and scatters (`.select`, `.vector_select`, `.ap` with `scalar_offset` and `vector_offset`,
`.indirect`, index tiles of neuronxcc.nki), gathers that transpose, registers and scalars, loops of
the device (`fori_loop`, `while_loop`, and `dynamic_range` with the compilers that take it),
generators of random numbers, and two cores that exchange tiles. A program is a list of steps that
each change one tile (64, 48) of small integers in float32, so every step is exact. A few lines of
NumPy say what each step does; they share no code with the simulator. What random numbers are is in
no document: known is that they repeat with the seed or state, fill their interval, and differ else.

    python tests/nkisim/random_programs.py --seeds 500

prints how many programs and forms were tried, how many differ from NumPy, and how many of the same
programs with one mistake were caught: refused, found, or of other values.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

import nkisim
from nkisim.errors import NkiError
from program_kernels import newer, older
from program_steps import CUTS, GROUP, WIDE, F, P, Program, R, Step, Undefined, expected

# -- running ---------------------------------------------------------------------------------------


def _inputs(steps: tuple[Step, ...]) -> Iterator[tuple[Step, np.ndarray]]:
    """Yield (step, array) of what the steps read, in their order."""
    for s in dict.fromkeys(steps):
        if s.kind in ("gather", "scatter", "scatter add"):
            yield s, np.array(s.at, np.int32).reshape(P, 1)
        elif s.kind == "gather turned":
            columns = -(-len(s.at) // WIDE)
            yield s, np.ascontiguousarray(np.array(s.at, np.uint32).reshape(columns, -1).T)
        elif s.kind.startswith("columns ") and s.kind.endswith("ed"):
            groups = np.array(s.at, np.uint16).reshape(P // GROUP, -1, GROUP)
            yield s, np.concatenate([g.T for g in groups])
        elif s.kind == "random":
            for seed in s.at:
                yield s, (np.arange(P * 6).reshape(P, 6) + 1000 * seed).astype(np.uint32)
        elif s.kind == "loop":
            low, high, _ = s.at
            if s.form == "dynamic, both":
                yield s, np.array([[low]], np.int32)
            if s.form not in ("fori", "dynamic"):
                yield s, np.array([[high - low if s.form == "while" else high]], np.int32)
            yield from _inputs(s.body)
        elif s.at and s.kind not in ("scalar", "interval") and not (len(s.at) > 1 and s.at[1]):
            yield s, np.array([[s.at[0]]], np.int32)


def run(program: Program, x: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Run a program; return what the cores stored, and what was found but for notes."""
    given = list(_inputs(program.steps))
    make = older if program.dialect == "beta1" else newer
    kernel, tables = make(program, [s for s, _ in given]), [a for _, a in given]
    asked = {"NKI_LANGUAGE_VERSION": program.release, "NKI_COMPILER_FRONTEND": "custom"}
    with mock.patch.dict(os.environ, asked if program.release else {}):
        got = nkisim.run(kernel, *x, *tables, target="trn3" if _of_trn3(program) else "trn2")
    return got.outputs, [f for f in got.findings if f.severity != "note"]


def _of_trn3(program: Program) -> bool:
    return any(
        s.kind in ("columns gathered", "columns scattered") or s.kind in ("random", "interval")
        for s in program.steps
    )


# -- random programs -------------------------------------------------------------------------------

ROWS = ("gather", "scatter", "scatter add")
NUMBERS = ("tile", "register", "move", "scalar")


class Maker:
    """Makes the steps of a program."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng([13, seed])
        self.release = ""  # of nki with a compiler of its own: no scalars, but nl.dynamic_range

    def pick(self, values: Any) -> Any:
        values = list(values)
        return values[int(self.rng.integers(len(values)))]

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def rows(self, forms: tuple[str, ...], kinds: tuple[str, ...] = ROWS) -> Step:
        kind, skip = self.pick(kinds), bool(self.below(2))
        if kind == "gather":
            at = self.rng.integers(0, R, P)
        else:
            at = self.rng.permutation(R)[:P]
        if skip:
            at[self.rng.permutation(P)[:5]] = R + self.rng.permutation(40)[:5]
        return Step(kind, self.pick(forms), tuple(at.tolist()), skip=skip)

    def turned(self) -> Step:
        """Return a gather that transposes; indices may be left over."""
        form, skip = self.pick(CUTS), bool(self.below(2))
        many = number = self.pick([32, 48, WIDE])
        if form != "vector_select":
            many = self.pick([many, 2 * WIDE])
            number = self.pick([many, 16 * (1 + self.below(many // 16))])
        at = self.rng.integers(0, R, many)
        if skip:
            at[self.rng.permutation(number)[:5]] = R + self.rng.permutation(40)[:5]
        return Step("gather turned", form, tuple(at.tolist()), number, skip)

    def one_row(self, form: str, in_loop: tuple[int, ...] = ()) -> Step:
        at = in_loop or (self.below(R),)
        return Step(self.pick(["row in", "row out"]), form, at, self.below(2))

    def columns(self, form: str, in_loop: tuple[int, ...] = ()) -> Step:
        at = in_loop or (self.below(F - F // 2 + 1),)
        return Step(self.pick(["columns in", "columns out"]), form, at)

    def indirect(self) -> Step:
        kind, count = (
            self.pick(["columns gathered", "columns scattered"]),
            GROUP * self.pick([1, 2]),
        )
        at = np.concatenate([self.rng.permutation(F)[:count] for _ in range(P // GROUP)])
        return Step(kind, self.pick(["copy", "activation", "scalar"]), tuple(at.tolist()))

    def dynamic(self) -> Step:
        """Return a loop for a compiler that takes nl.dynamic_range: numbers are registers there."""
        low, step = self.below(3), self.pick([1, 2])
        form = self.pick(["dynamic", "dynamic, one", "dynamic, both", "fori"])
        often = self.pick([1, 2, 3, 0] if form != "fori" else [1, 2, 3])
        body = [Step("scalar", number=self.below(5) - 2)]
        body.append(self.pick([self.one_row, self.columns])("register", (0, 1)))
        if not self.below(3):
            body.append(self.pick([lambda: self.rows(("vector_select", "ap")), self.turned])())
        if not self.below(3):
            read = Step("scalar", number=1)  # what is written has a reader, before and after
            inner = (read, body[1], read)
            body.append(Step("loop", self.pick(["fori", "dynamic"]), (0, 2, 1), body=inner))
        if self.below(2):
            body.reverse()
        return Step("loop", form, (low, low + step * often, step), body=tuple(body))

    def loop(self) -> Step:
        if self.release:
            return self.dynamic()
        form = self.pick(["fori", "scalar", "register", "while"])
        low, step = self.below(3), self.pick([1, 2])
        if form == "while":
            step = 1
        high = low + step * self.pick([1, 2, 3])
        body = [Step("scalar", number=self.below(5) - 2)]
        if form != "while":
            make = self.pick([self.one_row, self.columns])
            computed = (self.below(5), self.pick([1, 3]))
            body.append(make("scalar", (0, 1) if form == "register" else computed))
        if not self.below(3):
            body.append(self.rows(("vector_select", "ap")))
        if not self.below(3):
            body.append(Step("loop", "fori", (0, 2, 1), body=(Step("scalar", number=1), body[-1])))
        if self.below(2):
            body.reverse()
        return Step("loop", form, (low, high, step), body=tuple(body))

    def interval(self) -> Step:
        low = self.below(9) - 4
        return Step("interval", "", (low,), low)

    def newer(self) -> Step:
        numbers = NUMBERS[:-1] if self.release else NUMBERS
        make = self.pick(
            [
                lambda: self.rows(("vector_select", "ap")),
                self.turned,
                lambda: self.one_row(self.pick(numbers)),
                lambda: self.columns(self.pick(numbers)),
                self.indirect,
                self.loop,
                lambda: Step("count", numbers[-1], (self.below(1000) - 500,), self.below(9) + 1),
                lambda: Step("count", "move", (self.below(1000) - 500,)),
                lambda: Step("random", self.pick(["seed", "state"]), (self.below(50),) * 2),
                self.interval,
                lambda: Step("dropout", number=self.below(2) * self.below(2)),
            ]
        )
        return make()

    def older(self) -> Step:
        makes: list[Callable[[], Step]] = [
            lambda: self.rows(("dma_copy", "load"), ("gather", "scatter")),
            lambda: Step(
                "gather turned",
                self.pick(["2-d", "3-d"]),
                tuple(self.rng.integers(0, R, 32).tolist()),
                number=32,
            ),
            lambda: Step("scalar", number=self.below(5) - 2),
        ]
        return self.pick(makes)()

    def program(self) -> Program:
        """Return a program of two to four steps."""
        n, dialect = 2 + self.below(3), self.pick(["nki", "nki", "nki", "beta1"])
        if dialect == "beta1":
            steps = [self.older() for _ in range(n)]
            return Program(dialect, tuple(steps))
        self.release = self.pick(["", "", "0.6", "0.7"])
        steps = [self.newer() for _ in range(n)]
        if self.below(3):
            return Program(dialect, tuple(steps), release=self.release)
        for _ in range(self.pick([1, 2])):
            steps.insert(self.below(len(steps) + 1), Step(self.pick(["exchange", "meet"])))
        return Program(dialect, tuple(steps), 2, self.release)


def random_program(seed: int) -> tuple[Program, np.ndarray]:
    """Return the program of a seed and its input, rows of small integers for each core."""
    program = Maker(seed).program()
    x = np.random.default_rng([14, seed]).integers(-9, 10, (program.cores, R, F))
    return program, x.astype(np.float32)


# -- mistakes --------------------------------------------------------------------------------------


def mistakes(program: Program) -> Iterator[tuple[str, Program]]:
    """Yield the program with one mistake."""
    for k, s in enumerate(program.steps):
        for what, other in _mistakes(s):
            yield what, program._replace(steps=(*program.steps[:k], other, *program.steps[k + 1 :]))


def _mistakes(s: Step) -> Iterator[tuple[str, Step]]:
    if s.kind in ROWS:
        yield "another row", s._replace(at=(*s.at[1:], s.at[0]))
        if s.skip:
            yield "rows out of range", s._replace(skip=False)
        else:
            yield "rows out of range", s._replace(at=(*s.at[:-1], R))
        if s.kind != "gather":
            yield "two rows to one place", s._replace(at=(s.at[1], *s.at[1:]))
    elif s.kind == "gather turned":
        used, rest = s.at[: s.number], s.at[s.number :]
        yield "another row", s._replace(at=(*used[1:], used[0], *rest))
        if s.skip:
            yield "rows out of range", s._replace(skip=False)
        else:
            yield "rows out of range", s._replace(at=(*used[:-1], R, *rest))
        if len(s.at) > WIDE:
            by_row = np.array(s.at).reshape(-1, WIDE).T.reshape(-1)
            yield "indices row by row", s._replace(at=tuple(by_row.tolist()))
    elif s.kind.endswith("ed"):
        yield "another column", s._replace(at=(*s.at[1:], s.at[0]))
        if s.kind == "columns scattered":
            yield "two columns to one place", s._replace(at=(s.at[1], *s.at[1:]))
        yield "column out of range", s._replace(at=(F, *s.at[1:]))
    elif s.kind in ("row in", "row out", "columns in", "columns out", "count"):
        yield "number off by one", s._replace(at=(s.at[0] + 1, *s.at[1:]))
        if s.kind != "count":
            yield "number out of range", s._replace(at=(s.at[0] + R, *s.at[1:]))
    elif s.kind == "loop":
        low, high, step = s.at
        yield "one iteration more", s._replace(at=(low, high + step, step))
        if s.form.startswith("dynamic") and low < high:
            yield "a loop's variable written", s._replace(number=1)
        if high - low > step:
            yield "one iteration less", s._replace(at=(low, high - step, step))
        for k, b in enumerate(s.body):
            if len(b.at) == 2 and s.form != "register" and b.form != "register":
                other = b._replace(at=(b.at[0], b.at[1] + 1))
                yield (
                    "another step of the index",
                    s._replace(body=(*s.body[:k], other, *s.body[k + 1 :])),
                )
    elif s.kind == "random":
        yield "another seed", s._replace(at=(s.at[0], s.at[1] + 1))
    elif s.kind == "interval":
        yield "another interval", s._replace(at=(s.at[0] + 3,))
    elif s.kind == "dropout":
        yield "another probability", s._replace(number=1 - s.number)
    elif s.kind == "exchange":
        yield "sent to itself", s._replace(number=1)
    elif s.kind == "meet":
        yield "no barrier", s._replace(number=1)


class Counts:
    """What a number of seeds gave."""

    def __init__(self) -> None:
        self.programs = 0
        self.forms: set[tuple] = set()
        self.kinds: Counter = Counter()
        self.wrong: list[str] = []
        self.made: Counter = Counter()
        self.caught: Counter = Counter()
        self.same: Counter = Counter()

    def add(self, seed: int, mutants: bool = True) -> None:
        """Try the program of a seed, and those with one mistake."""
        program, x = random_program(seed)
        self.programs += 1
        self.forms.add(program.form)
        self.kinds.update({(program.dialect, s.kind, s.form) for s in program.steps})
        want = expected(program, x)
        if np.abs(want).max() >= 1 << 22:
            return  # float32 has not every such number
        if said := differs(program, x, want):
            self.wrong.append(f"seed {seed}: {program}\n  {said}")
            return
        for what, other in mistakes(program) if mutants else ():
            self.made[what] += 1
            self._mistake(f"seed {seed}: {what}: {other}", what, other, x, want)

    def _mistake(
        self, name: str, what: str, other: Program, x: np.ndarray, right: np.ndarray
    ) -> None:
        try:
            want = expected(other, x)
        except Undefined:
            want = None
        try:
            got, found = run(other, x)
        except (NkiError, IndexError) as error:
            if want is not None or getattr(error, "id", "") == "NKI-X01":
                self.wrong.append(f"{name}\n  {type(error).__name__}: {str(error)[:300]}")
            self.caught[what] += 1
            return
        known = slice(None) if want is None else ~np.isnan(want)
        if want is not None and not np.array_equal(got[known], want[known]):
            self.wrong.append(f"{name}\n  other values than NumPy's")
        if found or not np.array_equal(got, right):
            self.caught[what] += 1
        elif want is not None and np.array_equal(want, right):
            self.same[what] += 1
        else:
            self.wrong.append(f"{name}\n  not caught")

    def __str__(self) -> str:
        lines = [
            f"{self.programs:,} programs of {len(self.kinds)} kinds of steps, "
            f"{len(self.forms):,} forms; {len(self.wrong)} are wrong"
        ]
        for what in sorted(self.made):
            lines.append(
                f"  {what}: {self.caught[what]:,} of {self.made[what]:,} caught, "
                f"{self.same[what]:,} mean the same"
            )
        return "\n".join((*lines, *self.wrong))


def differs(program: Program, x: np.ndarray, want: np.ndarray) -> str:
    """Run a program that is right; return what is wrong with what it does, or nothing."""
    try:
        got, found = run(program, x)
    except (NkiError, IndexError) as error:
        return f"{type(error).__name__}: {str(error)[:400]}"
    if found:
        return f"found: {'; '.join(f.id + ' ' + f.text[:200] for f in found)}"
    bad = got != want
    if bad.any():
        at = tuple(int(n) for n in np.argwhere(bad)[0])
        return f"{int(bad.sum())} of {bad.size} elements, first {at}: {got[at]} for {want[at]}"
    return ""


def main() -> int:
    """Try many programs; return 1 if one is wrong, or a mistake was not caught."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=300, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    counts = Counts()
    for seed in range(args.first, args.first + args.seeds):
        counts.add(seed)
    print(counts)
    return bool(counts.wrong)


if __name__ == "__main__":
    sys.exit(main())
