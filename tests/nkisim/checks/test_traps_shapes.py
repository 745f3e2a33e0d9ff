"""Traps of shapes, indices and views: where a NumPy re-implementation of NKI goes wrong.

More of them are in `test_traps_values.py` and `test_traps_kernels.py`.
"""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def test_one_dim_in_hbm_lies_on_partitions():
    """NumPy keeps v[a:b] one-dimensional; on chip it is (n, 1), one element a partition."""

    @nki.jit
    def kernel(v, bias):
        out = nl.ndarray(v.shape, v.dtype, buffer=nl.shared_hbm)
        tile, b = nl.load(v[32:96]), nl.load(bias)
        assert tile.shape == (64, 1) and b.shape == (128, 1)
        nl.store(out[0:64], tile)
        nl.store(out[64:128], nl.copy(b[0:64, :]))
        return out

    v, bias = data(128), data(128, seed=1)
    out = nkisim.simulate(kernel, v, bias)
    np.testing.assert_array_equal(out, np.concatenate([v[32:96], bias[:64]]))


@pytest.mark.parametrize("shape", [(64,), (64, 1), (64, 1, 1)])
def test_dma_copy_takes_any_grouping_of_one_column(shape):
    """NumPy would refuse, or broadcast, (n,) into (n, 1); a DMA moves the same n elements."""

    @nki.jit
    def kernel(v):
        out = nl.ndarray((64,), v.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((64, 1), v.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=v)
        nisa.dma_copy(dst=out, src=tile)
        return out

    v = data(*shape)
    np.testing.assert_array_equal(nkisim.simulate(kernel, v), v.reshape(64))


def test_a_column_repeats_along_the_free_dim():
    """(128, F) + (128, 1) repeats the column: NumPy's (128,) would have to match F instead."""

    @nki.jit
    def kernel(x, bias):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + nl.load(bias))
        return out

    x, bias = data(128, 128), data(128, seed=1)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x, bias), x + bias[:, None])


def test_the_first_remaining_dim_is_the_partition_dim(breaks):
    """NumPy has no limit per dim: B[b, s, 0:L] puts L on partitions, so L is at most 128."""

    @nki.jit
    def right(x):
        out = nl.ndarray((1, 256), x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[1, 2:3, 0:256])
        assert tile.shape == (1, 256)
        nl.store(out, tile)
        return out

    @nki.jit
    def wrong(x):
        nl.load(x[1, 2, 0:256])  # BUG
        return x

    x = data(2, 4, 256)
    np.testing.assert_array_equal(nkisim.simulate(right, x), x[1, 2:3])
    error = breaks(wrong, x, id="NKI-P01", name="err_num_partition_exceed_arch_limit")
    assert "128" in error.limit and "256" in error.given


def test_a_tile_keeps_its_rank():
    """NumPy drops the axis of tile[:, k] and of a sum; a tile always has a free dim."""

    @nki.jit
    def kernel(x):
        t = nl.load(x)
        assert t[:, 3].shape == (128, 1)
        assert t[5].shape == (1, 128)
        total = nisa.tensor_reduce(np.add, t, axis=1)
        assert total.shape == (128, 1)
        cube = t.reshape((128, 8, 16))
        assert nisa.tensor_reduce(np.add, cube, axis=2).shape == (128, 8)
        assert nisa.tensor_reduce(np.add, cube, axis=2, keepdims=True).shape == (128, 8, 1)
        assert nisa.tensor_reduce(np.add, cube, axis=[1, 2]).shape == (128, 1)
        out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, t[:, 3])
        return out

    x = data(128, 128)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x[:, 3:4])


def test_broadcast_alignment():
    """NumPy aligns trailing dims; on chip the partition dims align and free dims are inserted."""

    @nki.jit
    def kernel(x, v):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), nl.load(v)))
        return out

    x, v = data(64, 3, 5, 7), data(64, 1, seed=1)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x, v), x * v.reshape(64, 1, 1, 1))


