"""Step 1: a pass over the data for each operation; what goes on is read from HBM again."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
CHUNK = 2048


def new(rows, columns, dtype=nl.float32):
    """Return a new tile in SBUF."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape[0], source.shape[1], source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def row_sum(tile):
    """Return the sums of the rows of a tile as a column."""
    total = new(tile.shape[0], 1)
    nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=1, keepdims=True)
    return total


def scaled(tile, op, column):
    """Return a tile with an operator applied to each row and its number of a column."""
    result = new(tile.shape[0], tile.shape[1])
    nisa.tensor_scalar(dst=result, data=tile, op0=op, operand0=column)
    return result


def root(column, scale, epsilon):
    """Return 1 / sqrt(column * scale + epsilon)."""
    result = new(column.shape[0], 1)
    nisa.tensor_scalar(dst=result, data=column, op0=nl.multiply, operand0=scale, op1=nl.add,
                       operand1=epsilon)
    nisa.activation(dst=result, op=nl.sqrt, data=result)
    nisa.reciprocal(dst=result, data=result)
    return result


def multiplied(tile, other, op, dtype):
    """Return an operator applied to two tiles."""
    result = new(tile.shape[0], tile.shape[1], dtype)
    nisa.tensor_tensor(dst=result, data1=tile, data2=other, op=op)
    return result


@nki.jit
def softmax(x):
    """Return the softmax of each row, an instruction for each operation."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], P):
        n = min(P, x.shape[0] - r)
        tile, largest = load(x[r:r + n]), new(n, 1)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=tile, axis=1, keepdims=True)
        less = scaled(tile, nl.subtract, largest)
        nisa.activation(dst=less, op=nl.exp, data=less)
        total, result = row_sum(less), new(n, x.shape[1], x.dtype)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_copy(dst=result, src=scaled(less, nl.multiply, total))
        nisa.dma_copy(dst=out[r:r + n], src=result)
    return out


@nki.jit
def layer_norm(x, gamma, beta, epsilon=1e-5):
    """Return the layer norm of each row; gamma and beta are loaded for every tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    share = 1.0 / x.shape[1]
    for r in range(0, x.shape[0], P):
        n = min(P, x.shape[0] - r)
        tile = load(x[r:r + n])
        centred = scaled(tile, nl.subtract, scaled(row_sum(tile), nl.multiply, share))
        squares = multiplied(centred, centred, nl.multiply, nl.float32)
        normed = scaled(centred, nl.multiply, root(row_sum(squares), share, epsilon))
        normed = multiplied(normed, load(gamma.broadcast(0, n)), nl.multiply, nl.float32)
        normed = multiplied(normed, load(beta.broadcast(0, n)), nl.add, x.dtype)
        nisa.dma_copy(dst=out[r:r + n], src=normed)
    return out


@nki.jit
def rms_norm(x, gamma, epsilon=1e-5):
    """Return the RMS norm of each row; gamma is loaded for every tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], P):
        n = min(P, x.shape[0] - r)
        tile = load(x[r:r + n])
        squares = multiplied(tile, tile, nl.multiply, nl.float32)
        normed = scaled(tile, nl.multiply, root(row_sum(squares), 1.0 / x.shape[1], epsilon))
        normed = multiplied(normed, load(gamma.broadcast(0, n)), nl.multiply, x.dtype)
        nisa.dma_copy(dst=out[r:r + n], src=normed)
    return out


@nki.jit
def add_rms_norm(x, residual, gamma, epsilon=1e-5):
    """Return rms_norm(x + residual) and x + residual; the sum goes to HBM and comes back."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    added = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], P):
        n = min(P, x.shape[0] - r)
        total = multiplied(load(x[r:r + n]), load(residual[r:r + n]), nl.add, x.dtype)
        nisa.dma_copy(dst=added[r:r + n], src=total)
    for r in range(0, x.shape[0], P):
        n = min(P, x.shape[0] - r)
        tile = load(added[r:r + n])
        squares = multiplied(tile, tile, nl.multiply, nl.float32)
        normed = scaled(tile, nl.multiply, root(row_sum(squares), 1.0 / x.shape[1], epsilon))
        normed = multiplied(normed, load(gamma.broadcast(0, n)), nl.multiply, x.dtype)
        nisa.dma_copy(dst=out[r:r + n], src=normed)
    return out, added


@nki.jit
def softmax_long(x):
    """Return the softmax of each row in three passes: the maximum, the sum, the result."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, rows, P):
        n = min(P, rows - r)
        largest, total, part = new(n, 1), new(n, 1), new(n, 1)
        nisa.memset(dst=largest, value=3.0e38)
        nisa.memset(dst=total, value=0.0)
        for c in range(0, columns, CHUNK):
            tile = load(x[r:r + n, c:min(c + CHUNK, columns)])
            nisa.tensor_reduce(dst=part, op=nl.maximum, data=tile, axis=1, negate=True,
                               keepdims=True)
            nisa.tensor_tensor(dst=largest, data1=largest, data2=part, op=nl.minimum)
        for c in range(0, columns, CHUNK):
            tile = load(x[r:r + n, c:min(c + CHUNK, columns)])
            powers = new(n, tile.shape[1])
            nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, bias=largest,
                                   reduce_op=nl.add, reduce_res=part)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.reciprocal(dst=total, data=total)
        for c in range(0, columns, CHUNK):
            end = min(c + CHUNK, columns)
            tile = load(x[r:r + n, c:end])
            powers, result = new(n, end - c), new(n, end - c, x.dtype)
            nisa.activation(dst=powers, op=nl.exp, data=tile, bias=largest)
            nisa.tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=total)
            nisa.dma_copy(dst=out[r:r + n, c:end], src=result)
    return out
