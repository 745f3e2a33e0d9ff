"""Step 2: only what is chosen is loaded; GpSimd makes its descriptors, and tiles wait in line."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: the rows that one gather takes, and the terms that one product adds up
BANK = 512  # float32 numbers that a bank of PSUM has in each partition


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    pieces = []
    for start in range(0, length, step):
        pieces.append((start, min(step, length - start)))
    return pieces


def new(shape, dtype=nl.float32, buffer=nl.sbuf):
    """Return a new tile; nothing is written in it yet."""
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape, source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def load_columns(rows):
    """Return rows [m, d] of a tile as a list of d / 128 tiles [128, m], one for each block of d.

    Partition p of block c has column p * (d / 128) + c. A matrix [d, n] that is loaded with
    `load_matrix` lies in the same order, and each of its partitions is one piece of HBM.
    """
    m, d = rows.shape
    blocks, turned = d // P, new((P, d // P * m), rows.dtype)
    bank, each = None, BANK // m
    for part in cut(blocks, each):
        b, size = part
        bank = new((P, size * m), rows.dtype, nl.psum)
        for i in range(size):
            nisa.nc_transpose(dst=bank[:, i * m:i * m + m], data=rows[:, b + i:d:blocks])
        nisa.tensor_copy(dst=turned[:, b * m:(b + size) * m], src=bank)
    columns = []
    for c in range(blocks):
        columns.append(turned[:, c * m:c * m + m])
    return columns


def load_matrix(source):
    """Return a matrix of HBM [d, n] as a tile [128, d / 128, n], in the order of load_columns."""
    d, n = source.shape
    return load(source.reshape((P, d // P, n)))


def choose(share, number, bank, scores):
    """Write the weights [m, k] and the numbers [m, k] of the k largest logits of each row.

    `bank` has the logits [m, experts] in PSUM. The largest comes first.
    """
    m, k = share.shape
    logits, best, place = new(bank.shape), new((m, 8)), new((m, 8), nl.uint32)
    powers, total = new((m, k)), new((m, 1))
    nisa.tensor_copy(dst=logits, src=bank)
    nisa.max8(dst=best, src=logits)
    nisa.nc_find_index8(dst=place, data=logits, vals=best)
    nisa.tensor_copy(dst=number, src=place[:, 0:k])
    if scores == "softmax":
        largest = new((m, 1))
        nisa.tensor_scalar(dst=largest, data=best[:, 0:1], op0=nl.multiply, operand0=-1.0)
        nisa.activation_reduce(dst=powers, op=nl.exp, data=best[:, 0:k], bias=largest,
                               reduce_op=nl.add, reduce_res=total)
    else:
        nisa.activation_reduce(dst=powers, op=nl.sigmoid, data=best[:, 0:k],
                               reduce_op=nl.add, reduce_res=total)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=share, data=powers, op0=nl.multiply, operand0=total)


@nki.jit
def route(x, router, k, scores="softmax"):
    """Return the weights [n, k] and numbers [n, k] (uint32) of the k best experts of each token.

    x is [n, d], router [d, experts]; k is at most 8, and there are 8 to 512 experts. The best one
    comes first. With scores="softmax" the weights are the softmax of the k largest logits; with
    "sigmoid" they are the sigmoids of these, divided by their sum.
    """
    n, d = x.shape
    weights = nl.ndarray((n, k), dtype=nl.float32, buffer=nl.shared_hbm)
    chosen = nl.ndarray((n, k), dtype=nl.uint32, buffer=nl.shared_hbm)
    matrix = load_matrix(router)
    for piece in cut(n, P):
        r, m = piece
        shares, numbers = new((m, k)), new((m, k), nl.uint32)
        columns = load_columns(load(x[r:r + m]))
        bank = new((m, router.shape[1]), nl.float32, nl.psum)
        for c in range(d // P):
            nisa.nc_matmul(dst=bank, stationary=columns[c], moving=matrix[:, c],
                           accumulate=c > 0)
        choose(shares, numbers, bank, scores)
        nisa.dma_copy(dst=weights[r:r + m], src=shares)
        nisa.dma_copy(dst=chosen[r:r + m], src=numbers)
    return weights, chosen


def load_expert(source, number):
    """Return the matrix [d, n] of one expert of source [experts, d, n], as load_matrix does.

    `number` is a tile [1, 1] of int32: which expert it is, known at run time.
    """
    _, d, n = source.shape
    tile = new((P, d // P, n), source.dtype)
    pattern = [[d // P * n, P], [n, d // P], [1, n]]
    nisa.dma_copy(dst=tile, src=source.ap(pattern, scalar_offset=number, indirect_dim=0))
    return tile


def times(column, matrix):
    """Return column matrix in SBUF as [128, n / 128]: a vector of d numbers times [d, n].

    `column` is [128, d / 128], `matrix` [128, d / 128, n]; both in the order of load_columns, and
    so is the result.
    """
    blocks, n = matrix.shape[1], matrix.shape[2]
    result = new((P, n // P))
    for b in range(n // P):
        total = new((P, 1), nl.float32, nl.psum)  # a bank has one open sum
        for c in range(blocks):
            nisa.nc_matmul(dst=total, stationary=matrix[:, c, b:n:n // P],
                           moving=column[:, c:c + 1], accumulate=c > 0)
        nisa.tensor_copy(dst=result[:, b:b + 1], src=total)
    return result


def network(column, parts):
    """Return silu(column gate) * (column up) times down, as `times` does; parts are the three."""
    h = parts[0].shape[2]
    hidden, wide = new((P, h // P), column.dtype), new((P, h // P))
    nisa.activation(dst=wide, op=nl.silu, data=times(column, parts[0]))
    nisa.tensor_tensor(dst=hidden, data1=wide, data2=times(column, parts[1]), op=nl.multiply)
    return times(hidden, parts[2])


def add_up(sums, product, share, first):
    """Write share * product into sums, or add it; share is a column [128, 1]."""
    if first:
        nisa.tensor_scalar(dst=sums, data=product, op0=nl.multiply, operand0=share)
    else:
        nisa.scalar_tensor_tensor(dst=sums, data=product, op0=nl.multiply, operand0=share,
                                  op1=nl.add, operand1=sums)


def load_choice(chosen, weights):
    """Return chosen as a tile [1, n * k], and weights in every partition, [128, n * k]."""
    n, k = chosen.shape
    return (load(chosen.reshape((1, n * k))),
            load(weights.reshape((1, n * k)).broadcast(0, P)))


def store_row(row, sums):
    """Store sums [128, d / 128] as a row of HBM [d], in its dtype."""
    result = new(sums.shape, row.dtype)
    nisa.tensor_copy(dst=result, src=sums)
    nisa.dma_copy(dst=row.reshape(sums.shape), src=result)


@nki.jit
def decode(x, gate, up, down, chosen, weights):
    """Return the mixture [n, d] of a few tokens x [n, d]: each goes through its own k experts.

    gate and up are [experts, d, h], down [experts, h, d]; chosen [n, k] (int32) are the numbers of
    each token's experts, weights [n, k] (float32) their weights. d and h are multiples of 128.
    """
    n, d = x.shape
    k = chosen.shape[1]
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    numbers, shares = load_choice(chosen, weights)
    for t in range(n):
        column, sums = load(x[t].reshape((P, d // P))), new((P, d // P))
        for j in range(t * k, t * k + k):
            number = numbers[:, j:j + 1]
            parts = load_expert(gate, number), load_expert(up, number), load_expert(down, number)
            add_up(sums, network(column, parts), shares[:, j:j + 1], j == t * k)
        store_row(out[t], sums)
    return out


def scaled(result, scale):
    """Return a result of `times` [128, blocks] in SBUF, each number times its own scale."""
    tile = new(result.shape)
    nisa.tensor_tensor(dst=tile, data1=result, data2=scale, op=nl.multiply)
    return tile


@nki.jit
def decode_fp8(x, gate, up, down, scales, chosen, weights):
    """Return what decode does, for matrices of float8_e4m3 with a scale for each column.

    scales [experts, 128, (2 h + d) / 128] (float32) lie as they are needed. With b = h / 128,
    scales[e, p] has the scales of columns p * b to p * b + b - 1 of gate, those of up, and then
    those of the d / 128 columns of down that belong to partition p.
    """
    n, d = x.shape
    h, k = gate.shape[2], chosen.shape[1]
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    numbers, shares = load_choice(chosen, weights)
    b = h // P
    for t in range(n):
        column, sums = load(x[t].reshape((P, d // P))), new((P, d // P))
        for j in range(t * k, t * k + k):
            number = numbers[:, j:j + 1]
            parts = load_expert(gate, number), load_expert(up, number), load_expert(down, number)
            width, scale = scales.shape[2], new((P, scales.shape[2]))
            for c, w in ((0, b), (b, b), (2 * b, d // P)):
                nisa.dma_copy(dst=scale[:, c:c + w], src=scales.ap(
                    [[width, P], [1, w]], offset=c, scalar_offset=numbers[:, j:j + 1],
                    indirect_dim=0))
            wide, hidden = new((P, b)), new((P, b), x.dtype)
            nisa.activation(dst=wide, op=nl.silu,
                            data=scaled(times(column, parts[0]), scale[:, 0:b]))
            nisa.tensor_tensor(dst=hidden, data1=wide, op=nl.multiply,
                               data2=scaled(times(column, parts[1]), scale[:, b:2 * b]))
            product = scaled(times(hidden, parts[2]), scale[:, 2 * b:2 * b + d // P])
            add_up(sums, product, shares[:, j:j + 1], j == t * k)
        store_row(out[t], sums)
    return out


@nki.jit
def experts(x, gate, up, down, tokens, weights):
    """Return the mixture [n, d] of many tokens: each expert takes the rows of those that chose it.

    tokens [experts, c] (int32) are the numbers of an expert's tokens, weights [experts, c]
    (float32) their weights. A number that is not that of a row of x stands for no token. The
    matrices are as in decode; h is at most 512.
    """
    n, d = x.shape
    capacity = tokens.shape[1]
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    for piece in cut(n, P):
        r, m = piece
        zeros = new((m, d), x.dtype)
        nisa.memset(dst=zeros, value=0.0)
        nisa.dma_copy(dst=out[r:r + m], src=zeros)
    for e in range(gate.shape[0]):
        parts = load_matrix(gate[e]), load_matrix(up[e]), load_matrix(down[e])
        for piece in cut(capacity, P):
            r, m = piece
            index = load(tokens[e, r:r + m].reshape((m, 1)))
            share = load(weights[e, r:r + m].reshape((m, 1)))
            rows, place = new((m, d), x.dtype), out.vector_select(0, index)
            nisa.memset(dst=rows, value=0.0)
            nisa.dma_copy(dst=rows, src=x.vector_select(0, index), oob_mode=nisa.oob_mode.skip)
            result = batch(load_columns(rows), parts, share)
            nisa.dma_compute(dst=place, srcs=[result, place], reduce_op=nl.add,
                             oob_mode=nisa.oob_mode.skip)
    return out


def batch(columns, parts, share):
    """Return share * network of m tokens as [m, d] in SBUF.

    `columns` are the tokens as load_columns gives them, `parts` the three matrices, `share` [m, 1].
    """
    gate, up, down = parts
    m, h, d = columns[0].shape[1], gate.shape[2], down.shape[2]
    dtype, blocks = columns[0].dtype, h // P
    hidden, result = new((P, blocks * m), dtype), new((m, d), dtype)
    for b in range(blocks):
        sides = []
        for matrix in (gate, up):
            bank = new((P, m), nl.float32, nl.psum)
            for c in range(len(columns)):
                nisa.nc_matmul(dst=bank, stationary=matrix[:, c, b:h:blocks], moving=columns[c],
                               accumulate=c > 0)
            sides.append(bank)
        wide = new((P, m))
        nisa.activation(dst=wide, op=nl.silu, data=sides[0])
        nisa.tensor_tensor(dst=hidden[:, b * m:b * m + m], data1=wide, data2=sides[1],
                           op=nl.multiply)
    for piece in cut(d, BANK):
        c, w = piece
        bank = new((m, w), nl.float32, nl.psum)
        for b in range(blocks):
            nisa.nc_matmul(dst=bank, stationary=hidden[:, b * m:b * m + m],
                           moving=down[:, b, c:c + w], accumulate=b > 0)
        nisa.tensor_scalar(dst=result[:, c:c + w], data=bank, op0=nl.multiply, operand0=share)
    return result


def load_scales_mx(source, number):
    """Return one expert's exponents [128, s] of source [experts, 16, s] (uint8).

    The exponents of 32 partitions lie in the first four of them, and nothing in the others.
    """
    _, _, s = source.shape
    tile = new((P, s), source.dtype)
    for q in range(4):
        place = source.ap([[s, 4], [1, s]], offset=4 * q * s, scalar_offset=number, indirect_dim=0)
        nisa.dma_copy(dst=tile[32 * q:32 * q + 4], src=place)
    return tile


def load_packs(source, number):
    """Return one expert's matrix of MXFP8 [d / 4, n, 4] as packs [128, d / 512, n].

    Row b * 128 + p of packs is in partition p, block b.
    """
    _, rows, n, _ = source.shape
    tile = new((P, rows // P, n * 4), source.dtype)
    place = source.ap([[n * 4, P], [P * n * 4, rows // P], [1, n * 4]], scalar_offset=number,
                      indirect_dim=0)
    nisa.dma_copy(dst=tile, src=place)
    return tile.view(nl.float8_e4m3fn_x4)


def pack(column):
    """Return a column [128, 4 * blocks] as packs [128, blocks] of MXFP8, and its scales."""
    blocks = column.shape[1] // 4
    packs, rows = new((P, blocks), nl.float8_e4m3fn_x4), new((P, blocks), nl.uint8)
    nisa.quantize_mx(dst=packs, src=column, dst_scale=rows)
    return packs, rows


def times_mx(column, matrix):
    """Return column matrix in SBUF as [128, n / 128]; both operands are pairs: packs and scales.

    Number 512 * b + 4 * p + r of the result is in partition p, column 4 * b + r: so lie the
    four numbers of a pack.
    """
    packs, rows = matrix
    blocks, n = packs.shape[1], packs.shape[2]
    result = new((P, n // P))
    for b in range(n // P):
        first, total = b // 4 * 4 * P + b % 4, new((P, 1), nl.float32, nl.psum)
        for c in range(blocks):
            nisa.nc_matmul_mx(
                dst=total, stationary=packs[:, c, first:first + 4 * P - 3:4],
                stationary_scale=rows[:, c, first:first + 4 * P - 3:4],
                moving=column[0][:, c:c + 1], moving_scale=column[1][:, c:c + 1],
                accumulate=c > 0)
        nisa.tensor_copy(dst=result[:, b:b + 1], src=total)
    return result


@nki.jit
def decode_mx(x, gate, up, down, scales, chosen, weights):
    """Return what decode does, for matrices of MXFP8 (Trainium 3).

    gate and up are [experts, d / 4, h, 4], down [experts, h / 4, d, 4]: four numbers of a column
    lie side by side, a pack. scales [experts, 16, s] (uint8) has a row for 8 rows of packs: the
    exponents of the d / 512 blocks of gate (h columns each), of up, and of the h / 512 blocks of
    down (d columns each). d and h are multiples of 512. Tokens are bfloat16.
    """
    n, d = x.shape
    h, k = gate.shape[2], chosen.shape[1]
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    numbers, shares = load_choice(chosen, weights)
    wide, last = d // 512 * h, h // 512 * d
    for t in range(n):
        column, sums = new((P, d // P), x.dtype), new((P, d // P))
        result, order = new((P, d // P), x.dtype), [[4, P], [4 * P, d // 512], [1, 4]]
        nisa.dma_copy(dst=column.reshape((P, d // 512, 4)), src=x.ap(order, offset=t * d))
        packed = pack(column)
        for j in range(t * k, t * k + k):
            number = numbers[:, j:j + 1]
            parts = load_packs(gate, number), load_packs(up, number), load_packs(down, number)
            rows = load_scales_mx(scales, number)
            shape = (P, d // 512, h)
            opened, hidden = new((P, h // P)), new((P, h // P), x.dtype)
            nisa.activation(dst=opened, op=nl.silu, data=times_mx(
                packed, (parts[0], rows[:, 0:wide].reshape(shape))))
            nisa.tensor_tensor(dst=hidden, data1=opened, op=nl.multiply, data2=times_mx(
                packed, (parts[1], rows[:, wide:2 * wide].reshape(shape))))
            product = times_mx(pack(hidden), (
                parts[2], rows[:, 2 * wide:2 * wide + last].reshape((P, h // 512, d))))
            add_up(sums, product, shares[:, j:j + 1], j == t * k)
        nisa.tensor_copy(dst=result, src=sums)
        nisa.dma_copy(dst=out.ap(order, offset=t * d), src=result.reshape((P, d // 512, 4)))
    return out
