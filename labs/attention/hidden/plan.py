"""How attention is graded (staff; never exported). The contest's fleet: grade --full."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: right on the visible and on other shapes, and fast on four cases."""
    hidden = (
        spec.plain_case(77, 130, 128, kernel="attend"),
        spec.plain_case(140, 1100, 64), spec.plain_case(300, 513, 32, "bfloat16"),
        spec.causal_case(530, 32), spec.causal_case(257, 64, "bfloat16"),
        spec.grouped_case(6, 3, 140, 32),
        spec.decode_case(6, 3, 530, 32, 512), spec.decode_case(8, 1, 260, 128, 127, "bfloat16"))
    quick = spec.LAB.rubric[:len(spec.KERNELS)]
    fast = spec.LAB.rubric[len(spec.KERNELS):]
    return Plan(
        rubric=(
            *(RubricLine(line.text, 4, line.cases) for line in quick),
            *(RubricLine(f"{kernel} on other shapes", 2,
                         tuple(c.name for c in hidden if c.kernel == kernel))
              for kernel in spec.KERNELS),
            *fast),
        hidden=hidden, total_s=300)
