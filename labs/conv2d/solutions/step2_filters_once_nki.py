"""Step 2, filters once: loaded in one DMA per output-channel group, transposed once, kept in SBUF.

Why it is faster: for 222 output rows of 256 -> 256 channels, 3 x 3, the transposes fall from 7992
to 36, and the DMAs of filters from 7992 in tiny pieces to 2 of several KiB per partition. An input
row is now loaded once per filter row instead of once per tap: shifting it by j is only an access
pattern. The Tensor Engine still has one row of 222 columns per matmul, of 512 that a bank holds.
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


def load_filters(W):
    """Return all filters in SBUF with input channels on partitions: [in, m, k, tap, out]."""
    c_out, c_in, size, _ = W.shape
    taps = size * size
    filters = nl.ndarray((P, c_out // P, c_in // P, taps, P), dtype=W.dtype, buffer=nl.sbuf)
    for m in range(c_out // P):
        raw = nl.load(W.reshape((c_out, c_in, taps))[m * P:(m + 1) * P])
        for k in range(c_in // P):
            for t in range(taps):
                part = raw[:, k * P:(k + 1) * P, t]
                turned = nl.ndarray((128, 128), dtype=part.dtype, buffer=nl.psum)
                nisa.nc_transpose(dst=turned, data=part)
                nisa.tensor_copy(dst=filters[:, m, k, t], src=turned)
    return filters


@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    """Convolve a batch of images, add the bias, max-pool; shapes as in the lab."""
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    assert c_in % P == 0 and c_out % P == 0, f"channels must be multiples of {P}"
    assert width <= nl.tile_size.psum_fmax, "an output row must fit in a PSUM bank"
    conv = nl.ndarray((batch, c_out, height, width), dtype=X.dtype, buffer=nl.shared_hbm)
    filters = load_filters(W)
    for b in range(batch):
        for m in range(c_out // P):
            bias_sb = nl.load(bias[m * P:(m + 1) * P].expand_dim(1), dtype=nl.float32)
            for r in range(height):
                acc = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
                for k in range(c_in // P):
                    for i in range(size):
                        row = nl.load(X[b, k * P:(k + 1) * P, r + i, :])
                        for j in range(size):
                            nisa.nc_matmul(dst=acc, stationary=filters[:, m, k, i * size + j],
                                           moving=row[:, j:j + width])
                biased = nl.ndarray(acc.shape, dtype=X.dtype, buffer=nl.sbuf)
                nisa.tensor_scalar(dst=biased, data=acc, op0=nl.add, operand0=bias_sb)
                nl.store(conv[b, m * P:(m + 1) * P, r, :], biased)
    if pool_size == 1:
        return conv
    out = nl.ndarray((batch, c_out, height // pool_size, width // pool_size), dtype=X.dtype,
                     buffer=nl.shared_hbm)
    pool_pass(conv, out, pool_size)
    return out
