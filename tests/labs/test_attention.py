"""Attention: right on both generations and against PyTorch, fast, and wrong answers are named."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from labkit import compare, make_inputs
from labkit.load import load_lab, load_module

from .natural import (
    LABS,
    as_pytorch,
    ladder,
    profiles,
    quick,
    several,
)

LAB = load_lab(LABS / "attention")
REFERENCE = load_module(LAB.folder / "reference.py", "attention_reference_of_tests")
LADDER = ladder(LAB)
SMALL = quick(LAB)


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_ladder_goes_down_towards_the_floor(target):
    """Each step is faster than the one before, and none undercuts what no kernel can."""
    for case in LAB.fleet("contest", target):
        first, *_, last = profiles(LAB, case, target)
        assert first.latency_us > 1.8 * last.latency_us, case.name
        assert last.floor_us < last.latency_us < 2.8 * last.floor_us, case.name


def torchs(case, inputs):
    """Return what PyTorch's own attention computes of a case in the dtype of the data."""
    torch = pytest.importorskip("torch")
    attention = torch.nn.functional.scaled_dot_product_attention
    kind = torch.float32 if inputs[0].dtype == np.float32 else torch.bfloat16
    q, k, v, *rest = (torch.from_numpy(x.astype(np.float32)).to(kind) for x in inputs[:5])
    if rest:
        length = int(inputs[5][0, 0])
        rest[0][:, length], rest[1][:, length] = k, v
        q, k, v = q[:, None], rest[0][:, : length + 1], rest[1][:, : length + 1]
    q, k, v = (x if x.ndim == 3 else x[None] for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(k), dim=0) for x in (k, v))
    made = attention(q, k, v, is_causal="causal" in case.reference or case.kernel == "grouped")
    return made.to(torch.float64).numpy().reshape(inputs[0].shape)


@pytest.mark.sample(9)
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_values_are_those_of_pytorch(case):
    """Both have the tolerance of the case, float32 and bfloat16 alike."""
    kernel = getattr(LADDER["kernels_nki"], case.kernel)
    got = nkisim.simulate(kernel, *make_inputs(case, LAB.seed), target="trn2")
    as_pytorch(case, several(got)[0], torchs(case, make_inputs(case, LAB.seed)))


def test_a_run_time_length_needs_no_other_kernel():
    """One kernel, traced alike, is right for every length that the caches can hold."""
    case = LAB.case("decode_4of2x640x64_at70_bfloat16")
    for length in (0, 1, 127, 128, 511, 512, 639):
        inputs = make_inputs(case, LAB.seed)
        inputs[5][:] = length
        wanted = REFERENCE.decode(*inputs)
        got = nkisim.simulate(LADDER["kernels_nki"].decode, *inputs, target="trn2")
        for w, g in zip(wanted, got):
            assert compare(w, g, dtype=inputs[0].dtype, accumulate=case.accumulate,
                           roundings=2).ok, length  # fmt: skip
