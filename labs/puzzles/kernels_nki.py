"""Fourteen puzzles, one idea each: write the lines that are missing.

Each kernel gets its inputs in HBM and returns `out`, which is made for you. README.md says what is
wanted; `python tester.py --puzzle 3` tries one of them. `new` and `load` are yours to use from the
second puzzle on.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: the most rows that a tile has
BANK = 512  # float32 numbers that a bank of PSUM has in each partition


def new(shape, dtype=nl.float32, buffer=nl.sbuf):
    """Return a new tile; nothing is written in it yet."""
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def place(shape, slot):
    """Return a tile of float32 at a place of your choice: slot 0, 1, 2 ... in each partition."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf, address=(0, slot * shape[1] * 4))


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape, source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


@nki.jit
def first_tile(x):
    """Return x + 10, for x of 128 x 64."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=1 section="1. The first tile"
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=10.0)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out


@nki.jit
def many_rows(x):
    """Return x + 10, for x of 384 x 64: more rows than a tile has."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=2 section="2. The partition limit"
    for row in range(0, x.shape[0], P):
        tile = load(x[row:row + P])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=10.0)
        nisa.dma_copy(dst=out[row:row + P], src=tile)
    # END SOLUTION
    return out


@nki.jit
def scale_rows(x, factor):
    """Return x times factor, which has one number for each row: 128 x 64 and 128 x 1."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=3 section="3. A column for all columns"
    tile, column = load(x), load(factor)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=column)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out


@nki.jit
def row_sums(x):
    """Return the sum of each row of x: 128 x 64 to 128 x 1."""
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=4 section="4. A reduction"
    tile, total = load(x), new((x.shape[0], 1))
    nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=1, keepdims=True)
    nisa.dma_copy(dst=out, src=total)
    # END SOLUTION
    return out


@nki.jit
def edge_tile(x):
    """Return x + 10, for x of 300 x 64: the last tile has 44 rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=5 section="5. The tile at the edge"
    for row in range(0, x.shape[0], P):
        end = min(row + P, x.shape[0])
        tile = load(x[row:end])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=10.0)
        nisa.dma_copy(dst=out[row:end], src=tile)
    # END SOLUTION
    return out


@nki.jit
def transpose(x):
    """Return x transposed: 128 x 64 to 64 x 128."""
    out = nl.ndarray((x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=6 section="6. Rows to columns"
    turned = new((x.shape[1], x.shape[0]), x.dtype, nl.psum)
    nisa.nc_transpose(dst=turned, data=load(x))
    tile = new(turned.shape, x.dtype)
    nisa.tensor_copy(dst=tile, src=turned)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out


@nki.jit
def matmul(x, y):
    """Return x transposed times y: 128 x 64 and 128 x 256 to 64 x 256."""
    out = nl.ndarray((x.shape[1], y.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=7 section="7. A product of matrices"
    sums = new(out.shape, nl.float32, nl.psum)
    nisa.nc_matmul(dst=sums, stationary=load(x), moving=load(y), accumulate=False)
    tile = new(out.shape)
    nisa.tensor_copy(dst=tile, src=sums)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out


@nki.jit
def long_sums(x, y):
    """Return x transposed times y, for 384 x 64 and 384 x 256: sums of 384 products."""
    out = nl.ndarray((x.shape[1], y.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=8 section="8. Longer sums"
    sums, tile = new(out.shape, nl.float32, nl.psum), new(out.shape)
    for k in range(0, x.shape[0], P):
        left, right = load(x[k:k + P]), load(y[k:k + P])
        nisa.nc_matmul(dst=sums, stationary=left, moving=right, accumulate=k > 0)
    nisa.tensor_copy(dst=tile, src=sums)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out


@nki.jit
def wide_relu(x, y):
    """Return relu(x transposed times y), for 128 x 64 and 128 x 1024: wider than a bank."""
    out = nl.ndarray((x.shape[1], y.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=9 section="9. Empty the banks"
    left, right, tile = load(x), load(y), new(out.shape)
    for n in range(0, y.shape[1], BANK):
        sums = new((x.shape[1], BANK), nl.float32, nl.psum)
        nisa.nc_matmul(dst=sums, stationary=left, moving=right[:, n:n + BANK], accumulate=False)
        nisa.activation(dst=tile[:, n:n + BANK], op=nl.relu, data=sums)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out


@nki.jit
def two_buffers(x):
    """Return x + 10, for x of 1024 x 512: load a tile while another one is added and stored."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=10 section="10. Two buffers"
    both = [place((P, x.shape[1]), 0), place((P, x.shape[1]), 1)]
    for i in range(x.shape[0] // P):
        tile = both[i % 2]
        nisa.dma_copy(dst=tile, src=x[i * P:(i + 1) * P])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=10.0)
        nisa.dma_copy(dst=out[i * P:(i + 1) * P], src=tile)
    # END SOLUTION
    return out


@nki.jit
def one_activation(x, bias):
    """Return exp(0.5 * x + bias), bias a number for each row: 128 x 64 and 128 x 1."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=11 section="11. Scale, bias and function at once"
    tile, column = load(x), load(bias)
    nisa.activation(dst=tile, op=nl.exp, data=tile, scale=0.5, bias=column)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out


@nki.jit
def lower_triangle(x):
    """Return x where column <= row, and 0 elsewhere: 128 x 128."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=12 section="12. A mask from positions"
    tile, kept = load(x), new(x.shape)
    nisa.affine_select(dst=kept, pattern=[[-1, x.shape[1]]], channel_multiplier=1,
                       on_true_tile=tile, on_false_value=0.0, cmp_op=nl.greater_equal)
    nisa.dma_copy(dst=out, src=kept)
    # END SOLUTION
    return out


@nki.jit
def running_sum(x, keep):
    """Return y with y[p, i] = keep[p, i] * y[p, i - 1] + x[p, i], and y[p, -1] = 0: 128 x 64."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=13 section="13. A scan"
    result = new(x.shape)
    nisa.tensor_tensor_scan(dst=result, data0=load(keep), data1=load(x), initial=0.0,
                            op0=nl.multiply, op1=nl.add)
    nisa.dma_copy(dst=out, src=result)
    # END SOLUTION
    return out


@nki.jit
def pick_rows(table, which):
    """Return the rows of table that which names: 1000 x 64 and 128 x 1 (int32) to 128 x 64."""
    out = nl.ndarray((which.shape[0], table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=14 section="14. Rows by index"
    rows, columns = out.shape
    tile, index = new(out.shape), load(which)
    chosen = table.ap([[columns, rows], [1, columns]], vector_offset=index, indirect_dim=0)
    nisa.dma_copy(dst=tile, src=chosen)
    nisa.dma_copy(dst=out, src=tile)
    # END SOLUTION
    return out
