"""Step 1: whole rows of scores, an instruction for each operation, and loads for every tile."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
BLOCK = 512
HIDDEN = -3.0e38


def new(rows, columns, dtype=nl.float32, buffer=nl.sbuf):
    """Return a new tile."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape[0], source.shape[1], source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def turned(tile):
    """Return a tile transposed, in SBUF."""
    bank = new(tile.shape[1], tile.shape[0], tile.dtype, nl.psum)
    nisa.nc_transpose(dst=bank, data=tile)
    result = new(tile.shape[1], tile.shape[0], tile.dtype)
    nisa.tensor_copy(dst=result, src=bank)
    return result


def scores_of(q, k, scale):
    """Return the scores of at most 128 queries with all keys, in SBUF."""
    n, m = q.shape[0], k.shape[0]
    queries, scores = turned(load(q)), new(n, m)
    for c in range(0, m, P):
        w = min(P, m - c)
        bank = new(n, w, nl.float32, nl.psum)
        nisa.nc_matmul(dst=bank, stationary=queries, moving=turned(load(k[c:c + w])),
                       accumulate=False)
        nisa.tensor_scalar(dst=scores[:, c:c + w], data=bank, op0=nl.multiply, operand0=scale)
    return scores


def weighted(scores, v, dtype):
    """Return softmax(scores) v of a tile of rows in SBUF, in the dtype of the data."""
    n, m = scores.shape
    largest, total, d = new(n, 1), new(n, 1), v.shape[1]
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=scores, axis=1, keepdims=True)
    nisa.tensor_scalar(dst=scores, data=scores, op0=nl.subtract, operand0=largest)
    nisa.activation(dst=scores, op=nl.exp, data=scores)
    nisa.tensor_reduce(dst=total, op=nl.add, data=scores, axis=1, keepdims=True)
    nisa.reciprocal(dst=total, data=total)
    powers = new(n, m, dtype)
    nisa.tensor_scalar(dst=powers, data=scores, op0=nl.multiply, operand0=total)
    product, result = new(n, d, nl.float32, nl.psum), new(n, d, dtype)
    for c in range(0, m, P):
        w = min(P, m - c)
        nisa.nc_matmul(dst=product, stationary=turned(powers[:, c:c + w]),
                       moving=load(v[c:c + w]), accumulate=c > 0)
    nisa.tensor_copy(dst=result, src=product)
    return result


def head(out, q, k, v, masked):
    """Write the attention of one head into out, 128 queries at a time."""
    n, d = q.shape
    for r in range(0, n, P):
        size = min(P, n - r)
        scores = scores_of(q[r:r + size], k, d ** -0.5)
        if masked:
            nisa.affine_select(dst=scores, pattern=[[-1, k.shape[0]]], channel_multiplier=1,
                               offset=r, on_true_tile=scores, on_false_value=HIDDEN,
                               cmp_op=nl.greater_equal)
        nisa.dma_copy(dst=out[r:r + size], src=weighted(scores, v, q.dtype))


@nki.jit
def attend(q, k, v):
    """Return the attention of q, k and v."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    head(out, q, k, v, False)
    return out


@nki.jit
def flash(q, k, v):
    """Return the attention of q, k and v."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    head(out, q, k, v, False)
    return out


@nki.jit
def causal(q, k, v):
    """Return the causal attention of q, k and v."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    head(out, q, k, v, True)
    return out


@nki.jit
def grouped(q, k, v):
    """Return the causal attention of heads in groups; each head loads its group's keys again."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    for h in range(q.shape[0]):
        g = h * k.shape[0] // q.shape[0]
        head(out[h], q[h], k[g], v[g], True)
    return out


@nki.jit
def decode(q, k, v, k_cache, v_cache, length):
    """Return the attention of one token and the caches; each head goes through them by itself."""
    heads, d = q.shape
    groups, capacity, _ = k_cache.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    row, last, after = [[capacity * d, groups], [1, d]], load(length), new(1, capacity)
    nisa.dma_copy(dst=k_cache.ap(row, scalar_offset=last, indirect_dim=1), src=load(k))
    nisa.dma_copy(dst=v_cache.ap(row, scalar_offset=last, indirect_dim=1), src=load(v))
    tokens = new(1, 1)
    nisa.tensor_copy(dst=tokens, src=last)
    nisa.iota(dst=after, pattern=[[1, capacity]])
    nisa.tensor_scalar(dst=after, data=after, op0=nl.greater, operand0=tokens, op1=nl.multiply,
                       operand1=HIDDEN)
    for h in range(heads):
        g = h * groups // heads
        scores = scores_of(q[h:h + 1], k_cache[g], d ** -0.5)
        nisa.tensor_tensor(dst=scores, data1=scores, data2=after, op=nl.add)
        nisa.dma_copy(dst=out[h:h + 1], src=weighted(scores, v_cache[g], q.dtype))
    return out, k_cache, v_cache
