"""What a run without values finds of memory that nothing has written: a matter of places."""

from __future__ import annotations

import neuronxcc.nki.language as nl1
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki as nki1
from nki import jit

import nkisim
from nkisim.errors import NkiError

X = np.zeros((256, 512), np.float32)


@nki1.jit
def copies(x, rows=256, columns=512):
    """Copy some rows and columns of x."""
    out = nl1.ndarray(x.shape, dtype=x.dtype, buffer=nl1.shared_hbm)
    for i in nl1.affine_range(rows // 128):
        tile = nl1.load(x[i * 128 : (i + 1) * 128, 0:columns])
        nl1.store(out[i * 128 : (i + 1) * 128, 0:columns], value=tile)
    return out


@jit
def copies_nki(x, rows=256, columns=512):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, 0:columns])
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, 0:columns], src=tile)
    return out


@jit
def reads(x, loads=True, when=0):
    """Double x; without `loads` nothing is in the tile, and with `when` it comes too late."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(2):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        double = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        for step in range(2):
            if step == when and loads:
                nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128])
            if step == 0:
                nisa.tensor_tensor(dst=double, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128], src=double)
    return out


@jit
def sums(x):
    """Sum products in PSUM, which the first one begins; transposes and a memset write too."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for i in range(2):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128])
        nisa.nc_matmul(dst=bank, stationary=tile[:, 0:128], moving=tile)
    done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=done, src=bank)
    nisa.dma_copy(dst=out, src=done)
    return out


def found(kernel, *args, **kwargs):
    """Return the ids of what a run finds, with and without values."""
    out = []
    for compute in (True, False):
        try:
            prof = nkisim.profile(kernel, *args, compute=compute, **kwargs)
            out.append([f.id for f in prof.findings if f.severity == "error"])
        except NkiError as error:
            out.append([error.id])
    return out


@pytest.mark.parametrize("kernel", [copies, copies_nki], ids=["neuronxcc.nki", "nki"])
def test_a_part_of_an_output_that_is_not_stored_is_found_without_values(kernel):
    assert found(kernel, X) == [[], []]
    assert found(kernel, X, rows=128) == [["NKI-O04"], ["NKI-O04"]]
    assert found(kernel, X, columns=500) == [["NKI-O04"], ["NKI-O04"]]
    prof = nkisim.profile(kernel, X, rows=128, compute=False)
    with_values = nkisim.profile(kernel, X, rows=128)
    text = prof.findings[0].text
    assert "[128:256, 0:512]" in text and "NaN here" not in text
    assert prof.findings[0].where == with_values.findings[0].where


def test_a_tile_that_is_read_before_it_is_written_is_refused_without_values():
    assert found(reads, X) == [[], []]
    assert found(reads, X, loads=False) == [["NKI-U01"], ["NKI-U01"]]
    assert found(reads, X, when=1) == [["NKI-U01"], ["NKI-U01"]]
    assert found(sums, X) == [[], []]