def test_who_repeats_partitions(breaks):
    """NumPy repeats any axis of size 1; over partitions only the nl functions do."""

    @nki.jit
    def right(x, row):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.load(x), nl.load(row)))
        return out

    @nki.jit
    def operator(x, row):
        return nl.load(x) + nl.load(row)  # BUG

    @nki.jit
    def isa(x, row):
        return nisa.tensor_tensor(nl.load(x), nl.load(row), nl.add)  # BUG

    x, row = data(128, 32), data(1, 32, seed=1)
    np.testing.assert_array_equal(nkisim.simulate(right, x, row), x + row)
    for kernel in (operator, isa):
        breaks(kernel, x, row, id="NKI-S04", name="err_num_partition_mismatch")


def test_matmul_contracts_the_partitions():
    """nc_matmul(s, m) is s.T @ m, and a moving tile's free dims stay in the result."""

    @nki.jit
    def kernel(s, m):
        out = nl.ndarray((32, 4, 8), np.float32, buffer=nl.shared_hbm)
        psum = nisa.nc_matmul(nl.load(s), nl.load(m))
        assert psum.shape == (32, 4, 8) and psum.dtype == np.float32
        nl.store(out, nl.copy(psum))
        return out

    s, m = data(64, 32), data(64, 4, 8, seed=1)
    np.testing.assert_allclose(
        nkisim.simulate(kernel, s, m), np.einsum("km,kab->mab", s, m), rtol=1e-4, atol=1e-5
    )


def test_expression_or_tile():
    """c = a + b makes a tile; c[...] = a + b writes the one that c was, for everyone to see."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, *x.shape), x.dtype, buffer=nl.shared_hbm)
        a = nl.load(x)
        c = nl.zeros(x.shape, x.dtype)
        alias = c
        c[...] = a + a
        nl.store(out[0], alias)  # sees 2x
        c = a + c
        nl.store(out[1], c)  # 3x
        nl.store(out[2], alias)  # still 2x
        return out

    x = data(32, 16)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), np.stack([x + x, x + (x + x), x + x]))


def test_a_reshaped_output_is_the_output():
    """out = out.reshape(...) before return is a view of the same HBM tensor, not an empty one."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((64, 2), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        out = out.reshape((128,))
        return out

    x = data(64, 2)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x.reshape(128))


def test_views_share_their_bytes():
    """A write through a slice, reshape, view or expand_dims is seen in the base; astype copies."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, *x.shape), x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        copied = t.astype(nl.float32)
        t.reshape((32, 4, 8))[:, 1, 2:4] = 7
        t[0:32, 16:24].expand_dims(1)[...] = 8
        t.view(nl.uint32)[:, 31] = 0
        nl.store(out[0], t)
        nl.store(out[1], copied)
        return out

    x = data(32, 32)
    want = x.copy()
    want.reshape(32, 4, 8)[:, 1, 2:4] = 7
    want[:, 16:24] = 8
    want.view(np.uint32)[:, 31] = 0
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), np.stack([want, x]))


def test_views_of_hbm():
    """A store through a reshaped HBM tensor lands in the tensor itself."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((256,), x.dtype, buffer=nl.shared_hbm)
        nl.store(out.reshape((128, 2)), nl.load(x))
        return out

    x = data(128, 2)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x.reshape(256))


def test_a_reshape_on_chip_keeps_the_partitions(breaks):
    """NumPy reshapes anything; between partitions only a DMA or a transpose moves data."""

    @nki.jit
    def right(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x).reshape((32, 2, 4, 2)).reshape((32, 16)))
        return out

    @nki.jit
    def wrong(x):
        nl.load(x).reshape((64, 8))  # BUG
        return x

    x = data(32, 16)
    np.testing.assert_array_equal(nkisim.simulate(right, x), x)
    breaks(wrong, x, id="NKI-S07")


