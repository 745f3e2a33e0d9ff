"""How conv2d is graded, quickly (staff; never exported). The contest's fleet: grade --full."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: right on small, odd and hidden shapes; fast on five shapes."""
    hidden = (
        spec.conv_case("hidden_3x3_odd_rows", 2, 128, 256, 3, 17, 23, bias=3.0),
        spec.conv_case("hidden_5x5_wide_pool", 1, 256, 128, 5, 14, 72, "float16", pool=2),
        spec.conv_case("hidden_tall", 1, 128, 128, 3, 131, 9, "bfloat16", pool=1))
    return Plan(
        rubric=(
            RubricLine("right on one group of channels", 10, ("small_in128_out128",)),
            RubricLine("right on all groups of channels", 20, spec.SMALL),
            RubricLine("right on odd shapes", 10, ("odd_batch3_384_1x1", "odd_width500",
                                                   "odd_one_row")),
            RubricLine("right with max-pool", 10, ("odd_5x5_height37_pool",)),
            RubricLine("right on hidden shapes", 20, tuple(c.name for c in hidden)),
            *(RubricLine(f"fast: {spec.graded_name(key).removeprefix('graded_')}", 6,
                         (spec.graded_name(key),), speed=True, relaxed=0.5)
              for key in spec.GRADED)),
        hidden=hidden)
