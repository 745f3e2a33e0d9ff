"""What the testers make of kernels with one thing changed: how many mistakes pass in silence.

    python tools/benchmarks/mutations.py [--count N] [--seed N] [--only LAB] [--slow S]
        [--json FILE]

Changes one thing at a time in the labs' kernels, of both dialects: a number by one, an operator, a
comparison, the order of two arguments or subscripts, `=` for `+=`, a dtype, a range, zeros for
nothing; or drops a statement or a keyword. Each mutant runs the quick cases (those that take less
than --slow) as a tester does, in a process of its own. The table counts what became of them, and
the mutants that no case failed and no warning names are listed: they are equal, or they are gaps.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "shared"))

from nkisim.workers import Lost, Workers  # noqa: E402

_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_NAMES = {
    "zeros": "ndarray",
    "float32": "bfloat16",
    "sequential_range": "affine_range",
    "affine_range": "sequential_range",
    "psum": "sbuf",
    "sbuf": "psum",
    "add": "subtract",
    "multiply": "add",
    "maximum": "minimum",
    "max": "min",
    "exp": "tanh",
}
LIMIT_S = 60  # of CPU time: a mutant may loop for ever


@dataclass
class Mutant:
    """A change of one line, and what became of it."""

    lab: str
    dialect: str
    line: int
    kind: str
    before: str
    after: str
    text: str = ""  # of the whole file
    fate: str = ""
    said: str = ""

    def __str__(self) -> str:
        return (
            f"{self.lab} {self.dialect} line {self.line}, {self.kind}: {self.before}"
            f"  ->  {self.after}"
        )


def changes(node: ast.AST, rng: random.Random) -> Iterator[tuple[str, ast.AST | None]]:
    """Yield (kind, node in its place) of what can be changed in a node; None: it is dropped."""
    new: Any = copy.deepcopy(node)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        new.value += rng.choice((-1, 1))
        yield "off by one", new
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        new.op = _OPERATORS[type(node.op)]()
        yield "operator", new
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        new.ops[0] = _COMPARISONS[type(node.ops[0])]()
        yield "comparison", new
    elif isinstance(node, ast.Call):
        if len(node.args) > 1:
            new.args[0], new.args[1] = new.args[1], new.args[0]
            yield "swapped arguments", new
        if node.keywords:
            new = copy.deepcopy(node)
            del new.keywords[rng.randrange(len(new.keywords))]
            yield "dropped keyword", new
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        yield "= for +=", ast.Assign([node.target], node.value, lineno=node.lineno)
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        new.attr = _NAMES[node.attr]
        yield "name", new
    elif (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Tuple)
        and len(node.slice.elts) > 1
    ):
        new.slice.elts[0], new.slice.elts[1] = new.slice.elts[1], new.slice.elts[0]
        yield "swapped subscripts", new
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)) and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        yield "dropped statement", None


def mutants(lab: str, dialect: str, text: str, rng: random.Random) -> list[Mutant]:
    """Return all mutants of a file of kernels."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data, found = text.encode(), []
    for function in (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)):
        for node in (n for statement in function.body for n in ast.walk(statement)):
            if not hasattr(node, "end_col_offset") or isinstance(node, ast.Assert):
                continue
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            for kind, new in changes(node, rng):
                after = "pass" if new is None else ast.unparse(new)
                if isinstance(new, (ast.BinOp, ast.Compare)):
                    after = f"({after})"
                changed = (data[:begin] + after.encode() + data[end:]).decode()
                try:
                    ast.parse(changed)
                except SyntaxError:  # a part of an f-string, for one
                    continue
                found.append(
                    Mutant(
                        lab,
                        dialect,
                        node.lineno,
                        kind,
                        " ".join(data[begin:end].decode().split())[:90],
                        after[:90],
                        changed,
                    )
                )
    return found


