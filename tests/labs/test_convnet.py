"""conv2d's second part: right on both generations and against PyTorch, fast, mistakes named."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from labkit import make_inputs
from labkit.load import load_lab, load_module

from .natural import (
    LABS,
    as_pytorch,
    ladder,
    profiles,
    quick,
)

LAB = load_lab(LABS / "convnet")
REFERENCE = load_module(LAB.folder / "reference.py", "convnet_reference_of_tests")
LADDER = ladder(LAB)
SMALL = quick(LAB)


@pytest.mark.full
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_ladder_goes_down_towards_the_floor(target):
    """Four steps, each faster than the one before; what is left is for the contest."""
    for case in LAB.fleet("contest", target):
        first, *steps, last = profiles(LAB, case, target)
        assert len(steps) == 2 and first.latency_us > 2 * last.latency_us, case.name
        assert last.floor_us < last.latency_us < 1.4 * last.floor_us, case.name


@pytest.mark.sample(2)
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
