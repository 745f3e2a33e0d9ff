"""How the puzzles are graded (staff; never exported)."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine, Tensor
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: each puzzle as students see it, and the loops on another number of rows."""
    by_name = {p.kernel: p for p in spec.PUZZLES}
    hidden = tuple(
        spec.puzzle_case(by_name[kernel],
                         tuple(Tensor(shape, low=-1.0) for shape in shapes), f"{kernel}_hidden")
        for kernel, shapes in (
            ("many_rows", [(512, 48)]),
            ("edge_tile", [(170, 33)]),
            ("long_sums", [(640, 32), (640, 128)]),
            ("wide_relu", [(128, 96), (128, 1536)]),
            ("two_buffers", [(640, 256)])))
    also = {c.kernel: c.name for c in hidden}
    return Plan(
        rubric=tuple(
            part for p in spec.PUZZLES for part in (
                RubricLine(p.section, 0.5 if p.kernel in also else 1, (p.kernel,),
                           speed="threshold_us" in p.more),
                *([RubricLine(f"{p.section}: another shape", 0.5, (also[p.kernel],))]
                  if p.kernel in also else []))),
        hidden=hidden, timeout_s=20, total_s=120)