class Slow(BaseException):
    """A case takes longer than it may; no kernel's `except Exception` stops it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End a block that takes more CPU seconds."""

    def ring(*_: Any) -> None:
        raise Slow

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Court:
    """Runs a lab's quick cases on files of kernels."""

    def __init__(self, lab: Any, target: str, slow: float):
        from labkit.evaluate import References
        from labkit.load import load_module

        self.lab, self.target, self.expected = lab, target, {}
        self.references = References(load_module(lab.folder / "reference.py"), lab.seed)
        took = []
        for case in (c for c in lab.cases if "quick" in c.fleets and target in c.targets):
            self.expected[case.name] = self.reference(case)
            begun = time.process_time()
            try:
                with at_most(slow):
                    outcome = self.run(case, lab.kernels)
            except Slow:
                continue
            assert outcome.status == "passed", (case.name, outcome.text)
            took.append((time.process_time() - begun, case))
        self.cases = [case for _, case in sorted(took, key=lambda pair: pair[0])]

    def reference(self, case: Any) -> tuple[Any, ...]:
        """Return the outputs that a case expects."""
        from labkit.spec import MustRaise

        return () if isinstance(case.expect, MustRaise) else self.references.of(case)

    def run(self, case: Any, kernels: Path) -> Any:
        """Return the outcome of a case, in this process."""
        from labkit.evaluate import judge
        from labkit.run.child import job_of
        from labkit.run.worker import Worker

        with Worker("sim", in_process=True) as worker:
            job = job_of(
                case,
                kernels=str(kernels),
                backend="sim",
                target=self.target,
                seed=self.lab.seed,
                dialect=self.lab.dialect,
            )
            reply = worker.submit(job, LIMIT_S).result()
            return judge(case, self.target, reply, self.expected[case.name], self.references)

    def fate(self, mutant: Mutant, kernels: Path) -> tuple[str, str]:
        """Return what becomes of a mutant, and the message that a student sees."""
        kernels.write_text(mutant.text, encoding="utf-8")
        place, warned = f"{kernels.name}:{mutant.line}", ""
        for case in self.cases:
            outcome = self.run(case, kernels)
            bad = [f for f in outcome.findings if f["severity"] != "note"]
            if outcome.status != "passed":
                said = outcome.detail or outcome.text
                named = place in said or any(place in (f["where"] or "") for f in bad)
                guess = next((c.guess.text for c in outcome.comparisons if c.guess), "")
                if outcome.error and outcome.error.get("kind") == "nki":
                    return f"a rule, {'its line' if named else 'another line'}", outcome.text
                if outcome.error:
                    return (
                        f"an error of Python, {'its line' if named else 'another line'}",
                        outcome.text,
                    )
                what = "finding" if bad else "guess" if guess else "no cause"
                return f"wrong numbers, {what}", guess or outcome.text
            if bad and isinstance(case.expect, type(self.lab.cases[0].expect)):
                warned = warned or f"{bad[0]['id']} {bad[0]['text']}"
        return ("passes with a warning", warned) if warned else ("passes", "")


def judging(court: Court) -> Callable[[Mutant], tuple[str, str]]:
    """Return what judges mutants in a process, which may not come to an end."""
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")

    def judged(mutant: Mutant) -> tuple[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                with at_most(LIMIT_S):
                    return court.fate(mutant, Path(folder) / "kernels.py")
            except Slow:
                return "no end", f"longer than {LIMIT_S} s: the tester's limit ends it"
            except BaseException as error:
                return "a crash", f"{type(error).__name__}: {error}"

    return judged


def main() -> int:
    """Make mutants, judge them, print the table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="one lab")
    parser.add_argument("--target", default="trn2")
    parser.add_argument(
        "--slow",
        type=float,
        default=1.5,
        help="CPU seconds from which a case is left out (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="write all mutants and fates to a file")
    args = parser.parse_args()
    os.environ["NKI_BANNER"] = "0"

    from labkit.load import discover, load_lab

    rng = random.Random(args.seed)
    names = [n for n in discover(ROOT / "labs") if args.only in ("", n)]
    labs = [
        load_lab(ROOT / "labs" / n).speaking(d)
        for n in names
        for d in load_lab(ROOT / "labs" / n).dialects
    ]
    done: list[Mutant] = []
    for n, lab in enumerate(labs):
        every = mutants(lab.name, lab.dialect, lab.kernels.read_text("utf-8"), rng)
        share = args.count * (n + 1) // len(labs) - args.count * n // len(labs)
        court = Court(lab, args.target, args.slow)
        chosen = rng.sample(every, min(share, len(every)))
        # twenty times the limit: others may use the machine as well
        with Workers(judging, (court,), jobs=1, seconds=20 * LIMIT_S, recycle=1) as workers:
            for mutant, fate in zip(chosen, workers.map(chosen)):
                if isinstance(fate, Lost):
                    fate = {"time": "no end", "died": "a crash"}[fate.why], fate.text
                mutant.fate, mutant.said = fate
                done.append(mutant)
        print(
            f"{lab.label}: {len(done)} of {args.count} judged, {len(court.cases)} cases each",
            file=sys.stderr,
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps([asdict(m) | {"text": ""} for m in done], indent=1))
    for fate, count in sorted(Counter(m.fate for m in done).items()):
        print(f"{count:>4}  {fate}")
    print("\nNo case failed and no warning was given:")
    for mutant in (m for m in done if m.fate == "passes"):
        print(f"  {mutant}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
