"""Kernels with the structure of published ones, which `calibrate` runs without their sources.

Written from counts of instructions and transfers, not from the sources. The constants below are
what records set.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

ROW_CHUNK = 128  # vector_add_tiled: elements of a tile, one in each partition
FREE_DIM = 1000  # vector_add_stream: elements of a tile in each partition
ROWS = 2  # conv2d: output rows of one product
STRIPS = True  # conv2d: the input rows of all taps are loaded together, not for each row
COPY_ROWS = False  # conv2d: the rows of each tap are copied together first


@nki.jit
def vector_add_tiled(a, b):
    """Add vectors (n,): two loads and a store for each ROW_CHUNK elements."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a.shape[0] // ROW_CHUNK):
        at = nl.ds(i * ROW_CHUNK, ROW_CHUNK)
        nl.store(out[at], value=nl.add(nl.load(a[at]), nl.load(b[at])))
    return out


@nki.jit
def vector_add_stream(a, b):
    """Add vectors (n,): two loads and a store for each 128 x FREE_DIM elements."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, y, z = (t.reshape((-1, 128, FREE_DIM)) for t in (a, b, out))
    for i in nl.affine_range(x.shape[0]):
        nl.store(z[i], value=nl.add(nl.load(x[i]), nl.load(y[i])))
    return out


@nki.jit
def matrix_transpose(x):
    """Transpose a matrix in tiles of 128 x 128 on the Tensor Engine, a load and a store each."""
    rows, cols = x.shape
    out = nl.ndarray((cols, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(cols // 128):
            r, c = nl.ds(i * 128, 128), nl.ds(j * 128, 128)
            turned = nl.copy(nisa.nc_transpose(nl.load(x[r, c])))
            nl.store(out[c, r], value=turned)
    return out


@nki.jit
def conv2d(x, w, bias, pool_size=1):
    """Convolve (1, Ci, H, W) with (Co, Ci, h, w), add the bias and pool.

    Every block of ROWS output rows (at least a pool's) of every 128 output channels loads its input
    rows and its bias itself.
    """
    _, c_in, height, width = x.shape
    c_out, _, taps_h, taps_w = w.shape
    out_h, out_w = height - taps_h + 1, width - taps_w + 1
    rows = max(ROWS, pool_size)
    out = nl.ndarray(
        (1, c_out, out_h // pool_size, out_w // pool_size), dtype=x.dtype, buffer=nl.shared_hbm
    )
    weights = nl.ndarray(
        (128, c_out // 128, c_in // 128, taps_h * taps_w, 128), dtype=w.dtype, buffer=nl.sbuf
    )
    flat = w.reshape((c_out // 128, 128, c_in // 128, 128, taps_h * taps_w))
    for m in nl.affine_range(c_out // 128):
        for k in nl.affine_range(c_in // 128):
            raw = nl.load(flat[m, :, k])
            for t in nl.affine_range(taps_h * taps_w):
                weights[:, m, k, t] = nl.copy(nisa.nc_transpose(raw[:, :, t]), dtype=w.dtype)
    for r in nl.affine_range(out_h // rows):
        for m in nl.affine_range(c_out // 128):
            shift = nl.load(bias[nl.ds(m * 128, 128)])
            total = nl.zeros((128, rows, out_w), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(c_in // 128):
                here = nl.ds(k * 128, 128)
                if STRIPS:
                    tile = nl.load(x[0, here, nl.ds(r * rows, rows + taps_h - 1)])
                for i in nl.affine_range(taps_h):
                    taps = (
                        tile[:, nl.ds(i, rows)]
                        if STRIPS
                        else nl.load(x[0, here, nl.ds(r * rows + i, rows)])
                    )
                    for j in nl.affine_range(taps_w):
                        moving = taps[:, :, nl.ds(j, out_w)]
                        if COPY_ROWS:
                            together = nl.ndarray((128, rows, out_w), dtype=x.dtype, buffer=nl.sbuf)
                            for row in nl.affine_range(rows):
                                together[:, row] = nl.copy(taps[:, row, nl.ds(j, out_w)])
                            moving = together
                        total += nisa.nc_matmul(weights[:, m, k, i * taps_w + j], moving)
            result = nisa.tensor_scalar(total, nl.add, shift)
            if pool_size > 1:
                p = pool_size
                grid = result.reshape((128, rows // p, p, out_w // p, p))
                result = nisa.tensor_reduce(nl.max, grid, axis=[2, 4])
            nl.store(
                out[0, nl.ds(m * 128, 128), nl.ds(r * rows // pool_size, rows // pool_size)],
                value=nl.copy(result, dtype=x.dtype),
            )
    return out
