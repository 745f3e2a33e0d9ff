"""NKISIM_SHUFFLE: DMAs take effect as late as what orders them allows.

Each kernel has a twin: with the bug, that a DMA is where nothing orders it, and without.
"""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as new
import nki.isa as isa
import nki.language as nkl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim
from nkisim.machine import transfers

X = np.random.default_rng(0).random((8, 128, 64), dtype=np.float32)


@pytest.fixture
def runs(monkeypatch):
    """Return what runs a kernel in program order and shuffled, and returns both outputs."""

    def run(kernel, *args, target="trn2"):
        outputs = []
        for seed in ("", "1"):
            monkeypatch.setenv("NKISIM_SHUFFLE", seed)
            outputs.append(nkisim.run(kernel, X, *args, target=target))
        return outputs[0], outputs[1].outputs

    return run


def one_tile(x, inside):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(8):
        if inside:
            tile = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
        tile[...] = nl.load(x[i])
        nl.store(out[i], tile)
    return out


def ordered(x, inside):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(8):
        tile[...] = nl.load(x[i])
        nl.store(out[i], tile)
    return out


def test_a_store_takes_what_another_iteration_has_put_into_its_tile(runs):
    run, late = runs(nki.jit(one_tile), False)
    np.testing.assert_array_equal(run.outputs, X)
    assert [f.id for f in run.findings if f.severity == "warning"] == ["NKI-L05"]
    last = {tuple(np.flatnonzero((X == row).all(axis=(1, 2)))) for row in late}
    assert len(last) == 1, "all stores took what was there at the end"


@pytest.mark.parametrize(
    "kernel, inside",
    [
        (nki.jit(one_tile), True),
        (nki.jit(ordered), False),
        (ncc.skip_middle_end_transformations(nki.jit(one_tile)), False),
    ],
)
def test_where_the_tile_is_its_own_or_the_order_is_kept_it_takes_its_own(runs, kernel, inside):
    run, late = runs(kernel, inside)
    np.testing.assert_array_equal(run.outputs, X)
    np.testing.assert_array_equal(late, X)


def through_hbm(x, ahead):
    """Store each block to HBM and read it back: in the same iteration, or in the next one."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray((9, 128, 64), dtype=x.dtype, buffer=nl.private_hbm)
    nl.store(between[0], nl.load(x[0]))
    for i in nl.affine_range(7):
        nl.store(between[i + 1], nl.load(x[i + 1]))
        nl.store(out[i], nl.load(between[i if ahead else i + 1]))
    nl.store(out[7], nl.load(between[7]))
    return out


def test_hbm_that_another_iteration_stores_may_not_be_there_yet(runs):
    run, late = runs(nki.jit(through_hbm), True)
    assert "NKI-L02" in {f.id for f in run.findings}
    np.testing.assert_array_equal(run.outputs[1:7], X[1:7])
    assert np.isnan(late[1:7]).all(), "nothing is there: no store of another iteration had ended"
    np.testing.assert_array_equal(late[7], X[7])  # after the loop all of them have


def test_hbm_that_is_read_back_by_the_iteration_that_stored_it_is_there(runs):
    run, late = runs(nki.jit(through_hbm), False)
    assert not [f for f in run.findings if f.severity == "warning"]
    np.testing.assert_array_equal(late, run.outputs)


def straight(x):
    """No loop: read an output back, and use a tile again after it was stored."""
    out = nl.ndarray((3, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
    tile[...] = nl.load(x[0])
    nl.store(out[0], tile)
    tile[...] = nl.add(nl.load(out[0]), 1.0)
    nisa.dma_copy(dst=out[1], src=tile)
    tile[...] = nl.multiply(tile, 2.0)
    nisa.dma_copy(dst=out[2], src=out[1])
    return out


def test_statements_that_follow_each_other_are_ordered_by_what_they_touch(runs):
    run, late = runs(nki.jit(straight))
    np.testing.assert_array_equal(run.outputs, np.stack([X[0], X[0] + 1, X[0] + 1]))
    np.testing.assert_array_equal(late, run.outputs)


def rotating(x, tiles):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(
        (8, nl.par_dim(128), 64),
        x.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(tiles,)),
    )
    u = nl.ndarray(
        (8, nl.par_dim(128), 64),
        x.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=4096, num_free_tiles=(tiles,)),
    )
    for i in nl.affine_range(8):
        t[i] = nl.load(x[i])
        u[i] = nl.multiply(t[i], 2.0)
        nl.store(out[i], u[i])
    return out


@pytest.mark.parametrize("tiles", [1, 2])
def test_tiles_that_the_kernel_places_wait_for_their_bytes(runs, tiles):
    """AWS's guide of direct allocation: iterations that share a physical tile run one by one."""
    run, late = runs(nki.jit(rotating), tiles)
    assert not run.findings
    np.testing.assert_array_equal(late, X * 2)


