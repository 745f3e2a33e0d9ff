"""The conv2d lab: its kernels are right and frugal, its tester notices when they are not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from labkit import compare
from labkit.evaluate import FAILED, PASSED, evaluate
from labkit.inputs import dtype_of, make_inputs
from labkit.load import load_lab, load_module
from nkisim.chip import hw

FOLDER = Path(__file__).parents[2] / "labs" / "conv2d"
KERNELS = load_module(FOLDER / "kernels.py", "conv2d_kernels")
REFERENCE = load_module(FOLDER / "reference.py", "conv2d_reference")
LAB = load_lab(FOLDER)


def images(batch, c_in, c_out, size, height, width, dtype="float32", seed=0):
    return REFERENCE.make_images(batch, c_in, c_out, size, height, width, dtype_of(dtype), seed)


def run(inputs, pool=1, target="trn2"):
    return nkisim.run(KERNELS.fused_conv2d_maxpool, *inputs, pool_size=pool, target=target)


def check(inputs, pool=1, target="trn2"):
    """Run the kernel and assert that it is right; return the run."""
    got = run(inputs, pool, target)
    X, W = inputs[:2]
    verdict = compare(
        REFERENCE.conv2d_exact(*inputs, pool_size=pool),
        got.outputs,
        dtype=X.dtype,
        accumulate=W[0].size + 1,
    )
    assert verdict.ok, verdict.render()
    assert not got.findings
    return got


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("pool", [1, 2])
def test_dtypes_pools_and_targets(dtype, pool, target):
    check(images(2, 256, 128, 3, 20, 18, dtype), pool, target)


@pytest.mark.parametrize(
    "shape",
    [
        (3, 384, 128, 1, 9, 12),  # batch 3, 384 channels, 1 x 1 filter
        (1, 128, 256, 5, 38, 24),  # 5 x 5
        (1, 128, 128, 7, 37, 41),  # 7 x 7, odd height
        (1, 128, 128, 3, 37, 500),  # one row fills a PSUM bank
        (1, 128, 128, 3, 6, 1300),  # wider than a bank
        (1, 128, 128, 3, 3, 3),  # one output pixel
        (1, 128, 128, 4, 11, 7),  # an even filter
    ],
)
def test_shapes_that_no_handout_has(shape):
    check(images(*shape))


def test_image_wider_than_sbuf_is_cut_into_panels():
    got = check(images(1, 128, 128, 3, 5, 12000))
    loads = [k for k in got.trace.op_specs if k.row.name == "dma_copy"]
    assert (
        max(
            max(p.shape[2] for p in k.operands if len(p.shape) == 3)
            for k in loads
            if any(len(p.shape) == 3 for p in k.operands)
        )
        < 12000
    )


@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(1, 2),
    k=st.integers(1, 2),
    m=st.integers(1, 2),
    size=st.integers(1, 5),
    height=st.integers(1, 20),
    width=st.integers(1, 40),
    pool=st.sampled_from([1, 2]),
    seed=st.integers(0, 9),
)
def test_any_shape(batch, k, m, size, height, width, pool, seed):
    shape = (batch, k * 128, m * 128, size, height * pool + size - 1, width * pool + size - 1)
    check(images(*shape, seed=seed), pool)


def test_first_kernel_is_the_second_without_pooling():
    inputs = images(1, 128, 128, 3, 12, 12)
    np.testing.assert_array_equal(nkisim.simulate(KERNELS.conv2d_nki, *inputs), run(inputs).outputs)


def work_of(got):
    """Return the number of matmuls and the columns that stream through the Tensor Engine."""
    kinds = got.trace.op_specs
    matmuls = [
        (kinds[k], n) for k, n in got.trace.counts().items() if kinds[k].row.name == "nc_matmul"
    ]
    return (
        sum(n for _, n in matmuls),
        sum(n * kind.operands[2].elements // kind.operands[2].shape[0] for kind, n in matmuls),
    )


@pytest.mark.parametrize("pool", [1, 2])
def test_work_at_the_size_of_the_contest(pool):
    """256 -> 256 channels, 3 x 3, 224 x 224: the Tensor Engine and the HBM do what they must."""
    shape = (1, 256, 224, 224)
    inputs = (
        np.zeros(shape, np.float16),
        np.zeros((256, 256, 3, 3), np.float16),
        np.zeros(256, np.float16),
    )
    got = run(inputs, pool)
    products = 2 * 2 * 9  # tiles of input channels, of output channels, taps
    matmuls, columns = work_of(got)
    assert columns == products * 222 * 222
    assert matmuls <= 1.03 * products * -(-222 * 222 // 512)
    assert got.instructions["nc_transpose"] == products
    assert got.hbm_read_bytes == sum(a.nbytes for a in inputs)  # nothing is read twice
    assert got.hbm_write_bytes == got.outputs.nbytes
    assert got.dma_transfers < 100


@pytest.mark.parametrize(
    "change, said",
    [
        ({"c_in": 100}, "number of input channels must be a multiple of 128"),
        ({"c_out": 100}, "number of output channels must be a multiple of 128"),
        ({"size": 13}, "the filter must fit in the image"),
        ({"pool": 3}, "pool_size must be 1 or 2"),
        ({"height": 13, "pool": 2}, "pool_size must divide"),
        ({"filters": (128, 128, 3, 2)}, "filters must be square"),
        ({"filters": (128, 256, 3, 3)}, "the filters are for 256"),
        ({"biases": 256}, "there are 128 filters, but 256 biases"),
        ({"bias_dtype": "float32", "dtype": "float16"}, "must have one dtype"),
        ({"dtype": "int32"}, "the dtype must be float32, float16 or bfloat16"),
        ({"c_in": 1024, "c_out": 1024, "size": 5}, "the filters do not fit in SBUF"),
        ({"images": (128, 12, 12)}, "X must be [batch, in_channels, height, width]"),
    ],
)
def test_wrong_shapes_name_the_rule(change, said):
    c = {
        "c_in": 128,
        "c_out": 128,
        "size": 3,
        "height": 12,
        "pool": 1,
        "dtype": "float32",
        "biases": 128,
        **change,
    }
    X = np.zeros(c.get("images", (1, c["c_in"], c["height"], 12)), c["dtype"])
    W = np.zeros(c.get("filters", (c["c_out"], c["c_in"], c["size"], c["size"])), c["dtype"])
    bias = np.zeros(
        c["c_out"] if "c_out" in change else c["biases"], c.get("bias_dtype", c["dtype"])
    )
    with pytest.raises(AssertionError, match=re.escape(said)):
        run((X, W, bias), c["pool"])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "wrong",
    [
        ("i * size + j]", "j * size + i]"),  # taps exchanged
        ("slot, k, r + i:r + i + n_r", "slot, k, r:r + n_r"),  # the window does not move down
        ("block_rows:block_rows + halo", "0:halo"),  # a stale halo
        ("axis=[3, 4])", "axis=[3, 4])\n        bias = largest[:, 0:1, 0]"),  # another bias
    ],
)
def test_tester_notices_a_wrong_kernel(tmp_path, wrong):
    """A twin of the kernel with one mistake fails; the kernel itself passes the same case."""
    source = (FOLDER / "kernels.py").read_text(encoding="utf-8")
    assert source.count(wrong[0]) == 1
    twin = tmp_path / "kernels.py"
    twin.write_text(source.replace(*wrong), encoding="utf-8")
    case = load_module(FOLDER / "spec.py", "conv2d_spec").conv_case(
        "twin", 1, 128, 128, 3, 82, 34, "float16", pool=2
    )
    for kernels, status in ((None, PASSED), (twin, FAILED)):
        outcome = next(evaluate(LAB, [(case, "trn2")], in_process=True, kernels=kernels))
        assert outcome.status == status, outcome.detail
        load_module(FOLDER / "kernels.py", "kernels")


def test_references_agree():
    inputs = images(2, 128, 256, 3, 9, 10)
    exact = REFERENCE.conv2d_exact(*inputs)
    for model in (
        REFERENCE.conv2d_numpy,
        REFERENCE.conv2d_numpy_matmul,
        REFERENCE.conv2d_numpy_matmul_tiled,
    ):
        np.testing.assert_allclose(model(*inputs), exact, rtol=1e-5)
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: TRAINIUM_LABS_TORCH=1 nox -s tests installs it"
    )
    assert torch.__version__
    for pool in (1, 2):
        x = images(2, 128, 128, 3, 10, 12)
        np.testing.assert_allclose(
            REFERENCE.conv2d_torch(*x, pool_size=pool),
            REFERENCE.conv2d_exact(*x, pool_size=pool),
            rtol=1e-5,
        )


def test_points_are_those_of_the_courses():
    total = {}
    for line in LAB.rubric:
        total[line.course] = total.get(line.course, 0) + line.points
    assert total == {
        "Berkeley CS152 lab 6, open-ended portion (trn1)": 70,
        "Stanford CS149, 2024 (trn1)": 45 + 2.5 + 15 + 5,
        "Stanford CS149, 2025 (trn2)": 65,
    }
    assert len([c for c in LAB.cases if "berkeley" in c.fleets]) == 14
    assert len([c for c in LAB.cases if "basic" in c.fleets]) == 3


def predicted_us(case, target):
    """Return the latency that the model predicts for a case; values do not matter to it."""
    inputs = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
    return nkisim.profile(
        getattr(KERNELS, case.kernel), *inputs, target=target, compute=False, **case.kwargs
    ).latency_us


@pytest.mark.parametrize(
    "case, target",
    [
        pytest.param(c, target, id=f"{c.name}-{target}")
        for c in LAB.cases
        for target in c.threshold_us
        if c.inputs[0].shape[0] <= 16 and c.inputs[0].shape[2] < 256
    ],
)
def test_predicted_to_be_in_time(case, target):
    assert predicted_us(case, target) <= case.threshold_us[target]


def test_predicted_to_be_near_the_floor():
    """The Tensor Engine alone needs 739 us at 2.4 GHz; the launch about 10."""
    for pool in ("", "_pool"):
        assert 739 < predicted_us(LAB.case(f"speed_224x224_float16{pool}"), "trn2") <= 780


@pytest.mark.parametrize("rounded", ["both", "X", "W"])
@pytest.mark.parametrize(
    "name", ["speed_32x16_float32", "speed_32x16_float32_pool", "small_in128_out128"]
)
def test_float32_that_is_computed_in_float16_is_wrong(name, rounded):
    """Also where what products have in common is taken out of them, and added as a bias."""
    case = LAB.case(name)
    X, W, bias = make_inputs(case, LAB.seed)
    exact = REFERENCE.conv2d_exact(X, W, bias, **case.kwargs)
    apart = (bias + 0.5 * W.sum((1, 2, 3), dtype=np.float64)).astype(np.float32)
    less, filters = (X - np.float32(0.5), W)
    if rounded != "W":
        less = less.astype(np.float16).astype(np.float32)
    if rounded != "X":
        filters = filters.astype(np.float16).astype(np.float32)
    got = REFERENCE.conv2d_exact(less, filters, apart, **case.kwargs).astype(np.float32)
    verdict = compare(
        exact, got, dtype=X.dtype, accumulate=case.accumulate, functions=case.functions
    )
    assert not verdict.ok
    right = compare(
        exact,
        exact.astype(np.float32),
        dtype=X.dtype,
        accumulate=case.accumulate,
        functions=case.functions,
    )
    assert right.ok


def test_a_row_that_no_bank_holds_belongs_to_the_section_that_runs_it():
    steps = {name: step for step in LAB.steps for name in step.cases}
    handout = (LAB.folder / "README.md").read_text("utf-8")
    section = handout.partition("odd_width1300")[0].rpartition("\n## ")[2].splitlines()[0]
    assert steps["odd_width1300"].section == section


def test_the_floor_of_the_handout_is_what_the_clocks_say():
    handout = (LAB.folder / "README.md").read_text("utf-8")
    columns = 4 * 9 * 222 * 222
    assert f"{columns:,} columns" in handout
    said = re.findall(r"([\d.]+) GHz \((trn\d)\) that is (\d+) us", handout)
    assert [chip for _, chip, _ in said] == ["trn1", "trn2"]
    for clock, chip, floor in said:
        assert (float(clock), int(floor)) == (
            hw.get(chip).pe_ghz,
            round(columns / hw.get(chip).pe_ghz / 1e3),
        )


SMALL_16 = [
    c.name
    for c in LAB.cases
    if c.inputs[0].dtype != "float32" and c.flops < 1e9  # what a reference computes in a second
]


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL_16)
def test_a_sum_in_16_bits_may_be_stored_before_the_bias_is_added(name):
    """Two roundings are right, whatever the seed; in fewer bits, or without the bias, it is not."""
    case = LAB.case(name)
    dtype = dtype_of(case.inputs[0].dtype)
    options = {k: getattr(case, k) for k in ("accumulate", "roundings", "functions", "added")}
    for seed in range(10):
        X, W, bias = make_inputs(case, seed)
        exact = REFERENCE.conv2d_exact(X, W, bias, **case.kwargs)
        # a pool and the bias change places: it is the same for all that a window has
        sums = REFERENCE.conv2d_exact(X, W, np.zeros_like(bias), **case.kwargs)
        wide = bias.astype(np.float64)[:, None, None]
        for stored, right in (
            (sums.astype(dtype), True),
            (sums.astype(dtype_of("float8_e4m3")), False),
            (sums.astype(dtype) - wide, False),
        ):
            verdict = compare(exact, (stored.astype(np.float64) + wide).astype(dtype), **options)
            assert verdict.ok is right, (seed, verdict.text)


def test_a_floor_in_float32_leaves_room_for_winograd():
    spec = load_module(FOLDER / "spec.py", "conv2d_spec")
    for size, share in ((1, 1), (3, 1 / 4), (5, 9 / 25), (7, 1)):
        assert spec.winograd_share(size) == pytest.approx(share)
        wide, half = (
            spec.conv_case("", 1, 128, 128, size, 16, 16, d) for d in ("float32", "float16")
        )
        assert wide.flops == pytest.approx(share * half.flops)
