"""Softmax and normalisations of rows: one pass over the data, statistics in float32.

    softmax(x)      = exp(x - max) / sum of it                         of each row
    layer_norm(x)   = (x - mean) / sqrt(variance + epsilon) * gamma + beta
    rms_norm(x)     = x / sqrt(mean of x squared + epsilon) * gamma

A row lies in one partition, so its statistics are a column: one number for each partition, in
float32 whatever the data are. An instruction takes a column where it takes a number.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: the most rows that a tile has
STATS = 512  # the most elements that one nisa.bn_stats takes
CHUNK = 2048  # columns of a piece of a long row
PASSING_BYTES = 32 * 1024  # of a partition for chunks of a long row that do not stay


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    pieces = []
    for start in range(0, length, step):
        pieces.append((start, min(step, length - start)))
    return pieces


def new(rows, columns, dtype=nl.float32, buffer=nl.sbuf):
    """Return a new tile; nothing is written in it yet."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape[0], source.shape[1], source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


@nki.jit
def softmax(x):
    """Return the softmax of each row of x [rows, columns]; a row fits in SBUF."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=1 section="1. softmax"
    for piece in cut(rows, P):
        r, n = piece
        tile, largest, total = load(x[r:r + n]), new(n, 1), new(n, 1)
        # the Vector Engine finds the maximum, with its sign turned, as the bias of exp(x - max);
        # the Scalar Engine adds up what it computes on the way
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=tile, axis=1, negate=True,
                           keepdims=True)
        powers, result = new(n, columns), new(n, columns, x.dtype)
        nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, bias=largest, reduce_op=nl.add,
                               reduce_res=total)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[r:r + n], src=result)
    # END SOLUTION
    return out


@nki.jit
def layer_norm(x, gamma, beta, epsilon=1e-5):
    """Return the layer norm of each row of x [rows, columns]; gamma and beta are [1, columns]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=2 section="2. layer_norm"
    factor, shift = load(gamma.broadcast(0, P)), load(beta.broadcast(0, P))
    parts = cut(columns, STATS)
    for piece in cut(rows, P):
        r, n = piece
        tile, result = load(x[r:r + n]), new(n, columns, x.dtype)
        stats, moments = new(n, 6 * len(parts)), new(n, 2)
        for i in range(len(parts)):
            c, w = parts[i]
            nisa.bn_stats(dst=stats[:, 6 * i:6 * i + 6], data=tile[:, c:c + w])
        nisa.bn_aggr(dst=moments, data=stats)
        mean, variance = moments[:, 0:1], moments[:, 1:2]
        scale = inverse_root(variance, n, 1.0, epsilon)
        offset, centred = new(n, 1), new(n, columns)
        # (x - mean) * scale as x * scale + offset: one pass of the Scalar Engine. The two others
        # are shared by Vector, which has the statistics as well, and GpSimd.
        engine = nisa.engine.vector if r // P % 3 else nisa.engine.gpsimd
        nisa.scalar_tensor_tensor(dst=offset, data=mean, op0=nl.multiply, operand0=-1.0,
                                  op1=nl.multiply, operand1=scale)
        nisa.activation(dst=centred, op=nl.copy, data=tile, scale=scale, bias=offset)
        nisa.tensor_tensor(dst=centred, data1=centred, data2=factor[0:n], op=nl.multiply,
                           engine=engine)
        nisa.tensor_tensor(dst=result, data1=centred, data2=shift[0:n], op=nl.add,
                           engine=nisa.engine.gpsimd)
        nisa.dma_copy(dst=out[r:r + n], src=result)
    # END SOLUTION
    return out


def inverse_root(column, rows, scale, epsilon):
    """Return 1 / sqrt(column * scale + epsilon) as a new column."""
    # BEGIN SOLUTION step=2 section="2. layer_norm"
    root = new(rows, 1)
    nisa.tensor_scalar(dst=root, data=column, op0=nl.multiply, operand0=scale, op1=nl.add,
                       operand1=epsilon)
    nisa.tensor_scalar(dst=root, data=root, op0=nl.power, operand0=-0.5)
    return root
    # END SOLUTION


