"""How much DMAs move whose rows are chosen at run time: as much as the same rows one by one."""
from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.language as beta1_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

ROWS, COLUMNS, INDICES = 64, 256, 64 * 4
MOVED = ROWS * COLUMNS * 4
X = np.zeros((4096, COLUMNS), np.float32)
AT = np.arange(ROWS, dtype=np.int32)[:, None]
V = np.ones((ROWS, COLUMNS), np.float32)


def rows_of(h, at):
    return h.ap(pattern=[[COLUMNS, ROWS], [1, COLUMNS]], vector_offset=at, indirect_dim=0)


def loaded(h):
    t = nl.ndarray(h.shape, dtype=h.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=h)
    return t


@nki.jit
def gathered(x, at):
    t = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=rows_of(x, loaded(at)))
    out = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def gathered_in_hbm(x, at):
    out = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=rows_of(x, loaded(at)))
    return out


@nki.jit
def scattered(x, at, v):
    nisa.dma_copy(dst=rows_of(x, loaded(at)), src=loaded(v))
    return x


@beta1.jit
def gathered_beta1(x, at):
    out = beta1_nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    rows = beta1_nl.load(at)
    beta1_nl.store(out, beta1_nl.load(x[rows, beta1_nl.arange(COLUMNS)[None, :]]))
    return out


@beta1.jit
def scattered_beta1(x, at, v):
    out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    rows = beta1_nl.load(at)
    beta1_nl.store(out[rows, beta1_nl.arange(COLUMNS)[None, :]], beta1_nl.load(v))
    return out


@pytest.mark.parametrize("kernel", [gathered, gathered_in_hbm, gathered_beta1])
def test_a_gather_reads_the_rows_that_it_takes(kernel):
    prof = nkisim.profile(kernel, X, AT, target="trn2", compute=False)
    assert (prof.hbm_read_bytes, prof.hbm_write_bytes) == (MOVED + INDICES, MOVED)


@pytest.mark.parametrize("kernel", [scattered, scattered_beta1])
def test_a_scatter_writes_the_rows_that_it_has(kernel):
    prof = nkisim.profile(kernel, X, AT, V, target="trn2", compute=False)
    assert (prof.hbm_read_bytes, prof.hbm_write_bytes) == (MOVED + INDICES, MOVED)


def test_a_scatter_takes_the_engines_of_its_partitions():
    """One partition is served by one DMA engine, however large the tensor is."""
    @nki.jit
    def one_row(x, at, v):
        t = loaded(v)
        offset = loaded(at)
        nisa.dma_copy(dst=x.ap(pattern=[[COLUMNS, 1], [1, COLUMNS]], scalar_offset=offset,
                               indirect_dim=0), src=t)
        return x
    prof = nkisim.profile(one_row, X, AT[:1], V[:1], target="trn2", compute=False)
    engines = [t.engines for k, t in zip(prof.trace.kinds, prof.schedule.transfers)
               if k.scatters]
    assert engines == [1]
