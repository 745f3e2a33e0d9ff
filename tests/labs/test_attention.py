"""Attention: right on both generations and against PyTorch, fast, and wrong answers are named."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from labkit import compare, make_inputs
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
    several,
)

LAB = load_lab(LABS / "attention")
REFERENCE = load_module(LAB.folder / "reference.py", "attention_reference_of_tests")
LADDER = ladder(LAB)
SMALL = quick(LAB)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_solutions_are_right_on_the_hidden_cases_too(target):
    all_right(LAB, target, at_least=6)


@pytest.mark.parametrize("step", [name for name in LADDER if name.startswith("step")])
def test_every_step_of_the_ladder_is_right(step):
    right(LAB, LADDER[step], SMALL)


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


@pytest.mark.parametrize("reference, mistake", declared("attention"), ids=lambda x: str(x)[:60])
def test_what_is_declared_is_named(reference, mistake):
    assert named("attention", reference, mistake)


#: case, the solution's words, a student's, and what is said of them
NATURAL = [
    ("attend_128x512x64", "stationary=load_turned(q), moving=load_turned(k)",
     "stationary=load(q), moving=load_turned(k)", "transpose so that both begin with the same K"),
    ("attend_128x512x64", "stationary=load_turned(q), moving=load_turned(k)",
     "stationary=load_turned(k), moving=load_turned(q)", "tiles of 128 columns"),
    ("attend_128x512x64", "scores = new(n, k.shape[0], nl.float32, nl.psum)",
     "scores = new(n, k.shape[0])", "buffer=nl.psum"),
    ("attend_128x256x128_bfloat16_to12", "axis=1, negate=True, keepdims=True)\n    nisa",
     "axis=1, keepdims=True)\n    nisa", "NaN"),
    ("flash_128x640x64", "BLOCK = 512", "BLOCK = 1024", "tiles of 512 columns"),
    ("flash_128x640x64", "data=sums, op0=nl.multiply, operand0=shrink",
     "data=sums, op0=nl.multiply, operand0=1.0", "the sum of the rows is not scaled"),
    ("flash_128x640x64", "data=total, op0=nl.multiply, operand0=shrink",
     "data=total, op0=nl.multiply, operand0=1.0", "the sum of the powers is not scaled"),
    ("flash_128x640x64", "values[first // P + i]", "values[i]", "by the first rows of v"),
    ("flash_128x640x64", "accumulate=i > 0", "accumulate=False", "products must add up"),
    ("flash_140x530x32", "d ** -0.5)", "1.0)", "the scores are not scaled"),
    ("causal_640x32", "hide(scores, mask, m - c - w, eye[0:n, 0:n])", "pass",
     "the tile on the diagonal needs the mask"),
    ("causal_640x32", "pattern=[[-1, P]], channel_multiplier=1,",
     "pattern=[[1, P]], channel_multiplier=-1,", "the mask is turned around"),
    ("causal_640x32", "cmp_op=nl.greater_equal", "cmp_op=nl.greater",
     "query i does not see key i"),
    ("causal_640x32", "nisa.memset(dst=mask, value=0.0)", "pass", "mask"),
    ("grouped_4of2x192x32", "h = g * (heads // groups) + i", "h = i * groups + g", "h % groups"),
    ("grouped_4of2x192x32", "load_turned(k[g]), load_rows(v[g])",
     "load_turned(k[0]), load_rows(v[0])", "the keys of the first group"),
    ("decode_4of2x640x64_at600", "op0=nl.greater, operand0=last",
     "op0=nl.greater_equal, operand0=last", "the new token does not see itself"),
    ("decode_4of2x640x64_at70_bfloat16", "operand1=HIDDEN)\n    # END",
     "operand1=0.0)\n    # END", "all rows of the caches are seen"),
    ("decode_4of2x640x64_at600", "src=load(token))", "src=load(token[0:1].broadcast(0, groups)))",
     "[1, 600,"),
    ("decode_4of2x640x64_at600", "cache.ap(row, scalar_offset=last, indirect_dim=1)",
     "cache[:, last]", "scalar_offset"),
    ("decode_4of2x640x64_at600", "indirect_dim=1), src", "indirect_dim=0), src",
     "out of bounds for axis 0"),
    ("decode_4of2x640x64_at600", "(k_cache, k), (v_cache, v)", "(k_cache, v), (v_cache, k)",
     "the new value in that of keys"),
]  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "case, good, wrong, says", NATURAL, ids=[row[0] + "-" + row[3][:30] for row in NATURAL]
)
def test_a_natural_mistake_is_named(tmp_path, case, good, wrong, says):
    outcome = changed(LAB, LAB.case(case), good, wrong, tmp_path)
    assert outcome.status == FAILED and says in outcome.detail, outcome.detail