def two_places(x):
    """The newer dialect: two tensors at one address, one after the other."""
    out = nkl.ndarray((8, 128, 64), dtype=x.dtype, buffer=nkl.shared_hbm)
    for i in range(8):
        a = nkl.ndarray((128, 64), dtype=x.dtype, buffer=nkl.sbuf, address=(0, 0))
        isa.dma_copy(dst=a, src=x[i])
        isa.dma_copy(dst=out[i], src=a)
    return out


def test_tensors_at_one_address_wait_for_their_bytes(runs):
    run, late = runs(new.jit(two_places))
    np.testing.assert_array_equal(run.outputs, X)
    np.testing.assert_array_equal(late, X)


def by_two(x, wait):
    """Core 0 stores what core 1 reads."""
    out = nkl.ndarray((128, 64), dtype=x.dtype, buffer=nkl.shared_hbm)
    between = nkl.ndarray((128, 64), dtype=x.dtype, buffer=nkl.shared_hbm)
    tile = nkl.ndarray((128, 64), dtype=x.dtype, buffer=nkl.sbuf)
    if nkl.program_id(0) == 0:
        isa.dma_copy(dst=tile, src=x[0])
        isa.dma_copy(dst=between, src=tile)
    if wait:
        isa.core_barrier(between, (0, 1))
    if nkl.program_id(0) == 1:
        isa.dma_copy(dst=tile, src=between)
        isa.dma_copy(dst=out, src=tile)
    return out


def test_a_core_that_waits_for_the_other_one_gets_what_it_stored(runs):
    run, late = runs(new.jit(by_two)[2], True)
    np.testing.assert_array_equal(run.outputs, X[0])
    np.testing.assert_array_equal(late, X[0])


def test_a_core_that_does_not_wait_gets_nothing(runs):
    run, late = runs(new.jit(by_two)[2], False)
    assert [f.id for f in run.findings if f.severity == "warning"] == ["NKI-L02"]
    np.testing.assert_array_equal(run.outputs, X[0])
    assert np.isnan(late).all()


def matmuls(x, few):
    """Operands of products that wait in a queue, narrow dtypes, masks, sums by DMA."""
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.private_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:64]
    nl.store(sums, nl.zeros((128, 64), nl.float32))
    acc = nl.zeros((64, 64), nl.float32, buffer=nl.psum)
    ring = nl.ndarray((128, 2, 64), nl.bfloat16, buffer=nl.sbuf)
    for i in nl.static_range(8):
        ring[:, i % 2] = nl.load(x[i], dtype=nl.bfloat16)
        acc += nisa.nc_matmul(ring[:, i % 2], ring[:, i % 2])
        part = nl.zeros((128, 64), nl.float32)
        part[i_p, i_f] = nl.load(x[i, i_p, i_f], mask=i_p < few)
        nisa.dma_copy(dst=sums, src=part, dst_rmw_op=np.add)
    nl.store(out[0:64], nl.copy(acc))
    nl.store(out[64:128], nl.load(sums[0:64]))
    return out


def test_products_in_a_queue_masks_and_sums_by_dma_are_as_ever(runs, monkeypatch):
    for most in (256, 1):
        monkeypatch.setattr(transfers, "MOST", most)
        run, late = runs(nki.jit(matmuls), 40)
        np.testing.assert_array_equal(late, run.outputs)


def test_what_a_kernel_prints_is_there(runs, capsys):
    def kernel(x):
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[0])
        nl.device_print("tile", tile)
        nl.store(out, tile)
        return out

    runs(nki.jit(kernel))
    printed = capsys.readouterr().out
    assert "nan" not in printed and printed.count(f"{X[0, 0, 0]:.8f}"[:8]) == 2


def test_an_error_of_a_dma_that_comes_late_names_its_own_line(monkeypatch):
    def kernel(x):
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        rows = nisa.iota(nl.arange(128)[:, None] + 1, dtype=nl.int32)
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nl.load(x[0][rows, nl.arange(64)[None, :]])
        nl.store(out, nl.multiply(tile, 2.0))
        return out

    places = []
    for seed in ("", "1"):
        monkeypatch.setenv("NKISIM_SHUFFLE", seed)
        with pytest.raises(IndexError) as caught:
            nkisim.run(nki.jit(kernel), X)
        places.append(caught.value.nki_error.where.text)
    assert places[0] == places[1] and "nl.load" in places[0]
