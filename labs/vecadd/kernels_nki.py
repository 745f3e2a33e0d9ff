"""Vector addition and matrix transpose on a NeuronCore, in the dialect of `import nki`.

They are written for NKI 0.3 and later: an instruction names the tile that it writes (`dst=`), a
tile is allocated before it is written, tensors have no operators, and loops are Python's. The
compiler runs the instructions as they are written.

Constants in capitals are yours to change; `tester.py --row-chunk` and `--free-dim` replace them
for one run.
"""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128  # rows of a tile: the lanes that work at the same time

ROW_CHUNK = 1  # elements per tile of vector_add_tiled
FREE_DIM = 2  # elements per partition and tile of vector_add_stream
ALLOC_FREE_DIM = 1000  # the same for the two kernels that place their tiles themselves
ALLOC_TILES = 4  # physical tiles that each tensor's logical tiles rotate through


@nki.jit
def vector_add_naive(a_vec, b_vec):
    """Add two vectors of at most 128 elements, one element per partition."""
    size = a_vec.shape[0]
    out = nl.ndarray(a_vec.shape, dtype=a_vec.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((size, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    b = nl.ndarray((size, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
    total = nl.ndarray((size, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    # a tile on chip has two dims; a vector in HBM is one column of them
    nisa.dma_copy(dst=a, src=a_vec.reshape((size, 1)))
    nisa.dma_copy(dst=b, src=b_vec.reshape((size, 1)))
    nisa.tensor_tensor(dst=total, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=out.reshape((size, 1)), src=total)
    return out


@nki.jit
def vector_add_tiled(a_vec, b_vec):
    """Add two vectors of any multiple of ROW_CHUNK elements, ROW_CHUNK at a time."""
    size = a_vec.shape[0]
    assert size % ROW_CHUNK == 0, \
        f"the size {size} is not a multiple of ROW_CHUNK = {ROW_CHUNK}"
    out = nl.ndarray(a_vec.shape, dtype=a_vec.dtype, buffer=nl.shared_hbm)
    a_rows, b_rows = a_vec.reshape((size, 1)), b_vec.reshape((size, 1))
    out_rows = out.reshape((size, 1))

    # tiles are made in the loop: each iteration has its own, so one can load while another adds
    for i in range(0, size, ROW_CHUNK):
        a = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        b = nl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
        total = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=a_rows[i:i + ROW_CHUNK])
        nisa.dma_copy(dst=b, src=b_rows[i:i + ROW_CHUNK])
        nisa.tensor_tensor(dst=total, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=out_rows[i:i + ROW_CHUNK], src=total)
    return out


@nki.jit
def vector_add_stream(a_vec, b_vec):
    """Add two vectors in tiles of 128 partitions by FREE_DIM elements: fewer, larger transfers."""
    size = a_vec.shape[0]
    tile = PARTITIONS * FREE_DIM
    assert size % tile == 0, \
        f"the size {size} is not a multiple of a tile, 128 * FREE_DIM = {tile}"
    tiles = size // tile
    a_tiles = a_vec.reshape((tiles, PARTITIONS, FREE_DIM))
    b_tiles = b_vec.reshape((tiles, PARTITIONS, FREE_DIM))
    out = nl.ndarray((size,), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    out_tiles = out.reshape((tiles, PARTITIONS, FREE_DIM))

    for i in range(tiles):
        a = nl.ndarray((PARTITIONS, FREE_DIM), dtype=a_vec.dtype, buffer=nl.sbuf)
        b = nl.ndarray((PARTITIONS, FREE_DIM), dtype=b_vec.dtype, buffer=nl.sbuf)
        total = nl.ndarray((PARTITIONS, FREE_DIM), dtype=a_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=a_tiles[i])
        nisa.dma_copy(dst=b, src=b_tiles[i])
        nisa.tensor_tensor(dst=total, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=out_tiles[i], src=total)
    return out


def place_tiles(dtype, first_byte):
    """Return ALLOC_TILES tiles, one after the other in SBUF from first_byte of each partition."""
    itemsize = 4 if dtype == nl.float32 else 2
    tiles = []
    for i in range(ALLOC_TILES):
        address = (0, first_byte + i * ALLOC_FREE_DIM * itemsize)  # (partition, byte in it)
        tiles.append(nl.ndarray((PARTITIONS, ALLOC_FREE_DIM), dtype=dtype, buffer=nl.sbuf,
                                address=address))
    return tiles


def add_in_tiles(a_vec, b_vec, out, a, b, total):
    """Add two vectors through placed tiles: logical tile i lies in tile i % ALLOC_TILES."""
    tile = PARTITIONS * ALLOC_FREE_DIM
    size = a_vec.shape[0]
    tiles = size // tile
    a_tiles = a_vec.reshape((tiles, PARTITIONS, ALLOC_FREE_DIM))
    b_tiles = b_vec.reshape((tiles, PARTITIONS, ALLOC_FREE_DIM))
    out_tiles = out.reshape((tiles, PARTITIONS, ALLOC_FREE_DIM))
    for i in range(tiles):
        at = i % ALLOC_TILES
        nisa.dma_copy(dst=a[at], src=a_tiles[i])
        nisa.dma_copy(dst=b[at], src=b_tiles[i])
        nisa.tensor_tensor(dst=total[at], data1=a[at], data2=b[at], op=nl.add)
        nisa.dma_copy(dst=out_tiles[i], src=total[at])


@nki.jit
def vector_add_direct_allocation(a_vec, b_vec):
    """Do what vector_add_stream does, but choose the SBUF address of every tile.

    Each tensor has as many logical tiles as it needs and ALLOC_TILES physical ones; logical tile i
    lies in physical tile i modulo ALLOC_TILES. While one is added, the next can be loaded.
    """
    size = a_vec.shape[0]
    tile = PARTITIONS * ALLOC_FREE_DIM
    assert size % tile == 0, \
        f"the size {size} is not a multiple of a tile, 128 * ALLOC_FREE_DIM = {tile}"
    out = nl.ndarray((size,), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    itemsize = 4 if a_vec.dtype == nl.float32 else 2
    step = ALLOC_TILES * ALLOC_FREE_DIM * itemsize  # bytes per partition that a tensor takes
    a = place_tiles(a_vec.dtype, 0)
    b = place_tiles(b_vec.dtype, step)
    total = place_tiles(a_vec.dtype, 2 * step)
    add_in_tiles(a_vec, b_vec, out, a, b, total)
    return out


@nki.jit
def vector_add_direct_allocation_bad(a_vec, b_vec):
    """Make a mistake on purpose: all three tensors begin at address 0."""
    size = a_vec.shape[0]
    tile = PARTITIONS * ALLOC_FREE_DIM
    assert size % tile == 0, \
        f"the size {size} is not a multiple of a tile, 128 * ALLOC_FREE_DIM = {tile}"
    out = nl.ndarray((size,), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    a = place_tiles(a_vec.dtype, 0)
    b = place_tiles(b_vec.dtype, 0)
    total = place_tiles(a_vec.dtype, 0)
    add_in_tiles(a_vec, b_vec, out, a, b, total)
    return out


@nki.jit
def matrix_transpose(matrix):
    """Transpose a matrix whose sides are multiples of 128; computes with nc_transpose only."""
    rows, columns = matrix.shape
    tile = nl.tile_size.pmax
    assert rows % tile == 0 and columns % tile == 0, \
        f"a {rows} x {columns} matrix does not divide into {tile} x {tile} tiles"
    out = nl.ndarray((columns, rows), dtype=matrix.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=4 section="Step 4: transpose a matrix"
    # Blocks of 8 x 8 tiles: what is loaded and what is stored are rows of 8 tiles (4 KiB of float32
    # per partition). Transfers of one tile would have an eighth of that, and the DMA engines would
    # spend more on starting each piece than need be. The tiles are turned in between, in SBUF.
    wide = 8 * tile
    for y in range(0, rows, wide):
        for x in range(0, columns, wide):
            height, width = min(wide, rows - y), min(wide, columns - x)
            block = nl.ndarray((tile, height // tile, width), dtype=matrix.dtype, buffer=nl.sbuf)
            turned = nl.ndarray((tile, width // tile, height), dtype=matrix.dtype, buffer=nl.sbuf)
            for r in range(height // tile):
                nisa.dma_copy(dst=block[:, r],
                              src=matrix[y + r * tile:y + (r + 1) * tile, x:x + width])
            for c in range(width // tile):
                for r in range(height // tile):
                    of_psum = nl.ndarray((tile, tile), dtype=matrix.dtype, buffer=nl.psum)
                    nisa.nc_transpose(dst=of_psum, data=block[:, r, c * tile:(c + 1) * tile])
                    nisa.tensor_copy(dst=turned[:, c, r * tile:(r + 1) * tile], src=of_psum)
                nisa.dma_copy(dst=out[x + c * tile:x + (c + 1) * tile, y:y + height],
                              src=turned[:, c])
    # END SOLUTION
    return out
