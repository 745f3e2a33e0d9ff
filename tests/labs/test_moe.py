"""Mixture of experts: right on both generations and against PyTorch, and mistakes are named."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nkisim
from labkit import compare, make_inputs
from labkit.grade.time_flags import floor_us
from labkit.load import load_lab, load_module

from .natural import (
    LABS,
    as_pytorch,
    asked,
    ladder,
    profiles,
    quick,
    several,
)

LAB = load_lab(LABS / "moe")
LADDER = ladder(LAB)
SMALL = quick(LAB)
FAST = [case for case in LAB.cases if "contest" in case.fleets]


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_ladder_goes_down_towards_the_floor(target):
    """Each step is faster than the one before, and none undercuts what no kernel can.

    The profile's floor counts what indices choose: it is the grader's by the spec, which leaves out
    the tokens of `experts`, since not all need be in a list.
    """
    for case in LAB.fleet("contest", target):
        first, *_, last = profiles(LAB, case, target)
        assert first.latency_us > 1.1 * last.latency_us, case.name
        assert last.floor_us < last.latency_us < 2.4 * last.floor_us, case.name
        assert (last.outputs is None) == (case.kernel == "route")  # the others need values
        if last.outputs is not None:
            graders = floor_us(case, target, last.outputs)
            assert graders <= last.floor_us < 1.03 * graders, case.name


def test_bytes_decide():
    """The same experts in eight bits are loaded in half of the time, and the rest stays."""
    bf16, fp8 = (
        next(c for c in FAST if c.kernel == kernel and "trn2" in c.targets)
        for kernel in ("decode", "decode_fp8")
    )
    profs = [
        nkisim.profile(getattr(LADDER["kernels_nki"], c.kernel), *make_inputs(c, LAB.seed),
                       target="trn2", compute=False)
        for c in (bf16, fp8)
    ]  # fmt: skip
    dma = [p.schedule.busy["dma"] for p in profs]
    assert 0.45 < dma[1] / dma[0] < 0.6
    assert profs[1].latency_us < 0.75 * profs[0].latency_us


def torchs(case, inputs):
    """Return what PyTorch computes of a case in the dtype of the data."""
    torch = pytest.importorskip("torch")
    kind = torch.float32 if case.inputs[0].dtype == "float32" else torch.bfloat16

    def tensor(x):
        return torch.from_numpy(x.astype(np.float32 if x.dtype.kind not in "iu" else np.int64))

    def network(rows, gate, up, down):
        return (torch.nn.functional.silu(rows @ gate) * (rows @ up)) @ down

    given = [tensor(x) for x in inputs]
    x = given[0].to(kind)
    if case.kernel == "gather":
        return x[given[1][:, 0]]
    if case.kernel == "scatter_add":
        real = given[2][:, 0] < len(x)
        return x.index_add(0, given[2][real, 0], given[1].to(kind)[real])
    if case.kernel == "route":
        best, numbers = (x.float() @ given[1].float()).topk(case.kwargs["k"], dim=1)
        sigmoid = torch.sigmoid(best)
        if case.kwargs["scores"] == "softmax":
            return torch.softmax(best, dim=1), numbers
        return sigmoid / sigmoid.sum(dim=1, keepdim=True), numbers
    gate, up, down = (m.to(kind) for m in given[1:4])
    out = torch.zeros_like(x)
    if case.kernel == "decode":
        for t, j in np.ndindex(*inputs[4].shape):
            e = inputs[4][t, j]
            out[t] += given[5][t, j].to(kind) * network(x[t], gate[e], up[e], down[e])
    else:
        for e, row in enumerate(given[4]):
            at = row[row < len(x)]
            share = given[5][e, row < len(x), None].to(kind)
            out[at] += share * network(x[at], gate[e], up[e], down[e])
    return out


def of_kernel(case):
    """Return the outputs of the lab's own kernel."""
    kernel = getattr(LADDER["kernels_nki"], case.kernel)
    inputs = make_inputs(case, LAB.seed)
    return several(nkisim.simulate(kernel, *inputs, target=asked(case), **case.kwargs))


EIGHT_BITS = ("decode_fp8", "decode_mx")


@pytest.mark.parametrize(
    "case", [c for c in SMALL if c.kernel not in EIGHT_BITS], ids=lambda c: c.name
)
def test_values_are_those_of_pytorch(case):
    """PyTorch rounds more often in bfloat16: after each product, weight and sum."""
    theirs = several(torchs(case, make_inputs(case, LAB.seed)))
    for ours, other in zip(of_kernel(case), theirs):
        as_pytorch(case, ours, other.double().numpy(), 1 if ours.dtype == np.float32 else 4)


# -- eight bits: PyTorch's own float8 types say what the bits mean ---------------------------------


def as_torch(bits, kind):
    """Return the values that PyTorch sees in the bytes of an array, in float64."""
    torch = pytest.importorskip("torch")
    return torch.from_numpy(bits.view(np.uint8).copy()).view(getattr(torch, kind)).double()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
        (ml_dtypes.float8_e5m2, "float8_e5m2"),
        (ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu"),
    ],
)
def test_all_bit_patterns_mean_what_they_mean_in_pytorch(ours, theirs):
    bits = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(
        bits.view(ours).astype(np.float64), as_torch(bits, theirs).numpy()
    )


