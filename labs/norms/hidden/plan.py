"""How norms is graded (staff; never exported). The contest's fleet: grade --full."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: right on the visible and on other shapes, and fast at 2048 x 2048."""
    hidden = (
        spec.softmax_case(130, 300), spec.softmax_case(77, 513, "bfloat16"),
        spec.layer_norm_case(140, 1300), spec.layer_norm_case(130, 700, offset=500),
        spec.rms_norm_case(130, 300), spec.rms_norm_case(64, 2049, "bfloat16", most=30.0),
        spec.add_case(150, 333, "bfloat16"),
        spec.softmax_case(8, 60000, most=200.0, kernel="softmax_long"))
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
