"""Step 1, the definition: one output row at a time, everything loaded where it is used.

Right, and slow: each output row loads all filters again, one tap at a time in 2- or 4-byte pieces
(a tap is strided in HBM), transposes them again, and loads each input row once per tap. The Tensor
Engine waits for a DMA and a transpose before every matmul. Pooling is a second pass through HBM.
"""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P = 128


def pool_pass(conv, out, pool):
    """Max-pool a convolution that lies in HBM, a few rows of one channel group at a time."""
    batch, channels, height, width = out.shape
    for b in nl.affine_range(batch):
        for m in nl.affine_range(channels // P):
            for r in nl.affine_range(height):
                rows = nl.load(conv[b, m * P:(m + 1) * P, pool * r:pool * (r + 1), :])
                i_p, i_c, i_y, i_x = nl.mgrid[0:P, 0:width, 0:pool, 0:pool]
                best = nisa.tensor_reduce(nl.max, rows[i_p, i_y, pool * i_c + i_x], axis=[2, 3])
                nl.store(out[b, m * P:(m + 1) * P, r, :], value=best)


@nki.compiler.skip_middle_end_transformations
@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    """Convolve a batch of images, add the bias, max-pool; shapes as in the lab."""
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    assert c_in % P == 0 and c_out % P == 0, f"channels must be multiples of {P}"
    assert width <= nl.tile_size.psum_fmax, "an output row must fit in a PSUM bank"
    conv = nl.ndarray((batch, c_out, height, width), dtype=X.dtype, buffer=nl.hbm)
    for b in nl.affine_range(batch):
        for m in nl.affine_range(c_out // P):
            bias_sb = nl.load(bias[m * P:(m + 1) * P], dtype=nl.float32)
            for r in nl.affine_range(height):
                acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(c_in // P):
                    for i in nl.affine_range(size):
                        for j in nl.affine_range(size):
                            tap = nl.load(W[m * P:(m + 1) * P, k * P:(k + 1) * P, i, j])
                            stationary = nisa.tensor_copy(nisa.nc_transpose(tap), dtype=W.dtype)
                            row = nl.load(X[b, k * P:(k + 1) * P, r + i, j:j + width])
                            acc += nisa.nc_matmul(stationary, row)
                nl.store(conv[b, m * P:(m + 1) * P, r, :],
                         value=nisa.tensor_scalar(acc, nl.add, bias_sb, dtype=X.dtype))
    if pool_size == 1:
        return conv
    out = nl.ndarray((batch, c_out, height // pool_size, width // pool_size), dtype=X.dtype,
                     buffer=nl.hbm)
    pool_pass(conv, out, pool_size)
    return out
