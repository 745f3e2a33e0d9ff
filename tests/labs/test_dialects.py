"""The kernels of each lab in both dialects: same results, same work, nearly the same time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nkisim
from labkit import MustFailNumerically, MustRaise, make_inputs
from labkit.load import load_lab, load_module
from nkisim.lint import level, program
from nkisim.lint.constructs import VERSIONS

LABS = Path(__file__).parents[2] / "labs"
NEWER = sorted(p.parent.name for p in LABS.glob("*/kernels_nki.py"))
NAMES = [name for name in NEWER if (LABS / name / "kernels.py").is_file()]

#: kernels that do not do the same in both, and why
DIFFERENT = {
    "nki_bias_add_act": "the bias comes to all partitions by a DMA that reads a row again and "
    "again; beta 1 broadcasts it through the Tensor Engine",
}
CASES = [
    *(
        ("vecadd", name)
        for name in (
            "naive_128",
            "tiled_25600_rows128",
            "stream_25600_free200",
            "alloc_25600_free50",
            "transpose_256x384",
        )
    ),
    *(
        ("ffnn", name)
        for name in (
            "transpose_384x1280",
            "bias_add_relu_256x1024",
            "bias_add_softmax_200x77",
            "matmul_tiled_512x640x1536",
            "matmul_hoist_load_512x640x1536",
            "matmul_block_free_dimension_512x640x1536",
            "matmul_fully_optimized_512x640x1536",
            "predict_small_fully_optimized",
            "forward_small",
        )
    ),
    *(
        ("conv2d", name)
        for name in (
            "small_in128_out256",
            "speed_32x16_float16_pool",
            "odd_batch3_384_1x1",
            "odd_7x7_height37",
            "odd_width500",
        )
    ),
]


@pytest.fixture(scope="module")
def labs():
    return {
        name: (
            load_lab(LABS / name),
            *(
                load_module(LABS / name / f"{file}.py", f"two_dialects_{name}_{file}")
                for file in ("kernels", "kernels_nki")
            ),
        )
        for name in NAMES
    }


def test_a_lab_of_two_dialects_has_the_same_kernels_in_both(labs):
    assert NAMES == sorted(p.parent.name for p in LABS.glob("*/kernels.py"))
    for lab, old, new in labs.values():
        for case in lab.cases:
            assert callable(getattr(old, case.kernel)) and callable(getattr(new, case.kernel))
            assert all(hasattr(new, constant) for constant in case.constants)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("name, case", CASES)
def test_results_bytes_and_time_agree(labs, monkeypatch, name, case, target):
    monkeypatch.setenv("NKI_LANGUAGE", "teach")  # 16 bits on trn1: NKI-R38
    lab, *modules = labs[name]
    case = lab.case(case)
    assert not isinstance(case.expect, (MustRaise, MustFailNumerically))
    inputs = make_inputs(case, lab.seed)
    profiles = []
    for module in modules:
        for constant, value in case.constants.items():
            monkeypatch.setattr(module, constant, value)
        # the compiler's middle end works on one dialect alone: what is compared is what they say
        profiles.append(
            nkisim.profile(
                getattr(module, case.kernel),
                *inputs,
                target=target,
                compiler=("reorder", "engines", "rename"),
                **case.kwargs,
                **case.kernel_kwargs,
            )
        )
    old, new = profiles
    said = {f.id for f in new.findings if f.severity != "note"}
    assert not said - ({"NKI-R38"} if target == "trn1" else set())
    assert old.outputs.shape == new.outputs.shape and old.outputs.dtype == new.outputs.dtype
    # both are judged against the reference elsewhere; sums of products may round apart
    width = np.finfo(np.float32).eps if old.outputs.dtype == np.float32 else 2.0**-7
    np.testing.assert_allclose(
        np.asarray(new.outputs, np.float64),
        np.asarray(old.outputs, np.float64),
        rtol=8 * width,
        atol=8 * width * float(abs(np.asarray(old.outputs)).max()),
    )
    if case.kernel in DIFFERENT:
        assert abs(new.latency_us / old.latency_us - 1) < 0.1, DIFFERENT[case.kernel]
        return
    assert abs(new.latency_us / old.latency_us - 1) < 0.03
    if name != "ffnn" or "matmul" in case.name or "transpose" in case.name:
        assert new.hbm_read_bytes == old.hbm_read_bytes
        assert new.dma_transfer_count == old.dma_transfer_count


@pytest.mark.parametrize("name", NEWER)
@pytest.mark.parametrize("version", VERSIONS)
def test_no_compiler_refuses_the_new_kernels(name, version):
    file = LABS / name / "kernels_nki.py"
    assert level.scan(program.of_text(file.read_text("utf-8"), str(file)), version) == []
