"""Of kernels with one mistake each: what does `evaluate` say, and does a fix mend them?

    python tools/benchmarks/fixes.py [--mutants 300] [--jobs 2] [--write]

Mistakes are made by a table of operators in the labs' kernels and a few others; each mutant is
evaluated against the reference. A fix is applied to the mutant and the result is held against the
reference with inputs that the evaluation has not seen: one that fails there is a false fix.
`--write` puts the table into docs/evaluate.md.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from nkisim.cli.serve import Desk
from nkisim.evaluation.edits import apply_dict

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evaluate.md"
TESTS = ROOT / "tests" / "nkisim" / "kernels_to_evaluate.py"
LABS = ROOT / "labs"
#: kernels that are right, with arguments that are small, and their references
KERNELS = (
    (TESTS, "double", ["128x256:float32"], TESTS, "double_of", {}),
    (LABS / "vecadd" / "kernels_nki.py", "vector_add_tiled", ["512:float32", "512:float32"],
     LABS / "vecadd" / "reference.py", "add", {}),
    (LABS / "vecadd" / "kernels_nki.py", "vector_add_stream", ["25600:float32", "25600:float32"],
     LABS / "vecadd" / "reference.py", "add", {"FREE_DIM": 100}),
    (LABS / "ffnn" / "kernels_nki.py", "nki_matmul_tiled", ["256x128:float32", "256x512:float32"],
     TESTS, "product_of", {}),
    (TESTS, "triple", ["128x128:float32"], TESTS, "triple_of", {}),
    (TESTS, "add", ["128x256:float32", "128x256:float32"], TESTS, "sum_of", {}),
    (LABS / "ffnn" / "kernels_nki.py", "nki_matmul_block_free_dimension",
     ["256x256:float32", "256x1024:float32"], TESTS, "product_of", {}),
    (LABS / "ffnn" / "kernels_nki.py", "nki_matmul_hoist_load",
     ["256x128:float32", "256x512:float32"], TESTS, "product_of", {}),
)  # fmt: skip


def typo(node: ast.AST, source: str) -> Iterator[str]:
    """A letter of the name of an instruction that is another one."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id in ("nl", "nisa") and len(node.attr) > 4:
            yield f"{node.value.id}.{node.attr[:-2]}{node.attr[-1]}{node.attr[-2]}"


def keyword(node: ast.AST, source: str) -> Iterator[str]:
    """A misspelt argument."""
    if isinstance(node, ast.keyword) and node.arg and len(node.arg) > 3:
        yield f"{node.arg[:-1]}={ast.get_source_segment(source, node.value)}"


def memory(node: ast.AST, source: str) -> Iterator[str]:
    """A tile in another memory."""
    text = ast.get_source_segment(source, node) if isinstance(node, ast.Attribute) else ""
    others = {"nl.sbuf": "nl.psum", "nl.psum": "nl.sbuf", "nl.shared_hbm": "nl.sbuf"}
    if text in others:
        yield others[text]


def exchange(node: ast.AST, source: str) -> Iterator[str]:
    """Two operands in each other's place."""
    if isinstance(node, ast.Call) and len(node.keywords) > 1:
        a, b = node.keywords[:2]
        if isinstance(a.value, (ast.Name, ast.Subscript)) and isinstance(
            b.value, (ast.Name, ast.Subscript)
        ):
            text = ast.get_source_segment(source, node) or ""
            one = ast.get_source_segment(source, a.value) or ""
            two = ast.get_source_segment(source, b.value) or ""
            yield (
                text.replace(f"{a.arg}={one}", "\0", 1)
                .replace(f"{b.arg}={two}", f"{b.arg}={one}", 1)
                .replace("\0", f"{a.arg}={two}", 1)
            )


def bound(node: ast.AST, source: str) -> Iterator[str]:
    """A loop that ends one early, or goes one too far."""
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and node.iter.args:
        return
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and node.args:
        text = ast.get_source_segment(source, node.args[-1]) or ""
        for change in ("- 1", "+ 1"):
            yield (ast.get_source_segment(source, node) or "").replace(text, f"{text} {change}", 1)


def slice_end(node: ast.AST, source: str) -> Iterator[str]:
    """A slice that ends too early."""
    if isinstance(node, ast.Slice) and node.upper is not None:
        low = ast.get_source_segment(source, node.lower) if node.lower else ""
        high = ast.get_source_segment(source, node.upper)
        yield f"{low}:{high} - 1"


def number(node: ast.AST, source: str) -> Iterator[str]:
    """Another number: of partitions, of columns, a factor."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value > 1:
        yield repr(node.value * 2)


def operator(node: ast.AST, source: str) -> Iterator[str]:
    """Another operation."""
    text = ast.get_source_segment(source, node) if isinstance(node, ast.Attribute) else ""
    others = {"nl.add": "nl.subtract", "nl.multiply": "nl.add", "np.add": "np.subtract"}
    if text in others:
        yield others[text]


def dropped(node: ast.AST, source: str) -> Iterator[str]:
    """An instruction that is not there."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "pass"


