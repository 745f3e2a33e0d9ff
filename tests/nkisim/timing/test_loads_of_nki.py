"""What AWS's compiler of the package nki does with loads."""

from __future__ import annotations

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from model_kernels import ones
from nkisim.chip import hw
from nkisim.dialect import BETA1, NKI
from nkisim.timing import compiler

WITH = compiler.options(None, dialect=NKI)
STEP, KEEP, SOFTWARE = "step-loads", "keep-loads", "software-elements"


def predict(kernel, *args, on=WITH):
    return nkisim.profile(
        kernel, *args, compute=False, target="trn2", descriptors="dge", compiler=on
    )


def steps(blocks, products):
    """Return a kernel that loads a tile for each block and uses it in so many products."""

    @nki.jit
    def kernel(weights, x):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        moving = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.dma_copy(dst=moving, src=x)
        acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        for i in range(blocks):
            tile = nl.ndarray((128, 128), dtype=x.dtype)
            nisa.dma_copy(dst=tile, src=weights[:, i * 128 : (i + 1) * 128])
            for _ in range(products):
                nisa.nc_matmul(dst=acc, stationary=tile, moving=moving)
        end = nl.ndarray((128, 512), dtype=nl.float32)
        nisa.tensor_copy(dst=end, src=acc)
        nisa.dma_copy(dst=out, src=end)
        return out

    return kernel


@pytest.mark.parametrize("products, gains", [(4, True), (1, False)])
def test_no_load_is_put_off_into_the_step_before_its_own(products, gains):
    """Four products take longer than a load is taken to need: it is triggered where they begin,
    and in time. Of steps of one product it was triggered several steps ahead already."""
    args = ones(128, 128 * 40), ones(128, 512)
    kernel = steps(40, products)
    now, late = (predict(kernel, *args, on=on) for on in (WITH, WITH - {STEP}))
    if gains:
        assert now.body_us < 0.9 * late.body_us
    else:
        assert now.body_us == pytest.approx(late.body_us, rel=0.01)


def again(columns, times, part=0):
    """The same tiles of 128 columns, loaded so many times; into a part of a tensor or all of it."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
        acc = nl.zeros((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        for _ in range(times):
            for i in range(columns // 128):
                tile = nl.ndarray((128, 128 + part), dtype=x.dtype)
                mine = tile[:, 0:128]
                nisa.dma_copy(dst=mine, src=x[:, i * 128 : (i + 1) * 128])
                nisa.tensor_tensor(dst=acc, data1=acc, data2=mine, op=nl.add)
        nisa.dma_copy(dst=out, src=acc)
        return out

    return kernel


@pytest.mark.parametrize(
    "columns, part, loads",
    [
        (1024, 0, 8),  # 4 KiB a partition: loaded once
        (1024, 1, 24),  # parts of tensors are loaded again
        (128 * 128, 0, 3 * 128),  # 64 KiB are more than a quarter of SBUF: all of them again
    ],
)
def test_whole_tensors_that_were_loaded_before_are_kept_while_they_are_few(columns, part, loads):
    args = (ones(128, columns),)
    assert predict(again(columns, 3, part), *args).counters["dma_transfers"] == loads + 1
    written = predict(again(columns, 3, part), *args, on=WITH - {KEEP})
    assert written.counters["dma_transfers"] == 3 * columns // 128 + 1
    assert hw.TRN2.timing.compiler_kept_share * hw.TRN2.sbuf_usable_bytes < 64 * 1024


def column(dtype):
    """Loads of 128 elements, one a partition, which something else has to wait for."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 16), dtype=dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((128, 16), dtype=dtype)
        for i in range(16):
            nisa.dma_copy(
                dst=tiles[:, i : i + 1], src=x.ap(pattern=[[1, 128], [1, 1]], offset=i * 128)
            )
        nisa.dma_copy(dst=out, src=tiles)
        return out

    return kernel


@pytest.mark.parametrize("dtype, software", [("bfloat16", True), ("float32", False)])
def test_gpsimd_makes_descriptors_of_pieces_below_four_bytes(dtype, software):
    x = np.ones(16 * 128, ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
    now, hardware = (
        predict(column(getattr(nl, dtype)), x, on=on) for on in (WITH, WITH - {SOFTWARE})
    )
    t = hw.TRN2.timing
    least = 16 * (t.swdge_issue_us + 128 * t.swdge_row_us) if software else 0.0
    assert now.schedule.busy["gpsimd"] >= least
    assert (now.body_us > 1.3 * hardware.body_us) == software
    static = nkisim.profile(
        column(getattr(nl, dtype)), x, compute=False, target="trn2", descriptors="static"
    )
    assert static.schedule.busy["gpsimd"] < t.swdge_issue_us


def test_beta_1_has_none_of_them():
    assert {STEP, KEEP, SOFTWARE} <= WITH
    assert not {STEP, KEEP, SOFTWARE} & compiler.options(None, True, dialect=BETA1)
