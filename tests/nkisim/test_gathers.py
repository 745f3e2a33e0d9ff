"""DMAs whose rows are chosen at run time: GpSimd makes their descriptors, one after the other."""
from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.language as beta1_language
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

P, F, TILES = 128, 64, 8
X = np.zeros((1024, F), np.float32)
ROWS = np.zeros((P, 1), np.int32)


def gathers(*, rows=True, plain=0, iotas=0):
    """Return a kernel that gathers tiles (else: rows from one number on), loads and counts."""
    @nki.jit
    def kernel(x, at):
        out = nl.ndarray((TILES + plain, P, F), dtype=x.dtype, buffer=nl.shared_hbm)
        i = nl.ndarray((P, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=i, src=at)
        for n in range(TILES):
            t = nl.ndarray((P, F), dtype=x.dtype, buffer=nl.sbuf)
            chosen = {"vector_offset": i} if rows else {"scalar_offset": i[0:1, 0:1]}
            nisa.dma_copy(dst=t, src=x.ap([[F, P], [1, F]], **chosen))
            nisa.dma_copy(dst=out[n], src=t)
        for n in range(plain):
            t = nl.ndarray((P, F), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[0:P])
            nisa.dma_copy(dst=out[TILES + n], src=t)
        for _ in range(iotas):
            t = nl.ndarray((P, 2048), dtype=nl.int32, buffer=nl.sbuf)
            nisa.iota(t, [[1, 2048]], offset=0)
        return out
    return kernel


@beta1.jit
def gathers_beta1(x, at):
    out = beta1_language.ndarray((TILES, P, F), dtype=x.dtype, buffer=beta1_language.shared_hbm)
    i = beta1_language.load(at)
    columns = beta1_language.arange(F)[None, :]
    for n in beta1_language.affine_range(TILES):
        beta1_language.store(out[n], beta1_language.load(x[i[beta1_language.arange(P)[:, None], 0],
                                                           columns]))
    return out


def profile(kernel, target="trn2"):
    return nkisim.profile(kernel, X, ROWS, compute=False, target=target)


def in_software(prof):
    """Return how long GpSimd makes descriptors, in microseconds."""
    return TILES * P * prof.hw.timing.swdge_row_us


@pytest.mark.parametrize("target", nkisim.TARGETS)
@pytest.mark.parametrize("kernel", [gathers(), gathers_beta1], ids=["nki", "beta1"])
def test_gpsimd_is_busy_with_each_row(kernel, target):
    prof = profile(kernel, target)
    assert prof.bound == "gpsimd" and prof.body_us > in_software(prof)
    assert prof.engine_busy["gpsimd"] * prof.latency_us >= in_software(prof)


def test_one_number_for_all_rows_is_not_made_in_software():
    """The twin: the rows follow each other, so hardware makes the descriptors."""
    prof = profile(gathers(rows=False))
    assert prof.body_us < in_software(prof) and prof.engine_busy["gpsimd"] < 0.1


def test_other_loads_do_not_wait_for_a_gather_before_them():
    prof = profile(gathers(plain=1))
    kinds, start = prof.schedule.trace.kinds, prof.timeline.start_us
    begun = {chosen: [us for k, us in zip(prof.timeline.kind, start)
                      if kinds[k].read_bytes and kinds[k].indirect is chosen]
             for chosen in (True, False)}
    assert len(begun[True]) == TILES and max(begun[False]) < max(begun[True])


def test_gpsimd_does_one_thing_at_a_time():
    """What it computes and what it makes for DMAs add up."""
    counts, both = profile(gathers(rows=False, iotas=TILES)), profile(gathers(iotas=TILES))
    assert both.body_us > in_software(both) + counts.engine_busy["gpsimd"] * counts.latency_us - 1
