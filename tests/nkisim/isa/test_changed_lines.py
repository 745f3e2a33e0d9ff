"""What nothing else tells apart: each test here fails if one word of the simulator is another."""

from __future__ import annotations

import neuronxcc.nki as old
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from looping import P, data, same
from nkisim.chip import hw
from nkisim.chip.memory import Write


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_bn_aggr_costs_its_triples(target):
    """A fixed number of cycles for each of N/3 triples: ten times as many cost ten times that."""

    def cycles(triples):
        @old.jit
        def kernel(x):
            out = old_nl.ndarray((128, 2), dtype=x.dtype, buffer=old_nl.shared_hbm)
            old_nl.store(out, old_isa.bn_aggr(old_nl.load(x)))
            return out

        run = nkisim.run(kernel, np.ones((128, 3 * triples), np.float32), target=target)
        (kind,) = (k for k in run.trace.op_specs if k.row.name == "bn_aggr")
        return kind.row.cost(kind, hw.get(target), "vector")

    assert cycles(10) == pytest.approx(10 * cycles(1))
    assert cycles(4) == pytest.approx(4 * hw.get(target).timing.dve_triple_cycles)


@pytest.mark.parametrize(
    "dtype, refused", [("float32", True), ("bfloat16", False), ("float16", False)]
)
def test_a_transpose_by_dma_that_beta_1_compilers_refuse(dtype, refused):
    @old.jit
    def kernel(x):
        out = old_nl.ndarray((64, 128), dtype=x.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, old_isa.dma_transpose(x))
        return out

    x = np.ones((128, 64), np.dtype(getattr(np, dtype, None) or old_nl.bfloat16))
    if refused:
        with pytest.raises(nkisim.NkiError, match="NKI-R13"):
            nkisim.run(kernel, x)
    else:
        assert not nkisim.run(kernel, x).findings


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_that_note_is_not_for_the_newer_dialect(dtype):
    @nki.jit
    def kernel(x):
        t = nl.ndarray((64, 128), dtype=x.dtype)
        nisa.dma_transpose(t, x)
        out = nl.ndarray((64, 128), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t)
        return out

    run = nkisim.run(kernel, np.arange(128 * 64).reshape(128, 64).astype(dtype))
    assert "NKI-R13" not in [f.id for f in run.findings]


def goes_on(acc, left, right, t):
    """Add products to a sum, those of a loop and one more, which nothing reads in between."""
    acc = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
    for k in range(4):
        nisa.nc_matmul(dst=acc, stationary=left[:, t + k, :], moving=right[:, k, t : t + 8])
    nisa.nc_matmul(dst=acc, stationary=left[:, t, :], moving=right[:, 5, t : t + 8])
    return acc


def is_read(acc, left, right, t):
    """As that, but the sum is read before the last product."""
    acc = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
    for k in range(4):
        nisa.nc_matmul(dst=acc, stationary=left[:, t + k, :], moving=right[:, k, t : t + 8])
    aside = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=aside, src=acc)
    nisa.nc_matmul(dst=acc, stationary=left[:, t, :], moving=right[:, 5, t : t + 8])
    return acc


@pytest.mark.parametrize("body, told", [(goes_on, False), (is_read, True)], ids=["unread", "read"])
def test_a_sum_that_a_loop_has_made_has_not_been_read(body, told):
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((6, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        left = nl.ndarray((P, 16, P), dtype=w.dtype, buffer=nl.sbuf)
        right = nl.ndarray((P, 16, 24), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=w)
        nisa.dma_copy(dst=right, src=x)
        acc = None
        for t in range(6):
            acc = body(acc, left, right, t)
            tile = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=acc)
            nisa.dma_copy(dst=out[t], src=tile)
        return out

    found = same(kernel, data(P, 16, 24), data(P, 16, P))
    assert any("NKI-R06" in f for f in found["findings"]) == told


@pytest.mark.parametrize(
    "box, meets",
    [
        ((0, 64, 0, 32), True),
        ((64, 128, 0, 32), False),
        ((0, 64, 32, 64), False),
        ((64, 128, 32, 64), False),
        ((63, 64, 31, 40), True),
        ((32, 96, 16, 48), True),
        ((64, 128, 0, 8), False),
    ],
)
def test_writes_overlap_in_partitions_and_in_bytes(box, meets):
    assert Write(0, 64, 0, 32, None, 0).overlaps(*box) == meets


@pytest.mark.parametrize(
    "second, lost",
    [((64, 0), False), ((0, 1024), False), ((0, 16), True)],
    ids=["other partitions", "other bytes", "overlapping"],
)
def test_two_tiles_that_a_kernel_places(second, lost):
    """Right: beside each other in partitions, or in bytes. Wrong: with bytes in common."""

    @old.jit
    def kernel(x):
        out = old_nl.ndarray((2, 64, 8), x.dtype, buffer=old_nl.shared_hbm)
        tiles = [
            old_nl.ndarray(
                (old_nl.par_dim(64), 8), x.dtype, buffer=ncc.sbuf.alloc(lambda idx, p, f, at=at: at)
            )
            for at in ((0, 0), second)
        ]
        for i in range(2):
            tiles[i][...] = old_nl.load(x[i])
        for i in range(2):
            old_nl.store(out[i], tiles[i])
        return out

    x = data(2, 64, 8)
    run = nkisim.run(kernel, x)
    assert ("NKI-A05" in [f.id for f in run.findings]) == lost
    assert (run.outputs == x).all() == (not lost)
