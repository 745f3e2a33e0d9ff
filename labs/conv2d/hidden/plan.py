"""How conv2d is graded, quickly (staff; never exported). The contest's fleet: grade --full."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: right on small, odd and hidden shapes; fast at 32 x 16, on trn2."""
    hidden = (
        spec.conv_case("hidden_3x3_odd_rows", 2, 128, 256, 3, 17, 23, bias=3.0),
        spec.conv_case("hidden_5x5_wide_pool", 1, 256, 128, 5, 14, 72, "float16", pool=2),
        spec.conv_case("hidden_tall", 1, 128, 128, 3, 131, 9, "bfloat16", pool=1))
    fast = [("float32", ""), ("float16", ""), ("float32", "_pool"), ("float16", "_pool")]
    return Plan(
        rubric=(
            RubricLine("right on one group of channels", 10, ("small_in128_out128",)),
            RubricLine("right on all groups of channels", 20, spec.SMALL),
            RubricLine("right on odd shapes", 10, ("odd_batch3_384_1x1", "odd_width500",
                                                   "odd_one_row")),
            RubricLine("right with max-pool", 10, ("odd_5x5_height37_pool",)),
            RubricLine("right on hidden shapes", 20, tuple(c.name for c in hidden)),
            *(RubricLine(f"fast in {dtype}{pool.replace('_', ' with max-')}, 32 x 16", 7.5,
                         (f"speed_32x16_{dtype}{pool}",), speed=True, relaxed=0.5, target="trn2")
              for dtype, pool in fast)),
        hidden=hidden)
