"""Step 4, the pool fused: the maximum is taken of what lies in PSUM, and only that is stored.

Why it is faster: the convolution is not written to HBM, read back and written again in quarters.
With pooling, HBM writes fall to a fifth and one of two passes is gone; the reduction runs on the
Vector Engine while the Tensor Engine fills the next bank. Without pooling, as step 3.
"""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P = 128


def load_filters(W):
    """Return all filters in SBUF with input channels on partitions: [in, m, k, tap, out]."""
    c_out, c_in, size, _ = W.shape
    taps = size * size
    filters = nl.ndarray((P, c_out // P, c_in // P, taps, P), dtype=W.dtype, buffer=nl.sbuf)
    for m in nl.affine_range(c_out // P):
        raw = nl.load(W.reshape((c_out, c_in, taps))[m * P:(m + 1) * P])
        for k in nl.affine_range(c_in // P):
            for t in nl.affine_range(taps):
                turned = nisa.nc_transpose(raw[:, k * P:(k + 1) * P, t])
                filters[:, m, k, t] = nisa.tensor_copy(turned, dtype=W.dtype)
    return filters


def drain(acc, bias, pool, dtype):
    """Return what a PSUM bank has accumulated plus the bias, pooled, as a tile in SBUF."""
    if pool == 1:
        return nisa.tensor_scalar(acc, nl.add, bias, dtype=dtype)
    i_p, i_r, i_c, i_y, i_x = nl.mgrid[0:P, 0:acc.shape[1] // pool, 0:acc.shape[2] // pool,
                                       0:pool, 0:pool]
    largest = nisa.tensor_reduce(nl.max, acc[i_p, pool * i_r + i_y, pool * i_c + i_x],
                                 axis=[3, 4])
    return nisa.tensor_scalar(largest, nl.add, bias, dtype=dtype)


@nki.compiler.skip_middle_end_transformations
@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    """Convolve a batch of images, add the bias, max-pool; shapes as in the lab."""
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    assert c_in % P == 0 and c_out % P == 0, f"channels must be multiples of {P}"
    assert width <= nl.tile_size.psum_fmax, "an output row must fit in a PSUM bank"
    pool = pool_size
    out = nl.ndarray((batch, c_out, height // pool, width // pool), dtype=X.dtype, buffer=nl.hbm)
    filters = load_filters(W)
    in_bank = min(height, max(pool, nl.tile_size.psum_fmax // width // pool * pool))
    assert in_bank * width <= nl.tile_size.psum_fmax, "pool_size rows must fit in a PSUM bank"
    tiles = [(r, min(in_bank, height - r)) for r in range(0, height, in_bank)]
    for b in nl.affine_range(batch):
        for m in nl.affine_range(c_out // P):
            bias_sb = nl.load(bias[m * P:(m + 1) * P], dtype=nl.float32)
            for t in nl.static_range(len(tiles)):
                r, rows = tiles[t]
                acc = nl.zeros((P, rows, width), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(c_in // P):
                    x = nl.load(X[b, k * P:(k + 1) * P, r:r + rows + size - 1, :])
                    for i in nl.affine_range(size):
                        for j in nl.affine_range(size):
                            acc += nisa.nc_matmul(filters[:, m, k, i * size + j],
                                                  x[:, i:i + rows, j:j + width])
                nl.store(out[b, m * P:(m + 1) * P, r // pool:(r + rows) // pool, :],
                         value=drain(acc, bias_sb, pool, X.dtype))
    return out
