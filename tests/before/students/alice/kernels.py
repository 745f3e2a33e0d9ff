"""Vector addition and matrix transpose on a NeuronCore.

Read the kernels in order; each removes one weakness of the one before. All of them move data with
`nl.load` (HBM to SBUF) and `nl.store` (SBUF to HBM); `nisa.dma_copy(dst=, src=)` would do the same
into tiles that you allocate yourself. `skip_middle_end_transformations` asks the compiler to run
what is written, so that the transfers you count in the source are those in a profile.

Constants in capitals are yours to change; `tester.py --row-chunk` and `--free-dim` replace them
for one run.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

PARTITIONS = 128  # rows of a tile: the lanes that work at the same time

ROW_CHUNK = 1  # elements per tile of vector_add_tiled
FREE_DIM = 2  # elements per partition and tile of vector_add_stream
ALLOC_FREE_DIM = 1000  # the same for the two kernels that place their tiles themselves
ALLOC_TILES = 4  # physical tiles that each tensor's logical tiles rotate through


@nki.compiler.skip_middle_end_transformations
@nki.jit
def vector_add_naive(a_vec, b_vec):
    """Add two vectors of at most 128 elements, one element per partition."""
    out = nl.ndarray(a_vec.shape, dtype=a_vec.dtype, buffer=nl.shared_hbm)
    a = nl.load(a_vec)
    b = nl.load(b_vec)
    nl.store(out, value=nl.add(a, b))
    return out


@nki.compiler.skip_middle_end_transformations
@nki.jit
def vector_add_tiled(a_vec, b_vec):
    """Add two vectors of any multiple of ROW_CHUNK elements, ROW_CHUNK at a time."""
    size = a_vec.shape[0]
    assert size % ROW_CHUNK == 0, f"the size {size} is not a multiple of ROW_CHUNK = {ROW_CHUNK}"
    out = nl.ndarray(a_vec.shape, dtype=a_vec.dtype, buffer=nl.shared_hbm)

    # affine_range: no iteration needs what another one computed
    for i in nl.affine_range(size // ROW_CHUNK):
        a = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        b = nl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
        a[...] = nl.load(a_vec[i * ROW_CHUNK : (i + 1) * ROW_CHUNK])
        b[...] = nl.load(b_vec[i * ROW_CHUNK : (i + 1) * ROW_CHUNK])
        nl.store(out[i * ROW_CHUNK : (i + 1) * ROW_CHUNK], value=nl.add(a, b))
    return out


@nki.compiler.skip_middle_end_transformations
@nki.jit
def vector_add_stream(a_vec, b_vec):
    """Add two vectors in tiles of 128 partitions by FREE_DIM elements: fewer, larger transfers."""
    size = a_vec.shape[0]
    tile = PARTITIONS * FREE_DIM
    assert size % tile == 0, f"the size {size} is not a multiple of a tile, 128 * FREE_DIM = {tile}"
    tiles = size // tile
    a_tiles = a_vec.reshape((tiles, PARTITIONS, FREE_DIM))
    b_tiles = b_vec.reshape((tiles, PARTITIONS, FREE_DIM))
    out = nl.ndarray((tiles, PARTITIONS, FREE_DIM), dtype=a_vec.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(tiles):
        a = nl.load(a_tiles[i])
        b = nl.load(b_tiles[i])
        nl.store(out[i], value=nl.add(a, b))
    return out.reshape((size,))


@nki.jit
def vector_add_direct_allocation(a_vec, b_vec):
    """Do what vector_add_stream does, but choose the SBUF address of every tile.

    Each tensor has as many logical tiles as it needs and ALLOC_TILES physical ones; logical tile i
    lies in physical tile i modulo ALLOC_TILES. While one is added, the next can be loaded.
    """
    size = a_vec.shape[0]
    tile = PARTITIONS * ALLOC_FREE_DIM
    assert size % tile == 0, (
        f"the size {size} is not a multiple of a tile, 128 * ALLOC_FREE_DIM = {tile}"
    )
    tiles = size // tile
    a_tiles = a_vec.reshape((tiles, PARTITIONS, ALLOC_FREE_DIM))
    b_tiles = b_vec.reshape((tiles, PARTITIONS, ALLOC_FREE_DIM))
    out = nl.ndarray((tiles, PARTITIONS, ALLOC_FREE_DIM), dtype=a_vec.dtype, buffer=nl.shared_hbm)

    shape = (tiles, nl.par_dim(PARTITIONS), ALLOC_FREE_DIM)
    step = ALLOC_TILES * ALLOC_FREE_DIM * a_vec.itemsize  # bytes per partition that a tensor takes
    a = nl.ndarray(
        shape,
        dtype=a_vec.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(ALLOC_TILES,)),
    )
    b = nl.ndarray(
        shape,
        dtype=b_vec.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=step, num_free_tiles=(ALLOC_TILES,)),
    )
    total = nl.ndarray(
        shape,
        dtype=a_vec.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=2 * step, num_free_tiles=(ALLOC_TILES,)),
    )
    for i in nl.affine_range(tiles):
        a[i] = nl.load(a_tiles[i])
        b[i] = nl.load(b_tiles[i])
        total[i] = nisa.tensor_tensor(a[i], b[i], op=nl.add)
        nl.store(out[i], value=total[i])
    return out.reshape((size,))


@nki.jit
def vector_add_direct_allocation_bad(a_vec, b_vec):
    """Make a mistake on purpose: all three tensors begin at address 0."""
    size = a_vec.shape[0]
    tile = PARTITIONS * ALLOC_FREE_DIM
    assert size % tile == 0, (
        f"the size {size} is not a multiple of a tile, 128 * ALLOC_FREE_DIM = {tile}"
    )
    tiles = size // tile
    a_tiles = a_vec.reshape((tiles, PARTITIONS, ALLOC_FREE_DIM))
    b_tiles = b_vec.reshape((tiles, PARTITIONS, ALLOC_FREE_DIM))
    out = nl.ndarray((tiles, PARTITIONS, ALLOC_FREE_DIM), dtype=a_vec.dtype, buffer=nl.shared_hbm)

    shape = (tiles, nl.par_dim(PARTITIONS), ALLOC_FREE_DIM)
    a = nl.ndarray(
        shape,
        dtype=a_vec.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(ALLOC_TILES,)),
    )
    b = nl.ndarray(
        shape,
        dtype=b_vec.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(ALLOC_TILES,)),
    )
    total = nl.ndarray(
        shape,
        dtype=a_vec.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(ALLOC_TILES,)),
    )
    for i in nl.affine_range(tiles):
        a[i] = nl.load(a_tiles[i])
        b[i] = nl.load(b_tiles[i])
        total[i] = nisa.tensor_tensor(a[i], b[i], op=nl.add)
        nl.store(out[i], value=total[i])
    return out.reshape((size,))


@nki.compiler.skip_middle_end_transformations
@nki.jit
def matrix_transpose(matrix):
    """Transpose a matrix whose sides are multiples of 128; computes with nc_transpose only."""
    rows, columns = matrix.shape
    tile = nl.tile_size.pmax
    assert rows % tile == 0 and columns % tile == 0, (
        f"a {rows} x {columns} matrix does not divide into {tile} x {tile} tiles"
    )
    out = nl.ndarray((columns, rows), dtype=matrix.dtype, buffer=nl.shared_hbm)
    # BEGIN SOLUTION step=4 section="Step 4: transpose a matrix"
    # Blocks of 8 x 8 tiles: what is loaded and what is stored are rows of 8 tiles (4 KiB of float32
    # per partition). Transfers of one tile would have an eighth of that, and the DMA engines would
    # spend more on starting each piece than need be. The tiles are turned in between, in SBUF.
    wide = 8 * tile
    for y in nl.static_range(0, rows, wide):
        for x in nl.static_range(0, columns, wide):
            height, width = min(wide, rows - y), min(wide, columns - x)
            block = nl.ndarray(
                (nl.par_dim(tile), height // tile, width), dtype=matrix.dtype, buffer=nl.sbuf
            )
            turned = nl.ndarray(
                (nl.par_dim(tile), width // tile, height), dtype=matrix.dtype, buffer=nl.sbuf
            )
            for r in nl.affine_range(height // tile):
                block[:, r] = nl.load(matrix[y + r * tile : y + (r + 1) * tile, x : x + width])
            for c in nl.affine_range(width // tile):
                for r in nl.affine_range(height // tile):
                    turned[:, c, r * tile : (r + 1) * tile] = nisa.nc_transpose(
                        block[:, r, c * tile : (c + 1) * tile]
                    )
                nl.store(out[x + c * tile : x + (c + 1) * tile, y : y + height], value=turned[:, c])
    # END SOLUTION
    return out
