"""Norms: right on both generations and against PyTorch, fast, and wrong answers are named."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import nkisim
from labkit import compare, make_inputs
from labkit.inputs import dtype_of
from labkit.load import load_lab, load_module

from .natural import (
    LABS,
    as_pytorch,
    ladder,
    profiles,
    quick,
    several,
)

LAB = load_lab(LABS / "norms")
REFERENCE = load_module(LAB.folder / "reference.py", "norms_reference_of_tests")
LADDER = ladder(LAB)
SMALL = quick(LAB)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_ladder_goes_down_to_the_floor(target):
    """The last step is within a tenth of the floor; a row that is read again has more to move."""
    for case in LAB.fleet("contest", target):
        first, *_, last = profiles(LAB, case, target)
        nbytes = [math.prod(t.shape) * dtype_of(t.dtype).itemsize for t in case.inputs]
        outputs = 1 + (case.kernel == "add_rms_norm")
        floor = nkisim.least_us(target, sum(nbytes), outputs * nbytes[0])
        assert first.latency_us > 1.3 * last.latency_us
        limit = 1.3 if "long" in case.kernel else 1.1
        assert floor <= last.latency_us < limit * floor, case.name


def torchs(case, inputs):
    """Return what PyTorch computes of a case's inputs in their own dtype, as float64."""
    torch = pytest.importorskip("torch")
    wide = [torch.from_numpy(x.astype(np.float32)) for x in inputs]
    kind = torch.float32 if inputs[0].dtype == np.float32 else torch.bfloat16
    x, *rows = (t.to(kind) for t in wide)
    functional, shape = torch.nn.functional, (inputs[0].shape[1],)
    epsilon = case.kwargs.get("epsilon")
    if case.reference == "softmax":
        made = (torch.softmax(x, dim=1),)
    elif case.reference == "layer_norm":
        made = (functional.layer_norm(x, shape, *(r[0] for r in rows), eps=epsilon),)
    else:
        *residual, gamma = rows
        total = x + residual[0] if residual else x
        made = (functional.rms_norm(total, shape, gamma[0], eps=epsilon), total)
        made = made if residual else made[:1]
    return [m.to(torch.float64).numpy() for m in made]


@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_values_are_those_of_pytorch(case):
    """Both have the tolerance of the case, float32 and bfloat16 alike."""
    if "long" in case.kernel:
        return
    inputs = make_inputs(case, LAB.seed)
    got = nkisim.simulate(
        getattr(LADDER["kernels_nki"], case.kernel), *inputs, target="trn2", **case.kwargs
    )
    for ours, theirs in zip(several(got), torchs(case, inputs)):
        as_pytorch(case, ours, theirs)


def test_statistics_in_bfloat16_are_outside_of_the_tolerance():
    """The twin of the case that passes: mean and variance rounded to bfloat16 are not enough."""
    case = LAB.case("layer_norm_128x1024_bfloat16_at8")
    inputs = make_inputs(case, LAB.seed)
    x, gamma, beta = (a.astype(np.float64) for a in inputs)
    narrow = [s.astype(ml_dtypes.bfloat16).astype(float) for s in (x.mean(1), x.var(1))]
    wrong = (x - narrow[0][:, None]) / np.sqrt(narrow[1][:, None] + 1e-5) * gamma + beta
    verdict = compare(REFERENCE.layer_norm(*inputs), wrong.astype(inputs[0].dtype),
                      dtype=inputs[0].dtype, accumulate=case.accumulate)  # fmt: skip
    assert not verdict.ok
