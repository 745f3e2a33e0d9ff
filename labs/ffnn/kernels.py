"""ffnn: a network with one hidden layer, from four kernels that call each other.

    hidden = relu(X @ W1 + b1)        probs = softmax(hidden @ W2 + b2)        argmax of each row

A matmul of the Tensor Engine contracts over partitions, so its left operand is wanted transposed:
[K, M] instead of [M, K]. That is why every layer begins with a transpose.
"""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P = 128  # partitions: rows of every tile
BANK = 512  # float32 results of a matmul that one PSUM bank holds per partition


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    return [(start, min(step, length - start)) for start in range(0, length, step)]


@nki.jit
def nki_transpose(in_tensor):
    """Transpose a 2-D tensor [rows, cols]; both must be multiples of 128."""
    rows, cols = in_tensor.shape
    assert rows % P == 0 and cols % P == 0, (
        f"nki_transpose works in tiles of {P} x {P}; {rows} x {cols} is not a multiple of that")
    # BEGIN SOLUTION step=2 section="2. nki_transpose"
    # Blocks of 1024 x 1024 make both the loads and the stores 4 KiB per partition (float32);
    # inside, the Tensor Engine turns tiles of 128 x 128, and one copy drains a PSUM bank of them.
    dtype = in_tensor.dtype
    out_tensor = nl.ndarray((cols, rows), dtype=dtype, buffer=nl.hbm)
    # the Tensor Engine of trn1 writes float32 only; that of trn2 keeps the dtype of a transpose
    of_psum = dtype if nisa.get_nc_version() == nisa.nc_version.gen3 else nl.float32
    row_blocks, col_blocks = cut(rows, 8 * P), cut(cols, 8 * P)
    for y in nl.static_range(len(row_blocks)):
        for x in nl.static_range(len(col_blocks)):
            (r0, height), (c0, width) = row_blocks[y], col_blocks[x]
            tile = nl.ndarray((P, height // P, width), dtype=dtype, buffer=nl.sbuf)
            turned = nl.ndarray((P, width // P, height), dtype=dtype, buffer=nl.sbuf)
            for r in nl.affine_range(height // P):
                tile[:, r] = nl.load(in_tensor[r0 + r * P:r0 + (r + 1) * P, c0:c0 + width])
            banks = cut(height // P, BANK // P)
            for c in nl.affine_range(width // P):
                for g in nl.static_range(len(banks)):
                    first, count = banks[g]
                    bank = nl.ndarray((P, count, P), dtype=of_psum, buffer=nl.psum)
                    for r in nl.affine_range(count):
                        bank[:, r] = nisa.nc_transpose(tile[:, first + r, c * P:(c + 1) * P])
                    turned[:, c, first * P:(first + count) * P] = nisa.tensor_copy(
                        bank.reshape((P, count * P)), dtype=dtype)
                nl.store(out_tensor[c0 + c * P:c0 + (c + 1) * P, r0:r0 + height],
                         value=turned[:, c])
    return out_tensor
    # END SOLUTION


@nki.jit
def nki_bias_add_act(A, b, act="relu"):
    """Add the row vector b [1, n] to every row of A [m, n] and apply act: "relu" or "softmax"."""
    height, width = A.shape
    assert b.shape[0] == 1 and b.shape[1] == width, (
        f"the bias must have one row of {width} elements, as A has columns; it is {b.shape}")
    assert act in ("relu", "softmax"), f"act must be 'relu' or 'softmax'; it is {act!r}"
    # BEGIN SOLUTION step=3 section="3. nki_bias_add_act"
    result = nl.ndarray((height, width), dtype=A.dtype, buffer=nl.hbm)
    # relu needs no whole rows: of pieces of 8 KiB per partition SBUF holds several at a time
    col_blocks, row_blocks = cut(width, width if act == "softmax" else 4 * BANK), cut(height, P)
    for x in nl.static_range(len(col_blocks)):
        c, w = col_blocks[x]
        # Engines do not repeat a tile over partitions; it is done once, for all rows.
        bias = nl.broadcast_to(nl.load(b[:, c:c + w]), shape=(P, w))
        for y in nl.static_range(len(row_blocks)):
            r, n = row_blocks[y]
            z = nisa.tensor_tensor(nl.load(A[r:r + n, c:c + w]), bias[0:n], op=nl.add,
                                   dtype=nl.float32)
            if act == "relu":
                nl.store(result[r:r + n, c:c + w],
                         value=nisa.activation(nl.relu, z, dtype=A.dtype))
            else:
                # exp(z - max) / sum of it: the largest exponent is 0, so nothing overflows
                minus_max = nisa.tensor_reduce(nl.max, z, axis=[1], negate=True)
                total = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
                e = nisa.activation_reduce(nl.exp, z, bias=minus_max, reduce_op=nl.add,
                                           reduce_res=total)
                nl.store(result[r:r + n, :],
                         value=nisa.tensor_scalar(e, nl.multiply, nisa.reciprocal(total),
                                                  dtype=A.dtype))
    return result
    # END SOLUTION


def check_matmul(lhsT, rhs):
    """Refuse what the matmul kernels cannot do; return K, M, N and the columns of a tile."""
    K, M = lhsT.shape
    rows, N = rhs.shape
    assert rows == K, f"lhsT has {K} rows and rhs {rows}; they are summed over, and must agree"
    assert K % P == 0 and M % P == 0, (
        f"the rows and columns of lhsT must be multiples of {P}; it is {K} x {M}")
    width = min(N, BANK)
    assert N % width == 0, f"rhs must have at most {BANK} columns or a multiple of it; it has {N}"
    return K, M, N, width


@nki.jit
def nki_matmul_tiled(lhsT, rhs):
    """Return lhsT.T @ rhs: every matmul loads both of its operands."""
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.hbm)
    for m in nl.affine_range(M // P):
        for n in nl.affine_range(N // width):
            acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // P):
                left = nl.load(lhsT[k * P:(k + 1) * P, m * P:(m + 1) * P])
                right = nl.load(rhs[k * P:(k + 1) * P, n * width:(n + 1) * width])
                acc += nisa.nc_matmul(left, right)
            nl.store(result[m * P:(m + 1) * P, n * width:(n + 1) * width],
                     value=nl.copy(acc, dtype=result.dtype))
    return result


@nki.jit
def nki_matmul_hoist_load(lhsT, rhs):
    """Return lhsT.T @ rhs: a column of lhsT is loaded once for a whole row of the result."""
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.hbm)
    for m in nl.affine_range(M // P):
        left = nl.ndarray((P, K // P, P), dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(K // P):
            left[:, k] = nl.load(lhsT[k * P:(k + 1) * P, m * P:(m + 1) * P])
        for n in nl.affine_range(N // width):
            acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // P):
                right = nl.load(rhs[k * P:(k + 1) * P, n * width:(n + 1) * width])
                acc += nisa.nc_matmul(left[:, k], right)
            nl.store(result[m * P:(m + 1) * P, n * width:(n + 1) * width],
                     value=nl.copy(acc, dtype=result.dtype))
    return result


@nki.jit
def nki_matmul_block_free_dimension(lhsT, rhs):
    """Return lhsT.T @ rhs in blocks of up to 4 x 2 tiles that accumulate in the 8 PSUM banks.

    A tile of lhsT now serves 2 matmuls and one of rhs 4, and the loads are as much wider.
    """
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.hbm)
    m_blocks, n_blocks = cut(M, 4 * P), cut(N, 2 * width)
    for y in nl.static_range(len(m_blocks)):
        for x in nl.static_range(len(n_blocks)):
            (m0, height), (n0, breadth) = m_blocks[y], n_blocks[x]
            acc = nl.zeros((height // P, breadth // width, nl.par_dim(P), width),
                           dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // P):
                left = nl.load(lhsT[k * P:(k + 1) * P, m0:m0 + height])
                right = nl.load(rhs[k * P:(k + 1) * P, n0:n0 + breadth])
                for m in nl.affine_range(height // P):
                    for n in nl.affine_range(breadth // width):
                        acc[m, n] += nisa.nc_matmul(left[:, m * P:(m + 1) * P],
                                                    right[:, n * width:(n + 1) * width])
            store_block(result, acc, m0, n0)
    return result


def store_block(result, acc, m0, n0):
    """Drain a block of PSUM banks to the result at (m0, n0), a row of tiles a store."""
    width = acc.shape[3]
    for m in nl.affine_range(acc.shape[0]):
        row = nl.ndarray((P, acc.shape[1] * width), dtype=result.dtype, buffer=nl.sbuf)
        for n in nl.affine_range(acc.shape[1]):
            row[:, n * width:(n + 1) * width] = nisa.tensor_copy(acc[m, n], dtype=result.dtype)
        nl.store(result[m0 + m * P:m0 + (m + 1) * P, n0:n0 + acc.shape[1] * width], value=row)


@nki.jit
def nki_matmul_fully_optimized(lhsT, rhs):
    """Return lhsT.T @ rhs: as blocked above, and the block of lhsT stays in SBUF.

    A block of lhsT (all of K) is loaded once and serves the whole row of blocks of the result, so
    that only rhs streams: M / (rows of the block) times, instead of that and lhsT N / 1024 times.
    It comes 4 x 128 rows at a time, so that loads run ahead of the Tensor Engine.
    """
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.hbm)
    room = nl.tile_size.total_available_sbuf_size * 3 // 4  # the rest: rhs and results
    per_tile = K // P * P * nl.constants.sizeinbytes(lhsT.dtype)
    assert per_tile <= room, (
        f"{P} columns of lhsT take {per_tile} bytes per partition; {room} are left for them")
    m_blocks, n_blocks = cut(M, min(4, room // per_tile) * P), cut(N, 2 * width)
    k_blocks = cut(K // P, 4)
    for y in nl.static_range(len(m_blocks)):
        m0, height = m_blocks[y]
        left = nl.ndarray((P, K // P, height), dtype=lhsT.dtype, buffer=nl.sbuf)
        for x in nl.static_range(len(n_blocks)):
            n0, breadth = n_blocks[x]
            acc = nl.zeros((height // P, breadth // width, nl.par_dim(P), width),
                           dtype=nl.float32, buffer=nl.psum)
            for g in nl.static_range(len(k_blocks)):
                k0, depth = k_blocks[g]
                right = nl.ndarray((P, depth, breadth), dtype=rhs.dtype, buffer=nl.sbuf)
                for k in nl.affine_range(depth):
                    first = (k0 + k) * P
                    if x == 0:  # just in time: the first matmuls need not wait for all of the block
                        left[:, k0 + k] = nl.load(lhsT[first:first + P, m0:m0 + height])
                    right[:, k] = nl.load(rhs[first:first + P, n0:n0 + breadth])
                for k in nl.affine_range(depth):
                    for m in nl.affine_range(height // P):
                        for n in nl.affine_range(breadth // width):
                            acc[m, n] += nisa.nc_matmul(left[:, k0 + k, m * P:(m + 1) * P],
                                                        right[:, k, n * width:(n + 1) * width])
            store_block(result, acc, m0, n0)
    return result


MATMULS = {"tiled": nki_matmul_tiled, "hoist_load": nki_matmul_hoist_load,
           "block_free_dimension": nki_matmul_block_free_dimension,
           "fully_optimized": nki_matmul_fully_optimized}


@nki.jit
def nki_forward(X, W1, b1, W2, b2, matmul_kernel="tiled"):
    """Return the class probabilities [batch, classes] of X [batch, inputs].

    W1 [inputs, hidden], b1 [1, hidden], W2 [hidden, classes], b2 [1, classes]. matmul_kernel:
    "tiled", "hoist_load", "block_free_dimension" or "fully_optimized".
    """
    if matmul_kernel not in MATMULS:
        raise ValueError(f"there is no matmul kernel {matmul_kernel!r}; there are "
                         f"{', '.join(MATMULS)}")
    nki_matmul = MATMULS[matmul_kernel]
    # BEGIN SOLUTION step=4 section="4. nki_forward and nki_predict"
    hidden = nki_bias_add_act(nki_matmul(nki_transpose(X), W1), b1, act="relu")
    probs = nki_bias_add_act(nki_matmul(nki_transpose(hidden), W2), b2, act="softmax")
    return probs
    # END SOLUTION


@nki.jit
def nki_predict(X, W1, b1, W2, b2, matmul_kernel="tiled"):
    """Return the most probable class of every row of X, int32 [batch]; arguments as nki_forward."""
    probs = nki_forward(X, W1, b1, W2, b2, matmul_kernel=matmul_kernel)
    batch, classes = probs.shape
    assert 8 <= classes <= 16384, (
        f"max8 looks at 8 to 16384 values per partition; there are {classes} classes")
    # BEGIN SOLUTION step=4 section="4. nki_forward and nki_predict"
    predictions = nl.ndarray((batch,), dtype=nl.int32, buffer=nl.hbm)
    row_blocks = cut(batch, P)
    for y in nl.static_range(len(row_blocks)):
        r, n = row_blocks[y]
        rows = nl.load(probs[r:r + n, :])
        largest = nisa.max8(src=rows)  # the 8 largest of each row, descending
        places = nisa.nc_find_index8(data=rows, vals=largest)  # and where they are
        nl.store(predictions[r:r + n], value=nl.copy(places[:, 0:1], dtype=nl.int32))
    return predictions
    # END SOLUTION
