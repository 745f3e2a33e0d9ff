"""Step 2: fused instructions; one engine does all products, and a long row is read twice."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
STATS = 512
CHUNK = 2048


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    pieces = []
    for start in range(0, length, step):
        pieces.append((start, min(step, length - start)))
    return pieces


def new(rows, columns, dtype=nl.float32):
    """Return a new tile in SBUF; nothing is written in it yet."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape[0], source.shape[1], source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def inverse_root(column, rows, scale, epsilon):
    """Return 1 / sqrt(column * scale + epsilon) as a new column."""
    root = new(rows, 1)
    nisa.tensor_scalar(dst=root, data=column, op0=nl.multiply, operand0=scale, op1=nl.add,
                       operand1=epsilon)
    nisa.tensor_scalar(dst=root, data=root, op0=nl.power, operand0=-0.5)
    return root


@nki.jit
def layer_norm(x, gamma, beta, epsilon=1e-5):
    """Return the layer norm of each row of x [rows, columns]; gamma and beta are [1, columns]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
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
        # (x - mean) * scale as x * scale + offset: one pass of the Scalar Engine
        nisa.scalar_tensor_tensor(dst=offset, data=mean, op0=nl.multiply, operand0=-1.0,
                                  op1=nl.multiply, operand1=scale)
        nisa.activation(dst=centred, op=nl.copy, data=tile, scale=scale, bias=offset)
        nisa.tensor_tensor(dst=centred, data1=centred, data2=factor[0:n], op=nl.multiply)
        nisa.tensor_tensor(dst=result, data1=centred, data2=shift[0:n], op=nl.add,
                           engine=nisa.engine.gpsimd)
        nisa.dma_copy(dst=out[r:r + n], src=result)
    return out


@nki.jit
def softmax_long(x):
    """Return the softmax of each row of x [rows, columns]; a row may be longer than SBUF holds."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for piece in cut(rows, P):
        r, n = piece
        largest, total = None, None
        for part in cut(columns, CHUNK):
            c, w = part
            tile, seen, sums = load(x[r:r + n, c:c + w]), new(n, 1), new(n, 1)
            nisa.tensor_reduce(dst=seen, op=nl.maximum, data=tile, axis=1, negate=True,
                               keepdims=True)
            before, largest_before = total, largest
            if before is not None:
                nisa.tensor_tensor(dst=seen, data1=seen, data2=largest, op=nl.minimum)
            largest = seen
            powers = new(n, w)
            nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, bias=largest,
                                   reduce_op=nl.add, reduce_res=sums)
            if before is not None:
                # what was summed up with the old maximum shrinks by exp(old - new)
                shrink = new(n, 1)
                nisa.activation(dst=shrink, op=nl.exp, data=largest_before, scale=-1.0,
                                bias=largest)
                nisa.scalar_tensor_tensor(dst=sums, data=before, op0=nl.multiply,
                                          operand0=shrink, op1=nl.add, operand1=sums)
            total = sums
        scale = new(n, 1)
        nisa.reciprocal(dst=scale, data=total)
        for part in cut(columns, CHUNK):
            c, w = part
            tile = load(x[r:r + n, c:c + w])
            powers, result = new(n, w), new(n, w, x.dtype)
            nisa.activation(dst=powers, op=nl.exp, data=tile, bias=largest)
            nisa.tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=scale)
            nisa.dma_copy(dst=out[r:r + n, c:c + w], src=result)
    return out
