"""How moe is graded (staff; never exported). The contest's fleet: grade --full."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: right on the visible and on other shapes, and fast on four cases."""
    hidden = (
        spec.gather_case(140, 500, 48), spec.gather_case(385, 200, 32, "bfloat16"),
        spec.scatter_case(130, 500, 48), spec.scatter_case(300, 300, 64, "bfloat16"),
        spec.route_case(129, 256, 24, 5), spec.route_case(260, 128, 100, 8, "bfloat16", "sigmoid"),
        spec.decode_case(2, 3, 5, 128, 384), spec.decode_case(1, 2, 3, 384, 128, "bfloat16"),
        spec.fp8_case(2, 1, 3, 384, 128), spec.experts_case(257, 129, 2, 128, 128),
        spec.experts_case(90, 60, 4, 256, 384, "bfloat16"), spec.mx_case(1, 2, 3, 512, 1024))
    quick = spec.LAB.rubric[:len(spec.KERNELS)]
    fast = spec.LAB.rubric[len(spec.KERNELS):]
    return Plan(
        rubric=(
            *(RubricLine(line.text, 3, line.cases, target=line.target) for line in quick),
            *(RubricLine(f"{kernel} on other shapes", 1,
                         tuple(c.name for c in hidden if c.kernel == kernel),
                         target=spec.target_of(kernel)) for kernel in spec.KERNELS),
            *fast),
        hidden=hidden, total_s=300)
