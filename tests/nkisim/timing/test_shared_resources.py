"""What engines and cores share: HBM's bandwidth, banks of PSUM, the bus of Vector's fast modes."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as new
import nki.isa as isa
import nki.language as nkl
import numpy as np
import pytest

import model_kernels as kernels
import nkisim
from model_kernels import ones
from nkisim.chip import hw
from nkisim.simulation.launch import launch
from nkisim.timing.schedule import ENGINES, schedule


@pytest.mark.parametrize("core", hw.CORES, ids=lambda c: c.name)
def test_one_core_cannot_use_up_the_bandwidth_of_hbm(core):
    """By the documented figures, not even with DMAs from HBM to HBM: the cap is for more cores."""
    assert 2 * core.dma_engines * core.timing.dma_engine_gbps <= core.hbm_gbps


@pytest.mark.parametrize("parts", [128, 16])
@pytest.mark.parametrize("core", [hw.TRN1, hw.TRN2], ids=lambda c: c.name)
def test_dmas_are_as_slow_as_hbm(core, parts):
    """A small part of HBM's bandwidth, as if other cores took the rest."""
    slow = dataclasses.replace(core, hbm_gbps=core.hbm_gbps / 64)
    n = 128 * 4000
    trace = launch(
        kernels.add(1000, parts), (ones(n), ones(n)), {}, target=core.name, compute=False
    ).trace
    free, capped = (schedule(trace, c) for c in (core, slow))
    least_us = 3 * 4 * n / slow.hbm_gbps / 1e3
    assert free.end.max() < least_us or parts == 16
    assert least_us <= capped.end.max() <= 1.3 * max(least_us, free.end.max())


def both_engines(same):
    """Return a kernel that reads one bank of PSUM, or two, from two engines."""

    @nki.jit
    def drain(a, b):
        out = nl.ndarray((2, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        s, m = nl.load(a), nl.load(b)
        first = nisa.nc_matmul(s, m)
        second = first if same else nisa.nc_matmul(s, m)
        nl.store(out[0], nisa.tensor_copy(first, engine=nisa.vector_engine))
        nl.store(out[1], nisa.tensor_copy(second, engine=nisa.scalar_engine))
        return out

    return drain


@pytest.mark.parametrize("same", [True, False])
def test_vector_and_scalar_engine_exclude_each_other_in_a_bank_of_trn2(same):
    half = np.float16
    prof = nkisim.profile(
        both_engines(same),
        ones(128, 128, dtype=half),
        ones(128, 512, dtype=half),
        target="trn2",
        compute=False,
    )
    tl, plan = prof.timeline, prof.schedule
    dve, act = (int(np.flatnonzero(tl.engine == ENGINES.index(e))[0]) for e in ("vector", "scalar"))
    first, then = sorted((dve, act), key=lambda i: tl.start_us[i])
    busy = plan.works[tl.spec[first]].interval_us
    apart = tl.start_us[then] >= tl.start_us[first] + busy - 1e-9
    assert apart == same


# -- the bus of Vector's fast modes ----------------------------------------------------------------


def products_beta1(vector, gpsimd):
    """Return a kernel with so many products of two tiles on each of two engines."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        a, b = nl.copy(t), nl.copy(t)
        for _ in range(vector):
            a[...] = nisa.tensor_tensor(a, t, nl.multiply, engine=nisa.vector_engine)
        for _ in range(gpsimd):
            b[...] = nisa.tensor_tensor(b, t, nl.multiply, engine=nisa.gpsimd_engine)
        nl.store(out[0], a)
        nl.store(out[1], b)
        return out

    return kernel


def products_nki(vector, gpsimd):
    """Return a kernel with so many products of two tiles on each of two engines."""

    @new.jit
    def kernel(x):
        out = nkl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nkl.shared_hbm)
        t, a, b = nkl.load(x), nkl.load(x), nkl.load(x)
        for tile, engine, times in (
            (a, isa.engine.vector, vector),
            (b, isa.engine.gpsimd, gpsimd),
        ):
            for _ in range(times):
                isa.tensor_tensor(dst=tile, data1=tile, data2=t, op=nkl.multiply, engine=engine)
        isa.dma_copy(dst=out[0], src=a)
        isa.dma_copy(dst=out[1], src=b)
        return out

    return kernel


def beside(prof):
    """Return how long the Vector Engine and GpSimd work on products at the same time."""
    tl, works = prof.timeline, prof.schedule.works
    taken = {e: [] for e in ("vector", "gpsimd")}
    for k, e, start in zip(tl.spec, tl.engine, tl.start_us):
        if prof.trace.op_specs[k].row.name == "tensor_tensor":
            taken[ENGINES[e]].append((start, start + works[k].interval_us))
    return sum(
        max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
        for a in taken["vector"]
        for b in taken["gpsimd"]
    )


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("products", [products_beta1, products_nki], ids=["beta1", "nki"])
def test_a_fast_mode_and_gpsimd_take_turns(products, target):
    """Of 40 products GpSimd does 20 for nothing in float32; in bfloat16, where the Vector Engine
    is twice as fast by the bus that both use, it gains nothing."""

    def run(dtype, *counts):
        x = ones(128, 2048, dtype=dtype)
        return nkisim.profile(products(*counts), x, target=target, compute=False)

    plain, alone = run(np.float32, 20, 20), run(np.float32, 20, 0)
    assert beside(plain) > 10 and plain.latency_us < 1.1 * alone.latency_us
    fast, alone = run(ml_dtypes.bfloat16, 20, 20), run(ml_dtypes.bfloat16, 40, 0)
    assert beside(fast) < 1e-6 and fast.latency_us >= alone.latency_us


@pytest.mark.parametrize(
    "how, fast", [("copied", True), ("from_psum", True), ("into_float32", False)]
)
def test_which_instructions_of_the_vector_engine_use_that_bus(how, fast):
    """Those that the fast modes make cheaper: no row and no dtype is asked for."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x)
        if how == "from_psum":
            p = nl.ndarray((nl.par_dim(128), 512), dtype=x.dtype, buffer=nl.psum)
            p[...] = nisa.tensor_copy(t, engine=nisa.scalar_engine)
            t = p
        dtype = nl.float32 if how == "into_float32" else x.dtype
        nl.store(out, nisa.tensor_copy(t, dtype=dtype, engine=nisa.vector_engine))
        return out

    for target, there in (("trn1", False), ("trn2", True), ("trn3", True)):
        x = ones(128, 512, dtype=ml_dtypes.bfloat16)
        prof = nkisim.profile(kernel, x, target=target, compute=False)
        works = [w for w, e in zip(prof.schedule.works, prof.schedule.engines) if e == "vector"]
        assert [w.fast for w in works] == [fast and there]