def dtype(node: ast.AST, source: str) -> Iterator[str]:
    """A tile of another dtype."""
    if isinstance(node, ast.keyword) and node.arg == "dtype":
        yield "dtype=nl.int32"


def variable(node: ast.AST, source: str) -> Iterator[str]:
    """A variable whose name lacks a letter."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and len(node.id) > 3:
        yield node.id[:2] + node.id[3:]


def missing(node: ast.AST, source: str) -> Iterator[str]:
    """An argument that is left out."""
    if isinstance(node, ast.Call) and len(node.keywords) > 1:
        text = ast.get_source_segment(source, node) or ""
        last = ast.get_source_segment(source, node.keywords[-1]) or ""
        yield re.sub(r",\s*" + re.escape(last), "", text, count=1)


OPERATORS = (
    typo, keyword, memory, exchange, bound, slice_end, number, operator, dropped, dtype, variable,
    missing,
)  # fmt: skip


def mutants(text: str, kernel: str) -> Iterator[tuple[str, str]]:
    """Yield (operator, text) of each mistake that can be made in a kernel."""
    tree = ast.parse(text)
    function = next(
        n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == kernel
    )
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()
    body = [n for s in function.body for n in ast.walk(s) if hasattr(n, "lineno")]
    for node in body:
        for make in OPERATORS:
            for new in make(node, text):
                a = starts[node.lineno - 1] + node.col_offset
                b = starts[node.end_lineno - 1] + node.end_col_offset
                yield make.__name__, (raw[:a] + new.encode() + raw[b:]).decode()


def asked(row: tuple, text: str, seeds: list[int]) -> dict:
    """Return the request that evaluates a text in the place of a kernel's file."""
    file, kernel, args, reference, name, constants = row
    return {
        "kernel": f"{file}:{kernel}", "source": text, "args": args, "set": constants,
        "reference": f"{reference}:{name}", "target": "trn2", "seeds": seeds, "details": False,
        "seconds": 20,
    }  # fmt: skip


def main() -> int:
    """Make mutants, evaluate them, apply fixes; print the table; 1 if a fix was false."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    every = []
    for row in KERNELS:
        text = row[0].read_text("utf-8")
        every += [(row, name, new) for name, new in mutants(text, row[1]) if new != text]
    random.Random(0).shuffle(every)
    chosen = every[: options.mutants]
    verdicts: dict[str, Counter] = defaultdict(Counter)
    mended, false = Counter(), 0
    with Desk(options.jobs, seconds=40) as desk:
        for row in KERNELS:
            answer = desk.ask(asked(row, row[0].read_text("utf-8"), [1]))
            assert answer["right"], (row[1], answer["verdict"], answer["error"])
        answers = list(desk.ask_all(asked(row, new, [1]) for row, _, new in chosen))
        for (row, name, new), answer in zip(chosen, answers):
            verdicts[name][answer["verdict"]] += 1
            fixes = [fix for f in answer.get("findings", ()) for fix in f["fixes"]]
            for k, fix in enumerate(fixes):
                again = {**asked(row, apply_dict(new, fix["edits"]), [11, 12]), "fixes": False}
                works = desk.ask(again)["right"]
                false += not works
                mended[name] += works and not k
    rows = [
        [name, *(str(n) for n in _numbers(verdicts[name], mended[name]))]
        for name in sorted(verdicts)
    ]
    total = Counter()
    for v in verdicts.values():
        total.update(v)
    rows.append(["all", *(str(n) for n in _numbers(total, sum(mended.values())))])
    head = [
        "mistake",
        "mutants",
        "right all the same",
        "refused or failed",
        "wrong",
        "mended by a fix",
    ]
    lines = [f"| {' | '.join(r)} |" for r in (head, ["---"] * len(head), *rows)]
    print("\n".join(lines), f"\nfalse fixes: {false}")
    if options.write:
        table = (
            "<!-- fixes -->\n" + "\n".join(lines) + f"\n\nFalse fixes: {false}.\n<!-- /fixes -->"
        )
        text = re.sub(
            r"<!-- fixes -->.*?<!-- /fixes -->",
            lambda _: table,
            PAGE.read_text("utf-8"),
            flags=re.S,
        )
        PAGE.write_text(text, "utf-8")
    return 1 if false else 0


def _numbers(said: Counter, mended: int) -> tuple[int, ...]:
    right = said["right"]
    wrong = said["wrong"] + said["undefined"] + said["order_dependent"]
    return said.total(), right, said.total() - right - wrong, wrong, mended


if __name__ == "__main__":
    sys.exit(main())
