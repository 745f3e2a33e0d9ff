"""Traps of shapes, indices and views: where a NumPy re-implementation of NKI goes wrong.

What is refused is in the catalogue (data/examples); here is what is right and unlike NumPy. More
of it is in `test_traps_values.py` and `test_traps_kernels.py`.
"""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def stored(t):
    """Return an output that holds a tile."""
    out = nl.ndarray(t.shape, t.dtype, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


def same(kernel, want, *arrays):
    np.testing.assert_array_equal(nkisim.simulate(kernel, *arrays), want)


def test_one_dim_in_hbm_lies_on_partitions():
    """NumPy keeps v[a:b] one-dimensional; on chip it is (n, 1), one element a partition."""

    def kernel(v, bias):
        out = nl.ndarray(v.shape, v.dtype, buffer=nl.shared_hbm)
        tile, b = nl.load(v[32:96]), nl.load(bias)
        assert tile.shape == (64, 1) and b.shape == (128, 1)
        nl.store(out[0:64], tile)
        nl.store(out[64:128], nl.copy(b[0:64, :]))
        return out

    v, bias = data(128), data(128, seed=1)
    same(kernel, np.concatenate([v[32:96], bias[:64]]), v, bias)


@pytest.mark.parametrize("shape", [(64,), (64, 1), (64, 1, 1)])
def test_dma_copy_takes_any_grouping_of_one_column(shape):
    """NumPy would refuse, or broadcast, (n,) into (n, 1); a DMA moves the same n elements."""

    def kernel(v):
        out = nl.ndarray((64,), v.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((64, 1), v.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=v)
        nisa.dma_copy(dst=out, src=tile)
        return out

    v = data(*shape)
    same(kernel, v.reshape(64), v)


def test_what_repeats_and_how_dims_align():
    """NumPy aligns trailing dims; here partitions align, and nl repeats rows and columns."""
    x, bias = data(128, 128), data(128, seed=1)
    same(lambda x, b: stored(nl.load(x) + nl.load(b)), x + bias[:, None], x, bias)
    x, v = data(64, 3, 5, 7), data(64, 1, seed=1)
    want = x * v.reshape(64, 1, 1, 1)
    same(lambda x, v: stored(nl.multiply(nl.load(x), nl.load(v))), want, x, v)
    x, row = data(128, 32), data(1, 32, seed=1)
    same(lambda x, row: stored(nl.add(nl.load(x), nl.load(row))), x + row, x, row)


def test_a_row_that_is_repeated_by_a_number_is_none():
    """x[1, 2:3] is a row of one partition; x[1, 2] would put its elements on partitions."""
    x = data(2, 4, 256)
    same(lambda x: stored(nl.load(x[1, 2:3, 0:256])), x[1, 2:3], x)


def test_a_tile_keeps_its_rank():
    """NumPy drops the axis of tile[:, k] and of a sum; a tile always has a free dim."""

    def kernel(x):
        t = nl.load(x)
        assert (t[:, 3].shape, t[5].shape) == ((128, 1), (1, 128))
        assert nisa.tensor_reduce(np.add, t, axis=1).shape == (128, 1)
        cube = t.reshape((128, 8, 16))
        assert nisa.tensor_reduce(np.add, cube, axis=2).shape == (128, 8)
        assert nisa.tensor_reduce(np.add, cube, axis=2, keepdims=True).shape == (128, 8, 1)
        assert nisa.tensor_reduce(np.add, cube, axis=[1, 2]).shape == (128, 1)
        return stored(t[:, 3])

    x = data(128, 128)
    same(kernel, x[:, 3:4], x)


def test_matmul_contracts_the_partitions():
    """nc_matmul(s, m) is s.T @ m, and a moving tile's free dims stay in the result."""

    def kernel(s, m):
        psum = nisa.nc_matmul(nl.load(s), nl.load(m))
        assert psum.shape == (32, 4, 8) and psum.dtype == np.float32
        return stored(nl.copy(psum))

    s, m = data(64, 32), data(64, 4, 8, seed=1)
    got = nkisim.simulate(kernel, s, m)
    np.testing.assert_allclose(got, np.einsum("km,kab->mab", s, m), rtol=1e-4, atol=1e-5)


def test_expression_or_tile():
    """c = a + b makes a tile; c[...] = a + b writes the one that c was, for everyone to see."""

    def kernel(x):
        a = nl.load(x)
        c = nl.zeros(x.shape, x.dtype)
        alias = c
        c[...] = a + a
        first = stored(alias)  # sees 2x
        c = a + c
        return first, stored(c), stored(alias)  # 3x, still 2x

    x = data(32, 16)
    same(kernel, np.stack([x + x, x + (x + x), x + x]), x)


def test_a_reshaped_tensor_of_hbm_is_the_tensor():
    """A store through it lands in the tensor itself; returned, it is no empty one."""

    def returned(x):
        return stored(nl.load(x)).reshape((128,))

    def written(x):
        out = nl.ndarray((128,), x.dtype, buffer=nl.shared_hbm)
        nl.store(out.reshape((64, 2)), nl.load(x))
        return out

    x = data(64, 2)
    for kernel in returned, written:
        same(kernel, x.reshape(128), x)


def test_views_share_their_bytes():
    """A write through a slice, reshape, view or expand_dims is seen in the base; astype copies."""

    def kernel(x):
        t = nl.load(x)
        copied = t.astype(nl.float32)
        t.reshape((32, 4, 8))[:, 1, 2:4] = 7
        t[0:32, 16:24].expand_dims(1)[...] = 8
        t.view(nl.uint32)[:, 31] = 0
        return stored(t), stored(copied)

    x = data(32, 32)
    want = x.copy()
    want.reshape(32, 4, 8)[:, 1, 2:4] = 7
    want[:, 16:24] = 8
    want.view(np.uint32)[:, 31] = 0
    same(kernel, np.stack([want, x]), x)


def test_a_reshape_on_chip_keeps_the_partitions():
    x = data(32, 16)
    same(lambda x: stored(nl.load(x).reshape((32, 2, 4, 2)).reshape((32, 16))), x, x)


def test_block_dims_are_indexed_away():
    """Dims before par_dim are blocks; without par_dim dim 0 is the partition dim, of 8 here."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray((4, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
        plain = nl.ndarray((8, 128, 16), x.dtype, buffer=nl.sbuf)
        assert plain[0].shape[0] == 1
        for i in nl.affine_range(4):
            blocks[i] = nl.load(x[i])
        for i in nl.affine_range(4):
            nl.store(out[i], blocks[i, :, :])
        return out

    x = data(4, 128, 8)
    same(kernel, x, x)


def test_transpose_flattens_the_free_dims():
    """(P, a, b) transposes to (a*b, P), in PSUM; copying it back is an instruction of its own."""
    x = data(64, 4, 6)
    run = nkisim.run(lambda x: stored(nisa.tensor_copy(nisa.nc_transpose(nl.load(x)))), x)
    np.testing.assert_array_equal(run.outputs, x.reshape(64, 24).T)
    assert run.instructions == {"load": 1, "nc_transpose": 1, "tensor_copy": 1, "store": 1}


def test_load_transpose2d_takes_more_than_128_rows():
    """Source rows become the free dim; columns become partitions."""
    x = data(300, 64)
    same(lambda x: stored(nl.load_transpose2d(x)), x.T, x)


def test_partial_tiles_are_full_size():
    """NumPy's slice is shorter at the end; a masked load keeps the size, its tail is undefined."""

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
    same(kernel, x, x)


def test_iota_makes_data_of_indices():
    """Indices describe an access; of a loop variable iota makes a (1, 1) tile."""

    def kernel():
        one = nl.ndarray((1, 1), np.int32, buffer=nl.shared_hbm)
        for i in nl.sequential_range(5):
            t = nisa.iota(i, dtype=nl.int32)
            assert t.shape == (1, 1)
            nl.store(one, t)
        return stored(nisa.iota(3 * nl.arange(8)[None, :] + 1, dtype=nl.int32)), one

    out, one = nkisim.simulate(kernel)
    assert out.tolist() == [list(range(1, 25, 3))] and one.item() == 4


def test_grids_and_steps_over_rows_of_hbm():
    """Two dims of a grid are places in a tensor; a step over rows is free for a DMA from HBM."""

    def kernel(x, step):
        g = nl.mgrid[0 : 128 // step, 0:4]
        return stored(nl.load(x[step * g.p, g.x]))

    x = data(128, 4)
    same(kernel, x, x, 1)
    same(kernel, x[::2], x, 2)
