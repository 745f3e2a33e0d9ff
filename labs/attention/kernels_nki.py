"""Attention in tiles: softmax(q k^T / sqrt(d)) v without the matrix of scores in HBM.

    scores = q k^T / sqrt(d)     a row for each query, a column for each key
    out    = softmax(scores) v   each row of out is a mean of the rows of v

128 queries lie in the partitions. Their scores with 512 keys fill a bank of PSUM. From block to
block each query keeps three things: the largest score so far, the sum of the exponentials and the
sum of the weighted rows of v. Operands have the dtype of the data, sums are float32.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: queries of a tile, and rows that one transpose or one product of v takes
BLOCK = 512  # keys of a block: float32 scores that a bank of PSUM has in each partition
# BEGIN SOLUTION step=2 stub=""
AHEAD = 2  # blocks whose scores are made before the first of them is multiplied by its values
# END SOLUTION
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
    """Return rows of HBM [n, d] as a list of tiles of at most 128 rows; a DMA brings up to 512."""
    n, d = source.shape
    tiles = []
    for block in cut(n, BLOCK):
        b, size = block
        wide, whole = new(P, (size + P - 1) // P * d, source.dtype), size // P
        if whole:
            nisa.dma_copy(dst=wide[:, 0:whole * d].reshape((P, whole, d)),
                          src=source[b:b + whole * P].reshape((whole, P, d)).permute((1, 0, 2)))
        if size % P:
            nisa.dma_copy(dst=wide[0:size % P, whole * d:whole * d + d],
                          src=source[b + whole * P:b + size])
        for piece in cut(size, P):
            r, m = piece
            tiles.append(wide[0:m, r // P * d:r // P * d + d])
    return tiles


def load_turned(source):
    """Return rows of HBM [n, d] as a tile [d, n]: the Tensor Engine turns 128 rows at a time."""
    n, d = source.shape
    turned = new(d, n, source.dtype)
    # BEGIN SOLUTION step=1 section="1. attend"
    rows = load_rows(source)
    for block in cut(n, BLOCK):
        b, size = block
        bank = new(d, size, source.dtype, nl.psum)
        for piece in cut(size, P):
            r, m = piece
            nisa.nc_transpose(dst=bank[:, r:r + m], data=rows[(b + r) // P])
        nisa.tensor_copy(dst=turned[:, b:b + size], src=bank)
    # END SOLUTION
    return turned


def weigh(powers, values, first, dtype):
    """Return powers v in PSUM: powers [n, w] times the rows of v from `first` on, n x d.

    `values` has the rows of v in tiles of 128 rows. A product adds up over partitions, so the
    keys must lie there: powers are turned first.
    """
    n, w = powers.shape
    product = new(n, values[0].shape[1], nl.float32, nl.psum)
    # BEGIN SOLUTION step=1 section="1. attend"
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
    # END SOLUTION
    return product


@nki.jit
def attend(q, k, v):
    """Return the attention of q [n, d], k and v [m, d]; n is at most 128, m and d 512 and 128."""
    n, d = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    scale = d ** -0.5
    # BEGIN SOLUTION step=1 section="1. attend"
    scores = new(n, k.shape[0], nl.float32, nl.psum)
    nisa.nc_matmul(dst=scores, stationary=load_turned(q), moving=load_turned(k), accumulate=False)
    largest, total, result = new(n, 1), new(n, 1), new(n, d, q.dtype)
    powers = new(n, k.shape[0], q.dtype)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=scores, axis=1, negate=True, keepdims=True)
    nisa.tensor_scalar(dst=largest, data=largest, op0=nl.multiply, operand0=scale)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=scores, scale=scale, bias=largest,
                           reduce_op=nl.add, reduce_res=total)
    product = weigh(powers, load_rows(v), 0, q.dtype)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=result, data=product, op0=nl.multiply, operand0=total)
    nisa.dma_copy(dst=out, src=result)
    # END SOLUTION
    return out


def triangle(dtype):
    """Return a mask [128, 128] in SBUF: 0 where column <= row, HIDDEN elsewhere."""
    mask = new(P, P, dtype)
    # BEGIN SOLUTION step=3 section="3. causal"
    nisa.memset(dst=mask, value=0.0)
    nisa.affine_select(dst=mask, pattern=[[-1, P]], channel_multiplier=1, on_true_tile=mask,
                       on_false_value=HIDDEN, cmp_op=nl.greater_equal)
    # END SOLUTION
    return mask


# BEGIN SOLUTION step=3 stub=""
def identity(n, dtype):
    """Return the identity [n, n] in SBUF."""
    eye = new(n, n, dtype)
    nisa.memset(dst=eye, value=1.0)
    nisa.affine_select(dst=eye, pattern=[[-1, n]], channel_multiplier=1, on_true_tile=eye,
                       on_false_value=0.0, cmp_op=nl.equal)
    return eye
# END SOLUTION


def hide(scores, mask, later, eye=None):
    """Add a mask [n, h] to scores [n, w] in PSUM; the mask is for the last h keys of all.

    `later` is how many keys come after those of the scores. `eye` is for those who let the Tensor
    Engine add: an identity [n, n].
    """
    w, h = scores.shape[1], mask.shape[1]
    # BEGIN SOLUTION step=3 section="3. causal"
    begin = w + later - h  # the column of the scores that the mask begins at: before or in them
    start = max(0, begin)
    if start < w:
        # the identity times the mask is one more product of the sum: Vector has enough to do
        nisa.nc_matmul(dst=scores[:, start:w], stationary=eye,
                       moving=mask[:, start - begin:w - begin], accumulate=True)
    # END SOLUTION


# BEGIN SOLUTION step=2 stub=""
def exponentials(scores, largest, scale, dtype):
    """Return what a block of scores in PSUM gives: (largest so far, sum, exponentials).

    The largest score has its sign turned and the scale in it: exp(scale * score + seen) is then
    one pass. `largest` is that of the blocks before, or None.
    """
    n, w = scores.shape
    seen, part, powers = new(n, 1), new(n, 1), new(n, w, dtype)
    nisa.tensor_reduce(dst=seen, op=nl.maximum, data=scores, axis=1, negate=True, keepdims=True)
    if largest is None:
        nisa.tensor_scalar(dst=seen, data=seen, op0=nl.multiply, operand0=scale)
    else:
        nisa.tensor_scalar(dst=seen, data=seen, op0=nl.multiply, operand0=scale, op1=nl.minimum,
                           operand1=largest)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=scores, scale=scale, bias=seen,
                           reduce_op=nl.add, reduce_res=part)
    return seen, part, powers


def add_block(sums, total, block):
    """Add a block to the sums of its tile, and return both sums; after the last one, store."""
    powers, values, first, part, seen, largest, out = block
    product = weigh(powers, values, first, powers.dtype)
    n, d = product.shape
    if largest is not None:
        # what was added up with the old largest score shrinks by exp(old - new)
        shrink = new(n, 1)
        nisa.activation(dst=shrink, op=nl.exp, data=largest, scale=-1.0, bias=seen)
        nisa.scalar_tensor_tensor(dst=part, data=total, op0=nl.multiply, operand0=shrink,
                                  op1=nl.add, operand1=part)
        added = new(n, d)
        nisa.scalar_tensor_tensor(dst=added, data=sums, op0=nl.multiply, operand0=shrink,
                                  op1=nl.add, operand1=product)
        product = added
    elif out is None:
        added = new(n, d)  # more blocks come: a bank of PSUM is not held for them
        nisa.tensor_copy(dst=added, src=product)
        product = added
    if out is not None:
        share, result = new(n, 1), new(n, d, powers.dtype)
        nisa.reciprocal(dst=share, data=part)
        nisa.tensor_scalar(dst=result, data=product, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=out, src=result)
    return product, part
# END SOLUTION


def online(tiles, scale):
    """Compute tiles of queries, block by block of their keys, and store the results in HBM.

    Each of `tiles` is (queries [d, n], keys [d, m], values, mask, out [n, d]): the first two in
    SBUF, `values` the rows of v in tiles of 128 rows, and `out` in HBM. A mask [n, h] is added to
    the scores of the last h keys: what it hides has no weight. None: nothing is hidden.
    """
    # BEGIN SOLUTION step=2 section="2. flash"
    sums, total, waiting = None, None, []
    n, dtype = tiles[0][0].shape[1], tiles[0][0].dtype  # of the first tile, which has most queries
    eye = None if tiles[0][3] is None else identity(n, dtype)
    for tile in tiles:
        queries, keys, values, mask, out = tile
        n, m, largest = queries.shape[1], keys.shape[1], None
        for block in cut(m, BLOCK):
            c, w = block
            scores = new(n, w, nl.float32, nl.psum)
            nisa.nc_matmul(dst=scores, stationary=queries, moving=keys[:, c:c + w],
                           accumulate=False)
            if mask is not None:
                hide(scores, mask, m - c - w, eye[0:n, 0:n])
            seen, part, powers = exponentials(scores, largest, scale, dtype)
            waiting.append((powers, values, c, part, seen, largest, out if c + w == m else None))
            largest = seen
            # the Tensor Engine works in order: it makes scores ahead while exponentials are made
            if len(waiting) > AHEAD:
                sums, total = add_block(sums, total, waiting.pop(0))
    for block in waiting:
        sums, total = add_block(sums, total, block)
    # END SOLUTION


@nki.jit
def flash(q, k, v):
    """Return the attention of q [n, d], k and v [m, d]; d is at most 128."""
    n, d = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=2 section="2. flash"
    queries, keys, values = load_turned(q), load_turned(k), load_rows(v)
    tiles = []
    for piece in cut(n, P):
        r, m = piece
        tiles.append((queries[:, r:r + m], keys, values, None, out[r:r + m]))
    online(tiles, d ** -0.5)
    # END SOLUTION
    return out


@nki.jit
def causal(q, k, v):
    """Return the causal attention of q, k and v [n, d]: query i sees keys 0 to i."""
    n, d = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=3 section="3. causal"
    queries, keys, values, mask = load_turned(q), load_turned(k), load_rows(v), triangle(q.dtype)
    tiles = []
    for piece in cut(n, P):
        r, m = piece
        # keys after the last query of the tile are hidden for all: leave them out
        tiles.append((queries[:, r:r + m], keys[:, 0:r + m], values, mask[0:m, 0:m],
                      out[r:r + m]))
    online(tiles, d ** -0.5)
    # END SOLUTION
    return out


@nki.jit
def grouped(q, k, v):
    """Return the causal attention of heads in groups: q [heads, n, d], k and v [groups, n, d].

    Head h has the keys and values of group h // (heads / groups).
    """
    heads, n, d = q.shape
    groups = k.shape[0]
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=4 section="4. grouped"
    mask, tiles = triangle(q.dtype), []
    for g in range(groups):
        keys, values = load_turned(k[g]), load_rows(v[g])
        for i in range(heads // groups):
            h = g * (heads // groups) + i
            queries = load_turned(q[h])
            for piece in cut(n, P):
                r, m = piece
                tiles.append((queries[:, r:r + m], keys[:, 0:r + m], values, mask[0:m, 0:m],
                              out[h, r:r + m]))
    online(tiles, d ** -0.5)
    # END SOLUTION
    return out


def beyond(length, capacity, n, dtype):
    """Return a mask [n, capacity]: 0 where the column is at most `length` [1, 1], else HIDDEN."""
    mask = new(n, capacity, dtype)
    # BEGIN SOLUTION step=5 section="5. decode"
    here, last, column = load(length.broadcast(0, n)), new(n, 1), new(n, capacity)
    nisa.tensor_copy(dst=last, src=here)
    nisa.iota(dst=column, pattern=[[1, capacity]])
    nisa.tensor_scalar(dst=mask, data=column, op0=nl.greater, operand0=last, op1=nl.multiply,
                       operand1=HIDDEN)
    # END SOLUTION
    return mask


@nki.jit
def decode(q, k, v, k_cache, v_cache, length):
    """Return the attention of one new token [heads, d], and the caches with its key and value.

    q is [heads, d], k and v are [groups, d], the caches [groups, capacity, d]. length [1, 1]
    (int32) is how many tokens the caches hold: known at run time only, and less than capacity.
    The new key and value are written into the caches that were given, and these are returned.
    """
    heads, d = q.shape
    groups, capacity, _ = k_cache.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=5 section="5. decode"
    each = heads // groups
    row, last = [[capacity * d, groups], [1, d]], load(length)
    for pair in [(k_cache, k), (v_cache, v)]:
        cache, token = pair
        nisa.dma_copy(dst=cache.ap(row, scalar_offset=last, indirect_dim=1), src=load(token))
    queries, mask, tiles = load_turned(q), beyond(length, capacity, each, q.dtype), []
    for g in range(groups):
        keys, values = load_turned(k_cache[g]), load_rows(v_cache[g])
        heads_of = slice(g * each, (g + 1) * each)
        tiles.append((queries[:, heads_of], keys, values, mask, out[heads_of]))
    online(tiles, d ** -0.5)
    # END SOLUTION
    return out, k_cache, v_cache
