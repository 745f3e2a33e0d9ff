"""Step 1: every expert for every token, an instruction for each operation, a block a transfer."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
BANK = 512


def new(shape, dtype=nl.float32, buffer=nl.sbuf):
    """Return a new tile."""
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape, source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def turned(tile):
    """Return a tile transposed, in SBUF."""
    bank = new((tile.shape[1], tile.shape[0]), tile.dtype, nl.psum)
    nisa.nc_transpose(dst=bank, data=tile)
    result = new(bank.shape, tile.dtype)
    nisa.tensor_copy(dst=result, src=bank)
    return result


def product(rows, matrix):
    """Return rows [m, d] in SBUF times a matrix [d, n] of HBM, in SBUF as float32."""
    m, d = rows.shape
    n = matrix.shape[1]
    result = new((m, n))
    for c in range(0, n, BANK):
        w = min(BANK, n - c)
        bank = new((m, w), nl.float32, nl.psum)
        for r in range(0, d, P):
            nisa.nc_matmul(dst=bank, stationary=turned(rows[:, r:r + P]),
                           moving=load(matrix[r:r + P, c:c + w]), accumulate=r > 0)
        nisa.tensor_copy(dst=result[:, c:c + w], src=bank)
    return result


def scaled(rows, scale):
    """Multiply the columns of rows by a row of numbers in HBM, if there is one."""
    if scale is not None:
        nisa.tensor_tensor(dst=rows, data1=rows, data2=load(scale.broadcast(0, rows.shape[0])),
                           op=nl.multiply)
    return rows


def network(rows, parts, scales=(None, None, None)):
    """Return silu(rows gate) * (rows up) times down; parts are the three matrices in HBM."""
    opened = scaled(product(rows, parts[0]), scales[0])
    other = scaled(product(rows, parts[1]), scales[1])
    hidden = new(opened.shape, rows.dtype)
    nisa.activation(dst=opened, op=nl.silu, data=opened)
    nisa.tensor_tensor(dst=hidden, data1=opened, data2=other, op=nl.multiply)
    return scaled(product(hidden, parts[2]), scales[2])


@nki.jit
def gather(table, which):
    """Return the rows that which names, one row a transfer, through SBUF."""
    n, d = which.shape[0], table.shape[1]
    out = nl.ndarray((n, d), dtype=table.dtype, buffer=nl.shared_hbm)
    for r in range(n):
        number, row = load(which[r:r + 1]), new((1, d), table.dtype)
        nisa.dma_copy(dst=row, src=table.vector_select(0, number))
        nisa.dma_copy(dst=out[r:r + 1], src=row)
    return out


@nki.jit
def scatter_add(table, rows, which):
    """Add rows to those that which names, 32 at a time."""
    for r in range(0, rows.shape[0], 32):
        m = min(32, rows.shape[0] - r)
        place = table.vector_select(0, load(which[r:r + m]))
        nisa.dma_compute(dst=place, srcs=[load(rows[r:r + m]), place], reduce_op=nl.add,
                         oob_mode=nisa.oob_mode.skip)
    return table


@nki.jit
def route(x, router, k, scores="softmax"):
    """Return weights and numbers of the k best experts: k times the largest of what is left."""
    n, experts = x.shape[0], router.shape[1]
    weights = nl.ndarray((n, k), dtype=nl.float32, buffer=nl.shared_hbm)
    chosen = nl.ndarray((n, k), dtype=nl.uint32, buffer=nl.shared_hbm)
    for r in range(0, n, P):
        m = min(P, n - r)
        logits = product(load(x[r:r + m]), router)
        place, same, best, number = new(logits.shape), new(logits.shape), new((m, k)), new((m, k))
        nisa.iota(dst=place, pattern=[[1, experts]])
        for j in range(k):
            at = best[:, j:j + 1]
            nisa.tensor_reduce(dst=at, op=nl.maximum, data=logits, axis=1, keepdims=True)
            nisa.tensor_scalar(dst=same, data=logits, op0=nl.equal, operand0=at)
            found = new(logits.shape)
            nisa.tensor_tensor(dst=found, data1=same, data2=place, op=nl.multiply)
            nisa.tensor_reduce(dst=number[:, j:j + 1], op=nl.maximum, data=found, axis=1,
                               keepdims=True)
            nisa.tensor_scalar(dst=same, data=same, op0=nl.multiply, operand0=-3.0e38)
            nisa.tensor_tensor(dst=logits, data1=logits, data2=same, op=nl.add)
        total = new((m, 1))
        largest = new((m, 1))
        nisa.tensor_copy(dst=largest, src=best[:, 0:1])
        if scores == "softmax":
            nisa.tensor_scalar(dst=best, data=best, op0=nl.subtract, operand0=largest)
        nisa.activation(dst=best, op=nl.exp if scores == "softmax" else nl.sigmoid, data=best)
        nisa.tensor_reduce(dst=total, op=nl.add, data=best, axis=1, keepdims=True)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=best, data=best, op0=nl.multiply, operand0=total)
        whole = new((m, k), nl.uint32)
        nisa.tensor_copy(dst=whole, src=number)
        nisa.dma_copy(dst=weights[r:r + m], src=best)
        nisa.dma_copy(dst=chosen[r:r + m], src=whole)
    return weights, chosen


def all_experts(x, sources, scales, chosen, weights):
    """Return the mixture of a few tokens: every expert works, and most of it has the weight 0."""
    n, d = x.shape
    k, count = chosen.shape[1], sources[0].shape[0]
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    rows, number, share, sums = load(x), new((n, k)), load(weights), new((n, d))
    nisa.tensor_copy(dst=number, src=load(chosen))
    nisa.memset(dst=sums, value=0.0)
    for e in range(count):
        same, total = new((n, k)), new((n, 1))
        nisa.tensor_scalar(dst=same, data=number, op0=nl.equal, operand0=float(e))
        nisa.tensor_tensor(dst=same, data1=same, data2=share, op=nl.multiply)
        nisa.tensor_reduce(dst=total, op=nl.add, data=same, axis=1, keepdims=True)
        parts = sources[0][e], sources[1][e], sources[2][e]
        result = network(rows, parts, scales[e])
        nisa.scalar_tensor_tensor(dst=sums, data=result, op0=nl.multiply, operand0=total,
                                  op1=nl.add, operand1=sums)
    result = new((n, d), x.dtype)
    nisa.tensor_copy(dst=result, src=sums)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def decode(x, gate, up, down, chosen, weights):
    """Return the mixture of a few tokens."""
    return all_experts(x, (gate, up, down), [(None, None, None)] * gate.shape[0], chosen, weights)


@nki.jit
def decode_fp8(x, gate, up, down, scales, chosen, weights):
    """Return the mixture of a few tokens, for matrices whose columns have scales."""
    b, d, each = gate.shape[2] // P, x.shape[1], []
    for e in range(gate.shape[0]):
        each.append([scales[e, :, c:c + w].reshape((1, P, w)) for c, w in (
            (0, b), (b, b), (2 * b, d // P))])
    return all_experts(x, (gate, up, down), each, chosen, weights)


@nki.jit
def experts(x, gate, up, down, tokens, weights):
    """Return the mixture of many tokens; each tile of tokens loads its expert again."""
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, n, P):
        zeros = new((min(P, n - r), d), x.dtype)
        nisa.memset(dst=zeros, value=0.0)
        nisa.dma_copy(dst=out[r:r + P] if r + P <= n else out[r:n], src=zeros)
    for e in range(gate.shape[0]):
        for r in range(0, tokens.shape[1], P):
            m = min(P, tokens.shape[1] - r)
            index = load(tokens[e, r:r + m].reshape((m, 1)))
            share = load(weights[e, r:r + m].reshape((m, 1)))
            rows, place = new((m, d), x.dtype), out.vector_select(0, index)
            nisa.memset(dst=rows, value=0.0)
            nisa.dma_copy(dst=rows, src=x.vector_select(0, index), oob_mode=nisa.oob_mode.skip)
            result, small = network(rows, (gate[e], up[e], down[e])), new((m, d), x.dtype)
            nisa.tensor_scalar(dst=small, data=result, op0=nl.multiply, operand0=share)
            nisa.dma_compute(dst=place, srcs=[small, place], reduce_op=nl.add,
                             oob_mode=nisa.oob_mode.skip)
    return out
