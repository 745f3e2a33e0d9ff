"""Tiles at one address: what a mask leaves out was not overwritten, it was never there."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc import nki

import nkisim

X = np.random.default_rng(0).random((128, 256), dtype=np.float32)


@nki.jit
def doubled(x, rows, masked, twice=False):
    """Double blocks of 128 columns up to `rows`; the tile of each lies where the last one's lay."""
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(128)[None, :]
    for i in nl.sequential_range(2):
        tile = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        other = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        sums = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=1024))
        if twice:
            tile[i_p, i_f] = nl.load(x[i_p, i * 128 + i_f])
        other[i_p, i_f] = nl.load(x[i_p, i_f])
        if not twice:
            tile[i_p, i_f] = nl.load(x[i_p, i * 128 + i_f], mask=i * 128 < rows)
        sums[i_p, i_f] = nisa.tensor_scalar(tile[i_p, i_f], np.multiply, 2.0)
        nl.store(out[i_p, i_f], sums[i_p, i_f], mask=i * 128 < (rows if masked else 256))
    return out


def aliased(run):
    return [f for f in run.findings if f.id == "NKI-A05"]


def test_what_a_mask_left_out_and_a_mask_discards_is_no_overwritten_tile():
    run = nkisim.run(doubled, X, 128, True)
    np.testing.assert_array_equal(run.outputs, 2 * X[:, :128])
    assert not aliased(run)


def test_the_twin_that_was_written_and_overwritten_is_found():
    assert aliased(nkisim.run(doubled, X, 256, True, True))
