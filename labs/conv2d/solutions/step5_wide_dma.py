"""Step 5, wide DMAs: blocks of 16 output rows, loaded once for all output channels.

Why it is faster: a DMA below 2 KiB per partition takes as long as one of 2 KiB, and two rows of 224
in float16 have 896 bytes. A block of 18 rows has 8 KiB, is loaded once instead of once for each
group of output channels, and its results leave in one store of 7 KiB per partition. The DMA
engines are busy for a sixth of the time instead of two fifths. Where the Tensor Engine is the
limit, as with 3 x 3 filters, that buys little time; with 1 x 1 filters it decides.
What is left for kernels.py: two of 18 rows are still loaded twice (it copies them on chip), the
order of the instructions lets the Tensor Engine wait for a block at times (it prefetches into a
second slot), and the tiles of 2 x 222 fill 444 of the 512 columns of a bank (it cuts 16 x 32).
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
    bias_sb = nl.ndarray((P, c_out // P), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(c_out // P):
        bias_sb[:, m:m + 1] = nl.load(bias[m * P:(m + 1) * P], dtype=nl.float32)
    in_bank = min(height, max(pool, nl.tile_size.psum_fmax // width // pool * pool))
    assert in_bank * width <= nl.tile_size.psum_fmax, "pool_size rows must fit in a PSUM bank"
    in_block = max(in_bank, 16 // in_bank * in_bank)
    for b in nl.static_range(batch):
        for block in nl.static_range((height + in_block - 1) // in_block):
            first = block * in_block
            n = min(in_block, height - first)
            x = nl.ndarray((P, c_in // P, n + size - 1, in_width), dtype=X.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(c_in // P):
                x[:, k] = nl.load(X[b, k * P:(k + 1) * P, first:first + n + size - 1, :])
            tiles = [(r, min(in_bank, n - r)) for r in range(0, n, in_bank)]
            for m in nl.affine_range(c_out // P):
                results = nl.ndarray((P, n // pool, width // pool), dtype=X.dtype, buffer=nl.sbuf)
                for t in nl.static_range(len(tiles)):
                    r, rows = tiles[t]
                    acc = nl.zeros((P, rows, width), dtype=nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(c_in // P):
                        for i in nl.affine_range(size):
                            for j in nl.affine_range(size):
                                acc += nisa.nc_matmul(filters[:, m, k, i * size + j],
                                                      x[:, k, r + i:r + i + rows, j:j + width])
                    results[:, r // pool:(r + rows) // pool] = drain(acc, bias_sb[:, m:m + 1],
                                                                     pool, X.dtype)
                nl.store(out[b, m * P:(m + 1) * P, first // pool:(first + n) // pool, :],
                         value=results)
    return out