def test_the_two_kinds_of_e4m3_differ_in_the_largest_exponent_alone():
    """float8_e4m3 ends at 240, with infinities beyond; e4m3fn (OCP) goes on to 448."""
    bits = np.arange(256, dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        ieee = bits.view(ml_dtypes.float8_e4m3).astype(np.float64)
    ocp = as_torch(bits, "float8_e4m3fn").numpy()
    top = bits & 0x78 == 0x78
    np.testing.assert_array_equal(ieee[~top], ocp[~top])
    assert top.sum() == 16 and not np.isfinite(ieee[top]).any()
    assert np.nanmax(ocp) == 448 and ieee[~top].max() == 240


def torchs_fp8(inputs):
    """Return decode_fp8 by PyTorch in float64, with its own reading of the eight bits."""
    torch = pytest.importorskip("torch")
    x, *matrices, scales, chosen, weights = inputs
    blocks = matrices[0].shape[2] // 128
    cuts = (0, blocks, 2 * blocks, scales.shape[2])
    wide = []
    for matrix, first, past in zip(matrices, cuts, cuts[1:]):
        assert not (matrix.view(np.uint8) & 0x78 == 0x78).any()  # where both kinds are the same
        scale = torch.from_numpy(scales[..., first:past].reshape(len(scales), 1, -1)).double()
        wide.append(as_torch(matrix, "float8_e4m3fn") * scale)
    tokens = torch.from_numpy(x.astype(np.float64))
    return mixed(tokens, lambda t, e: torch_network(t, *(m[e] for m in wide)), chosen, weights)


def torch_network(rows, gate, up, down):
    silu = pytest.importorskip("torch").nn.functional.silu
    return (silu(rows @ gate) * (rows @ up)) @ down


def mixed(tokens, network, chosen, weights):
    """Return the sum of each token's networks times their weights."""
    out = tokens * 0
    for t, j in np.ndindex(*chosen.shape):
        out[t] += float(weights[t, j]) * network(tokens[t], chosen[t, j])
    return out.numpy()


def torch_quantized(x):
    """Return a vector as MXFP8 by PyTorch: 32 neighbours have a scale of float8_e8m0fnu."""
    torch = pytest.importorskip("torch")
    groups = x.to(torch.bfloat16).double().reshape(-1, 32)
    power = torch.floor(torch.log2(groups.abs().amax(dim=1, keepdim=True))) - 7
    scale = torch.exp2(power).float().to(torch.float8_e8m0fnu).double()
    return ((groups / scale).float().to(torch.float8_e4m3fn).double() * scale).reshape(x.shape)


def torch_opened(packs, exponents):
    """Return matrices [experts, d, n]: packs [experts, d / 4, n, 4], a scale for 8 rows of them.

    `exponents`: [experts, 16, d / 512 * n].
    """
    count, quads, n, _ = packs.shape
    scale = as_torch(exponents.reshape(count, 16, -1, n), "float8_e8m0fnu")
    scale = scale.repeat_interleave(8, dim=1).transpose(1, 2).reshape(count, quads, n, 1)
    values = as_torch(packs, "float8_e4m3fn").reshape(packs.shape) * scale
    return values.transpose(2, 3).reshape(count, 4 * quads, n)


def torchs_mx(inputs):
    """Return decode_mx by PyTorch in float64, with its own float8_e4m3fn and float8_e8m0fnu."""
    torch = pytest.importorskip("torch")
    x, *packs, scales, chosen, weights = inputs
    sizes = [m.shape[1] // 128 * m.shape[2] for m in packs]
    cuts = np.cumsum([0, *sizes])
    gate, up, down = (
        torch_opened(m, np.ascontiguousarray(scales[:, :, a:b]))
        for m, a, b in zip(packs, cuts, cuts[1:])
    )

    def network(token, e):
        inside = torch_quantized(token)
        opened = torch.nn.functional.silu(inside @ gate[e]) * (inside @ up[e])
        return torch_quantized(opened) @ down[e]

    return mixed(torch.from_numpy(x.astype(np.float64)), network, chosen, weights)


@pytest.mark.parametrize("case", [c for c in SMALL if c.kernel in EIGHT_BITS], ids=lambda c: c.name)
def test_values_of_eight_bits_are_those_of_pytorch(case):
    """PyTorch computes in float64: the case's own tolerance is all that is allowed, twice."""
    reference = torchs_fp8 if case.kernel == "decode_fp8" else torchs_mx
    (ours,) = of_kernel(case)
    as_pytorch(case, ours, reference(make_inputs(case, LAB.seed)))


def test_bits_read_as_another_kind_are_outside_of_the_tolerance():
    """The comparison can fail: e5m2 in place of e4m3fn is far away."""
    case = next(c for c in SMALL if c.kernel == "decode_fp8")
    inputs = list(make_inputs(case, LAB.seed))
    inputs[3] = inputs[3].view(ml_dtypes.float8_e5m2).astype(ml_dtypes.float8_e4m3)
    with pytest.raises(AssertionError):
        as_pytorch(case, *of_kernel(case), torchs_fp8(inputs))


def test_two_experts_that_are_nearly_equal_may_change_places():
    """Sums in float32 and in float64 order them by chance; who is better by more comes first."""
    route = load_module(LAB.folder / "reference.py").route
    x = np.zeros((128, 4), np.float32)
    x[:, 0] = 1.0
    router = np.zeros((4, 8), np.float32)
    router[0] = [0, 1, 2, 3, 4, 5, 6, 7]
    router[0, 6] = 7 - 1e-6
    _, expected = route(x, router, 3)
    for numbers, passes in (((7, 6, 5), True), ((6, 7, 5), True), ((7, 5, 6), False)):
        assert compare(expected, np.tile(np.uint32(numbers), (128, 1))).ok is passes
