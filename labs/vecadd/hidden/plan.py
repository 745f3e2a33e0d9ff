"""How vecadd is graded (staff; never exported)."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: the transpose, on shapes that students see and on others."""
    hidden = (spec.transpose_case(384, 128), spec.transpose_case(128, 640),
              spec.transpose_case(896, 384), spec.transpose_case(1408, 1152))
    return Plan(
        rubric=(RubricLine("matrix_transpose on one tile", 2, ("transpose_128x128",)),
                RubricLine("matrix_transpose", 4, spec.TRANSPOSES),
                RubricLine("matrix_transpose on other shapes", 4, tuple(c.name for c in hidden))),
        hidden=hidden, timeout_s=20, total_s=60)
