"""Step 4, the pool fused: the maximum is taken of what lies in PSUM, and only that is stored.

Why it is faster: the convolution is not written to HBM, read back and written again in quarters.
With pooling, HBM writes fall to a fifth and one of two passes is gone; the reduction runs on the
Vector Engine while the Tensor Engine fills the next bank. Without pooling, as step 3.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


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


def drain(acc, bias, pool, dtype):
    """Return what a PSUM bank has accumulated plus the bias, pooled, as a tile in SBUF."""
    if pool == 1:
        biased = nl.ndarray(acc.shape, dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=biased, data=acc, op0=nl.add, operand0=bias)
        return biased
    part = acc[0:P, 0:acc.shape[1] // pool * pool, 0:acc.shape[2] // pool * pool]
    part = part.reshape_dim(1, (acc.shape[1] // pool, pool)).reshape_dim(3,
                            (acc.shape[2] // pool, pool)).permute((0, 1, 3, 2, 4))
    largest = nl.ndarray((part.shape[0], part.shape[1], part.shape[2]), dtype=acc.dtype,
                         buffer=nl.sbuf)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=part, axis=(3, 4))
    biased = nl.ndarray(largest.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=biased, data=largest, op0=nl.add, operand0=bias)
    return biased


@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    """Convolve a batch of images, add the bias, max-pool; shapes as in the lab."""
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    assert c_in % P == 0 and c_out % P == 0, f"channels must be multiples of {P}"
    assert width <= nl.tile_size.psum_fmax, "an output row must fit in a PSUM bank"
    pool = pool_size
    out = nl.ndarray((batch, c_out, height // pool, width // pool), dtype=X.dtype,
                     buffer=nl.shared_hbm)
    filters = load_filters(W)
    in_bank = min(height, max(pool, nl.tile_size.psum_fmax // width // pool * pool))
    assert in_bank * width <= nl.tile_size.psum_fmax, "pool_size rows must fit in a PSUM bank"
    tiles = []
    for r in range(0, height, in_bank):
        tiles.append((r, min(in_bank, height - r)))
    for b in range(batch):
        for m in range(c_out // P):
            bias_sb = nl.load(bias[m * P:(m + 1) * P].expand_dim(1), dtype=nl.float32)
            for t in range(len(tiles)):
                r, rows = tiles[t]
                acc = nl.ndarray((P, rows, width), dtype=nl.float32, buffer=nl.psum)
                for k in range(c_in // P):
                    x = nl.load(X[b, k * P:(k + 1) * P, r:r + rows + size - 1, :])
                    for i in range(size):
                        for j in range(size):
                            nisa.nc_matmul(dst=acc, stationary=filters[:, m, k, i * size + j],
                                           moving=x[:, i:i + rows, j:j + width])
                nl.store(out[b, m * P:(m + 1) * P, r // pool:(r + rows) // pool, :],
                         drain(acc, bias_sb, pool, X.dtype))
    return out