def test_block_dims_are_indexed_away(breaks):
    """Dims before par_dim are blocks; without par_dim dim 0 is the partition dim, of 8 here."""

    @nki.jit
    def right(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray((4, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
        plain = nl.ndarray((8, 128, 16), x.dtype, buffer=nl.sbuf)
        assert plain[0].shape[0] == 1
        for i in nl.affine_range(4):
            blocks[i] = nl.load(x[i])
        for i in nl.affine_range(4):
            nl.store(out[i], blocks[i, :, :])
        return out

    @nki.jit
    def wrong(x):
        blocks = nl.ndarray((4, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
        return nl.exp(blocks)  # BUG

    x = data(4, 128, 8)
    np.testing.assert_array_equal(nkisim.simulate(right, x), x)
    breaks(wrong, x, id="NKI-P03", name="err_failed_to_infer_tile_from_local_tensor")


def test_transpose_flattens_the_free_dims():
    """(P, a, b) transposes to (a*b, P), in PSUM; copying it back is an instruction of its own."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((24, 64), x.dtype, buffer=nl.shared_hbm)
        t = nisa.nc_transpose(nl.load(x))
        assert t.shape == (24, 64)
        nl.store(out, nisa.tensor_copy(t))
        return out

    x = data(64, 4, 6)
    run = nkisim.run(kernel, x)
    np.testing.assert_array_equal(run.outputs, x.reshape(64, 24).T)
    assert run.instructions == {"load": 1, "nc_transpose": 1, "tensor_copy": 1, "store": 1}


def test_load_transpose2d_limits_the_columns(breaks):
    """Source rows become the free dim and may exceed 128; columns become partitions."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((x.shape[1], x.shape[0]), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))  # BUG
        return out

    x = data(300, 64)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x.T)
    breaks(kernel, data(64, 300), id="NKI-P01")


def test_partial_tiles_are_full_size():
    """NumPy's slice is shorter at the end; a masked load keeps the size, its tail is undefined."""

    @nki.jit
    def kernel(x):
        n = x.shape[0]
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        p, f = nl.arange(128)[:, None], nl.arange(x.shape[1])[None, :]
        for i in nl.affine_range((n + 127) // 128):
            tile = nl.load(x[i * 128 + p, f], mask=i * 128 + p < n)
            assert tile.shape == (128, 4)
            nl.store(out[i * 128 + p, f], tile, mask=i * 128 + p < n)
        return out

    x = data(200, 4)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x)


def test_arange_is_no_array(breaks):
    """Indices describe an access; iota makes data of one, of a loop variable a (1, 1) tile."""

    @nki.jit
    def right(x):
        out = nl.ndarray((1, 8), np.int32, buffer=nl.shared_hbm)
        one = nl.ndarray((1, 1), np.int32, buffer=nl.shared_hbm)
        nl.store(out, nisa.iota(3 * nl.arange(8)[None, :] + 1, dtype=nl.int32))
        for i in nl.sequential_range(5):
            t = nisa.iota(i, dtype=nl.int32)
            assert t.shape == (1, 1)
            nl.store(one, t)
        return out, one

    @nki.jit
    def wrong(x):
        return nl.exp(nl.arange(8)[None, :])  # BUG

    out, one = nkisim.simulate(right, data(4, 4))
    assert out.tolist() == [list(range(1, 25, 3))] and one.item() == 4
    breaks(wrong, data(4, 4), id="NKI-M02")


def test_mgrid_of_one_dim_is_no_subscript(breaks):
    """nl.mgrid[0:128] has no place among the axes of a tile; two dims have."""

    @nki.jit
    def right(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        g = nl.mgrid[0:128, 0:4]
        nl.store(out[g.p, g.x], nl.load(x[g.p, g.x]))
        return out

    @nki.jit
    def wrong(x):
        return nl.load(x[nl.mgrid[0:128], 0])  # BUG

    x = data(128, 4)
    np.testing.assert_array_equal(nkisim.simulate(right, x), x)
    breaks(wrong, x, id="NKI-I09", name="err_1d_arange_not_supported")


def test_strided_partitions(breaks):
    """A step over rows is free for a DMA from HBM, and impossible for the partitions of a tile."""

    @nki.jit
    def right(x):
        out = nl.ndarray((64, 4), x.dtype, buffer=nl.shared_hbm)
        p, f = nl.arange(64)[:, None], nl.arange(4)[None, :]
        nl.store(out, nl.load(x[2 * p, f]))
        return out

    @nki.jit
    def wrong(x):
        t = nl.load(x)
        return nl.exp(t[2 * nl.arange(64)[:, None], nl.arange(4)[None, :]])  # BUG

    @nki.jit
    def sliced(x):
        t = nl.load(x)
        return nl.exp(t[0:128:2])  # BUG

    x = data(128, 4)
    np.testing.assert_array_equal(nkisim.simulate(right, x), x[::2])
    breaks(wrong, x, id="NKI-P05")
    breaks(sliced, x, id="NKI-P05")
