"""Kernels to improve, naive and some wrong: what `tools/benchmarks/agent_loop.py` begins with.

The statements are those of the labs, and of two operators that public sets of tasks for NKI have
(SiLU, RMS normalisation); the kernels are written for this purpose. Block sizes are constants.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

P = 128  # partitions
BLOCK = 1  # tiles of 128 rows of a product that are added up at a time
COLUMNS = 64  # of a tile of the product
ROWS = 1  # of an image in a tile
WIDTH = 64  # elements per partition of a tile of silu
CHUNK = 64  # the same of rms_norm


def silu_of(x: np.ndarray) -> np.ndarray:
    """Return x * sigmoid(x) in fp64."""
    wide = x.astype(np.float64)
    return wide / (1 + np.exp(-wide))


def rms_norm_of(x: np.ndarray) -> np.ndarray:
    """Return x / sqrt(mean of x^2 + 1e-6) of each row, in fp64."""
    wide = x.astype(np.float64)
    return wide / np.sqrt(np.mean(wide**2, axis=1, keepdims=True) + 1e-6)


@nki.jit
def matmul(lhsT, rhs):
    """Return lhsT.T @ rhs. A name of an instruction is misspelt."""
    K, M = lhsT.shape
    N = rhs.shape[1]
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(0, M, BLOCK * P):
        for n in range(0, N, COLUMNS):
            sums = []
            for _ in range(BLOCK):
                sums.append(nl.ndarray((P, COLUMNS), dtype=nl.float32, buffer=nl.psum))
            for k in range(0, K, P):
                left = nl.ndarray((P, BLOCK * P), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((P, COLUMNS), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=lhsT[k : k + P, m : m + BLOCK * P])
                nisa.dma_copy(dst=right, src=rhs[k : k + P, n : n + COLUMNS])
                for b in range(BLOCK):
                    nisa.nc_matmul(
                        dst=sums[b],
                        stationary=left[:, b * P : (b + 1) * P],
                        moving=right,
                        accumulate=k > 0,
                    )
            for b in range(BLOCK):
                done = nl.ndarray((P, COLUMNS), dtype=out.dtype, buffer=nl.sbuf)
                nisa.tensor_cpoy(dst=done, src=sums[b])
                nisa.dma_copy(dst=out[m + b * P : m + (b + 1) * P, n : n + COLUMNS], src=done)
    return out


@nki.jit
def conv2d(X, W, bias):
    """Return the convolution of images X with filters W of 128 to 128 channels, plus bias.

    The result of a group of rows is added up in SBUF, where the Tensor Engine cannot write.
    """
    images, _, height, width = X.shape
    size = W.shape[2]
    high, wide = height - size + 1, width - size + 1
    out = nl.ndarray((images, P, high, wide), dtype=X.dtype, buffer=nl.shared_hbm)
    raw = nl.ndarray((P, P, size, size), dtype=W.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=raw, src=W)
    offset = nl.ndarray((P, 1), dtype=bias.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=offset, src=bias.reshape((P, 1)))
    taps = nl.ndarray((P, size, size, P), dtype=W.dtype, buffer=nl.sbuf)
    for y in range(size):
        for x in range(size):
            turned = nl.ndarray((P, P), dtype=W.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=raw[:, :, y, x])
            nisa.tensor_copy(dst=taps[:, y, x], src=turned)
    for i in range(images):
        for r in range(0, high, ROWS):
            rows = nl.ndarray((P, ROWS + size - 1, width), dtype=X.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=rows, src=X[i, :, r : r + ROWS + size - 1])
            total = nl.ndarray((P, ROWS, wide), dtype=nl.float32, buffer=nl.sbuf)
            for y in range(size):
                for x in range(size):
                    nisa.nc_matmul(
                        dst=total,
                        stationary=taps[:, y, x],
                        moving=rows[:, y : y + ROWS, x : x + wide],
                        accumulate=y + x > 0,
                    )
            done = nl.ndarray((P, ROWS, wide), dtype=X.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=done, data=total, op0=nl.add, operand0=offset)
            nisa.dma_copy(dst=out[i, :, r : r + ROWS], src=done)
    return out


@nki.jit
def silu(x):
    """Return x * sigmoid(x). The last tile of each row is left out."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], P):
        for i in range(x.shape[1] // WIDTH - 1):
            tile = nl.ndarray((P, WIDTH), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[r : r + P, i * WIDTH : (i + 1) * WIDTH])
            done = nl.ndarray((P, WIDTH), dtype=x.dtype, buffer=nl.sbuf)
            nisa.activation(dst=done, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[r : r + P, i * WIDTH : (i + 1) * WIDTH], src=done)
    return out


@nki.jit
def rms_norm(x):
    """Return the rows of x, each over its root mean square; every row is read twice."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, rows, P):
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for c in range(0, columns, CHUNK):
            tile = nl.ndarray((P, CHUNK), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[r : r + P, c : c + CHUNK])
            square = nl.ndarray((P, CHUNK), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=square, data1=tile, data2=tile, op=nl.multiply)
            part = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=part, op=nl.add, data=square, axis=1)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.tensor_scalar(
            dst=total,
            data=total,
            op0=nl.multiply,
            operand0=1.0 / columns,
            op1=nl.add,
            operand1=1e-6,
        )
        scale = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=scale, op=nl.rsqrt, data=total)
        for c in range(0, columns, CHUNK):
            tile = nl.ndarray((P, CHUNK), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[r : r + P, c : c + CHUNK])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
            nisa.dma_copy(dst=out[r : r + P, c : c + CHUNK], src=tile)
    return out
