"""How ffnn is graded (staff; never exported)."""
from __future__ import annotations

from typing import Any

from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec: Any) -> Plan:
    """Return the plan: each kernel on the small cases, and on shapes that were not tuned for."""
    odd = spec.Network(128, 256, 384, 77)
    # of one row in a thousand 16 bits take the two best classes for each other
    many = spec.Network(4096, 128, 128, 512)
    hidden = (
        spec.transpose_case(640, 256), spec.transpose_case(128, 1408),
        spec.bias_case("relu", 130, 300), spec.bias_case("softmax", 77, 513),
        spec.bias_case("softmax", 150, 40, most=200),
        spec.network_case("forward_odd", "nki_forward", odd),
        spec.network_case("predict_odd", "nki_predict", odd),
        spec.network_case("predict_many", "nki_predict", many))
    return Plan(
        rubric=(
            RubricLine("nki_transpose", 4, ("transpose_128x128", "transpose_384x1280")),
            RubricLine("nki_transpose on other shapes", 2,
                       ("transpose_640x256", "transpose_128x1408")),
            RubricLine("nki_bias_add_act: relu", 3, ("bias_add_relu_256x1024",)),
            RubricLine("nki_bias_add_act: softmax", 3,
                       ("bias_add_softmax_256x512", "bias_add_softmax_128x64_to1000")),
            RubricLine("nki_bias_add_act on other shapes", 2,
                       ("bias_add_relu_130x300", "bias_add_softmax_77x513",
                        "bias_add_softmax_150x40_to200")),
            RubricLine("nki_forward", 6, ("forward_small",)),
            RubricLine("nki_forward on another network", 2, ("forward_odd",)),
            RubricLine("nki_predict", 6, ("predict_small_tiled", "predict_small_fully_optimized")),
            RubricLine("nki_predict on another network", 2, ("predict_odd", "predict_many"))),
        hidden=hidden)
