"""Step 5, wide DMAs: blocks of 16 output rows, loaded once for all output channels.

Why it is faster: a DMA below 2 KiB per partition takes as long as one of 2 KiB, and two rows of 224
in float16 have 896 bytes. A block of 18 rows has 8 KiB, is loaded once instead of once for each
group of output channels, and its results leave in one store of 7 KiB per partition. The DMA
engines are busy for a sixth of the time instead of two fifths. Where the Tensor Engine is the
limit, as with 3 x 3 filters, that buys little time; with 1 x 1 filters it decides.
What is left for kernels_nki.py: two of 18 rows are still loaded twice (it copies them on chip), the
order of the instructions lets the Tensor Engine wait for a block at times (it prefetches into a
second slot), and the tiles of 2 x 222 fill 444 of the 512 columns of a bank (it cuts 16 x 32).
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
    bias_sb = nl.ndarray((P, c_out // P), dtype=nl.float32, buffer=nl.sbuf)
    for m in range(c_out // P):
        nisa.dma_copy(dst=bias_sb[:, m:m + 1], src=bias[m * P:(m + 1) * P].expand_dim(1))
    in_bank = min(height, max(pool, nl.tile_size.psum_fmax // width // pool * pool))
    assert in_bank * width <= nl.tile_size.psum_fmax, "pool_size rows must fit in a PSUM bank"
    in_block = max(in_bank, 16 // in_bank * in_bank)
    for b in range(batch):
        for block in range((height + in_block - 1) // in_block):
            first = block * in_block
            n = min(in_block, height - first)
            x = nl.ndarray((P, c_in // P, n + size - 1, in_width), dtype=X.dtype, buffer=nl.sbuf)
            for k in range(c_in // P):
                nisa.dma_copy(dst=x[:, k],
                              src=X[b, k * P:(k + 1) * P, first:first + n + size - 1, :])
            tiles = []
            for r in range(0, n, in_bank):
                tiles.append((r, min(in_bank, n - r)))
            for m in range(c_out // P):
                results = nl.ndarray((P, n // pool, width // pool), dtype=X.dtype, buffer=nl.sbuf)
                for t in range(len(tiles)):
                    r, rows = tiles[t]
                    acc = nl.ndarray((P, rows, width), dtype=nl.float32, buffer=nl.psum)
                    for k in range(c_in // P):
                        for i in range(size):
                            for j in range(size):
                                nisa.nc_matmul(dst=acc, stationary=filters[:, m, k, i * size + j],
                                               moving=x[:, k, r + i:r + i + rows, j:j + width])
                    nisa.tensor_copy(dst=results[:, r // pool:(r + rows) // pool],
                                     src=drain(acc, bias_sb[:, m:m + 1], pool, X.dtype))
                nl.store(out[b, m * P:(m + 1) * P, first // pool:(first + n) // pool, :], results)
    return out
