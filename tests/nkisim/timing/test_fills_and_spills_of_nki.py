"""Fills right before their use, and spills of whole tiles, in the package nki."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import pytest

import nkisim
from model_kernels import ones
from nkisim.chip import hw
from nkisim.dialect import BETA1, NKI
from nkisim.timing import compiler

WITH = compiler.options(None, dialect=NKI)


def predict(kernel, *args, on=WITH):
    return nkisim.profile(
        kernel, *args, compute=False, target="trn2", descriptors="dge", compiler=on
    )


@nki.jit
def sums(weights, x):
    """Fill tiles, then add products to one half of each, and to the other half; three times."""
    tiles, half = 16, 512
    out = nl.ndarray((128 * tiles, 2 * half), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 128), dtype=x.dtype)
    nisa.dma_copy(dst=left, src=weights)
    right = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(dst=right, src=x)
    for _ in range(3):
        acc = []
        for _ in range(tiles):
            tile = nl.ndarray((128, 2 * half), dtype=nl.float32)
            nisa.memset(dst=tile, value=0.0)
            acc.append(tile)
        for part in (0, half, 0, half):
            for tile in acc:
                some = tile[:, part : part + half]
                product = nl.ndarray((128, half), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_matmul(dst=product, stationary=left, moving=right)
                nisa.tensor_tensor(dst=some, data1=some, data2=product, op=nl.add)
        for i, tile in enumerate(acc):
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128], src=tile)
    return out


def test_fills_are_not_done_while_an_engine_waits_long_before_their_use():
    """The Vector Engine needs longer for a fill and a sum than the Tensor Engine for a product, and
    less for the sum alone. Fills of the next round are not done while it waits in this one."""
    args = ones(128, 128), ones(128, 512)
    late, early = (predict(sums, *args, on=on) for on in (WITH, WITH - {"late-fills"}))
    assert late.body_us > 1.05 * early.body_us
    moved = ("dma_transfers", "dma_bytes")
    assert [late.counters[c] for c in moved] == [early.counters[c] for c in moved]
    assert "late-fills" not in compiler.options(None, True, dialect=BETA1)


def blocks(tiles, slices, whole):
    """Return a kernel that adds to slices of tiles, of one tile after the other or by turns."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128 * tiles, 512 * slices), dtype=nl.float32, buffer=nl.shared_hbm)
        piece = nl.ndarray((128, 512), dtype=nl.float32)
        nisa.dma_copy(dst=piece, src=x)
        acc = [nl.ndarray((128, 512 * slices), dtype=nl.float32) for _ in range(tiles)]
        for tile in acc:
            nisa.memset(dst=tile, value=0.0)
        order = [(t, s) for t in range(tiles) for s in range(slices)]
        for t, s in order if whole else sorted(order, key=lambda pair: pair[::-1]):
            part = acc[t][:, s * 512 : (s + 1) * 512]
            nisa.tensor_tensor(dst=part, data1=part, data2=piece, op=nl.add)
        for i, tile in enumerate(acc):
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128], src=tile)
        return out

    return kernel


@pytest.mark.parametrize("whole", [True, False])
def test_a_tile_spills_whole_unless_its_slices_save_a_fifth(whole):
    """Used one after the other, tiles go and come back in one DMA each; used by turns, slices do,
    which is a fraction of the bytes."""
    slices = 4
    prof = predict(blocks(36, slices, whole), ones(128, 512))
    spills = {
        spec.operands[0].nbytes
        for spec, *_ in prof.schedule.trace
        if spec.row.name.startswith("spill")
    }
    assert prof.spill_bytes > 0
    assert spills == {128 * 512 * 4 * (slices if whole else 1)}
    assert 0 < hw.TRN2.timing.compiler_whole_share < 1
