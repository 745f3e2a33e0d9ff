"""Step 3: one DMA and one bank for several images; the border is made on the chip."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: channels are handled in groups of this size


def new_output(X, W, stride, padding):
    """Return the tensor in HBM for the convolution of X with W."""
    batch, _, height, width = X.shape
    c_out, _, size, _ = W.shape
    rows = (height + 2 * padding - size) // stride + 1
    columns = (width + 2 * padding - size) // stride + 1
    return nl.ndarray((batch, c_out, rows, columns), dtype=X.dtype, buffer=nl.shared_hbm)


def load_bias(bias, m):
    """Return the biases of 128 output channels as a column of float32."""
    raw = nl.ndarray((P, 1), dtype=bias.dtype, buffer=nl.sbuf)
    wide = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=raw, src=bias[m * P:(m + 1) * P].reshape((P, 1)))
    nisa.tensor_copy(dst=wide, src=raw)
    return wide


def load_filters(W):
    """Return filters as a list of tiles [in, groups of inputs, taps, out]: a bank of PSUM holds
    several taps, and one copy empties it."""
    c_out, c_in, size, _ = W.shape
    filters, k_tiles, taps = [], c_in // P, size * size
    in_bank = nl.tile_size.psum_bank_fmax // P * (1 if W.dtype == nl.float32 else 2)
    for m in range(c_out // P):
        raw = nl.ndarray((P, c_in, taps), dtype=W.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=raw, src=W[m * P:(m + 1) * P].reshape((P, c_in, taps)))
        turned = nl.ndarray((P, k_tiles * taps, P), dtype=W.dtype, buffer=nl.sbuf)
        for first in range(0, k_tiles * taps, in_bank):
            count = min(in_bank, k_tiles * taps - first)
            bank = nl.ndarray((P, count, P), dtype=W.dtype, buffer=nl.psum)
            for t in range(count):
                k, tap = (first + t) // taps, (first + t) % taps
                nisa.nc_transpose(dst=bank[:, t], data=raw[:, k * P:(k + 1) * P, tap])
            nisa.tensor_copy(dst=turned[:, first:first + count], src=bank)
        filters.append(turned.reshape((P, k_tiles, taps, P)))
    return filters


def load_images(X, first, count, padding):
    """Return images in a tile [channels, groups, image, row, column] with a border of zeros.

    A DMA brings all of them as they lie in HBM; the Vector Engine puts them into the tile.
    """
    _, c_in, height, width = X.shape
    tile = nl.ndarray((P, c_in // P, count, height + 2 * padding, width + 2 * padding),
                      dtype=X.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    for k in range(c_in // P):
        raw = nl.ndarray((P, count, height, width), dtype=X.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=raw, src=X[first:first + count, k * P:(k + 1) * P]
                      .permute((1, 0, 2, 3)))
        nisa.tensor_copy(dst=tile[:, k, :, padding:padding + height, padding:padding + width],
                         src=raw)
    return tile


def convolve(out, X, W, bias, stride, padding):
    """Convolve X into out: a bank of PSUM holds the rows of as many images as it can."""
    rows, columns, size = out.shape[2], out.shape[3], W.shape[2]
    filters, bank = load_filters(W), nl.tile_size.psum_bank_fmax
    together, in_bank = max(1, bank // (rows * columns)), min(rows, bank // columns)
    for b in range(0, X.shape[0], together):
        count = min(together, X.shape[0] - b)
        images = load_images(X, b, count, padding)
        for m in range(len(filters)):
            column = load_bias(bias, m)
            results = nl.ndarray((P, count, rows, columns), dtype=X.dtype, buffer=nl.sbuf)
            for row in range(0, rows, in_bank):
                n = min(in_bank, rows - row)
                acc = nl.ndarray((P, count, n, columns), dtype=nl.float32, buffer=nl.psum)
                for k in range(X.shape[1] // P):
                    for tap in range(size * size):
                        y, x = row * stride + tap // size, tap % size
                        nisa.nc_matmul(
                            dst=acc, stationary=filters[m][:, k, tap],
                            moving=images[:, k, :, y:y + (n - 1) * stride + 1:stride,
                                          x:x + (columns - 1) * stride + 1:stride],
                            accumulate=k + tap > 0)
                nisa.tensor_scalar(dst=results[:, :, row:row + n], data=acc, op0=nl.add,
                                   operand0=column)
            nisa.dma_copy(dst=out[b:b + count, m * P:(m + 1) * P].permute((1, 0, 2, 3)),
                          src=results)


@nki.jit
def padded(X, W, bias, padding=0):
    """Convolve with padding."""
    out = new_output(X, W, 1, padding)
    convolve(out, X, W, bias, 1, padding)
    return out


@nki.jit
def strided(X, W, bias, stride=1, padding=0):
    """Convolve with padding and a stride."""
    out = new_output(X, W, stride, padding)
    convolve(out, X, W, bias, stride, padding)
    return out


@nki.jit
def batched(X, W, bias, stride=1, padding=0):
    """Convolve with padding and a stride."""
    out = new_output(X, W, stride, padding)
    convolve(out, X, W, bias, stride, padding)
    return out
