"""Points for speed separate: each step of conv2d's ladder earns more than the one before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labkit.load import load_lab, load_module
from nkisim.simulation.prediction import profile

LAB = Path(__file__).parents[2] / "labs" / "conv2d"
STEPS = (
    "solutions/step1_naive",
    "solutions/step2_filters_once",
    "solutions/step3_rows_per_bank",
    "solutions/step4_fused_pool",
    "solutions/step5_wide_dma",
)
#: points of 30 that the solution has
ALL = 30


def earned(file: str, target: str) -> float:
    """Return the points for speed of a file of kernels, as the plan of the course counts them."""
    lab = load_lab(LAB)
    spec = load_module(LAB / "spec.py")
    plan = load_module(LAB / "hidden" / "plan.py").plan(spec)
    kernel = load_module(LAB / f"{file}.py").fused_conv2d_maxpool
    points = 0.0
    for line in plan.rubric:
        if not line.speed:
            continue
        case = lab.case(line.cases[0])
        inputs = [np.zeros(t.shape, t.dtype) for t in case.inputs]
        took = profile(kernel, *inputs, **case.kwargs, target=target, compute=False).latency_us
        if took <= case.threshold_us[target]:
            points += line.points
        elif took <= case.relaxed_us[target]:
            points += line.points * line.relaxed
    return points


@pytest.mark.sample(1)
@pytest.mark.parametrize("target, end", [("trn1", ""), ("trn2", ""), ("trn2", "_nki")])
def test_each_step_of_the_ladder_earns_more(target, end):
    points = [earned(f"{file}{end}", target) for file in STEPS]
    assert points[0] == 0 and points[-1] >= 0.9 * ALL, points
    assert all(a < b for a, b in zip(points, points[1:])), points


@pytest.mark.parametrize("target, end", [("trn1", ""), ("trn2", ""), ("trn2", "_nki")])
def test_the_solution_has_all_points(target, end):
    assert earned(f"kernels{end}", target) == ALL
