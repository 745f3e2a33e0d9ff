"""Step 2: online, without the hidden half; each head loads its keys again, by 128 rows."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: queries of a tile, and rows that one transpose or one product of v takes
BLOCK = 512  # keys of a block: float32 scores that a bank of PSUM has in each partition
HIDDEN = -3.0e38  # the score of a key that a query must not see: exp of it is 0


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    pieces = []
    for start in range(0, length, step):
        pieces.append((start, min(step, length - start)))
    return pieces


def new(rows, columns, dtype=nl.float32, buffer=nl.sbuf):
    """Return a new tile; nothing is written in it yet."""
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


def load(source):
    """Return a new tile in SBUF with a copy of a part of HBM."""
    tile = new(source.shape[0], source.shape[1], source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def load_rows(source):
    """Return rows of HBM [n, d] as a list of tiles of at most 128 rows, with a DMA for each."""
    tiles = []
    for piece in cut(source.shape[0], P):
        r, m = piece
        tiles.append(load(source[r:r + m]))
    return tiles


def load_turned(source):
    """Return rows of HBM [n, d] as a tile [d, n]: the Tensor Engine turns 128 rows at a time."""
    n, d = source.shape
    turned = new(d, n, source.dtype)
    rows = load_rows(source)
    for block in cut(n, BLOCK):
        b, size = block
        bank = new(d, size, source.dtype, nl.psum)
        for piece in cut(size, P):
            r, m = piece
            nisa.nc_transpose(dst=bank[:, r:r + m], data=rows[(b + r) // P])
        nisa.tensor_copy(dst=turned[:, b:b + size], src=bank)
    return turned


def weigh(powers, values, first, dtype):
    """Return powers v in PSUM: powers [n, w] times the rows of v from `first` on, n x d.

    `values` has the rows of v in tiles of 128 rows. A product adds up over partitions, so the
    keys must lie there: powers are turned first.
    """
    n, w = powers.shape
    product = new(n, values[0].shape[1], nl.float32, nl.psum)
    bank = new(P, (w + P - 1) // P * n, dtype, nl.psum)
    pieces = cut(w, P)
    for i in range(len(pieces)):
        c, m = pieces[i]
        nisa.nc_transpose(dst=bank[0:m, i * n:i * n + n], data=powers[:, c:c + m])
    # one copy for all pieces of 128 keys, and one for the rest
    keys, whole = new(P, bank.shape[1], dtype), w // P * n
    if whole:
        nisa.tensor_copy(dst=keys[:, 0:whole], src=bank[:, 0:whole])
    if w % P:
        nisa.tensor_copy(dst=keys[0:w % P, whole:whole + n], src=bank[0:w % P, whole:whole + n])
    for i in range(len(pieces)):
        m = pieces[i][1]
        nisa.nc_matmul(dst=product, stationary=keys[0:m, i * n:i * n + n],
                       moving=values[first // P + i], accumulate=i > 0)
    return product


def hide(scores, mask, later):
    """Add a mask [n, h] to scores [n, w] in PSUM; the mask is for the last h keys of all.

    `later` is how many keys come after those of the scores.
    """
    w, h = scores.shape[1], mask.shape[1]
    begin = w + later - h  # the column of the scores that the mask begins at: before or in them
    start = max(0, begin)
    if start < w:
        nisa.tensor_tensor(dst=scores[:, start:w], data1=scores[:, start:w],
                           data2=mask[:, start - begin:w - begin], op=nl.add)


def online(queries, keys, values, scale, mask=None):
    """Return the attention of a tile of queries [n, d] in SBUF, block by block of the keys.

    `queries` is [d, n], `keys` is [d, m], `values` has the rows of v in tiles of 128 rows. A
    mask [n, h] is added to the scores of the last h keys: what it hides has no weight.
    """
    n, dtype = queries.shape[1], queries.dtype
    result = new(n, values[0].shape[1], dtype)
    largest, total, sums = None, None, None
    for block in cut(keys.shape[1], BLOCK):
        c, w = block
        scores = new(n, w, nl.float32, nl.psum)
        nisa.nc_matmul(dst=scores, stationary=queries, moving=keys[:, c:c + w], accumulate=False)
        if mask is not None:
            hide(scores, mask, keys.shape[1] - c - w)
        seen, part, powers = new(n, 1), new(n, 1), new(n, w, dtype)
        # the largest score with its sign turned: exp(scale * score + seen) is then one pass
        nisa.tensor_reduce(dst=seen, op=nl.maximum, data=scores, axis=1, negate=True,
                           keepdims=True)
        if largest is None:
            nisa.tensor_scalar(dst=seen, data=seen, op0=nl.multiply, operand0=scale)
        else:
            nisa.tensor_scalar(dst=seen, data=seen, op0=nl.multiply, operand0=scale,
                               op1=nl.minimum, operand1=largest)
        nisa.activation_reduce(dst=powers, op=nl.exp, data=scores, scale=scale, bias=seen,
                               reduce_op=nl.add, reduce_res=part)
        product = weigh(powers, values, c, dtype)
        if largest is None:
            sums = new(n, product.shape[1])
            nisa.tensor_copy(dst=sums, src=product)
        else:
            # what was added up with the old largest score shrinks by exp(old - new)
            shrink = new(n, 1)
            nisa.activation(dst=shrink, op=nl.exp, data=largest, scale=-1.0, bias=seen)
            nisa.scalar_tensor_tensor(dst=part, data=total, op0=nl.multiply, operand0=shrink,
                                      op1=nl.add, operand1=part)
            nisa.scalar_tensor_tensor(dst=sums, data=sums, op0=nl.multiply, operand0=shrink,
                                      op1=nl.add, operand1=product)
        largest, total = seen, part
    share = new(n, 1)
    nisa.reciprocal(dst=share, data=total)
    nisa.tensor_scalar(dst=result, data=sums, op0=nl.multiply, operand0=share)
    return result


def triangle():
    """Return a mask [128, 128] in SBUF: 0 where column <= row, HIDDEN elsewhere."""
    mask = new(P, P)
    nisa.memset(dst=mask, value=0.0)
    nisa.affine_select(dst=mask, pattern=[[-1, P]], channel_multiplier=1, on_true_tile=mask,
                       on_false_value=HIDDEN, cmp_op=nl.greater_equal)
    return mask


def head(out, q, k, v):
    """Write the causal attention of one head into out."""
    n, d = q.shape
    queries, keys, values = load_turned(q), load_turned(k), load_rows(v)
    for piece in cut(n, P):
        r, m = piece
        result = online(queries[:, r:r + m], keys[:, 0:r + m], values, d ** -0.5,
                        triangle()[0:m, 0:m])
        nisa.dma_copy(dst=out[r:r + m], src=result)


@nki.jit
def causal(q, k, v):
    """Return the causal attention of q, k and v [n, d]: query i sees keys 0 to i."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    head(out, q, k, v)
    return out


@nki.jit
def grouped(q, k, v):
    """Return the causal attention of heads in groups: q [heads, n, d], k and v [groups, n, d]."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    for h in range(q.shape[0]):
        g = h * k.shape[0] // q.shape[0]
        head(out[h], q[h], k[g], v[g])
    return out
