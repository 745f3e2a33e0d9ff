"""How convnet is graded, where a course gives points for it (staff; never exported)."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: right on the visible and on other shapes, and fast on five cases."""
    hidden = (
        spec.conv_case("padded", 2, 256, 128, 3, 11, 23, "bfloat16", padding=1),
        spec.conv_case("padded", 1, 128, 128, 5, 12, 9, padding=1),
        spec.conv_case("strided", 1, 128, 128, 5, 14, 19, "bfloat16", stride=2, padding=2),
        spec.conv_case("strided", 2, 128, 128, 3, 11, 14, stride=3),
        spec.conv_case("batched", 13, 128, 128, 5, 6, 9, "float16", padding=2),
        spec.conv_case("batched", 9, 256, 128, 3, 9, 7, stride=2, padding=1))
    quick = spec.LAB.rubric[:len(spec.KERNELS)]
    fast = spec.LAB.rubric[len(spec.KERNELS):]
    return Plan(
        rubric=(
            *(RubricLine(line.text, 3, line.cases) for line in quick),
            *(RubricLine(f"{kernel} on other shapes", 2,
                         tuple(c.name for c in hidden if c.kernel == kernel))
              for kernel in spec.KERNELS),
            *fast),
        hidden=hidden, total_s=300)
