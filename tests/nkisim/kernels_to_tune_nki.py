"""A kernel of the package nki that the tests of tuning sweep."""

import nki
import nki.isa as nisa
import nki.language as nl

WIDTH = 64


@nki.jit
def double(x):
    height, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(height // 128):
        for j in range(columns // WIDTH):
            tile = nl.ndarray((128, WIDTH), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[i * 128 : (i + 1) * 128, j * WIDTH : (j + 1) * WIDTH])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, j * WIDTH : (j + 1) * WIDTH], src=tile)
    return out
