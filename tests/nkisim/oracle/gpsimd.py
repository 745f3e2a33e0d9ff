"""GpSimd Engine: indices, gathers, reductions across partitions."""

from __future__ import annotations

import numpy as np

from .common import BITVEC, Expected, cast, f32, fold


def iota(expr, dtype, *, mask):
    """The values of an index expression, in 32-bit integer arithmetic, then cast."""
    return {"": Expected(cast(expr.astype(np.int32), dtype), mask)}


def affine_select(pred, on_true_tile, on_false_value, *, mask, dtype=None):
    value = np.where(pred, f32(on_true_tile), np.float32(on_false_value))
    return {"": Expected(cast(value, dtype or on_true_tile.dtype), mask)}


def tensor_partition_reduce(op, data, *, mask, dtype=None):
    """Reduce across partitions; a mask over data takes partitions and columns away."""
    shape = (1, *data.shape[1:])
    value = np.zeros(shape, data.dtype if op in BITVEC else np.float32)
    written = np.zeros(shape, bool)
    for at in np.ndindex(*data.shape[1:]):
        values = data[(slice(None), *at)][mask[(slice(None), *at)]]
        if values.size:
            written[(0, *at)] = True
            value[(0, *at)] = fold(op, values if op in BITVEC else f32(values), data.dtype)
    return {"": Expected(cast(value, dtype or data.dtype), written)}


def local_gather(src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask):
    """Each group of 16 partitions gathers with the indices of its 16 partitions."""
    # what a mask means for an instruction whose partitions share their indices is not said
    flat = src_buffer.reshape(src_buffer.shape[0], -1)
    valid = num_valid_indices or index.size // (index.shape[0] // 16)
    out = np.zeros((flat.shape[0], valid, num_elem_per_idx), src_buffer.dtype)
    for core in range(flat.shape[0] // 16):
        own = slice(core * 16, core * 16 + 16)
        indices = index[own].reshape(16, -1).flatten(order="F")[:valid]  # partitions first
        for p in range(own.start, own.stop):
            for k, start in enumerate(indices):
                out[p, k] = flat[p, start : start + num_elem_per_idx]
    whole = valid == index.size // (index.shape[0] // 16)
    if whole:  # the example of the documentation has this shape
        out = out.reshape(flat.shape[0], index.shape[1], 16, num_elem_per_idx)
    return {"": Expected(out, np.ones(out.shape, bool) & mask)}


def gather_flattened(data, indices, *, mask, dtype=None):
    """out[p, i...] = data[p] flattened, at indices[p, i...]; the mask is over the indices."""
    out = np.zeros(indices.shape, data.dtype)
    for at in np.ndindex(*indices.shape):
        out[at] = data[at[0]].reshape(-1)[indices[at]]
    return {"": Expected(cast(out, dtype or data.dtype), mask)}


def sequence_bounds(*, segment_ids, dtype=None, mask):
    """Start and end of the run of equal ids of each element; (n, -1) where the id is 0."""
    ids = segment_ids[0].tolist()
    n = len(ids)
    value = np.zeros((1, 2, n))
    for i, segment in enumerate(ids):
        first, last = i, i
        while first > 0 and ids[first - 1] == segment:
            first -= 1
        while last < n - 1 and ids[last + 1] == segment:
            last += 1
        value[0, :, i] = (first, last + 1) if segment else (n, -1)
    return {"": Expected(cast(value, dtype or segment_ids.dtype), mask)}
