"""conv2d's second part: right on both generations and against PyTorch, fast, mistakes named."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from labkit import make_inputs
from labkit.evaluate import FAILED
from labkit.load import load_lab, load_module

from .natural import (
    LABS,
    all_right,
    as_pytorch,
    changed,
    declared,
    ladder,
    named,
    profiles,
    quick,
    right,
)

LAB = load_lab(LABS / "convnet")
REFERENCE = load_module(LAB.folder / "reference.py", "convnet_reference_of_tests")
LADDER = ladder(LAB)
SMALL = quick(LAB)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_solutions_are_right_on_the_hidden_cases_too(target):
    all_right(LAB, target, at_least=6)


@pytest.mark.parametrize("step", [name for name in LADDER if name.startswith("step")])
def test_every_step_of_the_ladder_is_right(step):
    right(LAB, LADDER[step], SMALL)


@pytest.mark.full
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_ladder_goes_down_towards_the_floor(target):
    """Four steps, each faster than the one before; what is left is for the contest."""
    for case in LAB.fleet("contest", target):
        first, *steps, last = profiles(LAB, case, target)
        assert len(steps) == 2 and first.latency_us > 2 * last.latency_us, case.name
        assert last.floor_us < last.latency_us < 1.4 * last.floor_us, case.name


@pytest.mark.parametrize("case", LAB.fleet("contest", "trn2"), ids=lambda c: c.name)
def test_the_last_step_multiplies_by_no_zeros(case):
    """Its operations are those that the case says are needed; with a border there are more."""
    *_, bordered, last = profiles(LAB, case, "trn2")
    turned = 2.0 * np.prod(case.inputs[1].shape) * 128
    assert last.flops in (case.flops, case.flops + turned)
    assert bordered.flops > last.flops


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_values_are_those_of_pytorch(case):
    pytest.importorskip("torch")
    inputs = make_inputs(case, LAB.seed)
    wanted = REFERENCE.conv2d_torch(*inputs, **case.kwargs)
    kernel = getattr(LADDER["kernels_nki"], case.kernel)
    got = nkisim.simulate(kernel, *inputs, target="trn2", **case.kwargs)
    as_pytorch(case, got, wanted.astype(np.float64))


@pytest.mark.sample(8)
@pytest.mark.parametrize("reference, mistake", declared("convnet"), ids=lambda x: str(x)[:60])
def test_what_is_declared_is_named(reference, mistake):
    assert named("convnet", reference, mistake)


#: case, the solution's words, a student's, and what is said of them
NATURAL = [
    ("padded_1x128to128_3x3_10x12_p1", "taps = [(middle, middle)]", "taps = [(0, 0)]", "NKI-N08"),
    ("padded_1x128to128_3x3_10x12_p1", "accumulate=begun", "accumulate=True", "accumulate=(k > 0)"),
    ("padded_1x128to128_3x3_10x12_p1", "accumulate=begun", "accumulate=False",
     "terms of the sum are missing or overwritten"),
    ("padded_1x128to128_3x3_10x12_p1",
     "    while first < end and first * stride + tap - padding < 0:\n        first += 1\n", "",
     "-1:9, which is 9:9: a negative bound counts from the end"),
    ("padded_1x128to128_3x3_10x12_p1", "(end - 1) * stride + tap - padding >= length",
     "(end - 1) * stride + tap - padding > length", "11"),
    ("padded_1x128to128_3x3_10x12_p1",
     "y, x = top * stride + i - padding, left * stride + j - padding",
     "y, x = top * stride + i, left * stride + j", "elements 1 .. 10"),
    ("padded_1x128to128_3x3_10x12_p1",
     "nc_transpose(dst=bank[:, t], data=raw[:, :, first + t])",
     "tensor_copy(dst=bank[:, t], src=raw[:, :, first + t])", "the filters are not turned"),
    ("padded_1x128to128_3x3_10x12_p1", "i * size + j],", "i + j * size],",
     "the taps are exchanged"),
    ("padded_1x256to128_3x3_30x40_p1_float16", "top - row:bottom - row, left", "top:bottom, left",
     "elements 12 .. 23"),
    ("padded_1x256to128_3x3_30x40_p1_float16", "for k in range(k_tiles):\n            nisa",
     "for k in range(1):\n            nisa", "only the first 128 input channels"),
    ("padded_2x128to256_5x5_9x14_p2_bfloat16", "    return wide\n", "    return raw\n",
     "into a float32 tile first"),
    ("padded_2x128to256_5x5_9x14_p2_bfloat16", ".permute((1, 0, 2, 3)))\n    # END",
     ")\n    # END", "images and channels are mixed up"),
    ("strided_1x128to128_3x3_16x20_s2_p1", "y:y_end:stride, x:x_end:stride", "y:y_end, x:x_end",
     "result (128, 1, 15, 19)"),
    ("strided_1x128to128_3x3_16x20_s2_p1", "convolve(out, X, W, bias, stride, padding, 1)",
     "convolve(out, X, W, bias, 1, padding, 1)", "the stride is left out: neighbouring"),
    ("batched_13x128to256_3x3_7x7_p1_bfloat16",
     "in_bank = max(1, min(together, bank // (rows * columns)))", "in_bank = together",
     "tiles of 512 columns"),
    ("batched_13x128to256_3x3_7x7_p1_bfloat16", "image:image + count, y", "0:count, y",
     "every bank has the images of the first bank"),
    ("batched_13x128to256_3x3_7x7_p1_bfloat16", "column[:, m:m + 1]", "column[:, 0:1]",
     "the biases of the first 128 output channels"),
]  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "case, good, wrong, says", NATURAL, ids=[f"{row[0]}-{row[3][:30]}" for row in NATURAL]
)
def test_a_natural_mistake_is_named(tmp_path, case, good, wrong, says):
    outcome = changed(LAB, LAB.case(case), good, wrong, tmp_path)
    assert outcome.status == FAILED and says in outcome.detail, outcome.detail
