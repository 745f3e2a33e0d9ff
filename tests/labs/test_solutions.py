"""The ladders of solutions: every step is right, and each does less than the one before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nkisim
from labkit import compare, make_inputs
from labkit.load import load_module

LABS = Path(__file__).parents[2] / "labs"
#: the end of a file's name, by dialect
ENDS = {"beta1": "", "nki": "_nki"}


def steps(lab: str, dialect: str) -> list[Path]:
    """Return the ladder of a lab in a dialect, kernels last."""
    folder, end = LABS / lab, ENDS[dialect]
    found = [
        p
        for p in sorted((folder / "solutions").glob("step*.py"))
        if p.stem.endswith("_nki") == bool(end)
    ]
    return [*found, folder / f"kernels{end}.py"]


CONV = {
    dialect: [load_module(path, f"ladder_{path.stem}") for path in steps("conv2d", dialect)]
    for dialect in ENDS
}
CONV_REFERENCE = load_module(LABS / "conv2d" / "reference.py", "ladder_reference")
FFNN = {
    path.stem: load_module(path, f"ladder_{path.stem}")
    for path in (LABS / "ffnn" / "solutions").glob("step*.py")
}
FFNN_KERNELS = {
    dialect: load_module(LABS / "ffnn" / f"kernels{end}.py", f"ladder_ffnn{end}")
    for dialect, end in ENDS.items()
}
FFNN_REFERENCE = load_module(LABS / "ffnn" / "reference.py", "ladder_ffnn_reference")
FFNN_SPEC = load_module(LABS / "ffnn" / "spec.py", "ladder_ffnn_spec")


def test_the_ladders_have_the_same_steps():
    for lab in ("conv2d", "ffnn"):
        old, new = ([p.stem for p in steps(lab, dialect)] for dialect in ENDS)
        assert [f"{name}_nki" for name in old] == new and len(old) > 2


@pytest.fixture(scope="module", params=ENDS)
def runs(request):
    """Run all steps on one case with max-pool, for the counts."""
    inputs = CONV_REFERENCE.make_images(1, 256, 256, 3, 34, 36, "float32")
    return [
        nkisim.run(m.fused_conv2d_maxpool, *inputs, pool_size=2, target="trn2")
        for m in CONV[request.param]
    ]


@pytest.mark.sample(12)
@pytest.mark.parametrize("module", [*CONV["beta1"], *CONV["nki"]], ids=lambda m: m.__name__)
@pytest.mark.parametrize(
    "shape, dtype", [((2, 128, 256, 3, 14, 20), "float32"), ((1, 256, 128, 1, 6, 8), "float16")]
)
def test_every_step_of_conv2d_is_right(module, shape, dtype):
    inputs = CONV_REFERENCE.make_images(*shape, dtype)
    for pool in (1, 2):
        got = nkisim.run(module.fused_conv2d_maxpool, *inputs, pool_size=pool)
        verdict = compare(
            CONV_REFERENCE.conv2d_exact(*inputs, pool_size=pool),
            got.outputs,
            dtype=inputs[0].dtype,
            accumulate=shape[1] * shape[3] ** 2 + 1,
        )
        assert verdict.ok, verdict.render()
        assert not got.findings


def test_what_each_step_saves(runs):
    naive, once, rows, fused, wide, final = runs
    products = 2 * 2 * 9
    assert naive.instructions["nc_transpose"] == 32 * products  # again for every output row
    assert {r.instructions["nc_transpose"] for r in runs[1:]} == {products}
    assert once.instructions["nc_matmul"] == 32 * products
    assert rows.instructions["nc_matmul"] == 3 * products  # 15 rows of 34 in a bank
    assert fused.hbm_write_bytes == rows.hbm_write_bytes // 5  # not the convolution as well
    assert wide.dma_transfers < fused.dma_transfers
    assert wide.hbm_read_bytes < fused.hbm_read_bytes
    assert final.hbm_read_bytes < wide.hbm_read_bytes
    read = [r.hbm_read_bytes for r in runs]
    assert read == sorted(read, reverse=True)


@pytest.mark.parametrize("end", ENDS.values())
def test_transpose_by_dma(end):
    a = np.random.default_rng(0).random((256, 384), dtype=np.float32)
    np.testing.assert_array_equal(
        nkisim.simulate(FFNN[f"step1_transpose_by_dma{end}"].nki_transpose, a), a.T
    )


@pytest.mark.parametrize("dialect", ENDS)
def test_fused_layers(dialect):
    case = FFNN_SPEC.network_case("n", "nki_forward", FFNN_SPEC.SMALL_LAB)
    inputs = make_inputs(case, 1)
    fused = nkisim.run(FFNN[f"step2_fused_layers{ENDS[dialect]}"].nki_forward, *inputs)
    verdict = compare(
        FFNN_REFERENCE.forward(*inputs),
        fused.outputs,
        accumulate=case.accumulate,
        roundings=case.roundings,
    )
    assert verdict.ok, verdict.render()
    plain = nkisim.run(FFNN_KERNELS[dialect].nki_forward, *inputs, matmul_kernel="fully_optimized")
    assert fused.hbm_write_bytes < plain.hbm_write_bytes / 2
    assert fused.instructions["nc_transpose"] < plain.instructions["nc_transpose"]
