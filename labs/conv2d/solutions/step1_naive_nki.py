"""Step 1, the definition: one output row at a time, everything loaded where it is used.

Right, and slow: each output row loads all filters again, one tap at a time in 2- or 4-byte pieces
(a tap is strided in HBM), transposes them again, and loads each input row once per tap. The Tensor
Engine waits for a DMA and a transpose before every matmul. Pooling is a second pass through HBM.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


def pool_pass(conv, out, pool):
    """Max-pool a convolution that lies in HBM, a few rows of one channel group at a time."""
    batch, channels, height, width = out.shape
    for b in range(batch):
        for m in range(channels // P):
            for r in range(height):
                rows = nl.load(conv[b, m * P:(m + 1) * P, pool * r:pool * (r + 1), :])
                part = rows[0:P, 0:pool, 0:width * pool]
                part = part.reshape_dim(2, (width, pool)).permute((0, 2, 1, 3))
                best = nl.ndarray((part.shape[0], part.shape[1]), dtype=rows.dtype, buffer=nl.sbuf)
                nisa.tensor_reduce(dst=best, op=nl.maximum, data=part, axis=(2, 3))
                nl.store(out[b, m * P:(m + 1) * P, r, :], best)


@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    """Convolve a batch of images, add the bias, max-pool; shapes as in the lab."""
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    assert c_in % P == 0 and c_out % P == 0, f"channels must be multiples of {P}"
    assert width <= nl.tile_size.psum_fmax, "an output row must fit in a PSUM bank"
    conv = nl.ndarray((batch, c_out, height, width), dtype=X.dtype, buffer=nl.shared_hbm)
    for b in range(batch):
        for m in range(c_out // P):
            bias_sb = nl.load(bias[m * P:(m + 1) * P].expand_dim(1), dtype=nl.float32)
            for r in range(height):
                acc = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
                for k in range(c_in // P):
                    for i in range(size):
                        for j in range(size):
                            tap = nl.load(W[m * P:(m + 1) * P, k * P:(k + 1) * P, i, j])
                            turned = nl.ndarray((tap.shape[1], tap.shape[0]), dtype=tap.dtype,
                                                buffer=nl.psum)
                            nisa.nc_transpose(dst=turned, data=tap)
                            stationary = nl.ndarray(turned.shape, dtype=W.dtype, buffer=nl.sbuf)
                            nisa.tensor_copy(dst=stationary, src=turned)
                            row = nl.load(X[b, k * P:(k + 1) * P, r + i, j:j + width])
                            nisa.nc_matmul(dst=acc, stationary=stationary, moving=row)
                biased = nl.ndarray(acc.shape, dtype=X.dtype, buffer=nl.sbuf)
                nisa.tensor_scalar(dst=biased, data=acc, op0=nl.add, operand0=bias_sb)
                nl.store(conv[b, m * P:(m + 1) * P, r, :], biased)
    if pool_size == 1:
        return conv
    out = nl.ndarray((batch, c_out, height // pool_size, width // pool_size), dtype=X.dtype,
                     buffer=nl.shared_hbm)
    pool_pass(conv, out, pool_size)
    return out
