"""conv2d: a 2-D convolution fused with max-pooling, in the dialect of `import nki`.

A convolution is a sum of matrix products, one per filter tap (i, j):

    out[:, r, c] = bias + sum over i, j of W[:, :, i, j] @ X[:, r + i, c + j]

W[:, :, i, j], with input channels on partitions, is the stationary operand; a window of the input,
shifted by (i, j), is the moving one. The window is only a view of rows that lie in SBUF: nothing is
copied or rearranged. All products of one output tile add up in one PSUM bank: the first of them is
written (accumulate=False), the others are added.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: channels are handled in groups of this size


def check_shapes(X, W, bias, pool_size):
    """Refuse what the kernel cannot do, in a sentence that names the rule."""
    assert len(X.shape) == 4 and len(W.shape) == 4 and len(bias.shape) == 1, (
        "X must be [batch, in_channels, height, width], W [out_channels, in_channels, size, size] "
        f"and bias [out_channels]; got {X.shape}, {W.shape} and {bias.shape}")
    c_in, in_height, in_width = X.shape[1:]
    c_out, w_in, size, size_2 = W.shape
    assert size == size_2, f"filters must be square; these are {size} x {size_2}"
    assert w_in == c_in, f"X has {c_in} channels, but the filters are for {w_in}"
    assert bias.shape[0] == c_out, f"there are {c_out} filters, but {bias.shape[0]} biases"
    for named in (("input", c_in), ("output", c_out)):
        name, channels = named
        assert channels % P == 0, (
            f"the number of {name} channels must be a multiple of {P}, the number of partitions; "
            f"{channels} is not")
    assert size <= in_height and size <= in_width, (
        f"the filter must fit in the image; {size} x {size} does not fit in "
        f"{in_height} x {in_width}")
    assert pool_size == 1 or pool_size == 2, f"pool_size must be 1 or 2; it is {pool_size}"
    height, width = in_height - size + 1, in_width - size + 1
    assert height % pool_size == 0 and width % pool_size == 0, (
        f"pool_size must divide the size of the convolution's output; {pool_size} does not divide "
        f"{height} x {width}")
    assert X.dtype == W.dtype and X.dtype == bias.dtype, (
        f"X, W and bias must have one dtype; they have {X.dtype}, {W.dtype} and {bias.dtype}")
    assert X.dtype in (nl.float32, nl.float16, nl.bfloat16), (
        f"the dtype must be float32, float16 or bfloat16; it is {X.dtype}")


# BEGIN SOLUTION step=1 stub=""
WIDE = 4096  # bytes per partition from which a DMA runs at full speed


def ceil_div(a, b):
    """Return a / b, rounded up."""
    return (a + b - 1) // b


def size_of(dtype):
    """Return the bytes of an element."""
    return 4 if dtype == nl.float32 else 2


def choose_tile(height, width, pool):
    """Return (rows, columns) of an output tile: what one PSUM bank accumulates.

    Every matmul costs a few cycles besides its columns, so fewer and fuller banks are better:
    222 x 222 needs 98 tiles of 16 x 32 but 111 tiles of 2 x 222. Among equals, take fewer rows.
    """
    bank = nl.tile_size.psum_bank_fmax
    best, fewest = (pool, pool), height * width + 1
    for rows in range(pool, min(height, bank // pool) + 1, pool):
        columns = min(width, bank // rows // pool * pool)
        tiles = ceil_div(height, rows) * ceil_div(width, columns)
        if tiles < fewest:
            best, fewest = (rows, columns), tiles
    return best


def fits(rows, cols, X, W, pool):
    """Return whether filters, two slots of input and three of results of a block fit in SBUF."""
    k_tiles, m_tiles, size = X.shape[1] // P, W.shape[0] // P, W.shape[2]
    of_weights = (m_tiles + 2) * k_tiles * size * size * P  # transposed, and 2 raw slots
    slots = 2 * k_tiles * (rows + size - 1) * (cols + size - 1)
    results = 3 * (rows // pool) * (cols // pool)
    rest = nl.tile_size.sbuf_fmax_bytes - 4096  # bias, small tiles
    return (of_weights + slots + results) * size_of(X.dtype) <= rest


def plan(X, W, pool, tile):
    """Return (rows, columns) of an output block: what is computed from one slot of SBUF.

    A block is as wide as the output if SBUF allows, and tall enough for wide DMAs and for the
    rows that neighbouring blocks share (the halo) to be a small part.
    """
    size = W.shape[2]
    height, width = X.shape[2] - size + 1, X.shape[3] - size + 1
    cols = width
    while cols > tile[1] and not fits(tile[0], cols, X, W, pool):
        cols = (cols - 1) // tile[1] * tile[1]
    assert fits(tile[0], cols, X, W, pool), (
        f"the filters {W.shape} take too much of the {nl.tile_size.sbuf_fmax_bytes} bytes of a "
        "partition; too little is left for rows of the input")
    rows = tile[0]
    while (rows < height and fits(rows + tile[0], cols, X, W, pool)
           and (rows * cols * size_of(X.dtype) < WIDE or rows < 4 * (size - 1))):
        rows += tile[0]
    return min(rows, height), cols


def cut(length, step):
    """Return (start, size) of the pieces of `length` in steps of `step`."""
    pieces = []
    for start in range(0, length, step):
        pieces.append((start, min(step, length - start)))
    return pieces


def cut_images(batch, height, width, rows, cols):
    """Return (image, row, rows, column, columns) of the blocks in the order of work: downwards."""
    blocks = []
    for image in range(batch):
        for c in cut(width, cols):
            for r in cut(height, rows):
                blocks.append((image, r[0], r[1], c[0], c[1]))
    return blocks


def cut_block(rows, cols, tile):
    """Return (row, rows, column, columns) of the tiles of a block."""
    tiles = []
    for r in cut(rows, tile[0]):
        for c in cut(cols, tile[1]):
            tiles.append((r[0], r[1], c[0], c[1]))
    return tiles


def load_filters(w_hbm, w_raw, m):
    """Load the filters of output-channel tile m as they lie in HBM: [out, in, tap]."""
    for k in range(w_hbm.shape[2]):
        nisa.dma_copy(dst=w_raw[:, m % 2, k], src=w_hbm[m, :, k])


def transpose_filters(w_raw, w_sb, m):
    """Bring input channels to the partitions: several taps a PSUM bank, drained by one copy."""
    k_tiles, taps = w_sb.shape[2], w_sb.shape[3]
    in_bank = nl.tile_size.psum_bank_fmax * 4 // (P * size_of(w_raw.dtype))
    for k in range(k_tiles):
        for group in cut(taps, in_bank):
            first, count = group
            turned = nl.ndarray((P, count, P), dtype=w_raw.dtype, buffer=nl.psum)
            for t in range(count):
                nisa.nc_transpose(dst=turned[:, t], data=w_raw[:, m % 2, k, :, first + t])
            nisa.tensor_copy(dst=w_sb[:, m, k, first:first + count], src=turned)


def load_rows(X, x_sb, slot, image, row, col, lo, hi, cols):
    """Load input rows row + lo to row + hi of an image into rows lo to hi of a slot."""
    for k in range(X.shape[1] // P):
        nisa.dma_copy(dst=x_sb[:, slot, k, lo:hi, 0:cols],
                      src=X[image, k * P:(k + 1) * P, row + lo:row + hi, col:col + cols])


def drain(acc, bias, o_sb, r, c, pool):
    """Add the bias to what a PSUM bank has accumulated, pool it, and put it at (r, c) of o_sb.

    The maximum comes first: adding one number to all and rounding keep the order.
    """
    height, width = acc.shape[1] // pool, acc.shape[2] // pool
    into = o_sb[:, r:r + height, c:c + width]
    if pool > 1:
        # [P, height, width, y, x]: the elements of a pool are the last two dims
        windows = acc.reshape((P, height, pool, width, pool)).permute((0, 1, 3, 2, 4))
        largest = nl.ndarray((P, height, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=windows, axis=(3, 4))
        nisa.tensor_scalar(dst=into, data=largest, op0=nl.add, operand0=bias)
    else:
        nisa.tensor_scalar(dst=into, data=acc, op0=nl.add, operand0=bias)


def store_rows(out, o_sb, image, m, row, left, right, lo, hi):
    """Store rows lo to hi of the results of output-channel tile m, to columns left to right."""
    nisa.dma_copy(dst=out[image, m * P:(m + 1) * P, row + lo:row + hi, left:right],
                  src=o_sb[:, lo:hi])
# END SOLUTION


@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    """Convolve a batch of images (stride 1, no padding), add the bias, then max-pool.

    Args:
        X: images [batch, in_channels, in_height, in_width]; channels a multiple of 128.
        W: filters [out_channels, in_channels, size, size]; out_channels a multiple of 128.
        bias: [out_channels]. All three in one of float32, float16, bfloat16.
        pool_size: 1 (no pooling) or 2; divides in_height - size + 1 and in_width - size + 1.
    Returns: [batch, out_channels, (in_height - size + 1) / pool_size, (...width...) / pool_size].
    """
    check_shapes(X, W, bias, pool_size)
    # BEGIN SOLUTION step=1 section="1. A kernel that is right"
    batch, c_in, in_height, in_width = X.shape
    c_out, size, dtype = W.shape[0], W.shape[2], X.dtype
    height, width = in_height - size + 1, in_width - size + 1
    k_tiles, m_tiles, taps, halo = c_in // P, c_out // P, size * size, size - 1
    pool = pool_size
    out = nl.ndarray((batch, c_out, height // pool, width // pool), dtype=dtype,
                     buffer=nl.shared_hbm)

    tile = choose_tile(height, width, pool)
    block_rows, block_cols = plan(X, W, pool, tile)
    blocks = cut_images(batch, height, width, block_rows, block_cols)
    # The first block begins, and the last one ends, with tiles of a few whole rows: the matmuls
    # need not wait for all of its input, nor the end of the kernel for one large store.
    whole_rows = nl.tile_size.psum_bank_fmax // block_cols // pool * pool
    thin = (whole_rows, block_cols) if whole_rows > 0 else tile

    w_hbm = W.reshape((m_tiles, P, k_tiles, P, taps))
    w_raw = nl.ndarray((P, 2, k_tiles, P, taps), dtype=dtype, buffer=nl.sbuf)
    w_sb = nl.ndarray((P, m_tiles, k_tiles, taps, P), dtype=dtype, buffer=nl.sbuf)
    x_sb = nl.ndarray((P, 2, k_tiles, block_rows + halo, block_cols + halo), dtype=dtype,
                      buffer=nl.sbuf)
    bias_raw = nl.ndarray((P, m_tiles), dtype=dtype, buffer=nl.sbuf)
    bias_sb = nl.ndarray((P, m_tiles), dtype=nl.float32, buffer=nl.sbuf)

    load_filters(w_hbm, w_raw, 0)
    for step in range(len(blocks) + 1):
        # Load a block before computing the one before it: the DMA works beside the matmuls.
        if step < len(blocks):
            image, row, rows, col, cols = blocks[step]
            slot, end, width_in = step % 2, rows + halo, cols + halo
            if step == 0 and thin[0] < rows:
                load_rows(X, x_sb, slot, image, row, col, 0, thin[0] + halo, width_in)
                load_rows(X, x_sb, slot, image, row, col, thin[0] + halo, end, width_in)
            elif row == 0 or halo == 0:
                load_rows(X, x_sb, slot, image, row, col, 0, end, width_in)
            else:  # the halo came with the block above: it is copied, not loaded again
                nisa.tensor_copy(
                    dst=x_sb[:, slot, :, 0:halo, 0:width_in],
                    src=x_sb[:, 1 - slot, :, block_rows:block_rows + halo, 0:width_in])
                load_rows(X, x_sb, slot, image, row, col, halo, end, width_in)
        if step == 0:
            for m in range(m_tiles):
                nisa.dma_copy(dst=bias_raw[:, m:m + 1],
                              src=bias[m * P:(m + 1) * P].reshape((P, 1)))
            nisa.tensor_copy(dst=bias_sb, src=bias_raw)
        else:
            image, row, rows, col, cols = blocks[step - 1]
            slot, last = (step - 1) % 2, step == len(blocks)
            tiles = cut_block(rows, cols, thin if step == 1 or last else tile)
            left, right = col // pool, (col + cols) // pool  # of the output
            for m in range(m_tiles):
                if step == 1:
                    if m + 1 < m_tiles:
                        load_filters(w_hbm, w_raw, m + 1)
                    transpose_filters(w_raw, w_sb, m)
                o_sb = nl.ndarray((P, rows // pool, cols // pool), dtype=dtype, buffer=nl.sbuf)
                for t in range(len(tiles)):
                    r, n_r, c, n_c = tiles[t]
                    acc = nl.ndarray((P, n_r, n_c), dtype=nl.float32, buffer=nl.psum)
                    for k in range(k_tiles):
                        for i in range(size):
                            for j in range(size):
                                nisa.nc_matmul(
                                    dst=acc, stationary=w_sb[:, m, k, i * size + j],
                                    moving=x_sb[:, slot, k, r + i:r + i + n_r, c + j:c + j + n_c],
                                    accumulate=k + i + j > 0)
                    drain(acc, bias_sb[:, m:m + 1], o_sb, r // pool, c // pool, pool)
                    if last and c + n_c == cols:
                        store_rows(out, o_sb, image, m, row // pool, left, right, r // pool,
                                   (r + n_r) // pool)
                if not last:
                    store_rows(out, o_sb, image, m, row // pool, left, right, 0, rows // pool)
    return out
    # END SOLUTION


@nki.jit
def conv2d_nki(X, W, bias):
    """Convolve a batch of images (stride 1, no padding) and add the bias: no pooling."""
    return fused_conv2d_maxpool(X, W, bias, pool_size=1)
