"""Small kernels with the structures that the latency model is about."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def add(free, parts=128):
    """Return a vector addition in tiles of (parts, free), as (kernel)."""

    @nki.jit
    def vector_add(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        x, y, z = (t.reshape((parts, t.shape[0] // parts)) for t in (a, b, out))
        for i in nl.affine_range(x.shape[1] // free):
            at = slice(i * free, (i + 1) * free)
            nl.store(z[:, at], nl.add(nl.load(x[:, at]), nl.load(y[:, at])))
        return out

    return vector_add


def add_in_place_of(buffers, free=1000):
    """Return a vector addition that allocates by itself, with so many buffers."""

    @nki.jit
    def vector_add_direct(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        n = a.shape[0] // (128 * free)
        x, y, z = (t.reshape((n, 128, free)) for t in (a, b, out))
        size = buffers * free * 4
        tiles = [
            nl.ndarray(
                (n, nl.par_dim(128), free),
                dtype=a.dtype,
                buffer=ncc.sbuf.mod_alloc(base_addr=k * size, num_free_tiles=(buffers,)),
            )
            for k in range(3)
        ]
        for i in nl.affine_range(n):
            tiles[0][i] = nl.load(x[i])
            tiles[1][i] = nl.load(y[i])
            tiles[2][i] = nl.add(tiles[0][i], tiles[1][i])
            nl.store(z[i], tiles[2][i])
        return out

    return vector_add_direct


@nki.jit
def products(a, b):
    """16 accumulations of 8 matmuls each, from operands that are loaded once."""
    out = nl.ndarray((16, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    s, m = nl.load(a), nl.load(b)
    for i in nl.affine_range(16):
        acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(8):
            acc += nisa.nc_matmul(s, m)
        nl.store(out[i], nisa.tensor_copy(acc, dtype=a.dtype))
    return out


@nki.jit
def transpose(a):
    """A matrix transposed in tiles, on the Tensor Engine."""
    out = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a.shape[0] // 128):
        for j in nl.affine_range(a.shape[1] // 128):
            r, c = slice(i * 128, (i + 1) * 128), slice(j * 128, (j + 1) * 128)
            nl.store(out[c, r], nl.copy(nisa.nc_transpose(nl.load(a[r, c]))))
    return out


@nki.jit
def rounds(a):
    """Slices, strides, reuse of one tile, reads across HBM: all kinds of dependencies."""
    mid = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.hbm)
    out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    for _ in nl.sequential_range(3):
        t[...] = nl.load(a)
        even, odd = t[:, 0:64:2], t[:, 1:64:2]
        t[:, 0:64:2] = nl.add(even, odd)
        t[:, 1:64:2] = nl.multiply(odd, 2.0)
        t[:, 16:32] = nl.exp(t[:, 0:16])
        nl.store(mid, t)
        u = nl.load(mid)
        total = nl.sum(u, axis=1)
        nl.store(out, nl.add(u, total))
    return out


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


@nki.jit
def crowd(a, b):
    """More products than PSUM has banks: eight of them share all banks, which get free at once."""
    out = nl.ndarray((4, 16, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    s, m = nl.load(a), nl.load(b)
    for i in nl.affine_range(4):
        many = nl.ndarray((128, 8, 512), dtype=nl.float32, buffer=nl.psum)
        for n in range(8):
            many[:, n] = nisa.nc_matmul(s, m)
        copied = nisa.tensor_copy(many, dtype=a.dtype, engine=nisa.scalar_engine)
        for n in range(8):
            nl.store(out[i, n], copied[:, n])
            one = nisa.tensor_copy(nisa.nc_matmul(s, m), dtype=a.dtype, engine=nisa.vector_engine)
            nl.store(out[i, 8 + n], one)
    return out


@nki.jit
def hoard(a):
    """Tiles that are all made first and all used afterwards, some changed in between."""
    n = a.shape[0]
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    inputs = nl.ndarray((n, nl.par_dim(128), a.shape[2]), dtype=a.dtype, buffer=nl.sbuf)
    made = nl.ndarray((n, nl.par_dim(128), a.shape[2]), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(n):
        inputs[i] = nl.load(a[i])
        made[i] = nl.exp(inputs[i])
    for i in nl.affine_range(n):
        made[i, :, 0:32] = nl.add(made[i, :, 0:32], 1.0)
    for i in nl.affine_range(n):
        nl.store(out[i], nl.add(made[i], inputs[n - 1 - i]))
    return out


@nki.jit
def hoard_psum(a, b):
    """More sums alive at once than PSUM has banks, in the order that the program says."""
    n = 12
    out = nl.ndarray((n, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    s, m = nl.load(a), nl.load(b)
    sums = nl.ndarray((n, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    total = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(n):
        sums[i] = nisa.nc_matmul(s, m)
    for i in nl.sequential_range(n):
        total[...] = nl.add(total, nl.max(sums[i], axis=1))
    for i in nl.affine_range(n):
        nl.store(out[i], nl.multiply(sums[i], total))
    return out
