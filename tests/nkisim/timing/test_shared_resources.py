"""What engines and cores share: HBM's bandwidth and banks of PSUM."""

from __future__ import annotations

import dataclasses

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
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
