"""Instructions whose operands the table does not declare, each TIMES times: nki."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

TIMES = 16


def loaded(a, dtype=None):
    """Return the tensor in SBUF, in another dtype if one is given."""
    t = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a)
    if dtype is None:
        return t
    cast = nl.ndarray(a.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=cast, src=t)
    return cast


def stored(t):
    """Return the tile in HBM."""
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def dma_compute(a):
    """Add two tensors on their way from HBM to HBM."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for _ in nl.static_range(TIMES):
        nisa.dma_compute(dst=out, srcs=[a, a], reduce_op=nl.add)
    return out


@nki.jit
def sequence_bounds(a):
    """Find the bounds of segments in one row of labels 1, which is one segment."""
    n = a.shape[1]
    labels = nl.ndarray((1, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(labels, 1.0)
    bounds = nl.ndarray((1, 2, n), dtype=nl.float32, buffer=nl.sbuf)
    for _ in nl.static_range(TIMES):
        nisa.sequence_bounds(dst=bounds, segment_ids=labels)
    return stored(bounds)


@nki.jit
def nonzero_with_count(a):
    """List where every 16th partition is not zero: everywhere."""
    rows, n = a.shape
    tile = loaded(a, nl.int32)
    found = nl.ndarray((rows, n + 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(found, 0)
    for _ in nl.static_range(TIMES):
        nisa.nonzero_with_count(dst=found, src=tile, index_offset=0, padding_val=-1)
    return stored(found)


@nki.jit
def topk(a):
    """Find the 8 largest of the 16 partitions of each GpSimd core."""
    rows, n = a.shape
    tile = loaded(a, nl.bfloat16)
    most = nl.ndarray((rows, 8), dtype=nl.bfloat16, buffer=nl.sbuf)
    index = nl.ndarray((rows, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(most, 0.0)
    nisa.memset(index, 0)
    for _ in nl.static_range(TIMES):
        nisa.topk(val_dst=most, idx_dst=index, src=tile, n=16 * n)
    return stored(most)


@nki.jit
def set_rng_seed(a):
    """Set the seed of the generators."""
    seed = nl.ndarray((1, 1), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(seed, 7)
    for _ in nl.static_range(TIMES):
        nisa.set_rng_seed(src_seeds=seed)
    bits = nl.ndarray(a.shape, dtype=nl.uint32, buffer=nl.sbuf)
    nisa.rng(dst=bits)
    return stored(bits)


@nki.jit
def rand_set_state(a):
    """Set the state of the generators of the GpSimd Engine: 6 words a lane."""
    words = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(words, 7)
    for _ in nl.static_range(TIMES):
        nisa.rand_set_state(src_seeds=words, engine=nisa.engine.gpsimd)
    bits = nl.ndarray(a.shape, dtype=nl.uint32, buffer=nl.sbuf)
    nisa.rng(dst=bits)
    return stored(bits)


def packed(tile, pad):
    """Return a bfloat16 tile as MXFP8, and its scales."""
    rows, n = tile.shape
    pack = nl.ndarray((rows, n // 4), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    scale = nl.ndarray((rows, n // 4), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.memset(scale, 0)
    for _ in nl.static_range(pad):
        nisa.quantize_mx(dst=pack, src=tile, dst_scale=scale)
    return pack, scale


@nki.jit
def quantize_mx(a):
    """Turn a bfloat16 tile into MXFP8 and its scales."""
    _, scale = packed(loaded(a, nl.bfloat16), TIMES)
    return stored(scale)


@nki.jit
def nc_matmul_mx(a):
    """Multiply a 128 x 64 by a 128 x n tile of MXFP8, each of 4 values."""
    n = a.shape[1]
    tile = loaded(a, nl.bfloat16)
    moving, moving_scale = packed(tile, 1)
    stationary, stationary_scale = packed(tile[:, 0 : min(n, 256)], 1)
    columns = min(n, 256) // 4
    product = nl.ndarray((columns, n // 4), dtype=nl.float32, buffer=nl.psum)
    for _ in nl.static_range(TIMES):
        nisa.nc_matmul_mx(
            dst=product,
            stationary=stationary,
            moving=moving,
            stationary_scale=stationary_scale,
            moving_scale=moving_scale,
        )
    out = nl.ndarray((columns, n // 4), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=product)
    return stored(out)


@nki.jit
def _sendrecv(a):
    """Exchange a tile with the other core."""
    me = nl.program_id(0)
    tile = loaded(a)
    other = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for _ in nl.static_range(TIMES):
        nisa.sendrecv(src=tile, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    half = a.shape[0] // 2
    nisa.dma_copy(dst=out[nl.ds(me * half, half), :], src=other[nl.ds(me * half, half), :])
    return out


sendrecv = _sendrecv[2]


@nki.jit
def _core_barrier(a):
    """Write half of a tensor, and wait for the other core, which writes the other half."""
    me = nl.program_id(0)
    tile = loaded(a)
    both = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    half = a.shape[0] // 2
    nisa.dma_copy(dst=both[nl.ds(me * half, half), :], src=tile[nl.ds(me * half, half), :])
    for _ in nl.static_range(TIMES):
        nisa.core_barrier(both, (0, 1))
    return both


core_barrier = _core_barrier[2]