def normalise(tile, factor, n, epsilon):
    """Return the RMS norm of the rows of a tile as a new one; factor is gamma in each partition."""
    # BEGIN SOLUTION step=3 section="3. rms_norm"
    columns = tile.shape[1]
    squares, total, result = new(n, columns), new(n, 1), new(n, columns, factor.dtype)
    nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add,
                           reduce_res=total)
    scale = inverse_root(total, n, 1.0 / columns, epsilon)
    nisa.scalar_tensor_tensor(dst=result, data=tile, op0=nl.multiply, operand0=scale,
                              op1=nl.multiply, operand1=factor[0:n])
    return result
    # END SOLUTION


@nki.jit
def rms_norm(x, gamma, epsilon=1e-5):
    """Return the RMS norm of each row of x [rows, columns]; gamma is [1, columns]."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=3 section="3. rms_norm"
    factor = load(gamma.broadcast(0, P))
    for piece in cut(x.shape[0], P):
        r, n = piece
        nisa.dma_copy(dst=out[r:r + n], src=normalise(load(x[r:r + n]), factor, n, epsilon))
    # END SOLUTION
    return out


@nki.jit
def add_rms_norm(x, residual, gamma, epsilon=1e-5):
    """Return rms_norm(x + residual) and x + residual, both [rows, columns]."""
    normed = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    added = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=4 section="4. add_rms_norm"
    factor = load(gamma.broadcast(0, P))
    for piece in cut(x.shape[0], P):
        r, n = piece
        # rounded to the dtype of the data once, as the stream of residuals is kept
        total = new(n, x.shape[1], x.dtype)
        nisa.tensor_tensor(dst=total, data1=load(x[r:r + n]), data2=load(residual[r:r + n]),
                           op=nl.add)
        nisa.dma_copy(dst=added[r:r + n], src=total)
        nisa.dma_copy(dst=normed[r:r + n], src=normalise(total, factor, n, epsilon))
    # END SOLUTION
    return normed, added


@nki.jit
def softmax_long(x):
    """Return the softmax of each row of x [rows, columns]; a row may be longer than SBUF holds."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=5 section="5. softmax_long"
    parts = cut(columns, CHUNK)
    most = (nl.tile_size.sbuf_fmax_bytes - PASSING_BYTES) // (4 * CHUNK)
    for piece in cut(rows, P):
        r, n = piece
        kept, factors = [], new(n, len(parts))
        largest, total = None, None
        for i in range(len(parts)):
            c, w = parts[i]
            tile, seen, sums = load(x[r:r + n, c:c + w]), factors[:, i:i + 1], new(n, 1)
            nisa.tensor_reduce(dst=seen, op=nl.maximum, data=tile, axis=1, negate=True,
                               keepdims=True)
            before, largest_before = total, largest
            if before is not None:
                nisa.tensor_tensor(dst=seen, data1=seen, data2=largest, op=nl.minimum)
            largest = seen
            # exponentials over the largest number so far stay; of the others only the sum counts
            powers = new(n, w, nl.float32, nl.sbuf if i < most else nl.psum)
            nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, bias=largest,
                                   reduce_op=nl.add, reduce_res=sums)
            if i < most:
                kept.append(powers)
            if before is not None:
                # what was summed up with the old maximum shrinks by exp(old - new)
                shrink = new(n, 1)
                nisa.activation(dst=shrink, op=nl.exp, data=largest_before, scale=-1.0,
                                bias=largest)
                nisa.scalar_tensor_tensor(dst=sums, data=before, op0=nl.multiply,
                                          operand0=shrink, op1=nl.add, operand1=sums)
            total = sums
        scale, last = new(n, 1), new(n, 1)
        nisa.reciprocal(dst=scale, data=total)
        nisa.tensor_copy(dst=last, src=largest)
        # what each chunk's exponentials lack: exp(its largest number - the last one) / total
        nisa.activation(dst=factors, op=nl.exp, data=factors, scale=-1.0, bias=last)
        nisa.tensor_scalar(dst=factors, data=factors, op0=nl.multiply, operand0=scale)
        for i in range(len(parts)):
            c, w = parts[i]
            if i < len(kept):
                powers, factor = kept[i], factors[:, i:i + 1]
            else:
                tile, powers, factor = load(x[r:r + n, c:c + w]), new(n, w), scale
                nisa.activation(dst=powers, op=nl.exp, data=tile, bias=last)
            result = powers if x.dtype == nl.float32 else new(n, w, x.dtype)
            nisa.tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=factor)
            nisa.dma_copy(dst=out[r:r + n, c:c + w], src=result)
    # END SOLUTION
    return out
