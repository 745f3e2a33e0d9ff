"""Transposes of the Tensor Engine of trn3 run beside what comes right before them."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import pytest

import nkisim
from model_kernels import ones
from nkisim.chip import hw


@nki.jit
def transposes(x):
    """Transposes of one tile, one after the other."""
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 128), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    turned = nl.ndarray((128, 4, 128), dtype=x.dtype, buffer=nl.psum)
    for i in range(512):
        nisa.nc_transpose(dst=turned[:, i % 4, :], data=tile, engine=nisa.engine.tensor)
    end = nl.ndarray((128, 128), dtype=x.dtype)
    nisa.tensor_copy(dst=end, src=turned[:, 3, :])
    nisa.dma_copy(dst=out, src=end)
    return out


def products(between):
    """Return a kernel of products of 512 columns, with so many transposes behind each."""

    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        left = nl.ndarray((128, 128), dtype=x.dtype)
        nisa.dma_copy(dst=left, src=x)
        right = nl.ndarray((128, 512), dtype=x.dtype)
        nisa.dma_copy(dst=right, src=y)
        acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        turned = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.psum)
        for _ in range(64):
            nisa.nc_matmul(dst=acc, stationary=left, moving=right)
            for _ in range(between):
                nisa.nc_transpose(dst=turned, data=left, engine=nisa.engine.tensor)
        end = nl.ndarray((128, 512), dtype=nl.float32)
        nisa.tensor_copy(dst=end, src=acc)
        nisa.dma_copy(dst=out, src=end)
        return out

    return kernel


def busy(kernel, target, *args):
    """Return the microseconds that the Tensor Engine is busy, in order."""
    return nkisim.profile(
        kernel, *args, target=target, compute=False, compiler=("rename",)
    ).schedule.busy["tensor"]


def test_a_long_chain_of_transposes_is_nearly_twice_as_fast_on_trn3():
    (x,) = (ones(128, 128),)
    before, now = (busy(transposes, target, x) for target in ("trn2", "trn3"))
    assert 0.5 < now / before < 0.6


@pytest.mark.parametrize("target, hidden", [("trn2", False), ("trn3", True)])
def test_transposes_behind_a_larger_product_take_hardly_any_time(target, hidden):
    args = ones(128, 128), ones(128, 512)
    alone, more = (busy(products(n), target, *args) for n in (0, 2))
    assert (more < 1.1 * alone) == hidden
    core = hw.get(target)
    assert core.timing.pe_background_transposes == hidden
