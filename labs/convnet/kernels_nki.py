"""Convolutions as networks have them: with padding, with a stride, and of many small images.

    out[b, :, r, c] = bias + sum over taps (i, j) of W[:, :, i, j] @ X[b, :, y, x],
    where y = r * stride + i - padding and x = c * stride + j - padding are in the image

What lies beyond the border counts as zero, so it needs no product. Each tap meets a rectangle of
the outputs; its product is added to that part of a PSUM bank. The tap in the middle meets all of
them and comes first. Nothing is padded, neither in HBM nor in SBUF.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: channels are handled in groups of this size
# BEGIN SOLUTION step=1 stub=""
LOADED = 4096  # bytes of each partition that a DMA should bring, if there are images enough
# END SOLUTION


def out_size(length, size, stride, padding):
    """Return how many outputs an axis of an image has."""
    return (length + 2 * padding - size) // stride + 1


def size_of(dtype):
    """Return the bytes of an element."""
    return 4 if dtype == nl.float32 else 2


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    pieces = []
    for start in range(0, length, step):
        pieces.append((start, min(step, length - start)))
    return pieces


def load_bias(bias):
    """Return a bias [out] as a tile of float32, a column for each group of 128 channels."""
    groups = bias.shape[0] // P
    raw = nl.ndarray((P, groups), dtype=bias.dtype, buffer=nl.sbuf)
    wide = nl.ndarray((P, groups), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=raw, src=bias.reshape((groups, P)).permute((1, 0)))
    nisa.tensor_copy(dst=wide, src=raw)
    return wide


def load_filters(W, m):
    """Return filters of W [out, in, size, size], those of the m-th 128 output channels.

    They are a tile [in, groups of input channels, taps, out]: input channels in the partitions.
    """
    _, c_in, size, _ = W.shape
    k_tiles, taps = c_in // P, size * size
    filters = nl.ndarray((P, k_tiles, taps, P), dtype=W.dtype, buffer=nl.sbuf)
    # BEGIN SOLUTION step=1 section="1. padded"
    in_bank = nl.tile_size.psum_bank_fmax * 4 // (P * size_of(W.dtype))
    for k in range(k_tiles):
        raw = nl.ndarray((P, P, taps), dtype=W.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=raw, src=W[m * P:(m + 1) * P, k * P:(k + 1) * P].reshape((P, P, taps)))
        for piece in cut(taps, in_bank):
            first, count = piece
            bank = nl.ndarray((P, count, P), dtype=W.dtype, buffer=nl.psum)
            for t in range(count):
                nisa.nc_transpose(dst=bank[:, t], data=raw[:, :, first + t])
            nisa.tensor_copy(dst=filters[:, k, first:first + count], src=bank)
    # END SOLUTION
    return filters


def load_images(X, first, count):
    """Return some images of X as a tile [channels, groups of channels, image, row, column]."""
    _, c_in, height, width = X.shape
    tile = nl.ndarray((P, c_in // P, count, height, width), dtype=X.dtype, buffer=nl.sbuf)
    # BEGIN SOLUTION step=1 section="1. padded"
    for k in range(c_in // P):
        nisa.dma_copy(dst=tile[:, k], src=X[first:first + count, k * P:(k + 1) * P]
                      .permute((1, 0, 2, 3)))
    # END SOLUTION
    return tile


def reach(start, count, length, tap, stride, padding):
    """Return (first, end) of the outputs start to start + count that a tap has a pixel for."""
    first, end = start, start + count
    # BEGIN SOLUTION step=1 section="1. padded"
    while first < end and first * stride + tap - padding < 0:
        first += 1
    while end > first and (end - 1) * stride + tap - padding >= length:
        end -= 1
    # END SOLUTION
    return first, end


def taps_from_the_middle(size):
    """Return (row, column) of the taps of a filter, the middle one first: it meets all outputs."""
    middle = size // 2
    taps = [(middle, middle)]
    for i in range(size):
        for j in range(size):
            if (i, j) != (middle, middle):
                taps.append((i, j))
    return taps


# BEGIN SOLUTION step=1 stub=""
def add_products(acc, images, filters, image, row, stride, padding, size):
    """Add up the products of all taps in acc [out, images, rows, columns], a bank of PSUM.

    Its first output is row `row` of image `image` of the tile of images.
    """
    _, count, rows, columns = acc.shape
    _, k_tiles, _, height, width = images.shape
    begun = False
    for tap in taps_from_the_middle(size):
        i, j = tap
        top, bottom = reach(row, rows, height, i, stride, padding)
        left, right = reach(0, columns, width, j, stride, padding)
        if top == bottom or left == right:
            continue
        y, x = top * stride + i - padding, left * stride + j - padding
        y_end, x_end = y + (bottom - top - 1) * stride + 1, x + (right - left - 1) * stride + 1
        for k in range(k_tiles):
            nisa.nc_matmul(
                dst=acc[:, :, top - row:bottom - row, left:right],
                stationary=filters[:, k, i * size + j],
                moving=images[:, k, image:image + count, y:y_end:stride, x:x_end:stride],
                accumulate=begun)
            begun = True


def convolve(out, X, W, bias, stride, padding, together):
    """Convolve X into out, with at most `together` images in a bank of PSUM."""
    batch, c_in, height, width = X.shape
    rows, columns = out.shape[2], out.shape[3]
    bank = nl.tile_size.psum_bank_fmax
    in_bank = max(1, min(together, bank // (rows * columns)))
    wanted = max(1, LOADED // (height * width * size_of(X.dtype)))
    block = (max(wanted, in_bank) + in_bank - 1) // in_bank * in_bank
    thin = min(rows, max(1, bank // columns))
    filters, column = [], None
    for piece in cut(batch, block):
        first, count = piece
        images = load_images(X, first, count)
        for m in range(W.shape[0] // P):
            if first == 0:  # just in time: those of the next group behind the products of this one
                filters.append(load_filters(W, m))
            if column is None:
                column = load_bias(bias)
            results = nl.ndarray((P, count, rows, columns), dtype=X.dtype, buffer=nl.sbuf)
            for some in cut(count, in_bank):
                image, n = some
                for part in cut(rows, thin):
                    row, height_of = part
                    acc = nl.ndarray((P, n, height_of, columns), dtype=nl.float32, buffer=nl.psum)
                    add_products(acc, images, filters[m], image, row, stride, padding, W.shape[2])
                    nisa.tensor_scalar(dst=results[:, image:image + n, row:row + height_of],
                                       data=acc, op0=nl.add, operand0=column[:, m:m + 1])
            nisa.dma_copy(dst=out[first:first + count, m * P:(m + 1) * P].permute((1, 0, 2, 3)),
                          src=results)
# END SOLUTION


def new_output(X, W, stride, padding):
    """Return the tensor in HBM for the convolution of X with W."""
    batch, _, height, width = X.shape
    size = W.shape[2]
    return nl.ndarray((batch, W.shape[0], out_size(height, size, stride, padding),
                       out_size(width, size, stride, padding)), dtype=X.dtype,
                      buffer=nl.shared_hbm)


@nki.jit
def padded(X, W, bias, padding=0):
    """Convolve X [batch, in, height, width] with W [out, in, size, size] and add bias [out].

    Around each image are `padding` rows and columns of zeros. Channels are multiples of 128, size
    is odd, padding at most size // 2; an image fits in a quarter of SBUF. Returns
    [batch, out, height + 2 * padding - size + 1, width + 2 * padding - size + 1].
    """
    out = new_output(X, W, 1, padding)
    # BEGIN SOLUTION step=1 section="1. padded"
    convolve(out, X, W, bias, 1, padding, 1)
    # END SOLUTION
    return out


@nki.jit
def strided(X, W, bias, stride=1, padding=0):
    """Convolve as `padded` does, but compute each `stride`-th row and column of its result only."""
    out = new_output(X, W, stride, padding)
    # BEGIN SOLUTION step=2 section="2. strided"
    convolve(out, X, W, bias, stride, padding, 1)
    # END SOLUTION
    return out


@nki.jit
def batched(X, W, bias, stride=1, padding=0):
    """Convolve as `strided` does, for batches of images that are far smaller than a PSUM bank."""
    out = new_output(X, W, stride, padding)
    # BEGIN SOLUTION step=3 section="3. batched"
    convolve(out, X, W, bias, stride, padding, X.shape[0])
    # END SOLUTION
    return out
