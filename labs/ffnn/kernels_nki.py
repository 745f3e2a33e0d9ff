"""ffnn: a network with one hidden layer, from four kernels, in the dialect of `import nki`.

    hidden = relu(X @ W1 + b1)        probs = softmax(hidden @ W2 + b2)        argmax of each row

A matmul of the Tensor Engine contracts over partitions, so its left operand is wanted transposed:
[K, M] instead of [M, K]. That is why every layer begins with a transpose.

An instruction names the tile that it writes, and accumulate= says which products of the Tensor
Engine are added to what a tile in PSUM holds.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: rows of every tile
BANK = 512  # float32 results of a matmul that one PSUM bank holds per partition


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    pieces = []
    for start in range(0, length, step):
        pieces.append((start, min(step, length - start)))
    return pieces


def load(source, shape):
    """Return a new tile in SBUF with what lies in a part of HBM."""
    tile = nl.ndarray(shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


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
    out_tensor = nl.ndarray((cols, rows), dtype=dtype, buffer=nl.shared_hbm)
    for row_block in cut(rows, 8 * P):
        for col_block in cut(cols, 8 * P):
            r0, height = row_block
            c0, width = col_block
            tile = nl.ndarray((P, height // P, width), dtype=dtype, buffer=nl.sbuf)
            turned = nl.ndarray((P, width // P, height), dtype=dtype, buffer=nl.sbuf)
            for r in range(height // P):
                nisa.dma_copy(dst=tile[:, r],
                              src=in_tensor[r0 + r * P:r0 + (r + 1) * P, c0:c0 + width])
            for c in range(width // P):
                for bank in cut(height // P, BANK // P):
                    first, count = bank
                    turning = nl.ndarray((P, count, P), dtype=dtype, buffer=nl.psum)
                    for r in range(count):
                        nisa.nc_transpose(dst=turning[:, r],
                                          data=tile[:, first + r, c * P:(c + 1) * P])
                    nisa.tensor_copy(dst=turned[:, c, first * P:(first + count) * P],
                                     src=turning.reshape((P, count * P)))
                nisa.dma_copy(dst=out_tensor[c0 + c * P:c0 + (c + 1) * P, r0:r0 + height],
                              src=turned[:, c])
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
    result = nl.ndarray((height, width), dtype=A.dtype, buffer=nl.shared_hbm)
    # relu needs no whole rows: of pieces of 8 KiB per partition SBUF holds several at a time
    for col_block in cut(width, width if act == "softmax" else 4 * BANK):
        c, w = col_block
        # Engines do not repeat a tile over partitions. A DMA can read one row of HBM many times:
        # the view has a step of 0 between its rows.
        bias = load(b[:, c:c + w].broadcast(0, P), (P, w))
        for row_block in cut(height, P):
            r, n = row_block
            a = load(A[r:r + n, c:c + w], (n, w))
            z = nl.ndarray((n, w), dtype=nl.float32, buffer=nl.sbuf)
            y = nl.ndarray((n, w), dtype=A.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=z, data1=a, data2=bias[0:n], op=nl.add)
            if act == "relu":
                nisa.activation(dst=y, op=nl.relu, data=z)
            else:
                # exp(z - max) / sum of it: the largest exponent is 0, so nothing overflows
                minus_max = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
                total = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
                e = nl.ndarray((n, w), dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=z, axis=1, negate=True,
                                   keepdims=True)
                nisa.activation_reduce(dst=e, op=nl.exp, data=z, bias=minus_max,
                                       reduce_op=nl.add, reduce_res=total)
                nisa.reciprocal(dst=total, data=total)
                nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=total)
            nisa.dma_copy(dst=result[r:r + n, c:c + w], src=y)
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


def drain(result, acc, m0, n0, width):
    """Copy a PSUM bank to SBUF, in the dtype of the result, and store it at (m0, n0)."""
    tile = nl.ndarray((P, width), dtype=result.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=acc)
    nisa.dma_copy(dst=result[m0:m0 + P, n0:n0 + width], src=tile)


@nki.jit
def nki_matmul_tiled(lhsT, rhs):
    """Return lhsT.T @ rhs: every matmul loads both of its operands."""
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(0, M, P):
        for n in range(0, N, width):
            acc = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, K, P):
                left = load(lhsT[k:k + P, m:m + P], (P, P))
                right = load(rhs[k:k + P, n:n + width], (P, width))
                # the first product is written, the others are added to it
                nisa.nc_matmul(dst=acc, stationary=left, moving=right, accumulate=k > 0)
            drain(result, acc, m, n, width)
    return result


@nki.jit
def nki_matmul_hoist_load(lhsT, rhs):
    """Return lhsT.T @ rhs: a column of lhsT is loaded once for a whole row of the result."""
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(0, M, P):
        left = nl.ndarray((P, K // P, P), dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in range(K // P):
            nisa.dma_copy(dst=left[:, k], src=lhsT[k * P:(k + 1) * P, m:m + P])
        for n in range(0, N, width):
            acc = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in range(K // P):
                right = load(rhs[k * P:(k + 1) * P, n:n + width], (P, width))
                nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right, accumulate=k > 0)
            drain(result, acc, m, n, width)
    return result


def open_banks(rows, columns, width):
    """Return rows x columns tiles in PSUM, a bank each: what a block of the result adds up in."""
    banks = []
    for _ in range(rows):
        row = []
        for _ in range(columns):
            row.append(nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum))
        banks.append(row)
    return banks


def store_block(result, banks, m0, n0, width):
    """Drain a block of PSUM banks to the result at (m0, n0), a row of tiles a store."""
    for m in range(len(banks)):
        row = nl.ndarray((P, len(banks[m]) * width), dtype=result.dtype, buffer=nl.sbuf)
        for n in range(len(banks[m])):
            nisa.tensor_copy(dst=row[:, n * width:(n + 1) * width], src=banks[m][n])
        nisa.dma_copy(dst=result[m0 + m * P:m0 + (m + 1) * P, n0:n0 + len(banks[m]) * width],
                      src=row)


def multiply_block(banks, left, right, width, accumulate):
    """Multiply each 128 columns of left with each `width` columns of right, a bank a product."""
    for m in range(len(banks)):
        for n in range(len(banks[m])):
            nisa.nc_matmul(dst=banks[m][n], stationary=left[:, m * P:(m + 1) * P],
                           moving=right[:, n * width:(n + 1) * width], accumulate=accumulate)


@nki.jit
def nki_matmul_block_free_dimension(lhsT, rhs):
    """Return lhsT.T @ rhs in blocks of up to 4 x 2 tiles that accumulate in the 8 PSUM banks.

    A tile of lhsT now serves 2 matmuls and one of rhs 4, and the loads are as much wider.
    """
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m_block in cut(M, 4 * P):
        for n_block in cut(N, 2 * width):
            m0, height = m_block
            n0, breadth = n_block
            banks = open_banks(height // P, breadth // width, width)
            for k in range(0, K, P):
                left = load(lhsT[k:k + P, m0:m0 + height], (P, height))
                right = load(rhs[k:k + P, n0:n0 + breadth], (P, breadth))
                multiply_block(banks, left, right, width, k > 0)
            store_block(result, banks, m0, n0, width)
    return result


@nki.jit
def nki_matmul_fully_optimized(lhsT, rhs):
    """Return lhsT.T @ rhs: as blocked above, and the block of lhsT stays in SBUF.

    A block of lhsT (all of K) is loaded once and serves the whole row of blocks of the result, so
    that only rhs streams: M / (rows of the block) times, instead of that and lhsT N / 1024 times.
    It comes 4 x 128 rows at a time, so that loads run ahead of the Tensor Engine.
    """
    K, M, N, width = check_matmul(lhsT, rhs)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    room = nl.tile_size.sbuf_fmax_bytes * 3 // 4  # the rest: rhs and results
    per_tile = K // P * P * (4 if lhsT.dtype == nl.float32 else 2)
    assert per_tile <= room, (
        f"{P} columns of lhsT take {per_tile} bytes per partition; {room} are left for them")
    for m_block in cut(M, min(4, room // per_tile) * P):
        m0, height = m_block
        left = nl.ndarray((P, K // P, height), dtype=lhsT.dtype, buffer=nl.sbuf)
        for n_block in cut(N, 2 * width):
            n0, breadth = n_block
            banks = open_banks(height // P, breadth // width, width)
            for k_block in cut(K // P, 4):
                k0, depth = k_block
                right = nl.ndarray((P, depth, breadth), dtype=rhs.dtype, buffer=nl.sbuf)
                for k in range(depth):
                    first = (k0 + k) * P
                    if n0 == 0:  # just in time: the first matmuls need not wait for all of it
                        nisa.dma_copy(dst=left[:, k0 + k],
                                      src=lhsT[first:first + P, m0:m0 + height])
                    nisa.dma_copy(dst=right[:, k], src=rhs[first:first + P, n0:n0 + breadth])
                for k in range(depth):
                    multiply_block(banks, left[:, k0 + k], right[:, k], width, k0 + k > 0)
            store_block(result, banks, m0, n0, width)
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
    assert matmul_kernel in MATMULS, f"there is no matmul kernel {matmul_kernel}"
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
    assert 8 <= classes and classes <= 16384, (
        f"max8 looks at 8 to 16384 values per partition; there are {classes} classes")
    # BEGIN SOLUTION step=4 section="4. nki_forward and nki_predict"
    predictions = nl.ndarray((batch,), dtype=nl.int32, buffer=nl.shared_hbm)
    for row_block in cut(batch, P):
        r, n = row_block
        rows = load(probs[r:r + n, :], (n, classes))
        largest = nl.ndarray((n, 8), dtype=probs.dtype, buffer=nl.sbuf)
        places = nl.ndarray((n, 8), dtype=nl.uint32, buffer=nl.sbuf)
        first = nl.ndarray((n, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.max8(dst=largest, src=rows)  # the 8 largest of each row, descending
        nisa.nc_find_index8(dst=places, data=rows, vals=largest)  # and where they are
        nisa.tensor_copy(dst=first, src=places[:, 0:1])
        nisa.dma_copy(dst=predictions.reshape((batch, 1))[r:r + n], src=first)
    return predictions
    # END SOLUTION
