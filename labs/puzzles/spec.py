"""The puzzles as data: fourteen kernels, a case each, and one that asks for speed."""
from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from labkit import Case, Lab, RubricLine, Step, Tensor

TARGETS = ("trn2", "trn3")


class Puzzle(NamedTuple):
    """A puzzle: its kernel and reference, what is asked of a case, and the heading in README.md."""

    kernel: str
    reference: str
    inputs: tuple[Tensor, ...]
    section: str
    more: dict[str, Any]


def _x(rows: int, columns: int, low: float = -1.0, high: float = 1.0) -> Tensor:
    return Tensor((rows, columns), low=low, high=high)


def puzzle_case(puzzle: Puzzle, inputs: tuple[Tensor, ...] = (), name: str = "") -> Case:
    """Return the case of a puzzle, or of other inputs under another name."""
    more = puzzle.more if not inputs else {k: v for k, v in puzzle.more.items() if "_us" not in k}
    return Case(name or puzzle.kernel, puzzle.kernel, puzzle.reference, inputs or puzzle.inputs,
                targets=TARGETS, **more)


#: Puzzle 10 asks for transfers that overlap. With one place for all tiles they take turns,
#: 64 us on trn2, 62 on trn3; with two places 38 and 37 (all predicted). Between is the threshold.
OVERLAP_US: dict[str, float] = {"trn2": 50.0, "trn3": 50.0}
_EXACT: dict[str, Any] = {"accumulate": 0}
_PRODUCT: dict[str, Any] = {"accumulate": 128, "functions": ("matmul",)}

PUZZLES = (
    Puzzle("first_tile", "add_ten", (_x(128, 64),), "1. The first tile", {}),
    Puzzle("many_rows", "add_ten", (_x(384, 64),), "2. The partition limit", {}),
    Puzzle("scale_rows", "scale_rows", (_x(128, 64), _x(128, 1)), "3. A column for all columns",
           {}),
    Puzzle("row_sums", "row_sums", (_x(128, 64),), "4. A reduction", {"accumulate": 64}),
    Puzzle("edge_tile", "add_ten", (_x(300, 64),), "5. The tile at the edge", {}),
    Puzzle("transpose", "transpose", (_x(128, 64),), "6. Rows to columns", _EXACT),
    Puzzle("matmul", "matmul", (_x(128, 64), _x(128, 256)), "7. A product of matrices", _PRODUCT),
    Puzzle("long_sums", "matmul", (_x(384, 64), _x(384, 256)), "8. Longer sums",
           _PRODUCT | {"accumulate": 384}),
    Puzzle("wide_relu", "wide_relu", (_x(128, 64), _x(128, 1024)), "9. Empty the banks", _PRODUCT),
    Puzzle("two_buffers", "add_ten", (_x(1024, 512),), "10. Two buffers",
           {"threshold_us": OVERLAP_US}),
    Puzzle("one_activation", "one_activation", (_x(128, 64), _x(128, 1)),
           "11. Scale, bias and function at once", {"functions": ("exp",)}),
    Puzzle("lower_triangle", "lower_triangle", (_x(128, 128),), "12. A mask from positions",
           _EXACT),
    Puzzle("running_sum", "running_sum", (_x(128, 64), _x(128, 64, 0.0)), "13. A scan",
           {"accumulate": 64}),
    Puzzle("pick_rows", "pick_rows",
           (_x(1000, 64), Tensor((128, 1), "int32", low=0, high=1000)), "14. Rows by index",
           {**_EXACT, "reads": 0.0}),  # of the table, the rows that are chosen
)

LAB = Lab(
    name="puzzles",
    title="Fourteen puzzles",
    folder=Path(__file__).parent,
    cases=tuple(map(puzzle_case, PUZZLES)),
    rubric=tuple(RubricLine(p.section, 1, (p.kernel,), speed="threshold_us" in p.more)
                 for p in PUZZLES),
    steps=tuple(Step(k, p.section, (p.kernel,), speed="threshold_us" in p.more)
                for k, p in enumerate(PUZZLES, 1)),
    editable=("kernels_nki.py",),
)
