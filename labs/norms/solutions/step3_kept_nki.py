"""Step 3: a quarter of a long row stays in SBUF; the exponentials are made a second time."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: the most rows that a tile has
CHUNK = 2048  # columns of a piece of a long row
KEPT_BYTES = 64 * 1024  # of a long row that stay in SBUF, in each partition


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


@nki.jit
def softmax_long(x):
    """Return the softmax of each row of x [rows, columns]; a row may be longer than SBUF holds."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept_columns = KEPT_BYTES // (4 if x.dtype == nl.float32 else 2)
    for piece in cut(rows, P):
        r, n = piece
        kept = []
        largest, total = None, None
        for part in cut(columns, CHUNK):
            c, w = part
            tile, seen, sums = load(x[r:r + n, c:c + w]), new(n, 1), new(n, 1)
            if c + w <= kept_columns:
                kept.append(tile)
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
        parts = cut(columns, CHUNK)
        for i in range(len(parts)):
            c, w = parts[i]
            tile = kept[i] if i < len(kept) else load(x[r:r + n, c:c + w])
            powers, result = new(n, w), new(n, w, x.dtype)
            nisa.activation(dst=powers, op=nl.exp, data=tile, bias=largest)
            nisa.tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=scale)
            nisa.dma_copy(dst=out[r:r + n, c:c + w], src=result)
    return out
