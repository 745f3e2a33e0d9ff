"""Norms: right on both generations and against PyTorch, fast, and wrong answers are named."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import nkisim
from labkit import compare, make_inputs
from labkit.evaluate import FAILED
from labkit.inputs import dtype_of
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

LAB = load_lab(LABS / "norms")
REFERENCE = load_module(LAB.folder / "reference.py", "norms_reference_of_tests")
LADDER = ladder(LAB)
SMALL = quick(LAB)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_solutions_are_right_on_the_hidden_cases_too(target):
    all_right(LAB, target, at_least=6)


@pytest.mark.parametrize("step", [name for name in LADDER if name.startswith("step")])
def test_every_step_of_the_ladder_is_right(step):
    right(LAB, LADDER[step], [c for c in SMALL if "long" not in c.name or "bfloat" not in c.name])


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


@pytest.mark.sample(10)
@pytest.mark.parametrize("reference, mistake", declared("norms"), ids=lambda x: str(x)[:60])
def test_what_is_declared_is_named(reference, mistake):
    assert named("norms", reference, mistake)


#: case, the solution's words, a student's, and what is said of them
NATURAL = [
    ("softmax_128x64_to1000", "bias=largest, reduce_op=nl.add,\n     ", "reduce_op=nl.add,\n     ",
     "NaN"),
    ("softmax_128x64_to1000", "axis=1, negate=True,", "axis=1,", "NaN"),
    ("softmax_256x512", "        nisa.reciprocal(dst=total, data=total)\n", "",
     "multiply by its reciprocal"),
    ("softmax_256x512", "data=powers, op0=nl.multiply, operand0=total",
     "data=powers, op0=nl.divide, operand0=total", "nisa.reciprocal(dst, data)"),
    ("softmax_256x512", "tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=total)",
     "tensor_tensor(dst=result, data1=powers, data2=total, op=nl.multiply)", "nisa.tensor_scalar("),
    ("layer_norm_256x512", "load(gamma.broadcast(0, P)), load(beta.broadcast(0, P))",
     "load(gamma), load(beta)", "row.broadcast(0, n)"),
    ("layer_norm_128x1024_bfloat16_at8", "new(n, 2)", "new(n, 2, x.dtype)", "float32"),
    ("layer_norm_200x600", "data=tile[:, c:c + w])", "data=tile[:, 0:w])", "outside the tolerance"),
    ("layer_norm_200x600", "data=tile[:, c:c + w])", "data=tile)", "1 .. 512"),
    ("layer_norm_256x512", "op0=nl.power, operand0=-0.5", "op0=nl.power, operand0=-1.0",
     "the root is missing"),
    ("rms_norm_256x512", "1.0 / columns", "1.0", "not divided by the number of columns"),
    ("rms_norm_256x512", "op1=nl.multiply, operand1=factor", "op1=nl.add, operand1=factor",
     "gamma is added"),
    ("rms_norm_200x77", "operand1=factor[0:n]", "operand1=factor", "factor[0:72]"),
    ("add_rms_norm_256x512", "normalise(total, factor", "normalise(load(x[r:r + n]), factor",
     "the residual is not added"),
    ("add_rms_norm_256x512", "return normed, added", "return added, normed", "are exchanged"),
    ("softmax_long_16x65536_to100", "before, largest_before = total, largest",
     "before, largest_before = None, None", "of the last chunk alone"),
    ("softmax_long_16x65536_to100", "operand0=shrink", "operand0=1.0", "the sum is not scaled"),
]  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "case, good, wrong, says", NATURAL, ids=[f"{row[0]}-{row[3]}" for row in NATURAL]
)
def test_a_natural_mistake_is_named(tmp_path, case, good, wrong, says):
    outcome = changed(LAB, LAB.case(case), good, wrong, tmp_path)
    assert outcome.status == FAILED and says in outcome.detail, outcome.detail
