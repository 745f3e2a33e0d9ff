"""Work that went faster than documented: sums in DMA engines, float32 in short products."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as new
import nki.isa as isa
import nki.language as nkl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim
from nkisim.chip import hw

SQUARE = np.random.default_rng(0).random((128, 128), dtype=np.float32)


def latency(kernel, *args, **how):
    """Return the predicted time in microseconds."""
    return nkisim.profile(kernel, *args, **{"target": "trn2", **how}).latency_us


@pytest.mark.parametrize("target, slower", [("trn2", 2.0), ("trn3", 1.0)])
def test_a_dma_that_adds_takes_the_time_of_adding(target, slower):
    """Before NeuronCore-v4 at half the rate, whether it adds sources or to what is there."""

    @new.jit
    def moved(x, y, adds):
        out = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.shared_hbm)
        if adds:
            isa.dma_compute(dst=out, srcs=[x, y], reduce_op=nkl.add)
        else:
            isa.dma_copy(dst=out, src=x)
        return out

    x = np.ones((2048, 2048), np.float32)
    core = hw.get(target)
    copied = x.nbytes / (core.dma_engines * core.timing.dma_engine_gbps * 1e3)
    more = latency(moved, x, x, True, target=target) - latency(moved, x, x, False, target=target)
    assert more > 0.95 * (2 * slower - 1) * copied


def test_short_products_of_float32_take_four_passes():
    """Documented: four times what 16 bits take, which is 64 cycles at least."""

    def kernel(dtype):
        @nki.jit
        def multiplied(x):
            out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
            a, sums = (
                nl.load(x, dtype=dtype),
                nl.zeros((nl.par_dim(128), 256), nl.float32, buffer=nl.psum),
            )
            for i in nl.static_range(256):
                sums[:, i : i + 1] = nisa.nc_matmul(a, a[:, i % 128 : i % 128 + 1])
            nl.store(out, nl.copy(sums))
            return out

        return multiplied

    def busy(dtype):
        run = nkisim.profile(kernel(dtype), SQUARE, target="trn2")
        return run.engine_busy["tensor"] * run.latency_us

    assert busy(nl.float32) > 3 * busy(nl.bfloat16)
